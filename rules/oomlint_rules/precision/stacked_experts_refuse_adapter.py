"""An adapter that PEFT refuses on experts that are stacked in one parameter.

## What it finds

LoRA on a model whose experts transformers 5 stacks in one parameter a layer, where PEFT 0.19 and later stops as it wraps the model:

* adapters on the stacks (by `target_parameters`, or by `gate_proj`, `up_proj` and `down_proj`, which PEFT takes for them) with
  `lora_dropout` above 0, or with DoRA;
* `up_proj` without `gate_proj` or the other way round, which are one parameter there (`w1` and `w3` of Mixtral);
* `all-linear`, which PEFT 0.19 takes apart into its letters there, and no `target_modules` at all.

## Why it runs out of memory

It does not get that far: PEFT raises once the model is loaded, which for such a model is the dear part.

## How to fix it

Set the dropout to 0, name both halves of a pair, or name the attention layers alone. Each is another training, so that the fix
is unsafe. PEFT 0.18 and transformers 4 train single experts as before.

## When not to

Where nothing pins PEFT or transformers the finding is a remark: with earlier releases the run does not end there.

## Sources

* peft 0.17.1 to 0.21.2 `tuners/lora/layer.py` `ParamWrapper.__init__` (*lora.ParamWrapper does not work with lora_dropout != 0.*)
* peft 0.19.1 to 0.21.2 `utils/transformers_weight_conversion.py` `_convert_peft_config_moe` (*Cannot convert PEFT target(s) up_proj
  without also targeting gate_proj*), 0.20.0 `_resolve_string_target_modules`
* asked: peft 0.19.1 and 0.21.2 with transformers 5.23.0 on the meta device (`tests/oracles/test_stacked_experts.py`)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, When, Where
from oomlint.memory.facts import facts_of
from oomlint.memory.stacked_adapters import StackedAdapters
from oomlint.models.architectures import stacks_experts_early, translated_expert_layers
from oomlint.plan.fields import f
from oomlint.plan.library_changes import STACKED_EXPERTS, TRANSLATED_EXPERTS, LibraryChange
from oomlint.runs.run import Run
from oomlint_rules._examples import LLAMA_FACTORY, example

_TARGETS, _DROPOUT = f.trainable.targets, f.trainable.dropout
_RESOLVED_WORDS = LibraryChange(
    "peft",
    (0, 20),
    "all-linear is taken apart into its letters",
    "peft 0.19.1 and 0.20.0 utils/transformers_weight_conversion.py _convert_peft_config_moe",
)
_PINS = {"requirements.txt": "peft==0.19.1\ntransformers==5.3.0\n"}
_LF = (
    LLAMA_FACTORY.replace("type: full", "type: lora").replace(
        "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B"
    )
    + "lora_target: {targets}\nlora_dropout: {dropout}\n"
)
_ALL = "q_proj,gate_proj,up_proj,down_proj"


class Refusal(Struct, frozen=True):
    """What PEFT refuses, what comes of it, where it stands, and the changes after which it is taken."""

    title: str
    detail: str
    at: tuple[Any, ...]
    changes: Mapping[Any, Any]
    fix: str = ""
    translated: bool = True
    """Whether it is refused only since PEFT takes names of single experts' layers for the stacks."""


class StackedExpertsRefuseAdapter(
    Rule, code="OOM218", may_end=True, fixes=Applicability.UNSAFE, cost=2
):
    summary = "an adapter that PEFT refuses on stacked experts"
    only_where = (
        Where(
            plan={f.trainable.method: ("lora", "qlora", "dora")},
            frameworks=("hf-trainer", "trl", "axolotl", "llama-factory"),
        ),
    )

    bad = (
        example(
            {"train.yaml": _LF.format(targets=_ALL, dropout=0.05), **_PINS},
            {"train.yaml": _LF.format(targets=_ALL, dropout="0.0")},
        ),
        example(
            {"train.yaml": _LF.format(targets="q_proj,up_proj", dropout=0), **_PINS},
            {"train.yaml": _LF.format(targets='"q_proj,up_proj,gate_proj"', dropout=0)},
        ),
    )
    good = (
        example({"train.yaml": _LF.format(targets=_ALL, dropout=0), **_PINS}),
        example({"train.yaml": _LF.format(targets="q_proj,v_proj", dropout=0.05), **_PINS}),
        example(
            {
                "train.yaml": _LF.format(targets=_ALL, dropout=0.05),
                "requirements.txt": "peft==0.18.1\ntransformers==4.57.1\n",
            },
            why="each expert has linear layers of its own",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        found = _refusal(run)
        if found is None:
            return
        is_sure = _is_sure(run, found)
        releases = " and ".join(
            f"{each.package} {each.release}" for each in (STACKED_EXPERTS, TRANSLATED_EXPERTS)
        )
        yield self.finding(
            run,
            Severity.ERROR if is_sure else Severity.INFO,
            found.title,
            at=(*found.at, f.trainable.method),
            details=(
                found.detail,
                "PEFT stops with an error once the model is loaded"
                if is_sure
                else f"no file pins what runs: from {releases} on PEFT stops with an error there",
            ),
            rests_on=(*found.at, f.model.id),
            proposals=[Proposal.set(found.fix, found.changes, Applicability.UNSAFE)]
            if found.changes
            else (),
            ends=When.LOADED,
        )


def _refusal(run: Run) -> Refusal | None:
    plan = run.placed.plan
    facts = facts_of(plan)
    if facts.model is None or not facts.model.expert_numel or facts.experts_apart:
        return None
    names = translated_expert_layers(facts.model.arch)
    if names is not None and not facts.older(TRANSLATED_EXPERTS.package, TRANSLATED_EXPERTS.since):
        found = _of_words(run) or _of_half(run, facts.stacked(), names)
        if found is not None:
            return found
    return _of_stacks(run, facts.stacked())


def _of_words(run: Run) -> Refusal | None:
    """``all-linear`` where it is no list of names, and nothing in its place."""
    t = run.placed.plan.trainable
    is_split = run.cells.surely_made(_RESOLVED_WORDS) is False
    if t.targets == "all_linear" and not t.by_name and is_split:
        return Refusal(
            "PEFT 0.19 finds no layers by all-linear in this model",
            "it takes the word apart into its letters; 0.20 does not",
            (_TARGETS,),
            {},
        )
    if t.targets == "peft_default" and not t.target_params:
        return Refusal(
            "PEFT has to be told which layers of this model carry adapters",
            "where target_modules are not given it has none left once it has looked for experts",
            (_TARGETS,),
            {},
        )
    return None


def _of_half(run: Run, on: StackedAdapters, names: tuple[str, str, str]) -> Refusal | None:
    """Gate without up, or up without gate."""
    targets, pair = run.placed.plan.trainable.targets, set(names[:2])
    half = pair & on.taken
    if len(half) != 1 or not isinstance(targets, tuple):
        return None
    (one,), (other,) = half, pair - half
    return Refusal(
        f"PEFT takes {one} of this model only together with {other}",
        "both are one parameter of all experts",
        (_TARGETS,),
        {_TARGETS: (*targets, other)},
        f"adapt {other} as well",
    )


def _of_stacks(run: Run, on: StackedAdapters) -> Refusal | None:
    plan = run.placed.plan
    t, place = plan.trainable, _TARGETS if on.taken else f.trainable.target_params
    if not on or plan.quant.method == "mxfp4":
        return None  # packed stacks are parameters of other names
    what = (
        f"PEFT takes {', '.join(sorted(on.taken))} for the stacks of experts"
        if on.taken
        else "the stacks of experts are single parameters"
    )
    if t.dropout:
        return Refusal(
            f"adapters on stacked experts take no dropout, and it is {t.dropout:g}",
            f"{what}, whose products leave no place for it",
            (_DROPOUT, place),
            {_DROPOUT: 0.0},
            "train the adapters without dropout",
            bool(on.taken),
        )
    if t.method == "dora":
        return Refusal(
            "adapters on stacked experts cannot be DoRA's",
            what,
            (f.trainable.method, place),
            {},
            translated=bool(on.taken),
        )
    return None


def _is_sure(run: Run, found: Refusal) -> bool:
    """Whether all releases that may run refuse it."""
    arch = run.placed.plan.model.arch
    is_stacked = bool(run.cells.surely_made(STACKED_EXPERTS)) or stacks_experts_early(arch)
    return is_stacked and (not found.translated or bool(run.cells.surely_made(TRANSLATED_EXPERTS)))
