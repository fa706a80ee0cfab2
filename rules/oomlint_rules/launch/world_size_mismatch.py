"""The number of processes does not go with the number of GPUs.

## What it finds

A launch line, or an Accelerate YAML, that starts more processes on a node than GPUs are
visible (`CUDA_VISIBLE_DEVICES`) or than the stated hardware has, or a config whose degrees of parallelism
are those of so many (nanotron); groups of Ray's workers (trainer, engines, reference, reward model) that
share no GPU and ask for more of them together than there are; one that leaves visible GPUs
without a process; and degrees of tensor, pipeline, context and sequence parallelism, and copies of
such a mesh, whose product does not divide the number of processes.

## Why it runs out of memory

A process too many stops with *invalid device ordinal*, or shares a card with another one, which takes the memory twice until NCCL
refuses it (*Duplicate GPU detected*); Ray's trainers stop before, since their pool has no place for it, and so do
DeepSpeed's launcher, which looks for all GPUs first, and Slurm, which takes no job that no node has room for. With fewer processes than GPUs every share of the sharded states is
larger: 18 bytes a parameter divided by 1 instead of by 8 is what a run of one process
(`NPROC_PER_NODE=1`) on an eight-card machine asks of its only card.

## How to fix it

Make the numbers agree. The fix sets the number of processes to that of the GPUs, and has them
accumulate as many more micro batches as keeps the global batch (micro batch × accumulation ×
processes). It is unsafe, since samples are shared out otherwise, and only shown where the global batch
would change or is not known, and for a job of several nodes; where the script's own list of cards asks for
so many processes, it is written all the same, and says what becomes of the batch if no steps can keep it.

## When not to

Where two processes on a card are meant (tests, MIG slices that look like one GPU), or where
a GPU is left free on purpose for a generation server. A number that a comment of a config gives beside no command, and
one of an Accelerate YAML that only a comment's command names, is told in a remark: what starts the run may have another.

## Sources

* torch 2.9 `distributed/run.py` (one process for each of `nproc_per_node`)
* Accelerate 0.33 to 1.12 `state.py` `set_device` (the rank modulo the number of cards; the rank itself up to 0.32); NCCL 2.21 `src/init.cc`
* DeepSpeed 0.18 `launcher/runner.py` `parse_resource_filter` (*No slot '4' specified on host 'localhost'*), for
  `CUDA_VISIBLE_DEVICES` too where no option says which GPUs to take
* sbatch(1) of Slurm 24.05 (*Requested node configuration is not available*)
* nanotron 2411b022 `parallel/context.py` (as many processes as the degrees come to, or none)
* verl 0.6 to 0.8 `experimental/fully_async_policy/fully_async_main.py` (the rollouts' pool is taken first); OpenRLHF 0.3.8 to
  0.10.4 `cli/train_ppo_ray.py`, `trainer/ray/launcher.py` (`ray.get(pg.ready())` waits)
* verl 0.2 to 0.7 `trainer/ppo/ray_trainer.py` (*Total available GPUs 8 is less than total desired GPUs 16*)
* LLaMA-Factory ff6d4d12 `hparams/parser.py` `_validate_megatron_bridge_parallel_args`
* https://github.com/modelscope/ms-swift/issues/2010 and /3456
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import lcm, prod
from typing import Any

from oomlint.dialects.machine.fields import launch, scene
from oomlint.dialects.machine.visible import shown_gpus
from oomlint.judgement import (
    card_not_there,
    cards_missing,
    gpus_of_job,
    only_suggests_ranks,
    pool_too_large,
    says_ranks,
    slot_missing,
)
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, When
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._conditions import ray_starts
from oomlint_rules._examples import accelerate, command, example
from oomlint_rules._fixes import changed

_PROCESSES = f.parallel.gpus_per_node
_REFUSES = "sbatch refuses it (Requested node configuration is not available)"
_DEGREES = ("tp", "pp", "cp", "ulysses")


class WorldSizeMismatch(Rule, code="OOM706", may_end=True, fixes=Applicability.UNSAFE, cost=8):
    summary = "the number of processes does not go with the number of GPUs"

    bad = (
        example(
            {"train.sh": command("", "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 4")},
            {
                "train.sh": command(
                    "", "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2"
                ).replace("_steps 8", "_steps 16")
            },
        ),
        example(
            {
                "train.sh": command("", "accelerate launch --config_file acc.yaml"),
                "acc.yaml": accelerate("MULTI_GPU", processes=8),
            },
            on="4xA100-80GB",
            why="a config for eight GPUs on a machine with four",
        ),
        example(
            {
                "train.sh": (
                    "tune run --nproc_per_node 8 full_finetune_distributed"
                    " --config llama3_1/8B_full batch_size=64\n"
                )
            },
            on="1xA10G-24GB",
        ),
        example(
            {"train.sh": command("", "CUDA_VISIBLE_DEVICES=2,3,4,5,6,7 deepspeed")},
            on="4xA100-80GB",
            why="the launcher finds no slot 4",
        ),
        example(
            {
                "train.sh": (
                    "python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-0.5B --actor_num_nodes 1"
                    " --actor_num_gpus_per_node 4 --colocate_actor_ref --vllm_num_engines 2 --init_kl_coef 0.01"
                    " --vllm_tensor_parallel_size 2 --advantage_estimator rloo --remote_rm_url http://rm\n"
                )
            },
            on="4xA100-80GB",
            why="the trainer's four GPUs are not the engines'",
        ),
        example(
            {
                "job.slurm": "#!/bin/bash\n#SBATCH --gres=gpu:8\n"
                + command("", "torchrun --nproc_per_node 4")
            },
            on="4xA100-80GB",
            why="no node has the eight GPUs that the job asks for",
        ),
    )
    good = (
        example({"train.sh": command("", "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2")}),
        example(
            {
                "train.sh": command("", "accelerate launch --config_file acc.yaml"),
                "acc.yaml": accelerate("MULTI_GPU", processes=8),
            },
            on="8xA100-80GB",
        ),
        example(
            {"train.sh": command("", "torchrun --nproc_per_node 2")},
            on="8xA100-80GB",
            why="nobody says that the other six are for this run",
        ),
        example(
            {
                "train.sh": command(
                    "--fsdp full_shard", "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 1"
                )
            },
            on="1xA100-80GB",
            why="the second card that is shown is not there",
        ),
        example(
            {"train.sh": command("", "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 accelerate launch")},
            on="4xA100-80GB",
            why="it starts a process for each GPU that torch counts: up to the first that is not there",
        ),
        example(
            {"train.sh": command("", "CUDA_VISIBLE_DEVICES=4,5 deepspeed --num_gpus 4")},
            on="4xA100-80GB",
            why="the launcher passes over the variable where an option says how many GPUs to take",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        ranks = run.plan.parallel.gpus_per_node
        hardware, asked = run.parts.hardware, gpus_of_job(run)
        missing = cards_missing(run)
        if asked is not None and hardware is not None and not missing:
            yield self._refused(run, asked, hardware.gpus_per_node)
        if not missing and (pool := pool_too_large(run)) is not None and hardware is not None:
            yield self._without_place(run, pool, hardware.world)
        if ranks is None or not says_ranks(run):
            return
        visible = _visible(run)
        if visible is not None and visible != ranks:
            # Of cards that are shown and not there none is idle.
            are_there = hardware is None or visible <= hardware.gpus_per_node
            yield from self._against_visible(run, ranks, visible, are_there)
        elif hardware is not None and missing:
            gpus = ranks - missing
            yield self._too_many(run, ranks, gpus, f"its {_counted(gpus, 'GPU', 'GPUs')}")
        yield from self._degrees(run)

    def _refused(self, run: Run, asked: int, gpus: int) -> Finding:
        """A job that no node of the machine can take: it is refused before anything is started."""
        return self.error(
            run,
            f"Slurm is asked for {asked} GPUs a node, and a node has {gpus}",
            at=(scene.gpus_per_node, _PROCESSES),
            details=(f"no node has room for the job: {_REFUSES}, or it waits for ever",),
            rests_on=(scene.gpus_per_node,),
            ends=When.SETTINGS,
        )

    def _without_place(self, run: Run, pool: int, gpus: int) -> Finding:
        """Groups of workers each of which the machine has room for, and not for all: the last never starts."""
        return self.error(
            run,
            f"Ray is asked for {pool} GPUs in all, and the machine has {gpus}",
            at=(launch.pool, _PROCESSES),
            details=(
                "the trainer, its engines and its other models share no GPU",
                "the last of them finds none free: Ray waits for ever, or refuses",
                "ask for fewer, place them together, or name a machine that has as many",
            ),
            rests_on=(launch.pool,),
            ends=When.LOADING,
        )

    def _against_visible(
        self, run: Run, ranks: int, visible: int, are_there: bool
    ) -> Iterable[Finding]:
        shows = f"that {run.key('env.cuda_visible_devices')} shows"
        where = f"the {_counted(visible, 'GPU', 'GPUs')} {shows}"
        if ranks > visible:
            yield self._too_many(run, ranks, visible, where)
        elif are_there and run.plan.parallel.backend in ("zero", "fsdp1", "fsdp2", "megatron"):
            yield self.info(
                run,
                f"{_counted(ranks, 'process', 'processes')} for {visible} visible GPUs: the rest stay "
                "idle",
                at=(_PROCESSES, launch.total_processes),
                details=(f"what is sharded is divided by {ranks} only",),
                confidence="medium",
                proposals=_align(run, visible),
            )

    def _too_many(self, run: Run, ranks: int, gpus: int, where: str) -> Finding:
        # A launch line that is not at hand may start another number than an Accelerate config says, or name another.
        # verl 0.2 to 0.7 trainer/ppo/ray_trainer.py _check_resource_available; Ray itself waits for a placement
        # group that no node has room for.
        fails = (
            "those without a card of their own stop with an invalid device ordinal; Accelerate from 0.33 on has them share "
            "one, which NCCL refuses (Duplicate GPU detected)"
        )
        title = f"a node starts {ranks} processes for {where}"
        ends = When.SETTINGS
        slot, asked = slot_missing(run), gpus_of_job(run)
        if asked is not None:
            fails = f"the job asks for {asked} GPUs a node: {_REFUSES}, so that none is started"
        elif slot is not None:
            fails = (
                "DeepSpeed's launcher stops before it starts any: "
                f"No slot '{slot}' specified on host 'localhost'"
            )
        elif ray_starts(run):
            title = f"Ray is asked for {ranks} workers a node on {where}"
            ends = When.LOADING
            fails = (
                "Ray has no place for so many: the trainer stops before a worker starts, or waits"
            )
        is_only_shown = not run.is_fragment and only_suggests_ranks(run)
        return self.finding(
            run,
            Severity.INFO if run.is_fragment or is_only_shown else Severity.ERROR,
            title,
            at=(_PROCESSES, launch.total_processes),
            details=(
                fails,
                *(("unless the launch line says --num_processes",) if run.is_fragment else ()),
                *(("only a comment shows how it is started",) if is_only_shown else ()),
                *(
                    ("unless several nodes share them, which no file says",)
                    if _is_reckoned(run)
                    else ()
                ),
            ),
            proposals=_align(run, gpus),
            ends=None if _is_reckoned(run) else ends,
        )

    def _degrees(self, run: Run) -> Iterable[Finding]:
        parallel = run.plan.parallel
        degrees = {name: getattr(parallel, name) or 1 for name in _DEGREES}
        product = prod(degrees.values())
        is_mesh = parallel.world is not None and parallel.world % product == 0
        if is_mesh and run.is_explicit(f.parallel.dp_replicate):
            degrees["dp_replicate"] = parallel.dp_replicate or 1
            product *= degrees["dp_replicate"]
        if parallel.world is None or product <= 1 or parallel.world % product == 0:
            return
        named = " × ".join(f"{name} {size}" for name, size in degrees.items() if size > 1)
        fields = tuple(f"parallel.{name}" for name, size in degrees.items() if size > 1)
        if not any(run.is_explicit(field) for field in fields):
            return
        yield self.error(
            run,
            f"{parallel.world} processes cannot be divided into groups of {product}",
            at=fields,
            details=(f"a group is {named}",),
            rests_on=(f.parallel.world,),
            ends=When.LOADING,
        )


def _is_reckoned(run: Run) -> bool:
    """Whether the number is what degrees of parallelism come to, of a config that no command here starts."""
    is_started = any(claim.is_launched or claim.is_program for claim in run.claims)
    is_said = any(map(run.is_explicit, (_PROCESSES, launch.total_processes, f.parallel.nodes)))
    return not (run.is_fragment or is_started or is_said)


def _counted(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _smallest_world(run: Run) -> int:
    """The fewest processes that all degrees of parallelism that files say go into: those of a mesh, and
    how often it is copied, too (accelerate 1.15 parallelism_config.py total_size); and those over which the engine
    beside it spreads its copy (verl 0.2 workers/fsdp_workers.py _build_rollout: "is not divisible by infer_tp")."""
    parallel = run.plan.parallel
    names = (*_DEGREES, "dp_shard", "dp_replicate")
    degrees = ((getattr(parallel, name), getattr(f.parallel, name)) for name in names)
    mesh = prod(size for size, field in degrees if size and size > 1 and run.is_explicit(field))
    return lcm(mesh, run.plan.objective.rollout.tp or 1)


def _visible(run: Run) -> int | None:
    """How many GPUs the command is to take, where they are listed by number."""
    shown = shown_gpus(run.cells)
    return None if shown is None else len(shown)


def _asked_of_a_node(run: Run) -> int:
    """How many GPUs of a node a job asks its scheduler for, none where no job does."""
    asked = run.settings.get(scene.gpus_per_node)
    return 0 if asked is None else asked.value or 0


def _align(run: Run, gpus: int) -> Iterable[Proposal]:
    nodes = run.plan.parallel.nodes or 1
    is_listed = card_not_there(run) is not None
    if is_listed or max(_visible(run) or 0, _asked_of_a_node(run)) > gpus:
        return  # the script lists the cards of another machine, or asks for it, which would then be wrong too
    if (gpus * nodes) % _smallest_world(run):
        return  # so many cannot be divided as the files say: what gives way only their author knows
    if gpus * nodes == 1 and run.plan.parallel.backend in ("fsdp1", "fsdp2"):
        return  # one process shards nothing: what trains on a single card is another recipe
    for field in (_PROCESSES, launch.total_processes):
        if run.is_explicit(field):
            yield _with_the_same_batch(run, field, gpus)


def _with_the_same_batch(run: Run, field: Any, gpus: int) -> Proposal:
    """As many processes as GPUs, which take as many more steps as a step of all of them takes to keep its samples. It
    is only shown where that cannot be said, or is not known."""
    title = f"start {_counted(gpus, 'process', 'processes')} a node"
    nodes = run.plan.parallel.nodes or 1
    changes = {field: gpus * nodes if field == launch.total_processes else gpus}
    if nodes > 1:
        # A job of several nodes is written for a cluster, whose nodes nobody here knows.
        return Proposal.set(title, changes, Applicability.DISPLAY)
    batch, steps = run.plan.batch.global_, run.plan.batch.grad_accum
    after = changed(run, changes)
    if _is_open(run) or batch is None or after is None or after.plan.batch.global_ is None:
        return _with_an_unknown_batch(run, title, changes, gpus)
    fewer = after.plan.batch.global_
    if fewer != batch and steps is not None and steps * batch % fewer == 0:
        more = steps * batch // fewer
        with_steps = {**changes, f.batch.grad_accum: more}
        kept = changed(run, with_steps)
        if kept is not None and kept.plan.batch.global_ == batch:
            title += f", and {_accumulate(more)}"
            return Proposal.set(title, with_steps, Applicability.UNSAFE)
    applicability = Applicability.UNSAFE if fewer == batch else Applicability.DISPLAY
    return Proposal.set(title, changes, applicability)


def _with_an_unknown_batch(run: Run, title: str, changes: Mapping[Any, Any], gpus: int) -> Proposal:
    """As many processes as the script's own list of cards has goes before the batch of those that never start: as many
    more steps keep it, whatever it is; where these cannot be said, the title says what becomes of it."""
    level = Applicability.UNSAFE if _visible(run) == gpus else Applicability.DISPLAY
    ranks, steps = run.plan.parallel.gpus_per_node or gpus, run.plan.batch.grad_accum
    if ranks == gpus:
        return Proposal.set(title, changes, level)
    if not _is_open(run) and steps is not None and steps * ranks % gpus == 0:
        more = steps * ranks // gpus
        with_steps = {**changes, f.batch.grad_accum: more}
        kept = changed(run, with_steps)
        if kept is not None and kept.plan.batch.grad_accum == more:
            return Proposal.set(f"{title}, and {_accumulate(more)}", with_steps, level)
    from fractions import Fraction  # of few runs anything is said as a share

    share = Fraction(gpus, ranks)
    return Proposal.set(
        f"{title}, with {share} of the global batch that {ranks} have", changes, level
    )


def _is_open(run: Run) -> bool:
    """Whether the steps are said where nobody read them: what the plan has in their place is no number to count from."""
    return run.level(f.batch.grad_accum) is Level.UNREAD


def _accumulate(steps: int) -> str:
    return f"accumulate over {_counted(steps, 'micro batch', 'micro batches')}"
