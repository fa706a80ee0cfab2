"""Hover texts: what a key comes to under the framework's loader, and what it costs in GiB."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from lsprotocol import types

from oomlint.dialects.config_files import config_of
from oomlint.dialects.setting import Origin
from oomlint.documents.base import Scalar
from oomlint.documents.text import Span
from oomlint.hardware import usable_bytes
from oomlint.judgement import Judgement, judgement_of
from oomlint.judgement.unpredicted import why_unpredicted
from oomlint.judgement.unread import ENDS
from oomlint.judgement.words import ending, meaning
from oomlint.linting.engine import Diagnosis, all_rules
from oomlint.linting.suppressions import suppressions
from oomlint.lsp.alternatives import Alternative, alternatives
from oomlint.lsp.candidates import joined
from oomlint.lsp.context import context_at
from oomlint.lsp.diagnostics import overlapping
from oomlint.lsp.help import in_words, sentences
from oomlint.lsp.keys import Key, keys_at
from oomlint.lsp.project import Analysis
from oomlint.lsp.settings_file import describe, is_settings, key_within
from oomlint.lsp.view import View
from oomlint.models import ModelFacts
from oomlint.plan.fields import below, f
from oomlint.report.markdown import escaped
from oomlint.report.why import account, basis_sentence, shown
from oomlint.runs.run import Run
from oomlint.wording.amounts import count, gib

# Runs that share a file are many where a script loops; the first few say enough.
_MOST_RUNS = 3
_MOST_BASES = 3
# Values that are shown a line each, and how many of those that cost the same are named.
_MOST_APART = 6
_MOST_NAMED = 4
_WORD = re.compile(r"[\w-]+")


def hover(view: View, position: types.Position) -> types.Hover | None:
    """What there is to say about a place of the document."""
    analysis = view.analysis
    positions = view.positions(analysis.name)
    offset = positions.offset(position)
    page = _page(analysis, offset)
    if page is not None:
        return _hover(page, None)
    if is_settings(analysis.name):
        return _setting(analysis, offset)
    keys = keys_at(analysis, offset)
    found = [_finding(d) for d in overlapping(analysis, Span(offset, offset))]
    if not keys:
        return _hover("\n\n".join(found), None) if found else None
    by_run: dict[str, list[Key]] = {}
    for key in keys:
        by_run.setdefault(key.run.name, []).append(key)
    parts = [_about(analysis, group) for group in list(by_run.values())[:_MOST_RUNS]]
    if len(by_run) > 1:
        parts = [f"#### {name}\n\n{part}" for name, part in zip(by_run, parts, strict=False)]
    if len(by_run) > _MOST_RUNS:
        parts.append(f"and {len(by_run) - _MOST_RUNS} further runs")
    parts += found
    entry = keys[0].entry
    return _hover("\n\n".join(parts), positions.range(Span(entry.span.start, entry.span.end)))


def _setting(analysis: Analysis, offset: int) -> types.Hover | None:
    """The setting of oomlint whose name, or whose value, stands under the caret."""
    source = analysis.source(analysis.name)
    line, _ = source.position(offset)
    span = source.line_span(line)
    name = source.text[span.start : span.end].partition("=")[0].rstrip()
    context = context_at(source, span.start + len(name))
    key = context and key_within(analysis.name, joined(context.path, context.typed))
    said = describe(key) if key else None
    return _hover(said, None) if said is not None else None


def _hover(text: str, range: types.Range | None) -> types.Hover:
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text), range)


def _page(analysis: Analysis, offset: int) -> str | None:
    """The page of the rule that an ignore comment names under the caret."""
    source = analysis.source(analysis.name)
    for comment in suppressions(analysis.workspace, analysis.name):
        if not comment.span.start <= offset <= comment.span.end:
            continue
        for word in _WORD.finditer(source.text, comment.span.start, comment.span.end):
            if word.start() <= offset <= word.end():
                for rule in all_rules(analysis.job.options.plugins):
                    if word.group() in (rule.name, rule.code):
                        return rule.page()
    return None


def _finding(diagnosis: Diagnosis) -> str:
    """What a finding has to say besides its title, which is all that its diagnostic shows."""
    finding = diagnosis.finding
    lines = [f"**{finding.rule.code} {finding.rule.name}**: {escaped(finding.message)}", ""]
    return "\n".join([*lines, *(f"- {escaped(detail)}" for detail in finding.details)]).rstrip()


def _about(analysis: Analysis, keys: list[Key]) -> str:
    key = keys[0]
    head = f"**`{key.row.key}`** · {key.run.framework}"
    lines = [line for one in keys for line in _value(one)]
    parts = [
        *filter(None, [sentences(key.row)]),
        *dict.fromkeys(lines),
        *_ends(judgement_of(key.run)),
        *_cost(analysis, key),
        *_basis(judgement_of(key.run)),
        *_notes(key),
    ]
    return "\n\n".join([head, *parts])


def _value(key: Key) -> Iterator[str]:
    """The value in force, and who says it if it is not this key."""
    run, field = key.run, key.row.field
    setting = run.settings.get(field)
    if setting is None:
        if field in run.unreadable:
            yield _known(run, field)
        return
    origin = setting.origin
    if origin.entry is key.entry or origin.block is None or origin.entry is None:
        yield f"Effective: `{in_words(setting.value)}`{_source(origin, key)}"
        yield _known(run, field)
    else:
        where = f"`{origin.entry.key}` in {_place(origin)}"
        yield f"Not in force: {where} overrides it with `{in_words(setting.value)}`."
    for name, value in _consequences(run, field):
        yield f"→ `{name}` = `{shown(value)}`, {account(run, name).word}"
    if field == f.model.id and run.model is not None:
        yield _model(run.model)


def _known(run: Run, field: Any) -> str:
    """How the value is known, and by what it counts, as ``oomlint why`` has it."""
    told = account(run, field)
    about = [f"`{' '.join(told.place.split())}`"] if told.place else []
    about += [escaped(told.source)] if told.source else []
    lines = [f"Known: {told.word} ({', '.join(about)})" if about else f"Known: {told.word}"]
    for condition in told.conditions:
        value = shown(run.cells[condition])
        lines.append(f"- `{condition}` = `{value}`, {escaped(account(run, condition).sentence)}")
    return "\n".join(lines)


def _ends(judgement: Judgement) -> Iterator[str]:
    """That the run never gets to need what is said of it."""
    if judgement.endings:
        yield f"The run {escaped(ending(judgement))}. Once that is mended:"


def _basis(judgement: Judgement) -> Iterator[str]:
    """What the prediction rests on, the widest swing first."""
    evidence = judgement.spoken.evidence
    found = () if evidence is None else evidence.rests_on
    bases = [basis for basis in found if basis.field not in ENDS]
    if not bases:
        return
    lines = [f"- {escaped(basis_sentence(basis))}" for basis in bases[:_MOST_BASES]]
    if len(bases) > _MOST_BASES:
        lines.append(f"- and {len(bases) - _MOST_BASES} more")
    yield "\n".join(["The prediction rests on:", "", *lines])


def _source(origin: Origin, key: Key) -> str:
    if origin.entry is key.entry:
        raw = key.block.value(key.entry.value)
        # The loader may see something else than the eye: PyYAML reads 1e-5 as text.
        node = key.entry.value
        written = isinstance(raw, str) and isinstance(node, Scalar) and node.plain
        return " (text to the loader)" if written and re.fullmatch(r"[\d.]+e[+-]?\d+", raw) else ""
    return f", from {origin.source}" if origin.source else f" ({origin.kind})"


def _consequences(run: Run, field: Any) -> list[tuple[str, Any]]:
    """Fields of the plan that follow from one of the framework's own, in the plan's order."""
    found = []
    for name in below(f):
        setting = run.settings.get(name)
        if setting is not None and field in setting.origin.inputs and name != field:
            value = run.plan.get(name)
            if value is not None and value is not False:
                found.append((name, value))
    return found[:6]


def _cost(analysis: Analysis, key: Key) -> Iterator[str]:
    judgement = judgement_of(key.run)
    forecast = judgement.spoken
    gpu, host = forecast.estimate.gpu.peak_bytes, forecast.estimate.host.peak_bytes
    if gpu is None:
        yield f"No prediction: {why_unpredicted(forecast)}."
        return
    limit = usable_bytes(forecast.hardware.gpu) if forecast.hardware else None
    of = f" of {gib(limit)}" if limit is not None else ""
    tried = alternatives(analysis, key)
    peaks = [
        (a.forecast.estimate.gpu.peak_bytes, a.forecast.estimate.host.peak_bytes) for a in tried
    ]
    if not any(known is not None and (known, ram) != (gpu, host) for known, ram in peaks):
        if tried:
            reading = f", {meaning(forecast)}" if forecast.because else ""
            yield f"Moves no predicted peak here ({gib(gpu)} per GPU{reading})."
        return
    reading = f"as meant, {escaped(meaning(forecast))}" if forecast.because else "as it is"
    rows = [f"| {reading} | {gib(gpu)}{of} | {gib(host)} |"]
    if judgement.meant is not None:
        written = judgement.written.estimate
        rows.append(
            f"| as written | {gib(written.gpu.peak_bytes)}{of} | {gib(written.host.peak_bytes)} |"
        )
    costs = [f"{_against(other, gpu)} | {_against(ram, host)}" for other, ram in peaks]
    rows += (f"| {values} | {cost} |" for values, cost in _by_cost(tried, costs))
    yield "\n".join(["| value | peak per GPU | per host |", "|---|---|---|", *rows])


def _by_cost(tried: Sequence[Alternative], costs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Values and their costs: a short list as it comes; a long one by the peak, together what costs
    the same."""
    if len(tried) <= _MOST_APART:
        yield from ((_as_typed(one), cost) for one, cost in zip(tried, costs, strict=True))
        return
    groups: dict[str, list[Alternative]] = {}
    for one, cost in zip(tried, costs, strict=True):
        groups.setdefault(cost, []).append(one)
    peaks = {cost: same[0].forecast.estimate.gpu.peak_bytes for cost, same in groups.items()}
    for cost in sorted(groups, key=lambda cost: (peaks[cost] is None, peaks[cost] or 0)):
        same = [_as_typed(one) for one in groups[cost]]
        more = len(same) - _MOST_NAMED
        yield ", ".join(same[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else ""), cost


def _as_typed(one: Alternative) -> str:
    """As it is typed; what is no value but words for one ("left out") as words."""
    return escaped(one.value) if re.search(r"[\s`|]", one.value) else f"`{one.value}`"


def _against(other: int | None, now: int | None) -> str:
    """A peak and by how much it differs."""
    if other is None:
        return "unknown"
    if now is None or other == now:
        return gib(other)
    return f"{gib(other)} ({'+' if other > now else '−'}{gib(abs(other - now))})"


def _notes(key: Key) -> Iterator[str]:
    row, config = key.row, config_of(key.block.table)
    source = config.spelled_out(row.source) if config is not None and row.source else row.source
    if row.default is not None:
        yield f"Default: `{in_words(row.default)}`" + (f" ({escaped(source)})" if source else "")
    elif source:
        yield f"Source: {escaped(source)}"


def _model(facts: ModelFacts) -> str:
    dims = facts.dims
    total = dims.params_total
    size = f"{count(total)} parameters, " if total else ""
    return f"{size}{dims.layers} layers, hidden size {dims.hidden}; from {facts.source}"


def _place(origin: Origin) -> str:
    assert origin.block is not None
    assert origin.entry is not None
    line, _ = origin.block.document.source.position(origin.entry.span.start)
    return f"{origin.block.path}:{line}"
