"""Blocks of a DeepSpeed config, in a file or as a framework ships it."""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from oomlint.dialects.block import Block
from oomlint.dialects.deepspeed.keys import DEEPSPEED
from oomlint.dialects.deepspeed.presets import former_preset, shipped_preset
from oomlint.dialects.reading import Reading
from oomlint.dialects.setting import Setting
from oomlint.documents.base import Document, Mapping
from oomlint.documents.text import Location, Source, Span


def deepspeed_block(document: Document, root: Mapping) -> Block:
    entry = root.entries.get("zero_optimization") or next(iter(root.entries.values()), None)
    return Block(document, root, DEEPSPEED, entry.key_span if entry else Span(0, 0))


def preset_block(path: str, named: Location) -> Block | None:
    """The config that a framework ships under a name, said where it is ``named``."""
    why = (
        f"{path} was not found here; its values are those that the framework ships under that name"
    )
    return _block_of(path, shipped_preset(path), named, why)


def former_block(path: str, named: Location, framework: str) -> Block | None:
    """The config that a framework shipped where its folder was called otherwise, said where it is ``named``."""
    why = f"{path} was not found here; its values are those that the framework shipped under that name in its day"
    return _block_of(path, former_preset(path, framework), named, why)


def _block_of(path: str, text: str | None, named: Location, why: str) -> Block | None:
    if text is None:
        return None
    from oomlint.documents.json import parse_json

    document = parse_json(Source(path, text))
    if not isinstance(document.root, Mapping):
        return None
    return replace(deepspeed_block(document, document.root), locked=why, referred=named)


def wished_preset(named: Setting | None) -> Reading | None:
    """What a shipped config says that a change names in the place of another one."""
    if named is None or named.origin.kind != "option" or not named.shadowed:
        return None
    location = named.shadowed[0].origin.value_location
    return None if location is None else _read_preset(str(named.value), location)


@lru_cache(maxsize=256)
def _read_preset(path: str, named: Location) -> Reading | None:
    """What a shipped config says: read once, since each of its fields asks, in each trial of a planner."""
    block = preset_block(path, named)
    return None if block is None else block.read()
