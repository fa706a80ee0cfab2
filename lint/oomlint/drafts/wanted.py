"""What a user wants trained, and what is chosen where they leave it open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.dialects.skeleton import Method, Shard
from oomlint.drafts.model import NamedModel
from oomlint.errors import UsageError
from oomlint.hardware import Hardware
from oomlint.memory import Assumption
from oomlint.plan.fields import f

# In whose words a draft is written, the first unless the user says otherwise; those that have a skeleton.
FRAMEWORKS = ("trl", "axolotl", "llama-factory", "torchtune", "ms-swift")

# LLaMA-Factory ff6d4d12 data_args.py cutoff_len and torchtune's recipes of one card.
_LENGTH = 2048
_RANK = 16  # examples of axolotl 067b021c and TRL f2cd5771 have 16 or 32
# What is packed for inference; transformers unpacks others as it loads (fp8, mxfp4).
_FROZEN = frozenset({"bnb4", "bnb8", "gptq", "awq", "hqq", "aqlm", "eetq"})
_GLOBAL_BATCH = 16  # samples a step, as those examples have, over all ranks


class Wanted(Struct, frozen=True, kw_only=True):
    """A training run as somebody asks for it; ``None`` is left open.

    ``values`` are fields of the plan that win over what the config says, as those of ``--set``.
    """

    model: NamedModel
    framework: str | None = None
    method: Method | None = None
    length: int | None = None
    batch: int | None = None
    rank: int | None = None
    shard: Shard | None = None
    hardware: Hardware | None = None
    values: Mapping[Any, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            UsageError: with the reason.
        """
        if self.framework is not None and self.framework not in FRAMEWORKS:
            known = ", ".join(FRAMEWORKS)
            raise UsageError(f"oomlint writes no config of {self.framework}; it does of {known}")
        if self.rank is not None and self.method == "full":
            raise UsageError("a rank is that of an adapter, and the method full trains all weights")
        if self.method == "qlora" and self.model.facts.native_quant not in ("none", "bnb4"):
            raise UsageError(
                f"{self.model.name} is stored as {self.model.facts.native_quant} already, and QLoRA quantizes "
                "weights in 16 bits: name the model that it was made from, or take the method lora"
            )
        if self.method == "full" and self.model.facts.native_quant in _FROZEN:
            raise UsageError(
                f"{self.model.name} is stored as {self.model.facts.native_quant}, which no optimizer steps: name the "
                "model that it was made from, or take the method lora"
            )
        context = self.model.facts.dims.ctx
        if self.length is not None and context is not None and self.length > context:
            raise UsageError(
                f"samples of {self.length} tokens: {self.model.name} is made for {context} tokens "
                "(max_position_embeddings)"
            )
        if self.shard not in (None, "none") and self.ranks == 1:
            raise UsageError(
                f"{self.shard} shares a model among GPUs, and here is one: name the hardware with "
                "its count, such as 8xA100-80GB"
            )

    @property
    def fixed(self) -> frozenset[Any]:
        """The fields of the plan that are as the user says, and stay so."""
        said = {f.batch.micro: self.batch, f.seq.max_len: self.length, f.trainable.r: self.rank}
        shared = (f.parallel.zero.stage, f.parallel.fsdp.strategy) if self.shard else ()
        return frozenset((*(name for name, value in said.items() if value is not None), *shared))

    @property
    def ranks(self) -> int | None:
        """How many GPUs take part, where somebody says."""
        if f.parallel.gpus_per_node in self.values:
            return int(self.values[f.parallel.gpus_per_node]) * int(
                self.values.get(f.parallel.nodes) or 1
            )
        if self.hardware is None:
            return None
        return self.hardware.nodes * self.hardware.gpus_per_node

    def completed(self) -> tuple[Wanted, tuple[Assumption, ...]]:
        """The same with all that is open chosen, but for how the ranks share the model where there are several,
        and each choice with its reason."""
        chosen = list(self._choices())
        values = dict(self.values)
        if self.ranks is None and self.shard in (None, "none"):
            values |= {f.parallel.nodes: 1, f.parallel.gpus_per_node: 1}
            why = "nobody names the hardware"
            alone = [Assumption(f.parallel.gpus_per_node, 1, why)]
        else:
            alone = []
        attributes = {name: assumption.value for name, assumption in chosen}
        whole = replace(self, **attributes, values=values)
        return whole, (*(assumption for _, assumption in chosen), *alone)

    def _choices(self) -> Iterator[tuple[str, Assumption]]:
        if self.framework is None:
            why = "nobody says what trains it"
            yield "framework", Assumption(f.framework, FRAMEWORKS[0], why)
        if self.method is None:
            why = "what most train on few cards"
            yield "method", Assumption(f.trainable.method, "lora", why)
        if self.length is None:
            context = self.model.facts.dims.ctx
            length = _LENGTH if context is None else min(_LENGTH, context)
            what = "usual for instructions" if length == _LENGTH else "all that the model takes"
            why = f"{what}"
            yield "length", Assumption(f.seq.max_len, length, why)
        if self.batch is None:
            yield "batch", Assumption(f.batch.micro, 1, "the least")
        if self.rank is None and self.method != "full":
            why = "usual for adapters"
            yield "rank", Assumption(f.trainable.r, _RANK, why)

    @property
    def accumulation(self) -> int:
        """Micro batches a step, for a usual number of samples."""
        return max(1, _GLOBAL_BATCH // ((self.batch or 1) * (self.ranks or 1)))
