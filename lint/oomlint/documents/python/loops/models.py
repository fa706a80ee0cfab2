"""What a loop trains: the calls that load it, and what is done to it in the script."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from oomlint.documents.base import Call, Entry, Node, Scalar, Sequence as Items
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.lightning import (
    holds,
)
from oomlint.documents.python.loops.loop import InsertionPoint
from oomlint.documents.python.loops.script import Script
from oomlint.documents.python.scopes import FunctionNode, dotted
from oomlint.documents.python.side_facts import OTHER_MODEL, sets_gradient
from oomlint.documents.python.walking import walk
from oomlint.documents.text import Span

_CASTS: Final = frozenset({"half", "bfloat16", "float", "to"})
_MODEL_NAME: Final = re.compile(r"model|engine|net|fsdp|ddp", re.IGNORECASE)
# The output projection, and what classes of transformers put on top of a model (memory/named.py).
_HEADS: Final = frozenset({"lm_head", "score", "classifier", "classification_head", "qa_outputs"})


def used_by(
    script: Script, family: Sequence[ast.ClassDef], calls: dict[int, Call]
) -> dict[int, Call]:
    """Of some calls those in a class, else in one that it is derived from, else outside of all."""
    for classes in ((family[0],), family):
        found = {n: c for n, c in calls.items() if holds(classes, script.node_of[id(c)])}
        if found:
            return found
    return {n: c for n, c in calls.items() if not holds(script.tree.classes, script.node_of[id(c)])}


def trained_loads(script: Script) -> tuple[Call, ...]:
    """The loaders of what the optimizers, or who prepares the model for them, are given."""
    nodes: set[int] = set()
    for optimizer in script.optimizers:
        for call, scope in script.flow.asked(
            script.node_of[id(optimizer)], ("parameters", "named_parameters")
        ):
            assert isinstance(call.func, ast.Attribute)
            nodes |= script.flow.leads_to(call.func.value, scope, script.loaders)
    if not nodes:
        for step in script.steps:
            if step.last in ("prepare", "prepare_model", "setup", "setup_module", "initialize"):
                given = (*step.node.args, *(k.value for k in step.node.keywords))
                for value in given:
                    nodes |= script.flow.leads_to(value, step.scope, script.loaders)
    if not nodes and len(script.loaders) == 1:
        ((node, loader),) = script.loaders.items()
        # What is trained is made elsewhere where the one model here goes by the name of another.
        nodes = set() if OTHER_MODEL.search(named_by(script, node, loader)) else {node}
    return tuple(call for node, call in script.loaders.items() if node in nodes)


def configs(script: Script, models: Iterable[Call]) -> Iterator[tuple[Call, Node]]:
    """Models that are built from a loaded config, each with the model id that this is loaded by."""
    named = {
        id(step.node): step
        for step in script.steps
        if step.last == "from_pretrained" and "Config" in step.name
    }
    for model in models:
        node = script.node_of[id(model)]
        scope = script.flow.scope_of[id(node)]
        given = (*node.args, *(k.value for k in node.keywords if k.arg == "config"))
        if not model.callee.endswith("from_config") or not given:
            continue
        for found in script.flow.leads_to(given[0], scope, named):
            step = named[found]
            names = [*step.node.args, *(k.value for k in step.node.keywords if k.arg)]
            if names:
                yield model, script.evaluator.node(names[0], step.scope)
                break


def named_by(script: Script, node: int, call: Call) -> str:
    """The names that a call's value is given, or the method of a class that gives it back."""
    function = script.flow.scope_of[id(script.node_of[id(call)])].node
    method = function.name if isinstance(function, ast.FunctionDef) else ""
    is_method = any(function in each.body for each in script.tree.classes)
    return f"{script.flow.names_of(node)} {method if is_method else ''}".lower()


def casts(script: Script, trained: set[int]) -> Iterator[Call]:
    """``model.half()``, ``model.to(torch.bfloat16)``: what changes the dtype of the whole model."""
    wanted = {node: call for node, call in script.loaders.items() if node in trained}
    for step in script.steps:
        if step.last not in _CASTS or not isinstance(step.node.func, ast.Attribute):
            continue
        names = {keyword.arg for keyword in step.node.keywords}
        is_bare = not step.node.args and not names
        if is_bare is (step.last == "to"):
            continue
        if step.last == "to" and "dtype" not in names and not _names_dtype(script, step):
            continue
        receiver = step.node.func.value
        if not _MODEL_NAME.search(_root(receiver)):
            continue
        if script.flow.leads_to(receiver, step.scope, wanted):
            yield script.call(step)


def _names_dtype(script: Script, step: ReachedCall) -> bool:
    for value in step.node.args:
        said = script.evaluator.node(value, step.scope)
        if isinstance(said, Scalar) and "torch." in str(said.value):
            return True
    return len(step.node.args) == 1 and "dtype" in ast.unparse(step.node.args[0])


def frozen(script: Script, trained: set[int]) -> Span | None:
    """Where the script freezes a part of what is trained."""
    wanted = {node: call for node, call in script.loaders.items() if node in trained}
    for step in script.steps:
        if step.last == "requires_grad_" and isinstance(step.node.func, ast.Attribute):
            value = step.node.args[0] if step.node.args else None
            off = isinstance(value, ast.Constant) and value.value is False
            if off and script.flow.may_lead_to(step.node.func.value, step.scope, wanted):
                return script.places.span(step.node)
    for node in script.tree.assignments:
        target = node.targets[0]
        if not isinstance(target, ast.Attribute) or target.attr != "requires_grad":
            continue
        if isinstance(node.value, ast.Constant) and node.value.value is True:
            continue
        scope = script.flow.scope_at(node)
        if script.flow.may_lead_to(target.value, scope, wanted):
            return script.places.span(node)
    return None


def trained_by_name(script: Script, trained: set[int]) -> Items | None:
    """The parts of names by which the one loop that switches gradients leaves parameters to be trained::

        for name, param in model.named_parameters():
            if not any(part in name for part in [...]):
                param.requires_grad = False

    or those of one head, where it switches off all and then that head's on. ``None`` where it may not run, or anything
    else switches them too."""
    if sum(sets_gradient(node) for node in walk(script.tree.root)) != 1:
        return None
    wanted = {node: call for node, call in script.loaders.items() if node in trained}
    blocks = (script.tree.root, *(each for each in script.tree.functions))
    heads = next(
        (heads for block in blocks if (heads := _heads_alone(script, block, wanted))), None
    )
    if heads is not None:
        return heads
    for loop in (node for block in blocks for node in block.body if isinstance(node, ast.For)):
        match loop:
            case ast.For(
                target=ast.Tuple(elts=[ast.Name(id=name), ast.Name(id=parameter)]),
                iter=ast.Call(func=ast.Attribute(value=model, attr="named_parameters"), args=[]),
                body=[statement],
            ):
                parts = _left_to_train(statement, name, parameter)
                scope = script.flow.scope_at(loop)
                if parts is not None and script.flow.leads_to(model, scope, wanted):
                    said = script.evaluator.node(parts, scope)
                    return said if isinstance(said, Items) and _are_words(said) else None
    return None


def _heads_alone(
    script: Script, block: ast.Module | FunctionNode, wanted: dict[int, Call]
) -> Items | None:
    """The heads whose parameters a block switches on again behind the statement that switches off all::

    for param in model.parameters():
        param.requires_grad = False
    for param in model.classification_head.parameters():
        param.requires_grad = True
    """
    said = [(each, *found) for each in block.body if (found := _switched(each)) is not None]
    if len(said) < 2 or len(said) != sum(_switches(node) for node in walk(script.tree.root)):
        return None
    (first, model, is_on), *rest = said
    scope = script.flow.scope_at(first)
    if is_on or not script.flow.leads_to(model, scope, wanted):
        return None
    heads: list[Node] = []
    for statement, part, is_on in rest:
        if not isinstance(part, ast.Attribute) or part.attr not in _HEADS:
            return None
        owner: ast.expr = part
        while isinstance(owner, ast.Attribute):
            owner = owner.value
        if not is_on or not script.flow.leads_to(owner, scope, wanted):
            return None
        heads.append(Scalar(script.places.span(statement), f"{part.attr}."))
    return Items(script.places.span(first), tuple(heads))


def _switched(statement: ast.stmt) -> tuple[ast.expr, bool] | None:
    """What ``module.requires_grad_(...)``, or a loop over a module's parameters, switches, and whether on."""
    match statement:
        case ast.For(
            target=ast.Name(id=parameter),
            iter=ast.Call(
                func=ast.Attribute(value=module, attr="parameters"), args=[], keywords=[]
            ),
            body=[inner],
            orelse=[],
        ):
            match _set(inner):
                case (ast.Name(id=each), is_on) if each == parameter:
                    return module, is_on
            return None
    return _set(statement)


def _set(statement: ast.stmt) -> tuple[ast.expr, bool] | None:
    """``owner.requires_grad = True``, ``owner.requires_grad_(False)``."""
    match statement:
        case ast.Assign(
            targets=[ast.Attribute(value=owner, attr="requires_grad")],
            value=ast.Constant(value=bool(is_on)),
        ):
            return owner, is_on
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=owner, attr="requires_grad_"),
                args=[ast.Constant(value=bool(is_on))],
                keywords=[],
            )
        ):
            return owner, is_on
    return None


def _switches(node: ast.AST) -> bool:
    """Whether a statement switches gradients, on or off."""
    match node:
        case ast.Assign(targets=[ast.Attribute(attr="requires_grad")]):
            return True
        case ast.Call(func=ast.Attribute(attr="requires_grad_")):
            return True
    return False


def _left_to_train(statement: ast.stmt, name: str, parameter: str) -> ast.expr | None:
    """The list of which no entry is in the name of a parameter that is frozen."""
    match statement:
        case ast.If(
            test=ast.UnaryOp(op=ast.Not(), operand=test),
            body=[ast.Assign(targets=[ast.Attribute() as target], value=ast.Constant(value=False))],
            orelse=[],
        ):
            pass
        case ast.Assign(targets=[ast.Attribute() as target], value=test):
            pass
        case _:
            return None
    if ast.unparse(target) != f"{parameter}.requires_grad":
        return None
    match test:
        case ast.Call(
            func=ast.Name(id="any"),
            args=[
                ast.GeneratorExp(
                    elt=ast.Compare(
                        left=ast.Name(id=part), ops=[ast.In()], comparators=[ast.Name(id=within)]
                    ),
                    generators=[ast.comprehension(target=ast.Name(id=each), iter=parts, ifs=[])],
                )
            ],
        ) if part == each and within == name:
            return parts
    return None


def _are_words(said: Items) -> bool:
    return all(isinstance(item, Scalar) and isinstance(item.value, str) for item in said.items)


def checkpoints(script: Script) -> Entry | None:
    """Where the script sets ``gradient_checkpointing`` of a model, and to what."""
    for node in script.tree.assignments:
        target = node.targets[0]
        if not isinstance(target, ast.Attribute) or target.attr != "gradient_checkpointing":
            continue
        if _MODEL_NAME.search(_root(target.value)):
            value = script.evaluator.node(node.value, script.flow.scope_at(node))
            return Entry("on", script.places.span(node), value, script.places.span(node))
    return None


def comes_after(script: Script, call: Call, step: ReachedCall) -> bool:
    """Whether a call loads a model when the loop is done, to try it."""
    node = script.node_of[id(call)]
    is_beside = script.flow.scope_of[id(node)] is step.scope
    return is_beside and node.lineno > (step.node.end_lineno or 0)


def kept_outputs(
    script: Script, trained: set[int], centre: ReachedCall
) -> tuple[ast.Assign, ...] | None:
    """``outputs = model(...)`` where that is what the loop computes its loss from, and there until backward is through;
    nothing where it is not, ``None`` where no call of the model is seen."""
    wanted = {node: call for node, call in script.loaders.items() if node in trained}
    for step in script.steps:
        function = step.node.func
        if not isinstance(function, ast.Name) or not _MODEL_NAME.search(function.id):
            continue
        if script.flow.leads_to(function, step.scope, wanted):
            given = [node for node in script.tree.assignments if node.value is step.node]
            is_gone = any(_lets_go(script, node, centre) for node in given)
            return () if is_gone else tuple(given)
    return None


def outputs_last(given: Sequence[ast.Assign], script: Script, centre: ReachedCall) -> bool:
    """Whether outputs have their name until the next batch's take it: the loop over batches gives it, runs backward in
    the same function, and neither deletes the name nor gives it to anything else."""
    names = {dotted(node.targets[0]) for node in given}
    loops = [
        loop
        for loop in script.tree.nodes
        if isinstance(loop, (ast.For, ast.While))
        and all(_is_within(line, loop) for line in (centre.node.lineno, *(g.lineno for g in given)))
    ]
    if not given or not loops or centre.function is not _function_of(script, given[0]):
        return False
    return not any(_takes(node, names, given) for loop in loops for node in walk(loop))


def _is_within(line: int, loop: ast.For | ast.While) -> bool:
    return loop.lineno <= line <= (loop.end_lineno or 0)


def _function_of(script: Script, given: ast.Assign) -> ast.AST | None:
    return next((step.function for step in script.steps if step.node is given.value), None)


def _takes(node: ast.AST, names: set[str | None], given: Sequence[ast.Assign]) -> bool:
    """Whether a statement deletes one of some names, or gives it to something else."""
    if not isinstance(node, (ast.Delete, ast.Assign)) or node in given:
        return False
    return not names.isdisjoint(dotted(each) for each in node.targets)


def _lets_go(script: Script, given: ast.Assign, centre: ReachedCall) -> bool:
    """Whether ``del outputs`` comes before backward, and no other name has a part of them."""
    name = dotted(given.targets[0])
    last = centre.node.lineno
    if not any(
        isinstance(node, ast.Delete)
        and given.lineno < node.lineno <= last
        and name in map(dotted, node.targets)
        for node in script.tree.nodes
    ):
        return False
    return not any(
        given.lineno < node.lineno <= last and _is_part(node.value, name)
        for node in script.tree.assignments
    )


def _is_part(value: ast.expr, name: str | None) -> bool:
    """``outputs.logits``, ``outputs.logits[:, :-1]``, ``outputs[0]``."""
    while isinstance(value, (ast.Attribute, ast.Subscript)):
        value = value.value
        if dotted(value) == name:
            return True
    return False


def behind_load(script: Script, models: tuple[Call, ...]) -> InsertionPoint | None:
    """The place behind the statement that loads the one model, where a line can be added."""
    if len(models) != 1:
        return None
    loader = script.node_of[id(models[0])]
    for node in script.tree.assignments:
        name = dotted(node.targets[0]) if len(node.targets) == 1 else None
        if name is not None and _chain_of(node.value) is loader:
            span = script.places.span(node)
            lines = script.places.source.whole_lines(span)
            if lines is None:
                return None
            start = script.places.source.text.rfind("\n", 0, span.start) + 1
            return InsertionPoint(name, span.end, script.places.source.text[start : span.start])
    return None


def _chain_of(value: ast.expr) -> ast.expr:
    """What a chain of methods begins with that give the model back: ``.to(device)``."""
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("to", "cuda", "half", "bfloat16", "float", "train")
    ):
        value = value.func.value
    return value


def _root(value: ast.expr) -> str:
    """The name that a chain of attributes and calls begins with: ``self.model`` of ``self.model.half``."""
    while isinstance(value, ast.Call):
        value = value.func.value if isinstance(value.func, ast.Attribute) else value.func
    return dotted(value) or ""
