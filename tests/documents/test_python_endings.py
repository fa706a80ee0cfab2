"""What makes it certain that a script ends before its first step."""

from __future__ import annotations

import json

import pytest
from tests.linked import report_of, workspace_of

_ENVIRONMENT = """\
class Environment:
    def __init__(self, config, *, seed=0):
        self.config = config


class Told:
    def __init__(self, config=None):
        self.config = config


class Made:
    def __new__(cls):
        return object.__new__(cls)

    def __init__(self, config):
        pass


def look(at):
    pass
"""


def _reasons(text: str) -> list[str]:
    files = {"train.py": text, "environment.py": _ENVIRONMENT}
    document = workspace_of(files).document("train.py")
    assert document is not None
    return [fact.detail["why"] for fact in document.facts if fact.kind == "ends-early"]


_IMPORTS = (
    "import torch\n"
    "from environment import Environment, Told, Made, look\n"
    "from transformers import AutoModelForCausalLM\n"
    'model = AutoModelForCausalLM.from_pretrained("gpt2")\n'
)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("env = Environment()", "Environment() is called without config, which it requires"),
        ("env = Environment(seed=1)", "Environment() is called without config, which it requires"),
        ("look()", "look() is called without at, which it requires"),
    ],
)
def test_a_call_without_what_it_requires_ends_the_program(code: str, reason: str) -> None:
    assert _reasons(f"{_IMPORTS}{code}\nmodel(x).loss.backward()\n") == [reason]


@pytest.mark.parametrize(
    "code",
    [
        "env = Environment(1)",
        "env = Environment(config=1)",
        "env = Environment(*given)",
        "env = Environment(**given)",
        "env = Told()",
        "env = Made()",
        "try:\n    env = Environment()\nexcept TypeError:\n    env = None",
        "if sometimes():\n    env = Environment()",
        "Environment = other\nenv = Environment()",
        "train(model)\nenv = Environment()",
        "def later():\n    return Environment()",
    ],
)
def test_a_call_that_may_be_complete_or_never_made_does_not(code: str) -> None:
    assert not _reasons(f"{_IMPORTS}{code}\nmodel(x).loss.backward()\n")


_TRAINER = """\
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

data = load_dataset("text", data_files="a.txt")
tokenizer = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("gpt2")


def cut(rows):
    return tokenizer(rows["text"], max_length=1024, truncation=True)


data = data.map(cut, batched=True)
Trainer(model=model, args=TrainingArguments("out"), train_dataset=data).train()
"""
_NO_LABELS = "no sample has labels, and the Trainer has no collator that makes them"


def test_a_causal_model_without_labels_ends_the_program() -> None:
    assert _reasons(_TRAINER) == [_NO_LABELS]
    other = _TRAINER.replace('"text", data_files="a.txt"', '"a/set"')
    assert not _reasons(other)
    removed = other.replace("batched=True", "batched=True, remove_columns=data.column_names")
    assert _reasons(removed) == [_NO_LABELS]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    return tokenizer(", "    rows['labels'] = rows['text']\n    return tokenizer("),
        ("train_dataset=data", "train_dataset=data, data_collator=collator"),
        ("train_dataset=data", "train_dataset=data, tokenizer=tokenizer"),
        ("train_dataset=data", "**given"),
        ("AutoModelForCausalLM", "AutoModel"),
        ("Trainer(model", "OwnTrainer(model"),
        ("data = data.map(cut, batched=True)\n", ""),
    ],
)
def test_labels_may_come_from_elsewhere(old: str, new: str) -> None:
    assert old in _TRAINER
    assert not _reasons(_TRAINER.replace(old, new))


_PARSED = (
    "import argparse\n"
    "from transformers import AutoModelForCausalLM\n"
    "{make}\n"
    'parser.add_argument("--steps", "-g", type=int)\n'
    "{then}\n"
    'model = AutoModelForCausalLM.from_pretrained("gpt2")\n'
    "model(x).loss.backward()\n"
)
_PARSER = "parser = argparse.ArgumentParser()"


@pytest.mark.parametrize(
    ("make", "then", "refused"),
    [
        (_PARSER, 'parser.add_argument("--norm", "-g")', "-g"),
        (_PARSER, 'parser.add_argument("--steps")', "--steps"),
        (_PARSER, 'parser.add_argument("--norm", "-n")', ""),
        ('parser = argparse.ArgumentParser(conflict_handler="resolve")', 'parser.add_argument("-g")', ""),
        (_PARSER, f'{_PARSER}\nparser.add_argument("-g")', ""),
        (_PARSER, 'other = argparse.ArgumentParser()\nother.add_argument("-g")', ""),
        (_PARSER, 'if more:\n    parser.add_argument("-g")', ""),
        ("parser = commands.add_parser('a')", 'parser.add_argument("-g")', ""),
    ],
)  # fmt: skip
def test_an_option_that_one_parser_is_given_twice(make: str, then: str, refused: str) -> None:
    why = f"argparse refuses the option {refused}, which is declared twice"
    assert _reasons(_PARSED.format(make=make, then=then)) == ([why] if refused else [])


@pytest.mark.parametrize(
    ("make", "then", "is_refused"),
    [
        (_PARSER, "parser.add_argument()", True),
        ("parser = HfArgumentParser((Own,))", "parser.add_argument()", True),
        (_PARSER, "if more:\n    parser.add_argument()", False),
        (_PARSER, "parser.add_argument(*words)", False),
        (_PARSER, 'parser.add_argument(dest="norm")', False),
        ("parser = commands.add_parser('a')", "parser.add_argument()", False),
    ],
)
def test_an_option_without_a_name(make: str, then: str, is_refused: bool) -> None:
    why = "argparse refuses an option without a name"
    assert _reasons(_PARSED.format(make=make, then=then)) == ([why] if is_refused else [])


_OF_RLOO = """\
from transformers import HfArgumentParser
from trl import RLOOConfig, RLOOTrainer

def main():
    parser = HfArgumentParser((Own, RLOOConfig))
    args, training_args = parser.parse_args_into_dataclasses(return_remaining_strings=True)[:2]
    {line}
    trainer = RLOOTrainer(args=training_args, train_dataset=rows)
    trainer.train()

main()
"""


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("rows = load(num_proc=training_args.dataset_num_proc)", ["dataset_num_proc"]),
        ("if is_main_process: rows = load(training_args.dataset_num_proc)", ["dataset_num_proc"]),
        ("if args.some == 2: rows = load(training_args.dataset_num_proc)", []),
        ("rows = load(lambda row: training_args.dataset_num_proc)", []),
        ("training_args.dataset_num_proc = 4; rows = load(training_args.dataset_num_proc)", []),
        ("train(); rows = load(training_args.dataset_num_proc)", []),
        ("rows = load(args.dataset_num_proc)", []),
    ],
)
def test_what_a_library_s_arguments_are_surely_asked_for(line: str, asked: list[str]) -> None:
    document = workspace_of({"train.py": _OF_RLOO.format(line=line)}).document("train.py")
    assert document is not None
    facts = [fact.detail for fact in document.facts if fact.kind == "asks-argument"]
    assert [fact["argument"] for fact in facts] == asked
    assert {fact["of"] for fact in facts} <= {"trl.RLOOConfig"}


# -- what a script is sure to raise --------------------------------------------------------------------


def _of_notebook(*cells: str) -> list[str]:
    found = [
        {
            "cell_type": "code",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": each,
        }
        for each in cells
    ]
    text = json.dumps({"cells": found, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    document = workspace_of({"a.ipynb": text}).document("a.ipynb")
    assert document is not None
    return [fact.detail["why"] for fact in document.facts if fact.kind == "ends-early"]


_LOADS = (
    "import torch\nfrom transformers import AutoModelForCausalLM\n"
    'model = AutoModelForCausalLM.from_pretrained("gpt2")\n'
)
_UNBOUND = "nothing gives table_of_rows a value, which it reads before it trains"


@pytest.mark.parametrize(
    "code",
    [
        "rows = list(table_of_rows)",
        "def prepare():\n    return table_of_rows\nrows = prepare()",
        "rows = table_of_rows[0] if table_of_rows else 1",
        "rows = {'train': [table_of_rows]}",
    ],
)
def test_a_name_that_no_cell_gives_a_value(code: str) -> None:
    assert _of_notebook(_LOADS, code, "model.train(rows)") == [_UNBOUND]
    # A method is not the built-in function of its name.
    assert _of_notebook(_LOADS, "model.eval()", code, "model.train(rows)") == [_UNBOUND]


@pytest.mark.parametrize(
    "cells",
    [
        ("len(table_of_rows)",),  # a cell that can be left out
        ("unused = list(table_of_rows)",),
        ("rows = list(table_of_rows)", "table_of_rows = [1]"),  # cells may run in another order
        ("model.train()", "rows = list(table_of_rows)"),
        ("from config import *", "rows = list(table_of_rows)"),
        ("%run config.ipynb", "rows = list(table_of_rows)"),
        ("%%capture table_of_rows\nprint(1)", "rows = list(table_of_rows)"),
        ("table_of_rows = = 1", "rows = list(table_of_rows)"),
        ("table_of_rows = !ls", "rows = list(table_of_rows)"),
        ("def prepare():\n    return table_of_rows",),
        ("try:\n    table_of_rows\nexcept NameError:\n    pass",),
        ("rows = [table_of_rows for _ in range(n)] if (n := 0) else []",),
        ("for _ in []:\n    table_of_rows",),
        ("if model.config.x:\n    table_of_rows",),
        ("exec('table_of_rows = 1')", "rows = list(table_of_rows)"),
        ("display(model)", "get_ipython()", "print(__name__, _)"),
    ],
)
def test_a_name_that_some_cell_may_give_a_value(cells: tuple[str, ...]) -> None:
    assert _of_notebook(_LOADS, *cells, "model.train(rows)") == []


def test_a_function_that_is_left_early_may_have_trained_when_its_caller_ends() -> None:
    code = "def main():\n    if model.x:\n        return 1\n    model.train()\nraise SystemExit(main())\n"
    assert _reasons(f"{_LOADS}{code}") == []


@pytest.mark.parametrize(
    ("code", "is_sure"),
    [
        ("raise NotImplementedError('adapt this')", True),
        ("def prepare():\n    raise NotImplementedError\nprepare()", True),
        ("def prepare():\n    raise NotImplementedError", False),
        ("if model.config.x:\n    raise NotImplementedError", False),
        ("model.train()\nraise NotImplementedError", False),
        ("def main():\n    model.train()\nraise SystemExit(main())", False),
        ("class Base:\n    def prepare(self):\n        raise NotImplementedError\nBase().x", False),
        ("def prepare():\n    if model.x:\n        return\n    raise NotImplementedError\nprepare()", False),
    ],
)  # fmt: skip
def test_an_error_that_a_script_raises_itself(code: str, is_sure: bool) -> None:
    why = "it raises NotImplementedError on its way to training"
    assert _reasons(f"{_LOADS}{code}\nmodel(x).loss.backward()\n") == ([why] if is_sure else [])


# -- a script that stops short of training -------------------------------------------------------------

_ARGUMENTS = "from transformers import Trainer, TrainingArguments\n"


@pytest.mark.parametrize(
    ("code", "is_idle"),
    [
        ("args = TrainingArguments(output_dir='out')\nprint(args.output_dir)", True),
        ("args = TrainingArguments(output_dir='out')\n# Trainer(model, args).train()", True),
        ("args = TrainingArguments(output_dir='out')\nrun(model, args)", False),
        ("args = TrainingArguments(output_dir='out')\nfor x in y:\n    model(x).backward()", False),
        ("def made():\n    args = TrainingArguments('out')\n    return args", False),
        ("class A:\n    def __init__(self):\n        self.args = TrainingArguments('out')", False),
        ("args = TrainingArguments(output_dir='out')\nTrainer(model, args=args).train()", False),
    ],
)
def test_arguments_that_no_trainer_is_given(code: str, is_idle: bool) -> None:
    document = workspace_of({"train.py": f"{_LOADS}{_ARGUMENTS}{code}\n"}).document("train.py")
    assert document is not None
    found = [fact.detail["why"] for fact in document.facts if fact.kind == "never-trains"]
    assert found == ["no trainer is given its TrainingArguments"] * is_idle


_CONFIG = """\
from dataclasses import dataclass

MODEL = {"name": "gpt2"}
RATE = 1e-4


@dataclass
class Config:
    name: str
    rate: float = RATE

    def __post_init__(self):
        self.steps = 100


class Plain:
    rate = RATE
    kind: str


class Open(Missing):
    rate = RATE


config = Config("a")
"""
_ASKS = "import torch\nimport config as settings\nfrom config import *\n".replace(
    "from config import *\n", "from config import MODEL, Config, Open, Plain, config\n"
)


def _asked(code: str, config: str = _CONFIG, **more: str) -> list[str]:
    texts = {"train.py": f"{_ASKS}{code}\nloss.backward()\n", "config.py": config}
    document = workspace_of({**texts, **more}).document("train.py")
    assert document is not None
    return [fact.detail["why"] for fact in document.facts if fact.kind == "ends-early"]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ('load(MODEL["path"])', 'MODEL has no key "path", which train.py asks it for'),
        ("load(config.path)", "Config has no path, which train.py asks it for"),
        ("c = Config()\nload(c.rate, c.path)", "Config has no path, which train.py asks it for"),
        ("load(Plain.path)", "Plain has no path, which train.py asks it for"),
        ("load(settings.PATH)", "config.py gives no PATH, which train.py asks it for"),
        (
            "def main():\n    load(a=config.steps, b=config.path)\nmain()",
            "Config has no path, which train.py asks it for",
        ),
    ],
)
def test_what_a_config_of_the_project_does_not_have(code: str, why: str) -> None:
    assert _asked(code) == [why]


@pytest.mark.parametrize(
    "code",
    [
        'load(MODEL["name"], MODEL.get("path"), config.rate, config.steps, settings.RATE, Plain.rate)',
        'MODEL["path"] = "a"\nload(MODEL["path"])',
        'fill(MODEL)\nload(MODEL["path"])',
        'if remote:\n    MODEL = {"path": "a"}\nload(MODEL["path"])',
        "config.path = 1\nload(config.path)",
        "setattr(config, name, 1)\nload(config.path)",
        "load(Open.path)",
        "load(config.path if hasattr(config, 'path') else 1)",
        "try:\n    load(config.path)\nexcept AttributeError:\n    pass",
        "def later():\n    load(config.path)",
        "settings.PATH = 1\nload(settings.PATH)",
        "load(config.__class__, settings.__file__)",
        "loss.backward()\nload(config.path)",
        "load(config.name, Plain.kind)",
        "class Config:\n    name: str\nc = Config()\nload(c.name)",
        "def main():\n    class Plain:\n        path = 1\n    load(Plain.path)\nmain()",
        "config.path, other = 1, 2\nload(config.path)",
        "for config.path in paths:\n    load(config.path)\nload(config.path)",
        "vars(config).update(a)\nload(config.path)",
        "if remote:\n    class Config:\n        path = 1\nload(Config.path)",
    ],
)
def test_what_a_config_may_have_when_it_is_asked(code: str) -> None:
    assert _asked(code) == []


def test_what_another_module_gives_a_config() -> None:
    others = {"fill.py": "def fill(c):\n    c.path = 1\n"}
    code = "from fill import fill\nfill(config)\nload(config.path)"
    assert _asked(code, **others) == []
    assert _asked("load(MODEL['path'])", _CONFIG + 'MODEL.update({"path": 1})\n') == []
    assert _asked("load(settings.PATH)", "from other import *\n") == []


_INITIALIZES = """\
import argparse
import deepspeed
from transformers import AutoModelForCausalLM


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--deepspeed-config", {default})
    return parser.parse_args()


def main():
    args = parse_args()
{then}    model = AutoModelForCausalLM.from_pretrained("gpt2")
    engine, *_ = deepspeed.initialize({given}, model=model)
    engine.backward(engine(batch).loss)


main()
"""


@pytest.mark.parametrize(
    ("default", "given", "then", "is_refused"),
    [
        ('default="ds.json"', "args=args, config=args.deepspeed_config", "", True),
        ('default="ds.json"', "args=args, config_params={}", "", True),
        ('default="ds.json"', "args=args", "", False),
        ('default="ds.json"', "args=args, config=None", "", False),
        ('default="ds.json"', "config=args.deepspeed_config", "", False),
        ('default="ds.json"', "args=other(args), config={}", "", False),
        ("default=None", "args=args, config={}", "", False),
        ('default="ds.json"', "args=args, config={}", "    args.deepspeed_config = None\n", False),
    ],
)
def test_deepspeed_takes_one_config(default: str, given: str, then: str, is_refused: bool) -> None:
    why = "DeepSpeed refuses config beside the deepspeed_config of args, which has a default"
    text = _INITIALIZES.format(default=default, given=given, then=then)
    assert _reasons(text) == ([why] if is_refused else [])


@pytest.mark.parametrize(("release", "ends"), [("0.8.3", False), ("0.9.0", True)])
def test_deepspeed_took_two_configs_once(release: str, ends: bool) -> None:
    text = _INITIALIZES.format(
        default='default="ds.json"', given="args=args, config=args.deepspeed_config", then=""
    )
    config = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}'
    files = {"train.py": text, "ds.json": config, "requirements.txt": f"deepspeed=={release}\n"}
    found = report_of(files, "train.py", hardware="8xA100-80GB").diagnoses
    assert ("OOM905" in {each.rule.code for each in found}) is ends


# -- names, calls and parsed options on the way to training ---------------------------------------------


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("prepare()\n\ndef prepare():\n    pass", "prepare has no value yet where it is read, ahead of line 8"),
        ("def run():\n    prepare()\nrun()\n\ndef prepare():\n    pass", "prepare has no value yet where it is read, ahead of line 10"),
        ("def run():\n    rows = size\n    size = 1\nrun()", "size has no value yet where it is read, ahead of line 8"),
        ("print(size)\nfor size in (1, 2):\n    pass", "size has no value yet where it is read, ahead of line 7"),
    ],
)  # fmt: skip
def test_a_name_that_is_read_ahead_of_its_value(code: str, why: str) -> None:
    assert _reasons(f"import argparse\n{_IMPORTS}{code}\nmodel(1).loss.backward()\n") == [why]


@pytest.mark.parametrize(
    "code",
    [
        "def run():\n    prepare()\n\ndef prepare():\n    pass\nrun()",
        "for row in (1, 2):\n    if row > 1:\n        print(size)\n    size = row",
        "print(len)\nlen = 1",
        "def set_size():\n    global size\n    size = 1\nset_size()\nprint(size)\nsize = 2",
        "print(missing)",  # an excerpt
        "class Sizes:\n    one = 1\n    two = one",
        "[print(row) for row in (1, 2)]\nrow = 1",
    ],
)
def test_a_name_that_may_have_a_value(code: str) -> None:
    assert _reasons(f"{_IMPORTS}{code}\nmodel(1).loss.backward()\n") == []


_MAKES = "def make(rows, size=1, *, rate=2):\n    pass\n\n\ndef take(first, /, *rest, **more):\n    pass\n"


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("make(1, 2, 3)", "make() is called with 3 arguments and takes 2"),
        ("make(1, step=3)", "make() is called with step, which it does not take"),
        ("make(1, rows=3)", "make() is given rows twice"),
        ("make()", "make() is called without rows, which it requires"),
        ("Environment(1, rate=2)", "Environment() is called with rate, which it does not take"),
        ("make(1, rate=3)", ""),
        ("make(*given)", ""),
        ("take(1, 2, 3, first=4, step=5)", ""),
    ],
)
def test_a_call_that_its_function_does_not_take(call: str, why: str) -> None:
    text = f"{_IMPORTS}{_MAKES}given = [1]\n\n\ndef main():\n    {call}\n\n\nmain()\nmodel(1).loss.backward()\n"
    assert _reasons(text) == ([why] if why else [])


_PARSES = """\
import argparse
from transformers import AutoModelForCausalLM


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", "--lr", type=float)
    parser.add_argument("--decay-rate", dest="decay")
    parser.add_argument("rows")
    {more}
    args = parser.parse_args()
    return args


def main(args):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    print(args.rate, args.decay, args.rows)
    {asks}
    model(1).loss.backward()


if __name__ == "__main__":
    given = get_args()
    main(given)
"""
_NO_STEPS = "the parser of train.py has no steps, which the script asks it for"


@pytest.mark.parametrize(
    ("more", "asks", "is_sure"),
    [
        ("pass", "print(args.steps)", True),
        ("pass", "args.steps = 1; print(args.steps)", False),
        ("pass", "args = make(); print(args.steps)", False),
        ("pass", "print(args.steps if hasattr(args, 'steps') else 1)", False),
        ("parser.set_defaults(steps=1)", "print(args.steps)", False),
        ("add_more(parser)", "print(args.steps)", False),
        ("parser.add_argument(*words)", "print(args.steps)", False),
        ("parser.add_argument('--more-steps', dest='steps')", "print(args.steps)", False),
    ],
)
def test_what_a_parser_does_not_give(more: str, asks: str, is_sure: bool) -> None:
    found = _reasons(_PARSES.format(more=more, asks=asks))
    assert found == ([_NO_STEPS] if is_sure else [])


_CLASSES = """\
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, HfArgumentParser, TrainingArguments


@dataclass
class ModelArguments:
    name: str = "gpt2"

    def both(self):
        return self.name


parser = HfArgumentParser((ModelArguments, TrainingArguments))
model_args, training_args = parser.parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(model_args.name)
{asks}
model(1).loss.backward()
"""


@pytest.mark.parametrize(
    ("asks", "is_sure"),
    [
        ("print(model_args.path)", True),
        ("print(model_args.both(), training_args.path)", False),
        ("model_args.path = 1\nprint(model_args.path)", False),
    ],
)
def test_what_a_class_of_the_project_s_options_does_not_have(asks: str, is_sure: bool) -> None:
    why = "ModelArguments has no path, which train.py asks it for"
    assert _reasons(_CLASSES.format(asks=asks)) == ([why] if is_sure else [])


_CONFIGURED = """\
import yaml
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from elsewhere import complete


def load(path):
    with open(path) as file:
        config = yaml.safe_load(file)
    return config


def main():
    cfg = load("a.yaml")
    {before}
    model = AutoModelForCausalLM.from_pretrained(cfg["model"]["name"])
    args = TrainingArguments(output_dir="o", warmup_steps={asked})
    Trainer(model=model, args=args, train_dataset=data).train()


if __name__ == "__main__":
    main()
"""


def _of_config(asked: str, before: str = "pass", more: str = "") -> list[str]:
    script = _CONFIGURED.replace("{before}", before).replace("{asked}", asked)
    config = f"model: {{name: gpt2}}\ntraining:\n  lr: 1.0e-5\n{more}"
    document = workspace_of({"train.py": script, "a.yaml": config}).document("train.py")
    assert document is not None
    return [fact.detail["why"] for fact in document.facts if fact.kind == "ends-early"]


@pytest.mark.parametrize(
    ("handled", "is_sure"),
    [
        ("print(error)\n        raise", True),
        ("print(error)\n        sys.exit(1)", True),
        ('raise RuntimeError("no") from error', True),
        ("print(error)", False),
        ("if sometimes():\n            raise", False),
    ],
)
def test_what_is_raised_ends_the_program_where_whoever_catches_it_does(
    handled: str, is_sure: bool
) -> None:
    called = f"    try:\n        main()\n    except Exception as error:\n        {handled}\n"
    script = _CONFIGURED.replace("{before}", "pass").replace("{asked}", 'cfg["lr"]')
    script = script.replace('__main__":\n    main()\n', f'__main__":\n{called}')
    files = {"train.py": script, "a.yaml": "model: {name: gpt2}\n"}
    document = workspace_of(files).document("train.py")
    assert document is not None
    found = [fact.detail["why"] for fact in document.facts if fact.kind == "ends-early"]
    assert found == (["a.yaml has no lr, which train.py asks it for"] if is_sure else [])


def test_a_key_that_the_config_file_has_not_ends_the_program() -> None:
    why = "a.yaml has no training.warmup, which train.py asks it for"
    assert _of_config('cfg["training"]["warmup"]') == [why]
    assert _of_config('cfg["training"]["warmup"]', "print(cfg)") == [why]


@pytest.mark.parametrize(
    ("asked", "before", "more"),
    [
        ('cfg["training"]["lr"]', "pass", ""),
        ('cfg["training"].get("warmup", 0)', "pass", ""),
        ('cfg["training"]["warmup"] if "warmup" in cfg["training"] else 0', "pass", ""),
        ('cfg["training"]["warmup"]', 'cfg["training"]["warmup"] = 3', ""),
        ('cfg["training"]["warmup"]', 'cfg["training"].setdefault("warmup", 3)', ""),
        ('cfg["training"]["warmup"]', "cfg.update(more)", ""),
        ('cfg["training"]["warmup"]', "complete(cfg)", ""),
        ('cfg["training"]["warmup"]', 'complete(cfg["training"])', ""),
        ('cfg["training"]["warmup"]', "cfg = {**defaults, **cfg}", ""),
        ('cfg["training"]["warmup"]', "pass", "  <<: {warmup: 3}\n"),
        ('cfg["training"]["warmup"]', "pass", "  warmup: null\n"),
        ('cfg["training"]["warmup"]', "if sometimes():\n        return", ""),
    ],
)
def test_a_key_that_may_be_there_does_not(asked: str, before: str, more: str) -> None:
    assert not _of_config(asked, before, more)
