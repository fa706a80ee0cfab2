"""The releases that examples of Axolotl and ms-swift were measured with, by their dates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_LIBRARIES = ("transformers", "torch", "bitsandbytes", "peft")


class Script(NamedTuple):
    """A script of ms-swift when the comment on its memory was written (git history of modelscope/ms-swift, whose
    readings ``scripts.tsv`` holds): the newest releases of that day that its requirements took, and arguments that it had then
    and has otherwise now, ``None`` where it had none."""

    releases: dict[str, str]
    arguments: dict[str, str | None]


@cache
def _scripts() -> dict[str, Script]:
    found: dict[str, Script] = {}
    for line in Path(__file__).with_name("scripts.tsv").read_text(encoding="utf-8").splitlines():
        path, _day, *releases, said = line.split("\t")
        named = {
            name: release for name, release in zip(_LIBRARIES, releases, strict=True) if release
        }
        found[path] = Script(named, json.loads(said) if said else {})
    return found


def _script_of(row: Mapping[str, Any]) -> Script | None:
    """That of a row's config, ``ms-swift@v2:examples/…/sft.sh``."""
    return _scripts().get(str(row.get("config_path")).split(":", 1)[-1])


def as_written(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row with the arguments that its script had when its figure was written."""
    script = _script_of(row)
    if script is None or not script.arguments or not isinstance(row.get("raw_args"), Mapping):
        return row
    raw = {**row["raw_args"], **script.arguments}
    count = raw.get("train_dataset_sample")
    if raw.get("dataset") and count and int(count) > 0:
        raw["dataset"] = f"{raw['dataset']}#{count}"
    found = {**row, "raw_args": {key: value for key, value in raw.items() if value is not None}}
    if script.arguments.get("max_length"):
        found["seq_len"] = int(raw["max_length"])
    return found


def versions_of(row: Mapping[str, Any]) -> dict[str, str]:
    """The versions of libraries that a row's publisher used."""
    script = _script_of(row)
    return dict(script.releases) if script is not None else {}
