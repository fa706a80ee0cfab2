"""What the processor of a model makes of a picture: tiles, patches, tokens.

Sizes are those of the processors' published configurations, the laws those of transformers 5.24
(models/*/image_processing_*.py); ``benchmarks/catalogue/pictures.py`` runs the processors beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, inf, sqrt
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from oomlint.plan.model import ModelDims

# Of a picture where nothing limits its pixels: as many as Qwen2-VL's and Qwen2.5-VL's cards propose for an upper limit, 1280
# tokens of 28 x 28 (README, min_pixels and max_pixels). A picture is no larger for a model with larger patches.
TYPICAL_PIXELS: Final = 1280 * 28 * 28
# Width to height of a panorama; of a photo it is less than two.
_WIDEST: Final = 4


class Cut(Struct, frozen=True):
    """How a picture becomes patches of ``patch`` x ``patch`` pixels, of which ``merge`` become one token.

    A processor that takes pictures of any size (``side`` 0) scales one down to ``most`` pixels. Another fits it into
    ``tiles`` tiles of ``side`` x ``side`` pixels at most, of which one shows the picture as a whole (``overview``), each with
    ``classes`` patches that no pixels are cut for. ``by_area``: a small picture gives fewer tiles, one more than
    its area asks for, or a grid that it fits into as it is; else its shape alone decides how many. ``on_demand``:
    it is cut only where a run asks for it. ``read``: of more tiles the text model gets no more tokens than of so many. ``apart``: the text model looks at the patches across, so that they fill no tokens of a sample, and every
    picture is padded to all its tiles. ``frames``: a patch of a video spans so many.
    """

    patch: int
    merge: int
    side: int = 0
    tiles: int = 1
    classes: int = 0
    overview: bool = False
    by_area: Literal["no", "slices", "grid"] = "no"
    apart: bool = False
    most: int = 0
    read: int = 0
    on_demand: bool = False
    frames: int = 1

    @property
    def tile(self) -> int:
        """Patches of a tile, classes included; 0 where a picture is not cut into tiles."""
        return (self.side // self.patch) ** 2 + self.classes if self.side else 0

    @property
    def tile_tokens(self) -> float:
        """Tokens that a tile fills; the text model gets a class only where it looks across."""
        return (self.tile - (0 if self.apart else self.classes)) / self.merge

    @property
    def pixels_a_token(self) -> int:
        """Pixels of a picture of any size that one token stands for."""
        return self.patch**2 * self.merge

    def most_tokens(self, max_pixels: int) -> int:
        """Tokens that one picture of any size scaled to ``max_pixels`` fills at most; 0 where it is cut into tiles, or
        the text model looks across. Each side is rounded to whole tokens, which of a picture four times as wide as high is
        the most to matter, and a token stands before it and one behind it (transformers 5.24
        models/qwen2_vl/image_processing_qwen2_vl.py smart_resize; llamafactory 0.9.3 data/mm_plugin.py Qwen2VLPlugin)."""
        if self.side or self.apart:
            return 0
        area = self.largest(max_pixels) / self.pixels_a_token
        around = 0.5 * (sqrt(_WIDEST) + 1 / sqrt(_WIDEST)) * sqrt(area)
        return ceil(area + around) + 2

    def tokens_beside(self, max_pixels: int | None, max_tiles: int | None) -> int:
        """Tokens that one picture brings at most to a sample whose length does not limit it; none where the text model
        looks across."""
        if self.apart:
            return 0
        if not self.side:
            return self.most_tokens(max_pixels or TYPICAL_PIXELS)
        return ceil(
            min(self.most_tiles(max_pixels, max_tiles), self.read or inf) * self.tile_tokens
        )

    def largest(self, pixels: int) -> int:
        """Pixels that are left of a picture of so many."""
        return min(pixels, self.most or pixels)

    def most_tiles(self, max_pixels: int | None, max_tiles: int | None) -> int:
        """Tiles that one picture of no more than ``max_pixels`` can become, where it may be cut into ``max_tiles``
        beside the overview."""
        if self.on_demand and not max_tiles:
            return 1
        cut = self.tiles - self.overview
        if max_tiles is not None and self.overview:
            cut = min(cut, max_tiles)
        if self.by_area != "no" and max_pixels:
            asked = ceil(max_pixels / self.side**2)
            # A photo that is laid over a grid reaches into one more row or column of it.
            beyond = 1 if self.by_area == "slices" else ceil(sqrt(asked))
            cut = min(cut, asked + beyond) if asked > 1 or self.by_area == "grid" else 1
        return cut + (self.overview and cut > 1)


# min_pixels and max_pixels of Qwen2-VL's and Qwen2.5-VL's preprocessor_config.json: 16,384 tokens of 28 x 28 pixels.
_QWEN2: Final = Cut(14, 4, frames=2, most=16_384 * 28 * 28)
# The same number of tokens, of 32 x 32 pixels (longest_edge 16777216 in Qwen3-VL's).
_QWEN3: Final = Cut(16, 4, frames=2, most=16_384 * 32 * 32)
# Half of Glm4vImageProcessor's own longest_edge, which counts a picture as two frames.
_GLM: Final = Cut(14, 4, frames=2, most=7_500 * 28 * 28)
_CLIP: Final = Cut(14, 1, side=336, classes=1)
_SMOL: Final = Cut(14, 9, side=384, tiles=17, overview=True)
_MINICPM: Final = Cut(14, 16, side=448, tiles=10, overview=True, by_area="slices")

# By model type, and by its patches where another size of the model has others.
_CUTS: Final[Mapping[str, Cut]] = {
    "qwen2_vl": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_omni_thinker": _QWEN2,
    "qwen3_vl": _QWEN3,
    "qwen3_vl_moe": _QWEN3,
    "qwen3_omni_moe_thinker": _QWEN3,
    "qwen3_5": _QWEN3,
    "qwen3_5_moe": _QWEN3,
    "glm4v": _GLM,
    "glm46v": _GLM,
    "glm4v_moe": _GLM,
    # Mistral Small 3.1 and later scale pictures to 1,540 pixels at most, Pixtral to 1,024, each side for itself.
    "mistral3": Cut(14, 4, most=1540**2),
    "llava/16": Cut(16, 1, most=1024**2),
    "llava": _CLIP,
    # Of its grids of 336 x 336 (image_grid_pinpoints) the largest has four.
    "llava_next": Cut(14, 1, side=336, tiles=5, classes=1, overview=True),
    # Grids of up to six by six tiles of 384 x 384. Above nine tiles their features are made fewer before the text
    # model sees them (vision_aspect_ratio anyres_max_9).
    "llava_onevision": Cut(14, 1, side=384, tiles=37, overview=True, by_area="grid", read=10),
    # pan_and_scan cuts a long picture into four crops at most (pan_and_scan_max_num_crops).
    "gemma3": Cut(14, 16, side=896, tiles=5, overview=True, on_demand=True),
    "paligemma": Cut(14, 1, side=224),
    # Every picture is scaled to four tiles along its longer side (longest_edge).
    "idefics3": _SMOL,
    "smolvlm": _SMOL,
    # SmolVLM's smaller sizes see 512 x 512 in patches of 16.
    "smolvlm/16": Cut(16, 16, side=512, tiles=17, overview=True),
    "internvl": Cut(14, 4, side=448, tiles=13, classes=1, overview=True),
    # MiniCPM-V's resampler makes 64 tokens of a slice, 96 in 2.5 (slice_image of the dataset of its own repository).
    "minicpmv": _MINICPM,
    "minicpmv2": _MINICPM,
    # MllamaTextCrossAttention; image_processing_mllama.py pack_images.
    "mllama": Cut(14, 1, side=560, tiles=4, classes=1, apart=True),
}


def cut_of(dims: ModelDims) -> Cut | None:
    """How pictures are cut for a multimodal model; ``None`` of one that sees none or whose processor was not read."""
    vision, arch = dims.vision, dims.arch
    if vision is None or arch is None:
        return None
    found = _CUTS.get(f"{arch}/{vision.patch}") or _CUTS.get(arch)
    if found is None:
        return None
    side = vision.image if found.side else None
    return replace(
        found, patch=vision.patch or found.patch, merge=vision.merge or found.merge,
        side=side or found.side,
    )  # fmt: skip
