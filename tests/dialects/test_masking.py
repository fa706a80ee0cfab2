"""Collators that mask words, before a tokenizer that has no token for it."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.dialects.common.fields import shared

_SCRIPT = """\
from transformers import (
    AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling,
    DataCollatorForPermutationLanguageModeling, Trainer, TrainingArguments,
)
from data import texts

name = "{model}"
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name)
collator = {collator}
args = TrainingArguments("out", per_device_train_batch_size=2)
Trainer(model=model, args=args, train_dataset=texts, data_collator=collator).train()
"""
_LLAMA = "meta-llama/Llama-2-7b-hf"
_OF_WORDS = "DataCollatorForLanguageModeling(tokenizer)"
_OF_ORDER = "DataCollatorForPermutationLanguageModeling(tokenizer=tokenizer, max_span_length=5)"


@pytest.mark.parametrize(
    ("collator", "model", "ends"),
    [
        (_OF_WORDS, _LLAMA, True),
        (_OF_WORDS.replace(")", ", mlm=True)"), "Qwen/Qwen2.5-7B", True),
        (_OF_ORDER, _LLAMA, True),
        (_OF_WORDS.replace(")", ", mlm=False)"), _LLAMA, False),
        (_OF_WORDS.replace(")", ", False)"), _LLAMA, False),
        (_OF_WORDS.replace(")", ", mlm=texts.mlm)"), _LLAMA, False),
        (_OF_WORDS.replace(")", ", **how)"), _LLAMA, False),
        # BERT's has one, and of another publisher's nobody knows.
        (_OF_WORDS, "google-bert/bert-base-uncased", False),
        (_OF_WORDS, "acme/llama-with-masks", False),
        # The script may give it one.
        (f"{_OF_WORDS}; tokenizer.mask_token = '<m>'", _LLAMA, False),
    ],
)
def test_a_collator_that_masks_words_ends_where_no_token_masks(
    collator: str, model: str, ends: bool
) -> None:
    run = run_of({"train.py": _SCRIPT.format(model=model, collator=collator)}, "train.py")
    why = run.cells[shared.refused]
    assert bool(why) is ends
    assert why is None or ("needs a mask token" in why and model in why)
