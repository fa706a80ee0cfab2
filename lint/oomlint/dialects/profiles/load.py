"""Reading a profile's file, which is taken to be sound: see :mod:`.check`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from oomlint.dialects.profiles.records import (
    FieldRule,
    Match,
    Option,
    Profile,
    ProfiledScript,
    ProfileError,
    Values,
)

DATA = Path(__file__).with_name("data")

_Raw = Mapping[str, Any]


@cache
def shipped(name: str) -> Profile:
    """A profile of oomlint's own, by its file's name without suffix."""
    file = f"{name}.toml"
    return parsed((DATA / file).read_bytes(), file)


def parsed(data: bytes, file: str) -> Profile:
    """The profile that a file holds.

    Raises:
        ProfileError: it is none.
    """
    return profile_of(raw_of(data, file), file)


def raw_of(data: bytes, file: str) -> dict[str, Any]:
    """The tables of a file.

    Raises:
        ProfileError: it is no TOML.
    """
    from oomlint.validation.toml import loads

    try:
        raw = loads(data.decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError:
        raise ProfileError(file, "", "it is not UTF-8 text") from None
    except ValueError as error:
        raise ProfileError(file, "", str(error)) from None
    if isinstance(raw.get("read"), date):  # TOML has dates, JSON Schema has not
        raw["read"] = raw["read"].isoformat()
    return raw


# -- records ---------------------------------------------------------------------------------------


def profile_of(raw: _Raw, file: str) -> Profile:
    """The profile that the tables of a file say.

    Raises:
        ProfileError: a script is like one that there is not, or nobody says where it was read.
    """
    scripts = raw["scripts"]
    shared = {key: raw[key] for key in ("source", "framework") if key in raw}
    found = [
        _script(name, raw["project"], {**shared, **_whole(name, scripts, file)}, file)
        for name in scripts
    ]
    return Profile(
        raw["project"], file, tuple(found), _words(raw, "ignored"), raw["repository"],
        raw.get("commit", ""), raw["read"],
    )  # fmt: skip


_MERGED = ("options", "defaults", "facts", "derive", "override", "assume", "unread", "cannot")


def _whole(name: str, scripts: _Raw, file: str, *seen: str) -> dict[str, Any]:
    """What a script says, with what it takes from the one that it is ``like``."""
    own = dict(scripts[name])
    like = own.pop("like", None)
    if like is None:
        return own
    if like not in scripts or like in (name, *seen):
        raise ProfileError(file, f"scripts.{name}.like", f"there is no other script {like!r}")
    base = _whole(like, scripts, file, name, *seen)
    base.pop("match", None)
    for key in _MERGED:
        if key in own and key in base:
            own[key] = {**base[key], **own[key]}
    return {**base, **own}


def _script(name: str, project: str, raw: _Raw, file: str) -> ProfiledScript:
    if "source" not in raw:
        raise ProfileError(file, f"scripts.{name}.source", "is missing: where this was read")
    options = raw.get("options", {})
    return ProfiledScript(
        file=file,
        name=raw.get("title", f"{project}'s {name}.py"),
        source=raw["source"],
        match=tuple(map(_match, raw.get("match", ()))),
        framework=raw.get("framework", ""),
        extends=raw.get("extends", "trainer"),
        checks=raw.get("checks", True),
        is_known=not raw.get("adds", False),
        drops=_words(raw, "drops"),
        known=frozenset(_words(raw, "known")),
        options=tuple(_option(key, option) for key, option in options.items()),
        defaults=_values(raw.get("defaults", {})),
        facts=_values(raw.get("facts", {})),
        **{
            key: {field: _rule(rule) for field, rule in raw.get(key, {}).items()}
            for key in ("derive", "override", "assume", "unread")
        },
        cannot=raw.get("cannot", {}),
    )


def _match(raw: _Raw) -> Match:
    return Match(**{key: _plain(value) for key, value in raw.items()})


def _option(name: str, raw: _Raw) -> Option:
    rest = {key: _plain(value) for key, value in raw.items() if key != "field"}
    return Option(name, raw.get("field", ""), **rest)


def _values(raw: _Raw) -> Values:
    of = {name: _plain(value) for name, value in raw.items() if name != "source"}
    return Values(of, raw.get("source", ""))


def _rule(raw: _Raw | str) -> FieldRule:
    """A text alone is a formula."""
    if isinstance(raw, str):
        return FieldRule(formula=raw)
    return FieldRule(**{key: _plain(value) for key, value in raw.items()})


def _words(raw: _Raw, name: str) -> tuple[str, ...]:
    """A list of texts, or a text of words."""
    value = raw.get(name, ())
    return tuple(value.split()) if isinstance(value, str) else tuple(value)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
