"""NeMo AutoModel: YAML of its recipes, and the lines that start them.

Read from NVIDIA-NeMo/Automodel 36044ad3 (2026-08-22). ``automodel CONFIG --nproc-per-node 8 --model.key value`` starts
torchrun by itself, with a rank for each GPU that is there unless it is told otherwise; up to 0.3 it was ``automodel finetune
llm -c CONFIG``. Its scripts under torchrun take ``-c``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from oomlint.dialects.automodel.keys import AUTOMODEL, LAUNCHED
from oomlint.dialects.automodel.meaning import meaning
from oomlint.dialects.base import Claim, ClaimKind, Reference
from oomlint.dialects.block import Block, OverrideBlock
from oomlint.dialects.configs import ConfigDialect
from oomlint.dialects.machine.launch import Launch, place
from oomlint.documents import SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import Document, Mapping, Scalar
from oomlint.documents.text import Location

_PACKAGE = "nemo_automodel"
_OWN_FLAGS = frozenset({"config", "c", "nproc_per_node"})
_FILES = (".yaml", ".yml")
# Recipes that train no language model, or one beside it that no dialect knows.
_OTHERS = (
    "diffusion",
    "speculative",
    "Eagle",
    "DSpark",
    "DFlash",
    "JetSpec",
    "Vispec",
    "Domino",
    "Diffusion",
)
# Scripts of its examples that torchrun starts with ``-c`` (examples/llm_finetune/finetune.py and others beside it).
_LIES_IN = r"nemo_automodel|examples/(?:llm|vlm|dllm|audio|multimodal)_\w+/"
_SCRIPTS = frozenset({"finetune", "pretrain", "kd", "seq_cls", "train_ft", "benchmark"})


class AutoModel(ConfigDialect):
    name = "automodel"
    packages = (_PACKAGE, "nemo-automodel")
    markers = (b"nemo_automodel", b"automodel")
    suffixes = (*YAML_SUFFIXES, *SHELL_SUFFIXES)
    meaning = meaning

    def is_config(self, root: Mapping) -> bool:
        """A model that its package makes, and steps or an optimizer: a file of one of its recipes."""
        model = root.section("model")
        if model is None or not {"step_scheduler", "optimizer"} & set(root.entries):
            return False
        return any(_PACKAGE in str(said) for said in _calls(root)) or "recipe" in root.entries

    def of_config(self, document: Document, root: Mapping) -> Claim:
        block = Block(document, root, AUTOMODEL, root.entries["model"].key_span)
        kind: ClaimKind = "aside" if _is_other(root) else "run"
        return Claim(self, kind, document, (block,))

    def started_by(self, launch: Launch) -> Iterable[Claim]:
        config = _config_of(launch)
        if config is None:
            return
        document = launch.document
        options = {k: e for k, e in launch.flags.entries.items() if k not in _OWN_FLAGS}
        flags = replace(launch.flags, entries=options, duplicates=())
        ranks = {k: e for k, e in launch.flags.entries.items() if k == "nproc_per_node"}
        launched = replace(launch.flags, entries=ranks, duplicates=())
        blocks = (
            *launch.blocks,
            *((Block(document, launched, LAUNCHED, launch.anchor),) if ranks else ()),
            OverrideBlock(document, flags, AUTOMODEL, launch.anchor),
        )
        where = Location(document.source.path, place(config))
        reference = Reference(str(config.value), where, self.name)
        yield Claim(self, "launch", document, blocks, (*launch.scene_references, reference))


def _config_of(launch: Launch) -> Scalar | None:
    """The file that a line names, where it starts a recipe."""
    is_program = launch.stem == "automodel" or launch.name.startswith(f"{_PACKAGE}.cli")
    is_script = launch.stem in _SCRIPTS and re.search(_LIES_IN, launch.name) is not None
    if not is_program and not is_script:
        return None
    for key in ("config", "c"):
        entry = launch.flag(key)
        if entry is not None and _is_file(entry.value):
            return entry.value if isinstance(entry.value, Scalar) else None
    if not is_program:
        return None
    return next((word for word in launch.arguments if _is_file(word)), None)


def _is_file(node: object) -> bool:
    return isinstance(node, Scalar) and str(node.value).endswith(_FILES)


def _calls(root: Mapping) -> Iterator[object]:
    for section in ("model", "optimizer", "loss_fn", "dataset", "peft", "rng"):
        said = root.said(section, "_target_")
        if said is not None:
            yield said
    yield root.said("recipe") or root.said("recipe", "_target_")


def _is_other(root: Mapping) -> bool:
    recipe = str(root.said("recipe") or root.said("recipe", "_target_") or "")
    model = root.section("model")
    factory = str(model.said("_target_")) if model is not None else ""
    return any(word in recipe or word in factory for word in _OTHERS)
