"""Which loss each framework computes, as far as it decides what is kept for backward."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.plan import Plan

_TRL = """\
model_name_or_path: Qwen/Qwen2.5-7B
dataset_name: trl-lib/Capybara
learning_rate: 2.0e-5
per_device_train_batch_size: 4
max_length: 2048
output_dir: out
"""
_LLAMA_FACTORY = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B
stage: {stage}
do_train: true
finetuning_type: full
dataset: identity
template: llama3
cutoff_len: 2048
output_dir: out
"""
_TORCHTUNE = """\
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: /tmp/tokenizer.model
model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: /tmp/model
dataset:
  _component_: torchtune.datasets.alpaca_dataset
optimizer:
  _component_: torch.optim.AdamW
  lr: 2e-5
loss:
  _component_: torchtune.modules.loss.{loss}
batch_size: 2
"""
_VERL = """\
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
    data.max_prompt_length=512 data.max_response_length=1024 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct \\
    actor_rollout_ref.model.use_fused_kernels={fused} \\
    actor_rollout_ref.rollout.name=vllm trainer.n_gpus_per_node=8
"""
_OPENRLHF = """\
deepspeed --num_gpus 8 --module openrlhf.cli.train_dpo --data.max_len 2048 \\
   --train.micro_batch_size 2 --model.model_name_or_path meta-llama/Meta-Llama-3-8B \\
   --ckpt.output_dir ./out --ds.zero_stage 2 --ds.param_dtype bf16
"""
_SWIFT = """\
swift rlhf --rlhf_type dpo --model Qwen/Qwen2.5-7B-Instruct --dataset hjh0119/shareAI-Llama3-DPO \\
    --max_length 2048 --per_device_train_batch_size 1
"""


def plan_of(name: str, text: str) -> Plan:
    """Under the last TRL that does not compute the head tile by tile."""
    return run_of({name: text, "requirements.txt": "trl==1.14.2\n"}, name).plan


def test_a_chunk_copies_the_head_until_trl_1_13() -> None:
    """TRL 1.12.0 and 1.13.0 trainer/sft_trainer.py _chunk: w.float() was w.to(h.dtype) from then on."""
    files = {"sft.yaml": _TRL + "loss_type: chunked_nll\n"}
    algorithms = {
        release: run_of(
            files | {"requirements.txt": f"trl=={release}\n"}, "sft.yaml"
        ).plan.loss.algorithm
        for release in ("1.12.0", "1.13.0")
    }
    assert algorithms == {"1.12.0": "recomputed_chunks", "1.13.0": "recomputed_as_given"}


@pytest.mark.parametrize(
    ("name", "text", "mode", "algorithm"),
    [
        ("sft.yaml", _TRL + "loss_type: chunked_nll\n", "chunked", "recomputed_as_given"),
        ("sft.yaml", _TRL + "loss_type: nll\n", "full", None),
        ("sft.yaml", _TRL + "loss_type: nll\nuse_liger_kernel: true\n", "fused", None),
        (
            "run.sh",
            "trl dpo --config dpo.yaml --model_name_or_path Qwen/Qwen2.5-7B\n",
            "full",
            "rows",
        ),
        ("rm.yaml", _LLAMA_FACTORY.format(stage="rm"), "full", "dropped"),
        ("dpo.yaml", _LLAMA_FACTORY.format(stage="dpo"), "full", None),
        ("full.yaml", _TORCHTUNE.format(loss="LinearCrossEntropyLoss"), "chunked", "head_chunks"),
        ("full.yaml", _TORCHTUNE.format(loss="CEWithChunkedOutputLoss"), "chunked", None),
        ("run.sh", _VERL.format(fused="False"), "full", "in_place"),
        ("run.sh", _VERL.format(fused="True"), "fused", None),
        ("run.sh", _OPENRLHF, "full", "kernel"),
        ("run.sh", _SWIFT, "completion_only", "rows"),
    ],
)
def test_the_loss_is_the_frameworks_own(
    name: str, text: str, mode: str, algorithm: str | None
) -> None:
    loss = plan_of(name, text).loss
    assert (loss.logits_materialised, loss.algorithm) == (mode, algorithm)


def test_expert_parallelism_pads_to_the_cutoff_in_llama_factorys_megatron() -> None:
    text = _LLAMA_FACTORY.format(stage="sft") + "pipeline_model_parallel_size: 4\n"
    assert plan_of("a.yaml", text).seq.pad == "longest"
    assert plan_of("a.yaml", text + "expert_model_parallel_size: 2\n").seq.pad == "max_len"
