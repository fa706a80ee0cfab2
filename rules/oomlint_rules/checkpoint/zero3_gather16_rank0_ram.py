"""At every save under ZeRO-3 the whole 16-bit model is gathered into the RAM of one node.

## What it finds

ZeRO stage 3 with `stage3_gather_16bit_weights_on_model_save: true` (so say the presets of
LLaMA-Factory, Axolotl and ms-swift) where the gathered model, on top of what training keeps
there, does not fit the RAM of the first node or comes close. If that is not known and the
model is large, the need is named.

## Why it runs out of memory

`_zero3_consolidated_16bit_state_dict` gathers one module after the other and collects all of
them on the CPU of rank 0: 2 bytes a parameter, 144 GB for 72B, 1.3 TB for 671B, beside the
offloaded optimizer. Training runs for hours, and the process is killed at the first
checkpoint. `save_only_model` does not prevent it. With LoRA, transformers 4.57 gathers the
frozen base too; 5.23 leaves it out.

## How to fix it

More RAM on the first node; or `stage3_gather_16bit_weights_on_model_save: false`, with which
each rank writes its own shard and `zero_to_fp32.py` makes a model of them afterwards (on a
machine with RAM enough). The fix sets it to false. It is unsafe, as other files are saved: where
the run saves optimizer states, transformers writes the same DeepSpeed checkpoint as before, whose fp32
weights are those that the 16-bit files were rounded from, and leaves these out, which is what
`from_pretrained` loads. With `save_only_model: true` it saves DeepSpeed's whole checkpoint
in place of the model, six times its size. Where a script of its own calls `save_16bit_model`
nothing at all would be saved, so there is no fix. For LoRA take a transformers that leaves the
frozen weights out.

`save_only_model` is often named as a cure. It is none for this: it skips the optimizer states,
which each rank writes by itself, and keeps the gather.

## When not to

Where a script loads the checkpoint right after training it needs the gathered files.

## Sources

* DeepSpeed edaa7221 `runtime/engine.py:5491`; transformers 5.23 `trainer.py:4107`, 4.57
  `trainer.py:4212`
* https://github.com/hiyouga/LLaMA-Factory/pull/6843 (671B, 2 TB of RAM),
  https://github.com/hiyouga/LLaMA-Factory/issues/3752 (32B, 64 GB), /3230, /4435
* https://github.com/huggingface/transformers/issues/12587
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import judge_host, settled, severity_of_need
from oomlint.linting.rule import Applicability, Finding, Rule, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._conditions import ADAPTERS, UNDER_ZERO_3
from oomlint_rules._examples import ONE_SAMPLE, axolotl, example, llama_factory
from oomlint_rules.checkpoint._gather import GATHER, shards_instead
from oomlint_rules.host._ram import against

_AXOLOTL = axolotl("Qwen/Qwen2.5-32B", "sequence_len: 2048\n", ONE_SAMPLE, "deepspeed: ds.json\n")
_LLAMA_FACTORY = llama_factory(
    "Qwen/Qwen2.5-32B",
    "output_dir: out\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 4\n",
    "bf16: true\ndeepspeed: ds.json\n",
    template="qwen",
)
_LORA = "adapter: lora\nlora_r: 16\nlora_target_linear: true\n"


def _json(gather: str) -> str:
    return (
        "{\n"
        '  "zero_optimization": {\n'
        '    "stage": 3,\n'
        f'    "stage3_gather_16bit_weights_on_model_save": {gather}\n'
        "  },\n"
        '  "bf16": {"enabled": "auto"},\n'
        '  "train_micro_batch_size_per_gpu": "auto"\n'
        "}\n"
    )


# A node for a model of this size usually has more; below it there is nothing to say. Of a node
# that is known, half of the RAM: 2 TiB ran out while 1.25 were gathered
# (https://github.com/hiyouga/LLaMA-Factory/pull/6843).
_NOTEWORTHY = 100 * 2**30


class Zero3Gather16Rank0Ram(Rule, code="OOM504", fixes=Applicability.UNSAFE, cost=5):
    summary = "saving under ZeRO-3 gathers the whole model in the RAM of one node"
    explains = ("gather",)
    only_where = (Where(plan={**UNDER_ZERO_3, f.parallel.zero.gather16_on_save: (True,)}),)

    bad = (
        example(
            {"train.yaml": _AXOLOTL, "ds.json": _json("true")},
            {"ds.json": _json("false")},
            on="8xA100-80GB, 64GiB",
        ),
        example(
            {"train.yaml": f"{_AXOLOTL}{_LORA}", "ds.json": _json("true")},
            on="2xRTX-A6000-48GB, 62GiB",
            why="transformers 4 gathers the frozen base too",
        ),
        example(
            {"train.yaml": _AXOLOTL.replace("2.5-32B", "2.5-72B"), "ds.json": _json("true")},
            on="4x8xH100-80GB",
            why="135 GiB, and nobody says how much RAM the node has",
        ),
        example(
            {"train.yaml": _LLAMA_FACTORY, "ds.json": _json("true")},
            {"ds.json": _json("false")},
            on="8xA100-80GB, 72GiB",
        ),
        example(
            {"train.yaml": f"{_LLAMA_FACTORY}save_only_model: true\n", "ds.json": _json("true")},
            {"ds.json": _json("false")},
            on="8xA100-80GB, 72GiB",
            why="the gather stays; the fix is unsafe, as optimizer states would be saved too",
        ),
    )
    good = (
        example({"train.yaml": _LLAMA_FACTORY, "ds.json": _json("true")}, on="8xA100-80GB, 512GiB"),
        example({"train.yaml": _AXOLOTL, "ds.json": _json("true")}, on="8xA100-80GB, 1TiB"),
        example({"train.yaml": _AXOLOTL, "ds.json": _json("false")}, on="8xA100-80GB, 64GiB"),
        example(
            {"train.yaml": f"{_AXOLOTL}save_strategy: 'no'\n", "ds.json": _json("true")},
            on="8xA100-80GB, 64GiB",
            why="no checkpoint is saved while training",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        if plan.save.strategy == "no" or plan.save.full_gather is False:
            return
        probe = settled(run)
        dims = probe.plan.model.dims
        training = probe.estimate.host.phases.get("train")
        if dims is None or not dims.params_total or training is None:
            return
        gathered = 2 * dims.params_total
        if plan.trainable.method in ADAPTERS:
            yield from self._frozen_base(run, training, gathered)
        else:
            yield from self._model(run, training, gathered)

    def _model(self, run: Run, training: int, gathered: int) -> Iterable[Finding]:
        found = judge_host(run, phase="save")
        before = judge_host(run, phase="train")
        if found is None or before is None:
            return
        severity = found.severity
        if found.limit is None:
            severity = Severity.INFO if gathered >= _NOTEWORTHY else None
        # Where training itself does not fit, saving is not what has to change.
        if severity is None or before.is_problem:
            return
        yield self.finding(
            run,
            severity,
            f"every save gathers the 16-bit model, {gib(gathered)}, in the first node's RAM",
            at=GATHER,
            details=(
                f"beside {gib(training)} that training keeps there",
                *(against(found.predicted, None) if found.limit is None else ()),
                (
                    f"with {run.key(GATHER)} off each rank writes its own shard, for zero_to_fp32.py to "
                    "join"
                ),
            ),
            judged=found,
            proposals=shards_instead(run) if found.is_problem else (),
        )

    def _frozen_base(self, run: Run, training: int, gathered: int) -> Iterable[Finding]:
        limit = run.limits.host_bytes
        need = training + gathered
        noteworthy = gathered >= max(_NOTEWORTHY, (limit or 0) / 2)
        severity = Severity.INFO if noteworthy else None
        short = severity_of_need(run, "host", need)
        if short is not None:
            # Where training itself does not fit, saving is not what has to change; and the version
            # may be one that leaves the base out.
            fits = severity_of_need(run, "host", training) is None
            severity = min(short, Severity.WARNING) if fits else None
        if severity is None:
            return
        yield self.finding(
            run,
            severity,
            f"saving the adapter gathers the frozen base, {gib(gathered)}, in one node's RAM",
            at=GATHER,
            details=(
                "transformers 4 does so, transformers 5.23 leaves the base out",
                f"beside {gib(training)} that training keeps in the RAM of the first node",
                *against(need, limit),
            ),
            confidence="medium",
            resource="host",
            predicted=need,
            limit=limit,
        )
