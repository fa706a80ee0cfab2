"""Reads model names: suffixes that do not change the dimensions, and sizes spelled in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from msgspec import Struct

from oomlint.models.catalogue import fold

# Storage formats by the suffix that their publishers use. The publishers: unsloth
# (-bnb-4bit is plain NF4, -unsloth-bnb-4bit leaves some layers in 16 bit: unsloth
# models/mapper.py), Qwen (-GPTQ-Int4, -GPTQ-Int8, -AWQ, -FP8), TheBloke (-GPTQ, -AWQ,
# -GGUF), Red Hat / Neural Magic (-FP8-dynamic, -w4a16 ...), NVIDIA (-FP8, -NVFP4).
_QUANT_SUFFIXES: Final = {
    "unsloth-bnb-4bit": "bnb4_dynamic",
    "bnb-4bit": "bnb4",
    "bnb-8bit": "bnb8",
    "gptq-int4": "gptq",
    "gptq-4bit": "gptq",
    "gptq-int8": "gptq8",
    "gptq-8bit": "gptq8",
    "gptq": "gptq",
    "awq-int4": "awq",
    "awq": "awq",
    "aqlm-2bit-1x16": "aqlm",
    "aqlm": "aqlm",
    "fp8-dynamic": "fp8",
    "fp8-block": "fp8_block",
    "fp8": "fp8",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "gguf": "gguf",
    "w4a16": "gptq",
    "int4": "gptq",
    "int8": "gptq8",
    "bnb-nf4": "bnb4",
    "4bit": "bnb4",
    "8bit": "bnb8",
    "4bits": "bnb4",
    "8bits": "bnb8",
    # Copies of quantised releases in 16 bit (DeepSeek-V3-BF16, gpt-oss-20b-dequantized).
    "bf16": "none",
    "dequantized": "none",
}

# Fine-tuning stages, releases and file formats that keep the dimensions of the base model.
_PLAIN_SUFFIXES: Final = (
    "instruct-2507", "thinking-2507", "2507", "instruct", "chat", "base", "thinking",
    "it", "pt", "hf", "sft", "dpo", "orpo", "kto", "grpo", "ppo", "rlhf", "lora", "qlora",
    "merged", "finetuned", "finetune", "ft", "fp16", "fp32", "16bit", "linearized",
    "converted", "safetensors",
)  # fmt: skip

# Tried at the end of a name that is a base model's without its publisher's usual ending.
_USUAL_ENDINGS: Final = ("-hf", "-instruct", "-base", "-chat", "-it", "-chat-hf")


class Spelling(Struct, frozen=True):
    """A basename to look for, and the quantisation that was stripped from it."""

    basename: str
    quant: str | None


def spellings(name: str) -> Iterator[Spelling]:
    """Basenames under which the catalogue may hold ``name``, best first, folded."""
    base = fold(name.rsplit("/", 1)[-1])
    quant: str | None = None
    seen = set()
    while base and base not in seen:
        seen.add(base)
        yield Spelling(base, quant)
        for ending in _USUAL_ENDINGS:
            yield Spelling(base + ending, quant)
        for other in (*_with_version_otherwise(base), *_with_or_without_meta(base)):
            yield Spelling(other, quant)
        base, quant = _strip(base, quant)


def _with_version_otherwise(base: str) -> Iterator[str]:
    """The name with its version where and how others write it."""
    joined = _joined_version().match(base)
    if joined:
        spaced = f"{joined[1]}-{base[joined.end(1) :]}"
        yield spaced
        for ending in _USUAL_ENDINGS:
            yield spaced + ending
        yield "meta-" + spaced
    pointless = _pointless_version().match(base)
    if pointless:
        family, major, minor = pointless.groups()
        yield f"{family}{major}-{minor}{base[pointless.end() :]}"
        yield f"{family}-{major}-{minor}{base[pointless.end() :]}"
    parted = _parted_version().match(base)
    if parted:
        joined_up = parted[1] + base[parted.end() :]
        yield joined_up
        for ending in _USUAL_ENDINGS:
            yield joined_up + ending
    turned = _turned_version().fullmatch(base)
    if turned:
        version = turned["version"].replace("-", ".")
        yield fold(f"{turned['family']}-{turned['size']}-v{version}")


def _with_or_without_meta(base: str) -> Iterator[str]:
    """The name with the publisher's in front, or without it."""
    if base.startswith("meta-"):
        yield base[5:]
        yield base[5:] + "-instruct"
    elif base.startswith("llama-"):
        yield "meta-" + base


@cache
def _joined_version() -> re.Pattern[str]:
    """Families whose publishers separate the version that users join: llama3-8b, gemma2-9b."""
    return re.compile(r"(llama|gemma|phi|yi|glm|codellama)\d")


@cache
def _pointless_version() -> re.Pattern[str]:
    """Versions whose point users leave out: qwen25-7b, qwen15-7b, llama31-8b."""
    return re.compile(r"(qwen|llama)(1(?=5)|[23])([1-5])(?=-\d)")


@cache
def _parted_version() -> re.Pattern[str]:
    """Families whose publishers join the version that users part: qwen-2.5-7b, baichuan-2-13b."""
    return re.compile(r"(qwen|baichuan|internlm|internvl|chatglm|codellama)-(?=\d)")


@cache
def _turned_version() -> re.Pattern[str]:
    """The size behind the version: vicuna-v1-3-7b (LLaVA c121f04 scripts/finetune.sh) for vicuna-7b-v1.3."""
    return re.compile(r"(?P<family>[a-z]+)-v(?P<version>\d+(?:[.-]\d+)?)-(?P<size>\d+b)")


def _strip(base: str, quant: str | None) -> tuple[str, str | None]:
    """``base`` without its last suffix; the outermost quantisation is the one that holds."""
    for suffix, kind in _QUANT_SUFFIXES.items():
        if base.endswith("-" + suffix):
            return base[: -len(suffix) - 1], quant or kind
    for suffix in _PLAIN_SUFFIXES:
        if base.endswith("-" + suffix):
            return base[: -len(suffix) - 1], quant
    return base, quant


def quant_of(name: str) -> str | None:
    """The quantisation that a name ends in, if it says one, or has as a word of its own: ``w4a16`` of
    ``gpt-oss-120b-w4a16-experts``."""
    base, quant = fold(name.rsplit("/", 1)[-1]), None
    for _ in range(len(base)):
        shorter, quant = _strip(base, quant)
        if shorter == base:
            break
        base = shorter
    words = iter(base.split("-")) if quant is None else iter(())
    return quant or next((_QUANT_SUFFIXES[word] for word in words if word in _QUANT_SUFFIXES), None)


# What the rest of a name may say that a copy of the model it begins with does not have: other
# parts, fewer layers, a head of its own.
_RESHAPED: Final = frozenset(
    "vl v vision visual image video omni audio speech moe upcycled pruned prune minitron draft eagle "
    "eagle3 medusa mtp embedding embeddings embed reward rm prm orm classifier value mamba linear "
    "layers layer lite mini small tiny distill distilled expanded extended pro".split()
)
# A name that goes on with another family's was made of that one: zephyr-7b-gemma-dpo.
_FAMILIES: Final = ("llama", "mistral", "mixtral", "gemma", "qwen", "phi", "deepseek", "falcon")


@cache
def _counts_parts() -> re.Pattern[str]:
    """A number of something: 8select2, 688neurons; not 4bit, 32k or 1048k, nor what is counted of a training."""
    return re.compile(r"\d+(?!(?:bits?|epochs?|steps?|iters?|shots?|gpus?|samples?)$)[a-z]{3,}")


def beginnings(name: str) -> Iterator[str]:
    """Beginnings of a copy's name that may name the model that it was made of, longest first: its
    words down to the size (``Qwen1.5-14B-Chat-v3``: ... ``qwen1.5-14b-chat``, ``qwen1.5-14b``), and of Llama 3 what it
    begins with and the size (``Llama-3.1-Swallow-8B``: ``llama-3.1-8b``).

    None where the rest, or a folder above, tells of another size or another shape: of other
    parts, or of numbers of them (LlamaMoEForCausalLM/llama2_7B-8Select2-1376Neurons-Share).
    """
    base = fold_separators(name.rsplit("/", 1)[-1])
    found = _size_pattern().search(base)
    if found is None or _size_pattern().search(base, found.end()):
        return
    words, size = base.split("-"), len(base[: found.end()].split("-"))
    rest = words[size:]
    if not _RESHAPED.isdisjoint(rest) or any(_counts_parts().match(word) for word in rest):
        return
    if "moe" in name.lower() or any(word.startswith(_FAMILIES) for word in rest):
        return
    for end in range(len(words) - 1, size - 1, -1):
        yield "-".join(words[:end])
    begun = _begins_as_llama().match(base)
    if begun is not None and _RESHAPED.isdisjoint(words):
        yield f"{begun[0]}-{found[0]}"


def kinships(name: str) -> Iterator[str]:
    """Parts of a name that may name the model that it is kin to, longest first: a family and the size
    behind it, wherever they stand (``bar-llama3-8b-sft``: ``bar-llama3-8b``, ``llama3-8b``).

    None where the name tells of several sizes, or of another shape.
    """
    base = fold_separators(name.rsplit("/", 1)[-1])
    found = list(_size_pattern().finditer(base))
    words = base.split("-")
    if not found or len({each[0] for each in found}) > 1 or "moe" in name.lower():
        return
    if not _RESHAPED.isdisjoint(words) or any(_counts_parts().match(word) for word in words):
        return
    if any(word.startswith(_FAMILIES) for word in base[found[-1].end() :].split("-")):
        return
    spans = {span for each in found for span in _ending_in(base[: each.end()])}
    yield from sorted(spans, key=lambda span: (-len(span), span))


@cache
def _begins_as_llama() -> re.Pattern[str]:
    """What the names of models made of Llama 3 begin with, by its licence (Llama 3 Community License 1.b.i: "Llama 3" at
    the beginning; that of 3.1, 3.2 and 3.3: "Llama"), where words of their makers' follow before the size."""
    return re.compile(r"(?:meta-)?llama-?3(?:[.-][1-3])?(?=-(?![0-9])[a-z])")


def _ending_in(text: str) -> Iterator[str]:
    """The last words of a text, two at least and nine at most."""
    words = text.split("-")
    for start in range(max(0, len(words) - 9), len(words) - 1):
        yield "-".join(words[start:])


@cache
def _stage() -> re.Pattern[str]:
    """What folders of checkpoints are called, whoever writes them: transformers' Trainer
    (checkpoint-500), verl (global_step_100/actor/huggingface), ms-swift (v0-20240101-120000), and
    what people call the last or the best, or what adapters were merged into."""
    return re.compile(
        r"(?:global[-_]?)?(?:steps?|iter(?:ation)?|epochs?)[-_]?\d+|(?:checkpoints?|ckpts?)(?:[-_]?\w+)?"
        r"|(?:final|merged|best|last|latest|full)(?:[-_](?:model|checkpoint|ckpt|hf|merged))?"
        r"|hf|hf[-_](?:model|ckpt)|huggingface|actor|policy|model|v\d+-\d{8}-\d{6}",
        re.IGNORECASE,
    )


def trained_from(name: str) -> str | None:
    """The folder of a run that a checkpoint lies in, whose name may say what was trained
    (``out/qwen2.5-7b-sft/checkpoint-500``: ``out/qwen2.5-7b-sft``); ``None`` of any other name."""
    path = name.rstrip("/")
    above = path
    while above and _stage().fullmatch(above.rpartition("/")[2]):
        above = above.rpartition("/")[0]
    return above if above and above != path else None


# Of a tree of experiments: ``expt/task/qwen3-1.7b/epo1/lora_merged``.
_MOST_ABOVE: Final = 3


def folders_above(name: str) -> Iterator[str]:
    """The nearest folders above a checkpoint whose own name tells no size, up to the first whose name does: people keep what
    they train of a model in a folder called after it (``expt/qwen3-1.7b/epo1``)."""
    path = name
    for _ in range(_MOST_ABOVE):
        if guess_size(path.rpartition("/")[2]) is not None:
            return
        path = path.rpartition("/")[0]
        if path:
            yield path


class GuessedSize(Struct, frozen=True):
    """Parameters by name alone; ``active`` only where the name gives it (30B-A3B)."""

    total: int
    active: int


def size_spans(name: str) -> Iterator[str]:
    """Parts of a fine-tune's name that may name its base model: those that end in the size
    (``OpenHermes-2.5-Mistral-7B-16k``: ... ``2.5-mistral-7b``, ``mistral-7b``), longest first."""
    base = fold_separators(name.rsplit("/", 1)[-1])
    found = _size_pattern().search(base)
    if found is None:
        return
    words = base[: found.end()].split("-")
    for start in range(min(len(words) - 1, 8)):
        yield "-".join(words[start:])


def fold_separators(name: str) -> str:
    """``name`` with underscores as dashes, dots kept: they stand inside sizes."""
    return name.lower().replace("_", "-")


@cache
def _size_pattern() -> re.Pattern[str]:
    return re.compile(
        r"(?<![a-z0-9.])(?:(?P<experts>\d{1,2})x)?(?P<size>\d{1,4}(?:\.\d{1,3})?)(?P<unit>[bm])"
        r"(?![a-z0-9])(?:-a(?P<active>\d{1,3}(?:\.\d{1,3})?)b(?![a-z0-9]))?",
        re.IGNORECASE,
    )


# An "NxMB" mixture shares its attention: 8x7B is 46.7 billion and 8x22B 140.6 (both 0.81 to
# 0.83 of N*M, Mixtral's published counts), with two of eight experts at work (12.9 and 39.2).
_MIXTURE_SHARE: Final = 0.82
_MIXTURE_ACTIVE: Final = 0.23


def guess_size(name: str) -> GuessedSize | None:
    """The size that a name announces (``7B``, ``125m``, ``8x7B``, ``30B-A3B``).

    A name with several sizes (``...-1b-distilled-from-70b``) tells nothing certain: the
    first one that stands after no other is taken, as publishers put the model's own first.
    """
    # What file systems dislike as a point: stablelm-2-1_6b. Of `llama-3_8b` the 3 is the model's version, of `llama_1_7b`
    # the 1; but in `qwen2_5_1_5b` it is no version's 5B, of which size models of language are not made.
    point = r"(?:(?<![a-zA-Z0-9_.])([01])_(\d{1,2}[bB])|(?<=_)([01])_(5[bB]))(?![a-zA-Z0-9])"
    said = re.sub(point, lambda m: f"{m[1] or m[3]}.{m[2] or m[4]}", name)
    found = _size_pattern().search(fold_separators(said))
    if found is None:
        return None
    unit = 10**9 if found["unit"] in "bB" else 10**6
    total = float(found["size"]) * unit
    active = total
    if found["experts"]:
        total *= int(found["experts"]) * _MIXTURE_SHARE
        active = total * min(1.0, _MIXTURE_ACTIVE * 8 / max(1, int(found["experts"])))
    if found["active"]:
        active = float(found["active"]) * 10**9
    if not 10**6 <= total <= 10**13 or active > total:
        return None
    return GuessedSize(round(total), round(active))


def one_of_mixture(name: str) -> int | None:
    """The size of one of the models that a mixture's name multiplies, 7B of ``8x7B``.

    A model cut out of such a mixture, or a single model cut into experts, keeps its name.
    """
    found = _size_pattern().search(fold_separators(name.rsplit("/", 1)[-1]))
    if found is None or not found["experts"]:
        return None
    return round(float(found["size"]) * (10**9 if found["unit"] in "bB" else 10**6))
