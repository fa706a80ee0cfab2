"""ms-swift: command lines and YAML, what they mean, and what a fix writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import linked
from tests.fixing import fixed
from tests.linked import link

from oomlint.dialects import registry
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.memory.facts import Facts
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run
from oomlint_rules.checkpoint.async_save_extra_copy import AsyncSaveExtraCopy

SHARED = Path(__file__).parents[2] / "../shared"


def _runs(files: dict[str, str]) -> list[Run]:
    return link(files).runs


def _run(script: str, **files: str) -> Run:
    (run,) = _runs({"run.sh": script, **files})
    return run


LORA = """CUDA_VISIBLE_DEVICES=0 \\
swift sft \\
    --model Qwen/Qwen2.5-7B-Instruct \\
    --tuner_type lora \\
    --dataset swift/self-cognition#500 \\
    --torch_dtype bfloat16 \\
    --max_length 2048
"""


def test_bitsandbytes_skips_the_towers() -> None:
    packed = LORA + "    --quant_method bnb --quant_bits 4\n"
    script = packed.replace("2048\n", "2048 \\\n", 1)
    assert "visual" in (_run(script).plan.quant.skip_modules or ())
    assert _run(LORA).plan.quant.skip_modules is None


def test_lora_defaults() -> None:
    run = _run(LORA)
    plan = run.plan
    assert run.framework == "ms-swift"
    assert plan.model.id == "Qwen/Qwen2.5-7B-Instruct"
    assert (plan.parallel.world, plan.parallel.backend) == (1, "none")
    assert (plan.trainable.method, plan.trainable.r, plan.trainable.alpha) == ("lora", 8, 32)
    assert plan.trainable.targets == "all_linear"
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.eval_micro) == (1, 16, 1)
    assert (plan.checkpointing.mode, plan.checkpointing.reentrant) == ("full", True)
    assert (plan.precision.param, plan.trainable.adapter_dtype) == ("bf16", "fp32")
    assert (plan.seq.max_len, plan.seq.truncation, plan.seq.unbounded) == (2048, "drop", None)
    assert plan.objective.kind == "sft"
    assert plan.eval.enabled is False
    assert plan.save.contents == ("adapter", "optimizer", "scheduler", "rng")
    assert plan.data.workers == 1
    assert not run.stray


_DETECTED = """\
DTYPE="${DTYPE:-auto}"
if [ "$DTYPE" = auto ]; then
    DTYPE=$(python which_dtype.py)
fi
"""


def test_a_dtype_that_a_command_says_is_not_read_and_not_taken_for_fp32() -> None:
    run = _run(_DETECTED + LORA.replace("bfloat16", '"$DTYPE"'))
    assert run.plan.load.dtype == "bf16"
    assert run.level(f.load.dtype) is Level.UNREAD


def test_ppo_learns_from_mini_batches() -> None:
    script = LORA.replace("swift sft", "swift rlhf --rlhf_type ppo --reward_model r")
    script = script.replace("--max", "--per_device_train_batch_size 64 --num_mini_batches 4 --max")
    assert _run(script).plan.batch.micro == 16


def test_full_fine_tuning_under_ddp_is_pure_16_bit() -> None:
    plan = _run(
        "NPROC_PER_NODE=4 CUDA_VISIBLE_DEVICES=0,1,2,3 swift sft --model Qwen/Qwen2.5-7B "
        "--train_type full --dataset d --per_device_train_batch_size 2 --max_length 1024\n"
    ).plan
    assert (plan.parallel.world, plan.parallel.backend) == (4, "ddp")
    assert (plan.precision.param, plan.precision.grad, plan.precision.optim_state) == (
        "bf16", "bf16", "bf16",
    )  # fmt: skip
    assert (plan.precision.master, plan.precision.autocast) == ("none", True)
    # ceil(16 / 2 / 4)
    assert plan.batch.grad_accum == 2
    assert plan.checkpointing.reentrant is False
    assert plan.trainable.r is None


def test_one_process_spreads_the_model_over_the_gpus_it_sees() -> None:
    plan = _run(LORA.replace("DEVICES=0", "DEVICES=0,1")).plan
    assert (plan.parallel.world, plan.parallel.backend) == (2, "device_map_pp")
    assert (plan.parallel.dp, plan.load.device_map) == (1, "auto")
    assert plan.batch.grad_accum == 16
    two = _run(LORA.replace("DEVICES=0", "DEVICES=0,1,2,3 NPROC_PER_NODE=2")).plan
    assert (two.parallel.world, two.parallel.pp, two.parallel.dp) == (4, 2, 2)
    assert two.parallel.backend == "device_map_pp"


def test_deepspeed_presets_by_name() -> None:
    script = LORA.replace("CUDA", "NPROC_PER_NODE=2 CUDA").replace("DEVICES=0", "DEVICES=0,1")
    zero3 = _run(script.replace("lora", "full").rstrip() + " \\\n    --deepspeed zero3\n")
    plan = zero3.plan
    assert (plan.parallel.backend, plan.parallel.zero.stage) == ("zero", 3)
    assert plan.parallel.zero.gather16_on_save is True
    assert (plan.precision.master, plan.precision.optim_state) == ("fp32", "fp32")
    assert plan.load.zero3_init is True
    assert plan.load.device_map == "none"
    assert not zero3.missing
    with_zero2 = script.rstrip() + " \\\n    --deepspeed zero2\n"
    assert fixed(_run, with_zero2, {"parallel.zero.stage": 3}).endswith("--deepspeed zero3\n")
    assert fixed(_run, with_zero2, {"offload.optimizer": "cpu"}).endswith(
        "--deepspeed zero2_offload\n"
    )
    # Plain data parallelism gives way to a preset.
    added = fixed(_run, script, {"parallel.zero.stage": 3})
    assert "--deepspeed zero3" in added
    assert _run(added).plan.parallel.zero.stage == 3


_OF_TWO = (
    "NPROC_PER_NODE=4 swift sft --sft_type full --model_type qwen1half-7b-chat "
    "--model_id_or_path Qwen/Qwen1.5-7B-Chat --dataset d --batch_size 4 --max_length 4096"
)


def _of(release: str) -> Callable[[str], Run]:
    """Reads a script in a project that pins a release, or none."""
    pins = {"requirements.txt": f"ms-swift=={release}\n"} if release else {}
    return lambda script: linked.run_of({"run.sh": script, **pins}, "run.sh")


@pytest.mark.parametrize(
    ("release", "named", "changes", "preset"),
    [
        ("2.0.3.post1", "default-zero2", {"parallel.zero.stage": 3}, "default-zero3"),
        ("2.0.3.post1", "default-zero3", {"offload.params": "cpu"}, "zero3-offload"),
        ("2.6.1", "default-zero2", {"offload.optimizer": "cpu"}, "zero2-offload"),
        ("", "default-zero2", {"offload.optimizer": "cpu"}, "zero2-offload"),
        ("2.0.3.post1", "default-zero2", {"offload.optimizer": "cpu"}, None),
        ("2.3.2", "default-zero2", {"offload.optimizer": "cpu"}, None),
        ("2.0.2", "default-zero3", {"offload.params": "cpu"}, None),
    ],
)
def test_a_preset_is_named_that_the_release_ships(
    release: str, named: str, changes: dict[str, Any], preset: str | None
) -> None:
    read, script = _of(release), f"{_OF_TWO} --deepspeed {named}\n"
    if preset is None:
        with pytest.raises(CannotEdit, match=r"ms-swift 2\.\S+ ships no DeepSpeed config"):
            read(script).what_if(changes)
    else:
        assert f"--deepspeed {preset}\n" in fixed(read, script, changes)


@pytest.mark.parametrize(("release", "ships"), [("3.0.2", False), ("3.0.3", True)])
def test_the_preset_that_offloads_both_did_not_at_first(release: str, ships: bool) -> None:
    run = _of(release)("swift sft --model a/b --train_type full --dataset d --deepspeed zero3\n")
    both = {"offload.optimizer": "cpu", "offload.params": "cpu"}
    if ships:
        assert run.what_if(both).settings["ref.deepspeed"].value == "zero3_offload"
    else:
        with pytest.raises(CannotEdit, match="ships no"):
            run.what_if(both)


def test_the_preset_of_version_two_that_offloads_keeps_the_optimizer_on_the_gpu() -> None:
    plan = _of("")(f"{_OF_TWO} --deepspeed zero3-offload\n").plan
    assert (plan.parallel.zero.stage, plan.offload.params) == (3, "cpu")
    assert plan.offload.optimizer == "none"


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ("2.0.3.post1", "ms-swift has use_liger_kernel from 3.0.0 on, and the project pins 2.0.3"),
        ("", "ms-swift has use_liger_kernel from 3.0.0 on, and the file has sft_type, which went"),
    ],
)
def test_no_fix_writes_an_option_that_the_release_lacks(release: str, said: str) -> None:
    run = _of(release)(f"{_OF_TWO}\n")
    with pytest.raises(CannotEdit, match=said):
        run.what_if({"loss.logits_materialised": "fused"})
    newer = _of("3.1.0")(LORA.replace("tuner_type", "train_type"))
    assert newer.what_if({"loss.logits_materialised": "fused"}).settings["hf.liger"].value is True


def test_length_is_the_models_own_unless_named() -> None:
    plan = _run("CUDA_VISIBLE_DEVICES=0 swift sft --model Qwen/Qwen2.5-7B --dataset d\n").plan
    assert plan.seq.unbounded is True
    assert plan.seq.max_len is None
    packed = _run(
        "CUDA_VISIBLE_DEVICES=0 swift pt --model Qwen/Qwen2.5-7B --dataset d --packing true "
        "--attn_impl flash_attn\n"
    ).plan
    assert (packed.seq.packing, packed.seq.pad) == ("bfd", "none")
    assert packed.seq.max_len == packed.model.dims.ctx  # type: ignore[union-attr]
    assert (packed.model.attn_impl, packed.objective.kind) == ("flash2", "pretrain")


def test_llama_pro_adds_the_blocks_that_it_trains() -> None:
    line = "CUDA_VISIBLE_DEVICES=0 swift sft --sft_type llamapro --model_type qwen1half-7b-chat"
    plan = _run(f"{line} --llamapro_num_new_blocks 4 --dataset d\n").plan
    assert plan.model.dims is not None
    assert (plan.model.dims.layers, plan.trainable.last_layers) == (36, 4)
    assert plan.trainable.method == "freeze"


def test_an_old_tuner_of_gptq_is_like_lora() -> None:
    line = "CUDA_VISIBLE_DEVICES=0 swift sft --sft_type qalora --model_type qwen-7b-chat-int4"
    plan = _run(f"{line} --lora_rank 16 --dataset d\n").plan
    assert (plan.trainable.method, plan.trainable.r) == ("lora", 16)


def test_names_of_version_two() -> None:
    run = _run(
        "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 llm_sft.py --sft_type lora "
        "--model_id_or_path qwen/Qwen1.5-7B-Chat --template_type AUTO --dtype AUTO --dataset d "
        "--batch_size 2 --lora_target_modules DEFAULT --quantization_bit 4 "
        "--use_flash_attn true --deepspeed default-zero2 --lora_dropout_p 0.1\n"
    )
    plan = run.plan
    assert not run.stray
    assert plan.model.id == "qwen/Qwen1.5-7B-Chat"
    assert (plan.batch.micro, plan.batch.eval_micro, plan.batch.grad_accum) == (2, 2, 4)
    assert (plan.quant.method, plan.trainable.method) == ("bnb4", "qlora")
    assert plan.trainable.targets == ("q_proj", "k_proj", "v_proj")
    assert (plan.seq.max_len, plan.load.dtype) == (2048, "bf16")
    assert (plan.model.attn_impl, plan.parallel.zero.stage) == ("flash2", 2)
    assert (plan.eval.strategy, plan.save.keep) == ("steps", 2)


def test_bits_alone_do_nothing_since_version_three() -> None:
    script = LORA.rstrip() + " \\\n    --quant_bits 4\n"
    assert _run(script).plan.quant.method == "none"
    four = _run(script.rstrip() + " --quant_method bnb\n").plan
    assert (four.quant.method, four.quant.double, four.trainable.method) == ("bnb4", True, "qlora")
    assert four.quant.prepares_kbit is False


def test_preference_training_and_its_reference_model() -> None:
    head = (
        "CUDA_VISIBLE_DEVICES=0 swift rlhf --model Qwen/Qwen2.5-7B --dataset d --max_length 1024 "
    )
    lora = _run(head + "--rlhf_type dpo\n").plan
    assert (lora.objective.kind, lora.objective.pairs_per_sample) == ("dpo", 2)
    assert lora.objective.ref_model == "shared_adapter_off"
    full = _run(head + "--tuner_type full\n").plan
    assert (full.objective.kind, full.objective.ref_model) == ("dpo", "copy")
    assert _run(head + "--rlhf_type orpo --tuner_type full\n").plan.objective.ref_model == "none"
    kto = _run(head + "--rlhf_type kto --tuner_type full\n").plan
    assert (kto.objective.pairs_per_sample, kto.objective.ref_model) == (1, "copy")


def test_grpo_that_writes_by_itself_gathers_the_model() -> None:
    line = (
        "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct --dataset d --deepspeed zero3"
        " --use_vllm {}\n"
    )
    gathers = "objective.rollout.gathers"
    assert _run(line.format("false")).plan.get(gathers) is True
    assert _run(line.format("true")).plan.get(gathers) is None
    told = line.format("false --ds3_gather_for_generation false")
    assert _run(told).plan.get(gathers) is False


def test_grpo_of_a_multimodal_model_made_all_logits_before_it_kept_those_of_answers() -> None:
    line = (
        "swift rlhf --rlhf_type grpo --model Qwen/{} --dataset d --torch_dtype bfloat16 --per_device_train_batch_size 8"
        " --num_generations 8 --max_length 3072 --max_completion_length 1024\n"
    )

    def logits(model: str, release: str) -> tuple[Any, float]:
        files = {"run.sh": line.format(model), "requirements.txt": f"ms-swift=={release}\n"}
        run = linked.run_of(files, "run.sh", hardware="1xH100-80GB")
        return run.plan.loss.logits_materialised, run.estimate.gpu.parts["backward"]["logits"]

    assert logits("Qwen2.5-3B-Instruct", "3.6.4")[0] == "completion_only"
    whole, before = logits("Qwen2.5-VL-3B-Instruct", "3.6.4")
    cut, since = logits("Qwen2.5-VL-3B-Instruct", "3.7.0")
    assert (whole, cut) == ("full", "completion_only")
    # The gradient of the cut is as large as what it was cut from: 8 samples of 4,096 tokens,
    # 151,936 words, fp32 as Accelerate hands outputs on under autocast.
    assert before - since == pytest.approx(8 * 4096 * 151936 * 4, rel=0.01)


@pytest.mark.parametrize(
    ("tuner", "more", "release", "parts"),
    [
        ("lora", "", "3.5.3", 1),
        ("lora", "--move_model_batches 8", "4.0.3", 8),
        ("full", "", "3.4.1", 1),
        ("full", "", "3.9.3", None),
        ("full", "", "3.10.3", 1),
    ],
)
def test_a_sharded_model_is_put_together_for_vllm(
    tuner: str, more: str, release: str, parts: int | None
) -> None:
    line = (
        "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct --dataset d --deepspeed zero3"
        f" --use_vllm true --vllm_mode colocate --sleep_level 1 --train_type {tuner} {more}\n"
    )
    files = {"run.sh": line, "requirements.txt": f"ms-swift=={release}\n"}
    (run,) = link(files).runs
    assert run.plan.objective.rollout.sync_batches == parts
    assert run.plan.objective.rollout.wakes_in_parts is (release not in ("3.4.1", "3.5.3"))


def test_grpo_generates_with_vllm() -> None:
    plan = _run(
        "NPROC_PER_NODE=8 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 swift rlhf --rlhf_type grpo "
        "--model Qwen/Qwen2.5-7B-Instruct --tuner_type full --dataset d --use_vllm true "
        "--vllm_mode colocate --vllm_gpu_memory_utilization 0.4 --max_length 1024 "
        "--max_completion_length 2048 --num_generations 8 --sleep_level 1 --beta 0\n"
    ).plan
    rollout = plan.objective.rollout
    assert (rollout.engine, rollout.gpu_mem_util, rollout.sleep) == ("vllm_colocate", 0.4, True)
    assert (rollout.max_prompt_tokens, rollout.max_completion_tokens) == (1024, 2048)
    assert plan.seq.max_len == 3072
    assert (plan.batch.grad_accum, plan.batch.micro_unit) == (1, "completions")
    assert plan.objective.ref_model == "none"
    assert rollout.gathers is None


def test_a_model_that_answers_itself_is_gathered_for_it() -> None:
    run = _run(
        "NPROC_PER_NODE=8 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 swift rlhf --rlhf_type grpo "
        "--model Qwen/Qwen2.5-7B-Instruct --tuner_type full --dataset d --deepspeed zero3\n"
    )
    assert (run.plan.objective.rollout.engine, run.plan.objective.rollout.gathers) == ("hf", True)
    assert run.estimate.gpu.parts["forward"]["communication"] > 2 * 7e9


def test_what_too_long_prompts_come_to() -> None:
    line = "swift {} --model Qwen/Qwen2.5-7B-Instruct --dataset d --max_length 1024\n"
    assert _run(line.format("rlhf --rlhf_type grpo")).plan.seq.truncation == "cut"
    assert _run(line.format("sft")).plan.seq.truncation == "drop"


def test_yaml_with_its_environment() -> None:
    config = (
        "ENV:\n  NPROC_PER_NODE: 2\n  CUDA_VISIBLE_DEVICES: '0,1'\n"
        "model: Qwen/Qwen2.5-7B\ntuner_type: full\ndataset:\n  - a\n  - b\n"
        "split_dataset_ratio: 0.01\nmax_length: 512\nsave_steps: 20\n"
    )
    (alone,) = _runs({"a.yaml": config})
    assert (alone.plan.parallel.world, alone.plan.parallel.backend) == (2, "ddp")
    assert not alone.stray
    assert (alone.plan.eval.strategy, alone.plan.eval.every) == ("steps", 20)
    (launched,) = _runs(
        {
            "a.yaml": config,
            "run.sh": "CUDA_VISIBLE_DEVICES=0 NPROC_PER_NODE=1 swift sft a.yaml --max_length 1024\n",
        }
    )
    assert launched.plan.parallel.world == 1
    assert launched.plan.seq.max_len == 1024
    assert launched.plan.trainable.method == "full"


def test_yaml_that_an_option_names() -> None:
    """Its keys come behind those of the line."""
    config = (
        "model: Qwen/Qwen2.5-7B\ntrain_type: lora\ndataset:\n  - a\nnum_generations: 8\n"
        "per_device_train_batch_size: 1\ngradient_accumulation_steps: 4\nmax_length: 512\n"
    )
    line = (
        "CONFIG=${1:-some}\n"
        "NPROC_PER_NODE=2 swift rlhf --rlhf_type grpo --config configs/$CONFIG.yaml --gradient_accumulation_steps 2\n"
    )
    (run,) = link({"run.sh": line, "configs/some.yaml": config}, "run.sh").runs
    assert not run.stray
    assert (run.plan.batch.grad_accum, run.plan.batch.micro) == (4, 1)
    (alone,) = link(
        {"run.sh": line.replace("swift rlhf", "python swift/cli/rlhf.py")}, "run.sh"
    ).runs
    assert not alone.missing


def test_fsdp_preset() -> None:
    run = _run(
        "NPROC_PER_NODE=2 CUDA_VISIBLE_DEVICES=0,1 swift sft --model Qwen/Qwen2.5-7B --dataset d "
        "--tuner_type full --fsdp fsdp2 --gradient_checkpointing false --max_length 512\n"
    )
    plan = run.plan
    assert not run.missing
    assert plan.parallel.backend == "fsdp2"
    assert (plan.parallel.fsdp.reshard_after_forward, plan.parallel.fsdp.state_dict) == (
        True, "sharded",
    )  # fmt: skip
    assert (plan.checkpointing.mode, plan.checkpointing.source) == ("full", "fsdp")
    assert plan.precision.param == "fp32"


def test_commands_that_do_not_train_are_asides() -> None:
    text = "CUDA_VISIBLE_DEVICES=0 swift infer --adapters out/checkpoint-1 --stream true\n"
    workspace = Workspace(Path("/x"), {"run.sh": text.encode()})
    linked = Linker(workspace, registry(), LinkOptions()).link(["run.sh"])
    assert linked.recognised == {"run.sh": "ms-swift"}
    assert not linked.runs
    assert not _runs({"x.sh": "swift build -c release\n"})


def test_a_config_that_samples_knows_keys_that_training_refuses() -> None:
    text = "model: Qwen/Qwen2.5-7B\ndataset: d\nsampler_engine: vllm\nmax_new_tokens: 768\nprm_model: x\n"
    workspace = Workspace(Path("/x"), {"c.yaml": text.encode()})
    (claim,) = Linker(workspace, registry(), LinkOptions()).claims("c.yaml")
    assert claim.kind == "aside"
    assert not claim.blocks[0].read().stray
    run = _run("swift sft --model Qwen/Qwen2.5-7B --dataset d --prm_model x\n")
    assert [stray.path for stray in run.stray] == ["prm_model"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"batch.micro": 1, "batch.grad_accum": 8},
            "--max_length 2048 \\\n    --gradient_accumulation_steps 8",
        ),
        ({"checkpointing.mode": "full"}, "--gradient_checkpointing true"),
        ({"loss.logits_materialised": "fused"}, "--use_liger_kernel true"),
        ({"model.attn_impl": "flash2"}, "--attn_impl flash_attn"),
        ({"optimizer.kind": "adamw8bit"}, "--optim adamw_8bit"),
        ({"quant.method": "bnb4"}, "--quant_bits 4"),
        ({"save.save_only_model": True}, "--save_only_model true"),
        ({"batch.eval_micro": 1}, "--per_device_eval_batch_size 1"),
        ({"seq.max_len": 1024}, "--max_length 1024"),
        ({"data.workers": 0}, "--dataloader_num_workers 0"),
    ],
)
def test_what_fixes_write(changes: dict[str, Any], expected: str) -> None:
    script = LORA
    if "checkpointing.mode" in changes:
        script = script.rstrip() + " \\\n    --gradient_checkpointing false\n"
    after = fixed(_run, script, changes)
    assert expected.split("\\\n    ")[-1] in after
    changed = _run(after).plan
    for field, value in changes.items():
        assert changed.get(field) == value


def test_what_ms_swift_cannot_say() -> None:
    run = _run(LORA)
    with pytest.raises(CannotEdit, match="neither DeepSpeed nor FSDP"):
        run.what_if({"offload.optimizer": "cpu"})
    with pytest.raises(CannotEdit, match="bitsandbytes"):
        run.what_if({"quant.method": "hqq"})
    spread = _run(LORA.replace("DEVICES=0", "DEVICES=0,1"))
    with pytest.raises(CannotEdit, match="use_liger_kernel"):
        spread.what_if({"loss.logits_materialised": "fused"})


def test_corpus_of_configs_is_recognised() -> None:
    index = SHARED / "corpus/index.jsonl"
    if not index.exists():
        pytest.skip("the shared corpus is not here")
    rows = [json.loads(line) for line in index.read_text("utf-8").splitlines()]
    checked = 0
    for row in rows:
        if row["framework"] != "ms-swift" or not row["here"]:
            continue
        path = SHARED / "corpus/ms-swift" / row["path"]
        workspace = Workspace(path.parent)
        linked = Linker(workspace, registry(), LinkOptions()).link([path.name])
        assert linked.recognised.get(path.name) == "ms-swift", row["path"]
        assert bool(linked.runs) == (row["kind"] == "train-config"), row["path"]
        for run in linked.runs:
            assert not run.stray, [s.path for s in run.stray]
            assert not run.wrong
        checked += 1
    assert checked >= 5


def test_ranks_share_a_sequence_and_its_loss_in_chunks() -> None:
    plan = _run(
        "NPROC_PER_NODE=8 CELOSS_PARALLEL_SIZE=2048 swift sft --model Qwen/Qwen2.5-3B-Instruct "
        "--dataset d --max_length 65536 --sequence_parallel_size 8 --use_liger_kernel true "
        "--attn_impl flash_attn --packing true\n"
    ).plan
    assert (plan.parallel.ulysses, plan.parallel.dp) == (8, 1)
    # 65536 tokens over 8 ranks in pieces of 2048; labels never reach liger's loss.
    assert (plan.loss.logits_materialised, plan.loss.chunks) == ("chunked", 4)
    assert (plan.loss.upcast_fp32, plan.loss.liger.flce) == (False, False)


def test_a_pack_counts_both_sides_of_a_pair() -> None:
    head = (
        "CUDA_VISIBLE_DEVICES=0 swift rlhf --model Qwen/Qwen2.5-7B --dataset d --max_length 1024 "
    )
    packed = _run(head + "--packing true --attn_impl flash_attn\n").plan
    assert (packed.objective.kind, packed.objective.pairs_per_sample) == ("dpo", 1)


def test_torchrun_with_more_gpus_than_processes_spreads_each_model() -> None:
    plan = _run(
        "CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node=2 llm_sft.py "
        "--model_type qwen1half-7b-chat --sft_type lora --dataset d\n"
    ).plan
    assert (plan.parallel.backend, plan.parallel.world) == ("device_map_pp", 4)
    assert (plan.parallel.pp, plan.parallel.dp, plan.batch.grad_accum) == (2, 2, 8)


def test_one_process_of_torchrun_spreads_its_model_whatever_hardware_is_named() -> None:
    script = (
        "CUDA_VISIBLE_DEVICES=0,1 torchrun swift/cli/sft.py --model Qwen/Qwen2.5-7B --dataset d\n"
    )
    for hardware in (None, "8xA100-80GB"):
        (run,) = link({"run.sh": script}, hardware=hardware).runs
        assert run.plan.parallel.backend == "device_map_pp"
        assert (run.plan.parallel.world, run.plan.parallel.pp, run.plan.parallel.dp) == (2, 2, 1)


def test_a_number_of_processes_that_cannot_be_read_leaves_the_ranks_open() -> None:
    run = _run(LORA.replace("CUDA", "NPROC_PER_NODE=$N CUDA"))
    known = {field: run.parts.completed.level(field) for field in (f.parallel.world, f.trainable.r)}
    assert known[f.parallel.world] is Level.UNREAD
    assert known[f.trainable.r] < Level.ASSUMED
    # The number of nodes is another variable's, whatever this one holds.
    two = _run(LORA.replace("CUDA", "NNODES=2 NPROC_PER_NODE=$N CUDA"))
    assert two.plan.parallel.nodes == 2
    assert two.parts.completed.level(f.parallel.nodes) is Level.STATED


def test_a_process_for_each_gpu_of_the_machine() -> None:
    script = LORA.replace("CUDA_VISIBLE_DEVICES=0", "NPROC_PER_NODE=$(nvidia-smi -L | wc -l)")
    (run,) = link({"run.sh": script}, hardware="8xA100-80GB").runs
    assert (run.plan.parallel.world, run.plan.parallel.backend) == (8, "ddp")
    assert run.parts.completed.level(f.parallel.world) is Level.ASSUMED
    script = LORA.replace("CUDA_VISIBLE_DEVICES=0", "NPROC_PER_NODE=$N CUDA_VISIBLE_DEVICES=0,1")
    (two,) = link({"run.sh": script}, hardware="8xA100-80GB").runs
    assert (two.plan.parallel.world, two.plan.parallel.backend) == (2, "ddp")


_RAY = """\
use_ray: true
device_groups:
  nproc_per_node: 8
  trainers: {{device: GPU, ranks: {ranks}, workers: [{workers}]}}
  others: {{device: GPU, ranks: 1, workers: [orm]}}
model: Qwen/Qwen2.5-7B
train_type: full
dataset: own.jsonl
deepspeed: zero2
"""


@pytest.mark.parametrize(
    ("ranks", "nodes", "each"),
    [
        ("8", 1, 8),
        ("'4'", 1, 4),
        ("'list(range(2, 8))'", 1, 6),
        ("'[0, 1, 2]'", 1, 3),
        ("[0, 1]", 1, 2),
        ("16", 2, 8),
    ],
)
def test_ray_starts_the_ranks_of_the_group_that_trains(ranks: str, nodes: int, each: int) -> None:
    text = _RAY.format(ranks=ranks, workers="default")
    plan = _run("swift sft --config a.yaml\n", **{"a.yaml": text}).plan.parallel
    assert (plan.nodes, plan.gpus_per_node, plan.backend) == (nodes, each, "zero")
    without = text.replace("use_ray: true", "use_ray: false")
    alone = _run("swift sft --config a.yaml\n", **{"a.yaml": without}).plan.parallel
    assert alone.world == 1


def test_ranks_of_ray_that_only_running_tells_are_open() -> None:
    text = _RAY.format(ranks="'range(count())'", workers="default")
    run = _run("swift sft --config a.yaml\n", **{"a.yaml": text})
    assert run.level(f.parallel.world) is Level.UNREAD


def test_lora_that_is_only_assumed_has_its_own_rank_and_no_copy_of_the_model() -> None:
    run = _run(
        "CUDA_VISIBLE_DEVICES=0 swift rlhf --rlhf_type dpo --model Qwen/Qwen2.5-7B --dataset d "
        "--tuner_type full --freeze_parameters_ratio 0.5 --max_length 1024\n"
    )
    assert (run.plan.objective.ref_model, run.plan.trainable.frozen) == (
        "copy", ("vision", "projector"),
    )  # fmt: skip
    adapted = run.assuming({"trainable.method": "lora", "trainable.r": 16}).plan
    assert (adapted.trainable.r, adapted.trainable.targets) == (16, "all_linear")
    assert (adapted.trainable.params, adapted.trainable.frozen) == (None, None)
    assert adapted.objective.ref_model == "shared_adapter_off"


def test_another_preset_keeps_the_partition_that_an_option_asks_for() -> None:
    script = (
        "NPROC_PER_NODE=4 swift sft --model Qwen/Qwen2.5-7B --dataset d --max_length 1024 "
        "--deepspeed zero2 --zero_hpz_partition_size 4\n"
    )
    after = _run(script).what_if({f.parallel.zero.stage: 3}).plan
    assert (after.parallel.zero.stage, after.parallel.zero.hpz) == (3, 4)


def test_unsloth_moves_checkpoints_to_the_cpu() -> None:
    plan = _run(LORA.rstrip() + " --tuner_backend unsloth\n").plan
    assert (plan.checkpointing.offload, plan.offload.activations) == ("cpu", "cpu")


def test_lisa_trains_the_ends_and_a_few_layers() -> None:
    plan = _run(
        "CUDA_VISIBLE_DEVICES=0 swift sft --model Qwen/Qwen2.5-7B-Instruct --tuner_type full "
        "--lisa_activated_layers 2 --dataset d --max_length 1024\n"
    ).plan
    assert plan.trainable.method == "layerwise"
    dims = plan.model.dims
    assert dims is not None
    assert dims.vocab is not None
    assert dims.hidden is not None
    ends = 2 * dims.vocab * dims.hidden
    assert plan.trainable.params is not None
    # Two of 28 layers of 233 million parameters each.
    assert ends + 0.45e9 < plan.trainable.params < ends + 0.48e9


def test_lora_dtype_keeps_adapters_in_16_bit() -> None:
    plan = _run(LORA.rstrip() + " \\\n    --lora_dtype bfloat16\n").plan
    assert (plan.trainable.adapter_dtype, plan.precision.optim_state) == ("bf16", "bf16")


def test_gptq_of_eight_bits() -> None:
    plan = _run(LORA.replace("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen1.5-7B-Chat-GPTQ-Int8")).plan
    assert (plan.quant.method, plan.quant.bits) == ("gptq", 8.0)


MEGATRON = """CUDA_VISIBLE_DEVICES=0,1,2,3 NPROC_PER_NODE=4 \\
megatron sft \\
    --model Qwen/Qwen2.5-7B-Instruct \\
    --dataset d \\
    --tensor_model_parallel_size 2 \\
    --sequence_parallel true \\
    --micro_batch_size 2 \\
    --global_batch_size 16 \\
    --packing true \\
    --max_length 8192 \\
    --recompute_granularity selective
"""


def test_megatron() -> None:
    run = _run(MEGATRON)
    plan = run.plan
    assert run.framework == "ms-swift"
    assert not run.stray
    assert (plan.parallel.backend, plan.parallel.world) == ("megatron", 4)
    assert (plan.parallel.tp, plan.parallel.dp, plan.parallel.sp) == (2, 2, True)
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.global_) == (2, 4, 16)
    # megatron trains everything unless it is told not to.
    assert plan.trainable.method == "full"
    assert (plan.precision.param, plan.precision.grad, plan.precision.master) == (
        "bf16", "fp32", "fp32",
    )  # fmt: skip
    assert plan.precision.optim_state == "fp32"
    assert plan.parallel.megatron.dist_optimizer is True
    assert (plan.checkpointing.mode, plan.checkpointing.source) == ("selective_op", "megatron")
    assert (plan.seq.packing, plan.seq.pad, plan.model.attn_impl) == ("bfd", "none", "flash2")
    assert plan.data.workers == 4


def test_megatron_recomputes_the_first_layers_of_a_stage() -> None:
    full = "full --recompute_method block --recompute_num_layers 7"
    plan = _run(MEGATRON.replace("selective", full)).plan
    assert (plan.checkpointing.mode, plan.checkpointing.every_n) == ("block_partial", 4)
    uniform = "full --recompute_method uniform --recompute_num_layers 1"
    assert _run(MEGATRON.replace("selective", uniform)).plan.checkpointing.mode == "full"


def test_megatron_precision_aware_optimizer() -> None:
    more = " --use_precision_aware_optimizer true --exp_avg_dtype bf16 --exp_avg_sq_dtype bf16"
    plan = _run(MEGATRON.rstrip() + more + " --main_grads_dtype bf16\n").plan
    assert (plan.precision.grad, plan.precision.optim_state) == ("bf16", "bf16")
    # Without it the optimizer keeps its states in fp32 whatever is named.
    plain = _run(MEGATRON.rstrip() + " --exp_avg_dtype bf16 --exp_avg_sq_dtype bf16\n").plan
    assert plain.precision.optim_state == "fp32"


def test_what_megatron_fixes_write() -> None:
    after = fixed(_run, MEGATRON, {"checkpointing.mode": "full"})
    assert "--recompute_granularity full" in after
    assert "--recompute_method uniform" in after
    assert "--recompute_num_layers 1" in after
    # The global batch is a key of its own: a smaller micro batch needs nothing else.
    smaller = fixed(_run, MEGATRON, {"batch.micro": 1, "batch.grad_accum": 8})
    assert smaller == MEGATRON.replace("--micro_batch_size 2", "--micro_batch_size 1")
    assert "--optimizer_cpu_offload true" in fixed(_run, MEGATRON, {"offload.optimizer": "cpu"})
    run = _run(MEGATRON)
    for changes in (
        {"parallel.zero.stage": 3},
        {"quant.method": "bnb4"},
        {"offload.params": "cpu"},
    ):
        with pytest.raises(CannotEdit):
            run.what_if(changes)


@pytest.mark.parametrize(("ram", "is_too_much"), [(128.0, True), (1024.0, False)])
def test_megatron_stages_a_copy_of_what_it_saves_in_the_background(
    ram: float, is_too_much: bool
) -> None:
    script = MEGATRON.rstrip() + " --async_save true\n"
    options: dict[str, Any] = {
        "hardware": "4xA100-80GB",
        "values": {"host.ram_gib": ram},
    }
    (run,) = link({"run.sh": script}, **options).runs
    assert run.plan.save.async_ == "thread"
    found = list(AsyncSaveExtraCopy().check(run))
    assert [finding.rule.code for finding in found] == (["OOM506"] if is_too_much else [])
    after = fixed(_run, script, {"save.async": "none"})
    assert after == script.replace("--async_save true", "--async_save false")
    assert not list(AsyncSaveExtraCopy().check(_run(after)))


def test_a_ray_config_gives_training_a_group_of_gpus() -> None:
    text = (
        "rlhf_type: gkd\nmodel: Qwen/Qwen2.5-7B\nteacher_model: Qwen/Qwen2.5-14B\ndataset: [d]\n"
        "micro_batch_size: 1\nglobal_batch_size: 8\nmax_length: 2048\nno_save_optim: true\n"
        "recompute_granularity: selective\nuse_vllm: true\n"
        "train:\n  gpus: 4\n  tuner_type: lora\n  tensor_model_parallel_size: 2\n"
        "rollout:\n  gpus: 4\n  vllm_tensor_parallel_size: 2\n"
    )
    (run,) = _runs({"ray.yaml": text})
    plan = run.plan
    assert not run.stray
    assert (plan.parallel.world, plan.parallel.tp, plan.batch.grad_accum) == (4, 2, 4)
    assert (plan.trainable.method, plan.objective.kind) == ("lora", "gkd")
    assert plan.objective.teacher == "Qwen/Qwen2.5-14B"


def test_a_reranker_reads_every_document_of_a_query() -> None:
    head = (
        "CUDA_VISIBLE_DEVICES=0 swift sft --model Qwen/Qwen3-Reranker-4B --dataset d "
        "--task_type generative_reranker --max_length 1024"
    )
    plan = _run(head + "\n").plan
    assert (plan.objective.kind, plan.objective.pairs_per_sample) == ("embedding", 8)
    assert _run("MAX_NEGATIVE_SAMPLES=3 " + head + "\n").plan.objective.pairs_per_sample == 4
    packed = _run(head + " --packing true --attn_impl flash_attn\n").plan
    assert packed.objective.pairs_per_sample == 1


@pytest.mark.parametrize(
    ("flag", "device_map", "backend"),
    [
        ("", "auto", "device_map_pp"),
        (" --device_map auto", "auto", "device_map_pp"),
        (" --device_map cuda:0", "single", "dp"),
        (""" --device_map '{"": 0}'""", "single", "dp"),
        (""" --device_map '{"model.layers": 0, "lm_head": 1}'""", "explicit", "device_map_pp"),
    ],
)
def test_a_device_map_places_the_model(flag: str, device_map: str, backend: str) -> None:
    line = "CUDA_VISIBLE_DEVICES=0,1 swift sft --model Qwen/Qwen2.5-7B-Instruct --dataset x"
    run = _run(f"{line} --train_type lora{flag}\n")
    assert (run.plan.load.device_map, run.plan.parallel.backend) == (device_map, backend)


def test_what_is_named_anew_is_trained_where_everything_is_frozen() -> None:
    line = "swift sft --model Qwen/Qwen2.5-7B-Instruct --dataset x --train_type full"
    run = _run(f"{line} --freeze_parameters_ratio 1 --trainable_parameters lm_head model.norm\n")
    assert run.plan.trainable.method == "freeze"
    assert Facts(run.placed.plan).trained.numel == 152_064 * 3584 + 3584
    assert _run(f"{line} --trainable_parameters lm_head\n").plan.trainable.method == "full"


@pytest.mark.parametrize(
    ("pin", "more", "engine"),
    [
        ("3.10.2", "--vllm_server_host 10.0.0.1 --vllm_mode colocate", "vllm_server"),
        ("3.10.2", "--vllm_mode server", "vllm_colocate"),
        ("3.12.0", "--vllm_mode server", "vllm_server"),
        ("4.6.0", "--vllm_server_host 10.0.0.1 --vllm_mode colocate", "vllm_colocate"),
        ("4.6.0", "--vllm_server_host 10.0.0.1 --vllm_mode server", "vllm_server"),
    ],
)
def test_the_address_of_a_server_decides_until_the_mode_has_to_be_named(
    pin: str, more: str, engine: str
) -> None:
    line = (
        "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct --dataset d --use_vllm true "
    )
    files = {"run.sh": f"{line}{more}\n", "requirements.txt": f"ms-swift=={pin}\n"}
    assert linked.run_of(files, "run.sh").plan.objective.rollout.engine == engine


@pytest.mark.parametrize(
    ("more", "cards", "engine"),
    [
        ("--vllm_device auto", 8, "vllm_server"),
        ("--vllm_device auto", 7, "vllm_colocate"),
        ("--vllm_device 7", 7, "vllm_server"),
        ("--vllm_device cuda:0", 8, "vllm_colocate"),
        ("--num_infer_workers 7", 7, "vllm_colocate"),
        ("", 8, "vllm_colocate"),  # the newest release has no such key
    ],
)
def test_until_3_4_the_engine_has_the_card_that_training_leaves(
    more: str, cards: int, engine: str
) -> None:
    seen = ",".join(map(str, range(cards)))
    run = _run(
        f"CUDA_VISIBLE_DEVICES={seen} NPROC_PER_NODE=7 swift rlhf --rlhf_type grpo "
        f"--model Qwen/Qwen2.5-7B-Instruct --dataset d --use_vllm true {more}\n"
    )
    assert run.plan.objective.rollout.engine == engine
