"""What a sixteenth reading of diffs in public repositories found; the projects here are written anew."""

from __future__ import annotations

import pytest
from tests.fixing import fix_of, repaired
from tests.linked import link, run_of, workspace_of

from oomlint.documents.text import apply_edits
from oomlint.fix.needless import unknown_of_batch
from oomlint.fix.ownership import why_not_ours
from oomlint.fix.story import made_for_others
from oomlint.hardware import find_gpu
from oomlint.plan.fields import f

_AXOLOTL = """\
base_model: Qwen/Qwen2.5-0.5B
datasets:
  - path: data/train.json
    type: alpaca
sequence_len: 1024
micro_batch_size: 1
gradient_accumulation_steps: 4
bf16: true
output_dir: out
val_set_size: 0.0
eval_steps: 100
"""


@pytest.mark.parametrize(
    ("more", "becomes"),
    [
        # What is evaluated on has the wrong name: the evaluation stays.
        (
            "datasets_test:\n  - path: data/test.json\n    type: alpaca\n",
            "test_datasets:\n  - path: data/test.json\n    type: alpaca\n",
        ),
        ("eval_strategy: steps\n", None),
        ("evals_per_epoch: 2\n", None),
        ("save_strategy: epoch\nsave_steps: 100\n", None),
    ],
)
def test_what_an_author_has_evaluated_and_saved_is_not_taken_away(
    more: str, becomes: str | None
) -> None:
    text = _AXOLOTL + more
    result = repaired({"train.yaml": text}, unsafe=True)
    expected = {} if becomes is None else {"train.yaml": (_AXOLOTL + becomes).encode()}
    assert dict(result.texts) == expected


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("# HW: Dell GB10 (128 GB)", "GB10"),
        ("# 128 GB of unified memory, no offloading", "a machine with unified memory"),
        ("# DGX Spark", "a machine with unified memory"),
        ("# unified memory of a DGX Spark, or an H100", None),
    ],
)
def test_what_is_written_for_unified_memory_is_not_fitted_to_a_card(
    text: str, other: str | None
) -> None:
    assert made_for_others(text, find_gpu("RTX-4090")) == other
    assert made_for_others(text, find_gpu("GB10")) in (None, "H100")


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("axolotl train train.yaml", None),
        ("axolotl train train.yaml -- --num_machines 1", None),
        ("axolotl train train.yaml --launcher torchrun", None),
        (
            "axolotl train train.yaml --launcher torchrun -- --nproc_per_node 4",
            "axolotl train train.yaml --launcher torchrun -- --nproc_per_node 2",
        ),
    ],
)
def test_axolotl_is_given_no_option_of_the_launcher_that_it_starts(
    line: str, becomes: str | None
) -> None:
    files = {"train.yaml": _AXOLOTL, "run.sh": f"{line}\n"}
    fix = fix_of(link(files, *files).runs[0], {f.parallel.gpus_per_node: 2})
    written = {edit.path: apply_edits(files[edit.path], [edit]) for edit in fix.edits}
    assert written == ({} if becomes is None else {"run.sh": f"{becomes}\n"})


def test_what_shards_nothing_is_not_told_to_offload() -> None:
    text = (
        _AXOLOTL.replace("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-32B")
        + "adapter: qlora\nload_in_4bit: true\n"
    )
    files = {"train.yaml": text, "run.sh": "axolotl train train.yaml -- --num_processes 4\n"}
    result = repaired(files, hardware="4xT4")
    assert not [d for d in result.report.applied if "offload" in (d.fix.title if d.fix else "")]


_UNSLOTH = {
    "src/__init__.py": "",
    "src/args.py": (
        "from trl import SFTConfig, SFTTrainer\n\n\ndef trainer(model, data):\n"
        "    args = SFTConfig(output_dir='out', max_seq_length=1024)\n"
        "    return SFTTrainer(model=model, args=args, train_dataset=data)\n"
    ),
    "pyproject.toml": "[project]\nname = 'x'\ndependencies = ['trl==0.24.0', 'transformers']\n",
}


@pytest.mark.parametrize("library", ["unsloth", "transformers"])
def test_a_key_that_unsloth_gives_to_trls_class_keeps_its_name(library: str) -> None:
    program = f"import {library}\nfrom src.args import trainer\n\ntrainer(model, data).train()\n"
    files = {**_UNSLOTH, "src/__main__.py": program}
    texts = repaired(files, hardware="1xA100-80GB").texts
    assert ("src/args.py" in texts) is (library != "unsloth")


def test_a_sample_that_came_with_a_model_is_not_the_projects() -> None:
    beside = {"models/phi/config.json": "{}", "models/phi/tokenizer_config.json": "{}"}
    sample = {"models/phi/sample_finetune.py": "", "train.py": "", "tokenizer_config.json": "{}"}
    workspace = workspace_of({**beside, **sample, "config.json": "{}"})
    assert why_not_ours(workspace, "models/phi/sample_finetune.py") is not None
    assert why_not_ours(workspace, "train.py") is None


_PLAIN = """\
{told}
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-3B", torch_dtype="bfloat16")
args = TrainingArguments(
    output_dir="out", per_device_train_batch_size=1, gradient_checkpointing=True, bf16=True
)
Trainer(model=model, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("told", "is_written"),
    [
        (
            '"""Run ``accelerate config`` for DeepSpeed ZeRO-3, then ``accelerate launch train.py``."""',
            False,
        ),
        ("# accelerate launch --config_file fsdp.yaml train.py", False),
        ("# accelerate launch train.py", True),
        ("# python train.py, no DeepSpeed", True),
    ],
)
def test_a_launch_that_comments_tell_of_is_not_reckoned_as_another(
    told: str, is_written: bool
) -> None:
    files = {"train.py": _PLAIN.format(told=told)}
    texts = repaired(files, hardware="1xRTX-4090-24GB", unsafe=True).texts
    assert bool(texts) is is_written


@pytest.mark.parametrize("machine", ["", "# HW: Dell GB10\n"])
def test_the_machine_is_told_by_whatever_file_of_a_run(machine: str) -> None:
    text = _AXOLOTL.replace("Qwen2.5-0.5B", "Qwen2.5-7B").replace("1024", "8192")
    text = text.partition("val_set_size")[0]
    more = "adapter: lora\nlora_target_linear: true\nsample_packing: true\n"
    files = {"train.yaml": machine + text + more, "run.sh": "axolotl train train.yaml\n"}
    texts = repaired(files, hardware="1xRTX-4090-24GB", unsafe=True).texts
    assert bool(texts) is not bool(machine)


_OWN_COLLATOR = """\
from ours import Collator
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", torch_dtype="bfloat16")
args = TrainingArguments(output_dir="out", per_device_train_batch_size={micro}, bf16=True)
Trainer(model=model, args=args, train_dataset=data, data_collator=Collator()).train()
"""
_OF_TRL = """\
from trl import SFTConfig, SFTTrainer

args = SFTConfig(output_dir="out", per_device_train_batch_size={micro}, max_length=4096)
SFTTrainer(model="Qwen/Qwen2.5-7B", args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("script", "micro", "is_known"),
    [
        (_OWN_COLLATOR, "8", False),
        (_OF_TRL, "8", True),
        (_OF_TRL, "sizes[device]", False),
    ],
)
def test_a_smaller_batch_rests_on_what_is_known_of_it(
    script: str, micro: str, is_known: bool
) -> None:
    run = run_of({"train.py": script.format(micro=micro)}, hardware="1xA100-80GB")
    assert bool(unknown_of_batch(run, {f.batch.micro: 1})) is not is_known
    assert unknown_of_batch(run, {f.checkpointing.mode: "full"}) is None


_LITGPT = """\
checkpoint_dir: checkpoints/meta-llama/Llama-2-7b-hf
out_dir: out/finetune/full
precision: bf16-true
devices: 4
train:
  global_batch_size: 64
  micro_batch_size: 4
  epochs: 1
  max_seq_length: 2048
"""


def test_a_config_of_litgpts_hub_is_the_projects_where_something_names_it() -> None:
    path = "litgpt_train/config_hub/finetune/llama-2-7b/full.yaml"
    files = {path: _LITGPT, "requirements.txt": "torch\nlitgpt\n"}
    fix = fix_of(run_of(files, path), {f.batch.micro: 1})
    assert "as litgpt ships it, and nothing names it" in str(fix.reason)
    files["train.sh"] = f"litgpt finetune_full --config {path}\n"
    assert fix_of(run_of(files, path), {f.batch.micro: 1}).edits


@pytest.mark.parametrize("comment", ["", "  # 64 * 4 = 256"])
def test_where_only_a_comment_is_against_the_cheapest_way_no_other_is_taken(comment: str) -> None:
    text = (
        _AXOLOTL.partition("val_set_size")[0]
        .replace("Qwen2.5-0.5B", "Qwen2.5-7B")
        .replace("micro_batch_size: 1\n", "micro_batch_size: 64\n")
        .replace("steps: 4\n", f"steps: 4{comment}\n")
    )
    more = "adapter: lora\nlora_target_linear: true\nsample_packing: true\ngradient_checkpointing: true\n"
    files = {"train.yaml": text + more, "run.sh": "axolotl train train.yaml\n"}
    texts = repaired(files, hardware="1xA100-40GB", unsafe=True).texts
    assert bool(texts) is not bool(comment)
    assert not texts or "liger" not in texts["train.yaml"].decode()


_STARTED = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("{model}", torch_dtype="bfloat16")
Trainer(model=model, args=args, train_dataset=data).train()
"""
_LINE = (
    "torchrun --nproc_per_node 4 {script} --output_dir out --per_device_train_batch_size 1"
    " --bf16 True --gradient_checkpointing True --deepspeed ds/zero3.json\n"
)
_ZERO_3 = '{"zero_optimization": {"stage": 3%s}, "bf16": {"enabled": true}%s}\n'
_ON_CPU = ', "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}'


@pytest.mark.parametrize("is_refused", [True, False])
def test_no_unsafe_way_is_taken_in_place_of_a_safe_one_that_files_refuse(is_refused: bool) -> None:
    files = {
        "large.py": _STARTED.format(model="Qwen/Qwen2.5-7B"),
        "small.py": _STARTED.format(model="Qwen/Qwen2.5-0.5B"),
        "large.sh": _LINE.format(script="large.py"),
        "small.sh": _LINE.format(script="small.py"),
        "ds/zero3.json": _ZERO_3 % ("", ""),
    }
    if is_refused:
        files["ds/large.json"] = _ZERO_3 % (_ON_CPU, ', "train_micro_batch_size_per_gpu": 8')
    # A copy of the shared file is left to its author, and so is what changes what is trained in its place.
    assert not repaired(files, hardware="4xRTX-4090-24GB", unsafe=True).texts
