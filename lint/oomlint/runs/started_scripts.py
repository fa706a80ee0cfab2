"""Scripts that run as others start them: by a line of another script, of a README, of sbatch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.dialects.base import Claim
from oomlint.dialects.block import Block
from oomlint.documents import SHELL_SUFFIXES, kind_of
from oomlint.documents.base import Document
from oomlint.documents.text import Span
from oomlint.errors import FileError
from oomlint.files.workspace import Workspace
from oomlint.plan.evidence import Level
from oomlint.runs.claimed import launch_of, says_how, starts_script
from oomlint.runs.documented_launches import LinkerReading, Suggestions, words_of
from oomlint.runs.recognition import Recogniser
from oomlint.runs.run import Run

if TYPE_CHECKING:
    from oomlint.dialects.machine.handed import Handed

# A sweep of more lines is read by its first ones.
_MOST_HANDED = 24

# Of a README that starts one script in many ways, so many are read.
_MOST_SHOWN = 4
# A script that takes an argument for which it has no default.
_TAKES_BARE = r"\$[1-9@*]|\$\{[1-9@*]\}"

Submitted = Callable[[Document], Iterator[tuple[str, Block]]]


class StartedScripts:
    """The commands of scripts, each as the line that starts it has it run."""

    def __init__(
        self, workspace: Workspace, recogniser: Recogniser, build: Callable[[Claim], Run]
    ) -> None:
        self.workspace = workspace
        self._recogniser = recogniser
        self.lent = LinkerReading(self.launches_in, self.handed_in, build)
        self.suggestions = Suggestions(workspace, self.lent)
        self.by_example: set[str] = set()
        """Scripts whose arguments are those of a README's example."""
        self._submissions: dict[str, list[Block]] | None = None

    def with_handed(self, claims: list[Claim]) -> list[Claim]:
        """The claims, with scripts that others start read as they run with what these hand them:
        the line that starts one trains nothing itself, nor does a script that nobody completes, or
        one that runs otherwise where it is started."""
        scripts = sorted(
            name for name in self._recogniser.opened if kind_of(name) in SHELL_SUFFIXES
        )
        handings = [each for name in scripts for each in self._handings(name)]
        started = {script for script, _ in handings}
        completed = {script for script, given in handings if given.arguments}
        roots = sorted(scripts, key=started.__contains__)  # two may start each other
        handed: list[Claim] = []
        reached: dict[tuple[str, Handed | None], None] = {}
        seen: set[tuple[str, object, object]] = set()
        for root in roots:
            if root in started and any(name == root for name, _ in reached):
                continue
            shown = [] if root in completed else self._shown_to(root)
            todo: list[tuple[str, Handed | None]] = [(root, given) for given in shown or [None]]
            for name, given in todo:
                reached[name, given] = None
                own = [] if given is None else list(self._as_handed(name, given))
                own = [replace(claim, started_by=root) for claim in own]
                if own:
                    handed += own
                if (
                    own
                    and given is not None
                    and (name == root or self._is_completed_by(given, name))
                ):
                    completed.add(name)
                if given is not None and given.is_shown:
                    self.by_example.add(name)
                for script, inner in self._handings(name, given):
                    is_shown = inner.is_shown or (given is not None and given.is_shown)
                    if (script, inner.arguments, inner.variables) not in seen:
                        seen.add((script, inner.arguments, inner.variables))
                        todo.append((script, replace(inner, is_shown=is_shown)))
        alone = [c for c in claims if not starts_script(c)]
        return [*(c for c in alone if c.path not in completed or c.kind == "part"), *handed]

    def as_submitted(self, claim: Claim) -> Claim:
        """A job's claim with the options of the one line that submits it."""
        if claim.kind != "launch":
            return claim
        from oomlint.dialects.machine.launchers import submitted
        from oomlint.dialects.machine.slurm_keys import SBATCH

        if self._submissions is None:
            self._submissions = {}
            for name in self._recogniser.opened:
                if kind_of(name) in SHELL_SUFFIXES and b"sbatch" in self.workspace.read(name):
                    for script, block in self._submitted_in(name, submitted):
                        self._submissions.setdefault(script, []).append(block)
        asked = self._submissions.get(claim.path, [])
        if len(asked) != 1:
            return claim
        at = sum(block.table is SBATCH for block in claim.blocks)
        return replace(claim, blocks=(*claim.blocks[:at], asked[0], *claim.blocks[at:]))

    def shown_starts(self, names: Iterable[str], claims: list[Claim]) -> list[Claim]:
        """The commands of READMEs and guides, of Python programs, or of its own comments, that start a Python script with options, or on
        several GPUs, which no script here starts: how it runs stands there alone."""
        started = {self._script_of(claim) for claim in claims}
        # Sorted, so that what is told has one order wherever the files lie.
        scripts = sorted({n for n in names if n.endswith(".py")} - started)
        told = self.suggestions
        readmes = dict.fromkeys(name for name in scripts if self._may_say(name))
        readmes |= dict.fromkeys(r for name in scripts for r in told.readmes(name))
        readmes |= dict.fromkeys(r for name in scripts for r in told.guides(name))
        programs = dict.fromkeys(each for name in scripts for each in told.programs(name))
        documents = [
            *((readme, told.commands_of(readme)) for readme in readmes),
            *((program, told.processes_of(program)) for program in programs),
        ]
        shown = self._shown_of(frozenset(scripts), documents)
        # Of one that none of these starts, what else is written beside it tells.
        left = [name for name in scripts if name not in shown]
        notes = dict.fromkeys(note for name in left for note in told.notes(name))
        shown |= self._shown_of(frozenset(left), [(note, told.commands_of(note)) for note in notes])
        return [claim for starts in shown.values() for claim in _of_first_lines(starts.values())]

    def _shown_of(
        self, wanted: frozenset[str], documents: Iterable[tuple[str, Document | None]]
    ) -> dict[str, dict[object, Claim]]:
        """How documents start some scripts, each way once."""
        shown: dict[str, dict[object, Claim]] = {}
        for path, document in documents:
            for claim in (
                self._recogniser.recognise_in(document, path) if document is not None else ()
            ):
                script = self._script_of(claim) if says_how(claim) else ""
                if script in wanted:
                    blocks = tuple(replace(block, level=Level.FACT) for block in claim.blocks)
                    starts = shown.setdefault(script, {})
                    # Two READMEs say it twice; what a script says of itself stands beside that.
                    said = (path.endswith(".md"), claim.dialect.name, words_of(claim))
                    starts.setdefault(said, replace(claim, blocks=blocks))
        return shown

    def launches_in(self, name: str) -> list[Claim]:
        """The launch lines of a script, and of scripts that it starts with arguments."""
        try:
            own = [claim for claim in self._recogniser.claims(name) if claim.kind == "launch"]
        except FileError:
            return []
        handed = (
            each
            for script, given in self._handings(name)
            for each in self._as_handed(script, given)
        )
        return [*own, *(claim for claim in handed if claim.kind == "launch")]

    def handed_in(self, given: Handed, name: str) -> Iterator[Claim]:
        """The launch lines of a script that a file starts with arguments."""
        script = self._taking_arguments(given, name)
        if script is not None:
            yield from (c for c in self._as_handed(script, given) if c.kind == "launch")

    def _handings(self, name: str, as_shown: Handed | None = None) -> Iterator[tuple[str, Handed]]:
        """The scripts here that a script starts with arguments or variables which they take, if it is
        itself started ``as_shown`` somewhere."""
        if not any(suffix.encode() in self.workspace.read(name) for suffix in SHELL_SUFFIXES):
            return
        from oomlint.dialects.machine.handed import handed

        try:
            document = (
                self.workspace.document(name)
                if as_shown is None
                else self.workspace.started(name, as_shown.arguments, as_shown.variables)
            )
        except FileError:
            return
        for given in islice(handed(document) if document is not None else (), _MOST_HANDED):
            found = self._taking_arguments(given, name)
            if found is not None:
                yield found, given

    def _shown_to(self, script: str) -> list[Handed | None]:
        """How READMEs start a script that does not run without arguments: they say so of the machine, the
        model or the data, which the script alone leaves open. Of one that runs by itself they tell the cards."""
        text = (self.workspace.read_or_none(script) or b"").decode("utf-8", "replace")
        if not re.search(_TAKES_BARE, text):
            from oomlint.dialects.machine.handed import CARDS, Handed

            cards = None if CARDS in text else self.suggestions.cards_for(script)
            return [] if cards is None else [Handed(script, (), (), ((CARDS, cards),))]
        shown = (given for given in self.suggestions.handed_to(script) if any(given.arguments))
        return [replace(given, is_shown=True) for given in islice(shown, _MOST_SHOWN)]

    def _may_say(self, script: str) -> bool:
        """Whether a script names itself, or a module as one does that says how it is started."""
        data = self.workspace.read_or_none(script) or b""
        name = PurePath(script)
        is_module = re.search(rb"-m[ \t]", data) is not None and name.stem.encode() in data
        return is_module or name.name.encode() in data

    def _script_of(self, claim: Claim) -> str:
        """The Python file that a command starts, if it does and that is here."""
        launch = launch_of(claim)
        file = None if launch is None else launch.file
        return "" if file is None else self.workspace.program(file, claim.path) or ""

    def _taking_arguments(self, given: Handed, name: str) -> str | None:
        """The script that a file starts, if it is here and takes the arguments or reads a variable."""
        from oomlint.documents.shell.variables import TAKES_ARGUMENTS, reads

        found = self.workspace.resolve(given.script, name)
        if found is None or found == name:
            return None
        text = (self.workspace.read_or_none(found) or b"").decode("utf-8", "replace")
        takes = bool(given.arguments) and TAKES_ARGUMENTS.search(text) is not None
        return found if takes or any(reads(text, name) for name, _ in given.variables) else None

    def _as_handed(self, script: str, given: Handed) -> Iterator[Claim]:
        try:
            document = self.workspace.started(script, given.arguments, given.variables)
        except FileError:
            return
        from oomlint.dialects.machine.slurm_keys import SBATCH

        for claim in self._recogniser.recognise_in(document, script):
            if not starts_script(claim):
                at = sum(block.table is SBATCH for block in claim.blocks)
                blocks = (*claim.blocks[:at], *given.asked, *claim.blocks[at:])
                blocks = blocks if claim.kind == "launch" else claim.blocks
                if given.is_shown:
                    blocks = tuple(replace(block, level=Level.FACT) for block in blocks)
                yield replace(claim, blocks=blocks)

    def _is_completed_by(self, given: Handed, name: str) -> bool:
        """Whether a script does not run without what it is handed: variables alone may have defaults in
        it, and then it runs by itself too."""
        from oomlint.documents.shell.variables import needs

        text = (self.workspace.read_or_none(name) or b"").decode("utf-8", "replace")
        return bool(given.arguments) or any(needs(text, each) for each, _ in given.variables)

    def _submitted_in(self, name: str, submitted: Submitted) -> Iterator[tuple[str, Block]]:
        try:
            document = self.workspace.document(name)
        except FileError:
            return
        for script, block in submitted(document) if document is not None else ():
            found = self.workspace.resolve(script, name)
            if found is not None:
                yield found, block


def _of_first_lines(claims: Iterable[Claim]) -> Iterator[Claim]:
    """The claims of so many lines as are tried, of a line those of all dialects that may read it."""
    lines: set[tuple[str, Span]] = set()
    for claim in claims:
        line = (claim.path, claim.blocks[-1].anchor)
        if line in lines or len(lines) < _MOST_SHOWN:
            lines.add(line)
            yield claim
