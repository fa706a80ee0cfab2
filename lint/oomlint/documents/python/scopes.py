"""Names of a Python file: where each is bound, how often it is read, what it stands for."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct, field

from oomlint.documents.python.walking import children

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Binding(Struct, frozen=True, eq=False):
    """One statement that gives a name its value. ``value`` is the expression if it is plain; ``keywords`` are
    what a function takes by names of the caller's choice; ``part_of`` is the call of whose several results it is one, and
    which."""

    kind: Literal["value", "import", "parameter", "keywords", "definition", "other"]
    value: ast.expr | None = None
    qualified: str = ""
    annotation: ast.expr | None = None
    part_of: tuple[ast.Call, int] | None = None


OTHER = Binding("other")


class Scope(Struct, eq=False):
    """A module, function, lambda, comprehension or class body."""

    node: ast.AST
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)

    def bind(self, name: str, binding: Binding) -> None:
        self.bindings.setdefault(name, []).append(binding)

    def find(self, name: str) -> tuple[Scope, list[Binding]] | None:
        """The scope that binds ``name`` as seen from here, by Python's rules."""
        scope: Scope | None = self
        while scope is not None:
            # The names of a class body are not visible in its methods.
            if name in scope.bindings and (
                scope is self or not isinstance(scope.node, ast.ClassDef)
            ):
                return scope, scope.bindings[name]
            scope = scope.parent
        return None

    def imported(self, name: str) -> str | None:
        """What a dotted name is at home, if its first part is imported once and nothing else."""
        root, _, rest = name.partition(".")
        found = self.find(root)
        if found is None or len(found[1]) != 1 or found[1][0].kind != "import":
            return None
        qualified = found[1][0].qualified
        return f"{qualified}.{rest}" if rest else qualified

    def resolved(self, name: str) -> str:
        """``name`` with its import resolved: ``TA`` of ``import TrainingArguments as TA``."""
        return self.imported(name) or name


class Scopes(Struct, eq=False):
    """All scopes of a file, and how its names are used."""

    module: Scope
    of_node: dict[int, Scope]
    """By ``id`` of the function, class, lambda or comprehension that opens the scope."""
    reads: Counter[str] = field(default_factory=Counter)
    """How often a name, or ``name.attribute``, is read anywhere in the file."""
    changed: set[str] = field(default_factory=set)
    """Names whose object is changed in place, and ``name.attribute`` that is assigned to."""
    stored_keys: dict[str, set[str]] = field(default_factory=dict)
    """The keys of a name's object that are assigned to by their names."""
    rewritten: set[str] = field(default_factory=set)
    """Those of ``changed`` of which the ``stored_keys`` do not tell all."""
    imports: set[str] = field(default_factory=set)
    functions: dict[str, FunctionNode] = field(default_factory=dict)
    """Functions defined at module level, by name."""
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)

    def rewrite(self, name: str) -> None:
        self.changed.add(name)
        self.rewritten.add(name)

    def store(self, name: str, key: str) -> None:
        self.changed.add(name)
        self.stored_keys.setdefault(name, set()).add(key)


def dotted(node: ast.AST) -> str | None:
    """``a.b.c`` of a chain of attributes, or ``None``."""
    name = ""
    while isinstance(node, ast.Attribute):
        name = f".{node.attr}{name}"
        node = node.value
    return f"{node.id}{name}" if isinstance(node, ast.Name) else None


def call_name(call: ast.Call) -> str:
    """The callee's last name: ``from_pretrained`` of ``A.from_pretrained(...)``."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def settled(test: ast.expr, scope: Scope, called: FunctionNode | None = None) -> bool | None:
    """What a condition comes to whatever the file is started with: ``False`` of ``if USE_LORA or USE_QLORA:``
    where both are ``False`` and nothing else binds them. Another file calls a function that is ``called``, and may
    give it other values than its defaults."""
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            holds = settled(operand, scope, called)
            return None if holds is None else not holds
        case ast.BoolOp(op=op, values=parts):
            sides = [settled(part, scope, called) for part in parts]
            deciding = isinstance(op, ast.Or)
            if deciding in sides:
                return deciding
            return None if None in sides else not deciding
        case ast.Name(id=name):
            found = scope.find(name)
            is_of_called = found is not None and called is not None and found[0].node is called
            if found is not None and is_of_called and found[1][0].kind == "parameter":
                return None
            bound = found[1][0].value if found is not None and len(found[1]) == 1 else None
            held = bound.value if isinstance(bound, ast.Constant) else None
            return held if isinstance(held, bool) else None
    return None


def enclosed(node: ast.AST) -> Iterator[ast.AST]:
    """``node`` and what it contains, in source order, but no function's or class's inside."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        if current is not node and isinstance(
            current, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
        ):
            continue
        stack += children(current)[::-1]
