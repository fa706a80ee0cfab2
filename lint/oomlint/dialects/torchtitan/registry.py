"""torchtitan's config registries: Python functions that return a ``Trainer.Config``.

Read from torchtitan b5bcd76c (2026-08-21) ``torchtitan/models/*/config_registry.py``. A function
may change what another one returns; its settings are then those of both.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.block import Block
from oomlint.dialects.kinds import COUNT, LIST, TEXT, BadValue, Kind, choice
from oomlint.dialects.table import Row, Table
from oomlint.dialects.torchtitan.keys import KNOWN, REGISTRY_NAME, ROWS, own
from oomlint.documents.base import (
    UNKNOWN,
    Document,
    Entry,
    Mapping,
    Name,
    Node,
    Scalar,
    Sequence,
)
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

if TYPE_CHECKING:
    from oomlint.dialects.additions import Additions
    from oomlint.documents.python.registry import ConfigFunction

_AC = "torchtitan.distributed.activation_checkpoint"
_CHECKPOINTING = {
    "FullAC": "full",
    "SelectiveAC": "selective_op",
    "MemoryBudgetAC": "memory_budget",
    # The mode of the one class that there was before, which then had no selective_ac_option any more (torchtitan
    # config/configs.py ActivationCheckpointConfig, in the registries' first months).
    "full": "full",
    "selective": "selective_op",
    "memory_budget": "memory_budget",
}
# What a trainer's config is made with, whatever trainer it is.
_SECTIONS = frozenset({"model_spec", "training", "optimizer"})
# A chain of configs that are made of others is short; a circle must end.
_LONGEST_CHAIN = 12


def _read_class(raw: Any) -> str:
    """The name of a nested config's class: ``FullAC`` of ``FullAC.Config(...)``."""
    if isinstance(raw, (dict, list)):
        raise BadValue("expected a config object")
    return str(raw).removesuffix(".Config").rpartition(".")[2]


def _unwritable(_value: Any) -> Any:
    raise CannotEdit("the function makes this object itself")


def _read_checkpointing(raw: Any) -> str | None:
    return "none" if raw == "none" else _CHECKPOINTING.get(_read_class(raw))


def _write_checkpointing(mode: Any) -> Name:
    if mode != "full":
        raise CannotEdit("only full activation checkpointing can be put in its place")
    return Name(f"{_AC}.FullAC.Config")


_CLASS = Kind(_read_class, _unwritable)
_DTYPE = choice({"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"})
_OWN_ROWS = (
    Row("model_spec.flavor", own.flavor, TEXT),
    Row("model_spec.attn_backend", own.attention, TEXT),
    Row("model_spec.num_mtp_layers", f.model.mtp_layers, COUNT),
    Row("model_spec.converters", own.converters, LIST),
    Row("activation_checkpoint.class", own.ac, Kind(_read_checkpointing, _write_checkpointing)),
    Row("loss.class", own.loss, _CLASS),
)
_REPLACED = frozenset(row.field for row in _OWN_ROWS) | {f.optimizer.name}

REGISTRY = Table(
    name=REGISTRY_NAME,
    rows=(
        *(row for row in ROWS if row.field not in _REPLACED),
        *_OWN_ROWS,
        Row("optimizer.groups", f.optimizer.name, Kind(_read_class, _unwritable)),
    ),
    known=KNOWN,
    # Arguments of classes, which may be anybody's own subclasses.
    known_prefixes=("",),
    loader="yaml12",
    section="training",
)
# What the file's place among torchtitan's modules says.
_PLACE = Table(
    name="registry module", rows=(Row("module", own.name, TEXT),), section="registry module"
)

_FOLDER = re.compile(r"(?:models|experiments)/(.+)/config_registry\.py$")


# Flux generates images: no decoder of ours.
_MAKES_IMAGES = re.compile(r"(?:^|/)flux(?:/|$)")


class RegistryBlock(Block, frozen=True, eq=False):
    """The nested calls of a function. A setting goes into a call that is there."""

    def value(self, node: Node) -> Any:
        """What a call returns is only known when the program runs."""
        calls = isinstance(node, Mapping) or (
            isinstance(node, Sequence) and any(isinstance(item, Mapping) for item in node.items)
        )
        return UNKNOWN if calls else super().value(node)

    def add(self, row: Row, literal: Any, additions: Additions) -> None:
        section, dot, _ = row.key.rpartition(".")
        if dot and self.find(section) is None:
            raise CannotEdit(
                f"{row.key} belongs into a config object that this function does not make"
            )
        super().add(row, literal, additions)


def registry_claims(dialect: Dialect, document: Document) -> Iterator[Claim]:
    """A claim on every function of a config registry; it is named ``path:function``."""
    if "torchtitan" not in {name.partition(".")[0] for name in document.imports}:
        return
    from oomlint.documents.python.document import PythonScript
    from oomlint.documents.python.registry import config_functions

    if not isinstance(document, PythonScript):
        return
    functions = {found.name: found for found in config_functions(document, _SECTIONS)}
    if not functions and _FOLDER.search(document.source.path):
        yield Claim(dialect, "aside", document, ())
    for function in functions.values():
        chain = list(_chain(function, functions))
        if chain[-1].made is None or _MAKES_IMAGES.search(document.source.path):
            yield Claim(dialect, "aside", document, ())
            continue
        blocks = [_module_block(document, function)]
        for depth in reversed(range(len(chain))):
            part = chain[depth]
            is_own = part is function
            shared = (
                None if is_own else f"{part.name} is the base of {function.name}; change it there"
            )
            anew = {section for later in chain[:depth] for section in _made_anew(later)}
            blocks += _blocks(document, _without(part, anew), shared)
        name = f"{document.source.path}:{function.name}"
        yield Claim(dialect, "run", document, tuple(blocks), name=name)


def _made_anew(function: ConfigFunction) -> Iterator[str]:
    """Sections that a function makes whole, so that nothing of its base's remains in them."""
    for key, entry in function.changed.entries.items():
        if _class_of(entry.value) is not None:
            yield key


def _without(function: ConfigFunction, sections: Container[str]) -> ConfigFunction:
    def kept(root: Mapping) -> Mapping:
        entries = {key: entry for key, entry in root.entries.items() if key not in sections}
        return replace(root, entries=entries)

    made = None if function.made is None else kept(function.made)
    return replace(function, made=made, changed=kept(function.changed))


def _chain(
    function: ConfigFunction, functions: dict[str, ConfigFunction]
) -> Iterator[ConfigFunction]:
    """A function and those that made what it changes, to the one that makes the config."""
    found: ConfigFunction | None = function
    for _ in range(_LONGEST_CHAIN):
        if found is None:
            return
        yield found
        if found.made is not None or found.base is None:
            return
        found = functions.get(found.base)


def _blocks(document: Document, function: ConfigFunction, locked: str | None) -> Iterable[Block]:
    if function.made is not None:
        yield RegistryBlock(
            document, _normal(function.made), REGISTRY, function.span, locked=locked
        )
    if function.changed.entries:
        yield RegistryBlock(
            document, _normal(function.changed), REGISTRY, function.span, locked=locked
        )


def _module_block(document: Document, function: ConfigFunction) -> Block:
    """The model that ``model_registry`` of this module is for."""
    found = _FOLDER.search(document.source.path)
    module = found[1].replace("/", ".") if found else _module_of(document)
    at = function.span
    entries = {"module": Entry("module", at, Scalar(at, module), at)} if module else {}
    return Block(document, Mapping(at, entries), _PLACE, at, locked="it is the module's name")


def _module_of(document: Document) -> str:
    """``torchtitan.models.llama3`` of ``from torchtitan.models.llama3 import model_registry``."""
    for name in sorted(document.imports):
        if name.endswith(".model_registry"):
            return name.removesuffix(".model_registry")
    return ""


# -- the shapes that the table expects --------------------------------------------------------


def _normal(root: Mapping) -> Mapping:
    """Positional arguments, lists of objects and ``None`` in the words of the table."""
    entries = dict(root.entries)
    spec = entries.get("model_spec")
    if spec is not None:
        entries["model_spec"] = replace(spec, value=_spec(spec.value))
    kept = entries.get("activation_checkpoint")
    if kept is not None and isinstance(kept.value, Scalar) and kept.value.value is None:
        off = replace(kept.value, value="none", locked="it is switched off by None")
        inner = {"class": Entry("class", kept.key_span, off, kept.span)}
        entries["activation_checkpoint"] = replace(kept, value=Mapping(kept.value.span, inner))
    elif kept is not None and isinstance(kept.value, Mapping):
        mode = kept.value.entries.get("mode")
        if mode is not None and isinstance(mode.value, Scalar):
            said = replace(
                mode.value, locked="it is the mode of an older class, which no other takes"
            )
            inner = {**kept.value.entries, "class": replace(mode, key="class", value=said)}
            entries["activation_checkpoint"] = replace(
                kept, value=replace(kept.value, entries=inner)
            )
    optimizer = entries.get("optimizer")
    if optimizer is not None and isinstance(optimizer.value, Mapping):
        entries["optimizer"] = replace(optimizer, value=_optimizer(optimizer.value))
    return replace(root, entries=entries)


def _spec(node: Node) -> Node:
    """``model_registry("8B", converters=[...])``; another way of making a model is unknown."""
    if not isinstance(node, Mapping):
        return node
    entries = dict(node.entries)
    if "flavor" not in entries and "0" in entries:
        entries["flavor"] = replace(entries.pop("0"), key="flavor")
    converters = entries.get("converters")
    if converters is not None and isinstance(converters.value, Sequence):
        names = [_class_of(item) for item in converters.value.items]
        known = tuple(Scalar(converters.value.span, name) for name in names if name)
        entries["converters"] = replace(converters, value=replace(converters.value, items=known))
    return replace(node, entries=entries)


def _class_of(node: Node) -> str | None:
    """The class of a config object that is made here."""
    entry = node.entries.get("class") if isinstance(node, Mapping) else None
    value = entry.value.value if entry and isinstance(entry.value, Scalar) else None
    return _read_class(value) if isinstance(value, str) else None


def _optimizer(node: Mapping) -> Mapping:
    """Which optimizer most parameters get: the last of the groups, whose pattern takes the rest."""
    groups = node.entries.get("param_groups")
    name: Any = None
    span = node.span
    if groups is not None and isinstance(groups.value, Sequence) and groups.value.items:
        last = groups.value.items[-1]
        entry = last.entries.get("optimizer_name") if isinstance(last, Mapping) else None
        name = entry.value.value if entry and isinstance(entry.value, Scalar) else UNKNOWN
        span = groups.value.span
    elif "adamw" in str(_class_of(node)):
        name = "AdamW"
    if name is None:
        return node
    entry = Entry("groups", span, Scalar(span, name, locked="a group of parameters names it"), span)
    return replace(node, entries={**node.entries, "groups": entry})
