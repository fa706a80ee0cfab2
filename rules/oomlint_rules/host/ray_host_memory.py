"""RL under Ray: what the phases of a step leave in RAM, and a monitor that kills before the kernel.

## What it finds

Runs of verl, slime, NeMo-RL, ROLL and of OpenRLHF's Ray trainers whose models, idle states and rollouts take more than
what Ray allows of a node's RAM. If the RAM is not known and the need is large, it is named.

## Why it runs out of memory

Between its turns a colocated model leaves the GPU: with `param_offload` and `optimizer_offload` its
fp32 weights and Adam's states, 12 to 16 bytes a parameter, wait in RAM while the engine
generates. A step's rollouts pass through the driver and Ray's object store, in shared memory:
prompts x responses x tokens x some 64 bytes. Ray kills the newest task from 95 % of the node's
RAM on, by design before the kernel would: *Task was killed due to the node running low on
memory*. Nothing is wrong with the task that dies.

## How to fix it

Offload less where the GPUs have room for the states beside the engine: the fix does so if that
is known. Or a smaller `train_batch_size`, fewer data loader workers, more RAM for the container. Raising
`RAY_memory_usage_threshold` (0.98) gains little and gives the decision to the kernel.

## When not to

Where RAM is known and suffices, the rule is silent, and where torchrun or deepspeed starts the ranks.

## Sources

* Ray documentation, *Out-Of-Memory Prevention* (`RAY_memory_usage_threshold`, 0.95)
* verl c82b25f9 `workers/fsdp_workers.py:893` (states leave and come back), OpenRLHF 3c3be623
  `cli/train_ppo_ray.py:348`
* https://github.com/verl-project/verl/issues/2245, https://github.com/verl-project/verl/issues/3453,
  https://github.com/OpenRLHF/OpenRLHF/issues/198
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oomlint.judgement import confidence, judge_host, settled, severity_of_need
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.memory import state_bytes
from oomlint.plan import Plan
from oomlint.plan.fields import f
from oomlint.plan.training import REINFORCING
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._conditions import RAY_TRAINERS, ray_starts
from oomlint_rules._examples import example, line, mended
from oomlint_rules._fixes import host_after
from oomlint_rules.host._ram import against

_RAY_LETS = 0.95
# Most machines with eight cards that RL is trained on have more.
_NOTEWORTHY = 480 * 2**30
# verl c82b25f9 trainer/ppo/ray_trainer.py: input_ids, attention_mask, position_ids, responses and
# response_mask of int64; old and reference log probabilities, scores, rewards, advantages and returns of
# fp32. The driver's copy and the one in the object store.
_BYTES_PER_TOKEN = 2 * 64

_VERL = line(
    """
    python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo
    data.train_batch_size=256 data.max_prompt_length=1024 data.max_response_length=2048
    actor_rollout_ref.model.path=Qwen/Qwen2.5-14B-Instruct
    actor_rollout_ref.model.enable_gradient_checkpointing=True
    actor_rollout_ref.actor.ppo_mini_batch_size=64
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1
    actor_rollout_ref.actor.fsdp_config.param_offload={away}
    actor_rollout_ref.actor.fsdp_config.optimizer_offload={away}
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=8
    actor_rollout_ref.rollout.gpu_memory_utilization=0.4
    trainer.n_gpus_per_node=8 trainer.nnodes=1
    """
)
_OPENRLHF = line(
    """
    python3 -m openrlhf.cli.train_ppo_ray --actor_num_nodes 1 --actor_num_gpus_per_node 8
    --pretrain Qwen/Qwen2.5-14B-Instruct --colocate_all_models --deepspeed_enable_sleep{more}
    --vllm_num_engines 4 --vllm_tensor_parallel_size 2 --vllm_gpu_memory_utilization 0.5
    --micro_train_batch_size 1 --train_batch_size 128 --rollout_batch_size 1024
    --prompt_max_len 1024 --generate_max_len 2048 --zero_stage 3 --bf16 --gradient_checkpointing
    --save_path out
    """
)


class RayHostMemory(Rule, code="OOM414", fixes=Applicability.SAFE, cost=3):
    summary = "models and rollouts in RAM pass what Ray allows of it"
    only_where = (Where(frameworks=RAY_TRAINERS),)

    bad = (
        mended("train.sh", _VERL, away=(True, False), on="8xH100-80GB, 180GiB"),
        example({"train.sh": _OPENRLHF.format(more="")}, on="8xH100-80GB, 180GiB"),
    )
    good = (
        example({"train.sh": _VERL.format(away=True)}, on="8xH100-80GB, 1TiB"),
        example({"train.sh": _OPENRLHF.format(more="")}, on="8xH100-80GB, 1TiB"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        probe = settled(run)
        plan = probe.plan
        if plan.objective.kind not in REINFORCING or not ray_starts(run):
            return
        training, loading = judge_host(run, phase="train"), judge_host(run, phase="load")
        if training is None or loading is None:
            return
        idle, rollouts = _idle_bytes(plan), _rollout_bytes(plan)
        limit = run.limits.host_bytes
        need = max(loading.predicted, training.predicted + rollouts)
        if limit is None:
            severity = Severity.INFO if need >= _NOTEWORTHY else None
            have = against(need, None)
        else:
            allowed = _RAY_LETS * limit
            severity = severity_of_need(run, "host", need / _RAY_LETS)
            have = (*against(need, limit), f"Ray kills a task beyond {gib(allowed)}")
        # What training itself offloads is another rule's matter.
        if severity is None or (training.is_problem and not idle + rollouts > 0.1 * need):
            return
        if need == loading.predicted:
            title = f"loading the weights takes {gib(need)} of a node's RAM, with the processes"
            parts = []
        else:
            kept = training.predicted - idle
            title = f"the processes on a node keep {gib(kept)} in its RAM"
            parts = [f"{gib(kept)} for the processes and what they keep there"]
            if idle:
                title = f"{gib(idle)} of states wait in RAM while the engine generates"
            if rollouts >= 2**30:
                parts.append(f"{gib(rollouts)} of rollouts")
        yield self.finding(
            run,
            severity,
            title,
            at=(f.offload.idle, f.objective.rollout.engine, f.model.id),
            details=(*parts, *have),
            confidence="low" if confidence(run) == "low" else "medium",
            resource="host",
            predicted=need,
            limit=limit,
            proposals=_on_gpu(run, probe) if idle and severity > Severity.INFO else (),
        )


def _idle_bytes(plan: Plan) -> int:
    """States of a node's ranks that leave their GPUs between the turns."""
    states = state_bytes(plan)
    if plan.offload.idle != "cpu" or states is None:
        return 0
    each = states.parameters + states.master + states.optimizer
    return int(each * (plan.parallel.gpus_per_node or 1))


def _rollout_bytes(plan: Plan) -> int:
    """The tokens of one step on the first node, as far as they are known."""
    rollout, step = plan.objective.rollout, plan.batch.global_
    lengths = (rollout.max_prompt_tokens, rollout.max_completion_tokens)
    if step is None or None in lengths:
        return 0
    return int(step * sum(n for n in lengths if n) * _BYTES_PER_TOKEN)


def _on_gpu(run: Run, probe: Run) -> Iterator[Proposal]:
    """States stay on the GPU, where they and the engine have room beside each other."""
    states, card = state_bytes(probe.plan), run.limits.gpu_bytes
    share = probe.plan.objective.rollout.gpu_mem_util
    if states is None or card is None or share is None:
        return
    changes = {f.offload.idle: "none"}
    after = host_after(run, changes)
    held = states.parameters + states.master + states.optimizer + share * card
    has_room = severity_of_need(run, "gpu", held) is None
    if after is not None and not after.is_problem and has_room:
        yield Proposal.set("keep the states on the GPUs", changes)
