"""What verl's trainers make of their keys, and how these say a wish.

Read from verl 0.8.0.dev (b178a3cd, 2026-01-29); ``VL`` below is its ``verl`` package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from oomlint import datasets
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import shared
from oomlint.dialects.common.offloading import to_cpu
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.meaning import Bounds, Meaning, Said, Wishes
from oomlint.dialects.setting import Setting
from oomlint.dialects.verl.batches import batches
from oomlint.dialects.verl.engine import fsdp_version, is_megatron, running_trainer
from oomlint.dialects.verl.keys import PPO_SOURCE, SFT_SOURCE, SOURCE, own
from oomlint.dialects.verl.refusals import refusals
from oomlint.dialects.verl.releases import (
    CHECKPOINTS,
    ENTROPY_BY_COEFF,
    NEEDS_VLLM,
    SLEEP_BY_KEY,
    UNPADS,
    VLLM_COUNTS_OWN,
    VLLM_SLEEPS,
)
from oomlint.dialects.verl.sharding import sharding
from oomlint.documents.base import UNKNOWN
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange

meaning = Meaning(sharding, batches, refusals)

_NEWER_KEYS = (f.batch.micro, f.objective.rollout.rollout_micro_batch, own.unpads, own.dynamic)


@meaning.requires
def releases(run: Cells) -> Iterator[Bounds]:
    """Micro batches by GPU, by tokens and without padding came with 0.2 (verl 0.1 and 0.2
    trainer/config/ppo_trainer.yaml)."""
    if _is_ppo(run) and any(run.says(key) for key in _NEWER_KEYS):
        yield "verl", CHECKPOINTS.since, ()


def _is_ppo(run: Cells) -> bool:
    return running_trainer(run) == "ppo"


# -- the models of PPO -----------------------------------------------------------------------------

_O = f.objective

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


@meaning.derive(_O.kind)
def objective(run: Cells) -> Any:
    if not _is_ppo(run):
        return "sft"
    estimator = run[own.estimator]
    return None if estimator is None else _KINDS.get(estimator, "grpo")


@meaning.derive(_O.critic)
def critic(run: Cells) -> Any:
    if not _is_ppo(run):
        return None
    if run[own.critic_params_off] and run[own.critic_optimizer_off]:
        return "none"  # it is on the CPU while the actor trains, and the other way round
    wanted = run[own.critic_enabled]
    if wanted is None:
        wanted = run[own.estimator] == "gae"
    return run[own.critic] or run[f.model.id] if wanted else "none"


def _reference(run: Cells) -> str:
    """Its log probabilities come from a phase of their own. FSDP's reference policy is always on
    the CPU (workers/fsdp_workers.py:526), Megatron's where it is asked to."""
    if not _is_ppo(run) or not (run[own.kl_in_reward] or run[own.kl_loss]):
        return "none"
    if _has_adapters(run):
        return "shared_adapter_off"
    return "precomputed" if not is_megatron(run) or run[own.ref_offload] else "copy"


@meaning.derive(_O.ref_model, source=f"{SOURCE} trainer/ppo/utils.py:72")
def reference_model(run: Cells) -> Any:
    return _reference(run)


@meaning.derive(_O.ref_dtype)
def reference_dtype(run: Cells) -> Any:
    return "bf16" if _reference(run) == "copy" else None


@meaning.derive(
    shared.stops, source="verl 0.5.0 single_controller/ray/base.py get_placement_groups"
)
def waits_for_others(run: Cells) -> Any:
    """``trainer.device`` names what Ray is asked for; every machine that is judged here has GPUs of NVIDIA or AMD."""
    if run[own.device] != "npu":
        return None
    return "trainer.device asks Ray for NPUs, for which the workers wait without end on GPUs"


@meaning.derive(_O.reward_model, source=f"{SOURCE} workers/fsdp_workers.py:1755")
def reward_model(run: Cells) -> Any:
    """FSDP's worker always keeps its weights on the CPU, Megatron's where it is asked to."""
    if not _is_ppo(run):
        return None
    stays = run[own.rewards] and is_megatron(run) and not run[own.reward_offload]
    return run[own.reward_path] or run[f.model.id] if stays else "none"


@meaning.default(_O.rollout.engine, source="verl's examples: rollout.name is mandatory")
def rollout_engine(run: Cells) -> Any:
    return "vllm_colocate" if _is_ppo(run) else None


@meaning.override(
    _O.rollout.engine,
    source=f"{SOURCE} experimental/fully_async_policy: rollouts have GPUs of their own",
)
def generates_elsewhere(run: Cells) -> Any:
    return "vllm_server" if _is_ppo(run) and run[own.hybrid] is False else None


@meaning.derive(
    launch.pool,
    source="verl 0.6 to 0.8 experimental/fully_async_policy and one_step_off_policy: create_resource_pool_manager",
)
def pool_of_groups(run: Cells) -> Any:
    """Rollouts that do not share the trainer's GPUs take theirs first; ``_check_resource_available`` refuses the trainer
    what is not left. None where either may lie on other nodes."""
    trainers, rollouts = run[f.parallel.gpus_per_node], run[own.rollout_gpus]
    if run[own.hybrid] is not False or trainers is None or rollouts is None:
        return None
    one_node = run[f.parallel.nodes] == 1 and (run[own.rollout_nodes] or 1) == 1
    return trainers + rollouts if one_node else None


@meaning.derive(
    _O.rollout.share_of,
    source="verl 0.2 third_party/vllm/vllm_v_0_6_3/worker.py; vllm 0.8 v1/worker/gpu_worker.py",
)
def share_of(run: Cells) -> Any:
    """verl runs vLLM up to 0.6.3 by workers of its own."""
    if not _is_ppo(run) or run[_O.rollout.engine] != "vllm_colocate":
        return None
    if not _vllm_has(run, VLLM_SLEEPS):
        return "free"
    # Who carries a verl of some day may have the vLLM of that day: the extras of 0.3.0.post1 to 0.5.0 allow no 0.9.
    is_carried = run[own.fsdp_vllm_sleeps] is not None or run[own.megatron_vllm_sleeps] is not None
    return "card" if _vllm_has(run, VLLM_COUNTS_OWN, noted=is_carried) else "process"


def _vllm_has(run: Cells, change: LibraryChange, *, noted: bool = False) -> bool:
    """Who runs a model that came later has a newer engine than the files allow that came with the copy of verl."""
    model = str(run[f.model.id] or "").lower()
    needed = (since for named, since in NEEDS_VLLM.items() if re.search(named, model))
    return change.since <= max(needed, default=()) or run.has(change, noted=noted)


_SLEEPS: dict[tuple[str, str | None], bool] = {
    ("fsdp", "vllm_colocate"): own.fsdp_vllm_sleeps,
    ("fsdp", "sglang"): own.fsdp_sglang_sleeps,
    ("megatron", "vllm_colocate"): own.megatron_vllm_sleeps,
    ("megatron", "sglang"): own.megatron_sglang_sleeps,
}


@meaning.override(
    _O.rollout.sleep, source="verl 0.2 to 0.4.1 workers/sharding_manager: nobody asks the key"
)
def sleeps_anyway(run: Cells) -> Any:
    """A copy of verl says itself whether the key counts; else the release does."""
    if not _is_ppo(run) or run.base(_O.rollout.sleep) is not False:
        return None
    engine = run[_O.rollout.engine]
    if engine == "vllm_colocate" and not _vllm_has(run, VLLM_SLEEPS):
        return None
    copy = _SLEEPS.get(("megatron" if is_megatron(run) else "fsdp", engine))
    said = None if copy is None else run[copy]
    if said is None:
        said = copy is not None and not run.has(SLEEP_BY_KEY)
    return True if said else None


# -- what is trained -------------------------------------------------------------------------------

meaning.always(f.quant.method, "none", f"{SOURCE} workers/fsdp_workers.py")
meaning.cannot_say("verl trains no quantized weights", f.quant.method)


def _has_adapters(run: Cells) -> bool:
    return run[f.trainable.r] is not None or run[own.adapter] is not None


@meaning.derive(f.trainable.method)
def method(run: Cells) -> Any:
    if run.is_unread(f.trainable.r):
        return None
    return "lora" if _has_adapters(run) else "full"


@meaning.said(f.trainable.targets, f.trainable.alpha)
def of_adapters(run: Cells, field: Any, said: Said) -> Said:
    """Without a rank they say nothing."""
    counts = run.mentions(f.trainable.r) or _has_adapters(run)
    return None if isinstance(said, Setting) and not counts else said


@meaning.default(f.trainable.alpha, f.trainable.targets, source=PPO_SOURCE)
def adapter_defaults(run: Cells) -> Any:
    if not is_adapter_run(run):
        return None
    return {f.trainable.alpha: 16.0, f.trainable.targets: "all_linear"}


@meaning.default(f.trainable.dropout, source="peft LoraConfig")
def dropout(run: Cells) -> Any:
    return 0.0 if is_adapter_run(run) else None


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

meaning.constant(f.optimizer.name, "AdamW", f"{SOURCE} workers/config/optimizer.py:96")


@meaning.derive(f.optimizer.kind)
def optimizer(run: Cells) -> Any:
    return _OPTIMIZERS.get(str(run[f.optimizer.name]).lower(), "other")


_CLASS_OF = {
    ("adamw", 1): ("AdamW", "torch.optim"),
    ("adamw", 2): ("AdamW", "torch.optim"),
    ("adamw8bit", 1): ("AdamW8bit", "bitsandbytes.optim"),
    ("adamw8bit", 2): ("AdamW8bit", "torchao.optim"),
    ("adamw4bit", 2): ("AdamW4bit", "torchao.optim"),
    ("paged_adamw8bit", 1): ("PagedAdamW8bit", "bitsandbytes.optim"),
    ("lion", 1): ("Lion", "bitsandbytes.optim"),
}


@optimizer.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if is_megatron(run):
        raise CannotEdit("Megatron has Adam and SGD")
    version = fsdp_version(run)
    named = _CLASS_OF.get((kind, version))
    if named is None:
        raise CannotEdit(f"no {kind} optimizer is known to work on FSDP{version} weights in verl")
    return {f.optimizer.name: named[0], own.optimizer_impl: named[1]}


@meaning.derive(
    f.model.mtp_layers,
    source="verl b178a3cd workers/megatron_workers.py:156, workers/fsdp_workers.py:365",
)
def later_tokens(run: Cells) -> Any:
    """Megatron's actor builds as many layers as the checkpoint has; else all are left out."""
    dims = run[f.model.dims]
    return dims.mtp_layers if run[own.mtp] and is_megatron(run) and dims is not None else None


@meaning.derive(f.optimizer.fused)
def is_fused(run: Cells) -> Any:
    return is_megatron(run)


meaning.cannot_say("verl has no key for a fused optimizer", f.optimizer.fused)


@meaning.derive(f.optimizer.foreach)
def is_foreach(run: Cells) -> Any:
    return not is_megatron(run) and (run[own.optimizer_impl] or "torch.optim") == "torch.optim"


# -- activations -----------------------------------------------------------------------------------

meaning.constant(f.model.attn_impl, "flash2", f"{SOURCE} workers/fsdp_workers.py:303")


@meaning.written(f.model.attn_impl)
def _(implementation: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not run.says(f.model.attn_impl):
        raise CannotEdit("verl uses FlashAttention 2 unless override_config says otherwise")
    return {f.model.attn_impl: implementation}


@meaning.override(f.checkpointing.mode)
def recomputed_by_megatron(run: Cells) -> Any:
    """The switch of model.* is FSDP's; Megatron has its own (override_transformer_config)."""
    if not is_megatron(run):
        return None
    return {"full": "full", "selective": "selective_op"}.get(run[own.recompute] or "", "none")


@recomputed_by_megatron.written
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode not in ("full", "none"):
        raise CannotEdit("verl checkpoints every layer or none")
    if is_megatron(run):
        raise CannotEdit("Megatron's recomputation is set under override_transformer_config")
    return {f.checkpointing.mode: mode}


@meaning.derive(f.checkpointing.source)
def recomputed_by(run: Cells) -> Any:
    return "megatron" if is_megatron(run) else None


@meaning.derive(f.checkpointing.every_n)
def recomputed_layers(run: Cells) -> Any:
    return run[own.recompute_layers] or None if is_megatron(run) else None


meaning.constant(f.checkpointing.reentrant, False, f"{SOURCE} workers/fsdp_workers.py")
meaning.constant(f.offload.activations, "none", SFT_SOURCE)


meaning.takes(f.checkpointing.offload, f.offload.activations)


@meaning.written(f.checkpointing.offload, f.offload.activations)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    to_cpu(device, "verl offloads activations")
    if is_megatron(run):
        raise CannotEdit("enable_activation_offload is a setting of verl's FSDP workers")
    return {f.offload.activations: device}


# -- sequences and loss ----------------------------------------------------------------------------


@meaning.derive(f.seq.max_len)
def length(run: Cells) -> Any:
    prompt, response = run[_O.rollout.max_prompt_tokens], run[_O.rollout.max_completion_tokens]
    return prompt + response if _is_ppo(run) and prompt and response else None


@length.written
def _(length: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not _is_ppo(run):
        return {f.seq.max_len: length}
    rest = length - (run[_O.rollout.max_prompt_tokens] or length)
    if rest < 1:
        raise CannotEdit("the prompts alone are longer: lower data.max_prompt_length")
    return {_O.rollout.max_completion_tokens: rest}


@meaning.default(own.unpads, source=UNPADS.source)
def unpads_by_default(run: Cells) -> Any:
    """Megatron's actor packs by a key of its own."""
    if not _is_ppo(run):
        return None
    return True if is_megatron(run) or run.has(UNPADS) else UNPADS.was


@meaning.derive(f.seq.packing, f.seq.pad)
def padding(run: Cells) -> Any:
    unpads = bool(run[own.megatron_unpads if is_megatron(run) else own.unpads])
    if running_trainer(run) == "sft":
        # Without sequence parallelism the forward pass runs on padded rows all the same.
        unpads = unpads and (run[f.parallel.ulysses] or 1) > 1
    return {
        f.seq.packing: "varlen" if unpads else "none",
        f.seq.pad: "none" if unpads else "max_len",
    }


@meaning.derive(f.loss.logits_materialised)
def logits(run: Cells) -> Any:
    return "fused" if run[own.fused] else "full"


@logits.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind != "fused" or running_trainer(run) == "sft":
        raise CannotEdit("verl leaves the logits out with use_fused_kernels of its engines only")
    if not run[own.unpads]:
        raise CannotEdit("use_fused_kernels needs use_remove_padding=True")
    if run[f.model.arch] in _UNLIKE_OTHERS:
        raise CannotEdit("verl's fused kernels call a model's own parts, which this one has not")
    return {own.fused: True}


# VL/models/transformers/dense_common.py takes the place of a model's forward and calls `self.model` and `self.lm_head`;
# MiniCPM-V and -o of the Hub (modeling_minicpmo.py) have `self.llm`.
_UNLIKE_OTHERS = ("minicpmv", "minicpmo")


@meaning.derive(f.loss.upcast_fp32)
def widens_logits(run: Cells) -> Any:
    """PPO takes log probabilities with flash-attn's kernel, which reads 16-bit logits
    (utils/torch_functional.py); SFT's cross entropy is autocast to float32, and Megatron-core makes
    what its model gives float32 (transformer/module.py Float16Module)."""
    return running_trainer(run) == "sft" or is_megatron(run)


@meaning.derive(f.loss.algorithm, source=f"{SOURCE} workers/actor/dp_actor.py:263")
def overwrites_logits(run: Cells) -> Any:
    """The kernel's backward overwrites the logits."""
    return "in_place" if _is_ppo(run) and not run[own.fused] else None


def _entropy(run: Cells) -> str:
    """Joined samples' is compiled (VL/workers/actor/dp_actor.py), padded ones' never, and Megatron's
    writes out a softmax."""
    compiled = not is_megatron(run) and run[f.seq.packing] == "varlen" and run[own.compiles]
    return "fused" if compiled else "whole"


@meaning.derive(f.loss.entropy, source=f"{SOURCE} workers/actor/dp_actor.py update_policy")
def entropy_of_update(run: Cells) -> Any:
    if not _is_ppo(run) or run[own.fused]:
        return None
    wanted = (
        run[own.entropy] or run[own.entropy_for_logs] or not run.has(ENTROPY_BY_COEFF, noted=False)
    )
    return _entropy(run) if wanted else "none"


@meaning.derive(_O.rollout.entropy, source=f"{SOURCE} workers/fsdp_workers.py:1009")
def entropy_of_answers(run: Cells) -> Any:
    """The actor's own log probabilities always come with an entropy; in Megatron's workers from 0.4
    on. A copy of verl may leave it out. Where it is taken in chunks of 2,048 tokens (verl b178a3cd workers/actor/dp_actor.py and
    utils/torch_functional.py), nothing of it is as large as the logits, as in a compiled kernel; an update keeps
    each chunk for backward, and gains nothing."""
    if not _is_ppo(run) or run[own.fused]:
        return None
    if not is_megatron(run):
        if run[own.copy_scores_entropy] is False:
            return "none"
        in_chunks = run[f.seq.packing] == "varlen" and run[own.chunks_entropy]
        return "fused" if in_chunks else _entropy(run)
    return _entropy(run) if run.has(ENTROPY_BY_COEFF, noted=False) else "none"


meaning.always(f.loss.outputs_kept, False, f"{SOURCE} workers/actor/dp_actor.py")


@meaning.derive(f.loss.liger.rope, f.loss.liger.rms, f.loss.liger.swiglu)
def liger(run: Cells) -> Any:
    if not run[own.liger]:
        return None
    return dict.fromkeys((f.loss.liger.rope, f.loss.liger.rms, f.loss.liger.swiglu), True)


# -- data, evaluating, saving ----------------------------------------------------------------------


@meaning.derive(f.data.sets, source=f"{SOURCE} utils/dataset/rl_dataset.py RLHFDataset")
def prompts(run: Cells) -> Any:
    """What the answers are given to, by the names in its paths, or of the variables that only a machine
    fills in (``$gsm8k_train_path``)."""
    block = next((b for b in reversed(run.blocks) if b.find(_PROMPTS) is not None), None)
    entry = None if block is None else block.find(_PROMPTS)
    if block is None or entry is None or not _is_ppo(run):
        return None
    span, value = entry.value.span, block.value(entry.value)
    written = block.document.source.text[span.start : span.end] if value is UNKNOWN else str(value)
    return tuple(map(_named, re.findall(r"[^\s,\[\]\"']+", written))) or None


_PROMPTS = "data.train_files"


def _named(path: str) -> str:
    """The set that a path, or a variable's name, has in it; the path itself where nobody knows one."""
    words = re.findall(r"[a-z0-9]+", path.lower())
    return next((word for word in words if datasets.find(word) is not None), path)


@meaning.derive(f.data.workers, source=f"{SOURCE} trainer/fsdp_sft_trainer.py:179")
def workers(run: Cells) -> Any:
    return None if _is_ppo(run) else 8


@workers.written
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not _is_ppo(run):
        raise CannotEdit("verl's SFT trainers always take eight workers")
    return {f.data.workers: count}


@meaning.derive(f.eval.enabled, f.eval.strategy, f.eval.every)
def evaluation(run: Cells) -> Any:
    every = run[own.test_freq]
    if every is None or every == -1:
        return {f.eval.enabled: False, f.eval.strategy: "no"}
    if every <= 0:
        return {f.eval.enabled: True, f.eval.strategy: "epoch"}
    return {f.eval.enabled: True, f.eval.strategy: "steps", f.eval.every: every}


meaning.always(f.eval.keeps_logits, False, f"{SOURCE} trainer")


@meaning.derive(f.eval.generate)
def generates(run: Cells) -> Any:
    return _is_ppo(run)


@meaning.derive(f.save.strategy, f.save.every)
def saving(run: Cells) -> Any:
    every = run[own.save_freq]
    if every and every > 0:
        return {f.save.strategy: "steps", f.save.every: every}
    return {f.save.strategy: "no" if every == -1 and _is_ppo(run) else "end"}


@meaning.written(f.save.every)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.save_freq: int(steps)}


meaning.constant(f.save.keep, "all", PPO_SOURCE)


@meaning.derive(f.save.contents, f.save.save_only_model, f.save.full_gather)
def saved(run: Cells) -> Any:
    contents = run[own.contents] or ("model", "optimizer", "extra")
    kept = "adapter" if is_adapter_run(run) else "model"
    only = "optimizer" not in contents
    return {
        f.save.contents: (kept,) if only else (kept, "optimizer"),
        f.save.save_only_model: only,
        f.save.full_gather: "hf_model" in contents,
    }


meaning.cannot_say(
    "remove 'optimizer' from checkpoint.save_contents by hand", f.save.save_only_model
)
