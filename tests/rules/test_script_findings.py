"""Findings in scripts that no single example of a rule shows."""

from pathlib import Path

import pytest
from tests.linked import report_of

from oomlint.files.workspace import Workspace
from oomlint.fix.apply import fix_all
from oomlint.hardware import parse_hardware
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Example, Severity
from oomlint.linting.testing import example_options
from oomlint.plan.fields import f

SWIFT = (
    "CUDA_VISIBLE_DEVICES=0,1,2,3 \\\n"
    "NPROC_PER_NODE=4 \\\n"
    "# VIDEO_TOTAL_PIXELS=14112000 \\\n"
    "swift sft \\\n"
    "    --model Qwen/Qwen2.5-VL-7B-Instruct\n"
)
RECIPE = (
    "CUDA_VISIBLE_DEVICES=0,1 && torchrun --nnodes 1 --nproc_per_node 2 "
    "recipes/finetuning/finetuning.py --enable_fsdp --use_peft --peft_method lora "
    "--model_name meta-llama/Meta-Llama-3-8B --batch_size_training 1 --quantization 8bit\n"
)


def check(name, text, options=Options()):  # noqa: B008
    files = Workspace(Path("/project"), {name: text.encode()})
    return lint(files, [name], options, explicit=frozenset([name]))


def mend(name, text, options=Options(), *, unsafe=False):  # noqa: B008
    files = Workspace(Path("/project"), {name: text.encode()})
    result = fix_all(files, [name], options, explicit=frozenset([name]), unsafe=unsafe)
    assert not result.report.errors
    return result.texts.get(name, text.encode()).decode()


def names(report):
    return {d.rule.name for d in report.diagnoses}


def test_script_of_another_framework_is_checked_for_habits():
    report = check("train.sh", SWIFT)
    assert names(report) == {"shell-broken-continuation", "vlm-pixels-uncapped"}
    assert mend("train.sh", SWIFT).startswith("# VIDEO_TOTAL_PIXELS=14112000 \\\nCUDA_VISIBLE")


def test_script_that_trains_nothing_is_left_alone():
    assert not check("build.sh", "gcc -o tool \\\n  tool.c\n  --static\n").diagnoses


def test_python_script_without_a_run_is_checked_for_habits():
    text = "try:\n    trainer.train()\nexcept OSError as error:\n    if error.errno == -9:\n        pass\n"
    assert names(check("train.py", text)) == {"sigkill-not-catchable"}


def test_mended_script_may_reveal_its_run():
    text = RECIPE.replace("&& torchrun", "\\\n# two cards\ntorchrun").replace(
        " --quantization 8bit", ""
    )
    mended = mend("train.sh", text)
    assert mended.startswith("# two cards\nCUDA_VISIBLE_DEVICES=0,1 \\\ntorchrun")
    assert len(check("train.sh", mended).runs) == 1


def test_the_whole_command_of_a_known_failure():
    found = {d.rule.name: d.finding for d in check("train.sh", RECIPE).diagnoses}
    assert found["fsdp-int8-flatten"].severity.label == "error"
    assert "Cannot flatten integer dtype tensors" in found["fsdp-int8-flatten"].text
    assert found["shell-env-not-exported"].severity.label == "warning"
    assert "llama-recipes-low-cpu-fsdp" not in found  # quantized as it is read

    plain = RECIPE.replace(" --quantization 8bit", "")
    options = Options(hardware=parse_hardware("2xRTX-3090-24GB"), values={"host.ram_gib": 32})
    found = {d.rule.name: d.finding for d in check("train.sh", plain, options).diagnoses}
    copies = found["llama-recipes-low-cpu-fsdp"]
    assert copies.severity.label == "warning"
    assert "2 × 15.0 GiB" in copies.message
    assert copies.limit_bytes == 32 * 2**30
    mended = mend("train.sh", plain, options)
    assert "--low_cpu_fsdp" in mended
    variables = "ACCELERATE_USE_FSDP=1 FSDP_CPU_RAM_EFFICIENT_LOADING=1"
    # The two cards are all of the machine, so that the list need not reach the command.
    assert mended.startswith(f"CUDA_VISIBLE_DEVICES=0,1 && {variables} torchrun")
    # Nobody knows without a machine that its RAM is too small.
    assert "--low_cpu_fsdp" not in mend("train.sh", plain)


def test_both_settings_are_mended_in_one_go():
    text = mend("train.sh", RECIPE, unsafe=True)
    assert "--quantization 4bit" in text
    assert text.startswith("CUDA_VISIBLE_DEVICES=0,1 torchrun")


def test_a_deepspeed_config_alone_may_be_started_on_any_part_of_the_machine():
    config = '{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": 1}}'
    alone = check("ds.json", config, Options(hardware=parse_hardware("8xH100-80GB"))).diagnoses
    assert "ds-batch-mismatch" not in {d.rule.name for d in alone}


def test_workers_of_ranks_that_nobody_counts_are_worth_a_note_only():
    text = (
        "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 1\nsequence_len: 512\n"
        "deepspeed: ds.json\ndataloader_num_workers: 32\n"
    )
    eight = Options(hardware=parse_hardware("8xA100-80GB"))
    roomy = Options(hardware=eight.hardware, values={f.host.ram_gib: 1024.0})
    for options, severity, is_open in (
        (Options(), Severity.INFO, True),
        (eight, Severity.WARNING, False),
        (roomy, Severity.INFO, False),
    ):
        (found,) = (
            d.finding
            for d in check("a.yaml", text, options).diagnoses
            if d.rule.name == "dataloader-workers-ram"
        )
        assert "32 workers a rank are 256 processes on a node of 8 GPUs" in found.message
        assert found.severity is severity
        assert ("nobody says" in found.text) is is_open


def test_a_loop_of_its_own_leaves_the_batch_to_deepspeed():
    files = {
        "ds.json": b'{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {}}',
        "run.sh": b"torchrun --nproc_per_node 1 run_clm_no_trainer.py --deepspeed {OPTION} ds.json "
        b"--model_name_or_path openai-community/gpt2 --output_dir out --num_train_epochs 1 "
        b"--per_device_train_batch_size 4 --learning_rate 1e-5\n",
    }
    for option, speaks in ((b"--deepspeed_config", False), (b"", True)):
        texts = {name: text.replace(b"{OPTION}", option) for name, text in files.items()}
        found = lint(Workspace(Path("/project"), texts), ["run.sh"], Options()).diagnoses
        assert ("ds-batch-mismatch" in {d.rule.name for d in found}) is speaks


def test_an_engine_that_sleeps_is_no_part_of_what_stands_beside_the_trained_model():
    text = (
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo"
        " data.train_files=t.parquet data.val_files=v.parquet data.train_batch_size=256"
        " data.max_prompt_length=1024 data.max_response_length=2048"
        " actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct"
        " actor_rollout_ref.actor.ppo_mini_batch_size=64"
        " actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"
        " actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=5"
        " actor_rollout_ref.rollout.gpu_memory_utilization=0.95"
        " trainer.n_gpus_per_node=8 trainer.nnodes=1\n"
    )
    report = check("run.sh", text, Options(hardware=parse_hardware("8xA100-40GB")))
    assert report.runs[0].plan.objective.rollout.sleep
    assert "rl-colocated-models-over-budget" not in names(report)


def test_ray_says_otherwise_than_torchrun_that_cards_are_missing():
    ray = (
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.n_gpus_per_node=16 "
        "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct\n"
    )
    torchrun = (
        "torchrun --nproc_per_node=16 -m verl.trainer.fsdp_sft_trainer data.train_files=a "
        "model.partial_pretrain=Qwen/Qwen2.5-7B-Instruct\n"
    )
    openrlhf = (
        "torchrun --nproc_per_node 16 -m openrlhf.cli.train_dpo --pretrain Qwen/Qwen2.5-7B "
        "--micro_train_batch_size 1 --train_batch_size 64 --zero_stage 3 --save_path out --bf16\n"
    )
    eight = Options(hardware=parse_hardware("8xH100-80GB"))
    no_card = "invalid device ordinal"
    for text, word in ((ray, "Ray has no place"), (torchrun, no_card), (openrlhf, no_card)):
        (found,) = [d for d in check("run.sh", text, eight).diagnoses if d.rule.code == "OOM706"]
        assert found.severity is Severity.ERROR
        assert any(word in detail for detail in found.finding.details)


def test_a_config_that_nothing_is_seen_to_read_is_remarked_on():
    """What is set on training arguments that are made already is read by nobody."""
    script = (
        "import argparse\n"
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "parser = argparse.ArgumentParser()\n"
        'parser.add_argument("--deepspeed")\n'
        'parser.add_argument("--output_dir")\n'
        'parser.add_argument("--per_device_train_batch_size")\n'
        'parser.add_argument("--learning_rate")\n'
        'parser.add_argument("--num_train_epochs")\n'
        "args = parser.parse_args()\n"
        'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")\n'
        'targs = TrainingArguments(output_dir="out", per_device_train_batch_size=2{handed})\n'
        "{late}"
        "Trainer(model=model, args=targs, train_dataset=data, data_collator=collate).train()\n"
    )
    handed = script.format(handed=", deepspeed=args.deepspeed", late="")
    late = script.format(handed="", late="targs.deepspeed = args.deepspeed\n")
    for text, severity in ((handed, Severity.ERROR), (late, Severity.INFO)):
        files = {
            "train.py": text.encode(),
            "run.sh": b"deepspeed --num_gpus 2 train.py --deepspeed ds.json --output_dir out"
            b" --per_device_train_batch_size 2 --learning_rate 1e-5 --num_train_epochs 1\n",
            "ds.json": b'{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
        }
        report = lint(Workspace(Path("/project"), files), [*files], Options())
        found = [d for d in report.diagnoses if d.rule.code == "OOM802"]
        assert {d.severity for d in found} == {severity}


def test_what_a_command_hands_on_is_no_default_of_the_trainers():
    """It reaches the Trainer by an option of the script's own."""
    script = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        'parser.add_argument("--steps", type=int, default=16)\n'
        "given = parser.parse_args()\n"
        'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")\n'
        "args = TrainingArguments(\n"
        '    output_dir="out", gradient_accumulation_steps=given.steps, deepspeed="ds.json"\n'
        ")\n"
        "Trainer(model=model, args=args, train_dataset=rows).train()\n"
    )
    files = {
        "train.py": script,
        "run.sh": "deepspeed --num_gpus 2 train.py --steps 32\n",
        "ds.json": '{"gradient_accumulation_steps": 64, "zero_optimization": {"stage": 2}}',
    }
    report = report_of(files, "run.sh", "ds.json")
    (found,) = (d.finding for d in report.diagnoses if d.rule.code == "OOM802")
    assert found.message == "gradient_accumulation_steps is 64, but the trainer passes 32"


def test_a_trainer_that_nobody_read_compares_nothing():
    """The options are those of a Trainer's arguments; a loop of the program's own may take them as well."""
    own = "from helpers import main\n\nmain()\n"
    trainer = (
        "from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
        "(targs,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
        'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")\n'
        "Trainer(model=model, args=targs, train_dataset=data, data_collator=collate).train()\n"
    )
    for program, is_sure in ((trainer, True), (own, False)):
        files = {
            "main.py": program.encode(),
            "run.sh": b"accelerate launch --config_file acc.yaml main.py --output_dir out --model_name_or_path gpt2"
            b" --per_device_train_batch_size 2 --learning_rate 1e-5 --num_train_epochs 1"
            b" --gradient_accumulation_steps 2\n",
            "acc.yaml": b"compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 4\n"
            b"deepspeed_config:\n  gradient_accumulation_steps: 8\n  zero_stage: 2\n",
        }
        report = lint(Workspace(Path("/project"), files), [*files], Options())
        found = [d for d in report.diagnoses if d.rule.code == "OOM804"]
        assert bool(found) is is_sure


def test_ray_kills_nothing_where_torchrun_starts_the_ranks():
    options = (
        " --pretrain Qwen/Qwen2.5-14B-Instruct --reward_pretrain Qwen/Qwen2.5-14B-Instruct"
        " --micro_train_batch_size 1 --train_batch_size 128 --rollout_batch_size 1024"
        " --prompt_max_len 1024 --generate_max_len 2048 --zero_stage 2 --bf16"
        " --gradient_checkpointing --save_path out\n"
    )
    told = Options(hardware=parse_hardware("8xH100-80GB"), values={"host.ram_gib": 180})
    for start, killed in (
        (
            "python3 -m openrlhf.cli.train_ppo_ray --actor_num_gpus_per_node 8 --colocate_all_models",
            True,
        ),
        ("torchrun --nproc_per_node 8 -m openrlhf.cli.train_ppo", False),
    ):
        assert ("ray-host-memory" in names(check("run.sh", start + options, told))) is killed


def test_only_data_that_are_said_to_show_images_are_warned_of_their_pixels():
    line = (
        "swift sft --model Qwen/Qwen2.5-Omni-7B --dataset {} --tuner_type lora --max_length 32768\n"
    )
    found = {
        name: next(
            d
            for d in check("train.sh", line.format(name)).diagnoses
            if d.rule.name == "vlm-pixels-uncapped"
        )
        for name in ("data/train.jsonl", "AI-ModelScope/LaTeX_OCR", "data/my_images.jsonl")
    }
    assert [d.severity for d in found.values()] == [
        Severity.INFO,
        Severity.WARNING,
        Severity.WARNING,
    ]
    (assumed, _, _) = found.values()
    assert "that the data show images at all is assumed" in assumed.finding.details


def test_a_config_by_an_option_counts_where_it_is_given():
    script = (
        "import argparse\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "p = argparse.ArgumentParser()\np.add_argument('--ds', default=None)\nargs = p.parse_args()\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-32B', torch_dtype='bfloat16')\n"
        "given = TrainingArguments(output_dir='o', per_device_train_batch_size=1, deepspeed=args.ds)\n"
        "Trainer(model=model, args=given, train_dataset=data).train()\n"
    )
    config = '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}'

    def said(line):
        files = {"train.py": script, "ds.json": config, "run.sh": line}
        workspace = Workspace(Path("/project"), {n: t.encode() for n, t in files.items()})
        return names(lint(workspace, list(files), Options(hardware=parse_hardware("8xA100-80GB"))))

    assert "zero3-init-after-load" not in said("torchrun --nproc_per_node 8 train.py\n")
    assert "zero3-init-after-load" in said("deepspeed train.py --ds ds.json\n")


def test_a_config_that_is_not_here_may_ask_for_any_stage():
    """Of what a command names and writes itself, say, nothing tells that it is stage 3."""
    script = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-32B', torch_dtype='bfloat16')\n"
        "given = TrainingArguments(output_dir='o', per_device_train_batch_size=1, deepspeed='ds.json')\n"
        "Trainer(model=model, args=given, train_dataset=data).train()\n"
    )
    config = '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}'

    def severity(files):
        texts = {"train.py": script, "run.sh": "python make.py\ndeepspeed train.py\n", **files}
        workspace = Workspace(Path("/project"), {n: t.encode() for n, t in texts.items()})
        machine = example_options(Example({}, hardware="8xA100-80GB", host_memory="256GiB"))
        found = lint(workspace, list(texts), machine).diagnoses
        return [d.severity for d in found if d.rule.code == "OOM405"]

    assert severity({}) == [Severity.INFO]
    assert severity({"run.sh": "echo not here\n"}) == [Severity.INFO]
    assert severity({"ds.json": config}) == [Severity.ERROR]
    small = script.replace("32B", "0.5B")
    assert severity({"ds.json": config, "train.py": small}) == [Severity.INFO]
    unnamed = script.replace("'Qwen/Qwen2.5-32B'", "choose()")
    assert severity({"ds.json": config, "train.py": unnamed}) == [Severity.INFO]


def test_a_job_that_asks_its_scheduler_for_the_cards_is_not_started_on_fewer():
    """Both numbers would have to change, and the job is another machine's."""
    text = (
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks=2\n{asks}"
        "srun torchrun --nnodes 2 --nproc_per_node 8 run_clm.py --do_train --output_dir out "
        "--model_name_or_path Qwen/Qwen2.5-0.5B --per_device_train_batch_size 1 --bf16\n"
    )
    two = Options(hardware=parse_hardware("2x4xRTX-4090-24GB"))
    for asks, has_fix in (("#SBATCH --gpus-per-task=8\n", False), ("", True)):
        report = check("job.sbatch", text.format(asks=asks), two)
        (found,) = [d for d in report.diagnoses if d.rule.code == "OOM706"]
        assert found.severity is Severity.ERROR
        assert (found.fix is not None) is has_fix


_FIRST_ALONE = b"""\
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

accelerator = Accelerator()


def read():
    %s
        data = load()
    return data


model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B", torch_dtype=torch.bfloat16)
how = TrainingArguments("out", per_device_train_batch_size=4, bf16=True)
trainer = Trainer(model=model, args=how, train_dataset=read())
trainer.train()
"""


def test_processes_are_not_started_of_which_only_the_first_has_data():
    line = b"CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py\n"
    for guard, fixable in ((b"if accelerator.is_main_process:", 0), (b"if True:", 1)):
        files = {"run.sh": line, "train.py": _FIRST_ALONE % guard}
        report = lint(Workspace(Path("/project"), files), list(files), Options())
        (found,) = [each for each in report.diagnoses if each.rule.code == "OOM705"]
        assert len(list(found.finding.proposals)) == fixable
        assert ("only the first process makes data" in " ".join(found.finding.details)) != fixable


@pytest.mark.parametrize(
    ("moves", "options", "named"),
    [
        ("model", "", ""),
        ("model.to(args.device)", "--device cuda:1", "--device cuda:1"),
        ("model.to(args.device)", "--device $GPU", "--device cuda:3"),
        ("model.to(args.device)", "", "train.py, which names cuda:2,"),
        ("model.to(torch.device('cuda:1'))", "", "train.py, which names cuda:1,"),
        ("model.to('cuda')", "", ""),
        ("inputs.to('cuda:1')", "", ""),
    ],
)
def test_several_processes_with_a_model_on_one_card_of_its_own(
    moves: str, options: str, named: str
) -> None:
    """Under torchrun each process would load its model there."""
    program = f"""\
import argparse
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda:2")
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", torch_dtype=torch.bfloat16)
{moves}
how = TrainingArguments("out", per_device_train_batch_size=4, bf16=True)
Trainer(model=model, args=how, train_dataset=load_dataset("tatsu-lab/alpaca")["train"]).train()
"""
    line = f"GPU=cuda:3\nexport CUDA_VISIBLE_DEVICES=0,1,2,3\npython train.py {options}\n"
    files = {"train.py": program.encode(), "run.sh": line.encode()}
    report = lint(Workspace(Path("/project"), files), list(files), Options())
    (found,) = [each for each in report.diagnoses if each.rule.code == "OOM705"]
    assert bool(list(found.finding.proposals)) == (not named)
    said = [d for d in found.finding.details if d.startswith("torchrun alone")]
    way = f"torchrun alone is no way out: {named} puts the model of every process on that card"
    assert said == ([way] if named else [])


_OF_TRL = b"""\
from transformers import AutoModelForCausalLM
from trl import %(kind)sConfig, %(kind)sTrainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
%(kind)sTrainer(model, args=%(kind)sConfig(output_dir="out", bf16=True), train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("kind", "required", "severity", "tells"),
    [
        (b"SFT", b"trl==1.14.0", Severity.WARNING, False),
        (b"SFT", b"trl>=1.15", Severity.ERROR, True),
        (b"DPO", b"trl==1.15.1", Severity.ERROR, True),
        (b"Reward", b"trl==1.15.1", Severity.WARNING, False),
        (b"Reward", b"trl==1.16.0", Severity.ERROR, True),
        (b"SFT", b"trl", Severity.WARNING, True),
    ],
)
def test_one_process_for_several_gpus_with_releases_of_trl(
    kind: bytes, required: bytes, severity: Severity, tells: bool
) -> None:
    """TRL 1.15 refuses it, for reward models 1.16; where nobody pins it, it may be either."""
    files = {
        "train.py": _OF_TRL % {b"kind": kind},
        "run.sh": b"CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py\n",
        "requirements.txt": required + b"\n",
    }
    report = lint(Workspace(Path("/project"), files), list(files), Options())
    (found,) = [each for each in report.diagnoses if each.rule.code == "OOM705"]
    assert found.severity is severity
    assert any("with an error" in each for each in found.finding.details) is tells


_SHOWS_ITSELF = b"""\
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "%s"
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", torch_dtype=torch.bfloat16)
how = TrainingArguments("out", per_device_train_batch_size=4, bf16=True)
Trainer(model=model, args=how, train_dataset=load_dataset("tatsu-lab/alpaca")["train"]).train()
"""


@pytest.mark.parametrize(
    ("devices", "severity"),
    [("4,5", Severity.INFO), ("2,3", Severity.WARNING), ("5", None)],
    ids=["none of them there", "there", "one, of whatever machine"],
)
def test_gpus_that_a_program_shows_itself_and_that_are_not_there(
    devices: str, severity: Severity | None
) -> None:
    files = {"train.py": _SHOWS_ITSELF % devices.encode(), "run.sh": b"python train.py\n"}
    options = Options(hardware=parse_hardware("4xRTX-4090-24GB"))
    report = lint(Workspace(Path("/project"), files), list(files), options)
    found = [each for each in report.diagnoses if each.rule.code == "OOM705"]
    assert [each.severity for each in found] == ([] if severity is None else [severity])
    offers = [bool(list(each.finding.proposals)) for each in found]
    assert offers == [severity is Severity.WARNING for _ in found]
    needs = [each.severity for each in report.diagnoses if each.rule.code.startswith("OOM1")]
    assert severity is not Severity.INFO or set(needs) <= {Severity.INFO}


@pytest.mark.parametrize(
    ("devices", "hardware", "severity"),
    [
        ("2,3", "8xA100-80GB", Severity.WARNING),
        ("2,3", None, Severity.WARNING),
        ("5", "8xA100-80GB", Severity.INFO),
        ("5", None, Severity.INFO),
        ("$GPU", "8xA100-80GB", Severity.WARNING),
        ("1,0", "2xA100-80GB", None),
    ],
    ids=["as many", "no machine", "fewer", "fewer, no machine", "not known", "all there are"],
)
def test_gpus_that_no_command_sees(
    devices: str, hardware: str | None, severity: Severity | None
) -> None:
    """With fewer GPUs than it asks for the command would stop: nothing is rewritten to that."""
    # In 8 bits it would stop at something else.
    command = RECIPE.partition("&& ")[2].replace(" --quantization 8bit", "")
    text = f"CUDA_VISIBLE_DEVICES={devices}\necho go\n{command}"
    options = Options(hardware=parse_hardware(hardware) if hardware else None)
    found = {d.rule.name: d.finding for d in check("train.sh", text, options).diagnoses}
    finding = found.get("shell-env-not-exported")
    assert (finding.severity if finding else None) == severity
    is_exported = "export CUDA_VISIBLE_DEVICES" in mend("train.sh", text, options)
    assert is_exported is (severity is Severity.WARNING)


_SHOWN = """\
# accelerate launch {options}src/train.py train.yaml
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
finetuning_type: lora
dataset: alpaca_en_demo
output_dir: out
"""
_EIGHT = b"distributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 8\nmixed_precision: bf16\n"


@pytest.mark.parametrize(
    ("options", "starts", "severity"),
    [
        ("--config_file acc.yaml ", "", Severity.INFO),
        ("--config_file acc.yaml ", "accelerate launch --config_file acc.yaml src/train.py train.yaml\n", Severity.ERROR),
        ("--multi_gpu --num_processes 8 ", "", Severity.ERROR),
    ],
)  # fmt: skip
def test_an_accelerate_config_that_only_a_comment_names_is_remarked_on(options, starts, severity):
    """How many processes it starts is for whoever starts it to say; what the config's own line says is the config's."""
    texts = {"train.yaml": _SHOWN.format(options=options).encode(), "acc.yaml": _EIGHT}
    if starts:
        texts["go.sh"] = starts.encode()
    files = Workspace(Path("/project"), texts)
    four = Options(hardware=parse_hardware("4xRTX-4090-24GB"))
    found = [d for d in lint(files, sorted(texts), four).diagnoses if d.rule.code == "OOM706"]
    assert max(each.severity for each in found) is severity
    said = ["only a comment shows how it is started" in each.finding.details for each in found]
    assert any(said) is (severity is Severity.INFO)


def test_of_what_runs_say_alike_of_a_place_the_severest_speaks():
    """The program of the run that comes first is not here, so that it says the same in a remark."""
    script = (
        b"from accelerate import Accelerator\n"
        b"from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        b'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")\n'
        b'Trainer(model=model, args=TrainingArguments("out"), train_dataset=data).train()\n'
    )
    line = (
        "accelerate launch --config_file acc.yaml {} --model_name_or_path Qwen/Qwen2.5-0.5B"
        " --per_device_train_batch_size 2 --num_train_epochs 1 --learning_rate 1e-5"
        " --output_dir out --bf16 True\n"
    )
    texts = {
        "a.sh": line.format("gone.py").encode(),
        "b.sh": line.format("here.py").encode(),
        "here.py": script,
        "acc.yaml": _EIGHT,
    }
    four = Options(hardware=parse_hardware("4xRTX-4090-24GB"))

    def told(*names):
        report = lint(Workspace(Path("/project"), texts), list(names), four)
        return [d.severity for d in report.diagnoses if d.rule.code == "OOM706"]

    assert told("a.sh") == [Severity.INFO]
    assert told("b.sh") == [Severity.ERROR]
    assert told(*texts) == [Severity.ERROR]


_UNPACKED = """\
import json, sys
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
told = json.load(open(sys.argv[1]))
args = SFTConfig(**rewritten(told), output_dir="out")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
SFTTrainer(model=model, args=args, train_dataset=data).train()
"""


def test_steps_that_nobody_read_are_none_to_count_from() -> None:
    files = {"train.py": _UNPACKED, "run.sh": "deepspeed --num_gpus=8 train.py sft.json\n"}
    found = report_of(files, hardware="4xRTX-4090-24GB").diagnoses
    (told,) = (each for each in found if each.rule.code == "OOM706")
    titles = [proposal.title for proposal in told.finding.proposals]
    assert titles == ["start 4 processes a node, with 1/2 of the global batch that 8 have"]


MERGES = """\
from trl import SFTConfig, SFTTrainer
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained(
    "unsloth/Llama-3.3-70B-Instruct", max_seq_length=2048, load_in_4bit=True
)
model = FastLanguageModel.get_peft_model(model, r=16)
args = SFTConfig(output_dir="out", per_device_train_batch_size=1, max_length=2048)
SFTTrainer(model=model, train_dataset=rows, args=args).train()
model.save_pretrained_merged("merged", tokenizer, save_method="merged_16bit"{share})
"""


@pytest.mark.parametrize(
    ("share", "severity"),
    [
        ("", Severity.INFO),
        (", maximum_memory_usage=0.95", Severity.WARNING),
        (", maximum_memory_usage=0.5", None),
    ],
    ids=["its own default", "nearly all of the card", "half of it"],
)
def test_unsloth_collects_merged_layers_until_its_share_is_taken(share, severity):
    """``save_pretrained_merged`` passes a default of its own, 0.75: of runs that kept it some ended, and some did not."""
    files = {"train.py": MERGES.format(share=share), "requirements.txt": "unsloth==2025.5.6\n"}
    found = report_of(files, "train.py", hardware="1xA100-80GB").diagnoses
    told = [each.severity for each in found if each.rule.code == "OOM413"]
    assert told == ([] if severity is None else [severity])


@pytest.mark.parametrize(
    ("cards", "severity"),
    [("0,1", Severity.INFO), ("1, 0", Severity.INFO), ("0,2", Severity.WARNING), ("2,3", Severity.WARNING)],
)  # fmt: skip
def test_a_list_that_the_processes_take_anyway_is_not_missed(
    cards: str, severity: Severity
) -> None:
    script = f'CUDA_VISIBLE_DEVICES="{cards}"\ntorchrun --nproc_per_node 2 recipes/finetuning/finetuning.py'
    script += (
        " --enable_fsdp --use_peft --peft_method lora --model_name meta-llama/Meta-Llama-3-8B\n"
    )
    report = report_of({"train.sh": script}, hardware="8xA100-80GB")
    found = [d for d in report.diagnoses if d.rule.code == "OOM702"]
    assert [d.severity for d in found] == [severity]


def test_a_list_is_not_missed_by_as_many_processes_as_accelerate_s_config_starts() -> None:
    config = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: {}\n"
    files = {
        "run.sh": "CUDA_VISIBLE_DEVICES=0,1\naccelerate launch --config_file acc.yaml train.py\n",
        "train.py": MERGES.format(share="").split("model.save_pretrained_merged")[0],
    }
    for processes, severity in ((2, Severity.INFO), (1, Severity.WARNING)):
        report = report_of({**files, "acc.yaml": config.format(processes)}, hardware="8xA100-80GB")
        found = [d for d in report.diagnoses if d.rule.code == "OOM702"]
        assert [d.severity for d in found] == [severity]


def test_threads_of_the_cpus_that_are_not_exported_are_a_remark() -> None:
    report = report_of({"train.sh": f"OMP_NUM_THREADS=8\n{RECIPE}"}, hardware="8xA100-80GB")
    found = [d for d in report.diagnoses if "OMP_NUM_THREADS" in d.finding.message]
    assert [d.severity for d in found] == [Severity.INFO]


def test_lines_that_end_in_a_carriage_return_end_the_run_before_it_needs_memory():
    unix = RECIPE.replace(" --enable_fsdp", " \\\n  --enable_fsdp")
    unix = unix.replace(" --use_peft --peft_method lora", "").replace(" --quantization 8bit", "")
    card = Options(hardware=parse_hardware("2xRTX3090"))
    worst = {d.rule.name: d.finding.severity for d in check("train.sh", unix, card).diagnoses}
    report = check("train.sh", unix.replace("\n", "\r\n"), card)
    found = {d.rule.name: d.finding for d in report.diagnoses}
    told = found.pop("shell-broken-continuation")
    assert told.severity is Severity.ERROR
    assert "carriage return" in told.message
    assert worst["gpu-memory-at-risk"] is Severity.ERROR
    of_text = {"env-var-not-exported"}
    assert all(f.severity is Severity.INFO for name, f in found.items() if name not in of_text)


def test_a_carriage_return_behind_the_last_word_of_a_line_is_a_remark():
    report = check("train.sh", RECIPE.replace("\n", "\r\n"))
    (told,) = (d.finding for d in report.diagnoses if d.rule.name == "shell-broken-continuation")
    assert told.severity is Severity.INFO


def test_of_sharding_that_raises_the_peak_nobody_says_that_it_falls():
    """Axolotl's zero2.json keeps the optimizer in host RAM, its zero3.json does not."""
    text = (
        "base_model: Qwen/Qwen2.5-32B\ndatasets:\n  - path: tatsu-lab/alpaca\n    type: alpaca\n"
        "sequence_len: 2048\nmicro_batch_size: 1\ngradient_checkpointing: true\nflash_attention: true\n"
        "bf16: true\ndeepspeed: deepspeed_configs/zero2.json\n"
    )
    report = check("train.yaml", text, Options(hardware=parse_hardware("4xRTX-4090-24GB")))
    (found,) = (d.finding for d in report.diagnoses if d.rule.code == "OOM302")
    assert found.message == "each of 4 GPUs keeps all 61.0 GiB of weights, more than it has"
    assert not any("the peak falls" in each for each in found.details)


_ON_NO_NUMBER = b"""\
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", device_map="cuda")
how = TrainingArguments("out", per_device_train_batch_size=4, bf16=True)
Trainer(model=model, args=how, train_dataset=load_dataset("tatsu-lab/alpaca")["train"]).train()
"""


@pytest.mark.parametrize(
    ("required", "severity"),
    [
        (b"transformers", Severity.INFO),
        (b"transformers==4.57.1", None),
        (b"transformers>=5.0", Severity.WARNING),
    ],
)
def test_what_only_some_releases_of_a_range_do_is_a_remark(
    required: bytes, severity: Severity | None
) -> None:
    """Before transformers 5.0 the Trainer leaves a model on "cuda" where it is, and drives one card."""
    files = {
        "train.py": _ON_NO_NUMBER,
        "run.sh": b"CUDA_VISIBLE_DEVICES=0,1 python train.py\n",
        "requirements.txt": required + b"\n",
    }
    report = lint(Workspace(Path("/project"), files), list(files), Options())
    found = [each for each in report.diagnoses if each.rule.code == "OOM705"]
    assert [each.severity for each in found] == ([] if severity is None else [severity])
    if severity is Severity.INFO:
        assert "before transformers 5.0" in found[0].finding.text


@pytest.mark.parametrize(
    ("other", "text", "is_read"),
    [
        ("label.py", 'import os\ntoken = os.environ["HUGGINGFACE_HUB_TOKEN"]\n', True),
        ("keys.sh", "login --token ${HUGGINGFACE_HUB_TOKEN:-none}\n", True),
        ("keys.yaml", "token: ${oc.env:HUGGINGFACE_HUB_TOKEN}\n", True),
        ("label.py", 'import os\nos.environ["HUGGINGFACE_HUB_TOKEN"] = "a"\n', False),
        ("other.sh", 'export HUGGINGFACE_HUB_TOKEN=""\npython other.py\n', False),
    ],
)
def test_a_variable_that_the_project_reads_is_no_slip(other, text, is_read):
    script = 'export HUGGINGFACE_HUB_TOKEN=""\npython label_${TASK}.py\n'
    files = Workspace(Path("/project"), {"run.sh": script.encode(), other: text.encode()})
    report = lint(files, ["run.sh"], Options(), explicit=frozenset(["run.sh"]))
    assert ("env-var-typo" not in names(report)) == is_read
