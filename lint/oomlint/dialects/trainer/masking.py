"""Training that ends with its collator: it masks words, and the model's tokenizer has no token for that."""

from __future__ import annotations

import re

from oomlint.dialects.block import Block
from oomlint.dialects.blocks import facts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared_ends import declare_end
from oomlint.dialects.ending import Ending, When
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.trainer.reaching import are_held
from oomlint.dialects.trainer.statements import switches_of
from oomlint.documents.base import Fact
from oomlint.plan.fields import f

masking = Meaning()

_SOURCE = "transformers 4.57.3 data/data_collator.py"
# Whose tokenizers are classes without a mask token: transformers 4.57.3 models/llama/tokenization_llama.py,
# qwen2/tokenization_qwen2.py, gpt2/tokenization_gpt2.py and gpt_neox/tokenization_gpt_neox_fast.py.
_UNMASKED = re.compile(
    r"(?:meta-llama|huggyllama|decapoda-research|mistralai|Qwen|EleutherAI)/|(?:openai-community/)?(?:distil)?gpt2"
)


def _masks(blocks: list[Block]) -> tuple[Fact, ...]:
    return tuple(facts_of(blocks, "masks-words"))


def _without_mask(run: Cells) -> Ending | None:
    found = run.once(_masks)
    model = str(run[f.model.id] or "") if found else ""
    if not _UNMASKED.match(model):
        return None
    switches = switches_of(run.given.blocks)
    for fact in found:
        if are_held(fact.detail["guards"], switches):
            why = f"{fact.detail['collator']} needs a mask token, which the tokenizer of {model} has not"
            return Ending(why, fact.location, When.LOADED)
    return None


declare_end(masking, _without_mask, source=_SOURCE)
