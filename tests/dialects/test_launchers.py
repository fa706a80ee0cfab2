"""Launch lines of every kind: program, ranks, and whose options are whose."""

from __future__ import annotations

from typing import Any

import pytest
from tests.celled import cells_of
from tests.linked import run_of

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.world import world
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launcher_keys import (
    ACCELERATE_LAUNCHER,
    DEEPSPEED_LAUNCHER,
    PLAIN,
    SRUN,
    TORCHRUN,
)
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.machine.meaning import launch_all_visible, launch_one_process
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.roots import roots_of
from oomlint.dialects.table import Row, Table
from oomlint.documents.shell.document import parse_shell
from oomlint.documents.text import Source
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

_OPTIONS = Table("options", (Row("bf16", "x.bf16"), Row("seed", "x.seed")))


def _launch(script: str) -> Launch:
    (launch,) = launches(parse_shell(Source.from_bytes("a.sh", script.encode())))
    return launch


def _cells(launch: Launch, *, one_process: bool = True) -> Cells:
    started = launch_one_process if one_process else launch_all_visible
    return cells_of(Meaning(world, started), blocks=launch.blocks)


def _apply(script: str, launch: Launch, edits: list) -> str:  # type: ignore[type-arg]
    for edit in sorted(edits, key=lambda e: -e.start):
        script = script[: edit.start] + edit.replacement + script[edit.end :]
    return script


@pytest.mark.parametrize(
    ("script", "table", "name", "stem"),
    [
        ("torchrun --nproc_per_node 4 src/train.py --bf16 True", TORCHRUN, "src/train.py", "train"),
        ("python3 -m torch.distributed.run --nproc-per-node=2 -m pkg.cli.train", TORCHRUN, "pkg.cli.train", "train"),
        ("nohup python -m torch.distributed.launch --use_env a.py", TORCHRUN, "a.py", "a"),
        ("deepspeed --num_gpus 2 a.py --deepspeed ds.json", DEEPSPEED_LAUNCHER, "a.py", "a"),
        ("accelerate launch --config_file c.yaml -m axolotl.cli.train x.yml", ACCELERATE_LAUNCHER, "axolotl.cli.train", "train"),
        ("srun -N 2 --ntasks-per-node=8 python a.py", SRUN, "a.py", "a"),
        ("srun torchrun --nnodes 2 a.py", TORCHRUN, "a.py", "a"),
        ("uv run python a.py --x 1", PLAIN, "a.py", "a"),
        ("llamafactory-cli train x.yaml", PLAIN, "llamafactory-cli", "llamafactory-cli"),
        ("CUDA_VISIBLE_DEVICES=0 env A=1 python3.11 a/b.py", PLAIN, "a/b.py", "b"),
        ("$VENV/bin/python a.py --x 1", PLAIN, "a.py", "a"),
        ("torchrun $ROOT/src/pkg/train.py --x 1", TORCHRUN, "src/pkg/train.py", "train"),
        ("\"$CONDA\"/bin/torchrun --nproc_per_node 4 a.py", TORCHRUN, "a.py", "a"),
        ('if [ -x "$V/python" ]; then P=$(which python); else P=python3; fi\n$P -m torch.distributed.run a.py', TORCHRUN, "a.py", "a"),
    ],
)  # fmt: skip
def test_finds_the_program(script: str, table: Table, name: str, stem: str) -> None:
    launch = _launch(script)
    assert launch.launcher is table
    assert (launch.name, launch.stem) == (name, stem)
    assert launch.is_module == ("-m " + name in script)


@pytest.mark.parametrize(
    ("script", "per_node", "nodes"),
    [
        ("torchrun --nproc_per_node 4 --nnodes 2 a.py", 4, 2),
        ("torchrun a.py", 1, 1),
        ("CUDA_VISIBLE_DEVICES=0,1,2 torchrun --nproc_per_node gpu a.py", 3, 1),
        ("torchrun --nproc_per_node auto a.py", None, 1),
        ("torchrun --nproc_per_node $N a.py", None, 1),
        ("torchrun --nproc_per_node 8 --nnodes 1:4 a.py", 8, 4),
        ("deepspeed --num_gpus 2 a.py", 2, 1),
        ("deepspeed a.py", None, 1),
        ("CUDA_VISIBLE_DEVICES=0,1 deepspeed a.py", 2, 1),
        ("deepspeed --include localhost:0,1,3 a.py", 3, 1),
        ("deepspeed --include worker-0:0,1@worker-1:0,1 a.py", 2, 2),
        ("deepspeed --num_gpus 8 --num_nodes 2 --hostfile h a.py", 8, 2),
        ("deepspeed --num_gpus 8 --hostfile h a.py", 8, None),
        ("accelerate launch --num_processes 8 --num_machines 2 a.py", 4, 2),
        ("CUDA_VISIBLE_DEVICES=1,2 accelerate launch --multi_gpu a.py", 2, 1),
        ("srun --nodes=2 --ntasks-per-node=4 python a.py", 4, 2),
        ("python a.py", 1, 1),
    ],
)
def test_counts_ranks(script: str, per_node: int | None, nodes: int | None) -> None:
    cells = _cells(_launch(script))
    assert cells[f.parallel.gpus_per_node] == per_node
    # finish_world assumes one node where nobody knows better.
    assert cells[f.parallel.nodes] == (nodes if nodes is not None else 1)


def test_slurm_directives_stand_behind_unknown_counts() -> None:
    cells = _cells(
        _launch("#SBATCH --nodes=4\n#SBATCH --gres=gpu:8\nsrun torchrun --nnodes $SLURM_NNODES "
                "--nproc_per_node 8 a.py\n")
    )  # fmt: skip
    assert cells[f.parallel.nodes] == 4
    assert cells[f.parallel.world] == 32
    origin = cells.settings[f.parallel.nodes].origin
    assert origin.kind == "derived"


def test_a_trainer_spreads_over_visible_gpus() -> None:
    launch = _launch("CUDA_VISIBLE_DEVICES=0,1 python a.py")
    assert _cells(launch)[f.parallel.gpus_per_node] == 1
    assert _cells(launch, one_process=False)[f.parallel.gpus_per_node] == 2
    bare = _launch("python a.py")
    assert _cells(bare, one_process=False)[f.parallel.gpus_per_node] is None


def test_options_of_launcher_and_program_are_told_apart() -> None:
    launch = _launch(
        "accelerate launch --mixed_precision bf16 a.py --mixed_precision fp16 --seed 1"
    )
    flags = launch.flags.entries
    assert set(flags) == {"mixed_precision", "seed"}
    assert flags["mixed_precision"].value.value == "fp16"  # type: ignore[union-attr]
    own = launch.blocks[-1].mapping.entries
    assert own["mixed_precision"].value.value == "bf16"  # type: ignore[union-attr]


def test_options_in_variables_stand_where_they_are_used() -> None:
    launch = _launch(
        'DIST="--nproc_per_node 4 --standalone"\nARGS="--bf16 True --do_train"\n'
        "torchrun $DIST a.py $ARGS --seed 1\n"
    )
    assert set(launch.flags.entries) == {"bf16", "do_train", "seed"}
    assert _cells(launch)[f.parallel.gpus_per_node] == 4


def test_additions_go_to_their_owner() -> None:
    script = "torchrun a.py\n"
    launch = _launch(script)
    ranks = launch.blocks[-1].write({"parallel.gpus_per_node": 8})
    assert _apply(script, launch, ranks) == "torchrun --nproc_per_node 8 a.py\n"
    own = launch.program_block(_OPTIONS).write({"x.seed": "3"})
    assert _apply(script, launch, own) == "torchrun a.py --seed 3\n"


@pytest.mark.parametrize("asks", ["-h", "--help"])
def test_who_asks_for_help_starts_nothing(asks: str) -> None:
    script = f"llamafactory-cli train {asks}\ntorchrun train.py {asks}\npython t.py -h 8\n"
    document = parse_shell(Source("run.sh", script))
    assert [launch.name for launch in launches(document)] == ["t.py"]


@pytest.mark.parametrize(
    ("line", "table", "open_field"),
    [
        ("$RUN train.py --bf16 --seed 4", PLAIN, f.parallel.gpus_per_node),
        (
            '"${RUN}" --nproc_per_node 4 --port 1 train.py --bf16 --seed 4',
            TORCHRUN,
            f.parallel.nodes,
        ),
        ("$RUN --port 1 train.py --bf16 --seed 4", PLAIN, f.parallel.gpus_per_node),
    ],
)
def test_what_follows_a_script_is_its_own_whoever_starts_it(
    line: str, table: Table, open_field: Any
) -> None:
    launch = _launch(f"{line}\n")
    assert (launch.script, launch.launcher) == ("train.py", table)
    assert set(launch.flags.entries) == {"bf16", "seed"}
    cells = _cells(launch)
    assert cells.level(open_field) is Level.UNREAD
    (root,) = roots_of(cells, open_field)
    origin = cells.unreadable[root]
    assert origin.key in ("$RUN", "${RUN}")


@pytest.mark.parametrize(
    ("option", "table"),
    [("--num_processes 8", ACCELERATE_LAUNCHER), ("--num_gpus 2", DEEPSPEED_LAUNCHER)],
)
def test_a_launcher_that_is_not_known_is_the_one_that_has_what_it_is_told(
    option: str, table: Table
) -> None:
    launch = _launch(f"$RUN {option} train.py --seed 4\n")
    assert (launch.launcher, set(launch.flags.entries)) == (table, {"seed"})


def test_a_program_that_is_not_known_may_take_what_it_likes_where_no_script_follows() -> None:
    (command,) = parse_shell(Source.from_bytes("a.sh", b"$RUN --seed 1 2 3\n")).commands
    assert len(command.flags.entries["seed"].value.items) == 3  # type: ignore[attr-defined]


def test_options_of_branches_keep_their_names_beside_what_only_running_tells() -> None:
    """``--nnodes $WORLD_SIZE`` in both branches: a cluster says how many nodes there are."""
    script = (
        'if [[ $IS_MASTER == 1 ]]; then\n  D="--nproc_per_node 8 --nnodes $WORLD_SIZE"\n'
        'else\n  D="--nproc_per_node 8 --nnodes $WORLD_SIZE --master_addr $MASTER_ADDR"\nfi\n'
        "torchrun $D train.py\n"
    )
    text = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')\n"
        "Trainer(model=model, args=TrainingArguments('o'), train_dataset=data).train()\n"
    )
    run = run_of({"train.py": text, "run.sh": script}, hardware="8xA100-80GB")
    assert run.level(f.parallel.nodes) >= Level.ASSUMED
    assert run.plan.parallel.gpus_per_node == 8
