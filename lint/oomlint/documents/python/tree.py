"""A script's syntax tree, gone through once: its nodes by kind, its scopes, what each statement calls.

Readers look for what they want in the lists of a :class:`Tree`; none walks the tree for itself.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias, TypeVar, cast

from msgspec import Struct, field

from oomlint.documents.python.branches import Tests, tests_of_values
from oomlint.documents.python.scopes import (
    OTHER,
    Binding,
    FunctionNode,
    Scope,
    Scopes,
    call_name,
    dotted,
)
from oomlint.documents.python.walking import WITHOUT_NODES, children, walk

# Methods that change a list or dict in place: after one of these the literal tells nothing.
_CHANGES_IN_PLACE = frozenset(
    {
        "append", "extend", "insert", "remove", "clear", "pop", "popitem", "sort", "reverse",
        "update", "setdefault", "add", "discard",
    }
)  # fmt: skip


_Node = TypeVar("_Node", bound=ast.AST)
Assignment: TypeAlias = ast.Assign | ast.AnnAssign | ast.AugAssign
Stored: TypeAlias = dict[str, list[tuple[Assignment, FunctionNode | None]]]


class Tree(Struct, eq=False, dict=True):
    """A file as parsed. The lists are in the order of :func:`.walking.walk`: what stands less deep first."""

    root: ast.Module
    scopes: Scopes
    calls: dict[str, list[ast.Call]] = field(default_factory=dict)
    """By the last name of what they call: see :func:`call_name`."""
    calls_of: dict[int, list[ast.Call]] = field(default_factory=dict)
    """By ``id`` of a statement: the calls that it makes itself, in no block of its own."""
    scope_of: dict[int, Scope] = field(default_factory=dict)
    """By ``id`` of a call: the scope in which it stands."""
    assignments: list[ast.Assign] = field(default_factory=list)
    functions: list[FunctionNode] = field(default_factory=list)
    classes: list[ast.ClassDef] = field(default_factory=list)
    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)
    tries: list[ast.Try] = field(default_factory=list)
    branches: dict[int, tuple[ast.If, Scope]] = field(default_factory=dict)
    """By the line of an ``if``: the statement and the scope in which its test stands."""
    stored: dict[int, Stored] = field(default_factory=dict)
    """By ``id`` of a class: see :meth:`stores_of`."""
    tests: dict[int, Mapping[int, Tests]] = field(default_factory=dict)
    """By ``id`` of a module or function: see :meth:`tests_within`."""

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node, in the order of :func:`.walking.walk`: a file is gone through once, however many readers look for theirs."""
        return tuple(walk(self.root))

    @cached_property
    def _by_kind(self) -> dict[type[ast.AST], list[ast.AST]]:
        found: dict[type[ast.AST], list[ast.AST]] = {}
        for node in self.nodes:
            found.setdefault(node.__class__, []).append(node)
        return found

    def of_kind(self, kind: type[_Node], *others: type[_Node]) -> Sequence[_Node]:
        """The nodes of one kind in the order of :attr:`nodes`, those of other kinds behind them."""
        found: Any = self._by_kind.get(kind, ())
        for each in others:
            found = (*found, *self._by_kind.get(each, ()))
        return cast("Sequence[_Node]", found)

    @cached_property
    def tried(self) -> frozenset[int]:
        """By ``id`` what stands in a ``try``, or in what belongs to one."""
        return frozenset(id(node) for each in self.tries for node in walk(each))

    def stores_of(self, cls: ast.ClassDef) -> Stored:
        """What a class assigns to ``self.name``, by that name, with the method where it does so. A class is
        gone through once, however many of its attributes are asked for."""
        if id(cls) not in self.stored:
            self.stored[id(cls)] = _stored_in(cls)
        return self.stored[id(cls)]

    def tests_within(self, owner: ast.AST) -> Mapping[int, Tests]:
        """:func:`.branches.tests_of_values`, of which a module or function is asked once."""
        if id(owner) not in self.tests:
            self.tests[id(owner)] = tests_of_values(owner)
        return self.tests[id(owner)]

    def calls_to(self, *names: str) -> Iterator[ast.Call]:
        """Calls whose last name is one of these."""
        for name in names:
            yield from self.calls.get(name, ())


def read_tree(root: ast.Module) -> Tree:
    """Note every node that readers ask for, and bind every name."""
    module = Scope(root, None)
    tree = Tree(root, Scopes(module, {id(root): module}))
    # Nodes with the scope they stand in, and the statement that evaluates them where it stands.
    found: list[tuple[Any, Scope, ast.AST | None]] = [(node, module, None) for node in root.body]
    reads = tree.scopes.reads
    mapped: set[int] = set()
    for node, scope, statement in found:  # which grows as it is gone through
        kind = type(node)
        if kind is ast.Name:
            if type(node.ctx) is ast.Load:
                reads[node.id] += 1
            continue
        shape = _SHAPES.get(kind) or _shape_of(kind)
        inner = _opened(node, scope, tree) if shape.opens else scope
        if shape.visit is not None:
            shape.visit(node, scope, inner, tree)
        if shape.evaluates is not None:
            statement = node if shape.evaluates else None
        elif kind in _CALLS and statement is not None:
            statement = _calling(node, statement, tree, mapped)
        for name, is_inside in shape.children:
            value = getattr(node, name)
            place = inner if is_inside else scope
            if value.__class__ is list:
                found += [
                    (item, place, statement) for item in value if item.__class__ not in _BARREN
                ]
            elif value.__class__ not in _BARREN:
                found.append((value, place, statement))
    return tree


def _opened(node: ast.AST, scope: Scope, tree: Tree) -> Scope:
    """The scope that a node opens in another."""
    inner = tree.scopes.of_node[id(node)] = Scope(node, scope)
    return inner


def _calling(
    node: ast.Call | ast.Lambda, statement: ast.AST, tree: Tree, mapped: set[int]
) -> ast.AST | None:
    """The statement that evaluates what stands in a call or in a lambda, which mostly runs later: where it is not
    ``mapped`` over a data set, nor what the statement is about, none does. The call is noted as the statement's."""
    if isinstance(node, ast.Call):
        tree.calls_of.setdefault(id(statement), []).append(node)
        mapped.update(map(id, _mapped_by(node)))
        return statement
    return statement if id(node) in mapped or _is_head(node, statement) else None


def _stored_in(cls: ast.ClassDef) -> Stored:
    found: Stored = {}
    for statement in cls.body:
        method = (
            statement if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
        )
        for node in walk(statement):
            if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            holders = {name.partition(".") for name in map(dotted, targets) if name is not None}
            for holder, _, name in holders:
                if holder == "self" and name:
                    found.setdefault(name, []).append((node, method))
    return found


def _mapped_by(call: ast.Call) -> Iterator[ast.Lambda]:
    """The lambdas that a call runs over a data set: ``dataset.map(lambda row: ...)``."""
    if call.func.__class__ is ast.Attribute and call.func.attr == "map":
        given = (*call.args, *(keyword.value for keyword in call.keywords))
        yield from (each for each in given if isinstance(each, ast.Lambda))


def _is_head(node: ast.Lambda, statement: ast.AST) -> bool:
    """Whether a lambda is what a statement is about, as in ``tokenize = lambda row: ...``."""
    return any(child is node for child in children(statement))


# -- kinds of nodes -------------------------------------------------------------------------


class _Shape(Struct, frozen=True, eq=False):
    """What there is to do about nodes of one kind."""

    children: tuple[tuple[str, bool], ...]
    """Fields with nodes, and whether these stand in the scope that the node opens."""
    opens: bool
    visit: Callable[[Any, Scope, Scope, Tree], None] | None
    """Given the node, the scope it stands in, the one it opens or else the same, and the tree."""
    evaluates: bool | None
    """Of a statement: whether it evaluates the expressions in its head where it stands."""


# What no reader asks for, half of what there is: constants, text and nothing.
_BARREN = frozenset({ast.Constant, str, type(None)})
# Of imports the statement tells all, and what ``global`` names is text.
_PLAIN = WITHOUT_NODES | {"names"}
_CALLS = frozenset({ast.Call, ast.Lambda})
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_WITH_BODY = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
# Their heads are evaluated, if at all, elsewhere than in the line of what runs.
_APART = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.match_case,
)  # fmt: skip


def _shape_of(kind: type[ast.AST]) -> _Shape:
    # Decorators, defaults and bases are evaluated outside of what they belong to.
    shape = _Shape(
        tuple(
            (name, name == "body" or not issubclass(kind, _WITH_BODY))
            for name in getattr(kind, "_fields", ())
            if name not in _PLAIN
        ),
        issubclass(kind, (*_WITH_BODY, *_COMPREHENSIONS)),
        _VISITS.get(kind),
        kind not in _APART if issubclass(kind, (ast.stmt, *_APART)) else None,
    )
    _SHAPES[kind] = shape
    return shape


_SHAPES: dict[type[ast.AST], _Shape] = {}


# -- what each kind binds and uses ------------------------------------------------------------


def _assign(node: ast.Assign, scope: Scope, _: Scope, tree: Tree) -> None:
    tree.assignments.append(node)
    for target in node.targets:
        _bind_target(target, node.value, scope)


def _annotated(node: ast.AnnAssign, scope: Scope, _: Scope, tree: Tree) -> None:
    if isinstance(node.target, ast.Name) and node.value is not None:
        scope.bind(node.target.id, Binding("value", node.value, annotation=node.annotation))


def _named(node: ast.NamedExpr, scope: Scope, _: Scope, tree: Tree) -> None:
    scope.bind(node.target.id, OTHER)


def _augmented(node: ast.AugAssign, scope: Scope, _: Scope, tree: Tree) -> None:
    _bind_target(node.target, None, scope)
    name = dotted(node.target)
    if name is not None:
        tree.scopes.rewrite(name)


def _loop(
    node: ast.For | ast.AsyncFor | ast.comprehension, scope: Scope, _: Scope, tree: Tree
) -> None:
    _bind_target(node.target, None, scope)


def _with(node: ast.withitem, scope: Scope, _: Scope, tree: Tree) -> None:
    if node.optional_vars is not None:
        _bind_target(node.optional_vars, None, scope)


def _maybe_named(
    node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar, scope: Scope, _: Scope, tree: Tree
) -> None:
    if node.name:
        scope.bind(node.name, OTHER)


def _outer(node: ast.Global | ast.Nonlocal, scope: Scope, _: Scope, tree: Tree) -> None:
    # What a function assigns to an outer name happens whenever it is called.
    for name in node.names:
        tree.scopes.module.bind(name, OTHER)
        if scope.parent is not None:
            scope.parent.bind(name, OTHER)


def _delete(node: ast.Delete, scope: Scope, _: Scope, tree: Tree) -> None:
    for target in node.targets:
        _bind_target(target, None, scope)


def _import(node: ast.Import, scope: Scope, _: Scope, tree: Tree) -> None:
    tree.imports.append(node)
    for alias in node.names:
        root = alias.name.split(".")[0]
        tree.scopes.imports.update((alias.name, root))
        qualified = alias.name if alias.asname else root
        scope.bind(alias.asname or root, Binding("import", qualified=qualified))


def _import_from(node: ast.ImportFrom, scope: Scope, _: Scope, tree: Tree) -> None:
    tree.imports.append(node)
    module = "." * node.level + (node.module or "")
    tree.scopes.imports.update({module, module.split(".")[0]} - {""})
    holder = f"{module}." if node.module else module
    for alias in node.names:
        qualified = f"{holder}{alias.name}"
        tree.scopes.imports.add(qualified)
        scope.bind(alias.asname or alias.name, Binding("import", qualified=qualified))


def _function(node: FunctionNode, scope: Scope, inner: Scope, tree: Tree) -> None:
    tree.functions.append(node)
    scope.bind(node.name, Binding("definition", qualified=node.name))
    if scope is tree.scopes.module:
        _note_last(node, tree.scopes.functions)
    _bind_parameters(node.args, inner)


def _class(node: ast.ClassDef, scope: Scope, _: Scope, tree: Tree) -> None:
    tree.classes.append(node)
    scope.bind(node.name, Binding("definition", qualified=node.name))
    _note_last(node, tree.scopes.classes)


def _note_last(node: Any, definitions: dict[str, Any]) -> None:
    """Of several definitions of a name the last one in the file counts."""
    earlier = definitions.get(node.name)
    if earlier is None or earlier.lineno <= node.lineno:
        definitions[node.name] = node


def _lambda(node: ast.Lambda, _: Scope, inner: Scope, tree: Tree) -> None:
    _bind_parameters(node.args, inner)


def _try(node: ast.Try, scope: Scope, _: Scope, tree: Tree) -> None:
    tree.tries.append(node)


def _if(node: ast.If, scope: Scope, _: Scope, tree: Tree) -> None:
    tree.branches[node.lineno] = (node, scope)


def _attribute(node: ast.Attribute, scope: Scope, _: Scope, tree: Tree) -> None:
    name = dotted(node)
    if name is not None:
        if isinstance(node.ctx, ast.Load):
            tree.scopes.reads[name] += 1
        else:
            tree.scopes.rewrite(name)


def _subscript(node: ast.Subscript, scope: Scope, _: Scope, tree: Tree) -> None:
    name = dotted(node.value)
    if name is None:
        if not isinstance(node.ctx, ast.Load):
            _note_inner(node.value, tree)
        return
    if isinstance(node.ctx, ast.Store) and isinstance(node.slice, ast.Constant):
        tree.scopes.store(name, str(node.slice.value))
    elif not isinstance(node.ctx, ast.Load):
        tree.scopes.rewrite(name)
    elif isinstance(node.slice, ast.Constant):
        tree.scopes.reads[f"{name}[]"] += 1
        tree.scopes.reads[f"{name}[{node.slice.value!r}]"] += 1


def _note_inner(holder: ast.expr, tree: Tree) -> None:
    """Something that an object holds is changed: ``settings["training"]["batch"] = 4``."""
    while isinstance(holder, (ast.Subscript, ast.Attribute)):
        holder = holder.value
        name = dotted(holder)
        if name is not None:
            tree.scopes.rewrite(f"{name}[]")


def _call(node: ast.Call, scope: Scope, _: Scope, tree: Tree) -> None:
    last = call_name(node)
    tree.scope_of[id(node)] = scope
    tree.calls.setdefault(last, []).append(node)
    if isinstance(node.func, ast.Attribute):
        name = dotted(node.func.value) if last in _CHANGES_IN_PLACE else None
        keys = _keys_changed(node, last)
        if name is not None and keys is not None:
            for key in keys:
                tree.scopes.store(name, key)
        elif name is not None:
            tree.scopes.rewrite(name)
        elif last in _CHANGES_IN_PLACE:
            _note_inner(node.func.value, tree)
    elif last == "setattr" and node.args:
        name = dotted(node.args[0])
        if name is not None:
            tree.scopes.rewrite(f"{name}.*")


def _keys_changed(call: ast.Call, method: str) -> list[str] | None:
    """The keys of a dictionary that ``settings.update({"bf16": True})`` or ``settings.update(dict(bf16=True))`` sets, or
    ``settings.pop("bf16")`` takes out; ``None`` where they cannot be told."""
    if method in ("pop", "setdefault"):
        key = call.args[0] if call.args else None
        return [key.value] if isinstance(key, ast.Constant) and isinstance(key.value, str) else None
    if method != "update":
        return None
    keys: list[object] = [keyword.arg for keyword in call.keywords]
    for given in call.args:
        match given:
            case ast.Dict(keys=of_dict):
                keys += (key.value if isinstance(key, ast.Constant) else None for key in of_dict)
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=named):
                keys += (keyword.arg for keyword in named)
            case _:
                keys.append(None)
    found = [key for key in keys if isinstance(key, str)]
    return found if len(found) == len(keys) else None


def _bind_target(target: ast.expr, value: ast.expr | None, scope: Scope) -> None:
    if isinstance(target, ast.Name):
        scope.bind(target.id, OTHER if value is None else Binding("value", value))
    elif isinstance(target, ast.Starred):
        _bind_target(target.value, None, scope)
    elif isinstance(target, (ast.Tuple, ast.List)):
        _bind_parts(target.elts, value, scope)


def _bind_parts(targets: list[ast.expr], value: ast.expr | None, scope: Scope) -> None:
    """Names that are given what stands at their places in several values, or in what a call gives."""
    is_starred = any(isinstance(each, ast.Starred) for each in targets)
    parts: list[ast.expr | None] = [None] * len(targets)
    if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(targets):
        is_starred = is_starred or any(isinstance(each, ast.Starred) for each in value.elts)
        parts = parts if is_starred else list(value.elts)
    for place, (target, part) in enumerate(zip(targets, parts, strict=True)):
        if isinstance(value, ast.Call) and isinstance(target, ast.Name) and not is_starred:
            scope.bind(target.id, Binding("other", part_of=(value, place)))
        else:
            _bind_target(target, part, scope)


def _bind_parameters(arguments: ast.arguments, scope: Scope) -> None:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults += arguments.defaults
    for parameter, default in [
        *zip(positional, defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]:
        binding = Binding("parameter", default, annotation=parameter.annotation)
        scope.bind(parameter.arg, binding)
    if arguments.vararg is not None:
        scope.bind(arguments.vararg.arg, OTHER)
    if arguments.kwarg is not None:
        scope.bind(arguments.kwarg.arg, Binding("keywords"))


_Visit: TypeAlias = Callable[[Any, Scope, Scope, Tree], None]
_VISITS: dict[type[ast.AST], _Visit] = {
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.NamedExpr: _named,
    ast.AugAssign: _augmented,
    ast.For: _loop,
    ast.AsyncFor: _loop,
    ast.comprehension: _loop,
    ast.withitem: _with,
    ast.ExceptHandler: _maybe_named,
    ast.MatchAs: _maybe_named,
    ast.MatchStar: _maybe_named,
    ast.Global: _outer,
    ast.Nonlocal: _outer,
    ast.Delete: _delete,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
    ast.Lambda: _lambda,
    ast.Try: _try,
    ast.If: _if,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Call: _call,
}
