"""Options that a script declares and nothing in the project reads.

A length that nobody asks for cuts no sample, whatever its default is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from oomlint.documents.python.modules import Module, Modules

# transformers' own arguments: their Trainer reads no length of samples.
PLAIN_BASES: Final = frozenset(
    {"transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments"}
)
# Who takes all attributes of an object may read any of them.
_TAKE_ALL: Final = frozenset({"vars", "asdict", "__dict__", "to_dict", "__getattr__", "getattr"})
# A script that takes in more has hardly been seen whole.
_MOST_MODULES: Final = 10


def read_by_nobody(names: frozenset[str], script: Module, modules: Modules) -> frozenset[str]:
    """Those of the names that neither the script reads nor what it takes in of the project; none where
    not all of that can be seen."""
    left = set(names)
    around = Modules(modules.find)
    queue, seen = [script], {script.source.path}
    for module in queue:
        asked = set(_asked_for(module.tree.root))
        if asked & _TAKE_ALL:
            return frozenset()
        left -= asked
        for origin in module.imports.values():
            for taken in _taken(origin, module, around):
                if taken is None or len(seen) > _MOST_MODULES:
                    return frozenset()
                if taken.source.path not in seen:
                    seen.add(taken.source.path)
                    queue.append(taken)
        if not left:
            break
    modules.looked_into |= seen - {script.source.path}
    return frozenset(left)


def _asked_for(root: ast.Module) -> Iterator[str]:
    """Every name that is read, of a variable, an attribute or an argument, and every text."""
    for node in ast.walk(root):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _taken(
    origin: tuple[str, int, str], module: Module, modules: Modules
) -> Iterator[Module | None]:
    """The modules of the project that an import takes in; ``None`` of one that should be there."""
    name, level, inner = origin
    dotted_name = ".".join(filter(None, ("." * level + name, inner)))
    found = modules.holding(dotted_name, module.source.path)
    if found is None and inner:
        whole = modules.of(f"{name}.{inner}" if name else inner, level, module.source.path)
        found = None if whole is None else (whole, "")
    if found is not None:
        yield found[0]
    elif level:
        yield None
