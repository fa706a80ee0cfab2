"""Which releases of verl have which keys in the configs that Hydra lays a command over.

    python -m benchmarks.verl_keys (ppo | sft | sft_engine) FOLDER

prints the lines of ``lint/oomlint/dialects/keys/spans/verl_*.txt``: each key of the table that came or went between the
releases. FOLDER holds a wheel of each, as ``pip download --no-deps verl==RELEASE`` brings them. Nothing of a wheel is run:
its configs are read, from 0.5 on as verl itself has put them together (``_generated_*.yaml``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import yaml

from oomlint.dialects.table import Table
from oomlint.dialects.verl.keys import VERL_PPO, VERL_SFT, VERL_SFT_ENGINE

# Of a key that the configs of several trainers have, the first that ever has it counts: what a wish is written for.
_CONFIGS: Mapping[str, tuple[Table, tuple[str, ...]]] = {
    "ppo": (VERL_PPO, ("ppo_trainer", "ppo_megatron_trainer")),
    "sft": (VERL_SFT, ("sft_trainer",)),
    "sft_engine": (VERL_SFT_ENGINE, ("sft_trainer_engine",)),
}
_FOLDER = "verl/trainer/config"
# Configs of a defaults list that say where they go: ``- optim@optim: fsdp``.
_AT = re.compile(r"(\w+)@([\w.]+)")


def _release(path: Path) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", path.name.split("-")[1])))


def _written(path: Path) -> str:
    return path.name.split("-")[1]


def _read(wheel: ZipFile, name: str) -> Any:
    path = f"{_FOLDER}/{name}.yaml"
    return yaml.safe_load(wheel.read(path)) if path in wheel.namelist() else None


def _paths(value: Any, above: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield f"{above}{key}"
            yield from _paths(below, f"{above}{key}.")


def _keys(wheel: ZipFile, config: str) -> set[str]:
    """The keys of a trainer's config, those of configs that it begins with included, one level deep."""
    value = _read(wheel, f"_generated_{config}") or _read(wheel, config) or {}
    found = set(_paths(value))
    for each in value.get("defaults", ()):
        if isinstance(each, dict):
            for name, choice in each.items():
                at = _AT.fullmatch(str(name))
                if at is not None:
                    below = _read(wheel, f"{at[1]}/{choice}")
                    found |= {at[2], *_paths(below, f"{at[2]}.")}
    return found


def spans(config: str, folder: str) -> dict[str, str]:
    table, trainers = _CONFIGS[config]
    wheels = sorted(Path(folder).glob("verl-*.whl"), key=_release)
    releases: list[str] = []
    had: list[dict[str, list[int]]] = [{} for _ in trainers]
    for path in wheels:
        with ZipFile(path) as wheel:
            found = [_keys(wheel, trainer) for trainer in trainers]
        if not any(found):
            continue  # a release before this trainer, or after it
        for keys, known in zip(found, had, strict=True):
            for key in keys:
                known.setdefault(key, []).append(len(releases))
        releases.append(_written(path))
    lines = {}
    for key in sorted(table.names):
        numbers = next((known[key] for known in had if key in known), None)
        if numbers is None:
            continue
        came, went = numbers[0], numbers[-1] + 1
        if came or went < len(releases):
            lines[key] = " ".join((releases[came] if came else "-", *releases[went : went + 1]))
    return lines


if __name__ == "__main__":
    match sys.argv[1:]:
        case [config, folder] if config in _CONFIGS:
            for key, span in spans(config, folder).items():
                print(key, span)
        case _:
            sys.exit(__doc__)
