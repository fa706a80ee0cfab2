"""Accelerate's config and the trainer's arguments both say how the run is sharded.

## What it finds

`accelerate launch` with a config (or flags) that chooses DeepSpeed or FSDP, for a run whose
own arguments name a DeepSpeed config too; an Accelerate YAML that names a DeepSpeed file and
repeats its settings inline; a number of accumulation steps in the Accelerate YAML that is
not the trainer's; bf16 in one of them where the other says fp16; and a script that makes an
optimizer and prepares it beside one in the DeepSpeed config.

## Why it runs out of memory

Two sources of truth: only one of them counts, and the one that loses may be the one that
offloads the optimizer (12 bytes a parameter) or shards the weights. A trainer with a
DeepSpeed config of its own takes that one. Accelerate refuses inline settings beside a
DeepSpeed file, and an optimizer beside the one in it that is no `DummyOptim`, and the Trainer
refuses another number of accumulation steps, all with an error at start.

## How to fix it

Keep one: either `--deepspeed ds.json` with `torchrun`, or the Accelerate config without the
trainer's argument. Leave `gradient_accumulation_steps` out of the Accelerate YAML, and `optimizer`
out of the DeepSpeed config of a script that makes its own.

## When not to

Where the Accelerate config only says how many processes to start, or both name the same DeepSpeed file, both may stay;
the rule is silent where it can read that.

## Sources

* transformers 5.23 `training_args.py:1706-1721` (the trainer's config first, else Accelerate's),
  `trainer.py:887` and `integrations/deepspeed.py:704` (the comparison), `trainer.py:474`
* Accelerate 1.15 `utils/dataclasses.py:1508` (`_deepspeed_config_checks`), `commands/launch.py:1394` (which of an
  Accelerate config's keys it is given; options of the launcher are none)
* Accelerate 0.12.0 and 1.14.0 `accelerator.py` (`_prepare_deepspeed`)
* https://github.com/hiyouga/LLaMA-Factory/issues/3752
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import Any

from oomlint.dialects.accelerate.keys import own as plugin
from oomlint.dialects.common.fields import (
    deepspeed as zero_plugin,
    fsdp as fsdp_plugin,
    ref,
    shared,
)
from oomlint.dialects.deepspeed.keys import ds
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.setting import Setting
from oomlint.linting.rule import Applicability, Finding, Rule, Severity, When
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import accelerate, command, deepspeed, example, text
from oomlint_rules._fixes import removal
from oomlint_rules.settings._trainer import trainer_compares

_ACCELERATE = "accelerate launch --config_file acc.yaml"
# Accelerate 1.15 utils/dataclasses.py:1509: what may not stand beside deepspeed_config_file.
_INLINE = (
    f.parallel.zero.stage,
    f.offload.optimizer,
    f.offload.params,
    f.parallel.zero.gather16_on_save,
    plugin.grad_accum,
)
_LOOP = text(
    """
    from accelerate import Accelerator
    from accelerate.utils import DummyOptim
    import torch
    from transformers import AutoModelForCausalLM

    accelerator = Accelerator(mixed_precision='bf16')
    model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', torch_dtype=torch.bfloat16)
    optimizer = {optimizer}(model.parameters(), lr=1e-5)
    data = torch.utils.data.DataLoader(samples, batch_size=1)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for batch in data:
        accelerator.backward(model(**batch).loss)
        optimizer.step()
    """
)
_MAKES_ONE = '  "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},\n'


def _loop(optimizer: str) -> dict[str, str]:
    """A script over Accelerate that prepares an optimizer, its launch line, and a DeepSpeed config with one."""
    return {
        "train.sh": f"{_ACCELERATE} train.py\n",
        "train.py": _LOOP.format(optimizer=optimizer),
        "acc.yaml": accelerate("DEEPSPEED", _BY_FILE),
        "ds.json": deepspeed('"stage": 2', _MAKES_ONE),
    }


_BY_FILE = "deepspeed_config:\n  deepspeed_config_file: ds.json\n"


class AccelerateVsTrainerMismatch(Rule, code="OOM804", may_end=True, fixes=Applicability.SAFE):
    summary = "Accelerate's config and the trainer's arguments both say how to shard"

    bad = (
        example(
            {
                "train.sh": command("--deepspeed ds.json", _ACCELERATE),
                "acc.yaml": accelerate(
                    "DEEPSPEED",
                    "deepspeed_config:\n  zero_stage: 2\n  offload_optimizer_device: cpu\n",
                ),
                "ds.json": deepspeed('"stage": 3'),
            }
        ),
        example(
            {
                "train.sh": command("--deepspeed ds.json", _ACCELERATE),
                "acc.yaml": accelerate("FSDP", "fsdp_config:\n  fsdp_version: 2\n"),
                "ds.json": deepspeed('"stage": 3'),
            }
        ),
        example(
            {
                "train.sh": command("", _ACCELERATE),
                "acc.yaml": accelerate("DEEPSPEED", f"{_BY_FILE}  zero_stage: 3\n"),
                "ds.json": deepspeed('"stage": 3'),
            },
            {"acc.yaml": accelerate("DEEPSPEED", _BY_FILE)},
        ),
        example(
            {
                "train.sh": command("", _ACCELERATE),
                "acc.yaml": accelerate(
                    "DEEPSPEED",
                    "deepspeed_config:\n  gradient_accumulation_steps: 1\n  zero_stage: 3\n",
                ),
            },
            {"acc.yaml": accelerate("DEEPSPEED", "deepspeed_config:\n  zero_stage: 3\n")},
        ),
        example(
            {
                "train.sh": command("", _ACCELERATE).replace("--bf16", "--fp16"),
                "acc.yaml": accelerate("MULTI_GPU"),
            }
        ),
        example(_loop("torch.optim.AdamW")),
    )
    good = (
        example(_loop("DummyOptim"), why="DeepSpeed makes the optimizer"),
        example(
            {
                "train.sh": command("--deepspeed ds.json", _ACCELERATE),
                "acc.yaml": accelerate("MULTI_GPU"),
                "ds.json": deepspeed('"stage": 3'),
            },
            why="Accelerate only starts the processes",
        ),
        example(
            {
                "train.sh": command(
                    "",
                    "accelerate launch --use_deepspeed --deepspeed_config_file ds.json "
                    "--zero3_save_16bit_model true --gradient_accumulation_steps 8",
                ),
                "ds.json": deepspeed('"stage": 3'),
            },
            why="options of the launcher beside the file are none that Accelerate refuses",
        ),
        example(
            {
                "train.sh": command("--deepspeed ./ds.json", _ACCELERATE),
                "acc.yaml": accelerate("DEEPSPEED", _BY_FILE),
                "ds.json": deepspeed('"stage": 3'),
            },
            why="both name the same file",
        ),
        example(
            {
                "train.sh": command("--deepspeed /data/ours/conf/ds.json", _ACCELERATE),
                "acc.yaml": accelerate("DEEPSPEED", _BY_FILE.replace("ds.json", "conf/ds.json")),
                "conf/ds.json": deepspeed('"stage": 3'),
            },
            why="both name the same file, one of them from the root of the machine",
        ),
        example(
            {
                "train.sh": command("", _ACCELERATE),
                "acc.yaml": accelerate("DEEPSPEED", _BY_FILE),
                "ds.json": deepspeed('"stage": 3'),
            }
        ),
        example(
            {
                "train.sh": command("", _ACCELERATE),
                "acc.yaml": accelerate(
                    "DEEPSPEED",
                    "deepspeed_config:\n  gradient_accumulation_steps: 8\n  zero_stage: 3\n",
                ),
            }
        ),
        example(
            {
                "train.sh": f"{_ACCELERATE} sft.py --config /data/elsewhere/recipe.yaml\n",
                "acc.yaml": accelerate(
                    "DEEPSPEED",
                    "deepspeed_config:\n  gradient_accumulation_steps: 8\n  zero_stage: 3\n",
                ),
            },
            why="the recipe, which is not here, may accumulate as often",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        trainers = _said(run, ref.deepspeed, by_accelerate=False)
        own = _said(run, ref.deepspeed, by_accelerate=True)
        if own is not None:
            yield from self._inline(run, own)
        chosen = _chosen(run)
        if trainers is not None and chosen is not None:
            engine, place = chosen
            if engine != "DeepSpeed" or not _name_one_file(trainers, own):
                yield self._both(run, trainers, engine, place)
        elif trainers is not None and _unread_config(run):
            yield self._unread(run, trainers)
        elif trainers is None:
            yield from self._accumulation(run)
        yield from self._precision(run)
        yield from self._optimizers(run)

    def _both(self, run: Run, trainers: Setting, engine: str, place: Setting) -> Finding:
        same = "ignores what its config says of the stage and of offloading"
        loses = same if engine == "DeepSpeed" else "would wrap the model a second time"
        location = trainers.origin.location
        return self.finding(
            run,
            Severity.WARNING if engine == "DeepSpeed" else Severity.ERROR,
            f"{trainers.origin.key} names a DeepSpeed config, and Accelerate's chooses {engine} too",
            at=location if location is not None else ref.deepspeed,
            details=(f"the trainer's counts, and Accelerate {loses}", "keep one of them"),
            notes=[self.note(run, place.origin.inputs[0], f"{engine} is chosen here")]
            if place.origin.inputs
            else [],
        )

    def _unread(self, run: Run, trainers: Setting) -> Finding:
        location = trainers.origin.location
        return self.info(
            run,
            f"{trainers.origin.key} and the Accelerate config may both say how to shard",
            at=location if location is not None else ref.deepspeed,
            details=(
                "the Accelerate config is not here",
                "the trainer's DeepSpeed config counts: keep one of them",
            ),
            confidence="low",
        )

    def _inline(self, run: Run, own: Setting) -> Iterable[Finding]:
        for field in _INLINE:
            # An option of the launcher's is passed on, and counts where the file has "auto".
            said = next(
                (s for s, section in _explicit(run, field) if section == "accelerate"), None
            )
            if said is None:
                continue
            origin = said.origin
            yield self.error(
                run,
                f"{origin.key} may not stand beside {own.origin.key}",
                at=origin.location if origin.location is not None else field,
                details=(f"Accelerate stops with an error, because {own.value} alone may say it",),
                proposals=removal(f"remove {origin.key}", origin),
                ends=When.LOADED,
            )

    def _accumulation(self, run: Run) -> Iterable[Finding]:
        said = _said(run, plugin.grad_accum, by_accelerate=True)
        steps = run.plan.batch.grad_accum
        if said is None or steps is None or said.value == steps or not trainer_compares(run):
            return
        if run.is_fragment or run.plan.parallel.backend != "zero":
            return
        if run.missing and run.level(f.batch.grad_accum) > Level.STATED:
            return  # the file that is not here may say it
        origin = said.origin
        yield self.error(
            run,
            f"Accelerate's config accumulates {said.value} times and the trainer {steps} times",
            at=origin.location if origin.location is not None else plugin.grad_accum,
            details=("transformers stops with an error where the two differ",),
            proposals=removal("leave accumulation to the trainer", origin),
            notes=[self.note(run, f.batch.grad_accum, f"the trainer accumulates {steps} times")],
            ends=When.LOADED,
        )

    def _optimizers(self, run: Run) -> Iterable[Finding]:
        stops = run.settings.get(shared.stops)
        if stops is None or ds.optimizer not in stops.origin.inputs:
            return
        yield self.error(
            run,
            str(stops.value),
            at=ds.optimizer,
            details=(
                "it stops with an error before the first step",
                "leave the optimizer out of the DeepSpeed config, or have the script make a DummyOptim",
            ),
            ends=When.LOADED,
        )

    def _precision(self, run: Run) -> Iterable[Finding]:
        chosen = _said(run, plugin.mixed_precision, by_accelerate=True)
        if chosen is None or chosen.value not in ("bf16", "fp16"):
            return
        other = "fp16" if chosen.value == "bf16" else "bf16"
        trainers = _said(run, f"hf.{other}", by_accelerate=False)
        same = _said(run, f"hf.{chosen.value}", by_accelerate=False)
        if trainers is None or trainers.value is not True or (same and same.value is True):
            return
        yield self.info(
            run,
            f"Accelerate's config says {chosen.value} and the trainer says {other}",
            at=trainers.origin.location or f"hf.{other}",
            details=("the trainer's counts: keep one of them",),
            notes=[self.note(run, plugin.mixed_precision, f"here it is {chosen.value}")],
        )


def _said(run: Run, field: Any, *, by_accelerate: bool) -> Setting | None:
    """What a file says of a field, in Accelerate's own config or outside of it."""
    for each, section in _explicit(run, field):
        if (section in ("accelerate", "launcher")) == by_accelerate:
            return each
    return None


def _explicit(run: Run, field: Any) -> Iterable[tuple[Setting, str]]:
    """What files say of a field, what is in force first, and the section of which table."""
    setting = run.settings.get(field)
    for each in (setting, *setting.shadowed) if setting is not None else ():
        if each.origin.kind == "explicit" and each.origin.block is not None:
            yield each, each.origin.block.table.section


def _name_one_file(trainers: Setting, own: Setting | None) -> bool:
    """Whether both name the same file: whichever counts, the other says nothing else. A relative path counts from where the
    run starts, which the absolute one of the other may begin with."""
    if own is None:
        return False
    one, other = (posixpath.normpath(str(each.value)) for each in (trainers, own))
    if posixpath.isabs(one) == posixpath.isabs(other):
        return one == other
    return one.endswith(f"/{other}") or other.endswith(f"/{one}")


def _chosen(run: Run) -> tuple[str, Setting] | None:
    """What Accelerate's config or flags choose to shard with."""
    for field, engine in ((zero_plugin.enabled, "DeepSpeed"), (fsdp_plugin.enabled, "FSDP")):
        setting = run.settings.get(field)
        if setting is not None and setting.value and "accelerate." in str(setting.origin.inputs):
            return engine, setting
    return None


def _unread_config(run: Run) -> bool:
    """Whether the launch line names an Accelerate config that is not at hand."""
    named = run.settings.get(launch.config_file)
    return named is not None and not any(
        block.table.section == "accelerate" for block, _ in run.parts.blocks
    )
