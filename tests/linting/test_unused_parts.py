"""What is wrong with a config that no run of its project uses is a remark."""

from pathlib import Path

import pytest

from oomlint.files.workspace import Workspace
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Severity

IGNORED = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}'
RUN = "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 1\ndatasets:\n  - {path: a/b, type: alpaca}\n"


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        ({}, Severity.WARNING),
        ({"axolotl.yaml": RUN}, Severity.INFO),
        ({"axolotl.yaml": RUN, "README.md": "Take ds.json on small cards.\n"}, Severity.WARNING),
        ({"axolotl.yaml": f"{RUN}deepspeed: ds.json\n"}, Severity.WARNING),
    ],
    ids=["alone", "beside a run", "named by a guide", "used"],
)
def test_part_that_nothing_uses(beside: dict[str, str], expected: Severity) -> None:
    files = {"ds.json": IGNORED.encode()} | {n: text.encode() for n, text in beside.items()}
    report = lint(Workspace(Path("/p"), files), [n for n in files if n != "README.md"], Options())
    (found,) = (d for d in report.diagnoses if d.rule.code == "OOM303")
    assert found.severity is expected
    says = "no run here uses ds.json, and no other file names it"
    assert (says in found.finding.details) is (expected is Severity.INFO)


def test_script_is_no_part_of_a_run() -> None:
    broken = "python serve.py --model a \\ \n  --port 1\n"
    files = {"serve.sh": broken.encode(), "axolotl.yaml": RUN.encode()}
    report = lint(Workspace(Path("/p"), files), list(files), Options())
    (found,) = (d for d in report.diagnoses if d.rule.code == "OOM703")
    assert found.severity is Severity.ERROR
