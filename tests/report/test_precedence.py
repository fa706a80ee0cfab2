"""Which finding leads where several explain one failure."""

from __future__ import annotations

import json
import re

import pytest
from tests.linked import report_of

from oomlint.judgement import judgement_of
from oomlint.linting.engine import Report
from oomlint.linting.headlines import leaders, worst_first
from oomlint.linting.rule import Severity
from oomlint.report import json as json_report, text
from oomlint.report.blocks import is_cause

_DOES_NOT_FIT = b"""\
base_model: NousResearch/Meta-Llama-3-8B
sequence_len: 8192
sample_packing: true
micro_batch_size: 4
gradient_accumulation_steps: 1
adapter: lora
lora_r: 16
lora_target_linear: true
bf16: true
flash_attention: true
gradient_checkpointing: false
optimizer: adamw_torch_fused
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
"""


def _report(hardware: str) -> Report:
    return report_of({"a.yaml": _DOES_NOT_FIT}, hardware=hardware)


def test_findings_about_one_peak_follow_the_cheapest_cure_that_suffices() -> None:
    report = _report("1xA100-80GB")
    following = leaders(report.diagnoses)
    assert len(following) >= 2
    (leader,) = set(following.values())
    assert leader not in following
    fix = leader.fix
    limit = leader.finding.limit_bytes
    assert fix is not None
    assert fix.predicted_bytes_after is not None
    assert limit is not None
    assert fix.predicted_bytes_after <= limit
    for follower in following:
        assert follower.finding.predicted_bytes == leader.finding.predicted_bytes


_SHARED = {
    **{
        f"{micro}.yaml": _DOES_NOT_FIT.replace(
            b"micro_batch_size: 4", b"micro_batch_size: %d" % micro
        )
        + b"deepspeed: ds.json\n"
        for micro in (1, 4, 16)
    },
    "ds.json": b'{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}',
}


@pytest.mark.parametrize("files", [{"a.yaml": _DOES_NOT_FIT}, _SHARED], ids=["one", "shared"])
@pytest.mark.parametrize("hardware", ["1xA100-80GB", "4xA10G-24GB", "1xT4-16GB"])
def test_who_leads_is_told_without_the_fixes_of_those_that_cannot(
    files: dict[str, bytes], hardware: str
) -> None:
    report = report_of(files, hardware=hardware)
    following = leaders(report.diagnoses)
    asked = [each for each in report.diagnoses if "fix" in vars(each)]
    assert following
    assert len(asked) < len(following)
    for leader in set(following.values()):
        group = [leader, *(each for each, first in following.items() if first is leader)]
        assert worst_first(group)[0] is leader


def test_findings_of_other_kinds_stand_alone() -> None:
    report = _report("1xA100-80GB")
    following = leaders(report.diagnoses)
    for diagnosis in report.diagnoses:
        if diagnosis.finding.predicted_bytes is None:
            assert diagnosis not in following


def test_text_shows_followers_below_without_repeating_what_was_said() -> None:
    report = _report("1xA100-80GB")
    following = leaders(report.diagnoses)
    rendered = text.render(report)
    found = {*following, *following.values()}
    judgement = judgement_of(report.runs[0])
    warned_of = [d for d in found if d.severity >= Severity.WARNING and not d.rule.is_headline]
    causes = [d for d in warned_of if is_cause(d.finding, judgement)]
    assert rendered.count("  also: ") == len(causes) - 1 >= 1
    heads = [
        line for line in rendered.splitlines() if re.match(r" *(error|warning|info) OOM", line)
    ]
    headlines = [d for d in report.diagnoses if d.rule.is_headline]
    assert len(heads) == len(report.diagnoses) - len(headlines) - (len(causes) - 1)


def test_json_names_the_leader_and_keeps_every_finding() -> None:
    report = _report("1xA100-80GB")
    findings = json.loads(json_report.render(report))["findings"]
    assert len(findings) == len(report.diagnoses)
    by_print = {finding["fingerprint"]: finding for finding in findings}
    followers = [finding for finding in findings if finding["follows"]]
    assert followers
    assert all(by_print[finding["follows"]]["follows"] is None for finding in followers)
