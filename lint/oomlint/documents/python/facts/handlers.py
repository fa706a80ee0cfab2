"""What a script does when it has run out of memory: tests that never come true, and training again inside the handler."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from oomlint.documents.base import Fact
from oomlint.documents.python.facts.script import Script
from oomlint.documents.python.scopes import call_name, dotted, enclosed
from oomlint.documents.python.walking import walk

_TRAINS = re.compile(r"train|fit|backward")
_OOM_ERRORS = ("OutOfMemoryError",)


def handler_facts(script: Script) -> Iterator[Fact]:
    """Facts of the kinds ``catches-sigkill`` (``tests``) and ``retries-inside-except`` (``repeats``)."""
    for block, handler in ((t.body, h) for t in script.tree.tries for h in t.handlers):
        for test in _tests_for_sigkill(handler):
            if _asks_for_errno(test) or _trains(block):
                yield script.fact("catches-sigkill", test, tests=ast.unparse(test))
                break
        repeated = _repeated_training(handler, block)
        if repeated is not None:
            yield script.fact(
                "retries-inside-except", repeated, repeats=dotted(repeated.func) or ""
            )


def _trains(block: Sequence[ast.stmt]) -> bool:
    return any(_TRAINS.search(call_name(call)) for call in _calls_in(block))


def _calls_in(block: Sequence[ast.stmt]) -> list[ast.Call]:
    return [n for statement in block for n in enclosed(statement) if isinstance(n, ast.Call)]


def _tests_for_sigkill(handler: ast.ExceptHandler) -> Iterator[ast.Compare]:
    """Comparisons with -9 that no handler will ever see come true.

    A child's ``returncode`` is -9 after SIGKILL, and a parent may well test that: only where
    the process itself was training does the test miss its aim.
    """
    for node in (n for statement in handler.body for n in walk(statement)):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        if not any(_is_minus_nine(part) for side in sides for part in walk(side)):
            continue
        caught = ast.unparse(handler.type) if handler.type is not None else ""
        if "CalledProcessError" not in caught:
            yield node


def _asks_for_errno(test: ast.Compare) -> bool:
    sides = [test.left, *test.comparators]
    return any(isinstance(side, ast.Attribute) and side.attr == "errno" for side in sides)


def _is_minus_nine(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
        and node.operand.value == 9
    )


def _repeated_training(handler: ast.ExceptHandler, block: Sequence[ast.stmt]) -> ast.Call | None:
    """The call of a block that the handler of its running out of memory makes again, before it has
    let go of the first."""
    if handler.type is None:
        return None
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    if not any((dotted(t) or "").endswith(_OOM_ERRORS) for t in types):
        return None
    before = {dotted(call.func) for call in _calls_in(block)} - {None}
    for statement in handler.body:
        for node in enclosed(statement):
            if not isinstance(node, ast.Call) or dotted(node.func) not in before:
                continue
            if _TRAINS.search(call_name(node)) or call_name(node) in ("step", "forward", "model"):
                return node
    return None
