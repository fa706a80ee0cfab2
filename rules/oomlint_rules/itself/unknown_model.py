"""A model whose dimensions are not known, so that its memory cannot be predicted.

## What it finds

A run that names a model which is neither in oomlint's catalogue nor described by a
`config.json` in a local folder or in the Hugging Face cache of this machine, and one that
is known only by the size in its name ("7B").

## Why it runs out of memory

Whether it does cannot be said: every number about memory starts from the dimensions of the
model. Without them oomlint still checks keys, files, launch lines and combinations, and says
nothing about fitting. A size taken from a name gives the model states to about 15 %, but no activations, since
those follow from width, depth and vocabulary.

## How to fix it

Any one of these:

* put the model's `config.json` where `model_name_or_path` or `base_model` points, or
  download it once (`huggingface-cli download NAME config.json`);
* name a model of the same architecture: `--set model.id=meta-llama/Llama-3.1-8B` where a
  fine-tune of it is trained;
* write the run down as a plan with its dimensions and ask `oomlint estimate --plan`.

## When not to

It is a remark about oomlint, not about the run. Leave it out with
`--ignore unknown-model`.

## Sources

* `oomlint models` lists the catalogue, with the origin of each entry.
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement.unpredicted import is_to_be_named, what_tells_of
from oomlint.linting.rule import Finding, Rule, short
from oomlint.models import ModelFacts
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import count
from oomlint_rules._examples import example

_REST = "datasets:\n  - path: tatsu-lab/alpaca\nmicro_batch_size: 1\n"


class UnknownModel(Rule, code="OOM903"):
    summary = "the model's dimensions are not known, so memory is not predicted"

    bad = (
        example({"train.yaml": f"base_model: acme/house-model\n{_REST}"}),
        example(
            {"train.yaml": f"base_model: /path/to/your/model\n{_REST}"},
            why="the name is only a word for one",
        ),
        example(
            {"train.yaml": f"base_model: acme/house-model-13b\n{_REST}"},
            why="only the size is known, from the name",
        ),
        example(
            {
                "train.sh": (
                    "torchrun --nproc_per_node 2 recipes/finetuning/finetuning.py --enable_fsdp \\\n"
                    "    --low_cpu_fsdp --use_peft --model_name acme/house-model\n"
                )
            }
        ),
    )
    good = (
        example({"train.yaml": f"base_model: meta-llama/Llama-3.1-8B\n{_REST}"}),
        example(
            {
                "train.yaml": f"base_model: ./house-model\n{_REST}",
                "house-model/config.json": (
                    '{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,\n'
                    ' "num_hidden_layers": 16, "num_attention_heads": 32,\n'
                    ' "num_key_value_heads": 8, "vocab_size": 128256}\n'
                ),
            },
            why="its config.json lies beside the training config",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        name = run.plan.model.id
        if name is None:
            return
        if run.model is None and run.plan.model.dims is None:
            title = f"the dimensions of {short(name, 46)} are not known"
            sought: tuple[str, ...] = (
                f"{name} is not in the catalogue, and no config.json was found for it",
            )
            if is_to_be_named(name):
                title, sought = f"{short(name, 40)} stands for a model that is to be named", ()
            yield self.info(
                run,
                title,
                at=f.model.id,
                details=(
                    *sought,
                    "GPU and host memory are not predicted, and no rule that needs them speaks",
                    what_tells_of(name),
                ),
            )
        elif run.model is not None and _is_guessed(run, run.model):
            size = run.model.dims.params_total
            known = f"about {count(size)} parameters" if size else "a rough size"
            yield self.info(
                run,
                f"of {short(name, 36)} only {known} are known",
                at=f.model.id,
                details=(
                    f"they are read from its name, {name}",
                    "model states are good to 15 %, activations are not predicted",
                    "what does not fit is told in a remark",
                    "its config.json would make the prediction exact",
                ),
            )


def _is_guessed(run: Run, model: ModelFacts) -> bool:
    """Whether nothing is known of the model but what its name tells: options may describe it."""
    dims = run.plan.model.dims
    return model.confidence == "guessed" and (dims is None or dims.layers == model.dims.layers)
