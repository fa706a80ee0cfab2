"""What OpenRLHF's trainers make of their options.

Read from OpenRLHF 3c3be623 (0.11.0, 2026-08-13) and the tags v0.3.8 to v0.10.4; ``OR`` below is
``openrlhf/``. DeepSpeed trains every model; its config is made up from options
(OR/utils/deepspeed/deepspeed_utils.py), no file is read.
"""

from __future__ import annotations

from oomlint.dialects.draft import Draft
from oomlint.dialects.law import (
    finish_backend,
    finish_batch,
    finish_deepspeed,
    finish_quant,
    finish_trainer_precision,
    finish_world,
    is_adapter_run,
)
from oomlint.dialects.machine.ranks import finish_launch
from oomlint.dialects.openrlhf.keys import CLI, KEY_OF, OLD_CLI

_STRATEGY = "OpenRLHF 3c3be623 utils/deepspeed"


def program_of(draft: Draft) -> tuple[str, bool]:
    keys = (KEY_OF.get(block.table.name) for block in draft.blocks)
    return next((key for key in keys if key), ("sft", True))


def finish_ranks(draft: Draft, program: str) -> None:
    """Ray starts the actor's processes; its GPUs are counted per node (OR/trainer/ray)."""
    if program == "ppo_ray":
        draft.derive("parallel.gpus_per_node", draft.get("or.actor_gpus") or 8, "or.actor_gpus")
        draft.derive("parallel.nodes", draft.get("or.actor_nodes") or 1, "or.actor_nodes")
    else:
        finish_launch(draft)
    finish_world(draft)


# algo.advantage.estimator: only gae needs a critic (OR/cli/train_ppo_ray.py).
_ESTIMATORS = {"gae": "ppo", "rloo": "rloo"}
_KINDS = {"dpo": "dpo", "rm": "rm", "kto": "kto", "kd": "distill", "prm": "sft"}


def finish_objective(draft: Draft, program: str) -> None:
    kind: str | None = _KINDS.get(program, "sft")
    if program == "sft" and draft.get("or.pretrain_mode"):
        kind = "pretrain"
    if program.startswith("ppo"):
        kind = _ESTIMATORS.get(str(draft.get("or.estimator") or "gae"), "grpo")
    draft.derive("objective.kind", kind, "or.estimator", "or.pretrain_mode")
    pairs = 2 if program in ("dpo", "rm") else 1
    draft.derive(
        "objective.pairs_per_sample", pairs, source=f"{CLI}: chosen and rejected in one batch"
    )
    # OR/cli/train_dpo.py:42: a model of its own, for LoRA too.
    beside = program in ("dpo", "kto")
    if program.startswith("ppo"):
        shares = draft.get("or.colocate_all") or draft.get("or.colocate_ref") or program == "ppo"
        beside = bool(shares) and draft.get("or.kl") != 0
    on_cpu = draft.get("or.ref_offload") or draft.get("or.ref_reward_offload")
    inputs = ("or.ref_offload", "or.colocate_all", "or.kl")
    draft.derive("objective.ref_model", "copy" if beside and not on_cpu else "none", *inputs)
    draft.derive("objective.teacher", draft.get("or.teacher"), "or.teacher")
    if not program.startswith("ppo"):
        return
    together = draft.get("or.colocate_all") or program == "ppo"
    remote = draft.get("or.reward_url") is not None
    if together and not remote and not draft.get("or.ref_reward_offload"):
        draft.derive("objective.reward_model", draft.get("or.reward"), "or.reward")
    if together and kind == "ppo":
        critic = draft.get("or.critic") or draft.get("or.reward") or draft.get("model.id")
        draft.derive("objective.critic", critic, "or.critic", "or.reward")
    _finish_rollout(draft)


def _finish_rollout(draft: Draft) -> None:
    rollout = "objective.rollout."
    engines = draft.get("or.engines")
    # OR/cli/train_ppo_ray.py:667: asynchronous training colocates all but the engines.
    shares = draft.get("or.colocate_all") and not draft.get("or.async")
    if engines and shares:
        draft.derive(rollout + "engine", "vllm_colocate", "or.engines", "or.colocate_all")
        draft.derive(rollout + "sleep", draft.get("or.vllm_sleep"), "or.vllm_sleep")
    else:
        draft.derive(rollout + "engine", "vllm_server" if engines else "hf", "or.engines")
    if engines:
        draft.default(rollout + "gpu_mem_util", 0.95, f"{CLI}: vllm.gpu_memory_utilization")
        draft.default(rollout + "tp", 1, f"{CLI}: vllm.tensor_parallel_size")
    draft.default(rollout + "n", 1, f"{CLI}: rollout.n_samples_per_prompt")
    if draft.get("or.dynamic_batch"):
        limit = draft.get("or.max_tokens") or 16192
        draft.derive("batch.max_tokens_per_gpu", limit, "or.max_tokens", "or.dynamic_batch")


def finish_trainable(draft: Draft) -> None:
    asked = 4 if draft.get("or.load_4bit") else None
    draft.derive("quant.requested_bits", asked, "or.load_4bit")
    finish_quant(draft, bits=asked)
    rank = draft.get("or.lora_rank")
    if draft.is_unknown("or.lora_rank"):
        return
    if not rank:
        draft.derive("trainable.method", "full", "or.lora_rank")
        for name in ("alpha", "dropout"):
            draft.forget(f"trainable.{name}")
        return
    four = draft.get("quant.method") == "bnb4"
    draft.derive("trainable.method", "qlora" if four else "lora", "or.lora_rank", "or.load_4bit")
    draft.derive("trainable.r", rank, "or.lora_rank")
    named = draft.get("or.targets")
    targets = "all_linear" if named == ("all-linear",) else named
    draft.derive("trainable.targets", targets, "or.targets")
    if four:
        draft.default("quant.double", True, "OpenRLHF 3c3be623 models/actor.py:120")
        draft.derive("quant.compute_dtype", "bf16", "or.load_4bit")
        draft.derive("quant.prepares_kbit", False, "or.load_4bit")


def finish_zero(draft: Draft) -> None:
    draft.derive("deepspeed.enabled", True, source=_STRATEGY)
    finish_backend(draft)
    source = f"{_STRATEGY}/deepspeed_utils.py: auto, so DeepSpeed's own"
    for name, value in (
        ("reduce_bucket_elems", 500_000_000),
        ("allgather_bucket_elems", 500_000_000),
        ("prefetch_elems", 50_000_000),
        ("persistence_threshold", 100_000),
        ("max_live_params", 1_000_000_000),
        ("max_reuse_distance", 1_000_000_000),
        ("sub_group_elems", 1_000_000_000),
        ("contiguous_grads", True),
        ("gather16_on_save", False),
    ):
        draft.default(f"parallel.zero.{name}", value, source)
    draft.default("offload.pin_memory", True, f"{_STRATEGY}/deepspeed_utils.py")
    # OR/cli/train_ppo_ray.py:348: between its turns the trained model leaves the GPU.
    draft.derive("offload.idle", "cpu" if draft.get("or.sleep") else "none", "or.sleep")
    finish_deepspeed(draft, under_trainer=True)
    stage3 = draft.get("parallel.zero.stage") == 3
    # OR/models/actor.py: HfDeepSpeedConfig opens zero.Init under stage 3.
    draft.default("load.zero3_init", stage3, "OpenRLHF 3c3be623 models/actor.py")
    draft.derive("load.device_map", "none", "parallel.zero.stage")


def finish_accumulation(draft: Draft, program: str, dotted: bool) -> None:
    default = {"rm": 1, "ppo_ray": 1, "ppo": 1}.get(program, 8)
    if not dotted:
        default = 4 if program.startswith("ppo") else 8
    draft.default("batch.micro", default, CLI if dotted else OLD_CLI)
    micro, dp, total = draft.get("batch.micro"), draft.get("parallel.dp"), draft.get("or.batch")
    if micro and dp and total:
        # OR/utils/deepspeed/deepspeed.py:112: ring attention and TP ranks share samples.
        draft.derive(
            "batch.grad_accum", max(1, total // (micro * dp)), "or.batch", "batch.micro",
            "parallel.dp", source=f"{_STRATEGY}/deepspeed.py:112",
        )  # fmt: skip
    draft.derive("batch.eval_micro", micro, "batch.micro")
    finish_batch(draft)


def finish_precision(draft: Draft, dotted: bool) -> None:
    half = draft.get("or.dtype")
    if half is None:
        half = "bf16" if dotted or draft.get("or.bf16") else None
        if half is None and draft.get("or.dtype") is None and not draft.is_unknown("or.bf16"):
            # Up to 0.9 nothing was 16 bit without --bf16: the checkpoint's own dtype was loaded.
            half = "fp32"
    draft.derive(
        "load.dtype", half, "or.dtype", "or.bf16", source="OpenRLHF 3c3be623 models/actor.py:113"
    )
    finish_trainer_precision(
        draft, amp=str(half if half in ("bf16", "fp16") else "no"), load_dtype=half
    )
    if draft.get("objective.ref_model") == "copy":
        draft.derive("objective.ref_dtype", half, "or.dtype", "or.bf16")
    muon = draft.get("optimizer.name") == "muon"
    draft.derive("optimizer.kind", "muon" if muon else "adamw", "optimizer.name")
    draft.derive(
        "optimizer.fused",
        not muon,
        "optimizer.name",
        source="DeepSpeed FusedAdam or DeepSpeedCPUAdam",
    )
    draft.derive("optimizer.foreach", False, "optimizer.name")


def finish_sequences(draft: Draft, program: str, dotted: bool) -> None:
    _finish_length(draft, program, dotted)
    _finish_attention(draft, dotted)
    _finish_loss(draft)
    draft.derive("checkpointing.offload", "none", "checkpointing.mode")


def _finish_length(draft: Draft, program: str, dotted: bool) -> None:
    source = CLI if dotted else OLD_CLI
    if program.startswith("ppo") and not dotted:
        parts = ("objective.rollout.max_prompt_tokens", "objective.rollout.max_completion_tokens")
        for part in parts:
            draft.default(part, 1024, source)
        prompt, answer = map(draft.get, parts)
        if prompt and answer:
            draft.override("seq.max_len", prompt + answer, *parts)
    usual = 2048 if program in ("sft", "kd") or program.startswith("ppo") else 512
    draft.default("seq.max_len", usual, source)
    joined = "the samples of a micro batch are joined, no more"
    draft.derive("seq.packing", "none", "or.packing", source=joined)


def _finish_attention(draft: Draft, dotted: bool) -> None:
    """OR/cli/train_ppo_ray.py:641-660 and the like: batches by tokens and ring attention need
    packing, and packing FlashAttention, which is switched on."""
    inputs = ("or.packing", "or.dynamic_batch", "parallel.cp")
    packs = any(map(draft.get, inputs[:2])) or (draft.get("parallel.cp") or 1) > 1
    draft.derive("seq.pad", "none" if packs else "longest", *inputs)
    if draft.get("or.flash"):
        draft.derive("model.attn_impl", "flash2", "or.flash")
    if packs and draft.get("model.attn_impl") not in ("flash2", "flash3"):
        draft.override("model.attn_impl", "flash2", *inputs)
    source = CLI if dotted else OLD_CLI
    draft.default("model.attn_impl", "flash2" if dotted else "eager", source)


def _finish_loss(draft: Draft) -> None:
    """OR/models/actor.py:267 keeps all logits and makes them fp32; Liger's model gets no labels."""
    source = "OpenRLHF 3c3be623 models/actor.py:267"
    draft.derive("loss.logits_materialised", "full", "or.liger", source=source)
    if draft.get("objective.kind") != "distill":
        # The same for all objectives (models/utils.py:147); flash-attn is a requirement.
        draft.derive("loss.algorithm", "kernel", "objective.kind", source="OR/models/utils.py:147")
    draft.default("loss.upcast_fp32", True, source)
    for part in ("rope", "rms", "swiglu"):
        draft.derive(f"loss.liger.{part}", bool(draft.get("or.liger")), "or.liger")


def finish_save(draft: Draft) -> None:
    evaluates = draft.get("or.eval_dataset") is not None
    draft.derive("eval.enabled", evaluates, "or.eval_dataset")
    steps = draft.get("or.eval_steps")
    # OR/trainer/sft_trainer.py: -1 means once an epoch.
    draft.derive(
        "eval.strategy",
        ("steps" if steps and steps > 0 else "epoch") if evaluates else "no",
        "or.eval_steps",
    )
    draft.derive("eval.keeps_logits", False, "or.eval_dataset")
    every = draft.get("or.save_steps") or -1
    draft.derive("save.strategy", "steps" if every > 0 else "end", "or.save_steps")
    draft.derive("save.every", float(every) if every > 0 else None, "or.save_steps")
    draft.derive("save.unit", "steps", "or.save_steps")
    contents: tuple[str, ...] = ("adapter",) if is_adapter_run(draft) else ("model",)
    if every > 0 and not draft.get("save.save_only_model"):
        contents = (*contents, "optimizer", "scheduler", "rng")
    draft.derive("save.contents", contents, "or.save_steps", "save.save_only_model")
    # OR/utils/deepspeed/deepspeed.py save_model collects every parameter on rank 0's host.
    draft.derive(
        "save.full_gather",
        True,
        "parallel.zero.stage",
        source=f"{_STRATEGY}/deepspeed.py save_model",
    )
