"""What is read from a library's wheels: its names and the fields of its classes."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest
from benchmarks.wheels import main

_INIT = "from .trainer import {names}\n"
_CONFIG = """\
from transformers import TrainingArguments
class Base(TrainingArguments):
    rate: {kind} = 1
class OwnConfig(Base):
    path: str
    size: Optional[int] = field(default=None)
    hidden: int = field(init=False)
    TAGS: ClassVar[list] = []
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for release, names, kind in (
        ("0.4.0", "Alpha, Beta", "int"),
        ("0.5.0", "Beta, Gamma", "float"),
    ):
        with ZipFile(tmp_path / f"trl-{release}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("trl/__init__.py", _INIT.format(names=names))
            wheel.writestr("trl/trainer/own_config.py", _CONFIG.format(kind=kind))
    return tmp_path


def test_names_by_release(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main("names", "trl", str(folder))
    assert capsys.readouterr().out.splitlines() == ["Alpha - 0.5.0", "Gamma 0.5.0"]


def test_fields_by_release(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main("fields", "trl", str(folder))
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "OwnConfig:", "* TrainingArguments -", "path other! -", "rate float 0.5.0", "rate int - 0.5.0", "size int -",
    ]  # fmt: skip


_TRAINERS = """\
class BaseTrainer(Trainer):
    def __init__(self, model, *, args=None{more}): ...
class OwnTrainer(BaseTrainer):
    def train(self, resume): ...
class TheirTrainer(Trainer):
    pass
"""
_RENAMES = """\
class OwnTrainer:
    @deprecate_kwarg("tokenizer", "0.7.0", "processing_class")
    def __init__(self, processing_class): ...
"""


def test_arguments_of_trainers_by_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for release, text in (
        ("0.4.0", _TRAINERS.format(more=", beta=0.1")),
        ("0.5.0", _TRAINERS.format(more=", **kwargs")),
        ("0.6.0", _RENAMES),
    ):
        with ZipFile(tmp_path / f"trl-{release}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("trl/trainer/own_trainer.py", text)
    main("fields", "trl", str(tmp_path))
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("OwnTrainer:") :] == [
        "OwnTrainer:",
        "** other 0.5.0 0.6.0",
        "args other - 0.6.0",
        "beta other - 0.5.0",
        "model other - 0.6.0",
        "processing_class other 0.6.0",
        "tokenizer other 0.6.0",
        "TheirTrainer:",
        "* Trainer - 0.6.0",
    ]


def test_kinds_of_models_by_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for release, kinds in (("4.36.2", ("llama", "old")), ("4.37.2", ("llama", "qwen2"))):
        pairs = ", ".join(f'("{kind}", "{kind.title()}Config")' for kind in kinds)
        with ZipFile(tmp_path / f"transformers-{release}-py3-none-any.whl", "w") as wheel:
            path = "transformers/models/auto/configuration_auto.py"
            wheel.writestr(path, f"CONFIG_MAPPING_NAMES = OrderedDict([{pairs}])\n")
    main("models", "transformers", str(tmp_path))
    assert capsys.readouterr().out.splitlines() == ["old - 4.37.2", "qwen2 4.37.2"]


def test_kinds_of_models_that_a_module_of_their_own_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = "transformers/models/auto"
    with ZipFile(tmp_path / "transformers-5.7.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(
            f"{path}/configuration_auto.py", 'CONFIG_MAPPING_NAMES = dict([("old", "A")])'
        )
    with ZipFile(tmp_path / "transformers-5.8.1-py3-none-any.whl", "w") as wheel:
        wheel.writestr(
            f"{path}/auto_mappings.py",
            'CONFIG_MAPPING_NAMES = dict([("old", "A"), ("new", "B"), ("new_talker", "C")])',
        )
        wheel.writestr(
            f"{path}/configuration_auto.py",
            'CONFIG_MAPPING_NAMES.update({"odd": "D"})\nprint({1: 2})',
        )
    main("models", "transformers", str(tmp_path))
    assert capsys.readouterr().out.splitlines() == ["new 5.8.1", "odd 5.8.1"]


def test_members_of_a_module_that_becomes_a_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it has goes by one name, wherever its file stands; a class's ``__getattr__`` gives the module no names."""
    module = "class Layer:\n    def __getattr__(self, name): ...\nclass Old: ...\n"
    with ZipFile(tmp_path / "peft-0.5.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("peft/tuners/own.py", module)
    with ZipFile(tmp_path / "peft-0.6.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("peft/tuners/own/__init__.py", "from .layer import Layer, Fresh\n")
        wheel.writestr("peft/tuners/own/layer.py", "class Layer: ...\nclass Fresh: ...\n")
    main("members", "peft", str(tmp_path))
    assert capsys.readouterr().out.splitlines() == [
        "tuners.own.Fresh 0.6.0",
        "tuners.own.Old - 0.6.0",
        "tuners.own.layer 0.6.0",
    ]


def test_a_module_that_answers_for_any_name_lacks_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for release, text in (
        ("0.5.0", "def __getattr__(name): ...\n"),
        ("0.6.0", "class Alpha: ...\n"),
    ):
        with ZipFile(tmp_path / f"peft-{release}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("peft/own.py", text)
    main("members", "peft", str(tmp_path))
    assert not capsys.readouterr().out
