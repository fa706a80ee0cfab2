"""One config for one wish, in a framework's own words, and the run that it describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from oomlint.dialects import registry
from oomlint.dialects.base import Dialect
from oomlint.dialects.skeleton import Shard, Skeleton, Start
from oomlint.drafts.wanted import Wanted
from oomlint.errors import CannotEdit, UsageError
from oomlint.files.disk import NOWHERE
from oomlint.files.workspace import Workspace
from oomlint.fix.apply import apply_change
from oomlint.fix.edits import Fix, Planned, make_fix
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Applicability, Proposal, SetFields
from oomlint.plan.fields import f
from oomlint.runs.run import Run

Values: TypeAlias = Mapping[Any, Any]


class Draft(Struct, frozen=True, eq=False):
    """A config that is written nowhere yet."""

    wanted: Wanted
    shard: Shard
    skeleton: Skeleton
    workspace: Workspace
    options: Options
    run: Run

    @property
    def text(self) -> str:
        return self.workspace.read(self.skeleton.file).decode()

    def changed(self, fix: Fix) -> Draft:
        """The draft with a fix of its run in it.

        Raises:
            CannotEdit: the file would not read as promised.
        """
        file = self.skeleton.file
        texts = apply_change(
            self.workspace,
            [file],
            self.options,
            Planned(self.run, fix),
            explicit=frozenset([file]),
        )
        workspace = self.workspace.with_overlay(texts)
        run = _run_of(workspace, file, self.options)
        return Draft(self.wanted, self.shard, self.skeleton, workspace, self.options, run)


def draft(wanted: Wanted, shard: Shard) -> Draft:
    """The config of a wish that leaves nothing open.

    Raises:
        UsageError: the framework cannot say or do it, with the reason.
    """
    dialect = _dialect(wanted.framework or "")
    start = _start(wanted, shard)
    try:
        skeleton = dialect.skeleton(start)
    except CannotEdit as error:
        raise UsageError(f"{dialect.name}: {error}") from None
    assert skeleton is not None, f"{dialect.name} stands among those that have a skeleton"
    options = Options(
        hardware=wanted.hardware, framework=wanted.framework, values=dict(wanted.values)
    )
    model = {f"{wanted.model.name}/{name}": data for name, data in wanted.model.files.items()}
    workspace = Workspace(Path("/"), disk=NOWHERE)
    texts = {workspace.name(name): data for name, data in model.items()}
    workspace = workspace.with_overlay({**texts, skeleton.file: skeleton.text.encode()})
    run = _run_of(workspace, skeleton.file, options)
    made = Draft(wanted, shard, skeleton, workspace, options, run)
    for step in _steps(wanted):
        made = _with(made, step)
    return made


def _dialect(name: str) -> Dialect:
    found = registry().named(name)
    assert found is not None, f"{name} stands among the frameworks of drafts"
    return found


def _start(wanted: Wanted, shard: Shard) -> Start:
    hardware, values = wanted.hardware, wanted.values
    nodes = values.get(f.parallel.nodes) or (hardware.nodes if hardware else 1)
    per_node = values.get(f.parallel.gpus_per_node) or (hardware.gpus_per_node if hardware else 1)
    method = wanted.method or "lora"
    return Start(wanted.model.name, method, shard, nodes, per_node, _compute(wanted))


def _run_of(workspace: Workspace, file: str, options: Options) -> Run:
    report = lint(workspace, [file], options, explicit=frozenset([file]), rules=())
    if report.errors or not report.runs:
        why = "; ".join(str(error) for error in report.errors) or "no run was found in it"
        raise UsageError(f"the config cannot be read back: {why}")
    return report.runs[0]


class _Step(NamedTuple):
    """What is said at once. Where a framework has no words for one of ``values``, the next is said, and
    where it has none for any, that is no harm unless it ``must`` be said."""

    name: str
    values: tuple[Values, ...]
    must: bool = True


def _steps(wanted: Wanted) -> Iterator[_Step]:
    """In this order: what decides the method comes first, since other keys may hang on it."""
    if wanted.method == "full":
        yield _Step("training all weights", ({f.trainable.method: "full"},))
    else:
        adapter: Values = {f.trainable.method: "lora", f.trainable.r: wanted.rank}
        everywhere: Values = {**adapter, f.trainable.targets: "all_linear"}
        yield _Step("LoRA", (everywhere, adapter))
        if wanted.method == "qlora":
            yield _Step("QLoRA", ({f.quant.method: "bnb4"},))
    yield _Step("16 bits", ({f.precision.compute: _compute(wanted)},))
    yield _Step("checkpointing", ({f.checkpointing.mode: "full"},), must=False)
    yield _Step("the length of samples", ({f.seq.max_len: wanted.length},))
    batch: Values = {f.batch.micro: wanted.batch}
    yield _Step("the micro batch", ({**batch, f.batch.grad_accum: wanted.accumulation}, batch))


def _compute(wanted: Wanted) -> Literal["bf16", "fp16"]:
    gpu = wanted.hardware.gpu if wanted.hardware else None
    return "bf16" if gpu is None or gpu.bf16 else "fp16"


def _with(made: Draft, step: _Step) -> Draft:
    reason = ""
    for values in step.values:
        unsaid = {name: value for name, value in values.items() if not _says(made.run, name, value)}
        if not unsaid:
            return made
        proposal = Proposal(step.name, (SetFields(unsaid),), Applicability.UNSAFE)
        fix = make_fix(made.run, proposal, "gpu")
        if fix is None or not fix.edits:
            reason = "" if fix is None else fix.reason or ""
            continue
        try:
            return made.changed(fix)
        except CannotEdit as error:
            reason = str(error)
    is_so = all(made.run.plan.get(name) == value for name, value in step.values[-1].items())
    if step.must and not is_so:
        raise UsageError(f"{made.wanted.framework} cannot do this ({step.name}): {reason}")
    return made


def _says(run: Run, name: Any, value: Any) -> bool:
    """Whether nothing need be said: the file has the value, or the method is the one that it begins with."""
    now = run.plan.get(name)
    if name == f.trainable.method:
        return now == value or (value, now) == ("lora", "qlora")
    if name == f.quant.method:
        return now == value or {now, value} == _NF4
    return now == value and run.is_explicit(name)


# One format, packed by bitsandbytes or by torchao.
_NF4 = {"bnb4", "nf4_torchao"}
