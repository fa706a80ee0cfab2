"""The words of a judgement: its verdict, the needs at risk, the readings. They are made here and nowhere
else, so that a report, a page, an editor and a review say the same of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from oomlint.dialects.common.fields import shared
from oomlint.judgement.cards import cards_that_hold
from oomlint.judgement.severity import EVEN, Verdict
from oomlint.judgement.unpredicted import why_unpredicted
from oomlint.judgement.unread import WHOLE
from oomlint.plan.called import called
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.wording.amounts import gib, of_gib, percent

if TYPE_CHECKING:
    from oomlint.hardware import Hardware
    from oomlint.judgement.evidence import Basis
    from oomlint.judgement.forecast import Forecast
    from oomlint.judgement.judgement import Judgement
    from oomlint.judgement.peak import Peak

PHASE_WORDS: Mapping[str, str] = {
    "load": "loading",
    "forward": "forward",
    "backward": "backward",
    "optimizer_step": "optimizer step",
    "train": "training",
    "evaluation": "evaluation",
    "save": "saving",
}
_WHEN: Mapping[str, str] = {
    "load": "while loading",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer_step": "in the optimizer step",
    "train": "while training",
    "evaluation": "in evaluation",
    "save": "while saving",
}
_EACH: Mapping[str, str] = {"gpu": "per GPU", "host": "of host RAM a node"}

# Of a need with more room than this a reader asks what can be at risk: its upper bound.
_NEAR = 0.8


def when(phase: str | None) -> str:
    """``in the backward pass``"""
    return _WHEN.get(phase or "", "at the peak")


# -- the verdict -------------------------------------------------------------------------


class Wording(Struct, frozen=True):
    """A verdict's sign, and its words for one run and for several."""

    mark: str
    one: str
    many: str


# From the worst to what nobody can tell: first what never gets to need memory; of two for one verdict the first is of runs that rather die than not.
ENDS, DOES_NOT_FIT, PROBABLY_NOT, MAY_NOT_FIT, FITS, UNKNOWN = WORDINGS = (
    Wording("✗", "ends before its first step", "end before their first step"),
    Wording("✗", "does not fit", "do not fit"),
    Wording("!", "probably does not fit", "probably do not fit"),
    Wording("!", "may not fit", "may not fit"),
    Wording("✓", "fits", "fit"),
    Wording("?", "unknown whether it fits", "unknown whether they fit"),
)
_OF_VERDICT: Mapping[Verdict, Wording] = {
    "fits": FITS,
    "tight": MAY_NOT_FIT,
    "does_not_fit": DOES_NOT_FIT,
    "unknown": UNKNOWN,
}


def wording(judged: Forecast | Judgement) -> Wording:
    """What becomes of a run: that it ends before its first step comes before whether it would fit."""
    return ENDS if judged.endings else of_memory(judged)


def of_memory(judged: Forecast | Judgement) -> Wording:
    """The verdict on the memory of a run, of one that ends on what it would need once that is mended: one that is
    called tight fits, or dies, more likely than not."""
    is_lost = judged.risk is not None and judged.risk.is_lost
    found = _OF_VERDICT[judged.verdict]
    return PROBABLY_NOT if found is MAY_NOT_FIT and is_lost else found


def mark(judged: Forecast | Judgement) -> str:
    """``✗``"""
    return wording(judged).mark


def verdict_words(judged: Forecast | Judgement) -> str:
    """``does not fit``"""
    return wording(judged).one


def verdict_of_it(judged: Forecast | Judgement) -> str:
    """``it does not fit``, to stand behind a number."""
    words = of_memory(judged)
    return words.one if words is UNKNOWN else f"it {words.one}"


def verdict_with_reason(forecast: Forecast) -> str:
    """``does not fit``; of one that is open, what leaves it so; of one that ends, what ends it and what comes then."""
    return once_mended(forecast, left_open(forecast))


def ending(judged: Forecast | Judgement) -> str:
    """``ends before its first step: bf16 cannot be perhaps (and 1 more)``; empty of a run that gets there."""
    if not judged.endings:
        return ""
    more = len(judged.endings) - 1
    also = f" (and {more} more)" if more else ""
    return f"{ENDS.one}: {judged.endings[0].why}{also}"


def once_mended(judged: Forecast | Judgement, about: str = "") -> str:
    """``does not fit``, with what there is to say about it behind; of a run that ends before, that first: ``ends before its
    first step: …; once that is mended it does not fit``."""
    verdict = of_memory(judged).one + about
    return f"{ending(judged)}; {then(judged)}{verdict}" if judged.endings else verdict


def then(judged: Forecast | Judgement) -> str:
    """What stands between the end of a run and the verdict on its memory. An engine that starves wants more of the card:
    the verdict is not on what the run needs with that."""
    lead, it = once(judged), "" if judged.is_starved else " it"
    return f"{lead}, " if of_memory(judged) is UNKNOWN else f"{lead}{it} "


def once(judged: Forecast | Judgement) -> str:
    """``once that is mended``, of what a run that ends needs then."""
    return "the rest" if judged.is_starved else "once that is mended"


_UP_TO_DATA = "no file says how long its samples are; with short ones it fits"
_UP_TO_CODE = (
    "batches are as the project's own code was read; one sample at a time, checkpointed, fits"
)


def up_to(peak: Peak) -> str:
    """What would make a run fit that is at risk for its data, or for how its program makes batches, alone, in words; mostly
    nothing."""
    if peak.is_up_to_data:
        return _UP_TO_DATA
    return _UP_TO_CODE if peak.is_up_to_code else ""


# -- a need at risk ----------------------------------------------------------------------


def need(peak: Peak) -> str:
    """``needs 88.7 of 79.1 GiB per GPU in the backward pass (risk 71 %)``; where only what the
    prediction rests on is at risk, ``needs 13.7 of 79.1 GiB ..., and 90.2 if ... (risk 23 %)``."""
    return f"needs {_amount(peak, when(peak.phase))}{_or(peak)}{_risk(peak)}"


def short_need(peak: Peak, *, as_meant: bool, is_open: bool = False, most: int) -> str:
    """The same for a title of at most ``most`` characters: when it is needed gives way first, or to the
    words for how the files were read. One that ``is_open`` has no risk."""
    verb, risk = ("would need", "") if is_open else ("needs", _risk(peak))
    bare = f"{verb} {_amount(peak, 'as meant' if as_meant else '')}"
    shorter = [f"{bare}{_or(peak)}{risk}", f"{bare}{_or(peak, 'otherwise')}{risk}"]
    if not as_meant:
        shorter.insert(0, f"{verb} {_amount(peak, when(peak.phase))}{_or(peak)}{risk}")
    return next((text for text in shorter if len(text) <= most), shorter[-1])


def open_need(peak: Peak) -> str:
    """``would need 120 to 148 of 23.5 GiB per GPU in the backward pass``, of which nobody knows whether it comes to that."""
    return f"would need {_amount(peak, when(peak.phase))}{_or(peak)}"


def otherwise(peak: Peak) -> str:
    """``90.2 GiB if loading dtype is fp32``, the reading of the run that is at risk; mostly nothing."""
    other = peak.otherwise
    return "" if other is None else f"{gib(other.need)} if {other.words}"


def at_least(peak: Peak) -> str:
    """``38.1 GiB if no sample has more than 602 tokens``, the reading by which a run that dies by each of them needs
    least; mostly nothing."""
    return "" if peak.least is None else f"{gib(peak.least.need)} if {peak.least.words}"


def _amount(peak: Peak, when: str) -> str:
    assert peak.limit is not None
    amount = of_gib(peak.predicted, peak.limit)
    if peak.least is not None:
        amount = f"{_bare(peak.least.need)} to {amount}"
    elif peak.otherwise is None and peak.upper is not None and peak.predicted < _NEAR * peak.limit:
        amount = f"{_bare(peak.predicted)} to {of_gib(peak.upper, peak.limit)}"
    return " ".join(part for part in (amount, _EACH[peak.resource], when) if part)


def _or(peak: Peak, instead: str = "") -> str:
    """``, and 90.2 if loading dtype is fp32``, or with other words for the condition."""
    other = peak.otherwise
    return "" if other is None else f", and {_bare(other.need)} {instead or f'if {other.words}'}"


def _risk(peak: Peak) -> str:
    """`` (risk 97 %)``, and on what it hangs where that makes the run no certainty."""
    assert peak.risk is not None
    hangs = ""
    if peak.is_up_to_data:
        hangs = " with samples of full length"
    elif peak.is_up_to_code and peak.risk >= EVEN:
        hangs = " with batches as read"
    elif not peak.is_problem and peak.risk >= EVEN:
        hangs = " as assumed"
    return f" (risk {percent(peak.risk)}{hangs})"


def _bare(size: int) -> str:
    return gib(size).removesuffix(" GiB")


def in_trouble(judgement: Judgement) -> str:
    """The verdict on a run in trouble, in one line: what it needs, and by which reading."""
    is_open = bool(judgement.endings) and judgement.verdict == "unknown"
    said, verb = (open_need, "would need ") if is_open else (need, "needs ")
    needs = " and ".join(said(peak).removeprefix(verb) for peak in judgement.peaks)
    where = "" if judgement.hardware is None else f" {judgement.hardware.name}"
    text = once_mended(judgement, where) + (f": {verb}{needs}" if needs else "")
    return text if judgement.meant is None else f"{text}; {both_readings(judgement)}"


# -- what it rests on --------------------------------------------------------------------


def basis_words(basis: Basis) -> str:
    """``loading dtype is assumed to be fp32``, one thing that a prediction rests on; of what a file says
    that only may count for the run, which file it is."""
    if basis.field in (*WHOLE, shared.other_cards):
        return basis.why
    if basis.level is Level.UNREAD:
        return f"{basis.key} was not read"
    if basis.subject == f.versions and not basis.value:
        return "no file says which release of the framework runs"
    if basis.is_stated and basis.path is not None:
        return f"{basis.path} is taken to count for this run, which no file says"
    if basis.subject == f.model.dims and basis.value is None:
        return "the size of the vocabulary is assumed"
    if basis.subject == f.model.dims:
        return f"the model is assumed to have {basis.value} parameters"
    name = basis.key if basis.field == basis.subject else called(basis.subject) or basis.subject
    return (
        f"nobody says {name}" if basis.value is None else f"{name} is assumed to be {basis.value}"
    )


def resting_on_card(hardware: Hardware) -> str:
    """``the GPU is assumed to be A100-80GB; A100-40GB has 39.4 GiB``; empty of one that is named in full."""
    from oomlint.hardware import usable_bytes

    others = [f"{gpu.name} has {gib(usable_bytes(gpu))}" for gpu in hardware.smaller]
    return f"the GPU is assumed to be {hardware.gpu.name}; {', '.join(others)}" if others else ""


def elsewise(basis: Basis, peak: Peak | None) -> str:
    """``; otherwise 46.2 to 133 GiB``, of the need that is at risk, where a value is another; empty where it moves
    nothing."""
    found = basis.otherwise.get("gpu" if peak is None else peak.resource)
    if found is None:
        return ""
    least, most = found
    amounts = gib(most) if gib(least) == gib(most) else f"{_bare(least)} to {gib(most)}"
    return f"; otherwise {amounts}"


# -- readings ----------------------------------------------------------------------------


def meaning(forecast: Forecast) -> str:
    """``with sequence_length read as sequence_len``; empty of a run as it is written."""
    return f"with {' and '.join(forecast.because)}" if forecast.because else ""


def both_readings(judgement: Judgement) -> str:
    """``with sequence_length read as sequence_len; as written 18.8 GiB: it fits``"""
    written = judgement.written
    peak = gib(written.estimate.gpu.peak_bytes)
    return f"{meaning(judgement.spoken)}; as written {peak}: {verdict_of_it(written)}"


def other_reading(judgement: Judgement) -> str:
    """``as written: predicted peak 18.8 GiB per GPU …: fits …``; empty where there is one reading."""
    if judgement.meant is None:
        return ""
    return f"as written: {peaks(judgement.written)}: {_of_memory(judgement.written)[1]}"


# -- a run in one line -------------------------------------------------------------------


def sentence(forecast: Forecast) -> str:
    """``NAME: predicted peak 61.2 GiB per GPU (backward), 40 GiB per host: fits 8xA100-80GB …``"""
    return f"{forecast.name}: {peaks(forecast)}: {conclusion(forecast)}"


def verdict_first(forecast: Forecast) -> str:
    """``fits 8xA100-80GB: predicted peak 61.2 GiB per GPU (backward), 40 GiB per host (79.1 GiB usable …``, where
    the end of a line may be cut off; without a verdict as in a sentence."""
    hardware = forecast.hardware
    if hardware is None or forecast.estimate.gpu.peak_bytes is None:
        return f"{peaks(forecast)}: {conclusion(forecast)}"
    verdict = once_mended(forecast, f" {hardware.name}{left_open(forecast)}")
    return f"{verdict}: {peaks(forecast)} {limits(forecast, hardware)}"


def peaks(forecast: Forecast) -> str:
    gpu, host = forecast.estimate.gpu, forecast.estimate.host
    if gpu.peak_bytes is None:
        return "no prediction"
    phase = PHASE_WORDS.get(gpu.peak_phase or "", gpu.peak_phase)
    text = (
        f"predicted peak {gib(gpu.peak_bytes)} per GPU ({phase}), {gib(host.peak_bytes)} per host"
    )
    return f"{text} ({meaning(forecast)})" if forecast.because else text


def conclusion(forecast: Forecast) -> str:
    """What becomes of the run: what ends it, if anything does; what the numbers mean for the hardware, or which cards would
    do."""
    is_verdict, words = _of_memory(forecast)
    if not forecast.endings:
        return words
    if forecast.estimate.gpu.peak_bytes is None:
        words = f"no prediction: {words}"
    lead = then(forecast) if is_verdict else ""
    return f"{ending(forecast)}; {lead}{words}"


def without_prediction(forecast: Forecast) -> str:
    """``no prediction: the model acme/house is not known …``; of one that ends besides, that first."""
    return conclusion(forecast) if forecast.endings else f"no prediction: {conclusion(forecast)}"


def _of_memory(forecast: Forecast) -> tuple[bool, str]:
    """Whether there is a verdict, and it, or why there is none."""
    gpu = forecast.estimate.gpu
    if gpu.peak_bytes is None:
        return False, why_unpredicted(forecast)
    hardware = forecast.hardware
    if hardware is None:
        return False, f"hardware unknown; {_cards(gpu.peak_bytes)}"
    words = f"{of_memory(forecast).one} {hardware.name}"
    return True, f"{words} {limits(forecast, hardware)}{left_open(forecast)}"


def left_open(forecast: Forecast) -> str:
    """``: $TP has no value``, what leaves open whether the run fits: it was not read, or not known; of one that
    needs more by the prediction than there is, who says that it fits."""
    from oomlint.judgement import evidence

    if forecast.estimate.unknown:
        return f": {why_unpredicted(forecast)}"
    if forecast.because_of and forecast.verdict == "fits":
        return f": {forecast.because_of}"
    if forecast.verdict != "unknown":
        return ""
    if forecast.unfounded:
        return f": {forecast.unfounded}"
    if forecast.evidence is None:
        return ""
    words = evidence.left_open(forecast.evidence)
    return f": {words}" if words else ""


def limits(forecast: Forecast, hardware: Hardware) -> str:
    from oomlint.hardware import usable_bytes

    text = f"({gib(usable_bytes(hardware.gpu))} usable per GPU"
    for gpu in hardware.smaller:
        text += f", {_bare(usable_bytes(gpu))} if it is {gpu.name}"
    ram = forecast.host_limit
    return text + (f", {gib(ram)} per host)" if ram is not None else ")")


def _cards(peak: int) -> str:
    """The common cards of the smallest size that holds a peak."""
    cards = cards_that_hold(peak)
    names = [card.name for card in cards if card.nameplate_gb == cards[0].nameplate_gb]
    if not names:
        return "no common card holds it"
    return f"the smallest common cards that hold it: {', '.join(names)}"
