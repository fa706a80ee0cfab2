"""Every rule's page, metadata and examples hold."""

import re

import pytest

from oomlint.config.overrides import read_value
from oomlint.linting.engine import all_rules
from oomlint.linting.rule import KNOWN
from oomlint.linting.testing import problems
from oomlint.plan.fields import path_of

RULES = all_rules()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_examples(rule):
    found = "\n".join(problems(rule))
    assert not found, found  # as a message it is shown whole


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_values_are_those_of_the_plan(rule):
    """A value that no plan has is true of no run, and no framework has words for it."""
    asked = [(field, value) for where in rule.only_where for field, value in _asked(where)]
    for field, value in (*asked, *getattr(rule, "change", {}).items()):
        read_value(path_of(field), value)


def _asked(where):
    for values in (where.plan, where.meant):
        for field, wanted in values.items():
            yield from ((field, value) for value in (() if wanted is KNOWN else wanted))


def test_codes_and_names_are_unique_and_well_formed():
    codes = [rule.code for rule in RULES]
    names = [rule.name for rule in RULES]
    assert len(set(codes)) == len(codes)
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"OOM[1-9]\d\d", code) for code in codes)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)
