"""The model of a program, from where it is loaded to where it is trained: under which names it goes, and what touches
it on the way.

What touches it is known by a library's name, is code of the project that is entered, or is not accounted for.
"""

from __future__ import annotations

from oomlint.documents.python.custody.facts import custody_of

__all__ = ("custody_of",)
