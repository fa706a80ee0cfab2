"""The options of Megatron-LM that decide memory (training/arguments.py and what it builds upon).

Read from Megatron-LM d98e8a64 (2026-08-22), core_v0.7.0 and v2.5; older spellings are aliases.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.common.fields import ref
from oomlint.dialects.kinds import (
    BOOLEAN,
    COUNT,
    INTEGER,
    LIST,
    NUMBER,
    POSITIVE,
    TEXT,
    Kind,
    Undecided,
    choice,
)
from oomlint.dialects.megatron.fields import ARGUMENTS, mg
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f


def _written_on(value: Any) -> bool:
    if value is not True:
        raise CannotEdit("this switch is on by standing there; take it out of the command")
    return True


def _experts(raw: Any) -> int:
    numbers = {POSITIVE.read(word) for word in str(raw).split()} or {POSITIVE.read(raw)}
    if len(numbers) > 1:
        raise Undecided("layers differ in the number of their experts")
    return int(numbers.pop())


# Megatron-DeepSpeed 4efb479d (megatron/arguments.py) takes a number for each layer that has experts.
_EXPERTS = replace(POSITIVE, read=_experts)
SWITCH = Kind(BOOLEAN.read, _written_on, {"type": "boolean"})
_OFFLOADS = Kind(
    lambda raw: "cpu" if BOOLEAN.read(raw) else "none", lambda value: _written_on(value == "cpu")
)
_ASYNC = Kind(
    lambda raw: "thread" if BOOLEAN.read(raw) else "none",
    lambda value: _written_on(value == "thread"),
)
_GATED = Kind(lambda raw: "swiglu" if BOOLEAN.read(raw) else None)
_GRANULARITY = choice({"selective": "selective_op", "full": "full"})
_ATTENTION = choice(
    {"flash": "flash2", "fused": "flash2", "auto": "flash2", "unfused": "eager", "local": "eager"},
    write={"flash2": "flash"},
    otherwise=None,
)
_STATE = choice({"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"})
_NORM = choice({"LayerNorm": "ln", "RMSNorm": "rms"}, otherwise=None)
_STRATEGY = choice(
    {
        "no_shard": "no_shard",
        "optim": "optim",
        "optim_grads": "optim_grads",
        "optim_grads_params": "optim_grads_params",
    }
)

_MODEL_ROWS = (
    Row("num_layers", mg.layers, POSITIVE, aliases=("encoder_num_layers",)),
    Row("hidden_size", mg.hidden, POSITIVE),
    Row("ffn_hidden_size", mg.ffn, POSITIVE),
    Row("num_attention_heads", mg.heads, POSITIVE),
    Row("kv_channels", mg.head_dim, POSITIVE),
    Row("group_query_attention", mg.grouped, SWITCH),
    Row("num_query_groups", mg.query_groups, POSITIVE, aliases=("num_key_value_heads",)),
    Row("max_position_embeddings", mg.max_positions, POSITIVE),
    Row("position_embedding_type", mg.positions, TEXT),
    Row("use_rotary_position_embeddings", mg.rotary, SWITCH),
    Row("vocab_size", mg.vocab, POSITIVE, aliases=("padded_vocab_size",)),
    Row("make_vocab_size_divisible_by", mg.divisor, POSITIVE, 128, source=ARGUMENTS),
    Row("tokenizer_type", mg.tokenizer, TEXT),
    Row("tokenizer_model", mg.tokenizer_model, TEXT, aliases=("tokenizer_name_or_path",)),
    Row("swiglu", mg.act, _GATED),
    Row("squared_relu", mg.squared_relu, SWITCH),
    Row("normalization", mg.norm, _NORM),
    Row("disable_bias_linear", mg.no_bias, SWITCH),
    Row("add_qkv_bias", mg.qkv_bias, SWITCH),
    Row("qk_layernorm", mg.qk_norm, SWITCH),
    Row("untie_embeddings_and_output_weights", mg.untied, SWITCH),
    Row("num_experts", mg.experts, _EXPERTS),
    Row("moe_router_topk", mg.topk, POSITIVE, 2, source=ARGUMENTS),
    Row("moe_ffn_hidden_size", mg.moe_ffn, POSITIVE),
    Row("moe_shared_expert_intermediate_size", mg.shared_ffn, POSITIVE),
    Row("moe_layer_freq", mg.moe_freq, TEXT),
    Row("moe_grouped_gemm", mg.grouped_gemm, SWITCH),
    Row("multi_latent_attention", mg.mla, SWITCH),
    Row("q_lora_rank", mg.q_rank, POSITIVE),
    Row("kv_lora_rank", mg.kv_rank, POSITIVE),
    Row("qk_head_dim", mg.qk_nope, POSITIVE),
    Row("qk_pos_emb_head_dim", mg.qk_rope, POSITIVE),
    Row("v_head_dim", mg.v_dim, POSITIVE),
    Row("mtp_num_layers", f.model.mtp_layers, POSITIVE),
    Row("decoder_num_layers", mg.decoder_layers, POSITIVE),
    Row("vocab_extra_ids", mg.extra_vocab, COUNT),
    Row("hybrid_layer_pattern", mg.pattern, TEXT, aliases=("hybrid_override_pattern",)),
    Row("mamba_state_dim", mg.ssm_state, POSITIVE),
    Row("mamba_head_dim", mg.ssm_head_dim, POSITIVE),
    Row("mamba_num_groups", mg.ssm_groups, POSITIVE),
    Row("mamba_num_heads", mg.ssm_heads, POSITIVE),
    # Other architectures: nothing of theirs is a decoder's stack.
    Row("is_hybrid_model", mg.hybrid, TEXT, aliases=("hybrid_attention_ratio", "hybrid_mlp_ratio")),
    Row("language_model_type", mg.language_model, TEXT, aliases=("vision_model_type", "model_provider")),
)  # fmt: skip

_RUN_ROWS = (
    Row("micro_batch_size", f.batch.micro, POSITIVE, aliases=("batch_size",)),
    Row("global_batch_size", mg.global_batch, POSITIVE),
    Row("eval_micro_batch_size", f.batch.eval_micro, POSITIVE),
    Row("seq_length", f.seq.max_len, POSITIVE, aliases=("encoder_seq_length",)),
    Row("decoder_seq_length", mg.decoder_len, POSITIVE),
    Row("train_iters", f.total_steps, POSITIVE),
    Row("clip_grad", f.optimizer.clip_norm, NUMBER, 1.0, source=ARGUMENTS),
    Row("tensor_model_parallel_size", f.parallel.tp, POSITIVE, 1, ("model_parallel_size",), ARGUMENTS),
    Row("pipeline_model_parallel_size", f.parallel.pp, POSITIVE, 1, source=ARGUMENTS),
    Row("num_layers_per_virtual_pipeline_stage", mg.virtual_layers, POSITIVE),
    Row("num_virtual_stages_per_pipeline_rank", f.parallel.vpp, POSITIVE),
    Row("context_parallel_size", f.parallel.cp, POSITIVE, 1, source=ARGUMENTS),
    Row("expert_model_parallel_size", f.parallel.ep, POSITIVE, 1, source=ARGUMENTS),
    Row("expert_tensor_parallel_size", f.parallel.etp, POSITIVE),
    Row("sequence_parallel", f.parallel.sp, SWITCH, False, source=ARGUMENTS),
    Row("use_distributed_optimizer", f.parallel.megatron.dist_optimizer, SWITCH, False, source=ARGUMENTS),
    Row("overlap_param_gather", f.parallel.megatron.overlap_param_gather, SWITCH, False, source=ARGUMENTS),
    Row("use_torch_fsdp2", mg.torch_fsdp2, SWITCH),
    Row("use_megatron_fsdp", mg.megatron_fsdp, SWITCH, aliases=("use_custom_fsdp",)),
    Row("data_parallel_sharding_strategy", mg.strategy, _STRATEGY, "no_shard", source="Megatron-core distributed_data_parallel_config.py"),
    Row("torch_fsdp2_no_reshard_after_forward", mg.keeps_params, SWITCH),
    Row("bf16", mg.bf16, SWITCH),
    Row("fp16", mg.fp16, SWITCH),
    Row("grad_reduce_in_bf16", mg.bf16_grads, SWITCH),
    Row("accumulate_allreduce_grads_in_fp32", mg.fp32_grads, SWITCH),
    Row("fp8_format", mg.fp8, TEXT, aliases=("fp8_hybrid", "fp8_e4m3")),
    Row("use_precision_aware_optimizer", f.parallel.megatron.precision_aware_optim, SWITCH, False, source=ARGUMENTS),
    Row("main_grads_dtype", mg.main_grads, _STATE, "fp32", source=ARGUMENTS),
    Row("main_params_dtype", mg.main_params, _STATE, "fp32", source=ARGUMENTS),
    Row("exp_avg_dtype", mg.exp_avg, _STATE, "fp32", source=ARGUMENTS),
    Row("exp_avg_sq_dtype", mg.exp_avg_sq, _STATE, "fp32", source=ARGUMENTS),
    Row("optimizer", f.optimizer.name, TEXT, "adam", source=ARGUMENTS),
    Row("optimizer_cpu_offload", f.offload.optimizer, _OFFLOADS, "none", source=ARGUMENTS),
    Row("optimizer_offload_fraction", f.offload.optimizer_ratio, NUMBER, 1.0, source=ARGUMENTS),
    Row("cpu_offloading_num_layers", mg.offloaded_layers, COUNT, aliases=("fine_grained_activation_offloading",)),
    Row("recompute_activations", mg.recompute_switch, SWITCH),
    Row("recompute_granularity", f.checkpointing.mode, _GRANULARITY, aliases=("checkpoint_granularity",)),
    Row("recompute_method", mg.recompute_method, choice({"uniform": "uniform", "block": "block"}), aliases=("activations_checkpoint_method",)),
    Row("recompute_num_layers", mg.recompute_layers, POSITIVE, aliases=("activations_checkpoint_num_layers",)),
    Row("recompute_modules", f.checkpointing.recompute_modules, LIST),
    Row("checkpoint_activations", mg.old_checkpointing, SWITCH),
    Row("use_flash_attn", mg.flash, SWITCH, aliases=("use_flash_attn_v2", "use_flash_attn_triton")),
    Row("attention_backend", mg.attention, _ATTENTION),
    Row("transformer_impl", mg.implementation, TEXT),
    Row("cross_entropy_loss_fusion", mg.fused_loss, SWITCH),
    Row("cross_entropy_fusion_impl", mg.loss_fusion, TEXT),
    Row("num_workers", f.data.workers, COUNT, 2, source=ARGUMENTS),
    Row("eval_iters", mg.eval_iters, INTEGER, 100, source="Megatron-LM training/config/training_config.py"),
    Row("eval_interval", f.eval.every, POSITIVE, 1000, source=ARGUMENTS),
    Row("save", f.save.dir, TEXT),
    Row("save_interval", f.save.every, POSITIVE, aliases=("persistent_save_interval",)),
    Row("no_save_optim", f.save.save_only_model, SWITCH, False, source=ARGUMENTS),
    Row("ckpt_format", mg.format, TEXT, aliases=("dist_ckpt_format",)),
    Row("async_save", f.save.async_, _ASYNC, "none", source=ARGUMENTS),
    Row("load", mg.load, TEXT, aliases=("pretrained_checkpoint",)),
    Row("finetune", mg.finetune, SWITCH, aliases=("sft",)),
    Row("deepspeed_config", ref.deepspeed, TEXT),
    Row("zero_stage", f.parallel.zero.stage, COUNT),
    Row("cpu_optimizer", mg.cpu_optimizer, SWITCH),
)  # fmt: skip

MEGATRON = Table(
    name="Megatron-LM options",
    rows=(*_MODEL_ROWS, *_RUN_ROWS),
    known=known_keys("megatron"),
    # Forks and scripts of their own add options (extra_args_provider).
    ignores_unknown=None,
    loader="yaml12",
    section="training",
)


def switches(rows: Iterable[Row]) -> frozenset[str]:
    """Options without a value: what follows one in a command is another word."""
    kinds = (SWITCH, _OFFLOADS, _ASYNC, _GATED)
    return frozenset(n for row in rows if row.kind in kinds for n in (row.key, *row.aliases))


SWITCHES = switches(MEGATRON.rows)
