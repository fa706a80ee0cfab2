"""Whose a file is that a fix would change, and whether anything of the project runs what it describes.

What others wrote (a submodule, a vendored copy, a model with its samples), what nobody runs any more (an archive) and what only tests read is
nothing that a maintainer wants fitted to a machine. Who names such a folder, or a file in it, means it all the same.
"""

from __future__ import annotations

import re
from pathlib import Path

from oomlint.documents import JSON_SUFFIXES, TOML_SUFFIXES, YAML_SUFFIXES, kind_of
from oomlint.files.reference_index import naming, texts_below
from oomlint.files.workspace import Workspace
from oomlint.runs.run import Run
from oomlint.runs.unused import is_set_aside, set_aside_in

# Folders, by what lies in them.
_FOLDERS = (
    ("is a test's", r"_*(?:unit|integration|e2e)?[_-]?tests?|_*fixtures?|test[_-]?data|testing|e2e"),
    ("is another project's", r"(?:3rd|third)[_-]?part(?:y|ies)|vendor(?:ed|s)?|extern(?:als?)?|submodules?|site-packages"),
)  # fmt: skip
# What each repository of a language model on the Hub has (transformers 5 configuration_utils.py CONFIG_NAME,
# tokenization_utils_base.py TOKENIZER_CONFIG_FILE): its makers' own samples of training lie there, too.
_OF_A_MODEL = ("config.json", "tokenizer_config.json")
# GitHub docs "Licensing a repository"; packaging.python.org "Writing your pyproject.toml", setuptools "Quickstart".
_LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "COPYING")
_PACKAGING = ("pyproject.toml", "setup.py")
# Where frameworks keep configs and scripts that show how they are used, and other projects theirs.
_EXAMPLES = "examples"


def why_not_ours(workspace: Workspace, path: str) -> str | None:
    """Why a file is none that a project's fixes are written into, by the folders between it and what the user named;
    ``None`` where nothing says so."""
    folders = _below_named(workspace, path)
    if not folders:
        return None
    *above, name = folders
    for folder in above:
        for what, pattern in _FOLDERS:
            if re.fullmatch(pattern, folder.lower()):
                return f"{path} {what}, by its folder {folder}; name it to have it fixed"
    aside = set_aside_in(above)
    if aside:
        return f"{path} is no longer used, by its folder {aside}; name it to have it fixed"
    if is_set_aside(name):
        return f"{path} is no longer used, by its name; name it to have it fixed"
    folder = path.rpartition("/")[0]
    if above and all(workspace.exists(f"{folder}/{each}") for each in _OF_A_MODEL):
        return f"{path} came with a model, whose files lie beside it; name it to have it fixed"
    for home in workspace.file(path).parents[: len(above)]:
        if home != workspace.project_around(path) and _is_project_of_its_own(workspace, home):
            return f"{path} is another project's, whose licence lies in {home.name}; name it to have it fixed"
    return None


def _is_project_of_its_own(workspace: Workspace, folder: Path) -> bool:
    """Whether a folder has what is installed by itself and a licence of its own, as a copy of a repository has. Of 440
    read edits (``benchmarks/strangers``) whose files are still at hand 9 lay in such a folder: none would be merged."""
    return all(
        any(workspace.holds(folder, each) for each in names) for names in (_LICENCES, _PACKAGING)
    )


def why_the_frameworks(run: Run, path: str) -> str | None:
    """Why a file is the framework's own code: it lies in the framework's package, and is no config."""
    copier = run.parts.copier
    if copier is None or kind_of(path) != ".py":
        return None
    parts = Path(path).parent.parts
    for package in run.dialect.packages:
        *_, name = package.split("/")
        if name in parts:
            return f"{path} is code of {run.framework} itself, which others call too"
    return None


def started_plainly(run: Run, path: str) -> str | None:
    """The file that starts a program with plain ``python``, the program's own docstring included: one process, for
    which alone a device map is made. ``None`` where none here does."""
    if run.parts.copier is None:
        return None
    workspace = run.parts.copier.workspace
    name = path.rpartition("/")[2]
    texts = texts_below(workspace, workspace.project_around(path), guides=True)
    plain = re.compile(_PLAIN.format(re.escape(name)).encode())
    for other in (path, *naming(texts, path)):
        for found in plain.finditer(workspace.read_or_none(other) or b""):
            if workspace.resolve(found[1].decode("utf-8", "replace"), other) == path:
                return other
    return None


def said_by_reader(run: Run, path: str, key: str) -> str | None:
    """The code of the project that names a config and says a key of it itself (``base.update({"cutoff_len": …})``): what the
    file says of it may never count. It is looked for beside the config and in the folders around it. ``None`` where none does."""
    if run.parts.copier is None or kind_of(path) not in _READ_BY_CODE:
        return None
    workspace = run.parts.copier.workspace
    folder, _, name = path.rpartition("/")
    file, project = workspace.file(path), workspace.project_around(path)
    around = (each for each in file.parents if each == project or project in each.parents)
    called = f"{folder.rpartition('/')[2]}/{name}".lstrip("/")
    says = rb"[\"']%s[\"'](?:[ \t]*:|\][ \t]*=[^=])" % re.escape(key).encode()
    for home in around:
        # Many configs are called ``train.yaml``: from elsewhere its folder is named, too.
        wanted = name if home == file.parent else called
        unsaved = (each for each in workspace.overlay if workspace.file(each).parent == home)
        for other in (*unsaved, *workspace.below(workspace.name(home), (".py",), 0)):
            if kind_of(other) != ".py":
                continue
            text = workspace.read_or_none(other) or b""
            if wanted.encode("utf-8", "surrogateescape") in text and re.search(says, text):
                return other
    return None


_READ_BY_CODE = (*JSON_SUFFIXES, *TOML_SUFFIXES, *YAML_SUFFIXES)

# ``python train.py``, not ``python -m torch.distributed.run train.py``.
_PLAIN = r"(?m)(?<![\w./-])python[\d.]*[ \t]+(?:-u[ \t]+)?((?:[\w.-]+/)*{})(?![\w.])"


def _below_named(workspace: Workspace, path: str) -> tuple[str, ...]:
    """The folders between what the user named and a file, and its name; none of a file that is named itself."""
    file = workspace.file(path)
    tops = {workspace.cwd, *workspace.named}
    nearest = next((each for each in (file, *file.parents) if each in tops), None)
    return Path(path).parts[-1:] if nearest is None else file.relative_to(nearest).parts


def why_unused(run: Run) -> str | None:
    """Why nobody here may run what a fix would change: an example of a framework that the project neither carries nor
    requires, or of a copy in one of its folders, which no file of the project's own names. ``None`` where nothing
    says so."""
    copier = run.parts.copier
    if copier is None or run.parts.root is None:
        return None
    workspace, path = copier.workspace, run.parts.root.path
    ships_in = run.dialect.ships_configs_in
    folders = ships_in.union({_EXAMPLES}).intersection(_below_named(workspace, path)[:-1])
    if not folders:
        return None
    project, home = workspace.project_around(path), _home(workspace, run)
    is_shipped = not ships_in.isdisjoint(folders)
    is_its_own = home is None and not is_shipped and _is_required(workspace, run)
    if home == project or is_its_own:
        return None
    for other in naming(texts_below(workspace, project, guides=True), path):
        is_outside = home is None or not workspace.file(other).is_relative_to(home)
        if is_outside and folders.isdisjoint(Path(other).parts):
            return None
    if home is None and is_shipped:
        return f"{path} is a config as {run.framework} ships it, and nothing names it"
    if home is None:
        return f"{path} is an example of {run.framework}, which the project neither carries nor requires"
    return f"{path} is an example of the copy of {run.framework} here, and nothing outside of that names it"


def _home(workspace: Workspace, run: Run) -> Path | None:
    """The folder of the project that holds the framework of a run as its repository does."""
    assert run.parts.root is not None
    carried = (*run.dialect.packages, *run.dialect.declared_in)
    folders = workspace.search_folders(run.parts.root.path)
    inner_first = sorted(folders, key=lambda folder: -len(folder.parts))
    return next((f for f in inner_first if any(workspace.holds(f, each) for each in carried)), None)


def _is_required(workspace: Workspace, run: Run) -> bool:
    """Whether the project may require the framework of a run: it says so, or says nothing of what it needs."""
    assert run.parts.root is not None
    dialect = run.dialect
    required = _letters("\n".join(workspace.requirements(run.parts.root.path)))
    if not (*dialect.packages, *dialect.declared_in):
        return True
    if not re.search(r"\b(?:torch|transformers)\b", required):
        return True  # what it needs stands elsewhere
    return any(_letters(name) in required for name in (dialect.name, dialect.distribution) if name)


def _letters(text: str) -> str:
    return text.lower().replace("_", "").replace("-", "")
