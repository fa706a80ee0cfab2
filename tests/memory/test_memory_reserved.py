"""What torch reserves, how far a prediction may be off, and what a measurement moves: by hand, from instants that are given."""

from __future__ import annotations

from math import hypot, log
from typing import Any

import pytest
from msgspec.structs import replace
from tests.plans import LLAMA_8B, plan_of

from oomlint.hardware import parse_hardware
from oomlint.memory import GpuLimits
from oomlint.memory.allocator import left_by_packing, reserved_above, reserved_for_loading
from oomlint.memory.bounds import Totals, bounds
from oomlint.memory.facts import Facts
from oomlint.memory.measured import Measurement, Nearest, anchored
from oomlint.memory.result import Bounds, DeviceEstimate, Estimate, HostEstimate
from oomlint.memory.step import Point
from oomlint.plan import Plan
from oomlint.plan.model import Moe

GB, GIB = 10**9, 2**30
NUMEL, LARGEST = 8_030_261_248, 128_256 * 4_096
BLOCK = 218_112_000
LEAVES: dict[str, Any] = {
    "model.dims": LLAMA_8B, "model.from_scratch": True, "trainable.method": "full",
    "precision.param": "bf16", "precision.compute": "bf16", "batch.micro": 1, "seq.max_len": 4096,
    "seq.packing": "multipack", "parallel.world": 8,
}  # fmt: skip


def facts(**changes: Any) -> Facts:
    return Facts(plan_of(LEAVES, **changes))


# -- what is reserved -------------------------------------------------------------------------------------

SEGMENTS = 64 * 2**20
RESIDENT = 50 * GB
FORWARD = Point(activations=20 * GB, logits=10 * GB, communication=2 * GB, temporary=1 * GB)
BACKWARD = Point(8 * GB, 12 * GB, 5 * GB, 3 * GB, 2 * GB)
STEP = Point(gradients=9 * GB, temporary=4 * GB)
POINTS = {"forward": [FORWARD], "backward": [BACKWARD], "optimizer_step": [STEP], "idle": [Point()]}
# At the loss: an eighth of what comes and goes, a fourth of the logits.
ONE = 1.12 * 23 + 1.25 * 10
# In the step: what moved, gradients, and what it needs itself.
STEPPED = 9 + 32 + 4
# Of segments that grow.
GROWN = 1.02 * 33
# What FSDP2 gathers of a block, the embedding and the head with its norm, in 2 bytes; of segments that grow, of a block
# and the head.
GATHERED = 2 * (BLOCK + LARGEST + LARGEST + 4_096) / GB
GATHERED_GROWN = 2 * (BLOCK + LARGEST + 4_096) / GB
VARIED = {"seq__packing": "none"}
FSDP = {"parallel__backend": "fsdp2"}


@pytest.mark.parametrize(
    ("changes", "fixed", "varied"),
    [
        ({}, ONE, STEPPED),
        # A loop steps parameter by parameter; an emptied cache serves the step from backward's blocks.
        ({"optimizer__foreach": False}, ONE, 41),
        ({"optimizer__foreach": False, "optimizer__fused": True}, ONE, STEPPED),
        ({"optimizer__foreach": False, "parallel__backend": "zero", "parallel__zero__stage": 2}, ONE, STEPPED),
        ({"env__empty_cache_steps": 5}, ONE, ONE),
        # Segments that grow leave a fiftieth, and of logits three twentieths.
        ({"env__expandable_segments": True}, GROWN, GROWN),
        ({"env__no_caching": True}, 1.02 * 33, 1.02 * 33),
        # Lengths that vary: 2.4 times the logits, which are more than 0.45 times the activations.
        (VARIED, ONE, 33 + 24),
        ({**VARIED, "env__expandable_segments": True}, GROWN, GROWN),
        # Chunks of logits are of one size: of the activations 9, in backward 8 + 17 + 5 + 5.4.
        ({**VARIED, "loss__logits_materialised": "chunked"}, ONE, STEPPED),
        ({**VARIED, "env__empty_cache_steps": 60}, ONE, 33 + 24),
        ({**VARIED, "env__empty_cache_steps": 600}, ONE, 33 + 24),
        ({**VARIED, "env__empty_cache_steps": 30}, ONE, 33 + 24 * log(30) / log(60)),
        # Streams of their own keep the most gradients, and of FSDP2 what is gathered, which is copied from there.
        (FSDP, 9 + 1.12 * GATHERED + ONE, 9 + 1.12 * GATHERED + max(ONE, 32 + 4)),
        ({**FSDP, **VARIED}, 9 + 1.12 * GATHERED + ONE, 9 + 1.12 * GATHERED + 33 + 24),
        # Shards in 4 bytes are copied in 2 before the largest unit is gathered, here a block with the ends.
        (
            {**FSDP, "precision__param": "fp32", "parallel__fsdp__wrap": "transformer"},
            9 + 1.12 * (GATHERED + 2 * (2 * LARGEST + 4_096) / 8 / GB) + ONE,
            9 + 1.12 * (GATHERED + 2 * (2 * LARGEST + 4_096) / 8 / GB) + ONE,
        ),
        # Of FSDP1 the widest windows are. The CPU runs two units of a block ahead.
        (
            {"parallel__backend": "fsdp1"},
            9 + 1.12 * (3 + 2 * 2 * BLOCK / GB) + 1.12 * 21 + 12.5,
            9 + 1.12 * (3 + 2 * 2 * BLOCK / GB) + max(1.12 * 21 + 12.5, 36),
        ),
        # Segments that grow are of one stream too; without a cache there are none.
        (
            {**FSDP, "env__expandable_segments": True},
            9 + 1.02 * GATHERED_GROWN + GROWN, 9 + 1.02 * GATHERED_GROWN + GROWN,
        ),
        (
            {"parallel__backend": "fsdp1", "env__expandable_segments": True},
            9 + 1.02 * (3 + 2 * 2 * BLOCK / GB + 21) + 1.02 * 10,
            9 + 1.02 * (3 + 2 * 2 * BLOCK / GB + 21) + 1.02 * 10,
        ),
        ({**FSDP, "env__no_caching": True}, 1.02 * 33, 1.02 * 33),
        # The largest tensor in the width that it keeps.
        ({"model__from_scratch": False}, ONE, 2 * LARGEST / GB + STEPPED),
        ({"model__from_scratch": False, "env__empty_cache_steps": 5}, ONE, ONE),
        ({"model__from_scratch": False, "env__no_caching": True}, 1.02 * 33, 1.02 * 33),
    ],
)  # fmt: skip
def test_blocks_that_stay_reserved(changes: dict[str, Any], fixed: float, varied: float) -> None:
    found = reserved_above(facts(**changes), POINTS, RESIDENT)
    base = RESIDENT + SEGMENTS
    assert found == (pytest.approx(base + fixed * GB), pytest.approx(base + varied * GB))


def test_piles_of_activations_and_of_chunks() -> None:
    long: Any = {"forward": [Point(1 * GB, 20 * GB, 2 * GB)], "optimizer_step": [Point()]}
    base = SEGMENTS
    whole = reserved_above(facts(**VARIED), long, 0)[1]
    assert whole == pytest.approx(base + (1 + 20 + 2 + 0.45 * 20) * GB)
    logits: Any = {
        "forward": [Point(logits=20 * GB, activations=2 * GB)],
        "optimizer_step": [Point()],
    }
    chunked = reserved_above(facts(**VARIED, loss__logits_materialised="chunked"), logits, 0)[1]
    assert chunked == pytest.approx(base + (20 + 2 + 0.25 * 20) * GB + 0.12 * 2 * GB)


def test_zero_3_keeps_what_it_fetched() -> None:
    """Fifteen GiB, or the model in 16 bit where that is less."""

    def gathered(**changes: Any) -> float:
        zero: dict[str, Any] = {"parallel__backend": "zero", "parallel__zero__stage": 3, **changes}
        return reserved_above(facts(**zero), {"optimizer_step": [Point()]}, 0)[1] - SEGMENTS

    assert gathered() == 2 * NUMEL < 15 * GIB
    assert gathered(model__dims=replace(LLAMA_8B, layers=64)) == 15 * GIB
    assert gathered(parallel__zero__stage=2) == gathered(env__expandable_segments=True) == 0


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"quant__method": "bnb4"}, 0.9 * 2 * NUMEL),
        ({"quant__method": "bnb8"}, 0.9 * 2 * NUMEL),
        ({"quant__method": "bnb4", "parallel__tp": 2, "parallel__backend": "fsdp2"}, 0.9 * NUMEL),
        ({"quant__method": "hqq"}, 0),
        ({"quant__method": "bnb4", "model__native_quant": "bnb4"}, 0),
        ({"quant__method": "bnb4", "versions": {"transformers": "5.4.0"}}, 0),
        ({"quant__method": "bnb4", "versions": {"transformers": "4.57.0"}}, 0),
        ({"quant__method": "bnb4", "versions": {}}, 0),
        (
            {"quant__method": "bnb4",
             "model__dims": replace(LLAMA_8B, arch="mixtral", moe=Moe(experts=8, topk=2))}, 0,
        ),
    ],
)  # fmt: skip
def test_packing_aside_leaves_nine_tenths(changes: dict[str, Any], left: float) -> None:
    values: dict[str, Any] = {
        "trainable__method": "lora", "versions": {"transformers": "5.3.0"}, **changes,
    }  # fmt: skip
    assert left_by_packing(facts(**values)) == pytest.approx(left)


def test_windows_of_loading_leave_holes() -> None:
    found = reserved_for_loading(30 * GB, Point(communication=10 * GB))
    assert found == pytest.approx(30 * GB + 11.2 * GB + SEGMENTS)


# -- how far it may be off --------------------------------------------------------------------------------

AT = Totals(
    allocated=100 * GB, states=60 * GB, fixed=110 * GB, reserved=130 * GB, engine=0.0,
    point=Point(0, 10 * GB, 20 * GB, 4 * GB, 6 * GB),
)  # fmt: skip
LIMITS = GpuLimits(
    context=1 * GB, context_high=3 * GB, nccl=2 * GB, nccl_high=6 * GB, usable=200 * GB
)
# A twentieth of states to 15 %, a fourth of what moves, a tenth of the logits.
LESS, MORE = [3, 5, 2], [9, 5, 2]
SINGLE = {"parallel__backend": "none", "parallel__world": 1}


@pytest.mark.parametrize(
    ("changes", "at", "less", "more", "held_less", "held_more"),
    [
        ({}, AT, [], [], [], []),
        # Cast on the GPU through fp32: half of two bytes of the largest tensor.
        ({"model__from_scratch": False}, AT, [], [LARGEST / GB], [], []),
        # A longest batch that stays below, or never comes; runs of short samples read 3 GiB more.
        (VARIED, AT, [0.4 * 30], [], [20], [0.6 * 20, 3 * GIB / GB]),
        ({"parallel__backend": "zero", "parallel__zero__stage": 3, "parallel__world": 8}, AT, [], [], [], [4 * GIB / GB]),
        ({"parallel__backend": "zero", "parallel__zero__stage": 2, "parallel__world": 8}, AT, [], [], [], []),
        ({"model__dims": replace(LLAMA_8B, arch="nobodys_class")}, AT, [35], [50], [], []),
        # Inputs in 8 bits are half; weights in 8 bits twice.
        ({"precision__fp8_train": "te"}, AT, [5], [2 * 32 * (BLOCK - 2 * 4096) / GB], [], []),
        ({"precision__fp8_train": "torchao"}, AT, [], [], [], []),
        ({"model__dims": replace(LLAMA_8B, arch="mixtral", moe=Moe(experts=8, topk=2))}, AT, [], [30], [], []),
        (
            {"model__dims": replace(LLAMA_8B, arch="mixtral", moe=Moe(experts=8, topk=2)),
             "parallel__backend": "fsdp2", "parallel__world": 8, "parallel__ep": 4}, AT, [], [40], [], [],
        ),
        # The graphs of an engine, and of its pool nothing.
        (
            {"model__dims": replace(LLAMA_8B, arch="nobodys_class")}, replace(AT, engine=40.0 * GB),
            [0.35 * 60], [0.5 * 60, 2 * GIB / GB], [], [],
        ),
    ],
)  # fmt: skip
def test_causes_are_added_as_squares(
    changes: dict[str, Any], at: Totals, less: list[float], more: list[float],
    held_less: list[float], held_more: list[float],
) -> None:  # fmt: skip
    found = bounds(facts(**{**SINGLE, **changes}), LIMITS, at, communicates=False)
    less, more = LESS + less, MORE + more
    low, high = 100 - hypot(*less), 100 + hypot(*more)
    assert found.allocated == (pytest.approx(low * GB), pytest.approx(high * GB))
    # Six tenths of the holes of one length.
    held_low = max(low, 130 - hypot(*less, 6, *held_less))
    held_high = 130 + hypot(*more, 6, *held_more)
    assert found.reserved == (pytest.approx(held_low * GB), pytest.approx(held_high * GB))
    shown = 130 + 1 + hypot(held_high - 130, 1.5 * GIB / GB, 2)
    assert found.shown == (pytest.approx(low * GB), pytest.approx(shown * GB))


def test_communicators_and_guesses_are_beside_it() -> None:
    f = facts(**SINGLE)
    alone, several = (bounds(f, LIMITS, AT, communicates=c) for c in (False, True))
    assert several.reserved == alone.reserved
    held = alone.reserved.high / GB
    assert several.shown.high / GB == pytest.approx(
        130 + 3 + hypot(held - 130, 1.5 * GIB / GB, 2, 4)
    )
    guessed = bounds(facts(**SINGLE, batch__micro=None), LIMITS, AT, communicates=False)
    # Half of what the batch decides may be missing, and all of it be there twice.
    assert guessed.allocated.low == pytest.approx(alone.allocated.low - 20 * GB)
    assert guessed.allocated.high == pytest.approx(alone.allocated.high + 40 * GB)
    assert guessed.reserved.low == pytest.approx(alone.reserved.low - 20 * GB)
    assert guessed.reserved.high == pytest.approx(alone.reserved.high + 40 * GB)


def test_at_first_sight_what_comes_and_goes_may_be_another() -> None:
    """Of 40 GB of activations, logits, windows and temporaries 0.65 less, 1.75 more, beside all that is open anyway; never
    less than nothing. Where lengths vary that is enough."""
    found = bounds(facts(**SINGLE), LIMITS, AT, communicates=False)
    low = 100 - hypot(*LESS, 0.65 * 40)
    high = 131 + hypot(found.shown.high / GB - 131, 1.75 * 40)
    assert found.at_first_sight == (pytest.approx(low * GB), pytest.approx(high * GB))
    varied = bounds(facts(**{**SINGLE, **VARIED}), LIMITS, AT, communicates=False)
    assert varied.at_first_sight == varied.shown
    unread = facts(**SINGLE, model__dims=replace(LLAMA_8B, arch="nobodys_class"), batch__micro=None)
    all_of_it = replace(AT, states=0.0, point=Point(0, 90 * GB, 10 * GB))
    assert bounds(unread, LIMITS, all_of_it, communicates=False).at_first_sight.low == 0.0


def test_no_run_reserves_less_than_it_allocates() -> None:
    """Holes of 60 of 100 GB more than are reserved would leave less than the least that is allocated."""
    found = bounds(facts(**SINGLE), LIMITS, replace(AT, fixed=200 * GB), communicates=False)
    assert found.reserved.low == found.allocated.low == pytest.approx((100 - hypot(*LESS)) * GB)


# -- what a measurement moves -----------------------------------------------------------------------------

PARTS = {"parameters": 40.0, "activations": 30.0, "logits": 10.0, "temporary": 5.0, "context": 15.0}
GPU = DeviceEstimate(
    peak_bytes=100, low_bytes=60, high_bytes=160, reserved_bytes=105, least_reserved_bytes=95,
    peak_phase="backward", parts={"backward": PARTS, "load": {"parameters": 40.0}},
    allocated=Bounds(50, 150), reserved=Bounds(60, 170), lengths_vary=False,
)  # fmt: skip
HOST = HostEstimate(
    peak_bytes=200, low_bytes=100, high_bytes=300, peak_phase="train",
    parts={"train": {"offloaded_states": 150.0, "process_overhead": 50.0}},
)  # fmt: skip
FOUND = Estimate(gpu=GPU, host=HOST, disk_checkpoint_bytes=0, assumptions=(), unknown=())


ONE_CARD = parse_hardware("1xH100-80GB")


def moved(share: float | None, node: float | None = None, **readings: int) -> Estimate:
    measurement = Measurement(Plan(), ONE_CARD, "here", **readings)
    vars(measurement)["predicted"] = FOUND
    return anchored(FOUND, Nearest(measurement, share, node, ()))


def test_nothing_near_moves_nothing() -> None:
    assert anchored(FOUND, None) is FOUND
    assert moved(None) == FOUND
    # 85 are allocated, 105 reserved, 120 in use with the context.
    assert [
        Measurement(Plan(), ONE_CARD, "here", **{kind: 200}).gpu
        for kind in ("allocated", "reserved", "device")
    ] == [200] * 3


@pytest.mark.parametrize(
    ("gpu", "host", "tells"),
    [(0.29, None, True), (0.3, None, False), (None, 0.29, True), (0.3, 0.3, False), (0.5, 0.1, True), (None, None, False)],
)  # fmt: skip
def test_a_run_of_which_three_tenths_are_others_tells_nothing(
    gpu: float | None, host: float | None, tells: bool
) -> None:
    assert Nearest(Measurement(Plan(), ONE_CARD, "here"), gpu, host, ()).tells is tells


@pytest.mark.parametrize(
    ("readings", "beyond"),
    [
        ({"allocated": 105}, 20), ({"reserved": 125}, 20), ({"device": 140}, 20),
        ({"allocated": 105, "reserved": 300}, 20), ({"allocated": 65}, -20),
    ],
)  # fmt: skip
def test_the_best_figure_says_how_much_is_beyond(readings: dict[str, int], beyond: int) -> None:
    measurement = Measurement(Plan(), ONE_CARD, "here", **readings)
    vars(measurement)["predicted"] = FOUND
    assert measurement.beyond == beyond


def test_what_was_measured_beyond_is_laid_on_the_phases_that_train() -> None:
    gpu = moved(0.0, allocated=105).gpu
    assert gpu.peak_bytes == 120
    assert gpu.parts == {
        "backward": {**PARTS, "temporary": 25.0},
        "load": {"parameters": 40.0, "temporary": 0.0},
    }
    # A twentieth of 120 to either side, and above what torch keeps beyond what it allocates: 105 of 85.
    assert (gpu.low_bytes, gpu.high_bytes) == (114, 120 + 6 + 20)
    assert (gpu.reserved_bytes, gpu.least_reserved_bytes) == (125, 115)
    assert gpu.at_first_sight == Bounds(114, 120 + 6 + 20)
    assert gpu.allocated == Bounds(105 - 6, 105 + 6)
    assert gpu.reserved == Bounds(125 - 26, 125 + 26)


def test_the_less_the_more_of_the_peak_is_another() -> None:
    """Of three tenths a half: half of it counts, and bounds are a twentieth and 15 hundredths apart."""
    gpu = moved(0.15, allocated=105).gpu
    assert gpu.peak_bytes == 110
    assert (gpu.low_bytes, gpu.high_bytes) == (110 - 22, 110 + 22 + 20)
    assert gpu.allocated == Bounds(95 - 22, 95 + 22)
    far = moved(0.3, allocated=105).gpu
    assert far.peak_bytes == 100
    assert (far.low_bytes, far.high_bytes) == (65, 155)


def test_what_is_less_comes_off_what_is_least_sure() -> None:
    """Temporaries first, then activations, logits, windows; only then the rest."""
    gpu = moved(0.0, allocated=45).gpu
    assert gpu.peak_bytes == 60
    assert gpu.parts == {
        "backward": {**PARTS, "temporary": 0.0, "activations": 0.0, "logits": 5.0},
        "load": {"parameters": 40.0, "temporary": 0.0},
    }
    assert gpu.reserved_bytes == 65


def test_a_figure_of_what_is_reserved_moves_that() -> None:
    gpu = moved(0.0, allocated=105, reserved=155).gpu
    assert (gpu.peak_bytes, gpu.reserved_bytes) == (120, 155)
    half = moved(0.15, allocated=105, reserved=155).gpu
    assert half.reserved_bytes == 130


def test_a_figure_of_a_node_moves_its_processes() -> None:
    host = moved(None, 0.0, host=240).host
    assert host.peak_bytes == 240
    assert host.parts == {"train": {"offloaded_states": 150.0, "process_overhead": 90.0}}
    assert (host.low_bytes, host.high_bytes) == (228, 252)
    less = moved(None, 0.0, host=100).host
    assert less.parts == {"train": {"offloaded_states": 100.0, "process_overhead": 0.0}}
    assert moved(None, 0.0, host=240).gpu == GPU
