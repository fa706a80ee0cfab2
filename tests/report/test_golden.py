"""Every format of ``--output-format`` for one awkward project, as files that were read by hand.

After a change that is meant: ``OOMLINT_WRITE_GOLDEN=1 pytest tests/report/test_golden.py``, and read
``git diff tests/report/golden`` against the format's description. The numbers are ours, so that no
change of the memory model moves them.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from oomlint.config.settings import OutputFormat
from oomlint.documents.text import Edit, Location, Span
from oomlint.errors import EncodingError, ParseError
from oomlint.files.workspace import Workspace
from oomlint.fix.edits import Fix
from oomlint.hardware import Hardware, find_gpu
from oomlint.judgement import Forecast, Judgement, Risk
from oomlint.judgement.forecast import Bounded
from oomlint.linting.diagnosis import Given
from oomlint.linting.engine import Diagnosis, Report
from oomlint.linting.rule import Applicability, Finding, Note, Rule, Severity
from oomlint.memory import Assumption, Bounds, Estimate
from oomlint.memory.result import GPU_PHASES, HOST_PHASES, DeviceEstimate, HostEstimate
from oomlint.plan import Plan
from oomlint.report import diff, render, statistics
from oomlint.report.paint import Paint

GOLDEN = Path(__file__).parent / "golden"
GIB = 2**30

# Windows line ends, a path with characters that formats escape, "😀" and "ß" before what is found.
TRAIN, ZERO, LAUNCH = "größe/a,b: 1%.yaml", "größe/ds.json", "run.sh"
TEXTS = {
    TRAIN: '# 😀 größer\r\nmodel: "😀ß", batch: 16\r\naccum: 1\r\nsave: all\r\n',
    ZERO: '{\n  "zero_optimization": {"stage": 1}\n}\n',
    LAUNCH: "#!/bin/bash\ntorchrun train.py --config 'größe/a,b: 1%.yaml'",
}


class Paged(Rule):
    """A rule whose page is not the description of this module."""

    @classmethod
    def page(cls):
        return f"# {cls.name} ({cls.code})\n\nWhat it says, with `code`.\n"


class BatchTooLarge(Paged):
    """The micro batch is too large."""

    code = "OOM102"
    name = "micro-batch-too-large"
    summary = "a smaller batch would fit, with <the same> | global batch"


class StageTooLow(Paged):
    """The stage is too low."""

    code = "OOM301"
    name = "zero-stage-too-low"
    summary = "a higher stage would fit"


class SavesAll(Paged):
    """A rule of a plug-in, which has no page on the web."""

    code = "ACM501"
    name = "saves-all"
    summary = "optimizer states are saved"
    origin = "acme"


def at(path: str, part: str) -> Location:
    start = TEXTS[path].index(part)
    return Location(path, Span(start, start + len(part)))


def edit(path: str, part: str, replacement: str) -> Edit:
    span = at(path, part).span
    return Edit(path, span.start, span.end, replacement)


@pytest.fixture(scope="module")
def report() -> Report:
    end = len(TEXTS[TRAIN])
    found = (
        Diagnosis(
            Finding(
                BatchTooLarge, Severity.ERROR, "high",
                'needs 92.3 GiB of 79.1 GiB,\n100% of it: <activations> & "logits" | `x`',
                at(TRAIN, "batch: 16"), resource="gpu",
                predicted_bytes=99_106_000_000, limit_bytes=84_974_239_744,
                notes=(Note(at(ZERO, "1}"), "the stage, 1, stands here"),),
            ),
            None,
            Given(Fix("halve the batch", Applicability.SAFE,
                (edit(TRAIN, "16", "8"), edit(TRAIN, "1\r\nsave", "2\r\nsave")),
                predicted_bytes_after=65 * GIB)),
        ),
        Diagnosis(
            Finding(
                StageTooLow, Severity.WARNING, "medium", "stage 1 keeps everything whole",
                at(ZERO, "1}"), resource="gpu", predicted_bytes=99_106_000_000,
                limit_bytes=84_974_239_744,
            ),
            None,
            Given(Fix("raise the stage, and say so", Applicability.UNSAFE,
                (edit(ZERO, "1}", "2}"), edit(TRAIN, "accum: 1", "accum: 1 # with stage 2")),
                predicted_bytes_after=70 * GIB)),
        ),
        Diagnosis(
            Finding(SavesAll, Severity.WARNING, "low", "14 bytes a parameter", at(TRAIN, "all")),
            None,
            Given(Fix("save the weights alone", Applicability.SAFE,
                (Edit(TRAIN, end, end, "save_only_model: true\r\n"),))),
        ),
        Diagnosis(
            Finding(StageTooLow, Severity.WARNING, "low", "over\ttwo\x1blines\u2028of it",
                    at(LAUNCH, "torchrun train.py --config")),
            None,
            Given(Fix("add a file", Applicability.UNSAFE, (Edit("ds_new.json", 0, 0, "{}\n", True),))),
        ),
        Diagnosis(
            Finding(StageTooLow, Severity.INFO, "low", "once more", at(LAUNCH, "'größe")),
            None,
            Given(Fix("by hand", Applicability.DISPLAY, (), reason="the value is templated")),
        ),
    )  # fmt: skip
    errors = (
        ParseError("broken.yaml", "expected a key, found '<'", line=3, column=7),
        EncodingError("latin1.yaml", "is not UTF-8", line=2, column=1),
    )
    workspace = Workspace(Path("/project"), {p: t.encode() for p, t in TEXTS.items()})
    return Report(found, (_run(),), errors, 5, workspace)


def _run() -> Judgement:
    gpu = {phase: {"parameters": 15.0 * GIB, "context": 1.0 * GIB} for phase in GPU_PHASES}
    gpu["backward"] |= {"gradients": 15.0 * GIB, "optimizer_states": 0.0, "activations": 61.3 * GIB}
    gpu["optimizer_step"] |= {"optimizer_states": 30.0 * GIB}
    gpu["forward"] |= {"gradients": 0.0}
    host = {phase: {"process_overhead": 4.0 * GIB} for phase in HOST_PHASES}
    estimate = Estimate(
        gpu=DeviceEstimate(
            peak_bytes=99_106_000_000, low_bytes=90 * GIB, high_bytes=97 * GIB,
            reserved_bytes=94 * GIB, peak_phase="backward", parts=gpu,
            allocated=Bounds(88 * GIB, 95 * GIB), reserved=Bounds(91 * GIB, 97 * GIB),
            at_first_sight=Bounds(60 * GIB, 140 * GIB),
        ),
        host=HostEstimate(
            peak_bytes=4 * GIB, low_bytes=3 * GIB, high_bytes=6 * GIB, peak_phase="load", parts=host,
        ),
        disk_checkpoint_bytes=14 * GIB,
        assumptions=(),
        unknown=(),
    )  # fmt: skip
    ram = 512 * GIB
    written = Forecast(
        name=TRAIN,
        framework="axolotl",
        files=(TRAIN, ZERO, LAUNCH),
        plan=Plan(name="größe").with_values({"batch.micro": 16, "batch.grad_accum": 1}),
        hardware=Hardware(
            name="8xA100-80GB",
            nodes=1,
            gpus_per_node=8,
            gpu=find_gpu("A100-80GB"),
            host_bytes_per_node=ram,
            source="--hardware",
        ),
        estimate=estimate,
        risk=Risk(0.93, 0.0),
        ask=Bounded(estimate, (Assumption("seq.max_len", 2048, "no file says it"),)),
        host_limit=ram,
    )
    return Judgement(written)


FORMATS = {
    "text": "txt", "concise": "txt", "json": "json", "jsonl": "jsonl", "github": "txt",
    "gitlab": "json", "sarif": "json", "rdjson": "json", "rdjsonl": "jsonl", "junit": "xml",
    "lsp": "json", "markdown": "md",
}  # fmt: skip


def compare(name: str, text: str) -> None:
    file = GOLDEN / name
    if os.environ.get("OOMLINT_WRITE_GOLDEN"):
        file.write_bytes(text.encode())
    assert text.encode() == file.read_bytes()


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_as_it_was_read(report, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    # The plan grows with the linter; tests/schemas has an eye on it.
    monkeypatch.setattr("oomlint.report.runs.plan_to_dict", lambda plan: {"name": plan.name})
    compare(f"{name}.{FORMATS[name]}", render(report, name, Paint()))


def test_statistics_are_as_they_were_read(report):
    compare("statistics.txt", statistics.render(report, "text", Paint()))


def test_a_diff_is_as_it_was_read(report):
    """Line ends and the missing last one as they are, for `patch` and `git apply`."""
    old = {path: text.encode() for path, text in TEXTS.items()}
    new = {
        TRAIN: TEXTS[TRAIN].replace("16", "8").encode(),
        LAUNCH: TEXTS[LAUNCH].replace("torchrun", "accelerate launch").encode(),
        "ds_new.json": b"{}\n",
    }
    compare("diff.txt", diff.render(new, {path: old.get(path) for path in new}, Paint()))


@pytest.mark.parametrize("command", [["git", "apply"], ["patch", "--binary", "-p1", "-i"]])
def test_the_diff_can_be_applied(command, tmp_path):
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    for path, text in TEXTS.items():
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text.encode())
    subprocess.run([*command, str(GOLDEN / "diff.txt")], cwd=tmp_path, check=True)
    assert (tmp_path / TRAIN).read_bytes() == TEXTS[TRAIN].replace("16", "8").encode()
    assert (tmp_path / "ds_new.json").read_bytes() == b"{}\n"


def test_every_format_has_a_golden_file():
    assert {*get_args(OutputFormat)} == {*FORMATS}
