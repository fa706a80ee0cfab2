"""xtuner's Python configs and the lines that start them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import link, run_of

from oomlint.errors import CannotEdit
from oomlint.runs.run import Run

_CONFIG = """\
import torch
from mmengine.dataset import DefaultSampler
from mmengine.optim import AmpOptimWrapper
from peft import LoraConfig
from torch.optim import AdamW
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from xtuner.dataset import process_hf_dataset
from xtuner.engine.runner import TrainLoop
from xtuner.model import SupervisedFinetune

pretrained_model_name_or_path = 'Qwen/Qwen1.5-7B-Chat'
use_varlen_attn = False
max_length = 2048
pack_to_max_length = True
sequence_parallel_size = 1
batch_size = 4  # per device
accumulative_counts = 16
accumulative_counts *= sequence_parallel_size
dataloader_num_workers = 2
optim_type = AdamW
save_steps = 500
save_total_limit = 2

model = dict(
    type=SupervisedFinetune,
    use_varlen_attn=use_varlen_attn,
    llm=dict(
        type=AutoModelForCausalLM.from_pretrained,
        pretrained_model_name_or_path=pretrained_model_name_or_path,
        torch_dtype=torch.float16{quantized}){lora})

train_dataset = dict(
    type=process_hf_dataset,
    max_length=max_length,
    pack_to_max_length=pack_to_max_length)
train_dataloader = dict(
    batch_size=batch_size,
    num_workers=dataloader_num_workers,
    dataset=train_dataset,
    sampler=dict(type=DefaultSampler, shuffle=True))
optim_wrapper = dict(
    type=AmpOptimWrapper,
    optimizer=dict(type=optim_type, lr=2e-4),
    accumulative_counts=accumulative_counts,
    dtype='float16')
train_cfg = dict(type=TrainLoop, max_epochs=3)
default_hooks = dict(checkpoint=dict(interval=save_steps, max_keep_ckpts=save_total_limit))
"""
_QUANTIZED = ",\n        quantization_config=dict(type=BitsAndBytesConfig, load_in_4bit=True, bnb_4bit_use_double_quant=True)"
_LORA = ",\n    lora=dict(type=LoraConfig, r=64, lora_alpha=16)"
_FULL = _CONFIG.replace("{quantized}", "").replace("{lora}", "")
_QLORA = _CONFIG.replace("{quantized}", _QUANTIZED).replace("{lora}", _LORA)
_LINE = "NPROC_PER_NODE=8 xtuner train config.py --deepspeed deepspeed_zero3\n"


def _run(text: str = _FULL, line: str | None = _LINE) -> Run:
    files = {"config.py": text} if line is None else {"config.py": text, "run.sh": line}
    run = run_of(files, hardware="8xA100-80GB")
    assert run.framework == "xtuner"
    return run


def test_a_config_and_the_line_that_starts_it() -> None:
    run = _run()
    plan = run.plan
    assert plan.model.id == "Qwen/Qwen1.5-7B-Chat"
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.global_) == (4, 16, 512)
    assert (plan.parallel.world, plan.parallel.zero.stage) == (8, 3)
    assert plan.load.zero3_init is True
    assert (plan.trainable.method, plan.optimizer.kind) == ("full", "adamw")
    assert (plan.seq.max_len, plan.seq.packing) == (2048, "concat")
    assert (plan.precision.param, plan.precision.master) == ("bf16", "fp32")
    assert plan.model.attn_impl == "flash2"
    assert plan.checkpointing.mode == "full"
    assert (plan.save.every, plan.save.keep, plan.data.workers) == (500, 2, 2)


def test_adapters_beside_packed_weights() -> None:
    plan = _run(_QLORA, "xtuner train config.py\n").plan
    assert (plan.trainable.method, plan.trainable.r, plan.trainable.alpha) == ("qlora", 64, 16)
    assert plan.trainable.targets == "all_linear"
    assert (plan.quant.method, plan.quant.double) == ("bnb4", True)
    assert plan.precision.param == "nf4"
    assert plan.parallel.world == 1


def test_ranks_without_a_line_are_what_the_hardware_has() -> None:
    assert _run(line=None).plan.parallel.world == 8


def test_steps_that_a_later_statement_multiplies() -> None:
    text = _FULL.replace("sequence_parallel_size = 1", "sequence_parallel_size = 4")
    plan = _run(text).plan
    assert (plan.batch.grad_accum, plan.parallel.ulysses, plan.parallel.dp) == (64, 4, 2)


def test_what_a_condition_decides_is_unread() -> None:
    text = _FULL.replace(
        "batch_size = 4", "if pack_to_max_length:\n    batch_size = 1\nbatch_size = 4"
    )
    assert _run(text).plan.batch.micro is None


def test_a_config_upon_another() -> None:
    text = "from xtuner.model import SupervisedFinetune\nwith read_base():\n    from .base import *\n\nmax_length = 4096\nmodel = dict(use_activation_checkpointing=False)\noptim_wrapper = dict()\n"
    files = {"a/config.py": text, "a/base.py": _FULL}
    run = run_of(files, "a/config.py")
    assert (run.plan.seq.max_len, run.plan.batch.micro) == (4096, 4)
    assert run.plan.checkpointing.mode == "none"


def test_a_config_that_xtuner_brings_along() -> None:
    line = "NPROC_PER_NODE=8 xtuner train internlm2_chat_7b_qlora_oasst1_e3 --deepspeed deepspeed_zero2\n"
    run = run_of({"run.sh": line})
    assert run.framework == "xtuner"
    assert not run.missing
    assert not run.stray
    plan = run.plan
    assert plan.model.id == "internlm/internlm2-chat-7b"
    assert (plan.trainable.method, plan.trainable.r) == ("qlora", 64)
    assert (plan.batch.micro, plan.batch.grad_accum, plan.seq.max_len) == (1, 16, 2048)
    assert (plan.parallel.world, plan.parallel.zero.stage) == (8, 2)


def test_a_name_that_nothing_tells() -> None:
    assert not link({"run.sh": "xtuner train my_own_config_e3\n"}).runs


def test_models_with_pictures_and_other_programs_are_left_alone() -> None:
    text = _FULL.replace("SupervisedFinetune", "LLaVAModel")
    assert not link({"config.py": text}).runs
    assert not link({"run.sh": "xtuner chat internlm/internlm2-chat-7b\n"}).runs
    library = "from xtuner.model import SupervisedFinetune\nmodel = SupervisedFinetune(llm)\n"
    assert not link({"train.py": library}).runs


def test_a_config_that_prefers_answers() -> None:
    text = _FULL.replace("import SupervisedFinetune", "import DPO").replace(
        "SupervisedFinetune", "DPO"
    )
    plan = _run(text).plan
    assert (plan.objective.kind, plan.objective.ref_model) == ("dpo", "copy")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"batch.micro": 2, "batch.grad_accum": 32}, "batch_size = 2  # per device"),
        ({"seq.max_len": 1024}, "max_length = 1024"),
        ({"checkpointing.mode": "none"}, "use_activation_checkpointing=False"),
        ({"save.every": 100}, "save_steps = 100"),
        ({"data.workers": 0}, "dataloader_num_workers = 0"),
    ],
)
def test_wishes(changes: dict[str, Any], line: str) -> None:
    assert line in fixed(lambda text: _run(text, None), _FULL, changes)


def test_another_stage_is_another_name_on_the_line() -> None:
    after = fixed(
        lambda line: _run(line=line), _LINE, {"offload.optimizer": "cpu", "offload.params": "cpu"}
    )
    assert "--deepspeed deepspeed_zero3_offload" in after
    run = _run(line="NPROC_PER_NODE=8 xtuner train config.py\n")
    with pytest.raises(CannotEdit, match="--deepspeed deepspeed_zero2"):
        run.dialect.express({"parallel.zero.stage": 2}, run.cells)


@pytest.mark.parametrize(
    "changes",
    [
        {"quant.method": "bnb4"},
        {"checkpointing.mode": "selective_op"},
        {"offload.activations": "cpu"},
        {"optimizer.kind": "adamw8bit"},
    ],
)
def test_what_xtuner_cannot_say(changes: dict[str, Any]) -> None:
    run = _run()
    with pytest.raises(CannotEdit):
        run.dialect.express(changes, run.cells)


def test_shards_are_saved_whatever_the_config_of_deepspeed_gathers() -> None:
    plan = _run().plan
    assert plan.parallel.zero.gather16_on_save is True
    assert (plan.save.full_gather, plan.save.format) == (False, "ds_zero")
    never = _run(_FULL.replace("save_steps = 500", "save_steps = -1"))
    assert (never.plan.save.strategy, never.wrong) == ("end", ())
