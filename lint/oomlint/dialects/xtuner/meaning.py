"""What xtuner makes of its settings, and how they say a wish.

Read from InternLM/xtuner v0.1.21 (2024-06-17) and v0.1.23; ``XT`` below is its ``xtuner`` package, ``MM``
mmengine 0.10.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run, uses_deepspeed
from oomlint.dialects.common.fields import asked, shared
from oomlint.dialects.common.precision import precision
from oomlint.dialects.common.quantization import quantization
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.deepspeed.meaning import deepspeed_json
from oomlint.dialects.machine.fields import env_
from oomlint.dialects.machine.launcher_keys import PLAIN
from oomlint.dialects.machine.launcher_meaning import launcher_of
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.xtuner.keys import MODEL, TRAIN, own
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

meaning = Meaning(world, launch_one_process, quantization, precision, deepspeed_json, batch)

# -- ranks -----------------------------------------------------------------------------------------

_STARTS = "xtuner v0.1.21 xtuner/entry_point.py:274: torchrun by NNODES and NPROC_PER_NODE"


@meaning.derive(f.parallel.gpus_per_node, source=_STARTS)
def processes(run: Cells) -> Any:
    if launcher_of(run) not in (PLAIN, None) or run.is_unread(env_.nproc_per_node):
        return None
    return run[env_.nproc_per_node]


@meaning.derive(f.parallel.nodes, source=_STARTS)
def nodes(run: Cells) -> Any:
    if launcher_of(run) not in (PLAIN, None) or run.is_unread(env_.nnodes):
        return None
    return run[env_.nnodes]


@meaning.derive(f.parallel.backend, source=f"{TRAIN}: DeepSpeedStrategy, else mmengine's DDP")
def backend(run: Cells) -> Any:
    if uses_deepspeed(run):
        return "zero"
    ranks = run[f.parallel.world]
    return None if ranks is None else "ddp" if ranks > 1 else "none"


@meaning.derive(f.load.zero3_init, source="xtuner v0.1.21 xtuner/engine/_strategy/deepspeed.py")
def builds_in_shards(run: Cells) -> Any:
    """It makes transformers' HfDeepSpeedConfig before the model is built."""
    return uses_deepspeed(run) and run[f.parallel.zero.stage] == 3


@meaning.written(f.parallel.zero.stage)
def _(stage: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not uses_deepspeed(run):
        raise CannotEdit(f"the line that starts it says so: --deepspeed deepspeed_zero{stage}")
    return {f.parallel.zero.stage: stage}


meaning.cannot_say("xtuner builds in shards under ZeRO-3 by itself", f.load.zero3_init)
meaning.cannot_say("xtuner shards with DeepSpeed, not with FSDP", f.parallel.fsdp.state_dict)

# -- what is trained -------------------------------------------------------------------------------

_KINDS = {"DPO": "dpo", "RewardModel": "rm", "ORPO": "orpo"}


def class_of(run: Cells) -> str:
    return str(run[own.model] or "").rpartition(".")[2]


@meaning.derive(f.objective.kind, source="xtuner v0.1.21 xtuner/model")
def objective(run: Cells) -> Any:
    return _KINDS.get(class_of(run), "sft")


@meaning.derive(f.objective.pairs_per_sample)
def pairs(run: Cells) -> Any:
    return 1 if class_of(run) in _KINDS else None


@meaning.derive(f.objective.ref_model, source="xtuner v0.1.21 xtuner/model/dpo.py")
def reference_model(run: Cells) -> Any:
    if class_of(run) != "DPO":
        return "none"
    return "shared_adapter_off" if is_adapter_run(run) else "copy"


@meaning.derive(f.objective.ref_dtype)
def reference_dtype(run: Cells) -> Any:
    return run[f.load.dtype] if run[f.objective.ref_model] == "copy" else None


@meaning.derive(f.quant.requested_bits, asked.bits)
def requested_bits(run: Cells) -> Any:
    bits = 4 if run[own.bits4] else 8 if run[own.bits8] else None
    return {f.quant.requested_bits: bits, asked.bits: bits}


meaning.cannot_say("quantization_config is an object of the config's own", f.quant.method)


@meaning.derive(f.trainable.method, source=MODEL)
def method(run: Cells) -> Any:
    if not run.mentions(own.lora):
        return "full"
    return "qlora" if run[f.quant.method] == "bnb4" else "lora"


@meaning.derive(f.quant.prepares_kbit, source=f"{MODEL} _prepare_for_lora")
def widens_what_is_frozen(run: Cells) -> Any:
    """peft makes what is not packed fp32 (peft 0.21.2 utils/other.py)."""
    return True if run.mentions(own.lora) else None


@meaning.derive(f.trainable.targets, source=f"{MODEL}: find_all_linear_names")
def targets(run: Cells) -> Any:
    if not run.mentions(own.lora):
        return None
    return run[own.targets] or "all_linear"


@targets.written
def _(names: Any, run: Cells, wishes: Wishes) -> Wishes:
    if names == "all_linear":
        raise CannotEdit("without target_modules xtuner adapts every linear layer")
    return {own.targets: names}


@meaning.derive(f.trainable.by_name, source=f"{MODEL}: find_all_linear_names")
def finds_layers_itself(run: Cells) -> Any:
    """It hands PEFT the names of the linear layers that it found."""
    return True if run[f.trainable.targets] == "all_linear" else None


@meaning.default(
    f.trainable.r, f.trainable.alpha, f.trainable.dropout, source="peft 0.21.2 LoraConfig"
)
def adapter_defaults(run: Cells) -> Any:
    if not run.mentions(own.lora):
        return None
    return {f.trainable.r: 8, f.trainable.alpha: 8.0, f.trainable.dropout: 0.0}


# -- dtypes ----------------------------------------------------------------------------------------

_AUTO = (
    "xtuner v0.1.21 xtuner/tools/utils.py auto_dtype_of_deepspeed_config: bf16 where the GPU can"
)
_FLASH = f"{MODEL} _prepare_for_flash_attn: bf16 where flash-attn is installed"
_FLASHING = frozenset(
    {
        "internlm2", "llama", "gemma", "mistral", "mixtral", "qwen2", "qwen2_moe", "starcoder2",
        "phi3", "deepseek_v2",
    }
)  # fmt: skip


@meaning.derive(shared.amp, source=_AUTO)
def mixed_precision(run: Cells) -> Any:
    if uses_deepspeed(run):
        return "bf16"
    is_amp = str(run[own.wrapper] or "").endswith("AmpOptimWrapper")
    return (run[own.amp] or "fp16") if is_amp else "no"


@meaning.derive(f.load.dtype, source=_FLASH)
def loaded(run: Cells) -> Any:
    """Architectures that it knows to have flash attention come in 16 bit, whatever the config says."""
    return "bf16" if _flashes(run) else run[own.load_dtype] or "fp32"


@loaded.written
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    if _flashes(run):
        raise CannotEdit("xtuner loads what has flash attention in bf16")
    return {own.load_dtype: dtype}


def _flashes(run: Cells) -> bool:
    """XT/model/sft.py SUPPORT_FLASH_ATTN2; packages are taken to be installed, as its
    requirements for training have them."""
    kernel = run.base(f.model.attn_impl) if run.says(f.model.attn_impl) else None
    if kernel is not None:
        return kernel == "flash2"
    dims = run[f.model.dims]
    return dims is not None and dims.arch in _FLASHING


@meaning.derive(f.model.attn_impl, source=f"{MODEL} _prepare_for_flash_attn")
def attention(run: Cells) -> Any:
    return "flash2" if _flashes(run) else None


# -- optimizer -------------------------------------------------------------------------------------

_OPTIMIZERS = {
    "AdamW": "adamw",
    "Adam": "adamw",
    "DeepSpeedCPUAdam": "adamw",
    "FusedAdam": "adamw",
    "PagedAdamW32bit": "paged_adamw",
    "PagedAdamW8bit": "paged_adamw8bit",
    "AdamW8bit": "adamw8bit",
    "Lion": "lion",
    "SGD": "sgd",
}


@meaning.derive(f.optimizer.kind)
def optimizer(run: Cells) -> Any:
    name = str(run[own.optimizer] or "AdamW").rpartition(".")[2]
    return _OPTIMIZERS.get(name, "other")


meaning.cannot_say("another optimizer is another import of the config", f.optimizer.kind)
meaning.always(f.optimizer.fused, False, "torch.optim.AdamW, as the configs make it")
meaning.cannot_say("the configs make their optimizer without a switch for it", f.optimizer.fused)

# -- batches and sequences -------------------------------------------------------------------------


@meaning.derive(f.seq.packing, f.seq.pad, source="xtuner v0.1.21 xtuner/dataset/collate_fns")
def packing(run: Cells) -> Any:
    if run[own.packs]:
        return {f.seq.packing: "varlen" if run[own.varlen] else "concat", f.seq.pad: "none"}
    return {f.seq.packing: "none", f.seq.pad: "longest"}


meaning.constant(f.batch.grad_accum, 1, "mmengine 0.10 OptimWrapper accumulative_counts")
meaning.constant(f.checkpointing.reentrant, True, "transformers gradient_checkpointing_enable")


@meaning.written(f.checkpointing.mode)
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode not in ("full", "none"):
        raise CannotEdit("xtuner checkpoints every layer or none")
    return {f.checkpointing.mode: mode}


meaning.cannot_say("xtuner offloads no activations", f.offload.activations, f.checkpointing.offload)

meaning.always(f.loss.logits_materialised, "full", MODEL)
meaning.cannot_say("the model computes its loss from whole logits", f.loss.logits_materialised)
meaning.constant(f.loss.upcast_fp32, True, "transformers 4.40 modeling_llama.py: logits.float()")

# -- evaluating and saving -------------------------------------------------------------------------

meaning.always(f.eval.enabled, False, "EvaluateChatHook generates, and counts no loss")


@meaning.derive(f.save.strategy, f.save.every, source="mmengine 0.10 CheckpointHook")
def saving(run: Cells) -> Any:
    every = run[own.interval]
    if every is not None and every <= 0:
        return {f.save.strategy: "end"}
    return {f.save.strategy: "steps" if every else "epoch", f.save.every: every}


@meaning.written(f.save.every)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.interval: int(steps)}


@meaning.derive(f.save.keep, source="mmengine 0.10 CheckpointHook max_keep_ckpts")
def kept_checkpoints(run: Cells) -> Any:
    limit = run[own.keep]
    return limit if limit is not None and limit > 0 else "all"


@kept_checkpoints.written
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.keep: -1 if count == "all" else count}


@meaning.derive(f.save.full_gather, f.save.format, source="mmengine 0.10 _strategy/deepspeed.py")
def written_by(run: Cells) -> Any:
    """DeepSpeed's save_checkpoint writes every rank's part, whatever its config gathers."""
    return {f.save.full_gather: False, f.save.format: "ds_zero" if uses_deepspeed(run) else "bin"}


@meaning.derive(f.save.contents, source="mmengine 0.10 CheckpointHook save_optimizer")
def saved(run: Cells) -> Any:
    return ("adapter" if is_adapter_run(run) else "model", "optimizer")
