"""How a README says that a config is started counts where no launch line here does."""

import pytest
from tests.linked import link, run_of

from oomlint.documents.base import UNKNOWN
from oomlint.documents.readme import starts_in_readme
from oomlint.documents.text import Source
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run

CONFIG = """\
base_model: meta-llama/Llama-3.1-8B
datasets: [{path: a, type: alpaca}]
sequence_len: 2048
micro_batch_size: 1
"""
LAUNCH = "accelerate launch --num_processes 4 -m axolotl.cli.train configs/{name}.yaml"


def _readme(*commands: str) -> str:
    return "# Training\n\nRun this:\n\n```bash\n" + "\n".join(commands) + "\n```\n"


def _run(readme: str, name: str = "a"):
    files = {"README.md": readme, f"configs/{name}.yaml": CONFIG}
    return run_of(files, f"configs/{name}.yaml")


def test_the_line_that_names_the_config_counts():
    run = _run(_readme(LAUNCH.format(name="a")))
    assert run.plan.parallel.world == 4
    assert run.level(f.parallel.world) is Level.DEFAULT


def test_lines_outside_of_fences_and_of_other_programs_do_not():
    line = LAUNCH.format(name="a")
    assert _run(f"Start {line} or so\n\n    {line}\n").plan.parallel.world is None
    assert _run(_readme("cat configs/a.yaml")).plan.parallel.world is None


def test_a_fence_that_is_not_closed_ends_with_the_next_one_that_says_no_language():
    """CommonMark 0.31: a line with an info string closes nothing."""
    line = LAUNCH.format(name="a")
    open_one = "```python\nf()\n\nThen start:\n\n```sh\nls\n```\n\nAnd:\n\n"
    assert _run(f"{open_one}```sh\n{line}\n```\n").plan.parallel.world == 4
    assert _run(f"{open_one}{line}\n").plan.parallel.world is None


def test_assignments_may_stand_on_a_line_before_the_program():
    readme = _readme("CUDA_VISIBLE_DEVICES=0,1 X=1 \\", f"    {LAUNCH.format(name='a')}")
    run = _run(readme.replace("--num_processes 4 ", ""))
    assert run.plan.env.cuda_visible_devices == "0,1"


def test_a_prompt_and_a_continued_line_are_read():
    readme = _readme(
        "$ accelerate launch --num_processes 2 \\",
        "    -m axolotl.cli.train \\",
        "  configs/a.yaml",
    )
    assert _run(readme).plan.parallel.world == 2


def test_a_fence_ends_a_command_that_a_backslash_would_go_on():
    first = _readme(f"{LAUNCH.format(name='a')} --micro_batch_size 4 \\")
    document = starts_in_readme(
        Source("README.md", first + _readme("python other.py \\", "  --a 1"))
    )
    assert document is not None
    assert len(document.commands) == 2


def test_of_lines_that_differ_the_first_is_assumed():
    run = _run(_readme(LAUNCH.format(name="a"), LAUNCH.format(name="a").replace("4", "8")))
    assert run.plan.parallel.world == 4
    assert run.level(f.parallel.world) is Level.ASSUMED


def test_the_line_of_a_sibling_is_taken_for_its_own():
    files = {
        "README.md": _readme(LAUNCH.format(name="b")),
        "configs/a.yaml": CONFIG,
        "configs/b.yaml": CONFIG,
    }
    run = run_of(files, "configs/a.yaml")
    assert run.plan.parallel.world == 4
    assert run.level(f.parallel.world) is Level.ASSUMED


RECIPE = (
    "model_name_or_path: meta-llama/Meta-Llama-3-8B\ndataset_mixer: {a: 1.0}\n"
    "learning_rate: 2.0e-5\nper_device_train_batch_size: 8\noutput_dir: out\n"
)


def test_a_sibling_that_another_program_trains_is_no_hint():
    """Each objective has its own script and number of ranks; which of a project's scripts trains a
    sibling of the same objective is the sibling's alone."""
    launch = "accelerate launch --num_processes 4 scripts/run_simpo.py configs/b-simpo.yaml"
    simpo = f"{RECIPE}max_length: 2048\ngamma_beta_ratio: 0.5\n"
    files = {
        "README.md": _readme(launch),
        "configs/a-sft.yaml": f"{RECIPE}max_seq_length: 2048\n",
        "configs/b-simpo.yaml": simpo,
        "configs/c-simpo.yaml": simpo,
    }
    sft = run_of(files, "configs/a-sft.yaml")
    assert (sft.level(f.parallel.world), sft.plan.objective.kind) == (Level.UNREAD, "sft")
    own = run_of(files, "configs/b-simpo.yaml")
    assert (own.plan.parallel.world, own.level(f.parallel.world)) == (4, Level.DEFAULT)
    sibling = run_of(files, "configs/c-simpo.yaml")
    assert (sibling.plan.parallel.world, sibling.plan.objective.kind) == (4, "simpo")
    assert sibling.level(f.parallel.world) is Level.ASSUMED


_SCRIPT = """\
CUDA_VISIBLE_DEVICES=$1 python train.py --per_device_train_batch_size 1 --output_dir out \\
    --model_name_or_path $2 --num_train_epochs 1 --learning_rate 1e-5
"""


def _shown(readme: str, more: str = "") -> list[Run]:
    return link({"README.md": readme, "train.sh": _SCRIPT, "all.sh": more}).runs


def test_a_script_that_takes_arguments_runs_with_those_that_a_readme_shows():
    (run,) = _shown(_readme("bash train.sh 0,1 Qwen/Qwen2.5-7B"))
    assert (run.plan.model.id, run.plan.env.cuda_visible_devices) == ("Qwen/Qwen2.5-7B", "0,1")
    assert run.level(f.model.id) is Level.FACT
    assert _shown("Run it.\n")[0].plan.model.id is None


def test_variables_set_before_a_command_count_unless_they_are_left_out():
    call = "bash train.sh 0 ${MODEL}"
    (run,) = _shown(_readme("MODEL=Qwen/Qwen2.5-7B", call))
    assert run.plan.model.id == "Qwen/Qwen2.5-7B"
    (run,) = _shown(_readme("MODEL=...", call))
    assert (run.plan.model.id, run.plan.env.cuda_visible_devices) == (None, "0")


def test_a_script_that_starts_it_counts_before_a_readme():
    (run,) = _shown(_readme("bash train.sh 0 Qwen/Qwen2.5-7B"), "bash train.sh 1 Qwen/Qwen3-8B\n")
    assert run.plan.model.id == "Qwen/Qwen3-8B"


_TAKES_MODEL = (
    "torchrun --nproc_per_node 8 llava/train/train.py --model_name_or_path $1 --bf16 True\n"
)


def test_an_example_hands_a_script_what_it_takes() -> None:
    files = {
        "README.md": _readme("bash train.sh meta-llama/Llama-3.1-8B"),
        "train.sh": f"{_TAKES_MODEL}",
    }
    run = run_of(files, "train.sh")
    assert run.plan.model.id == "meta-llama/Llama-3.1-8B"
    assert run.level(f.model.id) is Level.FACT
    # A default is what its author starts it with.
    files["train.sh"] = _TAKES_MODEL.replace("$1", "${1:-Qwen/Qwen3-8B}")
    run = run_of(files, "train.sh")
    assert (run.plan.model.id, run.level(f.model.id)) == ("Qwen/Qwen3-8B", Level.STATED)


def test_an_option_that_an_example_quotes_with_others_is_one_word() -> None:
    line = "bash train.sh '--per_device_train_batch_size=3 --gradient_accumulation_steps=5'"
    script = f"{_TAKES_MODEL.strip().replace('$1', 'Qwen/Qwen3-8B')} $1\n"
    run = run_of({"README.md": _readme(line), "train.sh": script}, "train.sh")
    assert (run.plan.batch.micro, run.plan.batch.grad_accum) == (3, 5)
    assert not run.wrong


def test_a_script_hands_on_what_an_example_hands_it() -> None:
    files = {
        "README.md": _readme("bash main.sh Qwen/Qwen3-8B"),
        "main.sh": 'MODEL=$1\nbash train.sh "$MODEL"\n',
        "train.sh": _TAKES_MODEL,
    }
    run = run_of(files, "main.sh", "train.sh")
    assert (run.plan.model.id, run.level(f.model.id)) == ("Qwen/Qwen3-8B", Level.FACT)


def test_what_is_handed_on_keeps_its_place_behind_what_nobody_knows() -> None:
    files = {
        "main.sh": "bash train.sh $STORE/models/a Qwen/Qwen3-8B\n",
        "train.sh": _TAKES_MODEL.replace("$1", "$2"),
    }
    assert run_of(files, "main.sh", "train.sh").plan.model.id == "Qwen/Qwen3-8B"


def test_a_file_that_an_example_names_need_not_be_here() -> None:
    line = f"{_TAKES_MODEL[:-1]} --deepspeed conf/$2.json\n"
    files = {"README.md": _readme("bash train.sh Qwen/Qwen3-8B zero3"), "train.sh": line}
    (missing,) = run_of(files, "train.sh").missing
    assert (missing.reference, missing.is_elsewhere) == ("conf/zero3.json", True)


_TRAINER = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments
(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(args=arguments).train()
"""
_OPTIONS = "--model_name_or_path {} --output_dir out --per_device_train_batch_size 1 --bf16 True"


def test_a_python_script_that_no_script_starts_runs_as_a_readme_shows():
    shown = f"torchrun --nproc_per_node 4 train.py {_OPTIONS.format('Qwen/Qwen2.5-7B')}"
    files = {"README.md": _readme(shown), "train.py": _TRAINER}
    (run,) = link(files).runs
    assert (run.plan.model.id, run.plan.parallel.world) == ("Qwen/Qwen2.5-7B", 4)
    assert run.level(f.model.id) is Level.FACT
    files["train.sh"] = f"python train.py {_OPTIONS.format('Qwen/Qwen3-8B')}\n"
    (run,) = link(files).runs
    assert run.plan.model.id == "Qwen/Qwen3-8B"


def test_a_readme_that_only_names_a_script_starts_none():
    assert not link({"README.md": _readme("python train.py"), "train.py": _TRAINER}).runs


def test_a_guide_shows_how_a_script_is_started_too() -> None:
    shown = f"torchrun --nproc_per_node 4 train.py {_OPTIONS.format('Qwen/Qwen2.5-7B')}"
    for guide in ("docs/training.md", "docs/deep/training.md"):
        files = {guide: _readme(shown), "train.py": _TRAINER}
        worlds = [run.plan.parallel.world for run in link(files).runs]
        assert worlds == ([4] if guide == "docs/training.md" else [])


def test_a_readme_of_another_language_or_day_is_read_after_the_one_of_that_name():
    line = LAUNCH.format(name="a")
    files = {"README.md": _readme("ls"), "README_.md": _readme(line), "configs/a.yaml": CONFIG}
    assert run_of(files, "configs/a.yaml").plan.parallel.world == 4
    run = run_of({**files, "README.md": _readme(line)}, "configs/a.yaml")
    assert run.level(f.parallel.world) is Level.DEFAULT


def test_a_command_that_two_readmes_show_is_one_run():
    script = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')\n"
        "args = TrainingArguments(output_dir='o', per_device_train_batch_size=4)\n"
        "Trainer(model=model, args=args, train_dataset=d).train()\n"
    )
    shown = _readme("torchrun --nproc_per_node 2 train.py")
    files = {"README.md": shown, "README_zh.md": shown, "train.py": script}
    assert len(link(files, "train.py").runs) == 1


def test_notes_that_fence_nothing_say_it_at_the_margin():
    line = LAUNCH.format(name="a")
    assert _run(f"# Setup\npip install axolotl\n{line}\n[rank0]: done\n").plan.parallel.world == 4
    assert _run(f"# Setup\n{line}\n\n```sh\nls\n```\n").plan.parallel.world is None


def test_scripts_that_readmes_start_have_one_order_wherever_they_lie():
    """A set of names has another order in each process, and a folder on each disk."""
    shown = f"torchrun --nproc_per_node 4 train.py {_OPTIONS.format('Qwen/Qwen3-8B')}"
    files: dict[str, str] = {}
    for folder in ("f", "b", "e", "a", "d", "c"):
        files[f"{folder}/train.py"] = _TRAINER
        files[f"{folder}/README.md"] = _readme(shown)
    roots = [run.parts.root.path for run in link(files).runs if run.parts.root is not None]
    assert roots == [f"{folder}/README.md" for folder in "abcdef"]


_ALONE = (
    "model=${1:-Qwen/Qwen3-0.6B}\npython train.py --model_name_or_path $model --output_dir out"
    " --per_device_train_batch_size 1 --learning_rate 1e-5 --num_train_epochs 1 --logging_steps 1\n"
)


@pytest.mark.parametrize(
    ("commands", "script", "cards"),
    [
        (("CUDA_VISIBLE_DEVICES=0 ./scripts/train.sh Qwen/Qwen3-4B",), _ALONE, "0"),
        (("CUDA_VISIBLE_DEVICES=0 bash scripts/train.sh",) * 2, _ALONE, "0"),
        (("CUDA_VISIBLE_DEVICES=0 bash scripts/train.sh", "bash scripts/train.sh"), _ALONE, None),
        (("CUDA_VISIBLE_DEVICES=0 bash scripts/other.sh",), _ALONE, None),
        (
            ("CUDA_VISIBLE_DEVICES=0 bash scripts/train.sh",),
            f"export CUDA_VISIBLE_DEVICES=0,1\n{_ALONE}",
            "0,1",
        ),
    ],
)
def test_a_script_that_is_shown_with_its_cards_is_started_on_them(commands, script, cards):
    """One that runs without arguments is not read as an example of it is: only what it leaves to the machine is."""
    files = {"README.md": _readme(*commands), "scripts/train.sh": script}
    run = run_of(files)
    assert run.plan.env.cuda_visible_devices == cards
    assert run.plan.model.id == "Qwen/Qwen3-0.6B"


_ONE = "export CUDA_VISIBLE_DEVICES=0"


@pytest.mark.parametrize(
    ("readme", "cards"),
    [
        (_readme(_ONE, "python one.py --a b.yaml") + _readme("bash all.sh"), UNKNOWN),
        (_readme(_ONE, "python one.py --a b.yaml", "# then", "bash all.sh"), "0"),
        (_readme(_ONE) + _readme("python one.py --a b.yaml") + _readme("bash all.sh"), "0"),
        (_readme(_ONE, "python one.py --a b.yaml") + "\n```bash\nbash all.sh\n```\n", "0"),
    ],
    ids=["another section", "a comment", "listed before all", "the same section"],
)
def test_cards_are_listed_for_the_section_of_a_command(readme: str, cards: object) -> None:
    document = starts_in_readme(Source("README.md", readme))
    assert document is not None
    one, all_ = document.commands
    shown = [each.environment.entries.get("CUDA_VISIBLE_DEVICES") for each in (one, all_)]
    values = [None if each is None else each.value for each in shown]
    assert [getattr(each, "value", None) for each in values] == ["0", cards]


_LOOP = """\
import argparse
import deepspeed
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
engine, *_ = deepspeed.initialize(model=model, config="ds.json")
engine.backward(loss)
"""


@pytest.mark.parametrize(
    ("documents", "world"),
    [
        ({"PLAN.md": "deepspeed --num_gpus 2 train.py --steps 4"}, 2),
        # What a README shows counts before what else is written beside it.
        ({"README.md": "torchrun --nproc_per_node 4 train.py --steps 4", "PLAN.md": "deepspeed --num_gpus 2 train.py --steps 4"}, 4),
        ({"PLAN.md": "deepspeed --num_gpus 2 other.py --steps 4"}, 8),
    ],
)  # fmt: skip
def test_what_else_is_written_beside_a_script_tells_how_it_is_started(
    documents: dict[str, str], world: int
) -> None:
    files = {name: _readme(command) for name, command in documents.items()}
    files |= {"train.py": _LOOP, "ds.json": '{"zero_optimization": {"stage": 2}}\n'}
    assert run_of(files, "train.py", hardware="8xA100-80GB").plan.parallel.world == world
