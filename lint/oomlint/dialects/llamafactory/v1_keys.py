"""Keys of LLaMA-Factory's second configuration (``USE_V1=1 llamafactory-cli sft x.yaml``).

Read from LLaMA-Factory ff6d4d12; ``V1`` below is ``src/llamafactory/v1``.
"""

from __future__ import annotations

from oomlint.dialects.common.fields import ref
from oomlint.dialects.kinds import (
    BOOLEAN,
    COUNT,
    INTEGER,
    LIMIT,
    LIST,
    NUMBER,
    POSITIVE,
    TEXT,
    choice,
)
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.plan.fields import Private, f


class v1(Private, prefix="v1"):  # noqa: N801  a namespace of fields, read like ``f``
    """Keys of the second configuration whose meaning takes more than one of them."""

    peft: str
    lora_rank: int
    targets: tuple[str, ...]
    freeze_layers: int
    quant: str
    quant_bits: int
    double_quant: bool
    kernels: tuple[str, ...]
    batching: str
    bf16: bool
    checkpointing: bool
    dist: str
    reshard: bool
    offload: bool
    pin_memory: bool
    cp: int
    cp_mode: str
    pref_loss: str
    save_epochs: float
    save_as_hf: bool


ARGUMENTS = "V1/config/training_args.py"

_ROWS = (
    Row("model", f.model.id, TEXT, default="Qwen/Qwen3-4B-Instruct-2507", source="V1/config/model_args.py:24"),
    Row("trust_remote_code", f.model.trust_remote_code, BOOLEAN, default=False, source="V1/config/model_args.py"),
    Row(
        "flash_attn", f.model.attn_impl,
        choice({"eager": "eager", "sdpa": "sdpa", "flash_attention_2": "flash2"}),
        default="sdpa", source="V1/config/model_args.py",
    ),
    Row("peft_config.name", v1.peft, choice({"lora": "lora", "freeze": "freeze"}, otherwise="other")),
    Row("peft_config.r", v1.lora_rank, POSITIVE),
    Row("peft_config.lora_alpha", f.trainable.alpha, NUMBER),
    Row("peft_config.lora_dropout", f.trainable.dropout, NUMBER),
    Row("peft_config.target_modules", v1.targets, LIST),
    Row("peft_config.modules_to_save", f.trainable.modules_to_save, LIST),
    Row("peft_config.freeze_trainable_layers", v1.freeze_layers, INTEGER),
    Row("quant_config.name", v1.quant, TEXT),
    Row("quant_config.quantization_bit", v1.quant_bits, POSITIVE),
    Row("quant_config.double_quantization", v1.double_quant, BOOLEAN),
    Row("kernel_config.include_kernels", v1.kernels, LIST),
    Row("micro_batch_size", f.batch.micro, POSITIVE, default=1, source=f"{ARGUMENTS}:33"),
    Row("global_batch_size", f.batch.global_, POSITIVE),
    Row("cutoff_len", f.seq.max_len, POSITIVE, default=2048, source=f"{ARGUMENTS}:41"),
    Row(
        "batching_strategy", v1.batching,
        choice(
            {
                "normal": "normal", "padding_free": "padding_free",
                "dynamic_batching": "dynamic", "dynamic_padding_free": "dynamic_padding_free",
            }
        ),
        default="normal", source=ARGUMENTS,
    ),
    Row("batching_workers", f.data.workers, COUNT, default=16, source=ARGUMENTS),
    Row("bf16", v1.bf16, BOOLEAN, default=True, source=f"{ARGUMENTS}:61"),
    Row("enable_activation_checkpointing", v1.checkpointing, BOOLEAN, default=True, source=f"{ARGUMENTS}:73"),
    Row("dist_config.name", v1.dist, TEXT),
    Row("dist_config.config_file", ref.deepspeed, TEXT),
    Row("dist_config.reshard_after_forward", v1.reshard, BOOLEAN),
    Row("dist_config.offload_params", v1.offload, BOOLEAN),
    Row("dist_config.pin_memory", v1.pin_memory, BOOLEAN),
    Row("cp_size", v1.cp, POSITIVE, default=1, source=ARGUMENTS),
    Row("cp_mode", v1.cp_mode, TEXT, default="ulysses", source=ARGUMENTS),
    Row("mp_replicate_size", f.parallel.dp_replicate, POSITIVE, default=1, source=ARGUMENTS),
    Row("mp_shard_size", f.parallel.dp_shard, POSITIVE),
    Row("optim_config.name", f.optimizer.name, choice({"muon": "muon"}, otherwise="other")),
    Row("max_steps", f.total_steps, LIMIT),
    Row("pref_loss", v1.pref_loss, TEXT),
    Row("save_steps", f.save.every, POSITIVE),
    Row("save_epochs", v1.save_epochs, NUMBER),
    Row("save_total_limit", f.save.keep, LIMIT),
    Row("save_ckpt_as_hf", v1.save_as_hf, BOOLEAN, default=False, source=ARGUMENTS),
    Row("output_dir", f.save.dir, TEXT),
)  # fmt: skip

LLAMA_FACTORY_V1 = Table(
    name="LLaMA-Factory V1 config",
    rows=_ROWS,
    known=known_keys("llamafactory_v1"),
    known_prefixes=(
        "init_config.", "peft_config.", "quant_config.", "kernel_config.", "dist_config.",
        "optim_config.", "lr_scheduler_config.",
    ),
    # V1/config/arg_parser.py: transformers' HfArgumentParser, as in the first configuration.
    ignores_unknown=False,
    loader="omegaconf",
    section="training",
)  # fmt: skip
