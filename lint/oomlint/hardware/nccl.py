"""What NCCL takes of a GPU outside torch's allocator."""

from __future__ import annotations

from typing import Final

from oomlint.hardware.gpus import MIB, Gpu, Range

# Per process and GPU, first communicator in use. No study gives NCCL's memory by card, so
# these span what was reported:
# - 544 MB for a group of 2 and 688 MB for more on 4 x A100 NVLink after one all-reduce,
#   context perhaps included (github.com/NVIDIA/nccl/issues/964); about 1600 MB with one
#   communicator in another setup (nccl issue 864);
# - 8 x H100: 1060 MB before the first all-to-all, context (518 MiB) included (nccl issue
#   1685), of which NVLS is 256 MiB by nccl 2.30 src/transport/nvls.cc; 2.25 GiB of NVLS
#   alone in October 2024 (github.com/vllm-project/vllm/issues/9699);
# - buffers are linear in channels, and PCIe has fewer and smaller ones (P2P chunk 128 KiB
#   against 512 KiB: nccl 2.30 src/init.cc).
_NVLINK_PAIR: Final = Range(350 * MIB, 60 * MIB, 700 * MIB)
_NVLINK: Final = Range(500 * MIB, 150 * MIB, 1600 * MIB)
_NVLS: Final = Range(700 * MIB, 400 * MIB, 3000 * MIB)
_PCIE: Final = Range(250 * MIB, 40 * MIB, 700 * MIB)
# Each further communicator pays for its own buffers unless it was split off with shared
# resources (maintainers in nccl issues 864 and 986; 6000 MB with three and more in 864).
_FURTHER: Final = Range(500 * MIB, 0, 1500 * MIB)


def nccl_bytes(gpu: Gpu, world: int, groups: int = 1) -> Range:
    """Bytes that NCCL's buffers take on each GPU: typical, low, high.

    ``world`` is the number of ranks in the largest group, ``groups`` how many process
    groups really communicate (data, tensor, pipeline, expert ... each pays at its first
    collective). Nothing for one rank. It does not grow beyond two nodes.
    """
    if world <= 1 or groups <= 0:
        return Range(0, 0, 0)
    first = _first_group(gpu, world)
    more = groups - 1
    return Range(
        first.typical + more * _FURTHER.typical,
        first.low + more * _FURTHER.low,
        first.high + more * _FURTHER.high,
    )


def _first_group(gpu: Gpu, world: int) -> Range:
    if not gpu.nvlink_gb_s:
        return _PCIE
    if world == 2:
        return _NVLINK_PAIR
    # NVLink SHARP: SM90 and later, more than two GPUs.
    has_nvls = (gpu.compute_capability or "").partition(".")[0] in ("9", "10")
    return _NVLS if has_nvls else _NVLINK
