"""What LLM Foundry and Composer make of their keys about ranks, the model and its dtypes.

Read from llm-foundry 0.22.0.dev0 (8c8dd48f) and Composer 640518880 (2026-04-29); ``LF`` below
is the package ``llmfoundry``, ``CO`` the package ``composer``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import machine
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.llm_foundry.keys import MCLI, SOURCE, own
from oomlint.dialects.llm_foundry.mpt import is_mpt, mpt_model
from oomlint.dialects.llm_foundry.sharding import check_shards, has_fsdp, sharding
from oomlint.dialects.llm_foundry.training import training
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.machine.meaning import launch_all_visible
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

# ``composer`` starts a process for each visible GPU unless told how many (CO/cli/launcher.py:46).
meaning = Meaning(mpt_model, sharding, training, world, launch_all_visible, batch)

_P = f.precision

# -- ranks -----------------------------------------------------------------------------------------


@meaning.derive(f.parallel.nodes)
def nodes_of_composer(run: Cells) -> Any:
    """``--world_size`` counts the ranks of all nodes."""
    is_told = run.mentions(f.parallel.gpus_per_node)
    per_node = run[f.parallel.gpus_per_node] if is_told else run[machine.gpus_per_node]
    total = run[own.world_size]
    return max(1, total // per_node) if total and per_node else None


@meaning.derive(f.parallel.nodes, source="MosaicML: eight GPUs a node")
def nodes_of_mosaicml(run: Cells) -> Any:
    """Nodes of MosaicML's clusters have eight GPUs; what the user names instead counts first."""
    if not run.has_block_of(MCLI) or run[machine.nodes] is not None:
        return None
    gpus = run[launch.total_processes]
    return max(1, -(-gpus // 8)) if gpus else None


# -- the model -------------------------------------------------------------------------------------


@meaning.derive(f.model.from_scratch)
def starts_from_scratch(run: Cells) -> Any:
    return is_mpt(run) or not run[own.pretrained]


@meaning.derive(f.model.attn_impl)
def attention_of_mpt(run: Cells) -> Any:
    return run[own.mpt_attention] or "flash2" if is_mpt(run) else None


@meaning.derive(
    f.model.attn_impl,
    source=f"{SOURCE} models/hf/hf_base.py: eager where neither key says otherwise",
)
def attention(run: Cells) -> Any:
    """MPT's own code on the hub, trusted by default (LF/models/hf/hf_causal_lm.py:77), has the
    key of the MPT of this framework."""
    if run[own.flash2]:
        return "flash2"
    return run[own.attention] or run[own.mpt_attention] or "eager"


@attention.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if is_mpt(run):
        if wanted not in ("flash2", "eager"):
            raise CannotEdit("MPT's attn_impl is flash or torch")
        return {own.mpt_attention: wanted}
    if wanted == "flash2":
        return {own.flash2: True}
    if run[own.flash2]:
        return {own.flash2: False, own.attention: wanted}
    return {own.attention: wanted}


@meaning.derive(f.compile.enabled)
def compiles(run: Cells) -> Any:
    return run[own.compile] is not None


# -- loading ---------------------------------------------------------------------------------------

meaning.always(f.load.dtype, "fp32", f"{SOURCE} models/consts.py")


@meaning.derive(f.load.cpu_ram_efficient)
def first_rank_loads(run: Cells) -> Any:
    """Every rank loads the weights unless ``mixed``."""
    return run[own.init_device] == "mixed"


@first_rank_loads.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not wanted:
        return {own.init_device: "cpu"}
    check_shards(run, "init_device: mixed")
    if is_mpt(run) or not run[own.pretrained]:
        raise CannotEdit("a model that starts from scratch is built with init_device: meta")
    return {own.init_device: "mixed"}


@meaning.derive(f.load.meta_init)
def begins_empty(run: Cells) -> Any:
    return run[own.init_device] == "meta" and has_fsdp(run)


# -- what is trained -------------------------------------------------------------------------------

meaning.always(f.quant.method, "none", f"{SOURCE} train.py refuses load_in_8bit")
meaning.cannot_say("LLM Foundry quantizes for evaluation only", f.quant.method)


def _has_adapter(run: Cells) -> bool:
    return run.mentions(own.peft) or run.mentions(f.trainable.r)


@meaning.derive(f.trainable.method)
def method(run: Cells) -> Any:
    if not _has_adapter(run):
        return "full"
    if run[own.dora]:
        return "dora"
    return "lora" if run.get(own.peft, "LORA").upper() == "LORA" else "other"


_LORA = {f.trainable.r: 8, f.trainable.alpha: 8.0, f.trainable.dropout: 0.0}


@meaning.default(*_LORA, source="peft LoraConfig")
def lora(run: Cells) -> Any:
    return _LORA if _has_adapter(run) else None


@meaning.derive(f.trainable.targets)
def targets(run: Cells) -> Any:
    if not _has_adapter(run):
        return None
    named = run[own.targets]
    return "all_linear" if named == ("all-linear",) else named or "peft_default"


# -- dtypes ----------------------------------------------------------------------------------------

_AUTOCAST = "Composer 640518880 core/precision.py: autocast around weights as loaded"


def _stored(run: Cells) -> str:
    """Weights, gradients and states stay as loaded."""
    return run[own.weights] or "fp32"


def _half(run: Cells) -> str | None:
    """What autocast and FSDP's policy compute in (CO/distributed/mosaic_parallelism.py:59)."""
    halves = {"amp_bf16": "bf16", "amp_fp16": "fp16", "amp_fp8": "bf16"}
    return halves.get(run[own.precision])


@meaning.derive(_P.param, _P.grad, _P.optim_state, source=_AUTOCAST)
def as_loaded(run: Cells) -> Any:
    return dict.fromkeys((_P.param, _P.grad, _P.optim_state), _stored(run))


@meaning.written(_P.param)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted not in ("bf16", "fp16", "fp32"):
        raise CannotEdit(f"LLM Foundry cannot hold weights in {wanted}")
    return {own.weights: wanted}


meaning.follows(_P.optim_state)
meaning.always(_P.master, "none", _AUTOCAST)


@meaning.derive(f.trainable.adapter_dtype, source=_AUTOCAST)
def adapters(run: Cells) -> Any:
    return _stored(run) if is_adapter_run(run) else None


@meaning.derive(_P.compute, _P.logits, _P.autocast, source=_AUTOCAST)
def computes(run: Cells) -> Any:
    half = _half(run)
    computed = half or "fp32"
    return {_P.compute: computed, _P.logits: computed, _P.autocast: half is not None}


@meaning.derive(_P.fp8_train)
def trains_in_fp8(run: Cells) -> Any:
    return "te" if run[own.precision] == "amp_fp8" else None


@meaning.derive(_P.comm)
def communication(run: Cells) -> Any:
    if run[f.parallel.backend] != "fsdp1":
        return None
    half = _half(run)
    return half if half and run[own.policy] == "PURE" else "fp32"
