"""What a project calls the model that a script trains, where the way from there to the call that loads it is not
followed: the default of an option, a parameter, a field or a constant, or a key of a config file that an option names.

It is a name and no more: whoever takes it for the model assumes that the script does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

from oomlint.documents.base import UNKNOWN, Call, Document, Fact, Mapping, Scalar
from oomlint.documents.python.configs.loaded import LoadedFiles
from oomlint.documents.python.options import ScriptOptions
from oomlint.documents.python.parsers import argparse_names
from oomlint.documents.python.values import Evaluator
from oomlint.documents.python.values.parameters import defaults_of
from oomlint.documents.suffixes import JSON_SUFFIXES, TOML_SUFFIXES, YAML_SUFFIXES, kind_of
from oomlint.documents.text import Location

_FILES: Final = (*YAML_SUFFIXES, *JSON_SUFFIXES, *TOML_SUFFIXES)
_DEEPEST: Final = 3
# Of argparse and types.
_NAMESPACES: Final = ("Namespace", "SimpleNamespace")
_LOADS: Final = re.compile(r"(?:^|\.)(?:from_pretrained|from_config|\w*Trainer)$")
_OF_MODEL: Final = ("model", "0", "pretrained_model_name_or_path", "model_name")
_NAMES_FILE: Final = re.compile(r"conf|cfg|yaml|yml|json|toml|param|recipe|settings", re.I)
# ``model``, ``model_name_or_path``, ``base_model_id``; below ``model:`` its ``name``, ``path``.
_MODEL: Final = re.compile(
    r"(?:(?:base|pretrained|policy|actor|student|llm|hf|lm|sft)_?)?model(?:_?(?:id|name|path|name_or_path|or_path))*", re.I
)  # fmt: skip
_BELOW: Final = re.compile(
    r"(?:base_?|pretrained_?|hf_?)?(?:id|name|path|name_or_path|repo(?:_id)?)|base|pretrained", re.I
)  # fmt: skip
# Models beside the one that is trained, and what is said of other programs and of what is written.
_OTHERS: Final = re.compile(
    r"teacher|(?:^|_)ref(?:erence)?(?:_|$)|reward|judge|critic|draft|embed|eval|tokeni[sz]er|guard|verif|rank|retriev"
    r"|vision|audio|speech|encoder|vllm|serv|api|output|save|adapter|lora|class|type|config_name",
    re.I,
)


def calls_model(keys: Sequence[str]) -> bool:
    """Whether a key, with those around it, is one by which people call the model that is trained."""
    if any(map(_OTHERS.search, keys)):
        return False
    if _MODEL.fullmatch(keys[-1]):
        return True
    is_below = len(keys) > 1 and _MODEL.fullmatch(keys[-2]) is not None
    return is_below and _BELOW.fullmatch(keys[-1]) is not None


def model_names(
    calls: Sequence[Call], declared: ScriptOptions, named: LoadedFiles, evaluator: Evaluator
) -> Iterator[Fact]:
    """Facts of one kind, ``calls-model``: ``name``, the ``key``, and whether it stands in the script as a ``default``. None
    where the calls tell what they load."""
    if not any(map(_is_open, calls)):
        return
    options = evaluator.files.options
    evaluator.files.asked |= set(filter(_NAMES_FILE.search, _all_options(declared, evaluator)))
    defaults = dict(_defaults(declared, evaluator))
    for path in dict.fromkeys(
        (*options.values(), *(v for k, v in defaults.items() if k not in options))
    ):
        file = named.at(path, "pyyaml") if path and kind_of(path) in _FILES else None
        if file is not None:
            yield from _in_file(file.document, file.root, ())
    where = Location(
        evaluator.places.source.path, evaluator.places.span(evaluator.tree.root.body[0])
    )
    said = [(f"--{k}", v) for k, v in defaults.items() if k not in options and calls_model((k,))]
    for key, value in (*said, *_written(evaluator)):
        yield Fact("calls-model", where, {"name": value, "key": key, "default": True})


def _is_open(call: Call) -> bool:
    """Whether a call loads or trains a model of which it is not known which."""
    if not _LOADS.search(call.callee):
        return False
    entries = call.arguments.entries
    given = next((entries[name].value for name in _OF_MODEL if name in entries), None)
    return isinstance(given, Scalar) and given.value is UNKNOWN


def _all_options(declared: ScriptOptions, evaluator: Evaluator) -> frozenset[str]:
    return declared.names | argparse_names(evaluator.tree).known


def _defaults(declared: ScriptOptions, evaluator: Evaluator) -> Iterator[tuple[str, str]]:
    """Texts that options have by default which the file reads."""
    module, text = evaluator.scopes.module, evaluator.places.source.text
    for name, expression in evaluator.options.items():
        if not re.search(rf"\.{re.escape(name)}\b|vars\(", text):
            continue
        value = expression.value if isinstance(expression, ast.Constant) else UNKNOWN
        value = evaluator.value(expression, module) if value is UNKNOWN else value
        if isinstance(value, str) and value:
            yield name, value
    for name, entry in ({} if declared.defaults is None else declared.defaults.entries).items():
        if isinstance(entry.value, Scalar) and isinstance(entry.value.value, str):
            yield name, entry.value.value


def _written(evaluator: Evaluator) -> Iterator[tuple[str, str]]:
    """Names that the file itself gives a model: in constants and dicts of them, parameters, fields of classes and
    what makes objects of these."""
    module = evaluator.scopes.module
    for name, expression in _assigned(evaluator):
        if calls_model((name,)):
            value = evaluator.value(expression, module)
            if isinstance(value, str) and value:
                yield name, value


def _assigned(evaluator: Evaluator) -> Iterator[tuple[str, ast.expr]]:
    tree = evaluator.tree
    for name, bindings in tree.scopes.module.bindings.items():
        value = bindings[0].value if len(bindings) == 1 else None
        if isinstance(value, ast.Dict):
            pairs = zip(value.keys, value.values, strict=True)
            yield from ((str(k.value), v) for k, v in pairs if isinstance(k, ast.Constant))
        elif value is not None:
            yield name, value
    for function in tree.functions:
        yield from defaults_of(function).items()
    for cls in tree.classes:
        for each in cls.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value:
                yield each.target.id, each.value
    for call in tree.calls_to(*_NAMESPACES, *tree.scopes.classes):
        yield from ((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg)


def _in_file(document: Document, mapping: object, above: tuple[str, ...]) -> Iterator[Fact]:
    if not isinstance(mapping, Mapping) or len(above) > _DEEPEST:
        return
    for key, entry in mapping.entries.items():
        keys, value = (*above, key), entry.value
        if isinstance(value, Mapping):
            yield from _in_file(document, value, keys)
        elif isinstance(value, Scalar) and isinstance(value.value, str) and calls_model(keys):
            where = Location(document.source.path, entry.span)
            yield Fact(
                "calls-model", where, {"name": value.value, "key": ".".join(keys), "default": False}
            )
