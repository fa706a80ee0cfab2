"""transformers' Trainer on a command line, and what every script over it says of its model.

A script parses ``TrainingArguments`` from its options with HfArgumentParser and adds options
of its own for the model, the adapter and the length of samples, under names that most scripts
share. Read from transformers 5.23 ``examples/pytorch`` and ``hf_argparser.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, ClassVar

from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block, OverrideBlock
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared import declared_options
from oomlint.dialects.common.fields import ref
from oomlint.dialects.deepspeed.asked import BY_TRAINER
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.meaning import Meaning, Wishes, writable
from oomlint.dialects.olmo_core.signature import says_part
from oomlint.dialects.profiles.build import meaning_of_script, script_table
from oomlint.dialects.profiles.records import ProfiledScript
from oomlint.dialects.reading import StrayKey
from oomlint.dialects.table import Table
from oomlint.dialects.trainer.keys import SCRIPT_OPTIONS, TRAINER
from oomlint.dialects.trainer.meaning import meaning
from oomlint.dialects.trainer.model_calls import NO_LANGUAGE
from oomlint.dialects.trainer.script import WORDS, script_runs
from oomlint.dialects.trainer.script_claim import script_claim
from oomlint.dialects.trainer.scripts import trains_nothing
from oomlint.dialects.trainer.tables import ARGUMENTS, EARLY_FROM_PRETRAINED, FROM_PRETRAINED
from oomlint.dialects.trainer.training_arguments import trainer_wishes
from oomlint.dialects.trainer.unfollowed import check_own_options
from oomlint.dialects.trl.objectives import is_of_other_package, objective_of_launch
from oomlint.documents.base import (
    Document,
    Entry,
    Mapping,
    Node,
    PythonDocument,
    Scalar,
    Sequence as Items,
    parser_of,
)
from oomlint.documents.text import Location, Span

SHELL_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".job")

# Options that only TrainingArguments has.
SIGNATURE = frozenset(
    {
        "per_device_train_batch_size", "per_device_eval_batch_size", "per_gpu_train_batch_size",
        "gradient_accumulation_steps", "num_train_epochs", "max_steps", "save_strategy",
        "evaluation_strategy", "eval_strategy", "save_total_limit", "save_steps", "logging_steps",
        "lr_scheduler_type", "warmup_ratio", "warmup_steps", "gradient_checkpointing", "bf16",
        "fp16", "deepspeed", "fsdp", "report_to", "overwrite_output_dir", "do_train", "optim",
        "output_dir", "learning_rate", "ddp_find_unused_parameters",
    }
)  # fmt: skip

# What shows that the command belongs to another framework over the same Trainer.
_OTHERS = frozenset(
    {
        "stage", "finetuning_type", "lora_target", "template",  # LLaMA-Factory
        "train_type", "tuner_type", "sft_type", "rlhf_type", "model_id_or_path",  # ms-swift
        "tensor_model_parallel_size", "num_layers", "micro_batch_size",  # Megatron
        "zero_stage",  # DeepSpeed-Chat and other loops that build their DeepSpeed config themselves
        "init_kl_coef", "adap_kl_ctrl",  # PPOConfig of TRL before 0.12, whose loops are scripts' own
    }
)  # fmt: skip
_OTHER_PROGRAMS = frozenset(
    {"swift", "megatron", "llamafactory-cli", "lmf", "axolotl", "litgpt", "xtuner", "tune", "trl"}
)

# Programs that start others on TPUs (transformers 4.57 examples/pytorch/xla_spawn.py).
_TPU_LAUNCHERS = frozenset({"xla_spawn"})

# Scripts of frameworks that have a dialect of their own.
_OTHER_SCRIPTS = frozenset({"unsloth-cli"})


# Classes that HfArgumentParser makes these options of.
_PARSED = re.compile(r"^transformers\b.*TrainingArguments$")


def is_of_others(options: set[str]) -> bool:
    """Whether some of the options belong to another framework over the same Trainer."""
    return bool(options & _OTHERS)


def is_trainer_command(launch: Launch) -> bool:
    """Whether the command's own options are those of a script over the Trainer."""
    flags = set(launch.flags.entries)
    if is_of_others(flags) or launch.name in _OTHER_PROGRAMS or "no_trainer" in launch.stem:
        return False
    deepspeed = launch.flag("deepspeed")
    if deepspeed is not None and _is_bare(deepspeed.value):
        return False  # the switch of deepspeed.add_config_arguments, for loops of their own
    if is_of_other_package(launch) or launch.stem in _TPU_LAUNCHERS:
        return False
    shared = flags & SIGNATURE
    telling = {"per_device_train_batch_size", "per_gpu_train_batch_size"} & flags
    return len(shared) >= (3 if telling else 5) and "output_dir" in flags


class HfTrainer(Dialect):
    name = "hf-trainer"
    trainer = r"\w*Trainer"
    launcher_may_shard = True
    reads_programs = True
    config_parsers = ("TrlParser", "HfArgumentParser", "H4ArgumentParser")
    markers: ClassVar[tuple[bytes, ...]] = (
        b"per_device_train_batch_size", b"output_dir", b"python", b"torchrun", b"launch",
        b"import train", b"deepspeed ",
    )  # fmt: skip
    # The rest is how an import names the function that a script starts: see _starters.
    words_in_python = (*WORDS, b"import train", b" train,", b", train", b"as train")
    suffixes: ClassVar[tuple[str, ...]] = (".py", *SHELL_SUFFIXES)
    references = {ref.deepspeed: "deepspeed", ref.fsdp_config: "fsdp-config"}
    asks = BY_TRAINER
    meaning = meaning

    def meaning_of(self, blocks: Iterable[Block]) -> Meaning:
        """What a script that a profile knows makes of its options comes first."""
        own = meaning_of_script(blocks)
        return meaning if own is None else _on_top(own)

    def recognise(self, document: Document) -> Iterable[Claim]:
        for run in script_runs(document):
            if not run.uses_trl:
                yield script_claim(self, document, run, ARGUMENTS)
        yield from self._starters(document)
        for launch in launches(document):
            known = self.profiles.script_of(launch)
            is_known = known is not None and known.is_known
            if not is_known and (_is_of_another(launch) or self.profiles.ignore(launch)):
                continue
            # A profile says more of a script than the calls of the loop in it, and all of one in a folder of its own.
            reads: tuple[str, ...] = ("hf-trainer", "trl") if is_known else ("",)
            reads = () if self.profiles.tell_all_of(launch) else reads
            script = (*script_reference(launch, reads), *arguments_reference(launch))
            if is_known:
                script = (*script, *config_reference(launch))
            trains = is_known or is_trainer_command(launch)
            if not trains and not script:
                continue
            blocks = launch.blocks
            if trains:
                table = TRAINER if known is None else script_table(known)
                options = parsed_options(launch.flags, table)
                options = options if known is None else _with_words(options, launch, known)
                blocks = (*blocks, launch.program_block(table, options))
            elif script:
                # What is new stands in the script's own calls.
                own = OverrideBlock(document, launch.flags, SCRIPT_OPTIONS, launch.anchor)
                blocks = (*blocks, own)
            framework = "" if known is None else known.framework
            references = (*launch.scene_references, *script)
            yield Claim(self, "launch", document, blocks, references, framework=framework)

    def layered(self, claims: Sequence[Claim]) -> Iterable[Block]:
        """Options of a command are the trainer's, however few they are, where the script that it starts has a parser made
        of transformers' class of them."""
        blocks = super().layered(claims)
        return map(_as_trainers, blocks) if any(map(_parses_arguments, claims)) else blocks

    def is_asked(self, run: Cells) -> bool:
        return trains_nothing(run) is None

    def trains_language(self, run: Cells) -> bool:
        return not run.once(_load_no_language)

    def _starters(self, document: Document) -> Iterable[Claim]:
        """Scripts that only call the ``train()`` of another file (FastChat, LLaVA, Alpaca)."""
        path = document.starts if isinstance(document, PythonDocument) else None
        if path is not None:
            where = Location(document.source.path, Span(0, 0))
            yield Claim(self, "aside", document, (), (Reference(path, where, "", optional=True),))

    def strays(self, run: Cells) -> Iterable[StrayKey]:
        declared = run.once(declared_options)
        return [stray for stray in run.strays if stray.path not in declared]

    def express(self, changes: Wishes, run: Cells) -> dict[Any, Any]:
        check_own_options(changes, run)
        return writable(trainer_wishes(changes, run), run, self.name)


def _parses_arguments(claim: Claim) -> bool:
    parser = parser_of(claim.document)
    return parser is not None and any(map(_PARSED.search, parser.bases))


def _as_trainers(block: Block) -> Block:
    if block.table is not SCRIPT_OPTIONS:
        return block
    options = parsed_options(block.mapping, TRAINER)
    return Block(block.document, options, TRAINER, block.anchor, level=block.level)


def _load_no_language(blocks: list[Block]) -> bool:
    """Whether all calls that load a model load one of images or sound."""
    loaders = (b for b in blocks if b.table in (FROM_PRETRAINED, EARLY_FROM_PRETRAINED))
    called = [b.document.source.text[b.anchor.start : b.anchor.end] for b in loaders]
    return bool(called) and all(map(NO_LANGUAGE.search, called))


def _is_of_another(launch: Launch) -> bool:
    if says_part(launch):
        return True
    return objective_of_launch(launch) is not None or launch.stem in _OTHER_SCRIPTS


@cache
def _on_top(own: Meaning) -> Meaning:
    return Meaning(own, meaning)


def script_reference(launch: Launch, readers: tuple[str, ...] = ("",)) -> Iterator[Reference]:
    """The script that the command starts, which may hold the run in its own calls, for these
    dialects to read."""
    for reader in readers:
        if launch.script is not None:
            yield from launch.reference(launch.program, reader, optional=True)
        elif launch.is_module:
            where = Location(launch.document.source.path, place(launch.program))
            yield Reference(launch.name.replace(".", "/") + ".py", where, reader, optional=True)


def config_reference(launch: Launch) -> Iterator[Reference]:
    """The YAML file among the command's words that has the arguments: see :mod:`.yaml_file`."""
    for node in launch.arguments:
        for reference in launch.reference(node, "hf-trainer-yaml", optional=True):
            if reference.path.endswith((".yaml", ".yml")):
                yield reference


def _with_words(options: Mapping, launch: Launch, known: ProfiledScript) -> Mapping:
    """The options, and the words behind the script that stand for some."""
    entries = dict(options.entries)
    for option in known.options:
        if 0 < option.word <= len(launch.arguments):
            word = launch.arguments[option.word - 1]
            entries[option.name] = Entry(option.name, place(word), word, place(word))
    return replace(options, entries=entries)


# Options of scripts that name a JSON file of arguments: Firefly, and what others call it.
_ARGUMENT_FILES = ("train_args_file", "args_file", "config", "config_file")


def arguments_reference(launch: Launch) -> Iterator[Reference]:
    """The JSON file that takes the place of a script's options: see :mod:`.json_file`."""
    named = [launch.flag(name) for name in _ARGUMENT_FILES]
    nodes = [entry.value for entry in named if entry is not None]
    for node in (*nodes, *launch.arguments[:1]):
        for reference in launch.reference(node, "hf-trainer-json", optional=True):
            if reference.path.endswith(".json"):
                yield reference


def parsed_options(flags: Mapping, table: Table) -> Mapping:
    """Options as HfArgumentParser understands them: ``--no_x`` is ``x`` false, and a value
    that is a JSON object is a dictionary (transformers 5.23 hf_argparser.py:136-210)."""
    entries: dict[str, Entry] = {}
    for key, entry in flags.entries.items():
        if key.startswith("no_") and key[3:] in table.legal_keys and _is_bare(entry.value):
            value = Scalar(entry.value.span, False, locked=f"--{key} switches it off")
            entries.setdefault(key[3:], replace(entry, key=key[3:], value=value))
        elif (whole := _whole(key, table)) is not None and whole not in flags.entries:
            entries[whole] = replace(entry, key=whole, value=_as_dictionary(entry.value))
        else:
            entries[key] = replace(entry, value=_as_dictionary(entry.value))
    file, switch = entries.get(_CONFIG_OPTION), entries.get("deepspeed")
    if file is not None and (switch is None or _is_bare(switch.value)):
        entries["deepspeed"] = replace(file, key="deepspeed")
    return replace(flags, entries=entries)


# Words but one of an option's name: of shorter beginnings a script has too many options of its own.
_LONG = 2


def _whole(key: str, table: Table) -> str | None:
    """The option that a command writes without its last word, as argparse takes it (CPython 3.12 argparse.py
    _get_option_tuples): ``--per_device_train_batch 2``."""
    if key in table.legal_keys or key.count("_") < _LONG:
        return None
    found = [each for each in table.legal_keys if each.startswith(key)]
    return found[0] if len(found) == 1 and found[0].startswith(f"{key}_") else None


# DeepSpeed edaa7221 deepspeed/__init__.py:270 add_config_arguments: beside its switch --deepspeed,
# for loops without the Trainer, whose own --deepspeed names the file.
_CONFIG_OPTION = "deepspeed_config"


def _is_bare(value: Node) -> bool:
    return isinstance(value, Scalar) and value.value in (True, "True", "true")


def _as_dictionary(value: Node) -> Node:
    if not isinstance(value, Scalar) or not isinstance(value.value, str):
        return value
    if not value.value.lstrip().startswith("{"):
        return value
    try:
        loaded = json.loads(value.value)
    except (ValueError, RecursionError):
        return value
    return _node(loaded, value.span)


_INSIDE_TEXT = "it stands inside a JSON text on the command line"


def _node(value: Any, span: Span) -> Node:
    if isinstance(value, dict):
        entries = {k: Entry(k, span, _node(v, span), span) for k, v in value.items()}
        return Mapping(span, entries, locked=_INSIDE_TEXT)
    if isinstance(value, list):
        return Items(span, tuple(_node(v, span) for v in value), locked=_INSIDE_TEXT)
    return Scalar(span, value, locked=_INSIDE_TEXT)
