"""A node's RAM by hand: of eight ranks that train Llama-3-8B, 8,030,261,248 parameters."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plans import LLAMA_8B, plan_of

from oomlint.memory.activations_away import activations_away
from oomlint.memory.checkpoint import SavePeaks
from oomlint.memory.facts import Facts
from oomlint.memory.host import (
    bounds_of,
    flattened_of,
    host_phases,
    load_bytes_of,
    offloaded_of,
)
from oomlint.memory.step import stack_of
from oomlint.memory.zero_offload import more_at_first, pins, power_of_two

NUMEL = 8_030_261_248
NO_SAVE = SavePeaks(0.0, 0.0, 0.0)
FILE = 5e9
PROCESS = 3_250 * 2**20
LEAVES: dict[str, Any] = {
    "model.dims": LLAMA_8B, "trainable.method": "full", "precision.param": "bf16",
    "precision.grad": "bf16", "precision.optim_state": "fp32", "precision.compute": "bf16",
    "optimizer.kind": "adamw", "batch.micro": 2, "seq.max_len": 2048, "parallel.world": 8,
}  # fmt: skip
ZERO3: dict[str, Any] = {"parallel__backend": "zero", "parallel__zero__stage": 3}
FSDP1: dict[str, Any] = {"parallel__backend": "fsdp1"}


def facts(**changes: Any) -> Facts:
    return Facts(plan_of({**LEAVES, "parallel.backend": "ddp"}, **changes))


@pytest.mark.parametrize(
    ("changes", "processes"),
    [
        ({}, 8),
        ({"parallel__world": 16, "parallel__nodes": 2}, 8),
        ({"parallel__world": 4, "parallel__gpus_per_node": 8}, 4),
        ({"parallel__backend": "dp"}, 1),
        ({"parallel__backend": "device_map_pp"}, 1),
    ],
)
def test_a_node_has_so_many_processes(changes: dict[str, Any], processes: int) -> None:
    assert facts(**changes).ranks.processes == processes


BF16 = 2 * NUMEL


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Read tensor by tensor to each GPU: about one file of a checkpoint a process.
        ({}, 8 * FILE),
        ({"parallel__world": 1, "parallel__backend": "none"}, FILE),
        # A page of the file each, but for those whose dtype changes.
        ({"load__dtype": "fp32"}, 8 * 4 * NUMEL),
        ({"load__dtype": "bf16"}, 8 * FILE),
        ({"load__dtype": "fp16", "model__ckpt_dtype": "bfloat16"}, 8 * BF16),
        ({"load__dtype": "bf16", "model__ckpt_dtype": "bf16"}, 8 * FILE),
        ({"load__dtype": "fp32", "load__device_map": "auto"}, 8 * FILE),
        # Sharded by ranks that each hold a copy first.
        (FSDP1, 8 * BF16),
        ({**FSDP1, "load__dtype": "fp32"}, 8 * 4 * NUMEL),
        ({**FSDP1, "model__ckpt_dtype": "fp32"}, 8 * 4 * NUMEL),
        ({**FSDP1, "model__ckpt_dtype": "float32", "load__dtype": "bf16"}, 8 * BF16),
        ({**FSDP1, "load__cpu_ram_efficient": True}, BF16),
        ({**FSDP1, "load__device_map": "auto"}, 8 * FILE),
        ({**FSDP1, "load__device_map": "none"}, 8 * BF16),
        ({**FSDP1, "load__meta_init": True}, 0),
        ({**FSDP1, "load__per_rank_host_copies": 2}, 16 * BF16),
        ({**FSDP1, "load__per_rank_host_copies": 0}, 0),
        ({"parallel__backend": "zero", "parallel__zero__stage": 1}, 8 * BF16),
        ({"parallel__backend": "zero", "parallel__zero__stage": 0}, 8 * FILE),
        # zero.Init builds in shards, and reads file by file; no more than the model.
        (ZERO3, BF16),
        ({**ZERO3, "parallel__world": 2}, 2 * FILE),
        ({**ZERO3, "load__zero3_init": False}, 8 * BF16),
        ({"parallel__backend": "device_map_pp"}, FILE),
        ({"parallel__backend": "megatron", "parallel__pp": 4, "load__per_rank_host_copies": 1}, 8 * BF16 / 4),
        # Earlier releases copy what is mapped, unless the model is built without weights first.
        ({"parallel__backend": "ddp", "versions": {"transformers": "4.44.2"}}, 8 * BF16),
        ({"parallel__backend": "ddp", "versions": {"transformers": "4.45.0"}}, 8 * FILE),
        ({"parallel__backend": "ddp", "load__low_cpu_mem": True, "versions": {"transformers": "4.44.2"}}, 8 * FILE),
        # What is packed on its way is there file by file.
        ({"quant__method": "bnb4", "trainable__method": "lora"}, 8 * FILE),
        ({**FSDP1, "quant__method": "bnb8", "precision__param": "int8", "load__cpu_ram_efficient": False}, 8 * FILE),
        (
            {**FSDP1, "quant__method": "bnb4", "load__cpu_ram_efficient": True, "versions": {"transformers": "4.44.0"}},
            8 * ((NUMEL - 2 * 525_336_576 - 266_240) * (0.5 + 4 / 64) + 2 * (2 * 525_336_576 + 266_240)),
        ),
        (
            {**FSDP1, "quant__method": "bnb4", "load__cpu_ram_efficient": True, "versions": {"transformers": "4.45.0"}},
            (NUMEL - 2 * 525_336_576 - 266_240) * (0.5 + 4 / 64) + 2 * (2 * 525_336_576 + 266_240),
        ),
    ],
)  # fmt: skip
def test_loading_holds_copies_or_files(changes: dict[str, Any], expected: float) -> None:
    """266,240 elements are in 65 norms of 4,096, 525,336,576 in the embedding and in the head."""
    assert load_bytes_of(facts(**changes)) == pytest.approx(expected)


def test_a_process_has_its_libraries_its_workers_and_its_data() -> None:
    bare = host_phases(facts(), NO_SAVE)["train"]
    assert bare["process_overhead"] == 8 * PROCESS
    assert (bare["dataloader"], bare["dataset"], bare["activations"]) == (0, 0, 0)
    batch = 2 * 2048 * 8 * 3
    found = host_phases(facts(data__workers=4), NO_SAVE)["train"]
    assert found["dataloader"] == 8 * 4 * (20 * 2**20 + 2 * batch)
    more = host_phases(facts(data__workers=4, data__prefetch=5), NO_SAVE)["train"]
    assert more["dataloader"] == 8 * 4 * (20 * 2**20 + 5 * batch)
    told = {"data__in_memory": True, "data__max_samples": 1_000}
    assert host_phases(facts(**told), NO_SAVE)["train"]["dataset"] == 1_000 * 2048 * 8 * 8
    assert host_phases(facts(data__max_samples=1_000), NO_SAVE)["train"]["dataset"] == 0
    assert host_phases(facts(data__in_memory=True), NO_SAVE)["train"]["dataset"] == 0


def test_offloaded_activations_are_the_inputs_of_all_layers_of_all_ranks() -> None:
    away = facts(checkpointing__mode="full", checkpointing__offload="cpu")
    found = host_phases(away, NO_SAVE)
    assert found["train"]["activations"] == 8 * 32 * 2 * 2 * 2048 * 4096
    assert "activations" not in found["load"]


def test_a_save_stands_beside_what_is_there() -> None:
    found = host_phases(facts(), SavePeaks(1.0, 12_345.0, 3.0))["save"]
    assert found["gather"] == 12_345
    assert found["process_overhead"] == 8 * PROCESS


def test_fsdp_offloads_weights_gradients_and_states_of_the_nodes_ranks() -> None:
    away = {**FSDP1, "parallel__fsdp__cpu_offload": True, "offload__pin_memory": False}
    assert offloaded_of(facts(**away)) == (pytest.approx((2 + 2 + 8) * NUMEL), 0)
    other = facts(**away, parallel__world=16, parallel__nodes=2)
    assert offloaded_of(other)[0] == pytest.approx(12 * NUMEL / 2)
    params = {**FSDP1, "offload__params": "cpu", "offload__pin_memory": False}
    assert offloaded_of(facts(**params))[0] == pytest.approx(12 * NUMEL)
    assert offloaded_of(facts(**FSDP1)) == (0, 0)
    unit = 2 * NUMEL / 8 / 32
    pinned = facts(**{**away, "offload__pin_memory": True})
    assert offloaded_of(pinned)[1] == pytest.approx((power_of_two(unit) - unit) * 32 * 8)
    apart = facts(**{**away, "parallel__backend": "fsdp2", "offload__pin_memory": True})
    assert offloaded_of(apart)[1] == pytest.approx((2 + 2) * NUMEL / 3)


def test_states_alone_may_be_offloaded_from_fsdp2() -> None:
    away: dict[str, Any] = {"parallel__backend": "fsdp2", "offload__optimizer": "cpu"}
    assert offloaded_of(facts(**away)) == (pytest.approx(8 * NUMEL), 0)
    wide = offloaded_of(facts(**away, offload__grads="cpu"))
    assert wide == (pytest.approx(16 * NUMEL), 0)


def test_paged_states_lie_in_ram() -> None:
    assert offloaded_of(facts(optimizer__kind="paged_adamw"))[0] == pytest.approx(8 * 8 * NUMEL)
    small = facts(optimizer__kind="paged_adamw8bit")
    assert offloaded_of(small)[0] == pytest.approx(8 * (2 + 8 / 256) * NUMEL)
    shared = facts(**FSDP1, optimizer__paged=True)
    assert offloaded_of(shared)[0] == pytest.approx(8 * NUMEL)


def test_states_are_pinned_unless_somebody_says_no_or_torch_is_old() -> None:
    assert pins(facts())
    assert not pins(facts(offload__pin_memory=False))
    assert not pins(facts(versions={"torch": "1.10.2"}))
    assert pins(facts(versions={"torch": "1.11.0"}))


TILES = 2 * 4 * 2**27
"""Two tiles of DeepSpeed's Adam on the CPU, from 0.3.15 until 0.14.3."""


@pytest.mark.parametrize(
    ("release", "steps", "width", "tiles"),
    [
        # Master and gradients of 4 bytes, Adam's 8; a copy of the weights since 0.17; gradients in 2 bytes where they add up.
        ("0.19.5", 1, 18, 0), ("0.19.5", 4, 20, 0), ("0.17.0", 1, 18, 0), ("0.16.9", 1, 16, 0),
        ("0.16.9", 2, 18, 0), ("0.14.2", 1, 16, TILES), ("0.3.15", 4, 18, TILES), ("0.3.14", 1, 16, 8 * TILES),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stage", [1, 2])
def test_stages_1_and_2_offload_what_their_release_keeps(
    stage: int, release: str, steps: int, width: int, tiles: int
) -> None:
    """deepspeed 0.3.0 to 0.19.5 runtime/zero/stage_1_and_2.py (before 0.5.9 stage2.py) copy_grads_in_partition and
    param_buffer_of_bit16_for_cpu_offload_groups, csrc/includes/cpu_adam.h _doubled_buffer; and a pinned buffer of the
    largest parameter a rank."""
    away: dict[str, Any] = {
        "parallel__backend": "zero", "parallel__zero__stage": stage, "offload__optimizer": "cpu",
        "precision__master": "fp32", "offload__pin_memory": False, "versions": {"deepspeed": release},
        "batch__grad_accum": steps,
    }  # fmt: skip
    largest = 8 * 2 * 525_336_576
    assert offloaded_of(facts(**away))[0] == pytest.approx(width * NUMEL + largest + 8 * tiles)
    half = facts(**away, offload__optimizer_ratio=0.5)
    assert offloaded_of(half)[0] == pytest.approx(width / 2 * NUMEL + largest + 8 * tiles)


def test_weights_in_fp32_are_copied_and_add_up_in_fp32() -> None:
    away: dict[str, Any] = {
        "parallel__backend": "zero", "offload__optimizer": "cpu", "offload__pin_memory": False,
        "precision__param": "fp32", "precision__compute": "fp32", "batch__grad_accum": 2,
    }  # fmt: skip
    largest = 8 * 4 * 525_336_576
    found = offloaded_of(facts(**away, parallel__zero__stage=2))[0]
    assert found == pytest.approx(24 * NUMEL + largest)
    assert offloaded_of(facts(**away, parallel__zero__stage=3))[0] == pytest.approx(20 * NUMEL)


@pytest.mark.parametrize(
    ("changes", "tiled"),
    [
        ({}, True),
        ({"optimizer__kind": None}, True),
        ({"optimizer__kind": "lion"}, True),
        ({"optimizer__kind": "adagrad"}, True),
        ({"optimizer__kind": "sgd"}, False),
        ({"offload__optimizer": "nvme"}, True),
        ({"offload__optimizer": "none"}, False),
        ({"versions": {"deepspeed": "0.14.3"}}, False),
        ({"versions": {}}, False),
    ],
)
def test_deepspeeds_own_optimizers_copied_through_tiles(
    changes: dict[str, Any], tiled: bool
) -> None:
    """Whatever the stage, of every rank."""
    away: dict[str, Any] = {
        **ZERO3, "offload__optimizer": "cpu", "offload__params": "cpu", "optimizer__kind": "adamw",
        "offload__pin_memory": False, **changes,
    }  # fmt: skip
    plan = {"versions": {"deepspeed": "0.14.2"}} | away
    later = {**away, "versions": {"deepspeed": "0.14.3"}}
    found, without = (offloaded_of(facts(**each))[0] for each in (plan, later))
    assert found - without == pytest.approx(8 * TILES * tiled)


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        # The zeros that gradients are pinned copies of: of all that one parameter group has, while the states are made.
        ({}, 4),
        ({"parallel__zero__stage": 1}, 4),
        # Half-precision gradients come later.
        ({"batch__grad_accum": 2}, 2),
        ({"optimizer__groups": 2}, 0),
        ({"versions": {"deepspeed": "0.13.2"}}, 0),
        ({"versions": {}}, 0),
        ({"offload__pin_memory": False}, 0),
        ({"offload__pin_memory": False, "versions": {"deepspeed": "0.10.0"}}, 4),
        ({"offload__optimizer": "none"}, 0),
        ({"parallel__zero__stage": 3}, 0),
        ({"parallel__backend": "ddp"}, 0),
    ],
)
def test_states_were_made_beside_zeros(changes: dict[str, Any], more: int) -> None:
    """deepspeed 0.13.1 and 0.13.2 runtime/zero/stage_1_and_2.py initialize_optimizer_states. With them and its tiles the
    most that T5-3B and T5-11B took (66.1 and 217.9 GiB, deepspeed 0.3.10) is estimated as 64.4 and 217.1."""
    f = facts(
        **{
            "parallel__backend": "zero", "parallel__zero__stage": 2, "offload__optimizer": "cpu",
            "versions": {"deepspeed": "0.13.1"}, **changes,
        }
    )  # fmt: skip
    assert more_at_first(f) == pytest.approx(more * NUMEL)


def test_states_are_made_before_training() -> None:
    """Of one GPU, where flattening takes less."""
    f = facts(
        parallel__backend="zero", parallel__zero__stage=2, parallel__world=1, offload__optimizer="cpu",
        versions={"deepspeed": "0.13.1"},
    )  # fmt: skip
    phases = host_phases(f, NO_SAVE)
    made, later = (phases[name]["offloaded_states"] for name in ("load", "train"))
    assert made - later == pytest.approx(4 * NUMEL)
    assert phases["load"]["process_overhead"] == phases["train"]["process_overhead"]


def test_what_waits_on_the_node_is_asked_for_each_number_of_micro_batches() -> None:
    """Of two plans that differ in that alone, whichever is estimated first: before 0.6 stage 3 kept half-precision
    gradients only to add them up."""
    away: dict[str, Any] = {
        "parallel__backend": "zero", "parallel__zero__stage": 3, "offload__optimizer": "cpu",
        "offload__pin_memory": False, "versions": {"deepspeed": "0.5.10"},
    }  # fmt: skip
    one, two = facts(**away), facts(**away, batch__grad_accum=2)
    tiles = 8 * TILES
    assert offloaded_of(one)[0] == pytest.approx(16 * NUMEL + tiles)
    assert offloaded_of(one.with_batch_of(two.plan))[0] == pytest.approx(18 * NUMEL + tiles)


def test_the_bounds_of_a_node_are_a_quarter_apart_beside_its_processes() -> None:
    f = facts()
    low, high = bounds_of(f, 100 * 2**30)
    states = 100 * 2**30 - 8 * PROCESS
    assert low == pytest.approx(states / 1.25 + 8 * 1_500 * 2**20)
    assert high == pytest.approx(states * 1.25 + 8 * 4_500 * 2**20)
    assert bounds_of(f, 2**30) == (2**30, 8 * 4_500 * 2**20)


def test_offloaded_adapters_go_with_the_weights_that_they_stand_beside() -> None:
    """Rank 16 for q and v of 32 layers: 6,815,744 elements."""
    adapters = 32 * 16 * (4096 + 4096 + 4096 + 1024)
    away: dict[str, Any] = {
        **ZERO3, "trainable__method": "lora", "trainable__r": 16,
        "trainable__targets": ("q_proj", "v_proj"), "trainable__adapter_dtype": "fp32",
        "offload__params": "cpu", "offload__pin_memory": False, "versions": {"torch": "1.10.0"},
    }  # fmt: skip
    assert offloaded_of(facts(**away)) == (pytest.approx(2 * NUMEL + 4 * adapters), 0)


# -- phases of a node ------------------------------------------------------------------------------------

ZERO2: dict[str, Any] = {
    "parallel__backend": "zero", "parallel__zero__stage": 2, "precision__master": "fp32",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "flat"),
    [
        # A copy of each parameter and the flat buffer beside it, until DeepSpeed 0.18.7.
        ({}, 2 * 2 * NUMEL * 8),
        ({"parallel__zero__stage": 1}, 2 * 2 * NUMEL * 8),
        ({"parallel__zero__stage": 3}, 0),
        ({"parallel__zero__stage": 0}, 0),
        ({"parallel__backend": "ddp"}, 0),
        ({"versions": {"deepspeed": "0.18.7"}}, 0),
        ({"precision__compute": "fp32"}, 2 * 4 * NUMEL * 8),
        # Sums in fp32 are another optimizer's, under stage 1.
        ({"parallel__zero__stage": 1, "precision__grad_accum": "fp32"}, 0),
        ({"precision__grad_accum": "fp32"}, 2 * 2 * NUMEL * 8),
        ({"parallel__zero__stage": 1, "precision__grad_accum": "fp32", "precision__compute": "fp32"}, 2 * 4 * NUMEL * 8),
    ],
)  # fmt: skip
def test_stages_flatten_what_they_train(changes: dict[str, Any], flat: float) -> None:
    values = {**ZERO2, "versions": {"deepspeed": "0.14.0"}, **changes}
    assert flattened_of(facts(**values)) == flat


def test_megatron_pins_weights_and_gradients_apart() -> None:
    away: dict[str, Any] = {
        "parallel__backend": "megatron", "offload__optimizer": "cpu", "precision__master": "fp32",
    }  # fmt: skip
    # Weights and gradients of 4 bytes and Adam's 8, of which the former lose a third.
    assert offloaded_of(facts(**away)) == (
        pytest.approx(16 * NUMEL), pytest.approx(8 * NUMEL / 3),
    )  # fmt: skip
    half = {**away, "offload__optimizer_ratio": 0.5}
    assert offloaded_of(facts(**half)) == (pytest.approx(8 * NUMEL), pytest.approx(4 * NUMEL / 3))
    whole = {**away, "parallel__megatron__dist_optimizer": False}
    assert offloaded_of(facts(**whole))[0] == pytest.approx(8 * 16 * NUMEL)
    long = {**away, "parallel__cp": 2}
    assert offloaded_of(facts(**long))[0] == pytest.approx(16 * NUMEL)
    loose = facts(**away, offload__pin_memory=False)
    assert offloaded_of(loose) == (pytest.approx(16 * NUMEL), 0)


def test_shards_are_pinned_beside_the_copy_that_they_come_from() -> None:
    away: dict[str, Any] = {**FSDP1, "parallel__fsdp__cpu_offload": True}
    found = host_phases(facts(**away), NO_SAVE)
    states, rounding = offloaded_of(facts(**away))
    assert found["load"] == {
        "model_copies": 8 * BF16, "process_overhead": 8 * PROCESS, "offloaded_states": states,
        "pinned_rounding": rounding,
    }  # fmt: skip
    late = host_phases(facts(**ZERO2, offload__optimizer="cpu"), NO_SAVE)["load"]
    assert "offloaded_states" not in late
    early = facts(**ZERO2, offload__optimizer="cpu", load__zero3_init=True)
    assert host_phases(early, NO_SAVE)["load"]["offloaded_states"] > 0


def test_states_between_steps_wait_while_training_and_not_while_saving() -> None:
    away: dict[str, Any] = {"parallel__backend": "fsdp2", "offload__between_steps": "cpu"}
    found = host_phases(facts(**away), NO_SAVE)
    for phase in ("train", "evaluation"):
        assert found[phase]["offloaded_states"] == pytest.approx(8 * NUMEL)
    assert found["save"]["offloaded_states"] == 0
    plain = host_phases(facts(parallel__backend="fsdp2"), NO_SAVE)
    assert plain["train"]["offloaded_states"] == 0


def test_what_is_read_back_counts_where_it_is_more_than_loading() -> None:
    resumed = {**ZERO2, "load__resume": True, "parallel__gpus_per_node": 8}
    found = host_phases(facts(**resumed), NO_SAVE)["load"]
    # Eight partitions of masters and Adam's states, less than eight copies of the model.
    assert "checkpoint" not in found
    direct = host_phases(facts(**resumed, load__device_map="single"), NO_SAVE)["load"]
    assert direct["checkpoint"] == pytest.approx(12 * NUMEL)
    assert direct["process_overhead"] == 8 * PROCESS
    serial = facts(**resumed, load__device_map="single", parallel__zero__serial_load=True)
    assert "checkpoint" not in host_phases(serial, NO_SAVE)["load"]


# -- ZeRO's blocks ---------------------------------------------------------------------------------------


def rounded(size: float) -> float:
    """What a pinned block of so many bytes loses."""
    return power_of_two(size) - size


@pytest.mark.parametrize(
    ("release", "asked", "unasked"),
    [
        # How many blocks of 4 and of 2 bytes an element are pinned, and whether what adds up is: where the config asks for
        # it, and where it does not.
        ("0.10.0", (1, 0, True), (1, 0, True)),
        ("0.10.1", (1, 0, True), (0, 0, False)),
        ("0.14.0", (1, 0, True), (0, 0, False)),
        ("0.14.1", (2, 0, True), (1, 0, False)),
        ("0.16.9", (2, 0, True), (1, 0, False)),
        ("0.17.0", (2, 1, True), (1, 0, False)),
        ("0.18.2", (2, 1, True), (1, 0, False)),
        ("0.18.3", (2, 1, True), (0, 0, False)),
    ],
)
def test_a_parameter_group_is_one_block(
    release: str, asked: tuple[int, int, bool], unasked: tuple[int, int, bool]
) -> None:
    """pin_memory in deepspeed's runtime/zero/stage_1_and_2.py at each of these releases."""
    part = NUMEL / 8
    for pinned, (wide, narrow, waits) in ((True, asked), (False, unasked)):
        away = facts(
            **ZERO2, offload__optimizer="cpu", versions={"deepspeed": release}, batch__grad_accum=2,
            offload__pin_memory=pinned,
        )  # fmt: skip
        expected = wide * rounded(4 * part) + narrow * rounded(2 * part) + waits * 2 * part / 3
        assert offloaded_of(away)[1] == pytest.approx(8 * expected)


def test_sub_groups_are_blocks_of_their_own_under_stage_3() -> None:
    """1,003,782,656 elements a rank: three groups of 3e8 and what is left, gradients in 4 bytes; all of the
    half-precision ones together."""
    away: dict[str, Any] = {
        **ZERO3, "offload__optimizer": "cpu", "parallel__zero__sub_group_elems": 300_000_000,
    }  # fmt: skip
    part = NUMEL / 8
    rest = part - 900_000_000
    states, lost = offloaded_of(facts(**away))
    assert states == pytest.approx(18 * NUMEL)
    expected = 3 * rounded(4 * 3e8) + rounded(4 * rest) + rounded(2 * part)
    assert lost == pytest.approx(8 * expected, rel=1e-6)
    usual = offloaded_of(facts(**ZERO3, offload__optimizer="cpu"))[1]
    expected = rounded(4 * 1e9) + rounded(4 * (part - 1e9)) + rounded(2 * part)
    assert usual == pytest.approx(8 * expected, rel=1e-6)
    # Nobody says which optimizer: Adam's 8 bytes.
    unknown = facts(**ZERO3, offload__optimizer="cpu", optimizer__kind=None)
    assert offloaded_of(unknown)[0] == pytest.approx(18 * NUMEL)
    lion = facts(**ZERO3, offload__optimizer="cpu", optimizer__kind="lion")
    assert offloaded_of(lion)[0] == pytest.approx(14 * NUMEL)
    half = facts(**ZERO3, offload__optimizer="cpu", offload__optimizer_ratio=0.5)
    assert offloaded_of(half)[0] == pytest.approx(9 * NUMEL)


def test_offloaded_parameters_leave_their_blocks_behind() -> None:
    away: dict[str, Any] = {**ZERO3, "offload__params": "cpu"}
    part = 2 * NUMEL / 8
    assert offloaded_of(facts(**away)) == (
        pytest.approx(2 * NUMEL), pytest.approx(8 * (part / 3 + power_of_two(part))),
    )  # fmt: skip
    loose = facts(**away, offload__pin_memory=False)
    assert offloaded_of(loose) == (pytest.approx(2 * NUMEL), pytest.approx(8 * rounded(part)))
    old = facts(**away, offload__pin_memory=False, versions={"torch": "1.10.2"})
    assert offloaded_of(old) == (pytest.approx(2 * NUMEL), 0)
    # Of adapters rank 16 for q and v move, in the base's width, and of the base nothing.
    adapters = 32 * 16 * (4096 + 4096 + 4096 + 1024)
    lora = facts(
        **away, offload__pin_memory=False, trainable__method="lora", trainable__r=16,
        trainable__targets=("q_proj", "v_proj"), trainable__adapter_dtype="bf16",
    )  # fmt: skip
    assert offloaded_of(lora) == (
        pytest.approx(2 * (NUMEL + adapters)), pytest.approx(8 * rounded(2 * adapters / 8)),
    )  # fmt: skip


def test_hooks_take_what_is_saved_once_or_each_time_into_rounded_blocks() -> None:
    hooked: dict[str, Any] = {"offload__activations": "cpu", "offload__takes_loss": False}
    profile = stack_of(facts()).walk.kinds[0]
    tokens, scores = 2 * 2048, 2 * 2048**2
    once = 32 * profile.saved.at(tokens, scores)
    again = 32 * profile.saved_twice.at(tokens, scores)
    assert 0 < again < once
    for shared, held in ((True, once), (False, once + again)):
        away, lost = activations_away(facts(**hooked, offload__keeps_shared=shared))
        assert (away, lost) == (pytest.approx(held), pytest.approx(held / 3))
    # 2 x 2048 x 4096 elements of 2 bytes are 2**25 exactly, of three samples 2**26 are needed.
    full: dict[str, Any] = {**hooked, "checkpointing__mode": "full", "offload__keeps_shared": True}
    assert activations_away(facts(**full)) == (32 * 2**25, 0)
    assert activations_away(facts(**full, batch__micro=3)) == (32 * 3 * 2**24, 32 * 2**24)
    # The log-probabilities that the loss keeps, 4 bytes each, in one block of a power of two.
    logits = tokens * 128_256 * 4
    found = activations_away(facts(**{**full, "offload__takes_loss": True}))
    assert found == (32 * 2**25 + logits, 2**31 - logits)
    train = host_phases(facts(**{**full, "batch__micro": 3}), NO_SAVE)["train"]
    assert train["pinned_rounding"] == 8 * 32 * 2**24


def test_stage_3_kept_half_precision_gradients_on_the_host_only_to_add_them_up_before_0_6() -> None:
    """deepspeed 0.5.10 and 0.6.0 runtime/zero/stage3.py: 4 + 4 + 8 bytes of master, gradients and Adam, 2 more since."""
    away: dict[str, Any] = {
        **ZERO3, "offload__optimizer": "cpu", "offload__pin_memory": False, "precision__master": "fp32",
    }  # fmt: skip
    for release, steps, width in (("0.5.10", 1, 16), ("0.5.10", 4, 18), ("0.6.0", 1, 18)):
        f = facts(**away, versions={"deepspeed": release}, batch__grad_accum=steps)
        assert offloaded_of(f) == (pytest.approx(width * NUMEL + 8 * TILES), 0)


def test_stage_3_adds_up_on_the_host_in_the_dtype_that_is_asked_for() -> None:
    """deepspeed 0.10.1 to 0.19.5 runtime/zero/stage3.py grad_partitions_flat_buffer: 4 bytes where sums are fp32."""
    away: dict[str, Any] = {**ZERO3, "offload__optimizer": "cpu", "precision__master": "fp32"}
    part = NUMEL / 8
    plain, wide = (
        offloaded_of(facts(**away, precision__grad_accum=dtype)) for dtype in (None, "fp32")
    )
    assert wide[0] - plain[0] == pytest.approx(2 * NUMEL)
    assert wide[1] - plain[1] == pytest.approx(8 * (rounded(4 * part) - rounded(2 * part)))
    nvme: dict[str, Any] = {**ZERO3, "offload__optimizer": "nvme"}
    plain, wide = (
        offloaded_of(facts(**nvme, precision__grad_accum=dtype)) for dtype in (None, "fp32")
    )
    assert wide[0] - plain[0] == pytest.approx(2 * NUMEL)
