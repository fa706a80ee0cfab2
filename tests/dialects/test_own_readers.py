"""Configs that a program of the project loads by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomlint.dialects import registry
from oomlint.linking import Linker, LinkOptions
from oomlint.workspace import Workspace

_RECIPE = (
    "model_name_or_path: meta-llama/Llama-2-7b-hf\ndataset_name: a/b\nlearning_rate: 1.0e-5\n"
    "trained_model_path: out\n"
)
_LOADS = "import yaml\nconfig = yaml.safe_load(open(path))\n"


@pytest.mark.parametrize(
    ("program", "strays"),
    [
        (_LOADS + "load(config['trained_model_path'])\n", 0),
        (_LOADS + "load(Box(config).trained_model_path)\n", 0),
        (_LOADS + "load(config['other'])\n", 1),
        ("load(config['trained_model_path'])\n", 1),
    ],
)
def test_a_key_that_a_program_asks_for_is_no_slip(
    program: str, strays: int, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "recipe.yaml").write_text(_RECIPE)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "score.py").write_text(program)
    linker = Linker(Workspace(tmp_path), registry(), LinkOptions())
    (run,) = linker.link(["recipe.yaml"]).runs
    assert len(run.stray) == strays
