"""How far a prediction may lie off with other releases is worked out for who shows it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from tests import linked

from oomlint.judgement import forecast, judgement_of
from oomlint.report import render
from oomlint.report.paint import Paint

RUN = """\
base_model: meta-llama/Llama-3.1-8B
datasets: [{path: a/b}]
adapter: qlora
load_in_4bit: true
lora_r: 8
lora_target_linear: true
sequence_len: 1024
micro_batch_size: 1
bf16: true
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs of which somebody has asked for bounds."""
    names: list[str] = []
    real = forecast.over_releases

    def noting(run: Any) -> Any:
        names.append(run.name)
        return real(run)

    monkeypatch.setattr(forecast, "over_releases", noting)
    return names


def test_bounds_are_worked_out_for_reports_that_show_them_and_once(asked: list[str]) -> None:
    report = linked.report_of({"a.yaml": RUN})
    for style in ("text", "concise", "sarif"):
        render(report, style, Paint(), verbose=True)
    assert asked == []
    for style in ("json", "markdown"):
        render(report, style, Paint())
    assert asked == ["a.yaml"]


def test_what_is_kept_of_a_judgement_has_its_bounds_or_says_that_it_has_none(
    asked: list[str],
) -> None:
    judged = judgement_of(linked.run_of({"a.yaml": RUN}))
    without = pickle.loads(pickle.dumps(judged.kept(bounds=False)))
    assert asked == []
    assert without.written.estimate == judged.written.estimate
    with pytest.raises(LookupError):
        without.written.assumptions  # noqa: B018
    kept = pickle.loads(pickle.dumps(judged.kept(bounds=True)))
    assert kept.written.bounded == judged.written.bounded
    assert asked == ["a.yaml"]
