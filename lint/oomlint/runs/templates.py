"""Templates of configs: what a script of the project fills in and writes elsewhere is no config that runs.

``sed "s/ZERO_STAGE/${stage}/" template.json > ds.json``, ``envsubst < template.json``, or the same in Python. A template is
known by a value that no config may have, a word that stands for one (a bare one is no value at all), where a file that names it fills in that very word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from oomlint.documents.base import Scalar
from oomlint.files.reference_index import naming, texts_below
from oomlint.files.workspace import Workspace
from oomlint.runs.run import Run

# ZERO_STAGE, __STAGE__, @STAGE@, <stage>, {{ stage }}, $STAGE: no word that anybody types for a value.
_STANDS_FOR_ONE = (
    r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|(__|@|%%?|##?)\w+\1|<[\w ]+>|\$\{?\w+\}?|\{\{?[ \w.|]+\}?\}"
)
# envsubst(1), jinja2 and string.Template take variables by a mark of their own; of a word, sed(1) and Python are told.
_FILLS_MARKED = rb"\benvsubst\b|\bjinja2?\b|\bj2\b|\bstring\.Template\b|\bimport Template\b|\.safe_substitute\(|\.format(?:_map)?\("
_FILLS_WORD = rb"\bs([/|#,@:!~])[^\n\\]{0,40}?%s|\.replace\(\s*[rf]?[\"']%s[\"']|[\"']%s[\"']\s*:"


class Templates:
    """Which configs that nothing starts are templates, looked up where one has a value that it may not have."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def without(self, runs: Iterable[Run]) -> Iterator[Run]:
        """The runs less those of templates."""
        for run in runs:
            if not run.wrong or not self._is_one(run):
                yield run

    def _is_one(self, run: Run) -> bool:
        if any(claim.is_launched for claim in run.claims):
            return False
        words: dict[str, set[str]] = {}
        for wrong in run.wrong:
            value = wrong.entry.value
            word = value.value if isinstance(value, Scalar) else None
            if isinstance(word, str) and re.fullmatch(_STANDS_FOR_ONE, word.strip()):
                words.setdefault(wrong.block.path, set()).add(word.strip())
        return any(self._is_filled(path, found) for path, found in words.items())

    def _is_filled(self, path: str, words: set[str]) -> bool:
        texts = texts_below(self._workspace, self._workspace.project_around(path))
        for other in naming(texts, path):
            text = self._workspace.read_or_none(other) or b""
            if other != path and any(_fills(text, word) for word in words):
                return True
        return False


def _fills(text: bytes, word: str) -> bool:
    """Whether a script puts something in the place of a word."""
    if word[0] in "${" and re.search(_FILLS_MARKED, text):
        return True
    wanted = word.encode("utf-8", "surrogateescape")
    escaped = re.escape(wanted)
    return wanted in text and re.search(_FILLS_WORD % (escaped, escaped, escaped), text) is not None
