"""Offloading that DeepSpeed leaves undone at this ZeRO stage.

## What it finds

`zero_optimization.offload_param` with the device `cpu` or `nvme` below stage 3, and
`offload_optimizer` at stage 0, in a DeepSpeed JSON, an Accelerate YAML or on the command line
of `accelerate launch`.

## Why it runs out of memory

Below stage 3 every GPU keeps all parameters (2 bytes each in bf16), and DeepSpeed ignores
`offload_param` without a word: 8B parameters stay on the card as 15 GiB. At stage 0 there is
no ZeRO optimizer that could hold its states in host RAM (12 bytes a parameter with AdamW and
an fp32 master copy).

## How to fix it

Raise the stage to 3, which is what makes offloading parameters possible; the result of the
training stays the same, each layer is gathered when it is needed. Or delete the block, if
the run fits without it. Which of the two was meant only its author says: the fix raises the stage where the run
does not fit, and is shown elsewhere. Where the model is loaded with a device map stage 3 would stop it: there the
fix deletes the block, or the map has to go first.

## When not to

Where the block is a leftover and the run fits as it is: delete it, it does nothing.

## Sources

* DeepSpeed edaa7221 `runtime/zero/config.py:157` (`offload_param`: *Valid only with stage 3*)
* DeepSpeed edaa7221 `runtime/engine.py` `_configure_optimizer`: below stage 1 no ZeRO optimizer
  is built
* transformers 4.57 `modeling_utils.py` (*DeepSpeed Zero-3 is not compatible with passing a `device_map`*)
* https://github.com/hiyouga/LLaMA-Factory/issues/653 (stage 2 with offloading that had no effect)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.dialects.setting import Setting
from oomlint.judgement import judge_gpu
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, SetFields, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import AXOLOTL, accelerate, command, deepspeed, example, script
from oomlint_rules._fixes import changed, removal

_PARAMS = '"offload_param": {"device": "cpu"}'
_STOPS_BY_MAP = "stage 3 would stop the run as it is: transformers takes no device map under it"
_GATHERS = ', "stage3_gather_16bit_weights_on_model_save": true'


class OffloadParamNeedsStage3(Rule, code="OOM303", fixes=Applicability.SAFE, cost=3):
    summary = "offloading that DeepSpeed ignores at this ZeRO stage"
    only_where = (Where(plan={f.parallel.zero.stage: (0, 1, 2)}),)

    bad = (
        example(
            {
                "train.yaml": f"{AXOLOTL}deepspeed: ds.json\n",
                "ds.json": deepspeed(f'"stage": 2, {_PARAMS}'),
            },
            {"ds.json": deepspeed(f'"stage": 3{_GATHERS}, {_PARAMS}')},
            on="8xRTX-4090-24GB",
        ),
        example(
            {
                "train.sh": command("", "accelerate launch --config_file acc.yaml"),
                "acc.yaml": accelerate(
                    "DEEPSPEED",
                    "deepspeed_config:\n  zero_stage: 2\n  offload_param_device: cpu\n"
                    "  zero3_save_16bit_model: true\n",
                ),
            },
            why="the run does without: whether the stage or the setting is wrong only its author says",
        ),
        example(
            {"ds.json": deepspeed('"stage": 2, "offload_param": {"device": "cpu"}')},
            {"ds.json": deepspeed('"stage": 2')},
            why="nothing says which runs use the file: what it does stays",
        ),
        example(
            {
                "ds.json": deepspeed(
                    '"stage": 2, "offload_param": {"device": "cpu", "pin_memory": true}'
                )
            },
            {"ds.json": deepspeed('"stage": 2')},
            why="what stands beside the device means nothing without it",
        ),
        example(
            {"ds.json": deepspeed('"stage": 0, "offload_optimizer": {"device": "cpu"}')},
            why="no optimizer of ZeRO is there to offload",
        ),
        example(
            {
                "train.py": script("deepspeed='ds.json'", load="    device_map={'': 0},\n"),
                "train.sh": "torchrun --nproc_per_node 4 train.py\n",
                "ds.json": deepspeed(f'"stage": 2, {_PARAMS}'),
            },
            {"ds.json": deepspeed('"stage": 2')},
            why="stage 3 stops where the model is loaded with a device map",
        ),
    )
    good = (
        example(
            {
                "train.yaml": f"{AXOLOTL}deepspeed: ds.json\n",
                "ds.json": deepspeed(f'"stage": 3, {_PARAMS}'),
            }
        ),
        example({"ds.json": deepspeed('"stage": 2, "offload_optimizer": {"device": "cpu"}')}),
        example(
            {
                "train.sh": command(
                    "--deepspeed ds.json", "accelerate launch --config_file acc.yaml"
                ),
                "acc.yaml": accelerate(
                    "DEEPSPEED", "deepspeed_config:\n  zero_stage: 3\n  offload_param_device: cpu\n"
                ),
                "ds.json": deepspeed('"stage": 2'),
            },
            why="the JSON takes the place of all that Accelerate's file says of DeepSpeed",
        ),
        example({"ds.json": deepspeed('"stage": 2, "offload_param": {"device": "none"}')}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        stage = run.plan.parallel.zero.stage
        if stage is None:
            return
        params = _written(run, f.offload.params)
        if params is not None and not _means_more(run, params, 3):
            yield self._ignored(run, params, f.offload.params, "parameters", 3, stage)
        optimizer = _written(run, f.offload.optimizer)
        if stage == 0 and optimizer is not None and not _means_more(run, optimizer, 1):
            yield self._ignored(run, optimizer, f.offload.optimizer, "the optimizer", 1, stage)

    def _ignored(
        self, run: Run, said: Setting, field: Any, what: str, needed: int, stage: int
    ) -> Finding:
        judged = judge_gpu(run)
        dies = judged is not None and judged.limit is not None and judged.is_problem
        is_sure = judged is not None and dies and judged.severity is Severity.ERROR
        place = said.origin.location
        is_mapped = needed == 3 and _has_device_map(run)
        return self.finding(
            run,
            Severity.ERROR if is_sure else Severity.WARNING,
            f"ZeRO stage {stage} does not offload {what}: the setting is ignored",
            at=place if place is not None else field,
            details=(
                f"{said.value} is asked for, and the GPU keeps {what}",
                f"DeepSpeed offloads {what} from stage {needed} on",
                *((_STOPS_BY_MAP,) if is_mapped else ()),
                *(judged.context if dies and judged is not None else ()),
            ),
            judged=judged if dies else None,
            confidence="high",
            resource="gpu",
            proposals=_proposals(run, said, field, needed, is_needed=dies, may_raise=not is_mapped),
            notes=[self.note(run, f.parallel.zero.stage, f"the stage is {stage}")],
        )


def _written(run: Run, field: Any) -> Setting | None:
    """What a file says of a field that DeepSpeed then overrides."""
    setting = run.settings.get(field)
    earlier = setting.shadowed if setting is not None else ()
    return next((s for s in earlier if s.value != "none" and s.origin.kind == "explicit"), None)


def _means_more(run: Run, said: Setting, needed: int) -> bool:
    """Whether the file that asks for offloading asks for a stage that would do it too: then all of what
    it says of sharding gives way to another file, which is no question of the stage."""
    stage = run.settings.get(f.parallel.zero.stage)
    others = stage.shadowed if stage is not None else ()
    return any(
        each.origin.block is said.origin.block and each.value >= needed
        for each in others
        if isinstance(each.value, int) and each.origin.block is not None
    )


def _has_device_map(run: Run) -> bool:
    """Whether the model is loaded with a device map under stage 3, too, which transformers refuses; frameworks that make
    one by themselves leave it out there."""
    if run.plan.load.device_map in (None, "none"):
        return False
    after = changed(run, {f.parallel.zero.stage: 3})
    return after is None or after.plan.load.device_map not in (None, "none")


def _proposals(
    run: Run, said: Setting, field: Any, needed: int, *, is_needed: bool, may_raise: bool
) -> Iterable[Proposal]:
    changes: dict[Any, Any] = {f.parallel.zero.stage: needed, field: said.value}
    if needed == 3:
        changes[f.parallel.zero.gather16_on_save] = True
    is_raised = may_raise and run.plan.quant.method in (None, "none")
    # `{"device": "cpu", "pin_memory": true}` is one section, of which nothing has an effect without the device.
    is_whole = said.origin.entry is not None and said.origin.entry.key == "device"
    section = "offload_param" if field == f.offload.params else "offload_optimizer"
    what = section if is_whole else said.origin.key
    removed = removal(f"remove {what}, which has no effect", said.origin, is_whole=is_whole)
    if run.is_fragment:
        # Whoever uses the file trains with this stage today.
        yield from removed
    if is_raised:
        # Which of the two was meant only the author says, as long as the run does without.
        level = Applicability.SAFE if is_needed else Applicability.DISPLAY
        yield Proposal(f"raise the ZeRO stage to {needed}", (SetFields(changes),), level)
    if not run.is_fragment and (not is_raised or is_needed):
        yield from removed
