"""Keys that a script is sure to ask of a config file that it loads, and that the file is sure not to have.

``cfg["training"]["warmup_steps"]`` of a file without that key is a ``KeyError``. Nothing is said of an object that the script
adds to beyond knowing, or hands to code of another file; nor of OmegaConf's, which may be laid over others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from msgspec import Struct

from oomlint.documents.base import Mapping
from oomlint.documents.python.configs.changes import has
from oomlint.documents.python.configs.paths import At
from oomlint.documents.python.nodes import Filed
from oomlint.documents.python.scopes import call_name
from oomlint.documents.python.sure.straight_line import Evaluated
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.values import Evaluator

# What makes a plain dictionary of a file, which has the keys of the file alone (PyYAML 6.0.2, CPython 3.13 json).
_PLAIN = "pyyaml"
# What takes an object and leaves it as it is.
_LEAVES_AS_IT_IS = frozenset(
    {
        "print", "len", "str", "repr", "list", "sorted", "isinstance", "type", "dump", "dumps", "info", "debug", "warning",
        "pprint", "float", "int", "bool", "join", "format", "append",
    }
)  # fmt: skip
_MERGES = "<<"


class AbsentKey(Struct, frozen=True, eq=False):
    """A lookup that fails, and why in words."""

    node: ast.Subscript
    why: str


def absent_keys(
    path: str, tree: Tree, evaluator: Evaluator, certain: Sequence[Evaluated]
) -> Iterator[AbsentKey]:
    """The first that fails: what comes behind it is not reached."""
    for each in certain if evaluator.may_load else ():
        node = each.node
        if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
            continue
        holder = evaluator.files.held(node.value, At(each.scope, evaluator))
        key = node.slice.value
        if not isinstance(holder, Filed) or not isinstance(key, str):
            continue
        if _is_without(holder, key, evaluator) and not _may_grow(holder, tree, evaluator):
            evaluator.files.count += 1
            told = ".".join((*holder.path, key))
            script = path.rpartition("/")[2]
            yield AbsentKey(node, f"{holder.file.path} has no {told}, which {script} asks it for")
            return


def _is_without(holder: Filed, key: str, evaluator: Evaluator) -> bool:
    """Whether all keys of a section are known, and one is not among them."""
    section = holder.node
    if not isinstance(section, Mapping) or section.open_ended or _MERGES in section.entries:
        return False
    is_plain = holder.file.profile == _PLAIN and not holder.file.is_command
    if not is_plain or holder.under is not None or has(holder, key):
        return False
    return not evaluator.files.is_changed(holder, key, evaluator)


def _may_grow(holder: Filed, tree: Tree, evaluator: Evaluator) -> bool:
    """Whether a section, or what it is a part of, is handed to what no one here has read: it may add keys to it."""
    for call in tree.of_kind(ast.Call):
        scope = tree.scope_of.get(id(call))
        name = call_name(call)
        if scope is None or name in _LEAVES_AS_IT_IS or name in tree.scopes.functions:
            continue
        given = (*call.args, *(each.value for each in call.keywords if each.arg is not None))
        if any(
            _contains(evaluator.files.held(each, At(scope, evaluator)), holder) for each in given
        ):
            return True
    return False


def _contains(held: object, part: Filed) -> bool:
    """Whether an object is a section of a config file, or has it below."""
    return (
        isinstance(held, Filed)
        and held.file is part.file
        and isinstance(held.node, Mapping)
        and part.path[: len(held.path)] == held.path
    )
