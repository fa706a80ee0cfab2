"""Keys of LitGPT's YAML and command lines.

Read from litgpt 26857050 (2026-06-29); ``LG`` below is its ``litgpt`` package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.kinds import (
    ANYTHING,
    AUTO,
    BOOLEAN,
    COUNT,
    NUMBER,
    POSITIVE,
    TEXT,
    BadValue,
    Kind,
    choice,
    read_integer,
)
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.plan.fields import Private, f

SOURCE = "litgpt 26857050"

# Names of LG/config.py that are not the end of the Hub id.
_OWN_NAMES = {
    "tiny-llama-1.1b": "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T",
    "tiny-llama-1.1b-chat": "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "r1-distill-llama-8b": "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
    "r1-distill-llama-70b": "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
}


def _read_model(raw: Any) -> str:
    """The Hub id behind ``checkpoints/<org>/<name>``, or the name as it is."""
    if isinstance(raw, (dict, list)):
        raise BadValue("expected a folder or a model name")
    parts = str(raw).replace("\\", "/").strip("/").split("/")
    if len(parts) > 2 and "checkpoints" in parts[:-2]:
        parts = parts[-2:]
        return "/".join(parts)
    return _OWN_NAMES.get(str(raw).lower(), str(raw))


# Lit-LLaMA's names for LLaMA's sizes (lit_llama/model.py llama_configs).
_LLAMAS = {
    "7B": "huggyllama/llama-7b",
    "13B": "huggyllama/llama-13b",
    "30B": "huggyllama/llama-30b",
    "65B": "huggyllama/llama-65b",
}


def _read_llama(raw: Any) -> str | None:
    """Other scripts compute the name from ``--checkpoint_dir``."""
    return _LLAMAS.get(str(raw))


def _read_share(raw: Any) -> float:
    """``128 / devices`` is a float."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or raw <= 0:
        raise BadValue("expected a number of samples above 0")
    return raw


def _read_devices(raw: Any) -> Any:
    """A number of GPUs, or ``auto`` and -1 for all there are (LG/utils.py parse_devices)."""
    if raw in (-1, "-1", "auto"):
        return AUTO
    number = read_integer(raw)
    if number < 1:
        raise BadValue("expected a number of devices, at least 1, or auto")
    return number


def _read_optimizer(raw: Any) -> str | None:
    """A class of torch.optim or a dotted name; one with settings of its own is a mapping, and stands under ``class_path``."""
    return None if isinstance(raw, (dict, list)) else str(raw)


_MODEL = Kind(_read_model)
_DEVICES = Kind(_read_devices)
_LLAMA = Kind(_read_llama)
_SHARE = Kind(_read_share)
_OPTIMIZER = Kind(_read_optimizer)
_PRECISION = choice(
    {
        "bf16-true": "bf16-true",
        "bf16-mixed": "bf16-mixed",
        "bf16": "bf16-mixed",
        "16-true": "16-true",
        "16-mixed": "16-mixed",
        "16": "16-mixed",
        "32-true": "32-true",
        "32": "32-true",
        32: "32-true",
        16: "16-mixed",
    }
)
_QUANTIZE = choice(
    {
        "bnb.nf4": "nf4",
        "bnb.nf4-dq": "nf4-dq",
        "bnb.fp4": "fp4",
        "bnb.fp4-dq": "fp4-dq",
        "bnb.int8-training": "int8",
    }
)


class own(Private, prefix="litgpt"):  # noqa: N801
    """``command``: ``lora``, ``full``, ``adapter``, ``adapter_v2`` or ``pretrain``; ``named_command``: what the name
    of the file suggests. Of scripts from before ``litgpt`` was a package: ``package`` is what they
    import, ``device_batch`` the samples of a GPU in an optimizer step, ``cast`` the dtype that the
    model is put in once it is made. ``optimizer`` is a class by its name alone, ``optimizer_class`` one beside
    which arguments of its own stand."""

    command: str
    named_command: str
    package: str
    device_batch: float
    device_longest: int
    offloads: bool
    cast: str
    model_name: str
    initial_checkpoint: str
    precision: str
    quantize: str
    resume: Any
    lora_query: bool
    lora_key: bool
    lora_value: bool
    lora_projection: bool
    lora_mlp: bool
    lora_head: bool
    data: str
    global_batch: int
    tie_embeddings: bool
    optimizer: str
    optimizer_class: str
    betas: Any
    fused: bool


class given(Private, prefix="litgpt.config"):  # noqa: N801
    """A model that ``model_config`` spells out, by the names of LG/config.py."""

    name: str
    mlp_class_name: str
    norm_class_name: str
    n_layer: int
    n_embd: int
    n_head: int
    n_query_groups: int
    head_size: int
    intermediate_size: int
    vocab_size: int
    padded_vocab_size: int
    block_size: int


LORA_PARTS = {
    "query": own.lora_query,
    "key": own.lora_key,
    "value": own.lora_value,
    "projection": own.lora_projection,
    "mlp": own.lora_mlp,
    "head": own.lora_head,
}
_SIZES = {
    "n_layer": given.n_layer,
    "n_embd": given.n_embd,
    "n_head": given.n_head,
    "n_query_groups": given.n_query_groups,
    "head_size": given.head_size,
    "intermediate_size": given.intermediate_size,
    "vocab_size": given.vocab_size,
    "padded_vocab_size": given.padded_vocab_size,
    "block_size": given.block_size,
}

LITGPT = Table(
    name="LitGPT config",
    rows=(
        Row("checkpoint_dir", f.model.id, _MODEL, aliases=("model_name",)),
        Row("checkpoint_dir", f.model.local_path, TEXT),
        Row("model_name", own.model_name, TEXT),
        Row("initial_checkpoint_dir", own.initial_checkpoint, TEXT),
        *(Row(f"model_config.{name}", field, POSITIVE) for name, field in _SIZES.items()),
        Row("model_config.name", given.name, TEXT),
        Row("model_config.mlp_class_name", given.mlp_class_name, TEXT),
        Row("model_config.norm_class_name", given.norm_class_name, TEXT),
        Row("precision", own.precision, _PRECISION),
        Row("quantize", own.quantize, _QUANTIZE),
        Row("devices", f.parallel.gpus_per_node, _DEVICES),
        Row("num_nodes", f.parallel.nodes, POSITIVE),
        Row("resume", own.resume, ANYTHING),
        Row("lora_r", f.trainable.r, POSITIVE),
        Row("lora_alpha", f.trainable.alpha, NUMBER),
        Row("lora_dropout", f.trainable.dropout, NUMBER),
        *(Row(f"lora_{part}", field, BOOLEAN) for part, field in LORA_PARTS.items()),
        Row("data.class_path", own.data, TEXT, aliases=("data",)),
        Row("data.init_args.num_workers", f.data.workers, COUNT, aliases=("data.num_workers",)),
        Row("train.micro_batch_size", f.batch.micro, POSITIVE),
        Row("train.global_batch_size", own.global_batch, POSITIVE),
        Row("train.max_seq_length", f.seq.max_len, POSITIVE),
        Row("train.tie_embeddings", own.tie_embeddings, BOOLEAN),
        Row("train.save_interval", f.save.every, POSITIVE),
        Row("train.max_steps", "total_steps", POSITIVE),
        Row("eval.interval", f.eval.every, POSITIVE),
        Row("eval.max_new_tokens", f.eval.max_new_tokens, COUNT),
        Row("optimizer", own.optimizer, _OPTIMIZER),
        Row("optimizer.class_path", own.optimizer_class, TEXT),
        Row("optimizer.init_args.betas", own.betas, ANYTHING, aliases=("optimizer.betas",)),
        Row("optimizer.init_args.fused", own.fused, BOOLEAN, aliases=("optimizer.fused",)),
        Row("out_dir", f.save.dir, TEXT),
    ),
    known=known_keys("litgpt"),
    # Arguments of classes, which are any class's own.
    known_prefixes=("data.", "optimizer.", "model_config."),
    ignores_unknown=False,
    loader="pyyaml",
    section="training",
)  # fmt: skip

# What stands at the top of a script, or is given to its calls: see :mod:`.script`.
SCRIPT = Table(
    name="script of LitGPT or Lit-LLaMA",
    rows=(
        Row("from_name", f.model.id, _LLAMA),
        Row("precision", own.precision, _PRECISION),
        Row("cast", own.cast, TEXT),
        Row("devices", f.parallel.gpus_per_node, _DEVICES),
        Row("micro_batch_size", f.batch.micro, POSITIVE),
        Row("batch_size", own.device_batch, _SHARE),
        Row("override_max_seq_length", f.seq.max_len, POSITIVE),
        Row("max_seq_length", f.seq.max_len, POSITIVE),
        Row("block_size", own.device_longest, POSITIVE),
        Row("cpu_offload", own.offloads, BOOLEAN),
        Row("lora_r", f.trainable.r, POSITIVE),
        Row("lora_alpha", f.trainable.alpha, NUMBER),
        Row("lora_dropout", f.trainable.dropout, NUMBER),
        *(Row(f"lora_{part}", field, BOOLEAN) for part, field in LORA_PARTS.items()),
        Row("save_interval", f.save.every, POSITIVE),
        Row("eval_interval", f.eval.every, POSITIVE),
    ),
    section="script",
)  # fmt: skip

# What the functions of these scripts take, which jsonargparse makes options of.
SCRIPT_OPTIONS = Table(
    name="options of a script of LitGPT",
    rows=(
        Row("checkpoint_dir", f.model.id, _MODEL),
        Row("checkpoint_dir", f.model.local_path, TEXT),
        Row("precision", own.precision, _PRECISION),
        Row("quantize", own.quantize, _QUANTIZE),
        Row("out_dir", f.save.dir, TEXT),
    ),
    known=frozenset({"data_dir", "tpu", "pretrained_path", "tokenizer_path"}),
    ignores_unknown=False,
    section="script's options",
)

# The words of a launch line that are no options.
LAUNCHED = Table(
    name="litgpt",
    rows=(
        Row("command", own.command, TEXT),
        Row("package", own.package, TEXT),
        Row("model", f.model.id, _MODEL),
    ),
    section="launcher words",
)
