"""Data sets by the names that ``dataset_info.json`` gives them: LLaMA-Factory stops at any other before it loads a model."""

from __future__ import annotations

from oomlint.datasets.registry import Checkout
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared_ends import declare_end
from oomlint.dialects.common.fields import registry
from oomlint.dialects.llamafactory.keys import lf
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.surroundings import Ending
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
    return Ending(f"there is no data set {name} in dataset_info.json of {folder}", at)


declare_end(data_sets, _undefined_set, source=_SOURCE)
