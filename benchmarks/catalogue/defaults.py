"""What transformers' configuration classes fill in where a config.json says nothing, for those of text models.

    pip install torch transformers
    python -m benchmarks.catalogue.defaults     # adds the classes that lint/oomlint/models/data/defaults.json lacks

Of each class that AutoModel has for language models, and of which something is predicted, the single values that are read
of a config.json and follow from no others. Lists are left out: how long they are follows from the number of layers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oomlint.models import from_config_json
from oomlint.models.architectures import why_built_otherwise
from oomlint.models.config_fields import SYNONYMS

DATA = Path(__file__).parents[2] / "lint" / "oomlint" / "models" / "data" / "defaults.json"


class _Asked(dict[str, Any]):
    """A config that notes what of it is read."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(content)
        self.names: list[str] = []

    def get(self, key: str, default: Any = None) -> Any:
        self.names.append(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.names.append(key)
        return super().__getitem__(key)


def read_of(content: dict[str, Any]) -> dict[str, Any]:
    """What of a config is read."""
    asked = _Asked(content)
    from_config_json(asked)
    left_out = ("model_type", "_name_or_path", "dtype", "torch_dtype", "quantization_config")
    names = [name for name in dict.fromkeys(asked.names) if name not in left_out]
    return {name: content[name] for name in names if content.get(name) is not None}


def defaults_of(content: dict[str, Any]) -> dict[str, Any]:
    single = bool | int | float | str
    return {name: value for name, value in read_of(content).items() if isinstance(value, single)}


def _computed(kind: type, found: dict[str, Any]) -> set[str]:
    """The values that a class works out of others, seen by changing these: they are no defaults."""
    computed: set[str] = set()
    for name in ("hidden", "heads", "layers"):
        for key in SYNONYMS[name]:
            if key not in found:
                continue
            try:
                changed = kind(**{key: 2 * found[key]}).to_dict()
            except Exception:  # whatever a class demands of its values
                continue
            computed |= {k for k, v in found.items() if k != key and changed.get(k) != v}
    return computed


def main() -> None:
    from transformers.models.auto import modeling_auto as auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    known: dict[str, Any] = json.loads(DATA.read_text("utf-8"))
    kinds = {
        *auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        *auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        *auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    }
    for kind in sorted(kinds - known.keys()):
        if why_built_otherwise(kind) is not None:
            continue
        config = CONFIG_MAPPING[kind]()
        if not config.sub_configs:
            found = defaults_of(config.to_dict())
            known[kind] = {
                k: v for k, v in found.items() if k not in _computed(type(config), found)
            }
    rows = (
        f"{json.dumps(kind)}:{json.dumps(row, separators=(',', ':'))}"
        for kind, row in known.items()
    )
    DATA.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
