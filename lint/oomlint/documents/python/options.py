"""Options that a script takes from its command line, wherever in the project it declares them.

A script may take its parser's dataclasses from a module beside it, or be three lines that call
``train()`` of another file. What is imported is followed as far as it stands in the project.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping as MappingABC
from typing import Any, Final

from msgspec import Struct, field

from oomlint.documents.base import Entry, Mapping, Node, Scalar, Sequence
from oomlint.documents.python.declared_options import Option, StrictParser
from oomlint.documents.python.idle import left_to_script, read_by_nobody
from oomlint.documents.python.joined_options import joined_options
from oomlint.documents.python.lengths import LENGTH_NAMES
from oomlint.documents.python.modules import FindSource, Module, Modules, paths_of
from oomlint.documents.python.parsers import (
    Stored,
    argparse_names,
    command_functions,
    parsed_classes,
    stored_constants,
    takes_a_file,
)
from oomlint.documents.python.scopes import dotted
from oomlint.documents.python.strict_parsers import (
    declared,
    fields,
    has_aliases,
    is_strict,
    made_command,
)
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.values import NodeSpans
from oomlint.documents.text import Source, Span

# A file without any of these declares no options of its own.
DECLARES: Final = re.compile(
    r"ArgumentParser|TrlParser|add_argument|[Ff]ire\b|\btyro\b|\btyper\b|\bclick\b|dataclass"
)
_NO_CALL = "the script's options are no call to add to"
# Libraries whose classes of options have tables of ours, and bases that add no option.
_LIBRARIES = frozenset({"transformers", "trl"})
_NO_FIELDS = frozenset({"object", "abc.ABC", "ABC", "typing.Generic"})
_DEEPEST_IMPORT = 3


class ScriptOptions(Struct, frozen=True, eq=False):
    """What a script's command line may say."""

    names: frozenset[str] = frozenset()
    bases: frozenset[str] = frozenset()
    """Classes of libraries whose fields are options too: ``transformers.TrainingArguments``."""
    is_whole: bool = False
    """Whether every place that declares options could be read."""
    takes_a_file: bool = False
    """Whether the parser reads a YAML of these options too."""
    defaults: Mapping | None = None
    """Plain defaults of dataclass fields; those of other files are not to be edited here."""
    stored: MappingABC[str, Stored] = field(default_factory=dict)
    """Of options without a value that store it elsewhere, or ``False``: see :func:`stored_constants`."""
    strict: StrictParser | None = None
    """All that the command may say, where the parser stops at anything else, and all of it was read."""
    joined: MappingABC[str, str] = field(default_factory=dict)
    """Those that name a file in a folder of the program's own: see :func:`joined_options`."""
    idle: frozenset[str] = frozenset()
    """Lengths of samples that nothing reads: see :mod:`.idle`."""


def read_options(source: Source, tree: Tree, modules: Modules) -> ScriptOptions:
    """The options that a file declares or imports the declarations of."""
    if not DECLARES.search(source.text):
        return ScriptOptions()
    reader = _Reader(source, modules)
    script = Module(source, tree)
    reader.read(script)
    lengths = reader.entries.keys() & reader.names & LENGTH_NAMES
    to_read = left_to_script(frozenset(lengths), frozenset(reader.bases))
    idle = read_by_nobody(to_read, script, modules) if to_read else frozenset()
    for name in idle:
        del reader.entries[name]
    return ScriptOptions(
        frozenset(reader.names),
        frozenset(reader.bases),
        reader.found_parser and reader.is_whole,
        reader.takes_a_file,
        reader.mapping(),
        stored_constants(tree),
        reader.strict(script),
        joined_options(tree),
        idle,
    )


def started(source: Source, tree: Tree, find: FindSource) -> Source | None:
    """The file of the project whose function a script does nothing but call, if it is one."""
    imports = Module(source, tree).imports if "train" in tree.calls else {}
    if "train" in imports:
        module, level, _ = imports["train"]
        for path in paths_of(module, level, source.path):
            found = find(path)
            if found is not None:
                return found
    return None


class _Reader:
    def __init__(self, source: Source, modules: Modules) -> None:
        self.source = source
        self.modules = modules
        self.names: set[str] = set()
        self.bases: set[str] = set()
        self.entries: dict[str, Entry] = {}
        self.options: list[Option] = []
        self.has_aliases = False
        self.found_parser = False
        self.takes_a_file = False
        self.is_whole = True

    def read(self, file: Module) -> None:
        """Declarations of one file."""
        places = NodeSpans(file.source)
        for cls in file.tree.root.body:
            # Also those that only other scripts parse: their defaults are what the file says.
            if isinstance(cls, ast.ClassDef) and cls.decorator_list:
                self._defaults(cls, file, places, None)
        names = argparse_names(file.tree)
        self.names |= names.known
        self.is_whole &= names.are_all
        self.found_parser |= bool(names.known)
        for call, classes in parsed_classes(file.tree):
            self.takes_a_file |= takes_a_file(call)
            for name in classes:
                self.found_parser = True
                self._class(name, file, places.span(call), 0)
        for function in command_functions(file.tree, file.functions):
            self.found_parser = True
            arguments = function.args
            every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            self.names |= {argument.arg for argument in every}
            self.is_whole &= arguments.kwarg is None

    def _class(self, name: str, file: Module, place: Span, depth: int) -> None:
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
        self.options += fields(cls)
        self.has_aliases |= has_aliases(cls)
        if home.source is not self.source:
            self._defaults(cls, home, NodeSpans(home.source), place)

    def _resolved(self, name: str, file: Module, depth: int) -> tuple[ast.ClassDef, Module] | None:
        if name in file.classes:
            return file.classes[name], file
        root, _, rest = name.partition(".")
        origin = file.imports.get(root)
        if origin is None or depth > _DEEPEST_IMPORT:
            return None
        module, level, inner = origin
        if rest and inner:  # `from pkg import module` and `module.Class`
            module, inner = f"{module}.{inner}" if module else inner, rest
        home = self.modules.of(module, level, file.source.path)
        return None if home is None else self._resolved(inner or rest, home, depth + 1)

    def _defaults(
        self, cls: ast.ClassDef, file: Module, places: NodeSpans, place: Span | None
    ) -> None:
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

    def strict(self, script: Module) -> StrictParser | None:
        """What a command may say, where nothing else is let pass."""
        command = made_command(script.tree, script.source.text)
        if command is not None:
            return command
        is_known = self.found_parser and self.is_whole and not self.has_aliases
        if not is_known or not is_strict(script.tree, script.source.text):
            return None
        options = (*declared(script.tree), *self.options)
        classes = tuple(sorted(self.bases))
        return StrictParser(
            options, classes, self.takes_a_file or "parse_yaml_file" in script.tree.calls
        )

    def mapping(self) -> Mapping | None:
        whole = Span(0, len(self.source.text))
        return Mapping(whole, self.entries, locked=_NO_CALL) if self.entries else None


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
