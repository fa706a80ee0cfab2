"""Vision towers: their blocks, and how many patches a picture brings."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from oomlint.memory.parameters import DecoderBlock, DecoderStructure, Linear
from oomlint.memory.traits import Traits
from oomlint.models.pictures import TYPICAL_PIXELS, Cut, cut_of
from oomlint.plan.model import ModelDims


class Tower(Struct, frozen=True, eq=False):
    """A vision encoder and how pictures are cut for it; compared by identity.

    ``inner`` is the width of the projector's hidden layer a patch. ``checkpoints`` is false of a tower whose blocks keep
    all that they compute whatever is asked of the model.
    """

    skeleton: DecoderStructure
    cut: Cut
    inner: float = 0.0
    checkpoints: bool = True

    def patches(self, tokens: float, max_pixels: int | None, max_tiles: int | None = None) -> float:
        """Patches of one picture that may fill ``tokens`` tokens of a sample."""
        cut = self.cut
        if cut.apart:
            return float(cut.tile * cut.tiles)
        if cut.tile:
            tiles = cut.most_tiles(max_pixels, max_tiles)
            held = tokens // max(1.0, cut.tile_tokens)
            if cut.read and held >= cut.read:
                held = tiles
            return cut.tile * max(1.0, min(tiles, held))
        area = cut.largest(max_pixels or TYPICAL_PIXELS)
        return min(area / cut.patch**2, tokens * cut.merge)


# transformers 5.23 models/*/modeling_*.py of the towers.
_QWEN2 = Traits(norm="ln", fused_qkv=True, activation="quick_gelu", all_biases=True,
                wide_rope=True, concatenated_rope=True)  # fmt: skip
_QWEN2_5 = Traits(fused_qkv=True, activation="silu", all_biases=True, wide_rope=True,
                  concatenated_rope=True)  # fmt: skip
_GLM = Traits(fused_qkv=True, activation="silu", wide_rope=True, concatenated_rope=True)
_QWEN3 = Traits(norm="ln", fused_qkv=True, activation="gelu", all_biases=True, wide_rope=True,
                concatenated_rope=True)  # fmt: skip
_CLIP = Traits(norm="ln", activation="quick_gelu", all_biases=True, rotary=0)
_SIGLIP = Traits(norm="ln", activation="gelu", all_biases=True, rotary=0)
_INTERN = Traits(norm="ln", activation="gelu", all_biases=True, rotary=0, layer_scale=True)
_PIXTRAL = Traits(activation="silu")

# Traits, and whether the feed-forward part is gated.
_TOWERS: dict[str, tuple[Traits, bool]] = {
    "qwen2_vl": (_QWEN2, False),
    "qwen2_5_vl": (_QWEN2_5, True),
    "qwen2_5_omni_thinker": (_QWEN2_5, True),
    "qwen3_vl": (_QWEN3, False),
    "qwen3_vl_moe": (_QWEN3, False),
    "qwen3_omni_moe_thinker": (_QWEN3, False),
    "qwen3_5": (_QWEN3, False),
    "qwen3_5_moe": (_QWEN3, False),
    "glm4v": (_GLM, True),
    "glm46v": (_GLM, True),
    "glm4v_moe": (_GLM, True),
    "llava": (_CLIP, False),
    "llava/16": (_PIXTRAL, True),
    "llava_next": (_CLIP, False),
    "llava_onevision": (_SIGLIP, False),
    "gemma3": (_SIGLIP, False),
    "paligemma": (_SIGLIP, False),
    "idefics3": (_SIGLIP, False),
    "smolvlm": (_SIGLIP, False),
    "internvl": (_INTERN, False),
    "mistral3": (_PIXTRAL, True),
    "minicpmv": (_SIGLIP, False),
    "minicpmv2": (_SIGLIP, False),
    "mllama": (_SIGLIP, False),
}

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
    arch: str, cut: Cut, layers: int, hidden: int, heads: int, ffn: int, params: int, inner: float
) -> Tower | None:
    traits, gated = _TOWERS.get(f"{arch}/{cut.patch}") or _TOWERS[arch]
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
    return Tower(skeleton, cut, inner, arch not in _WITHOUT_CHECKPOINTS)


def _inner(dims: ModelDims, cut: Cut, hidden: int) -> float:
    """Qwen's mergers are as wide inside as the patches that they merge, others as the text model; Gemma 3's has no layer
    inside. GLM's keeps of each token four rows of the text model's width and four of its feed-forward part's, where a
    hidden layer keeps three (saved tensors of transformers 5.24's Glm4vVisionPatchMerger)."""
    text = dims.hidden or hidden
    if dims.arch == "gemma3":
        return 0.0
    if (dims.arch or "").startswith("glm"):
        return 4 * (text + (dims.ffn or text)) / (3 * cut.merge)
    return text / cut.merge if cut.side or cut.merge == 1 else hidden


def tower_of(dims: ModelDims) -> Tower | None:
    """The tower of a multimodal model; ``None`` where its kind or a size is unknown."""
    v, cut = dims.vision, cut_of(dims)
    if v is None or cut is None or dims.arch not in _TOWERS:
        return None
    if not (v.layers and v.hidden and v.heads and v.ffn and v.patch and v.params):
        return None
    return _tower(
        dims.arch, cut, v.layers, v.hidden, v.heads, v.ffn, v.params, _inner(dims, cut, v.hidden)
    )
