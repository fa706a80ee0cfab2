"""What NeMo-RL makes of its keys beside its backends: ranks, batches, the models of an algorithm, saving.

Read from NVIDIA-NeMo/RL 7ea279ab (2026-08-22); ``NR`` below is its ``nemo_rl`` package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.generation import engine_called
from oomlint.dialects.common.world import batch, keep_share, share_of, steps_through, world
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.nemo_rl.backends import backends, is_megatron
from oomlint.dialects.nemo_rl.keys import SOURCE, own
from oomlint.dialects.setting import Setting
from oomlint.documents.base import Scalar
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f
from oomlint.plan.training import REINFORCING

meaning = Meaning(backends, world, launch_one_process, batch)

_ALGORITHMS = f"{SOURCE} nemo_rl/algorithms"
_GRPO = f"{_ALGORITHMS}/grpo.py"
_WORKER = f"{SOURCE} nemo_rl/models/policy/workers/dtensor_policy_worker_v2.py"

# -- the algorithm ---------------------------------------------------------------------------------

_O = f.objective
_R = _O.rollout
# Of a chain the file at its end may have sections that its program does not look at.
_SECTIONS = (
    (own.ppo, "ppo"), (own.distillation, "distill"), (own.dpo, "dpo"), (own.rm, "rm"), (own.grpo, "grpo"),
    (own.sft, "sft"),
)  # fmt: skip
_WRITES = REINFORCING | {"distill"}


@meaning.derive(_O.kind, source=_ALGORITHMS)
def objective(run: Cells) -> Any:
    kind = next((kind for field, kind in _SECTIONS if run.mentions(field)), None)
    if kind == "grpo" and str(run[own.estimator] or "").startswith("reinforce"):
        return "rloo"
    if kind is None:
        return "grpo" if run.mentions(own.prompts) else None
    return kind


def writes_answers(run: Cells) -> bool:
    return run[_O.kind] in _WRITES


@meaning.derive(_O.ref_model, source=f"{_WORKER}:1017, {_GRPO}:1145")
def reference(run: Cells) -> Any:
    """A copy in pinned RAM that takes the policy's place on the GPU for a pass of its own."""
    kind = run[_O.kind]
    if kind == "dpo":
        return "precomputed"
    return "precomputed" if kind in REINFORCING and (run[own.kl] or 0) > 0 else "none"


@meaning.derive(_O.critic, _O.teacher, _O.reward_model, source=f"{_ALGORITHMS}/distillation.py:903")
def models_beside(run: Cells) -> Any:
    """Teacher and critic have workers of their own on the same cards, which are offloaded after use."""
    run[own.critic]
    run[own.teacher]
    return {_O.critic: "none", _O.teacher: "none", _O.reward_model: "none"}


# -- who shares the GPUs ---------------------------------------------------------------------------

_APART = f"{_GRPO}:856"


def _is_apart(run: Cells) -> bool:
    return writes_answers(run) and run[own.colocated] is False


@meaning.derive(f.parallel.gpus_per_node, f.parallel.nodes, source=_APART)
def ranks(run: Cells) -> Any:
    """Of one node engines on cards of their own take GPUs, of several they take nodes."""
    gpus, nodes = run[own.gpus], run[own.nodes]
    if _is_apart(run) and gpus and nodes:
        if nodes == 1:
            gpus = max(1, gpus - (run[own.engine_gpus] or 0))
        else:
            nodes = max(1, nodes - (run[own.engine_nodes] or 0))
    return {f.parallel.gpus_per_node: gpus, f.parallel.nodes: nodes}


@meaning.derive(_R.engine, source=_APART)
def engine(run: Cells) -> Any:
    if not writes_answers(run):
        return "none"
    named = run[own.backend] or "vllm"
    if named in ("none", "hf"):
        return named
    return engine_called(named, shares_cards=not _is_apart(run))


def _is_sglang(run: Cells) -> bool:
    return run[own.backend] == "sglang"


@meaning.derive(_R.gpu_mem_util, _R.tp, _R.sleep, source=f"{SOURCE} nemo_rl/models/generation")
def shares(run: Cells) -> Any:
    if not writes_answers(run):
        return None
    share, tp = (
        (own.sglang_share, own.sglang_tp) if _is_sglang(run) else (own.vllm_share, own.vllm_tp)
    )
    return {_R.gpu_mem_util: run[share], _R.tp: run[tp], _R.sleep: not _is_apart(run)}


@meaning.written(_R.gpu_mem_util)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.sglang_share if _is_sglang(run) else own.vllm_share: wanted}


@meaning.written(_R.sleep)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    raise CannotEdit("engines that share the cards always sleep while the policy trains")


@meaning.derive(f.offload.idle, source=f"{_WORKER}:1292, {_GRPO}:2416")
def policy_leaves(run: Cells) -> Any:
    """Weights and states wait in RAM while engines on the same cards generate."""
    return "cpu" if writes_answers(run) and not _is_apart(run) else "none"


meaning.cannot_say(
    "NeMo-RL always offloads the policy while engines share its cards", f.offload.idle
)


@meaning.derive(_R.max_prompt_tokens)
def prompts(run: Cells) -> Any:
    """Prompt and answer share the length (NR/experience/rollouts.py)."""
    whole, answer = run[f.seq.max_len], run[_R.max_completion_tokens]
    return max(0, whole - answer) or None if writes_answers(run) and whole and answer else None


# -- batches ---------------------------------------------------------------------------------------

_PACKS = f"{SOURCE} nemo_rl/models/automodel/data.py:287"


@meaning.derive(f.batch.micro_unit)
def counts(run: Cells) -> Any:
    return "completions" if writes_answers(run) else None


@meaning.derive(f.batch.max_tokens_per_gpu, source=_PACKS)
def tokens_of_batch(run: Cells) -> Any:
    """Bins of so many tokens; without the key those of a micro batch of the longest."""
    if not (run[own.packs] or run[own.dynamic]):
        return None
    said = run[own.pack_tokens if run[own.packs] else own.dynamic_tokens]
    micro, longest = run[f.batch.micro], run[f.seq.max_len]
    return said or (micro * longest if micro and longest else None)


@tokens_of_batch.written
def _(tokens: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not (run[own.packs] or run[own.dynamic]):
        raise CannotEdit("a budget of tokens counts with sequence_packing or dynamic_batching only")
    if tokens < (run[f.seq.max_len] or 0):
        raise CannotEdit(
            "a micro batch must have room for the longest sample: lower max_total_sequence_length"
        )
    return {own.pack_tokens if run[own.packs] else own.dynamic_tokens: tokens}


@meaning.written(f.batch.micro)
def _(micro: Any, run: Cells, wishes: Wishes) -> Wishes:
    budget = own.pack_tokens if run[own.packs] else own.dynamic_tokens if run[own.dynamic] else None
    if budget is None or not run.says(budget) or _refers(run, budget):
        return {f.batch.micro: micro}
    longest = run[f.seq.max_len]
    if longest is None:
        raise CannotEdit("the budget of tokens depends on a length that is not known")
    return {f.batch.micro: micro, budget: micro * longest}


def _refers(run: Cells, field: Any) -> bool:
    """Whether a key says what others come to: ``${mul:${policy.max_total_sequence_length}, …}``."""
    said = run.stated(field)
    entry = said.origin.entry if isinstance(said, Setting) else None
    value = None if entry is None else entry.value
    return isinstance(value, Scalar) and "${" in str(value.value)


def _samples(run: Cells) -> int | None:
    return share_of(run[own.global_batch], run[f.parallel.dp])


@meaning.derive(f.batch.grad_accum, source=f"{_WORKER}:417")
def accumulation(run: Cells) -> Any:
    return steps_through(_samples(run), run[f.batch.micro])


@accumulation.written
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return keep_share(steps, run, wishes, "policy.train_global_batch_size")


meaning.takes(f.batch.global_, own.global_batch)


@meaning.derive(f.batch.eval_micro, source=_ALGORITHMS)
def validated_rows(run: Cells) -> Any:
    return 1 if writes_answers(run) else run[own.val_micro]


@validated_rows.written
def _(rows: Any, run: Cells, wishes: Wishes) -> Wishes:
    if writes_answers(run):
        raise CannotEdit("it validates by generation alone")
    return {own.val_micro: rows}


@meaning.derive(f.seq.packing, f.seq.pad, source=_PACKS)
def padding(run: Cells) -> Any:
    packs = bool(run[own.packs])
    return {f.seq.packing: "varlen" if packs else "none", f.seq.pad: "none" if packs else "longest"}


# -- loading, evaluating, saving -------------------------------------------------------------------


@meaning.derive(f.load.cpu_ram_efficient, f.load.meta_init, f.load.device_map, source=_WORKER)
def loads(run: Cells) -> Any:
    """The older worker loads all of it on the first rank (NR/models/policy/workers/
    dtensor_policy_worker.py:341), the newer one shard by shard."""
    if is_megatron(run):
        return None
    return {
        f.load.cpu_ram_efficient: True,
        f.load.meta_init: bool(run[own.v2]),
        f.load.device_map: "none",
    }


meaning.cannot_say("how NeMo-RL loads follows from its worker", f.load.cpu_ram_efficient)
meaning.constant(f.model.from_scratch, False, f"{SOURCE} nemo_rl/models: a checkpoint always")


@meaning.derive(f.eval.enabled, f.eval.strategy, f.eval.every, source=_ALGORITHMS)
def evaluation(run: Cells) -> Any:
    every = run[own.val_every]
    if every is None:
        return None
    if every <= 0:
        return {f.eval.enabled: False, f.eval.strategy: "no"}
    return {f.eval.enabled: True, f.eval.strategy: "steps", f.eval.every: float(every)}


meaning.always(f.eval.keeps_logits, False, _ALGORITHMS)


@meaning.derive(f.eval.generate, source=_GRPO)
def generates(run: Cells) -> Any:
    return writes_answers(run)


@meaning.derive(
    f.save.strategy, f.save.every, f.save.keep, source=f"{SOURCE} nemo_rl/utils/checkpoint.py"
)
def saving(run: Cells) -> Any:
    if run[own.saves] is False:
        return {f.save.strategy: "no"}
    every = run[own.save_every]
    if every is None:
        return None
    return {
        f.save.strategy: "steps",
        f.save.every: float(every),
        f.save.keep: run[own.keep] or "all",
    }


@meaning.written(f.save.every)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.save_every: int(steps)}


@meaning.written(f.save.keep)
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.keep: None if count == "all" else count}


@meaning.derive(f.save.contents, f.save.save_only_model, f.save.full_gather)
def saved(run: Cells) -> Any:
    kept = "adapter" if is_adapter_run(run) else "model"
    only = run[own.save_optimizer] is False
    return {
        f.save.contents: (kept,) if only else (kept, "optimizer"),
        f.save.save_only_model: only,
        f.save.full_gather: False,
    }


@meaning.written(f.save.save_only_model)
def _(only: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.save_optimizer: not only}
