"""The rules of oomlint: one module a rule, grouped in a folder per family."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from oomlint.rule import Rule


def rules() -> Iterator[type[Rule]]:
    """Every rule class of this package, found by walking its folders."""
    root = Path(__file__).parent
    for file in sorted(root.glob("*/*.py")):
        if file.name.startswith("_"):
            continue
        module = import_module(f"{__name__}.{file.parent.name}.{file.stem}")
        for value in vars(module).values():
            if (
                isinstance(value, type)
                and issubclass(value, Rule)
                and value.__module__ == module.__name__
            ):
                yield value
