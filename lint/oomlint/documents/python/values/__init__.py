"""What expressions of a script are without running it, a module for each kind of them."""

from __future__ import annotations

from oomlint.documents.python.values.evaluator import Evaluator, NodeSpans

__all__ = ("Evaluator", "NodeSpans")
