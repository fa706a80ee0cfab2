"""Megatron-SWIFT: ``megatron sft|pt|rlhf`` of ms-swift, options and YAML, Ray's included.

Read from ms-swift 3602360a (4.6.0.dev0) ``swift/megatron`` and its branches from release/3.2.
Megatron-core trains the model; keys are Megatron's own where it has one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.ms_swift.keys import command_line
from oomlint.dialects.ms_swift.launch import (
    command_of,
    config_block,
    is_megatron,
    kind_of,
    launch_claims,
)
from oomlint.dialects.ms_swift.megatron_keys import MEGATRON_SWIFT, RUN_ROWS
from oomlint.dialects.ms_swift.megatron_meaning import meaning
from oomlint.dialects.table import Table
from oomlint.documents import JSON_SUFFIXES, SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import Document, roots

_COMMANDS = ("sft", "pt", "rlhf")


@cache
def _options(command: str) -> Table | None:
    """The keys that ``megatron`` takes with a command, ``None`` if it trains nothing."""
    keys = replace(MEGATRON_SWIFT, rows=RUN_ROWS)
    return command_line(keys, f"megatron {command}") if command in _COMMANDS else None


class MegatronSwift(Dialect):
    name = "megatron-swift"
    packages = ("swift",)
    markers = (
        b"megatron",
        b"tensor_model_parallel_size",
        b"recompute_granularity",
        b"micro_batch_size",
    )
    suffixes = (*YAML_SUFFIXES, *JSON_SUFFIXES, *SHELL_SUFFIXES)
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            if is_megatron(root):
                kind = kind_of(root)
                if kind is not None:
                    block = config_block(document, root, MEGATRON_SWIFT)
                    yield Claim(self, kind, document, (block,), framework="ms-swift")
        for launch in launches(document):
            found = _command(launch)
            if found is not None:
                for claim in launch_claims(self, launch, found, _options):
                    yield replace(claim, framework="ms-swift")


def _command(launch: Launch) -> tuple[str, int] | None:
    return command_of(launch, "megatron", "swift.cli._megatron")
