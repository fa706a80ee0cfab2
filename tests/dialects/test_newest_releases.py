"""Keys that a release has first, later than the commits that the tables were read from: none of them is a mistake."""

from __future__ import annotations

import pytest
from tests.linked import run_of

_AXOLOTL = "base_model: Qwen/Qwen2.5-7B\ndatasets: [{path: a, type: alpaca}]\nmicro_batch_size: 1\nadapter: qlora\nload_in_4bit: true\n"
_SWIFT = "swift sft --model Qwen/Qwen2.5-7B --dataset a "
_OPENRLHF = "python -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path Qwen/Qwen2.5-7B --train.batch_size 8 "
_VERL = "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B "


@pytest.mark.parametrize(
    ("release", "name", "text"),
    [
        ("axolotl 0.19.0", "a.yaml", f"{_AXOLOTL}fp8_config: {{recipe: rowwise}}\n"),
        ("axolotl 0.19.0", "a.yaml", f"{_AXOLOTL}ple_cpu_offload: true\n"),
        ("ms-swift 4.6.0", "run.sh", f"{_SWIFT}--decision_shuffle_fields true\n"),
        ("ms-swift 4.6.0", "run.sh", f"{_SWIFT}--decision_subsample_options 3\n"),
        ("openrlhf 0.11.2", "run.sh", f"{_OPENRLHF}--actor.loss_agg_mode token-mean\n"),
        ("openrlhf 0.11.2", "run.sh", f"{_OPENRLHF}--algo.kl.unbiased_gradient\n"),
        ("openrlhf 0.11.2", "run.sh", f"{_OPENRLHF}--algo.advantage.is_correction_mode tis\n"),
        ("verl 0.9.1", "run.sh", f"{_VERL}actor_rollout_ref.actor.qat.enable=True\n"),
        ("verl 0.9.1", "run.sh", f"{_VERL}skip.rollout.enable=True\n"),
        ("verl 0.9.1", "run.sh", f"{_VERL}actor_rollout_ref.rollout.full_determinism=True\n"),
    ],
)
def test_keys_of_the_newest_releases(release: str, name: str, text: str) -> None:
    assert run_of({name: text}).stray == (), release


def test_megatrons_precision_aware_optimizer_under_verl() -> None:
    """It sums gradients and keeps moments in what it is told, and the dtypes are void without it."""
    optim = "actor_rollout_ref.actor.optim."
    told = f"{optim}main_grads_dtype=bf16 {optim}exp_avg_dtype=bf16 {optim}exp_avg_sq_dtype=bf16"
    line = f"{_VERL}actor_rollout_ref.actor.strategy=megatron {told}"
    void = run_of({"run.sh": f"{line}\n"})
    aware = run_of({"run.sh": f"{line} {optim}use_precision_aware_optimizer=True\n"})
    assert (void.stray, aware.stray) == ((), ())
    assert (void.plan.precision.grad, void.plan.precision.optim_state) == ("fp32", "fp32")
    assert (aware.plan.precision.grad, aware.plan.precision.optim_state) == ("bf16", "bf16")
    assert aware.plan.precision.master == "fp32"
