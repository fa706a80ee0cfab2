"""Fixes: a rule's proposal becomes text edits, is applied, read back and proven."""

from oomlint.fix.edits import Fix, make_fix

__all__ = ["Fix", "make_fix"]
