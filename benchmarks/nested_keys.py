"""Which releases of prime-rl have which keys of its nested configs.

    python -m benchmarks.nested_keys CLONE (rl | sft | trainer)

prints the lines of ``lint/oomlint/dialects/keys/spans/prime_rl*.txt``: each key that came or went between the releases and
the state of CLONE, a clone of PrimeIntellect-ai/prime-rl with its tags. A key that came and went with the one above it
is left out. Nothing of it is run: classes are read as text.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from benchmarks.past_keys import Clone
from msgspec import Struct

_FIRST = "v0.3.0"
_NEXT = "0.8.1"
"""What the state after the last release is called."""
_ROOTS = {
    "rl": ("RLConfig",),
    "sft": ("SFTConfig", "SFTTrainerConfig"),
    "trainer": ("TrainerConfig", "RLTrainerConfig"),
}
_DECLARES = re.compile(r"src/prime_rl/(?:.*config.*|rl)\.py$")


class Module(Struct, frozen=True):
    """What a name of a module means: a class, what another module calls something, another type's expression."""

    classes: dict[str, ast.ClassDef]
    imported: dict[str, tuple[str, str]]
    aliases: dict[str, ast.expr]


Modules = dict[str, Module]
_Place = tuple[str, str]


def _modules(clone: Clone, state: str) -> Modules:
    found = ((path, blob) for path, blob in clone.files(state) if _DECLARES.search(path))
    return {
        path.rpartition("src/")[2][:-3].replace("/", "."): _module(ast.parse(clone.text(blob)))
        for path, blob in found
    }


def _module(tree: ast.Module) -> Module:
    module = Module({}, {}, {})
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name):
                module.classes[name] = node
            case ast.ImportFrom(module=str(source), names=names):
                module.imported.update(
                    {each.asname or each.name: (source, each.name) for each in names}
                )
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                module.aliases[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                module.aliases[name] = value
    return module


def _fields(modules: Modules, at: _Place, above: str, seen: frozenset[_Place]) -> Iterator[str]:
    """The keys of what is called so in a module, those below them included."""
    where, name = at
    module = modules.get(where)
    if module is None or at in seen:
        return
    if name in module.classes:
        yield from _of_class(modules, at, above, seen | {at})
    elif name in module.aliases:
        yield from _of_type(modules, where, module.aliases[name], above, seen | {at})
    elif name in module.imported:
        yield from _fields(modules, module.imported[name], above, seen | {at})


def _of_class(modules: Modules, at: _Place, above: str, seen: frozenset[_Place]) -> Iterator[str]:
    node = modules[at[0]].classes[at[1]]
    for base in node.bases:
        yield from _fields(modules, (at[0], ast.unparse(base).rpartition(".")[2]), above, seen)
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=key), annotation=annotation):
                yield above + key
                yield from _of_type(modules, at[0], annotation, f"{above}{key}.", seen)


def _of_type(
    modules: Modules, where: str, annotation: ast.expr, above: str, seen: frozenset[_Place]
) -> Iterator[str]:
    for node in ast.walk(annotation):
        match node:
            case ast.Name(id=name) | ast.Constant(value=str(name)):
                yield from _fields(modules, (where, name), above, seen)


def _keys(clone: Clone, state: str, roots: tuple[str, ...]) -> set[str]:
    modules = _modules(clone, state)
    return {
        key
        for where, module in modules.items()
        for root in roots
        if root in module.classes
        for key in _fields(modules, (where, root), "", frozenset())
        if "toml_files" not in key.lower()  # how files are named on the command line
    }


def spans(clone: Clone, roots: tuple[str, ...]) -> dict[str, str]:
    """Of each key that came or went, the first release with it ("-" for the first of all), and the first without it."""
    tags = [tag for _, tag in clone.releases()]
    states = [*tags[tags.index(_FIRST) :], "HEAD"]
    names = [*(tag.lstrip("v") for tag in states[:-1]), _NEXT]
    had: dict[str, list[int]] = {}
    for number, state in enumerate(states):
        for key in _keys(clone, state, roots):
            had.setdefault(key, []).append(number)
    found = {}
    for key, numbers in had.items():
        came, went = numbers[0], numbers[-1] + 1
        if came or went < len(states):
            found[key] = " ".join((names[came] if came else "-", *names[went : went + 1]))
    return found


def main(path: str, program: str) -> None:
    found = spans(Clone(path), _ROOTS[program])
    for key in sorted(found):
        parts = key.split(".")
        above = (".".join(parts[:depth]) for depth in range(len(parts) - 1, 0, -1))
        if found[key] != next((found[each] for each in above if each in found), None):
            print(key, found[key])


if __name__ == "__main__":
    match sys.argv[1:]:
        case [path, program] if program in _ROOTS:
            main(path, program)
        case _:
            sys.exit(__doc__)
