"""Tables of the calls that hand-written training loops are made of.

Read from accelerate 1.15 (``ACC`` below is ``src/accelerate``), torch 2.9 and bitsandbytes 0.48.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.accelerate.keys import (
    BACKWARD_PREFETCH,
    FSDP_VERSION,
    MIXED_PRECISION,
    RESHARD,
    STATE_DICT,
    STRATEGY,
)
from oomlint.dialects.common.fields import ref
from oomlint.dialects.deepspeed.keys import DEEPSPEED, DEVICE, STAGE
from oomlint.dialects.kinds import (
    BOOLEAN,
    COUNT,
    LIST,
    POSITIVE,
    Kind,
)
from oomlint.dialects.loops.fields import loop
from oomlint.dialects.table import Row, Table
from oomlint.dialects.trainer.fields import hf
from oomlint.dialects.trainer.tables import ANY_LENGTH, DTYPE
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

CLASS = "()"
"""The key under which a block has the name of what it calls."""


def unwritable(_value: Any) -> Any:
    raise CannotEdit("the script itself has to call something else")


_NAME = Kind(lambda raw: str(raw).rpartition(".")[2], unwritable, names=True)
_WORD = Kind(str, unwritable)


def _dtype(raw: Any) -> str:
    """A dtype of torch by its name; a model is also cast by ``half()``."""
    word = str(raw).rpartition(".")[2]
    found = {"half": "fp16", "float": "fp32", "bfloat16": "bf16"}.get(word)
    return found or str(DTYPE.read(raw))


_CAST = Kind(_dtype, unwritable, names=True)


def _flag_of_config(raw: Any) -> str | None:
    return raw if isinstance(raw, str) else None


CONFIG = Kind(_flag_of_config)


# Defaults of the script's own options: which of its branches it takes where nobody says otherwise.
SWITCHES = Table("defaults of the script's options", (), known_prefixes=("",), section="switches")

# What of the model is a unit, as :func:`.script` makes it out.
WRAPPING = Kind(lambda raw: str(raw), unwritable)

# -- who runs backward -----------------------------------------------------------------------------

CENTRE = Table(
    "training loop",
    (
        Row(CLASS, loop.kind, _WORD),
        Row("steps", loop.accumulates, POSITIVE),
        Row("outputs", f.loss.outputs_kept, BOOLEAN),
        Row("outputs_last", f.loss.outputs_last, BOOLEAN),
        Row("clears", f.optimizer.clears_late, BOOLEAN),
        Row("narrow", loop.narrow_logits, BOOLEAN),
        Row("joins", loop.joins, BOOLEAN),
        Row("evaluates", loop.evaluates, BOOLEAN),
        Row("ranks", loop.ranks, POSITIVE),
        Row("loss", loop.own_loss, BOOLEAN),
        Row("frozen", loop.freezes, BOOLEAN),
        Row("trained", loop.trained_by_name, LIST),
        Row("split", loop.splits_samples, BOOLEAN),
    ),
    known_prefixes=("",),
    section="training",
)

_ACC = "accelerate 1.15 accelerator.py Accelerator"
ACCELERATOR = Table(
    "Accelerator",
    (
        Row("mixed_precision", loop.amp, MIXED_PRECISION, source=_ACC),
        Row("gradient_accumulation_steps", loop.accumulates, POSITIVE, source=_ACC),
        Row("split_batches", loop.splits, BOOLEAN, source=_ACC),
    ),
    known_prefixes=("",),
    section="training",
)
ACCUMULATION_PLUGIN = Table(
    "GradientAccumulationPlugin",
    (Row("num_steps", loop.accumulates, POSITIVE, source="accelerate 1.15 utils/dataclasses.py"),),
    known_prefixes=("",),
    section="training",
)
DEEPSPEED_PLUGIN = Table(
    "DeepSpeedPlugin",
    (
        Row("hf_ds_config", ref.deepspeed, CONFIG, table=DEEPSPEED),
        Row("zero_stage", f.parallel.zero.stage, STAGE),
        Row("gradient_accumulation_steps", loop.accumulates, POSITIVE.or_auto()),
        Row("offload_optimizer_device", f.offload.optimizer, DEVICE),
        Row("offload_param_device", f.offload.params, DEVICE),
        Row("zero3_init_flag", f.load.zero3_init, BOOLEAN),
        Row("zero3_save_16bit_model", f.parallel.zero.gather16_on_save, BOOLEAN),
    ),
    known_prefixes=("",),
    section="deepspeed plugin",
)
FSDP_PLUGIN = Table(
    "FullyShardedDataParallelPlugin",
    (
        Row("fsdp_version", f.parallel.fsdp.version, FSDP_VERSION),
        Row("reshard_after_forward", f.parallel.fsdp.reshard_after_forward, RESHARD),
        Row("auto_wrap_policy", f.parallel.fsdp.wrap, WRAPPING),
        Row("cpu_offload", f.parallel.fsdp.cpu_offload, BOOLEAN),
        Row("activation_checkpointing", f.parallel.fsdp.activation_checkpointing, BOOLEAN),
        Row("cpu_ram_efficient_loading", f.load.cpu_ram_efficient, BOOLEAN),
        Row("use_orig_params", f.parallel.fsdp.use_orig_params, BOOLEAN),
        Row("sync_module_states", f.parallel.fsdp.sync_module_states, BOOLEAN),
        Row("state_dict_type", f.parallel.fsdp.state_dict, STATE_DICT),
        Row("forward_prefetch", f.parallel.fsdp.forward_prefetch, BOOLEAN),
    ),
    known_prefixes=("",),
    section="fsdp plugin",
)
# accelerate 1.15 parallelism_config.py.
DEGREES = Table(
    "ParallelismConfig",
    (
        Row("dp_replicate_size", f.parallel.dp_replicate, POSITIVE),
        Row("dp_shard_size", f.parallel.dp_shard, POSITIVE),
        Row("tp_size", f.parallel.tp, POSITIVE),
        Row("cp_size", f.parallel.cp, POSITIVE),
        Row("sp_size", f.parallel.ulysses, POSITIVE),
    ),
    known_prefixes=("",),
    section="script",
)
# DeepSpeed edaa7221 __init__.py initialize().
INITIALIZE = Table(
    "deepspeed.initialize",
    (Row("config", ref.deepspeed, CONFIG, aliases=("config_params",), table=DEEPSPEED),),
    known_prefixes=("",),
    section="training",
)

# -- data ------------------------------------------------------------------------------------------

_LOADER = "torch 2.9 utils/data/dataloader.py DataLoader"
DATALOADER = Table(
    "DataLoader",
    (
        Row("batch_size", f.batch.micro, POSITIVE, default=1, aliases=("1",), source=_LOADER),
        Row("num_workers", f.data.workers, COUNT, default=0, source=_LOADER),
        Row("pin_memory", f.data.pin_memory, BOOLEAN, default=False, source=_LOADER),
        Row("prefetch_factor", f.data.prefetch, POSITIVE),
        Row("persistent_workers", f.data.persistent, BOOLEAN, default=False, source=_LOADER),
    ),
    known_prefixes=("",),
    section="data",
)
LENGTHS = Table("length of samples", (ANY_LENGTH,), known_prefixes=("",), section="script")

# -- model -----------------------------------------------------------------------------------------

# Whose parameters are cast, all of them.
CAST = Table(
    "cast of the model",
    (Row("dtype", loop.casts, _CAST, aliases=("0", "1", CLASS)),),
    known_prefixes=("",),
    section="script",
)
AUTOCAST = Table(
    "torch.autocast",
    (
        Row("dtype", loop.autocasts, _CAST, aliases=("1",)),
        Row("enabled", loop.autocast_off, Kind(lambda raw: not BOOLEAN.read(raw), unwritable)),
    ),
    known_prefixes=("",),
    section="script",
)
# torch 2.9 distributed/fsdp/fully_sharded_data_parallel.py, _fully_shard/_fully_shard.py and nn/parallel/distributed.py.
FSDP1 = Table(
    "FullyShardedDataParallel",
    (
        Row("sharding_strategy", f.parallel.fsdp.strategy, Kind(lambda raw: STRATEGY.read(str(raw).rpartition(".")[2]), unwritable, names=True), aliases=("2",)),
        Row("backward_prefetch", f.parallel.fsdp.backward_prefetch, Kind(lambda raw: BACKWARD_PREFETCH.read(str(raw).rpartition(".")[2]), unwritable, names=True)),
        Row("auto_wrap_policy", f.parallel.fsdp.wrap, WRAPPING),
        Row("forward_prefetch", f.parallel.fsdp.forward_prefetch, BOOLEAN),
        Row("limit_all_gathers", f.parallel.fsdp.limit_all_gathers, BOOLEAN),
        Row("use_orig_params", f.parallel.fsdp.use_orig_params, BOOLEAN),
        Row("sync_module_states", f.parallel.fsdp.sync_module_states, BOOLEAN),
    ),
    known_prefixes=("",),
    section="script",
)  # fmt: skip
FSDP2 = Table(
    "fully_shard",
    (
        Row("auto_wrap_policy", f.parallel.fsdp.wrap, WRAPPING),
        Row("reshard_after_forward", f.parallel.fsdp.reshard_after_forward, BOOLEAN),
    ),
    known_prefixes=("",),
    section="script",
)
DDP = Table(
    "DistributedDataParallel",
    (
        Row("bucket_cap_mb", f.parallel.ddp.bucket_mb, COUNT),
        Row("find_unused_parameters", f.parallel.ddp.find_unused, BOOLEAN),
        Row("static_graph", f.parallel.ddp.static_graph, BOOLEAN),
        Row("gradient_as_bucket_view", f.parallel.ddp.bucket_view, BOOLEAN),
    ),
    known_prefixes=("",),
    section="script",
)
MIXED = Table(
    "MixedPrecision",
    (
        Row("param_dtype", loop.param_dtype, DTYPE, aliases=("0",)),
        Row("reduce_dtype", loop.reduce_dtype, DTYPE, aliases=("1",)),
    ),
    known_prefixes=("",),
    section="script",
)
OFFLOADS = Table(
    "CPUOffload",
    (Row("offload_params", f.parallel.fsdp.cpu_offload, BOOLEAN, aliases=("0",)),),
    known_prefixes=("",),
    section="script",
)
OFFLOADS_2 = Table(
    "CPUOffloadPolicy",
    (Row(CLASS, f.parallel.fsdp.cpu_offload, Kind(lambda _raw: True, unwritable, names=True)),),
    known_prefixes=("",),
    section="script",
)
# transformers 5.23 modeling_layers.py GradientCheckpointingLayer asks the attribute of each part.
CHECKPOINTS_SET = Table(
    "model.gradient_checkpointing",
    (Row("on", hf.checkpointing, BOOLEAN),),
    known_prefixes=("",),
    section="script",
)
CHECKPOINTS_NEW = Table(
    "a line that checkpoints",
    (Row("on", hf.checkpointing, BOOLEAN),),
    known_prefixes=("",),
    section="script",
)
WRAPS_CHECKPOINTS = Table(
    "apply_activation_checkpointing",
    (Row(CLASS, loop.checkpoints, Kind(lambda _raw: True, unwritable, names=True)),),
    known_prefixes=("",),
    section="script",
)

# -- optimizer -------------------------------------------------------------------------------------

OPTIMIZER = Table(
    "optimizer",
    (
        Row(CLASS, loop.optimizer, _NAME),
        Row("fused", f.optimizer.fused, BOOLEAN),
        Row("foreach", f.optimizer.foreach, BOOLEAN),
        Row("optim_bits", loop.bits, COUNT, source="bitsandbytes 0.48 optim/adamw.py"),
        Row("is_paged", f.optimizer.paged, BOOLEAN, source="bitsandbytes 0.48 optim/adamw.py"),
    ),
    known_prefixes=("",),
    section="script",
)
