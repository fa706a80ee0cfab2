"""Ways to fit of a run with a misspelt key start from what its author means, and rename it."""

from __future__ import annotations

from pathlib import Path

from tests.linked import run_of

from oomlint.files.workspace import Workspace
from oomlint.fix.planned import fix_of
from oomlint.hardware import parse_hardware
from oomlint.judgement import judgement_of
from oomlint.judgement.planner import ways_to_fit
from oomlint.linting.engine import Options, lint
from oomlint.runs.run import Run

_AXOLOTL = """\
base_model: meta-llama/Llama-3.2-3B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
micro_batch_size: {micro}
optimizer: adamw_torch
bf16: true
flash_attention: true
{more}
"""


def _run(micro: int, more: str) -> Run:
    text = _AXOLOTL.format(micro=micro, more=more)
    return run_of({"a.yaml": text}, hardware="8xA100-80GB")


def test_a_way_takes_the_rename_along() -> None:
    run = _run(8, "sequence_length: 8192")
    first = ways_to_fit(run)[0]
    assert [each.key.path for each in first.renamed] == ["sequence_length"]
    assert first.moves
    fix = fix_of(first)
    assert fix is not None
    assert "sequence_len" in {edit.replacement for edit in fix.edits}
    assert fix.changes["seq.max_len"] == 8192


def test_a_length_that_a_way_sets_takes_the_place_of_the_misspelt_one() -> None:
    run = _run(1, "sequence_length: 131072\ngradient_checkpointing: true")
    ways = [way for way in ways_to_fit(run) if "seq.max_len" in way.changes]
    for way in ways:
        assert way.renamed == ()
        assert [each.key.path for each in way.dropped] == ["sequence_length"]
        fix = fix_of(way)
        assert fix is not None
        assert fix.edits


def test_a_rename_alone_is_a_way_where_it_is_all_that_is_missing() -> None:
    run = _run(1, "sequence_len: 16384\ngradient_checkpoint: true")
    assert judgement_of(run).written.verdict != "fits"
    assert judgement_of(run).verdict == "fits"
    (way,) = ways_to_fit(run)
    assert way.titles == ("rename gradient_checkpoint to gradient_checkpointing",)
    assert way.moves == ()


def test_linting_it_again_after_the_way_finds_no_trouble() -> None:
    run = _run(8, "sequence_length: 8192")
    fix = fix_of(ways_to_fit(run)[0])
    assert fix is not None
    source = run.claims[0].document.source
    changed = source.edited([edit for edit in fix.edits if edit.path == "a.yaml"])
    files = {"a.yaml": changed.to_bytes()}
    files |= {e.path: e.replacement.encode() for e in fix.edits if e.creates}
    report = lint(
        Workspace(Path("/x"), files), ["a.yaml"], Options(hardware=parse_hardware("8xA100-80GB"))
    )
    (after,) = report.runs
    assert after.misspelt == ()
    assert not judgement_of(after).is_lost
