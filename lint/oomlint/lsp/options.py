"""What a client says about machine, rules and settings, and what the commands are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lsprotocol import types
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from oomlint.errors import UsageError
from oomlint.session.request import CheckRequest
from oomlint.validation.received import Received, Unexpected, read

SECTION = "oomlint"


class ClientSettings(Received):
    """The settings of a client. What is empty is not said."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, str_strip_whitespace=True)

    hardware: str | None = None
    host_memory: str | None = None
    gpus: int | str | None = None
    framework: str | None = None
    configuration: str | None = None
    select: list[str] | str | None = None
    ignore: list[str] | str | None = None
    status: bool = False
    """Whether the client shows verdicts, and wants to be told them."""
    command: Any = None
    """How the client starts the server: its own business, under the same section."""
    trace: Any = None
    """Whether the client logs what is said: likewise."""

    def over(self, earlier: ClientSettings) -> ClientSettings:
        """These, and where they say nothing what was said earlier."""
        said = {name: getattr(self, name) for name in self.model_fields_set}
        return earlier.model_copy(update=said)

    def given(self, root: Path) -> CheckRequest:
        """What they amount to for files below ``root``."""
        gpus = None if self.gpus is None else str(self.gpus)
        config = root / Path(self.configuration).expanduser() if self.configuration else None
        return CheckRequest(
            hardware=self.hardware or None,
            host_memory=self.host_memory or None,
            gpus=gpus or None,
            framework=self.framework or None,
            config=config,
            select=_words(self.select) or None,
            ignore=_words(self.ignore),
        )


KEYS = frozenset(field.alias or name for name, field in ClientSettings.model_fields.items())


class CommandArgument(Received):
    """The argument of a command: a document, one of its runs, a way to make that fit, a rule."""

    model_config = ConfigDict(extra="ignore")

    uri: str = ""
    run: str | None = None
    number: int | None = None
    rule: str | None = None


def plain(value: Any) -> Any:
    """A client's JSON as dictionaries and lists; the protocol's library makes records of it."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value


def section(value: object) -> Mapping[str, Any] | None:
    """The settings of ours in what a client sends: under their section, or bare."""
    value = plain(value)
    if not isinstance(value, Mapping):
        return None
    for key in (SECTION, "settings"):
        inner = value.get(key)
        if isinstance(inner, Mapping):
            return section(inner) or inner
    return value if not KEYS.isdisjoint(value) else None


def options(settings: Mapping[str, Any]) -> tuple[ClientSettings, list[str]]:
    """The options that a client's settings amount to, and what is wrong with the others."""
    try:
        return read(ClientSettings, settings), []
    except Unexpected as error:
        wrong = error.faults
    kept = {key: settings[key] for key in settings.keys() - {path[0] for path, _ in wrong}}
    found, more = options(kept)
    return found, [*(f"the setting {_name(path)} is wrong: {said}" for path, said in wrong), *more]


def asked(arguments: Sequence[object]) -> CommandArgument:
    """What a command is asked for; without an argument, nothing in particular.

    Raises:
        UsageError: the argument is of another kind.
    """
    first = plain(arguments[0]) if arguments else None
    try:
        return CommandArgument() if first is None else read(CommandArgument, first)
    except Unexpected as error:
        raise UsageError(f"the argument of the command is wrong: {error}") from None


class _Offered(Received):
    """What a completed key carries, to be told more of."""

    model_config = ConfigDict(extra="ignore")

    uri: str
    key: str
    position: dict[str, int]


def completed_at(sent: Mapping[str, Any]) -> tuple[str, str, types.Position] | None:
    """The document, key and place of a completion that a client sends back."""
    try:
        offered = read(_Offered, sent)
    except Unexpected:
        return None
    at = offered.position
    return offered.uri, offered.key, types.Position(at.get("line", 0), at.get("character", 0))


def _name(path: Iterable[str]) -> str:
    return ".".join((SECTION, *path))


def _words(value: list[str] | str | None) -> tuple[str, ...]:
    words = value.split(",") if isinstance(value, str) else value or ()
    return tuple(word.strip() for word in words if word.strip())
