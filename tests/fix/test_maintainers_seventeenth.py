"""What a seventeenth reading of diffs in public repositories found; the projects here are written anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fixing import fix_of, repaired
from tests.linked import link, run_of, workspace_of

from oomlint.files.workspace import Workspace
from oomlint.fix.ownership import why_not_ours
from oomlint.fix.story import machine_in_name
from oomlint.hardware import parse_hardware
from oomlint.judgement import card_not_among
from oomlint.plan.fields import f

_COPY = {"kit/LICENSE": "", "kit/setup.py": "", "kit/scripts/train.sh": "", "train.sh": ""}


def test_a_folder_with_a_licence_and_a_package_of_its_own_is_another_projects() -> None:
    workspace = workspace_of({**_COPY, "LICENSE": "", "pyproject.toml": ""})
    assert "whose licence lies in kit" in (why_not_ours(workspace, "kit/scripts/train.sh") or "")
    assert why_not_ours(workspace, "train.sh") is None


@pytest.mark.parametrize("missing", ["kit/LICENSE", "kit/setup.py"])
def test_a_part_of_a_project_is_the_projects(missing: str) -> None:
    files = {name: text for name, text in _COPY.items() if name != missing}
    assert why_not_ours(workspace_of(files), "kit/scripts/train.sh") is None


def test_a_copy_that_is_named_or_a_checkout_is_meant(tmp_path: Path) -> None:
    for name, text in _COPY.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    name = str(tmp_path / "kit/scripts/train.sh")
    assert why_not_ours(Workspace(tmp_path), name)
    assert not why_not_ours(Workspace(tmp_path, named=[tmp_path / "kit"]), name)
    (tmp_path / "kit/.git").mkdir()
    assert not why_not_ours(Workspace(tmp_path), name), "a checkout among others"


_AXOLOTL = """\
base_model: Qwen/Qwen2.5-7B
datasets:
  - path: data/train.json
    type: alpaca
sequence_len: 1024
sample_packing: true
adapter: lora
lora_target_linear: true
micro_batch_size: 64
gradient_accumulation_steps: 4
gradient_checkpointing: true
bf16: true
output_dir: out
"""


@pytest.mark.parametrize(
    ("cards", "missing"),
    [
        ("export CUDA_VISIBLE_DEVICES=4,5,6,7", 4),
        ("export CUDA_VISIBLE_DEVICES=0,1,2,3", None),
        ("export CUDA_VISIBLE_DEVICES=0,1,6,7", 6),
        # Which card one run takes is the matter of a day.
        ("export CUDA_VISIBLE_DEVICES=5", None),
    ],
)
def test_a_run_is_not_fitted_to_a_machine_without_the_cards_that_it_lists(
    cards: str, missing: int | None
) -> None:
    files = {"run.sh": f"{cards}\naxolotl train train.yaml\n", "train.yaml": _AXOLOTL}
    run = next(r for r in link(files, *files, hardware="4xA100-40GB").runs if not r.is_fragment)
    assert card_not_among(run) == missing
    if "," in cards:
        assert bool(repaired(files, hardware="4xA100-40GB").texts) is (missing is None)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("grpo-8b-1n8g-fsdp.yaml", None),
        ("grpo-235b-16n4g.yaml", "16n4g"),
        ("dpo-30b-1n4g-ep4.yaml", "1n4g"),
        ("sft-8b.yaml", None),
        ("run1n4gx.yaml", None),
    ],
)
def test_a_recipe_for_so_many_nodes_and_gpus_is_not_fitted_to_others(
    name: str, word: str | None
) -> None:
    assert machine_in_name(f"recipes/{name}", parse_hardware("8xA100-80GB")) == word


_NAMED_BY_MACHINE = """\
base_model: Qwen/Qwen2.5-0.5B
datasets: [{path: a.json, type: alpaca}]
micro_batch_size: 8
output_dir: out
"""


def test_what_a_name_says_of_its_machine_is_a_reason_to_show() -> None:
    files = {"sft-1n4g.yaml": _NAMED_BY_MACHINE}
    on_eight = run_of(files, *files, hardware="8xA100-80GB")
    assert "is for another machine: 1n4g" in (fix_of(on_eight, {f.batch.micro: 1}).reason or "")
    on_four = run_of(files, *files, hardware="4xA100-80GB")
    assert fix_of(on_four, {f.batch.micro: 1}).edits
