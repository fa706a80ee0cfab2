"""A way out for a run whose engine has too small a share to start: it is fed, and training makes room."""

from __future__ import annotations

import pytest
from tests.fixing import repaired
from tests.linked import report_of, run_of

from oomlint.judgement import judgement_of, starves_engine
from oomlint.judgement.planner import ways_to_fit

_RUN = (
    "NPROC_PER_NODE={ranks} swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-14B-Instruct "
    "--dataset our/tasks.jsonl --reward_funcs accuracy --tuner_type lora --torch_dtype bfloat16 "
    "--use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization {share} "
    "--max_length 1024 --max_completion_length 512 --num_generations 8 "
    "--per_device_train_batch_size {micro} --gradient_accumulation_steps 8\n"
)


def _files(micro: int = 8, share: float = 0.3, ranks: int = 1) -> dict[str, str]:
    return {"train.sh": _RUN.format(micro=micro, share=share, ranks=ranks)}


def test_feeding_it_and_making_room_are_combined() -> None:
    """Either alone leaves a run that ends: 45 % of the card for the engine leave a micro batch of 8 no room."""
    run = run_of(_files(), hardware="1xA100-80GB")
    assert starves_engine(run.plan, run.limits.gpu_bytes)
    first = ways_to_fit(run, unsafe=False)[0]
    assert first.titles[0] == "give the engine 45% of the card"
    assert len(first.titles) == 2
    assert first.verdict == "fits"
    assert not starves_engine(first.run.plan, run.limits.gpu_bytes)


def test_no_way_leaves_it_starved() -> None:
    for card in ("1xA100-40GB", "1xL40S-48GB", "1xH200-141GB"):
        run = run_of(_files(), hardware=card)
        for way in ways_to_fit(run):
            assert not starves_engine(way.run.plan, run.limits.gpu_bytes), way.titles


def test_an_engine_that_has_enough_is_not_fed() -> None:
    run = run_of(_files(share=0.5), hardware="1xA100-80GB")
    titles = [title for way in ways_to_fit(run) for title in way.titles]
    assert titles
    assert not any("give the engine" in title for title in titles)


@pytest.mark.parametrize("micro", [1, 8])
def test_the_fix_has_the_words_of_the_plan(micro: int) -> None:
    files = _files(micro)
    report = report_of(files, hardware="1xA100-80GB")
    (run,) = report.runs
    assert judgement_of(run).is_starved
    text = repaired(files, hardware="1xA100-80GB").texts["train.sh"].decode()
    assert "--vllm_gpu_memory_utilization 0.45" in text
    after = run_of({"train.sh": text}, hardware="1xA100-80GB")
    assert judgement_of(after).outcome == "fits"
