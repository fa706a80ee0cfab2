"""The model of a program, from where it is loaded to where it is trained: under which names it goes, and what touches
it on the way.

What touches it is known by a library's name, is code of the project that is entered, or is not accounted for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from msgspec import Struct, field

from oomlint.documents.python.calls import ReachedCall, steps_of
from oomlint.documents.python.config_paths import default_of
from oomlint.documents.python.contexts import open_contexts, wrapped_in_parts
from oomlint.documents.python.flow import Flow, returned
from oomlint.documents.python.known_touches import (
    ALL,
    BY_OPTIONS,
    CALLED_MODEL,
    CLASSES,
    FUNCTIONS,
    GIVES_BACK,
    HARMLESS_CLASSES,
    LOAD,
    LOADERS,
    MEANINGS,
    METHODS,
    OF_LOADING,
    OPTIONS,
    PACKAGES,
    PATCHES,
    READ_ELSEWHERE,
    SWITCHES,
    WRAPPERS,
    decided_by,
    is_harmless,
    kinds_of,
)
from oomlint.documents.python.loops import OPTIMIZER
from oomlint.documents.python.scopes import FunctionNode, Scope, call_name, dotted
from oomlint.documents.python.side_facts import OTHER_MODEL, sets_gradient
from oomlint.documents.python.values import Evaluator

# How deep functions are entered, and values followed back.
_DEEPEST = 4
_MOST_HANDS = 20
# What a pass over the calls learns of names the next one uses.
_MOST_PASSES = 4
# What a function of the project's is called that is not worth entering.
_LOOKS = (
    "print",
    "log",
    "count",
    "save",
    "eval",
    "test",
    "generate",
    "show",
    "is_",
    "has_",
    "get_",
    "num_",
)
# Fields of a model, or of its config, that say what the Trainer or the forward pass makes of it (transformers 5.23
# trainer.py is_model_parallel, modeling_utils.py); others are noted for whoever asks.
_PLACES = frozenset({"is_parallelizable", "model_parallel", "hf_device_map"})
_PLAIN = (ast.Constant, ast.Attribute, ast.Name, ast.Subscript, ast.Compare, ast.BoolOp)


class Touch(Struct, frozen=True):
    """What touches a model and may decide something about it: ``node`` in the script itself, ``what`` in its words.
    ``home`` is the file whose code does so, if that was entered; else nobody knows."""

    node: ast.expr | ast.stmt
    what: str
    decides: frozenset[str]
    home: str = ""


class Target(Struct, frozen=True, eq=False):
    """A function of the project's that a call enters; ``bound`` is how many parameters Python gives itself."""

    function: FunctionNode
    home: Evaluator
    bound: int = 0


class Around(Struct, eq=False):
    """What the files of one program share."""

    flows: dict[int, Flow] = field(default_factory=dict)
    entered: dict[tuple[int, frozenset[str], int | None], Custody | None] = field(
        default_factory=dict
    )

    def flow(self, home: Evaluator) -> Flow:
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
        self.casts: list[ReachedCall] = []
        self.forwarded: list[tuple[str, frozenset[str]]] = []
        """Parameters of the function that say how a model is loaded, and what each decides."""
        self.hands_on_all = False
        """Whether all further keywords of the function's are the loader's."""
        self.made_by: list[tuple[ast.Call, Custody]] = []
        """Functions of other files that make it."""
        self._seen: set[tuple[int, int | None]] = set()

    # -- back from where it is trained ------------------------------------------------------------------

    def trace(
        self, value: ast.expr, scope: Scope, number: int | None = None, hand: int = 0
    ) -> None:
        """Follow a value that is the model back to what loads it."""
        if hand > _MOST_HANDS or (id(value), number) in self._seen:
            return
        self._seen.add((id(value), number))
        match value:
            case ast.Name() | ast.Attribute():
                self._trace_name(value, scope, number, hand)
            case ast.Call():
                self.values[id(value)] = number
                self._trace_call(value, scope, number, hand)
            case ast.Subscript(value=several, slice=ast.Constant(value=int(at))):
                self.trace(several, scope, at, hand + 1)
        for each, place in _alternatives(value, number):
            self.trace(each, scope, place, hand + 1)

    def _trace_name(
        self, value: ast.Name | ast.Attribute, scope: Scope, number: int | None, hand: int
    ) -> None:
        key = self._key(value, scope)
        if key is not None:
            self.names.add(key)
        given = [each for each in self.flow.values(value, scope) if each[0] is not value]
        for each, inner, place in given:
            self.trace(each, inner, place if number is None else number, hand + 1)
        if given or key is None:
            return
        found = scope.find(value.id) if isinstance(value, ast.Name) else None
        owner = found[0].node if found is not None else None
        if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef)) and found is not None:
            if any(each.kind == "parameter" for each in found[1]):
                self.outside.add((owner.name, key[1]))
        elif isinstance(value, ast.Attribute) and _is_held(value):
            self.trace(value.value, scope, None, hand + 1)  # ``trainer.model``, ``engine.module``

    def _trace_call(self, call: ast.Call, scope: Scope, number: int | None, hand: int) -> None:
        last, name = call_name(call), scope.resolved(dotted(call.func) or "")
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        given = _model_in(call)
        if parted := wrapped_in_parts(name, last):
            self._touch(call, parted)
        is_peft = last in LOADERS and "Peft" in name
        if last in LOADERS and not (is_peft and given is not None):
            self._load(call)
        elif receiver is not None and last in GIVES_BACK and not self._is_module(receiver, scope):
            self.trace(receiver, scope, None, hand + 1)
        elif last in ("prepare", "setup") and call.args:
            place = min(number or 0, len(call.args) - 1)
            self.trace(call.args[place], scope, None, hand + 1)
        elif (
            last == "initialize"
            or last.endswith("Trainer")
            or ((last in WRAPPERS or is_peft) and self._target(call, scope) is None)
        ):
            self._trace_first(call, scope, hand)
        elif (target := self._target(call, scope)) is not None:
            self._trace_into(call, scope, target, number, hand)
        elif CLASSES.search(name) and not self._is_of_project(name, scope):
            self._load(call)
        elif last in FUNCTIONS or (last in METHODS and given is None):
            self._trace_first(call, scope, hand)  # a name, or what is looked up
        else:
            self._touch(call, decided_by(last) if given is not None else decided_by(last) | LOAD)
            self._trace_first(call, scope, hand)

    def _trace_first(self, call: ast.Call, scope: Scope, hand: int) -> None:
        """What a library's function wraps, or another is given that may be the model."""
        given = _model_in(call)
        is_known = call_name(call) in WRAPPERS or "Peft" in (dotted(call.func) or "")
        if given is not None and (is_known or self._may_be_model(given, scope)):
            self.trace(given, scope, None, hand + 1)

    def _may_be_model(self, value: ast.expr, scope: Scope) -> bool:
        """Whether a value comes of a call that loads a model, or is called like one."""
        made = [each for each in self.flow.path(value, scope) if isinstance(each, ast.Call)]
        loads = any(call_name(each) in LOADERS and _is_of_model(each) for each in made)
        owner, _, name = (dotted(value) or "").rpartition(".")
        return loads or (owner in ("", "self") and bool(CALLED_MODEL.fullmatch(name)))

    def _trace_into(
        self, call: ast.Call, scope: Scope, target: Target, number: int | None, hand: int
    ) -> None:
        """What a function of the project gives back, or an object of a class of its is made of."""
        function, home = target.function, target.home
        is_made = function.name == "__init__"
        if home is self.home:
            inner = home.tree.scopes.of_node[id(function)]
            for value in () if is_made else returned(function):
                self.trace(value, inner, number, hand + 1)
            if is_made:
                self._trace_given(call, scope, target, hand)
            return
        entered = self._enter(target, frozenset(), None if is_made else number, is_made=not is_made)
        if entered is None:
            self._touch(call, LOAD)
            return
        self._add(call, scope, target, entered)
        self.made_by.append((call, entered))
        handed = {name for owner, name in entered.outside if owner == function.name}
        for name in handed:
            given = _argument(call, target, name)
            if given is not None:
                self.trace(given, scope, None, hand + 1)
        if is_made:
            self._trace_given(call, scope, target, hand)
        elif not entered.loads and not handed and not entered.touches:
            self._touch(call, LOAD)

    def _trace_given(self, call: ast.Call, scope: Scope, target: Target, hand: int) -> None:
        """What an object is made of: those of the arguments that are models by the calls they come from."""
        for value in (*call.args, *(keyword.value for keyword in call.keywords)):
            if self._may_be_model(value, scope):
                self.trace(value, scope, None, hand + 1)

    def _load(self, call: ast.Call) -> None:
        self.loads.append(call)
        self.values.setdefault(id(call), None)
        around = open_contexts(call, self.home.tree, self.flow, self._is_of_project)
        for opened, decides in around:
            self._touch(opened, decides)
        if self.is_here:
            return
        scope = self.flow.scope_at(call)
        decided = frozenset[str]()
        for keyword in call.keywords:
            if keyword.arg is not None:
                decided |= self._said(keyword.arg, keyword.value, scope)
            else:
                decided |= self._unpacked(keyword.value, scope)
        if not _is_plain_class(call):
            decided |= {"quantization", "dtype"}
        if decided:
            self._touch(call, decided)

    def _said(self, name: str, value: ast.expr, scope: Scope) -> frozenset[str]:
        """What an argument of a call decides that loads a model."""
        return self._decided_by(OF_LOADING.get(name, frozenset()), value, scope)

    def _decided_by(self, decides: frozenset[str], value: ast.expr, scope: Scope) -> frozenset[str]:
        """What a value decides: nothing that is off, or an option's by a name that is known; what the function is given
        its caller says."""
        if not decides or _is_usual(value):
            return frozenset()
        if isinstance(value, ast.Name) and value.id in self.given:
            self.forwarded.append((value.id, decides))
            return frozenset()
        return frozenset() if self._is_by_option(value, scope) else decides

    @cached_property
    def given(self) -> frozenset[str]:
        if self.function is None:
            return frozenset()
        arguments = self.function.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        return frozenset(each.arg for each in every)

    def _is_by_option(self, value: ast.expr, scope: Scope) -> bool:
        for each in self.flow.path(value, scope):
            for node in ast.walk(each):
                if isinstance(node, ast.Attribute) and node.attr in OPTIONS:
                    return True
                if isinstance(node, ast.Call) and call_name(node) in BY_OPTIONS:
                    return True
        return False

    def _unpacked(self, value: ast.expr, scope: Scope) -> frozenset[str]:
        """What a dictionary decides that is unpacked into a call which loads a model."""
        if self.function is not None and isinstance(value, ast.Name):
            more = self.function.args.kwarg
            if more is not None and more.arg == value.id:
                self.hands_on_all = True
                return frozenset()
        decided, is_known = frozenset[str](), False
        for each, inner in ((value, scope), *self.flow.stands_for(value, scope)):
            pairs: list[tuple[str, ast.expr]] = []
            if isinstance(each, ast.Dict):
                keys = zip(each.keys, each.values, strict=True)
                pairs = [(str(k.value), v) for k, v in keys if isinstance(k, ast.Constant)]
            elif isinstance(each, ast.Call) and call_name(each) == "dict":
                pairs = [(k.arg, k.value) for k in each.keywords if k.arg]
            else:
                continue
            is_known = True
            for name, said in pairs:
                decided |= self._said(name, said, inner)
        return decided if is_known else LOAD - {"trainable"}

    # -- on from where it is loaded ---------------------------------------------------------------------

    def look(self, last: ReachedCall | None = None) -> None:
        """Find what touches the model up to where it is trained."""
        for _ in range(_MOST_PASSES):
            known = len(self.names)
            self._name_more()
            for step in self.steps:
                self._hand_on(step)
            if len(self.names) == known:
                break
        for step in self.steps:
            if last is None or not _is_behind(step, last):
                self._look_at(step)
        for assignment in self.home.tree.assignments:
            if self._is_entered(assignment):
                self._look_at_store(assignment)

    def _name_more(self) -> None:
        for name, value, owner, number in self.flow.all_given():
            if self._is_given(value, number):
                self.names.add((owner, name))

    def _is_given(self, value: ast.expr, number: int | None) -> bool:
        """Whether what a name is given is the model: a value, or the one at its place in several."""
        if number is not None:
            return id(value) in self.values and (self.values[id(value)] or 0) == number
        return self.is_model(value, self.flow.scope_at(value))

    def _hand_on(self, step: ReachedCall) -> None:
        """A function of this file that is given the model calls it by a name of its own."""
        given = list(self._given(step.node, step.scope))
        target = self._target(step.node, step.scope) if given else None
        if target is None or target.home is not self.home:
            return
        scope = self.home.tree.scopes.of_node[id(target.function)]
        for name in _parameters(step.node, target, given):
            self.names.add((id(scope), name))

    def is_model(self, value: ast.expr, scope: Scope) -> bool:
        """Whether an expression is the model, in whatever it is wrapped."""
        if isinstance(value, ast.Call):
            if id(value) in self.values:
                return self.values[id(value)] in (None, 0)
            last = call_name(value)
            if isinstance(value.func, ast.Attribute) and last in GIVES_BACK:
                return self.is_model(value.func.value, scope)
            given = _model_in(value) if last in WRAPPERS else None
            return given is not None and self.is_model(given, scope)
        if isinstance(value, ast.Attribute) and value.attr == "module":
            return self.is_model(value.value, scope)
        key = self._key(value, scope)
        return key is not None and key in self.names

    def _given(self, call: ast.Call, scope: Scope) -> Iterator[tuple[int | str | None, ast.expr]]:
        """The arguments of a call that are the model, each with its place or name."""
        for number, value in enumerate(call.args):
            if self.is_model(value, scope):
                yield number, value
        for keyword in call.keywords:
            if self.is_model(keyword.value, scope):
                yield keyword.arg, keyword.value

    # -- what touches it --------------------------------------------------------------------------------

    def _look_at(self, step: ReachedCall) -> None:
        call, scope = step.node, step.scope
        if id(call) not in self.values or call_name(call) in GIVES_BACK:
            whole, part = self._receiver(call, scope)
            if whole or part:
                self._method(step, whole=whole)
                return
        if id(call) in self.values:
            self._known(step)
            return
        given = list(self._given(call, scope))
        if given and not OTHER_MODEL.search(self.flow.names_of(id(call))):
            self._function(step, given)
        elif (
            not given
            and PATCHES.search(step.last)
            and isinstance(call.func, (ast.Name, ast.Attribute))
        ):
            self._patch(step)

    def _receiver(self, call: ast.Call, scope: Scope) -> tuple[bool, bool]:
        """Whether a method is one of the model, or of a part of it."""
        holder = call.func.value if isinstance(call.func, ast.Attribute) else None
        if holder is None:
            return False, False
        if self.is_model(holder, scope):
            return True, False
        while isinstance(holder, (ast.Attribute, ast.Subscript, ast.Call)):
            holder = holder.func if isinstance(holder, ast.Call) else holder.value
            if self.is_model(holder, scope):
                return False, True
        return False, False

    def _method(self, step: ReachedCall, *, whole: bool) -> None:
        call, last = step.node, step.last
        if last in ("to", "half", "float", "bfloat16", "double"):
            if whole:
                self.casts.append(step)
                if not self.is_here and (last != "to" or _names_dtype(call)):
                    self._touch(call, frozenset({"dtype"}))
            return
        if self._known(step) or last in METHODS or is_harmless(last):
            return
        if not whole and not kinds_of(last):
            return
        own = [each for each in self.home.tree.functions if each.name == last]
        if not own:
            self._touch(call, decided_by(last))

    def _known(self, step: ReachedCall) -> bool:
        """Whether a call is one that the tables read; of another file it counts as decided there, unless an option
        decides on it by a name that they know."""
        decided = MEANINGS.get(step.last)
        is_option = any(name in SWITCHES for name, _ in step.guards)
        if decided and not self.is_here and not is_option and _may_switch(step.node, step.last):
            self._touch(step.node, decided)
        return decided is not None

    def _function(
        self, step: ReachedCall, given: Sequence[tuple[int | str | None, ast.expr]]
    ) -> None:
        call, scope, last = step.node, step.scope, step.last
        if HARMLESS_CLASSES.search(last):
            return  # of trainers their methods tell
        target = self._target(call, scope)
        if target is None:
            self._of_library(step)
        elif target.home is not self.home and not _only_looks(last):
            # Of a function of this file the calls are among the steps.
            entered = self._enter(target, frozenset(_parameters(call, target, given)), None)
            if entered is None:
                self._touch(call, decided_by(last))
            else:
                self._add(call, scope, target, entered)

    def _of_library(self, step: ReachedCall) -> None:
        """A function that is given the model and is not here."""
        call, last = step.node, step.last
        if parted := wrapped_in_parts(step.name, last):
            self._touch(call, parted)
        if self._known(step) or last in FUNCTIONS or last in WRAPPERS or is_harmless(last):
            return
        if last in LOADERS or OPTIMIZER.fullmatch(last):
            return
        if last == "setattr" and len(call.args) > 2 and isinstance(call.args[1], ast.Constant):
            self._set(call, str(call.args[1].value), call.args[2], "setattr()")
        elif kinds_of(last) or not step.name.startswith(PACKAGES):
            self._touch(call, decided_by(last))

    def _patch(self, step: ReachedCall) -> None:
        """A call that changes a library's code for all models that are made after it."""
        name = step.name
        if name.startswith(READ_ELSEWHERE) or step.last in METHODS:
            return
        if (
            isinstance(step.node.func, ast.Attribute)
            and self._target(step.node, step.scope) is None
        ):
            root = dotted(step.node.func.value)
            if root is None or step.scope.imported(root) is None:
                return  # ``text.replace(...)``
        target = self._target(step.node, step.scope)
        if target is not None and target.home is self.home:
            return
        entered = None if target is None else self._enter(target, frozenset(), None)
        if entered is not None and target is not None:
            self._add(step.node, step.scope, target, entered)
        else:
            decided = kinds_of(name) - {"trainable"}
            if decided:
                self._touch(step.node, decided)

    def _look_at_store(self, assignment: ast.Assign) -> None:
        scope = self.flow.scope_at(assignment)
        for target in assignment.targets:
            if not isinstance(target, ast.Attribute):
                continue
            name = dotted(target) or ""
            if self._is_below(target, scope):
                self._store(assignment, target, name)
            elif name.endswith(".forward") or self._is_of_library(name, scope):
                decided = kinds_of(name) & {"attention", "loss", "checkpointing"}
                if decided and not isinstance(assignment.value, ast.Constant):
                    self._touch(assignment, decided, name)

    def _store(self, assignment: ast.Assign, target: ast.Attribute, name: str) -> None:
        """``model.forward = f``, ``model.lm_head = Head(...)``, ``model.config.key = value``."""
        if any(part.endswith("config") for part in name.split(".")[:-1]):
            if "attention" in kinds_of(target.attr) and "implementation" in target.attr:
                self._touch(assignment, frozenset({"attention"}), name)
        else:
            self._set(assignment, target.attr, assignment.value, name)

    def _set(self, node: ast.expr | ast.stmt, attribute: str, value: ast.expr, what: str) -> None:
        """What an attribute of the model decides that is set; another name for a part of it decides nothing."""
        if attribute == "forward":
            self._touch(node, frozenset({"loss", "attention"}), what)
        elif attribute in _PLACES:
            self._touch(node, frozenset({"placement"}), what)
        elif isinstance(value, ast.Call) and not attribute.startswith("_"):
            made = call_name(value)
            decided = kinds_of(f"{attribute} {made}")
            is_own = made[:1].isupper() and self._is_of_project(made, self.flow.scope_at(node))
            if decided or is_own:
                self._touch(node, decided or ALL, what)

    def _is_below(self, target: ast.Attribute, scope: Scope) -> bool:
        holder: ast.expr = target.value
        while True:
            if self.is_model(holder, scope):
                return True
            if not isinstance(holder, (ast.Attribute, ast.Subscript)):
                return False
            holder = holder.value

    # -- entering ---------------------------------------------------------------------------------------

    def _enter(
        self, target: Target, names: frozenset[str], number: int | None, *, is_made: bool = False
    ) -> Custody | None:
        """The model in a function of another file; ``None`` where that goes too deep."""
        key = (id(target.function), names, number if is_made else -1)
        if key in self.around.entered:
            return self.around.entered[key]
        if self.depth >= _DEEPEST:
            return None
        self.around.entered[key] = None
        home, function = target.home, target.function
        steps = steps_of(function, home.tree)
        inner = Custody(home, steps, self.around, function=function, depth=self.depth + 1)
        scope = home.tree.scopes.of_node[id(function)]
        inner.names |= {(id(scope), name) for name in names}
        if is_made:
            for value in returned(function):
                inner.trace(value, scope, number)
        inner.look()
        reached = {id(s.function): s.function for s in steps if s.function is not None}
        entered = {id(function): function, **reached}.values()
        if (names or is_made) and any(_chooses(each) for each in entered):
            inner.touches[id(function)] = Touch(
                function, function.name, frozenset({"trainable"}), home.places.source.path
            )
        self.around.entered[key] = inner
        return inner

    @cached_property
    def _lines(self) -> tuple[tuple[int, int], ...] | None:
        """The lines of the functions that were entered; ``None`` of the script itself, all of which counts."""
        if self.function is None:
            return None
        reached = (step.function for step in self.steps if step.function is not None)
        functions = {id(each): each for each in (self.function, *reached)}
        return tuple((each.lineno, each.end_lineno or 0) for each in functions.values())

    def _is_entered(self, node: ast.stmt) -> bool:
        return self._lines is None or any(a <= node.lineno <= b for a, b in self._lines)

    def _target(self, call: ast.Call, scope: Scope) -> Target | None:
        """The function of the project that a call enters, or the one that makes an object."""
        name = dotted(call.func)
        if name is None:
            return None
        functions, classes = self.home.scopes.functions, self.home.scopes.classes
        if name in functions:
            return Target(functions[name], self.home)
        if name in classes:
            return _maker(classes[name], self.home)
        root, _, last = name.rpartition(".")
        if root in ("self", "cls") or root in classes:
            own = [each for each in self.home.tree.functions if each.name == last]
            return Target(own[0], self.home, 1) if len(own) == 1 else None
        elsewhere = self.home.elsewhere(name, scope)
        return None if elsewhere is None else _defined(elsewhere[0], elsewhere[1])

    # -- words ------------------------------------------------------------------------------------------

    def _key(self, value: ast.expr, scope: Scope) -> tuple[int, str] | None:
        if isinstance(value, ast.Name):
            found = scope.find(value.id)
            return (id(found[0]) if found is not None else 0, value.id)
        name = dotted(value)
        return None if name is None else (0, name)

    def _is_module(self, value: ast.expr, scope: Scope) -> bool:
        name = dotted(value)
        return name is not None and scope.imported(name) is not None

    def _is_of_library(self, name: str, scope: Scope) -> bool:
        return scope.imported(name) is not None and self.home.elsewhere(name, scope) is None

    def _is_of_project(self, name: str, scope: Scope) -> bool:
        return name in self.home.scopes.classes or self.home.elsewhere(name, scope) is not None

    def _touch(self, node: ast.expr | ast.stmt, decides: frozenset[str], what: str = "") -> None:
        earlier = self.touches.get(id(node))
        decided = decides if earlier is None else decides | earlier.decides
        words = what or _words(node)
        self.touches[id(node)] = Touch(
            node, words, decided, "" if earlier is None else earlier.home
        )

    def _add(self, call: ast.Call, scope: Scope, target: Target, entered: Custody) -> None:
        """What a function that was entered decides, as if the call did."""
        decided: frozenset[str] = frozenset().union(*(t.decides for t in entered.touches.values()))
        for name, decides in entered.forwarded:
            value = _argument(call, target, name) or default_of(target.function, name)
            if value is not None:
                decided |= self._decided_by(decides, value, scope)
        for keyword in call.keywords if entered.hands_on_all else ():
            if keyword.arg is None:
                decided |= self._unpacked(keyword.value, scope)
            elif keyword.arg not in entered.given:
                decided |= self._said(keyword.arg, keyword.value, scope)
        if decided:
            home = entered.home.places.source.path
            self.touches[id(call)] = Touch(call, _words(call), decided, home)


_HOLDERS = re.compile(r"(?:model|trainer|engine|ddp|fsdp|wrapper|wrapped)$", re.IGNORECASE)


def _is_held(value: ast.Attribute) -> bool:
    """``trainer.model``, ``engine.module``: the model that another object holds."""
    holder = dotted(value.value) or ""
    return value.attr in ("model", "module", "base_model") and bool(_HOLDERS.search(holder))


def _alternatives(value: ast.expr, number: int | None) -> Iterator[tuple[ast.expr, int | None]]:
    """What an expression may come to, each with the place in it of what is wanted."""
    match value:
        case ast.IfExp(body=one, orelse=other):
            yield from ((one, number), (other, number))
        case ast.BoolOp(values=several):
            yield from ((each, number) for each in several)
        case ast.NamedExpr(value=held) | ast.Await(value=held):
            yield held, number
        case ast.Tuple(elts=elements) | ast.List(elts=elements) if number is not None:
            yield from ((each, None) for each in elements[number : number + 1])


def _is_of_model(call: ast.Call) -> bool:
    name = dotted(call.func) or ""
    return not any(word in name.lower() for word in ("token", "processor", "config", "extractor"))


def _model_in(call: ast.Call) -> ast.expr | None:
    """The argument by which a call is given the model."""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    for name in ("model", "module", "peft_model", "base_model"):
        if name in keywords:
            return keywords[name]
    first = call.args[0] if call.args else None
    return first if isinstance(first, (ast.Name, ast.Attribute, ast.Call)) else None


def _maker(cls: ast.ClassDef, home: Evaluator) -> Target | None:
    for each in cls.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return Target(each, home, 1)
    return None


def _defined(home: Evaluator, name: ast.expr) -> Target | None:
    """The function, or the maker of objects, that a name is in its own file; packages hand on what their modules define."""
    for _ in range(_DEEPEST):
        written = dotted(name) or ""
        if written in home.scopes.functions:
            return Target(home.scopes.functions[written], home)
        if written in home.scopes.classes:
            return _maker(home.scopes.classes[written], home)
        cls, _, method = written.partition(".")
        if cls in home.scopes.classes:
            for each in home.scopes.classes[cls].body:
                if isinstance(each, ast.FunctionDef) and each.name == method:
                    is_static = any(dotted(d) == "staticmethod" for d in each.decorator_list)
                    return Target(each, home, 0 if is_static else 1)
        elsewhere = home.elsewhere(written, home.scopes.module)
        if elsewhere is None:
            return None
        home, name = elsewhere
    return None


def _places(target: Target) -> list[str]:
    arguments = target.function.args
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args)][target.bound :]


def _parameters(
    call: ast.Call, target: Target, given: Iterable[tuple[int | str | None, ast.expr]]
) -> Iterator[str]:
    """What a function calls the arguments that are the model."""
    places = _places(target)
    for at, _ in given:
        if isinstance(at, str):
            yield at
        elif isinstance(at, int) and at < len(places):
            yield places[at]


def _argument(call: ast.Call, target: Target, name: str) -> ast.expr | None:
    named = next((k.value for k in call.keywords if k.arg == name), None)
    places = _places(target)
    number = places.index(name) if name in places else len(call.args)
    return named if named is not None else call.args[number] if number < len(call.args) else None


def _is_behind(step: ReachedCall, last: ReachedCall) -> bool:
    """Whether a call comes when the model has been trained."""
    return step.scope is last.scope and step.node.lineno > (last.node.end_lineno or 0)


def _names_dtype(call: ast.Call) -> bool:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(keyword.arg == "dtype" for keyword in call.keywords) or any(
        word in ast.unparse(value) for value in given for word in ("dtype", "float", "half")
    )


def _may_switch(call: ast.Call, last: str) -> bool:
    """``requires_grad_()`` can only switch gradients on."""
    return last != "requires_grad_" or sets_gradient(call)


def _only_looks(last: str) -> bool:
    """Whether a function of the project's is not worth entering."""
    return last.startswith(_LOOKS)


def _chooses(function: FunctionNode) -> bool:
    """Whether a function says of parameters whether they are trained, of no model that never is."""
    return any(not OTHER_MODEL.search(owner) for owner in _chosen_from(function))


def _chosen_from(function: FunctionNode) -> Iterator[str]:
    for node in ast.walk(function):
        match node:
            case ast.For(iter=over) if any(map(sets_gradient, ast.walk(node))):
                yield ast.unparse(over)
            case ast.Call(func=ast.Attribute(value=owner)) if sets_gradient(node):
                words = ast.unparse(owner)
                if "model" in words:
                    yield words


# transformers 5.23 modeling_utils.py: what keeps no scores of attention, as the default does not.
_USUAL = (None, False, 0, "", "sdpa", "flash_attention_2", "flash_attention_3")


def _is_usual(value: ast.expr) -> bool:
    """Whether what a loader is told is off, or as good as its default."""
    if isinstance(value, ast.IfExp):
        return _is_usual(value.body) and _is_usual(value.orelse)
    return isinstance(value, ast.Constant) and value.value in _USUAL


def _is_plain_class(call: ast.Call) -> bool:
    """``AutoModelForCausalLM``, ``LlamaForCausalLM``: classes of transformers, which quantize nothing by themselves."""
    owner = (dotted(call.func) or "").rpartition(".")[0].rpartition(".")[2]
    return owner.startswith(("Auto", "Peft", "model", "cls")) or "For" in owner or "LM" in owner


def _words(node: ast.AST) -> str:
    """``apply_lora(model)``, as short as tells which call it is."""
    if isinstance(node, ast.Call):
        return f"{dotted(node.func) or call_name(node) or 'a call'}()"
    if isinstance(node, ast.Assign):
        return dotted(node.targets[0]) or "an assignment"
    return "a statement"
