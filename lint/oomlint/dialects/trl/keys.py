"""Keys of TRL's configs, of its models and of the calls that make its trainers.

Read from TRL f2cd5771 (1.10.0.dev0); ``TRL`` below is ``trl``.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oomlint.dialects.key_releases import key_spans
from oomlint.dialects.kinds import (
    BOOLEAN,
    COUNT,
    DTYPE_OR_AUTO_LOAD,
    LIST,
    NUMBER,
    POSITIVE,
    TEXT,
    Kind,
    choice,
    read_number,
)
from oomlint.dialects.table import Renaming, Row, Table, known_keys
from oomlint.dialects.trainer.arguments import (
    KNOWN_PREFIXES,
    KNOWN_TRAINING_ARGUMENTS,
    RENAMED_ARGUMENTS,
    TRAINING_ARGUMENTS,
)
from oomlint.dialects.trainer.fields import hf
from oomlint.dialects.trainer.keys import ATTENTION, LENGTH, TARGETS, over
from oomlint.dialects.trainer.tables import DEVICE_MAP, DTYPE as CALL_DTYPE, POSITIONAL
from oomlint.dialects.trl.fields import trl
from oomlint.plan.fields import f

MODEL_SOURCE = "TRL f2cd5771 trainer/model_config.py"
BASE_SOURCE = "TRL f2cd5771 trainer/base_config.py"


def _read_loss(raw: Any) -> str:
    """One loss, or the first of several (DPO adds them up)."""
    if isinstance(raw, (list, tuple)):
        return str(raw[0]) if raw else ""
    return str(raw).strip("[]'\" ")


def _read_beta(raw: Any) -> float:
    """One weight of the KL term, or the first of one for each epoch, which OnlineDPOConfig and those made from it take
    (NashMDConfig, XPOConfig: TRL 0.12 trainer/online_dpo_config.py:69)."""
    return read_number(raw[0] if isinstance(raw, (list, tuple)) and raw else raw)


def _either(key: str) -> tuple[str, ...]:
    """A model keyword may also stand in ``model_init_kwargs``."""
    return (f"model_init_kwargs.{key}",)


MODEL_CONFIG_ROWS = (
    Row("model_name_or_path", f.model.id, TEXT, source=MODEL_SOURCE),
    Row("dtype", hf.load_dtype, DTYPE_OR_AUTO_LOAD, aliases=("torch_dtype", *_either("dtype"), *_either("torch_dtype")), source=MODEL_SOURCE),
    Row("attn_implementation", f.model.attn_impl, ATTENTION, aliases=_either("attn_implementation"), source=MODEL_SOURCE),
    Row("trust_remote_code", f.model.trust_remote_code, BOOLEAN),
    Row("use_peft", hf.use_peft, BOOLEAN, default=False, source=MODEL_SOURCE),
    Row("lora_r", f.trainable.r, POSITIVE, source=MODEL_SOURCE),
    Row("lora_alpha", f.trainable.alpha, NUMBER, source=MODEL_SOURCE),
    Row("lora_dropout", f.trainable.dropout, NUMBER, source=MODEL_SOURCE),
    Row("lora_target_modules", hf.lora_targets, TARGETS, source=MODEL_SOURCE),
    Row("lora_target_parameters", f.trainable.target_params, LIST, source=MODEL_SOURCE),
    Row("lora_modules_to_save", f.trainable.modules_to_save, LIST, source=MODEL_SOURCE),
    Row("use_dora", hf.use_dora, BOOLEAN, source=MODEL_SOURCE),
    Row("load_in_8bit", hf.load_8bit, BOOLEAN, default=False, source=MODEL_SOURCE),
    Row("load_in_4bit", hf.load_4bit, BOOLEAN, default=False, source=MODEL_SOURCE),
    Row("use_bnb_nested_quant", f.quant.double, BOOLEAN, source=MODEL_SOURCE),
)  # fmt: skip

CONFIG_ROWS = (
    Row("dataset_name", f.data.sets, LIST),
    Row("max_length", f.seq.max_len, LENGTH, aliases=("max_seq_length",)),
    Row("packing", trl.packing, BOOLEAN, default=False, source="TRL f2cd5771 trainer/sft_config.py:225"),
    Row("packing_strategy", trl.packing_strategy, TEXT, default="bfd", source="TRL f2cd5771 trainer/sft_config.py:232"),
    Row("padding_free", trl.padding_free, BOOLEAN, default=False, source="TRL f2cd5771 trainer/sft_config.py:241"),
    Row("loss_type", trl.loss_type, Kind(_read_loss)),
    Row("use_liger_loss", trl.liger_loss, BOOLEAN, source="TRL 0.24.0 trainer/grpo_config.py"),
    Row("activation_offloading", trl.activation_offload, BOOLEAN, default=False, source="TRL f2cd5771 trainer/sft_config.py:296"),
    Row("precompute_ref_log_probs", trl.precompute_ref, BOOLEAN, default=False, source="TRL f2cd5771 trainer/dpo_config.py"),
    Row("beta", trl.beta, Kind(_read_beta, schema=NUMBER.schema)),
    Row("max_prompt_length", f.objective.rollout.max_prompt_tokens, LENGTH),
    Row("max_completion_length", f.objective.rollout.max_completion_tokens, LENGTH, aliases=("max_new_tokens", "response_length")),
    Row("num_generations", f.objective.rollout.n, POSITIVE),
    Row("use_vllm", trl.vllm, BOOLEAN, default=False, source="TRL f2cd5771 trainer/grpo_config.py"),
    Row("vllm_mode", trl.vllm_mode, choice({"colocate": "vllm_colocate", "server": "vllm_server"})),
    Row("vllm_gpu_memory_utilization", f.objective.rollout.gpu_mem_util, NUMBER),
    Row("vllm_tensor_parallel_size", f.objective.rollout.tp, POSITIVE),
    Row("vllm_enable_sleep_mode", f.objective.rollout.sleep, BOOLEAN),
    Row("ds3_gather_for_generation", f.objective.rollout.gathers, BOOLEAN),
    Row("mini_batch_size", trl.mini_batch, POSITIVE, source="TRL 0.11.4 trainer/ppo_config.py"),
    Row("num_mini_batches", trl.mini_batches, POSITIVE, source="TRL v1.9.0 experimental/ppo/ppo_config.py"),
    Row("steps_per_generation", trl.steps_per_generation, POSITIVE),
    Row("generation_batch_size", f.objective.rollout.generation_batch, POSITIVE),
    Row("vllm_max_model_length", f.objective.rollout.max_model_len, POSITIVE, aliases=("vllm_max_model_len",)),
    Row("reward_model_path", f.objective.reward_model, TEXT, aliases=("reward_model_name_or_path",)),
    Row("teacher_model_name_or_path", f.objective.teacher, TEXT),
    Row("dataset_num_proc", f.data.preprocess_workers, COUNT),
    Row("preprocessing_num_workers", f.data.preprocess_workers, COUNT, source="alignment-handbook 925acdfe alignment/configs.py"),
    Row("streaming", f.data.streaming, BOOLEAN, aliases=("dataset_streaming",)),
    # base_config.py:61-67 changes the defaults of these two; ``trainers`` knows from which version on.
    Row("gradient_checkpointing", hf.checkpointing, BOOLEAN, aliases=("activation_checkpointing",), source=BASE_SOURCE),
    Row("bf16", hf.bf16, BOOLEAN, source=BASE_SOURCE),
    Row("logging_steps", hf.logging_steps, NUMBER, default=10, source=f"{BASE_SOURCE}:53"),
)  # fmt: skip

# What SFTConfig(...) and its like take in Python; model and adapter are calls of their own.
_CALL_ROWS = (
    Row("model_init_kwargs.dtype", hf.load_dtype, CALL_DTYPE, aliases=_either("torch_dtype")),
    Row("model_init_kwargs.attn_implementation", f.model.attn_impl, ATTENTION),
    Row("model_init_kwargs.device_map", f.load.device_map, DEVICE_MAP),
    *CONFIG_ROWS,
)

KNOWN = known_keys("trl") | KNOWN_TRAINING_ARGUMENTS

RENAMED_LENGTH = Renaming(
    "max_seq_length", "max_length", "TRL 0.20", source="TRL 0.19 and 0.20 trainer/sft_config.py"
)

SPANS = key_spans("trl", "trl", by_objective=True)

TRL = Table(
    name="TRL config",
    spans=SPANS,
    renamed=(*RENAMED_ARGUMENTS, replace(RENAMED_LENGTH, effect="ignored")),
    rows=over((*MODEL_CONFIG_ROWS, *CONFIG_ROWS), TRAINING_ARGUMENTS),
    known=KNOWN,
    known_prefixes=(*KNOWN_PREFIXES, "model_init_kwargs.", "env.", "dataset_kwargs."),
    # TRL/scripts/*.py: parse_args_and_config(fail_with_unknown_args=False).
    ignores_unknown=True,
    loader="pyyaml",
    section="training",
)


# One table a config class: the class decides what is trained.
def call_table(name: str) -> Table:
    return Table(
        name=name,
        renamed=(*RENAMED_ARGUMENTS, RENAMED_LENGTH),
        rows=over(_CALL_ROWS, TRAINING_ARGUMENTS),
        known=KNOWN | POSITIONAL | frozenset({"model_init_kwargs"}),
        known_prefixes=TRL.known_prefixes,
        # A dataclass: Python refuses a name that it does not know.
        ignores_unknown=False,
        section="training",
        spans=SPANS,
    )
