"""Pages that an editor can open: Markdown files, in a folder that goes when the server does."""

from __future__ import annotations

import tempfile
from pathlib import Path

from msgspec import Struct, field

from oomlint.linting.rule import Rule


class Pages(Struct):
    """See above. The folder is made with the first page. For one thread, that of the lints."""

    _folder: tempfile.TemporaryDirectory[str] | None = None
    _rules: dict[type[Rule], str | None] = field(default_factory=dict)

    def put(self, title: str, markdown: str) -> str:
        """Write a page; its URI.

        Raises:
            OSError: there is no place for it.
        """
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="oomlint-")
        name = "".join(c if c.isalnum() else "-" for c in title)[:80]
        file = Path(self._folder.name, f"{name}.md")
        file.write_text(markdown, "utf-8")
        return file.as_uri()

    def of(self, rule: type[Rule]) -> str | None:
        """Where a rule is explained: its own address, else the page that is installed, which is
        there without a network; ``None`` where that cannot be written."""
        if rule not in self._rules:
            try:
                self._rules[rule] = rule.url or self.put(rule.name, rule.page())
            except OSError:
                self._rules[rule] = None
        return self._rules[rule]

    def clear(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
