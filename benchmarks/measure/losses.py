"""Measures what losses hold: the head and the loss alone, forward and backward, every live byte.

    python benchmarks/measure/losses.py SIMULATOR > OUT.jsonl

SIMULATOR is the folder of ``measure.py`` with its built guard. Each loss below does what the
function that its docstring names does, operation by operation. A row has ``kept_bytes`` (what is
there for backward), ``loss_bytes`` and ``backward_bytes`` (the highest instants), all beyond the
head's weight and input. The tiles of TRL are its own code (``pip install trl``), whose kernels do nothing here.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from itertools import product
from types import ModuleType, SimpleNamespace
from typing import Any

sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else ".")

import measure as simulator
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

ROWS, LENGTH, HIDDEN, VOCAB, CHUNKS = 4, 2048, 4096, 128256, 8


class Head:
    """The output projection under one regime; ``refers`` asks for a reference pass too."""

    def __init__(self, weight: Tensor, *, wide_outputs: bool, refers: bool) -> None:
        self.weight = weight
        self.wide_outputs = wide_outputs
        self.refers = refers

    def __call__(self, hidden: Tensor) -> Tensor:
        logits = F.linear(hidden, self.weight)
        # accelerate utils/operations.py convert_outputs_to_fp32
        return logits.float() if self.wide_outputs else logits


def plain(head: Head, hidden: Tensor, labels: Tensor) -> Tensor:
    """transformers 5 loss/loss_utils.py ForCausalLMLoss."""
    logits = F.linear(hidden, head.weight)
    wide = logits.float()
    return F.cross_entropy(wide.view(-1, VOCAB), labels.view(-1))


def preference(head: Head, hidden: Tensor, labels: Tensor) -> Tensor:
    """LLaMA-Factory train/dpo/trainer.py concatenated_forward, get_batch_logps."""

    def logps() -> tuple[Tensor, Tensor]:
        logits = head(hidden).to(torch.float32)
        probs = logits[:, :-1].log_softmax(-1)
        return torch.gather(probs, 2, labels[:, 1:, None]).squeeze(2), logits

    policy, logits = logps()
    if head.refers:
        with torch.no_grad():
            logps()
    del logits
    return policy.sum()


def by_rows(logits: Tensor, labels: Tensor) -> Tensor:
    """trl 1.x trainer/utils.py selective_log_softmax."""
    if logits.dtype == torch.float32:
        chosen = torch.gather(logits, -1, labels.unsqueeze(-1)).squeeze(-1)
        return chosen - torch.stack([torch.logsumexp(row, -1) for row in logits])
    rows = [
        F.log_softmax(row, -1).gather(-1, wanted.unsqueeze(-1))
        for row, wanted in zip(logits, labels, strict=True)
    ]
    return torch.stack(rows).squeeze(-1)


def entropy(logits: Tensor) -> Tensor:
    """trl 1.x trainer/utils.py entropy_from_logits."""
    parts = []
    for chunk in logits.reshape(-1, VOCAB).split(128):
        probs = F.log_softmax(chunk, -1)
        parts.append(-(torch.exp(probs) * probs).sum(-1))
    return torch.cat(parts)


def rows(head: Head, hidden: Tensor, labels: Tensor) -> Tensor:
    """trl 1.x trainer/dpo_trainer.py _compute_loss."""
    outputs = head(hidden)
    logits = outputs[:, :-1]
    logps = by_rows(logits, labels[:, 1:])
    if head.refers:
        with torch.no_grad():
            reference = head(hidden)
            by_rows(reference[:, :-1], labels[:, 1:])
    entropy(logits.detach())
    return -F.logsigmoid(logps.sum(1)).mean()


def copied_rows(head: Head, hidden: Tensor, labels: Tensor) -> Tensor:
    """trl 0.29 to 1.5 trainer/dpo_trainer.py _compute_loss, which copies what it cuts."""
    outputs = head(hidden)
    logits = outputs[:, :-1].contiguous()
    logps = by_rows(logits, labels[:, 1:])
    if head.refers:
        with torch.no_grad():
            reference = head(hidden)
            cut = reference[:, :-1].contiguous()
            by_rows(cut, labels[:, 1:])
    entropy(logits.detach())
    return -F.logsigmoid(logps.sum(1)).mean()


def sampled(head: Head, hidden: Tensor, labels: Tensor) -> Tensor:
    """trl 1.x trainer/grpo_trainer.py _get_per_token_logps_and_entropies."""
    logits = head(hidden)[:, :-1]
    logits.div_(0.9)
    logps = by_rows(logits, labels[:, 1:])
    with torch.no_grad():
        entropy(logits)
    return -torch.exp(logps - logps.detach()).sum()


def distilled(head: Head, hidden: Tensor, labels: Tensor) -> Tensor:
    """trl 1.x experimental/gkd/gkd_trainer.py generalized_jsd_loss, the teacher as large."""
    del labels
    student_outputs = head(hidden)
    with torch.no_grad():
        teacher_outputs = head(hidden)
    student, teacher = student_outputs[:, :-1] / 0.9, teacher_outputs[:, :-1] / 0.9
    ours, theirs = F.log_softmax(student, -1), F.log_softmax(teacher, -1)
    beta = torch.tensor(0.5, dtype=ours.dtype, device="cuda")
    both = torch.stack([ours + torch.log1p(-beta), theirs + torch.log(beta)])
    mixture = torch.logsumexp(both, dim=0)
    del both
    from_teacher = F.kl_div(mixture, theirs, reduction="none", log_target=True)
    from_student = F.kl_div(mixture, ours, reduction="none", log_target=True)
    divergence = beta * from_teacher + (1 - beta) * from_student
    flat = divergence.reshape(-1, VOCAB)
    return flat.index_select(0, torch.arange(flat.size(0), device="cuda")).sum()


def chunked(head: Head, hidden: Tensor, labels: Tensor) -> Tensor:
    """torchtune 0.7 modules/loss/ce_chunked_output_loss.py CEWithChunkedOutputLoss."""
    logits = [F.linear(part, head.weight) for part in hidden.tensor_split(CHUNKS, dim=1)]
    wanted = labels.tensor_split(CHUNKS, dim=1)
    losses = [
        F.cross_entropy(part.reshape(-1, VOCAB).float(), some.reshape(-1), reduction="sum")
        for part, some in zip(logits, wanted, strict=True)
    ]
    return torch.stack(losses).sum()


def head_chunks(head: Head, hidden: Tensor, labels: Tensor) -> Tensor:
    """torchtune 0.7 modules/loss/cross_entropy_loss.py LinearCrossEntropyLoss."""
    flat = hidden.reshape(-1, HIDDEN)
    flat = flat.index_select(0, torch.arange(flat.size(0), device="cuda"))

    def one(part: Tensor, wanted: Tensor) -> Tensor:
        logits = F.linear(part, head.weight)
        return F.cross_entropy(logits.float(), wanted, reduction="sum")

    parts, wanted = flat.tensor_split(CHUNKS), labels.reshape(-1).tensor_split(CHUNKS)
    return torch.stack([one(p, w) for p, w in zip(parts, wanted, strict=True)]).sum()


def recomputed_chunks(head: Head, hidden: Tensor, labels: Tensor) -> Tensor:
    """trl 1.7 trainer/sft_trainer.py _chunked_cross_entropy_loss, 256 tokens a chunk."""
    return _in_chunks(head, hidden, labels, lambda part, weight: part.float() @ weight.float().t())


def recomputed_as_given(head: Head, hidden: Tensor, labels: Tensor) -> Tensor:
    """trl 1.13 trainer/sft_trainer.py _chunked_cross_entropy_loss: the head is as wide as what it is given."""
    return _in_chunks(
        head, hidden, labels, lambda part, weight: (part @ weight.to(part.dtype).t()).float()
    )


def _in_chunks(
    head: Head, hidden: Tensor, labels: Tensor, project: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    flat = hidden[:, :-1].reshape(-1, HIDDEN)
    wanted = labels[:, 1:].reshape(-1)
    flat = flat[torch.arange(flat.size(0), device="cuda")]

    def one(part: Tensor, weight: Tensor, some: Tensor) -> Tensor:
        logits = project(part, weight)
        logps = F.log_softmax(logits, -1)
        logits.argmax(-1)
        (logps.exp() * logps).sum(-1)
        return F.nll_loss(logps, some, reduction="sum")

    losses = [
        checkpoint(
            one, flat[at : at + 256], head.weight, wanted[at : at + 256], use_reentrant=False
        )
        for at in range(0, flat.size(0), 256)
    ]
    return torch.stack(losses).sum()


class _OverTheLogits(torch.autograd.Function):
    """Megatron-core tensor_parallel/cross_entropy.py _VocabParallelCrossEntropy on one rank."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        logits = logits.float()
        logits -= logits.max(-1)[0].unsqueeze(-1)
        chosen = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1).clone()
        torch.exp(logits, out=logits)
        total = logits.sum(-1)
        logits.div_(total.unsqueeze(-1))
        ctx.save_for_backward(logits)
        return torch.log(total) - chosen

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (softmax,) = ctx.saved_tensors
        return softmax.mul_(grads[0].unsqueeze(-1)), None


def in_place(head: Head, hidden: Tensor, labels: Tensor) -> Tensor:
    """Megatron-core's cross entropy."""
    return _OverTheLogits.apply(F.linear(hidden, head.weight), labels).sum()


def _launching(*arguments: Any, **constants: Any) -> None:
    """A Triton kernel, which writes where it is told to and makes no tensor."""


class _Launches:
    """``kernel[grid](…)`` on cards that are not there."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return _launching


@cache
def _of_trl() -> Any:
    """TRL's own function (1.15 on), for a card."""
    from trl.kernels import chunked_logprob as kernels

    kernels._use_triton = lambda device: True
    kernels._forward_kernel = kernels._backward_kernel = _Launches()
    kernels.triton = SimpleNamespace(cdiv=lambda length, block: -(-length // block))
    # A head of which no shard has to be gathered.
    trainers = ModuleType("trl.trainer.utils")
    trainers.maybe_gather_lm_head_ctx = lambda *parts: nullcontext()  # type: ignore[attr-defined]
    sys.modules.setdefault("trl.trainer.utils", trainers)
    return kernels.ChunkedLogProbFunction


def _tiled(head: Head, hidden: Tensor, labels: Tensor) -> Tensor:
    """trl 1.16 trainer/utils.py add_fused_lm_head, with a label for every token."""
    count = labels[:, 1:].numel()
    sample, place = (torch.zeros(count, dtype=torch.long, device="cuda") for _ in range(2))
    asked, wanted = hidden[:, :-1][sample, place], labels[:, 1:][sample, place]
    outputs = ("log_probs", "entropy", "is_top1")
    logps: Tensor = _of_trl().apply(
        asked, head.weight, None, wanted, 1.0, 32768, None, 1.0, outputs
    )[0]
    return logps.view(hidden.size(0), -1)


def kernel_tiles(head: Head, hidden: Tensor, labels: Tensor) -> Tensor:
    """trl 1.16 trainer/sft_trainer.py compute_loss."""
    return -_tiled(head, hidden, labels).sum()


def compared_tiles(head: Head, hidden: Tensor, labels: Tensor) -> Tensor:
    """trl 1.16 trainer/dpo_trainer.py _compute_loss."""
    logps = _tiled(head, hidden, labels).sum(1)
    if head.refers:
        with torch.no_grad():
            reference = _tiled(head, hidden, labels).sum(1)
        logps = logps - reference
    return -F.logsigmoid(logps).mean()


LOSSES: dict[str, Callable[[Head, Tensor, Tensor], Tensor]] = {
    loss.__name__: loss
    for loss in (plain, preference, rows, copied_rows, sampled, distilled, chunked, head_chunks,
                 recomputed_chunks, recomputed_as_given, in_place, kernel_tiles, compared_tiles)
}  # fmt: skip
_REFERRING = ("preference", "rows", "copied_rows", "compared_tiles")


def measured(
    name: str, *, trained: bool, wide: bool, autocast: bool, refers: bool
) -> dict[str, Any]:
    """One loss: fp32 weights if ``wide``, under bf16 ``autocast``, the head ``trained`` or not."""
    gc.collect()
    tracker = simulator.Tracker()
    with FakeTensorMode(allow_non_fake_inputs=False):
        dtype = torch.float32 if wide else torch.bfloat16
        weight = torch.empty(VOCAB, HIDDEN, dtype=dtype, device="cuda", requires_grad=trained)
        source = torch.empty(ROWS, LENGTH, HIDDEN, dtype=dtype, device="cuda", requires_grad=True)
        labels = torch.zeros(ROWS, LENGTH, dtype=torch.long, device="cuda")
        for tensor in (weight, source, labels):
            tracker.add(tensor.untyped_storage())
        with tracker:
            hidden = source * 1
            start = tracker.total
            tracker.peak.clear()
            tracker.phase = "loss"
            head = Head(weight, wide_outputs=autocast, refers=refers)
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                loss = LOSSES[name](head, hidden, labels)
            kept = tracker.total - start
            tracker.phase = "backward"
            tracker.bump()
            loss.backward()
    return {
        "loss": name, "trained": trained, "wide": wide, "autocast": autocast, "refers": refers,
        "rows": ROWS, "length": LENGTH, "hidden": HIDDEN, "vocab": VOCAB, "kept_bytes": kept,
        "loss_bytes": tracker.peak["loss"] - start,
        "backward_bytes": tracker.peak["backward"] - start, "torch": torch.__version__,
    }  # fmt: skip


def main() -> None:
    regimes = ((False, False), (False, True), (True, True))
    for name, trained, (wide, autocast) in product(LOSSES, (True, False), regimes):
        if wide and not trained:
            continue  # autocast does not cache the casts of frozen weights, one for each chunk
        for refers in (False, True) if name in _REFERRING else (False,):
            row = measured(name, trained=trained, wide=wide, autocast=autocast, refers=refers)
            print(json.dumps(row, sort_keys=True), flush=True)


if __name__ == "__main__":
    main()
