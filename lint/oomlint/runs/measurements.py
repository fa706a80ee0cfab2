"""What runs were measured to take: the measurements that a team keeps beside its settings.

``oomlint diagnose LOG --config FILE --keep`` adds a line to ``.oomlint-measured.jsonl``; whatever is checked
below that folder is predicted by the model and by what these lines say of runs like it
(:mod:`oomlint.memory.measured`). A line has the plan of its run, so that it holds whatever becomes of the
files that the plan was read from.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import DecodeError, Struct, field
from msgspec.json import decode, encode

from oomlint.errors import FileError, ParseError, UsageError

if TYPE_CHECKING:
    from oomlint.files.workspace import Workspace
    from oomlint.memory.measured import Measurement

NAME = ".oomlint-measured.jsonl"


class Kept(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line: the run, when and on what it was measured, by which words of which log, its plan, and what it
    took, in bytes: of one GPU as torch allocated or reserved it or the card had it in use, of a node its RAM."""

    run: str
    date: str
    hardware: str
    source: str
    plan: dict[str, Any] = field(default_factory=dict)
    allocated: int | None = None
    reserved: int | None = None
    device: int | None = None
    host: int | None = None

    def measurement(self, place: str) -> Measurement:
        """What the line tells.

        Raises:
            UsageError: the hardware or the plan is none.
        """
        from oomlint.hardware import parse_hardware
        from oomlint.memory.measured import Measurement
        from oomlint.plan import Plan
        from oomlint.validation.records import record

        return Measurement(
            plan=record(Plan, self.plan),
            hardware=parse_hardware(self.hardware),
            place=place,
            allocated=self.allocated,
            reserved=self.reserved,
            device=self.device,
            host=self.host,
        )


class KeptMeasurements:
    """The measurements kept around the files of a workspace, each file of them read once."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._read: dict[str, tuple[Measurement, ...]] = {}
        self.errors: list[FileError] = []
        """What is wrong with lines of them."""

    def around(self, from_file: str) -> tuple[Measurement, ...]:
        """The measurements that a file's project keeps."""
        name = self._workspace.resolve(NAME, from_file)
        if name is None:
            return ()
        if name not in self._read:
            self._read[name] = tuple(self._in(name))
        return self._read[name]

    def _in(self, name: str) -> Iterator[Measurement]:
        from oomlint.validation.records import record

        try:
            lines = self._workspace.read(name).split(b"\n")
        except FileError as error:
            self.errors.append(error)
            return
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield record(Kept, decode(line)).measurement(f"{name}:{number}")
            except (DecodeError, ValueError, RecursionError):
                self.errors.append(ParseError(name, "is no line of JSON", line=number))
            except UsageError as error:
                self.errors.append(ParseError(name, str(error), line=number))


def keep(kept: Kept, from_file: str, workspace: Workspace, folder: Path | None) -> str:
    """Add a line to what is kept around a file of its run, else to a new file beside the settings in ``folder``, else at the top
    of the run's project; returns the place.

    Raises:
        CannotEdit: the file lies elsewhere, or is being written.
        FileError: it cannot be read or written.
    """
    from oomlint.documents.write import write_atomically

    name = workspace.resolve(NAME, from_file)
    at = folder or workspace.project_around(from_file)
    name = name or workspace.name(at / NAME)
    there = workspace.exists(name)
    data = workspace.read(name) if there else b""
    new = with_line(data, kept)
    roots = (*workspace.roots, at)
    write_atomically(workspace.file(name), new, expected=data if there else None, roots=roots)
    return f"{name}:{len(new.splitlines())}"


def with_line(data: bytes, kept: Kept) -> bytes:
    """The bytes of a file of measurements with one more; an earlier one of the same run, plan and hardware goes."""
    line = encode(_plain(kept))
    same = (kept.run, kept.hardware, kept.plan)
    left = [each for each in data.split(b"\n") if each.strip() and _identity(each) != same]
    return b"\n".join((*left, line)) + b"\n"


def _plain(kept: Kept) -> dict[str, Any]:
    """A line as plain values, what is not known left out."""
    names = Kept.__struct_fields__
    return {name: value for name in names if (value := getattr(kept, name)) is not None}


def _identity(line: bytes) -> object:
    """What makes a line another measurement; of what is no line of ours, nothing."""
    try:
        value = decode(line)
    except (DecodeError, ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return value.get("run"), value.get("hardware"), value.get("plan")
