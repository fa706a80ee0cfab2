"""The lint itself: runs in, findings out. Selecting rules, suppressing, ordering.

:func:`lint` is the one path that the command line, the fixer, the language server and
the tests all take.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable, Mapping as MappingABC, MutableMapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.errors import FileError, InternalError, UsageError, in_words
from oomlint.files.workspace import Workspace
from oomlint.judgement import judgement_of
from oomlint.linting.diagnosis import Diagnosis as Diagnosis, Given, Told as Told
from oomlint.linting.endings import RulesOnEndings, beside_endings, is_of_a_sibling
from oomlint.linting.rule import Applicability, Finding, ListedRule, Rule, Severity
from oomlint.linting.suppressions import Suppression, suppressions, unused_findings
from oomlint.linting.unused_parts import UnusedParts
from oomlint.plugins import PluginError, dialects_in_force, rules_in_force
from oomlint.runs.elsewhere import Elsewhere, stand_in
from oomlint.runs.linked import Linked, LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

if TYPE_CHECKING:
    from oomlint.fix.agreement import Agreement
    from oomlint.fix.edits import Fix
    from oomlint.hardware import Hardware
    from oomlint.judgement import Judgement
    from oomlint.linting.baseline import Baseline


class Selection(Struct, frozen=True):
    """Which rules run: codes, code prefixes or names. The most specific word wins; of two
    that are equally specific, the one that ignores (as in Ruff).

    An empty ``select`` is every rule. Keys of ``per_file_ignores`` are patterns over display
    paths in which ``*`` matches across folders and ``**/`` also matches no folder at all.
    """

    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: MappingABC[str, tuple[str, ...]] = field(default_factory=dict)

    def takes(self, rule: type[Rule] | ListedRule) -> bool:
        words = (*(self.select or ("ALL",)), *self.extend_select)
        chosen = max(_match(word, rule) for word in words)
        refused = max((_match(word, rule) for word in self.ignore), default=0)
        return chosen > refused

    def believes(self, rule: type[Rule] | ListedRule) -> bool:
        """Whether the user does not ignore what a rule says; which rules are selected to be told of is no matter."""
        return replace(self, select=()).takes(rule)

    def ignored_in(self, rule: type[Rule], path: str) -> bool:
        return any(
            any(_match(word, rule) for word in words) and _path_matches(path, pattern)
            for pattern, words in self.per_file_ignores.items()
        )

    def check(self, rules: Iterable[ListedRule]) -> None:
        """Refuse words that name no rule.

        Raises:
            UsageError: with the nearest name.
        """
        from difflib import get_close_matches

        rules = list(rules)
        words = [*self.select, *self.extend_select, *self.ignore]
        words += [word for group in self.per_file_ignores.values() for word in group]
        for word in words:
            if any(_match(word, rule) for rule in rules):
                continue
            near = get_close_matches(word, [rule.name for rule in rules], n=1)
            near = near or get_close_matches(word, [r.code for r in rules], n=1, cutoff=0.8)
            hint = f"; did you mean {near[0]}?" if near else "; see `oomlint rules`"
            raise UsageError(f"no rule is called {word!r}{hint}")


def _match(word: str, rule: type[Rule] | ListedRule) -> int:
    """How specifically a word names a rule: 0 not at all, then ALL, prefix, full code or name."""
    if word == "ALL":
        return 1
    if word in (rule.name, rule.code):
        return 100
    if word.startswith(rule.code.rstrip("0123456789")) and rule.code.startswith(word):
        return 1 + len(word)
    return 0


def _path_matches(path: str, pattern: str) -> bool:
    head, folders, tail = pattern.partition("**/")
    if not folders:
        return fnmatchcase(path, pattern)
    return _path_matches(path, head + tail) or _path_matches(path, f"{head}*/{tail}")


class Options(Struct, frozen=True):
    """Everything besides the files that decides what a lint says."""

    selection: Selection = Selection()
    hardware: Hardware | None = None
    framework: str | None = None
    values: MappingABC[str, Any] = field(default_factory=dict)
    margin: float = 0.85
    as_written: bool = False
    """Whether misspelt keys do nothing, as in a run that is over; else findings speak of what they mean."""
    baseline: Baseline | None = None
    """Findings that are known and neither reported nor fixed."""
    plugins: tuple[str, ...] = ()
    """Folders (absolute) whose rules and dialects run too, if the user has allowed them."""
    profiles: str | None = None
    """The folder (absolute) in which the project would keep profiles of its own."""
    elsewhere: Elsewhere = Elsewhere()
    """What is known of runs that are linted apart and use some of the same files."""
    about: frozenset[str] | None = None
    """Display paths of the files that were asked about, if others were taken along to see what starts them: nothing is
    said of runs that take in none of these."""

    @property
    def link(self) -> LinkOptions:
        return LinkOptions(self.hardware, self.framework, self.values, self.margin, self.as_written)


class Results(Struct, frozen=True, eq=False):
    """What a lint came to, as far as reports tell it: of many files only the judgements of their runs are kept."""

    diagnoses: tuple[Told, ...]
    runs: tuple[Run | Judgement, ...]
    errors: tuple[FileError, ...]
    files_read: int
    workspace: Workspace
    recognised: MappingABC[str, str] = field(default_factory=dict)
    fixed: int = 0
    applied: tuple[Told, ...] = ()
    """Of a report after ``--fix``: what was found and fixed on the way."""
    gone: int = 0
    """How many findings more there were before, which nothing had to be done about of their own."""
    known: tuple[Told, ...] = ()
    """What the baseline keeps from being reported."""

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(path for run in self.runs for path in run.files))

    @property
    def all_errors(self) -> tuple[FileError, ...]:
        """The errors, with the bugs that were met where somebody asked for fixes: those of a rule once. A report tells them
        after the fixes that it shows."""
        failures = {d.rule: error for d in reversed(self.diagnoses) if (error := d.failure)}
        return (*self.errors, *reversed(failures.values()))

    def at_least(self, level: Severity) -> int:
        return sum(d.severity >= level for d in self.diagnoses)

    def fixable(self, level: Applicability) -> int:
        """Findings that have a fix to apply, of exactly this applicability."""
        fixes = (diagnosis.applicable for diagnosis in self.diagnoses)
        return sum(fix is not None and fix.applicability == level for fix in fixes)

    def exit_status(self, level: Severity) -> int:
        """0 nothing at or above ``level``, 1 findings, 3 a file could not be used, or oomlint itself failed."""
        if self.all_errors:
            return 3
        return 1 if self.at_least(level) else 0


class Report(Results, frozen=True, eq=False):
    """What a lint found, with the runs themselves."""

    diagnoses: tuple[Diagnosis, ...]
    runs: tuple[Run, ...]
    applied: tuple[Diagnosis, ...] = ()
    known: tuple[Diagnosis, ...] = ()
    opened: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()
    """Files that runs take in, so that they are none by themselves."""
    agreements: tuple[Agreement, ...] = ()
    """On changes of files that several runs use: what rules propose, then plans."""

    @property
    def may_be_fixed(self) -> bool:
        """Whether a finding may have a fix that is written, which :mod:`oomlint.fix.planned` decides; where not, it
        need not be imported."""
        return any(
            each.severity >= Severity.WARNING
            and each.run is not None
            and (each.finding.proposals or each.finding.is_of_need or each.finding.starves)
            for each in self.diagnoses
        )


def all_rules(folders: Sequence[str] = ()) -> tuple[type[Rule], ...]:
    """Every rule that can run, by code, those of plug-ins in ``folders`` included."""
    return tuple(rule.load() for rule in rules_in_force(folders).items)


def lint(
    workspace: Workspace,
    names: Sequence[str],
    options: Options,
    *,
    explicit: frozenset[str] = frozenset(),
    elsewhere: MappingABC[str, str] | None = None,
    rules: Sequence[type[Rule]] | None = None,
    progress: Callable[[int, int], None] | None = None,
    timings: MutableMapping[str, float] | None = None,
    others_train: bool = False,
    earlier: Iterable[Run] = (),
) -> Report:
    """Lint the files ``names`` (display paths).

    No exception leaves: what goes wrong with a file becomes an error of the report. ``elsewhere``
    are files that runs use which are not linted → one of these runs. Seconds spent in each rule,
    its fixes included, are added to ``timings`` by name; without ``timings`` a fix is worked out when somebody asks for
    it. ``others_train``: whether files beside these, which are linted apart, have runs.
    ``earlier``: the runs as they were when files stood otherwise, under the same options: of them what does not hang on
    those files is kept.
    """
    linked = link(
        workspace,
        names,
        options,
        explicit=explicit,
        elsewhere=elsewhere,
        earlier=earlier,
        others_train=others_train,
    )
    return judged(
        workspace,
        linked,
        options,
        rules=rules,
        progress=progress,
        timings=timings,
        others_train=others_train,
    )


def link(
    workspace: Workspace,
    names: Sequence[str],
    options: Options,
    *,
    explicit: frozenset[str] = frozenset(),
    elsewhere: MappingABC[str, str] | None = None,
    earlier: Iterable[Run] = (),
    others_train: bool = False,
) -> Linked:
    """The runs of the files ``names``, of which nothing is said yet; the rules are asked what ends them once somebody
    wants to know."""
    dialects = dialects_in_force(options.plugins, options.profiles)
    asked = RulesOnEndings(workspace, options)
    linker = Linker(workspace, dialects.items, replace(options.link, find_endings=asked))
    apart = {path: stand_in(path) for path in options.elsewhere.files}
    linked = linker.link(
        names, explicit=explicit, elsewhere={**(elsewhere or {}), **apart}, earlier=earlier
    )
    asked.unused = UnusedParts(linked, others_train=others_train)
    linked.errors[:0] = _named(workspace, dialects.errors)
    return linked if options.about is None else _about(linked, options.about)


def _about(linked: Linked, asked: frozenset[str]) -> Linked:
    """What was linked, without that which has nothing to do with the files that were asked about."""

    def concerns(run: Run) -> bool:
        return not asked.isdisjoint(run.sources)

    runs, asides, merges = (
        [run for run in each if concerns(run)]
        for each in (linked.runs, linked.asides, linked.merges)
    )
    told = asked.union(*(run.sources for run in (*runs, *asides, *merges)))
    return replace(
        linked,
        runs=runs,
        asides=asides,
        merges=merges,
        errors=[error for error in linked.errors if error.path in told],
        recognised={path: name for path, name in linked.recognised.items() if path in told},
    )


def judged(
    workspace: Workspace,
    linked: Linked,
    options: Options,
    *,
    rules: Sequence[type[Rule]] | None = None,
    progress: Callable[[int, int], None] | None = None,
    timings: MutableMapping[str, float] | None = None,
    others_train: bool = False,
) -> Report:
    """What the rules find in runs that were linked in the workspace, under the same options."""
    errors = list(linked.errors)
    listed = tuple(map(ListedRule.of, rules or ()))
    if rules is None and (linked.runs or linked.asides or linked.merges):
        in_force = rules_in_force(options.plugins)
        listed = in_force.items
        errors = [*_named(workspace, in_force.errors), *errors]
    chosen = [rule for rule in listed if options.selection.takes(rule)]
    found: list[Diagnosis] = []
    failed: set[ListedRule] = set()
    runs = [run for run in linked.runs if _can_be_judged(run, errors)]
    unused = UnusedParts(linked, others_train=others_train)
    for number, run in enumerate(runs):
        found += _check(run, chosen, options, errors, failed, timings, unused)
        if progress is not None:
            progress(number + 1, len(runs))
    for aside in linked.asides:
        found += _check(aside, chosen, options, errors, failed, timings, unused)
    about_merges = [rule for rule in chosen if rule.looks_at_merges]
    for job in linked.merges:
        found += _check(job, about_merges, options, errors, failed, timings, unused)
    sound = [rule for rule in chosen if rule not in failed]
    kept = _suppressed(workspace, linked, found, sound, options)
    kept, agreements = _agreed(kept, runs, options.elsewhere)
    kept = sorted(_distinct(kept, options.elsewhere.told), key=order_of)
    known: list[Diagnosis] = []
    if options.baseline is not None:
        kept, known = options.baseline.split(kept, workspace)
    return Report(
        diagnoses=tuple(kept),
        runs=tuple(runs),
        errors=distinct_errors(errors),
        files_read=len(linked.opened),
        workspace=workspace,
        recognised=linked.recognised,
        known=tuple(known),
        opened=linked.opened,
        taken=linked.taken,
        agreements=agreements,
    )


def _named(workspace: Workspace, errors: Iterable[PluginError]) -> Iterable[PluginError]:
    """The errors with folders as paths are displayed."""
    for error in errors:
        is_folder = os.path.isabs(error.path)
        yield PluginError(workspace.name(error.path), error.message) if is_folder else error


def distinct_errors(errors: Iterable[FileError]) -> tuple[FileError, ...]:
    """Each error once: plug-ins speak for their rules and for their dialects."""
    seen = {(error.path, error.message): error for error in reversed(list(errors))}
    return tuple(reversed(seen.values()))


def _can_be_judged(run: Run, errors: list[FileError]) -> bool:
    """Whether a run's judgement can be made, which every surface asks for; a bug in it must not cost the user what is
    found in other runs."""
    try:
        judgement_of(run)
    except Exception as error:
        path = run.claims[0].path if run.claims else run.name
        reason = f"predicting what it needs failed: {in_words(error)}; nothing is said of this run"
        errors.append(InternalError(path, reason))
        return False
    return True


def _check(
    run: Run,
    rules: Sequence[ListedRule],
    options: Options,
    errors: list[FileError],
    failed: set[ListedRule],
    timings: MutableMapping[str, float] | None,
    unused: UnusedParts,
) -> Iterable[Diagnosis]:
    found: list[Finding] = []
    for rule in rules:
        start = 0.0 if timings is None else perf_counter()
        try:
            for made in rule.check(run):
                finding = unused.told(made, run)
                if is_of_a_sibling(finding, run):
                    continue
                if not options.selection.ignored_in(finding.rule, finding.location.path):
                    found.append(finding)
        except Exception as error:  # a rule's bug must not cost the user the other rules
            failed.add(rule)
            path = run.claims[0].path if run.claims else run.name
            whose = f" of the plug-in {rule.origin}" if rule.origin else ""
            errors.append(InternalError(path, f"rule {rule.name}{whose} failed: {in_words(error)}"))
        if timings is not None:
            timings[rule.name] = timings.get(rule.name, 0.0) + perf_counter() - start
    for finding in beside_endings(found, run):
        diagnosis = Diagnosis(finding, run, partial(_fix_for, run, finding))
        if timings is not None:
            start, name = perf_counter(), finding.rule.name
            diagnosis = replace(diagnosis, ask=Given(diagnosis.fix))
            timings[name] = timings.get(name, 0.0) + perf_counter() - start
        yield diagnosis


def refusals(run: Run, rules: Iterable[ListedRule]) -> frozenset[str]:
    """Names of the rules that warn of something other than memory, settings that the framework
    refuses, ignores or crashes on, or that are sure of an error whatever it is."""
    found = set()
    for rule in rules:
        try:
            findings = list(rule.check(run))
        except Exception:  # reported where the rule runs for the user
            continue
        if any(
            f.severity >= (Severity.WARNING if f.resource is None else Severity.ERROR)
            for f in findings
        ):
            found.add(rule.name)
    return frozenset(found)


def _fix_for(run: Run, finding: Finding) -> Fix | None:
    """What mends a finding; what works that out is imported where there is anything to work out."""
    with suppress(Exception):  # a bug is met again, and told, where the fix is worked out
        if not finding.proposals:
            return None
    from oomlint.fix.proposed import fix_for

    return fix_for(run, finding)


def _agreed(
    found: list[Diagnosis], runs: Sequence[Run], elsewhere: Elsewhere
) -> tuple[list[Diagnosis], tuple[Agreement, ...]]:
    """The findings, where of runs that share files the fixes that all of these take change the files."""
    if not any(d.run is not None and d.run.parts.shared for d in found):
        return found, ()
    from oomlint.fix.agreement import with_agreement

    agreed, agreement = with_agreement(found, runs, elsewhere.wanted[0])
    return agreed, (agreement,)


def _distinct(found: Iterable[Diagnosis], told: Sequence[str]) -> list[Diagnosis]:
    """One diagnosis per place and message, none of what is told elsewhere: runs that share a file would repeat it. Of
    several the severest speaks, the first of those: what is a remark for one run may stop another."""
    seen: dict[tuple[Any, ...], list[Diagnosis]] = {}
    for diagnosis in found:
        finding = diagnosis.finding
        same = seen.setdefault((finding.rule.code, finding.location, finding.message), [])
        same.append(diagnosis)
    ordered = [sorted(same, key=lambda each: -each.severity) for same in seen.values()]
    return [
        first if not others else replace(first, others=tuple(o.run.name for o in others if o.run))
        for first, *others in ordered
        if not told or said_once(first.finding) not in told
    ]


def said_once(finding: Finding) -> str:
    """What two findings have alike that say the same of the same place."""
    place = finding.location
    return repr((finding.rule.code, place.path, place.span.start, place.span.end, finding.message))


def _suppressed(
    workspace: Workspace,
    linked: Linked,
    found: list[Diagnosis],
    rules: Sequence[ListedRule],
    options: Options,
) -> list[Diagnosis]:
    """Drop what comments in the files ask to ignore; report comments that ignore nothing."""
    paths = {path for run in linked.runs for path in run.files}
    paths |= {d.finding.location.path for d in found}
    comments: dict[str, tuple[Suppression, ...]] = {
        path: suppressions(workspace, path) for path in sorted(paths)
    }
    if not any(comments.values()):
        return found
    used: set[Suppression] = set()
    kept = []
    for diagnosis in found:
        hit = next((s for s in _candidates(comments, diagnosis) if s.covers(diagnosis.rule)), None)
        if hit is None:
            kept.append(diagnosis)
        else:
            used.add(hit)
    unused = unused_findings(comments, used, rules, rules_in_force(options.plugins).items)
    kept += [
        Diagnosis(finding, None, Given(fix))
        for finding, fix in unused
        if not options.selection.ignored_in(finding.rule, finding.location.path)
    ]
    return kept


def _candidates(
    comments: MappingABC[str, tuple[Suppression, ...]], diagnosis: Diagnosis
) -> Iterable[Suppression]:
    finding = diagnosis.finding
    for location in (finding.location, *(note.location for note in finding.notes)):
        for suppression in comments.get(location.path, ()):
            if suppression.reaches(location.span.start):
                yield suppression


def order_of(diagnosis: Told) -> tuple[Any, ...]:
    """The order in which findings are told."""
    location = diagnosis.finding.location
    return (location.path, location.span.start, -diagnosis.severity, diagnosis.rule.code)
