"""A run that nothing shards gets a DeepSpeed config of its own where none is here, in a place where it finds it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.command import oomlint
from tests.configs import llama_factory

from oomlint.dialects.deepspeed.presets import OF_AXOLOTL, OF_LLAMA_FACTORY, OF_TRAINER, text_of
from oomlint.files.workspace import Workspace
from oomlint.fix.edits import Fix, make_fix
from oomlint.hardware import parse_hardware
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Applicability, Proposal

CARDS = "4xA100-80GB"
FULL = llama_factory(length=2048, output="out", micro=1, more="gradient_accumulation_steps: 8\n")
TRAIN = "FORCE_TORCHRUN=1 llamafactory-cli train {}\n"
RECIPE = """\
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
dataset_name: trl-lib/Capybara
output_dir: out
learning_rate: 1.0e-5
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
gradient_checkpointing: true
max_length: 2048
bf16: true
dtype: bfloat16
"""
AXOLOTL = """\
base_model: Qwen/Qwen2.5-7B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 2048
micro_batch_size: 1
gradient_accumulation_steps: 4
gradient_checkpointing: true
bf16: true
output_dir: out
"""
SCRIPT = """\
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=1,
    gradient_accumulation_steps=8,
    gradient_checkpointing=True,
    bf16=True,
)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", torch_dtype="bfloat16")
data = load_dataset("json", data_files="a.json")["train"]
trainer = Trainer(model=model, args=args, train_dataset=data)
trainer.train()
"""
PARSING = """\
from dataclasses import dataclass, field

from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="Qwen/Qwen2.5-7B")


parser = HfArgumentParser((ModelArguments, TrainingArguments))
model_args, args = parser.parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path, torch_dtype="auto")
trainer = Trainer(model=model, args=args, train_dataset=data)
trainer.train()
"""
OPTIONS = (
    "--model_name_or_path Qwen/Qwen2.5-7B --output_dir out --per_device_train_batch_size 1 "
    "--gradient_accumulation_steps 8 --gradient_checkpointing True --bf16 True\n"
)
STAGE_2 = {"parallel.zero.stage": 2}
STAGE_3 = {"parallel.zero.stage": 3, "parallel.zero.gather16_on_save": True}
OFFLOADED = {**STAGE_3, "offload.optimizer": "cpu", "offload.params": "cpu"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _written(project: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)


def _texts(project: Path) -> dict[str, str]:
    paths = (path for path in project.rglob("*") if path.is_file())
    return {path.relative_to(project).as_posix(): path.read_text() for path in paths}


def _fix(project: Path, files: Mapping[str, str], changes: Mapping[str, object]) -> Fix:
    """The fix for changes that are wished for of the one run of some files."""
    _written(project, files)
    options = Options(hardware=parse_hardware(CARDS))
    (run,) = lint(Workspace(project), [*files], options, rules=()).runs
    fix = make_fix(run, Proposal.set("shard it", changes), "gpu")
    assert fix is not None
    return fix


def _added(project: Path, files: Mapping[str, str], changes: Mapping[str, object]) -> list[str]:
    """The names of the files that it adds, and what it writes into those that are here."""
    fix = _fix(project, files, changes)
    assert fix.edits, fix.reason
    return sorted(edit.path if edit.creates else edit.replacement.strip() for edit in fix.edits)


def _reason(project: Path, files: Mapping[str, str], changes: Mapping[str, object]) -> str:
    fix = _fix(project, files, changes)
    assert fix.applicability is Applicability.DISPLAY
    assert not fix.edits
    return fix.reason or ""


# -- end to end ------------------------------------------------------------------------------------


def _apply(way: str, *names: str) -> None:
    """Write the first of the ways to fit that has the words."""
    ways = oomlint("fit", *names).stdout.splitlines()
    number = next(line.split()[0] for line in ways if way in line)
    assert oomlint("fit", *names, "--apply", number).exit_code == 0


def test_a_full_fine_tuning_under_ddp_is_shown_the_config_that_it_lacks(project: Path) -> None:
    files = {"conf/sft.yaml": FULL, "run.sh": TRAIN.format("conf/sft.yaml")}
    _written(project, files)
    names = (".", "--hardware", CARDS)
    assert oomlint("check", *names, "--fix", "--unsafe-fixes").exit_code == 1
    assert _texts(project) == files, "whoever fixes all that he finds has chosen no file"
    _apply("ZeRO stage 2", *names)
    after = _texts(project)
    assert after == {
        "conf/sft.yaml": f"{FULL}deepspeed: conf/ds_z2_config.json\n",
        "conf/ds_z2_config.json": text_of(OF_LLAMA_FACTORY, "ds_z2_config.json"),
        "run.sh": TRAIN.format("conf/sft.yaml"),
    }
    assert oomlint("check", *names, "--fix", "--unsafe-fixes").exit_code == 0
    assert _texts(project) == after


def test_the_peak_that_is_promised_is_that_of_the_fixed_files(project: Path) -> None:
    _written(project, {"sft.yaml": FULL, "run.sh": TRAIN.format("sft.yaml")})
    names = (".", "--hardware", CARDS)
    found = json.loads(oomlint("check", *names, "--output-format", "json").stdout)["findings"]
    (promised,) = {f["fix"]["predicted_bytes_after"] for f in found if "ds_z2" in str(f["fix"])}
    _apply("ZeRO stage 2", *names)
    estimated = json.loads(oomlint("estimate", *names, "--output-format", "json").stdout)
    (run,) = (run for run in estimated["runs"] if run["name"] == "sft.yaml")
    assert run["gpu"]["peak_bytes"] == promised


def test_every_surface_shows_it(project: Path) -> None:
    _written(project, {"sft.yaml": FULL, "run.sh": TRAIN.format("sft.yaml")})
    names = (".", "--hardware", CARDS)
    text = " ".join(oomlint("check", *names).stdout.split())
    assert "rounds otherwise (in a new file, ds_z2_config.json; it needs deepspeed)" in text
    assert "which files there are its author decides" in text
    assert oomlint("check", *names, "--diff", "--unsafe-fixes").stdout.count("+++ ") == 0
    found = json.loads(oomlint("check", *names, "--output-format", "json").stdout)["findings"]
    assert not [edit for each in found if each["fix"] for edit in each["fix"]["edits"]]


def test_what_only_offloading_fits_gets_a_config_that_offloads(project: Path) -> None:
    _written(project, {"sft.yaml": FULL, "run.sh": TRAIN.format("sft.yaml")})
    _apply("ZeRO stage 3, and", ".", "--hardware", "4xRTX-4090", "--host-memory", "512GiB")
    assert "deepspeed: ds_z3_offload_config.json\n" in (project / "sft.yaml").read_text()
    said = json.loads((project / "ds_z3_offload_config.json").read_text())["zero_optimization"]
    assert said["offload_param"] == said["offload_optimizer"]


def test_two_configs_of_a_folder_share_the_new_file(project: Path) -> None:
    other = FULL.replace("out\n", "out2\n")
    lines = TRAIN.format("conf/one.yaml") + TRAIN.format("conf/two.yaml")
    _written(project, {"conf/one.yaml": FULL, "conf/two.yaml": other, "run.sh": lines})
    for name in ("conf/one.yaml", "conf/two.yaml"):
        _apply("ZeRO stage 2", name, "--hardware", CARDS)
    after = _texts(project)
    assert after.keys() == {"conf/one.yaml", "conf/two.yaml", "conf/ds_z2_config.json", "run.sh"}
    for name in ("conf/one.yaml", "conf/two.yaml"):
        assert after[name].endswith("deepspeed: conf/ds_z2_config.json\n")


def test_what_trains_the_same_comes_first(project: Path) -> None:
    """A smaller micro batch is enough for an adapter: no other engine is brought in, whoever takes unsafe fixes."""
    adapter = FULL.replace("finetuning_type: full", "finetuning_type: lora")
    config = adapter.replace("batch_size: 1", "batch_size: 64")
    _written(project, {"sft.yaml": config, "run.sh": TRAIN.format("sft.yaml")})
    assert oomlint("check", ".", "--hardware", CARDS).exit_code == 1
    oomlint("check", ".", "--hardware", CARDS, "--fix", "--unsafe-fixes")
    after = _texts(project)
    assert after["sft.yaml"] != config
    assert "deepspeed" not in after["sft.yaml"]
    assert after.keys() == {"sft.yaml", "run.sh"}


# -- by framework ----------------------------------------------------------------------------------


def test_axolotl_gets_one_of_its_own(project: Path) -> None:
    files = {"config.yaml": AXOLOTL, "run.sh": "axolotl train config.yaml\n"}
    assert _added(project, files, STAGE_3) == ["deepspeed: zero3.json", "zero3.json"]
    fix = _fix(project, files, STAGE_3)
    (text,) = (edit.replacement for edit in fix.edits if edit.creates)
    assert text == text_of(OF_AXOLOTL, "zero3.json")


def test_a_recipe_of_trl_names_it_from_where_the_command_starts(project: Path) -> None:
    line = "torchrun --nproc_per_node 4 -m trl.scripts.sft --config recipes/a.yaml\n"
    found = _added(project, {"recipes/a.yaml": RECIPE, "run.sh": line}, STAGE_3)
    new = "recipes/ds_config_zero3.json"
    assert found == [f"deepspeed: {new}", new]


def test_a_command_line_gets_an_option_if_its_script_has_it(project: Path) -> None:
    files = {
        "scripts/run.sh": f"torchrun --nproc_per_node 4 train.py {OPTIONS}",
        "train.py": PARSING,
    }
    new = "scripts/ds_config_zero3_offload.json"
    assert _added(project, files, OFFLOADED) == [f"--deepspeed {new}", new]
    closed = PARSING.replace("(ModelArguments, TrainingArguments)", "ModelArguments")
    assert _reason(
        project, {**files, "train.py": closed.replace("model_args, args", "args,")}, STAGE_3
    )


def test_a_script_says_it_where_it_says_the_rest(project: Path) -> None:
    files = {"run.sh": "torchrun --nproc_per_node 4 train.py\n", "train.py": SCRIPT}
    new = "ds_config_zero2.json"
    assert _added(project, files, STAGE_2) == [f'deepspeed="{new}",', new]


def test_accelerate_takes_flags_and_no_file(project: Path) -> None:
    files = {"run.sh": "accelerate launch --num_processes 4 train.py\n", "train.py": SCRIPT}
    said = "--use_deepspeed --zero_stage 3 --zero3_save_16bit_model true"
    assert _added(project, files, STAGE_3) == [said]
    _written(project, files)
    names = (".", "--hardware", "4xA100-40GB")
    shown = " ".join(oomlint("check", *names, "--diff", "--unsafe-fixes").stdout.split())
    assert "+++" not in shown
    _apply("ZeRO stage", *names)
    assert "--num_processes 4 --use_deepspeed --zero_stage" in (project / "run.sh").read_text()


def test_no_flags_say_what_a_config_of_accelerates_is_there_for(project: Path) -> None:
    _written(
        project,
        {"conf/zero2.yaml": "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n"},
    )
    files = {"run.sh": "accelerate launch --num_processes 4 train.py\n", "train.py": SCRIPT}
    assert "the project has conf/zero2.yaml for DeepSpeed" in _reason(project, files, STAGE_3)


def test_experts_that_a_loop_picks_are_not_parted(project: Path) -> None:
    """Ranks would wait for those that only others use; LLaMA-Factory makes their block a leaf."""
    line = "torchrun --nproc_per_node 4 -m trl.scripts.sft --config a.yaml\n"
    recipe = RECIPE.replace("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen1.5-MoE-A2.7B")
    pinned = {"requirements.txt": "transformers==4.51.0\ntrl==0.17.0\ndeepspeed\n"}
    _written(project, pinned)
    assert "experts" in _reason(project, {"a.yaml": recipe, "run.sh": line}, STAGE_3)
    config = FULL.replace("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen1.5-MoE-A2.7B")
    (project / "a.yaml").unlink()
    assert _added(project, {"sft.yaml": config, "run.sh": TRAIN.format("sft.yaml")}, STAGE_3)


# -- where it goes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "line", "named"),
    [
        ("run.sh", TRAIN.format("conf/sft.yaml"), "conf/ds_z3_config.json"),
        ("run.sh", TRAIN.format("./conf/sft.yaml"), "./conf/ds_z3_config.json"),
        ("run.sh", "cd conf\n" + TRAIN.format("sft.yaml"), "ds_z3_config.json"),
        ("jobs/run.sh", "cd jobs\n" + TRAIN.format("../conf/sft.yaml"), "../conf/ds_z3_config.json"),
    ],
)  # fmt: skip
def test_it_is_named_as_the_command_names_the_config(
    project: Path, script: str, line: str, named: str
) -> None:
    found = _added(project, {"conf/sft.yaml": FULL, script: line}, STAGE_3)
    assert found == ["conf/ds_z3_config.json", f"deepspeed: {named}"]


def test_a_config_that_nothing_starts_is_started_from_the_project(project: Path) -> None:
    found = _added(project, {"conf/sft.yaml": FULL}, STAGE_3)
    assert found == ["conf/ds_z3_config.json", "deepspeed: conf/ds_z3_config.json"]


def test_where_a_run_starts_is_not_told_by_an_absolute_path(project: Path) -> None:
    files = {"conf/sft.yaml": FULL, "run.sh": TRAIN.format(project / "conf/sft.yaml")}
    assert "absolute path" in _reason(project, files, STAGE_3)


# -- what is here already --------------------------------------------------------------------------


def test_a_config_of_the_project_that_does_the_job_is_named(project: Path) -> None:
    said = json.loads(text_of(OF_LLAMA_FACTORY, "ds_z3_config.json"))
    said["zero_optimization"]["overlap_comm"] = True  # tuning
    files = {"conf/sft.yaml": FULL, "run.sh": TRAIN.format("conf/sft.yaml")}
    _written(project, {"sharding/three.json": json.dumps(said)})
    assert _added(project, files, STAGE_3) == ["deepspeed: sharding/three.json"]


@pytest.mark.parametrize("place", ["conf/ds_z3_config.json", "sharding/three.json"])
def test_no_second_one_is_added_beside_one_that_says_otherwise(project: Path, place: str) -> None:
    said = json.loads(text_of(OF_LLAMA_FACTORY, "ds_z3_config.json"))
    said["train_micro_batch_size_per_gpu"] = 2
    _written(project, {place: json.dumps(said)})
    files = {"conf/sft.yaml": FULL, "run.sh": TRAIN.format("conf/sft.yaml")}
    assert f"{place.rpartition('/')[2]}" in _reason(project, files, STAGE_3)
    assert "says otherwise" in _reason(project, files, STAGE_3)


def test_none_is_added_to_configs_that_the_project_has(project: Path) -> None:
    """One of them shards without offloading: whether this run is to take it, or to have another, nothing tells."""
    _written(project, {"sharding/two.json": text_of(OF_LLAMA_FACTORY, "ds_z2_config.json")})
    files = {"sft.yaml": FULL, "run.sh": TRAIN.format("sft.yaml")}
    assert "sharding/two.json" in _reason(project, files, OFFLOADED)


def test_none_is_named_where_a_variable_has_the_folder_of_the_program(project: Path) -> None:
    line = f'ROOT="$(cd "$(dirname "$0")/.." && pwd)"\ntorchrun --nproc_per_node 4 "$ROOT/train.py" {OPTIONS}'
    files = {"scripts/run.sh": line, "train.py": PARSING}
    assert "a variable names the folder" in _reason(project, files, STAGE_3)


# -- where it is not written -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"sft.yaml": FULL.replace("full", "lora") + "quantization_bit: 8\n"}, "8 bits"),
        ({"sft.yaml": FULL + "pure_bf16: true\n"}, "the framework refuses stage 3"),
        ({"sft.yaml": FULL + "fsdp: full_shard\n"}, "something shards it"),
        ({"sft.yaml": FULL + "use_adam_mini: true\n"}, "its optimizer looks at whole parameters"),
        ({"sft.yaml": FULL + "optim: adafactor\n"}, "so does this one"),
        ({"sft.yaml": FULL + "fp8: true\n"}, "layers in 8 bits are each engine's own"),
        ({"sft.yaml": FULL.replace("stage: sft", "stage: ppo") + "reward_model: x\n"}, "PPO loops"),
    ],
)
def test_nothing_is_added_for_what_cannot_have_it(
    project: Path, files: dict[str, str], why: str
) -> None:
    _written(project, {"run.sh": TRAIN.format("sft.yaml")})
    assert _reason(project, {**files, "run.sh": TRAIN.format("sft.yaml")}, STAGE_3), why


@pytest.mark.parametrize("name", ["qwen_fsdp_sft", "qwen_ds2_sft", "qwen_ddp", "sft_1gpu"])
def test_a_config_stays_what_it_is_called(project: Path, name: str) -> None:
    files = {f"{name}.yaml": FULL, "run.sh": TRAIN.format(f"{name}.yaml")}
    assert "what its name says" in _reason(project, files, STAGE_3)


def test_a_config_comes_to_the_stage_that_it_is_called_by(project: Path) -> None:
    files = {"qwen_ds3_sft.yaml": FULL, "run.sh": TRAIN.format("qwen_ds3_sft.yaml")}
    assert _added(project, files, STAGE_3)


def test_nothing_is_offloaded_that_would_become_another_optimizer(project: Path) -> None:
    files = {"sft.yaml": FULL + "optim: sgd\n", "run.sh": TRAIN.format("sft.yaml")}
    assert _added(project, files, STAGE_3)
    assert _reason(project, files, OFFLOADED)


@pytest.mark.parametrize(
    "config",
    ["distributed_type: MULTI_GPU\nnum_processes: 4\n", "distributed_type: FSDP\nnum_processes: 4\n"],
)  # fmt: skip
def test_an_accelerate_config_says_how_the_ranks_share_the_model(
    project: Path, config: str
) -> None:
    line = f"accelerate launch --config_file acc.yaml train.py {OPTIONS}"
    files = {"run.sh": line, "acc.yaml": config, "train.py": PARSING}
    fix = _fix(project, files, STAGE_3)
    assert not any(edit.creates for edit in fix.edits)


def test_a_single_process_shards_nothing(project: Path) -> None:
    files = {"run.sh": f"torchrun --nproc_per_node 1 train.py {OPTIONS}", "train.py": PARSING}
    assert _reason(project, files, STAGE_3)


def test_a_project_that_lists_what_it_needs_and_not_deepspeed_is_told(project: Path) -> None:
    _written(project, {"requirements.txt": "torch\ntransformers\ntrl\n"})
    files = {"recipe.yaml": RECIPE, "run.sh": "torchrun --nproc_per_node 4 -m trl.scripts.sft --config recipe.yaml\n"}  # fmt: skip
    assert _reason(project, files, STAGE_3) == (
        "it needs deepspeed, which the project does not require"
    )
    _written(project, {"requirements.txt": "torch\ntransformers\ndeepspeed\n"})
    assert "needs" not in _fix(project, files, STAGE_3).title


def test_who_shards_another_run_by_deepspeed_has_it(project: Path) -> None:
    other = FULL.replace("out\n", "out2\n") + "deepspeed: {zero_optimization: {stage: 1}}\n"
    _written(project, {"other.yaml": other, "requirements.txt": "torch\ntransformers\n"})
    fix = _fix(project, {"sft.yaml": FULL, "run.sh": TRAIN.format("sft.yaml")}, STAGE_3)
    assert fix.edits, fix.reason


def test_sizes_are_written_as_their_authors_write_them() -> None:
    text = text_of(OF_TRAINER, "ds_config_zero3.json")
    assert '"sub_group_size": 1e9,' in text
    assert json.loads(text)["zero_optimization"]["sub_group_size"] == 1e9
