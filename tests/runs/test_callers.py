"""Modules that train as programs of the project call them, which make their settings and their model."""

from __future__ import annotations

from tests.linked import link, run_of

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

OF_CLASS = """
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

@dataclass
class Settings:
    model_name: str = "Qwen/Qwen2.5-7B"
    batch_size: int = 8

class Finetuner:
    def __init__(self, settings: Settings, accumulate: int = 2):
        self.settings = settings
        self.accumulate = accumulate

    def train(self, data):
        model = AutoModelForCausalLM.from_pretrained(self.settings.model_name)
        arguments = TrainingArguments(
            output_dir="out",
            per_device_train_batch_size=self.settings.batch_size,
            gradient_accumulation_steps=self.accumulate,
        )
        Trainer(model=model, args=arguments, train_dataset=data).train()
"""


def of_class(**programs: str) -> dict[str, str]:
    return {"app/runner.py": OF_CLASS, **{f"{name}.py": text for name, text in programs.items()}}


def test_an_object_keeps_what_the_program_makes_it_of() -> None:
    run = run_of(
        of_class(
            main="from app.runner import Finetuner, Settings\n"
            'Finetuner(Settings(model_name="Qwen/Qwen2.5-0.5B", batch_size=4)).train(load())\n'
        )
    )
    assert run.name == "app/runner.py"
    assert run.plan.model.id == "Qwen/Qwen2.5-0.5B"
    assert (run.plan.batch.micro, run.plan.batch.grad_accum) == (4, 2)
    assert run.level(f.batch.micro) is Level.STATED


def test_several_programs_are_runs_of_their_own() -> None:
    small = "from app.runner import Finetuner, Settings\nFinetuner(Settings(batch_size=1)).train(1)"
    large = (
        "from app import runner\nrunner.Finetuner(runner.Settings(batch_size=16), 4).train(load())"
    )
    runs = link(of_class(small=small, large=large)).runs
    assert {(run.name, run.plan.batch.micro) for run in runs} == {
        ("app/runner.py (small.py)", 1),
        ("app/runner.py (large.py)", 16),
    }


def test_programs_that_say_the_same_are_one_run() -> None:
    text = "from app.runner import Finetuner, Settings\nFinetuner(Settings(batch_size=4)).train(1)"
    assert run_of(of_class(one=text, other=text)).plan.batch.micro == 4


def test_what_the_calls_of_a_program_say_otherwise_is_open() -> None:
    text = """
from app.runner import Finetuner, Settings
Finetuner(Settings(model_name="Qwen/Qwen2.5-0.5B"), 2).train(load())
Finetuner(Settings(model_name="Qwen/Qwen2.5-0.5B"), 4).train(load())
"""
    run = run_of(of_class(main=text))
    assert run.plan.batch.grad_accum is None


def test_unpacked_arguments_are_open() -> None:
    text = "from app.runner import Finetuner\nFinetuner(**load()).train(data)"
    run = run_of(of_class(main=text))
    assert run.plan.batch.micro is None
    assert run.plan.batch.grad_accum is None


def test_tests_of_the_project_are_no_programs() -> None:
    text = "import pytest\nfrom app.runner import Finetuner, Settings\nFinetuner(Settings(batch_size=1))"
    assert run_of(of_class(test_runner=text)).plan.batch.micro is None


OF_FUNCTION = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def run_training(config, data):
    model = AutoModelForCausalLM.from_pretrained(config.train.base_model)
    arguments = TrainingArguments(
        output_dir="out", per_device_train_batch_size=config.train.micro_batch_size
    )
    Trainer(model=model, args=arguments, train_dataset=data).train()
"""
RECORDS = """
import yaml
from pydantic import BaseModel, field_validator

class TrainConfig(BaseModel):
    base_model: str
    micro_batch_size: int = 2

class AppConfig(BaseModel):
    train: TrainConfig
    @field_validator("train")
    @classmethod
    def small(cls, value):
        if value.micro_batch_size > 64:
            raise ValueError("too large")
        return value

def load_config(path: str) -> AppConfig:
    with open(path) as file:
        return AppConfig.model_validate(yaml.safe_load(file))
"""
PROGRAM = """
import argparse
from app.config import load_config
from app.train import run_training

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="small.yaml")
    args = parser.parse_args()
    run_training(load_config(args.config), read())

if __name__ == "__main__":
    main()
"""
CONFIGURED = {
    "app/train.py": OF_FUNCTION,
    "app/config.py": RECORDS,
    "cli.py": PROGRAM,
    "small.yaml": "train:\n  base_model: Qwen/Qwen2.5-0.5B\n  micro_batch_size: 4\n",
    "large.yaml": "train:\n  base_model: Qwen/Qwen2.5-7B\n",
}


def test_a_config_that_the_program_loads_is_handed_on() -> None:
    run = run_of(CONFIGURED)
    assert (run.plan.model.id, run.plan.batch.micro) == ("Qwen/Qwen2.5-0.5B", 4)
    assert run.files == ("app/train.py", "small.yaml")


def test_a_command_that_starts_the_program_starts_the_module() -> None:
    line = "torchrun --nproc_per_node 4 cli.py --config large.yaml\n"
    run = run_of({**CONFIGURED, "run.sh": line})
    assert (run.plan.model.id, run.plan.batch.micro) == ("Qwen/Qwen2.5-7B", 2)
    assert run.plan.parallel.world == 4
    assert run.files == ("app/train.py", "run.sh", "large.yaml")


def test_a_validator_that_changes_a_record_leaves_it_open() -> None:
    changing = RECORDS.replace(
        "        return value\n", "        value.micro_batch_size = 1\n        return value\n"
    )
    run = run_of({**CONFIGURED, "app/config.py": changing})
    assert run.plan.batch.micro is None


def test_a_call_that_the_config_decides_against_is_none() -> None:
    program = PROGRAM.replace(
        "    run_training(load_config(args.config), read())\n",
        "    config = load_config(args.config)\n"
        "    run_other(config) if config.train.base_model else run_training(config, read())\n",
    )
    run = run_of({**CONFIGURED, "cli.py": program})
    assert run.plan.batch.micro is None


def test_a_key_that_the_module_has_a_name_for_is_not_looked_up_elsewhere() -> None:
    module = OF_FUNCTION.replace("config.train.micro_batch_size", "config.sizes[SIZE]")
    padding = "\n" * 40
    run = run_of({**CONFIGURED, "app/train.py": f"SIZE = 'small'{padding}{module}"})
    assert run.plan.batch.micro is None


OF_MODEL = """
from transformers import Trainer, TrainingArguments

def train_model(model, data, batch_size: int = 8):
    arguments = TrainingArguments(output_dir="out", per_device_train_batch_size=batch_size)
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    trainer.train()
"""
MODELS = """
import torch
from transformers import AutoModelForCausalLM

def build_model(name: str):
    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.bfloat16)
    model.gradient_checkpointing_enable()
    return model
"""
MAKES = """
from app.models import build_model
from app.train import train_model

def main():
    model = build_model("Qwen/Qwen2.5-0.5B")
    train_model(model, load(), batch_size=4)

if __name__ == "__main__":
    main()
"""


def test_a_model_that_the_program_makes_is_what_the_module_trains() -> None:
    run = run_of({"app/train.py": OF_MODEL, "app/models.py": MODELS, "main.py": MAKES})
    assert (run.plan.model.id, run.plan.load.dtype) == ("Qwen/Qwen2.5-0.5B", "bf16")
    assert run.plan.checkpointing.mode == "full"
    assert run.plan.batch.micro == 4


def test_what_touches_the_model_in_the_program_is_accounted_for() -> None:
    touched = MAKES.replace("    train_model(", "    apply_lora(model)\n    train_model(")
    run = run_of({"app/train.py": OF_MODEL, "app/models.py": MODELS, "main.py": touched})
    assert run.level(f.trainable.method) is Level.UNREAD


def test_an_edit_of_the_program_is_seen() -> None:
    from tests.linked import workspace_of

    from oomlint.dialects import registry
    from oomlint.runs.linked import LinkOptions
    from oomlint.runs.linking import Linker

    text = "from app.runner import Finetuner, Settings\nFinetuner(Settings(batch_size={})).train(1)"
    files = of_class(main=text.format(4))
    workspace = workspace_of(files)
    (before,) = Linker(workspace, registry(), LinkOptions()).link(tuple(files)).runs
    edited = {**workspace.overlay, "main.py": text.format(2).encode()}
    again = workspace.refreshed(edited, ["main.py"])
    (after,) = Linker(again, registry(), LinkOptions()).link(tuple(files)).runs
    assert (before.plan.batch.micro, after.plan.batch.micro) == (4, 2)


SEVERAL = """
import argparse
from app.train import train_model
from app.models import build_model

parser = argparse.ArgumentParser()
commands = parser.add_subparsers(dest="command")
commands.add_parser("train").add_argument("--batch", type=int, default=8)
commands.add_parser("label")
args = parser.parse_args()
if args.command == "train":
    train_model(build_model("Qwen/Qwen2.5-0.5B"), load(), batch_size=args.batch)
elif args.command == "label":
    label()
"""


def test_a_command_that_asks_a_program_for_something_else_trains_nothing() -> None:
    files = {"app/train.py": OF_MODEL, "app/models.py": MODELS, "main.py": SEVERAL}
    run = run_of({**files, "run.sh": "python main.py label\npython main.py train --batch 2\n"})
    assert run.files == ("app/train.py", "run.sh")
    assert run.plan.batch.micro == 2
