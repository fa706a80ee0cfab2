"""What the logits of a sampled policy hold where a kernel writes their gradient over them: verl's
actors (workers/actor/dp_actor.py _forward_micro_batch and megatron_actor.py logits_processor, v0.2 to
0.8.0.dev).

FSDP's divides 16-bit logits in place by the temperature, whose gradient is a tensor of its own. Of padded
samples it cuts the answers out, a copy for the kernel, and the cut's gradient is as large as all logits.
The entropy of joined samples is compiled; that of padded ones is not: autocast makes the logits fp32 for
the softmax, which is kept beside them. Bytes an element of the logits were counted on torch 2.13, the
storages of these lines alone.

Megatron's makes the logits fp32 (megatron/core/transformer/module.py Float16Module); both its kernels
write over what they keep, and before the entropy the logits are cloned
(verl utils/megatron/tensor_parallel.py _VocabParallelEntropy).
"""

from __future__ import annotations

from oomlint.memory.facts import Facts


def policy_bytes(f: Facts, tokens: float, wide: float) -> tuple[float, float, float]:
    """What is kept for backward, alive at the loss and at the highest instant of backward."""
    assert f.model is not None
    assert f.regime is not None
    each, e = f.model.vocab / f.ranks.tp * tokens, float(f.regime.compute)
    entropy, part = f.plan.loss.entropy or "none", _answers(f)
    if wide > e:
        if entropy != "none":
            return 3 * wide * each, 3 * wide * each, 3 * wide * each
        return wide * each, (wide + e) * each, 2 * wide * each
    if entropy == "whole" and part < 1:
        kept = e + (e + 4) * part
        return kept * each, (kept + 4 * part) * each, (e + (e + 16) * part) * each
    if entropy == "whole":
        return (e + 4) * each, (e + 8) * each, (e + 16) * each
    if part < 1:
        return e * part * each, e * (1 + part) * each, 2 * e * each
    # The kernel's gradient cannot be written over logits that the entropy needs too.
    return e * each, e * each, (3 if entropy == "fused" else 2) * e * each


def scored_policy(f: Facts, tokens: float, wide: float) -> float:
    """What is alive at most while log-probabilities are taken without gradients."""
    assert f.model is not None
    assert f.regime is not None
    each, e = f.model.vocab / f.ranks.tp * tokens, float(f.regime.compute)
    entropy, part = f.plan.objective.rollout.entropy or "none", _answers(f)
    if wide > e:
        return (3 * wide if entropy != "none" else wide + e) * each
    if entropy == "whole":
        return (e + 8 * part) * each
    return e * (1 + part if part < 1 else 1) * each


def _answers(f: Facts) -> float:
    """The share of padded samples whose logits count; of joined ones all do."""
    rollout, seq = f.plan.objective.rollout, f.plan.seq
    prompt, answer = rollout.max_prompt_tokens, rollout.max_completion_tokens
    is_padded = seq.pad == "max_len" and seq.packing in (None, "none")
    return answer / (prompt + answer) if is_padded and prompt and answer else 1.0
