"""The usual ways to call ``check``, read without click, which costs a lint a sixth of its time.

Whatever is not said in one of these ways, mistakes included, is left to click; what is read here
means what it means there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from oomlint.settings import FailLevel, OutputFormat

# Command → module and attribute; a command's module is imported when it is asked for.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "check": ("check", "check"),
    "estimate": ("estimate", "estimate"),
    "fit": ("fit", "fit"),
    "compare": ("compare", "compare"),
    "why": ("why", "why"),
    "diagnose": ("diagnose", "diagnose"),
    "rules": ("rules", "rules"),
    "explain": ("rules", "explain"),
    "hardware": ("catalogues", "hardware"),
    "models": ("catalogues", "models"),
    "config": ("config", "config"),
    "init": ("config", "init"),
    "review": ("review", "review"),
    "lsp": ("lsp", "lsp"),
    "completion": ("completion", "completion"),
    "clean": ("clean", "clean"),
    "plugins": ("plugins", "plugins"),
    "test-rules": ("rules", "test_rules"),
}


_SWITCHES = (
    "fix", "unsafe_fixes", "diff", "exit_zero", "exit_non_zero_on_fix", "show_files", "statistics",
    "profile", "cache", "quiet", "isolated",
)  # fmt: skip
_FLAGS: Mapping[str, tuple[str, bool]] = {
    **{f"--{name.replace('_', '-')}": (name, True) for name in _SWITCHES},
    "--no-cache": ("cache", False),
    "-q": ("quiet", True),
}
# Options with a value, and the values that are right, ``None`` for any.
_VALUES: Mapping[str, tuple[str, frozenset[str] | None]] = {
    "--fail-level": ("fail_level", frozenset(get_args(FailLevel))),
    "--framework": ("framework", None),
    "--gpus": ("gpus", None),
    "--hardware": ("hardware", None),
    "--host-memory": ("host_memory", None),
    "--output-format": ("output_format", frozenset(get_args(OutputFormat))),
}


def read(words: Sequence[str]) -> dict[str, Any] | None:
    """The arguments of :func:`oomlint.cli.checking.answer`; ``None`` if this is for click."""
    if "_OOMLINT_COMPLETE" in os.environ:  # a shell asks how a word could go on
        return None
    if words and words[0] in COMMANDS:
        if words[0] != "check":
            return None
        words = words[1:]
    paths: list[str] = []
    options: dict[str, Any] = {}
    left = iter(words)
    for word in left:
        if not word.startswith("-") or word == "-":
            paths.append(word)
        elif word in _FLAGS:
            name, value = _FLAGS[word]
            options[name] = value
        else:
            given = _given(word, left)
            if given is None:
                return None
            options |= given
    return {"paths": tuple(paths), **options}


def _given(word: str, left: Iterator[str]) -> dict[str, str] | None:
    """An option and its value, which is the next word or stands behind ``=``."""
    option, equals, value = word.partition("=")
    if option not in _VALUES:
        return None
    name, right = _VALUES[option]
    text = value if equals else next(left, None)
    return None if text is None or (right is not None and text not in right) else {name: text}
