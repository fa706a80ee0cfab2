"""Which releases of libraries a run has, by what the project around its files and its own scripts say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping as MappingABC

from oomlint.dialects.base import Claim
from oomlint.documents import kind_of
from oomlint.files.requirements import chosen_anew, installed, is_commit, is_guide, is_requirements
from oomlint.files.workspace import Workspace
from oomlint.plan.library_changes import release_of
from oomlint.runs.built_images import image_of, installed_in

_PROJECT_FILES = frozenset({"pyproject.toml", "setup.py", "setup.cfg"})


def pinned(workspace: Workspace, claims: Iterable[Claim]) -> dict[str, tuple[str, str]]:
    """What the project around the files of a run pins, and what its scripts install, commits included."""
    claims = tuple(claims)
    image = image_of(workspace, claims)
    found: dict[str, tuple[str, str]] = {}
    for claim in claims:
        set_up = installed_in(image, workspace.set_up_floors(claim.path))
        asked = installed_in(image, workspace.floors(claim.path))
        # pip and "uv pip" know nothing of a lock: a script that asks for a later release has it installed.
        kept = {
            package: at
            for package, at in installed_in(image, workspace.versions(claim.path)).items()
            if (package not in set_up or not _is_before(at[0], set_up[package][0]))
            and not (package in asked and _contradict(at, asked[package]))
        }
        found = {**kept, **found}
    if image is not None:
        found = {**image.pins, **found}
    anew = _anew(claims)
    for package in (*anew, "python") if anew else ():
        found.pop(package, None)
    for claim in claims:
        own = installed(claim.document.source.text)
        found |= {package: (version, claim.path) for package, version in own.items()}
    return found


def untold(
    workspace: Workspace, claims: Iterable[Claim], versions: MappingABC[str, tuple[str, str]]
) -> dict[str, str]:
    """Packages of which only a repository tells the release, and how it is named."""
    absent = frozenset[str]().union(*(workspace.absent(c.path) for c in claims))
    pinned = ((name, at[0]) for name, at in versions.items() if is_commit(at[0]))
    return {name: f"{name} is a submodule that is not checked out" for name in absent} | {
        name: f"{name} is installed from {source}, of which no file tells the release"
        for name, source in pinned
    }


def floors(workspace: Workspace, claims: Iterable[Claim]) -> dict[str, str]:
    """The oldest releases that the project around the files of a run allows."""
    claims = tuple(claims)
    image = image_of(workspace, claims)
    found: dict[str, tuple[str, str]] = {}
    for claim in claims:
        found = {**installed_in(image, workspace.floors(claim.path)), **found}
    oldest = {package: version for package, (version, _) in found.items()}
    anew = _anew(claims)
    kept = {package: version for package, version in oldest.items() if package not in anew}
    return kept | {package: version for package, version in anew.items() if version is not None}


def ranges(
    workspace: Workspace, claims: Iterable[Claim], versions: MappingABC[str, tuple[str, str]]
) -> dict[str, str]:
    """Packages of whose pin a file says no more than up to which release it may be → the oldest that the file allows."""
    return {
        package: oldest
        for claim in claims
        for package, (oldest, file) in workspace.ranges(claim.path).items()
        if versions.get(package, ("", ""))[1] == file
    }


def _contradict(pin: tuple[str, str], floor: tuple[str, str]) -> bool:
    """Whether requirements have a release that the project's own file does not allow: ``pip install -r`` brings one,
    ``pip install .`` another, and which of them somebody ran no file tells. A README that names an older release than any
    file allows was written before that."""
    by_hand, project = (at[1].rpartition("/")[2] for at in (pin, floor))
    is_other = is_guide(by_hand) and not is_guide(project)
    is_other = is_other or (is_requirements(by_hand) and project in _PROJECT_FILES)
    return is_other and _is_before(pin[0], floor[0])


def _is_before(version: str, floor: str) -> bool:
    """Whether a release that is pinned is older than one."""
    release, oldest = release_of(version), release_of(floor)
    return release is not None and oldest is not None and release < oldest


def _anew(claims: Iterable[Claim]) -> dict[str, str | None]:
    """What the notebooks among the files of a run install, and the oldest that they allow."""
    found: dict[str, str | None] = {}
    for claim in claims:
        if kind_of(claim.path) == ".ipynb":
            found |= chosen_anew(claim.document.source.text)
    return found
