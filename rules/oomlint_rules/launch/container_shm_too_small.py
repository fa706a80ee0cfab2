"""The container's /dev/shm is too small for what ranks and workers share.

## What it finds

`docker run` without `--shm-size` or `--ipc=host`, a compose service without `shm_size` or
`ipc: host`, a Kubernetes pod without a `medium: Memory` volume at `/dev/shm`, or one of these
with too small a size, in front of a run with several GPUs a node or with data loader workers.

## Why it runs out of memory

A container's `/dev/shm` is a file system in RAM of 64 MiB unless it is told otherwise. NCCL
puts the buffers through which the ranks of a node talk there, and data loader workers pass
every batch through it: workers × prefetched batches × bytes of a batch, for each rank. When it
is full, a write to it is a bus error: "DataLoader worker is killed by signal: Bus error. It is
possible that dataloader's workers are out of shared memory", or NCCL's "unhandled system
error", exit code -7.

## How to fix it

Docker: `--shm-size=16g` or `--ipc=host`. Compose: `shm_size: 16g` or `ipc: host`. Kubernetes:
a volume `emptyDir: {medium: Memory, sizeLimit: 16Gi}` mounted at `/dev/shm`. The size is a
ceiling: only what is used takes RAM, and in a container it counts against its memory limit.
Without workers (`dataloader_num_workers: 0`) and on one GPU nothing needs it.

## When not to

With podman, Singularity or Apptainer, which share the host's `/dev/shm` or are set up to.

## Sources

* docker's CLI reference, `--shm-size`; Kubernetes docs, "Volumes: emptyDir"
* NCCL User Guide, "Troubleshooting: Shared memory", which asks for `--shm-size=1g`
* PyTorch README, "Docker Image"; https://github.com/pytorch/pytorch/issues/5040;
  https://github.com/open-mmlab/mmdetection/issues/1997;
  https://github.com/OptimalScale/LMFlow/issues/430 (exit code -7)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.common.fields import shared
from oomlint.judgement import settled
from oomlint.linting.rule import KNOWN, Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import KUBERNETES_JOB, example

_GIB = 2**30
# NCCL User Guide, "Troubleshooting: Shared memory": --shm-size=1g.
_NCCL = _GIB
# What LLaMA-Factory's and Axolotl's READMEs ask for.
_PLENTY_GIB = 16
# Token ids, labels and mask, int64 each (transformers 5.23 data/data_collator.py).
_BYTES_PER_TOKEN = 3 * 8

_RECIPE = (
    "torchrun --nnodes 1 --nproc_per_node 8 -m llama_recipes.finetuning --enable_fsdp"
    " --model_name meta-llama/Llama-2-7b-hf --batch_size_training 1 --context_length 1024"
)
_WORDS = (
    "--model_name_or_path Qwen/Qwen2.5-7B --torch_dtype bfloat16 --bf16"
    " --per_device_train_batch_size 1 --num_train_epochs 1 --output_dir out"
)


def _docker(options: str, command: str = _RECIPE) -> dict[str, str]:
    return {"train.sh": f"docker run --gpus all{options} trainer \\\n    {command}\n"}


def _compose(*settings: str) -> dict[str, str]:
    lines = "".join(f"    {line}\n" for line in settings)
    return {
        "compose.yaml": (
            "services:\n"
            "  tune:\n"
            "    image: trainer\n"
            f"    command: torchrun --nproc_per_node 4 train.py {_WORDS}\n"
            f"{lines}"
            "    deploy:\n"
            "      resources:\n"
            "        reservations:\n"
            "          devices:\n"
            "            - driver: nvidia\n"
            "              count: 4\n"
            "              capabilities: [gpu]\n"
        )
    }


def _pod(volume: str) -> dict[str, str]:
    mount = "          volumeMounts: [{mountPath: /dev/shm, name: shm}]\n" if volume else ""
    return {
        "job.yaml": (
            f"{KUBERNETES_JOB}"
            "          command: [torchrun, --nproc_per_node=8, train.py]\n"
            f"          args: [{', '.join(repr(word) for word in _WORDS.split())}]\n"
            "          resources: {limits: {nvidia.com/gpu: 8}}\n"
            f"{mount}{volume}"
        )
    }


class ContainerShmTooSmall(Rule, code="OOM709", fixes=Applicability.SAFE, cost=0):
    summary = "the container's /dev/shm is too small for what ranks and workers share"
    only_where = (Where(plan={f.host.shm_gib: KNOWN}),)

    bad = (
        example(_docker(" --shm-size=256m"), _docker(" --shm-size=16g"), why="NCCL's guide asks for 1 GiB"),
        example(_docker(" --rm"), why="64 MiB by default"),
        example(_docker(
                " --shm-size=8m",
                f"python train.py {_WORDS} --model_max_length 8192 --dataloader_num_workers 64"), _docker(
                " --shm-size=16g",
                f"python train.py {_WORDS} --model_max_length 8192 --dataloader_num_workers 64"), why="64 workers hold two batches of 192 KiB each", values={f.parallel.gpus_per_node: 1}),
        example(_compose("mem_limit: 64g"), _compose("mem_limit: 64g", "shm_size: 16g")),
        example(_pod(""), why="a pod has 64 MiB unless a volume says otherwise"),
        example(_pod("      volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 64Mi}}]\n"), _pod("      volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 16Gi}}]\n")),
    )  # fmt: skip
    good = (
        example(_docker(" --ipc=host")),
        example(_docker(" --shm-size=8g")),
        example(_docker(" $OPTIONS"), why="nobody knows what the variable holds"),
        example(_compose("ipc: host")),
        example(_pod("      volumes: [{name: shm, emptyDir: {medium: Memory}}]\n")),
        example(
            _docker("", f"python train.py {_WORDS}"),
            why="one GPU and no workers",
            values={f.parallel.gpus_per_node: 1},
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        size = run.plan.host.shm_gib
        if size is None:
            return
        limit = round(size * _GIB)
        ranks = run.plan.parallel.gpus_per_node or 1
        batches = _batches(run, ranks)
        if batches > limit:
            severity = Severity.ERROR
            need = f"workers hold {gib(batches)} of batches in /dev/shm, which has {gib(limit)}"
        elif ranks > 1 and limit < _NCCL:
            is_sure = _starts_ranks(run) and not _reach_directly(run)
            is_idle = run.settings.get(shared.stops) is not None
            severity = Severity.WARNING if is_sure and not is_idle else Severity.INFO
            need = f"{ranks} ranks share buffers of NCCL in a /dev/shm of {gib(limit)}"
        else:
            return
        wish = {f.host.shm_gib: max(_PLENTY_GIB, 2 * -(-batches // _GIB))}
        yield self.finding(
            run,
            severity,
            need,
            at=f.host.shm_gib,
            details=(
                "when it is full, processes of the container die of a bus error",
                "docker gives it the host's own with --ipc=host",
                "Kubernetes gives it more by an emptyDir with medium: Memory at /dev/shm",
            ),
            confidence="high" if severity is Severity.ERROR else "medium",
            resource="shm",
            predicted=batches if batches > limit else None,
            limit=limit,
            proposals=[Proposal.set(f"give it {wish[f.host.shm_gib]} GiB", wish)],
        )


def _starts_ranks(run: Run) -> bool:
    """Whether the GPUs of a node are processes' own: one process may train on a single one of those that it sees."""
    return run.plan.parallel.backend not in ("dp", "device_map_pp")


def _reach_directly(run: Run) -> bool:
    """Whether NCCL has the GPUs of a node write into one another's memory, and puts next to nothing into /dev/shm (NCCL
    2.27.3 src/transport/p2p.cc); where nobody says which GPUs they are, none is said to be without NVLink."""
    return run.hardware is None or run.hardware.gpu.nvlink_gb_s is not None


def _batches(run: Run, ranks: int) -> int:
    """Bytes of the batches that workers have ready, on a node; 0 where they are not known."""
    plan = settled(run).plan
    workers, rows, length = plan.data.workers or 0, plan.batch.micro or 0, plan.seq.max_len or 0
    # torch 2.9 utils/data/dataloader.py: two batches for each worker unless told otherwise.
    prefetched = plan.data.prefetch or 2
    return ranks * workers * prefetched * rows * length * _BYTES_PER_TOKEN
