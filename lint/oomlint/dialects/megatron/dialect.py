"""Megatron-LM: the command lines of ``pretrain_gpt.py`` and its kin, forks included.

A program is known by its name; one that any project may call so, ``train.py``, by what it imports:
other projects pass Megatron's options on to it and more of their own. slime's are another dialect.

Read from Megatron-LM d98e8a64 (2026-08-22), core_v0.7.0 and v2.5. Everything is an option, the
model's dimensions too, and switches have no value. Scripts of forks add options of their own,
so unknown ones are nobody's fault. Megatron-DeepSpeed adds ``--deepspeed_config``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping as MappingABC
from typing import Any, ClassVar, Literal

from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import RemovingBlock
from oomlint.dialects.common.fields import ref
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.megatron.keys import MEGATRON, SWITCHES
from oomlint.dialects.megatron.meaning import meaning
from oomlint.dialects.slime.signature import is_slimes
from oomlint.documents import SHELL_SUFFIXES
from oomlint.documents.base import UNKNOWN, Document, Entry, Mapping, Scalar
from oomlint.documents.text import Edit, Location
from oomlint.errors import CannotEdit

# Megatron-LM d98e8a64, core_v0.7.0 and v2.5, Megatron-DeepSpeed 4efb479d: their own programs, by the
# end of their path, and whatever lies in a checkout of theirs or in the package.
_PROGRAMS = re.compile(
    r"(?:^|/)(?:pretrain_(?:gpt|gpt_core|bert|t5|ict|retro|mamba|hybrid|vlm|vision_\w+)|train_rl"
    r"|finetune_llama|tasks/(?:\w+/)*(?:main|evaluate)|tools/\w*(?:text_generation|samples_gpt"
    r"|merge_mp_partitions)\w*|examples/(?:multimodal|mimo|detxoify_lm|post_training/modelopt)/\w+"
    r"|megatron(?:[-_](?:lm|deepspeed|core)[^/]*)?/.+)$",
    re.IGNORECASE,
)
# Programs of forks, such as pretrain_llama.py, with options that have Megatron's names alone.
_FORK = re.compile(r"(?:^|/)pretrain_\w+$", re.IGNORECASE)
_DEGREES = frozenset(
    {"tensor_model_parallel_size", "pipeline_model_parallel_size", "model_parallel_size"}
)
# Without one of these nothing is known of what a program trains.
_TELLING = _DEGREES | {
    "num_layers", "encoder_num_layers", "use_mcore_models", "use_checkpoint_args",
}  # fmt: skip
_TRAINS = re.compile(r"pretrain|finetune|train|sft|main", re.IGNORECASE)
_NO_TRAINING = re.compile(
    r"generat|infer|server|eval|export|convert|preprocess|tools|merge|quantize|prune|mmlu|"
    r"validate|checkpoint_util|debugpy|echo",
    re.IGNORECASE,
)
# Megatron-LM tasks/main.py and examples/academic_paper_scripts/msdp/main.py, "--task".
_NO_TRAINING_TASK = re.compile(r"EVAL|ZEROSHOT|PROMPT|LAMBADA|WIKITEXT", re.IGNORECASE)
# Switches with which a program that trains makes no optimizer, and evaluates alone (Megatron-LM d98e8a64
# megatron/training/training.py pretrain: skip_train; Megatron-DeepSpeed 4efb479d megatron/training.py: inference).
_FORWARD_ALONE = frozenset({"skip_train", "inference"})
# What a script imports whose command line is read by Megatron's own parser; megatron.core alone
# serves many that have one of their own.
_OWN_PARSER = re.compile(
    r"^[ \t]*(?:from|import)[ \t]+megatron"
    r"(?:\.(?:training|arguments|initialize|global_vars)\b|[ \t]+import[ \t]+(?!core\b))",
    re.MULTILINE,
)


class MegatronOptions(RemovingBlock, frozen=True, eq=False):
    """Options in which a switch may seem to have a value: ``--bf16 $DATA_ARGS``."""

    def write(self, values: MappingABC[str, Any]) -> list[Edit]:
        for name in values:
            entry = self.entry_of(self.table.by_field[name])
            if entry is not None and entry.value.locked:
                raise CannotEdit(entry.value.locked)
        return super().write(values)


# ``ARGS+=("--vocab-size 128256")``, which the shell splits where the array is used.
_ONE_WORD = re.compile(r"[\"']--?[\w-]+[ =]+([^\s\"']+)[\"']$")


def as_options(document: Document, flags: Mapping, switches: frozenset[str] = SWITCHES) -> Mapping:
    """Switches are on whatever follows them, and other options have a value."""
    text = document.source.text
    entries: dict[str, Entry] = {}
    for key, entry in flags.entries.items():
        value = entry.value
        if isinstance(value, Scalar) and key in switches and value.value is not True:
            why = "what follows this switch may belong to it or not"
            entry = replace(entry, value=replace(value, value=True, plain=False, locked=why))
        elif isinstance(value, Scalar) and key not in switches and value.value in (True, ""):
            word = _ONE_WORD.match(text[entry.span.start : entry.span.end])
            held = word[1] if word is not None and "$" not in word[1] else UNKNOWN
            why = "option and value stand in one word of the script"
            plain = value.plain and held is not UNKNOWN
            entry = replace(entry, value=replace(value, value=held, plain=plain, locked=why))
        entries[key] = entry
    return replace(flags, entries=entries)


class MegatronLm(Dialect):
    name = "megatron"
    packages = ("megatron",)
    markers = (b"tensor-model-parallel-size", b"pretrain_gpt", b"num-layers", b"num_layers", b"micro-batch-size")  # fmt: skip
    markers_prove = False
    suffixes = SHELL_SUFFIXES
    references = {ref.deepspeed: "deepspeed"}
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for launch in launches(document):
            kind = _kind_of(launch)
            if kind == "aside":
                yield Claim(self, "aside", document, ())
            elif kind is not None:
                flags = as_options(document, launch.flags)
                blocks = (*launch.blocks, MegatronOptions(document, flags, MEGATRON, launch.anchor))
                references = (*launch.scene_references, *_evidence(launch, kind))
                yield Claim(self, kind, document, blocks, references)


class MegatronScript(Dialect):
    """The Python script of a command, where that script alone tells whose options it takes."""

    name = "megatron-script"
    packages = ("megatron",)
    suffixes = ()
    any_text: ClassVar[bool] = True

    def recognise(self, document: Document) -> Iterable[Claim]:
        return ()

    def adopt(self, document: Document) -> Claim | None:
        is_ours = _OWN_PARSER.search(document.source.text) is not None
        return Claim(self, "part", document, ()) if is_ours else None


def _kind_of(launch: Launch) -> Literal["run", "aside", "launch"] | None:
    """Whether a command trains with Megatron, is another of its programs, starts a script that is
    to be asked, or none."""
    keys = launch.flags.entries.keys()
    if not keys & _TELLING or is_slimes(keys):
        return None
    path = _path_of(launch)
    if _PROGRAMS.search(path) or (_FORK.search(path) and keys & _DEGREES):
        task = launch.flag("task")
        asked = isinstance(task.value, Scalar) and str(task.value.value) if task else ""
        trains_not = _NO_TRAINING.search(path) or _NO_TRAINING_TASK.search(asked or "")
        if trains_not or keys & _FORWARD_ALONE:
            return "aside"
        return "run" if _TRAINS.search(launch.stem) else None
    is_python = launch.is_module or launch.script is not None
    return "launch" if is_python and _TRAINS.search(launch.stem) else None


def _path_of(launch: Launch) -> str:
    """The program as a path without its suffix, of a module too."""
    if launch.is_module:
        return launch.name.replace(".", "/")
    return launch.name.replace("\\", "/").removesuffix(".py")


def _evidence(launch: Launch, kind: str) -> Iterator[Reference]:
    """The script that must be Megatron's for the command to be."""
    if kind == "launch":
        where = Location(launch.document.source.path, place(launch.program))
        path = f"{_path_of(launch)}.py"
        yield Reference(path, where, MegatronScript.name, optional=True, decides=True)
