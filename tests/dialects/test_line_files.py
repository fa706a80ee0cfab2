"""Lists of hosts: whose GPUs a launch takes."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.errors import CannotEdit
from oomlint.runs.run import Run

_TRAIN = (
    " train.py --deepspeed ds.json --output_dir out --per_device_train_batch_size 1"
    " --learning_rate 1e-5 --num_train_epochs 1 --bf16 True"
    " --model_name_or_path meta-llama/Llama-2-7b-hf\n"
)
_DS = '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}'
_HOSTS = "# the rack\nw1 slots=8\nw2 slots=8\n\nw3 slots=8\n"


def _run(launch: str, hosts: str = _HOSTS) -> Run:
    files = {"run.sh": launch + _TRAIN, "ds.json": _DS, "hosts": hosts}
    return run_of(files, "run.sh")


@pytest.mark.parametrize(
    ("options", "nodes", "gpus"),
    [
        ("--hostfile hosts", 3, 8),
        ("-H hosts", 3, 8),
        ("--hostfile=/job/hosts", 3, 8),
        ("--hostfile hosts --num_nodes 2", 2, 8),
        ("--hostfile hosts --num_gpus 4", 3, 4),
        ("--hostfile hosts --include w1@w3", 2, 8),
        ("--hostfile hosts --include w2:0,1,2", 1, 3),
        ("--hostfile hosts --exclude w2", 2, 8),
        ("--hostfile hosts --exclude w1:0@w2:7@w3:3", 3, 7),
    ],
)
def test_deepspeed(options: str, nodes: int, gpus: int) -> None:
    parallel = _run(f"deepspeed {options}").plan.parallel
    assert (parallel.nodes, parallel.gpus_per_node) == (nodes, gpus)


def test_a_hostfile_beats_visible_devices() -> None:
    parallel = _run("CUDA_VISIBLE_DEVICES=0,1 deepspeed --hostfile hosts").plan.parallel
    assert (parallel.nodes, parallel.gpus_per_node) == (3, 8)


def test_hosts_of_unequal_size_count_together() -> None:
    parallel = _run("deepspeed --hostfile hosts", "w1 slots=8\nw2 slots=5\n").plan.parallel
    assert (parallel.world, parallel.nodes, parallel.gpus_per_node) == (13, 2, 8)


@pytest.mark.parametrize(
    ("options", "hosts", "nodes", "gpus"),
    [
        ("-np 16 -hostfile hosts", _HOSTS, 2, 8),
        ("--hostfile hosts", _HOSTS, 3, 8),
        ("-n 8 -f hosts", "a:4\nb:4\n", 2, 4),
        ("-np 16 -H a:8,b:8", "", 2, 8),
    ],
)
def test_mpirun(options: str, hosts: str, nodes: int, gpus: int) -> None:
    parallel = _run(f"mpirun {options} python", hosts).plan.parallel
    assert (parallel.nodes, parallel.gpus_per_node) == (nodes, gpus)


@pytest.mark.parametrize("hosts", ["", "slots=\n", "=\n"])
def test_a_file_that_lists_no_hosts_says_nothing(hosts: str) -> None:
    run = _run("deepspeed --hostfile hosts", hosts)
    assert run.plan.parallel.gpus_per_node is None
    assert not run.missing


def test_hosts_are_not_rewritten() -> None:
    run = _run("deepspeed --hostfile hosts")
    block = next(b for b, _ in run.parts.blocks if b.table.name == "hostfile")
    entry = block.mapping.entries["hosts"]
    with pytest.raises(CannotEdit):
        block.document.append_item(entry.value, "w4 slots=8")  # type: ignore[arg-type]
    with pytest.raises(CannotEdit):
        block.document.set_value(entry.value.items[0], "w4")  # type: ignore[union-attr]
