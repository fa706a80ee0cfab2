"""Reading a profile's file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from oomlint import plain_toml
from oomlint.dialects.profiles.records import Match, Option, Profile, Rule, Script, Values
from oomlint.frozen import parameters


class ProfileError(Exception):
    """A profile is not as it should be; ``str(error)`` names file, key and fault."""

    def __init__(self, file: str, key: str, fault: str) -> None:
        super().__init__(f"{file}: {key}: {fault}" if key else f"{file}: {fault}")


def parsed(text: str, file: str) -> Profile:
    """The profile that a text says.

    Raises:
        ProfileError: it is no TOML, or says what a profile cannot.
    """
    try:
        raw = plain_toml.loads(text)
    except ValueError as error:
        raise ProfileError(file, "", str(error)) from None
    return _profile(_Table(file, "", raw), file)


class _Table:
    """A table of the file: hands out its values by name and type, and then says what is left."""

    def __init__(self, file: str, path: str, raw: Mapping[str, Any]) -> None:
        self.file, self.path = file, path
        self.left = dict(raw)

    def key(self, name: str) -> str:
        shown = f'"{name}"' if "." in name else name
        return f"{self.path}.{shown}" if self.path else shown

    def fault(self, name: str, words: str) -> ProfileError:
        return ProfileError(self.file, self.key(name), words)

    def take(self, name: str, kind: type, otherwise: Any) -> Any:
        value = self.left.pop(name, otherwise)
        is_number = kind is int and isinstance(value, bool)
        if value is not otherwise and (not isinstance(value, kind) or is_number):
            raise self.fault(name, f"expected {_CALLED[kind]}")
        return value

    def text(self, name: str, otherwise: str = "") -> str:
        found: str = self.take(name, str, otherwise)
        return found

    def words(self, name: str) -> tuple[str, ...]:
        """A list of texts, or a text of words."""
        value = self.left.pop(name, ())
        if isinstance(value, str):
            return tuple(value.split())
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
            raise self.fault(name, "expected a list of texts")
        return tuple(value)

    def table(self, name: str) -> _Table:
        return _Table(self.file, self.key(name), self.take(name, dict, {}))

    def tables(self) -> Iterator[tuple[str, _Table]]:
        """What is left, all of it tables."""
        for name in tuple(self.left):
            yield name, self.table(name)

    def end(self) -> None:
        """What nobody has asked for is nothing that a profile says."""
        for name in self.left:
            raise self.fault(name, "a profile has no such key here")


_CALLED: Mapping[type, str] = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}


def _profile(table: _Table, file: str) -> Profile:
    project = table.text("project")
    if not project:
        raise table.fault("project", "is missing: the name of the project")
    shared = {key: table.text(key) for key in ("source", "framework")}
    ignored = table.words("ignored")
    scripts = dict(table.take("scripts", dict, {}))
    table.end()
    for name, raw in scripts.items():
        if not isinstance(raw, dict):
            raise ProfileError(file, f"scripts.{name}", "expected a table")
    found = []
    for name in scripts:
        raw = _whole(name, scripts, file)
        of_script = _Table(file, f"scripts.{name}", {**shared, **raw})
        found.append(_script(name, project, of_script))
    return Profile(project, file, tuple(found), ignored)


_MERGED = ("options", "defaults", "facts", "derive", "override", "assume", "unread", "cannot")


def _whole(name: str, scripts: Mapping[str, Any], file: str, *seen: str) -> dict[str, Any]:
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
        if isinstance(own.get(key), dict) and isinstance(base.get(key), dict):
            own[key] = {**base[key], **own[key]}
    return {**base, **own}


def _script(name: str, project: str, table: _Table) -> Script:
    script = Script(
        file=table.file,
        name=table.text("title", f"{project}'s {name}.py"),
        source=table.text("source"),
        match=_matches(table),
        framework=table.text("framework"),
        extends=table.text("extends", "trainer"),
        is_known=not table.take("adds", bool, False),
        drops=table.words("drops"),
        known=frozenset(table.words("known")),
        options=tuple(_option(key, of) for key, of in table.table("options").tables()),
        defaults=_values(table.table("defaults")),
        facts=_values(table.table("facts")),
        derive=_rules(table.table("derive")),
        override=_rules(table.table("override")),
        assume=_rules(table.table("assume")),
        unread=_rules(table.table("unread")),
        cannot=_refusals(table.table("cannot")),
    )
    if not script.source:
        raise table.fault("source", "is missing: where this was read")
    if script.extends not in ("trainer", "nothing"):
        raise table.fault("extends", "expected trainer or nothing")
    table.end()
    return script


def _matches(table: _Table) -> tuple[Match, ...]:
    found = []
    for number, raw in enumerate(table.take("match", list, [])):
        if not isinstance(raw, dict):
            raise table.fault("match", "expected a list of tables")
        each = _Table(table.file, table.key(f"match[{number}]"), raw)
        words = {
            parameter.name: each.words(parameter.name)
            for parameter in parameters(Match)
            if parameter.default == ()
        }
        least = each.take("least", int, 1)
        arguments = each.take("arguments", bool, False)
        each.end()
        if not any(words.values()):
            raise table.fault(f"match[{number}]", "says nothing, so that it would hold of all")
        found.append(Match(**words, least=least, arguments=arguments))
    return tuple(found)


def _option(name: str, table: _Table) -> Option:
    spellings = table.take("spellings", dict, {})
    option = Option(
        name,
        table.text("field"),
        table.text("kind", "text"),
        _plain(table.left.pop("default", None)),
        table.words("aliases"),
        spellings,
        table.text("source"),
    )
    table.end()
    return option


def _values(table: _Table) -> Values:
    source = table.text("source")
    return Values({name: _plain(value) for name, value in table.left.items()}, source)


def _rules(table: _Table) -> dict[str, Rule]:
    """Rules by field; a text alone is a formula."""
    found = {}
    for name, raw in tuple(table.left.items()):
        each = _Table(
            table.file, table.key(name), raw if isinstance(raw, dict) else {"formula": raw}
        )
        value = _plain(each.left.pop("value", None))
        by = each.words("by")
        words = {key: each.text(key) for key in ("formula", "when", "why", "source")}
        each.end()
        if value is not None and words["formula"]:
            raise table.fault(name, "has a value and a formula")
        if value is None and not words["formula"] and not by:
            raise table.fault(name, "has no value and no formula")
        found[name] = Rule(value, by=by, **words)
    return found


def _refusals(table: _Table) -> dict[str, str]:
    return {name: table.text(name) for name in tuple(table.left)}


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def in_folder(folder: Any) -> Iterator[Profile]:
    """The profiles in a folder of files or of a package, by name.

    Raises:
        ProfileError: one of them is not as it should be.
    """
    named = sorted((file.name, file) for file in folder.iterdir() if file.name.endswith(".toml"))
    for name, file in named:
        yield parsed(file.read_text("utf-8"), name)
