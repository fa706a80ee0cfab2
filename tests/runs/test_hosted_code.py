"""Notebooks, Makefiles and Dockerfiles from end to end: found, linted, silenced, mended, shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.fixing import repaired
from tests.linked import report_of

from oomlint.documents import kind_of, languages_of
from oomlint.errors import ReadError
from oomlint.files.disk import MAX_FILE_BYTES, walk
from oomlint.files.workspace import Workspace
from oomlint.linting.engine import Options, lint
from oomlint.report.concise import render

_CODE = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
args = TrainingArguments(
    output_dir="out",
    evaluation_strategy="steps",
)
trainer = Trainer(model=model, args=args, train_dataset=a, eval_dataset=b)
"""
_LINE = "torchrun --nproc_per_node 4 fastchat/train/train_mem.py --model_name_or_path m --evaluation_strategy steps"


def _notebook(code: str) -> str:
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Train"]},
        {
            "cell_type": "code", "execution_count": 3, "metadata": {}, "outputs": [],
            "source": code.splitlines(keepends=True),
        },
    ]  # fmt: skip
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


# Where the old name is refused: that of a remark is left to its owner.
_PINNED = {"requirements.txt": b"transformers==4.57.0\n"}


def _lint(name: str, text: str) -> tuple[list[str], str]:
    report = report_of({name: text, **_PINNED}, name, explicit=[name])
    assert not report.errors
    return [d.rule.name for d in report.diagnoses], render(report)


def _mended(name: str, text: str) -> str:
    result = repaired({name: text, **_PINNED}, name)
    assert not result.report.errors
    return result.texts[name].decode()


_FILES = {
    "train.ipynb": _notebook(_CODE),
    "shell.ipynb": _notebook(f"!{_LINE}\n"),
    "Makefile": f"train:\n\t@{_LINE} \\\n\t\t--bf16 True\n",
    "Dockerfile.gpu": f"FROM x\nCMD {_LINE}\n",
    "exec.dockerfile": f"FROM x\nCMD {json.dumps(_LINE.split())}\n",
}


@pytest.mark.parametrize("name", sorted(_FILES))
def test_a_fix_changes_nothing_else(name: str) -> None:
    text = _FILES[name]
    names, _ = _lint(name, text)
    assert "renamed-key" in names
    assert _mended(name, text) == text.replace("evaluation_strategy", "eval_strategy")


def test_a_finding_in_a_notebook_names_its_cell() -> None:
    _, shown = _lint("train.ipynb", _FILES["train.ipynb"])
    line = next(line for line in shown.splitlines() if "renamed-key" in line)
    assert line.endswith("(cell 2, line 5)")
    assert line.startswith("train.ipynb:20:")


@pytest.mark.parametrize("name", sorted(set(_FILES) - {"exec.dockerfile"}))
def test_comments_silence_findings(name: str) -> None:
    text = _FILES[name]
    silenced = {
        "train.ipynb": _notebook(
            _CODE.replace("    eval", "    # oomlint: ignore[renamed-key] old\n    eval")
        ),
        "shell.ipynb": _notebook(f"# oomlint: ignore-file\n!{_LINE}\n"),
        "Makefile": f"# oomlint: ignore-file\n{text}",
        "Dockerfile.gpu": text.replace("CMD", "# oomlint: ignore[renamed-key] pinned\nCMD"),
    }[name]
    names, _ = _lint(name, silenced)
    assert "renamed-key" not in names
    assert "unused-suppression" not in names


def test_a_comment_that_silences_nothing_leaves_a_valid_notebook() -> None:
    text = _notebook(_CODE.replace("evaluation_", "eval_") + "# oomlint: ignore[renamed-key]")
    names, _ = _lint("train.ipynb", text)
    assert "unused-suppression" in names
    mended = json.loads(_mended("train.ipynb", text))
    assert mended["cells"][1]["source"][-1] == ""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("a/Makefile", ".mk"), ("GNUmakefile", ".mk"), ("rules.mk", ".mk"), ("Makefile.train", ".mk"),
        ("makefile.py", ".py"), ("Dockerfile", ".dockerfile"), ("x/Dockerfile.gpu", ".dockerfile"),
        ("gpu.Dockerfile", ".dockerfile"), ("Containerfile", ".dockerfile"), ("a.IPYNB", ".ipynb"),
        ("dockerfile.yaml", ".yaml"), ("README", ""), ("a.b/c", ""), (".mk", ".mk"), ("", ""),
    ],
)  # fmt: skip
def test_names_tell_what_a_file_holds(path: str, kind: str) -> None:
    assert kind_of(path) == kind
    assert (".sh" in languages_of(path)) == (kind in (".ipynb", ".mk", ".dockerfile"))


def test_they_are_found_in_folders(tmp_path: Path) -> None:
    for name in ("Makefile", "Dockerfile", "nb.ipynb", "notes.txt"):
        (tmp_path / name).write_text("")
    found = [path.name for path in walk(tmp_path, (".mk", ".dockerfile", ".ipynb"))]
    assert found == ["Dockerfile", "Makefile", "nb.ipynb"]


def test_notebooks_may_be_long(tmp_path: Path) -> None:
    notebook = json.loads(_FILES["train.ipynb"])
    picture = {"output_type": "display_data", "data": {"image/png": "A" * MAX_FILE_BYTES}}
    notebook["cells"][1]["outputs"] = [picture]
    (tmp_path / "long.ipynb").write_text(json.dumps(notebook))
    (tmp_path / "long.yaml").write_text("#" * (MAX_FILE_BYTES + 1))
    workspace = Workspace(tmp_path)
    report = lint(workspace, ["long.ipynb"], Options())
    assert [run.plan.model.id for run in report.runs] == ["meta-llama/Llama-2-7b-hf"]
    with pytest.raises(ReadError):
        workspace.read("long.yaml")


@pytest.mark.parametrize("text", ["{", "torchrun train.py", '{"cells": [}'])
def test_a_broken_notebook_is_reported_only_where_it_is_named(text: str) -> None:
    workspace = Workspace(Path("/x"), {"a.ipynb": text.encode()})
    assert not lint(workspace, ["a.ipynb"], Options()).errors
    report = lint(workspace, ["a.ipynb"], Options(), explicit=frozenset({"a.ipynb"}))
    assert [error.kind for error in report.errors] == ["parse"]
