"""What can be made as large as fits."""

from __future__ import annotations

from typing import Literal, TypeAlias

Aim: TypeAlias = Literal["micro_batch", "seq_len", "throughput"]
