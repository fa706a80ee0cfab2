"""Reads the packaged catalogue: one line per model, and only the line that is wanted.

``data/ids.tsv`` holds on line *n* every known id of the model on line *n* of
``data/models.jsonl``, framed by tabs. An id whose context length is not its line's is followed by ``@length``, that of a
quantised checkpoint by ``=quant``. A look-up is a byte search in the first file and one ``decode``.

``src`` of a line names where its values were read; ``[layers vocab]`` behind a source are those that it states, where it
does not state all. ``assumed`` are values for which no source was found. A value that was not found at all is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from msgspec import Struct
from msgspec.json import decode

from oomlint.models.facts import ModelFacts
from oomlint.plan.model import Mla, ModelDims, Moe, Sound, VisionTower

_LAYER_TYPES: Final = {
    "s": "sliding_attention",
    "f": "full_attention",
    "l": "linear_attention",
    "c": "chunked_attention",
    "e": "moe",
    "m": "mlp",
    "v": "conv",
    "x": "compressed_sparse_attention",
    "h": "heavily_compressed_attention",
    "n": "encoder",
    "d": "decoder",
}

# What counts as the same character in a basename: Qwen2_5-7B, qwen2.5-7b, Qwen2-5-7B.
_FOLD: Final = bytes.maketrans(b"_.", b"--")


class CatalogueMatch(Struct, frozen=True):
    """A catalogue line, and the quantisation and the context length of its own that the matched id has, if any."""

    line: int
    quant: str | None
    ctx: int | None = None


def read_data(name: str) -> bytes:
    """A file of the package's ``data`` folder (``importlib.resources`` and ``pathlib`` take
    longer to import than a look-up may cost)."""
    with open(os.path.join(os.path.dirname(__file__), "data", name), "rb") as file:
        return file.read()


@cache
def _ids() -> bytes:
    return read_data("ids.tsv").lower()


@cache
def _folded_ids() -> bytes:
    return _ids().translate(_FOLD)


@cache
def _lines() -> list[bytes]:
    return read_data("models.jsonl").splitlines()


def fold(name: str) -> str:
    """``name`` in the spelling that basenames are compared in."""
    return name.lower().replace("_", "-").replace(".", "-")


def find_id(name: str) -> CatalogueMatch | None:
    """The line whose ids hold ``name`` exactly, letter case aside."""
    needle = _needle(name.lower())
    return _first(_search(_ids(), b"\t" + needle)) if needle else None


def find_basename(name: str) -> CatalogueMatch | None:
    """The line with an id whose last path component folds to that of ``name``.

    ``None`` also where the lines found differ in size: then the basename says nothing.
    """
    needle = _needle(fold(name))
    if not needle:
        return None
    found = list(_search(_folded_ids(), b"\t" + needle))
    found += _search(_folded_ids(), b"/" + needle)
    if len({m.line for m in found}) > 1 and len({_size(m.line) for m in found}) > 1:
        return None
    return _first(iter(found))


def _needle(name: str) -> bytes:
    """``name`` as bytes, empty if it holds a character that frames ids."""
    if not name or any(c in name for c in "\t\n=@"):
        return b""
    return name.encode("utf-8", "replace")


def _first(matches: Iterator[CatalogueMatch]) -> CatalogueMatch | None:
    return next(matches, None)


def _search(data: bytes, needle: bytes) -> Iterator[CatalogueMatch]:
    at = data.find(needle)
    while at >= 0:
        end = at + len(needle)
        if data[end : end + 1] in (b"\t", b"=", b"@"):
            said = data[end : data.index(b"\t", end)].decode()
            ctx, _, quant = said.removeprefix("@").partition("=")
            yield CatalogueMatch(
                data.count(b"\n", 0, at),
                quant.replace("-", "_") or None,  # undo the folding of bnb4_dynamic
                int(ctx) if ctx else None,
            )
        at = data.find(needle, end)


def record(line: int) -> dict[str, Any]:
    """The raw record on a line of the catalogue."""
    found: dict[str, Any] = decode(_lines()[line])
    return found


def _size(line: int) -> int:
    size: int = record(line)["params"]["total"]
    return size


def size() -> int:
    """How many models the catalogue holds."""
    return len(_lines())


def ids_of(line: int) -> tuple[str, ...]:
    """Every id of the model on ``line``, canonical first, as written."""
    row = read_data("ids.tsv").decode().splitlines()[line]
    return tuple(_name(each) for each in row.strip("\t").split("\t"))


def all_ids() -> tuple[str, ...]:
    """Every id and alias in the catalogue, as written."""
    text = read_data("ids.tsv").decode()
    return tuple(_name(each) for each in text.replace("\n", "\t").split("\t") if each)


def _name(entry: str) -> str:
    """The id of an entry of ``ids.tsv``, without what is said of it."""
    return entry.partition("=")[0].partition("@")[0]


def facts(match: CatalogueMatch) -> ModelFacts:
    """The facts of a match."""
    row = record(match.line)
    if match.ctx is not None:
        row["ctx"] = match.ctx
    return ModelFacts(
        id=row["id"],
        dims=_dims(row),
        ckpt_dtype=row["ckpt"],
        native_quant=match.quant or row.get("quant", "none"),
        confidence=row["conf"],
        source=_source(row),
        note=row.get("note"),
    )


def _source(row: dict[str, Any]) -> str:
    assumed = row.get("assumed")
    found = "; ".join(row["src"])
    return f"no source was found for {', '.join(assumed)}; {found}" if assumed else found


def _dims(row: dict[str, Any]) -> ModelDims:
    heads, counts = row.get("heads"), row["params"]
    head_dim = row.get("head_dim")
    if head_dim is None and heads:
        head_dim = row["hidden"] // heads
    flags = row.get("flags", ())
    vision = row.get("vision")
    total, linear = counts["total"], counts.get("linear")
    nonlinear = counts.get("nonlinear")
    if nonlinear is None and linear is not None:
        nonlinear = total - linear
    types = row.get("types")

    def flag(name: str) -> bool | None:
        return None if flags is None else name in flags

    return ModelDims(
        arch=row["arch"],
        layers=row["layers"],
        hidden=row["hidden"],
        heads=heads,
        kv_heads=row.get("kv_heads", heads),
        head_dim=head_dim,
        ffn=row.get("ffn"),
        vocab=row["vocab"],
        tie_embeddings=bool(row["tie"]),
        attn_bias=flag("attn_bias"),
        mlp_bias=flag("mlp_bias"),
        qk_norm=flag("qk_norm"),
        norm=row.get("norm", "rms"),
        act=row.get("act", "swiglu"),
        ctx=row.get("ctx"),
        sliding_window=row.get("window"),
        layer_types=tuple(_LAYER_TYPES[t] for t in types) if types else None,
        moe=Moe(**row["moe"]) if "moe" in row else None,
        mla=Mla(**row["mla"]) if "mla" in row else None,
        vision=VisionTower(**vision) if vision is not None else None,
        sound=Sound(**row["sound"]) if "sound" in row else None,
        ssm=row.get("ssm"),
        linear_attn=row.get("linear_attn"),
        per_layer=row.get("per_layer"),
        mtp_layers=row.get("mtp"),
        params_total=total,
        params_active=counts.get("active", total),
        params_embed=counts.get("embed"),
        params_lm_head=counts.get("lm_head"),
        params_linear=linear,
        params_nonlinear=nonlinear,
        params_layer_max=counts.get("layer_max"),
    )
