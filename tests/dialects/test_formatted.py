"""Functions that make texts of samples, as releases of TRL call them that give them a thousand at once."""

from __future__ import annotations

import pytest
from tests.linked import report_of, run_of

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

_SCRIPT = """\
from datasets import load_dataset
from transformers import TrainingArguments
from trl import SFTTrainer

def as_text(sample):
{body}

args = TrainingArguments(output_dir='o', per_device_train_batch_size=4, bf16=True)
SFTTrainer(
    'Qwen/Qwen2.5-7B', args=args, train_dataset=load_dataset('csv', data_files='d.csv')['train'],
    formatting_func=as_text, max_seq_length=512{more},
).train()
"""


def _files(body: str, trl: str = "0.9.4", more: str = "") -> dict[str, str]:
    text = "\n".join(f"    {line}" for line in body.splitlines())
    return {
        "train.py": _SCRIPT.format(body=text, more=more),
        "requirements.txt": f"trl=={trl}\ntransformers==4.42.3\n",
    }


def _codes(files: dict[str, str]) -> set[str]:
    """Of what is said but that a release of the trainer takes no ``max_seq_length`` any more."""
    told = report_of(files, "train.py").diagnoses
    return {d.finding.rule.code for d in told if "max_seq_length" not in d.finding.message}


@pytest.mark.parametrize(
    "body",
    [
        "return f\"Q: {sample['q']}\"",
        "text = f\"Q: {sample['q']}\"\ntext += sample['a']\nreturn text",
        "return 'Q: {}'.format(sample['q']) + '</s>'",
        "return 'Q: %s' % sample['q']",
    ],
)
def test_a_text_where_a_list_is_due_ends_the_program(body: str) -> None:
    assert "OOM905" in _codes(_files(body))
    assert "OOM905" in _codes(_files(body, "0.14.0"))
    assert "OOM905" not in _codes(_files(body, "0.15.2"))


@pytest.mark.parametrize(
    ("body", "more"),
    [
        ("return [f'Q: {q}' for q in sample['q']]", ""),
        ("text = make(sample)\nreturn text", ""),
        ("text = ''\ntext = make(sample)\nreturn text", ""),
        ("for text in sample['q']:\n    pass\nreturn text", ""),
        ("return f\"Q: {sample['q']}\"", ", packing=True"),
        ("return f\"Q: {sample['q']}\"", ", dataset_text_field='text'"),
    ],
)
def test_what_may_be_a_list_or_is_not_asked_for_one_ends_nothing(body: str, more: str) -> None:
    assert "OOM905" not in _codes(_files(body, more=more))


def test_a_release_that_nobody_tells_ends_nothing() -> None:
    files = _files("return f\"Q: {sample['q']}\"")
    del files["requirements.txt"]
    assert "OOM905" not in _codes(files)


def test_a_list_of_one_text_makes_one_sample_of_a_thousand() -> None:
    one = run_of(_files("return [f\"Q: {sample['q']}\"]"), "train.py")
    assert (one.plan.batch.micro, one.level(f.batch.micro)) == (4, Level.UNREAD)
    later = run_of(_files("return [f\"Q: {sample['q']}\"]", "0.15.2"), "train.py")
    assert later.level(f.batch.micro) is Level.STATED
    many = run_of(_files("return [f'Q: {q}' for q in sample['q']]"), "train.py")
    assert many.level(f.batch.micro) is Level.STATED
