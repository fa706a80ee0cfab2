"""What the dialects recognise in the files of a workspace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.base import Claim, DialectEntry, Registry
from oomlint.documents import (
    HELD_LANGUAGES,
    JSON_SUFFIXES,
    PYTHON_SUFFIXES,
    TOML_SUFFIXES,
    YAML_SUFFIXES,
    kind_of,
    languages_of,
)
from oomlint.documents.base import (
    Document,
    HeldCode,
    ShellDocument,
)
from oomlint.documents.text import Source
from oomlint.errors import DeniedError, FileError, InternalError, in_words
from oomlint.files.workspace import Workspace
from oomlint.runs.callers import callers_of
from oomlint.runs.linked import Linked

_DATA = (*YAML_SUFFIXES, *JSON_SUFFIXES, *TOML_SUFFIXES)

# A line that makes a trainer or what one is given, and is no class of that kind.
_TRAINS_IN_PYTHON = rb"^(?![ \t]*class\b).*(?:Trainer|TrainingArguments|\bdeepspeed\.initialize)\("

_NO_OPTIONS: Mapping[str, str | None] = {}


class _Recognised(Struct, frozen=True, eq=False):
    """What dialects made of a document, and where they failed."""

    claims: tuple[Claim, ...]
    failures: tuple[InternalError, ...]
    registry: Registry
    framework: str | None
    callers: tuple[str, ...] = ()

    def is_by(self, registry: Registry, framework: str | None) -> bool:
        return self.registry is registry and self.framework == framework


class Recogniser:
    """Asks the dialects what files are, each file once."""

    def __init__(self, workspace: Workspace, registry: Registry, framework: str | None) -> None:
        self.workspace = workspace
        self.registry = registry
        self.opened: set[str] = set()
        """The files that were read for what they hold."""
        self.called_by: dict[str, dict[str, None]] = {}
        """The modules that a program calls so that they train, by its path."""
        self._framework = framework
        self._claims: dict[str, tuple[Claim, ...]] = {}
        self._adoptions: dict[tuple[str, str], Claim | None] = {}
        self._markers: dict[tuple[str, bool], tuple[bytes, ...]] = {}
        self._in_keys: dict[tuple[str, bool], re.Pattern[bytes]] = {}
        self._failures: dict[str, list[InternalError]] = {}

    def was_asked(self, name: str) -> bool:
        """Whether a file was found worth asking about."""
        return name in self._claims

    def claims_of(self, name: str, linked: Linked, *, must_read: bool) -> tuple[Claim, ...]:
        """What the dialects recognise in a file that is linted. What goes wrong is an error of what was ``linked``
        where the user named the file (``must_read``), or where it is surely of a dialect."""
        data = b""
        try:
            data = self.workspace.read(name)
            self.opened.add(name)
            may_be_ours = self._has_marker(name, data)
            if not may_be_ours and not (must_read and kind_of(name)):
                return ()
            if not must_read and self._only_lends(name, data):
                return ()
            claims = self.claims(name)
        except FileError as error:
            is_ours = self._has_marker(name, data, proof=True) and not _holds_records(name, data)
            # One that may not be read may be any run.
            if must_read or is_ours or isinstance(error, DeniedError):
                linked.errors.append(error)
            return ()
        if name in self._failures and (must_read or self._has_marker(name, data, proof=True)):
            linked.errors += self._failures.pop(name)
        for claim in claims:
            if not any(reference.decides for reference in claim.references):
                linked.recognised.setdefault(name, claim.framework or claim.dialect.name)
        return claims

    def claims(self, name: str) -> tuple[Claim, ...]:
        """What the dialects recognise in a file; the first dialect that claims a YAML or JSON
        document has it, while a script may hold runs of several."""
        if name not in self._claims:
            found = self._recognised(name)
            self._claims[name] = found.claims
            if found.failures:
                self._failures.setdefault(name, []).extend(found.failures)
        return self._claims[name]

    def _recognised(self, name: str) -> _Recognised:
        """Of a file that an earlier lint has parsed, what that one recognised."""
        document = self.workspace.document(name)
        callers = callers_of(self.workspace, name, document)
        known = self.workspace.recognised.get(name)
        is_known = isinstance(known, _Recognised) and known.is_by(self.registry, self._framework)
        if isinstance(known, _Recognised) and is_known and not (callers or known.callers):
            return known
        others = self._failures.pop(name, [])
        parts = () if document is None else document.parts
        claims = tuple(claim for part in parts for claim in self.recognise_in(part, name))
        if claims and callers:
            called = tuple(each for caller in callers for each in self.called(name, caller))
            claims = called or claims
        failures = tuple(self._failures.pop(name, ()))
        if others:
            self._failures[name] = others
        found = _Recognised(claims, failures, self.registry, self._framework, callers)
        self.workspace.recognised[name] = found
        return found

    def called(
        self, name: str, caller: str, options: Mapping[str, str | None] = _NO_OPTIONS
    ) -> Iterator[Claim]:
        """The claims on a module as a program calls what trains in it, started with options."""
        try:
            document = self.workspace.configured(name, options, caller)
        except FileError:
            return
        except Exception as error:  # a reader's bug must not cost what else is recognised
            failure = InternalError(name, f"reading failed: {in_words(error)}")
            self._failures.setdefault(name, []).append(failure)
            return
        if document is None:
            return
        self.called_by.setdefault(caller, {})[name] = None
        for claim in self.recognise_in(document, name):
            yield replace(claim, started_by=caller)

    def _has_marker(self, name: str, data: bytes, *, proof: bool = False) -> bool:
        """Whether some dialect that reads such files may find something in this one, or with
        ``proof``, whether one would take it for its own unparsed."""
        key = (kind_of(name), proof)
        if proof and key[0] in HELD_LANGUAGES:
            return False  # a word in a notebook or a Makefile proves nothing of the rest
        if proof and key[0] in PYTHON_SUFFIXES:
            # The modules of a library name what its scripts name. They need not be in the Python
            # that oomlint runs on.
            return re.search(_TRAINS_IN_PYTHON, data, re.MULTILINE) is not None
        if key not in self._markers:
            readers = self.registry.readers(languages_of(name))
            counting = [entry for entry in readers if entry.markers_prove or not proof]
            self._markers[key] = tuple(sorted({m for entry in counting for m in entry.markers}))
            if key[0] in JSON_SUFFIXES:
                others = {m for entry in counting if not entry.is_ours for m in entry.markers}
                self._in_keys[key] = _in_keys(set(self._markers[key]) - others, others)
        if not any(mark in data for mark in self._markers[key]):
            return False
        return key not in self._in_keys or self._in_keys[key].search(data) is not None

    def _only_lends(self, name: str, data: bytes) -> bool:
        """Whether a file is a module in which no dialect recognises anything, as most files of a library are: who takes
        something from it reads it then. Nobody starts it, so that what it would do as a program is not asked."""
        if kind_of(name) not in PYTHON_SUFFIXES or self._may_claim(data):
            return False
        return is_module(self.workspace, name)

    def _may_claim(self, data: bytes) -> bool:
        """Whether some dialect may recognise something in a Python file."""
        words = self._words_in_python
        return words is None or any(word in data for word in words)

    @cached_property
    def _words_in_python(self) -> tuple[bytes, ...] | None:
        """Of which one stands in each Python file that some dialect has; ``None`` where one dialect does not say."""
        own = [entry.words_of_python for entry in self.registry.readers(PYTHON_SUFFIXES)]
        return tuple(sorted({word for words in own for word in words})) if all(own) else None

    def trains_in(self, script: str) -> bool:
        """Whether a script is itself read as one that trains."""
        with suppress(FileError):
            # A run whose values stand all in a file that it names has no block of its own.
            return any(
                (c.kind in ("run", "aside") and c.blocks) or (c.kind == "run" and c.references)
                for c in self.claims(script)
            )
        return False

    def adopted(self, name: str, dialect_name: str) -> list[Claim]:
        """A file that only the setting that names it tells to be of a dialect."""
        dialect = self.registry.named(dialect_name)
        document = self.workspace.document(name)
        if document is None and dialect is not None and dialect.any_text:
            document = self.workspace.lines(name)
        if dialect is None or document is None:
            return []
        if (name, dialect_name) not in self._adoptions:
            self._adoptions[name, dialect_name] = dialect.adopt(document)
        claim = self._adoptions[name, dialect_name]
        return [] if claim is None else [claim]

    def may_be_ours(self, name: str | None, dialect_name: str) -> bool:
        """A cheap look at a file that a launch line happens to start."""
        dialect = self.registry.named(dialect_name)
        if name is not None and dialect is not None and dialect.any_text:
            return True
        data = self.workspace.read_or_none(name) if name is not None else None
        if name is None or data is None:
            return False
        # Its program is of a dialect that reads no files of that kind by itself.
        marks = () if dialect is None else dialect.markers
        return any(mark in data for mark in marks) or self._has_marker(name, data)

    def recognise_in(self, document: Document, name: str) -> Iterator[Claim]:
        """What the dialects recognise in a document, or in a part of one, of a file; a document of data has but one
        owner."""
        wanted = self._framework
        language = document.language if isinstance(document, HeldCode) else kind_of(name) or ".json"
        for entry in self._in_order(document, language):
            dialect = entry.load()
            try:
                claims = tuple(dialect.recognise(document))
            except Exception as error:  # one dialect's bug must not cost what others recognise
                failure = InternalError(name, f"{dialect.called} failed: {in_words(error)}")
                self._failures.setdefault(name, []).append(failure)
                continue
            if wanted and all(wanted not in (c.framework, c.dialect.name) for c in claims):
                claims = tuple(c for c in claims if c.kind == "part")
            yield from claims
            if claims and not isinstance(document, ShellDocument):
                return

    def _in_order(self, document: Document, language: str) -> Sequence[DialectEntry]:
        """The dialects that read a language, and that need no marker there or have one. Of a file
        of plain data, which has one owner, those whose markers stand in it come before the rest,
        which is then mostly not even imported; those of plug-ins come before both."""
        readers = self.registry.readers((language,))
        data = document.source.text.encode("utf-8", "surrogateescape")
        if language not in _DATA:
            return [e for e in readers if language not in e.only_marked or e.is_marked(data)]
        return sorted(readers, key=lambda entry: entry.is_ours and not entry.is_marked(data))


def is_module(workspace: Workspace, name: str) -> bool:
    """Whether a Python file is a module of a package, which others call as they see fit."""
    folder = name.rpartition("/")[0]
    package = f"{folder}/__init__.py" if folder else "__init__.py"
    return (
        name.endswith(".py")
        and workspace.exists(package)
        and b"__main__" not in (workspace.read_or_none(name) or b"")
    )


def _in_keys(ours: Iterable[bytes], others: Iterable[bytes]) -> re.Pattern[bytes]:
    """Where markers stand in JSON: our dialects tell it by its keys, and in megabytes of data under that ending stands
    any of their words. Of those of plug-ins a marker may be anywhere."""
    keys = rb"(?:%s)[\w.-]{0,64}[\"']?\s{0,64}:" % b"|".join(map(re.escape, sorted(ours)))
    return re.compile(b"|".join((keys, *map(re.escape, sorted(others)))))


def _holds_records(name: str, data: bytes) -> bool:
    """Whether a file is data that is called like a config, and no config that is broken."""
    if kind_of(name) not in JSON_SUFFIXES:
        return False
    from oomlint.documents.json import is_json_lines

    with suppress(FileError):
        return is_json_lines(Source.from_bytes(name, data))
    return False
