"""A container's limit on locked pages is smaller than the buffers that NVMe offload locks.

## What it finds

Offloading to NVMe in a container that is started without `--ulimit memlock=-1` (compose:
`ulimits: memlock: -1`) and is not privileged.

## Why it runs out of memory

DeepSpeed's asynchronous I/O locks its buffers with `mlock`, `buffer_count` x `buffer_size` elements on
every rank, and `mlock` counts against `ulimit -l`. A container has the limit of the docker daemon, as
a rule 64 KiB to 8 MiB. Locking fails with *Cannot allocate memory* while hundreds of GiB are free.

What torch pins for offloading to the CPU is not counted there: `cudaHostAlloc` goes through the
driver. So the rule is silent about that (only `DS_PIN_MEMORY_BACKEND=native` brings `mlock` in).

## How to fix it

`--ulimit memlock=-1:-1`, as a rule together with `--ulimit stack=67108864`. Under Slurm, the site's `PropagateResourceLimitsExcept=MEMLOCK`.

## When not to

Where the daemon's own limit is raised (`default-ulimits` in `daemon.json`, `LimitMEMLOCK` of its
service).

## Sources

* DeepSpeed edaa7221 `runtime/zero/offload_config.py:49` (*tight memlock limits (ulimit -l)*),
  `utils/pin_memory.py` (`mlock`), `csrc/aio/py_lib/deepspeed_pin_tensor.cpp`
* docker's CLI reference, `--ulimit`; mlock(2); Axolotl 067b021c `docs/installation.qmd:76`
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.machine.fields import docker
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import command, deepspeed, example

_MEMLOCK = f.host.memlock
_JSON = deepspeed('"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/scratch"}')
_CPU = _JSON.replace("nvme", "cpu", 1).replace(', "nvme_path": "/scratch"', "")
_RUN = command("--deepspeed ds.json").removesuffix("\n")


def _docker(options: str) -> str:
    return f"docker run --gpus all --ipc=host{options} ours:latest {_RUN}\n"


def _compose(more: str) -> str:
    return (
        "services:\n"
        "  train:\n"
        "    image: ours:latest\n"
        "    ipc: host\n"
        f"{more}"
        f"    command: {_RUN}\n"
        "    deploy:\n"
        "      resources:\n"
        "        reservations:\n"
        "          devices:\n"
        "            - driver: nvidia\n"
        "              count: 8\n"
        "              capabilities: [gpu]\n"
    )


class MemlockUlimit(Rule, code="OOM717", fixes=Applicability.SAFE):
    summary = "a container's limit on locked pages is below what NVMe offload locks"
    only_where = (Where(plan={f.host.memlock: ("limited",)}),)

    bad = (
        example(
            {"train.sh": _docker(""), "ds.json": _JSON},
            {"train.sh": _docker(" --ulimit memlock=-1:-1")},
        ),
        example({"compose.yaml": _compose(""), "ds.json": _JSON}),
    )
    good = (
        example(
            {"train.sh": _docker(" --ulimit memlock=-1 --ulimit stack=67108864"), "ds.json": _JSON}
        ),
        example({"compose.yaml": _compose("    ulimits:\n      memlock: -1\n"), "ds.json": _JSON}),
        example(
            {"train.sh": _docker(""), "ds.json": _CPU}, why="what torch pins is not counted there"
        ),
        example({"train.sh": f"{_RUN}\n", "ds.json": _JSON}, why="no container"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        offload = run.plan.offload
        if "nvme" not in (offload.params, offload.optimizer) or offload.pin_memory is False:
            return
        yield self.info(
            run,
            "NVMe offload locks its buffers with mlock, which the container limits",
            at=(_MEMLOCK, docker.gpus, f.offload.optimizer, f.offload.params),
            details=(
                "without --ulimit memlock=-1 it has its daemon's limit of some MiB",
                "locking fails with 'Cannot allocate memory' while RAM is free",
            ),
            confidence="medium",
            resource="host",
            proposals=[Proposal.set("lift the limit on locked pages", {_MEMLOCK: "unlimited"})],
        )
