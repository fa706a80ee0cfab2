"""Files that several runs use: the run with a problem gets a copy, the others stay as they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.command import oomlint
from tests.fixing import repaired, speaks, wants

from oomlint.dialects.deepspeed.presets import shipped_preset
from oomlint.files.workspace import Workspace
from oomlint.fix.apply import FixResult, fix_all
from oomlint.fix.bystanders import naming_in
from oomlint.hardware import parse_hardware
from oomlint.judgement import judgement_of, settled
from oomlint.linting.engine import Options, Report, lint
from oomlint.linting.rule import Applicability, Proposal, RemoveKey, Rule
from oomlint.runs.run import Run

SMALL = """\
base_model: meta-llama/Llama-3.2-1B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 4096
sample_packing: true
micro_batch_size: 1
gradient_accumulation_steps: 8
gradient_checkpointing: true
flash_attention: true
bf16: true
optimizer: adamw_torch
deepspeed: zero2.json  # shared
"""
BIG = SMALL.replace("Llama-3.2-1B", "Meta-Llama-3-70B")
ZERO2 = (
    '{\n\t"zero_optimization": {"stage": 2, "overlap_comm": true},\n  "bf16": {"enabled":true}}\n'
)
PROJECT = {"big.yaml": BIG, "small.yaml": SMALL, "zero2.json": ZERO2}
UNNAMED = {
    "big.yaml": BIG.replace("zero2.json", "ds.json"),
    "small.yaml": SMALL.replace("zero2.json", "ds.json"),
    "ds.json": ZERO2,
}
"""The same project with a file whose name says nothing of what is in it."""


def is_big(run: Run) -> bool:
    return "70B" in str(run.plan.model.id)


stage_3 = wants("parallel.zero.stage", 3)
stage_3_for_big = wants("parallel.zero.stage", 3, is_big)


def fix(files: dict[str, Any], *rules: type[Rule], hardware: str | None = None) -> FixResult:
    return repaired(files, hardware=hardware, rules=rules or None)


def texts(result: FixResult) -> dict[str, str]:
    assert result.report.errors == ()
    return {name: data.decode() for name, data in result.texts.items()}


def as_it_runs(report: Report, name: str) -> tuple[Any, Any]:
    """What a run's files say, and what it needs."""
    (run,) = (run for run in report.runs if run.name == name)
    said = {field: run.settings[field].value for field in run.settings if run.is_explicit(field)}
    return said, settled(run).estimate


# -- a run with a problem beside one without ------------------------------------------------


def test_run_that_breaks_gets_a_copy_where_somebody_chooses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(text)
    machine = ("--hardware", "8xH100-80GB")
    assert oomlint("check", ".", *machine, "--fix", "--unsafe-fixes").exit_code == 1
    files = (path for path in tmp_path.iterdir() if path.is_file())
    assert {path.name: path.read_text() for path in files} == PROJECT
    before = lint(Workspace(tmp_path), [*PROJECT], _on_eight(), rules=())
    assert oomlint("fit", "big.yaml", *machine, "--apply", "1").exit_code == 0
    after = lint(Workspace(tmp_path), [*PROJECT], _on_eight(), rules=())
    copy = "zero3_offload_optimizer.json"
    assert (tmp_path / "big.yaml").read_text() == BIG.replace("zero2.json", copy)
    assert json.loads((tmp_path / copy).read_text())["zero_optimization"]["stage"] == 3
    assert as_it_runs(after, "small.yaml") == as_it_runs(before, "small.yaml")
    assert as_it_runs(after, "big.yaml") != as_it_runs(before, "big.yaml")
    assert {judgement_of(run).verdict for run in after.runs if not run.is_fragment} == {"fits"}


def _on_eight() -> Options:
    return Options(hardware=parse_hardware("8xH100-80GB"))


def test_no_plan_of_a_run_adds_a_file() -> None:
    result = fix(PROJECT, hardware="8xH100-80GB")
    assert result.texts == {}
    reasons = [d.fix.reason or "" for d in result.report.diagnoses if d.fix is not None]
    assert any("which files there are its author decides" in reason for reason in reasons)


def test_title_names_the_copy_and_why() -> None:
    (applied,) = fix(PROJECT, stage_3_for_big).report.applied
    assert applied.fix is not None
    reason = "(in a copy, zero3.json, since small.yaml uses zero2.json too)"
    assert applied.fix.title == f"set parallel.zero.stage {reason}"


@pytest.mark.parametrize(
    "dress",
    [
        lambda data: data,
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.rstrip(b"\n"),
    ],
)
def test_copy_has_every_byte_that_the_fix_does_not_change(dress: Callable[[bytes], bytes]) -> None:
    original = dress(ZERO2.encode())
    result = fix({**PROJECT, "zero2.json": original}, stage_3_for_big)
    expected = original.replace(b'"stage": 2', b'"stage": 3')
    assert result.texts["zero3.json"] == expected


def test_comments_of_an_accelerate_config_are_copied() -> None:
    shared = """\
# for all of us
distributed_type: DEEPSPEED   # not FSDP
deepspeed_config:
    zero_stage: 2

mixed_precision: bf16
"""
    line = "accelerate launch --config_file acc.yaml sft.py --model_name_or_path {} --dataset_name x --output_dir o\n"
    files = {
        "a/big.sh": line.format("meta-llama/Meta-Llama-3-70B"),
        "a/small.sh": line.format("meta-llama/Llama-3.2-1B"),
        "acc.yaml": shared,
    }
    changed = texts(fix(files, stage_3_for_big))
    assert changed == {
        "a/big.sh": files["a/big.sh"].replace("acc.yaml", "acc_zero3.yaml"),
        "acc_zero3.yaml": shared.replace("zero_stage: 2", "zero_stage: 3"),
    }


def test_fixes_of_later_passes_go_into_the_same_copy() -> None:
    bucket = wants(
        "parallel.zero.max_live_params", 10**7, is_big, name="then", code="OOM102", cost=5
    )
    changed = texts(fix(PROJECT, stage_3_for_big, bucket))
    assert changed.keys() == {"big.yaml", "zero3.json"}
    zero = json.loads(changed["zero3.json"])["zero_optimization"]
    assert (zero["stage"], zero["stage3_max_live_parameters"]) == (3, 10**7)


def test_name_that_is_taken_is_left() -> None:
    taken = ZERO2.replace("true", "false")
    result = fix({**PROJECT, "zero3.json": taken}, stage_3_for_big)
    assert texts(result) == {}
    (left,) = result.report.diagnoses
    assert left.fix is not None
    assert left.fix.reason == "zero3.json beside it is for that, and says otherwise"


def test_file_that_says_just_that_is_named_instead_of_a_copy() -> None:
    other = json.dumps(json.loads(ZERO2.replace("2", "3")), indent=8, sort_keys=True)
    result = fix({**PROJECT, "zero3.json": other}, stage_3_for_big)
    assert texts(result) == {"big.yaml": BIG.replace("zero2.json", "zero3.json")}
    (applied,) = result.report.applied
    assert applied.fix is not None
    assert "by naming zero3.json, since small.yaml uses zero2.json too" in applied.fix.title


def test_file_of_a_tool_is_copied_beside_the_config() -> None:
    inside = "venv/lib/zero2.json"
    files = {name: text.replace("zero2.json", inside) for name, text in PROJECT.items()}
    files["conf/big.yaml"] = files.pop("big.yaml")
    files[inside] = files.pop("zero2.json")
    changed = texts(fix(files, stage_3_for_big))
    assert changed.keys() == {"conf/big.yaml", "conf/zero3.json"}
    assert "deepspeed: conf/zero3.json  # shared" in changed["conf/big.yaml"]


def test_folder_that_nobody_may_write_to_gets_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workspace, "can_add_to", lambda self, folder: folder != "ds")
    files = {n: t.replace("zero2.json", "ds/zero2.json") for n, t in PROJECT.items()}
    files["ds/zero2.json"] = files.pop("zero2.json")
    assert texts(fix(files, stage_3_for_big)).keys() == {"big.yaml", "zero3.json"}


# -- several runs with a problem ------------------------------------------------------------


def test_change_that_all_runs_want_is_made_in_place() -> None:
    result = fix(UNNAMED, stage_3)
    assert texts(result) == {"ds.json": ZERO2.replace('"stage": 2', '"stage": 3')}
    assert [run.plan.parallel.zero.stage for run in result.report.runs] == [3, 3]


def test_plan_that_all_runs_want_is_made_in_place() -> None:
    files = {**UNNAMED, "small.yaml": UNNAMED["big.yaml"]}
    changed = texts(fix(files, hardware="8xH100-80GB"))
    assert changed.keys() == {"ds.json"}


ACCUMULATES = '{"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 8}\n'
LOOP = """\
import deepspeed
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B")
engine, *_ = deepspeed.initialize(model=model, config="ds.json", model_parameters=model.parameters())
for batch in loader:
    engine.backward(engine(**batch).loss)
    engine.step()
"""


@pytest.mark.parametrize(
    ("other", "is_in_place"),
    [
        ({"small.yaml": UNNAMED["small.yaml"]}, True),
        ({"loop.py": LOOP, "run.sh": "deepspeed --num_gpus 2 loop.py\n"}, False),
    ],
)
def test_change_to_which_the_other_runs_are_indifferent_is_made_in_place(
    other: dict[str, str], is_in_place: bool
) -> None:
    steps = "gradient_accumulation_steps: 8"
    stops = UNNAMED["small.yaml"].replace(steps, "gradient_accumulation_steps: 4")
    result = fix({"stops.yaml": stops, **other, "ds.json": ACCUMULATES})
    becomes = {"ds.json": ACCUMULATES.replace("8", '"auto"')}
    assert texts(result) == (becomes if is_in_place else {})


def test_runs_that_want_the_same_share_a_copy() -> None:
    files = {**PROJECT, "big2.yaml": BIG, "big3.yaml": BIG}
    result = fix(files, stage_3_for_big)
    changed = texts(result)
    assert changed.keys() == {"big.yaml", "big2.yaml", "big3.yaml", "zero3.json"}
    assert {run.plan.parallel.zero.stage for run in result.report.runs if is_big(run)} == {3}


def test_last_of_runs_that_want_different_things_keeps_the_file() -> None:
    stage_1 = wants(
        "parallel.zero.stage", 1, lambda run: not is_big(run), name="one", code="OOM102"
    )
    result = fix(UNNAMED, stage_3_for_big, stage_1)
    changed = texts(result)
    assert len(changed) == 3
    assert "ds.json" in changed
    assert [run.plan.parallel.zero.stage for run in result.report.runs] == [3, 1]
    assert not any(run.is_fragment for run in result.report.runs)


def test_key_that_no_run_wants_goes_from_the_file_itself() -> None:
    def proposals(run: Run) -> Proposal | None:
        for block, _ in run.parts.blocks:
            entry = block.mapping.entries.get("stray")
            if entry is not None:
                return Proposal("remove stray", (RemoveKey(block, entry),))
        return None

    files = {**PROJECT, "zero2.json": ZERO2.replace("{\n", '{\n  "stray": 1,\n', 1)}
    assert texts(fix(files, speaks(proposals))) == {"zero2.json": ZERO2}


# -- what is named in other ways ------------------------------------------------------------

LAUNCH = "#!/bin/bash\naxolotl train shared.yaml --{option}\n"


def test_config_of_a_run_that_two_launch_lines_share_is_not_copied_for_one() -> None:
    """What one line alone wants is said on that line; a second config of the run with another number is nobody's."""
    files = {
        "one.sh": LAUNCH.format(option="micro-batch-size 4"),
        "two.sh": LAUNCH.format(option="micro-batch-size 2"),
        "shared.yaml": SMALL,
        "zero2.json": ZERO2,
    }
    rule = wants("checkpointing.mode", "none", lambda run: run.plan.batch.micro == 4)
    result = fix(files, rule)
    assert texts(result) == {}
    (left,) = result.report.diagnoses
    assert left.fix is not None
    assert left.fix.reason == (
        "shared.yaml serves others too, and what this run alone wants is said better on its command line"
    )


def test_files_on_the_way_to_the_shared_one_are_copied_too() -> None:
    line = "accelerate launch --config_file acc.yaml sft.py --model_name_or_path {} --dataset_name x --output_dir o\n"
    files = {
        "big.sh": line.format("meta-llama/Meta-Llama-3-70B"),
        "small.sh": line.format("meta-llama/Llama-3.2-1B"),
        "acc.yaml": "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: zero2.json\n",
        "zero2.json": ZERO2,
    }
    changed = texts(fix(files, stage_3_for_big))
    assert changed == {
        "big.sh": files["big.sh"].replace("acc.yaml", "acc_zero3.yaml"),
        "acc_zero3.yaml": files["acc.yaml"].replace("zero2.json", "zero3.json"),
        "zero3.json": ZERO2.replace('"stage": 2', '"stage": 3'),
    }


def test_variable_that_names_the_file_of_one_run_is_changed() -> None:
    line = "DS=zero2.json\ndeepspeed train.py --deepspeed $DS --model_name_or_path {} --output_dir o --per_device_train_batch_size 1\n"
    files = {
        "big.sh": line.format("meta-llama/Meta-Llama-3-70B"),
        "small.sh": line.format("meta-llama/Llama-3.2-1B"),
        "zero2.json": ZERO2,
    }
    changed = texts(fix(files, stage_3_for_big))
    assert changed.keys() == {"big.sh", "zero3.json"}
    assert changed["big.sh"].startswith("DS=zero3.json\n")


def test_variable_that_serves_two_lines_is_not_replaced_by_a_number() -> None:
    line = "torchrun --nproc_per_node 8 train.py --model_name_or_path {} --output_dir o --learning_rate 1e-5 --num_train_epochs 1 --per_device_train_batch_size $BS\n"
    big, small = line.format("meta-llama/Meta-Llama-3-70B"), line.format("meta-llama/Llama-3.2-1B")
    result = fix({"run.sh": f"BS=8\n{big}{small}"}, wants("batch.micro", 1, is_big))
    assert texts(result) == {}
    (left,) = result.report.diagnoses
    assert left.fix is not None
    assert left.fix.reason == "it is written as $BS, on which more of the script may rest"


def test_line_that_starts_several_runs_is_left() -> None:
    line = "torchrun --nproc_per_node 8 train.py --model_name_or_path $m --output_dir o --learning_rate 1e-5 --num_train_epochs 1 --per_device_train_batch_size 8"
    models = "meta-llama/Meta-Llama-3-70B meta-llama/Llama-3.2-1B"
    files = {"run.sh": f"for m in {models}; do\n  {line}\ndone\n"}
    result = fix(files, wants("batch.micro", 1, is_big))
    assert texts(result) == {}
    (left,) = result.report.diagnoses
    assert left.fix is not None
    assert left.fix.applicability is Applicability.DISPLAY
    assert "it would also change" in str(left.fix.reason)


def test_code_is_not_copied() -> None:
    code = "from transformers import TrainingArguments\nTrainingArguments('o', per_device_train_batch_size=8)\n"
    files = {
        "one.sh": "torchrun --nproc_per_node 4 train.py\n",
        "two.sh": "torchrun --nproc_per_node 8 train.py\n",
        "train.py": code,
    }
    rule = wants(
        "batch.micro", 1, lambda run: run.plan.parallel.gpus_per_node == 4, at="batch.micro"
    )
    result = fix(files, rule)
    assert texts(result) == {}
    (left,) = result.report.diagnoses
    assert left.fix is not None
    assert left.fix.reason == "train.py also serves train.py (two.sh:1), which does not ask for it"
    assert texts(fix(files, wants("batch.micro", 1, at="batch.micro"))).keys() == {"train.py"}


def test_shipped_file_whose_neighbour_the_project_lacks_is_copied() -> None:
    path = "deepspeed_configs/zero3_bf16.json"
    files = {"big.yaml": BIG.replace("zero2.json", path), path: shipped_preset(path) or ""}
    offloads = wants("offload.optimizer", "cpu", lambda run: run.plan.offload.params == "cpu")
    both = wants("offload.params", "cpu", name="params", code="OOM102", cost=1)
    changed = texts(fix(files, both, offloads))
    assert changed.keys() == {"big.yaml", "deepspeed_configs/zero3_bf16_offload.json"}


# -- runs that nobody asked about ------------------------------------------------------------


def on_disk(folder: Path, files: dict[str, str]) -> Workspace:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Workspace(folder)


def test_config_that_was_not_given_keeps_its_file(tmp_path: Path) -> None:
    workspace = on_disk(tmp_path, {**PROJECT, "deep/er/small.yaml": SMALL})
    (tmp_path / "small.yaml").unlink()
    result = fix_all(
        workspace, ["big.yaml"], Options(), rules=[stage_3], naming=naming_in(workspace)
    )
    assert texts(result).keys() == {"big.yaml", "zero3.json"}
    assert [run.name for run in result.report.runs] == ["big.yaml"]


def test_what_starts_the_run_is_no_other_run(tmp_path: Path) -> None:
    files = {**UNNAMED, "run.sh": "axolotl train big.yaml\n"}
    del files["small.yaml"]
    workspace = on_disk(tmp_path, files)
    result = fix_all(
        workspace, ["big.yaml"], Options(), rules=[stage_3], naming=naming_in(workspace)
    )
    assert texts(result).keys() == {"ds.json"}


def test_file_of_that_name_elsewhere_is_another_one(tmp_path: Path) -> None:
    mine = {f"mine/{name}": text for name, text in UNNAMED.items() if name != "small.yaml"}
    theirs = {f"theirs/{name}": text for name, text in UNNAMED.items() if name != "big.yaml"}
    workspace = on_disk(tmp_path, {**mine, **theirs})
    result = fix_all(
        workspace, ["mine/big.yaml"], Options(), rules=[stage_3], naming=naming_in(workspace)
    )
    assert texts(result).keys() == {"mine/ds.json"}


def test_config_of_a_run_that_another_script_starts_too_stays_as_it_is(tmp_path: Path) -> None:
    files = {
        "one.sh": LAUNCH.format(option="micro-batch-size 4"),
        "two.sh": LAUNCH.format(option="micro-batch-size 2"),
        "shared.yaml": SMALL,
        "zero2.json": ZERO2,
    }
    workspace = on_disk(tmp_path, files)
    result = fix_all(workspace, ["one.sh"], Options(), rules=[stage_3], naming=naming_in(workspace))
    assert texts(result) == {}


# -- names that say what is in a file ----------------------------------------------------------


def test_file_called_by_its_stage_never_gets_another() -> None:
    files = {"big.yaml": BIG, "zero2.json": ZERO2}
    result = fix(files, stage_3)
    assert texts(result) == {
        "big.yaml": BIG.replace("zero2.json", "zero3.json"),
        "zero3.json": ZERO2.replace('"stage": 2', '"stage": 3'),
    }
    (applied,) = result.report.applied
    assert applied.fix is not None
    assert "(in a copy, zero3.json, since zero2.json is called zero2)" in applied.fix.title


def test_file_for_that_stage_with_buffers_of_its_own_is_named() -> None:
    other = '{"zero_optimization": {"stage": 3, "reduce_bucket_size": 100000000}, "bf16": {"enabled": true}}'
    result = fix({"big.yaml": BIG, "zero2.json": ZERO2, "zero3.json": other}, stage_3)
    assert texts(result) == {"big.yaml": BIG.replace("zero2.json", "zero3.json")}


@pytest.mark.parametrize(
    "other",
    [
        '{"zero_optimization": {"stage": 3}, "fp16": {"enabled": true}}',
        '{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}, "bf16": {"enabled": true}}',
    ],
)
def test_file_for_that_stage_that_does_another_job_is_not(other: str) -> None:
    """Nor is a ``zero3-2.json`` made beside it: the name would not say which is for what."""
    files = {"big.yaml": BIG, "zero2.json": ZERO2, "zero3.json": other}
    assert not texts(fix(files, stage_3))
