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


_TUNE = """\
model:
  _component_: torchtune.models.llama3_2.llama3_2_1b
batch_size: {value}
epochs: 1
optimizer:
  _component_: torch.optim.AdamW
loss:
  _component_: torchtune.modules.loss.CEWithChunkedOutputLoss
device: cuda
dtype: bf16
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [("batch_size=4", []), ("epochs=2", ["batch_size"]), ("batch_size=none", ["batch_size"])],
)
def test_what_a_word_of_the_command_replaces_is_never_read(words: str, expected: list[str]) -> None:
    """OmegaConf merges the file and the words before a recipe asks for anything."""
    files = {
        "tune.yaml": _TUNE.format(value="fourx"),
        "run.sh": f"tune run full_finetune_single_device --config tune.yaml {words}\n",
    }
    assert [wrong.entry.key for wrong in run_of(files, "run.sh").wrong][:1] == expected
