"""A mixture of experts takes the memory of all its experts, not of the active ones.

## What it finds

Mixture-of-experts models whose weights and states make up most of a peak that does not fit (or
is tight), and full fine-tuning of those above 100B with states offloaded to a host
whose RAM is not known. It says how many parameters there are and how many of them are active.

## Why it runs out of memory

A token passes through a few experts, but all of them have to be there: Mixtral 8x7B is 47B,
DeepSeek-Coder-V2 236B with 21B active, and gradients, optimizer states and checkpoints follow the
total. ZeRO-3 and FSDP also gather all experts of a layer at once, 3 x hidden x width x experts x
2 bytes.

## How to fix it

Plan with the total. Expert parallelism shares the experts out; LoRA that leaves them alone needs
no states for them; quantized experts shrink the weights. Nothing of this is a small edit, so
there is no fix.

## When not to

Where the run fits, and under expert parallelism. The numbers of rules about sharding, offloading and batches count all experts
already; this one only says why they are so large, and is an information for that reason.

## Sources

* Mixtral, arXiv 2401.04088 (47B in all, 13B active); DeepSeek-Coder-V2, arXiv 2406.11931
* https://github.com/hiyouga/LLaMA-Factory/issues/7532,
  https://github.com/axolotl-ai-cloud/axolotl/issues/2143
* DeepSpeed `runtime/zero/utils` leaf modules (a module whose children are gathered together)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import judge_gpu, settled, sharding_is_open
from oomlint.linting.rule import Finding, Rule
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import count, gib
from oomlint_rules._examples import ONE_SAMPLE, ONE_SAMPLE_OF_LF, axolotl, example, llama_factory

_AXOLOTL = axolotl(
    "{model}",
    "sequence_len: 2048\n",
    ONE_SAMPLE,
    "flash_attention: true\n",
    lora="[q_proj, v_proj]",
)
_LLAMA_FACTORY = llama_factory(
    "mistralai/Mixtral-8x7B-v0.1",
    "cutoff_len: 2048\n",
    ONE_SAMPLE_OF_LF,
    template="mistral",
    lora="q_proj,v_proj",
)


# From this size on the states of all experts outgrow the RAM of usual hosts: 18 bytes each.
_LARGE = 100e9


class MoeTotalParams(Rule, code="OOM110"):
    summary = "all experts take memory, though few are active"
    explains = ("parameters",)

    bad = (
        example(
            {"axolotl.yaml": _AXOLOTL.format(model="mistralai/Mixtral-8x7B-v0.1")}, on="1xH100-80GB"
        ),
        example({"train.yaml": _LLAMA_FACTORY}, on="1xH100-80GB"),
    )
    good = (
        example(
            {"axolotl.yaml": _AXOLOTL.format(model="mistralai/Mistral-7B-v0.1")},
            on="1xRTX-4080-16GB",
            why="no experts",
        ),
        example({"train.yaml": _LLAMA_FACTORY}, on="1xB200-180GB", why="fits with all its experts"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        dims = run.plan.model.dims
        if dims is None or dims.moe is None or not dims.moe.experts:
            return
        total, active = dims.params_total, dims.params_active
        if not total or not active or active > total / 2:
            return
        now = judge_gpu(run)
        if now is None:
            return
        held = sum(
            now.components.get(part) or 0
            for part in ("parameters", "gradients", "optimizer_states")
        )
        tight = now.limit is not None and now.is_problem and held >= now.predicted / 2
        offloads = run.plan.offload.optimizer == "cpu" and run.plan.trainable.method == "full"
        large = total >= _LARGE and run.limits.host_bytes is None
        if (run.plan.parallel.ep or 1) > 1 or sharding_is_open(run):
            return
        if not tight and not (offloads and large):
            return
        details = [f"all {dims.moe.experts} experts are kept, whichever a token takes"]
        if tight:
            details += now.context
            details.append(f"weights, gradients and optimizer states take {gib(held)} a card")
        else:
            need = settled(run).estimate.host.peak_bytes
            details.append(
                f"the offloaded states take {gib(need)} of host RAM a node, which is not known"
            )
        yield self.info(
            run,
            f"memory follows all {count(total)} parameters, not the {count(active)} active for a token",
            at=(f.model.id,),
            details=details,
            judged=now,
        )
