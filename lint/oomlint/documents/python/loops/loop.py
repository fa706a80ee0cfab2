"""A training loop that a script writes out itself, as its text settles it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from oomlint.documents.base import Call, Entry, Mapping, Node, Scalar, Sequence
from oomlint.documents.python.lightning import (
    ProjectClass,
)
from oomlint.documents.text import Span

Kind = Literal["accelerate", "deepspeed", "fabric", "lightning", "torch"]


class InsertionPoint(Struct, frozen=True):
    """Where a line can be added that speaks of the model, just behind the one that loads it."""

    name: str
    offset: int
    indent: str


class Loop(Struct, frozen=True, eq=False):
    """What the text of a loop settles about what it trains.

    ``centre`` is the call that runs backward, or that of ``fit``. ``models`` load what an optimizer
    is given; several may be alternatives. ``others`` load models that are not trained.
    ``batches`` makes the batches that the loop goes over. ``accumulation`` is after how many
    of them it steps, where it counts them itself. ``own_loss``: no loss of the model's and no cross
    entropy is what backward runs from, as far as one sees. ``outputs_kept``: the model's outputs have a name,
    so that they stay alive through backward. ``outputs_last``: until those of the next batch have it. ``clears_late``: gradients are cleared between forward and backward.
    ``narrow_logits``: torch's cross entropy takes the logits as wide as they are. ``frozen`` is where parameters of the trained model are kept from training,
    ``trained_by_name`` the parts of names of those that are not, where the code says no more than that.
    ``switches`` are the defaults of the script's options.
    """

    kind: Kind
    centre: Call
    models: tuple[Call, ...] = ()
    others: tuple[Call, ...] = ()
    configs: tuple[tuple[Call, Node], ...] = ()
    """Of loaders by ``from_config``: the name of the model whose configuration it is."""
    optimizers: tuple[Call, ...] = ()
    batches: Call | None = None
    casts: tuple[Call, ...] = ()
    autocasts: tuple[Call, ...] = ()
    frozen: Span | None = None
    trained_by_name: Sequence | None = None
    checkpoints: Entry | None = None
    """Where ``gradient_checkpointing`` of the model is set as an attribute."""
    joins: bool = False
    """Whether it speaks of processes that are joined."""
    evaluates: bool = True
    """Whether anything in it may run the model forward alone."""
    ranks: Scalar | None = None
    """How many processes it says itself that there are, where no launcher does."""
    splits_samples: Span | None = None
    """A call that divides each sample among the ranks."""
    accumulation: Node | None = None
    own_loss: bool = False
    outputs_kept: bool | None = None
    clears_late: bool = False
    narrow_logits: bool = False
    switches: Mapping | None = None
    engine_config: Node | None = None
    """The file that DeepSpeed's config is read from, or the config itself."""
    behind_load: InsertionPoint | None = None
    """Where the one call that loads the model is all that a statement gives a name."""
    lengths: tuple[Entry, ...] = ()
    """Values of options and variables that are named for the length of samples."""
    parts: tuple[ProjectClass, ...] = ()
    """Classes of other files that Lightning is given: they load what is trained, or make its batches."""
    name: str = ""
    """Of a class for Lightning by itself, which another file trains: its name."""
    outputs_last: bool = False
    is_started: bool = False
    """Whether it is what the file does when it runs, and no function's."""
    idle_plugins: frozenset[Span] = frozenset()
    """Calls that make a plugin which no Accelerator is given."""
