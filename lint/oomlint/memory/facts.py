"""The plan as the arithmetic needs it: every leaf a number, every guess written down."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from operator import attrgetter
from typing import Any, TypeVar

from msgspec.structs import replace

from oomlint.memory.build import predicting, skeleton, stand_in, without_head
from oomlint.memory.layers import Kernel, Regime, interned
from oomlint.memory.lengths import longest_sample
from oomlint.memory.named import named
from oomlint.memory.parameters import DecoderStructure
from oomlint.memory.result import Assumption
from oomlint.memory.trained import (
    ADAPTED,
    adapter_ends,
    expert_ends,
    fused_roles,
    splits_ranks,
    targeted,
    trained_ends,
    trained_tower,
)
from oomlint.memory.vision import TYPICAL_PIXELS, Tower, tower_of
from oomlint.models.architectures import is_new_in_transformers_5, stacks_experts_early
from oomlint.plan import Plan
from oomlint.plan.fields import f as fields
from oomlint.plan.library_changes import STACKED_EXPERTS, release_of
from oomlint.plan.model import BYTES_PER_ELEMENT
from oomlint.plan.training import HEADLESS

_PAIRED = frozenset({"dpo", "orpo", "simpo", "cpo", "rm"})
# Until then MatMul4Bit kept its input for backward (bitsandbytes pull request 1270).
_FREES_INPUT = (0, 43, 2)


class Facts:
    """Resolved values of one plan. Attributes without a unit in the name are counts."""

    def __init__(self, plan: Plan) -> None:
        self.assumptions: list[Assumption] = []
        self.plan = plan = self._named_in_full(plan)
        self.unknown: list[str] = []
        # What step.py and images.py work out once for several phases.
        self.stack: object = None
        self.images: object = None
        self.logits: dict[float, Any] = {}
        self.known: dict[str, Any] = {}
        dims = plan.model.dims
        if dims is not None and plan.objective.kind in HEADLESS:
            dims = dims if plan.loss.algorithm == "dropped" else without_head(dims)
        self.model: DecoderStructure | None = skeleton(dims) if dims is not None else None
        if self.model is None and dims is not None and dims.params_total:
            billions = f"{dims.params_total / 1e9:.3g}B"
            why = f"only the size is known: shaped like other models of {billions} parameters"
            self.assume(fields.model.dims, billions, why)
            self.model = skeleton(stand_in(dims))
        self.mtp_layers: int = plan.model.mtp_layers or 0
        if self.model is not None and self.mtp_layers:
            self.model = predicting(self.model, self.mtp_layers)
        self.tower: Tower | None = tower_of(dims) if dims is not None else None
        self._parallel()
        if self.mtp_layers and self.pp > 1:
            # Megatron-LM d98e8a64 core/transformer/multi_token_prediction.py get_mtp_num_layers_to_build.
            why = "taken to be spread over the stages as the other layers are; without a layout the last has them all"
            self.assume(fields.model.mtp_layers, self.mtp_layers, why)
        self._precision()
        self._batch()
        self._trainable()
        self._regime()

    def with_batch_of(self, plan: Plan) -> Facts:
        """The facts of a plan that is this one but for ``plan.batch``."""
        other = Facts.__new__(Facts)
        vars(other).update(vars(self))
        other.plan = replace(self.plan, batch=plan.batch)
        other.assumptions = self.assumptions.copy()
        other.stack = other.images = None
        other.logits = {}
        other._batch()
        return other

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

    # -- who shares the work -------------------------------------------------------------

    def _parallel(self) -> None:
        p = self.plan.parallel
        backend = p.backend or "none"
        nodes = p.nodes or 1
        world = p.world or (nodes * p.gpus_per_node if p.gpus_per_node else None)
        if world is None:
            if backend in ("none", "device_map_pp"):
                world = 1
            else:
                world = self.assume(
                    fields.parallel.world,
                    8,
                    "the number of GPUs is not known; a node usually has 8",
                )
        self.world: int = max(1, world)
        self.nodes: int = max(1, nodes)
        self.per_node: int = max(1, p.gpus_per_node or -(-self.world // self.nodes))
        self.tp: int = max(1, p.tp or 1)
        self.pp: int = max(1, p.pp or 1)
        # Ranks of a sequence, by rings or pipes and by DeepSpeed's way.
        context, ulysses = max(1, p.cp or 1), max(1, p.ulysses or 1)
        self.cp: int = context * ulysses
        self.ep: int = max(1, p.ep or 1)
        if backend == "device_map_pp":
            # device_map spreads the layers of one process over its GPUs, which an explicit
            # number of stages says where several processes do so.
            self.pp = self.pp if self.pp > 1 else self.world
        self.dp: int = max(1, p.dp or self.world // (self.tp * self.pp * context))
        shard = self.dp
        if backend in ("fsdp1", "fsdp2", "fabric_fsdp"):
            strategy = p.fsdp.strategy or "full"
            if p.dp_shard:
                shard = p.dp_shard
            elif strategy.startswith("hybrid"):
                shard = min(self.dp, self.per_node)
            elif ulysses > 1 and self.dp * self.tp * self.pp * self.cp <= self.world:
                # The ranks of a sequence are ranks of FSDP's mesh too (verl workers/fsdp_workers.py
                # create_device_mesh over the world, beside ulysses_device_mesh).
                shard *= ulysses
            # torchtitan and accelerate shard over context parallel ranks too.
            shard *= context
            if strategy == "no_shard":
                shard = 1
        elif backend == "zero":
            if p.zero.mics and p.zero.mics > 0:
                shard = p.zero.mics
            elif self.cp > 1 and self.dp * self.tp * self.pp < self.world:
                # ZeRO shards over the ranks of a sequence too: over all whose parameters are the same where
                # deepspeed.initialize is given no groups, as for rings of a framework's own (OpenRLHF 0.8 to 0.11
                # utils/deepspeed/deepspeed.py _ds_init_train_model), else deepspeed/utils/groups.py
                # _get_sequence_data_parallel_group.
                shard = min(self.dp * self.cp, self.world // (self.tp * self.pp))
        elif backend == "mics":
            shard = p.zero.mics or self.per_node
            backend = "zero"
        elif backend in ("none", "ddp", "dp", "device_map_pp"):
            shard = 1
        # transformers packs bitsandbytes weights on every rank's GPU before FSDP shards them, where
        # rank 0 does not load for all, and always before ZeRO-3 does, since what is quantized is
        # not built inside zero.Init (4.48 to 5.23 modeling_utils.py get_init_context,
        # quantizers/quantizer_bnb_4bit.py update_device_map).
        self.packs_whole: bool = self.plan.quant.method in ("bnb4", "bnb8") and (
            (backend in ("fsdp1", "fsdp2") and self.plan.load.cpu_ram_efficient is False)
            or (backend == "zero" and p.zero.stage == 3)
        )
        # A model that was not built inside zero.Init goes to each rank's GPU whole before ZeRO-3 shards it, also
        # where its parameters are offloaded (DeepSpeed 0.9.5 to 0.16.4 runtime/engine.py
        # _configure_distributed_model); before FSDP2 does only one that was loaded onto it.
        self.loads_early: bool = (
            backend == "zero" and p.zero.stage == 3 and self.plan.load.zero3_init is False
        ) or (
            backend == "fsdp2"
            and self.plan.load.cpu_ram_efficient is False
            and self.plan.load.device_map == "single"
            and not self.plan.model.from_scratch
        )
        # Lightning Fabric loads a checkpoint into the sharded model as one whole state dict.
        self.loads_whole: bool = backend == "fabric_fsdp" and not self.plan.model.from_scratch
        if backend == "fabric_fsdp":
            backend = "fsdp1"
        self.backend: str = backend
        self.shard: int = max(1, shard)

    # -- dtypes --------------------------------------------------------------------------

    @property
    def experts_apart(self) -> bool:
        """Whether each expert has linear layers of its own, as before transformers 5."""
        is_older = self.older(STACKED_EXPERTS.package, STACKED_EXPERTS.since)
        arch = self.model.arch if self.model else None
        is_stacked = is_new_in_transformers_5(arch) or stacks_experts_early(arch)
        return is_older and not is_stacked

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
    def head_packed(self) -> bool:
        """Whether the output projection is quantised too: only where nothing is skipped."""
        return self.plan.quant.skip_modules == ()

    def _bytes(self, dtype: str | None) -> float | None:
        return BYTES_PER_ELEMENT.get(dtype) if dtype is not None else None

    def _precision(self) -> None:
        plan = self.plan
        p = plan.precision
        param = p.param
        if param is None:
            load = plan.load.dtype
            if load == "auto":
                load = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}.get(
                    plan.model.ckpt_dtype or "bfloat16", plan.model.ckpt_dtype or "bf16"
                )  # type: ignore[assignment]
            if load in BYTES_PER_ELEMENT:
                param = load  # type: ignore[assignment]
            else:
                param = self.assume(
                    fields.precision.param, "fp32", "PyTorch creates parameters in fp32"
                )
        weight = self._bytes(param) or 2.0
        compute = self._bytes(p.compute)
        if compute is None:
            compute = weight if weight >= 2 else 2.0
        self.weight: float = weight
        self.compute: float = max(compute, 2.0)
        self.autocast: bool = bool(p.autocast)
        storage = weight if weight >= 2 else self.compute
        grad = self._bytes(p.grad)
        state = self._bytes(p.optim_state)
        self.grad: float = storage if grad is None else grad
        self.optim_state: float = self.grad if state is None else state
        self.master: float = self._bytes(p.master) or 0.0
        # What modules see: sharding policies gather the compute dtype, or one of their own.
        gathers = self.backend in ("fsdp1", "fsdp2", "zero", "megatron") and p.compute is not None
        self.stream: float = (self._bytes(p.gathered) or self.compute) if gathers else storage

    # -- batch ---------------------------------------------------------------------------

    def _batch(self) -> None:
        plan = self.plan
        b = plan.batch
        rows = b.micro
        if rows is None:
            rows = self.assume(fields.batch.micro, 1, "the micro batch size is not known")
        length = longest_sample(plan)
        if length is None:
            ctx = plan.model.dims.ctx if plan.model.dims else None
            length = self.assume(
                fields.seq.max_len, min(ctx or 2048, 2048), "the sequence length is not known"
            )
        target = plan.seq.target_len
        is_apart = self.model is not None and any(block.crosses for block in self.model.blocks)
        # Tokens that a decoder reads and writes, to one of its encoder.
        self.target_share: float = target / length if target and is_apart and length else 1.0
        if b.micro_unit == "tokens":
            rows, length = 1, rows
        if b.max_tokens_per_gpu:
            rows, length = 1, b.max_tokens_per_gpu
        objective = plan.objective
        pairs = objective.pairs_per_sample
        if pairs is None:
            pairs = 2 if objective.kind in _PAIRED else 1
        self.rows: float = rows * pairs
        self.length: float = length
        self.tokens: float = self.rows * length / self.cp
        self.written: float = self.tokens * self.target_share
        self.accumulation: int = max(1, b.grad_accum or 1)
        evaluated = b.eval_micro if b.eval_micro is not None else b.micro
        self.eval_rows: float = (evaluated or rows) * pairs

    # -- what is trained -----------------------------------------------------------------

    def _trainable(self) -> None:
        plan = self.plan
        t = plan.trainable
        method = t.method
        if method is None:
            method = (
                "lora"
                if t.r
                else self.assume(fields.trainable.method, "full", "no adapter is configured")
            )
        self.method: str = method
        self.lora = method in ADAPTED
        if self.lora and plan.precision.grad is None:
            self.grad = self._bytes(t.adapter_dtype) or 4.0
        if self.lora and plan.precision.optim_state is None:
            self.optim_state = self.grad
        self.adapter_bytes: float = self._bytes(t.adapter_dtype) or (
            self.grad if self.lora else 0.0
        )
        # Of what is trained beside a frozen model, on the mean.
        self.trained_bytes: float = self.adapter_bytes
        self.embed_trained = self.head_trained = not self.lora
        self.stray_bytes: float = 0.0
        self.saved_modules: float = 0.0
        self.tower_saved = False
        self.adapter_numel: float = 0.0
        self.expert_adapter_numel: float = 0.0
        self.trained_numel: float = 0.0
        self.roles: frozenset[str] = frozenset()
        model = self.model
        if model is None:
            return
        if t.unstepped == "embeddings":
            self.stray_bytes = model.embed_numel * self.grad
        if self.lora:
            self.roles = targeted(t, model)
            if t.targets is None:
                self.assume(
                    fields.trainable.targets, "peft_default", "peft's default target modules"
                )
            self.embed_trained, self.head_trained = trained_ends(t)
            if self.embed_trained:
                self.saved_modules += model.embed_numel
            if self.head_trained:
                self.saved_modules += model.head_numel or model.embed_numel
            self.tower_saved = trained_tower(t)
            if self.tower_saved:
                self.saved_modules += model.vision_numel
            rank = t.r
            if rank is None:
                rank = self.assume(
                    fields.trainable.r, 8, "peft's default rank (tuners/lora/config.py)"
                )
            self.expert_adapter_numel = rank * expert_ends(t, model)
            self.adapter_numel = rank * adapter_ends(model, self.roles) + self.expert_adapter_numel
            if self.tower is not None:
                tower = self.tower.skeleton
                self.adapter_numel += rank * adapter_ends(tower, self.tower_roles())
            if t.params is not None:
                self.adapter_numel = max(0.0, t.params - self.saved_modules)
                self.expert_adapter_numel = min(self.expert_adapter_numel, self.adapter_numel)
            self.trained_numel = self.adapter_numel + self.saved_modules
            self._saved_copies()
        elif plan.optimizer.kind == "badam":
            # One block at a time asks for gradients (badam block_optim.py switch_trainable_params).
            self.trained_numel = model.block_numel / model.layers
        elif method == "freeze":
            count = t.last_layers if t.last_layers is not None else 2
            per = model.block_numel / model.layers
            chosen = named(model, t.names) if t.names else None
            self.trained_numel = t.params or min(model.layers, abs(count)) * per
            self.embed_trained = self.head_trained = False
            if chosen is not None:
                self.trained_numel = chosen.numel
                self.embed_trained, self.head_trained = chosen.embedding, chosen.head
        elif method != "none":
            frozen = model.vision_numel if self.tower_frozen else 0
            self.trained_numel = t.params or float(model.numel - frozen)

    def _saved_copies(self) -> None:
        """Copies of whole modules that keep the base's dtype beside adapters of another: widths are the mean of both.
        Gradients and torch's optimizer states are as wide as their parameter."""
        own = self._bytes(self.plan.trainable.saved_dtype)
        if own is None or not self.trained_numel:
            return
        copies = self.saved_modules / self.trained_numel
        self.trained_bytes += copies * (own - self.trained_bytes)
        self.grad += copies * (own - self.grad)
        self.optim_state += copies * (own - self.optim_state)

    @property
    def tower_frozen(self) -> bool:
        """Whether the vision tower is kept as it is."""
        frozen = self.plan.trainable.frozen or ()
        return "vision" in frozen or bool(self.plan.model.vision.freeze_tower)

    def tower_roles(self) -> frozenset[str]:
        """The roles of the tower's linear layers that carry an adapter."""
        if self.tower is None or self.tower_frozen:
            return frozenset()
        return targeted(self.plan.trainable, self.tower.skeleton)

    def older(self, package: str, version: tuple[int, ...]) -> bool:
        """Whether the plan names a version of ``package`` below ``version``."""
        named = release_of(self.plan.versions.get(package))
        return named is not None and named < version

    # -- how a block computes ------------------------------------------------------------

    def _regime(self) -> None:
        plan, model = self.plan, self.model
        if model is None:
            self.regime: Regime | None = None
            self.tower_regime: Regime | None = None
            self.tower_graph = False
            self.kernel: Kernel = "flash"
            return
        self.kernel, dense = self._kernel(model)
        mixers = {kind for b in model.blocks for kind in b.mixers}
        packages = {
            "delta": "flash-linear-attention", "mamba1": "mamba-ssm", "mamba2": "mamba-ssm",
        }  # fmt: skip
        for kind, package in packages.items():
            if kind in mixers:
                why = "its kernels are taken to be installed; PyTorch's own loop needs far more"
                self.assume("model.kernels", package, why)
        t = plan.trainable
        liger = plan.loss.liger
        base = not self.lora and self.method != "none"
        packed = plan.quant.method not in (None, "none") and not plan.quant.dequantised_on_load
        # Inductor's min-cut partitioner recomputes elementwise chains as fused kernels do;
        # Megatron-core and Transformer Engine have such kernels of their own (megatron/core/fusions).
        fuses = bool(plan.compile.enabled) or self.backend == "megatron"
        self.regime = interned(Regime(
            stream=4 if self.stream == 4 else 2,
            compute=4 if self.compute == 4 else 2,
            amp=self.autocast and self.compute == 2,
            train_base=base,
            train_norms=base or (self.method == "adapter" and t.targets == "all_linear"),
            train_experts=base,
            rank=t.r or (8 if self.lora else 0),
            targets=self.roles if self.lora and self.method != "adapter" else frozenset(),
            dropout=bool(t.dropout),
            adapter=self._adapter_width(),
            dora=self.method == "dora",
            fused=fused_roles(t, self.roles) if self.method in ("lora", "qlora") else frozenset(),
            lora_experts=self.lora and bool(t.target_params),
            split_ranks=splits_ranks(t),
            scattered=self._scattered(model),
            kernel=self.kernel,
            dense_mask=dense,
            masks_window=self._masks_window(),
            experts="loop" if plan.model.experts_impl == "loop" else "grouped",
            fused_norm=bool(liger.rms or fuses),
            fused_rope=bool(liger.rope or fuses),
            fused_glu=bool(liger.swiglu or fuses),
            # Kernels that make no scores of their own compute a batch as they compute one sample.
            batched=self.rows > 1 and self.kernel in ("math", "eager"),
            quantised=packed,
            packed_experts=packed and self.experts_packed,
            apart_experts=packed and self.experts_apart,
            keeps_input=packed
            and plan.quant.method == "bnb4"
            and self.older("bitsandbytes", _FREES_INPUT),
            # The second version of LLaMA-Adapter trains norms and a scale and bias everywhere
            # (arXiv 2304.15010; litgpt/adapter_v2.py).
            rescaled=self.method == "adapter" and t.targets == "all_linear",
            tensor_parallel=self.tp,
            expert_tensor_parallel=max(1, min(self.tp, plan.parallel.etp or self.tp)),
            sequence_parallel=bool(plan.parallel.sp),
            keeps_gathered=bool(plan.parallel.sp) and self.tp > 1 and self.backend == "fsdp2",
            recomputed=_recomputed_parts(plan),
        ))  # fmt: skip

        self._tower_regime()

    def _tower_regime(self) -> None:
        """How the vision tower computes, and whether backward goes through it."""
        regime = self.regime
        self.tower_regime = None
        self.tower_graph = False
        if self.tower is None or regime is None:
            return
        roles = self.tower_roles() if regime.targets else frozenset()
        whole = regime.train_base and self.method != "freeze" and not self.tower_frozen
        trains = whole or self.tower_saved
        c = self.plan.checkpointing
        asked = (self.lora or bool(c.input_grads)) and (c.mode or "none") != "none"
        self.tower_graph = trains or bool(roles) or asked
        fused: Kernel = "flash" if regime.compute == 2 else "efficient"
        self.tower_regime = interned(
            replace(
                regime,
                train_base=trains,
                train_norms=trains,
                targets=roles,
                dense_mask=False,
                masks_window=False,
                kernel="eager" if regime.kernel == "eager" else fused,
                # Each rank sees all patches (verl models/mcore/qwen2_5_vl/vision_config.py).
                sequence_parallel=False,
            )
        )
        if self.plan.model.vision.max_pixels is None and not self.tower.tile:
            self.assume(
                fields.model.vision.max_pixels, TYPICAL_PIXELS,
                "no limit is set; one image a sample, as large as the model card proposes",
            )  # fmt: skip

    def _adapter_width(self) -> int:
        """Bytes of an adapter weight as its module sees it: gathered or cast with the rest."""
        if self.backend in ("fsdp1", "fsdp2", "zero", "megatron"):
            return 4 if self.stream == 4 else 2
        return 4 if self.adapter_bytes == 4 else 2

    def _scattered(self, model: DecoderStructure) -> float:
        """The share of a fused projection's outputs that LitGPT's adapter covers."""
        targets = self.plan.trainable.targets
        if not model.traits.scattered_adapter or not isinstance(targets, tuple):
            return 1.0
        kv = "k_proj" in targets, "v_proj" in targets
        heads = model.heads * ("q_proj" in targets) + model.kv_heads * sum(kv)
        return heads / (model.heads + 2 * model.kv_heads) or 1.0

    def _masks_window(self) -> bool:
        """Whether SDPA gets a mask for sliding windows: from the window's length on
        (transformers 5.23 masking_utils.py, _ignore_causal_mask_sdpa)."""
        dims = self.plan.model.dims
        window = dims.sliding_window if dims is not None else None
        return self.kernel == "flash" and self._runs_sdpa() and self.length >= (window or 1 << 62)

    def _runs_sdpa(self) -> bool:
        return self.plan.model.attn_impl in (None, "sdpa")

    def _shape_is_known(self) -> bool:
        """Of a model known by its size alone nobody says that it has scores of all tokens with all: there are
        linear attentions and state spaces of every size."""
        dims = self.plan.model.dims
        return dims is not None and bool(dims.layers)

    def _kernel(self, model: DecoderStructure) -> tuple[Kernel, bool]:
        """Which attention kernel runs, and whether it is given a dense mask.

        PyTorch's choice (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp): flash needs
        half precision, no mask and equal head sizes up to 256; memory-efficient needs as many
        key heads as query heads; all else is materialised.
        """
        impl = self.plan.model.attn_impl
        pad = self.plan.seq.pad
        packed = self.plan.seq.packing not in (None, "none")
        padded = pad in ("longest", "max_len") and self.rows > 1 and not packed
        if impl in ("flash2", "flash3", "flex", "xformers", "sage", "ring", "cudnn"):
            return "flash", False
        if impl == "eager" and self._shape_is_known():
            return "eager", False
        if impl is None and model.traits.refuses_sdpa:
            return "eager", False
        half = self.compute == 2
        grouped = model.kv_heads != model.heads
        if model.arch == "falcon" and model.kv_heads == 1:
            return "math", padded
        if model.mla is not None or model.head_dim > 256:
            return "efficient", padded
        if padded:
            return "efficient", True
        if not half:
            return ("math" if grouped else "efficient"), False
        return "flash", False


def _recomputed_parts(plan: Plan) -> frozenset[str]:
    """Parts of each block that are run again under selective recomputation."""
    if not recomputes_parts(plan):
        return frozenset()
    c = plan.checkpointing
    return frozenset(c.recompute_modules or ()) & {"mlp", "moe"}


def recomputes_parts(plan: Plan) -> bool:
    """Whether parts of a block are recomputed by their names: Megatron's, and prime-rl's targets."""
    c = plan.checkpointing
    return c.mode == "selective_op" and (c.source == "megatron" or c.recompute_modules is not None)


def checkpointed_share(f: Facts) -> float:
    """The share of the layers whose activations are recomputed."""
    c = f.plan.checkpointing
    mode = c.mode or "none"
    if mode in ("full", "selective_op", "budget"):
        if recomputes_parts(f.plan):
            # Core attention, of which flash attention keeps nothing, and parts of a block.
            return 0.0
        return 1.0
    if mode in ("every_n", "selective_layers", "block_partial"):
        return 1.0 / max(1, c.every_n or 2)
    return 0.0


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
