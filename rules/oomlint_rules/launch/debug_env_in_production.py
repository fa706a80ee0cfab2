"""A switch for debugging that is still on: it keeps traces in memory, or makes every step wait.

## What it finds

For a training command: `CUDA_LAUNCH_BLOCKING=1`, `PYTORCH_NO_CUDA_MEMORY_CACHING=1` and
`TORCH_DISTRIBUTED_DEBUG=DETAIL` in its environment or set by the script. In scripts:
`torch.autograd.set_detect_anomaly(True)`, `_record_memory_history` that is neither stopped nor bounded,
and `wandb.watch(log="all")`.

## Why it runs out of memory

* `_record_memory_history` keeps a stack trace for each allocation in host RAM, without limit unless
  `max_entries` is given: some kilobytes, thousands of times a step, until the host is full.
* Anomaly detection keeps a Python traceback for every operation of the graph.
* `wandb.watch` builds histograms of all weights and gradients, on the GPU.
* Without caching each tensor is its own `cudaMalloc`, rounded up to 512 bytes in segments of 2 MiB and
  waited for.
* With `CUDA_LAUNCH_BLOCKING=1` the CPU waits for every kernel. It costs time rather than memory; one
  report blames it for a host that ran full.
* `TORCH_DISTRIBUTED_DEBUG=DETAIL` checks every collective with another one, through host memory.

## How to fix it

Remove it. The results are the same.

## When not to

While you are looking for an error. For a memory snapshot record a few steps, with
`max_entries=100000`, and stop with `enabled=None`.

## Sources

* PyTorch documentation: *Understanding CUDA Memory Usage*, *CUDA Environment Variables*,
  *Anomaly detection*, *torch.distributed: Debugging*; torch 2.9 `cuda/memory.py`
  (`_record_memory_history`: `max_entries=sys.maxsize`)
* https://github.com/deepspeedai/DeepSpeed/issues/3448 (33B, `CUDA_LAUNCH_BLOCKING=1`)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import command, example, script
from oomlint_rules._fixes import removal
from oomlint_rules._scripts import facts_of, mending

_BLOCKING, _UNCACHED, _DETAIL = (
    f.env.launch_blocking, f.env.no_caching, f.env.distributed_debug,
)  # fmt: skip
_OFF = {_BLOCKING: False, _UNCACHED: False, _DETAIL: "OFF"}
_EFFECTS = {
    "CUDA_LAUNCH_BLOCKING": "makes the CPU wait for every kernel",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "asks the driver for every single tensor, which takes "
    "milliseconds and whole pages",
    "TORCH_DISTRIBUTED_DEBUG": "checks every collective with another one through host memory",
}


class DebugEnvInProduction(Rule, code="OOM715", fixes=Applicability.SAFE):
    summary = "a switch for debugging is still on"
    only_where = (Where(said=(_BLOCKING, _UNCACHED, _DETAIL)), Where(facts=("debug-mode",)))

    bad = (
        example(
            {"train.sh": f"export CUDA_LAUNCH_BLOCKING=1\n{command('')}"},
            {"train.sh": f"export CUDA_LAUNCH_BLOCKING=0\n{command('')}"},
        ),
        example({"train.sh": f"CUDA_LAUNCH_BLOCKING=1 {command('')}"}, {"train.sh": command("")}),
        example(
            {"train.py": script(head="torch.autograd.set_detect_anomaly(True)\n")},
            {"train.py": script(head="torch.autograd.set_detect_anomaly(False)\n")},
        ),
        example({"train.py": script(head="torch.cuda.memory._record_memory_history()\n")}),
    )
    good = (
        example({"train.sh": f"export CUDA_LAUNCH_BLOCKING=0\n{command('')}"}),
        example({"train.sh": f"export TORCH_DISTRIBUTED_DEBUG=INFO\n{command('')}"}),
        example(
            {
                "train.py": script(
                    head="torch.cuda.memory._record_memory_history(max_entries=100000)\n"
                )
            }
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        env = run.plan.env
        detail = (env.distributed_debug or "").upper() == "DETAIL"
        for field, on in (
            (_BLOCKING, env.launch_blocking), (_UNCACHED, env.no_caching), (_DETAIL, detail)
        ):  # fmt: skip
            if on and run.is_explicit(field):
                key = run.key(field)
                yield self.info(
                    run,
                    f"{key} is for debugging, and still on",
                    at=field,
                    details=(f"it {_EFFECTS.get(key, 'slows every step down')}",),
                    proposals=(
                        *removal(f"remove {key}", run.origin(field)),
                        Proposal.set("switch it off", {field: _OFF[field]}),
                    ),
                )
        for fact in facts_of(run, "debug-mode"):
            what = fact.detail["what"]
            yield self.info(
                run,
                f"{what} is for debugging, and still on",
                at=fact,
                details=(f"it {fact.detail['effect'] or _EFFECTS[what]}",),
                resource="host",
                proposals=mending("switch it off", fact),
            )
