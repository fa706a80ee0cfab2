"""The config files that a script loads: by which functions, and what these make of the text.

A file is read once for each path that the script has for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingABC
from typing import Final

from oomlint.documents.base import Document, Mapping
from oomlint.documents.python.modules import FindSource
from oomlint.documents.python.nodes import ConfigFile
from oomlint.documents.scalars import Profile
from oomlint.documents.suffixes import JSON_SUFFIXES, TOML_SUFFIXES, YAML_SUFFIXES, kind_of
from oomlint.documents.text import Source
from oomlint.errors import ParseError

# A script of a project reads a config or two; more is a sweep.
_MOST_FILES: Final = 8
# A file without any of these loads no config, nor has it one loaded.
MAY_LOAD: Final = re.compile(
    r"\b(?:yaml|json|toml|tomli|tomllib|OmegaConf|hydra)\b|\bload_?\w*(?:conf|cfg|yaml|json|param)",
    re.I,
)
# Functions that make an object of the text of a file, by their full names, and what loads YAML so.
LOADS: Final[MappingABC[str, Profile]] = {
    "yaml.safe_load": "pyyaml", "yaml.load": "pyyaml", "yaml.full_load": "pyyaml",
    "yaml.unsafe_load": "pyyaml", "json.load": "pyyaml", "json.loads": "pyyaml",
    "tomllib.load": "pyyaml", "tomllib.loads": "pyyaml", "tomli.load": "pyyaml", "toml.load": "pyyaml",
    "toml.loads": "pyyaml", "omegaconf.OmegaConf.load": "omegaconf",
}  # fmt: skip
_READERS: Final = (*YAML_SUFFIXES, *JSON_SUFFIXES, *TOML_SUFFIXES)
# What a function takes a text for, by the module that it is of: of a file whose name ends otherwise (``sft.conf``).
_TAKEN_FOR: Final[MappingABC[str, str]] = {
    "yaml": ".yaml", "json": ".json", "tomllib": ".toml", "tomli": ".toml", "toml": ".toml", "omegaconf": ".yaml",
}  # fmt: skip


class LoadedFiles:
    """The files of one script; ``find`` gives the text of one by its path."""

    def __init__(self, find: FindSource, most: int = _MOST_FILES) -> None:
        self._find, self._most = find, most
        self._read: dict[str, ConfigFile | None] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        """Their display paths."""
        return tuple(dict.fromkeys(file.path for file in self._read.values() if file is not None))

    def loaded_by(self, name: str, path: str) -> ConfigFile | None:
        """The file of a path as a function of :data:`LOADS` makes an object of it, whatever its name ends with."""
        return self.at(path, LOADS[name], _TAKEN_FOR[name.partition(".")[0]])

    def at(self, path: str, profile: Profile, taken_for: str = "") -> ConfigFile | None:
        """The file of a path, if it is here and holds one mapping. Paths at which there is none do not count as read.
        ``taken_for`` is the ending that stands for what its reader expects, where its own tells nothing."""
        if path not in self._read:
            is_one_more = len(self.paths) < self._most
            kind = kind_of(path) or taken_for
            self._read[path] = self._loaded(path, kind, profile) if is_one_more else None
        return self._read[path]

    def _loaded(self, path: str, kind: str, profile: Profile) -> ConfigFile | None:
        source = self._find(path) if kind in _READERS else None
        if source is None:
            return None
        try:
            document = _parsed(source, kind)
        except (ParseError, RecursionError):
            return None
        nodes = document.roots
        if len(nodes) != 1 or not isinstance(nodes[0], Mapping):
            return None
        return ConfigFile(document, nodes[0], profile)


def _parsed(source: Source, kind: str) -> Document:
    if kind in YAML_SUFFIXES:
        from oomlint.documents.yaml.document import parse_yaml

        return parse_yaml(source)
    if kind in JSON_SUFFIXES:
        from oomlint.documents.json import parse_json

        return parse_json(source)
    from oomlint.documents.toml import parse_toml

    return parse_toml(source)
