"""DeepSpeed where a command asks for it and the environment that the project lists whole is without it.

A file that a tool wrote of what is installed, or is to be, lists all packages: a lock (uv, Poetry, PDM) or ``pip freeze``, which
has those that others need. A list that somebody wrote by hand says nothing of what it leaves out. accelerate 1.11
``utils/dataclasses.py`` (``DeepSpeedPlugin``) and transformers 4.57 ``integrations/deepspeed.py`` (``HfDeepSpeedConfig``:
``dep_version_check``) raise without it; its launcher is part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from oomlint.dialects.base import Claim
from oomlint.dialects.ending import Ending, When
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launcher_keys import ACCELERATE_LAUNCHER, DEEPSPEED_LAUNCHER
from oomlint.documents.base import Scalar
from oomlint.documents.text import Location
from oomlint.files.reference_index import texts_below
from oomlint.files.workspace import Workspace

_PACKAGE = b"deepspeed"
_WHY = "the environment that the project lists whole has no deepspeed"
# What each environment with torch has and nobody writes down: requests and its kin need them.
_NEEDED_BY_OTHERS = ("certifi", "idna", "urllib3")
_FEWEST = 30
_PINNED = re.compile(r"(?m)^(?!\s*[#-])[ \t]*[A-Za-z][\w.-]*(?:\[[^\]\n]*\])?[ \t]*(?:==|@)")
_REQUIRED = re.compile(r"(?m)^(?!\s*[#-])[ \t]*[A-Za-z]\S*")
# By these more may be there than any file of the project lists.
BRINGS_MORE = re.compile(
    rb"(?i)\b(?:module load|singularity|apptainer|docker|enroot|pyxis|container-image|\.sif)\b"
)
_INSTALLS = re.compile(rb"(?i)(?:install|\badd\b|--with|conda|mamba)[^\n]{0,300}deepspeed")
# How guides write the commands that use it; any other mention may say that it is to be there.
_USES = re.compile(
    rb"(?m)--deepspeed[\w-]*(?:[ =]\S+)?|^[ \t]*(?:[A-Z_]+=\S+[ \t]+)*deepspeed[ \t]|[\w./-]*deepspeed[\w./-]*\.(?:json|ya?ml)\b"
)
_GUIDES = (".md", ".rst")
_LISTS = (".txt", ".toml", ".yml", ".yaml", ".lock", ".cfg", ".in")
_IS_LIST = re.compile(r"require|environ|env\b|conda|pyproject|setup|lock|depend", re.IGNORECASE)
_DEEPEST = 4


class AbsentPackages:
    """Looks for the packages that commands ask for in what their project says is installed."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._without: dict[str, bool] = {}

    def of(self, launch: Launch, from_file: str, claims: Iterable[Claim]) -> Ending | None:
        """Why a command that asks for DeepSpeed ends, if no environment of the project has it."""
        text = launch.document.source.text.encode()
        if not _asks(launch, claims) or BRINGS_MORE.search(text):
            return None
        if from_file not in self._without:
            self._without[from_file] = self._is_without(from_file)
        where = Location(from_file, launch.anchor)
        return Ending(_WHY, where, When.SETTINGS) if self._without[from_file] else None

    def _is_without(self, from_file: str) -> bool:
        texts = self._workspace.requirements(from_file)
        if any(_PACKAGE.decode() in text.lower() for text in texts):
            return False
        return any(map(_is_whole, texts)) and not self._may_be_there(from_file)

    def _may_be_there(self, from_file: str) -> bool:
        """Whether somebody installs the package besides, lists another environment, or runs in a container."""
        root = self._workspace.project_around(from_file)
        if self._workspace.holds(root, _PACKAGE.decode()) or self._workspace.holds(
            root, "Dockerfile"
        ):
            return True
        around = texts_below(self._workspace, root, guides=True)
        for word in (_PACKAGE, b"DeepSpeed"):
            for name, text in around.holding(word):
                is_guide = name.lower().endswith(_GUIDES)
                said = _USES.sub(b"", text).lower() if is_guide else b""
                if _INSTALLS.search(text) or _PACKAGE in said:
                    return True
        lists = (n for n in self._workspace.below(str(root), _LISTS, _DEEPEST) if _lists(n))
        return any(_PACKAGE in (self._workspace.read_or_none(n) or b"").lower() for n in lists)


def _lists(name: str) -> bool:
    return bool(_IS_LIST.search(Path(name).name))


def _asks(launch: Launch, claims: Iterable[Claim]) -> bool:
    """Whether a command starts DeepSpeed, by its launcher, the launcher's config or the Trainer's own option."""
    if launch.launcher is DEEPSPEED_LAUNCHER:
        return True
    option = launch.flags.entries.get("deepspeed")
    value = option.value.value if option is not None and isinstance(option.value, Scalar) else None
    if isinstance(value, str) and value.endswith(".json"):
        return True
    texts = (c.document.source.text for c in claims if c.dialect.name == "accelerate")
    is_accelerate = launch.launcher is ACCELERATE_LAUNCHER
    return is_accelerate and any("distributed_type: DEEPSPEED" in text for text in texts)


def _is_whole(text: str) -> bool:
    """Whether a list was written by a tool, of all packages, torch among them."""
    low = text.lower()
    if "[[package]]" in low:
        return 'name = "torch"' in low
    pinned = _PINNED.findall(low)
    return (
        len(pinned) >= _FEWEST
        and len(pinned) == len(_REQUIRED.findall(low))
        and all(
            re.search(rf"(?m)^{name}\s*(?:==|@)", low) for name in (*_NEEDED_BY_OTHERS, "torch")
        )
    )
