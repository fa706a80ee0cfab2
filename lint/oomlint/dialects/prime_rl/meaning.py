"""What prime-rl makes of its keys, and how they say a wish.

Read from PrimeIntellect-ai/prime-rl 559b4477 (2026-08-21); ``PT`` below is its ``src/prime_rl/trainer``.
Trainer and inference have cards of their own, always: what is predicted is a card that trains.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.machine.meaning import launch_all_visible
from oomlint.dialects.meaning import Bounds, Meaning, Wishes
from oomlint.dialects.prime_rl.batches import batches
from oomlint.dialects.prime_rl.keys import EXPANDS, ORCHESTRATOR, SFT_CONFIG, SOURCE, TRAINER, own
from oomlint.dialects.prime_rl.ranks import ranks
from oomlint.dialects.prime_rl.sections import has, is_on, is_sft
from oomlint.dialects.prime_rl.sharding import sharding
from oomlint.dialects.prime_rl.training import training
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

meaning = Meaning(ranks, sharding, training, batches, world, launch_all_visible, batch)

_CODE = f"{SOURCE} src/prime_rl/trainer"
_MODEL = f"{_CODE}/model.py"
_HEAD = f"{_CODE}/models/layers/lm_head.py"
_RL = f"{_CODE}/rl/train.py"
_SFT = f"{_CODE}/sft/train.py"
_O = f.objective
_R = f.objective.rollout


@meaning.requires
def releases(run: Cells) -> Iterator[Bounds]:
    """Those that have the keys: ``micro_batch_size`` of RL went before 0.3.0 (2025-10-27, 9a0070b1), ``tp`` and
    ``trainer_gpu_ids`` before 0.5.0 (2026-03-30), ``fp8`` became a section on 2026-07-16, ``full_offload`` came on
    2026-08-15 (configs/trainer.py)."""
    if run.says(own.answer_rows):
        yield "prime-rl", (), (0, 3)
    if run.says(f.parallel.tp) or run.says(own.gpu_ids):
        yield "prime-rl", (), (0, 5)
    if run.says(own.early_fp8):
        yield "prime-rl", (), (0, 8)
    if run.says(own.quantization):
        yield "prime-rl", (0, 8), ()
    if run.says(own.full_offload):
        yield "prime-rl", (0, 8, 1), ()


# -- the model and the objective -------------------------------------------------------------------


@meaning.derive(_O.kind, source=f"{SOURCE} src/prime_rl/entrypoints")
def objective(run: Cells) -> Any:
    """Distillation trains on log-probabilities of the same kind (configs/algorithm.py)."""
    return "sft" if is_sft(run) else "grpo"


@meaning.derive(_O.ref_model, _O.critic, _O.reward_model, _O.teacher, source=_RL)
def models_beside(run: Cells) -> Any:
    """What judges answers, or is imitated, is served elsewhere."""
    return dict.fromkeys((_O.ref_model, _O.critic, _O.reward_model, _O.teacher), "none")


@meaning.override(f.model.dims, source=f"{_MODEL}: debug.num_layers")
def cut_short(run: Cells) -> Any:
    layers, dims = run[own.layers], run[f.model.dims]
    if layers is None or dims is None or not dims.layers or layers >= dims.layers:
        return None
    unknown = dict.fromkeys((n for n in dims.__struct_fields__ if n.startswith("params_")), None)
    return replace(dims, layers=layers, **unknown)


meaning.takes(f.model.from_scratch, own.random_init, f"{_MODEL}:1000")


@meaning.derive(f.model.attn_impl, source=f"{_MODEL}:1303")
def attention(run: Cells) -> Any:
    return run[own.attention] or "flash2"


@attention.written
def _(kernel: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kernel not in ("flash2", "flash3"):
        raise CannotEdit("prime-rl attends with flash attention")
    return {own.attention: kernel}


meaning.always(f.load.meta_init, True, f"{_MODEL}:985: the meta device, then DCP shard by shard")
meaning.always(f.load.device_map, "none", _MODEL)
meaning.cannot_say("prime-rl loads shard by shard", f.load.cpu_ram_efficient)


@meaning.derive(f.load.resume, source=f"{TRAINER}: TrainerConfig.resume")
def resumes(run: Cells) -> Any:
    return is_on(run[own.resume])


# -- the loss --------------------------------------------------------------------------------------

# Words of the vocabulary that the head takes at a time (_HEAD: vocab_chunk_size).
_TILE = 8192


@meaning.derive(
    f.loss.logits_materialised, f.loss.algorithm, f.loss.chunks, f.loss.words, f.loss.upcast_fp32, f.loss.outputs_kept,
    source=f"{_HEAD}:89-202, {_SFT}:305",
)  # fmt: skip
def loss(run: Cells) -> Any:
    """Log-probabilities of some tokens and 8192 words of the vocabulary at a time; before 0.5 of all tokens. Logits that
    are all there are made fp32 (model.py cast_float_and_contiguous), and the loop's ``out`` holds them to the next."""
    chunk, micro, length = run[own.chunk], run[f.batch.micro], run[f.seq.max_len]
    words = 0 if is_sft(run) or run[own.implementation] == "liger_kernel" else run[own.words]
    if not (chunk or words):
        return {
            f.loss.logits_materialised: "full",
            f.loss.upcast_fp32: True,
            f.loss.outputs_kept: True,
        }
    tokens = (micro or 1) * (length or chunk) // (run[f.parallel.cp] or 1)
    return {
        f.loss.logits_materialised: "fused",
        f.loss.algorithm: "tiles",
        f.loss.chunks: max(1, -(-tokens // chunk)) if chunk else 1,
        f.loss.words: _TILE if chunk else words,
        f.loss.upcast_fp32: True,
        f.loss.outputs_kept: False,
    }


@loss.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if f.loss.logits_materialised not in wishes:
        raise CannotEdit("fused_lm_head_token_chunk_size counts tokens")
    if wishes[f.loss.logits_materialised] not in ("fused", "chunked"):
        raise CannotEdit("prime-rl computes its loss in chunks, or from all logits")
    return {own.chunk: 1024}


# -- rollouts --------------------------------------------------------------------------------------


@meaning.derive(_R.engine, source=f"{SOURCE} src/prime_rl/entrypoints/rl.py:130")
def engine(run: Cells) -> Any:
    return None if is_sft(run) else "vllm_server"


@meaning.derive(_R.sleep, source=f"{SOURCE} src/prime_rl/entrypoints/rl.py:130")
def never_sleeps(run: Cells) -> Any:
    return None if is_sft(run) else False


meaning.cannot_say("prime-rl's inference has cards of its own", _R.sleep)


@meaning.derive(_R.generation_batch, source=f"{ORCHESTRATOR}: batch_size")
def answers(run: Cells) -> Any:
    if is_sft(run) or run[own.answer_tokens] or run[own.kind] == "trainer":
        return None
    return run[own.answers] or 128


# -- evaluating and saving -------------------------------------------------------------------------


@meaning.derive(f.eval.enabled, f.eval.strategy, f.eval.every, source=f"{SFT_CONFIG}: SFTValConfig")
def evaluation(run: Cells) -> Any:
    if not is_sft(run) or not is_on(run[own.val]):
        return {f.eval.enabled: False, f.eval.strategy: "no"}
    every = float(run[own.val_every])
    return {f.eval.enabled: True, f.eval.strategy: "steps", f.eval.every: every}


meaning.always(f.eval.keeps_logits, False, _SFT)


@meaning.derive(f.save.strategy, f.save.every, f.save.keep, source=f"{TRAINER}: CheckpointConfig")
def saving(run: Cells) -> Any:
    if not has(run, own.ckpt):
        return {f.save.strategy: "no"}
    every = run[own.interval]
    found = {f.save.strategy: "steps" if every else "end", f.save.keep: run[own.keep] or "all"}
    return {**found, f.save.every: float(every)} if every else found


@meaning.written(f.save.every)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.interval: int(steps)}


@meaning.written(f.save.keep)
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    if count == "all":
        raise CannotEdit("every checkpoint is kept where keep_last is not there")
    return {own.keep: count}


meaning.always(f.save.unit, "steps", f"{_CODE}/ckpt.py")
meaning.always(f.save.contents, ("model", "optimizer", "scheduler"), f"{_CODE}/ckpt.py:213")
meaning.always(f.save.format, "dcp", f"{_CODE}/ckpt.py")
meaning.always(f.save.full_gather, False, f"{_CODE}/ckpt.py")
meaning.cannot_say("prime-rl saves the optimizer with the model", f.save.save_only_model)


@meaning.default(
    f.env.expandable_segments,
    source=f"{SOURCE} src/prime_rl/utils/process.py:25, src/prime_rl/entrypoints",
)
def expands(run: Cells) -> Any:
    """``rl`` and ``sft`` set it for the ranks that they start; nobody does for a trainer that is started alone."""
    if run[own.kind] == "trainer":
        return False
    return not is_sft(run) or run.has(EXPANDS)
