"""What is known of a model in one file of a program."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Protocol

from msgspec import Struct, field

from oomlint.documents.base import Call
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.custody.known_touches import (
    GIVES_BACK,
    OF_NO_MODEL,
    WRAPPERS,
)
from oomlint.documents.python.custody.targets import Target
from oomlint.documents.python.flow import Flow
from oomlint.documents.python.scopes import FunctionNode, Scope, call_name, dotted
from oomlint.documents.python.values import Evaluator
from oomlint.documents.python.values.parameters import parameters_of


class Touch(Struct, frozen=True):
    """What touches a model and may decide something about it: ``node`` in the script itself, ``what`` in its words.
    ``home`` is the file whose code does so, if that was entered; else nobody knows."""

    node: ast.expr | ast.stmt
    what: str
    decides: frozenset[str]
    home: str = ""


class Carried(Struct, frozen=True, eq=False):
    """A call of another file that the tables read, and what it decides; ``file`` is where it stands."""

    call: Call
    decides: frozenset[str]
    file: str


class Enter(Protocol):
    def __call__(
        self,
        custody: Custody,
        step: tuple[ast.Call, Scope],
        target: Target,
        names: frozenset[str],
        number: int | None,
        *,
        is_made: bool = False,
    ) -> Custody | None: ...


class Around(Struct, eq=False):
    """What the files of one program share. ``enter`` looks at the model in a function of another file, or says nothing
    where that goes too deep; it is handed in, since both ways of looking enter functions, where both begin anew."""

    enter: Enter
    flows: dict[int, Flow] = field(default_factory=dict)
    entered: dict[tuple[int, int, frozenset[str], int | None], Custody | None] = field(
        default_factory=dict
    )

    def flow(self, home: Evaluator) -> Flow:
        """How values flow through a file, worked out once."""
        if id(home) not in self.flows:
            self.flows[id(home)] = Flow(home.tree)
        return self.flows[id(home)]


class Custody:
    """The model in one file: in the script itself, whose calls the tables read (``is_here``), or in a function of another."""

    def __init__(
        self,
        home: Evaluator,
        steps: Sequence[ReachedCall],
        around: Around,
        *,
        function: FunctionNode | None = None,
        depth: int = 0,
    ) -> None:
        self.home, self.steps, self.around = home, steps, around
        self.function, self.is_here, self.depth = function, function is None, depth
        self.flow = around.flow(home)
        self.names: set[tuple[int, str]] = set()
        """Names of the model, with the scope that binds each; attributes of objects have none."""
        self.values: dict[int, int | None] = {}
        """Calls that give the model, by ``id``, with its place in what they give."""
        self.loads: list[ast.Call] = []
        self.outside: set[tuple[str, str]] = set()
        """Functions and the parameters of theirs that the model comes in by."""
        self.touches: dict[int, Touch] = {}
        self.read: list[tuple[ReachedCall, frozenset[str]]] = []
        """Of a function of another file: the calls that the tables read, and what each decides."""
        self.carried: dict[int, tuple[Carried, ...]] = {}
        """By ``id`` of the call that enters them: what functions of other files call that the tables read."""
        self.casts: list[ReachedCall] = []
        self.forwarded: list[tuple[str, frozenset[str]]] = []
        """Parameters of the function that say how a model is loaded, and what each decides."""
        self.hands_on_all = False
        """Whether all further keywords of the function's are the loader's."""
        self.made_by: list[tuple[ast.Call, Custody]] = []
        """Functions of other files that make it."""
        self.seen: set[tuple[int, int | None]] = set()

    @cached_property
    def given(self) -> frozenset[str]:
        """The names of the parameters of the function that is entered."""
        return frozenset() if self.function is None else frozenset(parameters_of(self.function))

    def is_model(self, value: ast.expr, scope: Scope) -> bool:
        """Whether an expression is the model, in whatever it is wrapped."""
        if isinstance(value, ast.Call):
            if id(value) in self.values:
                return self.values[id(value)] in (None, 0)
            last = call_name(value)
            if isinstance(value.func, ast.Attribute) and last in GIVES_BACK:
                return self.is_model(value.func.value, scope)
            given = model_in(value) if last in WRAPPERS else None
            return given is not None and self.is_model(given, scope)
        if isinstance(value, ast.Attribute) and value.attr == "module":
            return self.is_model(value.value, scope)
        key = self.key(value, scope)
        return key is not None and key in self.names

    def given_in(self, call: ast.Call, scope: Scope) -> Iterator[tuple[int | str | None, ast.expr]]:
        """The arguments of a call that are the model, each with its place or name."""
        for number, value in enumerate(call.args):
            if self.is_model(value, scope):
                yield number, value
        for keyword in call.keywords:
            if self.is_model(keyword.value, scope):
                yield keyword.arg, keyword.value

    @cached_property
    def _lines(self) -> tuple[tuple[int, int], ...] | None:
        """The lines of the functions that were entered; ``None`` of the script itself, all of which counts."""
        if self.function is None:
            return None
        reached = (step.function for step in self.steps if step.function is not None)
        functions = {id(each): each for each in (self.function, *reached)}
        return tuple((each.lineno, each.end_lineno or 0) for each in functions.values())

    def is_entered(self, node: ast.stmt) -> bool:
        return self._lines is None or any(a <= node.lineno <= b for a, b in self._lines)

    def key(self, value: ast.expr, scope: Scope) -> tuple[int, str] | None:
        """What a value is known by: a name with its scope, or a dotted name."""
        if isinstance(value, ast.Name):
            found = scope.find(value.id)
            return (id(found[0]) if found is not None else 0, value.id)
        name = dotted(value)
        return None if name is None else (0, name)

    def is_module(self, value: ast.expr, scope: Scope) -> bool:
        """Whether a dotted name begins with a module that is imported."""
        name = dotted(value)
        return name is not None and scope.imported(name) is not None

    def is_of_library(self, name: str, scope: Scope) -> bool:
        return scope.imported(name) is not None and self.home.elsewhere(name, scope) is None

    def knows_no_model(self, call: ast.Call, scope: Scope) -> bool:
        """Whether a call is one of Python's own library that has nothing to do with models."""
        name = scope.imported(dotted(call.func) or "")
        return name is not None and name.startswith(OF_NO_MODEL)

    def is_of_project(self, name: str, scope: Scope) -> bool:
        return name in self.home.scopes.classes or self.home.elsewhere(name, scope) is not None

    def touch(self, node: ast.expr | ast.stmt, decides: frozenset[str], what: str = "") -> None:
        """Note that something touches the model, what it may decide about it, and what it is called."""
        earlier = self.touches.get(id(node))
        decided = decides if earlier is None else decides | earlier.decides
        words = what or named_in_words(node)
        self.touches[id(node)] = Touch(
            node, words, decided, "" if earlier is None else earlier.home
        )


def model_in(call: ast.Call) -> ast.expr | None:
    """The argument by which a call is given the model."""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    for name in ("model", "module", "peft_model", "base_model"):
        if name in keywords:
            return keywords[name]
    first = call.args[0] if call.args else None
    return first if isinstance(first, (ast.Name, ast.Attribute, ast.Call)) else None


def named_in_words(node: ast.AST) -> str:
    """``apply_lora(model)``, as short as tells which call it is."""
    if isinstance(node, ast.Call):
        return f"{dotted(node.func) or call_name(node) or 'a call'}()"
    if isinstance(node, ast.Assign):
        return dotted(node.targets[0]) or "an assignment"
    return "a statement"
