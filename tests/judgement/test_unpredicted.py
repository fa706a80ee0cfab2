"""What is said of a run without a prediction."""

from pathlib import Path

import pytest
from tests.linked import run_of

from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_hardware
from oomlint.judgement.unpredicted import is_to_be_named, what_tells_of
from oomlint.linting.engine import Options, lint
from oomlint.plan.fields import f


@pytest.mark.parametrize(
    "name",
    ["xxx", "<path_to_config>", "/YOUR_MODELPATH", "model_path", "/path/to/model", "out/TODO"],
)
def test_a_word_for_a_model_is_no_model_to_look_for(name: str) -> None:
    assert is_to_be_named(name)
    assert what_tells_of(name) == "state it with --set model.id=ORGANISATION/NAME"


@pytest.mark.parametrize(
    "name", ["acme/house-model", "./models/sft", "models/yours-7b", "xx/model"]
)
def test_a_name_is_a_name(name: str) -> None:
    assert not is_to_be_named(name)


def test_an_argument_without_a_name_is_called_by_its_parameter() -> None:
    script = (
        "import os\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "model = AutoModelForCausalLM.from_pretrained(os.environ['MODEL'])\n"
        "args = TrainingArguments(output_dir='out', per_device_train_batch_size=1)\n"
        "Trainer(model=model, args=args, train_dataset=data).train()\n"
    )
    assert run_of({"train.py": script}).key(f.model.id) == "pretrained_model_name_or_path"


def test_what_was_not_read_is_counted_right() -> None:
    script = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "from peft import get_peft_model\n"
        "model = AutoModelForCausalLM.from_pretrained('huggyllama/llama-7b')\n"
        "model = get_peft_model(model, made)\n"
        "args = TrainingArguments(output_dir='out', per_device_train_batch_size=8, fp16=True,\n"
        "    deepspeed='ds.json')\n"
        "Trainer(model=model, args=args, train_dataset=data).train()\n"
    )
    files = Workspace(Path("/project"), {"train.py": script.encode()})
    report = lint(files, ["train.py"], Options(hardware=parse_hardware("8xA100-80GB")))
    details = " ".join(d for each in report.diagnoses for d in each.finding.details)
    assert "were not read, and may say otherwise" in details
    assert " and deepspeed was not read" not in details
