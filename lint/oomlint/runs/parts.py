"""Everything that decides a run before it is resolved: the blocks of its files, options, and what is looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping as MappingABC, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.ending import Ending
from oomlint.dialects.given import Given
from oomlint.dialects.reading import Reading
from oomlint.dialects.surroundings import Surroundings
from oomlint.dialects.whole import whole
from oomlint.documents.text import Location
from oomlint.plan.evidence import Level
from oomlint.runs.attested import Attested

if TYPE_CHECKING:
    from oomlint.datasets.registry import Checkout
    from oomlint.hardware import Hardware
    from oomlint.memory.measured import Measurement
    from oomlint.models import ModelFacts
    from oomlint.runs.private_copies import Copier
    from oomlint.runs.run import Run
    from oomlint.runs.shown_training import Shown


class MissingFile(Struct, frozen=True, eq=False):
    """A file that the run refers to and that could not be found or used."""

    reference: str
    location: Location
    problem: str
    is_elsewhere: bool = False
    """Nothing suggests that it should be here: it has an absolute path, or the very program that is
    started is not here either (another repository, a container), nor is the folder in which it runs, the script writes it
    first, it is made of a template, or the program looks for it in a folder of its own."""
    is_blank: bool = False
    """Its name is to be filled in."""
    is_program: bool = False
    """It is the very program that is started, and the project says that it should be here: nothing of the run begins."""
    ends: bool = False
    """The command opens it ahead of all else, and is sure not to find it where it runs: nothing of the run begins."""
    is_found: bool = False
    """It was read from another folder than the one in which the command runs."""
    namesake: str = ""
    """The one file of its name that the project has elsewhere."""
    template: str = ""
    """The file of the project of which it is made."""


class Parts(Struct, frozen=True, eq=False, dict=True):
    """Everything that decides a run before resolution: blocks, options, lookups.

    ``blocks`` rise in precedence. ``options`` are values given to oomlint itself.
    """

    dialect: Dialect
    blocks: tuple[tuple[Block, Reading], ...]
    claims: tuple[Claim, ...]
    root: Claim | None = None
    """What the run was found by: a launch line, or a config that nothing launches."""
    options: MappingABC[str, Any] = field(default_factory=dict)
    hardware: Hardware | None = None
    find_model: Callable[[str], ModelFacts | None] = lambda _name: None
    find_lengths: Any = None
    find_attested: Callable[[], Iterable[Attested]] = lambda: ()
    find_shown: Callable[[], Shown | None] = lambda: None
    find_shipped: Any = None
    why_unused: Callable[[Run], str] = lambda _run: ""
    """Why nobody starts a run as things are, in words; empty where somebody may."""
    missing: tuple[MissingFile, ...] = ()
    versions: MappingABC[str, tuple[str, str]] = field(default_factory=dict)
    """Package → version and the file that pins it."""
    floors: MappingABC[str, str] = field(default_factory=dict)
    """Package → the oldest release that the project allows."""
    ranges: MappingABC[str, str] = field(default_factory=dict)
    """Package → the oldest release of a range, whose newest is the version that counts as pinned."""
    untold: MappingABC[str, str] = field(default_factory=dict)
    """Packages of which a commit alone says the release → how: "verl is a submodule that is not checked out"."""
    unread_program: str = ""
    """Why it is not known what the program that a command starts does, in words; empty where it was read."""
    find_other_reader: Callable[[], str] = lambda: ""
    """A program of the project's that may read the config instead of the framework, in words: no command here starts the
    framework with it, and the program loads files of its kind by itself. Empty where there is none."""
    find_unstarted: Callable[[], bool] = lambda: False
    """Whether nothing here starts the framework with the config of the run, which the user did not name: it may be the
    file of another program."""
    changed: dict[Any, str] = field(default_factory=dict)
    """Fields that changed modules of the project's copy of the framework decide → which these are, in words; filled in
    once it is known what the run is."""
    unlinked_config: str = ""
    """What is not known of a config for DeepSpeed or Accelerate that an option names to the program, in words."""
    find_ending: Callable[[], Ending | None] = lambda: None
    """What is sure to end the program as it imports, if anything is."""
    find_endings: Callable[[Run], Iterable[Ending]] = lambda _run: ()
    """What the rules are sure of that ends a run before its first step, as far as the user does not say otherwise."""
    find_unlisted: Callable[[Iterable[str], str | None, Checkout], str] = (
        lambda _names, _folder, _framework: ""
    )
    """Which of some names of data sets is in no ``dataset_info.json`` of a folder; empty where none is sure to be."""
    find_unset: Callable[[str, str], bool] = lambda _name, _script: False
    """Whether nothing gives a variable of a shell script a value."""
    is_variable_read: Callable[[str, str], bool] = lambda _name, _script: False
    """Whether something in the project around a script reads a variable of the environment."""
    copier: Copier | None = None
    measurements: tuple[Measurement, ...] = ()
    """What runs of this project were measured to take."""
    as_written: bool = False
    """Whether a misspelt key does nothing, whatever it means."""
    shared: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """File that the run names, and other runs use too → the names of all its runs; filled in once
    all are known."""
    based_on: tuple[Cells, MappingABC[str, Any]] | None = None
    """The settings of the parts that these are made of, and the options that they have more."""

    @cached_property
    def completed(self) -> Cells:
        """The settings as the files have them."""
        if self.based_on is not None:
            earlier, values = self.based_on
            return earlier.assuming(values)
        meaning = self.dialect.meaning_of([block for block, _ in self.blocks])
        known = Surroundings(
            self.options,
            self.hardware,
            self.find_model,
            self.versions,
            self.floors,
            self.find_lengths,
            frozenset(each.reference for each in self.missing if not each.is_found),
            frozenset(self.untold),
            self.find_shipped,
            self.unread_program,
            self.unlinked_config,
            self.find_ending,
            self.find_unlisted,
            self.find_unset,
            ranges=self.ranges,
        )
        stated = {
            name: value
            for name, value in self.options.items()
            if not name.startswith(("versions.", "model.dims."))
        }
        return Cells(Given(self.blocks).with_options(stated, "--set"), whole(meaning), known)

    def assuming(self, values: MappingABC[Any, Any]) -> Parts:
        """These parts under more options; made once, since each has settings to complete."""
        key = repr(sorted(values.items()))
        if key not in self._assumed:
            options = {**self.options, **values}
            self._assumed[key] = replace(self, options=options, based_on=(self.completed, values))
        return self._assumed[key]

    @cached_property
    def _assumed(self) -> dict[str, Parts]:
        return {}


def resolve(parts: Parts, wishes: MappingABC[Any, Any] | None = None) -> Cells:
    """A run's cells, as if its files said ``wishes`` too.

    Raises:
        CannotEdit: the framework cannot express a wish.
    """
    return parts.completed.changed(expressed(parts, wishes)) if wishes else parts.completed


def expressed(parts: Parts, wishes: MappingABC[Any, Any]) -> dict[Any, Any]:
    """Wishes in the fields in which a run's files would say them.

    Raises:
        CannotEdit: the framework cannot express one.
    """
    from oomlint.dialects.common.declared import check_options  # most lints change nothing

    own = parts.dialect.express(wishes, parts.completed)
    check_options(own, parts.completed)
    return own


def is_guessed(block: Block) -> bool:
    """Whether it is by a sibling alone that a block is taken in; one of which is known why it is doubted is the run's."""
    return block.level >= Level.ASSUMED and not block.doubt


def merge_sequences(*groups: Sequence[tuple[Block, Reading]]) -> tuple[tuple[Block, Reading], ...]:
    """Blocks of several sources in one order of precedence, each once."""
    seen: dict[int, tuple[Block, Reading]] = {}
    for group in groups:
        for block, reading in group:
            seen.setdefault(id(block), (block, reading))
    return tuple(seen.values())
