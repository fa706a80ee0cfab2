"""A kernel setting that is recommended against killed processes and makes them die sooner.

## What it finds

Scripts that start training and set `vm.overcommit_memory=2`, with `sysctl` or through `/proc/sys`, or
that reserve huge pages (`vm.nr_hugepages`).

## Why it runs out of memory

With `vm.overcommit_memory=2` the kernel counts *virtual* memory: what all processes have asked
for, used or not, may not pass swap plus `vm.overcommit_ratio` percent of RAM (50 by default).
CUDA reserves address space in the size of all RAM and all GPUs for each process, `fork` for a data
loader worker counts the whole parent once more, a mapped checkpoint of private pages
counts in full. So allocations fail with ENOMEM (*Cannot allocate memory*, *CUDA error: out of
memory*) on a node that is half empty. It is passed on as a cure for exit code -9, because then the kernel kills
nobody; the run still dies, only earlier.

Huge pages are taken out of RAM when they are reserved, 2 MiB each. Neither torch nor
DeepSpeed asks for them, so this much is simply gone. Swap cannot back pinned memory, and a CPU
optimizer that swaps is slower by orders of magnitude; it does help over a short peak
while loading or saving.

## How to fix it

Leave the kernel's default, 0 (or 1). The fix writes 0. Then cure the need: see
`offload-host-ram-exceeded` and `fsdp-every-rank-loads`.

## When not to

On machines that something else needs so.

## Sources

* Linux `Documentation/mm/overcommit-accounting.rst`, `Documentation/admin-guide/mm/hugetlbpage.rst`
* https://github.com/deepspeedai/DeepSpeed/issues/1891; CUDA C Programming Guide, *Unified Virtual
  Address Space*
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.documents.base import Fact
from oomlint.linting.rule import Applicability, Finding
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import command, example, line, mended
from oomlint_rules._scripts import FactRule, mending

# x86-64 and most arm64 kernels: Documentation/admin-guide/mm/hugetlbpage.rst.
_HUGE_PAGE = 2 << 20
_LLAMA_FACTORY = line(
    """
    FORCE_TORCHRUN=1 llamafactory-cli train --stage sft --do_train true --finetuning_type lora
    --model_name_or_path meta-llama/Llama-3.1-8B --dataset instructions --template llama3
    --output_dir out
    """
)


class VmOvercommitStrict(FactRule, code="OOM716", fact="kernel-setting", fixes=Applicability.SAFE):
    summary = "a kernel setting against killed processes that makes them die sooner"

    bad = (
        mended(
            "train.sh",
            f"sudo sysctl -w vm.overcommit_memory={{mode}}\n{command('')}",
            mode=(2, 0),
        ),
        mended(
            "train.sh",
            f"echo {{mode}} > /proc/sys/vm/overcommit_memory\n{_LLAMA_FACTORY}",
            mode=(2, 0),
        ),
        example(
            {"train.sh": f"sysctl -w vm.nr_hugepages=32768\n{command('')}"},
            why="64 GiB that nobody asks for",
        ),
    )
    good = (
        example({"train.sh": f"sudo sysctl -w vm.overcommit_memory=1\n{command('')}"}),
        example({"train.sh": f"# sysctl -w vm.overcommit_memory=2\n{command('')}"}),
        example({"train.sh": f"sysctl -w vm.nr_hugepages=0\n{command('')}"}),
    )

    def comes_of(self, fact: Fact, run: Run) -> Iterable[Finding]:
        name, value = fact.detail["name"], fact.detail["value"]
        if name == "vm.overcommit_memory" and value == 2:
            yield self._strict(run, fact)
        elif name == "vm.nr_hugepages" and value > 0:
            yield self.info(
                run,
                f"{value} huge pages take {gib(value * _HUGE_PAGE)} out of RAM",
                at=fact,
                details=("at 2 MiB each; neither torch nor DeepSpeed asks for them",),
                resource="host",
            )

    def _strict(self, run: Run, fact: Fact) -> Finding:
        return self.warning(
            run,
            "with vm.overcommit_memory=2 allocations fail while RAM is free",
            at=fact,
            details=(
                "the kernel counts virtual memory",
                "CUDA, forked workers and mapped checkpoints reserve far more than they use",
                "it keeps no run from dying for want of RAM",
            ),
            resource="host",
            proposals=mending("leave the kernel's default, 0", fact),
        )
