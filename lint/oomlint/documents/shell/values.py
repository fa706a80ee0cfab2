"""What a shell computes from values that are known: sums, cut strings, tests, small pipelines.

Nothing is run. A program whose output would depend on the machine gives no answer.
"""

from __future__ import annotations

import fnmatch
import math
import operator
import os.path
import re
from collections.abc import Callable, Sequence

# -- arithmetic ------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d+)|(\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>()?:!~&|^]))"
)
_MOST_BITS = 64


def _divided(left: int, right: int) -> int:
    return math.trunc(left / right) if abs(left) < 2**53 else left // right


# bash(1), "ARITHMETIC EVALUATION", in rising precedence.
_BINARY: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "||": (1, lambda a, b: int(bool(a) or bool(b))),
    "&&": (2, lambda a, b: int(bool(a) and bool(b))),
    "|": (3, operator.or_),
    "^": (4, operator.xor),
    "&": (5, operator.and_),
    "==": (6, lambda a, b: int(a == b)),
    "!=": (6, lambda a, b: int(a != b)),
    "<": (7, lambda a, b: int(a < b)),
    ">": (7, lambda a, b: int(a > b)),
    "<=": (7, lambda a, b: int(a <= b)),
    ">=": (7, lambda a, b: int(a >= b)),
    "<<": (8, lambda a, b: a << min(max(b, 0), _MOST_BITS)),
    ">>": (8, lambda a, b: a >> min(max(b, 0), _MOST_BITS)),
    "+": (9, operator.add),
    "-": (9, operator.sub),
    "*": (10, operator.mul),
    "/": (10, _divided),
    "%": (10, lambda a, b: int(math.fmod(a, b))),
    "**": (11, lambda a, b: a ** min(max(b, 0), _MOST_BITS)),
}
_LONGEST_EXPRESSION = 400


def arithmetic(expression: str) -> int | None:
    """The value of an expression of plain numbers, ``None`` where it has none."""
    if len(expression) > _LONGEST_EXPRESSION:
        return None
    tokens: list[str] = []
    at = 0
    text = expression.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        tokens.append(match.group(1) or match.group(2))
        at = match.end()
    try:
        value = _Sum(tokens).whole()
    except (ValueError, ZeroDivisionError, OverflowError, RecursionError):
        return None
    return value if abs(value) < 2**_MOST_BITS else None


class _Sum:
    """Reads an expression from the left, weaker operators last."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0

    def whole(self) -> int:
        value = self._choice()
        if self.at != len(self.tokens):
            raise ValueError("more than one expression")
        return value

    def _next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _take(self, expected: str = "") -> str:
        token = self._next()
        if not token or (expected and token != expected):
            raise ValueError(f"expected {expected or 'a value'}")
        self.at += 1
        return token

    def _choice(self) -> int:
        condition = self._binary(1)
        if self._next() != "?":
            return condition
        self._take("?")
        first = self._choice()
        self._take(":")
        second = self._choice()
        return first if condition else second

    def _binary(self, weakest: int) -> int:
        left = self._single()
        while (rank := _BINARY.get(self._next(), (0, operator.add))[0]) >= weakest:
            sign = self._take()
            # `**` binds to the right.
            left = _BINARY[sign][1](left, self._binary(rank + (sign != "**")))
            if abs(left) >= 2 ** (2 * _MOST_BITS):
                raise OverflowError
        return left

    def _single(self) -> int:
        token = self._take()
        if token == "(":
            value = self._choice()
            self._take(")")
            return value
        if token == "-":
            return -self._single()
        if token == "+":
            return self._single()
        if token == "!":
            return int(not self._single())
        if token == "~":
            return ~self._single()
        # bash reads a leading zero as octal; a config that has one means what it says.
        return int(token, 16) if token[:2] in ("0x", "0X") else int(token)


# -- ${name operator} ------------------------------------------------------------------------

_OPERATION = re.compile(r"(##|#|%%|%|//|/|,,|,|\^\^|\^|:)(.*)", re.DOTALL)
_LONGEST_VALUE = 2000
_SLICE = re.compile(r"\s*(-?\d+)\s*(?::\s*(-?\d+)\s*)?")


def operated(value: str, operation: str) -> str | None:
    """What ``${name<operation>}`` makes of a value: cut, replaced, changed in case.

    ``None`` for an operation that is not known, or that needs other variables.
    """
    match = _OPERATION.fullmatch(operation)
    if match is None or "$" in operation or "`" in operation or len(value) > _LONGEST_VALUE:
        return None
    sign, argument = match.groups()
    if sign == ":":
        part = _SLICE.fullmatch(argument)
        if part is None:
            return None
        start, length = int(part[1]), part[2]
        end = None if length is None else int(length) + (start if int(length) >= 0 else 0)
        return value[start:end]
    if sign in (",,", "^^") and not argument:
        return value.lower() if sign == ",," else value.upper()
    if sign in ("#", "##", "%", "%%"):
        return _cut(value, _unquoted(argument), sign)
    if sign in ("/", "//"):
        pattern, _, new = _unescaped_slash(argument)
        return _replaced(value, pattern, _unquoted(new), everywhere=sign == "//")
    return None


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text.strip("\"'")) if "*" not in text else text.strip("\"'")


def _unescaped_slash(argument: str) -> tuple[str, str, str]:
    head, slash, tail = argument.replace("\\/", "\0").partition("/")
    return head.replace("\0", "/"), slash, tail.replace("\0", "/")


def _cut(value: str, pattern: str, sign: str) -> str:
    sizes = range(len(value) + 1)
    for size in reversed(sizes) if len(sign) == 2 else sizes:
        at_front = sign[0] == "#"
        part = value[:size] if at_front else value[len(value) - size :]
        if fnmatch.fnmatchcase(part, pattern):
            return value[size:] if at_front else value[: len(value) - size]
    return value


def _replaced(value: str, pattern: str, new: str, *, everywhere: bool) -> str | None:
    plain = _unquoted(pattern)
    if not plain or set(plain) & set("*?["):
        return None
    return value.replace(plain, new, -1 if everywhere else 1)


# -- tests -----------------------------------------------------------------------------------

_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}


def compared(left: str, sign: str, right: str) -> bool | None:
    """``[ left sign right ]``; ``None`` for what only the machine knows (``-nt``)."""
    if sign in ("=", "=="):
        return fnmatch.fnmatchcase(left, right)
    if sign == "!=":
        return not fnmatch.fnmatchcase(left, right)
    if sign in _COMPARED:
        first, second = arithmetic(left or "0"), arithmetic(right or "0")
        if first is not None and second is not None:
            return _COMPARED[sign](first, second)
    return None


# -- programs --------------------------------------------------------------------------------

_ESCAPES = {"\\n": "\n", "\\t": "\t"}


def output_of(program: Sequence[str], given: str | None) -> str | None:
    """What a small program prints: ``given`` is what it gets to read, or ``None``."""
    name, arguments = program[0].rpartition("/")[2], list(program[1:])
    if name in ("dirname", "basename", "realpath") and arguments[:1] == ["--"]:
        del arguments[0]  # the end of the options
    if name in ("echo", "printf") and given is None:
        return _printed(name, arguments)
    # Where the script runs, and where the project that it lies in begins: its paths lead on from there.
    if name == "pwd" or (name == "git" and arguments == ["rev-parse", "--show-toplevel"]):
        return "."
    if [name, *arguments][:-1] in (["command", "-v"], ["which"]):
        return arguments[-1]  # where it lies nobody knows: the same program all the same
    if name in ("realpath", "readlink"):
        paths = [word for word in arguments if not word.startswith("-")]
        return paths[0] if len(paths) == 1 else None
    if name == "dirname" and len(arguments) == 1:
        return os.path.dirname(arguments[0]) or "."
    if name == "basename" and arguments:
        base = os.path.basename(arguments[0].rstrip("/"))
        return base.removesuffix(arguments[1]) if len(arguments) > 1 else base
    if name == "expr":
        value = arithmetic(" ".join(arguments))
        return None if value is None else str(value)
    return _filtered(name, arguments, given) if given is not None else None


def _printed(name: str, arguments: list[str]) -> str | None:
    while arguments and name == "echo" and arguments[0] in ("-n", "-e", "-ne", "-en"):
        arguments = arguments[1:]
    if name == "printf":
        return None if len(arguments) != 1 or "%" in arguments[0] else arguments[0]
    return " ".join(arguments)


def _filtered(name: str, arguments: list[str], given: str) -> str | None:
    if name == "bc":
        value = arithmetic(given)
        return None if value is None else str(value)
    if name == "wc" and arguments in (["-l"], ["-w"]):
        lines = [line for line in given.rstrip("\n").split("\n") if given]
        return str(len(lines) if arguments == ["-l"] else len(given.split()))
    if name == "tr" and len(arguments) == 2:
        old, new = (_ESCAPES.get(word, word) for word in arguments)
        if old == "-d":
            return given.replace(new, "") if len(new) == 1 else None
        return given.replace(old, new) if len(old) == len(new) == 1 else None
    if name == "xargs" and not arguments:
        return " ".join(given.split())
    if name in ("awk", "gawk"):
        return _fields_counted(arguments, given)
    if name == "cut":
        return _cut_field(arguments, given)
    if name == "grep" and len(arguments) == 2 and arguments[0] == "-o":
        return "\n".join([arguments[1]] * given.count(arguments[1]))
    return None


def _fields_counted(arguments: list[str], given: str) -> str | None:
    """``awk -F, '{print NF}'``."""
    joined = " ".join(arguments)
    match = re.fullmatch(r"-F\s?(.)\s+\{\s*print\s+NF;?\s*\}", joined)
    return str(len(given.split(match[1]))) if match and "\n" not in given else None


def _cut_field(arguments: list[str], given: str) -> str | None:
    match = re.fullmatch(r"-d\s?(.) -f\s?(\d+)", " ".join(arguments))
    if match is None or "\n" in given:
        return None
    parts = given.split(match[1])
    number = int(match[2])
    return parts[number - 1] if 0 < number <= len(parts) else None
