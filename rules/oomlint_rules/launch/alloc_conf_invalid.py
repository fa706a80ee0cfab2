"""Settings of torch's allocator that it refuses or ignores.

## What it finds

In `PYTORCH_CUDA_ALLOC_CONF`: an option whose name torch does not know,
`max_split_size_mb` of 20 or less, `max_split_size_mb` beside `expandable_segments:True`, and
options of the native allocator beside `backend:cudaMallocAsync`. In a script: the variable set
after CUDA was initialized.

## Why it runs out of memory

torch stops at an unknown name and at a split size that is too small. Expandable segments
split blocks whatever `max_split_size_mb` says, and the asynchronous backend knows neither:
the fragmentation that the setting was to cure, often some GiB that are reserved and not
allocated, stays. After the first use of CUDA the variable is not read again.

## How to fix it

Keep `expandable_segments:True` alone, and set it before the command, or before torch is imported.

## When not to

`max_split_size_mb` without expandable segments is fine. So is the variable behind what does not initialize CUDA:
`import torch`, `torch.cuda.is_available()`, `torch.cuda.empty_cache()`, a tokenizer, a model that is loaded to the CPU.

## Sources

* torch 2.9 `c10/cuda/CUDAAllocatorConfig.cpp` (*Unrecognized CachingAllocator option*, *must be >
  20*) and `CUDACachingAllocator.cpp` `should_split`
* torch 2.15.0 `cuda/memory.py` (`empty_cache`: *if is_initialized()*) and `cuda/__init__.py` (`_lazy_init`)
* torch documentation, *CUDA semantics*, *Optimizing memory usage*
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from oomlint.linting.rule import (
    KNOWN,
    Applicability,
    Finding,
    Proposal,
    Rule,
    Severity,
    When,
    Where,
    asking,
)
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import command, example

_KNOWN = (
    "backend",
    "expandable_segments",
    "garbage_collection_threshold",
    "max_non_split_rounding_mb",
    "max_split_size_mb",
    "pinned_num_register_threads",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "release_lock_on_cudamalloc",
    "roundup_power2_divisions",
)
_SMALLEST_SPLIT = 20
_STOPS = "torch stops with an error"


def _with(conf: str) -> str:
    return f"export PYTORCH_CUDA_ALLOC_CONF={conf}\n{command('')}"


class AllocConfInvalid(Rule, code="OOM713", may_end=True, fixes=Applicability.SAFE):
    summary = "settings of torch's allocator that it refuses or ignores"
    only_where = (Where(plan={f.env.alloc_conf: KNOWN}), Where(facts=("alloc-conf-after-import",)))

    bad = (
        example(
            {"train.sh": _with("expandable_segments:True,max_split_size_mb:128")},
            {"train.sh": _with("expandable_segments:True")},
        ),
        example(
            {"train.sh": _with("expandable_segment:True")},
            {"train.sh": _with("expandable_segments:True")},
        ),
        example({"train.sh": _with("max_split_size_mb:16")}),
        example({"train.sh": _with("backend:cudaMallocAsync,expandable_segments:True")}),
        example(
            {
                "train.py": (
                    "import os\nimport torch\n\n"
                    "torch.cuda.set_device(0)\nmodel = build()\n"
                    'os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"\n'
                    "train(model)\n"
                )
            }
        ),
    )
    good = (
        example({"train.sh": _with("expandable_segments:True")}),
        example({"train.sh": _with("max_split_size_mb:512")}),
        example({"train.sh": _with("garbage_collection_threshold:0.6")}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        conf = run.plan.env.alloc_conf
        if conf and run.is_explicit(f.env.alloc_conf):
            yield from self._options(run, conf)
        for fact in run.facts:
            if fact.kind == "alloc-conf-after-import" and fact.detail["cuda_used"]:
                yield self.warning(
                    run,
                    "the allocator's settings come after CUDA was used, and have no effect",
                    at=fact,
                    details=("torch has read them by then, and does not read them again",),
                )

    def _options(self, run: Run, conf: str) -> Iterable[Finding]:
        options = _parsed(conf)
        for name in options:
            near = get_close_matches(name, _KNOWN, n=1, cutoff=0.85)
            if name not in _KNOWN and near:
                title, asked = asking(f"torch knows no option {name}", near[0])
                details = (*asked, _STOPS)
                right = conf.replace(name, near[0])
                yield self._say(run, Severity.ERROR, title, details, right)
        split = options.get("max_split_size_mb", "")
        if split.isdigit() and int(split) <= _SMALLEST_SPLIT:
            yield self._say(
                run,
                Severity.ERROR,
                f"max_split_size_mb has to be more than {_SMALLEST_SPLIT}",
                (_STOPS,),
            )
        expands = options.get("expandable_segments", "").lower() == "true"
        if options.get("backend") == "cudaMallocAsync" and len(options) > 1:
            yield self._say(
                run,
                Severity.WARNING,
                "backend:cudaMallocAsync knows none of the other options here",
                ("it is another allocator",),
            )
        elif expands and split.isdigit() and int(split) > _SMALLEST_SPLIT:
            yield self._say(
                run,
                Severity.INFO,
                "with expandable_segments:True max_split_size_mb has no effect",
                (),
                ",".join(part for part in conf.split(",") if "max_split_size_mb" not in part),
            )

    def _say(
        self, run: Run, severity: Severity, title: str, details: tuple[str, ...], right: str = ""
    ) -> Finding:
        changes = {f.env.alloc_conf: right}
        return self.finding(
            run,
            severity,
            title,
            at=f.env.alloc_conf,
            details=details,
            proposals=[Proposal.set(f"write {right}", changes)] if right else [],
            ends=When.LOADED if _STOPS in details else None,
        )


def _parsed(conf: str) -> dict[str, str]:
    """Options and their values; lists in brackets stay with their option."""
    parts = (part.partition(":") for part in conf.replace(" ", "").split(","))
    return {name: value for name, colon, value in parts if colon and "[" not in name}
