"""What a loader lays into the host's RAM does not run a GPU out of memory."""

from __future__ import annotations

import pytest
from tests.linked import report_of, run_of

from oomlint.judgement import judgement_of
from oomlint.linting.rule import Severity

_LOOP = """\
import torch, yaml
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

with open("train.yaml") as file:
    config = yaml.safe_load(file)
model = AutoModelForCausalLM.from_pretrained(
    config["model"], torch_dtype=torch.bfloat16{placed}
)
model.gradient_checkpointing_enable()
model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-4)
for batch in loader:
    model(input_ids=batch, labels=batch).loss.backward()
    optimizer.step()
"""
_AUTO = ', device_map="auto"'


@pytest.mark.parametrize(
    ("model", "placed", "verdict"),
    [
        ("Qwen/Qwen2.5-32B", _AUTO, "unknown"),
        ("Qwen/Qwen2.5-32B", ', device_map="cuda:0"', "does_not_fit"),
    ],
)
def test_weights_that_one_gpu_has_no_room_for(model: str, placed: str, verdict: str) -> None:
    job = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n"
    files = {"train.py": _LOOP.format(placed=placed), "train.yaml": f"model: {model}\n"}
    files["train.slurm"] = job
    run = run_of(files, "train.slurm", hardware="4xRTX-4090-24GB")
    judgement = judgement_of(run)
    assert judgement.verdict == verdict
    found = report_of(files, "train.slurm", hardware="4xRTX-4090-24GB").diagnoses
    errors = [each for each in found if each.severity > Severity.INFO]
    assert bool(errors) is (verdict == "does_not_fit")
