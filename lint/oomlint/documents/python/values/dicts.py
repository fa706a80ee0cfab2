"""Dictionaries of a script: written out, unpacked, chosen from, and given as keywords."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Mapping, Node, Scalar
from oomlint.documents.python.branches import Tests, items_of_update, kept_items, values_stored
from oomlint.documents.python.nodes import (
    PythonEntry,
    PythonMapping,
    PythonScalar,
    filed_of,
    is_of_options,
    option_of,
)
from oomlint.documents.python.plain_values import plain_value
from oomlint.documents.python.scopes import Scope, dotted
from oomlint.documents.python.values.limits import CHOICE, DEEPEST, GIVEN, SHARED
from oomlint.documents.python.values.parameters import parameters_of
from oomlint.documents.python.values.seen_nodes import locked_by, mapping_of, unknown_at
from oomlint.documents.python.walking import walk
from oomlint.documents.text import Span

if TYPE_CHECKING:
    from oomlint.documents.python.values.evaluator import Evaluator

_CHOSEN: Final = "it is given only where it is taken"
_BY_OPTION: Final = "an option of the command line decides on it"
# A table of models or of settings; what has more is data.
_MOST_WORDS: Final = 24


def dict_of(home: Evaluator, expression: ast.Dict, scope: Scope, depth: int) -> PythonMapping:
    """``{"batch": 4, **others}``: the entries of a dictionary that is written out."""
    span = home.places.span(expression)
    entries: list[PythonEntry] = []
    open_ended = False
    for key, value in zip(expression.keys, expression.values, strict=True):
        if key is None:
            unpacked = unpacked_of(home, value, scope, depth + 1)
            entries += unpacked.entries.values()  # type: ignore[arg-type]
            open_ended = open_ended or unpacked.open_ended
            continue
        name = home.value(key, scope, depth + 1)
        if not isinstance(name, str):
            open_ended = True
            continue
        key_span, value_span = home.places.span(key), home.places.span(value)
        node = home.node(value, scope, depth + 1)
        place = Span(key_span.start, value_span.end)
        entries.append(PythonEntry(name, key_span, node, place, owner=span, owner_kind="dict"))
    return mapping_of(entries, span, "dict", open_ended)


def unpacked_of(home: Evaluator, expression: ast.expr, scope: Scope, depth: int) -> Mapping:
    """What ``**expression`` brings."""
    node = _before_stores(home, expression, scope, depth) or home.node(expression, scope, depth + 1)
    if not isinstance(node, Mapping):
        return PythonMapping(home.places.span(expression), {}, open_ended=True)
    if node.locked is None:
        return node
    entries = [
        replace(entry, value=locked_by(entry.value, node.locked), locked=node.locked)
        for entry in node.entries.values()
        if isinstance(entry, PythonEntry)
    ]
    made = mapping_of(entries, node.span, "dict", node.open_ended)
    return replace(made, filed=filed_of(node))


def chosen_of(home: Evaluator, expression: ast.DictComp, scope: Scope, depth: int) -> Node:
    """``{k: v for k, v in settings.items() if k in known}``: what of a dictionary the callee takes, and so all
    that counts there; without those that are ``None`` of ``if v is not None``."""
    span = home.places.span(expression)
    kept = kept_items(expression)
    if kept is None:
        return unknown_at(span)
    key, value, tests = kept.key, kept.value, kept.tests
    whole = unpacked_of(home, kept.whole, scope, depth + 1)
    if not isinstance(whole, PythonMapping):
        return unknown_at(span)
    if any(not _asks_if_taken(test, key) and not _asks_if_set(test, value) for test in tests):
        return unknown_at(span)
    drops = any(_asks_if_set(test, value) for test in tests)
    chosen = any(_asks_if_taken(test, key) for test in tests)
    entries = {
        name: replace(
            entry,
            locked=_CHOSEN,
            value=locked_by(entry.value, _CHOSEN),
            if_known=chosen or entry.if_known,
        )
        for name, entry in whole.entries.items()
        if isinstance(entry, PythonEntry)
        and not (drops and isinstance(entry.value, Scalar) and entry.value.value is None)
    }
    return replace(whole, entries=entries, filed=None, locked=_CHOSEN)


def keywords_of(home: Evaluator, expression: ast.Name, owner: Scope, depth: int) -> Node:
    """What the one call of a function of the file gives its ``**kwargs``."""
    span = home.places.span(expression)
    function = owner.node
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return unknown_at(span)
    name = function.name
    calls = [each for each in home.tree.calls_to(name) if isinstance(each.func, ast.Name)]
    is_plain = home.scopes.functions.get(name) is function and not function.decorator_list
    is_alone = len(calls) == 1 and home.scopes.reads[name] <= 1
    if not is_plain or not is_alone or expression.id in home.scopes.changed:
        return unknown_at(span)
    given = home.arguments(calls[0], home.tree.scope_of[id(calls[0])])
    taken = parameters_of(function)
    entries = {
        key: replace(entry, locked=GIVEN, value=locked_by(entry.value, GIVEN))
        for key, entry in given.entries.items()
        if not (key.isdigit() or key in taken) and isinstance(entry, PythonEntry)
    }
    return replace(given, entries=entries, locked=GIVEN)


def passed_name(home: Evaluator, name: str, scope: Scope) -> tuple[str, Scope] | None:
    """The name that all calls of a function give its parameter, and where they have it."""
    found = scope.find(name)
    if found is None or len(found[1]) != 1 or found[1][0].kind != "parameter":
        return None
    given = home.given.get((id(found[0].node), name), [])
    names = {each.id if isinstance(each, ast.Name) else "" for each, _ in given}
    owners = {id(held[0]) for each in names for _, at in given if (held := at.find(each))}
    return (names.pop(), given[0][1]) if len(names) == len(owners) == 1 else None


class HeldDict(Struct, frozen=True, eq=False):
    """A dict of the script's. ``name`` is what it is called where it is asked for; none where a function is given it, or it
    stands in another. ``names`` are all that it goes by, itself or what it stands in."""

    dict: Mapping
    name: str
    names: frozenset[str]

    def under(self, key: str, home: Evaluator) -> Node | None:
        """What stands under a key, unless something in that is changed."""
        entry = self.dict.entries.get(key)
        if entry is None:
            return None
        is_changed = any(f"{name}[]" in home.scopes.changed for name in self.names)
        return None if isinstance(entry.value, Mapping) and is_changed else entry.value


def held_dict(home: Evaluator, holder: ast.expr, scope: Scope, depth: int) -> HeldDict | None:
    """The dict that an expression holds, if nothing changes it: a name, what a function is given, or an item of such."""
    if depth > DEEPEST:
        return None
    if isinstance(holder, ast.Subscript):
        key = home.value(holder.slice, scope, depth + 1)
        around = held_dict(home, holder.value, scope, depth + 1) if isinstance(key, str) else None
        inner = None if around is None else around.under(key, home)
        if around is None or not isinstance(inner, Mapping):
            return None
        return HeldDict(inner, "", around.names)
    name = dotted(holder)
    found = scope.find(name) if name is not None else None
    if name is None or found is None or len(found[1]) != 1 or name in home.scopes.changed:
        return None
    owner, (binding,) = found
    passed = passed_name(home, name, scope)
    if passed is not None:
        given = ast.copy_location(ast.Name(passed[0], ast.Load()), holder)
        held = held_dict(home, given, passed[1], depth + 1)
        return None if held is None else HeldDict(held.dict, "", held.names | {name})
    if binding.kind != "value" or binding.value is None:
        return None
    node = home.node(binding.value, owner, depth + 1)
    return HeldDict(node, name, frozenset({name})) if isinstance(node, Mapping) else None


def looked_up(
    home: Evaluator,
    holder: ast.expr,
    asked: Node,
    otherwise: Node,
    place: tuple[Span, Scope, int],
) -> Node | None:
    """``MODELS[args.size]``: what stands under each word that the option may be, of a dict that nothing changes; ``None``
    of a key that is no option, and of another dict."""
    option = option_of(asked)
    span, scope, depth = place
    if not option or is_unsettled_choice(asked):
        return None
    held = held_dict(home, holder, scope, depth)
    if held is None or not isinstance(held.dict, PythonMapping) or held.dict.open_ended:
        return None
    found: Node = otherwise
    values = {key: held.under(key, home) for key in held.dict.entries}
    if not values or len(values) > _MOST_WORDS or None in values.values():
        return None
    unset = plain_value(asked)
    for key, value in reversed(values.items()):
        assert value is not None
        found = PythonScalar(
            span,
            plain_value(values.get(unset) or otherwise) if isinstance(unset, str) else UNKNOWN,
            locked=_BY_OPTION,
            option=option,
            either=(locked_by(value, _BY_OPTION), found),
            compared=("==", key),
            unset=unset,
        )
    return found


def is_unsettled_choice(node: Node) -> bool:
    return isinstance(node, PythonScalar) and (node.either is not None or node.computed is not None)


def got(home: Evaluator, call: ast.Call, scope: Scope, depth: int) -> Node | None:
    """``settings.get("batch", 4)`` of a dict that nothing changes; ``None`` of another call."""
    match call:
        case ast.Call(
            func=ast.Attribute(value=holder, attr="get"), args=[asked, *otherwise], keywords=[]
        ) if len(otherwise) < 2:
            pass
        case _:
            return None
    span = home.places.span(call)
    absent = home.node(otherwise[0], scope, depth + 1) if otherwise else Scalar(span, None)
    chosen = looked_up(
        home, holder, home.node(asked, scope, depth + 1), absent, (span, scope, depth)
    )
    if chosen is not None:
        return chosen
    key = home.value(asked, scope, depth + 1)
    held = held_dict(home, holder, scope, depth) if isinstance(key, str) else None
    if held is None:
        return None
    found = held.under(key, home)
    if found is not None:
        return locked_by(found, SHARED.format(held.name) if held.name else GIVEN)
    if key in held.dict.entries or not isinstance(held.dict, PythonMapping) or held.dict.open_ended:
        return None
    return absent


def _before_stores(home: Evaluator, expression: ast.expr, scope: Scope, depth: int) -> Node | None:
    """A dictionary of which some keys are assigned to later: once, each is what a test leaves it; else it is unknown, and
    the others stay what they are: ``kwargs["beta"] = args.beta``."""
    found = scope.find(expression.id) if isinstance(expression, ast.Name) else None
    if found is None or not isinstance(expression, ast.Name):
        return None
    keys = home.scopes.stored_keys.get(expression.id, set())
    owner, bindings = found
    value = bindings[0].value if len(bindings) == 1 and bindings[0].kind == "value" else None
    if not keys or value is None or expression.id in home.scopes.rewritten:
        return None
    made = home.node(value, owner, depth + 1)
    if not isinstance(made, PythonMapping):
        return None
    span = home.places.span(expression)
    asked = {key for test, _ in home.tree.branches.values() for key in _asked_for(test.test)}
    stores = values_stored(owner.node, expression.id)
    stored: list[PythonEntry] = []
    for key in sorted(keys):
        node = None
        if key not in made.entries:
            under = _StoredKey(expression, key)
            node = _stored_once(home, under, stores.get(key, ()), owner, depth)
        is_open = isinstance(node, Scalar) and node.value is UNKNOWN and not is_of_options(node)
        node = unknown_at(span) if node is None or is_open else node
        stored.append(PythonEntry(key, span, node, span, if_known=key in asked))
    kept = [entry for key, entry in made.entries.items() if key not in keys]
    whole = mapping_of([*kept, *stored], made.span, made.kind, made.open_ended)  # type: ignore[list-item]
    return locked_by(whole, SHARED.format(expression.id))


class _StoredKey(Struct, frozen=True, eq=False):
    """A key of a dictionary, and where somebody asks for the dictionary."""

    asked: ast.Name
    key: str

    def changes(self, home: Evaluator) -> int:
        """How many statements of the file change what is there, whatever dictionary of this name it is."""
        name, tree = self.asked.id, home.tree
        stores = sum(
            isinstance(node.ctx, (ast.Store, ast.Del))
            and isinstance(node.slice, ast.Constant)
            and node.slice.value == self.key
            and dotted(node.value) == name
            for node in tree.of_kind(ast.Subscript)
        )
        calls = [
            call
            for call in tree.calls_to("update", "pop", "setdefault")
            if isinstance(call.func, ast.Attribute) and dotted(call.func.value) == name
        ]
        updates = sum(key == self.key for call in calls for key, _ in items_of_update(call))
        others = sum(
            isinstance(call.func, ast.Attribute) and call.func.attr != "update" for call in calls
        )
        return stores + updates + others


def _stored_once(
    home: Evaluator,
    under: _StoredKey,
    stores: Sequence[tuple[ast.expr, Tests]],
    scope: Scope,
    depth: int,
) -> Node | None:
    """What is under a key to which one statement assigns, above whoever asks and behind one test or none: without it
    nothing is there, which is ``None`` to a call that is given it. ``None`` where it cannot be told."""
    if len(stores) != 1 or under.changes(home) != 1:
        return None
    ((value, tests),) = stores
    if value.lineno > under.asked.lineno or len(tests) > 1:
        return None
    if not tests:
        return home.node(value, scope, depth + 1)
    ((test, holds),) = tests
    absent = ast.copy_location(ast.Constant(None), value)
    sides = (value, absent) if holds else (absent, value)
    choice = ast.copy_location(ast.IfExp(test, *sides), value)
    return home.node(choice, scope, depth + CHOICE)


def _asked_for(test: ast.expr) -> Iterator[str]:
    """The names of which a test asks whether something has them: ``"beta" in inspect.signature(GRPOConfig).parameters``."""
    for node in walk(test):
        match node:
            case ast.Compare(left=ast.Constant(value=str(key)), ops=[ast.In()]):
                yield key
            case ast.Call(func=ast.Name(id="hasattr"), args=[_, ast.Constant(value=str(key))]):
                yield key


def _asks_if_taken(test: ast.expr, key: str) -> bool:
    """``key in inspect.signature(Config).parameters``, or in another collection of names."""
    match test:
        case ast.Compare(left=ast.Name(id=asked), ops=[ast.In()]):
            return asked == key
        case ast.Call(func=ast.Name(id="hasattr"), args=[_, ast.Name(id=asked)]):
            return asked == key
    return False


def _asks_if_set(test: ast.expr, value: str) -> bool:
    match test:
        case ast.Compare(
            left=ast.Name(id=asked), ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]
        ):
            return asked == value
    return False
