"""What a program of the project's own makes of its batches is read from code, of which some is misread: a need that one
sample with recomputed activations would not have is a remark, whatever is read of them."""

from __future__ import annotations

import pytest
from tests.linked import report_of, run_of

from oomlint.judgement import judgement_of
from oomlint.linting.rule import Severity

_CARD = "1xA100-80GB"
_OWN = """\
from datasets import load_dataset
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained("{model}", dtype="bfloat16")
args = SFTConfig(
    "out", per_device_train_batch_size=64, max_length=1024, gradient_checkpointing=False, packing={packing}
)
data = load_dataset("openai/gsm8k", "main", split="train")
SFTTrainer(model=model, args=args, train_dataset=data).train()
"""
_FACTORY = """\
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: sft
do_train: true
finetuning_type: full
dataset: mine
template: qwen
cutoff_len: 2048
per_device_train_batch_size: 16
output_dir: out
bf16: true
"""
_SMALL, _LARGE = "Qwen/Qwen2.5-1.5B", "Qwen/Qwen2.5-14B"


@pytest.mark.parametrize(
    ("files", "is_error"),
    [
        ({"train.py": _OWN.format(model=_SMALL, packing=False)}, False),
        ({"train.py": _OWN.format(model=_SMALL, packing=True)}, True),  # every batch is full
        ({"train.py": _OWN.format(model=_LARGE, packing=False)}, True),  # whatever the batches are
        ({"a.yaml": _FACTORY}, True),  # the framework's own program
    ],
)
def test_what_hangs_on_batches_of_own_code_is_a_remark(
    files: dict[str, str], is_error: bool
) -> None:
    judgement = judgement_of(run_of(files, hardware=_CARD))
    assert judgement.risk is not None
    assert (judgement.risk.gpu or 0) > 0.9
    assert judgement.verdict == ("does_not_fit" if is_error else "tight")
    of_memory = [
        each for each in report_of(files, hardware=_CARD).diagnoses
        if each.finding.resource == "gpu"
    ]  # fmt: skip
    assert of_memory
    assert any(each.severity is Severity.ERROR for each in of_memory) is is_error
    if not is_error:
        assert {each.severity for each in of_memory} == {Severity.INFO}
        assert any("own code" in line for each in of_memory for line in each.finding.details)


_ANSWERS = """\
from datasets import load_dataset
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser

model_args, args = TrlParser((ModelConfig, GRPOConfig)).parse_args_and_config()
model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path, dtype="bfloat16")
data = load_dataset("openai/gsm8k", "main", split="train")
GRPOTrainer(model=model, args=args, reward_funcs=[len], train_dataset=data).train()
"""
_CONFIGURED = """\
model_name_or_path: Qwen/Qwen2.5-1.5B
per_device_train_batch_size: 512
num_generations: 8
beta: 0.0
max_completion_length: 16
gradient_checkpointing: false
bf16: true
output_dir: out
"""


@pytest.mark.parametrize(("limit", "is_error"), [("max_prompt_length: 512\n", True), ("", False)])
def test_batches_of_answers_are_as_long_as_a_config_has_its_trainer_cut_them(
    limit: str, is_error: bool
) -> None:
    files = {"grpo.py": _ANSWERS, "grpo.yaml": _CONFIGURED + limit}
    files["run.sh"] = "python grpo.py --config grpo.yaml\n"
    judgement = judgement_of(run_of(files, "run.sh", hardware=_CARD))
    assert judgement.risk is not None
    assert (judgement.risk.gpu or 0) > 0.9
    assert (judgement.verdict == "does_not_fit") is is_error
