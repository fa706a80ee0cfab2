"""What an eleventh reading of diffs in public repositories found; the projects here are written anew."""

from __future__ import annotations

import pytest
from tests.fixing import repaired

_FOUR_ON_TWO = (
    "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 4 train.py {options} --bf16 True\n"
)
_PARSED = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments
from ours import model_of
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
Trainer(model=model_of(), args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("options", "becomes", "said"),
    [
        ("--gradient_accumulation_steps 3", "--gradient_accumulation_steps 6", "over 6 micro"),
        ("--gradient_accumulation_steps $STEPS", "$STEPS", "with 1/2 of the global batch"),
    ],
)
def test_fewer_processes_keep_a_batch_that_nobody_knows_or_say_what_becomes_of_it(
    options: str, becomes: str, said: str
) -> None:
    batch = f"--output_dir out --per_device_train_batch_size $BATCH {options}"
    command = _FOUR_ON_TWO.format(options=batch)
    result = repaired({"train.py": _PARSED, "run.sh": command}, unsafe=True)
    (applied,) = (d for d in result.report.applied if d.rule.code == "OOM706")
    assert applied.fix is not None
    assert said in applied.fix.title
    text = result.texts["run.sh"].decode()
    assert "--nproc_per_node 2" in text
    assert becomes in text


_TRL = """\
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser
parser = TrlParser((SFTConfig, ModelConfig))
args, model_args = parser.parse_args_and_config()
print(args.{key})
{more}SFTTrainer(model=model_args.model_name_or_path, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("more", "is_mended"), [("", True), ("report(lambda: args.max_seq_length)\n", False)]
)
def test_code_asks_for_what_the_pinned_release_calls_otherwise(more: str, is_mended: bool) -> None:
    command = "python sft.py --output_dir out --model_name_or_path Qwen/Qwen2.5-0.5B --{key} 512\n"
    files = {
        "sft.py": _TRL.format(key="max_seq_length", more=more),
        "run.sh": command.format(key="max_seq_length"),
        "requirements.txt": "trl==0.21.0\n",
    }
    texts = repaired(files).texts
    # The option is mended whatever the code asks for.
    assert texts["run.sh"].decode() == command.format(key="max_length")
    code = texts.get("sft.py", b"").decode()
    assert (code == _TRL.format(key="max_length", more=more)) is is_mended
