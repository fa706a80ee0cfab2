"""What slime makes of its options, and how they say a wish.

Read from THUDM/slime 624b824a (2026-08-21); ``SL`` below is its ``slime`` package. Megatron-core
trains, so that what its options mean holds here too, but for what is said below.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.precision import precision
from oomlint.dialects.common.world import world
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Meaning, Said, Wishes
from oomlint.dialects.megatron.fields import mg
from oomlint.dialects.megatron.meaning import options
from oomlint.dialects.setting import Origin, Setting
from oomlint.dialects.slime.adapters import adapters
from oomlint.dialects.slime.batches import batches
from oomlint.dialects.slime.fsdp import fsdp, is_fsdp
from oomlint.dialects.slime.keys import ARGUMENTS, MEGATRON_ARGUMENTS, SOURCE, own
from oomlint.dialects.slime.sharing import sharing
from oomlint.errors import CannotEdit
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

meaning = Meaning(adapters, fsdp, batches, sharing, options, world, launch_one_process, precision)

# -- ranks -----------------------------------------------------------------------------------------

_NODE = 8


@meaning.said(f.parallel.gpus_per_node, f.parallel.nodes)
def counted_by_script(run: Cells, field: Any, said: Said) -> Said:
    """Scripts of slime's count the GPUs of a machine that they know nothing of, and take eight where
    none is found (scripts/run-qwen3-4B.sh)."""
    if not isinstance(said, Origin):
        return said
    known, why = run[launch.machines], "the script counts its machine's"
    if field == f.parallel.gpus_per_node:
        known, why = _NODE, "slime's scripts take eight GPUs where they find none"
    if known is None:
        return said
    return Setting(known, Origin("assumed", run.block_with(field), source=why), level=Level.ASSUMED)


# -- the model -------------------------------------------------------------------------------------

meaning.always(f.model.from_scratch, False, f"{ARGUMENTS}: --load, --ref-load or --hf-checkpoint")
meaning.constant(f.model.trust_remote_code, True, f"{MEGATRON_ARGUMENTS}:200")


@meaning.derive(mg.other)
def built_by_code(run: Cells) -> Any:
    """A model that code of its own builds is known by its checkpoint, with which the options must
    agree (SL/backends/megatron_utils/arguments.py:97 _hf_validate_args)."""
    return True if run.mentions(own.spec) or run.is_unread(mg.moe_freq) else None


meaning.takes(mg.tokenizer_model, f.model.id, f"{MEGATRON_ARGUMENTS}:181")


meaning.constant(mg.max_positions, 4096, f"{MEGATRON_ARGUMENTS}:164: a place holder")


@meaning.override(mg.bf16, source=f"{MEGATRON_ARGUMENTS}:157")
def computes_in_bf16(run: Cells) -> Any:
    return not run[mg.fp16]


@meaning.override(f.parallel.megatron.dist_optimizer, source=f"{MEGATRON_ARGUMENTS}:153")
def shards_optimizer(run: Cells) -> Any:
    return True


_KINDS = {"ppo": "ppo", "reinforce_plus_plus": "rloo", "reinforce_plus_plus_baseline": "rloo"}


@meaning.derive(f.objective.kind, source=ARGUMENTS)
def objective(run: Cells) -> Any:
    if run[own.loss] == "sft_loss":
        return "sft"
    return _KINDS.get(run[own.estimator], "grpo")


# -- loss ------------------------------------------------------------------------------------------

_LOSS = f"{SOURCE} slime/backends/megatron_utils/loss.py:510, slime/utils/ppo_utils.py:190"


@meaning.derive(f.loss.upcast_fp32, source=_LOSS)
def widens_logits(run: Cells) -> Any:
    """Megatron's Float16Module hands out fp32."""
    return None if is_fsdp(run) else True


@meaning.derive(f.loss.algorithm, source=_LOSS)
def log_probabilities(run: Cells) -> Any:
    """A softmax beside the logits, over which backward writes their gradient; an entropy that counts
    keeps the logits too."""
    if is_fsdp(run):
        return None
    return "softmax_entropy" if run[own.entropy] else "softmax"


meaning.always(f.env.expandable_segments, True, f"{SOURCE} slime/ray/train_actor.py:57")

# -- data, evaluating, saving ----------------------------------------------------------------------

meaning.always(f.data.workers, 0, f"{SOURCE} slime/ray/rollout.py: the driver reads the data")
meaning.cannot_say("slime's driver reads the data itself", f.data.workers)


@meaning.derive(f.eval.enabled, f.eval.strategy, f.eval.every, source=f"{SOURCE} train.py")
def evaluation(run: Cells) -> Any:
    every = run[own.eval_every]
    if every is None:
        return {f.eval.enabled: False, f.eval.strategy: "no"}
    return {f.eval.enabled: True, f.eval.strategy: "steps", f.eval.every: float(every)}


meaning.always(f.eval.keeps_logits, False, f"{SOURCE} train.py")
meaning.always(f.eval.generate, True, f"{SOURCE} train.py")


@meaning.derive(f.save.strategy, source=f"{SOURCE} train.py")
def save_strategy(run: Cells) -> Any:
    return "steps" if run.mentions(f.save.dir) and run[f.save.every] else "no"


# -- inverses that are slime's own -----------------------------------------------------------------


@meaning.written(f.parallel.megatron.dist_optimizer)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not wanted:
        raise CannotEdit("slime always shards the optimizer")
    return {}
