"""What Unsloth does otherwise from a release on."""

from __future__ import annotations

from oomlint.changes import Change

ADAPTS_HEAD = Change(
    "unsloth", (2026, 3), "lm_head among the target modules is trained whole",
    "unsloth b7ec64c9 (2026-03-03) models/llama.py FastLlamaModel.get_peft_model",
)  # fmt: skip
