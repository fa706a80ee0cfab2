"""Scripts that other scripts start run with the variables of those, and with what they hand them."""

import pytest
from tests.linked import link, report_of, workspace_of

from oomlint.dialects.machine.handed import handed
from oomlint.documents.shell import document
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

NEEDS = """\
BATCH=${BATCH:-1}
torchrun --nproc_per_node 4 train.py --model_name_or_path $MODEL --output_dir out \\
  --per_device_train_batch_size $BATCH --learning_rate 1e-5 --num_train_epochs 1 --logging_steps 1
"""
INNER = f"MODEL=${{MODEL:-Qwen/Qwen3-0.6B}}\n{NEEDS}"


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
    """What it does not have itself nobody starts it without."""
    files = {
        "scripts/train.sh": NEEDS,
        "scripts/base.sh": "export MODEL=Qwen/Qwen3-4B BATCH=8\n",
        "a.sh": outer,
    }
    runs = link(files).runs
    assert [run.plan.model.id for run in runs] == models
    assert {run.plan.batch.micro for run in runs} == {8}


def test_a_script_is_read_once_for_each_way_in_which_it_is_started(monkeypatch):
    ways = []
    read = document.parse_shell

    def counted(source, find, *given):
        ways.append((source.path, *given))
        return read(source, find, *given)

    monkeypatch.setattr(document, "parse_shell", counted)
    outer = "for M in 4B 8B; do MODEL=Qwen/Qwen3-$M bash scripts/between.sh; done\n"
    between = "export MODEL=$MODEL\nexport BATCH=4\nbash scripts/train.sh\n"
    files = {"a.sh": outer, "scripts/between.sh": between, "scripts/train.sh": NEEDS}
    assert len(link(files).runs) == 2
    started = [repr(way) for way in ways if len(way) > 1]
    assert len(started) == 4
    assert len(set(started)) == 4


def test_variables_go_through_a_script_that_does_not_read_them():
    files = {
        "train.sh": NEEDS,
        "middle.sh": 'bash train.sh "$@"\n',
        "a.sh": "export MODEL=Qwen/Qwen3-4B\nbash middle.sh --seed 1\n",
    }
    (run,) = link(files).runs
    assert run.plan.model.id == "Qwen/Qwen3-4B"


def test_a_script_with_defaults_runs_by_itself_too():
    files = {"train.sh": INNER, "a.sh": "MODEL=Qwen/Qwen3-4B bash train.sh\n"}
    assert [run.plan.model.id for run in link(files).runs] == ["Qwen/Qwen3-0.6B", "Qwen/Qwen3-4B"]


def test_a_variable_that_nobody_knows_is_no_default():
    files = {
        "train.sh": NEEDS,
        "a.sh": "export MODEL=Qwen/Qwen3-4B BATCH=$(cat batch)\nbash train.sh\n",
    }
    (run,) = link(files).runs
    assert run.level(f.batch.micro) is Level.UNREAD


def test_where_programs_are_looked_for_makes_no_other_run():
    inner = f"export PYTHONPATH=.:$PYTHONPATH\n{INNER}"
    files = {"train.sh": inner, "a.sh": "export PYTHONPATH=src\nbash train.sh\n"}
    (run,) = link(files).runs
    assert run.plan.batch.micro == 1


def test_a_script_between_is_no_beginning_of_its_own():
    """Alone it hands on what it does not have: nobody starts it so."""
    middle = "export TRIES=3\nbash train.sh\n"
    outer = "export MODEL=Qwen/Qwen3-4B TRIES=5\nbash middle.sh\n"
    files = {"train.sh": NEEDS, "middle.sh": f"{middle}echo $TRIES\n", "z.sh": outer}
    (run,) = link(files).runs
    assert run.plan.model.id == "Qwen/Qwen3-4B"


def test_runs_of_one_line_are_named_by_what_starts_them():
    files = {
        "train.sh": NEEDS,
        "small.sh": "MODEL=Qwen/Qwen3-4B bash train.sh\n",
        "large.sh": "MODEL=Qwen/Qwen3-8B bash train.sh\n",
    }
    names = sorted(run.name for run in link(files).runs)
    assert names == ["train.sh (large.sh)", "train.sh (small.sh)"]


_HYDRA = """\
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct \\
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \\
    trainer.n_gpus_per_node=2 \\
    trainer.nnodes=1 "$@"
"""


@pytest.mark.parametrize(
    "starts",
    [
        "bash inner.sh {}\n",
        'MORE=({})\nbash inner.sh "${{MORE[@]}}"\n',
        'CMD=(bash inner.sh {})\n"${{CMD[@]}}" 2>&1 | tee log\n',
    ],
)
def test_keys_that_a_script_is_handed_count(starts: str) -> None:
    """Behind those that it says itself: Hydra takes the last."""
    line = starts.format("actor_rollout_ref.model.path=Qwen/Qwen3-8B trainer.n_gpus_per_node=4")
    (run,) = link({"outer.sh": line, "inner.sh": _HYDRA}).runs
    assert run.plan.model.id == "Qwen/Qwen3-8B"
    assert run.plan.parallel.gpus_per_node == 4
    assert run.plan.objective.rollout.gpu_mem_util == 0.6


def test_a_key_that_is_new_to_hydra_is_handed_on_as_one() -> None:
    files = {"outer.sh": "bash inner.sh +trainer.more=1 ++a.b=2 --lr 1\n", "inner.sh": _HYDRA}
    script = workspace_of(files).document("outer.sh")
    assert script is not None
    (given,) = handed(script)
    assert given.arguments == ("+trainer.more=1", "++a.b=2", "--lr", "1")


def test_a_key_that_is_new_to_hydra_is_none_that_it_refuses() -> None:
    """However the script that starts it has it: from an array within another."""
    config = "trainer: {nnodes: 1, n_gpus_per_node: 2}\nactor_rollout_ref: {model: {path: a/b}}\n"
    inner = _HYDRA.replace("algorithm.adv_estimator=grpo", "").replace("trainer.nnodes=1", "")
    inner = inner.replace("actor_rollout_ref.rollout.gpu_memory_utilization=0.6", "")
    for mark, is_refused in (("+", False), ("", True)):
        outer = f'MORE=({mark}trainer.more=1)\nCMD=(bash inner.sh "${{MORE[@]}}")\n"${{CMD[@]}}"\n'
        files = {
            "outer.sh": outer,
            "inner.sh": inner,
            "verl/trainer/config/ppo_trainer.yaml": config,
        }
        found = [d for d in report_of(files).diagnoses if d.rule.code == "OOM905"]
        assert bool(found) is is_refused
