"""Checking a profile that somebody else wrote: its shape against ``profile.schema.json``, and every
name, value and formula in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from oomlint.dialects.profiles.build import script_table
from oomlint.dialects.profiles.load import profile_of, raw_of
from oomlint.dialects.profiles.records import FieldRule, Profile, ProfiledScript, ProfileError

SCHEMA = Path(__file__).with_name("profile.schema.json")


@cache
def checked(data: bytes, file: str) -> Profile:
    """The profile that a file of somebody else holds, whose scripts have been tried.

    Raises:
        ProfileError: it says what a profile cannot.
    """
    raw = raw_of(data, file)
    _check_shape(raw, file)
    profile = profile_of(raw, file)
    for script in profile.scripts:
        if script.match:
            _check_values(script)
            script_table(script)
    return profile


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of a profile."""
    found: dict[str, Any] = json.loads(SCHEMA.read_bytes())
    return found


def _check_shape(raw: Mapping[str, Any], file: str) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(schema()).iter_errors(raw))
    if error is None:
        return
    is_choice = error.validator in ("anyOf", "oneOf") and "description" in error.schema
    fault = f"expected {error.schema['description']}" if is_choice else error.message
    raise ProfileError(file, "".join(_steps(error.absolute_path)).removeprefix("."), fault)


def _steps(path: Any) -> Iterator[str]:
    for step in path:
        if isinstance(step, int):
            yield f"[{step}]"
        else:
            yield f'."{step}"' if "." in step else f".{step}"


def _check_values(script: ProfiledScript) -> None:
    """A plain value of a field of the plan is of the field's type."""
    pairs = [
        *((f"defaults.{field}", field, value) for field, value in script.defaults.of.items()),
        *((f"facts.{field}", field, value) for field, value in script.facts.of.items()),
    ]
    for option in script.options:
        pairs.append((f"options.{option.name}.default", option.stands_for, option.default))
        pairs += (
            (f"options.{option.name}", option.stands_for, v) for v in option.spellings.values()
        )
    for kind in ("derive", "override", "assume"):
        rules: Mapping[str, FieldRule] = getattr(script, kind)
        pairs += ((f"{kind}.{field}", field, rule.value) for field, rule in rules.items())
    for key, field, value in pairs:
        fault = None if value is None else _fault_of(field, value)
        if fault is not None:
            raise ProfileError(script.file, f"{script.name}: {key}", fault)


def _fault_of(field: str, value: Any) -> str | None:
    hint = _hint(field)
    if hint is None:
        return None
    from oomlint.validation.records import leaf

    try:
        leaf(hint, value)
    except ValueError as fault:
        return str(fault)
    return None


def _hint(field: str) -> Any:
    """The type of a field of the plan, ``None`` of others."""
    from msgspec.structs import fields

    from oomlint.plan import Plan, leaf_paths

    if field not in leaf_paths():
        return None
    hint: Any = Plan
    for part in field.split("."):
        hint = {member.encode_name: member.type for member in fields(hint)}[part]
    return hint
