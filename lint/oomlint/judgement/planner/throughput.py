"""How long a token of training takes, as far as memory settings decide it: a roofline.

Only ratios of two settings of one run are used, so what cancels out (kernels, data, the
share of the peak that a model reaches) needs no number. What does not cancel out is how
computing compares with moving bytes, hence the hardware's own rates:

* computing: 2 FLOPs a parameter and token forward, plus 2 s h a layer and token for attention
  under a causal mask (Kaplan et al., arXiv 2001.08361, eq. 2.2), as many again for the gradients
  of the activations and of the weights each (section 2.1: 6 N);
* recomputing: a forward pass more (Korthikanti et al., arXiv 2205.05198, abstract and section 1:
  30 to 40 % of the time);
* a pass over a micro batch is no faster than reading the weights from the card's memory, nor than
  launching the kernels of its layers;
* collectives: 2 (n - 1) / n bytes a byte reduced, half of that a byte gathered or scattered, 1.5
  times the volume of plain data parallelism under ZeRO-3 (Rajbhandari et al., arXiv 1910.02054,
  section 7), hidden behind computing as far as it lasts. A ring that spans nodes is as fast as
  all network links of one node together, or as the links inside it;
* offloading: bytes over PCIe, and the CPU's Adam (Ren et al., arXiv 2101.06840).
"""

from __future__ import annotations

from msgspec import Struct

from oomlint.hardware import Hardware
from oomlint.plan import Plan
from oomlint.plan.model import BYTES_PER_ELEMENT

# Share of the peak FLOPs that training reaches: 38 to 43 % for Llama 3 (arXiv 2407.21783,
# table 4).
_UTILISATION = 0.4

# Bytes a second over 16 lanes, by PCIe generation: four fifths of the 8, 16 and 32 GT/s of the
# standards, as CUDA's bandwidthTest finds with pinned memory (some 12.5 of 15.75 GB/s on
# generation 3).
_PCIE = {3: 12.6e9, 4: 25.2e9, 5: 50.4e9}
# NVLink's figure counts both directions; of one, NCCL's protocol takes some 20 %: 370 of 450 GB/s
# on an H100 (NVIDIA/nccl-tests issue 212, the maintainer's answer of May 2024).
_LINK_SHARE = 0.8

# The CPU's Adam: 2.57 s for 10 billion parameters on the two sockets of a DGX-2 (Ren et al.,
# arXiv 2101.06840, table 4).
_CPU_ADAM_SECONDS = 2.57e-10
# An optimizer state on NVMe is read and written at every step: fp32 weight and two moments.
_SWAPPED_BYTES = 2 * 12
# One PCIe 3.0 x4 drive a node, at four fifths of its link's 3.94 GB/s. Drives differ by more.
_NVME = 3.2e9

# Between nodes where nobody says: one port of 200 Gbit/s (HDR InfiniBand).
_NODE_LINK = 25e9

# An A100, for ratios where the card is not known: NVIDIA's data sheet of the 80 GB SXM card.
_FLOPS, _MEMORY_BANDWIDTH, _NVLINK = 312e12, 2.039e12, 600e9

# 4-bit weights are unpacked at every use: 39 % longer for a 7B model (S. Raschka, Practical
# Tips for Finetuning LLMs Using LoRA, 2023, the section on QLoRA).
_UNPACKING = 1.39
_UNPACKED = ("bnb4", "bnb8", "nf4_torchao", "hqq")

# Shares of a forward pass that selective recomputation repeats: Megatron's core attention takes
# 7 % of a step's three passes (Korthikanti et al., arXiv 2205.05198, table 4); torchtitan keeps
# every second matrix product (torchtitan/distributed/activation_checkpoint.py).
_CORE_ATTENTION = 0.2
_EVERY_SECOND = 0.5

# A pass over a layer takes no less than this, however short the samples: the time in which Python
# launches its kernels. 8 micro batches of 256 tokens, LoRA with full recomputation (three passes):
# 1.0, 1.2 and 1.6 s for 24, 32 and 40 layers on an A100 (Qwen 2df8e8a README, "Profiling of
# Memory and Speed"); from 2,048 tokens on the same table grows as the FLOPs do.
_LAUNCHING = 1.6e-3

# Copying checkpoints to the host and back beside the computing costs 1.9 % (Unsloth's blog,
# "Unsloth Gradient Checkpointing - 4x longer context windows", April 2024), or as long as PCIe
# takes where that is longer.
_STREAMING = 1.019


class Rates(Struct, frozen=True):
    """What a card computes and moves a second: FLOPs and bytes. ``link`` is between all ranks,
    ``inside`` between those of a node; ``nvme`` is a node's."""

    flops: float
    memory: float
    link: float
    inside: float
    pcie: float
    nvme: float = _NVME


def rates(hardware: Hardware | None) -> Rates:
    """The rates of one GPU of ``hardware``; those of an A100 where they are not known."""
    if hardware is None:
        inside = _LINK_SHARE * _NVLINK / 2
        return Rates(_FLOPS, _MEMORY_BANDWIDTH, inside, inside, _PCIE[4])
    gpu = hardware.gpu
    pcie = _PCIE.get(gpu.pcie_gen or 4, _PCIE[5])
    linked = gpu.nvlink_gb_s and not hardware.only_pcie
    inside = _LINK_SHARE * 1e9 * gpu.nvlink_gb_s / 2 if linked and gpu.nvlink_gb_s else pcie
    between = inside
    if hardware.nodes > 1:
        network = hardware.inter_node_gbps
        between = min(inside, network * 1e9 / 8 if network else _NODE_LINK)
    tflops = gpu.bf16_tflops or gpu.fp16_tflops
    bandwidth = gpu.memory_bandwidth_gb_s
    return Rates(
        tflops * 1e12 if tflops else _FLOPS,
        bandwidth * 1e9 if bandwidth else _MEMORY_BANDWIDTH,
        between,
        inside,
        pcie,
    )


class Sizes(Struct, frozen=True):
    """Parameters of a model: ``active`` ones a token passes (of a mixture of experts, fewer than
    all), ``total`` ones that are kept and moved, and those that are ``trained``."""

    active: int
    total: int
    trained: int


def seconds_per_token(plan: Plan, sizes: Sizes, rate: Rates, usual: int | None = None) -> float:
    """Seconds of one GPU for a token of training data, in the rates' terms; for ratios only.

    ``usual``: tokens of a sample on the mean, where that is less than it may have. What is moved or launched takes as
    long whatever the samples are.
    """
    rows = (plan.batch.micro or 1) * (plan.objective.pairs_per_sample or 1)
    longest = plan.seq.max_len or 2048
    length = longest if usual is None else min(longest, usual)
    tokens = float(rows * length)
    steps = float(plan.batch.grad_accum or 1)
    ranks = float(plan.parallel.world or 1)
    micro = _compute(plan, sizes, tokens, length, rate)
    gathered, reduced = _traffic(plan, sizes, ranks, rate)
    micro = max(micro, gathered, _offload_traffic(plan, sizes, tokens, ranks) / rate.pcie)
    step = steps * micro + reduced + _host_step(plan, sizes, ranks, rate)
    return step / (steps * tokens)


def _compute(plan: Plan, sizes: Sizes, tokens: float, length: int, rate: Rates) -> float:
    """Forward and backward of one micro batch."""
    passes = 2.0 + min(1.0, sizes.trained / sizes.total) + _recomputed(plan)
    dims = plan.model.dims
    attention = 0.0
    if dims is not None and dims.layers and dims.hidden:
        attention = 4.0 * dims.layers * dims.hidden * length / 2
    flops = tokens * (2.0 * sizes.active + attention) / (rate.flops * _UTILISATION)
    reading = 2.0 * sizes.active / rate.memory
    launching = _LAUNCHING * float((dims.layers if dims is not None else 0) or 0)
    unpacking = _UNPACKING if plan.quant.method in _UNPACKED else 1.0
    streaming = _STREAMING if plan.checkpointing.offload in ("cpu", "disk") else 1.0
    return passes * unpacking * streaming * max(flops, reading, launching)


def _recomputed(plan: Plan) -> float:
    """Forward passes that activation checkpointing adds."""
    checkpointing = plan.checkpointing
    if checkpointing.mode in (None, "none"):
        return 0.0
    if checkpointing.mode == "selective_op":
        return _CORE_ATTENTION if checkpointing.source == "megatron" else _EVERY_SECOND
    return 1.0 / (checkpointing.every_n or 1)


def _traffic(plan: Plan, sizes: Sizes, ranks: float, rate: Rates) -> tuple[float, float]:
    """Seconds of collectives in a micro step, and in an optimizer step beside."""
    if ranks <= 1:
        return 0.0, 0.0
    share = (ranks - 1) / ranks
    parallel = plan.parallel
    weights = _stored(plan) * sizes.total * share
    gradients = 2.0 * sizes.trained * share
    link = rate.link
    if parallel.backend == "zero" and parallel.zero.stage == 3:
        gathering = rate.inside if parallel.zero.hpz else link
        return 2 * weights / gathering + gradients / link, 0.0
    if parallel.backend == "zero" and parallel.zero.stage == 2:
        return gradients / link, gradients / link
    if parallel.backend in ("fsdp1", "fsdp2"):
        fsdp = parallel.fsdp
        once = fsdp.strategy in ("grad_op", "hybrid_grad_op") or fsdp.reshard_after_forward is False
        is_hybrid = fsdp.strategy in ("hybrid", "hybrid_grad_op")
        gathering = rate.inside if is_hybrid else link
        return (1 if once else 2) * weights / gathering + gradients / link, 0.0
    return 0.0, 2 * gradients / link


def _stored(plan: Plan) -> float:
    """Bytes of a parameter as it is gathered or copied to a card."""
    if plan.quant.method in ("bnb4", "nf4_torchao"):
        return BYTES_PER_ELEMENT["nf4"]
    return BYTES_PER_ELEMENT[plan.precision.compute or "bf16"] or 2.0


def _offload_traffic(plan: Plan, sizes: Sizes, tokens: float, ranks: float) -> float:
    """Bytes over one GPU's PCIe link in a micro step."""
    moved = 0.0
    offload = plan.offload
    if offload.params in ("cpu", "nvme") or plan.parallel.fsdp.cpu_offload:
        moved += 2 * _stored(plan) * sizes.total / ranks
    if offload.optimizer in ("cpu", "nvme") and plan.parallel.zero.stage != 1:
        moved += 2.0 * sizes.trained / ranks  # gradients go down as they come up
    dims = plan.model.dims
    if plan.checkpointing.offload == "cpu" and dims is not None:
        moved += 2 * 2.0 * tokens * (dims.layers or 0) * (dims.hidden or 0)
    return moved


def _host_step(plan: Plan, sizes: Sizes, ranks: float, rate: Rates) -> float:
    """An optimizer step on the host: gradients down, Adam, weights up; states from NVMe."""
    where = "cpu" if plan.parallel.fsdp.cpu_offload else plan.offload.optimizer
    if where not in ("cpu", "nvme"):
        return 0.0
    trained = sizes.trained / float(plan.parallel.nodes or 1)
    copies = 4.0 * sizes.trained / ranks / rate.pcie
    swapping = _SWAPPED_BYTES * trained / rate.nvme if where == "nvme" else 0.0
    return copies + max(_CPU_ADAM_SECONDS * trained, swapping)
