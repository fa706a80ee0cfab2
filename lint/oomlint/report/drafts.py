"""What a model needs that nobody has a config of yet: the prediction, where it fits, what lowers it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from oomlint.drafts import FittingDraft, RankLayout
from oomlint.hardware import usable_bytes
from oomlint.judgement import Forecast, Judgement, judgement_of
from oomlint.judgement.forecast import Bounded
from oomlint.judgement.planner import Lever
from oomlint.judgement.words import conclusion
from oomlint.memory import Assumption
from oomlint.plan.fields import f
from oomlint.report import estimates
from oomlint.report.paint import Paint
from oomlint.report.runs import run_object
from oomlint.report.wrapping import terminal_width, wrapped
from oomlint.wording.amounts import gib

if TYPE_CHECKING:
    from oomlint.report.shapes import EstimateShape, LeverShape, NewConfigShape, PlaceShape

_PLAIN = Paint()
# So many of each are for people; JSON has all.
_MOST_PLACES = 6
_MOST_LEVERS = 6

_METHODS = {"full": "all weights trained", "lora": "LoRA", "qlora": "QLoRA"}
_SHARED = {"zero2": "ZeRO stage 2", "zero3": "ZeRO stage 3", "fsdp": "FSDP"}


# By what the command line says otherwise. Browsers and scripts have words of their own for that.
_OPTIONS = {
    f.framework: "--framework",
    f.trainable.method: "--method",
    f.seq.max_len: "--length",
    f.batch.micro: "--batch",
    f.trainable.r: "--rank",
    f.parallel.backend: "--shard",
    f.parallel.gpus_per_node: "--hardware",
}


def _why(assumed: Assumption) -> str:
    """Why something was chosen, and how one says otherwise."""
    option = _OPTIONS.get(assumed.field)
    return f"{assumed.why}; {option} says otherwise" if option else assumed.why


class DraftReport(Struct, frozen=True):
    """A draft with all that is said of it."""

    found: FittingDraft
    judgement: Judgement
    places: Sequence[RankLayout]
    levers: Sequence[Lever]

    @classmethod
    def of(
        cls, found: FittingDraft, places: Sequence[RankLayout], levers: Sequence[Lever]
    ) -> DraftReport:
        return cls(found, judgement_of_draft(found), places, levers)


def judgement_of_draft(found: FittingDraft) -> Judgement:
    """The judgement of its run, under the name of its model, with what was chosen among the assumptions."""
    judged = judgement_of(found.draft.run)
    written = replace(
        judged.written,
        name=found.draft.wanted.model.name,
        files=(),
        ask=_assuming(judged.written, (*found.assumed, *judged.written.assumptions)),
    )
    return replace(judged, written=written)


def _assuming(forecast: Forecast, assumptions: tuple[Assumption, ...]) -> Bounded:
    return replace(forecast.bounded, assumptions=assumptions)


def render(answer: DraftReport, paint: Paint = _PLAIN) -> str:
    written = answer.judgement.written
    assumed = tuple(replace(each, why=_why(each)) for each in written.assumptions)
    judged = replace(answer.judgement, written=replace(written, ask=_assuming(written, assumed)))
    answer = replace(answer, judgement=judged)
    return "".join(line + "\n" for line in _body(answer, paint))


def _body(answer: DraftReport, paint: Paint) -> Iterator[str]:
    yield from _without_cards(estimates.render([answer.judgement], paint))
    yield ""
    yield from _places(answer)
    yield ""
    yield from _levers(answer)


def _without_cards(text: str) -> Iterator[str]:
    """The prediction without its words on cards, in place of which numbers of cards are listed."""
    for line in text.splitlines():
        if not line.startswith(("fits on:", "verdict: hardware unknown")):
            yield line


def _places(answer: DraftReport) -> Iterator[str]:
    if not answer.places:
        yield "smallest common cards that hold it: none, nor up to 16 nodes of 8"
        return
    yield "smallest common cards that hold it:"
    shown = answer.places[:_MOST_PLACES]
    width = max(len(place.option.hardware.name) for place in shown)
    for place in shown:
        hardware = place.option.hardware
        need, has = place.option.estimate.gpu.peak_bytes or 0, usable_bytes(hardware.gpu)
        shared = f", shared by {_SHARED[place.shard]}" if place.shard in _SHARED else ""
        yield f"  {hardware.name:<{width}}  {gib(need)} of {gib(has)} per GPU{shared}"


def _levers(answer: DraftReport) -> Iterator[str]:
    if not answer.levers:
        return
    yield "what lowers it most, each alone:"
    for lever in answer.levers[:_MOST_LEVERS]:
        given = f" (but {lever.move.gives_up})" if lever.move.gives_up else ""
        head = f"  {'-' + gib(lever.saving):>10}  "
        blank = " " * len(head)
        yield from wrapped(f"{lever.move.title}{given}", terminal_width(), head, blank)


def model_estimate_object(answer: DraftReport) -> EstimateShape:
    """The run as ``estimate`` prints any, beside it the cards and the changes."""
    made = answer.found.draft
    return {
        "version": 1,
        "runs": [run_object(answer.judgement)],
        "model": {"name": made.wanted.model.name, "source": made.wanted.model.facts.source},
        "cards": [_place_object(place) for place in answer.places],
        "lowers": [_lever_object(lever) for lever in answer.levers],
    }


def _place_object(place: RankLayout) -> PlaceShape:
    hardware = place.option.hardware
    return {
        "hardware": hardware.name,
        "gpu": hardware.gpu.name,
        "nodes": hardware.nodes,
        "gpus_per_node": hardware.gpus_per_node,
        "shard": place.shard,
        "gpu_bytes": place.option.estimate.gpu.peak_bytes,
        "usable_gpu_bytes": usable_bytes(hardware.gpu),
        "host_bytes": place.option.estimate.host.peak_bytes,
        "machines": list(place.option.machines),
    }


def _lever_object(lever: Lever) -> LeverShape:
    move = lever.move
    return {
        "title": move.title,
        "gives_up": move.gives_up or None,
        "changes": {str(name): value for name, value in move.changes.items()},
        "gpu_bytes": lever.estimate.gpu.peak_bytes,
        "saving_bytes": lever.saving,
    }


# -- new configs ------------------------------------------------------------------------------


def new_file(found: FittingDraft, file: str) -> str:
    """The text of a draft under comments that say what it was written for and how it is started."""
    made = found.draft
    need = made.run.estimate.gpu.peak_bytes or 0
    hardware = made.wanted.hardware
    assert hardware is not None, "a config is written for hardware"
    method = _METHODS[made.wanted.method or "lora"]
    predicted = f"{gib(need)} of {gib(usable_bytes(hardware.gpu))} per GPU, as oomlint predicts"
    head = [
        f"# {made.wanted.model.name} with {method} on {hardware.name}: {predicted}",
        f"# Yours to say: {made.skeleton.to_fill}. Start: {made.skeleton.command.format(file=file)}",
    ]
    text = made.text
    shebang = "#!/usr/bin/env bash\n" if made.skeleton.file.endswith(".sh") else ""
    return shebang + "".join(line + "\n" for line in head) + text


def new_config_object(found: FittingDraft) -> NewConfigShape:
    made = found.draft
    file = made.skeleton.file
    return {
        "file": file,
        "text": new_file(found, file),
        "command": made.skeleton.command.format(file=file),
        "to_fill": made.skeleton.to_fill,
        "changes": list(found.changes),
        "run": run_object(judgement_of_draft(found)),
    }


def told(found: FittingDraft, file: str, *, is_written: bool) -> str:
    """What was chosen for a new config, and why."""
    made, width = found.draft, terminal_width()
    judged = judgement_of_draft(found)
    lines = [f"{'wrote' if is_written else 'this is'} {file}: {conclusion(judged.spoken)}"]
    for title in found.changes:
        lines += wrapped(title, width, "  to make it fit: ", "    ")
    host = made.run.estimate.host.peak_bytes
    if judged.spoken.host_limit is None and host is not None:
        lines.append(f"  takes {gib(host)} of RAM a node; --host-memory has that judged, too")
    lines += _assumed(found, width)
    lines.append(f"  yours to say: {made.skeleton.to_fill}")
    lines.append(f"  start it with: {made.skeleton.command.format(file=file)}")
    return "".join(line + "\n" for line in lines)


def _assumed(found: FittingDraft, width: int) -> Iterator[str]:
    if found.assumed:
        yield "  chosen, since nobody says:"
    for each in found.assumed:
        yield from wrapped(f"{each.field} = {each.value}: {_why(each)}", width, "    ", "      ")


def nothing_fits(answer: DraftReport, hardware: str) -> str:
    """Why no config was written, and what would help."""
    made = answer.found.draft
    need = made.run.estimate.gpu.peak_bytes or 0
    method = _METHODS[made.wanted.method or "lora"]
    name = made.wanted.model.name
    why = f"{name} with {method} fits {hardware} in no way that is known"
    lines = [
        f"nothing was written: {why}; the least that was found is {gib(need)} per GPU",
        *_levers(answer),
        *_places(answer),
    ]
    return "".join(line + "\n" for line in lines)
