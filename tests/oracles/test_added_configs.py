"""DeepSpeed, and transformers where it fills in ``"auto"``, read the configs that a fix adds as they are meant."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from oomlint.dialects.deepspeed.presets import FAMILIES, text_of

LOADER = Path(__file__).parents[2] / "benchmarks/oracles/loaders/deepspeed_config.py"
# Nothing is asked for that these do: a fix names none of them.
FOR_SOMETHING_ELSE = ("compile", "autotp", "fp8")


@pytest.mark.skipif(
    "OOMLINT_ORACLE_PYTHON" not in os.environ or not LOADER.exists(),
    reason="no interpreter has the frameworks: see benchmarks/oracles/install",
)
def test_deepspeed_reads_each_config_that_a_fix_may_add(tmp_path: Path) -> None:
    said = {
        f"{name}.json": (text_of(family, name), config["zero_optimization"])
        for family in FAMILIES
        for name, config in family.configs().items()
        if not any(word in name for word in FOR_SOMETHING_ELSE)
    }
    for name, (text, _) in said.items():
        (tmp_path / name).write_text(text)
    ran = {"root": str(tmp_path), "ranks": 4, "micro": 1, "steps": 8}
    cases = [{**ran, "main": name} for name in said]
    out = tmp_path / "answers"
    command = [os.environ["OOMLINT_ORACLE_PYTHON"], str(LOADER), str(out)]
    subprocess.run(command, input=json.dumps(cases), text=True, check=True, capture_output=True)
    answers = json.loads(out.read_text())["answers"]
    for (name, (_, zero)), answer in zip(said.items(), answers, strict=True):
        read = answer.get("values")
        assert read is not None, f"{name}: {answer}"
        assert read["zero_optimization.stage"] == zero["stage"], name
        for part in ("offload_optimizer", "offload_param"):
            device = zero.get(part, {}).get("device")
            assert read.get(f"zero_optimization.{part}.device") == device, name
        assert read["train_batch_size"] == 4 * 1 * 8, name
