"""What a thirteenth reading of diffs in public repositories found; the projects here are written anew."""

from __future__ import annotations

import pytest
from tests.fixing import fix_of, repaired
from tests.linked import run_of

from oomlint.plan.fields import f

_AXOLOTL = """\
base_model: meta-llama/Llama-3.1-8B
datasets:
  - path: a/b
    type: alpaca
adapter: lora

# precision
# 128 GB{remark}; all in bf16
load_in_8bit: false
{blank}load_in_4bit: false
"""


@pytest.mark.parametrize(
    ("remark", "blank", "is_written"),
    [
        (", no quantization needed", "", False),
        (", no quantization needed", "\n", True),  # of another group
        ("", "", True),
    ],
)
def test_what_a_comment_over_a_group_leaves_out_is_not_brought_in(
    remark: str, blank: str, is_written: bool
) -> None:
    run = run_of({"a.yaml": _AXOLOTL.format(remark=remark, blank=blank)})
    fix = fix_of(run, {f.quant.method: "bnb4"})
    assert bool(fix.edits) is is_written
    if not is_written:
        assert "no quantization needed" in str(fix.reason)


_NESTED = """\
distributed_type: DEEPSPEED
num_processes: 2
deepspeed_config:
  zero_optimization:
    stage: 2
    offload_optimizer:
      device: cpu
"""
_COMMAND = (
    "accelerate launch --config_file acc.yaml train.py"
    " --output_dir out --learning_rate 1e-5 --num_train_epochs 1 --bf16 True --per_device_train_batch_size 4\n"
)
_SCRIPT = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
Trainer(model=model, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize("nested", [True, False])
def test_nothing_is_written_beside_what_accelerate_passes_by(nested: bool) -> None:
    config = _NESTED if nested else _NESTED.partition("  zero_opt")[0] + "  zero_stage: 2\n"
    files = {"run.sh": _COMMAND, "train.py": _SCRIPT, "acc.yaml": config}
    run = run_of(files, "run.sh")
    fix = fix_of(run, {f.offload.optimizer: "cpu"})
    assert bool(fix.edits) is not nested


_ACCELERATE = """\
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 8
mixed_precision: bf16
deepspeed_config:
  zero_stage: 2
  zero3_init_flag: false
"""


def test_a_file_that_its_only_run_leaves_stays_as_it_was() -> None:
    """Its processes were made fewer first; the copy that the run then names has that too."""
    command = _COMMAND.replace("acc.yaml", "zero2.yaml").replace("\n", "")
    files = {
        "run.sh": f"{command} --gradient_accumulation_steps 4 --gradient_checkpointing True\n",
        "train.py": _SCRIPT.replace("1.5B", "7B"),
        "zero2.yaml": _ACCELERATE,
    }
    texts = repaired(files, hardware="1xRTX-4090-24GB", unsafe=True).texts
    assert "zero2.yaml" not in texts
    (copy,) = (text for name, text in texts.items() if name.startswith("zero3"))
    assert b"num_processes: 1" in copy
