"""Values that a run has no use for."""

import pytest
from tests.linked import run_of

_SFT = """\
model_name_or_path: Qwen/Qwen2.5-7B
dataset_name: trl-lib/Capybara
per_device_train_batch_size: 1
max_length: 1024
output_dir: out
"""


@pytest.mark.parametrize(
    ("adapter", "expected"),
    [
        ("use_peft: false\nlora_r: 0\n", []),
        ("lora_r: 0\n", []),
        ("use_peft: true\nlora_r: 0\n", ["lora_r"]),
        ("use_peft: false\nlora_r: many\n", ["lora_r"]),
        ("use_peft: false\nper_device_eval_batch_size: 0\n", ["per_device_eval_batch_size"]),
    ],
    ids=["no adapter", "none by default", "an adapter", "another type", "used all the same"],
)
def test_a_rank_is_refused_where_an_adapter_is_made(adapter: str, expected: list[str]) -> None:
    """The parser takes any whole number, and only peft asks for a positive one."""
    run = run_of({"sft.yaml": _SFT + adapter})
    assert [wrong.entry.key for wrong in run.wrong] == expected
