"""Megatron Bridge and mcore_adapter, which the environment of LLaMA-Factory chooses and whose degrees
stand in the same file (``LF/hparams/megatron_bridge_args.py``).

Read from LLaMA-Factory ff6d4d12 (2026-08-18); ``LF`` is ``src/llamafactory``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import shared
from oomlint.dialects.llamafactory.keys import lf, lf_env, lf_megatron
from oomlint.dialects.meaning import Meaning
from oomlint.plan.fields import f

bridge = Meaning()

_P = f.precision


def is_megatron(run: Cells) -> bool:
    if run[lf_env.bridge] or run[lf_env.mca]:
        return True
    return any(run[degree] is not None for degree in lf_megatron.all())


@bridge.derive(f.parallel.backend)
def backend(run: Cells) -> Any:
    return "megatron" if is_megatron(run) else None


@bridge.derive(f.parallel.tp, f.parallel.pp, f.parallel.cp, f.parallel.ep)
def degrees(run: Cells) -> Any:
    if not is_megatron(run):
        return None
    return {
        f.parallel.tp: run[lf_megatron.tp] or 1,
        f.parallel.pp: run[lf_megatron.pp] or 1,
        f.parallel.cp: run[lf_megatron.cp] or 1,
        f.parallel.ep: run[lf_megatron.ep] or 1,
    }


@bridge.derive(f.optimizer.fused, f.optimizer.foreach)
def steps(run: Cells) -> Any:
    """Both train with Megatron-LM's own optimizer over a fused Adam of Transformer Engine or Apex
    (Megatron-LM core_v0.14.0 megatron/core/optimizer/__init__.py:12-38), whatever ``optim`` says."""
    return {f.optimizer.fused: True, f.optimizer.foreach: False} if is_megatron(run) else None


@bridge.derive(f.parallel.ddp.find_unused)
def looks_for_unused(run: Cells) -> Any:
    """Megatron has a wrapper of its own for data parallelism."""
    return False if is_megatron(run) else None


@bridge.override(f.seq.pad, source="LF/train/mca/workflow.py:243: pad_to_max")
def pads_for_experts(run: Cells) -> Any:
    shares_experts = (run[lf_megatron.ep] or 1) > 1
    return "max_len" if shares_experts and run[f.seq.pad] == "longest" else None


@bridge.derive(f.checkpointing.mode, f.checkpointing.source)
def recomputation(run: Cells) -> Any:
    if not is_megatron(run):
        return None
    return {
        f.checkpointing.mode: run[lf.recompute] or "none",
        f.checkpointing.source: "megatron",
    }


@bridge.derive(_P.param, _P.compute, _P.grad, _P.master, _P.optim_state, _P.autocast)
def dtypes(run: Cells) -> Any:
    """Megatron-LM core/optimizer: 16-bit weights, fp32 main gradients, master and states."""
    half = run[shared.amp]
    if not is_megatron(run) or half == "no" or run[f.trainable.method] != "full":
        return None
    return {
        _P.param: half,
        _P.compute: half,
        _P.grad: "fp32",
        _P.master: "fp32",
        _P.optim_state: "fp32",
        _P.autocast: False,
    }
