"""What LitGPT makes of its keys, for each of its sub-commands.

Read from litgpt 26857050 (2026-06-29); ``LG`` below is its ``litgpt`` package.
"""

from __future__ import annotations

from oomlint.dialects.draft import Draft
from oomlint.dialects.kinds import OPTIMIZER_KINDS
from oomlint.dialects.law import finish_batch, is_adapter_run
from oomlint.dialects.litgpt.keys import LITGPT, LORA_PARTS, SOURCE
from oomlint.dialects.machine.ranks import settle
from oomlint.dialects.machine.scene import visible_gpus
from oomlint.frozen import replace
from oomlint.plan.model import ModelDims


def finish_command(draft: Draft) -> str:
    """``lora``, ``full``, ``adapter`` or ``pretrain``: launched, else told by keys of its own."""
    command = draft.get("lit.command")
    if command is not None:
        return str(command)
    if draft.get("trainable.r") or any(draft.says(f"lit.lora.{part}") for part in LORA_PARTS):
        found = "lora"
    elif draft.get("lit.model_name") is not None or any(
        draft.says(row.field) for row in LITGPT.rows if row.field.startswith("lit.arg.")
    ):
        found = "pretrain"
    else:
        named = draft.get("lit.file.command")
        found = str(named or ("lora" if draft.get("lit.quantize") else "full"))
        if not draft.says("lit.resume"):
            draft.assume("lit.command", found, "no key of the file belongs to one sub-command")
            return found
    draft.derive("lit.command", found, "trainable.r", "lit.model_name")
    return found


def finish_defaults(draft: Draft, command: str) -> None:
    """Defaults of the sub-command's ``setup`` (LG/finetune/*.py, LG/pretrain.py)."""
    source = f"{SOURCE} {'pretrain' if command == 'pretrain' else f'finetune/{command}'}.py setup"
    pretrains = command == "pretrain"
    draft.default("batch.micro", 4 if pretrains else 1, source)
    draft.default("lit.global", 512 if pretrains else 16, source)
    draft.default("save.every", 1000, source)
    draft.default("eval.every", {"pretrain": 1000, "full": 600}.get(command, 100), source)
    draft.default("optimizer.name", "AdamW", source)
    draft.default("data.workers", 8 if pretrains else 4, "LG/data: num_workers")
    _prefer_later_auto(draft, "parallel.gpus_per_node")
    all_visible = "parallel.gpus_per_node" in draft.auto or (
        pretrains and not draft.says("parallel.gpus_per_node")
    )
    if all_visible:
        seen = visible_gpus(draft)
        settle(draft, "parallel.gpus_per_node", seen, source, "env.cuda_visible_devices")
    else:
        settle(draft, "parallel.gpus_per_node", 1, source)
    settle(draft, "parallel.nodes", 1, source)
    if command == "lora":
        draft.default("trainable.r", 8, source)
        draft.default("trainable.alpha", 16.0, source)
        draft.default("trainable.dropout", 0.05, source)
        for part in LORA_PARTS:
            draft.default(f"lit.lora.{part}", part in ("query", "value"), source)


def _prefer_later_auto(draft: Draft, field: str) -> None:
    """``--devices auto`` on the command line replaces a number in the file."""
    auto, setting = draft.auto.get(field), draft.settings.get(field)
    if auto is None or setting is None or setting.origin.block is None or auto.block is None:
        return
    if draft.blocks.index(auto.block) > draft.blocks.index(setting.origin.block):
        draft.forget(field)


def finish_model(draft: Draft, command: str) -> None:
    given = _dims_of_arguments(draft)
    if given is not None:
        draft.forget("model.dims")
        draft.derive("model.dims", given, "lit.arg.n_layer", "lit.arg.n_embd")
    dims = draft.get("model.dims")
    if dims is not None and dims.tie_embeddings and not draft.get("lit.tie_embeddings"):
        # LG/model.py: the head is a layer of its own whatever the Hub's model shares.
        draft.override(
            "model.dims", _untied(dims), "model.id", "lit.tie_embeddings", source="LG/model.py:28"
        )
    _take_own_class(draft)
    draft.derive("model.attn_impl", "sdpa", source="LG/model.py scaled_dot_product_attention")
    pretrains = command == "pretrain"
    draft.derive("objective.kind", "pretrain" if pretrains else "sft", "lit.command")
    draft.derive("objective.ref_model", "none", "lit.command")
    if pretrains:
        scratch = draft.get("lit.initial_checkpoint") is None
        draft.derive("model.from_scratch", scratch, "lit.initial_checkpoint")
        if dims is not None and dims.ctx and not draft.is_unknown("seq.max_len"):
            draft.derive("seq.max_len", dims.ctx, "model.dims", source="LG/pretrain.py: block_size")
    elif draft.get("seq.max_len") is None and not draft.is_unknown("seq.max_len"):
        source = "LG/finetune: the longest sample of the data decides"
        draft.derive("seq.unbounded", True, "seq.max_len", source=source)
    draft.derive("seq.packing", "concat" if pretrains else "none", "lit.command")
    draft.derive("seq.pad", "none" if pretrains else "longest", "lit.command")


def _take_own_class(draft: Draft) -> None:
    """LG/model.py has one class for all models: heads in one projection, rotated by torch.cat."""
    dims = draft.get("model.dims")
    arch = None
    if dims is not None and dims.norm == "rms" and dims.arch not in _OWN_WAYS:
        arch = "litgpt"
    elif dims is not None and dims.arch == "phi":
        arch = "litgpt_phi"
    if arch is not None:
        own = replace(dims, arch=arch)
        draft.override("model.dims", own, "model.id", source="LG/model.py GPT")


# Classes whose norms, caps or experts LG/model.py follows in its own way, unread.
_OWN_WAYS = frozenset({"gemma2", "gemma3", "gemma3_text", "mixtral", "qwen3_moe", "deepseek_v3"})


def _untied(dims: ModelDims) -> ModelDims:
    """The same model with a head of its own."""
    extra = (dims.vocab or 0) * (dims.hidden or 0)
    return replace(
        dims,
        tie_embeddings=False,
        params_total=dims.params_total + extra if dims.params_total else None,
        params_active=dims.params_active + extra if dims.params_active else None,
        params_lm_head=extra or None,
    )


def _dims_of_arguments(draft: Draft) -> ModelDims | None:
    """The dimensions that ``model_config`` spells out; LG/config.py has the defaults."""
    layers, hidden = draft.get("lit.arg.n_layer"), draft.get("lit.arg.n_embd")
    heads = draft.get("lit.arg.n_head")
    if not (layers and hidden and heads):
        return None
    mlp = draft.get("lit.arg.mlp") or "GptNeoxMLP"
    act = {"LLaMAMLP": "swiglu", "GemmaMLP": "geglu"}.get(str(mlp), "gelu")
    rms = draft.get("lit.arg.norm") == "RMSNorm"
    return ModelDims(
        arch="llama" if act == "swiglu" else "gpt_neox",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=draft.get("lit.arg.n_query_groups") or heads,
        head_dim=draft.get("lit.arg.head_size") or hidden // heads,
        ffn=draft.get("lit.arg.intermediate_size") or 4 * hidden,
        vocab=draft.get("lit.arg.padded_vocab_size") or draft.get("lit.arg.vocab_size") or 50_254,
        tie_embeddings=False,
        norm="rms" if rms else "ln",
        act=act,  # type: ignore[arg-type]
        ctx=draft.get("lit.arg.block_size") or 4096,
    )


def finish_global_batch(draft: Draft) -> None:
    """LG/args.py TrainArgs.gradient_accumulation_iters; a remainder is dropped."""
    total, world, micro = (
        draft.get("lit.global"),
        draft.get("parallel.world"),
        draft.get("batch.micro"),
    )
    if None not in (total, world, micro):
        accumulation = max(1, total // world // micro)
        inputs = ("lit.global", "batch.micro", "parallel.world")
        draft.derive("batch.grad_accum", accumulation, *inputs, source="LG/args.py:56")
    finish_batch(draft)


def finish_backend(draft: Draft, command: str) -> None:
    world = draft.get("parallel.world")
    if world is None:
        return
    for field in ("offload.params", "offload.optimizer"):
        draft.derive(field, "none", "lit.command", source="LG: cpu_offload=False")
    if world == 1:
        draft.derive("parallel.backend", "none", "parallel.world")
        return
    fsdp = "parallel.fsdp."
    source = f"{SOURCE} {command}.py: strategy"
    if command == "lora":
        # ModelParallelStrategy with fully_shard on every block (LG/finetune/lora.py parallelize_fn).
        draft.derive("parallel.backend", "fsdp2", "parallel.world", source=source)
        draft.derive(fsdp + "version", 2, "lit.command", source=source)
    else:
        draft.derive("parallel.backend", "fsdp1", "parallel.world", source=source)
        draft.derive(fsdp + "version", 1, "lit.command", source=source)
        # Lightning Fabric's FSDPStrategy and torch's own defaults below it.
        draft.derive(fsdp + "use_orig_params", True, "lit.command", source="lightning fabric")
        draft.derive(fsdp + "limit_all_gathers", True, "lit.command", source="lightning fabric")
        draft.derive(fsdp + "backward_prefetch", "pre", "lit.command", source="torch 2.9 FSDP")
        draft.derive(fsdp + "forward_prefetch", False, "lit.command", source="torch 2.9 FSDP")
    hybrid = command == "pretrain"
    draft.derive(fsdp + "strategy", "hybrid" if hybrid else "full", "lit.command", source=source)
    draft.derive(fsdp + "reshard_after_forward", True, "lit.command", source=source)
    draft.derive(fsdp + "wrap", "transformer", "lit.command", source=source)
    draft.derive(fsdp + "state_dict", "full", "lit.command", source=source)
    draft.derive(fsdp + "cpu_offload", False, "lit.command", source=source)
    # fabric.no_backward_sync between optimizer steps.
    draft.derive(fsdp + "sync_every_micro", False, "lit.command", source=source)
    draft.derive("load.meta_init", True, "parallel.world", source="LG: init_module(empty_init)")


_ROLES = {
    "query": ("q_proj", "qkv_proj", "query_key_value"),
    "key": ("k_proj",),
    "value": ("v_proj",),
    "projection": ("o_proj", "dense"),
    "mlp": (
        "gate_proj", "up_proj", "down_proj", "gate_up_proj", "fc1", "fc2", "dense_h_to_4h",
        "dense_4h_to_h",
    ),
    "head": ("lm_head",),
}  # fmt: skip


def finish_trainable(draft: Draft, command: str) -> None:
    quantize = draft.get("lit.quantize")
    if command in ("full", "pretrain"):
        draft.derive("trainable.method", "full", "lit.command")
        draft.derive("quant.method", "none", "lit.command")
        return
    method = "adapter" if command == "adapter" else "qlora" if quantize else "lora"
    draft.derive("trainable.method", method, "lit.command", "lit.quantize")
    if command == "lora":
        chosen = [part for part in LORA_PARTS if draft.get(f"lit.lora.{part}")]
        names = tuple(name for part in chosen for name in _ROLES[part])
        fields = [f"lit.lora.{part}" for part in LORA_PARTS]
        draft.derive("trainable.targets", names, *fields)
    bnb = "none" if quantize is None else "bnb8" if quantize == "int8" else "bnb4"
    if draft.is_unknown("lit.quantize"):
        return
    draft.derive("quant.method", bnb, "lit.quantize")
    if bnb == "bnb4":
        draft.derive("quant.double", str(quantize).endswith("-dq"), "lit.quantize")
        # Fabric keeps the packed weights in uint8 (fabric/plugins/precision/bitsandbytes.py).
        draft.derive("quant.storage_dtype", "uint8", "lit.quantize")
    if bnb != "none":
        # Fabric replaces every linear layer, the head included.
        source = "lightning 2.6 fabric/plugins/precision/bitsandbytes.py _convert_layers"
        draft.derive("quant.skip_modules", (), "lit.quantize", source=source)
        if command == "lora":
            # The StableEmbedding put in place after the rest was frozen (LG/finetune/lora.py).
            draft.derive("trainable.unstepped", "embeddings", "lit.quantize", source=SOURCE)


def finish_precision(draft: Draft) -> None:
    """Lightning Fabric: ``-true`` makes everything that dtype, ``-mixed`` keeps fp32 under
    autocast; adapters are like the rest (fabric/plugins/precision)."""
    if draft.is_unknown("lit.precision"):
        return
    source = f"{SOURCE} utils.py:363: bf16-mixed on GPUs that have bfloat16"
    draft.default("lit.precision", "bf16-mixed", source)
    name, _, kind = str(draft.get("lit.precision")).partition("-")
    half = {"bf16": "bf16", "16": "fp16"}.get(name)
    mixed = kind == "mixed"
    stored = "fp32" if mixed or half is None else half
    frozen = {"bnb4": "nf4", "bnb8": "int8"}.get(str(draft.get("quant.method")), stored)
    inputs = ("lit.precision", "lit.quantize")
    draft.derive("load.dtype", stored, *inputs)
    draft.derive("precision.param", frozen, *inputs)
    draft.derive("precision.grad", stored, *inputs)
    draft.derive("precision.master", "none", *inputs)
    # Under quantization LitGPT takes bitsandbytes' PagedAdamW, whose states are float32.
    draft.derive("precision.optim_state", "fp32" if frozen != stored else stored, *inputs)
    draft.derive("precision.compute", half or "fp32", *inputs)
    draft.derive("precision.autocast", mixed, *inputs)
    draft.derive("precision.logits", half or "fp32", *inputs)
    if draft.get("parallel.backend") in ("fsdp1", "fsdp2"):
        draft.derive("precision.comm", half or "fp32", *inputs)
    if is_adapter_run(draft):
        draft.derive("trainable.adapter_dtype", stored, *inputs)
    draft.derive("quant.compute_dtype", stored if frozen != stored else None, *inputs)


_OPTIMIZERS = {
    "AdamW": "adamw",
    "Adam": "adamw",
    "SGD": "sgd",
    "RMSprop": "rmsprop",
    "Adafactor": "adafactor",
    "AdamW8bit": "adamw8bit",
    "PagedAdamW": "paged_adamw",
    "PagedAdamW8bit": "paged_adamw8bit",
    "Lion": "lion",
    "Lion8bit": "lion8bit",
    "GaLoreAdamW": "galore",
    "GaLoreAdamW8bit": "galore",
}


def finish_optimizer(draft: Draft, command: str) -> None:
    name = draft.get("optimizer.name")
    if name is None:
        return
    component = str(name)
    short = component.rpartition(".")[2]
    kind = _OPTIMIZERS.get(short, OPTIMIZER_KINDS.get(short.lower(), "other"))
    if draft.get("quant.method") in ("bnb4", "bnb8"):
        draft.override("optimizer.name", "bitsandbytes.optim.PagedAdamW", "lit.quantize")
        draft.override("optimizer.kind", "paged_adamw", "lit.quantize", source="LG/utils.py:619")
        return
    draft.derive("optimizer.kind", kind, "optimizer.name")
    native = "." not in component or component.startswith("torch.optim.")
    # LG/pretrain.py asks for fused kernels on CUDA; fine-tuning leaves torch's choice, foreach.
    fused = native and (command == "pretrain" or bool(draft.get("lit.fused")))
    draft.derive("optimizer.fused", fused, "lit.command", "lit.fused")
    draft.derive("optimizer.foreach", native and not fused, "optimizer.name")


def finish_activations(draft: Draft, command: str) -> None:
    """Blocks are checkpointed where several GPUs fine-tune, and nowhere else."""
    world = draft.get("parallel.world")
    if world is not None:
        mode = "full" if world > 1 and command != "pretrain" else "none"
        inputs = ("parallel.world", "lit.command")
        draft.derive("checkpointing.mode", mode, *inputs, source=f"{SOURCE}: strategy")
        draft.derive("checkpointing.reentrant", False, *inputs)
        if mode == "full":
            draft.derive("checkpointing.source", "fsdp", *inputs)
    draft.derive("checkpointing.offload", "none", "lit.command")
    # Only LoRA and adapters project 128 tokens at a time.
    chunked = command in ("lora", "adapter")
    draft.derive("loss.logits_materialised", "chunked" if chunked else "full", "lit.command")
    length = draft.get("seq.max_len")
    if chunked and length:
        draft.derive("loss.chunks", -(-length // 128), "seq.max_len", source="lm_head_chunk_size")
    draft.derive("loss.outputs_kept", True, "lit.command", source="LG: logits live until backward")
    # Every precision plugin hands on outputs in the default dtype, which is float32.
    source = "lightning 2.6 fabric/plugins/precision/half.py convert_output"
    draft.derive("loss.upcast_fp32", True, "lit.command", source=source)
    draft.derive("compile.enabled", command == "pretrain", "lit.command", source="LG/pretrain.py")


def finish_eval_and_save(draft: Draft) -> None:
    draft.derive("eval.enabled", True, "eval.every")
    draft.derive("eval.strategy", "steps", "eval.every")
    draft.derive("eval.on_start", True, "lit.command", source="LG: two batches verify settings")
    draft.derive("eval.keeps_logits", False, "lit.command")
    draft.derive("batch.eval_micro", draft.get("batch.micro"), "batch.micro")
    draft.derive("save.strategy", "steps", "save.every")
    draft.default("save.keep", "all", "LG: a folder for every step")
    adapters = is_adapter_run(draft)
    contents = ("adapter",) if adapters else ("model", "optimizer")
    draft.derive("save.contents", contents, "lit.command", source="LG: fabric.save(state)")
    draft.derive("save.save_only_model", adapters, "lit.command")
    draft.derive("save.format", "bin", "lit.command")
    if (draft.get("parallel.world") or 1) > 1 and not adapters:
        draft.derive("save.full_gather", True, "lit.command", source='LG: state_dict_type="full"')
