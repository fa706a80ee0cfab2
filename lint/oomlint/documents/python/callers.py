"""A program of the project that calls the functions and classes of a module: what it gives these.

A module whose functions train is started by nobody as it is: ``run_training(config)``, ``Finetuner(args.model).train()`` of
another file does that, and has the values.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from oomlint.documents.python.calls import ReachedCall, reached_by_files, run_order
from oomlint.documents.python.modules import Module, read_module
from oomlint.documents.python.parsers import positional_names
from oomlint.documents.python.scopes import FunctionNode, Scope, dotted
from oomlint.documents.python.trainer_names import names_trainer
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.values import Evaluator
from oomlint.documents.python.values.parameters import defaults_of, is_open
from oomlint.documents.python.walking import walk
from oomlint.documents.text import Source

# Packages hand on what their modules define.
_MOST_HANDED_ON: Final = 4


def awaited(tree: Tree, steps: Iterable[ReachedCall]) -> frozenset[str]:
    """The functions and classes of a file that trains in them, and calls none of them for that itself, which others call:
    all that nothing here calls, since one may make what another is given."""
    trains = [step for step in steps if names_trainer(step.last)]
    if not trains or any(step.reached or step.function is None for step in trains):
        return frozenset()
    names = (*tree.scopes.functions, *tree.scopes.classes)
    return frozenset(name for name in names if name not in tree.calls)


def note_caller(
    source: Source, awaits: frozenset[str], module: Module, evaluator: Evaluator
) -> bool:
    """Note what a program gives the parameters of the functions and classes that a module has it call; whether it calls
    any."""
    read = read_module(source)
    if read is None:
        return False
    evaluator.modules.read |= {module.source.path: module, source.path: read}
    evaluator.known[module.source.path] = evaluator
    caller = evaluator.reader_of(read)
    evaluator.may_load |= caller.may_load
    called: dict[int, list[tuple[ast.Call, int]]] = {}
    functions: dict[int, FunctionNode] = {}
    for call, function, bound in _calls(caller, awaits, evaluator):
        functions[id(function)] = function
        called.setdefault(id(function), []).append((call, bound))
    for key, function in functions.items():
        for name, values in _given(function, called[key], caller, evaluator):
            evaluator.by_programs[key, name] = values
    return bool(functions)


def _calls(
    caller: Evaluator, awaits: frozenset[str], evaluator: Evaluator
) -> Iterator[tuple[ast.Call, FunctionNode, int]]:
    """The calls of a program that enter a function of the module or make an object of a class there, and how many
    parameters Python itself gives."""
    for call in _running(caller):
        scope = caller.tree.scope_of.get(id(call))
        name = _name_at_home(call, scope, caller, evaluator) if scope is not None else None
        if name not in awaits or name is None:
            continue
        if name in evaluator.scopes.functions:
            yield call, evaluator.scopes.functions[name], 0
        for each in evaluator.scopes.classes[name].body if name in evaluator.scopes.classes else ():
            if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                yield call, each, 1


def _running(caller: Evaluator) -> Iterator[ast.Call]:
    """The calls of a program, but those behind a test which the config files that it loads decide otherwise."""
    steps, _ = run_order(caller.tree)
    idle: set[int] = set()
    for choice in caller.tree.of_kind(ast.IfExp):
        scope = next(
            (caller.tree.scope_of[id(n)] for n in walk(choice) if id(n) in caller.tree.scope_of),
            caller.scopes.module,
        )
        holds = caller.decided(choice.test, scope)
        if holds is not None:
            idle |= set(map(id, walk(choice.orelse if holds else choice.body)))
    for step in reached_by_files(steps, caller.tree, caller):
        if id(step.node) not in idle and _is_asked_for(step, caller):
            yield step.node


def _is_asked_for(step: ReachedCall, caller: Evaluator) -> bool:
    """Whether the command that starts a program may come to a call: no word of it asks for another part (``main.py
    evaluate``, where ``train`` leads there)."""
    for line, side in step.arms:
        holds = _by_words(caller.tree.branches[line][0].test, caller)
        if holds is not None and holds is not side:
            return False
    return step.function is None or _is_command_for(step.function, caller)


def _by_words(test: ast.expr, caller: Evaluator) -> bool | None:
    """Whether the words of a command make a test hold, ``args.command == "train"``; ``None`` where they say nothing of it."""
    options = caller.files.options
    match test:
        case ast.Compare(
            left=ast.Attribute(attr=name), ops=[ast.Eq()], comparators=[ast.Constant(value=wanted)]
        ):
            words = (*_subcommands(caller.tree), *positional_names(caller.tree)[:1])
            said = options.get(name, options.get("1") if name in words else None)
            return None if said is None else said == wanted
    return None


def _subcommands(tree: Tree) -> Iterator[str]:
    """What the first word of a command is called in what a parser gives: ``add_subparsers(dest="command")``."""
    for call in tree.calls_to("add_subparsers"):
        for each in call.keywords:
            if each.arg == "dest" and isinstance(each.value, ast.Constant):
                yield str(each.value.value)


def _is_command_for(function: FunctionNode, caller: Evaluator) -> bool:
    """Whether a function may be the one of several that the first word of a command calls: click's and typer's
    ``@app.command()``."""
    commands = {
        each.name.replace("_", "-")
        for each in caller.tree.functions
        if any(map(_makes_command, each.decorator_list))
    }
    word, own = caller.files.options.get("1"), function.name.replace("_", "-")
    return word not in commands or own not in commands or own == word


def _makes_command(decorator: ast.expr) -> bool:
    made = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(made, ast.Attribute) and made.attr == "command"


def _name_at_home(
    call: ast.Call, scope: Scope, caller: Evaluator, evaluator: Evaluator
) -> str | None:
    """What the module calls that which a call of another file enters, if that is its own."""
    name, home = dotted(call.func), caller
    if name is None or name.startswith("self."):
        return None
    for _ in range(_MOST_HANDED_ON):
        elsewhere = home.elsewhere(name, scope)
        if elsewhere is None:
            return None
        home, inner = elsewhere
        name, scope = dotted(inner) or "", home.scopes.module
        if home is evaluator:
            return name
    return None


def _given(
    function: FunctionNode,
    calls: Sequence[tuple[ast.Call, int]],
    caller: Evaluator,
    evaluator: Evaluator,
) -> Iterator[tuple[str, list[tuple[ast.expr, Scope, Evaluator]]]]:
    """What all calls give each parameter, or its default; nothing of one that some call leaves untold."""
    places = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    defaults = defaults_of(function)
    for name in (*places, *(each.arg for each in function.args.kwonlyargs)):
        found: list[tuple[ast.expr, Scope, Evaluator]] = []
        for call, bound in calls:
            value = _argument(call, name, places[bound:])
            if value is not None:
                found.append((value, caller.tree.scope_of[id(call)], caller))
            elif name in defaults and not is_open(call):
                found.append((defaults[name], evaluator.scopes.module, evaluator))
        if found and len(found) == len(calls):
            yield name, found


def _argument(call: ast.Call, name: str, places: Sequence[str]) -> ast.expr | None:
    if is_open(call):
        return None
    named = next((each.value for each in call.keywords if each.arg == name), None)
    number = places.index(name) if name in places else len(call.args)
    return named if named is not None or number >= len(call.args) else call.args[number]
