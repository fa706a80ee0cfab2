"""What settings cost in time: signs and orders of magnitude that published measurements have."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.plans import plan_of

from oomlint.hardware import parse_hardware
from oomlint.judgement.planner import throughput as roofline
from oomlint.judgement.planner.throughput import Rates, Sizes, rates, seconds_per_token
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


# -- by hand, with round rates: 4e14 FLOPs of 1e15 are reached ------------------------------------

ROUND = Rates(flops=1e15, memory=1e12, link=1e11, inside=2e11, pcie=1e10, nvme=1e9)
PART = Sizes(active=10**9, total=2 * 10**9, trained=5 * 10**8)


@pytest.mark.parametrize(
    ("tokens", "changes", "seconds"),
    [
        # Forward, gradients of activations, and of a quarter of the weights: 1000 x 2e9 FLOPs each.
        (1000, {}, 2.25 * 5e-3),
        # 2e9 bytes of weights are read at 1e12 a second, however few the tokens.
        (100, {}, 2.25 * 2e-3),
        # Attention of 100 tokens: 4 x 2 x 5e5 x 100 / 2 FLOPs a token.
        (1000, {"model__dims": ModelDims(layers=2, hidden=500_000)}, 2.25 * 5.5e-3),
        (1000, {"model__dims": ModelDims(layers=10)}, 2.25 * 16e-3),
        (1000, {"checkpointing__mode": "full"}, 3.25 * 5e-3),
        (1000, {"checkpointing__mode": "every_n", "checkpointing__every_n": 4}, 2.5 * 5e-3),
        (1000, {"checkpointing__mode": "selective_op"}, 2.75 * 5e-3),
        (1000, {"checkpointing__mode": "selective_op", "checkpointing__source": "megatron"}, 2.45 * 5e-3),
        (1000, {"checkpointing__offload": "disk"}, 1.019 * 2.25 * 5e-3),
        (1000, {"quant__method": "bnb8"}, 1.39 * 2.25 * 5e-3),
    ],
)  # fmt: skip
def test_computing_by_hand(tokens: float, changes: dict[str, Any], seconds: float) -> None:
    found = roofline._compute(plan_of({}, **changes), PART, tokens, 100, ROUND)
    assert found == pytest.approx(seconds)


def test_no_weight_has_more_than_one_gradient() -> None:
    wide = replace(PART, trained=4 * 10**9)
    assert roofline._compute(plan_of({}), wide, 1000, 100, ROUND) == pytest.approx(3 * 5e-3)


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        # Of four ranks three quarters move: 3e9 bytes of weights, 7.5e8 of gradients.
        ({"zero__stage": 3, "backend": "zero"}, (0.0675, 0)),
        ({"zero__stage": 3, "backend": "zero", "zero__hpz": 2}, (0.0375, 0)),
        ({"zero__stage": 2, "backend": "zero"}, (0.0075, 0.0075)),
        ({"zero__stage": 1, "backend": "zero"}, (0, 0.015)),
        ({"backend": "ddp"}, (0, 0.015)),
        ({"backend": "ddp", "zero__stage": 3}, (0, 0.015)),
        ({"backend": "ddp", "zero__stage": 2}, (0, 0.015)),
        ({"backend": "fsdp1", "fsdp__strategy": "full"}, (0.0675, 0)),
        ({"backend": "fsdp2"}, (0.0675, 0)),
        ({"backend": "fsdp1", "fsdp__strategy": "grad_op"}, (0.0375, 0)),
        ({"backend": "fsdp2", "fsdp__reshard_after_forward": False}, (0.0375, 0)),
        ({"backend": "fsdp1", "fsdp__strategy": "hybrid"}, (0.0375, 0)),
        ({"backend": "fsdp1", "fsdp__strategy": "hybrid_grad_op"}, (0.0225, 0)),
    ],
)
def test_collectives_by_hand(changes: dict[str, Any], seconds: tuple[float, float]) -> None:
    plan = plan_of({}, **{f"parallel__{name}": value for name, value in changes.items()})
    assert roofline._traffic(plan, PART, 4.0, ROUND) == pytest.approx(seconds)
    assert roofline._traffic(plan, PART, 1.0, ROUND) == (0, 0)


def test_what_is_gathered_is_as_wide_as_it_is_kept() -> None:
    def stored(**changes: Any) -> float:
        return roofline._stored(plan_of({}, **changes))

    assert (stored(), stored(precision__compute="fp32")) == (2, 4)
    packed = stored(quant__method="nf4_torchao")
    assert packed == stored(quant__method="bnb4", precision__compute="fp32")
    assert 0.5 <= packed < 0.6


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        ({}, 0),
        ({"offload__params": "cpu"}, 2e9),
        ({"offload__params": "nvme"}, 2e9),
        ({"parallel__fsdp__cpu_offload": True}, 2e9),
        ({"offload__optimizer": "cpu", "parallel__zero__stage": 2}, 2.5e8),
        ({"offload__optimizer": "nvme", "parallel__zero__stage": 3, "offload__params": "cpu"}, 2.25e9),
        ({"offload__optimizer": "cpu", "parallel__zero__stage": 1}, 0),
        ({"checkpointing__offload": "cpu", "model__dims": ModelDims(layers=10, hidden=64)}, 4 * 1000 * 640),
        ({"checkpointing__offload": "none", "model__dims": ModelDims(layers=10, hidden=64)}, 0),
        ({"checkpointing__offload": "cpu", "model__dims": ModelDims(hidden=64)}, 0),
        ({"checkpointing__offload": "cpu", "model__dims": ModelDims(layers=10)}, 0),
        ({"checkpointing__offload": "cpu"}, 0),
    ],
)  # fmt: skip
def test_bytes_over_pcie_by_hand(changes: dict[str, Any], moved: float) -> None:
    found = roofline._offload_traffic(plan_of({}, **changes), PART, 1000.0, 4.0)
    assert found == pytest.approx(moved)


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, 0),
        # 16-bit gradients down and weights up, a fourth on each rank; Adam of a node's half.
        ({"offload__optimizer": "cpu"}, 0.05 + 0.06425),
        ({"parallel__fsdp__cpu_offload": True}, 0.05 + 0.06425),
        # 24 bytes of each state at 1 GB a second hide Adam.
        ({"offload__optimizer": "nvme"}, 0.05 + 6),
        ({"offload__optimizer": "nvme", "parallel__fsdp__cpu_offload": True}, 0.05 + 0.06425),
        ({"offload__optimizer": "cpu", "parallel__nodes": None}, 0.05 + 0.1285),
    ],
)
def test_a_step_on_the_host_by_hand(changes: dict[str, Any], seconds: float) -> None:
    plan = plan_of({"parallel.nodes": 2}, **changes)
    assert roofline._host_step(plan, PART, 4.0, ROUND) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("changes", "usual", "seconds"),
    [
        # 4 rows of 2 samples of 100 tokens: 9 ms a pass.
        ({}, None, 9e-3 / 800),
        ({}, 1000, 9e-3 / 800),
        ({}, 25, 4.5e-3 / 200),
        # Gradients are reduced once for three passes.
        ({"parallel__backend": "ddp"}, None, (3 * 9e-3 + 0.015) / 2400),
        ({"parallel__backend": "ddp", "batch__grad_accum": None}, None, (9e-3 + 0.015) / 800),
        ({"parallel__backend": "ddp", "seq__max_len": None}, None, (3 * 0.18432 + 0.015) / (3 * 16_384)),
        ({"parallel__backend": "ddp", "parallel__world": None}, None, 9e-3 / 800),
        ({"parallel__backend": "ddp", "batch__micro": None}, None, (3 * 4.5e-3 + 0.015) / 600),
        ({"parallel__backend": "ddp", "objective__pairs_per_sample": None}, None, (3 * 4.5e-3 + 0.015) / 1200),
        ({"parallel__backend": "fsdp2"}, None, 0.0675 / 800),
        ({"parallel__backend": "fsdp2", "offload__params": "cpu"}, None, 0.2 / 800),
        ({"parallel__backend": "none", "offload__optimizer": "cpu", "parallel__zero__stage": 1}, None, (3 * 9e-3 + 0.05 + 0.1285 + 0.015) / 2400),
    ],
)  # fmt: skip
def test_a_token_by_hand(changes: dict[str, Any], usual: int | None, seconds: float) -> None:
    leaves = {
        "batch.micro": 4, "batch.grad_accum": 3, "objective.pairs_per_sample": 2, "seq.max_len": 100,
        "parallel.world": 4,
    }  # fmt: skip
    alone = {"parallel__world": 1} if not changes else {}
    plan = plan_of(leaves, **alone, **changes)
    assert seconds_per_token(plan, PART, ROUND, usual) == pytest.approx(seconds)


def test_rates_of_a_card_of_which_little_is_known() -> None:
    assert rates(None) == Rates(312e12, 2.039e12, 240e9, 240e9, 25.2e9)
    known = parse_hardware("8xA100-80GB")

    def of(nodes: int = 1, gbps: float | None = None, **changes: Any) -> Rates:
        gpu = replace(known.gpu, **changes)
        return rates(replace(known, gpu=gpu, nodes=nodes, inter_node_gbps=gbps))

    assert [of(pcie_gen=gen).pcie for gen in (3, 4, 5, 6, None)] == [
        12.6e9,
        25.2e9,
        50.4e9,
        50.4e9,
        25.2e9,
    ]
    assert of(nvlink_gb_s=None, pcie_gen=5).inside == 50.4e9
    assert rates(replace(known, only_pcie=True)).inside == 25.2e9
    assert (of(2).link, of(2).inside, of(2, 100).link, of(1, 100).link) == (
        25e9,
        240e9,
        12.5e9,
        240e9,
    )
    assert of(2, 8000).link == 240e9
    assert of(bf16_tflops=100, fp16_tflops=200).flops == 100e12
    assert of(bf16_tflops=None, fp16_tflops=200).flops == 200e12
    assert of(bf16_tflops=None, fp16_tflops=None).flops == 312e12
    assert of(memory_bandwidth_gb_s=500).memory == 500e9
    assert of(memory_bandwidth_gb_s=None).memory == 2.039e12
