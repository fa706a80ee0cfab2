"""A fault put into functions that have been imported, so that nothing is imported anew to try it."""

from __future__ import annotations

import gc
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import _lru_cache_wrapper
from types import CodeType, FunctionType

_IS_FUNCTION = 0x1  # CO_OPTIMIZED: the body of a function, not of a class or a module
# Functions that are called where they stand.
_AT_ONCE = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")


class Live:
    """The functions of the modules that get faults, and what they have worked out so far."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._functions: dict[CodeType, list[FunctionType]] = defaultdict(list)
        self._caches: list[_lru_cache_wrapper[object]] = []
        suffixes = tuple("/" + module for module in modules)
        for found in gc.get_objects():
            if type(found) is FunctionType and found.__code__.co_filename.endswith(suffixes):
                self._functions[found.__code__].append(found)
            elif type(found) is _lru_cache_wrapper:
                code = getattr(found.__wrapped__, "__code__", None)
                if code is not None and code.co_filename.endswith(suffixes):
                    self._caches.append(found)
        self._seen = [
            module._SEEN
            for module in list(sys.modules.values())
            if (getattr(module, "__file__", None) or "").endswith(suffixes)
            and hasattr(module, "_SEEN")
        ]

    def take(self, module: str, before: bytes, after: bytes) -> None:
        """Swap the functions of the module that differ, and forget what they have answered."""
        old, new = compile(before, module, "exec"), compile(after, module, "exec")
        for one, other in _pairs(old, new):
            for function in self._functions.get(one, ()):
                function.__code__ = other
        for cache in self._caches:
            cache.cache_clear()
        for seen in self._seen:
            seen.clear()


def is_in_functions(before: bytes, after: bytes) -> bool:
    """Whether two texts of a module differ in what functions do when they are called, and in nothing else."""
    pairs = list(_pairs(compile(before, "", "exec"), compile(after, "", "exec")))
    return (
        bool(pairs)
        and all(old.co_flags & _IS_FUNCTION and old.co_name not in _AT_ONCE for old, _ in pairs[:1])
        and all(old.co_freevars == new.co_freevars for old, new in pairs)
    )


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Bodies that differ, the outermost functions first; a module or a class only where itself it does something else."""
    inner = _inner(old), _inner(new)
    is_alike = _does(old) == _does(new) and len(inner[0]) == len(inner[1])
    within = [pair for both in zip(*inner, strict=False) for pair in _pairs(*both)]
    is_function = old.co_flags & _IS_FUNCTION
    if not is_alike or (is_function and within):
        yield old, new
    yield from within


def _does(code: CodeType) -> tuple[object, ...]:
    """What a body does, wherever it stands; 1, 1.0 and True are equal, but not of one type."""
    plain = [(type(found), found) for found in code.co_consts if not isinstance(found, CodeType)]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, plain


def _inner(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]
