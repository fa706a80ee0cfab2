"""Two runs side by side: the settings that differ, and the memory that each group costs.

The change from one run to the other is taken in steps. Each step gives the first run's plan
the second run's values of one group of fields, in the order of :data:`GROUPS`, and is
charged with what the predicted peaks then do. The last step ends at the second run, so the
steps add up exactly; but what a step costs depends on those before it. Beside it stands what
the step would cost alone, on the first run as it is: what is missing from the sum of those
comes of changes that act on one another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from oomlint.judgement import Forecast, Judgement, judgement_of
from oomlint.judgement.forecast import with_gpus
from oomlint.plan import Plan, leaf_paths, plan_to_dict

if TYPE_CHECKING:
    from oomlint.dialects.setting import Origin
    from oomlint.memory import Estimate
    from oomlint.runs.run import Run


Resource = Literal["gpu", "host"]


class FieldGroup(Struct, frozen=True):
    """Fields that change together.

    ``fields`` are leaves of the plan or prefixes of them, of which the most specific one counts.
    A difference in one of ``always`` is part of the answer even if it moves no prediction: the
    model's name, and what the limits come from.
    """

    name: str
    title: str
    fields: tuple[Any, ...]
    always: frozenset[str] = frozenset()


# What is large and decides what the rest means comes first: the model, what is trained of it,
# how it is stored, who shares it; then what one step works on; then what happens around it.
GROUPS = (
    FieldGroup("model", "model", ("model",), frozenset({"model.id"})),
    FieldGroup("load", "loading of the weights", ("load",)),
    FieldGroup("trainable", "what is trained", ("trainable",)),
    FieldGroup("quant", "quantization", ("quant",)),
    FieldGroup("precision", "precision", ("precision",)),
    FieldGroup("optimizer", "optimizer", ("optimizer",)),
    FieldGroup("parallel", "sharding and parallelism", ("parallel",)),
    FieldGroup("offload", "offload", ("offload",)),
    FieldGroup("batch", "batch", ("batch",)),
    FieldGroup("seq", "sequence length", ("seq",)),
    FieldGroup("checkpointing", "activation checkpointing", ("checkpointing",)),
    FieldGroup(
        "attention", "attention and expert kernels", ("model.attn_impl", "model.experts_impl")
    ),
    FieldGroup("loss", "loss and logits", ("loss",)),
    FieldGroup("objective", "objective", ("objective",)),
    FieldGroup("compile", "compilation", ("compile",)),
    FieldGroup("eval", "evaluation", ("eval",)),
    FieldGroup("save", "saving", ("save",)),
    FieldGroup("data", "data loading", ("data",)),
    FieldGroup("other", "software and all else", ("framework", "versions", "env", "total_steps")),
    FieldGroup(
        "hardware",
        "hardware",
        ("device", "host"),
        frozenset({"device.type", "device.mem_bytes", "host.ram_gib"}),
    ),
)

OriginKind = Literal[
    "explicit", "default", "derived", "catalog", "assumed", "option", "unreadable", "unset"
]


class Value(Struct, frozen=True):
    """One side of a difference, and where it comes from.

    ``path``, ``line`` (1-based) and ``key`` are the place in a file that says it or that it
    follows from; ``source`` is what is known of it beside, such as where a framework's default
    was read. A value of kind ``unset`` is ``None``: nobody says it.
    """

    value: Any
    kind: OriginKind
    path: str | None = None
    line: int | None = None
    key: str | None = None
    source: str = ""


class Difference(Struct, frozen=True):
    """A field of the plan whose effective values differ."""

    field: Any
    a: Value
    b: Value


class PeakDifference(Struct, frozen=True):
    """What a step does to a predicted peak, in bytes; ``None`` where no number is known.

    ``step`` is its share on the way from A to B, ``alone`` what it would do to A by itself,
    ``peak`` and ``phase`` where it leaves the run.
    """

    step: int | None
    alone: int | None
    peak: int | None
    phase: str | None


class GroupCost(Struct, frozen=True):
    """One group of fields; ``disk`` is what it adds to each checkpoint, in bytes."""

    group: FieldGroup
    differences: tuple[Difference, ...]
    gpu: PeakDifference
    host: PeakDifference
    disk: int | None

    def of(self, resource: Resource) -> PeakDifference:
        return self.gpu if resource == "gpu" else self.host


class Comparison(Struct, frozen=True):
    """Two runs, ``a`` and ``b``, and the way from one to the other.

    ``without_effect`` are settings that differ and leave every predicted number as it is.
    """

    first: Judgement
    second: Judgement
    steps: tuple[GroupCost, ...]
    without_effect: tuple[Difference, ...]

    @property
    def a(self) -> Forecast:
        """Both as they are written: their settings as they take effect are what is compared."""
        return self.first.written

    @property
    def b(self) -> Forecast:
        return self.second.written

    def total(self, resource: Resource) -> int | None:
        """By how many bytes B's peak is above A's."""
        before, after = (f.estimate.of(resource).peak_bytes for f in (self.a, self.b))
        return _more(after, before)

    def interaction(self, resource: Resource) -> int | None:
        """The part of the total, in bytes, that no change brings about alone."""
        total = self.total(resource)
        alone = [step.of(resource).alone for step in self.steps]
        known = [each for each in alone if each is not None]
        if total is None or len(known) < len(alone):
            return None
        return total - sum(known)


def compare(a: Run, b: Run) -> Comparison:
    """How ``b`` differs from ``a`` in effective settings and in predicted memory."""
    first, second = _Side(a), _Side(b)
    steps: list[GroupCost] = []
    without: list[Difference] = []
    start = here = _Stop(first.plan, a)
    end = _Stop(second.plan, b)
    for group, leaves in _leaves_of_groups():
        changed = [leaf for leaf in leaves if start.plan.get(leaf) != end.plan.get(leaf)]
        there = here.moved(group, changed, end)
        alone = start.moved(group, changed, end)
        telling = [
            leaf
            for leaf in changed
            if leaf in group.always
            or any(
                stop.feels(leaf, other)
                for stop, other in ((here, end), (there, start), (start, end), (end, start))
            )
        ]
        if telling or not here.has_numbers_of(there):
            shown = telling or changed
            steps.append(
                GroupCost(
                    group,
                    tuple(d for leaf in shown for d in _differences(leaf, first, second)),
                    _change("gpu", here, there, start, alone),
                    _change("host", here, there, start, alone),
                    _more(
                        there.estimate.disk_checkpoint_bytes, here.estimate.disk_checkpoint_bytes
                    ),
                )
            )
        else:
            shown = []
        for leaf in changed:
            # What moves nothing and one side does not even say is no difference to speak of.
            if leaf not in shown and None not in (first.plan.get(leaf), second.plan.get(leaf)):
                without += _differences(leaf, first, second)
        here = there
    return Comparison(judgement_of(a), judgement_of(b), tuple(steps), tuple(without))


def _leaves_of_groups() -> Iterator[tuple[FieldGroup, list[str]]]:
    """Each group with the leaves of the plan that are its own."""
    homes = {name: group.name for group in GROUPS for name in group.fields}
    own: dict[str, list[str]] = {group.name: [] for group in GROUPS}
    for leaf in sorted(leaf_paths() - {"name"}):
        prefix = leaf
        while prefix and prefix not in homes:
            prefix = prefix.rpartition(".")[0]
        own[homes.get(prefix, "other")].append(leaf)
    return ((group, own[group.name]) for group in GROUPS)


class _Stop(Struct, frozen=True, dict=True):
    """A plan and the run whose machine it is on, on the way from A to B."""

    plan: Plan
    run: Run

    @cached_property
    def estimate(self) -> Estimate:
        return self.run.estimated(self.plan)

    def moved(self, group: FieldGroup, leaves: list[str], goal: _Stop) -> _Stop:
        plan = self.plan.with_values({leaf: goal.plan.get(leaf) for leaf in leaves})
        return _Stop(plan, goal.run if group.name == "hardware" else self.run)

    def feels(self, leaf: str, other: _Stop) -> bool:
        """Whether a predicted number moves where one leaf is as in ``other``."""
        plan = self.plan.with_values({leaf: other.plan.get(leaf)})
        return not self.has_numbers_of(_Stop(plan, self.run))

    def has_numbers_of(self, other: _Stop) -> bool:
        """Whether both estimates have the same numbers, whatever they assumed."""
        ours, theirs = self.estimate, other.estimate
        return (ours.gpu, ours.host, ours.disk_checkpoint_bytes) == (
            theirs.gpu,
            theirs.host,
            theirs.disk_checkpoint_bytes,
        )


def _change(
    resource: Resource, here: _Stop, there: _Stop, start: _Stop, alone: _Stop
) -> PeakDifference:
    after = there.estimate.of(resource)
    return PeakDifference(
        step=_more(after.peak_bytes, here.estimate.of(resource).peak_bytes),
        alone=_more(
            alone.estimate.of(resource).peak_bytes,
            start.estimate.of(resource).peak_bytes,
        ),
        peak=after.peak_bytes,
        phase=after.peak_phase,
    )


def _more(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one - other


# -- values and where they come from -----------------------------------------------------


class _Side:
    """One run, the plan to compute with, and what the prediction had to assume."""

    def __init__(self, run: Run) -> None:
        probe, assumed = with_gpus(run)
        self.run = run
        self.plan = probe.plan
        self.assumed = {a.field: a for a in (*assumed, *probe.estimate.assumptions)}

    def value(self, path: str) -> Value:
        value = self.plan.get(path)
        origin = self.run.origin(path)
        assumption = self.assumed.get(path)
        if assumption is not None and (value is None or origin is None):
            return Value(assumption.value, "assumed", source=assumption.why)
        if origin is not None and path in self.run.unreadable:
            return self._placed(value, "unreadable", origin)
        if value is None:
            return Value(None, "unset")
        if origin is None:
            return Value(value, "assumed" if self.run.plan.get(path) is None else "derived")
        return self._placed(value, origin.kind, origin)

    def _placed(self, value: Any, kind: OriginKind, origin: Origin) -> Value:
        roots = list(self._roots(origin, depth=4))
        path, line, key = next((place for o in roots if (place := _place(o))), (None, None, None))
        key = key or next((o.key for o in roots if o.key), None)
        return Value(value, kind, path, line, key, origin.source)

    def _roots(self, origin: Origin, depth: int) -> Iterator[Origin]:
        """The origin itself, then what it follows from."""
        yield origin
        for name in origin.inputs if depth else ():
            earlier = self.run.origin(name)
            if earlier is not None:
                yield from self._roots(earlier, depth - 1)


def _place(origin: Origin) -> tuple[str, int | None, str] | None:
    """File, line and key; a file that the framework ships has no line that one could open."""
    block, entry = origin.block, origin.entry
    if block is None or entry is None:
        return None
    if block.referred is not None:
        return block.path, None, entry.key
    line, _ = block.document.source.position(entry.span.start)
    return block.path, line, entry.key


def _differences(path: str, first: _Side, second: _Side) -> Iterator[Difference]:
    """The field with both values; a model's dimensions one by one."""
    a, b = first.value(path), second.value(path)
    if path != "model.dims":
        yield Difference(path, a, b)
        return
    ours, theirs = (_flat(side.plan) for side in (first, second))
    for name in dict.fromkeys((*ours, *theirs)):
        if ours.get(name) != theirs.get(name):
            yield Difference(f"{path}.{name}", _part(a, ours, name), _part(b, theirs, name))


def _part(value: Value, dims: Mapping[str, Any], name: str) -> Value:
    if name not in dims:
        return Value(None, "unset")
    return Value(dims[name], value.kind, value.path, value.line, value.key, value.source)


def _flat(plan: Plan) -> dict[str, Any]:
    """A model's dimensions by dotted names. Of the counts only the total: the rest follow."""
    dims = plan.model.dims
    out: dict[str, Any] = {}

    def walk(node: Mapping[str, Any], prefix: str) -> None:
        for name, value in node.items():
            if isinstance(value, Mapping):
                walk(value, f"{prefix}{name}.")
            elif not name.startswith("params_") or name == "params_total":
                out[prefix + name] = value

    if dims is not None:
        walk(plan_to_dict(dims), "")
    return out
