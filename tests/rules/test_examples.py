"""Every rule's page, metadata and examples hold."""

import re

import pytest

from oomlint.linting.engine import all_rules
from oomlint.linting.testing import problems

RULES = all_rules()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_examples(rule):
    assert "\n".join(problems(rule)) == ""


def test_codes_and_names_are_unique_and_well_formed():
    codes = [rule.code for rule in RULES]
    names = [rule.name for rule in RULES]
    assert len(set(codes)) == len(codes)
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"OOM[1-9]\d\d", code) for code in codes)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)
