"""A command that starts a program, taken apart: dialects of all frameworks build upon it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from oomlint.dialects.base import Reference
from oomlint.dialects.block import Block
from oomlint.dialects.machine.launcher_keys import ACCELERATE_LAUNCHER, HOSTFILE_ALIASES
from oomlint.dialects.table import Table
from oomlint.documents.base import Command, Document, Entry, Mapping, Node, Scalar
from oomlint.documents.text import Location, Span


class Launch(Struct, frozen=True, eq=False):
    """A command that starts a program, taken apart.

    ``launcher`` is the table of the program that starts the ranks (:data:`PLAIN` where
    nobody does). ``program`` is the script, module or console program as written;
    ``arguments`` are its positional words, ``flags`` its own options.
    ``blocks`` hold the scheduler's directives, the environment and the launcher's options,
    in rising precedence; they can be written to.
    """

    document: Document
    command: Command
    launcher: Table
    program: Scalar
    is_module: bool
    arguments: tuple[Scalar, ...]
    flags: Mapping
    blocks: tuple[Block, ...]

    @property
    def name(self) -> str:
        """The program as written: ``src/train.py``, ``llama_recipes.finetuning``, ``trl``."""
        return str(self.program.value)

    @property
    def stem(self) -> str:
        """The last part of the program's name, without folders, packages and ``.py``."""
        if self.is_module:
            return self.name.rpartition(".")[2]
        return self.name.replace("\\", "/").rpartition("/")[2].removesuffix(".py")

    @property
    def script(self) -> str | None:
        """The path of the Python file that is started, if it is one."""
        return self.name if not self.is_module and self.name.endswith(".py") else None

    @property
    def file(self) -> str | None:
        """The path of the Python file that is started, be it as a module."""
        return f"{self.name.replace('.', '/')}.py" if self.is_module else self.script

    @property
    def anchor(self) -> Span:
        """Where to point for what the command as a whole lacks."""
        return place(self.program)

    def program_block(self, table: Table, mapping: Mapping | None = None) -> Block:
        """The program's own options, read with ``table``; additions go after them."""
        return Block(self.document, mapping or self.flags, table, self.anchor)

    def flag(self, key: str) -> Entry | None:
        return self.flags.entries.get(key)

    @property
    def scene_references(self) -> tuple[Reference, ...]:
        """Files that describe the launch: the launcher's Accelerate config or list of hosts,
        variables of the container around it."""
        from oomlint.dialects.machine.docker_run import docker_env_files

        return (*self._launcher_files(), *docker_env_files(self.document, self.command))

    def _launcher_files(self) -> Iterator[Reference]:
        options = self.blocks[-1].mapping.entries
        if self.launcher is ACCELERATE_LAUNCHER and "config_file" in options:
            yield from self.reference(options["config_file"].value, "accelerate")
        for key in ("hostfile", *HOSTFILE_ALIASES.get(self.launcher.name, ())):
            if key in options:
                yield from self.reference(options[key].value, "hostfile", optional=True)

    def reference(self, node: Node, dialect: str, *, optional: bool = False) -> Iterator[Reference]:
        """The file that a word of this command names, if it is plain text."""
        if isinstance(node, Scalar) and isinstance(node.value, str):
            where = Location(self.document.source.path, place(node))
            yield Reference(node.value, where, dialect, optional=optional)


def place(node: Scalar) -> Span:
    """Where a word stands in the command itself, whatever variable it comes from."""
    return node.via or node.span
