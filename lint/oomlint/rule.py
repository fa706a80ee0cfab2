"""What a rule is: one thing that goes wrong, seen in a run, told with its numbers.

A rule is a module with one :class:`Rule` subclass. The module's docstring is its page.
Rules speak in canonical fields and know no syntax; positions and edits are made
centrally from the wishes they state.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping as MappingABC
from enum import IntEnum
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from oomlint.dialects.table import Block, StrayKey
from oomlint.documents.base import Entry, Fact
from oomlint.documents.text import Edit, Location
from oomlint.frozen import field, frozen
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.run import Run


class Severity(IntEnum):
    """How bad, by risk: see the architecture of severities in the documentation."""

    INFO = 1
    WARNING = 2
    ERROR = 3

    @property
    def label(self) -> str:
        return self.name.lower()


class Applicability(IntEnum):
    """Whether a fix may be applied: shown only, on request, or by ``--fix``."""

    DISPLAY = 1
    UNSAFE = 2
    SAFE = 3

    @property
    def label(self) -> str:
        return self.name.lower()


Confidence = Literal["high", "medium", "low"]
Resource = Literal["gpu", "host", "disk", "shm"]


# -- wishes: what a fix wants, in terms that no syntax has ------------------------------


@frozen
class SetFields:
    """Give canonical fields new values: ``{"batch.micro": 2, "batch.grad_accum": 16}``."""

    values: MappingABC[Any, Any]


@frozen(eq=False)
class RenameKey:
    """Call a stray key by its right name."""

    key: StrayKey
    new_key: str


@frozen(eq=False)
class RemoveKey:
    """Delete a key that has no business there."""

    block: Block
    entry: Entry


@frozen
class ReadyEdits:
    """Edits that the reader of a script made itself (exporting a variable, say)."""

    edits: tuple[Edit, ...]


Wish: TypeAlias = SetFields | RenameKey | RemoveKey | ReadyEdits


@frozen(eq=False)
class Proposal:
    """A fix as a rule states it.

    ``title`` completes "Fix: …" in the imperative. ``wishes`` are all applied or none.
    """

    title: str
    wishes: tuple[Wish, ...]
    applicability: Applicability = Applicability.SAFE

    @classmethod
    def set(
        cls,
        title: str,
        values: MappingABC[Any, Any],
        applicability: Applicability = Applicability.SAFE,
    ) -> Proposal:
        return cls(title, (SetFields(values),), applicability)


@frozen(eq=False)
class Note:
    """A second place that matters to a finding."""

    location: Location
    message: str


class Judged(Protocol):
    """A predicted peak against a limit, as :class:`oomlint.judge.Judgement` is."""

    @property
    def resource(self) -> Resource: ...

    @property
    def predicted(self) -> int: ...

    @property
    def limit(self) -> int | None: ...

    @property
    def confidence(self) -> Confidence: ...


@frozen(eq=False)
class Finding:
    """What a rule found. Bytes are ``None`` where no number is known.

    ``proposals`` are tried in order: the first that can be written becomes the fix.
    ``alternatives`` are further ways out, shown as text.
    """

    rule: type[Rule]
    severity: Severity
    confidence: Confidence
    message: str
    location: Location
    resource: Resource | None = None
    predicted_bytes: int | None = None
    limit_bytes: int | None = None
    proposals: tuple[Proposal, ...] = ()
    notes: tuple[Note, ...] = ()
    evidence: Level | None = None
    """How well that is known on which the finding rests; ``None`` where it rests on no value."""


@frozen
class Example:
    """A small project that a rule speaks about, or is silent about.

    ``files`` are texts by file name. Where the rule's fix applies, ``fixed`` are the texts
    after it (only files that change). ``hardware`` and ``host_memory`` are options as on
    the command line. ``why`` tells the reader what decides: why it is silent, or has no fix.
    """

    files: MappingABC[str, str]
    fixed: MappingABC[str, str] | None = None
    hardware: str | None = None
    host_memory: str | None = None
    why: str = ""
    values: MappingABC[Any, Any] = field(default_factory=dict)


class Rule:
    """Subclass, set the class attributes, write ``check``."""

    code: ClassVar[str]
    """``OOM`` and three digits; the first is the family."""

    name: ClassVar[str]
    """Kebab case, as users know it."""

    summary: ClassVar[str]
    """One line for lists, no final full stop."""

    applicability: ClassVar[Applicability | None] = None
    """The best applicability that the rule's fixes have; ``None`` where it has no fix."""

    looks_at_merges: ClassVar[bool] = False
    """Whether jobs that only merge an adapter and write the model are its business too."""

    cost: ClassVar[int] = 0
    """What the fix costs, to order fixes: 0 nothing, up to 9 (throughput, then learning)."""

    url: ClassVar[str] = ""
    """Where the page of a plug-in's rule stands on the web; oomlint knows that of its own."""

    origin: ClassVar[str] = ""
    """The plug-in that brings the rule, empty for oomlint's own; set when it is loaded."""

    bad: ClassVar[tuple[Example, ...]] = ()
    good: ClassVar[tuple[Example, ...]] = ()

    def check(self, run: Run) -> Iterable[Finding]:
        raise NotImplementedError

    # -- building findings -----------------------------------------------------------

    def finding(
        self,
        run: Run,
        severity: Severity,
        message: str,
        *,
        at: Any | tuple[Any, ...] | Location | Fact | StrayKey = (),
        judged: Judged | None = None,
        confidence: Confidence | None = None,
        resource: Resource | None = None,
        predicted: float | None = None,
        limit: float | None = None,
        proposals: Iterable[Proposal] = (),
        notes: Iterable[Note] = (),
    ) -> Finding:
        """A finding of this rule.

        Args:
            at: one or several canonical fields, or a place.
            judged: a peak whose confidence, resource, bytes and limit are the finding's where
                they are not given here.
            confidence: ``high`` where neither says it.
            predicted, limit: bytes.
        """
        if judged is not None:
            resource = resource or judged.resource
            limit = judged.limit if limit is None else limit
        holds_peak = judged is not None or limit is not None
        evidence, unread = _evidence(run, at, resource if holds_peak else None)
        if evidence is Level.UNREAD:
            severity = min(severity, Severity.INFO)
            message = f"{message} (unless {unread} says otherwise, which was not read)"
        elif evidence is Level.ASSUMED:
            severity = min(severity, Severity.WARNING)
        if judged is not None:
            confidence = confidence or judged.confidence
            predicted = judged.predicted if predicted is None else predicted
        return Finding(
            rule=type(self),
            severity=severity,
            confidence=confidence or "high",
            message=message,
            location=_place(run, at),
            resource=resource,
            predicted_bytes=None if predicted is None else int(predicted),
            limit_bytes=None if limit is None else int(limit),
            proposals=tuple(proposals),
            notes=tuple(notes),
            evidence=evidence,
        )

    @staticmethod
    def note(run: Run, field: Any, message: str) -> Note:
        return Note(run.location(field), message)

    # -- its page --------------------------------------------------------------------

    @classmethod
    def page(cls) -> str:
        """The rule's page in Markdown: its module's docstring under a title."""
        from inspect import cleandoc

        text = cleandoc(sys.modules[cls.__module__].__doc__ or "")
        return f"# {cls.name} ({cls.code})\n\n{text}\n"


@frozen(eq=False)
class ListedRule:
    """What can be said of a rule before its module is imported."""

    code: str
    name: str
    load: Callable[[], type[Rule]]
    looks_at_merges: bool = False
    origin: str = ""

    @classmethod
    def of(cls, rule: type[Rule]) -> ListedRule:
        return cls(
            rule.code,
            rule.name,
            lambda: rule,
            looks_at_merges=rule.looks_at_merges,
            origin=rule.origin,
        )


def _evidence(
    run: Run, at: Any | tuple[Any, ...] | Location | Fact | StrayKey, resource: Resource | None
) -> tuple[Level | None, str]:
    """How well that is known on which a finding rests, the fields that it speaks of and, of one that
    holds a peak of a resource against a limit, those that decide; and the names of what was not
    read among it."""
    fields = (at,) if isinstance(at, str) else at if isinstance(at, tuple) else ()
    levels = {field: run.level(field) for field in fields if run.plan_has(field)}
    level = max(levels.values(), default=None)
    roots = [root for field in fields if levels.get(field) is level for root in run.roots(field)]
    if resource is not None:
        from oomlint.evidence import weakest_of_claims

        found, bases = weakest_of_claims(run, resource)
        if run.level(f.device.type) is Level.ASSUMED:
            found = max(found, Level.ASSUMED)
        if level is None or found > level:
            level, roots = found, [basis.field for basis in bases]
        elif found is level:
            roots += [basis.field for basis in bases]
    names = dict.fromkeys(_named(run, root) for root in roots)
    return level, " and ".join(names)


def _named(run: Run, field: Any) -> str:
    """What is to be read to know a field, for the person at the keyboard."""
    if field == f.model.id and run.plan.model.id is not None:
        return "the model's config.json"
    return run.key(field)


def _place(run: Run, at: Any | tuple[Any, ...] | Location | Fact | StrayKey) -> Location:
    if isinstance(at, Location):
        return at
    if isinstance(at, (Fact, StrayKey)):
        return at.location
    if isinstance(at, str):
        return run.location(at)
    return run.location(*at) if at else run.anchor


def gib(size: float | None) -> str:
    """``68.4 GiB``; small sizes in MiB, unknown as such."""
    if size is None:
        return "an unknown amount"
    if abs(size) < 2**30:
        return f"{size / 2**20:.0f} MiB"
    value = size / 2**30
    return f"{value:.0f} GiB" if abs(value) >= 100 else f"{value:.1f} GiB"


def count(number: float) -> str:
    """Parameter counts as people say them: ``70.6B``, ``350M``."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:g}"
