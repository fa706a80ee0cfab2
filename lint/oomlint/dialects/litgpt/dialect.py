"""LitGPT: its YAML and the command lines of ``litgpt finetune…`` and ``litgpt pretrain``.

Read from litgpt 26857050 (2026-06-29); ``LG`` below is its ``litgpt`` package. jsonargparse
reads options into the arguments of one ``setup`` function a sub-command, whose defaults
differ; it refuses what that function does not have. The YAML does not name its sub-command.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block, OverrideBlock
from oomlint.dialects.kinds import TEXT
from oomlint.dialects.litgpt.keys import LAUNCHED, LITGPT, own
from oomlint.dialects.litgpt.meaning import meaning
from oomlint.dialects.litgpt.script import script_claim, script_launch
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.table import Row, Table
from oomlint.documents.base import Document, Entry, Mapping, Scalar, roots
from oomlint.documents.text import Location, Span

# LG/__main__.py PARSER_DATA and the scripts of the same names.
_TRAINING_WORDS = {
    "finetune": "lora",
    "finetune_lora": "lora",
    "finetune_full": "full",
    "finetune_adapter": "adapter",
    "finetune_adapter_v2": "adapter_v2",
    "pretrain": "pretrain",
}
_SCRIPTS = {
    "lora": "lora",
    "lora_legacy": "lora",
    "full": "full",
    "adapter": "adapter",
    "adapter_v2": "adapter_v2",
    "pretrain": "pretrain",
}


class LitGpt(Dialect):
    name = "litgpt"
    packages = ("litgpt", "lit_gpt")
    ships_configs_in = frozenset({"config_hub"})  # litgpt 0.5.0 config_hub/{finetune,pretrain}
    markers = (b"litgpt", b"micro_batch_size", b"global_batch_size")
    suffixes: ClassVar[tuple[str, ...]] = (
        ".yaml", ".yml", ".sh", ".bash", ".slurm", ".sbatch", ".job",
    )  # fmt: skip
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            if _is_config(root):
                anchor = root.entries["train"].key_span
                blocks = (_guessed_block(document, anchor), Block(document, root, LITGPT, anchor))
                yield Claim(self, "run", document, tuple(b for b in blocks if b is not None))
        for launch in launches(document):
            claim = self._launch(launch)
            if claim is not None:
                yield claim
            elif "litgpt" not in launch.name:
                yield from script_launch(self, launch, LitGptScript.name)

    def _launch(self, launch: Launch) -> Claim | None:
        document = launch.document
        words = [word for word in launch.arguments if isinstance(word.value, str)]
        if launch.stem == "litgpt" and words:
            command, *words = words
            kind = _TRAINING_WORDS.get(str(command.value))
            if kind == "lora" and words and words[0].value in _SCRIPTS:
                # Up to 0.4 the method was a word of its own: litgpt finetune lora.
                kind = _SCRIPTS[str(words[0].value)]
                command, *words = words
            if kind is None:
                return Claim(self, "aside", document, ())
        elif "litgpt" in launch.name and launch.stem in _SCRIPTS:
            command, kind = launch.program, _SCRIPTS[launch.stem]
        else:
            return None
        at = place(command)
        said = {"command": Entry("command", at, Scalar(at, kind), at)}
        if words:
            said["model"] = Entry("model", place(words[0]), words[0], place(words[0]))
        launched = Block(
            document, Mapping(at, said), LAUNCHED, at, locked="it is a word of the command"
        )
        config = launch.flag("config")
        name = config.value.value if config and isinstance(config.value, Scalar) else None
        if config is None or not isinstance(name, str):
            return Claim(
                self, "run", document, (*launch.blocks, launched, launch.program_block(LITGPT))
            )
        where = Location(document.source.path, place(config.value))  # type: ignore[arg-type]
        reference = Reference(name, where, self.name, optional="://" in name)
        overrides = OverrideBlock(document, launch.flags, LITGPT, launch.anchor)
        return Claim(self, "launch", document, (*launch.blocks, launched, overrides), (reference,))


class LitGptScript(LitGpt):
    """A script of a command, where the command's own words are anybody's."""

    name = "litgpt-script"
    suffixes = ()
    any_text: ClassVar[bool] = True

    def recognise(self, document: Document) -> Iterable[Claim]:
        return ()

    def adopt(self, document: Document) -> Claim | None:
        return script_claim(self, document, LitGpt.name)


def _is_config(root: Mapping) -> bool:
    """``train`` with a batch size, and what is trained; no other framework has both."""
    train = root.section("train")
    if train is None or not {"micro_batch_size", "global_batch_size"} & set(train.entries):
        return False
    if {"checkpoint_dir", "model_name", "model_config"} & set(root.entries):
        return True
    return str(root.said("data", "class_path")).startswith("litgpt.")


def _guessed_block(document: Document, anchor: Span) -> Block | None:
    """The sub-command that the names of a file and its folder suggest: ``config_hub/…/lora.yaml``."""
    name = document.source.path.rpartition("/")[2].lower()
    for word in ("lora", "full", "adapter", "pretrain"):
        if word in name:
            entry = Entry("command", anchor, Scalar(anchor, word), anchor)
            mapping = Mapping(anchor, {"command": entry})
            return Block(document, mapping, _FILE_NAME, anchor, locked="it is the file's name")
    return None


_FILE_NAME = Table(
    name="file name",
    rows=(Row("command", own.named_command, TEXT),),
    section="file name",
)
