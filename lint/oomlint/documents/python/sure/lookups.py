"""Keys and attributes that a script is sure to ask of a config of the project's own, and that this is sure not to have.

A config is a mapping that is written out (``MODEL = {"name": ...}``), an object of a plain class, the class itself, or a
module. Nothing is said of one that anything may add to: that is handed to code with a word like the one that is asked for,
that is of a class derived from others, or that has its name from two statements.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TypeAlias

from msgspec import Struct

from oomlint.documents.python.modules import MOST_FILES, Module, Modules, is_installed
from oomlint.documents.python.parsers import dataclass_variables
from oomlint.documents.python.scopes import Binding, Scope, call_name, dotted, enclosed
from oomlint.documents.python.strict_parsers import PARSE_ARGS, given_name, is_strict
from oomlint.documents.python.sure.straight_line import Evaluated
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.walking import walk

# By these, attributes and keys come from where no reader sees them.
_BY_OTHER_WAYS = re.compile(
    r"(?<![.\w])(?:setattr|exec|globals|locals|vars|eval)\s*\(|__(?:getattr|setattr|missing|class_getitem|dict__|slots__)|sys\.modules|_LazyModule"
)
_READS = frozenset({"get", "items", "keys", "values", "copy"})
# What takes a mapping and leaves it as it is.
_LEAVES_AS_IT_IS = frozenset(
    {"print", "len", "str", "repr", "dict", "list", "sorted", "isinstance", "dumps", "info", "debug", "pprint", "deepcopy"}
)  # fmt: skip
_DATACLASS = "dataclass"
# Functions that hand an object on to one another.
_DEEPEST = 3
# What gives parsed arguments further ones (DeepSpeed 0.19.5 __init__.py add_config_arguments; argparse.Namespace).
_MAY_ADD = re.compile(r"add_config_arguments|Namespace\(|parse_known|namespace=|\.__dict__|vars\(")

Asked: TypeAlias = "ast.Attribute | ast.Subscript"


class SureLookup(Struct, frozen=True, eq=False):
    """A lookup that fails, and why in words; ``is_of_other``: another file than the script tells."""

    node: Asked
    why: str
    is_of_other: bool


class Home(Struct, frozen=True, eq=False):
    """The file in which what a name means stands, and what binds it there."""

    tree: Tree
    path: str
    text: str
    name: str
    scope: Scope
    binding: Binding


class SureLookups:
    """Looks for them in one script that is started by its path."""

    def __init__(self, path: str, text: str, tree: Tree, modules: Modules) -> None:
        self._path, self._text, self._tree = path, text, tree
        self._known = modules
        self._modules = modules.anew()

    def failing(self, evaluated: Sequence[Evaluated]) -> Iterator[SureLookup]:
        """The first that fails: what comes behind it is not reached."""
        for each in evaluated:
            found = None
            if isinstance(each.node, ast.Subscript):
                found = self._key(each.node, each.scope)
            elif isinstance(each.node, ast.Attribute):
                found = self._attribute(each.node, each.scope)
            if found is not None:
                self._known.looked_into |= self._modules.read.keys()
                yield found
                return

    # -- keys of mappings that are written out -----------------------------------------------------

    def _key(self, node: ast.Subscript, scope: Scope) -> SureLookup | None:
        key, holder = _text(node.slice), node.value
        if key is None or not isinstance(holder, ast.Name):
            return None
        home = self.home(holder.id, scope)
        value = home.binding.value if home is not None and home.binding.kind == "value" else None
        if home is None or not isinstance(value, ast.Dict) or not _is_without(value, key):
            return None
        if self._may_grow(home, holder.id):
            return None
        return self._failing(node, home, f'{home.name} has no key "{key}"')

    def _may_grow(self, home: Home, name: str) -> bool:
        """Whether anything but reading is done with a mapping: here, where it stands, or in a module that is known."""
        trees = [(self._tree, name), (home.tree, home.name)]
        trees += [(module.tree, home.name) for module in self._others()]
        if _BY_OTHER_WAYS.search(home.text) or self._is_cut_off:
            return True
        return any(
            called in tree.scopes.changed or _is_handed_on(tree, called) for tree, called in trees
        )

    # -- attributes --------------------------------------------------------------------------------

    def _attribute(self, node: ast.Attribute, scope: Scope) -> SureLookup | None:
        if not isinstance(node.value, ast.Name) or node.attr.startswith("__"):
            return None
        module = self._module(node.value.id, scope)
        if module is not None:
            return self._of_module(node, module)
        parsed = self._parsed_class(node.value.id, scope)
        if parsed is not None:
            return self._of_class(node, parsed)
        home = self.home(node.value.id, scope)
        if home is None:
            return None
        if home.binding.kind == "definition":
            return self._of_class(node, home)
        made = self._handed(home) if home.binding.kind == "parameter" else home.binding.value
        if self._is_parsed(made, home):
            return self._of_parser(node)
        if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Name):
            return None
        cls = self.home(made.func.id, home.scope, home)
        return self._of_class(node, cls) if cls and cls.binding.kind == "definition" else None

    def _of_module(self, node: ast.Attribute, module: Module) -> SureLookup | None:
        source, bound = module.source, module.tree.scopes.module.bindings
        if source.path.endswith("/__init__.py") or "*" in bound or node.attr in bound:
            return None
        if _BY_OTHER_WAYS.search(source.text) or self._is_set(node.attr):
            return None
        why = f"{source.path} gives no {node.attr}, which {_file(self._path)} asks it for"
        return SureLookup(node, why, is_of_other=True)

    def _of_class(self, node: ast.Attribute, home: Home) -> SureLookup | None:
        scopes = home.tree.scopes
        cls = scopes.classes.get(home.name) if home.scope is scopes.module else None
        if cls is None or node.attr in scopes.of_node[id(cls)].bindings:
            return None
        # Most attributes are there: what goes through a class or a file for one comes behind.
        if node.attr in home.tree.stores_of(cls) or not _is_plain(cls):
            return None
        if _BY_OTHER_WAYS.search(home.text) or node.attr in _declared(cls):
            return None
        if self._is_set(node.attr):
            return None
        return self._failing(node, home, f"{home.name} has no {node.attr}")

    def _handed(self, home: Home, depth: int = 0) -> ast.expr | None:
        """What the one call of a function of the script gives a parameter, if there is one call alone."""
        scopes, function = self._tree.scopes, home.scope.node
        if not isinstance(function, ast.FunctionDef) or home.path != self._path or depth > _DEEPEST:
            return None
        calls = self._tree.calls.get(function.name, [])
        is_known = scopes.functions.get(function.name) is function and not function.decorator_list
        if not is_known or len(calls) != 1 or scopes.reads[function.name] != 1:
            return None
        (call,) = calls
        places = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        by_place = dict(zip(places, call.args, strict=False))
        given = {**by_place, **{each.arg: each.value for each in call.keywords if each.arg}}
        value = given.get(home.name)
        if any(isinstance(each, ast.Starred) for each in call.args):
            return None
        if not isinstance(value, ast.Name) or id(call) not in self._tree.scope_of:
            return value
        outer = self.home(value.id, self._tree.scope_of[id(call)])
        if outer is None or outer.binding.kind == "parameter":
            return None if outer is None else self._handed(outer, depth + 1)
        return outer.binding.value if outer.path == self._path else None

    # -- what a parser gives -------------------------------------------------------------------------

    def _parsed_class(self, name: str, scope: Scope) -> Home | None:
        """The class of the project's own whose object a parser of classes gives a name."""
        cls = self._parsed_classes.get(name)
        found = scope.find(name) if cls is not None else None
        if cls is None or found is None or len(found[1]) != 1 or found[1][0].kind == "parameter":
            return None
        home = self.home(cls, scope)
        return home if home is not None and home.binding.kind == "definition" else None

    @cached_property
    def _parsed_classes(self) -> dict[str, str]:
        return dataclass_variables(self._tree)

    def _is_parsed(self, value: ast.expr | None, home: Home) -> bool:
        """Whether a value is what the script's own parser of argparse gives, by itself or through a function around it."""
        if home.path != self._path or not isinstance(value, ast.Call):
            return False
        if isinstance(value.func, ast.Attribute):
            return value.func.attr == PARSE_ARGS and not value.args and not value.keywords
        name = dotted(value.func) or ""
        function = self._tree.scopes.functions.get(name)
        if function is None or function.decorator_list:
            return False
        inner = self._tree.scopes.of_node[id(function)]
        given = [each.value for each in enclosed(function) if isinstance(each, ast.Return)]
        return len(given) == 1 and self._is_given(given[0], inner, home)

    def _is_given(self, value: ast.expr | None, scope: Scope, home: Home) -> bool:
        if not isinstance(value, ast.Name):
            return isinstance(value, ast.Call) and self._is_parsed(value, home)
        bound = scope.bindings.get(value.id, [])
        return len(bound) == 1 and self._is_parsed(bound[0].value, home)

    def _of_parser(self, node: ast.Attribute) -> SureLookup | None:
        options = self._declared_options
        if not options or node.attr in options or node.attr.startswith("_"):
            return None
        if self._is_set(node.attr) or _BY_OTHER_WAYS.search(self._text):
            return None
        why = f"the parser of {_file(self._path)} has no {node.attr}, which the script asks it for"
        return SureLookup(node, why, is_of_other=False)

    @cached_property
    def _declared_options(self) -> frozenset[str]:
        """What the script's one parser gives (``args.name``); nothing where more may be declared than is seen."""
        calls = self._tree.calls.get("add_argument", [])
        names = [given_name(call) for call in calls]
        if _MAY_ADD.search(self._text) or not is_strict(self._tree, self._text):
            return frozenset()
        makers = self._tree.calls.get("ArgumentParser", [])
        return frozenset(filter(None, names)) if makers and None not in names else frozenset()

    def _is_set(self, attribute: str) -> bool:
        """Whether anything here, or in a module that is known, may give an object an attribute of this name."""
        others = tuple(self._others())
        texts = (self._text, *(module.source.text for module in others))
        sets = re.compile(
            rf"\.{re.escape(attribute)}\s*(?::[^=\n]+)?=(?!=)|\bsetattr\b|__dict__|\bvars\s*\("
        )
        if any(sets.search(text) for text in texts) or self._is_cut_off:
            return True
        trees = (self._tree, *(module.tree for module in others))
        return any(
            each.attr == attribute and isinstance(each.ctx, ast.Store)
            for tree in trees
            for each in tree.of_kind(ast.Attribute)
        )

    # -- what names mean ---------------------------------------------------------------------------

    def home(self, name: str, scope: Scope, within: Home | None = None) -> Home | None:
        """Where a name has its value, if one statement gives it: here, or in the module that it is imported from."""
        tree = self._tree if within is None else within.tree
        path = self._path if within is None else within.path
        text = self._text if within is None else within.text
        found = scope.find(name)
        if found is None or len(found[1]) != 1:
            return None
        where, (binding,) = found
        if binding.kind != "import":
            return Home(tree, path, text, name, where, binding)
        if is_installed(binding.qualified):
            return None
        held = self._modules.holding(binding.qualified, path)
        if held is None or not self._is_beside(held[0]) or "." in held[1]:
            return None
        module, inner = held
        bound = module.tree.scopes.module.bindings.get(inner, [])
        if len(bound) != 1 or bound[0].kind == "import":
            return None
        top = module.tree.scopes.module
        return Home(module.tree, module.source.path, module.source.text, inner, top, bound[0])

    def _module(self, name: str, scope: Scope) -> Module | None:
        """The module of the project that a name stands for."""
        found = scope.find(name)
        if found is None or len(found[1]) != 1 or found[1][0].kind != "import":
            return None
        qualified = found[1][0].qualified
        if not qualified or qualified.startswith(".") or is_installed(qualified):
            return None
        module = self._modules.of(qualified, 0, self._path)
        return module if module is not None and self._is_beside(module) else None

    def _is_beside(self, module: Module) -> bool:
        """Whether a module lies below the folder of the script, which Python searches first: elsewhere it may be an
        installed one's namesake."""
        folder = posixpath.dirname(self._path)
        return not folder or module.source.path.startswith(f"{folder}/")

    def _others(self) -> Iterator[Module]:
        """The modules that the script imports, and what else is known: they may do with a config what they like."""
        for node in self._tree.imports:
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                holder, level = node.module or "", node.level
                self._modules.of(holder, level, self._path)
                names = [f"{holder}.{name}" if holder else name for name in names]
            else:
                level = 0
            for name in names if level or not is_installed(names[0]) else ():
                self._modules.of(name, level, self._path)
        read = {**self._known.read, **self._modules.read}
        return (module for module in read.values() if module is not None)

    @property
    def _is_cut_off(self) -> bool:
        """Whether there may be more modules than are read."""
        return len(self._modules.read) >= MOST_FILES

    def _failing(self, node: Asked, home: Home, lack: str) -> SureLookup:
        why = f"{lack}, which {_file(self._path)} asks it for"
        return SureLookup(node, why, is_of_other=home.path != self._path)


def _is_without(value: ast.Dict, key: str) -> bool:
    """Whether all keys of a mapping are known, and one is not among them."""
    keys = [_text(each) for each in value.keys]
    return bool(keys) and None not in keys and key not in keys


def _text(node: ast.expr | None) -> str | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else None


def _is_plain(cls: ast.ClassDef) -> bool:
    """Whether a class has but what its own body and methods give it."""
    bases = [dotted(base) for base in cls.bases]
    made = [each.func if isinstance(each, ast.Call) else each for each in cls.decorator_list]
    names = [(dotted(each) or "").rpartition(".")[2] for each in made]
    return not cls.keywords and set(bases) <= {"object"} and set(names) <= {_DATACLASS}


def _declared(cls: ast.ClassDef) -> set[str]:
    """The names that a class body annotates, with a value or without: a dataclass has each as an argument and as an
    attribute (CPython 3.13 ``dataclasses.py`` ``_process_class``), and of others somebody means to give it."""
    return {
        each.target.id
        for each in walk(cls)
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }


def _is_handed_on(tree: Tree, name: str) -> bool:
    """Whether a name's object goes anywhere but into what reads it."""
    fine: set[int] = set()
    for node in tree.nodes:
        match node:
            case ast.Subscript(value=ast.Name(id=held) as holder) if held == name:
                fine.add(id(holder))
            case ast.Attribute(value=ast.Name(id=held) as holder, attr=method) if held == name:
                fine |= {id(holder)} if method in _READS else set()
            case ast.Call() if call_name(node) in _LEAVES_AS_IT_IS:
                fine |= {id(each) for each in node.args}
            case (
                ast.keyword(arg=None, value=ast.Name() as holder)
                | ast.FormattedValue(value=ast.Name() as holder)
            ):
                fine.add(id(holder))
            case ast.Compare(comparators=[ast.Name() as holder]):
                fine.add(id(holder))
    return any(
        isinstance(node, ast.Name)
        and node.id == name
        and isinstance(node.ctx, ast.Load)
        and id(node) not in fine
        for node in tree.nodes
    )


def _file(path: str) -> str:
    return path.rpartition("/")[2]
