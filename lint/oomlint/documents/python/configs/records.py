"""Sections of a config that records of the script are made of: ``Settings(**yaml.safe_load(file))``."""

from __future__ import annotations

import ast
from typing import Final

from oomlint.documents.base import Mapping
from oomlint.documents.python.configs.changes import Held
from oomlint.documents.python.configs.holders import record_of, with_defaults
from oomlint.documents.python.configs.items import ConfigItems
from oomlint.documents.python.configs.paths import At
from oomlint.documents.python.configs.syntax import entered, keyword, returns, unpacked_alone
from oomlint.documents.python.nodes import Filed
from oomlint.documents.python.object_changes import marks
from oomlint.documents.python.scopes import dotted

# pydantic 2.13 main.py BaseModel.model_validate, and parse_obj as 1.10 calls it.
_VALIDATE: Final = frozenset({"model_validate", "parse_obj"})


def recorded(files: ConfigItems, call: ast.Call, at: At) -> Filed | None:
    """The section that a record is made of as a whole: ``Settings(**yaml.safe_load(file))``, and
    ``Settings.model_validate(yaml.safe_load(file))``."""
    unpacked, made = None if call.args else unpacked_alone(call), call.func
    match call:
        case ast.Call(func=ast.Attribute(value=made, attr=name), args=[whole], keywords=[]):
            unpacked = whole if name in _VALIDATE else unpacked
    record = None if unpacked is None else record_of(made, at)
    section = None if unpacked is None or record is None else files.held(unpacked, at.deeper)
    if record is None or not isinstance(section, Filed):
        return None
    return with_defaults(section, *record) if isinstance(section.node, Mapping) else None


def part(files: ConfigItems, expression: ast.Attribute, at: At) -> Held:
    """A section that a record is made of: ``config.model`` of ``Config(model=Model(**raw["model"]))``."""
    if marks(dotted(expression.value) or "", expression.attr) & at.home.scopes.changed:
        return None
    made = _made(files, expression.value, at.deeper)
    value = None if made is None else keyword(made[0], expression.attr)
    return None if made is None or value is None else files.held(value, made[1].deeper)


def _made(files: ConfigItems, expression: ast.expr, at: At) -> tuple[ast.Call, At] | None:
    """The call that makes the record which an expression is, and where it stands."""
    if at.is_too_deep:
        return None
    if isinstance(expression, ast.Name):
        return _made_for(files, expression.id, at)
    if isinstance(expression, ast.Attribute):
        made = _made(files, expression.value, at.deeper)
        value = None if made is None else keyword(made[0], expression.attr)
        return None if made is None or value is None else _made(files, value, made[1].deeper)
    if not isinstance(expression, ast.Call):
        return None
    if expression.keywords and record_of(expression.func, at) is not None:
        return expression, at
    found = entered(expression, at)
    values = [] if found is None else returns(found[0])
    return _made(files, values[0], found[1]) if found and len(values) == 1 else None


def _made_for(files: ConfigItems, name: str, at: At) -> tuple[ast.Call, At] | None:
    found = at.scope.find(name)
    if found is None or len(found[1]) != 1:
        return None
    owner, (binding,) = found
    if binding.kind == "import":
        elsewhere = at.imported(name)
        return None if elsewhere is None else _made(files, *elsewhere)
    if binding.kind == "parameter":
        given = list(files.given(name, owner, at))
        return _made(files, *given[0]) if len(given) == 1 else None
    is_made = binding.kind == "value" and binding.value is not None
    return _made(files, binding.value, at.within(owner)) if is_made and binding.value else None
