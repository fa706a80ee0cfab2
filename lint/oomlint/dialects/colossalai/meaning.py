"""What the trainers of Colossal-AI's applications make of their options, and how a wish is said in them.

Read from ColossalAI 4f9953be (0.5.0, 2026-04-09); ``C`` below is ``colossalai/``, ``CHAT`` and ``LLAMA`` as in the keys. A
plugin of the booster shards: LowLevelZero is ZeRO-2, Gemini keeps parameters in shards of chunks as ZeRO-3 does, the hybrid
plugin (``3d``) splits layers and takes a stage of its own below that.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oomlint.dialects.cells import Cells
from oomlint.dialects.colossalai.keys import CHAT, LLAMA, LORA_CLASS, PROGRAM_OF, own
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Meaning, Said, Wishes
from oomlint.dialects.setting import Setting
from oomlint.errors import CannotEdit
from oomlint.plan.fields import below, f
from oomlint.plan.library_changes import NARROW_LOGITS

meaning = Meaning(world, launch_one_process, batch)

_ZERO = "ColossalAI 4f9953be colossalai/booster/plugin/low_level_zero_plugin.py, zero/low_level/low_level_optim.py"
_GEMINI = "ColossalAI 4f9953be colossalai/booster/plugin/gemini_plugin.py, zero/gemini"
_HYBRID = "ColossalAI 4f9953be colossalai/booster/plugin/hybrid_parallel_plugin.py"
_ADAM = "ColossalAI 4f9953be colossalai/nn/optimizer/hybrid_adam.py"

_P, _Z = f.precision, f.parallel.zero

# gemini_plugin.py: chunks of 32 Mi elements or more are searched for in a range of 32 Mi more.
_LARGEST_CHUNK = 64 * 2**20
# low_level_zero_plugin.py and hybrid_parallel_plugin.py: buckets of 12 Mi elements.
_BUCKET = 12 * 2**20
_REMEDIES = "the plugin decides what is sharded: zero2, zero2_cpu, gemini or 3d"


def program_of(run: Cells) -> str:
    """``sft`` of ``train_sft.py``; ``llama`` of Colossal-LLaMA's script."""
    names = (PROGRAM_OF.get(block.table.name) for block in run.blocks)
    return next((name for name in names if name), "sft")


def _is_hybrid(run: Cells) -> bool:
    return run[own.plugin] == "3d"


def _is_gemini(run: Cells) -> bool:
    return run[own.plugin] in ("gemini", "gemini_auto")


# -- ranks -----------------------------------------------------------------------------------------


@meaning.derive(f.parallel.tp, source=_HYBRID)
def tensor_parallel(run: Cells) -> Any:
    return run[own.tp] if _is_hybrid(run) else 1


@meaning.derive(f.parallel.pp, f.parallel.pp_schedule, source=_HYBRID)
def pipeline(run: Cells) -> Any:
    return {f.parallel.pp: run[own.pp] if _is_hybrid(run) else 1, f.parallel.pp_schedule: "1f1b"}


@meaning.derive(f.parallel.sp, f.parallel.ulysses, source=f"{_HYBRID}:1056-1083")
def sequence_parallel(run: Cells) -> Any:
    """Two modes share a sequence among tensor-parallel ranks, whatever ``--sp`` says; all_to_all takes ranks of its
    own."""
    is_shared = _is_hybrid(run) and run[own.shares_sequence]
    has_ranks = is_shared and run[own.sp_mode] == "all_to_all"
    return {
        f.parallel.sp: bool(is_shared and not has_ranks),
        f.parallel.ulysses: run[own.sp] if has_ranks else 1,
    }


def _need_hybrid(run: Cells) -> None:
    if not _is_hybrid(run):
        raise CannotEdit("only the plugin 3d splits layers")


@tensor_parallel.written
def _(degree: Any, run: Cells, wishes: Wishes) -> Wishes:
    _need_hybrid(run)
    return {own.tp: degree}


@meaning.written(f.parallel.pp)
def _(degree: Any, run: Cells, wishes: Wishes) -> Wishes:
    _need_hybrid(run)
    return {own.pp: degree}


meaning.cannot_say(
    "the plugin's modes of sequence parallelism take more than one option",
    f.parallel.sp,
    f.parallel.ulysses,
)

# -- batches ---------------------------------------------------------------------------------------


def _is_pipelined(run: Cells) -> bool:
    return (run[f.parallel.pp] or 1) > 1


@meaning.derive(f.batch.micro, source=f"{_HYBRID}: microbatch_size")
def micro_batch(run: Cells) -> Any:
    return run[own.pipelined] if _is_pipelined(run) else run[own.batch]


@micro_batch.written
def _(micro: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.pipelined: micro} if _is_pipelined(run) else {own.batch: micro}


@meaning.derive(f.batch.grad_accum, source=f"{LLAMA}:287, coati/trainer/sft.py:100")
def accumulation(run: Cells) -> Any:
    """A pipeline steps after each batch: the option is void beside it."""
    if not _is_pipelined(run):
        return run[own.steps]
    rows, micro = run[own.batch], run[own.pipelined]
    return max(1, rows // micro) if rows and micro else None


@accumulation.written
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    if steps > 1 and run[own.plugin] == "gemini_auto" and program_of(run) != "llama":
        raise CannotEdit("gemini_auto takes no gradient accumulation")
    if not _is_pipelined(run):
        return {own.steps: steps}
    micro = wishes.get(f.batch.micro) or run[own.pipelined]
    return {own.batch: steps * micro} if steps * micro != run[own.batch] else {}


meaning.takes(f.batch.eval_micro, own.batch)
meaning.cannot_say("the batch of evaluation is that of training", f.batch.eval_micro)

# -- sharding --------------------------------------------------------------------------------------


@meaning.derive(f.parallel.backend)
def backend(run: Cells) -> Any:
    if run[own.plugin] is None:
        return None
    if run[own.plugin] != "ddp":
        return "zero"
    ranks = run[f.parallel.world]
    return None if ranks is None else "ddp" if ranks > 1 else "none"


@meaning.derive(_Z.stage)
def stage(run: Cells) -> Any:
    plugin = run[own.plugin]
    if plugin is None or plugin == "ddp":
        return None
    if plugin == "3d":
        return run[own.stage]
    return 3 if _is_gemini(run) else 2


@stage.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if _is_hybrid(run):
        highest = 1 if _is_pipelined(run) else 2
        if wanted > highest:
            raise CannotEdit(f"the plugin 3d goes up to stage {highest} here")
        return {own.stage: wanted}
    offload = wishes.get(f.offload.optimizer, run[f.offload.optimizer])
    return {own.plugin: _plugin_for(wanted, offload, run)}


def _plugin_for(stage: int, offload: Any, run: Cells) -> str:
    """The plugin of a stage, with states offloaded or not.

    Raises:
        CannotEdit: there is none, or what else the run does goes not with it.
    """
    if stage == 2:
        return "zero2_cpu" if offload == "cpu" else "zero2"
    if stage != 3 or offload == "cpu":
        raise CannotEdit(_REMEDIES)
    if is_adapter_run(run):
        raise CannotEdit("Gemini takes no LoRA")
    return "gemini"


@meaning.derive(
    f.offload.optimizer,
    f.offload.params,
    f.offload.grads,
    f.offload.pin_memory,
    source=f"{_ZERO}:266",
)
def offloading(run: Cells) -> Any:
    """Masters and states leave the card, gradients stay. What Gemini's automatic placement moves follows from what is
    free, and is not counted."""
    leaves = run[own.plugin] == "zero2_cpu" or (
        _is_hybrid(run) and bool(run[own.stage]) and bool(run[own.offloads])
    )
    return {
        f.offload.optimizer: "cpu" if leaves else "none",
        f.offload.params: "none",
        f.offload.grads: "none",
        f.offload.pin_memory: False,
    }


@meaning.written(f.offload.optimizer)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if device == "nvme":
        raise CannotEdit("Colossal-AI's plugins offload to RAM only")
    if _is_hybrid(run):
        if not wishes.get(_Z.stage, run[own.stage]):
            raise CannotEdit("the plugin 3d offloads from stage 1 on")
        return {own.offloads: device == "cpu"}
    return {own.plugin: _plugin_for(wishes.get(_Z.stage, run[_Z.stage]), device, run)}


meaning.cannot_say(
    _REMEDIES, f.parallel.backend, f.offload.params, f.offload.grads, *below(f.parallel.fsdp)
)


@meaning.derive(
    _Z.reduce_bucket_elems,
    _Z.contiguous_grads,
    _Z.overlap_comm,
    _Z.keeps_grads,
    _Z.prefetch_elems,
    _Z.max_live_params,
    _Z.persistence_threshold,
    _Z.sub_group_elems,
)
def buffers(run: Cells) -> Any:
    if run[f.parallel.backend] != "zero":
        return None
    if not _is_gemini(run):
        # LowLevelZeroOptimizer.step resets its store of them after the loop that copies them (0.3.3 to 0.4.0), or later.
        return {
            _Z.reduce_bucket_elems: _BUCKET,
            _Z.contiguous_grads: False,
            _Z.overlap_comm: True,
            _Z.keeps_grads: True,
        }
    return {
        _Z.reduce_bucket_elems: _LARGEST_CHUNK,
        _Z.prefetch_elems: 0,
        _Z.max_live_params: _LARGEST_CHUNK,
        _Z.persistence_threshold: 0,
        _Z.sub_group_elems: _LARGEST_CHUNK,
    }


# -- dtypes and the optimizer ----------------------------------------------------------------------


@meaning.derive(f.load.dtype, source=f"{CHAT}/train_sft.py:52, train_dpo.py:108; {LLAMA}:180")
def loads(run: Cells) -> Any:
    """DPO, KTO and ORPO load in fp32 where FlashAttention does not ask for less."""
    narrow = run[own.flash] or program_of(run) in ("sft", "rm", "llama")
    return run[own.dtype] if narrow else "fp32"


@meaning.derive(
    _P.param,
    _P.grad,
    _P.master,
    _P.optim_state,
    _P.compute,
    f.trainable.adapter_dtype,
    source=f"{_ZERO}, {_GEMINI}, {_ADAM}:113",
)
def dtypes(run: Cells) -> Any:
    """A plugin casts the model and keeps fp32 masters; DDP's does neither, since Booster is told no precision."""
    is_cast = run[f.parallel.backend] == "zero"
    width = run[own.dtype] if is_cast else run[f.load.dtype]
    return {
        _P.param: width,
        _P.grad: width,
        _P.master: "fp32" if is_cast else "none",
        _P.optim_state: "fp32" if is_cast else width,
        _P.compute: width,
        f.trainable.adapter_dtype: width if is_adapter_run(run) else None,
    }


meaning.follows(_P.optim_state, _P.master, _P.grad)


meaning.takes(_P.logits, _P.compute)
meaning.always(_P.autocast, False, f"{_ZERO}, {_GEMINI}: the model is cast")
meaning.always(f.optimizer.kind, "adamw", _ADAM)
meaning.cannot_say("the script builds HybridAdam itself", f.optimizer.kind, f.optimizer.name)
meaning.constant(f.optimizer.fused, True, f"{_ADAM}: a fused kernel on GPU and CPU")
meaning.constant(f.optimizer.foreach, False, _ADAM)
meaning.constant(f.optimizer.groups, 1, f"{CHAT}/train_sft.py: all parameters in one")

# -- what is trained -------------------------------------------------------------------------------


@meaning.derive(f.trainable.method, source=f"{CHAT}/train_sft.py:60, {LLAMA}:189")
def method(run: Cells) -> Any:
    if run[own.freezes]:
        return "freeze"
    return "lora" if run[own.lora] or run[own.rank] else "full"


@meaning.derive(
    f.trainable.train_embeddings,
    source="ColossalAI 4f9953be applications/Colossal-LLaMA/colossal_llama/utils/froze.py",
)
def trains_embeddings(run: Cells) -> Any:
    """Embeddings and head alone."""
    return True if run[own.freezes] else None


@meaning.derive(f.trainable.last_layers)
def trained_layers(run: Cells) -> Any:
    return 0 if run[own.freezes] else None


@meaning.derive(
    f.trainable.r,
    f.trainable.alpha,
    f.trainable.dropout,
    f.trainable.targets,
    source=f"{LLAMA}:190",
)
def adapter(run: Cells) -> Any:
    rank = run[own.rank]
    if not rank:
        return None
    return {
        f.trainable.r: rank,
        f.trainable.alpha: 32.0,
        f.trainable.dropout: 0.1,
        f.trainable.targets: "peft_default",
    }


@meaning.said(f.trainable.alpha, f.trainable.dropout, f.trainable.r, f.trainable.targets)
def of_adapter_file(run: Cells, field: Any, said: Said) -> Said:
    """What a file that is not at hand would have said is unread."""
    named = run.said(own.lora)
    if said is not None or named is None:
        return said
    if not isinstance(named, Setting):
        return named
    is_missing = named.value in run.known.missing
    return replace(named.origin, source=f"{named.value} is not at hand") if is_missing else said


@meaning.default(f.trainable.alpha, f.trainable.dropout, source=LORA_CLASS)
def usual_adapter(run: Cells) -> Any:
    return {f.trainable.alpha: 32.0, f.trainable.dropout: 0.1} if run[own.lora] else None


@meaning.default(f.trainable.targets, source=LORA_CLASS)
def usual_targets(run: Cells) -> Any:
    """Every linear layer, where the file names none; embeddings and the head, which get adapters too, are not counted."""
    return "all_linear" if run[own.lora] else None


@adapter.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    rank = wishes.get(f.trainable.r)
    if program_of(run) != "llama" or not rank:
        raise CannotEdit("the adapter stands in the file that --lora_config names")
    return {own.rank: rank}


@method.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted != "lora" or program_of(run) != "llama" or _is_gemini(run):
        raise CannotEdit("ColossalChat takes LoRA from a file, and Gemini takes none")
    return {own.rank: wishes.get(f.trainable.r) or 16}


# -- activations, sequences, loss ------------------------------------------------------------------

meaning.constant(f.checkpointing.reentrant, False, f"{CHAT}/train_sft.py:155, {LLAMA}:199")
meaning.constant(f.checkpointing.source, "framework", "transformers' gradient_checkpointing_enable")
meaning.always(f.checkpointing.offload, "none", CHAT)


@meaning.derive(f.model.attn_impl, source=f"{CHAT}/train_sft.py:50; {LLAMA}:70-104")
def attention(run: Cells) -> Any:
    """Colossal-LLaMA hands the option to Gemini and the hybrid plugin alone; else it is transformers' own choice."""
    reaches = program_of(run) != "llama" or _is_gemini(run) or _is_hybrid(run)
    return "flash2" if run[own.flash] and reaches else "sdpa"


@attention.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted != "flash2":
        raise CannotEdit(
            "--use_flash_attn asks for FlashAttention, and nothing asks for other kinds"
        )
    return {own.flash: True}


meaning.always(f.seq.packing, "none", "coati/dataset/loader.py: samples stay apart")


@meaning.derive(
    f.seq.pad,
    source="ColossalAI 4f9953be applications/ColossalChat/coati/dataset/loader.py:115, 222",
)
def padding(run: Cells) -> Any:
    """Every batch of ColossalChat is as long as the limit."""
    return None if program_of(run) == "llama" else "max_len"


meaning.always(
    f.loss.logits_materialised, "full", "the loss is transformers' own, or takes all logits"
)
meaning.cannot_say("the scripts take all logits", f.loss.logits_materialised)


@meaning.derive(
    f.loss.upcast_fp32, source="transformers 4.51 loss/loss_utils.py; coati/models/utils.py:52"
)
def widens_logits(run: Cells) -> Any:
    """transformers' loss makes logits fp32, and its models did before 4.46; log-probabilities of preferences stay as
    narrow as those are."""
    is_narrow = program_of(run) not in ("sft", "llama", "orpo")
    return not (is_narrow and run.has(NARROW_LOGITS, noted=False))


@meaning.derive(
    f.loss.outputs_kept,
    f.loss.outputs_last,
    source=f"{CHAT}: coati/trainer/sft.py:133, dpo.py:292, kto.py:156",
)
def keeps_outputs(run: Cells) -> Any:
    """``outputs = self.model(...)``, ``actor_all_logits``: names of the loop's own, which nothing else is given."""
    are_named = program_of(run) != "rm" and not _is_hybrid(run)
    return dict.fromkeys((f.loss.outputs_kept, f.loss.outputs_last), are_named or None)


# -- objectives ------------------------------------------------------------------------------------

_PAIRS = frozenset({"dpo", "orpo", "rm"})


@meaning.derive(f.objective.kind, f.objective.pairs_per_sample, source=CHAT)
def objective(run: Cells) -> Any:
    program = program_of(run)
    kind = {"llama": "sft", "dpo": "simpo" if run[own.loss] == "simpo_loss" else "dpo"}.get(
        program, program
    )
    return {f.objective.kind: kind, f.objective.pairs_per_sample: 2 if program in _PAIRS else 1}


@meaning.derive(
    f.objective.ref_model,
    f.objective.ref_dtype,
    f.objective.ref_tp,
    source=f"{CHAT}/train_dpo.py:92-102",
)
def reference(run: Cells) -> Any:
    """The reference has a hybrid plugin of its own without an optimizer: whole on each of its tensor-parallel groups."""
    program = program_of(run)
    has_one = program in ("dpo", "kto") and not run[own.no_reference]
    return {
        f.objective.ref_model: "copy" if has_one else "none",
        f.objective.ref_dtype: run[own.dtype] if has_one else None,
        f.objective.ref_tp: (run[own.ref_tp] or 1) if has_one else None,
    }


# -- loading, evaluating, saving -------------------------------------------------------------------


@meaning.derive(
    f.load.per_rank_host_copies,
    f.load.zero3_init,
    source=f"{CHAT}/train_sft.py: lazy init is off; {LLAMA}:174",
)
def loading(run: Cells) -> Any:
    """Every rank loads the model whole, but where Colossal-LLaMA builds it lazily. Chunks take it up tensor by tensor."""
    is_lazy = (
        program_of(run) == "llama" and (_is_gemini(run) or _is_hybrid(run)) and not run[own.rank]
    )
    return {
        f.load.per_rank_host_copies: None if is_lazy else 1,
        f.load.zero3_init: True if _is_gemini(run) else None,
    }


meaning.always(f.load.device_map, "none", CHAT)


@meaning.derive(f.eval.enabled, f.eval.strategy)
def evaluates(run: Cells) -> Any:
    has_set = bool(run[own.eval_set])
    return {f.eval.enabled: has_set, f.eval.strategy: "epoch" if has_set else "no"}


meaning.always(f.eval.keeps_logits, False, "coati/trainer: evaluation adds up losses")


@meaning.derive(
    f.save.strategy, f.save.every, f.save.unit, f.save.contents, source="coati/utils/ckpt_io.py:54"
)
def saves(run: Cells) -> Any:
    steps = run[own.interval]
    return {
        f.save.strategy: "steps" if steps else "end",
        f.save.every: float(steps) if steps else None,
        f.save.unit: "steps",
        f.save.contents: ("model", "optimizer", "scheduler") if steps else ("model",),
    }


@meaning.written(f.save.every)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.interval: int(steps)}
