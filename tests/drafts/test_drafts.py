"""Configs for a model and a wish: written in a framework's own keys, judged like any, and fitting."""

import json

import pytest
from msgspec.structs import replace

import oomlint
from oomlint.drafts import (
    FRAMEWORKS,
    UnknownModel,
    Wanted,
    fitting,
    lightest,
    named_model,
    places,
)
from oomlint.errors import UsageError
from oomlint.hardware import parse_hardware
from oomlint.judgement import judgement_of
from oomlint.judgement.planner import levers
from oomlint.report.drafts import new_file

LLAMA = named_model("meta-llama/Llama-3.1-8B")


def wish(**given):
    hardware = given.pop("hardware", None)
    machine = None if hardware is None else parse_hardware(hardware)
    return Wanted(**{"model": LLAMA, "hardware": machine, **given})


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("method", "hardware"), [("lora", "2xRTX-4090"), ("full", "8xA100-80GB"), ("qlora", "RTX-4090")]
)
def test_what_is_written_fits_as_a_stranger_would_find_it(framework, method, hardware):
    wanted = wish(framework=framework, method=method, hardware=hardware, length=1024, batch=2)
    found = fitting(wanted)
    file = found.draft.skeleton.file
    report = oomlint.check({file: new_file(found, file)}, hardware)
    (run,) = report["runs"]
    assert run["verdict"] == "fits"
    assert run["framework"] == framework
    assert not [finding for finding in report["findings"] if finding["severity"] != "info"]
    plan = run["plan"]
    assert plan["trainable"]["method"] == method or (method, plan["quant"]["method"]) == (
        "qlora",
        "nf4_torchao",
    )
    assert (plan["seq"]["max_len"], plan["batch"]["micro"]) == (1024, 2)
    assert run["gpu"]["peak_bytes"] == found.draft.run.estimate.gpu.peak_bytes


def test_what_is_left_open_is_chosen_with_its_reason():
    found = lightest(wish())
    chosen = {str(each.field): each.value for each in found.assumed}
    assert chosen == {
        "framework": "trl",
        "trainable.method": "lora",
        "seq.max_len": 2048,
        "batch.micro": 1,
        "trainable.r": 16,
        "parallel.gpus_per_node": 1,
    }
    assert all(each.why for each in found.assumed)


def test_the_better_method_is_taken_that_fits():
    roomy = fitting(wish(framework="axolotl", hardware="RTX-4090"))
    tight = fitting(wish(framework="axolotl", hardware="T4"))
    assert (roomy.draft.wanted.method, tight.draft.wanted.method) == ("lora", "qlora")
    assert tight.draft.run.plan.precision.compute == "fp16"  # a T4 has no bf16


def test_a_model_is_shared_no_further_than_needed():
    assert lightest(wish(method="lora", hardware="8xA100-80GB")).draft.shard == "none"
    assert lightest(wish(method="full", hardware="8xA100-80GB")).draft.shard == "zero2"


def test_a_way_that_the_planner_finds_is_written():
    wanted = wish(framework="axolotl", method="lora", hardware="RTX-4090", length=8192)
    assert judgement_of(lightest(wanted).draft.run).verdict != "fits"
    found = fitting(wanted)
    assert found.changes == ("compute the loss fused with the output head",)
    assert judgement_of(found.draft.run).verdict == "fits"


def test_what_the_user_says_is_not_changed_to_fit():
    wanted = wish(framework="axolotl", method="lora", hardware="RTX-4090")
    assert fitting(replace(wanted, batch=16)) is None
    left_open = fitting(replace(wanted, batch=None))
    assert left_open.draft.run.plan.batch.micro == 1


def test_nothing_is_found_where_nothing_fits():
    assert fitting(wish(framework="trl", method="full", hardware="T4")) is None


def test_cards_are_the_smallest_that_hold_it_and_more_of_them_share_it():
    found = places(lightest(wish(method="full")))
    one = [place for place in found if place.option.hardware.gpus_per_node == 1]
    assert all(place.shard == "none" for place in one)
    assert all(place.shard != "none" for place in found if place not in one)
    assert len({place.option.hardware.gpu.name for place in found}) == len(found)


def test_levers_are_in_the_order_of_what_they_save():
    run = lightest(wish(method="lora")).draft.run
    found = levers(run)
    assert found[0].move.title == "quantize the frozen base"
    savings = [lever.saving for lever in found]
    assert savings == sorted(savings, reverse=True)
    peak = run.estimate.gpu.peak_bytes
    for lever in found:
        after = run.what_if(lever.move.changes).estimate.gpu.peak_bytes
        assert peak - after == lever.saving


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "full", "rank": 8}, "a rank is that of an adapter"),
        ({"length": 10_000_000}, "made for 131072 tokens"),
        ({"shard": "zero3", "hardware": "A100-80GB"}, "here is one"),
        ({"framework": "nemo"}, "writes no config of nemo"),
        (
            {"model": named_model("unsloth/llama-3-8b-bnb-4bit"), "method": "full"},
            "stored as bnb4, which no optimizer steps",
        ),
        (
            {"framework": "torchtune", "method": "qlora", "hardware": "2xA100-80GB"},
            "ships no config",
        ),
        ({"framework": "torchtune", "model": named_model("tiiuae/falcon-7b")}, "ships no config"),
    ],
)
def test_what_contradicts_itself_is_refused(given, words):
    with pytest.raises(UsageError, match=words):
        fitting(wish(**{"framework": "axolotl", "hardware": "8xA100-80GB", **given}))


CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize("name", ["./mine", "mine/config.json", "/models/mine", "mine"])
def test_a_folder_with_a_config_is_a_model(name):
    folder = name.removesuffix("/config.json").removeprefix("./").removeprefix("/")
    data = {f"{folder}/config.json": json.dumps(CONFIG).encode()}
    model = named_model(name, lambda path: data.get(path.removeprefix("/")), [""])
    found = lightest(wish(model=model))
    assert found.draft.run.plan.model.dims.hidden == 256
    assert found.draft.run.plan.seq.max_len == 512  # all that it takes


def test_unknown_models_are_answered_with_the_nearest():
    with pytest.raises(UnknownModel, match=r"nearest: .*Llama-3\.1-8B"):
        named_model("lama-3.1-8B")
    with pytest.raises(UsageError, match="has no dimensions that oomlint knows"):
        named_model("mine", lambda path: b'{"model_type": "novel"}', [""])


def test_a_short_name_gets_its_owner():
    assert named_model("llama-3.1-8b").name == "meta-llama/Llama-3.1-8B"
    assert named_model("NousResearch/Meta-Llama-3.1-8B").name == "NousResearch/Meta-Llama-3.1-8B"


@pytest.mark.parametrize(
    "name", ["my: model", "model #2", "a\nmicro_batch_size: 9", "\x1b[31mred", "'x'"]
)
def test_a_name_that_no_config_can_hold_is_refused(name):
    data = json.dumps(CONFIG).encode()
    with pytest.raises(UsageError, match="cannot stand in a config"):
        named_model(name, lambda path: data if path.endswith("config.json") else None, [""])


def test_a_card_without_bf16_gets_weights_and_compute_of_one_dtype():
    found = fitting(wish(framework="trl", method="lora", hardware="V100-32GB"))
    assert "fp16: true\n" in found.draft.text
    assert "dtype: float16\n" in found.draft.text
    with pytest.raises(UsageError, match="torchtune trains in bf16 or fp32, never in fp16"):
        fitting(wish(framework="torchtune", method="lora", hardware="V100-32GB"))
