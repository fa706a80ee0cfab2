"""What a script is sure to do before it trains, as facts: errors it raises, and what it imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from oomlint.documents.base import Fact
from oomlint.documents.python.import_chain import SureImport, lacks, sure_imports
from oomlint.documents.python.modules import is_installed
from oomlint.documents.python.sure.absent_keys import absent_keys
from oomlint.documents.python.sure.calls import failing_calls
from oomlint.documents.python.sure.errors import sure_errors
from oomlint.documents.python.sure.lookups import SureLookups
from oomlint.documents.python.sure.straight_line import straight_line
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.values import Evaluator, NodeSpans
from oomlint.documents.suffixes import kind_of
from oomlint.documents.text import Location, Source

_NOTEBOOK = ".ipynb"


def sure_facts(
    source: Source,
    tree: Tree,
    places: NodeSpans,
    evaluator: Evaluator,
    may_train: re.Pattern[str],
) -> Iterator[Fact]:
    """``ends-early`` (see :func:`.endings.ending_facts`; ``unbound`` is a name without a value, and ``by_path`` holds of what
    ends a script that is started by its path alone); ``takes-names``: the ``names`` that an installed ``module`` is asked
    for; ``imports-module``: a dotted ``module`` that is looked for from the script on, by the file ``in``, and the
    ``names`` that it takes of it."""
    certain = straight_line(tree, may_train)
    is_notebook = kind_of(source.path) == _NOTEBOOK
    for error in sure_errors(tree, source.text, certain, is_notebook=is_notebook):
        where = Location(source.path, places.span(error.node))
        yield Fact("ends-early", where, {"why": error.why, "guards": (), "unbound": error.name})
    lookups = SureLookups(source.path, source.text, tree, evaluator.modules)
    for lookup in lookups.failing(certain):
        where = Location(source.path, places.span(lookup.node))
        told = {"why": lookup.why, "guards": (), "by_path": lookup.is_of_other}
        yield Fact("ends-early", where, told)
    for absent in absent_keys(source.path, tree, evaluator, certain):
        where = Location(source.path, places.span(absent.node))
        yield Fact("ends-early", where, {"why": absent.why, "guards": ()})
    for call in failing_calls(source.path, certain, lookups):
        where = Location(source.path, places.span(call.node))
        told = {"why": call.why, "guards": (), "by_path": call.is_of_other}
        yield Fact("ends-early", where, told)
    for each in sure_imports(source.path, certain, evaluator.modules, may_train):
        yield from _of_import(each, source, places, evaluator)


def _of_import(
    each: SureImport, source: Source, places: NodeSpans, evaluator: Evaluator
) -> Iterator[Fact]:
    where, node = Location(source.path, places.span(each.by)), each.node
    if each.is_beyond:
        yield Fact("ends-early", where, {"why": _beyond(each), "guards": (), "by_path": True})
        return
    missing = lacks(each, source.path)
    if missing and each.found is not None and (each.level or "sys.path" not in source.text):
        why = f"{each.found.source.path} gives no {missing}, which {_name(each.path)} imports"
        yield Fact("ends-early", where, {"why": why, "guards": (), "by_path": True})
    if each.level:
        return
    names = tuple(a.name for a in node.names) if isinstance(node, ast.ImportFrom) else ()
    for module in [node.module or ""] if isinstance(node, ast.ImportFrom) else _named(node):
        root = module.partition(".")[0]
        if not is_installed(root):
            told = {"module": module, "in": each.path, "names": names}
            yield Fact("imports-module", where, told)
            continue
        is_own = evaluator.modules.has(root, source.path)
        if isinstance(node, ast.ImportFrom) and not is_own:
            yield Fact("takes-names", where, {"module": module, "names": names})


def _named(node: ast.Import) -> list[str]:
    return [alias.name for alias in node.names]


def _beyond(each: SureImport) -> str:
    module = "." * each.level + (getattr(each.node, "module", "") or "")
    return f"{_name(each.path)} imports from {module}, and belongs to no package when started so"


def _name(path: str) -> str:
    return path.rpartition("/")[2]
