"""What a claim is on: the command, the configs that its script loads, and how sure it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.dialects.base import Claim
from oomlint.dialects.block import Block
from oomlint.dialects.common.config_values import ConfigValues
from oomlint.dialects.reading import Reading
from oomlint.plan.evidence import Level

if TYPE_CHECKING:
    from oomlint.dialects.machine.launch import Launch


def at_most(block: Block, level: Level) -> Block:
    """A block of a file that is named no better than so."""
    return block if block.level >= level else replace(block, level=level)


def configs_of(claim: Claim) -> frozenset[str]:
    """The config files that the script of a claim loads itself, and takes values from."""
    documents = (block.document for block in claim.blocks)
    return frozenset(d.source.path for d in documents if isinstance(d, ConfigValues))


def launch_of(claim: Claim) -> Launch | None:
    """The command that a claim is on, if it is on one."""
    if not claim.is_launched or not claim.blocks:
        return None
    from oomlint.dialects.machine.launches import launches

    at = claim.blocks[-1].anchor
    return next((launch for launch in launches(claim.document) if launch.anchor == at), None)


def starts_script(claim: Claim) -> bool:
    """Whether a claim is on a command that starts a shell script, which alone says what it trains."""
    launch = launch_of(claim)
    if launch is None:
        return False
    from oomlint.dialects.machine.handed import starts_script

    return starts_script(launch) and PurePath(launch.stem).stem not in claim.dialect.starters


def says_how(claim: Claim) -> bool:
    """Whether a claim is a command with options of its own, or on several GPUs. How a config is started is
    asked where the config is read."""
    from oomlint.dialects.machine.launcher_keys import PLAIN

    launch = launch_of(claim) if claim.kind == "launch" else None
    configs = (r for r in claim.references if r.path != (launch and launch.script))
    if launch is None or any(r.dialect == claim.dialect.name for r in configs):
        return False
    return bool(launch.flags.entries) or launch.launcher is not PLAIN


def without_what_is_cut_off(claim: Claim, launch: Launch) -> Claim:
    """A command whose last options are lost, since a line of it does not go on: the run that starts so, if any does, is
    not the one that is meant, and what that would be is read once the line is mended."""
    source = claim.document.source
    for fact in claim.document.facts:
        # Line ends that break every command are mended in one go, and what is meant is read: its end is a finding.
        if fact.kind == "broken-continuation" and fact.detail["reason"] != "carriage-return":
            last, _ = source.position(fact.location.span.start)
            first, _ = source.position(launch.anchor.start)
            if fact.detail["top"] <= first <= last:
                doubt = f"the command ends in {claim.path}:{last} before its last options"
                # What stands ahead of the program is read whole: it says as much of the run that is meant.
                ahead = ("launcher", "environment") if launch.script is not None else ()
                blocks = (
                    b if {b.table.section, b.table.name}.intersection(ahead) else _doubted(b, doubt)
                    for b in claim.blocks
                )
                return replace(claim, blocks=tuple(blocks))
    return claim


def without_defaults(claim: Claim, why: str) -> Claim:
    """A command over a file that is not here: what its options do not say is not at the framework's defaults for that."""
    return replace(claim, blocks=tuple(replace(block, unsaid=why) for block in claim.blocks))


def _doubted(block: Block, doubt: str) -> Block:
    """A block of which nothing is known, and why: what it leaves unsaid is not at the framework's defaults, either."""
    return replace(block, level=Level.UNREAD, doubt=doubt, unsaid=block.unsaid or doubt)


def doubted_again(
    blocks: Iterable[tuple[Block, Reading]], doubt: str
) -> Iterator[tuple[Block, Reading]]:
    """Blocks and their readings, of which nothing is known."""
    for block, _ in blocks:
        doubted = _doubted(block, doubt)
        yield doubted, doubted.read()
