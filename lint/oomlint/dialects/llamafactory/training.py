"""What LLaMA-Factory makes of its keys about a step, its loss and optimizer, and evaluating.

Read from LLaMA-Factory ff6d4d12 (2026-08-18); ``LF`` below is ``src/llamafactory``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import shared
from oomlint.dialects.liger import check_liger_patches, liger_patches
from oomlint.dialects.llamafactory.bridge import is_megatron
from oomlint.dialects.llamafactory.keys import lf
from oomlint.dialects.llamafactory.releases import DROPS_LABELS
from oomlint.dialects.meaning import Meaning, Sourced, Wishes
from oomlint.dialects.trainer.fields import hf
from oomlint.dialects.trainer.optimizers import optimizers
from oomlint.dialects.unsloth.releases import FUSES_LOSS
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

training = Meaning()

# -- activations -----------------------------------------------------------------------------------

_CHECKPOINTING = "LF/model/model_utils/checkpointing.py prepare_model_for_training"


@training.derive(f.checkpointing.mode, source=_CHECKPOINTING)
def checkpointing(run: Cells) -> Any:
    """On by default; Gemma 3n cannot be checkpointed (LF/model/patcher.py patch_model)."""
    is_off = run[lf.no_checkpointing] and not run[hf.checkpointing]
    return "none" if is_off or run[f.model.arch] == "gemma3n" else "full"


@checkpointing.written
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode not in ("full", "none"):
        raise CannotEdit("LLaMA-Factory checkpoints every layer or none")
    if run[f.checkpointing.source] == "megatron":
        raise CannotEdit(
            "Megatron recomputes by recompute_granularity, recompute_method and"
            " recompute_num_layers; set them together"
        )
    if mode == "full" == run[f.checkpointing.mode] and not run.says(lf.no_checkpointing):
        return {}  # it is what every release does where nobody says anything
    return {lf.no_checkpointing: mode == "none"}


@training.derive(f.checkpointing.skips_frozen_layers, source=_CHECKPOINTING)
def checkpoints_trained_layers(run: Cells) -> Any:
    return True if run[f.checkpointing.source] != "fsdp" else None


@training.derive(f.checkpointing.reentrant, source="LF checkpointing.py:168")
def reentrant(run: Cells) -> Any:
    """FSDP2 needs the other kind."""
    return bool(run[lf.reentrant]) and run[f.parallel.backend] != "fsdp2"


@reentrant.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {lf.reentrant: wanted}


@training.derive(f.checkpointing.offload, f.offload.activations, source="LF checkpointing.py:61")
def offloaded_inputs(run: Cells) -> Any:
    """The inputs of layers are kept in host memory, as Unsloth's own does."""
    moves = (run[lf.unsloth_gc] or run[lf.unsloth]) and run[f.checkpointing.mode] != "none"
    device = "cpu" if moves else "none"
    return {f.checkpointing.offload: device, f.offload.activations: device}


@training.written(f.checkpointing.offload)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if device == "disk":
        raise CannotEdit("LLaMA-Factory has no checkpoints on disk")
    own: dict[Any, Any] = {lf.unsloth_gc: device == "cpu"}
    if device == "cpu" and run[lf.no_checkpointing]:
        own[lf.no_checkpointing] = False
    return own


@training.derive(
    f.parallel.ddp.find_unused,
    source="transformers 5.8 trainer.py, and LF/hparams/parser.py for LoRA",
)
def looks_for_unused(run: Cells) -> Any:
    return run[f.checkpointing.mode] == "none" and not is_adapter_run(run)


@training.override(f.model.attn_impl, source="LF attention.py:36")
def attention_of_gpt_oss(run: Cells) -> Any:
    return "flash3" if run[f.model.arch] == "gpt_oss" else None


@training.default(f.model.attn_impl, source="LF/model/model_utils/attention.py:31")
def attention(run: Cells) -> Any:
    return "flash2" if run[f.model.arch] == "gemma2" else "sdpa"


# -- sequences -------------------------------------------------------------------------------------


@training.derive(f.seq.packing)
def packing(run: Cells) -> Any:
    """Pre-training packs unless it is told not to (LF/hparams/parser.py)."""
    if run[lf.neat_packing]:
        return "neat"
    packs = run[lf.packing]
    if packs is None:
        packs = run[lf.stage] == "pt"
    return "concat" if packs else "none"


@training.derive(f.seq.pad)
def padding(run: Cells) -> Any:
    return "longest" if run[f.seq.packing] == "none" else "max_len"


training.constant(f.seq.truncation, "cut", "LF/data/processor")

# -- loss ------------------------------------------------------------------------------------------

# LF/model/model_utils/liger_kernel.py apply_liger_kernel.
_LIGER_PATCHES = frozenset(
    "gemma gemma2 gemma3 gemma3_text glm glm4 glm4v gpt_oss granite llama llava mistral mixtral mllama "
    "olmo2 paligemma phi3 qwen2 qwen2_5_vl qwen2_vl qwen3 qwen3_5 qwen3_5_moe qwen3_moe qwen3_next".split()
)

# LF/model/loader.py: stages that need the logits keep liger's other kernels only.
_STAGES_WITHOUT_LOGITS = ("pt", "sft")


def _uses_liger(run: Cells) -> bool:
    return bool(run[lf.liger] or run[hf.liger]) and liger_patches(run, _LIGER_PATCHES)


def _has_loss_of_unsloth(run: Cells) -> bool:
    is_plain = run[lf.stage] in _STAGES_WITHOUT_LOGITS and not run[f.loss.label_smoothing]
    return is_plain and bool(run[lf.unsloth])


@training.derive(f.loss.logits_materialised, f.loss.liger.flce, source="LF/model/loader.py")
def logits(run: Cells) -> Any:
    is_plain = run[lf.stage] in _STAGES_WITHOUT_LOGITS and not run[f.loss.label_smoothing]
    liger = is_plain and _uses_liger(run)
    is_fused = liger or (_has_loss_of_unsloth(run) and run.has(FUSES_LOSS))
    return {
        f.loss.logits_materialised: "fused" if is_fused else "full",
        f.loss.liger.flce: liger,
    }


@training.written(f.loss.logits_materialised)
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if run[lf.stage] not in _STAGES_WITHOUT_LOGITS:
        raise CannotEdit("LLaMA-Factory fuses the loss in the stages pt and sft only")
    check_liger_patches(run, _LIGER_PATCHES)
    return {lf.liger: True}


@training.derive(f.loss.liger.rope, f.loss.liger.rms, f.loss.liger.swiglu)
def liger(run: Cells) -> Any:
    return dict.fromkeys(
        (f.loss.liger.rope, f.loss.liger.rms, f.loss.liger.swiglu), _uses_liger(run)
    )


@training.derive(f.loss.algorithm, source="LF/train/rm/trainer.py:98")
def loss_of_value_head(run: Cells) -> Any:
    """The value head of a reward model stands beside the model's own head."""
    return "dropped" if run[lf.stage] == "rm" else None


@training.override(
    f.loss.algorithm,
    f.loss.upcast_fp32,
    source="unsloth kernels/cross_entropy_loss.py Fast_CrossEntropyLoss.backward",
)
def kernel_of_unsloth(run: Cells) -> Any:
    if not _has_loss_of_unsloth(run) or run[f.loss.logits_materialised] != "full":
        return None
    return {f.loss.algorithm: "overwritten", f.loss.upcast_fp32: False}


@training.derive(f.loss.twice)
def own_loss_too(run: Cells) -> Any:
    """Labels among its inputs make the model compute a loss beside the one of preference."""
    if run[lf.stage] != "dpo":
        return None
    if run.has(DROPS_LABELS):
        return False
    return Sourced(True, DROPS_LABELS.source)


# -- optimizer -------------------------------------------------------------------------------------

_SWITCHES = {
    lf.galore: "galore",
    lf.apollo: "apollo",
    lf.badam: "badam",
    lf.adam_mini: "adam_mini",
    lf.muon: "muon",
}
_RANKS = {lf.galore: lf.galore_rank, lf.apollo: lf.apollo_rank}
_LAYERWISE = {lf.galore: lf.galore_layerwise, lf.apollo: lf.apollo_layerwise}
_PROPER = {lf.galore: "GaLore", lf.apollo: "APOLLO"}

_CUSTOM = "LF/train/trainer_utils.py create_custom_optimizer"


def _switched_on(run: Cells) -> Any:
    """The switch of an optimizer that replaces ``optim``."""
    return next((switch for switch in _SWITCHES if run[switch]), None)


@training.override(f.optimizer.kind, source=_CUSTOM)
def custom_optimizer(run: Cells) -> Any:
    return _SWITCHES.get(_switched_on(run))


@training.written(f.optimizer.kind)
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    """``optim`` counts only while no switch of another optimizer is on."""
    if is_megatron(run):
        raise CannotEdit("Megatron trains with an optimizer of its own, whatever optim says")
    said = optimizers.writers[f.optimizer.kind](kind, run, wishes)
    return {**said, **{switch: False for switch in _SWITCHES if run[switch]}}


@training.derive(shared.stops, source="LF/hparams/parser.py get_train_args")
def refuses_layerwise(run: Cells) -> Any:
    switch = _switched_on(run)
    if switch not in _LAYERWISE or not run[_LAYERWISE[switch]] or (run[f.parallel.world] or 1) < 2:
        return None
    return f"LLaMA-Factory refuses layer-wise {_PROPER[switch]} in several processes"


@training.derive(f.optimizer.rank, f.optimizer.in_backward, source=_CUSTOM)
def low_rank_gradients(run: Cells) -> Any:
    switch = _switched_on(run)
    if switch not in _RANKS:
        return None
    return {
        f.optimizer.rank: run[_RANKS[switch]],
        f.optimizer.in_backward: run[_LAYERWISE[switch]],
    }


@training.derive(f.optimizer.fused, source=_CUSTOM)
def steps_unfused(run: Cells) -> Any:
    return False if _switched_on(run) not in (None, lf.badam) else None


# -- evaluating ------------------------------------------------------------------------------------


@training.derive(f.eval.max_new_tokens)
def generated_tokens(run: Cells) -> Any:
    return run[lf.max_new_tokens] if run[f.eval.generate] else None
