"""How pictures are cut, beside what transformers' own processors make of them (benchmarks/catalogue/pictures.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oomlint.memory.vision import tower_of
from oomlint.models import catalogue
from oomlint.models.pictures import Cut, cut_of
from oomlint.plan.model import ModelDims, VisionTower

ROWS = [
    json.loads(line)
    for line in Path(__file__, "../data/pictures.jsonl").resolve().read_text("utf-8").splitlines()
]
KINDS = sorted({row["kind"] for row in ROWS})


def _cut(kind: str, **vision: Any) -> Cut:
    arch, _, patch = kind.partition("/")
    found = cut_of(ModelDims(arch=arch, vision=VisionTower(**{"patch": int(patch or 0), **vision})))
    assert found is not None
    return found


def _rows(kind: str) -> list[dict[str, Any]]:
    return [row for row in ROWS if row["kind"] == kind]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not _cut(kind).side])
def test_a_picture_of_any_size_has_as_many_patches_as_its_pixels(kind: str) -> None:
    cut = _cut(kind)
    for row in _rows(kind):
        assert row["patches"] == row["tokens"] * cut.merge
        share = row["patches"] * cut.patch**2 / min(row["width"] * row["height"], cut.most)
        if min(row["width"], row["height"]) >= 336:
            # Sides are rounded to whole tokens.
            assert share < 1.1, row
            # Mistral's processor fits the longer side, so that less is left of a screen's shape or a banner's.
            assert share > (0.8 if cut.frames > 1 else 0.25), row
    largest = max(row["patches"] for row in _rows(kind))
    assert 0.7 < largest * cut.patch**2 / cut.most <= 1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if _cut(kind).side])
def test_a_picture_has_no_more_tiles_than_are_read_for_its_pixels(kind: str) -> None:
    cut = _cut(kind)
    for row in _rows(kind):
        tiles, rest = divmod(row["patches"], cut.tile)
        assert rest == 0, row
        assert row["tokens"] == tiles * cut.tile_tokens
        # A banner is no photo.
        if max(row["width"], row["height"]) < 4 * min(row["width"], row["height"]):
            assert tiles <= cut.most_tiles(row["width"] * row["height"], None), row
    most = max(row["patches"] for row in _rows(kind)) / cut.tile
    # No picture here has the shape of LLaVA-OneVision's largest grid.
    assert most == (31 if kind == "llava_onevision" else cut.most_tiles(None, None))


def test_small_pictures_are_cut_into_few_tiles_where_the_area_counts() -> None:
    """MiniCPM-V cuts 768 x 768 pixels, 2.9 slices of 448 x 448, into four at most, beside the whole."""
    cut = _cut("minicpmv")
    assert [cut.most_tiles(pixels, None) for pixels in (448**2, 768**2, 10**7)] == [1, 5, 10]
    assert cut.most_tiles(None, None) == 10
    grid = _cut("llava_onevision")
    assert [grid.most_tiles(pixels, None) for pixels in (384**2, 768**2, None)] == [3, 7, 37]


def test_a_run_may_allow_fewer_tiles() -> None:
    cut = _cut("internvl")
    assert [cut.most_tiles(None, most) for most in (1, 2, 6, 12, 40)] == [1, 3, 7, 13, 13]
    # Gemma 3 sees a picture once, unless it is told to pan over it.
    assert [_cut("gemma3").most_tiles(None, most) for most in (None, 4)] == [1, 5]


def test_sizes_that_a_model_states_count() -> None:
    assert _cut("paligemma", image=448).tile_tokens == 1024
    # Idefics3-8B: 364 x 364 pixels, four patches a token.
    assert _cut("idefics3", image=364, merge=4).tile_tokens == 169
    # A picture of any size is not bound to the one that positions were made for.
    assert _cut("mistral3", image=1540).tile == 0


def test_an_unread_processor_is_unknown() -> None:
    assert cut_of(ModelDims(arch="kimi_vl", vision=VisionTower(patch=14))) is None
    assert cut_of(ModelDims(arch="qwen2_vl")) is None
    assert cut_of(ModelDims(vision=VisionTower(patch=14))) is None


def test_every_tower_of_the_catalogue_whose_processor_was_read_is_built() -> None:
    """A model whose tower lacks one size would hold nothing for its pictures, and nobody would be told."""
    lacking = []
    for line in range(catalogue.size()):
        dims = catalogue.facts(catalogue.CatalogueMatch(line, None)).dims
        if dims.vision is None or cut_of(dims) is None or dims.vision.layers is None:
            continue
        if tower_of(dims) is None:
            lacking.append(catalogue.ids_of(line)[0])
    assert lacking == []
