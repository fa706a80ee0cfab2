"""What other files of the project load the model with that a script trains."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from oomlint.documents.base import Call, Fact
from oomlint.documents.python.modules import Module, Modules
from oomlint.documents.python.scopes import dotted
from oomlint.documents.python.values import NodeSpans
from oomlint.documents.text import Location

_TRAINER = re.compile(r"(^|\.)\w*Trainer$")
_MODEL = re.compile(r"(?:self\.)?(?:base_|peft_)?model")
_LOADS = re.compile(r"(?:^|\.)\w*(?:Model|LM)\w*\.from_pretrained$")
_OF_AUTO_CLASS = re.compile(r"(?:^|\.)Auto\w+\.from_pretrained$")
# Packages hand on what their modules define.
_DEEPEST = 3


def model_helper_facts(file: Module, calls: Sequence[Call], modules: Modules) -> Iterator[Fact]:
    """Facts of a function of another file that makes what the script calls its model (``function``): that Unsloth,
    which its file imports, patches the trainers (``patched-by-helper``), or that it loads with a device map
    (``placed-by-helper``)."""
    if not any(_TRAINER.search(call.callee) for call in calls):
        return
    for assignment in file.tree.assignments:
        made = assignment.value
        name = dotted(made.func) if isinstance(made, ast.Call) else None
        if name is None or not any(map(_is_model, assignment.targets)):
            continue
        found = _found(name, file, modules)
        if found is None:
            continue
        home, function = found
        kind = _kind(home.functions[function], home)
        if kind:
            where = Location(file.source.path, NodeSpans(file.source).span(made))
            yield Fact(kind, where, {"function": function})


def _is_model(target: ast.expr) -> bool:
    """``model`` alone, and the one of ``model, tokenizer``."""
    targets = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    return any(_MODEL.fullmatch(dotted(each) or "") for each in targets)


def _found(name: str, file: Module, modules: Modules) -> tuple[Module, str] | None:
    """The other file that defines a function which a file calls so."""
    for _ in range(_DEEPEST):
        qualified = file.qualified(name)
        found = None if qualified == name else modules.holding(qualified, file.source.path)
        if found is None:
            return None
        file, name = found
        if name in file.functions:
            return file, name
    return None


def _kind(function: ast.AST, home: Module) -> str:
    """What a function does, with those of its file that it calls. Where Unsloth is one of its ways to load a model,
    nobody knows which it takes."""
    nodes = list(ast.walk(function))
    called = {dotted(node.func) or "" for node in nodes if isinstance(node, ast.Call)}
    inner = (home.functions[name] for name in sorted(called & home.functions.keys()))
    nodes += [node for each in inner for node in ast.walk(each)]
    named = [dotted(node.func) or "" for node in nodes if isinstance(node, ast.Call)]
    loads = [name for name in named if _LOADS.search(name)]
    of_others = any(_OF_AUTO_CLASS.search(name) for name in loads)
    has_unsloth = any(name.partition(".")[0] == "unsloth" for name, _, _ in home.imports.values())
    if has_unsloth and not of_others:
        return "patched-by-helper"
    return "placed-by-helper" if loads and (has_unsloth or any(map(_is_map, nodes))) else ""


def _is_map(node: ast.AST) -> bool:
    """``device_map=...`` and ``"device_map": ...``."""
    if isinstance(node, ast.keyword):
        return node.arg == "device_map"
    return isinstance(node, ast.Constant) and node.value == "device_map"
