"""What calls of a script come to."""

from __future__ import annotations

import ast
from contextlib import suppress
from math import isfinite
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Call, Mapping, Name, Node, Scalar
from oomlint.documents.python.configs.paths import function_of
from oomlint.documents.python.environment import is_set_by_launchers, variable_asked
from oomlint.documents.python.nodes import PythonScalar, filed_of, is_of_options, option_of
from oomlint.documents.python.paths import path_of
from oomlint.documents.python.plain_values import arithmetic, plain_value
from oomlint.documents.python.scopes import Scope, dotted
from oomlint.documents.python.values.dicts import got
from oomlint.documents.python.values.limits import DEEPEST
from oomlint.documents.python.values.made_elsewhere import made_elsewhere
from oomlint.documents.python.values.seen_nodes import from_elsewhere, locked_by, unknown_at
from oomlint.documents.python.walking import walk
from oomlint.documents.text import Span

if TYPE_CHECKING:
    from oomlint.documents.python.values.evaluator import Evaluator

_NUMBERS: Final[dict[str, type[int] | type[float]]] = {"int": int, "float": float}
_RETURNED: Final = "it is what a function returns"
_COPIED: Final = "it is a copy"
BY_CARD: Final = "the card decides on it"
_BY_ENVIRONMENT: Final = "the environment may say otherwise"
# A training that runs out of GPU memory has a GPU. From torch 2.5 on every card "supports" bf16, natively or in
# emulation (torch 2.5.0 torch/cuda/__init__.py is_bf16_supported); an older torch without says fp16, of the same size.
_OF_CARD: Final = frozenset(
    {
        "torch.cuda.is_available", "torch.cuda.is_bf16_supported",
        "transformers.is_torch_cuda_available", "transformers.is_torch_bf16_gpu_available",
        "transformers.utils.is_torch_cuda_available",
        "transformers.utils.is_torch_bf16_gpu_available",
    }
)  # fmt: skip


def calculation(home: Evaluator, expression: ast.BinOp, scope: Scope, depth: int) -> Node:
    """``args.devices * args.batch``: another number where the command line gives one of them."""
    left = home.node(expression.left, scope, depth + 1)
    right = home.node(expression.right, scope, depth + 1)
    return _result(home, home.places.span(expression), type(expression.op), left, right)


def _result(
    home: Evaluator, span: Span, operation: type[ast.operator], left: Node, right: Node
) -> Node:
    value = arithmetic(operation, plain_value(left), plain_value(right))
    if not is_of_options(left) and not is_of_options(right):
        return unknown_at(span) if value is UNKNOWN else Scalar(span, value)
    reason = "it is computed from options of the command line"
    return PythonScalar(span, value, locked=reason, computed=(operation, left, right))


def call_of(home: Evaluator, expression: ast.Call, scope: Scope, depth: int) -> Node:
    """What a call comes to: a text or number, a mapping of its arguments where it makes a config, or what it returns."""
    span = home.places.span(expression)
    known = home.calls.get(id(expression))
    if known is not None:
        return Scalar(span, known)
    name = dotted(expression.func)
    if _is_of_card(expression, scope):
        return Scalar(span, True, locked=BY_CARD)
    variable = variable_asked(expression, scope)
    if variable is not None:
        return _of_environment(home, *variable, span, scope, depth)
    if name == "dict" and not expression.args and scope.find("dict") is None:
        return replace(home.arguments(expression, scope), kind="call")
    copied = _copied(expression, scope)
    if copied is not None:
        whole = home.node(copied, scope, depth + 1)
        if isinstance(whole, Mapping):
            return locked_by(whole, _COPIED)
    if name in _NUMBERS and len(expression.args) == 1 and scope.find(name) is None:
        return _number(home, _NUMBERS[name], expression, scope, depth)
    return (
        _gotten(home, expression, scope, depth)
        or got(home, expression, scope, depth)
        or path_in(home, expression, scope, depth)
        or _returned(home, expression, scope, depth)
        or _made(home, expression, depth)
        or made_elsewhere(home, expression, scope, depth)
        or unknown_at(span)
    )


def _gotten(home: Evaluator, expression: ast.Call, scope: Scope, depth: int) -> Node | None:
    """``getattr(torch, args.dtype)``: what the option names; ``getattr(torch, "bfloat16")``."""
    if dotted(expression.func) != "getattr" or len(expression.args) != 2:
        return None
    owner = dotted(expression.args[0])
    named = home.node(expression.args[1], scope, depth + 1)
    attribute = plain_value(named)
    if option_of(named) and attribute is UNKNOWN and owner == "torch":
        return named
    if owner is None or not isinstance(attribute, str) or not attribute.isidentifier():
        return None
    qualified = scope.imported(owner)
    span = home.places.span(expression)
    return Scalar(span, Name(f"{qualified}.{attribute}")) if qualified else None


def _of_environment(
    home: Evaluator, name: str, default: ast.expr | None, span: Span, scope: Scope, depth: int
) -> Node:
    """``os.environ.get("MODEL", "org/name")``: what the command that starts the script sets, else the default,
    which whoever starts it may replace."""
    if is_set_by_launchers(name):
        return unknown_at(span)
    if home.files.sets(name):
        return as_set(home, name, span)
    home.files.left_open += 1
    if default is None:
        return Scalar(span, None, locked=_BY_ENVIRONMENT)
    return locked_by(home.node(default, scope, depth + 1), _BY_ENVIRONMENT)


def as_set(home: Evaluator, variable: str, span: Span) -> Scalar:
    """A variable of the environment, by what the command that starts the script sets it to."""
    said = home.files.variable(variable)
    if said is None:
        return unknown_at(span)
    return Scalar(span, said, locked=f"the environment says it in {variable}")


def path_in(home: Evaluator, expression: ast.expr, scope: Scope, depth: int) -> Node | None:
    """What a path that the script puts together comes to."""
    if "__file__" not in (text := home.places.source.text) and "ath" not in text:
        return None
    span = home.places.span(expression)

    def join(left: Node, right: Node) -> Node:
        return _result(home, span, ast.Div, left, right)

    return path_of(
        expression,
        scope,
        span,
        lambda part: home.node(part, scope, depth + 1),
        join,
    )


def _number(
    home: Evaluator, kind: type[int] | type[float], expression: ast.Call, scope: Scope, depth: int
) -> Node:
    """``int(args.max_length)``: the option, whose words on a command line are numbers."""
    given = home.node(expression.args[0], scope, depth + 1)
    value = plain_value(given)
    is_filed = filed_of(given) is not None and isinstance(value, (int, float))
    if is_of_options(given) or is_filed:
        return _whole(given, home.places.span(expression)) if kind is int else given
    if isinstance(value, str):  # of the environment, say
        with suppress(ValueError):
            value = kind(value)
    if isinstance(value, (int, float)) and isfinite(value):
        return Scalar(home.places.span(expression), kind(value))
    return unknown_at(home.places.span(expression))


def _whole(given: Node, span: Span) -> Node:
    """``int(args.batch_size / 2)``: a quotient of options is cut off, whatever the command makes them; of other arithmetic
    that came to a fraction it is not known what it comes to."""
    match given:
        case PythonScalar(computed=(ast.Div, left, right)):
            value = arithmetic(ast.FloorDiv, plain_value(left), plain_value(right))
            return replace(given, value=value, computed=(ast.FloorDiv, left, right))
        case PythonScalar(value=float(), computed=tuple()):
            return unknown_at(span)
    return given


def _returned(home: Evaluator, call: ast.Call, scope: Scope, depth: int) -> Node | None:
    """What a function of the project returns there of a config file, or as one decides; ``None``
    of what no file has a say in, or more than one statement may return."""
    found = function_of(call, scope, home) if home.may_load else None
    if found is None or depth > DEEPEST:
        return None
    function, there = found
    own = there.scopes.of_node[id(function)]
    before = home.files.count
    value = there.end_of(function.body, own, depth + 1)
    if value is None:
        return None
    node = there.node(value, own, depth + 1)
    if home.files.count == before:
        return None
    span = home.places.span(call)
    if isinstance(node, Scalar) and isinstance(node.value, Call):
        return Scalar(span, node.value, locked=_RETURNED)
    return from_elsewhere(node, span, there.places.source.path)


def _made(home: Evaluator, call: ast.Call, depth: int) -> Node | None:
    """The config that a function of the file makes: ``peft_config=lora_config(args)``."""
    function = home.scopes.functions.get(dotted(call.func) or "")
    if function is None or depth > DEEPEST:
        return None
    own = home.scopes.of_node[id(function)]
    value = home.end_of(function.body, own, depth + 1)
    if isinstance(value, ast.Name):
        bindings = own.bindings.get(value.id, [])
        value = bindings[0].value if len(bindings) == 1 else None
    made = home.calls.get(id(value))
    if made is None or not made.callee.endswith(("Config", "Arguments")):
        return None
    return Scalar(home.places.span(call), made, locked=_RETURNED)


def part_returned(
    home: Evaluator, place: ast.expr, call: ast.Call, number: int, depth: int
) -> Node:
    """What a name is given of the several things that a function of the file returns: ``model, peft_config = build(args)``."""
    span = home.places.span(place)
    function = home.scopes.functions.get(dotted(call.func) or "")
    if function is None or depth > DEEPEST:
        return unknown_at(span)
    own = home.scopes.of_node[id(function)]
    several = home.end_of(function.body, own, depth + 1)
    is_plain = isinstance(several, ast.Tuple) and not any(
        isinstance(each, ast.Starred) for each in several.elts
    )
    if not is_plain or not isinstance(several, ast.Tuple) or number >= len(several.elts):
        return unknown_at(span)
    return locked_by(home.node(several.elts[number], own, depth + 1), _RETURNED)


def _copied(call: ast.Call, scope: Scope) -> ast.expr | None:
    """What ``settings.copy()``, ``dict(settings)`` or ``copy.deepcopy(settings)`` copies."""
    function, given = call.func, call.args
    if call.keywords:
        return None
    if isinstance(function, ast.Attribute) and function.attr == "copy" and not given:
        return function.value
    name = scope.resolved(dotted(function) or "")
    return given[0] if name in ("dict", "copy.copy", "copy.deepcopy") and len(given) == 1 else None


def _is_of_card(call: ast.Call, scope: Scope) -> bool:
    name = dotted(call.func)
    return name is not None and scope.imported(name) in _OF_CARD


def asks_card(expression: ast.expr, scope: Scope) -> bool:
    """Whether an expression asks which GPU there is, so that the machine decides on it."""
    calls = (each for each in walk(expression) if isinstance(each, ast.Call))
    return any(_is_of_card(call, scope) for call in calls)
