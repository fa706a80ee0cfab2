"""Rules, dialects and profiles that other packages and folders bring, beside oomlint's own.

Installed packages name them in the entry point groups ``oomlint.rules`` and ``oomlint.dialects``,
and files of data in ``oomlint.profiles``. Folders are named by the settings, that is by the
repository under review; their code runs only where the user has said so on this machine (see :mod:`.consent`). What goes
wrong with a plug-in is an error that names it, and costs nobody the other rules.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from oomlint.dialects import registry
from oomlint.dialects.base import Dialect, Registry
from oomlint.errors import InternalError, in_words
from oomlint.files import dependencies
from oomlint.files.entry_points import PROFILES, entry_points, name_of
from oomlint.linting.rule import ListedRule, Rule

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from oomlint.plugins.folder import Sources

T = TypeVar("T")

RULES = "oomlint.rules"
DIALECTS = "oomlint.dialects"
PROFILE_FOLDER = os.path.join(".oomlint", "profiles")
"""Where a project keeps profiles of its own, beside its settings file."""

_CODE = r"[A-Z]{2,8}[1-9]\d\d"
_NAME = r"[a-z0-9]+(-[a-z0-9]+)*"


class PluginError(InternalError):
    """A plug-in cannot be used, in whole or in part; ``path`` is its name or its folder."""


class InForce(Struct, Generic[T], frozen=True):
    """What is used, and what was wrong with what is not."""

    items: T
    errors: tuple[PluginError, ...]


def rules_in_force(folders: Sequence[str] = ()) -> InForce[tuple[ListedRule, ...]]:
    """Every rule by code: oomlint's own, those of installed packages, those of ``folders``."""
    return _rules(tuple(map(_state, folders)))


def dialects_in_force(
    folders: Sequence[str] = (), own_profiles: str | None = None
) -> InForce[Registry]:
    """Every dialect; those of plug-ins look at a file before oomlint's own do. ``own_profiles``: the
    folder in which the project would keep profiles of its own."""
    found = _dialects(tuple(map(_state, folders)))
    profiles = profiles_in_force(own_profiles)
    registry = found.items
    if own_profiles in profiles.items:
        from oomlint.dialects.profiles.known import with_own

        registry = registry.with_profiles(with_own(own_profiles))
    return InForce(registry, (*found.errors, *profiles.errors))


def profiles_in_force(own: str | None = None) -> InForce[tuple[str, ...]]:
    """Of each profile that others than oomlint bring, who does: the project, in the folder ``own``,
    or an installed package."""
    has_own = own is not None and os.path.isdir(own)
    if own is not None and not has_own:
        dependencies.saw_any(own, False)
    if not has_own and not entry_points(PROFILES):
        return InForce((), ())
    from oomlint.dialects.profiles.known import in_folder, of_packages

    groups = (in_folder(own), of_packages()) if own is not None and has_own else (of_packages(),)
    errors = (PluginError(whom, what) for group in groups for whom, what in group.faults)
    return InForce(tuple(o for group in groups for o in group.origins), tuple(errors))


def has_packages() -> bool:
    """Whether an installed package brings rules, dialects or profiles."""
    return any(map(entry_points, (RULES, DIALECTS, PROFILES)))


# -- folders -----------------------------------------------------------------------------


class _Folder(Struct, frozen=True):
    """A folder as it is now: what it holds, or why nothing of it is used."""

    path: str
    sources: Sources | None
    problem: str


def _state(path: str) -> _Folder:
    from oomlint.plugins.consent import is_allowed, was_allowed
    from oomlint.plugins.folder import FolderProblem, read_folder

    try:
        sources = read_folder(Path(path))
    except FolderProblem as problem:
        return _Folder(path, None, f"the plug-in is left out: {problem}")
    if is_allowed(path, sources.digest):
        return _Folder(path, sources, "")
    why = (
        "has changed since you allowed it"
        if was_allowed(path)
        else "is named by the settings of this repository, whose code does not run unasked"
    )
    return _Folder(
        path,
        None,
        f"the plug-in is left out: it {why}. Read it, then say `oomlint plugins allow {path}`",
    )


# -- what they bring ---------------------------------------------------------------------


@cache
def _rules(folders: tuple[_Folder, ...]) -> InForce[tuple[ListedRule, ...]]:
    from oomlint_rules import listed

    own = tuple(listed())
    collection: _Collection[type[Rule]] = _Collection(
        [], lambda rule, others: fault_of_rule(rule, (*own, *others))
    )
    for point in entry_points(RULES):
        collection.add_package(point, rule_classes)
    for folder in folders:
        collection.add_folder(folder, partial(_gathered, listing="rules", base=Rule))
    ordered = sorted((*own, *map(ListedRule.of, collection.items)), key=lambda rule: rule.code)
    return InForce(tuple(ordered), tuple(collection.errors))


@cache
def _dialects(folders: tuple[_Folder, ...]) -> InForce[Registry]:
    points = entry_points(DIALECTS)
    # Why a folder is left out is said where its rules are.
    sound = [folder for folder in folders if folder.sources is not None]
    if not points and not sound:  # then none of oomlint's own need be imported to compare names
        return InForce(registry(), ())
    own = registry().dialects
    collection: _Collection[Dialect] = _Collection(list(own), _fault_of_dialect)
    for point in points:
        collection.add_package(point, _dialects_of)
    for folder in sound:
        collection.add_folder(folder, _dialects_in)
    brought = collection.items[len(own) :]
    return InForce(Registry.of([*brought, *own]), tuple(collection.errors))


class _Collection(Generic[T]):
    """Rules or dialects that pass, and errors for what does not."""

    def __init__(self, items: list[T], fault: Callable[[T, Iterable[T]], str]) -> None:
        self.items = items
        self.errors: list[PluginError] = []
        self._fault = fault

    def add_package(self, point: EntryPoint, take: Callable[[object], Iterable[T]]) -> None:
        origin = name_of(point)
        if self._add(origin, lambda: take(point.load())) == 0:
            self._say(origin, f"brings nothing through {point.group} ({point.value})")

    def _add(self, origin: str, load: Callable[[], Iterable[T]]) -> int | None:
        """How many were found, ``None`` if loading failed."""
        try:
            found = list(load())
        except (Exception, SystemExit) as error:  # its author's to mend, not the user's to suffer
            self._say(origin, f"cannot be loaded: {in_words(error)}")
            return None
        for item in found:
            if item in self.items:  # offered twice, say by a package that lists it and its folder
                continue
            fault = self._fault(item, self.items)
            if fault:
                self._say(origin, fault)
            else:
                kind: Any = item if isinstance(item, type) else type(item)
                kind.origin = origin
                self.items.append(item)
        return len(found)

    def add_folder(
        self, folder: _Folder, gather: Callable[[Iterable[ModuleType]], Iterable[T]]
    ) -> None:
        sources = folder.sources
        if sources is None:
            self.errors.append(PluginError(folder.path, folder.problem))
        else:
            self._add(folder.path, lambda: gather(sources.modules()))

    def _say(self, origin: str, message: str) -> None:
        self.errors.append(PluginError(origin, f"the plug-in {message}"))


def fault_of_rule(rule: type[Rule], others: Iterable[type[Rule] | ListedRule]) -> str:
    """Why a rule cannot run beside ``others``; empty for a sound one."""
    for attribute in ("code", "name", "summary"):
        if not isinstance(getattr(rule, attribute, None), str):
            return f"has a rule {rule.__qualname__} without {attribute}"
    if not re.fullmatch(_CODE, rule.code):
        return f"has a rule with the code {rule.code!r}; write letters and three digits: ACM101"
    if not re.fullmatch(_NAME, rule.name):
        return f"has a rule with the name {rule.name!r}; write kebab case: no-such-thing"
    for other in others:
        for mine, taken in ((rule.code, other.code), (rule.name, other.name)):
            if mine == taken:
                return (
                    f"has a rule {rule.name} ({rule.code}), which is left out: {taken} is taken by "
                    f"{other.name} ({other.code}) of {other.origin or 'oomlint'}"
                )
    return ""


def _fault_of_dialect(dialect: Dialect, others: Iterable[Dialect]) -> str:
    name = getattr(dialect, "name", None)
    if not isinstance(name, str):
        return f"has a dialect {type(dialect).__qualname__} without name"
    for other in others:
        if other.name == name:
            whose = other.origin or "oomlint"
            return f"has a dialect {name}, which is left out: {whose} has one of that name"
    return ""


def rule_classes(offer: object) -> list[type[Rule]]:
    """The rules of what an entry point names or ``oomlint test-rules`` is given: a rule, a
    function or a module with a function ``rules`` that yields them, a module or package that
    defines them.
    """
    if isinstance(offer, type) and issubclass(offer, Rule):
        return [offer]
    if isinstance(offer, ModuleType):
        return _gathered(_with_submodules(offer), "rules", Rule)
    return list(offer()) if callable(offer) else []


def rules_of_folder(path: str) -> list[type[Rule]]:
    """The rules in a folder, consented to or not: for its author, who names it to test it.

    Raises:
        FolderProblem: it is no folder of code.
        Exception: whatever its modules raise on import.
    """
    from oomlint.plugins.folder import read_folder

    return _gathered(read_folder(Path(path)).modules(), "rules", Rule)


def _dialects_of(offer: object) -> list[Dialect]:
    if isinstance(offer, Dialect):
        return [offer]
    if isinstance(offer, type) and issubclass(offer, Dialect):
        return [offer()]
    if isinstance(offer, ModuleType):
        return _dialects_in(_with_submodules(offer))
    return [*map(_instance, offer())] if callable(offer) else []


def _dialects_in(modules: Iterable[ModuleType]) -> list[Dialect]:
    return [*map(_instance, _gathered(modules, "dialects", Dialect))]


def _instance(dialect: Any) -> Dialect:
    found: Dialect = dialect() if isinstance(dialect, type) else dialect
    return found


def _with_submodules(module: ModuleType) -> Iterator[ModuleType]:
    """The module, then the modules of the package that it is."""
    from importlib import import_module
    from pkgutil import iter_modules

    yield module
    for info in iter_modules(getattr(module, "__path__", ()), f"{module.__name__}."):
        if not info.name.rpartition(".")[2].startswith("_"):
            yield from _with_submodules(import_module(info.name))


def _gathered(modules: Iterable[ModuleType], listing: str, base: type[T]) -> list[type[T]]:
    """What the first module that lists its classes lists; else the classes that they define."""
    found: list[type[T]] = []
    for module in modules:
        lister = getattr(module, listing, None)
        if callable(lister) and not isinstance(lister, type):
            return list(lister())
        found += [
            value
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, base)
            and value.__module__ == module.__name__
        ]
    return found
