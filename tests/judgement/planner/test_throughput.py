"""What settings cost in time: signs and orders of magnitude that published measurements have."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.plans import plan_of

from oomlint.hardware import parse_hardware
from oomlint.judgement.planner.throughput import Sizes, rates, seconds_per_token
from oomlint.plan import Plan
from oomlint.plan.model import ModelDims

SEVEN_B = Sizes(active=7 * 10**9, total=7 * 10**9, trained=7 * 10**9)
ZERO3 = {
    "parallel.world": 8,
    "parallel.nodes": 1,
    "parallel.backend": "zero",
    "parallel.zero.stage": 3,
}
RUN = {"batch.micro": 4, "batch.grad_accum": 8, "seq.max_len": 2048, **ZERO3}


def _seconds(hardware: str = "8xA100-80GB", sizes: Sizes = SEVEN_B, **changes: Any) -> float:
    plan = plan_of(RUN, **changes)
    return seconds_per_token(plan, sizes, rates(parse_hardware(hardware)))


def _ratio(hardware: str = "8xA100-80GB", **changes: Any) -> float:
    return _seconds(hardware, **changes) / _seconds(hardware)


def test_recomputing_costs_a_third() -> None:
    full = _ratio(checkpointing__mode="full")
    assert 1.3 <= full <= 1.4  # Korthikanti et al., arXiv 2205.05198: 30 to 40 %
    some = _ratio(checkpointing__mode="selective_op")
    assert 1 < some < full
    megatron = _ratio(checkpointing__mode="selective_op", checkpointing__source="megatron")
    assert 1.05 <= megatron <= 1.08
    assert 1 < _ratio(checkpointing__mode="every_n", checkpointing__every_n=4) < full


def test_streaming_checkpoints_to_the_host_costs_a_little() -> None:
    full = _seconds(checkpointing__mode="full")
    both = _seconds(checkpointing__mode="full", checkpointing__offload="cpu")
    assert 1.01 <= both / full <= 1.1


def test_sharding_parameters_is_hidden_on_nvlink_and_not_on_pcie() -> None:
    assert _seconds() == pytest.approx(_seconds(parallel__zero__stage=1), rel=0.05)
    small: dict[str, Any] = {"batch__micro": 1, "seq__max_len": 512}
    pcie = "8xRTX-4090-24GB"
    assert _seconds(pcie, **small) > 1.5 * _seconds(pcie, parallel__zero__stage=1, **small)


def test_offloading_the_optimizer_is_shared_by_accumulation_steps() -> None:
    once = _ratio(offload__optimizer="cpu")
    often = _seconds(offload__optimizer="cpu", batch__grad_accum=1) / _seconds(batch__grad_accum=1)
    assert 1 < once < often
    assert _ratio(offload__optimizer="nvme") > once


def test_what_is_not_trained_costs_no_gradient_and_no_step() -> None:
    frozen = replace(SEVEN_B, trained=0)
    assert _seconds(sizes=frozen) / _seconds() == pytest.approx(2 / 3, rel=0.02)
    offloaded = _seconds(sizes=frozen, offload__optimizer="cpu")
    assert offloaded == pytest.approx(_seconds(sizes=frozen))


def test_a_pass_over_few_tokens_takes_as_long_as_its_launches() -> None:
    dims = ModelDims(layers=24, hidden=2048)
    small = Sizes(active=1_800_000_000, total=1_800_000_000, trained=0)
    run: dict[str, Any] = {
        "batch.micro": 1, "batch.grad_accum": 8, "model.dims": dims, "checkpointing.mode": "full",
        "parallel.world": 1,
    }  # fmt: skip
    seconds = {}
    for length in (256, 512, 4096, 8192):
        plan = Plan().with_values({**run, "seq.max_len": length})
        rate = rates(parse_hardware("1xA100-80GB"))
        seconds[length] = 8 * length * seconds_per_token(plan, small, rate)
    # QwenLM/Qwen README: 1.0, 1.0, 3.3 and 6.8 s.
    assert seconds[256] == seconds[512] == pytest.approx(1.0, rel=0.2)
    assert seconds[8192] / seconds[4096] == pytest.approx(6.8 / 3.3, rel=0.1)


def test_four_bits_cost_what_they_are_unpacked_in() -> None:
    assert 1.3 <= _ratio(quant__method="bnb4") <= 1.45


def test_a_mixture_of_experts_computes_the_active_and_moves_all() -> None:
    experts = Sizes(active=13 * 10**9, total=47 * 10**9, trained=0)
    dense = Sizes(active=13 * 10**9, total=13 * 10**9, trained=0)
    alone: dict[str, Any] = {"parallel__zero__stage": 1}
    assert _seconds(sizes=experts, **alone) == _seconds(sizes=dense, **alone)
    slow = "8xRTX-4090-24GB"
    assert _seconds(slow, sizes=experts) > _seconds(slow, sizes=dense)


def test_links_of_catalogued_machines() -> None:
    inside = rates(parse_hardware("8xH100-80GB"))
    assert inside.link == inside.inside == pytest.approx(360e9)
    assert rates(parse_hardware("2xp4d.24xlarge")).link == 400e9 / 8
    assert rates(parse_hardware("2xp5.48xlarge")).link == inside.inside
    assert rates(parse_hardware("2x8xH100-80GB")).link < inside.link
    assert rates(parse_hardware("8xRTX-4090-24GB")).inside == rates(None).pcie


def test_hybrid_sharding_gathers_inside_a_node() -> None:
    nodes: dict[str, Any] = {
        "parallel__backend": "fsdp1",
        "parallel__world": 16,
        "parallel__nodes": 2,
    }
    nodes |= {"batch__micro": 1, "seq__max_len": 512}
    across = _seconds("2xp4d.24xlarge", parallel__fsdp__strategy="full", **nodes)
    inside = _seconds("2xp4d.24xlarge", parallel__fsdp__strategy="hybrid", **nodes)
    assert inside < across


@pytest.mark.parametrize(
    "changes",
    [
        {"batch__micro": 1, "batch__grad_accum": 32},
        {"parallel__zero__stage": 2},
        {"offload__params": "cpu"},
        {"parallel__world": 1},
    ],
)
def test_ratios_stay_within_reason(changes: dict[str, Any]) -> None:
    assert 0.5 <= _ratio(**changes) <= 5


def test_short_samples_hide_less_of_what_is_moved() -> None:
    """A frozen base of 32 billion parameters in host RAM: with samples as long as they may be computing hides the
    copies, with 120 tokens recomputing is cheaper."""
    base = Sizes(active=32 * 10**9, total=32 * 10**9, trained=0)
    rate = rates(parse_hardware("8xA100-40GB"))
    changed: dict[str, Any] = {
        "parallel__backend": "fsdp2", "parallel__zero__stage": None, "batch__micro": 2, "seq__max_len": 4096,
    }  # fmt: skip
    moved = plan_of(RUN, **changed, parallel__fsdp__cpu_offload=True)
    recomputed = plan_of(RUN, **changed, checkpointing__mode="full")

    def slower(usual: int | None) -> bool:
        times = [seconds_per_token(plan, base, rate, usual) for plan in (moved, recomputed)]
        return times[0] > times[1]

    assert not slower(None)
    assert slower(120)
