"""What a run asks for only when it is needed: lengths of data sets, models, the machine that a project names."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from oomlint.dialects.base import Claim
from oomlint.files.workspace import Workspace
from oomlint.runs.attested import Attested
from oomlint.runs.lineage import Lineage

if TYPE_CHECKING:
    from oomlint.datasets import Lengths
    from oomlint.models import ModelFacts
    from oomlint.runs.documented_hardware import Attestations
    from oomlint.runs.shown_training import Shown

# Of what lies in a project as data, as LLaMA-Factory reads it by the endings (llamafactory 0.9.3
# extras/constants.py FILEEXT2TYPE); of others, ``parquet`` and ``arrow``, the text is compressed.
_OF_SAMPLES = (".json", ".jsonl", ".csv")


class _About(Struct, frozen=True):
    """A data set, and how its samples are read: see :meth:`oomlint.dialects.surroundings.Surroundings.lengths`."""

    name: str
    registry: str | None
    vocabulary: int
    keys: tuple[str, ...]
    picture: int


class Lookups:
    """Looks things up once for all runs of a workspace."""

    def __init__(self, workspace: Workspace, lineage: Lineage) -> None:
        self.workspace = workspace
        self._lineage = lineage
        self._models: dict[tuple[str, str], ModelFacts | None] = {}
        self._lengths: dict[tuple[_About, str], Lengths | None] = {}
        self._attestations: Attestations | None = None

    def lengths_finder(
        self, from_file: str
    ) -> Callable[[str, str | None, int, tuple[str, ...], int], Lengths | None]:
        """Who looks up how long the samples of a data set are: in the catalogue, or in a file of the project that
        is no larger than any config that is read."""

        def find(
            name: str, registry: str | None, vocabulary: int, keys: tuple[str, ...], picture: int
        ) -> Lengths | None:
            about = _About(name, registry, vocabulary, keys, picture)
            key = (about, os.path.dirname(from_file))
            if key not in self._lengths:
                self._lengths[key] = self._lengths_of(about, from_file)
            return self._lengths[key]

        return find

    def attested_finder(self, *claims: Claim) -> Callable[[], Iterable[Attested]]:
        """Who looks up on which machines the project says that a run ran: only runs at risk ask."""
        return lambda: self._attesting().of(dict.fromkeys(claim.path for claim in claims))

    def shown_finder(self, *claims: Claim) -> Callable[[], Shown | None]:
        """Who looks up what the outputs of a run's notebook show: only runs at risk ask, and those that would end."""

        def find() -> Shown | None:
            paths = {claim.path for claim in claims}
            return self._attesting().shown(paths.pop()) if len(paths) == 1 else None

        return find

    def _attesting(self) -> Attestations:
        if self._attestations is None:
            from oomlint.runs.documented_hardware import Attestations

            self._attestations = Attestations(self.workspace)
        return self._attestations

    def model_finder(self, from_file: str, script: str) -> Any:
        """Who looks up a model: on the disk and in the catalogue, then among what the runs that
        stand beside this one's launch line save."""

        def find(model: str) -> ModelFacts | None:
            found = look_up(model)
            if found is None or _is_by_a_part_of_its_name(model, found):
                return self._lineage.made(model, script) or found
            return found

        def look_up(model: str) -> ModelFacts | None:
            key = (model, os.path.dirname(from_file))
            if key not in self._models:
                from oomlint.models import resolve

                head = model.replace("\\", "/").partition("/")[0]
                folders = (
                    str(folder)
                    for folder in self.workspace.search_folders(from_file)
                    if self.workspace.holds(folder, head)
                )
                self._models[key] = resolve(
                    model,
                    read=lambda path: self.workspace.read_or_none(self.workspace.name(path)),
                    base_dirs=tuple(folders),
                    hf_cache=self.workspace.disk.hf_cache,
                )
            return self._models[key]

        return find

    def _lengths_of(self, about: _About, from_file: str) -> Lengths | None:
        from oomlint import datasets

        name, path, keys = about.name, about.name, about.keys
        if about.registry is not None:
            folder, listed = self._list_for(name, about.registry, from_file)
            entry = None
            if listed is not None:
                from oomlint.datasets.registry import registered

                entry = registered(listed, name)
            if entry is not None:
                name = entry.public
                path = os.path.join(folder, entry.file) if entry.file and not name else ""
                keys = keys or entry.columns
        found = None
        if path.endswith(_OF_SAMPLES):
            found = self._read_from(path, from_file)
        if found is not None:
            from oomlint.datasets.measure import lengths_in

            return lengths_in(
                found[1],
                found[0],
                vocabulary=about.vocabulary,
                keys=keys,
                picture=about.picture,
            )
        return datasets.find(name) if name else None

    def _list_for(self, name: str, folder: str, from_file: str) -> tuple[str, bytes | None]:
        """The list of data sets of a folder, and where the files start that it names. Where there is none, the config is
        run from elsewhere, and its folder has the list that the project keeps for it: the one of the project that has
        the set."""
        from oomlint.datasets.registry import LIST, registered
        from oomlint.runs.listed_sets import lists_below

        found = self._read_from(f"{folder}/{LIST}", from_file)
        if found is not None or folder == "ONLINE" or ":" in folder:
            return folder, None if found is None else found[1]
        kept = self.workspace.once(lists_below, str(self.workspace.project_around(from_file)))
        having = [each for each in kept if registered(each[1], name) is not None]
        if len(having) != 1:
            return folder, None
        return os.path.dirname(str(self.workspace.file(having[0][0]))), having[0][1]

    def _read_from(self, path: str, from_file: str) -> tuple[str, bytes] | None:
        """A file that another names, under its display path."""
        name = self.workspace.resolve(path, from_file)
        data = None if name is None else self.workspace.read_or_none(name)
        return None if name is None or data is None else (name, data)


def _is_by_a_part_of_its_name(model: str, found: ModelFacts) -> bool:
    """Whether a model is known by what its name, or that of a folder above, contains alone: what a run of the project
    saves there is surer."""
    from oomlint.models import lookup

    if found.confidence == "assumed":
        return lookup(model) is None
    return found.confidence == "guessed"
