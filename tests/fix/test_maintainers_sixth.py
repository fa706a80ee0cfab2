"""What maintainers sent back in a sixth reading (``benchmarks/strangers/diffs-6.jsonl``)."""

from __future__ import annotations

import pytest
from tests.fixing import fix_of, repaired
from tests.linked import link

from oomlint.dialects.deepspeed.keys import ds
from oomlint.fix.story import name_for
from oomlint.plan.fields import ZERO_3, f

# -- a launch for another machine -----------------------------------------------------------------------

_SFT = (
    "torchrun --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer model.partial_pretrain={model}"
    " data.train_files=a.parquet data.val_files=b.parquet data.max_length=8192 data.train_batch_size=64"
    " data.micro_batch_size_per_gpu=1 model.enable_gradient_checkpointing=True\n"
)


@pytest.mark.parametrize(
    ("model", "is_fitted"), [("Qwen/Qwen2.5-14B-Instruct", False), ("Qwen/Qwen2.5-0.5B", True)]
)
def test_a_launch_is_fitted_to_fewer_gpus_only_where_the_run_lives_on_them(
    model: str, is_fitted: bool
) -> None:
    result = repaired({"run.sh": _SFT.format(model=model)}, hardware="4xRTX-4090-24GB", unsafe=True)
    text = result.texts.get("run.sh", b"")
    assert (b"nproc_per_node=4" in text) is is_fitted
    if not is_fitted:
        (found,) = (d for d in result.report.diagnoses if d.rule.code == "OOM706")
        assert found.fix is not None
        assert "another machine" in (found.fix.reason or "")


# -- a program that is not followed ---------------------------------------------------------------------

_LOOP = """\
from accelerate import Accelerator
from settings import args

accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
args.gradient_accumulation_steps = accelerator.gradient_accumulation_steps
"""
_ACCELERATE = """\
compute_environment: LOCAL_MACHINE
deepspeed_config:
  gradient_accumulation_steps: 8
  offload_optimizer_device: none
  offload_param_device: none
  zero3_init_flag: true
  zero_stage: 2
distributed_type: DEEPSPEED
mixed_precision: bf16
num_machines: 1
num_processes: 4
"""
_COMMAND = (
    "accelerate launch --config_file ds.yaml main.py --model_name_or_path huggyllama/llama-7b"
    " --learning_rate 5e-6 --per_device_train_batch_size 16 --block_size 2048 --num_train_epochs 2 --output_dir out\n"
)


def test_nothing_is_changed_for_a_program_that_is_not_followed() -> None:
    files = {"run.sh": _COMMAND, "ds.yaml": _ACCELERATE, "main.py": _LOOP}
    result = repaired(files, hardware="4xRTX-4090-24GB", unsafe=True)
    texts = list(result.texts)
    assert not texts
    assert not [d.rule.code for d in result.report.diagnoses if d.rule.code == "OOM804"]
    reasons = {d.fix.reason or "" for d in result.report.diagnoses if d.fix is not None}
    assert any("what main.py does is not followed" in reason for reason in reasons)


def test_no_launch_of_a_program_that_is_not_followed_is_fitted_where_it_is_predicted_to_die() -> (
    None
):
    files = {"run.sh": _COMMAND, "ds.yaml": _ACCELERATE, "main.py": _LOOP}
    texts = repaired(files, hardware="2xRTX-4090-24GB", unsafe=True).texts
    assert not texts


def test_a_list_of_cards_that_are_not_there_is_left_to_its_author() -> None:
    tune = "tune run --nproc_per_node 6 lora_finetune_distributed --config llama3_2/1B_lora\n"
    listed = {"run.sh": f"export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5\n{tune}"}
    texts = repaired(listed, hardware="4xH100-80GB", unsafe=True).texts
    assert not texts
    texts = repaired({"run.sh": tune}, hardware="4xH100-80GB", unsafe=True).texts
    assert b"--nproc_per_node 4" in texts["run.sh"]


def test_a_job_that_asks_for_eight_cards_keeps_its_eight_processes() -> None:
    tune = "tune run --nproc_per_node 8 lora_finetune_distributed --config llama3_2/1B_lora\n"
    script = f"#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:8\n{tune}"
    texts = repaired({"run.sh": script}, hardware="4xH100-80GB", unsafe=True).texts
    assert not texts


# -- copies ---------------------------------------------------------------------------------------------

_ZERO2 = """\
compute_environment: LOCAL_MACHINE
deepspeed_config:
  offload_optimizer_device: none
  offload_param_device: none
  zero3_init_flag: false
  zero_stage: 2
distributed_type: DEEPSPEED
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""
_RECIPE = (
    "accelerate launch --config_file acc.yaml run_clm.py --model_name_or_path {model} --output_dir out --bf16"
    " --per_device_train_batch_size 1 --gradient_checkpointing --block_size 2048 --do_train --dataset_name d\n"
)


def test_what_comes_with_a_stage_stands_in_the_copy_that_has_it() -> None:
    files = {
        "large.sh": _RECIPE.format(model="meta-llama/Llama-3.1-8B"),
        "small.sh": _RECIPE.format(model="Qwen/Qwen2.5-0.5B"),
        "acc.yaml": _ZERO2,
    }
    large = next(run for run in link(files).runs if run.name.startswith("large"))
    fix = fix_of(large, ZERO_3)
    texts = {edit.path: edit.replacement for edit in fix.edits}
    (copy,) = (text for path, text in texts.items() if path.endswith(".yaml"))
    assert "zero_stage: 3" in copy
    assert "zero3_save_16bit_model: true" in copy
    assert "16bit" not in texts["large.sh"]


def test_a_copy_is_not_called_after_what_it_does_not_say() -> None:
    assert name_for("deepspeed_config", {ds.fp16: None}) == "deepspeed_config_fp16_auto"
    assert name_for("deepspeed_config", {f.offload.pin_memory: False}).endswith("_no_pin_memory")


# -- what somebody has switched off ---------------------------------------------------------------------

_FSDP = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype=torch.bfloat16)
{comment}
model = FSDP(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("comment", "is_added"),
    [
        ("# sharded over the cards of the node", True),
        ("# A100-80GB has enough without\n# model.gradient_checkpointing_enable()", False),
    ],
)
def test_a_call_that_stands_there_as_a_comment_is_not_added(comment: str, is_added: bool) -> None:
    (run,) = link({"train.py": _FSDP.format(comment=comment)}).runs
    fix = fix_of(run, {f.checkpointing.mode: "full"})
    assert bool(fix.edits) is is_added
    assert is_added or "gradient_checkpointing_enable" in (fix.reason or "")


# -- comments in the middle of a command ----------------------------------------------------------------


def test_comments_that_cut_one_command_keep_their_order() -> None:
    before = (
        "llamafactory-cli train \\\n"
        "    --model_name_or_path Qwen/Qwen2.5-7B \\\n"
        "    #--model_name_or_path Qwen/Qwen2.5-32B \\\n"
        "    --stage sft \\\n"
        "    #--learning_rate 5e-05 \\\n"
        "    --finetuning_type lora\n"
    )
    result = repaired({"run.sh": before})
    text = result.texts["run.sh"].decode()
    assert text == (
        "#--model_name_or_path Qwen/Qwen2.5-32B \\\n"
        "#--learning_rate 5e-05 \\\n"
        "llamafactory-cli train \\\n"
        "    --model_name_or_path Qwen/Qwen2.5-7B \\\n"
        "    --stage sft \\\n"
        "    --finetuning_type lora\n"
    )


@pytest.mark.parametrize(("hardware", "is_fitted"), [("2xH100-80GB", True), ("1xH100-80GB", False)])
def test_no_sharded_run_is_started_on_a_single_card(hardware: str, is_fitted: bool) -> None:
    text = (
        "tune run --nproc_per_node 4 lora_finetune_distributed --config llama3_2/1B_lora"
        " dataset.packed=False tokenizer.max_seq_len=512\n"
    )
    result = repaired({"run.sh": text}, hardware=hardware, unsafe=True)
    texts = list(result.texts)
    assert bool(texts) is is_fitted
