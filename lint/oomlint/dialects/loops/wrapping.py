"""What of a model is a unit that is sharded, and under which policy of mixed precision."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from oomlint.dialects.block import Block
from oomlint.dialects.loops.blocks import COMPUTED, block_of
from oomlint.dialects.loops.keys import (
    MIXED,
)
from oomlint.documents.base import (
    UNKNOWN,
    Call,
    Document,
    Entry,
    Node,
    Scalar,
)
from oomlint.documents.text import Span

# Functions of torch 2.9 distributed/fsdp/wrap.py that a policy is made of, and what each wraps.
_POLICIES = {
    "transformer_auto_wrap_policy": "transformer",
    "ModuleWrapPolicy": "transformer",
    "lambda_auto_wrap_policy": "transformer",
    "size_based_auto_wrap_policy": "size",
}
# accelerate 1.15 utils/constants.py FSDP_AUTO_WRAP_POLICY.
_NAMED_POLICIES = {
    "transformer_based_wrap": "transformer",
    "size_based_wrap": "size",
    "no_wrap": "none",
}


def with_wrapping(document: Document, call: Call, calls: tuple[Call, ...]) -> Call:
    """A call that shards, with what of the model is a unit: by the one policy that the script
    imports; ``fully_shard`` makes each part a unit that it is called on."""
    anchor = Span(call.span.start, call.span.start + len(call.callee))
    name = call.callee.rpartition(".")[2]
    named = call.arguments.entries.get("auto_wrap_policy")
    if name == "fully_shard":
        several = sum(c.callee.rpartition(".")[2] == name for c in calls) > 1
        found: object = "transformer" if several else "none"
    elif named is None:
        # Accelerate's plugin takes the policy from its launcher then.
        if name == "FullyShardedDataParallelPlugin":
            return call
        found = UNKNOWN if call.arguments.open_ended else "none"
    else:
        found = _policy(document, named.value)
    at = anchor if named is None else named.value.span
    entry = Entry("auto_wrap_policy", at, Scalar(at, found, locked=COMPUTED), at)
    entries = {**call.arguments.entries, entry.key: entry}
    return replace(call, arguments=replace(call.arguments, entries=entries))


def _policy(document: Document, given: Node) -> object:
    said = given.value if isinstance(given, Scalar) else None
    if said is None and isinstance(given, Scalar):
        return "none"
    if isinstance(said, str):
        return _NAMED_POLICIES.get(said.lower(), UNKNOWN)
    if not isinstance(given, Scalar):
        return "transformer"  # Lightning: a set of classes
    last = {name.rpartition(".")[2] for name in document.imports}
    policies = {word for name, word in _POLICIES.items() if name in last}
    return policies.pop() if len(policies) == 1 else UNKNOWN


def mixed_precision(document: Document, calls: tuple[Call, ...]) -> Iterator[Block]:
    """The policy of mixed precision that FSDP is given."""
    given = [
        c
        for c in calls
        if c.callee.rpartition(".")[2] in ("FSDP", "FullyShardedDataParallel", "fully_shard")
    ]
    policies = [
        call
        for call in calls
        if call.callee.rpartition(".")[2] in ("MixedPrecision", "MixedPrecisionPolicy")
    ]
    if given and len(policies) == 1:
        yield block_of(document, policies[0], MIXED)
