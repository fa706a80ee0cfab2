"""Dimensions that somebody gives, over those that a catalogue knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict, replace

from oomlint.plan import Plan
from oomlint.plan.model import ModelDims

_SHAPE = frozenset(
    "layers hidden heads kv_heads head_dim ffn vocab tie_embeddings attn_bias mlp_bias qk_norm "
    "norm act layer_types moe mla vision ssm linear_attn per_layer mtp_layers".split()
)
_PREFIX = "model.dims."


def over(known: ModelDims, given: ModelDims) -> ModelDims:
    """``known`` with the fields that ``given`` has."""
    stated = {name: value for name, value in asdict(given).items() if value is not None}
    return _changed(known, stated)


def with_members(known: ModelDims | None, values: Mapping[str, Any]) -> ModelDims | None:
    """``known`` with those of ``values`` that are dotted paths such as ``model.dims.layers``."""
    members = {name: value for name, value in values.items() if name.startswith(_PREFIX)}
    if not members:
        return known
    given = Plan().with_values({"model.dims": known or ModelDims()}).with_values(members).model.dims
    if known is None or given is None:
        return given
    named = {name.removeprefix(_PREFIX).partition(".")[0] for name in members}
    return _changed(known, {name: getattr(given, name) for name in named})


def _changed(known: ModelDims, stated: Mapping[str, Any]) -> ModelDims:
    """Published counts hold for the published dimensions only: where a stated dimension differs,
    they are dropped and derived anew."""
    derived: dict[str, Any] = {}
    if any(getattr(known, name) != value for name, value in stated.items() if name in _SHAPE):
        derived = {name: None for name in ModelDims.__struct_fields__ if name.startswith("params_")}
    layers = stated.get("layers")
    if known.layer_types is not None and layers is not None:
        # A deeper model repeats the pattern, a shallower one has its beginning.
        times = -(-layers // len(known.layer_types))
        derived["layer_types"] = (known.layer_types * times)[:layers]
    return replace(known, **{**derived, **stated})
