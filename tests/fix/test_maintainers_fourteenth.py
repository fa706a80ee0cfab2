"""What a fourteenth reading of diffs in public repositories found; the projects here are written anew."""

from __future__ import annotations

import pytest
from tests.fixing import fix_of, repaired
from tests.linked import run_of

from oomlint.dialects.common.fields import shared
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

_STRAY = """\
{{
  "bf16": {{"enabled": true}},
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {{
    "stage": 3,
    "sub_group_size": {size}
  }},
  "stage3_param_persistence_threshold": {size}
}}
"""


@pytest.mark.parametrize("size", ["1e6", "1000000"])
def test_a_number_that_moves_is_written_as_the_file_writes_numbers(size: str) -> None:
    text = repaired({"ds.json": _STRAY.format(size=size)}).texts["ds.json"].decode()
    assert f'"stage3_param_persistence_threshold": {size}\n  }}' in text


_LLAMA_FACTORY = """\
model_name_or_path: meta-llama/Llama-3.1-8B
stage: sft
finetuning_type: full
dataset: mine
template: llama3
cutoff_len: 1024
output_dir: out
per_device_train_batch_size: 8
bf16: true
{more}"""


@pytest.mark.parametrize(
    ("more", "card", "is_written"),
    [("", "A100", True), ("fp8: true\n", "H100", True), ("fp8: true\n", "A100", False)],
)
def test_nothing_is_fitted_to_cards_without_fp8_that_computes_in_it(
    more: str, card: str, is_written: bool
) -> None:
    files = {
        "a.yaml": _LLAMA_FACTORY.format(more=more),
        "run.sh": "llamafactory-cli train a.yaml\n",
        "data/dataset_info.json": '{"mine": {"file_name": "mine.json"}}',
    }
    done = repaired(files, hardware=f"1x{card}-80GB", unsafe=True)
    assert bool(done.texts) is is_written


@pytest.mark.parametrize(
    ("line", "gpus", "starts"),
    [
        ("llamafactory-cli train a.yaml", 1, False),
        ("llamafactory-cli train a.yaml", 2, True),
        ("FORCE_TORCHRUN=1 llamafactory-cli train a.yaml", 1, True),
        ("accelerate launch --use_fsdp src/train.py a.yaml", 1, True),
    ],
)
def test_fsdp_of_llama_factory_wants_a_process_with_a_rank(
    line: str, gpus: int, starts: bool
) -> None:
    config = _LLAMA_FACTORY.format(more="fsdp: full_shard auto_wrap\n")
    run = run_of({"a.yaml": config, "run.sh": f"{line}\n"}, hardware=f"{gpus}xA100-80GB")
    assert (shared.refused in run.settings) is not starts


_TORCHTUNE = """\
model:
  _component_: torchtune.models.qwen2_5.qwen2_5_7b_instruct
tokenizer:
  _component_: torchtune.models.qwen2_5.qwen2_5_tokenizer
  max_seq_len: 4096
dataset:
  _component_: torchtune.datasets.alpaca_dataset
  packed: True
batch_size: 32
optimizer:
  _component_: torch.optim.AdamW
  lr: 5e-6
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
enable_activation_checkpointing: False
enable_fp8_training: {fp8}
dtype: bf16
"""


@pytest.mark.parametrize(("fp8", "is_written"), [("False", True), ("True", False)])
def test_a_key_for_fp8_that_is_off_changes_nothing(fp8: str, is_written: bool) -> None:
    files = {"a.yaml": _TORCHTUNE.format(fp8=fp8)}
    line = "tune run --nproc_per_node 8 full_finetune_distributed --config a.yaml\n"
    done = repaired({**files, "run.sh": line}, hardware="8xA100-80GB")
    assert bool(done.texts) is is_written


_AXOLOTL = """\
base_model: {model}
plugins:
  - axolotl.integrations.liger.LigerPlugin
liger_fused_linear_cross_entropy: {fused}
datasets:
  - path: a/b
    type: chat_template
sequence_len: 4096
"""


@pytest.mark.parametrize(
    ("model", "is_fused"), [("Qwen/Qwen3.5-9B", False), ("Qwen/Qwen3-8B", True)]
)
def test_liger_fuses_no_loss_of_a_model_that_axolotl_does_not_patch(
    model: str, is_fused: bool
) -> None:
    run = run_of({"a.yaml": _AXOLOTL.format(model=model, fused="true")})
    assert run.plan.loss.logits_materialised == ("fused" if is_fused else "full")
    run = run_of({"a.yaml": _AXOLOTL.format(model=model, fused="false")})
    if is_fused:
        assert fix_of(run, {f.loss.logits_materialised: "fused"}).edits
        return
    with pytest.raises(CannotEdit, match="vision"):
        run.what_if({f.loss.logits_materialised: "fused"})


_SONIC = """\
base_model: Qwen/Qwen3-30B-A3B
plugins:
  - axolotl.integrations.{plugin}
use_sonicmoe: true
adapter: lora
datasets:
  - path: a/b
    type: chat_template
sequence_len: 2048
"""


@pytest.mark.parametrize(
    ("card", "plugin", "starts"),
    [
        ("A100", "kernels.KernelsPlugin", False),
        ("H100", "kernels.KernelsPlugin", True),
        ("A100", "liger.LigerPlugin", True),  # the key is not read then
    ],
)
def test_sonic_kernels_want_hopper(card: str, plugin: str, starts: bool) -> None:
    run = run_of({"a.yaml": _SONIC.format(plugin=plugin)}, hardware=f"2x{card}-80GB")
    assert (shared.refused in run.settings) is not starts
