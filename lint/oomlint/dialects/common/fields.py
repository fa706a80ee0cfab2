"""Fields that several dialects share and the plan does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oomlint.dialects.ending import When
from oomlint.documents.text import Location
from oomlint.plan.fields import Private, f
from oomlint.plan.library_changes import Release

DTYPES: Final = (
    f.precision.param, f.precision.grad, f.precision.master, f.precision.optim_state,
    f.precision.compute, f.precision.comm, f.precision.logits, f.precision.autocast,
)  # fmt: skip
"""What is kept, computed, sent and stepped in which dtype, which who wraps the model decides as one."""
RECOMPUTATION: Final = (
    f.checkpointing.mode, f.checkpointing.source, f.checkpointing.reentrant,
    f.checkpointing.recompute_modules, f.checkpointing.offload, f.offload.activations,
)  # fmt: skip
"""What of a layer is computed again, how, and what becomes of what is kept of it."""


class shared(Private, prefix=""):  # noqa: N801  a namespace of fields, read like ``f``
    """``amp``: mixed precision in force: ``bf16``, ``fp16`` or ``no``; ``amp_is_open``: only running
    tells. ``loads``: the dtype that the
    weights are in before training touches them; ``load.dtype`` where a dialect says nothing else. ``stops``: why the
    program is sure to end before its first step, whatever memory there is, in words; ``refused``: the same, where it is
    an error that no rule but one for these tells, ``refused_at`` the place, where it is one of a file, and ``refused_when``
    how far it gets, where that is known; ``refused_name``: what the release that runs calls a key there that it refuses by its former name;
    ``refused_lately``: what ends it with the newest release of a library and not with earlier ones, where the project
    allows both, and ``refused_lately_at`` the place. ``other_cards``: what says that it
    is for accelerators of another maker than the machine has. ``said_to_run``: on which machine the project says that the run
    runs; no file gives it a value, and what is predicted is held against it."""

    amp: str
    amp_is_open: bool
    loads: str
    stops: str
    refused: str
    refused_at: Location
    refused_when: When
    refused_name: str
    refused_lately: str
    refused_lately_at: Location
    other_cards: str
    said_to_run: str


# A program that is sure to end of one thing does so whatever else it may end of: each derivation of these holds by itself.
ANY_ENDS = frozenset({shared.stops, shared.refused, shared.refused_lately})


class asked(Private, prefix="asked"):  # noqa: N801
    """Quantization that a framework's own keys ask for: bits of bitsandbytes (4 or 8), or a method."""

    bits: int
    method: str


class ref(Private, prefix="ref"):  # noqa: N801
    """Files that a setting names."""

    deepspeed: str
    fsdp_config: str


class fsdp(Private, prefix="fsdp"):  # noqa: N801
    """``enabled``: somebody asks for FSDP, whoever's keys say how. ``keeps_dtype``: sharding leaves
    the weights in the dtype that they are loaded in, whatever accelerate does."""

    enabled: bool
    keeps_dtype: bool


class deepspeed(Private, prefix="deepspeed"):  # noqa: N801
    """``enabled``: DeepSpeed takes part without a config of its own."""

    enabled: bool


class peft(Private, prefix="peft"):  # noqa: N801
    autocast_adapters: bool


class registry(Private, prefix="registry"):  # noqa: N801
    """``folder``: where a ``dataset_info.json`` says which file or which public set a name stands for.
    ``keys``: what is read of a sample of a file; all of it where that is not known."""

    folder: str
    keys: tuple[str, ...]


class library(Private, prefix="library"):  # noqa: N801
    """``bounds``: a package's oldest release, and the first one that is too new, where it is not
    pinned: by what the project allows and what frameworks require of each other, the newest of those that nobody pins.
    ``sure_bounds``: the same without what only the newest release of a framework requires that nobody pins."""

    bounds: Mapping[str, tuple[Release, Release]]
    sure_bounds: Mapping[str, tuple[Release, Release]]


class machine(Private, prefix="machine"):  # noqa: N801
    """What the hardware has that the user names, whatever the run makes of it."""

    nodes: int
    gpus_per_node: int
