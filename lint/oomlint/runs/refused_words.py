"""Words of a command for keys that the config lacks which Hydra composes for a program of the project: it stops before the
program begins (hydra-core 1.3.2 ``_internal/config_loader_impl.py`` ``_apply_overrides_to_config``: *Could not override*).

The config is composed as Hydra does (:mod:`oomlint.documents.python.configs.composition`) of the files beside the program. What
the composition leaves open (a group that no file here answers, a class that the program registers, a search path of its own)
may have any key.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator, Mapping as MappingABC, Sequence

from oomlint.dialects.ending import Ending, When
from oomlint.dialects.machine.launch import Launch
from oomlint.documents.base import UNKNOWN, Entry, Mapping, Node, Scalar
from oomlint.documents.python.configs.composition import (
    Composition,
    HydraMain,
    Layer,
    Words,
    hydra_main,
)
from oomlint.documents.python.configs.loaded import LoadedFiles
from oomlint.documents.python.nodes import ConfigFile
from oomlint.documents.python.tree import read_tree
from oomlint.documents.suffixes import YAML_SUFFIXES
from oomlint.documents.text import Location, Source
from oomlint.files.workspace import Workspace

# As many as the commands of a project choose among (verl 0.8 has 60).
_MOST_FILES = 512
# By these the command looks for configs elsewhere, or for others.
_ELSEWHERE = ("config_path", "cp", "config_dir", "cd", "multirun", "m", "resolve", "package", "p")
_NAMES = ("config_name", "cn")
# A checkout of the package in a folder of its name, which is installed in place.
_INSTALLED_BY = ("setup.py", "pyproject.toml")
_SEARCHES = re.compile(rb"searchpath|SearchPathPlugin|hydra\.core\.plugins")
_DECORATED = re.compile(rb"@(?:hydra\.)?main\b")
_PLAIN_KEY = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


class RefusedWords:
    """Looks in what Hydra composes for the keys that commands change."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._mains: dict[str, HydraMain | None] = {}
        self._files: dict[str, LoadedFiles] = {}
        """By the folder of configs: sweeps start one program many times."""

    def of(self, launch: Launch, from_file: str) -> Ending | None:
        """The first word of a command that Hydra is sure to refuse, if there is one."""
        words = [*_changing(launch)]
        if not words or launch.command.folder_is_open:
            return None
        program = self._program(launch, from_file)
        main = None if program is None else self._main(program)
        if program is None or main is None or any(map(launch.flag, _ELSEWHERE)):
            return None
        name, folder = _name(launch, main), _text(main.config_path)
        if name is None or folder is None:
            return None
        composition = self._composition(
            posixpath.join(posixpath.dirname(program), folder), name, launch
        )
        layers = composition.layers(name) if composition is not None else ()
        if composition is None or not layers:
            return None
        for entry in words:
            # What a group's file says may lie below other keys than the group's (``# @package _global_``).
            if not composition.is_group(entry.key) and _lacks(layers, entry.key.split(".")):
                why = f"Hydra refuses {entry.key}, a key that the config of {posixpath.basename(program)} has not"
                return Ending(
                    why, Location(launch.document.source.path, entry.key_span), When.SETTINGS
                )
        return None

    def _program(self, launch: Launch, from_file: str) -> str | None:
        """The file of the project that a command starts. One by a path from elsewhere may be of another checkout."""
        if not launch.is_module:
            return None if launch.script is None else self._here(launch.script, launch, from_file)
        path = f"{launch.name.replace('.', '/')}.py"
        root = path.partition("/")[0]
        found = self._here(path, launch, from_file)
        if found is None and any(
            self._here(f"{root}/{name}", launch, from_file) for name in _INSTALLED_BY
        ):
            found = self._here(f"{root}/{path}", launch, from_file)
        return found

    def _here(self, path: str, launch: Launch, from_file: str) -> str | None:
        if path[:1] in ("/", "~", "$"):
            return None
        return self._workspace.resolve(path, from_file, launch.command.folder)

    def _main(self, program: str) -> HydraMain | None:
        """How a program asks Hydra for its config; ``None`` of any other program, and of one that does so twice."""
        if program not in self._mains:
            text = self._workspace.read_or_none(program) or b""
            self._mains[program] = _main_in(text) if _DECORATED.search(text) else None
        return self._mains[program]

    def _composition(self, folder: str, name: str, launch: Launch) -> Composition | None:
        """How the config is composed; ``None`` where the primary one is not here or looks for others elsewhere."""
        if folder not in self._files:
            self._files[folder] = LoadedFiles(self._find, _MOST_FILES)
        files = self._files[folder]

        def load(path: str) -> ConfigFile | None:
            for suffix in YAML_SUFFIXES:
                found = files.at(
                    posixpath.normpath(posixpath.join(folder, path + suffix)), "omegaconf"
                )
                if found is not None:
                    return found
            return None

        primary = load(posixpath.splitext(name)[0] if name.endswith(YAML_SUFFIXES) else name)
        if primary is None or _SEARCHES.search(primary.document.source.text.encode()):
            return None
        return Composition(load, Words.of(_said(launch)))

    def _find(self, path: str) -> Source | None:
        text = self._workspace.read_or_none(path) if self._workspace.exists(path) else None
        return None if text is None else Source(path, text.decode("utf-8", "replace"))


def _main_in(text: bytes) -> HydraMain | None:
    try:
        tree = read_tree(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    mains = [main for each in tree.functions if (main := hydra_main(each, tree.scopes.module))]
    return mains[0] if len(mains) == 1 else None


def _name(launch: Launch, main: HydraMain) -> str | None:
    """The primary config's name, by the command or the program; ``None`` where only running tells."""
    for flag in _NAMES:
        entry = launch.flag(flag)
        if entry is not None:
            value = entry.value.value if isinstance(entry.value, Scalar) else UNKNOWN
            return value if isinstance(value, str) and value else None
    return _text(main.config_name)


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _said(launch: Launch) -> MappingABC[str, str | None]:
    """The words as :class:`Words` takes them."""
    given = {f"{key}=": entry.value for key, entry in launch.command.assignments.entries.items()}
    said = {
        key: str(v.value) if isinstance(v, Scalar) and v.value is not UNKNOWN else None
        for key, v in given.items()
    }
    bare = {str(n): str(word.value) for n, word in enumerate(launch.arguments, 1)}
    return {**said, **bare}


def _changing(launch: Launch) -> Iterator[Entry]:
    """The words that change a value: others add one (``+``), choose a config, or are Hydra's own. Behind one that adds
    or gives a whole section, what is below that is there."""
    text, added = launch.document.source.text, []
    every = launch.command.assignments.entries.values()
    for entry in every:
        is_whole = isinstance(entry.value, Scalar) and str(entry.value.value).lstrip()[:1] == "{"
        if "+" in text[entry.span.start : entry.key_span.start] or is_whole:
            added.append(entry.key)
    for entry in every:
        key = entry.key
        if not _PLAIN_KEY.fullmatch(key) or key.partition(".")[0] == "hydra":
            continue
        if not any(
            f"{key}.".startswith(f"{each}.") or f"{each}.".startswith(f"{key}.") for each in added
        ):
            yield entry


def _lacks(layers: Sequence[Layer], key: Sequence[str]) -> bool:
    """Whether none of the layers has a key, nor may have it."""
    return not any(_may_have(layer, tuple(key)) for layer in layers)


def _may_have(layer: Layer, key: tuple[str, ...]) -> bool:
    package = layer.package
    shared = min(len(package), len(key))
    if package[:shared] != key[:shared]:
        return False
    if layer.file is None or len(key) <= len(package):
        return True
    node: Node = layer.file.root
    for part in key[len(package) :]:
        if not isinstance(node, Mapping) or node.open_ended:
            return True  # what stands for a section may be one (``${...}``)
        if part not in node.entries:
            return False
        node = node.entries[part].value
    return True
