"""Files that a framework ships are not edited: a run names another one, or a copy of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oomlint.dialects.deepspeed.presets import is_shipped, neighbour, shipped_preset
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.fix.apply import apply_change
from oomlint.fix.edits import Planned, make_fix
from oomlint.hardware import parse_hardware
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Proposal

AXOLOTL = """\
base_model: NousResearch/Meta-Llama-3-8B
datasets:
  - path: tatsu-lab/alpaca
micro_batch_size: 1
deepspeed: deepspeed_configs/{preset}.json  # ours
"""
LLAMA_FACTORY = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
finetuning_type: full
dataset: alpaca
template: llama3
deepspeed: examples/deepspeed/{preset}.json
"""


def _fixed(files, changes, *, names=None, hardware=None, root=Path("/p")):
    """The texts that change, and the fix."""
    workspace = Workspace(root, {name: text.encode() for name, text in files.items()})
    names = names or [next(iter(files))]
    options = Options(hardware=parse_hardware(hardware) if hardware else None)
    (run,) = lint(workspace, names, options, rules=()).runs
    fix = make_fix(run, Proposal.set("change it", changes), "gpu")
    assert fix is not None
    if not fix.edits:
        raise CannotEdit(fix.reason or "")
    texts = apply_change(workspace, names, options, Planned(run, fix))
    return {name: text.decode() for name, text in texts.items()}, fix


@pytest.mark.parametrize("is_at_hand", [False, True])
def test_a_run_is_pointed_at_the_shipped_file_that_says_just_that(is_at_hand: bool) -> None:
    text = LLAMA_FACTORY.format(preset="ds_z2_config")
    files = {"a.yaml": text}
    if is_at_hand:
        for name in ("ds_z2_config", "ds_z3_config"):
            path = f"examples/deepspeed/{name}.json"
            files[path] = shipped_preset(path) or ""
    texts, fix = _fixed(files, {"parallel.zero.stage": 3, "parallel.zero.gather16_on_save": True})
    assert texts == {"a.yaml": text.replace("ds_z2", "ds_z3")}
    assert fix.title == "change it"


def test_axolotl_too_names_a_neighbour() -> None:
    text = AXOLOTL.format(preset="zero3_bf16")
    texts, _ = _fixed({"a.yaml": text}, {"offload.params": "cpu", "offload.optimizer": "cpu"})
    assert texts == {"a.yaml": text.replace("zero3_bf16", "zero3_bf16_cpuoffload_all")}


@pytest.mark.parametrize(
    ("config", "now", "then"),
    [(AXOLOTL, "zero2", "zero3"), (LLAMA_FACTORY, "ds_z2_offload_config", "ds_z3_offload_config")],
)
def test_the_stage_of_a_preset_that_offloads_is_that_of_its_namesake(
    config: str, now: str, then: str
) -> None:
    """Axolotl's ``zero2.json`` keeps the optimizer in host RAM, its ``zero3.json`` nothing; no two of them differ in
    the stage alone."""
    text = config.format(preset=now)
    wishes = {"parallel.zero.stage": 3, "parallel.zero.gather16_on_save": True}
    texts, _ = _fixed({"a.yaml": text}, wishes)
    assert texts == {"a.yaml": text.replace(now, then)}


def test_nothing_is_offloaded_for_the_sake_of_a_stage() -> None:
    wishes = {"parallel.zero.stage": 2}
    assert neighbour("deepspeed_configs/zero1.json", wishes, "bf16") is None


_PLAIN_AXOLOTL = AXOLOTL.format(preset="").replace("deepspeed_configs/.json  # ours", "")
_PLAIN_FACTORY = LLAMA_FACTORY.format(preset="").rpartition("deepspeed:")[0]
_STAGE_3 = {"parallel.zero.stage": 3, "parallel.zero.gather16_on_save": True}


def test_plain_data_parallelism_makes_way_for_a_preset_that_is_at_hand() -> None:
    home = "examples/deepspeed/ds_z3_config.json"
    files = {"a.yaml": _PLAIN_FACTORY, home: shipped_preset(home) or ""}
    texts, _ = _fixed(files, _STAGE_3, hardware="8xA100-40GB")
    assert texts.keys() == {"a.yaml"}
    added = {*texts["a.yaml"].splitlines()} - {*_PLAIN_FACTORY.splitlines()}
    assert added == {f"deepspeed: {home}"}


def test_plain_data_parallelism_makes_way_for_a_preset_that_configs_around_name(
    tmp_path: Path,
) -> None:
    """A config that says ``deepspeed:`` and nothing more gets the name there."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "b.yaml").write_text(AXOLOTL.format(preset="zero1"))
    config = tmp_path / "a.yaml"
    config.write_text(_PLAIN_AXOLOTL)
    texts, _ = _fixed({"a.yaml": _PLAIN_AXOLOTL}, _STAGE_3, hardware="8xA100-40GB", root=tmp_path)
    assert texts == {
        "a.yaml": _PLAIN_AXOLOTL.replace(
            "deepspeed: \n", "deepspeed: deepspeed_configs/zero3.json\n"
        )
    }


@pytest.mark.parametrize(
    "theirs",
    [
        {},
        {"deepspeed_configs/zero3.json": '{"zero_optimization": {"stage": 3}}'},
        {"deepspeed_configs/zero1.json": shipped_preset("deepspeed_configs/zero1.json") or ""},
    ],
    ids=["nobody names one", "a file of their own", "another one alone"],
)
def test_no_preset_is_named_that_may_not_be_there(theirs: dict[str, str]) -> None:
    with pytest.raises(CannotEdit, match="no key"):
        _fixed({"a.yaml": _PLAIN_AXOLOTL, **theirs}, _STAGE_3, hardware="8xA100-40GB")


@pytest.mark.parametrize(
    "more", ["load_in_8bit: true\nadapter: lora\n", "fsdp_version: 2\nfsdp_config: {}\n"]
)
def test_no_preset_for_what_it_cannot_shard_or_what_is_sharded(more: str) -> None:
    home = "deepspeed_configs/zero3.json"
    files = {"a.yaml": _PLAIN_AXOLOTL + more, home: shipped_preset(home) or ""}
    with pytest.raises(CannotEdit):
        _fixed(files, _STAGE_3, hardware="8xA100-40GB")


def test_a_preset_that_the_project_has_changed_is_not_named_for_what_was_shipped() -> None:
    shipped = "examples/deepspeed/ds_z2_config.json"
    files = {
        "a.yaml": LLAMA_FACTORY.format(preset="ds_z2_config"),
        shipped: shipped_preset(shipped) or "",
        "examples/deepspeed/ds_z3_config.json": '{"zero_optimization": {"stage": 0}}',
    }
    with pytest.raises(CannotEdit, match="says otherwise"):
        _fixed(files, _STAGE_3)


@pytest.mark.parametrize("is_at_hand", [False, True])
def test_where_no_shipped_file_says_it_a_copy_does(is_at_hand: bool) -> None:
    """Beside the shipped one where that is at hand, else beside the config."""
    folder = "deepspeed_configs" if is_at_hand else "conf"
    copy = f"{folder}/zero3_offload_optimizer.json"
    text = AXOLOTL.format(preset="zero3")
    files = {"conf/a.yaml": text}
    shipped = "deepspeed_configs/zero3.json"
    if is_at_hand:
        files[shipped] = shipped_preset(shipped) or ""
    texts, fix = _fixed(files, {"offload.optimizer": "cpu"})
    assert texts.keys() == {"conf/a.yaml", copy}
    assert texts["conf/a.yaml"] == text.replace(shipped, copy)
    before = json.loads(shipped_preset(shipped) or "")
    after = json.loads(texts[copy])
    assert after["zero_optimization"].pop("offload_optimizer") == {"device": "cpu"}
    assert after == before
    assert "zero3_offload_optimizer.json" in fix.title
    assert [edit.path for edit in fix.edits if edit.creates] == [copy]


def test_a_copy_takes_no_name_that_is_taken() -> None:
    files = {"a.yaml": AXOLOTL.format(preset="zero3"), "zero3_offload_optimizer.json": "{}"}
    texts, _ = _fixed(files, {"offload.optimizer": "cpu"})
    assert texts.keys() == {"a.yaml", "zero3_offload_optimizer-2.json"}


def test_a_file_of_that_name_with_other_values_is_the_users_own() -> None:
    mine = '{"zero_optimization": {"stage": 3}}\n'
    files = {"a.yaml": AXOLOTL.format(preset="zero3"), "deepspeed_configs/zero3.json": mine}
    texts, _ = _fixed(files, {"offload.optimizer": "cpu"})
    assert texts.keys() == {"deepspeed_configs/zero3.json"}


def test_a_copy_on_a_launch_line() -> None:
    line = (
        "accelerate launch --config_file fsdp.yaml train.py\n"
        "trl sft --accelerate_config zero2 --model_name_or_path Qwen/Qwen2.5-7B --dataset_name x\n"
    ).splitlines()[1]
    texts, _ = _fixed({"jobs/run.sh": f"#!/bin/bash\n{line}\n"}, {"offload.optimizer": "cpu"})
    assert texts.keys() == {"jobs/run.sh", "jobs/zero2_offload_optimizer.yaml"}
    assert "--accelerate_config jobs/zero2_offload_optimizer.yaml " in texts["jobs/run.sh"]
    assert "offload_optimizer_device: cpu\n" in texts["jobs/zero2_offload_optimizer.yaml"]


def test_neighbours_differ_in_nothing_else() -> None:
    assert neighbour("x/zero2.json", {"offload.optimizer": "none"}) is None
    assert neighbour("x/zero3.json", {"offload.params": "cpu"}) is None  # that one is bf16 only
    assert neighbour("ds_z3_config.json", {"parallel.zero.max_live_params": 1}) is None
    both = {"offload.optimizer": "cpu", "offload.params": "cpu"}
    assert neighbour("d/ds_z3_config.json", both) == "d/ds_z3_offload_config.json"


def test_a_shipped_file_is_known_by_name_and_content() -> None:
    text = shipped_preset("zero2.json") or ""
    assert is_shipped("a/zero2.json", text)
    assert not is_shipped("a/mine.json", text)
    assert not is_shipped("a/zero2.json", text.replace("2", "3"))
    assert not is_shipped("a/zero2.json", "{")


ZERO2 = """\
compute_environment: LOCAL_MACHINE
deepspeed_config:
  zero3_init_flag: false
  zero_stage: 2  # ours
distributed_type: DEEPSPEED
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""


@pytest.mark.parametrize("folder", ["recipes/accelerate_configs", "examples/accelerate"])
def test_accelerate_configs_that_recipes_share_are_copied(folder: str) -> None:
    shared = f"{folder}/zero2.yaml"
    line = "accelerate launch --config_file {} scripts/sft.py --model_name_or_path Qwen/Qwen2.5-7B --dataset_name x --output_dir o --per_device_train_batch_size 4\n"
    files = {"jobs/run.sh": "#!/bin/bash\n" + line.format(shared), shared: ZERO2}
    texts, fix = _fixed(files, {"parallel.zero.stage": 3}, names=["jobs/run.sh"])
    copy = f"{folder}/zero3.yaml"
    assert texts.keys() == {"jobs/run.sh", copy}
    assert texts["jobs/run.sh"] == "#!/bin/bash\n" + line.format(copy)
    added = set(texts[copy].splitlines()) - set(ZERO2.splitlines())
    assert added == {"  zero_stage: 3  # ours"}
    assert "zero3.yaml" in fix.title


def test_an_accelerate_config_of_the_users_own_is_edited() -> None:
    line = "accelerate launch --config_file acc.yaml sft.py --model_name_or_path Qwen/Qwen2.5-7B --dataset_name x --output_dir o\n"
    files = {"run.sh": f"#!/bin/bash\n{line}", "acc.yaml": ZERO2}
    texts, _ = _fixed(files, {"parallel.zero.stage": 3}, names=["run.sh"])
    assert texts.keys() == {"acc.yaml"}
