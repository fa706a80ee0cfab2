"""One config out of a chain of files and the words of a command, as NeMo-RL's loader makes it.

Read from NVIDIA-NeMo/RL 7ea279ab (2026-08-22) nemo_rl/utils/config.py. ``defaults`` names the files
below one; a mapping is laid over another key by key, or takes its place where it says
``_override_: true``; a list and ``null`` take the place of whatever was there, and ``???`` of nothing.
``${…}`` stands for what the key holds in the end, whichever file says so. Each value keeps the file
that it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.block import OverrideBlock
from oomlint.dialects.entries import plain_value
from oomlint.dialects.omegaconf import OmegaConfBlock
from oomlint.documents.base import UNKNOWN, Entry, Mapping, Node, Scalar

Path = tuple[str, ...]
_Tree = dict[str, Any]

_DEEPEST = 40
_RESOLVERS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": max,
}
_RESOLVER = re.compile(r"([A-Za-z_][\w.]*):(.*)", re.DOTALL)
_KEY = re.compile(r"(\.*)([\w./-]+(?:\.[\w/-]+)*)")


class Whole:
    """What the mappings of a run come to, each laid over those before it."""

    def __init__(self, mappings: Iterable[Mapping]) -> None:
        self.tree: _Tree = {}
        self.paths: dict[int, Path] = {}
        """The path of every value, by the identity of its node."""
        self._kept: list[Mapping] = []
        for mapping in mappings:
            self._kept.append(mapping)
            self._lay(mapping, self.tree, ())

    def _lay(self, mapping: Mapping, tree: _Tree, path: Path) -> None:
        for entry in mapping.entries.values():
            *above, key = _parts(entry.key)
            home = tree
            for part in above:
                home = _opened(home, part)
            self._put(home, key, entry.value, (*path, *above, key))

    def _put(self, home: _Tree, key: str, node: Node, path: Path) -> None:
        self.paths[id(node)] = path
        if isinstance(node, Mapping):
            below = home.get(key)
            takes_place = _is_true(node.entries.get("_override_"))
            inner: _Tree = below if isinstance(below, dict) and not takes_place else {}
            home[key] = inner
            self._lay(node, inner, path)
        elif not _is_open(node):
            home[key] = node

    def at(self, path: Path) -> Any:
        """The node that a path leads to in the end, a dictionary of nodes, or ``None`` for nothing."""
        found: Any = self.tree
        for part in path:
            found = found.get(part) if isinstance(found, dict) else None
        return found

    def pruned(self, mapping: Mapping, path: Path = ()) -> Mapping:
        """A mapping without what another one took the place of."""
        entries: dict[str, Entry] = {}
        for name, entry in mapping.entries.items():
            here = (*path, *_parts(entry.key))
            last = self.at(here)
            if isinstance(entry.value, Mapping):
                if isinstance(last, dict):
                    left = self.pruned(entry.value, here)
                    entries[name] = entry if left is entry.value else replace(entry, value=left)
            elif last is entry.value or (
                last is not None and not _is_null(last) and not _is_open(entry.value)
            ):
                entries[name] = entry
        same = all(entries.get(name) is entry for name, entry in mapping.entries.items())
        return mapping if same else replace(mapping, entries=entries)

    # -- interpolation ---------------------------------------------------------------------------

    def value(self, node: Node, loader: Any, depth: int = 0) -> Any:
        """The value of a node with all that it refers to; ``UNKNOWN`` where that cannot be told."""
        if not isinstance(node, Scalar) or "${" not in str(node.value):
            return plain_value(node, loader)
        return self._text(str(node.value), self.paths.get(id(node), ()), loader, depth)

    def _text(self, text: str, path: Path, loader: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            return UNKNOWN
        pieces = list(_pieces(text))
        if len(pieces) == 1 and pieces[0][0]:
            return self._expression(pieces[0][1], path, loader, depth + 1)
        out = ""
        for is_reference, piece in pieces:
            value = self._expression(piece, path, loader, depth + 1) if is_reference else piece
            if not isinstance(value, (str, int, float)):
                return UNKNOWN
            out += str(value)
        return out

    def _expression(self, inner: str, path: Path, loader: Any, depth: int) -> Any:
        named = _RESOLVER.fullmatch(inner.strip())
        if named is not None:
            resolver = _RESOLVERS.get(named[1])
            given = [self._argument(a, path, loader, depth) for a in _arguments(named[2])]
            if resolver is None or not all(isinstance(a, (int, float)) for a in given):
                return UNKNOWN
            try:
                return resolver(*given)
            except (TypeError, ValueError, ArithmeticError):
                return UNKNOWN
        key = _KEY.fullmatch(inner.strip())
        if key is None:
            return UNKNOWN
        dots, rest = len(key[1]), tuple(key[2].split("."))
        target = (*path[: max(0, len(path) - dots)], *rest) if dots else rest
        found = self.at(target)
        if found is None or isinstance(found, dict):
            return UNKNOWN
        return self.value(found, loader, depth)

    def _argument(self, text: str, path: Path, loader: Any, depth: int) -> Any:
        if "${" in text:
            return self._text(text.strip(), path, loader, depth)
        from oomlint.documents.scalars import resolve

        return resolve(text.strip(), loader)


class NemoRlBlock(OmegaConfBlock, frozen=True, eq=False):
    """A file of the chain, or the words of a command, as part of the whole."""

    whole: Whole | None = None

    def value(self, node: Node) -> Any:
        return (
            super().value(node) if self.whole is None else self.whole.value(node, self.table.loader)
        )


class NemoRlOverrides(OverrideBlock, NemoRlBlock, frozen=True, eq=False):
    """The ``key=value`` words of a launch line whose YAML is at hand."""


_OF_OTHERS = "other configs begin with this one: what they do not share stands in their own"


def in_whole(files: Sequence[NemoRlBlock], lines: Sequence[NemoRlBlock]) -> tuple[NemoRlBlock, ...]:
    """A chain of files in rising precedence, and the words of a command over it, as parts of what they
    come to together. What a file says that others begin with is said otherwise at the chain's end."""
    whole = Whole(block.mapping for block in (*files, *lines))

    def part(block: NemoRlBlock, heir: NemoRlBlock | None = None) -> NemoRlBlock:
        locked = block.locked if heir is None else _OF_OTHERS
        mapping = whole.pruned(block.mapping)
        return replace(block, mapping=mapping, whole=whole, locked=locked, heir=heir)

    ends = [part(block) for block in files[-1:]]
    bases = [part(block, *ends) for block in files[:-1]]
    return (*bases, *ends, *(part(line) for line in lines))


def _parts(key: str) -> Path:
    return tuple(key.lstrip("+").split("."))


def _opened(home: _Tree, part: str) -> _Tree:
    inner = home.get(part)
    if not isinstance(inner, dict):
        inner = home[part] = {}
    return inner


def _is_true(entry: Entry | None) -> bool:
    return (
        entry is not None
        and isinstance(entry.value, Scalar)
        and str(entry.value.value).lower() == "true"
    )


def _is_open(node: Node) -> bool:
    """Whether a value is left to whoever comes after."""
    return isinstance(node, Scalar) and node.value == "???"


def _is_null(node: Any) -> bool:
    return isinstance(node, Scalar) and plain_value(node, "omegaconf") is None


def _pieces(text: str) -> Iterator[tuple[bool, str]]:
    """The parts of a text: what stands between ``${`` and its ``}``, and what is plain."""
    at = 0
    while at < len(text):
        start = text.find("${", at)
        if start < 0:
            yield False, text[at:]
            return
        if start > at:
            yield False, text[at:start]
        depth, end = 1, start + 2
        while end < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        yield True, text[start + 2 : end - 1]
        at = end


def _arguments(text: str) -> Iterator[str]:
    """What stands between the commas of a resolver, those of inner ones left alone."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and not depth:
            yield text[start:at]
            start = at + 1
    yield text[start:]
