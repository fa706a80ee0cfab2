"""What DeepSpeed and Accelerate's plugins are given in a script."""

from __future__ import annotations

import ast
import re
from functools import reduce
from typing import Final

from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Call, Entry, Mapping, Node, Scalar
from oomlint.documents.python.loops.script import Script
from oomlint.documents.python.plain_values import plain_value
from oomlint.documents.python.scopes import dotted

# What has a ``step`` and is no optimizer.
_EITHER: Final = "it is one of several dicts"
# accelerate 1.15 accelerator.py Accelerator.__init__: what takes a plugin, or several.
_PLUGINS: Final = {
    "DeepSpeedPlugin": "deepspeed_plugin",
    "FullyShardedDataParallelPlugin": "fsdp_plugin",
}
_QUOTED_PLUGIN: Final = r"[\"'](deepspeed_plugin|fsdp_plugin)s?[\"']"


def engine_config(script: Script) -> Node | None:
    """What DeepSpeed is given, as far as the file says it: of one dict or another, what they agree on."""
    idle = {id(script.node_of[id(call)]) for call in script.calls if is_idle(script, call)}
    for step in script.steps:
        if step.last not in ("DeepSpeedPlugin", "initialize") or id(step.node) in idle:
            continue
        for keyword in step.node.keywords:
            if keyword.arg not in ("hf_ds_config", "config", "config_params"):
                continue
            dicts = [
                node
                for value, scope in script.flow.stands_for(keyword.value, step.scope)
                if isinstance(node := script.evaluator.node(value, scope), Mapping)
            ]
            if len(dicts) > 1:
                return reduce(_agreed, dicts)
            changed = False
            for value in script.flow.path(keyword.value, step.scope):
                changed |= dotted(value) in script.tree.scopes.changed
                if isinstance(value, (ast.Constant, ast.Name, ast.Attribute, ast.Dict)):
                    node = script.evaluator.node(value, script.flow.scope_at(value))
                    if isinstance(node, Mapping):
                        # What is put in later may be anything.
                        return replace(node, open_ended=node.open_ended or changed)
                    if _names_file(node):
                        return node
    return None


def is_idle(script: Script, call: Call) -> bool:
    """Whether a call makes a plugin of Accelerate's that is handed to no Accelerator, though the file has one."""
    option = _PLUGINS.get(call.callee.rpartition(".")[2])
    makers = [step for step in script.steps if step.last == "Accelerator"] if option else []
    if option is None or not makers or option in _unpacked(script):
        return False
    wanted = (id(script.node_of[id(call)]),)
    return not any(
        script.flow.may_lead_to(keyword.value, step.scope, wanted)
        for step in makers
        for keyword in step.node.keywords
        if keyword.arg in (option, f"{option}s")
    )


def _unpacked(script: Script) -> frozenset[str]:
    """The arguments of plugins that the text quotes, as it does where it unpacks a dictionary."""
    return frozenset(re.findall(_QUOTED_PLUGIN, script.places.source.text))


def _agreed(one: Mapping, other: Mapping) -> Mapping:
    """What two dicts both say; of a key that only one of them has, or that says something else in each, that it is
    not known."""
    entries: dict[str, Entry] = {}
    for key in (*one.entries, *(key for key in other.entries if key not in one.entries)):
        entry = one.entries.get(key) or other.entries[key]
        sides = [each.entries[key].value for each in (one, other) if key in each.entries]
        value = _unsettled(entry.value)
        if len(sides) > 1 and isinstance(sides[0], Mapping) and isinstance(sides[1], Mapping):
            value = _agreed(sides[0], sides[1])
        elif len(sides) > 1 and len({repr(plain_value(side)) for side in sides}) == 1:
            value = sides[0]
        entries[key] = replace(entry, value=value)
    return replace(
        one, entries=entries, open_ended=one.open_ended or other.open_ended, locked=_EITHER
    )


def _unsettled(node: Node) -> Node:
    """A value, or each that a dict has, as one that is not known."""
    if not isinstance(node, Mapping):
        return Scalar(node.span, UNKNOWN, locked=_EITHER)
    entries = {key: replace(e, value=_unsettled(e.value)) for key, e in node.entries.items()}
    return replace(node, entries=entries, locked=_EITHER)


def _names_file(node: Node) -> bool:
    said = node.value if isinstance(node, Scalar) else None
    return isinstance(said, str) and said.endswith((".json", ".yaml", ".yml"))
