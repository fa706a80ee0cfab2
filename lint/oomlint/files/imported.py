"""The project's own modules that a Python program imports, by their text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from oomlint.files.workspace import Workspace

_IMPORTS = rb"(?m)^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import|import[ \t]+([\w.]+))"
_MOST_IMPORTS = 100


def imported(workspace: Workspace, name: str, *, hops: int = 1) -> Iterator[tuple[str, bytes]]:
    """Names and texts of the modules that a program imports, and of those that these import in turn."""
    todo, seen = [name], {name}
    for _ in range(hops):
        found = [other for each in todo for other in _named(workspace, each)]
        todo = [other for other in dict.fromkeys(found) if other not in seen]
        seen.update(todo)
        for other in todo:
            yield other, workspace.read_or_none(other) or b""


def _named(workspace: Workspace, name: str) -> Iterator[str]:
    text = workspace.read_or_none(name) or b""
    for plain, whole in islice(re.findall(_IMPORTS, text), _MOST_IMPORTS):
        module = (plain or whole).decode().lstrip(".").replace(".", "/")
        for path in (f"{module}.py", f"{module}/__init__.py") if module else ():
            found = workspace.resolve(path, name)
            if found is not None:
                yield found
