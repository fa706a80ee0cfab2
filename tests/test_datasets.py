"""How long the samples of a config's data are, where that is known."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests import linked

from oomlint import datasets
from oomlint.datasets.measure import lengths_in
from oomlint.judgement.doubts import doubts
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run

AXOLOTL = """\
base_model: {model}
datasets:
  - path: {data}
    type: alpaca
sequence_len: 8192
micro_batch_size: 8
adapter: lora
lora_r: 8
lora_target_linear: true
bf16: true
sample_packing: {packing}
"""
FACTORY = """\
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: {stage}
do_train: true
finetuning_type: lora
lora_target: all
dataset: {data}
cutoff_len: 8192
per_device_train_batch_size: 8
bf16: true
output_dir: out
"""
QWEN = "Qwen/Qwen2.5-7B-Instruct"
LLAMA = "NousResearch/Llama-2-7b-hf"


def run_of(files: dict[str, str]) -> Run:
    return linked.run_of(files, next(iter(files)), hardware="1xA100-80GB")


def axolotl(data: str = "yahma/alpaca-cleaned", model: str = QWEN, packing: str = "false") -> Run:
    return run_of({"a.yaml": AXOLOTL.format(data=data, model=model, packing=packing)})


def factory(data: str, stage: str = "sft", **beside: Any) -> Run:
    files = {name.replace("__", "."): json.dumps(text) for name, text in beside.items()}
    files = {f"data/{name}": text for name, text in files.items()}
    return run_of({"a.yaml": FACTORY.format(data=data, stage=stage), **files})


def test_every_set_has_a_source_and_a_name_of_its_own() -> None:
    names = [name for each in datasets.catalogue() for name in each.names]
    assert len(names) == len(set(names))
    assert all(name == name.lower() for name in names)
    for each in datasets.catalogue():
        assert each.source
        assert each.date
        assert 0 < each.mean <= each.longest


def test_longest_sample_of_a_known_set_counts_below_the_limit() -> None:
    known, unknown = axolotl(), axolotl("somebody/something")
    assert known.plan.seq.longest == 1044
    assert unknown.plan.seq.longest is None
    assert known.level(f.seq.longest) <= Level.DEFAULT
    mine, theirs = known.estimate.gpu.peak_bytes, unknown.estimate.gpu.peak_bytes
    assert mine is not None
    assert theirs is not None
    assert mine < theirs / 2
    assert not [each for each in doubts(known) if each.is_of_lengths]
    assert [each for each in doubts(unknown) if each.is_of_lengths]


def test_packed_samples_are_as_long_as_the_limit() -> None:
    known, unknown = axolotl(packing="true"), axolotl("somebody/something", packing="true")
    assert known.estimate.gpu.peak_bytes == unknown.estimate.gpu.peak_bytes


def test_small_vocabulary_takes_more_tokens_and_of_other_languages_nobody_says_how_many() -> None:
    assert axolotl(model=LLAMA).plan.seq.longest == round(1044 * 3.94 / 3.17)
    assert axolotl("BelleGroup/train_0.5M_CN").plan.seq.longest == 6507
    assert axolotl("BelleGroup/train_0.5M_CN", model=LLAMA).plan.seq.longest is None


@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        ("alpaca_gpt4_data_zh", True),
        ("data/alpaca_gpt4_data_zh.json", True),
        ("somebody/alpaca-gpt4-data-zh", True),
        ("somebody/math", False),
    ],
)
def test_whoever_holds_a_copy_it_is_the_same_set(name: str, is_known: bool) -> None:
    assert (datasets.find(name) is not None) is is_known


def test_name_that_a_project_registered_is_its_file() -> None:
    samples = [{"instruction": "a" * 394, "output": ""}, {"instruction": "b", "output": "c" * 3940}]
    info = {"mine": {"file_name": "mine.json"}, "theirs": {"hf_hub_url": "yahma/alpaca-cleaned"}}
    beside = {"dataset_info__json": info, "mine__json": samples}
    assert factory("mine", **beside).plan.seq.longest == 1000 + datasets.TEMPLATE
    assert factory("mine,theirs", **beside).plan.seq.longest == 1044
    assert factory("mine,nobodys", **beside).plan.seq.longest is None
    # What a model compares or writes itself is another length.
    assert factory("mine", "dpo", **beside).plan.seq.longest is None


def test_public_set_counts_before_a_file_and_a_file_by_the_columns_that_are_read() -> None:
    samples = [{"q": "a" * 394, "a": "b" * 394, "instruction": "c", "notes": "d" * 3940}]
    columns = {"prompt": "q", "response": "a"}
    info = {
        "mine": {"file_name": "mine.json", "columns": columns},
        "both": {"file_name": "mine.json", "hf_hub_url": "yahma/alpaca-cleaned"},
        "shown": {"file_name": "mine.json", "columns": {**columns, "images": "notes"}},
    }
    beside = {"dataset_info__json": info, "mine__json": samples}
    assert factory("mine", **beside).plan.seq.longest == 200 + datasets.TEMPLATE
    assert factory("both", **beside).plan.seq.longest == 1044
    assert factory("shown", **beside).plan.seq.longest is None


def _kept_elsewhere(config: str = "", **lists: dict[str, Any]) -> Run:
    samples = json.dumps([{"instruction": "a" * 394, "output": ""}])
    files = {"train/a.yaml": FACTORY.format(data="mine", stage="sft") + config}
    for folder, listed in lists.items():
        files |= {f"{folder}/dataset_info.json": json.dumps(listed), f"{folder}/m.json": samples}
    return run_of(files)


def test_list_that_a_project_keeps_for_the_folder_of_the_framework_is_read() -> None:
    mine, other = {"mine": {"file_name": "m.json"}}, {"other": {"file_name": "m.json"}}
    assert _kept_elsewhere(sets=mine, others=other).plan.seq.longest == 100 + datasets.TEMPLATE
    assert _kept_elsewhere(sets=other).plan.seq.longest is None
    # Of two lists that have it nobody says which is read, and one that is here is.
    assert _kept_elsewhere(sets=mine, others=mine).plan.seq.longest is None
    assert _kept_elsewhere(data=other, others=mine).plan.seq.longest is None
    assert _kept_elsewhere("dataset_dir: ONLINE\n", sets=mine).plan.seq.longest is None


def test_table_with_a_head_is_samples() -> None:
    data = b"instruction,output\n" + b"a" * 394 + b',"b,\n' + b"c" * 391 + b'"\n'
    found = lengths_in(data, "a.csv", vocabulary=128_256)
    assert found is not None
    assert (found.samples, found.longest) == (1, 200 + datasets.TEMPLATE)


def test_picture_has_as_many_tokens_as_the_model_makes_of_the_largest() -> None:
    samples = [{"conversations": [{"from": "human", "value": "<image>" * n}], "images": ["a.png"] * n}
               for n in (1, 2)]  # fmt: skip
    info = {"mine": {"file_name": "mine.json", "formatting": "sharegpt"}}

    def longest(more: str, model: str = "Qwen/Qwen2.5-VL-7B-Instruct") -> int | None:
        config = FACTORY.format(data="mine", stage="sft").replace(QWEN, model) + more
        beside = {"data/dataset_info.json": info, "data/mine.json": samples}
        return run_of(
            {"a.yaml": config, **{n: json.dumps(t) for n, t in beside.items()}}
        ).plan.seq.longest

    few, many = longest("image_max_pixels: 78400\n"), longest("image_max_pixels: 784000\n")
    # A hundred and a thousand tokens of 28 x 28 pixels, and what is rounded up.
    assert few is not None
    assert many is not None
    assert 200 < few < 300
    assert 2000 < many < 2150
    assert longest("", QWEN) is None


@pytest.mark.parametrize(
    "data",
    [b"", b"[1, 2]", b"{", b'[{"text": "a", "images": ["a.png"]}]', b'{"text": "a"}\nnot json'],
)
def test_file_without_samples_of_text_tells_nothing(data: bytes) -> None:
    assert lengths_in(data, "a.json", vocabulary=32_000) is None


def test_tokens_are_counted_by_kinds_of_characters() -> None:
    def tokens(text: str, vocabulary: int = 128_256) -> int:
        found = lengths_in(json.dumps({"text": text}).encode(), "a.jsonl", vocabulary=vocabulary)
        assert found is not None
        return found.longest - datasets.TEMPLATE

    assert tokens("a" * 394) == 100
    assert tokens("a" * 317, 32_000) == 100
    assert tokens("12345") == 5
    assert tokens("数据") == 2
    assert tokens("数据", 32_000) == 6


def test_a_vocabulary_that_knows_chinese_takes_fewer_tokens_than_characters() -> None:
    def tokens(text: str) -> int:
        found = lengths_in(json.dumps({"text": text}).encode(), "a.jsonl", vocabulary=151_936)
        assert found is not None
        return found.longest - datasets.TEMPLATE

    assert tokens("数据" * 50) == 79
    assert tokens("１２３４５") == 5, "wide digits"
    assert tokens("д" * 50) == 50, "of others nothing was measured"


def test_only_part_of_a_set_is_no_longer() -> None:
    text = (
        "swift sft --model Qwen/Qwen2.5-7B-Instruct --train_type lora --max_length 8192 "
        "--dataset AI-ModelScope/alpaca-gpt4-data-en#500 swift/self-cognition:default#500\n"
    )
    assert run_of({"run.sh": text}).plan.seq.longest == 740


def test_of_a_sample_what_is_read_counts() -> None:
    data = json.dumps([{"question": "a" * 317, "note": "b" * 3170}]).encode()

    def longest(*keys: str) -> int:
        found = lengths_in(data, "a.json", vocabulary=32_000, keys=keys)
        assert found is not None
        return found.longest - datasets.TEMPLATE

    assert (longest("question"), longest("other"), longest()) == (100, 1100, 1100)
