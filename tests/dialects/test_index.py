"""The index of dialects says what their classes say, and the lazy registry does what a full one does."""

import sys
from importlib import import_module
from typing import get_args

import pytest

from oomlint.config.settings import Framework
from oomlint.dialects import CLASSES, registry
from oomlint.dialects.__main__ import INDEX, index_text
from oomlint.dialects.base import Dialect
from oomlint.dialects.index import SIGNATURES
from oomlint.errors import UsageError


def test_the_index_is_what_the_classes_say():
    assert INDEX.read_text("utf-8") == index_text(), "run `python -m oomlint.dialects`"


def test_every_dialect_is_registered():
    registered = {name for _, name in CLASSES}
    for file in INDEX.parent.rglob("*.py"):
        if file.stem.startswith("__"):
            continue
        module = ".".join(file.relative_to(INDEX.parent).with_suffix("").parts)
        for name, value in vars(import_module(f"oomlint.dialects.{module}")).items():
            is_own = isinstance(value, type) and value.__module__ == f"oomlint.dialects.{module}"
            # What several of them are made of has no name.
            is_one = is_own and issubclass(value, Dialect) and hasattr(value, "name")
            if is_one and name[0] != "_":
                assert name in registered, f"say in dialects/__init__.py when {name} is asked"


# Kinds of files of a framework that has another name, and what stands around a run.
_NO_FRAMEWORKS = {
    "colossalai-lora", "compose", "deepspeed-launch", "env-file", "fsdp-config", "hf-trainer-json", "hf-trainer-yaml",
    "hostfile", "kubernetes", "lightning-cli", "litgpt-script", "llama-factory-v1", "loop", "megatron-script",
    "megatron-swift", "ms-swift-fsdp", "prime-rl-alone", "prime-rl-inference", "prime-rl-orchestrator", "prime-rl-trainer",
    "sagemaker", "skypilot", "slime-arguments", "trl-recipe-script", "trl-script", "unsloth-cli",
}  # fmt: skip


def test_every_framework_can_be_named():
    named = {name for name, *_ in SIGNATURES.values()} - {*get_args(Framework)}
    assert named == _NO_FRAMEWORKS, "add it to Framework in config/settings.py"


def test_a_class_that_the_index_lacks_is_an_error_in_words(monkeypatch):
    monkeypatch.setattr("oomlint.dialects.CLASSES", (*CLASSES, ("tiny", "Tiny")))
    with pytest.raises(UsageError, match="lacks the dialect Tiny: run `python -m"):
        registry.__wrapped__()


def loaded_by(folder, *words):
    """The modules that a process has imported once it has answered a command."""
    import subprocess

    program = (
        f"import sys; from oomlint.cli import main; main({list(words)!r});"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.splitlines()[-1].split()


CONFIG = """\
base_model: meta-llama/Llama-3.1-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 4096
micro_batch_size: 1
bf16: true
deepspeed: zero3.json
"""
ZERO3 = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}'


def test_a_file_imports_only_the_dialects_whose_markers_it_has(tmp_path):
    (tmp_path / "a.yaml").write_text(CONFIG)
    loaded = loaded_by(tmp_path, "a.yaml")
    assert "oomlint.dialects.axolotl.dialect" in loaded
    assert "oomlint.dialects.machine.kubernetes" not in loaded
    assert "oomlint.documents.shell.reader" not in loaded


def test_a_config_with_its_deepspeed_json_loads_no_heavy_module(tmp_path):
    """Each of these costs a check of one run a noticeable part of its time."""
    (tmp_path / "a.yaml").write_text(CONFIG)
    (tmp_path / "zero3.json").write_text(ZERO3)
    loaded = loaded_by(tmp_path, "check", "--no-cache", "a.yaml")
    assert "oomlint.dialects.deepspeed.dialect" in loaded
    heavy = {
        "hashlib", "json", "shutil", "statistics", "importlib.metadata", "libcst", "jsonschema", "pydantic", "rich", "tree_sitter",
        "oomlint.documents.shell.machine", "oomlint.documents.shell.values", "oomlint.fix.apply",
        "oomlint.judgement.planner", "oomlint.documents.readme", "oomlint.dialects.llamafactory.keys",
        "oomlint.dialects.profiles.build", "oomlint.models.count",
    }  # fmt: skip
    assert not heavy.intersection(loaded)
    # Some thirty of the rules; the others say that they are about other runs.
    assert len([name for name in loaded if name.startswith("oomlint_rules.")]) < 50


def test_what_writes_fixes_is_not_loaded_for_findings_that_propose_none(tmp_path):
    """Here a remark that has nothing to propose, which it is asked for late."""
    (tmp_path / "a.yaml").write_text(CONFIG)
    (tmp_path / "zero3.json").write_text(ZERO3)
    words = ("check", "--no-cache", "--hardware", "8xA100-80GB", "--select", "OOM511")
    loaded = loaded_by(tmp_path, *words, "a.yaml")
    assert "oomlint_rules.checkpoint.zero3_gather_off_empty_model" in loaded
    assert "oomlint.fix.edits" not in loaded


def test_names_are_found_without_a_class_of_that_name():
    assert registry().named("axolotl") is registry().named("axolotl")
    assert registry().named("no such") is None


def test_a_script_loads_no_dialect_that_nothing_in_it_names(tmp_path):
    (tmp_path / "train.py").write_text(
        "from transformers import Trainer, TrainingArguments\n"
        "Trainer(model, TrainingArguments('out'), train_dataset=data).train()\n"
    )
    loaded = loaded_by(tmp_path, "check", "--no-cache", "train.py")
    assert "oomlint.dialects.trainer.dialect" in loaded
    others = ("torchtitan", "unsloth", "deepspeed.launch")
    assert not {f"oomlint.dialects.{name}" for name in others}.intersection(loaded)
