"""``python -m oomlint_rules``: write the index of rules anew."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from oomlint.linting.rule import Rule, Where
from oomlint.plan.fields import Field, path_of

INDEX = Path(__file__).with_name("index.py")

_HEAD = '''"""By code: name, module, class, whether it looks at merges, whether what it finds may end
a run, and what of the runs it looks at.

Written by ``python -m oomlint_rules`` from the rules themselves, so that listing and selecting rules
imports none of them; do not edit.
"""

from __future__ import annotations

from typing import Any

# fmt: off
ROWS: tuple[tuple[Any, ...], ...] = (
'''


def index_text() -> str:
    """What the index must hold, according to the rules.

    Raises:
        ValueError: two rules have one code or one name.
    """
    rules, rows = _rules(), []
    by_word: dict[str, type[Rule]] = {}
    for rule in rules:
        for word in (rule.code, rule.name):
            other = by_word.setdefault(word, rule)
            if other is not rule:
                raise ValueError(f"{word} is a rule of {other.__module__} and of {rule.__module__}")
    for rule in sorted(rules, key=lambda rule: rule.code):
        where = rule.__module__.removeprefix("oomlint_rules.")
        row = (rule.code, rule.name, where, rule.__name__, rule.looks_at_merges, rule.may_end)
        rows.append(f"    {(*row, *map(_said, rule.only_where))!r},\n")
    return _HEAD + "".join(rows) + ")\n"


def _said(where: Where) -> dict[str, object]:
    """A condition on runs as plain data, without what it leaves open."""
    return {name: _plain(value) for name, value in asdict(where).items() if value}


def _plain(value: Any) -> Any:
    """Fields as the paths that they are."""
    if isinstance(value, Field):
        return path_of(value)
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, Mapping):
        return {_plain(key): inner for key, inner in value.items()}
    return value


def _rules() -> list[type[Rule]]:
    """Every rule class of this package, found by walking its folders."""
    root = Path(__file__).parent
    found: list[type[Rule]] = []
    for file in sorted(root.glob("*/*.py")):
        if file.name.startswith("_"):
            continue
        module = import_module(f"oomlint_rules.{file.parent.name}.{file.stem}")
        found += [
            value
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, Rule)
            and value.__module__ == module.__name__
        ]
    return found


if __name__ == "__main__":
    try:
        INDEX.write_text(index_text(), "utf-8")
    except ValueError as error:
        sys.exit(str(error))
