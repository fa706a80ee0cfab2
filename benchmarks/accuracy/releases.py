"""The releases that examples of Axolotl and ms-swift were measured with, by their dates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

# For each folder of examples the first release after its first commit (git history and tags of
# axolotl): what a figure that came with it was read on, or what is nearest to that.
_NEXT_RELEASE = {
    "llama-2": "0.3.0", "llama-3": "0.5.0", "jamba": "0.5.0", "llama-4": "0.8.1", "qwen3": "0.9.0",
    "magistral": "0.10.0", "devstral": "0.11.0", "voxtral": "0.12.0", "arcee": "0.12.0",
    "gpt-oss": "0.12.0", "smolvlm2": "0.12.2", "LiquidAI": "0.12.2", "granite4": "0.13.0",
    "hunyuan": "0.13.0", "seed-oss": "0.13.0", "apertus": "0.13.0", "qwen3-next": "0.13.0",
    "internvl3_5": "0.13.1", "ministral3": "0.13.1", "ministral": "0.13.1", "plano": "0.13.1",
    "kimi-linear": "0.13.1", "mistral-small": "0.13.1", "olmo3": "0.13.1", "mimo": "0.13.1",
    "trinity": "0.13.1", "glm45": "0.15.0", "glm47-flash": "0.15.0", "qwen3.5": "0.15.0",
    "gemma4": "0.16.0", "mistral4": "0.16.0", "mistral-medium-3_5": "0.17.0",
    "gemma4-unified": "0.18.0", "deepseek-v4": "0.18.0",
}  # fmt: skip


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
        path, _day, transformers, torch, bitsandbytes, said = line.split("\t")
        releases = {"transformers": transformers, "torch": torch, "bitsandbytes": bitsandbytes}
        found[path] = Script(releases, json.loads(said) if said else {})
    return found


def _path(row: Mapping[str, Any]) -> str:
    return str(row["id"]).removeprefix("cap:").split(":", 1)[-1].split("#")[0]


def as_written(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row with the arguments that its script had when its figure was written."""
    script = _scripts().get(_path(row))
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


def versions_of(row: Mapping[str, Any], family: str) -> dict[str, str]:
    """The versions of libraries that a row's publisher used."""
    path = _path(row)
    if family == "axolotl" and (release := _NEXT_RELEASE.get(path.split("/", 1)[0])):
        return {"axolotl": release}
    script = _scripts().get(path)
    return dict(script.releases) if script is not None else {}
