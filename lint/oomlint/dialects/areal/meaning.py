"""What AReaL makes of its keys, and how they say a wish.

Read from inclusionAI/AReaL 4aef98d8 (2026-05-21); ``AR`` below is its ``areal`` package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.areal.batches import batches
from oomlint.dialects.areal.keys import ARGS, SOURCE, own
from oomlint.dialects.areal.ranks import ranks
from oomlint.dialects.areal.roles import is_megatron, is_rl, serving_of, shares_cards
from oomlint.dialects.areal.sharding import sharding
from oomlint.dialects.areal.training import training
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.generation import engine_called
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

meaning = Meaning(ranks, sharding, training, batches, world, launch_one_process, batch)

_FSDP = f"{SOURCE} areal/engine/fsdp_engine.py"
_RL = f"{SOURCE} areal/trainer/rl_trainer.py"
_DPO = f"{SOURCE} areal/trainer/dpo_trainer.py"
_O = f.objective
_R = f.objective.rollout

# -- the objective and the models beside -----------------------------------------------------------


@meaning.derive(_O.kind, source=f"{ARGS}:2758-2883")
def objective(run: Cells) -> Any:
    """A file with an engine is for RL, whichever program reads it."""
    if run.mentions(own.rollout) or serving_of(run) is not None:
        return "ppo" if run.mentions(own.critic) else "grpo"
    return {"dpo": "dpo", "rw": "rm", "rl": "grpo"}.get(str(run[own.kind]).lower(), "sft")


@meaning.derive(_O.pairs_per_sample, source=f"{_DPO}, {SOURCE} areal/trainer/rw")
def pairs(run: Cells) -> Any:
    """A budget of tokens has both answers of a pair in it."""
    return 1 if run[_O.kind] in ("dpo", "rm") else None


def _is_beside(run: Cells, place: Any) -> bool:
    return bool(run[place] == "actor")


@meaning.derive(_O.ref_model, _O.ref_dtype, source=f"{_RL}:179, {_DPO}:114")
def reference(run: Cells) -> Any:
    """RL has one where ``kl_ctl`` is above 0; on the actor's cards it stays there unless its own ``offload``."""
    kind = run[_O.kind]
    wanted = run.mentions(own.ref) and (kind == "dpo" or (is_rl(run) and (run[own.kl] or 0) > 0))
    if not wanted:
        return {_O.ref_model: "none"}
    stays = _is_beside(run, own.ref_place) and not (run[own.ref_offload] and run[own.offloads])
    return {_O.ref_model: "copy" if stays else "precomputed", _O.ref_dtype: run[own.ref_dtype]}


@meaning.derive(_O.critic, _O.teacher, _O.reward_model, source=f"{_RL}:172-190")
def models_beside(run: Cells) -> Any:
    """Those on the actor's cards; rewards are functions."""
    critic = run[own.critic_path] or run[f.model.id]
    teacher = run[own.teacher_path]
    has_critic = run.mentions(own.critic) and _is_beside(run, own.critic_place)
    has_teacher = run.mentions(own.teacher) and _is_beside(run, own.teacher_place)
    return {
        _O.critic: critic if has_critic else "none",
        _O.teacher: teacher if has_teacher else "none",
        _O.reward_model: "none",
    }


# -- the loss --------------------------------------------------------------------------------------

_LOSS = f"{SOURCE} areal/utils/functional/vocab_parallel.py:15-81"
_ROWS = 1024


@meaning.derive(
    f.loss.logits_materialised, f.loss.algorithm, f.loss.chunks, f.loss.upcast_fp32, source=_LOSS
)
def loss(run: Cells) -> Any:
    """Log-probabilities of 1024 rows at a time; those of logits that ranks share by a softmax that is kept."""
    tokens = run[f.batch.max_tokens_per_gpu]
    if not tokens:
        micro, longest = run[f.batch.micro], run[f.seq.max_len]
        tokens = micro * longest if micro and longest else _ROWS
    if is_megatron(run) or (run[f.parallel.tp] or 1) > 1:
        kind = "loss_parallel" if is_megatron(run) else "full"
        return {
            f.loss.logits_materialised: kind,
            f.loss.algorithm: "softmax",
            f.loss.upcast_fp32: True,
        }
    return {
        f.loss.logits_materialised: "chunked",
        f.loss.algorithm: "slices",
        f.loss.chunks: max(1, -(-tokens // _ROWS)),
        f.loss.upcast_fp32: True,
    }


meaning.cannot_say(
    "AReaL computes its loss from all logits", f.loss.logits_materialised, f.loss.chunks
)
meaning.always(f.loss.outputs_kept, False, _LOSS)


# -- rollouts --------------------------------------------------------------------------------------


def _is_vllm(run: Cells) -> bool:
    place = serving_of(run)
    return place is not None and place.backend == "vllm"


@meaning.derive(
    _R.engine,
    _R.tp,
    _R.gpu_mem_util,
    _R.max_model_len,
    _R.sleep,
    source=f"{_RL}:1208, {ARGS}:1657,1771",
)
def engine(run: Cells) -> Any:
    """On cards of its own, unless the actor is put where it is; the other engine's section counts for nothing."""
    if not is_rl(run):
        return None
    place, is_vllm = serving_of(run), _is_vllm(run)
    here = shares_cards(run)
    return {
        _R.engine: engine_called("vllm" if is_vllm else "sglang", shares_cards=here),
        _R.tp: place.tp if place is not None else None,
        _R.gpu_mem_util: run[own.vllm_share if is_vllm else own.sglang_share],
        _R.max_model_len: run[own.vllm_len if is_vllm else own.sglang_len],
        _R.sleep: here,
    }


@meaning.written(_R.gpu_mem_util)
def _(share: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.vllm_share if _is_vllm(run) else own.sglang_share: share}


meaning.cannot_say("AReaL's engines sleep where they share cards, and never else", _R.sleep)


# -- loading, evaluating and saving ----------------------------------------------------------------


@meaning.derive(
    f.load.cpu_ram_efficient, f.load.device_map, f.load.meta_init, source=f"{_FSDP}:991-1062"
)
def loads(run: Cells) -> Any:
    """Each rank reads the whole model onto its card before it is sharded, unless one reads it in RAM."""
    if is_megatron(run):
        return None
    alone = bool(run[own.loads_once])
    return {
        f.load.cpu_ram_efficient: alone,
        f.load.device_map: "none" if alone else "single",
        f.load.meta_init: False,
    }


@loads.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if f.load.cpu_ram_efficient not in wishes or is_megatron(run):
        raise CannotEdit("AReaL loads onto the card, or once in RAM (memory_efficient_load)")
    return {own.loads_once: bool(wanted)}


@meaning.derive(f.eval.enabled, f.eval.strategy, source=f"{_RL}:980")
def evaluation(run: Cells) -> Any:
    """It generates on the engine's cards."""
    return {f.eval.enabled: False, f.eval.strategy: "no"}


@meaning.derive(f.save.strategy, f.save.every, f.save.unit, source=f"{ARGS}:2193")
def saving(run: Cells) -> Any:
    steps, epochs = run[own.steps], run[own.epochs]
    if steps:
        return {f.save.strategy: "steps", f.save.every: float(steps), f.save.unit: "steps"}
    if epochs:
        return {f.save.strategy: "epoch", f.save.every: float(epochs), f.save.unit: "epochs"}
    return {f.save.strategy: "no"}


@meaning.written(f.save.every)
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.steps: int(count)}


@meaning.derive(
    f.save.contents, f.save.full_gather, f.save.keep, source=f"{_FSDP}:1640, {ARGS}:2255"
)
def saved(run: Cells) -> Any:
    """The model comes together in the RAM of one rank; what a run goes on from is sharded."""
    kept = "adapter" if is_adapter_run(run) else "model"
    is_whole = run[own.recovers] in (None, "disabled", "off")
    return {
        f.save.contents: (kept,) if is_whole else (kept, "optimizer"),
        f.save.full_gather: not is_megatron(run),
        f.save.keep: "all",
    }


meaning.cannot_say("AReaL keeps every checkpoint of its saver", f.save.keep)
meaning.cannot_say("recover says what a run goes on from", f.save.save_only_model)
