"""Names that shell scripts of training runs use: environment variables, launchers, options."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

# Environment variables that a training process reads, by who documents or reads them.
_BY_SOURCE: Final[dict[str, tuple[str, ...]]] = {
    # CUDA C++ Programming Guide, "CUDA Environment Variables"
    "cuda": (
        "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_CACHE_DISABLE",
        "CUDA_CACHE_PATH", "CUDA_CACHE_MAXSIZE", "CUDA_MODULE_LOADING", "CUDA_HOME", "CUDA_PATH",
        "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_AUTO_BOOST",
        "CUDA_MANAGED_FORCE_DEVICE_ALLOC", "CUDA_LOG_FILE", "CUDA_SCALE_LAUNCH_QUEUES",
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
    ),
    # ROCm documentation, "GPU isolation techniques"; Ascend CANN documentation
    "other accelerators": (
        "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES",
        "HCCL_SOCKET_IFNAME", "HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT", "HCCL_IF_IP",
        "HCCL_BUFFSIZE", "HCCL_WHITELIST_DISABLE", "HCCL_OP_EXPANSION_MODE", "ASCEND_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES", "HSA_OVERRIDE_GFX_VERSION",
        "PYTORCH_NPU_ALLOC_CONF", "ASCEND_LAUNCH_BLOCKING", "PT_HPU_LAZY_MODE",
    ),
    # PyTorch docs: "CUDA Environment Variables", "CUDA semantics", "torchrun", "Logging"
    "torch": (
        "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF",
        "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NVML_BASED_CUDA_CHECK", "PYTORCH_JIT",
        "PYTORCH_ENABLE_MPS_FALLBACK", "PYTORCH_MPS_HIGH_WATERMARK_RATIO", "PYTORCH_KERNEL_CACHE_PATH",
        "TORCH_CUDA_ARCH_LIST", "TORCH_LOGS", "TORCH_HOME", "TORCH_SHOW_CPP_STACKTRACES",
        "TORCH_DISTRIBUTED_DEBUG", "TORCH_CPP_LOG_LEVEL", "TORCH_COMPILE_DISABLE",
        "TORCHDYNAMO_DISABLE", "TORCHDYNAMO_VERBOSE", "TORCHINDUCTOR_CACHE_DIR",
        "TORCHINDUCTOR_FX_GRAPH_CACHE", "TORCHINDUCTOR_COMPILE_THREADS", "TORCH_EXTENSIONS_DIR",
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_NCCL_AVOID_RECORD_STREAMS", "TORCH_TRACE",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_ENABLE_MONITORING",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DUMP_ON_TIMEOUT",
        "TORCH_NCCL_HIGH_PRIORITY", "TORCH_NCCL_USE_COMM_NONBLOCKING", "TORCH_NCCL_DESYNC_DEBUG",
        "TORCHELASTIC_ERROR_FILE", "CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE",
        "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK", "NODE_RANK",
        "GROUP_RANK", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "MKL_THREADING_LAYER",
        "MKL_SERVICE_FORCE_INTEL", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "USE_LIBUV", "LOGLEVEL",
        "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS", "KMP_AFFINITY",
    ),
    # Of older releases (NCCL 2.3.7 and 2.4.8 docs "Environment Variables"), of Google's plug-in and of
    # torch; those of NCCL itself are in nccl.txt
    "nccl": (
        "NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT", "NCCL_CHECK_DISABLE",
        "NCCL_CHECKS_DISABLE", "NCCL_FASTRAK_CTRL_DEV", "NCCL_FASTRAK_IFNAME", "NCCL_IB_CUDA_SUPPORT",
        "NCCL_IB_GDR_LEVEL", "NCCL_LL_THRESHOLD", "NCCL_RINGS", "NCCL_SINGLE_RING_THRESHOLD", "NCCL_TIMEOUT", "NCCL_TREE_THRESHOLD",
    ),
    # huggingface_hub docs "Environment variables"; transformers, datasets and tokenizers sources
    "hugging face": (
        "HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HF_ASSETS_CACHE",
        "HF_XET_CACHE", "HF_XET_HIGH_PERFORMANCE", "HF_HUB_VERBOSITY", "HF_HUB_DISABLE_XET",
        "HF_HUB_ENABLE_HF_TRANSFER", "HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS",
        "HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT", "HF_TOKEN_PATH", "HF_DATASETS_CACHE",
        "HF_DATASETS_OFFLINE", "HF_DATASETS_IN_MEMORY_MAX_SIZE", "HF_EVALUATE_OFFLINE", "HF_MODULES_CACHE",
        "HUGGINGFACE_HUB_CACHE", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN",
        "TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE", "TRANSFORMERS_VERBOSITY",
        "TRANSFORMERS_NO_ADVISORY_WARNINGS", "TOKENIZERS_PARALLELISM", "DISABLE_MLFLOW_INTEGRATION",
    ),
    # accelerate 1.15 utils/launch.py and utils/dataclasses.py
    "accelerate": (
        "ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED", "ACCELERATE_MIXED_PRECISION",
        "ACCELERATE_CONFIG_FILE", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "ACCELERATE_LOG_LEVEL",
        "ACCELERATE_DEEPSPEED_ZERO_STAGE", "ACCELERATE_DEEPSPEED_CONFIG_FILE", "ACCELERATE_USE_CPU",
        "ACCELERATE_USE_MEGATRON_LM", "ACCELERATE_DYNAMO_BACKEND", "ACCELERATE_DEBUG_MODE",
        "ACCELERATE_USE_PARALLELISM_CONFIG", "ACCELERATE_CPU_AFFINITY", "ACCELERATE_TORCH_DEVICE",
        "FSDP_VERSION", "FSDP_SHARDING_STRATEGY", "FSDP_OFFLOAD_PARAMS", "FSDP_MIN_NUM_PARAMS",
        "FSDP_AUTO_WRAP_POLICY", "FSDP_TRANSFORMER_CLS_TO_WRAP", "FSDP_BACKWARD_PREFETCH",
        "FSDP_FORWARD_PREFETCH", "FSDP_STATE_DICT_TYPE", "FSDP_USE_ORIG_PARAMS", "FSDP_RESHARD_AFTER_FORWARD",
        "FSDP_CPU_RAM_EFFICIENT_LOADING", "FSDP_SYNC_MODULE_STATES", "FSDP_ACTIVATION_CHECKPOINTING",
    ),
    # LLaMA-Factory src/llamafactory/launcher.py, extras/misc.py and .env.local
    "llama-factory": (
        "FORCE_TORCHRUN", "NPROC_PER_NODE", "NNODES", "DISABLE_VERSION_CHECK", "USE_MODELSCOPE_HUB",
        "USE_OPENMIND_HUB", "LLAMAFACTORY_VERBOSITY", "LLAMABOARD_ENABLED", "ALLOW_EXTRA_ARGS",
        "FORCE_CHECK_IMPORTS", "OPTIM_TORCH", "USE_RAY", "USE_MCA", "USE_V1", "RECORD_VRAM", "PURE_BF16",
    ),
    # ms-swift docs "Command-line parameters", "Specific model arguments", and swift/cli/main.py
    "ms-swift": (
        "MAX_PIXELS", "MIN_PIXELS", "IMAGE_MAX_TOKEN_NUM", "IMAGE_MIN_TOKEN_NUM", "VIDEO_MAX_PIXELS",
        "VIDEO_MIN_PIXELS", "VIDEO_TOTAL_PIXELS", "VIDEO_MAX_TOKEN_NUM", "VIDEO_MIN_TOKEN_NUM",
        "FPS_MAX_FRAMES", "FPS_MIN_FRAMES", "NFRAMES", "IMAGE_FACTOR", "FRAME_FACTOR", "SIZE_FACTOR",
        "MODELSCOPE_CACHE", "MODELSCOPE_API_TOKEN", "USE_HF", "PYTORCH_MPS_LOW_WATERMARK_RATIO",
        "SWIFT_PATCH_CONV3D", "SWIFT_UI_LANG", "SWIFT_TIMEOUT", "SWIFT_DEBUG", "ROOT_IMAGE_DIR",
        "ENABLE_AUDIO_OUTPUT", "USE_AUDIO_IN_VIDEO", "QWENVL_BBOX_FORMAT", "MAX_NUM_FRAMES",
        "MAX_SLICE_NUMS", "VIDEO_MAX_SLICE_NUMS", "VIDEO_SEGMENTS", "INPUT_SIZE", "MAX_NUM",
        "IMAGE_MAX_PIXELS", "IMAGE_MIN_PIXELS", "SPATIAL_MERGE_SIZE", "DYNAMIC_IMAGE_SIZE",
        "NPROC_PER_NODE", "SKIP_MULTIMODAL_MTP_VALIDATION",
    ),
    # DeepSpeed deepspeed/runtime and launcher; vLLM "Environment Variables"; Weights & Biases docs
    "others": (
        "DEEPSPEED_CONFIG_FILE", "DS_SKIP_CUDA_CHECK", "DS_BUILD_OPS", "DS_BUILD_CPU_ADAM",
        "DS_BUILD_FUSED_ADAM", "DS_BUILD_UTILS", "DS_BUILD_AIO", "DS_ACCELERATOR", "DS_ENV_FILE",
        "DLTS_HOSTFILE", "DEEPSPEED_TIMEOUT",
        "VLLM_ATTENTION_BACKEND", "VLLM_USE_V1", "VLLM_WORKER_MULTIPROC_METHOD", "VLLM_LOGGING_LEVEL",
        "VLLM_USE_MODELSCOPE", "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "VLLM_ENGINE_ITERATION_TIMEOUT_S",
        "VLLM_NO_USAGE_STATS", "VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_DISABLE_COMPILE_CACHE",
        "VLLM_ALLREDUCE_USE_SYMM_MEM", "VLLM_CONFIGURE_LOGGING", "VLLM_HOST_IP", "VLLM_PORT",
        "WANDB_PROJECT", "WANDB_API_KEY", "WANDB_MODE", "WANDB_ENTITY", "WANDB_NAME", "WANDB_DIR",
        "WANDB_DISABLED", "WANDB_RUN_ID", "WANDB_RESUME", "WANDB_WATCH", "WANDB_LOG_MODEL", "WANDB_NOTES",
        "WANDB_RUN_GROUP", "WANDB_TAGS", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR",
        "WANDB_BASE_URL", "WANDB_SILENT", "WANDB_CONSOLE", "WANDB_JOB_TYPE", "WANDB_ARTIFACT_DIR",
        "SWANLAB_API_KEY", "SWANLAB_MODE", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "COMET_MODE",
        "NVTE_FUSED_ATTN", "NVTE_FLASH_ATTN", "NVTE_UNFUSED_ATTN", "NVTE_DEBUG", "NVTE_DEBUG_LEVEL",
        "NVTE_TORCH_COMPILE", "NVTE_FRAMEWORK", "NVTE_APPLY_QK_LAYER_SCALING", "NVTE_CPU_OFFLOAD_V1",
        "NVTE_FWD_LAYERNORM_SM_MARGIN", "NVTE_BWD_LAYERNORM_SM_MARGIN", "NVTE_ALLOW_NONDETERMINISTIC_ALGO",
        "RAY_ADDRESS", "RAY_DEDUP_LOGS", "RAY_TMPDIR", "RAY_memory_monitor_refresh_ms", "HYDRA_FULL_ERROR",
        "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONWARNINGS", "PYTHONFAULTHANDLER", "PYTHONHASHSEED",
        "LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "TRITON_CACHE_DIR", "XDG_CACHE_HOME",
        "SLURM_JOB_ID", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID",
        "SLURM_GPUS_ON_NODE", "SLURM_JOB_NODELIST", "SLURM_CPUS_PER_TASK", "SLURM_JOB_NUM_NODES",
        "FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "FI_EFA_FORK_SAFE", "FI_LOG_LEVEL", "UCX_NET_DEVICES",
        "UCX_TLS", "OMPI_MCA_btl_tcp_if_include", "GOTO_NUM_THREADS", "MALLOC_ARENA_MAX",
        "SAFETENSORS_FAST_GPU", "BNB_CUDA_VERSION", "BITSANDBYTES_NOWELCOME", "UNSLOTH_IS_PRESENT",
        "UNSLOTH_RETURN_LOGITS", "UNSLOTH_DISABLE_AUTO_UPDATES", "UNSLOTH_VLLM_STANDBY",
        "AXOLOTL_DO_NOT_TRACK", "AXOLOTL_NCCL_TIMEOUT", "TRL_EXPERIMENTAL_SILENCE", "LOCAL_DIR",
        "MEGATRON_LM_PATH", "TIKTOKEN_CACHE_DIR", "NLTK_DATA", "TF_CPP_MIN_LOG_LEVEL", "SGLANG_VLM_CACHE_SIZE_MB",
    ),
}  # fmt: skip

_LISTED: Final = frozenset(name for names in _BY_SOURCE.values() for name in names)


@cache
def known_environment() -> frozenset[str]:
    """The variables that a training process, or a library that it loads, reads."""
    text = Path(__file__).with_name("nccl.txt").read_text("utf-8")
    return _LISTED.union(line for line in text.splitlines() if not line.startswith("#"))


# What the shell itself sets, whoever starts it (bash(1) 5.2, "Shell Variables").
SHELL_VARIABLES: Final = frozenset(
    {
        "BASH", "BASHOPTS", "BASHPID", "BASH_ARGC", "BASH_ARGV", "BASH_ARGV0", "BASH_COMMAND", "BASH_LINENO",
        "BASH_REMATCH", "BASH_SOURCE", "BASH_SUBSHELL", "BASH_VERSINFO", "BASH_VERSION", "COLUMNS", "COPROC",
        "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "GROUPS", "HISTCMD", "HOSTNAME",
        "HOSTTYPE", "IFS", "LINENO", "LINES", "MACHTYPE", "OLDPWD", "OPTARG", "OPTIND", "OSTYPE", "PIPESTATUS",
        "PPID", "PWD", "RANDOM", "REPLY", "SECONDS", "SHELLOPTS", "SHLVL", "SRANDOM", "UID",
    }
)  # fmt: skip

# Read by no library: names that scripts commonly choose themselves, so no typing errors.
CUSTOMARY_NAMES: Final = frozenset(
    {
        "GPUS_PER_NODE", "NUM_GPUS", "NUM_NODES", "NUM_PROCESSES", "MASTER_HOST", "NODE_NAME", "NGPUS",
        "MODEL_PATH", "MODEL_NAME", "DATA_PATH", "OUTPUT_DIR", "OUTPUT_PATH", "EXP_NAME", "RUN_NAME",
        "NODES_RANK", "NUM_WORKERS", "PROJECT_NAME", "DATASET_PATH", "MODEL_DIR", "CACHE_DIR",
    }
)  # fmt: skip

# Of these only what changes where or how a run uses memory or devices: a script that sets one
# and does not export it has gone wrong, whatever else it does with its own variables.
MUST_BE_EXPORTED: Final = frozenset(
    {
        "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS",
        "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES",
        "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF",
        "PYTORCH_NPU_ALLOC_CONF", "CUBLAS_WORKSPACE_CONFIG", "TORCH_NCCL_AVOID_RECORD_STREAMS",
        "NPROC_PER_NODE", "FORCE_TORCHRUN", "NNODES", "MAX_PIXELS", "MIN_PIXELS", "VIDEO_MAX_PIXELS",
        "VIDEO_TOTAL_PIXELS", "VIDEO_MIN_PIXELS", "FPS_MAX_FRAMES", "IMAGE_MAX_TOKEN_NUM",
        "VIDEO_MAX_TOKEN_NUM", "MAX_NUM_FRAMES", "ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED",
        "ACCELERATE_MIXED_PRECISION", "ACCELERATE_DEEPSPEED_ZERO_STAGE", "FSDP_CPU_RAM_EFFICIENT_LOADING",
        "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE",
        "NCCL_BUFFSIZE", "NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE", "WANDB_MODE", "WANDB_DISABLED",
        "HF_HOME", "HF_HUB_OFFLINE", "MALLOC_ARENA_MAX",
    }
)  # fmt: skip

# Programs whose own options come first and take at most one value, followed by the program
# or script that they start (torch.distributed.run, accelerate launch, deepspeed, Slurm, MPI).
LAUNCHERS: Final = frozenset(
    {
        "torchrun", "deepspeed", "accelerate", "srun", "mpirun", "mpiexec", "composer", "tune",
        "horovodrun", "ray", "torch.distributed.run", "torch.distributed.launch",
        "accelerate.commands.launch", "accelerate.commands.accelerate_cli", "deepspeed.launcher.runner",
        "fabric", "colossalai", "uv", "poetry", "pipenv", "conda", "micromamba", "pixi", "singularity",
        "apptainer", "torchx", "msrun", "paddle.distributed.launch", "timeout", "numactl", "nsys",
        "ncu", "taskset", "ssh", "pdsh", "salloc", "sbatch", "mpiexec.hydra", "prun", "flux", "jsrun",
        "accelerate-launch", "ionice", "proxychains", "proxychains4", "py-spy", "ds_ssh", "gantry",
        "hyperpodrun",
    }
)  # fmt: skip
_SUBCOMMANDS: Final = {
    "accelerate": {"launch"},
    "accelerate.commands.accelerate_cli": {"launch"},
    "tune": {"run"},
    "ray": {"job", "submit"},
    "uv": {"run"},
    "poetry": {"run"},
    "pipenv": {"run"},
    "conda": {"run"},
    "micromamba": {"run"},
    "pixi": {"run"},
    "fabric": {"run", "model"},
    "colossalai": {"run"},
    "singularity": {"exec", "run"},
    "apptainer": {"exec", "run"},
    "nsys": {"profile", "launch"},
    "py-spy": {"record"},
    "gantry": {"run"},
    "flux": {"run", "submit"},
}
# Launchers whose first plain words, after the subcommand, are their own: a duration, an image.
_OPERANDS: Final = {"timeout": 1, "singularity": 1, "apptainer": 1, "ssh": 1}


def operands_of(launcher: str) -> int:
    """How many plain words a launcher takes before the program that it starts."""
    return _OPERANDS.get(launcher, 0)


def is_subcommand(launcher: str, word: str) -> bool:
    """Whether ``word`` belongs to the launcher itself (``accelerate launch``)."""
    return word in _SUBCOMMANDS.get(launcher, ())


# Options of the launchers above that take no value (keys as folded by the shell reader):
# torch/distributed/run.py, accelerate/commands/launch.py, deepspeed/launcher/runner.py, srun(1).
BARE_OPTIONS: Final = frozenset(
    {
        "standalone", "no_python", "run_path", "use_env", "multi_gpu", "cpu", "tpu", "use_deepspeed",
        "use_fsdp", "use_megatron_lm", "use_xpu", "use_parallelism_config", "quiet", "same_network",
        "debug", "no_local_rank", "force_multi", "save_pid", "bind_cores_to_rank", "no_ssh", "exclusive",
        "unbuffered", "label", "pty", "overlap", "verbose", "no_kill", "kill_on_bad_exit", "u", "l",
        "v", "k", "Q", "allow_run_as_root", "oversubscribe", "multirun", "nv", "no_capture_output",
        "live_stream", "no_sync", "active", "dynamo_use_fullgraph", "dynamo_use_dynamic", "i", "O", "B",
        "use_mps_device", "enable_cpu_affinity",
        "disable_elastic", "ipex", "tag_output", "report_bindings", "nooversubscribe", "merge_stderr_to_stdout",
        "f", "foreground", "preserve_status", "contiguous", "cleanenv", "contain", "containall", "rocm",
    }
)  # fmt: skip


# The same letters elsewhere: a folder to bind, a file of hosts (MPICH 4 mpiexec(1)).
_TAKE_A_VALUE: Final = {
    "B": ("singularity", "apptainer"),
    "f": ("mpirun", "mpiexec", "mpiexec.hydra"),
}


def is_bare(launcher: str, option: str) -> bool:
    """Whether an option before the program takes no value."""
    return option in BARE_OPTIONS and launcher not in _TAKE_A_VALUE.get(option, ())


# Options of the MPI launchers that take a name and a value (mpirun(1) of Open MPI and MPICH).
PAIRED_OPTIONS: Final = frozenset({"mca", "gmca", "prtemca", "pmixmca", "genv", "env"})

# Programs that run the rest of their line: what follows is the command that matters.
WRAPPERS: Final = frozenset(
    {"nohup", "time", "env", "exec", "command", "nice", "stdbuf", "setsid", "sudo", "builtin", "eval"}
)  # fmt: skip

SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash", "ksh"})

_LAUNCHES: Final = LAUNCHERS | {
    "python", "python3", "swift", "megatron", "llamafactory-cli", "lmf", "axolotl", "litgpt", "trl",
    "xtuner", "openrlhf", "ipython",
}  # fmt: skip


def is_launch(program: str) -> bool:
    """Whether a program is one that starts training (or Python at least)."""
    name = program.rsplit("/", 1)[-1]
    return name in _LAUNCHES or name.startswith("python3.")


# Slurm's one-letter options, sbatch(1).
SBATCH_SHORT: Final = {
    "N": "nodes", "n": "ntasks", "G": "gpus", "c": "cpus_per_task", "p": "partition", "J": "job_name",
    "t": "time", "o": "output", "e": "error", "A": "account", "w": "nodelist", "x": "exclude",
    "C": "constraint", "q": "qos", "a": "array", "D": "chdir", "d": "dependency",
}  # fmt: skip
