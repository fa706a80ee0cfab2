"""What all tests share: properties are judged by what they find, never by a busy machine's clock, and a process
that a test starts compiles no module that another has compiled."""

from __future__ import annotations

import os
import tempfile

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    """Where no bytecode may lie beside the code, keep it elsewhere for as long as the tests run.

    Tests start some 700 processes. Each would compile all that it imports, which takes longer than
    what most of them are there to do.
    """
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        folder = tempfile.TemporaryDirectory(prefix="oomlint-tests-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(folder.name, "__pycache__")
        os.environ["PYTHONDONTWRITEBYTECODE"] = ""  # workers of xdist inherit both
