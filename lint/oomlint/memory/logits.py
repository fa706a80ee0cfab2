"""What the output projection and the loss hold: logits, log-probabilities and their gradients.

Bytes for a token and a word of the vocabulary that stand here without another source were
measured: the loss functions of TRL 1.x, torchtune 0.7, LLaMA-Factory, verl and Megatron-core on
fake CUDA tensors of torch 2.13, every live byte counted (``benchmarks/measure/losses.py``).
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from oomlint.memory.facts import Facts
from oomlint.memory.layers import LayerProfile, head_profile
from oomlint.memory.policy import policy_bytes, scored_policy
from oomlint.plan.library_changes import NARROW_LOGITS, SHIFTED_LABELS
from oomlint.plan.training import HEADLESS, REINFORCING

# Preference losses whose reference model, or model without its adapter, runs after the policy.
_REFERENCED = frozenset({"dpo", "kto"})
# Those that learn the chosen answers besides, as supervised training does; SimPO has the weight of that at nought.
_LEARNS_CHOSEN = frozenset({"orpo", "cpo"})


class Logits(Struct, frozen=True):
    """The head's bytes: what is left for backward, alive at the loss and at the highest instant
    of backward, beside what its norm keeps (``norm``). ``late`` are the instants of backward
    one by one: bytes of the norm, of the logits, and elements of gradients made. ``outputs`` are what the loop
    holds by a name until backward is through, beside the others from there on."""

    kept: float
    loss: float
    early: float
    norm: float
    late: list[tuple[float, float, float]]
    outputs: float = 0.0


_NONE = Logits(0.0, 0.0, 0.0, 0.0, [])


def logits_of(f: Facts, tokens: float) -> Logits:
    """What the output projection and the loss hold for ``tokens`` tokens."""
    known = f.logits.get(tokens)
    if known is None:
        known = f.logits[tokens] = _logits(f, tokens)
    return known


def evaluated_logits(f: Facts, tokens: float) -> Logits:
    """The same where nothing is trained, which may make the logits that training spares."""
    if f.plan.eval.fuses_loss is False:
        return _logits(f, tokens, spares=False)
    return logits_of(f, tokens)


def scored_logits(f: Facts, tokens: float) -> Logits:
    """The same where only the log-probabilities of ``tokens`` tokens are taken; what backward needs
    counts for nothing then."""
    found = logits_of(f, tokens)
    wide = _overwritten(f)
    if wide is not None:
        return replace(found, loss=scored_policy(f, tokens, wide))
    loss = f.plan.loss
    is_plain = loss.algorithm is None and loss.logits_materialised == "full" and loss.upcast_fp32
    if is_plain and f.plan.objective.rollout.entropy == "whole" and f.ranks.backend != "megatron":
        # ROLL 8eb27cc2 roll/utils/functionals.py entropy_from_logits: beside the logits an fp32 copy, its
        # softmax, and the product of both.
        assert f.model is not None
        assert f.regime is not None
        entropy = (float(f.regime.whole) + 12) * f.model.vocab / f.ranks.tp * tokens
        return replace(found, loss=max(found.loss, entropy))
    return found


def _overwritten(f: Facts) -> float | None:
    """Bytes an element of a sampled policy's logits where a kernel writes the gradient over them."""
    loss = f.plan.loss
    if f.model is None or f.regime is None or f.plan.objective.kind not in REINFORCING:
        return None
    is_whole = not (
        loss.cut_ce or loss.liger.flce or loss.logits_materialised not in (None, "full")
    )
    if not (is_whole and loss.algorithm == "in_place"):
        return None
    return 4.0 if loss.upcast_fp32 is not False else float(f.regime.whole)


def _logits(f: Facts, tokens: float, *, spares: bool = True) -> Logits:
    """``spares``: whether the loss may do without some of the logits."""
    found = _of_next_token(f, tokens, spares=spares)
    return found if found is _NONE or not f.mtp_layers else _with_later_tokens(f, tokens, found)


def _with_later_tokens(f: Facts, tokens: float, found: Logits) -> Logits:
    """The head and its loss once more for each layer of multi-token prediction: what one keeps for backward is there
    until all losses are made. torchtitan makes all logits before the first loss, and has them until the last (b5bcd76c
    models/deepseek_v3/mtp.py MTPDecoder.forward, MTPLoss); Megatron-core goes one by one (d98e8a64
    core/transformer/multi_token_prediction.py process_mtp_loss)."""
    assert f.model is not None
    assert f.regime is not None
    kept, ranks = f.mtp_layers * found.kept, f.ranks
    listed = (
        0.0 if ranks.backend == "megatron" else f.regime.whole * f.model.vocab / ranks.tp * tokens
    )
    return Logits(
        found.kept + kept,
        found.loss + kept + f.mtp_layers * listed,
        max(found.early, found.kept) + kept,
        found.norm,
        [(norm, bytes_ + kept, own) for norm, bytes_, own in found.late],
    )


def _of_next_token(f: Facts, tokens: float, *, spares: bool) -> Logits:
    ranks = f.ranks
    model, regime = f.built
    loss, kind = f.plan.loss, f.plan.objective.kind
    mode = _mode(f) if spares else "full"
    each = model.vocab / ranks.tp * tokens
    e = float(regime.whole)
    if loss.algorithm == "dropped":
        # AutoModelForCausalLMWithValueHead makes the logits fp32 and nobody needs them
        # (trl 0.9 to 0.24 models/modeling_value_head.py; LLaMA-Factory train/rm/trainer.py).
        return Logits(0.0, (e + 4) * each, 0.0, 0.0, [])
    if (not model.head_numel and not model.tied) or kind in HEADLESS:
        return _NONE
    upcast = loss.upcast_fp32 is not False and not f.narrow_loss
    in_place = loss.algorithm in ("in_place", "overwritten") or ranks.backend == "megatron"
    # Autocast makes what torch's cross entropy gets fp32, and leaves what a kernel gets as it is.
    narrow = in_place or loss.algorithm == "kernel"
    wide = 4.0 if upcast or (regime.amp and not narrow) else e
    if mode in ("fused", "chunked"):
        return (_fused if mode == "fused" else _chunked)(f, tokens, wide)
    if kind in ("gkd", "distill") and loss.algorithm is None:
        return _distilled(f, each, tokens)
    profile = head_profile(model, regime, f.trained.head, upcast)
    saved = profile.saved.at(tokens, 0)
    # Of what the head keeps, all but the log-probabilities (and capped logits) belongs to the
    # last norm and, under autocast, to the cast weight.
    softmax = 4.0 if upcast or regime.amp else e
    norm = max(0.0, saved - (softmax + (e if model.traits.logit_softcap else 0)) * each)
    if (
        in_place and loss.algorithm != "overwritten" and kind in REINFORCING
    ):  # logits are divided by the temperature of sampling
        kept, at_loss, early = policy_bytes(f, tokens, wide)
        return Logits(kept, at_loss, early, norm, [])
    own = _by_algorithm(f, each, e, wide, norm)
    if own is not None:
        return own
    if in_place:
        return _in_place(f, each, wide, norm)
    if mode == "loss_parallel" and upcast and ranks.backend == "fsdp2":
        # torch 2.5 to 2.15 distributed/tensor/parallel/loss.py: log_softmax takes the maximum off in a copy and the
        # exponential in another, beside the logits and their fp32 cast; its backward has the log-probabilities, the
        # labels' part, the exponential and their sum at once (benchmarks/measure/parallel_loss.py).
        return Logits(4 * each, (e + 12) * each, 16 * each, norm, [])
    if loss.algorithm in ("rows", "copied_rows"):
        made = mode == "completion_only"
        share = _answers(f) if made or kind in REINFORCING else 1.0
        found = _by_rows(f, each * share, norm)
        return found if made or share == 1 else _beside_whole(f, found, each)
    return _plain(f, profile, tokens, wide, norm)


def _mode(f: Facts) -> str:
    """What the loss makes of logits, by its settings."""
    loss = f.plan.loss
    is_fused = loss.cut_ce or loss.liger.flce
    return "fused" if is_fused else loss.logits_materialised or "full"


def _by_algorithm(f: Facts, each: float, e: float, wide: float, norm: float) -> Logits | None:
    """The logits of a loss that somebody's own code or kernel makes of all of them; ``each`` of one byte an element, ``e``
    bytes of which are the model's, ``wide`` the loss's."""
    match f.plan.loss.algorithm:
        case "softmax" | "softmax_entropy" as algorithm:
            return _softmax(each, norm, keeps_logits=algorithm == "softmax_entropy")
        case "log_softmax":
            # NeMo-RL 7ea279ab nemo_rl/distributed/model_utils.py DistributedLogprob: fp32 logits, their
            # log-softmax and its softmax, of which the last is kept and its gradient made beside it.
            return Logits(4 * each, 12 * each, 8 * each, norm, [])
        case "kernel" if f.ranks.backend != "megatron":
            # flash-attn's cross entropy keeps the logits, fp32 where they were made so, and writes
            # their gradient beside them (flash_attn/ops/triton/cross_entropy.py).
            cast = e if wide > e else 0.0
            return Logits(wide * each, (wide + cast) * each, 2 * wide * each, norm, [])
        case "compiled":
            # Inductor stores neither an fp32 copy nor log-probabilities: 2 bytes a logit are kept where eager keeps 6, and backward
            # has two of their size beside them (nanoGPT's head and loss in one graph, torch 2.13 on a CPU: 6 and 12 bytes).
            return Logits(e * each, e * each, 3 * e * each, norm, [])
        case "kernel_tiles":
            # Metrics take the logits of a pass without labels (TRL 1.16 trainer/sft_trainer.py compute_loss), which
            # accelerate hands on in fp32 under autocast.
            handed_on = 4.0 if f.regime is not None and f.regime.amp else 0.0
            return Logits(0.0, (e + handed_on) * each, 0.0, norm, [])
        case "overwritten":
            # accelerate hands the outputs of a model on in fp32 under autocast, and the Trainer
            # drops them with the loss (accelerate utils/operations.py convert_outputs_to_fp32).
            handed_on = 4.0 if f.regime is not None and f.regime.amp else 0.0
            return Logits(e * each, (e + handed_on) * each, e * each, norm, [])
        case _:
            return None


def _plain(f: Facts, profile: LayerProfile, tokens: float, wide: float, norm: float) -> Logits:
    """Cross entropy of all logits at once."""
    loss = f.plan.loss
    model, regime = f.built
    vocab, e = model.vocab / f.ranks.tp, float(regime.whole)
    held = e * vocab * tokens
    copy = 4 * vocab * tokens if wide > e else 0.0
    if copy and not f.narrow_loss and f.older(NARROW_LOGITS.package, NARROW_LOGITS.since):
        # The models themselves made them fp32 and cut a shifted copy from them.
        held = copy
    outputs = held if loss.outputs_kept else 0.0
    late: list[tuple[float, float, float]] = []
    for m in profile.backward:
        total = m.token * tokens + m.fixed
        part = min(norm, total)
        late.append((part, total - part, m.grads))
    # The last norm's output is a local of forward even where nothing keeps it for backward.
    local = 0.0 if f.trained.head else model.hidden * e * tokens
    kept = profile.saved.at(tokens, 0) - norm
    at_loss = kept + held + copy + local
    if held < copy and _of_labels(f) and f.older(SHIFTED_LABELS.package, SHIFTED_LABELS.since):
        # Of one sample the shifted part is a view.
        at_loss += copy if tokens > f.samples.length else 0.0
    if f.plan.objective.kind in _REFERENCED and _refers(f):
        # The policy's logits are still there for the metrics, when the reference has logits and
        # log-probabilities of its own (LLaMA-Factory train/dpo/trainer.py), or all that its own
        # loss makes of them.
        beside = kept + held + copy if loss.twice else 2 * wide * vocab * tokens
        at_loss = max(at_loss, kept + wide * vocab * tokens + beside)
    return Logits(kept, at_loss, 0.0, norm, late, outputs)


def _of_labels(f: Facts) -> bool:
    """Whether the loss is that of a model given labels."""
    return f.plan.objective.kind in (None, "sft", "pretrain")


def _refers(f: Facts) -> bool:
    """Whether a reference pass runs beside every step."""
    return f.plan.objective.ref_model in ("copy", "shared_adapter_off")


def _in_place(f: Facts, each: float, wide: float, norm: float) -> Logits:
    """A kernel that writes the gradient over what it kept: Megatron-core's, on an fp32 copy of the
    logits (tensor_parallel/cross_entropy.py), or another on the logits themselves."""
    assert f.regime is not None
    e = float(f.regime.whole)
    both = (wide + e) * each if wide > e else e * each
    return Logits(wide * each, both, both, norm, [])


def _softmax(each: float, norm: float, *, keeps_logits: bool) -> Logits:
    """slime 624b824a slime/utils/ppo_utils.py _VocabParallelLogProbEntropy: fp32 logits, which the
    caller holds, and beside them a softmax. Backward writes the gradient over the softmax, and
    the cast to 16 bit beside that; an entropy's gradient is made beside both."""
    if keeps_logits:
        return Logits(8 * each, 8 * each, 12 * each, norm, [])
    return Logits(4 * each, 8 * each, 6 * each, norm, [])


def _answers(f: Facts) -> float:
    """The share of the positions whose logits are made where only answers are learned from: each answer's
    and the one before (TRL f2cd5771 trainer/grpo_trainer.py:1374 logits_to_keep + 1)."""
    answer = f.plan.objective.rollout.max_completion_tokens
    return min(1.0, (answer + 1) / f.samples.length) if answer and f.samples.length else 1.0


def _by_rows(f: Facts, each: float, norm: float) -> Logits:
    """Log-probabilities of the labels sample by sample (trl 1.x trainer/utils.py
    selective_log_softmax), and the entropy, for which the cut logits are copied.

    fp32 logits are kept whole, and backward has the gradients of gather, of the rows and of the
    cut beside them; of half-precision ones a row's log-probabilities are kept. Where the cut is copied (trl 0.29 to
    1.5 trainer/dpo_trainer.py), that shows beside a reference alone (``benchmarks/measure/losses.py``).
    """
    assert f.regime is not None
    kind = f.plan.objective.kind
    # accelerate makes outputs fp32 under autocast (utils/operations.py convert_outputs_to_fp32).
    width = 4.0 if f.regime.amp else float(f.regime.whole)
    kept = width * each
    at_loss = (2 if width == 4 else 3) * kept
    if kind in _REFERENCED and _refers(f):
        at_loss += kept
        if f.plan.loss.algorithm == "copied_rows":
            # The reference's are copied while the policy's copy has a name; the entropy, which copies too, is later.
            at_loss += (1.0 if width == 4 else 1.25) * kept
    early = (4 if width == 4 or kind in REINFORCING else 2) * kept
    if kind in _LEARNS_CHOSEN:
        # A cross entropy of the chosen half keeps its log-probabilities beside those of all rows (trl 1.9 experimental/orpo/
        # orpo_trainer.py, experimental/cpo/cpo_trainer.py cross_entropy_loss; measured in half precision).
        half = kept / 2
        return Logits(kept + half, max(at_loss - kept, 2 * kept) + half, early + half, norm, [])
    return Logits(kept, at_loss, early, norm, [])


def _beside_whole(f: Facts, answers: Logits, each: float) -> Logits:
    """Those of the answers, cut from logits that the model made of prompts and images too. The scaled cut is a copy, after which
    the whole has no name; backward makes the gradient of a cut as large as what it was cut from (ms-swift 3.4.1
    trainers/rlhf_trainer/grpo_trainer.py _get_per_token_logps)."""
    assert f.regime is not None
    whole = (4.0 if f.regime.amp else float(f.regime.whole)) * each
    return replace(answers, loss=answers.loss + whole, early=answers.early + whole)


def _fused(f: Facts, tokens: float, wide: float) -> Logits:
    """Losses that never make all logits."""
    loss = f.plan.loss
    model, regime = f.built
    e, vocab = regime.whole, model.vocab / f.ranks.tp
    if loss.algorithm == "tiles":
        return _tiles(f, tokens)
    if loss.algorithm == "kernel_tiles":
        return _kernel_tiles(f, tokens)
    # Liger's fused linear cross entropy works on chunks of the next power of two of
    # tokens / ceil(vocab / hidden) and makes the gradients in forward
    # (liger_kernel/ops/fused_linear_cross_entropy.py).
    parts = -(-vocab // model.hidden)
    chunk = 1
    while chunk < tokens / parts:
        chunk *= 2
    work = min(chunk, tokens) * vocab * (e + (4 if loss.cut_ce is None and wide == 4 else 0))
    made = tokens * model.hidden * e
    if loss.chunks:
        # torchtitan's ChunkedLossWrapper: head, loss and backward of one chunk after the
        # other, with logits, log-probabilities and the gradients of both; gradients of the
        # hidden states gather in fp32 (components/loss.py).
        work = tokens / loss.chunks * vocab * (2 * e + (8 if wide == 4 else 0))
        made = tokens * model.hidden * 4.0
    if f.trained.head:
        made += vocab * model.hidden * e
    if loss.cut_ce:
        work = 0.0
    return Logits(made, made + work, made, _norm(f, tokens), [])


def _tiles(f: Facts, tokens: float) -> Logits:
    """prime-rl 559b4477 src/prime_rl/trainer/models/layers/lm_head.py _SequenceChunkedLogProbEntropyFn: logits of
    some tokens (``loss.chunks``) and words (``loss.words``), in forward with the copies of a running logsumexp, in backward again. There the last
    tile's probabilities and gradient live until the next one's are made, beside the gradients of the hidden
    states and of the whole weight."""
    model, regime = f.built
    e = float(regime.whole)
    loss = f.plan.loss
    tile = tokens / max(1, loss.chunks or 1) * min(model.vocab, loss.words or model.vocab)
    made = tokens * model.hidden * e
    if f.trained.head:
        made += model.vocab * model.hidden * e
    return Logits(0.0, (e + 12) * tile, made + (e + 20) * tile, _norm(f, tokens), [])


def _kernel_tiles(f: Facts, tokens: float) -> Logits:
    """TRL 1.15 kernels/chunked_logprob.py ChunkedLogProbFunction: one buffer of logits of some tokens and words, in which a
    Triton kernel writes their gradient too. The hidden states that a label asks for are copied and kept, those of a
    reference pass beside them; their gradient and that of the weight add up in fp32 and are then made what those are.
    A tile's rows of both are cast where they are wider, those of the weight while backward has the last ones still
    (``benchmarks/measure/losses.py``).
    """
    model, regime = f.built
    # Weights are as wide as what modules hand on.
    e, stored = float(regime.whole), float(regime.stream)
    loss = f.plan.loss
    asked = tokens * (_answers(f) if f.plan.objective.kind in REINFORCING else 1.0)
    rows, words = min(asked, loss.tile_tokens or asked), loss.words or model.vocab
    kept = asked * model.hidden * stored
    beside = kept if f.plan.objective.kind in _REFERENCED and _refers(f) else 0.0
    tile, cast = e * rows * words, e * model.hidden if stored > e else 0.0
    # Before torch 2.8 nothing adds products of 16-bit matrices up in fp32, and both are made that.
    widened = 4.0 * words * (rows + model.hidden) if e < 4 and f.older("torch", (2, 8)) else 0.0
    summed = asked + (model.vocab if f.trained.head else 0)
    sums = summed * model.hidden * (4.0 + (stored if stored < 4 else 0.0))
    at_loss = kept + beside + tile + cast * (rows + words)
    return Logits(
        kept,
        at_loss,
        kept + tile + cast * (rows + 2 * words) + widened + sums,
        _norm(f, tokens),
        [],
    )


def _norm(f: Facts, tokens: float) -> float:
    """Bytes that the last norm keeps."""
    assert f.model is not None
    assert f.regime is not None
    return ((8 if f.regime.stream == 2 else 10) * f.model.hidden + 4) * tokens


def _chunked(f: Facts, tokens: float, wide: float) -> Logits:
    """Cross entropy in chunks of tokens: of logits that are all there, of logits that are made
    chunk by chunk, or of such that backward makes again."""
    loss = f.plan.loss
    model, regime = f.built
    e, norm = regime.whole, _norm(f, tokens)
    each = model.vocab / f.ranks.tp * tokens
    weight = model.vocab / f.ranks.tp * model.hidden
    n = max(1, loss.chunks or 8)
    kept = wide * each
    unpacked = weight * e if f.head_packed else 0.0
    if loss.algorithm in ("recomputed_chunks", "recomputed_as_given"):
        return _recomputed(f, tokens, each / n, norm)
    if loss.algorithm == "slices":
        # AReaL 4aef98d8 areal/utils/functional/vocab_parallel.py _chunked_apply: of each slice a compiled function
        # keeps what it was given, and the gradient of a slice is one of all logits, added to the last ones.
        return Logits(
            e * each, e * each + wide / n * each, 3 * e * each + wide / n * each, norm, []
        )
    if loss.algorithm == "head_chunks":
        # torchtune LinearCrossEntropyLoss: the hidden states are copied without the tokens that
        # no label asks for, and every chunk adds its own gradient of the head to the last ones.
        hidden = tokens * model.hidden * e
        if f.plan.compile.enabled:
            return _compiled_chunks(f, each, n, norm, hidden=hidden)
        late = [
            (norm, kept + hidden + 2 * wide / n * each + unpacked, 0.0),
            # A head whose gradient adds up is not packed.
            (norm, kept * _left(n, 2) + hidden + _of_head(f, n), 0.0),
        ]
        return Logits(kept + hidden, kept + hidden + (e + wide) / n * each, 0.0, norm, late)
    if loss.outputs_kept:
        # The chunks' logits live until backward, in fp32 where they are handed on so.
        outputs = wide * each
        early = kept + 2 * wide / n * each + unpacked
        return Logits(kept, early + outputs, early, norm, [], outputs)
    if f.plan.compile.enabled:
        return _compiled_chunks(f, each, n, norm, hidden=0.0)
    at_loss = kept + (e + wide / n) * each
    late = [
        (norm, kept + 2 * wide / n * each + unpacked, 0.0),
        (norm, e * each * _left(n, 2) + _of_head(f, n), 0.0),
    ]
    return Logits(kept, at_loss, 0.0, norm, late)


def _left(chunks: int, done: int) -> float:
    """The share of the chunks that wait when the gradients of the first are added up; one alone is there until its
    gradient is made."""
    return 1.0 if chunks == 1 else 1 - done / chunks


def _of_head(f: Facts, chunks: int, *, sums_in_place: bool = False) -> float:
    """Bytes of the head's gradient where chunks add theirs to one another before anybody takes it: what the last
    ones came to, the newest, and their sum, which torch makes apart where gradients are views (measured,
    ``benchmarks/measure/compiled.py`` and ``losses.py``)."""
    assert f.model is not None
    assert f.regime is not None
    if not f.trained.head:
        return 0.0
    tensors = 1 if chunks == 1 else 2 if sums_in_place else 3
    # As wide as the run computes: under autocast they add up for the cast weight.
    return tensors * f.regime.whole * f.model.vocab / f.ranks.tp * f.model.hidden


def _compiled_chunks(f: Facts, each: float, chunks: int, norm: float, *, hidden: float) -> Logits:
    """Chunks whose loss Inductor compiles: it keeps the half-precision logits alone, from which backward makes the
    log-probabilities again, and writes a chunk's gradient before it gives up the chunk's logits
    (``benchmarks/measure/compiled.py``). ``hidden`` are the bytes of hidden states where the head is compiled too."""
    assert f.model is not None
    assert f.regime is not None
    e = float(f.regime.whole)
    unpacked = e * f.model.vocab / f.ranks.tp * f.model.hidden if f.head_packed else 0.0
    kept = e * each
    grads = _of_head(f, chunks, sums_in_place=bool(hidden))
    late = [
        (norm, kept * (1 + 1 / chunks) + hidden, 0.0),
        (norm, kept * _left(chunks, 1 if hidden else 2) + hidden + unpacked + grads, 0.0),
    ]
    return Logits(kept + hidden, kept + hidden, 0.0, norm, late)


def _recomputed(f: Facts, tokens: float, chunk: float, norm: float) -> Logits:
    """trl 1.7 trainer/sft_trainer.py _chunk under activation checkpointing: ``chunk`` logits, and
    for each chunk anew an fp32 copy of the head's weight, which autocast makes half again; its
    gradient passes through fp32 too. Since 1.13 the weight is as wide as what it is multiplied with, and the logits
    alone are made fp32 (``benchmarks/measure/losses.py``)."""
    model, regime = f.built
    hidden = tokens * model.hidden * regime.stream
    weight = model.vocab / f.ranks.tp * model.hidden
    as_given = f.plan.loss.algorithm == "recomputed_as_given"
    halves = 2.0 if regime.amp else 0.0
    # The chunks' gradients add up beside the newest one.
    grown = 10.0 if regime.stream == 4 else 6.0 if as_given or not regime.amp else 2.0
    if as_given:
        copies = halves if regime.stream == 4 else 0.0
        back = max(16 * chunk, grown * weight if f.trained.head else 0.0)
        at_loss = 14 * chunk
    else:
        copies = (4.0 if regime.stream == 2 else 0.0) + halves
        back = (4 if f.trained.head or regime.amp else 16) * chunk
        back += grown * weight if f.trained.head else 0.0
        at_loss = 2 * chunk
    shared = 2 * hidden + copies * weight
    return Logits(hidden, shared + at_loss, shared + back, norm, [])


def _distilled(f: Facts, each: float, tokens: float) -> Logits:
    """Generalised Jensen-Shannon divergence from a teacher's logits (trl 1.x
    experimental/gkd/gkd_trainer.py): both models' scaled logits and log-probabilities, the stack
    of the two that logsumexp keeps, their mixture, the divergences and their sums."""
    assert f.regime is not None
    # accelerate makes outputs fp32 under autocast (utils/operations.py convert_outputs_to_fp32).
    width = 4.0 if f.regime.amp else float(f.regime.whole)
    return Logits(7 * width * each, 17 * width * each, 12 * width * each, _norm(f, tokens), [])
