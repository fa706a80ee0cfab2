"""What TRL's trainers make of their arguments, whoever has loaded the model: the objective, its
reference, samples, the loss, and the types of adapters.

Read from TRL f2cd5771 (1.10.0.dev0); ``TRL`` below is ``trl``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.blocks import facts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.declared_ends import declare_end
from oomlint.dialects.common.fields import shared
from oomlint.dialects.common.generation import check_precomputed_reference
from oomlint.dialects.common.offloading import hooks_of_trl, to_cpu
from oomlint.dialects.ending import Ending, When
from oomlint.dialects.machine.colab import runs_in_kernel
from oomlint.dialects.machine.launcher_keys import PLAIN
from oomlint.dialects.machine.launcher_meaning import launcher_of
from oomlint.dialects.meaning import Meaning, Sourced, Wishes
from oomlint.dialects.releases import CHECKPOINT_DTYPE, EVALUATES_FUSED, SKIPS_LOGITS
from oomlint.dialects.setting import Setting
from oomlint.dialects.trainer.fields import hf, script
from oomlint.dialects.trainer.losses import losses
from oomlint.dialects.trainer.model import (
    asks_gradients_of_patches,
    is_whole_on_one,
    model,
    one_process,
)
from oomlint.dialects.trainer.own_losses import check_logits_unread, reads_logits
from oomlint.dialects.trainer.reaching import is_on
from oomlint.dialects.trainer.script_claim import PlainArguments
from oomlint.dialects.trainer.statements import switches_of
from oomlint.dialects.trainer.training_arguments import training_arguments
from oomlint.dialects.trl.collators import collators
from oomlint.dialects.trl.fields import trl
from oomlint.dialects.trl.formatted import formatted
from oomlint.dialects.trl.keys import BASE_SOURCE, RENAMED_LENGTH, SPANS
from oomlint.dialects.trl.objectives import (
    cuts_prompts,
    objective_of_run,
    refers_to_nothing,
)
from oomlint.dialects.trl.releases import (
    CASTS_ADAPTERS,
    CASTS_ALL_ADAPTERS,
    CHECKPOINTS,
    CHECKPOINTS_AS_TOLD,
    CHUNKS_AS_GIVEN,
    CHUNKS_LOSS,
    DPO_COPIES_NO_LOGITS,
    DPO_CUTS_LOGITS,
    DPO_LEAVES_ENDS,
    FUSES_BY_KERNEL,
    FUSES_HEAD,
    GRPO_NEEDS_NO_REFERENCE,
    HAS_CHUNKS,
    LOADS_FP32,
    LOADS_REFERENCE,
    LOADS_REFERENCE_ANEW,
    LOADS_REFERENCE_UNDER_FSDP,
    MIXES_PRECISION,
    PACKS_APART,
    PLACES_BY_RANK,
    PREPARES_4_BITS,
    RLOO_OF_TRAINER,
    SFT_EVALUATES_FUSED,
    SFT_LEAVES_ENDS,
    SPARES_REFERENCE,
    SPREADS,
)
from oomlint.dialects.trl.rewards import rewards
from oomlint.dialects.trl.rollouts import rollouts, rolls_out
from oomlint.documents.base import Fact
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange, release_of

trainers = Meaning(rollouts, rewards, formatted, collators, model, one_process, training_arguments)

# -- the objective ---------------------------------------------------------------------------------


@trainers.derive(f.objective.kind)
def objective(run: Cells) -> Any:
    return objective_of_run(run)


@trainers.assume(f.objective.kind, why="no key and no name speaks of another objective")
def likely_objective(run: Cells) -> Any:
    """A project's own trainer on pairs has the keys of TRL's, and a name of its own: INPOTrainer, SPPOTrainer."""
    if run.once(cuts_prompts):
        return Sourced(
            "cpo",
            "max_prompt_length is a key of trainers on pairs of answers, and nothing speaks of a reference",
        )
    return "sft"


@trainers.derive(f.objective.pairs_per_sample)
def pairs(run: Cells) -> Any:
    return 2 if run[f.objective.kind] in ("dpo", "orpo", "cpo", "simpo", "rm") else None


@trainers.default(trl.beta)
def beta(run: Cells) -> Any:
    if run[f.objective.kind] != "grpo":
        return None
    if run.has(GRPO_NEEDS_NO_REFERENCE):
        return Sourced(0.0, "TRL f2cd5771 trainer/grpo_config.py")
    return Sourced(GRPO_NEEDS_NO_REFERENCE.was, GRPO_NEEDS_NO_REFERENCE.source)


def _needs_reference(run: Cells) -> bool:
    kind = run[f.objective.kind]
    if kind in ("grpo", "rloo"):
        return run.get(trl.beta, 0.05) != 0
    return kind in ("dpo", "kto", "ppo") and not refers_to_nothing(run)


@trainers.derive(
    f.objective.ref_model, source="TRL f2cd5771 trainer/dpo_trainer.py:893, grpo_trainer.py:957"
)
def reference(run: Cells) -> Any:
    if not _needs_reference(run):
        return "none"
    compares = run[f.objective.kind] in ("dpo", "kto")
    if compares and run[script.reference]:
        return "copy"
    if run[trl.precompute_ref]:
        return "copy" if _keeps_computed(run) else "precomputed"
    if run[f.trainable.method] is None:
        return None
    return "shared_adapter_off" if is_adapter_run(run) else "copy"


def _keeps_computed(run: Cells) -> bool:
    """Whether a reference stays in memory whose log probabilities were computed beforehand."""
    if is_adapter_run(run):
        return False
    is_dpo = run[f.objective.kind] == "dpo"
    if is_dpo and run.has(LOADS_REFERENCE) and not run.has(SPARES_REFERENCE):
        return True
    is_fsdp = run[f.parallel.backend] in ("fsdp1", "fsdp2")
    return is_fsdp and run.has(LOADS_REFERENCE_UNDER_FSDP)


@reference.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    check_precomputed_reference(wanted, run)
    if run[script.reference] or run.is_unread(script.reference):
        raise CannotEdit("the script gives its trainer a reference, which then stays in memory")
    return {trl.precompute_ref: True}


@trainers.derive(f.objective.ref_dtype)
def dtype_of_reference(run: Cells) -> Any:
    """GRPOTrainer and RLOOTrainer load a reference by the name of the model that they are given, by ``model_init_kwargs``
    and not as the script has loaded that one; DeepSpeed casts it to its own type."""
    if not run[script.model_object] or run[f.objective.ref_model] != "copy":
        return None
    kind, backend = run[f.objective.kind], run[f.parallel.backend]
    change = {"grpo": LOADS_REFERENCE_ANEW, "rloo": RLOO_OF_TRAINER}.get(kind or "")
    if change is None or backend == "zero" or not run.has(change):
        return None
    if run.once(_has_init_kwargs):
        return None
    if run.has(LOADS_FP32):
        return Sourced("fp32", LOADS_FP32.source)
    is_of_checkpoint = run.has(CHECKPOINT_DTYPE)
    return Sourced(run[f.model.ckpt_dtype] if is_of_checkpoint else "fp32", CHECKPOINT_DTYPE.source)


def _has_init_kwargs(blocks: list[Block]) -> bool:
    """Whether a reference may be loaded otherwise than by default."""
    return any(
        entry.partition(".")[0] == "model_init_kwargs"
        for block in blocks
        for entry in block.mapping.entries
    )


# -- processes -------------------------------------------------------------------------------------


@trainers.derive(
    f.parallel.gpus_per_node, source="TRL v1.9.0 experimental/ppo/ppo_trainer.py:460 and :543"
)
def drives_one(run: Cells) -> Any:
    """PPOTrainer, and RLOOTrainer before 0.22, have an ``Accelerator`` and a loop of their own, which never come to the
    Trainer's ``nn.DataParallel``: a process that sees several GPUs trains on the first (0.12 and 0.15 too)."""
    if not is_whole_on_one(run):
        return None  # what it trains says nothing of ranks that a launcher starts
    kind = run[f.objective.kind]
    loops = kind == "ppo" or (
        kind == "rloo" and not run.has(RLOO_OF_TRAINER, otherwise="trl" not in run.known.untold)
    )
    return 1 if loops else None


@trainers.derive(
    f.parallel.gpus_per_node, source="unsloth 2026.2.1 models/rl.py:390: args._n_gpu = 1"
)
def drives_one_patched(run: Cells) -> Any:
    """The trainers that Unsloth makes of TRL's wrap nothing in ``nn.DataParallel``, whoever of the project imports
    it."""
    return 1 if run.once(_is_patched) and is_whole_on_one(run) else None


def _is_patched(blocks: list[Block]) -> bool:
    """Whether a function of the project makes the model in a file that imports Unsloth, and loads it by nothing else."""
    return any(
        "unsloth" in {name.partition(".")[0] for name in fact.detail["imports"]}
        and not any(
            name.rpartition(".")[0].rpartition(".")[2].startswith("Auto")
            for name in fact.detail["loads"]
        )
        for block in blocks
        if block.table.section == "trainer"
        for fact in block.document.facts
        if fact.kind == "made-elsewhere"
    )


# -- samples ---------------------------------------------------------------------------------------


@trainers.derive(
    f.seq.unbounded, source="TRL f2cd5771 trainer/sft_config.py:205: None truncates nothing"
)
def cuts_nothing(run: Cells) -> Any:
    return True if _is_null(run, f.seq.max_len) else None


@trainers.default(f.seq.max_len, source="TRL f2cd5771 trainer/sft_config.py:205")
def longest_sample(run: Cells) -> Any:
    return None if _is_null(run, f.seq.max_len) else 1024


def _is_null(run: Cells, field: Any) -> bool:
    """Whether a file sets the field to nothing, which is not the same as leaving it out."""
    if run.mentions(field):
        return False
    for block in run.blocks:
        row = block.table.by_field.get(field)
        for key in (row.key, *row.aliases) if row is not None else ():
            entry = block.find(key)
            if entry is not None and block.value(entry.value) in (None, "None", "null"):
                return True
    return False


@trainers.derive(f.seq.packing)
def packing(run: Cells) -> Any:
    if not run[trl.packing]:
        return "none"
    if run[trl.packing_strategy] == "wrapped":
        return "concat"
    is_told = run.mentions(trl.packing_strategy) or "trl" not in run.known.untold
    return "bfd" if run.has(PACKS_APART, otherwise=is_told) else "concat"


@trainers.derive(f.seq.pad)
def padding(run: Cells) -> Any:
    if run[trl.packing]:
        return Sourced("none", "TRL f2cd5771 sft_trainer.py: packed")
    return "none" if run[trl.padding_free] else "longest"


# -- loss ------------------------------------------------------------------------------------------

_SELECTIVE = "TRL f2cd5771 trainer/utils.py: selective_log_softmax"
# trl 1.9 trainer/dpo_trainer.py, experimental/{kto,orpo,cpo}; SimPO is a loss of the last.
_BY_ROWS = frozenset({"dpo", "kto", "orpo", "cpo", "simpo"})
# They take logits from a forward pass without labels, which Liger's patched models give whole, and know no loss of
# Liger's (TRL 0.22 to f2cd5771 trainer/rloo_trainer.py:966; 0.18 to 0.28 orpo_trainer.py and cpo_trainer.py).
_WITHOUT_FUSED_LOSS = frozenset({"rloo", "ppo", "orpo", "cpo", "simpo"})
_WITH_LOSS_OF_THEIR_OWN = frozenset({"dpo", "kto", "grpo"})
_TILED = "TRL 1.16.0 trainer/utils.py add_fused_lm_head, kernels/chunked_logprob.py"
_WITH_TILES = frozenset({"sft", "dpo", "kto", "grpo", "rloo"})


@trainers.derive(trl.fused_head, source=_TILED)
def fused_head(run: Cells) -> Any:
    """The trainers that Unsloth makes of TRL's have a head of its own there (unsloth 2026.10.9 models/rl.py
    _UnslothFusedLinearHead), and came with TRL 0.24 at most until 2026.10."""
    if run[f.objective.kind] not in _WITH_TILES or run.once(_is_patched):
        return False
    return run.has(FUSES_HEAD)


def _is_tiled(run: Cells) -> bool:
    """Whether the trainer computes the head and its loss tile by tile, whatever Liger is asked for."""
    return bool(run[trl.fused_head]) and not _asks_for_logits(run)


def _asks_for_logits(run: Cells) -> bool:
    """Whether something takes the logits themselves, which a fused head leaves to the model's own forward pass
    (TRL 1.16.0 trainer/sft_trainer.py compute_loss)."""
    is_smoothed = run[f.objective.kind] == "sft" and (run[hf.label_smoothing] or 0) > 0
    return is_smoothed or reads_logits(run)


def _fuses(run: Cells) -> bool:
    """Whether Liger computes the loss with the output projection. Trainers with a loss of their own have it do so by a
    key of their own, and by that of transformers from a release on."""
    kind = run[f.objective.kind]
    if kind in _WITHOUT_FUSED_LOSS:
        return False
    if kind not in _WITH_LOSS_OF_THEIR_OWN:
        return bool(run[hf.liger])
    return bool(run[trl.liger_loss]) or bool(run[hf.liger] and run.has(FUSES_BY_KERNEL))


@trainers.derive(f.loss.liger.flce)
def fused_by_liger(run: Cells) -> Any:
    kind = run[f.objective.kind]
    if not (run[hf.liger] or run[trl.liger_loss]):
        return None
    has_own_loss = kind in _WITHOUT_FUSED_LOSS or kind in _WITH_LOSS_OF_THEIR_OWN
    fuses = _fuses(run) if has_own_loss else None
    return Sourced(False, _TILED) if run[trl.fused_head] else fuses


@trainers.derive(f.loss.logits_materialised)
def logits(run: Cells) -> Any:
    """Which logits exist at once; liger's fused losses spare them. What is without a fused head is asked first, so that
    its changes of releases stay open where nobody pins one."""
    without = _logits_without_head(run)
    if _is_tiled(run):
        return Sourced("fused", _TILED)
    is_whole = run[trl.fused_head] and run[f.objective.kind] == "sft"
    return Sourced("full", _TILED) if is_whole else without


def _logits_without_head(run: Cells) -> Any:
    if _fuses(run):
        return "fused" if run[trl.liger_loss] else None
    if rolls_out(run):
        return Sourced("completion_only", "TRL f2cd5771 grpo_trainer.py:1374: logits_to_keep")
    if run[f.objective.kind] != "sft":
        return "full"
    loss = run[trl.loss_type]
    if loss is None:
        return Sourced("chunked" if run.has(CHUNKS_LOSS) else "full", CHUNKS_LOSS.source)
    return "chunked" if loss == "chunked_nll" else "full"


@logits.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind == "fused" and run[f.objective.kind] in _WITHOUT_FUSED_LOSS:
        raise CannotEdit("Liger has no loss for this trainer of TRL's")
    if run[trl.fused_head]:
        raise CannotEdit(
            "TRL computes the head and its loss tile by tile unless something asks for logits"
        )
    if kind != "chunked":
        written = losses.writers[f.loss.logits_materialised](kind, run, wishes)
        has_own_key = run[f.objective.kind] in _WITH_LOSS_OF_THEIR_OWN
        is_old = has_own_key and not run.has(FUSES_BY_KERNEL, noted=False)
        return {trl.liger_loss: True} if is_old else written
    if run[f.objective.kind] != "sft":
        raise CannotEdit("only SFTTrainer computes its loss in chunks")
    check_logits_unread(run)
    if not run.has(HAS_CHUNKS, otherwise=False, noted=False):
        raise CannotEdit("loss_type has chunked_nll from TRL 1.4 on, and no file says that it runs")
    return {trl.loss_type: "chunked_nll"}


@trainers.derive(f.eval.fuses_loss)
def fused_in_evaluation(run: Cells) -> Any:
    """SFTTrainer asks for ``skip_logits`` itself, whatever the Trainer under it does; beside a fused head it makes the
    logits that metrics take in a pass of their own (TRL 1.16.0 trainer/sft_trainer.py prediction_step)."""
    without = _fuses_in_evaluation(run)
    if not _is_tiled(run):
        return without
    return not (run[f.objective.kind] == "sft" and run[f.eval.keeps_logits])


def _fuses_in_evaluation(run: Cells) -> bool | None:
    if not (run[hf.liger] and run[f.loss.liger.flce]) or run[f.objective.kind] != "sft":
        return None
    if run[f.eval.keeps_logits]:
        return False
    return run.has(SKIPS_LOGITS) and (run.has(SFT_EVALUATES_FUSED) or run.has(EVALUATES_FUSED))


@trainers.derive(f.loss.algorithm)
def algorithm(run: Cells) -> Any:
    without = _algorithm_without_head(run)
    return Sourced("kernel_tiles", _TILED) if _is_tiled(run) else without


def _algorithm_without_head(run: Cells) -> Any:
    if _fuses(run):
        return None
    if rolls_out(run) or run[f.objective.kind] in _BY_ROWS:
        if (
            run[f.objective.kind] == "dpo"
            and run.has(DPO_CUTS_LOGITS)
            and not run.has(DPO_COPIES_NO_LOGITS)
        ):
            return Sourced(
                "copied_rows",
                "TRL 1.5.1 trainer/dpo_trainer.py: outputs.logits[..., :-1, :].contiguous()",
            )
        return Sourced("rows", _SELECTIVE)
    if not _chunks(run):
        return None
    source = "TRL f2cd5771 sft_trainer.py:221: a chunk runs under torch.utils.checkpoint"
    is_as_given = run.has(CHUNKS_AS_GIVEN)
    return Sourced("recomputed_as_given" if is_as_given else "recomputed_chunks", source)


@trainers.derive(f.loss.words, f.loss.tile_tokens, source=_TILED)
def tiles(run: Cells) -> Any:
    return {f.loss.words: 32768, f.loss.tile_tokens: 4096} if _is_tiled(run) else None


@trainers.derive(f.loss.chunks, source="TRL f2cd5771 trainer/sft_trainer.py:86: 256 tokens a chunk")
def chunks(run: Cells) -> Any:
    if _fuses(run) or not _chunks(run):
        return None
    rows, length = run[f.batch.micro], run[f.seq.max_len]
    return max(1, -(-rows * length // 256)) if rows and length else None


def _chunks(run: Cells) -> bool:
    """Whether SFTTrainer asks for its loss in chunks, whoever computes it in the end."""
    is_chunked = run.base(f.loss.logits_materialised) == "chunked"
    return is_chunked and run[f.objective.kind] == "sft"


@trainers.override(
    f.eval.keeps_logits, source="TRL f2cd5771 trainer/reward_trainer.py: a score for each answer"
)
def keeps_scores(run: Cells) -> Any:
    return False if run[f.objective.kind] == "rm" and run[f.eval.keeps_logits] else None


# -- activations and dtypes ------------------------------------------------------------------------


def _takes_plain(blocks: list[Block]) -> bool:
    """Whether the trainer's arguments are of transformers' own class."""
    return any(isinstance(block, PlainArguments) for block in blocks)


@trainers.default(
    hf.checkpointing,
    hf.bf16,
    source="TRL 0.15.2:166, 0.22.2:579 and 0.26.2:598 trainer/sft_trainer.py: SFTConfig(**args.to_dict())",
)
def as_transformers_has_it(run: Cells) -> Any:
    """SFTTrainer makes an SFTConfig of all that transformers' class holds, what nobody set there included: TRL's
    own defaults are those of what it has more."""
    if not run.once(_takes_plain):
        return None
    return {hf.checkpointing: False, hf.bf16: False}


trainers.constant(hf.checkpointing, True, f"{BASE_SOURCE}:61", CHECKPOINTS)


@trainers.default(hf.bf16, source=f"{BASE_SOURCE}:107: bf16 unless fp16")
def mixes_precision(run: Cells) -> Any:
    if run[hf.fp16]:
        return False
    return True if run.has(MIXES_PRECISION) else Sourced(False, MIXES_PRECISION.source)


trainers.always(shared.amp_is_open, False, "a flag that only running tells counts as off")


@trainers.derive(f.checkpointing.input_grads)
def asks_input_gradients(run: Cells) -> Any:
    return asks_gradients_of_patches(run)


@trainers.derive(f.checkpointing.offload, f.offload.activations)
def offloads_activations(run: Cells) -> Any:
    if not run[trl.activation_offload]:
        return None
    return {f.checkpointing.offload: "cpu", f.offload.activations: "cpu"}


@trainers.derive(
    f.offload.keeps_shared, f.offload.takes_loss,
    source="TRL 0.24.0 and 0.25.0 models/activation_offloading.py, trainer/sft_trainer.py training_step",
)  # fmt: skip
def hooks(run: Cells) -> Any:
    return hooks_of_trl(run) if run[trl.activation_offload] else None


@offloads_activations.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    # From which release on a class has it SPANS tell; those of the others (GRPO, RLOO, ...) refuse it.
    if f"{run[f.objective.kind]}.activation_offloading" not in SPANS.keys:
        raise CannotEdit(
            "TRL's config class for this objective has no key that offloads activations"
        )
    return {trl.activation_offload: to_cpu(device, "TRL offloads activations")}


def _is_quantized(run: Cells) -> bool:
    return run[f.quant.method] in ("bnb4", "bnb8")


@trainers.derive(f.quant.prepares_kbit)
def prepares_kbit(run: Cells) -> Any:
    if not is_adapter_run(run) or not _is_quantized(run):
        return None
    is_early = run[f.objective.kind] in ("sft", "grpo", "rloo")
    change = SFT_LEAVES_ENDS if is_early else DPO_LEAVES_ENDS
    return Sourced(not run.has(change), change.source)


@trainers.derive(
    f.trainable.adapter_dtype,
    f.precision.grad,
    f.precision.optim_state,
    source="TRL f2cd5771 trainer/sft_trainer.py:1123: adapters of QLoRA become bf16",
)
def adapters_of_qlora(run: Cells) -> Any:
    if not is_adapter_run(run) or not _is_quantized(run):
        return None
    if run[f.parallel.backend] in ("zero", "fsdp1", "fsdp2"):
        return None
    if not run.has(CASTS_ALL_ADAPTERS):
        is_told = run[f.precision.compute] == "bf16" and run[f.quant.method] == "bnb4"
        if not is_told or not run.has(CASTS_ADAPTERS):
            return None
    fields = (f.trainable.adapter_dtype, f.precision.grad, f.precision.optim_state)
    return dict.fromkeys(fields, "bf16")


@trainers.override(hf.checkpointing, source=CHECKPOINTS_AS_TOLD.source)
def checkpoints_what_it_prepares(run: Cells) -> Any:
    if run[f.objective.kind] != "sft" or not _is_quantized(run) or run.has(CHECKPOINTS_AS_TOLD):
        return None
    if run[f.quant.method] == "bnb4" and not run.has(PREPARES_4_BITS):
        return None
    return True if run[script.adapter] else None


@trainers.override(
    f.checkpointing.reentrant,
    source="TRL f2cd5771 trainer/sft_trainer.py:1106: PEFT under ZeRO-3 needs reentrant checkpointing",
)
def reentrant(run: Cells) -> Any:
    if not is_adapter_run(run) or _is_quantized(run) or run[f.parallel.backend] != "zero":
        return None
    return True if run[f.parallel.zero.stage] == 3 else None


# -- where the model lies --------------------------------------------------------------------------


@trainers.derive(
    f.load.device_map, source="TRL f2cd5771 trainer/utils.py:1153, trainer/sft_trainer.py:958"
)
def device_map(run: Cells) -> Any:
    """A model named by a string is loaded with ``device_map="auto"``, unless a launcher starts
    several ranks. Where nothing here starts the script, only a notebook's kernel is known to be one process."""
    if run[script.model_object] or not run.has(SPREADS):
        return None
    launcher = launcher_of(run)
    if launcher is None and not run.once(runs_in_kernel):
        return None
    return "auto" if launcher in (None, PLAIN) else "none"


@trainers.override(
    f.load.device_map, source="TRL 0.27.0 trainer/grpo_trainer.py, trainer/sft_trainer.py"
)
def placed_by_rank(run: Cells) -> Any:
    """A model that TRL itself loads lies on its rank's card where a launcher starts ranks, whatever
    ``model_init_kwargs`` say; to one that is loaded already they say nothing."""
    said = run.given.said(f.load.device_map)
    row = said.origin.row if isinstance(said, Setting) else None
    if row is None or not row.key.startswith("model_init_kwargs."):
        return None
    is_launched = launcher_of(run) not in (None, PLAIN)
    return "none" if is_launched and run.has(PLACES_BY_RANK) else None


# -- what ends before the first step ---------------------------------------------------------------


def _first_lacked(run: Cells) -> Ending | None:
    """An attribute that the class of the arguments has in other releases than the one that runs."""
    asked = run.once(_asked_arguments)
    switches = switches_of(run.given.blocks) if asked else {}
    for fact in asked:
        if not all(
            name in switches and is_on(name, switches) == on for name, on in fact.detail["guards"]
        ):
            continue
        argument, home = fact.detail["argument"], fact.detail["of"]
        cls = home.rpartition(".")[2]
        stem = cls.removesuffix("Config").lower()
        # Classes of TRL's own table; those of trl.experimental are others of these names.
        span = SPANS.keys.get(f"{'rm' if stem == 'reward' else stem}.{argument}")
        span = None if ".experimental." in home else span
        gone = None if span is None else release_of(span[1])
        if (
            span is not None
            and gone is not None
            and run.surely_made(LibraryChange("trl", gone, "", ""))
        ):
            why = f"{cls} of TRL {span[1]} and later has no {argument}"
            return Ending(why, fact.location, When.SETTINGS, _called_now(cls, argument))
    return None


declare_end(trainers, _first_lacked, source="fields of TRL's config classes, release by release")


def _called_now(cls: str, argument: str) -> str:
    """The name under which SFTConfig has an argument today; empty where there is none."""
    is_length = cls == "SFTConfig" and argument == RENAMED_LENGTH.old
    return RENAMED_LENGTH.new or "" if is_length else ""


def _asked_arguments(blocks: list[Block]) -> tuple[Fact, ...]:
    return tuple(facts_of(blocks, "asks-argument"))
