"""What is imported is declared, with a lower bound; ``tests/dependencies/try`` installs the bounds."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# What a distribution is imported as, where that is not its name.
IMPORTED_AS = {"ruamel-yaml": "ruamel", "ruamel-yaml-clib": "ruamel"}
# Extras that the program itself uses; each command says how to get its own.
EXTRAS = ("editor", "review", "watch")
SHIPPED = ("lint", "rules", "schemas")


def requirements(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Normalised name and the rest of each requirement."""
    for line in lines:
        match = re.match(r"([A-Za-z][\w.-]*)(?:\[[^\]]*\])?\s*([^;]*)", line)
        assert match is not None, line
        yield re.sub(r"[-_.]+", "-", match[1]).lower(), match[2].strip()


def modules(names: Iterator[tuple[str, str]]) -> set[str]:
    return {m for name, _ in names for m in IMPORTED_AS.get(name, name.replace("-", "_")).split()}


def imported(tree: ast.AST) -> Iterator[str]:
    """First parts of the modules that a file imports when it runs."""
    if isinstance(tree, ast.If) and getattr(tree.test, "id", "") == "TYPE_CHECKING":
        return
    if isinstance(tree, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in tree.names)
    elif isinstance(tree, ast.ImportFrom):
        yield (tree.module or "").partition(".")[0]
    for child in ast.iter_child_nodes(tree):
        yield from imported(child)


def test_what_is_imported_is_declared_and_the_other_way_round() -> None:
    found = {
        name
        for root in SHIPPED
        for file in (ROOT / root).rglob("*.py")
        for name in imported(ast.parse(file.read_text("utf-8")))
    }
    outside = {n for n in found if n not in sys.stdlib_module_names and not n.startswith("oomlint")}
    outside -= {"tomllib"}  # in the standard library from 3.11 on
    needed, optional = modules(requirements(PROJECT["dependencies"])), set[str]()
    for extra in EXTRAS:
        optional |= modules(requirements(PROJECT["optional-dependencies"][extra]))
    assert outside == needed | optional
    assert not needed & optional


def test_every_dependency_has_a_lower_bound_and_no_upper_one() -> None:
    extras = PROJECT["optional-dependencies"]
    for name, rest in requirements(
        [*PROJECT["dependencies"], *[line for extra in (*EXTRAS, "test") for line in extras[extra]]]
    ):
        assert re.fullmatch(r">=\d+(\.\d+)*", rest), f"{name} {rest}"


@pytest.mark.parametrize(("name", "rest"), sorted(requirements(PROJECT["dependencies"])))
def test_what_is_installed_is_allowed(name: str, rest: str) -> None:
    try:
        found = version(name)
    except PackageNotFoundError:
        pytest.skip(f"{name} is not needed here")
    assert numbers(found) >= numbers(rest)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:3]))
