"""The model catalogue: dimensions and parameter counts of models, and how to find them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oomlint.models.catalogue import all_ids
from oomlint.models.facts import GUESS_SPREAD, Confidence, ModelFacts
from oomlint.models.resolve import guess, lookup, resolve

if TYPE_CHECKING:
    from oomlint.models.config_json import from_config_json
    from oomlint.models.count import ParameterCounts, count_parameters

__all__ = [
    "GUESS_SPREAD",
    "Confidence",
    "ModelFacts",
    "ParameterCounts",
    "all_ids",
    "count_parameters",
    "from_config_json",
    "guess",
    "lookup",
    "resolve",
]


def __getattr__(name: str) -> Any:
    # Most runs look a model up and never count one: these modules load on first use.
    if name == "from_config_json":
        from oomlint.models.config_json import from_config_json

        return from_config_json
    if name in ("ParameterCounts", "count_parameters"):
        from oomlint.models import count

        return getattr(count, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
