"""Reports: one emitter a file, each from a report of the engine to text."""

from __future__ import annotations

from oomlint.linting.engine import Results
from oomlint.report.paint import Paint


def render(
    report: Results,
    output_format: str,
    paint: Paint,
    *,
    quiet: bool = False,
    verbose: bool = False,
    show_fixes: bool = False,
) -> str:
    """``report`` in one of the formats of ``--output-format``. The switches are for ``text``; what
    they add or leave out the formats for programs have always or never."""
    if output_format == "text":
        from oomlint.report import text

        return text.render(report, paint, quiet=quiet, verbose=verbose, show_fixes=show_fixes)
    if output_format == "concise":
        from oomlint.report import concise

        return concise.render(report, paint)
    if output_format == "json":
        from oomlint.report import json

        return json.render(report)
    if output_format == "jsonl":
        from oomlint.report import json

        return json.render_lines(report)
    if output_format in ("rdjson", "rdjsonl"):
        from oomlint.report import rdjson

        return rdjson.render(report) if output_format == "rdjson" else rdjson.render_lines(report)
    from importlib import import_module

    emitter = import_module(f"oomlint.report.{output_format}")
    rendered: str = emitter.render(report)
    return rendered
