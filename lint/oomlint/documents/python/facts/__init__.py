"""Habits in training scripts that waste or lose memory, where the text alone proves them."""

from __future__ import annotations

from collections.abc import Sequence

from oomlint.documents.base import Call, Fact
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.collator_facts import collator_facts
from oomlint.documents.python.data_facts import data_facts
from oomlint.documents.python.evaluation_facts import evaluation_facts
from oomlint.documents.python.facts.background_saves import background_save_facts
from oomlint.documents.python.facts.devices import (
    allocator_facts,
    device_facts,
    one_card_facts,
)
from oomlint.documents.python.facts.handlers import handler_facts
from oomlint.documents.python.facts.loading import load_facts
from oomlint.documents.python.facts.script import Script
from oomlint.documents.python.facts.state_dicts import state_dict_facts
from oomlint.documents.python.facts.training_loops import loop_facts
from oomlint.documents.python.formatted_samples import formatted_sample_facts
from oomlint.documents.python.led_by_options import loading_facts
from oomlint.documents.python.loss_facts import loss_facts
from oomlint.documents.python.padded_samples import padded_sample_facts
from oomlint.documents.python.picture_facts import picture_facts
from oomlint.documents.python.side_facts import side_facts
from oomlint.documents.python.sure.endings import ending_facts
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.values import Evaluator, NodeSpans
from oomlint.documents.text import Source


def facts_of(
    source: Source,
    tree: Tree,
    places: NodeSpans,
    evaluator: Evaluator,
    steps: Sequence[ReachedCall],
    calls: Sequence[Call],
    origin: dict[int, ReachedCall],
) -> tuple[Fact, ...]:
    """All facts of a script, in file order. Where the text leaves doubt there is no fact.

    Kinds and details: ``catches-sigkill`` (``tests``), ``retries-inside-except`` (``repeats``),
    ``async-save-thread`` (``through``), ``dcp-async-save``, ``load-before-zero3-config``
    (``load``, ``config``, ``config_line``, or ``reason: not-kept``), ``accelerator-before-load``, ``device-before-load``, ``torch-load-no-map-location``,
    ``state-dict-on-gpu`` (``reason``, and ``guards`` of a Trainer's), ``loss-accumulated-with-graph`` (``loss``, ``into``, ``how``, ``retained``),
    ``empty-cache-in-loop``, ``alloc-conf-after-import`` (``cuda_used``), ``shows-devices`` (``devices``), and those of
    :func:`~oomlint.documents.python.side_facts.side_facts`,
    :func:`~oomlint.documents.python.loss_facts.loss_facts`,
    :func:`~oomlint.documents.python.evaluation_facts.evaluation_facts`,
    :func:`~oomlint.documents.python.collator_facts.collator_facts`,
    :func:`~oomlint.documents.python.data_facts.data_facts`,
    :func:`~oomlint.documents.python.padded_samples.padded_sample_facts`,
    :func:`~oomlint.documents.python.formatted_samples.formatted_sample_facts`,
    :func:`~oomlint.documents.python.led_by_options.loading_facts`,
    :func:`~oomlint.documents.python.picture_facts.picture_facts` and
    :func:`~oomlint.documents.python.sure.endings.ending_facts`.
    """
    script = Script(source, tree, places, evaluator, steps, calls, origin)
    facts = [
        *handler_facts(script),
        *background_save_facts(script),
        *load_facts(script),
        *state_dict_facts(script),
        *loop_facts(script),
        *allocator_facts(script),
        *device_facts(script),
        *one_card_facts(script),
        *loss_facts(source, tree.root, places),
        *side_facts(source, tree, places, steps),
        *evaluation_facts(source, tree, places, evaluator, steps),
        *collator_facts(source, places, steps),
        *data_facts(source, tree, places, evaluator, steps),
        *padded_sample_facts(source, places, evaluator, steps),
        *formatted_sample_facts(source, tree, places, steps),
        *loading_facts(source, places, evaluator, steps),
        *picture_facts(source, places, evaluator, steps),
        *ending_facts(source, tree, places, evaluator, steps),
    ]
    return tuple(sorted(facts, key=lambda fact: (fact.location.span, fact.kind)))
