"""DeepSpeed without a trainer: what names a config, and what is left to other dialects."""

from __future__ import annotations

import pytest
from tests.linked import link, run_of

from oomlint.runs.run import Run

CONFIG = (
    '{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,'
    ' "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}\n'
)
SCRIPT = "import deepspeed\nengine, *_ = deepspeed.initialize(model=model, {argument})\n"


def _runs(**files: str) -> list[Run]:
    return link({name.replace("_", "."): text for name, text in files.items()}).runs


def test_a_command_brings_its_ranks_to_the_config():
    (run,) = _runs(
        train_sh="deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds.json\n",
        ds_json=CONFIG,
    )
    assert (run.framework, run.is_fragment) == ("deepspeed", False)
    assert run.plan.parallel.world == 8
    assert run.plan.batch.global_ == 2 * 4 * 8
    assert set(run.files) == {"train.sh", "ds.json"}


@pytest.mark.parametrize("argument", ["config='ds.json'", "config_params='ds.json'"])
def test_a_script_that_names_its_config(argument):
    (run,) = _runs(train_py=SCRIPT.format(argument=argument), ds_json=CONFIG)
    assert not run.is_fragment
    assert run.plan.parallel.zero.stage == 2


@pytest.mark.parametrize(
    "script",
    [
        SCRIPT.format(argument="config=settings"),
        SCRIPT.format(argument="args=args"),
        SCRIPT.format(argument="config={'train_batch_size': 8}"),
    ],
)
def test_a_config_that_only_running_tells_is_left_alone(script):
    (run,) = _runs(train_py=script, ds_json=CONFIG)
    assert run.is_fragment


def test_commands_of_frameworks_with_options_of_their_own_are_theirs():
    runs = _runs(
        train_sh=(
            "deepspeed --num_gpus 8 run_clm.py --deepspeed_config ds.json --model_name_or_path gpt2"
            " --per_device_train_batch_size 1 --output_dir out\n"
        ),
        ds_json=CONFIG,
    )
    assert all(run.dialect.name != "deepspeed-launch" for run in runs)


def test_a_config_that_is_written_at_run_time_is_not_missed():
    (run,) = _runs(train_sh="deepspeed train.py --deepspeed_config /tmp/made.json\n")
    assert not run.missing


_LOOP = SCRIPT.format(argument="config='ds.json'") + "engine.backward(loss)\n"


@pytest.mark.parametrize(
    ("line", "world"),
    [
        ("CUDA_VISIBLE_DEVICES=0 deepspeed train.py --steps 4", 1),
        ("CUDA_VISIBLE_DEVICES=0 uv run deepspeed train.py", 1),
        ("torchrun --nproc_per_node 2 train.py", 2),
        ("ls", 8),
    ],
)
def test_the_command_of_a_script_that_names_its_config(line: str, world: int) -> None:
    files = {"run.sh": f"{line}\n", "train.py": _LOOP, "ds.json": CONFIG}
    run = run_of(files, hardware="8xA100-80GB")
    assert (run.name, run.plan.parallel.world) == ("train.py", world)
