"""What TRL's trainers generate before they learn: completions, and the engine that makes them.

Read from TRL f2cd5771 (1.10.0.dev0); ``TRL`` below is ``trl``.
"""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import shared
from oomlint.dialects.common.generation import (
    check_whole_batches,
    completions_of_round,
    rows_of_mini_batch,
)
from oomlint.dialects.machine.launcher_keys import PLAIN
from oomlint.dialects.machine.launcher_meaning import launcher_of
from oomlint.dialects.meaning import Meaning, Said, Sourced, Wishes
from oomlint.dialects.setting import unread_at
from oomlint.dialects.trl.fields import trl
from oomlint.dialects.trl.objectives import brings_own_trainer
from oomlint.dialects.trl.releases import (
    COLOCATES,
    COUNTS_COMPLETIONS,
    HAS_COLOCATED,
    LONG_COMPLETIONS,
    SETS_RANKS,
    STEPS_BY_ITSELF,
    SYNCS_TENSORS,
    WAKES_IN_PARTS,
)
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f
from oomlint.plan.training import REINFORCING

rollouts = Meaning()

_R = f.objective.rollout


def rolls_out(run: Cells) -> bool:
    return run[f.objective.kind] in REINFORCING


def _config(run: Cells) -> str:
    return f"TRL f2cd5771 trainer/{run[f.objective.kind]}_config.py"


# -- PPO up to 0.11 ----------------------------------------------------------------------------------

# TRL 0.11.4 trainer/ppo_config.py and not 0.12.0's: what tells the one from the other where nobody pins a release.
_OF_LOOPS = frozenset(
    {
        "model_name", "query_dataset", "init_kl_coef", "adap_kl_ctrl", "ppo_epochs", "forward_batch_size",
        "optimize_cuda_cache", "optimize_device_cache", "is_peft_model", "tracker_project_name", "log_with",
    }
)  # fmt: skip


# Its keys that 0.12.0's does not have, but for those that TRL has for other objectives.
KEYS_OF_LOOPS = frozenset(
    {"model_name", "query_dataset", "reward_model", "task_name", "target", "steps"}
)


def loops_itself(run: Cells) -> bool:
    """Whether a script of PPO generates in a loop of its own, as up to TRL 0.11: by the release, and where the
    project asks for none, not even for a least one, by the keys."""
    if run[f.objective.kind] != "ppo":
        return False
    made = run.made(STEPS_BY_ITSELF)
    if made is None and STEPS_BY_ITSELF.package in run.known.floors:
        return False  # pip takes the newest that is allowed
    return run.once(_is_of_loops) if made is None else not made


def _is_of_loops(blocks: list[Block]) -> bool:
    said = (block.mapping.entries for block in blocks if block.table.section == "training")
    return any(not _OF_LOOPS.isdisjoint(entries) for entries in said)


@rollouts.said(_R.max_prompt_tokens, _R.max_completion_tokens)
def of_own_loop(run: Cells, field: Any, said: Said) -> Said:
    """How long prompts and answers are is between the script's data and its own call of ``generate``."""
    if said is not None or not loops_itself(run):
        return said
    why = "up to TRL 0.11 the script's own loop cuts prompts and says how much is generated"
    return unread_at(run.blocks[-1], "generate", why)


@rollouts.override(f.batch.micro, source="TRL 0.11.4 trainer/ppo_trainer.py step")
def mini_batch(run: Cells) -> Any:
    return run[trl.mini_batch] if loops_itself(run) else None


@rollouts.override(f.batch.micro, source="TRL v1.9.0 experimental/ppo/ppo_trainer.py:461")
def part_of_mini_batch(run: Cells) -> Any:
    return None if loops_itself(run) else rows_of_mini_batch(run, trl.mini_batches)


@part_of_mini_batch.written
def _(rows: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not loops_itself(run):
        check_whole_batches(run, trl.mini_batches)
    return {f.batch.micro: rows}


# -- completions -----------------------------------------------------------------------------------


def _counts_prompts(run: Cells) -> bool:
    """Only where the project pins such a TRL (the three weeks that it was the newest leave no doubt of
    runs that pin none), or brings a trainer of its own with batches that TRL's would refuse."""
    if run[f.objective.kind] != "grpo":
        return False
    if brings_own_trainer(run):
        return not run.once(_repeats_prompts) and _refused_by_trl(run)
    release = run.version(COUNTS_COMPLETIONS.package)
    return release is not None and release < COUNTS_COMPLETIONS.since


def _refused_by_trl(run: Cells) -> bool:
    """From 0.15 on the completions of a round must be whole groups (TRL f2cd5771
    trainer/grpo_config.py __post_init__)."""
    ranks, rows, group = run[f.parallel.world], run[f.batch.micro], run[_R.n]
    steps = run[f.batch.grad_accum] or 1
    return bool(ranks and rows and group and ranks * rows * steps % group)


@rollouts.derive(f.batch.micro_unit)
def counts_completions(run: Cells) -> Any:
    if not rolls_out(run) or _counts_prompts(run):
        return None
    return Sourced("completions", _config(run))


@rollouts.derive(f.objective.pairs_per_sample, source=COUNTS_COMPLETIONS.source)
def completions_beside(run: Cells) -> Any:
    return run[_R.n] if _counts_prompts(run) else None


def _repeats_prompts(blocks: list[Block]) -> bool:
    facts = (fact for block in blocks for fact in block.document.facts)
    return any(fact.kind == "repeats-prompts" for fact in facts)


@rollouts.derive(f.objective.pairs_per_sample)
def completions_alone(run: Cells) -> Any:
    """A trainer of the project's own that draws each prompt as often as it has answers counts these."""
    if run[f.objective.kind] != "grpo" or not run.once(_repeats_prompts):
        return None
    return Sourced(
        1, "TRL 0.15.0 trainer/grpo_trainer.py RepeatRandomSampler, in the project's own"
    )


@rollouts.assume(
    f.objective.pairs_per_sample,
    why="the script may train with a copy of GRPOTrainer from before TRL 0.15, as R1-V's and Video-R1's "
    "do (src/open_r1/trainer/grpo_trainer.py): a batch would count prompts",
)
def perhaps_completions(run: Cells) -> Any:
    return 1 if run[f.objective.kind] == "grpo" and brings_own_trainer(run) else None


@rollouts.default(_R.n)
def completions_of_prompt(run: Cells) -> Any:
    kind = run[f.objective.kind]
    if kind == "ppo":
        return Sourced(1, "TRL v1.9.0 experimental/ppo/ppo_trainer.py: a critic, and no groups")
    return Sourced(2 if kind == "rloo" else 8, _config(run)) if rolls_out(run) else None


@rollouts.default(_R.max_completion_tokens)
def longest_completion(run: Cells) -> Any:
    if not rolls_out(run):
        return None
    if run.has(LONG_COMPLETIONS):
        return Sourced(512, _config(run))
    return Sourced(LONG_COMPLETIONS.was, LONG_COMPLETIONS.source)


@rollouts.assume(
    _R.max_prompt_tokens,
    why="prompts are not cut and their length is not known; 512 was the limit up to TRL 0.24",
)
def longest_prompt(run: Cells) -> Any:
    return 512 if rolls_out(run) else None


@rollouts.override(f.seq.max_len)
def longest_sample(run: Cells) -> Any:
    """A prompt and its completion, whatever else limits samples."""
    if not rolls_out(run):
        return None
    prompt, answer = run[_R.max_prompt_tokens], run[_R.max_completion_tokens]
    return prompt + answer if prompt and answer else None


@rollouts.written(f.seq.max_len)
def _(length: Any, run: Cells, wishes: Wishes) -> Wishes:
    if rolls_out(run):
        raise CannotEdit("the length follows from the prompts and max_completion_length")
    return {f.seq.max_len: length}


@rollouts.derive(_R.generation_batch)
def completions_at_once(run: Cells) -> Any:
    if not rolls_out(run) or brings_own_trainer(run) or _counts_prompts(run):
        return None
    return completions_of_round(run, trl.steps_per_generation)


# -- the engine ------------------------------------------------------------------------------------


@rollouts.default(trl.vllm_mode)
def vllm_mode(run: Cells) -> Any:
    if not rolls_out(run) or not run[trl.vllm]:
        return None
    if run.has(COLOCATES):
        return Sourced("vllm_colocate", _config(run))
    return Sourced(COLOCATES.was, COLOCATES.source)


@rollouts.derive(_R.engine)
def engine(run: Cells) -> Any:
    if not rolls_out(run):
        return None
    return run[trl.vllm_mode] if run[trl.vllm] else "hf"


@rollouts.derive(
    shared.refused,
    source="TRL 0.18.0 to 0.19.1 trainer/grpo_trainer.py (external_launcher); vLLM executor/uniproc_executor.py "
    "ExecutorWithExternalLauncher _distributed_args",
)
def reads_ranks_that_nobody_sets(run: Cells) -> Any:
    """vLLM in the trainer's own process takes its rank from the environment, where a launcher of ranks puts it."""
    if run[f.objective.kind] != "grpo" or launcher_of(run) is not PLAIN:
        return None
    if not run[trl.vllm] or not run.says(trl.vllm_mode) or run[trl.vllm_mode] != "vllm_colocate":
        return None
    if not run.surely_made(HAS_COLOCATED) or run.surely_made(SETS_RANKS) is not False:
        return None
    is_set = run.once(_speaks_of_ranks)
    return (
        None
        if is_set
        else "vLLM reads RANK, which no launcher of ranks sets and TRL before 0.20 neither"
    )


def _speaks_of_ranks(blocks: list[Block]) -> bool:
    """Whether a file of the run may set the variable."""
    return any(re.search(r"\bRANK\b", block.document.source.text) for block in blocks)


@rollouts.default(_R.gpu_mem_util, _R.tp, _R.sleep)
def engine_settings(run: Cells) -> Any:
    if not rolls_out(run) or not run[trl.vllm]:
        return None
    values = {_R.gpu_mem_util: 0.3, _R.tp: 1, _R.sleep: False}
    return {field: Sourced(value, _config(run)) for field, value in values.items()}


@rollouts.default(_R.gathers)
def gathers(run: Cells) -> Any:
    if not rolls_out(run) or run[_R.engine] != "hf":
        return None
    return Sourced(True, f"{_config(run)} ds3_gather_for_generation")


@rollouts.default(
    _R.sync_batches,
    source="TRL 0.16.1 to 0.29.0 trainer/grpo_trainer.py and generation/vllm_generation.py: gather_if_zero3(list(model.parameters()))",
)
def sync_batches(run: Cells) -> Any:
    """All at once where an adapter is merged into it; a model that is trained whole goes tensor by tensor."""
    if not rolls_out(run) or not run[trl.vllm] or brings_own_trainer(run):
        return None
    return 1 if is_adapter_run(run) or not run.has(SYNCS_TENSORS) else None


@rollouts.default(_R.wakes_in_parts)
def wakes_in_parts(run: Cells) -> Any:
    if not rolls_out(run) or not run[_R.sleep]:
        return None
    return Sourced(run.has(WAKES_IN_PARTS), WAKES_IN_PARTS.source)
