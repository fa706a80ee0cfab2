"""Which releases of libraries have which names and know which models, and which fields the classes have that parsers are made
of, and which arguments trainers take.

The tables in ``keys/names``, ``keys/members``, ``keys/models`` and ``keys/fields`` are read from the libraries' wheels (:mod:`benchmarks.wheels`). What they
say is asked for all releases that a project allows: only what none of them takes is certain to end a program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from oomlint.dialects.cells import Cells
from oomlint.dialects.key_releases import Past
from oomlint.files.requirements import is_early
from oomlint.plan.fields import f
from oomlint.plan.library_changes import Release, release_of

_KEYS = Path(__file__).parent / "keys"
_ALWAYS: Release = (1 << 62,)
_NEWEST: Release = ((1 << 62) - 1,)
CALLED = {
    "transformers": "transformers", "trl": "TRL", "peft": "PEFT", "torch": "torch", "accelerate": "accelerate",
}  # fmt: skip
"""The libraries with tables, and how people call them."""
_WITH_NAMES = ("transformers", "trl", "peft")
# Patches of torch mend and add nothing (pytorch RELEASE.md, "Patch Releases").
_ADD_IN_MINORS = ("torch",)
_WITH_MEMBERS = ("trl", "peft", "torch", "accelerate")
_WITH_FIELDS = ("transformers", "trl")
_ANY_ARGUMENT = "**"


def library_of(name: str) -> str:
    """The library that a module is of, or what a module has: ``peft`` of ``peft.tuners.lora.LoraConfig``."""
    return name.partition(".")[0]


class Span(Struct, frozen=True):
    """Releases behind ``lacking``, the last that was read without, and before ``gone``; of what the oldest has that was
    read ``lacking`` is empty. One patch of each minor release was read: what the next minor has may have come with any
    patch in between (TRL 0.4.0 has no SFTTrainer, 0.4.2 has, 0.5.0 is the next that was read)."""

    lacking: Release
    gone: Release
    written: tuple[str, str]


class Reach(Struct, frozen=True):
    """The releases of a library that may run: from ``oldest`` to ``newest``, both included; an empty ``oldest`` is any."""

    oldest: Release
    newest: Release

    @property
    def is_open(self) -> bool:
        """Whether nothing keeps the newest release from running."""
        return self.newest == _ALWAYS

    def meets(self, span: Span) -> bool:
        return self.oldest < span.gone and (not span.lacking or span.lacking < self.newest)


ReachIn: TypeAlias = "Callable[[Cells, str], Reach | None]"
"""Tells the releases of a library that may run: :func:`reach_of` and :func:`likely_reach_of`."""


class Field(Struct, frozen=True):
    """A field of a class: what argparse makes of its value (``int``, ``float``, ``bool`` or ``other``)."""

    kind: str
    is_required: bool
    span: Span


class Classes(Struct, frozen=True):
    """The classes of one library by name, with their fields and with the classes of another library they take fields from."""

    fields: Mapping[str, Mapping[str, tuple[Field, ...]]]
    bases: Mapping[str, tuple[tuple[str, Span], ...]]


def reach_of(run: Cells, package: str) -> Reach | None:
    """The releases of a library that the project allows; ``None`` where a copy or a commit decides."""
    from oomlint.dialects.common.fields import library

    return _reach_within(run, package, run[library.sure_bounds])


def likely_reach_of(run: Cells, package: str) -> Reach | None:
    """The same where the frameworks that nobody pins are the newest."""
    from oomlint.dialects.common.fields import library

    return _reach_within(run, package, run[library.bounds])


def newest_reach_of(run: Cells, package: str) -> Reach | None:
    """The newest release that was read, where the project says none: what an installation of today gets, whatever release its
    own code gives away that it was written for."""
    reach = likely_reach_of(run, package)
    if reach is None or package not in _WITH_FIELDS or (run[f.versions] or {}).get(package):
        return reach
    floor = beginning(release_of(run.known.floors.get(package)))
    return Reach(max(floor, _read_releases("fields", package)[-1]), _ALWAYS)


def _reach_within(
    run: Cells, package: str, bounds: Mapping[str, tuple[Release, Release]] | None
) -> Reach | None:
    if package in run.known.untold:
        return None
    floor = beginning(release_of(run.known.floors.get(package)))
    version = (run[f.versions] or {}).get(package, "")
    pinned = beginning(release_of(version))
    if pinned:
        first = _just_before(pinned) if is_early(version) else pinned
        return Reach(min(floor or first, first), pinned)
    oldest, beyond = (bounds or {}).get(package, ((), _ALWAYS))
    return Reach(beginning(oldest), beyond)


def _just_before(release: Release) -> Release:
    """Behind all releases before one: what is on the way to it."""
    return (*release[:-1], release[-1] - 1, *_NEWEST)


def beginning(release: Release | None) -> Release:
    """Up to the last number that is not zero: a project may pin 4.45 for 4.45.0."""
    numbers = release or ()
    while numbers and not numbers[-1]:
        numbers = numbers[:-1]
    return numbers


# -- names -----------------------------------------------------------------------------------------


@cache
def _names(kind: str, package: str) -> Mapping[str, tuple[Span, ...]]:
    found: dict[str, tuple[Span, ...]] = {}
    lines = [line.split() for line in _lines(kind, package)]
    read = _read_releases(kind, package)
    for name, came, *went in lines:
        found[name] = (*found.get(name, ()), _span(read, came, *went))
    return found


def _without_patches(reach: Reach) -> Reach:
    return Reach(reach.oldest, reach.newest[:2])


def why_no_name(module: str, name: str, reach: Reach) -> str | None:
    """Why ``from MODULE import NAME`` fails, in words: none of the releases that may run has it; ``None`` where one may."""
    package, _, inner = module.partition(".")
    kind, packages = ("members", _WITH_MEMBERS) if inner else ("names", _WITH_NAMES)
    named = f"{inner}.{name}" if inner else name
    spans = _names(kind, package).get(named, ()) if package in packages else ()
    reach = _without_patches(reach) if package in _ADD_IN_MINORS else reach
    if not spans or not reach.oldest or any(map(reach.meets, spans)):
        return None
    behind = [span for span in spans if span.gone <= reach.oldest]
    if behind:
        return f"{CALLED[package]} {behind[-1].written[1]} and later has no {named}"
    lacking = (*spans[0].lacking, 0)[: max(2, len(spans[0].lacking))]
    return f"{CALLED[package]} up to {'.'.join(map(str, lacking))} has no {named}"


# -- models ----------------------------------------------------------------------------------------


def why_no_model(kind: str, reach: Reach) -> str | None:
    """Why transformers loads no checkpoint of a kind (its ``model_type``), in words: all releases that may run are older;
    ``None`` where one may know it."""
    spans = _names("models", "transformers").get(kind, ())
    if not spans or not all(reach.newest <= span.lacking for span in spans):
        return None
    return f"transformers up to {_minor(spans[0].lacking)} knows no {kind}"


def first_minor_with_model(kind: str) -> Release:
    """The minor release of transformers that a kind of model came with; ``()`` where the oldest that was read knows it, or
    where no table has it. The last patch of each was read, so that none of an earlier one knows it."""
    spans = _names("models", "transformers").get(kind, ())
    if not spans or not all(span.lacking for span in spans):
        return ()
    return min(release_of(span.written[0]) or () for span in spans)[:2]


def _minor(release: Release) -> str:
    return ".".join(map(str, (*release, 0)[:2]))


# -- fields ----------------------------------------------------------------------------------------


@cache
def _classes(package: str) -> Classes:
    fields: dict[str, dict[str, tuple[Field, ...]]] = {}
    bases: dict[str, tuple[tuple[str, Span], ...]] = {}
    cls = ""
    lines = [line.split() for line in _lines("fields", package)]
    read = _read_releases("fields", package)
    for name, *told in lines:
        if not told:
            cls = name.removesuffix(":")
            continue
        kind, came, *went = told
        span = _span(read, came, *went)
        if name == "*":
            bases[cls] = (*bases.get(cls, ()), (kind, span))
            continue
        own = fields.setdefault(cls, {})
        each = Field(kind.removesuffix("!"), kind.endswith("!"), span)
        own[name] = (*own.get(name, ()), each)
    return Classes(fields, bases)


def fields_of(
    qualified: str, run: Cells, reach_in: ReachIn = reach_of
) -> Mapping[str, tuple[Field, ...]] | None:
    """The fields that a library's class has in any release that may run, with what each is in some of these; ``None`` of a
    class that no table or no release that may run has, or whose release nobody knows."""
    package, _, rest = qualified.partition(".")
    name = rest.rpartition(".")[2]
    if package not in _WITH_FIELDS or ".experimental." in qualified:
        return None
    reach, classes = reach_in(run, package), _classes(package)  # the reach is read in any case
    own = None if reach is None else _own_fields(package, name, reach)
    if reach is None or own is None:
        return None
    found: dict[str, tuple[Field, ...]] = {}
    for base, span in classes.bases.get(name, ()):
        inherited = fields_of(f"transformers.{base}", run, reach_in) if reach.meets(span) else {}
        if inherited is None:
            return None
        found |= inherited
    return found | own


@cache
def _own_fields(package: str, name: str, reach: Reach) -> dict[str, tuple[Field, ...]] | None:
    """Those that a class does not take from others, made once for all that is asked of it under the same releases; ``None``
    where no table has the class, or no release that may run: what ends the program then is its import."""
    classes = _classes(package)
    own, bases = classes.fields.get(name, {}), classes.bases.get(name, ())
    spans = [span for _, span in bases] + [each.span for every in own.values() for each in every]
    if not any(map(reach.meets, spans)):
        return None
    possible = {
        field: tuple(each for each in every if reach.meets(each.span))
        for field, every in own.items()
    }
    return {field: every for field, every in possible.items() if every}


def first_release_with(
    qualified: str, field: str, run: Cells, reach_in: ReachIn = reach_of
) -> tuple[str, str] | None:
    """The library and its first release whose class has a field, where all that may run are older than that, and have the
    class; ``None`` where one of them has the field, or where nobody knows."""
    fields = fields_of(qualified, run, reach_in)
    if fields is None or fields.keys() & {field, _ANY_ARGUMENT}:
        return None
    package, _, rest = qualified.partition(".")
    name = rest.rpartition(".")[2]
    homes = ((package, name), *(("transformers", base) for base, _ in _bases(package, name)))
    for home, cls in homes:
        reach = reach_in(run, home)
        every = _classes(home).fields.get(cls, {}).get(field, ())
        if every and reach is not None and all(reach.newest <= each.span.lacking for each in every):
            return home, every[0].span.written[0].removesuffix(".0")
    return None


def why_no_field(
    qualified: str, field: str, run: Cells, reach_in: ReachIn = reach_of
) -> str | None:
    """Why a class refuses an argument, in words: no release that may run has it, and not because all are too old; ``None``
    where one of them has it, or where nobody knows."""
    fields = fields_of(qualified, run, reach_in)
    if fields is None or fields.keys() & {field, _ANY_ARGUMENT}:
        return None
    package, _, rest = qualified.partition(".")
    name = rest.rpartition(".")[2]
    gone = [
        (home, each.span.written[1])
        for home, cls in (
            (package, name),
            *(("transformers", base) for base, _ in _bases(package, name)),
        )
        for each in _classes(home).fields.get(cls, {}).get(field, ())
        if each.span.written[1]
    ]
    if not gone:
        every = [span for _, span in _bases(package, name)]
        every += [
            s.span for kinds in _classes(package).fields.get(name, {}).values() for s in kinds
        ]
        # A class that is older than the table may have had any argument before.
        reach, first = reach_in(run, package), _read_releases("fields", package)[0]
        is_older = not all(span.lacking for span in every)
        if is_older and (reach is None or reach.oldest < first):
            return None
        return f"{name} of {CALLED[package]} has no {field}"
    home, went = gone[-1]
    return f"{name} of {CALLED[home]} {went} and later has no {field}"


def _bases(package: str, name: str) -> tuple[tuple[str, Span], ...]:
    return _classes(package).bases.get(name, ())


def past_fields(package: str, classes: Callable[[str], bool]) -> Past:
    """The fields that classes of a library had, of those by whose name it is asked, each with the first release without
    it."""
    return Past(package, _PastFields(package, classes))


class _PastFields(Mapping[str, str]):
    """Read when it is first asked: few files have a key that no release of today knows."""

    def __init__(self, package: str, classes: Callable[[str], bool]) -> None:
        self._package, self._classes = package, classes

    @cached_property
    def _gone(self) -> Mapping[str, str]:
        found: dict[str, Span] = {}
        for name, fields in _classes(self._package).fields.items():
            for field, every in fields.items() if self._classes(name) else ():
                found[field] = max(found.get(field, every[-1].span), every[-1].span, key=_went)
        return {field: span.written[1] for field, span in found.items() if span.written[1]}

    def __getitem__(self, field: str) -> str:
        return self._gone[field]

    def __iter__(self) -> Iterator[str]:
        return iter(self._gone)

    def __len__(self) -> int:
        return len(self._gone)


def _went(span: Span) -> Release:
    return span.gone


def field_names(qualified: str) -> Iterator[str]:
    """Every field that a library's class ever had."""
    package, _, rest = qualified.partition(".")
    if package in _WITH_FIELDS:
        yield from _classes(package).fields.get(rest.rpartition(".")[2], {})


def _lines(kind: str, package: str) -> Iterator[str]:
    text = (_KEYS / kind / f"{package}.txt").read_text("utf-8")
    return (line for line in text.splitlines() if not line.startswith("#"))


def _read_releases(kind: str, package: str) -> tuple[Release, ...]:
    """The releases that were read for a table, in order: the oldest and the newest, which its head names, and those that
    its lines do, so all but minor ones in which nothing changed."""
    text = (_KEYS / kind / f"{package}.txt").read_text("utf-8")
    told = set(re.findall(r"(?<![\w.])\d+\.\d+\.\d+(?![\w.])", text))
    return tuple(sorted(beginning(release_of(word)) for word in told))


def _span(read: tuple[Release, ...], came: str, went: str = "") -> Span:
    first = beginning(release_of(came))
    earlier = [release for release in read if release < first]
    gone = release_of(went) if went else _ALWAYS
    return Span(earlier[-1] if earlier else (), beginning(gone), (came, went))
