"""A report with awkward text: wide characters, tabs, two files, a fix in each state."""

from pathlib import Path

import pytest

from oomlint.documents.text import Edit, Location, Span
from oomlint.errors import ParseError
from oomlint.files.workspace import Workspace
from oomlint.fix.edits import Fix
from oomlint.linting.diagnosis import Given
from oomlint.linting.engine import Diagnosis, Report
from oomlint.linting.rule import Applicability, Finding, Note, Rule, Severity

# "😀" is one code point, two UTF-16 units, four UTF-8 bytes; "é" one, one and two.
YAML = '# Überschrift\r\nx: {a: "😀é", batch: 16}\r\n\tlast'
JSON = '{"stage": 1}\n'


class StageTooLow(Rule):
    """A rule for reports."""

    code = "OOM301"
    name = "zero-stage-too-low"
    summary = "a higher stage would fit"


class BatchTooLarge(Rule):
    """Another one."""

    code = "OOM102"
    name = "micro-batch-too-large"
    summary = "a smaller batch would fit"


def span_of(text: str, part: str) -> Span:
    start = text.index(part)
    return Span(start, start + len(part))


@pytest.fixture
def workspace():
    return Workspace(Path("/project"), {"a,b.yaml": YAML.encode(), "conf/ds.json": JSON.encode()})


@pytest.fixture
def report(workspace):
    batch = span_of(YAML, "batch: 16")
    number = span_of(YAML, "16")
    stage = span_of(JSON, "1")
    found = (
        Diagnosis(
            Finding(
                BatchTooLarge,
                Severity.ERROR,
                "high",
                'needs 92.3 GiB,\n100% of it: <activations> & "logits"',
                Location("a,b.yaml", batch),
                resource="gpu",
                predicted_bytes=99_000_000_000,
                limit_bytes=85_000_000_000,
                notes=(Note(Location("conf/ds.json", stage), "the stage stands here"),),
            ),
            None,
            Given(
                Fix(
                    "halve the batch",
                    Applicability.SAFE,
                    (Edit("a,b.yaml", number.start, number.end, "8"),),
                    predicted_bytes_after=65 * 2**30,
                )
            ),
        ),
        Diagnosis(
            Finding(
                StageTooLow, Severity.WARNING, "medium", "stage 1", Location("conf/ds.json", stage)
            ),
            None,
            Given(
                Fix("raise the stage", Applicability.DISPLAY, (), reason="the value is templated")
            ),
        ),
        Diagnosis(
            Finding(StageTooLow, Severity.INFO, "low", "stage 1", Location("conf/ds.json", stage)),
            None,
        ),
    )
    errors = (ParseError("broken.yaml", "expected a key", line=3, column=7),)
    return Report(found, (), errors, 3, workspace)
