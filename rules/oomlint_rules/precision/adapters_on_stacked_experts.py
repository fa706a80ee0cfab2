"""Names of layers put adapters on every expert of a model.

## What it finds

LoRA that names `gate_proj`, `up_proj` or `down_proj` (`w1`, `w2`, `w3` of Mixtral), or `all-linear`, of a model whose experts are stacked
in one parameter a layer (transformers 5), where PEFT 0.19 or later takes these names for the stacks, and where the run would fit, or
fit on a smaller card, with adapters on the attention layers alone.

## Why it runs out of memory

The names mean all experts, whatever stands before them: `shared_expert.up_proj` does as well. Each expert gets an adapter of its
own, gate and up together one of twice the rank: 512 of them in every layer of Qwen3-Next, where the shared expert would have one. And in
every forward pass PEFT makes the whole stack anew, with what the adapters add to it.

## How to fix it

Name the attention layers alone. No other spelling of these names spares the experts; PEFT before 0.19 leaves the stacks as they
are. It is another adapter, so that the fix is unsafe.

## When not to

Where the experts are to be adapted, and there is room.

## Sources

* peft 0.18.1, 0.19.1 and 0.21.2 `tuners/tuners_utils.py` `inject_adapter`; 0.21.2 `utils/transformers_weight_conversion.py`
  `_convert_peft_config_moe`, `tuners/lora/layer.py` `ParamWrapper`
* transformers 4.57 and 5.0 `models/mixtral/modeling_mixtral.py`
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oomlint.judgement import Relief
from oomlint.linting.rule import KNOWN, Applicability, Where
from oomlint.memory.facts import facts_of
from oomlint.memory.stacked_adapters import StackedAdapters
from oomlint.plan.fields import f
from oomlint.plan.library_changes import TRANSLATED_EXPERTS
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, example, mended
from oomlint_rules._lowering import LowersPeak

_TARGETS = f.trainable.targets
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_LF = (
    LLAMA_FACTORY.replace("type: full", "type: lora").replace(
        "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B"
    )
    + "cutoff_len: 512\nlora_rank: {rank}\nlora_target: {targets}\n"
)


_AXOLOTL = AXOLOTL.replace("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B") + (
    "sequence_len: 512\nadapter: lora\nlora_r: 64\nlora_target_modules: {targets}\n"
)


class AdaptersOnStackedExperts(LowersPeak, code="OOM217", fixes=Applicability.UNSAFE, cost=7):
    summary = "names of layers put adapters on every expert of a model"
    only_where = (
        Where(
            plan={f.trainable.method: ("lora", "qlora"), f.trainable.targets: KNOWN},
            frameworks=("hf-trainer", "trl", "axolotl", "llama-factory", "ms-swift"),
            has_risk=True,
        ),
    )
    at = (_TARGETS,)
    even_unsaid = True
    with_it = "with adapters on the other layers alone"
    fix = "put adapters on the layers beside the experts"

    bad = (
        mended(
            "train.yaml",
            _LF,
            rank=64,
            targets=("q_proj,v_proj,gate_proj,up_proj,down_proj", '"q_proj,v_proj"'),
            on="1xH100-80GB",
        ),
        mended(
            "axolotl.yaml",
            _AXOLOTL,
            targets=("[q_proj, v_proj, gate_proj, up_proj, down_proj]", "[q_proj, v_proj]"),
            on="1xH100-80GB",
        ),
    )
    good = (
        example({"train.yaml": _LF.format(rank=64, targets="q_proj,v_proj")}, on="1xH100-80GB"),
        example(
            {
                "train.yaml": _LF.format(
                    rank=64, targets="q_proj,v_proj,gate_proj,up_proj,down_proj"
                ),
                "requirements.txt": "peft==0.18.1\n",
            },
            on="1xH100-80GB",
            why="this PEFT does not translate the names",
        ),
    )

    def changes(self, run: Run) -> Mapping[Any, Any] | None:
        on, targets = _stacks(run), run.plan.trainable.targets
        if not on.taken:
            return None
        if targets == "all_linear":
            return None if run.plan.trainable.by_name else {_TARGETS: _ATTENTION}
        names = targets if isinstance(targets, tuple) else ()
        kept = tuple(name for name in names if name.rpartition(".")[2] not in on.taken)
        return {_TARGETS: kept} if kept else None

    def cause(self, run: Run, found: Relief) -> str:
        return f"adapters on all experts take {gib(found.saved)}"

    def gain(self, run: Run, found: Relief) -> Iterable[str]:
        named = ", ".join(sorted(_stacks(run).taken))
        yield f"PEFT takes {named} for the stacks of experts, wherever else the model has such layers"
        if run.cells.surely_made(TRANSLATED_EXPERTS) is None:
            yield f"before peft {TRANSLATED_EXPERTS.release} {TRANSLATED_EXPERTS.before}"
        yield from super().gain(run, found)


def _stacks(run: Run) -> StackedAdapters:
    return facts_of(run.placed.plan).stacked()
