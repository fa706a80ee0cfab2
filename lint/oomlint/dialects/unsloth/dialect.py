"""Unsloth: scripts and notebooks that load with its classes and train with TRL's trainers.

Read from unsloth 015bdef0 (2026-08-22; ``U`` below is ``unslothai/unsloth unsloth/``) and
unsloth_zoo 2026.10.9 (``Z``). It loads in 4 bit unless told otherwise, checkpoints activations to
the CPU, never materialises all logits, and gives TRL's config classes defaults of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import ref
from oomlint.dialects.deepspeed.asked import BY_TRAINER
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.meaning import Wishes, expressed, writable
from oomlint.dialects.trainer.dialect import SHELL_SUFFIXES
from oomlint.dialects.trainer.script import ScriptRun, script_runs
from oomlint.dialects.trainer.script_claim import script_claim
from oomlint.dialects.trainer.tables import ARGUMENTS
from oomlint.dialects.trainer.training_arguments import in_training_arguments
from oomlint.dialects.trl.objectives import objective_of_class
from oomlint.dialects.unsloth.keys import CLI, FAST_MODEL, FAST_PEFT, PATCHED, PLAIN
from oomlint.dialects.unsloth.meaning import meaning
from oomlint.documents.base import Call, Document


class Unsloth(Dialect):
    name = "unsloth"
    reads_programs = True
    markers: ClassVar[tuple[bytes, ...]] = (b"unsloth",)
    suffixes: ClassVar[tuple[str, ...]] = (".py", *SHELL_SUFFIXES)
    only_marked: ClassVar[tuple[str, ...]] = (".py",)
    references = {ref.deepspeed: "deepspeed", ref.fsdp_config: "fsdp-config"}
    asks = BY_TRAINER
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for launch in launches(document):
            if launch.stem == "unsloth-cli":
                block = launch.program_block(CLI)
                blocks = (*launch.blocks, block)
                yield Claim(self, "launch", document, blocks, launch.scene_references)
        for run in script_runs(document, patched=True):
            if run.model is not None and _is_fast(run.model):
                yield self._claim(document, run)

    def _claim(self, document: Document, run: ScriptRun) -> Claim:
        named = run.trainer or run.config
        kind = objective_of_class(named.callee) if named is not None else "sft"
        is_plain = run.config is not None and run.config.callee.endswith("TrainingArguments")
        own = run.trainer is not None and run.trainer.callee.endswith("UnslothTrainer")
        table = (PLAIN if is_plain else PATCHED)[kind] if run.uses_trl or own else ARGUMENTS
        others = [*run.others]
        others += ((call, FAST_PEFT) for call in _wrappers(document))
        run = replace(run, others=tuple(others))
        return script_claim(self, document, run, table, model_table=FAST_MODEL)

    def express(self, changes: Wishes, run: Cells) -> dict[Any, Any]:
        own = in_training_arguments(expressed(changes, run), run)
        return writable(own, run, self.name)


def _is_fast(call: Call) -> bool:
    return call.callee.rpartition(".")[0].rpartition(".")[2].startswith("Fast")


def _wrappers(document: Document) -> Iterator[Call]:
    """The first ``FastLanguageModel.get_peft_model``; a later one is of another model."""
    found = (c for c in document.calls if c.callee.endswith(".get_peft_model") and _is_fast(c))
    yield from list(found)[:1]
