"""Models beside the trained one: reference, reward, teacher, and a critic, which is trained too."""

from __future__ import annotations

from oomlint.memory.facts import Facts
from oomlint.memory.states import state_bytes_of


def models_beside(f: Facts) -> float:
    """Their bytes on one GPU from step to step."""
    return _at_rest(f) + _of_critic(f) * state_bytes_of(f).total


def there_at_start(f: Facts) -> float:
    """Bytes on one GPU of all models before the first step: Megatron has gradients and masters from the start
    (megatron core/distributed/param_and_grad_buffer.py, core/optimizer/distrib_optimizer.py), while Adam's
    moments come with the step. What is elsewhere between phases is so before the first too."""
    states = state_bytes_of(f)
    trained = states.parameters
    if f.backend == "megatron":
        trained += states.gradients + states.master
    is_away = f.plan.offload.idle not in (None, "none")
    return _at_rest(f) + (_of_critic(f) + (0.0 if is_away else 1.0)) * trained


def _at_rest(f: Facts) -> float:
    """Bytes of the models that are only asked."""
    o = f.plan.objective
    model = f.model
    assert model is not None
    width = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}.get(o.ref_dtype or "", max(2.0, f.stream))
    shard = f.shard if f.backend in ("fsdp1", "fsdp2") or (
        f.backend == "zero" and (f.plan.parallel.zero.stage or 0) == 3
    ) else 1  # fmt: skip
    each = width / shard / f.tp / f.pp
    total = model.numel * each if o.ref_model == "copy" else 0.0
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
