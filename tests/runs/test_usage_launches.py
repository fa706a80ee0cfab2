"""How a Python script says of itself that it is started counts where nothing here starts it."""

from __future__ import annotations

import pytest
from tests.linked import link, run_of

from oomlint.documents.text import Source
from oomlint.documents.usage import starts_in_script
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

SCRIPT = """\
{head}
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
from data import make_data
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
Trainer(model=model, args=args, **make_data()).train()
{tail}
"""
OPTIONS = "--bf16 True --output_dir out --num_train_epochs 1 --gradient_checkpointing True --model_max_length 512"
LINE = (
    "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train.py \\\n{sign}    --per_device_train_batch_size 4 "
    + OPTIONS
)


@pytest.mark.parametrize(
    ("head", "tail"),
    [
        (f'"""Trains.\n\nUsage:\n\n{LINE.format(sign="")}\n"""', ""),
        ("", f"# {LINE.format(sign='# ')}"),
        ("", f"'''\n$ {LINE.format(sign='')}\n'''"),
        (f'"""Usage: {LINE.format(sign="")}\n"""', ""),
        (f'"""Usage:\n\n{LINE.format(sign="")}\n"""'.replace("\\", "\\\\"), ""),
    ],
)
def test_the_line_counts(head: str, tail: str) -> None:
    run = run_of({"train.py": SCRIPT.format(head=head, tail=tail)})
    assert run.plan.parallel.world == 2
    assert run.plan.batch.micro == 4
    assert run.level(f.parallel.world) is Level.DEFAULT


def test_the_launch_that_a_script_has_comes_first() -> None:
    text = SCRIPT.format(head="", tail=f"# {LINE.format(sign='# ')}")
    run = run_of(
        {
            "train.py": text,
            "run.sh": f"torchrun --nproc_per_node 4 train.py --per_device_train_batch_size 4 {OPTIONS}\n",
        }
    )
    assert run.plan.parallel.world == 4


def test_lines_that_start_another_do_not_count() -> None:
    text = SCRIPT.format(head="", tail=f"# torchrun --nproc_per_node 2 other_train.py {OPTIONS}")
    assert not link({"train.py": text}).runs


@pytest.mark.parametrize("line", ["python = 'train.py'", "launch('train.py')", "# see train.py"])
def test_code_and_prose_are_no_command(line: str) -> None:
    assert starts_in_script(Source("train.py", f"{line}\n")) is None


@pytest.mark.parametrize(
    "files",
    [
        {"README.md": "# Lab\n\n```bash\n{line}\n```\n", "src/lab/train.py": ""},
        {"src/lab/train.py": '"""Trains.\n\nUsage:\n    {line}\n"""'},
        {"lab/train.py": "# {line}"},
    ],
)
def test_a_module_of_an_installed_package_is_started_by_its_name(files: dict[str, str]) -> None:
    """``-m lab.train`` finds it in ``src``, where an installation in place has it from."""
    line = f"torchrun --nproc_per_node 2 -m lab.train --per_device_train_batch_size 4 {OPTIONS}"
    texts = {name: text.format(line=line) for name, text in files.items()}
    (script,) = (name for name in texts if name.endswith(".py"))
    texts[script] = SCRIPT.format(head=texts[script], tail="")
    run = run_of(texts, script)
    assert run.plan.parallel.world == 2
    assert run.plan.batch.micro == 4
