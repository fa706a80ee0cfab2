"""What ``check`` shows is what ``--fix`` does: the same edits, and the same text as ``--diff``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.planning.agreement import disagreements

from oomlint.files.disk import walk
from oomlint.files.workspace import Workspace
from oomlint.fix.planned import with_plans
from oomlint.hardware import parse_hardware
from oomlint.judgement import judgement_of
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Applicability

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "../shared/corpus"
EXAMPLES = int(os.environ.get("OOMLINT_EXAMPLES", "8"))
SMALL = Options(hardware=parse_hardware("8xT4-16GB"))

# No rule has a safe fix for it: offloading is the planner's idea.
FSDP = """\
base_model: Qwen/Qwen3-14B
datasets:
  - path: tatsu-lab/alpaca
micro_batch_size: 1
sequence_len: 512
optimizer: adamw_torch_fused
fp16: true
gradient_checkpointing: true
fsdp_version: 2
fsdp_config:
  offload_params: false
  auto_wrap_policy: TRANSFORMER_BASED_WRAP
  transformer_layer_cls_to_wrap: Qwen3DecoderLayer
  reshard_after_forward: true
"""


def test_the_plan_is_shown_once_and_applied() -> None:
    workspace = Workspace(Path("/p"), {"a.yaml": FSDP.encode()})
    plain = lint(workspace, ["a.yaml"], SMALL)
    assert judgement_of(plain.runs[0]).is_lost
    assert not any(d.fix and d.fix.applicability is Applicability.SAFE for d in plain.diagnoses)
    shown = with_plans(plain, SMALL, Applicability.SAFE)
    safe = [d for d in shown if d.fix is not None and d.fix.applicability is Applicability.SAFE]
    [carrier] = safe
    assert carrier.fix is not None
    assert "host RAM" in carrier.fix.title
    assert carrier.severity == max(d.severity for d in shown)
    for diagnosis in shown:
        if diagnosis is not carrier and diagnosis.fix is not None and diagnosis.fix.reason:
            assert diagnosis.fix.reason in (
                "--fix takes the cheapest way instead",
                "the run would rather die with it, too",
            )
    assert list(disagreements(workspace, ["a.yaml"], SMALL)) == []


@pytest.mark.parametrize(
    "folder", sorted(p.parent.name for p in (ROOT / "examples").glob("*/oomlint.toml"))
)
def test_a_diff_of_an_example_is_what_is_written(folder: str, tmp_path: Path) -> None:
    copy = tmp_path / folder
    shutil.copytree(ROOT / "examples" / folder, copy)

    def oomlint(*arguments: str) -> str:
        command = [sys.executable, "-m", "oomlint", *arguments, "."]
        return subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False).stdout

    promised = oomlint("--diff", "--unsafe-fixes")
    before = {p: p.read_text() for p in copy.rglob("*") if p.is_file()}
    oomlint("--fix", "--unsafe-fixes")
    written = {
        p.relative_to(copy)
        for p in copy.rglob("*")
        if p.is_file() and before.get(p) != p.read_text()
    }
    assert {
        Path(name) for name in re.findall(r"^\+\+\+ b/(.*)$", promised, re.MULTILINE)
    } == written
    for path in written:
        added = [
            line[1:] for line in promised.splitlines() if line.startswith("+") and line[:3] != "+++"
        ]
        new = (copy / path).read_text().splitlines()
        old = before.get(copy / path, "").splitlines()
        assert all(line in added or line in old for line in new)


def test_real_files_are_fixed_as_shown() -> None:
    if not CORPUS.is_dir():
        pytest.skip("the corpus is not here")
    corpus = CORPUS.resolve()
    paths = list(walk(corpus, (".yaml", ".yml", ".json")))
    names = [str(p.relative_to(corpus)) for p in paths[:: max(1, len(paths) // (5 * EXAMPLES))]]
    found = {n: list(disagreements(Workspace(corpus), [n], SMALL)) for n in names}
    assert {name: trouble for name, trouble in found.items() if trouble} == {}
