"""The config that a function of another file makes: ``quantization_config=build_quantization(dtype)``.

The function is read as the call that enters it: its parameters are what that gives them. What it returns is one call of a
library's class, whose settings are written in the other file.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint.documents.base import Call, Mapping, Node, Scalar
from oomlint.documents.python.configs.paths import function_of
from oomlint.documents.python.nodes import PythonEntry, PythonMapping, PythonScalar
from oomlint.documents.python.scopes import FunctionNode, Scope, dotted
from oomlint.documents.python.values.entered import entered
from oomlint.documents.python.values.limits import DEEPEST
from oomlint.documents.python.values.seen_nodes import from_elsewhere
from oomlint.documents.text import Span

if TYPE_CHECKING:
    from oomlint.documents.python.values.evaluator import Evaluator

# What a function is called that makes one: others are not looked for in the files that a script imports.
_MAKES: Final = re.compile(r"conf|cfg|arg|bnb|quant|lora|peft", re.I)
_CLASSES: Final = re.compile(r"(?:transformers|peft|trl)\.(?:\w+\.)*\w+(?:Config|Arguments)")


def made_elsewhere(home: Evaluator, call: ast.Call, scope: Scope, depth: int) -> Node | None:
    """The call of a library's class that a function of another file comes to, as it is seen here."""
    name = dotted(call.func)
    if name is None or depth > DEEPEST or not _MAKES.search(name.rpartition(".")[2]):
        return None
    found = function_of(call, scope, home)
    if found is None or found[1] is home:
        return None
    function, there = found
    own = there.scopes.of_node[id(function)]
    made = _made_by(function, there, own, depth)
    callee = None if made is None else own.resolved(dotted(made.func) or "")
    if made is None or callee is None or not _CLASSES.fullmatch(callee):
        return None
    with entered(function, there, call, scope, home):
        arguments = there.arguments(made, own)
    span, file = home.places.span(call), there.places.source.path
    seen = seen_from(Call(callee.rpartition(".")[2], arguments, span, len(home.calls)), span, file)
    return Scalar(span, seen, locked=f"it is written in {file}")


def _made_by(function: FunctionNode, there: Evaluator, own: Scope, depth: int) -> ast.Call | None:
    value = there.end_of(function.body, own, depth + 1)
    if isinstance(value, ast.Name):
        bindings = own.bindings.get(value.id, [])
        value = bindings[0].value if len(bindings) == 1 else None
    return value if isinstance(value, ast.Call) else None


# -- as it is seen here ------------------------------------------------------------------------------


def seen_from(call: Call, span: Span, file: str) -> Call:
    """A call of another file, as if it stood here: nothing of it can be changed."""
    reason = f"it is written in {file}"
    entries = {
        key: PythonEntry(key, span, _node(entry.value, span, file), span, locked=reason)
        for key, entry in call.arguments.entries.items()
    }
    own = call.arguments
    arguments: Mapping = PythonMapping(
        span,
        entries,
        open_ended=own.open_ended,
        locked=reason,
        guards=own.guards if isinstance(own, PythonMapping) else (),
    )
    return replace(call, arguments=arguments, span=span)


def _node(node: Node, span: Span, file: str) -> Node:
    """A value of another file, calls among them as they are seen here."""
    if isinstance(node, Scalar) and isinstance(node.value, Call):
        seen = seen_from(node.value, span, file)
        node = replace(node, span=span, via=None, value=seen, locked=f"it is written in {file}")
    elif not isinstance(node, PythonScalar) or node.either is None:
        node = from_elsewhere(node, span, file)
    if isinstance(node, PythonScalar) and node.either is not None:
        one, other = (_node(each, span, file) for each in node.either)
        node = replace(
            node, span=span, via=None, either=(one, other), locked=f"it is written in {file}"
        )
    return node
