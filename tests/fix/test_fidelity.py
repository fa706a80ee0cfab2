"""Fixes keep the bytes that they do not edit, end, and make nothing worse: on files made up at
random, and on a share of the real ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from benchmarks.planning.fidelity import DRESSES, troubles, troubles_of
from hypothesis import HealthCheck, given, settings, strategies as st

from oomlint.files.disk import walk
from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_hardware

pytestmark = pytest.mark.slow

CORPUS = Path(__file__).parents[2] / "../shared/corpus"
# More of both, for a night: OOMLINT_EXAMPLES=2000 pytest tests/fix/test_fidelity.py
EXAMPLES = int(os.environ.get("OOMLINT_EXAMPLES", "8"))

_KEYS = {
    "base_model": ["NousResearch/Meta-Llama-3-8B", '"Qwen/Qwen2.5-0.5B"', "'Qwen/Qwen2.5-7B'"],
    "micro_batch_size": ["1", "4", "32", "0x8"],
    "gradient_accumulation_steps": ["1", "8", "12"],
    "sequence_len": ["2048", "16384", "1_024"],
    "sample_packing": ["true", "false"],
    "gradient_checkpointing": ["true", "false", "no", "unsloth"],
    "adapter": ["lora", "qlora", ""],
    "lora_r": ["8", "64"],
    "lora_target_linear": ["true"],
    "load_in_4bit": ["true", "false"],
    "optimizer": ["adamw_torch", "adamw_8bit", "paged_adamw_8bit", "adafactor"],
    "bf16": ["auto", "true", "false"],
    "flash_attention": ["true", "false"],
    "deepspeed": ["ds.json", "deepspeed_configs/zero1.json", "deepspeed_configs/zero3.json"],
    "eval_batch_size": ["1", "64"],
    "val_set_size": ["0.1"],
    "sequence_length": ["4096"],
    "save_only_model": ["true", "false"],
}
_COMMENTS = ["", "  # why", "  # naïve 🦥", "\t# tab", "   "]
_ABOVE = ["", "# a line above\n", "\n", "# é\n\n"]
_DEEPSPEED = (
    '{{"zero_optimization":{space}{{"stage":{space}{stage}}},{newline}'
    '{tab}"train_micro_batch_size_per_gpu": "auto"}}{end}'
)


@st.composite
def _projects(draw: st.DrawFn) -> dict[str, bytes]:
    chosen = draw(st.permutations(list(_KEYS)))
    chosen = [key for key in chosen if key == "base_model" or draw(st.booleans())]
    lines = [
        f"{draw(st.sampled_from(_ABOVE))}{key}: {draw(st.sampled_from(_KEYS[key]))}"
        f"{draw(st.sampled_from(_COMMENTS))}\n"
        for key in (*chosen, "datasets")
        if key in _KEYS
    ]
    text = "".join(lines) + "datasets:\n  - path: a/b\n    type: alpaca\n"
    deepspeed = _DEEPSPEED.format(
        space=draw(st.sampled_from(["", " ", "\n    "])),
        stage=draw(st.integers(0, 3)),
        newline=draw(st.sampled_from(["", "\n", "\r\n"])),
        tab=draw(st.sampled_from(["", "\t", "  "])),
        end=draw(st.sampled_from(["", "\n"])),
    )
    dress = DRESSES[draw(st.sampled_from(sorted(DRESSES)))]
    return {"a.yaml": dress(text.encode()), "ds.json": deepspeed.encode()}


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="OOMLINT_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
@given(
    project=_projects(),
    hardware=st.sampled_from(["1xT4-16GB", "2xRTX-3090-24GB", "8xA100-80GB", "2x8xL4-24GB"]),
    unsafe=st.booleans(),
)
def test_fixes_of_made_up_files(project: dict[str, bytes], hardware: str, unsafe: bool) -> None:
    workspace = Workspace(Path("/nowhere"), project)
    assert list(troubles_of(workspace, "a.yaml", parse_hardware(hardware), unsafe)) == []


@pytest.mark.parametrize("dress", sorted(DRESSES))
def test_fixes_of_real_files(dress: str) -> None:
    if not CORPUS.is_dir():
        pytest.skip("the corpus is not here")
    paths = list(walk(CORPUS, (".yaml", ".yml", ".json")))
    every = max(1, len(paths) // EXAMPLES)
    start = sorted(DRESSES).index(dress)
    found = {
        name: trouble
        for name in (str(path.relative_to(CORPUS)) for path in paths[start::every])
        for trouble in [list(troubles(CORPUS, name, parse_hardware("8xT4-16GB"), dress=dress))]
        if trouble
    }
    assert found == {}
