"""Liger: what its switch is worth for a model, in every framework that has one."""

from __future__ import annotations

import pytest
from tests.linked import link

from oomlint.errors import CannotEdit
from oomlint.run import Run

_TRAINER = (
    "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path {model} --output_dir out --bf16"
    " --per_device_train_batch_size 2 --num_train_epochs 1 --learning_rate 1e-4{more}\n"
)
_SWIFT = "swift sft --model {model} --train_type full --dataset d --max_length 2048{more}\n"
_TRL = "trl {kind} --model_name_or_path {model} --dataset_name d --output_dir out{more}\n"
_LLAMA_FACTORY = (
    "model_name_or_path: {model}\nstage: sft\ndo_train: true\nfinetuning_type: full\n"
    "dataset: d\ntemplate: default\noutput_dir: out\n{more}"
)
_FUSED = {"loss.logits_materialised": "fused"}


def _run(name: str, text: str) -> Run:
    (run,) = link({name: text}).runs
    return run


@pytest.mark.parametrize(
    ("name", "text", "on"),
    [
        ("run.sh", _TRAINER, " --use_liger_kernel True"),
        ("run.sh", _SWIFT, " --use_liger_kernel true"),
        ("run.sh", _TRL.replace("{kind}", "sft"), " --use_liger_kernel true"),
        ("train.yaml", _LLAMA_FACTORY, "enable_liger_kernel: true\n"),
    ],
    ids=["trainer", "swift", "trl", "llama-factory"],
)
def test_liger_leaves_models_without_kernels_as_they_are(name: str, text: str, on: str) -> None:
    known, unknown = "Qwen/Qwen2.5-7B", "EleutherAI/pythia-6.9b"
    assert _run(name, text.format(model=known, more=on)).plan.loss.logits_materialised == "fused"
    left = _run(name, text.format(model=unknown, more=on)).plan.loss
    assert left.logits_materialised != "fused"
    assert left.liger.rms is not True
    with pytest.raises(CannotEdit, match="no kernels for models of the type gpt_neox"):
        _run(name, text.format(model=unknown, more="")).what_if(_FUSED)


def test_preference_losses_of_trl_are_ligers_for_any_model() -> None:
    text = _TRL.format(kind="dpo", model="EleutherAI/pythia-1b", more=" --use_liger_kernel true")
    assert _run("run.sh", text).plan.loss.logits_materialised == "fused"


def test_llama_factory_asks_for_fewer_models_than_liger_knows() -> None:
    text = _LLAMA_FACTORY.format(
        model="deepseek-ai/DeepSeek-V2-Lite", more="enable_liger_kernel: true\n"
    )
    assert _run("train.yaml", text).plan.loss.logits_materialised == "full"
