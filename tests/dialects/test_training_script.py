"""Python scripts that train through a Trainer: runs, calls, and where fixes go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import link, report_of, run_of

from oomlint.dialects.common.fields import shared
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.fix.edits import make_fix
from oomlint.hardware import parse_hardware
from oomlint.judgement.doubts import doubts
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Proposal, Severity
from oomlint.memory import state_bytes
from oomlint.memory.facts import Facts
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules.launch.multi_gpu_no_launcher import MultiGpuNoLauncher

_TRAINER = """\
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import (
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    Trainer,
    TrainingArguments,
)

MODEL = "meta-llama/Llama-2-7b-hf"

bnb_config = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_compute_dtype=torch.bfloat16,
)
model = AutoModelForCausalLM.from_pretrained(
    MODEL,
    quantization_config=bnb_config,
    torch_dtype=torch.bfloat16,
    device_map="auto",
)
model = prepare_model_for_kbit_training(model)
lora = LoraConfig(r=64, target_modules=["q_proj", "v_proj"])
model = get_peft_model(model, lora)

args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=4,  # as large as fits
    num_train_epochs=1,
    bf16=True,
)
trainer = Trainer(model=model, args=args, train_dataset=data)
trainer.train()
"""

_TRL = """\
from trl import DPOConfig, DPOTrainer

trainer = DPOTrainer(
    model="Qwen/Qwen2.5-7B-Instruct",
    args=DPOConfig(output_dir="out", per_device_train_batch_size=2, max_length=2048),
    train_dataset=data,
)
trainer.train()
"""


def _runs(files: dict[str, str] | str) -> list[Run]:
    files = {"train.py": files} if isinstance(files, str) else files
    return link(files).runs


def _run(files: dict[str, str] | str) -> Run:
    (run,) = _runs(files)
    return run


def test_reads_the_calls_of_one_run() -> None:
    run = _run(_TRAINER)
    plan = run.plan
    assert run.framework == "hf-trainer"
    assert plan.model.id == "meta-llama/Llama-2-7b-hf"
    assert (plan.load.dtype, plan.load.device_map) == ("bf16", "auto")
    assert (plan.quant.method, plan.quant.double, plan.quant.prepares_kbit) == ("bnb4", False, True)
    assert (plan.trainable.method, plan.trainable.r) == ("qlora", 64)
    assert plan.trainable.targets == ("q_proj", "v_proj")
    assert (plan.batch.micro, plan.batch.grad_accum) == (4, 1)
    assert (plan.precision.param, plan.precision.optim_state) == ("nf4", "fp32")
    # prepare_model_for_kbit_training switches checkpointing on by itself.
    assert plan.checkpointing.mode == "full"
    assert plan.parallel.world is None


def test_checkpointing_is_off_without_a_call_that_turns_it_on() -> None:
    script = _TRAINER.replace("model = prepare_model_for_kbit_training(model)\n", "")
    assert _run(script).plan.checkpointing.mode == "none"
    script = script.replace("args = Tr", "model.gradient_checkpointing_enable()\nargs = Tr")
    assert _run(script).plan.checkpointing.mode == "full"


def test_trl_classes_bring_the_defaults_of_trl() -> None:
    run = _run(_TRL)
    plan = run.plan
    assert run.framework == "trl"
    assert plan.model.id == "Qwen/Qwen2.5-7B-Instruct"
    assert (plan.objective.kind, plan.objective.pairs_per_sample) == ("dpo", 2)
    assert plan.objective.ref_model == "copy"
    assert (plan.load.dtype, plan.precision.compute) == ("fp32", "bf16")
    assert plan.checkpointing.mode == "full"
    assert plan.seq.max_len == 2048
    plan = _run(
        _TRL.replace("train_dataset=data,", "train_dataset=data, peft_config=LoraConfig(),")
    ).plan
    assert (plan.trainable.method, plan.objective.ref_model) == ("lora", "shared_adapter_off")


_QUANTIZED = (
    _TRAINER.replace("    Trainer,\n", "")
    .replace("\nMODEL", "from trl import SFTTrainer\n\nMODEL")
    .replace("model = prepare_model_for_kbit_training(model)\n", "")
    .replace("model = get_peft_model(model, lora)\n", "")
    .replace("trainer = Trainer(model", "trainer = SFTTrainer(peft_config=lora, model")
)


@pytest.mark.parametrize(
    ("release", "bits", "amp", "mode", "adapters"),
    [
        ("0.4.1", "4", "bf16", "none", "fp32"),
        ("0.4.1", "8", "bf16", "full", "fp32"),
        ("0.7.1", "4", "bf16", "full", "fp32"),
        ("0.7.2", "4", "bf16", "none", "fp32"),
        ("0.7.6", "4", "bf16", "none", "bf16"),
        ("0.7.6", "4", "fp16", "none", "fp32"),
        ("0.7.6", "8", "bf16", "none", "fp32"),
        ("0.25.1", "4", "fp16", "none", "fp32"),
        ("0.26.0", "4", "fp16", "none", "bf16"),
    ],
)
def test_trl_prepares_and_casts_what_it_adapts_by_its_release(
    release: str, bits: str, amp: str, mode: str, adapters: str
) -> None:
    script = _QUANTIZED.replace("load_in_4bit", f"load_in_{bits}bit")
    script = script.replace("    bf16=True", f"    {amp}=True")
    plan = _run({"train.py": script, "requirements.txt": f"trl=={release}\n"}).plan
    assert plan.checkpointing.mode == mode
    assert plan.trainable.adapter_dtype == adapters


_ARGUMENTS_OF_TRANSFORMERS = """\
from transformers import AutoModelForCausalLM, TrainingArguments
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", dtype="float32")
args = TrainingArguments(output_dir="out", per_device_train_batch_size=1)
trainer = SFTTrainer(model=model, args=args, train_dataset=data)
trainer.train()
"""


def test_transformers_arguments_keep_their_defaults_where_trl_makes_its_own_of_them() -> None:
    """``SFTConfig(**args.to_dict())``: what both classes have is as the first has it, the length is TRL's."""
    plan = _run(_ARGUMENTS_OF_TRANSFORMERS).plan
    assert (plan.checkpointing.mode, plan.precision.compute) == ("none", "fp32")
    assert plan.seq.max_len == 1024
    plan = _run(
        _ARGUMENTS_OF_TRANSFORMERS.replace("args = TrainingArguments", "args = SFTConfig")
    ).plan
    assert (plan.checkpointing.mode, plan.precision.compute) == ("full", "bf16")
    said = _ARGUMENTS_OF_TRANSFORMERS.replace(
        "size=1)", "size=1, bf16=True, gradient_checkpointing=True)"
    )
    plan = _run(said).plan
    assert (plan.checkpointing.mode, plan.precision.compute) == ("full", "bf16")


def test_a_trainer_of_tensorflow_is_none_of_these() -> None:
    script = _TRAINER.replace("    Trainer,", "    TFTrainer,").replace(
        "= Trainer(", "= TFTrainer("
    )
    parsed = script.replace("args = TrainingArguments(", "args = TFTrainingArguments(")
    assert not _runs(parsed)


def test_several_trainers_are_several_runs() -> None:
    runs = _runs(_TRL + _TRL.replace("DPO", "SFT").replace("=2,", "=8,"))
    assert [(r.plan.objective.kind, r.plan.batch.micro) for r in runs] == [("dpo", 2), ("sft", 8)]
    assert len({run.name for run in runs}) == 2


def test_a_config_that_a_function_makes_is_that_config() -> None:
    made = """\
from peft import LoraConfig

def adapter(rank):
    return LoraConfig(r=rank, lora_alpha=2 * rank)

"""
    script = _TRL.replace("train_dataset=data,", "train_dataset=data, peft_config=adapter(32),")
    plan = _run(made + script).plan
    assert (plan.trainable.method, plan.trainable.r, plan.trainable.alpha) == ("lora", 32, 64)
    either = made.replace("    return", "    if rank > 8:\n        return None\n    return")
    assert _run(either + script).plan.trainable.method is None


def test_a_config_of_what_a_helper_lets_through() -> None:
    helper = """\
import inspect
from trl import DPOConfig, DPOTrainer

def config(**given):
    known = inspect.signature(DPOConfig.__init__).parameters
    return DPOConfig(**{name: value for name, value in given.items() if name in known})

"""
    script = _TRL.replace("DPOConfig(out", "config(out").replace(
        "=2048", "=2048, max_target_length=9"
    )
    run = _run(helper + script.partition("\n")[2])
    assert (run.plan.batch.micro, run.plan.seq.max_len) == (2, 2048)
    assert run.level(f.batch.micro) is Level.STATED
    assert not run.stray


def test_an_adapter_that_only_running_tells_stays_unknown() -> None:
    script = _TRL.replace("train_dataset=data,", "train_dataset=data, peft_config=make(),")
    run = _run(script)
    assert run.plan.trainable.method is None
    assert run.plan.objective.ref_model is None


_IN_BRANCHES = """\
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def run(method):
    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
    if method == "wide":
        config = LoraConfig(r=256, lora_dropout=0.05)
        model = get_peft_model(model, config)
    elif method == "narrow":
        config = LoraConfig(r={rank}, lora_dropout=0.05)
        model = get_peft_model(model, config)
    args = TrainingArguments("out", per_device_train_batch_size=1)
    Trainer(model=model, args=args, train_dataset=data).train()

run("wide")
run("narrow")
"""


def test_of_adapters_in_branches_one_counts_where_all_say_the_same() -> None:
    same = _run(_IN_BRANCHES.format(rank=256)).plan.trainable
    assert (same.method, same.r) == ("lora", 256)
    other = _run(_IN_BRANCHES.format(rank=8))
    assert other.plan.trainable.method is None
    assert other.level(f.trainable.method) is Level.UNREAD


def test_a_model_wrapped_in_what_only_running_tells_is_not_trained_whole() -> None:
    run = _run(_TRAINER.replace('LoraConfig(r=64, target_modules=["q_proj", "v_proj"])', "make()"))
    assert run.level(f.trainable.method) is Level.UNREAD


_OWN_COLLATOR = """\
from trl import SFTConfig, SFTTrainer

class Collator:
    max_seq_length = 512

collate = Collator()
trainer = SFTTrainer(
    model="Qwen/Qwen2.5-7B-Instruct",
    args=SFTConfig(
        output_dir="out",
        per_device_train_batch_size=8,
        max_length=4096,
        dataset_kwargs={"skip_prepare_dataset": True},
    ),
    data_collator=collate,
    train_dataset=data,
)
trainer.train()
"""


@pytest.mark.parametrize(
    ("old", "new", "level"),
    [
        ("", "", Level.UNREAD),
        ("        max_length=4096,\n", "", Level.UNREAD),
        ('{"skip_prepare_dataset": True}', "{}", Level.STATED),
        ("class Collator:", "from trl import Collator\nclass Other:", Level.STATED),
    ],
)
def test_a_collator_of_its_own_decides_how_long_samples_are(
    old: str, new: str, level: Level
) -> None:
    run = _run(_OWN_COLLATOR.replace(old, new) if old else _OWN_COLLATOR)
    assert run.level(f.seq.max_len) is level


_PADDED = """\
import argparse
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--longest", type=int, default=768)
args = parser.parse_args()
tokenizer = AutoTokenizer.from_pretrained("google/gemma-2-2b")
model = AutoModelForCausalLM.from_pretrained("google/gemma-2-2b", torch_dtype="bfloat16")

def tokenize(sample):
    return tokenizer(sample["text"], truncation=True, padding="max_length", max_length=args.longest)

data = load_dataset("data", split="train").map(tokenize, batched=True)
trainer = SFTTrainer(model=model, args=SFTConfig(output_dir="out"), train_dataset=data)
trainer.train()
"""


@pytest.mark.parametrize(
    ("old", "new", "length", "pad"),
    [
        ("", "", 768, "max_len"),
        ("default=768", "default=2048", 1024, "longest"),  # the trainer cuts at its own 1,024
        ('padding="max_length", ', "", 1024, "longest"),
        (".map(tokenize,", ".map(other,", 1024, "longest"),
        ("args.longest)", "measured())", 1024, "longest"),
        ('output_dir="out"', 'output_dir="out", packing=True', 1024, "none"),
        ('output_dir="out"', 'output_dir="out", max_length=512', 512, "longest"),
    ],
)
def test_samples_that_a_script_has_padded_stay_as_they_are(
    old: str, new: str, length: int, pad: str
) -> None:
    seq = run_of({"train.py": _PADDED.replace(old, new)}, "train.py").plan.seq
    assert (seq.max_len, seq.pad) == (length, pad)


def test_the_command_line_says_to_how_many_tokens_samples_are_padded() -> None:
    files = {"train.py": _PADDED, "run.sh": "python train.py --longest 512\n"}
    seq = run_of(files, "run.sh").plan.seq
    assert (seq.max_len, seq.pad) == (512, "max_len")


@pytest.mark.parametrize(
    ("kwargs", "is_unread"), [("skip_prepare_dataset", True), ("other", False)]
)
def test_lengths_that_only_running_tells_are_no_more_than_a_note(
    kwargs: str, is_unread: bool
) -> None:
    text = _OWN_COLLATOR.replace("2.5-7B", "2.5-0.5B").replace("size=8", "size=128")
    text = text.replace("skip_prepare_dataset", kwargs)
    files = Workspace(Path("/project"), {"train.py": text.encode()})
    options = Options(hardware=parse_hardware("8xA100-80GB"))
    found = lint(files, ["train.py"], options).diagnoses
    assert found
    assert max(each.severity for each in found) is Severity.INFO
    levels = {each.finding.evidence for each in found if each.finding.resource == "gpu"}
    assert (Level.UNREAD in levels) is is_unread


_WITHOUT_DTYPE = _TRAINER.replace("    torch_dtype=torch.bfloat16,\n", "")
_WHOLE = _WITHOUT_DTYPE.replace("    quantization_config=bnb_config,\n", "")


def test_a_dtype_that_nobody_names_is_assumed() -> None:
    script = _WHOLE
    origin = _run(script).origin("load.dtype")
    assert origin is not None
    assert origin.kind == "assumed"
    old = script.replace("train_dataset=data", "train_dataset=data, tokenizer=tok")
    assert _run(old).plan.load.dtype == "fp32"


def test_beside_quantized_weights_it_is_not_assumed_to_be_wide() -> None:
    assert _run(_WITHOUT_DTYPE).plan.load.dtype == "fp16"
    old = _WITHOUT_DTYPE.replace("train_dataset=data", "train_dataset=data, tokenizer=tok")
    assert _run(old).plan.load.dtype == "fp16"
    kernel = _WITHOUT_DTYPE.replace(
        'device_map="auto"', 'device_map="auto", attn_implementation="flash_attention_2"'
    ).replace("    bf16=True,\n", "")
    pins = "transformers==4.46.1\n"
    quantized = {"train.py": kernel, "requirements.txt": pins}
    assert _run(quantized).cells[shared.stops] is None
    whole = kernel.replace("    quantization_config=bnb_config,\n", "")
    assert _run({**quantized, "train.py": whole}).cells[shared.stops] is not None


@pytest.mark.parametrize(
    ("script", "version", "dtype"),
    [
        (_WHOLE, "4.46.1", "fp32"),
        (_WHOLE, "5.2.0", "fp16"),
        (_WITHOUT_DTYPE, "4.46.1", "fp16"),
        (_WITHOUT_DTYPE, "5.2.0", "fp16"),
    ],
)
def test_a_pinned_version_tells_what_a_dtype_is_that_nobody_names(
    script: str, version: str, dtype: str
) -> None:
    run = _run({"train.py": script, "requirements.txt": f"transformers=={version}\n"})
    origin = run.origin("load.dtype")
    assert origin is not None
    assert (origin.kind, run.plan.load.dtype) == ("default", dtype)


@pytest.mark.parametrize(
    ("changes", "old", "new"),
    [
        (
            {"batch.micro": 2, "batch.grad_accum": 2},
            "    per_device_train_batch_size=4,  # as large as fits\n",
            "    per_device_train_batch_size=2,  # as large as fits\n    gradient_accumulation_steps=2,\n",
        ),
        ({"load.dtype": "fp16"}, "torch_dtype=torch.bfloat16", 'torch_dtype="float16"'),
        (
            {"model.attn_impl": "flash2"},
            "    torch_dtype=torch.bfloat16,\n",
            '    torch_dtype=torch.bfloat16,\n    attn_implementation="flash_attention_2",\n',
        ),
        (
            {"quant.double": True},
            "    load_in_4bit=True,\n",
            "    load_in_4bit=True,\n    bnb_4bit_use_double_quant=True,\n",
        ),
    ],
)
def test_fixes_go_to_the_call_that_owns_the_setting(
    changes: dict[str, Any], old: str, new: str
) -> None:
    text = fixed(_run, _TRAINER, changes)
    assert text == _TRAINER.replace(old, new)
    plan = _run(text).plan
    assert all(plan.get(field) == value for field, value in changes.items())


def test_other_fixes_land_in_the_arguments() -> None:
    script = _TRAINER.replace("model = prepare_model_for_kbit_training(model)\n", "")
    for changes, line in (
        ({"checkpointing.mode": "full"}, "gradient_checkpointing=True"),
        ({"optimizer.kind": "paged_adamw8bit"}, 'optim="paged_adamw_8bit"'),
        ({"save.save_only_model": True}, "save_only_model=True"),
        ({"loss.logits_materialised": "fused"}, "use_liger_kernel=True"),
    ):
        text = fixed(_run, script, changes)
        assert f"    {line},\n" in text
        plan = _run(text).plan
        assert all(plan.get(field) == value for field, value in changes.items())


def test_a_script_without_the_call_cannot_take_the_fix() -> None:
    run = _run(_TRL)
    for wish in (
        {"quant.method": "bnb4"},
        {"trainable.method": "lora"},
        {"parallel.zero.stage": 3},
    ):
        with pytest.raises(CannotEdit):
            run.what_if(wish)


def test_a_launch_line_brings_ranks_to_its_script() -> None:
    run = _run({"run.sh": "torchrun --nproc_per_node 4 train.py\n", "train.py": _TRL})
    assert (run.plan.parallel.world, run.plan.parallel.backend) == (4, "ddp")
    assert run.plan.load.device_map == "none"
    assert set(run.files) == {"train.py", "run.sh"}
    plan = _run({"run.sh": "CUDA_VISIBLE_DEVICES=0,1 python train.py\n", "train.py": _TRL}).plan
    assert plan.parallel.backend == "device_map_pp"
    script = _TRAINER.replace('    device_map="auto",\n', "").replace(
        "    quantization_config=bnb_config,\n", ""
    )
    plan = _run({"run.sh": "CUDA_VISIBLE_DEVICES=0,1 python train.py\n", "train.py": script}).plan
    assert (plan.parallel.backend, plan.parallel.world) == ("dp", 2)


def test_device_map_under_a_launcher_is_kept_for_the_rules() -> None:
    run = _run({"run.sh": "torchrun --nproc_per_node 4 train.py\n", "train.py": _TRAINER})
    assert (run.plan.load.device_map, run.plan.parallel.world) == ("auto", 4)
    assert run.is_explicit("load.device_map")


def test_options_of_the_command_line_win_over_their_defaults() -> None:
    script = (
        "import argparse\n"
        "from trl import SFTConfig, SFTTrainer\n"
        "parser = argparse.ArgumentParser()\n"
        'parser.add_argument("--batch_size", type=int, default=4)\n'
        'parser.add_argument("--model")\n'
        "args = parser.parse_args()\n"
        "trainer = SFTTrainer(model=args.model, train_dataset=data,\n"
        '    args=SFTConfig(output_dir="o", per_device_train_batch_size=args.batch_size))\n'
    )
    assert _run(script).plan.batch.micro == 4
    plan = _run(
        {"train.py": script, "run.sh": "python train.py --batch_size 16 --model m/m\n"}
    ).plan
    assert (plan.batch.micro, plan.model.id) == (16, "m/m")
    plan = _run({"train.py": script, "run.sh": "python train.py --batch_size $BS\n"}).plan
    assert plan.batch.micro is None


def test_an_option_without_a_default_is_what_the_command_line_gives() -> None:
    script = (
        "from dataclasses import dataclass, field\n"
        "from typing import Optional\n"
        "from peft import LoraConfig\n"
        "from transformers import AutoModelForCausalLM, HfArgumentParser\n"
        "from trl import SFTConfig, SFTTrainer\n"
        "@dataclass\n"
        "class More:\n"
        "    rank: Optional[int] = field(default=None)\n"
        "more, args = HfArgumentParser((More, SFTConfig)).parse_args_into_dataclasses()\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')\n"
        "trainer = SFTTrainer(model=model, train_dataset=data, args=args,\n"
        "    peft_config=LoraConfig(r=more.rank, lora_alpha=int(more.rank) * 2))\n"
    )
    shell = (
        "python train.py --output_dir o --per_device_train_batch_size 2 --num_train_epochs 1"
        " --learning_rate 1e-5 --max_length 512 {}\n"
    )
    given = _run({"train.py": script, "run.sh": shell.format("--rank 128")}).plan
    assert (given.trainable.r, given.trainable.alpha) == (128, 256)
    not_given = _run({"train.py": script, "run.sh": shell.format("")}).plan
    assert not_given.trainable.r == 8  # peft's own
    unread = _run({"train.py": script, "run.sh": shell.format("--rank $RANK")}).plan
    assert unread.trainable.r is None


def test_arithmetic_on_options_is_done_with_those_of_the_command_line() -> None:
    script = (
        "import argparse\n"
        "from trl import SFTConfig, SFTTrainer\n"
        "parser = argparse.ArgumentParser()\n"
        'parser.add_argument("--answers", type=int, default=1)\n'
        'parser.add_argument("--prompts", type=int, default=3)\n'
        'parser.add_argument("--model")\n'
        "args = parser.parse_args()\n"
        "trainer = SFTTrainer(model=args.model, train_dataset=data, args=SFTConfig(output_dir='o',\n"
        "    per_device_train_batch_size=2 * args.answers * args.prompts))\n"
    )
    assert _run(script).plan.batch.micro == 6
    said = _run({"train.py": script, "run.sh": "python train.py --answers 4 --model m/m\n"})
    assert said.plan.batch.micro == 24
    open_run = _run({"train.py": script, "run.sh": "python train.py --answers $N --model m/m\n"})
    assert open_run.plan.batch.micro is None


def test_what_a_function_gets_at_its_one_call_is_known() -> None:
    script = (
        "import torch\n"
        "from transformers import AutoModelForCausalLM\n"
        "from trl import SFTConfig, SFTTrainer\n"
        "def load(name, dtype, *, attention):\n"
        "    return AutoModelForCausalLM.from_pretrained(\n"
        "        name, torch_dtype=dtype, attn_implementation=attention)\n"
        "def main():\n"
        '    model = load("m/m", torch.bfloat16, attention="sdpa")\n'
        "    SFTTrainer(model=model, train_dataset=data, args=SFTConfig(output_dir='o')).train()\n"
    )
    run = _run(script)
    assert (run.plan.load.dtype, run.plan.model.attn_impl) == ("bf16", "sdpa")
    twice = _run(script.replace("def main", 'load("n/n", torch.float32, attention="x")\ndef main'))
    assert not twice.is_explicit("load.dtype")


def test_arguments_from_a_command_line_make_no_run_of_their_own() -> None:
    script = (
        "from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser\n"
        "parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))\n"
        "script_args, training_args, model_args = parser.parse_args_and_config()\n"
        "trainer = SFTTrainer(model=model_args.model_name_or_path, args=training_args,\n"
        "    train_dataset=data)\n"
    )
    assert _runs(script) == []
    command = "torchrun --nproc_per_node 2 sft.py --model_name_or_path m/m --dataset_name d\n"
    run = _run({"sft.py": script, "run.sh": command})
    assert (run.plan.model.id, run.plan.parallel.world) == ("m/m", 2)
    assert run.plan.objective.kind == "sft"


_OPTIONS = """\
from dataclasses import dataclass, field
import transformers
from peft import LoraConfig, get_peft_model

@dataclass
class LoraArguments:
    lora_r: int = 64
    lora_target_modules: list = field(default_factory=lambda: ["c_attn", "c_proj"])

@dataclass
class TrainingArguments(transformers.TrainingArguments):
    optim: str = field(default="paged_adamw_32bit")
    model_max_length: int = 8192
    use_lora: bool = False

parser = transformers.HfArgumentParser((TrainingArguments, LoraArguments))
training_args, lora_args = parser.parse_args_into_dataclasses()
model = transformers.AutoModelForCausalLM.from_pretrained(training_args.model)
if training_args.use_lora:
    config = LoraConfig(r=lora_args.lora_r, target_modules=lora_args.lora_target_modules)
    model = get_peft_model(model, config)
data = cut(texts, training_args.model_max_length)
trainer = transformers.Trainer(model=model, args=training_args, train_dataset=data)
"""


def test_dataclasses_of_a_script_give_its_options_their_defaults() -> None:
    command = "torchrun --nproc_per_node 2 train.py --model_name_or_path m/m --output_dir o "
    command += "--per_device_train_batch_size 2 --num_train_epochs 1 --bf16 True"
    plan = _run({"train.py": _OPTIONS, "run.sh": command + "\n"}).plan
    assert (plan.optimizer.kind, plan.seq.max_len) == ("paged_adamw", 8192)
    assert (plan.trainable.method, plan.model.id) == ("full", "m/m")
    command += " --use_lora --model_max_length 512 --lora_r 8\n"
    plan = _run({"train.py": _OPTIONS, "run.sh": command}).plan
    assert (plan.trainable.method, plan.trainable.r, plan.seq.max_len) == ("lora", 8, 512)
    assert plan.trainable.targets == ("c_attn", "c_proj")


def test_weights_that_are_read_before_the_arguments_exist_miss_zero_init() -> None:
    config = (
        '{"zero_optimization": {"stage": 3}, "train_batch_size": "auto", "bf16": {"enabled": true}}'
    )
    early = _TRAINER.replace("    bf16=True,\n", '    bf16=True,\n    deepspeed="ds.json",\n')
    early = early.replace("    quantization_config=bnb_config,\n", "").replace(
        "model = prepare_model_for_kbit_training(model)\n", ""
    )
    assert _run({"train.py": early, "ds.json": config}).plan.load.zero3_init is False
    head, _, call = early.partition("args = TrainingArguments(")
    body, _, tail = call.partition(")\n")
    imports, _, rest = head.partition("bnb_config = ")
    late = f"{imports}args = TrainingArguments({body})\nbnb_config = {rest}{tail}"
    assert _run({"train.py": late, "ds.json": config}).plan.load.zero3_init is True


@pytest.mark.parametrize(
    "script",
    [
        "from lightning import Trainer\ntrainer = Trainer(max_epochs=3)\ntrainer.fit(model)\n",
        "from unsloth import X\nfrom trl import SFTTrainer\nSFTTrainer(model=m, args=SFTConfig())\n",
        "model = AutoModelForCausalLM.from_pretrained('gpt2')\nmodel.generate()\n",
        "x = 1\n",
        "from trl import SFTConfig\nlist_jobs(SFTConfig(output_dir='', run_name='x'))\n",
    ],
)
def test_scripts_of_others_are_left_alone(script: str) -> None:
    assert all(run.framework not in ("trl", "hf-trainer") for run in _runs(script))


_CLASSIFIER = """\
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

model = AutoModelForSequenceClassification.from_pretrained("Qwen/Qwen2.5-7B", num_labels=2)
args = TrainingArguments(output_dir="out", eval_strategy="epoch")
trainer = Trainer(model=model, args=args, train_dataset=a, eval_dataset=b, compute_metrics=f)
"""


def test_a_classifier_has_no_logits_over_the_vocabulary() -> None:
    plan = _run(_CLASSIFIER).plan
    assert (plan.eval.keeps_logits, plan.loss.logits_materialised) == (False, "fused")
    plan = _run(_CLASSIFIER.replace("SequenceClassification", "CausalLM")).plan
    assert (plan.eval.keeps_logits, plan.loss.logits_materialised) == (True, "full")


def test_generated_tokens_are_no_logits() -> None:
    text = _CLASSIFIER.replace("SequenceClassification", "Seq2SeqLM").replace(
        "TrainingArguments", "Seq2SeqTrainingArguments"
    )
    run = _run(
        text.replace('"epoch"', '"epoch", predict_with_generate=True, generation_num_beams=4')
    )
    assert run.plan.eval.keeps_logits is False
    assert not run.stray


@pytest.mark.parametrize("guard", ["if False:", "if 0:", "if True:\n    pass\nelse:"])
def test_what_never_runs_is_not_read(guard: str) -> None:
    later = _TRAINER[_TRAINER.index("args = ") :].replace("_size=4", "_size=64")
    indented = "".join(f"    {line}" for line in later.splitlines(keepends=True))
    run = _run(f"{_TRAINER}{guard}\n{indented}")
    assert run.plan.batch.micro == 4


# -- options that stand in other files -----------------------------------------------------------

_ARGUMENTS = """\
from dataclasses import dataclass
import transformers

@dataclass
class Options(transformers.TrainingArguments):
    optim: str = "adafactor"
    model_max_length: int = 512
    lora_enable: bool = False
"""
_LOADS = """\
import torch
from peft import LoraConfig, get_peft_model
from transformers import HfArgumentParser, Qwen2VLForConditionalGeneration, Trainer
from pkg.arguments import Options

def train(attn_implementation=None):
    (args,) = HfArgumentParser((Options,)).parse_args_into_dataclasses()
    model = Qwen2VLForConditionalGeneration.from_pretrained(
        args.model_name_or_path,
        attn_implementation=attn_implementation,
        dtype=(torch.bfloat16 if args.bf16 else None),
    )
    if args.lora_enable:
        model = get_peft_model(model, LoraConfig(r=8))
    data = cut(texts, args.model_max_length)
    Trainer(model=model, args=args, train_dataset=data).train()

if __name__ == "__main__":
    train(attn_implementation="flash_attention_2")
"""
_LAUNCH = (
    "torchrun --nproc_per_node 2 {} --model_name_or_path Qwen/Qwen2-VL-7B-Instruct --output_dir o"
    " --per_device_train_batch_size 1 --num_train_epochs 1 --learning_rate 1e-5 {}\n"
)


def _launched(script: str, options: str, **more: str) -> Run:
    files = {"run.sh": _LAUNCH.format(script, options), "pkg/run.py": _LOADS}
    files |= {"pkg/arguments.py": _ARGUMENTS, **more}
    return run_of(files, "run.sh")


def test_defaults_of_an_imported_dataclass() -> None:
    plan = _launched("pkg/run.py", "--bf16 True").plan
    assert (plan.optimizer.name, plan.seq.max_len) == ("adafactor", 512)
    assert plan.trainable.method == "full"
    assert (plan.load.dtype, plan.model.attn_impl) == ("bf16", "flash2")


def test_the_command_line_decides_between_two_values() -> None:
    for option, kind in (("--bf16 True", "derived"), ("--fp16 True", "assumed")):
        origin = _launched("pkg/run.py", option).origin("load.dtype")
        assert origin is not None
        assert origin.kind == kind
    assert _launched("pkg/run.py", "--bf16 --lora_enable True").plan.trainable.method == "lora"


def test_a_module_is_a_script_too() -> None:
    assert _launched("-m pkg.run", "--bf16").plan.optimizer.name == "adafactor"


def test_a_script_that_only_starts_another_one() -> None:
    starter = {"mem.py": "from pkg.run import train\n\ntrain()\n"}
    plan = _launched("mem.py", "--bf16", **starter).plan
    assert (plan.optimizer.name, plan.load.dtype) == ("adafactor", "bf16")


@pytest.mark.parametrize("is_declared", [True, False])
def test_options_are_written_where_the_script_declares_them(is_declared: bool) -> None:
    start, end = _LOADS.index("Qwen2VL", _LOADS.index("    model")), _LOADS.index("    if args")
    builds = _LOADS[:start] + "build(args)\n" + _LOADS[end:]
    field = "    attn_implementation: str = None\n" if is_declared else ""
    more = {"pkg/run.py": builds, "pkg/arguments.py": _ARGUMENTS + field}
    run = _launched("pkg/run.py", "--bf16", **more)
    fix = make_fix(run, Proposal.set("t", {"model.attn_impl": "flash2"}), "gpu")
    assert fix is not None
    assert {edit.path for edit in fix.edits} == ({"run.sh"} if is_declared else set())
    assert (fix.reason is None) == is_declared


_CONTINUES = """\
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

base = AutoModelForCausalLM.from_pretrained(
    "meta-llama/Llama-2-7b-hf",
    quantization_config=BitsAndBytesConfig(load_in_4bit=True),
)
model = PeftModel.from_pretrained(base, "sft/adapter"{trainable})
args = TrainingArguments(output_dir="out", per_device_train_batch_size=4, bf16=True)
Trainer(model=model, args=args, train_dataset=data).train()
"""


_SWITCHES_ON = """
for name, parameter in model.named_parameters():
    if "lora" in name:
        parameter.requires_grad = True
"""


@pytest.mark.parametrize(
    ("trainable", "then"),
    [(", is_trainable=True", ""), (", is_trainable=False", ""), ("", ""), ("", _SWITCHES_ON)],
)
def test_of_an_adapter_that_is_loaded_over_a_model_nothing_else_is_trained(
    trainable: str, then: str
) -> None:
    loads, trains = _CONTINUES.format(trainable=trainable).split("args = ")
    (run,) = _runs(f"{loads}{then}args = {trains}")
    assert run.plan.model.id == "meta-llama/Llama-2-7b-hf"
    assert run.plan.trainable.method == "qlora"
    assert run.plan.trainable.r == 8
    assert run.cells.level(f.trainable.r) is Level.ASSUMED


def test_a_model_that_takes_an_adapter_in_is_trained_whole() -> None:
    loads, trains = _CONTINUES.format(trainable="").split("args = ")
    (run,) = _runs(f"{loads}model = model.merge_and_unload()\nargs = {trains}")
    assert run.plan.trainable.method == "full"


_CONTINUES_OR_BEGINS = """\
import argparse
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--adapter", default=None)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", dtype="bfloat16")
lora = LoraConfig(r=64, target_modules="all-linear")
if args.adapter:
    model = PeftModel.from_pretrained(model, args.adapter{trainable})
    lora = None
config = GRPOConfig(output_dir="out", bf16=True)
GRPOTrainer(model=model, args=config, train_dataset=data, peft_config=lora).train()
"""


@pytest.mark.parametrize(
    ("trainable", "option", "method", "level"),
    [
        (", is_trainable=True", "", "lora", Level.STATED),
        (", is_trainable=True", " --adapter out/sft", "lora", Level.ASSUMED),
        ("", " --adapter out/sft", "full", None),
    ],
)
def test_an_adapter_that_an_option_has_loaded_in_the_place_of_a_new_one(
    trainable: str, option: str, method: str, level: Level | None
) -> None:
    script = _CONTINUES_OR_BEGINS.format(trainable=trainable)
    files = {"train.py": script, "run.sh": f"python train.py{option}\n"}
    run = _run(files)
    assert run.plan.trainable.method == method
    if level is not None:
        assert run.plan.trainable.r == 64
        assert run.cells.level(f.trainable.r) is level


@pytest.mark.parametrize(
    ("asked", "runs"),
    [
        ("trainer.train()\ntrainer.evaluate()", 1),
        ("output, _ = trainer.evaluate(tokenized)", 0),
        ("trainer.predict(tokenized)", 0),
        ("run_training(trainer)\ntrainer.evaluate()", 1),
        ("parts = data.train_test_split(test_size=0.05)\ntrainer.evaluate(parts['test'])", 0),
        ("# trainer.train()\ntrainer.evaluate(tokenized)", 0),
    ],
)
def test_a_trainer_that_only_evaluates_trains_nothing(asked: str, runs: int) -> None:
    script = _CONTINUES.format(trainable="").replace("Trainer(model=", "trainer = Trainer(model=")
    script = script.replace(", train_dataset=data).train()", ")\n" + asked)
    launch = "accelerate launch score.py --batch_size 8\n"
    assert len(_runs({"score.py": script, "score.sh": launch})) == runs


_EVALUATES = """\
from dataclasses import dataclass
from typing import Optional
from datasets import load_dataset
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class Own:
    few: Optional[int] = 50
    most: Optional[int] = None

def main():
    (own,) = HfArgumentParser(Own).parse_args_into_dataclasses()
    data = load_dataset("acme/talk")
    eval_dataset = data["validation"]
    {cut}
    args = TrainingArguments("out", per_device_train_batch_size=1, eval_strategy="steps")
    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
    Trainer(
        model=model, args=args, train_dataset=data["train"], eval_dataset=eval_dataset,
        compute_metrics=scores,
    ).train()

main()
"""


@pytest.mark.parametrize(
    ("cut", "samples", "level"),
    [
        ("pass", None, Level.DEFAULT),
        ("eval_dataset = eval_dataset.select(range(200))", 200, Level.DEFAULT),
        ("eval_dataset = eval_dataset.shuffle(1).select(range(min(200, len(data))))", 200, Level.DEFAULT),
        ("eval_dataset = eval_dataset.select(range(own.few))", 50, Level.DEFAULT),
        ("eval_dataset = eval_dataset.select([i for i in range(200)])", 200, Level.DEFAULT),
        ("eval_dataset = eval_dataset.select(list(range(200)))", 200, Level.DEFAULT),
        ("eval_dataset = eval_dataset.select(range(len(data) // 2))", None, Level.DEFAULT),
        ("eval_dataset = eval_dataset.select(range(read_size()))", None, Level.UNREAD),
        ("train = data['train'].select(range(200))", None, Level.DEFAULT),
        ("eval_dataset = load_dataset('acme/talk', split='test[:300]')", 300, Level.DEFAULT),
        ("data = data['train'].train_test_split(test_size=500)", 500, Level.DEFAULT),
        ("data = data['train'].train_test_split(test_size=0.1)", None, Level.DEFAULT),
        (
            "if own.most is not None: eval_dataset = eval_dataset.select(range(own.most))",
            None,
            Level.DEFAULT,
        ),
    ],
)  # fmt: skip
def test_a_set_to_evaluate_that_is_cut(cut: str, samples: int | None, level: Level) -> None:
    run = _run(_EVALUATES.replace("{cut}", cut))
    assert run.plan.eval.samples == samples
    assert run.level(f.eval.samples) is level
    guessed = [doubt.words for doubt in doubts(run) if "evaluates" in doubt.words]
    assert bool(guessed) == (samples is None and level is Level.DEFAULT)


_PUT_TOGETHER = """\
import argparse
import os
from pathlib import Path
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

ROOT = Path(__file__).resolve().parent.parent

def build_options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-name", default="Llama-2-7b-hf")
    parser.add_argument("--batch-size", type=int, default=3)
    return parser.parse_args()

def main():
    options = build_options()
    {again}
    model = AutoModelForCausalLM.from_pretrained({path})
    args = TrainingArguments("out", per_device_train_batch_size=options.batch_size)
    Trainer(model=model, args=args, train_dataset=data).train()

main()
"""


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ('str(ROOT / "models" / "Llama-2-7b-hf")', "models/Llama-2-7b-hf"),
        ('ROOT / "models" / options.model_name', "models/Llama-2-7b-hf"),
        ('os.path.join("/data", options.model_name)', "/data/Llama-2-7b-hf"),
        ('Path("/data", "Llama-2-7b-hf").as_posix()', "/data/Llama-2-7b-hf"),
        ('os.path.join(os.path.dirname(os.path.abspath(__file__)), "m")', "src/m"),
        ('Path(__file__).parents[1] / "m"', "m"),
        ('find(ROOT) / "m"', None),
    ],
)
def test_a_path_that_the_script_puts_together(path: str, model: str | None) -> None:
    """Also the parser's own function may be called anything."""
    script = _PUT_TOGETHER.replace("{path}", path)
    run = _run({"src/train.py": script.replace("{again}", "")})
    assert run.plan.model.id == model
    assert run.plan.batch.micro == 3


@pytest.mark.parametrize(
    ("again", "micro"), [("options = build_options()", 3), ("options = read(options)", None)]
)
def test_options_that_are_parsed_again(again: str, micro: int | None) -> None:
    script = _PUT_TOGETHER.replace("{path}", "'Llama-2-7b-hf'").replace("{again}", again)
    assert _run({"src/train.py": script}).cells[f.batch.micro] == micro


_OF_TWO = """\
from peft import LoraConfig, {other}, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
if is_known(model):
    config = LoraConfig(r=32, target_modules=["q_proj", "v_proj"])
else:
    config = {other}(r={rank})
model = get_peft_model(model, config)
args = TrainingArguments("out", per_device_train_batch_size=1)
Trainer(model=model, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("other", "rank", "method", "r"),
    [
        ("LoraConfig", 32, "lora", 32),
        ("LoraConfig", 256, None, None),
        ("LoraConfig", "pick()", None, None),
    ],
)
def test_adapters_of_one_rank(other: str, rank: object, method: str | None, r: int | None) -> None:
    """Whichever of them the model gets, what is trained is as large but for the modules."""
    trained = _run(_OF_TWO.format(other=other, rank=rank)).plan.trainable
    assert (trained.method, trained.r) == (method, r)


_GOES_ON = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

resumed = find_last()
if resumed:
    model = AutoModelForCausalLM.from_pretrained(resumed)
else:
    model = AutoModelForCausalLM.from_pretrained("Llama-2-7b-hf")
args = TrainingArguments("out", per_device_train_batch_size=1)
Trainer(model=model, args=args, train_dataset=data).train()
"""


def test_the_branch_that_names_the_model_counts() -> None:
    """The other one goes on from a checkpoint of it."""
    assert _run(_GOES_ON).plan.model.id == "Llama-2-7b-hf"


# -- switches of the script ----------------------------------------------------------------------

_SWITCHES = """\
from dataclasses import dataclass
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class Own:
    use_int8: bool = False
    adapt: bool = False
    bits: int = 4
    use_qlora: bool = False

def main():
    own, args = HfArgumentParser((Own, TrainingArguments)).parse_args_into_dataclasses()
    if own.use_int8:
        model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, load_in_8bit=True)
    else:
        model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)
    if own.adapt and args.bf16:
        model = get_peft_model(model, LoraConfig(r=4))
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    Trainer(model=model, args=args, train_dataset=data).train()

main()
"""


@pytest.mark.parametrize(
    ("options", "method", "checkpointing"),
    [
        ("--bf16", "full", "none"),
        ("--bf16 --adapt True", "lora", "none"),
        ("--adapt True", "full", "none"),
        ("--bf16 --gradient_checkpointing", "full", "full"),
    ],
)
def test_switches_decide_which_calls_are_reached(
    options: str, method: str, checkpointing: str
) -> None:
    plan = _launched("own.py", options, **{"own.py": _SWITCHES}).plan
    assert (plan.trainable.method, plan.checkpointing.mode) == (method, checkpointing)
    assert plan.quant.method == "none"


def test_options_of_ones_own_beside_trls() -> None:
    options = "--train_file x.json --model_max_length 2048"
    run = _launched("sft_train.py", options, **{"sft_train.py": _SWITCHES})
    assert not any(stray.block.table.refuses(stray.path) for stray in run.stray)
    assert run.plan.seq.max_len == 2048
    (stray,) = _launched("trl/scripts/sft.py", "--trian_file x").stray
    assert stray.block.table.refuses(stray.path)


def test_a_default_that_no_call_uses_means_nothing() -> None:
    script = _SWITCHES.replace("    if own.adapt and args.bf16:\n    ", "").replace(
        "use_qlora: bool = False", "load_in_4bit: bool = True\n    use_lora: bool = False"
    )
    assert "    model = get_peft_model" in script
    plan = _launched("own.py", "--bf16", **{"own.py": script}).plan
    assert (plan.quant.method, plan.trainable.method) == ("none", "lora")


@pytest.mark.parametrize(
    ("calls", "length", "pad"),
    [
        ("tokenizer(x, truncation=True, max_length=1024)", 1024, "longest"),
        ("self.tokenizer(x, truncation=True, max_length=256, padding='max_length')", 256, "max_len"),
        # The longest samples set the peak; an answered prompt is none.
        ("tokenizer(x, truncation=True, max_length=64); tokenizer(y, truncation=True, max_length=512)", 512, "longest"),
        ("tokenizer(x, truncation=True, max_length=64, return_tensors='pt')", None, "longest"),
        ("tokenizer(x, truncation=True, max_length=64, return_tensors=None)", 64, "longest"),
        ("tokenizer(x, truncation=True, max_length=cutoff_len, return_tensors=None)", 128, "longest"),
        # Nothing is cut, or to what only running tells.
        ("tokenizer(x, max_length=64)", None, "longest"),
        ("tokenizer(x, truncation=True)", None, "longest"),
        ("tokenizer(x, truncation=True, max_length=n)", None, "longest"),
        ("tokenizer(x, truncation=n > 0, max_length=64)", None, "longest"),
    ],
)  # fmt: skip
def test_the_tokenizer_says_how_long_samples_are(calls: str, length: int | None, pad: str) -> None:
    text = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "cutoff_len = 128\n"
        f"def tokenize(x, y, n):\n    return {calls.replace('; ', ', ')}\n"
        "m = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')\n"
        "a = TrainingArguments(output_dir='o', per_device_train_batch_size=4)\n"
        "Trainer(model=m, args=a, train_dataset=d.map(tokenize)).train()\n"
    )
    plan = _run({"train.py": text}).plan
    assert (plan.seq.max_len, plan.seq.pad) == (length, pad)


@pytest.mark.parametrize(
    ("mapped", "length"),
    [
        ("lambda x: tok(x['t'], truncation=True, max_length=a.max_len)", 1500),
        ("lambda x: tok.apply_chat_template(x['m'], truncation=True, max_length=777)", 777),
        # Not followed: what the command calls it.
        ("lambda x: other(x['t'], truncation=True, max_length=64)", 1500),
    ],
)
def test_a_tokenizer_by_any_name_cuts_samples(mapped: str, length: int) -> None:
    text = (
        "import argparse\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments\n"
        "p = argparse.ArgumentParser()\n"
        "p.add_argument('--max_len', type=int, default=2048)\n"
        "a = p.parse_args()\n"
        "tok = AutoTokenizer.from_pretrained('Qwen/Qwen2.5-0.5B')\n"
        "m = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')\n"
        f"data = load_from_disk('d').map({mapped})\n"
        "args = TrainingArguments(output_dir='o', per_device_train_batch_size=4)\n"
        "Trainer(model=m, args=args, train_dataset=data).train()\n"
    )
    files = {"train.py": text, "run.sh": "python train.py --max_len 1500\n"}
    assert _run(files).plan.seq.max_len == length


def test_a_lambda_that_a_data_set_is_mapped_by_cuts_samples() -> None:
    text = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "m = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')\n"
        "d = load_from_disk('d').map(lambda x: tokenizer(x['t'], truncation=True, max_length=20000))\n"
        "a = TrainingArguments(output_dir='o', per_device_train_batch_size=4)\n"
        "Trainer(model=m, args=a, train_dataset=d).train()\n"
    )
    assert _run({"train.py": text}).plan.seq.max_len == 20000
    # Whether another lambda ever runs is not said.
    other = text.replace(".map(lambda", ".filter(lambda")
    assert _run({"train.py": other}).plan.seq.max_len is None


def test_a_trainer_that_the_script_defines_is_not_trls_by_its_name() -> None:
    text = (
        "from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments\n"
        "class RewardTrainer(Trainer):\n    pass\n"
        "def tokenize(x):\n    return tokenizer(x, truncation=True, max_length=512)\n"
        "m = AutoModelForSequenceClassification.from_pretrained('google/gemma-2b', num_labels=1)\n"
        "a = TrainingArguments(output_dir='o', eval_strategy='steps')\n"
        "RewardTrainer(model=m, args=a, compute_metrics=f).train()\n"
    )
    run = _run({"train.py": text})
    assert run.framework == "hf-trainer"
    assert (run.plan.eval.keeps_logits, run.plan.checkpointing.mode) == (False, "none")
    assert run.plan.seq.max_len == 512
    theirs = text.replace(
        "class RewardTrainer(Trainer):\n    pass", "from trl import RewardTrainer"
    )
    run = _run({"train.py": theirs})
    assert (run.framework, run.plan.eval.keeps_logits) == ("trl", False)


_ASKED = "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: a/b\nload_in_4bit: true\nuse_peft: false\nper_device_train_batch_size: 1\noutput_dir: out\n"
_LOADS_PLAINLY = (
    "from transformers import AutoModelForCausalLM\n"
    "from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser\n"
    "parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))\n"
    "script, training, args = parser.parse_args_and_config()\n"
    "model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path{})\n"
    "SFTTrainer(model=model, args=training).train()\n"
)


@pytest.mark.parametrize(
    ("given", "method"),
    [
        ("", "none"),
        (", trust_remote_code=True", "none"),
        (", quantization_config=get_quantization_config(args)", "bnb4"),
        (", **model_kwargs", "bnb4"),
    ],
)
def test_quantization_that_is_asked_for_and_never_done(given: str, method: str) -> None:
    files = {
        "run.sh": "accelerate launch own.py --config sft.yaml\n",
        "sft.yaml": _ASKED,
        "own.py": _LOADS_PLAINLY.format(given),
    }
    (run,) = link(files).runs
    assert (run.plan.quant.method or "none") == method


def test_quantization_of_a_config_that_only_a_sibling_is_started_like() -> None:
    files = {
        "run.sh": "accelerate launch own.py --config recipes/other.yaml\n",
        "recipes/sft.yaml": _ASKED,
        "recipes/other.yaml": _ASKED.replace("load_in_4bit: true\n", ""),
        "own.py": _LOADS_PLAINLY.format(""),
    }
    found = report_of(files, "recipes/sft.yaml").diagnoses
    assert "OOM816" not in {each.finding.rule.code for each in found}


_BY_RANKS = """\
import os
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

world_size = int(os.environ.get("WORLD_SIZE", 1))
{choice}
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf", device_map=device_map)
args = TrainingArguments(output_dir="out", per_device_train_batch_size=1)
Trainer(model=model, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    "choice",
    [
        (
            'device_map = "auto"\nddp = world_size != 1\nif ddp:\n'
            '    device_map = {"": int(os.environ.get("LOCAL_RANK") or 0)}'
        ),
        'device_map = {"": int(os.environ.get("LOCAL_RANK") or 0)} if world_size > 1 else "auto"',
    ],
)
def test_the_number_of_processes_places_the_model(choice: str) -> None:
    script = _BY_RANKS.format(choice=choice)
    for line, placed in (("python a.py", "auto"), ("torchrun --nproc_per_node 4 a.py", "single")):
        run = run_of({"run.sh": f"{line}\n", "a.py": script})
        assert run.plan.load.device_map == placed


_BY_OPTION = """\
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--num_gpus", type=int, default=1)
args = parser.parse_args()
device_map = "auto" if args.num_gpus > 1 else {"": 0}
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf", device_map=device_map)
arguments = TrainingArguments(output_dir="out", per_device_train_batch_size=1)
Trainer(model=model, args=arguments, train_dataset=data).train()
"""


@pytest.mark.parametrize(("flag", "placed"), [(" --num_gpus 2", "auto"), ("", "single")])
def test_a_comparison_with_an_option_places_the_model(flag: str, placed: str) -> None:
    line = f"CUDA_VISIBLE_DEVICES=0,1 python a.py{flag}\n"
    run = run_of({"run.sh": line, "a.py": _BY_OPTION})
    assert run.plan.load.device_map == placed
    assert run.plan.parallel.backend == ("device_map_pp" if placed == "auto" else "dp")


def test_a_placement_that_nobody_reads_is_no_data_parallel() -> None:
    script = _BY_OPTION.replace("args.num_gpus > 1", "torch.cuda.device_count() > 1")
    run = run_of({"run.sh": "CUDA_VISIBLE_DEVICES=0,1 python a.py\n", "a.py": script})
    assert run.level(f.parallel.backend) is Level.UNREAD
    (finding,) = MultiGpuNoLauncher().check(run)
    assert finding.severity is Severity.INFO


@pytest.mark.parametrize(("gpus", "stages"), [(None, 1), (8, 8)])
def test_a_script_that_spreads_its_model_is_one_process(gpus: int | None, stages: int) -> None:
    hardware = None if gpus is None else f"{gpus}xA100-80GB"
    run = run_of({"train.py": _TRAINER}, hardware=hardware)
    assert run.plan.parallel.backend == "device_map_pp"
    assert Facts(run.placed.plan).ranks.pp == stages
    assert Facts(run.placed.plan).ranks.processes == 1


_OF_OWN = """
from transformers import HfArgumentParser, TrainingArguments
from models.reward import RewardConfig, RewardModel, RewardModelTrainer as Trainer, compute_metrics
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
model = RewardModel(args=args, config=RewardConfig(backbone="a"))
Trainer(model=model, args=args, compute_metrics=compute_metrics, train_dataset=a).train()
"""
_LINE = (
    "torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-7B --output_dir out "
    "--per_device_train_batch_size 4 --do_eval --num_train_epochs 1 --save_strategy epoch\n"
)


def test_model_of_a_class_of_ones_own_returns_what_nobody_knows() -> None:
    """Its RewardConfig is none of TRL's, and what evaluation keeps of it need be no logits."""
    run = run_of({"run.sh": _LINE, "train.py": _OF_OWN})
    assert run.dialect.name == "hf-trainer"
    assert run.level(f.eval.keeps_logits) is Level.UNREAD
    known = _OF_OWN.replace('RewardModel(args=args, config=RewardConfig(backbone="a"))', _LOADED)
    assert run_of({"run.sh": _LINE, "train.py": known}).plan.eval.keeps_logits is True


_LOADED = "transformers.AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')"


def test_an_option_that_decides_between_computed_values_follows_the_command_line() -> None:
    script = (
        "import argparse\n"
        "from trl import SFTConfig, SFTTrainer\n"
        "parser = argparse.ArgumentParser()\n"
        'parser.add_argument("--answers", type=int, default=4)\n'
        'parser.add_argument("--batch", type=int, default=None)\n'
        'parser.add_argument("--model")\n'
        "args = parser.parse_args()\n"
        "trainer = SFTTrainer(model=args.model, train_dataset=data, args=SFTConfig(output_dir='o',\n"
        "    per_device_train_batch_size=args.batch if args.batch else args.answers * 4))\n"
    )

    def micro(options: str) -> int | None:
        files = {"train.py": script, "run.sh": f"python train.py --model m/m {options}\n"}
        return _run(files).plan.batch.micro

    assert micro("") == 16
    assert micro("--answers 2") == 8
    assert micro("--answers 2 --batch 5") == 5


def test_a_model_that_a_function_of_the_projects_own_loads_is_the_one_on_the_line() -> None:
    """However few the options of the line are."""
    script = """\
import argparse
from transformers import Trainer, TrainingArguments
from .utils import load_policy
parser = argparse.ArgumentParser()
parser.add_argument("--model_name_or_path")
args = parser.parse_args()
model = load_policy(args.model_name_or_path)
targs = TrainingArguments(output_dir="o", per_device_train_batch_size=2)
Trainer(model=model, args=targs).train()
"""
    files = {"train.py": script, "run.sh": "python train.py --model_name_or_path Qwen/Qwen2.5-7B\n"}
    assert _run(files).plan.model.id == "Qwen/Qwen2.5-7B"


@pytest.mark.parametrize(
    ("device", "pinned", "backend"),
    [("cuda", "4.57.1", "none"), ("cuda", "5.1.0", "dp"), ("cuda:0", "4.57.1", "dp")],
)
def test_a_device_without_a_number_keeps_one_process_on_one_gpu(
    device: str, pinned: str, backend: str
) -> None:
    """The Trainer compares it with the first GPU, and takes a model elsewhere for one that is spread already."""
    script = _BY_OPTION.replace('"auto" if args.num_gpus > 1 else {"": 0}', f'"{device}"')
    files = {
        "run.sh": "CUDA_VISIBLE_DEVICES=0,1 python a.py\n",
        "a.py": script,
        "requirements.txt": f"transformers=={pinned}\n",
    }
    run = run_of(files)
    assert (run.plan.parallel.backend or "none") == backend
    assert run.plan.parallel.world == (2 if backend == "dp" else 1)


def test_a_device_in_trl_s_arguments_is_read() -> None:
    script = """\
import torch
from trl import RewardConfig, RewardTrainer
arguments = RewardConfig(output_dir="out", model_init_kwargs={"device_map": place()})
RewardTrainer(model="Qwen/Qwen2.5-7B", args=arguments, train_dataset=data).train()
"""
    run = run_of({"run.sh": "CUDA_VISIBLE_DEVICES=0,1 python a.py\n", "a.py": script})
    assert run.level(f.parallel.backend) is Level.UNREAD


_BY_HELPER = """\
from trl import SFTConfig, SFTTrainer
from common import load
model, tokenizer = load("Qwen/Qwen2.5-7B")
arguments = SFTConfig(output_dir="out", per_device_train_batch_size=2)
SFTTrainer(model=model, args=arguments, train_dataset=data).train()
"""
_PLAIN = """\
from transformers import Trainer, TrainingArguments
from common import load
model, tokenizer = load("Qwen/Qwen2.5-7B")
arguments = TrainingArguments(output_dir="out", per_device_train_batch_size=2)
Trainer(model=model, args=arguments, train_dataset=data).train()
"""
_HELPER = """\
def load(name):
    from transformers import AutoModelForCausalLM
    settings = {"device_map": "auto"}
    return AutoModelForCausalLM.from_pretrained(name, **settings), None
"""
_UNSLOTH_HELPER = """\
def load(name):
    from unsloth import FastLanguageModel
    return FastLanguageModel.from_pretrained(name)
"""
_TWO_LOADS = """\
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
def small(name):
    return AutoModelForCausalLM.from_pretrained(name), None
def large(name):
    return AutoModelForCausalLM.from_pretrained(name, device_map="auto"), None
model, tokenizer = small("Qwen/Qwen2.5-7B") if tries else large("Qwen/Qwen2.5-7B")
arguments = SFTConfig(output_dir="out", per_device_train_batch_size=2)
SFTTrainer(model=model, args=arguments, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("script", "helper", "severities", "is_doubted"),
    [
        (_BY_HELPER, _HELPER.replace("{", "read() if name else {"), [Severity.INFO], True),
        (_PLAIN, _HELPER.replace("{", "read() if name else {"), [Severity.INFO], True),
        (_PLAIN, _HELPER, [], False),
        (_PLAIN, _HELPER.replace('"device_map": "auto"', ""), [Severity.WARNING], False),
        (_BY_HELPER, _UNSLOTH_HELPER, [], False),
        (_TWO_LOADS, "", [Severity.INFO], True),
        (_TWO_LOADS.replace(', device_map="auto"', ""), "", [Severity.WARNING], False),
    ],
    ids=["a helper's settings", "of transformers' trainer", "a helper's map", "no map", "unsloth in a helper", "one of two loads", "no map in two"],
)  # fmt: skip
def test_a_load_that_is_not_followed_may_spread_the_model(
    script: str, helper: str, severities: list[Severity], is_doubted: bool
) -> None:
    line = "CUDA_VISIBLE_DEVICES=0,1 python a.py\n"
    run = run_of({"run.sh": line, "a.py": script, "common.py": helper}, "run.sh")
    found = [] if run.plan.parallel.backend != "dp" else list(MultiGpuNoLauncher().check(run))
    assert [each.severity for each in found] == severities
    assert (run.level(f.load.device_map) is Level.UNREAD) is is_doubted


def test_unsloth_in_a_helper_drives_one_card() -> None:
    """One that Unsloth patches, whatever the release of TRL loads by itself."""
    files = {"a.py": _BY_HELPER, "common.py": _UNSLOTH_HELPER, "requirements.txt": "trl==0.20.0\n"}
    run = run_of({"run.sh": "CUDA_VISIBLE_DEVICES=0,1 python a.py\n", **files}, "run.sh")
    assert (run.plan.parallel.backend, run.plan.parallel.world) != ("dp", 2)
    assert run.plan.parallel.gpus_per_node == 1


def test_a_reward_model_gathers_no_logits() -> None:
    script = """\
from trl import RewardConfig, RewardTrainer
arguments = RewardConfig(output_dir="out", model_init_kwargs={"device_map": {"": 0}})
RewardTrainer(model="Qwen/Qwen2.5-7B", args=arguments, train_dataset=data).train()
"""
    run = run_of({"run.sh": "CUDA_VISIBLE_DEVICES=0,1 python a.py\n", "a.py": script})
    (finding,) = MultiGpuNoLauncher().check(run)
    assert not any("logits" in detail for detail in finding.details)


def test_no_logits_are_said_to_be_gathered_of_a_model_that_classifies() -> None:
    text = """\
from transformers import AutoModelFor{0}, Trainer, TrainingArguments
model = AutoModelFor{0}.from_pretrained("Qwen/Qwen2.5-7B")
args = TrainingArguments(output_dir="o", per_device_train_batch_size=2)
Trainer(model=model, args=args).train()
"""
    line = "CUDA_VISIBLE_DEVICES=0,1 python train.py\n"
    for kind, gathers in (("CausalLM", True), ("SequenceClassification", False)):
        (finding,) = MultiGpuNoLauncher().check(
            _run({"train.py": text.format(kind), "run.sh": line})
        )
        assert any("logits" in detail for detail in finding.details) is gathers


# -- what a script settles by itself ---------------------------------------------------------------

_SWITCHED = """\
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForImageTextToText, Trainer, TrainingArguments

USE_LORA = False
USE_QLORA = False
if USE_QLORA or USE_LORA:
    model = AutoModelForImageTextToText.from_pretrained("HuggingFaceTB/SmolVLM2-2.2B-Instruct", device_map="auto")
    model = get_peft_model(model, LoraConfig(r=8))
else:
    model = AutoModelForImageTextToText.from_pretrained(
        "HuggingFaceTB/SmolVLM2-2.2B-Instruct", dtype=torch.bfloat16
    )
    for param in model.model.vision_model.parameters():
        param.requires_grad = False
args = TrainingArguments(output_dir="out", per_device_train_batch_size=2, bf16=True)
Trainer(model=model, args=args, train_dataset=data).train()
"""


def test_a_condition_upon_constants_is_settled() -> None:
    plan = _run(_SWITCHED).plan
    assert (plan.load.dtype, plan.trainable.method, plan.load.device_map) == ("bf16", "full", None)
    plan = _run(_SWITCHED.replace("USE_LORA = False", "USE_LORA = True")).plan
    assert (plan.trainable.method, plan.load.device_map) == ("lora", "auto")


def test_a_name_that_is_bound_again_settles_nothing() -> None:
    again = _SWITCHED.replace("if USE_Q", "USE_LORA = ask()\nif USE_Q")
    assert _run(again).plan.model.vision.freeze_tower is None


@pytest.mark.parametrize(
    "freezes",
    [
        "for param in model.model.vision_model.parameters():\n        param.requires_grad = False",
        "for _, p in model.visual.named_parameters():\n        p.requires_grad_(False)",
        "model.get_vision_tower().requires_grad_(False)",
    ],
)
def test_a_vision_tower_that_the_script_freezes(freezes: str) -> None:
    loop = _SWITCHED[_SWITCHED.index("for param") : _SWITCHED.index("args = ")]
    plan = _run(_SWITCHED.replace(loop, f"{freezes}\n")).plan
    assert plan.model.vision.freeze_tower is True


@pytest.mark.parametrize(
    "left",
    [
        "for param in model.model.vision_model.parameters():\n        param.requires_grad = True",
        "for p in model.visual.parameters():\n        if ask():\n            p.requires_grad = False",
        "if ask():\n        model.visual.requires_grad_(False)",
        "model.lm_head.requires_grad_(False)",
    ],
)
def test_a_vision_tower_that_may_be_trained(left: str) -> None:
    loop = _SWITCHED[_SWITCHED.index("for param") : _SWITCHED.index("args = ")]
    plan = _run(_SWITCHED.replace(loop, f"{left}\n")).plan
    assert plan.model.vision.freeze_tower is None


@pytest.mark.parametrize(("objective", "logits"), [("GRPO", "fused"), ("RLOO", "completion_only")])
def test_rloo_takes_whole_logits_whatever_liger_patches(objective: str, logits: str) -> None:
    script = (
        f"from trl import {objective}Config, {objective}Trainer\n"
        f"args = {objective}Config(output_dir='o', use_liger_kernel=True, num_generations=2)\n"
        f"trainer = {objective}Trainer(model='Qwen/Qwen2.5-0.5B', args=args, reward_funcs=score,\n"
        "    train_dataset=data)\ntrainer.train()\n"
    )
    # The last release before TRL computes the head tile by tile.
    files = {"train.py": script, "requirements.txt": "trl==1.14.2\n"}
    loss = _run(files).plan.loss
    assert (loss.logits_materialised, loss.liger.flce) == (logits, objective == "GRPO")


_DATASETS = """\
import fire
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
from own_data import PairDataset, TextDataset

def train(cutoff_len: int = 512):
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
    tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
    texts = TextDataset("a.json", tokenizer=tokenizer, max_len=cutoff_len)
    pairs = PairDataset("b.json", tokenizer=tokenizer, max_len={other})
    args = TrainingArguments(output_dir="o", per_device_train_batch_size=8)
    Trainer(model=model, args=args, train_dataset=texts + pairs).train()

fire.Fire(train)
"""


@pytest.mark.parametrize(("other", "length"), [("256", 512), ("1024", 1024), ("found()", None)])
def test_datasets_of_the_projects_own_say_how_long_samples_are(
    other: str, length: int | None
) -> None:
    assert _run(_DATASETS.replace("{other}", other)).plan.seq.max_len == length


@pytest.mark.parametrize(
    ("length", "level", "told"),
    [("128", Level.STATED, 128), ("found()", Level.UNREAD, None)],
)
def test_a_dataset_of_the_projects_own_may_take_the_length_by_its_place(
    length: str, level: Level, told: int | None
) -> None:
    script = (
        "from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments\n"
        "from own_data import CustomDataset\n"
        f"SEQ_LENGTH = {length}\n"
        'tokenizer = AutoTokenizer.from_pretrained("gpt2-large")\n'
        'model = AutoModelForCausalLM.from_pretrained("gpt2-large")\n'
        'data = CustomDataset("a.txt", SEQ_LENGTH, tokenizer=tokenizer, random_chunk=True)\n'
        'args = TrainingArguments(output_dir="o", per_device_train_batch_size=8)\n'
        "Trainer(model=model, args=args, train_dataset=data).train()\n"
    )
    run = _run(script)
    assert (run.plan.seq.max_len, run.level(f.seq.max_len)) == (told, level)


_BY_CARD = """\
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
half = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
model = AutoModelForCausalLM.from_pretrained(
    "Qwen/Qwen2.5-0.5B", torch_dtype=torch.bfloat16 if half else torch.float32
)
args = TrainingArguments(
    output_dir="o", per_device_train_batch_size=8, deepspeed="ds.json",
    bf16=torch.cuda.is_available() and {more}, fp16=not torch.cuda.is_bf16_supported(),
)
Trainer(model=model, args=args, train_dataset=d).train()
"""
_BF16 = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'


def test_what_the_card_decides_is_so_on_a_card_for_training() -> None:
    script = _BY_CARD.replace("{more}", "torch.cuda.is_bf16_supported()")
    (run,) = (r for r in _runs({"train.py": script, "ds.json": _BF16}) if r.plan.model.id)
    assert (run.plan.load.dtype, run.plan.precision.compute) == ("bf16", "bf16")


@pytest.mark.parametrize(("more", "speaks"), [("wants_half()", False), ("False", True)])
def test_a_precision_that_only_running_tells_differs_from_none(more: str, speaks: bool) -> None:
    files = {"train.py": _BY_CARD.replace("{more}", more), "ds.json": _BF16}
    report = report_of(files)
    codes = {each.rule.code for each in report.diagnoses}
    assert ("OOM803" in codes) is speaks


@pytest.mark.parametrize("said", ["False", "None", "''"])
def test_no_file_of_deepspeeds_is_missed_where_none_is_named(said: str) -> None:
    script = _TRAINER.replace("    bf16=True,\n", f"    bf16=True,\n    deepspeed={said},\n")
    assert script != _TRAINER
    told = report_of({"train.py": script}, "train.py").diagnoses
    assert "OOM902" not in {each.rule.code for each in told}


_OWN_TRAINER = """\
from transformers import Trainer
class OurTrainer(Trainer):
    def train(self):
        {before}
        for batch in self.loader:
            loss = self.model(**batch).loss
            loss.backward()
            self.optimizer.step()
"""
_OF_OWN_TRAINER = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
from ours import OurTrainer
args = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()[0]
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", torch_dtype="bfloat16")
OurTrainer({args}model=model, train_dataset=d).train()
"""


@pytest.mark.parametrize("args", ["args=args, ", "config=args, "])
@pytest.mark.parametrize(
    ("before", "speaks"),
    [
        ("pass", False),
        ("return super().train()", True),
        ("deepspeed_init(self, self.steps)", True),
        ("return find_batch_size(self._inner_training_loop)()", True),
    ],
)
def test_a_loop_of_the_projects_own_compares_no_precisions(
    before: str, speaks: bool, args: str
) -> None:
    files = {
        "train.py": _OF_OWN_TRAINER.format(args=args),
        "ours.py": _OWN_TRAINER.format(before=before),
        "run.sh": (
            "deepspeed train.py --output_dir o --deepspeed ds.json"
            " --per_device_train_batch_size 2 --learning_rate 1e-5\n"
        ),
        "ds.json": _BF16,
    }
    codes = {each.rule.code for each in report_of(files).diagnoses}
    assert ("OOM803" in codes) is speaks


_LOADS_BEHIND = """\
from peft import AutoPeftModelForCausalLM
from transformers import HfArgumentParser, Trainer, TrainingArguments
from helpers import prepare_model

(args,) = HfArgumentParser([TrainingArguments]).parse_args_into_dataclasses()
model, tokenizer = prepare_model(args)
trainer = Trainer(model=model, args=args, train_dataset=data)
trainer.train()
model = AutoPeftModelForCausalLM.from_pretrained(args.output_dir)
model.merge_and_unload().save_pretrained("merged")
"""


def test_what_is_loaded_behind_the_trainer_is_not_what_it_trains() -> None:
    line = (
        "torchrun --nproc_per_node 8 train.py --output_dir out --num_train_epochs 1"
        " --per_device_train_batch_size 1 --bf16 True --learning_rate 1e-4 --deepspeed ds.json\n"
    )
    files = {
        "train.py": _LOADS_BEHIND,
        "go.sh": line,
        "ds.json": '{"zero_optimization": {"stage": 3}}',
    }
    run = run_of(files, "go.sh")
    assert run.plan.model.id != "out"
    assert run.cells.is_unread(f.trainable.method)


_LOADS_SET = """\
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

data = load_dataset("yahma/alpaca-cleaned", split="train").map(lambda each: {"text": each["output"]})
args = SFTConfig(per_device_train_batch_size=2, bf16=True, max_length=4096)
SFTTrainer("Qwen/Qwen2.5-1.5B", train_dataset=data, args=args).train()
"""


def test_samples_are_no_longer_than_those_of_the_set_that_a_script_loads() -> None:
    run = _run(_LOADS_SET)
    assert run.plan.data.sets == ("yahma/alpaca-cleaned",)
    assert run.plan.seq.longest == 1044
    assert run.plan.seq.max_len == 4096
    own = _run(_LOADS_SET.replace('"yahma/alpaca-cleaned"', "name"))
    assert own.plan.seq.longest is None
    estimates = [each.estimate.gpu.peak_bytes for each in (run, own)]
    assert None not in estimates
    assert (estimates[0] or 0) < (estimates[1] or 0)


@pytest.mark.parametrize(
    ("name", "elements"), [("schedule_free_adamw", 2), ("schedule_free_sgd", 1)]
)
def test_a_schedule_free_optimizer_keeps_what_its_method_needs(name: str, elements: int) -> None:
    """schedulefree 1.4.1: z, and the second moment of those that have one; measured on the CPU."""
    run = _run(
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-1.5B')\n"
        f"args = TrainingArguments(output_dir='out', optim='{name}', per_device_train_batch_size=1)\n"
        "Trainer(model=model, args=args, train_dataset=data).train()\n"
    )
    kept = state_bytes(run.plan)
    assert kept is not None
    assert kept.optimizer == pytest.approx(elements * kept.parameters, rel=0.01)


_QUANTIZED_BY_HELPER = """\
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments
def quantization():
    return {made}
model = AutoModelForCausalLM.from_pretrained("gpt2", quantization_config=quantization())
Trainer(model=model, args=TrainingArguments(output_dir="o"), train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("made", "method", "level"),
    [
        ("BitsAndBytesConfig(load_in_4bit=True)", "bnb4", Level.STATED),
        (
            "BitsAndBytesConfig(load_in_4bit=True) if large else BitsAndBytesConfig(load_in_8bit=True)",
            "none",
            Level.UNREAD,
        ),
        ("quantized_elsewhere()", "none", Level.UNREAD),
    ],
)
def test_a_function_of_the_script_quantizes(made: str, method: str, level: Level) -> None:
    run = run_of({"train.py": _QUANTIZED_BY_HELPER.replace("{made}", made)})
    assert run.plan.quant.method == method
    is_unread = run.level(f.quant.method) is Level.UNREAD
    assert is_unread is (level is Level.UNREAD)


_COMMANDS = '''"""Usage:
    python score.py annotate --rows 10
    python score.py train --epochs 3
"""
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def annotate(args):
    print(args.rows)

def train(args):
    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B")
    options = TrainingArguments(output_dir="out", num_train_epochs=args.epochs)
    Trainer(model=model, args=options, train_dataset=data, data_collator=pad).train()

parser = argparse.ArgumentParser()
sub = parser.add_subparsers(dest="command", required=True)
sub.add_parser("annotate").add_argument("--rows", type=int)
sub.add_parser("train").add_argument("--epochs", type=int)
args = parser.parse_args()
if args.command == "annotate":
    annotate(args)
elif args.command == "train":
    train(args)
'''


def test_of_a_scripts_commands_the_one_counts_that_trains() -> None:
    """A launcher is for the line that trains, not for the first that starts the script."""
    run = run_of({"score.py": _COMMANDS}, hardware="8xA100-80GB")
    assert (
        "train --epochs"
        in run.claims[-1].document.source.text[run.claims[-1].anchor.span.start :].splitlines()[0]
    )


def test_a_trainer_that_is_given_an_option_loads_the_model_that_it_names():
    script = (
        "import fire\nfrom transformers import AutoModelForCausalLM\nfrom trl import GRPOConfig, GRPOTrainer\n\n\n"
        "def train(model_path: str = '', batch: int = 1):\n"
        "    probe = AutoModelForCausalLM.from_pretrained(model_path, device_map='auto')\n"
        "    trainer = GRPOTrainer(model={given}, args=GRPOConfig('out'), train_dataset=data)\n"
        "    trainer.train()\n\n\nfire.Fire(train)\n"
    )
    launch = "torchrun --nproc_per_node 4 rl.py --model_path Qwen/Qwen2.5-7B\n"
    placed = []
    for given in ("model_path", "probe"):
        run = _run({"rl.py": script.format(given=given), "run.sh": launch})
        assert run.plan.model.id == "Qwen/Qwen2.5-7B"
        placed.append(run.plan.load.device_map)
    assert placed == [None, "auto"]


@pytest.mark.parametrize(
    ("cls", "has_tower"),
    [("AutoModelForCausalLM", False), ("MllamaForConditionalGeneration", True)],
)
def test_a_class_for_text_makes_no_tower_for_pictures(cls: str, has_tower: bool) -> None:
    text = (
        f"from transformers import {cls}, Trainer, TrainingArguments\n"
        f"m = {cls}.from_pretrained('meta-llama/Llama-3.2-11B-Vision-Instruct', torch_dtype='bfloat16')\n"
        "a = TrainingArguments(output_dir='o', per_device_train_batch_size=8)\n"
        "Trainer(model=m, args=a, train_dataset=d).train()\n"
    )
    dims = _run({"train.py": text}).plan.model.dims
    assert dims is not None
    assert (dims.vision is not None) is has_tower
    assert dims.params_total is not None
    assert (dims.params_total < 10e9) is not has_tower


_ADDED = """\
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-4B", dtype=torch.bfloat16)
model.add_adapter(LoraConfig(r=16, target_modules=["q_proj", "v_proj"]), adapter_name="default")
trainer = Trainer(model=model, args=TrainingArguments(output_dir="out", bf16=True), train_dataset=data)
trainer.train()
"""


def test_a_model_that_adds_an_adapter_itself_trains_that_alone() -> None:
    """transformers 4.57.1 integrations/peft.py add_adapter casts nothing; beside packed weights adapters are fp32 anyway."""
    (run,) = _runs(_ADDED)
    plan = run.plan
    assert (plan.trainable.method, plan.trainable.r) == ("lora", 16)
    assert plan.trainable.adapter_dtype == "bf16"
    packed = _ADDED.replace(
        "dtype=torch.bfloat16", "quantization_config=BitsAndBytesConfig(load_in_4bit=True)"
    )
    (run,) = _runs(packed.replace("import Auto", "import BitsAndBytesConfig, Auto"))
    assert (run.plan.trainable.method, run.plan.trainable.adapter_dtype) == ("qlora", "fp32")
    # PEFT's own method is told the name first, of a model that get_peft_model made.
    (run,) = _runs(_ADDED.replace("add_adapter(LoraConfig", 'add_adapter("a", LoraConfig'))
    assert run.plan.trainable.method == "full"
