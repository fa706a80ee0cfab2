"""What OpenRLHF trains for, which models lie beside the trained one, and who generates.

Read from OpenRLHF 3c3be623 (0.11.0, 2026-08-13) and the tags v0.3.8 to v0.10.4; ``OR`` below is
``openrlhf/``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.machine.fields import launch, scene
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.openrlhf.keys import CLI, own
from oomlint.dialects.openrlhf.programs import program_of, reinforces
from oomlint.plan.fields import f

objectives = Meaning()

# algo.advantage.estimator: only gae needs a critic (OR/cli/train_ppo_ray.py).
_ESTIMATORS = {"gae": "ppo", "rloo": "rloo"}
_KINDS = {"dpo": "dpo", "rm": "rm", "kto": "kto", "kd": "distill", "prm": "sft"}


@objectives.derive(f.objective.kind)
def kind(run: Cells) -> Any:
    if reinforces(run):
        return _ESTIMATORS.get(run[own.estimator] or "gae", "grpo")
    program = program_of(run)
    if program == "sft" and run[own.pretrain_mode]:
        return "pretrain"
    return _KINDS.get(program, "sft")


@objectives.derive(f.objective.pairs_per_sample, source=f"{CLI}: chosen and rejected in one batch")
def pairs(run: Cells) -> Any:
    return 2 if program_of(run) in ("dpo", "rm") else 1


# -- models beside the trained one -----------------------------------------------------------------


_R = f.objective.rollout


@objectives.derive(f.objective.ref_model)
def reference_model(run: Cells) -> Any:
    return "copy" if _has_reference(run) else "none"


def _has_reference(run: Cells) -> bool:
    """Whether a reference lies on the GPUs of the trained model, if it is on any.

    OR/cli/train_dpo.py:42: a model of its own, for LoRA too.
    """
    if not reinforces(run):
        return program_of(run) in ("dpo", "kto")
    shares = _lie_together(run) or run[own.colocate_ref]
    return shares and run[own.kl] != 0


def _lie_together(run: Cells) -> bool:
    """Whether the models of reinforcement learning share their GPUs."""
    return program_of(run) == "ppo" or run[own.colocate_all]


objectives.takes(f.objective.teacher, own.teacher)


@objectives.derive(f.objective.reward_model)
def reward_model(run: Cells) -> Any:
    if not reinforces(run) or not _lie_together(run):
        return None
    return run[own.reward] if run[own.reward_url] is None else None


@objectives.derive(f.offload.beside)
def kept_beside(run: Cells) -> Any:
    """OR/cli/train_kd.py:39 (v0.3.8 to v0.7.5), OR/cli/train_dpo.py:42, OR/trainer/ray/launcher.py: models that are
    only asked keep their parameters in host RAM, and under ZeRO-3 alone (OR/utils/deepspeed/deepspeed_utils.py
    get_eval_ds_config). KTO's and DPO's reference, the reference and the reward model of reinforcement learning, and
    the teacher have a switch each."""
    if run[f.parallel.zero.stage] != 3:
        return "none"
    if reinforces(run):
        switch = own.ref_reward_offload
    else:
        switch = own.teacher_offload if run[f.objective.kind] == "distill" else own.ref_offload
    return "cpu" if run[switch] else "none"


@objectives.derive(f.objective.critic)
def critic(run: Cells) -> Any:
    """It begins as a copy of the reward model, or of the trained one."""
    if run[f.objective.kind] != "ppo" or not _lie_together(run):
        return None
    return run[own.critic] or run[own.reward] or run[f.model.id]


@objectives.derive(launch.pool)
def gpus_of_groups(run: Cells) -> Any:
    """What Ray is asked for on one node: a placement group for each group of models and for each engine, which waits
    until there are so many GPUs (OR/cli/train_ppo_ray.py: create_placement_group; ref, reward and critic have 8 each
    unless told). None where groups may lie on other nodes."""
    if program_of(run) != "ppo_ray" or (run[own.actor_nodes] or 1) > 1:
        return None
    actor = run[own.actor_gpus] or 8
    engines = (run[own.engines] or 0) * (run[_R.tp] or 1)
    if run[own.colocate_all]:
        return actor + (engines if run[own.async_] else 0)
    ref = 0 if run[own.colocate_ref] or run[own.kl] == 0 else run[own.ref_gpus]
    has_reward = run[own.reward] is not None and run[own.reward_url] is None
    reward = run[own.reward_gpus] if has_reward else 0
    critic = run[own.critic_gpus] if run[f.objective.kind] == "ppo" else 0
    scored = max(reward, critic) if run[own.colocate_critic] else reward + critic
    return actor + ref + scored + engines


@objectives.derive(scene.gpus_per_node)
def gpus_of_node(run: Cells) -> Any:
    return run[launch.pool]


# -- generating ------------------------------------------------------------------------------------


@objectives.derive(_R.engine)
def engine(run: Cells) -> Any:
    if not reinforces(run):
        return None
    if not run[own.engines]:
        return "hf"
    return "vllm_colocate" if _shares_with_engines(run) else "vllm_server"


def _shares_with_engines(run: Cells) -> bool:
    """OR/cli/train_ppo_ray.py:667: asynchronous training colocates all but the engines."""
    return run[own.colocate_all] and not run[own.async_]


@objectives.derive(_R.sleep)
def sleeps(run: Cells) -> Any:
    return run[own.vllm_sleep] if run[_R.engine] == "vllm_colocate" else None


@objectives.default(_R.gpu_mem_util, source=f"{CLI}: vllm.gpu_memory_utilization")
def share_of_engine(run: Cells) -> Any:
    return 0.95 if _generates_in_vllm(run) else None


@objectives.default(_R.tp, source=f"{CLI}: vllm.tensor_parallel_size")
def gpus_of_engine(run: Cells) -> Any:
    return 1 if _generates_in_vllm(run) else None


def _generates_in_vllm(run: Cells) -> bool:
    return run[_R.engine] in ("vllm_colocate", "vllm_server")


@objectives.default(_R.n, source=f"{CLI}: rollout.n_samples_per_prompt")
def completions(run: Cells) -> Any:
    return 1 if reinforces(run) else None


@objectives.derive(f.batch.max_tokens_per_gpu)
def tokens_of_micro_batch(run: Cells) -> Any:
    if not reinforces(run) or not run[own.dynamic_batch]:
        return None
    return run[own.max_tokens] or 16192
