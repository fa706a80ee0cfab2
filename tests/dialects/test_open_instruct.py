"""open-instruct's scripts by their launch lines: fine-tuning, DPO, reward models, GRPO."""

from __future__ import annotations

from typing import Any

import pytest
from tests.linked import link, report_of

from oomlint.runs.run import Run

_MODEL = "--model_name_or_path meta-llama/Llama-2-7b-hf --output_dir out"
_MORE = "--per_device_train_batch_size 1 --num_train_epochs 2 --learning_rate 1e-5"


def _launched(line: str) -> list[Run]:
    return link({"train.sh": f"{line}\n"}, "train.sh").runs


def _run(line: str) -> Run:
    (run,) = _launched(line)
    assert run.framework == "hf-trainer"
    assert not run.stray
    return run


def _facts(run: Run, *fields: str) -> tuple[Any, ...]:
    return tuple(run.plan.get(field) for field in fields)


def test_fine_tuning() -> None:
    line = f"accelerate launch --mixed_precision bf16 --num_processes 4 open_instruct/finetune.py {_MODEL}"
    run = _run(f"{line} {_MORE} --use_lora --max_seq_length 4096 --checkpointing_steps 500")
    fields = ("trainable.method", "trainable.r", "load.dtype", "model.attn_impl", "optimizer.fused")
    assert _facts(run, *fields) == ("lora", 64, "bf16", "flash2", True)
    assert _facts(run, "save.strategy", "save.every", "eval.enabled") == ("steps", 500, False)
    assert _run(f"{line} {_MORE}").plan.save.strategy == "no"
    shared = _run(f"{line} {_MORE} --sequence_parallel_size 2")
    assert _facts(shared, "parallel.ulysses", "parallel.dp") == (2, 2)


def test_qlora_pages_its_optimizer() -> None:
    line = f"accelerate launch --num_processes 1 open_instruct/finetune.py {_MODEL} {_MORE}"
    run = _run(f"{line} --use_lora --use_qlora")
    assert _facts(run, "quant.method", "optimizer.kind") == ("bnb4", "paged_adamw")
    run = _run(f"{line} --use_lora --use_qlora --use_8bit_optimizer")
    assert run.plan.optimizer.kind == "paged_adamw8bit"
    # Without QLoRA nothing reads the switch.
    assert _run(f"{line} --use_8bit_optimizer").plan.optimizer.kind == "adamw"


_DPO = f"accelerate launch --num_processes 8 open_instruct/dpo_tune_cache.py {_MODEL}"


def test_its_dpo_is_not_trls() -> None:
    run = _run(f"{_DPO} {_MORE} --mixer_list a 1 --with_tracking --dpo_loss_type dpo_norm")
    assert _facts(run, "objective.kind", "objective.ref_model") == ("dpo", "precomputed")
    assert _facts(run, "save.strategy", "save.every") == ("steps", 500)
    simpo = _run(f"{_DPO} --mixer_list a 1 --num_epochs 1 --loss_type simpo")
    assert _facts(simpo, "objective.kind", "objective.ref_model") == ("simpo", "none")
    assert _facts(simpo, "batch.micro", "batch.grad_accum") == (8, 1)


def test_dpo_makes_a_deepspeed_config_of_its_own() -> None:
    run = _run(f"{_DPO} --zero_stage 3 --offload_optimizer --zero_hpz_partition_size 4")
    fields = ("parallel.backend", "parallel.zero.stage", "parallel.zero.hpz", "offload.optimizer")
    assert _facts(run, *fields) == ("zero", 3, 4, "cpu")
    assert _run(f"{_DPO} --offload_optimizer").plan.parallel.backend == "ddp"


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ("", "none"),
        ("--activation_memory_budget 0.5", "full"),
        ("--activation_memory_budget 0.5 --use_lora", "none"),
        ("--activation_memory_budget 0.5 --use_lora --use_qlora", "full"),
    ],
)
def test_dpo_checkpoints_below_a_budget(options: str, mode: str) -> None:
    assert _run(f"{_DPO} --mixer_list a 1 {options}").plan.checkpointing.mode == mode


def test_olmo_cores_dpo_shards_fp32_weights_within_a_node() -> None:
    line = f"torchrun --nnodes 2 --nproc_per_node 8 open_instruct/dpo.py {_MODEL} --mixer_list a 1"
    run = _run(f"{line} --activation_memory_budget 0.5")
    fields = ("parallel.backend", "parallel.dp_shard", "precision.param", "precision.compute")
    assert _facts(run, *fields) == ("fsdp2", 8, "fp32", "bf16")
    assert _facts(run, "checkpointing.mode", "compile.enabled") == ("budget", True)
    whole = _run(f"{line} --activation_memory_budget 0.5 --compile_model False")
    assert whole.plan.checkpointing.mode == "none"
    smaller = _run(f"{line} --fsdp_shard_degree 4 --activation_checkpointing_mode selected_modules")
    assert _facts(smaller, "parallel.dp_shard", "checkpointing.mode") == (4, "full")


def test_a_reward_model() -> None:
    line = f"accelerate launch --num_processes 2 open_instruct/reward_modeling.py {_MODEL}"
    run = _run(f"{line} --max_token_length 1024 --max_prompt_token_length 512")
    fields = ("objective.kind", "objective.pairs_per_sample", "seq.max_len", "batch.grad_accum")
    assert _facts(run, *fields) == ("rm", 2, 1024, 8)
    assert _facts(run, "model.attn_impl", "optimizer.fused", "eval.enabled") == (
        "sdpa",
        False,
        False,
    )
    assert _run(f"{line} --dataset_mixer_eval_list a 16").plan.eval.enabled


_GRPO = f"python open_instruct/grpo_fast.py {_MODEL} --pack_length 6144 --deepspeed_stage 3"


def test_ray_has_no_place_for_more_learners_than_a_node_has_gpus() -> None:
    files = {"run.sh": f"{_GRPO} --num_learners_per_node 8\n"}
    (found,) = (
        each.finding
        for each in report_of(files, hardware="4xA100-80GB").diagnoses
        if each.rule.code == "OOM706"
    )
    assert found.message == "Ray is asked for 8 workers a node on its 4 GPUs"
    assert "stops before a worker starts, or waits" in found.text


def test_grpo_counts_its_learners_alone() -> None:
    run = _run(f"{_GRPO} --num_learners_per_node 8 4 --vllm_num_engines 4")
    fields = ("parallel.world", "parallel.nodes", "parallel.gpus_per_node", "parallel.zero.hpz")
    assert _facts(run, *fields) == (12, 2, 8, 8)
    assert run.plan.parallel.backend == "zero"
    fields = ("objective.kind", "objective.ref_model", "objective.rollout.engine")
    assert _facts(run, *fields) == ("grpo", "copy", "vllm_server")
    fields = ("batch.micro", "seq.max_len", "seq.packing", "checkpointing.mode")
    assert _facts(run, *fields) == (1, 6144, "varlen", "full")


def test_grpo_says_that_it_guesses_how_many_packs_there_are() -> None:
    samples = "--num_unique_prompts_rollout 48 --num_samples_per_prompt_rollout 16"
    run = _run(f"{_GRPO} --num_learners_per_node 4 {samples}")
    assert run.plan.batch.grad_accum == 48 * 16 // 4
    assert run.origin("batch.grad_accum").kind == "assumed"


def test_grpo_on_one_gpu_shares_it_with_vllm() -> None:
    run = _run(
        f"{_GRPO} --single_gpu_mode --vllm_gpu_memory_utilization 0.3 --load_ref_policy False"
    )
    fields = ("objective.rollout.engine", "objective.rollout.gpu_mem_util", "objective.ref_model")
    assert _facts(run, *fields) == ("vllm_colocate", 0.3, "none")
    assert run.plan.parallel.world == 1


@pytest.mark.parametrize(
    "start",
    [
        "python mason.py --gpus 8 -- python",
        "python mason.py --gpus 8 -- source setup.sh \\&\\& python",
        "uv run python mason.py --gpus 8 -- uv run",
    ],
)
def test_its_own_launcher_hands_a_line_on(start: str) -> None:
    run = _run(_GRPO.replace("python", start, 1))
    assert _facts(run, "seq.max_len", "parallel.zero.stage") == (6144, 3)


def test_a_line_that_is_handed_on_has_a_launcher_of_its_own() -> None:
    start = (
        "python mason.py --num_nodes 4 -- pip install x \\&\\& accelerate launch --num_processes 8"
    )
    options = f"--config_file zero3.yaml open_instruct/reward_modeling.py {_MODEL}"
    run = _run(f"{start} {options}")
    # mason.py makes 8 processes of a node 32 of four.
    assert _facts(run, "parallel.world", "objective.kind") == (32, "rm")


def test_its_other_rollouts_are_not_taken_for_fine_tuning() -> None:
    more = "--gradient_accumulation_steps 1 --warmup_ratio 0.1"
    assert not _launched(
        f"python mason.py --gpus 8 -- python open_instruct/ppo.py {_MODEL} {_MORE} {more}"
    )


def test_the_loops_of_its_own_scripts_are_described() -> None:
    """Their code is no reason to leave the command alone, as it is of a namesake with a loop of its own."""
    line = f"accelerate launch --num_processes 4 open_instruct/finetune.py {_MODEL} {_MORE}\n"
    loop = "import torch\nfor batch in batches:\n    loss = model(**batch).loss\n    accelerator.backward(loss)\n"
    (run,) = link({"train.sh": line, "open_instruct/finetune.py": loop}, "train.sh").runs
    assert run.framework == "hf-trainer"
    assert run.plan.load.dtype == "bf16"
    other = line.replace("open_instruct/", "src/")
    assert link({"train.sh": other, "src/finetune.py": loop}, "train.sh").runs == []


def test_how_many_checkpoints_are_kept() -> None:
    line = f"accelerate launch --num_processes 4 open_instruct/finetune.py {_MODEL} {_MORE}"
    assert _run(line).plan.save.keep == 3
    run = _run(f"{line} --keep_last_n_checkpoints -1")
    assert (run.plan.save.keep, run.wrong) == ("all", ())


def test_a_budget_of_tokens_bounds_packed_pairs() -> None:
    line = f"torchrun --nproc_per_node 8 open_instruct/dpo.py {_MODEL} --per_device_train_batch_size 16"
    assert _run(f"{line} --max_seq_length 16384").plan.batch.micro == 16
    packed = _run(f"{line} --max_seq_length 16384 --packing").plan
    assert (packed.batch.micro, packed.objective.pairs_per_sample) == (1, 2)


def test_its_loop_alone_drives_one_gpu() -> None:
    """Nothing of the Trainer's is behind it, so that no plain command takes all GPUs."""
    line = (
        "CUDA_VISIBLE_DEVICES=0,1 python open_instruct/finetune.py"
        " --model_name_or_path allenai/OLMo-2-1124-7B --per_device_train_batch_size 1\n"
    )
    run = _run(line)
    assert run.plan.parallel.backend != "dp"
    assert run.plan.parallel.world == 1
