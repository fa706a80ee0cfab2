"""Parameters, gradients, master weights and optimizer states that stay on one GPU."""

from __future__ import annotations

from typing import NamedTuple

from oomlint.memory.facts import Facts, batchless
from oomlint.memory.parameters import padded, padded_adapter, padded_block
from oomlint.memory.result import StateBytes
from oomlint.plan import Plan
from oomlint.plan.model import Quant

# Bytes an element of a quantised linear weight, block constants included:
# bitsandbytes 4-bit keeps an fp32 absmax for 64 elements, with double quantisation an int8
# for 64 and an fp32 for 64 * 256 (functional.py quantize_4bit); int8 keeps one fp32 a row;
# GPTQ and AWQ keep a half-precision scale and a packed zero for a group of 128; HQQ a half
# scale and zero for 64; MXFP4 one byte for 32, NVFP4 one for 16.
_QUANT_BYTES = {
    "bnb4": 0.5 + 4 / 64,
    "nf4_torchao": 0.5 + 1 / 64 + 4 / (64 * 256),
    "bnb8": 1.0,
    "gptq": 0.5 + 2.5 / 128,
    "awq": 0.5 + 2.5 / 128,
    "hqq": 0.5 + 4 / 64,
    "aqlm": 0.25,
    "eetq": 1.0,
    "fp8_weight": 1.0,
    "mxfp4": 0.5 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
}
_DOUBLE_QUANT = 0.5 + 1 / 64 + 4 / (64 * 256)
# Their layers hold the packed weights in buffers, which neither FSDP nor ZeRO-3 divides
# (AutoGPTQ 9f7d370 nn_modules/qlinear/qlinear_cuda.py:51, AutoAWQ 88e4c76
# modules/linear/gemm.py:135; torch distributed/fsdp/_init_utils.py shards parameters alone).
IN_BUFFERS = frozenset({"gptq", "awq"})

# Optimizer state elements for one parameter element, all kept in ``precision.optim_state``.
# torch.optim: Adam 2, momentum and RMSprop and Adagrad 1; Lion 1 (arXiv 2302.06675); LAMB 2;
# AdEMAMix 3 (arXiv 2409.03137); schedule-free keeps z and exp_avg_sq; Adam-mini one first
# moment and almost no second (arXiv 2406.16793); Muon one momentum (AdamW for the rest is in
# ``optimizer_bytes``, and CAME there too). Measured on CPU with the published packages: APOLLO and
# GaLore in ``_projected``, Adam-mini 1.1.1 1.001 elements, Adafactor 0.02 bytes an element.
_STATE_ELEMENTS = {
    "adamw": 2.0, "paged_adamw": 2.0, "anyprecision_adamw": 2.0, "lamb": 2.0,
    "schedule_free": 2.0, "ademamix": 3.0, "adam_mini": 1.0, "lion": 1.0, "paged_lion": 1.0,
    "momentum_sgd": 1.0, "rmsprop": 1.0, "adagrad": 1.0, "muon": 1.0, "sgd": 0.0,
    "lomo": 0.0, "adafactor": 0.0, "adalomo": 0.0, "dion": 1.0, "shampoo": 4.0, "other": 2.0,
}  # fmt: skip
# Bytes for one element where the optimizer itself quantises: bitsandbytes blocks of 256 with
# an fp32 absmax (optim/optimizer.py, since 0.45), torchao's 4-bit blocks of 128.
_STATE_BYTES = {
    "adamw8bit": 2 * (1 + 4 / 256), "lion8bit": 1 + 4 / 256, "adamw4bit": 2 * (0.5 + 4 / 128),
}  # fmt: skip
_FACTORED = frozenset({"adafactor", "adalomo", "came"})


def expert_split(f: Facts) -> int:
    """Ranks that share each expert's matrices: Megatron-LM's expert-tensor-parallel-size, which is
    the tensor-parallel size where nobody sets it (megatron/training/arguments.py); torchtune's
    Llama 4 plan splits experts over the tensor-parallel ranks too."""
    return max(1, f.plan.parallel.etp or f.ranks.tp)


def data_ranks(f: Facts, ranks: float) -> float:
    """Ranks among which the elements of one rank are really shared out, on average, where ``ranks``
    share the dense ones.

    Expert parallelism takes its ranks from data (and tensor) parallelism: with all of them used
    up, no other rank has the same experts (Megatron-core parallel_state.py,
    expert data parallel = world / (ep · etp · pp); torchtitan distributed/parallel_dims.py efsdp).
    Where it has ranks of its own, ``expert_shard`` says how many share a rank's experts.
    """
    m = f.model
    if m is None or not m.expert_numel:
        return ranks
    split = expert_split(f)
    local = frozen_weight_bytes_of(f, 1.0)
    experts = m.expert_numel / (f.ranks.pp * f.ranks.ep * split)
    holders = max(1.0, ranks * f.ranks.tp / (f.ranks.ep * split))
    holders = f.plan.parallel.expert_shard or holders
    # That is, local / ((local - experts) / ranks + experts / holders).
    return ranks / (1 + experts / local * (ranks / holders - 1))


def quantised_bytes(quant: Quant) -> float | None:
    """Bytes an element of a quantised linear weight; ``None`` if nothing is quantised."""
    method = quant.method
    if method in (None, "none") or quant.dequantised_on_load:
        return None
    if method == "bnb4" and quant.double:
        return _DOUBLE_QUANT
    base = _QUANT_BYTES.get(method or "")
    if base is not None and quant.bits and method in ("gptq", "awq", "hqq", "aqlm"):
        base += quant.bits / 8 - (0.25 if method == "aqlm" else 0.5)
    return base


@batchless
def frozen_weight_bytes(f: Facts) -> float:
    """Bytes of all base weights as stored, before any sharding but after tensor, pipeline
    and expert parallelism."""
    m, plan, ranks, bytes_per = f.model, f.plan, f.ranks, f.bytes_per
    assert m is not None
    stored = bytes_per.weight if bytes_per.weight >= 2 else bytes_per.compute
    packed = quantised_bytes(plan.quant)
    split = ranks.tp * ranks.pp
    ends = (m.embed_numel + m.head_numel + m.position_numel + m.final_norm_numel) / ranks.tp
    if ranks.pp > 1:
        # The first stage holds the embedding, the last the head; the larger decides.
        ends = max(m.embed_numel + m.position_numel, m.head_numel + m.final_norm_numel) / ranks.tp
    other = (m.vision_numel + m.other_numel) / ranks.pp
    linear = m.linear_numel / split
    experts = m.expert_numel / (ranks.pp * ranks.ep * expert_split(f))
    rest = (m.block_numel - m.linear_numel - m.expert_numel) / ranks.pp
    if packed is None:
        return (ends + other + linear + experts + rest) * stored + _widened(f, stored)
    kept = 4.0 if plan.quant.prepares_kbit else max(2.0, stored)
    if f.head_packed:
        ends -= m.head_numel / ranks.tp
    if plan.quant.method == "mxfp4":
        # gpt-oss packs its experts alone; NVIDIA's NVFP4 checkpoints pack every linear layer.
        return experts * packed + (ends + other + linear + rest) * max(2.0, stored)
    return (
        _packed_numel(f) * packed
        + (0.0 if f.experts_packed else experts * max(2.0, stored))
        + (other - f.tower_packed / ranks.pp) * max(2.0, stored)
        + (ends + rest) * kept
    )


def _packed_numel(f: Facts) -> float:
    """Elements of a rank's linear layers that are quantised, before sharding."""
    ranks = f.ranks
    m = f.model
    assert m is not None
    head = m.head_numel / ranks.tp if f.head_packed else 0.0
    experts = m.expert_numel / (ranks.pp * ranks.ep * expert_split(f)) if f.experts_packed else 0.0
    linear = m.linear_numel / (ranks.tp * ranks.pp) + f.tower_packed / ranks.pp
    return linear + head + experts


@batchless
def buffer_bytes(f: Facts) -> float:
    """Bytes of base weights that are no parameters, so that every rank has all of them."""
    packed = quantised_bytes(f.plan.quant)
    if packed is None or f.plan.quant.method not in IN_BUFFERS:
        return 0.0
    return _packed_numel(f) * packed


def largest_trained(f: Facts) -> float:
    """Elements of the largest tensor that an optimizer steps: of an adapter, its rank times the wider
    end of a layer."""
    trained = f.trained
    m = f.model
    assert m is not None
    if not trained.lora:
        return float(m.largest_tensor)
    widest = max(
        (max(x.inputs, x.outputs) for b in m.blocks for x in b.linears if x.role in trained.roles),
        default=m.hidden,
    )
    ends = (m.embed_numel * trained.embeddings, (m.head_numel or m.embed_numel) * trained.head)
    return float(max(min((f.plan.trainable.r or 8) * widest, m.largest_tensor), *ends))


def _widened(f: Facts, stored: float) -> float:
    """What parts of the model kept in fp32 take beyond the dtype of the rest."""
    ranks = f.ranks
    m, p = f.model, f.plan.precision
    assert m is not None
    numel = 0.0
    if p.embeddings_fp32:
        numel += (m.embed_numel + m.position_numel) / ranks.tp
    if p.lm_head_fp32:
        numel += m.head_numel / ranks.tp
    if p.norms_fp32:
        numel += m.final_norm_numel + sum(b.count * b.norm_numel for b in m.blocks) / ranks.pp
    return max(0.0, 4.0 - stored) * numel


def optimizer_bytes(f: Facts, numel: float) -> float:
    """Bytes of optimizer states for ``numel`` trained elements, before sharding."""
    bytes_per = f.bytes_per
    o = f.plan.optimizer
    kind = o.kind or "adamw"
    if o.paged or kind.startswith("paged_"):
        # Unified memory: pages move to the host when the GPU is full.
        return 0.0
    if o.state_elems_per_param is not None:
        return o.state_elems_per_param * bytes_per.optim_state * numel
    m = f.model
    if kind in _STATE_BYTES:
        small = 0.0
        if o.embed_fp32_states and m is not None and f.trained.embeddings:
            # GlobalOptimManager keeps embeddings at 32 bits (bitsandbytes optim/optimizer.py).
            small = float(m.embed_numel)
        width = _STATE_BYTES[kind]
        states = 2.0 if "adam" in kind else 1.0
        return (numel - small) * width + small * 4 * states
    if kind in ("galore", "apollo") and m is not None:
        return _projected(f, numel)
    if kind == "badam" and m is not None:
        return (m.block_numel / m.layers) * (8 + 4)
    if kind == "muon" and m is not None and not f.trained.lora:
        matrices = min(numel, m.linear_numel + m.expert_numel)
        return (matrices + 2 * (numel - matrices)) * bytes_per.optim_state
    if kind in ("adafactor", "came") and _is_flat(f):
        # One dimension is nothing to take rows and columns of: the second moment is whole, in fp32 (transformers 4.57
        # optimization.py Adafactor._get_options; came_pytorch 0.1.3 CAME.py, beside its first).
        return (8.0 if kind == "came" else 4.0) * numel
    factored = _factored(f) * numel / m.numel if kind in _FACTORED and m is not None else 0.0
    if kind == "came":
        # Its first moment follows the gradient, made fp32, and rows and columns are kept of the
        # update's instability too (came_pytorch 0.1.3 CAME.py; measured, 4.04 bytes an element).
        return 4.0 * numel + 2 * factored
    return _STATE_ELEMENTS.get(kind, 2.0) * bytes_per.optim_state * numel + factored


def _is_flat(f: Facts) -> bool:
    """Whether the optimizer is given parameters of one dimension: FSDP1's shards, with ``use_orig_params`` views of them
    (torch 2.9 distributed/fsdp/_flat_param.py _use_sharded_views), and ZeRO's partitions (DeepSpeed 0.18
    runtime/zero/stage_1_and_2.py single_partition_of_fp32_groups, stage3.py fp32_partitioned_groups_flat)."""
    if f.ranks.backend == "zero":
        return (f.plan.parallel.zero.stage or 0) > 0
    return f.ranks.backend in ("fsdp1", "fabric_fsdp") and f.ranks.shard > 1


def _factored(f: Facts) -> float:
    """Adafactor's row and column means in fp32 (arXiv 1804.04235); vectors keep all."""
    m = f.model
    assert m is not None
    total = m.vocab + m.hidden + (m.vocab + m.hidden if m.head_numel else 0)
    for block in m.blocks:
        each = sum(x.inputs + x.outputs for x in block.linears) + block.norm_numel
        if block.experts:
            each += block.experts * (3 * m.hidden + 3 * block.moe_ffn)
        total += block.count * each
    return 4.0 * total


def _projected(f: Facts, numel: float) -> float:
    """GaLore and APOLLO keep Adam states of rank-r projections and, GaLore, the projector
    (arXiv 2403.03507 table 1: 2 n r + m r).

    In fp32 the projector is a view that keeps all singular vectors of the short side alive
    (galore_torch 1.0 galore_projector.py get_orthogonal_matrix): measured, 2.42 bytes an element
    of two matrices of Llama-2-7B at rank 128, 0.16 in half precision. Of their 8-bit kinds only the moments are bitsandbytes'
    (galore_torch 1.0 adamw8bit.py, 256 elements a block), and the projector is as wide as the gradients.
    """
    m, rank = f.model, f.plan.optimizer.rank or 128
    assert m is not None
    moments = projectors = 0.0
    for block in m.blocks:
        for x in block.linears:
            short, long = sorted((x.inputs, x.outputs))
            vectors = (
                short if f.bytes_per.stream == 4 and f.plan.optimizer.kind == "galore" else rank
            )
            moments += block.count * 2 * long * rank
            projectors += block.count * short * vectors
    moments += 2 * max(0.0, numel - m.linear_numel)
    if "8bit" in (f.plan.optimizer.name or "").lower():
        return moments * (1 + 4 / 256) + projectors * f.bytes_per.stream
    return (moments + projectors) * f.bytes_per.optim_state


@batchless
def trained_storage(f: Facts) -> float:
    """Bytes of adapters and of the trained copies that modules_to_save makes, before sharding."""
    if not f.trained.lora:
        return 0.0
    return f.trained.numel * (f.bytes_per.trained or 2.0)


@batchless
def local_trained(f: Facts) -> float:
    """Trained elements on one rank before data-parallel sharding."""
    ranks, trained = f.ranks, f.trained
    m = f.model
    assert m is not None
    if ranks.tp * ranks.pp * ranks.ep == 1:
        return trained.numel
    if trained.lora:
        # The adapters of experts lie where their experts do.
        elsewhere = trained.expert_adapter_numel * (1 - 1 / ranks.ep)
        return (trained.numel - elsewhere) / ranks.pp
    share = frozen_weight_bytes_of(f, 1.0) / m.numel
    return trained.numel * share


def frozen_weight_bytes_of(f: Facts, width: float) -> float:
    """Elements x ``width`` of the base model on one rank before sharding."""
    m, ranks = f.model, f.ranks
    assert m is not None
    ends = m.embed_numel + m.head_numel + m.position_numel + m.final_norm_numel
    if ranks.pp > 1:
        ends = max(m.embed_numel + m.position_numel, m.head_numel + m.final_norm_numel)
    experts = m.expert_numel / (ranks.pp * ranks.ep * expert_split(f))
    rest = (m.block_numel - m.linear_numel - m.expert_numel) / ranks.pp
    other = (m.vision_numel + m.other_numel) / ranks.pp
    return (
        ends / ranks.tp + m.linear_numel / (ranks.tp * ranks.pp) + experts + rest + other
    ) * width


@batchless
def padding_of(f: Facts) -> tuple[float, float]:
    """How much FSDP2's padding of dim 0 adds, as factors for the base and the adapters."""
    ranks, trained = f.ranks, f.trained
    m = f.model
    assert m is not None
    if ranks.backend != "fsdp2" or ranks.shard <= 1:
        return 1.0, 1.0
    n = ranks.shard
    whole = sum(
        b.count * padded_block(b, m.hidden, n, splits_experts=f.ranks.ep > 1) for b in m.blocks
    )
    whole += padded(m.vocab, m.embed_numel, n) + padded(m.vocab, m.head_numel, n)
    whole += padded(m.hidden, m.final_norm_numel, n) + m.position_numel
    whole += m.other_numel + m.vision_numel
    adapters = 1.0
    if trained.lora and trained.adapter_numel and f.regime and not trained.expert_adapter_numel:
        sizes = sum(
            b.count * padded_adapter(b, f.regime.targets, f.regime.rank, n) for b in m.blocks
        )
        adapters = max(1.0, sizes / trained.adapter_numel)
    return whole / m.numel, adapters


def trained_padded(f: Facts) -> float:
    """Trained elements on one rank after sharding, padding included."""
    base, adapters = padding_of(f)
    return local_trained(f) * (adapters if f.trained.lora else base) / data_ranks(f, f.ranks.shard)


@batchless
def visiting_states(f: Facts) -> float:
    """Bytes of optimizer states that are on one GPU for the step itself and no longer."""
    return state_bytes_of(f).optimizer if f.plan.offload.between_steps == "cpu" else 0.0


def states_of_only_step(f: Facts) -> float:
    """Bytes of optimizer states that a run of one step has only behind its backward pass: they are made in the first
    step (torch/optim/adamw.py _init_group), but by DeepSpeed before training, and read with a checkpoint."""
    plan = f.plan
    is_late = plan.total_steps == 1 and not plan.load.resume and f.ranks.backend != "zero"
    return state_bytes_of(f).optimizer - visiting_states(f) if is_late else 0.0


def offloads_gradients(f: Facts) -> bool:
    """Whether ZeRO hands gradients to the host with the optimizer's states, as DeepSpeed does from stage 2 on
    (runtime/zero/stage_1_and_2.py); ``offload.grads`` says where others leave them on the GPU."""
    offload = f.plan.offload
    is_offloaded = offload.optimizer in ("cpu", "nvme") and offload.grads != "none"
    return is_offloaded and (f.plan.parallel.zero.stage or 0) >= 2


def state_bytes_of(f: Facts) -> StateBytes:
    """States of resolved facts; see :func:`state_bytes`."""
    optimizer = f.plan.optimizer
    buffers = buffer_bytes(f)
    trained = local_trained(f)
    grads = trained * f.bytes_per.grad
    if optimizer.in_backward or optimizer.kind in ("lomo", "adalomo"):
        grads = 0.0
    whole = _States(
        frozen_weight_bytes(f) - buffers,
        trained_storage(f),
        grads,
        trained * f.bytes_per.master,
        optimizer_bytes(f, trained),
    )
    states = _left_on_gpu(f, _sharded(f, whole))
    return StateBytes(
        states.base + buffers + states.extra, states.grads, states.master, states.optim
    )


class _States(NamedTuple):
    """Bytes of one rank: frozen weights without buffers, trained ones, and what training adds to those."""

    base: float
    extra: float
    grads: float
    master: float
    optim: float


def _sharded(f: Facts, states: _States) -> _States:
    """A rank's part of what the ranks of data parallelism divide."""
    parallel, n = f.plan.parallel, f.ranks.shard
    base, extra, grads, master, optim = states
    if f.ranks.backend == "zero":
        stage = parallel.zero.stage or 0
        if stage >= 1:
            master, optim = master / n, optim / n
        if stage >= 2:
            grads /= n
        if stage >= 3:
            base, extra = base / n, extra / n
            if parallel.zero.hpz and parallel.zero.hpz > 1:
                # ZeRO++ keeps a secondary half-precision shard in the node (hpZ).
                base += frozen_weight_bytes_of(f, 2.0) / parallel.zero.hpz
    elif f.ranks.backend in ("fsdp1", "fsdp2"):
        if (parallel.fsdp.strategy or "full") != "no_shard":
            pad, adapter_pad = padding_of(f)
            trained_pad = adapter_pad if f.trained.lora else pad
            ranks = data_ranks(f, n)
            base, extra = base * pad / ranks, extra * adapter_pad / ranks
            grads, master, optim = (x * trained_pad / ranks for x in (grads, master, optim))
    elif f.ranks.backend == "megatron" and parallel.megatron.dist_optimizer is not False:
        # The distributed optimizer shards over context-parallel ranks too.
        ranks = data_ranks(f, f.ranks.dp * f.ranks.cp)
        master, optim = master / ranks, optim / ranks
    return _States(base, extra, grads, master, optim)


def _left_on_gpu(f: Facts, states: _States) -> _States:
    """What offloading leaves of a rank's states."""
    offload, backend = f.plan.offload, f.ranks.backend
    base, extra, grads, master, optim = states
    if offload.optimizer in ("cpu", "nvme"):
        ratio = 1.0 if offload.optimizer_ratio is None else offload.optimizer_ratio
        master, optim = master * (1 - ratio), optim * (1 - ratio)
        if backend == "zero" and offloads_gradients(f):
            grads = 0.0
    if offload.params in ("cpu", "nvme") or f.plan.parallel.fsdp.cpu_offload:
        base = extra = 0.0
        if backend in ("fsdp1", "fsdp2"):
            grads = master = optim = 0.0
    return _States(base, extra, grads, master, optim)


def state_bytes(plan: Plan) -> StateBytes | None:
    """Bytes on one GPU of parameters, gradients, fp32 master weights and optimizer states.

    ``None`` where the model's dimensions are unknown. Gradients are those at the end of
    backward; FSDP's and ZeRO-3's gathered copies are not states.
    """
    try:
        f = Facts(plan)
        return state_bytes_of(f) if f.model is not None else None
    except OverflowError:
        return None  # sizes of hundreds of digits
