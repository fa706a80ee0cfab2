"""The imports that a script is sure to make before it trains, its own and those of the project's modules it imports.

A module that is imported by its name alone belongs to no package, as the script itself that is started by its path: an
import relative to a package fails there (CPython 3.13 Lib/importlib/_bootstrap.py _sanity_check, _calc___package__).
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from oomlint.documents.python.modules import Module, Modules, is_installed
from oomlint.documents.python.sure.straight_line import Evaluated, straight_line

# A package's own imports lead on and on; what is wrong mostly shows in the first.
_DEEPEST = 2
_MOST_MODULES = 12
# What gives a module names that no statement of it binds.
_BY_OTHER_WAYS = re.compile(
    r"__getattr__|\bglobals\b|\bsetattr\b|\bexec\b|sys\.modules|_LazyModule"
)


class SureImport(Struct, frozen=True, eq=False):
    """An import that is sure to be made: ``by`` is the script's own on whose behalf it is, ``path`` the file that it stands
    in, whose package is ``package``; ``found`` the module of the project that it means, if one was found."""

    by: ast.Import | ast.ImportFrom
    node: ast.Import | ast.ImportFrom
    path: str
    package: tuple[str, ...]
    found: Module | None

    @property
    def level(self) -> int:
        return self.node.level if isinstance(self.node, ast.ImportFrom) else 0

    @property
    def is_beyond(self) -> bool:
        """Whether it is relative to a package that its file does not belong to."""
        return self.level > len(self.package)


class _Chain(Struct, eq=False):
    """The script that is started, and which modules have been entered on its way."""

    script: str
    modules: Modules
    may_train: re.Pattern[str]
    entered: set[str]


def sure_imports(
    script: str, evaluated: Sequence[Evaluated], modules: Modules, may_train: re.Pattern[str]
) -> tuple[SureImport, ...]:
    """The imports of a script that is started by its path, in the order in which they are made."""
    chain = _Chain(script, modules.anew(), may_train, {script})
    found = tuple(_made(evaluated, script, (), None, chain, 0))
    modules.looked_into |= chain.modules.read.keys()
    return found


def _made(
    evaluated: Sequence[Evaluated],
    path: str,
    package: tuple[str, ...],
    by: ast.Import | ast.ImportFrom | None,
    chain: _Chain,
    depth: int,
) -> Iterator[SureImport]:
    for each in evaluated:
        node = each.node
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        for name, level in _modules_of(node):
            dotted = (*package[: len(package) - level + 1], *name) if level else name
            found = None
            if level <= len(package) and not is_installed(".".join(dotted)):
                found = chain.modules.of(".".join(dotted), 0, chain.script)
            yield SureImport(by or node, node, path, package, found)
            if found is None or depth >= _DEEPEST or found.source.path in chain.entered:
                continue
            if len(chain.entered) > _MOST_MODULES:
                return
            chain.entered.add(found.source.path)
            is_package = found.source.path.endswith("/__init__.py")
            inner = straight_line(found.tree, chain.may_train)
            home = dotted if is_package else dotted[:-1]
            yield from _made(inner, found.source.path, home, by or node, chain, depth + 1)


def _modules_of(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[tuple[str, ...], int]]:
    """The modules that an import names, as parts, each with its level."""
    if isinstance(node, ast.ImportFrom):
        yield tuple((node.module or "").split(".")) if node.module else (), node.level
        return
    for alias in node.names:
        yield tuple(alias.name.split(".")), 0


def lacks(each: SureImport, script: str) -> str:
    """The first name that an import takes from a plain module of the project which gives no value to it; empty where
    there is none, or where the module may have it in another way. A module that does not lie below the script's folder
    may be an installed one's namesake."""
    found, node = each.found, each.node
    if found is None or not isinstance(node, ast.ImportFrom) or not node.module:
        return ""
    folder = posixpath.dirname(script)
    if not each.level and folder and not found.source.path.startswith(f"{folder}/"):
        return ""
    if found.source.path.endswith("/__init__.py") or _BY_OTHER_WAYS.search(found.source.text):
        return ""
    bound = found.tree.scopes.module.bindings
    if "*" in bound:
        return ""
    wanted = (alias.name for alias in node.names)
    return next((name for name in wanted if name != "*" and name not in bound), "")
