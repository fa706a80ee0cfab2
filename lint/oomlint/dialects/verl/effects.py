"""What verl's trainers make of their keys.

Read from verl 0.8.0.dev (b178a3cd, 2026-01-29); ``VL`` below is its ``verl`` package.
"""

from __future__ import annotations

from oomlint.dialects.draft import Draft
from oomlint.dialects.law import finish_batch, finish_world, is_adapter_run
from oomlint.dialects.machine.ranks import finish_launch
from oomlint.dialects.verl.changes import UNSPLIT
from oomlint.dialects.verl.keys import PPO_SOURCE, RAY, SFT_SOURCE, SOURCE, VERL_PPO, VERL_SFT


def running_trainer(draft: Draft) -> str:
    if any(block.table is VERL_PPO for block in draft.blocks):
        return "ppo"
    return "sft" if any(block.table is VERL_SFT for block in draft.blocks) else "engine"


def finish_ranks(draft: Draft, trainer: str) -> None:
    """Ray starts as many ranks as the config says, whatever the command itself runs under."""
    if trainer == "ppo" and is_megatron(draft) and not draft.says("parallel.tp"):
        split = 1 if draft.has(UNSPLIT) else UNSPLIT.was
        draft.default("parallel.tp", split, UNSPLIT.source)
    counted = trainer == "ppo" or any(block.table is RAY for block in draft.blocks)
    finish_launch(draft, one_process=not counted)
    finish_world(draft)


def is_megatron(draft: Draft) -> bool:
    if draft.get("verl.strategy") is not None:
        return bool(draft.get("verl.strategy") == "megatron")
    names = (
        draft.get("verl.config_name"),
        draft.get("verl.model_engine"),
        draft.get("verl.engine"),
    )
    told = any("megatron" in str(name) for name in names if isinstance(name, str))
    return told or draft.says("parallel.tp") or draft.says("parallel.pp")


def finish_backend(draft: Draft) -> None:
    if is_megatron(draft):
        _finish_megatron(draft)
        return
    version = 2 if draft.get("verl.strategy") == "fsdp2" else 1
    _finish_fsdp(draft, version)
    _finish_offload(draft, version)


_BACKEND = ("verl.strategy", "verl.config_name")


def _finish_megatron(draft: Draft) -> None:
    draft.derive("parallel.backend", "megatron", *_BACKEND)
    draft.default(
        "parallel.megatron.dist_optimizer", True, f"{SOURCE} trainer/config/engine/megatron.yaml"
    )
    optimizer = "cpu" if draft.get("verl.optimizer_cpu") else "none"
    draft.derive("offload.optimizer", optimizer, "verl.optimizer_cpu")
    source = "Megatron-LM megatron/core/optimizer/optimizer_config.py:350: nothing is offloaded"
    draft.default("offload.optimizer_ratio", 0.0, source)
    draft.derive("offload.params", "none", "verl.param_offload")


def _finish_fsdp(draft: Draft, version: int) -> None:
    fsdp = "parallel.fsdp."
    draft.derive("parallel.backend", f"fsdp{version}", *_BACKEND, source=PPO_SOURCE)
    draft.derive(fsdp + "version", version, *_BACKEND)
    world, shard = draft.get("parallel.world"), draft.get("parallel.dp_shard")
    draft.default(fsdp + "reshard_after_forward", True, PPO_SOURCE)
    reshards = draft.get(fsdp + "reshard_after_forward")
    hybrid = bool(shard and world and shard < world)
    if hybrid:
        draft.derive("parallel.dp_replicate", world // shard, "parallel.dp_shard", "parallel.world")
    if hybrid:
        strategy = "hybrid" if reshards else "hybrid_grad_op"
    else:
        strategy = "full" if reshards else "grad_op"
    draft.derive(fsdp + "strategy", strategy, "parallel.dp_shard", fsdp + "reshard_after_forward")
    draft.derive(
        fsdp + "wrap", "transformer", source=f"{SOURCE} utils/fsdp_utils.py get_fsdp_wrap_policy"
    )
    draft.default(fsdp + "forward_prefetch", False, PPO_SOURCE)
    draft.default(fsdp + "use_orig_params", False, PPO_SOURCE)
    draft.default(fsdp + "backward_prefetch", "pre", "torch FullyShardedDataParallel")
    draft.default(fsdp + "limit_all_gathers", True, "torch FullyShardedDataParallel")
    source = f"{SOURCE} utils/checkpoint/fsdp_checkpoint_manager.py"
    draft.derive(fsdp + "state_dict", "sharded", source=source)
    draft.derive(fsdp + "sync_every_micro", True, source=f"{SOURCE} workers/actor/dp_actor.py")


def _finish_offload(draft: Draft, version: int) -> None:
    """``param_offload`` and ``optimizer_offload`` only move states away between the phases of a
    step: update_actor brings all of them back first (workers/fsdp_workers.py:893)."""
    policy = "parallel.fsdp.cpu_offload"
    if version == 1 and draft.get(policy):
        # VL/workers/fsdp_workers.py:547 reads offload_policy under strategy=fsdp2 alone.
        draft.override(policy, False, "verl.strategy")
    in_step = version == 2 and draft.get(policy)
    if draft.get("verl.cpu_offload"):
        # fully_shard wants a CPUOffloadPolicy and does nothing with the FSDP1 object that
        # fsdp_sft_trainer.py hands it.
        in_step = version == 1 and bool(draft.get("verl.param_offload"))
    idle = draft.get("verl.param_offload") or draft.get("verl.optimizer_offload")
    inputs = ("verl.param_offload", "verl.optimizer_offload")
    draft.derive("offload.idle", "cpu" if idle and not in_step else "none", *inputs)
    device = "cpu" if in_step else "none"
    for name in ("offload.params", "offload.optimizer"):
        draft.derive(name, device, policy, "verl.cpu_offload", "verl.strategy")


def finish_model(draft: Draft) -> None:
    draft.default("model.attn_impl", "flash2", f"{SOURCE} workers/fsdp_workers.py:303")
    if draft.get("verl.liger"):
        for kernel in ("rope", "rms", "swiglu"):
            draft.derive(f"loss.liger.{kernel}", True, "verl.liger")


# VL/trainer/ppo/core_algos.py AdvantageEstimator: only gae has a critic.
_KINDS = {
    "gae": "ppo",
    "rloo": "rloo",
    "rloo_vectorized": "rloo",
    "remax": "rloo",
    "opo": "rloo",
    "reinforce_plus_plus": "rloo",
    "reinforce_plus_plus_baseline": "rloo",
}


def finish_rl(draft: Draft) -> None:
    estimator = str(draft.get("verl.estimator"))
    known = not draft.is_unknown("verl.estimator")
    if known:
        draft.derive("objective.kind", _KINDS.get(estimator, "grpo"), "verl.estimator")
    wanted = draft.get("verl.critic_enabled")
    critic = wanted if wanted is not None else known and estimator == "gae"
    if draft.get("verl.critic_params_off") and draft.get("verl.critic_optimizer_off"):
        critic = False  # it is on the CPU while the actor trains, and the other way round
    path = draft.get("verl.critic") or draft.get("model.id")
    draft.derive("objective.critic", path if critic else "none", "verl.critic", "verl.estimator")
    inputs = ("verl.kl_loss", "verl.kl_in_reward", "trainable.r")
    reference = "none"
    if draft.get("verl.kl_loss") or draft.get("verl.kl_in_reward"):
        # Its log probabilities come from a phase of their own. FSDP's reference policy is
        # always on the CPU (workers/fsdp_workers.py:526), Megatron's where it is asked to.
        away = not is_megatron(draft) or draft.get("verl.ref_offload")
        reference = "precomputed" if away else "copy"
        if _has_adapters(draft):
            reference = "shared_adapter_off"
    draft.derive(
        "objective.ref_model", reference, *inputs, source=f"{SOURCE} trainer/ppo/utils.py:72"
    )
    if reference == "copy":
        draft.derive("objective.ref_dtype", "bf16", *inputs)
    # Reward models are on the CPU or asleep in an engine of their own while the actor trains.
    draft.derive("objective.reward_model", "none", "verl.estimator")
    draft.default(
        "objective.rollout.engine", "vllm_colocate", "verl's examples: rollout.name is mandatory"
    )
    if draft.get("verl.hybrid") is False:
        source = f"{SOURCE} experimental/fully_async_policy: rollouts have GPUs of their own"
        draft.override("objective.rollout.engine", "vllm_server", "verl.hybrid", source=source)


def _has_adapters(draft: Draft) -> bool:
    return draft.get("trainable.r") is not None or draft.get("verl.adapter") is not None


def finish_trainable(draft: Draft) -> None:
    draft.derive("quant.method", "none", source=f"{SOURCE} workers/fsdp_workers.py")
    inputs = ("trainable.r", "verl.adapter")
    if draft.is_unknown("trainable.r"):
        return
    if not _has_adapters(draft):
        draft.derive("trainable.method", "full", *inputs)
        draft.forget("trainable.targets")
        draft.forget("trainable.alpha")
        return
    draft.derive("trainable.method", "lora", *inputs)
    draft.default("trainable.alpha", 16.0, PPO_SOURCE)
    draft.default("trainable.targets", "all_linear", PPO_SOURCE)
    draft.default("trainable.dropout", 0.0, "peft LoraConfig")


_OPTIMIZERS = {
    "adamw": "adamw",
    "_adamw": "adamw",
    "adam": "adamw",
    "adamw8bit": "adamw8bit",
    "adam8bit": "adamw8bit",
    "adamw4bit": "adamw4bit",
    "pagedadamw8bit": "paged_adamw8bit",
    "pagedadamw": "paged_adamw",
    "lion": "lion",
    "lion8bit": "lion8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
    "muon": "muon",
}


def finish_optimizer(draft: Draft) -> None:
    draft.default("optimizer.name", "AdamW", f"{SOURCE} workers/config/optimizer.py:96")
    name = str(draft.get("optimizer.name")).lower()
    draft.derive("optimizer.kind", _OPTIMIZERS.get(name, "other"), "optimizer.name")
    plain = str(draft.get("verl.optimizer_impl") or "torch.optim") == "torch.optim"
    megatron = is_megatron(draft)
    draft.derive("optimizer.fused", megatron, "verl.optimizer_impl")
    draft.derive("optimizer.foreach", plain and not megatron, "verl.optimizer_impl")


def finish_precision(draft: Draft) -> None:
    """FSDP trains in ``model_dtype`` and computes in 16 bit ("we have to create model in
    fp32", workers/fsdp_workers.py:286); Megatron keeps fp32 masters of bf16 weights."""
    if is_megatron(draft):
        source = "Megatron-LM's distributed optimizer: bf16 weights, fp32 gradients and masters"
        law = {"param": "bf16", "grad": "fp32", "master": "fp32", "optim_state": "fp32",
               "compute": "bf16", "logits": "fp32"}  # fmt: skip
        for leaf, dtype in law.items():
            draft.derive(f"precision.{leaf}", dtype, "verl.strategy", source=source)
        draft.derive("load.dtype", "bf16", "verl.strategy")
        draft.derive("precision.autocast", False, "verl.strategy", source=source)
        if is_adapter_run(draft):
            draft.derive("trainable.adapter_dtype", "bf16", "verl.strategy", source=source)
        return
    draft.default("load.dtype", "fp32", f"{SOURCE} trainer/config/engine/fsdp.yaml model_dtype")
    stored, compute = draft.get("load.dtype"), draft.get("verl.compute") or "bf16"
    source = f"{SOURCE} workers/fsdp_workers.py:286: FSDP's MixedPrecision over model_dtype"
    trained = stored
    if is_adapter_run(draft):
        # peft 0.21.2 mapping_func.py:110 upcasts adapters; fsdp_sft_trainer.py casts them back.
        trained = stored if running_trainer(draft) == "sft" else "fp32"
        draft.derive("trainable.adapter_dtype", trained, "load.dtype", source=source)
    draft.derive("precision.param", stored, "load.dtype", source=source)
    draft.derive("precision.grad", trained, "load.dtype", source=source)
    draft.derive("precision.master", "none", "load.dtype", source=source)
    draft.derive("precision.optim_state", trained, "load.dtype", source=source)
    draft.derive("precision.compute", compute, "verl.compute", source=source)
    draft.derive("precision.comm", "fp32", "verl.compute", source=source)
    # The workers' torch.autocast finds weights and inputs cast by FSDP already, and PPO's loss
    # kernel is none that autocast widens; SFT's cross entropy is.
    cast = running_trainer(draft) == "sft"
    draft.derive("precision.autocast", cast, "verl.compute", source=source)
    draft.derive("precision.logits", compute, "verl.compute")
    dims = draft.get("model.dims")
    if dims is not None and dims.tie_embeddings is not None:
        # Tied models are loaded whole by every rank (get_init_weight_context_manager).
        draft.derive("load.cpu_ram_efficient", not dims.tie_embeddings, "model.dims", source=source)


def finish_activations(draft: Draft) -> None:
    if is_megatron(draft):
        told = draft.get("verl.recompute")
        mode = {"full": "full", "selective": "selective_op"}.get(str(told), "none")
        # The switch of model.* is FSDP's; Megatron has its own (override_transformer_config).
        draft.override("checkpointing.mode", mode, "verl.recompute")
        draft.derive("checkpointing.source", "megatron", "verl.recompute")
        if draft.get("verl.recompute_layers"):
            draft.derive(
                "checkpointing.every_n", draft.get("verl.recompute_layers"), "verl.recompute_layers"
            )
    draft.default("checkpointing.reentrant", False, f"{SOURCE} workers/fsdp_workers.py")
    draft.default("offload.activations", "none", SFT_SOURCE)
    draft.derive("checkpointing.offload", draft.get("offload.activations"), "offload.activations")


def finish_sequences(draft: Draft, trainer: str) -> None:
    unpads = bool(draft.get("verl.unpads"))
    if trainer == "ppo":
        prompt = draft.get("objective.rollout.max_prompt_tokens")
        response = draft.get("objective.rollout.max_completion_tokens")
        if prompt and response:
            inputs = (
                "objective.rollout.max_prompt_tokens",
                "objective.rollout.max_completion_tokens",
            )
            draft.derive("seq.max_len", prompt + response, *inputs)
    elif trainer == "sft":
        # Without sequence parallelism the forward pass runs on padded rows all the same.
        unpads = unpads and (draft.get("parallel.ulysses") or 1) > 1
    draft.derive("seq.packing", "varlen" if unpads else "none", "verl.unpads")
    draft.derive("seq.pad", "none" if unpads else "max_len", "verl.unpads")
    fused = draft.get("verl.fused")
    draft.derive("loss.logits_materialised", "fused" if fused else "full", "verl.fused")
    # PPO takes log probabilities with flash-attn's kernel, which reads 16-bit logits
    # (utils/torch_functional.py); SFT's cross entropy is autocast to float32.
    draft.derive("loss.upcast_fp32", trainer == "sft", "verl.module")
    if trainer == "ppo" and not fused:
        # workers/actor/dp_actor.py:263: the kernel's backward overwrites the logits.
        draft.derive("loss.algorithm", "in_place", "verl.fused")
    draft.derive("loss.outputs_kept", False, source=f"{SOURCE} workers/actor/dp_actor.py")
    if trainer != "ppo":
        draft.derive("data.workers", 8, source=f"{SOURCE} trainer/fsdp_sft_trainer.py:179")


def finish_mini_batch(draft: Draft, trainer: str) -> None:
    """VL/workers/fsdp_workers.py:240: prompts x responses, over the data-parallel ranks."""
    world, dp = draft.get("parallel.world"), draft.get("parallel.dp")
    of_all = draft.get("verl.micro_of_all")
    if of_all and dp:
        draft.derive("batch.micro", max(1, of_all // dp), "verl.micro_of_all", "parallel.world")
    per_rank = None
    if trainer == "ppo":
        draft.derive("batch.micro_unit", "completions", "verl.estimator")
        mini, n = draft.get("verl.mini"), draft.get("objective.rollout.n")
        total = mini * n if mini and n else None
    else:
        total = draft.get("verl.train_batch")
    if total and dp:
        per_rank = max(1, total // dp)
    if draft.get("verl.dynamic"):
        _fill_by_tokens(draft, per_rank)
    micro = draft.get("batch.micro")
    if per_rank and micro:
        inputs = ("verl.mini", "verl.train_batch", "batch.micro", "parallel.dp")
        draft.derive("batch.grad_accum", -(-per_rank // micro), *inputs)
    if world:
        finish_batch(draft)
    # PPO validates by generation alone; under a token budget a row is all of it.
    alone = trainer == "ppo" or draft.get("verl.dynamic")
    draft.derive("batch.eval_micro", 1 if alone else micro, "batch.micro", "verl.dynamic")


def _fill_by_tokens(draft: Draft, per_rank: int | None) -> None:
    """Micro batches under a budget of tokens: as many as the samples need, and all alike
    (utils/seqlen_balancing.py:348 rearrange_micro_batches).

    Samples that fill one and a half budgets make two micro batches of three quarters. A full one
    beside the gradients of another takes two budgets of tokens, and no rank has more than the
    ``per_rank`` samples of its mini batch.
    """
    budget, length = draft.get("verl.max_tokens"), draft.get("seq.max_len")
    if not budget:
        return
    # A budget for each rank of a sequence-parallel group (workers/actor/dp_actor.py:552).
    budget *= draft.get("parallel.ulysses") or 1
    tokens, inputs = budget, ("verl.max_tokens", "verl.dynamic", "verl.mini", "seq.max_len")
    if length:
        rows = max(1, budget // length)
        if per_rank:
            count = min(per_rank, -(-per_rank * length // budget))
            rows = -(-per_rank // count)
            if count <= 2:
                tokens = min(budget, rows * length)
        draft.override("batch.micro", rows, *inputs)
    draft.derive("batch.max_tokens_per_gpu", tokens, *inputs)


def finish_eval_and_save(draft: Draft, trainer: str) -> None:
    every = draft.get("verl.test_freq")
    enabled = every is not None and every != -1
    draft.derive("eval.enabled", enabled, "verl.test_freq")
    strategy = ("steps" if every and every > 0 else "epoch") if enabled else "no"
    draft.derive("eval.strategy", strategy, "verl.test_freq")
    if every and every > 0:
        draft.derive("eval.every", every, "verl.test_freq")
    draft.derive("eval.keeps_logits", False, source=f"{SOURCE} trainer")
    draft.derive("eval.generate", trainer == "ppo", "verl.module")
    saves = draft.get("verl.save_freq")
    strategy = (
        "no" if saves == -1 and trainer == "ppo" else "steps" if saves and saves > 0 else "end"
    )
    draft.derive("save.strategy", strategy, "verl.save_freq")
    if saves and saves > 0:
        draft.derive("save.every", saves, "verl.save_freq")
    draft.default("save.keep", "all", PPO_SOURCE)
    contents = draft.get("verl.contents") or ("model", "optimizer", "extra")
    only = "optimizer" not in contents
    kept = ("adapter",) if is_adapter_run(draft) else ("model",)
    draft.derive("save.contents", kept if only else (*kept, "optimizer"), "verl.contents")
    draft.derive("save.save_only_model", only, "verl.contents")
    draft.derive("save.full_gather", "hf_model" in contents, "verl.contents")
