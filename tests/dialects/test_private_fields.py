"""No dialect keeps a field that nobody sets, or that nobody asks for; rows have defaults that their fields may have."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import oomlint
import oomlint_rules
from oomlint.config.overrides import read_value
from oomlint.dialects import profiles
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.profiles.build import ScriptTable, script_table
from oomlint.dialects.profiles.known import usual
from oomlint.dialects.table import Row, Table
from oomlint.plan import leaf_paths
from oomlint.plan.fields import Private, path_of

# Keys that move memory and that nothing here follows yet: they are read, and come to nothing.
_UNFOLLOWED = frozenset(
    {
        "accelerate.recompute",
        "hf.optim_targets",
        "lf.env.ktransformers",
        "mg.grouped_gemm",
        "mg.positions",
        "mg.rotary",
        "or.ref_model",
        "swift.offload_model",
        "swift.offload_optimizer",
        "swift.offload_teacher",
        "swift.ref_model",
        "swift.reft_rank",
        "swift.vit_checkpointing",
        "torchtune.fusion_trainable",
        "torchtune.max_tiles",
        "v1.kernels",
    }
)

# What the judgement doubts of a whole run, under a name of its own: no file of the run says it.
_DOUBTS = frozenset({"said_to_run"})


@cache
def _modules() -> tuple[ModuleType, ...]:
    found = []
    for package in (oomlint, oomlint_rules):
        root = Path(next(iter(package.__path__)))
        for file in sorted(root.rglob("*.py")):
            parts = file.relative_to(root.parent).with_suffix("").parts
            if parts[-1] != "__main__":
                found.append(importlib.import_module(".".join(parts).removesuffix(".__init__")))
    return tuple(found)


def _declared() -> Mapping[str, str]:
    """Every field that a class declares, and where."""
    _modules()
    return {
        path_of(field): f"{kind.__module__}.{kind.__name__}.{name}"
        for kind in Private.__subclasses__()
        if kind.__module__.startswith("oomlint.")
        for field, name in zip(kind.all(), kind.__annotations__, strict=True)
    }


def _scripts() -> Iterator[ScriptTable]:
    """The tables of the scripts that profiles describe."""
    for project in usual().projects:
        for told in project.scripts:
            yield script_table(told.load())


def _held(value: object, kind: type[Any]) -> Iterator[Any]:
    """What a module holds of a kind, under a name of its own or among several."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, Mapping):
        yield from (each for each in value.values() if isinstance(each, kind))


def _in_modules(kind: type[Any]) -> Iterator[Any]:
    for module in _modules():
        for value in vars(module).values():
            yield from _held(value, kind)


def _rows() -> Iterator[Row]:
    todo: list[Table] = [*_in_modules(Table), *_scripts()]
    while todo:
        rows = todo.pop().rows
        yield from rows
        todo += [row.table for row in rows if row.table is not None]


def _derived() -> Iterator[Any]:
    meanings = [*_in_modules(Meaning), *(script.meaning for script in _scripts())]
    every = {id(each): each for meaning in meanings for each in meaning.everything}
    for meaning in every.values():
        for derivation in meaning.derivations:
            yield from derivation.fields
        for read in meaning.readers:
            yield from read.fields or ()


def _set() -> set[str]:
    """Fields that a key, a derivation or what decides on statements gives a value."""
    return {path_of(field) for field in (*(row.field for row in _rows()), *_derived())}


# Which argument of a call is the field that is asked for.
_ASKED = {"takes": 1, "weakens": 0}


class _Reads(ast.NodeVisitor):
    """The fields that a module asks for: named in the body of a function or in a constant of the
    module, not where a row, a derivation or a change names what it sets."""

    def __init__(self, module: ModuleType) -> None:
        self.names = dict(vars(module))
        self.found: set[str] = set()
        self.is_rule = module.__name__.startswith("oomlint_rules.")
        self.is_inside = False

    def visit_Attribute(self, node: ast.Attribute) -> None:
        kind = self.names.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if isinstance(kind, type) and issubclass(kind, Private):
            if node.attr in kind.__annotations__:
                self.found.add(path_of(getattr(kind, node.attr)))
            elif node.attr in ("all", "__annotations__"):
                self.found |= set(map(path_of, kind.all()))
        self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if self.is_inside and node.module is not None and node.module.startswith("oomlint."):
            self.names |= vars(importlib.import_module(node.module))

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None and not self.is_inside:
                self.visit(key)
            self.visit(value)

    def visit_Call(self, node: ast.Call) -> None:
        is_builtin = isinstance(node.func, ast.Name) and hasattr(builtins, node.func.id)
        if self.is_inside or is_builtin or self.is_rule:
            self.generic_visit(node)
        else:
            self.visit(node.func)
            # At import a call makes rows or derivations; only functions in it ask for anything.
            for each in ast.walk(node):
                if isinstance(each, ast.Lambda):
                    self.visit(each)
            # ``meaning.takes(field, other)``, ``meaning.weakens(other, *fields)``: one that asks for another.
            if isinstance(node.func, ast.Attribute) and node.func.attr in _ASKED:
                self.visit(node.args[_ASKED[node.func.attr]])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_body(node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_body([node.body])

    def _visit_body(self, body: Sequence[ast.AST]) -> None:
        outer, self.is_inside = self.is_inside, True
        for each in body:
            self.visit(each)
        self.is_inside = outer


def _asked_for() -> set[str]:
    """Fields that code or a profile's formula reads, or under which a table of its own stands."""
    found = {path_of(row.field) for row in _rows() if row.table is not None}
    for module in _modules():
        reads = _Reads(module)
        reads.visit(ast.parse(inspect.getsource(module)))
        found |= reads.found
    for file in Path(profiles.__path__[0]).glob("data/*.toml"):
        found |= set(re.findall(r"\b[a-z_0-9]+(?:\.[a-z_0-9]+)+", file.read_text("utf-8")))
    return found


def test_a_default_is_a_value_of_the_plan() -> None:
    """The canonical one, not the framework's word for it."""
    for row in _rows():
        field = path_of(row.field)
        if row.default is not None and row.table is None and field in leaf_paths():
            try:
                read_value(field, row.default)
            except ValueError as error:
                pytest.fail(f"default of the key {row.key}: {error}")


def test_every_field_is_set_by_something() -> None:
    everything = _set() | _DOUBTS
    idle = {field: where for field, where in _declared().items() if field not in everything}
    assert not idle


def test_every_field_is_asked_for() -> None:
    asked = _asked_for()
    unasked = {field for field in _declared() if field not in asked}
    assert unasked == _UNFOLLOWED
