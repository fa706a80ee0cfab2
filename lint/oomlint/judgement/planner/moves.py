"""Single changes that lower a peak: what each sets, what it gives up, and what it excludes.

Moves of one group are steps of one thing (micro batch 4, 2, 1), so that at most one of them
is taken. They are stated in canonical fields; whether a run's framework can say them is
found out by asking it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from oomlint.errors import CannotEdit
from oomlint.judgement.engine import EngineShare, engine_share, feeding, starves_engine
from oomlint.plan import Plan
from oomlint.plan.fields import ZERO_3, f
from oomlint.runs.run import Run

Fields: TypeAlias = Mapping[Any, Any]


class Move(Struct, frozen=True):
    """One change. ``gives_up`` is empty where the training result and what is saved stay the
    same; other moves are taken only where no such one is enough. ``rule`` explains it."""

    rule: str
    title: str
    changes: Mapping[Any, Any]
    gives_up: str = ""

    @property
    def is_safe(self) -> bool:
        return not self.gives_up


def safe_moves(run: Run) -> tuple[tuple[Move, ...], ...]:
    """Moves after which the same model is trained, in groups that exclude one another inside,
    each in order of effect. Those that bring in another engine give something up all the same."""
    fed = feeding_moves(run)
    return (*((fed,) if fed else ()), *_sayable(run, _SAFE))


def speeding_moves(run: Run) -> tuple[tuple[Move, ...], ...]:
    """The groups of moves that spend memory on speed."""
    return _sayable(run, _SPEEDING)


def unsafe_moves(run: Run) -> tuple[tuple[Move, ...], ...]:
    """The groups of moves that change what is trained, computed or saved, the mildest first."""
    return _sayable(run, _UNSAFE)


def _sayable(run: Run, groups: Iterable[Any]) -> tuple[tuple[Move, ...], ...]:
    found = (tuple(_distinct(run, group(run.intended.plan))) for group in groups)
    return tuple(group for group in found if group)


def feeding_moves(run: Run) -> tuple[Move, ...]:
    """What lets an engine start that starves: one of these is taken beside whatever makes room for training."""
    plan, card = run.intended.plan, run.limits.gpu_bytes
    if not starves_engine(plan, card):
        return ()
    ranks = run.placed.plan.parallel.world or 1
    found = feeding(plan, card, ranks)
    moves = (Move("vllm-colocate-utilization", title, changes) for title, changes in found)
    return tuple(move for move in _distinct(run, moves) if not _starves(run, move))


def _starves(run: Run, move: Move) -> bool:
    return starves_engine(run.what_if(move.changes).intended.plan, run.limits.gpu_bytes)


def _distinct(run: Run, moves: Iterable[Move]) -> Iterator[Move]:
    """Moves that the run's framework has words for and that change something, each effect once:
    torchtune's only word for a fused loss is a chunked one. None takes from an engine what its weights need; of one that
    starves as it is, another move gives it that."""
    card = run.limits.gpu_bytes
    starved = engine_share(run.intended.plan, card)
    seen = [run.intended.plan]
    for move in moves:
        try:
            plan = run.what_if(move.changes).intended.plan
        except CannotEdit:
            continue
        if plan not in seen and not _takes_food(starved, engine_share(plan, card)):
            seen.append(plan)
            yield move


def _takes_food(was: EngineShare | None, now: EngineShare | None) -> bool:
    """Whether an engine starves with less than it had."""
    if now is None or not now.is_too_small:
        return False
    return was is None or not was.is_too_small or now.allowed < was.allowed


def _loss(plan: Plan) -> Iterator[Move]:
    if plan.loss.logits_materialised == "full" and not plan.loss.label_smoothing:
        rule = "logits-materialized-large-vocab"
        for kind, title in (
            ("fused", "compute the loss fused with the output head"),
            ("chunked", "compute the loss in chunks of tokens"),
        ):
            yield Move(rule, title, {f.loss.logits_materialised: kind})


def _attention(plan: Plan) -> Iterator[Move]:
    # The classes of a model of which only the size is known may have no other attention.
    has_layers = plan.model.dims is not None and bool(plan.model.dims.layers)
    if plan.model.attn_impl == "eager" and has_layers:
        for kernel in ("sdpa", "flash2"):
            yield Move(
                "attention-quadratic-fallback", f"attend with {kernel}", {f.model.attn_impl: kernel}
            )


def _fused_optimizer(plan: Plan) -> Iterator[Move]:
    if plan.optimizer.kind == "adamw" and plan.optimizer.foreach:
        yield Move("foreach-optimizer-temp-peak", "use the fused AdamW", {f.optimizer.fused: True})


def _checkpointing(plan: Plan) -> Iterator[Move]:
    mode = plan.checkpointing.mode
    if mode in (None, "none"):
        some = {f.checkpointing.mode: "selective_op"}
        yield Move("no-gradient-checkpointing", "recompute the cheap half of activations", some)
    if mode != "full":
        full = {f.checkpointing.mode: "full"}
        yield Move("no-gradient-checkpointing", "recompute activations in the backward pass", full)
    if plan.checkpointing.offload in (None, "none"):
        both = {f.checkpointing.mode: "full", f.checkpointing.offload: "cpu"}
        title = "keep the inputs of layers in host RAM"
        if mode != "full":
            title = f"recompute activations, and {title}"
        yield Move("activation-offload-available", title, both)


def _sharding(plan: Plan) -> Iterator[Move]:
    parallel = plan.parallel
    if parallel.backend in ("zero", "ddp"):
        now = (parallel.zero.stage or 0) if parallel.backend == "zero" else 1
        for stage in range(now + 1, 4):
            changes: dict[Any, Any] = {f.parallel.zero.stage: stage}
            if stage == 3:
                changes[f.parallel.zero.gather16_on_save] = True
            title = f"shard with ZeRO stage {stage}"
            yield Move("zero-stage-too-low", title, changes, _another_engine(plan))
    if parallel.backend == "fsdp1" and parallel.fsdp.strategy in ("grad_op", "no_shard"):
        yield Move("zero-stage-too-low", "shard parameters too", {f.parallel.fsdp.strategy: "full"})
    if parallel.fsdp.strategy in ("hybrid", "hybrid_grad_op") and (parallel.nodes or 1) > 1:
        across = {f.parallel.fsdp.strategy: "full"}
        yield Move("replica-too-big-for-one-gpu", "shard over all nodes, not inside each", across)
    if parallel.backend == "fsdp2" and parallel.fsdp.reshard_after_forward is False:
        reshard = {f.parallel.fsdp.reshard_after_forward: True}
        yield Move("zero-stage-too-low", "free parameters after the forward pass", reshard)


def _another_engine(plan: Plan) -> str:
    """DDP computes under autocast and keeps what it trains as it was loaded; DeepSpeed's engine trains 16-bit weights
    with a master copy of its own (DeepSpeed edaa7221 runtime/engine.py _configure_distributed_model, bf16_optimizer.py)."""
    return (
        "DeepSpeed trains in place of DDP, and rounds otherwise"
        if plan.parallel.backend == "ddp"
        else ""
    )


def _gathering(plan: Plan) -> Iterator[Move]:
    """A lower bound than 3e8 elements makes more, smaller gathers than hide behind computing
    (what DeepSpeed's own tutorials lower these two to)."""
    zero = plan.parallel.zero
    lower = 300_000_000
    limits = {
        f.parallel.zero.max_live_params: zero.max_live_params,
        f.parallel.zero.max_reuse_distance: zero.max_reuse_distance,
    }
    changes = {name: lower for name, said in limits.items() if (said or 0) > lower}
    if zero.stage == 3 and changes:
        yield Move("zero3-live-params-oversized", "keep fewer gathered parameters", changes)


def _buckets(plan: Plan) -> Iterator[Move]:
    """Below 5e7 elements more, smaller messages cost bandwidth (the ZeRO-2 example of
    transformers' DeepSpeed page lowers them no further)."""
    zero = plan.parallel.zero
    small = 50_000_000
    sizes = {f.parallel.zero.reduce_bucket_elems: zero.reduce_bucket_elems}
    if zero.stage != 3:
        sizes[f.parallel.zero.allgather_bucket_elems] = zero.allgather_bucket_elems
    changes = {name: small for name, size in sizes.items() if (size or 0) > small}
    if plan.parallel.backend == "zero" and zero.stage and changes:
        yield Move("ds-bucket-oversized", "communicate in smaller buckets", changes)


def _micro_batch(plan: Plan) -> Iterator[Move]:
    micro = plan.batch.micro
    factor = 2
    while micro is not None and not plan.batch.auto_micro and micro % factor == 0:
        steps = plan.batch.steps_of(micro // factor, plan.parallel.dp)
        smaller = {f.batch.micro: micro // factor, f.batch.grad_accum: steps}
        title = f"micro batch {micro // factor} x {steps} accumulation steps"
        yield Move("micro-batch-too-large", title, smaller)
        factor *= 2


def _eval_batch(plan: Plan) -> Iterator[Move]:
    now = plan.batch.eval_micro or 1
    if plan.eval.enabled is not False and now > 1:
        for size in sorted({min(now, plan.batch.micro or 1), 1}, reverse=True):
            if size < now:
                yield Move(
                    "eval-batch-larger-than-train",
                    f"evaluate {size} at a time",
                    {f.batch.eval_micro: size},
                )


def _eval_logits(plan: Plan) -> Iterator[Move]:
    evaluation = plan.eval
    if evaluation.enabled and evaluation.keeps_logits and not evaluation.accumulation_steps:
        title = "move the logits of evaluation to host RAM after every batch"
        yield Move("eval-logits-accumulate", title, {f.eval.accumulation_steps: 1})


def _rollout(plan: Plan) -> Iterator[Move]:
    """TRL's own default is a share of 0.3 (grpo_config.py); below it an engine rarely has room for
    weights and a useful cache."""
    rollout, rule = plan.objective.rollout, "vllm-colocate-utilization"
    if rollout.engine not in ("vllm_colocate", "sglang"):
        return
    if not rollout.sleep:
        title = "let the generation engine free its memory while the model trains"
        yield Move(rule, title, {f.objective.rollout.sleep: True})
    for share in (0.5, 0.3):
        if (rollout.gpu_mem_util or 0) > share:
            title = f"give the generation engine {share:.0%} of each card"
            yield Move(rule, title, {f.objective.rollout.gpu_mem_util: share})


def _scoring(plan: Plan) -> Iterator[Move]:
    """The same log probabilities, fewer at a time."""
    rule = "logprob-micro-batch-too-large"
    sizes = {
        f.objective.rollout.rollout_micro_batch: "answers",
        f.objective.rollout.scored_tokens: "tokens",
    }
    for field, unit in sizes.items():
        size, least = plan.get(field) or 0, 1 if unit == "answers" else plan.seq.max_len or 1
        while size // 2 >= least:
            size //= 2
            title = f"take log probabilities of {size:,} {unit} at a time"
            yield Move(rule, title, {field: size})


def _offload(plan: Plan) -> Iterator[Move]:
    if plan.parallel.backend == "ddp":
        yield from _offload_anew(plan)
    if plan.parallel.backend == "zero":
        optimizer = {f.offload.optimizer: "cpu"}
        if (plan.parallel.zero.stage or 0) >= 1 and plan.offload.optimizer in (None, "none"):
            yield Move("gpu-states-over-budget", "keep the optimizer in host RAM", optimizer)
        if plan.offload.params in (None, "none"):
            both: Fields = {**_third(plan), f.offload.optimizer: "cpu", f.offload.params: "cpu"}
            title = "keep parameters and optimizer in host RAM"
            if plan.offload.optimizer == "cpu":
                title = "keep the parameters in host RAM"
            yield Move("gpu-states-over-budget", title, both)
        yield from _swapping(plan)
    if plan.parallel.backend in ("fsdp1", "fsdp2") and not plan.parallel.fsdp.cpu_offload:
        changes: Fields = {f.parallel.fsdp.cpu_offload: True}
        yield Move("gpu-states-over-budget", "keep parameters and optimizer in host RAM", changes)


def _third(plan: Plan) -> Fields:
    """Stage 3, with what its checkpoints need, for a run that has another; one that has it saves as it did."""
    return {} if plan.parallel.zero.stage == 3 else dict(ZERO_3)


def _offload_anew(plan: Plan) -> Iterator[Move]:
    """What shards nothing yet comes to offload with the stage that this takes."""
    rule, given = "gpu-states-over-budget", _another_engine(plan)
    optimizer: Fields = {f.parallel.zero.stage: 2, f.offload.optimizer: "cpu"}
    yield Move(
        rule, "shard with ZeRO stage 2, and keep the optimizer in host RAM", optimizer, given
    )
    both: Fields = {**ZERO_3, f.offload.optimizer: "cpu", f.offload.params: "cpu"}
    title = "shard with ZeRO stage 3, and keep parameters and optimizer in host RAM"
    yield Move(rule, title, both, given)


def _swapping(plan: Plan) -> Iterator[Move]:
    """DeepSpeed swaps under stage 3 only, to a folder that nobody but the user can name."""
    path = plan.offload.nvme_path
    if not path or plan.offload.optimizer == "nvme":
        return
    changes: Fields = {**_third(plan), f.offload.optimizer: "nvme"}
    yield Move("offload-host-ram-exceeded", f"keep the optimizer on {path}", changes)
    title = f"keep parameters and optimizer on {path}"
    yield Move("offload-host-ram-exceeded", title, {**changes, f.offload.params: "nvme"})


def _from_host(plan: Plan) -> Iterator[Move]:
    """Back onto the cards, where it is the host that has too little."""
    title = "keep states on the GPU"
    if plan.parallel.fsdp.cpu_offload:
        yield Move("offload-host-ram-exceeded", title, {f.parallel.fsdp.cpu_offload: False})
    if plan.offload.params == "cpu":
        yield Move(
            "offload-host-ram-exceeded", "keep parameters on the GPU", {f.offload.params: "none"}
        )
    if plan.offload.optimizer == "cpu":
        back = {f.offload.optimizer: "none"}
        if plan.offload.params == "cpu":
            back[f.offload.params] = "none"
        else:
            title = "keep the optimizer on the GPU"
        yield Move("offload-host-ram-exceeded", title, back)


def _loading(plan: Plan) -> Iterator[Move]:
    if plan.parallel.backend in ("fsdp1", "fsdp2") and not plan.load.cpu_ram_efficient:
        once: dict[Any, Any] = {f.load.cpu_ram_efficient: True}
        if plan.parallel.fsdp.sync_module_states is False:
            once[f.parallel.fsdp.sync_module_states] = True
        yield Move("fsdp-every-rank-loads", "read the checkpoint on one rank of each node", once)


def _pinning(plan: Plan) -> Iterator[Move]:
    offloads = "cpu" in (plan.offload.params, plan.offload.optimizer)
    if (offloads or plan.parallel.fsdp.cpu_offload) and plan.offload.pin_memory is not False:
        yield Move(
            "offload-pinned-memory-tight",
            "do not pin offloaded memory",
            {f.offload.pin_memory: False},
        )


def _workers(plan: Plan) -> Iterator[Move]:
    if (plan.data.workers or 0) > 4:
        yield Move(
            "dataloader-workers-ram", "use 4 data loader workers a rank", {f.data.workers: 4}
        )


_SAFE = (
    _loss,
    _attention,
    _fused_optimizer,
    _gathering,
    _buckets,
    _eval_batch,
    _eval_logits,
    _rollout,
    _scoring,
    _sharding,
    _checkpointing,
    _micro_batch,
    _offload,
    _from_host,
    _loading,
    _pinning,
    _workers,
)


# -- moves that spend memory on speed ---------------------------------------------------------


def _no_checkpointing(plan: Plan) -> Iterator[Move]:
    if plan.checkpointing.mode not in (None, "none"):
        changes = {f.checkpointing.mode: "none"}
        yield Move(
            "no-gradient-checkpointing", "keep activations instead of recomputing them", changes
        )


def _larger_micro_batch(plan: Plan) -> Iterator[Move]:
    micro, accumulation = plan.batch.micro, plan.batch.grad_accum or 1
    for factor in range(2, accumulation + 1):
        if micro is not None and accumulation % factor == 0:
            larger = {f.batch.micro: micro * factor, f.batch.grad_accum: accumulation // factor}
            title = f"micro batch {micro * factor} x {accumulation // factor} accumulation steps"
            yield Move("micro-batch-too-large", title, larger)


def _less_sharding(plan: Plan) -> Iterator[Move]:
    is_third = plan.parallel.backend == "zero" and plan.parallel.zero.stage == 3
    if is_third and plan.offload.params in (None, "none"):
        yield Move("zero-stage-too-low", "shard with ZeRO stage 2", {f.parallel.zero.stage: 2})


_SPEEDING = (_no_checkpointing, _larger_micro_batch, _less_sharding)


# -- moves that give something up -----------------------------------------------------------


def _light_optimizer(plan: Plan) -> Iterator[Move]:
    """Of what is offloaded DeepSpeed's own Adam takes the place (accelerate 1.6 utils/deepspeed.py
    map_pytorch_optim_to_deepspeed), so that another one comes back to the GPU."""
    if plan.optimizer.kind not in ("adamw", "adam"):
        return
    is_away = plan.parallel.backend == "zero" and plan.offload.optimizer == "cpu"
    where, back = (" on the GPU", {f.offload.optimizer: "none"}) if is_away else ("", {})
    rule, given = "adam-fp32-states-dominant", "optimizer states are kept in 8 bits"
    factored = "the second moment is kept by rows and columns only"
    for kind, title, gives_up in (
        ("adamw8bit", "use the 8-bit AdamW", given),
        ("paged_adamw8bit", "use the paged 8-bit AdamW", given),
        ("adafactor", "use Adafactor", factored),
    ):
        yield Move(rule, f"{title}{where}", {f.optimizer.kind: kind, **back}, gives_up)


def _half_precision(plan: Plan) -> Iterator[Move]:
    if plan.precision.compute == "fp32":
        given = "layers compute in 16 bits"
        yield Move("no-mixed-precision", "train in bf16", {f.precision.compute: "bf16"}, given)


def _pixels(plan: Plan) -> Iterator[Move]:
    dims = plan.model.dims
    if dims is not None and dims.vision is not None:
        limit = 512 * 512
        if (plan.model.vision.max_pixels or 2 * limit) > limit:
            changes = {f.model.vision.max_pixels: limit}
            given = "images are scaled down to 512 x 512"
            yield Move("vlm-pixels-uncapped", f"limit images to {limit} pixels", changes, given)


def _tower(plan: Plan) -> Iterator[Move]:
    dims = plan.model.dims
    is_open = plan.model.vision.freeze_tower is False and plan.trainable.method != "none"
    if dims is not None and dims.vision is not None and is_open:
        given = "the vision tower is not trained"
        changes = {f.model.vision.freeze_tower: True}
        yield Move("vlm-tower-unfrozen", "freeze the vision tower", changes, given)


def _length(plan: Plan) -> Iterator[Move]:
    length = plan.seq.max_len
    while length is not None and length >= 1024:
        length //= 2
        given = f"samples are cut at {length} tokens"
        yield Move(
            "long-context-over-budget",
            f"limit samples to {length} tokens",
            {f.seq.max_len: length},
            given,
        )


def _adapter(plan: Plan) -> Iterator[Move]:
    rule = "full-ft-where-adapter-needed"
    if plan.trainable.method == "full":
        given = "low-rank adapters are trained instead of all weights"
        plain: Fields = {f.trainable.method: "lora", f.trainable.r: 16}
        # Where a framework has no word for every linear layer, its own choice has to do.
        for lora, where in (
            ({**plain, f.trainable.targets: "all_linear"}, ""),
            (plain, " on the layers that it picks"),
        ):
            yield Move(rule, f"train LoRA adapters of rank 16{where}", lora, given)
            both = {**lora, f.quant.method: "bnb4"}
            quantized = f"{given}, over a base in 4 bits"
            yield Move(rule, f"train QLoRA adapters of rank 16{where}", both, quantized)
    elif plan.trainable.method in ("lora", "dora") and plan.quant.method in (None, "none"):
        given = "the frozen base is kept in 4 bits"
        yield Move(rule, "quantize the frozen base", {f.quant.method: "bnb4"}, given)


def _checkpoint_contents(plan: Plan) -> Iterator[Move]:
    if plan.parallel.zero.stage == 3 and plan.parallel.zero.gather16_on_save:
        shards = {f.parallel.zero.gather16_on_save: False}
        given = "checkpoints hold shards, to be joined with zero_to_fp32.py"
        yield Move("zero3-gather16-rank0-ram", "save the shards of each rank", shards, given)
    if plan.save.save_only_model is False:
        given = "training cannot be resumed from a checkpoint"
        alone = {f.save.save_only_model: True}
        yield Move(
            "save-optimizer-states", "leave optimizer states out of checkpoints", alone, given
        )


def _sharded_save(plan: Plan) -> Iterator[Move]:
    """Nothing is written as one model any more (transformers 5.23 trainer.py save_model, Axolotl 0.19 train.py)."""
    if plan.parallel.backend in ("fsdp1", "fsdp2"):
        sharded = {f.parallel.fsdp.state_dict: "sharded"}
        if plan.parallel.fsdp.state_dict != "sharded":
            given = "checkpoints hold shards, to be joined with accelerate merge-weights"
            yield Move("fsdp-full-state-dict-save", "save the shards of each rank", sharded, given)


_UNSAFE = (
    _checkpoint_contents,
    _sharded_save,
    _light_optimizer,
    _half_precision,
    _tower,
    _pixels,
    _length,
    _adapter,
)
