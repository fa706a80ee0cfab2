"""Where values come from, as a tree for people: the line, the derivation and its source, how well it
is known, and what it moves."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from msgspec import Struct

from oomlint.dialects.common.fields import library
from oomlint.judgement import judgement_of
from oomlint.judgement.evidence import Basis, level_of, moves, rests_on
from oomlint.judgement.unpredicted import why_unpredicted
from oomlint.judgement.unread import ENDS, in_words
from oomlint.plan.evidence import Level
from oomlint.plan.fields import path_of
from oomlint.plan.model import ModelDims
from oomlint.report.paint import Paint, visible
from oomlint.runs.run import Run
from oomlint.wording.amounts import count, gib

_PLAIN = Paint()
_WIDTH = 100
_DEPTH = 6
_LONGEST = 60

# What only decides which release of a library counts.
_PLUMBING = frozenset({path_of(library.bounds), path_of(library.sure_bounds)})

# How well it is known that what a file states counts for the run.
_COUNTS = {
    Level.FACT: "stated, and counts by what is known",
    Level.DEFAULT: "stated, and counts by default",
    Level.ASSUMED: "stated, and assumed to count",
    Level.UNREAD: "stated, and whether it counts was not read",
}

LEVEL_WORDS = {
    Level.MEASURED: "measured",
    Level.STATED: "stated",
    Level.FACT: "known",
    Level.DEFAULT: "default",
    Level.ASSUMED: "assumed",
    Level.UNREAD: "not read",
}


class ValueAccount(Struct, frozen=True):
    """How a value is known: ``word`` for how well, ``place`` where a file says it (``a.yaml:12``,
    and the key), ``source`` for what else says it. ``conditions`` are the fields by which it counts,
    of one that a file states and whose counting hangs on what is known less well."""

    word: str
    place: str
    source: str
    conditions: tuple[Any, ...] = ()

    @property
    def sentence(self) -> str:
        """``stated, and counts by default: a.py:4  max_seq_length``"""
        about = "; ".join(part for part in (self.place, self.source) if part)
        return f"{self.word}: {about}" if about else self.word


def account(run: Run, field: Any) -> ValueAccount:
    """How the run's value of a field is known."""
    level, setting, origin = run.level(field), run.settings.get(field), run.origin(field)
    place, source = _place(run, field), "" if origin is None else visible(origin.source)
    if setting is None and level is Level.UNREAD:
        return ValueAccount(LEVEL_WORDS[level], place, visible(in_words(run, field)))
    if not place or level not in _COUNTS:
        return ValueAccount(LEVEL_WORDS[level], place, source)
    conditions = tuple(root for root in run.roots(field) if root != field)
    return ValueAccount(_COUNTS[level], place, source, conditions)


def render(run: Run, field: Any | None, paint: Paint = _PLAIN) -> str:
    """The chain of one field, or of everything that the prediction rests on."""
    lines = _overview(run, paint) if field is None else _of_field(run, field, paint)
    return "".join(f"{line}\n" for line in lines)


def _overview(run: Run, paint: Paint) -> Iterator[str]:
    yield paint(visible(run.name), "bold")
    forecast = judgement_of(run).spoken
    for each in forecast.endings:
        where = f" ({visible(each.at.path)}:{each.line})" if each.line is not None else ""
        yield from wrap(
            f"It ends before its first step: {visible(each.why)}{where}.",
            _WIDTH,
            initial_indent="  ",
            subsequent_indent="    ",
        )
    if forecast.estimate.unknown:
        yield from wrap(
            f"There is no prediction: {why_unpredicted(forecast)}.",
            _WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
        )
        return
    bases = [basis for basis in rests_on(run) if basis.field not in ENDS]
    if not bases:
        level = LEVEL_WORDS[level_of(run)]
        yield f"  The prediction rests on what the files say and what is known (at worst: {level})."
        return
    yield "  The prediction rests on these values, the widest swing first:"
    for basis in bases:
        yield ""
        yield from _basis(run, basis, paint)
    yield ""
    yield f"  `oomlint why {visible(run.files[0]) if run.files else 'FILE'} FIELD` shows one of them."


def _basis(run: Run, basis: Basis, paint: Paint) -> Iterator[str]:
    style = "warning" if basis.level is Level.UNREAD else "info"
    how = paint(LEVEL_WORDS[basis.level], style)
    yield f"  {paint(str(basis.subject), 'bold')} = {shown(basis.value)}  {how}"
    place = _place(run, basis.field)
    if place:
        yield f"    {place}"
    yield from wrap(
        basis.why, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )
    if basis.swing_bytes:
        yield f"    {_swing(basis)}"


def _swing(basis: Basis) -> str:
    decides = ", which decides whether it fits" if basis.decides else ""
    return f"moves the peak of a GPU by up to {gib(basis.swing_bytes)}{decides}"


def basis_sentence(basis: Basis) -> str:
    """``load.dtype = fp32, assumed: nothing names a dtype; moves the peak of a GPU by …``"""
    text = (
        f"{basis.subject} = {shown(basis.value)}, {LEVEL_WORDS[basis.level]}: {visible(basis.why)}"
    )
    return f"{text}; {_swing(basis)}" if basis.swing_bytes else text


def _of_field(run: Run, field: Any, paint: Paint) -> Iterator[str]:
    yield paint(visible(run.name), "bold")
    yield from _node(run, field, "  ", paint, 0, set())
    swings = list(moves(run, field))
    if swings:
        yield ""
        yield "  what it moves, per GPU:"
        for value, peak in swings:
            yield f"    {shown(value):<16} {gib(peak)}"


def _node(
    run: Run, field: Any, indent: str, paint: Paint, depth: int, seen: set[Any]
) -> Iterator[str]:
    setting = run.settings.get(field)
    value = "nobody says" if setting is None else shown(setting.value)
    level = run.level(field)
    if setting is None and level is not Level.UNREAD:
        yield f"{indent}{field}: {value}"
        return
    value = "unknown" if setting is None else value
    style = "warning" if level >= Level.ASSUMED else "dim"
    told = account(run, field)
    yield f"{indent}{paint(str(field), 'bold')} = {value}  {paint(told.word, style)}"
    if told.place:
        yield f"{indent}  {told.place}"
    if told.source:
        yield from wrap(
            told.source if setting is None else f"by {told.source}",
            max(_WIDTH, len(indent) + 40),
            initial_indent=f"{indent}  ",
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
        )
    if depth == _DEPTH:
        return
    if told.conditions:
        yield f"{indent}  it counts by"
        for condition in told.conditions:
            yield from _node(run, condition, f"{indent}    ", paint, depth + 1, seen)
    if setting is None or setting.origin.location is not None:
        return
    reads = [
        read
        for read in run.inputs(field)
        if run.settings.get(read) is not None or run.level(read) is Level.UNREAD
    ]
    reads = [read for read in reads if path_of(read) not in _PLUMBING]
    if reads and field in seen:
        yield f"{indent}  (see above)"
        return
    seen.add(field)
    for read in reads:
        yield from _node(run, read, f"{indent}  ", paint, depth + 1, seen)


def _place(run: Run, field: Any) -> str:
    """``train.yaml:12  gradient_checkpointing``, where a file says the field."""
    origin = run.origin(field)
    location = origin.location if origin is not None else None
    if origin is None or location is None:
        return ""
    line, key = run.line_of(location), origin.key or ""
    if key.isdigit() and origin.row is not None:
        key = origin.row.key  # an argument that is given by its position
    return f"{visible(location.path)}:{line}  {visible(key)}".rstrip()


def shown(value: Any) -> str:
    """A value in a line for people."""
    if value is None:
        return "unknown"
    if isinstance(value, ModelDims):
        size = f", {count(value.params_total)} parameters" if value.params_total else ""
        if not value.layers:
            return size.removeprefix(", ") or "unknown"
        return f"{value.arch}, {value.layers} layers of {value.hidden}{size}"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = visible(", ".join(map(str, value)) if isinstance(value, tuple) else str(value))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
