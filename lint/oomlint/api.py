"""``oomlint.check``, ``oomlint.estimate`` and the answers for a model without a config: findings and predictions
from a script, a server or a browser.

None of them reads a settings file: what one would say is an argument here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from oomlint.plan import Plan
from oomlint.plan.fields import f

if TYPE_CHECKING:
    from oomlint.dialects.skeleton import Method, Shard
    from oomlint.drafts import Wanted
    from oomlint.files.workspace import Workspace
    from oomlint.hardware import Hardware
    from oomlint.linting.engine import Options, Report
    from oomlint.report.shapes import CheckShape, EstimateShape, NewConfigShape, RunShape


def estimate(
    plan: Plan | Mapping[str, Any],
    hardware: Hardware | str | None = None,
    *,
    host_memory: int | str | None = None,
) -> RunShape:
    """Predict the memory of one run, as ``oomlint estimate --plan`` does.

    Args:
        plan: a canonical plan, as plain values (the JSON of ``schemas/plan.schema.json``) or
            as :class:`oomlint.Plan`, which is taken as it is.
        hardware: such as ``"8xA100-80GB"``; without it the plan's own ``device`` counts.
        host_memory: RAM of one node, bytes or text such as ``"512GiB"``.

    Returns:
        The run object of the JSON output: bytes as integers, ``None`` where unknown.

    Raises:
        UsageError: the plan has an unknown key or a wrong value, or the hardware is unknown.
    """
    from oomlint.config.plans import read_plan
    from oomlint.hardware import parse_bytes, parse_hardware
    from oomlint.judgement import judgement_of_plan
    from oomlint.report.runs import run_object

    canonical = plan if isinstance(plan, Plan) else read_plan(plan)
    machine = parse_hardware(hardware) if isinstance(hardware, str) else hardware
    if host_memory is not None:
        ram = parse_bytes(host_memory) if isinstance(host_memory, str) else host_memory
        canonical = canonical.with_values({f.host.ram_gib: ram / 2**30})
        if machine is not None:
            machine = replace(machine, host_bytes_per_node=ram)
    return run_object(judgement_of_plan(canonical, machine))


def check(
    files: Mapping[str, str | bytes],
    hardware: Hardware | str | None = None,
    *,
    host_memory: int | str | None = None,
    gpus: int | str | None = None,
    framework: str | None = None,
    values: Mapping[str, Any] | None = None,
    select: Sequence[str] = (),
    extend_select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    unsafe_fixes: bool = False,
) -> CheckShape:
    """Lint files by their texts, as ``oomlint check --output-format json`` does files on disk.

    Nothing but ``files`` is looked at: what they name is found among them, or is missing. Nothing
    is written, and no process or thread is started.

    Args:
        files: name → text; names may have folders, with forward slashes.
        hardware: such as ``"8xA100-80GB"``; without it what the files name counts.
        host_memory: RAM of one node, bytes or text such as ``"512GiB"``.
        gpus: GPUs per node, or text such as ``"2x8"``, whatever the files say.
        framework: read every config as this framework's.
        values: fields of the canonical plan that win over the files, as those of ``--set``.
        select, extend_select, ignore: codes, code prefixes or names of rules.
        unsafe_fixes: let the fix of a run in trouble be one that changes what is trained or saved, even
            where that is not the only one.

    Returns:
        The JSON report; the edits of its fixes count code points.

    Raises:
        UsageError: the hardware, a value, a rule or the framework is unknown, or two names are one file's.
    """
    from oomlint.documents import SUFFIXES, kind_of
    from oomlint.fix.planned import with_plans
    from oomlint.linting.engine import lint
    from oomlint.linting.rule import Applicability
    from oomlint.report.json import check_object

    workspace = _held(files)
    options = _options(
        hardware, host_memory, gpus, framework, values, select, extend_select, ignore
    )
    names = sorted(name for name in workspace.overlay if kind_of(name) in SUFFIXES)
    report: Report = lint(workspace, names, options, explicit=frozenset(names))
    level = Applicability.UNSAFE if unsafe_fixes else Applicability.SAFE
    return check_object(replace(report, diagnoses=tuple(with_plans(report, options, level))))


def estimate_model(
    model: str,
    hardware: Hardware | str | None = None,
    *,
    method: Method | None = None,
    length: int | None = None,
    batch: int | None = None,
    rank: int | None = None,
    shard: Shard | None = None,
    framework: str | None = None,
    host_memory: int | str | None = None,
    config: str | bytes | None = None,
) -> EstimateShape:
    """Predict the memory of training a model that no config trains yet, as ``oomlint estimate MODEL`` does.

    Args:
        model: an id of the catalogue, or any name where ``config`` is given.
        config: the text of the model's ``config.json``.

    Returns:
        The JSON of ``estimate``, with the smallest common cards and what lowers the peak beside it.

    Raises:
        UsageError: the model is unknown, or the wish contradicts itself.
    """
    from oomlint.drafts import lightest, places
    from oomlint.judgement.planner import levers
    from oomlint.report.drafts import DraftReport, model_estimate_object

    wish = _wanted(
        model, hardware, method, length, batch, rank, shard, framework, host_memory, config
    )
    found = lightest(wish)
    return model_estimate_object(DraftReport.of(found, places(found), levers(found.draft.run)))


def new_config(
    model: str,
    framework: str,
    hardware: Hardware | str,
    *,
    method: Method | None = None,
    length: int | None = None,
    batch: int | None = None,
    rank: int | None = None,
    shard: Shard | None = None,
    host_memory: int | str | None = None,
    config: str | bytes | None = None,
) -> NewConfigShape | None:
    """A config that trains a model on the hardware named and fits it, as ``oomlint new`` writes it; ``None``
    where nothing fits.

    Raises:
        UsageError: the model is unknown, or the wish contradicts itself.
    """
    from oomlint.drafts import fitting
    from oomlint.report.drafts import new_config_object

    wish = _wanted(
        model, hardware, method, length, batch, rank, shard, framework, host_memory, config
    )
    found = fitting(wish)
    return None if found is None else new_config_object(found)


def _wanted(
    model: str,
    hardware: Hardware | str | None,
    method: Method | None,
    length: int | None,
    batch: int | None,
    rank: int | None,
    shard: Shard | None,
    framework: str | None,
    host_memory: int | str | None,
    config: str | bytes | None,
) -> Wanted:
    from oomlint.drafts import UnknownModel, Wanted, named_model
    from oomlint.errors import UsageError
    from oomlint.hardware import parse_hardware
    from oomlint.hardware.given import with_given

    machine = parse_hardware(hardware) if isinstance(hardware, str) else hardware
    machine, values = with_given(machine, host_memory, None)
    data = config.encode() if isinstance(config, str) else config

    def read(path: str) -> bytes | None:
        return data if path.rpartition("/")[2] == "config.json" else None

    try:
        named = named_model(model, read, [""])
    except UnknownModel as error:
        raise UsageError(f"{error}. Any other model: give its config.json") from None
    return Wanted(
        model=named,
        framework=framework,
        method=method,
        length=length,
        batch=batch,
        rank=rank,
        shard=shard,
        hardware=machine,
        values=values,
    )


def _held(files: Mapping[str, str | bytes]) -> Workspace:
    """A workspace that has these files and nothing else."""
    from oomlint.errors import UsageError
    from oomlint.files.disk import NOWHERE
    from oomlint.files.workspace import Workspace

    names = Workspace(Path(os.sep), disk=NOWHERE)
    texts: dict[str, bytes] = {}
    for name, text in files.items():
        shown = names.name(name)
        if shown in texts:
            raise UsageError(f"{name} is named twice among the files, as {shown}")
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        texts[shown] = data
    return names.with_overlay(texts)


def _options(
    hardware: Hardware | str | None,
    host_memory: int | str | None,
    gpus: int | str | None,
    framework: str | None,
    values: Mapping[str, Any] | None,
    select: Sequence[str],
    extend_select: Sequence[str],
    ignore: Sequence[str],
) -> Options:
    from oomlint.config.overrides import read_value
    from oomlint.config.settings import framework_named
    from oomlint.errors import UsageError
    from oomlint.hardware import parse_hardware
    from oomlint.hardware.given import with_given
    from oomlint.linting.engine import Options, Selection
    from oomlint.plugins import rules_in_force

    machine = parse_hardware(hardware) if isinstance(hardware, str) else hardware
    machine, known = with_given(machine, host_memory, gpus)
    try:
        known |= {key: read_value(key, value) for key, value in (values or {}).items()}
    except ValueError as error:
        raise UsageError(str(error)) from None
    selection = Selection(tuple(select), tuple(extend_select), tuple(ignore))
    if selection != Selection():
        selection.check(rules_in_force().items)
    return Options(selection, machine, framework_named(framework), known)
