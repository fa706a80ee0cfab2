"""oomlint: will this training run go out of memory, and what is the cheapest change?

The names below are the public API, for scripts and for packages that bring rules or
frameworks of their own. They load on first use: importing ``oomlint`` is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from oomlint.api import check, estimate, estimate_model, new_config
    from oomlint.dialects.base import Claim, Dialect, Reference
    from oomlint.dialects.block import Block
    from oomlint.dialects.cells import Cells
    from oomlint.dialects.meaning import Meaning
    from oomlint.dialects.table import Row, Table
    from oomlint.documents.base import Document, Fact
    from oomlint.documents.text import Edit, Location, Span
    from oomlint.errors import CannotEdit, FileError, UsageError
    from oomlint.files.workspace import Workspace
    from oomlint.judgement import Peak, Relief, judge_gpu, judge_host, judgement_of, relief
    from oomlint.linting.engine import Diagnosis, Options, Report, Selection, lint
    from oomlint.linting.rule import (
        Applicability,
        Example,
        Finding,
        Note,
        Proposal,
        ReadyEdits,
        RemoveKey,
        RenameKey,
        Rule,
        SetFields,
        Severity,
        Where,
    )
    from oomlint.plan import Plan
    from oomlint.runs.run import Run
    from oomlint.wording.amounts import count, gib

_HOME = {
    name: module
    for module, names in {
        "oomlint.api": "check estimate estimate_model new_config",
        "oomlint.dialects.base": "Claim Dialect Reference",
        "oomlint.dialects.block": "Block",
        "oomlint.dialects.cells": "Cells",
        "oomlint.dialects.meaning": "Meaning",
        "oomlint.dialects.table": "Row Table",
        "oomlint.documents.base": "Document Fact",
        "oomlint.documents.text": "Edit Location Span",
        "oomlint.linting.engine": "Diagnosis Options Report Selection lint",
        "oomlint.errors": "CannotEdit FileError UsageError",
        "oomlint.judgement": "Peak Relief judge_gpu judge_host judgement_of relief",
        "oomlint.plan": "Plan",
        "oomlint.linting.rule": (
            "Applicability Example Finding Note Proposal ReadyEdits RemoveKey RenameKey Rule "
            "SetFields Severity Where"
        ),
        "oomlint.runs.run": "Run",
        "oomlint.wording.amounts": "count gib",
        "oomlint.files.workspace": "Workspace",
    }.items()
    for name in names.split()
}

__all__ = [
    "Applicability",
    "Block",
    "CannotEdit",
    "Cells",
    "Claim",
    "Diagnosis",
    "Dialect",
    "Document",
    "Edit",
    "Example",
    "Fact",
    "FileError",
    "Finding",
    "Location",
    "Meaning",
    "Note",
    "Options",
    "Peak",
    "Plan",
    "Proposal",
    "ReadyEdits",
    "Reference",
    "Relief",
    "RemoveKey",
    "RenameKey",
    "Report",
    "Row",
    "Rule",
    "Run",
    "Selection",
    "SetFields",
    "Severity",
    "Span",
    "Table",
    "UsageError",
    "Where",
    "Workspace",
    "__version__",
    "check",
    "count",
    "estimate",
    "estimate_model",
    "gib",
    "judge_gpu",
    "judge_host",
    "judgement_of",
    "lint",
    "new_config",
    "relief",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'oomlint' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
