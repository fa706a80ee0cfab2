"""A device map that Accelerate or transformers refuses ends the run: what it would need is a remark beside it."""

from __future__ import annotations

import pytest
from tests.linked import report_of

from oomlint.judgement.endings import endings_of
from oomlint.linting.rule import Severity, When
from oomlint.runs.run import Run

_LOAD = """\
import torch
from transformers import AutoModelForCausalLM{more}
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-13b-hf", torch_dtype=torch.bfloat16, device_map="auto")
"""
_TRAINER = """\
args = TrainingArguments(output_dir="out", per_device_train_batch_size=1, bf16=True{more})
Trainer(model=model, args=args, train_dataset=data, data_collator=pad).train()
"""
_LOOP = """\
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
"""
_NAMES = ", Trainer, TrainingArguments"
_UNDER_TRAINER = _LOAD.format(more=_NAMES) + _TRAINER.format(more="")
_UNDER_ZERO_3 = _LOAD.format(more=_NAMES) + _TRAINER.format(more=", deepspeed='ds.json'")


@pytest.mark.parametrize(
    ("script", "when"),
    [
        (_UNDER_TRAINER, When.LOADED),
        (_UNDER_ZERO_3, When.LOADED),
        (_LOAD.format(more="") + _LOOP, None),
    ],
)
def test_a_spread_model_under_a_launcher_ends_what_trains_by_accelerate(
    script: str, when: When | None
) -> None:
    files = {
        "train.py": script,
        "run.sh": "torchrun --nproc_per_node 4 train.py\n",
        "ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}\n',
    }
    report = report_of(files, hardware="4xRTX-4090-24GB")
    (run,) = (each for each in report.runs if isinstance(each, Run) and not each.is_fragment)
    found = {each.code: each.when for each in endings_of(run)}
    assert found.get("OOM704") is when
    told = {each.rule.code: each.severity for each in report.diagnoses}
    assert told["OOM704"] is Severity.ERROR
    assert told["OOM105"] is (Severity.ERROR if when is None else Severity.INFO)
