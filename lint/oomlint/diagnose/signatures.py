"""What lines of a log tell of a run's death: a table of messages, with what each one means.

The messages were read in the sources named beside them, and in public issue threads. A row has
bytes that its message cannot be without (``needles``), which are looked for first, and a pattern
that the line must match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from oomlint.diagnose.phases import Phase
from oomlint.linting.rule import Resource

Scope = Literal["device", "process", "container", "job", "node"]
Role = Literal["cause", "death", "follower", "outside", "hint"]
"""``cause`` says what ran out; ``death`` that a process was killed, not why; ``follower`` is what
other processes say once one is dead; ``outside`` is an end that somebody wanted; a ``hint`` kills
nobody."""


class Signature(Struct, frozen=True, eq=False):
    """One kind of message."""

    name: str
    role: Role
    title: str
    """What it means, to stand after "rank 3:"."""
    resource: Resource | None = None
    scope: Scope | None = None
    needles: tuple[bytes, ...] = ()
    pattern: re.Pattern[str] | None = None
    phase: Phase | None = None
    """The phase that such a message can only come from."""
    advice: str = ""
    is_sure: bool = True
    """Whether the message leaves no other explanation."""


def _row(
    name: str,
    role: Role,
    title: str,
    needles: Iterable[bytes],
    pattern: str | None = None,
    *,
    resource: Resource | None = None,
    scope: Scope | None = None,
    phase: Phase | None = None,
    advice: str = "",
    is_sure: bool = True,
) -> Signature:
    compiled = re.compile(pattern) if pattern else None
    return Signature(
        name, role, title, resource, scope, tuple(needles), compiled, phase, advice, is_sure
    )


_GPU = (
    # c10/cuda/CUDACachingAllocator.cpp in every version from 1.0 on, torch_npu's and XPU's copies
    # of it; 2.10's c10/core/CachingDeviceAllocator.h leaves the vendor out.
    _row(
        "gpu-out-of-memory", "cause", "the GPU ran out of memory",
        [b"ut of memory. Tried to allocate", b"ut of memory.\nTried to allocate"],
        r"(?:CUDA|HIP|NPU|XPU|MUSA|MLU|\bO)ut of memory\.|"
        r"(?:CUDA|HIP|NPU|XPU|MUSA|MLU|DCU) out of memory\.|[Oo]ut of memory\.",
        resource="gpu", scope="device",
    ),
    # cudaGetErrorString(2) where an allocation bypasses the caching allocator or its expandable
    # segments ask the driver; torch 0.4 counted runtime errors; 2.9 raises AcceleratorError.
    _row(
        "gpu-out-of-memory", "cause", "the GPU ran out of memory",
        [b"error: out of memory", b"error (2) : out of memory", b"error (2): out of memory",
         b"Error 2, out of memory", b"ErrorOutOfMemory", b"cudaErrorMemoryAllocation",
         b"CUDA_ERROR_OUT_OF_MEMORY", b"backend out of memory", b"memory space hbm",
         b"ERROR_OUT_OF_DEVICE_MEMORY", b"Allocation failed for size::"],
        r"(?:CUDA|HIP|NPU)(?: driver)? error: out of memory|error \(2\) ?: out of memory|"
        r"CUDA Error 2, out of memory|hipErrorOutOfMemory|cudaErrorMemoryAllocation|"
        r"CUDA_ERROR_OUT_OF_MEMORY|MPS backend out of memory|Ran out of memory in memory space hbm|"
        r"ERROR_OUT_OF_DEVICE_MEMORY|PT_DEVMEM Allocation failed for size::",
        resource="gpu", scope="device",
    ),
    # cublasCreate takes its workspace outside of torch's allocator, as cuDNN's handles do.
    _row(
        "library-allocation-failed", "cause",
        "a CUDA library found no memory left on the GPU for its own workspace",
        [b"_STATUS_ALLOC_FAILED", b"CUSOLVER_STATUS_INTERNAL_ERROR"],
        r"(?:CUBLAS|CUDNN|CUSPARSE|CUSOLVER)_STATUS_ALLOC_FAILED",
        resource="gpu", scope="device",
        advice="the allocator had taken all of the card: what helps against out of memory in the "
               "same phase helps here",
    ),
    _row(
        "library-not-initialized", "cause",
        "a CUDA library could not be set up, which a full GPU is the usual reason for",
        [b"_STATUS_NOT_INITIALIZED"],
        r"(?:CUBLAS|CUDNN)_STATUS_NOT_INITIALIZED",
        resource="gpu", scope="device", is_sure=False,
        advice="an index out of range on the GPU or a driver that does not go with the CUDA "
               "libraries looks the same: run one step with CUDA_LAUNCH_BLOCKING=1",
    ),
    # NCCL allocates its buffers with cudaMalloc (src/include/alloc.h), beside torch, which repeats NCCL's
    # words without their head under "Last error:" (ProcessGroupNCCL, ncclGetLastError).
    _row(
        "nccl-out-of-memory", "cause", "NCCL found no memory left on the GPU for its buffers",
        [b"Cuda failure ", b"NCCL WARN Failed to CUDA calloc"],
        r"Cuda failure (?:\d+ )?'out of memory'|NCCL WARN Failed to CUDA calloc",
        resource="gpu", scope="device",
        advice="leave it a GiB or two: torch had taken the rest of the card",
    ),
    # bitsandbytes csrc/compat.cuh (earlier ops.cu, pythonInterface.c): CUDA_CHECK_RETURN.
    _row(
        "bitsandbytes-out-of-memory", "cause",
        "bitsandbytes found no memory for managed (paged) or device buffers",
        [b"rror out of memory at line"], r"Error out of memory at line \d+ in file",
        resource="gpu", scope="device",
        advice="a paged optimizer allocates managed memory, which needs room in host RAM as well",
    ),
    # transformers/quantizers/quantizer_bnb_4bit.py and _8bit.py, validate_environment.
    _row(
        "dispatched-to-cpu", "cause", "the quantized model did not fit on the GPUs it was given",
        [b"Some modules are dispatched on the CPU"], resource="gpu", scope="device", phase="load",
    ),
)  # fmt: skip

_ENGINE = (
    # vllm/v1/core/kv_cache_utils.py and, before V1, vllm/worker/worker.py.
    _row(
        "no-room-for-kv-cache", "cause",
        "vLLM's share of the GPU was taken up before its KV cache came",
        [b"No available memory for the cache blocks"], resource="gpu", scope="device",
        phase="rollout",
        advice="raise gpu_memory_utilization if the card has room, else free what shares it "
               "(sleep mode, smaller training share) or use more tensor parallel ranks",
    ),
    _row(
        "kv-cache-too-small", "cause",
        "vLLM's KV cache cannot hold one sequence of the model's full length",
        [b"that can be stored in KV cache", b"KV cache is needed, which is larger than"],
        resource="gpu", scope="device", phase="rollout",
        advice="set max_model_len to prompt plus completion, the most that training asks for",
    ),
    _row(
        "engine-share-taken", "cause",
        "less of the GPU was free than vLLM was told to take",
        [b"Free memory on device"],
        r"Free memory on device [^(]*\([\d.]+/[\d.]+ GiB\) on startup is less than",
        resource="gpu", scope="device", phase="rollout",
        advice="lower gpu_memory_utilization, or start the engine before training fills the card",
    ),
    # sglang/srt/model_executor/model_runner.py.
    _row(
        "no-room-for-kv-cache", "cause",
        "SGLang's share of the GPU was taken up before its KV cache came",
        [b"Please try to increase --mem-fraction-static"], resource="gpu", scope="device",
        phase="rollout", advice="raise mem_fraction_static, or free what shares the card",
    ),
)  # fmt: skip

_HOST = (
    # mm/oom_kill.c: "Out of memory" of the node, "Memory cgroup out of memory" of a container or
    # job; kernels before 4.19 write "Kill process N" first and the sizes in the next line.
    _row(
        "kernel-oom-kill", "cause", "the kernel killed a process because memory had run out",
        [b"Killed process ", b"Kill process "],
        r"[Oo]ut of memory.*Kill(?:ed)? process \d+|Killed process \d+,? \(.*anon-rss:",
        resource="host", scope="node",
    ),
    _row(
        "userspace-oom-kill", "cause", "a daemon killed a process because memory was nearly gone",
        [b"systemd-oomd", b"earlyoom"],
        r"systemd-oomd.*Killed \S+ due to|earlyoom.*sending SIG\w+ to process",
        resource="host", scope="node",
    ),
    # slurm/src/slurmd/slurmstepd/mgr.c (step and job), slurmd/common/task_cgroup; srun's own line.
    _row(
        "slurm-oom-kill", "cause", "the job's processes were killed at the memory limit of Slurm",
        [b"oom-kill event", b"oom_kill event", b"memory limit", b": Out Of Memory", b"OOM Killed"],
        r"Detected \d+ oom[-_]kill event|[Ee]xceeded (?:job|step) memory limit|"
        r"srun: error: \S+: tasks? [\d,-]+: Out Of Memory|exceeded memory limit \(\d+ > \d+\)",
        resource="host", scope="job",
    ),
    _row(
        "slurm-oom-state", "cause", "Slurm's accounting says that the job ran out of memory",
        [b"OUT_OF_ME"], r"(?:^|[|\s])OUT_OF_ME(?:MORY|\+|\b)(?!.*CUDA)",
        resource="host", scope="job",
    ),
    # kubelet: pkg/kubelet/kuberuntime (reason), pkg/kubelet/eviction/helpers.go (messages).
    _row(
        "kubernetes-oom-kill", "cause", "the container was killed at its memory limit",
        [b"OOMKilled"], r"OOMKilled(?!\"?\s*[:=]\s*\"?[Ff]alse)",
        resource="host", scope="container",
    ),
    _row(
        "kubernetes-evicted", "cause", "the pod was evicted because its node was short of memory",
        [b"low on resource: memory", b"MemoryPressure"],
        r"low on resource: memory|Evict\w*.*MemoryPressure|MemoryPressure +True",
        resource="host", scope="node",
    ),
    # ray/core: memory monitor (since 2.0), and the Python one before it.
    _row(
        "ray-oom-kill", "cause", "Ray killed a worker because its node was short of memory",
        [b"running low on memory", b"due to memory pressure (OOM)", b"RayOutOfMemoryError"],
        r"killed due to the node running low on memory|"
        r"[1-9]\d* Workers \(tasks / actors\) killed due to memory pressure \(OOM\)|"
        r"RayOutOfMemoryError: More than",
        resource="host", scope="node",
        advice="RAY_memory_usage_threshold only moves the line; give the node more RAM or keep "
               "less there",
    ),
    # c10/core/impl/alloc_cpu.cpp.
    _row(
        "cpu-allocation-failed", "cause", "host memory could not be allocated",
        [b"DefaultCPUAllocator: "],
        r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)",
        resource="host", scope="process",
    ),
    _row(
        "cpu-allocation-failed", "cause", "host memory could not be allocated",
        [b"bad_alloc", b"MemoryError", b"Cannot allocate memory", b"paging file is too small",
         b"Unable to allocate "],
        r"std::bad_alloc|(?:^|[\s.:])(?:_Array|Arrow)?MemoryError\b|\bCannot allocate memory|"
        r"paging file is too small|Unable to allocate [\d.]+ [KMGT]iB for an array",
        resource="host", scope="process",
        advice="with RAM to spare this is a limit on address space: ulimit -v, "
               "vm.overcommit_memory=2 or vm.max_map_count",
    ),
    # datasets/utils/py_utils.py, iflatmap_unordered.
    _row(
        "preprocessing-died", "cause",
        "a process that prepared the data was killed, which RAM running out is the usual reason for",
        [b"subprocesses has abruptly died during map"],
        resource="host", scope="node", phase="data", is_sure=False,
        advice="prepare the data with fewer processes",
    ),
    # torch/csrc/DataLoader.cpp.
    _row(
        "dataloader-killed", "cause",
        "a data loader's worker was killed, which RAM running out is the usual reason for",
        [b"is killed by signal: Killed"], resource="host", scope="node", is_sure=False,
        advice="fewer workers, or a smaller prefetch_factor",
    ),
)  # fmt: skip

_SHM = (
    _row(
        "shm-exhausted", "cause", "/dev/shm is full",
        [b"killed by signal: Bus error", b"insufficient shared memory", b"out of shared memory"],
        r"DataLoader worker \(pid \d+\) is killed by signal: Bus error|"
        r"might be caused by insufficient shared memory",
        resource="shm", scope="container",
        advice="start the container with a larger --shm-size (or --ipc=host), in Kubernetes an "
               "emptyDir with medium: Memory on /dev/shm; or use fewer loader workers",
    ),
    # torch's shared memory files (ATen/MapAllocator.cpp) and NCCL's (src/misc/shmutils.cc).
    _row(
        "shm-exhausted", "cause", "/dev/shm is full",
        [b"/dev/shm", b"</torch_"],
        r"shared memory segment /dev/shm/nccl.*(?:size|No space)|/dev/shm\S*.*No space left|"
        r"No space left.*/dev/shm|unable to (?:write|allocate|resize).*</torch_|"
        r"unable to mmap \d{7,} bytes from file </torch_",
        resource="shm", scope="container",
        advice="start the container with a larger --shm-size (or --ipc=host), in Kubernetes an "
               "emptyDir with medium: Memory on /dev/shm",
    ),
)  # fmt: skip

_DISK = (
    _row(
        "disk-full", "cause", "the disk (or its quota) is full",
        [b"No space left on device", b"Disk quota exceeded", b"StorageFull",
         b"PytorchStreamWriter failed writing", b"exceeded its local ephemeral storage"],
        r"No space left on device|Disk quota exceeded|StorageFull|"
        r"PytorchStreamWriter failed writing file|exceeded its local ephemeral storage|"
        r"low on resource: ephemeral-storage",
        resource="disk",
        advice="keep fewer checkpoints (save_total_limit) or leave the optimizer states out of them",
    ),
    _row(
        "disk-full", "cause", "the disk (or its quota) is full",
        [b"low on resource: ephemeral-storage"], resource="disk", scope="node",
        advice="keep fewer checkpoints, or write them to a volume",
    ),
)  # fmt: skip

_SHAPE = (
    # torch/distributed/fsdp/_flat_param.py, _validate_tensors_to_flatten; accelerate's older check.
    _row(
        "fsdp-integer-parameters", "cause",
        "FSDP was to flatten parameters that are stored as integers (quantized weights)",
        [b"Cannot flatten integer dtype tensors", b"Integer parameters are unsupported"],
        phase="load",
        advice="bnb_4bit_quant_storage must be the dtype of the other weights; 8-bit weights do "
               "not go with FSDP",
    ),
)  # fmt: skip

_KILLED_LINE = (
    r"(?:^|line \d+: +\d+ +|\s)(?P<name>Killed)\s*(?:$|\(core|(?:[\w./-]*/)?"
    r"(?:python|torchrun|accelerate|deepspeed|CUDA_VISIBLE|nohup|llamafactory|axolotl|swift|tune|"
    r"bash|sh)\b)|exited on signal 9 \((?P<name2>Killed)\)"
)
# Ends of processes; what the number means is in SIGNALS.
_EXITS = (
    # torch/distributed/elastic/multiprocessing/{api.py,errors/__init__.py}.
    (b"exitcode", r"exitcode *: *(?P<code>-?\d{1,10})[,)]? ?(?:local_rank|\(pid)"),
    (b"received by PID", r"Signal (?P<signal>\d{1,3}) \(SIG\w+\) received by PID"),
    # deepspeed/launcher/launch.py.
    (b"exits with return code", r"exits with return code = (?P<code>-?\d{1,10})"),
    # subprocess.CalledProcessError, which `accelerate launch` ends with.
    (b"died with <Signals.", r"died with <Signals\.\w+: (?P<signal>\d{1,3})>"),
    (b"non-zero exit status", r"returned non-zero exit status (?P<code>-?\d{1,10})"),
    # torch/multiprocessing/spawn.py.
    (b"terminated with signal", r"terminated with signal SIG(?P<name>[A-Z]+)"),
    # bash, zsh and their translations; PyCharm; docker and kubectl; Open MPI; srun.
    (b"Killed", _KILLED_LINE),
    (b" killed ", r"\[\d+\]\s+(?:\+\s+)?\d+ (?P<name>killed) "),
    ("已杀死".encode(), r"(?P<name>已杀死)"),
    (b"exit code", r"[Ee]xit [Cc]ode:? +(?P<code>13[4579]|143|247)\b"),
    (b"Exit Code", r"[Ee]xit [Cc]ode:? +(?P<code>13[4579]|143|247)\b"),
    (b"exitCode", r"\"?exitCode\"?: *(?P<code>13[4579]|143)\b"),
    (b"Exited (1", r"Exited \((?P<code>13[4579]|143)\)"),
    (b"Bus error", r"(?:^|: |\s)(?P<name>Bus error)(?: +\(core dumped\))?(?:$|\s+\S*python)"),
)  # fmt: skip

_KILLED = _row(
    "killed", "death", "a process was killed (signal 9) with no word of its own",
    (), resource="host", scope="node", is_sure=False,
    advice="look for the kernel's word: `dmesg -T | grep -i -E 'oom|killed process'` on that node, "
           "`sacct -j JOB -o State,MaxRSS,ReqMem`, `kubectl describe pod`, and give it to oomlint "
           "diagnose along with the log",
)  # fmt: skip
_BUS_ERROR = _row(
    "bus-error", "death", "a process died of a bus error (signal 7), which a full /dev/shm causes",
    (), resource="shm", scope="container", is_sure=False,
    advice="start the container with a larger --shm-size (or --ipc=host); a file that was cut "
           "short while it was mapped looks the same",
)  # fmt: skip
_STOPPED = _row("stopped", "outside", "the run was told to stop (SIGINT, SIGHUP or SIGTERM)", ())
_CRASHED = _row(
    "crashed", "death", "a process crashed (segmentation fault or abort), not of memory by itself",
    (), is_sure=False,
)  # fmt: skip
_FAILED = _row("failed", "follower", "a process ended with an error of its own", ())

# cudaHostAlloc and cudaHostRegister, which torch's pin_memory calls, fail with the same words.
PINNED = _row(
    "pinned-memory", "cause", "host memory could not be pinned (page-locked) for the GPU",
    (), resource="host", scope="process",
    advice="pin less (dataloader_pin_memory, pin_memory of an offload), or raise ulimit -l; WSL and "
           "Windows lock about half of the RAM at most",
)  # fmt: skip

# signal(7): by number and by the names that shells and launchers print.
SIGNALS = {
    9: _KILLED, "KILL": _KILLED, "Killed": _KILLED, "killed": _KILLED, "已杀死": _KILLED,
    7: _BUS_ERROR, "BUS": _BUS_ERROR, "Bus error": _BUS_ERROR,
    1: _STOPPED, 2: _STOPPED, 15: _STOPPED, "TERM": _STOPPED, "INT": _STOPPED, "HUP": _STOPPED,
    6: _CRASHED, 11: _CRASHED, "SEGV": _CRASHED, "ABRT": _CRASHED,
}  # fmt: skip


def of_exit(match: re.Match[str]) -> Signature | None:
    """What an exit code or signal means; ``None`` where a process ended well."""
    groups = match.groupdict()
    name = groups.get("name") or groups.get("name2")
    if name:
        return SIGNALS.get(name, _CRASHED)
    number = int(groups.get("signal") or 0) or _signal_of(int(groups.get("code") or 0))
    if number == 0:
        return None if groups.get("code") == "0" else _FAILED
    return SIGNALS.get(number, _CRASHED)


def _signal_of(code: int) -> int:
    """The signal in an exit code: negative in Python, above 128 in shells; -9 as a byte is 247."""
    if code < 0:
        return -code
    if code == 247:
        return 9
    return code - 128 if 128 < code < 160 else 0


_FOLLOWERS = (
    # torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp.
    _row(
        "nccl-timeout", "follower", "waited for another rank until NCCL gave up",
        [b"collective operation timeout", b"NCCL operations have failed or timed out",
         b"watchdog got stuck"],
    ),
    _row(
        "connection-lost", "follower", "lost the connection to another rank",
        [b"Connection reset by peer", b"Connection closed by", b"ncclRemoteError",
         b"recvValue failed", b"NCCL communicator was aborted", b"Broken pipe",
         b"worker process has died", b"Socket recv failed"],
    ),
    _row(
        "terminated-by-launcher", "follower", "was ended by the launcher, for another had failed",
        [b"closing signal SIGTERM", b"Killing subprocess", b"launch/slurm: _step_signal",
         b"srun: Terminating"],
    ),
)  # fmt: skip

_OUTSIDE = (
    _row(
        "time-limit", "outside", "the scheduler ended the job at its time limit",
        [b"DUE TO TIME LIMIT", b"DeadlineExceeded"],
    ),
    _row(
        "preempted", "outside", "the scheduler took the node away",
        [b"DUE TO PREEMPTION", b"DUE TO NODE FAILURE", b"Preempted in order to"],
    ),
    _row(
        "stopped", "outside", "the run was told to stop (SIGINT, SIGHUP or SIGTERM)",
        [b"death signal, shutting down", b"got signal: ", b"KeyboardInterrupt"],
        r"Received \d+ death signal|got signal: (?:1|2|15)\b|^(?:.*: )?KeyboardInterrupt",
    ),
)  # fmt: skip

_HINTS = (
    # deepspeed/runtime/zero/stage3.py: memory pressure that torch answered by emptying its cache.
    _row(
        "allocator-flushes", "hint",
        "the allocator emptied its cache again and again: the card is full, and steps are slow",
        [b"pytorch allocator cache flushes since last step"], resource="gpu", scope="device",
    ),
)  # fmt: skip

# The order decides where a line matches several.
SIGNATURES: tuple[Signature, ...] = (
    *_GPU, *_ENGINE, *_SHAPE, *_SHM, *_DISK, *_HOST, *_FOLLOWERS, *_OUTSIDE, *_HINTS,
)  # fmt: skip

EXITS: tuple[tuple[bytes, re.Pattern[str]], ...] = tuple(
    (needle, re.compile(pattern)) for needle, pattern in _EXITS
)
