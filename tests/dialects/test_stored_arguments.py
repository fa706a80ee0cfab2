"""Arguments that a script puts into a dictionary, one by one, before it gives them to a call."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_SCRIPT = """\
from dataclasses import dataclass
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class Ours(TrainingArguments):
    width: int = 16

(args,) = HfArgumentParser(Ours).parse_args_into_dataclasses()
more = {{}}
{stores}
model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', torch_dtype=torch.bfloat16, **more)
Trainer(model=model, args=args, train_dataset=data).train()
"""
_QUANTIZER = "BitsAndBytesConfig(load_in_4bit=args.width == 4, load_in_8bit=args.width == 8)"


def _run(stores: str, options: str) -> Run:
    line = f"python train.py --output_dir o --per_device_train_batch_size 1 {options}\n"
    return run_of({"train.py": _SCRIPT.format(stores=stores), "run.sh": line}, "run.sh")


@pytest.mark.parametrize(
    "stores",
    [
        f"if args.width in [4, 8]:\n    more.update(dict(quantization_config={_QUANTIZER}))",
        f"if args.width in (4, 8):\n    more.update(quantization_config={_QUANTIZER})",
        f"if args.width in [4, 8]:\n    more.update({{'quantization_config': {_QUANTIZER}}})",
        f"if args.width != 16:\n    more['quantization_config'] = {_QUANTIZER}",
        f"if args.width == 16:\n    pass\nelse:\n    more['quantization_config'] = {_QUANTIZER}",
    ],
)
def test_what_one_test_stores_is_known_on_both_of_its_sides(stores: str) -> None:
    for width, method in ((4, "bnb4"), (8, "bnb8"), (16, "none")):
        run = _run(stores, f"--width {width}")
        assert run.plan.quant.method == method
        assert run.level(f.quant.method) < Level.UNREAD
    assert _run(stores, "").plan.quant.method == "none"


@pytest.mark.parametrize(
    "stores",
    [
        f"more['quantization_config'] = {_QUANTIZER}\nmore.pop('quantization_config')",
        f"for each in range(some()):\n    more['quantization_config'] = {_QUANTIZER}",
        f"if args.width == 4:\n    if some():\n        more['quantization_config'] = {_QUANTIZER}",
        f"if some():\n    more.update(dict(quantization_config={_QUANTIZER}))",
    ],
)
def test_what_only_running_tells_stays_open(stores: str) -> None:
    assert _run(stores, "--width 4").level(f.quant.method) is Level.UNREAD
