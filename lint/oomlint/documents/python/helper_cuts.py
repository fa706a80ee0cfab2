"""Lengths to which helpers of a project cut samples: the class of a data set or a function that makes tokens, in the
script itself or in another file, told how long a sample may be by whoever calls it.

A length is followed by the names of arguments: from the tokenizer's call to the parameter, or the attribute of the
object, that it is given, and from there to the call in the script. One that is not followed is unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.base import Node, Scalar
from oomlint.documents.python.configs.paths import argument_of, default_of, function_of
from oomlint.documents.python.lengths import LENGTH_NAMES
from oomlint.documents.python.scopes import FunctionNode, Scope, call_name, dotted
from oomlint.documents.python.trainer_names import names_trainer
from oomlint.documents.python.values import Evaluator
from oomlint.documents.python.values.seen_nodes import from_elsewhere
from oomlint.documents.python.walking import walk

if TYPE_CHECKING:
    from oomlint.documents.python.calls import ReachedCall

_DEEPEST: Final = 2
# transformers 5.23 tokenization_utils_base.py: what makes tokens, by what a tokenizer is called.
_MAKES_TOKENS: Final = frozenset({"tokenizer", "tok", "encode_plus", "batch_encode_plus"})
# torch 2.9 utils/data: methods by which a data set, or what joins samples to a batch, is asked for them.
_OF_SAMPLES: Final = frozenset({"__getitem__", "__iter__", "__call__", "collate_fn"})
# More tokens than the longest context that a model is made for: Llama 4 Scout's config.json has 10,485,760.
_ENDLESS: Final = 20_000_000
_MAPS: Final = frozenset({"map", "with_transform", "set_transform"})


class Cut(Struct, frozen=True, eq=False):
    """A tokenizer's call that cuts, in ``home``, and the length that it cuts to as the script's own call tells it."""

    node: ast.Call
    home: Evaluator
    length: Node
    step: ReachedCall
    is_of_samples: bool
    """Whether it stands where an object gives samples, and not where a function may answer prompts."""


class _Frame(Struct, frozen=True, eq=False):
    """A function that is entered, or the class whose methods are: by which call, and where that stands."""

    call: ast.Call
    scope: Scope
    home: Evaluator
    caller: _Frame | None
    function: FunctionNode | None
    cls: ast.ClassDef | None
    there: Evaluator

    @property
    def depth(self) -> int:
        return 0 if self.caller is None else self.caller.depth + 1


def helper_cuts(steps: Sequence[ReachedCall], evaluator: Evaluator) -> Iterator[Cut]:
    """What helpers cut that a script hands a tokenizer, or that are data sets; nothing of a script that trains nothing."""
    if not any(names_trainer(step.last) or step.last == "backward" for step in steps):
        return
    for step in steps:
        call = _as_helper_gets_it(step)
        if call is None or not _is_helper(call):
            continue
        frame = _entered(call, step.scope, evaluator, None)
        for node, inside in _cuts(frame) if frame is not None else ():
            length = next(k.value for k in node.keywords if k.arg == "max_length")
            said, home = _value(length, inside)
            if home is not evaluator:
                said = from_elsewhere(said, evaluator.places.span(step.node), _path(home))
            if not _is_endless(said):
                yield Cut(node, inside.there, said, step, _gives_samples(inside))


def _as_helper_gets_it(step: ReachedCall) -> ast.Call | None:
    """The call, or the one that ``map`` and ``partial`` make of a function and its arguments."""
    call = step.node
    if step.last == "partial" and call.args:
        made = ast.Call(call.args[0], call.args[1:], call.keywords)
    elif step.last in _MAPS and call.args:
        given = next((k.value for k in call.keywords if k.arg == "fn_kwargs"), None)
        if not isinstance(given, ast.Dict):
            return None
        named = [
            ast.keyword(str(key.value) if isinstance(key, ast.Constant) else None, value)
            for key, value in zip(given.keys, given.values, strict=True)
        ]
        made = ast.Call(call.args[0], [], named)
    else:
        return call
    return ast.copy_location(made, call)


def _is_helper(call: ast.Call) -> bool:
    """Whether a call is given a tokenizer, or makes a data set: by its name, and how long samples of it may be."""
    name = dotted(call.func) or ""
    if name.endswith("Dataset"):
        return True
    if "data" in name.lower() and any(k.arg in LENGTH_NAMES for k in call.keywords):
        return True
    given = (*call.args, *(keyword.value for keyword in call.keywords))
    return any("tok" in (dotted(each) or "").rpartition(".")[2].lower() for each in given)


def _entered(call: ast.Call, scope: Scope, home: Evaluator, caller: _Frame | None) -> _Frame | None:
    found = function_of(call, scope, home)
    if found is not None:
        return _Frame(call, scope, home, caller, found[0], None, found[1])
    name = dotted(call.func)
    if name is None or name.startswith("self."):
        return None
    cls, there = home.scopes.classes.get(name), home
    if cls is None:
        elsewhere = home.elsewhere(name, scope)
        if elsewhere is None:
            return None
        there, inner = elsewhere
        cls = there.scopes.classes.get(dotted(inner) or "")
    return None if cls is None else _Frame(call, scope, home, caller, None, cls, there)


def _cuts(frame: _Frame) -> Iterator[tuple[ast.Call, _Frame]]:
    """The calls of a tokenizer that cut to a length, in what is entered and what that hands its tokenizer on to."""
    if frame.function is None:
        assert frame.cls is not None
        for method in _methods(frame.cls):
            yield from _cuts(replace(frame, function=method))
        return
    scope = frame.there.scopes.of_node[id(frame.function)]
    for node in walk(frame.function):
        if not isinstance(node, ast.Call):
            continue
        if call_name(node) in _MAKES_TOKENS and _cuts_to_length(node):
            yield node, frame
        elif frame.depth < _DEEPEST and _is_helper(node):
            inner = _entered(node, scope, frame.there, frame)
            if inner is not None and inner.function is not frame.function:
                yield from _cuts(inner)


def _is_endless(length: Node) -> bool:
    """Whether a length stands for none, as transformers' own does (5.23 tokenization_utils_base.py LARGE_INTEGER)."""
    said = length.value if isinstance(length, Scalar) else None
    return isinstance(said, (int, float)) and said >= _ENDLESS


def _gives_samples(frame: _Frame) -> bool:
    return (
        frame.cls is not None and frame.function is not None and frame.function.name in _OF_SAMPLES
    )


def _cuts_to_length(call: ast.Call) -> bool:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    truncation = given.get("truncation")
    is_off = truncation is None or (isinstance(truncation, ast.Constant) and not truncation.value)
    return not is_off and "max_length" in given


def _value(
    expression: ast.expr, frame: _Frame, followed: frozenset[str] = frozenset()
) -> tuple[Node, Evaluator]:
    """What an expression comes to in what is entered, by what the call gives its parameters, and whose it is;
    ``followed`` are the attributes that led here, which may be given each other's values."""
    there, function = frame.there, frame.function
    assert function is not None
    if isinstance(expression, ast.Name) and expression.id in _parameters(function):
        if frame.cls is None or function.name == "__init__":
            return _given(expression.id, function, frame) or _in_place(expression, frame)
    elif frame.cls is not None and (name := dotted(expression) or "").startswith("self."):
        stores = there.tree.stores_of(frame.cls).get(name[5:], ())
        value, method = (stores[0][0].value, stores[0][1]) if len(stores) == 1 else (None, None)
        if value is not None and method is not None and name not in followed:
            return _value(value, replace(frame, function=method), followed | {name})
    return _in_place(expression, frame)


def _in_place(expression: ast.expr, frame: _Frame) -> tuple[Node, Evaluator]:
    return frame.there.node(expression, frame.there.scopes.of_node[id(frame.function)]), frame.there


def _given(name: str, function: FunctionNode, frame: _Frame) -> tuple[Node, Evaluator] | None:
    """What the call gives a parameter, or its default; ``None`` where neither is to be seen."""
    call = frame.call
    if frame.cls is not None:  # Python itself gives the first, ``self``
        call = ast.copy_location(ast.Call(call.func, [call.func, *call.args], call.keywords), call)
    said = argument_of(call, function, name)
    if said is not None:
        if frame.caller is not None:
            return _value(said, frame.caller)
        return frame.home.node(said, frame.scope), frame.home
    is_open = any(isinstance(each, ast.Starred) for each in call.args) or any(
        keyword.arg is None for keyword in call.keywords
    )
    default = None if is_open else default_of(function, name)
    if default is None:
        return None
    return frame.there.node(default, frame.there.scopes.module), frame.there


def _parameters(function: FunctionNode) -> frozenset[str]:
    arguments = function.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return frozenset(each.arg for each in every)


def _methods(cls: ast.ClassDef) -> Iterator[FunctionNode]:
    return (each for each in cls.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))


def _path(home: Evaluator) -> str:
    return home.places.source.path
