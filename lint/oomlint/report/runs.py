"""A run's prediction as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from oomlint.hardware import Hardware, usable_bytes
from oomlint.judgement import Forecast, Judgement, Risk
from oomlint.judgement.causes import Cause
from oomlint.judgement.unpredicted import why_unpredicted
from oomlint.plan import plan_to_dict
from oomlint.report.secrets import masked

if TYPE_CHECKING:
    from oomlint.dialects.ending import Ending
    from oomlint.documents.text import Edit
    from oomlint.fix.edits import Fix
    from oomlint.judgement.doubts import Doubt
    from oomlint.judgement.evidence import Evidence
    from oomlint.report.shapes import (
        CauseShape,
        EditShape,
        EndingShape,
        EvidenceShape,
        GpuShape,
        HardwareShape,
        HostShape,
        OtherwiseShape,
        RiskShape,
        RunShape,
        WayOutShape,
    )


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
        "unpredicted": why_unpredicted(forecast) or None,
        "risk": risk_object(forecast.risk),
        "evidence": None
        if forecast.evidence is None
        else evidence_object(forecast.evidence, judgement.spoken.doubts),
        "as_meant": None
        if meant is None
        else {
            "because": list(meant.because),
            "gpu": _gpu(meant),
            "host": _host(meant),
            "risk": risk_object(meant.risk),
            "verdict": meant.verdict,
        },
        "endings": [ending_object(ending) for ending in judgement.endings],
        "causes": [cause_object(cause) for cause in judgement.causes],
        "way": None if way is None else way_object(judgement, way),
    }


def _gpu(forecast: Forecast) -> GpuShape:
    gpu, seen = forecast.bounded.estimate.gpu, forecast.first_seen
    allocated, reserved, first = gpu.allocated, gpu.reserved, gpu.at_first_sight
    return {
        "peak_bytes": gpu.peak_bytes,
        "low_bytes": gpu.low_bytes,
        "high_bytes": gpu.high_bytes,
        "first_sight_low_bytes": None if first is None else first.low,
        "first_sight_high_bytes": None if first is None else first.high,
        "reserved_bytes": gpu.reserved_bytes,
        "allocated_low_bytes": None if allocated is None else allocated.low,
        "allocated_high_bytes": None if allocated is None else allocated.high,
        "reserved_low_bytes": None if reserved is None else reserved.low,
        "reserved_high_bytes": None if reserved is None else reserved.high,
        "peak_phase": gpu.peak_phase,
        "phases": dict(gpu.phases),
        "components": dict(gpu.components),
        "phase_components": {phase: dict(parts) for phase, parts in gpu.by_phase.items()},
        "first_seen": {phase: seen[phase] for phase in gpu.phases},
    }


def _host(forecast: Forecast) -> HostShape:
    host, seen = forecast.bounded.estimate.host, forecast.first_seen
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


def _otherwise(doubt: Doubt) -> OtherwiseShape:
    return {
        "if": doubt.words,
        "probability": round(doubt.weight, 3),
        "gpu_bytes": doubt.estimate.gpu.peak_bytes,
        "host_bytes": doubt.estimate.host.peak_bytes,
    }


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


def ending_object(ending: Ending) -> EndingShape:
    return {
        "what": ending.why,
        "when": None if ending.when is None else cast("Any", ending.when.word),
        "path": ending.at.path,
        "line": ending.line,
        "code": ending.code or None,
        "name": ending.name or None,
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


def evidence_object(evidence: Evidence, doubts: Iterable[Doubt] = ()) -> EvidenceShape:
    """What a prediction rests on besides what is written and known, and what else the run may be."""
    return {
        "level": cast("Any", evidence.level.word),
        "rests_on": [
            {
                "field": str(basis.subject),
                "value": basis.value,
                "level": cast("Any", basis.level.word),
                "why": basis.why,
                "path": basis.path,
                "line": basis.line,
                "swing_bytes": basis.swing_bytes,
            }
            for basis in evidence.rests_on
        ],
        "otherwise": [_otherwise(doubt) for doubt in doubts],
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


# Under these names stands text that is written into files: in JSON, LSP, SARIF and rdjson.
_WRITTEN = frozenset({"replacement", "newText", "insertedContent", "suggestions"})


def as_json(value: Any, *, indent: int | None = 2) -> str:
    """JSON text; what is not ASCII stays readable, and what looks like a secret does not, but in what a fix writes."""
    import json

    told = _without_secrets(value)
    return json.dumps(told, indent=indent, ensure_ascii=False, default=list) + "\n"


def _without_secrets(value: Any) -> Any:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {
            key: each if key in _WRITTEN else _without_secrets(each) for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(each) for each in value]
    return value
