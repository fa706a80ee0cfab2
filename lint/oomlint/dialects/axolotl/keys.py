"""Keys of Axolotl's YAML.

Read from axolotl 067b021c (2026-07-24); ``AX`` below is ``src/axolotl``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.axolotl.releases import FUSED_BY_DEFAULT
from oomlint.dialects.common.fields import peft, ref
from oomlint.dialects.deepspeed.keys import DEEPSPEED
from oomlint.dialects.key_releases import key_spans, past_keys
from oomlint.dialects.kinds import (
    ANYTHING,
    AXOLOTL_OPTIMIZER,
    BOOLEAN,
    COUNT,
    FILE,
    LIST,
    NUMBER,
    POSITIVE,
    TEXT,
    Kind,
    choice,
    read_integer,
    switch,
)
from oomlint.dialects.table import Renaming, Row, Table, known_keys
from oomlint.dialects.trainer.arguments import RESUME
from oomlint.plan.fields import Private, f

# AX/utils/schemas/enums.py:143 and config.py:1622: names of its own and kernels of the hub, which
# stand for the same algorithms.
ATTENTION = choice(
    {
        "eager": "eager",
        "sdpa": "sdpa",
        "flash_attention_2": "flash2",
        "flash_attention_3": "flash3",
        "flex_attention": "flex",
        "xformers": "xformers",
        "sage": "sage",
        "kernels-community/sage-attention": "sage",
        "flash": "flash2",
        "kernels-community/flash-attn": "flash2",
        "kernels-community/flash-attn2": "flash2",
        "kernels-community/flash-attn3": "flash3",
        "kernels-community/vllm-flash-attn3": "flash3",
    },
    otherwise=None,
)

_CHECKPOINTING = choice(
    {
        True: "full",
        False: "none",
        "true": "full",
        "false": "none",
        "offload": "offload",
        "offload_disk": "disk",
        "unsloth": "offload",
    }
)


class own(Private, prefix="axolotl"):  # noqa: N801
    """Keys of Axolotl whose meaning takes more than one of them."""

    load_in_8bit: bool
    load_in_4bit: bool
    gptq: bool
    dora: bool
    onebit: bool
    target_modules: tuple[str, ...]
    target_linear: bool
    unfrozen: Any
    remote_code: bool
    plugins: tuple[str, ...]
    liger_flce: bool
    sonicmoe: bool
    chunked_ce: bool
    lora_mlp_kernel: bool
    lora_qkv_kernel: bool
    lora_o_kernel: bool
    lora_embedding_kernel: bool
    pad_to_max: bool
    batch_flattening: bool
    batch_size: int
    bf16: str
    fp16: bool
    bfloat16: bool
    float16: bool
    gc: str
    activation_offload: str
    attn_flash2: bool
    attn_sdpa: bool
    attn_xformers: bool
    attn_flex: bool
    attn_sage: bool
    attn_eager: bool
    val_set_size: float
    datasets: Any
    test_datasets: Any
    evals_per_epoch: float
    eval_strategy: str
    saves_per_epoch: float
    fsdp: tuple[str, ...]
    fsdp_config: Any
    reward_model: bool
    process_reward_model: bool
    precompute_ref: bool
    generation_batch: int
    lora_on_cpu: bool
    auto_resume: bool


def _read_positive(raw: Any) -> int | None:
    """Zero, and -1 for ``max_steps``, mean the default (AX/core/builders/base.py:499)."""
    number = read_integer(raw)
    return number if number > 0 else None


_POSITIVE_OR_DEFAULT = Kind(_read_positive, schema={"type": "integer"})

# AX/utils/schemas/fsdp.py:15-79; keys may carry the old ``fsdp_`` prefix.
FSDP_CONFIG = Table(
    name="fsdp_config",
    rows=(
        Row(
            "fsdp_version",
            f.parallel.fsdp.version,
            choice({1: 1, 2: 2, "1": 1, "2": 2}),
            aliases=("version",),
        ),
        Row("activation_checkpointing", f.parallel.fsdp.activation_checkpointing, BOOLEAN),
        Row("offload_params", f.parallel.fsdp.cpu_offload, BOOLEAN),
        Row("sync_module_states", f.parallel.fsdp.sync_module_states, BOOLEAN),
        Row("cpu_ram_efficient_loading", f.load.cpu_ram_efficient, BOOLEAN),
        Row("cpu_offload_pin_memory", f.offload.pin_memory, BOOLEAN),
        Row("use_orig_params", f.parallel.fsdp.use_orig_params, BOOLEAN),
        Row(
            "state_dict_type",
            f.parallel.fsdp.state_dict,
            choice(
                {
                    "FULL_STATE_DICT": "full",
                    "SHARDED_STATE_DICT": "sharded",
                    "LOCAL_STATE_DICT": "local",
                }
            ),
        ),
        Row(
            "auto_wrap_policy",
            f.parallel.fsdp.wrap,
            choice(
                {
                    "TRANSFORMER_BASED_WRAP": "transformer",
                    "SIZE_BASED_WRAP": "size",
                    "NO_WRAP": "none",
                }
            ),
        ),
        Row("transformer_layer_cls_to_wrap", f.parallel.fsdp.wrap_classes, LIST),
        Row("min_num_params", f.parallel.fsdp.min_params, COUNT),
        Row("reshard_after_forward", f.parallel.fsdp.reshard_after_forward, BOOLEAN),
        Row(
            "sharding_strategy",
            f.parallel.fsdp.strategy,
            choice(
                {
                    "FULL_SHARD": "full",
                    "SHARD_GRAD_OP": "grad_op",
                    "NO_SHARD": "no_shard",
                    "HYBRID_SHARD": "hybrid",
                    "HYBRID_SHARD_ZERO2": "hybrid_grad_op",
                }
            ),
        ),
    ),
    known=frozenset(
        {
            "mixed_precision_policy", "limit_all_gathers", "backward_prefetch", "forward_prefetch",
            "final_state_dict_type",
        }
    ),
    strip_prefix="fsdp_",
    section="fsdp",
)  # fmt: skip

# AX/utils/schemas/peft.py: Triton kernels for the parts of a block that carry an adapter.
LORA_KERNELS = {
    "lora_mlp_kernel": own.lora_mlp_kernel,
    "lora_qkv_kernel": own.lora_qkv_kernel,
    "lora_o_kernel": own.lora_o_kernel,
    "lora_embedding_kernel": own.lora_embedding_kernel,
}

_ROWS = (
    Row("base_model", f.model.id, TEXT, source="AX/utils/schemas/model.py:17"),
    Row("load_in_8bit", own.load_in_8bit, BOOLEAN, default=False, source="AX/utils/schemas/peft.py:31"),
    Row("load_in_4bit", own.load_in_4bit, BOOLEAN, default=False, source="AX/utils/schemas/peft.py:37"),
    Row(
        "adapter",
        f.trainable.method,
        choice({"lora": "lora", "qlora": "qlora", "llama-adapter": "adapter"}),
        default="full",
        source="AX/utils/schemas/peft.py:41: no adapter is full fine-tuning",
    ),
    Row("lora_r", f.trainable.r, POSITIVE),
    Row("lora_alpha", f.trainable.alpha, NUMBER),
    Row("lora_dropout", f.trainable.dropout, NUMBER, default=0.0, source="AX/utils/schemas/peft.py:80"),
    Row("lora_target_modules", own.target_modules, LIST),
    Row("lora_target_linear", own.target_linear, BOOLEAN),
    Row("lora_modules_to_save", f.trainable.modules_to_save, LIST),
    Row("lora_target_parameters", f.trainable.target_params, LIST),
    Row("peft_use_dora", own.dora, BOOLEAN),
    Row("peft_autocast_adapter_dtype", peft.autocast_adapters, BOOLEAN),
    Row("quantize_moe_experts", f.quant.quantises_moe_experts, BOOLEAN, default=False),
    Row("gptq", own.gptq, BOOLEAN),
    Row("plugins", own.plugins, LIST),
    Row("liger_fused_linear_cross_entropy", own.liger_flce, BOOLEAN),
    Row("use_sonicmoe", own.sonicmoe, BOOLEAN),
    Row("liger_rms_norm", f.loss.liger.rms, BOOLEAN),
    Row("liger_glu_activation", f.loss.liger.swiglu, BOOLEAN, aliases=("liger_swiglu",)),
    Row("liger_rope", f.loss.liger.rope, BOOLEAN),
    *(Row(key, field, BOOLEAN) for key, field in LORA_KERNELS.items()),
    Row("trust_remote_code", own.remote_code, BOOLEAN),
    Row("cut_cross_entropy", f.loss.cut_ce, BOOLEAN),
    Row("chunked_cross_entropy", own.chunked_ce, BOOLEAN),
    Row("chunked_cross_entropy_num_chunks", f.loss.chunks, POSITIVE),
    Row("sequence_len", f.seq.max_len, POSITIVE, default=512, source="AX/utils/schemas/config.py:665"),
    Row("sample_packing", f.seq.packing, switch(on="multipack", off="none"), default="none", source="AX/utils/schemas/config.py:688"),
    Row("pad_to_sequence_len", own.pad_to_max, BOOLEAN),
    Row("batch_flattening", own.batch_flattening, choice({True: True, False: False, "auto": True})),
    Row("micro_batch_size", f.batch.micro, POSITIVE, default=1, source="AX/utils/schemas/training.py:77"),
    Row("gradient_accumulation_steps", f.batch.grad_accum, POSITIVE, default=1, source="AX/utils/schemas/training.py:71"),
    Row("batch_size", own.batch_size, POSITIVE),
    Row("eval_batch_size", f.batch.eval_micro, POSITIVE),
    Row("auto_find_batch_size", f.batch.auto_micro, BOOLEAN),
    Row(
        "optimizer",
        f.optimizer.name,
        AXOLOTL_OPTIMIZER,
        default="adamw_torch_fused",
        source="AX/utils/schemas/training.py:122",
        changes=(FUSED_BY_DEFAULT,),
    ),
    Row("bf16", own.bf16, choice({True: "amp", False: "no", "full": "full", "true": "amp", "false": "no"}).or_auto()),
    Row("fp16", own.fp16, BOOLEAN),
    Row("bfloat16", own.bfloat16, BOOLEAN),
    Row("float16", own.float16, BOOLEAN),
    Row("gradient_checkpointing", own.gc, _CHECKPOINTING, default="none", source="AX/utils/schemas/config.py:600"),
    Row("gradient_checkpointing_kwargs.use_reentrant", f.checkpointing.reentrant, BOOLEAN),
    Row(
        "activation_offloading",
        own.activation_offload,
        choice({True: "cpu", False: "none", "legacy": "cpu", "disk": "disk", "hidden_states": "cpu"}),
    ),
    Row("attn_implementation", f.model.attn_impl, ATTENTION),
    Row("flash_attention", own.attn_flash2, BOOLEAN),
    Row("sdp_attention", own.attn_sdpa, BOOLEAN),
    Row("xformers_attention", own.attn_xformers, BOOLEAN),
    Row("flex_attention", own.attn_flex, BOOLEAN),
    Row("sage_attention", own.attn_sage, BOOLEAN),
    Row("eager_attention", own.attn_eager, BOOLEAN),
    Row("val_set_size", own.val_set_size, NUMBER, default=0.0),
    Row("datasets", own.datasets, ANYTHING),
    Row("test_datasets", own.test_datasets, ANYTHING),
    Row("eval_steps", f.eval.every, NUMBER),
    Row("evals_per_epoch", own.evals_per_epoch, NUMBER),
    Row("eval_strategy", own.eval_strategy, choice({"no": "no", False: "no", "steps": "steps", "epoch": "epoch"}), aliases=("evaluation_strategy",)),
    Row("do_causal_lm_eval", f.eval.generate, BOOLEAN, default=False, source="AX/utils/schemas/config.py: do_causal_lm_eval"),
    Row("eval_max_new_tokens", f.eval.max_new_tokens, COUNT),
    Row("saves_per_epoch", own.saves_per_epoch, NUMBER),
    Row("save_steps", f.save.every, NUMBER),
    Row(
        "save_strategy",
        f.save.strategy,
        choice({"no": "no", False: "no", "steps": "steps", "epoch": "epoch", "best": "best"}),
    ),
    Row("save_total_limit", f.save.keep, _POSITIVE_OR_DEFAULT, default=4, source="AX/core/builders/base.py:499"),
    Row("save_only_model", f.save.save_only_model, BOOLEAN, default=False, source="AX/core/builders/base.py:512"),
    Row("load_best_model_at_end", f.save.load_best_at_end, BOOLEAN, default=False),
    Row("output_dir", f.save.dir, TEXT),
    Row("max_steps", "total_steps", _POSITIVE_OR_DEFAULT),
    Row("deepspeed", ref.deepspeed, FILE, table=DEEPSPEED, source="AX/core/builders/causal.py:192"),
    Row("fsdp", own.fsdp, LIST),
    Row("fsdp_version", f.parallel.fsdp.version, choice({1: 1, 2: 2, "1": 1, "2": 2})),
    Row("fsdp_config", own.fsdp_config, ANYTHING, table=FSDP_CONFIG),
    Row("tensor_parallel_size", f.parallel.tp, POSITIVE),
    Row("context_parallel_size", f.parallel.cp, POSITIVE, aliases=("sequence_parallel_degree",)),
    Row("dp_replicate_size", f.parallel.dp_replicate, POSITIVE),
    Row("dp_shard_size", f.parallel.dp_shard, POSITIVE),
    Row("expert_parallel_size", f.parallel.ep, POSITIVE),
    Row(
        "rl",
        f.objective.kind,
        choice(
            {
                "dpo": "dpo", "ipo": "dpo", "kto": "kto", "simpo": "simpo", "orpo": "orpo",
                "grpo": "grpo", "gdpo": "grpo", "ebft": "grpo",
            }
        ),
        source="AX/utils/schemas/config.py:262",
    ),
    Row("reward_model", own.reward_model, BOOLEAN),
    Row("process_reward_model", own.process_reward_model, BOOLEAN),
    Row("precompute_ref_log_probs", own.precompute_ref, BOOLEAN),
    Row("dataset_processes", f.data.preprocess_workers, COUNT, aliases=("dataset_num_proc",)),
    Row("dataloader_num_workers", f.data.workers, COUNT),
    Row("dataloader_prefetch_factor", f.data.prefetch, POSITIVE),
    Row("dataloader_pin_memory", f.data.pin_memory, BOOLEAN),
    Row("dataset_keep_in_memory", f.data.in_memory, BOOLEAN),
    Row("streaming", f.data.streaming, BOOLEAN),
    Row("merge_method", f.save.merge, choice({"legacy": "whole", "memory_efficient": "shards"}), source="AX/cli/merge_lora.py:28"),
    Row("lora_on_cpu", own.lora_on_cpu, BOOLEAN),
    Row("resume_from_checkpoint", f.load.resume, RESUME),
    Row("auto_resume_from_checkpoints", own.auto_resume, BOOLEAN),
    Row("torch_empty_cache_steps", f.env.empty_cache_steps, POSITIVE),
    Row("deepcompile", f.compile.deepcompile, BOOLEAN),
    Row("model_quantization_config_kwargs.dequantize", f.quant.dequantised_on_load, BOOLEAN, source="AX/loaders/model.py: Mxfp4Config(**kwargs)"),
    Row("trl.num_generations", f.objective.rollout.n, POSITIVE),
    Row("trl.generation_batch_size", own.generation_batch, POSITIVE),
    Row("torch_compile", f.compile.enabled, choice({True: True, False: False, "auto": True})),
    Row("unfrozen_parameters", own.unfrozen, ANYTHING),
    Row("use_onebitllms", own.onebit, BOOLEAN),
    Row("low_cpu_mem_usage", f.load.low_cpu_mem, BOOLEAN),
)  # fmt: skip

AXOLOTL = Table(
    name="Axolotl config",
    spans=key_spans("axolotl", "axolotl"),
    renamed=(
        Renaming(
            "max_packed_sequence_len",
            None,
            "Axolotl 0.18",
            advice="sequence_len with sample_packing: true says the same",
            source="AX/utils/schemas/deprecated.py",
        ),
        Renaming(
            "unsloth_cross_entropy_loss",
            None,
            "Axolotl 0.18",
            advice="the liger or cut_cross_entropy plug-in fuses the loss",
            source="AX/utils/schemas/validation.py:61",
        ),
        Renaming(
            "s2_attention",
            None,
            "Axolotl 0.18",
            advice="context_parallel_size spreads long sequences",
            source="AX/utils/schemas/deprecated.py",
        ),
    ),
    rows=_ROWS,
    known=known_keys("axolotl"),
    past=past_keys("axolotl", "axolotl"),
    # Values of these are nested settings of their own, none of which this table reads.
    known_prefixes=("gradient_checkpointing_kwargs.", "model_quantization_config_kwargs.", "trl."),
    ignores_unknown=True,
    loader="pyyaml",
    section="training",
)


ATTENTION_SWITCHES = {
    "flash2": own.attn_flash2,
    "sdpa": own.attn_sdpa,
    "xformers": own.attn_xformers,
    "flex": own.attn_flex,
    "sage": own.attn_sage,
    "eager": own.attn_eager,
}
"""The switches of older configs, by the attention that each turns on."""
