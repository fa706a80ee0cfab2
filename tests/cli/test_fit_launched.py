"""``oomlint fit`` of a script that nothing here launches."""

import json

SCRIPT = """\
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", torch_dtype=torch.bfloat16)
args = SFTConfig(output_dir="out", per_device_train_batch_size={batch}, max_length=4096, packing=True,
    gradient_checkpointing=True, bf16=True)
SFTTrainer(model, args=args, train_dataset=load_dataset("trl-lib/Capybara", split="train")).train()
"""
MACHINE = ("--hardware", "8xA100-40GB")


def launched(oomlint):
    found = oomlint("fit", "train.py", *MACHINE, "--output-format", "json")
    return json.loads(found.stdout)["runs"][0]["launched_with_zero3"]


def test_a_launch_that_shards_is_enough(oomlint, project):
    (project / "train.py").write_text(SCRIPT.format(batch=1))
    shown = oomlint("fit", "train.py", *MACHINE).stdout
    assert "accelerate launch --use_deepspeed --zero_stage 3" in shown
    found = launched(oomlint)
    assert found["fits"]
    peak = f"needs {found['gpu_peak_bytes'] / 2**30:.1f} GiB per GPU, and fits"
    assert peak in " ".join(shown.split())


def test_what_else_it_takes_beside_is_listed(oomlint, project):
    (project / "train.py").write_text(SCRIPT.format(batch=16))
    shown = " ".join(oomlint("fit", "train.py", *MACHINE).stdout.split())
    found = launched(oomlint)
    assert not found["fits"]
    first = found["ways"][0]
    assert "and fits with" in shown
    assert first["changes"][0]["title"] in shown
    assert first["gpu_peak_bytes"] < found["gpu_peak_bytes"]


def test_one_that_a_script_launches_has_none(oomlint, project):
    (project / "train.py").write_text(SCRIPT.format(batch=1))
    (project / "train.sh").write_text("torchrun --nproc_per_node 8 train.py\n")
    assert launched(oomlint) is None
