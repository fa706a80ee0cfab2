"""The packaged model catalogue: every id is found, every count adds up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oomlint.memory import skeleton
from oomlint.models import all_ids, catalogue, count_parameters, guess, lookup
from oomlint.models.facts import ModelFacts
from oomlint.plan.model import Sound

DATA = Path(catalogue.__file__).parent / "data"
SHARED = Path(__file__).parents[2] / "../shared"
LINES = range(catalogue.size())


def facts_of(line: int) -> ModelFacts:
    return catalogue.facts(catalogue.CatalogueMatch(line, None))


def test_data_is_compact() -> None:
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 480 * 1024


def test_data_names_no_path_of_a_workplace() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in DATA.iterdir())
    for word in ("shared/data", "shared/tools", "shared/reference", "index id"):
        assert word not in text


def test_both_files_have_a_line_per_model() -> None:
    assert len((DATA / "ids.tsv").read_text(encoding="utf-8").splitlines()) == catalogue.size()


def test_every_id_finds_its_own_line() -> None:
    for line in LINES:
        for name in catalogue.ids_of(line):
            match = catalogue.find_id(name.upper())
            assert match is not None, name
            assert match.line == line, name
    assert len(all_ids()) > 2000


def test_no_model_takes_the_name_of_another_of_its_size() -> None:
    """Two makers' models of one name, of which neither would be found by it."""
    for line in LINES:
        for name in catalogue.ids_of(line):
            assert catalogue.find_basename(catalogue.fold(name.rpartition("/")[2])), name


@pytest.mark.parametrize("line", LINES)
def test_counts_are_consistent(line: int) -> None:
    facts = facts_of(line)
    dims = facts.dims
    assert facts.source
    assert dims.params_total is not None
    assert dims.params_active is not None
    assert 0 < dims.params_active <= dims.params_total
    assert dims.layers
    assert dims.hidden
    assert dims.vocab
    if dims.params_linear is not None and dims.params_nonlinear is not None:
        tower = dims.vision.params or 0 if dims.vision else 0
        parts = dims.params_linear + dims.params_nonlinear
        # Rows whose text model alone was rebuilt keep the tower out of the two parts.
        assert parts in (dims.params_total, dims.params_total - tower) or facts.note
    if dims.layer_types is not None:
        assert len(dims.layer_types) >= dims.layers


def test_counting_agrees_with_every_verified_row_that_it_knows() -> None:
    counted = 0
    for line in LINES:
        facts = facts_of(line)
        counts = count_parameters(facts.dims)
        if counts is None or facts.confidence != "verified":
            continue
        counted += 1
        dims = facts.dims
        assert counts.total == dims.params_total, facts.id
        assert counts.active == dims.params_active, facts.id
        assert counts.embed == dims.params_embed, facts.id
        assert counts.lm_head == dims.params_lm_head, facts.id
        assert counts.layer_max == dims.params_layer_max, facts.id
        if dims.vision is None:
            assert counts.linear == dims.params_linear, facts.id
            assert counts.nonlinear == dims.params_nonlinear, facts.id
    assert counted >= 194  # of 240 verified rows; the rest have architectures of their own


# Parameter counts that the models' publishers or the Hub's safetensors metadata state.
PUBLISHED = {
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "google/gemma-2-9b": 9_241_705_984,
    "microsoft/Phi-3-mini-4k-instruct": 3_821_079_552,
    "openai/gpt-oss-20b": 20_914_757_184,
    "Qwen/Qwen2.5-VL-7B-Instruct": 8_292_166_656,
    "EleutherAI/polyglot-ko-3.8b": 3_809_974_272,
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_published_counts(name: str, count: int) -> None:
    facts = lookup(name)
    assert facts is not None
    assert facts.dims.params_total == count
    counted = count_parameters(facts.dims)
    assert counted is not None
    assert counted.total == count


def test_unknown_architecture_has_no_count() -> None:
    mamba = lookup("state-spaces/mamba-2.8b-hf")
    assert mamba is not None
    assert count_parameters(mamba.dims) is None


def shared(name: str) -> Path:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not beside this checkout")
    return path


def test_every_known_id_kept_its_model_and_quantisation() -> None:
    for text in shared("data/models.jsonl").read_text(encoding="utf-8").splitlines():
        row: dict[str, Any] = json.loads(text)
        for alias in row["ids"]:
            facts = lookup(alias["id"])
            assert facts is not None, alias
            assert facts.id == row["id"], alias
            quant = alias.get("quant") or row["native_quant"]
            if "awq" in alias["id"].lower():
                quant = "awq"
            assert facts.native_quant == ("none" if quant == "bf16" else quant), alias


def test_ids_that_configs_use_resolve() -> None:
    uses = json.loads(shared("data/model_ids.json").read_text(encoding="utf-8"))
    unresolved = json.loads(shared("data/models_unresolved.json").read_text(encoding="utf-8"))
    not_models = {entry["id"] for entry in unresolved["configs"]["not_a_model"]}
    total = found = 0
    for entry in uses:
        if entry["id"] not in not_models:
            total += entry["n"]
            found += entry["n"] * (lookup(entry["id"]) is not None)
    assert found / total >= 0.99


def test_ids_of_measured_runs_resolve() -> None:
    names = set()
    for path in shared("truth").glob("*.jsonl"):
        for text in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(text)
            name = row.get("model_id") or row.get("model")
            # A row with dimensions of its own names a shape, not a published model.
            if isinstance(name, str) and "dims" not in row:
                names.add(name)
    assert names
    unknown = {name for name in names if lookup(name) is None and guess(name) is None}
    assert unknown <= {"see example (not named in the blog)"}


def test_minicpm_v_is_its_parts() -> None:
    """Language model, SigLIP tower and resampler, whose sum the publisher's 2.6 has too."""
    older, newer = lookup("openbmb/MiniCPM-Llama3-V-2_5"), lookup("OpenBMB/MiniCPM-V-2")
    text, small = lookup("meta-llama/Meta-Llama-3-8B"), lookup("openbmb/MiniCPM-2B-sft-bf16")
    assert older is not None
    assert newer is not None
    assert text is not None
    assert small is not None
    for whole, part in ((older, text), (newer, small)):
        assert whole.dims.vision is not None
        assert whole.dims.vision.params is not None
        assert whole.dims.params_total == part.dims.params_total + whole.dims.vision.params
        assert whole.dims.vision.hidden == 1152


# Models that are encoder and decoder, or have blocks of their own, as transformers' classes build them on the meta device
# (benchmarks/catalogue/verify_models.py).
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("distilbert/distilbert-base-uncased", 66_362_880),
        ("sentence-transformers/all-MiniLM-L6-v2", 22_713_216),
        ("sentence-transformers/all-MiniLM-L12-v2", 33_360_000),
        ("BAAI/bge-small-en-v1.5", 33_360_000),
        ("GSAI-ML/LLaDA-8B-Instruct", 8_015_581_184),
        ("google/flan-t5-small", 76_961_152),
        ("google/flan-t5-base", 247_577_856),
        ("google/t5-v1_1-large", 783_150_080),
        ("google/flan-t5-xl", 2_849_757_184),
        ("google/flan-t5-xxl", 11_135_332_352),
        ("google/mt5-small", 300_176_768),
        ("facebook/bart-base", 139_420_416),
        ("facebook/bart-large-cnn", 406_290_432),
        ("Salesforce/codegen-350M-mono", 356_712_448),
    ],
)
def test_models_of_other_blocks_are_built_as_they_were_counted(name: str, count: int) -> None:
    facts = lookup(name)
    assert facts is not None
    assert facts.dims.params_total == count
    built = skeleton(facts.dims)
    assert built is not None
    assert built.numel == pytest.approx(count, rel=2e-5)


def test_finetunes_that_do_not_name_their_base_are_what_they_were_made_of() -> None:
    """By the vocabularies and dimensions of their config.json, not by the size in their names."""
    for name, base in (
        ("Intel/neural-chat-7b-v3-1", "mistralai/Mistral-7B-v0.1"),
        ("garage-bAInd/Platypus2-70B-instruct", "meta-llama/Llama-2-70b-hf"),
        ("EleutherAI/pythia-6.7b-deduped", "EleutherAI/pythia-6.9b"),
        ("microsoft/DialoGPT-medium", "openai-community/gpt2-medium"),
        ("microsoft/DialogRPT-updown", "openai-community/gpt2-medium"),
        ("BAAI/bge-base-zh", "AI-ModelScope/bert-base-chinese"),
    ):
        found, known = lookup(name), lookup(base)
        assert found is not None
        assert found == known


def test_llama_guard_is_the_llama_that_it_was_made_of() -> None:
    """By their model cards, "a fine-tuned Llama-3.2-1B pretrained model" and so on."""
    for name, params in (
        ("meta-llama/Llama-Guard-3-1B", 1_235_814_400),
        ("meta-llama/Llama-Guard-3-8B", 8_030_261_248),
    ):
        found = lookup(name)
        assert found is not None
        assert found.dims.params_total == params


def test_the_catalogue_says_what_whisper_hears() -> None:
    turbo, english = lookup("openai/whisper-large-v3-turbo"), lookup("openai/whisper-small.en")
    assert turbo is not None
    assert english is not None
    assert turbo.dims.sound == Sound(frames=1500, bands=128)
    assert (turbo.dims.layer_types or ()).count("decoder") == 4
    for facts, total in ((turbo, 808_878_080), (english, 241_734_144)):
        built = skeleton(facts.dims)
        assert built is not None
        assert built.numel == facts.dims.params_total == total
