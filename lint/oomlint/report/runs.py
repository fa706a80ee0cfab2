"""A run's prediction as JSON, and as one line for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from oomlint.hardware import Gpu, Hardware, common_cards, usable_bytes
from oomlint.judgement import Cause, Forecast, Judgement, Risk
from oomlint.judgement.unpredicted import why_unpredicted
from oomlint.plan import plan_to_dict
from oomlint.rule import gib

if TYPE_CHECKING:
    from oomlint.documents.text import Edit
    from oomlint.fix.edits import Fix
    from oomlint.judgement.evidence import Evidence
    from oomlint.report.shapes import (
        CauseShape,
        EditShape,
        EvidenceShape,
        GpuShape,
        HardwareShape,
        HostShape,
        RiskShape,
        RunShape,
        WayOutShape,
    )

# A card is said to hold a run if a twentieth of it stays free, as the rules judge it.
_ROOM = 0.95

PHASE_WORDS: Mapping[str, str] = {
    "load": "loading",
    "forward": "forward",
    "backward": "backward",
    "optimizer_step": "optimizer step",
    "train": "training",
    "evaluation": "evaluation",
    "save": "saving",
}


def run_object(judgement: Judgement, way: Fix | None = None) -> RunShape:
    """The run as the JSON of reports has it: as it is written and, where a key is misspelt, as it is
    meant; ``way`` is the one way out of its trouble."""
    forecast, meant = judgement.written, judgement.meant
    return {
        "name": forecast.name,
        "framework": forecast.framework,
        "files": list(forecast.files),
        "plan": plan_to_dict(forecast.plan),
        "hardware": hardware_object(forecast.hardware, forecast.host_limit),
        "gpu": _gpu(forecast),
        "host": _host(forecast),
        "disk": {"checkpoint_bytes": forecast.estimate.disk_checkpoint_bytes},
        "assumptions": [
            {"field": a.field, "value": a.value, "why": a.why} for a in forecast.assumptions
        ],
        "verdict": forecast.verdict,
        "risk": risk_object(forecast.risk),
        "evidence": None if forecast.evidence is None else evidence_object(forecast.evidence),
        "as_meant": None
        if meant is None
        else {
            "because": list(meant.because),
            "gpu": _gpu(meant),
            "host": _host(meant),
            "risk": risk_object(meant.risk),
            "verdict": meant.verdict,
        },
        "causes": [cause_object(cause) for cause in judgement.causes],
        "way": None if way is None else way_object(judgement, way),
    }


def _gpu(forecast: Forecast) -> GpuShape:
    gpu, seen = forecast.estimate.gpu, forecast.first_seen
    return {
        "peak_bytes": gpu.peak_bytes,
        "low_bytes": gpu.low_bytes,
        "high_bytes": gpu.high_bytes,
        "reserved_bytes": gpu.reserved_bytes,
        "peak_phase": gpu.peak_phase,
        "phases": dict(gpu.phases),
        "components": dict(gpu.components),
        "phase_components": {phase: dict(parts) for phase, parts in gpu.by_phase.items()},
        "first_seen": {phase: seen[phase] for phase in gpu.phases},
    }


def _host(forecast: Forecast) -> HostShape:
    host, seen = forecast.estimate.host, forecast.first_seen
    return {
        "peak_bytes": host.peak_bytes,
        "low_bytes": host.low_bytes,
        "high_bytes": host.high_bytes,
        "peak_phase": host.peak_phase,
        "phases": dict(host.phases),
        "components": dict(host.components),
        "phase_components": {phase: dict(parts) for phase, parts in host.by_phase.items()},
        "first_seen": {phase: seen[phase] for phase in host.phases},
    }


def risk_object(risk: Risk | None) -> RiskShape | None:
    """``None`` where it is not known whether the run fits."""
    if risk is None or risk.any is None:
        return None

    def rounded(value: float | None) -> float | None:
        return None if value is None else round(value, 3)

    return {"gpu": rounded(risk.gpu), "host": rounded(risk.host), "any": round(risk.any, 3)}


def cause_object(cause: Cause) -> CauseShape:
    return {
        "code": cause.code,
        "name": cause.name,
        "component": cause.component,
        "bytes": cause.size,
        "path": cause.at.path,
        "line": cause.line,
        "remedy": cause.remedy,
    }


def way_object(judgement: Judgement, way: Fix) -> WayOutShape:
    return {
        "title": way.title,
        "applicability": cast("Any", way.applicability.label),
        "changes": dict(way.changes),
        "gpu_bytes": way.gpu_bytes_after,
        "host_bytes": way.host_bytes_after,
        "edits": [edit_object(edit) for edit in way.edits],
        "command": fit_command(judgement),
    }


def fit_command(judgement: Judgement) -> str:
    """What to type to have the way out: it is the first of ``oomlint fit`` on the same machine."""
    words = ["oomlint", "fit", judgement.files[0] if judgement.files else judgement.name]
    if judgement.hardware is not None:
        words += ["--hardware", judgement.hardware.name]
    if judgement.written.host_limit is not None:
        words += ["--host-memory", f"{judgement.written.host_limit / 2**30:g}GiB"]
    from shlex import join

    return join([*words, "--apply", "1"])


def edit_object(edit: Edit) -> EditShape:
    shape: EditShape = {
        "path": edit.path,
        "start": edit.start,
        "end": edit.end,
        "replacement": edit.replacement,
    }
    if edit.creates:
        shape["creates"] = True
    return shape


def evidence_object(evidence: Evidence) -> EvidenceShape:
    """What a prediction rests on besides what is written and known."""
    return {
        "level": cast("Any", evidence.level.word),
        "rests_on": [
            {
                "field": str(basis.leaf),
                "value": basis.value,
                "level": cast("Any", basis.level.word),
                "why": basis.why,
                "path": basis.path,
                "line": basis.line,
                "swing_bytes": basis.swing_bytes,
            }
            for basis in evidence.rests_on
        ],
    }


def hardware_object(hardware: Hardware | None, host_bytes: int | None) -> HardwareShape | None:
    if hardware is None:
        return None
    gpu = hardware.gpu
    driver = gpu.driver_total_mib
    return {
        "name": hardware.name,
        "nodes": hardware.nodes,
        "gpus_per_node": hardware.gpus_per_node,
        "gpu": gpu.name,
        "gpu_bytes": None if driver is None else driver * 2**20,
        "usable_gpu_bytes": usable_bytes(gpu),
        "host_bytes_per_node": host_bytes or hardware.host_bytes_per_node,
        "source": hardware.source,
    }


def smallest_cards(peak: int) -> list[Gpu]:
    """The common cards of the smallest size that holds a peak; none if no card does."""
    fitting = [card for card in common_cards() if usable_bytes(card) * _ROOM >= peak]
    return [card for card in fitting if card.nameplate_gb == fitting[0].nameplate_gb]


def sentence(forecast: Forecast) -> str:
    """``NAME: predicted peak 61.2 GiB per GPU (backward), 40 GiB per host: fits 8xA100-80GB …``"""
    return f"{forecast.name}: {peaks(forecast)}: {conclusion(forecast)}"


def peaks(forecast: Forecast) -> str:
    gpu, host = forecast.estimate.gpu, forecast.estimate.host
    if gpu.peak_bytes is None:
        return "no prediction"
    phase = PHASE_WORDS.get(gpu.peak_phase or "", gpu.peak_phase)
    text = (
        f"predicted peak {gib(gpu.peak_bytes)} per GPU ({phase}), {gib(host.peak_bytes)} per host"
    )
    return f"{text} ({meaning(forecast)})" if forecast.because else text


def meaning(forecast: Forecast) -> str:
    """``with sequence_length read as sequence_len``; empty of a run as it is written."""
    return f"with {' and '.join(forecast.because)}" if forecast.because else ""


def other_reading(judgement: Judgement) -> str:
    """``as written: predicted peak 18.8 GiB per GPU …: fits …``; empty where there is one reading."""
    if judgement.meant is None:
        return ""
    return f"as written: {peaks(judgement.written)}: {conclusion(judgement.written)}"


def conclusion(forecast: Forecast) -> str:
    """What the numbers mean for the hardware, or which cards would do."""
    gpu = forecast.estimate.gpu
    if gpu.peak_bytes is None:
        return why_unpredicted(forecast)
    hardware = forecast.hardware
    if hardware is None:
        return f"hardware unknown; {_cards(gpu.peak_bytes)}"
    return f"{_verdict_words(forecast, hardware)} {limits(forecast, hardware)}{left_open(forecast)}"


def left_open(forecast: Forecast) -> str:
    """``: $TP has no value``, what leaves open whether the run fits: it was not read, or not known."""
    from oomlint.judgement import evidence

    if forecast.estimate.unknown:
        return f": {why_unpredicted(forecast)}"
    if forecast.verdict != "unknown" or forecast.evidence is None:
        return ""
    words = evidence.left_open(forecast.evidence)
    return f": {words}" if words else ""


def _cards(peak: int) -> str:
    cards = smallest_cards(peak)
    if not cards:
        return "no common card holds it"
    names = [card.name for card in cards]
    return f"the smallest common cards that hold it: {', '.join(names)}"


def _verdict_words(forecast: Forecast, hardware: Hardware) -> str:
    words: dict[str, str] = {
        "fits": "fits",
        "tight": "may not fit",
        "does_not_fit": "does not fit",
        "unknown": "unknown whether it fits",
    }
    return f"{words[forecast.verdict]} {hardware.name}"


def limits(forecast: Forecast, hardware: Hardware) -> str:
    text = f"({gib(usable_bytes(hardware.gpu))} usable per GPU"
    ram = forecast.host_limit
    return text + (f", {gib(ram)} per host)" if ram is not None else ")")


def as_json(value: Any, *, indent: int | None = 2) -> str:
    """JSON text; what is not ASCII stays readable."""
    import json

    return json.dumps(value, indent=indent, ensure_ascii=False, default=list) + "\n"
