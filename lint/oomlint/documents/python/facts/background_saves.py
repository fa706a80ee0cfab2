"""Saves that go on while the training does: what they hold beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from oomlint.documents.base import Fact
from oomlint.documents.python.facts.script import Script
from oomlint.documents.python.scopes import FunctionNode, Scope, call_name, dotted
from oomlint.documents.python.walking import walk

_COPIES_TO_HOST = frozenset({"cpu", "clone", "deepcopy", "offload_to_cpu"})


def background_save_facts(script: Script) -> Iterator[Fact]:
    """Facts of the kinds ``dcp-async-save`` and ``async-save-thread`` (``through``: what starts it)."""
    for step in script.steps:
        name = step.name
        if (
            name.startswith("torch.distributed.checkpoint.") and name.endswith(".async_save")
        ) or name == "dcp.async_save":
            yield script.fact("dcp-async-save", step.node)
        target, rest = _background_work(step.node, name)
        if target is not None and _saves_live_state(script, target, rest, step.scope):
            yield script.fact("async-save-thread", step.node, through=name)


def _saves_live_state(
    script: Script, target: ast.expr, rest: Sequence[ast.expr], scope: Scope
) -> bool:
    """Whether the work is ``torch.save`` of a state dict that was not copied before."""
    given = [n for argument in rest for n in walk(argument)]
    if _copies_to_host(given):
        return False
    if isinstance(target, ast.Lambda):
        body = list(walk(target.body))
        return (
            _torch_saves(script, body, scope) and _takes_state(body) and not _copies_to_host(body)
        )
    name = dotted(target)
    if name is None:
        return False
    if scope.resolved(name) == "torch.save":
        return _takes_state(given)
    function = _function(script, name, scope)
    if function is None:
        return False
    body = [n for statement in function.body for n in walk(statement)]
    takes = _takes_state(body) or _takes_state(given)
    return _torch_saves(script, body, scope) and takes and not _copies_to_host(body)


def _function(script: Script, name: str, scope: Scope) -> FunctionNode | None:
    if name in script.tree.scopes.functions:
        return script.tree.scopes.functions[name]
    if "." in name and name.split(".")[0] != "self":
        return None
    last = name.rsplit(".", 1)[-1]
    found = [function for function in script.tree.functions if function.name == last]
    return found[0] if len(found) == 1 else None


def _torch_saves(script: Script, nodes: Sequence[ast.AST], scope: Scope) -> bool:
    return any(
        isinstance(n, ast.Call) and scope.resolved(dotted(n.func) or "") == "torch.save"
        for n in nodes
    )


def _background_work(call: ast.Call, name: str) -> tuple[ast.expr | None, list[ast.expr]]:
    """What a thread, process or executor is told to run, and with which arguments."""
    last = name.rsplit(".", 1)[-1]
    if last in ("Thread", "Process"):
        target = next((k.value for k in call.keywords if k.arg == "target"), None)
        given = [k.value for k in call.keywords if k.arg in ("args", "kwargs")]
        return target, given
    if last in ("submit", "apply_async") and call.args:
        return call.args[0], [*call.args[1:], *(k.value for k in call.keywords)]
    return None, []


def _takes_state(nodes: Sequence[ast.AST]) -> bool:
    return any(isinstance(n, ast.Call) and call_name(n) == "state_dict" for n in nodes)


def _copies_to_host(nodes: Sequence[ast.AST]) -> bool:
    for node in nodes:
        if isinstance(node, ast.Call):
            if call_name(node) in _COPIES_TO_HOST:
                return True
            if call_name(node) == "to" and any("cpu" in ast.unparse(a) for a in node.args):
                return True
        if isinstance(node, ast.keyword) and node.arg in ("cpu_offload", "offload_to_cpu"):
            return True
    return False
