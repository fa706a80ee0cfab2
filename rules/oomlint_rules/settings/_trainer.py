"""Which runs transformers' Trainer drives: it compares a DeepSpeed config with its arguments."""

from __future__ import annotations

from oomlint.dialects.block import Block
from oomlint.documents.base import ShellDocument
from oomlint.judgement import unread_program
from oomlint.runs.run import Run

# Each hands its arguments to transformers' Trainer, whose HfTrainerDeepSpeedConfig compares
# them (transformers 5.23 integrations/deepspeed.py:108-258). Accelerate and DeepSpeed on
# their own take the JSON's word.
_ON_TRAINER = frozenset({"axolotl", "llama-factory", "trl", "hf-trainer", "ms-swift", "unsloth"})


def trainer_compares(run: Run) -> bool:
    """Whether it is known to: a program that nobody read may have a loop of its own under the same options."""
    if not (run.dialect.name in _ON_TRAINER or run.framework in _ON_TRAINER):
        return False
    if unread_program(run):
        return False
    blocks = [block for block, _ in run.parts.blocks]
    return not any(_is_for_own_loop(block) or _calls_own_loop(block) for block in blocks)


def _is_for_own_loop(block: Block) -> bool:
    """Whether a command names its file by the option of ``deepspeed.add_config_arguments``, which
    the Trainer does not have: DeepSpeed alone then makes the sizes of batches out."""
    return isinstance(block.document, ShellDocument) and "deepspeed_config" in block.mapping.entries


def _calls_own_loop(block: Block) -> bool:
    """Whether the trainer that a script calls has a loop of the project's own: the library's compares as it begins
    (transformers 5.23 trainer.py, deepspeed_init)."""
    if block.table.section != "trainer":
        return False
    called = block.document.source.text[block.anchor.start : block.anchor.end]
    facts = block.document.facts
    return any(fact.kind == "own-loop" and fact.detail["class"] == called for fact in facts)
