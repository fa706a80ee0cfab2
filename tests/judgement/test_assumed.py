"""What else a run may be where nobody says how it is started."""

from __future__ import annotations

import pytest
from tests.linked import link, run_of

from oomlint.judgement import TIGHT, judge_gpu
from oomlint.judgement.doubts import doubts
from oomlint.judgement.evidence import assumed_otherwise
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_RECIPE = (
    "model_name_or_path: alignment-handbook/zephyr-7b-sft-full\nbf16: true\nbeta: 0.1\n"
    "gradient_checkpointing: true\nmax_length: 1024\noutput_dir: out\n"
    "per_device_train_batch_size: 1\n"
)
_ZERO3 = (
    "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\nmixed_precision: bf16\n"
    "num_machines: 1\nnum_processes: 8\n"
)
_LINE = "accelerate launch --config_file zero3.yaml spin/run_spin.py recipes/one.yaml\n"


def _sft() -> Run:
    script = (
        "torchrun --nproc_per_node=$1 -m verl.trainer.fsdp_sft_trainer data.train_files=a "
        "data.max_length=1024 data.micro_batch_size_per_gpu=4 "
        "model.partial_pretrain=Qwen/Qwen2.5-7B-Instruct model.strategy=fsdp\n"
    )
    return run_of({"run.sh": script}, hardware="8xA100-80GB")


def test_fewer_ranks_than_the_machine_has_are_no_risk_of_the_files() -> None:
    run = _sft()
    assert run.level(f.parallel.world) is Level.ASSUMED
    peak = run.estimate.gpu.peak_bytes
    assert peak is not None
    (others,) = assumed_otherwise(run)
    assert all((each.gpu.peak_bytes or 0) <= peak for _, each in others)
    judged = judge_gpu(run)
    assert judged is not None
    assert judged.risk == pytest.approx(0.1, abs=0.02)
    assert judged.severity is None


def test_what_follows_from_a_sibling_s_launch_line_is_one_doubt() -> None:
    files = {
        "zero3.yaml": _ZERO3,
        "scripts/train.sh": _LINE,
        "recipes/one.yaml": _RECIPE,
        "recipes/two.yaml": _RECIPE,
    }
    runs = link(files, hardware="8xA100-80GB").runs
    (run,) = [run for run in runs if run.claims[0].path == "recipes/two.yaml"]
    assert run.level(f.parallel.backend) is Level.ASSUMED
    assert run.level(f.parallel.zero.stage) is Level.ASSUMED
    assert len(list(assumed_otherwise(run))) == 1
    judged = judge_gpu(run)
    assert judged is not None
    assert judged.risk is not None
    assert judged.risk < TIGHT


_METRICS = """
from transformers import AutoModelForSeq2SeqLM, Trainer, TrainingArguments

model = AutoModelForSeq2SeqLM.from_pretrained("t5-base")
arguments = TrainingArguments("out", per_device_eval_batch_size=4, eval_strategy="epoch"{more})
Trainer(model=model, args=arguments, train_dataset=a, eval_dataset=b, compute_metrics=score).train()
"""


def _evaluated(more: str = "") -> dict[str, int]:
    text = _METRICS.replace("{more}", more)
    run = run_of({"train.py": text}, hardware="1xA100-40GB")
    found = {each.words: each.estimate.gpu.phases["evaluation"] or 0 for each in doubts(run.placed)}
    return {words: need for words, need in found.items() if "samples" in words}


def test_an_evaluation_set_of_unknown_size_may_be_large() -> None:
    found = _evaluated()
    assert [words for words in found if words.startswith("it evaluates")] == [
        "it evaluates 690 samples",
        "it evaluates 2,900 samples",
        "it evaluates 16,600 samples",
    ]
    assert found["it evaluates 16,600 samples"] > 16_600 * 512 * 32_128 * 4


def test_logits_that_are_moved_away_fill_the_ram() -> None:
    found = _evaluated(", eval_accumulation_steps=1")
    assert len(set(found.values())) == 1
