"""Vision towers: their blocks, and how many patches a micro batch brings."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from oomlint.memory.parameters import DecoderBlock, DecoderStructure, Linear
from oomlint.memory.traits import Traits
from oomlint.plan.model import ModelDims


class Tower(Struct, frozen=True, eq=False):
    """A vision encoder and what cuts images into patches for it; compared by identity.

    ``merge`` patches become one token of the text model. ``tile`` patches make a tile, of which
    an image has up to ``tiles``; where ``tile`` is 0 an image has as many patches as its pixels
    ask for. ``extra`` patches a tile never reach the text model; ``inner`` is the width of the
    projector's hidden layer a patch. ``apart``: the text model looks at the patches across, so that they
    fill no tokens of a sample, and every image is padded to all its tiles. ``checkpoints`` is false of a tower whose blocks keep all that
    they compute whatever is asked of the model.
    """

    skeleton: DecoderStructure
    patch: int
    merge: int
    tile: int = 0
    tiles: int = 1
    extra: int = 0
    inner: float = 0.0
    apart: bool = False
    checkpoints: bool = True

    def patches(self, tokens: float, max_pixels: int | None) -> float:
        """Patches of one image that may fill ``tokens`` tokens of a sample."""
        if self.apart:
            return float(self.tile * self.tiles)
        if self.tile:
            per_tile = max(1.0, (self.tile - self.extra) / self.merge)
            return self.tile * max(1.0, min(self.tiles, tokens // per_tile))
        area = (max_pixels or TYPICAL_PIXELS) / self.patch**2
        return min(area, tokens * self.merge)


# Where nothing limits the pixels, as many as Qwen's model cards propose as an upper limit: 1280
# tokens of 28 x 28 pixels (README of Qwen2-VL and Qwen2.5-VL, min_pixels and max_pixels).
TYPICAL_PIXELS = 1280 * 28 * 28

# transformers 5.23 models/*/modeling_*.py of the towers.
_QWEN2 = Traits(norm="ln", fused_qkv=True, activation="quick_gelu", all_biases=True,
                wide_rope=True, concatenated_rope=True)  # fmt: skip
_QWEN2_5 = Traits(fused_qkv=True, activation="silu", all_biases=True, wide_rope=True,
                  concatenated_rope=True)  # fmt: skip
_QWEN3 = Traits(norm="ln", fused_qkv=True, activation="gelu", all_biases=True, wide_rope=True,
                concatenated_rope=True)  # fmt: skip
_CLIP = Traits(norm="ln", activation="quick_gelu", all_biases=True, rotary=0)
_SIGLIP = Traits(norm="ln", activation="gelu", all_biases=True, rotary=0)
_INTERN = Traits(norm="ln", activation="gelu", all_biases=True, rotary=0, layer_scale=True)
_PIXTRAL = Traits(activation="silu")

# Traits, whether the feed-forward part is gated, patches merged, patches of a tile, tiles at most
# and patches that are no tokens. LLaVA-1.5 sees 336 x 336 pixels, LLaVA-NeXT up to five such
# tiles, Gemma 3 896 x 896 pooled to 256 tokens, SmolVLM up to 17 of 384 x 384 pooled to 81, InternVL up to 12 tiles and a thumbnail of 448 x
# 448 (the models' processor configurations), Llama 3.2 Vision up to four tiles of 560 x 560,
# MiniCPM-V up to nine slices and the whole image of 448 x 448, which its resampler makes 64 tokens
# each, 96 in 2.5 (slice_image of the dataset of its own repository).
_TOWERS: dict[str, tuple[Traits, bool, int, int, int, int]] = {
    "qwen2_vl": (_QWEN2, False, 4, 0, 1, 0),
    "qwen2_5_vl": (_QWEN2_5, True, 4, 0, 1, 0),
    "qwen2_5_omni_thinker": (_QWEN2_5, True, 4, 0, 1, 0),
    "qwen3_vl": (_QWEN3, False, 4, 0, 1, 0),
    "qwen3_vl_moe": (_QWEN3, False, 4, 0, 1, 0),
    "qwen3_5": (_QWEN3, False, 4, 0, 1, 0),
    "qwen3_5_moe": (_QWEN3, False, 4, 0, 1, 0),
    "glm4v": (_QWEN2_5, True, 4, 0, 1, 0),
    "glm46v": (_QWEN2_5, True, 4, 0, 1, 0),
    "llava": (_CLIP, False, 1, 577, 1, 1),
    "llava_next": (_CLIP, False, 1, 577, 5, 1),
    "gemma3": (_SIGLIP, False, 16, 4096, 1, 0),
    "paligemma": (_SIGLIP, False, 1, 256, 1, 0),
    "idefics3": (_SIGLIP, False, 9, 729, 17, 0),
    "smolvlm": (_SIGLIP, False, 9, 729, 17, 0),
    # Its smaller sizes see 512 x 512 in patches of 16.
    "smolvlm/16": (_SIGLIP, False, 16, 1024, 17, 0),
    "internvl": (_INTERN, False, 4, 1025, 13, 1),
    "mistral3": (_PIXTRAL, True, 4, 0, 1, 0),
    "minicpmv": (_SIGLIP, False, 16, 1024, 10, 0),
    "minicpmv2": (_SIGLIP, False, 16, 1024, 10, 0),
    "mllama": (_SIGLIP, False, 1, 1601, 4, 0),
}

# transformers 5.23 models/mllama: MllamaTextCrossAttention; image_processing_mllama.py pack_images.
_ACROSS = frozenset({"mllama"})
# MiniCPM-V 2.0 has timm's ViT, which transformers' switch does not reach (timm 0.9.10
# models/vision_transformer.py: it has a set_grad_checkpointing of its own); MllamaVisionEncoderLayer is no
# GradientCheckpointingLayer (transformers 4.57.1 to 5.24 models/mllama/modeling_mllama.py).
_WITHOUT_CHECKPOINTS = frozenset({"minicpmv2", "mllama"})

# What transformers 5.23 calls the tower inside the model: models/*/modeling_*.py; MiniCPM-V's own code says vpm.
_NAMES = {
    "mllama": "vision_model", "idefics3": "vision_model", "smolvlm": "vision_model",
    "minicpmv": "vpm", "minicpmv2": "vpm",
}  # fmt: skip
_VISUAL = ("qwen", "glm")


def tower_name(arch: str) -> str:
    """The name of the module that the tower is."""
    if arch.startswith(_VISUAL):
        return "visual"
    return _NAMES.get(arch, "vision_tower")


@lru_cache(maxsize=512)
def _tower(
    arch: str, layers: int, hidden: int, heads: int, ffn: int, patch: int, params: int, text: int
) -> Tower | None:
    kind = _TOWERS.get(f"{arch}/{patch}") or _TOWERS[arch]
    traits, gated, merge, tile, tiles, extra = kind
    bias = traits.all_biases
    attention = (
        [Linear("qkv", hidden, 3 * hidden, bias)]
        if traits.fused_qkv
        else [Linear(role, hidden, hidden, bias) for role in ("q", "k", "v")]
    )
    feed = [Linear("up", hidden, ffn, bias), Linear("down", ffn, hidden, bias)]
    if gated:
        feed.insert(0, Linear("gate", hidden, ffn, bias))
    norm = hidden * (2 if traits.norm == "ln" else 1)
    block = DecoderBlock(
        layers, (*attention, Linear("o", hidden, hidden, bias), *feed), 2 * norm,
        other_numel=2 * hidden if traits.layer_scale else 0,
    )  # fmt: skip
    rest = params - layers * block.numel
    if rest < 0 or heads > hidden:  # no such tower can be
        return None
    skeleton = DecoderStructure(
        arch=f"{arch}_tower", traits=traits, layers=layers, hidden=hidden, heads=heads,
        kv_heads=heads, head_dim=hidden // heads, value_dim=hidden // heads, ffn=ffn, vocab=0,
        tied=False, activation=traits.activation or "gelu", qk_norm=False, mla=None,
        blocks=(block,), embed_numel=0, position_numel=0, final_norm_numel=0, head_numel=0,
        vision_numel=0, other_numel=rest,
    )  # fmt: skip
    # Qwen's mergers are as wide inside as the patches that they merge, others as the text model.
    inner = hidden if not tile else text / merge
    return Tower(
        skeleton, patch, merge, tile, tiles, extra, 0.0 if arch == "gemma3" else inner,
        arch in _ACROSS, arch not in _WITHOUT_CHECKPOINTS,
    )  # fmt: skip


def tower_of(dims: ModelDims) -> Tower | None:
    """The tower of a multimodal model; ``None`` where its kind or a size is unknown."""
    v = dims.vision
    if v is None or dims.arch not in _TOWERS:
        return None
    if not (v.layers and v.hidden and v.heads and v.ffn and v.patch and v.params):
        return None
    return _tower(
        dims.arch, v.layers, v.hidden, v.heads, v.ffn, v.patch, v.params, dims.hidden or v.hidden
    )
