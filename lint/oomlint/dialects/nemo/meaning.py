"""What NeMo 1 makes of its keys about the model, its ranks, dtypes and where it lies, and how its
configs say a wish.

Read from NVIDIA/NeMo v1.23.0 and v2.2.1 (the last releases with ``examples/nlp``); ``NM`` below is
its ``nemo`` package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import DTYPES, machine
from oomlint.dialects.common.world import world
from oomlint.dialects.machine.launcher_meaning import launcher_of
from oomlint.dialects.machine.meaning import launch_all_visible
from oomlint.dialects.machine.visible import visible_gpus
from oomlint.dialects.meaning import Left, Meaning, Said, Wishes
from oomlint.dialects.megatron.dimensions import dimensions
from oomlint.dialects.megatron.fields import mg
from oomlint.dialects.megatron.parallel import degrees, global_batch, limits
from oomlint.dialects.nemo.keys import BUILDER, NEMO, OTHER_MODELS, SHIPPED, SOURCE, own, section
from oomlint.dialects.nemo.training import training
from oomlint.dialects.setting import Origin, Setting
from oomlint.errors import CannotEdit
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

one_device = Meaning()
"""Behind what launchers say."""

meaning = Meaning(
    training, world, launch_all_visible, one_device, dimensions, degrees, global_batch, limits
)

# -- ranks -----------------------------------------------------------------------------------------

_LIGHTNING = "PyTorch Lightning: trainer.devices and num_nodes are 1"


@one_device.derive(f.parallel.gpus_per_node, source=_LIGHTNING)
def devices(run: Cells) -> Any:
    return visible_gpus(run) if run.is_auto(f.parallel.gpus_per_node) else 1


@one_device.derive(f.parallel.nodes, source=_LIGHTNING)
def nodes(run: Cells) -> Any:
    return 1


def _value(said: Said) -> int | None:
    return said.value if isinstance(said, Setting) else None


@meaning.said(f.parallel.nodes, f.parallel.gpus_per_node)
def ranks_of_command_line(run: Cells, field: Any, said: Said) -> Said:
    """A YAML that no command of ours starts keeps ``devices: 1`` for the command line to change;
    where the degrees need more ranks, it will."""
    per_node = run.stated(f.parallel.gpus_per_node)
    if launcher_of(run) is not None or isinstance(per_node, Left):
        return said
    needed = 1
    for degree in (f.parallel.tp, f.parallel.pp, f.parallel.cp):
        needed *= run[degree] or 1
    ranks = _value(per_node) or run[machine.gpus_per_node] or 1
    ranks *= _value(run.stated(f.parallel.nodes)) or run[machine.nodes] or 1
    if ranks % needed == 0:
        return said
    total = -(-max(needed, 8) // needed) * needed
    count = max(1, total // 8) if field == f.parallel.nodes else min(total, 8)
    why = "trainer.devices is too few for the model's degrees: the command line will say more"
    origin = Origin("assumed", run.block_with(field), source=why)
    return Setting(count, origin, (), Level.ASSUMED)


# -- the model -------------------------------------------------------------------------------------


@meaning.derive(mg.untied)
def has_own_head(run: Cells) -> Any:
    return not run[own.shares]


@meaning.derive(mg.other)
def other_model(run: Cells) -> Any:
    return any(
        name in OTHER_MODELS
        for block in run.blocks
        if block.table is NEMO
        for name in section(block.mapping, "model")
    )


meaning.always(f.objective.ref_model, "none", SOURCE)


@meaning.derive(f.objective.kind)
def objective(run: Cells) -> Any:
    tunes = run[own.sft_length] is not None or run.says(f.trainable.method)
    return "sft" if tunes else "pretrain"


@meaning.derive(f.model.from_scratch)
def from_scratch(run: Cells) -> Any:
    return run[f.model.id] is None


_KERNELS = (own.engine, own.flash, own.mcore)


def _leaves_kernel_open(run: Cells) -> bool:
    return run[f.model.id] is not None and not any(map(run.says, _KERNELS))


@meaning.derive(f.model.attn_impl, source=SHIPPED)
def attention(run: Cells) -> Any:
    """Transformer Engine, megatron.core or a switch bring flash attention."""
    if _leaves_kernel_open(run):
        return None
    flash = any(run[switch] for switch in _KERNELS)
    return "flash2" if flash or run[f.checkpointing.mode] == "selective_op" else "eager"


@meaning.assume(f.model.attn_impl, why="the restored model's own config decides")
def attention_of_checkpoint(run: Cells) -> Any:
    return "flash2" if _leaves_kernel_open(run) else None


@attention.written
def _(kernel: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kernel != "flash2":
        raise CannotEdit("NeMo has one switch, for flash attention")
    return {own.flash: True}


# -- what is trained -------------------------------------------------------------------------------

meaning.constant(f.trainable.method, "full", SOURCE)
meaning.always(f.quant.method, "none", SOURCE)

_TARGETS = {
    "attention_qkv": ("q_proj", "k_proj", "v_proj"),
    "attention_dense": ("o_proj",),
    "mlp_fc1": ("gate_proj", "up_proj"),
    "mlp_fc2": ("down_proj",),
    "attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
    "all": ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
}


@meaning.derive(f.trainable.r, f.trainable.targets, source="NeMo parts/peft_config.py")
def adapters(run: Cells) -> Any:
    if run[f.trainable.method] not in ("lora", "qlora"):
        return None
    targets = run[own.targets] or ("attention_qkv",)
    names = tuple(name for target in targets for name in _TARGETS.get(target, (target,)))
    return {f.trainable.r: run[own.rank] or 32, f.trainable.targets: names}


# -- sharding --------------------------------------------------------------------------------------

_F = f.parallel.fsdp


def _steps_in_shards(run: Cells) -> bool:
    return run[f.optimizer.name] in ("distributed_fused_adam", "mcore_distributed_optim")


def _is_o2(run: Cells) -> bool:
    return bool(run[own.o2]) and run[own.precision] in ("bf16", "fp16") and not run[own.fsdp]


@meaning.derive(f.parallel.backend, source=BUILDER)
def backend(run: Cells) -> Any:
    """FSDP where it is asked for; half-precision weights with a copy in the optimizer (O2), or a
    distributed optimizer; else Lightning's DDP."""
    if run[own.fsdp]:
        return "fsdp1"
    if _is_o2(run) or _steps_in_shards(run):
        return "megatron"
    return "ddp" if (run[f.parallel.world] or 1) > 1 else "none"


@meaning.derive(_F.version, _F.strategy, _F.wrap, _F.limit_all_gathers, source=BUILDER)
def sharding(run: Cells) -> Any:
    if not run[own.fsdp]:
        return None
    return {
        _F.version: 1,
        _F.strategy: run[own.strategy],
        _F.wrap: "transformer",
        _F.limit_all_gathers: True,
    }


@meaning.default(_F.state_dict, source=BUILDER)
def state_dict(run: Cells) -> Any:
    return "full" if run[own.fsdp] else None


@meaning.derive(f.offload.params, f.offload.optimizer)
def offloading(run: Cells) -> Any:
    if not run[own.fsdp]:
        return None
    device = "cpu" if run[_F.cpu_offload] else "none"
    return {f.offload.params: device, f.offload.optimizer: device}


@offloading.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not run[own.fsdp]:
        raise CannotEdit("NeMo offloads to the CPU under FSDP only")
    return {_F.cpu_offload: device == "cpu"}


@meaning.derive(f.parallel.megatron.dist_optimizer)
def shards_optimizer(run: Cells) -> Any:
    if run[own.fsdp]:
        return None
    return _steps_in_shards(run) if _is_o2(run) or _steps_in_shards(run) else None


# -- dtypes ----------------------------------------------------------------------------------------

_P = f.precision


@meaning.derive(*DTYPES, f.load.dtype, f.trainable.adapter_dtype, source=SOURCE)
def dtypes(run: Cells) -> Any:
    """O2 keeps half-precision weights and fp32 copies; without it weights are fp32 and layers
    run under autocast. The distributed Adam keeps but the lower half of a bf16 weight's copy
    (megatron_base_model.py setup_optimization: store_param_remainders)."""
    half, o2 = run[own.precision], _is_o2(run)
    stored = half if o2 else "fp32"
    keeps_half = bool(run[f.parallel.megatron.dist_optimizer]) and half == "bf16"
    grads = run[own.grad_dtype] or "fp32"
    return {
        _P.param: stored,
        _P.grad: grads,
        _P.master: ("bf16" if keeps_half else "fp32") if o2 else "none",
        _P.optim_state: "fp32",
        _P.compute: half,
        _P.logits: half,
        _P.comm: run[own.reduce] if run[own.fsdp] else grads,
        _P.autocast: half in ("bf16", "fp16") and not o2,
        f.load.dtype: stored,
        f.trainable.adapter_dtype: stored if is_adapter_run(run) else None,
    }


meaning.follows(_P.optim_state)
