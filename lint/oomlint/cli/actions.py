"""What GitHub Actions says to its steps: the format of its log, and the job's summary page."""

from __future__ import annotations

import os
from pathlib import Path

from oomlint.config.settings import OutputFormat
from oomlint.linting.engine import Results

# A step may add this much to the summary; more, and GitHub drops all of it (docs.github.com,
# workflow commands, "Step isolation and limits").
_MOST_BYTES = 1 << 20


def usual_format() -> OutputFormat:
    """The format where nobody chose one: annotations in a job of GitHub Actions, else text."""
    return "github" if os.environ.get("GITHUB_ACTIONS") == "true" else "text"


def write_summary(report: Results) -> None:
    """Add the report to the summary page of the job; nothing outside of GitHub Actions."""
    if summary_page() is None:
        return
    from oomlint.report import markdown

    add_to_summary(markdown.render(report))


def summary_page() -> Path | None:
    """The file that becomes the summary page of the job, if there is one."""
    page = os.environ.get("GITHUB_STEP_SUMMARY")
    return Path(page) if page and os.environ.get("GITHUB_ACTIONS") == "true" else None


def add_to_summary(text: str) -> None:
    """Add Markdown to the summary page. One that cannot be written is not worth failing the job."""
    page, data = summary_page(), text.encode("utf-8", "backslashreplace")
    if page is None or len(data) > _MOST_BYTES:
        return
    try:
        with page.open("ab") as stream:
            stream.write(data)
    except OSError:
        return
