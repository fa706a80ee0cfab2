"""By which options a command line is slime's, whatever the program is called."""

from __future__ import annotations

from collections.abc import Set

# Options that nobody but slime and its forks has.
_OWN = frozenset(
    {
        "hf_checkpoint", "rollout_num_gpus", "rollout_num_gpus_per_engine", "num_rollout",
        "sglang_mem_fraction_static", "rollout_max_response_len", "rollout_function_path",
        "max_tokens_per_gpu", "debug_train_only", "custom_rm_path",
        "custom_generate_function_path", "ref_load", "update_weight_buffer_size",
        "colocate",
    }
)  # fmt: skip
# These OpenRLHF's train_ppo_ray has too (v0.7.5 cli/train_ppo_ray.py).
_SHARED = frozenset({"actor_num_gpus_per_node", "actor_num_nodes", "n_samples_per_prompt"})


def is_slimes(options: Set[str], *, least: int = 3) -> bool:
    """Whether ``least`` of a command's options, or more, are slime's."""
    return bool(options & _OWN) and len(options & (_OWN | _SHARED)) >= least
