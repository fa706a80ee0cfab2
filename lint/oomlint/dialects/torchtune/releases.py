"""What torchtune does otherwise from a release on."""

from __future__ import annotations

from oomlint.plan.library_changes import LibraryChange

CUTS_BY_TOKENIZER = LibraryChange(
    "torchtune", (0, 3), "builders of data sets cut samples, some to 512 or 1024 tokens unless told",
    "torchtune 0.1.0, 0.2.1 and 0.3.0 torchtune/datasets",
)  # fmt: skip
EXPANDS_SEGMENTS = LibraryChange(
    "torchtune", (0, 7), "nothing asks for segments that expand",
    "torchtune 0.6.1 and 9d91fe39 torchtune/__init__.py", was=False,
)  # fmt: skip
FREES_OUTPUTS = LibraryChange(
    "torchtune", (0, 3), "recipes hold the logits through the backward pass",
    "torchtune 0.2.1 and 0.3.0 recipes/full_finetune_single_device.py train: del logits",
)  # fmt: skip
