"""The frameworks that people fork or carry a copy of, and which of their files matter.

Paths are regular expressions over those of the framework's repository, over its whole history (``git log``).
"""

from __future__ import annotations

from msgspec import Struct


class Modules(Struct, frozen=True):
    """Modules that decide the memory of runs: of all, or of those with an objective of these ``kinds``. A group
    ``name`` in the pattern is part of what the run calls its model (``llama`` of ``llama3``)."""

    pattern: str
    kinds: frozenset[str] = frozenset()


class Framework(Struct, frozen=True):
    """``packages`` are the folders of its own code, from the root of its repository; ``dialects`` read its runs.
    ``lost`` are examples, as git's patterns, that its main branch lost when its history was written anew: of these every
    branch counts."""

    name: str
    called: str
    repository: str
    packages: tuple[str, ...]
    dialects: tuple[str, ...] = ()
    modules: tuple[Modules, ...] = ()
    examples: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


_CONFIG = r"[^/]+\.(?:ya?ml|toml|json|sh|bash|slurm|sbatch|md)"
_README = r"README[^/]*\.md"
_RL = frozenset({"ppo", "grpo", "rloo"})
_REWARDED = _RL | {"rm"}
_PREFERENCES = frozenset({"dpo", "orpo", "simpo", "cpo"})


def _under(*folders: str) -> tuple[str, ...]:
    """Configs and scripts at any depth below these folders, and what is written for people at the root."""
    return (_README, *(rf"{folder}/(?:.*/)?{_CONFIG}" for folder in folders))


_LLAMA_FACTORY = r"src/(?:llamafactory|llmtuner)"
_STAGES = {"pt": "pretrain", "sft": "sft", "rm": "rm", "ppo": "ppo", "kto": "kto"}
_MEGATRON = (
    Modules(r"pretrain_gpt2?\.py"),
    Modules(r"megatron/(?:training|schedules|initialize|training/training|training/initialize)\.py"),
    Modules(r"megatron/(?:legacy/)?model/(?:transformer|language_model|gpt2?_model|module|distributed|rms_?norm|llama_model)\.py"),
    Modules(r"megatron/optimizer/[^/]+\.py"),
    Modules(r"megatron/mpu/(?:layers|random|mappings|cross_entropy)\.py"),
    Modules(r"megatron/core/(?:optimizer|distributed|pipeline_parallel|tensor_parallel)/(?:[^/]+/)*[^/]+\.py"),
    Modules(r"megatron/core/transformer/(?:[^/]+/)*[^/]+\.py"),
    Modules(r"megatron/core/models/(?:gpt|common)/(?:[^/]+/)*[^/]+\.py"),
)  # fmt: skip

FRAMEWORKS = (
    Framework(
        "torchtitan", "torchtitan", "pytorch/torchtitan", ("torchtitan",), ("torchtitan",),
        (
            Modules(r"(?:torchtitan/)?(?:train|trainer)\.py"),
            Modules(r"torchtitan/(?:parallelisms|distributed)/(?:[^/]+/)*(?!parallelize_|utils\.py)[^/]+\.py"),
            Modules(r"torchtitan/parallelisms/parallelize_(?P<name>[a-z]+)\w*\.py"),
            Modules(r"torchtitan/(?:components/)?(?:optimizer|loss)\.py"),
            Modules(r"torchtitan/models/common/(?!__init__)[^/]+\.py"),
            Modules(r"torchtitan/models/(?:norms|attention|moe|utils)\.py"),
            Modules(r"torchtitan/(?:models|experiments)/(?P<name>\w+)/(?:[^/]+/)*(?!__init__|config_registry)[^/]+\.py"),
        ),
        (*_under("train_configs", r"torchtitan/(?:models|experiments)"), r"torchtitan/(?:.*/)?config_registry\.py"),
    ),
    Framework(
        "llamafactory", "LLaMA-Factory", "hiyouga/LLaMA-Factory", ("src/llamafactory", "src/llmtuner"),
        ("llama-factory",),
        (
            Modules(_LLAMA_FACTORY + r"/model/(?:[^/]+/)*[^/]+\.py"),
            Modules(_LLAMA_FACTORY + r"/hparams/parser\.py"),
            Modules(_LLAMA_FACTORY + r"/train/(?:tuner|trainer_utils|utils)\.py"),
            Modules(_LLAMA_FACTORY + r"/tuner/(?:tune|core/(?!parser)[^/]+)\.py"),
            Modules(_LLAMA_FACTORY + r"/(?:train|tuner)/dpo/(?:trainer|workflow)\.py", _PREFERENCES),
            *(
                Modules(_LLAMA_FACTORY + rf"/(?:train|tuner)/{stage}/(?:trainer|workflow)\.py", frozenset({kind}))
                for stage, kind in _STAGES.items()
            ),
        ),
        _under("examples"),
        # "[misc] add data files (#9224)", 2025-10-02: no JSON of earlier days is left.
        ("examples/*.json",),
    ),
    Framework(
        "openrlhf", "OpenRLHF", "OpenRLHF/OpenRLHF", ("openrlhf",), ("openrlhf",),
        (
            Modules(r"openrlhf/models/(?:actor|utils|packing_utils|ring_attn_utils)\.py"),
            Modules(r"openrlhf/models/(?:model|reward_model|critic)\.py", _REWARDED),
            Modules(r"openrlhf/utils/(?:deepspeed\w*|deepspeed/[^/]+)\.py"),
            Modules(r"openrlhf/(?:cli/train|trainer)/?_?sft(?:_trainer)?\.py", frozenset({"sft", "pretrain"})),
            Modules(r"openrlhf/(?:cli/train_dpo|trainer/dpo_trainer)\.py", frozenset({"dpo"})),
            Modules(r"openrlhf/(?:cli/train_kto|trainer/kto_trainer)\.py", frozenset({"kto"})),
            Modules(r"openrlhf/(?:cli/train_kd|trainer/kd_trainer)\.py", frozenset({"distill"})),
            Modules(r"openrlhf/(?:cli/train_rm|trainer/rm_trainer)\.py", frozenset({"rm"})),
            Modules(r"openrlhf/(?:cli/train_ppo(?:_ray)?|trainer/ppo_trainer(?:_async)?|trainer/(?:ray|ppo_utils)/[^/]+)\.py", _RL),
        ),
        _under("examples"),
    ),
    Framework(
        "ms-swift", "ms-swift", "modelscope/ms-swift", ("swift",), ("ms-swift", "megatron-swift"),
        (
            Modules(r"swift/trainers/(?:[^/]+/)*(?!__init__|arguments|callback)[^/]+\.py"),
            Modules(r"swift/(?:llm/train|pipelines/train)/(?!__init__)[^/]+\.py"),
            Modules(r"swift/llm/(?:sft|rlhf|tuner)\.py"),
            Modules(r"swift/(?:llm/)?model/(?:patcher|register|utils)\.py"),
            Modules(r"swift/rlhf_trainers/(?!__init__|arguments|rollout)[^/]+\.py", _RL | _PREFERENCES | {"kto", "rm", "gkd"}),
        ),
        _under("examples"),
    ),
    Framework(
        "verl", "verl", "volcengine/verl", ("verl",), ("verl",),
        (
            Modules(r"verl/workers/(?:fsdp_workers|megatron_workers|engine_workers)\.py", _RL),
            Modules(r"verl/workers/(?:actor|critic|sharding_manager)/(?!__init__)[^/]+\.py", _RL),
            Modules(r"verl/workers/engine/(?:[^/]+/)*(?!__init__)[^/]+\.py"),
            Modules(r"verl/trainer/(?:fsdp_)?sft_trainer\w*\.py", frozenset({"sft"})),
            Modules(r"verl/trainer/ppo/ray_trainer\.py", _RL),
            Modules(r"verl/utils/(?:fsdp_utils|torch_functional|megatron_utils|model)\.py"),
        ),
        (*_under("examples", "recipe", "tests"), r"verl/trainer/config/(?:.*/)?[^/]+\.yaml"),
    ),
    Framework(
        "nanotron", "nanotron", "huggingface/nanotron", ("src/nanotron", "nanotron"), ("nanotron",),
        (
            Modules(r"(?:src/)?nanotron/(?:trainer|helpers)\.py"),
            Modules(r"(?:src/)?nanotron/(?:models|nn|optim|parallel|core)/(?:[^/]+/)*(?!__init__)[^/]+\.py"),
        ),
        _under("examples"),
    ),
    Framework(
        "torchtune", "torchtune", "pytorch/torchtune", ("torchtune",), ("torchtune",),
        (
            Modules(r"recipes/(?P<name>\w+)\.py"),
            Modules(r"torchtune/modules/(?:peft/)?(?!__init__)[^/]+\.py"),
            Modules(r"torchtune/training/(?:_distributed|precision|memory|_compile|_activation_offloading|quantization)\.py"),
            Modules(r"torchtune/utils/(?:_distributed|precision|memory|_device|quantization)\.py"),
        ),
        _under("recipes"),
    ),
    Framework(
        "litgpt", "LitGPT", "Lightning-AI/litgpt", ("litgpt", "lit_gpt"), ("litgpt", "litgpt-script"),
        (
            Modules(r"(?:litgpt|lit_gpt)/(?:model|lora|adapter|adapter_v2)\.py"),
            Modules(r"(?:litgpt/)?(?:finetune/(?P<name>\w+)|pretrain)\.py"),
        ),
        _under("config_hub", "extensions"),
    ),
    Framework(
        "axolotl", "Axolotl", "axolotl-ai-cloud/axolotl", ("src/axolotl",), ("axolotl",),
        (
            Modules(r"src/axolotl/train\.py"),
            Modules(r"src/axolotl/(?:core|loaders)/(?:[^/]+/)*(?!__init__|datasets)[^/]+\.py"),
            Modules(r"src/axolotl/utils/(?:models|trainer|bench)\.py"),
        ),
        _under("examples", "configs", "deepspeed_configs", "deepspeed"),
    ),
    Framework(
        "trl", "TRL", "huggingface/trl", ("trl",), ("trl", "trl-script", "trl-recipe-script"),
        (
            Modules(r"trl/trainer/utils\.py"),
            Modules(r"trl/models/(?!__init__)[^/]+\.py"),
            *(
                Modules(rf"trl/(?:trainer|experimental/{kind})/{name}_trainer\.py", frozenset({kind}))
                for kind, name in (
                    *((kind, kind) for kind in ("sft", "dpo", "kto", "orpo", "cpo", "grpo", "rloo", "ppo", "gkd")),
                    ("rm", "reward"),
                )
            ),
        ),
        _under("examples", "commands", "trl"),
    ),
    Framework(
        "megatron-lm", "Megatron-LM", "NVIDIA/Megatron-LM", ("megatron",), ("megatron",), _MEGATRON,
        _under("examples"),
    ),
    Framework(
        "megatron-deepspeed", "Megatron-DeepSpeed", "deepspeedai/Megatron-DeepSpeed", ("megatron",), ("megatron",),
        _MEGATRON, _under("examples", "examples_deepspeed"),
    ),
    Framework(
        "gpt-neox", "GPT-NeoX", "EleutherAI/gpt-neox", ("megatron",), ("gpt-neox",),
        (
            Modules(r"megatron/(?:training|initialize)\.py"),
            Modules(r"megatron/model/(?!__init__)[^/]+\.py"),
            Modules(r"megatron/mpu/(?:layers|random|mappings|cross_entropy)\.py"),
        ),
        _under("configs", "examples", "kubernetes"),
    ),
    Framework(
        "nemo-rl", "NeMo RL", "NVIDIA-NeMo/RL", ("nemo_rl",), ("nemo-rl",),
        (
            Modules(r"nemo_rl/models/(?:policy|dtensor|automodel|megatron)/(?:[^/]+/)*(?!__init__)[^/]+\.py"),
            Modules(r"nemo_rl/algorithms/(?:sft|dpo|grpo|rm|distillation)\.py"),
        ),
        _under("examples"),
    ),
    Framework(
        "slime", "slime", "THUDM/slime", ("slime",), ("slime",),
        (
            Modules(r"slime/backends/(?:megatron_utils|fsdp_utils)/(?:[^/]+/)*(?!__init__|arguments)[^/]+\.py"),
            Modules(r"slime/ray/(?!__init__)[^/]+\.py"),
        ),
        _under("examples", "scripts"),
    ),
    # Their scripts are read themselves, whatever was changed in them.
    Framework(
        "open-r1", "open-r1", "huggingface/open-r1", ("src/open_r1",),
        examples=_under("recipes", "slurm", "configs", "accelerate_configs"),
    ),
    Framework(
        "alignment-handbook", "alignment-handbook", "huggingface/alignment-handbook", ("src/alignment",),
        examples=_under("recipes", "scripts"),
    ),
    Framework(
        "open-instruct", "open-instruct", "allenai/open-instruct", ("open_instruct",),
        examples=_under("scripts", "configs"),
    ),
)  # fmt: skip
"""Of ROLL, AReaL, prime-rl, EasyR1, LLM Foundry and others nothing is known here."""
