"""What other estimators say of the same runs: their published formulas, written down again.

Each takes a plan and answers in bytes of one GPU, or ``None`` where its formula has no place
for the run. None of them knows the CUDA context; what they call memory is compared with the
published figure as it is.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from oomlint.memory.facts import Facts
from oomlint.plan import Plan

Estimator = Callable[[Facts], float | None]


class Run(NamedTuple):
    """One published run: its plan, our relative error and the published bytes."""

    family: str
    plan: Plan
    error: float
    real: float


def _trains_all(f: Facts) -> bool:
    return f.trained.method == "full"


def deepspeed_states(f: Facts) -> float | None:
    """DeepSpeed 0.19.6, ``estimate_zero2_model_states_mem_needs`` (runtime/zero/
    stage_1_and_2.py) and ``estimate_zero3_model_states_mem_needs`` (stage3.py): model states."""
    stage = f.plan.parallel.zero.stage if f.ranks.backend == "zero" else None
    if stage not in (2, 3) or not _trains_all(f) or f.model is None:
        return None
    total, gpus = float(f.model.numel), f.ranks.world
    offload = f.plan.offload
    if stage == 2:
        return 2 * total + (0 if offload.optimizer == "cpu" else 18 * total / gpus)
    # "largest layer": the module with the most parameters of its own.
    largest = 4.0 * f.model.largest_tensor
    if offload.optimizer != "cpu":
        return largest + 18 * total / gpus
    return largest + (0 if offload.params == "cpu" else 2 * total / gpus)


def accelerate_estimate(f: Facts) -> float | None:
    """accelerate 1.15 ``estimate-memory``, "Training using Adam" (commands/estimate.py,
    ``estimate_training_usage``): the largest of four sums, batch size 1, one GPU."""
    if f.model is None or not _trains_all(f) or f.ranks.backend not in ("none", "ddp"):
        return None
    wide = 4.0 * f.model.numel
    return 4 * wide if f.bytes_per.compute == 4 else max(wide, 1.5 * wide, 2 * wide)


def cookbook_memory(f: Facts) -> float | None:
    """EleutherAI's cookbook at 827ee3b, calc/calc_transformer_mem.py with its defaults for what
    a plan does not say: mixed precision, fp32 gradients, 5e8 elements of bucket."""
    dims, m = f.plan.model.dims, f.model
    if m is None or dims is None or not _trains_all(f):
        return None
    hidden, layers, vocab, heads = m.hidden, m.layers, m.vocab, max(1, m.heads)
    length, batch = f.samples.length, f.samples.rows
    linears = 3 if dims.act in ("swiglu", "geglu") else 2
    embeddings = 2 * vocab * hidden + hidden * length
    norms = 8 * hidden * layers + 2 * hidden
    attention = 2 * (1 + m.kv_heads / heads) * layers * hidden * hidden
    mlp = linears * layers * hidden * m.ffn
    moe = dims.moe
    experts = (moe.experts or 0) / f.ranks.ep if moe is not None else 1.0
    total = embeddings + norms + attention + experts * mlp
    stage = 0
    if f.ranks.backend == "zero":
        stage = f.plan.parallel.zero.stage or 0
    elif f.ranks.backend in ("fsdp1", "fsdp2"):
        stage = 3
    elif f.ranks.backend == "megatron":
        stage = 1
    parameters = 2 * total / (f.ranks.tp * f.ranks.pp) / (f.ranks.world if stage == 3 else 1)
    gradients = 4 * total / (f.ranks.world if stage >= 2 else 1)
    optimizer = 12 * total / (f.ranks.world if stage >= 1 else 1)
    buckets = 0.0
    if f.ranks.world > 1:
        buckets = (1e9 if stage >= 1 else 0.0) + (2e9 if stage == 3 else 0.0)
    each = 34.0
    if f.plan.checkpointing.mode in (None, "none"):
        each += 5 * heads * length / hidden
    return parameters + gradients + optimizer + buckets + length * batch * hidden * layers * each


def llama_factory_table(f: Facts) -> float | None:
    """LLaMA-Factory 0.9.6, README "Hardware Requirement": GB for ``x`` billion parameters, over
    all GPUs where they share the model."""
    if f.model is None:
        return None
    plan = f.plan
    quantised = plan.quant.method not in (None, "none") and not plan.quant.dequantised_on_load
    if quantised:
        bits = plan.quant.bits or (8 if plan.quant.method == "bnb8" else 4)
        width = bits / 8
    elif f.trained.method != "full":
        width = 2.0
    else:
        width = 8.0 if f.bytes_per.optim_state == 2 and not f.bytes_per.master else 18.0
    shared = f.ranks.backend in ("fsdp1", "fsdp2", "megatron", "device_map_pp") or (
        f.ranks.backend == "zero" and (plan.parallel.zero.stage or 0) == 3
    )
    return width * f.model.numel / (f.ranks.world if shared else 1)


PEERS: dict[str, Estimator] = {
    "DeepSpeed model states": deepspeed_states,
    "accelerate estimate-memory": accelerate_estimate,
    "EleutherAI cookbook": cookbook_memory,
    "LLaMA-Factory table": llama_factory_table,
}


class Comparison(NamedTuple):
    """Errors of a peer and ours on the runs that it covers: means of the families' medians."""

    name: str
    runs: int
    families: int
    theirs: float
    ours: float


def compare(runs: Iterable[Run]) -> list[Comparison]:
    """Every peer beside us, on the runs that its formula covers."""
    known = [(run, Facts(run.plan)) for run in runs]
    found = []
    for name, estimator in PEERS.items():
        theirs: dict[str, list[float]] = defaultdict(list)
        ours: dict[str, list[float]] = defaultdict(list)
        for run, facts in known:
            answer = estimator(facts)
            if answer is not None:
                theirs[run.family].append(abs(answer / run.real - 1))
                ours[run.family].append(run.error)
        if theirs:
            found.append(
                Comparison(
                    name, sum(map(len, theirs.values())), len(theirs), _mean(theirs), _mean(ours)
                )
            )
    return found


def _mean(errors: dict[str, list[float]]) -> float:
    return statistics.mean(statistics.median(found) for found in errors.values())
