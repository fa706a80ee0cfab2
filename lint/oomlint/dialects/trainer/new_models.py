"""Models that are newer than the transformers which loads them: its auto classes raise *does not recognize this
architecture*, or a ``KeyError`` (``configuration_auto.py`` ``AutoConfig.from_pretrained``).

Certain only of a model that is known by its name, and of releases that the project allows none but (:func:`reach_of`). Who
trusts the code that comes with a checkpoint may load by that.
"""

from __future__ import annotations

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared_ends import declare_end
from oomlint.dialects.library_tables import reach_of, why_no_model
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.surroundings import Ending
from oomlint.dialects.table import Block, Setting
from oomlint.dialects.trainer.tables import EARLY_FROM_PRETRAINED, FROM_PRETRAINED
from oomlint.documents.text import Location
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

new_models = Meaning()


def _first(run: Cells) -> Ending | None:
    """``AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")`` under transformers 4.46."""
    loads = run.given.once(_auto_loads)
    kind = _kind(run) if loads else None
    reach = reach_of(run, "transformers") if kind is not None else None
    why = why_no_model(kind, reach) if kind is not None and reach is not None else None
    if why is None:
        return None
    said = run.given.said(f.model.id)
    at = said.origin.location if isinstance(said, Setting) else None
    return Ending(why, at or loads[0])


declare_end(new_models, _first, source="kinds of models of transformers, release by release")


def _kind(run: Cells) -> str | None:
    """Of what kind the model is, where that is known, and no code of the checkpoint's own may load it."""
    trusts = f.model.trust_remote_code
    if run[trusts] or run.level(trusts) == Level.UNREAD or run.level(f.model.id) > Level.DEFAULT:
        return None
    known = run.known.model(run[f.model.id])
    if known is None or known.saved_by or known.confidence in ("assumed", "guessed"):
        return None
    return known.dims.arch


def _auto_loads(blocks: list[Block]) -> tuple[Location, ...]:
    """Where a script loads a model by one of transformers' auto classes, if it loads by no other."""
    loads = [each for each in blocks if each.table in (FROM_PRETRAINED, EARLY_FROM_PRETRAINED)]
    called = (b.document.source.text[b.anchor.start : b.anchor.end] for b in loads)
    if not all(each.rpartition(".")[0].rpartition(".")[2].startswith("Auto") for each in called):
        return ()
    return tuple(Location(each.path, each.anchor) for each in loads)
