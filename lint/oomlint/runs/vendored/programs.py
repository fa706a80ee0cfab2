"""Programs of a project that are none of the framework's whose arguments they have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.machine.launch import Launch
from oomlint.errors import FileError
from oomlint.files.reference_index import texts_below
from oomlint.files.workspace import Workspace
from oomlint.runs.vendored.files import DEEPEST, programs_in
from oomlint.runs.vendored.readers import STARTS_PROCESSES, TRAINS

# Programs that train by these have options of the same names (transformers 4.57 examples/flax,
# examples/tensorflow; its research_projects over Lightning).
_IS_OF_ANOTHER = (
    rb"(?m)^[ \t]*(?:import|from)[ \t]+(?:jax|flax|tensorflow|pytorch_lightning|lightning)\b"
    rb"|\bTFTrainer\b"
)
# A class that is imported, called or derived from, not a word of a comment; Lightning's is named with its
# module, TensorFlow's has a name of its own.
_NAMES_TRAINER = (
    rb"(?m)(?:(?<![\w.])|\btransformers\.)(?!TF)\w*Trainer[ \t]*[(),]"
    rb"|^[ \t]*from[ \t]+[\w.]+[ \t]+import\b[^\n#]*\b(?!TF)\w*Trainer\b"
)
# A list of words, or a line, that begins with a program which trains or starts what does.
_STARTS = (
    rb"[\[(=,]\s*[rbf]?[\"'](?:torchrun|accelerate|deepspeed|llamafactory-cli|swift|axolotl|trl|tune)"
    rb"(?:[\"']\s*,|[ ]+[\w-])"
)
# Of a config with fewer, a program names most keys by chance.
_FEWEST_KEYS = 6
# Who runs backward, or asks torch for gradients as a function's value (torch 2.9 func, autograd.grad).
_DIFFERENTIATES = rb"\.backward\(|\bgrad_and_value\(|\bautograd\.grad\("
_OWN_CLASS = r"(?m)^class[ \t]+(\w+)[ \t]*(?:\([ \t]*(?:object)?[ \t]*\))?[ \t]*:"


class OwnPrograms:
    """Which projects train with a program of their own that took over a framework's arguments, or
    that starts a framework's."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._found: dict[tuple[str, str], bool] = {}
        self._unparsed: dict[tuple[str, tuple[str, ...]], tuple[bytes, ...]] = {}

    def has(self, claim: Claim) -> bool:
        """Whether the project around a config declares the framework's own arguments, in files of
        the framework's names, in a package of another name only."""
        dialect = claim.dialect
        if not dialect.declares or self._carries(claim):
            return False
        folder = str(self.workspace.project_around(claim.path))
        key = (folder, dialect.name)
        if key not in self._found:
            self._found[key] = any(self._akin(folder, dialect))
        return self._found[key]

    def reads_itself(self, config: Claim) -> bool:
        """Whether a program of the project's own names most of the keys of a config, where nothing in the
        project has the parser that the framework's programs read such a file with, or speaks of the framework's
        own program: what the keys mean is that program's to say, a name that the framework gave up included."""
        parsers, program = config.dialect.config_parsers, config.dialect.config_program
        is_read = bool(parsers or program) and not config.path.endswith(".py")
        if not is_read or not config.blocks:
            return False
        keys = config.blocks[-1].mapping.entries
        if len(keys) < _FEWEST_KEYS:
            return False
        folder = str(self.workspace.project_around(config.path))
        key = (folder, (*parsers, program))
        if key not in self._unparsed:
            is_another = bool(program) and self._speaks_of(folder, program)
            self._unparsed[key] = () if is_another else tuple(self._without(folder, parsers))
        words = [b"[\"']" + re.escape(key.encode()) + b"[\"']" for key in keys]
        return any(
            sum(re.search(word, text) is not None for word in words) * 2 >= len(words)
            for text in self._unparsed[key]
        )

    def _speaks_of(self, folder: str, program: str) -> bool:
        """Whether any text of a project, its guides included, has the name of a program."""
        texts = texts_below(self.workspace, Path(folder), guides=True)
        spelled = {program, program.capitalize()}
        return any(True for word in sorted(spelled) for _ in texts.holding(word.encode()))

    def _without(self, folder: str, parsers: tuple[str, ...]) -> Iterator[bytes]:
        """The programs of a project where none has one of these parsers. Which of them loads a file often only
        another module tells."""
        texts = [self.workspace.read_or_none(p) or b"" for p in programs_in(self.workspace, folder)]
        parses = re.compile("|".join(parsers).encode()) if parsers else None
        if parses is None or not any(map(parses.search, texts)):
            yield from texts

    def starts_another(self, launch: Claim) -> bool:
        """Whether the script of a command trains nothing itself but starts a launcher as a process
        of its own: what it tells that one, its options do not say."""
        for script in launch.scripts:
            name = self.workspace.resolve(script, launch.path)
            data = (name and self.workspace.read_or_none(name)) or b""
            if (
                re.search(STARTS_PROCESSES, data)
                and re.search(_STARTS, data)
                and not re.search(TRAINS, data)
            ):
                return True
        return False

    def is_namesake(self, launch: Claim, program: Launch | None) -> bool:
        """Whether the program of a command has only its name and a few options in common with the script
        that a profile tells all of: the project names these, and hardly any of that one's others."""
        if program is None or program.script is None:
            return False
        from oomlint.dialects.profiles.build import ScriptTable  # few runs are a command's

        tables = (b.table for b in launch.blocks if isinstance(b.table, ScriptTable))
        table = next((table for table in tables if table.has_only), None)
        if table is None:
            return False
        found = self._program(launch, program)
        given = sorted(table.has_only & set(program.flags.entries))
        others = sorted(table.has_only.difference(given))
        if found is None or not others:
            return False
        folder = str(self.workspace.project_around(found))
        key = (folder, f"{found}: {' '.join(others)}")
        if key not in self._found:
            is_read = all(any(self._naming(folder, found, option)) for option in given)
            named = sum(any(self._naming(folder, found, option)) for option in others)
            self._found[key] = is_read and (len(given) + named) * 2 < len(table.has_only)
        return self._found[key]

    def does_without(self, launch: Claim, program: Launch | None) -> bool:
        """Whether a command starts a program of the project's own that cannot be the framework's, whatever
        its name and its options are, since nothing in the project names its library."""
        library = launch.dialect.library
        found = None if not library or program is None else self._program(launch, program)
        if found is None:
            return False
        folder = str(self.workspace.project_around(found))
        key = (folder, library)
        if key not in self._found:
            self._found[key] = not any(self._naming(folder, found, library))
        return self._found[key]

    def loops_itself(self, launch: Claim, program: Launch | None) -> bool:
        """Whether a command that has options like those of a trainer's programs starts one of the project's own
        which goes through its loop by itself, and has no trainer, or leaves it to another framework."""
        trainer = launch.dialect.trainer
        found = None if not trainer or program is None else self._program(launch, program)
        if found is None or program is None or launch.dialect.profiles.tell_all_of(program):
            return False
        data = self.workspace.read_or_none(found) or b""
        differentiates = re.search(_DIFFERENTIATES, data) is not None
        from oomlint.documents.python.wording import program_says  # asked of commands alone

        code = data.decode("utf-8", "replace")
        if differentiates and not program_says(code, _library_s(trainer, code)):
            return True
        return bool(re.search(_IS_OF_ANOTHER, data)) and (
            not re.search(_NAMES_TRAINER, data) or self._has_own_loop(found)
        )

    def _has_own_loop(self, program: str) -> bool:
        """Whether what a program calls its trainer is a class of the project's that never comes to a library's loop."""
        try:
            document = self.workspace.document(program)
        except FileError:
            return False
        return document is not None and any(fact.kind == "own-loop" for fact in document.facts)

    def _program(self, launch: Claim, program: Launch) -> str | None:
        """The file here of the script or the module that a command starts."""
        path = program.script or (
            f"{program.name.replace('.', '/')}.py" if program.is_module else ""
        )
        return self.workspace.resolve(path, launch.path, program.command.folder) if path else None

    def _naming(self, folder: str, program: str, word: str) -> Iterator[bool]:
        """The files, the program first, that name a library or an option."""
        named = re.compile(rf"\b{word}\b".encode())
        for name in (program, *programs_in(self.workspace, folder)):
            if named.search(self.workspace.read_or_none(name) or b""):
                yield True

    def _carries(self, claim: Claim) -> bool:
        paths = claim.dialect.declared_in
        return any(self.workspace.resolve(path, claim.path) is not None for path in paths)

    def _akin(self, folder: str, dialect: Dialect) -> Iterator[bool]:
        names = {path.rpartition("/")[2] for path in dialect.declared_in}
        declared = re.compile(rf"^\s+(?:{'|'.join(dialect.declares)})\s*:".encode(), re.MULTILINE)
        files = self.workspace.below(folder, (".py",), DEEPEST)
        for name in (*files, *self.workspace.overlay):
            if name.rpartition("/")[2] in names:
                yield declared.search(self.workspace.read_or_none(name) or b"") is not None


def _library_s(trainer: str, code: str) -> re.Pattern[str]:
    """What names a trainer of a library's in a program: a class of the program's own that is derived from nothing has but
    the name in common with one."""
    own = "".join(rf"(?!{name}\b)" for name in re.findall(_OWN_CLASS, code))
    return re.compile(rf"\b{own}{trainer}\b")
