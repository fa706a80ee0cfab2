"""What writes answers in reinforcement learning; what TRL's trainers generate, and the references they can have."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f


def engine_called(library: str, *, shares_cards: bool) -> str:
    """vLLM or SGLang in the plan's words: beside the training on its cards, or on others."""
    if library == "vllm":
        return "vllm_colocate" if shares_cards else "vllm_server"
    return "sglang" if shares_cards else "sglang_server"


def completions_of_round(run: Cells, steps: Any) -> int | None:
    """Completions of one round of generation over all ranks: micro batch x ranks x optimizer
    micro steps that share the round, which are those of one optimizer step unless the field
    ``steps`` says another number (TRL f2cd5771 trainer/grpo_config.py:1077)."""
    micro, world = run[f.batch.micro], run[f.parallel.world]
    shared = run[steps] or run[f.batch.grad_accum]
    if micro is None or world is None or shared is None:
        return None
    return int(micro * world * shared)


def with_same_round(own: dict[Any, Any], run: Cells, steps: Any) -> dict[Any, Any]:
    """What is to be written, and with another micro batch as many more of them in a round of generation, where the
    field ``steps`` says how many share one: else fewer answers would be drawn at once, and other ones learned from."""
    micro, now, shared = own.get(f.batch.micro), run[f.batch.micro], run[steps]
    if not micro or not now or not shared or steps in own or now * shared % micro:
        return own
    return own if micro == now else {**own, steps: now * shared // micro}


def rows_of_mini_batch(run: Cells, parts: Any) -> int | None:
    """Samples of a backward pass where PPO's local batch (micro batches x accumulation) is learned from in as many
    mini batches as the field ``parts`` says, each in micro batches of at most what the file says (trl 0.12 to 1.9
    ppo_trainer.py local_mini_batch_size, and RLOO's up to 0.21)."""
    if run[f.objective.kind] not in ("ppo", "rloo"):
        return None
    said, steps, number = run.base(f.batch.micro), run[f.batch.grad_accum], run[parts]
    if not said or not steps or not number or number == 1:
        return None
    return int(min(said, max(1, said * steps // number)))


def check_whole_batches(run: Cells, parts: Any) -> None:
    """Whether another micro batch may be written.

    Raises:
        CannotEdit: several mini batches of one local batch are learned from.
    """
    if rows_of_mini_batch(run, parts) is not None:
        raise CannotEdit(
            "per_device_train_batch_size and num_mini_batches together say how many samples an update learns from"
        )


def check_precomputed_reference(reference: str, run: Cells) -> None:
    """Whether TRL's trainers, and what is built on them, can have the reference model as wanted.

    Raises:
        CannotEdit: they compute its log-probabilities beforehand under DPO and KTO alone.
    """
    if reference != "precomputed" or run[f.objective.kind] not in ("dpo", "kto"):
        raise CannotEdit("only DPO and KTO can compute their reference beforehand")
