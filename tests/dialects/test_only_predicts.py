"""Commands that have a program of the project's own predict or evaluate, and do not ask it to train."""

from __future__ import annotations

import pytest
from tests.linked import report_of, run_of

from oomlint.dialects.common.fields import shared
from oomlint.linting.rule import Severity

_MAIN = """\
from transformers import AutoModel, HfArgumentParser, Seq2SeqTrainingArguments
from own_trainer import Seq2SeqTrainer
from arguments import ModelArguments


def main():
    parser = HfArgumentParser((ModelArguments, Seq2SeqTrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses()
    model = AutoModel.from_pretrained(model_args.model_name_or_path).float()
    trainer = Seq2SeqTrainer(model=model, args=training_args)
    if training_args.do_train:
        trainer.train()
    if training_args.do_predict:
        trainer.predict(None)


def _mp_fn(index):
    main()


if __name__ == "__main__":
    main()
"""
_TRAINER = """\
from transformers import Trainer


class Seq2SeqTrainer(Trainer):
    def prediction_step(self, model, inputs):
        return super().prediction_step(model, inputs)

    def _wrap_model(self, model):
        return model
"""
_LINE = (
    "python main.py {asked} --model_name_or_path Qwen/Qwen2.5-7B --output_dir o --prompt_column a"
    " --response_column b --max_source_length 64 --per_device_eval_batch_size 1 --predict_with_generate --fp16_full_eval\n"
)
_PROGRAM = {"main.py": _MAIN, "own_trainer.py": _TRAINER}


def _trains(files: dict[str, str]) -> bool:
    return run_of(files, "run.sh").settings.get(shared.stops) is None


@pytest.mark.parametrize("asked", ["--do_predict", "--do_eval", "--do_predict --do_train False"])
@pytest.mark.parametrize("program", [_PROGRAM, {}], ids=["here", "absent"])
def test_what_is_asked_to_predict_alone_needs_no_memory_of_training(
    asked: str, program: dict[str, str]
) -> None:
    assert not _trains({"run.sh": _LINE.format(asked=asked), **program})


@pytest.mark.parametrize("program", [_PROGRAM, {}], ids=["here", "absent"])
def test_what_is_asked_to_train_as_well_trains(program: dict[str, str]) -> None:
    line = _LINE.format(asked="--do_predict --do_train")
    assert _trains({"run.sh": line, **program})


def test_a_program_that_trains_unasked_does_so_whatever_else_it_is_asked() -> None:
    unasked = _MAIN.replace("    if training_args.do_train:\n        trainer", "    trainer")
    assert unasked != _MAIN
    line = _LINE.format(asked="--do_predict")
    assert _trains({"run.sh": line, "main.py": unasked, "own_trainer.py": _TRAINER})


def test_options_of_training_say_that_an_absent_program_may_train() -> None:
    line = _LINE.format(asked="--do_eval --learning_rate 1e-5")
    assert _trains({"run.sh": line})


def test_a_function_that_two_places_call_keeps_its_own_switches_alone() -> None:
    """Whoever calls it under a switch says nothing of the other call."""
    text = _MAIN.replace("    if training_args.do_train:\n        trainer", "    trainer").replace(
        "def _mp_fn(index):\n    main()", "if DEBUG:\n    main()"
    )
    files = {"run.sh": _LINE.format(asked="--do_predict"), "main.py": text}
    assert _trains({**files, "own_trainer.py": _TRAINER})


def test_what_it_would_need_is_a_remark() -> None:
    files = {"run.sh": _LINE.format(asked="--do_predict")}
    found = [d.finding for d in report_of(files, "run.sh", hardware="1xRTX4090").diagnoses]
    assert found
    assert all(each.severity is Severity.INFO for each in found)
