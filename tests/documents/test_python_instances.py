"""Values that a script takes from objects and modules of its project."""

from __future__ import annotations

import pytest

from oomlint.documents.base import UNKNOWN, Name, Scalar
from oomlint.documents.python.document import PythonScript, parse_python
from oomlint.documents.python.nodes import PythonScalar
from oomlint.documents.text import Source

_CALL = "from transformers import TrainingArguments\nt = TrainingArguments(output_dir='o', x={})\n"


def _document(files: dict[str, str]) -> PythonScript:
    sources = {path: Source(path, text) for path, text in files.items()}
    document = parse_python(sources["src/train.py"], sources.get)
    assert document is not None
    return document


def _value(expression: str, script: str = "", **modules: str) -> Scalar:
    files = {f"src/{name}.py": text for name, text in modules.items()}
    document = _document({"src/train.py": script + _CALL.format(expression), **files})
    node = next(c for c in document.calls if c.callee == "TrainingArguments").arguments
    value = node.entries["x"].value
    assert isinstance(value, Scalar)
    return value


_PLAIN = "class Config:\n    batch = 4\n    size: int = 8\n    needed: int\n"
_DATA = "from dataclasses import dataclass, field\n@dataclass\nclass Config:\n    batch: int = field(default=4)\n    parts: list = field(default_factory=list)\n"
_SETTINGS = "from pydantic_settings import BaseSettings\nclass Settings(BaseSettings):\n    batch: int = 4\n    needed: int\nsettings = Settings()\n"
_INIT = "class Config:\n    def __init__(self, batch=4, size=2):\n        self.batch = batch\n        self.size = 16\n"


@pytest.mark.parametrize(
    ("script", "expression", "value"),
    [
        (_PLAIN, "Config.batch", 4),
        (_PLAIN + "c = Config()\n", "c.size", 8),
        (_PLAIN + "c = Config()\n", "c.needed", UNKNOWN),
        (_PLAIN + "c = Config()\nc.batch = 2\n", "c.batch", 2),
        (_PLAIN + "c = Config()\nif more:\n    c.batch = 2\n", "c.batch", UNKNOWN),
        (_PLAIN + "c = Config()\nc.batch = 2\nc.batch *= 2\n", "c.batch", UNKNOWN),
        (_PLAIN + "c = Config()\ndef more(k):\n    k.batch *= 2\nmore(c)\n", "c.batch", UNKNOWN),
        (_PLAIN + "c = Config()\ndef more(k):\n    k.batch = 2\nmore(c)\n", "c.batch", 2),
        (_PLAIN + "c = Config()\nsetattr(c, key, 2)\n", "c.batch", UNKNOWN),
        (_PLAIN + "class More(Config):\n    size = 1\nc = More()\n", "c.batch", 4),
        (_PLAIN + "class More(Config):\n    size = 1\nc = More()\n", "c.size", 1),
        ("from lib import Base\nclass More(Base):\n    pass\nc = More()\n", "c.batch", UNKNOWN),
        (_DATA + "c = Config()\n", "c.batch", 4),
        (_DATA + "c = Config(batch=2)\n", "c.batch", 2),
        (_DATA + "c = Config(**found)\n", "c.batch", UNKNOWN),
        (_DATA + "c = Config(2)\n", "c.batch", UNKNOWN),
        (_INIT + "c = Config()\n", "c.batch", 4),
        (_INIT + "c = Config(batch=2)\n", "c.batch", 2),
        (_INIT + "c = Config()\n", "c.size", 16),
        (_INIT + "    def set(self):\n        self.size = 1\nc = Config()\n", "c.size", UNKNOWN),
        (_PLAIN + "class All:\n    train = Config()\nc = All()\n", "c.train.batch", 4),
        (
            "from pydantic import BaseModel, Field\nclass M(BaseModel):\n    batch: int = Field(4, gt=0)\n    size: int = Field(..., gt=0)\nm = M()\n",
            "m.batch",
            4,
        ),
        (
            "from pydantic import BaseModel, Field\nclass M(BaseModel):\n    size: int = Field(..., gt=0)\nm = M()\n",
            "m.size",
            UNKNOWN,
        ),
    ],
)
def test_attributes_of_objects(script: str, expression: str, value: object) -> None:
    assert _value(expression, script).value == value


@pytest.mark.parametrize(
    ("script", "expression", "value"),
    [
        ("from config import BATCH\n", "BATCH", 4),
        ("from .config import BATCH\n", "BATCH", 4),
        ("from . import config\n", "config.BATCH", 4),
        ("import config\n", "config.BATCH", 4),
        ("import config as c\n", "c.BATCH", 4),
        ("import config\nconfig.BATCH = 1\n", "config.BATCH", UNKNOWN),
        ("from config import TWICE\n", "TWICE", 8),
        ("from config import COMPUTED\n", "COMPUTED", UNKNOWN),
        ("from config import c\n", "c.size", 8),
        ("from config import Config\nc = Config(size=2)\n", "c.size", 2),
        ("from config import FIRST\n", "FIRST['batch']", UNKNOWN),
        ("from lib import BATCH\n", "BATCH", Name("lib.BATCH")),
        ("import torch\n", "torch.bfloat16", Name("torch.bfloat16")),
    ],
)
def test_values_of_other_modules(script: str, expression: str, value: object) -> None:
    config = f"BATCH = 4\nTWICE = 2 * BATCH\nCOMPUTED = load()\n{_PLAIN}c = Config()\n"
    found = _value(expression, script, config=config)
    assert found.value == value


def test_another_module_may_begin_with_words_that_are_wider_than_ascii() -> None:
    """Its name here has no place there: column 14 of that line lies within a character."""
    config = '"""训练配置，训练配置，训练配置。"""\nBATCH_SIZE_ONE = 4\n'
    assert _value("BATCH_SIZE_ONE", "from config import BATCH_SIZE_ONE\n", config=config).value == 4


def test_what_another_module_says_is_not_edited_here() -> None:
    assert "config.py" in (
        _value("config.BATCH", "import config\n", config="BATCH = 4\n").locked or ""
    )


def test_settings_of_the_environment_may_differ() -> None:
    found = _value("settings.batch", "from config import settings\n", config=_SETTINGS)
    assert isinstance(found, PythonScalar)
    assert (found.value, found.may_differ) == (4, True)
    assert _value("settings.batch", _SETTINGS).locked
    unread = _value("settings.needed", "from config import settings\n", config=_SETTINGS)
    assert unread.value is UNKNOWN


def test_options_of_another_module_stay_options() -> None:
    config = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--size', type=int, default=3)\nargs = p.parse_args()\n"
    found = _value("args.size", "from config import args\n", config=config)
    assert isinstance(found, PythonScalar)
    assert (found.value, found.option) == (3, "size")


def test_modules_that_import_each_other_end() -> None:
    assert _value("X", "from a import X\n", a="from b import X\n", b="from a import X\n").value is (
        UNKNOWN
    )


def test_the_files_are_named_that_values_come_from() -> None:
    files = {"src/config.py": "BATCH = 4\n", "src/train.py": "import config\n" + _CALL.format("config.BATCH")}  # fmt: skip
    assert _document(files).sourced == ("src/config.py",)


_MODEL = "from trl import ModelConfig\n"


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("{}m = ModelConfig(model_name_or_path='acme/7b')\nx = m.model_name_or_path\n", "acme/7b"),
        (
            "{}def main(m):\n    {{call}}\nargs = ModelConfig(model_name_or_path='acme/7b')\nmain(args)\n",
            "acme/7b",
        ),
    ],
)
def test_an_object_of_a_library_holds_what_its_call_gives_it(script: str, value: str) -> None:
    call = "t = TrainingArguments(output_dir='o', x=m.model_name_or_path)"
    text = script.format(_MODEL).replace("{call}", call)
    start = "from transformers import TrainingArguments\n"
    text = start + (text if call in text else f"{text}{call}\n")
    document = _document({"src/train.py": text})
    node = next(c for c in document.calls if c.callee == "TrainingArguments").arguments
    found = node.entries["x"].value
    assert isinstance(found, Scalar)
    assert found.value == value


def test_a_parameter_that_every_call_leaves_out_is_its_default() -> None:
    script = (
        "from transformers import TrainingArguments\n"
        "def train(model, batch=4, steps=2):\n"
        "    t = TrainingArguments(output_dir='o', x=batch, y=steps)\n"
        "train('a')\ntrain('b', steps=3)\n"
    )
    document = _document({"src/train.py": script})
    node = next(c for c in document.calls if c.callee == "TrainingArguments").arguments
    found = {name: entry.value for name, entry in node.entries.items()}
    assert [getattr(found[name], "value", None) for name in "xy"] == [4, UNKNOWN]
