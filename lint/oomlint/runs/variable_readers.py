"""Whether something in a project reads a variable of the environment, whose name no library knows."""

from __future__ import annotations

import re

from oomlint.documents import PYTHON_SUFFIXES, kind_of
from oomlint.files.reference_index import texts_below
from oomlint.files.workspace import Workspace


def is_variable_read(workspace: Workspace, variable: str, script: str) -> bool:
    """Whether a program or a script of the project around ``script`` asks for a variable.

    Any of them counts, for what a script starts is often known only when it runs (``python label_${TASK}.py``).
    """
    word = re.escape(variable.encode())
    # `os.environ["NAME"]`, `getenv("NAME")`, `Field(env="NAME")`; `os.environ["NAME"] = "1"` gives it a value, and reads none.
    in_python = re.compile(
        rb"""env(?:iron)?\b[^\n]{0,40}?(["'])""" + word + rb"""\1(?!\]\s*=(?!=))"""
    )
    # `$NAME`, `${NAME:-1}`, and in a config of OmegaConf's `${oc.env:NAME}`.
    elsewhere = re.compile(rb"\$(?:\{(?:oc\.)?(?:env:)?)?" + word + rb"\b")
    texts = texts_below(workspace, workspace.project_around(script))
    return any(
        (in_python if kind_of(name) in PYTHON_SUFFIXES else elsewhere).search(data)
        for name, data in texts.holding(variable.encode())
        if not re.search(_TESTS, name)
    )


# What a test holds it gives, or looks for in what others say.
_TESTS = r"(?:^|/)(?:tests?/|test_[^/]*$)"
