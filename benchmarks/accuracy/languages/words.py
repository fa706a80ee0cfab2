"""Small pieces that all languages share: numbers and flags of a row, and commands."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.accuracy.facts import Row


def whole(value: Any, default: int = 1) -> int:
    """The number in a field; ``default`` where there is none."""
    if isinstance(value, int | float):
        return int(value)
    found = re.search(r"\d+", str(value)) if value is not None else None
    return int(found[0]) if found else default


def gpus_of(row: Row) -> int:
    return int(row.get("gpus") or 1)


def lora_of(row: Row) -> Mapping[str, Any]:
    said = row.get("lora")
    return said if isinstance(said, Mapping) else {}


def arguments_of(row: Row) -> Mapping[str, Any]:
    said = row.get("raw_args")
    return said if isinstance(said, Mapping) else {}


def is_checkpointed(row: Row) -> bool:
    return str(row.get("gradient_checkpointing")).lower() not in ("false", "none", "null")


def strategy_of(row: Row) -> str:
    return str(row.get("strategy") or "none").lower()


def command(words: Iterable[str], options: Mapping[str, Any]) -> str:
    """One line of a shell; an option that is ``None`` is not said, one that is ``True`` is a flag."""
    line = list(words)
    for name, value in options.items():
        if value is None:
            continue
        line.append(f"--{name}")
        if value is not True:
            line += map(shlex.quote, _words(value))
    return " ".join(line) + "\n"


def yaml_text(config: Mapping[str, Any], depth: int = 0) -> str:
    """A mapping as YAML: sections as blocks, all else as JSON writes it."""
    text = ""
    for key, value in config.items():
        text += "  " * depth + f"{key}:"
        if isinstance(value, Mapping):
            text += "\n" + yaml_text(value, depth + 1)
        else:
            text += f" {json.dumps(value)}\n"
    return text


def toml_text(config: Mapping[str, Any], path: str = "") -> str:
    """A mapping as TOML: sections by their whole names, all else as JSON writes it."""
    plain = {key: value for key, value in config.items() if not isinstance(value, Mapping)}
    text = f"[{path}]\n" if path else ""
    text += "".join(f"{key} = {json.dumps(value)}\n" for key, value in plain.items())
    for key, value in config.items():
        if isinstance(value, Mapping):
            text += toml_text(value, f"{path}.{key}" if path else key)
    return text


def _words(value: Any) -> list[str]:
    """The words of a value: those of a list, and those between blanks unless it is a JSON text."""
    if isinstance(value, list | tuple):
        return [str(each) for each in value]
    text = str(value)
    return [text] if text.startswith(("{", "[")) else text.split()
