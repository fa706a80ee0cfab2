"""The configs that Hydra composes for the programs of a script: ``@hydra.main(config_path="conf")``."""

from __future__ import annotations

import ast
import posixpath
from typing import TYPE_CHECKING, Final

from oomlint.documents.python.configs.composition import (
    Composition,
    HydraMain,
    Layer,
    Words,
    laid_over,
)
from oomlint.documents.python.configs.loaded import LoadedFiles
from oomlint.documents.python.configs.paths import At, ConfigPaths
from oomlint.documents.python.modules import FindSource
from oomlint.documents.python.nodes import ConfigFile, Filed
from oomlint.documents.suffixes import YAML_SUFFIXES

if TYPE_CHECKING:
    from oomlint.documents.python.values import Evaluator

# Of one composed config: a primary file and an option of each group; more is beyond any program.
_MOST_COMPOSED: Final = 64


class HydraConfigs:
    """What Hydra composes for the tasks of a script; ``paths`` tells what the command says to it."""

    def __init__(self, paths: ConfigPaths, find: FindSource) -> None:
        self._paths = paths
        self._loaded = LoadedFiles(find, _MOST_COMPOSED)
        self._composed: dict[int, Filed | None] = {}
        """By ``id`` of the function that gets it: the config that Hydra composes."""
        self._whole_of: dict[int, Filed] = {}
        """By ``id`` of a file: the composed config that it is a layer of."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Display paths of the files that were composed."""
        return self._loaded.paths

    def whole_of(self, file: ConfigFile) -> Filed | None:
        """The composed config that a file is a layer of."""
        return self._whole_of.get(id(file))

    def of(self, function: ast.FunctionDef, main: HydraMain, home: Evaluator) -> Filed | None:
        """The config that Hydra composes for the task of a program."""
        if id(function) not in self._composed:
            self._composed[id(function)] = None
            found = self._compose(main, home)
            layer = found
            while layer is not None and found is not None:
                self._whole_of[id(layer.file)] = found
                layer = layer.under
            self._composed[id(function)] = found
        return self._composed[id(function)]

    def _compose(self, main: HydraMain, home: Evaluator) -> Filed | None:
        here = home.places.source
        self._paths.asked.add("config_name")
        at = At(home.scopes.module, home)
        name = self._said(("config_name", "cn"), main.config_name, at)
        folder = self._said(("config_path", "cp"), main.config_path, at)
        if main.config_path is None and folder is None:
            folder = "." if _looks_beside(main) else None
        further = self._said(("config_dir", "cd"), None, at)
        folders = [posixpath.join(posixpath.dirname(here.path), folder)] if folder else []
        folders += [] if further is None else [further]

        def load(path: str) -> ConfigFile | None:
            for each in folders:
                for suffix in YAML_SUFFIXES:
                    wanted = posixpath.normpath(posixpath.join(each, path + suffix))
                    file = self._loaded.at(wanted, "omegaconf")
                    if file is not None and posixpath.normpath(file.path).endswith(wanted):
                        return file
            return None

        composition = Composition(load, Words.of(self._paths.options))
        layers = [Layer((), None)] if name is None else composition.layers(name)
        return laid_over(layers, composition.overrides(), here)

    def _said(self, names: tuple[str, ...], otherwise: ast.expr | None, at: At) -> str | None:
        """What the command says by one of these options, or else the decorator; ``None`` where nobody tells."""
        for name in names:
            if name in self._paths.options:
                return self._paths.said(name)
        return None if otherwise is None else self._paths.path(otherwise, at)


def _looks_beside(main: HydraMain) -> bool:
    """Whether a program that names no folder looks for configs beside itself: until version 1.1, or where none is said
    (hydra-core 1.3.2 main.py, version.py setbase)."""
    said = main.version_base.value if isinstance(main.version_base, ast.Constant) else None
    return not main.says_version or said in ("1.0", "1.1")
