"""Files of plain lines that a launch names: hosts with their slots, and environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.block import Block
from oomlint.dialects.kinds import Kind
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.machine.launcher_keys import ENVIRONMENT
from oomlint.dialects.table import Row, Table
from oomlint.documents.base import Document, Entry, Mapping, Node, Scalar, Sequence
from oomlint.documents.text import Span

# DeepSpeed edaa7221 launcher/runner.py _parse_hostfile and Open MPI 5 mpirun(1): `host slots=8`;
# MPICH 4 mpiexec(1): `host:8`.
_HOST = re.compile(r"[ \t]*([^\s#:=]+)(?:[ \t]+slots[ \t]*=[ \t]*(\d+)|:(\d+))?")
# docker run(1), "--env-file", and the Compose Specification, "env_file".
_VARIABLE = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=([^\r\n]*?)[ \t]*$", re.ASCII)


def _read_hosts(raw: Any) -> tuple[tuple[str, int | None], ...] | None:
    pairs = (str(item).partition(" ") for item in raw)
    return tuple((host, int(slots) if slots else None) for host, _, slots in pairs) or None


_HOST_LIST = Table(
    name="hostfile",
    rows=(Row("hosts", launch.listed_hosts, Kind(_read_hosts)),),
    known_prefixes=("",),
    section="scheduler",
)


class _LineFile(Dialect):
    suffixes = ()
    any_text: ClassVar[bool] = True

    def recognise(self, document: Document) -> Iterable[Claim]:
        return ()


class HostFile(_LineFile):
    name = "hostfile"
    # DeepSpeed 0.9 to 0.19 launcher/runner.py fetch_hostfile warns, and starts what is on this node.
    may_lack = True

    def adopt(self, document: Document) -> Claim | None:
        hosts: list[Node] = []
        for span, text in _lines(document):
            match = _HOST.match(text)
            if match is None:
                return None
            host = f"{match[1]} {match[2] or match[3] or ''}".rstrip()
            hosts.append(Scalar(span, host, locked="it is the cluster's list of hosts"))
        if not hosts:
            return None
        whole = Span(hosts[0].span.start, hosts[-1].span.end)
        entries = {"hosts": Entry("hosts", whole, Sequence(whole, tuple(hosts)), whole)}
        block = Block(document, Mapping(whole, entries), _HOST_LIST, whole)
        return Claim(self, "part", document, (block,))


class EnvFile(_LineFile):
    name = "env-file"

    def adopt(self, document: Document) -> Claim | None:
        entries: dict[str, Entry] = {}
        for span, text in _lines(document):
            match = _VARIABLE.match(text)
            if match is None:
                continue  # a bare name takes the value of whoever starts the container
            key = Span(span.start + match.start(1), span.start + match.end(1))
            value = match[2].strip("\"'")
            at = span.start + match.start(2) + match[2].find(value)
            scalar = Scalar(Span(at, at + len(value)), value)
            entries[match[1]] = Entry(match[1], key, scalar, span)
        if not entries:
            return None
        whole = Span(0, len(document.source.text))
        block = Block(document, Mapping(whole, entries), ENVIRONMENT, whole)
        return Claim(self, "part", document, (block,))


def _lines(document: Document) -> Iterator[tuple[Span, str]]:
    """Lines that say something, with where they stand."""
    source = document.source
    for number in range(1, len(source.line_starts) + 1):
        span = source.line_span(number)
        text = source.text[span.start : span.end].rstrip()
        if text.strip() and not text.lstrip().startswith("#"):
            yield Span(span.start, span.start + len(text)), text
