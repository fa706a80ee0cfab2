"""Adds models to the catalogue by their configurations, with the counts of transformers' own classes.

    pip install torch transformers==5.23.0
    python -m benchmarks.catalogue.add_models FILE.jsonl

A line of FILE is what ``configs.jsonl`` keeps of a model (``id``, ``model_type``, ``build``, ``config``) and what the
catalogue says of it besides: ``ids``, its other names; ``src``, where the configuration and the count were read, in the
words of ``benchmarks.catalogue.sources``, which refuses a value that none of them states; ``ckpt``, the dtype of its checkpoint; ``conf``; ``total``, the published count, if one was found; ``arch``, where code of its own has
the tensors of a class of transformers; ``note``; ``though_found_by_name``, where its name was taken for another's. The dimensions are what
oomlint reads of the configuration. Where a published count was found, a row is written only if the class builds it; ``head`` says
that a checkpoint has an output projection of its own, which transformers 5 ties.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks.catalogue.sources import can_be_opened, cells_of, without_source
from benchmarks.catalogue.verify_models import CATALOGUE, HERE, build, counts

from oomlint.models import from_config_json, lookup
from oomlint.plan.model import ModelDims

_KINDS: Final = {
    "sliding_attention": "s",
    "full_attention": "f",
    "attention": "f",  # as Granite's files call it
    "encoder": "n",
    "decoder": "d",
}
_FLAGS: Final = ("attn_bias", "mlp_bias", "qk_norm")
# Fields of a row that are left out where they have this value (``catalogue._dims``).
_USUAL: Final = {"norm": "rms", "act": "swiglu"}


def row_of(entry: dict[str, Any], built: dict[str, int]) -> dict[str, Any]:
    """The catalogue's line for a model, in the order of its other lines."""
    dims = from_config_json({**entry["config"], "model_type": entry["model_type"]}).dims
    is_body = entry["build"] == "base"
    row: dict[str, Any] = {
        "id": entry["id"],
        "arch": entry.get("arch", dims.arch),
        "layers": dims.layers,
        "hidden": dims.hidden,
        "heads": dims.heads,
    }
    if dims.kv_heads != dims.heads:
        row["kv_heads"] = dims.kv_heads
    if dims.heads and dims.hidden and dims.head_dim != dims.hidden // dims.heads:
        row["head_dim"] = dims.head_dim
    row |= {"ffn": dims.ffn, "vocab": dims.vocab}
    row["tie"] = int(bool(dims.tie_embeddings) and not is_body and "head" not in entry)
    row |= _optional(dims)
    if "ctx" in entry:
        row["ctx"] = entry["ctx"]
    row["params"] = built | {"active": built["total"]} if "moe" in row else dict(built)
    row |= {"ckpt": entry["ckpt"], "conf": entry.get("conf", "derived"), "src": entry["src"]}
    if "note" in entry:
        row["note"] = entry["note"]
    return row


def _optional(dims: ModelDims) -> dict[str, Any]:
    found: dict[str, Any] = {}
    flags = [name for name in _FLAGS if getattr(dims, name)]
    if flags:
        found["flags"] = flags
    found |= {
        name: getattr(dims, name) for name, usual in _USUAL.items() if getattr(dims, name) != usual
    }
    if dims.ctx is not None:
        found["ctx"] = dims.ctx
    if dims.sliding_window is not None:
        found["window"] = dims.sliding_window
    if dims.layer_types is not None:
        found["types"] = "".join(_KINDS[kind] for kind in dims.layer_types)
    return found


def with_own_head(built: dict[str, int], vocab: int, hidden: int) -> dict[str, int]:
    """The counts of a checkpoint whose output projection transformers 5 would tie."""
    head = 0 if built["lm_head"] else vocab * hidden
    return {**built, "total": built["total"] + head, "lm_head": vocab * hidden}


def add(entry: dict[str, Any]) -> str:
    """Adds one model; why not, if so."""
    if lookup(entry["id"]) is not None and not entry.get("though_found_by_name"):
        return "is in the catalogue"
    built = counts(build(entry))
    kept = {key: entry[key] for key in ("id", "model_type", "build", "config")}
    if entry.get("head"):
        kept["params"] = built["total"]
        config = from_config_json({**entry["config"], "model_type": entry["model_type"]}).dims
        built = with_own_head(built, config.vocab or 0, config.hidden or 0)
    if entry.get("total", built["total"]) != built["total"]:
        return f"built {built['total']:,}, published {entry['total']:,}"
    row = row_of(entry, built)
    if None in (row["layers"], row["hidden"], row["vocab"]):
        return "dimensions are not read of its configuration"
    closed = [
        each for each in row["src"] if not each.startswith("count:") and not can_be_opened(each)
    ]
    if closed:
        return f"nobody can open {'; '.join(closed)}"
    if missing := without_source(row, cells_of(row)):
        return f"no source states {', '.join(missing)}"
    for path, line in (
        (CATALOGUE, _line(row)),
        (HERE / "configs.jsonl", _line(kept)),
        (CATALOGUE.with_name("ids.tsv"), "\t".join(["", entry["id"], *entry.get("ids", ()), ""])),
    ):
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    return ""


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def main(argv: list[str]) -> int:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    refused = 0
    for line in Path(argv[0]).read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        why = add(entry)
        refused += bool(why)
        print(f"{entry['id']}: {why or 'added'}")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
