"""LightningCLI: classes that a YAML names, what they take from it, and lines that hand it over."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import link, run_of

from oomlint.runs.run import Run

_MODULE = """\
import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM


class Lit(pl.LightningModule):
    def __init__(self, model_name: str, lr: float = 1e-5):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained({name}, torch_dtype=torch.bfloat16)

    def training_step(self, batch, index):
        return self.model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


class Data(pl.LightningDataModule):
    def __init__(self, batch_size: int = 4):
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size)
"""
_CONFIG = """\
trainer:
  accelerator: gpu
  devices: 4
  strategy: {strategy}
  precision: bf16-mixed
  accumulate_grad_batches: 8
model:
  class_path: proj.lit.Lit
  init_args:
    model_name: meta-llama/Llama-2-7b-hf
data:
  class_path: proj.lit.Data
  init_args:
    batch_size: 16
"""
_ZERO = """
    class_path: lightning.pytorch.strategies.DeepSpeedStrategy
    init_args:
      stage: 3
      offload_optimizer: true"""
_FSDP = """
    class_path: lightning.pytorch.strategies.FSDPStrategy
    init_args:
      auto_wrap_policy: [transformers.models.llama.modeling_llama.LlamaDecoderLayer]"""
_SCRIPT = "from lightning.pytorch.cli import LightningCLI\n\nif __name__ == '__main__':\n    LightningCLI()\n"


def _files(
    strategy: str = "deepspeed_stage_3", name: str = "self.hparams.model_name", home: str = ""
) -> dict[str, str]:
    config = _CONFIG.format(strategy=strategy)
    return {"a.yaml": config, f"{home}proj/lit.py": _MODULE.replace("{name}", name)}


def _run(config: str) -> Run:
    return run_of({**_files(), "a.yaml": config}, "a.yaml")


@pytest.mark.parametrize("name", ["model_name", "self.hparams.model_name", "self.model_name"])
@pytest.mark.parametrize("home", ["", "src/"])
def test_classes_of_the_project_take_what_the_file_gives_them(name: str, home: str) -> None:
    run = run_of(_files(name=name, home=home), "a.yaml")
    plan = run.plan
    assert (run.framework, plan.model.id, plan.load.dtype) == (
        "lightning", "meta-llama/Llama-2-7b-hf", "bf16",
    )  # fmt: skip
    assert (plan.batch.micro, plan.batch.grad_accum, plan.parallel.world) == (16, 8, 4)
    assert (plan.parallel.backend, plan.parallel.zero.stage) == ("zero", 3)
    assert plan.optimizer.kind == "adamw"


@pytest.mark.parametrize(
    ("strategy", "backend", "stage", "offload"),
    [
        ("deepspeed_stage_2_offload", "zero", 2, "cpu"),
        (_ZERO, "zero", 3, "cpu"),
        ("ddp", "ddp", None, None),
        (_FSDP, "fsdp1", None, None),
    ],
)
def test_strategies_by_name_and_by_class(
    strategy: str, backend: str, stage: Any, offload: Any
) -> None:
    plan = run_of(_files(strategy), "a.yaml").plan
    assert (plan.parallel.backend, plan.parallel.zero.stage) == (backend, stage)
    assert plan.offload.optimizer == offload
    assert backend != "fsdp1" or plan.parallel.fsdp.wrap == "transformer"


def test_a_line_counts_for_more_than_the_file() -> None:
    line = "python train.py fit --config a.yaml --trainer.devices=2 --trainer.precision bf16-true\n"
    files = {**_files(), "run.sh": line, "train.py": _SCRIPT}
    plan = run_of(files, "run.sh").plan
    assert (plan.parallel.world, plan.batch.micro) == (2, 16)
    later = files | {"b.yaml": "trainer:\n  devices: 8\n", "run.sh": line.replace("fit", "test")}
    assert all(run.plan.parallel.world == 4 for run in link(later, "run.sh", "a.yaml").runs)


@pytest.mark.parametrize(
    ("change", "written"),
    [
        ({"batch.micro": 2, "batch.grad_accum": 64}, "batch_size: 2\n"),
        ({"batch.micro": 2, "batch.grad_accum": 64}, "accumulate_grad_batches: 64\n"),
    ],
)
def test_wishes_go_where_the_value_stands(change: dict[str, Any], written: str) -> None:
    assert written in fixed(_run, _files()["a.yaml"], change)


def test_what_is_not_at_hand_is_no_run() -> None:
    """A class of another package may train anything."""
    assert not link({"a.yaml": _files()["a.yaml"]}).runs
    other = {**_files(), "proj/lit.py": _MODULE.replace("AutoModelForCausalLM", "CLIPModel")}
    assert not link(other, "a.yaml").runs


def test_an_argument_that_the_file_leaves_out_is_open() -> None:
    config = _files()["a.yaml"].replace("    model_name: meta-llama/Llama-2-7b-hf", "    lr: 1e-5")
    assert _run(config).plan.model.id is None
