"""Following what files name: from a command to its config, from that to its DeepSpeed JSON."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Mapping as MappingABC
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block
from oomlint.dialects.given import Given
from oomlint.dialects.kinds import is_stand_in
from oomlint.dialects.reading import Reading
from oomlint.dialects.setting import Setting
from oomlint.documents import (
    JSON_SUFFIXES,
    PYTHON_SUFFIXES,
    TOML_SUFFIXES,
    YAML_SUFFIXES,
    kind_of,
)
from oomlint.documents.base import (
    UNKNOWN,
    Document,
    PythonDocument,
    Scalar,
    ShellDocument,
    parser_of,
)
from oomlint.errors import FileError, PointerError
from oomlint.files.workspace import Workspace
from oomlint.plan.evidence import Level
from oomlint.runs.claimed import at_most
from oomlint.runs.parts import MissingFile, merge_sequences
from oomlint.runs.recognition import Recogniser
from oomlint.runs.releases import pinned

if TYPE_CHECKING:
    from oomlint.dialects.machine.launch import Launch
    from oomlint.documents.shell.files import WrittenFile

# Folders of a project in which its programs run, from its own down.
_DEEPEST_FOLDER = 3
_DATA = (*YAML_SUFFIXES, *JSON_SUFFIXES, *TOML_SUFFIXES)


class Joining(Struct):
    """From where the references of one run are followed, and what comes of that."""

    used: set[str]
    """The files that runs have taken in."""
    folder: str = ""
    """Where the run's command stands, by the ``cd`` before it: its program opens all files from there."""
    folder_is_open: bool = False
    """Whether only running tells which folder that is."""
    script: str = ""
    """The file that the command stands in: what it wrote before is what the program finds."""
    options: MappingABC[str, str | None] = field(default_factory=dict)
    """What the command says to its program; of its words that are no options the first is ``"1"``."""
    missing: list[MissingFile] = field(default_factory=list)
    elsewhere: set[str] = field(default_factory=set)
    """Files that the program looks for in a folder of its own that is not known."""


class References:
    """Finds the files that others refer to, and what the dialects recognise in them."""

    def __init__(self, workspace: Workspace, recogniser: Recogniser) -> None:
        self.workspace = workspace
        self._recogniser = recogniser
        self._files: dict[str, MappingABC[str, WrittenFile]] = {}
        self._written_claims: dict[tuple[str, str], tuple[Claim, ...]] = {}
        self._configured: dict[
            tuple[str, tuple[tuple[str, str | None], ...]], tuple[Claim, ...]
        ] = {}

    def note_written(self, document: Document) -> None:
        """Remember the files that a shell script itself writes."""
        if isinstance(document, ShellDocument):
            self._files.setdefault(document.source.path, document.files)

    def follow(
        self,
        reference: Reference,
        from_file: str,
        joining: Joining,
        trail: tuple[str, ...] = (),
    ) -> list[Claim]:
        """The claims on a file that is referred to, and on the files that it names in turn;
        ``trail`` are the files that led here, so that a circle of references ends."""
        for writer in dict.fromkeys((from_file, joining.script)):
            written = self._written(reference, writer, joining.missing)
            if written is not None:
                # What lies here by that name is what an earlier start has left.
                left = self.found(reference, from_file, joining.folder)
                joining.used.update((left,) if written and left is not None else ())
                written = [self._reached(claim, reference, from_file) for claim in written]
                return self._with_inner(written, joining, trail)
        found = self.found(reference, from_file, joining.folder)
        if found is None and joining.folder_is_open:
            found = self._in_some_folder(reference, from_file)
        if found is None:
            preset = self._preset(reference)
            if preset is not None:
                return [self._reached(preset, reference, from_file)]
        is_vouched = self._is_vouched_for(reference, from_file, joining)
        is_ours = is_vouched or self._recogniser.may_be_ours(found, reference.dialect)
        is_ours = is_ours or (not reference.dialect and found in self._recogniser.called_by)
        if reference.optional and not is_ours:
            return []
        claims = self._claims_on(found, reference, joining)
        if found is None or claims is None:
            return []
        wanted = self._wanted(found, claims, reference, is_vouched=is_vouched)
        if not reference.claim and (wanted or not reference.decides):
            joining.used.add(found)
        if not wanted:
            joining.missing.extend(self._turned_down(reference))
            return []
        self._recogniser.opened.add(found)
        wanted = [self._reached(c, reference, from_file) for c in wanted]
        return self._with_inner(wanted, joining, (*trail, from_file, found))

    def _wanted(
        self, found: str, claims: tuple[Claim, ...], reference: Reference, *, is_vouched: bool
    ) -> list[Claim]:
        """Of the claims on a file those that a reference is for."""
        wanted = [c for c in claims if reference.dialect in ("", c.dialect.name)]
        if not wanted and (reference.adopts or is_vouched):
            wanted = self._recogniser.adopted(found, reference.dialect)
        if reference.claim:
            wanted = [c for c in wanted if c.name == f"{found}:{reference.claim}"]
        return wanted

    def _claims_on(
        self, found: str | None, reference: Reference, joining: Joining
    ) -> tuple[Claim, ...] | None:
        """The claims on the file that a reference leads to; ``None``, and the file noted as missing, where there is none or
        it cannot be used."""
        if found is None:
            missing = MissingFile(
                reference.path, reference.location, "was not found",
                is_elsewhere=reference.path in joining.elsewhere,
                is_blank=is_stand_in(reference.path),
            )  # fmt: skip
            joining.missing.append(missing)
            return None
        try:
            return self._as_started(found, joining)
        except FileError as error:
            if not reference.optional:
                where = f" (line {error.line})" if error.line else ""
                missing = MissingFile(
                    reference.path, reference.location, f"cannot be used{where}: {error}",
                    is_elsewhere=isinstance(error, PointerError),
                )  # fmt: skip
                joining.missing.append(missing)
            return None

    def follow_fields(
        self,
        dialect: Dialect,
        blocks: tuple[tuple[Block, Reading], ...],
        claims: list[Claim],
        joining: Joining,
    ) -> tuple[tuple[Block, Reading], ...]:
        """Load the files that settings such as ``deepspeed: ds.json`` name."""
        followed: set[str] = set()
        while True:
            stated = _files_named(blocks, dialect)
            todo = [f for f in dialect.references if f not in followed and f in stated]
            if not todo:
                return blocks
            for name in todo:
                followed.add(name)
                setting = stated[name]
                location = setting.origin.value_location
                if location is None:
                    continue
                reader = dialect.references[name]
                named = self._recogniser.registry.named(reader)
                reference = Reference(
                    str(setting.value), location, reader, level=setting.level,
                    optional=named is not None and named.may_lack, framework=dialect.name,
                )  # fmt: skip
                folder = _folder_by_program(setting, claims)
                if folder is not None:
                    reference = self._below(folder, reference, location.path, joining)
                found = self.follow(reference, location.path, joining)
                if self._stops_at(found, reference, dialect, claims):
                    problem = f"cannot be used: it has no {dialect.asks[reader].key}"
                    joining.missing.append(MissingFile(reference.path, location, problem))
                    continue
                claims += found
                more = self.read_all(block for c in found for block in c.blocks)
                blocks = merge_sequences(blocks, more)

    def read_all(self, blocks: Iterable[Block]) -> tuple[tuple[Block, Reading], ...]:
        """Blocks with their readings; a block inside a block comes right after it."""
        out: list[tuple[Block, Reading]] = []
        for block in blocks:
            out.append((block, block.reading))
            out += self.read_all(block.reading.nested)
        return tuple(out)

    def said_to_program(self, launch: Launch, from_file: str) -> dict[str, str | None]:
        """What a command says to the program that it starts, ``None`` of what only the shell knows;
        files that are here by their display paths. ``key=value`` goes by ``key=``."""
        words = {str(n): word for n, word in enumerate(launch.arguments, 1)}
        values = {**words, **{key: entry.value for key, entry in launch.flags.entries.items()}}
        given = launch.command.assignments.entries.items()
        values |= {f"{key}=": entry.value for key, entry in given}
        said = {
            key: str(value.value)
            if isinstance(value, Scalar) and value.value is not UNKNOWN
            else None
            for key, value in values.items()
        }
        for name, entry in launch.command.environment.entries.items():
            held = entry.value.value if isinstance(entry.value, Scalar) else UNKNOWN
            said[f"${name}"] = None if held is UNKNOWN else str(held)
        if launch.flags.open_ended:
            said.setdefault(str(len(words) + 1), None)  # ``$@`` may be a word more
        for key, text in said.items():
            if text is not None and kind_of(text) in _DATA:
                said[key] = self.workspace.resolve(text, from_file, launch.command.folder) or text
        return said

    def found(self, reference: Reference, from_file: str, folder: str) -> str | None:
        """The file that is referred to."""
        is_program = not reference.dialect and reference.path.endswith(".py")
        look_for = self.workspace.program if is_program else self.workspace.resolve
        return look_for(reference.path, from_file, folder)

    def _below(
        self, folder: str, reference: Reference, from_file: str, joining: Joining
    ) -> Reference:
        """A reference to a name that the program puts behind a folder of its own; nothing tells that the file is
        missing where it is in no such folder here."""
        if self.found(reference, from_file, joining.folder) is not None:
            return reference
        behind = replace(reference, path=os.path.join(folder, reference.path))
        found = self._in_some_folder(behind, from_file)
        if found is not None:
            return replace(reference, path=found)
        joining.elsewhere.add(reference.path)
        return reference

    def _in_some_folder(self, reference: Reference, from_file: str) -> str | None:
        """The one file of the project that a program may open by a relative path, whatever folder it runs in."""
        if reference.path.startswith(("/", "~", ".")):
            return None
        project = str(self.workspace.project_around(from_file))
        suffixes, end = (kind_of(reference.path),), f"/{reference.path}"
        files = self.workspace.below(project, suffixes, _DEEPEST_FOLDER + end.count("/"))
        found = [name for name in (*files, *self.workspace.overlay) if f"/{name}".endswith(end)]
        return found[0] if len(found) == 1 else None

    def _stops_at(
        self, found: list[Claim], reference: Reference, dialect: Dialect, claims: list[Claim]
    ) -> bool:
        """Whether a framework does not start with a file as it is; one that says less than for certain that it
        takes it may do otherwise."""
        demand = dialect.asks.get(reference.dialect)
        if demand is None or reference.level > Level.STATED:
            return False
        blocks = [block for c in found if c.dialect.name == reference.dialect for block in c.blocks]
        lacks = bool(blocks) and all(demand.key not in b.mapping.entries for b in blocks)
        return lacks and demand.is_made(pinned(self.workspace, claims))

    def _as_started(self, name: str, joining: Joining) -> tuple[Claim, ...]:
        """The claims on a file; of a script that takes its config file from its command line, or a value from the
        environment, as this one starts it."""
        claims = self._recogniser.claims(name)
        modules = list(self._recogniser.called_by.get(name, ()))
        if not claims and len(modules) == 1:
            joining.used.add(modules[0])
            return tuple(self._recogniser.called(modules[0], name, joining.options))
        if kind_of(name) not in PYTHON_SUFFIXES or not joining.options:
            return claims
        document = self.workspace.document(name)
        if not isinstance(document, PythonDocument) or not document.config_options:
            return claims
        asked = document.config_options
        options = {k: v for k, v in joining.options.items() if k[:1] != "$" or k in asked}
        takes_file = any(each[:1] != "$" for each in asked)
        if not takes_file and not asked & options.keys():
            return claims
        key = (name, tuple(sorted(options.items(), key=lambda item: item[0])))
        if key not in self._configured:
            started = self.workspace.configured(name, options)
            found = () if started is None else tuple(self._recogniser.recognise_in(started, name))
            self._configured[key] = found
        return self._configured[key]

    def _turned_down(self, reference: Reference) -> Iterable[MissingFile]:
        """Why a file that is here cannot be what a setting names it as; nothing where its dialect does
        not say when that is so."""
        dialect = self._recogniser.registry.named(reference.dialect)
        if reference.optional or not reference.adopts or dialect is None or not dialect.turns_down:
            return
        problem = f"cannot be used: {dialect.turns_down}"
        yield MissingFile(reference.path, reference.location, problem)

    def _is_vouched_for(self, reference: Reference, from_file: str, joining: Joining) -> bool:
        """Whether a program that is started with a file makes it one of its dialect."""
        for program in reference.vouched_for:
            found = self.found(program, from_file, joining.folder)
            with suppress(FileError):
                if found is not None and self._recogniser.adopted(found, program.dialect):
                    return True
        return False

    def _reached(self, claim: Claim, reference: Reference, from_file: str) -> Claim:
        """A claim on a file with what it was reached by, and of one that a framework ships, with
        where a run's own copy would go."""
        blocks = tuple(at_most(block, reference.level) for block in claim.blocks)
        claim = replace(claim, named=reference, blocks=blocks)
        if not claim.is_shipped:
            return claim
        from oomlint.runs.private_copies import shipped_copy

        copy = shipped_copy(self.workspace, claim, reference, from_file)
        return replace(claim, blocks=tuple(replace(b, copy=copy) for b in claim.blocks))

    def _written(
        self, reference: Reference, from_file: str, missing: list[MissingFile]
    ) -> list[Claim] | None:
        """The claims on a file that the script itself writes, whatever lies here by its name;
        ``None`` where it writes no such file."""
        files = self._files.get(from_file, {})
        name = os.path.normpath(reference.path) if files else ""
        if name not in files:
            return None
        key = (from_file, name)
        if key not in self._written_claims:
            try:
                document = files[name].parsed(name)
                found = (
                    () if document is None else tuple(self._recogniser.recognise_in(document, name))
                )
            except FileError as error:
                problem = f"cannot be used as the script writes it: {error}"
                missing.append(MissingFile(reference.path, reference.location, problem))
                return []
            self._written_claims[key] = found
        claims = self._written_claims[key]
        return [c for c in claims if reference.dialect in ("", c.dialect.name)]

    def _with_inner(
        self,
        claims: Iterable[Claim],
        joining: Joining,
        trail: tuple[str, ...],
    ) -> list[Claim]:
        """Claims, each followed by those on the files that it names."""
        out: list[Claim] = []
        for claim in claims:
            out.append(claim)
            level = Level.STATED if claim.named is None else claim.named.level
            for inner in claim.references:
                if inner.level < level:
                    inner = replace(inner, level=level)
                if self.workspace.resolve(inner.path, claim.path, joining.folder) not in trail:
                    out += self.follow(inner, claim.path, joining, trail)
        return out

    def _preset(self, reference: Reference) -> Claim | None:
        """A file that the framework itself ships under that name, as facts of ours."""
        dialect = self._recogniser.registry.named(reference.dialect)
        return None if dialect is None else dialect.preset(reference)


def _folder_by_program(setting: Setting, claims: Iterable[Claim]) -> str | None:
    """The folders that a program of the run puts in front of the name which an option of a command says, as far as its
    text says them; ``None`` where it takes the name as it is."""
    block, entry = setting.origin.block, setting.origin.entry
    if block is None or entry is None or not isinstance(block.document, ShellDocument):
        return None
    written = block.document.source.text[entry.key_span.start : entry.key_span.end]
    option = written.lstrip("-").replace("-", "_")
    parsers = (parser_of(claim.document) for claim in claims)
    return next((each.joined[option] for each in parsers if each and option in each.joined), None)


def _files_named(
    blocks: tuple[tuple[Block, Reading], ...], dialect: Dialect
) -> MappingABC[Any, Setting]:
    """What settings say that name files: as they stand, or as the option of the script's own says which its call
    takes for one."""
    given = Given(blocks)
    if not any(isinstance(block.document, ShellDocument) for block in given.blocks):
        return given.stated
    from oomlint.dialects.trainer.statements import option_naming  # only lines have options

    by_option = {name: option_naming(given.blocks, name) for name in dialect.references}
    return {**given.stated, **{name: found for name, found in by_option.items() if found}}
