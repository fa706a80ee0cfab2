"""Which values of a row of the catalogue have a source that anybody can open.

    python -m benchmarks.catalogue.sources     # values without one, row by row, and how many checkpoints' dtypes have none

A source is a file of a repository (``owner/name:path``), of a release (``name 1.2:path``), a file or page of a model on the Hub,
an issue, or another page with its address. It states every value of its row, or those in brackets behind it:
``RahulSChand/gpu_poor:public/all_configs.json [layers hidden]``. What follows ``count:`` says where the numbers of parameters were read, or that
they follow from the row's own values; a published one decides what is in its brackets, where all else of the row is known.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

CATALOGUE: Final = (
    Path(__file__).parents[2] / "lint" / "oomlint" / "models" / "data" / "models.jsonl"
)

# Values that a row has even where it does not say them: the usual ones (``oomlint.models.catalogue``).
_ALWAYS: Final = ("layers", "hidden", "vocab", "tie", "norm", "act")
_OF_ATTENTION: Final = ("heads", "kv_heads", "head_dim")
_WHERE_SAID: Final = (
    "ffn", "ctx", "window", "types", "moe", "mla", "vision", "sound", "ssm", "linear_attn", "per_layer", "mtp",
)  # fmt: skip
CELLS: Final = frozenset((*_ALWAYS, *_OF_ATTENTION, *_WHERE_SAID, "flags", "ckpt"))

# The only whole sources that say in which dtype a checkpoint is stored.
_SAY_DTYPE: Final = re.compile(r"config\.json|hf_model_configs\.py|model_preset\.py")

_STATED: Final = re.compile(r"(?P<name>.*?)(?: \[(?P<cells>[a-z_ ]+)\])?", re.DOTALL)
# What can be opened: a file of a repository or of a release, a page with its address, an issue.
_OPENED: Final = re.compile(
    r"""[\w.-]+/[\w.-]+(\ [\w.]+)?:\ ?\S  # owner/name:path, or a release of it
    | [\w.-]+\ \d[\w.]*:\S  # a package's release
    | transformers\ \d[\w.]*\ \S+\.py
    | huggingface\.co/\S+/\S+
    | (ollama\.com|arxiv\.org)/\S+
    | [\w.-]+/[\w.-]+\ issue\ \d+""",
    re.VERBOSE,
)


def stated(source: str) -> tuple[str, frozenset[str] | None]:
    """A source without its brackets, and the values in them; ``None`` where it states all."""
    found = _STATED.fullmatch(source)
    assert found is not None
    cells = found["cells"]
    return found["name"], None if cells is None else frozenset(cells.split())


def can_be_opened(source: str) -> bool:
    return _OPENED.match(stated(source)[0]) is not None


def cells_of(row: Mapping[str, Any]) -> Sequence[str]:
    """The values of a row that must have a source."""
    found = [*_ALWAYS, *(name for name in _WHERE_SAID if row.get(name) is not None)]
    if row.get("heads"):
        found += _OF_ATTENTION
    if row.get("flags", ()) is not None:
        found.append("flags")
    return found


def without_source(row: Mapping[str, Any], wanted: Sequence[str]) -> tuple[str, ...]:
    """Those of the wanted values that no source of a row states."""
    found: set[str] = set()
    for source in row["src"]:
        name, cells = stated(source)
        if cells is not None:
            found |= cells
        elif not name.startswith("count:"):
            found |= CELLS - {"ckpt"} if _SAY_DTYPE.search(name) is None else CELLS
    return tuple(name for name in wanted if name not in found)


def main() -> int:
    rows = [json.loads(line) for line in CATALOGUE.read_text(encoding="utf-8").splitlines()]
    bad = 0
    for row in rows:
        missing = without_source(row, cells_of(row))
        if missing:
            print(f"{row['id']}: {', '.join(missing)}")
        bad += set(missing) != set(row.get("assumed", ()))
    dtypes = sum(bool(without_source(row, ("ckpt",))) for row in rows)
    print(
        f"{len(rows)} rows, {bad} say otherwise; of {dtypes} no source states the checkpoint's dtype"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
