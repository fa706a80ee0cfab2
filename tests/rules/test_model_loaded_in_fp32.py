"""Weights that are loaded in fp32: what they take, and when that is worth a warning."""

from __future__ import annotations

import pytest
from tests.linked import report_of

from oomlint.linting.rule import Severity
from oomlint_rules.precision.model_loaded_in_fp32 import ModelLoadedInFp32

_SCRIPT = """\
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("{model}", torch_dtype=torch.float32)
arguments = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=1,
    gradient_checkpointing=True,
    bf16=True,
)
Trainer(model=model, args=arguments, train_dataset=data).train()
"""
_VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=gae"
    " data.train_batch_size=256 data.max_prompt_length=512 data.max_response_length=512"
    " actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct"
    " actor_rollout_ref.model.enable_gradient_checkpointing=True"
    " actor_rollout_ref.model.use_remove_padding=True"
    " actor_rollout_ref.actor.ppo_mini_batch_size=64"
    " actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"
    " actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1"
    " actor_rollout_ref.actor.fsdp_config.model_dtype=fp32"
    " actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.gpu_memory_utilization=0.3"
    " critic.model.path=Qwen/Qwen2.5-7B-Instruct critic.ppo_micro_batch_size_per_gpu=1"
    " trainer.n_gpus_per_node=4 trainer.nnodes=1\n"
)


@pytest.mark.parametrize(
    ("model", "expected"),
    # 16 bytes a parameter are 23.0 GiB of 1.54B and 46.0 of 3.09B, 8 bytes 11.5 and 23.0, of some 19.5 with the context.
    [
        ("Qwen/Qwen2.5-1.5B-Instruct", Severity.WARNING),
        ("Qwen/Qwen2.5-3B-Instruct", Severity.INFO),
    ],
)
def test_only_a_run_that_lives_by_16_bit_is_warned_of_fp32(model: str, expected: Severity) -> None:
    found = report_of(
        {"train.py": _SCRIPT.format(model=model)},
        hardware="1x20GB",
        rules=[ModelLoadedInFp32],
    ).diagnoses
    assert [each.severity for each in found] == [expected]


def test_what_is_loaded_in_fp32_are_weights_alone() -> None:
    """Shards of actor and critic, taken to be as large, in fp32 over four cards: 2 x 7.62 billion x 4 bytes / 4 are
    14.2 GiB. The critic's optimizer and vLLM's copy are no part of them."""
    (found,) = report_of(
        {"train.sh": _VERL}, hardware="4xRTX-4090-24GB", rules=[ModelLoadedInFp32]
    ).diagnoses
    assert found.finding.message == "weights are loaded in fp32 and take 14.2 GiB"
