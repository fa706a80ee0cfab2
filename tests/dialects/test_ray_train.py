"""Scripts whose training Ray runs once on each of its workers."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.runs.run import Run

_SCRIPT = """\
import ray.train
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def train_func(config):
    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
    args = TrainingArguments(output_dir="o", per_device_train_batch_size=2, bf16=True, deepspeed="zero3.json")
    trainer = Trainer(model=model, args=args, train_dataset=data)
    trainer.train()


ray_trainer = TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=4, use_gpu=True))
ray_trainer.fit()
"""
_ZERO = '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}'


def _run(text: str = _SCRIPT) -> Run:
    files = {"train.py": text, "zero3.json": _ZERO}
    return run_of(files, "train.py", hardware="8xA100-80GB")


def test_a_worker_is_a_rank() -> None:
    plan = _run().plan
    assert (plan.parallel.world, plan.parallel.dp, plan.batch.global_) == (4, 4, 8)
    assert plan.parallel.zero.stage == 3


def test_more_workers_than_a_node_has_gpus() -> None:
    text = _SCRIPT.replace("num_workers=4", "num_workers=16")
    parallel = run_of({"train.py": text, "zero3.json": _ZERO}, "train.py").plan.parallel
    assert (parallel.world, parallel.nodes, parallel.gpus_per_node) == (16, 2, 8)


def test_a_loop_of_its_own_is_run_so_too() -> None:
    start = _SCRIPT.index("    args =")
    loop = (
        "    model = ray.train.torch.prepare_model(model)\n    optimizer = torch.optim.AdamW(model.parameters())\n"
        "    for batch in batches:\n        loss = model(**batch).loss\n        loss.backward()\n        optimizer.step()\n"
    )
    text = "import torch\n" + _SCRIPT[:start] + loop + _SCRIPT[_SCRIPT.index("\n\nray_trainer") :]
    assert _run(text).plan.parallel.world == 4


@pytest.mark.parametrize(
    ("read", "other"),
    [
        ("use_gpu=True", "use_gpu=False"),
        ("use_gpu=True", "use_gpu=gpus"),
        ("from ray.train import", "from ours import"),
        ("num_workers=4", "num_workers=workers"),
    ],
)
def test_workers_that_are_not_read(read: str, other: str) -> None:
    assert _run(_SCRIPT.replace(read, other)).plan.parallel.world != 4
