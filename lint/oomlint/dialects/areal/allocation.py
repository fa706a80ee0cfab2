"""Who has how many cards, in AReaL's own words: ``fsdp:d4t2``, ``megatron:(attn:d4p4t2|ffn:d2p4e4)``.

Read from inclusionAI/AReaL 4aef98d8 (2026-05-21) ``areal/api/alloc_mode.py``. Until 93b572d0 (2026-03-24) one
``allocation_mode`` said it for all roles: ``sglang:d4+fsdp:d4``, and ``sglang.d4p1t1+d4p1t1`` in 2025.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.kinds import BadValue, Kind
from oomlint.errors import CannotEdit

_ENGINES = frozenset({"sglang", "vllm"})
_PART = re.compile(r"(?:(?P<backend>[a-z]+)(?:\[\w+\])?[:.])?(?P<degrees>(?:[dtpce][1-9]\d{0,5})+)")
_HYBRID = re.compile(
    r"(?P<backend>megatron|archon)(?:\[\w+\])?:\(?attn:(?P<attn>(?:[dtpc][1-9]\d{0,5})+)"
    r"\|ffn:(?P<ffn>(?:[dtpe][1-9]\d{0,5})+)\)?"
)
_DEGREE = re.compile(r"([dtpce])(\d+)")
_LONGEST = 200


class Allocation(Struct, frozen=True):
    """A backend with its degrees; ``etp`` where experts are split otherwise than the rest."""

    backend: str
    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int | None = None

    @property
    def world(self) -> int:
        return self.dp * self.tp * self.pp * self.cp

    def __str__(self) -> str:
        degrees = f"d{self.dp}p{self.pp}t{self.tp}"
        degrees += f"c{self.cp}" if self.cp > 1 else ""
        return f"{self.backend}:{degrees}" + (f"e{self.ep}" if self.ep > 1 else "")


def _degrees(text: str) -> dict[str, int]:
    return {letter: int(count) for letter, count in _DEGREE.findall(text)}


def _one(text: str, backend: str) -> Allocation | None:
    """``backend`` is of what names none."""
    found = _PART.fullmatch(text)
    if found is None:
        return None
    d = _degrees(found["degrees"])
    sizes = {"dp": d.get("d", 1), "tp": d.get("t", 1), "pp": d.get("p", 1)}
    return Allocation(found["backend"] or backend, **sizes, cp=d.get("c", 1), ep=d.get("e", 1))


def _read(raw: Any) -> Allocation:
    text = re.sub(r"\s", "", str(raw))[:_LONGEST]
    hybrid = _HYBRID.fullmatch(text)
    if hybrid is not None:
        attn, ffn = _degrees(hybrid["attn"]), _degrees(hybrid["ffn"])
        return Allocation(
            hybrid["backend"], attn.get("d", 1), attn.get("t", 1), attn.get("p", 1), attn.get("c", 1),
            ffn.get("e", 1), ffn.get("t", 1),
        )  # fmt: skip
    found = _one(text, "")
    if found is None or not found.backend:
        raise BadValue("expected a backend and its degrees, such as fsdp:d4t2")
    return found


def _write(value: Any) -> str:
    if not isinstance(value, Allocation) or value.etp is not None:
        raise CannotEdit("the degrees of attention and of experts are said apart (attn, ffn)")
    return str(value)


def _read_mode(raw: Any) -> tuple[Allocation, ...]:
    """The parts of an ``allocation_mode``: what names no backend trains, with Megatron where there are stages
    or experts to spread, with FSDP else."""
    found = []
    text = re.sub(r"\s", "", str(raw))[:_LONGEST]
    hybrid = _HYBRID.search(text)
    if hybrid is not None:
        found.append(_read(hybrid[0]))
        text = text.replace(hybrid[0], "")
    for word in re.split(r"[+|]", text):
        part = _one(word, "fsdp")
        if part is not None and part.backend == "fsdp" and (part.pp > 1 or part.ep > 1):
            part = replace(part, backend="megatron")
        if part is not None:
            found.append(part)
    return tuple(found)


def _cannot(_value: Any) -> Any:
    raise CannotEdit("allocation_mode says how many cards each role has")


BACKEND = Kind(_read, _write, {"type": "string"})
MODE = Kind(_read_mode, _cannot, {"type": "string"})


def trained(parts: tuple[Allocation, ...]) -> Allocation | None:
    return next((part for part in parts if part.backend not in _ENGINES), None)


def served(parts: tuple[Allocation, ...]) -> Allocation | None:
    return next((part for part in parts if part.backend in _ENGINES), None)
