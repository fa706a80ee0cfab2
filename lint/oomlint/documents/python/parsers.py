"""Options that a Python script parses: argparse, HfArgumentParser's dataclasses, fire and typer."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping as MappingABC
from typing import Final

from msgspec import Struct

from oomlint.documents.python.scopes import Binding, FunctionNode, Scope, dotted
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.walking import walk

_PARSES: Final = frozenset(
    {"parse_args_into_dataclasses", "parse_args_and_config", "parse_dict", "parse_yaml_file"}
)
# argparse's own; what follows the known options is left in a second value.
PARSES_ARGUMENTS: Final = frozenset({"parse_args", "parse_known_args"})


class Switch(ast.Constant):
    """The default of ``action="store_true"``: known, but there is no text of it to edit."""


def argparse_defaults(tree: Tree) -> dict[str, ast.expr]:
    """Default expressions of options by destination; options without one are left out, and so are those that
    several parsers of the file have."""
    adds: dict[str, list[ast.Call]] = {}
    for node in tree.calls_to("add_argument"):
        destination = _destination(node) if isinstance(node.func, ast.Attribute) else None
        if destination is not None:
            adds.setdefault(destination, []).append(node)
    sets: dict[str, list[ast.Call]] = {}
    for node in tree.calls_to("set_defaults"):
        if isinstance(node.func, ast.Attribute):
            for keyword in node.keywords:
                sets.setdefault(keyword.arg or "", []).append(node)
    found = {name: _default(name, each, sets.get(name, []), tree) for name, each in adds.items()}
    return {name: value for name, value in found.items() if value is not None}


def scopes_of_defaults(tree: Tree) -> dict[int, Scope]:
    """In which scope the default of an option is written, by ``id`` of its expression: a function that makes the parser
    may import or assign the names in it."""
    found: dict[int, Scope] = {}
    for call in tree.calls_to("add_argument", "set_defaults"):
        for keyword in call.keywords:
            found[id(keyword.value)] = tree.scope_of[id(call)]
    return found


def _default(name: str, adds: list[ast.Call], sets: list[ast.Call], tree: Tree) -> ast.expr | None:
    """What an option holds where nobody gives it. Of several that share a destination it is the default of the
    first; ``set_defaults`` replaces those of the options before it, and is there for the ones behind it that
    have none of their own (CPython 3.13 Lib/argparse.py parse_known_args, set_defaults, add_argument)."""
    calls = sorted((*adds, *sets), key=lambda call: (call.lineno, call.col_offset))
    if len({_parser_of(call, tree) for call in calls}) > 1:
        return None
    defaults: list[ast.expr | None] = []
    preset: ast.expr | None = None
    for call in calls:
        own = _option_default(call)
        if call in sets:
            if not _always_runs(call, tree):
                return None
            preset = next(keyword.value for keyword in call.keywords if keyword.arg == name)
            defaults = [preset] * len(defaults)
        elif preset is not None and not any(keyword.arg == "default" for keyword in call.keywords):
            defaults.append(preset)
        elif own is None or not (dotted(own) or "").endswith("SUPPRESS"):
            defaults.append(own)
    return defaults[0] if defaults else preset


def unpacked_defaults(name: str, tree: Tree) -> list[tuple[ast.Call, ast.expr]]:
    """What is unpacked as defaults of the parser that has an option, ``parser.set_defaults(**config)``, with the
    calls, in their order: each replaces those before it (CPython 3.13 Lib/argparse.py set_defaults)."""
    sets = list(_unpacked(tree.calls_to("set_defaults")))
    if not sets:
        return []
    adds = tree.calls_to("add_argument")
    parsers = {_parser_of(call, tree) for call in adds if _destination(call) == name}
    found = [(call, value) for call, value in sets if _parser_of(call, tree) in parsers]
    return sorted(found, key=lambda each: (each[0].lineno, each[0].col_offset))


def unpacked_in(function: FunctionNode) -> list[tuple[ast.Call, ast.expr]]:
    """What a function that parses unpacks as defaults of its parser, with the calls."""
    return list(_unpacked(node for node in walk(function) if isinstance(node, ast.Call)))


def _unpacked(calls: Iterable[ast.Call]) -> Iterator[tuple[ast.Call, ast.expr]]:
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "set_defaults":
            yield from ((call, each.value) for each in call.keywords if each.arg is None)


_GROUPS: Final = frozenset({"add_argument_group", "add_mutually_exclusive_group"})


def _parser_of(call: ast.Call, tree: Tree) -> tuple[int, str]:
    """The parser that a method is called on, by its name and the scope of it, through groups of its options."""
    scope = tree.scope_of[id(call)]
    holder = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    for _ in range(_DEEPEST_GROUP):
        made: ast.expr | None = holder
        if isinstance(holder, ast.Name) and (found := scope.find(holder.id)) is not None:
            scope, bindings = found
            made = bindings[0].value if len(bindings) == 1 else None
        match made:
            case ast.Call(func=ast.Attribute(value=parser, attr=method)) if method in _GROUPS:
                holder = parser
            case _:
                break
    return id(scope), dotted(holder) or ast.dump(holder)


# argparse itself warns of groups in groups (CPython 3.13 Lib/argparse.py _ArgumentGroup).
_DEEPEST_GROUP: Final = 3


def _always_runs(call: ast.Call, tree: Tree) -> bool:
    """Whether a call is a statement of its function or file, in no block that may be passed by."""
    body = getattr(tree.scope_of[id(call)].node, "body", ())
    return any(isinstance(each, ast.Expr) and each.value is call for each in body)


class Stored(Struct, frozen=True):
    """What an option does that has no value: the constant that it stores, and where."""

    destination: str
    value: bool


def stored_constants(tree: Tree) -> dict[str, Stored]:
    """The options that store a constant elsewhere than under their own name, or ``False``: the twin
    ``--no_x`` of ``--x``, and the one that ``BooleanOptionalAction`` adds. Spelt with underscores."""
    found: dict[str, Stored] = {}
    for node in tree.calls_to("add_argument"):
        destination = _destination(node)
        action = next((k.value for k in node.keywords if k.arg == "action"), None)
        if destination is None or action is None:
            continue
        words = [a.value for a in node.args if isinstance(a, ast.Constant)]
        names = [w.lstrip("-").replace("-", "_") for w in words if isinstance(w, str)]
        if isinstance(action, ast.Constant) and action.value in ("store_true", "store_false"):
            is_on = action.value == "store_true"
            named = {n: Stored(destination, is_on) for n in names if n != destination or not is_on}
            found.update(named)
        elif _is_twofold(action):
            found.update({f"no_{name}": Stored(destination, False) for name in names})
    return found


def _is_twofold(action: ast.expr | None) -> bool:
    """``argparse.BooleanOptionalAction``: ``--x`` and ``--no-x`` (CPython 3.13 Lib/argparse.py)."""
    return action is not None and (dotted(action) or "").endswith("BooleanOptionalAction")


class ArgparseNames(Struct, frozen=True):
    """Destinations of ``add_argument`` calls; ``are_all`` is false where one is computed."""

    known: frozenset[str]
    are_all: bool


def argparse_names(tree: Tree) -> ArgparseNames:
    """Every option that a file adds to a parser, those of click's decorators too."""
    known: set[str] = set()
    are_all = True
    for node in tree.calls_to("add_argument", "option"):
        adds = isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
        if not (adds or dotted(node.func) == "click.option"):
            continue
        spelled = {
            a.value.lstrip("-").partition("/")[0].replace("-", "_")
            for a in node.args
            if isinstance(a, ast.Constant) and isinstance(a.value, str)
        }
        known |= spelled
        if any(_is_twofold(keyword.value) for keyword in node.keywords if keyword.arg == "action"):
            known |= {f"no_{name}" for name in spelled}
        are_all &= bool(spelled)
    return ArgparseNames(frozenset(known), are_all)


def option_names(tree: Tree) -> dict[str, tuple[str, ...]]:
    """How a command line may spell the options that a file adds to a parser, by destination: without
    dashes in front, and with underscores for those inside."""
    found: dict[str, tuple[str, ...]] = {}
    for node in tree.calls_to("add_argument", "option"):
        destination = _destination(node)
        if destination is not None:
            words = (a.value for a in node.args if isinstance(a, ast.Constant))
            spelled = (w.lstrip("-").replace("-", "_") for w in words if isinstance(w, str))
            found[destination] = tuple(dict.fromkeys((*spelled, destination)))
    return found


def positional_names(tree: Tree) -> tuple[str, ...]:
    """The arguments of a parser that are no options, in their order."""
    adds = tree.calls_to("add_argument")
    first = (a.args[0] for a in sorted(adds, key=lambda call: call.lineno) if a.args)
    words = (a.value for a in first if isinstance(a, ast.Constant))
    return tuple(w for w in words if isinstance(w, str) and not w.startswith("-"))


def _destination(call: ast.Call) -> str | None:
    for keyword in call.keywords:
        if keyword.arg == "dest":
            value = keyword.value
            return value.value if _is_text(value) else None  # type: ignore[attr-defined]
    names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if not names or len(names) != len(call.args):
        return None
    name = next((n for n in names if n.startswith("--")), names[0])
    return name.lstrip("-").replace("-", "_")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _option_default(call: ast.Call) -> ast.expr | None:
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if "default" in keywords:
        return keywords["default"]
    action = keywords.get("action")
    if isinstance(action, ast.Constant) and action.value in ("store_true", "store_false"):
        return ast.copy_location(Switch(action.value == "store_false"), action)
    return None


def are_parsed(bindings: list[Binding], tree: Tree) -> bool:
    """Whether a name is what a parser gives, where it is bound more than once each time."""
    is_plain = len(bindings) == 1 or all(binding.kind == "value" for binding in bindings)
    return is_plain and all(comes_from_parser(binding, tree) for binding in bindings)


def comes_from_parser(binding: Binding, tree: Tree) -> bool:
    """``args = parser.parse_args()``, ``args = get_args()`` or what else a function of the file is called that
    parses, or a parameter that holds it."""
    if binding.kind == "parameter":
        return binding.value is None
    value = binding.value
    if isinstance(value, ast.Subscript):
        value = value.value
    if not isinstance(value, ast.Call):
        return binding.kind == "other"
    name = (dotted(value.func) or "").rsplit(".", 1)[-1]
    if "parse" in name or name in ("get_args", "arguments", "get_arguments"):
        return True
    return isinstance(value.func, ast.Name) and name in _that_parse(tree)


def _that_parse(tree: Tree) -> Iterator[str]:
    """The functions of a file that call a parser and give back what it found."""
    for call in tree.calls_to("parse_args", "parse_known_args"):
        function = tree.scope_of[id(call)].node
        if isinstance(function, ast.FunctionDef) and any(_gives(function)):
            yield function.name


def _gives(function: ast.FunctionDef) -> Iterator[bool]:
    return (isinstance(node, ast.Return) and node.value is not None for node in walk(function))


def dataclass_variables(tree: Tree) -> dict[str, str]:
    """Variables filled by ``HfArgumentParser((A, B)).parse_args_into_dataclasses()``, each with the
    name of its class, which a library may define."""
    parsers: dict[str, list[str]] = {}
    found: dict[str, str] = {}
    ambiguous: set[str] = set()
    if not any(tree.calls_to("cli", *_PARSES)):
        return found
    for node in tree.assignments:
        if len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        classes = (
            None if dotted(getattr(value, "func", value)) == "tyro.cli" else parser_classes(value)
        )
        if classes is not None and isinstance(target, ast.Name):
            parsers[target.id] = classes
            continue
        names = _parsed_names(target, value, parsers)
        for name, cls in names:
            if found.get(name, cls) != cls:
                ambiguous.add(name)
            found[name] = cls
    return {name: cls for name, cls in found.items() if name not in ambiguous}


# Makers of parsers from dataclasses: transformers', TRL's, and those that projects make of them; tyro.
_TAKE_A_FILE: Final = ("TrlParser", "H4ArgumentParser", "ArgumentParserPlus")
_PARSERS: Final = ("HfArgumentParser", *_TAKE_A_FILE)


def takes_a_file(call: ast.Call) -> bool:
    """Whether a parser takes a YAML of its options beside them (TRL f2cd5771 scripts/utils.py TrlParser;
    alignment-handbook 925acdfe src/alignment/configs.py)."""
    return (dotted(call.func) or "").rsplit(".", 1)[-1] in _TAKE_A_FILE


def parsed_classes(tree: Tree) -> Iterator[tuple[ast.Call, list[str]]]:
    """Every call that makes a parser of dataclasses, with these."""
    for call in tree.calls_to("cli", *_PARSERS):
        classes = parser_classes(call)
        if classes is not None:
            yield call, classes


def parser_classes(value: ast.expr) -> list[str] | None:
    """The dataclasses whose fields ``HfArgumentParser((A, B))`` makes options, as written."""
    if not isinstance(value, ast.Call) or not value.args:
        return None
    name = dotted(value.func) or ""
    if name.rsplit(".", 1)[-1] not in _PARSERS and name != "tyro.cli":
        return None
    first = value.args[0]
    elements = first.elts if isinstance(first, (ast.Tuple, ast.List)) else [first]
    return [dotted(element) or "" for element in elements]


def _parsed_names(
    target: ast.expr, value: ast.expr, parsers: dict[str, list[str]]
) -> list[tuple[str, str]]:
    index: int | None = None
    if isinstance(value, ast.Subscript):
        if isinstance(value.slice, ast.Constant) and isinstance(value.slice.value, int):
            index = value.slice.value
        value = value.value
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return []
    if dotted(value.func) == "tyro.cli" and isinstance(target, ast.Name):
        return [(target.id, name) for name in parser_classes(value) or ()]
    if value.func.attr not in _PARSES:
        return []
    holder = value.func.value
    classes = parser_classes(holder) or parsers.get(dotted(holder) or "", [])
    if isinstance(target, ast.Name) and index is not None and 0 <= index < len(classes):
        return [(target.id, classes[index])]
    elements = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
    return [
        (element.id, cls)
        for element, cls in zip(elements, classes, strict=False)
        if isinstance(element, ast.Name)
    ]


def field_default(cls: ast.ClassDef | None, attribute: str) -> ast.expr | None:
    """The default of a dataclass field, from ``= value`` or ``= field(default=value)``."""
    if cls is None or not any("dataclass" in ast.dump(d) for d in cls.decorator_list):
        return None
    for statement in cls.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if statement.target.id != attribute or statement.value is None:
            continue
        value = statement.value
        if isinstance(value, ast.Call) and (dotted(value.func) or "").endswith("field"):
            return next((k.value for k in value.keywords if k.arg == "default"), None)
        return value
    return None


_TAKE_A_FUNCTION: Final = frozenset({"fire.Fire", "Fire", "typer.run"})


def fire_functions(tree: Tree) -> set[ast.AST]:
    """Functions whose parameters are options: ``fire.Fire(train)``, ``typer.run(train)``."""
    names = set(_taken_functions(tree))
    return {node for node in tree.functions if node.name in names and node in tree.root.body}


def _taken_functions(tree: Tree) -> Iterator[str | None]:
    for call in tree.calls_to("Fire", "run"):
        if call.args and dotted(call.func) in _TAKE_A_FUNCTION:
            yield dotted(call.args[0])


def command_functions(
    tree: Tree, functions: MappingABC[str, FunctionNode]
) -> Iterator[FunctionNode]:
    """Functions whose parameters are options: those of fire and typer, by call or decorator."""
    for name in _taken_functions(tree):
        function = functions.get(name or "")
        if function is not None:
            yield function
    for function in functions.values():
        marks = (d.func if isinstance(d, ast.Call) else d for d in function.decorator_list)
        if any((dotted(mark) or "").endswith("app.command") for mark in marks):
            yield function
