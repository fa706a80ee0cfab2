"""What is said of a run without a prediction."""

import pytest
from tests.linked import run_of

from oomlint.judgement.unpredicted import is_to_be_named, what_tells_of
from oomlint.plan.fields import f


@pytest.mark.parametrize(
    "name",
    ["xxx", "<path_to_config>", "/YOUR_MODELPATH", "model_path", "/path/to/model", "out/TODO"],
)
def test_a_word_for_a_model_is_no_model_to_look_for(name: str) -> None:
    assert is_to_be_named(name)
    assert what_tells_of(name) == "state it with --set model.id=ORGANISATION/NAME"


@pytest.mark.parametrize("name", ["acme/house-model", "./models/sft", "models/yours-7b", "xx/model"])
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
