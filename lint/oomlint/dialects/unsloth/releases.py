"""What Unsloth does otherwise from a release on."""

from __future__ import annotations

from oomlint.plan.library_changes import LibraryChange

FUSES_LOSS = LibraryChange(
    "unsloth", (2024, 11, 8), "all logits are made before the loss",
    "unsloth fa8e59eb (2024-11-17) models/llama.py CausalLM_fast_forward",
)  # fmt: skip
ADAPTS_HEAD = LibraryChange(
    "unsloth", (2026, 3), "lm_head among the target modules is trained whole",
    "unsloth b7ec64c9 (2026-03-03) models/llama.py FastLlamaModel.get_peft_model",
)  # fmt: skip
SAVES_MODULES = LibraryChange(
    "unsloth", (2025, 9), "FastVisionModel and FastModel drop modules_to_save",
    "unsloth 2025.8.10 and 2025.9.7 models/vision.py FastBaseModel.get_peft_model",
)  # fmt: skip
