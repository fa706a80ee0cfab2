"""Dialects: a module or a folder for each framework, and the registry of all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

from oomlint.dialects.base import Dialect, DialectEntry, Registry
from oomlint.errors import UsageError

CLASSES = (
    ("gpt_neox.dialect", "GptNeox"),
    ("deepspeed.dialect", "DeepSpeed"),
    ("fsdp_config", "FsdpConfig"),
    ("accelerate.dialect", "Accelerate"),
    ("axolotl.dialect", "Axolotl"),
    ("torchtune.dialect", "Torchtune"),
    ("torchtitan.dialect", "Torchtitan"),
    ("litgpt.dialect", "LitGpt"),
    ("litgpt.dialect", "LitGptScript"),
    ("llm_foundry.dialect", "LlmFoundry"),
    ("slime.dialect", "Slime"),
    ("slime.dialect", "SlimeArguments"),
    ("megatron.dialect", "MegatronLm"),
    ("megatron.dialect", "MegatronScript"),
    ("ms_swift.megatron", "MegatronSwift"),
    ("ms_swift.dialect", "MsSwift"),
    ("ms_swift.dialect", "MsSwiftFsdp"),
    ("nemo.dialect", "Nemo"),
    ("nemo_rl.dialect", "NemoRl"),
    ("automodel.dialect", "AutoModel"),
    ("roll.dialect", "Roll"),
    ("nanotron.dialect", "Nanotron"),
    ("olmo.dialect", "Olmo"),
    ("lingua.dialect", "Lingua"),
    ("olmo_core.dialect", "OlmoCore"),
    ("prime_rl.dialect", "PrimeRl"),
    ("prime_rl.dialect", "PrimeRlAlone"),
    ("prime_rl.dialect", "PrimeRlTrainer"),
    ("prime_rl.dialect", "PrimeRlOrchestrator"),
    ("prime_rl.dialect", "PrimeRlInference"),
    ("areal.dialect", "Areal"),
    ("colossalai.dialect", "ColossalAi"),
    ("colossalai.dialect", "ColossalAiLora"),
    ("openrlhf.dialect", "OpenRlhf"),
    ("easyr1.dialect", "EasyR1"),
    ("verl.dialect", "Verl"),
    ("trainer.json_file", "HfTrainerJson"),
    ("trainer.yaml_file", "HfTrainerYaml"),
    ("llamafactory.dialect", "LlamaFactory"),
    ("llamafactory.v1", "LlamaFactoryV1"),
    ("llama_recipes.dialect", "LlamaRecipes"),
    ("xtuner.dialect", "Xtuner"),
    ("unsloth.dialect", "Unsloth"),
    ("unsloth.command_line", "UnslothCli"),
    ("trl.dialect", "Trl"),
    ("trl.dialect", "TrlScript"),
    ("trl.dialect", "TrlRecipeScript"),
    ("trainer.dialect", "HfTrainer"),
    ("nanogpt.dialect", "NanoGpt"),
    ("loops.cli", "LightningCli"),
    ("loops.dialect", "Loops"),
    ("deepspeed.launch", "DeepSpeedLaunch"),
    ("machine.kubernetes", "Kubernetes"),
    ("machine.containers", "Compose"),
    ("machine.skypilot", "SkyPilot"),
    ("machine.sagemaker", "SageMaker"),
    ("machine.line_files", "HostFile"),
    ("machine.line_files", "EnvFile"),
)
"""Module and class of each dialect in order of recognition: the most specific signature first."""


@cache
def registry() -> Registry:
    """Every dialect of oomlint.

    What a dialect must tell before it is imported stands in :mod:`.index`, which
    ``python -m oomlint.dialects`` writes anew.

    Raises:
        UsageError: a class is listed that the index lacks.
    """
    from oomlint.dialects.index import SIGNATURES

    for _, name in CLASSES:
        if name not in SIGNATURES:
            raise UsageError(
                f"the index lacks the dialect {name}: run `python -m oomlint.dialects`"
            )
    return Registry(
        tuple(
            DialectEntry(*SIGNATURES[name], load=_loader(module, name)) for module, name in CLASSES
        )
    )


def _loader(module: str, name: str) -> Callable[[], Dialect]:
    @cache
    def load() -> Dialect:
        dialect: Dialect = getattr(import_module(f"{__name__}.{module}"), name)()
        return dialect

    return load
