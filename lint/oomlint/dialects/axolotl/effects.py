"""What Axolotl makes of its keys.

Read from axolotl 067b021c (2026-07-24); ``AX`` below is ``src/axolotl``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.axolotl.changes import (
    KERNELS_BY_DEFAULT,
    KERNELS_WITH_DROPOUT,
    LOADS_WITH_WORKERS,
    OWN_FSDP2,
    STACKS_EXPERTS,
)
from oomlint.dialects.axolotl.keys import ATTENTION_SWITCHES, FSDP_CONFIG, LORA_KERNELS
from oomlint.dialects.draft import Draft
from oomlint.dialects.kinds import OPTIMIZER_KINDS
from oomlint.dialects.law import (
    finish_fsdp,
    finish_quant,
    finish_trainer_precision,
    is_adapter_run,
    quantizes_experts,
)
from oomlint.expressions import expression

# AX/enums.py:86-100 and transformers' names.
_FOREACH = frozenset({"adamw_torch", "adamw_hf"})
# AX/utils/freeze.py LayerNamePattern: rows of a parameter in brackets behind its pattern, of which
# gradients are made whole, and dots that stand for themselves.
_ROWS = expression(r"\[\d*(?::\d*)?\]$")
_DOT = expression(r"\.(?!\+)")


def finish_sharding(draft: Draft) -> None:
    listed = draft.get("axolotl.fsdp") or ()
    has_config = any(block.table is FSDP_CONFIG for block in draft.blocks)
    dp_shard = draft.get("parallel.dp_shard")
    if (draft.get("parallel.ep") or 1) > 1:
        # AX/integrations/expert_parallel/plugin.py:275-320: ep x dp_shard x cp is the world.
        draft.derive("parallel.expert_shard", dp_shard or 1, "parallel.dp_shard", "parallel.ep")
    shards = (dp_shard or 1) > 1
    if not (listed or has_config or shards):
        return
    draft.derive("fsdp.enabled", True, "axolotl.fsdp", "axolotl.fsdp_config")
    # transformers 5.23 training_args.py _process_fsdp_args: words of the list.
    for word, strategy in (("shard_grad_op", "grad_op"), ("no_shard", "no_shard"),
                           ("hybrid_shard", "hybrid"), ("hybrid_shard_zero2", "hybrid_grad_op")):  # fmt: skip
        if word in listed:
            draft.derive("parallel.fsdp.strategy", strategy, "axolotl.fsdp")
    if "auto_wrap" in listed or draft.get("parallel.fsdp.wrap_classes"):
        draft.derive("parallel.fsdp.wrap", "transformer", "axolotl.fsdp")
    if "offload" in listed:
        draft.derive("parallel.fsdp.cpu_offload", True, "axolotl.fsdp")
    finish_fsdp(draft)


def finish_objective(draft: Draft) -> None:
    if draft.get("axolotl.reward_model"):
        draft.derive("objective.kind", "rm", "axolotl.reward_model")
    if draft.get("axolotl.process_reward_model"):
        # TRL's PRMTrainer labels the steps of one answer: a classifier of tokens, and no pairs.
        draft.derive("objective.kind", "rm", "axolotl.process_reward_model")
        draft.derive("objective.pairs_per_sample", 1, "axolotl.process_reward_model")
    draft.default("objective.kind", "sft", "no rl key: supervised fine-tuning")
    kind = draft.get("objective.kind")
    paired = ("dpo", "orpo", "simpo", "rm")
    if kind in paired and not draft.get("axolotl.process_reward_model"):
        draft.derive("objective.pairs_per_sample", 2, "objective.kind")
    if kind in ("dpo", "kto"):
        reference = "copy"
        if draft.get("axolotl.precompute_ref"):
            reference = "precomputed"
        elif is_adapter_run(draft):
            reference = "shared_adapter_off"
        draft.derive("objective.ref_model", reference, "objective.kind", "trainable.method")
    else:
        draft.derive("objective.ref_model", "none", "objective.kind")


def finish_generation(draft: Draft) -> None:
    """AX/utils/schemas/validation.py:789 check_grpo_batch_size_divisibility, which counts one
    rank: what holds for it holds for all."""
    if draft.get("objective.kind") != "grpo":
        return
    draft.derive("batch.micro_unit", "completions", "objective.kind", source="TRL 0.15 GRPOTrainer")
    micro, steps = draft.get("batch.micro"), draft.get("batch.grad_accum")
    said = draft.get("axolotl.generation_batch")
    if said is None and micro and steps:
        said = micro * steps
    draft.derive(
        "objective.rollout.generation_batch", said,
        "axolotl.generation_batch", "batch.grad_accum", "batch.micro",
    )  # fmt: skip


def finish_trainable(draft: Draft) -> None:
    bits = (
        4 if draft.get("axolotl.load_in_4bit") else 8 if draft.get("axolotl.load_in_8bit") else None
    )
    draft.derive("quant.requested_bits", bits, "axolotl.load_in_4bit", "axolotl.load_in_8bit")
    finish_quant(draft, bits=bits, method="gptq" if draft.get("axolotl.gptq") else None)
    if draft.get("model.native_quant") == "nvfp4" and bits is None:
        # AX/integrations/kernels trains adapters on NVFP4 experts as they are stored.
        draft.derive("quant.method", "nvfp4", "model.native_quant")
        draft.override("quant.quantises_moe_experts", True, "model.native_quant")
    if draft.get("quant.method") == "bnb4":
        # AX/loaders/model.py:712-735: nf4, double quantization, storage in the compute dtype.
        draft.derive("quant.double", True, "axolotl.load_in_4bit")
        draft.derive("quant.storage_dtype", "bf16", "axolotl.load_in_4bit")
    if not is_adapter_run(draft):
        if draft.get("axolotl.unfrozen"):
            draft.override("trainable.method", "freeze", "axolotl.unfrozen")
            names = _patterns(draft.get("axolotl.unfrozen"))
            draft.derive("trainable.names", names, "axolotl.unfrozen")
            # AX/loaders/model.py freezes by the names of parameters, within blocks too.
            draft.derive("parallel.fsdp.isolates_trainable", False, "axolotl.unfrozen")
        return
    if draft.get("axolotl.dora") and draft.get("trainable.method") == "lora":
        draft.override("trainable.method", "dora", "axolotl.dora", "trainable.method")
    modules = draft.get("axolotl.target_modules")
    if draft.get("axolotl.target_linear"):
        draft.derive("trainable.targets", "all_linear", "axolotl.target_linear")
    elif modules:
        targets = "all_linear" if modules == ("all-linear",) else modules
        draft.derive("trainable.targets", targets, "axolotl.target_modules")
    else:
        draft.derive("trainable.targets", "peft_default", "trainable.method")


def _patterns(said: Any) -> tuple[str, ...] | None:
    """The patterns of ``unfrozen_parameters`` as Python's ``re`` takes them."""
    listed = [said] if isinstance(said, str) else said
    if not isinstance(listed, list | tuple) or not all(isinstance(x, str) for x in listed):
        return None
    return tuple(_DOT.sub(r"\\.", _ROWS.sub("", pattern)) for pattern in listed)


def finish_precision(draft: Draft) -> None:
    """AX/utils/config resolve_dtype and AX/loaders/model.py:611: the model is *loaded* in
    the training dtype, so full fine-tuning without sharding is pure 16 bit."""
    fp16 = bool(draft.get("axolotl.fp16"))
    # AX/utils/schemas/config.py:559: "auto", and a key that is absent, are true on a GPU that
    # has bfloat16, unless fp16 is asked for.
    draft.default("axolotl.bf16", "no" if fp16 else "amp", "AX/utils/schemas/config.py:559: auto")
    bf16 = draft.get("axolotl.bf16")
    pure = bool(draft.get("axolotl.bfloat16"))
    # AX/core/builders/base.py _configure_precision_settings: "full" trains without autocast.
    if bf16 == "amp" or (pure and bf16 != "full"):
        amp = "bf16"
    else:
        amp = "fp16" if fp16 and bf16 == "no" else "no"
    if bf16 != "no" or pure:
        load = "bf16"
    elif fp16 or draft.get("axolotl.float16") or draft.get("axolotl.load_in_8bit"):
        load = "fp16"
    else:
        load = "fp32"
    draft.derive("amp", amp, "axolotl.bf16", "axolotl.bfloat16", "axolotl.fp16")
    draft.derive("load.dtype", load, "axolotl.bf16", "axolotl.bfloat16", "axolotl.fp16")
    # AX/monkeypatch/accelerate/fsdp2.py shards what was loaded as it is.
    keeps = draft.get("parallel.backend") == "fsdp2" and draft.has(OWN_FSDP2)
    finish_trainer_precision(draft, amp=amp, load_dtype=load, fsdp_keeps=keeps)
    if quantizes_experts(draft):
        draft.has(STACKS_EXPERTS)


def finish_activations(draft: Draft) -> None:
    mode = draft.get("axolotl.gc")
    offload = draft.get("axolotl.activation_offload")
    if mode == "offload":
        mode, offload = "full", "cpu"
    elif mode == "disk":
        mode, offload = "full", "disk"
    if draft.get("parallel.fsdp.activation_checkpointing"):
        mode = "full"
        draft.derive("checkpointing.source", "fsdp", "parallel.fsdp.activation_checkpointing")
    if "axolotl.gc" not in draft.unknown:
        draft.derive("checkpointing.mode", mode, "axolotl.gc")
    draft.derive(
        "checkpointing.offload", offload or "none", "axolotl.activation_offload", "axolotl.gc"
    )
    draft.derive(
        "offload.activations", offload or "none", "axolotl.activation_offload", "axolotl.gc"
    )
    draft.default("checkpointing.reentrant", False, "AX/core/builders/base.py:599")
    for switch_field in ATTENTION_SWITCHES:
        if draft.get(switch_field):
            name = switch_field.rpartition(".")[2]
            draft.derive("model.attn_impl", name, switch_field)
    draft.default("model.attn_impl", "sdpa", "transformers 5.23 takes sdpa where the model has it")
    packed = draft.get("seq.packing") != "none"
    padded = draft.get("axolotl.pad_to_max")
    if padded is None:
        padded = packed
    draft.derive("seq.pad", "max_len" if padded else "longest", "axolotl.pad_to_max", "seq.packing")


def finish_loss(draft: Draft) -> None:
    """The keys of a plug-in count only where ``plugins`` lists it (AX/utils/config merges its
    arguments into the schema then); Cut Cross Entropy is on by being listed
    (AX/integrations/cut_cross_entropy/args.py:33)."""
    plugins = draft.get("axolotl.plugins") or ()
    if not any("integrations.liger" in plugin for plugin in plugins):
        for name in (
            "axolotl.liger_flce",
            "loss.liger.rms",
            "loss.liger.swiglu",
            "loss.liger.rope",
        ):
            if draft.get(name):
                draft.override(name, False, "axolotl.plugins")
    if any("cut_cross_entropy" in plugin for plugin in plugins):
        draft.derive("loss.cut_ce", True, "axolotl.plugins")
    elif draft.get("loss.cut_ce"):
        draft.override("loss.cut_ce", False, "axolotl.plugins")
    if draft.get("axolotl.liger_flce") or draft.get("loss.cut_ce"):
        kind = "fused"
    elif draft.get("axolotl.chunked_ce"):
        kind = "chunked"
    else:
        kind = "full"
    draft.derive(
        "loss.logits_materialised", kind, "axolotl.liger_flce", "loss.cut_ce", "axolotl.chunked_ce"
    )
    draft.derive("loss.liger.flce", bool(draft.get("axolotl.liger_flce")), "axolotl.liger_flce")
    draft.default("loss.upcast_fp32", True, "transformers 5.23 loss/loss_utils.py:61")


def finish_lora_kernels(draft: Draft) -> None:
    """Adapted layers in functions that keep little (AX/kernels/lora.py). Without a word about
    kernels they run where they can (AX/utils/schemas/config.py:1901-1994)."""
    if not is_adapter_run(draft):
        return
    fields = [f"axolotl.{key}" for key in LORA_KERNELS]
    stated = [draft.get(field) for field in fields]
    can = (
        draft.get("objective.kind") in ("sft", "pretrain")
        and draft.get("quant.method") != "bnb8"
        and draft.get("parallel.backend") != "fsdp1"
        and not draft.get("axolotl.remote_code")
    )
    is_silent = set(stated) == {None}
    if is_silent and not (can and draft.has(KERNELS_BY_DEFAULT)):
        return
    parts = tuple(
        part for part, said in zip(("mlp", "qkv", "o"), stated, strict=False) if said or is_silent
    )
    if draft.get("trainable.dropout") and not draft.has(KERNELS_WITH_DROPOUT):
        return
    if parts:
        draft.derive("trainable.fused", parts, "trainable.method", "trainable.dropout", *fields)


def finish_optimizer(draft: Draft) -> None:
    name = draft.get("optimizer.name")
    if name is None:
        return
    kind = OPTIMIZER_KINDS.get(str(name), "lion" if name == "lion_pytorch" else "other")
    draft.derive("optimizer.kind", kind, "optimizer.name")
    draft.derive("optimizer.fused", str(name).endswith("_fused"), "optimizer.name")
    draft.derive("optimizer.foreach", name in _FOREACH, "optimizer.name")


def finish_loader(draft: Draft) -> None:
    """AX/utils/schemas/config.py:2132 default_dataloader_opts, with AX/cli/config.py:369: where no
    key says how, every rank starts as many workers as there are ranks."""
    if any(map(draft.says, ("data.workers", "data.pin_memory", "data.prefetch"))):
        draft.default("data.workers", 0, "transformers 5.23 training_args.py:1320")
        return
    if not draft.has(LOADS_WITH_WORKERS):
        draft.default("data.workers", 0, LOADS_WITH_WORKERS.source)
        return
    draft.derive("data.workers", draft.get("parallel.world"), "parallel.world")
    draft.derive("data.prefetch", 256, source="AX/utils/schemas/config.py:2140")
    draft.derive("data.pin_memory", True, source="AX/utils/schemas/config.py:2139")


def finish_eval_and_save(draft: Draft) -> None:
    # AX/core/builders/base.py _configure_save_and_eval_strategy: steps where eval_steps or
    # evals_per_epoch say so, else eval_strategy, else transformers' own default, which is no.
    held_out = bool(draft.get("axolotl.val_set_size")) or bool(draft.get("axolotl.test_datasets"))
    strategy = "no"
    if held_out and (draft.get("eval.every") or draft.get("axolotl.evals_per_epoch")):
        strategy = "steps"
    elif held_out:
        strategy = draft.get("axolotl.eval_strategy") or "no"
    inputs = (
        "axolotl.val_set_size", "axolotl.test_datasets", "axolotl.eval_strategy", "eval.every",
        "axolotl.evals_per_epoch",
    )  # fmt: skip
    draft.derive("eval.enabled", strategy != "no", *inputs)
    draft.derive("eval.strategy", strategy, *inputs)
    draft.derive("eval.on_start", strategy != "no", *inputs)
    micro = draft.get("batch.micro")
    draft.derive(
        "batch.eval_micro", micro, "batch.micro", source="AX/utils/config normalize_config"
    )
    if draft.says("save.every") or draft.get("axolotl.saves_per_epoch"):
        draft.default("save.strategy", "steps", "AX/core/builders/base.py:499")
    draft.default("save.strategy", "epoch", "AX/core/builders/base.py:499")
    contents: tuple[str, ...] = ("adapter",) if is_adapter_run(draft) else ("model",)
    if not draft.get("save.save_only_model"):
        contents = (*contents, "optimizer", "scheduler", "rng")
    draft.derive("save.contents", contents, "save.save_only_model", "trainable.method")
    if draft.get("parallel.zero.stage") == 3 or draft.get("parallel.fsdp.state_dict") == "full":
        gather = draft.get("parallel.zero.gather16_on_save")
        draft.derive(
            "save.full_gather", gather if gather is not None else True,
            "parallel.zero.gather16_on_save", "parallel.fsdp.state_dict",
        )  # fmt: skip
    if draft.get("parallel.zero.stage") == 3:
        draft.derive("load.zero3_init", True, "parallel.zero.stage")
