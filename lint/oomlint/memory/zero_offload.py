"""What DeepSpeed's ZeRO keeps in the RAM of a node for the states that it offloads.

Read in deepspeed 0.14.4, ``runtime/zero/stage3.py`` and ``runtime/zero/stage_1_and_2.py``; what other
releases do otherwise is said where it counts.
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
    return f.plan.offload.pin_memory is not False and not f.older("torch", (1, 11))


def offloaded_by_zero(f: Facts) -> tuple[float, float]:
    """Bytes of offloaded states on one node, and what rounding pinned blocks adds."""
    states = rounding = 0.0
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


def _of_the_optimizer(f: Facts) -> tuple[float, float]:
    """Of one rank: fp32 master 4, fp32 gradient 4, Adam 8, half-precision gradients 2 a weight."""
    trained = local_trained(f)
    ratio = f.plan.offload.optimizer_ratio
    ratio = 1.0 if ratio is None else ratio
    adam = optimizer_bytes(f, trained) if f.plan.optimizer.kind else 8 * trained
    shard = ratio * trained / f.ranks.shard
    states = (4 + 4 + 2) * shard + ratio * max(adam, 0.0) / f.ranks.shard
    if (f.plan.parallel.zero.stage or 0) < 3:
        return _flat_per_group(f, shard, states)
    # Before, stage 3 made the half-precision gradients' buffer only to add micro batches up (deepspeed 0.5.10 and
    # 0.6.0 runtime/zero/stage3.py partition_previous_reduced_grads, grad_partitions_flat_buffer).
    half = 0.0 if f.older("deepspeed", (0, 6)) and f.samples.accumulation == 1 else 2 * shard
    states += half - 2 * shard
    if not pins(f):
        return states, 0.0
    # The gradients of every sub-group are a pinned block (initialize_optimizer_states), the half-
    # precision ones of all of them a single one (_setup_for_real_optimizer).
    group = min(shard, float(f.plan.parallel.zero.sub_group_elems or 1_000_000_000))
    whole = int(shard // group) if group else 0
    rest = shard - whole * group
    lost = whole * (power_of_two(4 * group) - 4 * group) + power_of_two(4 * rest) - 4 * rest
    return states, lost + power_of_two(half) - half


def _flat_per_group(f: Facts, shard: float, states: float) -> tuple[float, float]:
    """Stages 1 and 2 keep a parameter group in one block, whatever ``sub_group_size`` says."""
    states += 2 * largest_trained(f)
    # From 0.17 on a 16-bit copy of the weights stays beside the master
    # (param_buffer_of_bit16_for_cpu_offload_groups).
    copied = not f.older("deepspeed", (0, 17))
    states += 2 * shard if copied else 0.0
    if not pins(f):
        return states, 0.0
    block = power_of_two(4 * shard) - 4 * shard
    # The gradients always, the master since 0.14.2; what is accumulated, parameter by parameter.
    lost = block if f.older("deepspeed", (0, 14, 2)) else 2 * block
    lost += power_of_two(2 * shard) - 2 * shard if copied else 0.0
    return states, lost + 2 * shard * BLOCKS_OF_THEIR_OWN


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
