"""Modules of a project that Python does not find from where a command starts a script: the program ends as it imports.

A script that is started by its path has its own folder first among the places that are searched, and the working directory not
at all (CPython 3.13 "sys.path[0]"; torch 2.8 distributed/run.py starts scripts so too; DeepSpeed adds the working directory,
and accelerate where it starts DeepSpeed: accelerate 1.11 utils/launch.py prepare_deepspeed_cmd_env, DeepSpeed 0.19.5
launcher/runner.py; its default config may say so).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from oomlint.dialects.base import Claim
from oomlint.dialects.ending import Ending, When
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launcher_keys import ACCELERATE_LAUNCHER, PLAIN, TORCHRUN
from oomlint.documents.base import Document, Fact, PythonDocument, Scalar
from oomlint.errors import FileError
from oomlint.files.ignored import Ignored
from oomlint.files.reference_index import texts_below
from oomlint.files.requirements import PACKAGES
from oomlint.files.searched import SearchedTexts
from oomlint.files.workspace import Workspace

_SEARCHES_SCRIPT_ALONE = (PLAIN, TORCHRUN)
# Of accelerate's config: what is started as torchrun or Python alone would.
_SHARDS_OTHERWISE = rb"(?m)^distributed_type:[ \t]*[\"']?(?:FSDP|MULTI_GPU|NO)\b"
# By these somebody may say where else Python looks, or install the project itself.
_EXTENDS = (
    b"PYTHONPATH",
    b"-e .",
    b"-e git",
    b"--editable",
    b"setup.py develop",
    b"conda develop",
    b"conda-develop",
)
_EXTENDS_ITSELF = re.compile(rb"sys\.path|addsitedir|PYTHONPATH")
_ENVIRONMENTS = (".env", ".envrc")
_PACKAGES_ITSELF = re.compile(
    rb"^\[(?:project|build-system|tool\.(?:poetry|setuptools|hatch|pdm|flit|uv))\b", re.MULTILINE
)
# What a package may make as it is built, and what hands out modules that no file has.
_MADE = re.compile(r"^_|version|_pb2|generated|(?:^|_)(?:cuda|ext|kernels?|C)$|cpp")
_HANDS_OUT = re.compile(rb"sys\.modules|__path__|_LazyModule|importlib")


class AbsentImports:
    """Looks for the modules that scripts of commands import."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._texts: dict[Path, SearchedTexts] = {}
        self._ignored = Ignored()
        self._found: dict[tuple[str, bool, bool], Ending | None] = {}

    def of(self, launch: Launch, from_file: str, claims: Iterable[Claim]) -> Ending | None:
        """The first import of a command's script that is sure to fail, if there is one."""
        if launch.script is None or launch.command.folder_is_open:
            return None
        if launch.script[:1] in ("/", "~", "$"):
            return None  # on another machine, or of another checkout: what is here by that name may be another file
        script = self._workspace.resolve(launch.script, from_file, launch.command.folder)
        if script is None:
            return None
        document = next((each.document for each in claims if each.path == script), None)
        key = (script, self._searches_script_alone(launch), document is None)
        if key not in self._found:
            self._found[key] = self._in(document, script, launch)
        return self._found[key]

    def _in(self, document: Document | None, script: str, launch: Launch) -> Ending | None:
        """What ends a script, by its own facts where no dialect claims it: what it trains stands in other files."""
        is_claimed = document is not None
        with suppress(FileError):
            document = document or self._workspace.document(script)
        if not isinstance(document, PythonDocument):
            return None
        for fact in document.facts:
            if fact.kind == "imports-module":
                why = self._why_absent(fact, script, launch, document)
                if why:
                    return Ending(why, fact.location, When.SETTINGS)
            if fact.kind == "ends-early" and not is_claimed and not fact.detail["guards"]:
                return Ending(fact.detail["why"], fact.location, When.SETTINGS)
        return None

    def _why_absent(self, fact: Fact, script: str, launch: Launch, document: PythonDocument) -> str:
        module = str(fact.detail["module"])
        parts, folder = module.split("."), posixpath.dirname(script)
        if self._has(folder, parts[0]):
            missing = self._missing_of_package(folder, parts) or self._missing_of_folder(
                script, parts, document
            )
            return _says_absent(missing, fact)
        if parts[0] in PACKAGES:
            return ""
        missing = self._missing_of_own(folder, parts, document)
        if missing or not self._searches_script_alone(launch):
            return _says_absent(missing, fact)
        homes = (each for each in self._above(folder) if self._is_module(each, parts))
        home = next(chain(homes, self._beside_importer(fact, parts, folder)), None)
        if home is None or self._may_be_found(script, home, parts[0]):
            return ""
        if self._changes_path(script, document):
            return ""
        where = "in the project's root" if self._is_root(home) else f"in {home}"
        return f"{module} lies {where}, where Python does not look for {_name(script)}"

    def _changes_path(self, script: str, document: PythonDocument) -> bool:
        """Whether the script, or what it was read with, changes where Python looks."""
        texts = (self._workspace.read_or_none(each) or b"" for each in (script, *document.sourced))
        return any(map(_EXTENDS_ITSELF.search, texts))

    def _searches_script_alone(self, launch: Launch) -> bool:
        """Whether what starts a script leaves the places that Python searches as they are."""
        if launch.launcher is not ACCELERATE_LAUNCHER:
            return launch.launcher in _SEARCHES_SCRIPT_ALONE
        options = launch.blocks[-1].mapping.entries
        config = options["config_file"].value if "config_file" in options else None
        if any("deepspeed" in key for key in options) or not isinstance(config, Scalar):
            return False
        from_file = launch.document.source.path
        name = self._workspace.resolve(str(config.value), from_file, launch.command.folder)
        text = b"" if name is None else self._workspace.read_or_none(name) or b""
        return bool(re.search(_SHARDS_OTHERWISE, text))

    # -- in a package beside the script --------------------------------------------------------

    def _missing_of_package(self, folder: str, parts: list[str]) -> str:
        """The module that a package beside the script lacks, dotted; empty where it may have it, or be another."""
        for depth in range(1, len(parts)):
            package = posixpath.join(folder, *parts[:depth])
            init = self._workspace.read_or_none(f"{package}/__init__.py")
            if init is None or _HANDS_OUT.search(init):
                return ""
            if not self._has(package, parts[depth]):
                is_made = _MADE.search(parts[depth]) or self._is_ignored(package, parts[depth])
                return "" if is_made else ".".join(parts[: depth + 1])
        return ""

    def _missing_of_folder(self, script: str, parts: list[str], document: PythonDocument) -> str:
        """The module that a folder beside the script lacks, which is no package by an ``__init__.py``: a package of its name
        anywhere else on the path comes before it (CPython 3.13 importlib/_bootstrap_external.py PathFinder._get_spec). It is
        the one that is meant where the program imports others of it."""
        folder = posixpath.dirname(script)
        home = posixpath.join(folder, parts[0])
        if len(parts) < 2 or parts[0] in PACKAGES or self._workspace.exists(f"{home}/__init__.py"):
            return ""
        if any(self._has(each, parts[0]) for each in self._above(folder)):
            return ""
        if self._has(home, parts[1]) or _MADE.search(parts[1]) or self._is_ignored(home, parts[1]):
            return ""
        if not self._takes_others(folder, parts, document):
            return ""
        if self._may_be_found(script, folder, parts[0]) or self._changes_path(script, document):
            return ""
        return ".".join(parts[:2])

    def _missing_of_own(self, folder: str, parts: list[str], document: PythonDocument) -> str:
        """The module that a package in a folder above the script's lacks, however Python finds that: installed, or by a
        path. It is the one that is meant where the program imports others of it."""
        for home in self._above(folder):
            if self._workspace.exists(posixpath.join(home, parts[0], "__init__.py")):
                is_meant = self._takes_others(home, parts, document)
                return self._missing_of_package(home, parts) if is_meant else ""
        return ""

    def _takes_others(self, home: str, parts: list[str], document: PythonDocument) -> bool:
        """Whether the program imports another module of a package that is there, in a folder."""
        modules = (
            str(each.detail["module"]).split(".")
            for each in document.facts
            if each.kind == "imports-module"
        )
        others = [each for each in modules if each[0] == parts[0] and len(each) > 1]
        return any(each != parts and self._is_module(home, each) for each in others)

    def _has(self, folder: str, name: str) -> bool:
        """Whether a folder has a module, a package or anything else of a name, whatever its ending."""
        path = self._workspace.file(folder or ".")
        if self._workspace.holds(path, name) or self._workspace.holds(path, f"{name}.py"):
            return True
        return any(
            entry.partition(".")[0] == name for entry in self._workspace.disk.names(str(path))
        )

    def _is_ignored(self, folder: str, name: str) -> bool:
        """Whether git leaves out what would be the module: it may be on its author's disk."""
        path = self._workspace.file(folder) / name
        top = str(self._workspace.project_around(f"{folder}/{name}.py"))
        return self._ignored.covers(f"{path}.py", is_folder=False, top=top) or self._ignored.covers(
            str(path), is_folder=True, top=top
        )

    # -- elsewhere in the project --------------------------------------------------------------

    def _above(self, folder: str) -> Iterator[str]:
        """The folders above a script's within its project, the nearest first, named as the script is."""
        while folder.strip("/") and not self._is_root(folder):
            folder = posixpath.dirname(folder)
            yield folder

    def _beside_importer(self, fact: Fact, parts: list[str], folder: str) -> Iterator[str]:
        """The folder of a module that imports another, and those above it up to the script's, where what it means lies
        there: Python looks there for scripts alone. A file may be the namesake of an installed package: one that is meant
        gives the names that are taken."""
        path, names = str(fact.detail["in"]), fact.detail["names"]
        home = posixpath.dirname(path)
        while names and home != folder and home.startswith(f"{folder}/" if folder else ""):
            module = f"{posixpath.join(home, *parts)}.py"
            text = self._workspace.read_or_none(module) if self._workspace.exists(module) else None
            if text is not None and module != path and all(_binds(text, name) for name in names):
                yield home
            home = posixpath.dirname(home)

    def _is_root(self, folder: str) -> bool:
        """Whether a folder is the project's own; where the user names paths from the root of the disk, so are these."""
        path = self._workspace.file(folder or ".")
        return path == self._workspace.project_around(str(path / "script"))

    def _is_module(self, folder: str, parts: list[str]) -> bool:
        path = posixpath.join(folder, *parts)
        return any(self._workspace.exists(each) for each in (f"{path}.py", f"{path}/__init__.py"))

    def _may_be_found(self, script: str, home: str, root: str) -> bool:
        """Whether somebody may have Python look in a folder, has the project installed, or means another package."""
        around = self._workspace.project_around(script)
        if any(True for word in _EXTENDS for _ in self._around(around).holding(word)):
            return True
        if any(root in text for text in self._workspace.requirements(script)):
            return True
        return any(map(self._installs, (home, *self._above(home))))

    def _installs(self, folder: str) -> bool:
        project = self._workspace.read_or_none(posixpath.join(folder, "pyproject.toml")) or b""
        names = ("setup.py", "setup.cfg", *_ENVIRONMENTS)
        others = (posixpath.join(folder, name) for name in names)
        return bool(_PACKAGES_ITSELF.search(project)) or any(map(self._workspace.exists, others))

    def _around(self, root: Path) -> SearchedTexts:
        if root not in self._texts:
            self._texts[root] = texts_below(self._workspace, root, guides=True)
        return self._texts[root]


def _binds(text: bytes, name: str) -> bool:
    """Whether a module gives a name by a statement of its own."""
    word = re.escape(name.encode())
    return bool(re.search(rb"(?m)^(?:(?:async )?def |class )?" + word + rb"\b[ \t]*[=:(]", text))


def _says_absent(missing: str, fact: Fact) -> str:
    return missing and f"there is no module {missing}, which {_name(fact.detail['in'])} imports"


def _name(path: str) -> str:
    return path.rpartition("/")[2]
