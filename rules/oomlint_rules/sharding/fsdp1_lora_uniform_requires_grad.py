"""FSDP1 that is to flatten trained and frozen weights into one parameter.

## What it finds

FSDP1 with `use_orig_params: false` in a run that trains some parameters of a block and freezes the
rest, where nothing gives the trained ones a unit of their own: `unfrozen_parameters` in Axolotl,
`freeze_trainable_modules` in LLaMA-Factory.

## Why it runs out of memory

FSDP1 makes one flat parameter of each unit, which requires a gradient as a whole or not at all. With
`use_orig_params: false` it refuses a mixture: *Must flatten tensors with uniform `requires_grad`
when `use_orig_params=False`*, after the model was loaded.

## How to fix it

`use_orig_params: true`. The unit then has gradients for all of its weights while it is in the
backward pass, so that some of what freezing saves is lost; FSDP2 shards each parameter by itself
and has neither problem.

## When not to

LoRA under transformers' Trainer: it wraps adapters by PEFT's policy, each in a unit of its own, and
`use_orig_params: false` is right there (it is in PEFT's own QLoRA example). verl, llm-foundry and
llama-recipes do the same; the rule is silent there.

## Sources

* torch documentation of `FullyShardedDataParallel` (constraints on freezing), pull request 98221
* transformers 5.23 `distributed/fsdp.py:267` (`update_fsdp_plugin_peft`)
* LLaMA-Factory ff6d4d12 `model/adapter.py:106`; Axolotl 067b021c `utils/freeze.py`
* https://github.com/Lightning-AI/litgpt/issues/1417, https://github.com/huggingface/peft/issues/1702
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, When, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, accelerate, example, mended

_ORIGINAL = f.parallel.fsdp.use_orig_params

_AXOLOTL = AXOLOTL + (
    "{more}fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n  use_orig_params: {original}\n"
)
_UNFROZEN = "unfrozen_parameters:\n  - model.layers.2[0-9]+.mlp\n"
_LF = (
    LLAMA_FACTORY.replace("type: full", "type: freeze")
    + "freeze_trainable_layers: 8\nfreeze_trainable_modules: {modules}\n"
)
_LAUNCH = "accelerate launch --config_file acc.yaml src/train.py train.yaml\n"


def _fsdp(original: str) -> str:
    return accelerate(
        "FSDP",
        "fsdp_config:\n"
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
        "  fsdp_sharding_strategy: FULL_SHARD\n"
        f"  fsdp_use_orig_params: {original}\n",
    )


class Fsdp1LoraUniformRequiresGrad(Rule, code="OOM309", may_end=True, fixes=Applicability.SAFE):
    summary = "FSDP1 is to flatten trained and frozen weights into one parameter"
    only_where = (
        Where(
            plan={
                f.parallel.backend: ("fsdp1",),
                f.parallel.fsdp.use_orig_params: (False,),
                f.parallel.fsdp.isolates_trainable: (False,),
            }
        ),
    )

    bad = (
        mended("axolotl.yaml", _AXOLOTL, more=_UNFROZEN, original=("false", "true")),
        example(
            {
                "train.yaml": _LF.format(modules="mlp"),
                "acc.yaml": _fsdp("false"),
                "train.sh": _LAUNCH,
            },
            {"acc.yaml": _fsdp("true")},
        ),
    )
    good = (
        example({"axolotl.yaml": _AXOLOTL.format(more=_UNFROZEN, original="true")}),
        example(
            {
                "axolotl.yaml": _AXOLOTL.format(
                    more="adapter: lora\nlora_r: 8\nlora_target_linear: true\n", original="false"
                )
            },
            why="the Trainer wraps each adapter by itself",
        ),
        example(
            {
                "train.yaml": _LF.format(modules="all"),
                "acc.yaml": _fsdp("false"),
                "train.sh": _LAUNCH,
            },
            why="whole layers are trained or frozen",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        yield self.error(
            run,
            "a block has trained and frozen weights, which FSDP1 cannot flatten together",
            at=(_ORIGINAL, f.trainable.method),
            details=(
                f"{run.key(_ORIGINAL)} is false: a block becomes one flat parameter",
                "FSDP1 stops, because that would need a gradient in part",
                "trained weights would need units of their own",
            ),
            resource="gpu",
            proposals=[Proposal.set("keep the original parameters", {_ORIGINAL: True})],
            ends=When.LOADED,
        )
