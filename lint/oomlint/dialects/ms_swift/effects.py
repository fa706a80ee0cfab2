"""What ms-swift makes of its keys beyond the weights: DeepSpeed, checkpointing, lengths, loss.

``SW`` below is ``swift/`` of ms-swift 3602360a.
"""

from __future__ import annotations

from oomlint.changes import Change
from oomlint.dialects.base import Reference
from oomlint.dialects.deepspeed.dialect import DeepSpeed
from oomlint.dialects.draft import Draft
from oomlint.dialects.law import finish_batch, finish_generation, finish_world, is_adapter_run
from oomlint.dialects.liger import liger_patches
from oomlint.dialects.ms_swift.keys import BASE, OLD, RLHF, TRAIN, is_old

# -- sharding ---------------------------------------------------------------------------------


def finish_deepspeed(draft: Draft) -> None:
    _take_added_preset(draft)
    draft.derive("parallel.tp", draft.get("swift.autotp"), "swift.autotp")
    finish_world(draft)
    if draft.get("swift.fsdp") is not None:
        source = "ms-swift 3602360a arguments/sft_args.py _init_fsdp"
        draft.default("hf.fsdp.version", 2, source)
        draft.default("hf.fsdp_words", ("full_shard", "auto_wrap"), source)
    hpz = draft.get("swift.hpz")
    if hpz is not None:
        draft.override("parallel.zero.hpz", hpz, "swift.hpz")


def _take_added_preset(draft: Draft) -> None:
    """Where a fix adds a DeepSpeed preset that no file names yet, what that one says counts."""
    setting = draft.settings.get("ref.deepspeed")
    if setting is None or setting.origin.kind != "option" or setting.shadowed:
        return
    block = draft.block_with("ref.deepspeed")
    if block is None:
        return
    claim = DeepSpeed().preset(Reference(str(setting.value), block.location, "deepspeed"))
    if claim is None:
        return
    reading = claim.blocks[0].read()
    for name, found in reading.settings.items():
        draft.settings.setdefault(name, found)
    draft.auto.update(reading.auto)
    for row in claim.blocks[0].table.rows:
        if row.default is not None and row.field not in draft.auto:
            draft.default(row.field, row.default, row.source)


# -- the Trainer's own defaults -----------------------------------------------------------------


SPLITS_NOTHING = Change(
    "ms-swift", (3, 6), "a hundredth of the data is held out for evaluation by default",
    "ms-swift 3.5.3 and 3.6.0 llm/argument/base_args/data_args.py", was=0.01,
)  # fmt: skip


def _narrow_by_keys(draft: Draft, old: bool) -> None:
    """``tuner_type`` came with 4.0, and 3.0 renamed what 2.x had."""
    keys = {key for block in draft.blocks for key in block.mapping.entries}
    if "tuner_type" in keys:
        draft.narrow("ms-swift", oldest=(4, 0))
    elif old:
        draft.narrow("ms-swift", beyond=(3, 0))
    else:
        draft.narrow("ms-swift", oldest=(3, 0))


def finish_trainer_defaults(draft: Draft) -> None:
    old = is_old(draft)
    optimizer = "adamw_torch" if old else "adamw_torch_fused"
    source = OLD if old else "transformers 5.23 training_args.py:806 (torch 2.8 or newer)"
    draft.default("optimizer.name", optimizer, source)
    draft.default("batch.eval_micro", draft.get("batch.micro") if old else 1, source)
    if old:
        draft.default("save.keep", 2, OLD)
    if draft.get("swift.val_dataset"):
        validates = True
    else:
        _narrow_by_keys(draft, old)
        # SW/arguments/base_args/data_args.py: a stream is not split.
        changes = () if draft.get("data.streaming") and not old else (SPLITS_NOTHING,)
        draft.default("swift.val_ratio", 0.0, SPLITS_NOTHING.source, *changes)
        validates = (draft.get("swift.val_ratio") or 0) > 0
    strategy = draft.get("swift.eval_strategy") or draft.get("save.strategy") or "steps"
    if not validates:
        strategy = "no"
    strategy = "steps" if strategy == "best" else strategy
    draft.override(
        "eval.strategy", strategy, "swift.eval_strategy", "swift.val_dataset", "swift.val_ratio"
    )


def finish_accumulation(draft: Draft) -> None:
    """ceil(16 / micro batch / ranks), but 1 for GRPO (SW/trainers/arguments.py:285)."""
    micro, world = draft.get("batch.micro"), draft.get("parallel.world")
    grpo = draft.get("objective.kind") == "grpo"
    if draft.get("parallel.backend") == "device_map_pp":
        world = draft.get("parallel.dp")
    if micro and (world or grpo):
        steps = 1 if grpo else max(1, -(-16 // (micro * world)))
        draft.default("batch.grad_accum", steps, f"{TRAIN}:285")
    elif micro:
        draft.assume(
            "batch.grad_accum", max(1, 16 // micro),
            "gradient_accumulation_steps makes about 16 samples of all GPUs, whose number is not known",
        )  # fmt: skip
    finish_batch(draft)


def finish_checkpointing(draft: Draft) -> None:
    """SW/trainers/mixin.py _fix_gradient_checkpointing: not reentrant under plain DDP only."""
    if draft.get("checkpointing.source") == "fsdp" or draft.says("hf.reentrant"):
        return
    backend = draft.get("parallel.backend")
    reentrant = backend != "ddp" and not is_old(draft)
    if is_old(draft):
        # transformers up to 4.57 leaves torch's own default.
        reentrant = True
    source = "ms-swift 3602360a trainers/mixin.py _fix_gradient_checkpointing"
    draft.derive("checkpointing.reentrant", reentrant, "parallel.backend", source=source)
    if draft.get("swift.tuner_backend") == "unsloth" and draft.get("checkpointing.mode") == "full":
        # SW/pipelines/train/tuner.py: use_gradient_checkpointing="unsloth" moves inputs to the CPU.
        for name in ("checkpointing.offload", "offload.activations"):
            draft.derive(name, "cpu", "swift.tuner_backend")


_PLUGINS = {
    "galore": "galore",
    "muon": "muon",
    "muonclip": "muon",
    "lorap": "adamw",
    "multimodal": "adamw",
}


def finish_optimizer(draft: Draft) -> None:
    """``optimizer`` names a plug-in that replaces ``optim`` (SW/optimizers/mapping.py)."""
    plugin = "galore" if draft.get("swift.galore") else draft.get("swift.optimizer")
    kind = _PLUGINS.get(str(plugin))
    if kind in ("galore", "muon"):
        draft.override("optimizer.kind", kind, "swift.galore", "swift.optimizer")
        draft.derive("optimizer.fused", False, "swift.galore", "swift.optimizer")
        if kind == "galore":
            draft.derive("optimizer.rank", draft.get("swift.galore_rank"), "swift.galore_rank")
    if draft.get("swift.lisa_layers") and draft.get("trainable.method") == "full":
        _finish_lisa(draft, draft.get("swift.lisa_layers"))


def _finish_lisa(draft: Draft, active: int) -> None:
    """SW/callbacks/lisa.py: a few layers at a time, beside embedding, head and norms."""
    draft.override("trainable.method", "layerwise", "swift.lisa_layers")
    draft.derive("trainable.last_layers", active, "swift.lisa_layers")
    dims = draft.get("model.dims")
    if dims is None or not (dims.params_total and dims.layers and dims.vocab and dims.hidden):
        return
    ends = dims.vocab * dims.hidden * (1 if dims.tie_embeddings else 2)
    layer = max(0, dims.params_total - ends) // dims.layers
    trained = ends + min(active, dims.layers) * layer
    draft.derive("trainable.params", trained, "swift.lisa_layers", "model.dims")


# -- sequences and the loss -------------------------------------------------------------------


def finish_sequences(draft: Draft) -> None:
    old = is_old(draft)
    if draft.get("swift.use_flash") is not None:
        draft.derive(
            "model.attn_impl",
            "flash2" if draft.get("swift.use_flash") else "sdpa",
            "swift.use_flash",
        )
    draft.default("model.attn_impl", "sdpa", "transformers 5.23 takes sdpa where the model has it")
    finish_length(draft, old=old)
    # SW/arguments/rlhf_args.py:351: prompts of GRPO keep their end.
    truncation = "cut" if draft.get("objective.kind") == "grpo" else "drop"
    draft.default("seq.truncation", truncation, "ms-swift 4.6.0 arguments/base_args")
    free = bool(draft.get("swift.padding_free"))
    packs = bool(draft.get("swift.packing"))
    # 2.x concatenated samples up to max_length; later ones are packed whole, one after another.
    kind = ("concat" if old else "bfd") if packs else "none"
    draft.derive("seq.packing", kind, "swift.packing")
    draft.derive(
        "seq.pad", "none" if packs or free else "longest", "swift.packing", "swift.padding_free"
    )
    finish_vision(draft)


def finish_vision(draft: Draft) -> None:
    draft.derive(
        "model.vision.max_pixels", draft.get("swift.env.max_pixels"), "swift.env.max_pixels"
    )
    draft.derive(
        "model.vision.max_frames", draft.get("swift.env.max_frames"), "swift.env.max_frames"
    )


def finish_length(draft: Draft, *, old: bool) -> None:
    """Without ``max_length`` only the model's own maximum cuts samples (SW base_args.py:196)."""
    kind = draft.get("objective.kind")
    said = draft.says("seq.max_len")
    if draft.get("swift.packing") and draft.get("swift.packing_length"):
        draft.override("seq.max_len", draft.get("swift.packing_length"), "swift.packing_length")
        said = True
    if kind in ("grpo", "ppo"):
        _finish_rollout(draft)
    elif not said and not draft.is_unknown("seq.max_len"):
        written = old and not any(b.find("max_length") for b in draft.blocks)
        if written:
            draft.default("seq.max_len", 2048, f"{OLD}:661")
            return
        draft.derive("seq.unbounded", True, "seq.max_len", source=f"{BASE}:196")
        dims = draft.get("model.dims")
        if draft.get("swift.packing") and dims is not None:
            # Packs are filled up to that maximum, so it is what every step holds.
            draft.derive("seq.max_len", dims.ctx, "model.dims", source=f"{BASE}:196")


def _finish_rollout(draft: Draft) -> None:
    rollout = "objective.rollout."
    draft.default(rollout + "max_completion_tokens", 512, RLHF)
    if draft.get("objective.kind") == "grpo":
        draft.default(rollout + "n", 8, RLHF)
        draft.derive("batch.micro_unit", "completions", "objective.kind", source=RLHF)
        finish_generation(draft, "swift.steps_per_generation")
    if draft.get("swift.vllm"):
        # Up to 3.x colocate was the default; now a mode has to be named.
        draft.derive(
            rollout + "engine",
            draft.get("swift.vllm_mode") or "vllm_colocate",
            "swift.vllm",
            "swift.vllm_mode",
        )
        draft.default(
            rollout + "gpu_mem_util", 0.9, "ms-swift 3602360a rlhf_trainers/args_mixin.py:37"
        )
        draft.default(rollout + "tp", 1, "ms-swift 3602360a rlhf_trainers/args_mixin.py:38")
        draft.derive(rollout + "sleep", bool(draft.get("swift.sleep_level")), "swift.sleep_level")
    else:
        draft.derive(rollout + "engine", "hf", "swift.vllm")
    draft.derive(rollout + "max_prompt_tokens", draft.get("seq.max_len"), "seq.max_len")
    draft.assume(rollout + "max_prompt_tokens", 512, "max_length, which cuts prompts, is not set")
    prompt, answer = (
        draft.get(rollout + name) for name in ("max_prompt_tokens", "max_completion_tokens")
    )
    if prompt and answer:
        draft.override(
            "seq.max_len",
            prompt + answer,
            rollout + "max_prompt_tokens",
            rollout + "max_completion_tokens",
        )


# Trainers that leave the loss to liger (SW/trainers, SW/rlhf_trainers/grpo_trainer.py, gkd_trainer.py).
FUSED = frozenset({"pretrain", "sft", "grpo", "gkd"})


def finish_loss(draft: Draft) -> None:
    kind = draft.get("objective.kind")
    smooth = bool(draft.get("loss.label_smoothing"))
    # SW/trainers/seq2seq_trainer.py compute_loss: these take the logits themselves.
    scaled = draft.get("swift.loss_scale") not in (None, "default", "last_round", "all")
    own = smooth or scaled or (draft.get("parallel.ulysses") or 1) > 1
    # Of GRPO and GKD only the loss is Liger's, and takes hidden states.
    patches = kind not in ("sft", "pretrain") or liger_patches(draft)
    liger = bool(draft.get("hf.liger")) and patches
    inputs = ("hf.liger", "model.arch", "objective.kind", "swift.loss_scale", "loss.logits_to_keep")
    if liger and not own and kind in FUSED:
        mode = "fused"
    elif kind in ("grpo", "ppo"):
        mode = "completion_only"
    elif (
        kind in ("sft", "dpo")
        and not is_old(draft)
        and draft.get("loss.logits_to_keep") is not False
        and (draft.get("parallel.ulysses") or 1) == 1
    ):
        # SW/trainers/mixin.py get_use_logits_to_keep: on where the model's forward knows it.
        mode = "completion_only"
    else:
        mode = "full"
    draft.derive("loss.logits_materialised", mode, *inputs)
    draft.derive("loss.liger.flce", mode == "fused", *inputs)
    if kind in ("dpo", "kto", "simpo", "grpo") and mode != "fused":
        source = "SW/rlhf_trainers/rlhf_mixin.py: selective_log_softmax"
        draft.derive("loss.algorithm", "rows", "objective.kind", source=source)
    if (draft.get("parallel.ulysses") or 1) > 1 and kind in ("pretrain", "sft"):
        _finish_shared_loss(draft)


def _finish_shared_loss(draft: Draft) -> None:
    """SW/trainers/utils.py per_token_loss_func_sp: ranks of a sequence take the loss of their
    own tokens, in the dtype of the logits, in chunks where CELOSS_PARALLEL_SIZE says how long."""
    draft.derive("loss.upcast_fp32", False, "parallel.ulysses", source="SW/trainers/utils.py")
    size = draft.get("swift.env.loss_tokens")
    rows, length = draft.get("batch.micro"), draft.get("seq.max_len")
    if size and rows and length:
        tokens = -(-rows * length // draft.get("parallel.ulysses", 1))
        inputs = ("swift.env.loss_tokens", "parallel.ulysses", "seq.max_len")
        draft.derive("loss.logits_materialised", "chunked", *inputs)
        draft.derive("loss.chunks", max(1, -(-tokens // size)), *inputs)


def finish_eval(draft: Draft) -> None:
    # SW/trainers/mixin.py: accuracy is computed batch by batch from predicted tokens.
    source = "ms-swift 3602360a trainers/mixin.py: preprocess_logits_for_metrics"
    draft.derive("eval.keeps_logits", False, source=source)
    if draft.get("eval.strategy") == "steps":
        old = is_old(draft)
        every = (50 if is_adapter_run(draft) else 200) if old else draft.get("save.every")
        draft.derive("eval.every", every, "save.every", source=OLD if old else TRAIN)
