"""The items of the sections of config files, with what lies under them and what they refer to.

An item that the script changes is none: of its place the file says nothing any more.
"""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping as MappingABC
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Mapping, Node, Scalar
from oomlint.documents.python.configs.changes import Coded, ConfigChanges, Held, has
from oomlint.documents.python.configs.paths import At
from oomlint.documents.python.nodes import ConfigFile, Filed, UnwrittenEntry

if TYPE_CHECKING:
    from oomlint.documents.python.values import Evaluator

_INTERPOLATION: Final = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")


class ConfigItems(ConfigChanges, ABC):
    """The items of the config files of a script, as one command starts it."""

    def __init__(self, options: MappingABC[str, str | None]) -> None:
        super().__init__(options)
        self._interpolating: set[tuple[int, tuple[str, ...]]] = set()

    @abstractmethod
    def whole_of(self, file: ConfigFile) -> Filed:
        """All that a file is a layer of, or the file itself."""

    def whole(self, file: ConfigFile, home: Evaluator) -> Filed | None:
        """All that a file says, where the script does not change it beyond knowing."""
        is_lost = not self.suspended and (file.path, ()) in self.changes(home)
        return None if is_lost else Filed(file, file.root)

    def under(
        self,
        holder: Filed | Coded,
        key: str,
        default: ast.expr | None,
        at: At,
        *,
        popped: bool = False,
    ) -> Held:
        """The item of an object, or the default that is named for it."""
        if isinstance(holder, Filed):
            if not isinstance(holder.node, Mapping):
                return None
            found = self.item(holder, key, at.home, popped=popped)
            if found is not None or has(holder, key) or default is None:
                return found
            if self.is_changed(holder, key, at.home, popped=popped):
                return None
            return Coded(default, at)
        if isinstance(holder.expression, ast.Dict):
            for name, value in zip(holder.expression.keys, holder.expression.values, strict=True):
                if name is None or not isinstance(name, ast.Constant):
                    return None
                if name.value == key:
                    return Coded(value, holder.at)
            return None if default is None else Coded(default, at)
        return None

    def item(
        self, holder: Filed, key: str, home: Evaluator, *, popped: bool = False
    ) -> Filed | None:
        """What stands under a key of a section; ``popped``: what is taken out by ``pop`` stands there still."""
        if self.is_changed(holder, key, home, popped=popped):
            return None
        entry = holder.node.entries.get(key) if isinstance(holder.node, Mapping) else None
        if entry is None and is_open(holder.node):
            return Filed(holder.file, Scalar(holder.node.span, UNKNOWN), (*holder.path, key))
        under = None if holder.under is None else self.item(holder.under, key, home)
        if entry is None:
            return under
        is_written = not isinstance(entry, UnwrittenEntry) and not holder.file.is_command
        place = entry if is_written else None
        found = Filed(holder.file, entry.value, (*holder.path, key), place)
        if isinstance(entry.value, Mapping):
            return replace(found, under=under)
        return self._interpolated(found, home)

    def _interpolated(self, found: Filed, home: Evaluator) -> Filed | None:
        """What ``${model.name}`` stands for, where the file is OmegaConf's."""
        text = found.node.value if isinstance(found.node, Scalar) else None
        if not isinstance(text, str) or "${" not in text or found.file.profile != "omegaconf":
            return found
        match = _INTERPOLATION.fullmatch(text.strip())
        asked = (id(found.file), found.path)
        if match is None or asked in self._interpolating:
            return found
        held: Filed | None = self.whole_of(found.file)
        self._interpolating.add(asked)  # what refers to itself stays unknown
        try:
            for key in match[1].split("."):
                held = None if held is None else self.item(held, key, home)
        finally:
            self._interpolating.discard(asked)
        return held


def is_open(node: Node) -> bool:
    """Whether a node may hold any key."""
    if isinstance(node, Mapping):
        return node.open_ended
    return isinstance(node, Scalar) and node.value is UNKNOWN
