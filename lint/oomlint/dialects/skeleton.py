"""What a framework's config must say before anything about memory: where one begins that does not exist yet.

Everything else of a new config is said through the dialect's own tables, as a fix would say it
(:mod:`oomlint.drafts`); so a skeleton has no key of which a wish in canonical terms has the value, but
for how the ranks share the model: nothing says that before there is a block to say it in.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

Method: TypeAlias = Literal["full", "lora", "qlora"]
Shard: TypeAlias = Literal["none", "zero2", "zero3", "fsdp"]


class Start(Struct, frozen=True):
    """What is to be trained, as far as a skeleton depends on it."""

    model: str
    method: Method
    shard: Shard
    nodes: int
    gpus_per_node: int
    compute: Literal["bf16", "fp16"] = "bf16"

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus_per_node


class Skeleton(Struct, frozen=True):
    """The beginning of a config: ``file`` is how it is usually called, ``command`` what trains by it where
    that stands in no file, and ``to_fill`` what its author has yet to say."""

    file: str
    text: str
    command: str = ""
    to_fill: str = ""


# The DeepSpeed config that transformers' integration fills in from its own arguments ("auto",
# transformers docs/source/en/deepspeed.md), as a mapping inside the file; the stage to be put in.
ZERO_BLOCK = """\
deepspeed:
  train_micro_batch_size_per_gpu: auto
  gradient_accumulation_steps: auto
  train_batch_size: auto
  gradient_clipping: auto
  bf16:
    enabled: auto
  fp16:
    enabled: auto
  zero_optimization:
    stage: {stage}
"""


def zero_block(shard: Shard) -> str:
    """The block for a stage of ZeRO, empty for other ways to share."""
    return ZERO_BLOCK.format(stage=shard[-1]) if shard in ("zero2", "zero3") else ""


# Accelerate's FSDP of transformers' Trainer (transformers 5 training_args.py `fsdp_config`).
FSDP_BLOCK = """\
fsdp: full_shard auto_wrap
fsdp_config:
  version: 2
"""
