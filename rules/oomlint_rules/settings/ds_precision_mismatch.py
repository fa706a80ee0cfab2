"""The DeepSpeed config and the trainer do not agree on the precision.

## What it finds

A DeepSpeed JSON with `bf16.enabled` or `fp16.enabled` written out where the trainer's own
flags say something else (`fp16: true` with a preset that switches bf16 on, no flag at all
with `bf16.enabled: true`), and a JSON that switches both on.

## Why it runs out of memory

transformers compares both keys with its arguments and raises *Please correct the following
DeepSpeed config values that mismatch TrainingArguments values*; DeepSpeed asserts that
*bfloat16 and fp16 modes cannot be simultaneously enabled*. Where nothing compares them, the
JSON casts the model while the trainer computes in fp32: activations and logits then take
twice the bytes that the JSON promises.

## How to fix it

Write `"auto"` for both keys in the JSON and keep one precision flag, in the trainer. The
fix writes `"auto"`. It is unsafe, because it decides which of two statements about the
numerics holds.

## When not to

Where a script reads the JSON itself and passes matching flags on. Where the trainer is the project's own and its
`train` never comes to transformers' loop, nothing compares them, and nothing is said.

## Sources

* transformers 5.23 `integrations/deepspeed.py:183` (`fill_match` of both keys)
* DeepSpeed edaa7221 `runtime/config.py:828`
* Accelerate 16cb6eb8 `utils/dataclasses.py` (`set_mixed_precision` refuses the other 16-bit
  type)
* Axolotl ships `deepspeed_configs/zero3_bf16_cpuoffload_all.json` with bf16 written out;
  https://github.com/axolotl-ai-cloud/axolotl/issues/2143
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.dialects.deepspeed.keys import ds
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, When
from oomlint.runs.run import Run
from oomlint_rules._examples import LLAMA_FACTORY, axolotl, example
from oomlint_rules.settings._trainer import trainer_compares

_AXOLOTL = axolotl("meta-llama/Llama-3.1-8B", "micro_batch_size: 1\ngradient_checkpointing: true\n")


_LLAMA_FACTORY = LLAMA_FACTORY.replace("bf16: true\n", "deepspeed: ds.json\n")


def _json(bf16: str, fp16: str) -> str:
    return (
        '{\n  "train_micro_batch_size_per_gpu": 1,\n'
        '  "zero_optimization": {"stage": 2},\n'
        f'  "bf16": {{"enabled": {bf16}}},\n  "fp16": {{"enabled": {fp16}}}\n}}\n'
    )


# The dialect's own fields for the JSON's switches, and what the trainer computes in.
_SWITCHES = ((ds.bf16, "bf16"), (ds.fp16, "fp16"))


class DsPrecisionMismatch(Rule, code="OOM803", may_end=True, fixes=Applicability.UNSAFE, cost=7):
    summary = "the DeepSpeed config and the trainer do not agree on the precision"

    bad = (
        example(
            {
                "train.yaml": f"{_AXOLOTL}fp16: true\ndeepspeed: ds.json\n",
                "ds.json": _json("true", '"auto"'),
            },
            {"ds.json": _json('"auto"', '"auto"')},
        ),
        example(
            {
                "train.yaml": (
                    f"{_AXOLOTL}fp16: true\ndeepspeed: deepspeed_configs/zero3_bf16.json\n"
                )
            },
            why="the preset switches bf16 on",
        ),
        example({"ds.json": _json("true", "true")}, {"ds.json": _json("true", "false")}),
        example(
            {"train.yaml": _LLAMA_FACTORY, "ds.json": _json("true", '"auto"')},
            {"ds.json": _json('"auto"', '"auto"')},
            why="no precision is switched on in the YAML",
        ),
    )
    good = (
        example({"train.yaml": f"{_LLAMA_FACTORY}bf16: true\n", "ds.json": _json("true", "false")}),
        example(
            {
                "train.yaml": f"{_AXOLOTL}bf16: true\ndeepspeed: ds.json\n",
                "ds.json": _json("true", "false"),
            }
        ),
        example(
            {
                "train.yaml": f"{_AXOLOTL}fp16: true\ndeepspeed: ds.json\n",
                "ds.json": _json('"auto"', '"auto"'),
            }
        ),
        example({"ds.json": _json("true", "false")}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        said = {
            dtype: run.settings[field].value for field, dtype in _SWITCHES if field in run.settings
        }
        if all(said.get(dtype) is True for dtype in ("bf16", "fp16")):
            yield self._both(run)
            return
        amp, is_open = run.settings.get("amp"), run.settings.get("amp_is_open")
        if amp is None or (is_open is not None and is_open.value):
            return
        for field, dtype in _SWITCHES:
            if self._clashes(said.get(dtype), dtype, str(amp.value), trainer_compares(run)):
                yield self._mismatch(run, field, dtype, str(amp.value))

    @staticmethod
    def _clashes(enabled: bool | None, dtype: str, amp: str, strict: bool) -> bool:
        """The trainer compares each switch; Accelerate alone refuses only the other type."""
        if enabled is None or enabled == (amp == dtype):
            return False
        return strict or (enabled and amp != "no")

    def _mismatch(self, run: Run, field: Any, dtype: str, amp: str) -> Finding:
        switch = f"{dtype}.enabled"
        enabled = "true" if run.settings[field].value else "false"
        trains = f"trains in {amp}" if amp != "no" else "has no 16-bit precision on"
        if trainer_compares(run):
            other = f"the trainer {trains}"
            effect = "transformers stops with an error where the two differ"
        else:
            other = f"Accelerate's mixed precision is {amp}"
            effect = "Accelerate refuses that"
        return self.error(
            run,
            f"DeepSpeed's {switch} is {enabled}, but {other}",
            at=field,
            details=(effect,),
            proposals=[
                Proposal.set(f"leave {switch} to the trainer", {field: None}, Applicability.UNSAFE)
            ],
            notes=[self.note(run, "amp", f"the trainer {trains}")],
            ends=When.LOADED,
        )

    def _both(self, run: Run) -> Finding:
        return self.error(
            run,
            "the DeepSpeed config switches both bf16 and fp16 on, which DeepSpeed refuses",
            at=ds.fp16,
            proposals=[
                Proposal.set("switch fp16 off", {ds.fp16: False}, Applicability.UNSAFE),
            ],
            notes=[self.note(run, ds.bf16, "bf16 is switched on here")],
            ends=When.LOADED,
        )
