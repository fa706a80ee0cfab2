"""Values that a script takes from config files which it loads itself.

``cfg = yaml.safe_load(open(args.config))`` and ``cfg["model"]["name"]``: the file is followed by a
literal path, by the default of the option that names it, or by what the command that starts the
script says, and the value is what stands in the file. An object that the script changes is followed
but for what it changes. Nothing is run, and what cannot be followed stays unknown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping as MappingABC
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Document, Entry, Mapping, Node, Scalar, Sequence
from oomlint.documents.python.config_changes import POPPED, Coded, ConfigChanges, Held, has
from oomlint.documents.python.config_paths import (
    Frame,
    function_of,
)
from oomlint.documents.python.modules import FindSource
from oomlint.documents.python.nodes import (
    ConfigFile,
    Filed,
    FiledScalar,
    FiledSequence,
    PythonEntry,
    PythonMapping,
)
from oomlint.documents.python.scopes import Binding, FunctionNode, Scope, dotted, enclosed
from oomlint.documents.scalars import Profile, resolve
from oomlint.documents.suffixes import JSON_SUFFIXES, TOML_SUFFIXES, YAML_SUFFIXES, kind_of
from oomlint.documents.text import Source, Span
from oomlint.errors import ParseError

if TYPE_CHECKING:
    from oomlint.documents.python.values import Evaluator

_DEEPEST: Final = 24
# A script of a project reads a config or two; more is a sweep.
_MOST_FILES: Final = 8

# Functions that make an object of the text of a file, by their full names, and what loads YAML so.
_LOADS: Final[MappingABC[str, Profile]] = {
    "yaml.safe_load": "pyyaml", "yaml.load": "pyyaml", "yaml.full_load": "pyyaml",
    "yaml.unsafe_load": "pyyaml", "json.load": "pyyaml", "json.loads": "pyyaml",
    "tomllib.load": "pyyaml", "tomllib.loads": "pyyaml", "tomli.load": "pyyaml", "toml.load": "pyyaml",
    "toml.loads": "pyyaml", "omegaconf.OmegaConf.load": "omegaconf",
}  # fmt: skip
# What gives an object with the same items as its argument, by the last of its name: of OmegaConf,
# of the libraries that read items as attributes, of copy and argparse.
_KEEPS: Final = frozenset(
    {
        "create", "to_container", "to_object", "dict", "EasyDict", "edict", "Box", "AttrDict", "Munch",
        "munchify", "DotMap", "ConfigDict", "Namespace", "SimpleNamespace", "deepcopy", "copy",
    }
)  # fmt: skip
_MERGES: Final = frozenset({"omegaconf.OmegaConf.merge", "omegaconf.OmegaConf.unsafe_merge"})
_FROM_LINE: Final = "omegaconf.OmegaConf.from_cli"
_INTERPOLATION: Final = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
# A file without any of these loads no config, nor has it one loaded.
MAY_LOAD: Final = re.compile(
    r"\b(?:yaml|json|toml|tomli|tomllib|OmegaConf)\b|\bload_?\w*(?:conf|cfg|yaml|json|param)", re.I
)


class ConfigFiles(ConfigChanges):
    """The config files of one script, as one command starts it; ``find`` gives the text of a file by
    its path."""

    def __init__(
        self, find: FindSource, options: MappingABC[str, str | None] | None = None
    ) -> None:
        super().__init__(options or {})
        self.find = find
        self.read: dict[str, ConfigFile | None] = {}
        """By the path that the script has for them."""
        self.count = 0
        """How often something was taken from a file: whoever sees it grow depends on one."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Display paths of the files that were read."""
        return tuple(dict.fromkeys(file.path for file in self.read.values() if file is not None))

    # -- what scripts ask ---------------------------------------------------------------

    def node(self, expression: ast.expr, scope: Scope, home: Evaluator, span: Span) -> Node | None:
        """The value that an expression takes from a config file, or from what the script says in its
        place; ``None`` where it takes none, or it cannot be told."""
        found = self.held(expression, scope, home)
        if found is None:
            return None
        self.count += 1
        if isinstance(found, Filed):
            return self._as_node(found, span, home)
        if isinstance(found.expression, ast.Constant) and found.expression.value is None:
            return Scalar(span, None, locked="no file says it")
        return found.home.node(found.expression, found.scope, 1)

    def held(
        self,
        expression: ast.expr,
        scope: Scope,
        home: Evaluator,
        frame: Frame | None = None,
        depth: int = 0,
    ) -> Held:
        """What of a config file an expression is."""
        if depth > _DEEPEST:
            return None
        if frame is not None or self.suspended:
            return self._held(expression, scope, home, frame, depth)
        key = (id(home), id(expression))
        if key not in self.known:
            self.known[key] = None  # what refers to itself is nothing
            self.known[key] = self._held(expression, scope, home, frame, depth)
        return self.known[key]

    def _held(
        self, expression: ast.expr, scope: Scope, home: Evaluator, frame: Frame | None, depth: int
    ) -> Held:
        if isinstance(expression, ast.Name):
            return self._named(expression, scope, home, frame, depth)
        if isinstance(expression, ast.Attribute):
            holder = self.held(expression.value, scope, home, frame, depth + 1)
            if isinstance(holder, Filed):
                return self._item(holder, expression.attr, home)
            own = dotted(expression) or ""
            if holder is None and own.startswith("self.") and own.count(".") == 1:
                found = home.own(expression.attr, scope)
                return None if found is None else self.held(*found, home, frame, depth + 1)
            return None
        if isinstance(expression, ast.Subscript):
            holder = self.held(expression.value, scope, home, frame, depth + 1)
            if holder is None:
                return None
            key = home.value(expression.slice, scope, depth + 1)
            return self._at(holder, key, None, scope, home) if isinstance(key, str) else None
        if isinstance(expression, ast.Call):
            return self._called(expression, scope, home, frame, depth)
        if isinstance(expression, ast.BoolOp) and isinstance(expression.op, ast.Or):
            first = self.held(expression.values[0], scope, home, frame, depth + 1)
            is_set = isinstance(first, Filed) and _plain(first) not in (None, "", 0, False)
            return first if is_set else None
        return None

    # -- names --------------------------------------------------------------------------

    def _named(
        self, name: ast.Name, scope: Scope, home: Evaluator, frame: Frame | None, depth: int
    ) -> Held:
        found = scope.find(name.id)
        if found is None:
            return None
        owner, bindings = found
        bindings = [b for b in bindings if not _keeps_itself(b, name.id)]
        if len(bindings) != 1:
            return None
        (binding,) = bindings
        if binding.kind == "import":
            elsewhere = home.elsewhere(name.id, scope)
            if elsewhere is None:
                return None
            there, inner = elsewhere
            return self.held(inner, there.scopes.module, there, None, depth + 1)
        if binding.kind == "parameter":
            given = list(self.given(name.id, owner, home, frame))
            return self._agreed(given, depth)
        if binding.kind != "value" or binding.value is None:
            return None
        return self.held(binding.value, owner, home, frame, depth + 1)

    def _agreed(
        self, given: list[tuple[ast.expr, Scope, Evaluator, Frame | None]], depth: int
    ) -> Held:
        found = [self.held(*each, depth + 1) for each in given]
        first = next(iter(found), None)
        if not isinstance(first, Filed):
            return None
        same = all(
            isinstance(each, Filed) and (each.file, each.path) == (first.file, first.path)
            for each in found
        )
        return first if same else None

    # -- calls --------------------------------------------------------------------------

    def _called(
        self, call: ast.Call, scope: Scope, home: Evaluator, frame: Frame | None, depth: int
    ) -> Held:
        written = dotted(call.func) or ""
        name = scope.resolved(written)
        if name in _LOADS and call.args:
            path = self.stream(call.args[0], call, scope, home, frame, depth)
            return None if path is None else self._root(path, _LOADS[name], home)
        if name in _MERGES:
            return self._merged(call, scope, home, frame, depth)
        if isinstance(call.func, ast.Attribute):
            found = self._method(call, call.func, scope, home, frame, depth)
            if found is not None:
                return found
        last = written.rpartition(".")[2]
        if last == "getattr" and len(call.args) > 1:
            holder = self.held(call.args[0], scope, home, frame, depth + 1)
            key = home.value(call.args[1], scope, depth + 1)
            default = call.args[2] if len(call.args) > 2 else None
            if holder is None or not isinstance(key, str):
                return None
            return self._at(holder, key, default, scope, home)
        if last in _KEEPS and len(call.args) + len(call.keywords) >= 1:
            inner = call.args[0] if call.args else _unpacked_alone(call)
            return None if inner is None else self.held(inner, scope, home, frame, depth + 1)
        return self._returned(call, scope, home, frame, depth)

    def _method(
        self,
        call: ast.Call,
        method: ast.Attribute,
        scope: Scope,
        home: Evaluator,
        frame: Frame | None,
        depth: int,
    ) -> Held:
        if method.attr not in ("get", "pop", "copy"):
            return None
        holder = self.held(method.value, scope, home, frame, depth + 1)
        if holder is None or (method.attr == "copy" and not call.args):
            return holder
        key = home.value(call.args[0], scope, depth + 1) if call.args else UNKNOWN
        if not isinstance(key, str):
            return None
        default = (
            call.args[1] if len(call.args) > 1 else ast.copy_location(ast.Constant(None), call)
        )
        return self._at(holder, key, default, scope, home, popped=method.attr == "pop")

    def _returned(
        self, call: ast.Call, scope: Scope, home: Evaluator, frame: Frame | None, depth: int
    ) -> Held:
        """What a function of the project returns: ``cfg = load_config(args.config)``."""
        found = function_of(call, scope, home)
        if found is None:
            return None
        function, there = found
        around = frame
        while around is not None:
            if around.function is function:
                return None
            around = around.around
        inner = Frame(function, call, scope, home, frame)
        own = there.scopes.of_node[id(function)]
        values = [n.value for n in enclosed_statements(function) if isinstance(n, ast.Return)]
        found_all = [
            self.held(value, own, there, inner, depth + 1) for value in values if value is not None
        ]
        first = next((each for each in found_all if each is not None), None)
        if not isinstance(first, Filed):
            return None
        # Branches for other languages end at other readers of the same file.
        same = all(
            each is None or (isinstance(each, Filed) and each.file is first.file)
            for each in found_all
        )
        if not same or (len(found_all) > 1 and any(each is None for each in found_all)):
            return None
        self.in_loaders |= self.changes_in(function, own, there, inner)
        return first

    def _merged(
        self, call: ast.Call, scope: Scope, home: Evaluator, frame: Frame | None, depth: int
    ) -> Held:
        """``OmegaConf.merge(base, config, OmegaConf.from_cli())``: later ones are laid over earlier."""
        under: Filed | None = None
        for argument in call.args:
            name = scope.resolved(dotted(getattr(argument, "func", argument)) or "")
            if name == _FROM_LINE:
                if any(word is None or "=" in word for word in self.options.values()):
                    return None
                continue
            found = self.held(argument, scope, home, frame, depth + 1)
            if not isinstance(found, Filed):
                return None
            under = found if under is None else replace(found, under=under)
        return under

    # -- items --------------------------------------------------------------------------

    def _at(
        self,
        holder: Filed | Coded,
        key: str,
        default: ast.expr | None,
        scope: Scope,
        home: Evaluator,
        *,
        popped: bool = False,
    ) -> Held:
        """The item of an object, or the default that is named for it."""
        if isinstance(holder, Filed):
            if not isinstance(holder.node, Mapping):
                return None
            found = self._item(holder, key, home, popped=popped)
            if found is not None or has(holder, key) or default is None:
                return found
            if self.is_changed(holder, key, home, popped=popped):
                return None
            return Coded(default, scope, home)
        if isinstance(holder.expression, ast.Dict):
            for name, value in zip(holder.expression.keys, holder.expression.values, strict=True):
                if name is None or not isinstance(name, ast.Constant):
                    return None
                if name.value == key:
                    return Coded(value, holder.scope, holder.home)
            return None if default is None else Coded(default, scope, home)
        return None

    def _item(
        self, holder: Filed, key: str, home: Evaluator, *, popped: bool = False
    ) -> Filed | None:
        if self.is_changed(holder, key, home, popped=popped):
            return None
        under = None if holder.under is None else self._item(holder.under, key, home)
        entry = holder.node.entries.get(key) if isinstance(holder.node, Mapping) else None
        if entry is None:
            return under
        found = Filed(holder.file, entry.value, (*holder.path, key), entry)
        if isinstance(entry.value, Mapping):
            return replace(found, under=under)
        return self._interpolated(found, home)

    def _interpolated(self, found: Filed, home: Evaluator) -> Filed | None:
        """What ``${model.name}`` stands for, where the file is OmegaConf's."""
        text = found.node.value if isinstance(found.node, Scalar) else None
        if not isinstance(text, str) or "${" not in text or found.file.profile != "omegaconf":
            return found
        match = _INTERPOLATION.fullmatch(text.strip())
        held: Filed | None = Filed(found.file, found.file.root)
        for key in match[1].split(".") if match else ():
            held = None if held is None else self._item(held, key, home)
        return held if match else found

    # -- values as nodes ------------------------------------------------------------------

    def _as_node(self, filed: Filed, span: Span, home: Evaluator) -> Node:
        reason = f"it is read from {filed.file.path}"
        node = filed.node
        if isinstance(node, Scalar):
            return FiledScalar(span, _plain(filed), locked=reason, filed=filed)
        if isinstance(node, Sequence):
            values = (_value(item, filed.file.profile) for item in node.items)
            items = tuple(Scalar(span, value, locked=reason) for value in values)
            return FiledSequence(span, items, reason, filed=filed)
        return self._as_mapping(filed, span, home, reason)

    def _as_mapping(self, filed: Filed, span: Span, home: Evaluator, reason: str) -> Node:
        """All items of an object, for what unpacks it: those that the script changes are unknown."""
        changed = self.changes(home) | self.in_loaders
        below = {
            place[len(filed.path)]: place[-1] is POPPED
            for path, place in changed
            if path == filed.file.path
            and len(place) > len(filed.path)
            and place[: len(filed.path)] == filed.path
        }
        entries: dict[str, Entry] = {}
        layers = [filed]
        while layers[0].under is not None:
            layers.insert(0, layers[0].under)
        keys = [key for layer in layers for key in getattr(layer.node, "entries", {})]
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
        is_whole = not below and len(layers) == 1
        return PythonMapping(
            span, entries, locked=reason, kind="dict", filed=filed if is_whole else None
        )

    # -- files --------------------------------------------------------------------------

    def _root(self, path: str, profile: Profile, home: Evaluator) -> Filed | None:
        if path not in self.read:
            self.read[path] = None
            if len(self.read) <= _MOST_FILES:
                self.read[path] = self._loaded(path, profile)
        file = self.read[path]
        if file is None or (not self.suspended and (file.path, ()) in self.changes(home)):
            return None
        return Filed(file, file.root)

    def _loaded(self, path: str, profile: Profile) -> ConfigFile | None:
        kind = kind_of(path)
        source = self.find(path) if kind in _READERS else None
        document = None
        if source is not None:
            try:
                document = _parsed(source, kind)
            except (ParseError, RecursionError):
                return None
        roots: tuple[Node, ...] = getattr(document, "roots", ())
        if document is None or len(roots) != 1 or not isinstance(roots[0], Mapping):
            return None
        return ConfigFile(document, roots[0], profile)


_READERS: Final = (*YAML_SUFFIXES, *JSON_SUFFIXES, *TOML_SUFFIXES)


def _parsed(source: Source, kind: str) -> Document:
    if kind in YAML_SUFFIXES:
        from oomlint.documents.yaml.document import parse_yaml

        return parse_yaml(source)
    if kind in JSON_SUFFIXES:
        from oomlint.documents.json import parse_json

        return parse_json(source)
    from oomlint.documents.toml import parse_toml

    return parse_toml(source)


# -- values as nodes -------------------------------------------------------------------------------


def _plain(filed: Filed) -> Any:
    """The value as its loader makes it; ``UNKNOWN`` of what only running tells."""
    return _value(filed.node, filed.file.profile)


def _value(node: Node, profile: Profile) -> Any:
    if isinstance(node, Scalar):
        if isinstance(node.value, str) and ("${" in node.value or "{{" in node.value):
            return UNKNOWN
        return resolve(node.value, profile) if node.plain else node.value
    if isinstance(node, Sequence):
        items = [_value(item, profile) for item in node.items]
        return UNKNOWN if any(item is UNKNOWN for item in items) else items
    return UNKNOWN


# -- syntax ----------------------------------------------------------------------------------------


def enclosed_statements(function: FunctionNode) -> Iterator[ast.AST]:
    """What stands in a function, and in no function inside it."""
    for statement in function.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        yield from enclosed(statement)


def _keeps_itself(binding: Binding, name: str) -> bool:
    """``cfg = EasyDict(cfg)``: the same items under the same name."""
    value = binding.value
    if binding.kind != "value" or not isinstance(value, ast.Call) or not value.args:
        return False
    first = value.args[0]
    last = (dotted(value.func) or "").rpartition(".")[2]
    return last in _KEEPS and isinstance(first, ast.Name) and first.id == name


def _unpacked_alone(call: ast.Call) -> ast.expr | None:
    if len(call.keywords) == 1 and call.keywords[0].arg is None:
        return call.keywords[0].value
    return None
