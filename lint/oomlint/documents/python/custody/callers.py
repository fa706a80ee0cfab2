"""The model that a program makes and gives a function of the module which trains it: ``run_training(model, tokenizer)``.

The program's function is read as one of another file that the module calls: what it decides, the module's trainer is given.
"""

from __future__ import annotations

import ast

from oomlint.documents.python.calls import ReachedCall, run_order, steps_of
from oomlint.documents.python.custody.carried import carry
from oomlint.documents.python.custody.look import look
from oomlint.documents.python.custody.record import Custody, Touch
from oomlint.documents.python.custody.trace import trace
from oomlint.documents.python.scopes import FunctionNode, Scope, dotted
from oomlint.documents.python.values import Evaluator


def trace_callers(custody: Custody, trainer: ReachedCall) -> None:
    """Follow a model that comes in by a parameter into the program that gives it."""
    for name, parameter in sorted(custody.outside):
        functions = (each for each in custody.home.tree.functions if each.name == name)
        for function in functions:
            given = custody.home.by_programs.get((id(function), parameter), [])
            if len(given) == 1 and given[0][2] is not custody.home:
                _follow(custody, trainer, (function, parameter), *given[0])


def _follow(
    custody: Custody,
    trainer: ReachedCall,
    entered: tuple[FunctionNode, str],
    value: ast.expr,
    scope: Scope,
    caller: Evaluator,
) -> None:
    around, steps = _around(scope, caller)
    inner = Custody(caller, steps, custody.around, function=around, depth=1)
    for step in steps:
        if any(each is value for each in (*step.node.args, *(k.value for k in step.node.keywords))):
            # What the module itself does with the model is seen there.
            key = (id(step.node), id(entered[0]), frozenset({entered[1]}), -1)
            custody.around.entered[key] = Custody(custody.home, (), custody.around, function=around)
    trace(inner, value, scope)
    look(inner)
    carry(inner)
    if not inner.loads and not inner.touches and not inner.carried:
        return
    custody.outside.discard((entered[0].name, entered[1]))
    found = tuple(each for several in inner.carried.values() for each in several)
    custody.carried[id(trainer.node)] = found
    decided = frozenset[str]().union(*(each.decides for each in inner.touches.values()))
    what = f"what makes {dotted(value) or 'its model'}"
    custody.touches[id(trainer.node)] = Touch(
        trainer.node, what, decided, caller.places.source.path
    )


def _around(scope: Scope, caller: Evaluator) -> tuple[FunctionNode, list[ReachedCall]]:
    """The function of a program in which a call stands, with its steps; the program itself, as one, where it stands in none."""
    tree = caller.tree
    node = scope.node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return node, steps_of(node, tree)
    whole = ast.FunctionDef("", ast.arguments([], [], None, [], [], None, []), tree.root.body, [])
    whole.lineno, whole.end_lineno = 1, caller.places.source.text.count("\n") + 1
    tree.scopes.of_node[id(whole)] = tree.scopes.module
    steps, _ = run_order(tree)
    return whole, [step for step in steps if step.reached]
