"""Axolotl's launch lines: they name the YAML, override its keys and count the ranks."""

import pytest
from tests.linked import link

YAML = b"""\
base_model: NousResearch/Meta-Llama-3-8B
datasets:
  - path: tatsu-lab/alpaca
sequence_len: 2048
micro_batch_size: 4
"""


def runs(script: str):
    return link({"config.yaml": YAML, "run.sh": script}).runs


@pytest.mark.parametrize(
    ("line", "world"),
    [
        ("axolotl train config.yaml --launcher torchrun -- --nproc_per_node=4", 4),
        ("axolotl train config.yaml -- --num_processes 8", 8),
        (
            "accelerate launch --num_processes 16 --num_machines 2 -m axolotl.cli.train config.yaml",
            16,
        ),
        ("torchrun --nproc_per_node 2 -m axolotl.cli.train config.yaml", 2),
        ("CUDA_VISIBLE_DEVICES=0,1 axolotl train config.yaml", 2),
    ],
)
def test_ranks(line, world):
    (run,) = runs(line + "\n")
    assert run.framework == "axolotl"
    assert run.plan.parallel.world == world
    assert run.plan.seq.max_len == 2048


def test_overrides_win_and_are_changed_where_they_stand():
    (run,) = runs("axolotl train config.yaml --micro-batch-size=2\n")
    assert run.plan.batch.micro == 2
    assert run.location("batch.micro").path == "run.sh"
    assert run.location("seq.max_len").path == "config.yaml"


def test_other_commands_train_nothing():
    (run,) = runs("axolotl preprocess config.yaml\naxolotl inference config.yaml\n")
    assert run.files == ("config.yaml",)


PLUGIN = """\
distributed_type: {kind}
{config}
num_machines: 1
num_processes: 8
mixed_precision: fp8
"""


@pytest.mark.parametrize(
    ("kind", "config", "backend", "stage"),
    [
        ("DEEPSPEED", "deepspeed_config: {zero_stage: 3}", "zero", 3),
        ("DEEPSPEED", "deepspeed_config: {}", "zero", 2),
        ("FSDP", "fsdp_config: {fsdp_version: 2}", "fsdp2", None),
        ("MULTI_GPU", "fsdp_config: {fsdp_version: 2}", "ddp", None),
    ],
)
def test_accelerate_chooses_who_shards_where_the_config_does_not(
    kind: str, config: str, backend: str, stage: int | None
) -> None:
    """accelerate launch says it in the environment, which Axolotl changes only for a block of its own
    (AX/utils/trainer.py:646 prepare_optim_env); the precision it sets itself."""
    line = "accelerate launch --config_file a.yaml -m axolotl.cli.train config.yaml\n"
    files = {"config.yaml": YAML, "run.sh": line, "a.yaml": PLUGIN.format(kind=kind, config=config)}
    (run,) = link(files).runs
    assert run.plan.parallel.backend == backend
    assert run.plan.parallel.zero.stage == stage
    assert run.plan.parallel.world == 8
    assert run.plan.precision.fp8_train in (None, "none")


def test_a_deepspeed_config_of_axolotls_own_counts_before_accelerates() -> None:
    line = "accelerate launch --config_file a.yaml -m axolotl.cli.train config.yaml\n"
    plugin = PLUGIN.format(kind="DEEPSPEED", config="deepspeed_config: {zero_stage: 3}")
    files = {
        "config.yaml": YAML + b"deepspeed: ds.json\n",
        "run.sh": line,
        "a.yaml": plugin,
        "ds.json": '{"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}}',
    }
    (run,) = link(files).runs
    assert run.plan.parallel.zero.stage == 1
