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
CHUNKS_LOSS = LibraryChange(
    "unsloth", (2025, 8, 5), "the loss is the cut cross entropy, which makes no logits",
    "unsloth 806bee24 (2025-08-13) models/llama.py CausalLM_fast_forward",
)  # fmt: skip
HALF_OF_FREE = LibraryChange(
    "unsloth", (2025, 9, 6), "a chunk of the loss is cut for 1 GB of fp32 logits",
    "unsloth_zoo a16c2ad6 (2025-09-16) fused_losses/cross_entropy_loss.py _get_chunk_multiplier",
)  # fmt: skip
CAPS_CHUNKS = LibraryChange(
    "unsloth", (2026, 7), "a chunk of the loss may take half of what is free",
    "unsloth_zoo d9fe1f43 (2026-07-06) fused_losses/cross_entropy_loss.py _get_chunk_multiplier",
)  # fmt: skip
COUNTS_COPIES = LibraryChange(
    "unsloth", (2026, 10), "chunks of the loss are cut as if fp32 logits were all that they make",
    "unsloth_zoo 7c9a7ac0 (2026-08-12) and 2026.10.9 fused_losses/cross_entropy_loss.py _CE_BYTES_PER_LOGIT",
)  # fmt: skip
