"""Plans for the steps that ``benchmarks.measure`` measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.accuracy.simulated import single_plan
from msgspec.structs import replace

from oomlint.memory.build import without_head
from oomlint.models import from_config_json
from oomlint.plan import Plan
from oomlint.plan.model import Model, ModelDims, Vision


def dims_of(row: Mapping[str, Any]) -> ModelDims:
    """The dimensions of a measured model, read as from its config.json."""
    dims = from_config_json(dict(row["config"])).dims
    if dims.params_total is None:
        # The catalogue has the counts of the classes that the reader cannot count.
        dims = replace(dims, params_total=row["base_params"])
    return without_head(dims) if row["kind"] == "classification" else dims


# How TRL 1.9 takes log-probabilities: sample by sample, of logits in the dtype that the model made them in.
_BY_ROWS = frozenset({"dpo", "kto", "orpo"})


def condition_plan(row: Mapping[str, Any]) -> Plan:
    """The plan of a row of the measured set ``steps``: TRL's own losses, and conditions of precision and PEFT."""
    dims = from_config_json(dict(row["config"])).dims
    if dims.params_total is None and dims.layers is not None:
        dims = replace(dims, params_total=row["n_params_base"])
    plan = single_plan(row, dims)
    values: dict[str, Any] = {}
    kind = row["loss"]
    if kind != "lm":
        values["objective.kind"] = kind
        # The collators hand a mask on, though no sample is padded.
        values["seq.pad"] = "longest"
    if kind in _BY_ROWS:
        values["loss.algorithm"] = "rows"
    if kind in ("dpo", "kto"):
        beside = "shared_adapter_off" if row["lora"] else "copy"
        values["objective.ref_model"] = "precomputed" if row.get("precompute") else beside
    if names := row.get("freeze_all_but"):
        values["trainable.method"] = "freeze"
        values["trainable.names"] = tuple(
            f"model.{name}" if name.startswith("layers.") else name for name in names
        )
    lora = row["lora"] or {}
    if lora.get("dora"):
        values["trainable.method"] = "dora"
    if saved := lora.get("modules_to_save"):
        values["trainable.modules_to_save"] = tuple(saved)
        values["trainable.saved_dtype"] = plan.precision.param
    return plan.with_values(values)


def step_plan(row: Mapping[str, Any]) -> Plan:
    """The plan of a row of tests/memory/data/steps.jsonl."""
    dims = dims_of(row)
    lora = row.get("lora")
    if lora:
        lora = {"targets": "all-linear", "dropout": 0.0, **lora}
        if not isinstance(lora["targets"], list | tuple) and lora["targets"] != "all-linear":
            lora["targets"] = ("q_proj", "v_proj")
    if dims.vision is not None and not row.get("images"):
        # Text alone: nothing goes through the tower.
        dims = replace(dims, vision=replace(dims.vision, heads=None))
    plan = single_plan({**row, "lora": lora, "model": row["id"], "dims": None}, dims)
    vision = Vision()
    if row.get("images"):
        assert dims.vision is not None
        share = row["images"] / row["micro_batch"]
        frozen = bool(row.get("frozen")) or bool(lora and lora["targets"] != "all-linear")
        area = (dims.vision.patch or 1) ** 2
        vision = Vision(freeze_tower=frozen, max_pixels=int(row["patches"] * share * area))
    # TRL's own context, which is around the loss too.
    away = "cpu" if row.get("offload_activations") else "none"
    return plan.with_values(
        {
            "model": Model(
                id=row["id"], dims=dims, attn_impl=plan.model.attn_impl, vision=vision,
                experts_impl="grouped",
            ),
            "seq.pad": "longest" if row.get("padded") else plan.seq.pad,
            "seq.target_len": row.get("target_len"),
            "checkpointing.offload": away,
            "checkpointing.input_grads": bool(row["gc"]),
            "offload.activations": away,
            "offload.keeps_shared": away == "cpu",
            "offload.takes_loss": away == "cpu",
            # A classifier's few numbers are no logits.
            "objective.kind": "embedding" if row["kind"] == "classification" else None,
        }
    )  # fmt: skip
