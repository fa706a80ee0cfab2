"""Saving DeepSpeed's shards instead of a gathered model: where that loses nothing, and where it does."""

from __future__ import annotations

from collections.abc import Iterator

from oomlint.linting.rule import Applicability, Proposal
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules.settings._trainer import trainer_compares

GATHER = f.parallel.zero.gather16_on_save
"""The field; ``stage3_gather_16bit_weights_on_model_save`` in a DeepSpeed JSON."""


def shards_instead(run: Run) -> Iterator[Proposal]:
    """To turn the gather off, which changes what is saved; none where nothing would be.

    transformers 5.23 trainer.py:4107 catches that the gather is off and writes DeepSpeed's own
    checkpoint instead, from which zero_to_fp32.py makes the same weights. A run that
    saves optimizer states writes that checkpoint anyway, so what is lost is the file that
    ``from_pretrained`` loads; one with ``save_only_model`` gets states that it did not want, of
    six times the size. A script that calls ``save_16bit_model`` itself saves nothing at all
    (DeepSpeed edaa7221 runtime/engine.py:5597).
    """
    if not trainer_compares(run):
        return
    if run.plan.save.save_only_model:
        title = "save DeepSpeed's whole checkpoint in shards"
        yield Proposal.set(title, {GATHER: False}, Applicability.UNSAFE)
    else:
        title = "save the shards of each rank, for zero_to_fp32.py to join"
        yield Proposal.set(title, {GATHER: False}, Applicability.UNSAFE)
