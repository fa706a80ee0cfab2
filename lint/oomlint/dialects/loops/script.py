"""Which calls of a script make up the run of a loop that it writes out itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block
from oomlint.dialects.common.config_values import with_files
from oomlint.dialects.entries import plain_value
from oomlint.dialects.loops.blocks import block_of
from oomlint.dialects.loops.how import how_trained, told_lengths
from oomlint.dialects.loops.keys import (
    SWITCHES,
)
from oomlint.dialects.loops.models import model_block, models_of, names_model, quantizers
from oomlint.dialects.machine.colab import machine_of_notebook
from oomlint.dialects.machine.own_devices import devices_of_script
from oomlint.dialects.machine.ray_train import ray_workers
from oomlint.dialects.nanogpt.signature import is_configured
from oomlint.dialects.trainer.beside_calls import calls_beside
from oomlint.dialects.trainer.sample_calls import cutting
from oomlint.dialects.trainer.tables import FROM_PRETRAINED, QUANTIZATION, TOKENIZER
from oomlint.documents.base import (
    Document,
    Entry,
    Mapping,
    PythonDocument,
    parser_of,
)
from oomlint.documents.text import Location, Span

if TYPE_CHECKING:
    from oomlint.documents.python.loops.loop import Loop

# Libraries of other models, and of configs that are joined out of sight.
_FOREIGN = frozenset({"diffusers", "hydra", "omegaconf", "timm", "unsloth"})
# What tests a library trains nothing that anybody waits for.
_TESTS = re.compile(r"(?:^|/)(?:tests?|test_utils|unit)/|(?:^|/)test_[^/]*\.py$|_test\.py$")
_FRAMEWORKS = {"accelerate": "accelerate", "deepspeed": "deepspeed", "fabric": "lightning",
               "lightning": "lightning", "torch": "torch"}  # fmt: skip


def loop_claim(dialect: Dialect, document: Document) -> Claim | None:
    """The claim on a script that trains in a loop of its own; ``None`` for any other."""
    loop = document.loop if isinstance(document, PythonDocument) else None
    if loop is None or _imports(document) & _FOREIGN or _TESTS.search(document.source.path):
        return None
    if is_configured(document):
        return None  # a dialect of its own reads these
    blocks = _blocks(document, loop)
    if blocks is None:
        return None
    names = any(names_model(block) for block in blocks if block.table is FROM_PRETRAINED)
    if not names and not _is_program(document) and not (loop.parts and loop.is_started):
        return None  # a module of a library: who uses it says what is trained
    where = Location(document.source.path, loop.centre.span)
    parts = (
        Reference(part.path, where, dialect.name, optional=True, claim=part.name, adopts=False)
        for part in loop.parts
    )
    framework = _FRAMEWORKS[loop.kind]
    return Claim(dialect, "run", document, blocks, tuple(parts), framework=framework)


def part_claims(dialect: Dialect, document: Document) -> Iterator[Claim]:
    """The claims on classes that Lightning trains in another file, or takes batches from there."""
    parts = document.lightning if isinstance(document, PythonDocument) else ()
    if not parts or _imports(document) & _FOREIGN or _TESTS.search(document.source.path):
        return
    for loop in parts:
        blocks = _blocks(document, loop)
        if blocks is not None:
            name = f"{document.source.path}:{loop.name}"
            yield Claim(dialect, "aside", document, blocks, name=name, framework="lightning")


def _blocks(document: Document, loop: Loop) -> tuple[Block, ...] | None:
    """What a loop says, or a part of one; ``None`` where no language model is trained, as far as one sees."""
    switches = _switches(document, loop)
    options = {name: entry.value for name, entry in switches.items()}
    models = models_of(document, loop, options)
    is_made_elsewhere = not loop.models and bool(loop.parts or loop.name)
    if not models and not is_made_elsewhere:
        return None
    calls = document.calls
    blocks: list[Block] = []
    for model in models:
        blocks.append(model_block(document, loop, model))
        blocks += (block_of(document, call, QUANTIZATION) for call in quantizers(model))
    if models or not loop.name:
        beside = calls_beside(calls, None, options)
        blocks += (block_of(document, call, table) for call, table in beside)
    blocks += told_lengths(document, loop)
    blocks += (block_of(document, call, TOKENIZER) for call in cutting(calls))
    blocks += how_trained(document, loop, calls, options)
    if switches:
        where = Span(loop.centre.span.start, loop.centre.span.start)
        blocks.insert(0, Block(document, Mapping(where, switches), SWITCHES, where))
    blocks += (*machine_of_notebook(document), *ray_workers(document), *devices_of_script(document))
    return tuple(with_files(blocks))


def _imports(document: Document) -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in document.imports)


def _is_program(document: Document) -> bool:
    """Whether a file is there to be started, by what it takes from a command line."""
    options = parser_of(document)
    return bool(options is not None and options.names) or "__main__" in document.source.text


def _switches(document: Document, loop: Loop) -> dict[str, Entry]:
    """The defaults of the options of the script's command line; what is ``None`` is asked for."""
    declared = document.option_defaults if isinstance(document, PythonDocument) else None
    of_classes = {} if declared is None else declared.entries
    both = {**of_classes, **({} if loop.switches is None else loop.switches.entries)}
    return {n: e for n, e in both.items() if plain_value(e.value, "yaml12") is not None}
