"""What a script hands to its trainer may be made by functions of modules beside it."""

from __future__ import annotations

import pytest
from tests.fixing import fixed
from tests.linked import run_of

from oomlint.plan.fields import f
from oomlint.run import Run

TRAIN = """\
import yaml
from transformers import Trainer, TrainingArguments
from tools.models import adapter, load

cfg = yaml.safe_load(open("config.yaml"))
model = load(cfg["model"], four_bits=cfg.get("four_bits", False))
args = TrainingArguments(output_dir="out", per_device_train_batch_size=4)
Trainer(model=model, args=args, peft_config=adapter(cfg), train_dataset=data).train()
"""
MODELS = """\
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

def quantizer(four_bits):
    if not four_bits:
        return None
    return BitsAndBytesConfig(load_in_4bit=True)

def load(name, four_bits=False):
    return AutoModelForCausalLM.from_pretrained(
        name, dtype=torch.bfloat16, quantization_config=quantizer(four_bits)
    )

def load_judge(name, four_bits=False):
    return AutoModelForCausalLM.from_pretrained(name, quantization_config=quantizer(four_bits))

def adapter(cfg):
    if not cfg.get("use_lora"):
        return None
    return LoraConfig(r=cfg["rank"], target_modules=["q_proj"])
"""
CONFIG = "model: Qwen/Qwen2.5-7B\nrank: 8\n"


def _run(config: str = CONFIG, train: str = TRAIN, models: str = MODELS) -> Run:
    files = {"train.py": train, "tools/models.py": models, "config.yaml": config}
    return run_of(files, "train.py")


def test_the_model_is_what_the_function_loads() -> None:
    run = _run()
    assert run.plan.model.id == "Qwen/Qwen2.5-7B"
    assert run.plan.load.dtype == "bf16"
    assert run.plan.trainable.method == "full"
    assert run.plan.quant.method == "none"
    location = run.settings[f.load.dtype].origin.location
    assert location is None or location.path == "tools/models.py"


@pytest.mark.parametrize(
    ("more", "method"), [("use_lora: true\n", "lora"), ("use_lora: false\n", "full")]
)
def test_a_file_decides_what_a_function_returns(more: str, method: str) -> None:
    assert _run(CONFIG + more).plan.trainable.method == method


def test_a_switch_reaches_through_the_functions_of_a_module() -> None:
    assert _run(CONFIG + "four_bits: true\n").plan.quant.method == "bnb4"


def test_a_fix_goes_into_the_module() -> None:
    models = MODELS.replace("bfloat16", "float32")

    def read(text: str) -> Run:
        return _run(models=text)

    assert fixed(read, models, {f.load.dtype: "bf16"}) == models.replace(
        "torch.float32", chr(34) + "bfloat16" + chr(34)
    )


def test_functions_whose_result_nobody_uses_make_no_part() -> None:
    train = TRAIN.replace("model = load(", "load_judge(cfg['judge'])\nmodel = load(").replace(
        "import adapter, load", "import adapter, load, load_judge"
    )
    assert _run(CONFIG + "judge: Qwen/Qwen2.5-72B\n", train).plan.model.id == "Qwen/Qwen2.5-7B"


def test_a_function_that_is_called_for_two_models_tells_neither() -> None:
    train = TRAIN.replace("args = ", "other = load('Qwen/Qwen2.5-72B')\nargs = ")
    assert _run(train=train).plan.model.id is None


def test_what_a_function_changes_in_a_config_is_not_read() -> None:
    models = MODELS + "\ndef fill(cfg):\n    cfg['model'] = os.environ['MODEL']\n"
    train = TRAIN.replace("import adapter", "import fill, adapter").replace(
        "model = load", "fill(cfg)\nmodel = load"
    )
    assert _run(train=train, models=models).plan.model.id is None


def test_a_branch_that_the_file_rules_out_makes_no_part() -> None:
    train = TRAIN.replace(
        "model = load(cfg",
        "if cfg.get('judge'):\n    model = load_judge(cfg['judge'])\nelse:\n    model = load(cfg",
    ).replace("import adapter, load", "import adapter, load, load_judge")
    assert _run(train=train).plan.model.id == "Qwen/Qwen2.5-7B"


def test_an_option_reaches_into_a_module() -> None:
    train = (
        TRAIN.replace('load(cfg["model"]', "load(args.weights")
        .replace(
            "import yaml\n",
            "import argparse, yaml\nparser = argparse.ArgumentParser()\n"
            'parser.add_argument("--weights", required=True)\nargs = parser.parse_args()\n',
        )
        .replace("args = TrainingArguments", "how = TrainingArguments")
        .replace("args=args", "args=how")
    )
    files = {"train.py": train, "tools/models.py": MODELS, "config.yaml": CONFIG}
    run = run_of(files | {"run.sh": "python train.py --weights Qwen/Qwen2.5-14B\n"})
    assert run.plan.model.id == "Qwen/Qwen2.5-14B"


def test_a_loader_of_an_adapter_or_of_who_knows_what_is_no_part() -> None:
    models = MODELS.replace(
        "def load(",
        "def resume(path):\n    return AutoPeftModelForCausalLM.from_pretrained('a/b')\n\ndef load(",
    )
    train = TRAIN.replace("model = load", "old = resume(1)\nmodel = load").replace(
        "import adapter", "import resume, adapter"
    )
    assert _run(train=train, models=models).plan.model.id == "Qwen/Qwen2.5-7B"


def test_a_config_class_of_the_project_is_no_config_of_a_library() -> None:
    models = MODELS.replace(
        "def load(", "def made():\n    return RewardConfig(backbone='x')\n\ndef load("
    )
    train = TRAIN.replace("model = load", "other = made()\nmodel = load").replace(
        "import adapter", "import made, adapter"
    )
    run = _run(train=train, models=models)
    assert not run.stray
    assert run.plan.batch.micro == 4
