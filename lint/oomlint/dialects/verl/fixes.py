"""How verl's configs say what a fix wants, and what they cannot say.

Read from verl 0.8.0.dev (b178a3cd, 2026-01-29); ``VL`` below is its ``verl`` package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.base import Way, Wishes, follows
from oomlint.dialects.draft import Draft
from oomlint.dialects.verl.effects import is_megatron, running_trainer
from oomlint.errors import CannotEdit

NO_WAY = {
    "parallel.zero.stage": "verl shards with FSDP or Megatron, not with DeepSpeed",
    "load.zero3_init": "verl shards with FSDP or Megatron, not with DeepSpeed",
    "load.cpu_ram_efficient": "verl loads weights on one rank only by itself, unless they are tied",
    "quant.method": "verl trains no quantized weights",
    "optimizer.fused": "verl has no key for a fused optimizer",
    "offload.pin_memory": "verl has no key for pinned memory",
    "batch.eval_micro": "verl has no batch size of its own for validation",
    "save.save_only_model": "remove 'optimizer' from checkpoint.save_contents by hand",
}


def _express_micro(micro: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if draft.get("verl.dynamic"):
        length = draft.get("seq.max_len")
        if length is None:
            raise CannotEdit("the token budget depends on a length that is not known here")
        return {"verl.max_tokens": -(-micro * length // (draft.get("parallel.ulysses") or 1))}
    if draft.says("verl.micro_of_all"):
        dp = draft.get("parallel.dp")
        if dp is None:
            raise CannotEdit("ppo_micro_batch_size depends on the number of GPUs")
        return {"verl.micro_of_all": micro * dp}
    return {"batch.micro": micro}


def _express_tokens(tokens: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if not draft.get("verl.dynamic"):
        raise CannotEdit("a token budget counts only with use_dynamic_bsz")
    return {"verl.max_tokens": max(1, tokens // (draft.get("parallel.ulysses") or 1))}


def _express_accumulation(steps: Any, draft: Draft, changes: Wishes) -> dict[str, Any]:
    """Micro batch x accumulation x ranks is the mini batch, which a fix leaves as it is."""
    micro = changes.get("batch.micro", draft.get("batch.micro"))
    before = draft.get("batch.micro"), draft.get("batch.grad_accum")
    if None in (micro, *before):
        raise CannotEdit("gradient accumulation follows from the number of GPUs")
    if steps * micro != before[0] * before[1]:
        raise CannotEdit("gradient accumulation follows from the mini batch in verl")
    return {}


def _express_checkpointing(mode: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if mode not in ("full", "none"):
        raise CannotEdit("verl checkpoints every layer or none")
    if is_megatron(draft):
        raise CannotEdit("Megatron's recomputation is set under override_transformer_config")
    return {"checkpointing.mode": mode}


def _express_offload(device: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if device not in ("cpu", "none"):
        raise CannotEdit("verl offloads to the CPU or not at all")
    if running_trainer(draft) == "sft":
        if draft.get("parallel.backend") != "fsdp1":
            raise CannotEdit("fsdp_config.cpu_offload works with model.strategy=fsdp only")
        return {"verl.cpu_offload": device == "cpu", "verl.param_offload": device == "cpu"}
    if draft.get("parallel.backend") != "fsdp2":
        raise CannotEdit(
            "only offload_policy under strategy=fsdp2 keeps states on the CPU while verl trains; "
            "param_offload and optimizer_offload make room for the rollout alone"
        )
    return {"parallel.fsdp.cpu_offload": device == "cpu"}


def _express_activations(device: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if device not in ("cpu", "none"):
        raise CannotEdit("verl offloads activations to the CPU only")
    if is_megatron(draft):
        raise CannotEdit("enable_activation_offload is a setting of verl's FSDP workers")
    return {"offload.activations": device}


def _express_loss(kind: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if kind != "fused" or running_trainer(draft) == "sft":
        raise CannotEdit("verl leaves the logits out with use_fused_kernels of its engines only")
    if not draft.get("verl.unpads"):
        raise CannotEdit("use_fused_kernels needs use_remove_padding=True")
    return {"verl.fused": True}


def _express_attention(implementation: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if not draft.says("model.attn_impl"):
        raise CannotEdit("verl uses FlashAttention 2 unless override_config says otherwise")
    return {"model.attn_impl": implementation}


_CLASS_OF = {
    ("adamw", 1): ("AdamW", "torch.optim"),
    ("adamw", 2): ("AdamW", "torch.optim"),
    ("adamw8bit", 1): ("AdamW8bit", "bitsandbytes.optim"),
    ("adamw8bit", 2): ("AdamW8bit", "torchao.optim"),
    ("adamw4bit", 2): ("AdamW4bit", "torchao.optim"),
    ("paged_adamw8bit", 1): ("PagedAdamW8bit", "bitsandbytes.optim"),
    ("lion", 1): ("Lion", "bitsandbytes.optim"),
}


def _express_optimizer(kind: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if is_megatron(draft):
        raise CannotEdit("Megatron has Adam and SGD")
    version = draft.get("parallel.fsdp.version")
    named = _CLASS_OF.get((kind, version))
    if named is None:
        raise CannotEdit(f"no {kind} optimizer is known to work on FSDP{version} weights in verl")
    return {"optimizer.name": named[0], "verl.optimizer_impl": named[1]}


def _express_length(length: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if running_trainer(draft) != "ppo":
        return {"seq.max_len": length}
    rest = length - (draft.get("objective.rollout.max_prompt_tokens") or length)
    if rest < 1:
        raise CannotEdit("the prompts alone are longer: lower data.max_prompt_length")
    return {"objective.rollout.max_completion_tokens": rest}


def _express_save_every(steps: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    return {"verl.save_freq": int(steps)}


def _express_state_dict(kind: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if kind != "sharded":
        raise CannotEdit("verl saves shards; hf_model in save_contents adds the whole model")
    return {}


def _express_weights(dtype: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if is_megatron(draft) or dtype not in ("bf16", "fp16", "fp32"):
        raise CannotEdit(f"verl cannot hold these weights in {dtype}")
    return {"load.dtype": dtype}


def _express_workers(count: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if running_trainer(draft) != "ppo":
        raise CannotEdit("verl's SFT trainers always take eight workers")
    return {"data.workers": count}


def _express_idle(device: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    return dict.fromkeys(("verl.param_offload", "verl.optimizer_offload"), device == "cpu")


WAYS: dict[str, Way] = {
    "offload.idle": _express_idle,
    "batch.micro": _express_micro,
    "batch.max_tokens_per_gpu": _express_tokens,
    "batch.grad_accum": _express_accumulation,
    "checkpointing.mode": _express_checkpointing,
    "checkpointing.offload": _express_activations,
    "offload.activations": _express_activations,
    "offload.params": _express_offload,
    "offload.optimizer": _express_offload,
    "loss.logits_materialised": _express_loss,
    "model.attn_impl": _express_attention,
    "optimizer.kind": _express_optimizer,
    "seq.max_len": _express_length,
    "save.every": _express_save_every,
    "parallel.fsdp.state_dict": _express_state_dict,
    "precision.param": _express_weights,
    "precision.optim_state": follows,
    "data.workers": _express_workers,
}
