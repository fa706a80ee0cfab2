"""What an encoder that hears 30 seconds of every sample holds, by hand."""

from __future__ import annotations

from typing import Any

from tests.plans import plan_of

from oomlint.memory.facts import Facts
from oomlint.memory.images import images_of
from oomlint.plan.model import ModelDims, Sound

BASE: dict[str, Any] = {
    "precision.param": "bf16",
    "precision.compute": "bf16",
    "parallel.backend": "none",
    "parallel.world": 1,
    "seq.max_len": 225,
}
WHISPER = ModelDims(
    arch="whisper", layers=4, hidden=64, heads=4, kv_heads=4, head_dim=16, ffn=256, vocab=1000, ctx=448,
    tie_embeddings=True, attn_bias=True, mlp_bias=True, norm="ln", act="gelu",
    layer_types=("encoder", "encoder", "decoder", "decoder"), sound=Sound(frames=1500, bands=80),
)  # fmt: skip


def _facts(**changes: Any) -> Facts:
    full = {"trainable__method": "full", "precision__grad": "bf16", "batch__micro": 2, **changes}
    return Facts(plan_of(BASE, model__dims=WHISPER, **full))


def test_samples_are_as_long_as_the_encoder_hears() -> None:
    said = _facts(seq__max_len=225).samples
    assert (said.length, said.tokens, said.written) == (1500, 3000, 450)
    target = _facts(seq__max_len=2048, seq__target_len=128).samples
    assert (target.length, target.written) == (1500, 256)
    # Nobody says how long the text is: as long as the decoder reads at most.
    assert round(_facts(seq__max_len=None).samples.written) == 896
    assert round(_facts(seq__max_len=2048).samples.written) == 896


def test_convolutions_keep_what_they_are_given() -> None:
    """Two samples: 80 bands in 3,000 columns, twice as many columns of 64 before and behind the first activation, and
    1,500 before the second, in 2 bytes."""
    columns = 2 * 1500
    given = 2 * 80 * columns
    kept = images_of(_facts()).kept
    assert kept == (given + 5 * 64 * columns) * 2
    # An adapter's gradients do not go so far down, unless checkpointing asks for them.
    lora = {"trainable__method": "lora", "trainable__r": 8, "trainable__targets": ("q_proj",)}
    assert images_of(_facts(**lora, checkpointing__mode="none")).kept == 2 * given
    asked = _facts(**lora, checkpointing__mode="full", checkpointing__input_grads=True)
    assert images_of(asked).kept == kept
