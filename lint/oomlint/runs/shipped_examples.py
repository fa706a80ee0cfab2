"""Examples that came with a copy of a framework: nobody's runs before somebody names them.

A copy of a framework has the framework's examples: one that nobody has changed is a run of the project's once a file of
the project's own names it (a guide by more than a link), or the user does, or a folder that it is in. In the framework's
own repository that is no different. Of a library that a project has in a folder of its own, not all of whose examples of
all days are known, one is the library's that nothing outside of that folder names; and so is a program in a framework's package
that lies in a project which is another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from oomlint.dialects.upstream import PACKAGES
from oomlint.files.live_texts import LiveTexts
from oomlint.files.workspace import Workspace
from oomlint.runs.vendored.checkouts import checkout_around, is_shown_by

if TYPE_CHECKING:
    from oomlint.runs.copies import Copies

# What a framework's manual, its tests and its continuous integration name, nobody runs for that.
_NO_USE = frozenset({"docs", "doc", "tests", "test"})
_GUIDE = ".md"
# A link of Markdown: ``[LoRA](./examples/lora.sh)``.
_LINK = rb"\[[^\[\]]*\]\([^()\s]*\)"


class ShippedExamples:
    """Which runs are examples of a framework's."""

    def __init__(self, workspace: Workspace, texts: LiveTexts) -> None:
        self._workspace = workspace
        self._texts = texts

    @cached_property
    def _copies(self) -> Copies:
        from oomlint.runs.copies import Copies  # most lints find nothing to say

        return Copies(self._workspace)

    def shipping(self, files: list[str]) -> str:
        """The framework of which a run is an example that has these files, as people call it; empty for a run of the
        project's."""
        if not any(self._may_hold_copy(path) for path in files):
            return ""
        copies = self._copies
        frameworks = [copies.shipping(path) for path in files]
        if not frameworks or None in frameworks:
            return ""
        # What a guide starts, it names.
        told = [path for path in files if not path.endswith(_GUIDE)][:1]
        if any(self._is_own(other) for path in told for other in self._own(path)):
            return ""
        return next(framework.called for framework in frameworks if framework is not None)

    def vendored(self, files: list[str]) -> str:
        """The framework whose package lies in the project with all these files of a run, as people call it, where nothing outside
        of it names them: the docstrings of its programs show how its own users start them. Empty of a run of the project's."""
        if not files or not self._may_hold_copy(files[0]):
            return ""
        found = self._copies.vendored(files[0])
        if found is None:
            return ""
        framework, folder = found

        def is_outside(path: str) -> bool:
            return not self._workspace.file(path).is_relative_to(folder)

        named = (other for path in files for other in self._own(path))
        return "" if any(map(is_outside, chain(files, named))) else framework.called

    def library(self, files: list[str]) -> str:
        """The library whose repository, in a folder of the project, has these files of a run as examples or in its
        guides, where nothing outside of that folder names them; empty of a run of the project's."""
        found = None if not files else checkout_around(self._workspace, files[0])
        if found is None:
            return ""
        name, folder = found
        paths = [self._workspace.file(path) for path in files]
        if not all(p.is_relative_to(folder) and is_shown_by(folder, p) for p in paths):
            return ""
        named = (other for path in files for other in self._own(path))
        outside = (o for o in named if not self._workspace.file(o).is_relative_to(folder))
        return "" if any(outside) else name

    def is_in_use(self, path: str, *, by: str = "") -> bool:
        """Whether a file that is no test and no manual names a file of the project, one with such an ending if ``by`` is
        given."""
        return any(other.endswith(by) for other in self._named_by(path))

    def _may_hold_copy(self, path: str) -> bool:
        """Whether there is a folder of a framework's name around a file, so that what is known of copies is loaded."""
        project = self._workspace.project_around(path)
        around = (
            folder
            for folder in self._workspace.search_folders(path)
            if folder.is_relative_to(project)
        )
        return any(self._workspace.holds(each, p) for each in around for p in PACKAGES)

    def _own(self, path: str) -> Iterator[str]:
        others = tuple(self._texts.naming(path))
        return (e for e in self._named_by(path) if not self._only_shows(e, path, others))

    def _named_by(self, path: str) -> Iterator[str]:
        for other in self._texts.naming(path):
            folders = PurePosixPath(other).parts[:-1]
            is_use = _NO_USE.isdisjoint(folders) and not any(f.startswith(".") for f in folders)
            if other != path and is_use and self._means(other, path):
                yield other

    def _means(self, other: str, path: str) -> bool:
        """Whether a file that has the name of an example means this one: it stands beside it, or names its folder,
        since a framework has many of one name (``config_registry.py``)."""
        folder, _, base = path.rpartition("/")
        if other.rpartition("/")[0] == folder:
            return True
        called = "/".join((*folder.split("/")[-1:], base.rpartition(".")[0] or base)).lstrip("/")
        text = self._workspace.read_or_none(other) or b""
        return called.encode("utf-8", "surrogateescape") in text

    def _only_shows(self, other: str, path: str, others: Iterable[str]) -> bool:
        """Whether a guide does no more than link to a file, as those of frameworks do to their examples and forks go on to,
        or names it in lines that a guide has which the framework ships: a fork adds a section to one, and leaves its
        translation as it is."""
        if not other.endswith(_GUIDE):
            return False
        told = self._lines_naming(path, other)
        guides = (each for each in others if each.endswith(_GUIDE) and each != other)
        return not told or told <= frozenset().union(
            *(self._lines_naming(path, each) for each in guides if self._copies.shipping(each))
        )

    def _lines_naming(self, path: str, guide: str) -> frozenset[bytes]:
        """The lines of a guide that name a file by more than a link."""
        text = re.sub(_LINK, b"", self._workspace.read_or_none(guide) or b"")
        base = path.rpartition("/")[2].rpartition(".")[0].encode("utf-8", "surrogateescape")
        return frozenset(line.strip() for line in text.splitlines() if base in line)

    def _is_own(self, path: str) -> bool:
        """Whether a file that names an example is the project's own: no module of the copy's package, and not as the
        framework ships it."""
        return self._copies.shipping(path) is None and not self._copies.is_inside(path)
