"""Classes that a script defines, and what of a library's they are derived from."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingABC
from typing import TypeAlias

from oomlint.documents.base import (
    PythonDocument,
)
from oomlint.documents.python.trainer_names import TRAINER

# What a script trains with: a class of its own has one of them among its bases.
_LIBRARYS = re.compile(rf"(?:{TRAINER.pattern})|(TrainingArguments|Config)$")
_CLASS = re.compile(r"^class[ \t]+(\w+)(?:[ \t]*\(([^()]*)\))?", re.MULTILINE)


Own: TypeAlias = MappingABC[str, tuple[str, ...]]
"""Classes that a script defines, each with those that it names as its bases."""


def of_library(name: str, own: Own) -> str:
    """The library's class that a class of the script's own is derived from; any other class as it is."""
    seen: set[str] = set()
    while name in own and own[name] and name not in seen:
        seen.add(name)
        name = next(filter(_LIBRARYS.search, own[name]), own[name][0])
    return name


def classes_of(text: str) -> Own:
    """The classes that a script defines."""
    found = ((match[1], match[2] or "") for match in _CLASS.finditer(text))
    return {name: tuple(re.findall(r"[\w.]+(?=\s*(?:,|$))", bases)) for name, bases in found}


def own_classes(document: PythonDocument) -> Own:
    """The classes that a script defines, and those of other files of the project that it trains with."""
    return {**document.classes, **classes_of(document.source.text)}
