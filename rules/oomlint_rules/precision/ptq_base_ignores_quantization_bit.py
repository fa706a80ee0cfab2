"""A base that is quantized already, and a wish to quantize it on loading.

## What it finds

`quantization_bit`, `load_in_4bit`, `load_in_8bit` or a `BitsAndBytesConfig` for a checkpoint whose
own config says that it is quantized: GPTQ, AWQ, MXFP4 or FP8.

## Why it runs out of memory

The wish has no effect. LLaMA-Factory warns (*`quantization_bit` will not affect on the
PTQ-quantized models*) and Axolotl says nothing: who asks for 4 bit on a GPTQ-Int8 checkpoint of 72B
gets 8 bit, 68 GiB instead of 36, and on an MXFP4 or FP8 one 16 bit in LLaMA-Factory. transformers
4.57 and later stop at a `BitsAndBytesConfig` for such a checkpoint (*The model is quantized with ...
but you are passing a BitsAndBytesConfig*); 4.53 did not yet.

## How to fix it

Drop the wish; or name the checkpoint that is not quantized. The fix removes the key where that
alone changes nothing in the run.

## When not to

A checkpoint that bitsandbytes itself wrote (`-bnb-4bit`) and `load_in_4bit` say the same.

## Sources

* LLaMA-Factory ff6d4d12 `model/model_utils/quantization.py:95`
* Axolotl 067b021c `loaders/model.py:692`
* transformers 5.23 `quantizers/auto.py:259`; 4.57 `quantizers/auto.py:216`
* https://github.com/hiyouga/LLaMA-Factory/issues/3514 (GPTQ-Int8 of 72B on 8 x 48 GB)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.linting.rule import (
    KNOWN,
    Applicability,
    Finding,
    Proposal,
    Rule,
    Severity,
    When,
    Where,
    short,
)
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, example, script
from oomlint_rules._fixes import removal

_BITS = {
    "gptq": ("GPTQ", 4),
    "gptq8": ("GPTQ-Int8", 8),
    "awq": ("AWQ", 4),
    "mxfp4": ("MXFP4", 4),
    "fp8": ("FP8", 8),
    "fp8_block": ("FP8", 8),
}
_ASKED = f.quant.requested_bits
# The others hand the wish to transformers beside the checkpoint's own config.
_PASSES_OVER = ("llama-factory", "axolotl")

_LF = LLAMA_FACTORY.replace("type: full", "type: lora").replace(
    "meta-llama/Llama-3.1-8B", "{model}"
)
_GPTQ = "TechxGenus/Meta-Llama-3-8B-Instruct-GPTQ"
_INT8 = "Qwen/Qwen1.5-72B-Chat-GPTQ-Int8"
_QLORA = AXOLOTL.replace("meta-llama/Llama-3.1-8B", "{model}") + (
    "adapter: qlora\nlora_r: 8\nlora_target_linear: true\nload_in_4bit: true\n"
)


class PtqBaseIgnoresQuantizationBit(Rule, code="OOM213", may_end=True, fixes=Applicability.SAFE):
    summary = "a wish to quantize on loading, for a checkpoint that is quantized already"
    only_where = (Where(plan={f.quant.requested_bits: KNOWN}),)

    bad = (
        example(
            {"train.yaml": f"{_LF.format(model=_INT8)}quantization_bit: 4\n"},
            {"train.yaml": _LF.format(model=_INT8)},
        ),
        example(
            {"train.yaml": f"{_LF.format(model=_GPTQ)}quantization_bit: 4\n"},
            {"train.yaml": _LF.format(model=_GPTQ)},
        ),
        example({"train.yaml": f"{_LF.format(model='openai/gpt-oss-20b')}quantization_bit: 4\n"}),
        example({"axolotl.yaml": _QLORA.format(model="openai/gpt-oss-20b")}),
        example({"train.py": script(load="    load_in_4bit=True,\n", model=_GPTQ)}),
    )
    good = (
        example({"train.yaml": _LF.format(model=_GPTQ)}),
        example({"train.yaml": f"{_LF.format(model='Qwen/Qwen2.5-7B')}quantization_bit: 4\n"}),
        example(
            {"axolotl.yaml": _QLORA.format(model="unsloth/llama-3-8b-bnb-4bit")},
            why="bitsandbytes wrote it in 4 bit",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        quant = run.plan.quant
        form, bits = _BITS.get(str(run.plan.model.native_quant), ("", 0))
        if quant.requested_bits is None or not form:
            return
        key, asked = self._key(run), quant.requested_bits
        why = f"the model is quantized already ({form})"
        model = f"{run.plan.model.id} comes so"
        if quant.dequantised_on_load:
            yield self._found(
                run,
                Severity.WARNING,
                f"{short(key)} has no effect: {why}",
                (
                    model,
                    "its weights become 16 bit on loading",
                    f"name a 16-bit copy of the model to get {asked} bit",
                ),
                self._removal(run),
            )
        elif quant.method in ("bnb4", "bnb8") or run.dialect.name not in _PASSES_OVER:
            known = run.model is not None and run.model.confidence == "verified"
            yield self._found(
                run,
                Severity.ERROR if known else Severity.WARNING,
                f"{short(key)} stops the run: {why}",
                (
                    model,
                    "transformers refuses to quantize it again, while it loads the model",
                    "name a 16-bit copy of the model",
                ),
                ends=When.LOADING,
            )
        else:
            yield self._found(
                run,
                Severity.WARNING if asked < bits else Severity.INFO,
                f"{short(key)} has no effect: {why}",
                (model, f"the weights stay in {bits} bit"),
                self._removal(run),
            )

    def _found(
        self,
        run: Run,
        severity: Severity,
        message: str,
        details: tuple[str, ...],
        proposals: Iterable[Proposal] = (),
        ends: When | None = None,
    ) -> Finding:
        return self.finding(
            run,
            severity,
            message,
            at=(_ASKED, f.model.id),
            details=details,
            resource="gpu",
            proposals=proposals,
            ends=ends,
        )

    @staticmethod
    def _source(run: Run) -> Any:
        """The field that a file of this run sets to ask for the bits."""
        origin = run.origin(_ASKED)
        inputs = origin.inputs if origin is not None else ()
        return next((name for name in inputs if run.is_explicit(name)), _ASKED)

    def _key(self, run: Run) -> str:
        return run.key(self._source(run))

    def _removal(self, run: Run) -> tuple[Proposal, ...]:
        if run.is_explicit(f.trainable.method) and run.plan.trainable.method == "qlora":
            return ()  # Axolotl's qlora insists on load_in_4bit
        source = self._source(run)
        return removal(f"remove {run.key(source)}", run.origin(source))
