"""From what a change does to a review of it.

Comments stand where the diff has the lines, the rest in the summary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from oomlint.engine import Diagnosis
from oomlint.precedence import leaders
from oomlint.report.places import Fingerprints, Places
from oomlint.review import body
from oomlint.review.assess import Assessment
from oomlint.review.comment import (
    Topic,
    companions_text,
    digest,
    fix_text,
    marked,
    remedy_text,
    suggestion_block,
    topic_text,
)
from oomlint.review.diff import Hunks, parse_patch
from oomlint.review.forge import Change, Comment, Review, Style
from oomlint.review.suggest import Remedy, Suggestion, placed, read_sources, remedies

MOST_COMMENTS = 20


def compose(
    assessment: Assessment,
    change: Change,
    style: Style,
    *,
    most_comments: int = MOST_COMMENTS,
    use_diff: bool = True,
) -> Review:
    """The review of a change. Without ``use_diff`` all of it goes into the summary."""
    hunks = {file.path: parse_patch(file.patch) for file in change.files} if use_diff else {}
    sources = {k: s for result in assessment.fixes for k, s in read_sources(result).items()}
    found = [remedy for result in assessment.fixes for remedy in remedies(result)]
    draft = _Draft(assessment, change, hunks, style, most_comments)
    rest: list[Remedy] = []
    # The gravest first: what is beyond the limit on comments is listed in the summary.
    ready = placed(found, sources, hunks, style)
    for remedy, suggestions in sorted(ready, key=lambda pair: -_gravity(pair[0])):
        if not suggestions or not draft.suggest(remedy, suggestions):
            rest.append(remedy)
    draft.remark(rest)
    text = body.summary(
        assessment,
        body.Rest(draft.unplaced, rest),
        sources,
        in_comments=sum(len(topic.members) for topic in draft.told),
        most=style.most_characters,
        notes=_notes(change),
    )
    is_silent = not (
        assessment.report.diagnoses
        or assessment.mended
        or assessment.report.errors
        or any(run.has_changed and not run.is_fragment for run in assessment.runs)
    )
    return Review(text, tuple(draft.comments), is_silent)


def _notes(change: Change) -> list[str]:
    listed = len(change.files)
    note = f"The forge lists only {listed} of the changed files: of others, all is said here."
    return [] if change.is_complete else [note]


def _gravity(remedy: Remedy) -> int:
    return max(diagnosis.severity for diagnosis in remedy.fixes)


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
        change: Change,
        hunks: Mapping[str, Hunks],
        style: Style,
        most: int,
    ) -> None:
        report = assessment.report
        self._places = Places(report)
        self._fingerprints = Fingerprints(report)
        self._old_paths = {file.path: file.old_path for file in change.files}
        self._hunks = hunks
        self._style = style
        self._most = most
        self._topics = _topics(report.diagnoses)
        self._uses: Counter[str] = Counter()
        self.told: list[Topic] = []
        self.unplaced: list[Topic] = []
        self.comments: list[Comment] = []

    def suggest(self, remedy: Remedy, suggestions: Sequence[Suggestion]) -> bool:
        """A comment for each suggestion, the first of which says why; ``False`` if there is no
        room for all of them."""
        if len(self.comments) + len(suggestions) > self._most:
            return False
        topics = self._topics_of(remedy)
        about = [d for topic in topics for d in topic.members] or list(remedy.fixes)
        new = [topic for topic in topics if topic not in self.told]
        first, *others = _nearest_first(suggestions, topics, self._places)
        pieces = []
        for suggestion in (first, *others):
            companions = [s for s in suggestions if s is not suggestion]
            place = suggestion.path, suggestion.first, suggestion.last
            why = [remedy_text(remedy)]
            if suggestion is first:
                why = [*(topic_text(topic, self._places, place) for topic in new), *why]
            block = suggestion_block(suggestion, self._style)
            parts = [*why, block, companions_text(companions)]
            pieces.append(_Piece(suggestion.path, suggestion.first, suggestion.last, parts, about))
        texts = [_joined(piece.parts) for piece in pieces]
        if any(len(text) > self._style.most_characters - 1000 for text in texts):
            return False
        self.comments += map(self._comment, pieces)
        self.told += new
        return True

    def remark(self, rest: Iterable[Remedy]) -> None:
        """Comments on the findings that no suggestion has spoken of, where the diff has their
        lines; ``rest`` are the remedies that could not be suggested."""
        elsewhere = {id(topic) for remedy in rest for topic in self._topics_of(remedy)}
        for topic in sorted(self._topics, key=lambda topic: -topic.leader.severity):
            if topic in self.told:
                continue
            place = self._shown_at(topic)
            if place is None or len(self.comments) >= self._most:
                self.unplaced.append(topic)
                continue
            path, number = place
            fix = fix_text(topic.leader)
            if id(topic) in elsewhere:
                fix += (
                    " The summary of this review has it as a diff: it reaches beyond these lines."
                )
            parts = [topic_text(topic, self._places, (path, number, number)), fix.strip()]
            piece = _Piece(path, number, number, parts, topic.members)
            self.comments.append(self._comment(piece))
            self.told.append(topic)

    def _shown_at(self, topic: Topic) -> tuple[str, int] | None:
        """Path and line of what the diff shows of a topic, a line that it adds if there is one."""
        shown: list[tuple[bool, str, int]] = []
        for diagnosis in topic.members:
            location = diagnosis.finding.location
            text = self._places.source(location.path).text
            number = text.count("\n", 0, location.span.start) + 1  # as git, and the diff, counts
            hunk = self._hunks.get(location.path, Hunks()).around(number, number)
            if hunk is not None:
                shown.append((hunk.lines[number] is not None, location.path, number))
        best = min(shown, key=lambda place: place[0], default=None)
        return None if best is None else best[1:]

    def _comment(self, piece: _Piece) -> Comment:
        keys = [self._key(diagnosis) for diagnosis in piece.about]
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

    def _topics_of(self, remedy: Remedy) -> list[Topic]:
        """What a remedy is about: the failures that its fixes were proposed for, or else those
        of the same run."""
        fixed = {(d.rule.code, _run(d)) for d in remedy.fixes}
        runs = {_run(d) for d in remedy.fixes}
        exact = [t for t in self._topics if any((d.rule.code, _run(d)) in fixed for d in t.members)]
        return exact or [t for t in self._topics if _run(t.leader) in runs][:1]


def _run(diagnosis: Diagnosis) -> str:
    run = diagnosis.run
    return diagnosis.finding.location.path if run is None else run.name


def _topics(diagnoses: Sequence[Diagnosis]) -> list[Topic]:
    following = leaders(diagnoses)
    return [
        Topic(leader, tuple(d for d, head in following.items() if head is leader))
        for leader in diagnoses
        if leader not in following
    ]


def _nearest_first(
    suggestions: Sequence[Suggestion], topics: Sequence[Topic], places: Places
) -> list[Suggestion]:
    """The suggestion closest to what it is about in front."""
    spots = [t.leader.finding.location for t in topics]

    def distance(suggestion: Suggestion) -> tuple[bool, int]:
        lines = [places.start(spot).line for spot in spots if spot.path == suggestion.path]
        return not lines, min((abs(line - suggestion.first) for line in lines), default=0)

    return sorted(suggestions, key=distance)


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part)
