"""Which objective a TRL command, class, path or key speaks of, and the tables that carry it.

Read from TRL f2cd5771 (1.10.0.dev0); ``TRL`` below is ``trl``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.key_releases import Past
from oomlint.dialects.library_tables import past_fields
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launcher_keys import ACCELERATE_LAUNCHER
from oomlint.dialects.table import Table
from oomlint.dialects.trainer.arguments import RENAMED_ARGUMENTS
from oomlint.dialects.trainer.keys import MODEL_ROWS, over
from oomlint.dialects.trainer.own_classes import classes_of, of_library
from oomlint.dialects.trl.keys import KNOWN, RENAMED_LENGTH, TRL, call_table
from oomlint.documents.base import Mapping, Node, Scalar

# The objective of a script, a sub-command, a config class or a trainer, by a word in its name.
OBJECTIVES = {
    "sft": "sft", "dpo": "dpo", "orpo": "orpo", "cpo": "cpo", "kto": "kto", "bco": "kto",
    "reward": "rm", "rm": "rm", "grpo": "grpo", "gspo": "grpo", "rloo": "rloo", "ppo": "ppo",
    "gkd": "gkd", "xpo": "dpo", "tpo": "dpo", "simpo": "simpo",
}  # fmt: skip
_SCRIPT = re.compile(
    r"^(?:run_)?(sft|dpo|orpo|simpo|cpo|kto|bco|reward|grpo|gspo|rloo|ppo|gkd)(?:$|_)"
)
_SUBCOMMANDS = frozenset({"sft", "dpo", "kto", "grpo", "rloo", "reward", "orpo"})


def _told_by_class(name: str) -> str | None:
    stem = re.sub(r"(Config|Trainer)$", "", name.rpartition(".")[2]).lower()
    return {"onlinedpo": "dpo", "nashmd": "dpo", "prm": "rm"}.get(stem) or OBJECTIVES.get(stem)


def objective_of_class(name: str) -> str:
    """``trl.DPOTrainer`` or ``DPOConfig``: what it optimises."""
    return _told_by_class(name) or "sft"


def _past_of(objective: str) -> Past:
    """What the config classes of an objective took in some release, and take no more."""
    return past_fields(
        "trl", lambda name: name.endswith("Config") and _told_by_class(name) == objective
    )


# A table for the options of each objective's script: the command decides what is trained.
OPTIONS = {
    objective: Table(
        name=f"TRL {objective} options",
        renamed=(*RENAMED_ARGUMENTS, RENAMED_LENGTH),
        rows=TRL.rows,
        spans=TRL.spans,
        known=KNOWN | frozenset({"accelerate_config"}) | ACCELERATE_LAUNCHER.legal_keys,
        known_prefixes=TRL.known_prefixes,
        # TRL/scripts/utils.py: an option that no dataclass has ends the run.
        ignores_unknown=False,
        loader="yaml12",
        section="training",
    )
    for objective in sorted(set(OBJECTIVES.values()))
}
# The same for scripts that are not TRL's: their own dataclasses have options beside TRL's.
OPEN_OPTIONS = {
    objective: replace(table, rows=over(TRL.rows, MODEL_ROWS), ignores_unknown=None)
    for objective, table in OPTIONS.items()
}
CALLS = {
    objective: replace(call_table(f"TRL {objective} call"), past=_past_of(objective))
    for objective in OPTIONS
}
# Of a script whose name tells nothing of its objective.
RECIPE_OPTIONS = replace(OPEN_OPTIONS["sft"], name="TRL recipe options")
_OBJECTIVE_OF_TABLE = {
    table.name: objective for tables in (OPTIONS, CALLS) for objective, table in tables.items()
}

# Keys that only the config of one objective has.
_TELLING = {
    "grpo": ("reward_funcs", "num_iterations", "epsilon_high", "scale_rewards"),
    "rloo": ("normalize_advantages", "rloo_k"),
    # SimPO 1b3e8f3 scripts/simpo_config.py: beside TRL's keys, and its trainer has no reference.
    "simpo": ("gamma_beta_ratio",),
    "kto": ("desirable_weight", "undesirable_weight"),
    "dpo": ("precompute_ref_log_probs", "rpo_alpha", "f_divergence_type", "ld_alpha"),
    "rm": ("center_rewards_coefficient",),
    "sft": ("packing", "dataset_text_field", "completion_only_loss", "assistant_only_loss"),
}


def objective_of_name(name: str) -> str | None:
    """The objective that a file's, script's or class's name speaks of."""
    words = re.findall(r"[a-z]+", name.lower())
    return next((OBJECTIVES[word] for word in words if word in OBJECTIVES), None)


def _objective_of_keys(keys: set[str]) -> str | None:
    for objective, telling in _TELLING.items():
        if keys & set(telling):
            return objective
    if "num_generations" in keys or "max_completion_length" in keys:
        return "grpo"
    return None


# What shows that a YAML with ``model_name_or_path`` belongs to another framework.
FOREIGN_KEYS = frozenset(
    {
        "stage", "finetuning_type", "lora_rank", "lora_target", "cutoff_len", "template",
        "infer_backend", "export_dir", "dataset_dir", "train_type", "tuner_type", "sft_type",
        "base_model", "do_predict", "adapter_name_or_path", "quantization_bit",
        "dataset_mixer_list", "dataset_mixer_list_splits", "dataset_mix_dir", "checkpointing_steps",
        "use_slow_tokenizer", "use_lora",
        "with_tracking", "add_bos",
        "init_kl_coef", "adap_kl_ctrl",  # PPOConfig before 0.12
    }
)  # fmt: skip
TRAINING_KEYS = frozenset(
    {
        "per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs",
        "max_steps", "learning_rate", "gradient_checkpointing", "lr_scheduler_type",
        "save_strategy", "eval_strategy", "output_dir",
    }
)  # fmt: skip


# Frameworks that have a dialect of their own, and two with loops over DeepSpeed's engine whose
# options are named like the Trainer's (align-anything, Safe-RLHF).
_OTHER_PACKAGES = ("llamafactory.", "swift.", "axolotl.", "align_anything.", "safe_rlhf.")


def is_of_other_package(launch: Launch) -> bool:
    """Whether the command starts a module of a framework that has little to do with the Trainer."""
    return launch.is_module and launch.name.startswith(_OTHER_PACKAGES)


def _has_dotted_words(launch: Launch) -> bool:
    """``cluster.num_nodes=2``: TRL's parsers take options alone (NeMo-RL's programs have such words)."""
    return any("." in key for key in launch.command.assignments.entries)


def objective_of_launch(launch: Launch) -> str | None:
    """The objective of a command that starts a TRL script; ``None`` for other commands."""
    flags = set(launch.flags.entries)
    if launch.name == "trl":
        word = str(launch.arguments[0].value) if launch.arguments else ""
        return OBJECTIVES[word] if word in _SUBCOMMANDS else None
    match = _SCRIPT.match(launch.stem)
    if match is None or flags & FOREIGN_KEYS:
        return None
    if is_of_other_package(launch) or _has_dotted_words(launch):
        return None
    named = "config" in flags or any(is_yaml(a) for a in launch.arguments[:1])
    trains = "model_name_or_path" in flags and flags & (TRAINING_KEYS | {"dataset_name"})
    return OBJECTIVES[match.group(1)] if named or trains else None


def recipe_of(launch: Launch) -> Node | None:
    """The YAML that a project's own script is started with, as H4ArgumentParser and TrlParser take
    it: the first word behind the script, or ``--config``. Only the file tells whether it is TRL's
    (alignment-handbook 925acdfe src/alignment/configs.py parse)."""
    is_script = launch.script is not None or launch.is_module
    if (
        not is_script
        or _has_dotted_words(launch)
        or is_of_other_package(launch)
        or set(launch.flags.entries) & FOREIGN_KEYS
    ):
        return None
    named = launch.flag("config")
    node = named.value if named is not None else next(iter(launch.arguments), None)
    return node if node is not None and is_yaml(node) else None


def words_of(launch: Launch) -> Mapping:
    """The options of a command. Behind a recipe H4ArgumentParser takes ``beta=0.1`` for ``--beta=0.1``: it strips
    the dashes (alignment-handbook 925acdfe src/alignment/configs.py parse_yaml_and_args)."""
    words = launch.command.assignments.entries
    if (
        not words
        or launch.flag("config") is not None
        or not any(map(is_yaml, launch.arguments[:1]))
    ):
        return launch.flags
    return replace(launch.flags, entries={**words, **launch.flags.entries})


_OF_TRL = re.compile(r"(^|[/.])trl[/.]scripts[/.]|(^|/)examples/scripts/")


def options_of(launch: Launch, objective: str) -> Table:
    """The options of a command whose objective is known."""
    is_trls = launch.name == "trl" or _OF_TRL.search(launch.name.replace("\\", "/"))
    return (OPTIONS if is_trls else OPEN_OPTIONS)[objective]


_TRAINER = re.compile(r"(?<!\w)(\w+)Trainer$")
_ROLLS_OUT = re.compile(r"(?<!\w)(?:GRPO|RLOO|PPO)Trainer$")


def brings_own_trainer(run: Cells) -> bool:
    """Whether a script that is not TRL's may train with a class of its own: R1-V, Video-R1 and
    their like have copies of GRPOTrainer from before TRL 0.15, which count otherwise."""
    tables = {id(block.table) for block in run.blocks}
    is_own = any(id(table) in tables for table in (*OPEN_OPTIONS.values(), RECIPE_OPTIONS))
    return is_own and not any(
        _ROLLS_OUT.search(block.document.source.text[block.anchor.start : block.anchor.end])
        for block in run.blocks
        if block.table.section == "trainer"
    )


def refers_to_nothing(run: Cells) -> bool:
    """Whether a trainer of the project's own, whose name speaks of no objective of TRL's, is called without a
    reference model."""
    calls = [block for block in run.blocks if block.table.section == "trainer"]
    return bool(calls) and not any(map(_may_refer, calls))


def _may_refer(call: Block) -> bool:
    text = call.document.source.text
    name = of_library(text[call.anchor.start : call.anchor.end], classes_of(text))
    speaks = any(word in name.lower() for word in OBJECTIVES)
    return speaks or any("ref" in given or given == "1" for given in call.mapping.entries)


def is_yaml(node: Node) -> bool:
    value = node.value if isinstance(node, Scalar) else None
    return isinstance(value, str) and value.endswith((".yaml", ".yml"))


def objective_of_run(run: Cells) -> str | None:
    """What is optimised: as the one class says by which the script trains, else the launch line, else the class, else the
    keys, else the path. A script is called after what it did once, or after what it comes close to."""
    trainers = tuple(dict.fromkeys(_trainers_in(run)))
    of_class = objective_of_class(trainers[0]) if trainers else None
    if of_class is not None and len(trainers) == 1:
        return of_class
    return objective_of_line(run.blocks) or of_class or objective_of_recipe(run.blocks)


def objective_of_line(blocks: Sequence[Block]) -> str | None:
    """What is optimised, as far as the script that a line starts tells."""
    stated = (_OBJECTIVE_OF_TABLE.get(block.table.name) for block in reversed(blocks))
    return next((objective for objective in stated if objective is not None), None)


def objective_of_recipe(blocks: Sequence[Block]) -> str | None:
    """What is optimised, as far as the keys of a YAML tell, or its path."""
    keys = {key for block in blocks if block.table is TRL for key in block.mapping.entries}
    paths = [block.path for block in blocks if block.table is TRL]
    by_path = next((o for o in map(_objective_of_path, paths) if o is not None), None)
    return _objective_of_keys(keys) or by_path or ("dpo" if "beta" in keys else None)


def cuts_prompts(blocks: Sequence[Block]) -> bool:
    """Whether a recipe limits prompts beside whole samples, as those on pairs of answers do and SFTConfig has no key
    for (TRL 0.9.6 trainer/sft_config.py, dpo_config.py, cpo_config.py, orpo_config.py)."""
    wanted = {"max_prompt_length", "max_length"}
    return any(block.table is TRL and wanted <= block.mapping.entries.keys() for block in blocks)


def _trainers_in(run: Cells) -> Iterator[str]:
    """TRL's classes by which scripts train whose arguments are parsed from a command line."""
    for block in run.blocks:
        if block.table.section == "trainer":
            text = block.document.source.text
            named = of_library(text[block.anchor.start : block.anchor.end], classes_of(text))
            found = _TRAINER.search(named)
            if found is not None and found[1].lower() in OBJECTIVES:
                yield found[0]


def _objective_of_path(path: str) -> str | None:
    """``recipes/zephyr/dpo/config.yaml``: the nearest part of the path that names one."""
    for part in reversed(path.split("/")):
        found = objective_of_name(part)
        if found is not None:
            return found
    return None
