"""Tables of the calls in a Python script that trains with transformers' Trainer: what loads the
model, adapts and quantizes it, and what its trainer is given.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oomlint.dialects.common.fields import registry
from oomlint.dialects.kinds import (
    BOOLEAN,
    COUNT,
    DTYPE_OR_AUTO_LOAD,
    LIST,
    NUMBER,
    POSITIVE,
    TEXT,
    BadValue,
    Kind,
    choice,
)
from oomlint.dialects.table import Row, Table
from oomlint.dialects.trainer.arguments import (
    KNOWN_PREFIXES,
    KNOWN_TRAINING_ARGUMENTS,
    RENAMED_ARGUMENTS,
    SEQ2SEQ_ARGUMENTS,
    TRAINING_ARGUMENTS,
)
from oomlint.dialects.trainer.fields import hf, script
from oomlint.dialects.trainer.keys import ATTENTION, LENGTH, TARGETS, TRAINER
from oomlint.dialects.trl.fields import trl
from oomlint.documents.base import Call
from oomlint.documents.python.lengths import LENGTH_NAMES
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

POSITIONAL = frozenset(str(number) for number in range(10))

# torch.bfloat16 reaches us as a name; its text is what transformers accepts as well.
DTYPE = Kind(lambda raw: DTYPE_OR_AUTO_LOAD.read(str(raw)), DTYPE_OR_AUTO_LOAD.write, names=True)


def _read_model(raw: Any) -> str | None:
    return raw if isinstance(raw, str) and raw else None


def _unwritable(_value: Any) -> Any:
    raise CannotEdit("the script builds this object itself")


def read_device_map(raw: Any) -> str:
    """transformers 5.23 modeling_utils.py from_pretrained: a word, a device, or a dictionary."""
    if isinstance(raw, dict):
        return "single" if set(raw) == {""} else "explicit"
    word = str(raw).lower()
    if word in ("auto", "sequential", "balanced", "balanced_low_0"):
        return "auto" if word == "auto" else "balanced"
    return "single"


def _read_presence(raw: Any) -> bool:
    """An object is given; ``None`` never gets here."""
    if isinstance(raw, (Call, bool)):
        return bool(raw) if isinstance(raw, bool) else True
    raise BadValue("expected a config object")


MODEL_ID = Kind(_read_model, _unwritable)
DEVICE_MAP = Kind(read_device_map)
_PRESENCE = Kind(_read_presence, _unwritable)

FROM_PRETRAINED = Table(
    name="from_pretrained",
    rows=(
        Row("pretrained_model_name_or_path", f.model.id, MODEL_ID, aliases=("0", "model_name", "model_name_or_path", "model_path")),
        Row("torch_dtype", hf.load_dtype, DTYPE, aliases=("dtype",)),
        Row("attn_implementation", f.model.attn_impl, ATTENTION, aliases=("_attn_implementation",)),
        Row("use_flash_attention_2", hf.use_flash, BOOLEAN),
        Row("device_map", f.load.device_map, DEVICE_MAP),
        Row("low_cpu_mem_usage", f.load.low_cpu_mem, BOOLEAN),
        Row("load_in_4bit", hf.load_4bit, BOOLEAN),
        Row("load_in_8bit", hf.load_8bit, BOOLEAN),
        Row("trust_remote_code", f.model.trust_remote_code, BOOLEAN),
        Row("revision", f.model.revision, TEXT),
    ),
    known_prefixes=("",),
    section="model",
)  # fmt: skip
# The same call, reached before the training arguments exist (see ``scripts.early_load``).
EARLY_FROM_PRETRAINED = Table(
    "from_pretrained before TrainingArguments",
    FROM_PRETRAINED.rows,
    known_prefixes=("",),
    section="model",
)

# transformers 5.23 utils/quantization_config.py BitsAndBytesConfig.
QUANTIZATION = Table(
    name="BitsAndBytesConfig",
    rows=(
        Row("load_in_4bit", hf.load_4bit, BOOLEAN, default=False),
        Row("load_in_8bit", hf.load_8bit, BOOLEAN, default=False, aliases=("0",)),
        Row("bnb_4bit_use_double_quant", f.quant.double, BOOLEAN, default=False),
        Row("bnb_4bit_quant_storage", f.quant.storage_dtype, DTYPE),
        Row("bnb_4bit_compute_dtype", f.quant.compute_dtype, DTYPE),
    ),
    known_prefixes=("",),
    section="quantization",
)

# peft 0.21.2 tuners/lora/config.py LoraConfig.
_PEFT = "peft 0.21.2 tuners/lora/config.py"
ADAPTER = Table(
    name="LoraConfig",
    rows=(
        Row("r", f.trainable.r, COUNT, default=8, aliases=("0",), source=_PEFT),
        Row("lora_alpha", f.trainable.alpha, NUMBER, default=8, source=_PEFT),
        Row("lora_dropout", f.trainable.dropout, NUMBER, default=0.0, source=_PEFT),
        Row("target_modules", hf.lora_targets, TARGETS, source=_PEFT),
        Row("modules_to_save", f.trainable.modules_to_save, LIST, source=_PEFT),
        Row("target_parameters", f.trainable.target_params, LIST, source=_PEFT),
        Row("use_dora", hf.use_dora, BOOLEAN, source=_PEFT),
        Row(
            "num_virtual_tokens",
            script.virtual_tokens,
            COUNT,
            source="peft 0.21.2 tuners/prefix_tuning",
        ),
    ),
    known_prefixes=("",),
    section="adapter",
)

# TRL f2cd5771 trainer/model_config.py ModelConfig, of which its get_peft_config makes the LoraConfig (trainer/utils.py).
_MODEL_CONFIG = "TRL f2cd5771 trainer/model_config.py"
TOLD_ADAPTER = Table(
    name="ModelConfig of an adapter",
    rows=(
        Row("use_peft", hf.use_peft, BOOLEAN, default=False, source=_MODEL_CONFIG),
        Row("lora_r", f.trainable.r, COUNT, default=16, source=_MODEL_CONFIG),
        Row("lora_alpha", f.trainable.alpha, NUMBER, default=32, source=_MODEL_CONFIG),
        Row("lora_dropout", f.trainable.dropout, NUMBER, default=0.05, source=_MODEL_CONFIG),
        Row("lora_target_modules", hf.lora_targets, TARGETS, source=_MODEL_CONFIG),
        Row("lora_modules_to_save", f.trainable.modules_to_save, LIST, source=_MODEL_CONFIG),
        Row("lora_target_parameters", f.trainable.target_params, LIST, source=_MODEL_CONFIG),
        Row("use_dora", hf.use_dora, BOOLEAN, source=_MODEL_CONFIG),
    ),
    known_prefixes=("",),
    section="adapter",
)

# peft 0.21.2 mapping_func.py get_peft_model, where only running the script tells what it is given.
WRAPS = Table(
    name="get_peft_model",
    rows=(),
    known_prefixes=("",),
    section="adapter",
)

# transformers 4.57.1 and 5.2.0 integrations/peft.py add_adapter: an adapter in the model itself, which the config's table says.
ADDS = Table(
    name="add_adapter",
    rows=(),
    known_prefixes=("",),
    section="adapter",
)

# peft 0.21.2 peft_model.py PeftModel.from_pretrained and auto.py AutoPeftModel: what is loaded is trained on only with
# is_trainable=True; rank and targets stand in the adapter's own adapter_config.json. So it is for a model that
# get_peft_model gives one of several LoraConfigs.
LOADED_ADAPTER = Table(
    name="adapter of a rank that is not told",
    rows=(),
    known_prefixes=("",),
    section="adapter",
)

# A call that loads a model with a device map, of which it is not known whether the trainer is given that one.
PLACED_ELSEWHERE = Table(
    name="another from_pretrained",
    rows=(),
    known_prefixes=("",),
    section="other model",
)

# Of several LoraConfigs that differ in other things than the rank.
ALIKE_ADAPTERS = Table(
    name="LoraConfig of several",
    rows=ADAPTER.rows[:3],
    known_prefixes=("",),
    section="adapter",
)

# torch 2.9 nn/modules/module.py requires_grad_: what no gradient is asked of keeps nothing for one.
FROZEN_TOWER = Table(
    name="vision tower",
    rows=(Row("requires_grad_", f.model.vision.freeze_tower, BOOLEAN),),
    known_prefixes=("",),
    section="script",
)

# transformers 5.24 models/qwen2_vl/image_processing_qwen2_vl.py; a processor hands its arguments on to its image processor.
SCALED_PICTURES = Table(
    name="processor",
    rows=(Row("max_pixels", f.model.vision.max_pixels, POSITIVE),),
    known_prefixes=("",),
    section="script",
)

# datasets 4.8 load.py load_dataset.
LOADED_SETS = Table(
    name="data sets that are loaded",
    rows=(Row("path", f.data.sets, LIST), Row("keys", registry.keys, LIST)),
    known_prefixes=("",),
    section="script",
)

# peft 0.21.2 utils/other.py prepare_model_for_kbit_training.
PREPARES_KBIT = Table(
    name="prepare_model_for_kbit_training",
    rows=(Row("use_gradient_checkpointing", script.kbit_checkpointing, BOOLEAN, default=True),),
    known_prefixes=("",),
    section="script",
)
CHECKPOINTS = Table(
    name="gradient_checkpointing_enable",
    rows=(Row("gradient_checkpointing_kwargs.use_reentrant", hf.reentrant, BOOLEAN),),
    known_prefixes=("",),
    section="script",
)

# transformers 5.23 tokenization_utils_base.py __call__: what turns samples into tokens.
TOKENIZER = Table(
    name="tokenizer call",
    rows=(
        Row("max_length", f.seq.max_len, LENGTH),
        Row("padding", f.seq.pad, choice({"max_length": "max_len"}, otherwise=None)),
    ),
    known_prefixes=("",),
    section="script",
)

# The length of samples, whatever a script calls it.
ANY_LENGTH = Row(
    "max_length", f.seq.max_len, LENGTH, aliases=tuple(sorted(LENGTH_NAMES - {"max_length"}))
)
# A dataset of the project's own, which makes tokens of texts.
DATASET = Table("own dataset call", (ANY_LENGTH,), known_prefixes=("",), section="script")

_TRAINER_ROWS = (
    Row("peft_config", script.adapter, _PRESENCE),
    # The latter is what TRL 0.4 to 0.12 call it in trainer/dpo_trainer.py and its neighbours.
    Row("max_seq_length", f.seq.max_len, LENGTH, aliases=("max_length",)),
    Row("packing", trl.packing, BOOLEAN),
    # TRL 1.16 experimental/gkd/gkd_trainer.py, and what projects call it in trainers of their own: it stays on each card.
    Row("teacher_model", f.objective.teacher, MODEL_ID),
)
TRAINER_CALL = Table("Trainer", _TRAINER_ROWS, known_prefixes=("",), section="trainer")
# A trainer that no ``from_pretrained`` call serves: TRL's load a model by its name.
LOADING_TRAINER_CALL = Table(
    "Trainer with a model's name",
    (Row("model", f.model.id, MODEL_ID, aliases=("0",)), *_TRAINER_ROWS),
    known_prefixes=("",),
    section="trainer",
)


def _with_reference(table: Table) -> Table:
    """TRL 0.7 to 1.16 trainer/dpo_trainer.py, kto_trainer.py: ``DPOTrainer(model, ref_model, args)``."""
    reference = Row("ref_model", script.reference, _PRESENCE, aliases=("1",))
    return replace(table, name=f"{table.name}, beside a reference", rows=(*table.rows, reference))


# Of trainers that take a second model to compare with.
WITH_REFERENCE = {
    table.name: _with_reference(table) for table in (TRAINER_CALL, LOADING_TRAINER_CALL)
}
# The same where the adapter is what the options of the run make it.
TOLD_OF_ADAPTER = {
    table.name: replace(table, rows=tuple(row for row in table.rows if row.key != "peft_config"))
    for table in (TRAINER_CALL, LOADING_TRAINER_CALL, *WITH_REFERENCE.values())
}

# transformers 5.23 training_args_seq2seq.py, besides the rows.
_SEQ2SEQ_KNOWN = frozenset({"sortish_sampler", "generation_num_beams", "generation_config"})

ARGUMENTS = Table(
    name="TrainingArguments",
    renamed=RENAMED_ARGUMENTS,
    rows=(*TRAINING_ARGUMENTS, *SEQ2SEQ_ARGUMENTS),
    known=KNOWN_TRAINING_ARGUMENTS | POSITIONAL | _SEQ2SEQ_KNOWN,
    known_prefixes=KNOWN_PREFIXES,
    # A dataclass: Python refuses a name that it does not know.
    ignores_unknown=False,
    section="training",
)

# A statement that changes arguments which are there already: see :mod:`.assigned`.
ASSIGNED = Table(
    name="statements on TrainingArguments", rows=(), known_prefixes=("",), section="assigned"
)

# The script's own dataclasses of options, whose names are those of the command line.
DEFAULTS = Table(
    name="defaults of the script's options",
    rows=TRAINER.rows,
    known_prefixes=("",),
    section="defaults",
)
