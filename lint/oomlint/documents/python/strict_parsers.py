"""Parsers that stop at what they do not know: which options one takes, what their values must be, which it requires.

Nothing is said of a parser that somebody else may add to: one that is handed to a function of another file, made of
another one, or asked to leave over what it does not know. CPython 3.13 Lib/argparse.py ``parse_args``, ``_get_values``,
``_get_option_tuples`` (a beginning stands for the option that alone begins so); transformers 5.23 ``hf_argparser.py``
``parse_args_into_dataclasses``, ``_parse_dataclass_field``; TRL 1.9 ``scripts/utils.py`` ``parse_args_and_config``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Final

from oomlint.documents.python.declared_options import Option, StrictParser
from oomlint.documents.python.scopes import call_name, dotted
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.walking import walk

_MAKES: Final = "ArgumentParser"
_MAKES_OF_CLASSES: Final = frozenset({"HfArgumentParser", "TrlParser", "H4ArgumentParser"})
ALL_MAKERS: Final = frozenset({_MAKES, *_MAKES_OF_CLASSES})
_GROUPS: Final = frozenset({"add_argument_group", "add_mutually_exclusive_group"})
# What may be done with a parser or a group: nothing adds options out of sight.
_METHODS: Final = frozenset(
    {
        "add_argument", "parse_args", "parse_args_into_dataclasses", "parse_args_and_config", "parse_yaml_file",
        "parse_json_file", "parse_dict", "print_help", "format_help", "print_usage", "error", "exit", *_GROUPS,
    }
)  # fmt: skip
PARSE_ARGS: Final = "parse_args"
_PARSES: Final = frozenset({PARSE_ARGS, "parse_args_into_dataclasses", "parse_args_and_config"})
_LENIENT: Final = frozenset(
    {"parse_known_args", "parse_intermixed_args", "parse_known_intermixed_args", "add_subparsers", "add_parser",
     "set_defaults", "register", "add_config_arguments", "cli", "Fire", "add_argparse_args"}
)  # fmt: skip
_CHANGES_WORDS: Final = re.compile(
    r"sys\.argv\s*(?:=[^=]|\+=|\[[^\]]*\]\s*=[^=]|\.(?:append|remove|pop|extend|insert|clear)\b)|from sys import argv"
)
# Actions that take no word (``nargs=0``): a positional argument of one is matched by nothing, and never missed.
_FLAGS: Final = frozenset(
    {"store_true", "store_false", "count", "help", "version", "store_const", "append_const"}
)
_NUMBERS: Final = frozenset({"int", "float"})


def is_strict(tree: Tree, text: str) -> bool:
    """Whether a file has one parser, declares all its options in sight, and has it stop at others."""
    makers = [call for name in ALL_MAKERS for call in tree.calls.get(name, [])]
    own = tree.scopes.functions
    parses = [
        call
        for name in _PARSES
        for call in tree.calls.get(name, [])
        # ``args = parse_args()``, where that is the file's own function around the parser
        if not (isinstance(call.func, ast.Name) and call.func.id in own)
    ]
    if len(makers) != 1 or len(parses) != 1 or any(name in tree.calls for name in _LENIENT):
        return False
    if _CHANGES_WORDS.search(text) or not _is_plain(makers[0]) or not _reads_command(parses[0]):
        return False
    holders = _holders(makers[0], parses[0], tree)
    return holders is not None and not _hands_over(holders, tree)


def made_command(tree: Tree, text: str) -> StrictParser | None:
    """The parameters of the one function that Python Fire makes the command of a file. It stops at a required one that is
    not given, and at what it does not know once the function has come back (fire 0.7 core.py ``_Fire``,
    ``_MakeParseFn``: *The function received no value for the required argument*)."""
    calls = tree.calls.get("Fire", [])
    if len(calls) != 1 or calls[0].keywords or len(calls[0].args) != 1:
        return None
    if any(name in tree.calls for name in _PARSES) or _CHANGES_WORDS.search(text):
        return None
    function = tree.scopes.functions.get(dotted(calls[0].args[0]) or "")
    if function is None or function.decorator_list:
        return None
    given = function.args
    plain = (*given.posonlyargs, *given.args)
    without = plain[: len(plain) - len(given.defaults)]
    by_name = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    required = {each.arg for each in without} | {each.arg for each, d in by_name if d is None}
    options = tuple(
        Option((each.arg,), "other", is_required=each.arg in required)
        for each in (*plain, *given.kwonlyargs)
    )
    return StrictParser(options, (), may_take_a_file=False, is_lenient=True)


def _is_plain(maker: ast.Call) -> bool:
    given = {keyword.arg for keyword in maker.keywords}
    return not given & {
        "parents",
        "prefix_chars",
        "argument_default",
        "fromfile_prefix_chars",
        None,
    }


def _reads_command(parses: ast.Call) -> bool:
    """Whether it is the command that is parsed, and nothing is left over."""
    return not parses.args and not parses.keywords


def _holders(maker: ast.Call, parses: ast.Call, tree: Tree) -> frozenset[str] | None:
    """The names of the parser and its groups, none of one that parses as it is made; ``None`` of one that is no plain
    variable."""
    found: set[str] = set()
    for node in tree.assignments:
        call = node.value
        if call is maker or (isinstance(call, ast.Call) and call_name(call) in _GROUPS):
            if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
                return None
            found.add(node.targets[0].id)
    is_at_once = isinstance(parses.func, ast.Attribute) and parses.func.value is maker
    return frozenset(found) if found or is_at_once else None


def _hands_over(holders: frozenset[str], tree: Tree) -> bool:
    """Whether anything else may be done with a parser than to add to it and to parse: it is handed to functions of the
    same file alone, which call it the same and whose additions are seen as well."""
    fine: set[int] = set()
    for node in tree.nodes:
        match node:
            case ast.Attribute(value=ast.Name(id=name) as holder, attr=method):
                if name in holders and method not in _METHODS:
                    return True
                fine.add(id(holder))
            case ast.Call(func=ast.Name(id=name)) if name in tree.scopes.functions:
                function = tree.scopes.functions[name]
                called = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}
                handed = (*node.args, *(keyword.value for keyword in node.keywords))
                fine |= {id(x) for x in handed if isinstance(x, ast.Name) and x.id in called}
            case ast.Return(value=ast.Name() as given):
                fine.add(id(given))
    loaded = (
        each
        for each in tree.of_kind(ast.Name)
        if isinstance(each.ctx, ast.Load) and each.id in holders
    )
    return any(id(each) not in fine for each in loaded)


# -- what its options are ----------------------------------------------------------------------------


def declared(tree: Tree) -> Iterator[Option]:
    """The options of the ``add_argument`` calls of a file."""
    for call in tree.calls_to("add_argument"):
        if isinstance(call.func, ast.Attribute):
            words = [a.value for a in call.args if isinstance(a, ast.Constant)]
            yield _option(call, [word for word in words if isinstance(word, str)])


def _option(call: ast.Call, words: list[str]) -> Option:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    names = tuple(word.lstrip("-").replace("-", "_") for word in words)
    is_positional = bool(words) and not words[0].startswith("-")
    action, nargs = _text(given.get("action")), given.get("nargs")
    is_flag = action in _FLAGS or (action is None and "action" in given)
    if is_flag and action is None:  # argparse.BooleanOptionalAction
        names = (*names, *(f"no_{name}" for name in names))
    kind = dotted(given["type"]) if "type" in given else "other"
    optional = action in _FLAGS or (
        isinstance(nargs, ast.Constant) and nargs.value in ("?", "*", 0)
    )
    required = given.get("required")
    stores = action in ("store", "append", "extend") or not {"action", None} & given.keys()
    return Option(
        names,
        kind if kind in _NUMBERS and not is_flag and "choices" not in given else "other",
        tuple(_words_of(given.get("choices"))) if kind in ("other", "str") else (),
        (is_positional and not optional and "default" not in given)
        or (isinstance(required, ast.Constant) and required.value is True),
        is_positional,
        stores and not is_positional and (nargs is None or _is_count(nargs)),
    )


def given_name(call: ast.Call) -> str | None:
    """The attribute under which an option is found (CPython 3.13 argparse.py ``_get_optional_kwargs``: the first long
    one); ``None`` where only running tells."""
    if any(keyword.arg is None for keyword in call.keywords):
        return None
    named = next((each.value for each in call.keywords if each.arg == "dest"), None)
    if named is not None:
        return _text(named)
    words = [_text(each) for each in call.args]
    if not words or None in words:
        return None
    long = [word for word in words if word and word.startswith("--")]
    return (long or [word for word in words if word])[0].lstrip("-").replace("-", "_")


def _is_count(nargs: ast.expr) -> bool:
    """Whether at least one word is due."""
    value = nargs.value if isinstance(nargs, ast.Constant) else None
    return value == "+" or (isinstance(value, int) and value > 0)


def _text(node: ast.expr | None) -> str | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else None


def _words_of(choices: ast.expr | None) -> Iterable[str]:
    if not isinstance(choices, (ast.List, ast.Tuple, ast.Set)):
        return ()
    words = [_text(each) for each in choices.elts]
    return [word for word in words if word is not None] if all(words) else ()


def fields(cls: ast.ClassDef) -> Iterator[Option]:
    """The options that the own fields of a dataclass become."""
    for statement in cls.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        written = ast.unparse(statement.annotation).strip("'\"")
        inner = re.sub(r"^(?:typing\.)?Optional\[(.*)\]$", r"\1", written).removesuffix(" | None")
        given = _field_keywords(statement.value)
        if written.startswith(("ClassVar", "typing.ClassVar")) or _is_off(given.get("init")):
            continue
        name = statement.target.id
        names = (f"no_{name}", name) if inner == "bool" else (name,)
        has_default = statement.value is not None and (
            not _is_field(statement.value) or bool({"default", "default_factory"} & given.keys())
        )
        kind = inner if inner in _NUMBERS else "other"
        # Of ``Union[bool, str]`` transformers 5.23 hf_argparser.py makes a switch, too.
        wants_word = "bool" not in written and not {"nargs", "action", "const"} & given.keys()
        yield Option(names, kind, (), not has_default, wants_word=wants_word)


def has_aliases(cls: ast.ClassDef) -> bool:
    """Whether its fields have other names as options, by their metadata."""
    return any(isinstance(node, ast.Constant) and node.value == "aliases" for node in walk(cls))


def _is_field(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and call_name(value) in ("field", "HfArg")


def _field_keywords(value: ast.expr | None) -> dict[str | None, ast.expr]:
    if value is None or not isinstance(value, ast.Call):
        return {}
    return {keyword.arg: keyword.value for keyword in value.keywords}


def _is_off(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
