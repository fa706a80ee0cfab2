"""Which texts a value may be, where it is not settled which of them: the names in the branches that give it, in the
dictionary that an option chooses from, behind the parameters of functions of the project.

The evaluator (:mod:`.values`) says what a value is; this says what it may be, of which whoever takes one assumes it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN
from oomlint.documents.python.branches import Tests
from oomlint.documents.python.configs.paths import At
from oomlint.documents.python.environment import variable_asked
from oomlint.documents.python.nodes import PythonScalar, option_of
from oomlint.documents.python.parsers import are_parsed, argparse_names
from oomlint.documents.python.plain_values import plain_value
from oomlint.documents.python.possible_values import Choice, Walk, possible_values
from oomlint.documents.python.scopes import call_name

# More names than these are a catalogue, of which nobody knows which one is meant.
_MOST: Final = 24
# What leaves a name or a path as it is, or nearly so.
_SAME: Final = frozenset(
    {"str", "Path", "PurePath", "abspath", "realpath", "expanduser", "expandvars", "normpath", "fspath", "resolve",
     "absolute", "as_posix", "strip", "rstrip", "lstrip", "to_absolute_path"}
)  # fmt: skip
# huggingface_hub 1.1 _snapshot_download.py, modelscope 1.40 hub/snapshot_download.py: the folder of a model's copy.
_DOWNLOADS: Final = "snapshot_download"
_OF_DOWNLOAD: Final = ("repo_id", "model_id")


class PossibleName(Struct, frozen=True):
    """A text that a value may be."""

    text: str
    """Empty of an option without a default."""
    option: str = ""
    """The option whose value it is, if it has no ``key``; else the one that chooses it."""
    key: str | None = None
    """What the option says where it chooses this."""
    is_default: bool | None = None
    """Whether it chooses this where the command does not say; ``None`` where it has no default."""
    is_override: bool = False
    """Whether it takes the place of another under a test of which nothing is known."""
    is_end: bool = False
    """Whether it is the end of a path whose beginning only running tells."""


def possible_names(expression: ast.expr, at: At) -> tuple[PossibleName, ...]:
    """The texts that an expression may be; none where there are too many."""
    found = tuple(dict.fromkeys(_Walk().names(expression, at)))
    return () if len(found) > _MOST else found


class _Walk:
    """One walk back from a value to the texts that it may be."""

    def __init__(self, beside: Walk | None = None) -> None:
        self._walk = Walk(beside)

    def names(self, expression: ast.expr, at: At) -> Iterator[PossibleName]:
        with self._walk.step(expression, at, "names") as goes_on:
            if goes_on:
                yield from self._names(expression, at)

    def _names(self, expression: ast.expr, at: At) -> Iterator[PossibleName]:
        node = at.home.node(expression, at.scope)
        value, option = plain_value(node), option_of(node)
        is_choice = isinstance(node, PythonScalar) and node.either is not None
        if isinstance(value, str) and value:
            yield PossibleName(value, "" if is_choice else option)
        elif option and not is_choice and value in (None, "", UNKNOWN):
            yield PossibleName("", option)
        else:
            yield from self._behind(expression, at)

    def _behind(self, expression: ast.expr, at: At) -> Iterator[PossibleName]:
        match expression:
            case ast.IfExp(test=test, body=body, orelse=other):
                yield from self._under(((test, True),), self.names(body, at.deeper), at)
                yield from self._under(((test, False),), self.names(other, at.deeper), at)
            case ast.BoolOp(op=ast.Or(), values=values):
                for each in values:
                    yield from self.names(each, at.deeper)
            case ast.JoinedStr() | ast.BinOp(op=ast.Add() | ast.Div()):
                yield from self._end(expression, at)
            case ast.Call():
                yield from self._of_call(expression, at)
            case ast.Attribute(attr=option) if parsed := _parsed_at(
                expression.value, option, at, self._walk
            ):
                yield from self._of_option(option, parsed)
            case _:
                yield from self._of_values(expression, at)

    def _of_option(self, option: str, parsed: At) -> Iterator[PossibleName]:
        """An option of the command line, by its default in the file that parses it."""
        default = parsed.home.options.get(option)
        found: list[PossibleName] = []
        if default is not None:
            written = At(parsed.home.scope_of_default(default), parsed.home)
            found = [each for each in self.names(default, written) if each.text]
        yield from (replace(each, option=option, key=None) for each in found[:1])
        if not found:
            yield PossibleName("", option)

    def _of_call(self, call: ast.Call, at: At) -> Iterator[PossibleName]:
        last = call_name(call)
        if variable_asked(call, at.scope) is not None:
            return  # what the command sets it to is not known: its default is none of them
        if last in _SAME:
            receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
            same = call.args[0] if call.args else receiver
            yield from () if same is None else self.names(same, at.deeper)
        elif last == _DOWNLOADS:
            given = (*(k.value for k in call.keywords if k.arg in _OF_DOWNLOAD), *call.args)
            for each in given[:1]:
                yield from self.names(each, at.deeper)
        elif last in ("join", "joinpath", "format"):
            yield from self._end(call, at)
        else:
            yield from self._of_values(call, at)

    def _of_values(self, expression: ast.expr, at: At) -> Iterator[PossibleName]:
        """What a name, an attribute, an item or a call stands for, with what chooses it."""
        for each in possible_values(expression, at, self._walk):
            names = self._under(each.tests, self.names(each.value, each.at), each.at)
            chosen = {} if each.choice is None else self._by_key(each.choice)
            yield from (replace(name, **chosen) for name in names)

    # -- which one is taken --------------------------------------------------------------------------

    def _under(self, tests: Tests, names: Iterator[PossibleName], at: At) -> Iterator[PossibleName]:
        """Names that stand under tests: chosen by an option where the innermost compares one to a text, in the place
        of others where it asks anything else."""
        chosen = self._chosen_by(*tests[-1], at) if tests else {}
        for each in names:
            yield replace(each, **chosen) if each.text and each.key is None else each

    def _chosen_by(self, test: ast.expr, holds: bool, at: At) -> dict[str, Any]:
        match test:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]) if holds:
                chosen = self._by_key(Choice(right, at, left, at))
                if chosen:
                    return chosen
        return {"is_override": True} if holds else {}

    def _by_key(self, choice: Choice) -> dict[str, Any]:
        """What an option says where it chooses a name, and whether it does by default."""
        key = choice.at.home.value(choice.key, choice.at.scope)
        asked = _Walk(self._walk).names(choice.asked, choice.asked_at)
        options = {each.option: each.text for each in asked if each.key is None}
        if len(options) != 1 or not isinstance(key, str):
            return {}
        ((option, default),) = options.items()
        is_default = key == default if default else None
        return {"option": option, "key": key, "is_default": is_default} if option else {}

    # -- ends of paths -------------------------------------------------------------------------------

    def _end(self, expression: ast.expr, at: At) -> Iterator[PossibleName]:
        """A text that is put together; of a path whose beginning is not known its end: ``f"{root}/Qwen2.5-7B"``."""
        pieces = list(self._pieces(expression, at))
        unknown = max((n for n, each in enumerate(pieces) if each is None), default=-1)
        end = "".join(each or "" for each in pieces[unknown + 1 :])
        if unknown < 0 and end:
            yield PossibleName(end)
        elif end.startswith("/") and end.strip("/"):
            yield PossibleName(end.strip("/"), is_end=True)

    def _pieces(self, expression: ast.expr, at: At) -> Iterator[str | None]:
        """What a text is put together of, in order; ``None`` of a part that is not known."""
        match expression:
            case ast.JoinedStr(values=parts):
                for part in parts:
                    yield from self._pieces(part, at)
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                yield from self._pieces(value, at)
            case ast.BinOp(left=left, op=ast.Add() | ast.Div() as op, right=right):
                yield from self._pieces(left, at)
                yield from ("/",) if isinstance(op, ast.Div) else ()
                yield from self._pieces(right, at)
            case ast.Call(
                func=ast.Attribute(value=ast.Constant(value=str(form)), attr="format"), args=given
            ) if form.count("{}") == len(given) and form.count("{") == len(given):
                first, *others = form.split("{}")
                yield first
                for each, text in zip(given, others, strict=True):
                    yield from self._pieces(each, at)
                    yield text
            case ast.Call(func=ast.Attribute(value=holder, attr="join" | "joinpath" as method)):
                parts = [holder, *expression.args] if method == "joinpath" else expression.args
                for number, each in enumerate(parts):
                    yield from ("/",) if number else ()
                    yield from self._pieces(each, at)
            case _:
                texts = {each.text for each in self.names(expression, at.deeper)}
                yield texts.pop() if len(texts) == 1 and "" not in texts else None


def _parsed_at(holder: ast.expr, option: str, at: At, walk: Walk) -> At | None:
    """Where an object is what a parser of the command line gave, also behind the parameters that it is handed on by;
    ``None`` of any other."""
    found = at.scope.find(holder.id) if isinstance(holder, ast.Name) else None
    with walk.step(holder, at, "parsed") as goes_on:
        if found is None or not goes_on:
            return None
        for each in possible_values(holder, at, walk):
            parsed = _parsed_at(each.value, option, each.at, walk)
            if parsed is not None:
                return parsed
    tree = at.home.tree
    is_handed = any(binding.kind == "parameter" for binding in found[1])
    # Whatever hands it on is not seen: it is one if this very file declares such an option.
    is_known = not is_handed or option in argparse_names(tree).known
    return at if is_known and are_parsed(found[1], tree) else None
