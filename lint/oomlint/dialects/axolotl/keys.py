"""Keys of Axolotl's YAML.

Read from axolotl 067b021c (2026-07-24); ``AX`` below is ``src/axolotl``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.axolotl.changes import FUSED_BY_DEFAULT
from oomlint.dialects.deepspeed.keys import DEEPSPEED
from oomlint.dialects.kinds import (
    ANYTHING,
    BOOLEAN,
    COUNT,
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
            "parallel.fsdp.version",
            choice({1: 1, 2: 2, "1": 1, "2": 2}),
            aliases=("version",),
        ),
        Row("activation_checkpointing", "parallel.fsdp.activation_checkpointing", BOOLEAN),
        Row("offload_params", "parallel.fsdp.cpu_offload", BOOLEAN),
        Row("sync_module_states", "parallel.fsdp.sync_module_states", BOOLEAN),
        Row("cpu_ram_efficient_loading", "load.cpu_ram_efficient", BOOLEAN),
        Row("cpu_offload_pin_memory", "offload.pin_memory", BOOLEAN),
        Row("use_orig_params", "parallel.fsdp.use_orig_params", BOOLEAN),
        Row(
            "state_dict_type",
            "parallel.fsdp.state_dict",
            choice(
                {
                    "FULL_STATE_DICT": "full",
                    "SHARDED_STATE_DICT": "sharded",
                    "LOCAL_STATE_DICT": "local",
                }
            ),
        ),
        Row("final_state_dict_type", "axolotl.final_state_dict", TEXT),
        Row(
            "auto_wrap_policy",
            "parallel.fsdp.wrap",
            choice(
                {
                    "TRANSFORMER_BASED_WRAP": "transformer",
                    "SIZE_BASED_WRAP": "size",
                    "NO_WRAP": "none",
                }
            ),
        ),
        Row("transformer_layer_cls_to_wrap", "parallel.fsdp.wrap_classes", LIST),
        Row("min_num_params", "parallel.fsdp.min_params", COUNT),
        Row("reshard_after_forward", "parallel.fsdp.reshard_after_forward", BOOLEAN),
        Row(
            "sharding_strategy",
            "parallel.fsdp.strategy",
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
        {"mixed_precision_policy", "limit_all_gathers", "backward_prefetch", "forward_prefetch"}
    ),
    strip_prefix="fsdp_",
    section="fsdp",
)

# AX/utils/schemas/peft.py: Triton kernels for the parts of a block that carry an adapter.
LORA_KERNELS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel")

_ROWS = (
    Row("base_model", "model.id", TEXT, source="AX/utils/schemas/model.py:17"),
    Row("load_in_8bit", "axolotl.load_in_8bit", BOOLEAN, default=False, source="AX/utils/schemas/peft.py:31"),
    Row("load_in_4bit", "axolotl.load_in_4bit", BOOLEAN, default=False, source="AX/utils/schemas/peft.py:37"),
    Row(
        "adapter",
        "trainable.method",
        choice({"lora": "lora", "qlora": "qlora", "llama-adapter": "adapter"}),
        default="full",
        source="AX/utils/schemas/peft.py:41: no adapter is full fine-tuning",
    ),
    Row("lora_r", "trainable.r", POSITIVE),
    Row("lora_alpha", "trainable.alpha", NUMBER),
    Row("lora_dropout", "trainable.dropout", NUMBER, default=0.0, source="AX/utils/schemas/peft.py:80"),
    Row("lora_target_modules", "axolotl.target_modules", LIST),
    Row("lora_target_linear", "axolotl.target_linear", BOOLEAN),
    Row("lora_modules_to_save", "trainable.modules_to_save", LIST),
    Row("lora_target_parameters", "trainable.target_params", LIST),
    Row("peft_use_dora", "axolotl.dora", BOOLEAN),
    Row("peft_autocast_adapter_dtype", "peft.autocast_adapters", BOOLEAN),
    Row("quantize_moe_experts", "quant.quantises_moe_experts", BOOLEAN, default=False),
    Row("gptq", "axolotl.gptq", BOOLEAN),
    Row("plugins", "axolotl.plugins", LIST),
    Row("liger_fused_linear_cross_entropy", "axolotl.liger_flce", BOOLEAN),
    Row("liger_rms_norm", "loss.liger.rms", BOOLEAN),
    Row("liger_glu_activation", "loss.liger.swiglu", BOOLEAN, aliases=("liger_swiglu",)),
    Row("liger_rope", "loss.liger.rope", BOOLEAN),
    *(Row(key, f"axolotl.{key}", BOOLEAN) for key in LORA_KERNELS),
    Row("trust_remote_code", "axolotl.remote_code", BOOLEAN),
    Row("cut_cross_entropy", "loss.cut_ce", BOOLEAN),
    Row("chunked_cross_entropy", "axolotl.chunked_ce", BOOLEAN),
    Row("chunked_cross_entropy_num_chunks", "loss.chunks", POSITIVE),
    Row("sequence_len", "seq.max_len", POSITIVE, default=512, source="AX/utils/schemas/config.py:665"),
    Row("sample_packing", "seq.packing", switch(on="multipack", off="none"), default="none", source="AX/utils/schemas/config.py:688"),
    Row("pad_to_sequence_len", "axolotl.pad_to_max", BOOLEAN),
    Row("batch_flattening", "axolotl.batch_flattening", choice({True: True, False: False, "auto": True})),
    Row("micro_batch_size", "batch.micro", POSITIVE, default=1, source="AX/utils/schemas/training.py:77"),
    Row("gradient_accumulation_steps", "batch.grad_accum", POSITIVE, default=1, source="AX/utils/schemas/training.py:71"),
    Row("batch_size", "axolotl.batch_size", POSITIVE),
    Row("eval_batch_size", "batch.eval_micro", POSITIVE),
    Row("auto_find_batch_size", "batch.auto_micro", BOOLEAN),
    Row(
        "optimizer",
        "optimizer.name",
        TEXT,
        default="adamw_torch_fused",
        source="AX/utils/schemas/training.py:122",
        changes=(FUSED_BY_DEFAULT,),
    ),
    Row("bf16", "axolotl.bf16", choice({True: "amp", False: "no", "full": "full", "true": "amp", "false": "no"}).or_auto()),
    Row("fp16", "axolotl.fp16", BOOLEAN),
    Row("bfloat16", "axolotl.bfloat16", BOOLEAN),
    Row("float16", "axolotl.float16", BOOLEAN),
    Row("gradient_checkpointing", "axolotl.gc", _CHECKPOINTING, default="none", source="AX/utils/schemas/config.py:600"),
    Row("gradient_checkpointing_kwargs.use_reentrant", "checkpointing.reentrant", BOOLEAN),
    Row(
        "activation_offloading",
        "axolotl.activation_offload",
        choice({True: "cpu", False: "none", "legacy": "cpu", "disk": "disk", "hidden_states": "cpu"}),
    ),
    Row("attn_implementation", "model.attn_impl", ATTENTION),
    Row("flash_attention", "axolotl.attn.flash2", BOOLEAN),
    Row("sdp_attention", "axolotl.attn.sdpa", BOOLEAN),
    Row("xformers_attention", "axolotl.attn.xformers", BOOLEAN),
    Row("flex_attention", "axolotl.attn.flex", BOOLEAN),
    Row("sage_attention", "axolotl.attn.sage", BOOLEAN),
    Row("eager_attention", "axolotl.attn.eager", BOOLEAN),
    Row("val_set_size", "axolotl.val_set_size", NUMBER, default=0.0),
    Row("test_datasets", "axolotl.test_datasets", ANYTHING),
    Row("eval_steps", "eval.every", NUMBER),
    Row("evals_per_epoch", "axolotl.evals_per_epoch", NUMBER),
    Row("eval_strategy", "axolotl.eval_strategy", choice({"no": "no", False: "no", "steps": "steps", "epoch": "epoch"}), aliases=("evaluation_strategy",)),
    Row("do_causal_lm_eval", "eval.generate", BOOLEAN, default=False, source="AX/utils/schemas/config.py: do_causal_lm_eval"),
    Row("eval_max_new_tokens", "eval.max_new_tokens", POSITIVE),
    Row("saves_per_epoch", "axolotl.saves_per_epoch", NUMBER),
    Row("save_steps", "save.every", NUMBER),
    Row(
        "save_strategy",
        "save.strategy",
        choice({"no": "no", False: "no", "steps": "steps", "epoch": "epoch", "best": "best"}),
    ),
    Row("save_total_limit", "save.keep", _POSITIVE_OR_DEFAULT, default=4, source="AX/core/builders/base.py:499"),
    Row("save_only_model", "save.save_only_model", BOOLEAN, default=False, source="AX/core/builders/base.py:512"),
    Row("load_best_model_at_end", "save.load_best_at_end", BOOLEAN, default=False),
    Row("output_dir", "save.dir", TEXT),
    Row("max_steps", "total_steps", _POSITIVE_OR_DEFAULT),
    Row("deepspeed", "ref.deepspeed", TEXT, table=DEEPSPEED),
    Row("fsdp", "axolotl.fsdp", LIST),
    Row("fsdp_version", "parallel.fsdp.version", choice({1: 1, 2: 2, "1": 1, "2": 2})),
    Row("fsdp_config", "axolotl.fsdp_config", ANYTHING, table=FSDP_CONFIG),
    Row("tensor_parallel_size", "parallel.tp", POSITIVE),
    Row("context_parallel_size", "parallel.cp", POSITIVE, aliases=("sequence_parallel_degree",)),
    Row("dp_replicate_size", "parallel.dp_replicate", POSITIVE),
    Row("dp_shard_size", "parallel.dp_shard", POSITIVE),
    Row("expert_parallel_size", "parallel.ep", POSITIVE),
    Row(
        "rl",
        "objective.kind",
        choice(
            {
                "dpo": "dpo", "ipo": "dpo", "kto": "kto", "simpo": "simpo", "orpo": "orpo",
                "grpo": "grpo", "gdpo": "grpo", "ebft": "grpo",
            }
        ),
        source="AX/utils/schemas/config.py:262",
    ),
    Row("reward_model", "axolotl.reward_model", BOOLEAN),
    Row("process_reward_model", "axolotl.process_reward_model", BOOLEAN),
    Row("precompute_ref_log_probs", "axolotl.precompute_ref", BOOLEAN),
    Row("dataset_processes", "data.preprocess_workers", COUNT, aliases=("dataset_num_proc",)),
    Row("dataloader_num_workers", "data.workers", COUNT),
    Row("dataloader_prefetch_factor", "data.prefetch", POSITIVE),
    Row("dataloader_pin_memory", "data.pin_memory", BOOLEAN),
    Row("dataset_keep_in_memory", "data.in_memory", BOOLEAN),
    Row("streaming", "data.streaming", BOOLEAN),
    Row("merge_method", "save.merge", choice({"legacy": "whole", "memory_efficient": "shards"}), source="AX/cli/merge_lora.py:28"),
    Row("lora_on_cpu", "axolotl.lora_on_cpu", BOOLEAN),
    Row("resume_from_checkpoint", "load.resume", RESUME),
    Row("auto_resume_from_checkpoints", "axolotl.auto_resume", BOOLEAN),
    Row("torch_empty_cache_steps", "env.empty_cache_steps", POSITIVE),
    Row("deepcompile", "compile.deepcompile", BOOLEAN),
    Row("model_quantization_config_kwargs.dequantize", "quant.dequantised_on_load", BOOLEAN, source="AX/loaders/model.py: Mxfp4Config(**kwargs)"),
    Row("trl.num_generations", "objective.rollout.n", POSITIVE),
    Row("trl.generation_batch_size", "axolotl.generation_batch", POSITIVE),
    Row("torch_compile", "compile.enabled", choice({True: True, False: False, "auto": True})),
    Row("unfrozen_parameters", "axolotl.unfrozen", ANYTHING),
    Row("use_onebitllms", "axolotl.onebit", BOOLEAN),
    Row("low_cpu_mem_usage", "load.low_cpu_mem", BOOLEAN),
)  # fmt: skip

AXOLOTL = Table(
    name="Axolotl config",
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
    # Values of these are nested settings of their own, none of which this table reads.
    known_prefixes=("gradient_checkpointing_kwargs.", "model_quantization_config_kwargs.", "trl."),
    ignores_unknown=True,
    loader="pyyaml",
    section="training",
)


ATTENTION_SWITCHES = tuple(
    f"axolotl.attn.{name}" for name in ("flash2", "sdpa", "xformers", "flex", "sage", "eager")
)
