"""Rebuilds catalogue models with transformers on the meta device and compares the counts.

    pip install torch transformers==5.23.0
    python benchmarks/catalogue/verify_models.py [--write] [WORD ...]

No weights and no network are needed. ``configs.jsonl`` beside this file has, per catalogue
id, the model type, how to build it and the configuration values that differ from the
class's defaults. With WORDs only ids that contain one of them are rebuilt. For every model
three counts must agree: the real class's, the catalogue's, and where the architecture is
known to it ``oomlint.models.count_parameters``'s. ``--write`` stores the rebuilt counts of
embeddings, head, linear layers and blocks in the catalogue, for models added to it by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "lint"
CATALOGUE = PACKAGE / "oomlint" / "models" / "data" / "models.jsonl"
BUILDERS = {
    "causal": "AutoModelForCausalLM",
    "vl": "AutoModelForImageTextToText",
    "seq2seq": "AutoModelForSeq2SeqLM",
    "base": "AutoModel",
}

# What ``count_parameters`` cannot know from the dimensions: the one-row score head of reward
# models (4096 parameters), and falcon-11B's single norm (see count.py).
INEXACT = frozenset(
    {
        "Skywork/Skywork-Reward-V2-Qwen3-8B",
        "Skywork/Skywork-Reward-Llama-3.1-8B",
        "tiiuae/falcon-11B",
    }
)


def chosen(words: list[str]) -> Iterator[dict[str, Any]]:
    for line in (HERE / "configs.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if not words or any(word.lower() in entry["id"].lower() for word in words):
            yield entry


def build(entry: dict[str, Any]) -> Any:
    """The model of an entry on the meta device, weights tied."""
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[entry["model_type"]](**entry["config"])
    name = BUILDERS.get(entry["build"], entry["build"])
    cls = getattr(transformers, name)
    make = cls.from_config if entry["build"] in BUILDERS else cls._from_config
    with torch.device("meta"):
        model = make(config, attn_implementation="eager")
    model.tie_weights()
    return model


def counts(model: Any) -> dict[str, int]:
    """Counts as the catalogue defines them."""
    from torch import nn

    # Owned once: tied tensors appear under one name only.
    total = sum(p.numel() for p in model.parameters())
    head = model.get_output_embeddings()
    embed = model.get_input_embeddings()
    tied = head is not None and embed is not None and head.weight is embed.weight
    linear = sum(
        m.weight.numel() for m in model.modules() if type(m) is nn.Linear and m is not head
    )
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) > 1]
    text_layers = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    blocks = [m for m in lists if len(m) == text_layers]
    largest = max(
        (sum(p.numel() for p in layer.parameters()) for layers in blocks for layer in layers),
        default=0,
    )
    return {
        "total": total,
        "embed": embed.weight.numel() if embed is not None else 0,
        "lm_head": 0 if head is None or tied else head.weight.numel(),
        "linear": linear,
        "layer_max": largest,
    }


def compare(entry: dict[str, Any], rebuilt: dict[str, int]) -> list[str]:
    """What differs, in words; ``params`` of an entry is the count of a model that is built
    without the parts that transformers lacks (a remote-code tower, a talker)."""
    from oomlint.models import count_parameters, lookup

    facts = lookup(entry["id"])
    if facts is None:
        return ["not in the catalogue"]
    expected = entry.get("params", facts.dims.params_total)
    problems = []
    if rebuilt["total"] != expected:
        problems.append(f"built {rebuilt['total']:,}, catalogue {expected:,}")
    counted = count_parameters(facts.dims)
    inexact = entry["id"] in INEXACT
    if counted is not None and counted.total != facts.dims.params_total and not inexact:
        problems.append(f"counted {counted.total:,}, catalogue {facts.dims.params_total:,}")
    return problems


def write_back(rebuilt: dict[str, dict[str, int]]) -> None:
    lines = []
    for line in CATALOGUE.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["id"] in rebuilt:
            row["params"] = {**row["params"], **rebuilt[row["id"]]}
            line = json.dumps(row, separators=(",", ":"), ensure_ascii=False)
        lines.append(line + "\n")
    CATALOGUE.write_text("".join(lines), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="store rebuilt counts")
    parser.add_argument("words", nargs="*", metavar="WORD")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    sys.path.insert(0, str(PACKAGE))
    rebuilt: dict[str, dict[str, int]] = {}
    agree = bad = 0
    for entry in chosen(options.words):
        try:
            found = counts(build(entry))
        except Exception as error:  # any failure of a third-party constructor is a finding
            bad += 1
            print(f"{entry['id']}: cannot be built: {type(error).__name__}: {str(error)[:160]}")
            continue
        if "params" not in entry:
            rebuilt[entry["id"]] = found
        problems = compare(entry, found)
        bad += bool(problems)
        agree += not problems
        for problem in problems:
            print(f"{entry['id']}: {problem}")
    if options.write:
        write_back(rebuilt)
    print(f"{agree} agree, {bad} differ or cannot be built")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
