"""Values that a script takes from config files which it loads itself.

``cfg = yaml.safe_load(open(args.config))`` and ``cfg["model"]["name"]``: the file is followed by a
literal path, by the default of the option that names it, or by what the command that starts the
script says, and the value is what stands in the file. An object that the script changes is followed
but for what it changes. Nothing is run, and what cannot be followed stays unknown.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping as MappingABC
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Entry, Mapping, Node, Scalar, Sequence
from oomlint.documents.python.branches import kept_items
from oomlint.documents.python.composed_configs import (
    Composition,
    HydraMain,
    Layer,
    Words,
    hydra_main,
    laid_over,
    task_parameter,
    unknown_in,
)
from oomlint.documents.python.config_changes import POPPED, Coded, ConfigChanges, Held, has
from oomlint.documents.python.config_files import LOADS, LoadedFiles
from oomlint.documents.python.config_layers import (
    KEEPS,
    is_from_line,
    keeps_itself,
    may_say_keys,
    merges,
)
from oomlint.documents.python.config_paths import At, CallFrame, function_of, option_of
from oomlint.documents.python.modules import FindSource
from oomlint.documents.python.nodes import (
    ConfigFile,
    Filed,
    FiledScalar,
    FiledSequence,
    PythonEntry,
    PythonMapping,
    UnwrittenEntry,
    loaded_value,
)
from oomlint.documents.python.object_changes import marks
from oomlint.documents.python.own_holders import by_class, keeps_items, record_of, with_defaults
from oomlint.documents.python.parsers import option_names, unpacked_defaults, unpacked_in
from oomlint.documents.python.scopes import FunctionNode, Scope, dotted, enclosed
from oomlint.documents.suffixes import YAML_SUFFIXES
from oomlint.documents.text import Span

if TYPE_CHECKING:
    from oomlint.documents.python.values import Evaluator

# Of one composed config: a primary file and an option of each group; more is beyond any program.
_MOST_COMPOSED: Final = 64
_INTERPOLATION: Final = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")


class ConfigFiles(ConfigChanges):
    """The config files of one script, as one command starts it; ``find`` gives the text of a file by
    its path."""

    def __init__(
        self, find: FindSource, options: MappingABC[str, str | None] | None = None
    ) -> None:
        super().__init__(options or {})
        self.loaded = LoadedFiles(find)
        self._composing = LoadedFiles(find, _MOST_COMPOSED)
        self._composed: dict[int, Filed | None] = {}
        """By ``id`` of the function that gets it: the config that Hydra composes."""
        self._whole_of: dict[int, Filed] = {}
        """By ``id`` of a file: the composed config that it is a layer of."""
        self._interpolating: set[tuple[int, tuple[str, ...]]] = set()
        self.count = 0
        """How often something was taken from a file: whoever sees it grow depends on one."""
        self._values: dict[tuple[int, int, int, bool], tuple[ast.expr, Node, tuple[int, ...]]] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        """Display paths of the files that were loaded."""
        return tuple(dict.fromkeys((*self.loaded.paths, *self._composing.paths)))

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
            self._values[key] = (
                expression,
                node,
                grown,
            )  # the expression, so that its id stays its own
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
            return self._as_node(found, span, at.home)
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
                return self._item(holder, expression.attr, at.home)
            own = dotted(expression) or ""
            if holder is None and own.startswith("self.") and own.count(".") == 1:
                found = at.home.own(expression.attr, at.scope)
                return None if found is None else self.held(found[0], at.within(found[1]))
            option = None if holder else option_of(expression, at.scope, at.home.tree)
            if option is not None:
                return self._by_default(option, expression.value, at)
            return self._part(expression, at) if holder is None else None
        if isinstance(expression, ast.Subscript):
            holder = self.held(expression.value, at.deeper)
            if holder is None:
                return None
            key = at.home.value(expression.slice, at.scope, at.depth + 1)
            return self._under(holder, key, None, at) if isinstance(key, str) else None
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
        bindings = [b for b in bindings if not _is_nothing(b.value)] or bindings
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
                return self._composed_for(owner.node, main, at.home)
            # What all calls of a function give it, if that is the same.
            given = (self.held(*each) for each in self.given(name.id, owner, at))
            return _alike(given, _is_same_object)
        if binding.kind != "value" or binding.value is None:
            return None
        return self.held(binding.value, at.within(owner))

    # -- options ------------------------------------------------------------------------

    def _by_default(self, option: str, holder: ast.expr, at: At) -> Held:
        """What an option holds by a file of defaults, ``parser.set_defaults(**yaml.safe_load(file))``, where the command does
        not say it. ``holder`` is what the parser gave."""
        unpacked = list(self._unpacked(option, holder, at))
        if not unpacked or any(self._is_said(option, where.home) for _, where in unpacked):
            return None
        for value, where in reversed(unpacked):
            found = self.held(value, where)
            if not isinstance(found, Filed) or not isinstance(found.node, Mapping):
                if self.passes_by(value, where) or self._is_none_named(where.home):
                    continue
                return unknown_in(at.home.places.source)
            item = self._item(found, option, where.home)
            if item is not None:
                return item
            if self.is_changed(found, option, where.home):
                return unknown_in(at.home.places.source)
        return None

    def _unpacked(self, option: str, holder: ast.expr, at: At) -> Iterator[tuple[ast.expr, At]]:
        """What is unpacked as defaults of the parser of an option: here, or in the function of another file that
        parses."""
        for call, value in unpacked_defaults(option, at.home.tree):
            yield value, At(at.home.tree.scope_of[id(call)], at.home)
        parsing = self._parsing(holder, at)
        while parsing is not None:
            call, where = parsing
            found = function_of(call, where.scope, where.home)
            if found is None or where.is_too_deep:
                return
            function, there = found
            own, inner = there.scopes.of_node[id(function)], CallFrame(function, call, where)
            inside = At(own, there, inner, where.depth + 1)
            if there is not at.home:
                for set_defaults, value in unpacked_in(function):
                    yield value, inside.within(there.tree.scope_of[id(set_defaults)])
            given = [each.value for each in enclosed(function) if isinstance(each, ast.Return)]
            parsing = (
                (given[0], inside) if len(given) == 1 and isinstance(given[0], ast.Call) else None
            )

    def _parsing(self, holder: ast.expr, at: At) -> tuple[ast.Call, At] | None:
        """The call that gave what a parser found, ``args = parse_args()``, be it handed on to a function."""
        while isinstance(holder, ast.Name) and not at.is_too_deep:
            found = at.scope.find(holder.id)
            if found is None or len(found[1]) != 1:
                return None
            owner, (binding,) = found
            if binding.kind == "parameter":
                given = list(self.given(holder.id, owner, at))
                if len(given) != 1:
                    return None
                holder, at = given[0]
            elif binding.kind == "value" and binding.value is not None:
                holder, at = binding.value, at.within(owner)
            else:
                return None
        return (holder, at) if isinstance(holder, ast.Call) else None

    def _is_none_named(self, home: Evaluator) -> bool:
        """Whether the options that name config files have no defaults, and the command says none of them."""
        defaults = (home.options.get(each) for each in self.asked)
        is_silent = not any(self._is_said(each, home) for each in self.asked)
        return bool(self.asked) and is_silent and all(d is None or _is_nothing(d) for d in defaults)

    def _is_said(self, option: str, home: Evaluator) -> bool:
        spelled = (*option_names(home.tree).get(option, ()), option)
        return any(each in self.options for each in spelled)

    # -- Hydra --------------------------------------------------------------------------

    def _composed_for(
        self, function: ast.FunctionDef, main: HydraMain, home: Evaluator
    ) -> Filed | None:
        """The config that Hydra composes for the task of a program."""
        if id(function) not in self._composed:
            self._composed[id(function)] = None
            found = self._compose(main, home)
            layer = found
            while layer is not None and found is not None:
                self._whole_of[id(layer.file)] = found
                layer = layer.under
            self._composed[id(function)] = found
        return self._composed[id(function)]

    def _compose(self, main: HydraMain, home: Evaluator) -> Filed | None:
        here = home.places.source
        self.asked.add("config_name")
        at = At(home.scopes.module, home)
        name = self._said_to_hydra(("config_name", "cn"), main.config_name, at)
        folder = self._said_to_hydra(("config_path", "cp"), main.config_path, at)
        if main.config_path is None and folder is None:
            folder = "." if _looks_beside(main) else None
        further = self._said_to_hydra(("config_dir", "cd"), None, at)
        folders = [posixpath.join(posixpath.dirname(here.path), folder)] if folder else []
        folders += [] if further is None else [further]

        def load(path: str) -> ConfigFile | None:
            for each in folders:
                for suffix in YAML_SUFFIXES:
                    wanted = posixpath.normpath(posixpath.join(each, path + suffix))
                    file = self._composing.at(wanted, "omegaconf")
                    if file is not None and posixpath.normpath(file.path).endswith(wanted):
                        return file
            return None

        composition = Composition(load, Words.of(self.options))
        layers = [Layer((), None)] if name is None else composition.layers(name)
        return laid_over(layers, composition.overrides(), here)

    def _said_to_hydra(
        self, names: tuple[str, ...], otherwise: ast.expr | None, at: At
    ) -> str | None:
        """What the command says by one of these options, or else the decorator; ``None`` where nobody tells."""
        for name in names:
            if name in self.options:
                return self._said(name)
        return None if otherwise is None else self.path(otherwise, at)

    # -- calls --------------------------------------------------------------------------

    def _called(self, call: ast.Call, at: At) -> Held:
        written = dotted(call.func) or ""
        name = at.scope.resolved(written)
        if name in LOADS and call.args:
            path = self.stream(call.args[0], call, at)
            file = None if path is None else self.loaded.loaded_by(name, path)
            return None if file is None else self._whole(file, at.home)
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
            return self._under(holder, key, default, at)
        if last in KEEPS and len(call.args) + len(call.keywords) >= 1:
            inner = call.args[0] if call.args else _unpacked_alone(call)
            return None if inner is None else _copy(self.held(inner, at.deeper), call, at)
        if call.args and keeps_items(call, at):
            return self.held(call.args[0], at.deeper)
        return self._recorded(call, at) or self._returned(call, at)

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
        return self._under(holder, key, default, at, popped=method.attr == "pop")

    def _returned(self, call: ast.Call, at: At) -> Held:
        """What a function of the project returns: ``cfg = load_config(args.config)``."""
        entered = _entered(call, at)
        if entered is None:
            return None
        function, inside = entered
        # Branches for other languages end at other readers of the same file.
        first = _alike((self.held(value, inside) for value in _returns(function)), _is_same_file)
        if first is None:
            return None
        self.in_loaders |= self.changes_in(function, At(inside.scope, inside.home, inside.frame))
        return first

    # -- records ------------------------------------------------------------------------

    def _recorded(self, call: ast.Call, at: At) -> Filed | None:
        """The section that a record is made of as a whole: ``Settings(**yaml.safe_load(file))``."""
        unpacked = None if call.args else _unpacked_alone(call)
        record = None if unpacked is None else record_of(call, at)
        section = None if unpacked is None or record is None else self.held(unpacked, at.deeper)
        if record is None or not isinstance(section, Filed):
            return None
        return with_defaults(section, *record) if isinstance(section.node, Mapping) else None

    def _part(self, expression: ast.Attribute, at: At) -> Held:
        """A section that a record is made of: ``config.model`` of ``Config(model=Model(**raw["model"]))``."""
        if marks(dotted(expression.value) or "", expression.attr) & at.home.scopes.changed:
            return None
        made = self._made(expression.value, at.deeper)
        value = None if made is None else _keyword(made[0], expression.attr)
        return None if made is None or value is None else self.held(value, made[1].deeper)

    def _made(self, expression: ast.expr, at: At) -> tuple[ast.Call, At] | None:
        """The call that makes the record which an expression is, and where it stands."""
        if at.is_too_deep:
            return None
        if isinstance(expression, ast.Name):
            return self._made_for(expression.id, at)
        if isinstance(expression, ast.Attribute):
            made = self._made(expression.value, at.deeper)
            value = None if made is None else _keyword(made[0], expression.attr)
            return None if made is None or value is None else self._made(value, made[1].deeper)
        if not isinstance(expression, ast.Call):
            return None
        if expression.keywords and record_of(expression, at) is not None:
            return expression, at
        entered = _entered(expression, at)
        values = [] if entered is None else _returns(entered[0])
        return self._made(values[0], entered[1]) if entered and len(values) == 1 else None

    def _made_for(self, name: str, at: At) -> tuple[ast.Call, At] | None:
        found = at.scope.find(name)
        if found is None or len(found[1]) != 1:
            return None
        owner, (binding,) = found
        if binding.kind == "import":
            elsewhere = at.imported(name)
            return None if elsewhere is None else self._made(*elsewhere)
        if binding.kind == "parameter":
            given = list(self.given(name, owner, at))
            return self._made(*given[0]) if len(given) == 1 else None
        is_made = binding.kind == "value" and binding.value is not None
        return self._made(binding.value, at.within(owner)) if is_made and binding.value else None

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

    def _whole(self, file: ConfigFile, home: Evaluator) -> Filed | None:
        """All that a file says, where the script does not change it beyond knowing."""
        is_lost = not self.suspended and (file.path, ()) in self.changes(home)
        return None if is_lost else Filed(file, file.root)

    # -- items --------------------------------------------------------------------------

    def _under(
        self,
        holder: Filed | Coded,
        key: str,
        default: ast.expr | None,
        at: At,
        *,
        popped: bool = False,
    ) -> Held:
        """The item of an object, or the default that is named for it."""
        if isinstance(holder, Filed):
            if not isinstance(holder.node, Mapping):
                return None
            found = self._item(holder, key, at.home, popped=popped)
            if found is not None or has(holder, key) or default is None:
                return found
            if self.is_changed(holder, key, at.home, popped=popped):
                return None
            return Coded(default, at)
        if isinstance(holder.expression, ast.Dict):
            for name, value in zip(holder.expression.keys, holder.expression.values, strict=True):
                if name is None or not isinstance(name, ast.Constant):
                    return None
                if name.value == key:
                    return Coded(value, holder.at)
            return None if default is None else Coded(default, at)
        return None

    def _item(
        self, holder: Filed, key: str, home: Evaluator, *, popped: bool = False
    ) -> Filed | None:
        if self.is_changed(holder, key, home, popped=popped):
            return None
        entry = holder.node.entries.get(key) if isinstance(holder.node, Mapping) else None
        if entry is None and _is_open(holder.node):
            return Filed(holder.file, Scalar(holder.node.span, UNKNOWN), (*holder.path, key))
        under = None if holder.under is None else self._item(holder.under, key, home)
        if entry is None:
            return under
        is_written = not isinstance(entry, UnwrittenEntry) and not holder.file.is_command
        place = entry if is_written else None
        found = Filed(holder.file, entry.value, (*holder.path, key), place)
        if isinstance(entry.value, Mapping):
            return replace(found, under=under)
        return self._interpolated(found, home)

    def _interpolated(self, found: Filed, home: Evaluator) -> Filed | None:
        """What ``${model.name}`` stands for, where the file is OmegaConf's."""
        text = found.node.value if isinstance(found.node, Scalar) else None
        if not isinstance(text, str) or "${" not in text or found.file.profile != "omegaconf":
            return found
        match = _INTERPOLATION.fullmatch(text.strip())
        asked = (id(found.file), found.path)
        if match is None or asked in self._interpolating:
            return found
        held: Filed | None = self._whole_of.get(id(found.file)) or Filed(
            found.file, found.file.root
        )
        self._interpolating.add(asked)  # what refers to itself stays unknown
        try:
            for key in match[1].split("."):
                held = None if held is None else self._item(held, key, home)
        finally:
            self._interpolating.discard(asked)
        return held

    # -- values as nodes ------------------------------------------------------------------

    def _as_node(self, filed: Filed, span: Span, home: Evaluator) -> Node:
        reason = f"it is read from {filed.file.path}"
        if filed.file.is_command:
            reason = "the command that starts the script says it"
        node = filed.node
        if isinstance(node, Scalar):
            return FiledScalar(span, filed.plain, locked=reason, filed=filed)
        if isinstance(node, Sequence):
            values = (loaded_value(item, filed.file.profile) for item in node.items)
            items = tuple(Scalar(span, value, locked=reason) for value in values)
            return FiledSequence(span, items, reason, filed=filed)
        return self._as_mapping(filed, span, home, reason)

    def _as_mapping(self, filed: Filed, span: Span, home: Evaluator, reason: str) -> Node:
        """All items of an object, for what unpacks it: those that the script changes are unknown."""
        changed = self.changes(home) | self.in_loaders
        below = {
            place[len(filed.path)]: place[-1] is POPPED
            for path, place in changed
            if path in (filed.file.path, filed.object)
            and len(place) > len(filed.path)
            and place[: len(filed.path)] == filed.path
        }
        entries: dict[str, Entry] = {}
        layers = [filed]
        while layers[0].under is not None:
            layers.insert(0, layers[0].under)
        keys = [
            key
            for layer in layers
            for key in (layer.node.entries if isinstance(layer.node, Mapping) else ())
        ]
        for key in dict.fromkeys((*keys, *below)):
            if below.get(key):
                continue
            inner = self._item(filed, key, home)
            value = (
                Scalar(span, UNKNOWN, locked=reason)
                if inner is None
                else self._as_node(inner, span, home)
            )
            entries[key] = PythonEntry(key, span, value, span, owner_kind="file", locked=reason)
        # As it stands in the file: of what it interpolates that says nothing.
        is_whole = not below and len(layers) == 1 and not filed.file.is_command
        is_whole = is_whole and not any(map(_interpolates, _values_of(filed.node)))
        return PythonMapping(
            span, entries, locked=reason, kind="dict", filed=filed if is_whole else None,
            open_ended=any(_is_open(layer.node) for layer in layers),
        )  # fmt: skip


def _looks_beside(main: HydraMain) -> bool:
    """Whether a program that names no folder looks for configs beside itself: until version 1.1, or where none is said
    (hydra-core 1.3.2 main.py, version.py setbase)."""
    said = main.version_base.value if isinstance(main.version_base, ast.Constant) else None
    return not main.says_version or said in ("1.0", "1.1")


def _values_of(node: Node) -> Iterator[Node]:
    return (
        (entry.value for entry in node.entries.values()) if isinstance(node, Mapping) else iter(())
    )


def _interpolates(node: Node) -> bool:
    return isinstance(node, Scalar) and "${" in str(node.value)


def _is_open(node: Node) -> bool:
    """Whether a node may hold any key."""
    if isinstance(node, Mapping):
        return node.open_ended
    return isinstance(node, Scalar) and node.value is UNKNOWN


# -- syntax ----------------------------------------------------------------------------------------


def _entered(call: ast.Call, at: At) -> tuple[FunctionNode, At] | None:
    """The function of the project that a call enters, and the inside of it; none that is followed already."""
    found = function_of(call, at.scope, at.home)
    method = by_class(call, at) if found is None else None
    if method is not None:
        function, there, call = method[0], method[1].home, method[2]
    elif found is not None:
        function, there = found
    else:
        return None
    if at.called(function) is not None:
        return None
    own, inner = there.scopes.of_node[id(function)], CallFrame(function, call, at)
    return function, At(own, there, inner, at.depth + 1)


def _returns(function: FunctionNode) -> list[ast.expr]:
    """What a function returns where it returns something."""
    given = [n.value for n in _enclosed_statements(function) if isinstance(n, ast.Return)]
    return [value for value in given if value is not None and not _is_nothing(value)]


def _copy(held: Held, call: ast.Call, at: At) -> Held:
    """A section as a call copies it: what is changed in the copy is not changed in the section."""
    if not isinstance(held, Filed) or not isinstance(held.node, Mapping):
        return held
    return replace(held, copied=f"\0{at.home.places.source.path}:{call.lineno}:{call.col_offset}")


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == name), None)


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


def _enclosed_statements(function: FunctionNode) -> Iterator[ast.AST]:
    """What stands in a function, and in no function inside it."""
    for statement in function.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        yield from enclosed(statement)


def _is_nothing(value: ast.expr | None) -> bool:
    """``{}`` and ``None``, which scripts take where there is no file."""
    if isinstance(value, ast.Dict):
        return not value.keys
    return isinstance(value, ast.Constant) and value.value is None


def _unpacked_alone(call: ast.Call) -> ast.expr | None:
    if len(call.keywords) == 1 and call.keywords[0].arg is None:
        return call.keywords[0].value
    return None
