"""How long samples are, by how they come together."""

from __future__ import annotations

import pytest
from tests import linked
from tests.linked import report_of

from oomlint.judgement import EVEN, TIGHT, judge_gpu, judgement_of
from oomlint.judgement.doubts import doubts
from oomlint.judgement.lengths import coming_together, fullest, short_samples
from oomlint.linting.rule import Severity
from oomlint.runs.run import Run

VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=a "
    "data.max_prompt_length=512 data.max_response_length={response} "
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct "
    "actor_rollout_ref.actor.ppo_mini_batch_size=64 "
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={micro} trainer.nnodes=1 "
    "trainer.n_gpus_per_node=1 actor_rollout_ref.model.use_remove_padding={joined}{more}\n"
)
H100 = "1xH100-80GB"
EIGHT = "8xA100-80GB"


def verl(micro: int, *, joined: bool = True, response: int = 1024, more: str = "") -> str:
    return VERL.format(micro=micro, joined=joined, response=response, more=more)


def run_of(text: str) -> Run:
    return linked.run_of({"run.sh": text}, hardware=H100)


BUDGET = (
    " actor_rollout_ref.actor.use_dynamic_bsz=True"
    " actor_rollout_ref.actor.ppo_max_token_len_per_gpu={tokens}"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (verl(8, joined=False), "filled"),
        (verl(8), "joined"),
        (verl(1), "padded"),
        (verl(8, more=BUDGET.format(tokens=8192)), "budgeted"),
    ],
)
def test_how_samples_come_together(text: str, expected: str) -> None:
    assert coming_together(run_of(text)) == expected


def test_more_samples_fill_a_batch_less() -> None:
    few, many = fullest(2), fullest(64)
    assert all(0 < more < less < 1 for less, more in zip(few, many, strict=True))
    assert list(few) == sorted(few)
    # By the longest sample alone two are filled to one half at least.
    assert min(few) > 0.5


def test_joined_samples_are_seldom_all_long_be_they_few() -> None:
    """Eight that fit unless most of them are as long as they may be."""
    run = run_of(verl(8, response=16_000))
    limit = run.limits.gpu_bytes
    assert limit is not None
    assert (run.estimate.gpu.peak_bytes or 0) > limit
    risk = judgement_of(run).risk
    assert risk is not None
    assert risk.gpu is not None
    assert risk.gpu < TIGHT + 0.1
    padded = judgement_of(run_of(verl(8, response=16_000, joined=False))).risk
    assert padded is not None
    assert (padded.gpu or 0) > 0.9


def test_budget_is_filled_as_long_as_there_are_samples_for_it() -> None:
    filled = run_of(verl(8, more=BUDGET.format(tokens=4096)))
    assert not [each for each in doubts(filled) if each.is_of_lengths]
    # All 64 samples of a step would have 98,304 tokens at most.
    half_empty = run_of(verl(8, more=BUDGET.format(tokens=98_304)))
    assert [each for each in doubts(half_empty) if each.is_of_lengths]


def test_what_takes_several_long_samples_is_a_note() -> None:
    text = verl(8, response=20_000)
    report = report_of({"run.sh": text}, hardware=H100)
    (run,) = report.runs
    risk = judgement_of(run).risk
    assert risk is not None
    assert TIGHT <= (risk.gpu or 0) < 0.5
    found = [d for d in report.diagnoses if d.finding.resource == "gpu"]
    assert found
    assert max(d.severity for d in found) is Severity.INFO


GRPO = (
    "from datasets import load_dataset\n"
    "from trl import GRPOConfig, GRPOTrainer\n"
    "args = GRPOConfig(output_dir='o', per_device_train_batch_size=4, num_generations=4, "
    "max_prompt_length=2048, max_completion_length=1024)\n"
    "GRPOTrainer(model='Qwen/Qwen3-0.6B', args=args, reward_funcs=f, train_dataset=d).train()\n"
)


def test_of_a_rollout_only_the_prompts_may_all_be_short() -> None:
    """TRL issue 3456: 48.1 GiB by nvidia-smi where the limits allow 83; some answer is never ended."""
    run = linked.run_of({"train.py": GRPO}, hardware=H100)
    short = short_samples(run)
    assert short is not None
    assert short.plan.seq.max_len == 512 + 1024
    # Of prompts no logits are made.
    assert (short.estimate.gpu.peak_bytes or 0) < (run.estimate.gpu.peak_bytes or 0)
    assert [each.words for each in doubts(run) if each.is_of_lengths] == [
        "no sample has more than 1,536 tokens"
    ]


def test_run_that_dies_only_if_all_of_a_batch_are_long_is_a_note() -> None:
    """As read it dies, and by most of what data sets are like it lives."""
    text = verl(80, response=3000)
    report = report_of({"run.sh": text}, hardware=H100)
    (run,) = report.runs
    risk = judgement_of(run).risk
    assert risk is not None
    assert TIGHT <= (risk.gpu or 0) < 0.5
    limit = run.limits.gpu_bytes or 0
    assert (run.estimate.gpu.peak_bytes or 0) > 1.2 * limit
    found = [d for d in report.diagnoses if d.finding.resource == "gpu"]
    assert found
    assert max(d.severity for d in found) is Severity.INFO


OWN_SCRIPT = """
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
from data import make_data
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
Trainer(model=model, args=args, **make_data()).train()
"""
OWN_LINE = (
    "torchrun --nproc_per_node 1 train.py --model_max_length 2048 --output_dir out --bf16 True "
    "--per_device_train_batch_size 24 --gradient_checkpointing True --num_train_epochs 1\n"
)
LLAMAFACTORY = """\
llamafactory-cli train --stage sft --do_train True --finetuning_type full --dataset a --template qwen \
--model_name_or_path Qwen/Qwen2.5-1.5B --cutoff_len 2048 --output_dir out --bf16 True \
--per_device_train_batch_size 24 --num_train_epochs 1
"""


@pytest.mark.parametrize(
    ("more", "expected"),
    [("", Severity.INFO), (" --packing True", Severity.ERROR)],
)
def test_limit_that_data_may_never_meet_is_worth_a_note(more: str, expected: Severity) -> None:
    text = LLAMAFACTORY.replace("\n", f"{more}\n") if more else LLAMAFACTORY
    report = report_of({"run.sh": text}, hardware=H100)
    risks = [judgement_of(run).risk for run in report.runs]
    assert any(risk is not None and (risk.gpu or 0) > EVEN for risk in risks)
    headlines = [d for d in report.diagnoses if d.rule.code == "OOM100"]
    assert max(d.severity for d in headlines) is expected
    says = "no file says how long its samples are; with short ones it fits"
    assert (says in headlines[0].finding.details) is (expected is Severity.INFO)


def test_length_that_no_file_limits_is_worth_a_note() -> None:
    line = OWN_LINE.replace(" --model_max_length 2048", "").replace(
        "batch_size 24", "batch_size 32"
    )
    (run,) = report_of({"run.sh": line, "train.py": OWN_SCRIPT}, hardware=H100).runs
    assert run.plan.seq.max_len is None
    peak = judge_gpu(run)
    assert peak is not None
    assert peak.risk is not None
    assert peak.risk > EVEN
    assert peak.is_up_to_data
    assert peak.severity is Severity.INFO


def test_holes_are_no_firmer_than_the_need_beside_them() -> None:
    line = OWN_LINE.replace("batch_size 24", "batch_size 16").replace("node 1", "node 8")
    report = report_of({"run.sh": line, "train.py": OWN_SCRIPT}, hardware=EIGHT)
    holes = [d for d in report.diagnoses if d.rule.code == "OOM710"]
    assert holes
    assert all(d.severity is Severity.INFO for d in holes)


@pytest.mark.parametrize(
    ("prompts", "dies"),
    [
        ("a", True),
        ("$gsm8k_train_path", False),
        ("$HOME/data/gsm8k/train.parquet", False),
        ("'[$gsm8k_train_path,$other_train_path]'", True),
    ],
)
def test_answers_are_mostly_as_long_as_those_of_their_data(prompts: str, dies: bool) -> None:
    text = verl(64, response=8192).replace("train_files=a", f"train_files={prompts}")
    peak = judge_gpu(run_of(text))
    assert peak is not None
    assert peak.risk is not None
    assert (peak.risk >= EVEN) is dies
    # How long they are no file says all the same.
    assert peak.severity is Severity.INFO
    assert peak.is_up_to_data
    assert any("64 samples of 8,704 tokens at once, where some" in each for each in peak.conditions)
