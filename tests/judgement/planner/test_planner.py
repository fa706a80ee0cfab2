"""The cheapest ways to make runs fit, and the most that still fits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.linked import run_of

from oomlint.dialects import registry
from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_hardware
from oomlint.judgement import Risk, judgement_of
from oomlint.judgement.planner import Effort, hardware_options, largest, ways_to_fit
from oomlint.judgement.planner.moves import safe_moves
from oomlint.plan.fields import f
from oomlint.report.fits import Fitting, render
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_LORA = """\
base_model: NousResearch/Meta-Llama-3-8B
sequence_len: 4096
sample_packing: true
micro_batch_size: {micro}
gradient_accumulation_steps: {accumulation}
gradient_checkpointing: {checkpointing}
adapter: lora
lora_r: 16
lora_target_linear: true
optimizer: adamw_torch_fused
bf16: true
flash_attention: true
"""

_FULL = """\
base_model: NousResearch/Llama-2-13b-hf
sequence_len: 2048
micro_batch_size: 1
gradient_accumulation_steps: 8
gradient_checkpointing: true
optimizer: adamw_torch_fused
bf16: true
flash_attention: true
deepspeed: ds.json
"""

_ZERO2 = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2}
}
"""


def _run(files: Mapping[str, str], hardware: str, ram_gib: float | None = None) -> Run:
    return run_of(
        files, hardware=hardware, values={} if ram_gib is None else {"host.ram_gib": ram_gib}
    )


def _lora(micro: int, accumulation: int, checkpointing: str, hardware: str) -> Run:
    text = _LORA.format(micro=micro, accumulation=accumulation, checkpointing=checkpointing)
    return _run({"a.yaml": text}, hardware)


def test_a_run_that_fits_needs_nothing() -> None:
    assert ways_to_fit(_lora(1, 4, "true", "1xA100-80GB")) == []


def test_the_first_way_is_safe_fits_and_is_the_cheapest() -> None:
    ways = ways_to_fit(_lora(8, 1, "false", "1xA100-80GB"))
    first, *others = ways
    assert first.is_safe
    assert judgement_of(first.run).verdict == "fits"
    assert all(first.slowdown <= way.slowdown for way in others if way.is_safe)
    assert first.run.plan.batch.micro * first.run.plan.batch.grad_accum == 8  # type: ignore[operator]


def test_no_move_of_a_way_is_needless() -> None:
    run = _lora(8, 1, "false", "1xRTX-3090-24GB")
    first = ways_to_fit(run)[0]
    assert len(first.moves) >= 2
    for move in first.moves:
        others: dict[str, object] = {}
        for other in first.moves:
            if other is not move:
                others.update(other.changes)
        assert judgement_of(run.what_if(others)).verdict != "fits"


def test_slower_ways_leave_more_room() -> None:
    ways = [way for way in ways_to_fit(_lora(8, 1, "false", "1xA100-40GB")) if way.is_safe]
    peaks = [way.estimate.gpu.peak_bytes or 0 for way in ways]
    assert len(ways) >= 2
    assert peaks == sorted(peaks, reverse=True)


def test_sharding_comes_before_offloading_which_is_slower() -> None:
    run = _run({"a.yaml": _FULL, "ds.json": _ZERO2}, "8xA100-40GB", ram_gib=1024)
    first = ways_to_fit(run)[0]
    assert first.run.plan.parallel.zero.stage == 3
    assert first.run.plan.offload.optimizer in (None, "none")


def test_offloading_is_no_way_where_the_host_is_too_small() -> None:
    files = {"a.yaml": _FULL.replace("13b", "70b"), "ds.json": _ZERO2}
    enough = ways_to_fit(_run(files, "8xA100-80GB", ram_gib=2048), unsafe=False)
    assert any(way.run.plan.offload.optimizer == "cpu" for way in enough)
    small = ways_to_fit(_run(files, "8xA100-80GB", ram_gib=128), unsafe=False)
    assert not any(way.run.plan.offload.optimizer == "cpu" for way in small)


def test_what_gives_something_up_is_marked_and_left_out_on_request() -> None:
    run = _run({"a.yaml": _FULL.replace("deepspeed: ds.json\n", "")}, "1xA100-80GB")
    assert ways_to_fit(run, unsafe=False) == []
    ways = ways_to_fit(run)
    assert ways
    assert all(way.gives_up for way in ways)


def test_moves_that_are_not_taken_are_not_looked_at() -> None:
    run = _lora(8, 1, "false", "1xA100-80GB")
    ways = ways_to_fit(run, takes=lambda move: move.rule == "no-gradient-checkpointing")
    assert {move.rule for way in ways for move in way.moves} <= {"no-gradient-checkpointing"}


def test_a_refused_run_is_no_way() -> None:
    run = _lora(8, 1, "false", "1xA100-80GB")
    ways = ways_to_fit(run, accepts=lambda changed: changed.plan.batch.micro == 8)
    assert all(way.run.plan.batch.micro == 8 for way in ways)


@pytest.mark.parametrize(("accumulation", "is_global_kept"), [(64, True), (1, False)])
def test_largest_micro_batch(accumulation: int, is_global_kept: bool) -> None:
    run = _lora(1, accumulation, "true", "1xA100-80GB")
    way = largest(run, "micro_batch")
    assert way is not None
    batch = way.run.plan.batch
    assert batch.micro is not None
    assert batch.micro > 1
    assert way.is_safe == is_global_kept
    steps = max(1, (batch.grad_accum or 1) // 2)
    double = run.what_if({"batch.micro": batch.micro * 2, "batch.grad_accum": steps})
    assert judgement_of(double).verdict != "fits" or batch.micro == accumulation


def test_longest_sequence() -> None:
    run = _lora(1, 4, "true", "1xRTX-5090-32GB")
    way = largest(run, "seq_len")
    assert way is not None
    longest = way.run.plan.seq.max_len
    assert longest is not None
    longer = run.what_if({"seq.max_len": longest + 256})
    assert Risk.of(longer).verdict != "fits"


def test_highest_throughput_spends_room_on_speed() -> None:
    way = largest(_lora(1, 16, "true", "1xB200-180GB"), "throughput")
    assert way is not None
    assert way.slowdown < 1
    assert way.run.plan.checkpointing.mode == "none"


def test_smallest_hardware_is_enough_and_no_smaller_number_is() -> None:
    run = _lora(4, 1, "true", "1xT4-16GB")
    options = hardware_options(run)
    names = [option.hardware.gpu.name for option in options]
    assert "A100-80GB" in names
    assert "T4-16GB" not in names
    assert any("p4de.24xlarge" in option.machines for option in options) or all(
        option.hardware.gpus_per_node == 1 for option in options
    )


def test_every_move_is_explained_by_a_rule() -> None:
    from oomlint.judgement.planner.moves import safe_moves, speeding_moves, unsafe_moves
    from oomlint.linting.engine import all_rules

    names = {rule.name for rule in all_rules()}
    files = {"a.yaml": _FULL, "ds.json": _ZERO2}
    runs = [_run(files, "8xA100-40GB"), _lora(8, 4, "false", "1xA100-80GB")]
    for run in runs:
        groups = (*safe_moves(run), *speeding_moves(run), *unsafe_moves(run))
        assert len(groups) >= 5
        assert {move.rule for group in groups for move in group} <= names


def test_ways_differ_in_kind_and_each_is_better_in_something() -> None:
    for run in (_lora(8, 1, "false", "1xA100-80GB"), _lora(16, 1, "true", "1xRTX-3090-24GB")):
        ways = ways_to_fit(run)
        assert 1 <= len(ways) <= 5
        assert len({way.kind for way in ways}) == len(ways)
        for way in ways:
            assert not any(other is not way and other.dominates(way) for other in ways)


_WIDE = """\
base_model: Qwen/Qwen-VL-Chat
datasets:
  - path: a/b
    type: alpaca
sequence_len: 1920
micro_batch_size: 16
gradient_accumulation_steps: 2
gradient_checkpointing: true
adapter: lora
lora_r: 64
lora_target_linear: true
bf16: true
"""


def test_wide_bounds_make_no_way_change_more_than_leaves_room() -> None:
    first, *others = ways_to_fit(_run({"a.yaml": _WIDE}, "1xRTX-A6000-48GB"))
    assert (first.estimate.gpu.high_bytes or 0) > (first.base.limits.gpu_bytes or 0)
    assert first.is_comfortable
    assert [move.title for move in first.moves] == ["compute the loss fused with the output head"]
    assert all(way.peak_bytes < first.peak_bytes for way in others)


def test_nvme_is_used_where_the_files_name_a_path_and_the_host_is_small() -> None:
    swapping = _ZERO2.replace(
        '{"stage": 2}',
        '{"stage": 3, "offload_optimizer": {"device": "none", "nvme_path": "/nvme"}}',
    )
    run = _run({"a.yaml": _FULL.replace("13b", "70b"), "ds.json": swapping}, "8xA100-80GB", 512)
    titles = [move.title for way in ways_to_fit(run, unsafe=False) for move in way.moves]
    assert any("/nvme" in title for title in titles)
    without = _run({"a.yaml": _FULL.replace("13b", "70b"), "ds.json": _ZERO2}, "8xA100-80GB", 512)
    assert not any(
        "nvme" in str(way.changes.values()) for way in ways_to_fit(without, unsafe=False)
    )


_VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=256"
    " data.max_prompt_length=1024 data.max_response_length=3072"
    " actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct"
    " actor_rollout_ref.actor.ppo_mini_batch_size=64"
    " actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"
    " actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=5"
    " actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=64"
    " trainer.n_gpus_per_node=8 trainer.nnodes=1\n"
)


def test_a_pass_that_scores_too_many_answers_is_given_fewer() -> None:
    """Training is as it was: nothing is given up for it."""
    (way, *_) = ways_to_fit(_run({"run.sh": _VERL}, "8xA100-40GB"))
    assert any("log probabilities" in title for title in way.titles)
    rollout = way.run.plan.objective.rollout
    assert (rollout.rollout_micro_batch or 0) < 64
    assert way.run.plan.batch.micro == 1


@pytest.mark.parametrize(
    ("model", "is_offered"), [("own/gla-1.7B", False), ("meta-llama/Llama-3.2-1B", True)]
)
def test_no_other_attention_is_proposed_for_a_model_of_known_size_alone(
    model: str, is_offered: bool
) -> None:
    text = (
        f"model_name_or_path: {model}\ndataset_name: own/data\nattn_implementation: eager\n"
        "max_length: 4096\nper_device_train_batch_size: 2\nlearning_rate: 1.0e-4\nbf16: true\n"
    )
    workspace = Workspace(Path("/p"), {"sft.yaml": text.encode()})
    options = LinkOptions(hardware=parse_hardware("1xRTX-4090"))
    (run,) = Linker(workspace, registry(), options).link(["sft.yaml"]).runs
    # What is tried at all: a way with it would bring nothing that is known, and is not among the found in any case.
    tried = [move for group in safe_moves(run) for move in group]
    assert any(f.model.attn_impl in move.changes for move in tried) is is_offered
    ways = ways_to_fit(run)
    assert ways
    # Titles and changes, not the whole: a way has runs, and they all that was linked, which takes seconds to write out.
    assert any(f.model.attn_impl in way.changes for way in ways) is is_offered
    assert any("attend" in title for way in ways for title in way.titles) is is_offered


_TOO_LARGE = """\
base_model: meta-llama/Llama-3.1-405B
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
sequence_len: 8192
sample_packing: true
micro_batch_size: 4
gradient_accumulation_steps: 2
optimizer: adamw_torch
learning_rate: 1e-5
bf16: true
deepspeed: ds.json
output_dir: out
"""


def test_a_search_that_finds_nothing_ends_and_tells() -> None:
    """405B on one node: some forty bundles of what may be given up, with hundreds of combinations each."""
    zero = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
    run = _run({"a.yaml": _TOO_LARGE, "ds.json": zero}, "8xA100-40GB", ram_gib=1024)
    effort = Effort(3000)
    assert ways_to_fit(run, effort=effort) == []
    assert effort.is_spent
    assert judgement_of(run).is_lost
    text = render([Fitting(run, None, [], [], ended_early=effort.is_spent)])
    assert "ended before it had seen them all" in " ".join(text.split())
