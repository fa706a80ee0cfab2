"""In which situations errors on memory were false, and what a law that says less there would have brought.

::

    python -m benchmarks.strangers.situations

A row of ``situations.jsonl`` is an error on memory of the draws 22 to 33 that was read (``findings-*.jsonl``), with what
oomlint knew of its run on the day of the reading. A law names rows that would be no error by it. Printed is how many
true, moot and false ones each takes, what is left, and what comes of it where each draw is judged by the law that
the other draws would choose: the most precise of those that cost these at most a twentieth of the true errors.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

TABLE = Path(__file__).parent / "situations.jsonl"
# Of the true errors a law may cost so many.
_COST = 0.05
# A card above is one of 80 GB.
_LARGE = 60
_EVEN = 0.5
# Seen on this table afterwards: more than nearly every card has, in GiB, and so many values assumed or unread.
_BEYOND, _SEVERAL = 120, 3
# These are not about what the GPU needs.
_OTHER_RULES = ("OOM400", "OOM401", "OOM612")


@dataclass(frozen=True)
class Row:
    """An error that was read. ``need``, ``states``, ``least``, ``if_checkpointed``, ``at_one_sample`` and ``all_misread``
    are shares of the card: what is predicted; weights, gradients and optimizer states alone; what is left at one sample
    a micro batch, of evaluation too, with activations computed again; with one of these two; and with samples of at
    most 1,024 tokens, a fused loss, ZeRO 3 and 16 bits besides. ``least_risk`` is the risk of ``least``, ``batch_share``
    the share of activations and logits in the peak, ``card`` what it gives in GiB."""

    draw: int
    repo: str
    path: str
    line: int
    rule: str
    verdict: str
    dialect: str
    is_program: bool
    """Whether code of the project's own is what runs."""
    is_launched: bool
    card: float
    need: float
    states: float
    batch_share: float
    least: float
    least_risk: float
    if_checkpointed: float
    at_one_sample: float
    all_misread: float
    confidence: str
    unread: int
    assumed: int
    is_pinned: bool
    names_data: bool
    batches: str
    trains: str | None
    model_is_verified: bool
    lacks_a_file: bool


# The law in force: judgement/batches.py.
TAKEN = "own program, padded, lives at one checkpointed sample"

Law: TypeAlias = Callable[[Row], bool]
LAWS: Mapping[str, Law] = {
    "none": lambda row: False,
    "own program, lives at one checkpointed sample": lambda row: (
        row.is_program and row.least_risk < _EVEN
    ),
    TAKEN: lambda row: row.is_program and row.batches != "filled" and row.least_risk < _EVEN,
    "own program, lives so, by the need alone": lambda row: row.is_program and row.least < 1,
    "lives at one checkpointed sample": lambda row: row.least_risk < _EVEN,
    "the same, own program or 80 GB": lambda row: (
        row.least_risk < _EVEN and (row.is_program or row.card > _LARGE)
    ),
    "own program, fits at one sample": lambda row: row.is_program and row.at_one_sample < 1,
    "own program, fits if checkpointed": lambda row: row.is_program and row.if_checkpointed < 1,
    "own program, states fit": lambda row: row.is_program and row.states < 1,
    "states fit": lambda row: row.states < 1,
    "fits if all is misread": lambda row: row.all_misread < _EVEN,
    "mostly activations and logits": lambda row: row.batch_share > _EVEN,
    "the same, padded": lambda row: row.batch_share > _EVEN and row.batches == "padded",
    "own program": lambda row: row.is_program,
    "own program that nothing launches": lambda row: row.is_program and not row.is_launched,
    "config that nothing launches": lambda row: not (row.is_program or row.is_launched),
    "a loop of its own": lambda row: row.dialect == "loop",
    "80 GB": lambda row: row.card > _LARGE,
    "80 GB, states fit": lambda row: row.card > _LARGE and row.states < 1,
    "more than 4 cards": lambda row: row.need > 4,
    "more than 120 GiB": lambda row: row.need * row.card > _BEYOND,
    "more than 120 GiB, three values open": lambda row: (
        row.need * row.card > _BEYOND and row.unread + row.assumed >= _SEVERAL
    ),
    "own program, states of more than 4 cards": lambda row: row.is_program and row.states > 4,
    "less than 1.3 cards": lambda row: row.need < 1.3,
    "low confidence": lambda row: row.confidence == "low",
    "something unread": lambda row: row.unread > 0,
    "something assumed": lambda row: row.assumed > 0,
    "nothing pinned": lambda row: not row.is_pinned,
    "data not named": lambda row: not row.names_data,
    "adapters": lambda row: row.trains in ("lora", "qlora"),
    "model not verified": lambda row: not row.model_is_verified,
    "a file lacks": lambda row: row.lacks_a_file,
}


def rows() -> list[Row]:
    return [Row(**json.loads(line)) for line in TABLE.read_text("utf-8").splitlines()]


def takes(law: Law, row: Row) -> bool:
    """Whether a row would be no error by a law."""
    return row.rule not in _OTHER_RULES and law(row)


def kept(law: Law, group: Sequence[Row]) -> list[Row]:
    return [row for row in group if not takes(law, row)]


def precision(group: Sequence[Row]) -> float:
    """The true among the true and the false."""
    counted = Counter(row.verdict for row in group)
    return counted["true"] / max(1, counted["true"] + counted["false"])


def cost(law: Law, group: Sequence[Row]) -> float:
    """The share of the true ones that a law takes."""
    true = [row for row in group if row.verdict == "true"]
    return sum(takes(law, row) for row in true) / max(1, len(true))


def chosen(group: Sequence[Row]) -> str:
    """The most precise law of those that cost little, by these rows."""
    cheap = [name for name, law in LAWS.items() if cost(law, group) <= _COST]
    return max(cheap, key=lambda name: precision(kept(LAWS[name], group)))


def left_out(group: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Of each draw the law that the others choose, and what it leaves of that draw."""
    for draw in sorted({row.draw for row in group}):
        name = chosen([row for row in group if row.draw != draw])
        yield name, kept(LAWS[name], [row for row in group if row.draw == draw])


def table(group: Sequence[Row]) -> Iterator[str]:
    yield "| no error where | takes: true, moot, false | leaves | of the true it costs |"
    yield "|---|---|---|---|"
    for name, law in LAWS.items():
        taken = Counter(row.verdict for row in group if takes(law, row))
        counts = ", ".join(str(taken[verdict]) for verdict in ("true", "moot", "false"))
        left = precision(kept(law, group))
        yield f"| {name} | {counts} | {left:.1%} | {cost(law, group):.1%} |"
    found = list(left_out(group))
    left_rows = [row for _, each in found for row in each]
    true = sum(row.verdict == "true" for row in group)
    lost = true - sum(row.verdict == "true" for row in left_rows)
    yield f"| chosen by the other draws | | {precision(left_rows):.1%} | {lost / true:.1%} |"
    yield ""
    yield "; ".join(f"{n} draws: {name}" for name, n in Counter(n for n, _ in found).most_common())


if __name__ == "__main__":
    print("\n".join(table(rows())))
