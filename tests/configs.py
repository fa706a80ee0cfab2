"""Configs that the tests of several parts begin with."""

AXOLOTL = """\
base_model: meta-llama/Llama-3.2-3B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 4096
sample_packing: true
micro_batch_size: 8
optimizer: adamw_torch_fused
bf16: true
flash_attention: true
"""
"""Its activations do not fit an H100."""

SHORT_AXOLOTL = """\
base_model: NousResearch/Meta-Llama-3-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 2048
micro_batch_size: 2
bf16: true
"""
"""The least that a run of its own is recognised by, and its size."""


FULL_LLAMA_FACTORY = """\
model_name_or_path: meta-llama/Llama-3.1-8B
stage: sft
do_train: true
finetuning_type: full
dataset: instructions
template: llama3
output_dir: out
cutoff_len: 4096
"""
"""All of a model of 8 billion parameters is trained on one card, which a 4090 has no room for."""


def llama_factory(*, length: int, output: str, micro: int, more: str = "") -> str:
    """All of a model of 7 billion parameters is trained."""
    return f"""\
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: sft
do_train: true
finetuning_type: full
dataset: alpaca_en_demo
template: qwen
cutoff_len: {length}
output_dir: {output}
per_device_train_batch_size: {micro}
{more}bf16: true
"""
