"""The keys of ms-swift, each with its meaning: one table for its YAML and for its options.

``SW`` below is ``swift/`` of ms-swift 3602360a; :mod:`oomlint.dialects.ms_swift.dialect` says what the
keys mean together.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import ref
from oomlint.dialects.key_releases import key_spans, past_keys
from oomlint.dialects.kinds import (
    BOOLEAN,
    COUNT,
    FILE,
    LIST,
    NUMBER,
    POSITIVE,
    TEXT,
    TRAINER_OPTIMIZER,
    BadValue,
    Kind,
    choice,
    read_integer,
)
from oomlint.dialects.machine.launcher_keys import ENVIRONMENT
from oomlint.dialects.ms_swift.ray_groups import TrainingGroup, read_groups
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.dialects.trainer.arguments import (
    KNOWN_PREFIXES,
    KNOWN_TRAINING_ARGUMENTS,
    SEQ2SEQ_ARGUMENTS,
    TRAINING_ARGUMENTS,
)
from oomlint.dialects.trainer.fields import hf
from oomlint.dialects.trainer.keys import LENGTH, over
from oomlint.dialects.trainer.tables import read_device_map
from oomlint.plan.fields import Private, f

BASE = "ms-swift 3602360a arguments/base_args/base_args.py"
TRAIN = "ms-swift 3602360a trainers/arguments.py"
TUNER = "ms-swift 3602360a arguments/tuner_args.py"
QUANT = "ms-swift 3602360a arguments/base_args/quant_args.py"
MODEL = "ms-swift 3602360a arguments/base_args/model_args.py"
RLHF = "ms-swift 3602360a arguments/rlhf_args.py"
OLD = "ms-swift release/2.6 llm/utils/argument.py"


# -- values -----------------------------------------------------------------------------------


# SW/model/utils.py AttnImpl: what transformers knows, plus a name that suits every model.
ATTENTION = choice(
    {
        "flash_attn": "flash2",
        "flash_attention_2": "flash2",
        "flash_attention_3": "flash3",
        "flash_attention_4": "flash3",
        "flex_attention": "flex",
        "sdpa": "sdpa",
        "eager": "eager",
    },
    otherwise=None,
)

DTYPE = choice(
    {
        "bfloat16": "bf16",
        "float16": "fp16",
        "float32": "fp32",
        "bf16": "bf16",
        "fp16": "fp16",
        "fp32": "fp32",
        "auto": None,
    }
)


def _read_bits(raw: Any) -> int | None:
    """``4``; ``0`` meant none up to 2.6, and quanto's ``float8`` counts as 8."""
    if str(raw).strip() == "float8":
        return 8
    return read_integer(raw) or None


def _read_targets(raw: Any) -> tuple[str, ...]:
    """Module names, apart by blanks or, up to 2.6, by commas."""
    items = raw if isinstance(raw, (list, tuple)) else [raw]
    return tuple(part for item in items for part in str(item).replace(",", " ").split())


TARGETS = Kind(_read_targets, list)


def _read_placement(raw: Any) -> str:
    """A word or a device, or a dictionary as JSON or in a file of it (arguments/base_args/model_args.py:95)."""
    text = str(raw).strip()
    if isinstance(raw, dict):
        return read_device_map(raw)
    if not text.startswith("{"):
        return "explicit" if text.endswith(".json") else read_device_map(raw)
    try:
        return read_device_map(json.loads(text))
    except ValueError:
        raise BadValue("expected a device map: a word, or a dictionary as JSON") from None


_PLACEMENT = Kind(_read_placement)

# Tuners that add adapters beside the linear layers, by what they cost. ``qalora`` is of 1.x and puts LoRA on what GPTQ
# has packed (ms-swift 1.3.0 swift/llm/sft.py:57). ``lora_llm`` trains
# the vision tower whole beside LoRA on the language model (SW/tuner_plugin/lora_llm.py).
_TUNERS = choice(
    {
        "lora": "lora",
        "full": "full",
        "longlora": "lora",
        "qalora": "lora",
        "adalora": "adalora",
        "lora_llm": "lora_llm",
        "adapter": "adapter",
        "boft": "oft",
        "bone": "lora",
        "llamapro": "llamapro",
        "dummy": "other",
        "ia3": "other",
        "vera": "other",
        "fourierft": "other",
        "reft": "other",
    },
    write={"qlora": "lora", "dora": "lora", "adapter": "adapter"},
    otherwise="other",
)

_RLHF_TYPES = choice(
    {name: name for name in ("dpo", "orpo", "simpo", "kto", "cpo", "rm", "ppo", "grpo", "gkd")}
)

_STRATEGY_WORDS = frozenset(
    {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2", "auto_wrap", "offload"}
)  # fmt: skip


def _read_fsdp_words(raw: Any) -> tuple[str, ...] | None:
    """The Trainer's own words, which 2.x passed on; ``None`` for a preset or a file."""
    words = tuple(str(raw).lower().split())
    return words if words and set(words) <= _STRATEGY_WORDS else None


def _read_fsdp_file(raw: Any) -> str | None:
    return None if not str(raw) or _read_fsdp_words(raw) else str(raw)


# -- fields -----------------------------------------------------------------------------------


class own(Private, prefix="swift"):  # noqa: N801  a namespace of fields, read like ``f``
    """Keys whose meaning takes more than one of them, and what follows from several.

    ``is_old``: the version or the keys are those of 1.x or 2.x, whose defaults differ.
    ``gpus_per_rank``: GPUs over which each process spreads its model, where these are several.
    """

    is_old: bool
    gpus_per_rank: int
    uses_ray: bool
    training_group: TrainingGroup
    tuner: str
    tuner_backend: str
    lora_rank: int
    lora_alpha: float
    lora_dropout: float
    lora_dtype: str
    adalora_rank: int
    reft_rank: int
    new_blocks: int
    dora: bool
    targets: tuple[str, ...]
    target_regex: str
    modules_to_save: tuple[str, ...]
    freeze_llm: bool
    freeze_aligner: bool
    freeze_ratio: float
    trainable: tuple[str, ...]
    lisa_layers: int
    task: str
    rlhf: str
    ref_model: str
    reward_model: tuple[str, ...]
    teacher: str
    beta: float
    loss_type: tuple[str, ...]
    steps_per_generation: int
    mini_batches: int
    vllm: bool
    vllm_mode: str
    vllm_server: tuple[str, ...]
    vllm_device: tuple[str, ...]
    infer_workers: int
    sleep_level: int
    move_batches: int
    offload_optimizer: bool
    offload_model: bool
    offload_teacher: bool
    dtype: str
    quant_method: str
    quant_bits: int
    use_flash: bool
    packing: bool
    packing_length: int
    padding_free: bool
    val_ratio: float
    val_dataset: tuple[str, ...]
    eval_strategy: str
    loss_scale: str
    vit_checkpointing: bool
    optimizer: str
    galore: bool
    galore_rank: int
    hpz: int
    autotp: int
    fsdp: str
    env: Any


class env(Private, prefix="swift.env"):  # noqa: N801
    """Variables that only ms-swift reads."""

    single_device: bool
    loss_tokens: int
    positives: int
    negatives: int
    max_pixels: int
    max_tokens: int
    max_tiles: int
    max_slices: int
    max_frames: int


# -- tables -----------------------------------------------------------------------------------


TUNER_ROWS = (
    Row("lora_rank", own.lora_rank, POSITIVE, default=8, source=TUNER),
    Row("lora_alpha", own.lora_alpha, NUMBER, default=32, source=TUNER),
    Row("lora_dropout", own.lora_dropout, NUMBER, default=0.05, aliases=("lora_dropout_p",), source=TUNER),
    Row("lora_dtype", own.lora_dtype, DTYPE),
    Row("target_modules", own.targets, TARGETS, aliases=("lora_target_modules", "boft_target_modules"), source=TUNER),
    Row("target_regex", own.target_regex, TEXT, aliases=("lora_target_regex",)),
    Row("target_parameters", f.trainable.target_params, LIST),
    Row("modules_to_save", own.modules_to_save, LIST, aliases=("lora_modules_to_save",)),
    Row("use_dora", own.dora, BOOLEAN, default=False, source=TUNER),
    Row("freeze_llm", own.freeze_llm, BOOLEAN, default=False, source=TUNER),
    Row("freeze_vit", f.model.vision.freeze_tower, BOOLEAN, source=TUNER),
    Row("freeze_aligner", own.freeze_aligner, BOOLEAN, default=True, source=TUNER),
    Row("freeze_parameters_ratio", own.freeze_ratio, NUMBER, default=0.0, source=TUNER),
    Row("trainable_parameters", own.trainable, LIST, aliases=("additional_trainable_parameters",)),
)  # fmt: skip

MODEL_ROWS = (
    Row("model", f.model.id, TEXT, aliases=("model_id_or_path",)),
    Row("model_revision", f.model.revision, TEXT),
    Row("torch_dtype", own.dtype, DTYPE, aliases=("dtype",), source=MODEL),
    Row("max_length", f.seq.max_len, LENGTH, source=BASE),
    Row("truncation_strategy", f.seq.truncation, choice({"delete": "drop", "left": "cut", "right": "cut", "split": "split", "truncation_left": "cut"})),
    Row("packing", own.packing, BOOLEAN, default=False, source=BASE),
    Row("packing_length", own.packing_length, POSITIVE, source=BASE),
    Row("max_pixels", f.model.vision.max_pixels, POSITIVE),
    Row("dataset_num_proc", f.data.preprocess_workers, COUNT, aliases=("preprocess_num_proc",)),
    Row("dataset", f.data.sets, LIST),
    Row("streaming", f.data.streaming, BOOLEAN, default=False, source="ms-swift 3602360a arguments/base_args/data_args.py"),
    Row("shuffle_buffer_size", f.data.shuffle_buffer, POSITIVE, default=1000, source="ms-swift 3602360a arguments/base_args/data_args.py:89"),
    Row("split_dataset_ratio", own.val_ratio, NUMBER, aliases=("dataset_test_ratio",)),
    Row("val_dataset", own.val_dataset, LIST, aliases=("cached_val_dataset", "custom_val_dataset_path")),
)  # fmt: skip

RLHF_ROWS = (
    Row("rlhf_type", own.rlhf, _RLHF_TYPES),
    Row("ref_model", own.ref_model, TEXT, aliases=("ref_model_id_or_path",)),
    Row("reward_model", own.reward_model, LIST, aliases=("reward_model_id_or_path",)),
    Row("teacher_model", own.teacher, TEXT),
    Row("beta", own.beta, NUMBER),
    Row("loss_type", own.loss_type, LIST),
    Row("num_generations", f.objective.rollout.n, POSITIVE),
    Row("ds3_gather_for_generation", f.objective.rollout.gathers, BOOLEAN),
    Row("num_mini_batches", own.mini_batches, POSITIVE),
    Row("steps_per_generation", own.steps_per_generation, POSITIVE),
    Row("generation_batch_size", f.objective.rollout.generation_batch, POSITIVE),
    Row("vllm_max_model_len", f.objective.rollout.max_model_len, POSITIVE),
    Row("max_completion_length", f.objective.rollout.max_completion_tokens, POSITIVE, aliases=("response_length",)),
    Row("use_vllm", own.vllm, BOOLEAN),
    Row("vllm_server_host", own.vllm_server, LIST, aliases=("vllm_server_base_url",)),
    Row("vllm_mode", own.vllm_mode, choice({"colocate": "vllm_colocate", "server": "vllm_server"})),
    Row("vllm_device", own.vllm_device, LIST),
    Row("num_infer_workers", own.infer_workers, POSITIVE),
    Row("vllm_gpu_memory_utilization", f.objective.rollout.gpu_mem_util, NUMBER, aliases=("gpu_memory_utilization",)),
    Row("vllm_tensor_parallel_size", f.objective.rollout.tp, POSITIVE, aliases=("tensor_parallel_size",)),
    Row("sleep_level", own.sleep_level, COUNT),
    Row("move_model_batches", own.move_batches, POSITIVE),
    Row("offload_optimizer", own.offload_optimizer, BOOLEAN),
    Row("offload_model", own.offload_model, BOOLEAN),
    Row("offload_teacher_model", own.offload_teacher, BOOLEAN),
)  # fmt: skip

_ROWS = (
    *MODEL_ROWS,
    # Up to 2.6 a name of its own list stood for the model.
    Row("model_type", f.model.id, TEXT),
    Row("tuner_type", own.tuner, _TUNERS, aliases=("train_type", "sft_type"), source=BASE),
    *TUNER_ROWS,
    Row("task_type", own.task, TEXT),
    Row("tuner_backend", own.tuner_backend, TEXT, default="peft", source=BASE),
    Row("adalora_init_r", own.adalora_rank, POSITIVE, default=12, source=TUNER),
    Row("reft_rank", own.reft_rank, POSITIVE, default=4, source=TUNER),
    Row("llamapro_num_new_blocks", own.new_blocks, POSITIVE, default=4, source=TUNER),
    Row("attn_impl", f.model.attn_impl, ATTENTION, source=MODEL),
    Row("use_flash_attn", own.use_flash, BOOLEAN),
    Row("experts_impl", f.model.experts_impl, choice({"grouped_mm": "grouped", "eager": "loop"}, otherwise=None)),
    Row("device_map", f.load.device_map, _PLACEMENT, aliases=("device_map_config", "device_map_config_path")),
    Row("quant_method", own.quant_method, choice({"bnb": "bnb", "hqq": "hqq", "eetq": "eetq", "fp8": "fp8_weight", "awq": "awq", "gptq": "gptq", "aqlm": "aqlm"}, otherwise="other"), source=QUANT),
    Row("quant_bits", own.quant_bits, Kind(_read_bits), aliases=("quantization_bit",), source=QUANT),
    Row("bnb_4bit_use_double_quant", f.quant.double, BOOLEAN, source=QUANT),
    Row("bnb_4bit_quant_storage", f.quant.storage_dtype, DTYPE),
    Row("padding_free", own.padding_free, BOOLEAN, default=False, source="ms-swift 3602360a arguments/base_args/template_args.py"),
    Row("sequence_parallel_size", f.parallel.ulysses, POSITIVE, default=1, source="ms-swift 3602360a arguments/base_args/template_args.py"),
    *RLHF_ROWS,
    # Trainer arguments with other defaults.
    Row("per_device_train_batch_size", f.batch.micro, POSITIVE, default=1, aliases=("batch_size",), source=f"{TRAIN}:129"),
    Row("per_device_eval_batch_size", f.batch.eval_micro, POSITIVE, aliases=("eval_batch_size",), source=f"{TRAIN}:130"),
    Row("gradient_accumulation_steps", f.batch.grad_accum, POSITIVE, source=f"{TRAIN}:131"),
    Row("gradient_checkpointing", hf.checkpointing, BOOLEAN, default=True, source=f"{TRAIN}:134"),
    Row("vit_gradient_checkpointing", own.vit_checkpointing, BOOLEAN, aliases=("vit_use_gc",)),
    Row("use_liger_kernel", hf.liger, BOOLEAN, default=False, aliases=("use_liger",), source=f"{TRAIN}:153"),
    Row("use_logits_to_keep", f.loss.logits_to_keep, BOOLEAN, source=f"{TRAIN}:163"),
    Row("loss_scale", own.loss_scale, TEXT),
    Row("optim", f.optimizer.name, TRAINER_OPTIMIZER, source="transformers 5.23 training_args.py:806"),
    Row("optimizer", own.optimizer, TEXT, source=f"{TRAIN}:168"),
    Row("use_galore", own.galore, BOOLEAN, default=False, source=f"{TRAIN}:191"),
    Row("galore_rank", own.galore_rank, POSITIVE, default=128, source=f"{TRAIN}:193"),
    Row("lisa_activated_layers", own.lisa_layers, COUNT, default=0, source=f"{TRAIN}:208"),
    Row("bf16", hf.bf16, BOOLEAN, source=MODEL),
    Row("fp16", hf.fp16, BOOLEAN, source=MODEL),
    Row("deepspeed", ref.deepspeed, FILE, aliases=("deepspeed_config_path",), source="ms-swift 3602360a arguments/sft_args.py _init_deepspeed"),
    Row("zero_hpz_partition_size", own.hpz, POSITIVE, source="ms-swift 3602360a arguments/sft_args.py"),
    Row("deepspeed_autotp_size", own.autotp, POSITIVE, source="ms-swift 3602360a arguments/sft_args.py"),
    Row("fsdp", own.fsdp, Kind(_read_fsdp_file), source="ms-swift 3602360a arguments/sft_args.py _init_fsdp"),
    Row("eval_strategy", own.eval_strategy, choice({"no": "no", False: "no", "steps": "steps", "epoch": "epoch"}), aliases=("evaluation_strategy",), source="ms-swift 3602360a arguments/sft_args.py _init_eval_strategy"),
    Row("save_total_limit", f.save.keep, LENGTH, source="transformers 5.23 training_args.py:1201"),
    Row("save_only_model", f.save.save_only_model, BOOLEAN, default=False, aliases=("only_save_model",), source="transformers 5.23 training_args.py:1171"),
    Row("logging_steps", hf.logging_steps, NUMBER, default=5, source=f"{TRAIN}:138"),
    Row("dataloader_num_workers", f.data.workers, COUNT, default=1, source=f"{TRAIN} __post_init__"),
    Row("dataloader_persistent_workers", f.data.persistent, BOOLEAN, default=True, source="ms-swift 4.6.0 trainers/arguments.py:152; false up to 4.5"),
)  # fmt: skip

# The words of ``fsdp`` are a row of their own beside the file of that name.
FSDP_WORDS = Row("fsdp", hf.fsdp_words, Kind(_read_fsdp_words, " ".join))

KNOWN = known_keys("ms_swift") | KNOWN_TRAINING_ARGUMENTS

ENV_ROWS = (
    Row("SWIFT_SINGLE_DEVICE_MODE", env.single_device, BOOLEAN, source="SW/utils/env.py is_mp"),
    Row("CELOSS_PARALLEL_SIZE", env.loss_tokens, COUNT, source="SW/trainers/utils.py per_token_loss_func_sp"),
    Row("MAX_POSITIVE_SAMPLES", env.positives, COUNT, default=1, source="SW/template/base.py:1861"),
    Row("MAX_NEGATIVE_SAMPLES", env.negatives, COUNT, default=7, source="SW/template/base.py:1862"),
    Row("MAX_PIXELS", env.max_pixels, POSITIVE, aliases=("max_pixels",)),
    Row("IMAGE_MAX_TOKEN_NUM", env.max_tokens, POSITIVE, aliases=("image_max_token_num",)),
    Row("MAX_NUM", env.max_tiles, POSITIVE, aliases=("max_num",)),
    Row("MAX_SLICE_NUMS", env.max_slices, POSITIVE, aliases=("max_slice_nums",)),
    Row("FPS_MAX_FRAMES", env.max_frames, POSITIVE, aliases=("fps_max_frames",)),
)  # fmt: skip

SWIFT_ENVIRONMENT = Table(
    name="ms-swift environment",
    rows=ENV_ROWS,
    # Everything else in the environment is somebody else's.
    known_prefixes=("",),
    loader="yaml12",
    section="environment",
)

ENV_MAPPING = Table(
    name="ENV of an ms-swift config",
    rows=(*ENVIRONMENT.rows, *ENV_ROWS),
    known_prefixes=("",),
    section="environment",
)
"""``ENV`` in a YAML: set where the environment has no value yet (SW/cli/main.py)."""

SWIFT = Table(
    name="ms-swift config",
    rows=(
        *over(_ROWS, (*TRAINING_ARGUMENTS, *SEQ2SEQ_ARGUMENTS)),
        FSDP_WORDS,
        Row("ENV", own.env, Kind(lambda raw: None), table=ENV_MAPPING),
        Row("use_ray", own.uses_ray, BOOLEAN),
        Row("device_groups", own.training_group, Kind(read_groups)),
    ),
    known=KNOWN,
    past=past_keys("ms-swift", "ms_swift"),
    spans=key_spans("ms-swift", "ms_swift"),
    known_prefixes=(*KNOWN_PREFIXES, "device_groups.", "model_kwargs.", "ENV."),
    ignores_unknown=False,
    section="training",
)

OTHER_COMMANDS = replace(
    SWIFT, name="ms-swift config that trains nothing", known=KNOWN | known_keys("ms_swift_commands")
)
"""``swift sample``, ``infer``, ``export`` and their like read the same keys and some of their own."""


def command_line(table: Table, name: str) -> Table:
    """The same keys as options, whose booleans are written as ms-swift writes them: true, false."""

    def spelled(row: Row) -> Row:
        kind = row.kind

        def write(value: Any) -> Any:
            literal = kind.write(value)
            return str(literal).lower() if isinstance(literal, bool) else literal

        return replace(row, kind=replace(kind, write=write))

    rows = tuple(spelled(row) for row in table.rows if row.key != "ENV")
    return replace(table, name=name, rows=rows, loader="yaml12")


# -- generations of keys ----------------------------------------------------------------------


# Names that only 1.x and 2.x had (ms-swift release/2.6 llm/utils/argument.py).
_OLD_KEYS = frozenset(
    {
        "sft_type", "model_id_or_path", "template_type", "quantization_bit", "batch_size", "dtype",
        "lora_target_modules", "eval_batch_size", "use_flash_attn", "dataset_test_ratio",
        "lora_dropout_p", "only_save_model", "check_dataset_strategy", "train_dataset_sample",
        "deepspeed_config_path", "custom_train_dataset_path", "preprocess_num_proc",
    }
)  # fmt: skip


def has_old_keys(run: Cells) -> bool:
    """Whether the keys are those of 1.x or 2.x."""
    for block in run.blocks:
        keys = block.mapping.entries.keys()
        if block.table.section == "training" and (
            keys & _OLD_KEYS or ("model_type" in keys and not {"model", "adapters"} & keys)
        ):
            return True
    return False
