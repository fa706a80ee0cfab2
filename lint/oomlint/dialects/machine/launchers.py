"""How launch lines are taken apart: who starts the ranks, and which word belongs to whom.

Knows torchrun, DeepSpeed's and Accelerate's launchers, ``srun``, ``mpirun`` and plain Python,
and nothing of the training framework behind them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.block import Block
from oomlint.dialects.machine.beaker import TABLES as BEAKER_TABLES
from oomlint.dialects.machine.colab import machine_of_notebook
from oomlint.dialects.machine.docker_run import docker_environment, docker_scene, inner_commands
from oomlint.dialects.machine.enclosing import Enclosing
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launcher_keys import (
    ACCELERATE_LAUNCHER,
    DEEPSPEED_LAUNCHER,
    ENVIRONMENT,
    LAUNCHER_TABLES,
    MPIRUN,
    PLAIN,
    SRUN,
    TORCHRUN,
)
from oomlint.dialects.machine.slurm_keys import SBATCH, SLURM_COMMAND
from oomlint.dialects.table import Table
from oomlint.documents.base import Command, Document, Entry, Mapping, Scalar, ShellDocument
from oomlint.documents.shell.names import SHELLS, is_subcommand, operands_of
from oomlint.documents.shell.nodes import ShellMapping, ShellScalar, order_of

PYTHON = re.compile(r"python[\d.]*$|ipython$|pypy\d?$")

# Slurm's commands that ask for a machine.
_ALLOCATING = frozenset({"srun", "salloc", "sbatch"})

# Launchers that only set the scene for the next word.
_TRANSPARENT = frozenset(
    {
        "uv", "poetry", "pipenv", "conda", "micromamba", "pixi", "singularity", "apptainer",
        "nohup", "time", "env", "exec", "sudo", "eval", "timeout", "numactl", "nsys", "ncu",
        "taskset", "ssh", "pdsh", "salloc", "sbatch", "ionice", "nice", "stdbuf", "ray", "command",
        "setsid", "proxychains", "proxychains4", "py-spy", "gantry",
    }
)  # fmt: skip

# What those that ask for a machine are told.
_ASKED = {**dict.fromkeys(_ALLOCATING, SLURM_COMMAND), **BEAKER_TABLES}

# What they name is text to them, not a program.
_NEVER_START = frozenset(
    {"echo", "printf", "grep", "pgrep", "pkill", "kill", "sed", "awk", "which"}
)


def launch_lines(document: Document) -> Iterator[Launch]:
    """The commands that start programs, those that ``docker run`` starts in containers too."""
    for command in document.commands:
        for started in inner_commands(document, command) or (command,):
            launch = read_launch(document, started)
            if launch is not None and not _asks_for_help(launch):
                yield launch


def _asks_for_help(launch: Launch) -> bool:
    """``--help`` prints a program's options and starts nothing."""
    asked = (launch.flags.entries.get(key) for key in ("h", "help"))
    return any(entry is not None and _is_bare(entry) for entry in asked)


def _is_bare(entry: Entry) -> bool:
    """Whether an option has no value."""
    return isinstance(entry.value, Scalar) and entry.value.value is True


def submitted(document: Document) -> Iterator[tuple[str, Block]]:
    """Scripts that ``sbatch`` hands to Slurm, each with what its own line asks for."""
    for command in document.commands:
        first = _text(command.words[0]) if command.words else ""
        launch = read_launch(document, command) if first.endswith("sbatch") else None
        for block in launch.blocks if launch is not None else ():
            if launch is not None and block.table is SLURM_COMMAND:
                yield launch.name, block


def read_launch(document: Document, command: Command) -> Launch | None:
    """Take a command apart; ``None`` where no program can be told."""
    words = command.words
    number = _first_of_inner_line(words)
    handing = (word for word in words[:number] if _text(word).endswith(".py"))
    stages = [_Stage(_base(word), order_of(words[0]), word) for word in islice(handing, 1)]
    if not number and _is_untold_launcher(words):
        stages, number = [_Stage(_UNTOLD, order_of(words[0]), words[0])], 1
    while number < len(words):
        base = _base(words[number])
        if not (base in LAUNCHER_TABLES or PYTHON.match(base) or base in _TRANSPARENT):
            break
        first, operands = number, operands_of(base)
        number += 1
        while number < len(words) and (is_subcommand(base, _text(words[number])) or operands):
            operands -= not is_subcommand(base, _text(words[number]))
            number += 1
        stages.append(_Stage(base, order_of(words[first]), words[number - 1]))
    program = _found_below(words[number]) if number < len(words) else None
    if program is None or _text(program) in ("", *_NEVER_START):
        return None
    *shares, theirs = _shared_out(command.flags, [*stages, _Stage("", order_of(program), program)])
    table, launcher_flags = _launcher(command.flags, stages, shares)
    if table is PLAIN:
        table, launcher_flags = _around_shell(document, command) or (table, launcher_flags)
    outer = [
        (asked, share)
        for stage, share in zip(stages, shares, strict=True)
        if (asked := _ASKED.get(stage.name)) is not None and share.entries
    ]
    return Launch(
        document=document,
        command=command,
        launcher=table,
        program=program,
        is_module=_is_module(command, program),
        arguments=words[number + 1 :],
        flags=theirs,
        blocks=tuple(_scene(document, command, outer, launcher_flags, table)),
    )


def _is_untold_launcher(words: tuple[Scalar, ...]) -> bool:
    """``$LAUNCHER train.py``: what is only known when the line runs starts the script behind it."""
    return (
        len(words) > 1
        and not isinstance(words[0].value, str)
        and not _base(words[0])
        and _text(words[1]).endswith(".py")
    )


def _found_below(program: Scalar) -> Scalar:
    """A script below a folder that a variable without a value names (``python $ROOT/src/train.py``): it is looked for
    from here."""
    tail = program.tail if isinstance(program, ShellScalar) else ""
    return replace(program, value=tail) if "/" in tail and tail.endswith(".py") else program


def _first_of_inner_line(words: tuple[Scalar, ...]) -> int:
    """Where the command begins that a script hands on: ``python submit.py ... -- torchrun``."""
    scripts = [n for n, word in enumerate(words) if _text(word).endswith(".py")]
    for number in range(scripts[0] + 1, scripts[-1]) if scripts else ():
        base = _text(words[number]).rpartition("/")[2]
        starts_last = PYTHON.match(base) and number + 1 == scripts[-1]
        passes_on = base in _TRANSPARENT and is_subcommand(base, _text(words[number + 1]))
        if LAUNCHER_TABLES.get(base) in _STRONG or starts_last or passes_on:
            return number
    return 0


# Stands for the name of a launcher that only running tells.
_UNTOLD = "?"


class _Stage(Struct, frozen=True):
    """One of the programs on a line that start one another; ``last`` is its last plain word."""

    name: str
    order: int
    last: Scalar


# Of several launchers on a line the innermost of the strongest kind decides: `srun torchrun`
# starts what torchrun is told.
_STRONG = (TORCHRUN, DEEPSPEED_LAUNCHER, ACCELERATE_LAUNCHER)
# Those that start any program, a shell too.
_STARTING_SHELLS = (MPIRUN, SRUN)


def _launcher(flags: Mapping, stages: list[_Stage], shares: list[Mapping]) -> tuple[Table, Mapping]:
    """The table of the program that starts the ranks, and its options."""
    found = [
        (table, stage, share)
        for stage, share in zip(stages, shares, strict=True)
        if (table := _table_of(stage, share)) is not None
    ]
    if not found:
        return PLAIN, replace(flags, entries={}, duplicates=(), open_ended=False)
    strong = [each for each in found if each[0] in _STRONG]
    table, stage, share = (strong or found)[-1]
    return table, _ending_at(share, place(stage.last).end)


def _around_shell(document: Document, command: Command) -> tuple[Table, Mapping] | None:
    """Who starts the shell that runs a command (``mpirun -np 8 bash -c "python train.py"``), and its options: as often as
    the shell, the command runs."""
    for outer in reversed(_handing_on(document).around(command.span)):
        launch = None if outer.span == command.span else read_launch(document, outer)
        if launch is not None and launch.launcher in _STARTING_SHELLS and launch.stem in SHELLS:
            (own,) = (block for block in launch.blocks if block.table is launch.launcher)
            return launch.launcher, own.mapping
    return None


def _table_of(stage: _Stage, share: Mapping) -> Table | None:
    """The options of a launcher; of one that nobody names, those of the only one that has what it is told."""
    if stage.name != _UNTOLD:
        return LAUNCHER_TABLES.get(stage.name)
    given = share.entries.keys()
    having = [table for table in _STRONG if given & table.names.keys()]
    return having[0] if len(having) == 1 else None


def _scene(
    document: Document,
    command: Command,
    outer: list[tuple[Table, Mapping]],
    flags: Mapping,
    table: Table,
) -> Iterator[Block]:
    anchor = place(command.words[0])
    yield from machine_of_notebook(document)
    slurm = [share for asked, share in outer if asked is SLURM_COMMAND]
    sbatch = _directives(document, slurm)
    if sbatch is not None and sbatch.entries:
        yield Block(document, sbatch, SBATCH, sbatch.span)
    around = (c for c in _handing_on(document).around(command.span) if c.span != command.span)
    asking = (c.flags for c in around if _base(c.words[0]) in _ALLOCATING)
    for share in (*asking, *slurm):
        yield Block(document, _of_job(share), SLURM_COMMAND, anchor)
    for asked, share in outer:
        if asked is not SLURM_COMMAND:
            yield Block(document, share, asked, anchor)
    yield from docker_scene(document, command)
    given = docker_environment(document, command)
    if given is not None:
        yield Block(document, given, ENVIRONMENT, anchor)
    yield Block(document, command.environment, ENVIRONMENT, anchor)
    yield Block(document, flags, table, anchor)


def _of_job(share: Mapping) -> Mapping:
    """Options of Slurm's commands without those that the job's own size gives a value:
    ``srun --nodes=$SLURM_NNODES`` and ``--nodes=$((SLURM_NNODES - 1))`` count a step of the job, and
    say nothing of how large that is."""
    entries = share.entries.items()
    own = {key: entry for key, entry in entries if not _asks_machine(entry)}
    return share if len(own) == len(share.entries) else replace(share, entries=own)


def _asks_machine(entry: Entry) -> bool:
    return isinstance(entry.value, ShellScalar) and bool(entry.value.asks)


def _directives(document: Document, outer: list[Mapping]) -> Mapping | None:
    """What the job asks Slurm for; of a heterogeneous job the component that ``srun`` names
    (Slurm 24.05, "Heterogeneous Job Support"), ``None`` where it spreads over several."""
    if not isinstance(document, ShellDocument):
        return None
    components = document.components
    for share in reversed(outer if components else ()):
        entry = share.entries.get("het_group") or share.entries.get("pack_group")
        if entry is None or not isinstance(entry.value, Scalar):
            continue
        group = str(entry.value.value)
        known = group.isdigit() and int(group) < len(components)
        return components[int(group)] if known else None
    return document.sbatch


@lru_cache(maxsize=4)  # asked for every command of a script
def _handing_on(document: Document) -> Enclosing:
    """The commands that may be an ``sbatch --wrap "..."`` or ``mpirun bash -c "..."``."""
    return Enclosing(
        command
        for command in document.commands
        if command.words
        and (
            (base := _base(command.words[0])) in _ALLOCATING
            or LAUNCHER_TABLES.get(base) in _STARTING_SHELLS
        )
    )


def _shared_out(flags: Mapping, stages: list[_Stage]) -> list[Mapping]:
    """The options of a line, each with the program that it stands behind."""
    wins: list[dict[str, Entry]] = [{} for _ in stages]
    lost: list[list[Entry]] = [[] for _ in stages]
    every = sorted((*flags.duplicates, *flags.entries.values()), key=order_of)
    for entry in every:
        owner = sum(order_of(entry) >= stage.order for stage in stages[1:])
        earlier = wins[owner].pop(entry.key, None)
        if earlier is not None:
            lost[owner].append(earlier)
        wins[owner][entry.key] = entry
    last = len(stages) - 1
    return [
        replace(
            flags,
            entries=wins[number],
            duplicates=tuple(lost[number]),
            open_ended=flags.open_ended and number == last,
        )
        for number in range(len(stages))
    ]


def _text(word: Scalar) -> str:
    return word.value if isinstance(word.value, str) else ""


def _base(word: Scalar) -> str:
    """The program that a word names, wherever it lies: the folder may be in a variable without a value."""
    base = word.base if isinstance(word, ShellScalar) else ""
    return base or _text(word).replace("\\", "/").rpartition("/")[2]


def _is_module(command: Command, program: Scalar) -> bool:
    """Whether the program was named after ``-m`` or ``--module``."""
    flags = (*command.flags.entries.values(), *command.flags.duplicates)
    return any(
        entry.key in ("m", "module")
        and isinstance(entry.value, Scalar)
        and entry.value.value == program.value
        for entry in flags
    )


def _ending_at(flags: Mapping, offset: int) -> Mapping:
    """A launcher without options takes new ones right after its own name."""
    if flags.entries or not isinstance(flags, ShellMapping):
        return flags
    return replace(flags, words_end=offset)
