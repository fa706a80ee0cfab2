"""Offloading to the CPU asks for more RAM than the host has.

## What it finds

DeepSpeed's `offload_optimizer` and `offload_param`, and FSDP's CPU offloading, where what
they keep in a node's RAM does not fit there, or comes close. If nobody says how much RAM the
node has, the need is named, and it is a warning where many machines with as many GPUs have
less.

## Why it runs out of memory

Offloading moves the states; it does not shrink them. For full fine-tuning in mixed precision
DeepSpeed keeps, for each parameter, fp32 weights (4 bytes), fp32 gradients (4), Adam's two
states (8) and a 16-bit copy (2) on the host: of gradients under ZeRO-3, of weights under 1 and
2. That is 18 bytes, divided by the number of *nodes*, not of GPUs; 2 more with `offload_param`,
or where ZeRO-1 or 2 adds micro batches up. 13 billion parameters need 218 GiB. Pinned
buffers are rounded up to a power of two on top. Linux then kills a process: exit code -9,
no traceback. DeepSpeed's own estimator multiplies 16 or 18 bytes by 1.5 to be safe;
oomlint's figure has no such margin, so take it as the least that is needed.

## How to fix it

In order of cost: keep the optimizer on the GPUs where these have room (the fix does that if
the prediction says so); offload the optimizer only, not the parameters; `pin_memory: false`;
more nodes; `device: nvme`; LoRA or QLoRA, whose optimizer states are small.

## When not to

Where the node has plenty of swap on fast disks and time does not matter.

## Sources

* DeepSpeed edaa7221 `runtime/zero/stage3.py:3744` and `stage_1_and_2.py`
  (`estimate_zero3_model_states_mem_needs` and its kin), `runtime/zero/offload_config.py`
* torch `aten/src/ATen/core/CachingHostAllocator.h` (rounding of pinned blocks)
* https://github.com/hiyouga/LLaMA-Factory/issues/6755: 32B against 744 GB, killed;
  https://github.com/deepspeedai/DeepSpeed/issues/4867: 15B needs 346 GB, host 256 GB
* Ren et al. 2021, arXiv 2101.06840 (ZeRO-Offload)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from oomlint.judgement import judge_gpu, judge_host, settled
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.memory import asked_in_host
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import count, gib
from oomlint_rules._examples import axolotl, example, text
from oomlint_rules._fixes import host_after
from oomlint_rules.host._ram import judge_ram

_AXOLOTL = axolotl(
    "meta-llama/Llama-2-13b-hf",
    "sequence_len: 2048\nmicro_batch_size: 1\ngradient_checkpointing: true\n",
    "flash_attention: true\nfp16: true\ndeepspeed: ds.json\n",
)


def _json(stage: int, optimizer: str, params: str = "none") -> str:
    return (
        "{\n"
        '  "zero_optimization": {\n'
        f'    "stage": {stage},\n'
        f'    "offload_optimizer": {{"device": "{optimizer}"}},\n'
        f'    "offload_param": {{"device": "{params}"}}\n'
        "  },\n"
        '  "fp16": {"enabled": "auto"},\n'
        '  "train_micro_batch_size_per_gpu": "auto"\n'
        "}\n"
    )


_RECIPE = (
    "torchrun --nnodes 1 --nproc_per_node 4 -m llama_recipes.finetuning --enable_fsdp"
    " --low_cpu_fsdp --model_name meta-llama/Llama-2-13b-hf --batch_size_training 1"
    " --context_length 1024"
)

_LLAMA_FACTORY = text(
    """
    model_name_or_path: meta-llama/Llama-2-13b-hf
    stage: sft
    do_train: true
    finetuning_type: full
    deepspeed: examples/deepspeed/ds_z2_offload_config.json
    dataset: instructions
    template: llama2
    cutoff_len: 2048
    output_dir: saves/llama2-13b
    per_device_train_batch_size: 1
    gradient_accumulation_steps: 8
    fp16: true
    """
)

# Without these the peak of the node is that of training itself.
_TRAINING_ONLY = {f.load.meta_init: True, f.save.strategy: "no"}
_MOST_NODES = 64


class OffloadHostRamExceeded(Rule, code="OOM401", fixes=Applicability.SAFE, cost=5):
    summary = "offloading to the CPU asks for more RAM than the host has"
    explains = ("offloaded_states",)
    only_where = (
        Where(plan={f.offload.optimizer: ("cpu",)}),
        Where(plan={f.offload.params: ("cpu",)}),
        Where(plan={f.parallel.fsdp.cpu_offload: (True,)}),
    )

    bad = (
        example(
            {"train.yaml": _AXOLOTL, "ds.json": _json(2, "cpu")},
            on="4xA100-40GB, 128GiB",
            why="13 billion parameters × 18 bytes are 218 GiB",
        ),
        example(
            {"train.yaml": _AXOLOTL, "ds.json": _json(3, "cpu", "cpu")},
            {"ds.json": _json(3, "none", "none")},
            on="8xA100-80GB, 192GiB",
            why="the GPUs have room for all of it",
        ),
        example(
            {"train.yaml": _AXOLOTL, "ds.json": _json(2, "cpu")},
            why="nobody says how much RAM there is",
        ),
        example(
            {"train.yaml": _LLAMA_FACTORY},
            on="4xA100-40GB, 192GiB",
            why="the shipped preset offloads the optimizer",
        ),
        example(
            {"train.sh": f"{_RECIPE} --fsdp_config.fsdp_cpu_offload True\n"},
            on="4xA100-40GB, 96GiB",
        ),
    )
    good = (
        example(
            {"train.yaml": _AXOLOTL, "ds.json": _json(3, "cpu", "cpu")}, on="8xA100-40GB, 1152GiB"
        ),
        example(
            {"train.yaml": _AXOLOTL, "ds.json": _json(3, "none")},
            on="8xA100-80GB, 192GiB",
            why="nothing is offloaded",
        ),
        example(
            {
                "train.yaml": f"{_AXOLOTL}adapter: lora\nlora_r: 16\nlora_target_linear: true\n",
                "ds.json": _json(2, "cpu"),
            },
            on="4xA100-40GB, 128GiB",
            why="a LoRA adapter's optimizer states are small",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        offloaded = _offloaded(run)
        if not offloaded:
            return
        training = run.assuming(_TRAINING_ONLY)
        states = settled(training).estimate.host.components.get("offloaded_states")
        if not states:
            return  # a share of nothing
        verdict = judge_ram(training)
        if verdict is None or verdict.severity is None:
            return
        found = verdict.judgement
        proposals = list(_proposals(run, training)) if found.is_problem else []
        helps = _what_helps(run, training) if found.is_problem and not proposals else ()
        yield self.finding(
            run,
            verdict.severity,
            f"offloading keeps {gib(states)} of states in the RAM of each node",
            at=offloaded,
            details=(*_arithmetic(training, states), *verdict.details, *helps),
            judged=found,
            proposals=proposals,
        )


def _offloaded(run: Run) -> tuple[Any, ...]:
    plan = run.plan
    if plan.parallel.backend in ("fsdp1", "fsdp2"):
        return (f.parallel.fsdp.cpu_offload,) if plan.parallel.fsdp.cpu_offload else ()
    fields = (
        (f.offload.optimizer, plan.offload.optimizer),
        (f.offload.params, plan.offload.params),
    )
    return tuple(name for name, device in fields if device == "cpu")


def _arithmetic(training: Run, states: int) -> Iterator[str]:
    """The states spelled out per parameter where all are trained, and the other parts of the sum."""
    yield from _per_parameter(training, states)
    parts = settled(training).estimate.host.components
    terms = []
    for name, words in (
        ("pinned_rounding", "lost to pinned rounding"),
        ("dataloader", "for data workers"),
        ("activations", "of offloaded activations"),
        ("process_overhead", "for processes"),
    ):
        size = parts.get(name) or 0
        if size >= 2**29:
            terms.append(f"{gib(size)} {words}")
    if terms:
        yield f"beside {', '.join(terms)}"


def _per_parameter(training: Run, states: int) -> Iterator[str]:
    plan = settled(training).plan
    total = plan.model.dims.params_total if plan.model.dims is not None else None
    if not total or plan.trainable.method != "full":
        return
    nodes = plan.parallel.nodes or 1
    each = states * nodes / total
    over = f", over {nodes} nodes" if nodes > 1 else ""
    text = f"{count(total)} parameters × {each:.3g} bytes{over}"
    # What DeepSpeed keeps for a parameter; its few extra buffers do not matter here.
    known = [("fp32 weights", 4.0), ("fp32 gradients", 4.0), ("16-bit staging", 2.0)]
    if plan.offload.params == "cpu":
        known.append(("16-bit weights", 2.0))
    if asked := asked_in_host(plan):
        known.append(("weights of models that are only asked", asked * nodes / total))
    rest = each - sum(size for _, size in known)
    if plan.parallel.backend == "zero" and plan.offload.optimizer == "cpu" and rest >= 0:
        known.insert(2, ("optimizer states", rest))
        text += ": " + ", ".join(f"{name} {size:.2g}" for name, size in known)
    yield text


def _proposals(run: Run, training: Run) -> Iterator[Proposal]:
    """Changes after which RAM and GPUs both hold the run, the cheapest first."""
    for title, changes in _candidates(run):
        after = host_after(training, changes)
        if after is None or after.is_problem:
            continue
        moves_to_gpu = f.offload.pin_memory not in changes
        if moves_to_gpu and not _gpu_has_room(run, changes):
            continue
        yield Proposal.set(title, changes)


def _candidates(run: Run) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    offloaded = _offloaded(run)
    if offloaded == (f.parallel.fsdp.cpu_offload,):
        yield "keep the states on the GPUs", {f.parallel.fsdp.cpu_offload: False}
        return
    yield "keep the states on the GPUs", dict.fromkeys(offloaded, "none")
    if len(offloaded) == 2:
        yield "offload the optimizer only", {f.offload.params: "none"}
    if run.plan.offload.pin_memory:
        yield "do not pin the offloaded buffers", {f.offload.pin_memory: False}


def _gpu_has_room(run: Run, changes: Mapping[Any, Any]) -> bool:
    if run.limits.gpu_bytes is None:
        return False
    after = judge_gpu(run.what_if(changes))
    return after is not None and not after.is_problem


def _what_helps(run: Run, training: Run) -> tuple[str, ...]:
    ways = []
    nodes = settled(run).plan.parallel.nodes or 1
    while nodes < _MOST_NODES:
        nodes *= 2
        after = judge_host(settled(training).assuming({f.parallel.nodes: nodes}))
        if after is not None and not after.is_problem:
            ways.append(f"{nodes} nodes ({gib(after.predicted)} each)")
            break
    if run.plan.parallel.backend == "zero":
        ways.append("offloading to NVMe")
    if run.plan.trainable.method == "full":
        ways.append("LoRA, whose optimizer states are small")
    return (f"what would help: {' or '.join(ways)}",) if ways else ()
