"""What ROLL makes of its keys beside its strategies: who has which GPUs, batches, lengths, other models, saving.

Read from alibaba/ROLL 8eb27cc2 (2026-08-18); ``RO`` below is its ``roll`` package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import machine
from oomlint.dialects.common.generation import engine_called
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.roll.keys import SOURCE, own
from oomlint.dialects.roll.strategies import is_megatron, strategies
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f
from oomlint.plan.training import REINFORCING

meaning = Meaning(strategies, world, launch_one_process, batch)

_BASE = f"{SOURCE} roll/configs/base_config.py"
_WORKER = f"{SOURCE} roll/configs/worker_config.py"
_RLVR = f"{SOURCE} roll/pipeline/rlvr/rlvr_pipeline.py"
_STEP = f"{SOURCE} roll/pipeline/base_worker.py"

# -- the objective ---------------------------------------------------------------------------------

_O = f.objective
_R = _O.rollout
_ESTIMATORS = {
    "gae": "ppo", "grpo": "grpo", "gigpo": "grpo", "reinforce": "rloo", "step_reinforce": "rloo",
    "agentic_reinforce": "rloo",
}  # fmt: skip


@meaning.derive(_O.kind, source=f"{SOURCE} examples/start_*_pipeline.py")
def objective(run: Cells) -> Any:
    role = run[own.role]
    if role in ("sft_train", "student"):
        return "sft" if role == "sft_train" else "distill"
    if role == "actor_train" and not run.mentions(own.engine):
        return "dpo"
    if role == "student_train":
        return "rloo"  # RO/configs/base_config.py: reinforce, with the teacher's divergence for rewards
    return _ESTIMATORS.get(str(run[own.estimator]).lower(), "grpo")


def writes_answers(run: Cells) -> bool:
    return run[_O.kind] in REINFORCING


@meaning.derive(_O.pairs_per_sample, source=f"{SOURCE} roll/pipeline/dpo/dpo_config.py:78")
def pairs(run: Cells) -> Any:
    return 1 if run[_O.kind] == "dpo" else None


meaning.takes(f.model.id, own.named, f"{_BASE}:634")


@meaning.derive(_O.ref_model, _O.ref_dtype, source=f"{_BASE}:654, {_RLVR}:126")
def reference(run: Cells) -> Any:
    """A worker of its own, which has the GPU for itself while it computes: in RL what is trained waits
    in RAM meanwhile, in DPO only where ``is_offload_states`` says so."""
    kind = run[_O.kind]
    if kind == "dpo":
        stays = _shares(run, own.other_devices) and not run[own.offloads_states]
        return {_O.ref_model: "copy" if stays else "precomputed", _O.ref_dtype: run[own.dtype]}
    is_on = run[own.reference] or run[own.kl_loss] or (run[own.kl] or 0) > 0
    if not writes_answers(run) or is_adapter_run(run) or not is_on:
        return {_O.ref_model: "none"}
    return {_O.ref_model: "precomputed"}


@meaning.derive(_O.teacher, source=f"{SOURCE} roll/pipeline/distill/distill_pipeline.py:288")
def teacher(run: Cells) -> Any:
    """Beside the student unless ``is_offload_states``, or on cards of its own."""
    stays = _shares(run, own.other_devices) and not run[own.offloads_states]
    return run[own.teacher] if run[_O.kind] == "distill" and stays else "none"


@meaning.derive(_O.critic, _O.reward_model, source=f"{_STEP}:60, {_RLVR}:223")
def models_beside(run: Cells) -> Any:
    """A critic is offloaded before the actor trains; models that judge have cards of their own."""
    return {_O.critic: "none", _O.reward_model: "none"}


# -- who has which GPUs ----------------------------------------------------------------------------


def _shares(run: Cells, other: Any) -> bool:
    """Whether another role runs on cards of the one that trains."""
    mine, theirs = run[own.devices], run[other]
    return bool(mine and theirs and set(mine) & set(theirs))


@meaning.derive(f.parallel.gpus_per_node, f.parallel.nodes, source=f"{_WORKER}:311, {_BASE}:352")
def ranks(run: Cells) -> Any:
    """One a GPU of ``device_mapping``. How many a node has, the machine says: the key is overwritten."""
    devices = run[own.devices]
    if not devices:
        return None
    each = run[machine.gpus_per_node] or run[own.gpus]
    count = len(set(devices))
    return {
        f.parallel.gpus_per_node: min(count, each),
        f.parallel.nodes: max(1, -(-count // each)),
    }


@meaning.derive(_R.engine, source=f"{_BASE}:857")
def engine(run: Cells) -> Any:
    if not writes_answers(run):
        return "none"
    named = run[own.engine] or "vllm"
    if named == "hf":
        return "hf"
    return engine_called(named, shares_cards=_shares(run, own.engine_devices))


@meaning.derive(
    _R.gpu_mem_util,
    _R.tp,
    source=f"{SOURCE} roll/third_party/vllm, roll/distributed/strategy/sglang_strategy.py",
)
def shares_of_engine(run: Cells) -> Any:
    """Without a share vLLM takes its own default (vLLM engine/arg_utils.py, 0.9; 0.92 from 0.19 on)."""
    if not writes_answers(run):
        return None
    if run[own.engine] == "sglang":
        return {_R.gpu_mem_util: run[own.sglang_share], _R.tp: run[own.sglang_tp]}
    return {_R.gpu_mem_util: run.get(own.vllm_share, 0.9), _R.tp: run[own.vllm_tp]}


@meaning.written(_R.gpu_mem_util)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.sglang_share if run[own.engine] == "sglang" else own.vllm_share: wanted}


@meaning.derive(
    _R.sleep,
    source=f"{_RLVR}:559, roll/distributed/strategy/vllm_strategy.py:369, roll/pipeline/agentic/agentic_pipeline.py:342",
)
def sleeps(run: Cells) -> Any:
    """Where it shares cards and each step waits for its own answers, or games go on meanwhile on the
    cards that it has besides."""
    if not writes_answers(run):
        return None
    if not (run[own.ratio] or run[own.asynchronous]):
        return _shares(run, own.engine_devices)
    mine, theirs = set(run[own.devices] or ()), set(run[own.engine_devices] or ())
    return bool(run.mentions(own.games) and run[own.partial] and mine < theirs)


meaning.cannot_say("ROLL's engines sleep where they share cards, and never else", _R.sleep)


@meaning.derive(f.offload.idle, source=f"{_STEP}:60, {SOURCE} roll/distributed/strategy")
def leaves(run: Cells) -> Any:
    """Megatron's states wait in RAM while others have the cards. Of FSDP2 without ``offload_policy`` the
    weights do, and what its optimizer keeps, which is more, stays (fsdp2_strategy.py:958)."""
    if not writes_answers(run):
        return "none"
    return "cpu" if is_megatron(run) or run[own.offloads] else "none"


@leaves.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if is_megatron(run) or device != "cpu":
        raise CannotEdit("what of ROLL's models leaves the GPU follows from their strategy")
    return {own.offloads: True}


@meaning.derive(
    f.offload.between_steps,
    source=f"{SOURCE} roll/distributed/strategy/megatron_strategy.py:1267,1315",
)
def adam_leaves(run: Cells) -> Any:
    """Adam's states come to Megatron for the step alone: in RL always, in SFT never, else if a key says
    so (RO/pipeline/sft/sft_pipeline.py:211)."""
    kind = run[_O.kind]
    leaves = writes_answers(run) or (kind in ("dpo", "distill") and run[own.offloads_adam])
    return "cpu" if is_megatron(run) and leaves else "none"


@adam_leaves.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not is_megatron(run) or run[_O.kind] not in ("dpo", "distill"):
        raise CannotEdit("whether Adam's states leave the GPU follows from the pipeline")
    return {own.offloads_adam: device == "cpu"}


# -- lengths ---------------------------------------------------------------------------------------


@meaning.derive(f.seq.max_len, source=f"{_BASE}:272")
def length(run: Cells) -> Any:
    if run.is_unread(own.sequence):
        return None
    response, prompt = run[own.response], run[own.prompt]
    return run[own.sequence] or (response + prompt if response and prompt else None)


@length.written
def _(tokens: Any, run: Cells, wishes: Wishes) -> Wishes:
    if run[own.sequence]:
        return {own.sequence: tokens}
    rest = tokens - (run[own.prompt] or 0)
    if rest < 1:
        raise CannotEdit("prompt_length alone is as much")
    return {own.response: rest}


@meaning.derive(
    _R.max_prompt_tokens,
    _R.max_completion_tokens,
    source=f"{SOURCE} roll/pipeline/rlvr/rlvr_config.py:248",
)
def parts_of_sample(run: Cells) -> Any:
    whole, prompt = run[f.seq.max_len], run[own.prompt]
    if not writes_answers(run) or not whole or not prompt:
        return None
    return {_R.max_prompt_tokens: prompt, _R.max_completion_tokens: max(1, whole - prompt)}


@meaning.written(_R.max_completion_tokens)
def _(tokens: Any, run: Cells, wishes: Wishes) -> Wishes:
    if run[own.sequence]:
        return {own.sequence: tokens + (run[own.prompt] or 0)}
    return {own.response: tokens}


@meaning.derive(f.seq.packing, f.seq.pad, source=f"{SOURCE} roll/utils/functionals.py:1225")
def padding(run: Cells) -> Any:
    """Every sample has the full length; Megatron alone knows how to leave padding out."""
    packs = is_megatron(run) and run[own.packs]
    return {f.seq.packing: "varlen" if packs else "none", f.seq.pad: "none" if packs else "max_len"}


# -- batches ---------------------------------------------------------------------------------------

_MICRO = f"{SOURCE} roll/distributed/strategy/megatron_strategy.py:1265"


@meaning.derive(f.batch.micro_unit)
def counts(run: Cells) -> Any:
    return "completions" if writes_answers(run) else None


def _budget(run: Cells) -> Any:
    """The key that says how many tokens fill a micro batch, if one does."""
    if is_megatron(run) and run[own.dynamic]:
        return own.dynamic_tokens
    return own.packed_tokens if is_megatron(run) and run[own.packs] else None


@meaning.derive(f.batch.max_tokens_per_gpu, source=_MICRO)
def tokens_of_batch(run: Cells) -> Any:
    """Packed without a bound, so many as the samples of a micro batch have at most."""
    key = _budget(run)
    if key is None:
        return None
    micro, longest = run[f.batch.micro], run[f.seq.max_len]
    return run[key] or (micro * longest if micro and longest else None)


@tokens_of_batch.written
def _(tokens: Any, run: Cells, wishes: Wishes) -> Wishes:
    key = _budget(run)
    if key is None or not run[key]:
        raise CannotEdit("a budget of tokens counts with dynamic batching or load_balance only")
    if tokens < (run[f.seq.max_len] or 0):
        raise CannotEdit("a micro batch must have room for the longest sample")
    return {key: tokens}


@meaning.written(f.batch.micro)
def _(micro: Any, run: Cells, wishes: Wishes) -> Wishes:
    key, longest = _budget(run), run[f.seq.max_len]
    if key is None or not run[key]:
        return {f.batch.micro: micro}
    if longest is None:
        raise CannotEdit("the budget of tokens depends on a length that is not known")
    return {f.batch.micro: micro, key: micro * longest}


@meaning.derive(_R.rollout_micro_batch, _R.entropy, source=f"{_STEP}:167")
def scored(run: Cells) -> Any:
    """Log-probabilities and entropy of the answers before training."""
    if not writes_answers(run):
        return None
    return {_R.rollout_micro_batch: run[own.rows], _R.entropy: "whole"}


@meaning.written(_R.rollout_micro_batch)
def _(rows: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.rows: rows}


@meaning.derive(_R.generation_batch, source=f"{_BASE}:153")
def answers(run: Cells) -> Any:
    prompts, each = run[own.prompts], run[_R.n]
    return prompts * each if writes_answers(run) and prompts and each else None


@meaning.derive(f.batch.eval_micro, source=f"{SOURCE} roll/pipeline/sft/sft_worker.py")
def validated_rows(run: Cells) -> Any:
    if writes_answers(run):
        return 1
    return run[own.rows]


@validated_rows.written
def _(rows: Any, run: Cells, wishes: Wishes) -> Wishes:
    if writes_answers(run):
        raise CannotEdit("it validates by generation alone")
    return {own.rows: rows}


# -- evaluating and saving -------------------------------------------------------------------------


@meaning.derive(f.eval.enabled, f.eval.strategy, f.eval.every, source=f"{_BASE}:149")
def evaluation(run: Cells) -> Any:
    every = run[own.val_every]
    if not every or not (writes_answers(run) or run.mentions(own.validates)):
        return {f.eval.enabled: False, f.eval.strategy: "no"}
    return {f.eval.enabled: True, f.eval.strategy: "steps", f.eval.every: float(every)}


meaning.always(f.eval.keeps_logits, False, f"{SOURCE} roll/pipeline")


@meaning.derive(f.eval.generate, source=_RLVR)
def generates(run: Cells) -> Any:
    return writes_answers(run)


@meaning.derive(f.save.strategy, f.save.every, f.save.keep, source=f"{_BASE}:137")
def saving(run: Cells) -> Any:
    return {
        f.save.strategy: "steps",
        f.save.every: float(run[own.save_every]),
        f.save.keep: run[own.keep] or "all",
    }


@meaning.written(f.save.every)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.save_every: int(steps)}


@meaning.written(f.save.keep)
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.keep: 0 if count == "all" else count}


@meaning.derive(f.save.contents, f.save.full_gather, source=f"{SOURCE} roll/distributed/strategy")
def saved(run: Cells) -> Any:
    """FSDP2 brings the whole model together in the RAM of one rank beside the shards of all."""
    kept = "adapter" if is_adapter_run(run) else "model"
    return {
        f.save.contents: (kept,) if run[f.save.save_only_model] else (kept, "optimizer"),
        f.save.full_gather: not is_megatron(run),
    }
