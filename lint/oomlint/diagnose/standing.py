"""Where a run stands at a place in its log: the last step, and what was begun last."""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec import Struct

from oomlint.diagnose.phases import MARKERS, Phase
from oomlint.diagnose.progress import NEEDLES as STEPS, RunPosition, last_step
from oomlint.diagnose.reading import LogPiece

_SHOWN = 160
# Lines that hold a step's needle and are about something else, one after another.
_MOST_TRIES = 8
_PHASES = dict(MARKERS)
_TOTAL = b"Total optimization steps = "
_TOTAL_STEPS = re.compile(_TOTAL + rb"([\d,]{1,18})")

_NO_BLOCK = LogPiece(b"", 0, 0, 1)

NEEDLES = (*_PHASES, *STEPS, _TOTAL)


class Begun(Struct, frozen=True):
    """A line that says what begins, and the step before it."""

    phase: Phase
    text: str
    at: int
    step: RunPosition | None


class LinesBefore(Struct, frozen=True):
    """What the lines before a place tell."""

    step: RunPosition | None
    phase: Phase | None
    because: str


class Standing(Struct):
    """The state of a run as the blocks of its log go by."""

    total: int | None = None
    """All steps of the run, where the log says: bars of other lengths are of other things."""
    _step: RunPosition | None = None
    _step_at: int = -1
    _begun: Begun | None = None
    _passed: int = 0
    """Bytes in the blocks that have gone by."""
    _block: LogPiece = _NO_BLOCK
    _steps: tuple[bytes, ...] = ()
    _markers: tuple[bytes, ...] = ()
    _tells_total: bool = False

    def come_to(self, block: LogPiece, present: Collection[bytes]) -> None:
        """What is asked from now on is about places in this block; ``present`` of ``NEEDLES``."""
        self._block = block
        self._steps = tuple(needle for needle in STEPS if needle in present)
        self._markers = tuple(needle for needle in _PHASES if needle in present)
        self._tells_total = _TOTAL in present

    def pass_by(self) -> None:
        """Take in the whole block."""
        block = self._block
        if (
            self.total is None
            and self._tells_total
            and (found := _TOTAL_STEPS.search(block.data, block.start, block.end))
        ):
            self.total = int(found[1].replace(b",", b""))
        self._step, self._step_at, self._begun = self._at(block, block.end)
        self._passed += block.end - block.start

    def at(self, offset: int) -> LinesBefore:
        """The state before an offset in the block."""
        return self._place(*self._at(self._block, offset))

    @property
    def now(self) -> LinesBefore:
        return self._place(self._step, self._step_at, self._begun)

    def _place(self, step: RunPosition | None, step_at: int, begun: Begun | None) -> LinesBefore:
        if step is not None and self.total is not None:
            step = RunPosition(step.done, self.total)
        if begun is None:
            return (
                LinesBefore(step, "train", "the steps in the log")
                if step
                else LinesBefore(None, None, "")
            )
        # A bar that is drawn again while a checkpoint is written does not mean that it is done.
        has_gone_on = step_at > begun.at and step is not None and step.done > _done(begun.step)
        if has_gone_on:
            return LinesBefore(step, "train", "the steps in the log")
        return LinesBefore(step, begun.phase, begun.text)

    def _at(self, block: LogPiece, offset: int) -> tuple[RunPosition | None, int, Begun | None]:
        found = self._last_step(block, offset)
        step, step_at = found or (self._step, self._step_at)
        at, phase = -1, None
        for needle in self._markers:
            here = block.data.rfind(needle, block.start, offset)
            if here > at:
                at, phase = here, _PHASES[needle]
        if phase is None:
            return step, step_at, self._begun
        before = self._last_step(block, at)
        text = block.line_text(at)[:_SHOWN].strip()
        begun = Begun(phase, text, self._absolute(block, at), before[0] if before else self._step)
        return step, step_at, begun

    def _last_step(self, block: LogPiece, offset: int) -> tuple[RunPosition, int] | None:
        found: RunPosition | None = None
        found_at = -1
        for needle in self._steps:
            at = block.data.rfind(needle, block.start, offset)
            for _ in range(_MOST_TRIES):
                if at < 0 or at <= found_at:
                    break
                start = block.line_start(at)
                step = last_step([block.line_text(at)])
                if step is not None and self._is_of_training(step):
                    found, found_at = step, at
                    break
                at = block.data.rfind(needle, block.start, start)
        return (found, self._absolute(block, found_at)) if found is not None else None

    def _is_of_training(self, step: RunPosition) -> bool:
        return self.total is None or step.total is None or step.total == self.total

    def _absolute(self, block: LogPiece, offset: int) -> int:
        return self._passed + offset - block.start


def _done(step: RunPosition | None) -> int:
    return step.done if step is not None else 0
