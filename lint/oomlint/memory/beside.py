"""Models beside the trained one: reference, reward, teacher, and a critic, which is trained too."""

from __future__ import annotations

from oomlint.memory.facts import Facts
from oomlint.memory.result import StateBytes
from oomlint.memory.states import state_bytes_of
from oomlint.plan import Plan


def beside_in_host(f: Facts) -> float:
    """Bytes of a rank's RAM in which parameters of models that are only asked lie: where a framework has a switch of
    its own for it (``offload.beside``), and where ZeRO-3 offloads those of the trained one. TRL gives each a copy of its DeepSpeed config (v1.9.0 models/utils.py prepare_deepspeed, v0.7.4
    trainer/dpo_trainer.py _prepare_deepspeed), and so do ms-swift (v4.5.2 swift/rlhf_trainers/rlhf_mixin.py), LLaMA-Factory and
    Axolotl, which call it; DeepSpeed partitions to where ``offload_param`` says without an optimizer too (v0.9.5 to v0.19.5
    runtime/engine.py DeepSpeedZeRoOffload, runtime/zero/parameter_offload.py _convert_to_zero_parameters)."""
    offload = f.plan.offload
    return _asked(f) if _are_offloaded(f) and "cpu" in (offload.params, offload.beside) else 0.0


def asked_in_host(plan: Plan) -> float:
    """Bytes of a node's RAM in which the parameters of such models lie."""
    f = Facts(plan)
    return beside_in_host(f) * min(f.ranks.per_node, f.ranks.world) if f.model is not None else 0.0


def asked_on_gpu(f: Facts) -> float:
    """Bytes on one GPU of the models that are only asked, from step to step."""
    return 0.0 if _are_offloaded(f) else _asked(f)


def critic_beside(f: Facts, kept: float) -> StateBytes:
    """What a critic keeps on one GPU while the other model is trained; ``kept`` are the gradients that this one has
    between its steps, in bytes. Each clears its own behind its turn (verl 0.2 to 0.5 workers/critic/dp_critic.py
    update_critic, workers/actor/dp_actor.py update_policy); Megatron's buffers of gradients stay where they are
    (megatron core/distributed/param_and_grad_buffer.py)."""
    share, states = _of_critic(f), state_bytes_of(f)
    if f.ranks.backend == "megatron":
        kept = states.gradients
    return StateBytes(
        parameters=share * states.parameters,
        gradients=share * kept,
        master=share * states.master,
        optimizer=share * states.optimizer,
    )


def there_at_start(f: Facts) -> float:
    """Bytes on one GPU of all models before the first step: Megatron has gradients and masters from the start
    (megatron core/distributed/param_and_grad_buffer.py, core/optimizer/distrib_optimizer.py), while Adam's
    moments come with the step. What is elsewhere between phases is so before the first too."""
    states = state_bytes_of(f)
    trained = states.parameters
    if f.ranks.backend == "megatron":
        trained += states.gradients + states.master
    is_away = f.plan.offload.idle not in (None, "none")
    return asked_on_gpu(f) + (_of_critic(f) + (0.0 if is_away else 1.0)) * trained


def _are_offloaded(f: Facts) -> bool:
    """Whether ZeRO-3 keeps models beside the trained one off the GPU, by themselves or as the trained one is."""
    is_zero3 = f.ranks.backend == "zero" and f.plan.parallel.zero.stage == 3
    offload = f.plan.offload
    return is_zero3 and (offload.params in ("cpu", "nvme") or offload.beside == "cpu")


def _asked(f: Facts) -> float:
    """Bytes of one rank's share of the models that are only asked."""
    ranks = f.ranks
    o = f.plan.objective
    model = f.model
    assert model is not None
    width = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}.get(
        o.ref_dtype or "", max(2.0, f.bytes_per.stream)
    )
    shard = ranks.shard if ranks.backend in ("fsdp1", "fsdp2") or (
        ranks.backend == "zero" and (f.plan.parallel.zero.stage or 0) == 3
    ) else 1  # fmt: skip
    each = width / shard / ranks.tp / ranks.pp
    of_reference = width / o.ref_tp if o.ref_tp else each
    total = model.numel * of_reference if o.ref_model == "copy" else 0.0
    for role, name, params in (
        ("reward_model", o.reward_model, o.reward_params),
        ("teacher", o.teacher, o.teacher_params),
    ):
        if name and name != "none":
            total += _size_beside(f, role, name, params) * each
    return total


def _of_critic(f: Facts) -> float:
    """How large a critic is, as a share of the trained model."""
    o = f.plan.objective
    assert f.model is not None
    if not o.critic or o.critic == "none":
        return 0.0
    return _size_beside(f, "critic", o.critic, o.critic_params) / f.model.numel


def _size_beside(f: Facts, role: str, name: str, params: int | None) -> float:
    """Parameters of a model beside the trained one."""
    if params is not None:
        return params
    assert f.model is not None
    f.assume(f"objective.{role}", name, "taken to be as large as the trained model")
    return f.model.numel
