"""Configs that a function of another file of the project loads or makes."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_TRAINS = """\
{imports}
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
{before}
model = AutoModelForCausalLM.from_pretrained({name}{more})
args = TrainingArguments(output_dir="out", per_device_train_batch_size=2, bf16=True)
Trainer(model=model, args=args, train_dataset=data).train()
"""
_LOADER = "import yaml\n\ndef load_config(path):\n    with open(path) as f:\n        return yaml.safe_load(f)\n"
_CONFIG = "model_name: Qwen/Qwen2.5-0.5B\n"


@pytest.mark.parametrize(
    ("package", "imports"),
    [
        ("from .config import load_config\n", "from own.utils import load_config"),
        ("from own.utils.config import load_config as load_config\n", "from own.utils import load_config"),
        ("from .config import load_config\n", "from own import utils"),
    ],
)  # fmt: skip
def test_a_package_hands_on_the_function_that_loads_a_config(package: str, imports: str) -> None:
    call = "utils.load_config" if imports.endswith("utils") else "load_config"
    script = _TRAINS.format(
        imports=imports, before=f'cfg = {call}("c.yaml")', name='cfg["model_name"]', more=""
    )
    files = {
        "train.py": script,
        "own/__init__.py": "",
        "own/utils/__init__.py": package,
        "own/utils/config.py": _LOADER,
        "c.yaml": _CONFIG,
    }
    assert run_of(files, "train.py").plan.model.id == "Qwen/Qwen2.5-0.5B"


_QUANTIZES = """\
import torch
from transformers import BitsAndBytesConfig

def build_quantization({parameter}):
{body}
"""


def _quantized(body: str, parameter: str = "dtype", given: str = "torch.bfloat16") -> Run:
    script = _TRAINS.format(
        imports="import torch\nfrom own import build_quantization",
        before=f"bnb = build_quantization({given})",
        name='"Qwen/Qwen2.5-0.5B"',
        more=", quantization_config=bnb",
    )
    body = "".join(f"    {line}\n" for line in body.splitlines())
    own = _QUANTIZES.format(parameter=parameter, body=body)
    return run_of({"train.py": script, "own.py": own}, "train.py", hardware="1xRTX-4090-24GB")


def test_a_function_of_another_file_makes_what_quantizes() -> None:
    run = _quantized("return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=dtype)")
    assert (run.plan.quant.method, run.plan.quant.compute_dtype) == ("bnb4", "bf16")
    by_name = _quantized("config = BitsAndBytesConfig(load_in_8bit=True)\nreturn config")
    assert by_name.plan.quant.method == "bnb8"
    by_parameter = _quantized("return BitsAndBytesConfig(load_in_4bit=four)", "four", "True")
    assert by_parameter.plan.quant.method == "bnb4"


@pytest.mark.parametrize(
    "body",
    [
        "return other(dtype)",
        "if dtype:\n    return BitsAndBytesConfig(load_in_4bit=True)\nreturn None",
    ],
)
def test_what_quantizes_is_not_known_where_its_maker_is_not_followed(body: str) -> None:
    run = _quantized(body)
    assert run.level(f.quant.method) is Level.UNREAD


def test_trl_quantizes_by_options_that_its_tables_read() -> None:
    script = _TRAINS.format(
        imports="from trl import get_quantization_config",
        before="bnb = get_quantization_config(model_args)",
        name='"Qwen/Qwen2.5-0.5B"',
        more=", quantization_config=bnb",
    )
    assert run_of({"train.py": script}, "train.py").level(f.quant.method) is not Level.UNREAD


def test_a_config_file_says_what_the_script_calls_the_length_of_samples() -> None:
    script = _TRAINS.format(
        imports="import yaml",
        before='cfg = yaml.safe_load(open("c.yaml"))\nmax_length = int(cfg["longest"])\nkeep(max_length)',
        name='cfg["model_name"]',
        more="",
    )
    files = {"train.py": script, "c.yaml": f"{_CONFIG}longest: 768\n"}
    assert run_of(files, "train.py").plan.seq.max_len == 768
