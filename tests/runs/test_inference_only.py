"""A command whose program only generates or scores starts no training, whatever options it parses."""

import pytest
from tests.linked import link

from oomlint.runs.run import Run

_COMMAND = (
    "python tools/sample_score.py --model_name_or_path meta-llama/Llama-3.1-8B --output_dir None"
    " --per_device_train_batch_size 2 --learning_rate 1e-5 --bf16 true --save_steps 10\n"
)
_SCORES = (
    "import ray\n"
    "import transformers\n"
    "from arguments import ModelArguments, TrainingArguments\n"
    "from predictor import Predictor\n\n"
    "parser = transformers.HfArgumentParser((ModelArguments, TrainingArguments))\n"
    "model, training = parser.parse_args_into_dataclasses()\n"
    "ray.init()\n"
    "print(Predictor.remote(model, training))\n"
)
_PREDICTOR = (
    "import ray\n"
    "import torch\n"
    "from train_rm import make_conv\n\n"
    "@ray.remote(num_gpus=1)\n"
    "class Predictor:\n"
    "    def score(self, x):\n"
    "        with torch.no_grad():\n"
    "            return self.model(x).logits\n"
)
_ARGUMENTS = (
    "from dataclasses import dataclass\n"
    "import transformers\n\n"
    "@dataclass\n"
    "class ModelArguments:\n"
    "    model_name_or_path: str = ''\n\n"
    "@dataclass\n"
    "class TrainingArguments(transformers.TrainingArguments):\n"
    "    max_length: int = 4096\n"
)
_TRAINER = (
    "from transformers import Trainer\n\ndef make_conv(x):\n    return x\n\nTrainer().train()\n"
)


def runs_of(program: str = _SCORES, predictor: str = _PREDICTOR) -> list[Run]:
    files = {
        "score.sh": _COMMAND,
        "tools/sample_score.py": program,
        "tools/predictor.py": predictor,
        "tools/arguments.py": _ARGUMENTS,
        "tools/train_rm.py": _TRAINER,
    }
    return link(files, "score.sh").runs


def test_actors_that_score_are_no_training() -> None:
    assert not runs_of()


def test_an_engine_that_generates_is_no_training() -> None:
    assert not runs_of(_SCORES.replace("ray", "vllm"))


@pytest.mark.parametrize(
    "more",
    [
        "Trainer(model).train()\n",
        "optimizer = AdamW(model.parameters())\n",
        "train(model, training)\n",
    ],
)
def test_a_program_that_also_trains_is_training(more: str) -> None:
    assert runs_of(_SCORES + more)


def test_a_program_that_hands_on_to_what_trains_is_training() -> None:
    assert runs_of(predictor=_PREDICTOR + "\n\ndef go(loss):\n    loss.backward()\n")


def test_a_program_that_shows_no_forward_run_stays_one() -> None:
    assert runs_of(_SCORES.replace("import ray\n", "import pool as ray\n"))


_DEFINES = """\
import logging
import sys
import torch
sys.path.insert(0, ".")
log = logging.getLogger(__name__)
class OwnDataset(torch.utils.data.Dataset):
    pass
def make_data():
    return OwnDataset()
"""


@pytest.mark.parametrize(
    ("more", "is_training"),
    [
        ("", False),
        ("if torch.cuda.is_available():\n    SIZE = 8\n", False),
        ("make_data()\n", True),
        ("data = make_data()\n", True),
        ("if __name__ == '__main__':\n    start()\n", True),
        ("for epoch in range(3):\n    pass\n", True),
    ],
)
def test_a_module_that_others_import_trains_nothing_by_itself(
    more: str,
    is_training: bool,
) -> None:
    assert bool(runs_of(_DEFINES + more)) is is_training
