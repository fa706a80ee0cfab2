"""Copies of frameworks in a project, held against what the frameworks' own files ever were.

A copy whose modules are all known is the framework as somebody released it, of the day of its newest module. Of one
that was changed, modules that decide what no version of the framework decided are named: what they decide of a run is
not read. A fork that changes how data is loaded or what is logged is still the framework.

The examples that a copy has beside it as the framework ships them are nobody's runs before somebody names them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

from oomlint.dialects.base import Dialect
from oomlint.dialects.upstream.frameworks import FRAMEWORKS, Framework
from oomlint.dialects.upstream.known import Known, known
from oomlint.dialects.upstream.statements import digests
from oomlint.files.requirements import PACKAGES
from oomlint.files.workspace import Workspace
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import enumerated

# A framework's package is some ten folders deep, and has some hundreds of files (ms-swift 4.4: 6, 560).
_DEEPEST, _MOST_FILES = 10, 2000
# Its programs lie beside it, or one folder further down (`recipes/full_finetune_distributed.py` of torchtune).
_PROGRAMS_DEEPEST = 1
_MOST_NAMED = 2

_LEAVES: Mapping[str, tuple[Any, ...]] = {
    "model": (f.model.dims,),
    "sharding": (f.parallel.backend, f.parallel.fsdp.strategy, f.parallel.zero.stage),
    "checkpointing": (f.checkpointing.mode,),
    "optimizer": (f.optimizer.kind,),
    "precision": (f.load.dtype, f.precision.param),
    "loss": (f.loss.logits_materialised, f.eval.keeps_logits),
}
"""What of a run a changed module leaves open."""


class Module(Struct, frozen=True):
    """A module of a copy that decides memory: of runs with these ``kinds`` of objective (of all, if none) and of models
    whose name begins with ``model``. ``changed`` is what it decides as no version did."""

    path: str
    kinds: frozenset[str]
    model: str
    day: int | None
    changed: frozenset[str]

    def decides(self, kind: str | None, model: str) -> bool:
        return (not self.kinds or kind in self.kinds) and model.startswith(self.model)


class Copy(Struct, frozen=True, eq=False):
    """A copy of a framework, and the folder that stands for the root of its repository."""

    framework: Framework
    root: Path
    modules: tuple[Module, ...]

    @property
    def newest(self) -> Module | None:
        """The newest module of those that are as they once were; ``None`` where none is."""
        return max((m for m in self.modules if m.day is not None), key=_day, default=None)


class Copies:
    """The copies that the projects of a workspace carry; each is read once."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._read: dict[tuple[str, str], Copy | None] = {}

    def of(self, dialect: Dialect, from_file: str) -> Copy | None:
        """The copy of a dialect's framework around a file, the nearest, if any of its modules is the framework's."""
        for root in self._roots(from_file):
            for framework in FRAMEWORKS:
                if dialect.name in framework.dialects and self._has(root, framework):
                    copy = self._copy(root, framework)
                    if copy is not None:
                        return copy
        return None

    def changed(self, run: Run, from_file: str) -> dict[Any, str]:
        """The fields that changed modules of the copy which a run is of leave open → which these are, in words."""
        copy = self.of(run.dialect, from_file)
        if copy is None:
            return {}
        kind, model = run.plan.objective.kind, run.dialect.model_folder(run.cells)
        changed = [
            module
            for module in copy.modules
            if module.changed
            and module.path not in run.dialect.carried_code
            and module.decides(kind, model)
        ]
        aspects = frozenset[str]().union(*(module.changed for module in changed))
        words = _in_words([module.path for module in changed], copy.framework.called)
        return {leaf: words for aspect in sorted(aspects) for leaf in _LEAVES[aspect]}

    def version(self, dialect: Dialect, from_file: str) -> dict[str, tuple[str, str]]:
        """The release that the copy around a file became, by its library, and the newest module that tells so."""
        copy = self.of(dialect, from_file)
        newest = None if copy is None else copy.newest
        if copy is None or newest is None or copy.framework.name not in PACKAGES:
            return {}
        release = known(copy.framework.name).release_after(newest.day or 0)
        path = self.workspace.name(copy.root / newest.path)
        return {} if release is None else {copy.framework.name: (release, path)}

    def shipping(self, name: str) -> Framework | None:
        """The framework that ships a file just so, if the file lies in a copy of it."""
        data: bytes | None = None
        for root in self._roots(name):
            for framework in FRAMEWORKS:
                if self._is_copy(root, framework):
                    data = self.workspace.read_or_none(name) if data is None else data
                    if data is not None and known(framework.name).ships(data):
                        return framework
        return None

    def is_inside(self, name: str) -> bool:
        """Whether a file lies in the package of a framework that the project has a copy of."""
        return any(self._packages_around(name))

    def vendored(self, name: str) -> tuple[Framework, Path] | None:
        """The copy of a framework's package, somewhere in a project that is another, in which a file lies: which framework's,
        and the folder. The package of a fork lies at its top, or in ``src``."""
        project = self.workspace.project_around(name)
        for framework, folder in self._packages_around(name):
            is_fork = folder.parent in (project, project / "src")
            if not is_fork and self._is_copy(folder.parent, framework):
                return framework, folder
        return None

    def _packages_around(self, name: str) -> Iterator[tuple[Framework, Path]]:
        file = self.workspace.file(name)
        for root in self._roots(name):
            for framework in FRAMEWORKS:
                for package in framework.packages:
                    if file.is_relative_to(root / package) and self.workspace.holds(root, package):
                        yield framework, root / package

    def _roots(self, from_file: str) -> Iterator[Path]:
        """The folders around a file, within its project, that may be the root of a copy."""
        project = self.workspace.project_around(from_file)
        folders = self.workspace.search_folders(from_file)
        yield from (each for each in folders if each.is_relative_to(project))

    def _has(self, root: Path, framework: Framework) -> bool:
        return any(self.workspace.holds(root, package) for package in framework.packages)

    def _is_copy(self, root: Path, framework: Framework) -> bool:
        if not self._has(root, framework):
            return False
        return not framework.modules or self._copy(root, framework) is not None

    def _copy(self, root: Path, framework: Framework) -> Copy | None:
        key = (str(root), framework.name)
        if key not in self._read:
            modules = tuple(self._modules(root, framework))
            is_copy = any(module.day is not None for module in modules)
            self._read[key] = Copy(framework, root, modules) if is_copy else None
        return self._read[key]

    def _modules(self, root: Path, framework: Framework) -> Iterator[Module]:
        kin = [
            known(each.name)
            for each in FRAMEWORKS
            if each.modules and not set(framework.packages).isdisjoint(each.packages)
        ]
        for name in self._files(root, framework):
            path = self.workspace.file(name).relative_to(root).as_posix()
            for modules in framework.modules:
                match = re.fullmatch(modules.pattern, path)
                data = None if match is None else self.workspace.read_or_none(name)
                if match is not None and data is not None:
                    model = str(match.groupdict().get("name", ""))
                    yield _judged(path, data, modules.kinds, model, kin)
                    break

    def _files(self, root: Path, framework: Framework) -> Iterator[str]:
        """The Python files of a copy: those of its package, and the programs beside it."""
        found: dict[str, None] = {}
        for package in framework.packages:
            if self.workspace.holds(root, package):
                inside = self.workspace.below(str(root / package), (".py",), _DEEPEST)
                found |= dict.fromkeys(islice(inside, _MOST_FILES))
        beside = self.workspace.below(str(root), (".py",), _PROGRAMS_DEEPEST)
        # A program that moved into the package is the project's own where it stands beside that, too.
        inside_too = {os.path.basename(name) for name in found}
        found |= dict.fromkeys(
            name for name in islice(beside, _MOST_FILES) if os.path.basename(name) not in inside_too
        )
        unsaved = (name for name in self.workspace.overlay if name.endswith(".py"))
        found |= dict.fromkeys(n for n in unsaved if self.workspace.file(n).is_relative_to(root))
        yield from found


def _day(module: Module) -> int:
    return module.day or 0


def _judged(path: str, data: bytes, kinds: frozenset[str], model: str, kin: list[Known]) -> Module:
    days = (each.day_of(data) for each in kin)
    day = next((each for each in days if each is not None), None)
    said = {} if day is not None else digests(data.decode("utf-8", "replace"))
    changed = frozenset(
        aspect for aspect, digest in said.items() if not any(k.decided(digest) for k in kin)
    )
    return Module(path, kinds, model, day, changed)


def _in_words(paths: list[str], called: str) -> str:
    """``torchtitan/train.py of this copy of torchtitan is changed``."""
    others = len(paths) - _MOST_NAMED
    named = paths if others <= 1 else [*paths[:_MOST_NAMED], f"{others} more"]
    verb = "is" if len(paths) == 1 else "are"
    return f"{enumerated(tuple(named))} of this copy of {called} {verb} changed"
