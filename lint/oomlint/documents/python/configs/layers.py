"""Layers of which a script makes one config, each laid over those before it (OmegaConf 2.3 omegaconf.py)."""

from __future__ import annotations

import ast
from collections.abc import Mapping as MappingABC
from typing import Final

from oomlint.documents.python.scopes import Binding, Scope, dotted

_MERGES: Final = frozenset({"omegaconf.OmegaConf.merge", "omegaconf.OmegaConf.unsafe_merge"})
# Layers of the words ``key=value`` that a command says; the second is handed them by the script.
_FROM_LINE: Final = frozenset({"omegaconf.OmegaConf.from_cli", "omegaconf.OmegaConf.from_dotlist"})


def merges(call: ast.Call, scope: Scope) -> bool:
    """Whether a call lays layers of a config over each other."""
    return scope.resolved(dotted(call.func) or "") in _MERGES


def is_from_line(layer: ast.expr, scope: Scope) -> bool:
    """Whether a layer holds the words of the command alone."""
    return isinstance(layer, ast.Call) and scope.resolved(dotted(layer.func) or "") in _FROM_LINE


def may_say_keys(options: MappingABC[str, str | None]) -> bool:
    """Whether the command that starts the script says keys of its configs, ``training.lr=1e-5``, or may. ``options``: as
    :class:`~oomlint.documents.python.configs.paths.ConfigPaths` has them."""
    said = ((name, word) for name, word in options.items() if not name.startswith("$"))
    return any(word is None or name.endswith("=") or "=" in word for name, word in said)


def keeps_itself(
    binding: Binding, name: str, scope: Scope, options: MappingABC[str, str | None]
) -> bool:
    """``cfg = EasyDict(cfg)``: the same items under the same name; ``cfg = OmegaConf.merge(cfg, line)`` where the line
    says none."""
    value = binding.value
    if binding.kind != "value" or not isinstance(value, ast.Call) or not value.args:
        return False
    first, *more = value.args
    if not isinstance(first, ast.Name) or first.id != name:
        return False
    if merges(value, scope):
        return all(is_from_line(each, scope) for each in more) and not may_say_keys(options)
    return (dotted(value.func) or "").rpartition(".")[2] in KEEPS


KEEPS: Final = frozenset(
    {
        "create", "to_container", "to_object", "dict", "EasyDict", "edict", "Box", "AttrDict", "Munch",
        "munchify", "DotMap", "ConfigDict", "Namespace", "SimpleNamespace", "deepcopy", "copy",
    }
)  # fmt: skip
"""What gives an object with the same items as its argument, by the last of its name: of OmegaConf, of the libraries that
read items as attributes, of copy and argparse."""
