"""Options that name a file in a folder of the program's own, not one by its path from where the command runs:
``os.path.join(RESOURCES, "config", args.config)``."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from oomlint.documents.python.configs.paths import option_of
from oomlint.documents.python.scopes import dotted
from oomlint.documents.python.tree import Tree

# The folder from which a plain path counts, too.
_WHERE_IT_RUNS: Final = frozenset({"os.getcwd", "Path.cwd", "pathlib.Path.cwd"})


def joined_options(tree: Tree) -> Mapping[str, str]:
    """The options that are the last part of a path that the script puts together, each with the folders in front of it
    as far as the text says them (``config``); ``""`` where it says none."""
    found: dict[str, str] = {}
    for call in tree.calls_to("join", "joinpath"):
        parts = list(_parts(call))
        last = parts[-1] if len(parts) > 1 else None
        if not isinstance(last, ast.Attribute) or all(map(_is_where_it_runs, parts[:-1])):
            continue
        option = option_of(last, tree.scope_of[id(call)], tree)
        if option is not None:
            found.setdefault(option, _literal_end(parts[:-1]))
    return found


def _parts(call: ast.Call) -> Iterator[ast.expr]:
    """The parts of ``os.path.join(a, b)`` and ``a.joinpath(b)``."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "joinpath":
        yield call.func.value
    elif not (dotted(call.func) or "").endswith("path.join"):
        return
    yield from call.args


def _is_where_it_runs(part: ast.expr) -> bool:
    return isinstance(part, ast.Call) and dotted(part.func) in _WHERE_IT_RUNS


def _literal_end(folders: Sequence[ast.expr]) -> str:
    texts: list[str] = []
    for folder in reversed(folders):
        if not isinstance(folder, ast.Constant) or not isinstance(folder.value, str):
            break
        texts.insert(0, folder.value)
    return posixpath.join(*texts) if texts else ""
