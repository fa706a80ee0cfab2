"""Public scripts that are told by their launch line alone: FastChat, QLoRA, run_clm, TRL's examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.linked import link, run_of

from oomlint.dialects import registry
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_MODEL = "--model_name_or_path meta-llama/Llama-2-7b-hf --output_dir out"


def _run(text: str, name: str = "train.sh") -> Run:
    return run_of({name: text})


def _facts(run: Run, *fields: str) -> tuple[Any, ...]:
    return tuple(run.plan.get(field) for field in fields)


@pytest.mark.parametrize(
    ("script", "attention"),
    [
        ("fastchat/train/train_mem.py", "flash2"),
        ("/opt/FastChat/fastchat/train/train_xformers.py", "xformers"),
        ("fastchat/train/train.py", "sdpa"),
        ("-m fastchat.train.train_mem", "flash2"),
    ],
)
def test_fastchat(script: str, attention: str) -> None:
    run = _run(f"torchrun --nproc_per_node=4 {script} {_MODEL} --bf16 True\n")
    assert run.framework == "fastchat"
    fields = ("trainable.method", "seq.max_len", "seq.pad", "model.attn_impl", "optimizer.name")
    assert _facts(run, *fields) == ("full", 512, "max_len", attention, "adamw_torch")


def test_fastchat_lora() -> None:
    line = f"deepspeed fastchat/train/train_lora.py {_MODEL} --bf16 True"
    run = _run(f"{line}\n")
    fields = ("trainable.method", "trainable.r", "trainable.targets", "quant.method")
    assert _facts(run, *fields) == ("lora", 8, ("q_proj", "v_proj"), "none")
    run = _run(f"{line} --q_lora True --flash_attn True --model_max_length 2048\n")
    fields = ("trainable.method", "quant.method", "quant.double", "quant.prepares_kbit")
    assert _facts(run, *fields) == ("qlora", "bnb4", True, True)
    assert _facts(run, "model.attn_impl", "seq.max_len") == ("flash2", 2048)


def test_a_train_mem_of_somebody_else_is_not_fastchats() -> None:
    options = "--per_device_train_batch_size 1 --num_train_epochs 1 --bf16 True"
    run = _run(f"torchrun mine/train/train_mem.py {_MODEL} {options}\n")
    assert run.framework == "hf-trainer"
    assert run.plan.seq.max_len is None


def test_qlora() -> None:
    run = _run("python qlora.py --model_name_or_path huggyllama/llama-7b --bf16\n")
    fields = (
        "trainable.method",
        "trainable.r",
        "trainable.targets",
        "quant.method",
        "quant.double",
    )
    assert _facts(run, *fields) == ("qlora", 64, "all_linear", "bnb4", True)
    sizes = ("batch.micro", "batch.grad_accum", "optimizer.kind", "seq.max_len")
    assert _facts(run, *sizes) == (1, 16, "paged_adamw", 1280)
    assert run.plan.checkpointing.mode == "full"
    longer = "--source_max_len 16 --target_max_len 512 --full_finetune --bits 16"
    run = _run(f"python qlora.py --model_name_or_path huggyllama/llama-7b {longer}\n")
    assert _facts(run, "seq.max_len", "trainable.method", "quant.method") == (528, "full", "none")


def test_run_clm() -> None:
    run = _run(f"python run_clm.py {_MODEL} --do_train --bf16\n")
    fields = ("seq.max_len", "seq.packing", "seq.pad", "batch.micro", "eval.keeps_logits")
    assert _facts(run, *fields) == (1024, "concat", "none", 8, False)
    assert _run(f"python run_clm.py {_MODEL} --block_size 4096\n").plan.seq.max_len == 4096


def test_alpaca_lora() -> None:
    line = "python finetune.py --base_model 'huggyllama/llama-7b' --data_path 'x' --lora_r 16"
    run = _run(f"{line}\n")
    fields = ("trainable.method", "trainable.r", "trainable.targets", "quant.method", "seq.max_len")
    assert _facts(run, *fields) == ("lora", 16, ("q_proj", "v_proj"), "bnb8", 256)
    assert _facts(run, "batch.micro", "batch.grad_accum") == (4, 32)
    assert _facts(run, "eval.strategy", "checkpointing.mode") == ("steps", "full")
    several = _run(
        f"torchrun --nproc_per_node 4 {line[7:]} --micro_batch_size 8 --val_set_size 0\n"
    )
    assert _facts(several, "batch.micro", "batch.grad_accum", "eval.strategy") == (8, 4, "no")


_FIRE = """\
import fire
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def train(base_model: str = "huggyllama/llama-7b", micro_batch_size: int = 4):
    model = AutoModelForCausalLM.from_pretrained(base_model)
    args = TrainingArguments(output_dir="out", per_device_train_batch_size=micro_batch_size)
    Trainer(model=model, args=args, train_dataset=None).train()

fire.Fire(train)
"""


@pytest.mark.parametrize(("options", "micro"), [("", 4), (" --micro_batch_size 16", 16)])
def test_options_of_fire_win_over_defaults(options: str, micro: int) -> None:
    files = {"t.sh": f"python tune.py{options}\n".encode(), "tune.py": _FIRE.encode()}
    workspace = Workspace(Path("/x"), files)
    (run,) = Linker(workspace, registry(), LinkOptions()).link(sorted(files)).runs
    assert run.plan.batch.micro == micro
    assert run.plan.model.id == "huggyllama/llama-7b"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Makefile", "N := 4\ntrain:\n\ttorchrun --nproc_per_node $(N) {line}\n"),
        ("rules.mk", "train:\n\t@torchrun --nproc_per_node 4 {line}\n"),
        ("Dockerfile", "FROM x\nENV N=4\nCMD torchrun --nproc_per_node=$N {line}\n"),
        ("train.dockerfile", "FROM x\nCMD {words}\n"),
        ("n.ipynb", '{{"cells": [{{"cell_type": "code", "source": ["!torchrun --nproc_per_node 4 {line}"]}}]}}'),
    ],
)  # fmt: skip
def test_launch_lines_in_files_of_other_kinds(name: str, text: str) -> None:
    line = f"fastchat/train/train_mem.py {_MODEL} --per_device_train_batch_size 2"
    words = str(["torchrun", "--nproc_per_node", "4", *line.split()]).replace("'", '"')
    run = _run(text.format(line=line, words=words), name)
    assert run.framework == "fastchat"
    assert _facts(run, "batch.micro", "parallel.gpus_per_node") == (2, 4)


_OPTIONS = "--per_device_train_batch_size 1 --num_train_epochs 2 --learning_rate 1e-5"


def test_names_of_pefts_examples() -> None:
    options = (
        "--use_peft_lora True --use_4bit_quantization True --use_nested_quant True --bf16 True"
    )
    run = _run(f"python train.py {_MODEL} {_OPTIONS} {options}\n")
    assert _facts(run, "trainable.method", "quant.method", "quant.double") == (
        "qlora",
        "bnb4",
        True,
    )


_OLD_QWEN = "finetune.py --model_name_or_path Qwen/Qwen-7B --bf16 True --lazy_preprocess True"


def test_qwens_lora_trains_the_ends_of_base_models() -> None:
    run = _run(f"python {_OLD_QWEN} --use_lora --gradient_checkpointing True\n")
    fields = ("trainable.method", "trainable.r", "trainable.targets", "trainable.modules_to_save")
    layers = ("c_attn", "c_proj", "w1", "w2")
    assert _facts(run, *fields) == ("lora", 64, layers, ("wte", "lm_head"))
    assert _facts(run, "seq.max_len", "seq.pad") == (8192, "max_len")
    chat = _run(f"python {_OLD_QWEN} --use_lora\n".replace("Qwen-7B", "Qwen-7B-Chat"))
    assert chat.plan.trainable.modules_to_save is None


def test_qwens_q_lora_stands_on_a_checkpoint_of_gptq() -> None:
    line = f"python {_OLD_QWEN} --use_lora --q_lora\n".replace("Qwen-7B", "Qwen-7B-Chat-Int4")
    run = _run(line)
    assert _facts(run, "quant.method", "trainable.modules_to_save") == ("gptq", None)
    assert not run.plan.quant.prepares_kbit
    whole = _run(f"torchrun --nproc_per_node 2 {_OLD_QWEN}\n")
    assert _facts(whole, "trainable.method", "parallel.world") == ("full", 2)


_FSDP_QLORA = "CUDA_VISIBLE_DEVICES=0,1 python train.py --train_type qlora --context_length 1024"


def test_fsdp_qlora_starts_a_rank_for_each_gpu_that_it_sees() -> None:
    run = _run(f"{_FSDP_QLORA} --use_cpu_offload False\n")
    fields = ("parallel.backend", "parallel.world", "parallel.fsdp.cpu_offload", "seq.max_len")
    assert _facts(run, *fields) == ("fsdp1", 2, False, 1024)
    fields = (
        "trainable.method",
        "trainable.r",
        "quant.method",
        "quant.double",
        "quant.storage_dtype",
    )
    assert _facts(run, *fields) == ("qlora", 64, "bnb4", True, "bf16")
    fields = (
        "precision.param",
        "precision.grad",
        "precision.optim_state",
        "trainable.adapter_dtype",
    )
    assert _facts(run, *fields) == ("nf4", "bf16", "bf16", "bf16")
    assert run.plan.loss.outputs_kept
    assert run.plan.load.cpu_ram_efficient
    away = _run(f"{_FSDP_QLORA}\n".replace("0,1", "0,1,10"))
    assert _facts(away, "parallel.world", "offload.params") == (3, "cpu")
    whole = _run(f"{_FSDP_QLORA} --sharding_strategy ddp --low_memory False\n")
    assert _facts(whole, "parallel.fsdp.strategy", "load.cpu_ram_efficient") == ("no_shard", False)


# -- loops of their own --------------------------------------------------------------------------


def test_an_example_without_a_trainer() -> None:
    line = f"accelerate launch --num_processes 2 run_clm_no_trainer.py {_MODEL} --dataset_name x"
    run = _run(f"{line} --gradient_accumulation_steps 4\n")
    assert run.framework == "accelerate"
    fields = ("batch.micro", "batch.grad_accum", "seq.max_len", "seq.packing", "optimizer.name")
    assert _facts(run, *fields) == (8, 4, 1024, "concat", "adamw_torch")
    fields = ("save.strategy", "checkpointing.mode", "loss.outputs_kept", "precision.compute")
    assert _facts(run, *fields) == ("no", "none", True, "fp32")
    run = _run(f"{line} --block_size 512 --checkpointing_steps 100\n")
    assert _facts(run, "seq.max_len", "save.strategy", "save.every") == (512, "steps", 100)


_CHAT = "deepspeed --num_gpus 4 main.py --model_name_or_path facebook/opt-1.3b --deepspeed"


def test_deepspeed_chat() -> None:
    folder = "step1_supervised_finetuning/training_scripts/run.sh"
    run = _run(f"{_CHAT} --zero_stage 3 --offload --gradient_checkpointing\n", folder)
    assert run.framework == "deepspeed"
    fields = ("parallel.zero.stage", "offload.optimizer", "offload.params", "precision.compute")
    assert _facts(run, *fields) == (3, "cpu", "cpu", "fp16")
    fields = ("batch.micro", "seq.max_len", "seq.pad", "checkpointing.mode", "trainable.method")
    assert _facts(run, *fields) == (16, 512, "max_len", "full", "full")


def test_deepspeed_chat_is_told_by_the_folder_that_it_runs_in() -> None:
    step = _run(f"cd training/step1_supervised_finetuning\n{_CHAT} --zero_stage 2\n")
    assert _facts(step, "batch.micro", "parallel.zero.stage") == (16, 2)
    line = f'cd "$(dirname "$0")/../sft/"\n{_CHAT} --max_seq_len 4096 --training_debug_steps 5'
    fork = _run(f"{line} --zero_stage 2 --offload\n", "scripts/run_sft.sh")
    assert _facts(fork, "seq.max_len", "offload.optimizer") == (4096, "cpu")


def test_deepspeed_chats_lora_freezes_the_blocks() -> None:
    line = f"{_CHAT} --zero_stage 0 --data_split 2,4,4 --lora_dim 128 --dtype bf16"
    fields = ("trainable.method", "trainable.r", "trainable.modules_to_save", "precision.compute")
    run = _run(f"{line}\n")
    assert _facts(run, *fields) == ("lora", 128, ("embed_tokens", "lm_head"), "bf16")
    alone = _run(f"{line} --only_optimize_lora\n")
    assert _facts(alone, *fields) == ("lora", 128, None, "bf16")


def test_the_second_step_of_deepspeed_chat() -> None:
    line = f"{_CHAT} --zero_stage 0 --data_split 2,4,4 --num_padding_at_beginning 1\n"
    assert _run(line).plan.objective.kind == "rm"
    dpo = _run(f"{_CHAT} --zero_stage 0\n", "step2_dpo_finetuning/run.sh")
    assert not dpo.missing  # --deepspeed is a switch
    assert _facts(dpo, "objective.kind", "objective.ref_model") == ("dpo", "copy")


_RLHF = (
    "deepspeed --num_gpus 8 main.py --data_split 2,4,4 --deepspeed --output_dir out"
    " --actor_model_name_or_path facebook/opt-13b --critic_model_name_or_path facebook/opt-350m"
    " --actor_zero_stage 3 --critic_zero_stage 3 --per_device_training_batch_size 8"
)


def test_the_third_step_of_deepspeed_chat_holds_four_models() -> None:
    run = _run(f"{_RLHF} --actor_gradient_checkpointing --max_answer_seq_len 512\n")
    fields = ("objective.kind", "objective.ref_model", "objective.critic", "objective.reward_model")
    assert _facts(run, *fields) == ("ppo", "copy", "facebook/opt-350m", "facebook/opt-350m")
    fields = ("parallel.zero.stage", "batch.micro", "seq.max_len", "checkpointing.mode")
    assert _facts(run, *fields) == (3, 8, 768, "full")
    assert not run.stray
    # The catalogue knows how small the critic is.
    params = run.plan.objective.critic_params
    assert params is not None
    assert params < 400e6
    as_large = run.assuming({"objective.critic_params": 12_853_473_280})
    assert as_large.estimate.gpu.peak_bytes > run.estimate.gpu.peak_bytes + 20 * 2**30


def test_models_of_deepspeed_chat_that_are_offloaded_are_not_on_the_gpu() -> None:
    run = _run(f"{_RLHF} --offload_reference_model --offload_reward_model\n")
    assert _facts(run, "objective.ref_model", "objective.reward_model") == ("none", "none")


# -- images and text -----------------------------------------------------------------------------

_MORE = "--per_device_train_batch_size 1 --num_train_epochs 1 --bf16 True --output_dir out"
_LLAVA = "deepspeed llava/train/train_mem.py --model_name_or_path lmsys/vicuna-7b-v1.5 " + _MORE
_INTERN = (
    "torchrun internvl/train/internvl_chat_finetune.py"
    " --model_name_or_path OpenGVLab/InternVL3-8B " + _MORE
)
_QWEN = (
    "torchrun --nproc_per_node 8 qwenvl/train/train_qwen.py"
    " --model_name_or_path Qwen/Qwen2.5-VL-7B-Instruct " + _MORE
)


def test_liger_has_no_kernels_for_llavas_own_classes() -> None:
    for script in ("train_mem.py", "train_dpo.py"):
        launch = _LLAVA.replace("train_mem.py", script)
        with pytest.raises(CannotEdit):
            _run(f"{launch} --mm_projector_type linear").what_if(
                {"loss.logits_materialised": "fused"}
            )


def test_llava_trains_all_but_the_tower_or_the_projector_alone() -> None:
    run = _run(f"{_LLAVA} --mm_projector_type mlp2x_gelu\n")
    fields = ("trainable.method", "trainable.frozen", "model.attn_impl", "load.dtype")
    assert _facts(run, *fields) == ("full", ("vision",), "flash2", "bf16")
    assert _facts(run, "seq.max_len", "optimizer.name") == (512, "adamw_torch")
    alone = _run(f"{_LLAVA} --mm_projector_type mlp2x_gelu --tune_mm_mlp_adapter True\n")
    assert _facts(alone, "trainable.method", "trainable.params") == (
        "freeze", 1024 * 4096 + 4096 * 4096,
    )  # fmt: skip
    for path in ("checkpoints/mine", "checkpoints/mine-7b"):
        unknown = _run(
            f"{_LLAVA.replace('lmsys/vicuna-7b-v1.5', path)} --tune_mm_mlp_adapter True\n"
        )
        assert _facts(unknown, "trainable.method", "trainable.params") == ("freeze", 1024 * 8192)
    lora = _run(f"{_LLAVA} --lora_enable True --lora_r 128\n")
    assert _facts(lora, "trainable.method", "trainable.r") == ("lora", 128)


@pytest.mark.parametrize(
    ("version", "limit", "length"),
    [("plain", 2048, 1024), ("plain", 512, 512), ("v1", 2048, 2048)],
)
def test_llavas_captions_are_short(version: str, limit: int, length: int) -> None:
    run = _run(
        f"{_LLAVA} --version {version} --model_max_length {limit} --mm_projector_type linear\n"
    )
    assert run.plan.seq.max_len == length


def test_a_first_stage_with_a_prompt_reads_captions_too() -> None:
    """Of a copy of LLaVA whose two projectors are aligned one after the other, by a script of their own."""
    launch = (
        f"{_LLAVA.replace('llava/train/train_mem.py', 'pkg/train/pretrain.py')} --version qwen2 "
        "--model_max_length 4096 --mm_projector_type etp --mm_vision_select_layer -2"
    )
    for switch in ("--tune_mm_mlp_adapter", "--tune_image_mm_mlp_adapter"):
        run = _run(f"{launch} {switch} True\n")
        assert _facts(run, "trainable.method", "seq.max_len") == ("freeze", 1024)
    assert _facts(_run(f"{launch}\n"), "trainable.method", "seq.max_len") == ("full", 4096)
    adapter = _run(f"{launch} --tune_mm_mlp_adapter True --lora_enable True\n")
    assert _facts(adapter, "trainable.method", "seq.max_len") == ("lora", 4096)


@pytest.mark.parametrize(("tuned", "level"), [("", Level.ASSUMED), ("True", Level.DEFAULT)])
def test_a_run_of_the_whole_model_is_assumed_not_to_be_of_llavas_first_stage(
    tuned: str, level: Level
) -> None:
    """What trains the projector alone is of the first stage, whatever the version."""
    stage = f"--tune_mm_mlp_adapter {tuned}" if tuned else ""
    run = _run(f"{_LLAVA} --version $VERSION --model_max_length 2048 {stage}\n")
    assert run.level(f.seq.max_len) is level


@pytest.mark.parametrize(
    ("parts", "method", "frozen", "params"),
    [
        ("mm_mlp_adapter", "freeze", None, 1024 * 4096 + 4096 * 4096),
        ("mm_mlp_adapter,mm_language_model", "full", ("vision",), None),
        ("mm_vision_tower,mm_mlp_adapter,mm_language_model", "full", None, None),
        ("mm_vision_resampler", None, None, None),
        ("$PARTS", None, None, None),
    ],
)
def test_llava_next_trains_the_parts_that_it_is_told(
    parts: str, method: str | None, frozen: tuple[str, ...] | None, params: int | None
) -> None:
    """Also in a project that begins with a copy of it and renames the package."""
    options = f'--mm_projector_type mlp2x_gelu --mm_tunable_parts="{parts}"'
    for package in ("llava", "longva"):
        run = _run(f"{_LLAVA.replace('llava/', package + '/')} {options}\n")
        fields = ("trainable.method", "trainable.frozen", "trainable.params")
        assert _facts(run, *fields) == (method, frozen, params)


def test_internvl() -> None:
    fields = ("trainable.method", "checkpointing.mode", "model.attn_impl", "load.dtype")
    run = _run(f"{_INTERN} --freeze_backbone True\n")
    assert _facts(run, *fields) == ("full", "full", "flash2", "bf16")
    assert run.plan.trainable.frozen == ("vision",)
    lora = _run(f"{_INTERN} --freeze_llm True --use_llm_lora 16 --grad_checkpoint False\n")
    assert _facts(lora, *fields[:2]) == ("lora", "none")
    assert _facts(lora, "trainable.r", "trainable.alpha") == (16, 32)
    warm_up = _run(f"{_INTERN} --freeze_llm True --freeze_backbone True\n")
    assert warm_up.plan.trainable.method == "freeze"
    assert 0 < (warm_up.plan.trainable.params or 0) < 10**8


def test_qwen_vl_trains_what_it_is_told_to() -> None:
    run = _run(f"{_QWEN} --tune_mm_llm True --tune_mm_mlp True\n")
    assert _facts(run, "trainable.method", "trainable.frozen") == ("full", ("vision",))
    assert _run(f"{_QWEN} --tune_mm_mlp True\n").plan.trainable.method == "freeze"
    assert _run(f"{_QWEN} --tune_mm_llm True --tune_mm_vision True\n").plan.trainable.frozen is None
    # Nothing is trained, as far as the line says.
    assert _run(f"{_QWEN}\n").plan.trainable.method is None


def test_minicpm() -> None:
    options = "--llm_type qwen --tune_vision False --max_slice_nums 9"
    model = "torchrun finetune.py --model_name_or_path openbmb/MiniCPM-V-2_6 " + _MORE
    run = _run(f"{model} {options}\n")
    assert _facts(run, "trainable.method", "seq.max_len") == ("full", 2048)
    lora = _run(f"{model} {options} --use_lora True --tune_llm False\n")
    assert _facts(lora, "trainable.method", "trainable.r") == ("lora", 64)


def test_minicpm_trains_more_than_adapters() -> None:
    options = "--llm_type llama3 --use_lora True --tune_llm False --max_slice_nums 9"
    model = "torchrun finetune.py --model_name_or_path openbmb/MiniCPM-Llama3-V-2_5 " + _MORE
    open_tower = _run(f"{model} {options}\n")
    assert _facts(open_tower, "trainable.modules_to_save") == (("embed_tokens", "vpm"),)
    kept = _run(f"{model} {options} --tune_vision False\n")
    assert _facts(kept, "trainable.modules_to_save") == (("embed_tokens",),)


# -- ChatGLM -------------------------------------------------------------------------------------

_CHATGLM = (
    "torchrun --nproc_per_node 1 main.py --model_name_or_path THUDM/chatglm2-6b --output_dir out"
    " --prompt_column content --response_column summary --max_source_length 64"
    " --max_target_length 128 --per_device_train_batch_size 1"
)


def test_chatglm_trains_a_prefix() -> None:
    run = _run(f"{_CHATGLM} --pre_seq_len 128\n")
    # 28 layers with two groups of keys and of values, 128 wide.
    assert _facts(run, "trainable.method", "trainable.params", "seq.max_len", "load.dtype") == (
        "freeze", 128 * 28 * 2 * 128 * 2, 193, "fp16",
    )  # fmt: skip
    quantized = _run(f"{_CHATGLM} --pre_seq_len 128 --quantization_bit 4\n")
    assert quantized.plan.quant.method is None


def test_chatglm_trains_everything_without_a_prefix() -> None:
    run = _run(f"{_CHATGLM}\n")
    fields = ("trainable.method", "load.dtype", "checkpointing.mode", "quant.method")
    assert _facts(run, *fields) == ("full", "fp32", "full", "none")


# -- options that a script has besides ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "method"),
    [
        (f"{_CHAT} --zero_stage 3 --data_split 2,4,4 --lora_dim 128 --lora_module_name decoder.layers.", "lora"),
        (f"{_LLAVA} --mm_projector_type mlp2x_gelu --pretrain_mm_mlp_adapter p.bin", "full"),
        (f"deepspeed fastchat/train/train_lora.py {_MODEL} --bf16 True --lora_bias all", "lora"),
        (f"python qlora.py {_MODEL} --lora_modules all", "qlora"),
    ],
)  # fmt: skip
def test_what_costs_nothing_leaves_nothing_open(line: str, method: str) -> None:
    assert _run(f"{line}\n").plan.trainable.method == method


# -- GLM-4 -----------------------------------------------------------------------------------------

_DEMO = """\
data_config:
  train_file: train.jsonl
max_input_length: 512
max_output_length: 256
training_args:
  output_dir: ./output
  max_steps: 3000
  per_device_train_batch_size: 2
  per_device_eval_batch_size: 4
  save_strategy: steps
  save_steps: 500
peft_config:
  peft_type: LORA
  r: 4
  target_modules: ["query_key_value"]
"""


def _demo(line: str, config: str = _DEMO) -> Run:
    return run_of({"run.sh": f"{line}\n", "configs/lora.yaml": config})


def test_glm_takes_a_model_and_a_file_among_its_words() -> None:
    run = _demo("python finetune.py data/own/ THUDM/glm-4-9b-chat configs/lora.yaml")
    fields = ("model.id", "batch.micro", "seq.max_len", "load.dtype", "checkpointing.mode")
    assert _facts(run, *fields) == ("THUDM/glm-4-9b-chat", 2, 769, "bf16", "full")
    assert _facts(run, "trainable.method", "trainable.r") == ("lora", 4)
    assert not run.stray
    whole = _DEMO.partition("peft_config")[0]
    full = _demo("torchrun --nproc_per_node=8 finetune.py d m/glm configs/lora.yaml yes", whole)
    assert _facts(full, "trainable.method", "parallel.world") == ("full", 8)


def test_a_prefix_is_all_that_is_trained() -> None:
    config = (
        _DEMO.partition("  peft_type")[0] + "  peft_type: PREFIX_TUNING\n  num_virtual_tokens: 64\n"
    )
    run = _demo("python finetune_hf.py data THUDM/chatglm3-6b configs/lora.yaml", config)
    # Keys and values of 28 layers for two heads of 128 elements.
    assert _facts(run, "trainable.method", "trainable.params") == ("freeze", 2 * 64 * 28 * 2 * 128)


def test_chatglm3_checkpoints_nothing() -> None:
    run = _demo("python finetune_hf.py data THUDM/chatglm3-6b configs/lora.yaml")
    fields = ("load.dtype", "checkpointing.mode", "seq.max_len")
    assert _facts(run, *fields) == ("fp16", "none", 769)


def test_a_script_of_that_name_with_other_words_is_not_glms() -> None:
    assert not link({"run.sh": "python finetune.py config.yaml\n", "config.yaml": "a: 1\n"}).runs


# -- Coati -----------------------------------------------------------------------------------------

_COATI = "torchrun --standalone --nproc_per_node=4 examples/{}.py --pretrain huggyllama/llama-7b"


def test_coati_shards_by_its_strategy() -> None:
    sft = f"{_COATI.format('train_sft')} --model llama --strategy colossalai_zero2"
    run = _run(f"{sft} --batch_size 1 --accimulation_steps 4 --lora_rank 4\n")
    fields = ("model.id", "parallel.zero.stage", "batch.micro", "batch.grad_accum", "trainable.r")
    assert _facts(run, *fields) == ("huggyllama/llama-7b", 2, 1, 4, 4)
    line = f"{_COATI.format('train_reward_model')} --strategy colossalai_gemini_cpu --max_len 1000"
    rm = _run(f"{line}\n")
    fields = ("parallel.zero.stage", "offload.params", "seq.max_len", "objective.kind")
    assert _facts(rm, *fields) == (3, "cpu", 1000, "rm")


def test_a_trainer_of_another_package_is_not_trls() -> None:
    """Coati has an SFTTrainer too, and takes no TrainingArguments."""
    script = (
        "from coati.trainer import SFTTrainer\n"
        "trainer = SFTTrainer(model=model, strategy=strategy, optim=optim, batch_size=2)\n"
        "trainer.fit(logger=logger)\n"
    )
    line = f"{_COATI.format('train_sft')} --model llama --strategy colossalai_zero2\n"
    run = run_of({"train.sh": line, "examples/train_sft.py": script})
    assert _facts(run, "parallel.zero.stage", "load.dtype") == (2, "fp16")


def test_longlora() -> None:
    line = f"torchrun --nproc_per_node=8 fine-tune.py {_MODEL} --bf16 True"
    run = _run(f"{line} --model_max_length 8192 --low_rank_training True\n")
    fields = (
        "trainable.method",
        "trainable.r",
        "trainable.targets",
        "checkpointing.mode",
        "seq.pad",
    )
    projections = ("q_proj", "k_proj", "v_proj", "o_proj")
    assert _facts(run, *fields) == ("lora", 8, projections, "full", "max_len")
    more = ("trainable.train_embeddings", "load.dtype", "model.attn_impl")
    assert _facts(run, *more) == (True, "bf16", "flash2")
    run = _run(f"{line} --low_rank_training False --use_full_attn True\n")
    assert _facts(run, "trainable.method", "seq.max_len") == ("full", 32768)
    run = _run(f"torchrun supervised-fine-tune-qlora.py {_MODEL} --bf16 True\n")
    assert _facts(run, "quant.method", "trainable.method", "seq.pad") == (
        "bnb4",
        "qlora",
        "longest",
    )


def test_a_list_that_fire_would_read_is_a_list_of_modules() -> None:
    named = "'[gate_proj, down_proj, up_proj]'"
    line = "python finetune.py --base_model huggyllama/llama-7b --lora_r 8"
    run = _run(f"{line} --lora_target_modules {named}\n")
    assert run.plan.get("trainable.targets") == ("gate_proj", "down_proj", "up_proj")
    line = f"deepspeed fastchat/train/train_lora.py {_MODEL} --bf16 True"
    run = _run(f"{line} --lora_target_modules {named}\n")
    assert run.plan.get("trainable.targets") == ("gate_proj", "down_proj", "up_proj")


@pytest.mark.parametrize(
    ("model", "dtype"), [("Qwen/Qwen-VL-Chat", "bf16"), ("Qwen/Qwen2-7B", "fp32")]
)
def test_a_model_that_casts_itself(model: str, dtype: str) -> None:
    script = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        f"model = AutoModelForCausalLM.from_pretrained('{model}', trust_remote_code=True)\n"
        "args = TrainingArguments(output_dir='out', bf16=True)\n"
        "Trainer(model=model, args=args, train_dataset=data).train()\n"
    )
    run = run_of({"train.py": script, "requirements.txt": "transformers==4.32.0\n"})
    assert run.plan.load.dtype == dtype


def test_deepspeed_chat_writes_with_its_hybrid_engine() -> None:
    line = (
        "deepspeed main.py --actor_model_name_or_path facebook/opt-13b --actor_zero_stage 3"
        " --critic_model_name_or_path facebook/opt-350m --per_device_train_batch_size 4"
        " --per_device_mini_train_batch_size 4"
    )
    fields = [f"objective.rollout.{name}" for name in ("gathers", "tp", "rollout_micro_batch")]
    assert _facts(_run(f"{line}\n"), *fields) == (False, 1, 4)
    run = _run(f"{line} --enable_hybrid_engine --inference_tp_size 2\n")
    assert _facts(run, *fields) == (True, 2, 4)
    run = _run(f"{line} --enable_hybrid_engine --unpin_actor_parameters\n")
    assert _facts(run, *fields) == (False, 1, 4)
    engine = ("objective.rollout.engine", "objective.rollout.sleep")
    assert _facts(_run(f"{line}\n"), *engine) == ("hf", False)
    run = _run(f"{line} --enable_hybrid_engine --release_inference_cache\n")
    assert _facts(run, *engine) == ("deepspeed", True)


_DOLLY = (
    "--input-model EleutherAI/pythia-2.8b --local-output-dir out --per-device-train-batch-size 3"
)


def test_dolly() -> None:
    line = f"deepspeed --num_gpus=1 --module training.trainer {_DOLLY} --deepspeed ds.json"
    ds = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}'
    run = run_of({"train.sh": f"{line} --bf16=true\n", "ds.json": ds})
    fields = ("batch.micro", "seq.max_len", "checkpointing.mode", "load.dtype", "load.zero3_init")
    assert _facts(run, *fields) == (3, 2048, "full", "fp32", False)


_R1 = "--model_name_or_path Qwen/Qwen2-VL-2B-Instruct --output_dir out --dataset_name own --bf16"


def test_r1_v_counts_prompts() -> None:
    options = "--max_prompt_length 1024 --per_device_train_batch_size 1 --max_pixels 401408"
    line = f"torchrun --nproc_per_node=8 src/open_r1/grpo.py {_R1} {options} --num_generations 4"
    run = _run(f"{line} --deepspeed zero3.json\n")
    fields = ("objective.pairs_per_sample", "seq.max_len", "objective.ref_model", "loss.algorithm")
    assert _facts(run, *fields) == (4, 1280, "copy", "rows")
    assert run.plan.model.vision.max_pixels == 401_408
    assert run.plan.objective.rollout.engine == "hf"
    beside = _run(f"{line} --use_vllm true --temporal true --vllm_device cuda:7\n")
    assert beside.plan.objective.pairs_per_sample == 4
    assert beside.plan.objective.rollout.engine == "vllm_server"


def test_vlm_r1_does_not_cut_its_prompts() -> None:
    line = f"torchrun --nproc_per_node=8 src/open_r1/grpo_rec.py {_R1} --max_prompt_length 1024"
    run = _run(f"{line} --per_device_train_batch_size 1 --deepspeed zero3.json\n")
    fields = ("seq.max_len", "loss.logits_materialised", "objective.ref_model", "load.dtype")
    assert _facts(run, *fields) == (16_384 + 256, "full", "copy", "bf16")
    small = _run(f"{line} --max_pixels 401408 --beta 0 --freeze_vision_modules true\n")
    assert _facts(small, "seq.max_len", "objective.ref_model") == (512 + 256, "none")
    assert small.plan.model.vision.freeze_tower


@pytest.mark.parametrize(
    ("options", "load", "method"),
    [("", "fp32", "full"), (" --use_peft", "fp32", "lora"), (" --use_peft --load_in_4bit", "bf16", "qlora")],
)  # fmt: skip
def test_trls_first_sft_example(options: str, load: str, method: str) -> None:
    line = f"python examples/scripts/sft_trainer.py --model_name huggyllama/llama-7b{options}\n"
    run = _run(line)
    assert run.framework == "trl"
    assert _facts(run, "load.dtype", "trainable.method") == (load, method)
    assert _facts(run, "batch.micro", "batch.grad_accum", "seq.max_len") == (64, 16, 512)
    assert run.plan.checkpointing.mode == ("full" if method == "qlora" else "none")


def test_trls_second_sft_example() -> None:
    line = (
        "accelerate launch sft.py --model_name mistralai/Mixtral-8x7B-v0.1 --dataset_name a/b"
        " --batch_size 2 --use_peft --peft_lora_r 16 --load_in_4bit --bf16"
    )
    run = _run(f"{line}\n")
    assert _facts(run, "batch.micro", "batch.grad_accum", "trainable.r") == (2, 1, 16)
    assert _facts(run, "quant.method", "quant.prepares_kbit") == ("bnb4", True)
    assert _facts(run, "checkpointing.mode", "precision.autocast") == ("none", True)
    # From March 2024 on the options were those of TRL's parser.
    assert (
        _run(f"{line} --model_name_or_path x\n".replace("model_name ", "x ")).plan.batch.micro != 2
    )


def test_stack_llama_2() -> None:
    run = _run("accelerate launch dpo_llama2.py --model_name_or_path=sft/final --output_dir=dpo\n")
    assert _facts(run, "objective.kind", "objective.ref_model", "seq.max_len") == (
        "dpo",
        "copy",
        1024,
    )
    assert _facts(run, "batch.micro", "batch.eval_micro", "eval.every") == (4, 8, 100)
    assert _facts(run, "quant.method", "checkpointing.mode") == ("bnb4", "full")
    run = _run(
        "accelerate launch sft_llama2.py --output_dir=./sft --max_steps=500 --seq_length 2048\n"
    )
    assert _facts(run, "model.id", "seq.max_len") == ("meta-llama/Llama-2-7b-hf", 2048)
    assert _facts(run, "trainable.method", "seq.packing") == ("qlora", "concat")
    assert run.plan.optimizer.name == "paged_adamw_32bit"


ALPACA_LINE = """\
torchrun --nproc_per_node 8 finetune.py --base_model meta-llama/Llama-2-7b-hf --micro_batch_size 1
"""
ALPACA_OPTIONS = (
    "base_model", "data_path", "batch_size", "micro_batch_size", "cutoff_len", "val_set_size", "lora_r",
    "lora_alpha", "lora_dropout", "lora_target_modules", "group_by_length", "output_dir",
)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "is_it"),
    [
        (ALPACA_OPTIONS, True),
        (("base_model", "micro_batch_size", "seq_length", "batch_size"), False),
    ],
)
def test_a_script_that_has_only_the_name_of_a_known_one_is_another(options, is_it):
    """What it does not name it does not do: no adapter, no 8-bit weights, no 256 tokens."""
    script = f"import fire\n\ndef train({', '.join(options)}): ...\n\nfire.Fire(train)\n"
    files = {"finetune.py": script, "a.sh": ALPACA_LINE}
    assert [run.plan.trainable.method for run in link(files).runs] == ["lora"] * is_it


def test_a_known_script_that_is_not_here_is_told_by_its_line():
    (run,) = link({"a.sh": ALPACA_LINE}).runs
    assert run.plan.trainable.method == "lora"


def test_a_fork_whose_line_says_nearly_all_is_that_script():
    """The one option that it has dropped does not make it another."""
    said = [option for option in ALPACA_OPTIONS if option not in ("base_model", "micro_batch_size")]
    line = ALPACA_LINE.strip() + "".join(f" --{option} 1" for option in said) + "\n"
    script = f"import fire\n\ndef train({', '.join(ALPACA_OPTIONS)}): ...\n\nfire.Fire(train)\n"
    (run,) = link({"finetune.py": script, "a.sh": line}).runs
    assert run.plan.trainable.method == "lora"


_TINY = (
    "deepspeed tinyllava/train/train.py --model_name_or_path microsoft/phi-2 --output_dir out --fp16 True "
    "--model_max_length 2048 --tune_type_vision_tower frozen"
)


def test_tinyllavas_first_stage_trains_the_connector_on_captions() -> None:
    run = _run(f"{_TINY} --tune_type_llm frozen --connector_type mlp2x_gelu\n")
    assert _facts(run, "trainable.method", "seq.max_len", "load.dtype") == ("freeze", 1024, "fp16")
    assert run.plan.trainable.params == 1152 * 2560 + 2560 * 2560
    full = _run(f"{_TINY} --tune_type_llm full --conv_version phi\n")
    assert _facts(full, "trainable.method", "seq.max_len") == ("full", 2048)
    other = _run(f"{_TINY} --tune_type_llm frozen --connector_type resampler\n")
    assert other.level(f.trainable.method) is Level.UNREAD


_ALIGNS = """\
import transformers
from dataclasses import dataclass, field
from transformers import AutoModelForCausalLM, Trainer

@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="lmsys/vicuna-7b-v1.5")
    tune_mm_mlp_adapter: bool = field(default=False)
    align_stage: bool = field(default=False)

def train():
    parser = transformers.HfArgumentParser((ModelArguments, transformers.TrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses()
    if model_args.align_stage:
        model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path)
    else:
        model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path)
    if model_args.tune_mm_mlp_adapter:
        model.requires_grad_(False)
    if model_args.align_stage:
        for name, param in model.named_parameters():
            param.requires_grad = "projection" in name
    Trainer(model=model, args=training_args, train_dataset=rows).train()

train()
"""


@pytest.mark.parametrize(
    ("switch", "level"), [("", Level.DEFAULT), ("--align_stage True", Level.UNREAD)]
)
def test_a_switch_that_a_profile_does_not_know_may_freeze(switch: str, level: Level) -> None:
    """Of a script that was made from the profile's; how it loads the model the profile tells all the same."""
    line = f"{_LLAVA.replace('train_mem.py', 'train.py')} --mm_projector_type linear {switch}\n"
    run = run_of({"go.sh": line, "llava/train/train.py": _ALIGNS}, "go.sh")
    assert (run.level(f.trainable.method), run.plan.load.dtype) == (level, "bf16")
