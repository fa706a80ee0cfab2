"""What a rule is: one thing that goes wrong, seen in a run, told with its numbers.

A rule is a module with one :class:`Rule` subclass. The module's docstring is its page.
Rules speak in canonical fields and know no syntax; positions and edits are made
centrally from the wishes they state.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping as MappingABC, Sequence
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypedDict, overload

from msgspec import Struct, field

from oomlint.dialects.block import Block
from oomlint.dialects.ending import When as When
from oomlint.dialects.reading import StrayKey
from oomlint.documents.base import Entry, Fact
from oomlint.documents.text import Edit, Location
from oomlint.judgement import unread
from oomlint.judgement.evidence import weakest_of_claims
from oomlint.judgement.peak import Peak, judge_gpu
from oomlint.judgement.severity import (
    Confidence as Confidence,
    Resource as Resource,
    Severity as Severity,
    bound,
)
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import enumerated

if TYPE_CHECKING:
    # In ``typing`` from Python 3.11 on.
    from typing_extensions import Unpack

# What of a title one name from the user's files may take.
_MOST_OF_A_NAME = 24


def short(name: object, most: int = _MOST_OF_A_NAME) -> str:
    """A name from the user's files (a path, a model, a value) as a title has room for it: of a path its
    last part, and of what is long still the middle left out."""
    text = " ".join(str(name).split())
    if " " not in text:
        text = text.rstrip("/").rpartition("/")[2] or text
    if len(text) <= most:
        return text
    kept = most - 1
    return f"{text[: kept - kept // 2]}…{text[-(kept // 2) :]}"


class Applicability(IntEnum):
    """Whether a fix may be applied: shown only, on request, or by ``--fix``."""

    DISPLAY = 1
    UNSAFE = 2
    SAFE = 3

    @property
    def label(self) -> str:
        return self.name.lower()


# -- wishes: what a fix wants, in terms that no syntax has ------------------------------


class SetFields(Struct, frozen=True):
    """Give canonical fields new values: ``{"batch.micro": 2, "batch.grad_accum": 16}``."""

    values: MappingABC[Any, Any]


class RenameKey(Struct, frozen=True, eq=False):
    """Call a stray key by its right name."""

    key: StrayKey
    new_key: str


class RemoveKey(Struct, frozen=True, eq=False):
    """Delete a key that has no business there; ``is_whole``: with all that stands beside it in its section, which
    means nothing without it."""

    block: Block
    entry: Entry
    is_whole: bool = False


class ReadyEdits(Struct, frozen=True):
    """Edits that the reader of a script made itself (exporting a variable, say)."""

    edits: tuple[Edit, ...]


Wish: TypeAlias = SetFields | RenameKey | RemoveKey | ReadyEdits


class Proposal(Struct, frozen=True, eq=False):
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


class AskedLate(Sequence[Proposal]):
    """Proposals of which only an estimate tells whether they help, made for who first asks: of a remark mostly nobody
    does."""

    def __init__(self, make: Callable[[], Iterable[Proposal]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> tuple[Proposal, ...]:
        return tuple(self._make())

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, at: int) -> Proposal: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Proposal, ...]: ...
    def __getitem__(self, at: int | slice) -> Proposal | tuple[Proposal, ...]:
        return self._made[at]


class Note(Struct, frozen=True, eq=False):
    """A second place that matters to a finding."""

    location: Location
    message: str


class Finding(Struct, frozen=True, eq=False):
    """What a rule found. Bytes are ``None`` where no number is known.

    ``message`` is a title of at most 80 characters that names the cause; ``details`` are what more there is
    to say, a sentence each.
    ``proposals`` are tried in order: the first that can be written becomes the fix.
    ``alternatives`` are further ways out, shown as text.
    """

    rule: type[Rule]
    severity: Severity
    confidence: Confidence
    message: str
    location: Location
    details: tuple[str, ...] = ()
    resource: Resource | None = None
    predicted_bytes: int | None = None
    limit_bytes: int | None = None
    proposals: Sequence[Proposal] = ()
    notes: tuple[Note, ...] = ()
    evidence: Level | None = None
    """How well that is known on which the finding rests; ``None`` where it rests on no value."""
    ends: When | None = None
    """How far the run gets that what it says ends before its first step, if it is sure; ``None`` where it ends nothing."""

    @property
    def ends_the_run(self) -> bool:
        """Whether it is sure of what ends the run before its first step."""
        return self.ends is not None and self.severity is Severity.ERROR

    @property
    def starves(self) -> bool:
        """Whether it is sure that the engine cannot start beside the training: what the run has is to be shared otherwise."""
        return self.ends is When.ENGINE and self.ends_the_run

    @property
    def is_of_need(self) -> bool:
        """Whether it is about how much is needed, and not about where something goes."""
        has_need = self.resource in ("gpu", "host") and self.predicted_bytes is not None
        return has_need and self.severity >= Severity.WARNING

    @property
    def overflows(self) -> bool:
        """Whether what it speaks of needs more than there is, however sure that is."""
        need, limit = self.predicted_bytes, self.limit_bytes
        return need is not None and limit is not None and need > limit

    @property
    def text(self) -> str:
        """The title and what more there is to say, as sentences one after the other."""
        *earlier, last = (self.message, *self.details)
        return "".join(f"{said} " if said.endswith("?") else f"{said}. " for said in earlier) + last


class Example(Struct, frozen=True):
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


KNOWN: tuple[Any, ...] = ()
"""Of a field that :class:`Where` names: any value, as long as somebody says it."""


class Where(Struct, frozen=True):
    """Runs of which a rule can say anything: those in which all that is named here holds.

    It is asked before the rule's module is imported, so that a lint imports a fraction of the
    rules; ``check`` relies on it, and asks what is left to ask.
    """

    plan: MappingABC[Any, tuple[Any, ...]] = {}
    """Fields of the plan, with the values of which each must have one."""
    meant: MappingABC[Any, tuple[Any, ...]] = {}
    """The same of the plan in which misspelt keys are taken for what they mean."""
    said: tuple[Any, ...] = ()
    """Fields, of the plan or a dialect's own, one of which must have a value."""
    facts: tuple[str, ...] = ()
    """Kinds of facts of which scripts must have one."""
    has: Literal["", "missing", "stray", "wrong"] = ""
    """What there must be some of: files that are missing, stray keys, wrong values."""
    dialects: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()
    has_card: bool = False
    """The GPU is known, so that there is a limit to hold a need against."""
    has_risk: bool = False
    """There is something to say of the GPU's need: the run may die of it, or nobody knows the GPU."""

    def holds(self, run: Run) -> bool:
        return (
            (not self.dialects or run.dialect.name in self.dialects)
            and (not self.frameworks or run.framework in self.frameworks)
            and (not self.has_card or run.hardware is not None)
            and (not self.has or bool(getattr(run, self.has)))
            and (not self.facts or not run.fact_kinds.isdisjoint(self.facts))
            and (not self.said or any(field in run.settings for field in self.said))
            and (not self.plan or _agrees(run, self.plan))
            and (not self.meant or _agrees(run.intended, self.meant))
            and (not self.has_risk or _has_risk(run))
        )


def _agrees(run: Run, wanted: MappingABC[Any, tuple[Any, ...]]) -> bool:
    for path, values in wanted.items():
        value = run.plan.get(path)
        if value not in values if values else value is None:
            return False
    return True


def _has_risk(run: Run) -> bool:
    peak = judge_gpu(run)
    return peak is not None and peak.severity is not None


class FindingOptions(TypedDict, total=False):
    """What a finding may say beside its title: see :meth:`Rule.finding`."""

    at: Any | tuple[Any, ...] | Location | Fact | StrayKey
    rests_on: tuple[Any, ...]
    details: Iterable[str]
    judged: Peak | None
    confidence: Confidence | None
    resource: Resource | None
    predicted: float | None
    limit: float | None
    proposals: Iterable[Proposal]
    notes: Iterable[Note]
    ends: When | None


class Rule:
    """Subclass, say in its head what it is, write ``check``::

        class NoGradientCheckpointing(Rule, code="OOM101", fixes=Applicability.SAFE, cost=2):
            summary = "activations of every layer are kept because checkpointing is off"

    The head's words become class attributes, which a subclass may set as well.
    """

    code: ClassVar[str]
    """``OOM`` and three digits; the first is the family."""

    name: ClassVar[str]
    """Kebab case, as users know it; where a head that says the code does not say it, the module's."""

    summary: ClassVar[str]
    """One line for lists, no final full stop."""

    applicability: ClassVar[Applicability | None] = None
    """The best applicability that the rule's fixes have; ``None`` where it has no fix."""

    looks_at_merges: ClassVar[bool] = False
    """Whether jobs that only merge an adapter and write the model are its business too."""

    only_where: ClassVar[tuple[Where, ...]] = ()
    """The runs that ``check`` is asked about: those of which one of these holds; by default all."""

    is_of_text: ClassVar[bool] = False
    """It speaks of what files say, which is wrong whatever becomes of the run; so does family 9."""

    may_end: ClassVar[bool] = False
    """Whether what it finds may end a run before its first step: what it is sure of is part of the run's judgement."""

    is_headline: ClassVar[bool] = False
    """Whether it says of a run that it is in trouble, and others then say what that comes of."""

    explains: ClassVar[tuple[str, ...]] = ()
    """The components of a need that it speaks of, where it speaks of the whole of them."""

    cost: ClassVar[int] = 0
    """What the fix costs, to order fixes: 0 nothing, up to 9 (throughput, then learning)."""

    url: ClassVar[str] = ""
    """Where the page of a plug-in's rule stands on the web; oomlint knows that of its own."""

    origin: ClassVar[str] = ""
    """The plug-in that brings the rule, empty for oomlint's own; set when it is loaded."""

    bad: ClassVar[tuple[Example, ...]] = ()
    good: ClassVar[tuple[Example, ...]] = ()

    def __init_subclass__(
        cls,
        *,
        code: str | None = None,
        name: str | None = None,
        fixes: Applicability | None = None,
        cost: int | None = None,
        may_end: bool | None = None,
        **others: Any,
    ) -> None:
        super().__init_subclass__(**others)
        if code is not None:
            cls.code = code
            cls.name = name or cls.__module__.rpartition(".")[2].replace("_", "-")
        if fixes is not None:
            cls.applicability = fixes
        if may_end is not None:
            cls.may_end = may_end
        if cost is not None:
            cls.cost = cost

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
        rests_on: tuple[Any, ...] = (),
        details: Iterable[str] = (),
        judged: Peak | None = None,
        confidence: Confidence | None = None,
        resource: Resource | None = None,
        predicted: float | None = None,
        limit: float | None = None,
        proposals: Iterable[Proposal] = (),
        notes: Iterable[Note] = (),
        ends: When | None = None,
    ) -> Finding:
        """A finding of this rule.

        Args:
            message: a title of at most 80 characters, the cause first, without need and limit of the
                run: those the run's headline says.
            at: one or several canonical fields, or a place.
            rests_on: fields beside those by which it holds: it is no surer than they are.
            details: what more there is to say, a sentence each, without a final full stop.
            judged: a peak whose confidence, resource, bytes and limit are the finding's where
                they are not given here.
            confidence: ``high`` where neither says it.
            predicted, limit: bytes.
            ends: how far the run gets that what it says ends before its first step; a rule that says so is asked for the
                judgement of a run too, so that its head has ``may_end``.
        """
        if judged is not None:
            resource = resource or judged.resource
            limit = judged.limit if limit is None else limit
        holds_peak = judged is not None or limit is not None
        told = (at,) if isinstance(at, str) else at if isinstance(at, tuple) else ()
        evidence, lost = _evidence(run, (*told, *rests_on), resource if holds_peak else None)
        severity = bound(severity, evidence)
        if self._is_for_other_cards(run):
            severity = Severity.INFO
        details = tuple(details)
        if evidence is Level.UNREAD:
            details = (*details, *lost)
        if judged is not None:
            confidence = confidence or judged.confidence
            predicted = judged.predicted if predicted is None else predicted
        is_remark = severity < Severity.WARNING
        return Finding(
            rule=type(self),
            severity=severity,
            confidence=confidence or "high",
            message=message,
            location=_place(run, at),
            details=details,
            resource=resource,
            predicted_bytes=None if predicted is None else int(predicted),
            limit_bytes=None if limit is None else int(limit),
            proposals=proposals
            if is_remark and isinstance(proposals, AskedLate)
            else tuple(proposals),
            notes=tuple(notes),
            evidence=evidence,
            ends=ends,
        )

    @classmethod
    def tells_of_text(cls) -> bool:
        """Whether it speaks of what files say, whatever becomes of the run."""
        return cls.is_of_text or cls.code[3:4] in _FAMILIES_OF_TEXT

    def _is_for_other_cards(self, run: Run) -> bool:
        """Whether it speaks of how cards are driven that the program is not for."""
        if self.code[3:4] != _OF_LAUNCH or self.tells_of_text():
            return False
        return run.settings.get(unread.ELSEWHERE) is not None

    def error(self, run: Run, message: str, **told: Unpack[FindingOptions]) -> Finding:
        return self.finding(run, Severity.ERROR, message, **told)

    def warning(self, run: Run, message: str, **told: Unpack[FindingOptions]) -> Finding:
        return self.finding(run, Severity.WARNING, message, **told)

    def info(self, run: Run, message: str, **told: Unpack[FindingOptions]) -> Finding:
        return self.finding(run, Severity.INFO, message, **told)

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


class ListedRule(Struct, frozen=True, eq=False):
    """What can be said of a rule before its module is imported."""

    code: str
    name: str
    load: Callable[[], type[Rule]]
    looks_at_merges: bool = False
    may_end: bool = False
    only_where: tuple[Where, ...] = ()
    origin: str = ""

    def check(self, run: Run) -> Iterable[Finding]:
        """What the rule finds in a run; its module is imported if the run is one of its own. What may end the run is looked
        for once, for its judgement and for who is told."""
        if not self.may_end:
            return self._found(run)
        key = f"found by {self.code}"
        if key not in run.remembered:
            run.remembered[key] = tuple(self._found(run))
        known: tuple[Finding, ...] = run.remembered[key]
        return known

    def _found(self, run: Run) -> Iterable[Finding]:
        return self.load()().check(run) if self._is_of(run) else ()

    def _is_of(self, run: Run) -> bool:
        """Whether a run is one of those of which the rule can say anything; every rule is asked so of every run."""
        for where in self.only_where:
            if where.holds(run):
                return True
        return not self.only_where

    @classmethod
    def of(cls, rule: type[Rule]) -> ListedRule:
        return cls(
            rule.code,
            rule.name,
            lambda: rule,
            looks_at_merges=rule.looks_at_merges,
            may_end=rule.may_end,
            only_where=rule.only_where,
            origin=rule.origin,
        )


# What is about oomlint's own reading, and what ends a program by itself.
_FAMILIES_OF_TEXT = ("9",)


# How processes are started, and on which cards.
_OF_LAUNCH = "7"


def _evidence(
    run: Run, fields: tuple[Any, ...], resource: Resource | None
) -> tuple[Level | None, tuple[str, ...]]:
    """How well that is known on which a finding rests, the fields that it speaks of and, of one that
    holds a peak of a resource against a limit, those that decide; and, a sentence each, what was not read among it."""
    levels = {field: run.level(field) for field in fields if run.plan_has(field)}
    level = max(levels.values(), default=None)
    lost = [
        (root, "") for field in fields if levels.get(field) is level for root in run.roots(field)
    ]
    if resource is not None:
        found, bases = weakest_of_claims(run, resource)
        if run.level(f.device.type) is Level.ASSUMED:
            found = max(found, Level.ASSUMED)
        if level is None or found > level:
            level, lost = found, []
        if found is level:
            lost += ((basis.field, basis.key) for basis in bases)
    return level, tuple(_unread_in_words(run, lost)) if level is Level.UNREAD else ()


def _unread_in_words(run: Run, lost: Iterable[tuple[Any, str]]) -> Iterator[str]:
    """What a finding rests on and was not read: fields, each with the key that people know it by."""
    reasons: dict[str, None] = {}
    names: dict[str, None] = {}
    for root, key in lost:
        reason = unread.lost_with_all(run, root)
        if root in unread.WHOLE:
            yield reason
        elif reason:
            reasons[reason] = None
        else:
            names[_named(run, root, key)] = None
    for reason in reasons:
        yield f"{reason}, so that it may be otherwise"
    if names:
        were = "was" if len(names) == 1 else "were"
        yield f"{enumerated(tuple(names))} {were} not read, and may say otherwise"


def _named(run: Run, field: Any, key: str = "") -> str:
    """What is to be read to know a field, for the person at the keyboard."""
    if field == f.model.id and run.plan.model.id is not None:
        return "the model's config.json"
    if field == f.seq.max_len and run.level(field) < Level.ASSUMED:
        return "the length of the samples"
    if field == f.versions:
        return key or "the release of a library"
    return key or run.key(field)


def _place(run: Run, at: Any | tuple[Any, ...] | Location | Fact | StrayKey) -> Location:
    if isinstance(at, Location):
        return at
    if isinstance(at, (Fact, StrayKey)):
        return at.location
    if isinstance(at, str):
        return run.location(at)
    return run.location(*at) if at else run.anchor


MOST_OF_A_TITLE = 80
"""Characters: what an editor's margin, an annotation and a line of a terminal show of a message."""


def asking(title: str, meant: str) -> tuple[str, tuple[str, ...]]:
    """A title that asks whether ``meant`` was meant, and details that ask it where the title has no
    room."""
    question = f"did you mean {meant}?"
    whole = f"{title}: {question}"
    return (whole, ()) if len(whole) <= MOST_OF_A_TITLE else (title, (question,))
