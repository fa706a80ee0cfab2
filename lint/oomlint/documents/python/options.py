"""Options that a script takes from its command line, wherever in the project it declares them.

A script may take its parser's dataclasses from a module beside it, or be three lines that call
``train()`` of another file. What is imported is followed as far as it stands in the project.
"""

from __future__ import annotations

import ast
import posixpath
import re
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct, field

from oomlint.documents.base import Entry, Mapping, Node, Scalar, Sequence
from oomlint.documents.python.parsers import argparse_names, command_functions, parsed_classes
from oomlint.documents.python.scopes import FunctionNode, dotted
from oomlint.documents.python.tree import Tree, read_tree
from oomlint.documents.python.values import Places
from oomlint.documents.text import Source, Span

FindSource = Callable[[str], Source | None]
"""The text of another file of the project, by its path as an import names it."""

# A file without any of these declares no options of its own.
DECLARES: Final = re.compile(
    r"ArgumentParser|TrlParser|add_argument|[Ff]ire\b|\btyro\b|\btyper\b|\bclick\b|dataclass"
)
_NO_CALL = "the script's options are no call to add to"
# Libraries whose classes of options have tables of ours, and bases that add no option.
_LIBRARIES = frozenset({"transformers", "trl"})
_NO_FIELDS = frozenset({"object", "abc.ABC", "ABC", "typing.Generic"})
_DEEPEST_IMPORT = 3
_MOST_FILES = 12
# A tree takes up to 350 bytes a character (measured).
_MOST_KEPT = 50_000


class Options(Struct, frozen=True, eq=False):
    """What a script's command line may say."""

    names: frozenset[str] = frozenset()
    bases: frozenset[str] = frozenset()
    """Classes of libraries whose fields are options too: ``transformers.TrainingArguments``."""
    is_whole: bool = False
    """Whether every place that declares options could be read."""
    defaults: Mapping | None = None
    """Plain defaults of dataclass fields; those of other files are not to be edited here."""
    sourced: tuple[str, ...] = ()
    """Paths of the other files that were read."""


def read_options(source: Source, tree: Tree, find: FindSource) -> Options:
    """The options that a file declares or imports the declarations of."""
    if not DECLARES.search(source.text):
        return Options()
    reader = _Reader(source, find)
    reader.read(_File(source, tree))
    return Options(
        frozenset(reader.names),
        frozenset(reader.bases),
        reader.found_parser and reader.is_whole,
        reader.mapping(),
        tuple(reader.sourced),
    )


def started(source: Source, tree: Tree, find: FindSource) -> Source | None:
    """The file of the project whose function a script does nothing but call, if it is one."""
    imports = _File(source, tree).imports if "train" in tree.calls else {}
    if "train" in imports:
        module, level, _ = imports["train"]
        for path in _paths_of(module, level, source.path):
            found = find(path)
            if found is not None:
                return found
    return None


class _File(Struct, eq=False):
    """A module, with what it defines and where its other names come from."""

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
        for node in self.tree.imports:
            for name in node.names:
                origin = (name.name, 0, "")
                if isinstance(node, ast.ImportFrom):
                    origin = (node.module or "", node.level, name.name)
                self.imports[name.asname or name.name] = origin


def _paths_of(module: str, level: int, from_path: str) -> Iterator[str]:
    """Where Python would look for a module: beside the script first, then in the project."""
    folder = posixpath.dirname(from_path)
    parts = module.replace(".", "/")
    if level:
        base = posixpath.normpath(posixpath.join(folder, "../" * (level - 1), parts))
        yield from (f"{base}.py", f"{base}/__init__.py")
        return
    for start in (folder, "", "src"):
        base = posixpath.join(start, parts)
        yield from (f"{base}.py", f"{base}/__init__.py")


class _Reader:
    def __init__(self, source: Source, find: FindSource) -> None:
        self.source = source
        self.find = find
        self.names: set[str] = set()
        self.bases: set[str] = set()
        self.entries: dict[str, Entry] = {}
        self.sourced: dict[str, _File | None] = {}
        self.found_parser = False
        self.is_whole = True

    def read(self, file: _File) -> None:
        """Declarations of one file."""
        places = Places(file.source)
        for cls in file.tree.root.body:
            # Also those that only other scripts parse: their defaults are what the file says.
            if isinstance(cls, ast.ClassDef) and cls.decorator_list:
                self._defaults(cls, file, places, None)
        names = argparse_names(file.tree)
        self.names |= names.known
        self.is_whole &= names.are_all
        self.found_parser |= bool(names.known)
        for call, classes in parsed_classes(file.tree):
            for name in classes:
                self.found_parser = True
                self._class(name, file, places.span(call), 0)
        for function in command_functions(file.tree, file.functions):
            self.found_parser = True
            arguments = function.args
            every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            self.names |= {argument.arg for argument in every}
            self.is_whole &= arguments.kwarg is None

    def _class(self, name: str, file: _File, place: Span, depth: int) -> None:
        """The fields of a class that a parser is made of, those it inherits first."""
        found = self._resolved(name, file, depth)
        if found is None:
            root, _, rest = name.partition(".")
            module, _, inner = file.imports.get(root, (root, 0, ""))
            qualified = ".".join(filter(None, (module, inner, rest)))
            if qualified not in _NO_FIELDS:
                self.bases.add(qualified)
                self.is_whole &= qualified.partition(".")[0] in _LIBRARIES
            return
        cls, home = found
        for base in cls.bases:
            written = dotted(base)
            if written is not None and depth < _DEEPEST_IMPORT:
                self._class(written, home, place, depth + 1)
            else:
                self.is_whole = False
        self.names |= {name for name, _, _ in _fields(cls)}
        if home.source is not self.source:
            self._defaults(cls, home, Places(home.source), place)

    def _resolved(self, name: str, file: _File, depth: int) -> tuple[ast.ClassDef, _File] | None:
        if name in file.classes:
            return file.classes[name], file
        root, _, rest = name.partition(".")
        origin = file.imports.get(root)
        if origin is None or depth > _DEEPEST_IMPORT:
            return None
        module, level, inner = origin
        if rest and inner:  # `from pkg import module` and `module.Class`
            module, inner = f"{module}.{inner}" if module else inner, rest
        home = self._module(module, level, file.source.path)
        return None if home is None else self._resolved(inner or rest, home, depth + 1)

    def _module(self, module: str, level: int, from_path: str) -> _File | None:
        for path in _paths_of(module, level, from_path):
            if path in self.sourced:
                return self.sourced[path]
            found = self.find(path) if len(self.sourced) < _MOST_FILES else None
            if found is not None:
                if found.path not in self.sourced:
                    self.sourced[found.path] = _read_file(found)
                return self.sourced[found.path]
        return None

    def _defaults(self, cls: ast.ClassDef, file: _File, places: Places, place: Span | None) -> None:
        """Note the plain defaults of a class's fields; ``place`` is where this file names a
        class of another one."""
        for name, target, value in _fields(cls):
            default = _default_of(value)
            if default is None:
                continue
            try:
                plain = ast.literal_eval(default)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            if place is None:
                span, key = places.span(default), places.span(target)
                node = _literal(plain, span, None)
                self.entries[name] = Entry(name, key, node, Span(key.start, span.end))
            else:
                node = _literal(plain, place, f"it is a default in {file.source.path}")
                self.entries.setdefault(name, Entry(name, place, node, place))

    def mapping(self) -> Mapping | None:
        whole = Span(0, len(self.source.text))
        return Mapping(whole, self.entries, locked=_NO_CALL) if self.entries else None


def _read_file(source: Source) -> _File | None:
    return (_parsed_once if len(source.text) < _MOST_KEPT else _parsed)(source)


def _parsed(source: Source) -> _File | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's escapes, not about us
            return _File(source, read_tree(ast.parse(source.text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


# Scripts that lie side by side take their options from the same few modules.
_parsed_once = lru_cache(maxsize=16)(_parsed)


def _fields(cls: ast.ClassDef) -> Iterator[tuple[str, ast.Name, ast.expr | None]]:
    for statement in cls.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, statement.target, statement.value


def _default_of(value: ast.expr | None) -> ast.expr | None:
    """The default in ``= value``, ``= field(default=value)`` or with a factory's lambda."""
    if not isinstance(value, ast.Call):
        return value
    keywords = {keyword.arg: keyword.value for keyword in value.keywords}
    factory = keywords.get("default_factory")
    return factory.body if isinstance(factory, ast.Lambda) else keywords.get("default")


def _literal(value: Any, span: Span, locked: str | None) -> Node:
    if isinstance(value, (list, tuple)):
        items = tuple(Scalar(span, item, locked=locked) for item in value)
        return Sequence(span, items, locked)
    if isinstance(value, dict):
        locked = locked or "a dictionary"
    return Scalar(span, value, locked=locked)
