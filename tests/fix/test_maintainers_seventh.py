"""What maintainers sent back in a seventh reading (``benchmarks/strangers/diffs-7.jsonl``), and what was read after it
(``diffs-8.jsonl``): a fix goes into files of the project's own that its runs read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fixing import fix_of, repaired
from tests.linked import link, run_of, workspace_of

from oomlint.documents.text import Edit, Source
from oomlint.files.workspace import Workspace
from oomlint.fix.apply import fix_all
from oomlint.fix.own_steps import reads_gradients
from oomlint.fix.ownership import why_not_ours, why_the_frameworks
from oomlint.fix.story import starts_what_is_given, tried_before, untrue_beside
from oomlint.linting.engine import Options
from oomlint.plan.fields import ZERO_3, f

# -- whose a file is --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "tests/e2e/run.sh", "verl/tests/sft/run_sft.sh", "tests/fixtures/sft.yaml", "third_party/swift/train.sh",
        "configs/old/a.toml", "scripts_archived/a.sh", "configs/zero2.json.bak", "train_old.sh", "deprecated/a.yaml",
    ],
)  # fmt: skip
def test_nothing_is_written_into_what_tests_read_others_own_or_nobody_uses(path: str) -> None:
    assert why_not_ours(workspace_of({path: ""}), path) is not None


@pytest.mark.parametrize(
    "path",
    ["train.sh", "test_code/a.sh", "configs/latest.yaml", "golden/a.yaml", "scripts/holdout.sh"],
)
def test_other_names_are_the_projects_own(path: str) -> None:
    assert why_not_ours(workspace_of({path: ""}), path) is None


def test_who_names_a_folder_or_a_file_means_it(tmp_path: Path) -> None:
    script = tmp_path / "third_party" / "swift" / "tests" / "a.sh"
    script.parent.mkdir(parents=True)
    script.touch()
    name = "third_party/swift/tests/a.sh"
    assert why_not_ours(Workspace(tmp_path), name)
    assert why_not_ours(Workspace(tmp_path, named=[tmp_path / "third_party"]), name)
    assert not why_not_ours(Workspace(tmp_path, named=[script.parent]), name)
    assert not why_not_ours(Workspace(tmp_path, named=[script]), name)


_SFT = """\
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
do_train: true
finetuning_type: full
dataset: alpaca
template: qwen
cutoff_len: 2048
per_device_train_batch_size: 4
gradient_accumulation_steps: 2
output_dir: out
bf16: true
deepspeed: examples/deepspeed/ds_z3_config.json
"""


@pytest.mark.parametrize(
    ("more", "is_written"),
    [
        ({}, False),
        ({"README.md": "llamafactory-cli train examples/mine/qwen_full.yaml\n"}, True),
        ({"requirements.txt": "torch\nllamafactory\n"}, True),
        ({"src/llamafactory/cli.py": ""}, True),
    ],
)
def test_an_example_of_a_framework_that_is_not_here_is_left_alone(
    more: dict[str, str], is_written: bool
) -> None:
    files = {"examples/mine/qwen_full.yaml": _SFT, "requirements.txt": "torch\n", **more}
    fix = fix_of(run_of(files, "examples/mine/qwen_full.yaml"), {f.batch.micro: 1})
    assert bool(fix.edits) is is_written
    assert is_written or "neither carries nor requires" in str(fix.reason)


def test_an_example_of_a_copy_in_a_folder_is_left_alone_unless_the_project_names_it() -> None:
    path = "LF/examples/train_full/qwen_full.yaml"
    files = {path: _SFT, "LF/src/llamafactory/cli.py": "", "requirements.txt": "torch\n"}
    fix = fix_of(run_of(files, path), {f.batch.micro: 1})
    assert "nothing outside of that names it" in str(fix.reason)
    files["train.sh"] = f"cd LF && llamafactory-cli train {path.removeprefix('LF/')}\n"
    assert fix_of(run_of(files, path), {f.batch.micro: 1}).edits


def test_code_of_the_framework_itself_is_left_alone() -> None:
    registry = "torchtitan/models/llama3/config_registry.py"
    (run,) = link({"a.toml": _TITAN}).runs
    assert why_the_frameworks(run, registry) is not None
    assert why_the_frameworks(run, "torchtitan/models/llama3/train_configs/a.toml") is None
    assert why_the_frameworks(run, "mine/config_registry.py") is None


# -- what the framework that is here knows ------------------------------------------------------------

_TITAN = """\
[model]
name = "llama3"
flavor = "8B"

[training]
local_batch_size = 8
seq_len = 8192
steps = 1000

[activation_checkpoint]
mode = "full"
"""


@pytest.mark.parametrize(
    ("manager", "is_known"),
    [
        ('parser.add_argument("--training.batch_size", type=int)\n', False),
        ('parser.add_argument("--training.global_batch_size", type=int)\n', True),
        ("class Training:\n    global_batch_size: int = -1\n", True),
        ("class Training:\n    local_batch_size: int = 8\n", False),
    ],
)
def test_a_copy_of_torchtitan_gets_no_key_that_it_has_not(manager: str, is_known: bool) -> None:
    files = {"a.toml": _TITAN, "torchtitan/config_manager.py": manager}
    run = run_of(files, "a.toml", hardware="8xA100-80GB")
    fix = fix_of(run, {f.batch.micro: 1, f.batch.grad_accum: 8})
    assert bool(fix.edits) is is_known
    assert is_known or "has no key" in str(fix.reason)


_DPO = """\
model_name_or_path: Qwen/Qwen2.5-7B
dataset_name: trl-lib/ultrafeedback_binarized
beta: 0.1
rpo_alpha: 1.0
max_length: 2048
{more}per_device_train_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
output_dir: out
"""


@pytest.mark.parametrize(
    ("more", "pin", "is_written"),
    [
        ("", "trl==0.19.1", False),
        ("", "trl==0.29.0", True),
        ("max_prompt_length: 512\n", "", False),
        ("", "", True),
    ],
)
def test_keys_of_trl_by_the_class_and_the_release_that_has_them(
    more: str, pin: str, is_written: bool
) -> None:
    files = {"dpo.yaml": _DPO.format(more=more), **({"requirements.txt": pin} if pin else {})}
    fix = fix_of(run_of(files, "dpo.yaml"), {f.checkpointing.offload: "cpu"})
    assert bool(fix.edits) is is_written
    assert is_written or "trl has activation_offloading from 0.29.0 on" in str(fix.reason)


def test_gpt_neox_keeps_its_pipeline_module() -> None:
    text = (
        '{"pipe_parallel_size": 1, "num_layers": 32, "hidden_size": 2560, "num_attention_heads": 32, "seq_length": 2048,'
        ' "max_position_embeddings": 2048, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}\n'
    )
    fix = fix_of(run_of({"configs/a.yml": text}), ZERO_3)
    assert "without its pipeline module" in str(fix.reason)


# -- what starts a run, and what stops it --------------------------------------------------------------

_RECIPE = _DPO.format(more="").replace("rpo_alpha: 1.0\n", "precompute_ref_log_probs: true\n")


def test_a_recipe_that_nothing_here_starts_is_not_reckoned_for_one_process() -> None:
    result = repaired({"recipes/dpo.yaml": _RECIPE}, hardware="1xRTX-4090-24GB", unsafe=True)
    assert not result.texts
    reasons = {str(d.fix.reason) for d in result.report.diagnoses if d.fix is not None}
    assert "no file says how it is started, and what starts it may shard the model" in reasons


_LINE = (
    "torchrun --nproc_per_node {ranks} train.py --model_name_or_path Qwen/Qwen2.5-0.5B --bf16 --do_train"
    " --per_device_train_batch_size 1 --gradient_accumulation_steps 2 --output_dir out{more}\n"
)
_TRAIN = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
Trainer(model, args).train()
"""


def test_fewer_processes_accumulate_more() -> None:
    files = {"run.sh": _LINE.format(ranks=8, more="")}
    text = repaired(files, hardware="4xA100-80GB", unsafe=True).texts["run.sh"]
    assert b"--nproc_per_node 4" in text
    assert b"--gradient_accumulation_steps 4" in text


def test_a_job_of_several_nodes_is_left_to_its_cluster() -> None:
    line = _LINE.format(ranks=8, more="").replace("torchrun", "torchrun --nnodes 4")
    assert not repaired({"run.sh": line}, hardware="4xA100-80GB", unsafe=True).texts


def test_ray_is_not_asked_for_more_cards_than_there_are() -> None:
    line = (
        "python3 -m openrlhf.cli.train_ppo_ray --actor_num_nodes 1 --actor_num_gpus_per_node 2 --ref_num_gpus_per_node 2"
        " --reward_num_gpus_per_node 2 --critic_num_gpus_per_node 2 --colocate_actor_ref --colocate_critic_reward"
        " --vllm_num_engines 2 --vllm_tensor_parallel_size {engine} --pretrain OpenRLHF/Llama-3-8b-sft-mixture"
        " --reward_pretrain OpenRLHF/Llama-3-8b-rm-mixture --zero_stage 3 --bf16 --adam_offload --train_batch_size 128"
        " --micro_train_batch_size 16 --gradient_checkpointing --prompt_max_len 1024 --generate_max_len 1024\n"
    )
    result = repaired({"run.sh": line.format(engine=2)}, hardware="4xRTX-4090-24GB")
    assert not result.texts
    reasons = {str(d.fix.reason) for d in result.report.diagnoses if d.fix is not None}
    assert "the run ends before it needs that" in reasons


_MAPPED = """\
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

args = TrainingArguments(output_dir="out", per_device_train_batch_size=1, bf16=True)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", device_map="auto")
Trainer(model=model, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("readme", "is_removed"), [("torchrun train.py", True), ("Or `python train.py`", False)]
)
def test_a_device_map_stays_where_plain_python_starts_the_script_too(
    readme: str, is_removed: bool
) -> None:
    files = {
        "train.py": _MAPPED,
        "run.sh": "torchrun --nproc_per_node 2 train.py\n",
        "README.md": readme,
    }
    texts = repaired(files, "train.py", "run.sh").texts
    assert (b"device_map" not in texts.get("train.py", b"device_map")) is is_removed


def test_a_script_that_starts_what_it_is_given_gets_no_options() -> None:
    def is_given(line: str) -> bool:
        source = Source("launch.sh", line)
        return starts_what_is_given(source, Edit("launch.sh", len(line) - 1, len(line) - 1, " --x"))

    assert is_given('python "$@"\n')
    assert is_given("torchrun --nproc_per_node 8 $@\n")
    assert not is_given('python train.py "$@"\n')
    assert not is_given("python3 -m verl.trainer.main_ppo $@\n")


# -- what a program and its comments say ---------------------------------------------------------------


def test_states_stay_where_the_programs_own_trainer_reads_gradients() -> None:
    trainer = "from deepspeed.utils import safe_get_full_grad\nx = safe_get_full_grad(p)\n"
    files = {
        "run.sh": _LINE.format(ranks=8, more=" --deepspeed ds.json"),
        "train.py": f"from mine import trainer\n{_TRAIN}",
        "mine/trainer.py": trainer,
        "mine/__init__.py": "from .trainer import *\n",
        "ds.json": '{"zero_optimization": {"stage": 3}}\n',
    }
    run = run_of(files, "run.sh")
    assert reads_gradients(run, {f.offload.optimizer: "cpu"}) == "mine/trainer.py"
    assert reads_gradients(run, {f.batch.micro: 1}) is None


@pytest.mark.parametrize(
    ("text", "untrue"),
    [
        ("micro: 8  # 8 x 4 GPUs = 32\n", "8 x 4 GPUs = 32"),
        ("# 8 a card\nmicro: 8\n", "# 8 a card"),
        ("micro: 8  # as in the paper\n", None),
        ("micro: 8  # one of [8, 16]\n", None),
        ("# 8 cards\n\nmicro: 8\n", None),
    ],
)
def test_no_number_goes_that_a_comment_beside_it_has(text: str, untrue: str | None) -> None:
    start = text.index("micro: 8") + len("micro: ")
    assert untrue_beside(Source("a.yaml", text), Edit("a.yaml", start, start + 1, "2")) == untrue


def test_no_key_goes_that_a_comment_above_recommends() -> None:
    text = "optimizer:\n  lr: 2e-5\n  # Note: highly recommended to use fused=True\n  fused: True\n"
    source, start = Source("a.yaml", text), text.index("  fused")
    edit = Edit("a.yaml", start, len(text), "")
    assert untrue_beside(source, edit) == "# Note: highly recommended to use fused=True"


def test_what_somebody_left_out_is_not_put_back() -> None:
    text = "# some losses are 0 with\n# micro: 8\nmicro: 64\n"
    start = text.index("64")
    source = Source("a.yaml", text)
    assert tried_before(source, Edit("a.yaml", start, start + 2, "8")) == "micro: 8"
    assert tried_before(source, Edit("a.yaml", start, start + 2, "16")) is None


def test_a_key_that_the_projects_copy_declares_is_no_slip(tmp_path: Path) -> None:
    text = _TITAN + "\n[validation]\nenabled = true\n"
    assert b"enable = true" in repaired({"a.toml": text}).texts["a.toml"]
    own = tmp_path / "torchtitan" / "config"
    own.mkdir(parents=True)
    (own / "job_config.py").write_text("class Validation:\n    enabled: bool = False\n")
    (tmp_path / "a.toml").write_text(text)
    assert not fix_all(Workspace(tmp_path), ["a.toml"], Options()).texts
