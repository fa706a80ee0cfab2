"""The program stops with an error before it trains a step.

## What it finds

Code and options of which it is certain that they end a run, whatever memory there is:

* an option of `argparse` that a script declares twice, or without a name, so that the parser stops as it is made;
* a class or a function of the project that is called without an argument that it requires, with one that it does not take or
  with more than it has places for, ahead of the training, and a name that a script reads ahead of all that give it a value;
* a `Trainer` whose samples get labels neither from the script nor from a collator;
* a collator of transformers that masks words (`DataCollatorForLanguageModeling` without `mlm=False`), where the tokenizer
  of the model has no mask token;
* a script whose parser knows `--local_rank` alone, started by `python -m torch.distributed.launch` of torch 2, which
  hands over `--local-rank`;
* an argument that TRL's class of arguments has in other releases than the one that runs, which a script asks for, and one
  with which a script makes transformers' or TRL's though no release that the project allows has it (`eval_strategy` before
  transformers 4.41, `GRPOConfig(max_new_tokens=...)`), or none that knows the model (`evaluation_strategy` beside Qwen3);
* an argument that a script makes a trainer of transformers or TRL with and no release takes that the project allows
  (`SFTTrainer(tokenizer=...)` from TRL 0.16 on, `max_seq_length`, `dataset_text_field` and `packing` from 0.13, `Trainer(tokenizer=...)`
  from transformers 5);
* an option of a command that the script's parser does not know, whose value it refuses (`--warmup_steps 0.1` before
  transformers 5), that gets no value and wants one (`--version $PROMPT_VERSION`, where nothing of the project sets the variable or
  tells of it, and it is none of those that people have in their environment), or that the parser or a function that Python Fire
  makes a command of requires and is not given; options of transformers' and TRL's classes by the releases that the project allows;
* a name that a script imports from transformers, TRL, PEFT, accelerate or a module of torch, and that no release has which
  the project allows (`from torch.distributed.fsdp import fully_shard` before torch 2.6);
* a model that transformers' auto classes know from a later release on than the project allows (Qwen3 before 4.51), where the
  script trusts no code of the checkpoint's, or not by the class that is asked (`AutoModelForCausalLM` for Qwen2-VL); and Llama 3.1 to
  3.3 under transformers 4.31 to 4.42, which refuse their `rope_scaling`;
* an argument of `from_pretrained` that no release takes which the project allows (`attn_implementation` before transformers 4.36,
  `use_flash_attention_2` from 4.53 on, `load_in_4bit` from 5.0 on);
* a library that imports of another what no release of that has which the project allows (`peft>=0.14` beside
  `transformers==4.37.2`);
* an import that fails from where the command starts the script: relative to a package that the script does not belong to,
  of a name that the project's module does not give, of a module that a package or a folder of the project's lacks or that lies
  where Python does not look, be it the script's own import or one of a module that it imports;
* DeepSpeed that a command asks for, where a lock or `pip freeze` lists the project's whole environment without it, and
  nothing else of the project brings it;
* a key of a mapping, an attribute of a plain class or a name of a module that the project writes out as its config, which the
  script asks for and nothing gives, and what it asks its parsed arguments for and no option of its parser gives;
* vLLM in the process of TRL's trainer (0.18 and 0.19) that plain Python starts, where nobody sets the ranks that it reads;
* an error that the script raises itself ahead of the training, and a name of a notebook that no cell gives a value;
* a data set that LLaMA-Factory is to train on and the `dataset_info.json` in the project does not list, where nothing of
  the project adds to that;
* a key that earlier releases of ms-swift or LLaMA-Factory had (`train_type` before ms-swift 4.1) where the project pins one
  that refuses it;
* words of a command that Hydra refuses, since the config that it composes for a program of the project has no such key, micro
  batches of verl that are said both for all ranks and for one, or that its trainer asks for and nothing sets, and a reward
  manager that releases of verl have, and none that may run;
* FSDP in the one process that Axolotl starts for one GPU, which no launcher gives a rank;
* float8 layers of torchtitan that tensor parallelism shares among cards older than Ada, which have no float8.

Where no file pins a library and only its newest releases refuse an option or an argument or lack a name, an installation of today ends
there and an earlier one does not: it is a remark then, and the other findings stand. A former name of an argument that
[renamed-key](renamed-key.md) tells of as an error is not told a second time.

## Why it matters

What the run would need says nothing before this is mended: what other rules find about its memory is a remark
beside it.

## How to fix it

Mend what the message names, or pin the release that the code was written for; then check again, since memory counts from there on.
The fix renames a key that the pinned release has under another name, with the same values.

## When not to

Where the script is kept for its parts and nobody starts it, silence the line:
`# oomlint: ignore[ends-before-training]`.

In a notebook whose own outputs show steps of training below that place it is a remark: it did not end there when it was last run.
Where a file beside it pins a library, nobody knows with which release that was, and the outputs do not count.

## Sources

* CPython 3.13 `argparse.py` `_handle_conflict_error` (*conflicting option string: -g*), `parse_args` (*unrecognized
  arguments*, *invalid int value*, *expected one argument*, *the following arguments are required*); `ceval.c` (*got an unexpected
  keyword argument*); bash(1), "Word Splitting" (an unset variable without quotes is no word)
* fire 0.7 `core.py` `_MakeParseFn` (*The function received no value for the required argument*)
* transformers 5.23 `hf_argparser.py` `parse_args_into_dataclasses` (*Some specified arguments are not used*)
* names, fields and parameters of trainers of transformers 4.28 to 5.24 and TRL 0.4 to 1.16, names of PEFT 0.3 to 0.21, accelerate 0.17 to 1.15 and torch 1.13
  to 2.15, read from their wheels
* `CONFIG_MAPPING_NAMES` of transformers 4.33 to 4.57 `models/auto/configuration_auto.py`; `MODEL_FOR_CAUSAL_LM_MAPPING_NAMES` of 4.45 to
  5.24 `models/auto/modeling_auto.py` (*Unrecognized configuration class*)
* what PEFT 0.3.0 to 0.21.2 imports of transformers 4.28 to 5.24 and accelerate 0.17 to 1.15 as it is imported, read from their wheels
* transformers 4.28.0 to 5.24.0 `modeling_utils.py` `from_pretrained`, read from their wheels
* transformers 4.31.0 to 4.42.4 `models/llama/configuration_llama.py` `_rope_scaling_validation`
* CPython 3.13 `sys.path[0]`; `importlib/_bootstrap.py` (*attempted relative import with no known parent package*)
* accelerate 1.11 `utils/dataclasses.py` `DeepSpeedPlugin`; transformers 4.57 `integrations/deepspeed.py` `HfDeepSpeedConfig`
* transformers 5.23 `data/data_collator.py` `default_data_collator`, `trainer.py` `compute_loss`
* torch 1.13.1 and 2.0.0 `distributed/launch.py`
* TRL 0.24.0 and 0.25.0 `trainer/rloo_config.py` (`dataset_num_proc`), and so on for its other classes and releases
* llamafactory 0.7.1 to 0.9.5 `data/parser.py` `get_dataset_list` (*Undefined dataset*)
* fields of the classes of arguments at the tags of ms-swift (1.3.0 to 4.5.2; `pipelines/base.py` refuses the rest) and of
  LLaMA-Factory
* TRL 0.18.0 to 0.20.0 `trainer/grpo_trainer.py`; vLLM `executor/uniproc_executor.py` (`ExecutorWithExternalLauncher`)
* hydra 1.3 `_internal/config_loader_impl.py` `_apply_overrides_to_config`, `_internal/defaults_list.py`
* verl 0.2 to 0.5 `trainer/ppo/ray_trainer.py` `_validate_config`; 0.6 to 0.9.1 `utils/config.py` `validate_config`,
  `workers/config/actor.py` and `critic.py`; 0.2 to 0.9.1 `workers/reward_manager`, `experimental/reward_loop/reward_manager`
* transformers 4.36 to 5.23 `trainer.py` (*Using fsdp only works in distributed training*)
* torchtitan 90c889e97 `torchtitan/float8.py`, v0.1.0 `components/quantization/float8.py`; torchao 0.5.0
  `float8/float8_tensor_parallel.py` (*Expecting module to be Float8Linear*)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.common.fields import shared
from oomlint.dialects.reading import StrayKey
from oomlint.documents.base import Fact
from oomlint.documents.text import Edit, Location
from oomlint.judgement.contradicted import fact_of_end, outlived, place_of_end
from oomlint.judgement.endings import declared, named
from oomlint.linting.rule import (
    MOST_OF_A_TITLE,
    Applicability,
    Finding,
    Proposal,
    ReadyEdits,
    RenameKey,
    Rule,
    Severity,
    When,
    Where,
)
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

_SWIFT = "swift sft --model Qwen/Qwen2.5-0.5B --dataset a.jsonl --{key} lora\n"
_MADE = _SCRIPT.format(short="-n")


class EndsBeforeTraining(Rule, code="OOM905", fixes=Applicability.SAFE):
    summary = "the program stops with an error before it trains a step"
    only_where = (Where(said=(shared.refused, shared.refused_lately)),)

    bad = (
        example({"train.py": _SCRIPT.format(short="-g")}),
        example(
            {"train.py": _SCRIPT.format(short="-n"), "run.sh": "python train.py --warmup 0.1\n"},
            why="the parser does not know the option",
        ),
        example(
            {
                "train.py": f"from trl import GRPOTrainer\n{_MADE}",
                "requirements.txt": "trl==0.12.0\n",
            },
            why="TRL has the class from 0.14 on",
        ),
        example(
            {"train.sh": _SWIFT.format(key="train_type"), "requirements.txt": "ms-swift==4.2.0\n"},
            {"train.sh": _SWIFT.format(key="tuner_type")},
            why="ms-swift has it under another name since 4.1",
        ),
    )
    good = (
        example({"train.py": _SCRIPT.format(short="-n")}),
        example(
            {"train.py": _SCRIPT.format(short="-n"), "run.sh": "python train.py --norm 0.1\n"},
        ),
        example(
            {
                "train.py": f"from trl import GRPOTrainer\n{_MADE}",
                "requirements.txt": "trl==0.14.0\n",
            },
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        refused = run.settings.get(shared.refused)
        if refused is None:
            yield self._with_the_newest(run)
            return
        why = str(refused.value)
        said = named(why)
        is_long = len(said) > MOST_OF_A_TITLE
        place, shown = run.settings.get(shared.refused_at), outlived(run)
        ending = declared(run).get(shared.refused)
        yield self.finding(
            run,
            Severity.INFO if shown else Severity.ERROR,
            _cut(said),
            at=place_of_end(run) or shared.refused,
            details=(
                *((why,) if is_long else ()),
                f"{shown}: with the releases of that day it did not end here"
                if shown
                else "the program ends before its first step, whatever memory there is",
            ),
            rests_on=(shared.refused,),
            proposals=_renamed(run, None if place is None else place.value, fact_of_end(run)),
            ends=None if ending is None else ending.when or When.SETTINGS,
        )

    def _with_the_newest(self, run: Run) -> Finding:
        """It ends with releases that an installation of today takes, and the project allows others that it runs with."""
        why = str(run.settings[shared.refused_lately].value)
        place = run.settings.get(shared.refused_lately_at)
        return self.info(
            run,
            _cut(named(why)),
            at=shared.refused_lately if place is None else place.value,
            details=(
                "no file pins the library: with its newest release the program ends before its first step",
                "pin an earlier one, which the program was written for, or mend what is named here",
            ),
            rests_on=(shared.refused_lately,),
        )


def _cut(said: str) -> str:
    return f"{said[: MOST_OF_A_TITLE - 1]}…" if len(said) > MOST_OF_A_TITLE else said


def _renamed(run: Run, at: Location | None, fact: Fact | None) -> Iterable[Proposal]:
    """The key there, or what code asks its arguments for, under the name that it has in the release that runs."""
    now = run.settings.get(shared.refused_name)
    if now is None:
        return
    if fact is not None and fact.kind == "asks-argument":
        edits = _asked_by_its_new_name(run, fact, now.value)
        if edits:
            title = f"ask for {now.value} in place of {fact.detail['argument']}"
            yield Proposal(title, (ReadyEdits(edits),))
        return
    for block, _ in run.parts.blocks:
        for entry in block.mapping.entries.values():
            if Location(block.path, entry.key_span) == at:
                key = StrayKey(block, block.mapping, entry, entry.key)
                yield Proposal(f"rename {entry.key} to {now.value}", (RenameKey(key, now.value),))
                return


def _asked_by_its_new_name(run: Run, fact: Fact, now: str) -> tuple[Edit, ...]:
    """Edits wherever the script asks for the argument; none where it also does so in a way that was not followed."""
    from oomlint.documents.python.asked_arguments import renamed  # asked of scripts alone

    path = fact.location.path
    sources = (block.document.source for block, _ in run.parts.blocks if block.path == path)
    source = next(sources, None)
    asked = [each.location.span for each in run.facts if _asks_the_same(each, fact)]
    return () if source is None else renamed(source, asked, str(fact.detail["argument"]), now)


def _asks_the_same(fact: Fact, other: Fact) -> bool:
    return fact.kind == other.kind == "asks-argument" and (
        fact.location.path == other.location.path
        and fact.detail["argument"] == other.detail["argument"]
    )
