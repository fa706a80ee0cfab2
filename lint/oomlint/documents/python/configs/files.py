"""Values that a script takes from config files which it loads itself.

``cfg = yaml.safe_load(open(args.config))`` and ``cfg["model"]["name"]``: the file is followed by a
literal path, by the default of the option that names it, or by what the command that starts the
script says, and the value is what stands in the file. An object that the script changes is followed
but for what it changes. Nothing is run, and what cannot be followed stays unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping as MappingABC
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Mapping, Node, Scalar
from oomlint.documents.python.branches import kept_items
from oomlint.documents.python.configs.as_nodes import as_node
from oomlint.documents.python.configs.changes import Held
from oomlint.documents.python.configs.composition import hydra_main, task_parameter
from oomlint.documents.python.configs.defaults import by_default
from oomlint.documents.python.configs.holders import keeps_items
from oomlint.documents.python.configs.hydra import HydraConfigs
from oomlint.documents.python.configs.items import ConfigItems
from oomlint.documents.python.configs.layers import (
    KEEPS,
    is_from_line,
    keeps_itself,
    may_say_keys,
    merges,
)
from oomlint.documents.python.configs.loaded import LOADS, LoadedFiles
from oomlint.documents.python.configs.paths import At, option_of
from oomlint.documents.python.configs.records import part, recorded
from oomlint.documents.python.configs.syntax import entered, is_nothing, returns, unpacked_alone
from oomlint.documents.python.modules import FindSource
from oomlint.documents.python.nodes import ConfigFile, Filed
from oomlint.documents.python.scopes import Scope, dotted
from oomlint.documents.text import Span

if TYPE_CHECKING:
    pass


class ConfigFiles(ConfigItems):
    """The config files of one script, as one command starts it; ``find`` gives the text of a file by
    its path."""

    def __init__(
        self, find: FindSource, options: MappingABC[str, str | None] | None = None
    ) -> None:
        super().__init__(options or {})
        self.loaded = LoadedFiles(find)
        self._hydra = HydraConfigs(self, find)
        self.count = 0
        """How often something was taken from a file: whoever sees it grow depends on one."""
        self._values: dict[tuple[int, int, int, bool], tuple[ast.expr, Node, tuple[int, ...]]] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        """Display paths of the files that were loaded."""
        return tuple(dict.fromkeys((*self.loaded.paths, *self._hydra.paths)))

    def whole_of(self, file: ConfigFile) -> Filed:
        return self._hydra.whole_of(file) or Filed(file, file.root)

    # -- what was asked before ----------------------------------------------------------

    def worked_out(
        self, expression: ast.expr, scope: Scope, depth: int, ask: Callable[[], Node]
    ) -> Node:
        """What an expression is, worked out once for as long as the same is known: a test that asks for names which hang
        on tests themselves would be asked again for every way that leads there."""
        key = (id(expression), id(scope), depth, self.suspended)
        known = self._values.get(key)
        if known is None:
            before = self.count, self.left_open, self.told
            node = ask()
            after = self.count, self.left_open, self.told
            grown = tuple(now - was for now, was in zip(after, before, strict=True))
            # With the expression, so that its id stays its own.
            self._values[key] = expression, node, grown
            return node
        _, node, (count, left_open, told) = known
        self.count += count
        self.left_open += left_open
        self.told += told
        return node

    def forget_values(self) -> None:
        """Something more is known, which values may depend on."""
        self._values.clear()

    @contextmanager
    def in_itself(self) -> Iterator[None]:
        """While something is worked out that counts as nothing wherever it refers to itself: what else is found then
        holds only then."""
        before, self._values = self._values, {}
        try:
            yield
        finally:
            self._values = before

    # -- what scripts ask ---------------------------------------------------------------

    def node(self, expression: ast.expr, at: At, span: Span) -> Node | None:
        """The value that an expression takes from a config file, or from what the script says in its
        place; ``None`` where it takes none, or it cannot be told."""
        found = self.held(expression, at)
        if found is None:
            return None
        self.count += 1
        if isinstance(found, Filed):
            return as_node(self, found, span, at.home)
        if isinstance(found.expression, ast.Constant) and found.expression.value is None:
            return Scalar(span, None, locked="no file says it")
        return found.at.home.node(found.expression, found.at.scope, 1)

    def held(self, expression: ast.expr, at: At) -> Held:
        """The section or value of a config file that an expression holds, if it holds one."""
        if at.is_too_deep:
            return None
        if at.frame is not None:
            return self._held(expression, at)
        known = self.known_as_loaded if self.suspended else self.known
        key = (id(at.home), id(expression))
        if key not in known:
            known[key] = None  # what refers to itself is nothing
            with self.in_itself():
                known[key] = self._held(expression, at)
        return known[key]

    def _held(self, expression: ast.expr, at: At) -> Held:
        if isinstance(expression, ast.Name):
            return self._named(expression, at)
        if isinstance(expression, ast.Attribute):
            holder = self.held(expression.value, at.deeper)
            if isinstance(holder, Filed):
                return self.item(holder, expression.attr, at.home)
            own = dotted(expression) or ""
            if holder is None and own.startswith("self.") and own.count(".") == 1:
                found = at.home.own(expression.attr, at.scope)
                return None if found is None else self.held(found[0], at.within(found[1]))
            option = None if holder else option_of(expression, at.scope, at.home.tree)
            if option is not None:
                return by_default(self, option, expression.value, at)
            return part(self, expression, at) if holder is None else None
        if isinstance(expression, ast.Subscript):
            holder = self.held(expression.value, at.deeper)
            if holder is None:
                return None
            key = at.home.value(expression.slice, at.scope, at.depth + 1)
            return self.under(holder, key, None, at) if isinstance(key, str) else None
        if isinstance(expression, ast.Call):
            return self._called(expression, at)
        if isinstance(expression, ast.BoolOp) and isinstance(expression.op, ast.Or):
            first = self.held(expression.values[0], at.deeper)
            is_set = isinstance(first, Filed) and first.plain not in (None, "", 0, False)
            return first if is_set else None
        kept = kept_items(expression)
        return None if kept is None else self.held(kept.whole, at.deeper)

    # -- names --------------------------------------------------------------------------

    def _named(self, name: ast.Name, at: At) -> Held:
        found = at.scope.find(name.id)
        if found is None:
            return None
        owner, bindings = found
        bindings = [b for b in bindings if not keeps_itself(b, name.id, owner, self.options)]
        bindings = [b for b in bindings if not is_nothing(b.value)] or bindings
        if len(bindings) > 1 and all(b.kind == "value" and b.value is not None for b in bindings):
            # Branches for other languages that load the same file.
            values = [
                b.value
                for b in bindings
                if isinstance(b.value, ast.Call) and _loads(b.value, owner)
            ]
            if len(values) != len(bindings):
                return None
            return _alike((self.held(value, at.within(owner)) for value in values), _is_same_file)
        if len(bindings) != 1:
            return None
        (binding,) = bindings
        if binding.kind == "import":
            elsewhere = at.imported(name.id)
            return None if elsewhere is None else self.held(*elsewhere)
        if binding.kind == "parameter":
            main = hydra_main(owner.node, at.home.scopes.module)
            if main is not None and isinstance(owner.node, ast.FunctionDef):
                if name.id != task_parameter(owner.node):
                    return None
                return self._hydra.of(owner.node, main, at.home)
            # What all calls of a function give it, if that is the same.
            given = (self.held(*each) for each in self.given(name.id, owner, at))
            return _alike(given, _is_same_object)
        if binding.kind != "value" or binding.value is None:
            return None
        return self.held(binding.value, at.within(owner))

    # -- calls --------------------------------------------------------------------------

    def _called(self, call: ast.Call, at: At) -> Held:
        written = dotted(call.func) or ""
        name = at.scope.resolved(written)
        if name in LOADS and call.args:
            path = self.stream(call.args[0], call, at)
            file = None if path is None else self.loaded.loaded_by(name, path)
            return None if file is None else self.whole(file, at.home)
        if merges(call, at.scope):
            return self._merged(call, at)
        if isinstance(call.func, ast.Attribute):
            found = self._method(call, call.func, at)
            if found is not None:
                return found
        last = written.rpartition(".")[2]
        if last == "getattr" and len(call.args) > 1:
            holder = self.held(call.args[0], at.deeper)
            key = at.home.value(call.args[1], at.scope, at.depth + 1)
            default = call.args[2] if len(call.args) > 2 else None
            if holder is None or not isinstance(key, str):
                return None
            return self.under(holder, key, default, at)
        if last in KEEPS and len(call.args) + len(call.keywords) >= 1:
            inner = call.args[0] if call.args else unpacked_alone(call)
            return None if inner is None else _copy(self.held(inner, at.deeper), call, at)
        if call.args and keeps_items(call, at):
            return self.held(call.args[0], at.deeper)
        return recorded(self, call, at) or self._returned(call, at)

    def _method(self, call: ast.Call, method: ast.Attribute, at: At) -> Held:
        if method.attr not in ("get", "pop", "copy"):
            return None
        holder = self.held(method.value, at.deeper)
        if holder is None or (method.attr == "copy" and not call.args):
            return _copy(holder, call, at)
        key = at.home.value(call.args[0], at.scope, at.depth + 1) if call.args else UNKNOWN
        if not isinstance(key, str):
            return None
        default = (
            call.args[1] if len(call.args) > 1 else ast.copy_location(ast.Constant(None), call)
        )
        return self.under(holder, key, default, at, popped=method.attr == "pop")

    def _returned(self, call: ast.Call, at: At) -> Held:
        """What a function of the project returns: ``cfg = load_config(args.config)``."""
        found = entered(call, at)
        if found is None:
            return None
        function, inside = found
        # Branches for other languages end at other readers of the same file.
        first = _alike((self.held(value, inside) for value in returns(function)), _is_same_file)
        if first is None:
            return None
        self.in_loaders |= self.changes_in(function, At(inside.scope, inside.home, inside.frame))
        return first

    def _merged(self, call: ast.Call, at: At) -> Held:
        """``OmegaConf.merge(base, config, OmegaConf.from_cli())``: later ones are laid over earlier."""
        under: Filed | None = None
        for argument in call.args:
            if is_from_line(argument, at.scope):
                if may_say_keys(self.options):
                    return None
                continue
            found = self.held(argument, at.deeper)
            if not isinstance(found, Filed):
                return None
            under = found if under is None else replace(found, under=under)
        return under


# -- syntax ----------------------------------------------------------------------------------------


def _copy(held: Held, call: ast.Call, at: At) -> Held:
    """A section as a call copies it: what is changed in the copy is not changed in the section."""
    if not isinstance(held, Filed) or not isinstance(held.node, Mapping):
        return held
    return replace(held, copied=f"\0{at.home.places.source.path}:{call.lineno}:{call.col_offset}")


def _alike(found: Iterable[Held], is_same: Callable[[Filed, Filed], bool]) -> Filed | None:
    """The first of what several ways lead to, if all lead to objects of a file that are the same so far. The
    first way that leads elsewhere ends it: the ways behind it branch as often again."""
    first: Filed | None = None
    for each in found:
        if not isinstance(each, Filed) or (first is not None and not is_same(each, first)):
            return None
        first = first or each
    return first


def _is_same_file(one: Filed, other: Filed) -> bool:
    return one.file is other.file


def _loads(call: ast.Call, scope: Scope) -> bool:
    return scope.resolved(dotted(call.func) or "") in LOADS


def _is_same_object(one: Filed, other: Filed) -> bool:
    return (one.file, one.path) == (other.file, other.path)
