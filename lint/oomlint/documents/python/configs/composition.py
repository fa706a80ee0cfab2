"""The config that Hydra composes for a program: a primary file, the files that its defaults list picks, the words of the
command that starts it.

After hydra-core 1.3.2: ``main.py`` (where files are looked for), ``_internal/defaults_list.py`` (which files, in which
order, and what the command says of them), ``core/default_element.py`` (below which keys each is laid). What cannot be
told, a file that is not here (it may be a class that the program registers) or an option that only the shell knows, leaves
open all that it may say.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping as MappingABC
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Mapping, Node, Scalar, Sequence
from oomlint.documents.python.nodes import ConfigFile, Filed, UnwrittenEntry, loaded_value
from oomlint.documents.python.scopes import FunctionNode, Scope, dotted
from oomlint.documents.suffixes import YAML_SUFFIXES, kind_of
from oomlint.documents.text import Source, Span
from oomlint.errors import ParseError

_DECORATORS: Final = frozenset({"hydra.main", "hydra.main.main"})
_NOWHERE: Final = Span(0, 0)
# hydra-core 1.3.2 core/default_element.py: what begins a package anew, and what stands for the parent's.
_GLOBAL: Final = "_global_"
_HERE: Final = "_here_"
_SELF: Final = "_self_"
# hydra-core 1.3.2 _internal/config_repository.py: a comment at the head of a file.
_HEADER: Final = re.compile(r"^#\s*@package\s+(\S+)", re.M)
_ITEM: Final = re.compile(r"(?:(optional|override)\s+)?(?:(optional|override)\s+)?(\S+)")
_DELETED: Final = re.compile(r"~([\w./@-]+)")
# Lists of defaults may lead to each other.
_DEEPEST: Final = 8
_OWN: Final = frozenset({"defaults", "hydra"})
"""Keys of a config that the program does not get."""

LoadConfig = Callable[[str], "ConfigFile | None"]


class HydraMain(Struct, frozen=True, eq=False):
    """What ``@hydra.main(…)`` says."""

    config_path: ast.expr | None
    """``None`` where it says none."""
    config_name: ast.expr | None
    version_base: ast.expr | None
    says_version: bool


class Layer(Struct, frozen=True, eq=False):
    """A file below some keys; ``None`` of one that is not known."""

    package: tuple[str, ...]
    file: ConfigFile | None


def hydra_main(function: object, scope: Scope) -> HydraMain | None:
    """The decorator that makes a function the task of a Hydra program; ``None`` of any other function."""
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call):
            continue
        if scope.resolved(dotted(decorator.func) or "") not in _DECORATORS:
            continue
        said: dict[str | None, ast.expr] = dict(
            zip(("config_path", "config_name", "version_base"), decorator.args, strict=False)
        )
        said |= {each.arg: each.value for each in decorator.keywords}
        return HydraMain(
            said.get("config_path"),
            said.get("config_name"),
            said.get("version_base"),
            "version_base" in said,
        )
    return None


def task_parameter(function: FunctionNode) -> str | None:
    """The parameter that gets the config."""
    first = next(iter((*function.args.posonlyargs, *function.args.args)), None)
    return None if first is None else first.arg


class Words(Struct, frozen=True, eq=False):
    """The words of a command that say keys or groups of the config: ``None`` of what only the shell knows."""

    said: MappingABC[str, str | None]
    deleted: frozenset[str]

    @classmethod
    def of(cls, options: MappingABC[str, str | None]) -> Words:
        """Args:
        options: as :class:`~oomlint.documents.python.configs.paths.ConfigPaths` has them.
        """
        said = {name[:-1]: word for name, word in options.items() if name.endswith("=")}
        bare = (word for name, word in options.items() if name.isdigit() and word is not None)
        return cls(said, frozenset(m[1] for word in bare if (m := _DELETED.fullmatch(word))))


class _Item(Struct, eq=False):
    """One item of a defaults list; a group's has ``options``, any other a path."""

    path: str
    options: tuple[str | None, ...] | None = None
    package: str | None = None
    is_optional: bool = False
    is_override: bool = False
    is_known: bool = True

    def group(self, above: str) -> str:
        inner = self.path if self.options is not None else posixpath.dirname(self.path)
        return inner.lstrip("/") if self.path.startswith("/") else posixpath.join(above, inner)

    @property
    def relative(self) -> str:
        inner = self.path if self.options is not None else posixpath.dirname(self.path)
        return inner.lstrip("/")


class Composition:
    """The layers of one config, each over those before it.

    Args:
        load: gives the file at a path below the folder of configs, without its ending.
        words: what the command says.
    """

    def __init__(self, load: LoadConfig, words: Words) -> None:
        self._load, self._words = load, words
        self._choices: dict[str, tuple[str | None, ...] | None] = {}
        self._groups: set[str] = set()
        """Keys of groups that a defaults list or a file shows to be one."""
        for key, word in words.said.items():
            options = _options(word)
            group = key.partition("@")[0]
            names = options or ()
            if any(name and load(posixpath.join(group, name)) is not None for name in names):
                self._groups.add(key)
            self._choices[key] = options
        self._taken: set[str] = set()

    def layers(self, name: str) -> list[Layer]:
        """The files of the primary config ``name``, and of what it and the command pick."""
        found = self._of(_Item(_without_ending(name)), "", "", 0)
        for key in self._groups - self._taken:  # ``+group=option``: behind the defaults
            group, _, package = key.partition("@")
            item = _Item(group, self._choices[key], package or None)
            found += self._children(item, "", "", 1)
        return found

    def is_group(self, key: str) -> bool:
        """Whether a word of the command picks a file of a group, once the layers are known."""
        return key in self._groups

    def overrides(self) -> Iterator[tuple[str, str | None]]:
        """The words that say values, and of deleted keys nothing that is known."""
        for key, word in self._words.said.items():
            if key not in self._groups and not key.startswith(("hydra.", "hydra/")):
                yield key, word
        for key in self._words.deleted:
            if key not in self._groups:
                yield key, None

    def _of(self, item: _Item, group_above: str, package_above: str, depth: int) -> list[Layer]:
        """The layers of a config that is named by its path."""
        group = item.group(group_above)
        package = _package(package_above, item.package, item.relative, group)
        path = posixpath.join(group, posixpath.basename(item.path))
        file = self._load(path) if depth <= _DEEPEST else None
        if file is None:
            return [] if item.is_optional else [Layer(_keys(package), None)]
        header = _HEADER.search(_head(file.document.source.text))
        if header is not None and item.package is None and header[1] != "_group_":
            package = _package("", f"{_GLOBAL}.{header[1]}", "", group)
        own = [Layer(_keys(package), file)]
        assert isinstance(file.root, Mapping)
        listed = file.root.entries.get("defaults")
        if listed is None:
            return own
        items = list(_items(listed.value))
        for each in items:
            if each.is_override and each.options is not None:
                key = _override_key(each, group, package)
                self._groups.add(key)
                self._choices.setdefault(key, each.options)
        layers: list[list[Layer]] = []
        # From the last on: what a config overrides holds for those before it.
        for each in reversed(
            [*items, *([] if any(i.path == _SELF for i in items) else [_Item(_SELF)])]
        ):
            if each.path == _SELF:
                layers.append(own)
            elif not each.is_override:
                layers.append(self._children(each, group, package, depth + 1))
        return [layer for found in reversed(layers) for layer in found]

    def _children(self, item: _Item, group: str, package: str, depth: int) -> list[Layer]:
        """The layers of one item of a defaults list."""
        if not item.is_known:
            return [Layer(_keys(package), None)]
        if item.options is None:
            return self._of(item, group, package, depth)
        key = _override_key(item, group, package)
        self._taken.add(key)
        self._groups.add(key)
        below = _keys(_package(package, item.package, item.relative, item.group(group)))
        if key in self._words.deleted:
            return []
        options = self._choices.get(key, item.options)
        if options is None:
            return [Layer(below, None)]
        found = []
        for option in options:
            if option is None:
                continue
            if option == "???" or "${" in option:
                found.append(Layer(below, None))
                continue
            path = f"{item.path}/{option}"
            one = _Item(path, None, item.package, item.is_optional)
            found += self._of(one, group, package, depth)
        return found


def laid_over(
    layers: Iterable[Layer], said: Iterable[tuple[str, str | None]], here: Source
) -> Filed | None:
    """The config as one object, each layer over those before it; ``here`` is the file that gets it."""
    top: Filed | None = None
    for layer in layers:
        if layer.file is None:
            node: Node = Mapping(_NOWHERE, {}, open_ended=True)
            file = _not_a_file(here, node)
        else:
            node, file = layer.file.root, layer.file
            assert isinstance(node, Mapping)
            if not _OWN.isdisjoint(node.entries) and (
                not layer.package or "defaults" in node.entries
            ):
                own = _OWN if not layer.package else frozenset({"defaults"})
                kept = {key: entry for key, entry in node.entries.items() if key not in own}
                node = replace(node, entries=kept)
        root = _below(layer.package, node)
        top = Filed(replace(file, root=root), root, under=top)
    for key, word in said:
        root = _below(tuple(key.split(".")), _word(word))
        top = Filed(_not_a_file(here, root), root, under=top)
    return top


def unknown_in(here: Source) -> Filed:
    """A value that nobody knows, of a config of which only the script that asks for it, ``here``, is known."""
    node = Scalar(_NOWHERE, UNKNOWN)
    return Filed(_not_a_file(here, node), node)


def _not_a_file(here: Source, root: Node) -> ConfigFile:
    from oomlint.documents.base import Document

    return ConfigFile(Document(here), root, "omegaconf", is_command=True)


def _word(word: str | None) -> Node:
    """The value that a word gives a key; of a list of values for a sweep, which is none, nothing that is known."""
    unknown = Scalar(_NOWHERE, UNKNOWN)
    if word is None or (not word.strip().startswith(("[", "{", "'", '"')) and "," in word):
        return unknown
    if not word:
        return Scalar(_NOWHERE, "")
    if word[0] not in "[{":
        return Scalar(_NOWHERE, word, plain=True)
    from oomlint.documents.yaml.document import parse_yaml

    try:
        roots = parse_yaml(Source("", word)).roots
    except (ParseError, RecursionError):
        return unknown
    return roots[0] if len(roots) == 1 else unknown


def _below(package: tuple[str, ...], node: Node) -> Node:
    """The node below these keys, which stand nowhere."""
    for key in reversed(package):
        node = Mapping(_NOWHERE, {key: UnwrittenEntry(key, _NOWHERE, node, _NOWHERE)})
    return node


def _items(listed: Node) -> Iterator[_Item]:
    """The items of a defaults list; of one that cannot be read, an unknown one."""
    if not isinstance(listed, Sequence):
        yield _Item("", is_known=False)
        return
    for node in listed.items:
        if isinstance(node, Mapping) and len(node.entries) == 1:
            ((key, entry),) = node.entries.items()
            yield _group_item(key, entry.value)
        elif isinstance(node, Scalar) and isinstance(node.value, str) and "${" not in node.value:
            path, _, package = node.value.partition("@")
            yield _Item(_without_ending(path), package=package or None)
        else:
            yield _Item("", is_known=False)


def _group_item(key: str, value: Node) -> _Item:
    match = _ITEM.fullmatch(key.strip())
    options: tuple[str | None, ...] | None = None
    plain = loaded_value(value, "pyyaml")
    if isinstance(value, Scalar) and isinstance(value.value, str):
        plain = value.value if "${" in value.value else plain
    if plain is None:
        options = ()
    elif isinstance(plain, (str, int)):
        options = (_without_ending(str(plain)),)
    elif isinstance(plain, list):
        options = tuple(_without_ending(str(each)) for each in plain)
    if match is None or options is None:
        return _Item("", is_known=False)
    flags = {match[1], match[2]}
    group, _, package = match[3].partition("@")
    is_of_hydra = group.lstrip("/").split("/")[0] == "hydra"
    # Hydra's own groups are of its package: nothing of them comes to the program.
    return _Item(
        group,
        () if is_of_hydra else options,
        package or None,
        "optional" in flags,
        "override" in flags or is_of_hydra,
    )


def _options(word: str | None) -> tuple[str | None, ...] | None:
    """The options of a group that a word picks; ``None`` of what is not known."""
    if word is None or word.startswith("{"):
        return None
    if word in ("null", ""):
        return ()
    if word.startswith("[") and word.endswith("]"):
        return tuple(each.strip() for each in word[1:-1].split(","))
    return None if "," in word else (_without_ending(word),)


def _override_key(item: _Item, group_above: str, package_above: str) -> str:
    """By which key an item is overridden (core/default_element.py, get_override_key)."""
    group = item.group(group_above)
    package = _package(package_above, item.package, item.relative, group)
    if package == group.replace("/", "."):
        return group
    return f"{group}@{package or _GLOBAL}"


def _package(above: str, own: str | None, relative: str, group: str) -> str:
    """Below which keys a config is laid (core/default_element.py, _get_final_package)."""
    if own == _HERE:
        own = ""
    if own is not None and "_group_" in own:
        own = f"{_GLOBAL}.{own.replace('_group_', group.replace('/', '.'))}"
    inner = relative.replace("/", ".") if own is None else own
    whole = ".".join(filter(None, (above, inner)))
    at = whole.rfind(_GLOBAL)
    return whole if at < 0 else whole[at + len(_GLOBAL) + 1 :]


def _keys(package: str) -> tuple[str, ...]:
    return tuple(filter(None, package.split(".")))


def _head(text: str) -> str:
    """The comments that a file begins with."""
    lines = text.splitlines()
    end = next((n for n, line in enumerate(lines) if line.strip() and line[:1] != "#"), len(lines))
    return "\n".join(lines[:end])


def _without_ending(path: str) -> str:
    kind = kind_of(path)
    return path[: -len(kind)] if kind in YAML_SUFFIXES else path
