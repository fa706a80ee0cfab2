"""Losses that work in chunks or in kernels of their own: by hand, from their sources, in bytes.

1,024 tokens of a vocabulary of 128,256 and a width of 4,096, in bf16. ``each`` is one byte for each logit.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.plans import LLAMA_8B, plan_of

from oomlint.memory import estimate
from oomlint.memory.facts import Facts
from oomlint.memory.logits import Logits, logits_of

TOKENS, VOCAB, HIDDEN = 1024, 128_256, 4096
EACH = TOKENS * VOCAB
HEAD = VOCAB * HIDDEN
STATES = TOKENS * HIDDEN
# The last norm keeps its input, in fp32 too, and a number a token.
NORM = (8 * HIDDEN + 4) * TOKENS
LEAVES: dict[str, Any] = {
    "model.dims": LLAMA_8B, "trainable.method": "full", "precision.param": "bf16",
    "precision.grad": "bf16", "precision.compute": "bf16", "batch.micro": 1, "seq.max_len": TOKENS,
}  # fmt: skip
LORA: dict[str, Any] = {"trainable__method": "lora", "trainable__r": 8}


def logits(**changes: Any) -> Logits:
    return logits_of(Facts(plan_of(LEAVES, **changes)), TOKENS)


def loss(**changes: Any) -> Logits:
    return logits(**{f"loss__{name}": value for name, value in changes.items()})


def highest(found: Logits) -> float:
    """The highest instant of backward, instant by instant."""
    return max(bytes_ for _, bytes_, _ in found.late)


def bytes_of(found: Logits) -> tuple[float, float, float]:
    return found.kept, found.loss, found.early


@pytest.mark.parametrize(
    ("algorithm", "upcast", "kept", "at_loss", "early"),
    [
        # flash-attn: of fp32 logits their cast beside them; the gradient beside what is kept.
        ("kernel", None, 4, 6, 8),
        ("kernel", False, 2, 2, 4),
        # Unsloth, and Megatron-core on a copy: over what is kept, which is cast in passing.
        ("overwritten", None, 2, 2, 2),
        ("in_place", None, 4, 6, 6),
        ("in_place", False, 2, 2, 2),
        # slime: an fp32 copy and its softmax, which becomes the gradient.
        ("softmax", None, 4, 8, 6),
        ("softmax_entropy", None, 8, 8, 12),
        # NeMo-RL: fp32 logits, their log-softmax and the softmax of it.
        ("log_softmax", None, 4, 12, 8),
        # A value head's model makes them fp32, and nobody needs them.
        ("dropped", None, 0, 6, 0),
        # TRL: one sample after another.
        ("rows", None, 2, 6, 4),
        # Inductor, model and loss in one graph: the half-precision logits alone, and in backward thrice their size.
        ("compiled", None, 2, 2, 6),
    ],
)
def test_a_kernel_keeps_so_many_bytes_a_logit(
    algorithm: str, upcast: bool | None, kept: int, at_loss: int, early: int
) -> None:
    found = loss(algorithm=algorithm, upcast_fp32=upcast)
    assert bytes_of(found) == (kept * EACH, at_loss * EACH, early * EACH)
    half = logits(
        loss__algorithm=algorithm, loss__upcast_fp32=upcast, parallel__world=2, parallel__tp=2,
        parallel__backend="megatron" if algorithm == "in_place" else "fsdp2",
    )  # fmt: skip
    assert bytes_of(half) == (kept * EACH / 2, at_loss * EACH / 2, early * EACH / 2)


def test_autocast_hands_the_logits_on_in_fp32() -> None:
    wide: dict[str, Any] = {"precision__param": "fp32", "precision__autocast": True}
    found = logits(loss__algorithm="overwritten", **wide)
    assert bytes_of(found) == (2 * EACH, 6 * EACH, 2 * EACH)
    rows = logits(loss__algorithm="rows", **wide)
    assert bytes_of(rows) == (4 * EACH, 8 * EACH, 16 * EACH)


def test_a_reference_has_logits_of_its_own_beside_the_policys() -> None:
    pairs: dict[str, Any] = {"objective__kind": "dpo", "loss__algorithm": "rows"}
    assert logits(**pairs).loss == 6 * EACH
    for reference in ("copy", "shared_adapter_off"):
        assert logits(**pairs, objective__ref_model=reference).loss == 8 * EACH
    assert logits(**pairs, objective__ref_model="precomputed").loss == 6 * EACH
    copied = {**pairs, "loss__algorithm": "copied_rows"}
    assert logits(**copied).loss == 6 * EACH
    assert logits(**copied, objective__ref_model="copy").loss == 10.5 * EACH
    simple = {**pairs, "objective__kind": "simpo"}
    assert bytes_of(logits(**simple, objective__ref_model="copy")) == (2 * EACH, 6 * EACH, 4 * EACH)


@pytest.mark.parametrize("kind", ["orpo", "cpo"])
def test_learning_the_chosen_answers_keeps_their_log_probabilities_too(kind: str) -> None:
    """Measured with ORPO of TRL 1.9 in bf16: 3 bytes a logit are kept, 5 are there at the loss."""
    found = logits(objective__kind=kind, loss__algorithm="rows")
    assert bytes_of(found) == (3 * EACH, 5 * EACH, 5 * EACH)


@pytest.mark.parametrize("kind", ["rm", "embedding"])
def test_models_without_a_head_have_no_logits(kind: str) -> None:
    assert logits(objective__kind=kind) == Logits(0, 0, 0, 0, [])


def test_liger_works_on_a_power_of_two_of_tokens() -> None:
    # 128,256 / 4,096 rounded up are 32 parts: 32 tokens at a time, in half precision and fp32.
    work = 32 * VOCAB * 6
    found = loss(liger__flce=True)
    made = 2 * STATES + 2 * HEAD
    assert bytes_of(found) == (made, made + work, made)
    assert found.norm == NORM
    frozen = logits(loss__liger__flce=True, **LORA)
    assert bytes_of(frozen) == (2 * STATES, 2 * STATES + work, 2 * STATES)
    narrow = logits(loss__liger__flce=True, loss__upcast_fp32=False, **LORA)
    assert narrow.loss == 2 * STATES + 32 * VOCAB * 2
    more = logits_of(
        Facts(plan_of(LEAVES, loss__liger__flce=True, seq__max_len=1025, **LORA)), 1025
    )
    assert more.loss == 2 * 1025 * HIDDEN + 64 * VOCAB * 6


def test_cut_cross_entropy_makes_no_logits() -> None:
    found = logits(loss__cut_ce=True, **LORA)
    assert bytes_of(found) == (2 * STATES, 2 * STATES, 2 * STATES)


def test_torchtitans_chunks_gather_gradients_of_hidden_states_in_fp32() -> None:
    found = logits(loss__logits_materialised="fused", loss__chunks=8, **LORA)
    work = TOKENS / 8 * VOCAB * (2 * 2 + 8)
    assert bytes_of(found) == (4 * STATES, 4 * STATES + work, 4 * STATES)
    whole = logits(loss__logits_materialised="fused", loss__chunks=8)
    assert whole.kept == 4 * STATES + 2 * HEAD


def test_prime_rls_tiles_are_of_some_tokens_and_words() -> None:
    tile = TOKENS / 4 * 8192
    tiles: dict[str, Any] = {
        "loss__algorithm": "tiles", "loss__logits_materialised": "fused", "loss__chunks": 4,
        "loss__words": 8192,
    }  # fmt: skip
    found = logits(**tiles)
    made = 2 * STATES + 2 * HEAD
    assert bytes_of(found) == (0, 14 * tile, made + 22 * tile)
    assert found.norm == NORM
    # 0.3 took 2048 words of all tokens.
    of_words = logits(**{**tiles, "loss__chunks": 1, "loss__words": 2048})
    assert of_words.loss == 14 * tile
    frozen = logits(**tiles, **LORA)
    assert frozen.early == 2 * STATES + 22 * tile
    # All tokens at once unless somebody says how many.
    for chunks in (None, 1):
        whole = logits(
            loss__algorithm="tiles",
            loss__logits_materialised="fused",
            loss__chunks=chunks,
            loss__words=8192,
        )
        assert bytes_of(whole) == (0, 14 * 4 * tile, made + 22 * 4 * tile)


def test_trls_tiles_are_written_over_and_their_gradients_add_up_in_fp32() -> None:
    """Half-precision weights: the copied hidden states, a tile, and sums that are made half precision."""
    tiles: dict[str, Any] = {
        "loss__algorithm": "kernel_tiles", "loss__logits_materialised": "fused", "loss__words": 8192,
        "loss__tile_tokens": 64,
    }  # fmt: skip
    tile = 2 * 64 * 8192
    frozen = logits(**tiles, **LORA)
    assert bytes_of(frozen) == (2 * STATES, 2 * STATES + tile, 8 * STATES + tile)
    trained = logits(**tiles)
    assert trained.early == 8 * STATES + tile + 6 * HEAD
    assert (trained.kept, trained.norm) == (2 * STATES, NORM)


def test_chunks_of_logits_that_are_all_there() -> None:
    chunked: dict[str, Any] = {"loss__logits_materialised": "chunked", **LORA}
    eight = logits(**chunked)
    assert (eight.kept, eight.loss, highest(eight)) == (4 * EACH, 6.5 * EACH, 5 * EACH)
    assert eight == logits(**chunked, loss__chunks=8)
    sixteen = logits(**chunked, loss__chunks=16)
    assert (sixteen.kept, sixteen.loss, highest(sixteen)) == (4 * EACH, 6.25 * EACH, 4.5 * EACH)
    handed_on = logits(**chunked, loss__outputs_kept=True)
    assert bytes_of(handed_on) == (4 * EACH, 9 * EACH, 5 * EACH)
    assert handed_on.outputs == 4 * EACH


def test_areals_slices_each_hand_back_a_gradient_of_all() -> None:
    found = logits(
        loss__logits_materialised="chunked", loss__algorithm="slices", loss__chunks=8, **LORA
    )
    assert bytes_of(found) == (2 * EACH, 2.5 * EACH, 6.5 * EACH)


def test_a_packed_head_is_unpacked_for_backward() -> None:
    chunked: dict[str, Any] = {"loss__logits_materialised": "chunked", **LORA}
    packed = logits(**chunked, quant__method="bnb4", quant__skip_modules=())
    assert highest(packed) == 5 * EACH + 2 * HEAD
    assert highest(logits(**chunked, quant__method="bnb4")) == 5 * EACH
    # Compiled, six chunks of eight wait in half precision while it is.
    compiled = logits(
        **chunked, compile__enabled=True, quant__method="bnb4", quant__skip_modules=()
    )
    assert highest(compiled) == 1.5 * EACH + 2 * HEAD
    unpacked = {**chunked, "quant__method": "bnb4", "quant__skip_modules": ()}
    projecting = logits(**unpacked, loss__algorithm="head_chunks")
    assert highest(projecting) == 5 * EACH + 2 * STATES + 2 * HEAD
    handed_on = logits(**unpacked, loss__outputs_kept=True)
    assert bytes_of(handed_on) == (4 * EACH, 9 * EACH + 2 * HEAD, 5 * EACH + 2 * HEAD)


# What benchmarks/measure/compiled.py measured with torch 2.15, less what hidden states take.
def test_a_compiled_loss_of_a_chunk_keeps_its_logits_alone() -> None:
    chunked: dict[str, Any] = {
        "loss__logits_materialised": "chunked", "compile__enabled": True, **LORA,
    }  # fmt: skip
    eight = logits(**chunked)
    # A chunk's gradient lies beside all the logits, and takes the place of the chunk's own.
    assert (eight.kept, eight.loss, highest(eight)) == (2 * EACH, 2 * EACH, 2.25 * EACH)
    one = logits(**chunked, loss__chunks=1)
    assert (one.kept, one.loss, highest(one)) == (2 * EACH, 2 * EACH, 4 * EACH)


def test_the_gradients_that_chunks_make_of_a_head_are_summed_in_a_third_tensor() -> None:
    chunked: dict[str, Any] = {"loss__logits_materialised": "chunked"}
    # The losses of all chunks are through before the first projection is: two chunks' gradients are taken then.
    assert highest(logits(**chunked)) == 1.5 * EACH + 3 * 2 * HEAD
    assert highest(logits(**chunked, compile__enabled=True)) == 1.5 * EACH + 3 * 2 * HEAD
    one = logits(**chunked, loss__chunks=1, compile__enabled=True)
    assert highest(one) == 2 * EACH + 2 * HEAD
    projecting = {**chunked, "loss__algorithm": "head_chunks"}
    assert highest(logits(**projecting)) == 3 * EACH + 2 * STATES + 3 * 2 * HEAD
    # Compiled, the gradient is no view, so that the newest is added to the last ones.
    compiled = logits(**projecting, compile__enabled=True)
    assert highest(compiled) == 1.75 * EACH + 2 * STATES + 2 * 2 * HEAD


def test_dtensors_cross_entropy_holds_copies_beside_what_megatrons_writes_over() -> None:
    """benchmarks/measure/parallel_loss.py: 4, 14 and 16 bytes on torch 2.15."""
    split: dict[str, Any] = {
        "loss__logits_materialised": "loss_parallel", "parallel__tp": 4, "parallel__world": 8,
    }  # fmt: skip
    torchs = logits(**split, parallel__backend="fsdp2")
    assert bytes_of(torchs) == (EACH, 3.5 * EACH, 4 * EACH)
    megatrons = logits(**split, parallel__backend="megatron")
    assert bytes_of(megatrons) == (EACH, 1.5 * EACH, 1.5 * EACH)


def test_an_optimizer_in_backward_waits_for_the_gradient_of_all_chunks() -> None:
    """torchtune's README has 23.1 GiB for the 3B at 2 x 4,096 tokens, of which 3.6 are those of the head."""
    chunked: dict[str, Any] = {"loss__logits_materialised": "chunked", "compile__enabled": True}
    leaves = {**LEAVES, "checkpointing.mode": "full"}
    waits = estimate(plan_of(leaves, optimizer__in_backward=True, **chunked)).gpu
    frees = estimate(plan_of(leaves, optimizer__in_backward=True, **chunked, loss__chunks=1)).gpu
    assert waits.phases["backward"] is not None
    assert frees.phases["backward"] is not None
    assert waits.phases["backward"] - frees.phases["backward"] > 2 * HEAD


def test_losses_that_spare_logits_may_make_them_when_they_evaluate() -> None:
    from oomlint.memory.logits import evaluated_logits

    def evaluated(fuses: bool | None) -> Logits:
        leaves = {**LEAVES, "loss.liger.flce": True, "eval.fuses_loss": fuses}
        return evaluated_logits(Facts(plan_of(leaves)), TOKENS)

    assert evaluated(None) == loss(liger__flce=True)
    assert evaluated(True) == loss(liger__flce=True)
    assert evaluated(False) == loss()


# -- all logits at once ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "kept", "at_loss"),
    [
        # fp32 log-probabilities are kept; the logits and their fp32 copy go with the loss.
        ({}, 4, 4 + 2 + 4),
        ({"loss__upcast_fp32": False}, 2, 2 + 2),
        # Older models handed on the fp32 copy, and cut the labels' part from it where there are several samples.
        ({"versions": {"transformers": "4.44.0"}}, 4, 4 + 4 + 4),
        ({"loss__outputs_kept": True}, 4, 4 + 2 + 4),
        # The reference's logits and log-probabilities beside the policy's.
        ({"objective__kind": "dpo", "objective__ref_model": "copy", "objective__pairs_per_sample": 1}, 4, 4 + 4 + 8),
        (
            {"objective__kind": "dpo", "objective__ref_model": "copy", "objective__pairs_per_sample": 1,
             "loss__twice": True}, 4, 4 + 4 + 10,
        ),
        (
            {"objective__kind": "kto", "objective__ref_model": "shared_adapter_off", "loss__upcast_fp32": False},
            2, 2 + 2 + 2 * 2,
        ),
        ({"objective__kind": "dpo", "objective__ref_model": "precomputed", "objective__pairs_per_sample": 1}, 4, 10),
        ({"objective__kind": "sft", "objective__ref_model": "copy"}, 4, 10),
    ],
)  # fmt: skip
def test_cross_entropy_of_all_logits(changes: dict[str, Any], kept: int, at_loss: int) -> None:
    found = logits(**changes)
    assert (found.kept, found.loss) == (kept * EACH, at_loss * EACH)
    assert found.early == 0
    assert found.outputs == (2 * EACH if changes.get("loss__outputs_kept") else 0)
    frozen = logits(**changes, **LORA)
    # The last norm's output is a local of forward then, which a reference's pass comes after.
    is_asked = changes.get("objective__ref_model") in ("copy", "shared_adapter_off")
    is_beside = is_asked and changes["objective__kind"] != "sft"
    assert frozen.loss == at_loss * EACH + (0 if is_beside else 2 * STATES)
    assert len(found.late) > 1
    # What is of the norm and what of the logits is told apart to the end.
    assert all(0 <= part <= found.norm and total >= 0 for part, total, _ in found.late)
    # Beside what is kept, gradients of the fp32 copy and of the log-probabilities.
    wide = 2 if changes.get("loss__upcast_fp32") is False else 4
    assert max(total for _, total, _ in found.late) == pytest.approx(
        (kept + 2 * wide) * EACH, rel=0.02
    )


@pytest.mark.parametrize(
    ("release", "one", "two"),
    [
        # The whole fp32 copy was handed on; then a part of it cut for the labels, of one sample a view; then neither.
        ("4.45.2", 12, 12), ("4.46.0", 10, 14), ("4.48.3", 10, 14), ("4.49.0", 10, 10),
    ],
)  # fmt: skip
def test_labels_are_shifted_of_several_samples(release: str, one: int, two: int) -> None:
    older = {"versions": {"transformers": release}}
    assert logits(**older).loss == one * EACH
    several = logits_of(Facts(plan_of(LEAVES, batch__micro=2, **older)), 2 * TOKENS)
    assert several.loss == two * 2 * EACH
    pairs = {"objective__kind": "dpo", "objective__ref_model": "none", **older}
    chosen = logits_of(Facts(plan_of(LEAVES, **pairs)), 2 * TOKENS)
    assert chosen.loss == max(one, 10) * 2 * EACH


@pytest.mark.parametrize(
    ("changes", "kept", "at_loss", "late"),
    [
        # Chunks of fp32 log-probabilities; in backward two more of one, then what waits when the head's gradients
        # of the first two are summed in a third tensor. Compiled, the logits alone wait, and two tensors do.
        (LORA, 4, 4 + 6 / 8, (4 + 1, 4 * 6 / 8, 0)),
        ({}, 4, 4 + 6 / 8, (4 + 1, 4 * 6 / 8, 3 * 2 * HEAD)),
        ({"compile__enabled": True}, 2, 2, (2 + 2 / 8, 2 * 7 / 8, 2 * 2 * HEAD)),
        ({**LORA, "loss__chunks": 16}, 4, 4 + 6 / 16, (4.5, 4 * 14 / 16, 0)),
    ],
)
def test_torchtunes_chunks_copy_the_hidden_states(
    changes: dict[str, Any], kept: float, at_loss: float, late: tuple[float, float, float]
) -> None:
    chunked: dict[str, Any] = {
        "loss__logits_materialised": "chunked", "loss__algorithm": "head_chunks",
    }  # fmt: skip
    found = logits(**chunked, **changes)
    hidden = 2 * STATES
    assert bytes_of(found) == (kept * EACH + hidden, at_loss * EACH + hidden, 0)
    first, second, grads = late
    assert found.late == [
        (NORM, first * EACH + hidden, 0),
        (NORM, second * EACH + hidden + grads, 0),
    ]


def test_gradients_of_torchtunes_chunks_add_up_as_wide_as_the_run_computes() -> None:
    wide: dict[str, Any] = {"precision__param": "fp32", "precision__grad": "fp32"}
    chunked: dict[str, Any] = {
        "loss__logits_materialised": "chunked", "loss__algorithm": "head_chunks", **wide,
    }  # fmt: skip
    _, cast, _ = logits(**chunked, precision__autocast=True).late[1]
    _, frozen, _ = logits(**chunked, **LORA, precision__autocast=True).late[1]
    assert cast - frozen == 3 * 2 * HEAD
    _, plain, _ = logits(**chunked).late[1]
    _, held, _ = logits(**chunked, **LORA).late[1]
    assert plain - held == 3 * 2 * HEAD


@pytest.mark.parametrize(
    ("changes", "copies", "back", "grads", "width"),
    [
        # An fp32 copy of the head's weight; of one chunk 16 bytes where nothing of the head is trained.
        (LORA, 4, 16, 0, 2),
        ({}, 4, 4, 6, 2),
        ({"precision__param": "fp32"}, 0, 4, 10, 4),
        ({"precision__param": "fp32", "precision__autocast": True}, 2, 4, 10, 4),
        ({"precision__autocast": True}, 6, 4, 2, 2),
        ({"precision__autocast": True, **LORA}, 6, 4, 0, 2),
    ],
)
def test_chunks_that_are_made_again_make_the_weight_again(
    changes: dict[str, Any], copies: int, back: int, grads: int, width: int
) -> None:
    found = logits(
        loss__logits_materialised="chunked", loss__algorithm="recomputed_chunks", loss__chunks=32,
        **changes,
    )  # fmt: skip
    hidden, chunk = width * STATES, EACH / 32
    assert bytes_of(found) == (
        hidden, 2 * hidden + copies * HEAD + 2 * chunk,
        2 * hidden + copies * HEAD + back * chunk + grads * HEAD,
    )  # fmt: skip


@pytest.mark.parametrize(("autocast", "width"), [(False, 2), (True, 4)])
def test_distillation_holds_what_two_models_make(autocast: bool, width: int) -> None:
    for kind in ("gkd", "distill"):
        found = logits(objective__kind=kind, precision__autocast=autocast)
        assert bytes_of(found) == (7 * width * EACH, 17 * width * EACH, 12 * width * EACH)
        assert found.norm == NORM


def test_the_entropy_of_plain_logits_is_scored_beside_an_fp32_copy() -> None:
    from oomlint.memory.logits import scored_logits

    def scored(**changes: Any) -> float:
        whole: dict[str, Any] = {
            "loss__logits_materialised": "full", "loss__upcast_fp32": True,
            "objective__rollout__entropy": "whole",
        }  # fmt: skip
        return scored_logits(Facts(plan_of(LEAVES, **{**whole, **changes})), TOKENS).loss

    # The copy, its softmax and their product, in 4 bytes each.
    assert scored() == (2 + 12) * EACH
    for other in (
        {"objective__rollout__entropy": "none"}, {"loss__upcast_fp32": False},
        {"loss__logits_materialised": None},
    ):  # fmt: skip
        assert scored(**other) < (2 + 12) * EACH
    split = {"parallel__world": 2, "parallel__tp": 2}
    assert scored(**split, parallel__backend="fsdp2") == 14 * EACH / 2


ACTOR: dict[str, Any] = {
    "objective__kind": "grpo", "loss__algorithm": "in_place", "loss__upcast_fp32": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "widths"),
    [
        # verl: the gradient of what is divided by the temperature; for the entropy another one.
        ({}, (2, 2, 4)),
        ({"loss__entropy": "fused"}, (2, 2, 6)),
        ({"loss__entropy": "whole"}, (6, 10, 18)),
        ({"loss__upcast_fp32": None}, (4, 6, 8)),
        ({"loss__upcast_fp32": None, "loss__entropy": "fused"}, (12, 12, 12)),
    ],
)
def test_an_actors_kernel_writes_over_its_logits(
    changes: dict[str, Any], widths: tuple[int, int, int]
) -> None:
    from oomlint.memory.logits import scored_logits

    found = logits(**{**ACTOR, **changes})
    assert bytes_of(found) == tuple(width * EACH for width in widths)
    entropy = {"objective__rollout__entropy": changes.get("loss__entropy", "none")}
    f = Facts(plan_of(LEAVES, **{**ACTOR, **changes, **entropy}))
    wide = changes.get("loss__upcast_fp32", False) is None
    asked = {(False, "none"): 2, (False, "fused"): 2, (False, "whole"): 10, (True, "none"): 6,
             (True, "fused"): 12}  # fmt: skip
    assert (
        scored_logits(f, TOKENS).loss == asked[wide, entropy["objective__rollout__entropy"]] * EACH
    )


@pytest.mark.parametrize(
    "changes", [{"loss__cut_ce": True}, {"loss__liger__flce": True}, {"loss__logits_materialised": "fused"}]
)  # fmt: skip
def test_what_makes_no_logits_has_none_to_write_over(changes: dict[str, Any]) -> None:
    from oomlint.memory.logits import scored_logits

    f = Facts(plan_of(LEAVES, **{**ACTOR, **changes}))
    assert scored_logits(f, TOKENS) == logits_of(f, TOKENS)
