"""What the comment at the head of a config says of the machine that it is for.

open-r1 begins its recipes with "Config for 16 nodes of 8 H100s with FSDP1" (huggingface/open-r1
recipes/OlympicCoder-32B/sft/config_v00.00.yaml), others with "8xA100, ZeRO-3". It starts nothing,
but nobody knew better than who wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from oomlint.dialects.accelerate.keys import own
from oomlint.dialects.block import Block
from oomlint.dialects.kinds import COUNT, choice
from oomlint.dialects.table import Row, Table
from oomlint.documents.base import Document, Entry, Mapping, Scalar
from oomlint.documents.text import Span
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

HEAD_COMMENT = Table(
    name="comment at the head",
    rows=(
        Row("nodes", f.parallel.nodes, COUNT),
        Row("gpus", f.parallel.gpus_per_node, COUNT),
        Row("engine", own.distributed_type, choice({"zero": "deepspeed", "fsdp": "fsdp"})),
        Row("zero_stage", f.parallel.zero.stage, COUNT),
        Row("fsdp_version", f.parallel.fsdp.version, COUNT),
    ),
    loader="yaml12",
    section="comment",
)
# As many as an NVIDIA DGX-2 has; more are those of several nodes together: "a preset for 64 A100 GPUs".
_MOST_OF_A_NODE = 16
_LOCKED = "it stands in a comment"

_COMMENT = re.compile(r"[ \t]*#(?P<said>[^\r\n]*)(?:\r?\n|$)")
_NO_KEY = re.compile(r"[ \t]*(?:---)?[ \t]*\r?\n")
# A card by its name, or just a GPU: `8 H100s`, `8xA100-80GB`, `4 x GPU`.
_GPUS = re.compile(r"\b(?P<gpus>\d{1,2}) ?[x×]? ?(?:NVIDIA )?(?:[A-Z]{1,3}\d{2,4}[\w-]*|GPUs?)\b")
# `16 nodes`, and with what each has: `2 8xH100 nodes` (torchtune recipes/configs/llama4/maverick_17B_128E_full.yaml).
_NODES = re.compile(r"\b(?P<nodes>\d{1,4}) (?:\d{1,2} ?[x×] ?[\w-]+ )?nodes?\b", re.IGNORECASE)
_ZERO = re.compile(r"\b(?P<engine>zero)[ -]?(?:stage)?[ -]?(?P<zero_stage>[123])\b", re.IGNORECASE)
_FSDP = re.compile(r"\b(?P<engine>fsdp)[ -]?v?(?P<fsdp_version>[12])?\b", re.IGNORECASE)


def head_comment(document: Document) -> Block | None:
    """How many nodes and GPUs a config is for, and how the states are shared among them, by the one
    line of the comment above its first key that counts GPUs."""
    text = document.source.text
    lines = [span for span in _comments(text) if _GPUS.search(text, span.start, span.end)]
    if len(lines) != 1:
        return None
    (line,) = lines
    gpus = _GPUS.search(text, line.start, line.end)
    if gpus is None or int(gpus["gpus"]) > _MOST_OF_A_NODE:
        return None
    entries = {entry.key: entry for entry in _entries(text, line)}
    mapping = Mapping(line, entries)
    return Block(document, mapping, HEAD_COMMENT, line, locked=_LOCKED, level=Level.ASSUMED)


def _comments(text: str) -> Iterator[Span]:
    start = 0
    while start < len(text):
        comment = _COMMENT.match(text, start)
        found = comment or _NO_KEY.match(text, start)
        if found is None:
            return
        if comment is not None:
            yield Span(*comment.span("said"))
        start = found.end()


def _entries(text: str, line: Span) -> Iterator[Entry]:
    for pattern in (_NODES, _GPUS, _ZERO, _FSDP):
        found = pattern.search(text, line.start, line.end)
        for name in pattern.groupindex if found is not None else ():
            if found is not None and found[name] is not None:
                place = Span(*found.span(name))
                yield Entry(name, place, Scalar(place, found[name].lower(), plain=True), place)
