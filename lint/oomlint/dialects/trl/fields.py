"""Fields of TRL and what builds on it that the plan does not have."""

from __future__ import annotations

from typing import Any

from oomlint.plan.fields import Private


class trl(Private, prefix="trl"):  # noqa: N801  a namespace of fields, read like ``f``
    """Keys of TRL whose meaning takes more than one of them. ``model_object``: the trainer is given
    a model that the script has loaded, not its name."""

    model_object: bool
    packing: bool
    packing_strategy: str
    padding_free: bool
    loss_type: str
    activation_offload: bool
    precompute_ref: bool
    beta: float
    vllm: bool
    vllm_mode: str
    steps_per_generation: int


class handbook(Private, prefix="handbook"):  # noqa: N801
    """Data sets that alignment-handbook mixes."""

    mixture: Any
    mixer: Any
