"""Whether what is read from a config.json is what transformers builds of it, class by class.

    pip install torch transformers
    python -m benchmarks.catalogue.classes [--apart 0.02]

Builds every class for causal language models on the meta device, with the defaults of its configuration, and
prints those whose parameters differ by more than a share from what is read of the same configuration. A class
of which nothing is predicted is listed apart; so is one that cannot be built from its defaults. Encoders, and
decoders of models for translation, are no causal models when they are trained, and are read as what they are.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from oomlint.memory import skeleton
from oomlint.models import from_config_json


class Compared(Struct, frozen=True):
    """``read`` and ``built`` are parameters; ``read`` is ``None`` where nothing is predicted."""

    kind: str
    built: int
    read: float | None


def compared() -> Iterator[Compared | str]:
    """Each class, or its name and why it was not built."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    for kind in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        try:
            config = CONFIG_MAPPING[kind]()
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(config)
            model.tie_weights()
        except Exception as error:  # whatever a class's own code raises
            yield f"{kind}: {error!r}"
            continue
        built = sum(parameter.numel() for parameter in model.parameters())
        content: dict[str, Any] = config.to_dict()
        read = skeleton(from_config_json(content).dims)
        yield Compared(kind, built, read.numel if read is not None else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--apart", type=float, default=0.02, help="a share of the parameters")
    apart: float = parser.parse_args().apart
    count = 0
    for found in compared():
        if isinstance(found, str):
            print(f"not built: {found}")
        elif found.read is None:
            print(f"not predicted: {found.kind}")
        elif abs(found.read / found.built - 1) > apart:
            print(f"{found.read / found.built - 1:+.1%} {found.kind}, {found.built:,} parameters")
        else:
            count += 1
    print(f"{count} classes are read as they are built")


if __name__ == "__main__":
    main()
