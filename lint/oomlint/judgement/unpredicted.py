"""Why nothing is predicted of a run, in words for the person who can change that."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oomlint.models.architectures import why_built_otherwise
from oomlint.plan.fields import f

if TYPE_CHECKING:
    from oomlint.judgement.forecast import Forecast

# A folder of these names is one of another machine, or of none: no file can be put there.
_NO_FOLDER = ("~", "$", "<", "{", "@")
# What people write where whoever starts the run is to name his model.
_TO_FILL_IN = (
    r"(?i)(?:.*/)?(?:x{3,}|\.{3}|<[^<>]+>|todo|your[-_ ]?\w*|(?:model|ckpt|checkpoint)[-_]?(?:path|dir))/?"
    r"|/?path/to/.*"
)
_STATE_IT = "state it with --set model.id=ORGANISATION/NAME"


def why_unpredicted(forecast: Forecast) -> str:
    """``the model acme/house is not known: state --set model.id=… or …``; empty where there is a
    prediction. Every surface that says why there is none says this."""
    missing = forecast.estimate.unknown
    if not missing:
        return ""
    if f.model.dims not in missing:
        return f"the plan has {', '.join(map(str, missing))}"
    model = forecast.plan.model
    known, name = model.dims is not None, model.id
    arch = model.dims.arch if model.dims is not None else None
    if (parts := why_built_otherwise(arch)) is not None:
        return f"what layers of {arch} keep is not known: {parts}"
    if not forecast.files:
        what = "too little of the model's dimensions" if known else "no model that is known"
        return f"the plan names {what}: give its dimensions in model.dims, or model.config"
    if name is None and model.arch is not None and not known:
        return f"what layers of {model.arch} keep is not known"
    if name is None:
        return f"which model it trains is not known: {_STATE_IT}"
    if not known and is_to_be_named(name):
        return f"{name} stands for a model that is to be named: {_STATE_IT}"
    lead = f"too little of {name} is known" if known else f"the model {name} is not known"
    return f"{lead}: {what_tells_of(name)}"


def is_to_be_named(model: str) -> bool:
    """Whether a name is only a word for one: ``xxx``, ``<path_to_model>``, ``/path/to/model``."""
    return re.fullmatch(_TO_FILL_IN, model) is not None


def what_tells_of(model: str) -> str:
    """What a user can do about a model of this name that is not known."""
    if is_to_be_named(model):
        return _STATE_IT
    alike = "state --set model.id=… with the model that it derives from"
    if any(mark in model for mark in _NO_FOLDER) or "://" in model:
        return alike
    return f"{alike}, or put its config.json into {model.rstrip('/')}/"
