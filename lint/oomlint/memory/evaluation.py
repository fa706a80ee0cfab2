"""Evaluation: a forward pass without gradients, the logits that are kept, generated text."""

from __future__ import annotations

from oomlint.memory.buffers import comm_buffers
from oomlint.memory.facts import Facts
from oomlint.memory.layers import widest
from oomlint.memory.logits import evaluated_logits
from oomlint.memory.step import Point, highest, stack_of
from oomlint.memory.units import units_of
from oomlint.plan.library_changes import LAST_LOGITS


def is_evaluated(f: Facts) -> bool:
    """Whether the run evaluates, unless its files say that it does not."""
    return f.plan.eval.enabled is not False and f.plan.eval.strategy != "no"


def evaluation_point(f: Facts, idle: Point) -> Point:
    """The highest instant of evaluation; ``idle`` is what is alive between steps."""
    ranks, samples = f.ranks, f.samples
    if not is_evaluated(f) or _is_by_engine(f):
        return idle
    model = f.model
    assert model is not None
    stack = stack_of(f)
    share = samples.eval_rows / samples.rows if samples.rows else 1.0
    tokens = samples.tokens * share
    scores = stack.scores * share
    layer = max([widest(p.inference, tokens, scores) for p in stack.walk.kinds])
    written = samples.written * share
    head = evaluated_logits(f, written)
    kept = kept_logits(f, written)[0]
    window = 0.0
    if ranks.backend in ("fsdp1", "fsdp2"):
        window = 3.0 * f.bytes_per.stream * units_of(f).largest
    elif ranks.backend == "zero":
        window = comm_buffers(f).forward
    layer = max(layer, head.norm)
    if f.plan.eval.caches:
        layer += _kept_keys_and_values(f, tokens)
    by_loss = Point(idle.gradients, layer, head.loss + kept, idle.communication + window, 0.0)
    if not generates(f):
        return by_loss
    if ranks.backend == "fsdp1":
        # Seq2SeqTrainer generates under summon_full_params: the whole model on every rank
        # (transformers 5.23 trainer_seq2seq.py prediction_step).
        window = f.bytes_per.stream * model.numel / ranks.tp
    first = first_logits(f, samples.eval_rows, samples.eval_rows * samples.length)
    written = samples.eval_rows * (samples.length + (f.plan.eval.max_new_tokens or 0))
    cache = key_value_cache(f, written)
    by_writing = Point(idle.gradients, layer + cache, first, idle.communication + window, 0.0)
    return highest([by_loss, by_writing])


# Of an evaluation set of unknown size: what it is at least.
_BATCHES = 16


def kept_logits(f: Facts, tokens: float) -> tuple[float, float]:
    """Bytes of the fp32 logits that evaluation keeps on each GPU and in the RAM of a node, where a
    batch of a rank has ``tokens``.

    evaluation_loop gathers those of all ranks on every GPU, for eval_accumulation_steps batches; those of
    the batches before are in RAM then, with every rank (transformers 5.23 trainer.py:3010-3045). Without that
    setting the whole evaluation set stays on the GPU.
    """
    model, settings = f.model, f.plan.eval
    if model is None or not settings.keeps_logits or not is_evaluated(f):
        return 0.0, 0.0
    ranks = f.ranks.world if f.ranks.backend in _GATHERED else 1
    batch = 4.0 * model.vocab * tokens * ranks
    whole = 0.0
    if settings.samples is not None:
        whole = 4.0 * model.vocab * settings.samples * f.samples.length
    steps = settings.accumulation_steps
    if steps is None:
        return max(whole, batch) if whole else batch * _BATCHES, 0.0
    return batch * steps, whole * min(f.ranks.per_node, ranks)


# Backends whose ranks are copies that see data of their own.
_GATHERED = ("ddp", "zero", "fsdp1", "fsdp2")


def _is_by_engine(f: Facts) -> bool:
    """Whether evaluation is generation alone, by an engine beside the model."""
    engine = f.plan.objective.rollout.engine
    return bool(f.plan.eval.generate) and engine not in (None, "none", "hf")


def generates(f: Facts) -> bool:
    """Whether evaluation writes text with the trained model itself, not with an engine beside."""
    return bool(f.plan.eval.generate) and f.plan.objective.rollout.engine in (None, "none", "hf")


def first_logits(f: Facts, rows: float, prompt: float) -> float:
    """Bytes of the logits with which generation begins, the most that it makes at once: of the last
    token of each row (transformers 5.23 generation/utils.py:2954, logits_to_keep = 1), and of the
    ``prompt`` tokens of all rows where the library is older."""
    model = f.model
    assert model is not None
    projects_all = (
        f.older(LAST_LOGITS.package, LAST_LOGITS.since) and not model.traits.projects_last
    )
    tokens = prompt if projects_all else rows
    wide = 0.0 if f.plan.loss.upcast_fp32 is False else 4.0
    return (f.bytes_per.compute + wide) * model.vocab / f.ranks.tp * tokens


def _kept_keys_and_values(f: Facts, tokens: float) -> float:
    """Bytes of the cache that a model hands back with its logits; layers that bitsandbytes packed give what is as wide
    as they got it (bitsandbytes nn/modules.py Linear4bit.forward, ``out.to(inp_dtype)``)."""
    regime = f.regime
    assert regime is not None
    is_wide = regime.quantised and regime.stream == 4
    return key_value_cache(f, tokens) * (4 / f.bytes_per.compute if is_wide else 1)


def key_value_cache(f: Facts, tokens: float) -> float:
    """Bytes of the keys and values of ``tokens`` tokens, those of prompts and answers.

    Two tensors of key heads x head size an element and layer (arXiv 2211.05102, section 3.1);
    latent attention caches its compressed vector and the rotated key part alone
    (transformers 5.23 models/deepseek_v3/modeling_deepseek_v3.py).
    """
    ranks = f.ranks
    model = f.model
    assert model is not None
    if model.mla is not None:
        _, rank, _, rope, _ = model.mla
        width = float(rank + rope)
    else:
        width = model.kv_heads * (model.head_dim + model.value_dim) / ranks.tp
    return f.bytes_per.compute * width * tokens / ranks.cp * model.layers / ranks.pp
