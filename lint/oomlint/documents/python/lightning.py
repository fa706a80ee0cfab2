"""Classes that Lightning trains and gets its data from, in the file that trains them or in another one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from oomlint.documents.python.flow import Flow
from oomlint.documents.python.modules import Module, Modules
from oomlint.documents.python.scopes import Scope, dotted
from oomlint.documents.python.tree import Tree
from oomlint.documents.text import Source

_IMPORTED: Final = re.compile(r"^(?:lightning|pytorch_lightning|lightning_fabric)\b")
_TRAINED: Final = re.compile(r"(?:^|\.)LightningModule$")
_OF_DATA: Final = re.compile(r"(?:^|\.)LightningDataModule$")
# pytorch_lightning 1.9 core/saving.py: a class method that makes one of the class.
_RESUMES: Final = "load_from_checkpoint"
_LONGEST_CHAIN: Final = 4


class ProjectClass(Struct, frozen=True):
    """A class of another file of the project."""

    path: str
    name: str


def imports_lightning(tree: Tree) -> bool:
    """Whether a file imports Lightning, by any of its names."""
    return any(map(_IMPORTED.match, tree.scopes.imports))


def family_of(cls: ast.ClassDef, tree: Tree) -> tuple[ast.ClassDef, ...]:
    """A class and those of the same file that it is derived from."""
    found = [cls]
    for each in found:
        for base in each.bases:
            parent = tree.scopes.classes.get(dotted(base) or "")
            if parent is not None and parent not in found and len(found) < _LONGEST_CHAIN:
                found.append(parent)
    return tuple(found)


def _is(family: Iterable[ast.ClassDef], kind: re.Pattern[str]) -> bool:
    return any(kind.search(dotted(base) or "") for each in family for base in each.bases)


def is_trained(family: Iterable[ast.ClassDef]) -> bool:
    """Whether a class, by those that it is made of, is one that Lightning trains."""
    return _is(family, _TRAINED)


def parts_in(tree: Tree) -> Iterator[tuple[ast.ClassDef, ...]]:
    """The classes of a file that a Trainer takes, each with those that it is derived from."""
    for cls in tree.classes:
        family = family_of(cls, tree)
        if is_trained(family) or _is(family, _OF_DATA):
            yield family


def holds(classes: Iterable[ast.ClassDef], node: ast.expr) -> bool:
    """Whether a node stands in one of these classes."""
    return any(each.lineno <= node.lineno <= (each.end_lineno or 0) for each in classes)


def given_to(
    call: ast.Call, scope: Scope, flow: Flow, modules: Modules, source: Source
) -> Iterator[ProjectClass]:
    """Of what ``fit`` is given: the classes of other files that it is made of."""
    here = Module(source, flow.tree)
    for value in (*call.args, *(keyword.value for keyword in call.keywords)):
        for made in flow.made(value, scope):
            function = made.func
            if isinstance(function, ast.Attribute) and function.attr == _RESUMES:
                function = function.value
            name = dotted(function)
            found = None if name is None else _home_of(name, here, modules)
            if found is not None:
                yield found


def _home_of(name: str, here: Module, modules: Modules) -> ProjectClass | None:
    """The file in which a class is defined that goes by a name in one that may only pass it on."""
    for _ in range(_LONGEST_CHAIN):
        head, _, last = name.rpartition(".")
        origin = here.imports.get(head or name)
        if origin is None:
            starred = here.imports.get("*")
            found = None if starred is None else modules.of(*starred[:2], here.source.path)
        else:
            module, level, taken = origin
            inner = ".".join(part for part in (module, taken) if part)
            found = modules.of(
                inner, level, here.source.path
            )  # a module that is imported by itself
            if found is None and taken:
                found, last = modules.of(module, level, here.source.path), taken
        if found is None:
            return None
        if last in found.classes:
            return ProjectClass(found.source.path, last)
        here, name = found, last
    return None
