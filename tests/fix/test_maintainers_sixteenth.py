"""What a sixteenth reading of diffs in public repositories found; the projects here are written anew."""

from __future__ import annotations

import pytest
from tests.fixing import repaired

from oomlint.fix.story import made_for_others
from oomlint.hardware import find_gpu

_AXOLOTL = """\
base_model: Qwen/Qwen2.5-0.5B
datasets:
  - path: data/train.json
    type: alpaca
sequence_len: 1024
micro_batch_size: 1
gradient_accumulation_steps: 4
bf16: true
output_dir: out
val_set_size: 0.0
eval_steps: 100
"""


@pytest.mark.parametrize(
    ("more", "becomes"),
    [
        # What is evaluated on has the wrong name: the evaluation stays.
        (
            "datasets_test:\n  - path: data/test.json\n    type: alpaca\n",
            "test_datasets:\n  - path: data/test.json\n    type: alpaca\n",
        ),
        ("eval_strategy: steps\n", None),
        ("evals_per_epoch: 2\n", None),
        ("save_strategy: epoch\nsave_steps: 100\n", None),
    ],
)
def test_what_an_author_has_evaluated_and_saved_is_not_taken_away(
    more: str, becomes: str | None
) -> None:
    text = _AXOLOTL + more
    result = repaired({"train.yaml": text}, unsafe=True)
    expected = {} if becomes is None else {"train.yaml": (_AXOLOTL + becomes).encode()}
    assert dict(result.texts) == expected


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("# HW: Dell GB10 (128 GB)", "GB10"),
        ("# 128 GB of unified memory, no offloading", "a machine with unified memory"),
        ("# DGX Spark", "a machine with unified memory"),
        ("# unified memory of a DGX Spark, or an H100", None),
    ],
)
def test_what_is_written_for_unified_memory_is_not_fitted_to_a_card(
    text: str, other: str | None
) -> None:
    assert made_for_others(text, find_gpu("RTX-4090")) == other
    assert made_for_others(text, find_gpu("GB10")) in (None, "H100")
