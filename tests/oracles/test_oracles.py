"""The frameworks' own loaders read what we read, before and after our fixes, and take those.

Skipped for each framework that the interpreter of ``OOMLINT_ORACLE_PYTHON`` lacks:
``benchmarks/oracles/install`` makes an environment that has them all.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest
from tests.linked import run_of

ROOT = Path(__file__).parents[2]

# Fixes are judged for one machine here; `python -m benchmarks.oracles` takes three.
MACHINE = "1xT4-16GB"
# How much each must at least have been shown, so that no framework falls silent: configs as they
# came, configs after a fix, examples of rules, and values compared.
SHOWN = {
    "transformers and peft": (2, 1, 30, 2500),
    "TRL": (13, 8, 8, 2500),
    "FastChat": (5, 3, 0, 300),
    "Accelerate": (20, 5, 10, 800),
    "DeepSpeed": (25, 5, 30, 2500),
    "torchrun, deepspeed, accelerate launch": (0, 0, 25, 100),
    "Axolotl": (120, 40, 40, 7000),
    "LLaMA-Factory": (20, 8, 25, 7000),
    "torchtune": (8, 3, 1, 300),
    "LitGPT": (20, 4, 0, 500),
    "LLM Foundry": (10, 2, 1, 300),
    "ms-swift": (2, 1, 6, 600),
    "llama-cookbook": (2, 1, 10, 600),
    "OpenRLHF": (1, 1, 1, 50),
    "verl": (3, 1, 3, 200),
    "torchtitan": (40, 20, 0, 2000),
    "nanotron": (10, 0, 0, 200),
    # Read by their own checkouts, of which a machine without them has none.
    "Meta Lingua": (0, 0, 0, 0),
    "Colossal-AI": (0, 0, 0, 0),
    "align-anything": (0, 0, 0, 0),
}


@pytest.fixture(scope="module")
def verdicts() -> ModuleType:
    if not (ROOT / "benchmarks" / "oracles").is_dir():
        pytest.skip("benchmarks/oracles is not part of this source tree")
    return importlib.import_module("benchmarks.oracles.verdict")


@pytest.mark.parametrize("name", SHOWN)
def test_a_framework_agrees_and_takes_what_we_write(
    name: str, verdicts: ModuleType, tmp_path: Path
) -> None:
    if not importlib.import_module("benchmarks.oracles.cases").CORPUS.is_dir():
        pytest.skip("the corpus of the frameworks' own configs is not beside the project")
    frameworks = importlib.import_module("benchmarks.oracles.frameworks").FRAMEWORKS
    (framework,) = (each for each in frameworks if each.name == name)
    try:
        verdict = verdicts.judge(framework, tmp_path, (MACHINE,))
    except verdicts.MissingFramework as missing:
        pytest.skip(f"{missing}; see benchmarks/oracles/install")
    assert verdict.disagreements == []
    assert verdict.refused_after == []
    shown = (verdict.read, verdict.fixed, verdict.examples, verdict.compared)
    assert all(was >= least for was, least in zip(shown, SHOWN[name], strict=True)), shown


def test_deepspeed_holds_no_value_of_a_file_against_a_trainer_that_is_not_here(
    verdicts: ModuleType, tmp_path: Path
) -> None:
    frameworks = importlib.import_module("benchmarks.oracles.frameworks").FRAMEWORKS
    (deepspeed,) = (each for each in frameworks if each.name == "DeepSpeed")
    said = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": "auto",
        # 5e-5 is what a Trainer takes that is told nothing.
        "optimizer": {"type": "Adam", "params": {"lr": 4e-5, "weight_decay": "auto"}},
    }
    (tmp_path / "ds.json").write_text(json.dumps(said), "utf-8")
    run = run_of({"ds.json": json.dumps(said)})
    case = importlib.import_module("benchmarks.oracles.framework").Case
    try:
        verdict = verdicts.judge_cases(
            deepspeed, [case("ds.json", tmp_path, "ds.json", run)], tmp_path
        )
    except verdicts.MissingFramework as missing:
        pytest.skip(f"{missing}; see benchmarks/oracles/install")
    assert (verdict.read, verdict.refused_before) == (1, [])


def test_every_framework_is_asked(verdicts: ModuleType) -> None:
    frameworks = importlib.import_module("benchmarks.oracles.frameworks").FRAMEWORKS
    assert {framework.name for framework in frameworks} == set(SHOWN)
