"""Classes of a project's own whose objects give the items of a dict as attributes: ``Config(yaml.safe_load(file)).train.lr``."""

from __future__ import annotations

import ast
from typing import Final

from oomlint.documents.python.config_paths import At
from oomlint.documents.python.scopes import FunctionNode, dotted
from oomlint.documents.python.walking import walk

_OF_DICTS: Final = frozenset({"dict.get", "dict.__getitem__"})
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
