"""What all tests share: properties are judged by what they find, never by a busy machine's clock, a process
that a test starts compiles no module that another has compiled, garbage is looked for as seldom as where
oomlint runs by itself, and what takes long waits to be asked for."""

from __future__ import annotations

import gc
import os
import tempfile

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the tests that are marked slow too")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist says how itself
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Let a worker that has done its tests take over half of what another has left, unless ``--dist`` says otherwise.

    By default each is handed its last tests early, and those that take longest lie side by side.
    """
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow tests out, but where all are wanted, or they are by a mark or the name of their file."""
    if config.getoption("--all") or config.getoption("markexpr"):
        return
    named = [os.path.abspath(name.partition("::")[0]) for name in config.args]
    left = [
        item
        for item in items
        if item.get_closest_marker("slow") is not None and str(item.path) not in named
    ]
    if left:
        config.hook.pytest_deselected(items=left)
        waiting = set(left)
        items[:] = [item for item in items if item not in waiting]


def pytest_configure(config: pytest.Config) -> None:
    """Where no bytecode may lie beside the code, keep it elsewhere for as long as the tests run.

    Tests start some 700 processes. Each would compile all that it imports, which takes longer than
    what most of them are there to do.

    And look for garbage as seldom as the language server does (``lsp/session.py``): a check leaves little
    that refers to itself. Side by side on one machine that saves 9 % (``test_promises.py``) to 27 % of
    the CPU time (drafts, memory and one dialect), for which the latter hold 227 MiB, not 209.
    """
    gc.set_threshold(100_000, 20, 50)
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        folder = tempfile.TemporaryDirectory(prefix="oomlint-tests-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(folder.name, "__pycache__")
        os.environ["PYTHONDONTWRITEBYTECODE"] = ""  # workers of xdist inherit both
