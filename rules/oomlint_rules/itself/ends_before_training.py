"""The program stops with an error before it trains a step.

## What it finds

Code and options of which it is certain that they end a run, whatever memory there is:

* an option of `argparse` that a script declares twice, so that the parser stops as it is made;
* a class or a function of the project that is called without an argument that it requires, ahead of the training;
* a `Trainer` whose samples get labels neither from the script nor from a collator;
* a script whose parser knows `--local_rank` alone, started by `python -m torch.distributed.launch` of torch 2, which
  hands over `--local-rank`;
* an argument that TRL's class of arguments has in other releases than the one that runs, which a script asks for;
* words of a verl command that Hydra refuses, and micro batches of verl that are said both for all ranks and for one;
* float8 layers of torchtitan that tensor parallelism shares among cards older than Ada, which have no float8.

## Why it matters

What the run would need says nothing before this is mended: what other rules find about its memory is a remark
beside it.

## How to fix it

Mend what the message names; then check again, since memory counts from there on.

## When not to

Where the script is kept for its parts and nobody starts it, silence the line:
`# oomlint: ignore[ends-before-training]`.

## Sources

* CPython 3.13 `argparse.py` `_handle_conflict_error` (*conflicting option string: -g*)
* transformers 5.23 `data/data_collator.py` `default_data_collator`, `trainer.py` `compute_loss`
* torch 1.13.1 and 2.0.0 `distributed/launch.py`
* TRL 0.24.0 and 0.25.0 `trainer/rloo_config.py` (`dataset_num_proc`), and so on for its other classes and releases
* hydra 1.3 `_internal/config_loader_impl.py` `_apply_overrides_to_config`
* verl 0.2 to 0.5 `trainer/ppo/ray_trainer.py` `_validate_config`
* torchtitan 90c889e97 `torchtitan/float8.py`, v0.1.0 `components/quantization/float8.py`; torchao 0.5.0
  `float8/float8_tensor_parallel.py` (*Expecting module to be Float8Linear*)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.common.fields import shared
from oomlint.documents.base import Fact
from oomlint.linting.rule import Finding, Rule, Where
from oomlint.runs.run import Run
from oomlint_rules._examples import example, text

_SCRIPT = text(
    """
    import argparse
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulate", "-g", type=int, default=1)
    parser.add_argument("--norm", "{short}", type=float, default=1.0)
    args = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B")
    options = TrainingArguments(output_dir="out", gradient_accumulation_steps=args.accumulate)
    Trainer(model=model, args=options, train_dataset=rows, data_collator=pad).train()
    """
)


class EndsBeforeTraining(Rule, code="OOM905"):
    summary = "the program stops with an error before it trains a step"
    only_where = (Where(said=(shared.refused,)),)

    bad = (example({"train.py": _SCRIPT.format(short="-g")}),)
    good = (example({"train.py": _SCRIPT.format(short="-n")}),)

    def check(self, run: Run) -> Iterable[Finding]:
        refused = run.settings[shared.refused]
        why = str(refused.value)
        place = run.settings.get(shared.refused_at)
        fact = next((each for each in run.facts if _tells(each, why)), None)
        known = fact.location if place is None and fact is not None else None
        yield self.error(
            run,
            why,
            at=(known if place is None else place.value) or shared.refused,
            details=("the program ends before its first step, whatever memory there is",),
            rests_on=(shared.refused,),
        )


def _tells(fact: Fact, why: str) -> bool:
    """Whether a fact is what a reason speaks of."""
    asked = (fact.detail.get("argument"), *fact.detail.get("names", ()))
    is_asked = any(why.endswith(f" has no {each}") for each in asked if each)
    return fact.detail.get("why") == why or is_asked
