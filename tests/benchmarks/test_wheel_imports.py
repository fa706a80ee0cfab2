"""What libraries import of one another, read from wheels."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest
from benchmarks.wheel_imports import main

_MODEL = """\
from typing import TYPE_CHECKING
from transformers import {names}
from transformers.helpers import mentioned
from .inner import tool

if TYPE_CHECKING:
    from transformers import ForTypes
if is_accelerate_available():
    from accelerate.utils import clear
try:
    from transformers import Tried
except ImportError:
    Tried = None

def late():
    from transformers import Late
"""


def _wheel(folder: Path, library: str, release: str, files: dict[str, str]) -> None:
    (folder / library).mkdir(exist_ok=True)
    with ZipFile(folder / library / f"{library}-{release}-py3-none-any.whl", "w") as wheel:
        texts = {f"{library}-{release}.dist-info/METADATA": "Name: x\n", **files}
        for path, text in texts.items():
            wheel.writestr(path, text)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    for release, names in (("4.1.0", "Old"), ("4.2.0", "Old, Cache"), ("5.0.0", "Cache, Newest")):
        texts = {
            "transformers/__init__.py": f"names = [{', '.join(repr(n) for n in names.split(', '))}]\n",
            "transformers/helpers.py": "# mentioned\n",
        }
        _wheel(tmp_path, "transformers", release, texts)
    for release, name in (("0.1.0", "other"), ("0.2.0", "clear")):
        texts = {"accelerate/__init__.py": "", "accelerate/utils.py": f"def {name}(): pass\n"}
        _wheel(tmp_path, "accelerate", release, texts)
    _wheel(tmp_path, "trl", "0.1.0", {"trl/__init__.py": ""})
    for release, names, needs in (
        ("0.1.0", "Old", ""),
        ("0.2.0", "Cache, Old", ""),
        ("0.3.0", "Newest, Cache", "Requires-Dist: transformers>=5.0.0\n"),
    ):
        texts = {
            "peft/__init__.py": "from .model import Model\n",
            "peft/model.py": _MODEL.format(names=names),
            "peft/inner.py": "tool = 1\n",
            f"peft-{release}.dist-info/METADATA": needs,
        }
        _wheel(tmp_path, "peft", release, texts)
    return tmp_path


def test_what_is_sure_to_be_imported_and_not_always_there(
    wheels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main("peft", str(wheels))
    assert capsys.readouterr().out.splitlines() == [
        "* accelerate.utils.clear - - 0.1.0 0.2.0 -",
        "* transformers.Cache 0.2.0 0.3.0 4.1.0 4.2.0 -",
        "* transformers.Old - 0.3.0 - - 5.0.0",
    ]
