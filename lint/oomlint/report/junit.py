"""The ``junit`` format: a suite per file; a file without findings is a passing test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from oomlint.linting.engine import Results, Told
from oomlint.report.places import LineIndex

# XML 1.0, production 2 (Char): what may not stand in a document even as a reference.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Results) -> str:
    places = LineIndex(report)
    by_file: dict[str, list[Told]] = {path: [] for path in report.files}
    for diagnosis in report.diagnoses:
        by_file.setdefault(diagnosis.finding.location.path, []).append(diagnosis)
    for error in report.errors:
        by_file.setdefault(error.path, [])
    failures, errors = len(report.diagnoses), len(report.errors)
    lines = ['<?xml version="1.0" encoding="utf-8"?>']
    tests = (
        failures + errors + sum(_is_clean(report, path, group) for path, group in by_file.items())
    )
    lines.append(
        f'<testsuites name="oomlint" tests="{tests}" failures="{failures}" errors="{errors}">'
    )
    for path, group in by_file.items():
        lines += _suite(report, path, group, places)
    lines.append("</testsuites>\n")
    return "\n".join(lines)


def _is_clean(report: Results, path: str, group: list[Told]) -> bool:
    return not group and all(error.path != path for error in report.errors)


def _suite(report: Results, path: str, group: list[Told], places: LineIndex) -> Iterator[str]:
    broken = [error for error in report.errors if error.path == path]
    tests = max(1, len(group) + len(broken))
    yield (
        f'  <testsuite name={_attribute(path)} tests="{tests}" failures="{len(group)}" '
        f'errors="{len(broken)}">'
    )
    for diagnosis in group:
        place = places.start(diagnosis.finding.location)
        rule = diagnosis.rule
        yield (
            f"    <testcase name={_attribute(f'{rule.code} {rule.name}')} "
            f'classname={_attribute(path)} line="{place.line}" column="{place.column}">'
        )
        message = diagnosis.finding.message
        yield (
            f"      <failure message={_attribute(message)} "
            f"type={_attribute(diagnosis.severity.label)}>"
            f"{_text(f'{path}:{place.line}:{place.column}: {diagnosis.finding.text}')}</failure>"
        )
        yield "    </testcase>"
    for error in broken:
        yield f'    <testcase name="readable" classname={_attribute(path)}>'
        yield f"      <error message={_attribute(error.message)} type={_attribute(error.kind)}/>"
        yield "    </testcase>"
    if not group and not broken:
        yield f'    <testcase name="oomlint" classname={_attribute(path)}/>'
    yield "  </testsuite>"


def _attribute(text: str) -> str:
    return quoteattr(_ILLEGAL.sub("\ufffd", text))


def _text(text: str) -> str:
    return escape(_ILLEGAL.sub("\ufffd", text))
