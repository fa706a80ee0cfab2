"""Whether what is read from a config.json is what transformers builds of it, class by class.

    pip install torch transformers
    python -m benchmarks.catalogue.classes [--apart 0.005] [KIND ...]
    python -m benchmarks.catalogue.classes --rows tests/models/data/classes.jsonl [KIND ...]

Builds every class that AutoModel has for causal, masked or sequence-to-sequence language models on the meta device, with the
defaults of its configuration, and prints those whose parameters, or whose adapters of every linear layer of the blocks,
differ by more than a share from what is read of the same configuration. A class of which nothing is predicted is listed
apart, with what a user is told of it; so is one that cannot be built from its defaults. ``--rows`` writes what tests compare
without torch: a few layers of each kind, and what they were built of.
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.catalogue.defaults import read_of
from msgspec import Struct

from oomlint.memory import skeleton
from oomlint.memory.trained import adapter_ends, targeted
from oomlint.models import from_config_json
from oomlint.models.architectures import why_built_otherwise
from oomlint.models.config_fields import SYNONYMS
from oomlint.plan.model import Trainable

# What the defaults of a configuration class leave out, so that nothing can be built of them (transformers 5.24).
_GIVEN: Mapping[str, Mapping[str, Any]] = {
    "dbrx": {
        "attn_config": {"kv_n_heads": 8, "clip_qkv": 8.0, "rope_theta": 500000.0},
        "ffn_config": {"ffn_hidden_size": 3584, "moe_num_experts": 16, "moe_top_k": 4},
    },
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "n_group": 1, "topk_group": 1},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 16, "moe_topk": 2},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"], "num_hidden_layers": 4},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
}


class Compared(Struct, frozen=True):
    """``config`` is what was built and read; ``read`` and ``built`` are parameters, ``adapted`` those of adapters of rank one as read and as built; ``read`` is
    ``None`` where nothing is predicted."""

    kind: str
    config: Mapping[str, Any]
    built: int
    read: float | None
    adapted: tuple[float, int] | None = None

    @property
    def apart(self) -> tuple[float, float]:
        """Shares by which parameters and adapters are read too high."""
        assert self.read is not None
        read, built = self.adapted or (1, 1)
        return self.read / self.built - 1, read / built - 1 if built else 0.0


def compared(
    wanted: frozenset[str] = frozenset(), layers: int | None = None
) -> Iterator[Compared | str]:
    """Each class, with as many ``layers`` if that is said, or its name and why it was not built."""
    import torch
    from transformers.models.auto import modeling_auto as auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    # An encoder is no causal model when it is trained, a model for translation no decoder alone.
    ways = {
        **dict.fromkeys(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.AutoModelForCausalLM),
        **dict.fromkeys(auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, auto.AutoModelForMaskedLM),
        **dict.fromkeys(
            auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, auto.AutoModelForSeq2SeqLM
        ),
        # Its decoder alone is a causal model of transformers too.
        "whisper": auto.AutoModelForSpeechSeq2Seq,
    }
    for kind, way in sorted(ways.items()):
        if wanted and kind not in wanted:
            continue
        try:
            config = CONFIG_MAPPING[kind](
                **{**_fewer(CONFIG_MAPPING[kind], layers), **_GIVEN.get(kind, {})}
            )
            with torch.device("meta"):
                model = way.from_config(config)
            model.tie_weights()
        except Exception as error:  # whatever a class's own code raises
            yield f"{kind}: {error!r}"
            continue
        built = sum(parameter.numel() for parameter in model.parameters())
        content: dict[str, Any] = config.to_dict()
        dims = from_config_json(content).dims
        read = skeleton(dims)
        if read is None:
            yield Compared(kind, content, built, None)
            continue
        # Recipes leave towers for images and sound alone.
        has_tower = any(name in content for name in ("vision_config", "audio_config"))
        adapters = None if has_tower or read.vision_numel else _adapted(model)
        every = targeted(Trainable(method="lora", targets="all_linear"), read)
        ends = adapters and (adapter_ends(read, every), adapters)
        yield Compared(kind, content, built, read.numel, ends)


def _fewer(kind: Any, layers: int | None) -> dict[str, int]:
    """The arguments that give a configuration of a class so many layers."""
    if layers is None:
        return {}
    content = kind().to_dict()
    return {
        name: layers
        for name in (*SYNONYMS["layers"], "encoder_layers", "decoder_layers")
        if name in content
    }


def _rows(kinds: frozenset[str], file: Path) -> None:
    """Writes of each class what of its configuration is read, its parameters and those of its adapters."""
    with file.open("w", encoding="utf-8") as out:
        for found in compared(kinds, layers=4):
            assert not isinstance(found, str), found
            config = {"model_type": found.kind, **read_of(dict(found.config))}
            row = {
                "config": config,
                "parameters": found.built,
                "adapters": (found.adapted or (0, 0))[1],
            }
            out.write(json.dumps(row, separators=(",", ":")) + "\n")


def _adapted(model: Any) -> int:
    """Parameters of an adapter of rank one for every linear layer of the blocks, as PEFT's "all-linear" gives."""
    import torch
    from transformers.pytorch_utils import Conv1D

    inside = [layer for name, layer in model.named_modules() if re.search(r"\.\d+\.", name)]
    return sum(
        sum(layer.weight.shape) for layer in inside if isinstance(layer, torch.nn.Linear | Conv1D)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--apart", type=float, default=0.005, help="a share of the parameters")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="write what tests compare")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.rows is not None:
        _rows(frozenset(asked.kinds), asked.rows)
        return
    count, off = 0, 0
    for found in compared(frozenset(asked.kinds)):
        if isinstance(found, str):
            why = why_built_otherwise(found.partition(":")[0])
            print(f"not built: {found}" if why is None else f"not predicted: {found}: {why}")
        elif found.read is None:
            why = why_built_otherwise(found.kind) or "too little is read"
            print(f"not predicted: {found.kind}, {found.built:,} parameters: {why}")
        elif max(map(abs, found.apart)) > asked.apart:
            off += 1
            whole, adapters = found.apart
            print(
                f"{whole:+.2%} {found.kind}, {found.built:,} parameters; {adapters:+.2%} adapters"
            )
        else:
            count += 1
    print(f"{count} classes are read as they are built, {off} are not")


if __name__ == "__main__":
    main()
