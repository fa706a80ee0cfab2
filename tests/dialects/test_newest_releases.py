"""Keys that a release has first, later than the commits that the tables were read from: none of them is a mistake."""

from __future__ import annotations

import pytest
from tests.linked import run_of

_AXOLOTL = "base_model: Qwen/Qwen2.5-7B\ndatasets: [{path: a, type: alpaca}]\nmicro_batch_size: 1\nadapter: qlora\nload_in_4bit: true\n"
_SWIFT = "swift sft --model Qwen/Qwen2.5-7B --dataset a "
_OPENRLHF = "python -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path Qwen/Qwen2.5-7B --train.batch_size 8 "
_VERL = "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B "
_FSDP2 = (
    "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n"
    "  fsdp_activation_checkpointing: true\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
)
_TRAINER = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')\n"
    "Trainer(model=model, args=TrainingArguments(output_dir='o', bf16=True), train_dataset=data).train()\n"
)
_DEEPSPEED = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}\n'


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
        ("verl 0.9.1", "run.sh", f"{_VERL}actor_rollout_ref.actor.pad_to_length=True\n"),
        (
            "verl 0.9.1",
            "run.sh",
            f"{_VERL}actor_rollout_ref.actor.entropy_from_logits_chunk_size=512\n",
        ),
        (
            "verl 0.9.1",
            "run.sh",
            f"{_VERL}actor_rollout_ref.actor.fsdp_config.pad_to_length_bucket=512\n",
        ),
        (
            "verl 0.9.1",
            "run.sh",
            f"{_VERL}actor_rollout_ref.actor.megatron.max_seqlen_per_dp_cp_rank=8192\n",
        ),
        ("verl 0.9.1", "run.sh", f"{_VERL}actor_rollout_ref.rollout.n_gpus_per_node=4\n"),
        ("deepspeed 0.19.8", "ds.json", _DEEPSPEED.replace("2", '2, "compute_grad_norm": false')),
        ("deepspeed 0.19.8", "ds.json", _DEEPSPEED.replace("2", '2, "parameter_alignment": true')),
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


def test_gradients_that_wait_for_the_last_micro_batch_under_verl() -> None:
    """Since verl 0.9.1 a config may keep them unsharded until then, which its own YAML does not."""
    key = "actor_rollout_ref.actor.fsdp_config.use_no_sync_for_gradient_accumulation"
    plain, waits = (run_of({"run.sh": f"{_VERL}{said}\n"}) for said in ("", f"{key}=True"))
    assert waits.stray == ()
    assert plain.plan.parallel.fsdp.sync_every_micro is True
    assert waits.plan.parallel.fsdp.sync_every_micro is False


def test_checkpoints_that_wait_in_ram_under_accelerate() -> None:
    """fsdp_activation_checkpointing_offload came with accelerate 1.15.0."""
    launch = "accelerate launch --config_file a.yaml train.py\n"
    moved = f"{_FSDP2}  fsdp_activation_checkpointing_offload: true\n"
    for config, device in ((_FSDP2, "none"), (moved, "cpu")):
        run = run_of({"run.sh": launch, "a.yaml": config, "train.py": _TRAINER}, "run.sh")
        assert run.stray == ()
        plan = run.plan
        assert plan.checkpointing.mode == "full"
        assert (plan.checkpointing.offload, plan.offload.activations) == (device, device)
