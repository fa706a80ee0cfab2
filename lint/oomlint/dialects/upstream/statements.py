"""What of a module decides memory, in pieces that survive a formatter.

Code is cut at brackets, commas and colons; texts and comments are left out. The words of a piece say what it decides:
the model, who holds which part of it, its precision, its optimizer, what of a step is kept, or how the loss is taken.
A fork that has other pieces of a kind than any version of the module had, more or fewer, has changed that.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

# How much is kept of a digest; a framework has some hundreds or thousands of them.
DIGEST = 4

_TEXT = (
    r"(?s)(?<!\w)[rbfuRBFU]{0,2}(?:\"\"\".*?\"\"\"|'''.*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|#[^\n]*|\\\n"
)
_CUT = r"[\n,;:()\[\]{}]"
# What makes nothing of what it names.
_SAYS_ONLY = (
    r"(?:from|import|assert|raise|del|global|return|logger\.\w+|log\.\w+|print\w*|warnings\.\w+)\b"
)

_WORDS = {
    "model": (
        r"\bnn\.(?:Linear|Embedding|Parameter|Conv\w+)\b|\b(?:Auto\w*|\w+ForCausalLM|\w*[Mm]odel\w*)\.from_(?:pretrained|config)\b"
        r"|\bresize_token_embeddings\b|\bget_peft_model\b|\bLoRA\w*|\bLora\w*"
        r"|\b(?:intermediate|ffn|head|inner)_?(?:dim|size)\b|\bhidden_(?:dim|size)\b.*=|=.*\bhidden_(?:dim|size)\b"
        r"|\bn(?:um)?_(?:layers?|heads|kv_heads|hidden_layers|attention_heads|experts)\b *[*/+=-]|\bvocab_size\b *[*/+=-]"
    ),
    "sharding": (
        r"\bfully_shard\b|\bFullyShardedDataParallel\b|\bDistributedDataParallel\b|\bFSDP\b|\breshard_after_forward\b"
        r"|\bzero_?(?:stage|optimization)\b|\boffload\w*\b *=|\bColwiseParallel\b|\bRowwiseParallel\b|\bColumnParallelLinear\b"
        r"|\bRowParallelLinear\b|\bparallelize_module\b|\binit_device_mesh\b|\bsharding_strategy\b"
    ),
    "checkpointing": (
        r"\bcheckpoint_wrapper\b|\bgradient_checkpointing\w*|\brecompute_\w+|\b\w+\.checkpoint\.checkpoint\b"
        r"|\bactivations?_checkpoint\w*"
    ),
    "optimizer": (
        r"\b(?:SGD|Adafactor|Lion\w*|Muon\w*|\w*Adam\w*8bit|Paged\w+|Shampoo|SOAP|GaLore\w*|Adagrad|RMSprop|LAMB|Came|CAME)$"
    ),
    "precision": (
        r"\btorch\.(?:bfloat16|float16|float32|half|float)\b|\.(?:half|bfloat16)$|\bautocast\b|\b(?:torch|param|reduce)_dtype\b"
    ),
    "loss": r"\blogits\b|\bcross_entropy\b|\blog_softmax\b|\blogprobs_from_logits\b|\blm_head\b",
}  # fmt: skip
_ANY = "|".join(f"(?P<{aspect}>{words})" for aspect, words in _WORDS.items())


def digests(text: str) -> dict[str, bytes]:
    """Of what a module decides: a digest of the pieces that do so, in whatever order."""
    found: dict[str, set[str]] = {}
    for piece, aspect in pieces(text):
        found.setdefault(aspect, set()).add(piece)
    return {aspect: _digest(aspect, sorted(each)) for aspect, each in found.items()}


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """The pieces of a module that decide memory, without blanks, each with what it decides."""
    code = re.sub(_TEXT, " ", text.replace("\r", ""))
    words = re.compile(_ANY)
    for piece in dict.fromkeys(re.split(_CUT, code)):
        plain = " ".join(piece.split())
        found = words.search(plain)
        if found is not None and re.match(_SAYS_ONLY, plain) is None:
            yield plain.replace(" ", ""), str(found.lastgroup)


def _digest(aspect: str, pieces: list[str]) -> bytes:
    text = "\n".join((aspect, *pieces))
    return hashlib.sha1(text.encode("utf-8", "replace")).digest()[:DIGEST]
