"""Canonical plans given as plain values, for runs that no config describes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from msgspec.structs import replace

from oomlint.errors import UsageError
from oomlint.plan import Plan
from oomlint.plan.model import Section
from oomlint.plan.training import MODELS_BESIDE


def read_plan(value: object, values: Mapping[str, Any] | None = None) -> Plan:
    """A canonical plan from plain values, its model's dimensions completed by the catalogue.

    ``values`` of dotted paths go over those of the plan.

    Raises:
        UsageError: a key is unknown, or a value has the wrong type or is negative.
    """
    if not isinstance(value, Mapping):
        raise UsageError("a plan is a JSON object")
    try:
        text = json.dumps((value, values))
    except (TypeError, ValueError, RecursionError):
        return _checked(value, values)
    known = _READ.get(text)
    if known is None:
        known = _checked(value, values)
        if len(_READ) >= _READ_LIMIT:
            _READ.clear()
        _READ[text] = known
    return known


# Scripts that search ask for the same plans again and again.
_READ: dict[str, Plan] = {}
_READ_LIMIT = 256


def _checked(value: Mapping[str, Any], values: Mapping[str, Any] | None) -> Plan:
    from oomlint.validation.records import record

    plan = record(Plan, value)
    if values:
        plan = plan.with_values(values)
    for path, number in _numbers(plan, ""):
        if number < 0:
            raise UsageError(f"{path}: {number} is negative")
        if not number < inf:  # which NaN is not either
            raise UsageError(f"{path}: should be a finite number")
    if plan.trainable.method == "qlora" and plan.quant.method == "none":
        raise UsageError(
            "trainable.method: qlora trains over a quantized base, and quant.method is none; "
            "write lora, or quant.method bnb4"
        )
    return _with_models_beside(_with_catalogue(plan))


def _numbers(node: Section, prefix: str) -> Iterator[tuple[str, float]]:
    names = zip(node.__struct_fields__, node.__struct_encode_fields__, strict=True)
    for name, public in names:
        value, path = getattr(node, name), prefix + public
        if isinstance(value, Section):
            yield from _numbers(value, path + ".")
        elif isinstance(value, (int, float)):
            yield path, value


def _with_catalogue(plan: Plan) -> Plan:
    from oomlint.models import guess, lookup
    from oomlint.models.given import over

    if plan.model.id is None:
        return plan
    given = plan.model.dims
    facts = lookup(plan.model.id)
    if facts is None and given is None:
        facts = guess(plan.model.id)
    if facts is None:
        return plan
    dims = facts.dims if given is None else over(facts.dims, given)
    model = replace(
        plan.model,
        dims=dims,
        arch=plan.model.arch or dims.arch,
        ckpt_dtype=plan.model.ckpt_dtype or facts.ckpt_dtype,
        native_quant=plan.model.native_quant or facts.native_quant,
    )
    return replace(plan, model=model)


def _with_models_beside(plan: Plan) -> Plan:
    from oomlint.models import lookup

    known: dict[str, Any] = {}
    for leaf, model in MODELS_BESIDE.items():
        name = getattr(plan.objective, model)
        facts = lookup(name) if name and getattr(plan.objective, leaf) is None else None
        if facts is not None:
            known[leaf] = facts.dims.params_total
    return replace(plan, objective=replace(plan.objective, **known)) if known else plan
