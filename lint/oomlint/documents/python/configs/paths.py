"""Which file a script opens: by a literal path, the default of an option, or what its command says.

``open(args.config)``, ``Path(__file__).parent / "config.yaml"``, ``sys.argv[1]``: nothing is run, and a
path that the text does not settle is none.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping as MappingABC
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.base import Scalar
from oomlint.documents.python.order import given_later
from oomlint.documents.python.parsers import are_parsed, option_names, positional_names
from oomlint.documents.python.respelt_paths import SAME_PATH, as_given
from oomlint.documents.python.scopes import Binding, FunctionNode, Scope, dotted
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.walking import walk

if TYPE_CHECKING:
    from oomlint.documents.python.values import Evaluator

_DEEPEST: Final = 24
# Packages hand on what their modules define.
_MOST_HANDED_ON: Final = 4


class At(Struct, frozen=True, eq=False):
    """Where an expression stands: in which scope of whose module, inside which call that is followed, and how
    many steps it is away from what was asked."""

    scope: Scope
    home: Evaluator
    frame: CallFrame | None = None
    depth: int = 0

    @property
    def deeper(self) -> At:
        return self.within(self.scope)

    def within(self, scope: Scope) -> At:
        """One step further, in another scope of the module."""
        return At(scope, self.home, self.frame, self.depth + 1)

    @property
    def is_too_deep(self) -> bool:
        return self.depth > _DEEPEST

    def imported(self, name: str) -> tuple[ast.expr, At] | None:
        """What an imported name is in the module of the project that has it."""
        found = self.home.elsewhere(name, self.scope)
        if found is None:
            return None
        there, inner = found
        return inner, At(there.scopes.module, there, depth=self.depth + 1)

    def called(self, function: ast.AST) -> CallFrame | None:
        """The call of a function that is followed here, if one is."""
        frame = self.frame
        while frame is not None and frame.function is not function:
            frame = frame.at.frame
        return frame


class CallFrame(Struct, frozen=True, eq=False):
    """One call of a function, and where that stands: there its parameters come from."""

    function: FunctionNode
    call: ast.Call
    at: At


class ConfigPaths:
    """The paths that a script opens files by, as one command starts it.

    Args:
        options: what the command says to the script, by the names of options without dashes;
            of its words that are no options the first is ``"1"``, ``"key="`` is one of ``key=value``, and
            ``"$NAME"`` a variable of the environment that it sets; ``None`` of what only the shell knows (``--config $CONFIG``), which is
            no path, nor the default.
    """

    def __init__(self, options: MappingABC[str, str | None]) -> None:
        self.options = dict(options)
        self.told = 0
        """How often something was asked that the command says."""
        self.asked: set[str] = set()
        """Options that name a config file, and variables of the environment that the script asks for."""
        self.left_open = 0
        """How often something was taken that the environment may say otherwise: whoever sees it grow
        depends on that."""

    def given(self, name: str, owner: Scope, at: At) -> Iterator[tuple[ast.expr, At]]:
        """What the calls of a function give its parameter: one, where one is followed."""
        home, followed = at.home, at.called(owner.node)
        if followed is None:
            handed = home.handed.get((id(owner.node), name))
            if handed is not None:
                for said, scope, caller in handed:
                    yield said, At(scope, caller, depth=at.depth + 1)
                return
            for said, scope in home.given.get((id(owner.node), name), ()):
                yield said, At(scope, home, depth=at.depth + 1)
            for said, scope, caller in home.by_programs.get((id(owner.node), name), ()):
                yield said, At(scope, caller, depth=at.depth + 1)
            return
        value = argument_of(followed.call, followed.function, name)
        if value is not None:
            yield value, replace(followed.at, depth=at.depth + 1)
        else:
            default = default_of(followed.function, name)
            if default is not None:
                yield default, At(home.scopes.module, home, depth=at.depth + 1)

    def path(self, expression: ast.expr, at: At) -> str | None:
        """The path that an expression is, as this command starts the script; nothing counts as asked."""
        asked = set(self.asked)
        found = self._path(expression, at)
        self.asked = asked
        return found

    def folders_added(self, method: str, tree: Tree, home: Evaluator) -> Iterator[str]:
        """The folders that a script adds to those in which Python looks for modules, by ``sys.path.insert(0, folder)``
        or ``append``."""
        for call in tree.calls_to(method):
            if dotted(call.func) == f"sys.path.{method}" and call.args:
                folder = self._path(call.args[-1], At(tree.scope_of[id(call)], home))
                if folder is not None:
                    yield posixpath.normpath(folder)

    def stream(self, expression: ast.expr, call: ast.Call, at: At) -> str | None:
        """The path of the file whose text a loader is given: ``open(path)``, the name that a ``with``
        gives it, ``Path(path).read_text()``; of OmegaConf and toml the path itself."""
        if isinstance(expression, ast.Name):
            opened = _opened(expression.id, call, at.scope)
            if opened is not None:
                return self.stream(opened, call, at.deeper)
            found = at.scope.find(expression.id)
            value = found[1][0].value if found is not None and len(found[1]) == 1 else None
            if isinstance(value, ast.Call):
                inner = self.stream(value, call, at.deeper)
                if inner is not None:
                    return inner
        if isinstance(expression, ast.Call):
            last = (dotted(expression.func) or "").rpartition(".")[2]
            function = expression.func
            if isinstance(function, ast.Attribute) and function.attr in (
                "read", "read_text", "read_bytes",
            ):  # fmt: skip
                return self.stream(function.value, call, at.deeper)
            if isinstance(function, ast.Name) and last == "open" and expression.args:
                return self._path(expression.args[0], at.deeper)
            if isinstance(function, ast.Attribute) and last in ("open", "") and not expression.args:
                return self._path(function.value, at.deeper)
            if isinstance(function, ast.Attribute) and function.attr == "open":
                is_module = at.scope.imported(dotted(function.value) or "") is not None
                place = expression.args[0] if is_module and expression.args else function.value
                return self._path(place, at.deeper)
        return self._path(expression, at.deeper)

    def _path(self, expression: ast.expr, at: At) -> str | None:
        """The path that an expression is, as this command starts the script."""
        if at.is_too_deep:
            return None
        if isinstance(expression, ast.Constant):
            return expression.value if isinstance(expression.value, str) else None
        read = _READERS.get(type(expression))
        return read(self, expression, at) if read is not None else None

    def _path_of_sum(self, expression: ast.BinOp, at: At) -> str | None:
        """``folder / name`` and ``folder + name``."""
        if not isinstance(expression.op, (ast.Div, ast.Add)):
            return None
        left, right = (self._path(each, at.deeper) for each in (expression.left, expression.right))
        if left is None or right is None:
            return None
        return left + right if isinstance(expression.op, ast.Add) else posixpath.join(left, right)

    def _path_of_choice(self, expression: ast.BoolOp | ast.IfExp, at: At) -> str | None:
        if isinstance(expression, ast.IfExp):
            return self._first((expression.body, expression.orelse), at)
        return self._first(expression.values, at) if isinstance(expression.op, ast.Or) else None

    def _path_of_name(self, name: ast.Name, at: At) -> str | None:
        home = at.home
        if name.id == "__file__":
            return home.places.source.path
        found = at.scope.find(name.id)
        if found is None:
            return None
        owner, bindings = found
        bindings = as_given(bindings, name.id, owner)
        if len(bindings) != 1:
            return None
        (binding,) = bindings
        if binding.kind == "parameter":
            paths = {self._path(*each) for each in self.given(name.id, owner, at)}
            if len(paths) == 1:
                return paths.pop()
            if owner.node not in home.fire:
                return None
            return self._option(name.id, binding.value, at.within(owner))
        if binding.kind == "import":
            elsewhere = at.imported(name.id)
            return None if elsewhere is None else self._path(*elsewhere)
        if binding.kind != "value" or binding.value is None:
            return None
        return self._path(binding.value, at.within(owner))

    def _path_of_attribute(self, expression: ast.Attribute, at: At) -> str | None:
        if expression.attr == "parent":
            inner = self._path(expression.value, at.deeper)
            return None if inner is None else posixpath.dirname(inner)
        option = option_of(expression, at.scope, at.home.tree)
        default = None if option is None else at.home.options.get(option)
        if option is not None:
            before = self.told
            said = self._option(option, default, at)
            if said is not None or default is not None or self.told > before:
                return said
        if isinstance(expression.value, ast.Name) and expression.value.id == "self":
            own = at.home.own(expression.attr, at.scope)
            return None if own is None else self._path(own[0], at.within(own[1]))
        # A field of a dataclass, be it filled by a parser, has its default.
        node = at.home.node(expression, at.scope, at.depth + 1)
        is_text = isinstance(node, Scalar) and isinstance(node.value, str)
        return node.value if is_text and isinstance(node, Scalar) else None

    def _option(self, name: str, default: ast.expr | None, at: At) -> str | None:
        """What the command says for an option, or else its default."""
        self.asked.add(name)
        for spelled in option_names(at.home.tree).get(name, (name,)):
            if spelled in self.options:
                return self.said(spelled)
        words = positional_names(at.home.tree)
        if name in words and str(words.index(name) + 1) in self.options:
            return self.said(str(words.index(name) + 1))
        if default is None:
            return None
        return self._path(default, at.within(at.home.scope_of_default(default)))

    def sets(self, variable: str) -> bool:
        """Whether the command sets a variable of the environment that the script asks for."""
        self.asked.add(f"${variable}")
        return f"${variable}" in self.options

    def variable(self, name: str) -> str | None:
        """What the command sets a variable to; ``None`` of what only the shell knows."""
        return self.options[f"${name}"]

    def said(self, key: str) -> str | None:
        """What the command says by an option; ``None`` of what only the shell knows, too."""
        self.told += key in self.options
        return self.options.get(key)

    def _first(self, expressions: Iterable[ast.expr], at: At) -> str | None:
        """Of several paths the one that the command says, though it be unknown, or else the first."""
        found: list[str | None] = []
        for each in expressions:
            before = self.told
            path = self._path(each, at.deeper)
            if self.told > before:
                return path
            found.append(path)
        return next(filter(None, found), None)

    def _path_of_text(self, text: ast.JoinedStr, at: At) -> str | None:
        pieces: list[str] = []
        for part in text.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            piece = (
                str(inner.value)
                if isinstance(inner, ast.Constant)
                else self._path(inner, at.deeper)
            )
            if piece is None:
                return None
            pieces.append(piece)
        return "".join(pieces)

    def _word(self, expression: ast.Subscript, at: At) -> str | None:
        """``sys.argv[1]``, or a part of ``Path(__file__).parents``."""
        number = at.home.value(expression.slice, at.scope)
        if not isinstance(number, int) or isinstance(number, bool):
            return None
        if dotted(expression.value) == "sys.argv" and number > 0:
            self.asked.add(str(number))
            return self.said(str(number))
        holder = expression.value
        if isinstance(holder, ast.Attribute) and holder.attr == "parents" and number >= 0:
            path = self._path(holder.value, at.deeper)
            for _ in range(number + 1):
                path = None if path is None else posixpath.dirname(path)
            return path
        return None

    def _path_of_call(self, call: ast.Call, at: At) -> str | None:
        last = str(dotted(call.func) or getattr(call.func, "attr", "")).rpartition(".")[2]
        parts = [self._path(each, at.deeper) for each in call.args]
        if (
            isinstance(call.func, ast.Attribute)
            and at.scope.imported(dotted(call.func) or "") is None
        ):
            holder = self._path(call.func.value, at.deeper)
            if last in SAME_PATH and not call.args:
                return holder
            if last == "joinpath" and holder is not None and None not in parts:
                return posixpath.join(holder, *filter(None, parts))
        if last in SAME_PATH and parts:
            return None if None in parts else posixpath.join(*(part or "" for part in parts))
        if last == "join" and parts and None not in parts:
            return posixpath.join(*(part or "" for part in parts))
        if last == "dirname" and len(parts) == 1 and parts[0] is not None:
            return posixpath.dirname(parts[0])
        return None


_READERS: Final[dict[type[ast.expr], Callable[[ConfigPaths, Any, At], str | None]]] = {
    ast.Name: ConfigPaths._path_of_name,
    ast.Attribute: ConfigPaths._path_of_attribute,
    ast.BinOp: ConfigPaths._path_of_sum,
    ast.JoinedStr: ConfigPaths._path_of_text,
    ast.BoolOp: ConfigPaths._path_of_choice,
    ast.IfExp: ConfigPaths._path_of_choice,
    ast.Subscript: ConfigPaths._word,
    ast.Call: ConfigPaths._path_of_call,
}


def function_of(
    call: ast.Call, scope: Scope, home: Evaluator
) -> tuple[FunctionNode, Evaluator] | None:
    """The function of the project that is called, and whose module it stands in, be it that a package hands it on."""
    name = dotted(call.func)
    if name is None or name.startswith("self."):
        return None
    for _ in range(_MOST_HANDED_ON):
        if name in home.scopes.functions:
            return home.scopes.functions[name], home
        elsewhere = home.elsewhere(name, scope)
        if elsewhere is None:
            return None
        home, inner = elsewhere
        name, scope = dotted(inner) or "", home.scopes.module
    return None


def argument_of(call: ast.Call, function: FunctionNode, name: str) -> ast.expr | None:
    """What a call gives a parameter of a function, by its name or its place; ``None`` where nothing tells."""
    named = next((k.value for k in call.keywords if k.arg == name), None)
    if named is not None:
        return named
    places = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    number = places.index(name) if name in places else len(call.args)
    found = call.args[number] if number < len(call.args) else None
    return None if isinstance(found, ast.Starred) else found


def default_of(function: FunctionNode, name: str) -> ast.expr | None:
    """The default of a parameter."""
    places = [*function.args.posonlyargs, *function.args.args]
    last = function.args.defaults
    named = zip(places[len(places) - len(last) :], last, strict=True)
    both = [*named, *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)]
    return next((value for argument, value in both if argument.arg == name), None)


def option_of(expression: ast.Attribute, scope: Scope, tree: Tree) -> str | None:
    """The option that ``args.config`` is, if ``args`` is what a parser of the command line gives."""
    if not isinstance(expression.value, ast.Name):
        return None
    found = scope.find(expression.value.id)
    if found is None or not are_parsed(_until(expression, *found), tree):
        return None
    return expression.attr


def _until(expression: ast.expr, owner: Scope, bindings: list[Binding]) -> list[Binding]:
    """What a name has been given before an expression asks for it: ``args = TrainingArguments(…)`` behind it is no
    matter."""
    if len(bindings) < 2:
        return bindings
    values = [b.value for b in bindings if b.value is not None]
    later = {id(value) for value in given_later(expression, values, owner)}
    return [b for b in bindings if id(b.value) not in later] or bindings


def _opened(name: str, call: ast.Call, scope: Scope) -> ast.expr | None:
    """What the ``with`` around a call opens under a name."""
    for node in walk(scope.node):
        if not isinstance(node, (ast.With, ast.AsyncWith)):
            continue
        for item in node.items:
            target = item.optional_vars
            is_named = isinstance(target, ast.Name) and target.id == name
            if is_named and any(inner is call for inner in walk(node)):
                return item.context_expr
    return None
