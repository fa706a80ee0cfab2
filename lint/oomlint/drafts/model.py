"""The model that somebody names: of the catalogue, of the Hugging Face cache, or a folder of their own."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from oomlint.errors import UsageError
from oomlint.models import ModelFacts, all_ids, resolve

_OF_A_MODEL = ("config.json", "adapter_config.json", "model.safetensors.index.json")
# What YAML reads otherwise than it is written, or a terminal obeys.
_UNWRITABLE = r"[\x00-\x1f\x7f-\x9f\"'`]|: |:$| #|^[\s?:,\[\]{}#&*!|>%@-]|\s$"
# Of names that are near, so many are worth a line.
_MOST_NAMES = 4


class UnknownModel(UsageError):
    """Nobody knows the dimensions of a model, which its ``config.json`` would tell."""


class NamedModel(Struct, frozen=True):
    """``name`` as a config says it, and the ``files`` that its facts were read from, by the names that they
    have below that; none of a model of the catalogue."""

    name: str
    facts: ModelFacts
    files: Mapping[str, bytes] = field(default_factory=dict)


def named_model(
    name: str,
    read: Callable[[str], bytes | None] = lambda _path: None,
    folders: Sequence[str] = (),
    hf_cache: str | None = None,
) -> NamedModel:
    """The model of a name, looked for as that of a config is (:func:`oomlint.models.resolve`).

    Raises:
        UnknownModel: nobody knows its dimensions; with the nearest names.
        UsageError: its ``config.json`` does not tell them, or the name cannot stand in a config.
    """
    folder = name.replace("\\", "/").rstrip("/")
    if posixpath.basename(folder) == "config.json":
        folder = posixpath.dirname(folder) or "."
    seen: dict[str, bytes] = {}

    def noting(path: str) -> bytes | None:
        data = read(path)
        if data is not None and posixpath.basename(path) in _OF_A_MODEL:
            seen[posixpath.basename(path)] = data
        return data

    facts = resolve(folder, read=noting, base_dirs=folders, hf_cache=hf_cache)
    if facts is None or facts.dims.layers is None:
        if "config.json" in seen:
            kind = _kind(seen["config.json"])
            raise UsageError(
                f"{name}: its config.json has no dimensions that oomlint knows ({kind})"
            )
        raise UnknownModel(_unknown(name, facts))
    if re.search(_UNWRITABLE, folder):
        raise UsageError(
            f"{folder!r} cannot stand in a config as it is: give the folder a name of letters, digits and ._-/"
        )
    if facts.source.endswith("config.json"):
        return NamedModel(folder, facts, seen)
    return NamedModel(_as_hub_has_it(folder, facts), facts)


def _as_hub_has_it(name: str, facts: ModelFacts) -> str:
    """``llama-3.1-8b`` is ``meta-llama/Llama-3.1-8B``; an owner that was named stays."""
    is_same = facts.id.rpartition("/")[2].lower() == name.lower()
    return facts.id if is_same else name


def _unknown(name: str, facts: ModelFacts | None) -> str:
    what = f"no model is known as {name!r}"
    if facts is not None:
        what += ": of its name only the size is known, which is not enough"
    near = nearest(name)
    return f"{what}; nearest: {', '.join(near)}" if near else what


def _kind(data: bytes) -> str:
    try:
        found = json.loads(data)
    except ValueError:
        return "it is not valid JSON"
    kind = found.get("model_type") if isinstance(found, dict) else None
    return f"model_type {kind}" if kind else "it names no model_type"


def nearest(name: str) -> list[str]:
    """Known models that are called like ``name``, with or without their owner."""
    from difflib import get_close_matches

    forms: dict[str, str] = {}
    for known in all_ids():
        forms.setdefault(known.lower(), known)
        forms.setdefault(known.rpartition("/")[2].lower(), known)
    near = get_close_matches(name.lower(), forms, n=2 * _MOST_NAMES, cutoff=0.6)
    return list(dict.fromkeys(forms[key] for key in near))[:_MOST_NAMES]


def is_model_config(data: bytes) -> bool:
    """Whether a ``config.json`` is that of a model rather than of a run."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and ("model_type" in found or "architectures" in found)
