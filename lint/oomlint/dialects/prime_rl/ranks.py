"""Over which ranks prime-rl lays its trainer.

Read from PrimeIntellect-ai/prime-rl 559b4477 (2026-08-21); ``PT`` below is its ``src/prime_rl/trainer``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.prime_rl.keys import RL_CONFIG, SFT_CONFIG, SOURCE, SPREADS_EXPERTS, own
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

ranks = Meaning()

_CODE = f"{SOURCE} src/prime_rl/trainer"


@ranks.derive(
    f.parallel.gpus_per_node,
    f.parallel.nodes,
    source=f"{RL_CONFIG}:160-215, {SOURCE} src/prime_rl/entrypoints/rl.py:130",
)
def cards(run: Cells) -> Any:
    """Of the trainer: the cards that answers are written on come besides."""
    if run[own.kind] == "trainer":
        return None
    if run[own.deployment] == "multi_node":
        return {
            f.parallel.gpus_per_node: run[own.node_gpus],
            f.parallel.nodes: run[own.train_nodes],
        }
    named = run[own.gpu_ids]
    return {
        f.parallel.gpus_per_node: len(named) if named else run[own.train_gpus],
        f.parallel.nodes: 1,
    }


@ranks.override(
    f.parallel.dp_replicate, source=f"{RL_CONFIG}:692, {SFT_CONFIG}: auto_setup_deployment"
)
def islands(run: Cells) -> Any:
    nodes, island = run[own.train_nodes], run[own.island]
    is_split = run[own.deployment] == "multi_node" and nodes and island and nodes % island == 0
    return nodes // island if is_split else None


_DIMS = f"{_CODE}/parallel_dims.py"


@ranks.derive(f.parallel.dp_shard, source=f"{_DIMS}:326")
def shards_over_rest(run: Cells) -> Any:
    total = run[f.parallel.world]
    others = (run[f.parallel.dp_replicate] or 1) * (run[f.parallel.cp] or 1)
    return None if total is None else max(1, total // (others * (run[f.parallel.tp] or 1)))


@ranks.derive(f.parallel.ep, source=f"{_DIMS}:281")
def spreads_experts(run: Cells) -> Any:
    """By itself as far as there are ranks, up to eight."""
    if run[own.experts] is not None:
        return run[own.experts]
    dims, total = run[f.model.dims], run[f.parallel.world]
    asked = run.is_auto(own.experts) or run.has(SPREADS_EXPERTS)
    if not asked or run[own.implementation] == "hf" or dims is None or dims.moe is None:
        return 1
    return min(total // (run[f.parallel.dp_replicate] or 1), 8) if total else None


@spreads_experts.written
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    if count > 1 and run[own.implementation] == "hf":
        raise CannotEdit("experts are spread in prime-rl's own models alone (impl)")
    return {own.experts: count}


@ranks.written(f.parallel.cp)
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    """PR/trainer.py validate_cp, PR/sft.py validate_cp_seq_len and validate_cp_micro_batch_size."""
    length, micro = wishes.get(f.seq.max_len) or run[f.seq.max_len], run[f.batch.micro]
    if count > 1 and run[own.implementation] == "hf":
        raise CannotEdit("context parallelism takes prime-rl's own models (impl)")
    if count > 1 and length and length % count:
        raise CannotEdit("the length must be divisible by the ranks that share a sample")
    if count > 1 and (wishes.get(f.batch.micro) or micro or 1) > 1:
        raise CannotEdit("the micro batch must be 1 where ranks share a sample")
    return {f.parallel.cp: count}
