"""Which configs that a framework ships a run can name, by the project that it stands in.

A framework's own folder of DeepSpeed configs lies in its checkout and in forks of it, others fetch it beside their
files, and many only name it: a config that says ``deepspeed_configs/zero1.json`` is started where that folder is, and
so are the configs around it. Of a folder that is here those files count that are as they were shipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice

from oomlint.dialects.deepspeed.presets import is_shipped, names_at
from oomlint.documents import SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.files.searched import SearchedTexts
from oomlint.files.workspace import Workspace

# How deep below a project's root its configs lie, and how many files are looked at.
_DEEPEST = 5
_MOST_FILES = 2000


class ShippedAround:
    """What of the frameworks' folders the projects of a workspace have."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._named: dict[tuple[str, str], tuple[str, ...]] = {}

    def of(self, from_file: str, home: str) -> Mapping[str, frozenset[str]]:
        """Folders as a run that begins with ``from_file`` may name them → the shipped files in them; one that is
        not here and that other files name has them all."""
        every = names_at(home)
        named = self._named_around(from_file, home)
        found: dict[str, frozenset[str]] = {}
        for folder in dict.fromkeys((home, *named)):
            paths = {name: self.workspace.resolve(f"{folder}/{name}", from_file) for name in every}
            if any(paths.values()):
                found[folder] = frozenset(name for name in every if self._is_shipped(paths[name]))
            elif folder in named:
                found[folder] = every
        return found

    def _is_shipped(self, path: str | None) -> bool:
        data = None if path is None else self.workspace.read_or_none(path)
        return (
            path is not None
            and data is not None
            and is_shipped(path, data.decode("utf-8", "replace"))
        )

    def _named_around(self, from_file: str, home: str) -> tuple[str, ...]:
        """The framework's folder as the project's configs and scripts name it, in any of these ways."""
        project = self.workspace.name(self.workspace.project_around(from_file))
        if (project, home) not in self._named:
            kinds = (*YAML_SUFFIXES, *SHELL_SUFFIXES)
            names = "|".join(map(re.escape, sorted(names_at(home))))
            # Not in a folder that a variable names, which another file need not have.
            pattern = re.compile(rf"(?<![\w$}}/.~-])([\w./~-]*\b{re.escape(home)})/(?:{names})\b")
            files = islice(self.workspace.below(project, kinds, _DEEPEST), _MOST_FILES)
            texts = SearchedTexts(self.workspace, (*files, from_file))
            found = (
                match[1]
                for _, text in texts.holding(home.encode("utf-8", "surrogateescape"))
                for match in pattern.finditer(text.decode("utf-8", "replace"))
            )
            self._named[project, home] = tuple(dict.fromkeys(found))
        return self._named[project, home]
