"""How long the samples of a batch are, of which a file says only how long they may be.

What the limit makes of a batch depends on how samples come together:

* *filled*: packed up to the limit, or each padded to it. Every batch is as long as is written.
* *padded* to the longest of the batch: one long sample is enough, and of a whole data set some batch has it, if
  the set has one that long.
* *joined* without padding: a batch is as long as its samples are together, and that of several samples none
  is shorter than it may be is unlikely, the more so the more they are.
* *budgeted*: as many samples as have so many tokens together. A batch is full as long as there are enough of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log, sqrt
from typing import Any, Literal, TypeAlias, TypeVar

from oomlint.datasets import Lengths, find, texts
from oomlint.hardware import usual_limit
from oomlint.judgement.risk_model import holds
from oomlint.memory.allocator import lengths_vary
from oomlint.memory.lengths import longest_sample
from oomlint.plan.fields import f
from oomlint.plan.training import REINFORCING
from oomlint.runs.run import Run

T = TypeVar("T")
Coming: TypeAlias = Literal["filled", "padded", "joined", "budgeted"]

# How likely it is that a limit was chosen for samples that reach it. Reports of runs that died or ran
# (``python -m benchmarks.threads.fit``) would have it at 1: those whose data are short seldom write one. In public
# repositories whose authors trained with what stands there, 11 of 22 warnings that rested on samples as long as is
# allowed were false (benchmarks/strangers), about as many as known data sets have no such sample; a half is between.
_CHOSEN = 0.5
# How likely it is that none of a model's prompts, or of several samples that are joined, is long.
_SHORT = 0.25
# A quarter of the usual 4,096 tokens: of the 32 data sets whose lengths ms-swift's tables give
# (benchmarks/accuracy/lengths.py has them and their source), 14 have no sample above 1,024;
# alpaca-gpt4-data-en's longest of 52,002 has 607. Limits are often set far above.
_SHORT_SAMPLES = 4
_SHORT_SAMPLE = 1024
# Steps of a bisection: a sixty-fourth of the limit is as close as a mean needs.
_HALVINGS = 6
# How likely it is that no whole batch of a model's own answers has more tokens a sample than the longest of its
# data set (Laplace's rule of succession): so it was in each of the four scripts on GSM8K whose answers were
# looked up, under limits of 1,024 to 8,192 tokens (benchmarks/strangers: run_deepseek7b_llm.sh, run_qwen2-7b.sh and
# run_gptoss_20b.sh of verl's examples; https://github.com/volcengine/verl/pull/2775: a mean of some 250 under 8,192).
_AS_ANSWERED = 5 / 6
# So many groups are made of the data sets that are known, for what an unknown one may be like.
_GROUPS = 4


def coming_together(run: Run) -> Coming:
    """How the samples of a run's batches come together."""
    seq, batch = run.plan.seq, run.plan.batch
    if batch.max_tokens_per_gpu is not None:
        return "budgeted"
    is_packed = seq.packing not in (None, "none")
    if seq.packing == "varlen" or (seq.pad == "none" and not is_packed):
        return "joined" if (batch.micro or 1) > 1 else "padded"
    return "padded" if lengths_vary(run.plan) else "filled"


def otherwise_long(run: Run) -> Iterator[tuple[float, Run, str]]:
    """The run with samples as long as they otherwise may be, each with how likely that is and in words that
    go on after an "if"; nothing where batches are as long whatever the samples are."""
    coming = coming_together(run)
    limit, is_known = longest_sample(run.plan), run.plan.seq.longest is not None
    if limit is None or coming == "filled":
        return
    if coming == "padded":
        if not is_known:
            yield from _longest_otherwise(run, limit)
        return
    rest = 1.0
    answered = _answered(run)
    if answered is not None and answered.reached < limit:
        rest = 1 - _AS_ANSWERED
        short = _filled_to(run, answered.reached / limit)
        if short is not None:
            words = f"answers are as long as those of {answered.names[0]}"
            yield _AS_ANSWERED, short, words
    for share in fullest(_together(run)):
        reached = ((1.0, 1.0),) if is_known else ((1 - _SHORT, 1.0), (_SHORT, _short(run) / limit))
        for weight, most in reached:
            fuller = _filled_to(run, share * most)
            if fuller is not None:
                words = f"a batch has {share * most:.0%} of the tokens that its samples may have"
                yield rest * weight / _GROUPS, fuller, words


def _longest_otherwise(run: Run, limit: int) -> Iterator[tuple[float, Run, str]]:
    """The run with the longest sample of a padded batch as long as the longest of the data sets that are known, in
    groups of the same size; of a model's own answers to short prompts, one goes on until the limit."""
    if _short_prompts(run):
        shorter = short_samples(run)
        if shorter is not None:
            yield _SHORT, shorter, f"no sample has more than {_short(run):,} tokens"
        return
    for longest in _longest_of_groups(limit):
        if longest < limit:
            shorter = run.assuming({f.seq.max_len: longest})
            weight = (1 - _CHOSEN) / _GROUPS
            yield weight, shorter, f"no sample has more than {longest:,} tokens"


def as_short_as_any(run: Run) -> Run | None:
    """The run with samples like those of short data sets; ``None`` where batches are as long whatever the samples
    are, or how long these are is known."""
    run = _at_length_assumed(run)
    coming, limit = coming_together(run), longest_sample(run.plan)
    is_known = run.plan.seq.longest is not None
    if limit is None or coming == "filled" or (coming == "padded" and is_known):
        return None
    if is_known:
        return _filled_to(run, min(fullest(_together(run))))
    length = _shortest_longest()
    if length >= limit:
        return None
    rollout = run.plan.objective.rollout
    if rollout.max_prompt_tokens and rollout.max_completion_tokens:
        run = run.assuming(
            {
                f.objective.rollout.max_prompt_tokens: length // 2,
                f.objective.rollout.max_completion_tokens: length - length // 2,
            }
        )
    if coming == "padded":
        return run.assuming({f.seq.max_len: length})
    return _filled_to(run, length / (longest_sample(run.plan) or limit))


def lengths_are_open(run: Run) -> bool:
    """Whether no file says how long samples are, and batches are the shorter the shorter these are."""
    return as_short_as_any(run) is not None


def _at_length_assumed(run: Run) -> Run:
    """The run with the length at which it is estimated, where no file limits that of its samples."""
    if longest_sample(run.plan) is not None:
        return run
    assumed = (each.value for each in run.estimate.assumptions if each.field == f.seq.max_len)
    length = next(assumed, None)
    return run if length is None else run.assuming({f.seq.max_len: length})


def _shortest_longest() -> int:
    """The longest sample of a short data set: on the mean of the tenth of known sets whose longest is shortest."""
    longest = sorted(each.longest for each in texts())
    few = longest[: max(1, len(longest) // 10)]
    return round(sum(few) / len(few))


def _longest_of_groups(limit: int) -> Iterator[int]:
    """The longest sample of a data set under a limit, on the mean over each group of those that are known."""
    for group in _grouped(sorted(min(each.longest, limit) for each in texts())):
        yield round(sum(group) / len(group))


def _answered(run: Run) -> Lengths | None:
    """The lengths of the set whose prompts a model answers by itself, the longest of several; ``None`` where
    one of them is unknown."""
    if run.plan.objective.kind not in REINFORCING:
        return None
    found = [find(name) for name in run.plan.data.sets or ()]
    known = [each for each in found if each is not None]
    return max(known, key=lambda each: each.reached) if known and len(known) == len(found) else None


def fullest(samples: int) -> tuple[float, ...]:
    """How full the fullest batch of so many samples is, as a share of what it would hold if each were as long
    as the longest of its data set: of the data sets whose lengths are known, in groups of the same size."""
    groups = _grouped(sorted(_fullest_of(lengths, samples) for lengths in texts()))
    return tuple(sum(group) / len(group) for group in groups)


def _grouped(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Groups of the same size."""
    size = len(values) / _GROUPS
    return (values[round(n * size) : round((n + 1) * size)] for n in range(_GROUPS))


def _fullest_of(lengths: Lengths, samples: int) -> float:
    """Of so many means of ``samples`` that scatter normally the largest is so far above the mean (Cramer 1946, section
    28.6). That is never less than what a batch has that the longest sample is in: it is the same law by which that
    one is as long as it is."""
    batches = max(2.0, lengths.samples / samples)
    scattered = lengths.mean + lengths.deviation * sqrt(2 * log(batches) / samples)
    return min(1.0, scattered / lengths.reached)


def _together(run: Run) -> int:
    """How many samples decide on the tokens of a batch: those joined in one, or those of a whole
    step, which a budget is filled with."""
    batch = run.plan.batch
    steps = batch.grad_accum or 1 if coming_together(run) == "budgeted" else 1
    return max(1, batch.micro or 1) * steps


def _filled_to(run: Run, share: float) -> Run | None:
    """The run with samples that have a share of the tokens that they may have; ``None`` where a budget is
    full all the same."""
    length = max(1, int((longest_sample(run.plan) or 0) * share))
    budget = run.plan.batch.max_tokens_per_gpu
    if budget is None:
        return run.assuming({f.seq.max_len: length})
    tokens = _together(run) * length
    if tokens >= budget:
        return None
    shorter: dict[Any, Any] = {f.seq.max_len: length, f.batch.max_tokens_per_gpu: tokens}
    scored = run.plan.objective.rollout.scored_tokens
    if scored is not None:
        shorter[f.objective.rollout.scored_tokens] = min(scored, tokens)
    return run.assuming(shorter)


def short_samples(run: Run) -> Run | None:
    """The run with no sample of more than a quarter of the tokens that it may have, or 1,024;
    ``None`` where that cannot be, since batches are as long whatever the samples are."""
    batch = run.plan.batch
    if longest_sample(run.plan) is None:
        return None
    short = _short(run)
    shorter: dict[Any, Any] = {f.seq.max_len: short, **_short_prompts(run)}
    if batch.max_tokens_per_gpu:
        # All samples of a step together may be fewer tokens than one micro batch may have.
        tokens = (batch.micro or 0) * (batch.grad_accum or 0) * short
        if not 0 < tokens < batch.max_tokens_per_gpu:
            return None
        shorter = {f.batch.max_tokens_per_gpu: tokens, f.batch.grad_accum: 1}
    elif coming_together(run) == "filled":
        return None
    return run.assuming(shorter)


def _short(run: Run) -> int:
    """Tokens of the longest sample where none is long: of a rollout its prompts alone may all be short, for one
    answer that goes on until the limit ends it is enough."""
    shorter = _short_prompts(run)
    answer = run.plan.objective.rollout.max_completion_tokens
    if shorter and answer:
        return sum(shorter.values()) + answer
    return _short_of(longest_sample(run.plan) or 0)


def _short_prompts(run: Run) -> dict[Any, int]:
    """What the samples of a rollout follow from, where its prompts are short."""
    prompt = run.plan.objective.rollout.max_prompt_tokens
    if not prompt or coming_together(run) != "padded":
        return {}
    return {f.objective.rollout.max_prompt_tokens: _short_of(prompt)}


def _short_of(limit: int) -> int:
    return min(limit // _SHORT_SAMPLES, _SHORT_SAMPLE)


def usual_length(run: Run) -> int | None:
    """Tokens of a sample on the mean: of the run's data sets, where all of them are known, else of the median of
    those that are; ``None`` where batches are as long whatever the samples are, or answers are what is trained on."""
    if coming_together(run) in ("filled", "budgeted") or run.plan.objective.kind in REINFORCING:
        return None
    found = [find(name) for name in run.plan.data.sets or ()]
    known = [each for each in found if each is not None]
    if known and len(known) == len(found):
        rows = sum(each.samples for each in known)
        return max(1, round(sum(each.mean * each.samples for each in known) / rows))
    means = sorted(each.mean for each in texts())
    return round(means[len(means) // 2])  # to load `statistics` is time that each start would pay


def takes_several(run: Run) -> bool:
    """Whether it takes several long samples to fill a batch: joined, it is as long as they are together."""
    return coming_together(run) in ("joined", "budgeted") and _together(run) > 1


def too_many_each(run: Run, phase: str | None, limit: int) -> int | None:
    """Of samples that are joined, from about how many tokens each on the mean the GPU does not hold a batch;
    ``None`` where that is not what decides."""
    longest = longest_sample(run.plan)
    if coming_together(run) != "joined" or longest is None:
        return None
    least, most = 0.0, 1.0
    for _ in range(_HALVINGS):
        share = (least + most) / 2
        fuller = _filled_to(run, share)
        if fuller is not None and holds(fuller.estimate, "gpu", limit, phase):
            least = share
        else:
            most = share
    return int(round(most * longest, -1 if longest < _SHORT_SAMPLE else -2)) if least else None


def fits_with_short_samples(run: Run, phase: str | None, limit: int) -> bool:
    """Whether the GPU holds a run without long samples."""
    shorter = short_samples(run)
    return shorter is not None and holds(shorter.estimate, "gpu", limit, phase)


def needs_all_samples_long(run: Run) -> bool:
    """Whether the GPU has room unless several samples of one batch are long."""
    probe = run.intended.placed
    limit = run.limits.gpu_bytes
    limit = usual_limit() if limit is None else limit
    return takes_several(probe) and fits_with_short_samples(probe, None, limit)


def depends_on_data(run: Run) -> bool:
    """Whether nothing but the GPU is too small, and that only for batches of long samples."""
    host, ram = run.intended.placed.estimate.host.peak_bytes, run.limits.host_bytes
    is_host_enough = host is None or ram is None or host <= ram
    return is_host_enough and needs_all_samples_long(run)
