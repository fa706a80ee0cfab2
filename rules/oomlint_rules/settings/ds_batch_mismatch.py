"""The DeepSpeed config and the trainer do not agree on the batch.

## What it finds

A DeepSpeed JSON whose `train_micro_batch_size_per_gpu` or `gradient_accumulation_steps` is
a number other than the one that the trainer passes, and a `train_batch_size` that is not
micro batch × accumulation × data-parallel ranks. Where the number of GPUs is not known, a
`train_batch_size` is found if no number of them could make it right.

## Why it runs out of memory

It does not get that far: transformers collects the differences while it builds its
arguments and raises *Please correct the following DeepSpeed config values that mismatch
TrainingArguments values*, after the model was loaded; DeepSpeed on its own asserts
*train_batch_size is not equal to micro_batch_per_gpu \\* gradient_acc_step \\* world_size*.
And in scripts that compare nothing the JSON rules: a forgotten micro batch of 39 in it,
and not the 4 of the command line, decides the activations.

## How to fix it

Under a trainer write `"auto"` in the JSON, so that one file says it; the fix does. For
DeepSpeed alone numbers are needed: the fix (unsafe) accumulates over as many micro batches as make the
`train_batch_size` that the file states. Where no number of them does, another batch is shown.

## When not to

Scripts that build on Accelerate without a trainer need numbers and are not compared. Where a parser of the script's
own takes `--deepspeed` and nothing is seen to hand it on, whether anybody reads the file is not known: the rule only remarks
on it.

## Sources

* transformers 5.23 `integrations/deepspeed.py:108` (`fill_match`) and `:258` (the error)
* DeepSpeed edaa7221 `runtime/config.py:927` (`_batch_assertion`) and `:942`
* https://github.com/deepspeedai/DeepSpeed/issues/2992 (156 and 39)
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from oomlint.dialects.deepspeed.keys import ds
from oomlint.judgement import says_ranks
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, When, Where
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import LLAMA_FACTORY, axolotl, example, text
from oomlint_rules.settings._trainer import trainer_compares

_AXOLOTL = axolotl(
    "meta-llama/Llama-3.1-8B",
    "micro_batch_size: 2\ngradient_accumulation_steps: 4\ngradient_checkpointing: true\n",
    "deepspeed: ds.json\n",
)


_OWN = text(
    """
    import deepspeed
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds.json")
    for batch in loader:
        loss = engine(**batch).loss
        engine.backward(loss)
        engine.step()
    """
)
_LLAMA_FACTORY = LLAMA_FACTORY.replace("bf16: true\n", "deepspeed: ds.json\n")


def _json(micro: str, accumulation: str, total: str) -> str:
    return (
        "{\n"
        f'  "train_micro_batch_size_per_gpu": {micro},\n'
        f'  "gradient_accumulation_steps": {accumulation},\n'
        f'  "train_batch_size": {total},\n'
        '  "zero_optimization": {"stage": 2},\n'
        '  "bf16": {"enabled": true}\n'
        "}\n"
    )


# The dialect's own fields for what the JSON says, beside what the trainer passes.
_COMPARED = ((ds.micro, f.batch.micro), (ds.grad_accum, f.batch.grad_accum))


class DsBatchMismatch(Rule, code="OOM802", may_end=True, fixes=Applicability.SAFE):
    summary = "the DeepSpeed config and the trainer do not agree on the batch"
    only_where = (Where(plan={f.parallel.backend: ("zero",)}),)

    bad = (
        example(
            {"train.yaml": _AXOLOTL, "ds.json": _json("4", "4", '"auto"')},
            {"ds.json": _json('"auto"', "4", '"auto"')},
        ),
        example(
            {"train.yaml": _AXOLOTL, "ds.json": _json('"auto"', '"auto"', "32")},
            {"ds.json": _json('"auto"', '"auto"', '"auto"')},
            on="8xA100-80GB",
            why="2 × 4 × 8 is 64",
        ),
        example(
            {
                "train.py": _OWN,
                "ds.json": _json("1", "8", "8"),
                "run.sh": "deepspeed --num_gpus 4 train.py\n",
            },
        ),
        example({"ds.json": _json("4", "4", "156")}, why="no number of GPUs makes 16 into 156"),
        example(
            {"train.yaml": f"{_LLAMA_FACTORY}bf16: true\n", "ds.json": _json("1", "1", '"auto"')},
            {"ds.json": _json("1", '"auto"', '"auto"')},
        ),
    )
    good = (
        example(
            {
                "train.yaml": f"{_LLAMA_FACTORY}bf16: true\n",
                "ds.json": _json('"auto"', '"auto"', '"auto"'),
            }
        ),
        example({"train.yaml": _AXOLOTL, "ds.json": _json("2", "4", '"auto"')}),
        example(
            {"train.yaml": _AXOLOTL, "ds.json": _json('"auto"', '"auto"', "64")}, on="8xA100-80GB"
        ),
        example(
            {"ds.json": _json("4", "4", "160")},
            why="ten GPUs would make it right, and their number is not known",
        ),
        example(
            {"train.py": _OWN, "ds.json": _json("1", "8", "8")},
            on="4xA100-80GB",
            why="it is written for one process, and no file starts more",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        if trainer_compares(run):
            yield from self._against_trainer(run)
        yield from self._product(run)

    def _against_trainer(self, run: Run) -> Iterable[Finding]:
        for own, passed in _COMPARED:
            said, given = run.settings.get(own), run.settings.get(passed)
            if said is None or given is None or said.value == given.value:
                continue
            # What a command says reaches the trainer by way of a script, whose own place is not that of the value.
            is_default = not run.is_explicit(passed) and run.level(passed) >= Level.DEFAULT
            whose = "passes its default," if is_default else "passes"
            yield self.finding(
                run,
                _severity(run),
                f"{run.key(own)} is {said.value}, but the trainer {whose} {given.value}",
                at=own,
                details=(
                    f"the trainer's own key is {run.key(passed)}",
                    "transformers stops with an error where the two differ",
                    *_unless_unread(run),
                ),
                proposals=[Proposal.set(f"leave {run.key(own)} to the trainer", {own: None})],
                notes=[self.note(run, passed, f"the trainer's value, {given.value}")]
                if run.is_explicit(passed)
                else (),
                ends=When.LOADED,
            )

    def _product(self, run: Run) -> Iterable[Finding]:
        total = run.settings.get(ds.train_batch)
        if total is None:
            return
        compares = trainer_compares(run)
        fields = [(f.batch.micro, f.batch.grad_accum), (ds.micro, ds.grad_accum)][not compares]
        micro, accumulation = (
            None if (setting := run.settings.get(name)) is None else int(setting.value)
            for name in fields
        )
        # How many start it nobody says where no launch line does, whatever machine is meant: a trainer makes the product
        # itself and is to be left it, a program of the project's own is written for as many as its author starts.
        is_open = run.is_fragment or not (compares or says_ranks(run))
        ranks = None if is_open else run.plan.parallel.dp
        factors = [n for n in (micro, accumulation, ranks) if n is not None]
        product = prod(factors)
        if total.value == product or (len(factors) < 3 and total.value % product == 0):
            return
        spelled = " × ".join(
            f"{n} {name}"
            for n, name in (
                (micro, "a GPU"),
                (accumulation, "accumulation steps"),
                (ranks, "data-parallel ranks"),
            )
            if n is not None
        )
        is_whole = len(factors) == 3
        fault = f"but a step takes {product}" if is_whole else f"no multiple of {product}"
        yield self.finding(
            run,
            _severity(run),
            f"{run.key('ds.train_batch')} is {total.value}, {fault}",
            at=ds.train_batch,
            rests_on=() if ranks is None else (f.parallel.dp,),
            # On a machine with other cards it may be right: what is needed there is worth to be known.
            ends=When.LOADED if ranks is None else None,
            details=(
                f"{spelled} = {product}",
                f"{'transformers' if compares else 'DeepSpeed'} stops with an error",
                *_unless_unread(run),
            ),
            proposals=self._cures(
                run, product if len(factors) == 3 else None, compares, total.value
            ),
        )

    def _cures(
        self, run: Run, product: int | None, compares: bool, total: int
    ) -> Iterable[Proposal]:
        key = run.key(ds.train_batch)
        if compares:
            yield Proposal.set(f"leave {key} to the trainer", {ds.train_batch: None})
            return
        steps = run.settings.get(ds.grad_accum)
        if product is None or steps is None:
            return
        # What the file states of a whole step stays, where steps of another number make it.
        more, rest = divmod(total * steps.value, product)
        if more and not rest:
            yield Proposal.set(
                f"accumulate over {more} micro batch{'es' * (more > 1)}, which keeps {key}",
                {ds.grad_accum: more},
                Applicability.UNSAFE,
            )
        else:
            yield Proposal.set(
                f"set {key} to {product}", {ds.train_batch: product}, Applicability.DISPLAY
            )


def _severity(run: Run) -> Severity:
    return Severity.INFO if next(iter(_unless_unread(run)), "") else Severity.ERROR


def _unless_unread(run: Run) -> Iterable[str]:
    """Why it is not known that anybody reads the file as it stands."""
    if "own-deepspeed-option" in run.fact_kinds:
        yield "whether the script hands its own --deepspeed on was not followed"
    elif run.parts.unread_program:
        yield run.parts.unread_program
