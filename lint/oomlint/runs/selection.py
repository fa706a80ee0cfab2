"""Which of the runs that were found are runs of training, told once and by a name of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping as MappingABC, Sequence
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.base import Claim
from oomlint.documents.base import DataDocument
from oomlint.documents.text import Location
from oomlint.plan import Plan
from oomlint.plan.fields import f
from oomlint.runs.claimed import configs_of
from oomlint.runs.run import Run


def read_by_their_scripts(runs: list[Run]) -> Iterator[Run]:
    """Runs without those that take for a framework's own config what the script that the same command
    starts loads itself."""
    loaded: dict[Location, set[str]] = {}
    for run in runs:
        paths = {path for claim in run.claims for path in configs_of(claim)}
        loaded.setdefault(run.anchor, set()).update(paths)
    for run in runs:
        named = {claim.path for claim in run.claims if claim.kind == "run"}
        if not named & loaded[run.anchor]:
            yield run


def without_read(run: Run) -> Claim | None:
    """The claim that a run came of, without a reference to what a script of the run loads itself."""
    root, read = run.parts.root, {path for claim in run.claims for path in configs_of(claim)}
    if root is None:
        return None
    named = {id(claim.named) for claim in run.claims if claim.kind == "run" and claim.path in read}
    return replace(root, references=tuple(r for r in root.references if id(r) not in named))


def trains(run: Run) -> bool:
    """Whether a launch line says anything about training, or starts something that does."""
    if not is_borne_out(run.claims) or not run.dialect.trains(run.cells):
        return False
    if any(claim.kind == "run" for claim in run.claims):
        return True
    if any(_is_idle(claim) for claim in run.claims):
        return False
    if any(block.table.section == "training" for block, _ in run.parts.blocks):
        return True
    # Any script may be started with a launcher's config; one that names its own is training.
    optional = any(r.optional for claim in run.claims for r in claim.references)
    return bool(run.missing) and not optional


def is_borne_out(claims: Sequence[Claim]) -> bool:
    """Whether the files that decide on the claims of a run are what they were taken for."""
    reached = {id(claim.named) for claim in claims}
    deciding = (r for claim in claims for r in claim.references if r.decides)
    return all(id(reference) in reached for reference in deciding)


def best_known(runs: Sequence[Run]) -> Iterator[Run]:
    """The runs, but of a command that several dialects claim only those of one whose claim the
    program or the config that it starts bears out: the others know the command alone."""
    proven = {_command_of(run) for run in runs if _is_proven(run)}
    for run in runs:
        if _is_proven(run) or _command_of(run) not in proven:
            yield run


def asked_to_train(runs: Sequence[Run]) -> Iterator[Run]:
    """The runs, of a script that some command asks to train without those of commands that ask it for something else
    (``score.py annotate`` beside ``score.py train``)."""
    ways: dict[Location, list[Run]] = {}
    for run in runs:
        ways.setdefault(run.anchor, []).append(run)
    for run in runs:
        alike = ways[run.anchor]
        if len(alike) == 1 or _is_asked(run) or not any(map(_is_asked, alike)):
            yield run


def _is_asked(run: Run) -> bool:
    return run.dialect.is_asked(run.cells)


def _command_of(run: Run) -> Location | None:
    return None if run.parts.root is None else run.parts.root.anchor


def _is_proven(run: Run) -> bool:
    return any(r.decides for claim in run.claims for r in claim.references)


def _is_idle(claim: Claim) -> bool:
    """Whether a claim is on a config that makes its framework do something else than train."""
    return claim.kind == "aside" and not claim.blocks and isinstance(claim.document, DataDocument)


def without_repeats(runs: list[Run]) -> Iterator[Run]:
    """Runs of one line that differ in more than where they save and in which of the models they take
    that others save so: a loop over seeds is one."""
    seen: dict[Location, list[Plan]] = {}
    for run in runs:
        same: dict[Any, Any] = {f.save.dir: None}
        if run.model is not None and run.model.saved_by:
            same[f.model.id] = run.model.id
        plan = run.plan.with_values(same)
        known = seen.setdefault(run.anchor, [])
        if plan not in known:
            known.append(plan)
            yield run


def note_shared(runs: Iterable[Run], elsewhere: MappingABC[str, str]) -> None:
    """Tell every run which of the files that it names are not its alone."""
    users: dict[str, list[str]] = {path: [name] for path, name in elsewhere.items()}
    runs = list(runs)
    for run in runs:
        for path in run.sources:
            users.setdefault(path, []).append(run.name)
    shared = {path: tuple(names) for path, names in users.items() if len(names) > 1}
    for run in runs:
        named = (claim.path for claim in run.claims if claim.named is not None)
        run.parts.shared.update((path, shared[path]) for path in named if path in shared)


def distinctly_named(runs: list[Run]) -> list[Run]:
    """Runs whose names tell them apart: a line number is added where a script starts several,
    and a count where one line does."""
    repeated: dict[str, int] = {}
    counts: dict[str, int] = {}
    for run in runs:
        counts[run.name] = counts.get(run.name, 0) + 1
    out = []
    for run in runs:
        if counts[run.name] > 1:
            claim = next((c for c in run.claims if c.kind == "launch"), run.claims[0])
            line, _ = claim.document.source.position(claim.anchor.span.start)
            name = f"{run.name} ({claim.started_by or f'{claim.path}:{line}'})"
            repeated[name] = repeated.get(name, 0) + 1
            name += f" #{repeated[name]}" if repeated[name] > 1 else ""
            run = replace(run, name=name, plan=replace(run.plan, name=name))
        out.append(run)
    return out
