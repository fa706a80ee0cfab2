"""The lengths of data that lies in a project, by its characters.

No tokenizer is at hand, so that the characters of a token are those of English text: 3.17 under Llama 2, whose vocabulary is
small, and 3.94 under one as large as Llama 3's ("The Llama 3 Herd of Models", arXiv 2407.21783, section 3.2). Of 25 samples of
JSON in prose the longest has 5,593 tokens under Qwen's; by Llama 2's figure it had 7,748 (benchmarks/strangers, the
thirty-third draw). Each digit is a token of its own (arXiv 2307.09288, section 2.1), and so is each character beyond ASCII, or each of its bytes where the vocabulary is small. Of Chinese a large
vocabulary knows words. Of a picture, who asks says how many tokens it has at most.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import sqrt
from typing import Any

import msgspec

from oomlint.datasets import TEMPLATE, Lengths, is_small

_CHARACTERS, _CHARACTERS_OF_MANY_WORDS = 3.17, 3.94
_MANY_WORDS = 128_000
# Tokens of a Chinese character in vocabularies of 150,000 words and more: in 19 of 20 samples of LLaMA-Factory's
# data/alpaca_zh_demo.json at most 0.73 under Qwen's (151,643; dashscope 2.0.2 resources/qwen.tiktoken) and 0.79
# under Llama 4's (200,000; llama_models 0.3.0), 0.60 and 0.62 on the mean. Under smaller ones, one is taken: on the
# mean it is 0.95 under Mistral's tekken_240911 (131,072), 0.79 under Llama 3's (128,000), 0.55 under DeepSeek's.
_OF_CHINESE = 0.79
_KNOWS_CHINESE = 150_000
# Ideographs, and the punctuation that is written among them; wide digits are a token each.
_CHINESE = r"[\u3000-\u303f\u3400-\u4dbf\u4e00-\u9fff\uff00-\uff0f]"
# What a sample has beside its text, and whose tokens its text does not tell.
_PICTURES = frozenset({"image", "images"})
_BESIDE = _PICTURES | frozenset("video videos audio audios pixel_values input_ids".split())


def lengths_in(
    data: bytes, name: str, *, vocabulary: int, keys: tuple[str, ...] = (), picture: int = 0
) -> Lengths | None:
    """The lengths of the samples of a JSON, JSON Lines or CSV file; ``None`` where it does not hold samples of text.
    ``vocabulary``: how many words that has which they are to be read with; ``keys``: of what is read of a sample,
    where some of it has them; ``picture``: the tokens of a picture at most, 0 where that is not known."""
    try:
        found = _rows(data) if name.endswith(".csv") else _samples(data)
        samples = [_read_of(each, keys) for each in found]
        pictures = [_pictures(each) for each in samples]
        if any(pictures) and not picture:
            return None
        tokens = [
            TEMPLATE + shown * picture + sum(_tokens(text, vocabulary) for text in _texts(each))
            for each, shown in zip(samples, pictures, strict=True)
        ]
    except (ValueError, _NotText, RecursionError):
        return None
    if not tokens:
        return None
    mean = sum(tokens) / len(tokens)
    deviation = sqrt(sum((each - mean) ** 2 for each in tokens) / len(tokens))
    return Lengths(
        (name,), mean, deviation, max(tokens), len(tokens), "en", name, "", by_vocabulary=True,
        pictured=any(pictures),
    )  # fmt: skip


class _NotText(Exception):
    """A sample has more than text and pictures."""


def _samples(data: bytes) -> list[dict[str, Any]]:
    """The samples of a file: a list of objects, or an object a line."""
    if data.lstrip()[:1] == b"[":
        found = msgspec.json.decode(data)
    else:
        found = [msgspec.json.decode(line) for line in data.splitlines() if line.strip()]
    if not all(isinstance(each, dict) for each in found):
        raise _NotText
    return list(found)


def _rows(data: bytes) -> list[dict[str, Any]]:
    """The samples of a table with a head: a row each."""
    import csv  # few projects have one

    text = data.decode("utf-8-sig")
    try:
        found = list(csv.DictReader(text.splitlines(keepends=True), strict=True))
    except csv.Error:
        raise _NotText from None
    return [{key: cell for key, cell in row.items() if key is not None} for row in found]


def _pictures(sample: dict[str, Any]) -> int:
    """How many pictures a sample has, by their paths."""
    number = 0
    for key in _PICTURES & sample.keys():
        paths = sample[key] if isinstance(sample[key], list) else [sample[key]]
        paths = [path for path in paths if path]
        if not all(isinstance(path, str) for path in paths):
            raise _NotText
        number += len(paths)
    return number


def _read_of(sample: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    read = {key: value for key, value in sample.items() if key in keys or key in _BESIDE}
    return read if any(key in keys for key in read) else sample


def _texts(sample: dict[str, Any]) -> Iterator[str]:
    return _inner_texts({k: v for k, v in sample.items() if k not in _PICTURES})


def _inner_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key in _BESIDE and inner:
                raise _NotText
            yield from _inner_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _inner_texts(inner)


def _tokens(text: str, vocabulary: int) -> int:
    digits = len(re.findall(r"[0-9]", text))
    plain = len(re.findall(r"[\x00-\x7f]", text))
    wide: float = len(text) - plain
    if is_small(vocabulary):
        wide = len(text.encode("utf-8", "replace")) - plain
    elif vocabulary >= _KNOWS_CHINESE:
        wide -= (1 - _OF_CHINESE) * len(re.findall(_CHINESE, text))
    characters = _CHARACTERS if vocabulary < _MANY_WORDS else _CHARACTERS_OF_MANY_WORDS
    return round((plain - digits) / characters + wide) + digits
