"""Frameworks of which a file's own words tell its configs, and of which programs that read them are started."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launches import launches
from oomlint.documents.base import Document, Mapping, roots


class ConfigDialect(Dialect):
    """Says of one mapping whether it is a config and what is claimed of it, and of one launch what it starts."""

    def recognise(self, document: Document) -> Iterable[Claim]:
        yield from self._configs(document)
        for launch in launches(document):
            yield from self.started_by(launch)

    def adopt(self, document: Document) -> Claim | None:
        return next(self._configs(document), None)

    def _configs(self, document: Document) -> Iterator[Claim]:
        return (self.of_config(document, root) for root in roots(document) if self.is_config(root))

    def is_config(self, root: Mapping) -> bool:
        """Whether a mapping is a config of the framework, by its own words."""
        raise NotImplementedError

    def of_config(self, document: Document, root: Mapping) -> Claim:
        """What is claimed of a config."""
        raise NotImplementedError

    def started_by(self, launch: Launch) -> Iterable[Claim]:
        """What is claimed of a command: nothing, if it starts no program of the framework's."""
        raise NotImplementedError
