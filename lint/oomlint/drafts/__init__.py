"""Runs of which there is nothing yet but a model and a wish: their config is written, and judged like any.

:func:`draft` writes one config in the words of a framework, :func:`lightest` shares the model no further
than its hardware asks for, and :func:`fitting` searches for what fits. What is predicted for
a draft is what is predicted for the file once it is saved: it is the same run.
"""

from oomlint.drafts.draft import Draft, draft
from oomlint.drafts.model import NamedModel, UnknownModel, named_model
from oomlint.drafts.search import FittingDraft, RankLayout, fitting, lightest, places
from oomlint.drafts.wanted import FRAMEWORKS, Wanted

__all__ = [
    "FRAMEWORKS",
    "Draft",
    "FittingDraft",
    "NamedModel",
    "RankLayout",
    "UnknownModel",
    "Wanted",
    "draft",
    "fitting",
    "lightest",
    "named_model",
    "places",
]
