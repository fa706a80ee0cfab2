"""What LLM Foundry and Composer make of their keys.

Read from llm-foundry 0.22.0.dev0 (8c8dd48f) and Composer 640518880 (2026-04-29); ``LF`` below
is the package ``llmfoundry``, ``CO`` the package ``composer``.
"""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.draft import Draft
from oomlint.dialects.law import finish_batch, finish_world, is_adapter_run
from oomlint.dialects.llm_foundry.keys import FSDP_CONFIG, SOURCE, TRAIN_CONFIG
from oomlint.dialects.machine.ranks import finish_launch, settle
from oomlint.plan.model import ModelDims, Moe


def finish_ranks(draft: Draft) -> None:
    """``composer`` starts a process for each visible GPU unless told how many
    (CO/cli/launcher.py:46)."""
    total, per_node = draft.get("foundry.world_size"), draft.get("parallel.gpus_per_node")
    if total and per_node:
        nodes = max(1, total // per_node)
        draft.derive("parallel.nodes", nodes, "foundry.world_size", "parallel.gpus_per_node")
    gpus, nodes = draft.get("launch.total_processes"), draft.get("parallel.nodes")
    if gpus and not nodes:
        # Nodes of MosaicML's clusters have eight GPUs.
        settle(draft, "parallel.nodes", max(1, -(-gpus // 8)), "MosaicML: eight GPUs a node")
    finish_launch(draft, one_process=False)
    finish_world(draft)


def has_fsdp(draft: Draft) -> bool:
    return draft.get("foundry.fsdp") is True


def finish_backend(draft: Draft) -> None:
    """One rank gets no FSDP, whatever the file says (LF/command_utils/train.py, "Reverting
    to DDP")."""
    world = draft.get("parallel.world")
    inputs = ("foundry.fsdp", "parallel.world")
    if not has_fsdp(draft) or world == 1:
        if world is not None:
            draft.derive("parallel.backend", "ddp" if world > 1 else "none", *inputs)
        return
    fsdp = "parallel.fsdp."
    draft.derive("parallel.backend", "fsdp1", *inputs)
    draft.default(fsdp + "version", 1, FSDP_CONFIG)
    draft.default(fsdp + "strategy", "full", FSDP_CONFIG)
    reshards = draft.get(fsdp + "strategy") in ("full", "hybrid")
    draft.derive(fsdp + "reshard_after_forward", reshards, fsdp + "strategy")
    draft.default(fsdp + "backward_prefetch", "post", FSDP_CONFIG)
    draft.default(fsdp + "forward_prefetch", False, FSDP_CONFIG)
    draft.default(fsdp + "limit_all_gathers", True, FSDP_CONFIG)
    draft.default(fsdp + "use_orig_params", True, FSDP_CONFIG)
    draft.default(fsdp + "state_dict", "full", FSDP_CONFIG)
    draft.derive(fsdp + "wrap", "transformer", source=f"{SOURCE} models/hf/hf_fsdp.py")
    draft.derive(fsdp + "cpu_offload", False, source="Composer refuses FSDP CPU offload")
    # Only DDP skips the reduction of all but the last micro batch (dist_strategy.py:84).
    draft.derive(fsdp + "sync_every_micro", True, "foundry.fsdp")
    mixed = draft.get("foundry.init_device") == "mixed"
    if mixed:
        draft.override(fsdp + "sync_module_states", True, "foundry.init_device")
    shard = draft.get("foundry.dp_shard")
    if isinstance(shard, int) and shard > 0:
        draft.derive("parallel.dp_shard", shard, "foundry.dp_shard")


def finish_model(draft: Draft) -> None:
    if draft.get("foundry.model") == "mpt_causal_lm":
        dims = _mpt_dims(draft)
        if dims is not None:
            source = "the dimensions in the file; LF/models/mpt/configuration_mpt.py"
            draft.fact("model.dims", dims, source, "foundry.arg.d_model", "foundry.arg.n_layers")
            draft.fact("model.arch", dims.arch, source)
        draft.derive("model.from_scratch", True, "foundry.model")
        attention = draft.get("foundry.mpt_attention") or "flash2"
        draft.derive("model.attn_impl", attention, "foundry.mpt_attention")
    else:
        draft.derive(
            "model.from_scratch", not draft.get("foundry.pretrained"), "foundry.pretrained"
        )
        attention = "flash2" if draft.get("foundry.flash2") else draft.get("foundry.attention")
        # MPT's own code on the hub, trusted by default (LF/models/hf/hf_causal_lm.py:77), has the
        # key of the MPT of this framework.
        attention = attention or draft.get("foundry.mpt_attention")
        draft.derive(
            "model.attn_impl", attention or "eager", "foundry.flash2", "foundry.attention",
            "foundry.mpt_attention",
            source=f"{SOURCE} models/hf/hf_base.py: eager where neither key says otherwise",
        )  # fmt: skip
    loader = draft.get("foundry.loader")
    draft.derive(
        "objective.kind", "sft" if loader == "finetuning" else "pretrain", "foundry.loader"
    )
    draft.derive("objective.ref_model", "none", "foundry.loader")
    draft.derive("compile.enabled", draft.get("foundry.compile") is not None, "foundry.compile")


def _mpt_dims(draft: Draft) -> ModelDims | None:
    """LF/models/mpt/configuration_mpt.py: the defaults are those of MPTConfig.

    ``arch`` is the known architecture with the same layers: GPT-2 has MPT's biases and learned
    positions, Hugging Face's MPT neither, Llama a gated MLP.
    """

    def arg(name: str, otherwise: Any = None) -> Any:
        return draft.get(f"foundry.arg.{name}", otherwise)

    fields = ("d_model", "n_heads", "n_layers", "vocab_size", "expansion_ratio", "ffn")
    if any(draft.is_unknown(f"foundry.arg.{name}") for name in fields):
        return None
    hidden, heads = arg("d_model", 2048), arg("n_heads", 16)
    ffn_type = str(arg("ffn_type", "mptmlp"))
    kinds = ("glu" in ffn_type, arg("mlp_type") == "glu", "moe" in ffn_type)
    gated, experts = kinds[0] or (kinds[1] and kinds[2]), kinds[2]
    ffn = arg("ffn") or int(hidden * arg("expansion_ratio", 4.0))
    kv_heads = arg("kv_n_heads") or (1 if arg("attn_type") == "multiquery_attention" else heads)
    biased = not arg("no_bias", False)
    learned = not (arg("alibi") or arg("rope"))
    if gated:
        arch = "llama"
    elif not biased or experts:
        arch = "mpt"
    else:
        arch = "gpt2" if learned and kv_heads == heads else "starcoder2"
    act = ("swiglu" if arg("act") == "silu" else "geglu") if gated else "gelu"
    moe = None
    if experts:
        # LF/models/layers/ffn.py: megablocks' own defaults are one expert, top 1.
        moe = Moe(experts=arg("experts", 1), topk=arg("topk", 1), moe_ffn=ffn)
    return ModelDims(
        arch=arch,
        layers=arg("n_layers", 24),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=arg("head_dim") or hidden // heads,
        ffn=ffn,
        vocab=arg("vocab_size", 50_368),
        tie_embeddings=arg("tie", True),
        attn_bias=biased,
        mlp_bias=biased,
        norm="rms" if "rms" in str(arg("norm_type", "")) else "ln",
        act=act,  # type: ignore[arg-type]
        ctx=draft.get("seq.max_len") or 2048,
        moe=moe,
    )


def finish_load(draft: Draft) -> None:
    """Weights are loaded as float32 (LF/models/consts.py), by every rank unless ``mixed``."""
    device = draft.get("foundry.init_device")
    draft.derive("load.dtype", "fp32", source=f"{SOURCE} models/consts.py")
    draft.derive("load.cpu_ram_efficient", device == "mixed", "foundry.init_device")
    on_meta = device == "meta" and has_fsdp(draft)
    draft.derive("load.meta_init", on_meta, "foundry.init_device", "foundry.fsdp")


def finish_trainable(draft: Draft) -> None:
    draft.derive("quant.method", "none", source=f"{SOURCE} train.py refuses load_in_8bit")
    inputs = ("foundry.peft", "trainable.r")
    if not any(draft.says(name) or draft.is_unknown(name) for name in inputs):
        draft.derive("trainable.method", "full", *inputs)
        return
    method = "lora" if str(draft.get("foundry.peft") or "LORA").upper() == "LORA" else "other"
    if draft.get("foundry.dora"):
        method = "dora"
    draft.derive("trainable.method", method, *inputs)
    draft.default("trainable.r", 8, "peft LoraConfig")
    draft.default("trainable.alpha", 8.0, "peft LoraConfig")
    draft.default("trainable.dropout", 0.0, "peft LoraConfig")
    targets = draft.get("foundry.targets")
    if targets == ("all-linear",):
        targets = "all_linear"
    draft.derive("trainable.targets", targets or "peft_default", "foundry.targets")


# LF/optim/__init__.py; the 8-bit one and Composer's plain ones are of earlier releases.
_OPTIMIZERS = {
    "decoupled_adamw": "adamw",
    "adamw": "adamw",
    "adam": "adamw",
    "decoupled_lionw": "lion",
    "adalr_lion": "lion",
    "clip_lion": "lion",
    "decoupled_lionw_8b": "lion8bit",
    "decoupled_sgdw": "sgd",
    "sgd": "sgd",
    "no_op": "sgd",
}


def finish_optimizer(draft: Draft) -> None:
    name = draft.get("optimizer.name")
    if name is not None:
        draft.derive("optimizer.kind", _OPTIMIZERS.get(str(name), "other"), "optimizer.name")
    # CO/optim/decoupled_weight_decay.py loops over tensors one by one.
    draft.derive("optimizer.fused", False, "optimizer.name")
    draft.derive("optimizer.foreach", False, "optimizer.name")


def finish_precision(draft: Draft) -> None:
    """Weights, gradients and states stay as loaded; autocast and FSDP's policy compute in
    16 bit (CO/core/precision.py, CO/distributed/mosaic_parallelism.py:59)."""
    asked = str(draft.get("foundry.precision"))
    stored = draft.get("foundry.weights") or "fp32"
    half = {"amp_bf16": "bf16", "amp_fp16": "fp16", "amp_fp8": "bf16"}.get(asked)
    inputs = ("foundry.precision", "foundry.weights")
    source = "Composer 640518880 core/precision.py: autocast around weights as loaded"
    for leaf in ("param", "grad", "optim_state"):
        draft.derive(f"precision.{leaf}", stored, *inputs, source=source)
    draft.derive("precision.master", "none", *inputs, source=source)
    draft.derive("precision.compute", half or "fp32", *inputs, source=source)
    draft.derive("precision.autocast", half is not None, *inputs, source=source)
    draft.derive("precision.logits", half or "fp32", *inputs, source=source)
    if asked == "amp_fp8":
        draft.derive("precision.fp8_train", "te", "foundry.precision")
    if draft.get("parallel.backend") == "fsdp1":
        pure = draft.get("foundry.policy") == "PURE"
        reduced = half if pure and half else "fp32"
        draft.derive("precision.comm", reduced, "foundry.policy", "foundry.precision")
    if is_adapter_run(draft):
        draft.derive("trainable.adapter_dtype", stored, *inputs, source=source)


def finish_activations(draft: Draft) -> None:
    """The switches are FSDP's own and go with it."""
    sharded = draft.get("parallel.backend") not in ("none", "ddp") and has_fsdp(draft)
    for field, key, on, off in (
        ("checkpointing.mode", "foundry.checkpointing", "full", "none"),
        ("checkpointing.offload", "foundry.offload", "cpu", "none"),
        ("offload.activations", "foundry.offload", "cpu", "none"),
    ):
        if not (sharded and draft.is_unknown(key)):
            value = on if sharded and draft.get(key) else off
            draft.derive(field, value, key, "parallel.backend", "foundry.fsdp")
    reentrant = draft.get("foundry.reentrant")
    draft.derive(
        "checkpointing.reentrant", True if reentrant is None else reentrant, "foundry.reentrant",
        source=FSDP_CONFIG,
    )  # fmt: skip
    draft.derive("checkpointing.source", "fsdp", "foundry.checkpointing")
    for name in ("offload.params", "offload.optimizer"):
        draft.derive(name, "none", source="Composer refuses FSDP CPU offload")


def finish_sequences(draft: Draft) -> None:
    if draft.get("foundry.loader") == "finetuning":
        packs = draft.get("foundry.packing_ratio") is not None
        draft.derive("seq.packing", "bfd" if packs else "none", "foundry.packing_ratio")
        trims = draft.get("foundry.trims") and not packs
        draft.derive("seq.pad", "longest" if trims else "max_len", "foundry.trims")
    else:
        draft.derive(
            "seq.packing", "concat", "foundry.loader", source=f"{SOURCE} data/text_data.py"
        )
        draft.derive("seq.pad", "none", "foundry.loader")
        draft.derive("data.streaming", True, "foundry.loader")


def finish_loss(draft: Draft) -> None:
    draft.derive("loss.logits_materialised", "full", "foundry.model")
    # flash-attn's kernel reads 16-bit logits; torch's cross entropy is autocast to float32.
    fused = draft.get("foundry.model") == "mpt_causal_lm" and draft.get("foundry.loss") in (
        None, "fused_crossentropy",
    )  # fmt: skip
    draft.derive("loss.upcast_fp32", not fused, "foundry.loss", "foundry.model")
    # Outputs stay in Composer's state for the training metrics.
    draft.derive("loss.outputs_kept", True, source="Composer trainer.py: state.outputs")


def finish_global_batch(draft: Draft) -> None:
    """LF/utils/config_utils.py calculate_batch_size_info."""
    total, world = draft.get("foundry.global"), draft.get("parallel.world")
    auto = "batch.micro" in draft.auto or (
        draft.get("batch.micro") is None and not draft.is_unknown("batch.micro")
    )
    if auto:
        draft.derive("batch.auto_micro", True, "batch.micro", source=TRAIN_CONFIG)
        draft.derive(
            "batch.micro", 1, "batch.auto_micro",
            source="Composer halves the micro batch until it fits; only 1 can fail",
        )  # fmt: skip
    micro = draft.get("batch.micro")
    if total and world and micro:
        per_device = max(1, total // world)
        if micro > per_device:
            # "device_microbatch_size > device_batch_size … will be reduced".
            draft.override("batch.micro", per_device, "foundry.global", "parallel.world")
            micro = per_device
        inputs = ("foundry.global", "batch.micro", "parallel.world")
        draft.derive("batch.grad_accum", -(-per_device // micro), *inputs)
    finish_batch(draft)
    draft.derive("batch.eval_micro", micro, "batch.micro", source=f"{SOURCE} config_utils.py")


_TIME = re.compile(r"(\d+)\s*(ba|ep|iter|sp|tok|dur|sec)?")


def _period(text: Any) -> tuple[int | None, str]:
    """Count and unit of ``500ba``; a bare number counts epochs (CO/core/time.py)."""
    match = _TIME.match(str(text).strip().replace("_", ""))
    return (int(match[1]), match[2] or "ep") if match else (None, "ep")


def finish_eval(draft: Draft) -> None:
    enabled = draft.get("foundry.eval_loader") or draft.get("foundry.icl_tasks")
    number, unit = _period(draft.get("foundry.eval_interval"))
    inputs = ("foundry.eval_loader", "foundry.icl_tasks", "foundry.eval_interval")
    draft.derive("eval.enabled", bool(enabled), *inputs)
    strategy = ("steps" if unit == "ba" else "epoch") if enabled else "no"
    draft.derive("eval.strategy", strategy, *inputs)
    if enabled and unit == "ba":
        draft.derive("eval.every", number, "foundry.eval_interval")
    draft.derive("eval.keeps_logits", False, source="torchmetrics update batch by batch")
    steps, unit = _period(draft.get("foundry.duration"))
    if unit == "ba":
        draft.derive("total_steps", steps, "foundry.duration")


def finish_save(draft: Draft) -> None:
    """Composer's checkpoints where ``save_folder`` is set, else those of the callback that
    writes Hugging Face's format, which always gathers the whole model."""
    exported = draft.get("foundry.hf_interval")
    own = draft.get("save.dir") is not None or draft.is_unknown("save.dir")
    inputs = ("save.dir", "foundry.save_interval", "foundry.hf_interval")
    number, unit = _period(draft.get("foundry.save_interval") if own else exported)
    if own or exported is not None:
        draft.derive("save.strategy", {"ba": "steps", "dur": "end"}.get(unit, "epoch"), *inputs)
        if unit == "ba":
            draft.derive("save.every", number, *inputs)
    else:
        draft.derive("save.strategy", "no", *inputs)
    if not own:
        draft.override("save.save_only_model", True, *inputs)
    keep = draft.get("foundry.keep")
    draft.derive("save.keep", "all" if not keep or keep < 0 else keep, "foundry.keep")
    only = draft.get("save.save_only_model")
    what = "adapter" if is_adapter_run(draft) else "model"
    draft.derive("save.contents", (what,) if only else (what, "optimizer"), "save.save_only_model")
    if draft.get("parallel.backend") == "fsdp1":
        whole = exported is not None or draft.get("parallel.fsdp.state_dict") == "full"
        draft.derive("save.full_gather", whole, "parallel.fsdp.state_dict", "foundry.hf_interval")
    if exported is not None and not own:
        draft.derive("save.dtype", draft.get("foundry.hf_dtype") or "fp32", "foundry.hf_dtype")
