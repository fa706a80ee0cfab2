"""Modules of a package in which no dialect recognises anything are not parsed, unless somebody takes something from them."""

from __future__ import annotations

import pytest
from tests.linked import workspace_of

from oomlint.dialects import registry
from oomlint.dialects.base import Claim, Dialect, DialectEntry, Registry
from oomlint.documents.base import Document
from oomlint.runs.linked import Linked, LinkOptions
from oomlint.runs.linking import Linker

_MODEL = """\
from transformers import AutoModel

def build(name, output_dir="out"):  # any launcher of python may call it
    return AutoModel.from_pretrained(name)
"""
_TRAINING = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
args = TrainingArguments(output_dir="out", per_device_train_batch_size=4)
Trainer(model, args).train()
"""


def _link(
    files: dict[str, str], *explicit: str, dialects: Registry | None = None
) -> tuple[Linked, frozenset[str]]:
    """What the files make, and which of them were parsed."""
    workspace = workspace_of(files)
    linker = Linker(workspace, dialects or registry(), LinkOptions())
    linked = linker.link(tuple(files), explicit=frozenset(explicit))
    return linked, workspace.parsed


def test_a_module_that_trains_nothing_is_not_parsed() -> None:
    linked, parsed = _link({"pkg/__init__.py": "", "pkg/model.py": _MODEL})
    assert not linked.runs
    assert not parsed


@pytest.mark.parametrize(
    ("files", "explicit"),
    [
        ({"model.py": _MODEL}, ()),
        ({"pkg/__init__.py": "", "pkg/model.py": f'{_MODEL}\nif __name__ == "__main__":\n    build("a")\n'}, ()),
        ({"pkg/__init__.py": "", "pkg/model.py": _MODEL}, ("pkg/model.py",)),
    ],
    ids=["a script", "a module that is started", "one that the user named"],
)  # fmt: skip
def test_what_may_be_started_is_parsed(files: dict[str, str], explicit: tuple[str, ...]) -> None:
    _, parsed = _link(files, *explicit)
    assert parsed >= {name for name in files if name.endswith("model.py")}


def test_a_module_that_trains_is_a_run() -> None:
    linked, _ = _link({"pkg/__init__.py": "", "pkg/train.py": _TRAINING})
    assert [run.anchor.path for run in linked.runs] == ["pkg/train.py"]


def test_a_module_that_starts_anothers_training_is_asked() -> None:
    lines = (
        "from .loop import train",
        "from .loop import setup, train",
        "from .loop import (\n    train,\n    setup,\n)",
    )
    for line in lines:
        starter = f"{line}\nfrom transformers import AutoModel\nAutoModel.from_pretrained('a')\ntrain()  # python\n"
        files = {"pkg/__init__.py": "", "pkg/go.py": starter, "pkg/loop.py": _TRAINING}
        assert "pkg/go.py" in _link(files)[1], line


def test_what_a_script_takes_from_such_a_module_is_read() -> None:
    files = {
        "pkg/__init__.py": "",
        "pkg/sizes.py": f"{_MODEL}\nSIZE = 6\n",
        "train.py": f"from pkg.sizes import SIZE\n{_TRAINING.replace('=4', '=SIZE')}",
    }
    (run,) = _link(files)[0].runs
    assert run.plan.batch.micro == 6


def test_a_script_that_python_cannot_read_is_an_error_in_a_package_too() -> None:
    broken = f"{_TRAINING}\nprint 'done'\n"
    linked, _ = _link({"pkg/__init__.py": "", "pkg/train.py": broken})
    assert [error.path for error in linked.errors] == ["pkg/train.py"]


def test_a_dialect_of_a_plug_in_is_asked_of_every_module() -> None:
    class Own(Dialect):
        name = "own"
        markers = (b"output_dir",)
        suffixes = (".py",)

        def recognise(self, document: Document) -> tuple[Claim, ...]:
            return ()

    dialects = Registry((*registry().entries, DialectEntry.of(Own())))
    _, parsed = _link({"pkg/__init__.py": "", "pkg/model.py": _MODEL}, dialects=dialects)
    assert parsed == {"pkg/model.py"}
