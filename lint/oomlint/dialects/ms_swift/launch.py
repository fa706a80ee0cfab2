"""What starts ms-swift: its commands, and the configs that they name.

``SW`` below is ``swift/`` of ms-swift 3602360a.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache

from oomlint.dialects.base import Claim, ClaimKind, Dialect, Reference
from oomlint.dialects.block import Block, OverrideBlock
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.ms_swift.keys import SWIFT, SWIFT_ENVIRONMENT, command_line
from oomlint.dialects.table import Table
from oomlint.dialects.trainer.dialect import parsed_options
from oomlint.documents.base import Document, Mapping, Scalar
from oomlint.documents.text import Location

# Commands that train, and the objective that names them (SW/cli/main.py ROUTE_MAPPING, and
# that of release/2.6, where preference training had commands of its own).
_COMMANDS = ("sft", "pt", "rlhf", "dpo", "orpo", "simpo")
_PROGRAM = "swift"
_OTHER_COMMANDS = frozenset(
    {
        "infer", "export", "eval", "deploy", "app", "app-ui", "web-ui", "merge-lora", "rollout",
        "sample",
    }
)  # fmt: skip
# Scripts of 1.x: examples/pytorch/llm/llm_sft.py and its siblings.
_OLD_SCRIPTS = {"llm_sft": "sft", "llm_dpo": "dpo", "llm_pt": "pt", "llm_orpo": "orpo"}
_OLD_OTHERS = frozenset({"llm_infer", "llm_export", "llm_deploy", "llm_eval", "llm_web_ui"})


@cache
def command_options(command: str) -> Table | None:
    """The keys that ``swift`` takes with a command, ``None`` if it trains nothing."""
    return command_line(SWIFT, f"{_PROGRAM} {command}") if command in _COMMANDS else None


def command_of(launch: Launch, program: str, package: str) -> tuple[str, int] | None:
    """The command that a line starts and how many positional words it takes.

    Args:
        program: the console program, ``swift`` or ``megatron``.
        package: the package with a module a command, ``swift.cli``.
    """
    words = [str(word.value).replace("_", "-") for word in launch.arguments]
    if launch.stem == program and not launch.is_module and launch.script is None:
        return (words[0], 1) if words else None
    path = launch.name.replace("\\", "/").removesuffix(".py").replace("/", ".")
    folder, _, last = path.rpartition(".")
    if folder == package or folder.endswith("." + package):
        if last == "main":
            return (words[0], 1) if words else None
        return last.replace("_", "-"), 0
    return None


def swift_command(launch: Launch) -> tuple[str, int] | None:
    if launch.stem in _OLD_SCRIPTS:
        return _OLD_SCRIPTS[launch.stem], 0
    if launch.stem in _OLD_OTHERS:
        return "infer", 0
    return command_of(launch, "swift", "swift.cli")


CONFIG = "config"
# Keys of a YAML that only ms-swift has.
_SIGNATURE = frozenset({"tuner_type", "train_type", "sft_type", "rlhf_type"})
_SUPPORTING = frozenset(
    {
        "split_dataset_ratio", "dataset_num_proc", "load_from_cache_file", "model_author",
        "model_name", "truncation_strategy", "padding_free", "attn_impl", "freeze_vit",
        "freeze_aligner", "quant_bits", "target_modules", "lora_rank", "loss_scale",
        "model_id_or_path", "lora_target_modules", "quantization_bit", "dataset_test_ratio",
        "vit_gradient_checkpointing", "add_non_thinking_prefix", "enable_thinking", "use_hf",
        "max_new_tokens", "load_data_args", "infer_backend", "ENV", "sampler_engine", "stream",
    }
)  # fmt: skip
_DATA = frozenset({"dataset", "cached_dataset", "custom_train_dataset_path"})
_ASIDE = frozenset(
    {
        "sampler_engine", "infer_backend", "load_data_args", "quant_n_samples", "eval_backend",
        "served_model_name", "stream", "result_path", "merge_lora_and_save",
    }
)  # fmt: skip
_OTHERS = frozenset(
    {
        "stage", "finetuning_type", "base_model", "datasets", "train_dataset", "model_name_or_path",
        "lora_target",
    }
)  # fmt: skip


def kind_of(root: Mapping) -> ClaimKind | None:
    """Whether a mapping is a run of ms-swift, another config of it, or not ours."""
    keys = set(root.entries)
    train = root.section("train")
    if train is not None:
        keys |= set(train.entries)
    if keys & _OTHERS or not keys & {
        "model",
        "model_id_or_path",
        "model_type",
        "adapters",
        *_SUPPORTING,
    }:
        return None
    own = keys & _SUPPORTING
    if keys & _SIGNATURE and (own or keys & _DATA):
        return "run" if keys & _DATA and not keys & _ASIDE else "aside"
    if keys & _DATA and len(own) >= 2:
        return "aside" if keys & _ASIDE else "run"
    return "aside" if len(own & _ASIDE) >= 2 else None


def config_block(document: Document, root: Mapping, table: Table) -> Block:
    first = next(iter(root.entries.values()))
    telling = (root.entries.get(key) for key in ("model", "rlhf_type", "tuner_type", "train_type"))
    anchor = next((entry for entry in telling if entry is not None), first)
    return Block(document, root, table, anchor.span)


def launch_claims(
    dialect: Dialect,
    launch: Launch,
    found: tuple[str, int],
    options: Callable[[str], Table | None],
) -> Iterator[Claim]:
    """The claim on a command line of ms-swift.

    Args:
        found: the command and how many positional words name it.
        options: the keys that a command takes, ``None`` if it trains nothing.
    """
    command, taken = found
    document = launch.document
    table = options(command)
    if table is None:
        if command in _OTHER_COMMANDS:
            yield Claim(dialect, "aside", document, ())
        return
    environment = Block(document, launch.command.environment, SWIFT_ENVIRONMENT, launch.anchor)
    scene = (*launch.blocks, environment)
    flags = parsed_options(launch.flags, table)
    named = _config_word(launch.arguments[taken:]) or (_config_option(flags) if taken else None)
    if named is None:
        blocks = (*scene, launch.program_block(table, flags))
        yield Claim(dialect, "run", document, blocks, launch.scene_references)
        return
    block = OverrideBlock(document, flags, table, launch.anchor)
    where = Location(document.source.path, named.via or named.span)
    reference = Reference(str(named.value), where, dialect.name)
    references = (*launch.scene_references, reference)
    yield Claim(dialect, "launch", document, (*scene, block), references)


def _config_word(words: Iterable[Scalar]) -> Scalar | None:
    """SW/cli/main.py parse_yaml_args: only the first word after the command can be a config."""
    first = next(iter(words), None)
    if first is not None and str(first.value).endswith((".yaml", ".yml", ".json")):
        return first
    return None


def _config_option(flags: Mapping) -> Scalar | None:
    """SW/cli/main.py prepare_config_args of 3.10 to 4.0: ``--config`` names a YAML, whatever it is called. Releases before and
    after refuse the option, so that who gives it has one of these."""
    entry = flags.entries.get(CONFIG)
    value = None if entry is None else entry.value
    return value if isinstance(value, Scalar) and isinstance(value.value, str) else None


def file_counts_more(claim: Claim) -> bool:
    """Whether a line names its config as an option: the keys of that go behind the line's own options, and of two that
    are alike argparse takes the last (SW/cli/main.py prepare_config_args of 3.10 to 4.0)."""
    return any(isinstance(b, OverrideBlock) and CONFIG in b.mapping.entries for b in claim.blocks)


_MEGATRON_KEYS = frozenset(
    {
        "tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size",
        "context_parallel_size", "recompute_granularity", "micro_batch_size", "mcore_model",
        "lr_warmup_fraction", "train_iters", "no_save_optim", "cross_entropy_loss_fusion",
    }
)  # fmt: skip


def is_megatron(root: Mapping) -> bool:
    """Whether a config of ms-swift is for ``megatron`` rather than ``swift``."""
    return len(_MEGATRON_KEYS & set(root.entries)) >= 2
