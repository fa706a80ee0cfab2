"""What is said of a need at risk."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from oomlint.errors import in_words
from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_hardware
from oomlint.judgement import Peak, evidence, judgement_of, words
from oomlint.judgement.peak import Otherwise
from oomlint.judgement.plausible import PLAUSIBLE
from oomlint.linting.engine import Options, lint
from oomlint.plan.called import called
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama-recipes-fsdp"


@pytest.fixture(scope="module")
def peak() -> Peak:
    """A need that fits, of a run at risk by what it rests on."""
    options = Options(hardware=parse_hardware("2xRTX-3090-24GB"))
    report = lint(Workspace(EXAMPLE), ["finetune.sh"], options)
    (found,) = judgement_of(report.runs[0]).peaks
    return found


def test_what_is_at_risk_is_named_where_it_is_not_the_need_itself(peak: Peak) -> None:
    assert peak.holds
    assert words.need(peak) == (
        "needs 17.4 of 23.6 GiB per GPU in the backward pass, and 24.9 if loading dtype is fp32 (risk 34 %)"
    )
    assert words.otherwise(peak) == "24.9 GiB if loading dtype is fp32"


def test_a_need_that_is_at_risk_itself_has_no_other(peak: Peak) -> None:
    alone = replace(peak, otherwise=None, predicted=24 * 2**30)
    assert words.need(alone) == "needs 24.0 of 23.6 GiB per GPU in the backward pass (risk 34 %)"


def test_a_need_that_is_too_much_by_each_reading_begins_with_the_least(peak: Peak) -> None:
    least = Otherwise(30 * 2**30, "no sample has more than 602 tokens")
    lost = replace(peak, otherwise=None, predicted=50 * 2**30, least=least)
    assert words.need(lost) == (
        "needs 30.0 to 50.0 of 23.6 GiB per GPU in the backward pass (risk 34 %)"
    )
    assert words.at_least(lost) == "30.0 GiB if no sample has more than 602 tokens"


def test_a_need_with_room_is_said_with_its_bound(peak: Peak) -> None:
    wide = replace(peak, otherwise=None, upper=27 * 2**30)
    assert words.need(wide) == (
        "needs 17.4 to 27.0 of 23.6 GiB per GPU in the backward pass (risk 34 %)"
    )


def test_no_release_at_all_is_said_as_one_that_no_file_says() -> None:
    basis = evidence.Basis(
        field=f.versions, leaf=f.seq.longest, subject=f.versions, value={}, level=Level.ASSUMED, why="",
        path=None, line=None, key="", swing_bytes=None, otherwise={}, decides=frozenset(),
    )  # fmt: skip
    assert words.basis_words(basis) == "no file says which release of the framework runs"


@pytest.mark.parametrize(
    ("most", "said"),
    [
        (80, "needs 17.4 of 23.6 GiB per GPU, and 24.9 if loading dtype is fp32 (risk 34 %)"),
        (60, "needs 17.4 of 23.6 GiB per GPU, and 24.9 otherwise (risk 34 %)"),
    ],
)
def test_a_title_drops_what_is_longest(peak: Peak, most: int, said: str) -> None:
    assert words.short_need(peak, as_meant=False, most=most) == said


def test_an_error_that_nobody_foresaw_is_told_in_one_line_of_bounded_length() -> None:
    assert in_words(ZeroDivisionError("division by zero")) == "division by zero (ZeroDivisionError)"
    assert in_words(KeyError("x")) == "there is no 'x' (KeyError)"
    assert in_words(SystemExit()) == "no reason given (SystemExit)"
    long = in_words(ValueError("a\nb" * 1000))
    assert len(long) < 220
    assert "\n" not in long
    assert long.endswith("… (ValueError)")


def test_whatever_is_tried_at_other_values_has_a_name_for_people() -> None:
    assert [field for field in PLAUSIBLE if called(field) is None] == []
