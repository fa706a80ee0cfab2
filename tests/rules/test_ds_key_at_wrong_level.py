"""A DeepSpeed key at the wrong level is an error where what it says is lost, else a remark."""

import pytest

from oomlint.files.workspace import Workspace
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Severity
from oomlint_rules._examples import deepspeed


def severity_of(tmp_path, zero, top):
    (tmp_path / "ds.json").write_text(deepspeed(zero, f"  {top},\n"), "utf-8")
    told = lint(Workspace(tmp_path), ["ds.json"], Options()).diagnoses
    [found] = [d for d in told if d.finding.rule.code == "OOM810"]
    return found.severity


@pytest.mark.parametrize(
    ("zero", "top"),
    [
        ('"stage": 1', '"stage3_gather_16bit_weights_on_model_save": false'),
        ('"stage": 1', '"stage3_gather_16bit_weights_on_model_save": true'),
        ('"stage": 3', '"stage3_gather_16bit_weights_on_model_save": false'),
        ('"stage": 2', '"reduce_bucket_size": 5e8'),
        ('"stage": 2, "overlap_comm": true', '"overlap_comm": true'),
        ('"stage": 2', '"offload_optimizer": {"device": "none"}'),
        ('"stage": 2', '"offload_param": {"device": "cpu"}'),
    ],
)
def test_what_holds_anyway_is_a_remark(tmp_path, zero, top):
    assert severity_of(tmp_path, zero, top) is Severity.INFO


@pytest.mark.parametrize(
    ("zero", "top"),
    [
        ('"stage": 3', '"stage3_gather_16bit_weights_on_model_save": true'),
        ('"stage": 2', '"reduce_bucket_size": 2e8'),
        ('"stage": 2', '"offload_optimizer": {"device": "cpu"}'),
        ('"stage": 3', '"offload_param": {"device": "cpu"}'),
        ('"stage": 2, "gradient_clipping": 1.0', '"steps_per_print": 10'),
    ],
)
def test_what_is_lost_is_an_error(tmp_path, zero, top):
    assert severity_of(tmp_path, zero, top) is Severity.ERROR
