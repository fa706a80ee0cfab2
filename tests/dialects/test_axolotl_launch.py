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
