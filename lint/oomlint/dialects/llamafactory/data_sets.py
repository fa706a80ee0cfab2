"""Data sets by the names that ``dataset_info.json`` gives them: LLaMA-Factory stops at any other before it loads a model."""

from __future__ import annotations

from typing import Any

from oomlint.datasets.registry import Checkout
from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared_ends import declare_end
from oomlint.dialects.common.fields import registry, shared
from oomlint.dialects.ending import Ending, When
from oomlint.dialects.llamafactory.keys import lf
from oomlint.dialects.meaning import Meaning
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

data_sets = Meaning()

# By both names that its package has had.
_CHECKOUT = Checkout(("llamafactory", "llmtuner"), "data/parser.py", "data")

_SOURCE = "llamafactory 0.7.1 to 0.9.5 data/parser.py get_dataset_list (Undefined dataset)"


def _undefined_set(run: Cells) -> Ending | None:
    """A name that is in no list; what was tokenized before is loaded in its place."""
    said, folder = run.setting(f.data.sets), run[registry.folder]
    if said is None or run.mentions(lf.tokenized_path):
        return None
    if said.level >= Level.ASSUMED or run.is_unread(registry.folder):
        return None
    name = run.known.unlisted(said.value, folder if run.says(registry.folder) else None, _CHECKOUT)
    at = said.origin.value_location
    if not name or at is None:
        return None
    return Ending(f"there is no data set {name} in dataset_info.json of {folder}", at, When.LOADING)


declare_end(data_sets, _undefined_set, source=_SOURCE)


@data_sets.derive(
    shared.stops,
    source="llamafactory 0.9.5 hparams/parser.py get_train_args (Please specify dataset for training)",
)
def names_no_set(run: Cells) -> Any:
    """The key stands there without a value: who runs the config fills it in, and may say more."""
    if run[f.data.sets] or run.is_unread(f.data.sets) or run.mentions(lf.tokenized_path):
        return None
    return "its dataset is left empty" if run.once(_is_left_empty) else None


def _is_left_empty(blocks: list[Block]) -> bool:
    rows = (
        (block, row) for block in blocks for row in block.table.rows if row.field == f.data.sets
    )
    found = ((block, block.find(row.key)) for block, row in rows)
    return any(entry is not None and not block.value(entry.value) for block, entry in found)
