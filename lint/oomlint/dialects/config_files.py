"""The kinds of config files by what they are called: which framework a file of some name is surely for.

For what has no content yet to go by: a new file in an editor, a schema that an editor is to choose.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib import import_module

from msgspec import Struct, field

from oomlint.dialects.table import Table


class Config(Struct, frozen=True):
    """A kind of config file: its schema's name, its table, and files that are surely of the kind.

    ``roots`` are what abbreviations at the head of sources stand for. ``dashes``: keys may have
    dashes for underscores.
    """

    name: str
    title: str
    module: str
    table: str
    files: tuple[str, ...]
    roots: Mapping[str, str] = field(default_factory=dict)
    dashes: bool = False

    def load(self) -> Table:
        table: Table = getattr(import_module(f"oomlint.dialects.{self.module}"), self.table)
        return table

    def spelled_out(self, source: str) -> str:
        """A source without abbreviations, as a reader finds it."""
        for short, long in self.roots.items():
            source = re.sub(rf"(?<![\w/]){short}/", f"{long}/", source)
        return source.rstrip(".")


def _yaml(*stems: str) -> tuple[str, ...]:
    return tuple(f"{stem}.{suffix}" for stem in stems for suffix in ("yaml", "yml"))


CONFIGS = (
    Config(
        "axolotl", "Axolotl", "axolotl.keys", "AXOLOTL",
        _yaml("*.axolotl", "axolotl", "**/axolotl/**/*"), {"AX": "axolotl src/axolotl"},
    ),
    Config(
        "llama-factory", "LLaMA-Factory", "llamafactory.keys", "LLAMA_FACTORY",
        _yaml("**/LLaMA-Factory/examples/train_*/**/*", "**/llamafactory/**/*"),
        {"LF": "LLaMA-Factory src/llamafactory"},
    ),
    Config(
        "llama-factory-v1", "LLaMA-Factory V1", "llamafactory.v1_keys", "LLAMA_FACTORY_V1",
        _yaml("**/LLaMA-Factory/examples/v1/**/*"), {"V1": "LLaMA-Factory src/llamafactory/v1"},
    ),
    Config(
        "deepspeed", "DeepSpeed", "deepspeed.keys", "DEEPSPEED",
        ("ds_config*.json", "ds_z*.json", "deepspeed*.json", "**/deepspeed_configs/*.json",
         "zero[123]*.json"),
        {"DS": "DeepSpeed deepspeed/runtime"},
    ),
    Config(
        "accelerate", "Accelerate", "accelerate.keys", "ACCELERATE",
        _yaml("**/accelerate/default_config", "**/accelerate_configs/*", "accelerate_config*"),
        {"ACC": "accelerate src/accelerate"},
    ),
    Config(
        "torchtune", "torchtune", "torchtune.keys", "TORCHTUNE",
        _yaml("**/torchtune/**/recipes/configs/**/*"), {"TT": "torchtune"},
    ),
    Config(
        "torchtitan", "torchtitan", "torchtitan.keys", "TORCHTITAN",
        ("**/torchtitan/**/train_configs/*.toml",), {"TN": "torchtitan torchtitan"},
    ),
    Config(
        "trl", "TRL", "trl.keys", "TRL",
        _yaml("**/alignment-handbook/recipes/**/*", "**/trl/examples/cli_configs/*"), {"TRL": "trl trl"},
    ),
    Config(
        "ms-swift", "ms-swift", "ms_swift.keys", "SWIFT",
        _yaml("**/ms-swift/examples/yaml/*"), {"SW": "ms-swift swift"},
    ),
    Config(
        "megatron-swift", "Megatron-SWIFT", "ms_swift.megatron_keys", "MEGATRON_SWIFT",
        _yaml("**/ms-swift/examples/yaml/megatron/*", "**/ms-swift/examples/ray/**/*"), {"SM": "ms-swift swift/megatron", "SW": "ms-swift swift"},
    ),
    Config(
        "litgpt", "LitGPT", "litgpt.keys", "LITGPT",
        _yaml("**/litgpt/config_hub/**/*"), {"LG": "litgpt litgpt"},
    ),
    Config(
        "llm-foundry", "LLM Foundry", "llm_foundry.keys", "LLM_FOUNDRY",
        _yaml("**/llm-foundry/scripts/train/yamls/**/*"),
        {"LF": "llm-foundry llmfoundry", "CO": "composer composer"},
    ),
    Config(
        "verl", "verl PPO", "verl.keys", "VERL_PPO",
        _yaml("ppo_trainer*", "**/verl/trainer/config/ppo_*"), {"VL": "verl verl"},
    ),
    Config(
        "easyr1", "EasyR1", "easyr1.keys", "EASYR1", _yaml("**/EasyR1/examples/*"),
        {"ER": "EasyR1 verl"},
    ),
    Config(
        "nemo-rl", "NeMo-RL", "nemo_rl.keys", "NEMO_RL",
        _yaml("**/nemo-rl/examples/configs/**/*", "**/NeMo-RL/examples/configs/**/*"), {"NR": "NeMo-RL nemo_rl"},
    ),
    Config(
        "automodel", "NeMo AutoModel", "automodel.keys", "AUTOMODEL",
        _yaml("**/Automodel/examples/**/*"), {"AM": "NeMo AutoModel nemo_automodel"},
    ),
    Config(
        "roll", "ROLL", "roll.keys", "ROLL",
        _yaml("**/ROLL/examples/*/*"), {"RO": "ROLL roll"},
    ),
    Config(
        "gpt-neox", "GPT-NeoX", "gpt_neox.keys", "GPT_NEOX",
        _yaml("**/gpt-neox/configs/**/*"), {"NX": "gpt-neox megatron"}, dashes=True,
    ),
    Config(
        "nanotron", "nanotron", "nanotron.keys", "NANOTRON",
        _yaml("**/nanotron/examples/**/*"), {"NT": "nanotron src/nanotron"},
    ),
    Config(
        "olmo", "OLMo", "olmo.keys", "OLMO",
        _yaml("**/OLMo/configs/**/*"), {"OL": "OLMo olmo", "ST": "OLMo scripts"},
    ),
    Config(
        "lingua", "Meta Lingua", "lingua.keys", "LINGUA",
        _yaml("**/lingua/apps/*/configs/*"), {"ML": "lingua lingua"},
    ),
    Config(
        "prime-rl", "prime-rl", "prime_rl.keys", "PRIME_RL",
        ("**/prime-rl/examples/**/*.toml", "**/prime-rl/configs/**/*.toml"),
        {"PR": "prime-rl packages/prime-rl-configs/src/prime_rl/configs", "PT": "prime-rl src/prime_rl/trainer"},
    ),
    Config(
        "areal", "AReaL", "areal.keys", "AREAL",
        _yaml("**/AReaL/examples/**/*"), {"AR": "AReaL areal"},
    ),
    Config(
        "nemo", "NeMo 1 Megatron", "nemo.keys", "NEMO",
        _yaml("megatron_*_config", "**/language_modeling/conf/*"), {"NM": "NeMo nemo"},
    ),
)  # fmt: skip
"""Every kind of file that has a schema; where two patterns match a file, the later one counts."""


def config_of(table: Table) -> Config | None:
    """The kind of config file that a table, whose module is loaded, belongs to."""
    for config in CONFIGS:
        module = sys.modules.get(f"oomlint.dialects.{config.module}")
        if module is not None and getattr(module, config.table, None) is table:
            return config
    return None
