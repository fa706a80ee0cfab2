"""After the last step the best checkpoint is read back, with a peak that nobody has seen before.

## What it finds

`load_best_model_at_end` in full fine-tuning under DeepSpeed's ZeRO, where reading the best checkpoint back does not fit
the node's RAM on top of what training keeps there, or comes close. If the RAM is not known and the
model has 13B parameters or more, the need is named.

## Why it runs out of memory

When training is over transformers loads the best checkpoint into the engine that is still
there. Under DeepSpeed that is all of it, optimizer states included: 12 bytes a parameter over all ranks,
beside whatever is offloaded, as on resuming. It happens once, at the very end, before the final
model is saved.

## How to fix it

Leave it off, keep a few checkpoints (`save_total_limit`) and take the best by its evaluation loss,
which `trainer_state.json` names. The fix sets it to false, which is unsafe: what is saved at the
end is then the last model.

## When not to

With LoRA, whose checkpoints are small, the rule is silent. FSDP reads only the weights back, and
without either one file of the checkpoint is read at a time. `save-option-conflict` speaks
where transformers refuses the combination.

## Sources

* transformers 5.23 `trainer.py:3735` (`_load_best_model`), `integrations/deepspeed.py`
  (`deepspeed_load_checkpoint`)
* DeepSpeed edaa7221 `runtime/engine.py:4682`; https://github.com/hiyouga/LLaMA-Factory/issues/3470
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import settled
from oomlint.linting.rule import Applicability, Finding, Proposal, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import LLAMA_FACTORY, command, deepspeed, example
from oomlint_rules.checkpoint._reload import ReloadRule, reload_of
from oomlint_rules.settings._trainer import trainer_compares

_FIELD = f.save.load_best_at_end
_LARGE = 12e9

_STRATEGIES = "save_strategy: steps\neval_strategy: steps\nsave_steps: 100\neval_steps: 100\n"
_LF = f"{LLAMA_FACTORY}{_STRATEGIES}val_size: 0.1\ndeepspeed: ds.json\n"
_JSON = deepspeed('"stage": 3, "offload_optimizer": {"device": "cpu"}')
_OPTIONS = "--deepspeed ds.json --eval_strategy steps --save_steps 100 --eval_steps 100"


class LoadBestReloadOom(ReloadRule, code="OOM513", fixes=Applicability.UNSAFE, cost=9):
    summary = "the best checkpoint is read back at the end, beside all that training holds"
    only_where = (Where(meant={f.save.load_best_at_end: (True,), f.parallel.backend: ("zero",)}),)

    bad = (
        example(
            {"train.yaml": f"{_LF}load_best_model_at_end: true\n", "ds.json": _JSON},
            {"train.yaml": f"{_LF}load_best_model_at_end: false\n"},
            on="8xA100-80GB, 256GiB",
        ),
        example(
            {
                "train.sh": command(f"{_OPTIONS} --load_best_model_at_end True").replace(
                    "8B", "70B"
                ),
                "ds.json": _JSON,
            },
            {
                "train.sh": command(f"{_OPTIONS} --load_best_model_at_end False").replace(
                    "8B", "70B"
                )
            },
            why="nobody says how much RAM the node has",
        ),
    )
    good = (
        example(
            {"train.yaml": f"{_LF}load_best_model_at_end: true\n", "ds.json": _JSON},
            on="8xA100-80GB, 1TiB",
        ),
        example(
            {
                "train.yaml": f"{_LF}load_best_model_at_end: true\n".replace(
                    "finetuning_type: full", "finetuning_type: lora"
                ),
                "ds.json": _JSON,
            },
            on="8xA100-80GB, 64GiB",
            why="an adapter is small",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = settled(run).plan
        if not trainer_compares(run):
            return
        dims = plan.model.dims
        total = dims.params_total if dims is not None else None
        found = None if plan.save.save_only_model else reload_of(run)
        if found is None or total is None:
            return
        yield from self.read_back(
            run,
            found,
            f"{run.key(_FIELD)} reads {gib(found.read)} into a node's RAM at the end",
            at=_FIELD,
            reads=f"for the best checkpoint {found.words}",
            is_large=total >= _LARGE,
            proposals=[
                Proposal.set(
                    "keep the last model, and choose a checkpoint afterwards",
                    {_FIELD: False},
                    Applicability.UNSAFE,
                )
            ],
        )
