"""A trainer of the project's own whose name does not end with that of the class it is derived from."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.documents.python.trainer_names import names_trainer

_SCRIPT = """\
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import GRPOConfig
from own import {name}

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", torch_dtype="bfloat16")
trainer = {name}(
    model=model, reward_funcs=len, train_dataset=data, weight=0.5,
    args=GRPOConfig(output_dir="o", per_device_train_batch_size=2, num_generations=2),
    peft_config=LoraConfig(r=8, target_modules=["q_proj"]),
)
trainer.train()
"""
_OWN = """\
from trl import GRPOTrainer

class {name}(GRPOTrainer):
    def __init__(self, *args, weight=1.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.weight = weight
"""


@pytest.mark.parametrize(
    "name", ["OwnTrainer", "OwnTrainerV2", "GRPOTrainerWithWeight", "Trainer_B"]
)
def test_the_adapter_that_it_is_given_is_trained(name: str) -> None:
    files = {
        "train.py": _SCRIPT.format(name=name),
        "own.py": _OWN.format(name=name),
        "run.sh": "python train.py\n",
    }
    trainable = run_of(files, "run.sh").plan.trainable
    assert (trainable.method, trainable.r) == ("lora", 8)


@pytest.mark.parametrize(
    "name", ["TrainerCallback", "TrainerState", "TFTrainer", "TrainerConfig", "Trainers"]
)
def test_what_a_trainer_is_told_is_none(name: str) -> None:
    assert not names_trainer(name)
