"""The container may use less RAM than the run needs.

## What it finds

`docker run --memory`, a compose service's `mem_limit` and a Kubernetes container's
`resources.limits.memory` below the RAM that the run is predicted to need on a node while
loading, training or saving.

## Why it runs out of memory

The limit is the container's cgroup: all its processes count together, with pinned buffers,
what lies in `/dev/shm`, and the page cache of checkpoints being written as far as it cannot be
reclaimed. The kernel kills a process when the limit is reached although the node has room:
exit code 137 or -9, `OOMKilled` in the pod's status, no traceback. A volume with
`medium: Memory` at `/dev/shm` is RAM of the same container.

## How to fix it

Raise the limit to what the run needs with a margin, if the node has that much; or lower the
need: load once per node (ZeRO stage 3, FSDP's efficient loading), offload less.

## When not to

Where the node has no more: a larger limit then only moves the kill from the container to the
node.

## Sources

* Kubernetes docs, "Resource Management for Pods and Containers" and "Volumes: emptyDir"
* Docker docs, "Runtime options with Memory, CPUs, and GPUs"
* https://github.com/deepspeedai/DeepSpeed/issues/1891: offloading against cgroup limits
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.machine.fields import scene
from oomlint.judgement import judge_host
from oomlint.linting.rule import Applicability, Example, Finding, Rule, Where
from oomlint.runs.run import Run
from oomlint_rules._examples import KUBERNETES_JOB, example
from oomlint_rules.launch._limits import limited_by, too_low

_WORDS = (
    "--deepspeed ds.json --do_train --model_name_or_path Qwen/Qwen2.5-7B"
    " --dataset_name tatsu-lab/alpaca --torch_dtype bfloat16 --bf16"
    " --per_device_train_batch_size 1 --gradient_accumulation_steps 8 --num_train_epochs 1"
    " --output_dir out"
)
_RECIPE = (
    "torchrun --nnodes 1 --nproc_per_node 8 -m llama_recipes.finetuning --enable_fsdp"
    " --model_name meta-llama/Llama-2-13b-hf --batch_size_training 1 --context_length 1024"
)
_DS = (
    '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"},'
    ' "train_micro_batch_size_per_gpu": "auto"}\n'
)


def _docker(memory: str) -> dict[str, str]:
    script = f"docker run --gpus all --ipc=host{memory} trainer \\\n    {_RECIPE}\n"
    return {"train.sh": script}


def _job(limit: str) -> dict[str, str]:
    manifest = (
        f"{KUBERNETES_JOB}"
        "          command: [bash, -c]\n"
        "          args:\n"
        "            - |\n"
        f"              deepspeed --num_gpus 8 run_clm.py {_WORDS}\n"
        "          resources:\n"
        "            limits:\n"
        "              nvidia.com/gpu: 8\n"
        f"{limit}"
    )
    return {"job.yaml": manifest, "ds.json": _DS}


class ContainerMemoryLimitTooSmall(Rule, code="OOM708", fixes=Applicability.SAFE, cost=1):
    summary = "the container may use less RAM than the run needs"
    only_where = (Where(said=(scene.ram_limit,)),)

    bad = (
        example(_docker(" --memory=64g"), _docker(" --memory=264g")),
        example(_job("              memory: 64Gi\n"), _job("              memory: 168Gi\n")),
    )
    good = (
        example(_docker("")),
        example(_docker(" --memory=1t")),
        example(_job("              memory: 512Gi\n")),
        example(_job("")),
        Example(files=_docker(" --memory=64g"), host_memory="512GiB"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        found = judge_host(run) if limited_by(run) == "container" else None
        if found is not None:
            says = "the container may use only {} of the node's RAM"
            yield from too_low(self, run, found, says=says, asks="allow it {}")
