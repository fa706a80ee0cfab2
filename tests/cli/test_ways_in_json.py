"""What the JSON says of the way out, and of the share that a finding has in a need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.command import oomlint

ROOT = Path(__file__).parents[2]


def _checked(example: str, *options: str) -> dict[str, Any]:
    path = str(ROOT / "examples" / example)
    arguments = ("check", path, "--output-format", "json", "--exit-zero", *options)
    return json.loads(oomlint(*arguments).stdout)  # type: ignore[no-any-return]


def _way(report: dict[str, Any]) -> dict[str, Any]:
    (run,) = (each for each in report["runs"] if each["causes"])
    assert run["way"] is not None
    return dict(run["way"])


def test_a_way_that_is_not_safe_is_given_as_such() -> None:
    report = _checked("llama-factory-13b-offload", "--hardware", "8xRTX-4090")
    way = _way(report)
    assert way["applicability"] == "unsafe"
    assert way["edits"]
    assert "but optimizer states are kept in 8 bits" in way["title"]


def test_a_way_says_what_moves_and_not_what_lies_there_already() -> None:
    """The optimizer is in host RAM as it is: it comes back in 8 bits, which DeepSpeed would undo where it is."""
    way = _way(_checked("llama-factory-13b-offload"))
    assert "AdamW on the GPU" in way["title"]
    assert "in host RAM" not in way["title"]
    assert way["changes"]["offload.optimizer"] == "none"


def test_the_fix_of_a_rule_is_the_way_where_no_plan_is() -> None:
    report = _checked("llama-recipes-fsdp/finetune.sh", "--hardware", "8xA100-80GB")
    way = _way(report)
    assert way["title"] == "add --low_cpu_fsdp and its variables"
    assert way["applicability"] == "safe"
    estimated = oomlint(
        "estimate",
        ROOT / "examples/llama-recipes-fsdp/finetune.sh",
        "--hardware",
        "8xA100-80GB",
        "--output-format",
        "json",
    )
    (run,) = json.loads(estimated.stdout)["runs"]
    assert run["way"] == way


def test_findings_have_their_share_of_the_need() -> None:
    report = _checked("axolotl-no-checkpointing")
    shares = {each["code"]: each["cause_bytes"] for each in report["findings"]}
    parts = {each["component"]: each["bytes"] for each in report["runs"][0]["causes"]}
    assert shares["OOM102"] == parts["activations"] + parts["logits"]
    assert shares["OOM101"] == parts["activations"]
    assert shares["OOM103"] == parts["logits"]
