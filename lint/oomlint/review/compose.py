"""From what a change does to a review of it.

Comments stand where the diff has the lines, the rest in the summary. Each cause is one comment, with one
way out; what it says, suggests and shows as a diff is that way and no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from oomlint.documents.text import Edit
from oomlint.linting.baseline import fingerprint
from oomlint.linting.engine import Diagnosis
from oomlint.linting.headlines import leaders, suffices
from oomlint.linting.rule import Applicability, Severity
from oomlint.report.markdown import sentence, sentences
from oomlint.report.places import Fingerprints, LineIndex
from oomlint.review import body, cards
from oomlint.review.assess import Assessment, Card
from oomlint.review.commands import fix_command
from oomlint.review.comment import (
    FailureTopic,
    companions_text,
    digest,
    fix_text,
    folded,
    marked,
    rule_link,
    suggestion_block,
    titles,
    topic_text,
)
from oomlint.review.diff import Hunks, parse_patch
from oomlint.review.forge import ChangeRequest, Comment, Review, Style
from oomlint.review.suggest import Remedy, Suggestion, placed, remedies

MOST_COMMENTS = 20


def compose(
    assessment: Assessment,
    change: ChangeRequest,
    style: Style,
    *,
    most_comments: int = MOST_COMMENTS,
    use_diff: bool = True,
) -> Review:
    """The review of a change. Without ``use_diff`` all of it goes into the summary."""
    hunks = {file.path: parse_patch(file.patch) for file in change.files} if use_diff else {}
    draft = _Draft(assessment, change, hunks, style, most_comments)
    draft.write()
    text = body.summary(
        assessment,
        body.Rest(draft.ways, draft.unplaced, draft.left),
        in_comments=len(draft.comments),
        most=style.most_characters,
        notes=_notes(change),
    )
    return Review(text, tuple(draft.comments), not (draft.comments or body.has_news(assessment)))


def _notes(change: ChangeRequest) -> list[str]:
    listed = len(change.files)
    note = f"The forge lists only {listed} of the changed files: of others, all is said here."
    return [] if change.is_complete else [note]


class _Offer(Struct, frozen=True, eq=False):
    """A remedy with its suggestions, none where it cannot be suggested as a whole."""

    remedy: Remedy
    suggestions: tuple[Suggestion, ...]


class _Piece(Struct, frozen=True):
    """A comment before it has its marks."""

    path: str
    first: int
    last: int
    parts: Sequence[str]
    about: Sequence[Diagnosis]


class _Draft:
    """A review in the making."""

    def __init__(
        self,
        assessment: Assessment,
        change: ChangeRequest,
        hunks: Mapping[str, Hunks],
        style: Style,
        most: int,
    ) -> None:
        report = assessment.report
        self._assessment = assessment
        self._places = LineIndex(report)
        self._fingerprints = Fingerprints(report)
        self._old_paths = {file.path: file.old_path for file in change.files}
        self._hunks = hunks
        self._style = style
        self._most = most
        self._uses: Counter[str] = Counter()
        spoken = {d for card in assessment.cards for d in card.members}
        self._topics = _topics([d for d in report.diagnoses if d not in spoken])
        self._told: list[FailureTopic] = []
        self.ways: dict[Card, str] = {}
        """Card → what to do, in a sentence."""
        self.unplaced: list[FailureTopic] = []
        self.left: list[Remedy] = []
        """What no suggestion does."""
        self.comments: list[Comment] = []

    def write(self) -> None:
        of_cards, of_topics = self._offers()
        for card in sorted(self._assessment.cards, key=_gravity):
            self._card(card, of_cards[card])
        # The gravest first: what is beyond the limit on comments is listed in the summary.
        for offer in sorted(of_topics, key=lambda offer: -_worst(offer.remedy)):
            if not self._suggest(offer):
                self.left.append(offer.remedy)
        self._remark()

    def _offers(self) -> tuple[dict[Card, list[_Offer]], list[_Offer]]:
        """The ways of cards, and what else is to be mended."""
        assessment = self._assessment
        pool = [r for result in assessment.fixes for r in remedies(result, assessment.undone)]
        own: dict[Card, list[Remedy]] = {}
        for card in assessment.cards:
            fixing = [r for r in pool if _mends(r, card)]
            pool = [r for r in pool if r not in fixing]
            own[card] = _put_back(card) if card.puts_back else fixing
        sources = {
            edit.path: self._places.source(edit.path)
            for remedy in (*pool, *(r for found in own.values() for r in found))
            for edit in remedy.edits
            if not edit.creates
        }
        everything = [*(r for found in own.values() for r in found), *pool]
        offers = [_Offer(*pair) for pair in placed(everything, sources, self._hunks, self._style)]
        out: dict[Card, list[_Offer]] = {}
        for card, found in own.items():
            edits = {edit for remedy in found for edit in remedy.edits}
            out[card] = [o for o in offers if not edits.isdisjoint(o.remedy.edits)]
        taken = {id(o) for found in out.values() for o in found}
        return out, [o for o in offers if id(o) not in taken]

    # -- cards ---------------------------------------------------------------------------

    def _card(self, card: Card, offers: Sequence[_Offer]) -> None:
        """One comment for a card, with the suggestion that stands nearest to what it is about."""
        ready = sorted(
            (o for o in offers if o.suggestions), key=lambda o: self._distance(card, o.suggestions)
        )
        chosen = next(iter(ready), None)
        self.ways[card] = self._way(card, chosen or next(iter(offers), None), offers)
        if chosen is not None and self._with_suggestions(card, chosen, len(offers) - 1):
            self.left += [o.remedy for o in offers if o is not chosen]
            return
        self.left += [offer.remedy for offer in offers]
        place = self._shown(self._spots(card))
        if place is None or len(self.comments) >= self._most:
            return
        path, number = place
        more = "The summary of this review has it as a diff." if offers else ""
        parts = [*self._card_text(card), more, self._background(card)]
        self._add([_Piece(path, number, number, parts, card.members)])

    def _with_suggestions(self, card: Card, offer: _Offer, others: int) -> bool:
        first, *rest = sorted(offer.suggestions, key=lambda s: self._distance(card, (s,)))
        pieces = []
        for suggestion in (first, *rest):
            companions = [s for s in offer.suggestions if s is not suggestion]
            block = suggestion_block(suggestion, self._style)
            if suggestion is first:
                more = (
                    f"The same for {others} more file{'' if others == 1 else 's'}: see the summary."
                )
                parts = [
                    *self._card_text(card),
                    block,
                    companions_text(companions),
                    more if others else "",
                    self._background(card),
                ]
            else:
                parts = [self.ways[card], block, companions_text(companions)]
            pieces.append(
                _Piece(suggestion.path, suggestion.first, suggestion.last, parts, card.members)
            )
        return self._add(pieces)

    def _card_text(self, card: Card) -> list[str]:
        why = ""
        if not card.said and card.lead is not None and not card.lead.rule.is_headline:
            why = sentence(cards.plain(card.lead.finding.message))
        return [
            f"{cards.sign(card)} **{cards.headline(card)}**",
            " ".join(filter(None, (why, cards.numbers(card)))),
            self.ways[card],
        ]

    def _way(self, card: Card, offer: _Offer | None, offers: Sequence[_Offer]) -> str:
        """What to do about a card, in a sentence; of what is not to be applied unasked, how."""
        if card.puts_back and card.undo is not None:
            return cards.way(card, cards.put_back(card.undo))
        if offer is not None:
            others = {titles(o.remedy) for o in offers} - {titles(offer.remedy)}
            more = " (and what the summary has for other runs)" if others else ""
            return cards.way(card, titles(offer.remedy) + more)
        unsafe = self._unsafe(card)
        flags = self._assessment.flags
        if unsafe is not None and unsafe.run is not None:
            command = fix_command([unsafe.run.name], flags, unsafe=True)
            return f"{fix_text(unsafe)} `{command}` does it."
        by_hand = card.lead if card.lead is not None and card.lead.fix is not None else None
        return fix_text(by_hand) if by_hand is not None else ""

    def _unsafe(self, card: Card) -> Diagnosis | None:
        """The finding of a run whose fix is enough, where it is not applied since it may change results."""
        found = (d for result in self._assessment.fixes for d in result.report.diagnoses)
        return next(
            (
                d
                for d in found
                if d.run is not None
                and d.run.name in card.names
                and d.fix is not None
                and d.fix.applicability is Applicability.UNSAFE
                and suffices(d)
            ),
            None,
        )

    def _background(self, card: Card) -> str:
        lines = []
        if card.lead is not None:
            lines.append(f"{cards.quiet(sentences(card.lead.finding))}\n")
        if text := cards.rival(card):
            lines.append(f"{text}\n")
        if len(card.runs) > 1:
            lines += [*body.table(card.runs), ""]
            found = [cards.code(run.name) for run in card.runs[:_MOST_RUNS]]
            left = len(card.runs) - len(found)
            lines += [f"{', '.join(found)}{f' and {left} more' if left else ''}"]
        count = len(card.runs)
        title = f"{count} runs" if count > 1 else "Why"
        lead = f" · {rule_link(card.lead)}" if card.lead is not None else ""
        return folded(title + lead, lines) if lines or lead else ""

    def _spots(self, card: Card) -> Iterator[tuple[str, int]]:
        """Offsets of what a card is about: the turned places, then what its findings point at."""
        yield from ((turn.path, turn.edit.start) for turn in card.places)
        leading = (card.lead,) if card.lead is not None else ()
        for diagnosis in (*leading, *card.members):
            location = diagnosis.finding.location
            yield location.path, location.span.start

    def _distance(self, card: Card, suggestions: Sequence[Suggestion]) -> tuple[int, int]:
        """How far suggestions are from what a card is about: its places first, in their order."""
        found = [
            (order, min(abs(self._line(*spot) - s.first) for s in suggestions if s.path == spot[0]))
            for order, spot in enumerate(self._spots(card))
            if any(s.path == spot[0] for s in suggestions)
        ]
        return min(found, default=(10**9, 0))

    def _line(self, path: str, offset: int) -> int:
        """As git, and the diff, counts."""
        return self._places.source(path).text.count("\n", 0, offset) + 1

    def _shown(self, spots: Iterable[tuple[str, int]]) -> tuple[str, int] | None:
        """Path and line of the first spot that the diff shows, one that it adds if there is any."""
        shown: list[tuple[bool, int, str, int]] = []
        for order, (path, offset) in enumerate(spots):
            number = self._line(path, offset)
            hunk = self._hunks.get(path, Hunks()).around(number, number)
            if hunk is not None:
                shown.append((hunk.lines[number] is not None, order, path, number))
        best = min(shown, default=None)
        return None if best is None else best[2:]

    # -- other findings ------------------------------------------------------------------

    def _suggest(self, offer: _Offer) -> bool:
        """A comment for each suggestion, the first of which says why; ``False`` if there is no
        room for all of them."""
        remedy, suggestions = offer.remedy, offer.suggestions
        if not suggestions:
            return False
        topics = self._topics_of(remedy)
        about = [d for topic in topics for d in topic.members] or list(remedy.fixes)
        new = [topic for topic in topics if topic not in self._told]
        first, *others = _nearest_first(suggestions, topics, self._places)
        pieces = []
        for suggestion in (first, *others):
            companions = [s for s in suggestions if s is not suggestion]
            place = suggestion.path, suggestion.first, suggestion.last
            told = [topic_text(topic, self._places, place) for topic in new]
            is_first = suggestion is first
            parts = [
                *(text[0] for text in told if is_first),
                remedy_text(remedy),
                suggestion_block(suggestion, self._style),
                companions_text(companions),
                *(text[1] for text in told if is_first),
            ]
            pieces.append(_Piece(suggestion.path, suggestion.first, suggestion.last, parts, about))
        if not self._add(pieces):
            return False
        self._told += new
        return True

    def _remark(self) -> None:
        """Comments on the findings that no suggestion has spoken of, where the diff has their lines; what is
        no more than a remark interrupts nobody."""
        elsewhere = {id(topic) for remedy in self.left for topic in self._topics_of(remedy)}
        for topic in sorted(self._topics, key=lambda topic: -topic.leader.severity):
            if topic in self._told:
                continue
            locations = [d.finding.location for d in topic.members]
            place = self._shown((at.path, at.span.start) for at in locations)
            if topic.leader.severity <= Severity.INFO:
                place = None
            if place is None or len(self.comments) >= self._most:
                self.unplaced.append(topic)
                continue
            path, number = place
            fix = fix_text(topic.leader)
            if id(topic) in elsewhere:
                fix += " The summary of this review has it as a diff."
            head, fold = topic_text(topic, self._places, (path, number, number))
            if not self._add(
                [_Piece(path, number, number, [head, fix.strip(), fold], topic.members)]
            ):
                self.unplaced.append(topic)

    def _topics_of(self, remedy: Remedy) -> list[FailureTopic]:
        """What a remedy is about: the failures that its fixes were proposed for, or else those
        of the same run."""
        fixed = {(d.rule.code, _run(d)) for d in remedy.fixes}
        runs = {_run(d) for d in remedy.fixes}
        exact = [t for t in self._topics if any((d.rule.code, _run(d)) in fixed for d in t.members)]
        return exact or [t for t in self._topics if _run(t.leader) in runs][:1]

    # -- comments ------------------------------------------------------------------------

    def _add(self, pieces: Sequence[_Piece]) -> bool:
        """All of them, or none where there is no room for all."""
        most = self._style.most_characters - 1000
        if len(self.comments) + len(pieces) > self._most:
            return False
        if any(len(_joined(piece.parts)) > most for piece in pieces):
            return False
        self.comments += map(self._comment, pieces)
        return True

    def _comment(self, piece: _Piece) -> Comment:
        keys = [self._key(diagnosis) for diagnosis in piece.about[:_MOST_KEYS]]
        text = _joined(piece.parts)
        hunk = self._hunks[piece.path].around(piece.first, piece.last)
        assert hunk is not None
        return Comment(
            path=piece.path,
            old_path=self._old_paths[piece.path],
            first=piece.first,
            last=piece.last,
            old_last=hunk.lines[piece.last],
            body=marked(text, keys),
            keys=tuple(keys),
            digest=digest(text),
        )

    def _key(self, diagnosis: Diagnosis) -> str:
        """What knows a finding's comment again; of several comments the n-th says so."""
        try:
            print_ = self._fingerprints.of(diagnosis)
        except KeyError:  # what only came up while others were being fixed
            print_ = diagnosis.fingerprint
        self._uses[print_] += 1
        count = self._uses[print_]
        return print_ if count == 1 else f"{print_}/{count}"


_MOST_RUNS = 300
# So many findings tell a comment from others; the mark of one about hundreds would fill it.
_MOST_KEYS = 40


def _put_back(card: Card) -> list[Remedy]:
    """The lines to put back, file by file where each file has the same ones."""
    assert card.undo is not None
    by_path: dict[str, list[Edit]] = {}
    said: dict[str, set[Hashable]] = {}
    for turn in card.undo.turns:
        by_path.setdefault(turn.path, []).append(turn.edit)
        said.setdefault(turn.path, set()).add(turn.said)
    if len({frozenset(each) for each in said.values()}) == 1:
        return [Remedy((), tuple(sorted(edits))) for _, edits in sorted(by_path.items())]
    return [Remedy((), card.undo.edits)]


def _mends(remedy: Remedy, card: Card) -> bool:
    """Whether a remedy is about the memory of a card's runs."""
    return any(
        d.run is not None
        and not card.names.isdisjoint((d.run.name, *(d.fix.also if d.fix is not None else ())))
        and d.finding.resource in ("gpu", "host")
        for d in remedy.fixes
    )


def remedy_text(remedy: Remedy) -> str:
    """What the fixes of a remedy do, each said once; of several with a predicted peak the last
    one has it, since they build on one another."""
    peaks = [d for d in remedy.fixes if d.fix and d.fix.predicted_bytes_after is not None]
    lines: dict[str, None] = {}
    for diagnosis in remedy.fixes:
        if diagnosis.fix is not None and diagnosis not in peaks[:-1]:
            lines[fix_text(diagnosis)] = None
        elif diagnosis.fix is not None:
            lines[f"**Fix:** {cards.plain(diagnosis.fix.title)}."] = None
    return "\n".join(lines)


def _gravity(card: Card) -> tuple[bool, int]:
    return not _is_lost(card), -len(card.runs)


def _is_lost(card: Card) -> bool:
    return any(run.after is not None and run.after.is_lost for run in card.runs)


def _worst(remedy: Remedy) -> int:
    return max((diagnosis.severity for diagnosis in remedy.fixes), default=Severity.INFO)


def _run(diagnosis: Diagnosis) -> str:
    run = diagnosis.run
    return diagnosis.finding.location.path if run is None else run.name


def _topics(diagnoses: Sequence[Diagnosis]) -> list[FailureTopic]:
    """What is to be said, each thing once however many places it is said of."""
    following = leaders(diagnoses)
    groups: dict[Hashable, list[FailureTopic]] = {}
    for leader in diagnoses:
        if leader not in following:
            own = tuple(d for d, head in following.items() if head is leader)
            groups.setdefault(_kind(leader), []).append(FailureTopic(leader, own))
    return [
        FailureTopic(
            first.leader, first.followers, tuple(d for topic in others for d in topic.members)
        )
        for first, *others in groups.values()
    ]


def _kind(diagnosis: Diagnosis) -> Hashable:
    """What findings have in common that say the same of several places."""
    title = diagnosis.fix.title if diagnosis.fix is not None else ""
    code = diagnosis.rule.code
    return fingerprint(code, "", diagnosis.finding.message), fingerprint(code, "", title)


def _nearest_first(
    suggestions: Sequence[Suggestion], topics: Sequence[FailureTopic], places: LineIndex
) -> list[Suggestion]:
    """The suggestion closest to what it is about in front."""
    spots = [t.leader.finding.location for t in topics]

    def distance(suggestion: Suggestion) -> tuple[bool, int]:
        lines = [places.start(spot).line for spot in spots if spot.path == suggestion.path]
        return not lines, min((abs(line - suggestion.first) for line in lines), default=0)

    return sorted(suggestions, key=distance)


def _joined(parts: Collection[str]) -> str:
    return "\n\n".join(part for part in parts if part)
