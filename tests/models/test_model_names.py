"""Aliases, suffixes and sizes in model names."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from oomlint.models import GUESS_SPREAD, guess, lookup, resolve
from oomlint.models.names import guess_size, quant_of


@pytest.mark.parametrize(
    ("name", "same_as"),
    [
        ("NousResearch/Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("meta-llama/meta-llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
        ("checkpoints/meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-7b-hf"),
        ("/tmp/Llama-2-7b-hf/", "meta-llama/Llama-2-7b-hf"),
        ("~/models/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
        ("$HDFS_ROOT/model/Qwen2-7B-Instruct", "Qwen/Qwen2-7B-Instruct"),
        ("LLM-Research/Meta-Llama-3-8B-Instruct", "meta-llama/Meta-Llama-3-8B"),
        ("somebody/qwen2_5-7b", "Qwen/Qwen2.5-7B"),
        ("meta-llama/Llama-2-7b-chat", "meta-llama/Llama-2-7b-hf"),
        ("llama3-8b", "meta-llama/Meta-Llama-3-8B"),
        ("./checkpoints/vicuna-v1-3-7b", "lmsys/vicuna-7b-v1.3"),
        ("gemma2-9b-it", "google/gemma-2-9b"),
        ("https://huggingface.co/Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("models--Qwen--Qwen3-8B/snapshots/0123", "Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-8B@main", "Qwen/Qwen3-8B"),
        ("C:\\models\\opt-1.3b", "facebook/opt-1.3b"),
    ],
)
def test_aliases(name: str, same_as: str) -> None:
    facts, original = lookup(name), lookup(same_as)
    assert facts is not None
    assert original is not None
    assert facts.id == original.id
    assert facts.dims == original.dims


def test_dots_are_not_dropped() -> None:
    small, large = lookup("/data/opt-1.3b"), lookup("/data/opt-13b")
    assert small is not None
    assert large is not None
    assert small.dims.layers == 24
    assert large.dims.layers == 40


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("unsloth/Meta-Llama-3.1-8B-bnb-4bit", "bnb4"),
        ("unsloth/Qwen3-14B-unsloth-bnb-4bit", "bnb4_dynamic"),
        ("TheBloke/Llama-2-7B-GPTQ", "gptq"),
        ("foo/Llama-2-7b-GPTQ-Int8", "gptq8"),
        ("foo/Qwen2.5-7B-Instruct-AWQ", "awq"),
        ("foo/Qwen2.5-7B-Instruct-FP8", "fp8"),
        ("openai/gpt-oss-20b", "mxfp4"),
        ("someone/gpt-oss-20b-BF16", "none"),
        ("deepseek-ai/DeepSeek-V3", "fp8_block"),
        ("meta-llama/Llama-2-7b-hf", "none"),
    ],
)
def test_quantisation_is_that_of_the_id_asked_for(name: str, quant: str) -> None:
    facts = lookup(name)
    assert facts is not None
    assert facts.native_quant == quant


def test_the_rules_lower_the_confidence() -> None:
    exact, by_rule = lookup("Qwen/Qwen2.5-7B"), lookup("mirror/Qwen2.5-7B-hf")
    assert exact is not None
    assert by_rule is not None
    assert exact.confidence == "verified"
    assert by_rule.confidence == "derived"


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("acme/Foo-7B", 7e9, 7e9),
        ("acme/foo-125m-base", 125e6, 125e6),
        ("acme/Foo9-30B-A3B-Instruct", 30e9, 3e9),
        ("acme/foo-8x7B", 45.92e9, 10.56e9),
        ("acme/foo_1.5b_chat", 1.5e9, 1.5e9),
        ("acme/foo-2-1_6b", 1.6e9, 1.6e9),
        ("acme/foo-3_8b", 8e9, 8e9),
        ("acme/foo1_5b", 5e9, 5e9),
        ("out/foo2_5_1_5b_sft", 1.5e9, 1.5e9),
        ("out/run_0_5b", 0.5e9, 0.5e9),
        ("acme/foo_1_7b", 7e9, 7e9),
        ("acme/Foo-70B-4bit", 70e9, 70e9),
    ],
)
def test_sizes_in_names(name: str, total: float, active: float) -> None:
    size = guess_size(name)
    assert size is not None
    assert size.total == pytest.approx(total)
    assert size.active == pytest.approx(active, rel=0.01)


@pytest.mark.parametrize(
    "name",
    ["gpt-3.5-turbo", "foo-4bit", "text-think-2k", "model", "foo-16k", "foo-v0.1", "b", "7", ""],
)
def test_names_without_a_size(name: str) -> None:
    assert guess_size(name) is None
    assert guess(name) is None


def test_a_guess_knows_that_it_is_one() -> None:
    facts = guess("acme/Foo-7B-AWQ")
    assert facts is not None
    assert facts.confidence == "guessed"
    assert facts.native_quant == "awq"
    assert facts.dims.layers is None
    assert facts.dims.params_total == 7_000_000_000


def test_a_fine_tune_is_guessed_at_the_size_of_its_base() -> None:
    facts = guess("teknium/OpenHermes-2.5-Mistral-7B")
    assert facts is not None
    assert facts.confidence == "guessed"
    assert facts.dims.params_total == 7_241_732_096
    assert facts.dims.layers is None


def test_guessed_sizes_of_known_models_lie_within_the_spread() -> None:
    names = ("Qwen/Qwen2.5-7B", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-2-70b-hf", "01-ai/Yi-34B")
    for name in names:
        size, facts = guess_size(name), lookup(name)
        assert size is not None
        assert facts is not None
        total = facts.dims.params_total
        assert total is not None
        assert abs(size.total - total) <= GUESS_SPREAD * total


@pytest.mark.parametrize(
    "name", ["", "${MODEL}", "{{ model }}-7b", "/path/to/model", "\t", "x" * 5000, "\0"]
)
def test_nothing_comes_of_nothing(name: str) -> None:
    assert lookup(name) is None
    assert guess(name) is None


@given(st.text(max_size=80))
def test_any_text_is_safe(text: str) -> None:
    for facts in (lookup(text), guess(text)):
        assert facts is None or facts.dims.params_total


@pytest.mark.parametrize(
    "name",
    [
        "acme/Llama-3.1-Minitron-8B",  # pruned
        "acme/Llama-3.2-Vision-11B",
        "acme/Llama-3.1-Other-49B",  # of no Llama's size
        "acme/Llama-3.1-Qwen2-VL-8B",
        "acme/Other-Llama-3-Base",
    ],
)
def test_what_is_called_after_llama_3_and_is_none_of_its_shape(name: str) -> None:
    facts = resolve(name, read=lambda path: None)
    assert facts is None or facts.dims.layers is None


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("/data/qwen/Qwen1.5-14B-Chat-v3.0", "Qwen/Qwen1.5-14B-Chat"),
        ("acme/Llama-3-8B-Instruct-Gradient-1048k", "meta-llama/Meta-Llama-3-8B-Instruct"),
        ("Qwen2.5-0.5B-Address-SFT", "Qwen/Qwen2.5-0.5B-Instruct"),
        ("Llama-2-7b-chat-hf-sharded-bf16", "meta-llama/Llama-2-7b-hf"),
        ("acme/Llama-3.1-Swallow-8B-v0.1", "meta-llama/Llama-3.1-8B"),
        ("acme/Llama-3-Base-8B-SFT", "meta-llama/Meta-Llama-3-8B-Instruct"),
    ],
)
def test_a_copy_has_the_shape_of_the_model_that_its_name_begins_with(name: str, base: str) -> None:
    assert lookup(name) is None
    facts, known = resolve(name, read=lambda path: None), lookup(base)
    assert facts is not None
    assert known is not None
    assert (facts.dims, facts.confidence) == (known.dims, "derived")
    assert facts.source.startswith(f"by the beginning of its name, {base}")


@pytest.mark.parametrize(
    "name",
    [
        "acme/Llama-3.1-8B-Minitron-4B",
        "acme/Qwen2.5-7B-Instruct-VL",
        "acme/Qwen2.5-7B-pruned",
        "LlamaMoEForCausalLM/llama2_7B-8Select2-1376Neurons-Share",
        "acme/llama2_7B-1376Neurons",
        "acme/house-7b-v2",
    ],
)
def test_a_name_that_tells_of_another_shape_is_no_copy(name: str) -> None:
    facts = resolve(name, read=lambda path: None)
    assert facts is None or facts.confidence == "guessed"


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("teknium/OpenHermes-2.5-Mistral-7B", "mistralai/Mistral-7B-v0.1"),
        ("PATH_TO_LLAMA3-8B", "meta-llama/Meta-Llama-3-8B-Instruct"),
        ("out/sft-qwen-2.5-7b-instruct/global_step_372", "Qwen/Qwen2.5-7B"),
        ("out/sokoban-1.5b-qwen-2.5-1.5b-base/global_step_9/actor", "Qwen/Qwen2.5-1.5B"),
        ("out/Llama-2-7b-hf/checkpoint-500/", "meta-llama/Llama-2-7b-hf"),
        ("x/mistral-7b-sft/merged", "mistralai/Mistral-7B-v0.1"),
    ],
)
def test_a_family_and_a_size_in_a_name_are_assumed_to_be_its_model(name: str, base: str) -> None:
    facts, known = resolve(name, read=lambda path: None), lookup(base)
    assert facts is not None
    assert known is not None
    assert (facts.dims, facts.confidence) == (known.dims, "assumed")


def test_a_version_may_lack_its_point_and_a_family_its_release() -> None:
    for name, known in (
        ("qwen25_7b_sft", "Qwen/Qwen2.5-7B"),
        ("Qwen15-7B-Chat", "Qwen/Qwen1.5-7B-Chat"),
        ("llama31-8b", "meta-llama/Llama-3.1-8B"),
        ("outputs/zephyr-7b-sec9", "mistralai/Mistral-7B-v0.1"),
    ):
        facts, base = resolve(name, read=lambda path: None), lookup(known)
        assert facts is not None
        assert base is not None
        assert (facts.dims, facts.confidence) == (base.dims, "derived")
    of_another = "acme/zephyr-7b-gemma-dpo"
    assert resolve(of_another, read=lambda path: None) == guess(of_another)


def test_families_are_found_with_their_version_parted() -> None:
    for name, known in (
        ("qwen-1.5-7B", "Qwen1.5-7B"),
        ("baichuan-2-13b-chat", "Baichuan2-13B-Chat"),
    ):
        found, other = lookup(f"acme/{name}"), lookup(f"acme/{known}")
        assert found is not None
        assert other is not None
        assert found.dims == other.dims


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("gpt-oss-120b-w4a16-experts-4bit-2:4", "gptq"),
        ("Llama-3.1-8B-4bit-mine", "bnb4"),
        ("Llama-3.1-8B-AWQ-mine-GPTQ", "gptq"),
        ("Llama-3.1-8B-mine", None),
    ],
)
def test_a_quantization_may_stand_within_a_name(name: str, quant: str | None) -> None:
    assert quant_of(name) == quant
