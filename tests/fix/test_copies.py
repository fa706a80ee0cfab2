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


def test_where_no_shipped_file_says_it_a_copy_beside_it_does() -> None:
    copy = "deepspeed_configs/zero3_offload_optimizer.json"
    shipped = "deepspeed_configs/zero3.json"
    text = AXOLOTL.format(preset="zero3")
    files = {"conf/a.yaml": text, shipped: shipped_preset(shipped) or ""}
    texts, fix = _fixed(files, {"offload.optimizer": "cpu"})
    assert texts.keys() == {"conf/a.yaml", copy}
    assert texts["conf/a.yaml"] == text.replace(shipped, copy)
    before = json.loads(shipped_preset(shipped) or "")
    after = json.loads(texts[copy])
    assert after["zero_optimization"].pop("offload_optimizer") == {"device": "cpu"}
    assert after == before
    assert "zero3_offload_optimizer.json" in fix.title
    assert [edit.path for edit in fix.edits if edit.creates] == [copy]


def test_a_copy_here_is_not_found_where_the_folder_of_the_shipped_file_is() -> None:
    with pytest.raises(CannotEdit, match="a copy here would not be found"):
        _fixed({"conf/a.yaml": AXOLOTL.format(preset="zero3")}, {"offload.optimizer": "cpu"})


def test_a_copy_takes_no_name_that_is_taken() -> None:
    line = "trl sft --accelerate_config zero2 --model_name_or_path Qwen/Qwen2.5-7B --dataset_name x"
    files = {"jobs/run.sh": f"{line}\n", "jobs/zero2_offload_optimizer.yaml": "{}"}
    texts, _ = _fixed(files, {"offload.optimizer": "cpu"})
    assert texts.keys() == {"jobs/run.sh", "jobs/zero2_offload_optimizer-2.yaml"}


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
