"""What a copy of verl in a project makes of its keys: read from the copy's own code.

Copies are of any release, and changed. What decides memory and differs between them is whether the
engine sleeps whatever ``free_cache_engine`` says, whether log-probabilities are taken without an
entropy, whether micro batches that nobody sets are refused, which micro batch the SFT trainer reads, and in which dtype it loads the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from oomlint.dialects.block import Block
from oomlint.dialects.verl.keys import CARRIED
from oomlint.documents.base import Entry, Mapping, Scalar
from oomlint.documents.lines import Lines
from oomlint.documents.text import Source, Span

if TYPE_CHECKING:
    from oomlint.documents.python.settings import Code

_LOCKED = "it is the code that trains"
_Found = tuple[str, object, Span]

# `self.inference_engine.sleep(level=1)` of vLLM, `release_memory_occupation()` of SGLang.
_RELEASES = ("sleep", "release_memory_occupation")


def _block(source: Source, read: Callable[[Code], Iterator[_Found]]) -> Block | None:
    from oomlint.documents.python.settings import read_code

    code = read_code(source)
    found = () if code is None else tuple(read(code))
    if not found:
        return None
    entries = {key: Entry(key, at, Scalar(at, value), at) for key, value, at in found}
    span = found[0][2]
    return Block(Lines(source), Mapping(span, entries), CARRIED, span, locked=_LOCKED)


def _release(code: Code, key: str) -> Iterator[_Found]:
    """Whether what hands weights to the engine and takes its memory back asks the key first. A file
    that names the key anywhere is taken to."""
    released, asked = code.calls(*_RELEASES, on="engine"), code.reads("free_cache_engine")
    if released is not None:
        yield key, asked is None, asked or released


def _scores(code: Code) -> Iterator[_Found]:
    """Whether the pass that takes log-probabilities takes an entropy too, where it says so itself."""
    names = ("calculate_entropy", "return_entropy")
    found = code.switch("_forward_micro_batch", *names, within="compute_log_prob")
    if found is not None:
        yield "scores.entropy", *found


def _sft(code: Code) -> Iterator[_Found]:
    divided, read = code.divides("data.micro_batch_size"), code.reads("data.micro_batch_size")
    micro = code.reads("data.micro_batch_size_per_gpu")
    if divided or read or micro:
        kind = "divided" if divided else "whole" if read else "unread"
        at = divided or read or micro
        assert at is not None
        yield "data.micro_batch_size", kind, at
    dtype = code.argument("from_pretrained", "torch_dtype")
    if dtype is not None and dtype.path:
        yield "dtype_key", dtype.path, dtype.span
    if dtype is not None and dtype.otherwise:
        yield "dtype_otherwise", dtype.otherwise, dtype.span


# What a release checks: neither of both is refused (verl 0.2 to 0.9.1).
_REFUSES_NEITHER = re.compile(
    r"if mbs is None and mbs_per_gpu is None:\s*raise ValueError(?s:.*)"
    r"if not config\.actor_rollout_ref\.actor\.use_dynamic_bsz:(?s:.*)"
    r"check_mutually_exclusive\(\s*config\.actor_rollout_ref\.rollout\.log_prob_micro_batch_size,"
)


def _checks(source: Source) -> Block | None:
    """Whether the trainer refuses micro batches that nobody sets, as releases do."""
    found = _REFUSES_NEITHER.search(source.text)
    if found is None:
        return None
    at = Span(*found.span())
    entries = {"checks.micro_batches": Entry("checks.micro_batches", at, Scalar(at, True), at)}
    return Block(Lines(source), Mapping(at, entries), CARRIED, at, locked=_LOCKED)


_MANAGERS = ("fsdp_vllm", "fsdp_sglang", "megatron_vllm", "megatron_sglang")

CODE: dict[str, Callable[[Source], Block | None]] = {
    **{
        f"verl/workers/sharding_manager/{name}.py": partial(
            _block, read=partial(_release, key=f"sleeps.{name}")
        )
        for name in _MANAGERS
    },
    "verl/trainer/ppo/ray_trainer.py": _checks,
    "verl/utils/config.py": _checks,
    "verl/workers/actor/dp_actor.py": partial(_block, read=_scores),
    "verl/trainer/fsdp_sft_trainer.py": partial(_block, read=_sft),
}
"""Files of verl's package, and what reads a project's copy of each."""

_CONFIGS = (
    "ppo_trainer", "_generated_ppo_trainer", "ppo_megatron_trainer", "_generated_ppo_megatron_trainer", "sft_trainer",
    "sft_trainer_engine", "actor/actor", "actor/dp_actor", "actor/megatron_actor", "critic/critic", "critic/dp_critic",
    "engine/fsdp", "engine/megatron", "model/hf_model", "optim/fsdp", "optim/megatron", "ref/ref", "ref/dp_ref",
    "rollout/rollout",
)  # fmt: skip
DECLARING = (
    *(f"verl/trainer/config/{name}.yaml" for name in _CONFIGS),
    "verl/workers/fsdp_workers.py",
    "verl/trainer/fsdp_sft_trainer.py",
)
"""Files of verl's package that name every key: the configs that Hydra puts together (verl b178a3cd), and the code that
asks for some by ``config.get``."""

VERSION = ("verl", ("verl/version/version",))
