"""Everything that a framework is shown: its configs as they come, after fixes, examples of rules.

The configs are those of the corpus; of a checkout, which has scripts too, where
``OOMLINT_ORACLE_CHECKOUTS`` names a folder with one; or of the installed package itself. Other people's projects
(``project_cases``) are shown as far as fixes change them.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from benchmarks.oracles.framework import SCRIPTS, Case, Framework

from oomlint.documents import SUFFIXES
from oomlint.files.disk import walk
from oomlint.files.workspace import Workspace
from oomlint.fix.apply import FixResult, fix_all
from oomlint.hardware import parse_hardware
from oomlint.linting.engine import Options, all_rules, link, lint
from oomlint.linting.testing import example_options
from oomlint.runs.run import Run

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
MACHINES = ("1xRTX-3090-24GB", "8xA100-40GB", "8xA100-80GB", "8xH100-80GB")
SAFE = "(safe fixes)"
PYTHON = os.environ.get("OOMLINT_ORACLE_PYTHON")
"""The interpreter that has the frameworks."""

_CONFIGS = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Fixing:
    """What files are fixed for, and whether by safe fixes alone."""

    machine: str
    unsafe: bool

    def __str__(self) -> str:
        return self.machine if self.unsafe else f"{self.machine} {SAFE}"


@dataclass(frozen=True)
class Changes:
    """What fixes write, in memory: the texts by name, and the rules whose fixes changed them."""

    texts: Mapping[str, bytes] = field(default_factory=dict)
    rules: Mapping[str, Set[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Tree:
    """A folder of files that are read as one project, and the name that it has here."""

    name: str
    home: Path
    is_whole: bool = False
    """Everything in it is read, scripts of all kinds too, as ``oomlint --fix`` would."""


def all_cases(framework: Framework, at: Path, machines: Sequence[str]) -> list[Case]:
    """The cases of a framework, in copies of their files below a folder."""
    fixings = _fixings(machines)
    trees = [Tree(folder, _home(folder)) for folder in framework.folders]
    return [
        *_written(framework, at / "written", fixings),
        *(case for tree in trees for case in _cases_of(framework, tree, None, at)),
        *(
            case
            for fixing in fixings
            for tree in trees
            for case in _cases_of(framework, tree, fixing, at)
        ),
        *_example_cases(framework, at / "examples"),
    ]


def project_cases(
    framework: Framework, projects: Sequence[Path], at: Path, machines: Sequence[str]
) -> list[Case]:
    """The files of other people's projects that fixes change, as they came and fixed."""
    cases = []
    for project in projects:
        tree = Tree(project.name, project, is_whole=True)
        fixed = [
            case for fixing in _fixings(machines) for case in _cases_of(framework, tree, fixing, at)
        ]
        changed = {case.name for case in fixed}
        came = _cases_of(framework, tree, None, at) if changed else ()
        cases += [case for case in came if case.name in changed] + fixed
    return cases


def _fixings(machines: Sequence[str]) -> list[Fixing]:
    return [Fixing(machine, unsafe) for machine in machines for unsafe in (False, True)]


def _claimed(
    framework: Framework, runs: Iterable[Run], only: Container[str] | None = None
) -> Iterator[tuple[str, str, Run]]:
    """Name, path and run of everything that the loader reads: each run that a file describes,
    and a file that serves several of them once."""
    seen: set[str] = set()
    for run in runs:
        for claim in run.claims:
            path = claim.path
            name = run.name if claim.kind == "run" and run.name.startswith(path) else path
            fits = claim.dialect.name in framework.dialects and path.endswith(framework.suffixes)
            if fits and name not in seen and (only is None or path in only):
                seen.add(name)
                yield name, path, run


def _written(framework: Framework, at: Path, fixings: Sequence[Fixing]) -> Iterator[Case]:
    """Small files of our own as they are, and after every fix for a machine."""
    before = {name: text.encode() for name, text in framework.written.items()}
    for fixing in (None, *fixings) if before else ():
        texts: Mapping[str, bytes] = before
        rules: Mapping[str, Set[str]] = {}
        stage = "" if fixing is None else str(fixing)
        if fixing is not None:
            workspace, names = Workspace(Path("/oracle"), before), list(before)
            changes = _changes(workspace, names, fixing.machine, explicit=True)[fixing.unsafe]
            texts, rules = changes.texts, changes.rules
        _write({**before, **texts}, at / stage)
        for name, path, run in _claimed(framework, _runs({**before, **texts}, Options()), texts):
            by = frozenset(rules.get(path, ()))
            yield Case(name, at / stage, path, run, stage, rules=by)


def _write(files: Mapping[str, bytes], root: Path) -> None:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def _cases_of(framework: Framework, tree: Tree, fixing: Fixing | None, at: Path) -> Iterator[Case]:
    """Every file of a folder that is this framework's, in a copy; after fixes those that these change, or a
    file of their runs."""
    runs, changed, rules = _read(tree, fixing)
    if fixing is None:
        yield from _in_copy(framework, tree, runs, at / "as-it-came", "")
        return
    touched = [run for run in runs if any(path in changed for path in run.files)]
    root = at / str(fixing)
    yield from _in_copy(framework, tree, touched, root, str(fixing), rules)
    for path, data in changed.items() if touched else ():
        file = root / tree.name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_bytes(data)


def _in_copy(
    framework: Framework,
    tree: Tree,
    runs: Iterable[Run],
    at: Path,
    stage: str,
    rules: Mapping[str, Set[str]] = MappingProxyType({}),
) -> Iterator[Case]:
    claimed = list(_claimed(framework, runs))
    copy = at / tree.name
    if claimed and not copy.exists():
        skipped = shutil.ignore_patterns(".git")
        shutil.copytree(tree.home, copy, ignore=skipped, copy_function=os.symlink)
    for name, path, run in claimed:
        given = framework.given if path.endswith(SCRIPTS) else {}
        by = frozenset[str]().union(*(rules.get(file, ()) for file in run.files))
        yield Case(f"{tree.name}/{name}", copy, path, run, stage, rules=by, given=given)


def _home(folder: str) -> Path:
    checkouts = os.environ.get("OOMLINT_ORACLE_CHECKOUTS")
    installed = Path(PYTHON).parents[1].glob("lib/python3*/site-packages") if PYTHON else ()
    homes = [*([Path(checkouts)] if checkouts else []), CORPUS, *installed]
    return next((home / folder for home in homes if (home / folder).is_dir()), CORPUS / folder)


@cache
def _names(tree: Tree) -> tuple[str, ...]:
    if tree.is_whole:
        return tuple(str(file.relative_to(tree.home)) for file in walk(tree.home, SUFFIXES))
    suffixes = _CONFIGS if tree.home.parent == CORPUS else (*_CONFIGS, ".toml", *SCRIPTS)
    files = (
        path
        for path in tree.home.rglob("*")
        if path.suffix in suffixes or path.name == "config_registry.py"
    )
    return tuple(sorted(str(path.relative_to(tree.home)) for path in files if path.is_file()))


@lru_cache(maxsize=4)
def _workspace(tree: Tree) -> Workspace:
    """What lies in a folder, parsed once for all that is fixed in it; of few folders, for what that takes."""
    return Workspace(tree.home, {})


@cache
def _read(
    tree: Tree, fixing: Fixing | None
) -> tuple[Sequence[Run], Mapping[str, bytes], Mapping[str, Set[str]]]:
    """The runs of a folder, after every fix of a kind if one is named, the files that those fixes change,
    and whose fixes they are."""
    names, workspace = _names(tree), _workspace(tree)
    if fixing is None:
        return lint(workspace, names, Options(), rules=()).runs, {}, {}
    changes = _changes_in(tree, fixing.machine)[fixing.unsafe]
    if not changes.texts:
        return (), {}, {}
    # A fix may add a file: a copy of a preset that others use too.
    names = tuple(sorted({*names, *changes.texts}))
    changed = workspace.with_overlay(changes.texts)
    return lint(changed, names, Options(), rules=()).runs, changes.texts, changes.rules


@cache
def _changes_in(tree: Tree, machine: str) -> Mapping[bool, Changes]:
    return _changes(_workspace(tree), _names(tree), machine, explicit=False)


def _changes(
    workspace: Workspace, names: Sequence[str], machine: str, *, explicit: bool
) -> Mapping[bool, Changes]:
    """What all fixes for a machine write, and under ``False`` what the safe ones alone do.

    Both are of the same findings. Where all of them write nothing, the safe ones are not asked.
    """
    options = Options(hardware=parse_hardware(machine))
    given = frozenset(names) if explicit else frozenset[str]()
    linked = link(workspace, names, options, explicit=given)
    found = {True: Changes(), False: Changes()}
    for unsafe in found:
        fixed = fix_all(
            workspace,
            names,
            options,
            explicit=given,
            unsafe=unsafe,
            reports_after=False,
            linked=linked,
        )
        if not fixed.texts:
            break
        found[unsafe] = Changes(fixed.texts, _rules(fixed))
    return found


def _rules(fixed: FixResult) -> Mapping[str, Set[str]]:
    """Whose fixes changed a file."""
    rules = defaultdict[str, set[str]](set)
    for diagnosis in fixed.report.applied:
        for edit in diagnosis.fix.edits if diagnosis.fix else ():
            rules[edit.path].add(diagnosis.rule.name)
    return rules


def _example_cases(framework: Framework, at: Path) -> Iterator[Case]:
    for number, (rule, changed, stages) in enumerate(_fixed_examples()):
        for fixed, (files, runs) in zip(("", rule), stages, strict=True):
            root = at / f"{number}-{'after' if fixed else 'before'}"
            for name, path, run in _claimed(framework, runs, changed):
                _write(files, root)
                name = f"{rule} (example {number}), {name}"
                by = frozenset({fixed} - {""})
                yield Case(name, root, path, run, fixed, rule, by, framework.given)


_Stage: TypeAlias = tuple[Mapping[str, bytes], tuple[Run, ...]]


@cache
def _fixed_examples() -> tuple[tuple[str, frozenset[str], tuple[_Stage, _Stage]], ...]:
    """Rule, files that its fix changes, and all texts with the runs in them, before and after,
    of every example that has a fix."""
    found = []
    for rule in all_rules():
        for example in rule.bad:
            if example.fixed:
                before, after = (
                    {name: text.encode() for name, text in texts.items()}
                    for texts in (example.files, {**example.files, **example.fixed})
                )
                options = example_options(example)
                stages = (
                    (before, tuple(_runs(before, options))),
                    (after, tuple(_runs(after, options))),
                )
                found.append((rule.name, frozenset(example.fixed), stages))
    return tuple(found)


def fixable_rules() -> frozenset[str]:
    """Every rule with an example of what its fix writes."""
    return frozenset(rule.name for rule in all_rules() if any(each.fixed for each in rule.bad))


def _runs(files: Mapping[str, bytes], options: Options) -> Iterable[Run]:
    names = list(files)
    workspace = Workspace(Path("/oracle"), files)
    return lint(workspace, names, options, explicit=frozenset(names), rules=()).runs
