"""What maintainers sent back in a fifth reading (``benchmarks/strangers/diffs-5.jsonl``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import link

from oomlint.files.workspace import Workspace
from oomlint.fix.apply import FixResult, fix_all
from oomlint.fix.edits import make_fix
from oomlint.hardware import parse_hardware
from oomlint.judgement import starves_engine
from oomlint.judgement.planner.moves import safe_moves
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Applicability, Proposal
from oomlint.plan.fields import f


def _fixed(files: dict[str, str], hardware: str, *, unsafe: bool = True) -> FixResult:
    data = {name: text.encode() for name, text in files.items()}
    options = Options(hardware=parse_hardware(hardware))
    return fix_all(Workspace(Path("/p"), data), list(files), options, unsafe=unsafe)


# -- options that a script has of its own ---------------------------------------------------------------

_COMMAND = (
    "torchrun --nproc_per_node 4 own/score.py --model_name_or_path meta-llama/Llama-3.1-8B"
    " --output_dir out --per_device_train_batch_size 8 --learning_rate 1e-5 --bf16 True"
    " --save_steps 10 --grad_checkpoint True\n"
)
_SCORES = """\
from dataclasses import dataclass
from transformers import HfArgumentParser, TrainingArguments
@dataclass
class ModelArguments:
    model_name_or_path: str = ""
    grad_checkpoint: bool = False
parser = HfArgumentParser((ModelArguments, TrainingArguments))
model_args, training_args = parser.parse_args_into_dataclasses()
run(model_args, training_args)
"""


def test_an_option_that_a_script_which_is_not_followed_declares_keeps_its_name() -> None:
    (run,) = link({"run.sh": _COMMAND, "own/score.py": _SCORES}).runs
    assert not run.misspelt


@pytest.mark.parametrize(("own", "is_written"), [(" --grad_checkpoint True", False), ("", True)])
def test_nothing_is_said_by_a_librarys_key_of_which_an_own_option_speaks(
    own: str, is_written: bool
) -> None:
    trains = _SCORES.replace("import Hf", "import Trainer, Hf").replace("run(", "Trainer(")
    trains = trains.replace("(model_args, training_args)", "(model=model, args=training_args)")
    command = _COMMAND.replace(" --grad_checkpoint True", own)
    (run,) = link({"run.sh": command, "own/score.py": trains}).runs
    wish = Proposal.set("recompute", {f.checkpointing.mode: "full"})
    fix = make_fix(run, wish, "gpu")
    assert fix is not None
    assert bool(fix.edits) is is_written


# -- what only the author decides -----------------------------------------------------------------------

_RECIPE = """\
model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: /tmp/model/original/tokenizer.model
  max_seq_len: null
dataset:
  _component_: torchtune.datasets.text_completion_dataset
  packed: False
seed: null
shuffle: True
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: /tmp/model/
  model_type: LLAMA3
optimizer:
  _component_: bitsandbytes.optim.PagedAdamW8bit
  lr: 2e-5
loss:
  _component_: torch.nn.CrossEntropyLoss
batch_size: 4
epochs: 1
gradient_accumulation_steps: 1
enable_activation_checkpointing: False
device: cuda
dtype: bf16
"""


def test_how_long_samples_may_be_is_shown_and_not_written() -> None:
    workspace = Workspace(Path("/p"), {"recipe.yaml": _RECIPE.encode()})
    report = lint(workspace, ["recipe.yaml"], Options(hardware=parse_hardware("1xH100-80GB")))
    (fix,) = (d.fix for d in report.diagnoses if d.rule.code == "OOM107")
    assert fix is not None
    assert fix.applicability is Applicability.DISPLAY


# -- what a neighbour's command tells -------------------------------------------------------------------

_GRPO = (
    "model_name_or_path: Qwen/Qwen2.5-1.5B\nattn_implementation: flash_attention_2\n"
    "dataset_name: open-r1/OpenR1-Math-220k\nbf16: true\nlearning_rate: 1.0e-06\n"
    "gradient_accumulation_steps: 3\nmax_completion_length: 512\nnum_generations: 6\n"
    "output_dir: out\nper_device_train_batch_size: 1\nreward_funcs:\n- accuracy\n"
)
_ACCELERATE = "distributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\n"


@pytest.mark.parametrize(
    ("named", "is_changed"), [("recipes/a.yaml", True), ("recipes/b.yaml", False)]
)
def test_whole_groups_are_asked_of_a_run_whose_processes_its_own_command_starts(
    named: str, is_changed: bool
) -> None:
    command = "accelerate launch --config_file zero2.yaml --num_processes=7 grpo.py --config "
    script = "from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser\n"
    script += "parser = TrlParser((ScriptArguments, GRPOConfig, ModelConfig))\n"
    script += "script_args, training_args, model_args = parser.parse_args_and_config()\n"
    script += "GRPOTrainer(model=model_args.model_name_or_path, args=training_args).train()\n"
    files = {
        "recipes/a.yaml": _GRPO,
        "recipes/b.yaml": _GRPO,
        "zero2.yaml": _ACCELERATE,
        "grpo.py": script,
        "run.sh": command + "recipes/a.yaml\n",
    }
    result = _fixed(files, "8xA100-80GB")
    assert (b"gradient_accumulation_steps: 6" in result.texts.get(named, b"")) is is_changed


# -- copies of a framework ------------------------------------------------------------------------------

_AXOLOTL = (
    "base_model: codellama/CodeLlama-34b-hf\ndatasets:\n  - path: a/b\n    type: alpaca\n"
    "adapter: qlora\nload_in_4bit: true\nlora_r: 32\nlora_target_linear: true\nsequence_len: 4096\n"
    "micro_batch_size: 2\ngradient_checkpointing: true\noptimizer: paged_adamw_32bit\nbf16: true\n"
)


@pytest.mark.parametrize("has_it", [True, False])
def test_a_copy_of_axolotl_gets_no_key_that_it_never_names(has_it: bool) -> None:
    asks = "if cfg.gradient_checkpointing:\n    pass\n"
    asks += "if cfg.activation_offloading:\n    pass\n" if has_it else ""
    files = {"examples/qlora.yml": _AXOLOTL, "src/axolotl/utils/config.py": asks}
    (run,) = link(files, "examples/qlora.yml").runs
    fix = make_fix(run, Proposal.set("offload", {f.checkpointing.offload: "cpu"}), "gpu")
    assert fix is not None
    assert bool(fix.edits) is has_it
    if not has_it:
        assert "own copy of axolotl has no key" in str(fix.reason)


# -- rounds of generation -------------------------------------------------------------------------------

_SHARE, _TP = f.objective.rollout.gpu_mem_util, f.objective.rollout.tp
_ROUNDS = (
    "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct --tuner_type full"
    " --torch_dtype bfloat16 --dataset a --max_completion_length 4096 --num_generations 8 --use_vllm true"
    " --vllm_mode colocate --vllm_gpu_memory_utilization {share} --per_device_train_batch_size 4"
    " --gradient_accumulation_steps 4{steps} --deepspeed zero2\n"
)


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [(" --steps_per_generation 32", " --steps_per_generation 64"), ("", "")],
)
def test_a_smaller_micro_batch_leaves_a_round_as_it_is(steps: str, wanted: str) -> None:
    text = _ROUNDS.format(share=0.6, steps=steps)
    after = fixed(
        lambda line: link({"run.sh": line}).runs[0],
        text,
        {"batch.micro": 2, "batch.grad_accum": 8},
    )
    assert wanted in after
    assert ("steps_per_generation" in after) is bool(steps)


def test_an_engine_keeps_what_its_weights_need() -> None:
    (run,) = link({"run.sh": _ROUNDS.format(share=0.6, steps="")}, hardware="8xA100-40GB").runs
    shares = {
        move.changes[_SHARE]
        for group in safe_moves(run)
        for move in group
        if _SHARE in move.changes
    }
    # 30 % of 40 GB is less than the 15 GB of a model of 7.6 billion parameters.
    assert shares == {0.5}
    plan = run.plan
    assert starves_engine(plan.with_values({_SHARE: 0.3}), run.limits.gpu_bytes)
    assert not starves_engine(plan.with_values({_SHARE: 0.3, _TP: 2}), run.limits.gpu_bytes)


@pytest.mark.parametrize(
    ("changes", "starves"),
    [
        ({}, True),
        # 15 GB in 16 bits are 4 in 4, where the engine loads them so.
        ({"quant.method": "bnb4", "quant.bits": 4.0}, False),
        ({"quant.method": "gptq", "quant.bits": 8.0, _SHARE: 0.1}, True),
        # All that the process holds already counts in the share, or nothing but keys and values.
        ({"objective.rollout.share_of": "process"}, True),
        ({"objective.rollout.share_of": "free"}, False),
        ({"objective.rollout.engine": "sglang"}, True),
    ],
)
def test_what_an_engine_keeps_is_its_weights_as_it_loads_them(
    changes: dict[Any, Any], starves: bool
) -> None:
    (run,) = link({"run.sh": _ROUNDS.format(share=0.3, steps="")}, hardware="8xA100-40GB").runs
    assert starves_engine(run.plan.with_values(changes), run.limits.gpu_bytes) is starves


def test_a_run_whose_engine_cannot_hold_its_weights_is_left_alone() -> None:
    result = _fixed({"run.sh": _ROUNDS.format(share=0.5, steps="")}, "8xRTX-4090")
    assert not result.texts


# -- scripts that source others -------------------------------------------------------------------------

_SOURCED = """\
read -r -d '' training_commands <<EOF
openrlhf.cli.train_sft --max_len 2048 --dataset a/b --train_batch_size 128 \\
   --micro_train_batch_size 2 --pretrain meta-llama/Meta-Llama-3-8B --save_path out --zero_stage 2 \\
   --bf16 --gradient_checkpointing
EOF
if [[ ${1} != "slurm" ]]; then
    deepspeed --module $training_commands
fi
"""
_SOURCES = """\
source ./train_sft.sh slurm
srun bash -c "torchrun --nproc_per_node 1 -m ${training_commands}"
"""


def test_an_option_is_added_where_the_others_stand_and_not_where_they_are_taken_in() -> None:
    result = _fixed({"train_sft.sh": _SOURCED, "slurm.sh": _SOURCES}, "1xA100-80GB")
    assert result.texts["train_sft.sh"].count(b"--adam_offload") == 1
    assert "slurm.sh" not in result.texts


# -- what starts a run ----------------------------------------------------------------------------------

_FSDP_JSON = """\
{
  "compute_environment": "LOCAL_MACHINE",
  "distributed_type": "FSDP",
  "fsdp_config": {"fsdp_offload_params": true, "fsdp_sharding_strategy": "FULL_SHARD"},
  "num_machines": 1,
  "num_processes": 2
}
"""


def test_accelerates_config_may_be_json() -> None:
    command = (
        "accelerate launch --config_file fsdp.json swift/cli/sft.py --model Qwen/Qwen2.5-72B-Instruct"
        " --tuner_type lora --quant_bits 4 --max_length 2048 --dataset a\n"
    )
    (run,) = link({"run.sh": command, "fsdp.json": _FSDP_JSON}, "run.sh").runs
    assert run.plan.parallel.backend == "fsdp1"
    assert run.plan.parallel.fsdp.cpu_offload
    assert run.plan.parallel.world == 2


_LORA = (
    "model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
    "dataset: a\ntemplate: llama3\ncutoff_len: 2048\noutput_dir: out\nper_device_train_batch_size: 1\nbf16: true\n"
)
_FSDP_YAML = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n"
    "  fsdp_sharding_strategy: FULL_SHARD\nnum_machines: 1\nnum_processes: 4\n"
)


def test_another_number_of_processes_is_no_reason_for_a_copy() -> None:
    files = {
        "train.sh": "accelerate launch --config_file examples/accelerate/fsdp_config.yaml src/train.py a.yaml\n",
        "a.yaml": _LORA,
        "examples/accelerate/fsdp_config.yaml": _FSDP_YAML,
        "src/train.py": "from llamafactory.train.tuner import run_exp\nrun_exp()\n",
    }
    result = _fixed(files, "2xA100-80GB")
    assert not result.texts
    reasons = [str(d.fix.reason) for d in result.report.diagnoses if d.fix is not None]
    assert any("said better on the command line" in reason for reason in reasons)


# -- copies of what a framework ships -------------------------------------------------------------------

_SCHEDULED = """\
NPROC_PER_NODE=3 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct --reward_funcs accuracy \\
    --tuner_type full --torch_dtype bfloat16 --use_vllm true --vllm_mode server --dataset a \\
    --max_completion_length 2048 --per_device_train_batch_size 1 --gradient_accumulation_steps 4 \\
    --num_generations 4 --deepspeed zero3
"""


@pytest.mark.parametrize("mark", ["training/ms-swift/setup.py", "setup.py", ""])
def test_a_copy_is_named_from_the_root_of_the_project_that_its_script_is_of(mark: str) -> None:
    script = "training/ms-swift/examples/grpo/run.sh"
    files = {script: _SCHEDULED, **({mark: ""} if mark else {})}
    (run,) = link(files, script).runs
    few = {f.parallel.zero.max_live_params: 10**8, f.parallel.zero.max_reuse_distance: 10**8}
    fix = make_fix(run, Proposal.set("keep fewer", few), "gpu")
    assert fix is not None
    named, copy = sorted(fix.edits, key=lambda edit: edit.creates)
    root = "training/ms-swift/" if mark.startswith("training") else ""
    assert (named.path, named.replacement) == (script, copy.path.removeprefix(root))
