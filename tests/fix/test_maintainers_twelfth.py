"""What a twelfth reading of diffs in public repositories found; the projects here are written anew."""

from __future__ import annotations

import pytest
from tests.fixing import fix_of, repaired
from tests.linked import link, run_of

from oomlint.fix.story import made_for_others
from oomlint.hardware import find_gpu
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_PARSED = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B", torch_dtype="bfloat16")
Trainer(model=model, args=args, train_dataset=data).train()
"""
_COMMAND = "torchrun --nproc_per_node 2 train.py --output_dir out --learning_rate 1e-5 --num_train_epochs 1 --bf16 True --{option} 4 --gradient_accumulation_steps 2\n"


@pytest.mark.parametrize("option", ["per_device_train_batch", "per_device_train_batch_size"])
def test_an_option_that_lacks_its_last_word_is_changed_where_it_stands(option: str) -> None:
    files = {"train.py": _PARSED, "run.sh": _COMMAND.format(option=option)}
    run = run_of(files, "run.sh")
    assert run.plan.batch.micro == 4
    fix = fix_of(run, {f.batch.micro: 2})
    assert [edit.replacement for edit in fix.edits] == ["2"]


def test_a_shorter_word_may_be_an_option_of_the_script_s_own() -> None:
    files = {"train.py": _PARSED, "run.sh": _COMMAND.format(option="per_device")}
    assert run_of(files, "run.sh").plan.batch.micro != 4


_MAPPED = """\
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
args = SFTConfig(output_dir="out", bf16=True)
model = AutoModelForCausalLM.from_pretrained(
    "Qwen/Qwen2.5-0.5B",
    torch_dtype=torch.bfloat16,
    device_map="auto",{comment}
)
SFTTrainer(model=model, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("comment", "goes"),
    [("", True), ("  # 强制只使用第一张显卡", False), ("  # the first card only", False)],
)
def test_a_comment_behind_a_device_map_says_what_it_is_for(comment: str, goes: bool) -> None:
    files = {
        "train.py": _MAPPED.format(comment=comment),
        "run.sh": "torchrun --nproc_per_node 2 train.py\n",
    }
    texts = repaired(files, hardware="2xA100-80GB").texts
    assert ("device_map" not in texts.get("train.py", b"device_map").decode()) is goes


@pytest.mark.parametrize(
    ("text", "card"),
    [
        ("# Precision - MI300X specific", "MI300X"),
        ("# tried on MI250 and on A100", None),
        ("model = 'MI3000'", None),
        ("SEMI300X", None),
        ("load(name, device_map='cpu')", "CPUs"),
        ("load(name, device_map='cpu').to('cuda')", None),
    ],
)
def test_a_script_for_other_cards_says_so(text: str, card: str | None) -> None:
    assert made_for_others(text, find_gpu("A100-80GB")) == card
    assert made_for_others(text, find_gpu("MI300X")) == (card if card == "CPUs" else None)


_MESH = """\
base_model: Qwen/Qwen3-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
dp_shard_size: 2
context_parallel_size: 2
tensor_parallel_size: 2
fsdp_version: 2
fsdp_config:
  offload_params: false
  state_dict_type: FULL_STATE_DICT
  auto_wrap_policy: TRANSFORMER_BASED_WRAP
  transformer_layer_cls_to_wrap: Qwen3DecoderLayer
sequence_len: 8192
sample_packing: true
attn_implementation: flash_attention_2
micro_batch_size: 1
gradient_accumulation_steps: 1
optimizer: adamw_torch_fused
bf16: true
"""


@pytest.mark.parametrize(
    ("hardware", "is_mended"), [("8xRTX-4090-24GB", True), ("4xRTX-4090-24GB", False)]
)
def test_a_mesh_of_more_processes_than_cards_is_not_fitted_to_these(
    hardware: str, is_mended: bool
) -> None:
    texts = repaired({"train.yaml": _MESH}, hardware=hardware).texts
    assert ("gradient_checkpointing: true" in texts.get("train.yaml", b"").decode()) is is_mended


_EXPERTS = """\
base_model: Qwen/Qwen3-30B-A3B
adapter: lora
load_in_8bit: true
{more}datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
lora_r: 8
lora_alpha: 16
sequence_len: 1024
micro_batch_size: 1
gradient_accumulation_steps: 1
optimizer: adamw_torch
bf16: true
fsdp_version: 2
fsdp_config:
  offload_params: false
  cpu_ram_efficient_loading: false
"""


@pytest.mark.parametrize("more", ["", "quantize_moe_experts: true\n"])
def test_experts_that_are_quantized_as_they_load_are_loaded_on_every_rank(more: str) -> None:
    run = run_of({"train.yaml": _EXPERTS.format(more=more)}, hardware="4xA100-80GB")
    fix = fix_of(run, {f.load.cpu_ram_efficient: True})
    assert bool(fix.edits) is not bool(more)


@pytest.mark.parametrize(
    ("hardware", "is_written"), [("4xA100-80GB", True), ("1xA100-80GB", False)]
)
def test_one_process_of_axolotl_s_offloads_nothing_by_fsdp(hardware: str, is_written: bool) -> None:
    run = run_of({"train.yaml": _EXPERTS.format(more="")}, hardware=hardware)
    assert bool(fix_of(run, {f.parallel.fsdp.cpu_offload: True}).edits) is is_written


_QLORA = """\
base_model: Qwen/Qwen2.5-7B
adapter: qlora
load_in_4bit: true
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
lora_r: 8
lora_alpha: 16
sequence_len: 1024
micro_batch_size: 1
gradient_accumulation_steps: 1
gradient_checkpointing: true
{more}optimizer: adamw_torch
bf16: true
deepspeed: ds.json
"""


_STAGE_1 = '{"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}}'


@pytest.mark.parametrize(
    ("more", "is_written"),
    [("", False), ("gradient_checkpointing_kwargs:\n  use_reentrant: true\n", True)],
)
def test_axolotl_warns_of_qlora_under_stage_3(more: str, is_written: bool) -> None:
    files = {"train.yaml": _QLORA.format(more=more), "ds.json": _STAGE_1}
    run = run_of(files, "train.yaml", hardware="4xA100-80GB")
    assert bool(fix_of(run, {f.parallel.zero.stage: 3}).edits) is is_written


_OFFLOADING = '{{"zero_optimization": {{"stage": 3{more}}}, "bf16": {{"enabled": "auto"}}{flags}}}'
_CPU = '"device": "cpu", "pin_memory": true'
_LINE = (
    "deepspeed train.py --deepspeed ds/zero3.json --output_dir out --bf16 True "
    "--per_device_train_batch_size {micro}\n"
)


def _first(files: dict[str, str]) -> Run:
    return link(files, "one.sh", "two.sh").runs[0]


def test_a_config_beside_it_that_offloads_more_stands_for_a_copy() -> None:
    both = f', "offload_optimizer": {{{_CPU}}}, "offload_param": {{{_CPU}}}'
    files = {
        "train.py": _PARSED,
        "one.sh": _LINE.format(micro=1),
        "two.sh": _LINE.format(micro=2),
        "ds/zero3.json": _OFFLOADING.format(more="", flags=""),
        "ds/zero3_offload.json": _OFFLOADING.format(more=both, flags=""),
    }
    fix = fix_of(_first(files), {f.offload.optimizer: "cpu"})
    assert not fix.edits
    assert fix.reason is not None
    assert "zero3_offload.json beside it is for that, and offloads as much or more" in fix.reason


def test_what_alone_takes_a_foreign_optimizer_is_no_other_job() -> None:
    both = f', "offload_optimizer": {{{_CPU}}}, "offload_param": {{{_CPU}}}'
    permits = ', "zero_force_ds_cpu_optimizer": false, "zero_allow_untested_optimizer": true'
    files = {
        "train.py": _PARSED,
        "one.sh": _LINE.format(micro=1),
        "two.sh": _LINE.format(micro=2),
        "ds/zero3.json": _OFFLOADING.format(more="", flags=""),
        "ds/all.json": _OFFLOADING.format(more=both, flags=permits),
    }
    changes = {f.offload.optimizer: "cpu", f.offload.params: "cpu"}
    fix = fix_of(_first(files), changes)
    assert "by naming all.json" in fix.title


_GROUPS = """\
from trl import GRPOConfig, ModelConfig, ScriptArguments, TrlParser
from ours import OurGRPOTrainer
parser = TrlParser((ScriptArguments, GRPOConfig, ModelConfig))
script_args, args, model_args = parser.parse_args_and_config()
OurGRPOTrainer(
    model=model_args.model_name_or_path, reward_funcs=reward, args=args, train_dataset=data
).train()
"""


@pytest.mark.parametrize(("micro", "is_written"), [(8, True), (1, False)])
def test_fewer_processes_leave_the_groups_of_a_trainer_of_the_project_s_own_whole(
    micro: int, is_written: bool
) -> None:
    line = (
        "torchrun --nproc_per_node 8 grpo.py --output_dir out --bf16 "
        "--model_name_or_path Qwen/Qwen2.5-0.5B --num_generations 8 --gradient_accumulation_steps 2 "
        f"--per_device_train_batch_size {micro}\n"
    )
    run = run_of({"grpo.py": _GROUPS, "run.sh": line}, "run.sh", hardware="4xA100-80GB")
    assert bool(fix_of(run, {f.parallel.gpus_per_node: 4}).edits) is is_written


def test_llama_finetuning_takes_no_option_that_asks_for_a_nightly_build() -> None:
    line = (
        "torchrun --nproc_per_node 4 llama_finetuning.py --enable_fsdp --use_peft --peft_method lora "
        "--model_name meta-llama/Llama-2-7b-hf\n"
    )
    assert not fix_of(run_of({"run.sh": line}), {f.load.cpu_ram_efficient: True}).edits
