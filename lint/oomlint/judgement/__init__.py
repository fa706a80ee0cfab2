"""Whether a run fits: the one place where that is decided.

:func:`judgement_of` gives the :class:`Judgement` of a run, of which every surface is a rendering: the
risk that it dies, the verdict, what the need at risk is made of, and what all that rests on. Rules ask
:func:`judge_gpu` and :func:`judge_host` for a peak against its limit, and :func:`relief` for what a
change brings; how bad something is follows from the risk (:mod:`oomlint.judgement.severity`).
"""

from oomlint.judgement.cards import card_holds, smallest_card
from oomlint.judgement.change import Relief, is_needed_by_any_samples, may_survive, relief
from oomlint.judgement.doubts import confidence, settled
from oomlint.judgement.engine import EngineShare, engine_share, feeding, starves_engine
from oomlint.judgement.evidence import is_open
from oomlint.judgement.forecast import Forecast, Risk
from oomlint.judgement.judgement import Judgement, judgement_of, judgement_of_plan
from oomlint.judgement.launch import (
    SHARDED,
    card_not_among,
    card_not_there,
    cards_missing,
    gpus_of_job,
    launch_is_unread,
    mesh_too_large,
    only_suggests_ranks,
    pool_too_large,
    says_ranks,
    sees_none,
    sharded_by_its_launch,
    sharding_is_open,
    slot_missing,
)
from oomlint.judgement.lengths import depends_on_data, lengths_are_open, needs_all_samples_long
from oomlint.judgement.peak import (
    Peak,
    exceeds,
    judge_gpu,
    judge_host,
    most_severe,
    risk_of,
    severity_of_block,
    severity_of_need,
)
from oomlint.judgement.severity import EVEN, LOST, SURE, TIGHT, Severity, Verdict, of_cause
from oomlint.judgement.unread import unread_program

__all__ = [
    "EVEN",
    "LOST",
    "SHARDED",
    "SURE",
    "TIGHT",
    "EngineShare",
    "Forecast",
    "Judgement",
    "Peak",
    "Relief",
    "Risk",
    "Severity",
    "Verdict",
    "card_holds",
    "card_not_among",
    "card_not_there",
    "cards_missing",
    "confidence",
    "depends_on_data",
    "engine_share",
    "exceeds",
    "feeding",
    "gpus_of_job",
    "is_needed_by_any_samples",
    "is_open",
    "judge_gpu",
    "judge_host",
    "judgement_of",
    "judgement_of_plan",
    "launch_is_unread",
    "lengths_are_open",
    "may_survive",
    "mesh_too_large",
    "most_severe",
    "needs_all_samples_long",
    "of_cause",
    "only_suggests_ranks",
    "pool_too_large",
    "relief",
    "risk_of",
    "says_ranks",
    "sees_none",
    "settled",
    "severity_of_block",
    "severity_of_need",
    "sharded_by_its_launch",
    "sharding_is_open",
    "slot_missing",
    "smallest_card",
    "starves_engine",
    "unread_program",
]
