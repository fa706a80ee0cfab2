"""Contexts that a model is made in, and wrappers of Colossal-AI: what they may decide is unread."""

from __future__ import annotations

import pytest
from tests.linked import link, run_of

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

_HEAD = """\
import torch, colossalai, elsewhere
from contextlib import contextmanager
from colossalai.zero.init_ctx import ZeroInitContext
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

@contextmanager
def timed(what):
    yield

@contextmanager
def sharded(what):
    yield

with {context}:
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
{wraps}
"""
_TRAINER = """\
how = TrainingArguments("out", per_device_train_batch_size=4, bf16=True)
trainer = Trainer(model=model, args=how, train_dataset=data)
trainer.train()
"""
_LOOP = """\
optimizer = torch.optim.AdamW(model.parameters())
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
if __name__ == "__main__":
    pass
"""
_LINE = "torchrun --nproc_per_node 4 train.py\n"


def _level(context: str, trains: str, wraps: str = "") -> Level:
    text = _HEAD.format(context=context, wraps=wraps) + trains
    run = run_of({"train.py": text, "run.sh": _LINE})
    assert run.plan.parallel.backend == "ddp"
    return run.level(f.parallel.backend)


@pytest.mark.parametrize("trains", [_TRAINER, _LOOP])
@pytest.mark.parametrize(
    ("context", "level"),
    [
        ("ZeroInitContext(shard_param=True)", Level.UNREAD),
        ("elsewhere.Placed()", Level.UNREAD),
        ("sharded('load')", Level.UNREAD),
        ("timed('load')", Level.DEFAULT),
        ("torch.device('cuda')", Level.DEFAULT),
        ("how.main_process_first()", Level.DEFAULT),
    ],
)
def test_a_context_that_nobody_knows_may_part_the_model(
    context: str, level: Level, trains: str
) -> None:
    assert _level(context, trains) is level


@pytest.mark.parametrize(
    "wraps",
    [
        "model = colossalai.zero.zero_model_wrapper(model, 3)",
        "model, *more = colossalai.initialize(model, None)",
        "model, *more = booster.boost(model)",
    ],
)
def test_what_colossal_ai_wraps_is_parted_as_it_is_told(wraps: str) -> None:
    assert _level("torch.device('cuda')", _TRAINER, wraps) is Level.UNREAD


@pytest.mark.parametrize(
    ("head", "runs"),
    [
        ('"""Trains without the Trainer."""\n', 0),
        ("# No Trainer(model) here.\n", 0),
        ("from transformers import Trainer\n", 1),
    ],
)
def test_a_loop_has_a_trainer_where_its_code_has_one(head: str, runs: int) -> None:
    line = (
        "torchrun --nproc_per_node 4 train.py --output_dir out --num_train_epochs 1 --weight_decay 0 "
        "--learning_rate 1e-5 --per_device_train_batch_size 12 --model_name_or_path facebook/opt-6.7b\n"
    )
    loop = f"{head}engine = start(args)\nfor batch in data:\n    engine.backward(engine(**batch))\n"
    assert len(link({"run.sh": line, "train.py": loop}).runs) == runs
