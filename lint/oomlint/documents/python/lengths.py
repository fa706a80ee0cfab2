"""What scripts call the length of their samples, as an option or a variable."""

from __future__ import annotations

from typing import Final

LENGTH_NAMES: Final = frozenset(
    {
        "block_size", "max_seq_length", "max_seq_len", "max_length", "model_max_length", "seq_length",
        "seq_len", "sequence_length", "context_length", "context_len", "cutoff_len", "max_source_length", "max_len",
    }
)  # fmt: skip
