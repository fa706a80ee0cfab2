"""Estimates that were made before: the same run is linted again after each fix, and on both sides of a change.

What is asked about a run, by rules, by the search for ways out and by what it rests on, are few different plans:
of 49,422 estimates that fixing torchtune's own configs for one T4 asks for, 8,330 are distinct. A plan is known by
its content, for a run that is read again is another object.
"""

from __future__ import annotations

from operator import attrgetter

import msgspec.msgpack
from msgspec.structs import astuple

from oomlint.memory.estimate import estimate
from oomlint.memory.result import Estimate, GpuLimits
from oomlint.plan import Plan
from oomlint.plan.model import Section

_UNNAMED = [name for name in Plan.__struct_fields__ if name != "name"]  # which moves no memory
_PARTS = [name for name in _UNNAMED if isinstance(getattr(Plan(), name), Section)]
_parts_of = attrgetter(*_PARTS)
_others_of = attrgetter(*(name for name in _UNNAMED if name not in _PARTS))
_encoded = msgspec.msgpack.Encoder().encode

_Asked = tuple[bytes, GpuLimits | None]

# What was asked of late, and what before that was: some 6 kB each. When the one is full it takes the place of the
# other, so that what is asked again and again stays.
_LIMIT = 1024
_lately: dict[_Asked, Estimate] = {}
_before: dict[_Asked, Estimate] = {}


def estimate_again(plan: Plan, gpu: GpuLimits | None = None) -> Estimate:
    """What :func:`oomlint.memory.estimate.estimate` says, worked out once for a plan and a GPU."""
    global _lately, _before
    try:
        asked = (_content(plan), gpu)
    except (TypeError, ValueError, OverflowError):
        return estimate(plan, gpu)  # a file may hold a number of hundreds of digits
    found = _lately.get(asked)
    if found is None:
        found = _before.get(asked) or estimate(plan, gpu)
        if len(_lately) >= _LIMIT:
            _lately, _before = {}, _lately
        _lately[asked] = found
    return found


def _content(plan: Plan) -> bytes:
    return _encoded((*map(astuple, _parts_of(plan)), *_others_of(plan)))
