"""Modules of a project that a script imports, each read once."""

from __future__ import annotations

import ast
import posixpath
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from msgspec import Struct, field

from oomlint.documents.python.scopes import FunctionNode, dotted
from oomlint.documents.python.tree import Tree, read_tree
from oomlint.documents.text import Source

FindSource: TypeAlias = Callable[[str], Source | None]
"""The text of another file of the project, by its path as an import names it."""

MOST_FILES: Final = 12
# Packages hand on what their modules define.
_DEEPEST: Final = 3
_MOST_CLASSES: Final = 6
# Characters of modules that are kept. A tree takes up to 350 bytes a character (measured). Of a copy of verl, whose
# scripts ask 1,974 times for 154 modules, 2.8 million characters are parsed with so many, 26.6 with 16 modules kept
# of at most 50,000 characters each (2026-12-01).
_MOST_KEPT: Final = 300_000
# What is not looked for in a project: half of what training scripts import, and no setting of theirs.
_INSTALLED: Final = sys.stdlib_module_names | {
    "accelerate", "bitsandbytes", "datasets", "deepspeed", "numpy", "peft", "torch", "transformers",
    "trl", "unsloth",
}  # fmt: skip


class Module(Struct, eq=False):
    """A file, with what it defines and where its other names come from."""

    source: Source
    tree: Tree
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    functions: dict[str, FunctionNode] = field(default_factory=dict)
    imports: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    """Module, level and name there, by the name here."""

    def __post_init__(self) -> None:
        for cls in self.tree.classes:
            self.classes.setdefault(cls.name, cls)
        for function in self.tree.functions:
            self.functions.setdefault(function.name, function)
        # What a module defines twice is what it defines last.
        for statement in self.tree.root.body:
            if isinstance(statement, ast.ClassDef):
                self.classes[statement.name] = statement
            elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions[statement.name] = statement
        for node in self.tree.imports:
            for name in node.names:
                origin = (name.name, 0, "")
                if isinstance(node, ast.ImportFrom):
                    origin = (node.module or "", node.level, name.name)
                self.imports[name.asname or name.name] = origin

    def qualified(self, name: str) -> str:
        """A dotted name as its import gives it: ``.models.Base`` of ``from .models import Base``."""
        root, _, rest = name.partition(".")
        module, level, inner = self.imports.get(root, (root, 0, ""))
        return "." * level + ".".join(filter(None, (module, inner, rest)))


class Modules:
    """The modules that one script takes something from, found by its imports."""

    def __init__(self, find: FindSource) -> None:
        self.find = find
        self.read: dict[str, Module | None] = {}
        """By path; ``None`` of a file that is no Python."""
        self.absent: set[str] = set()
        """Paths at which there is nothing: most imports are of what is installed, each looked for in many places."""
        self.first: tuple[str, ...] = ()
        self.last: tuple[str, ...] = ()
        """Where Python looks for modules before and behind the other folders, since the script puts them into
        ``sys.path``."""
        self.looked_into: set[str] = set()
        """Files that nothing was taken from, by path: what was not found there counts as well."""

    def of(self, module: str, level: int, from_path: str) -> Module | None:
        """The module that an import in a file means."""
        for path in paths_of(module, level, from_path, self.first, self.last):
            if path in self.read:
                return self.read[path]
            if path in self.absent or len(self.read) >= MOST_FILES:
                continue
            found = self._found(path, module)
            if found is None:
                self.absent.add(path)
                continue
            if found.path not in self.read:
                self.read[found.path] = read_module(found)
            return self.read[found.path]
        return None

    def has(self, module: str, from_path: str) -> bool:
        """Whether a module that a file imports is one of the project's own, whatever stands in it."""
        for path in paths_of(module, 0, from_path, self.first, self.last):
            if path in self.read:
                return self.read[path] is not None
            if path in self.absent:
                continue
            if self._found(path, module) is not None:
                return True
            self.absent.add(path)
        return False

    def _found(self, path: str, module: str) -> Source | None:
        """The file at a path, and no other that has but the end of it: an absolute path is looked for by its end."""
        found = self.find(path)
        end = module.replace(".", "/")
        stem = "" if found is None else re.sub(r"(?:/__init__)?\.py$", "", found.path)
        return found if not end or f"/{stem}".endswith(f"/{end}") else None

    def anew(self) -> Modules:
        """The same project, of which nothing has been read yet."""
        other = Modules(self.find)
        other.absent, other.first, other.last = self.absent, self.first, self.last
        return other

    def holding(self, qualified: str, from_path: str) -> tuple[Module, str] | None:
        """The module in which a dotted name stands as an import in a file gives it
        (``package.config.BATCH``, ``.config.BATCH``), and its name there."""
        level = len(qualified) - len(qualified.lstrip("."))
        parts = [part for part in qualified.split(".") if part]
        if is_installed(qualified):
            return None
        for length in range(len(parts) - 1, -1 if level else 0, -1):
            found = self.of(".".join(parts[:length]), level, from_path)
            if found is not None:
                return found, ".".join(parts[length:])
        return None

    def bases_of(self, qualified: str, from_path: str, depth: int = 0) -> tuple[str, ...] | None:
        """What a class of the project that an import in a file names is derived from, dotted as its own file
        imports it; ``None`` of one that is not here."""
        found = self.holding(qualified, from_path)
        if found is None or depth > _DEEPEST:
            return None
        home, name = found
        if name in home.classes:
            written = map(dotted, home.classes[name].bases)
            return tuple(home.qualified(base) for base in written if base is not None)
        handed_on = home.qualified(name)
        return None if handed_on == name else self.bases_of(handed_on, home.source.path, depth + 1)


def class_line(name: str, file: Module, modules: Modules) -> Iterator[tuple[Module, ast.ClassDef]]:
    """The classes of the project that one of them is made of, the nearest first."""
    todo, seen = [(name, file)], set[int]()
    while todo and len(seen) < _MOST_CLASSES:
        wanted, asking = todo.pop(0)
        found = _class_of(wanted, asking, modules)
        if found is None or id(found[1]) in seen:
            continue
        home, cls = found
        seen.add(id(cls))
        yield home, cls
        todo += [(base, home) for base in map(dotted, cls.bases) if base is not None]


def _class_of(name: str, file: Module, modules: Modules) -> tuple[Module, ast.ClassDef] | None:
    for _ in range(_MOST_CLASSES):  # a package hands on what its modules define
        if name in file.classes:
            return file, file.classes[name]
        qualified = file.qualified(name)
        found = None if qualified == name else modules.holding(qualified, file.source.path)
        if found is None:
            return None
        file, name = found
    return None


def is_installed(qualified: str) -> bool:
    """Whether a dotted name is that of a package which is not looked for in a project."""
    return qualified.partition(".")[0] in _INSTALLED


def paths_of(
    module: str,
    level: int,
    from_path: str,
    first: tuple[str, ...] = (),
    last: tuple[str, ...] = (),
) -> Iterator[str]:
    """Where Python would look for a module: beside the script first, then in the project, if not in the ``first``
    folders or at ``last`` in others."""
    folder = posixpath.dirname(from_path)
    parts = module.replace(".", "/")
    if level:
        base = posixpath.normpath(posixpath.join(folder, "../" * (level - 1), parts))
        yield from (f"{base}.py", f"{base}/__init__.py")
        return
    for start in (*first, folder, "", "src", *last):
        base = posixpath.join(start, parts)
        yield from (f"{base}.py", f"{base}/__init__.py")


# Scripts that lie side by side take their options from the same few modules: those read lately, the last one last.
_lately: dict[Source, Module | None] = {}


def read_module(source: Source) -> Module | None:
    """A file of Python; ``None`` of one that is none."""
    if source in _lately:
        found = _lately.pop(source, None)
    else:
        found = _parsed(source)
        _make_room(len(source.text))
    _lately[source] = found
    return found


def _make_room(characters: int) -> None:
    """Forget the modules that were read longest ago, until there is room for one of so many characters."""
    left = _MOST_KEPT - characters
    for other in reversed(list(_lately)):
        left -= len(other.text)
        if left < 0:
            _lately.pop(other, None)


def _parsed(source: Source) -> Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's escapes, not about us
            return Module(source, read_tree(ast.parse(source.text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
