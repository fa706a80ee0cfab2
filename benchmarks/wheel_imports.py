"""What libraries import of one another as they are imported themselves, where not all releases of the other have it.

    python -m benchmarks.wheel_imports LIBRARY FOLDER

prints the lines of ``lint/oomlint/dialects/keys/imports/LIBRARY.txt`` (accelerate, peft, trl). FOLDER holds folders of the names
of the libraries, each with wheels as :mod:`benchmarks.wheels` takes them, and those of transformers besides; of LIBRARY
itself all patches may be there. Nothing of a wheel is run or installed: its modules are read as text.

An import counts that is sure to be made: at the top of a module, below nothing but ``if is_OTHER_available():``, on the way from
the library's ``__init__``, or from the module that a lazy package takes a name from. What may be there in a way that no
statement tells (a module that makes names, an alias, a name that is only mentioned) counts as there. Releases that pip keeps
apart, since the one requires a later one of the other, are left out.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import starmap
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from benchmarks.wheels import Release, parsed, release_of, spans_of

from oomlint.dialects.library_tables import library_of

_OTHERS = ("accelerate", "peft", "transformers", "trl")
_ALL = "*"
# Of the names that a lazy library hands out those count that training asks for.
_ASKED_FOR = re.compile(r"(?:Trainer|Config)$|^DataCollator")
_MAKES_NAMES = re.compile(r"\b__getattr__\b|\bglobals\(\)|\bsetattr\(\s*sys|import \*")


class Wheel:
    """The modules of one release."""

    def __init__(self, path: Path, library: str) -> None:
        self.library = library
        self.release: Release = release_of(path.name)
        self._zip = ZipFile(path)
        self.paths = frozenset(self._zip.namelist())
        self._trees: dict[str, ast.Module] = {}
        self._texts: dict[str, str] = {}
        self._lazies: dict[str, Mapping[str, str]] = {}

    @property
    def written(self) -> str:
        return ".".join(map(str, self.release))

    def text(self, path: str) -> str:
        if path not in self._texts:
            self._texts[path] = self._zip.read(path).decode("utf-8", "replace")
        return self._texts[path]

    def tree(self, path: str) -> ast.Module:
        if path not in self._trees:
            self._trees[path] = parsed(self._zip, path)
        return self._trees[path]

    def path_of(self, module: str) -> str | None:
        stem = module.replace(".", "/")
        return next((p for p in (f"{stem}.py", f"{stem}/__init__.py") if p in self.paths), None)

    @cached_property
    def required(self) -> Mapping[str, Release]:
        """The oldest releases of others that pip installs beside it (``Requires-Dist: accelerate>=0.21.0``)."""
        named = next(path for path in self.paths if path.endswith(".dist-info/METADATA"))
        asked = re.findall(
            r"^Requires-Dist: ([\w-]+)[^\n;]*?>= ?([\d.]+)[^\n;]*$", self.text(named), re.M
        )
        return {name: tuple(map(int, release.split("."))) for name, release in asked}

    # -- what it gives -------------------------------------------------------------------------

    @cached_property
    def _words(self) -> frozenset[str]:
        """The words of the texts in which names of the library's root may stand: its own, and what its modules list in ``__all__``."""
        root = f"{self.library}/__init__.py"
        listed = (
            match
            for path in sorted(self.paths)
            if path.endswith(".py") and path.startswith(f"{self.library}/models/")
            for match in listed_in(self._zip.read(path))
        )
        beside = " ".join(path.split("/")[1].removesuffix(".py") for path in self.paths)
        return frozenset(re.findall(r"\w+", "\n".join((self.text(root), beside, *listed))))

    def has(self, module: str, name: str) -> bool:
        """Whether ``from MODULE import NAME`` may be answered."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        if module == self.library:
            return name in self._words
        path = self.path_of(module)
        if path is None:  # the library may make an alias of that name
            return bool(
                re.search(
                    rf"\b{module.rpartition('.')[2]}\b", self.text(f"{self.library}/__init__.py")
                )
            )
        if word.search(self.text(path)) or _MAKES_NAMES.search(self.text(path)):
            return True
        folder = path.removesuffix("/__init__.py")
        if path == folder:
            return False
        below = (p for p in self.paths if p.startswith(f"{folder}/") and p.endswith(".py"))
        return any(
            word.search(self.text(each)) or each.split("/")[-1].removesuffix(".py") == name
            for each in below
            if each.count("/") <= folder.count("/") + 1
        )

    # -- what it takes -------------------------------------------------------------------------

    def taken(self) -> Iterator[tuple[str, str]]:
        """What the library takes of others, each as ``MODULE.NAME``, with the name of its own for which it does:
        ``*`` where it does so in any case."""
        root = f"{self.library}/__init__.py"
        always = set(self._from(root, set()))
        yield from ((_ALL, each) for each in always)
        for name, home in self._lazy(root, self.library).items():
            if _ASKED_FOR.search(name):
                yield from ((name, each) for each in set(self._from(home, set())) - always)

    def _lazy(self, init: str, package: str) -> Mapping[str, str]:
        """The names of a lazy package, each with the path of the module that defines it."""
        if init not in self._lazies:
            self._lazies[init] = dict(self._read_lazy(init, package))
        return self._lazies[init]

    def _read_lazy(self, init: str, package: str) -> Iterator[tuple[str, str]]:
        if "_LazyModule" not in self.text(init):
            return
        for node in ast.walk(self.tree(init)):
            pairs: Iterable[tuple[ast.expr | None, ast.expr]] = ()
            match node:
                case ast.Dict(keys=keys, values=values):
                    pairs = zip(keys, values, strict=True)
                case ast.Assign(targets=[ast.Subscript(slice=key)], value=value):
                    pairs = ((key, value),)
            for key, value in pairs:
                if not isinstance(key, ast.Constant) or not isinstance(value, ast.List):
                    continue
                module = f"{package}.{key.value}"
                path = self.path_of(module)
                names = [each.value for each in value.elts if isinstance(each, ast.Constant)]
                if path is None:
                    continue
                if path.endswith("/__init__.py") and "_LazyModule" in self.text(path):
                    inner = self._lazy(path, module)
                    yield from ((str(n), inner[str(n)]) for n in names if str(n) in inner)
                else:
                    yield from ((str(name), path) for name in names)

    def _from(self, path: str, seen: set[str]) -> Iterator[str]:
        """What the import of a module leads to."""
        if path in seen:
            return
        seen.add(path)
        parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
        for depth in range(1, len(parts)):  # the packages above it come first
            above = "/".join(parts[:depth]) + "/__init__.py"
            if above in self.paths:
                yield from self._from(above, seen)
        for node in sure(self.tree(path).body):
            yield from self._of(node, path, parts, seen)

    def _of(
        self, node: ast.Import | ast.ImportFrom, path: str, parts: list[str], seen: set[str]
    ) -> Iterator[str]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from self._module(alias.name, seen)
            return
        module = node.module or ""
        if node.level:
            keep = len(parts) - node.level + path.endswith("/__init__.py")
            module = ".".join((*parts[:keep], *filter(None, module.split("."))))
        root = library_of(module)
        if root in _OTHERS and root != self.library:
            yield from (f"{module}.{alias.name}" for alias in node.names if alias.name != "*")
        elif root == self.library:
            yield from self._module(module, seen)
            for alias in node.names:
                yield from self._module(f"{module}.{alias.name}", seen)
                home = self.path_of(module)
                if home is not None and home.endswith("/__init__.py"):
                    lazy = self._lazy(home, module).get(alias.name)
                    if lazy is not None:
                        yield from self._from(lazy, seen)

    def _module(self, module: str, seen: set[str]) -> Iterator[str]:
        path = self.path_of(module) if library_of(module) == self.library else None
        if path is not None:
            yield from self._from(path, seen)


def listed_in(text: bytes) -> list[str]:
    return re.findall(r"^__all__\s*\+?=\s*\[(.*?)\]", text.decode("utf-8", "replace"), re.S | re.M)


def sure(body: Iterable[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that a module makes in any case, and those of libraries that are there."""
    for node in body:
        match node:
            case ast.Import() | ast.ImportFrom():
                yield node
            case ast.If(test=ast.Call(func=ast.Name(id=asked), args=[], keywords=[])):
                match = re.fullmatch(r"is_(\w+)_available", asked)
                if match is not None and match[1] in _OTHERS:
                    yield from (
                        each
                        for each in sure(node.body)
                        if isinstance(each, ast.ImportFrom)
                        and library_of(each.module or "") == match[1]
                    )


NEVER = 1 << 30
"""The number of no release."""


class Need(NamedTuple):
    """What a library takes of another, and the releases of that by their numbers: the first with it, and the first behind
    that is without."""

    name: str
    taken: str
    came: int
    gone: int

    @property
    def home(self) -> str:
        return library_of(self.taken)


def main(library: str, folder: str) -> None:
    wheels = {each: all_of(each, Path(folder) / each) for each in _OTHERS}
    own = wheels[library]
    needs = Needs(wheels)
    rows: dict[Need, list[int]] = {}
    for number, wheel in enumerate(own):
        for need in filter(None, starmap(needs.of, set(wheel.taken()))):
            first = wheels[need.home][need.came].release
            if need.gone < NEVER or wheel.required.get(need.home, ()) < first:
                rows.setdefault(need, []).append(number)
    for need, numbers in sorted(rows.items()):
        if any(is_harder(other, need, rows) for other in rows):
            continue
        others = wheels[need.home]
        lacking = others[need.came - 1].written if need.came else "-"
        for first, gone in spans_of(numbers, len(own)):
            told = (need.name, need.taken, *_written(own, first, gone), lacking)
            print(" ".join((*told, *_written(others, need.came, need.gone))))


def is_harder(other: Need, need: Need, rows: Mapping[Need, list[int]]) -> bool:
    """Whether what is taken besides, wherever the need is there, came later, or went earlier: it says all that the need
    does."""
    if other == need or other.name not in (need.name, _ALL) or other.home != need.home:
        return False
    if not set(rows[need]) <= set(rows[other]):
        return False
    here, there = (need.came, -need.gone), (other.came, -other.gone)
    is_no_easier = other.came >= need.came and other.gone <= need.gone
    # Of two that say the same everywhere one is told.
    return is_no_easier and (there != here or len(rows[other]) > len(rows[need]) or other < need)


class Needs:
    """Which releases have what is taken of them."""

    def __init__(self, wheels: Mapping[str, list[Wheel]]) -> None:
        self._wheels = wheels
        self._known: dict[str, tuple[int, int] | None] = {}

    def of(self, name: str, taken: str) -> Need | None:
        """``None`` of what all releases have, or none, or some in between."""
        if taken not in self._known:
            module, _, inner = taken.rpartition(".")
            others = self._wheels[library_of(module)]
            had = [n for n, other in enumerate(others) if other.has(module, inner)]
            spans = list(spans_of(had, len(others))) if had else []
            is_whole = spans == [(0, len(others))]
            came, gone = spans[0] if len(spans) == 1 and not is_whole else (0, 0)
            self._known[taken] = (came, gone if gone < len(others) else NEVER) if gone else None
        span = self._known[taken]
        return None if span is None else Need(name, taken, *span)


def all_of(library: str, folder: Path) -> list[Wheel]:
    paths = folder.glob(f"{library}-*.whl")
    return sorted((Wheel(path, library) for path in paths), key=lambda each: each.release)


def _written(wheels: list[Wheel], first: int, gone: int) -> tuple[str, str]:
    """From which release on, and up to which: ``-`` is any."""
    return (
        "-" if first == 0 else wheels[first].written,
        wheels[gone].written if gone < len(wheels) else "-",
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case [("accelerate" | "peft" | "trl") as library, folder]:
            main(library, folder)
        case _:
            sys.exit(__doc__)
