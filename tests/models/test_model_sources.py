"""Every value of the catalogue says where it was read, or that nobody found it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from benchmarks.catalogue.sources import (
    CATALOGUE,
    CELLS,
    can_be_opened,
    cells_of,
    stated,
    without_source,
)
from tests.linked import run_of

from oomlint.models import catalogue, lookup
from oomlint.plan.fields import f

ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in CATALOGUE.read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_every_value_has_a_source_or_is_assumed(row: dict[str, Any]) -> None:
    assert set(without_source(row, cells_of(row))) == set(row.get("assumed", ()))
    # Nobody checked them against a class or a published count.
    assert row["conf"] in (
        ("derived",) if {*row.get("assumed", ())} - {"vision"} else ("verified", "derived")
    )
    assert any(source.startswith("count:") for source in row["src"])
    for source in row["src"]:
        assert source.startswith("count:") or can_be_opened(source), source
        assert (stated(source)[1] or CELLS) <= CELLS, source


@pytest.mark.parametrize(
    "source",
    [
        "model card, not re-read",
        "general knowledge",
        "its config.json, as published",
        "its config.json, as public checkpoints made of it carry it",
        "public table of the raw config.json values",
    ],
)
def test_what_nobody_can_open_is_no_source(source: str) -> None:
    assert not can_be_opened(source)


def test_a_value_without_a_source_is_found() -> None:
    row = {"layers": 2, "hidden": 8, "vocab": 10, "tie": 1, "heads": 2, "ctx": 512}
    counted = {"src": ["a/b:table.json [layers hidden heads vocab]", "count: published [tie]"]}
    assert without_source({**row, **counted}, cells_of(row)) == (
        "norm", "act", "ctx", "kv_heads", "head_dim", "flags",
    )  # fmt: skip
    whole = {"src": ["a/b:config.json"]}
    assert not without_source({**row, **whole}, [*cells_of(row), "ckpt"])
    assert without_source({**row, "src": ["a/b:builders.py"]}, ["ctx", "ckpt"]) == ("ckpt",)


def test_no_more_rows_have_values_without_a_source() -> None:
    """Their number may only fall."""
    assert sum(bool(row.get("assumed")) for row in ROWS) <= 65


def test_no_more_checkpoints_are_of_a_dtype_that_no_source_states() -> None:
    """Most rows are older than the rule, and have it from files that were not noted: their number may only fall."""
    assert sum(bool(without_source(row, ("ckpt",))) for row in ROWS) <= 407


@pytest.mark.parametrize(
    ("name", "quant", "ctx"),
    [
        ("Qwen/Qwen3-4B", "none", 40960),
        ("Qwen/Qwen3-4B-Base", "none", 32768),
        ("Qwen/Qwen3-4B-Instruct-2507", "none", 262144),
        ("qwen/qwen3-4b-instruct-2507-fp8", "fp8", 262144),
        ("somewhere/Qwen3_4B-Instruct-2507", "none", 262144),
        ("Qwen/Qwen2.5-7B", "none", 131072),
        ("Qwen/Qwen2.5-7B-Instruct", "none", 32768),
        ("HuggingFaceTB/SmolLM-135M", "none", 2048),
        ("HuggingFaceTB/SmolLM2-135M", "none", 8192),
        ("allenai/tulu-2-7b", "none", 8192),
        ("openchat/openchat-3.5-0106", "none", 8192),
    ],
)
def test_models_of_the_same_dimensions_have_their_own_context(
    name: str, quant: str, ctx: int
) -> None:
    facts = lookup(name)
    assert facts is not None
    assert (facts.dims.ctx, facts.native_quant) == (ctx, quant)


def test_an_id_is_listed_without_what_is_said_of_it() -> None:
    names = catalogue.all_ids()
    assert "Qwen/Qwen3-4B-Instruct-2507" in names
    assert not any("@" in name or "=" in name for name in names)


# Values as the files that the rows name have them, all of which the catalogue had otherwise.
@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("infly/OpenCoder-1.5B-Instruct", "tie_embeddings", False),
        ("infly/OpenCoder-1.5B-Instruct", "params_total", 1_905_650_880),
        ("facebook/mbart-large-50", "act", "relu"),
        ("hpcai-tech/grok-1", "act", "geglu"),
        ("OrionStarAI/Orion-14B-Chat", "norm", "ln"),
        ("ibm-granite/granite-3.1-8b-instruct", "vocab", 49155),
        ("llava-hf/llava-1.5-7b-hf", "ctx", 4096),
        ("internlm/internlm2-7b", "ctx", 32768),
        ("Qwen/Qwen2-57B-A14B", "ctx", 131072),
        ("zai-org/GLM-4.5V", "ctx", 65536),
        ("tiiuae/falcon-11B", "ctx", 8192),
        ("Duxiaoman-DI/XuanYuan-70B", "kv_heads", 8),
        ("Duxiaoman-DI/XuanYuan-70B", "params_total", 69_098_512_384),
        ("OpenGVLab/InternVL3_5-GPT-OSS-20B-A4B-Preview", "vocab", 200028),
        ("OpenGVLab/InternVL3_5-GPT-OSS-20B-A4B-Preview", "params_total", 21_232_768_704),
        ("xverse/XVERSE-13B", "vocab", 100534),
        ("facebook/galactica-1.3b", "act", "gelu"),
        ("google/ul2", "tie_embeddings", True),
        ("google/ul2", "params_total", 19_459_613_696),
    ],
)
def test_values_are_those_of_their_sources(name: str, field: str, value: object) -> None:
    facts = lookup(name)
    assert facts is not None
    assert getattr(facts.dims, field) == value


CONFIG = """\
model_name_or_path: {model}
stage: sft
do_train: true
finetuning_type: lora
cutoff_len: 512
"""


@pytest.mark.parametrize(
    ("model", "is_told"), [("BAAI/Aquila2-7B", True), ("Qwen/Qwen3-4B", False)]
)
def test_a_run_is_told_of_dimensions_without_a_source(model: str, is_told: bool) -> None:
    run = run_of({"sft.yaml": CONFIG.format(model=model)})
    leaf: Any = f.model.dims
    assert ("no source was found for layers, hidden" in str(run.origin(leaf))) is is_told


def test_what_no_source_states_is_unknown() -> None:
    facts = lookup("FlagAlpha/Atom-7B")
    assert facts is not None
    assert facts.dims.ctx is None
