"""What is known of a run besides its files, and what was asked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping as MappingABC
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

if TYPE_CHECKING:
    from oomlint.datasets import Lengths
    from oomlint.datasets.registry import Checkout
    from oomlint.dialects.ending import Ending
    from oomlint.hardware import Hardware
    from oomlint.models import ModelFacts


class Surroundings(Struct, frozen=True, eq=False):
    """What is known of a run besides its files: the machine, libraries, models, options.

    ``options`` are values that the user gives to oomlint itself. ``versions`` are a package's
    version and the file that pins it; ``floors`` the oldest releases that the project allows.
    """

    options: MappingABC[str, Any]
    hardware: Hardware | None
    find_model: Any
    versions: MappingABC[str, tuple[str, str]]
    floors: MappingABC[str, str]
    find_lengths: Any = None
    """Who looks up how long the samples of a set are that a file names."""
    missing: frozenset[str] = frozenset()
    """Files that the run names and that are not at hand, as it names them."""
    untold: frozenset[str] = frozenset()
    """Packages of which a commit alone says the release."""
    find_shipped: Any = None
    """Who looks up which configs of a framework a run of the project can name."""
    unread_program: str = ""
    """Why it is not known what the program that a command starts does, in words; empty where it was read."""
    unlinked_config: str = ""
    """What is not known of a config for DeepSpeed or Accelerate that an option names to the program, in words."""
    find_ending: Callable[[], Ending | None] = lambda: None
    """Who looks up whether the program is sure to end as it imports."""
    find_unlisted: Callable[[Iterable[str], str | None, Checkout], str] = (
        lambda _names, _folder, _framework: ""
    )
    """Who looks up which of some names of data sets is in no ``dataset_info.json`` of a folder; empty where none is sure
    to be."""

    find_unset: Callable[[str, str], bool] = lambda _name, _script: False
    """Who looks up whether nothing gives a variable of a shell script a value."""

    ranges: MappingABC[str, str] = field(default_factory=dict)
    """Packages that the project allows in several releases → the oldest of these; the newest is in ``versions``."""

    _asked: dict[tuple[str, tuple[Any, ...]], Any] = field(default_factory=dict)
    """What was looked up, and what came of it."""

    def answer_like(self, earlier: Surroundings) -> bool:
        """Whether all that was said and asked of earlier ones would be answered alike now."""
        if any(getattr(self, name) != getattr(earlier, name) for name in _SAID):
            return False
        asked = earlier._asked.items()
        return all(self._asking(find, *about) == found for (find, about), found in asked)

    def _asking(self, find: str, *about: Any) -> Any:
        """What a finder says, noted for who wants to know whether it still says so."""
        finder = getattr(self, find)
        found = None if finder is None else finder(*about)
        self._asked[find, about] = found
        return found

    def shipped(self, home: str) -> MappingABC[str, frozenset[str]]:
        """Folders as runs of the project name them, in which the files of a framework's folder ``home`` lie → the
        names of those that are as the framework ships them."""
        return self._asking("find_shipped", home) or {}

    def ending(self) -> Ending | None:
        """Why the program is sure to end as it imports, if it is."""
        found: Ending | None = self._asking("find_ending")
        return found

    def unlisted(self, names: Iterable[str], folder: str | None, framework: Checkout) -> str:
        """Which of some names of data sets is in no list of a folder; empty where none is sure to be."""
        return str(self._asking("find_unlisted", tuple(names), folder, framework))

    def is_unset(self, variable: str, script: str) -> bool:
        """Whether nothing gives a variable that a shell script reads a value."""
        return bool(self._asking("find_unset", variable, script))

    def lengths(
        self,
        name: str,
        registry: str | None,
        vocabulary: int,
        keys: tuple[str, ...] = (),
        picture: int = 0,
    ) -> Lengths | None:
        """How long the samples of a set are, by its name, with pictures of so many tokens at most; ``None`` where nobody
        knows."""
        found: Lengths | None = self._asking(
            "find_lengths", name, registry, vocabulary, keys, picture
        )
        return found

    def model(self, name: object) -> ModelFacts | None:
        """The model of a name; ``None`` where the catalogue and the disk do not know it."""
        found: ModelFacts | None = self._asking("find_model", str(name)) if name else None
        return found


# What surroundings say by themselves, unasked.
_SAID = [name for name in Surroundings.__struct_fields__ if not name.startswith(("find_", "_"))]
