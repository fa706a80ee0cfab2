"""The way out of a run does what it promises, and once it is taken there is nothing more to do."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from tests.judgement.planner.promises import HARDWARE, broken

from oomlint.files.workspace import Workspace
from oomlint.fix.apply import fix_all
from oomlint.hardware import parse_hardware
from oomlint.judgement import judgement_of
from oomlint.judgement.planner import ways_to_fit
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Applicability
from oomlint.wording.amounts import percent

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(p.parent for p in (ROOT / "examples").glob("*/oomlint.toml"))
CORPUS = ROOT / "../shared/corpus"
_SAMPLE = 40


def _files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.iterdir() if p.is_file())


def _sample() -> list[tuple[Path, str]]:
    if not CORPUS.is_dir():
        return []
    found = [
        (repository, str(path.relative_to(repository)))
        for repository in sorted(p for p in CORPUS.iterdir() if p.is_dir())
        for path in sorted(repository.rglob("*"))
        if path.suffix in (".yaml", ".yml", ".sh") and path.is_file()
    ]
    return Random(7).sample(found, _SAMPLE)


@pytest.mark.parametrize("hardware", HARDWARE)
@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_ways_of_examples_keep_their_promise(folder: Path, hardware: str) -> None:
    level = Applicability.UNSAFE
    assert list(broken(folder, _files(folder), hardware, level)) == []


@pytest.mark.parametrize("hardware", HARDWARE)
def test_ways_of_the_corpus_keep_their_promise(hardware: str) -> None:
    sample = _sample()
    if not sample:
        pytest.skip("the corpus is not here")
    found = [text for folder, name in sample for text in broken(folder, [name], hardware)]
    assert found == []


def _fixed_again(folder: Path, names: list[str], hardware: str) -> set[str]:
    """The files that a second --fix changes."""
    options = Options(hardware=parse_hardware(hardware))
    workspace = Workspace(folder)
    once = fix_all(workspace, names, options)
    again = fix_all(workspace.with_overlay(once.texts), names, options)
    return set(again.texts)


@pytest.mark.parametrize("hardware", HARDWARE)
@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_second_fix_of_an_example_changes_nothing(folder: Path, hardware: str) -> None:
    assert _fixed_again(folder, _files(folder), hardware) == set()


@pytest.mark.parametrize("hardware", HARDWARE[::3])
def test_second_fix_of_the_corpus_changes_nothing(hardware: str) -> None:
    sample = _sample()
    if not sample:
        pytest.skip("the corpus is not here")
    assert {n for folder, name in sample for n in _fixed_again(folder, [name], hardware)} == set()


_LORA = """\
base_model: NousResearch/Meta-Llama-3-8B
sequence_len: 4096
sample_packing: true
micro_batch_size: 3
gradient_accumulation_steps: 1
gradient_checkpointing: false
adapter: lora
lora_r: 16
lora_target_linear: true
optimizer: adamw_torch_fused
bf16: true
flash_attention: true
"""
_OPTIONS = Options(hardware=parse_hardware("1xA100-40GB"))


def test_a_way_leads_to_a_run_that_fits() -> None:
    (run,) = lint(Workspace(Path("/p"), {"a.yaml": _LORA.encode()}), ["a.yaml"], _OPTIONS).runs
    first = ways_to_fit(run, unsafe=False)[0]
    assert first.verdict == judgement_of(first.run).verdict == "fits"


def test_where_nothing_fits_the_best_that_rather_survives_is_offered_and_says_so() -> None:
    from oomlint.fix.planned import fix_of

    (run,) = lint(Workspace(Path("/p"), {"a.yaml": _LORA.encode()}), ["a.yaml"], _OPTIONS).runs
    (way,) = ways_to_fit(
        run, unsafe=False, takes=lambda move: move.rule == "no-gradient-checkpointing"
    )
    risk = judgement_of(way.run).risk
    assert risk == way.risk
    assert way.verdict == "tight"
    assert not way.risk.is_lost
    fix = fix_of(way)
    assert fix is not None
    assert risk.gpu is not None
    assert f"leaves a risk of {percent(risk.gpu)}" in fix.title
    # What rather survives already is not changed for a little less risk.
    assert not ways_to_fit(
        way.run, unsafe=False, takes=lambda move: move.rule == "no-gradient-checkpointing"
    )
