"""Finds the facts of a model from whatever a config calls it: an id, an alias, a path."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from oomlint.models import catalogue
from oomlint.models.facts import GUESS_SPREAD, ModelFacts
from oomlint.models.names import (
    GuessedSize,
    beginnings,
    folders_above,
    guess_size,
    kinships,
    quant_of,
    size_spans,
    spellings,
    trained_from,
)
from oomlint.plan.model import ModelDims

Reader = Callable[[str], bytes | None]

# An adapter of an adapter exists, a chain of more does not; a cycle must end.
_MAX_ADAPTERS: Final = 3
# What a dot becomes in the folders that ModelScope downloads to, as in Qwen/Qwen2___5-7B-Instruct
# (modelscope 1.40.2 hub/utils/utils.py:154).
_MODELSCOPE_DOT: Final = "___"
# Hub ids are at most 96 characters; paths are longer, nothing meant is this long.
_MAX_NAME: Final = 4096


def lookup(model_id: str) -> ModelFacts | None:
    """The facts of a model that the catalogue holds under this id or an alias of it.

    Letter case and, in the last path component, ``-``, ``_`` and ``.`` do not matter;
    neither do the owner of a mirror and suffixes such as ``-Instruct`` or ``-bnb-4bit``
    (the latter is kept as ``native_quant``). Nothing is guessed and no file is read.
    """
    name = _clean(model_id)
    if not name:
        return None
    match = catalogue.find_id(name)
    if match is not None:
        return catalogue.facts(match)
    parts = name.split("/")
    if len(parts) > 2:
        # litgpt's checkpoints/<org>/<name> and any other folder that keeps the Hub id.
        match = catalogue.find_id("/".join(parts[-2:]))
        if match is not None:
            return catalogue.facts(match)
    for spelling in spellings(name):
        match = catalogue.find_basename(spelling.basename)
        if match is not None and not _adds_a_size(spelling.basename, name):
            facts = catalogue.facts(match)
            if facts.confidence == "verified":
                facts = replace(facts, confidence="derived")
            if spelling.quant and match.quant in (None, "none"):
                facts = replace(facts, native_quant=spelling.quant)
            return replace(facts, source=f"by its name, {facts.id}: {facts.source}")
    return None


def _adds_a_size(basename: str, name: str) -> bool:
    """Whether a spelling says a size that the name leaves open: a base that has a large beside it is no stage of
    training (``bart``, which may be bart-large)."""
    stem = basename.removesuffix("-base")
    if stem == basename or "-base" in catalogue.fold(name):
        return False
    return catalogue.find_basename(f"{stem}-large") is not None


def copied(model: str) -> ModelFacts | None:
    """The facts of the catalogue's model with which the name begins: copies that people train
    and keep are named so (Qwen1.5-14B-Chat-v3.0, Llama-3-8B-Instruct-Gradient-1048k)."""
    name = _clean(model)
    size = guess_size(name.rsplit("/", 1)[-1]) if name else None
    if size is None:
        return None
    for beginning in beginnings(name):
        for spelling in spellings(beginning):
            match = catalogue.find_basename(spelling.basename)
            if match is None:
                continue
            base = catalogue.facts(match)
            if not _is_of_size(base, size):
                return None
            return replace(
                base,
                id=name,
                native_quant=quant_of(name) or base.native_quant or "none",
                confidence="derived" if base.confidence == "verified" else base.confidence,
                source=f"by the beginning of its name, {base.id}: {base.source}",
            )
    return None


def kin(model: str) -> ModelFacts | None:
    """The facts of the catalogue's model whose family and size the name says, if not at its beginning
    (bar-llama3-8b-sft), or that of the folder of a run that a checkpoint lies in. Fine-tunes are called
    so, and other things may be: ``assumed``."""
    name = _clean(model)
    folder = trained_from(name) if name else None
    known = _kin_by_name(name if folder is None else folder) if name else None
    for above in () if known is not None else (folder, *folders_above(folder or name)):
        found = None if above is None else lookup(above) or copied(above)
        if found is not None:
            known = replace(found, source=f"by the folder {above}: {found.source}")
            break
    if known is None:
        return None
    quant = quant_of(name) or "none"
    return replace(known, id=name, native_quant=quant, confidence="assumed")


def _kin_by_name(name: str) -> ModelFacts | None:
    for part in kinships(name):
        size = guess_size(part)
        for spelling in spellings(part):
            match = catalogue.find_basename(spelling.basename)
            if match is None or size is None:
                continue
            base = catalogue.facts(match)
            if not _is_of_size(base, size):
                return None
            return replace(base, source=f"its name contains {part}, {base.id}: {base.source}")
    return None


def _is_of_size(base: ModelFacts, size: GuessedSize) -> bool:
    """Whether a model is as large as a name says, or is itself called so: Llama-3.2-1B has 1.24 billion parameters."""
    total, own = base.dims.params_total or 0, guess_size(base.id.rsplit("/", 1)[-1])
    is_called = own is not None and own.total == size.total
    return is_called or abs(total - size.total) <= GUESS_SPREAD * total


def guess(model: str) -> ModelFacts | None:
    """What the name alone announces: ``params_total`` good to ``GUESS_SPREAD``, no dimensions.

    The count is that of the catalogue's model which the name seems to be a fine-tune of
    (OpenHermes-2.5-Mistral-7B), else the size as written.
    """
    name = _clean(model)
    size = guess_size(name.rsplit("/", 1)[-1]) if name else None
    if size is None:
        return None
    for span in size_spans(name):
        match = catalogue.find_basename(span)
        if match is None:
            continue
        base = catalogue.facts(match)
        total = base.dims.params_total or 0
        if abs(total - size.total) <= GUESS_SPREAD * total:
            return ModelFacts(
                id=name,
                dims=ModelDims(params_total=total, params_active=base.dims.params_active),
                native_quant=quant_of(name) or "none",
                confidence="guessed",
                source=f"the size of {span}, which its name contains",
                note="not in the catalogue",
            )
    return ModelFacts(
        id=name,
        dims=ModelDims(params_total=size.total, params_active=size.active),
        native_quant=quant_of(name) or "none",
        confidence="guessed",
        source="the size in its name",
        note="not in the catalogue",
    )


def resolve(
    model: str, *, read: Reader, base_dirs: Sequence[str] = (), hf_cache: str | None = None
) -> ModelFacts | None:
    """The facts of ``model``, from the best source there is; ``None`` if nothing is known.

    In this order: a local folder (absolute, or relative to one of ``base_dirs``) with a
    ``config.json`` or an adapter's ``adapter_config.json``; a snapshot in the Hugging Face
    cache ``hf_cache`` (the folder that holds ``models--org--name``); the catalogue by id
    or alias, or by the name that this one begins with or is kin to; the size in the name. ``read`` returns a file's bytes, or ``None`` if there
    is no such file; it is called for small JSON files only. Never raises.
    """
    return _resolve(model, read, base_dirs, hf_cache, _MAX_ADAPTERS)


def _resolve(
    model: str, read: Reader, base_dirs: Sequence[str], hf_cache: str | None, depth: int
) -> ModelFacts | None:
    if not model or len(model) > _MAX_NAME or "\0" in model:
        return None
    for folder in _folders(model, read, base_dirs, hf_cache):
        config = _read_json(read, posixpath.join(folder, "config.json"))
        if config is not None:
            facts = _from_folder(config, folder, model, read)
            if facts is not None:
                return facts
        adapter = _read_json(read, posixpath.join(folder, "adapter_config.json"))
        base = adapter.get("base_model_name_or_path") if adapter else None
        if isinstance(base, str) and base != model and depth:
            facts = _resolve(base, read, base_dirs, hf_cache, depth - 1)
            if facts is not None:
                return replace(
                    facts,
                    source=f"base model of the adapter {folder}: {facts.source}",
                    is_adapter=True,
                )
    return lookup(model) or copied(model) or kin(model) or guess(model)


def _folders(
    model: str, read: Reader, base_dirs: Sequence[str], hf_cache: str | None
) -> Iterator[str]:
    path = model.replace("\\", "/").rstrip("/") or "/"
    if path.startswith(("~", "$")) or "://" in path:
        return
    if posixpath.isabs(path) or path[1:3] == ":/":
        yield path
        return
    for base in base_dirs:
        yield posixpath.normpath(posixpath.join(base.replace("\\", "/"), path))
    if hf_cache and path.count("/") <= 1 and not path.startswith("."):
        root = posixpath.join(hf_cache.replace("\\", "/"), "models--" + path.replace("/", "--"))
        # huggingface_hub keeps the commit of a branch in refs/<branch>.
        commit = read(posixpath.join(root, "refs", "main"))
        if commit:
            name = commit[:64].decode("ascii", "ignore").strip()
            if name.isalnum():
                yield posixpath.join(root, "snapshots", name)


def _read_json(read: Reader, path: str) -> dict[str, Any] | None:
    data = read(path)
    if data is None:
        return None
    import json

    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _from_folder(
    config: dict[str, Any], folder: str, model: str, read: Reader
) -> ModelFacts | None:
    from oomlint.models.config_json import from_config_json

    facts = from_config_json(config)
    dims = facts.dims
    if dims.params_total is None:
        index = _read_json(read, posixpath.join(folder, "model.safetensors.index.json"))
        total = _params_of_index(index, facts)
        if total is not None:
            dims = replace(dims, params_total=total)
    if dims.layers is None and dims.params_total is None:
        return None
    if dims.params_total is None:
        # The architecture has no count here, but the catalogue or the name may know the size.
        known = lookup(model) or copied(model) or kin(model) or guess(model)
        if known is not None:
            dims = replace(dims, params_total=known.dims.params_total)
    return replace(facts, id=model, dims=dims, source=f"{posixpath.join(folder, 'config.json')}")


def _params_of_index(index: dict[str, Any] | None, facts: ModelFacts) -> int | None:
    """Parameters by the bytes of an unquantised checkpoint (metadata.total_size)."""
    metadata = index.get("metadata") if index else None
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    if not isinstance(size, int) or size <= 0 or facts.native_quant != "none":
        return None
    width = {"fp32": 4, "bf16": 2, "fp16": 2}.get(facts.ckpt_dtype or "")
    return size // width if width else None


def _clean(model: str) -> str:
    """The name without the spelling of paths and URLs around it; empty if it is templated."""
    if len(model) > _MAX_NAME:
        return ""
    name = model.strip().replace("\\", "/").rstrip("/")
    for prefix in ("https://huggingface.co/", "http://huggingface.co/", "hf://"):
        if name.startswith(prefix):
            name = name[len(prefix) :]
    name = name.partition("@")[0] if name.count("@") == 1 else name
    name = name.removeprefix("./").replace(_MODELSCOPE_DOT, ".")
    # The Hub cache's own spelling: models--org--name/snapshots/<commit>.
    for part in name.split("/"):
        if part.startswith("models--"):
            return part.removeprefix("models--").replace("--", "/")
    if any(c in name.rsplit("/", 1)[-1] for c in "${}<>"):
        return ""
    return name
