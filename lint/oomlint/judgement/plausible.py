"""What a field that nobody wrote down plausibly is instead, and what of it is unlikely."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.common.training import CHOSEN_BY_CODE
from oomlint.memory.build import skeleton
from oomlint.memory.stand_ins import stand_in
from oomlint.models.names import one_of_mixture
from oomlint.models.pictures import cut_of
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.plan.model import ModelDims
from oomlint.runs.run import Run

_LORA = {f.trainable.method: "lora", f.trainable.r: 16, f.trainable.targets: "all_linear"}
# What a script leaves to be trained that freezes by code of its own is often the end of the model.
_LAST = {f.trainable.method: "freeze", f.trainable.last_layers: 1}
_HALF = {f.precision.param: "bf16", f.precision.grad: "bf16", f.precision.optim_state: "bf16"}
_WHOLE = {f.precision.param: "fp32", f.precision.grad: "fp32", f.precision.optim_state: "fp32"}
_SPREAD = {f.parallel.backend: "device_map_pp", f.parallel.dp: 1}
_ZERO_3 = {f.parallel.backend: "zero", f.parallel.zero.stage: 3}
# Of Llama 2 and of Qwen 2.5 (their config.json): of a model whose size alone is known, the logits are
# anything between.
_VOCABULARIES = (32_000, 152_064)
# Of bytes, as of nanoGPT's characters (3adf61e data/shakespeare_char/prepare.py: 65), to those of Qwen 2.5.
_ANY_VOCABULARY = (256, 152_064)
# Pixels of an image where nothing scales it down, beside what its processor lets through: COCO's val2017/000000039769.jpg,
# which transformers' own examples load, and a page of A4 (ISO 216) at the 200 dots an inch that pdf2image 1.17 takes.
_IMAGES = (640 * 480, 1654 * 2339)
# Of fields that move the peak, what else they are in runs that people write.
PLAUSIBLE: Mapping[Any, tuple[Mapping[Any, Any], ...]] = {
    f.trainable.method: ({f.trainable.method: "full"}, _LORA),
    f.trainable.targets: ({f.trainable.targets: "all_linear"},),
    f.quant.method: ({f.quant.method: "none"}, {f.quant.method: "bnb4"}),
    f.load.dtype: ({f.load.dtype: "fp32", **_WHOLE}, {f.load.dtype: "bf16", **_HALF}),
    f.precision.param: (_HALF, _WHOLE),
    f.precision.master: ({f.precision.master: "none"}, {f.precision.master: "fp32"}),
    f.optimizer.kind: ({f.optimizer.kind: "adamw"}, {f.optimizer.kind: "adamw8bit"}),
    f.parallel.backend: ({f.parallel.backend: "ddp"}, _ZERO_3),
    f.parallel.zero.stage: ({f.parallel.zero.stage: 0}, {f.parallel.zero.stage: 3}),
    f.parallel.fsdp.strategy: (
        {f.parallel.fsdp.strategy: "full"},
        {f.parallel.fsdp.strategy: "no_shard"},
    ),
    f.offload.optimizer: ({f.offload.optimizer: "none"}, {f.offload.optimizer: "cpu"}),
    f.offload.params: ({f.offload.params: "none"}, {f.offload.params: "cpu"}),
    f.parallel.tp: ({f.parallel.tp: 1}, {f.parallel.tp: 8}),
    f.parallel.pp: ({f.parallel.pp: 1}, {f.parallel.pp: 8}),
    f.parallel.cp: ({f.parallel.cp: 1}, {f.parallel.cp: 8}),
    f.parallel.ep: ({f.parallel.ep: 1}, {f.parallel.ep: 8}),
    f.parallel.world: (
        {f.parallel.world: 1, f.parallel.dp: 1, f.parallel.nodes: 1, f.parallel.gpus_per_node: 1},
        {f.parallel.world: 64, f.parallel.dp: 64, f.parallel.nodes: 8, f.parallel.gpus_per_node: 8},
    ),
    f.batch.micro: ({f.batch.micro: 1}, {f.batch.micro: 16}),
    # Instructions and their answers have some hundred tokens (168 on the mean in alpaca-gpt4-data-en,
    # benchmarks/accuracy/lengths.py): a length that nobody limits is rather below 2,048 than above.
    f.eval.samples: ({f.eval.samples: 100}, {f.eval.samples: 16_600}),
    f.seq.max_len: ({f.seq.max_len: 256}, {f.seq.max_len: 1024}, {f.seq.max_len: 8192}),
    f.seq.packing: ({f.seq.packing: "none"}, {f.seq.packing: "varlen"}),
    f.checkpointing.mode: ({f.checkpointing.mode: "none"}, {f.checkpointing.mode: "full"}),
    f.loss.logits_materialised: (
        {f.loss.logits_materialised: "full"},
        {f.loss.logits_materialised: "fused"},
    ),
    f.eval.enabled: ({f.eval.enabled: False},),
    f.eval.keeps_logits: ({f.eval.keeps_logits: False}, {f.eval.keeps_logits: True}),
    f.model.attn_impl: ({f.model.attn_impl: "eager"}, {f.model.attn_impl: "flash2"}),
    f.objective.ref_model: ({f.objective.ref_model: "none"}, {f.objective.ref_model: "copy"}),
    # One whose size nobody knows is taken to be as large as the trained model (memory/beside.py).
    f.objective.reward_model: (
        {f.objective.reward_model: "none"},
        {
            f.objective.reward_model: "as large as the trained model",
            f.objective.reward_params: None,
        },
    ),
    # Of which the processor has a word.
    f.model.vision.max_pixels: (),
    # A group of completions, of which the run says how many there are.
    f.objective.pairs_per_sample: (),
}


def plausible_of(run: Run, leaf: Any) -> tuple[Mapping[Any, Any], ...]:
    """What else a field plausibly is, and all that changes with it."""
    if leaf == f.objective.pairs_per_sample:
        group = run.plan.objective.rollout.n
        return ({leaf: 1}, {leaf: group}) if group else ()
    dims = run.plan.model.dims
    if leaf == f.model.vision.max_pixels:
        return tuple({leaf: pixels} for pixels in _sizes_of_images(dims))
    if leaf == f.quant.method and dims is not None and dims.moe is not None:
        # Who loads a mixture in 4 bit may have its experts packed as well, as Unsloth's copies are.
        return (*PLAUSIBLE[leaf], {leaf: "bnb4", f.quant.quantises_moe_experts: True})
    if leaf == f.trainable.method and _is_chosen_by_code(run):
        return (*PLAUSIBLE[leaf], _LAST)
    if leaf == f.parallel.backend and run.level(f.load.device_map) is Level.UNREAD:
        return (*PLAUSIBLE[leaf], _SPREAD)
    if leaf != f.model.dims:
        return PLAUSIBLE[leaf]
    if dims is not None and not dims.params_total and _is_assumed_shape(run):
        return tuple({leaf: replace(dims, vocab=tokens)} for tokens in _ANY_VOCABULARY)
    if dims is None or not dims.params_total:
        return ()
    sizes = {dims.params_total, one_of_mixture(str(run.plan.model.id)) or dims.params_total}
    shapes = (
        replace(stand_in(replace(dims, params_total=size)), vocab=vocabulary)
        for size in sizes
        for vocabulary in _VOCABULARIES
    )
    return tuple({leaf: each} for each in shapes if _has_layers(each))


def _sizes_of_images(dims: ModelDims | None) -> tuple[int, ...]:
    """Pixels that an image plausibly has for a model that takes each at its own size, up to what its processor lets
    through."""
    cut = None if dims is None else cut_of(dims)
    if cut is None or cut.side or not cut.most:
        return ()
    return (*(pixels for pixels in _IMAGES if pixels < cut.most), cut.most)


def _is_chosen_by_code(run: Run) -> bool:
    """Whether code of the run's script says of each parameter whether it is trained."""
    origin = run.origin(f.trainable.method)
    return origin is not None and origin.source == CHOSEN_BY_CODE


def _is_assumed_shape(run: Run) -> bool:
    """Whether somebody says a shape, and nobody the vocabulary. A published model, which its count shows, has the
    vocabulary that it has: there it is open which model it is."""
    return run.level(f.model.dims) is Level.ASSUMED and not is_by_name(run)


def is_by_name(run: Run) -> bool:
    """Whether a name alone tells which model it is. Else its shape is said, and the vocabulary is what nobody says."""
    leaf: Any = f.model.dims
    return run.level(leaf) is Level.ASSUMED and leaf in run.roots(leaf)


def _has_layers(dims: ModelDims) -> bool:
    """Whether a model of this size has room for layers beside the tables of its vocabulary."""
    built = skeleton(dims)
    return built is not None and all(
        linear.outputs for block in built.blocks for linear in block.linears
    )
