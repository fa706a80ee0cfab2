"""What the calls of a hand-written loop come to.

Read from accelerate 1.15, DeepSpeed edaa7221 and torch 2.9. Of the command line only what the script's
calls refer to counts.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.accelerate.keys import ACCELERATE, own as acc
from oomlint.dialects.accelerate.meaning import accelerate, accelerate_amp, distributed_type
from oomlint.dialects.block import Block
from oomlint.dialects.blocks import scripts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import backend, uses_deepspeed
from oomlint.dialects.common.fields import deepspeed, fsdp, ref, shared
from oomlint.dialects.common.precision import precision
from oomlint.dialects.common.quantization import quantization
from oomlint.dialects.common.sharding import sharding
from oomlint.dialects.common.training import CHOSEN_BY_CODE
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.deepspeed.keys import DEEPSPEED, ds
from oomlint.dialects.deepspeed.meaning import deepspeed_alone, deepspeed_json
from oomlint.dialects.loops.fields import loop
from oomlint.dialects.loops.keys import (
    DDP,
    DEEPSPEED_PLUGIN,
    FSDP1,
    FSDP2,
    FSDP_PLUGIN,
    INITIALIZE,
    MIXED,
    SWITCHES,
    WRAPS_CHECKPOINTS,
)
from oomlint.dialects.loops.lightning import lightning
from oomlint.dialects.loops.optimizers import optimizers
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.machine.launcher_keys import PLAIN
from oomlint.dialects.machine.launcher_meaning import launcher_of
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Meaning, Said, Wishes
from oomlint.dialects.releases import NOT_REENTRANT
from oomlint.dialects.setting import Origin, Setting
from oomlint.dialects.table import Table
from oomlint.dialects.trainer.custody import custody
from oomlint.dialects.trainer.fields import hf
from oomlint.dialects.trainer.model import loading, model
from oomlint.dialects.trainer.own_losses import own_losses
from oomlint.dialects.trainer.reaching import is_reached
from oomlint.dialects.trainer.scripts import classifier, scripts
from oomlint.dialects.trainer.statements import is_command, options_of, reaches
from oomlint.dialects.trainer.tables import ADAPTER, CHECKPOINTS, FROM_PRETRAINED
from oomlint.documents.base import UNKNOWN, Entry, PythonDocument, Scalar
from oomlint.documents.python.nodes import arms_of, guards_of
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f
from oomlint.plan.library_changes import NARROW_LOGITS

_PIPELINE = re.compile(r"\bPipelineModule\b")

usual = Meaning()
"""What holds where nothing else is known of a loop."""
made = Meaning()
"""Which of a script's calls count: asked before options are read into them, as the last included is."""

meaning = Meaning(
    custody,
    lightning,
    own_losses,
    classifier,
    scripts,
    model,
    optimizers,
    accelerate,
    world,
    sharding,
    backend,
    quantization,
    precision,
    deepspeed_json,
    deepspeed_alone,
    launch_one_process,
    batch,
    loading,
    usual,
    made,
)

_F, _P = f.parallel.fsdp, f.precision


def _has(run: Cells, *tables: Table) -> bool:
    return run.has_block_of(*tables)


def _is(run: Cells, *kinds: str) -> bool:
    return run[loop.kind] in kinds


# -- what of the command line counts ---------------------------------------------------------------


@meaning.said(if_any=True)
def of_calls_alone(run: Cells, field: Any, said: Said) -> Said:
    """Options mean what the script's own calls make of them, whatever they are called."""
    if not isinstance(said, Setting) or said.origin.block is None:
        return said
    block = said.origin.block
    if block.table.section != "training" or not is_command(block):
        return said
    return said.shadowed[0] if said.shadowed else None


def _reached(blocks: list[Block]) -> frozenset[int]:
    """The calls that the switches let run, by their blocks."""
    defaults = {
        name: entry.value
        for block in blocks
        if block.table is SWITCHES
        for name, entry in block.mapping.entries.items()
    }
    switches = {**defaults, **options_of(blocks)}
    return frozenset(id(block) for block in blocks if is_reached(block.mapping, switches))


@made.said(if_any=True)
def of_calls_made(run: Cells, field: Any, said: Said) -> Said:
    """What a call says that the switches around it pass by does not count."""
    reached = run.once(_reached)
    while isinstance(said, Setting) and said.origin.block is not None:
        if id(said.origin.block) in reached:
            return said
        said = said.shadowed[0] if said.shadowed else None
    if isinstance(said, Origin) and said.block is not None and id(said.block) not in reached:
        return _said_by_reached(run, field, reached)
    return said


def _said_by_reached(run: Cells, field: Any, reached: frozenset[int]) -> Said:
    """What the last call says of a field that the switches let run: of alternatives (``if args.use_liger:``) the
    one that stands behind it is of no account."""
    for block in reversed(run.given.blocks):
        if id(block) in reached:
            reading = block.read()
            found = reading.settings.get(field) or reading.unknown.get(field)
            if found is not None:
                return found
    return None


# -- who wraps the model ---------------------------------------------------------------------------


_WRAPPERS = ((FSDP2, "fsdp2"), (FSDP1, "fsdp1"), (DDP, "ddp"))


@meaning.derive(loop.wraps)
def wraps(run: Cells) -> Any:
    return next((word for table, word in _WRAPPERS if reaches(run, table)), None)


@meaning.derive(fsdp.enabled)
def shards(run: Cells) -> Any:
    return True if run[loop.wraps] in ("fsdp1", "fsdp2") or _has(run, FSDP_PLUGIN) else None


@meaning.derive(deepspeed.enabled)
def plugs_deepspeed(run: Cells) -> Any:
    return True if _has(run, DEEPSPEED_PLUGIN) or _is(run, "deepspeed") else None


_BUILDS_IN_SHARDS = re.compile(r"zero\.Init|Hf(?:Trainer)?DeepSpeedConfig|TrainingArguments")


def _initialized_whole(blocks: list[Block]) -> bool:
    """Whether one script makes the model and gives it to DeepSpeed, and nothing in it shards what is being made."""
    engines = [block.document for block in blocks if block.table is INITIALIZE]
    models = [block.document for block in blocks if block.table is FROM_PRETRAINED]
    return (
        bool(engines and models)
        and all(document is engines[0] for document in (*engines, *models))
        and not _BUILDS_IN_SHARDS.search(engines[0].source.text)
    )


@meaning.default(f.load.zero3_init, source="deepspeed 0.9 to 0.18 runtime/engine.py __init__")
def opens_zero_init(run: Cells) -> Any:
    """``deepspeed.initialize`` shards what it is given; transformers' loader knows of ZeRO-3 by a config that something
    else makes (5.23 integrations/deepspeed.py is_deepspeed_zero3_enabled)."""
    shards = _is(run, "deepspeed") and run[f.parallel.zero.stage] == 3
    return False if shards and run.once(_initialized_whole) else None


@meaning.derive(_F.version)
def version(run: Cells) -> Any:
    return {"fsdp1": 1, "fsdp2": 2}.get(run[loop.wraps] or "")


def _is_raw(run: Cells) -> bool:
    """Whether the script itself wraps the model in FSDP."""
    return run[loop.wraps] in ("fsdp1", "fsdp2")


@meaning.derive(fsdp.keeps_dtype, source="torch 2.9 distributed/fsdp: parameters stay as they are")
def keeps_dtype(run: Cells) -> Any:
    return True if _is_raw(run) else None


_TORCH_FSDP = "torch 2.9 distributed/fsdp/fully_sharded_data_parallel.py"
_DEFAULTS = {
    _F.strategy: "full",
    _F.backward_prefetch: "pre",
    _F.forward_prefetch: False,
    _F.limit_all_gathers: True,
    _F.use_orig_params: False,
    _F.sync_module_states: False,
}


@meaning.default(*_DEFAULTS, source=_TORCH_FSDP)
def defaults_of_torch(run: Cells) -> Any:
    return _DEFAULTS if run[loop.wraps] == "fsdp1" else None


_OF_CONFIG = tuple(DEEPSPEED.by_field)


@meaning.said(*_OF_CONFIG)
def of_unread_config(run: Cells, field: Any, said: Said) -> Said:
    """What a config of DeepSpeed's that cannot be followed would have said is unread."""
    if said is not None:
        return said
    for block in run.blocks:
        if block.table is DEEPSPEED:
            head = DEEPSPEED.by_field[field].key.partition(".")[0]
            is_open = block.mapping.open_ended and head not in block.mapping.entries
            return Origin("explicit", block, None, _entry_of(block)) if is_open else said
    named = run.said(ref.deepspeed)
    if isinstance(named, Setting):
        return replace(named.origin, source=f"{named.value} cannot be read")
    return named if named is not None else _unnamed_config(run)


def _unnamed_config(run: Cells) -> Said:
    """``deepspeed.initialize(args=args)`` reads the file that a command line names."""
    for block in run.blocks:
        if block.table is INITIALIZE and not block.mapping.open_ended:
            return Origin("explicit", block, None, _entry_of(block))
    return None


# -- ranks -----------------------------------------------------------------------------------------


@usual.derive(f.parallel.gpus_per_node, source="no call of the script joins several processes")
def one_gpu(run: Cells) -> Any:
    """Where no line here starts it, a script that joins no ranks is one process."""
    if launcher_of(run) is not None or not _is(run, "torch") or _spreads(run):
        return None
    return None if run[loop.joins] or _has(run, DDP, FSDP1, FSDP2) else 1


@usual.derive(
    f.parallel.gpus_per_node,
    f.parallel.nodes,
    source="the script says by WORLD_SIZE that it is one process",
)
def one_rank(run: Cells) -> Any:
    """Where no line here starts a script that sets WORLD_SIZE to 1, it is the one process that it says it is
    (torch 2.9 distributed/rendezvous.py _env_rendezvous_handler). Of more of them nobody sees what starts them."""
    if launcher_of(run) is not None or _is(run, "lightning", "fabric") or _spreads(run):
        return None
    if run[loop.ranks] != 1:
        return None
    return {f.parallel.gpus_per_node: 1, f.parallel.nodes: 1}


def _spreads(run: Cells) -> bool:
    """Whether one process lays its layers on all GPUs that it sees."""
    return _is(run, "torch") and run[f.load.device_map] in ("auto", "balanced", "explicit")


@meaning.derive(launch.one_process)
def sees_all(run: Cells) -> Any:
    return False if _spreads(run) else None


@meaning.derive(
    f.parallel.backend, f.parallel.dp, source="transformers 5.23 device_map: layers on GPUs"
)
def spread(run: Cells) -> Any:
    if not _spreads(run) or run[loop.wraps] or launcher_of(run) not in (None, PLAIN):
        return None
    return (
        None
        if run[f.parallel.world] == 1
        else {f.parallel.backend: "device_map_pp", f.parallel.dp: 1}
    )


# -- batches ---------------------------------------------------------------------------------------

# What keeps the gradients of a micro batch from being reduced: torch 2.9 distributed/fsdp/fully_sharded_data_parallel.py
# and _fully_shard/_fully_shard.py, accelerate 1.15 accelerator.py accumulate, lightning 2.5 fabric/fabric.py.
_WAITS = re.compile(
    r"\bno_sync\b|\bset_requires_gradient_sync\b|\bno_backward_sync\b|\baccumulate\b"
)


@meaning.derive(
    _F.sync_every_micro, source="torch 2.9 distributed/fsdp/_runtime_utils.py _post_backward_hook"
)
def reduces_each(run: Cells) -> Any:
    """A loop that never asks its wrapper to wait has the gradients of each micro batch reduced and sharded."""
    is_written_out = _is(run, "torch", "accelerate", "fabric")
    if not is_written_out or run[f.batch.grad_accum] in (None, 1):
        return None
    return None if run.once(_may_wait) else True


def _may_wait(blocks: list[Block]) -> bool:
    return any(_WAITS.search(each.source.text) for each in scripts_of(blocks))


@meaning.derive(f.batch.grad_accum)
def accumulation(run: Cells) -> Any:
    steps = run[loop.accumulates] or run[acc.grad_accum]
    if uses_deepspeed(run) and run[ds.grad_accum]:
        return run[ds.grad_accum]
    return steps


@accumulation.written
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not run.says(loop.accumulates):
        raise CannotEdit("the script itself has to accumulate gradients")
    return {loop.accumulates: steps}


@meaning.override(f.batch.micro, source="accelerate 1.15 data_loader.py: split_batches")
def share_of_loader(run: Cells) -> Any:
    """The loader's batch is all ranks' together where an Accelerator splits it."""
    size, ranks = run[f.batch.micro], run[f.parallel.dp]
    if not run[loop.splits] or size is None or ranks is None:
        return None
    return max(1, size // ranks)


usual.constant(f.batch.grad_accum, 1, "no call of the script accumulates gradients")


# -- mixed precision -------------------------------------------------------------------------------


@meaning.derive(shared.amp)
def amp(run: Cells) -> Any:
    if run[loop.amp] is not None:
        return "bf16" if run[loop.amp] == "fp8" else run[loop.amp]
    if _is(run, "accelerate"):
        return accelerate_amp(run)
    if _is(run, "fabric", "lightning"):
        return None
    if _is_raw(run) and run[loop.param_dtype] in ("bf16", "fp16"):
        return run[loop.param_dtype]
    if run[loop.autocasts] in ("bf16", "fp16") and not run[loop.autocast_off]:
        return run[loop.autocasts]
    return "no"


@meaning.derive(_P.autocast, source="FSDP's own mixed precision casts what it gathers")
def autocast(run: Cells) -> Any:
    if not _is_raw(run):
        return None
    return run[loop.autocasts] in ("bf16", "fp16") and not run[loop.autocast_off]


def _gathers_stored(blocks: list[Block]) -> bool:
    """Whether the wrapper gets no dtype to gather in."""
    policies = [block for block in blocks if block.table is MIXED]
    if policies:
        return not any(
            block.mapping.open_ended or block.mapping.entries.keys() & {"param_dtype", "0"}
            for block in policies
        )
    wrappers = [block for block in blocks if block.table in (FSDP1, FSDP2)]
    return not any(
        block.mapping.open_ended
        or any(
            key in block.mapping.entries and not _is_none(block.mapping.entries[key])
            for key in ("mixed_precision", "mp_policy", "6")
        )
        for block in wrappers
    )


def _is_none(entry: Entry) -> bool:
    return isinstance(entry.value, Scalar) and entry.value.value is None


@meaning.derive(
    _P.gathered,
    source="torch 2.1 to 2.9 distributed/fsdp/_flat_param.py unshard, _fully_shard/_fsdp_param.py: param_dtype None",
)
def gathered(run: Cells) -> Any:
    """Autocast casts what a module computes with, and not what FSDP gathers for it: without a dtype of its own that
    is as it is stored."""
    if not _is_raw(run) or not run[_P.autocast]:
        return None
    if run[loop.param_dtype]:
        return run[loop.param_dtype]
    stored = run[_P.param]
    is_plain = stored in ("fp32", "bf16", "fp16")
    return stored if is_plain and run.once(_gathers_stored) else None


@meaning.derive(_P.comm, source=_TORCH_FSDP)
def reduced_in(run: Cells) -> Any:
    """In a dtype of its own, else as it is gathered."""
    if not _is_raw(run):
        return None
    return run[loop.reduce_dtype] or run[loop.param_dtype] or run[_P.gathered]


@meaning.derive(shared.loads)
def cast(run: Cells) -> Any:
    """The dtype after the script has cast the model as a whole."""
    return run[loop.casts]


# -- branches --------------------------------------------------------------------------------------


def _open_branches(blocks: list[Block]) -> tuple[tuple[Any, Origin], ...]:
    """Calls that only running tells whether they are made."""
    known = {n for b in blocks if b.table is SWITCHES for n in b.mapping.entries}
    known |= options_of(blocks).keys()
    return tuple(
        (block.table, Origin("explicit", block, None, _entry_of(block)))
        for block in blocks
        if _is_open(block, known)
    )


def _is_open(block: Block, known: AbstractSet[str]) -> bool:
    guards, arms = guards_of(block.mapping), arms_of(block.mapping)
    return len(guards) < len(arms) or any(name not in known for name, _ in guards)


def _entry_of(block: Block) -> Entry:
    word = block.table.name
    return Entry(word, block.anchor, Scalar(block.anchor, UNKNOWN), block.anchor)


_BY_BRANCH = {
    f.checkpointing.mode: (CHECKPOINTS, WRAPS_CHECKPOINTS),
    f.trainable.method: (ADAPTER,),
    loop.wraps: (FSDP1, FSDP2, DDP),
}


@meaning.said(*_BY_BRANCH)
def in_open_branch(run: Cells, field: Any, said: Said) -> Said:
    """What a call does that stands in a branch which only running takes is not known."""
    if said is not None:
        return said
    for table, origin in run.once(_open_branches):
        if any(table is each for each in _BY_BRANCH[field]) and reaches(run, table):
            return origin
    return said


# -- checkpointing ---------------------------------------------------------------------------------


@meaning.derive(f.checkpointing.mode)
def checkpointing(run: Cells) -> Any:
    return "full" if run[hf.checkpointing] or run[loop.checkpoints] else None


usual.constant(f.checkpointing.mode, "none", "no call of the script checkpoints activations")


@meaning.derive(f.checkpointing.reentrant)
def reentrant(run: Cells) -> Any:
    if run[hf.reentrant] is not None:
        return run[hf.reentrant]
    if run[loop.checkpoints]:
        return False
    return not run.has(NOT_REENTRANT, noted=False) if run[hf.checkpointing] else None


@meaning.written(f.checkpointing.mode)
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode != "full" or run.block_with(hf.checkpointing) is None:
        raise CannotEdit("the script itself has to call model.gradient_checkpointing_enable()")
    return {hf.checkpointing: True}


# -- evaluation ------------------------------------------------------------------------------------


@usual.derive(f.eval.enabled, f.eval.strategy, source="nothing in the script evaluates")
def never_evaluates(run: Cells) -> Any:
    """What a script calls of another module (``evaluate(model)``) is named in it too."""
    if run[loop.evaluates] is not False:
        return None
    return {f.eval.enabled: False, f.eval.strategy: "no"}


# -- loss ------------------------------------------------------------------------------------------

usual.constant(f.loss.logits_materialised, "full", "transformers' own loss on labels")
usual.constant(f.loss.upcast_fp32, True, "transformers 5.23 loss/loss_utils.py:61")


@usual.override(f.loss.upcast_fp32, source="torch 2.9 nn/functional.py cross_entropy")
def takes_narrow_logits(run: Cells) -> Any:
    """Autocast, and models of transformers before 4.46, make them fp32 all the same."""
    return False if run[loop.narrow_logits] and run.has(NARROW_LOGITS, noted=False) else None


meaning.cannot_say("the script computes its loss itself", f.loss.logits_materialised)

usual.constant(f.objective.kind, "sft", "one model, and the loss that it computes")


_BY_CODE = {
    f.objective.kind: loop.own_loss,
    f.loss.logits_materialised: loop.own_loss,
    f.seq.max_len: loop.own_loss,
    f.parallel.cp: loop.splits_samples,
    f.trainable.method: loop.freezes,
}


@meaning.said(*_BY_CODE)
def by_own_code(run: Cells, field: Any, said: Said) -> Said:
    """What code of the script's own makes of a field may be anything; PEFT freezes all but adapters
    by itself."""
    if said is not None or (field == f.trainable.method and reaches(run, ADAPTER)):
        return said
    found = run.said(_BY_CODE[field])
    if field == f.trainable.method and isinstance(found, Origin):
        return replace(found, source=CHOSEN_BY_CODE)
    return found


@meaning.override(
    f.trainable.method, f.trainable.names, source="torch 2.9 nn/parameter.py: requires_grad"
)
def left_to_train(run: Cells) -> Any:
    """A loop over all parameters that switches off those whose names have none of some parts."""
    parts = run[loop.trained_by_name]
    if not parts or reaches(run, ADAPTER):
        return None
    names = tuple(f".*{re.escape(part)}" for part in parts)
    return {f.trainable.method: "freeze", f.trainable.names: names}


def _at_centre(run: Cells, why: str) -> Said:
    kind = run.setting(loop.kind)
    return None if kind is None else replace(kind.origin, source=why)


@meaning.said(_F.wrap)
def wrapped_as_launched(run: Cells, field: Any, said: Said) -> Said:
    """Accelerate's plugin takes the policy that it is not given from its launcher."""
    if said is not None or not _has(run, FSDP_PLUGIN) or launcher_of(run) is not None:
        return said
    return _at_centre(run, _UNSEEN)


@meaning.said(f.parallel.pp)
def stages(run: Cells, field: Any, said: Said) -> Said:
    """DeepSpeed's PipelineModule, or a class of it, cuts the model into as many stages as the script computes, and
    leaves as many ranks fewer to share the batch (DeepSpeed edaa7221 runtime/pipe/module.py)."""
    if said is not None or not run.once(_pipelines):
        return said
    return _at_centre(run, "how many stages PipelineModule has is not followed")


def _pipelines(blocks: list[Block]) -> bool:
    return any(
        _PIPELINE.search(b.document.source.text)
        for b in blocks
        if isinstance(b.document, PythonDocument)
    )


_UNSEEN = "accelerate launch takes sharding and precision from options, a file or a default of the machine"


@meaning.said(f.parallel.backend)
def as_launched(run: Cells, field: Any, said: Said) -> Said:
    """An Accelerator is what its launcher makes it: where no line here starts the script nobody sees whether it shards. A
    line that does and says nothing of it leaves the choice to what ``accelerate config`` left on the machine (accelerate
    1.15 commands/launch.py _validate_launch_command), for this loop as for any trainer: who shards says so."""
    if said is not None or _has(run, FSDP_PLUGIN, DEEPSPEED_PLUGIN):
        return said
    if _is(run, "torch") and run[loop.joins] and not _has(run, DDP, FSDP1, FSDP2):
        return _at_centre(run, "the processes that the script joins share the model somehow")
    if not _is(run, "accelerate"):
        return said
    is_said = _has(run, ACCELERATE) or distributed_type(run) is not None
    if launcher_of(run) is not None or is_said:
        return said
    return _at_centre(run, _UNSEEN)


usual.constant(f.objective.ref_model, "none", "no other model is loaded")
usual.constant(f.seq.packing, "none", "samples are batched one by one")
usual.constant(f.seq.pad, "longest", "the usual collator pads to the longest sample")
usual.constant(f.parallel.ddp.bucket_view, False, "torch 2.9 DistributedDataParallel")
