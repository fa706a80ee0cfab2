"""How a loader answers: cases come as JSON on stdin, answers go as JSON into the file named.

A loader runs in whatever interpreter has its framework; it knows nothing of oomlint. A case
names a folder, the file in it that is judged, and options of its own. An answer holds either
``error``, the framework's words where it refuses the file, or ``values``, what the framework
made of every key, by dotted name.
"""

from __future__ import annotations

import contextlib
import enum
import io
import json
import os
import subprocess
import sys
from abc import ABCMeta
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

MISSING = 77
"""Exit status of a loader whose framework is not installed."""


class NotMine(Exception):
    """A case that this loader does not read at all."""


def older() -> None:
    """Prefer the folder ``older`` of this environment: frameworks that lag behind transformers."""
    folder = os.path.join(sys.prefix, "older")
    if os.path.isdir(folder):
        sys.path.insert(0, folder)


def checkout(name: str, *folders: str) -> str:
    """The checkout of a framework that no registry has, its ``folders`` on the path.

    Raises:
        ImportError: ``OOMLINT_ORACLE_CHECKOUTS`` names no folder with one.
    """
    home = os.path.join(os.environ.get("OOMLINT_ORACLE_CHECKOUTS", ""), name)
    if not os.path.isdir(home):
        raise ImportError(f"{home} is no checkout of {name}")
    sys.path[:0] = [os.path.join(home, folder) for folder in folders]
    return home


def serve(
    prepare: Callable[[], Callable[[dict[str, Any]], dict[str, Any]]], *packages: str
) -> None:
    """Answer every case of the request; ``prepare`` imports the framework.

    ``packages`` are the distributions that judge; their versions go with the answers.
    """
    request = json.load(sys.stdin)
    noise = io.StringIO()
    try:
        with contextlib.redirect_stdout(noise):
            judge = prepare()
    except ImportError as error:
        print(error, file=sys.stderr)
        raise SystemExit(MISSING) from error
    answers = []
    for case in request:
        os.chdir(case["root"])
        try:
            with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
                answers.append({"values": plain(judge(case))})
        except (Exception, SystemExit) as error:
            heard = noise.getvalue().strip()[-200:] if isinstance(error, SystemExit) else ""
            answers.append({"error": f"{type(error).__name__}: {error} {heard}"[:1500]})
        noise.seek(0)
        noise.truncate()
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump({"versions": _versions(packages), "answers": answers}, out)


def _versions(packages: Iterable[str]) -> dict[str, str]:
    return {package: _version(package) for package in packages}


def _version(package: str) -> str:
    """A release, or the commit of a checkout."""
    home = os.path.join(os.environ.get("OOMLINT_ORACLE_CHECKOUTS", ""), package)
    if not os.path.isdir(os.path.join(home, ".git")):
        return version(package)
    asked = ["git", "-C", home, "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(asked, capture_output=True, check=True, text=True).stdout.strip()


class _Known(ABCMeta):
    """A class that others may inherit from, with every member that is asked of it."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return MagicMock(name=name)


class _Made:
    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        """Whatever it is made with."""


class _Anything(ModuleType):
    """A module that has whatever is asked of it: classes by their names, else a mock."""

    __version__ = "99.0"
    __path__: Sequence[str] = ()

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__file__ = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Known(name, (_Made,), {}) if name[:1].isupper() else MagicMock(name=name)
        setattr(self, name, made)
        return made


class _StandIn(MetaPathFinder, Loader):
    """Imports of packages that are not here and that no config is checked by."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)

    def find_spec(self, fullname: str, _path: Any, _target: Any = None) -> ModuleSpec | None:
        if not f"{fullname}.".startswith(tuple(f"{name}." for name in self.names)):
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> Any:
        return _Anything(spec.name)

    def exec_module(self, module: Any) -> None:
        """Nothing is in it."""


def stand_in(*names: str) -> None:
    """Let packages that are not installed seem to be: kernels, image transforms, loggers."""
    sys.meta_path.append(_StandIn(names))


def plain(value: Any) -> Any:
    """A value in JSON's terms: enums by value, what JSON does not have by its text."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, dict):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    # A dtype of torch is known by its own name.
    return str(value).removeprefix("torch.")


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries by dotted keys; the dictionaries themselves stay too."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        out[prefix + str(key)] = value
        if isinstance(value, dict):
            out.update(flat(value, f"{prefix}{key}."))
    return out
