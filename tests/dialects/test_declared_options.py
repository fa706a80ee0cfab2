"""A fix adds no option to a command line that its script's parser would stop at."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.dialects.common.declared import check_option
from oomlint.dialects.trainer.fields import hf
from oomlint.documents.base import ShellDocument
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

_LORA = {f.trainable.method: "lora", f.trainable.r: 16}
_CHECKPOINTING = {f.checkpointing.mode: "full"}

_OPTIONS = (
    " --output_dir out --per_device_train_batch_size 8 --per_device_eval_batch_size 8"
    " --num_train_epochs 1 --gradient_accumulation_steps 1 --learning_rate 6e-6 --bf16 True"
    " --save_strategy no --logging_steps 1\n"
)
_OWN = """\
from dataclasses import dataclass
import transformers
from trl import SFTTrainer

@dataclass
class CustomArguments:
    model_name: str = "meta-llama/Meta-Llama-3-8B"
    max_seq_length: int = 512

def train():
    parser = transformers.HfArgumentParser((transformers.TrainingArguments, CustomArguments))
    training_args, custom_args = parser.parse_args_into_dataclasses()
    model = transformers.AutoModelForCausalLM.from_pretrained(custom_args.model_name)
    trainer = SFTTrainer(model=model, args=training_args, max_seq_length=custom_args.max_seq_length)
    trainer.train()

train()
"""
_TRLS = """\
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser, get_peft_config

parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
script_args, training_args, model_args = parser.parse_args_and_config()
trainer = SFTTrainer(
    model=model_args.model_name_or_path, args=training_args, peft_config=get_peft_config(model_args)
)
trainer.train()
"""
_ARGPARSE = """\
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--output_dir")
parser.add_argument("--model_name_or_path")
parser.add_argument("--per_device_train_batch_size", type=int)
parser.add_argument("--num_train_epochs", type=int)
parser.add_argument("--bf16", type=bool)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)
training_args = TrainingArguments(
    output_dir=args.output_dir, per_device_train_batch_size=args.per_device_train_batch_size, bf16=True
)
Trainer(model=model, args=training_args).train()
"""


def test_no_adapter_where_the_script_has_no_options_for_it() -> None:
    files = {"train.py": _OWN, "run.sh": "torchrun --nproc-per-node=4 train.py" + _OPTIONS}
    run = run_of(files)
    with pytest.raises(CannotEdit, match="nothing shows that the script has an option for it"):
        run.what_if(_LORA)
    assert run.what_if(_CHECKPOINTING).plan.checkpointing.mode == "full"


def test_adapter_by_the_options_of_trls_own_classes() -> None:
    command = "accelerate launch sft.py --model_name_or_path meta-llama/Meta-Llama-3-8B --dataset_name a/b"
    run = run_of({"sft.py": _TRLS, "run.sh": command + _OPTIONS})
    assert run.what_if(_LORA).plan.trainable.method == "lora"


def test_of_a_script_that_is_not_here_nothing_shows_options_for_adapters() -> None:
    command = "accelerate launch my/sft.py --model_name_or_path meta-llama/Meta-Llama-3-8B --dataset_name a/b"
    run = run_of({"run.sh": command + _OPTIONS})
    with pytest.raises(CannotEdit):
        run.what_if(_LORA)
    assert run.what_if(_CHECKPOINTING).plan.checkpointing.mode == "full"


def test_arguments_of_the_trainer_where_argparse_has_them_not() -> None:
    command = "torchrun train.py --model_name_or_path meta-llama/Meta-Llama-3-8B"
    options = " --output_dir out --per_device_train_batch_size 8 --num_train_epochs 1 --bf16 True\n"
    run = run_of({"train.py": _ARGPARSE, "run.sh": command + options})
    try:
        changed = run.what_if(_CHECKPOINTING)
    except CannotEdit:
        return
    block = changed.block_with(next(iter(changed.wished)))
    assert block is not None
    assert not isinstance(block.document, ShellDocument), (
        "--gradient_checkpointing would be refused"
    )


_GRPO = """\
from trl import GRPOConfig, GRPOTrainer

args = GRPOConfig(
    output_dir="out", num_generations=8, per_device_train_batch_size=8, per_device_eval_batch_size=8,
    eval_strategy="epoch", gradient_checkpointing=True, bf16=True,
)
GRPOTrainer(model="Qwen/Qwen2.5-7B-Instruct", args=args, reward_funcs=[len], train_dataset=d).train()
"""


def test_no_key_that_the_objectives_config_class_does_not_have() -> None:
    offload = {f.checkpointing.mode: "full", f.checkpointing.offload: "cpu"}
    with pytest.raises(CannotEdit, match="no key that offloads activations"):
        run_of({"train.py": _GRPO}).what_if(offload)
    sft = (
        _GRPO.replace("GRPO", "SFT")
        .replace("num_generations=8, ", "")
        .replace("reward_funcs=[len], ", "")
    )
    assert run_of({"train.py": sft}).what_if(offload).plan.checkpointing.offload == "cpu"
    early = {"train.py": sft, "requirements.txt": "trl==0.17.0\n"}
    with pytest.raises(CannotEdit, match=r"has activation_offloading from 0\.18\.0 on"):
        run_of(early, "train.py").what_if(offload)


def test_batch_of_evaluation_holds_whole_groups_of_answers() -> None:
    run = run_of({"train.py": _GRPO})
    with pytest.raises(CannotEdit, match="groups of 8 answers"):
        run.what_if({f.batch.eval_micro: 1, f.parallel.world: 1})


def test_no_name_that_the_script_does_not_declare_in_place_of_one_that_it_does() -> None:
    script = _ARGPARSE.replace(
        'parser.add_argument("--output_dir")',
        'parser.add_argument("--output_dir")\nparser.add_argument("--per_gpu_train_batch_size")',
    )
    command = "torchrun train.py --model_name_or_path meta-llama/Meta-Llama-3-8B"
    options = (
        " --output_dir out --per_device_train_batch_size 8 --num_train_epochs 1 --bf16 True --{}\n"
    )
    run = run_of({"train.py": script, "run.sh": command + options.format("evaluation_strategy no")})
    (block,) = (b for b in run.cells.given.blocks if "evaluation_strategy" in b.mapping.entries)
    row = block.table.names["eval_strategy"]
    with pytest.raises(CannotEdit, match="nothing shows"):
        check_option(block, row, run.cells)
    check_option(block, block.table.names["per_device_train_batch_size"], run.cells)


def test_every_dialects_wishes_pass_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of one that forgets to look: here its own way of writing asks nobody."""
    files = {"train.py": _OWN, "run.sh": "torchrun --nproc-per-node=4 train.py" + _OPTIONS}
    run = run_of(files)
    monkeypatch.setattr(type(run.dialect), "express", lambda *_: {hf.use_peft: True})
    with pytest.raises(CannotEdit, match="nothing shows that the script has an option for it"):
        run.what_if(_LORA)


@pytest.mark.parametrize(
    ("pinned", "more", "said"),
    [
        ("transformers==4.44.2", "", "from 4.45.0 on, and the project pins 4.44.2"),
        ("", ", evaluation_strategy='no'", None),
        ("transformers==4.45.0", "", None),
        ("transformers==4.45", "", None),
        ("", "", None),
    ],
)
def test_no_fix_writes_an_argument_that_the_release_of_transformers_lacks(
    pinned: str, more: str, said: str | None
) -> None:
    script = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')\n"
        f"args = TrainingArguments(output_dir='o', bf16=True{more})\n"
        "Trainer(model=model, args=args, train_dataset=data).train()\n"
    )
    run = run_of({"a.py": script, "requirements.txt": f"{pinned}\n"}, "a.py")
    fused = {f.loss.logits_materialised: "fused"}
    if said is None:
        assert run.what_if(fused).plan.loss.logits_materialised == "fused"
    else:
        with pytest.raises(CannotEdit, match=said):
            run.what_if(fused)
