"""What DeepSpeed's ZeRO keeps in the RAM of a node for the states that it offloads.

Read in deepspeed 0.3.0 to 0.19.5, ``runtime/zero/stage3.py`` and ``runtime/zero/stage_1_and_2.py``
(``stage2.py`` before 0.5.9); what releases do otherwise is said where it counts.
"""

from __future__ import annotations

from oomlint.memory.beside import beside_in_host
from oomlint.memory.facts import Facts
from oomlint.memory.states import (
    frozen_weight_bytes,
    largest_trained,
    local_trained,
    optimizer_bytes,
    trained_storage,
)


def power_of_two(size: float) -> float:
    """torch's pinned allocator rounds every block up (aten/src/ATen/core/CachingHostAllocator.h)."""
    if size <= 0:
        return 0.0
    return float(1 << (int(size) - 1).bit_length())


# Blocks of many sizes lose a third to that rounding: between a power of two and the next, sizes
# are 1.5 times the lower one on average and take 2 of it.
BLOCKS_OF_THEIR_OWN = 1 / 3


def pins(f: Facts) -> bool:
    """Whether offloaded states are pinned in rounded blocks, as torch's are since 1.11 (its issue 95823)."""
    return f.plan.offload.pin_memory is not False and _rounds(f)


def _rounds(f: Facts) -> bool:
    return not f.older("torch", (1, 11))


def offloaded_by_zero(f: Facts) -> tuple[float, float]:
    """Bytes of offloaded states on one node, and what rounding pinned blocks adds."""
    states, rounding = _tiles_of_the_optimizer(f), 0.0
    if f.plan.offload.optimizer == "cpu":
        kept, lost = _of_the_optimizer(f)
        states, rounding = states + kept, rounding + lost
    if f.plan.offload.params == "cpu":
        kept, lost = _of_the_parameters(f)
        states, rounding = states + kept, rounding + lost
    asked = beside_in_host(f)
    states, rounding = states + asked, rounding + asked * BLOCKS_OF_THEIR_OWN * pins(f)
    ranks = float(min(f.ranks.per_node, f.ranks.world))
    return states * ranks, rounding * ranks


# Two page-locked tiles of fp32 numbers, through which DeepSpeed's own optimizers for the CPU copied the weights back to
# the GPU: of 2**30 numbers before 0.3.15, of 2**27 before 0.14.3, which has none (csrc/includes/cpu_adam.h and simd.h, TILE
# and _doubled_buffer; cpu_adagrad.h and cpu_lion.h alike).
_TILES = {"adamw", "adagrad", "lion"}


def _tiles_of_the_optimizer(f: Facts) -> float:
    """Bytes of one rank's tiles."""
    is_away = f.plan.offload.optimizer in ("cpu", "nvme")
    is_tiled = (f.plan.optimizer.kind or "adamw") in _TILES and f.older("deepspeed", (0, 14, 3))
    if not (is_away and is_tiled):
        return 0.0
    return 2 * 4.0 * (2**30 if f.older("deepspeed", (0, 3, 15)) else 2**27)


def gradient_sums(f: Facts) -> float:
    """Bytes of the flat buffer of one rank's gradients under stage 3, which are added up there in the dtype that the config says
    (``data_types.grad_accum_dtype``, since 0.10.1; before, one that is not the model's was refused)."""
    is_wide = f.plan.precision.grad_accum == "fp32" or f.bytes_per.stream == 4
    return (4.0 if is_wide else 2.0) * local_trained(f) / f.ranks.shard


def _of_the_optimizer(f: Facts) -> tuple[float, float]:
    """Of one rank: fp32 master 4, fp32 gradient 4, Adam 8, and gradients as they are added up."""
    trained = local_trained(f)
    ratio = f.plan.offload.optimizer_ratio
    ratio = 1.0 if ratio is None else ratio
    adam = optimizer_bytes(f, trained) if f.plan.optimizer.kind else 8 * trained
    shard = ratio * trained / f.ranks.shard
    states = (4 + 4) * shard + ratio * max(adam, 0.0) / f.ranks.shard
    if (f.plan.parallel.zero.stage or 0) < 3:
        return _flat_per_group(f, shard, states)
    # Before, stage 3 made the half-precision gradients' buffer only to add micro batches up (deepspeed 0.5.10 and
    # 0.6.0 runtime/zero/stage3.py partition_previous_reduced_grads, grad_partitions_flat_buffer).
    is_spared = f.older("deepspeed", (0, 6)) and f.samples.accumulation == 1
    sums = 0.0 if is_spared else ratio * gradient_sums(f)
    states += sums
    if not pins(f):
        return states, 0.0
    # The gradients of every sub-group are a pinned block (initialize_optimizer_states), the sums
    # of all of them a single one (_setup_for_real_optimizer).
    group = min(shard, float(f.plan.parallel.zero.sub_group_elems or 1_000_000_000))
    whole = int(shard // group) if group else 0
    rest = shard - whole * group
    lost = whole * (power_of_two(4 * group) - 4 * group) + power_of_two(4 * rest) - 4 * rest
    return states, lost + power_of_two(sums) - sums


def _width(f: Facts) -> float:
    """Bytes an element of the weights that train, and of their gradients as stages 1 and 2 hand them on."""
    return 2.0 if f.bytes_per.stream == 2 else 4.0


def _waiting(f: Facts, shard: float) -> float:
    """Gradients of earlier micro batches wait in the weights' dtype, where there are any (copy_grads_in_partition and
    async_accumulate_grad_in_cpu_via_gpu, 0.3.0 to 0.19.5)."""
    return _width(f) * shard if f.samples.accumulation > 1 else 0.0


def more_at_first(f: Facts) -> float:
    """Bytes by which one node holds more while stages 1 and 2 make the optimizer's states than it does later.

    Before 0.13.2 a step with gradients of zeros made them, beside which the tensor of the last parameter group lived that these
    were pinned copies of (initialize_optimizer_states, single_grad_partition). Of two groups the last is small: biases and norms.
    """
    is_zero = f.ranks.backend == "zero" and f.plan.parallel.zero.stage in (1, 2)
    if not is_zero or f.plan.offload.optimizer != "cpu" or not f.older("deepspeed", (0, 13, 2)):
        return 0.0
    is_pinned = f.plan.offload.pin_memory is not False or f.older("deepspeed", (0, 10, 1))
    if not is_pinned or (f.plan.optimizer.groups or 1) > 1:
        return 0.0
    shard = local_trained(f) / f.ranks.shard
    ranks = float(min(f.ranks.per_node, f.ranks.world))
    return max(0.0, 4 * shard - _waiting(f, shard)) * ranks


def _flat_per_group(f: Facts, shard: float, states: float) -> tuple[float, float]:
    """Stages 1 and 2 keep a parameter group in one block, whatever ``sub_group_size`` says."""
    states += _width(f) * largest_trained(f)
    waiting = _waiting(f, shard)
    # From 0.17 on a copy of the weights in their dtype stays beside the master
    # (param_buffer_of_bit16_for_cpu_offload_groups).
    copy = 0.0 if f.older("deepspeed", (0, 17)) else _width(f) * shard
    states += waiting + copy
    if not _rounds(f):
        return states, 0.0
    # The gradients are pinned where the config asks for it, before 0.10.1 always; the master always from 0.14.1 to
    # 0.18.2, then where the config asks for it; what waits, parameter by parameter.
    asked = f.plan.offload.pin_memory is not False
    block = power_of_two(4 * shard) - 4 * shard
    lost = block if asked or f.older("deepspeed", (0, 10, 1)) else 0.0
    if not f.older("deepspeed", (0, 14, 1)):
        lost += block if asked or f.older("deepspeed", (0, 18, 3)) else 0.0
    if asked:
        lost += power_of_two(copy) - copy
    if asked or f.older("deepspeed", (0, 10, 1)):
        lost += waiting * BLOCKS_OF_THEIR_OWN
    return states, lost


def _of_the_parameters(f: Facts) -> tuple[float, float]:
    """Of one rank: its shard of every weight."""
    stored = (frozen_weight_bytes(f) + trained_storage(f)) / f.ranks.shard
    # Trained ones move to one block a parameter group, which is pinned whatever the config says (stage3.py
    # _create_param_groups_fp16_flat_cpu_memory).
    moved = min(stored, max(2.0, f.bytes_per.weight) * local_trained(f) / f.ranks.shard)
    if not pins(f):
        rounds = not f.older("torch", (1, 11))
        return stored, power_of_two(moved) - moved if rounds else 0.0
    # Every weight's shard is pinned on its own (partition_parameters.py _partition_param), and the blocks
    # that they leave stay with torch's allocator, which gives none back.
    return stored, stored * BLOCKS_OF_THEIR_OWN + power_of_two(moved)
