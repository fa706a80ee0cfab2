"""What transformers' processors make of pictures, beside what is read of them in ``oomlint.models.pictures``.

    pip install torch torchvision transformers pillow
    python -m benchmarks.catalogue.pictures > tests/models/data/pictures.jsonl

Runs each image processor, with the sizes that its models' ``preprocessor_config.json`` gives it, on blank pictures, and
writes how many patches the tower gets of each and how many tokens the text model.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from typing import Any

# Width and height in pixels: an icon, a small square, photos of both ways round, a page at 200 dots an inch, a banner, a
# receipt, a screen, a photo of 48 megapixels.
SIZES = (
    (64, 64), (336, 336), (640, 480), (768, 768), (1024, 768), (768, 1024), (1653, 2339), (2000, 400), (300, 1500),
    (1920, 1080), (8064, 6048),
)  # fmt: skip


def _native(classname: str, **sizes: Any) -> Callable[[Any], tuple[int, int]]:
    import transformers

    processor = getattr(transformers, classname)(**sizes)

    def made(picture: Any) -> tuple[int, int]:
        grid = processor(images=[picture], return_tensors="pt")["image_grid_thw"][0]
        patches = int(grid.prod())
        return patches, patches // processor.merge_size**2

    return made


def _pixtral(edge: int, patch: int, merge: int) -> Callable[[Any], tuple[int, int]]:
    from transformers import PixtralImageProcessor

    size = patch * merge
    processor = PixtralImageProcessor(
        size={"longest_edge": edge}, patch_size={"height": size, "width": size}
    )

    def made(picture: Any) -> tuple[int, int]:
        height, width = processor(images=[picture], return_tensors="pt")["image_sizes"][0]
        patches = int(height) // patch * (int(width) // patch)
        return patches, patches // merge**2

    return made


def _tiled(
    classname: str, patches: int, tokens: int, asked: Mapping[str, Any] | None = None, **sizes: Any
) -> Callable[[Any], tuple[int, int]]:
    """``patches`` and ``tokens`` are those of a tile."""
    import transformers

    processor = getattr(transformers, classname)(**sizes)

    def made(picture: Any) -> tuple[int, int]:
        pixels = processor(images=[picture], return_tensors="pt", **(asked or {}))["pixel_values"]
        tiles = 1
        for axis in pixels.shape[:-3]:
            tiles *= axis
        return tiles * patches, tiles * tokens

    return made


def processors() -> dict[str, Callable[[Any], tuple[int, int]]]:
    """A processor for each kind of model, by its model type, and its patches where sizes differ in them."""
    qwen2 = {"patch_size": 14, "size": {"shortest_edge": 56 * 56, "longest_edge": 12_845_056}}
    qwen3 = {"patch_size": 16, "size": {"shortest_edge": 65_536, "longest_edge": 16_777_216}}
    split = {"do_image_splitting": True, "return_row_col_info": False}
    # image_grid_pinpoints of LLaVA-NeXT's and LLaVA-OneVision's configurations.
    next_grids = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
    grids = [[384 * x, 384 * y] for x in range(1, 7) for y in range(1, 7)]
    return {
        "qwen2_vl": _native("Qwen2VLImageProcessor", **qwen2),
        "qwen3_vl": _native("Qwen2VLImageProcessor", **qwen3),
        "glm4v": _native("Glm4vImageProcessor"),
        "mistral3": _pixtral(1540, 14, 2),
        "llava/16": _pixtral(1024, 16, 1),
        "llava": _tiled("CLIPImageProcessor", 577, 576, size={"shortest_edge": 336}, crop_size=336),
        "llava_next": _tiled(
            "LlavaNextImageProcessor", 577, 576, image_grid_pinpoints=next_grids,
            size={"shortest_edge": 336}, crop_size=336,
        ),
        "llava_onevision": _tiled(
            "LlavaOnevisionImageProcessor", 729, 729, image_grid_pinpoints=grids,
            size={"height": 384, "width": 384},
        ),
        "gemma3": _tiled("Gemma3ImageProcessor", 4096, 256, size={"height": 896, "width": 896}),
        "paligemma": _tiled("SiglipImageProcessor", 256, 256, size={"height": 224, "width": 224}),
        "idefics3": _tiled(
            "Idefics3ImageProcessor", 729, 81, split,
            size={"longest_edge": 4 * 384}, max_image_size={"longest_edge": 384},
        ),
        "smolvlm/16": _tiled(
            "SmolVLMImageProcessor", 1024, 64, split,
            size={"longest_edge": 4 * 512}, max_image_size={"longest_edge": 512},
        ),
        "internvl": _tiled(
            "GotOcr2ImageProcessor", 1025, 256, {"crop_to_patches": True},
            size={"height": 448, "width": 448}, max_patches=12,
        ),
        "mllama": _tiled("MllamaImageProcessor", 1601, 1601, size={"height": 560, "width": 560}),
    }  # fmt: skip


def main() -> None:
    from PIL import Image

    warnings.simplefilter("ignore")
    for kind, made in processors().items():
        for width, height in SIZES:
            patches, tokens = made(Image.new("RGB", (width, height)))
            row = {
                "kind": kind,
                "width": width,
                "height": height,
                "patches": patches,
                "tokens": tokens,
            }
            print(json.dumps(row, separators=(",", ":")))


if __name__ == "__main__":
    main()
