"""The machine that a plan describes, and what it is held against."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plans import LLAMA_8B, plan_of

from oomlint.hardware import parse_hardware
from oomlint.judgement.forecast import of_plan

LEAVES: dict[str, Any] = {
    "model.dims": LLAMA_8B, "trainable.method": "full", "precision.param": "bf16",
    "precision.compute": "bf16", "batch.micro": 1, "seq.max_len": 1024,
}  # fmt: skip
GIB = 2**30


@pytest.mark.parametrize(
    ("changes", "name", "nodes", "gpus", "ram"),
    [
        ({"device__type": "A100-80GB"}, "A100-80GB", 1, 1, None),
        ({"device__type": "A100-80GB", "host__ram_gib": 512}, "A100-80GB", 1, 1, 512 * GIB),
        ({"device__type": "A100-80GB", "parallel__world": 4}, "4xA100-80GB", 1, 4, None),
        (
            {"device__type": "A100-80GB", "parallel__nodes": 2, "parallel__gpus_per_node": 8, "parallel__world": 16},
            "2x8xA100-80GB", 2, 8, None,
        ),
        ({"device__type": "A100-80GB", "parallel__nodes": 2}, "2x1xA100-80GB", 2, 1, None),
        ({"device__mem_bytes": 10 * GIB, "host__ram_gib": 0.5}, None, 1, 1, GIB // 2),
    ],
)  # fmt: skip
def test_a_plan_names_its_machine(
    changes: dict[str, Any], name: str | None, nodes: int, gpus: int, ram: int | None
) -> None:
    found = of_plan(plan_of(LEAVES, **changes)).hardware
    assert found is not None
    assert found.name == name or name is None
    assert (found.nodes, found.gpus_per_node, found.host_bytes_per_node) == (nodes, gpus, ram)


def test_memory_that_is_given_wins_over_the_cards() -> None:
    given = {"device__type": "A100-80GB", "device__mem_bytes": 10 * GIB}
    found = of_plan(plan_of(LEAVES, **given)).hardware
    assert found is not None
    assert found.gpu.name == "A100-80GB"
    assert found.gpu.total_bytes == found.gpu.total_low == found.gpu.total_high == 10 * GIB


def test_ranks_of_the_plan_win_over_those_of_a_machine() -> None:
    machine = parse_hardware("8xA100-80GB")
    alone = of_plan(plan_of(LEAVES), machine).hardware
    assert alone is not None
    assert (alone.nodes, alone.gpus_per_node) == (1, 8)
    two = of_plan(plan_of(LEAVES, parallel__world=2, host__ram_gib=64), machine).hardware
    assert two is not None
    assert (two.nodes, two.gpus_per_node, two.host_bytes_per_node) == (1, 2, 64 * GIB)


def test_without_a_machine_there_is_no_risk() -> None:
    found = of_plan(plan_of(LEAVES))
    assert found.hardware is None
    assert found.risk is None or found.risk.any is None
    assert found.estimate.gpu.peak_bytes is not None


def test_the_ram_of_a_plan_is_a_limit_though_its_card_is_unknown() -> None:
    assert of_plan(plan_of(LEAVES, host__ram_gib=1.5)).host_limit == 3 * GIB // 2
    assert of_plan(plan_of(LEAVES)).host_limit is None
    machine = {"device__type": "A100-80GB", "host__ram_gib": 64}
    assert of_plan(plan_of(LEAVES, **machine)).host_limit == 64 * GIB
