"""Plans for the tiny DeepSpeed runs, whose live bytes were counted phase by phase."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomlint.plan import Plan
from oomlint.plan.model import Model, ModelDims, Precision, Trainable
from oomlint.plan.training import (
    Batch,
    Checkpointing,
    Eval,
    Offload,
    Optimizer,
    Parallel,
    Save,
    Seq,
    Zero,
)


def tiny_plan(row: Mapping[str, Any]) -> Plan:
    """The plan of a row of ``deepspeed-tiny.jsonl``: torch AdamW, bf16 with fp32 master."""
    case = row["case"]
    z = case.get("zero", {})
    stage = case["stage"]
    offload = Offload(
        optimizer="cpu" if "offload_optimizer" in z else "none",
        params="cpu" if "offload_param" in z else "none",
    )
    wide = case.get("ds", {}).get("data_types", {}).get("grad_accum_dtype") == "fp32"
    return Plan(
        name=f"zero{stage}-{row['world']}",
        model=Model(
            attn_impl="sdpa",
            dims=ModelDims(
                arch="llama", layers=case.get("L", 4), hidden=case.get("h", 128), heads=4,
                kv_heads=2, head_dim=case.get("h", 128) // 4, ffn=case.get("inter", 352),
                vocab=case.get("V", 1000), tie_embeddings=False, act="swiglu", norm="rms",
            ),
        ),
        trainable=Trainable(method="full"),
        precision=Precision(
            param="bf16", grad="bf16", master="fp32", optim_state="fp32", compute="bf16",
            autocast=False, grad_accum="fp32" if wide else "bf16",
        ),
        optimizer=Optimizer(kind="adamw", fused=False, foreach=bool(case.get("foreach"))),
        parallel=Parallel(
            backend="zero",
            world=row["world"],
            zero=Zero(
                stage=stage,
                reduce_bucket_elems=z.get("reduce_bucket_size"),
                overlap_comm=z.get("overlap_comm", False),
                prefetch_elems=z.get("stage3_prefetch_bucket_size"),
                max_live_params=z.get("stage3_max_live_parameters"),
                persistence_threshold=z.get("stage3_param_persistence_threshold"),
            ),
        ),
        offload=offload,
        batch=Batch(micro=1, grad_accum=case.get("ga", 1)),
        seq=Seq(max_len=case.get("seq", 16)),
        checkpointing=Checkpointing(mode="none" if case.get("gc") is False else "full"),
        eval=Eval(enabled=False),
        save=Save(strategy="no"),
    )  # fmt: skip
