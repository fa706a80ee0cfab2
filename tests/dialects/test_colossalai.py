"""Colossal-AI's applications: plugins as stages, pipelines, references of their own, and what a fix writes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import link, run_of

from oomlint.errors import CannotEdit
from oomlint.memory import estimate, state_bytes
from oomlint.plan.fields import f
from oomlint.runs.run import Run

SFT = (
    "colossalai run --nproc_per_node 4 --master_port 31312 train_sft.py --pretrain Qwen/Qwen2.5-7B "
    "--dataset a b --plugin zero2 --batch_size 8 --accumulation_steps 2 --max_len 4096 --use_flash_attn "
    "--grad_checkpoint --save_path out\n"
)
DPO = (
    "colossalai run --nproc_per_node 8 train_dpo.py --pretrain Qwen/Qwen2.5-7B --dataset a --plugin gemini "
    "--batch_size 2 --mixed_precision bf16 --grad_checkpoint\n"
)
LLAMA = (
    "colossalai run --nproc_per_node 8 train.py --pretrained Qwen/Qwen2.5-7B --plugin 3d --tp 2 --pp 2 "
    "--zero_stage 1 --batch_size 8 --mixed_precision bf16 --use_grad_checkpoint --use_flash_attn\n"
)
PARAMS = 7_615_616_512


def _run(script: str) -> Run:
    return run_of({"run.sh": script})


def _after(script: str, changes: dict[str, Any]) -> str:
    return fixed(_run, script, changes)


def test_sft_under_zero2() -> None:
    run = _run(SFT)
    plan = run.plan
    assert (run.framework, run.stray) == ("colossalai", ())
    assert (plan.parallel.world, plan.parallel.backend, plan.parallel.zero.stage) == (4, "zero", 2)
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.global_) == (8, 2, 64)
    assert (plan.precision.param, plan.precision.master, plan.precision.optim_state) == (
        "bf16", "fp32", "fp32",
    )  # fmt: skip
    assert (plan.seq.max_len, plan.seq.pad, plan.model.attn_impl) == (4096, "max_len", "flash2")
    assert (plan.checkpointing.mode, plan.load.dtype) == ("full", "bf16")
    assert plan.save.contents == ("model", "optimizer", "scheduler")


def test_defaults_differ_by_script() -> None:
    sft = _run("colossalai run --nproc_per_node 2 train_sft.py --pretrain gpt2\n").plan
    dpo = _run("colossalai run --nproc_per_node 2 train_dpo.py --pretrain gpt2\n").plan
    assert (sft.batch.micro, sft.batch.grad_accum, sft.seq.max_len) == (4, 8, 512)
    assert (dpo.batch.micro, dpo.batch.grad_accum, dpo.seq.max_len) == (4, 1, 2048)
    assert (sft.precision.compute, dpo.precision.compute) == ("bf16", "fp16")
    assert (sft.parallel.zero.stage, sft.load.dtype, dpo.load.dtype) == (3, "bf16", "fp32")


def test_reference_of_gemini_is_whole_on_every_card() -> None:
    """A plugin of its own without an optimizer shards nothing."""
    run = _run(DPO)
    assert (run.plan.objective.ref_model, run.plan.objective.ref_tp) == ("copy", 1)
    beside = estimate(run.plan).gpu
    alone = estimate(_run(DPO.replace("\n", " --disable_reference_model\n")).plan).gpu
    assert beside is not None
    assert alone is not None
    assert beside.peak_bytes - alone.peak_bytes >= 2 * PARAMS
    split = estimate(_run(DPO.replace("\n", " --ref_tp 2\n")).plan).gpu
    assert split is not None
    assert beside.peak_bytes - split.peak_bytes == pytest.approx(PARAMS, rel=1e-3)


def test_pipeline_takes_its_batch_apart() -> None:
    plan = _run(LLAMA).plan
    assert (plan.parallel.tp, plan.parallel.pp, plan.parallel.dp) == (2, 2, 2)
    assert (plan.batch.micro, plan.batch.grad_accum) == (1, 8)
    assert (plan.parallel.zero.stage, plan.model.attn_impl) == (1, "flash2")


def test_degrees_are_void_without_the_hybrid_plugin() -> None:
    plan = _run(LLAMA.replace("--plugin 3d", "--plugin zero2")).plan
    assert (plan.parallel.tp, plan.parallel.pp, plan.parallel.dp) == (1, 1, 8)
    assert (plan.batch.micro, plan.parallel.zero.stage) == (8, 2)
    # Colossal-LLaMA hands FlashAttention to two plugins only.
    assert plan.model.attn_impl == "sdpa"


@pytest.mark.parametrize(
    ("mode", "shared", "ranks", "dp"), [("split_gather", True, 1, 4), ("all_to_all", False, 2, 2)]
)
def test_modes_of_sequence_parallelism(mode: str, shared: bool, ranks: int, dp: int) -> None:
    options = f"--plugin 3d --tp 2 --sp 2 --sp_mode {mode} --enable_sequence_parallelism"
    plan = _run(SFT.replace("--plugin zero2", options).replace("node 4", "node 8")).plan
    assert (plan.parallel.sp, plan.parallel.ulysses, plan.parallel.dp) == (shared, ranks, dp)


def test_log_probabilities_are_as_wide_as_the_models_logits() -> None:
    """Until transformers 4.46 its models made them fp32 themselves."""
    zero = DPO.replace("gemini", "zero2")
    old = run_of({"run.sh": zero, "requirements.txt": "transformers==4.39.3\n"}).plan
    new = run_of({"run.sh": zero, "requirements.txt": "transformers==4.51.3\n"}).plan
    assert (old.loss.upcast_fp32, new.loss.upcast_fp32) == (True, False)
    assert old.loss.outputs_kept
    loss = _run(SFT).plan.loss
    assert (loss.outputs_kept, loss.outputs_last) == (True, True)


def test_low_level_zero_keeps_its_gradients_while_it_copies_them() -> None:
    assert _run(SFT).plan.parallel.zero.keeps_grads is True
    assert _run(SFT.replace("zero2", "gemini")).plan.parallel.zero.keeps_grads is None


def test_offloading_leaves_gradients_on_the_card() -> None:
    """Only masters and moments move: 2 bytes a weight of the shard stay."""
    plan = _run(SFT.replace("zero2", "zero2_cpu")).plan
    assert (plan.offload.optimizer, plan.offload.grads) == ("cpu", "none")
    states = state_bytes(plan)
    assert states is not None
    assert states.gradients == pytest.approx(2 * PARAMS / 4, rel=1e-3)
    assert (states.master, states.optimizer) == (0, 0)


def test_ddp_has_no_masters() -> None:
    plan = _run(SFT.replace("zero2", "ddp")).plan
    assert (plan.parallel.backend, plan.precision.master, plan.precision.optim_state) == (
        "ddp", "none", "bf16",
    )  # fmt: skip


def test_adapter_stands_in_a_file() -> None:
    script = SFT.replace("\n", " --lora_config lora.json\n")
    lora = '{"r": 16, "target_modules": ["q_proj", "v_proj"], "lora_train_bias": "none"}'
    run = run_of({"run.sh": script, "lora.json": lora}, "run.sh")
    trainable = run.plan.trainable
    assert (trainable.method, trainable.r, trainable.alpha) == ("lora", 16, 32)
    assert trainable.targets == ("q_proj", "v_proj")
    absent = run_of({"run.sh": script}, "run.sh")
    assert (absent.plan.trainable.method, absent.plan.trainable.r) == ("lora", None)
    assert absent.cells.is_unread(f.trainable.r)
    assert run_of({"run.sh": SFT}).plan.trainable.method == "full"


@pytest.mark.parametrize(
    ("change", "written"),
    [
        ({"offload.optimizer": "cpu"}, "--plugin zero2_cpu"),
        ({"parallel.zero.stage": 3}, "--plugin gemini"),
        ({"batch.micro": 2, "batch.grad_accum": 8}, "--batch_size 2 --accumulation_steps 8"),
        ({"seq.max_len": 2048}, "--max_len 2048"),
    ],
)
def test_wishes_become_plugins_and_options(change: dict[str, Any], written: str) -> None:
    assert written in _after(SFT, change)


def test_wishes_under_the_hybrid_plugin() -> None:
    assert "--tp 4" in _after(LLAMA, {"parallel.tp": 4})
    assert "--zero_cpu_offload" in _after(LLAMA, {"offload.optimizer": "cpu"})
    assert "--batch_size 4" in _after(LLAMA, {"batch.grad_accum": 4})
    with pytest.raises(CannotEdit, match="up to stage 1"):
        _run(LLAMA).what_if({"parallel.zero.stage": 2})


def test_automatic_placement_takes_no_accumulation() -> None:
    with pytest.raises(CannotEdit, match="takes no gradient accumulation"):
        _run(SFT.replace("zero2", "gemini_auto")).what_if({"batch.grad_accum": 4})


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        ("", 1),
        ("--host a,b", 2),
        ("--host a,b,c --exclude b", 2),
        ("--hostfile hosts", 3),
        ("--hostfile hosts --num_nodes 2", 2),
        ("--hostfile hosts --include n1,n3", 2),
        ("--hostfile missing --num_nodes 4", 4),
    ],
)
def test_hosts_of_the_launcher(options: str, nodes: int) -> None:
    script = SFT.replace("--master_port 31312", options)
    plan = run_of({"run.sh": script, "hosts": "n1\nn2\nn3\n"}, "run.sh").plan
    assert (plan.parallel.nodes, plan.parallel.world) == (nodes, 4 * nodes)


@pytest.mark.parametrize("name", ["ppo", "grpo"])
def test_reinforcement_is_left_alone(name: str) -> None:
    linked = link({"run.sh": SFT.replace("train_sft", f"train_{name}")})
    assert not linked.runs


def test_no_option_is_read_where_a_blank_leaves_none() -> None:
    """A template whose variable is still empty: the option has no value, and is not called True."""
    plan = _run('MODEL=""\n' + SFT.replace("Qwen/Qwen2.5-7B", "$MODEL")).plan
    assert plan.model.id is None


def test_others_keep_their_scripts() -> None:
    theirs = "deepspeed train_sft.py --pretrain gpt2 --zero_stage 2 --max_epochs 1 --micro_train_batch_size 1\n"
    assert _run(theirs).framework == "openrlhf"
    coati = "torchrun train_sft.py --pretrain gpt2 --strategy colossalai_zero2 --batch_size 2\n"
    assert _run(coati).framework == "deepspeed"
