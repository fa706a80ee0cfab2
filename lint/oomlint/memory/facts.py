"""The plan as the arithmetic needs it: every leaf a number, every guess written down.

What a plan says of one matter is worked out in a module of its own, which returns a record: :mod:`.ranks`,
:mod:`.bytes_per`, :mod:`.samples`, :mod:`.trained` and :mod:`.regimes`. :class:`Facts` holds them together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from operator import attrgetter
from typing import Any, TypeVar

from msgspec.structs import replace

from oomlint.memory.build import predicting, skeleton, without_head
from oomlint.memory.bytes_per import BytesPer, bytes_per_element, with_saved_copies
from oomlint.memory.layers import Regime
from oomlint.memory.parameters import DecoderStructure
from oomlint.memory.ranks import Ranks, ranks_of
from oomlint.memory.regimes import regime_of, tower_regime_of
from oomlint.memory.result import Assumption
from oomlint.memory.samples import Samples, samples_of
from oomlint.memory.stacked_adapters import (
    NONE,
    StackedAdapters,
    stacked_adapters,
    with_named_layers,
)
from oomlint.memory.stand_ins import stand_in
from oomlint.memory.trained import Trained, method_of, trained_of
from oomlint.memory.vision import Tower, tower_name, tower_of
from oomlint.models.architectures import (
    is_new_in_transformers_5,
    lists_experts,
    stacks_experts_early,
)
from oomlint.plan import Plan
from oomlint.plan.fields import f as fields
from oomlint.plan.library_changes import STACKED_EXPERTS, TRANSLATED_EXPERTS, release_of
from oomlint.plan.training import HEADLESS

# peft 0.16.0 and 0.17.1 tuners/lora/config.py.
_NAMES_PARAMETERS = (0, 17)


class Facts:
    """Resolved values of one plan, a record for each matter."""

    # Slots, for an estimate reads them hundreds of times.
    __slots__ = (
        "assumptions",
        "bytes_per",
        "images",
        "known",
        "logits",
        "model",
        "mtp_layers",
        "plan",
        "ranks",
        "regime",
        "samples",
        "stack",
        "tower",
        "tower_graph",
        "tower_regime",
        "trained",
    )

    def __init__(self, plan: Plan) -> None:
        self.assumptions: list[Assumption] = []
        self.plan = plan = self._named_in_full(plan)
        # What step.py and images.py work out once for several phases.
        self.stack: object = None
        self.images: object = None
        self.logits: dict[float, Any] = {}
        self.known: dict[str, Any] = {}
        self.mtp_layers: int = plan.model.mtp_layers or 0
        self.model: DecoderStructure | None = self._skeleton()
        dims = plan.model.dims
        self.tower: Tower | None = tower_of(dims) if dims is not None else None
        self.ranks: Ranks = ranks_of(plan, self.assume)
        if self.mtp_layers and self.ranks.pp > 1:
            # Megatron-LM d98e8a64 core/transformer/multi_token_prediction.py get_mtp_num_layers_to_build.
            why = "taken to be spread over the stages as the other layers are; without a layout the last has them all"
            self.assume(fields.model.mtp_layers, self.mtp_layers, why)
        stacked = self.stacked()
        if self.model is not None and stacked.layers is not None:
            self.model = with_named_layers(self.model, stacked.layers)
        bytes_per = bytes_per_element(plan, self.ranks, self.assume)
        self.samples: Samples = samples_of(plan, self.model, self.ranks.cp, self.assume)
        self.trained: Trained = trained_of(
            plan, self.model, self.tower, bytes_per.grad, self.assume,
            apart=self._adapts_experts, stacked=stacked,
        )  # fmt: skip
        self.bytes_per: BytesPer = with_saved_copies(bytes_per, plan, self.trained)
        self.regime: Regime | None = None
        self.tower_regime: Regime | None = None
        self.tower_graph = False
        if self.model is not None:
            self.regime = regime_of(self, self.model)
            self.tower_regime, self.tower_graph = tower_regime_of(self, self.regime)

    def with_batch_of(self, plan: Plan) -> Facts:
        """The facts of a plan that is this one but for ``plan.batch``."""
        other = Facts.__new__(Facts)
        other.model, other.tower, other.mtp_layers = self.model, self.tower, self.mtp_layers
        other.ranks, other.bytes_per, other.trained = self.ranks, self.bytes_per, self.trained
        other.regime = self.regime
        other.tower_regime, other.tower_graph = self.tower_regime, self.tower_graph
        other.known = self.known
        other.plan = replace(self.plan, batch=plan.batch)
        other.assumptions = self.assumptions.copy()
        other.stack = other.images = None
        other.logits = {}
        other.samples = samples_of(other.plan, self.model, self.ranks.cp, other.assume)
        return other

    @property
    def built(self) -> tuple[DecoderStructure, Regime]:
        """The structure and how its blocks compute, where there is a model, which who asks knows."""
        assert self.model is not None
        assert self.regime is not None
        return self.model, self.regime

    def assume(self, field: Any, value: Any, why: str) -> Any:
        self.assumptions.append(Assumption(field, value, why))
        return value

    def _named_in_full(self, plan: Plan) -> Plan:
        """A plan that says QLoRA and leaves out what the name says: LoRA over a base in 4 bits, whose
        other weights are in 16 (Dettmers et al., arXiv 2305.14314, section 3: NF4 and BFloat16)."""
        if plan.trainable.method != "qlora" or plan.quant.method is not None:
            return plan
        why = "QLoRA trains adapters over a base in 4 bits"
        values: dict[Any, Any] = {
            fields.quant.method: self.assume(fields.quant.method, "bnb4", why)
        }
        if plan.precision.param is None and plan.load.dtype is None:
            why = "QLoRA keeps in 16 bits what is not in 4"
            values[fields.precision.param] = self.assume(fields.precision.param, "bf16", why)
        return plan.with_values(values)

    def _skeleton(self) -> DecoderStructure | None:
        """The structure of the model; of one known by its size alone, that of others of the size."""
        dims = self.plan.model.dims
        if dims is None:
            return None
        if self.plan.objective.kind in HEADLESS and self.plan.loss.algorithm != "dropped":
            dims = without_head(dims)
        model = skeleton(dims)
        if model is None and dims.params_total:
            billions = f"{dims.params_total / 1e9:.3g}B"
            why = f"only the size is known: shaped like other models of {billions} parameters"
            self.assume(fields.model.dims, billions, why)
            model = skeleton(stand_in(dims))
        return predicting(model, self.mtp_layers) if model and self.mtp_layers else model

    def older(self, package: str, version: tuple[int, ...]) -> bool:
        """Whether the plan names a version of ``package`` below ``version``."""
        named = release_of(self.plan.versions.get(package))
        return named is not None and named < version

    @property
    def sums_whole(self) -> bool:
        """Whether DeepSpeed's BF16_Optimizer stands in for ZeRO's stage 1, which adds gradients up whole in fp32: it does of
        bf16 weights of which nothing is offloaded (deepspeed 0.10.1 to 0.19.5 runtime/engine.py
        _do_optimizer_sanity_check)."""
        plan = self.plan
        is_first = self.ranks.backend == "zero" and plan.parallel.zero.stage == 1
        is_wide = plan.precision.grad_accum == "fp32" and self.bytes_per.stream == 2
        is_away = plan.offload.optimizer in ("cpu", "nvme")
        return is_first and is_wide and plan.precision.compute != "fp16" and not is_away

    @property
    def experts_apart(self) -> bool:
        """Whether each expert has linear layers of its own, as before transformers 5."""
        is_older = self.older(STACKED_EXPERTS.package, STACKED_EXPERTS.since)
        arch = self.model.arch if self.model else None
        if lists_experts(arch):
            return True
        is_stacked = is_new_in_transformers_5(arch) or stacks_experts_early(arch)
        # LoraConfig has target_parameters since peft 0.17.0: a project that names some runs no older one, whatever is pinned.
        named = isinstance(self.plan.trainable.target_params, tuple)
        is_pinned = not (named and self.older("peft", _NAMES_PARAMETERS))
        return is_older and is_pinned and not is_stacked

    @property
    def _adapts_experts(self) -> bool:
        """Whether adapters of all linear layers find some in every expert."""
        if self.model is None or not self.model.expert_numel:
            return False
        is_own = self.ranks.backend == "megatron" or self.plan.trainable.target_params == "experts"
        return not is_own and self.experts_apart

    def stacked(self) -> StackedAdapters:
        """The adapters that the run puts on stacks of experts, where there are any."""
        if self.model is None or not self.model.expert_numel or self._adapts_experts:
            return NONE
        translates = (
            self.ranks.backend != "megatron"
            and method_of(self.plan) in ("lora", "qlora", "dora")
            and not self.older(TRANSLATED_EXPERTS.package, TRANSLATED_EXPERTS.since)
        )
        return stacked_adapters(self.plan.trainable, self.model, translates=translates)

    @property
    def experts_packed(self) -> bool:
        """Whether the weights of the experts are quantised too.

        bitsandbytes replaces ``nn.Linear`` alone: experts stacked in one parameter
        (transformers 5) stay as they are unless asked for, lists of linear layers never do.
        """
        quant = self.plan.quant
        if quant.quantises_moe_experts or self.experts_apart:
            return True
        if quant.quantises_moe_experts is False:
            return False
        return quant.method not in ("bnb4", "bnb8", "hqq", "eetq", "nf4_torchao")

    @property
    def narrow_loss(self) -> bool:
        """Whether the model's own loss takes the logits in the width that they have."""
        assert self.model is not None
        traits = self.model.traits
        since = traits.wide_loss_since
        return traits.narrow_loss or (since is not None and self.older("transformers", since))

    @property
    def tower_packed(self) -> int:
        """Elements of the vision tower that bitsandbytes packs: its linear layers, like all others, unless it is
        told to skip the tower (transformers 5.23 quantizers/base.py get_modules_to_not_convert).

        Checkpoints packed so are as small: Qwen2.5-VL-7B-Instruct-bnb-4bit has 5.56 GiB, where 5.17 are the text
        model's, and Pixtral-12B-2409's 7.95, where Mistral-Nemo's has 7.74 (downloads of unslothai/notebooks
        bdda2efc). What Unsloth's dynamic ones leave wide no name tells.
        """
        quant, native = self.plan.quant, self.plan.model.native_quant
        if self.tower is None or self.model is None or quant.method not in ("bnb4", "bnb8"):
            return 0
        if native == "bnb4_dynamic":
            return 0
        name = tower_name(self.model.arch)
        skips = () if native == "bnb4" else quant.skip_modules or ()
        is_skipped = any(name in skipped.split(".") for skipped in skips)
        return 0 if is_skipped else self.tower.skeleton.linear_numel

    @property
    def head_packed(self) -> bool:
        """Whether the output projection is quantised too: only where nothing is skipped."""
        return self.plan.quant.skip_modules == ()


_SECTIONS = attrgetter(*(n for n in Plan.__struct_fields__ if n not in ("name", "batch")))
# Facts by the identity of all sections of their plan but the batch; the sections stand beside
# them, so that no other object can come to have the same identity.
_SEEN: dict[tuple[Any, ...], tuple[tuple[Any, ...], Facts]] = {}
_SEEN_LIMIT = 512


def facts_of(plan: Plan) -> Facts:
    """The facts of a plan. Searches ask for many plans that differ in their batch alone, whose
    facts are worked out once; a batch of more than one sample may run other kernels."""
    batch = plan.batch
    samples = batch.micro_unit != "tokens" and not batch.max_tokens_per_gpu
    if batch.micro is None or plan.seq.max_len is None or not samples:
        return Facts(plan)
    sections = _SECTIONS(plan)
    key = (batch.micro > 1, *map(id, sections))
    seen = _SEEN.get(key)
    if seen is None:
        if len(_SEEN) >= _SEEN_LIMIT:
            _SEEN.clear()
        seen = _SEEN[key] = (sections, Facts(plan))
    return seen[1].with_batch_of(plan)


Of = TypeVar("Of")


def batchless(function: Callable[[Facts], Of]) -> Callable[[Facts], Of]:
    """Work out once what does not depend on the batch, for all plans that share the rest."""
    name = function.__qualname__

    @wraps(function)
    def known(f: Facts) -> Of:
        try:
            found: Of = f.known[name]
        except KeyError:
            found = f.known[name] = function(f)
        return found

    return known
