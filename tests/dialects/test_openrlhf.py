"""OpenRLHF command lines: dotted and flat options, what they mean, and what a fix writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import link

from oomlint.dialects import registry
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

SFT = """read -r -d '' training_commands <<EOF
openrlhf.cli.train_sft \\
   --data.max_len 2048 \\
   --train.batch_size 256 \\
   --train.micro_batch_size 2 \\
   --model.model_name_or_path meta-llama/Meta-Llama-3-8B \\
   --ckpt.output_dir ./out \\
   --ds.zero_stage 2 \\
   --ds.param_dtype bf16 \\
   --ds.packing_samples
EOF
deepspeed --num_gpus 8 --module $training_commands
"""

FLAT = (
    "deepspeed --num_gpus 4 --module openrlhf.cli.train_dpo --pretrain Qwen/Qwen2.5-7B "
    "--micro_train_batch_size 1 --train_batch_size 64 --max_len 4096 --zero_stage 3 --bf16 "
    "--flash_attn --gradient_checkpointing --save_path out --adam_offload --lora_rank 16\n"
)


def _runs(script: str) -> list[Run]:
    return link({"run.sh": script}).runs


def _run(script: str) -> Run:
    (run,) = _runs(script)
    return run


def test_dotted_sft_in_a_here_document() -> None:
    run = _run(SFT)
    plan = run.plan
    assert run.framework == "openrlhf"
    assert not run.stray
    assert plan.model.id == "meta-llama/Meta-Llama-3-8B"
    assert (plan.parallel.world, plan.parallel.backend, plan.parallel.zero.stage) == (8, "zero", 2)
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.global_) == (2, 16, 256)
    assert (plan.precision.param, plan.precision.master, plan.precision.optim_state) == (
        "bf16", "fp32", "fp32",
    )  # fmt: skip
    assert plan.checkpointing.mode == "none"
    assert (plan.model.attn_impl, plan.seq.pad, plan.seq.packing) == ("flash2", "none", "none")
    # "auto" in a config that no trainer fills in is DeepSpeed's own default.
    assert plan.parallel.zero.reduce_bucket_elems == 500_000_000
    assert (plan.objective.kind, plan.trainable.method) == ("sft", "full")
    assert (plan.save.strategy, plan.save.contents) == ("end", ("model",))


def test_flat_dpo_has_a_reference_model_of_its_own() -> None:
    plan = _run(FLAT).plan
    assert (plan.objective.kind, plan.objective.pairs_per_sample) == ("dpo", 2)
    assert (plan.objective.ref_model, plan.objective.ref_dtype) == ("copy", "bf16")
    assert (plan.trainable.method, plan.trainable.r) == ("lora", 16)
    assert plan.trainable.targets == "all_linear"
    assert (plan.offload.optimizer, plan.checkpointing.mode) == ("cpu", "full")
    assert (plan.model.attn_impl, plan.seq.max_len) == ("flash2", 4096)
    assert plan.load.zero3_init is True
    assert plan.batch.grad_accum == 16
    slow = _run(FLAT.replace("--bf16 --flash_attn ", "")).plan
    assert (slow.precision.param, slow.model.attn_impl) == ("fp32", "eager")


@pytest.mark.parametrize(
    ("program", "model", "switch"),
    [
        ("train_kd", "--teacher_model Qwen/Qwen2.5-32B", "--teacher_offload"),
        ("train_dpo", "", "--ref_offload"),
    ],
)
def test_what_is_only_asked_waits_in_host_ram_under_zero_3(
    program: str, model: str, switch: str
) -> None:
    plain = FLAT.replace("train_dpo", program).replace("--lora_rank 16", model)
    offloaded = plain.replace("--save_path", f"{switch} --save_path")
    on_gpu, in_ram = _run(plain), _run(offloaded)
    assert in_ram.plan.objective == on_gpu.plan.objective
    moved = on_gpu.estimate.gpu.peak_bytes - in_ram.estimate.gpu.peak_bytes
    node = in_ram.plan.parallel.gpus_per_node
    assert moved > 0
    # Its shards lie in blocks that are pinned one by one, a third larger.
    assert in_ram.estimate.host.peak_bytes - on_gpu.estimate.host.peak_bytes >= moved * node
    kept = _run(offloaded.replace("--zero_stage 3", "--zero_stage 2"))
    assert kept.plan.offload.beside == "none"


def test_options_that_slime_has_too_make_no_run_of_its() -> None:
    """train_ppo_ray counts the actor's GPUs and its answers by names that slime has too."""
    script = (
        "ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --actor_num_nodes 1 "
        "--actor_num_gpus_per_node 8 --critic_num_nodes 1 --critic_num_gpus_per_node 8 "
        "--n_samples_per_prompt 1 --pretrain Qwen/Qwen2.5-7B --micro_train_batch_size 8 "
        "--train_batch_size 128 --zero_stage 3 --bf16 --packing_samples\n"
    )
    assert [run.framework for run in _runs(script)] == ["openrlhf"]


def test_ring_attention_and_tensor_parallelism_share_samples() -> None:
    plan = _run(SFT.replace("--ds.zero_stage 2", "--ds.zero_stage 2 --ds.ring_attn_size 4")).plan
    assert (plan.parallel.cp, plan.parallel.dp) == (4, 2)
    assert plan.batch.grad_accum == 64


PPO = (
    "ray job submit --address=http://127.0.0.1:8265 -- python3 -m openrlhf.cli.train_ppo_ray "
    "--actor.num_nodes 2 --actor.num_gpus_per_node 8 --vllm.num_engines 4 "
    "--vllm.tensor_parallel_size 2 --train.colocate_all --vllm.gpu_memory_utilization 0.5 "
    "--actor.model_name_or_path meta-llama/Llama-3.1-8B-Instruct "
    "--reward.model_name_or_path meta-llama/Llama-3.1-8B-Instruct --train.batch_size 128 "
    "--ds.zero_stage 3 --actor.gradient_checkpointing_enable --vllm.enable_sleep "
    "--actor.adam.lr 5e-7 --data.max_len 4096\n"
)


def test_ppo_over_ray_shares_its_gpus_where_it_is_told_to() -> None:
    run = _run(PPO)
    plan = run.plan
    assert not run.stray
    assert (plan.parallel.nodes, plan.parallel.gpus_per_node, plan.parallel.world) == (2, 8, 16)
    assert (plan.objective.kind, plan.objective.ref_model) == ("ppo", "copy")
    assert plan.objective.critic == plan.objective.reward_model == plan.model.id
    rollout = plan.objective.rollout
    assert (rollout.engine, rollout.gpu_mem_util, rollout.sleep) == ("vllm_colocate", 0.5, True)
    assert (plan.checkpointing.mode, plan.batch.micro, plan.seq.max_len) == ("full", 1, 4096)
    apart = _run(PPO.replace("--train.colocate_all ", "")).plan
    assert (apart.objective.ref_model, apart.objective.critic) == ("none", None)
    assert apart.objective.rollout.engine == "vllm_server"
    grouped = _run(PPO.replace("--data", "--algo.advantage.estimator group_norm --data")).plan
    assert (grouped.objective.kind, grouped.objective.critic) == ("grpo", None)


def test_other_programs_are_asides() -> None:
    text = "python -m openrlhf.cli.serve_rm --reward.model_name_or_path m --port 5000\n"
    workspace = Workspace(Path("/x"), {"run.sh": text.encode()})
    linked = Linker(workspace, registry(), LinkOptions()).link(["run.sh"])
    assert linked.recognised == {"run.sh": "openrlhf"}
    assert not linked.runs


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"batch.micro": 1, "batch.grad_accum": 32}, "--train.micro_batch_size 1"),
        ({"checkpointing.mode": "full"}, "--model.gradient_checkpointing_enable"),
        ({"parallel.zero.stage": 3}, "--ds.zero_stage 3"),
        ({"offload.optimizer": "cpu"}, "--ds.adam_offload"),
        ({"seq.max_len": 1024}, "--data.max_len 1024"),
        ({"model.attn_impl": "flash3"}, "--ds.attn_implementation flash_attention_3"),
        ({"save.save_only_model": True}, "--ckpt.disable_ds"),
        ({"data.workers": 2}, "--data.dataloader_num_workers 2"),
    ],
)
def test_what_fixes_write(changes: dict[str, Any], expected: str) -> None:
    after = fixed(_run, SFT, changes)
    assert expected in after
    changed = _run(after).plan
    for field, value in changes.items():
        assert changed.get(field) == value
    # The global batch stays.
    assert changed.batch.global_ == 256


def test_fixes_keep_the_style_of_the_options() -> None:
    flat = FLAT.replace("--gradient_checkpointing ", "")
    after = fixed(_run, flat, {"checkpointing.mode": "full"})
    assert "--gradient_checkpointing" in after
    assert "--model." not in after
    ray = fixed(
        _run,
        PPO.replace("--actor.gradient_checkpointing_enable ", ""),
        {"checkpointing.mode": "full"},
    )
    assert "--actor.gradient_checkpointing_enable" in ray


def test_what_openrlhf_cannot_say() -> None:
    run = _run(SFT)
    for changes, why in (
        ({"offload.params": "cpu"}, "Adam only"),
        ({"loss.logits_materialised": "fused"}, "logits themselves"),
        ({"optimizer.kind": "adafactor"}, "Adam and Muon"),
        ({"quant.method": "bnb4"}, "LoRA only"),
        ({"batch.eval_micro": 1}, "training micro batch"),
    ):
        with pytest.raises(CannotEdit, match=why):
            run.what_if(changes)


_RAY = (
    "python -m openrlhf.cli.train_ppo_ray --pretrain meta-llama/Meta-Llama-3-8B "
    "--actor_num_nodes 1 --actor_num_gpus_per_node 6 --vllm_num_engines 2 --zero_stage 3 --bf16 "
    "--micro_train_batch_size 4 --train_batch_size 96 --colocate_all_models --save_path out {}\n"
)


@pytest.mark.parametrize(
    ("options", "attention", "pad"),
    [
        ("", "eager", "longest"),
        ("--packing_samples", "flash2", "none"),
        ("--use_dynamic_batch --train_max_tokens_per_gpu 16384", "flash2", "none"),
        ("--ring_attn_size 2", "flash2", "none"),
    ],
)
def test_packing_switches_flash_attention_on(options: str, attention: str, pad: str) -> None:
    plan = _run(_RAY.format(options)).plan
    assert (plan.model.attn_impl, plan.seq.pad) == (attention, pad)


def test_asynchronous_training_leaves_the_engines_their_own_gpus() -> None:
    engines = [
        _run(_RAY.format(options)).plan.objective.rollout.engine
        for options in ("", "--async_train")
    ]
    assert engines == ["vllm_colocate", "vllm_server"]


def test_a_lower_rank_is_written_where_lora_is_on() -> None:
    assert "--lora_rank 8" in fixed(_run, FLAT, {"trainable.r": 8})


@pytest.mark.parametrize(
    ("release", "algorithm", "widens"),
    [("0.5.0", None, False), ("0.5.8", "rows", True), ("0.6.2", "kernel", True)],
)
def test_log_probabilities_are_taken_as_the_release_takes_them(
    release: str, algorithm: str | None, widens: bool
) -> None:
    line = "python -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B --bf16\n"
    (run,) = link({"run.sh": line, "requirements.txt": f"openrlhf=={release}\n"}).runs
    assert (run.plan.loss.algorithm, run.plan.loss.upcast_fp32) == (algorithm, widens)
