"""A quantization that an option of the script's own asks for."""

from __future__ import annotations

import pytest
from tests.linked import run_of

_SCRIPT = """\
from dataclasses import dataclass, field
from typing import Optional
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, HfArgumentParser
from trl import DPOConfig, DPOTrainer

@dataclass
class ScriptArguments:
    quantize: Optional[bool] = field(default={default})

def main(args, dpo_config):
    {quantization}
    model_kwargs = dict(quantization_config=quantization)
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", **model_kwargs)
    trainer = DPOTrainer(model=model, args=dpo_config, train_dataset=data)
    trainer.train()

parser = HfArgumentParser((ScriptArguments, DPOConfig))
args, dpo_config = parser.parse_args_into_dataclasses()
main(args, dpo_config)
"""
_CHOSEN = "quantization = BitsAndBytesConfig(load_in_4bit=True) if args.quantize else None"
_OTHERWISE = "quantization = None if not args.quantize else BitsAndBytesConfig(load_in_8bit=True)"
_BRANCH = (
    "quantization = None\n    if args.quantize:\n"
    "        quantization = BitsAndBytesConfig(load_in_4bit=True)"
)


def _method(quantization: str, option: str, default: bool = False) -> str | None:
    script = _SCRIPT.format(quantization=quantization, default=default)
    launch = f"python train.py --output_dir o --bf16 {option}\n"
    return run_of({"train.py": script, "run.sh": launch}, "run.sh").plan.quant.method


@pytest.mark.parametrize(
    ("quantization", "method"), [(_CHOSEN, "bnb4"), (_BRANCH, "bnb4"), (_OTHERWISE, "bnb8")]
)
def test_an_option_decides_whether_the_loader_is_given_it(quantization, method):
    assert _method(quantization, "--quantize") == method
    assert _method(quantization, "") == "none"


def test_the_option_s_own_default_counts_where_no_line_says_it():
    assert _method(_CHOSEN, "", default=True) == "bnb4"
    assert _method(_CHOSEN, "--quantize False", default=True) == "none"


def test_so_it_does_where_nothing_launches_the_script():
    for default, method in ((True, "bnb4"), (False, "none")):
        script = _SCRIPT.format(quantization=_CHOSEN, default=default)
        script = script.replace("args=dpo_config", "args=DPOConfig(output_dir='o')")
        assert run_of({"train.py": script}, "train.py").plan.quant.method == method
