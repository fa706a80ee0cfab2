"""Plans of published rows that carry their whole configuration: read by oomlint's own dialects.

An Axolotl row is its YAML, an ms-swift row its command line; both go the way of a user's file,
from bytes to a plan. What the file does not say but the publisher does (the model's dimensions,
the number of GPUs, how long the samples were) is laid over it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.accuracy.releases import versions_of

from oomlint.dialects import registry
from oomlint.errors import FileError, UsageError
from oomlint.files.workspace import Workspace
from oomlint.plan import Plan
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker


def command_line(row: Mapping[str, Any]) -> str:
    """The ms-swift command of a row, with the environment that counts its GPUs."""
    raw = as_measured(row)
    gpus = int(row.get("gpus") or 1)
    strategy = str(row.get("strategy") or "")
    program = "megatron" if "megatron" in f"{row.get('framework')} {strategy}" else "swift"
    words = [f"CUDA_VISIBLE_DEVICES={','.join(map(str, range(gpus)))}"]
    if gpus > 1 and "device_map" not in strategy:
        words.append(f"NPROC_PER_NODE={gpus}")
    words += [program, "rlhf" if "rlhf_type" in raw else "sft"]
    for key, value in raw.items():
        words += [f"--{key}", *(shlex.quote(v) for v in _values(value))]
    return " ".join(words) + "\n"


def as_measured(row: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the variant that was measured.

    Where a script's comment gives figures for several variants ("Not using use_liger_kernel: 4 *
    54GB"), the script's text is one of them and the row's own fields say which was measured.
    """
    raw = dict(row["raw_args"])
    if "#" not in str(row["id"]):
        return raw
    notes = str(row.get("notes"))
    if row.get("method") == "full" and "full" in notes:
        raw = {k: v for k, v in raw.items() if not k.startswith(("lora_", "target_modules"))}
        raw["tuner_type"] = "full"
    if row.get("gradient_checkpointing") is False:
        raw["gradient_checkpointing"] = "false"
    if "vit gc false" in notes:
        raw["vit_gradient_checkpointing"] = "false"
    if "padding_free" in notes:
        raw["padding_free"] = "true"
    is_off = {
        "use_liger_kernel": not row.get("liger"),
        "packing": not row.get("packing"),
        "padding_free": "without padding_free" in notes,
    }
    raw = {k: v for k, v in raw.items() if not is_off.get(k)}
    if "muon" in raw.get("optimizer", "") and "muon" not in str(row.get("optimizer")):
        del raw["optimizer"]
    if "BF16 variant" in notes:
        raw = {k: v for k, v in raw.items() if not k.startswith("fp8_")}
    return raw


_LORA_PARTS = {
    "q": "query", "k": "key", "v": "value", "o": "projection", "mlp": "mlp", "lm_head": "head",
}  # fmt: skip


def litgpt_line(row: Mapping[str, Any]) -> str | None:
    """The ``litgpt`` command of a row; ``None`` for its pre-training extensions."""
    method = str(row["method"])
    kind = {"qlora": "lora"}.get(method, method)
    if kind not in ("lora", "full", "adapter", "adapter_v2") or "thunder" in str(row["framework"]):
        return None
    precision = "bf16-mixed" if "mixed" in str(row.get("dtype")) else "bf16-true"
    micro, gpus = int(row.get("micro_batch") or 1), int(row.get("gpus") or 1)
    accumulation = row.get("grad_accum")
    steps = int(accumulation) if isinstance(accumulation, int) else 1
    words = [
        "litgpt", f"finetune_{kind}", "--checkpoint_dir", f"checkpoints/{row['model']}",
        "--precision", precision, "--devices", str(gpus),
        "--train.micro_batch_size", str(micro),
        "--train.global_batch_size", str(micro * gpus * steps),
        "--train.max_seq_length", str(row["seq_len"]),
    ]  # fmt: skip
    if str(row.get("quant") or "").startswith("bnb"):
        words += ["--quantize", str(row["quant"])]
    lora = row.get("lora")
    if kind == "lora" and isinstance(lora, Mapping):
        words += ["--lora_r", str(lora.get("r") or 8)]
        targets = lora.get("targets") or ["q", "v"]
        for short, part in _LORA_PARTS.items():
            words += [f"--lora_{part}", str(short in targets).lower()]
    return " ".join(words) + "\n"


def _values(value: Any) -> list[str]:
    text = str(value)
    return [text] if text.startswith(("{", "[")) else text.split()


@cache
def _linked(name: str, text: str, versions: tuple[tuple[str, str], ...] = ()) -> Plan | None:
    space = Workspace(Path("/row"), {name: text.encode()})
    found = Linker(space, registry(), LinkOptions(None, None, dict(versions))).link([name])
    return found.runs[0].plan if found.runs else None


def _versions(row: Mapping[str, Any], family: str) -> tuple[tuple[str, str], ...]:
    """A row's versions as options are given to oomlint."""
    return tuple(
        (f"versions.{package}", version) for package, version in versions_of(row, family).items()
    )


def plan_of_config(row: Mapping[str, Any], family: str) -> Plan | None:
    """The plan that the product reads from a row's configuration; ``None`` if it has none."""
    try:
        if family.startswith("litgpt"):
            line = litgpt_line(row)
            return _linked("train.sh", line) if line else None
        if not isinstance(row.get("raw_args"), Mapping):
            return None
        if family == "axolotl":
            # JSON is YAML; Axolotl's own loader reads both.
            text = json.dumps(row["raw_args"], indent=1) + "\n"
            return _linked("config.yaml", text, _versions(row, family))
        # A script that accelerate launches hangs on a file that the row does not carry.
        if family == "swift4" and "config_file" not in row["raw_args"]:
            return _linked("train.sh", command_line(row), _versions(row, family))
    except (FileError, UsageError):
        return None
    return None
