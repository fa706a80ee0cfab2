"""Names that only the first process of a script binds, and every process reads."""

from __future__ import annotations

import pytest

from oomlint.documents.python.document import parse_python
from oomlint.documents.text import Source

_GUARD = "if accelerator.is_main_process:\n        ds = load()\n"


def _named(body: str) -> list[str]:
    text = f"Trainer = 1\n\n\ndef main(rank, given):\n    {body}\n\n\nmain(0, None)\n"
    facts = parse_python(Source.from_bytes("train.py", text.encode())).facts
    return [fact.detail["name"] for fact in facts if fact.kind == "first-rank-alone"]


@pytest.mark.parametrize(
    "body",
    [
        f"{_GUARD}    return ds",
        f"{_GUARD}    train(ds)\n    show(ds)",
        "if rank == 0:\n        if new:\n            ds = load()\n        else:\n            print('kept')\n    return ds",
        "if is_main_process():\n        ds = load()\n    for batch in ds:\n        pass",
    ],
)
def test_a_name_that_only_the_first_process_binds_is_unbound_in_the_others(body: str) -> None:
    assert _named(body) == ["ds"]


@pytest.mark.parametrize(
    "body",
    [
        f"{_GUARD}    else:\n        ds = other()\n    return ds",
        f"ds = None\n    {_GUARD}    return ds",
        f"{_GUARD}    ds = read()\n    return ds",
        f"{_GUARD}    if accelerator.is_main_process:\n        show(ds)",
        "if accelerator.is_main_process:\n        given = load()\n    return given",
        f"global ds\n    {_GUARD}    return ds",
        "if rank == 1:\n        ds = load()\n    return ds",
        f"{_GUARD}    return None",
    ],
)
def test_other_names_are_not(body: str) -> None:
    assert _named(body) == []
