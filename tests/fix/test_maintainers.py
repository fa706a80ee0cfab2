"""What maintainers would send back, as read in public repositories (``benchmarks/strangers/diffs*.jsonl``)."""

from __future__ import annotations

import pytest
from tests.fixing import fix_of, repaired
from tests.linked import PROGRAM, link, run_of

from oomlint.documents.text import Edit, Source
from oomlint.fix.edits import make_fix
from oomlint.fix.story import added_elsewhere, branch_at, contradiction, name_for
from oomlint.judgement.planner import ways_to_fit
from oomlint.linting.rule import Applicability, Proposal, RemoveKey
from oomlint.plan import Plan
from oomlint.plan.fields import ZERO_3, f
from oomlint.runs.run import Run

_TRAINER = (
    "train.py --model_name_or_path {model} --output_dir out --bf16 True"
    " --per_device_train_batch_size {micro} --gradient_accumulation_steps 2 --model_max_length 4096"
    " --gradient_checkpointing True"
)


# -- a plan changes nothing that it can do without -------------------------------------------------


def test_sharding_that_a_smaller_micro_batch_makes_needless_is_left_out() -> None:
    line = _TRAINER.format(model="Qwen/Qwen2.5-0.5B-Instruct", micro=16)
    ds = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}\n'
    files = {"run.sh": f"deepspeed {line} --deepspeed zero2.json\n", "zero2.json": ds}
    run = run_of(files, "run.sh", hardware="8xA100-40GB")
    first = ways_to_fit(
        run, unsafe=False, takes=lambda move: f.loss.logits_materialised not in move.changes
    )[0]
    assert f.parallel.zero.stage not in first.changes
    assert first.changes[f.batch.micro] < 16


# -- what a run is about -------------------------------------------------------------------------

_FULL = """\
base_model: NousResearch/Meta-Llama-3-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 2048
micro_batch_size: 1
gradient_accumulation_steps: 4
gradient_checkpointing: true
flash_attention: true
optimizer: adamw_torch
bf16: true
"""


def test_no_adapter_is_trained_in_place_of_all_weights() -> None:
    result = repaired({"a.yaml": _FULL}, hardware="1xRTX-4090-24GB", unsafe=True)
    assert b"adapter" not in result.texts.get("a.yaml", b"")


def test_samples_are_not_cut() -> None:
    text = _FULL.replace("2048", "131072") + "adapter: lora\nlora_r: 16\nlora_target_linear: true\n"
    result = repaired({"a.yaml": text}, hardware="1xA100-40GB", unsafe=True)
    assert b"sequence_len: 131072\n" in result.texts.get("a.yaml", text.encode())


# -- who starts it -------------------------------------------------------------------------------


@pytest.mark.parametrize(("seen", "is_applied"), [("CUDA_VISIBLE_DEVICES=0,1 ", True), ("", False)])
def test_a_launcher_only_where_a_file_says_that_there_are_several_gpus(
    seen: str, is_applied: bool
) -> None:
    line = _TRAINER.format(model="Qwen/Qwen2.5-0.5B-Instruct", micro=1)
    files = {"run.sh": f"{seen}python {line}\n", line.split()[0]: PROGRAM}
    result = repaired(files, hardware="8xA100-80GB")
    assert (b"torchrun --nproc_per_node" in result.texts.get("run.sh", b"")) is is_applied
    assert any(d.rule.code == "OOM705" for d in (result.before or result.report).diagnoses)


@pytest.mark.parametrize("name", ["run_single4090.sh", "train-1xA100.sh", "one_rtx3090.sh"])
def test_a_name_for_one_card_speaks_against_sharding(name: str) -> None:
    assert contradiction(name, Plan(), {f.parallel.zero.stage: 3})


def test_a_script_for_other_accelerators_is_left_alone() -> None:
    wishes = {f.parallel.gpus_per_node: 8}
    assert contradiction("examples/run_qwen3_8b_npu.sh", Plan(), wishes) == "npu"
    assert contradiction("run-qwen3-4B-amd.sh", Plan(), wishes) == "amd"
    assert contradiction("run_qwen3_8b_npu.sh", Plan(), {}) is None  # a broken line is mended
    assert contradiction("run_qwen3_input.sh", Plan(), wishes) is None


# -- names of copies -----------------------------------------------------------------------------


def test_a_config_without_zero_is_copied_under_the_name_of_its_stage() -> None:
    assert contradiction("config_notzero.yaml", Plan(), {f.parallel.zero.stage: 3}) == "notzero"
    assert name_for("config_notzero", {f.parallel.zero.stage: 3}) == "config_zero3"


_ZERO = '{{"zero_optimization": {{"stage": {stage}{more}}}, "bf16": {{"enabled": "auto"}}{rest}}}\n'


def _sharing(others: dict[str, str]) -> Run:
    line = _TRAINER.format(model="Qwen/Qwen2.5-7B", micro=1)
    lines = dict.fromkeys(("a.sh", "b.sh"), f"deepspeed {line} --deepspeed ds/zero2.json\n")
    files = {**lines, "ds/zero2.json": _ZERO.format(stage=2, more="", rest=""), **others}
    return run_of(files, "a.sh")


def test_no_second_file_of_a_name_that_is_taken() -> None:
    other = _ZERO.format(stage=3, more="", rest=', "fp16": {"enabled": true}')
    fix = fix_of(_sharing({"ds/zero3.json": other}), {f.parallel.zero.stage: 3})
    assert fix.edits == ()
    assert fix.reason == "zero3.json beside it is for that, and says otherwise"


def test_zero_plus_plus_is_not_the_same_job() -> None:
    quantized = ', "zero_quantized_weights": true, "zero_hpz_partition_size": 16'
    other = _ZERO.format(stage=3, more=quantized, rest="")
    fix = fix_of(_sharing({"ds/zero3pp.json": other}), {f.parallel.zero.stage: 3})
    assert "zero3pp.json" not in fix.title
    assert [edit.path for edit in fix.edits if edit.creates] == ["ds/zero3.json"]


def test_an_optimizer_that_the_trainer_fills_in_is_its_own() -> None:
    line = _TRAINER.format(model="Qwen/Qwen2.5-7B", micro=1)
    lines = dict.fromkeys(("a.sh", "b.sh"), f"deepspeed {line} --deepspeed ds/zero2.json\n")
    adam = ', "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}}'
    files = {
        **lines,
        "ds/zero2.json": _ZERO.format(stage=2, more="", rest=adam),
        "ds/zero3.json": _ZERO.format(
            stage=3, more=', "stage3_gather_16bit_weights_on_model_save": true', rest=""
        ),
    }
    fix = fix_of(run_of(files, "a.sh"), {**ZERO_3, f.parallel.zero.gather16_on_save: True})
    assert "by naming zero3.json" in fix.title


# -- the right place -----------------------------------------------------------------------------

_ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
mixed_precision: bf16
num_machines: 1
num_processes: 2
deepspeed_config:
  zero_stage: 3
"""


def test_what_a_launchers_config_has_a_section_for_stands_there() -> None:
    line = _TRAINER.format(model="Qwen/Qwen2.5-7B", micro=1)
    files = {
        "run.sh": f"accelerate launch --config_file acc.yaml {line}\n",
        "acc.yaml": _ACCELERATE,
    }
    fix = fix_of(run_of(files, "run.sh"), {f.offload.optimizer: "cpu"})
    assert [edit.path for edit in fix.edits] == ["acc.yaml"]


# -- what the program takes ----------------------------------------------------------------------

_SCRIPT = """\
from transformers import AutoModelForCausalLM, {imported}
from trl import SFTTrainer{config}

args = {name}(output_dir="out", bf16=True, per_device_train_batch_size=4)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", torch_dtype="bfloat16")
SFTTrainer(model=model, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize("name", ["SFTConfig", "TrainingArguments"])
def test_an_argument_of_trls_class_is_not_given_to_transformers_own(name: str) -> None:
    is_trls = name == "SFTConfig"
    text = _SCRIPT.format(
        imported="Trainer" if is_trls else name, config=", SFTConfig" if is_trls else "", name=name
    )
    files = {"train.py": text, "requirements.txt": "trl==1.5.0\n"}
    fix = fix_of(run_of(files, "train.py"), {f.loss.logits_materialised: "chunked"})
    assert bool(fix.edits) is is_trls
    if not is_trls:
        assert fix.reason == "TrainingArguments has no argument loss_type"


_RLHF = """\
deepspeed --module openrlhf.cli.train_sft --pretrain meta-llama/Meta-Llama-3-8B --max_len 4096 \\
  --train_batch_size 128 --micro_train_batch_size 2 --zero_stage 2 --bf16 --save_path out
"""
_PROGRAM = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--pretrain")
parser.add_argument("--adam_offload", action="store_true")
{more}args = parser.parse_args()
"""


@pytest.mark.parametrize("has_it", [True, False])
def test_a_copy_of_openrlhf_gets_no_option_that_its_program_lacks(has_it: bool) -> None:
    more = 'parser.add_argument("--attn_implementation")\n' if has_it else ""
    files = {"run.sh": _RLHF, "openrlhf/cli/train_sft.py": _PROGRAM.format(more=more)}
    fix = fix_of(run_of(files, "run.sh"), {f.model.attn_impl: "sdpa"})
    assert bool(fix.edits) is has_it
    if not has_it:
        assert "own copy of openrlhf has no key attn_implementation" in str(fix.reason)


_VERL = """\
data:
  train_files: a
actor_rollout_ref:
  model:
    path: Qwen/Qwen2.5-7B-Instruct
    use_remove_padding: true
  actor:
    strategy: fsdp
    ppo_micro_batch_size: 32
  rollout:
    name: vllm
trainer:
  n_gpus_per_node: 8
"""


@pytest.mark.parametrize("known", ["", "    use_fused_kernels: false\n"])
def test_a_config_beside_a_copy_of_verl_gets_no_key_that_the_copy_lacks(known: str) -> None:
    copy = f"actor_rollout_ref:\n  model:\n    path: ~/model\n{known}"
    files = {"configs/grpo.yaml": _VERL, "verl/trainer/config/ppo_trainer.yaml": copy}
    fix = fix_of(run_of(files, "configs/grpo.yaml"), {f.loss.logits_materialised: "fused"})
    assert bool(fix.edits) is bool(known)


def test_fused_kernels_of_verl_are_not_for_models_of_other_parts() -> None:
    text = _VERL.replace("Qwen/Qwen2.5-7B-Instruct", "openbmb/MiniCPM-o-2_6")
    fix = fix_of(run_of({"grpo.yaml": text}), {f.loss.logits_materialised: "fused"})
    assert fix.applicability is Applicability.DISPLAY


# -- scripts with branches -----------------------------------------------------------------------

_BRANCHES = """\
HERE=$(dirname "$0")
GRAD_CKPT=true
FLAG=""
{branch}
deepspeed train.py --model_name_or_path Qwen/Qwen2.5-7B --output_dir out --bf16 True \\
  --per_device_train_batch_size 4 {flag}
"""


@pytest.mark.parametrize(
    "branch",
    [
        'if [ "$GRAD_CKPT" = true ]; then FLAG="--gradient_checkpointing True"; fi',
        'if [ "$GRAD_CKPT" = true ]; then\n  FLAG="--gradient_checkpointing True"\nfi',
    ],
)
def test_what_a_branch_sets_for_its_condition_stays(branch: str) -> None:
    text = _BRANCHES.format(branch=branch, flag="$FLAG")
    source = Source("run.sh", text)
    at = text.index("True", text.index("FLAG=") + 8)
    edit = Edit("run.sh", at, at + 4, "False")
    assert branch_at(source, edit) == '[ "$GRAD_CKPT" = true ]'
    outside = text.rindex("4")
    assert branch_at(source, Edit("run.sh", outside, outside + 1, "2")) is None


def test_an_option_that_the_script_picks_itself_is_not_given_too() -> None:
    branch = 'if [ "$BACKEND" = ds ]; then\n  FLAGS+=(--deepspeed "$CONFIG")\nfi'
    source = Source("run.sh", _BRANCHES.format(branch=branch, flag='"${FLAGS[@]}"'))
    end = len(source.text) - 1
    assert added_elsewhere(source, Edit("run.sh", end, end, " --deepspeed zero3")) == "--deepspeed"
    assert added_elsewhere(source, Edit("run.sh", end, end, " --tf32 True")) is None


def test_the_folder_that_a_variable_names_stays_written_by_it() -> None:
    line = _TRAINER.format(model="Qwen/Qwen2.5-7B", micro=1)
    text = 'HERE=ds\ndeepspeed {} --deepspeed "$HERE/zero2.json"\n'
    lines = {name: text.format(line) for name in ("a.sh", "b.sh")}
    files = {**lines, "ds/zero2.json": _ZERO.format(stage=2, more="", rest="")}
    fix = fix_of(run_of(files, "a.sh"), {f.parallel.zero.stage: 3})
    (named,) = [edit for edit in fix.edits if edit.path == "a.sh"]
    assert named.replacement == "zero3.json"


def test_a_copy_has_something_to_be_called_by() -> None:
    line = _TRAINER.format(model="Qwen/Qwen2.5-7B", micro=1)
    lines = dict.fromkeys(("a.sh", "b.sh"), f"accelerate launch --config_file acc.yaml {line}\n")
    config = _ACCELERATE.replace("DEEPSPEED", "FSDP").partition("deepspeed_config")[0]
    wrap = "  fsdp_transformer_layer_cls_to_wrap: GemmaDecoderLayer\n"
    files = {**lines, "acc.yaml": f"{config}fsdp_config:\n  fsdp_version: 2\n{wrap}"}
    run = link(files, "a.sh", "b.sh").runs[0]
    origin = next(
        setting.origin
        for setting in run.settings.values()
        if setting.origin.entry is not None
        and setting.origin.entry.key == "fsdp_transformer_layer_cls_to_wrap"
    )
    assert origin.block is not None
    assert origin.entry is not None
    wish = RemoveKey(origin.block, origin.entry)
    fix = make_fix(run, Proposal("remove it", (wish,)), "gpu")
    assert fix is not None
    assert fix.edits == ()
