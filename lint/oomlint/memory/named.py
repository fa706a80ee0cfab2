"""Which parameters a list of name patterns trains, by the names that transformers gives them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from oomlint.memory.parameters import DecoderBlock, DecoderStructure
from oomlint.memory.traits import ROLE_NAMES

# Patterns are a user's: no quantified group and few quantifiers, so that none can take for ever
# on names of some sixty characters.
_LONGEST = 200
_QUANTIFIED_GROUP = r"\)[*+?{]"
_QUANTIFIER = r"[*+{]"
_MOST_QUANTIFIERS = 4
_MOST_LAYERS = 1000

_ATTENTION = frozenset(
    "q k v qkv o q_a q_b kv_a kv_b o_gate index_q index_k index_weights dt".split()
)
_MIXERS = ("la_", "ssm_", "conv_")
# What transformers 4.57 puts on top of a model that classifies or answers, by classes: modeling_layers.py
# GenericForSequenceClassification, GenericForTokenClassification and GenericForQuestionAnswering (score, qa_outputs),
# models/bert/modeling_bert.py (classifier), models/t5/modeling_t5.py (classification_head).
_TOP_HEADS = ("score", "classifier", "classification_head", "qa_outputs")


class Named(Struct, frozen=True):
    """Elements that the patterns match, whether embedding and output projection are among them, and how many
    blocks at the bottom have none, where nothing below those has any."""

    numel: float
    embedding: bool
    head: bool
    below: int = 0


def readable(pattern: str) -> bool:
    """Whether a pattern is one that is tried: valid, and of a kind that cannot run away."""
    if len(pattern) > _LONGEST or re.search(_QUANTIFIED_GROUP, pattern):
        return False
    if len(re.findall(_QUANTIFIER, pattern)) > _MOST_QUANTIFIERS:
        return False
    try:
        re.compile(pattern)
    except (re.error, OverflowError):
        return False
    return True


@lru_cache(maxsize=256)
def named(model: DecoderStructure, patterns: tuple[str, ...]) -> Named | None:
    """What ``patterns`` match from the beginning of a parameter's name; ``None`` where they
    cannot be tried."""
    if model.layers > _MOST_LAYERS or not all(map(readable, patterns)):
        return None
    tried = [re.compile(pattern) for pattern in patterns]

    def matched(names: Sequence[str]) -> bool:
        return any(pattern.match(name) for name in names for pattern in tried)

    root = "model.language_model." if model.vision_numel else "model."
    embedding = matched([root + "embed_tokens.weight"])
    head = matched(["lm_head.weight"])
    numel = model.embed_numel * embedding + model.head_numel * head
    numel += model.final_norm_numel * matched([root + "norm.weight"])
    tower = matched(["model.visual.", "model.vision_tower."])
    numel += model.vision_numel * tower
    index, lowest = 0, None
    for block in model.blocks:
        parts = list(_parts(block))
        for number in range(index, index + block.count):
            layer = f"{root}layers.{number}."
            found = sum(size for names, size in parts if matched([layer + n for n in names]))
            lowest = number if found and lowest is None else lowest
            numel += found
        index += block.count
    # A head on top has no more than some thousand elements a class, which are not counted.
    top = matched([f"{name}.weight" for name in _TOP_HEADS])
    # ``index`` is the number of all blocks now, those of an encoder and a decoder too.
    below = index if lowest is None and (numel or top) else lowest or 0
    is_bottom = embedding or (tower and model.vision_numel)
    return Named(float(numel), embedding, head, 0 if is_bottom else below)


def _parts(block: DecoderBlock) -> Iterator[tuple[list[str], int]]:
    """The parameters of one block: the names that classes give them, and their elements."""
    for linear in block.linears:
        role = linear.role
        folder = "self_attn" if role in _ATTENTION else "mlp"
        if role.startswith(_MIXERS):
            folder = "linear_attn" if role.startswith("la_") else "mamba"
        names = ROLE_NAMES.get(role, frozenset({role}))
        yield [f"{folder}.{name}.weight" for name in sorted(names)], linear.numel
    if block.expert_numel:
        # MixtralSparseMoeBlock was called block_sparse_moe until transformers 5.
        places = ("mlp", "block_sparse_moe")
        yield [f"{place}.experts.0.w1.weight" for place in places], block.expert_numel
        yield [f"{place}.gate.weight" for place in places], block.router_numel
    yield ["input_layernorm.weight"], block.norm_numel + block.other_numel
