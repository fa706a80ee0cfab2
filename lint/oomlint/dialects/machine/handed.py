"""Scripts that other scripts start, and what they hand on: arguments (``sbatch train.slurm --config
a.yaml``, ``bash train.sh 8``) and variables (``MODEL=a/b bash train.sh``, or ``export MODEL=a/b`` before)."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from oomlint.dialects.block import Block
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.machine.slurm_keys import SLURM_COMMAND
from oomlint.documents import SHELL_SUFFIXES, kind_of
from oomlint.documents.base import Document, Entry, Node, Scalar, Sequence as SequenceNode
from oomlint.documents.shell.names import SHELLS
from oomlint.documents.shell.nodes import ShellEntry, order_of

CARDS = "CUDA_VISIBLE_DEVICES"
# Where programs look for others: most scripts add to what there is, and none trains otherwise for it.
_SEARCHED = frozenset({"PATH", "PYTHONPATH", "LD_LIBRARY_PATH"})


class Handed(Struct, frozen=True, eq=False):
    """A command that starts a shell script, with what it asks of Slurm for it."""

    script: str
    arguments: tuple[str | None, ...]
    asked: tuple[Block, ...]
    variables: tuple[tuple[str, str | None], ...] = ()
    """What the command's environment holds of the starting script's own; ``None`` of what nobody knows."""
    is_shown: bool = False
    """Whether that is only how somebody may start it: an example in a README."""


def handed(document: Document) -> Iterator[Handed]:
    """The scripts that a script starts with arguments, or with variables of its own."""
    for launch in launches(document):
        script = _script(launch)
        if script is None:
            continue
        arguments, variables = tuple(_arguments(launch, script)), tuple(_variables(launch))
        if arguments or variables:
            asked = tuple(block for block in launch.blocks if block.table is SLURM_COMMAND)
            yield Handed(str(script.value), arguments, asked, variables)


def started_scripts(document: Document) -> Iterator[tuple[str, dict[str, str | None]]]:
    """The scripts that a script starts, handed anything or not, with the variables of their environment."""
    for launch in launches(document):
        script = _script(launch)
        if script is not None:
            yield str(script.value), dict(_variables(launch))


def starts_script(launch: Launch) -> bool:
    """Whether a command starts a shell script, which alone says what is trained and how."""
    return _script(launch) is not None


def _script(launch: Launch) -> Scalar | None:
    word = launch.program
    if launch.stem in SHELLS and launch.arguments:
        word = launch.arguments[0]
    is_script = isinstance(word.value, str) and kind_of(word.value) in SHELL_SUFFIXES
    return word if is_script else None


def _arguments(launch: Launch, script: Scalar) -> Iterator[str | None]:
    """The words behind the script's name, in the order in which they stand."""
    mappings = (launch.flags, launch.command.assignments)
    entries = [e for m in mappings for e in (*m.duplicates, *m.entries.values())]
    words = [word for word in launch.arguments if order_of(word) > order_of(script)]
    parts: list[Entry | Scalar] = [*entries, *words]
    for each in sorted(parts, key=order_of):
        if order_of(each) <= order_of(script):
            continue
        if isinstance(each, Entry):
            yield from _spelled(launch, each)
        else:
            yield _text(each)


def _variables(launch: Launch) -> Iterator[tuple[str, str | None]]:
    for name, entry in launch.command.environment.entries.items():
        if name not in _SEARCHED:
            yield name, _text(entry.value)


def _spelled(launch: Launch, entry: Entry) -> Iterator[str | None]:
    is_assignment = launch.command.assignments.entries.get(entry.key) is entry
    if is_assignment:
        text = _text(entry.value)
        lead = entry.lead if isinstance(entry, ShellEntry) else ""
        yield None if text is None else f"{lead}{entry.key}={text}"
        return
    option = ("-" if len(entry.key) == 1 else "--") + entry.key
    text = _text(entry.value)
    if text is not None and launch.document.source.text.startswith("=", entry.key_span.end):
        yield f"{option}={text}"  # one word, whatever blanks its quotes hold
        return
    yield option
    if isinstance(entry.value, SequenceNode):
        yield from map(_text, entry.value.items)
    elif not (isinstance(entry.value, Scalar) and entry.value.value is True):
        yield _text(entry.value)


def _text(node: Node) -> str | None:
    """A word as it stands, ``None`` where only running the script would tell."""
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (str, int, float)) else None
