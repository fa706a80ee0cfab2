"""Where a line of a log comes from: which rank, process, node and GPU wrote it, and when."""

from __future__ import annotations

import re
from datetime import datetime

from msgspec import Struct


class LineWriter(Struct, frozen=True):
    """What a line says of its writer; ``None`` where it does not say."""

    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    pid: int | None = None
    gpu: int | None = None
    """The device's index on its node, as the process sees it."""

    @property
    def words(self) -> str:
        """``rank 3 on gpu-q-49`` or whatever is known; empty where nothing is."""
        parts = []
        if self.rank is not None:
            parts.append(f"rank {self.rank}")
        elif self.local_rank is not None:
            parts.append(f"local rank {self.local_rank}")
        elif self.pid is not None:
            parts.append(f"process {self.pid}")
        if self.node is not None:
            parts.append(f"on {self.node}")
        return " ".join(parts)

    def over(self, other: LineWriter) -> LineWriter:
        """This origin, completed by another."""
        pairs = (
            (getattr(self, name), getattr(other, name))
            for name in ("rank", "local_rank", "node", "pid", "gpu")
        )
        return LineWriter(*(a if a is not None else b for a, b in pairs))


_RANKS = tuple(
    re.compile(pattern)
    for pattern in (
        # torch 2.3 and later prefix exceptions and C++ logs of a rank (torch/distributed/
        # c10d_logger.py and c10/util/Logging.cpp); torchrun --tee writes [default0]:.
        r"\[rank(\d{1,18})\]:",
        r"\[default(\d{1,18})\]:",
        # ProcessGroupNCCL, DeepSpeed's log_dist and Axolotl name it inside the line.
        r"\[(?:PG [^\]]*?)?[Rr]ank (\d{1,18})\]",
        r"\[RANK:(\d{1,18})\]",
        r"^\s*rank\s*:\s*(\d{1,18}) \(local_rank",
        # srun --label.
        r"^\s*(\d{1,4}): (?=\S)",
    )
)
_LOCAL_RANK = re.compile(r"local_rank[:=]\s*(\d{1,18})")
_PID = re.compile(
    r"\bpid[=:\s]+(\d{1,18})|\bPID[: ](\d{1,18})|\[PID:(\d{1,18})\]|[Kk]ill(?:ed)? process (\d{1,18})"
)
_RAY_IP = re.compile(r"\(\w[\w.]*(?: \w+)? pid=\d+, ip=([\d.]+)\)|\(IP: ([\d.]+)")
_ELASTIC_HOST = re.compile(r"^\s*host\s*:\s*(\S+)")
_SLURM_HOST = re.compile(r"\bsrun: error: ([\w.-]+): task|slurmstepd-([\w.-]+): error")
# pdsh, which DeepSpeed's launcher uses across nodes, and mpirun --tag-output.
_PDSH_HOST = re.compile(r"^([A-Za-z][\w.-]*\d[\w.-]*): (?=\S|\s)")
# syslog: `May 15 23:09:30 node-3 kernel: ...`.
_SYSLOG_HOST = re.compile(r"^(?:\w{3} [ \d]\d [\d:]{8}|\d{4}-\d\d-\d\dT\S+) ([\w.-]+) kernel:")


def origin_of(line: str) -> LineWriter:
    """What a line, without escapes, says of who wrote it."""
    rank = next((int(m[1]) for p in _RANKS if (m := p.search(line))), None)
    local = _LOCAL_RANK.search(line)
    return LineWriter(
        rank=rank,
        local_rank=int(local[1]) if local else None,
        node=_first(_RAY_IP, line)
        or _first(_SLURM_HOST, line)
        or _first(_SYSLOG_HOST, line)
        or _first(_ELASTIC_HOST, line)
        or _first(_PDSH_HOST, line),
        pid=int(pid) if (pid := _first(_PID, line)) else None,
    )


def _first(pattern: re.Pattern[str], line: str) -> str | None:
    match = pattern.search(line)
    return next((group for group in match.groups() if group), None) if match else None


_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T_ ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_BRACKETED = re.compile(r"\[(\w{3} \w{3} [ \d]\d [\d:]{8} \d{4})\]")  # dmesg -T
# glog of torch's C++ and, since 2.3, Python loggers: `E0321 02:07:08.408271257`.
_GLOG = re.compile(r"\b[EWIF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d+))?")
_SYSLOG = re.compile(r"^(\w{3}) ([ \d]\d) (\d\d):(\d\d):(\d\d) ")


def time_of(line: str, year: int) -> datetime | None:
    """When a line was written, if it says so. Forms without a year get ``year``."""
    try:
        if match := _ISO.search(line):
            moment = datetime.strptime(" ".join(match.groups()[:6]), "%Y %m %d %H %M %S")
            return moment.replace(microsecond=int((match[7] or "0").ljust(6, "0")))
        if match := _BRACKETED.search(line):
            return datetime.strptime(match[1], "%a %b %d %H:%M:%S %Y")
        if match := _GLOG.search(line):
            moment = datetime.strptime(
                " ".join((str(year), *match.groups()[:5])), "%Y %m %d %H %M %S"
            )
            return moment.replace(microsecond=int((match[6] or "0")[:6].ljust(6, "0")))
        if match := _SYSLOG.search(line):
            return datetime.strptime(" ".join((str(year), *match.groups())), "%Y %b %d %H %M %S")
    except ValueError:  # digits that look like a date and are none
        return None
    return None
