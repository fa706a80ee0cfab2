"""``python -m benchmarks.fuzz.wrong_values [--every N] [WORD]...``: every key with every wrong value.

Each config, DeepSpeed JSON and command line of ``examples`` and each model's ``config.json`` made
here, once for every key and for each of ``WRONG``: another type, a number without measure, a path
out of the project. ``--every 7`` tries each seventh alone, ``WORD`` begins the names to try.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import resource
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tomllib
import yaml
from benchmarks.fuzz.seeds import ROOT
from benchmarks.fuzz.trial import trouble
from msgspec import Struct

WRONG: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 0.5, -0.0, 1e-320, 1e308, math.inf, -math.inf, math.nan, 2**31, 2**63, 2**64,
    10**30, 10**400, -(10**400), "", " ", "auto", "none", "null", "-1", "1e400", "0x10", "9" * 400, "x" * 3000, "a\0b",
    "\ud7ff\u2028", "../../etc/passwd", "/dev/zero", "${x}", "{{ x }}", [], [[]], [0], [-1, "a", None], [10**400] * 3,
    {}, {"": None}, {"enabled": -1, "stage": "9", "type": []},
)  # fmt: skip

_LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192,
    "vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
    "attention_bias": False, "mlp_bias": False, "hidden_act": "silu", "rope_scaling": {"factor": 32.0},
    "sliding_window": 4096, "use_cache": True,
    "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bits": 4},
}  # fmt: skip
_DEEPSEEK = {
    **_LLAMA, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "n_routed_experts": 64,
    "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128, "num_nextn_predict_layers": 1,
}  # fmt: skip
_VISION = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "text_config": _LLAMA,
    "vision_config": {
        "model_type": "qwen2_5_vl", "hidden_size": 1280, "depth": 32, "num_heads": 16, "intermediate_size": 3420,
        "out_hidden_size": 2048, "patch_size": 14, "image_size": 448, "spatial_merge_size": 2, "in_chans": 3,
    },
}  # fmt: skip
_HYBRID = {
    **_LLAMA, "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_experts": 64,
    "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "full_attention_interval": 4, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention", "full_attention"] * 8,
}  # fmt: skip
_OTHERS = {
    "gpt2": {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
             "n_positions": 1024, "n_inner": None, "vocab_size": 50257},
    "t5": {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 512, "d_ff": 2048,
           "d_kv": 64, "num_layers": 6, "num_decoder_layers": 6, "num_heads": 8, "vocab_size": 32128},
    "bert": {"architectures": ["BertModel"], "model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12,
             "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 30522, "type_vocab_size": 2},
    "mamba": {"architectures": ["MambaForCausalLM"], "model_type": "mamba", "hidden_size": 2560, "n_layer": 64,
              "state_size": 16, "conv_kernel": 4, "expand": 2, "time_step_rank": 160, "vocab_size": 50280},
}  # fmt: skip
MODELS: Mapping[str, Mapping[str, Any]] = {
    "llama": _LLAMA, "deepseek": _DEEPSEEK, "vision": _VISION, "hybrid": _HYBRID, **_OTHERS,
}  # fmt: skip
_TRAIN = b"base_model: ./model\nmicro_batch_size: 4\nsequence_len: 2048\nadapter: lora\nlora_r: 8\n"


class Case(Struct, frozen=True):
    """A project in which one value is wrong; ``what`` says which."""

    what: str
    files: Mapping[str, bytes]
    hardware: str


def cases(words: tuple[str, ...] = ("",)) -> Iterator[Case]:
    """Every case whose project's name begins with one of ``words``."""
    for name, config in MODELS.items():
        if f"model {name}".startswith(words):
            for what, text in _mutants(dict(config), _json):
                files = {"train.yaml": _TRAIN, "model/config.json": text}
                yield Case(f"model {name}: {what}", files, "8xA100-80GB")
    for settings in sorted((ROOT / "examples").glob("*/oomlint.toml")):
        folder = settings.parent
        files = {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p != settings}
        hardware = tomllib.loads(settings.read_text())["hardware"]
        for file in files if folder.name.startswith(words) else ():
            for what, text in _of_file(file, files[file].decode()):
                yield Case(f"{folder.name}, {file}: {what}", {**files, file: text}, hardware)


def _of_file(name: str, text: str) -> Iterator[tuple[str, bytes]]:
    if name.endswith(".sh"):
        yield from _of_flags(text)
    elif name.endswith(".json"):
        yield from _mutants(json.loads(text), _json)
    else:
        yield from _mutants(yaml.safe_load(text), _yaml)


def _mutants(tree: Any, write: Callable[[Any], bytes]) -> Iterator[tuple[str, bytes]]:
    """The text once for every value in the tree and every wrong one in its place."""
    for path in _paths(tree):
        for value in WRONG:
            yield f"{'.'.join(map(str, path))} = {value!r:.60}", write(_with(tree, path, value))


def _paths(tree: Any) -> Iterator[tuple[str | int, ...]]:
    items = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, value in items:
        yield (key,)
        yield from ((key, *rest) for rest in _paths(value))


def _with(tree: Any, path: tuple[str | int, ...], value: Any) -> Any:
    if not path:
        return value
    changed = tree.copy()
    changed[path[0]] = _with(tree[path[0]], path[1:], value)
    return changed


def _json(tree: Any) -> bytes:
    return json.dumps(tree, indent=2).encode()


def _yaml(tree: Any) -> bytes:
    """A key a line, its value as JSON, which YAML takes."""
    lines = (f"{key}: {json.dumps(value)}\n" for key, value in tree.items())
    spelled = {"Infinity": ".inf", "-Infinity": "-.inf", "NaN": ".nan"}
    return re.sub(r"-?Infinity|NaN", lambda m: spelled[m[0]], "".join(lines)).encode()


def _of_flags(text: str) -> Iterator[tuple[str, bytes]]:
    for flag in re.finditer(r"(--[\w.-]+)[ =]([^\s\\-][^\s\\]*)?", text):
        for value in WRONG:
            said = value if isinstance(value, str) else str(value)
            new = f"{flag[1]} {shlex.quote(said)} "
            yield (
                f"{flag[1]} = {value!r:.60}",
                (text[: flag.start()] + new + text[flag.end() :]).encode(),
            )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fuzz.wrong_values", description=__doc__
    )
    parser.add_argument("--every", type=int, default=1, help="try each N-th case alone")
    parser.add_argument("--fix-every", type=int, default=25, help="fix each N-th of them too")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="processor time a case may take"
    )
    parser.add_argument("--memory", type=float, default=2.0, help="GiB that the process may take")
    parser.add_argument("words", nargs="*", default=[""])
    given = parser.parse_args()
    limit = int(given.memory * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    tried = troubles = 0
    for number, case in enumerate(cases(tuple(given.words))):
        if number % given.every:
            continue
        tried += 1
        fix = tried % given.fix_every == 0
        problem = trouble(case.files, case.hardware, fix=fix, seconds=given.seconds)
        if problem is not None:
            troubles += 1
            print(f"{case.what}: {problem}", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{tried} cases, {troubles} troubles, at most {peak:.2f} GiB")
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
