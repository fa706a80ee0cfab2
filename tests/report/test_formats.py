"""The formats for machines: each in its own units, each as its consumer specifies."""

import json
import xml.etree.ElementTree as ET

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from oomlint.documents.text import Edit, Source
from oomlint.fix.edits import Fix
from oomlint.linting.diagnosis import Given
from oomlint.linting.engine import Diagnosis, Report
from oomlint.linting.rule import Applicability, Severity
from oomlint.report import render
from oomlint.report.paint import Paint
from oomlint_schemas import load

from .conftest import JSON, YAML, span_of

ALL = ("json", "jsonl", "github", "gitlab", "sarif", "rdjson", "rdjsonl", "junit", "lsp")


def text(report, name):
    return render(report, name, Paint())


def data(report, name):
    return json.loads(text(report, name))


@pytest.fixture
def empty(workspace):
    return Report((), (), (), 0, workspace)


def test_json(report):
    out = data(report, "json")
    Draft202012Validator(load("findings")).validate(out)
    first, second, third = out["findings"]
    assert first["range"]["start"] == {"line": 2, "column": 14, "offset": 28}
    assert first["range"]["end"] == {"line": 2, "column": 23, "offset": 37}
    assert (first["code"], first["name"], first["severity"]) == (
        "OOM102", "micro-batch-too-large", "error",
    )  # fmt: skip
    assert first["fix"] == {
        "title": "halve the batch",
        "applicability": "safe",
        "edits": [{"path": "a,b.yaml", "start": 35, "end": 37, "replacement": "8"}],
        "predicted_bytes_after": 65 * 2**30,
    }
    assert first["related"][0]["path"] == "conf/ds.json"
    assert second["fix"]["applicability"] == "display"
    assert (second["predicted_bytes"], second["limit_bytes"], second["resource"]) == (None,) * 3
    assert third["fix"] is None
    assert out["errors"] == [
        {
            "path": "broken.yaml",
            "kind": "parse",
            "message": "expected a key",
            "line": 3,
            "column": 7,
        }
    ]
    assert out["summary"] == {
        "files": 0, "files_read": 3, "runs": 0, "error": 1, "warning": 1, "info": 1,
        "fixable": 1, "fixed": 0,
    }  # fmt: skip


def test_edits_of_json_apply_to_the_text(report, workspace):
    """What a bot does: splice code points, whatever the bytes."""
    source = Source.from_bytes("a,b.yaml", workspace.read("a,b.yaml"))
    (edit,) = data(report, "json")["findings"][0]["fix"]["edits"]
    fixed = source.text[: edit["start"]] + edit["replacement"] + source.text[edit["end"] :]
    assert fixed == source.text.replace("16", "8")


def test_fingerprints_are_unique_and_do_not_hang_on_the_line(report, workspace):
    prints = [f["fingerprint"] for f in data(report, "json")["findings"]]
    assert len(set(prints)) == 3
    moved = replace(report, workspace=workspace.with_overlay({"conf/ds.json": b"\n\n" + b" " * 20}))
    assert [f["fingerprint"] for f in data(moved, "json")["findings"]] == prints


def test_jsonl_has_a_finding_per_line(report):
    lines = [json.loads(line) for line in text(report, "jsonl").splitlines()]
    assert lines == data(report, "json")["findings"]


def test_github_escapes_and_counts(report):
    first, second, third = text(report, "github").splitlines()
    assert first == (
        "::error file=a%2Cb.yaml,line=2,endLine=2,col=14,endColumn=23,"
        "title=OOM102 micro-batch-too-large::"
        'needs 92.3 GiB,%0A100%25 of it: <activations> & "logits"'
    )
    assert second.startswith("::warning file=conf/ds.json,line=1,")
    assert third.startswith("::notice ")


def test_github_shows_ten_of_each_and_counts_the_rest(report):
    one = report.diagnoses[0]
    found = tuple(
        Diagnosis(
            replace(
                one.finding,
                severity=severity,
                message=f"number {number}",
                predicted_bytes=10**9 * (number + 1),
            ),
            None,
        )
        for severity in Severity
        for number in range(15)
    )
    lines = text(replace(report, diagnoses=found), "github").splitlines()
    assert [sum(line.startswith(f"::{c} ") for line in lines) for c in ("error", "warning", "notice")] == [10, 10, 11]  # fmt: skip
    assert lines[0].endswith("::number 14"), "the worst comes first"
    count = "::notice title=oomlint::15 more findings are not shown; run oomlint to see all"
    notices = [line for line in lines if line.startswith("::notice ")]
    assert notices.index(count) == 9, "GitHub drops the eleventh"
    fewer = tuple(d for d in found if d.severity > Severity.INFO)
    lines = text(replace(report, diagnoses=fewer), "github").splitlines()
    assert lines[-1] == count.replace("15", "10")


def test_gitlab(report):
    out = data(report, "gitlab")
    assert [issue["severity"] for issue in out] == ["critical", "major", "info"]
    assert out[0]["location"] == {"path": "a,b.yaml", "lines": {"begin": 2, "end": 2}}
    assert len({issue["fingerprint"] for issue in out}) == 3
    assert {"description", "check_name", "fingerprint", "severity", "location"} == set(out[0])


def test_sarif(report):
    (run,) = data(report, "sarif")["runs"]
    assert run["columnKind"] == "unicodeCodePoints"
    rules = run["tool"]["driver"]["rules"]
    assert rules[0]["properties"] == {
        "tags": ["memory"],
        "precision": "very-high",
        "problem.severity": "error",
    }
    result = run["results"][0]
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == "OOM102"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "a%2Cb.yaml"}
    assert place["region"] == {"startLine": 2, "startColumn": 14, "endLine": 2, "endColumn": 23}
    (change,) = result["fixes"][0]["artifactChanges"]
    assert change["replacements"][0]["insertedContent"] == {"text": "8"}
    assert "fixes" not in run["results"][1]
    assert [r["level"] for r in run["results"]] == ["error", "warning", "note"]
    assert run["invocations"][0]["executionSuccessful"] is False


def test_sarif_keeps_to_what_code_scanning_takes_and_the_worst_of_it(report, monkeypatch):
    monkeypatch.setattr("oomlint.report.sarif._MOST_RESULTS", 2)
    (run,) = data(report, "sarif")["runs"]
    assert [r["level"] for r in run["results"]] == ["error", "warning"]


def test_a_fix_that_is_only_shown_is_no_suggestion(report):
    first = report.diagnoses[0]
    shown = replace(first.fix, applicability=Applicability.DISPLAY)
    report = replace(report, diagnoses=(replace(first, ask=Given(shown)),))
    assert "suggestions" not in data(report, "rdjson")["diagnostics"][0]


def test_rdjson_counts_utf8_bytes(report):
    out = data(report, "rdjson")
    first = out["diagnostics"][0]
    # Before "batch" stand 8 ASCII characters, 4 + 2 bytes, 3 ASCII characters.
    assert first["location"]["range"]["start"] == {"line": 2, "column": 18}
    assert first["suggestions"] == [
        {
            "range": {"start": {"line": 2, "column": 25}, "end": {"line": 2, "column": 27}},
            "text": "8",
        }
    ]
    assert [d["severity"] for d in out["diagnostics"]] == ["ERROR", "WARNING", "INFO"]
    lines = [json.loads(line) for line in text(report, "rdjsonl").splitlines()]
    assert [line["message"] for line in lines] == [d["message"] for d in out["diagnostics"]]
    assert lines[0]["source"] == {"name": "oomlint"}


def _object(**properties):
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "minProperties": 1,
    }


# reviewdog's proto/rdf/reviewdog.proto, whose JSON names are the protobuf's own (0.21): what its
# parser, protojson, takes. It refuses a field that it does not know.
_TEXT = {"type": "string"}
_POSITION = _object(
    line={"type": "integer", "minimum": 1}, column={"type": "integer", "minimum": 1}
)
_RANGE = _object(start=_POSITION, end=_POSITION) | {"required": ["start"]}
_LOCATION = _object(path=_TEXT, range=_RANGE) | {"required": ["path"]}
_SEVERITY = {"enum": ["UNKNOWN_SEVERITY", "ERROR", "WARNING", "INFO"]}
_SOURCE = _object(name=_TEXT, url=_TEXT)
DIAGNOSTIC = _object(
    message=_TEXT,
    location=_LOCATION,
    severity=_SEVERITY,
    source=_SOURCE,
    code=_object(value=_TEXT, url=_TEXT),
    suggestions={"type": "array", "items": _object(range=_RANGE, text=_TEXT)},
    original_output=_TEXT,
    related_locations={"type": "array", "items": _object(message=_TEXT, location=_LOCATION)},
)
RESULT = _object(
    diagnostics={"type": "array", "items": DIAGNOSTIC}, source=_SOURCE, severity=_SEVERITY
)


def test_rdjson_is_what_reviewdog_parses(report):
    Draft202012Validator(RESULT).validate(data(report, "rdjson"))
    for line in text(report, "rdjsonl").splitlines():
        Draft202012Validator(DIAGNOSTIC).validate(json.loads(line))
    wrong = {"diagnostics": [{"message": "m", "location": {"path": "p", "line": 1}}]}
    assert list(Draft202012Validator(RESULT).iter_errors(wrong)), "the schema judges"


def as_reviewdog(lines, suggestion):
    """The lines of a file after a suggestion, as buildNonLineBasedSuggestion makes it (reviewdog 0.21,
    service/github/github.go): whole lines, of which both ends have to be there."""
    start, end = suggestion["range"]["start"], suggestion["range"]["end"]
    first, last = lines[start["line"] - 1].encode(), lines[end["line"] - 1].encode()
    joined = first[: start["column"] - 1] + suggestion["text"].encode() + last[end["column"] - 1 :]
    return [*lines[: start["line"] - 1], *joined.decode().split("\n"), *lines[end["line"] :]]


@pytest.mark.parametrize(
    "wanted",
    [
        {"16": "8"},
        {"16": "8", "Über": "Unter"},
        {"# Überschrift\r\n": ""},
        {"\tlast": "\tlast\r\nmore"},
    ],
    ids=["one edit", "two on different lines", "a line goes", "a line comes"],
)
def test_a_fix_of_any_edits_is_one_suggestion_that_reviewdog_can_post(report, wanted):
    fix = Fix(
        "f",
        Applicability.SAFE,
        tuple(
            Edit("a,b.yaml", span_of(YAML, old).start, span_of(YAML, old).end, new)
            for old, new in wanted.items()
        ),
    )
    report = replace(report, diagnoses=(replace(report.diagnoses[0], ask=Given(fix)),))
    (suggestion,) = data(report, "rdjson")["diagnostics"][0]["suggestions"]
    after = YAML
    for old, new in wanted.items():
        after = after.replace(old, new)
    assert "\n".join(as_reviewdog(YAML.split("\n"), suggestion)) == after


def test_what_comes_behind_the_last_line_is_suggested_on_it(report, workspace):
    edit = Edit("conf/ds.json", len(JSON), len(JSON), "# end\n")
    diagnosis = replace(report.diagnoses[1], ask=Given(Fix("f", Applicability.SAFE, (edit,))))
    (suggestion,) = data(replace(report, diagnoses=(diagnosis,)), "rdjson")["diagnostics"][0][
        "suggestions"
    ]
    assert as_reviewdog(JSON.splitlines(), suggestion) == [*JSON.splitlines(), "# end"]


def test_lsp_counts_utf16(report):
    out = data(report, "lsp")
    by_uri = {item["uri"]: item["diagnostics"] for item in out}
    assert set(by_uri) == {"file:///project/a%2Cb.yaml", "file:///project/conf/ds.json"}
    (first,) = by_uri["file:///project/a%2Cb.yaml"]
    assert first["range"]["start"] == {"line": 1, "character": 14}
    assert first["range"]["end"] == {"line": 1, "character": 23}
    assert (first["severity"], first["code"]) == (1, "OOM102")
    assert first["codeDescription"]["href"].endswith("/rules/micro-batch-too-large.md")
    assert first["data"] == {"name": "micro-batch-too-large", "details": []}


def test_junit(report):
    root = ET.fromstring(text(report, "junit"))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("4", "3", "1")
    suites = {suite.get("name"): suite for suite in root}
    assert set(suites) == {"a,b.yaml", "conf/ds.json", "broken.yaml"}
    failure = suites["a,b.yaml"].find("testcase/failure")
    assert '<activations> & "logits"' in failure.text
    assert suites["broken.yaml"].find("testcase/error").get("message") == "expected a key"


def test_junit_of_control_characters_is_xml(report):
    finding = replace(report.diagnoses[0].finding, message="bad \x1b\x00 text")
    ET.fromstring(text(replace(report, diagnoses=(Diagnosis(finding, None),)), "junit"))


@pytest.mark.parametrize("name", ALL)
def test_a_report_without_findings(empty, name):
    out = text(empty, name)
    if name in ("jsonl", "rdjsonl", "github"):
        assert out == ""
    elif name == "junit":
        assert ET.fromstring(out).get("tests") == "0"
    else:
        assert json.loads(out) is not None


@pytest.mark.parametrize("name", ALL)
def test_a_file_that_vanished_still_has_a_place(report, workspace, name):
    from oomlint.files.workspace import Workspace

    assert text(replace(report, workspace=Workspace(workspace.cwd)), name)
