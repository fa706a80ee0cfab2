"""What losses hold, against the same losses measured on fake tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oomlint.memory.facts import Facts
from oomlint.memory.logits import logits_of
from oomlint.plan import Plan
from oomlint.plan.model import Model, ModelDims, Precision, Trainable
from oomlint.plan.training import Batch, Loss, Objective, Parallel, Seq

MEASURED = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "losses.jsonl").read_text("utf-8").splitlines()
]
# How the plan says what a measured loss is.
ALGORITHMS = {
    "plain": Loss(),
    "preference": Loss(),
    "rows": Loss(algorithm="rows"),
    "copied_rows": Loss(algorithm="copied_rows"),
    "sampled": Loss(algorithm="rows", logits_materialised="completion_only"),
    "distilled": Loss(),
    "chunked": Loss(logits_materialised="chunked", chunks=8),
    "head_chunks": Loss(logits_materialised="chunked", chunks=8, algorithm="head_chunks"),
    "recomputed_chunks": Loss(
        logits_materialised="chunked", chunks=32, algorithm="recomputed_chunks"
    ),
    "recomputed_as_given": Loss(
        logits_materialised="chunked", chunks=32, algorithm="recomputed_as_given"
    ),
    "in_place": Loss(),
}
ALGORITHMS |= dict.fromkeys(
    ("kernel_tiles", "compared_tiles"),
    Loss(algorithm="kernel_tiles", logits_materialised="fused", words=32768, tile_tokens=4096),
)
KINDS: dict[str, Any] = {
    "preference": "dpo",
    "rows": "dpo",
    "copied_rows": "dpo",
    "sampled": "grpo",
    "distilled": "gkd",
    "compared_tiles": "dpo",
}


def plan_of(row: dict[str, Any]) -> Plan:
    param: Any = "fp32" if row["wide"] else "bf16"
    dims = ModelDims(
        arch="llama", layers=2, hidden=row["hidden"], heads=32, kv_heads=8, head_dim=128,
        ffn=14336, vocab=row["vocab"], tie_embeddings=False, act="swiglu", norm="rms",
    )  # fmt: skip
    return Plan(
        model=Model(dims=dims, attn_impl="sdpa"),
        objective=Objective(
            kind=KINDS.get(row["loss"], "sft"),
            pairs_per_sample=1,
            ref_model="copy" if row["refers"] else "none",
        ),
        trainable=Trainable(method="full" if row["trained"] else "lora", r=8),
        precision=Precision(
            param=param, grad=param, optim_state=param, compute="bf16", autocast=row["autocast"]
        ),
        parallel=Parallel(backend="megatron" if row["loss"] == "in_place" else "none"),
        batch=Batch(micro=row["rows"], grad_accum=1),
        seq=Seq(max_len=row["length"]),
        loss=ALGORITHMS[row["loss"]],
    )


def name_of(row: dict[str, Any]) -> str:
    flags = [name for name in ("trained", "wide", "autocast", "refers") if row[name]]
    return "-".join([row["loss"], *flags])


@pytest.mark.parametrize("row", MEASURED, ids=name_of)
def test_the_peak_of_a_loss_is_what_was_measured(row: dict[str, Any]) -> None:
    """Of the head, the loss and its backward; some losses drop a copy that is counted here."""
    f = Facts(plan_of(row))
    head = logits_of(f, f.samples.tokens)
    width = 4 if row["wide"] else 2
    backward = [total + own * width for _, total, own in head.late] or [head.early]
    # The norm's share holds the weight that autocast casts.
    cast = 2 * row["vocab"] * row["hidden"] if row["wide"] else 0
    if row["loss"] in (
        "recomputed_chunks",
        "recomputed_as_given",
        "kernel_tiles",
        "compared_tiles",
    ):
        cast = 0
    real = max(row["loss_bytes"], row["backward_bytes"])
    assert max(*backward, head.loss, head.kept) + cast == pytest.approx(real, rel=0.05)


@pytest.mark.parametrize("row", MEASURED, ids=name_of)
def test_what_a_loss_keeps_is_what_was_measured(row: dict[str, Any]) -> None:
    if row["wide"]:
        pytest.skip("the cast weight is counted with the norm")
    f = Facts(plan_of(row))
    assert logits_of(f, f.samples.tokens).kept == pytest.approx(row["kept_bytes"], rel=0.05)


def test_a_reward_model_has_no_vocabulary_unless_its_value_head_stands_beside_one() -> None:
    """Llama-3-8B: 128256 x 4096 weights less, and their gradients and states."""
    row = {**MEASURED[0], "wide": False, "autocast": False, "trained": True, "refers": False}
    language = plan_of(row)
    reward = language.with_values({"objective.kind": "rm"})
    beside = reward.with_values({"loss.algorithm": "dropped"})
    head = row["vocab"] * row["hidden"]
    numel = {name: Facts(plan).model for name, plan in
             (("language", language), ("reward", reward), ("beside", beside))}  # fmt: skip
    assert numel["language"] is not None
    assert numel["reward"] is not None
    assert numel["language"].numel - numel["reward"].numel == head
    assert numel["beside"] is numel["language"]
    for plan, logits in ((reward, 0), (beside, 6 * row["vocab"] * row["rows"] * row["length"])):
        f = Facts(plan)
        assert logits_of(f, f.samples.tokens).loss == logits
        assert logits_of(f, f.samples.tokens).kept == 0
