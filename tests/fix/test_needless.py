"""Fixes that cost something are not applied for batches that most data never makes."""

from __future__ import annotations

import pytest
from tests import linked
from tests.fixing import repaired

from oomlint.fix.apply import FixResult
from oomlint.judgement import judgement_of, needs_all_samples_long
from oomlint.judgement.planner import ways_to_fit
from oomlint.linting.rule import Severity
from oomlint.runs.run import Run

VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=a "
    "data.max_prompt_length=512 data.max_response_length=1024 "
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct "
    "actor_rollout_ref.actor.ppo_mini_batch_size=116 "
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={micro} trainer.nnodes=1 "
    "trainer.n_gpus_per_node=1 actor_rollout_ref.model.use_remove_padding={joined}\n"
)
# One sample of full length pads the others to its own.
PADDED = """\
base_model: meta-llama/Llama-3.1-8B
datasets: [{path: a/b}]
adapter: lora
lora_r: 8
lora_target_linear: true
sequence_len: 8192
micro_batch_size: 8
bf16: true
flash_attention: true
gradient_checkpointing: true
"""
H100 = "1xH100-80GB"


def fixed(name: str, text: str) -> FixResult:
    return repaired({name: text}, hardware=H100)


def run_of(name: str, text: str) -> Run:
    return linked.run_of({name: text}, hardware=H100)


def test_batch_that_several_long_samples_fill_is_left_and_the_way_out_shown() -> None:
    text = VERL.format(micro=12, joined=True).replace("=1024", "=32768")
    result = fixed("run.sh", text)
    assert result.texts == {}
    (found,) = (d for d in result.report.diagnoses if d.rule.name == "gpu-memory-at-risk")
    assert found.severity is Severity.INFO
    assert ways_to_fit(run_of("run.sh", text))


def test_batch_that_only_many_long_samples_fill_is_likely_to_fit() -> None:
    run = run_of("run.sh", VERL.format(micro=116, joined=True))
    limit = run.limits.gpu_bytes
    assert limit is not None
    assert (run.estimate.gpu.peak_bytes or 0) > limit
    assert judgement_of(run).verdict == "fits"
    larger = run_of("run.sh", VERL.format(micro=116, joined=True).replace("=1024", "=8192"))
    assert judgement_of(larger).is_lost


def test_batch_padded_to_its_longest_sample_is_made_smaller() -> None:
    assert fixed("run.sh", VERL.format(micro=116, joined=False)).texts


def test_one_long_sample_is_enough_where_batches_are_padded() -> None:
    run = run_of("a.yaml", PADDED)
    assert judgement_of(run).is_lost
    assert not needs_all_samples_long(run)
    # How long it is no file says, unless each batch is padded to the limit.
    assert not fixed("a.yaml", PADDED).texts
    assert fixed("a.yaml", f"{PADDED}pad_to_sequence_len: true\n").texts


@pytest.mark.parametrize(
    ("micro", "joined", "expected"), [(116, True, True), (116, False, False), (1, True, False)]
)
def test_what_takes_several_long_samples(micro: int, joined: bool, expected: bool) -> None:
    assert (
        needs_all_samples_long(run_of("run.sh", VERL.format(micro=micro, joined=joined)))
        is expected
    )


@pytest.mark.parametrize("is_joined", [True, False])
def test_padding_free_batches_take_several_long_samples_too(is_joined: bool) -> None:
    text = (
        "swift sft --model Qwen/Qwen2.5-7B-Instruct --train_type lora --dataset x --torch_dtype bfloat16 "
        "--max_length 8192 --per_device_train_batch_size 16 --attn_impl flash_attn "
        f"--gradient_checkpointing true --padding_free {str(is_joined).lower()}\n"
    )
    run = run_of("run.sh", text)
    assert judgement_of(run).is_lost
    assert needs_all_samples_long(run) is is_joined
    assert not fixed("run.sh", text).texts
