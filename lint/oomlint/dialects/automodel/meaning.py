"""What NeMo AutoModel's recipes make of their keys: who shards, dtypes, batches, what is trained, the loss and saving.

Read from NVIDIA-NeMo/Automodel 36044ad3 (2026-08-22); ``AM`` below is its ``nemo_automodel`` package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.automodel.keys import CONFIG, RECIPE, SOURCE, own
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.adapters import checkpoint_layers
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import DTYPES, RECOMPUTATION, machine, shared
from oomlint.dialects.common.offloading import to_cpu
from oomlint.dialects.common.world import batch, keep_share, share_of, steps_through, world
from oomlint.dialects.machine.fields import scene
from oomlint.dialects.machine.launcher_meaning import launcher_of
from oomlint.dialects.machine.meaning import launch_all_visible
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

meaning = Meaning(world, launch_all_visible, batch)

_PARALLELIZER = f"{SOURCE} nemo_automodel/components/distributed/parallelizer.py"
_MODEL = f"{SOURCE} nemo_automodel/_transformers/auto_model.py"
_LORA = f"{SOURCE} nemo_automodel/components/_peft/lora.py"
_OPTIM = f"{SOURCE} nemo_automodel/components/optim/optimizer.py"
_SAVES = f"{SOURCE} nemo_automodel/components/checkpoint"

# -- ranks -----------------------------------------------------------------------------------------


@meaning.derive(f.parallel.nodes, source=f"{SOURCE} nemo_automodel/components/distributed/mesh.py")
def nodes(run: Cells) -> Any:
    """Where the degrees take more ranks than the machine has: as many nodes as the file says that its authors run it on,
    else as few as hold them. Experts are spread over what data and context parallelism have."""
    per_node = run[machine.gpus_per_node] or run[scene.gpus_per_node]
    there = run[machine.nodes] or run[scene.nodes] or 1
    needed = (
        (run[f.parallel.pp] or 1)
        * (run[f.parallel.tp] or 1)
        * max(run[f.parallel.cp] or 1, run[f.parallel.ep] or 1)
    )
    if launcher_of(run) is not None or per_node is None or needed <= per_node * there:
        return None
    told, fewest = run[own.bench_nodes] or run[own.ci_nodes], -(-needed // per_node)
    return told if told and told >= fewest and _divides(run, told * per_node) else fewest


def _divides(run: Cells, ranks: int) -> bool:
    """Nodes of other machines have other numbers of GPUs; the batch tells whether these are meant."""
    whole, rows = run[own.global_batch], run[own.local] or 1
    of_sample = (run[f.parallel.pp] or 1) * (run[f.parallel.tp] or 1) * (run[f.parallel.cp] or 1)
    return whole is None or not whole % (rows * max(1, ranks // of_sample))


@meaning.derive(
    shared.stops,
    source=f"{SOURCE} nemo_automodel/components/training/step_scheduler.py StepScheduler",
)
def batch_that_does_not_divide(run: Cells) -> Any:
    whole, micro, dp = run[own.global_batch], run[own.local], run[f.parallel.dp]
    if whole is None or micro is None or dp is None or not whole % (micro * dp):
        return None
    return f"global_batch_size {whole} is not divisible by {micro} x {dp} data-parallel ranks"


# -- who shards ------------------------------------------------------------------------------------


def _strategy(run: Cells) -> str:
    """By its name, or before 0.3 by the class of its manager."""
    manager = (run[own.manager] or "").lower()
    if "megatron" in manager:
        return "megatron_fsdp"
    if "ddp" in manager:
        return "ddp"
    name = (run[own.strategy] or "").lower().replace("-", "_")
    return "megatron_fsdp" if name == "mfsdp" else name


def _is_alone(run: Cells) -> bool:
    return run[f.parallel.world] == 1


def _shards(run: Cells) -> bool:
    return run[f.parallel.backend] == "fsdp2"


@meaning.derive(f.parallel.backend, source=f"{CONFIG} _STRATEGY_MAP")
def backend(run: Cells) -> Any:
    """One rank is left as it is. Megatron-FSDP shards what FSDP2 does, with ``zero_dp_strategy`` 3; what the others keep
    whole was not read."""
    name = _strategy(run)
    if run[f.parallel.world] is None or (
        name == "megatron_fsdp" and run[own.zero] not in (None, "3")
    ):
        return None
    if _is_alone(run):
        return "none"
    return "ddp" if name == "ddp" else "fsdp2"


@meaning.derive(
    f.parallel.dp_replicate, source=f"{SOURCE} nemo_automodel/components/distributed/mesh.py"
)
def replicas(run: Cells) -> Any:
    count = run[own.replicas]
    return count if count and count > 1 else None


_F = f.parallel.fsdp


@meaning.derive(
    _F.version, _F.wrap, _F.reshard_after_forward, _F.strategy, _F.state_dict, _F.sync_every_micro, _F.cpu_offload,
    source=f"{_PARALLELIZER} apply_fsdp2_sharding_recursively",
)  # fmt: skip
def fully_sharded(run: Cells) -> Any:
    """Layer by layer; under a pipeline weights stay gathered. Until the last micro batch gradients are added up whole."""
    if not _shards(run):
        return None
    said = run[own.reshard]
    reshards = (run[f.parallel.pp] or 1) <= 1 if said is None else said
    kind = "full" if reshards else "grad_op"
    if run[f.parallel.dp_replicate]:
        kind = "hybrid" if reshards else "hybrid_grad_op"
    return {
        _F.version: 2,
        _F.wrap: "transformer",
        _F.reshard_after_forward: reshards,
        _F.strategy: kind,
        _F.state_dict: "sharded",
        _F.sync_every_micro: not _defers(run),
        _F.cpu_offload: _offloads(run),
    }


def _defers(run: Cells) -> bool:
    """AutoModel's classes with experts leave the outermost module unwrapped where ``moe.wrap_outer_model`` is off, which
    ``get_sync_ctx`` (AM/components/distributed/utils.py) then passes over, unless ``enable_fsdp_optimizations`` defers by itself
    (AM/components/moe/fsdp_mixin.py). A pipeline defers always (torch distributed/pipelining/stage.py)."""
    if (run[f.parallel.pp] or 1) > 1:
        return True
    if _has_experts(run) and run[own.defers_experts]:
        return True
    is_wrapped = not _has_experts(run) or run[own.wraps_outer] is not False
    return bool(run[own.defers]) and is_wrapped


def _has_experts(run: Cells) -> bool:
    dims = run[f.model.dims]
    return dims is not None and dims.moe is not None


@meaning.written(_F.sync_every_micro)
def _(every: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.defers: not every}


@meaning.written(_F.reshard_after_forward)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.reshard: bool(wanted)}


def _offloads(run: Cells) -> bool:
    return bool(run[own.offload])


@meaning.derive(
    f.offload.params, f.offload.optimizer, source=f"{CONFIG} FSDP2Config.offload_policy"
)
def offloading(run: Cells) -> Any:
    device = "cpu" if _shards(run) and _offloads(run) else "none"
    return {f.offload.params: device, f.offload.optimizer: device}


@offloading.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if to_cpu(device, "AutoModel offloads"):
        raise CannotEdit(
            "distributed.offload_policy is a call that no example turns on; see CPUOffloadPolicy"
        )
    raise CannotEdit("an offload_policy is taken out by hand")


meaning.cannot_say(
    "AutoModel shards with FSDP2, Megatron-FSDP or not at all, never with DeepSpeed", f.parallel.zero.stage,
    f.load.zero3_init,
)  # fmt: skip
meaning.cannot_say("AutoModel saves shards", _F.state_dict)
meaning.cannot_say("AutoModel pins no memory for what it offloads", f.offload.pin_memory)

# -- the model -------------------------------------------------------------------------------------


@meaning.derive(
    f.model.id, source=f"{SOURCE} nemo_automodel/recipes/llm/train_ft.py _get_model_name"
)
def model(run: Cells) -> Any:
    return run[own.config_id]


@meaning.derive(f.model.from_scratch, source=f"{_MODEL} from_config")
def from_scratch(run: Cells) -> Any:
    factory = run[own.factory]
    return None if factory is None else factory.endswith((".from_config", "build_gpt2_model"))


@meaning.default(
    f.model.attn_impl,
    source=f"{SOURCE} nemo_automodel/_transformers/kernel_patches.py:71: where it is installed",
)
def attention(run: Cells) -> Any:
    return {"sdpa": "sdpa", "flex": "flex"}.get(run[own.backend_attention] or "", "flash2")


@meaning.derive(
    f.model.experts_impl,
    source=f"{SOURCE} nemo_automodel/components/moe/experts.py: GroupedExperts",
)
def experts(run: Cells) -> Any:
    return "weighted" if _has_experts(run) else None


_LIGER = (f.loss.liger.rope, f.loss.liger.rms, f.loss.liger.swiglu)


@meaning.derive(*_LIGER, source=f"{_MODEL}: use_liger_kernel")
def liger(run: Cells) -> Any:
    """Not under tensor or context parallelism, nor where AutoModel has a class of its own (auto_model.py:584), which a
    ``backend`` is for."""
    alone = (run[f.parallel.tp] or 1) * (run[f.parallel.cp] or 1) == 1
    return dict.fromkeys(
        _LIGER, bool(run[own.liger]) and alone and run[own.backend_attention] is None
    )


@meaning.derive(
    f.model.vision.freeze_tower,
    source=f"{SOURCE} nemo_automodel/recipes/vlm/finetune.py freeze_config",
)
def freezes_tower(run: Cells) -> Any:
    return run[own.freezes_vision]


# -- what is trained -------------------------------------------------------------------------------


def _has_adapters(run: Cells) -> bool:
    return run[own.peft] is not None or run.mentions(own.rank)


@meaning.derive(f.trainable.method, source=_LORA)
def method(run: Cells) -> Any:
    if not _has_adapters(run):
        return "full"
    if run[own.dora]:
        return "dora"
    return "qlora" if run[own.load4] or run[own.load8] else "lora"


meaning.constant(f.trainable.target_params, "none", _LORA)


@meaning.derive(
    f.trainable.r,
    f.trainable.alpha,
    f.trainable.dropout,
    f.trainable.targets,
    f.trainable.exclude,
    source=_LORA,
)
def adapter(run: Cells) -> Any:
    """Patterns such as ``*_proj`` are matched against whole names; nothing named is ``*_proj``
    (AM/components/_peft/module_matcher.py)."""
    if not _has_adapters(run):
        return None
    return {
        f.trainable.r: run[own.rank],
        f.trainable.alpha: run[own.alpha],
        f.trainable.dropout: run[own.dropout],
        f.trainable.targets: _targets(run),
        f.trainable.exclude: tuple(
            name.strip("*").removeprefix(".") for name in run[own.exclude] or ()
        )
        or None,
    }


def _targets(run: Cells) -> Any:
    named = tuple(run[own.targets] or ())
    ends = tuple(name.rpartition(".")[2].lstrip("*") for name in named)
    takes_all = run[own.all_linear] or not named or "_proj" in ends or "" in ends
    return "all_linear" if takes_all else checkpoint_layers(ends)


@meaning.written(f.trainable.r)
def _(rank: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.rank: rank}


@meaning.derive(f.quant.method, source=f"{SOURCE} nemo_automodel/components/quantization/qlora.py")
def quantization(run: Cells) -> Any:
    if not _has_adapters(run):
        return "none"
    return "bnb4" if run[own.load4] else "bnb8" if run[own.load8] else "none"


# -- dtypes ----------------------------------------------------------------------------------------

_P = f.precision


@meaning.derive(own.kept, source=f"{_MODEL} from_pretrained, from_config")
def kept(run: Cells) -> Any:
    """What the weights are kept in: as asked for, else as the checkpoint has them; made anew, bf16 (auto_model.py:846)."""
    said = run[own.dtype] if run.says(own.dtype) else run[own.config_dtype] or run[own.dtype]
    if said != "auto":
        return said
    if run[f.model.from_scratch]:
        return "bf16"
    published = run[f.model.ckpt_dtype]
    return published if published in ("bf16", "fp32", "fp16") else None


@meaning.assume(own.kept, why="the dtype of the checkpoint is not known")
def usual(run: Cells) -> Any:
    return "bf16"


@meaning.derive(
    *DTYPES, f.load.dtype, f.trainable.adapter_dtype, source=f"{CONFIG} FSDP2Config.mp_policy"
)
def dtypes(run: Cells) -> Any:
    """FSDP2 gathers and computes in ``mp_policy.param_dtype`` and steps what it keeps, in its own dtype; one rank and
    DDP compute in what they keep. Gradients are reduced in fp32, and kept as the weights are. Transformer Engine's Adam
    keeps an fp32 copy unless it is told not to."""
    stored = run[own.kept]
    computes = run[own.param_dtype] if _shards(run) else run[own.autocast] or stored
    quantized = run[f.quant.method] in ("bnb4", "bnb8")
    is_fused = _is_fused_adam(run)
    master = is_fused and run[own.master] is not False and stored != "fp32"
    return {
        _P.param: ("nf4" if run[own.load4] else "int8") if quantized else stored,
        _P.grad: stored,
        _P.master: "fp32" if master else "none",
        _P.optim_state: "fp32" if is_fused else stored,
        _P.compute: computes,
        _P.comm: run[own.reduce_dtype] if _shards(run) else None,
        _P.logits: computes,
        _P.autocast: not _shards(run) and run[own.autocast] is not None,
        f.load.dtype: stored,
        f.trainable.adapter_dtype: (run[own.lora_dtype] or stored) if is_adapter_run(run) else None,
    }


@meaning.written(_P.param)
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    if dtype not in ("bf16", "fp32"):
        raise CannotEdit("AutoModel keeps weights in bf16 or fp32")
    return {own.dtype: dtype}


meaning.follows(_P.optim_state)
meaning.cannot_say("what AutoModel computes in follows from its mp_policy", _P.compute)


@meaning.derive(_P.fp8_train, source=f"{SOURCE} nemo_automodel/components/quantization/fp8.py")
def fp8(run: Cells) -> Any:
    return "torchao" if run[own.fp8] else "none"


# -- the optimizer ---------------------------------------------------------------------------------

_CLASSES = {
    "adam": "adamw", "adamw": "adamw", "fusedadam": "adamw", "sgd": "momentum_sgd", "adamw8bit": "adamw8bit",
    "muon": "muon", "dion": "dion",
}  # fmt: skip


def _class_of(run: Cells) -> str:
    return (run[own.optimizer] or "").rpartition(".")[2].lower()


def _is_fused_adam(run: Cells) -> bool:
    return _class_of(run) == "fusedadam"


@meaning.derive(f.optimizer.kind, f.optimizer.name, source=_OPTIM)
def optimizer(run: Cells) -> Any:
    name = run[own.optimizer]
    if name is None:
        return None
    return {f.optimizer.kind: _CLASSES.get(_class_of(run), "other"), f.optimizer.name: name}


@optimizer.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    raise CannotEdit("the arguments of another optimizer differ; choose its class by hand")


@meaning.override(f.optimizer.foreach, source=f"{_OPTIM} _foreach_for_mesh")
def steps_one_by_one(run: Cells) -> Any:
    return False if (run[f.parallel.tp] or 1) > 1 else None


# -- activations -----------------------------------------------------------------------------------

_C = f.checkpointing
_AC = f"{SOURCE} nemo_automodel/components/distributed/activation_checkpointing.py"


@meaning.derive(*RECOMPUTATION, source=_AC)
def checkpointing(run: Cells) -> Any:
    """``True`` computes every layer of a class of transformers' again, and of AutoModel's own dense classes attention, MLP
    and norms each by itself, whose inputs are kept: more than is counted here."""
    mode = run[own.ac]
    return {
        _C.mode: "selective_op" if mode == "selective" else mode,
        _C.reentrant: False,
        _C.offload: "none",
        f.offload.activations: "none",
    }


@meaning.written(_C.mode)
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode not in ("full", "none"):
        raise CannotEdit("AutoModel computes all of a layer again, or what it selects itself")
    return {own.ac: mode}


meaning.cannot_say("AutoModel offloads no activations", f.offload.activations, _C.offload)


@meaning.derive(f.compile.enabled)
def compiles(run: Cells) -> Any:
    return bool(run[own.compiles] or run[own.layer_compiles])


@compiles.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.compiles: bool(wanted)}


# -- batches and lengths ---------------------------------------------------------------------------


@meaning.derive(f.batch.micro, source=f"{RECIPE} setup")
def micro(run: Cells) -> Any:
    """Of a pipeline the samples that one stage takes at once."""
    if (run[f.parallel.pp] or 1) > 1:
        return run[own.microbatch] or 1
    return run[own.local]


@micro.written
def _(rows: Any, run: Cells, wishes: Wishes) -> Wishes:
    if (run[f.parallel.pp] or 1) > 1:
        return {own.microbatch: rows}
    return {own.local: rows}


@meaning.derive(
    f.batch.grad_accum, source=f"{SOURCE} nemo_automodel/components/training/step_scheduler.py"
)
def accumulation(run: Cells) -> Any:
    return steps_through(share_of(run[own.global_batch], run[f.parallel.dp]), run[f.batch.micro])


@accumulation.written
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return keep_share(steps, run, wishes, "step_scheduler.global_batch_size")


meaning.takes(f.batch.global_, own.global_batch)


@meaning.derive(f.batch.eval_micro, source=f"{RECIPE} setup")
def validated_rows(run: Cells) -> Any:
    return run[own.local]


def _pack(run: Cells) -> int | None:
    return run[own.pack_tokens] or run[own.vlm_pack]


@meaning.derive(f.seq.max_len, source=f"{SOURCE} nemo_automodel/components/datasets")
def longest(run: Cells) -> Any:
    return run[own.mock_tokens] or _pack(run) or run[own.longest]


@longest.written
def _(tokens: Any, run: Cells, wishes: Wishes) -> Wishes:
    for field in (own.mock_tokens, own.pack_tokens, own.vlm_pack):
        if run[field]:
            return {field: tokens}
    return {own.longest: tokens}


@meaning.derive(f.seq.packing, f.seq.pad, source=f"{SOURCE} nemo_automodel/components/datasets")
def padding(run: Cells) -> Any:
    """Packs are filled; samples that are padded to the length, or made up, all have it."""
    if _pack(run):
        return {f.seq.packing: "varlen", f.seq.pad: "max_len"}
    is_whole = run[own.mock_tokens] is not None or run[own.pads] == "max_length"
    return {f.seq.packing: "none", f.seq.pad: "max_len" if is_whole else "longest"}


@meaning.derive(f.data.sets, source=f"{SOURCE} nemo_automodel/components/datasets")
def sets(run: Cells) -> Any:
    name = run[own.dataset_path]
    return (name,) if name else None


# -- objective and loss ----------------------------------------------------------------------------


@meaning.derive(f.objective.kind, f.objective.teacher, source=f"{SOURCE} nemo_automodel/recipes")
def objective(run: Cells) -> Any:
    teacher = run[own.teacher]
    if teacher is not None:
        return {f.objective.kind: "distill", f.objective.teacher: teacher}
    recipe = run[own.recipe] or ""
    if "Encoder" in recipe or "Embed" in recipe:
        return {f.objective.kind: "embedding"}
    return {f.objective.kind: "pretrain" if run[f.model.from_scratch] else "sft"}


@meaning.derive(
    f.loss.logits_materialised,
    f.loss.upcast_fp32,
    f.loss.algorithm,
    source=f"{SOURCE} nemo_automodel/components/loss",
)
def loss(run: Cells) -> Any:
    """Logits of all tokens; ``FusedLinearCrossEntropy`` (cut cross entropy) makes none, and a chunked one casts chunk by
    chunk. A pipeline takes the first instead of the second."""
    name = (run[own.loss] or "").rpartition(".")[2]
    is_fused = "FusedLinear" in name and (run[f.parallel.pp] or 1) <= 1
    return {
        f.loss.logits_materialised: "fused" if is_fused else "full",
        f.loss.upcast_fp32: not is_fused and "Chunked" not in name and run[own.upcast] is not False,
        f.loss.algorithm: "kernel" if name.startswith("TEParallel") else None,
    }


meaning.cannot_say(
    "AutoModel's fused loss is a call with other arguments; choose FusedLinearCrossEntropy by hand",
    f.loss.logits_materialised,
)

# -- loading, evaluating, saving -------------------------------------------------------------------

meaning.always(
    f.load.meta_init,
    True,
    f"{SOURCE} nemo_automodel/_transformers/model_init.py: made on the meta device",
)
meaning.always(
    f.load.cpu_ram_efficient,
    True,
    f"{_SAVES}/checkpointing.py load_base_model: each rank reads its shards",
)
meaning.always(f.load.device_map, "none", _MODEL)
meaning.always(f.eval.keeps_logits, False, f"{RECIPE} _run_validation_epoch")


@meaning.derive(
    f.eval.enabled, f.eval.strategy, f.eval.every, source=f"{RECIPE} run_train_validation_loop"
)
def evaluation(run: Cells) -> Any:
    every = run[own.val_every]
    if every is None or not run.mentions(own.validates):
        return {f.eval.enabled: False, f.eval.strategy: "no"}
    return {f.eval.enabled: True, f.eval.strategy: "steps", f.eval.every: float(every)}


@meaning.derive(
    f.save.strategy, f.save.every, f.save.keep, source=f"{_SAVES}/config.py CheckpointingConfig"
)
def saving(run: Cells) -> Any:
    if run[own.saves] is False:
        return {f.save.strategy: "no"}
    every = run[own.ckpt_every]
    if every is None:
        return {f.save.strategy: "epoch", f.save.keep: run[own.keep] or "all"}
    return {
        f.save.strategy: "steps",
        f.save.every: float(every),
        f.save.keep: run[own.keep] or "all",
    }


@meaning.written(f.save.every)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.ckpt_every: int(steps)}


@meaning.written(f.save.keep)
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.keep: None if count == "all" else count}


@meaning.derive(
    f.save.contents, f.save.save_only_model, f.save.full_gather, f.save.format, f.save.async_
)
def saved(run: Cells) -> Any:
    """Shards of the weights, and of the states by torch's distributed checkpoint."""
    return {
        f.save.contents: ("adapter" if is_adapter_run(run) else "model", "optimizer", "scheduler"),
        f.save.save_only_model: False,
        f.save.full_gather: False,
        f.save.format: "dcp",
        f.save.async_: "thread" if run[own.async_save] else "none",
    }


meaning.cannot_say("AutoModel always saves the optimizer's states", f.save.save_only_model)
