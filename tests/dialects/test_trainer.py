"""Scripts over transformers' Trainer, started on a command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.linked import PROGRAM, link, run_of

from oomlint.dialects import registry
from oomlint.documents.text import apply_edits
from oomlint.files.workspace import Workspace
from oomlint.fix.edits import make_fix
from oomlint.linting.rule import Applicability, Proposal, SetFields
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_REST = (
    " --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 2"
    " --output_dir out --num_train_epochs 1 --learning_rate 1e-4 --bf16 True"
)


def _runs(files: dict[str, str] | str) -> list[Run]:
    files = {"run.sh": files} if isinstance(files, str) else files
    return link(files).runs


def _run(files: dict[str, str] | str) -> Run:
    (run,) = _runs(files)
    return run


def test_a_plain_command_is_the_trainers() -> None:
    run = _run("torchrun --nproc_per_node 4 run_clm.py" + _REST + " --block_size 2048\n")
    plan = run.plan
    assert run.framework == "hf-trainer"
    assert (plan.parallel.world, plan.parallel.backend) == (4, "ddp")
    assert (plan.batch.micro, plan.batch.grad_accum, plan.get("batch.global")) == (2, 1, 8)
    assert (plan.load.dtype, plan.precision.param, plan.precision.compute) == (
        "fp32",
        "fp32",
        "bf16",
    )
    assert plan.checkpointing.mode == "none"
    assert (plan.seq.max_len, plan.trainable.method) == (2048, "full")
    origin = run.origin("load.dtype")
    assert origin is not None
    assert origin.kind == "assumed"


def test_several_visible_gpus_without_a_launcher_are_data_parallel() -> None:
    plan = _run("CUDA_VISIBLE_DEVICES=0,1 python train.py" + _REST + "\n").plan
    assert (plan.parallel.backend, plan.parallel.gpus_per_node) == ("dp", 2)
    plan = _run("CUDA_VISIBLE_DEVICES=0 python train.py" + _REST + "\n").plan
    assert (plan.parallel.backend, plan.parallel.world) == ("none", 1)
    plan = _run("CUDA_VISIBLE_DEVICES=0,1 python qlora.py" + _REST + " --bits 4\n").plan
    assert (plan.parallel.world, plan.quant.method) == (1, "bnb4")


def test_reads_deepspeed_and_fsdp_options() -> None:
    config = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}'
    run = _run(
        {
            "ds.json": config,
            "run.sh": "deepspeed --num_gpus 8 train.py" + _REST + " --deepspeed ds.json\n",
        }
    )
    assert (run.plan.parallel.zero.stage, run.plan.parallel.world) == (3, 8)
    assert set(run.files) == {"run.sh", "ds.json"}
    plan = _run(
        "torchrun --nproc_per_node 8 train.py" + _REST + ' --fsdp "full_shard auto_wrap" '
        "--fsdp_config '{\"cpu_ram_efficient_loading\": true}'\n"
    ).plan
    assert plan.parallel.backend == "fsdp2"
    assert plan.load.cpu_ram_efficient is True


@pytest.mark.parametrize(
    ("options", "stage"),
    [
        ("--deepspeed --deepspeed_config ds.json", 3),
        ("--deepspeed_config ds.json", 3),
        ("--deepspeed one.json --deepspeed_config ds.json", 1),
    ],
)
def test_the_option_of_deepspeeds_own_arguments_names_its_file(options: str, stage: int) -> None:
    files = {
        "ds.json": '{"zero_optimization": {"stage": 3}}',
        "one.json": '{"zero_optimization": {"stage": 1}}',
        "run.sh": f"deepspeed --num_gpus 8 run_clm_no_trainer.py{_REST} {options}\n",
    }
    (run,) = link(files, "run.sh").runs
    assert run.plan.parallel.zero.stage == stage


@pytest.mark.parametrize(
    "files",
    [
        {"run.sh": f"torchrun --nproc_per_node 8 run_clm.py{_REST} --deepspeed ''\n"},
        {
            "train.py": "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
            "model = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-2-7b-hf')\n"
            "args = TrainingArguments(output_dir='out', deepspeed='')\n"
            "Trainer(model=model, args=args, train_dataset=data).train()\n"
        },
    ],
)
def test_a_deepspeed_config_without_a_name_is_none(files: dict[str, str]) -> None:
    run = _run(files)
    assert not run.missing
    assert run.plan.parallel.backend != "zero"


def test_a_deepspeed_config_that_only_running_tells_is_deepspeed_still() -> None:
    plan = _run("torchrun --nproc_per_node 8 train.py" + _REST + " --deepspeed $DS\n").plan
    assert (plan.parallel.backend, plan.parallel.zero.stage) == ("zero", None)


@pytest.mark.parametrize(
    ("options", "optimizer", "groups"),
    [("", "", 2), ("", ', "optimizer": {"type": "AdamW"}', 1), (" --use_peft", "", 1)],
)
def test_norms_are_a_group_of_their_own(options: str, optimizer: str, groups: int) -> None:
    config = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}' + optimizer + "}"
    command = (
        "deepspeed --num_gpus 8 examples/scripts/sft.py --model_name_or_path Qwen/Qwen2.5-7B"
        f" --output_dir out --bf16 --deepspeed ds.json{options}\n"
    )
    assert _run({"run.sh": command, "ds.json": config}).plan.optimizer.groups == groups


def test_deepspeeds_own_adam_is_fused_unless_torchs_is_asked_for() -> None:
    def fused(optimizer: str) -> object:
        config = f'{{"zero_optimization": {{"stage": 2}}{optimizer}}}'
        command = (
            "deepspeed --num_gpus 8 train.py" + _REST + " --optim adamw_torch --deepspeed ds.json\n"
        )
        return _run({"run.sh": command, "ds.json": config}).plan.optimizer.fused

    assert fused(', "optimizer": {"type": "AdamW"}') is True
    assert fused(', "optimizer": {"type": "AdamW", "params": {"torch_adam": true}}') is False
    assert fused("") is False


def test_adapters_are_told_by_their_options() -> None:
    for options, method, quant in (
        ("--use_lora True --lora_r 8", "lora", "none"),
        ("--lora_rank 8 --q_lora True", "qlora", "bnb4"),
    ):
        run = _run({"run.sh": f"python train.py{_REST} {options}\n", "train.py": PROGRAM})
        assert (run.plan.trainable.method, run.plan.quant.method) == (method, quant)
        assert run.plan.trainable.r == 8


def test_fixes_go_to_the_script_not_to_the_launcher() -> None:
    script = (
        "torchrun --nproc_per_node 4 train.py \\\n    --bf16 True \\\n    --output_dir out \\\n"
    )
    script += "    --per_device_train_batch_size 8 \\\n    --num_train_epochs 1 --fp16 False\n"
    run = _run(script)
    wish = SetFields({"checkpointing.mode": "full", "batch.micro": 4, "batch.grad_accum": 2})
    fix = make_fix(run, Proposal("t", (wish,), Applicability.SAFE), None)
    assert fix is not None
    assert fix.reason is None
    text = script
    for edit in sorted(fix.edits, key=lambda e: -e.start):
        text = text[: edit.start] + edit.replacement + text[edit.end :]
    assert text.startswith("torchrun --nproc_per_node 4 train.py \\\n")
    assert text.endswith(" --fp16 False \\\n    --gradient_checkpointing True\n")
    assert (
        "    --per_device_train_batch_size 4 \\\n    --gradient_accumulation_steps 2 \\\n" in text
    )
    plan = _run(text).plan
    assert (plan.checkpointing.mode, plan.batch.micro, plan.batch.grad_accum) == ("full", 4, 2)


@pytest.mark.parametrize(
    "command",
    [
        "swift sft" + _REST + " --train_type lora",
        "llamafactory-cli train --stage sft" + _REST,
        "python src/train_bash.py --stage sft --finetuning_type lora" + _REST,
        "accelerate launch run_clm_no_trainer.py" + _REST,
        "python xla_spawn.py --num_cores 8 run_clm.py" + _REST,
        "python prepare.py --output_dir out",
        "python train.py --learning_rate 1e-4 --output_dir out --epochs 3",
        "python ppo_loop.py" + _REST + " --batch_size 64 --mini_batch_size 2 --init_kl_coef 0.3",
    ],
)
def test_commands_of_others_are_left_alone(command: str) -> None:
    runs = _runs(command + "\n")
    assert all(run.framework not in ("hf-trainer", "trl") for run in runs)


def _wished(text: str, changes: dict[str, object]) -> str | None:
    """The command line that a wish comes to, ``None`` where it cannot be said there."""
    fix = make_fix(_run(text), Proposal("t", (SetFields(changes),), Applicability.SAFE), None)
    return apply_edits(text, fix.edits) if fix is not None and fix.edits else None


def test_what_only_an_fsdp_config_says_is_no_option_of_a_command_line() -> None:
    """HfArgumentParser stops at ``--fsdp_config.cpu_offload``; ``offload`` is a word of --fsdp."""
    text = "torchrun --nproc_per_node 4 run_clm.py" + _REST + " --fsdp 'full_shard auto_wrap'\n"
    offloaded = _wished(text, {"parallel.fsdp.cpu_offload": True})
    assert offloaded == text.replace("auto_wrap", "auto_wrap offload")
    assert _run(offloaded).plan.parallel.fsdp.cpu_offload is True
    assert _wished(text, {"load.cpu_ram_efficient": True}) is None


@pytest.mark.parametrize(
    "module", ["align_anything.trainers.text_to_text.x", "safe_rlhf.finetune", "swift.x.dpo"]
)
def test_loops_of_others_with_names_like_the_trainers_are_left_alone(module: str) -> None:
    options = "--model_name_or_path m --output_dir out --train_datasets d --bf16 True"
    more = "--per_device_train_batch_size 1 --learning_rate 1e-5 --gradient_checkpointing"
    text = f"deepspeed --master_port 1 --module {module} {options} {more}\n"
    workspace = Workspace(Path("/x"), {"run.sh": text.encode()})
    assert not Linker(workspace, registry(), LinkOptions()).link(["run.sh"]).runs


@pytest.mark.parametrize(
    ("model", "version", "attention"),
    [
        ("huggyllama/llama-7b", "4.28.1", "eager"),
        ("huggyllama/llama-7b", "4.36.0", "sdpa"),
        ("huggyllama/llama-7b", None, "sdpa"),
        ("tiiuae/falcon-7b", "4.33.0", "sdpa"),
    ],
)
def test_attention_is_step_by_step_before_transformers_4_36(
    model: str, version: str | None, attention: str
) -> None:
    line = f"python train.py --model_name_or_path {model} --output_dir out --do_train"
    line += " --per_device_train_batch_size 1 --num_train_epochs 1 --bf16 True"
    files = {"run.sh": f"{line}\n"}
    if version is not None:
        files["requirements.txt"] = f"transformers=={version}\n"
    assert run_of(files, "run.sh").plan.model.attn_impl == attention


@pytest.mark.parametrize(
    ("release", "attention"), [("1.13.1", "eager"), ("2.0.0", "sdpa"), (None, "sdpa")]
)
def test_attention_is_step_by_step_before_torch_2(release: str | None, attention: str) -> None:
    """Code that a model brings along asks for torch 2 before it calls scaled_dot_product_attention."""
    line = "python train.py --model_name_or_path THUDM/chatglm2-6b --output_dir out --do_train"
    line += " --per_device_train_batch_size 1 --num_train_epochs 1 --fp16 True"
    files = {"run.sh": f"{line}\n"}
    if release is not None:
        files["requirements.txt"] = f"torch=={release}\n"
    assert run_of(files, "run.sh").plan.model.attn_impl == attention


@pytest.mark.parametrize(("release", "reads_once"), [("4.40.0", True), ("4.41.0", False)])
def test_the_environment_says_who_reads_before_transformers_4_41(
    release: str, reads_once: bool
) -> None:
    line = "ACCELERATE_USE_FSDP=1 FSDP_CPU_RAM_EFFICIENT_LOADING=1 torchrun --nproc_per_node=4 train.py"
    line += (
        " --model_name_or_path meta-llama/Meta-Llama-3-70B --output_dir out --do_train --bf16 True"
    )
    line += ' --per_device_train_batch_size 1 --num_train_epochs 1 --fsdp "full_shard auto_wrap"'
    files = {"run.sh": f"{line}\n", "requirements.txt": f"transformers=={release}\n"}
    assert run_of(files, "run.sh").plan.load.cpu_ram_efficient is reads_once
    bare = {**files, "run.sh": line.replace("ACCELERATE_USE_FSDP=1 ", "") + "\n"}
    assert run_of(bare, "run.sh").plan.load.cpu_ram_efficient is False


def test_a_packages_own_command_starts_nobody_knows_how_many_processes() -> None:
    """``name-cli sft`` usually calls torchrun for itself: one process is not what anybody said."""
    run = _run("our-cli sft" + _REST + " --model_max_length 2048\n")
    assert run.framework == "hf-trainer"
    assert run.level(f.parallel.world) is Level.UNREAD
    assert _run("python train.py" + _REST + "\n").level(f.parallel.world) < Level.ASSUMED


def test_a_dtype_that_was_not_read_is_not_taken_for_fp32() -> None:
    line = "torchrun --nproc_per_node 2 train.py" + _REST + ' --torch_dtype "$DTYPE"\n'
    run = _run({"run.sh": "DTYPE=$(python which_dtype.py)\n" + line, "train.py": PROGRAM})
    assert run.plan.load.dtype == "bf16"
    assert run.level(f.load.dtype) is Level.UNREAD


def test_a_rank_of_zero_is_no_adapter() -> None:
    """Scripts that take ``--lora_r 0`` guard their LoraConfig with ``if args.lora_r > 0``."""
    command = "torchrun --nproc_per_node 2 train.py" + _REST + " --lora_r 0\n"
    run = _run({"run.sh": command, "train.py": PROGRAM})
    assert run.plan.trainable.method == "full"
    assert not run.wrong


@pytest.mark.parametrize(("device", "changes"), [("none", True), ("cpu", False)])
def test_no_optimizer_but_adam_is_written_where_deepspeed_offloads_it(
    device: str, changes: bool
) -> None:
    """Accelerate would put DeepSpeed's Adam for the CPU in its place."""
    zero = f'{{"zero_optimization": {{"stage": 3, "offload_optimizer": {{"device": "{device}"}}}}}}'
    text = "torchrun --nproc_per_node 4 run_clm.py" + _REST + " --deepspeed ds.json\n"
    run = run_of({"run.sh": text, "ds.json": zero}, "run.sh")
    wish = Proposal("t", (SetFields({"optimizer.kind": "adafactor"}),), Applicability.SAFE)
    fix = make_fix(run, wish, None)
    assert bool(fix is not None and fix.edits) is changes


_PARSES = """\
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
@dataclass
class Model:
    model_name_or_path: str = None
@dataclass
class Options{bases}:
    output_dir: str = "out"
    per_device_train_batch_size: int = 8
model, options = HfArgumentParser((Model, {made})).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(model.model_name_or_path)
Trainer(model=model, args=options, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("bases", "made", "micro"),
    [("", "TrainingArguments", 3), ("(TrainingArguments)", "Options", 3), ("", "Options", None)],
)
def test_a_script_that_parses_training_arguments_is_known_by_that(
    bases: str, made: str, micro: int | None
) -> None:
    """Not by how many of them a command says."""
    command = "torchrun --nproc_per_node 2 train.py --model_name_or_path Qwen/Qwen2.5-0.5B"
    command += " --output_dir out --per_device_train_batch_size 3\n"
    script = _PARSES.format(bases=bases, made=made)
    runs = link({"run.sh": command, "train.py": script}).runs
    assert [run.plan.batch.micro for run in runs] == ([] if micro is None else [micro])
