"""What is found beside a setting that the framework is sure to refuse."""

from __future__ import annotations

import pytest
from tests.configs import FULL_LLAMA_FACTORY
from tests.linked import report_of

from oomlint.linting.rule import Severity

_START = "llamafactory-cli train train.yaml\n"
_AXOLOTL = """\
base_model: meta-llama/Llama-3.1-8B
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
sequence_len: 4096
micro_batch_size: 8
val_set_size: 0
"""


def _memory(files: dict[str, str]) -> tuple[set[Severity], str]:
    """How severe the findings about memory are, and what is said of all together."""
    found = report_of(files, hardware="1xRTX-4090-24GB").diagnoses
    about = [each.finding for each in found if each.rule.code[3:4] in "12"]
    assert about
    return {each.severity for each in about}, "\n".join(each.text for each in about)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("train.yaml", f"{FULL_LLAMA_FACTORY}cut_off_lenn: 1024\n", "cut_off_lenn"),
        ("train.yaml", f"{FULL_LLAMA_FACTORY}bf16: perhaps\n", "bf16 cannot be perhaps"),
        ("axolotl.yaml", f"{_AXOLOTL}eval_steps: 10\n", "Axolotl refuses eval_steps"),
    ],
)
def test_what_the_program_would_need_is_a_remark(name: str, text: str, why: str) -> None:
    severities, said = _memory(
        {name: text, "run.sh": _START} if name == "train.yaml" else {name: text}
    )
    assert severities == {Severity.INFO}
    assert why in said
    assert "the program ends before its first step" in said


def test_beside_what_may_be_taken_after_all_it_stays() -> None:
    fork = "llamafactory @ git+https://github.com/ours/LLaMA-Factory\n"
    for more in (
        {"train.yaml": FULL_LLAMA_FACTORY, "run.sh": _START},
        {
            "train.yaml": f"{FULL_LLAMA_FACTORY}our_own_key: 1\n",
            "requirements.txt": fork,
            "run.sh": _START,
        },
        {"axolotl.yaml": _AXOLOTL},
    ):
        assert Severity.ERROR in _memory(more)[0]


_DEEPSPEED = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}, "%s": "auto"}'
_LOOP = """\
import deepspeed
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-70B")
engine, *_ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config="ds.json"
)
for batch in rows:
    loss = engine(**batch).loss
    engine.backward(loss)
    engine.step()
"""


@pytest.mark.parametrize(
    ("key", "stops"),
    [("train_micro_batch_size_per_gpu", True), ("gradient_clipping", False)],
)
def test_what_stops_as_deepspeed_takes_the_model(key: str, stops: bool) -> None:
    files = {
        "train.py": _LOOP,
        "ds.json": _DEEPSPEED % key,
        "run.sh": "deepspeed --num_gpus 8 train.py\n",
    }
    found = report_of(files, hardware="8xRTX-4090-24GB").diagnoses
    severities = {each.rule.code: each.severity for each in found}
    of_cards = {severity for code, severity in severities.items() if code[3:4] in "12"}
    assert of_cards
    assert (Severity.ERROR in of_cards) is not stops
