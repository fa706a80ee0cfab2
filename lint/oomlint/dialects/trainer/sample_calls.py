"""The calls of a script that cut its samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from oomlint.dialects.entries import plain_value
from oomlint.dialects.trainer.call_arguments import value_of
from oomlint.documents.base import (
    UNKNOWN,
    Call,
)
from oomlint.documents.python.lengths import LENGTH_NAMES


def cutting(calls: Sequence[Call]) -> Iterator[Call]:
    """The call of a tokenizer that leaves samples longest, where every call that cuts them says
    its length, or where there is but one; prompts that are answered (``return_tensors``) are no samples
    unless padded."""
    lengths: dict[Call, int | None] = {}
    for call in calls:
        given = call.arguments.entries
        if call.callee.rpartition(".")[2] not in ("tokenizer", "apply_chat_template"):
            continue
        cuts = value_of(call, "truncation")
        if cuts is UNKNOWN:
            return
        if not cuts:
            continue
        is_asked = value_of(call, "return_tensors") is not None
        if is_asked and value_of(call, "padding") != "max_length":
            continue
        if "max_length" not in given:
            return
        length = plain_value(given["max_length"].value, "yaml12")
        lengths[call] = length if isinstance(length, int) else None
    if len(lengths) == 1:
        yield from lengths
    elif None not in lengths.values():
        yield from sorted(lengths, key=lambda call: lengths[call] or 0)[-1:]


def cut_datasets(calls: Sequence[Call]) -> Iterator[Call]:
    """The call of a dataset of the project's own that leaves samples longest, where all are told how many
    tokens one may have."""
    lengths: dict[Call, int] = {}
    for call in calls:
        if call.callee.endswith("Dataset"):
            given = call.arguments.entries
            said = next(e.value for name, e in given.items() if name in LENGTH_NAMES)
            length = plain_value(said, "yaml12")
            if not isinstance(length, int):
                yield call  # not known, which is more than nothing: no other limit is that of its samples
                return
            lengths[call] = length
    if not lengths:
        return
    longest = max(lengths, key=lambda call: lengths[call])
    if len(lengths) > 1:
        alone = replace(longest.arguments, locked="several datasets are told how long samples are")
        longest = replace(longest, arguments=alone)
    yield longest
