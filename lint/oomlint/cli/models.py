"""What ``estimate MODEL`` and ``new MODEL`` are asked for, beside what all commands are."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from oomlint.documents import SUFFIXES, kind_of
from oomlint.errors import UsageError
from oomlint.session.request import CheckRequest

if TYPE_CHECKING:
    from oomlint.dialects.skeleton import Method, Shard
    from oomlint.drafts import NamedModel, Wanted

_OTHER_MODELS = (
    "`oomlint models` lists all that are known. Any other model: download its config.json (a few kilobytes, "
    "such as with `hf download NAME config.json --local-dir FOLDER`) and name the folder"
)


class ModelArguments(Struct, frozen=True, kw_only=True):
    """How a model is to be trained; ``None`` is not said."""

    method: Method | None = None
    length: int | None = None
    batch: int | None = None
    rank: int | None = None
    shard: Shard | None = None


def names_model(paths: Sequence[str], asked: ModelArguments) -> bool:
    """Whether the one word is a model rather than files that describe runs: nothing that is there, or the
    folder or the ``config.json`` of a model.

    Raises:
        UsageError: options that only a model takes, with paths.
    """
    is_model = len(paths) == 1 and _is_model(paths[0])
    if asked != ModelArguments() and not is_model:
        what = " ".join(paths)
        raise UsageError(
            f"--method, --length, --batch, --rank and --shard are for a model, and {what} says itself how it trains; "
            "--set KEY=VALUE changes that"
        )
    return is_model


def _is_model(word: str) -> bool:
    from oomlint.drafts.model import is_model_config
    from oomlint.files.workspace import Workspace

    if os.path.isdir(word) or os.path.basename(word) == "config.json":
        file = os.path.join(word, "config.json") if os.path.isdir(word) else word
        workspace = Workspace(Path.cwd())
        data = workspace.read_or_none(workspace.name(file))
        return data is not None and is_model_config(data)
    return not os.path.lexists(word) and not _is_path(word)


def _is_path(word: str) -> bool:
    """Whether a word that names nothing here is more likely a file that is missing."""
    return kind_of(word) in SUFFIXES or word.startswith((".", "~", os.sep)) or word.count("/") > 1


def wanted(given: CheckRequest, asked: ModelArguments, name: str) -> Wanted:
    """The wish of a command line.

    Raises:
        UsageError: the model, the hardware or a setting is unknown.
    """
    from oomlint.drafts import Wanted
    from oomlint.session.jobs import machine_of, settings_for

    if given.project_root is not None:
        raise UsageError("--project-root is for paths inside configs, and here is none")
    machine, values = machine_of(given, settings_for(given, ()).settings)
    return Wanted(
        model=known_model(name),
        framework=given.framework,
        method=asked.method,
        length=asked.length,
        batch=asked.batch,
        rank=asked.rank,
        shard=asked.shard,
        hardware=machine,
        values={**values, **(given.values or {})},
    )


def known_model(name: str) -> NamedModel:
    """A model by name or by path, looked for on this machine as a training would.

    Raises:
        UsageError: nobody knows its dimensions.
    """
    from oomlint.drafts import UnknownModel, named_model
    from oomlint.files.workspace import Workspace

    workspace = Workspace(Path.cwd())
    try:
        return named_model(
            os.path.expanduser(name),
            lambda path: workspace.read_or_none(workspace.name(path)),
            [str(workspace.cwd)],
            workspace.disk.hf_cache,
        )
    except UnknownModel as error:
        raise UsageError(f"{error}. {_OTHER_MODELS}") from None
