"""The rules of oomlint: one module a rule, grouped in a folder per family."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module

from oomlint.linting.rule import ListedRule, Rule, Where


def listed() -> Iterator[ListedRule]:
    """Every rule by code, none of them imported: see :mod:`.index`."""
    from oomlint_rules.index import ROWS

    for code, name, module, cls, looks_at_merges, may_end, *wheres in ROWS:
        only_where = tuple(Where(**where) for where in wheres)
        yield ListedRule(code, name, _loader(module, cls), looks_at_merges, may_end, only_where)


def rules() -> Iterator[type[Rule]]:
    """Every rule class of this package, by code."""
    for rule in listed():
        yield rule.load()


def _loader(module: str, name: str) -> Callable[[], type[Rule]]:
    @cache
    def load() -> type[Rule]:
        rule: type[Rule] = getattr(import_module(f"{__name__}.{module}"), name)
        return rule

    return load
