"""nanoGPT and scripts made of it: globals, the files and options that change them, and what a fix writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import link, report_of, run_of

from oomlint.dialects import registry
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.memory.traits import traits_of
from oomlint.models.count import count_parameters
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_TRAIN = """\
import os
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from model import GPTConfig, GPT

out_dir = 'out'
eval_interval = 2000
init_from = 'scratch'
gradient_accumulation_steps = 5 * 8
batch_size = 12
block_size = 1024
n_layer = 12
n_head = 12
n_embd = 768
dropout = 0.0
bias = False
grad_clip = 1.0
dtype = 'bfloat16' if torch.cuda.is_bf16_supported() else 'float16'
compile = True
exec(open('configurator.py').read())
if int(os.environ.get('RANK', -1)) != -1:
    gradient_accumulation_steps //= int(os.environ['WORLD_SIZE'])
model_args = dict(n_layer=n_layer, n_head=n_head, n_embd=n_embd, block_size=block_size, bias=bias, vocab_size=None)
model = GPT(GPTConfig(**model_args)) if init_from == 'scratch' else GPT.from_pretrained(init_from)
optimizer = model.configure_optimizers()
for step in range(10):
    logits, loss = model(X, Y)
    loss.backward()
    optimizer.step()
"""
_CONFIG = "batch_size = 16\nn_layer = 24\nn_embd = 1024\nn_head = 16\nmax_iters = 100\ndtype = 'float16'\n"
_LINE = "torchrun --standalone --nproc_per_node=8 train.py config/large.py --batch_size=4\n"


def _run(script: str) -> Run:
    return run_of({"train.py": script})


def _lined(line: str, script: str = _TRAIN) -> Run:
    return run_of({"train.py": script, "config/large.py": _CONFIG, "run.sh": line}, "run.sh")


def test_a_gpt2_of_the_globals_sizes() -> None:
    run = _run(_TRAIN)
    plan = run.plan
    assert (run.framework, run.stray) == ("nanogpt", ())
    dims = plan.model.dims
    assert dims is not None
    # 50,304 x 768 and 1,024 x 768 embeddings, twelve blocks of 12 x 768² with two norms, and the last norm.
    weights = 50304 * 768 + 1024 * 768 + 12 * (12 * 768**2 + 2 * 768) + 768
    biases = (
        12 * (9 * 768 + 2 * 768) + 768
    )  # of linear layers and of norms: GPT-2 has them, whatever the global says
    assert count_parameters(dims).total == weights + biases
    assert (plan.batch.micro, plan.seq.max_len, plan.seq.packing) == (12, 1024, "concat")
    assert (plan.precision.param, plan.precision.compute, plan.precision.autocast) == (
        "fp32", "bf16", True,
    )  # fmt: skip
    assert run.level(f.model.dims) is Level.ASSUMED  # of what the tokenizer's file says


def test_files_and_options_change_globals_in_their_order() -> None:
    plan = _lined(_LINE).plan
    dims = plan.model.dims
    assert dims is not None
    assert (dims.layers, dims.hidden, dims.heads) == (24, 1024, 16)
    assert (plan.batch.micro, plan.batch.grad_accum, plan.parallel.world) == (4, 5, 8)
    assert (plan.precision.compute, plan.parallel.backend, plan.total_steps) == ("fp16", "ddp", 100)


def test_weights_of_gpt2_are_loaded_by_name() -> None:
    plan = _lined("python train.py --init_from=gpt2-xl --batch_size=1\n").plan
    assert (plan.model.id, plan.model.from_scratch) == ("gpt2-xl", False)
    assert plan.model.dims is not None
    assert plan.model.dims.layers == 48


def test_a_model_of_other_arguments_is_open() -> None:
    other = _TRAIN.replace("vocab_size=None)", "vocab_size=None, n_experts=4)")
    plan = _run(other).plan
    assert (plan.model.dims, plan.batch.micro) == (None, 12)


def test_what_only_samples_or_has_no_configurator_is_none_of_it() -> None:
    assert not link({"sample.py": _TRAIN.replace("    loss.backward()\n", "")}).runs
    plain = _TRAIN.replace("exec(open('configurator.py').read())\n", "")
    assert all(run.framework != "nanogpt" for run in link({"train.py": plain}).runs)
    line = "python train.py --learning_rate 1e-4\n"
    assert not link({"train.py": "print(1)\n", "run.sh": line}).runs


@pytest.mark.parametrize(
    "line",
    [
        "python train.py --n_layer 12 --block_size 1024\n",
        "python train.py config.yaml --init_from=scratch\n",
        "torchrun train.py --lr=1e-4\n",
    ],
)
def test_lines_that_no_configurator_takes_are_not_claimed(line: str) -> None:
    workspace = Workspace(Path("/x"), {"run.sh": line.encode(), "train.py": _TRAIN.encode()})
    claims = Linker(workspace, registry(), LinkOptions()).claims("run.sh")
    assert "nanogpt" not in {claim.dialect.name for claim in claims}


@pytest.mark.parametrize(
    ("change", "written"),
    [
        ({"batch.micro": 3}, "batch_size = 3\n"),
        ({"seq.max_len": 512}, "block_size = 512\n"),
    ],
)
def test_wishes_are_globals(change: dict[str, Any], written: str) -> None:
    assert written in fixed(_run, _TRAIN, change)


def test_wishes_on_a_line() -> None:
    def read(line: str) -> Run:
        return _lined(line)

    assert "--batch_size=2" in fixed(read, _LINE, {"batch.micro": 2})
    with pytest.raises(CannotEdit, match="no checkpointing"):
        read(_LINE).what_if({"checkpointing.mode": "full"})


def test_options_of_a_line_in_the_docstring_count() -> None:
    """Also of options that other programs have, too: it is the script that decides whose they are."""
    script = f'"""Run it:\n$ python train.py --batch_size=32 --compile=False\n"""\n{_TRAIN}'
    run = run_of({"train.py": script})
    assert (run.plan.batch.micro, run.plan.compile.enabled) == (32, False)


@pytest.mark.parametrize(("layers", "severity"), [(48, "error"), (36, "info")])
def test_an_assumed_vocabulary_counts_where_it_decides(layers: int, severity: str) -> None:
    """48 layers of 1,600 are 1.48e9 parameters beside the vocabulary, 22.0 GiB of states of 16 bytes each; 36 are
    1.11e9, 16.5 GiB, which leave room for a small vocabulary in 23.5 GiB and none for one of 152,064."""
    sizes = {
        "n_layer = 12": f"n_layer = {layers}",
        "n_head = 12": "n_head = 25",
        "n_embd = 768": "n_embd = 1600",
    }
    script = _TRAIN.replace("batch_size = 12", "batch_size = 1")
    for old, new in sizes.items():
        script = script.replace(old, new)
    found = report_of(
        {"train.py": script, "go.sh": f"python train.py --n_layer={layers}\n"},
        hardware="1xRTX-4090-24GB",
    )
    memory = [d for d in found.diagnoses if d.rule.name == "gpu-memory-at-risk"]
    assert [d.severity.label for d in memory] == [severity]


@pytest.mark.parametrize(("line", "algorithm"), [("", "compiled"), (" --compile=False", None)])
def test_the_loss_is_a_part_of_the_compiled_model(line: str, algorithm: str | None) -> None:
    assert _lined(f"python train.py --batch_size=3{line}\n").plan.loss.algorithm == algorithm


@pytest.mark.parametrize(("dropout", "has_masks"), [("0.0", False), ("0.2", True)])
def test_dropout_of_nothing_keeps_no_masks(dropout: str, has_masks: bool) -> None:
    dims = _run(_TRAIN.replace("dropout = 0.0", f"dropout = {dropout}")).plan.model.dims
    assert dims is not None
    assert traits_of(dims.arch, layer_norm=True).dropout == has_masks
