"""What ms-swift makes of its keys about a step: sharding, batches, activations, optimizer, loss.

``SW`` below is ``swift/`` of ms-swift 3602360a.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.generation import check_whole_batches, rows_of_mini_batch
from oomlint.dialects.liger import liger_patches
from oomlint.dialects.meaning import Bounds, Meaning, Sourced, Wishes
from oomlint.dialects.ms_swift.keys import OLD, TRAIN, env, own
from oomlint.dialects.ms_swift.samples import generates
from oomlint.dialects.releases import FUSED_BY_TRAINER
from oomlint.dialects.trainer.fields import hf, hf_fsdp
from oomlint.dialects.trainer.training_arguments import training_arguments
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange

training = Meaning()


def _said_by_trainer(field: Any, wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    write = training_arguments.writer(field)
    return {field: wanted} if write is None else write(wanted, run, wishes)


# -- sharding --------------------------------------------------------------------------------------


training.takes(f.parallel.tp, own.autotp)


@training.override(f.parallel.zero.hpz)
def partition(run: Cells) -> Any:
    return run[own.hpz]


_INIT_FSDP = "ms-swift 3602360a arguments/sft_args.py _init_fsdp"


@training.default(hf_fsdp.version, source=_INIT_FSDP)
def version_of_fsdp(run: Cells) -> Any:
    return None if run[own.fsdp] is None else 2


@training.default(hf.fsdp_words, source=_INIT_FSDP)
def words_of_fsdp(run: Cells) -> Any:
    return None if run[own.fsdp] is None else ("full_shard", "auto_wrap")


# -- evaluating and saving -------------------------------------------------------------------------

SPLITS_NOTHING = LibraryChange(
    "ms-swift", (3, 6), "a hundredth of the data is held out for evaluation by default",
    "ms-swift 3.5.3 and 3.6.0 llm/argument/base_args/data_args.py", was=0.01,
)  # fmt: skip


@training.requires
def libraries(run: Cells) -> Iterator[Bounds]:
    """ms-swift 3602360a requirements/framework.txt: transformers<5.17."""
    yield "transformers", (), (5, 17)


@training.requires
def generation_of_keys(run: Cells) -> Iterator[Bounds]:
    """``tuner_type`` came with 4.0, and 3.0 renamed what 2.x had."""
    if any("tuner_type" in block.mapping.entries for block in run.blocks):
        yield "ms-swift", (4, 0), ()
    elif run[own.is_old]:
        yield "ms-swift", (), (3, 0)
    else:
        yield "ms-swift", (3, 0), ()


@training.default(own.val_ratio, source=SPLITS_NOTHING.source)
def held_out(run: Cells) -> Any:
    if run[own.val_dataset]:
        return None
    if run[f.data.streaming] and not run[own.is_old]:
        return 0.0  # SW/arguments/base_args/data_args.py: a stream is not split
    return 0.0 if run.has(SPLITS_NOTHING) else SPLITS_NOTHING.was


@training.derive(f.eval.strategy)
def evaluates(run: Cells) -> Any:
    if not run[own.val_dataset] and (run[own.val_ratio] or 0) <= 0:
        return "no"
    strategy = run[own.eval_strategy] or run[f.save.strategy] or "steps"
    return "steps" if strategy == "best" else strategy


@training.derive(f.eval.every)
def evaluates_every(run: Cells) -> Any:
    if run[f.eval.strategy] != "steps":
        return None
    if run[own.is_old]:
        return Sourced(50 if is_adapter_run(run) else 200, OLD)
    return Sourced(run[f.save.every], TRAIN)


# SW: accuracy is computed batch by batch from predicted tokens.
training.always(
    f.eval.keeps_logits,
    False,
    "ms-swift 3602360a trainers/mixin.py: preprocess_logits_for_metrics",
)


@training.default(f.save.keep, source=OLD)
def kept(run: Cells) -> Any:
    return 2 if run[own.is_old] else None


# -- batches ---------------------------------------------------------------------------------------


@training.default(f.batch.eval_micro)
def eval_micro_batch(run: Cells) -> Any:
    if run[own.is_old]:
        return Sourced(run[f.batch.micro], OLD)
    return Sourced(1, f"{TRAIN}:130")


def _replicas(run: Cells) -> int | None:
    is_spread = run[f.parallel.backend] == "device_map_pp"
    return run[f.parallel.dp if is_spread else f.parallel.world]


@training.default(f.batch.grad_accum, source=f"{TRAIN}:285")
def accumulation(run: Cells) -> Any:
    """ceil(16 / micro batch / ranks), but 1 for GRPO (SW/trainers/arguments.py:285)."""
    micro = run.base(f.batch.micro)
    if not micro:
        return None
    if run[f.objective.kind] == "grpo":
        return 1
    replicas = _replicas(run)
    return max(1, -(-16 // (micro * replicas))) if replicas else None


@training.assume(
    f.batch.grad_accum,
    why="gradient_accumulation_steps makes about 16 samples of all GPUs, whose number is not known",
)
def usual_accumulation(run: Cells) -> Any:
    micro = run.base(f.batch.micro)
    return max(1, 16 // micro) if micro else None


@training.override(f.batch.micro, source="trl 0.29.1 experimental/ppo/ppo_trainer.py:461")
def part_of_mini_batch(run: Cells) -> Any:
    return rows_of_mini_batch(run, own.mini_batches)


@part_of_mini_batch.written
def _(rows: Any, run: Cells, wishes: Wishes) -> Wishes:
    check_whole_batches(run, own.mini_batches)
    return {f.batch.micro: rows}


# -- activations -----------------------------------------------------------------------------------


@training.derive(
    f.checkpointing.reentrant,
    source="ms-swift 3602360a trainers/mixin.py _fix_gradient_checkpointing",
)
def reentrant(run: Cells) -> Any:
    """Not under plain DDP; transformers up to 4.57 leaves torch's own default."""
    if run.says(hf.reentrant):
        return None
    return run[f.parallel.backend] != "ddp" or run[own.is_old]


training.cannot_say(
    "gradient_checkpointing_kwargs is a JSON text; set use_reentrant there",
    f.checkpointing.reentrant,
)


@training.derive(f.checkpointing.offload, f.offload.activations)
def moved_inputs(run: Cells) -> Any:
    """SW/pipelines/train/tuner.py: use_gradient_checkpointing="unsloth" moves inputs to the CPU."""
    if run[own.tuner_backend] != "unsloth" or run[f.checkpointing.mode] != "full":
        return None
    return {f.checkpointing.offload: "cpu", f.offload.activations: "cpu"}


@training.derive(f.model.attn_impl)
def attention(run: Cells) -> Any:
    switch = run[own.use_flash]
    return None if switch is None else "flash2" if switch else "sdpa"


training.constant(f.model.attn_impl, "sdpa", "transformers 5.23 takes sdpa where the model has it")


@attention.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    """The switch of 2.x where the run uses it, else ``attn_impl``."""
    if not run.says(own.use_flash):
        return {f.model.attn_impl: wanted}
    if wanted not in ("flash2", "sdpa"):
        raise CannotEdit(f"use_flash_attn cannot ask for {wanted} attention")
    return {own.use_flash: wanted == "flash2"}


# -- samples ---------------------------------------------------------------------------------------


@training.default(f.seq.truncation, source="ms-swift 4.6.0 arguments/base_args")
def truncation(run: Cells) -> Any:
    """SW/arguments/rlhf_args.py:351: prompts of GRPO keep their end."""
    return "cut" if run[f.objective.kind] == "grpo" else "drop"


@training.derive(f.seq.packing)
def packing(run: Cells) -> Any:
    """2.x concatenated samples up to max_length; later ones are packed whole, one after another."""
    if not run[own.packing]:
        return "none"
    return "concat" if run[own.is_old] else "bfd"


@training.derive(f.seq.pad)
def padding(run: Cells) -> Any:
    return "none" if run[own.packing] or run[own.padding_free] else "longest"


@training.written(f.seq.max_len)
def _(length: Any, run: Cells, wishes: Wishes) -> Wishes:
    if generates(run):
        raise CannotEdit("the length follows from max_length and max_completion_length")
    return {f.seq.max_len: length}


# -- the optimizer ---------------------------------------------------------------------------------

_PLUGINS = {"galore": "galore", "muon": "muon", "muonclip": "muon"}


def _plugin(run: Cells) -> str | None:
    """``optimizer`` names a plug-in that replaces ``optim`` (SW/optimizers/mapping.py); of those
    that are not listed here, lorap and multimodal are AdamW with learning rates of their own."""
    return _PLUGINS.get(str("galore" if run[own.galore] else run[own.optimizer]))


@training.default(f.optimizer.name, source=OLD)
def older_optimizer(run: Cells) -> Any:
    return "adamw_torch" if run[own.is_old] else None


training.constant(
    f.optimizer.name,
    "adamw_torch_fused",
    "transformers 5.23 training_args.py:806",
    *FUSED_BY_TRAINER,
)


@training.override(f.optimizer.kind)
def kind_of_plugin(run: Cells) -> Any:
    return _plugin(run)


@kind_of_plugin.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    """``optim``, without the plug-in that would replace it."""
    off = {own.galore: False} if run[own.galore] else {}
    return {**_said_by_trainer(f.optimizer.kind, kind, run, wishes), **off}


@training.derive(f.optimizer.fused)
def fused_plugin(run: Cells) -> Any:
    return None if _plugin(run) is None else False


@training.derive(f.optimizer.rank)
def rank_of_plugin(run: Cells) -> Any:
    return run[own.galore_rank] if _plugin(run) == "galore" else None


# -- the loss --------------------------------------------------------------------------------------

# Trainers that leave the loss to liger (SW/trainers, SW/rlhf_trainers/grpo_trainer.py, gkd_trainer.py).
_FUSED = frozenset({"pretrain", "sft", "grpo", "gkd"})


def _ranks_of_sequence(run: Cells) -> int:
    return run[f.parallel.ulysses] or 1


def _shares_sequences(run: Cells) -> bool:
    return _ranks_of_sequence(run) > 1


def _takes_logits(run: Cells) -> bool:
    """SW/trainers/seq2seq_trainer.py compute_loss: these take the logits themselves."""
    is_scaled = run[own.loss_scale] not in (None, "default", "last_round", "all")
    return bool(run[f.loss.label_smoothing]) or is_scaled or _shares_sequences(run)


def _fuses(run: Cells) -> bool:
    """Of GRPO and GKD only the loss is Liger's, and takes hidden states."""
    kind = run[f.objective.kind]
    if not run[hf.liger] or kind not in _FUSED or _takes_logits(run):
        return False
    return kind in ("grpo", "gkd") or liger_patches(run)


def _chunk_tokens(run: Cells) -> tuple[int, int] | None:
    """Tokens of a rank and of a chunk where the ranks of a sequence take the loss of their own
    tokens, in chunks if CELOSS_PARALLEL_SIZE says how long (SW/trainers/utils.py
    per_token_loss_func_sp)."""
    if not _shares_sequences(run) or run[f.objective.kind] not in ("pretrain", "sft"):
        return None
    size, rows, length = run[env.loss_tokens], run[f.batch.micro], run[f.seq.max_len]
    if not size or not rows or not length:
        return None
    return -(-rows * length // _ranks_of_sequence(run)), size


CUTS_ANSWERS = LibraryChange(
    "ms-swift", (3, 7), "GRPO of a multimodal model makes the logits of prompts and images, too",
    "ms-swift 3.1.1, 3.6.4 and 3.7.0 trainers/rlhf_trainer/grpo_trainer.py _get_per_token_logps",
)  # fmt: skip


def _is_multimodal(run: Cells) -> bool:
    dims = run[f.model.dims]
    return dims is not None and dims.vision is not None


@training.derive(f.loss.logits_materialised)
def logits(run: Cells) -> Any:
    kind = run[f.objective.kind]
    if _chunk_tokens(run) is not None:
        return "chunked"
    if _fuses(run):
        return "fused"
    if generates(run):
        is_whole = _is_multimodal(run) and not run.has(CUTS_ANSWERS)
        return Sourced("full" if is_whole else "completion_only", CUTS_ANSWERS.source)
    # SW/trainers/mixin.py get_use_logits_to_keep: on where the model's forward knows it.
    keeps = kind in ("sft", "dpo") and not run[own.is_old] and not _shares_sequences(run)
    return "completion_only" if keeps and run[f.loss.logits_to_keep] is not False else "full"


@logits.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind == "fused":
        if run[f.parallel.backend] == "device_map_pp":
            raise CannotEdit(
                "ms-swift refuses use_liger_kernel where one process spreads the model"
            )
        if run[f.objective.kind] not in _FUSED:
            raise CannotEdit("ms-swift fuses the loss of pre-training, SFT, GRPO and GKD only")
        if _shares_sequences(run):
            raise CannotEdit("with sequence_parallel_size the loss is computed outside of liger")
    return _said_by_trainer(f.loss.logits_materialised, kind, run, wishes)


@training.derive(f.loss.chunks)
def chunks(run: Cells) -> Any:
    found = _chunk_tokens(run)
    return None if found is None else max(1, -(-found[0] // found[1]))


@training.derive(f.loss.liger.flce)
def fused_by_liger(run: Cells) -> Any:
    return run[f.loss.logits_materialised] == "fused"


@training.derive(f.loss.algorithm, source="SW/rlhf_trainers/rlhf_mixin.py: selective_log_softmax")
def row_by_row(run: Cells) -> Any:
    is_preference = run[f.objective.kind] in ("dpo", "kto", "simpo", "grpo")
    return "rows" if is_preference and not run[f.loss.liger.flce] else None


@training.derive(f.loss.upcast_fp32, source="SW/trainers/utils.py")
def upcasts(run: Cells) -> Any:
    """SW/trainers/utils.py per_token_loss_func_sp works in the dtype of the logits."""
    shares = _shares_sequences(run) and run[f.objective.kind] in ("pretrain", "sft")
    return False if shares else None
