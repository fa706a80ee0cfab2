"""A rule is asked about the runs of its own, and no other run imports it."""

import pytest
from tests.configs import SHORT_AXOLOTL
from tests.linked import run_of

from oomlint.linting.rule import KNOWN, ListedRule, Rule, Where
from oomlint.plan.fields import f


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        (Where(), True),
        (Where(plan={f.batch.micro: (2,)}), True),
        (Where(plan={f.batch.micro: (1, 4)}), False),
        (Where(plan={f.batch.micro: KNOWN, f.precision.compute: ("bf16",)}), True),
        (Where(plan={f.host.shm_gib: KNOWN}), False),
        (Where(plan={f.host.shm_gib: (None,)}), True),
        (Where(said=(f.host.shm_gib, f.batch.micro)), True),
        (Where(said=(f.host.shm_gib,)), False),
        (Where(facts=("zero-to-fp32",)), False),
        (Where(dialects=("axolotl",), frameworks=("axolotl", "trl")), True),
        (Where(dialects=("llama-factory",)), False),
        (Where(has_card=True), False),
        (Where(has="stray"), False),
    ],
)
def test_what_a_rule_may_ask_of_a_run(where, holds):
    assert where.holds(run_of({"a.yaml": SHORT_AXOLOTL})) is holds


def test_a_misspelt_key_counts_as_meant():
    run = run_of({"a.yaml": SHORT_AXOLOTL.replace("micro_batch_size", "micro_batch_siz")})
    assert Where(meant={f.batch.micro: (2,)}).holds(run)
    assert not Where(plan={f.batch.micro: (2,)}).holds(run)
    assert Where(has="stray").holds(run)


def test_no_other_run_imports_the_rule():
    def load() -> type[Rule]:
        raise AssertionError("imported")

    never, other = Where(has_card=True), Where(plan={f.batch.micro: (3,)})
    listed = ListedRule("ACM101", "no-such-rule", load, only_where=(never, other))
    assert not list(listed.check(run_of({"a.yaml": SHORT_AXOLOTL})))
    listed = ListedRule("ACM101", "no-such-rule", load, only_where=(never, Where()))
    with pytest.raises(AssertionError, match="imported"):
        list(listed.check(run_of({"a.yaml": SHORT_AXOLOTL})))
