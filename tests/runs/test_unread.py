"""What was not read, in words for the person who can say it, beside every verdict it leaves open."""

from __future__ import annotations

import pytest
from tests.linked import report_of

from oomlint.judgement import judgement_of
from oomlint.judgement.forecast import forecast_of
from oomlint.judgement.severity import Severity
from oomlint.judgement.unread import in_words
from oomlint.judgement.words import left_open, sentence
from oomlint.linting.engine import Report
from oomlint.lsp.hints import breakdown
from oomlint.plan.fields import f
from oomlint.report import estimates, fits, html, markdown

_LAUNCH = (
    "torchrun --nproc_per_node 8 finetune.py --model_name_or_path {model} --output_dir out "
    "--per_device_train_batch_size {micro} --model_max_length 4096 --bf16 True {more}\n"
)
_SHARDED = "--fsdp 'full_shard auto_wrap' --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer"
_LLAMA = "meta-llama/Llama-2-7b-hf"


_PROGRAM = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

model_args, training_args = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path)
Trainer(model=model, args=training_args, train_dataset=data).train()
"""


def _report(script: str, program: str | None = _PROGRAM) -> Report:
    files = {"train.sh": script} | ({} if program is None else {"finetune.py": program})
    return report_of(files, "train.sh", hardware="8xA100-80GB", explicit=["train.sh"])


def _script(model: str = _LLAMA, micro: str = "2", more: str = _SHARDED) -> str:
    return _LAUNCH.format(model=model, micro=micro, more=more)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (_script(micro="$MICRO"), "$MICRO has no value"),
        (_script(micro="${MICRO}"), "$MICRO has no value"),
        (_script(micro="$1"), "$1 is known only when the script runs"),
        ("SIZE=${1}\n" + _script(micro="$SIZE"), "$1 is known only when the script runs"),
        (
            _script(more="--freeze_backbone True"),
            "--freeze_backbone of finetune.py is not followed",
        ),
        (
            _script(more="--deepspeed conf/ds.json"),
            "conf/ds.json, which the command opens first, is not here: nothing is loaded",
        ),
        (_script(more="--deepspeed ${DS:-conf/ds.json}"), "conf/ds.json is not at hand"),
        (
            _script("/models/ours-7b-secret", "12", f"{_SHARDED} --gradient_checkpointing True"),
            "there is no config.json of /models/ours-7b-secret here",
        ),
        (
            _script(micro="$(./size)"),
            "per_device_train_batch_size in train.sh:1 is known only when it runs",
        ),
    ],
)
def test_the_verdict_names_what_leaves_it_open(script: str, words: str) -> None:
    (run,) = _report(script).runs
    assert judgement_of(run).verdict == "unknown"
    assert left_open(forecast_of(run)) == f": {words}"


def test_an_option_that_is_read_and_not_followed_is_named() -> None:
    """HQQ's adapters are no kind of training that a plan has: what is left open is named by the option that says so."""
    options = "--train_type hqq_lora --context_length 1024 --model_name meta-llama/Llama-2-7b-hf"
    (run,) = _report(f"python train.py {options}\n", program=None).runs
    assert in_words(run, f.trainable.method) == "--train_type of train.py is not followed"


def test_every_surface_says_it() -> None:
    report = _report(_script(micro="$MICRO"))
    (run,) = report.runs
    judgement = judgement_of(run)
    fitting = fits.render([fits.Fitting(run, None, (), ())])
    for surface in (
        sentence(judgement.spoken),
        estimates.render([judgement]),
        html.render([judgement]),
        "\n".join(markdown.table([judgement])),
        breakdown(judgement),
        fitting,
    ):
        assert "$MICRO has no value" in surface
    assert "nothing has to change" not in fitting
    assert "--hardware" not in fitting


def test_what_decides_nothing_is_not_named() -> None:
    (run,) = _report(_script(micro="2", more=f"{_SHARDED} --seed $SEED")).runs
    assert left_open(forecast_of(run)) == ""


def test_a_program_that_is_not_here_may_do_what_no_option_says() -> None:
    script = _script(micro="8")
    (run,) = _report(script).runs
    assert judgement_of(run).verdict == "tight"  # short samples fit
    report = _report(script, program=None)
    (run,) = report.runs
    assert judgement_of(run).verdict == "unknown"
    assert left_open(forecast_of(run)) == ": finetune.py is not here"
    assert all(each.severity <= Severity.INFO for each in report.diagnoses)


def test_a_program_of_which_nothing_is_recognised_is_not_followed() -> None:
    (run,) = _report(_script(micro="8"), program="from ours import main\nmain()\n").runs
    assert left_open(forecast_of(run)) == ": what finetune.py does is not followed"


_HANDBOOKS_DATA = (
    "dataset_mixer: {HuggingFaceH4/ultrafeedback_binarized: 1.0}\ndataset_splits: [train_prefs]\n"
)


@pytest.mark.parametrize(
    ("data", "verdict"),
    [(_HANDBOOKS_DATA, "does_not_fit"), ("dataset_name: trl-lib/Capybara\n", "unknown")],
    ids=["a recipe of alignment-handbook", "a recipe of anybody"],
)
def test_the_handbooks_scripts_train_what_a_recipe_says(data: str, verdict: str) -> None:
    recipe = (
        "model_name_or_path: mistralai/Mistral-7B-v0.1\noutput_dir: out\nlearning_rate: 5.0e-7\n"
        "per_device_train_batch_size: 2\nmax_length: 2048\nbf16: true\n"
    )
    held = {
        "run.sh": "accelerate launch --num_processes 1 scripts/run_dpo.py recipe.yaml\n",
        "recipe.yaml": recipe + data,
    }
    (run,) = report_of(held, hardware="A100-80GB").runs
    assert judgement_of(run).verdict == verdict
