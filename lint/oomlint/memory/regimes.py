"""How the blocks of a run compute: its regime, and that of its vision tower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.memory.layers import FLASH_HEAD, Kernel, Regime, interned
from oomlint.memory.parameters import DecoderStructure
from oomlint.memory.trained import fused_roles, is_frozen_tower
from oomlint.models.pictures import TYPICAL_PIXELS
from oomlint.plan import Plan
from oomlint.plan.fields import f as fields
from oomlint.plan.library_changes import ADDED_IN_PLACE

if TYPE_CHECKING:
    from oomlint.memory.facts import Facts

# Until then MatMul4Bit kept its input for backward (bitsandbytes pull request 1270).
_FREES_INPUT = (0, 43, 2)
# Whose policies cast adapters with the rest of a module.
_CASTING = ("fsdp1", "fsdp2", "zero", "megatron")
_KERNEL_PACKAGES = {
    "delta": "flash-linear-attention", "mamba1": "mamba-ssm", "mamba2": "mamba-ssm",
}  # fmt: skip


def regime_of(f: Facts, model: DecoderStructure) -> Regime:
    """How the blocks of a model compute."""
    bytes_per = f.bytes_per
    plan, trained, ranks = f.plan, f.trained, f.ranks
    widened = _is_widened(f)
    half = bytes_per.compute == 2 and not (widened and not plan.precision.autocast)
    kernel, dense = _kernel(f, model, half=half)
    mixers = {kind for b in model.blocks for kind in b.mixers}
    for kind, package in _KERNEL_PACKAGES.items():
        if kind in mixers:
            why = "its kernels are taken to be installed; PyTorch's own loop needs far more"
            f.assume("model.kernels", package, why)
    t = plan.trainable
    liger = plan.loss.liger
    base = not trained.lora and trained.method != "none"
    packed = plan.quant.method not in (None, "none") and not plan.quant.dequantised_on_load
    # Inductor's min-cut partitioner recomputes elementwise chains as fused kernels do;
    # Megatron-core and Transformer Engine have such kernels of their own (megatron/core/fusions).
    fuses = bool(plan.compile.enabled) or ranks.backend == "megatron"
    # The second version of LLaMA-Adapter trains norms and a scale and bias everywhere
    # (arXiv 2304.15010; litgpt/adapter_v2.py).
    is_second_adapter = trained.method == "adapter" and t.targets == "all_linear"
    rank = t.r or (8 if trained.lora else 0)
    return interned(Regime(
        stream=4 if widened or bytes_per.stream == 4 else 2,
        compute=4 if bytes_per.compute == 4 else 2,
        amp=bool(plan.precision.autocast) and bytes_per.compute == 2,
        train_base=base,
        train_norms=base or is_second_adapter,
        train_experts=base,
        rank=rank,
        targets=trained.roles if trained.lora and trained.method != "adapter" else frozenset(),
        dropout=bool(t.dropout),
        adapter=_adapter_width(f),
        dora=trained.method == "dora",
        fused=fused_roles(t, trained.roles) if trained.method in ("lora", "qlora") else frozenset(),
        stack_ranks=(trained.stacked.up * rank, trained.stacked.down * rank),
        # mcore-bridge 1.6.5 tuners/lora.py: grouped linear layers for both factors.
        grouped_adapters=t.target_params == "experts",
        adapted_router=trained.stacked.router,
        copied_stacks=f.older(ADDED_IN_PLACE.package, ADDED_IN_PLACE.since),
        scattered=_scattered(plan, model),
        kernel=kernel,
        dense_mask=dense,
        bias_share=1 / max(1, f.samples.rows) if model.traits.biased_scores and kernel == "efficient" else 0.0,
        masks_window=_masks_window(plan, kernel, f.samples.length),
        experts=plan.model.experts_impl or "grouped",
        fused_norm=bool(liger.rms or fuses),
        fused_rope=bool(liger.rope or fuses),
        fused_glu=bool(liger.swiglu or fuses),
        # Kernels that make no scores of their own compute a batch as they compute one sample.
        batched=f.samples.rows > 1 and kernel in ("math", "eager"),
        quantised=packed,
        packed_experts=packed and f.experts_packed,
        apart_experts=packed and f.experts_apart,
        keeps_input=packed
        and plan.quant.method == "bnb4"
        and f.older("bitsandbytes", _FREES_INPUT),
        rescaled=is_second_adapter,
        tensor_parallel=ranks.tp,
        expert_tensor_parallel=max(1, min(ranks.tp, plan.parallel.etp or ranks.tp)),
        sequence_parallel=bool(plan.parallel.sp),
        keeps_gathered=bool(plan.parallel.sp) and ranks.tp > 1 and ranks.backend == "fsdp2",
        recomputed=_recomputed_parts(plan),
        scratch=plan.env.kernel_scratch is not False,
    ))  # fmt: skip


def tower_regime_of(f: Facts, regime: Regime) -> tuple[Regime | None, bool]:
    """How the vision tower computes, and whether backward goes through it."""
    if f.tower is None:
        return None, False
    plan, trained = f.plan, f.trained
    roles = trained.tower_roles if regime.targets else frozenset()
    whole = regime.train_base and trained.method != "freeze" and not is_frozen_tower(plan)
    trains = whole or trained.tower
    c = plan.checkpointing
    asked = (trained.lora or bool(c.input_grads)) and (c.mode or "none") != "none"
    fused: Kernel = "flash" if regime.compute == 2 else "efficient"
    of_tower = interned(
        replace(
            regime,
            train_base=trains,
            train_norms=trains,
            targets=roles,
            dense_mask=False,
            masks_window=False,
            kernel="eager" if regime.kernel == "eager" else fused,
            # Each rank sees all patches (verl models/mcore/qwen2_5_vl/vision_config.py).
            sequence_parallel=False,
        )
    )
    if plan.model.vision.max_pixels is None and not f.tower.cut.side:
        f.assume(
            fields.model.vision.max_pixels, TYPICAL_PIXELS,
            "no limit is set; one image a sample, as large as the model card proposes",
        )  # fmt: skip
    return of_tower, trains or bool(roles) or asked


def _is_widened(f: Facts) -> bool:
    """Whether packed layers stand among fp32 ones, so that blocks hand fp32 on: prepare_model_for_kbit_training makes
    all that is not packed so (peft 0.21.2 utils/other.py), and bitsandbytes' layers give back what they were given
    (bitsandbytes 0.50 nn/modules.py Linear4bit.forward, autograd/_functions.py MatMul8bitLt.forward)."""
    quant = f.plan.quant
    is_packed = quant.method in ("bnb4", "bnb8") and not quant.dequantised_on_load
    return bool(quant.prepares_kbit) and is_packed and f.ranks.backend not in _CASTING


def _adapter_width(f: Facts) -> int:
    """Bytes of an adapter weight as its module sees it: gathered or cast with the rest."""
    is_cast = f.ranks.backend in _CASTING
    return 4 if (f.bytes_per.stream if is_cast else f.bytes_per.adapter) == 4 else 2


def _scattered(plan: Plan, model: DecoderStructure) -> float:
    """The share of a fused projection's outputs that LitGPT's adapter covers."""
    targets = plan.trainable.targets
    if not model.traits.scattered_adapter or not isinstance(targets, tuple):
        return 1.0
    kv = "k_proj" in targets, "v_proj" in targets
    heads = model.heads * ("q_proj" in targets) + model.kv_heads * sum(kv)
    return heads / (model.heads + 2 * model.kv_heads) or 1.0


def _masks_window(plan: Plan, kernel: Kernel, length: float) -> bool:
    """Whether SDPA gets a mask for sliding windows: from the window's length on
    (transformers 5.23 masking_utils.py, _ignore_causal_mask_sdpa)."""
    dims = plan.model.dims
    window = dims.sliding_window if dims is not None else None
    runs_sdpa = plan.model.attn_impl in (None, "sdpa")
    return kernel == "flash" and runs_sdpa and length >= (window or 1 << 62)


def _shape_is_known(plan: Plan) -> bool:
    """Of a model known by its size alone nobody says that it has scores of all tokens with all: there are
    linear attentions and state spaces of every size."""
    dims = plan.model.dims
    return dims is not None and bool(dims.layers)


def _kernel(f: Facts, model: DecoderStructure, *, half: bool) -> tuple[Kernel, bool]:
    """Which attention kernel runs, and whether it is given a dense mask.

    PyTorch's choice (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp): flash needs
    half precision, no mask and equal head sizes up to ``FLASH_HEAD``; memory-efficient needs as many
    key heads as query heads; all else is materialised.
    """
    plan, samples, traits = f.plan, f.samples, model.traits
    impl = plan.model.attn_impl
    packed = plan.seq.packing not in (None, "none")
    padded = plan.seq.pad in ("longest", "max_len") and samples.rows > 1 and not packed
    if impl in ("flash2", "flash3", "flex", "xformers", "sage", "ring", "cudnn"):
        return "flash", False
    if impl == "eager" and _shape_is_known(plan):
        return "eager", False
    since = traits.sdpa_since
    if impl is None and traits.refuses_sdpa and (not since or f.older("transformers", since)):
        return "eager", False
    if traits.biased_scores:
        return "efficient", padded
    grouped = model.kv_heads != model.heads
    if model.arch == "falcon" and model.kv_heads == 1:
        return "math", padded
    if model.mla is not None or model.head_dim > FLASH_HEAD:
        return "efficient", padded
    if padded:
        return "efficient", True
    if not half:
        return ("math" if grouped else "efficient"), False
    return "flash", False


def _recomputed_parts(plan: Plan) -> frozenset[str]:
    """Parts of each block that are run again under selective recomputation."""
    if not recomputes_parts(plan):
        return frozenset()
    c = plan.checkpointing
    return frozenset(c.recompute_modules or ()) & {"mlp", "moe"}


def recomputes_parts(plan: Plan) -> bool:
    """Whether parts of a block are recomputed by their names: Megatron's, and prime-rl's targets."""
    c = plan.checkpointing
    return c.mode == "selective_op" and (c.source == "megatron" or c.recompute_modules is not None)


def checkpointed_share(plan: Plan) -> float:
    """The share of the layers whose activations are recomputed."""
    c = plan.checkpointing
    mode = c.mode or "none"
    if mode in ("full", "selective_op", "budget"):
        if recomputes_parts(plan):
            # Core attention, of which flash attention keeps nothing, and parts of a block.
            return 0.0
        return 1.0
    if mode in ("every_n", "selective_layers", "block_partial"):
        return 1.0 / max(1, c.every_n or 2)
    return 0.0
