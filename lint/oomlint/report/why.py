"""Where values come from, as a tree for people: the line, the derivation and its source, how well it
is known, and what it moves."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from oomlint.dialects.common.fields import library
from oomlint.judgement.evidence import Basis, level_of, moves, rests_on
from oomlint.plan.evidence import Level
from oomlint.plan.fields import path_of
from oomlint.plan.model import ModelDims
from oomlint.report.paint import Paint, visible
from oomlint.rule import count, gib
from oomlint.run import Run

_PLAIN = Paint()
_WIDTH = 100
_DEPTH = 6
_LONGEST = 60

# What only decides which release of a library counts.
_PLUMBING = frozenset({path_of(library.bounds)})

_HOW = {
    Level.MEASURED: "measured",
    Level.STATED: "stated",
    Level.FACT: "known",
    Level.DEFAULT: "default",
    Level.ASSUMED: "assumed",
    Level.UNREAD: "not read",
}


def render(run: Run, field: Any | None, paint: Paint = _PLAIN) -> str:
    """The chain of one field, or of everything that the prediction rests on."""
    lines = _overview(run, paint) if field is None else _of_field(run, field, paint)
    return "".join(f"{line}\n" for line in lines)


def _overview(run: Run, paint: Paint) -> Iterator[str]:
    yield paint(visible(run.name), "bold")
    bases = rests_on(run)
    if not bases:
        level = _HOW[level_of(run)]
        yield f"  The prediction rests on what the files say and what is known (at worst: {level})."
        return
    yield "  The prediction rests on these values, the widest swing first:"
    for basis in bases:
        yield ""
        yield from _basis(run, basis, paint)
    yield ""
    yield f"  `oomlint why {visible(run.files[0]) if run.files else 'FILE'} FIELD` shows one of them."


def _basis(run: Run, basis: Basis, paint: Paint) -> Iterator[str]:
    value = "unknown" if basis.value is None else _shown(basis.value)
    style = "warning" if basis.level is Level.UNREAD else "info"
    yield f"  {paint(str(basis.leaf), 'bold')} = {value}  {paint(_HOW[basis.level], style)}"
    place = _place(run, basis.field)
    if place:
        yield f"    {place}"
    yield from wrap(
        basis.why, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )
    if basis.swing_bytes:
        decides = ", which decides whether it fits" if basis.decides else ""
        yield f"    moves the peak of a GPU by up to {gib(basis.swing_bytes)}{decides}"


def _of_field(run: Run, field: Any, paint: Paint) -> Iterator[str]:
    yield paint(visible(run.name), "bold")
    yield from _node(run, field, "  ", paint, 0, set())
    swings = list(moves(run, field))
    if swings:
        yield ""
        yield "  what it moves, per GPU:"
        for value, peak in swings:
            yield f"    {_shown(value):<16} {gib(peak)}"


def _node(
    run: Run, field: Any, indent: str, paint: Paint, depth: int, seen: set[Any]
) -> Iterator[str]:
    setting = run.settings.get(field)
    value = "nobody says" if setting is None else _shown(setting.value)
    level = run.level(field)
    if setting is None and level is not Level.UNREAD:
        yield f"{indent}{field}: {value}"
        return
    value = "unknown" if setting is None else value
    style = "warning" if level >= Level.ASSUMED else "dim"
    yield f"{indent}{paint(str(field), 'bold')} = {value}  {paint(_HOW[level], style)}"
    place = _place(run, field)
    if place:
        yield f"{indent}  {place}"
    origin = run.origin(field)
    if origin is not None and origin.source:
        yield from wrap(
            f"by {visible(origin.source)}",
            max(_WIDTH, len(indent) + 40),
            initial_indent=f"{indent}  ",
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
        )
    if origin is None or origin.location is not None or depth == _DEPTH:
        return
    if field in seen:
        yield f"{indent}  (see above)"
        return
    seen.add(field)
    for read in run.inputs(field):
        is_known = run.settings.get(read) is not None or run.level(read) is Level.UNREAD
        if is_known and path_of(read) not in _PLUMBING:
            yield from _node(run, read, f"{indent}  ", paint, depth + 1, seen)


def _place(run: Run, field: Any) -> str:
    """``train.yaml:12  gradient_checkpointing``, where a file says the field."""
    origin = run.origin(field)
    location = origin.location if origin is not None else None
    if origin is None or location is None:
        return ""
    line = run.line_of(location)
    return f"{visible(location.path)}:{line}  {visible(origin.key or '')}".rstrip()


def _shown(value: Any) -> str:
    if isinstance(value, ModelDims):
        size = f", {count(value.params_total)} parameters" if value.params_total else ""
        if not value.layers:
            return size.removeprefix(", ") or "unknown"
        return f"{value.arch}, {value.layers} layers of {value.hidden}{size}"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = visible(", ".join(map(str, value)) if isinstance(value, tuple) else str(value))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
