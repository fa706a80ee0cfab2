"""Scripts that other scripts start run with the variables of those."""

import pytest
from tests.linked import link

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

INNER = """\
MODEL=${MODEL:-my/placeholder}
BATCH=${BATCH:-1}
torchrun --nproc_per_node 4 train.py --model_name_or_path $MODEL --output_dir out \\
  --per_device_train_batch_size $BATCH --learning_rate 1e-5 --num_train_epochs 1 --logging_steps 1
"""


@pytest.mark.parametrize(
    ("outer", "models"),
    [
        ("MODEL=Qwen/Qwen3-4B BATCH=8 bash scripts/train.sh\n", ["Qwen/Qwen3-4B"]),
        (
            "export MODEL=Qwen/Qwen3-4B\nBATCH=8\nexport BATCH\nexec scripts/train.sh\n",
            ["Qwen/Qwen3-4B"],
        ),
        ("source scripts/base.sh\nbash scripts/train.sh\n", ["Qwen/Qwen3-4B"]),
        (
            "export BATCH=8\nfor M in 4B 8B; do MODEL=Qwen/Qwen3-$M bash scripts/train.sh; done\n",
            ["Qwen/Qwen3-4B", "Qwen/Qwen3-8B"],
        ),
    ],
)
def test_a_script_runs_with_the_variables_of_the_one_that_starts_it(outer, models):
    """Its own defaults are what nobody starts it with here."""
    files = {
        "scripts/train.sh": INNER,
        "scripts/base.sh": "export MODEL=Qwen/Qwen3-4B BATCH=8\n",
        "a.sh": outer,
    }
    runs = link(files).runs
    assert [run.plan.model.id for run in runs] == models
    assert {run.plan.batch.micro for run in runs} == {8}


def test_variables_go_through_a_script_that_does_not_read_them():
    files = {
        "train.sh": INNER,
        "middle.sh": 'bash train.sh "$@"\n',
        "a.sh": "export MODEL=Qwen/Qwen3-4B\nbash middle.sh --seed 1\n",
    }
    (run,) = link(files).runs
    assert run.plan.model.id == "Qwen/Qwen3-4B"


def test_a_variable_that_nobody_knows_is_no_default():
    files = {"train.sh": INNER, "a.sh": "export BATCH=$(cat batch)\nbash train.sh\n"}
    (run,) = link(files).runs
    assert run.level(f.batch.micro) is Level.UNREAD


def test_where_programs_are_looked_for_makes_no_other_run():
    inner = f"export PYTHONPATH=.:$PYTHONPATH\n{INNER}"
    files = {"train.sh": inner, "a.sh": "export PYTHONPATH=src\nbash train.sh\n"}
    (run,) = link(files).runs
    assert run.plan.batch.micro == 1
