"""``docs/settings.md``: every setting with its type, default and meaning, from the settings' schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oomlint.config.settings import Settings
from oomlint_schemas.generate import schemas

PAGE = Path(__file__).parents[2] / "docs/settings.md"

_HEAD = """\
# Settings

The nearest `oomlint.toml`, `.oomlint.toml` or `[tool.oomlint]` in `pyproject.toml` counts, going up from the
file that is linted; settings of two files are never mixed. `oomlint init` writes a commented one, `oomlint
config PATH` says what is in force for a path and where each value comes from. Options of the command line,
and what an editor says, win over settings.

```toml
# oomlint.toml
hardware = "8xA100-80GB"
host-memory = "1TiB"
ignore = ["save-optimizer-states"]

[per-file-ignores]
"experiments/**" = ["micro-batch-too-large"]

[profiles.cluster]
hardware = "4x8xH100-80GB"
host-memory = "2TiB"
```

The schema for your editor is `schemas/oomlint_schemas/oomlint.schema.json` ([Schemas](schemas.md)).

| setting | type | default | meaning |
|---|---|---|---|
"""

_TAIL = """
## The margin

Whether a run fits is a matter of its [risk](memory-model.md#risk-and-verdicts), which `margin` does not move. It is
how much of a limit oomlint will fill when it proposes something: the lengths and micro batches that findings
name take no more than this share of the card, the RAM that they ask Slurm or a container for leaves the rest free, a
merge of checkpoints that takes more of the host's RAM is warned of, and a way of `oomlint fit` that stays below it
is not dropped for one that only leaves more room.

## In a file

```yaml
micro_batch_size: 8  # oomlint: ignore[micro-batch-too-large] measured: it fits
```

`# oomlint: ignore[NAME-OR-CODE, ...] reason` silences a finding on its line, or, alone on a line, on the next
one; without brackets it means every rule, and `ignore-file` the whole file. A comment that silences nothing is
a finding itself. JSON has no comments: `per-file-ignores` serves there.
"""


def settings_page() -> str:
    """The page, from :class:`~oomlint.config.settings.Settings` and its schema."""
    schema = schemas()["oomlint"]
    defaults = Settings()
    rows = [
        _row(name, about, getattr(defaults, name.replace("-", "_")))
        for name, about in schema["properties"].items()
    ]
    profile = schema["$defs"]["HardwareProfile"]
    inner = [
        _row(f"profiles.NAME.{name}", about, None) for name, about in profile["properties"].items()
    ]
    return _HEAD + "".join((*rows, *inner)) + _TAIL


def _row(name: str, about: Mapping[str, Any], default: Any) -> str:
    kinds = ", ".join(dict.fromkeys(_kinds(about)))
    shown = f"`{json.dumps(default)}`" if default not in (None, (), {}) else ""
    return f"| `{name}` | {kinds} | {shown} | {_cell(about['description'])} |\n"


def _kinds(about: Mapping[str, Any]) -> Iterator[str]:
    for choice in about.get("anyOf", ()):
        yield from _kinds(choice)
    yield from (f"`{word}`" for word in about.get("enum", ()) if word is not None)
    named = about.get("type", ())
    for kind in (named,) if isinstance(named, str) else named:
        if kind == "array":
            yield "list of texts"
        elif kind == "object":
            yield "table"
        elif kind != "null" and "enum" not in about:
            yield {"string": "text", "integer": "whole number"}.get(kind, kind)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
