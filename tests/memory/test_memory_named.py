"""Which parameters patterns of names train."""

from __future__ import annotations

import pytest

from oomlint.memory import estimate
from oomlint.memory.build import skeleton
from oomlint.memory.named import Named, named, readable
from oomlint.plan import Plan
from oomlint.plan.model import ModelDims, Moe, VisionTower

DENSE = ModelDims(
    arch="llama", layers=4, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=1000,
    tie_embeddings=False, act="swiglu", norm="rms",
)  # fmt: skip
EXPERTS = DENSE.__class__(
    **{name: getattr(DENSE, name) for name in ("layers", "hidden", "heads", "kv_heads", "head_dim",
                                               "ffn", "vocab", "tie_embeddings", "act", "norm")},
    arch="mixtral", moe=Moe(experts=8, topk=2, moe_ffn=128),
)  # fmt: skip
QUERY = 64 * 64
ENDS = 1000 * 64


def chosen(dims: ModelDims, *patterns: str) -> Named:
    model = skeleton(dims)
    assert model is not None
    found = named(model, patterns)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ((r"model\.layers\.[0-9]+\.self_attn\.q_proj",), Named(4 * QUERY, False, False)),
        ((r"model\.layers\.[23]\.self_attn\.[qo]_proj",), Named(4 * QUERY, False, False, 2)),
        ((r"^lm_head\.weight$",), Named(ENDS, False, True, 4)),
        ((r"^model\.embed_tokens\.weight$", "lm_head"), Named(2 * ENDS, True, True)),
        (("nothing",), Named(0.0, False, False)),
        # A head that a class of transformers puts on top has all blocks below it.
        ((r".*classification_head\.",), Named(0.0, False, False, 4)),
    ],
)
def test_patterns_choose_parameters(patterns: tuple[str, ...], expected: Named) -> None:
    assert chosen(DENSE, *patterns) == expected


def test_everything_is_the_whole_model() -> None:
    model = skeleton(DENSE)
    assert model is not None
    assert chosen(DENSE, "model", "lm_head") == Named(model.numel, True, True)


def test_experts_go_by_both_their_names() -> None:
    new = chosen(EXPERTS, r"model\.layers\.1\.mlp\.experts")
    assert new == chosen(EXPERTS, r"model\.layers\.1\.block_sparse_moe\.experts")
    assert new.numel == 8 * 3 * 64 * 128


def test_a_language_model_beside_a_tower_has_a_longer_name() -> None:
    dims = DENSE.__class__(
        **{name: getattr(DENSE, name) for name in ("arch", "layers", "hidden", "heads", "kv_heads",
                                                   "head_dim", "ffn", "vocab", "tie_embeddings",
                                                   "act", "norm")},
        vision=VisionTower(params=5000),
    )  # fmt: skip
    whole = skeleton(DENSE)
    assert whole is not None
    assert chosen(dims, r"model\.language_model", "lm_head").numel == whole.numel
    assert chosen(dims, r"model\.visual").numel == 5000
    # What a tower that is trained gives has gradients, and so has every block that takes it.
    assert chosen(dims, r"model\.visual", "lm_head").below == 0


def test_blocks_below_the_trained_ones_keep_nothing() -> None:
    """Published of ChatGLM2 with four trained blocks of 28: 36 GB without recomputation, 35 with it."""

    def kept(**changes: object) -> int:
        values = {
            "model.dims": DENSE, "trainable.method": "freeze", "seq.max_len": 512, "batch.micro": 2,
            "checkpointing.mode": "none", "parallel.world": 1,
        }  # fmt: skip
        found = estimate(Plan().with_values(values | changes))
        return found.gpu.by_phase["forward"]["activations"] or 0

    names = "trainable.names"
    whole = kept(**{names: ("model", "lm_head")})
    block = kept(**{names: (r"model\.layers\.3\.",)})
    three = kept(**{names: (r"model\.layers\.[123]\.",)})
    assert whole == pytest.approx(4 * block, rel=0.05)
    assert three == pytest.approx(3 * block, rel=0.05)
    assert kept(**{names: (r"model\.layers\.3\.", "model.embed")}) == pytest.approx(whole, rel=0.01)
    assert kept(**{"trainable.last_layers": 1}) == block
    # The first ones have all others above them.
    assert kept(**{"trainable.last_layers": -1}) == pytest.approx(whole, rel=0.01)
    unstepped = {"trainable.last_layers": 1, "trainable.unstepped": "embeddings"}
    assert kept(**unstepped) == pytest.approx(whole, rel=0.01)


def test_a_head_on_an_encoder_and_a_decoder_has_both_below_it() -> None:
    stacked = DENSE.__class__(
        **{name: getattr(DENSE, name) for name in ("layers", "hidden", "heads", "kv_heads", "head_dim",
                                                   "ffn", "vocab", "tie_embeddings", "act", "norm")},
        arch="t5",
    )  # fmt: skip
    assert chosen(stacked, r".*classification_head\.").below == 8


@pytest.mark.parametrize("pattern", ["(a+)+$", "(", "a" * 300, ".*.*.*.*.*x"])
def test_patterns_that_could_run_for_ever_are_not_tried(pattern: str) -> None:
    assert not readable(pattern)
    model = skeleton(DENSE)
    assert model is not None
    assert named(model, (pattern,)) is None


def test_what_is_named_gets_gradients_and_states() -> None:
    values = {
        "model.dims": DENSE, "trainable.method": "freeze", "trainable.names": ("model", "lm_head"),
        "precision.param": "bf16", "optimizer.kind": "adamw", "batch.micro": 1,
        "seq.max_len": 128,
    }  # fmt: skip
    some = estimate(Plan().with_values({**values, "trainable.names": ("lm_head",)})).gpu
    every = estimate(Plan().with_values(values)).gpu
    model = skeleton(DENSE)
    assert model is not None
    states = every.by_phase["optimizer_step"]["optimizer_states"]
    assert states == 2 * 2 * model.numel
    assert some.by_phase["optimizer_step"]["optimizer_states"] == 2 * 2 * ENDS
