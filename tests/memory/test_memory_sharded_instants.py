"""Every instant of a step under FSDP, worked out by hand: two blocks of 36,992 elements on four ranks.

An embedding and a head of 64,000 elements each and a last norm of 64 stand around the blocks. Whatever is said of
windows is read in torch/distributed/fsdp/_fully_shard (FSDP2) and torch/distributed/fsdp/_flat_param.py (FSDP1).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from tests.plans import plan_of

from oomlint.memory import sharding
from oomlint.memory.facts import Facts
from oomlint.memory.images import images_of
from oomlint.memory.logits import Logits, logits_of
from oomlint.memory.sharding import fsdp1_points, fsdp2_points as points_of_fsdp2
from oomlint.memory.step import Point, stack_of
from oomlint.plan.model import ModelDims, VisionTower

SMALL = ModelDims(
    arch="llama", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=1000,
    tie_embeddings=False, act="swiglu", norm="rms",
)  # fmt: skip
BLOCK, END, NORM = 36_992, 64_000, 64
TAIL = END + NORM
NUMEL = 2 * BLOCK + END + TAIL
RANKS, TOKENS = 4, 32
LEAVES: dict[str, Any] = {
    "model.dims": SMALL, "trainable.method": "full", "precision.param": "bf16",
    "precision.grad": "bf16", "precision.optim_state": "fp32", "precision.compute": "bf16",
    "optimizer.kind": "adamw", "optimizer.fused": True, "batch.micro": 1, "seq.max_len": TOKENS,
    "checkpointing.mode": "full", "parallel.world": RANKS,
}  # fmt: skip
# Ids, labels and masks in 16 bytes a token, and cos and sin of heads of 16.
BARE = 16 * TOKENS + 2 * TOKENS * 16 * 2
HIDDEN = 2 * TOKENS * 64
SAVED = 2 * HIDDEN
WIDE: dict[str, Any] = {"precision__param": "fp32", "precision__grad": "fp32"}
LORA: dict[str, Any] = {
    "trainable__method": "lora", "trainable__r": 8, "trainable__targets": ("q_proj", "o_proj"),
    "trainable__adapter_dtype": "bf16",
}  # fmt: skip
ADAPTERS = 2 * 8 * 4 * 64
TIED: dict[str, Any] = {"model__dims": replace(SMALL, tie_embeddings=True)}
TWICE: dict[str, Any] = {"batch__grad_accum": 2}


def fsdp2(**changes: Any) -> Facts:
    return Facts(plan_of(LEAVES, parallel__backend="fsdp2", **changes))


def fsdp1(**changes: Any) -> Facts:
    return Facts(plan_of(LEAVES, parallel__backend="fsdp1", **changes))


def fsdp2_points(f: Facts) -> dict[str, list[Point]]:
    """The instants with all that communication brings in one, on whatever stream."""
    return {
        phase: [
            p._replace(communication=p.communication + p.gathered, gathered=0.0) for p in points
        ]
        for phase, points in points_of_fsdp2(f).items()
    }


def head_of(f: Facts) -> Logits:
    return logits_of(f, f.samples.tokens)


# -- FSDP2, forward -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "gradients", "blocks", "head"),
    [
        # A unit, its gathered copy and the one before; at the end the tail and its copy.
        ({}, 0, 6 * BLOCK, 4 * TAIL),
        # Gathered in 16 bit whatever they are stored in.
        (WIDE, 0, 6 * BLOCK, 4 * TAIL),
        # What is not sharded again is there beside two copies of what comes.
        ({"parallel__fsdp__reshard_after_forward": False}, 0, 4 * BLOCK + 2 * (2 * BLOCK + END),
         4 * TAIL + 2 * (2 * BLOCK + END)),
        # Where only the blocks are units, the root is there all the time, and a block is prefetched beside it.
        ({"parallel__fsdp__wrap": "transformer"}, 0, 6 * BLOCK + 2 * (END + TAIL), 2 * (END + TAIL) + 2 * BLOCK),
        (TIED, 0, 6 * BLOCK + 2 * (END + NORM), 2 * (END + NORM) + 2 * BLOCK),
        (
            {"parallel__fsdp__wrap": "transformer", "parallel__fsdp__reshard_after_forward": False}, 0,
            4 * BLOCK + 2 * (END + TAIL) + 2 * 2 * BLOCK, 2 * (END + TAIL) + 2 * BLOCK + 2 * 2 * BLOCK,
        ),
        # Without synchronisation gradients of earlier micro batches are whole, in the dtype they are reduced in.
        (TWICE, 2 * NUMEL, 6 * BLOCK, 4 * TAIL),
        ({**TWICE, "precision__comm": "fp32"}, 4 * NUMEL, 6 * BLOCK, 4 * TAIL),
        ({**TWICE, "parallel__fsdp__sync_every_micro": True}, 2 * NUMEL / 4, 6 * BLOCK, 4 * TAIL),
        ({**TWICE, **WIDE, "parallel__fsdp__sync_every_micro": True}, 4 * NUMEL / 4, 6 * BLOCK, 4 * TAIL),
        ({**TWICE, "parallel__fsdp__sync_every_micro": True, "parallel__fsdp__cpu_offload": True}, 0, 6 * BLOCK,
         4 * TAIL),
    ],
)  # fmt: skip
def test_fsdp2_gathers_units_ahead_in_forward(
    changes: dict[str, Any], gradients: float, blocks: float, head: float
) -> None:
    f = fsdp2(**changes)
    found = head_of(f)
    assert fsdp2_points(f)["forward"] == [
        # The last block's input makes way for its output, and that of the block is computed beside it.
        Point(gradients, BARE + SAVED - HIDDEN + HIDDEN, 0, blocks, 0),
        Point(gradients, BARE, 0, blocks, 0),
        Point(gradients, BARE + SAVED + found.norm, found.loss, head, 0),
    ]


def test_fsdp2_has_the_tail_three_times_where_adapters_wait_for_it() -> None:
    more = fsdp2_points(fsdp2(**LORA))["forward"]
    block = BLOCK + ADAPTERS / 2
    assert len(more) == 4
    assert more[0] == Point(0, BARE + SAVED, 0, 6 * block, 0)
    assert more[-1] == Point(0, BARE + SAVED, 0, 2 * block + 4 * TAIL, 0)
    stays = fsdp2_points(fsdp2(**LORA, parallel__fsdp__reshard_after_forward=False))["forward"]
    assert stays[-1].communication == 2 * block + 4 * TAIL + 2 * (2 * block + END)


@pytest.mark.parametrize(
    ("changes", "forward", "head", "first", "last"),
    [
        # The unit's copy is on the stream of the forward pass, that of the one before beside it is not; in backward the
        # next unit is gathered ahead.
        ({}, 4 * BLOCK, 2 * TAIL, 2 * BLOCK, 2 * END),
        ({"parallel__fsdp__wrap": "transformer"}, 4 * BLOCK, 2 * BLOCK, 2 * BLOCK, 0),
        # Nothing is gathered again of what stayed.
        ({"parallel__fsdp__reshard_after_forward": False}, 4 * BLOCK, 2 * TAIL, 0, 0),
    ],
)
def test_fsdp2_gathers_on_a_stream_of_its_own(
    changes: dict[str, Any], forward: float, head: float, first: float, last: float
) -> None:
    f = fsdp2(**changes)
    points = points_of_fsdp2(f)
    assert [p.gathered for p in points["forward"]] == [forward, forward, head]
    tail = 0 if "parallel__fsdp__wrap" in changes else 1
    blocks = points["backward"][len(head_of(f).late) + tail : -2]
    assert max(p.gathered for p in blocks) == max(first, last)
    assert {p.gathered for p in blocks} <= {first, last}


# -- FSDP2, backward ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "early", "gradients", "moved"),
    [
        # The tail's gradients and what is sent of them, beside the next block; a fourth of them stays.
        ({}, 2 * TAIL, 2 * TAIL / 4, (2 + 2) * TAIL + 2 * BLOCK),
        # Sent in fp32 and stored so, as what arrives in fp32 then is.
        ({"precision__comm": "fp32"}, 2 * TAIL, 2 * TAIL / 4, (2 + 4) * TAIL + 4 * TAIL / 4 + 2 * BLOCK),
        # Sent in 16 bit, cast once it has arrived.
        (WIDE, 2 * TAIL, 4 * TAIL / 4, (2 + 2) * TAIL + 2 * TAIL / 4 + 2 * BLOCK),
        ({**WIDE, "precision__comm": "fp32"}, 2 * TAIL, 4 * TAIL / 4, (2 + 4) * TAIL + 2 * BLOCK),
        ({"parallel__fsdp__cpu_offload": True}, 2 * TAIL, 0, (2 + 2) * TAIL + 2 * BLOCK),
        (
            {"parallel__fsdp__reshard_after_forward": False}, 2 * TAIL + 2 * (2 * BLOCK + END), 2 * TAIL / 4,
            (2 + 2) * TAIL + 2 * BLOCK + 2 * (2 * BLOCK + END),
        ),
        # Those of earlier micro batches go as the shards of the sum come.
        (TWICE, 2 * TAIL, 2 * NUMEL - 2 * TAIL + 2 * TAIL / 4, (2 + 2) * TAIL + 2 * BLOCK),
        (
            {**TWICE, "precision__comm": "fp32"}, 2 * TAIL, 4 * NUMEL - 4 * TAIL + 2 * TAIL / 4,
            (2 + 4) * TAIL + 4 * TAIL / 4 + 2 * BLOCK,
        ),
        (
            {**TWICE, "parallel__fsdp__sync_every_micro": True}, 2 * TAIL, 2 * NUMEL / 4,
            (2 + 2) * TAIL + 2 * BLOCK,
        ),
    ],
)  # fmt: skip
def test_fsdp2_reduces_the_tail_first(
    changes: dict[str, Any], early: float, gradients: float, moved: float
) -> None:
    f = fsdp2(**changes)
    found = head_of(f)
    backward = fsdp2_points(f)["backward"]
    before = fsdp2_points(f)["forward"][0].gradients
    assert backward[: len(found.late)] == [
        Point(before, BARE + SAVED + norm, bytes_, early, 0) for norm, bytes_, _ in found.late
    ]
    tail = backward[len(found.late)]
    assert tail == Point(pytest.approx(gradients), BARE + SAVED + HIDDEN, 0, moved, 0)


def test_a_head_that_is_no_unit_of_its_own_waits_for_the_root() -> None:
    f = fsdp2(parallel__fsdp__wrap="transformer")
    late = len(head_of(f).late)
    first, after = fsdp2_points(f)["backward"][0], fsdp2_points(f)["backward"][late]
    # Blocks are prefetched beside the root.
    assert first.communication == 2 * (END + TAIL) + 2 * BLOCK
    # Root, head's gradient, two blocks.
    assert after.communication == 2 * (END + TAIL) + 2 * END + 2 * 2 * BLOCK
    stays = fsdp2(parallel__fsdp__wrap="transformer", parallel__fsdp__reshard_after_forward=False)
    assert fsdp2_points(stays)["backward"][0].communication == 2 * (END + TAIL) + 2 * 2 * BLOCK


@pytest.mark.parametrize(
    ("changes", "last"),
    [
        # The embedding's gradient beside the embedding and what is still sent of the block above; then its own.
        ({}, [(2 * (NUMEL - END) / 4, BARE + HIDDEN, 2 * 2 * END + 2 * BLOCK), (2 * NUMEL / 4, BARE, 4 * END)]),
        (
            {"precision__comm": "fp32"},
            [(2 * (NUMEL - END) / 4, BARE + HIDDEN, 2 * 2 * END + 4 * BLOCK),
             (2 * NUMEL / 4, BARE, (2 + 4) * END + 4 * END / 4)],
        ),
        # All of the root at once: two gradients of ends beside it, then what is sent of them.
        (
            {"parallel__fsdp__wrap": "transformer"},
            [(2 * 2 * BLOCK / 4, BARE + HIDDEN, 2 * (END + TAIL) + 2 * 2 * END + 2 * BLOCK),
             (2 * NUMEL / 4, BARE, 4 * (END + TAIL))],
        ),
        (
            {"parallel__fsdp__wrap": "transformer", "precision__comm": "fp32"},
            [(2 * 2 * BLOCK / 4, BARE + HIDDEN, 2 * (END + TAIL) + 2 * 2 * END + 4 * BLOCK),
             (2 * NUMEL / 4, BARE, (2 + 4) * (END + TAIL) + 4 * (END + TAIL) / 4)],
        ),
        # Of a tied weight both gradients and their sum.
        (
            TIED,
            [(2 * 2 * BLOCK / 4, BARE + HIDDEN, 2 * (END + NORM) + 3 * 2 * END + 2 * BLOCK),
             (2 * (2 * BLOCK + END + NORM) / 4, BARE, 4 * (END + NORM))],
        ),
        # Adapters have been reduced by then.
        (LORA, [(2 * ADAPTERS / 4, BARE + HIDDEN, 0)]),
        ({**LORA, "parallel__fsdp__wrap": "transformer"}, [(2 * ADAPTERS / 4, BARE + HIDDEN, 2 * (END + TAIL))]),
        ({**LORA, **TWICE}, [(2 * ADAPTERS, BARE + HIDDEN, 0)]),
        ({**LORA, "parallel__fsdp__cpu_offload": True}, [(0, BARE + HIDDEN, 0)]),
    ],
)  # fmt: skip
def test_fsdp2_ends_with_the_embedding(
    changes: dict[str, Any], last: list[tuple[float, float, float]]
) -> None:
    found = fsdp2_points(fsdp2(**changes))["backward"][-len(last) :]
    assert found == [
        Point(pytest.approx(gradients), alive, 0, moved, 0) for gradients, alive, moved in last
    ]


@pytest.mark.parametrize(
    ("changes", "gradients"),
    [
        ({}, 2 * NUMEL / 4),
        (WIDE, 4 * NUMEL / 4),
        (LORA, 2 * ADAPTERS / 4),
        ({"parallel__fsdp__cpu_offload": True}, 0),
    ],
)
@pytest.mark.parametrize(("make", "backend"), [(fsdp2_points, "fsdp2"), (fsdp1_points, "fsdp1")])
def test_a_step_has_the_shards_of_gradients_alone(
    make: Any, backend: str, changes: dict[str, Any], gradients: float
) -> None:
    f = Facts(plan_of(LEAVES, parallel__backend=backend, **changes))
    points = make(f)
    assert points["optimizer_step"] == [Point(gradients, 16 * TOKENS, 0, 0, 0)]
    assert points["idle"] == [Point()]


# -- the blocks' backward, layer by layer -----------------------------------------------------------------


def _layers(f: Facts) -> list[tuple[int, float, Any]]:
    """The layers from the top: how many are above, the bytes below, and the profile."""
    stack = stack_of(f)
    (profile,) = stack.walk.kinds
    count = int(stack.count)
    return [(above, stack.saved - above * stack.kept[0], profile) for above in range(count)]


def _moments(f: Facts, profile: Any) -> list[tuple[float, float, float]]:
    stack = stack_of(f)
    return [
        (m.token * stack.tokens + m.score * stack.scores, m.fixed, m.grads)
        for m in profile.backward
    ]


DEEP = replace(SMALL, layers=7)
LONG: dict[str, Any] = {"seq__max_len": 4096}


@pytest.mark.parametrize("dims", [SMALL, DEEP, replace(DEEP, heads=8, ffn=1000)])
@pytest.mark.parametrize(
    "changes", [{}, LONG, {**LONG, "model__attn_impl": "eager"}, WIDE, {**WIDE, **LONG}]
)
def test_the_instants_that_fsdp2_keeps_of_all_layers_are_the_highest(
    dims: ModelDims, changes: dict[str, Any]
) -> None:
    """Each of all layers' instants: shards of what is through, gradients of the layer, activations of those
    below, two units' windows and what is sent of the unit above."""
    f = fsdp2(model__dims=dims, **changes)
    stored = 4 if changes.get("precision__param") else 2
    assert f.model is not None
    block, count = f.model.blocks[0].numel, f.model.layers
    bare = 16 * f.samples.tokens + 2 * f.samples.tokens * 16 * 2
    every = []
    for above, below, profile in _layers(f):
        shards = stored / 4 * (TAIL + above * block)
        ahead = block if above < count - 1 else END
        sent = 2 * (block if above else TAIL)
        for moves, fixed, own in _moments(f, profile):
            every.append(
                (shards + 2 * own, bare + below + moves, 2 * (block + ahead) + sent, fixed)
            )
    late = len(head_of(f).late) + 1
    kept = [
        (p.gradients, p.activations, p.communication, p.temporary)
        for p in fsdp2_points(f)["backward"][late:-2]
    ]
    assert max(map(sum, kept)) == pytest.approx(max(map(sum, every)))
    for part in range(3):
        assert max(p[part] for p in kept) == pytest.approx(max(p[part] for p in every))


@pytest.mark.parametrize("dims", [SMALL, DEEP])
@pytest.mark.parametrize("changes", [{}, LONG, WIDE, {**LONG, "model__attn_impl": "eager"}])
def test_the_instants_that_fsdp1_keeps_of_all_layers_are_the_highest(
    dims: ModelDims, changes: dict[str, Any]
) -> None:
    """Under BACKWARD_PRE the next unit is gathered beside the layer's own, but for the last; a reduction has the
    unit's gradients and what they are put together in."""
    f = fsdp1(model__dims=dims, **changes)
    assert f.model is not None
    stored = 4 if changes.get("precision__param") else 2
    block, count = f.model.blocks[0].numel, f.model.layers
    bare = 16 * f.samples.tokens + 2 * f.samples.tokens * 16 * 2
    hidden = 2 * f.samples.tokens * 64
    every = []
    for above, below, profile in _layers(f):
        shards = stored / 4 * above * block
        ahead = 2 * block if above < count - 1 else 0
        around = 2 * (END + TAIL) + 2 * END + ahead
        for moves, fixed, own in _moments(f, profile):
            every.append((shards + 2 * own, bare + below + moves, around + 2 * block, fixed))
        every.append((shards, bare + below + hidden, around + 3 * 2 * block, 0))
    late = len(head_of(f).late)
    kept = [
        (p.gradients, p.activations, p.communication, p.temporary)
        for p in fsdp1_points(f)["backward"][late:-1]
    ]
    assert max(map(sum, kept)) == pytest.approx(max(map(sum, every)))
    for part in range(3):
        assert max(p[part] for p in kept) == pytest.approx(max(p[part] for p in every))


def test_fsdp2_goes_back_through_a_tower_beside_two_blocks() -> None:
    vision = VisionTower(layers=2, hidden=64, heads=4, ffn=128, patch=14, params=100_000)
    f = fsdp2(model__dims=replace(SMALL, arch="llava", vision=vision))
    pictures = images_of(f)
    assert pictures.backward > 0
    shards = 2 / 4 * (TAIL + 2 * BLOCK) + 2 * pictures.grads / 4
    tower = Point(pytest.approx(shards), BARE + pictures.backward, 0, 4 * BLOCK, 0)
    assert fsdp2_points(f)["backward"][-3] == tower
    assert fsdp2_points(f)["forward"][1].activations == BARE + pictures.forward
    assert fsdp2_points(f)["forward"][2].activations == (
        BARE + pictures.kept + SAVED + head_of(f).norm
    )
    more = fsdp2(model__dims=replace(SMALL, arch="llava", vision=vision), **TWICE)
    before = fsdp2_points(more)["forward"][0].gradients
    shards = before + (2 / 4 - 2) * (TAIL + 2 * BLOCK) + 2 * pictures.grads / 4
    assert fsdp2_points(more)["backward"][-3].gradients == pytest.approx(shards)


# -- FSDP1 ----------------------------------------------------------------------------------------------

ROOT = END + TAIL


@pytest.mark.parametrize(
    ("changes", "forward", "head", "early"),
    [
        ({}, 2 * (ROOT + BLOCK), 2 * (ROOT + BLOCK), 2 * (ROOT + BLOCK)),
        # Shards of 4 bytes are copied in 2 before they are gathered.
        (WIDE, 2 * (ROOT + BLOCK) + 2 * BLOCK / 4, 2 * (ROOT + BLOCK), 2 * (ROOT + BLOCK)),
        ({"parallel__fsdp__backward_prefetch": "post"}, 2 * (ROOT + BLOCK), 2 * (ROOT + BLOCK), 2 * ROOT),
        ({"parallel__fsdp__strategy": "grad_op"}, *[2 * (ROOT + 2 * BLOCK)] * 3),
        # The ends are units of their own, of which the tail is gathered for the head.
        ({"parallel__fsdp__wrap": "ends"}, 2 * BLOCK, 2 * TAIL, 2 * TAIL + 2 * BLOCK),
        (
            {"parallel__fsdp__wrap": "ends", "parallel__fsdp__strategy": "grad_op"},
            2 * (2 * BLOCK + END), 2 * (2 * BLOCK + END) + 2 * TAIL, 2 * (2 * BLOCK + END) + 2 * TAIL,
        ),
        ({"parallel__fsdp__wrap": "none"}, *[2 * NUMEL] * 3),
        # Nothing is gathered of what no rank shares; stored wider, it is copied in 16 bit.
        ({"parallel__fsdp__strategy": "no_shard"}, 0, 0, 0),
        ({"parallel__fsdp__strategy": "no_shard", **WIDE}, 2 * (ROOT + 2 * BLOCK), 2 * (ROOT + BLOCK), 2 * (ROOT + BLOCK)),
    ],
)  # fmt: skip
def test_fsdp1_gathers_flat_parameters(
    changes: dict[str, Any], forward: float, head: float, early: float
) -> None:
    f = fsdp1(**changes)
    found, points = head_of(f), fsdp1_points(f)
    assert points["forward"] == [
        Point(0, BARE + SAVED, 0, forward, 0),
        Point(0, BARE + SAVED + found.norm, found.loss, head, 0),
    ]
    assert points["backward"][: len(found.late)] == [
        Point(0, BARE + SAVED + norm, bytes_, early, 0) for norm, bytes_, _ in found.late
    ]


@pytest.mark.parametrize(
    ("wrap", "window"),
    [("none", 4 * NUMEL), ("transformer", 4 * (ROOT + BLOCK)), ("ends", 4 * BLOCK)],
)
def test_autocast_alone_leaves_what_is_gathered_as_wide_as_it_is_stored(
    wrap: str, window: int
) -> None:
    """FSDP without a policy of its own: flat parameters of 4 bytes, and no copy of a shard in 2."""
    f = fsdp1(
        **WIDE, precision__gathered="fp32", precision__autocast=True, parallel__fsdp__wrap=wrap
    )
    assert fsdp1_points(f)["forward"][0].communication == window


@pytest.mark.parametrize(
    ("changes", "gradients", "moved"),
    [
        # The tail, its gradients and what they are put together in, beside the next block.
        ({}, 2 * TAIL / 4, 2 * 3 * TAIL + 2 * BLOCK),
        # In fp32 the unit is gone: gradients in both widths, and the shard that arrives.
        ({"precision__comm": "fp32"}, 2 * TAIL / 4, (2 + 4 + 1) * TAIL + 2 * BLOCK),
        ({"parallel__fsdp__strategy": "grad_op"}, 2 * TAIL / 4, 2 * 3 * TAIL + 2 * (2 * BLOCK + END)),
        (TWICE, 2 * NUMEL - 2 * TAIL + 2 * TAIL / 4, 2 * 3 * TAIL + 2 * BLOCK),
        ({**TWICE, "parallel__fsdp__sync_every_micro": True}, 2 * NUMEL / 4, 2 * 3 * TAIL + 2 * BLOCK),
    ],
)  # fmt: skip
def test_fsdp1_reduces_a_tail_of_its_own_first(
    changes: dict[str, Any], gradients: float, moved: float
) -> None:
    f = fsdp1(parallel__fsdp__wrap="ends", **changes)
    tail = fsdp1_points(f)["backward"][len(head_of(f).late)]
    assert tail == Point(pytest.approx(gradients), BARE + SAVED + HIDDEN, 0, moved, 0)


@pytest.mark.parametrize(
    ("changes", "gradients", "moved"),
    [
        ({}, 2 * 2 * BLOCK / 4, 2 * ROOT + 2 * 2 * ROOT),
        ({"precision__comm": "fp32"}, 2 * 2 * BLOCK / 4, (2 + 4 + 1) * ROOT),
        (TIED, 2 * 2 * BLOCK / 4, 3 * 2 * (END + NORM) + 2 * END),
        # Both gradients of a tied weight are one by the time that it is made fp32, which is less: 4 + 2 + 1 bytes.
        (
            {**TIED, "precision__comm": "fp32"}, 2 * 2 * BLOCK / 4, 3 * 2 * (END + NORM) + 2 * END,
        ),
        (WIDE, 4 * 2 * BLOCK / 4, 2 * ROOT + 2 * 2 * ROOT),
        # The tail has been reduced too.
        ({"parallel__fsdp__wrap": "ends"}, 2 * (2 * BLOCK + TAIL) / 4, 2 * 3 * END),
        ({**TWICE}, 2 * NUMEL - (2 - 0.5) * 2 * BLOCK, 2 * 3 * ROOT),
        (LORA, 2 * ADAPTERS / 4, 2 * ROOT),
    ],
)  # fmt: skip
def test_fsdp1_ends_with_the_root(changes: dict[str, Any], gradients: float, moved: float) -> None:
    last = fsdp1_points(fsdp1(**changes))["backward"][-1]
    assert last == Point(pytest.approx(gradients), BARE + HIDDEN, 0, moved, 0)


def test_wider_reductions_of_a_block_come_after_it_is_gone() -> None:
    """Gradients in 2 and in 4 bytes and the shard that arrives, beside the root, the head's gradient and the unit
    that is prefetched; of the last block without it."""
    f = fsdp1(precision__comm="fp32")
    first, last = fsdp1_points(f)["backward"][-3:-1]
    around = 2 * ROOT + 2 * END
    assert first == Point(0, BARE + SAVED + HIDDEN, 0, around + 2 * BLOCK + 7 * BLOCK, 0)
    assert last == Point(2 * BLOCK / 4, BARE + 2 * HIDDEN, 0, around + 7 * BLOCK, 0)


def test_units_that_stay_whole_go_one_by_one_in_backward() -> None:
    f = fsdp1(parallel__fsdp__strategy="grad_op")
    first, last = fsdp1_points(f)["backward"][-3:-1]
    around = 2 * ROOT + 2 * END
    assert first.communication == around + 2 * 2 * BLOCK + 2 * 2 * BLOCK
    assert last.communication == around + 2 * BLOCK + 2 * 2 * BLOCK
    other = fsdp2(parallel__fsdp__reshard_after_forward=False)
    late = len(head_of(other).late) + 1
    windows = {p.communication for p in fsdp2_points(other)["backward"][late:-2]}
    # All but the blocks that are through, and what is sent of the unit above.
    stays = 2 * (2 * BLOCK + END)
    assert windows <= {stays + 2 * TAIL, stays - 2 * BLOCK + 2 * BLOCK}


def test_of_a_layers_moments_those_are_kept_that_have_the_most_of_something() -> None:
    """Of ten tokens and ten scores, with gradients of two bytes: (what moves, what is fixed, gradients)."""
    backward = (
        (1, 0, 0, 5),
        (0, 0, 31, 0),
        (1, 2, 0, 1),
        (2, 0, 10, 9),
        (0, 0, 0, 12),
        (1, 1, 5, 0),
    )
    profile: Any = SimpleNamespace(backward=backward)
    assert sharding._highest_moments(profile, 10, 10, 2) == (
        (20, 10, 18), (0, 31, 0), (30, 0, 2), (0, 0, 24),
    )  # fmt: skip


def test_of_places_those_are_kept_that_have_the_most_of_something() -> None:
    """(Gradients of what is through, activations below, window, what is gathered ahead)."""
    places: Any = [
        (1, 2, 3, 0), (5, 0, 0, 0), (0, 9, 0, 0), (4, 4, 4, 2), (0, 0, 5, 3), (1, 1, 1, 1), (0, 0, 7, 0),
    ]  # fmt: skip
    found = sharding._highest_places(places)
    assert found == ((4, 4, 4, 2), (0, 9, 0, 0), (5, 0, 0, 0), (0, 0, 5, 3))
    assert sharding._highest_places(places[:1]) == (places[0],) * 4
