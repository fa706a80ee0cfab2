"""What a run's image has installed, where a compose file starts the run and says from which Dockerfile the image is built.

A project has several environments: the requirements of its backend say nothing of an image that is built without them, and
what of a library's releases an image has that nobody pins is not known (Compose Build Specification, "dockerfile", "context").
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping as MappingABC

from msgspec import Struct

from oomlint.dialects.base import Claim
from oomlint.documents.base import Mapping, Scalar
from oomlint.files.requirements import pins
from oomlint.files.workspace import Workspace

# What installs a project as its own files say, and so by their pins: a manager of packages, or pip of a folder.
_INSTALLS_PROJECT = r"(?m)\b(?:uv|poetry|pdm|pipenv)\s+(?:sync|install|run)\b|\binstall\b[^\n&;|]*?\s[\"']?\.(?:[\s\"'/\[]|$)|\bsetup\.py\b"
_OF_PROJECT = frozenset(
    {
        "pyproject.toml",
        "setup.py",
        "setup.cfg",
        "uv.lock",
        "poetry.lock",
        "pdm.lock",
        "pipfile.lock",
    }
)
_SERVICE = "service"
_ELSEWHERE = ("$", "://", "git@")


class BuiltImage(Struct, frozen=True):
    """The Dockerfile that an image is built from, and what is said there and by its service."""

    path: str
    dockerfile: str
    service: str

    def installs(self, file: str) -> bool:
        """Whether what a file of the project pins is installed in the image, as far as it tells."""
        name = posixpath.basename(file)
        said = f"{self.dockerfile}\n{self.service}"
        if file == self.path or re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", said):
            return True
        return name.lower() in _OF_PROJECT and re.search(_INSTALLS_PROJECT, said) is not None

    @property
    def pins(self) -> dict[str, tuple[str, str]]:
        """What the Dockerfile itself installs."""
        found = pins("Dockerfile", self.dockerfile)
        return {package: (version, self.path) for package, version in found.items()}


def image_of(workspace: Workspace, claims: Iterable[Claim]) -> BuiltImage | None:
    """The image in which a run starts; ``None`` where none is built here, or its Dockerfile is not at hand."""
    for claim in claims:
        for block in claim.blocks:
            entry = block.mapping.entries.get("build") if block.table.name == _SERVICE else None
            path = None if entry is None else _dockerfile_of(entry.value, block.path)
            text = None if path is None else workspace.read_or_none(path)
            if path is not None and text is not None:
                span = block.mapping.span
                service = block.document.source.text[span.start : span.end]
                return BuiltImage(path, text.decode("utf-8", "replace"), service)
    return None


def installed_in(
    image: BuiltImage | None, versions: MappingABC[str, tuple[str, str]]
) -> dict[str, tuple[str, str]]:
    """Of the versions that files of a project say, each with its file, those that hold in an image."""
    return {
        package: at for package, at in versions.items() if image is None or image.installs(at[1])
    }


def _dockerfile_of(build: object, compose: str) -> str | None:
    """The path of the Dockerfile, beside the compose file; ``None`` where it is written inline or fetched."""
    parts = dict(_texts(build))
    if "dockerfile_inline" in parts or any(
        mark in part for part in parts.values() for mark in _ELSEWHERE
    ):
        return None
    name = parts.get("dockerfile", "Dockerfile")
    return posixpath.normpath(
        posixpath.join(posixpath.dirname(compose), parts.get("context", "."), name)
    )


def _texts(build: object) -> Iterator[tuple[str, str]]:
    if isinstance(build, Scalar):
        yield "context", str(build.value)
    elif isinstance(build, Mapping):
        for key in ("context", "dockerfile", "dockerfile_inline"):
            entry = build.entries.get(key)
            if entry is not None and isinstance(entry.value, Scalar):
                yield key, str(entry.value.value)
