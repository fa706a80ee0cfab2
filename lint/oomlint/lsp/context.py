"""Where in a half-written file the caret stands: at a key or a value, below which other keys.

While somebody types, a file cannot be parsed more often than not, so this goes by the look of
the text before the caret.
"""

from __future__ import annotations

import re

from msgspec import Struct

from oomlint.documents import (
    JSON_SUFFIXES,
    PYTHON_SUFFIXES,
    SHELL_SUFFIXES,
    TOML_SUFFIXES,
    YAML_SUFFIXES,
    kind_of,
)
from oomlint.documents.text import Source

_YAML_LINE = re.compile(r"^([ ]*)((?:- +)*)([\w.-]+)[ ]*:")
_YAML_KEY = re.compile(r"^([ ]*)((?:- +)*)([\w.-]*)$")
_YAML_VALUE = re.compile(r"^([ ]*)((?:- +)*)([\w.-]+)[ ]*:[ ]+['\"]?([\w./-]*)$")
_TOML_SECTION = re.compile(r"^[ \t]*\[([\w.-]+)\][ \t]*(?:#.*)?$", re.MULTILINE)
_TOML_KEY = re.compile(r"^[ \t]*([\w.-]*)$")
_TOML_VALUE = re.compile(
    r"^[ \t]*([\w.-]+)[ \t]*=[ \t]*(?:\[(?:[^\]]*[,\[ ])?)?[ \t]*([\"']?)([\w./-]*)$"
)
_FLAG = re.compile(r"(?:^|\s)--([\w.-]*)$")
_FLAG_VALUE = re.compile(r"(?:^|\s)--([\w.-]+)[ =]([\w./-]*)$")
_OVERRIDE = re.compile(r"(?:^|\s)\+{0,2}([\w.]*\.[\w.]*)$")
_OVERRIDE_VALUE = re.compile(r"(?:^|\s)\+{0,2}([\w.]+)=([\w./-]*)$")
_KEYWORD = re.compile(r"(?:[(,]|^)[ \t]*([A-Za-z_]\w*|)$")
_KEYWORD_VALUE = re.compile(r"(?:[(,]|^)[ \t]*([A-Za-z_]\w*)[ ]*=[ ]*[\"']?([\w./-]*)$")
_IGNORE = re.compile(r"#[ \t]*oomlint:[ \t]*ignore(?:-file)?\[(?:[^\]]*[, ])?([\w-]*)$")
_JSON_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"?|[{}\[\]:,]|[^\s{}\[\]:,"]+')

# What lies further back than this tells nothing about the line at hand.
_MOST_BACK = 400_000


class Context(Struct, frozen=True):
    """What is being written: ``typed`` of it stands before the caret.

    ``path`` is the dotted key whose value it is, or the keys that a new key stands below.
    """

    kind: str
    """``key``, ``value`` or ``rule``."""
    typed: str
    path: str = ""
    is_flat: bool = False
    """Keys are written in full: the flags of a command line."""
    is_quoted: bool = False


def context_at(source: Source, offset: int) -> Context | None:
    """The context of a caret, ``None`` where nothing of ours can be written."""
    text = source.text[max(0, offset - _MOST_BACK) : offset]
    line = re.split(r"\r\n|\r|\n", text)[-1]
    rule = _IGNORE.search(line)
    if rule is not None:
        return Context("rule", rule[1])
    kind = kind_of(source.path)
    if kind in YAML_SUFFIXES:
        return _yaml(text, line)
    if kind in JSON_SUFFIXES:
        return _json(text)
    if kind in TOML_SUFFIXES:
        return _toml(text, line)
    if kind in SHELL_SUFFIXES or kind == ".mk":
        return _flat(line, ((_FLAG_VALUE, _FLAG), (_OVERRIDE_VALUE, _OVERRIDE)))
    if kind in PYTHON_SUFFIXES:
        return _flat(line, ((_KEYWORD_VALUE, _KEYWORD),))
    return None


def _yaml(text: str, line: str) -> Context | None:
    value = _YAML_VALUE.match(line)
    key = None if value is not None else _YAML_KEY.match(line)
    match = value or key
    if match is None:
        return None
    above = _yaml_path(text, len(match[1]) + len(match[2]))
    if value is not None:
        return Context("value", value[4], _joined(above, value[3]))
    return Context("key", match[3], above)


def _yaml_path(text: str, indent: int) -> str:
    """The keys above a line of this indentation."""
    path: list[str] = []
    for line in reversed(re.split(r"\r\n|\r|\n", text)[:-1]):
        match = _YAML_LINE.match(line)
        if match is not None and len(match[1]) + len(match[2]) < indent:
            path.insert(0, match[3])
            indent = len(match[1]) + len(match[2])
        if indent == 0:
            break
    return ".".join(path)


def _toml(text: str, line: str) -> Context | None:
    sections = _TOML_SECTION.findall(text)
    section = sections[-1] if sections else ""
    value = _TOML_VALUE.match(line)
    if value is not None:
        path = _joined(section, value[1])
        return Context("value", value[3], path, is_quoted=bool(value[2]))
    key = _TOML_KEY.match(line)
    return None if key is None else Context("key", key[1], section)


def _json(text: str) -> Context | None:
    """Follows the brackets; of each object the key that is being given a value."""
    stack: list[str] = []
    key, after_colon, last = "", False, ""
    for match in _JSON_TOKEN.finditer(text):
        last = match.group()
        if last in "{[":
            stack.append(key if last == "{" else "")
            key, after_colon = "", False
        elif last in "}]":
            key, after_colon = (stack.pop() if stack else ""), False
        elif last == ":":
            after_colon = True
        elif last == ",":
            key, after_colon = "", False
        elif last.startswith('"') and not after_colon:
            key = last.strip('"')
    is_open = last.startswith('"') and not (len(last) > 1 and last.endswith('"'))
    typed = last[1:] if is_open else ""
    path = ".".join(part for part in stack if part)
    if not stack:
        return None
    if after_colon:
        return Context("value", typed, _joined(path, key), is_quoted=is_open)
    if is_open or last in ("{", ","):
        return Context("key", typed, path, is_quoted=is_open)
    return None


def _flat(line: str, pairs: tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]) -> Context | None:
    for value_pattern, key_pattern in pairs:
        key = key_pattern.search(line)
        if key is not None:
            return Context("key", key[1], is_flat=True)
        value = value_pattern.search(line)
        if value is not None:
            return Context("value", value[2], value[1], is_flat=True)
    return None


def _joined(above: str, key: str) -> str:
    return f"{above}.{key}" if above else key
