"""Plans for the rows that were measured on fake tensors: one GPU, and one rank of many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.accuracy.models import dims_of

from oomlint.plan import Plan
from oomlint.plan.model import Model, ModelDims, Precision, Trainable
from oomlint.plan.training import (
    Batch,
    Checkpointing,
    Ddp,
    Env,
    Eval,
    Fsdp,
    Loss,
    Offload,
    Optimizer,
    Parallel,
    Save,
    Seq,
)

_OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw_fused": {"kind": "adamw", "fused": True, "foreach": False},
    "adamw_foreach": {"kind": "adamw", "fused": False, "foreach": True},
    "adamw_forloop": {"kind": "adamw", "fused": False, "foreach": False},
    "sgd": {"kind": "sgd", "foreach": True},
    "sgd_momentum": {"kind": "momentum_sgd", "foreach": True},
    "adafactor_hf": {"kind": "adafactor", "name": "adafactor"},
    "adafactor_torch": {"kind": "adafactor", "name": "torch_adafactor", "foreach": False},
    "adafactor_torch_foreach": {"kind": "adafactor", "name": "torch_adafactor", "foreach": True},
    "lomo": {"kind": "lomo"},
    "adalomo": {"kind": "adalomo"},
}


def single_plan(row: Mapping[str, Any], dims: ModelDims | None = None) -> Plan:
    """The plan of a row of ``simulated.jsonl``; ``dims`` are those of a model known otherwise."""
    regime = row["regime"]
    wide = regime.startswith("fp32")
    weight = "fp32" if wide else "bf16"
    lora = row["lora"]
    adapter = None
    if lora:
        adapter = "fp32"
        if lora.get("autocast_adapter_dtype") is False and not wide:
            adapter = "bf16"
    trained = adapter or weight
    attn = {"sdpa": "sdpa", "sdpa_padmask": "sdpa", "eager": "eager", "flash2": "flash2"}
    return Plan(
        name=str(row.get("id")),
        env=Env(kernel_scratch=False),
        model=Model(
            id=row["model"],
            dims=dims or dims_of(row),
            attn_impl=attn[row["attn"]],  # type: ignore[arg-type]
            experts_impl="loop" if row.get("experts_impl") == "eager" else "grouped",
        ),
        trainable=_trainable(lora, adapter),
        precision=Precision(
            param=weight,  # type: ignore[arg-type]
            grad=trained,  # type: ignore[arg-type]
            master="none",
            optim_state=trained,  # type: ignore[arg-type]
            compute="fp32" if regime == "fp32" else "bf16",
            autocast=regime.endswith("amp_bf16"),
        ),
        optimizer=Optimizer(**_OPTIMIZERS[row["optimizer"]]),
        parallel=Parallel(backend="none", world=1),
        batch=Batch(micro=row["micro_batch"], grad_accum=row.get("grad_accum", 1)),
        seq=Seq(max_len=row["seq_len"], pad="longest" if row["attn"] == "sdpa_padmask" else "none"),
        checkpointing=Checkpointing(mode="full" if row["gc"] else "none", reentrant=False),
        loss=Loss(
            logits_materialised="full", upcast_fp32=True, outputs_kept=row.get("style") == "raw"
        ),
        eval=Eval(enabled=False),
        save=Save(strategy="no"),
    )


def _trainable(lora: Mapping[str, Any] | None, adapter: str | None) -> Trainable:
    if not lora:
        return Trainable(method="full")
    targets = lora["targets"]
    return Trainable(
        method="lora",
        r=lora["r"],
        dropout=lora["dropout"],
        targets="all_linear" if targets == "all-linear" else tuple(targets),
        adapter_dtype=adapter,  # type: ignore[arg-type]
    )


_WRAP = {"accelerate1.15": "ends", "torchtitan": "ends", "root": "transformer",
         "transformer": "transformer", "none": "none"}  # fmt: skip
_STRATEGY = {"FULL_SHARD": "full", "SHARD_GRAD_OP": "grad_op", "NO_SHARD": "no_shard"}


def sharded_plan(row: Mapping[str, Any]) -> Plan:
    """The plan of a row of ``sharded.jsonl``."""
    plan = single_plan({**row, "style": "trainer"})
    policy = row.get("mp_policy")
    backend = row["backend"]
    values: dict[str, Any] = {
        "parallel.backend": backend,
        "parallel.world": row["world"],
        "parallel.nodes": 1,
        "precision.autocast": bool(row.get("autocast")),
    }
    if backend in ("fsdp1", "fsdp2"):
        if policy is not None:
            if row["method"] == "full":
                values |= {
                    "precision.param": "fp32",
                    "precision.grad": "fp32",
                    "precision.optim_state": "fp32",
                }
            values["precision.compute"] = "bf16"
            values["precision.comm"] = "fp32" if policy == "fp32reduce" else "bf16"
        else:
            values["precision.comm"] = plan.precision.param
            values["precision.compute"] = plan.precision.param
        values["parallel.fsdp"] = Fsdp(
            version=2 if backend == "fsdp2" else 1,
            strategy=_STRATEGY.get(row["sharding_strategy"], "full"),  # type: ignore[arg-type]
            reshard_after_forward=row.get("reshard"),
            wrap=_WRAP[row["wrap"]],  # type: ignore[arg-type]
            backward_prefetch=row["prefetch"]
            if row["prefetch"] in ("pre", "post", "none")
            else None,
            cpu_offload=bool(row.get("cpu_offload")),
            use_orig_params=row.get("use_orig_params", True),
            sync_every_micro=bool(row.get("accum_sync")),
        )
        if row.get("cpu_offload"):
            values["offload"] = Offload(params="cpu", optimizer="cpu")
    elif backend == "ddp":
        values["parallel.ddp"] = Ddp(bucket_view=bool(row.get("bucket_view")))
    return plan.with_values(values)
