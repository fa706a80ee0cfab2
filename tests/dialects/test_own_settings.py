"""Settings that a program keeps in objects and tables of its own."""

from __future__ import annotations

import pytest
from tests.linked import link, run_of

_TRAINS = """\
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
import argparse
{before}

{indent}def train({parameter}):
{indent}    model = AutoModelForCausalLM.from_pretrained({holder}.model)
{indent}    arguments = TrainingArguments(
{indent}        output_dir="out", per_device_train_batch_size={holder}.batch, bf16=True
{indent}    )
{indent}    Trainer(model=model, args=arguments, train_dataset=data).train()

{behind}
"""
_CLASS = """\
@dataclass
class Settings:
    model: str = "Qwen/Qwen2.5-0.5B"
    batch: int = 4
"""


def _read(
    before: str,
    behind: str,
    *,
    parameter: str = "settings",
    holder: str = "settings",
    indent: str = "",
    **files: str,
) -> tuple[object, object]:
    script = _TRAINS.format(
        before=before, behind=behind, parameter=parameter, holder=holder, indent=indent
    )
    named = {f"{name}.py": text for name, text in files.items()}
    plan = run_of({"train.py": script, **named}, "train.py").plan
    return plan.model.id, plan.batch.micro


def test_an_object_that_a_class_keeps_for_its_methods() -> None:
    class_of_trainer = _CLASS + (
        "class Own:\n    def __init__(self, settings):\n        self.settings = settings\n"
    )
    found = _read(
        class_of_trainer,
        'Own(Settings(model="Qwen/Qwen2.5-1.5B")).train()',
        parameter="self",
        holder="self.settings",
        indent="    ",
    )
    assert found == ("Qwen/Qwen2.5-1.5B", 4)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("return Settings(batch=2)", ("Qwen/Qwen2.5-0.5B", 2)),
        ("made = Settings()\n    made.batch = 8\n    return made", ("Qwen/Qwen2.5-0.5B", 8)),
        ("made = Settings()\n    made.batch *= 2\n    return made", ("Qwen/Qwen2.5-0.5B", None)),
    ],
)
def test_an_object_that_a_function_of_another_file_makes(
    body: str, found: tuple[object, object]
) -> None:
    own = f"from dataclasses import dataclass\n{_CLASS}\ndef get_settings():\n    {body}\n"
    assert _read("from own import get_settings", "train(get_settings())", own=own) == found


_CHANGED = "made = Settings()\n{change}\ntrain(made)"


@pytest.mark.parametrize(
    ("change", "batch"),
    [
        ("made.batch = 2", 2),
        ("if more:\n    made.batch = 2", None),
        ("for made.batch in (1, 2):\n    pass", None),
        ("def halve(s):\n    s.batch = 2\nhalve(made)", 2),
        ("def halve(s):\n    s.batch = 2\nif more:\n    halve(made)", None),
        ("def halve(s):\n    s.batch //= 2\nhalve(made)", None),
        ("def halve(s):\n    setattr(s, name, 2)\nhalve(made)", None),
        ("other = Settings()\nother.batch = 2", 4),
    ],
)
def test_an_object_is_changed_under_another_name(change: str, batch: int | None) -> None:
    assert _read(_CLASS, _CHANGED.format(change=change))[1] == batch


_PARSES = """\
parser = argparse.ArgumentParser()
parser.add_argument("--model", default=None)
parser.add_argument("--size", default="small")
parser.add_argument("--batch", type=int, default=4)
args = parser.parse_args()
"""
_MODELS = 'MODELS = {"small": "Qwen/Qwen2.5-0.5B", "large": "Qwen/Qwen2.5-7B"}\n'


@pytest.mark.parametrize(
    "chosen",
    [
        "args.model = MODELS[args.size]",
        "args.model = MODELS.get(args.size)",
        'args.model = MODELS.get(args.size, "gpt2")',
        "if args.model is None:\n    args.model = MODELS[args.size]",
        "if not args.model:\n    args.model = MODELS[args.size]",
    ],
)
def test_an_option_chooses_from_a_table(chosen: str) -> None:
    script = _TRAINS.format(
        before=_PARSES + _MODELS + chosen,
        behind="train(args)",
        parameter="settings",
        holder="settings",
        indent="",
    )
    commands = {
        "plain.sh": "python train.py\n",
        "large.sh": "python train.py --size large\n",
        "own.sh": "python train.py --model gpt2-xl\n",
    }
    runs = link({"train.py": script, **commands}, *commands).runs
    found = {run.name.partition(".py (")[2].partition(".")[0]: run.plan.model.id for run in runs}
    # Where the option counts for nothing, its command is the plain one.
    own = {"own": "gpt2-xl"} if chosen.startswith("if") else {}
    assert found == {"plain": "Qwen/Qwen2.5-0.5B", "large": "Qwen/Qwen2.5-7B", **own}


@pytest.mark.parametrize("word", ["huge", "$SIZE"])
def test_of_a_word_that_the_table_lacks_nothing_is_known(word: str) -> None:
    script = _TRAINS.format(
        before=_PARSES + _MODELS + "args.model = MODELS[args.size]",
        behind="train(args)",
        parameter="settings",
        holder="settings",
        indent="",
    )
    run = run_of({"train.py": script, "run.sh": f"python train.py --size {word}\n"}, "run.sh")
    assert run.plan.model.id is None


@pytest.mark.parametrize(
    ("said", "batch"), [("", 4), (" --batch 16", 16), (" --batch $BATCH", None)]
)
def test_an_option_takes_the_place_of_a_setting_where_it_is_said(
    said: str, batch: int | None
) -> None:
    parses = _PARSES.replace("type=int, default=4", "type=int, default=None")
    override = "made = Settings()\nif args.batch is not None:\n    made.batch = args.batch\n"
    script = _TRAINS.format(
        before=_CLASS + parses,
        behind=override + "train(made)",
        parameter="settings",
        holder="settings",
        indent="",
    )
    run = run_of({"train.py": script, "run.sh": f"python train.py{said}\n"}, "run.sh")
    assert run.plan.batch.micro == batch


@pytest.mark.parametrize(
    ("load", "text"),
    [
        ("json.load", '{"length": 128}'),
        ("yaml.safe_load", "length: 128\n"),
        ("tomllib.load", "length = 128\n"),
    ],
)
def test_what_a_function_loads_is_a_config_whatever_its_name_ends_with(
    load: str, text: str
) -> None:
    script = f"""\
import argparse, {load.partition(".")[0]}
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

def main(args):
    with open(args.config, "rb") as file:
        config = {load}(file)
    tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
    length = config["length"]
    def cut(row):
        return tokenizer(row["question"], truncation=True, max_length=length)
    data = load_dataset("openai/gsm8k", "main", split="train").map(cut)
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
    Trainer(model=model, args=TrainingArguments("out"), train_dataset=data).train()

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="../configs/sft.conf")
    main(parser.parse_args())
"""
    files = {"src/train.py": script, "configs/sft.conf": text}
    assert run_of(files, "src/train.py").plan.seq.max_len == 128
