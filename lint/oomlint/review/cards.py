"""What the memory of runs is said to be, in one sentence for all runs that have one cause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from oomlint.judgement import Judgement, Peak
from oomlint.judgement.words import at_least, otherwise
from oomlint.report.markdown import SIGNS, escaped, sentence, verdict
from oomlint.review import blame
from oomlint.review.assess import Card, RunChange
from oomlint.review.blame import KeyBeforeAfter, Undo
from oomlint.wording.amounts import gib, percent

_MOST_NAMES = 3
_MOST_SAID = 2
_EACH = {"gpu": "per GPU", "host": "of host RAM a node"}


def sign(card: Card) -> str:
    """That of the worst verdict on its runs, which the table beside it names."""
    verdicts = {run.after.verdict for run in card.runs if run.after is not None}
    return SIGNS["error" if "does_not_fit" in verdicts else "warning"]


def headline(card: Card) -> str:
    """``stage 3 → 0 makes c1.yaml and c2.yaml need 128 to 149 of 79.1 GiB per GPU``, in Markdown."""
    who = names([run.name for run in card.runs])
    need = f"{_need(card)} {_EACH[card.resource]}"
    if not card.said:
        return f"{who} {'needs' if len(card.runs) == 1 else 'need'} {need}"
    return f"{_turned(card.said)} {who} need {need}"


def _need(card: Card) -> str:
    """What is needed of what there is."""
    need = span(_peaks(card, after=True))
    limits = [peak.limit for peak in _at_risk(card) if peak.limit is not None]
    return f"{need.removesuffix(' GiB')} of {span(limits)}" if limits else need


def numbers(card: Card) -> str:
    """What it was, and how likely the runs die of what it is."""
    was, peaks = _peaks(card, after=False), list(_at_risk(card))
    it = "It" if len(card.runs) == 1 else "Each"
    said = [f"{it} needed {span(was)} before"] if was else []
    risks = sorted({peak.risk for peak in peaks if peak.risk is not None})
    if risks:
        low, high = percent(risks[0]), percent(risks[-1])
        share = low if low == high else f"{low.removesuffix(' %')} to {high}"
        said.append(f"the risk of running out of memory is {share}")
    readings = (otherwise(peak) or at_least(peak) for peak in peaks)
    others = list(dict.fromkeys(filter(None, readings)))[:1]
    return sentence("; ".join((*said, *map(escaped, others)))) if said else ""


def way(card: Card, title: str) -> str:
    """What to do, in the imperative, and what the runs need then."""
    if not title:
        return ""
    resource = card.resource
    after = [peak for each in card.after.values() if (peak := blame.peak(each, resource))]
    text = f"**Fix:** {title}"
    if after:
        text += f"; then {span(after)}{_verdict(list(card.after.values()), len(card.runs))}"
    return text + ("." if card.keeps else " (what is trained changes).")


def rival(card: Card) -> str:
    """What putting lines back would do, where another way is better."""
    undo = card.undo
    if undo is None or card.puts_back:
        return ""
    then = span(p for j in undo.after.values() if (p := blame.peak(j, card.resource)))
    why = "" if undo.keeps else ", but that changes what is trained"
    if blame.worst(undo.after.values()) > blame.worst(card.after.values()):
        why = ", which is not enough"
    return f"Or {put_back(undo)}: then {then}{why}."


def put_back(undo: Undo) -> str:
    """``put stage back to 3``"""
    parts = [_back(said) for said in undo.said[: _MOST_SAID + 1]]
    if len(undo.said) > len(parts) or not parts:
        return "put the changed lines back"
    return " and ".join(parts)


def _back(said: KeyBeforeAfter) -> str:
    if not said.before:
        return f"take {code(said.key)} out"
    if not said.after:
        return f"put {code(f'{said.key}: {said.before}')} back in"
    return f"put {code(said.key)} back to {code(said.before)}"


def _turned(said: Sequence[KeyBeforeAfter]) -> str:
    """``stage 3 → 0 and adding cpu_offload make``"""
    parts = [_turn(each) for each in said[:_MOST_SAID]]
    if len(said) > _MOST_SAID:
        rest = len(said) - _MOST_SAID
        parts.append(f"{rest} more change{'' if rest == 1 else 's'}")
    return f"{_listed(parts)} {'makes' if len(said) == 1 else 'make'}"


def _turn(said: KeyBeforeAfter) -> str:
    if not said.before:
        return f"adding {code(f'{said.key}: {said.after}')}"
    if not said.after:
        return f"dropping {code(f'{said.key}: {said.before}')}"
    return f"{code(said.key)} {plain(said.before)} → {plain(said.after)}"


def names(found: Sequence[str]) -> str:
    """``c1.yaml, c2.yaml and 298 more runs``"""
    if len(found) <= _MOST_NAMES:
        return _listed([code(name) for name in found])
    shown = [code(name) for name in found[: _MOST_NAMES - 1]]
    return _listed([*shown, f"{len(found) - len(shown)} more runs"])


def code(text: str) -> str:
    """Text of a file as it is written, also in a table."""
    for sign, other in (("`", "'"), ("|", "¦")):
        text = text.replace(sign, other)
    return f"`{' '.join(text.split())}`"


def plain(text: str) -> str:
    """Text of a file as markup that says nothing else, and mentions nobody."""
    return quiet(escaped(text))


def quiet(text: str) -> str:
    """Text in which nobody is mentioned: names in it come from files that a stranger may write."""
    return text.replace("@", "@\u200b")


def news(runs: Sequence[RunChange]) -> str:
    """``c1.yaml and c2.yaml fit now: 26.7 GiB per GPU instead of 128 GiB``, of runs with one outcome."""
    first = runs[0]
    assert first.before is not None
    assert first.after is not None
    who, is_one = names([run.name for run in runs]), len(runs) == 1
    was, now = span(_of(runs, after=False)), span(_of(runs, after=True))
    what = f"{now} per GPU instead of {was}"
    if was == now:
        was, now = (span(_of(runs, after=after, resource="host")) for after in (False, True))
        what = f"{now} {_EACH['host']} instead of {was}"
    if was == now:
        what = f"{now} {_EACH['host']} as before"
    if first.after.outcome in ("unknown", "ends"):
        return f"{who}: {quiet(verdict(first.after.spoken))}"
    if first.after.verdict == "fits":
        fit = "fits" if is_one else "fit"
        change = f"still {fit}" if first.before.outcome == "fits" else f"{fit} now"
        return f"{who} {change}: {what}"
    return f"{who} {'needs' if is_one else 'need'} {what}, and {verdict(first.after.spoken)}"


def _of(
    runs: Iterable[RunChange], *, after: bool, resource: Literal["gpu", "host"] = "gpu"
) -> list[int]:
    judged = (run.after if after else run.before for run in runs)
    return [p for each in judged if each is not None and (p := blame.peak(each, resource))]


def _peaks(card: Card, *, after: bool) -> list[int]:
    judged = (run.after if after else run.before for run in card.runs)
    found = (blame.peak(each, card.resource) for each in judged if each is not None)
    return [peak for peak in found if peak is not None]


def _at_risk(card: Card) -> Iterable[Peak]:
    for run in card.runs:
        for peak in run.after.peaks if run.after is not None else ():
            if peak.resource == card.resource:
                yield peak


def _verdict(after: Sequence[Judgement], count: int) -> str:
    if any(each.hardware is None for each in after):
        return ""
    worst = blame.worst(after)
    if worst == 0:
        return f", and {'it fits' if count == 1 else 'they fit'}"
    return (
        ", which leaves open whether that fits",
        ", which may not be enough",
        ", still too much",
    )[worst - 1]


def span(sizes: Iterable[int]) -> str:
    """``128 to 149 GiB``"""
    found = sorted(sizes)
    if not found:
        return "an unknown amount"
    low, high = gib(found[0]), gib(found[-1])
    return low if low == high else f"{low.removesuffix(' GiB')} to {high}"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
