"""Loops run for a step by the libraries themselves, on a CPU: in which dtypes they store and compute."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from tests.linked import run_of

_PYTHON = os.environ.get("OOMLINT_ORACLE_PYTHON")

pytestmark = pytest.mark.skipif(
    _PYTHON is None, reason="OOMLINT_ORACLE_PYTHON names no interpreter"
)

_MODEL = """\
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
)
LlamaForCausalLM(config).save_pretrained("tiny")
"""
_HEAD = """\
import json

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

seen = {}


def watch(model):
    model.lm_head.register_forward_hook(lambda *given: seen.update(compute=str(given[-1].dtype)))


def report(model, optimizer):
    weight = model.lm_head.weight
    state = next(iter(optimizer.state.values()))["exp_avg"]
    seen.update(param=str(weight.dtype), grad=str(weight.grad.dtype), optim_state=str(state.dtype))
    print(json.dumps(seen))


ids = torch.zeros(2, 8, dtype=torch.long)
data = [{"input_ids": ids[0], "labels": ids[0]}] * 2
"""
_TORCH = """\
model = AutoModelForCausalLM.from_pretrained("tiny", torch_dtype=torch.LOADED)CAST
watch(model)
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(data, batch_size=2):
    CONTEXT
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
report(model, optimizer)
"""
_ACCELERATE = """\
from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="PRECISION", cpu=True)
model = AutoModelForCausalLM.from_pretrained("tiny", torch_dtype=torch.LOADED)
watch(model)
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(data, batch_size=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    accelerator.backward(model(**batch).loss)
    optimizer.step()
report(model, optimizer)
"""
_LIGHTNING = """\
import lightning as L


class Tuner(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("tiny", torch_dtype=torch.LOADED)
        watch(self.model)

    def training_step(self, batch, index):
        return self.model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

    def on_before_zero_grad(self, optimizer):
        if optimizer.state:
            report(self.model, optimizer)


trainer = L.Trainer(
    accelerator="cpu", devices=1, precision="PRECISION", max_steps=2, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Tuner(), DataLoader(data * 2, batch_size=2))
"""
_NO_CONTEXT = "if True:"
_AUTOCAST = 'with torch.autocast("cpu", dtype=torch.bfloat16):'


def _torch(loaded: str, cast: str = "", context: str = _NO_CONTEXT) -> str:
    text = _TORCH.replace("LOADED", loaded).replace("CAST", cast)
    return text.replace("CONTEXT", context)


def _with(text: str, loaded: str, precision: str) -> str:
    return text.replace("LOADED", loaded).replace("PRECISION", precision)


_BODIES = (
    _torch("float32"),
    _torch("bfloat16"),
    _torch("float32", cast=".to(torch.bfloat16)"),
    _torch("float32", cast=".bfloat16()"),
    _torch("float32", context=_AUTOCAST),
    _with(_ACCELERATE, "float32", "no"),
    _with(_ACCELERATE, "float32", "bf16"),
    _with(_ACCELERATE, "bfloat16", "bf16"),
    _with(_LIGHTNING, "float32", "32-true"),
    _with(_LIGHTNING, "float32", "bf16-mixed"),
    _with(_LIGHTNING, "float32", "bf16-true"),
    _with(_LIGHTNING, "bfloat16", "bf16-mixed"),
)
# One interpreter for all of them: to import the libraries takes longer than to train.
_DRIVER = """
import contextlib, io, json, sys

answers = []
for body in json.load(sys.stdin):
    from accelerate.state import AcceleratorState, PartialState

    AcceleratorState._reset_state()
    PartialState._reset_state()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(body, {"__name__": "__main__"})
    answers.append(json.loads([line for line in said.getvalue().splitlines() if line[:1] == "{"][-1]))
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What each loop says of its dtypes once it has made a step."""
    assert _PYTHON is not None
    environment = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [_PYTHON, "-c", _MODEL + _DRIVER],
        cwd=tmp_path_factory.mktemp("loops"),
        env=environment,
        input=json.dumps([_HEAD + body for body in _BODIES]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.mark.parametrize("number", range(len(_BODIES)))
def test_a_loop_stores_and_computes_as_its_library_does(
    number: int, told: list[dict[str, str]]
) -> None:
    words = {"torch.float32": "fp32", "torch.bfloat16": "bf16"}
    text = _HEAD + _BODIES[number]
    plan = run_of({"train.py": text, "run.sh": "python train.py\n"}).plan
    ours = {name: getattr(plan.precision, name) for name in told[number]}
    assert ours == {name: words[dtype] for name, dtype in told[number].items()}
