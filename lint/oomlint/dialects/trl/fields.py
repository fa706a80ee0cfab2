"""Fields of TRL that the plan does not have."""

from __future__ import annotations

from oomlint.plan.fields import Private

HANDBOOKS_DATA = ("dataset_mixer", "dataset_splits")
"""How recipes of alignment-handbook, and of its many descendants, name their data (925acdfe
src/alignment/configs.py DataArguments)."""


class trl(Private, prefix="trl"):  # noqa: N801  a namespace of fields, read like ``f``
    """Keys of TRL whose meaning takes more than one of them. ``rows``: of how many samples a micro batch is taken at most.
    ``fused_head``: whether the trainer gives its model a head that computes the loss tile by tile."""

    packing: bool
    packing_strategy: str
    padding_free: bool
    loss_type: str
    fused_head: bool
    liger_loss: bool
    activation_offload: bool
    precompute_ref: bool
    beta: float
    vllm: bool
    vllm_mode: str
    steps_per_generation: int
    mini_batch: int
    mini_batches: int
    rows: int
