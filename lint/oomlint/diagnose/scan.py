"""One pass over a log: what died, when and where, and what had been measured by then."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.diagnose import measured, standing
from oomlint.diagnose.figures import OutOfMemory, amount, out_of_memory
from oomlint.diagnose.frames import Frame, deciding_frame
from oomlint.diagnose.measured import LineOf, MeasuredPeak, Peaks
from oomlint.diagnose.needles import Sieve
from oomlint.diagnose.origin import LineWriter, origin_of, time_of
from oomlint.diagnose.phases import Phase, is_frame, phase_of_frames
from oomlint.diagnose.progress import RunPosition
from oomlint.diagnose.reading import LogPiece, blocks, size_of
from oomlint.diagnose.signatures import EXITS, PINNED, SIGNATURES, Signature, of_exit
from oomlint.diagnose.standing import LinesBefore, Standing
from oomlint.errors import FileError

# The same words a million times over (a loop that survives, a log of tests) are counted.
_MOST_OF_A_KIND = 64
_SHOWN = 240
# An allocator's message with its advice is about 700 characters long, colours included 1200.
_MESSAGE = 1600


class Sign(Struct, frozen=True, kw_only=True):
    """One line of a log that tells something, and what surrounds it."""

    signature: Signature
    log: str
    line: int
    text: str
    origin: LineWriter
    time: datetime | None = None
    memory: OutOfMemory | None = None
    figures: Mapping[str, int] = field(default_factory=dict)
    """Bytes by name: what a killed process held, the limit that it hit."""
    phase: Phase | None = None
    because: str = ""
    """The frame or the line that the phase is known from."""
    frame: Frame | None = None
    """What its traceback was about to do, where that decides."""
    amid: Phase | None = None
    """What the log had told of last, if a traceback tells of something else."""
    step: RunPosition | None = None
    victim: str | None = None
    """The program that the kernel killed."""
    scope_path: str | None = None
    """The control group that was full."""


class Log(Struct):
    """What was found in one log."""

    name: str
    signs: list[Sign] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    peaks: tuple[MeasuredPeak, ...] = ()
    card_bytes: int | None = None
    card_name: str | None = None
    end: LinesBefore = field(default_factory=lambda: LinesBefore(None, None, ""))
    """Where the run stood when the log ends."""
    error: FileError | None = None
    """What kept the rest of the log from being read."""
    last_error: str = ""
    """The last exception of a traceback, whatever it is about."""


def scan(name: str, progress: Callable[[int, int | None], None] | None = None) -> Log:
    """Read a log; where it is damaged, up to there.

    Raises:
        UsageError: there is none of that name.
    """
    log = Log(name)
    scanner = _Scanner(log, _year_of(name))
    try:
        read, size = 0, size_of(name)
        for block in blocks(name):
            scanner.take(block)
            read += block.end - block.start
            if progress is not None:
                progress(read, size if size is not None and read <= size else None)
    except FileError as error:
        log.error = error
    scanner.finish()
    return log


def _year_of(name: str) -> int:
    try:
        return datetime.fromtimestamp(Path(name).stat().st_mtime).year
    except (OSError, ValueError, OverflowError):
        return datetime.now().year


_ERROR = re.compile(
    rb"^(?:\[\w+\d*\]: ?)?([A-Za-z_][\w.]*(?:Error|Exception|Interrupt)\b.*)$", re.M
)
_RAISE = re.compile(r"^\W*(?:raise|logger\.\w+\(|print\(|f?[\"'])")


class _Scanner:
    def __init__(self, log: Log, year: int) -> None:
        self._log = log
        self._year = year
        self._peaks = Peaks()
        self._standing = Standing()
        self._seen: set[tuple[int, str]] = set()
        self._cgroup: str | None = None
        self._limit: int | None = None

    def take(self, block: LogPiece) -> None:
        """Look at a block."""
        data, start, end = block.data, block.start, block.end
        words = _SIEVE.within(data, start, end)
        self._peaks.look(data, start, end, frozenset(words), LineOf(data, start, block.first_line))
        self._standing.come_to(block, words)
        self._seen.clear()
        if _KERNEL.intersection(words):
            self._cgroups(block)
        for offset, rows in sorted(_hits(words, data, start, end).items()):
            self._look_at(block, offset, rows)
        self._standing.pass_by()
        if _ENDING in words and (error := _last(_ERROR, block, _ENDING)) is not None:
            self._log.last_error = error[1].decode("utf-8", "replace")[:_SHOWN]

    def finish(self) -> None:
        self._log.peaks = self._peaks.all()
        self._log.card_bytes = self._peaks.card_bytes
        self._log.card_name = self._peaks.card_name
        self._log.end = self._standing.now

    # -- one line ----------------------------------------------------------------------

    def _look_at(self, block: LogPiece, offset: int, rows: list[Signature]) -> None:
        line = block.line_text(offset)
        if _RAISE.match(line):  # the source code of a traceback, which quotes messages to come
            return
        number = block.line(offset)
        signature, match = _read(line, rows)
        start = block.line_start(offset)
        if signature is None or (start, signature.name) in self._seen:
            return
        self._seen.add((start, signature.name))
        count = self._log.counts.get(signature.name, 0) + 1
        self._log.counts[signature.name] = count
        if count <= _MOST_OF_A_KIND:
            self._log.signs.append(self._sign(block, offset, line, number, signature, match))

    def _sign(
        self,
        block: LogPiece,
        offset: int,
        line: str,
        number: int,
        signature: Signature,
        match: re.Match[str] | None,
    ) -> Sign:
        start = block.line_start(offset)
        origin = origin_of(line)
        sign = Sign(
            signature=signature,
            log=self._log.name,
            line=number,
            text=_shown(line, match),
            origin=origin,
            time=time_of(line, self._year),
        )
        if signature.name in ("failed", "killed", "bus-error", "crashed", "stopped"):
            sign = _of_elastic(sign, block, start, self._year)
        if signature.name == "gpu-out-of-memory":
            memory = out_of_memory(block.after(offset, _MESSAGE))
            sign = replace(sign, memory=memory, origin=origin.over(LineWriter(gpu=memory.gpu)))
        elif signature.resource is not None:
            sign = self._sized(sign, block, offset)
        if signature.role in ("cause", "death"):
            sign = self._placed(sign, block, start)
        return sign

    def _sized(self, sign: Sign, block: LogPiece, offset: int) -> Sign:
        """With the figures of a message that is not the allocator's."""
        text = block.after(block.line_start(offset), _MESSAGE)
        figures = {
            name: value for name, read in _FIGURES.items() if (value := read(text)) is not None
        }
        if sign.signature.name != "kernel-oom-kill":
            return replace(sign, figures=figures)
        victim = _VICTIM.search(text)
        if self._limit is not None:
            figures["limit_bytes"] = self._limit
        return replace(
            sign,
            figures=figures,
            victim=victim[2] if victim else None,
            origin=replace(sign.origin, pid=int(victim[1]) if victim else None),
            scope_path=self._cgroup if "cgroup" in sign.text else None,
        )

    def _placed(self, sign: Sign, block: LogPiece, start: int) -> Sign:
        """With the phase and the step that the run was in."""
        place = self._standing.at(start)
        lines = _traceback(block, start, sign.origin) if sign.signature.role == "cause" else []
        found = phase_of_frames(lines)
        if _is_pinned(sign, block, start):
            sign = replace(sign, signature=PINNED)
        phase, because = found or (place.phase, place.because)
        if sign.signature.phase is not None:
            phase, because = sign.signature.phase, "the message"
        frame = deciding_frame(lines, phase) if sign.signature.resource == "gpu" else None
        return replace(
            sign, phase=phase, because=because, frame=frame, step=place.step, amid=place.phase
        )

    def _cgroups(self, block: LogPiece) -> None:
        if found := _last(_CGROUP, block, _OOM_KILL):
            self._cgroup = found[1].decode("utf-8", "replace")
        if found := _last(_CGROUP_LIMIT, block, _USAGE):
            self._limit = int(found[1]) * 1024


def _last(pattern: re.Pattern[bytes], block: LogPiece, needle: bytes) -> re.Match[bytes] | None:
    """The last match in a block's own part; ``needle`` is what there is no match without."""
    data, start, end = block.data, block.start, block.end
    at = data.rfind(needle, start, end)
    while at >= 0:
        line = block.line_start(at)
        if match := pattern.search(data, line, min(end, at + 4096)):
            return match
        at = data.rfind(needle, start, line)
    return None


# How the name of an exception ends, nearly always.
_ENDING = b"rror"
# mm/oom_kill.c, dump_oom_summary; mm/memcontrol.c, mem_cgroup_print_oom_meminfo.
_OOM_KILL, _USAGE = b"oom-kill:", b"memory: usage"
_KERNEL = frozenset((_OOM_KILL, _USAGE))
_CGROUP = re.compile(rb"oom-kill:constraint=\w+,.*?(?:oom_memcg|task_memcg)=([^,\s]+)")
_CGROUP_LIMIT = re.compile(rb"memory: usage \d+kB, limit (\d{1,18})kB")
_VICTIM = re.compile(r"Kill(?:ed)? process (\d{1,18}),? \(([^)]*)\)")


def _kibibytes(*names: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{'|'.join(names)}):([\d,]{{1,20}})kB")


_RSS = _kibibytes("anon-rss", "shmem-rss", "file-rss")
_RAY = re.compile(r"was ([\d.]+ ?[KMGT]i?B) / ([\d.]+ ?[KMGT]i?B)")
_TRIED = re.compile(r"you tried to allocate (\d{1,18}) bytes|unable to mmap (\d{1,18}) bytes|"
                    r"Unable to allocate ([\d.]+ [KMGT]iB)")  # fmt: skip
_KV = re.compile(r"\(?([\d.]+ GiB) KV cache is needed.*?memory \(([\d.]+ GiB)\)")


def _rss(text: str) -> int | None:
    """What a killed process held: anonymous, shared and file pages."""
    line = text.partition("\n")[0]
    sizes = [int(size.replace(",", "")) for size in _RSS.findall(line)]
    return sum(sizes) * 1024 if sizes else None


def _group(pattern: re.Pattern[str], text: str, group: int) -> int | None:
    match = pattern.search(text)
    if match is None:
        return None
    found = match[group] if group else next(g for g in match.groups() if g)
    return int(found) if found.isdigit() else amount(found)


_FIGURES: Mapping[str, Callable[[str], int | None]] = {
    "process_bytes": _rss,
    "used_bytes": lambda text: _group(_RAY, text, 1),
    "limit_bytes": lambda text: _group(_RAY, text, 2),
    "tried_bytes": lambda text: _group(_TRIED, text, 0),
    "needed_bytes": lambda text: _group(_KV, text, 1),
    "available_bytes": lambda text: _group(_KV, text, 2),
}


def _rows_by_needle() -> Mapping[bytes, list[Signature]]:
    found: dict[bytes, list[Signature]] = {}
    for row in SIGNATURES:
        for needle in row.needles:
            found.setdefault(needle, []).append(row)
    for needle, _ in EXITS:
        found.setdefault(needle, [])
    return found


_ROWS = _rows_by_needle()
_SIEVE = Sieve((*_ROWS, *measured.NEEDLES, *standing.NEEDLES, *sorted(_KERNEL), _ENDING))


def _hits(
    words: Iterable[bytes], data: bytes, start: int, end: int
) -> Mapping[int, list[Signature]]:
    """Offsets of what may be a sign, with the signatures that it may be."""
    found: dict[int, list[Signature]] = {}
    for needle in words:
        if needle in _ROWS:
            for at in _places(data, needle, start, end):
                found.setdefault(at, []).extend(_ROWS[needle])
    return found


# Where a block says the same thousands of times, its first and last words are looked at.
_MOST_PLACES = 1000


def _places(data: bytes, needle: bytes, start: int, end: int) -> list[int]:
    first: list[int] = []
    at = data.find(needle, start, end)
    while at >= 0 and len(first) < _MOST_PLACES:
        first.append(at)
        at = data.find(needle, at + len(needle), end)
    last: list[int] = []
    floor, at = at, data.rfind(needle, start, end) if at >= 0 else -1
    while at >= floor >= 0 and len(last) < _MOST_PLACES:
        last.append(at)
        at = data.rfind(needle, floor, at)
    return first + last


def _read(line: str, rows: list[Signature]) -> tuple[Signature | None, re.Match[str] | None]:
    for row in rows:
        if row.pattern is None:
            return row, None
        if match := row.pattern.search(line):
            return row, match
    for _, pattern in EXITS:
        match = pattern.search(line)
        if match is not None and (signature := of_exit(match)) is not None:
            return signature, match
    return None, None


def _shown(line: str, match: re.Match[str] | None) -> str:
    """The part of a line that is worth showing."""
    line = line.strip()
    if len(line) <= _SHOWN:
        return line
    at = max(0, match.start() - 60) if match else 0
    cut = line[at : at + _SHOWN]
    return ("…" if at else "") + cut + ("…" if at + _SHOWN < len(line) else "")


def _is_pinned(sign: Sign, block: LogPiece, start: int) -> bool:
    """Whether the driver's refusal came as host memory was to be locked for it."""
    is_bare = sign.memory is not None and sign.memory.tried is None
    return is_bare and "pin_memory" in block.before(start, 1500)


_FIELDS = re.compile(r"^\s*(time|host|rank|exitcode)\s*:\s*(.+)$", re.MULTILINE)


def _of_elastic(sign: Sign, block: LogPiece, start: int, year: int) -> Sign:
    """With rank, host and time from the lines around an exit code in torchrun's summary."""
    around = block.before(start, 400)
    begin = around.rfind("]:\n")
    if begin < 0 or "(local_rank" not in around:
        return sign
    fields = dict(_FIELDS.findall(around[begin:]))
    ranks = re.match(r"(\d{1,9}) \(local_rank: (\d{1,9})\)", fields.get("rank", ""))
    origin = LineWriter(
        rank=int(ranks[1]) if ranks else None,
        local_rank=int(ranks[2]) if ranks else None,
        node=fields.get("host"),
    )
    return replace(
        sign,
        origin=origin.over(sign.origin),
        time=time_of(fields.get("time", ""), year) or sign.time,
    )


# rich sets a frame's function on a line of its own where the path is long.
_BROKEN = re.compile(r" in +│?\n│ (\w+)")
_HEAD = "Traceback (most recent call last)"
_NEAREST = 80


def _traceback(block: LogPiece, start: int, origin: LineWriter) -> list[str]:
    """The traceback that leads to a line, of the same rank if ranks have prefixes."""
    lines = re.split(r"[\r\n]+", _BROKEN.sub(r" in \1", block.before(start)))
    if origin.rank is not None:
        mark = re.compile(rf"\[(?:rank|default){origin.rank}\]")
        own = [line for line in lines if mark.search(line)]
        lines = own or lines
    return _last_traceback(lines)


def _last_traceback(lines: list[str]) -> list[str]:
    """The frames nearest to the end with what stands between them, from the start of their traceback
    where that is in reach."""
    tail = lines[-_NEAREST * 6 :]
    heads = [i for i, line in enumerate(tail) if _HEAD in line]
    frames = [i for i, line in enumerate(tail) if is_frame(line)]
    if heads and sum(i > heads[-1] for i in frames) >= 2:
        frames = [i for i in frames if i > heads[-1]]
    return tail[frames[-_NEAREST:][0] :] if frames else []
