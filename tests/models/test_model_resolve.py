"""Resolution order: local files, the Hugging Face cache, the catalogue, a guess."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st

from oomlint.models import ModelFacts, resolve
from oomlint.models.resolve import lookup

TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}
TINY_PARAMS = 2 * 1000 * 64 + 2 * (64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64) + 64


def reader(files: Mapping[str, Any]) -> Callable[[str], bytes | None]:
    def read(path: str) -> bytes | None:
        value = files.get(path)
        return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()

    return read


def resolve_in(files: Mapping[str, Any], model: str, **options: Any) -> ModelFacts | None:
    options.setdefault("base_dirs", ["/job"])
    return resolve(model, read=reader(files), **options)


def test_a_local_folder_wins_over_the_catalogue() -> None:
    files = {"/job/Qwen/Qwen3-8B/config.json": TINY}
    facts = resolve_in(files, "Qwen/Qwen3-8B")
    assert facts is not None
    assert facts.dims.params_total == TINY_PARAMS
    assert facts.ckpt_dtype == "bf16"
    assert facts.confidence == "verified"
    assert "/job/Qwen/Qwen3-8B/config.json" in facts.source


def test_paths_may_be_absolute_or_climb() -> None:
    files = {"/models/tiny/config.json": TINY}
    for name in ("/models/tiny", "/models/tiny/", "../models/tiny"):
        facts = resolve_in(files, name)
        assert facts is not None
        assert facts.dims.layers == 2


def test_base_dirs_are_tried_in_order() -> None:
    files = {"/a/m/config.json": TINY, "/b/m/config.json": {**TINY, "num_hidden_layers": 3}}
    facts = resolve_in(files, "m", base_dirs=["/b", "/a"])
    assert facts is not None
    assert facts.dims.layers == 3


def test_an_adapter_stands_for_its_base_model() -> None:
    files = {"/job/out/adapter_config.json": {"base_model_name_or_path": "Qwen/Qwen2.5-7B"}}
    facts = resolve_in(files, "out")
    assert facts is not None
    assert facts.dims.params_total == 7_615_616_512
    assert "adapter" in facts.source


def test_adapters_in_a_circle_end() -> None:
    files = {
        "/job/a/adapter_config.json": {"base_model_name_or_path": "b"},
        "/job/b/adapter_config.json": {"base_model_name_or_path": "a"},
    }
    assert resolve_in(files, "a") is None


def test_the_hub_cache_is_read_through_its_ref() -> None:
    root = "/cache/models--acme--foo"
    files = {
        f"{root}/refs/main": b"abc123\n",
        f"{root}/snapshots/abc123/config.json": TINY,
    }
    facts = resolve_in(files, "acme/foo", hf_cache="/cache")
    assert facts is not None
    assert facts.dims.params_total == TINY_PARAMS


def test_a_ref_cannot_lead_out_of_the_cache() -> None:
    files = {
        "/cache/models--acme--foo/refs/main": b"../../../etc",
        "/cache/models--acme--foo/snapshots/../../../etc/config.json": TINY,
    }
    assert resolve_in(files, "acme/foo", hf_cache="/cache") is None


def test_the_index_gives_the_size_of_an_architecture_that_cannot_be_counted() -> None:
    config = {**TINY, "model_type": "brand_new"}
    files = {
        "/job/m/config.json": config,
        "/job/m/model.safetensors.index.json": {"metadata": {"total_size": 2_000_000}},
    }
    facts = resolve_in(files, "m")
    assert facts is not None
    assert facts.dims.params_total == 1_000_000
    assert facts.confidence == "derived"
    assert facts.dims.layers == 2


def test_the_index_of_a_quantised_checkpoint_does_not() -> None:
    config = {**TINY, "model_type": "brand_new", "quantization_config": {"quant_method": "awq"}}
    files = {
        "/job/m/config.json": config,
        "/job/m/model.safetensors.index.json": {"metadata": {"total_size": 2_000_000}},
    }
    facts = resolve_in(files, "m")
    assert facts is not None
    assert facts.dims.params_total is None
    assert facts.native_quant == "awq"


def test_catalogue_then_guess_then_nothing() -> None:
    known, guessed = resolve_in({}, "Qwen/Qwen3-8B"), resolve_in({}, "acme/Foo-7B")
    assert known is not None
    assert known.confidence == "verified"
    assert guessed is not None
    assert guessed.confidence == "guessed"
    assert resolve_in({}, "acme/foo") is None


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"model_type": 3}', b"{}"],
)
def test_broken_files_fall_through(content: bytes) -> None:
    facts = resolve_in({"/job/Qwen/Qwen3-8B/config.json": content}, "Qwen/Qwen3-8B")
    assert facts is not None
    assert facts.dims.params_total == 8_190_735_360


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(
            [*TINY, "text_config", "vision_config", "quantization_config", "layer_types",
             "num_experts", "head_dim", "kv_lora_rank", "sliding_window", "attn_config"]
        ),
        json_values,
    ),
    st.sampled_from(["llama", "qwen2_vl", "gemma3", "gpt_oss", "falcon", "qwen3_next", "internvl", ""]),
)  # fmt: skip
def test_no_config_makes_it_raise(config: dict[str, Any], model_type: str) -> None:
    files = {"/job/m/config.json": {**config, "model_type": model_type}}
    resolve_in(files, "m")


@pytest.mark.parametrize(
    ("path", "vocab", "layers"),
    [
        ("/mnt/hub/Qwen/Qwen2___5-Coder-1___5B-Instruct/", 151936, 28),
        ("~/.cache/modelscope/hub/qwen/Qwen1___5-0___5B", 151936, 24),
    ],
)
def test_folders_as_modelscope_names_them(path: str, vocab: int, layers: int) -> None:
    facts = resolve_in({}, path)
    assert facts is not None
    assert (facts.dims.vocab, facts.dims.layers) == (vocab, layers)


@pytest.mark.parametrize(
    ("name", "arch", "total"),
    [
        ("FacebookAI/xlm-roberta-large", "xlm-roberta", 559_890_432),
        ("roberta-base", "roberta", 124_645_632),
        ("bert-base-multilingual-cased", "bert", 177_853_440),
        ("BAAI/bge-m3", "xlm-roberta", 567_754_752),
        ("microsoft/deberta-v3-large", "deberta-v2", 434_012_160),
    ],
)
def test_encoders_are_known_with_what_their_classes_count(name: str, arch: str, total: int) -> None:
    facts = lookup(name)
    assert facts is not None
    assert (facts.dims.arch, facts.dims.params_total) == (arch, total)


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        # Called by a size that its parameters are 24 % above, and by how long it was trained.
        ("runs/Llama-3.2-1B-sft_entropy/checkpoint-42", 16),
        ("runs/sft_Qwen2.5-3B-Instruct_summary_full_1epoch-im/global_step_105", 36),
        # In a tree of experiments with one model each.
        ("expt/rl_cold_start/qwen3-1.7b/epo1/lora_merged", 28),
        ("Qwen2.5-7B-eval/judge-70B/out", None),
        # Of other parts than the model that it is called after.
        ("runs/Llama-3.2-1B-12experts/checkpoint-42", None),
    ],
)
def test_the_folder_of_a_run_names_its_model(name: str, layers: int | None) -> None:
    facts = resolve(name, read=lambda _path: None)
    assert (None if facts is None else facts.dims.layers) == layers


@pytest.mark.parametrize("name", ["bart", "models/flan-t5", "t5-v1_1"])
def test_a_family_is_not_its_base_size(name: str) -> None:
    assert lookup(name) is None
    assert lookup(f"{name}-base") is not None


def test_a_stage_of_training_may_be_left_out() -> None:
    assert lookup("deepseek-coder-1.3b") is not None
