"""Imports flow one way: documents, dialects and memory, runs, judgement, rules and fixes, reports, commands.

Every import statement counts, also those inside functions; only those for type checkers
do not.
"""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINT = ROOT / "lint" / "oomlint"

# A folder may import what stands on its own line or above. Loose are the errors of all, the public names and the API behind them.
LAYERS = (
    ("errors", "wording"),
    ("validation",),
    ("documents", "plan"),
    ("files",),
    ("datasets", "hardware", "models"),
    ("dialects", "memory"),
    ("runs",),
    ("judgement",),
    ("fix", "linting", "plugins"),
    ("drafts",),
    ("config",),
    ("report",),
    ("session",),
    ("api", "diagnose", "lsp", "review"),
    ("cli",),
    ("__init__", "__main__"),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

# Beyond the order of layers: what a layer must not know although it stands to the right.
FORBIDDEN = {
    "memory": {"documents", "dialects", "files"},
    "documents": {"plan"},
    "dialects": {"memory"},
    "report": {"config"},
}

# What rules are written with: canonical terms, never syntax, files or commands.
RULES_MAY_IMPORT = (
    "dialects", "documents", "errors", "hardware", "judgement", "linting.rule", "memory", "models", "plan", "runs.parts", "runs.run",
    "wording.amounts",
)  # fmt: skip


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of every module imported, or of a name imported from a module."""
    tree = ast.parse(file.read_text("utf-8"))
    for node in tree.body:
        yield from _imports(node)


def _imports(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
        return
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield node.lineno, alias.name
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        for alias in node.names:
            yield node.lineno, f"{node.module}.{alias.name}"
    for child in ast.iter_child_nodes(node):
        yield from _imports(child)


def layer(module: str) -> str | None:
    """The layer of a module of ours; ``None`` for others and for the package's own attributes."""
    parts = module.split(".")
    if parts[0] != "oomlint" or len(parts) < 2 or parts[1] == "__version__":
        return None
    return parts[1]


FILES = sorted(LINT.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.relative_to(LINT).as_posix())
def test_imports_flow_one_way(file):
    own = file.relative_to(LINT).parts[0].removesuffix(".py")
    assert own in RANK, f"say in LAYERS where {own} stands"
    for line, module in imports(file):
        name = layer(module)
        if name is None or name == own:
            continue
        where = f"{file.relative_to(ROOT)}:{line} imports {module}"
        assert name in RANK, f"{where}: say in LAYERS where {name} stands"
        assert RANK[name] <= RANK[own], where
        assert name not in FORBIDDEN.get(own, set()), where


def test_no_modules_import_each_other_in_a_circle():
    parts = {file: file.relative_to(LINT.parent).with_suffix("").parts for file in FILES}
    modules = {".".join(parts[file]).removesuffix(".__init__"): file for file in FILES}
    graph = {}
    for module, file in modules.items():
        taken = {name if name in modules else name.rpartition(".")[0] for _, name in imports(file)}
        graph[module] = taken & modules.keys() - {module, "oomlint"}
    TopologicalSorter(graph).prepare()  # a CycleError names the circle


@pytest.mark.parametrize(
    "file",
    sorted((ROOT / "rules" / "oomlint_rules").rglob("*.py")),
    ids=lambda f: f.relative_to(ROOT / "rules").as_posix(),
)
def test_rules_know_neither_syntax_nor_commands(file):
    for line, module in imports(file):
        name = layer(module)
        where = f"{file.relative_to(ROOT)}:{line} imports {module}"
        own = f"{module.removeprefix('oomlint.')}."
        assert name is None or own.startswith(tuple(f"{room}." for room in RULES_MAY_IMPORT)), where
        assert not module.startswith(("argparse", "click", "ruamel", "yaml")), where


@pytest.mark.parametrize("folder", ["lint", "rules", "schemas"])
def test_records_are_structs(folder):
    """A dataclass compiles its methods when it is made, which is what starting up would cost."""
    for file in sorted((ROOT / folder).rglob("*.py")):
        for line, module in imports(file):
            where = f"{file.relative_to(ROOT)}:{line} imports {module}"
            assert not module.startswith("dataclasses"), f"{where}: use msgspec.Struct"


def test_who_looks_at_the_files_of_a_run_asks_its_cells():
    """They note who asked, so that it is asked again when the files stand otherwise (``tests/runs/test_kept_cells.py``)."""
    for file in FILES:
        if file == LINT / "dialects" / "cells.py":
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr == "_given":
                is_own = getattr(node.value, "id", "") == "self"
                assert is_own, f"{file.relative_to(ROOT)}:{node.lineno}: ask `run.given`"


# What plug-ins bring may be anything, so it is asked what it has.
OF_STRANGERS = {"lint/oomlint/plugins/__init__.py", "lint/oomlint/cli/rules.py"}


def _capabilities() -> set[str]:
    """The names of what documents, their nodes and dialects can be asked."""
    from oomlint.dialects.base import Dialect
    from oomlint.documents import base
    from oomlint.documents.python import nodes as python
    from oomlint.documents.shell import nodes as shell

    of_files = (base.DataDocument, base.ShellDocument, base.PythonDocument, base.HeldCode)
    of_nodes = (
        base.Scalar, base.Sequence, base.Entry, base.Mapping, python.FiledScalar, python.PythonEntry,
        python.PythonMapping, shell.ShellScalar, shell.ShellSequence, shell.ShellEntry, shell.ShellMapping,
    )  # fmt: skip
    kinds = {base for kind in (*of_files, *of_nodes, Dialect) for base in kind.__mro__}
    ours = (kind for kind in kinds if kind.__module__.startswith("oomlint."))
    return {name for kind in ours for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize("folder", ["lint", "rules", "schemas"])
def test_types_say_what_can_be_asked(folder):
    """``isinstance`` tells kinds of documents and nodes apart, not a look whether one has an attribute."""
    capabilities = _capabilities()
    assert {"calls", "commands", "roots", "option", "order", "preset"} <= capabilities
    for file in sorted((ROOT / folder).rglob("*.py")):
        name = file.relative_to(ROOT).as_posix()
        if name in OF_STRANGERS:
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
                "getattr",
                "hasattr",
            ):
                asked = node.args[1]
                word = asked.value if isinstance(asked, ast.Constant) else None
                assert word not in capabilities, f"{name}:{node.lineno} asks for {word!r}"


def test_the_public_api_exists():
    import oomlint

    missing = [name for name in oomlint.__all__ if not hasattr(oomlint, name)]
    assert not missing
    with pytest.raises(AttributeError):
        _ = oomlint.no_such_name


def test_the_version_is_the_package_s():
    import sys

    import oomlint

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert oomlint.__version__ == project["version"]
