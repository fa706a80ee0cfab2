"""An adapter that trains whole embedding matrices beside its low-rank ones.

## What it finds

LoRA or QLoRA whose `modules_to_save` (`lora_modules_to_save`, `additional_target`, a resized
vocabulary) names the embedding or the output head, where the run would fit, or fit on a smaller
card, without them.

## Why it runs out of memory

Each of these matrices gets a trainable copy in full: beside its 2 bytes an element in bf16, 2
for the copy, 2 for its gradient and 4 for AdamW's states; twice as many where all that is trained is made fp32, as
LLaMA-Factory does. Llama-3.1-8B's embedding has 128256 x 4096 = 525M elements: 3.9 or 7.8 GiB more, and twice that
with the head, which QLoRA was to save.

## How to fix it

Leave them out where no token is new. Where some are, PEFT's `trainable_token_indices` trains
their rows alone. The fix removes them; it is unsafe, because they are trained no more.

## When not to

For many new tokens, or continued pre-training in another language, where they must learn.

## Sources

* peft 0.21.2 `utils/other.py` (`ModulesToSaveWrapper` copies the module), `tuners/tuners_utils.py`
  (`cast_adapter_dtype` makes the layers of adapters alone fp32)
* LLaMA-Factory ff6d4d12 `model/adapter.py:338`
* https://github.com/unslothai/unsloth/issues/633 (Qwen2-7B: over 27 GB instead of under 12)
* https://github.com/huggingface/peft/issues/349
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oomlint.judgement import Relief
from oomlint.linting.rule import KNOWN, Applicability, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, example
from oomlint_rules._lowering import LowersPeak

_WHOLE = ("embed_tokens", "lm_head", "wte", "word_embeddings", "embed_in", "embed_out")
_ADAPTERS = ("lora", "qlora", "dora")
_FIELD = f.trainable.modules_to_save

_QLORA = f"{AXOLOTL}adapter: qlora\nload_in_4bit: true\nlora_r: 16\nlora_target_linear: true\n"
_SAVED = "lora_modules_to_save:\n  - embed_tokens\n  - lm_head\n"
_LORA = LLAMA_FACTORY.replace("type: full", "type: lora") + "quantization_bit: 4\n"


class LoraSavesEmbeddings(LowersPeak, code="OOM207", fixes=Applicability.UNSAFE, cost=7):
    summary = "an adapter trains whole embedding matrices beside its low-rank ones"
    only_where = (
        Where(
            plan={f.trainable.method: _ADAPTERS, f.trainable.modules_to_save: KNOWN}, has_risk=True
        ),
    )
    at = (_FIELD,)
    with_it = "without it"
    fix = "train the low-rank matrices alone"

    bad = (
        example({"train.yaml": _QLORA + _SAVED + "sequence_len: 6144\n"}, on="1xRTX-3090-24GB"),
        example(
            {"train.yaml": f"{_LORA}additional_target: embed_tokens,lm_head\n"},
            on="1xRTX-3090-24GB",
        ),
    )
    good = (
        example({"train.yaml": _QLORA}, on="1xRTX-3090-24GB"),
        example({"train.yaml": _QLORA + _SAVED}, on="1xH100-80GB"),
    )

    def changes(self, run: Run) -> Mapping[Any, Any] | None:
        saved, whole = run.plan.trainable.modules_to_save or (), _whole(run)
        return {_FIELD: tuple(name for name in saved if name not in whole)} if whole else None

    def cause(self, run: Run, found: Relief) -> str:
        whole = _whole(run)
        verb = "is" if len(whole) == 1 else "are"
        return f"{' and '.join(whole)} {verb} trained whole, which takes {gib(found.saved)}"

    def gain(self, run: Run, found: Relief) -> Iterable[str]:
        asked = f"{run.key(_FIELD)} asks for it: a copy, its gradient and optimizer states"
        return (asked, *super().gain(run, found))

    def can_fix(self, run: Run, found: Relief) -> bool:
        return run.is_explicit(_FIELD)


def _whole(run: Run) -> tuple[str, ...]:
    saved = run.plan.trainable.modules_to_save or ()
    return tuple(name for name in saved if name.rpartition(".")[2] in _WHOLE)
