"""What Accelerate's config and ``accelerate launch`` make of any trainer's run.

Included by the meaning of every framework over accelerate. It reads the fields of
``keys.ACCELERATE``, which are also what flags of ``accelerate launch`` stand for
(``keys.LAUNCH_ROWS``): mixed precision where the trainer sets neither bf16 nor fp16
(:func:`accelerate_amp`), and FSDP or DeepSpeed, whichever ``distributed_type`` chooses; what the
file says of the other one does not count.

Read from accelerate 16cb6eb8 (1.15.0.dev0); ``ACC`` below is ``src/accelerate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomlint.dialects.accelerate.flags import flags_first
from oomlint.dialects.accelerate.keys import ACCELERATE, own
from oomlint.dialects.accelerate.passed_by import passed_by
from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import uses_deepspeed
from oomlint.dialects.common.fields import deepspeed, fsdp, ref
from oomlint.dialects.common.missing import at_missing_file
from oomlint.dialects.common.offloading import pins_by_default
from oomlint.dialects.deepspeed.engine import can_take_over, check_states, steps_in_host_ram
from oomlint.dialects.deepspeed.keys import DEEPSPEED
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.meaning import Left, Meaning, Said, Wishes
from oomlint.dialects.releases import PINS_OFFLOADED
from oomlint.dialects.setting import Setting
from oomlint.errors import CannotEdit
from oomlint.plan.fields import below, f

chosen = Meaning(flags_first)
"""Which backend a launch chooses, and what of its file counts: what a program leaves of it that sets the precision itself."""
accelerate = Meaning(chosen)

_F, _Z = f.parallel.fsdp, f.parallel.zero


def accelerate_amp(run: Cells) -> str:
    """Mixed precision as ``accelerate launch`` sets it: ``bf16``, ``fp16`` or ``no``.

    fp8 computes its matrix products in 8 bit and everything else as bf16 would
    (ACC/utils/dataclasses.py set_mixed_precision).
    """
    amp = run[own.mixed_precision]
    if amp is None:
        # ACC/commands/config/config_args.py:104: the old key of the same meaning.
        return "fp16" if run[own.fp16] else "no"
    return "bf16" if amp == "fp8" else amp


CHOSEN_BY: Mapping[Any, str] = {
    own.use_deepspeed: "deepspeed",
    own.use_fsdp: "fsdp",
    own.use_megatron: "megatron",
    launch.multi_gpu: "multi",
}
"""Flags of ``accelerate launch`` that choose before ``distributed_type`` does, the first that is set, and what they choose
(ACC/commands/launch.py _validate_launch_command)."""


def distributed_type(run: Cells) -> str | None:
    """How the processes work together: flags beat the file."""
    chosen = (chosen for flag, chosen in CHOSEN_BY.items() if run[flag])
    return next(chosen, None) or run[own.distributed_type]


# -- what of the file counts -----------------------------------------------------------------------


def _block_of(said: Said) -> Block | None:
    if said is None:
        return None
    return (said.origin if isinstance(said, Setting | Left) else said).block


@chosen.said(*(row.field for row in ACCELERATE.rows))
def of_missing_file(run: Cells, field: Any, said: Said) -> Said:
    """What a config that is not at hand would have said is unread."""
    return said if said is not None else at_missing_file(run, launch.config_file)


_OF_FSDP = (*below(_F), f.load.cpu_ram_efficient)
_OF_DEEPSPEED = (*below(_Z), *below(f.offload), ref.deepspeed, f.load.zero3_init)


@chosen.said(*_OF_FSDP)
def of_fsdp(run: Cells, field: Any, said: Said) -> Said:
    return _said_for("fsdp", run, said)


@chosen.said(*_OF_DEEPSPEED)
def of_deepspeed(run: Cells, field: Any, said: Said) -> Said:
    return _said_for("deepspeed", run, said)


def _said_for(backend: str, run: Cells, said: Said) -> Said:
    """What Accelerate's file says of a backend that it does not start does not count."""
    block = _block_of(said)
    if not isinstance(said, Setting) or block is None or block.table is not ACCELERATE:
        return said
    return said if distributed_type(run) in (None, backend) else None


# Keys that nobody writes who does not want to shard.
_SETS_UP = {
    _F.strategy: "fsdp",
    _F.reshard_after_forward: "fsdp",
    _F.wrap: "fsdp",
    _F.version: "fsdp",
    _Z.stage: "zero",
}


@chosen.derive(f.parallel.unapplied)
def unapplied(run: Cells) -> Any:
    """A block for FSDP or DeepSpeed that ``distributed_type`` passes over
    (ACC/commands/launch.py launch_command: the type alone chooses)."""
    if distributed_type(run) not in ("multi", "no"):
        return None
    for field, part in _SETS_UP.items():
        said = run.stated(field)
        block = _block_of(said)
        if isinstance(said, Setting) and block is not None and block.table is ACCELERATE:
            return part
    return None


# -- what it chooses -------------------------------------------------------------------------------


@chosen.override(launch.total_processes)
def one_process(run: Cells) -> Any:
    """ACC/commands/launch.py launch_command: the simple launcher starts one process, whatever
    num_processes says."""
    return 1 if distributed_type(run) == "no" else None


@chosen.derive(fsdp.enabled)
def chooses_fsdp(run: Cells) -> Any:
    return True if distributed_type(run) == "fsdp" else None


@chosen.derive(deepspeed.enabled)
def chooses_deepspeed(run: Cells) -> Any:
    return True if distributed_type(run) == "deepspeed" else None


@accelerate.derive(f.parallel.backend)
def chooses_megatron(run: Cells) -> Any:
    is_megatron = distributed_type(run) == "megatron"
    return "megatron" if is_megatron and not uses_deepspeed(run) and not run[fsdp.enabled] else None


@accelerate.derive(f.precision.fp8_train)
def trains_in_fp8(run: Cells) -> Any:
    kind = distributed_type(run)
    return "te" if kind is not None and run[own.mixed_precision] == "fp8" else None


_FSDP_DEFAULTS = {
    _F.version: 1,
    _F.cpu_offload: False,
    _F.strategy: "full",
    _F.reshard_after_forward: True,
    _F.wrap: "none",
    _F.min_params: 100_000_000,
    _F.forward_prefetch: False,
    _F.use_orig_params: True,
    f.load.cpu_ram_efficient: True,
    _F.sync_module_states: True,
    _F.activation_checkpointing: False,
}


@chosen.default(*_FSDP_DEFAULTS, source="accelerate 16cb6eb8 commands/launch.py:513")
def fsdp_defaults(run: Cells) -> Any:
    return _FSDP_DEFAULTS if distributed_type(run) == "fsdp" else None


_DEEPSPEED_DEFAULTS = {
    **{row.field: row.default for row in DEEPSPEED.rows if row.default is not None},
    _Z.stage: 2,
    _Z.gather16_on_save: False,
}


@chosen.default(*_DEEPSPEED_DEFAULTS, source="accelerate 16cb6eb8 utils/dataclasses.py:1237")
def deepspeed_defaults(run: Cells) -> Any:
    """Of a plugin that is made up without a file."""
    if distributed_type(run) != "deepspeed" or run[ref.deepspeed] is not None:
        return None
    return _DEEPSPEED_DEFAULTS


@chosen.derive(f.offload.pin_memory, source=PINS_OFFLOADED.source)
def pins_offloaded(run: Cells) -> Any:
    """The plugin writes no ``pin_memory`` (accelerate 1.10.1 utils/dataclasses.py __post_init__)."""
    is_plugin = distributed_type(run) == "deepspeed" and run[ref.deepspeed] is None
    return pins_by_default(run) if is_plugin else None


@chosen.derive(f.load.zero3_init, source="accelerate 16cb6eb8 utils/dataclasses.py:1324")
def opens_zero_init(run: Cells) -> Any:
    return run.base(_Z.stage) == 3 if distributed_type(run) == "deepspeed" else None


# -- wishes ----------------------------------------------------------------------------------------


def takes_flags(run: Cells) -> bool:
    """Whether flags alone make ``accelerate launch`` bring in DeepSpeed: it starts several ranks of a trainer that fills
    in the rest (accelerate 1.15 utils/dataclasses.py DeepSpeedPlugin.__post_init__, transformers 5.23
    integrations/deepspeed.py propagate_args_to_deepspeed), and neither a flag nor a config says what shares the model."""
    is_plain = run[f.parallel.backend] == "ddp" and distributed_type(run) is None
    if (
        not is_plain
        or run.mentions(launch.config_file)
        or run[f.quant.method] not in (None, "none")
    ):
        return False
    switch: Any = own.use_deepspeed
    return any(block.can_write(switch) for block in run.blocks_in("launcher"))


def _brings_in(run: Cells, wishes: Wishes) -> bool:
    """Whether wishes bring in DeepSpeed by flags."""
    return bool(wishes.get(_Z.stage)) and takes_flags(run) and can_take_over(wishes, run)


def _said_with(field: Any, backends: tuple[str, ...], refusal: str) -> None:
    """A field that only some backends have is said as it is where one of them shards the run."""

    @accelerate.written(field)
    def write(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
        if run[f.parallel.backend] not in backends:
            if "zero" in backends and _brings_in(run, wishes):
                return {field: wanted}
            raise CannotEdit(refusal)
        return {field: wanted}


_FSDP = ("fsdp1", "fsdp2")
for _field in below(_Z):
    _said_with(_field, ("zero",), "this run does not use DeepSpeed")
for _field in (*below(_F), f.load.cpu_ram_efficient):
    _said_with(_field, _FSDP, "this run does not use FSDP")
for _field in below(f.offload):
    _said_with(
        _field,
        ("zero", *_FSDP),
        "nothing in this run offloads: it uses neither DeepSpeed nor FSDP",
    )


@accelerate.written(f.parallel.backend)
def _(backend: Any, run: Cells, wishes: Wishes) -> Wishes:
    if run[f.parallel.unapplied] not in ("zero", "fsdp"):
        raise CannotEdit("what shards this run is not set up in an Accelerate config")
    return {own.distributed_type: "deepspeed" if backend == "zero" else "fsdp"}


@accelerate.written(_Z.stage)
def _(stage: Any, run: Cells, wishes: Wishes) -> Wishes:
    if _brings_in(run, wishes):
        return {own.use_deepspeed: True, _Z.stage: stage}
    if run[f.parallel.backend] != "zero":
        raise CannotEdit("this run does not use DeepSpeed")
    _check_deepspeed_file(run)
    return {_Z.stage: stage}


@accelerate.written(f.offload.params)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if run[f.parallel.backend] in _FSDP:
        return _fsdp_offload(wishes)
    _check_offloads(run, wishes)
    if device != "none" and _stage(run, wishes) != 3:
        raise CannotEdit("DeepSpeed offloads parameters with ZeRO stage 3 only")
    return {f.offload.params: device}


@accelerate.written(f.offload.optimizer)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if run[f.parallel.backend] in _FSDP:
        return _fsdp_offload(wishes)
    _check_offloads(run, wishes)
    if device != "none" and _stage(run, wishes) == 0:
        raise CannotEdit("DeepSpeed offloads the optimizer from ZeRO stage 1 on")
    kind = wishes.get(f.optimizer.kind, run[f.optimizer.kind])
    if device != "none" and not steps_in_host_ram(kind):
        raise CannotEdit("DeepSpeed's own Adam takes the place of an optimizer that is offloaded")
    if device == "cpu":
        check_states(run)
    return {f.offload.optimizer: device}


def _fsdp_offload(wishes: Wishes) -> Wishes:
    """FSDP keeps parameters and optimizer states in one place."""
    devices = {wishes.get(field) for field in (f.offload.params, f.offload.optimizer)}
    if "nvme" in devices:
        raise CannotEdit("FSDP can offload to the CPU only")
    return {_F.cpu_offload: "cpu" in devices}


def _check_offloads(run: Cells, wishes: Wishes) -> None:
    if _brings_in(run, wishes):
        return
    if run[f.parallel.backend] != "zero":
        raise CannotEdit("nothing in this run offloads: it uses neither DeepSpeed nor FSDP")
    _check_deepspeed_file(run)


def _stage(run: Cells, wishes: Wishes) -> Any:
    return wishes.get(_Z.stage, run[_Z.stage])


def _check_deepspeed_file(run: Cells) -> None:
    """Accelerate 1.15 utils/dataclasses.py:1509 refuses the keys for stage and offloading beside a
    ``deepspeed_config_file``, so they can stand in that file alone.

    Raises:
        CannotEdit: the run names such a file that is not here, or is broken; or the author has said it in DeepSpeed's own
            words, beside which another value would stand.
    """
    if run.once(passed_by) is not None:
        raise CannotEdit("zero_optimization says it already, in words that Accelerate passes by")
    is_named = run[ref.deepspeed] is not None
    if is_named and not run.has_block_in("deepspeed"):
        raise CannotEdit("the DeepSpeed file that says this cannot be read")


@accelerate.override(
    f.checkpointing.offload,
    f.offload.activations,
    source="accelerate 1.15.0 utils/fsdp_utils.py fsdp2_apply_ac: offload_wrapper around each checkpoint",
)
def offloaded_checkpoints(run: Cells) -> Any:
    if not (
        run[fsdp.enabled] and run[_F.activation_checkpointing] and run[own.offloads_checkpoints]
    ):
        return None
    return {f.checkpointing.offload: "cpu", f.offload.activations: "cpu"}


def express_checkpointing(mode: Any, run: Cells) -> Wishes:
    """FSDP's own switch where no trainer takes part: the Accelerate config stands alone."""
    trains = run.blocks_in("training")
    if mode != "full" or trains or run[f.parallel.backend] not in _FSDP:
        return {f.checkpointing.mode: mode}
    return {_F.activation_checkpointing: True}
