"""What maintainers sent back in a third reading (``benchmarks/strangers/diffs-3.jsonl``)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fixing import fix_of, repaired
from tests.linked import PROGRAM, report_of, run_of

from oomlint.dialects.deepspeed.presets import neighbour
from oomlint.documents import parse
from oomlint.documents.text import Source
from oomlint.files.workspace import Workspace
from oomlint.fix.apply import FixResult
from oomlint.fix.planned import with_plans
from oomlint.fix.story import contradiction, name_for, variant_beside
from oomlint.hardware import parse_hardware
from oomlint.judgement import cards_missing, judgement_of
from oomlint.linting.engine import Diagnosis, Options, lint
from oomlint.linting.rule import Applicability
from oomlint.plan import Plan
from oomlint.plan.fields import ZERO_3, f


def _added(result: FixResult, name: str) -> set[str]:
    old = (result.originals[name] or b"").decode().splitlines() if name in result.originals else []
    return set(result.texts.get(name, b"").decode().splitlines()) - set(old)


# -- memory is changed where that decides something ---------------------------------------------------

_AXOLOTL = """\
base_model: NousResearch/Meta-Llama-3-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: {length}
sample_packing: true
micro_batch_size: {micro}
gradient_accumulation_steps: 4
gradient_checkpointing: true
flash_attention: true
optimizer: adamw_torch
bf16: true
adapter: lora
lora_r: 16
lora_target_linear: true
"""


def _shown_and_risk(text: str, hardware: str) -> tuple[list[Diagnosis], float]:
    options = Options(hardware=parse_hardware(hardware))
    workspace = Workspace(Path("/p"), {"a.yaml": text.encode()})
    report = lint(workspace, ["a.yaml"], options)
    (run,) = report.runs
    risk = judgement_of(run).risk
    assert risk is not None
    assert risk.any is not None
    return with_plans(report, options, Applicability.SAFE), risk.any


def test_a_run_that_rather_runs_is_left_as_it_is() -> None:
    text = _AXOLOTL.format(length=6144, micro=2)
    found, risk = _shown_and_risk(text, "1xA100-40GB")
    assert 0.2 <= risk < 0.5
    assert not any(d.fix and d.fix.edits for d in found)


def test_nothing_is_changed_where_the_run_dies_all_the_same() -> None:
    text = _AXOLOTL.format(length=131072, micro=4).replace("adapter: lora", "adapter:")
    result = repaired({"a.yaml": text}, hardware="1xRTX-4090-24GB")
    assert result.texts == {}
    reasons = {d.fix.reason for d in result.report.diagnoses if d.fix is not None}
    assert "the run would rather die with it, too" in reasons


_TRAINER = (
    "train.py --model_name_or_path meta-llama/Meta-Llama-3-8B --output_dir out --bf16 True"
    " --per_device_train_batch_size 8 --gradient_accumulation_steps 2 --model_max_length 4096"
    " --gradient_checkpointing True"
)


def test_memory_of_processes_without_cards_is_nobodys() -> None:
    ds = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}\n'
    line = f"torchrun --nproc_per_node 8 {_TRAINER} --deepspeed zero3.json\n"
    files = {"run.sh": line, "zero3.json": ds, "train.py": PROGRAM}
    safe = repaired(files, "run.sh", hardware="2xA100-40GB")
    assert safe.texts == {}
    assert all(map(cards_missing, safe.report.runs))
    unsafe = repaired(files, "run.sh", hardware="2xA100-40GB", unsafe=True)
    assert b"--nproc_per_node 2" in unsafe.texts["run.sh"]
    assert not any(map(cards_missing, unsafe.report.runs))


# -- what is saved ---------------------------------------------------------------------------------

_MOE = """\
base_model: deepseek-ai/DeepSeek-Coder-V2-Instruct
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
sequence_len: 32768
sample_packing: true
micro_batch_size: 1
gradient_checkpointing: true
bf16: true
flash_attention: true
saves_per_epoch: 4
deepspeed: ds.json
"""
_GATHERS = (
    '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"},'
    ' "stage3_gather_16bit_weights_on_model_save": true}, "bf16": {"enabled": true}}\n'
)


def test_checkpoints_in_shards_are_not_what_was_saved_before() -> None:
    files = {"a.yaml": _MOE, "ds.json": _GATHERS}
    found = report_of(files, hardware="6x8xA100-80GB").diagnoses
    fixes = [d.fix for d in found if d.rule.code in ("OOM501", "OOM504") and d.fix is not None]
    assert fixes
    assert all(fix.applicability < Applicability.SAFE for fix in fixes)


# -- what the program takes ------------------------------------------------------------------------

_PARSES = """\
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, HfArgumentParser, TrainingArguments
from trl import SFTTrainer

@dataclass
class SFTConfig(TrainingArguments):
    max_seq_length: int = 512

@dataclass
class ModelArguments:
    model_name_or_path: str = "Qwen/Qwen2.5-7B"
{more}
model_args, args = HfArgumentParser((ModelArguments, SFTConfig)).parse_yaml_file("sft.yaml")
model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path)
SFTTrainer(model=model, args=args, train_dataset=data).train()
"""
_CONFIG = """\
model_name_or_path: Qwen/Qwen2.5-7B
torch_dtype: bfloat16
bf16: true
max_seq_length: 4096
per_device_train_batch_size: 4
output_dir: out
"""


@pytest.mark.parametrize("declared", [False, True])
def test_a_config_gets_no_key_that_its_scripts_own_class_lacks(declared: bool) -> None:
    more = '    loss_type: str = "nll"\n' if declared else ""
    files = {
        "run.sh": "deepspeed train.py sft.yaml\n",
        "train.py": _PARSES.format(more=more),
        "sft.yaml": _CONFIG,
        "requirements.txt": "trl==1.5.0\n",
    }
    fix = fix_of(run_of(files, "run.sh"), {f.loss.logits_materialised: "chunked"})
    assert bool(fix.edits) is declared
    if not declared:
        assert fix.reason == "the script that reads it declares no loss_type"


_OWN_LOSS = """\
from transformers import AutoModelForCausalLM, TrainingArguments
from trl import SFTTrainer

class Distiller(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        return distance({read}, inputs["teacher"])

args = TrainingArguments(output_dir="out", bf16=True, per_device_train_batch_size=4)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", torch_dtype="bfloat16")
Distiller(model=model, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("read", "is_written"),
    [
        ("outputs.logits", False),
        ('outputs["logits"]', False),
        ('outputs.get("logits")', False),
        ("outputs.loss", True),
    ],
)
def test_no_fused_loss_where_the_scripts_own_reads_the_logits(read: str, is_written: bool) -> None:
    run = run_of({"train.py": _OWN_LOSS.format(read=read)})
    fix = fix_of(run, {f.loss.logits_materialised: "fused"})
    assert bool(fix.edits) is is_written
    if not is_written:
        assert fix.reason == "Distiller.compute_loss reads the logits"


@pytest.mark.parametrize(("kind", "logits"), [("", "fused"), ("rl: dpo\n", "full")])
def test_a_loss_fused_into_the_model_is_nothing_to_preference_trainers(
    kind: str, logits: str
) -> None:
    liger = "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_fused_linear_cross_entropy: true\n"
    text = _AXOLOTL.format(length=2048, micro=1) + kind
    assert run_of({"a.yaml": text + liger}).plan.loss.logits_materialised == logits
    fix = fix_of(run_of({"a.yaml": text}), {f.loss.logits_materialised: "fused"})
    assert bool(fix.edits) is (not kind)


_FACTORY = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B
stage: sft
do_train: true
finetuning_type: {method}
dataset: alpaca_en_demo
template: llama3
cutoff_len: 2048
output_dir: out

### output
max_steps: 500

### train
per_device_train_batch_size: 1
learning_rate: 1.0e-5
lr_scheduler_type: cosine
bf16: true
{more}"""


def test_a_word_of_fsdp_stays_a_word() -> None:
    more = "fsdp:\n  - full_shard\n  - auto_wrap\n"
    text = _FACTORY.format(method="full", more=more)
    fix = fix_of(run_of({"a.yaml": text}), {f.parallel.fsdp.cpu_offload: True})
    assert [edit.replacement.strip() for edit in fix.edits] == ["- offload"]


def test_checkpointing_that_is_on_anyway_is_not_written() -> None:
    text = _FACTORY.format(method="lora", more="")
    wishes = {f.checkpointing.mode: "full", f.checkpointing.offload: "cpu"}
    fix = fix_of(run_of({"a.yaml": text}), wishes)
    assert [edit.replacement.strip() for edit in fix.edits] == ["use_unsloth_gc: true"]


# -- the right place -------------------------------------------------------------------------------

_TUNE = """\
# tune run --nproc_per_node 8 full_finetune_distributed --config 8B_full
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: /tmp/tokenizer.model
model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
optimizer:
  _component_: torch.optim.AdamW
  lr: 2e-5
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
batch_size: 2
epochs: 1

# Memory management
enable_activation_checkpointing: True
enable_activation_offloading: False
dtype: bf16
"""


def test_what_saves_memory_stands_together() -> None:
    fix = fix_of(run_of({"8B_full.yaml": _TUNE}), {f.parallel.fsdp.cpu_offload: True})
    (edit,) = fix.edits
    before = _TUNE[: edit.start].rstrip().splitlines()[-1]
    assert before == "enable_activation_offloading: False"
    assert edit.replacement.strip() == "fsdp_cpu_offload: True"  # as the file spells it


def test_no_key_that_the_file_denies_under_another_name() -> None:
    text = f"{_TUNE}fsdp:\n  cpu_offload: False\n"
    fix = fix_of(run_of({"8B_full.yaml": text}), {f.parallel.fsdp.cpu_offload: True})
    assert fix.edits == ()
    assert fix.reason == "the file says fsdp.cpu_offload: False, which no code reads"


def test_an_optimizer_stands_with_its_learning_rate() -> None:
    text = _FACTORY.format(method="full", more="")
    fix = fix_of(run_of({"a.yaml": text}), {f.optimizer.kind: "adamw8bit"})
    (edit,) = fix.edits
    assert text[: edit.start].rstrip().endswith("lr_scheduler_type: cosine")


_RAY = """\
rlhf_type: grpo
model: Qwen/Qwen2.5-7B
dataset: a
micro_batch_size: 2
global_batch_size: 16
max_length: 8192
finetune: true
recompute_granularity: selective
colocate_groups: [[train, rollout]]
train:
  gpus: 8
  tuner_type: lora
  lora_rank: 8
rollout:
  gpus: 8
  vllm_tensor_parallel_size: 1
"""


def test_one_wish_is_written_in_one_group() -> None:
    fix = fix_of(run_of({"ray.yaml": _RAY}), {f.checkpointing.mode: "full"})
    text = _RAY
    for edit in sorted(fix.edits, key=lambda each: -each.start):
        text = text[: edit.start] + edit.replacement + text[edit.end :]
    assert text.index("recompute_method: uniform") < text.index("train:")


def test_one_group_of_several_keeps_its_cards() -> None:
    fix = fix_of(run_of({"ray.yaml": _RAY}), {f.parallel.gpus_per_node: 2})
    assert fix.reason == "the other groups of the config have GPUs of their own"


# -- copies and twins ------------------------------------------------------------------------------

_ACCELERATE = """\
compute_environment: LOCAL_MACHINE
deepspeed_config:
  offload_optimizer_device: none
  offload_param_device: none
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
distributed_type: DEEPSPEED
mixed_precision: bf16
num_machines: 1
num_processes: 2
"""


def test_a_config_in_a_folder_for_all_is_copied_beside_itself_and_once() -> None:
    line = f"accelerate launch --config_file recipes/accelerate_configs/zero3.yaml {_TRAINER}\n"
    files = {
        "scripts/a.sh": line,
        "scripts/b.sh": line.replace("--output_dir out", "--output_dir out2"),
        "recipes/accelerate_configs/zero3.yaml": _ACCELERATE,
    }
    run = run_of(files, "scripts/a.sh")
    fix = fix_of(run, {f.offload.optimizer: "cpu"})
    new = "recipes/accelerate_configs/zero3_offload_optimizer.yaml"
    assert [edit.path for edit in fix.edits if edit.creates] == [new]
    there = {**files, new: _ACCELERATE.replace("optimizer_device: none", "optimizer_device: cpu")}
    other = fix_of(run_of(there, "scripts/b.sh"), {f.offload.optimizer: "cpu"})
    assert "by naming zero3_offload_optimizer.yaml" in other.title


_ZERO = '{{"zero_optimization": {{"stage": 3{more}}}, "bf16": {{"enabled": {bf16}}}}}\n'
_OFFLOADED = ', "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}'


@pytest.mark.parametrize("bf16", ["true", '"auto"'])
def test_a_file_beside_it_that_does_the_job_is_named_and_none_changed(bf16: str) -> None:
    files = {
        "run.sh": f"deepspeed {_TRAINER} --deepspeed ds/zero3.json\n",
        "ds/zero3.json": _ZERO.format(more="", bf16="true"),
        "ds/zero3_offload.json": _ZERO.format(more=_OFFLOADED, bf16=bf16),
    }
    wishes = {f.offload.optimizer: "cpu", f.offload.params: "cpu"}
    fix = fix_of(run_of(files, "run.sh"), wishes)
    assert {edit.path for edit in fix.edits} == {"run.sh"}
    assert "by naming zero3_offload.json" in fix.title


def test_a_file_that_is_shipped_is_another_files_neighbour_in_the_runs_precision() -> None:
    wishes = {**ZERO_3, f.offload.optimizer: "cpu", f.offload.params: "cpu"}
    shipped = "deepspeed_configs/zero1.json"
    found = neighbour(shipped, wishes, "bf16")
    assert found == "deepspeed_configs/zero3_bf16_cpuoffload_all.json"
    assert neighbour(shipped, wishes, "fp16") is None


# -- stories ---------------------------------------------------------------------------------------


def test_a_folder_for_other_accelerators_is_left_alone() -> None:
    wishes = {f.optimizer.kind: "adamw8bit"}
    assert contradiction("examples/ascend/qwen3_full.yaml", Plan(), wishes) == "ascend"
    assert contradiction("examples/ascending/qwen3_full.yaml", Plan(), wishes) is None


def test_a_config_that_tokenizes_trains_nothing() -> None:
    assert contradiction("llama3_preprocess.yaml", Plan(), {f.batch.micro: 1}) == "preprocess"
    assert contradiction("preprocessor_lora.yaml", Plan(), {f.batch.micro: 1}) is None


def test_a_base_is_quantized_in_the_file_beside_that_is_for_it() -> None:
    wishes = {f.quant.method: "bnb4"}
    beside = ["8B_lora.yaml", "8B_qlora.yaml"]
    assert variant_beside("8B_lora.yaml", beside, wishes) == "8B_qlora.yaml"
    assert variant_beside("8B_lora.yaml", ["8B_lora.yaml", "70B_qlora.yaml"], wishes) is None


# -- launching ---------------------------------------------------------------------------------------

_MESH = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
mixed_precision: bf16
num_machines: 1
num_processes: 8
{mesh}"""


@pytest.mark.parametrize(
    ("mesh", "is_aligned"),
    [
        ("", True),
        (
            "parallelism_config:\n  parallelism_config_dp_shard_size: 4\n  parallelism_config_tp_size: 2\n",
            False,
        ),
    ],
)
def test_no_fewer_processes_than_the_mesh_of_the_file_takes(mesh: str, is_aligned: bool) -> None:
    files = {
        "accelerate_config.yaml": _MESH.format(mesh=mesh),
        "run.sh": "accelerate launch --config_file accelerate_config.yaml train.py --output_dir out "
        "--model_name_or_path Qwen/Qwen2.5-0.5B --per_device_train_batch_size 1 --bf16 True\n",
        "train.py": PROGRAM,
    }
    result = repaired(files, hardware="2xA100-80GB", unsafe=True)
    assert ("accelerate_config.yaml" in result.texts) is is_aligned


_WRITES_CONFIG = """\
GPUS_PER_NODE=4
NNODES=2
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
DS_CONFIG=./ds.json
ENV_ARGS="WANDB_DISABLED=true CUDA_VISIBLE_DEVICES=1"

DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \\
    --nnodes $NNODES
"

cat <<EOT > $DS_CONFIG
{
  "train_batch_size" : 32,
  "train_micro_batch_size_per_gpu": 4,
  "zero_optimization": {"stage": 1},
  "bf16": {"enabled": true}
}
EOT

$ENV_ARGS torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \\
    --num-layers 24 \\
    --hidden-size 1024 \\
    --num-attention-heads 16 \\
    --seq-length 512 \\
    --max-position-embeddings 512 \\
    --micro-batch-size 4 \\
    --global-batch-size 32 \\
    --bf16 \\
    --tensor-model-parallel-size 2 \\
    --deepspeed --deepspeed_config=$DS_CONFIG --zero-stage=1 \\
    --distributed-backend nccl
"""


def test_a_variable_of_a_script_is_not_replaced_by_a_number_in_a_string_either() -> None:
    # What a run has of a script that writes its own config is not the script's text.
    result = repaired({"run.sh": _WRITES_CONFIG}, hardware="8xA100-80GB", unsafe=True)
    (found,) = (d for d in result.report.diagnoses if d.rule.code == "OOM706")
    assert found.fix is not None
    assert "it is written as $GPUS_PER_NODE" in str(found.fix.reason)


def test_a_command_whose_values_are_gone_is_not_joined() -> None:
    lines = "python train.py \\\n  --a 1 \\\n  --tokenizer-type \n  --tokenizer-model \n  --b 2\n"
    (fact,) = (
        fact for fact in parse(Source("run.sh", lines)).facts if fact.kind == "broken-continuation"
    )
    assert fact.detail["cuts"] == 2
    assert fact.mend == ()


# -- a fourth reading ------------------------------------------------------------------------------


def test_a_remark_that_several_runs_share_rewrites_nothing() -> None:
    script = (
        "import os\nos.environ['CUDA_LAUNCH_BLOCKING'] = '1'\n"
        "from transformers import HfArgumentParser, TrainingArguments\nfrom trl import SFTTrainer\n"
        "args, = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\n"
        "SFTTrainer(model='Qwen/Qwen2.5-0.5B', args=args, train_dataset=data).train()\n"
    )
    line = "python train.py --output_dir {name} --per_device_train_batch_size 1 --bf16 True\n"
    files = {"train.py": script, **{f"{n}.sh": line.format(name=n) for n in ("a", "b")}}
    result = repaired(files, hardware="8xA100-80GB")
    found = [d for d in result.report.diagnoses if d.rule.code == "OOM715"]
    assert found
    assert all(d.severity.label == "info" for d in found)
    assert "train.py" not in result.texts


def test_a_name_for_a_stage_holds_for_a_run_of_a_lower_one_too() -> None:
    run = run_of(
        {**_STAGED, "run.sh": f"deepspeed {_TRAINER} --deepspeed ds_zero2.json\n"}, "run.sh"
    )
    plan = run.plan
    assert plan.parallel.zero.stage == 1
    assert contradiction("ds_zero2.json", plan, {f.parallel.zero.stage: 3}) == "zero2"
    assert contradiction("ds_zero2.json", plan, {f.parallel.zero.stage: 2}) is None
    assert contradiction("ds_zero0.json", plan, {f.parallel.zero.stage: 3}) is None


_STAGED = {"ds_zero2.json": '{"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}}\n'}

_DEFAULTS = """\
from dataclasses import dataclass, field
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class Arguments:
    model_name_or_path: str = "Qwen/Qwen2.5-7B"
    gradient_checkpointing: bool = field(default=False)

own, args = HfArgumentParser((Arguments, TrainingArguments)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(own.model_name_or_path, torch_dtype="bfloat16")
Trainer(model=model, args=args, train_dataset=data).train()
"""


def test_the_default_of_a_script_is_its_other_users_too() -> None:
    line = f"torchrun --nproc_per_node 8 {_TRAINER}\n".replace("--gradient_checkpointing True", "")
    run = run_of({"run.sh": line, "train.py": _DEFAULTS})
    fix = fix_of(run, {f.checkpointing.mode: "full"})
    assert {edit.path for edit in fix.edits} == {"run.sh"}


_GRPO = """\
model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
torch_dtype: bfloat16
bf16: true
use_vllm: false
num_generations: 8
max_prompt_length: 512
max_completion_length: 2048
per_device_train_batch_size: 16
gradient_accumulation_steps: 1
output_dir: out
"""


@pytest.mark.parametrize(("release", "is_written"), [("0.16.0", False), ("0.17.0", True)])
def test_a_micro_batch_holds_groups_of_answers_where_trl_wants_it(
    release: str, is_written: bool
) -> None:
    files = {"grpo.yaml": _GRPO, "requirements.txt": f"trl=={release}\n"}
    run = run_of(files, "grpo.yaml", hardware="2xRTX-4090-24GB")
    fix = fix_of(run, {f.batch.micro: 1, f.batch.grad_accum: 16})
    assert bool(fix.edits) is is_written
    if not is_written:
        assert fix.reason == "before TRL 0.17 a micro batch must hold groups of 8 answers"


@pytest.mark.parametrize(("release", "is_written"), [("1.3.0", False), ("1.5.0", True)])
def test_chunks_only_where_trl_has_them(release: str, is_written: bool) -> None:
    files = {"sft.yaml": _CONFIG.replace("max_seq", "max"), "requirements.txt": f"trl=={release}\n"}
    fix = fix_of(run_of(files, "sft.yaml"), {f.loss.logits_materialised: "chunked"})
    assert bool(fix.edits) is is_written


# -- a fifth reading -------------------------------------------------------------------------------


@pytest.mark.parametrize(("spread", "is_aligned"), [(1, True), (2, True), (4, False)])
def test_no_fewer_processes_than_the_engine_is_spread_over(spread: int, is_aligned: bool) -> None:
    line = (
        "CUDA_VISIBLE_DEVICES=0,1 python3 -m verl.trainer.main_ppo trainer.nnodes=1"
        " trainer.n_gpus_per_node=4 actor_rollout_ref.rollout.name=vllm"
        " actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B"
        f" actor_rollout_ref.rollout.tensor_model_parallel_size={spread}\n"
    )
    added = _added(repaired({"run.sh": line}, hardware="8xA100-80GB", unsafe=True), "run.sh")
    assert any("trainer.n_gpus_per_node=2" in each for each in added) is is_aligned


def test_what_was_pasted_behind_a_backslash_is_not_made_an_argument() -> None:
    lines = "python train.py \\\n  --out {out}\n  --b 2\n"
    for out, is_mended in (("a.json", True), ("a.json \\https://example.org/", False)):
        script = parse(Source("run.sh", lines.format(out=out)))
        (fact,) = (fact for fact in script.facts if fact.kind == "broken-continuation")
        assert bool(fact.mend) is is_mended


@pytest.mark.parametrize("key", ["q_lora", "attn_implementation"])
def test_a_file_of_arguments_gets_no_key_that_only_some_scripts_declare(key: str) -> None:
    arguments = (
        '{\n  "output_dir": "out",\n  "model_name_or_path": "Qwen/Qwen2.5-7B",\n  "max_seq_length": 1400,\n'
        '  "per_device_train_batch_size": 10,\n  "gradient_accumulation_steps": 2,\n  "learning_rate": 1e-4,\n  "num_train_epochs": 3,\n  "lora_rank": 64,\n'
        '  "save_steps": 300,\n  "logging_steps": 20,\n  "optim": "paged_adamw_32bit",\n  "fp16": true\n}\n'
    )
    wishes = {
        "q_lora": {f.quant.method: "bnb4"},
        "attn_implementation": {f.model.attn_impl: "sdpa"},
    }
    fix = fix_of(run_of({"train_args/sft.json": arguments}), wishes[key])
    assert fix.edits == ()
    assert "declares" in str(fix.reason)


@pytest.mark.parametrize(
    ("stem", "copy"),
    [
        ("ds_zero2_no_offload", "ds_zero3_offload"),
        ("zero2-without-offloading", "zero3_offload"),
        ("no_offload", "zero3_offload"),
        ("zero2", "zero3_offload"),
    ],
)
def test_a_copy_that_offloads_is_not_called_by_what_does_not(stem: str, copy: str) -> None:
    wishes = {**ZERO_3, f.offload.optimizer: "cpu", f.offload.params: "cpu"}
    assert name_for(stem, wishes) == copy


def test_a_relative_path_without_quotes_gets_none() -> None:
    text = _AXOLOTL.format(length=2048, micro=1) + "deepspeed: ./deepspeed_configs/zero1.json\n"
    wishes = {**ZERO_3, f.offload.params: "none"}
    fix = fix_of(run_of({"a.yaml": text}), wishes)
    assert [edit.replacement for edit in fix.edits] == ["./deepspeed_configs/zero3.json"]


_OWN_STEP = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

class OwnTrainer(Trainer):
    def {function}(self, *given):
        logits = self.model(**given[-1]).logits
        return logits.logsumexp(-1).mean()

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
OwnTrainer(model=model, args=TrainingArguments("out"), train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("function", "is_fused"),
    [("train", False), ("training_step", False), ("compute_loss", False), ("evaluate", True)],
)
def test_no_fused_loss_for_a_trainer_that_reads_logits_in_any_of_its_steps(
    function: str, is_fused: bool
) -> None:
    fix = fix_of(
        run_of({"train.py": _OWN_STEP.format(function=function)}),
        {f.loss.logits_materialised: "fused"},
    )
    assert bool(fix.edits) is is_fused
