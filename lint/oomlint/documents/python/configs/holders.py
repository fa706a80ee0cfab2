"""Classes of a project's own whose objects give the items of a dict as attributes: ``Config(yaml.safe_load(file)).train.lr``,
and records that are made of all that a dict has, ``Config(**yaml.safe_load(file))``, with defaults of their own.
"""

from __future__ import annotations

import ast
from typing import Final

from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Document, Mapping, Node, Scalar, Sequence
from oomlint.documents.python.configs.paths import At
from oomlint.documents.python.instances import default_in, fields_in
from oomlint.documents.python.nodes import ConfigFile, Filed, UnwrittenEntry
from oomlint.documents.python.scopes import FunctionNode, dotted
from oomlint.documents.python.walking import walk

_OF_DICTS: Final = frozenset({"dict.get", "dict.__getitem__"})
# What makes a class keep each argument under its name: dataclasses.dataclass, attrs.define, pydantic.BaseModel.
_RECORDS: Final = frozenset({"dataclass", "define", "frozen", "mutable"})
_BASES: Final = frozenset({"BaseModel"})
# Methods in which a class may make something else of what it is given.
_CHANGING: Final = frozenset(
    {"__init__", "__post_init__", "__attrs_post_init__", "__new__", "model_post_init"}
)
_BY_CLASS: Final = frozenset({"classmethod", "staticmethod"})


def keeps_items(call: ast.Call, at: At) -> bool:
    """Whether a call makes an object of such a class."""
    found = _class_of(call.func, at)
    return found is not None and _gives_items(found[0])


def by_class(call: ast.Call, at: At) -> tuple[FunctionNode, At, ast.Call] | None:
    """The method of a class that is called by the class's name, where it stands, and the call with what Python itself gives:
    ``Config.load(path)``."""
    if not isinstance(call.func, ast.Attribute):
        return None
    found = _class_of(call.func.value, at)
    for each in found[0].body if found is not None else ():
        if not isinstance(each, ast.FunctionDef) or each.name != call.func.attr:
            continue
        kinds = {dotted(decorator) for decorator in each.decorator_list}
        if found is None or not kinds <= _BY_CLASS or not kinds:
            return None
        own = [call.func.value] if "classmethod" in kinds else []
        whole = ast.copy_location(ast.Call(call.func, [*own, *call.args], call.keywords), call)
        return each, found[1], whole
    return None


def _class_of(name: ast.expr, at: At) -> tuple[ast.ClassDef, At] | None:
    """The class of the project that a name is, and the file that defines it; ``cls`` in a method is the method's own."""
    written = dotted(name) or ""
    if written == "cls" and at.scope.parent is not None:
        own = at.scope.parent.node
        return (own, at) if isinstance(own, ast.ClassDef) else None
    if written in at.home.scopes.classes:
        return at.home.scopes.classes[written], at
    elsewhere = at.imported(written) if written else None
    return None if elsewhere is None or at.is_too_deep else _class_of(*elsewhere)


def _gives_items(cls: ast.ClassDef) -> bool:
    for each in cls.body:
        match each:
            case ast.FunctionDef(name="__getattr__", args=ast.arguments(args=[_, key])):
                return any(_looks_up(node, key.arg) for node in walk(each))
            case ast.Assign(targets=[ast.Name(id="__getattr__")], value=value):
                return dotted(value) in _OF_DICTS
    return False


def _looks_up(node: ast.AST, key: str) -> bool:
    """``self[key]``, ``self._data[key]``, ``self._data.get(key)``."""
    match node:
        case ast.Subscript(value=holder, slice=ast.Name(id=asked), ctx=ast.Load()):
            pass
        case ast.Call(func=ast.Attribute(value=holder, attr="get"), args=[ast.Name(id=asked), *_]):
            pass
        case _:
            return False
    return asked == key and (dotted(holder) or "").partition(".")[0] == "self"


def record_of(name: ast.expr, at: At) -> tuple[ast.ClassDef, At] | None:
    """The class of a record that is called so, if it keeps what it is given as it is."""
    found = _class_of(name, at)
    if found is None:
        return None
    cls, _ = found
    decorators = (d.func if isinstance(d, ast.Call) else d for d in cls.decorator_list)
    is_decorated = any(_last(each) in _RECORDS for each in decorators)
    bases = {_last(base) for base in cls.bases}
    is_record = bases <= _BASES and (is_decorated or bool(bases))
    methods = (each for each in cls.body if isinstance(each, ast.FunctionDef))
    is_plain = not any(
        m.name in _CHANGING or (_validates(m) and not _lets_pass(m)) for m in methods
    )
    return found if is_record and is_plain else None


def _last(name: ast.expr) -> str:
    return (dotted(name) or "").rpartition(".")[2]


def _validates(method: ast.FunctionDef) -> bool:
    """Whether pydantic calls a method that may make something else of a value."""
    decorators = (d.func if isinstance(d, ast.Call) else d for d in method.decorator_list)
    return any(_last(each).endswith("validator") for each in decorators)


def _lets_pass(method: ast.FunctionDef) -> bool:
    """Whether a validator gives back what it is given, if it does not raise."""
    taken = {each.arg for each in method.args.args}
    returned = [each.value for each in walk(method) if isinstance(each, ast.Return)]
    names = {each.id if isinstance(each, ast.Name) else "" for each in returned}
    stored = [
        (dotted(each) or "").partition(".")[0]
        for each in walk(method)
        if isinstance(getattr(each, "ctx", None), ast.Store)
    ]
    return len(names) == 1 and names <= taken and not names & {*stored, ""} and "" not in stored


def with_defaults(filed: Filed, cls: ast.ClassDef, at: At) -> Filed:
    """A section of a file, laid over what a record has by default."""
    if filed.under is not None:
        return replace(filed, under=with_defaults(filed.under, cls, at))
    root = _defaults_of(cls, at)
    file = ConfigFile(Document(at.home.places.source), root, "yaml12")
    return replace(filed, under=Filed(file, root, filed.path))


def _defaults_of(cls: ast.ClassDef, at: At) -> Mapping:
    """What the fields of a record are by default, of those that are records themselves their own."""
    home = at.home
    scope = home.scopes.of_node[id(cls)]
    entries: dict[str, UnwrittenEntry] = {}
    for name, value in fields_in(cls):
        default = default_in(value)
        if default is None:
            continue
        place = home.places.span(default)
        made = default.func if isinstance(default, ast.Call) and _is_bare(default) else None
        inner = None if made is None or at.is_too_deep else record_of(made, at.deeper)
        node: Node = home.node(default, scope) if inner is None else _defaults_of(*inner)
        if inner is None and not isinstance(node, (Scalar, Sequence)):
            node = Scalar(place, UNKNOWN)
        entries[name] = UnwrittenEntry(name, place, node, place)
    for statement in cls.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind, value=None):
                inner = None if at.is_too_deep else record_of(kind, at.deeper)
                if inner is not None:
                    place = home.places.span(statement)
                    entries[name] = UnwrittenEntry(name, place, _defaults_of(*inner), place)
    return Mapping(home.places.span(cls), {**entries})


def _is_bare(call: ast.Call) -> bool:
    return not call.args and not call.keywords
