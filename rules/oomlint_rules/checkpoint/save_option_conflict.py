"""Options of saving that transformers refuses together.

## What it finds

`save_only_model` with `load_best_model_at_end` under DeepSpeed or FSDP; `save_only_model` with
FSDP's `SHARDED_STATE_DICT`; and `load_best_model_at_end` where the run does not save when it
evaluates.

## Why it runs out of memory

It does not get that far: transformers raises a `ValueError` when the Trainer is made, which
for a large model is after half an hour of loading. A DeepSpeed or FSDP checkpoint without the
optimizer (12 bytes a parameter that `save_only_model` leaves out) cannot be loaded again into
the running engine, which `load_best_model_at_end` would have to do.

## How to fix it

Give up one of the two. The first fix drops `load_best_model_at_end`, so choose the checkpoint
afterwards by its evaluation loss; it is unsafe because the model that is left at the end is
another one. Where strategies differ, the evaluation follows the saves.

## When not to

Where the framework replaces the Trainer's own saving.

## Sources

* transformers 5.23 `trainer.py:889-912` (`save_only_model`) and `training_args.py:1748`
  (`load_best_model_at_end`)
* ms-swift 3602360a `swift/arguments/sft_args.py:341`
  (`save_only_model` with a sharded state dict)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, When, Where
from oomlint.plan.fields import f
from oomlint.plan.library_changes import release_of
from oomlint.runs.run import Run
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, command, deepspeed, example, script
from oomlint_rules.settings._trainer import trainer_compares

_BOTH = "save_only_model: true\nload_best_model_at_end: true\n"
_STRATEGIES = "save_strategy: steps\neval_strategy: steps\nsave_steps: 100\neval_steps: 100\n"
_LF = f"{LLAMA_FACTORY}{_STRATEGIES}val_size: 0.1\ndeepspeed: ds.json\n"
_JSON = deepspeed('"stage": 3, "stage3_gather_16bit_weights_on_model_save": true')
# Their own builders set the strategies from other keys.
_OWN_STRATEGIES = frozenset({"axolotl", "ms-swift"})
# From here on transformers looks at FSDP's state dict (4.49.0 and 4.50.0 trainer.py create_accelerator_and_postprocess).
_ONLY_MODEL_SHARDED = (4, 50)
_STOPS = "transformers stops with an error"
_STOPS_LATE = f"{_STOPS} once the model is loaded"


class SaveOptionConflict(Rule, code="OOM507", may_end=True, fixes=Applicability.UNSAFE, cost=9):
    summary = "options of saving that transformers refuses together"
    only_where = (
        Where(plan={f.save.load_best_at_end: (True,)}),
        Where(plan={f.save.save_only_model: (True,)}),
    )

    bad = (
        example(
            {"train.yaml": f"{_LF}{_BOTH}", "ds.json": _JSON},
            {"train.yaml": f"{_LF}{_BOTH}".replace("at_end: true", "at_end: false")},
        ),
        example(
            {
                "train.sh": command(
                    "--deepspeed ds.json --save_only_model True --load_best_model_at_end True"
                    " --eval_strategy steps --save_steps 100 --eval_steps 100"
                ),
                "ds.json": _JSON,
            },
            {
                "train.sh": command(
                    "--deepspeed ds.json --save_only_model True --load_best_model_at_end False"
                    " --eval_strategy steps --save_steps 100 --eval_steps 100"
                )
            },
        ),
        example(
            {
                "train.yaml": (
                    f"{AXOLOTL}save_only_model: true\nfsdp:\n  - full_shard\n  - auto_wrap\n"
                    "fsdp_config:\n  state_dict_type: SHARDED_STATE_DICT\n"
                )
            },
            {
                "train.yaml": (
                    f"{AXOLOTL}save_only_model: false\nfsdp:\n  - full_shard\n  - auto_wrap\n"
                    "fsdp_config:\n  state_dict_type: SHARDED_STATE_DICT\n"
                )
            },
        ),
        example(
            {
                "train.py": script(
                    "load_best_model_at_end=True", "save_strategy='epoch'", "eval_strategy='steps'"
                )
            },
            {
                "train.py": script(
                    "load_best_model_at_end=True", "save_strategy='epoch'", "eval_strategy='epoch'"
                )
            },
        ),
    )
    good = (
        example({"train.yaml": f"{_LF}load_best_model_at_end: true\n", "ds.json": _JSON}),
        example({"train.yaml": f"{_LF}save_only_model: true\n", "ds.json": _JSON}),
        example(
            {
                "train.sh": command(
                    "--save_only_model True --fsdp 'full_shard auto_wrap' --fsdp_config fsdp.json"
                ),
                "fsdp.json": '{"fsdp_state_dict_type": "SHARDED_STATE_DICT"}\n',
                "requirements.txt": "transformers==4.57.3\n",
            },
            why="before 5.10 no key of fsdp_config says how weights are saved",
        ),
        example(
            {
                "train.py": script(
                    "load_best_model_at_end=True",
                    "save_only_model=True",
                    "save_strategy='epoch'",
                    "eval_strategy='epoch'",
                )
            },
            why="neither DeepSpeed nor FSDP",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        save, backend = run.plan.save, run.plan.parallel.backend
        if not trainer_compares(run):
            return
        sharded = backend in ("zero", "fsdp1", "fsdp2")
        if save.save_only_model and save.load_best_at_end and sharded:
            yield self._reload(run, "DeepSpeed" if backend == "zero" else "FSDP")
        elif save.save_only_model and _sharded_state_dict(run):
            yield self._sharded(run)
        if save.load_best_at_end and run.dialect.name not in _OWN_STRATEGIES:
            yield from self._strategies(run)

    def _reload(self, run: Run, engine: str) -> Finding:
        best, only = run.key(f.save.load_best_at_end), run.key(f.save.save_only_model)
        return self.error(
            run,
            f"{best} cannot go with {only} under {engine}",
            at=(f.save.load_best_at_end, f.save.save_only_model),
            details=("a checkpoint without the optimizer cannot be loaded back", _STOPS_LATE),
            proposals=[
                Proposal.set(
                    f"drop {best}", {f.save.load_best_at_end: False}, Applicability.UNSAFE
                ),
            ],
            notes=[self.note(run, f.save.save_only_model, f"{only} is set here")],
            ends=When.LOADED,
        )

    def _sharded(self, run: Run) -> Finding:
        only = run.key(f.save.save_only_model)
        return self.error(
            run,
            f"{only} cannot go with FSDP's SHARDED_STATE_DICT",
            at=f.save.save_only_model,
            details=(_STOPS_LATE,),
            proposals=[
                Proposal.set(
                    "save the optimizer with the model",
                    {f.save.save_only_model: False},
                    Applicability.UNSAFE,
                ),
            ],
            notes=[self.note(run, f.parallel.fsdp.state_dict, "the state dict is sharded")],
            ends=When.LOADED,
        )

    def _strategies(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        saves, evaluates = plan.save.strategy, plan.eval.strategy
        if saves in ("best", None) or evaluates is None or run.unreadable.keys() & _STRATEGY_FIELDS:
            return
        best = run.key(f.save.load_best_at_end)
        if evaluates != saves:
            yield self.error(
                run,
                f"{best} needs an evaluation at every save",
                at=(f.eval.strategy, f.save.load_best_at_end),
                details=(
                    f"the run saves by {saves} and evaluates by {evaluates}"
                    if evaluates != "no"
                    else "the run does not evaluate",
                    _STOPS,
                ),
                proposals=[
                    Proposal.set(
                        "evaluate whenever it saves",
                        {f.eval.strategy: saves},
                        Applicability.UNSAFE,
                    )
                ]
                if evaluates != "no"
                else [],
                ends=When.LOADED,
            )
        elif saves == "steps" and _misses(plan.save.every, plan.eval.every):
            yield self.error(
                run,
                f"{best} needs an evaluation at every save",
                at=(f.save.every, f.eval.every),
                details=(
                    (
                        f"the run saves every {plan.save.every:g} and evaluates every "
                        f"{plan.eval.every:g} steps"
                    ),
                    _STOPS,
                ),
                ends=When.LOADED,
            )


_STRATEGY_FIELDS = frozenset({f.save.strategy, f.eval.strategy, f.save.every, f.eval.every})


def _sharded_state_dict(run: Run) -> bool:
    parallel = run.plan.parallel
    pinned = release_of(run.plan.versions.get("transformers"))
    if pinned is not None and pinned < _ONLY_MODEL_SHARDED:
        return False
    return parallel.backend in ("fsdp1", "fsdp2") and parallel.fsdp.state_dict == "sharded"


def _misses(saves: float | None, evaluates: float | None) -> bool:
    """Whether some save falls between two evaluations; shares of the run are left alone."""
    if saves is None or evaluates is None or min(saves, evaluates) < 1:
        return False
    return saves % evaluates != 0
