"""``unsloth train``: its config file, its options, and fixes of both."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.linked import run_of

from oomlint.dialects import registry
from oomlint.files.workspace import Workspace
from oomlint.fix.edits import make_fix
from oomlint.linting.rule import Proposal
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_CONFIG = """\
model: unsloth/Llama-3.1-8B
data:
  dataset: yahma/alpaca-cleaned
training:
  training_type: lora
  max_seq_length: 4096
  batch_size: 4
lora:
  lora_r: 32
  target_modules: q_proj,v_proj
"""


def _run(files: dict[str, str]) -> Run:
    run = run_of(files)
    assert run.framework == "unsloth"
    return run


def test_the_config_alone() -> None:
    plan = _run({"c.yaml": _CONFIG}).plan
    assert (plan.trainable.method, plan.trainable.r, plan.quant.method) == ("qlora", 32, "bnb4")
    assert plan.trainable.targets == ("q_proj", "v_proj")
    assert (plan.batch.micro, plan.batch.grad_accum, plan.seq.max_len) == (4, 4, 4096)
    assert (plan.optimizer.name, plan.checkpointing.mode) == ("adamw_8bit", "full")


def test_options_win_over_the_config() -> None:
    line = "CUDA_VISIBLE_DEVICES=0 unsloth train --config c.yaml --batch-size 1 --no-load-in-4bit\n"
    plan = _run({"c.yaml": _CONFIG, "go.sh": line}).plan
    assert (plan.batch.micro, plan.trainable.method, plan.trainable.r) == (1, "lora", 32)


def test_options_alone_have_the_same_defaults() -> None:
    plan = _run({"go.sh": "unsloth train --model unsloth/Llama-3.1-8B --dataset x\n"}).plan
    assert (plan.batch.micro, plan.trainable.r, plan.seq.max_len) == (2, 64, 2048)
    full = "unsloth train --model unsloth/Llama-3.1-8B --training-type full\n"
    plan = _run({"go.sh": full}).plan
    assert (plan.trainable.method, plan.quant.method) == ("full", "none")


def test_a_fix_is_written_where_the_value_stands() -> None:
    run = _run({"c.yaml": _CONFIG})
    fix = make_fix(run, Proposal.set("t", {"batch.micro": 1, "batch.grad_accum": 16}), "gpu")
    assert fix is not None
    assert fix.reason is None
    text = run.claims[0].document.source.edited(fix.edits).text
    assert "  batch_size: 1\n  gradient_accumulation_steps: 16\n" in text


@pytest.mark.parametrize(
    "text",
    [
        "training:\n  max_seq_length: 1\n  load_in_4bit: true\nother: 1\n",
        "training:\n  load_in_4bit: true\nmodel: x\n",
        "training: [load_in_4bit, max_seq_length]\n",
    ],
)
def test_files_of_others(text: str) -> None:
    linked = Linker(Workspace(Path("/x"), {"c.yaml": text.encode()}), registry(), LinkOptions())
    assert "unsloth" not in linked.link(["c.yaml"]).recognised.values()
