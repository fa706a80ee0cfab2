"""What a script changes in the objects that it loads from config files.

``cfg["model"]["name"] = name`` and ``cfg.update(more)``: of such a place the file says nothing any
more. What cannot be told which key it changes, changes all.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping as MappingABC
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from oomlint.documents.base import UNKNOWN, Mapping
from oomlint.documents.python.configs.paths import At, ConfigPaths, option_of
from oomlint.documents.python.nodes import Filed
from oomlint.documents.python.parsers import option_names
from oomlint.documents.python.scopes import FunctionNode, dotted, enclosed
from oomlint.documents.python.walking import children, walk

if TYPE_CHECKING:
    from oomlint.documents.python.values import Evaluator

# Methods that change an object by more than one known key.
_CHANGES: Final = frozenset({"update", "clear", "popitem", "merge_with", "merge_from_file"})
# omegaconf 2.3, omegaconf.py: ``OmegaConf.update(cfg, "model.name", value)`` changes its first argument.
_CHANGES_FIRST: Final = "omegaconf.OmegaConf.update"
_CONVERSIONS: Final = frozenset({"int", "float", "str", "bool", "list", "tuple", "dict"})
POPPED: Final = "\0popped"
"""Below a key that ``pop`` takes out of an object: it is read there, and nowhere else."""


class Coded(Struct, frozen=True, eq=False):
    """What the script says itself where a file does not: ``cfg.get("rank", 16)``."""

    expression: ast.expr
    at: At


Held: TypeAlias = "Filed | Coded | None"
_Place: TypeAlias = tuple[str, tuple[str, ...]]


class ConfigChanges(ConfigPaths, ABC):
    """The places that a script changes in its config files, as one command starts it."""

    def __init__(self, options: MappingABC[str, str | None]) -> None:
        super().__init__(options)
        self._changed: dict[int, frozenset[_Place]] = {}
        self.in_loaders: set[_Place] = set()
        """What functions change before they return what they load."""
        self.known: dict[tuple[int, int], Held] = {}
        """What was found of expressions."""
        self.known_as_loaded: dict[tuple[int, int], Held] = {}
        """The same while it is being seen what is changed."""
        self.suspended = False
        """Whether it is being seen what is changed: all objects count as they are loaded."""

    @abstractmethod
    def held(self, expression: ast.expr, at: At) -> Held:
        """What of a config file an expression is."""

    @abstractmethod
    def forget_values(self) -> None:
        """Something more is known, which values may depend on."""

    def note_changes(self, functions: Iterable[tuple[FunctionNode, Evaluator]]) -> None:
        """See what functions of other files change in the objects that they are given."""
        for function, home in functions:
            self.in_loaders |= self.changes_in(
                function, At(home.scopes.of_node[id(function)], home)
            )
        self.forget_values()
        self.known.clear()
        self.known_as_loaded.clear()
        self._changed.clear()

    def is_changed(self, holder: Filed, key: str, home: Evaluator, *, popped: bool = False) -> bool:
        """Whether the script changes what stands under a key of a section, or the whole of it; ``popped``: what is
        taken out by ``pop`` is still what stands there."""
        if self.suspended:
            return False
        place = (*holder.path, key)
        changed = self.changes(home) | self.in_loaders
        lengths = range(1, len(place) + 1)
        return any(
            any((each, place[:length]) in changed for length in lengths)
            or ((each, (*place, POPPED)) in changed and not popped)
            for each in dict.fromkeys((holder.file.path, holder.object))
        )

    def changes(self, home: Evaluator) -> frozenset[_Place]:
        """The places of its config files that a script changes in the objects that it loads."""
        if id(home) not in self._changed:
            self._changed[id(home)] = frozenset()
            root = home.scopes.module
            self._changed[id(home)] = frozenset(self.changes_in(root.node, At(root, home)))
        return self._changed[id(home)]

    def changes_in(self, node: ast.AST, at: At) -> set[_Place]:
        """What the statements in a node change, by the files that are loaded so far alone."""
        before, self.suspended = self.suspended, True
        try:
            return set(self._changes_of(getattr(node, "body", []), at))
        finally:
            self.suspended = before

    def _changes_of(self, body: list[ast.stmt], at: At) -> Iterator[_Place]:
        for statement in body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                if at.frame is None:
                    inner = at.home.scopes.of_node[id(statement)]
                    yield from self._changes_of(statement.body, At(inner, at.home))
                continue
            for target, value in _targets(statement):
                yield from self._changed_by(target, value, at)
            blocks = [
                part
                for name in ("body", "orelse", "finalbody")
                if isinstance(part := getattr(statement, name, None), list)
            ]
            blocks += [handler.body for handler in getattr(statement, "handlers", ())]
            for block in blocks:
                if isinstance(statement, ast.If):
                    holds = self._never_asked(statement.test, at)
                    if holds is not None and (block is statement.body) is not holds:
                        continue
                yield from self._changes_of(block, at)

    def passes_by(self, expression: ast.expr, at: At) -> bool:
        """Whether an expression stands in a block that this command does not enter: its test asks for an option that
        nobody says."""
        for node in walk(at.scope.node):
            if not isinstance(node, ast.If):
                continue
            holds = self._never_asked(node.test, at)
            if holds is None:
                continue
            passed = node.orelse if holds else node.body
            if any(inner is expression for each in passed for inner in walk(each)):
                return True
        return False

    def _never_asked(self, test: ast.expr, at: At) -> bool | None:
        """False of ``if args.rank is not None`` and ``if args.rank`` where nobody says so: the option
        has no default, and the command does not name it."""
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            against = test.comparators[0]
            if not isinstance(against, ast.Constant) or against.value is not None:
                return None
            if not isinstance(test.ops[0], ast.IsNot):
                return None
            test = test.left
        if isinstance(test, ast.Call):
            test = _attribute_asked(test) or test
        if not isinstance(test, ast.Attribute):
            return None
        option = option_of(test, at.scope, at.home.tree)
        if option is None or option in self.options:
            return None
        default = at.home.options.get(option)
        off = default is None or (isinstance(default, ast.Constant) and not default.value)
        return False if off and option in option_names(at.home.tree) else None

    def _changed_by(self, target: ast.expr, value: ast.expr | None, at: At) -> Iterator[_Place]:
        if isinstance(target, (ast.Tuple, ast.List)):
            for element in target.elts:
                yield from self._changed_by(element, None, at)
            return
        if isinstance(target, ast.Call):
            yield from self._changed_by_method(target, at)
            return
        if not isinstance(target, (ast.Subscript, ast.Attribute)):
            return
        holder = self.held(target.value, at)
        if not isinstance(holder, Filed):
            return
        if isinstance(target, ast.Attribute):
            key: Any = target.attr
        else:
            key = at.home.value(target.slice, at.scope)
        if not isinstance(key, str):
            yield holder.object, holder.path
            return
        place = (*holder.path, key)
        if value is not None and self._converts(value, place, at):
            return
        yield holder.object, place

    def _converts(self, value: ast.expr, place: tuple[str, ...], at: At) -> bool:
        """``cfg["lr"] = float(cfg["lr"])``: the same value, in another type."""
        if not isinstance(value, ast.Call) or dotted(value.func) not in _CONVERSIONS:
            return False
        found = self.held(value.args[0], at) if value.args else None
        return isinstance(found, Filed) and found.path == place

    def _changed_by_method(self, call: ast.Call, at: At) -> Iterator[_Place]:
        if not isinstance(call.func, ast.Attribute):
            holder = self.held(call.args[0], at) if call.args else None
            if dotted(call.func) == "setattr" and isinstance(holder, Filed):
                key = at.home.value(call.args[1], at.scope) if len(call.args) > 1 else UNKNOWN
                end = (key,) if isinstance(key, str) else ()
                yield holder.object, (*holder.path, *end)
            return
        changes_first = at.scope.resolved(dotted(call.func) or "") == _CHANGES_FIRST and call.args
        changed = call.args[0] if changes_first else call.func.value
        holder = self.held(changed, at)
        if not isinstance(holder, Filed):
            return
        if call.func.attr in _CHANGES:
            yield holder.object, holder.path
        elif call.func.attr in ("pop", "setdefault") and call.args:
            key = at.home.value(call.args[0], at.scope)
            if not isinstance(key, str):
                yield holder.object, holder.path
            elif call.func.attr == "pop":
                yield holder.object, (*holder.path, key, POPPED)
            elif not has(holder, key):
                yield holder.object, (*holder.path, key)


def _attribute_asked(call: ast.Call) -> ast.Attribute | None:
    """``args.preset`` of ``getattr(args, "preset", None)``."""
    match call:
        case ast.Call(
            func=ast.Name(id="getattr"), args=[holder, ast.Constant(value=str(name)), *rest]
        ):
            is_nothing = not rest or (isinstance(rest[0], ast.Constant) and not rest[0].value)
            return ast.Attribute(holder, name, ast.Load()) if is_nothing else None
    return None


def has(holder: Filed, key: str) -> bool:
    """Whether a section of a config file has a key, or one that it is laid over."""
    held: Filed | None = holder
    while held is not None:
        if isinstance(held.node, Mapping) and key in held.node.entries:
            return True
        held = held.under
    return False


def _targets(statement: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """What a statement assigns to, deletes or calls, with the value that an assignment gives it."""
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield target, statement.value
    elif isinstance(statement, ast.AugAssign):
        yield statement.target, None
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        yield statement.target, statement.value
    elif isinstance(statement, ast.Delete):
        for target in statement.targets:
            yield target, None
    heads: list[ast.AST] = [child for child in children(statement) if isinstance(child, ast.expr)]
    for head in heads:
        for node in enclosed(head):
            if isinstance(node, ast.Call):
                yield node, None
