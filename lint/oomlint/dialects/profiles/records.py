"""What a profile says, as it was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field


class ProfileError(Exception):
    """A profile is not as it should be; ``str(error)`` names file, key and fault."""

    def __init__(self, file: str, key: str, fault: str) -> None:
        super().__init__(f"{file}: {key}: {fault}" if key else f"{file}: {fault}")


class Match(Struct, frozen=True):
    """One way to tell a script; all that is said must hold.

    ``stems``: the script's name without folder and suffix. ``paths``: how the path of the script or
    the dotted name of the module ends, with ``/`` between its parts. ``needs``: options that must
    all be there; ``some``: at least ``least`` of these; ``without``: none of these. ``near``:
    patterns of which one fits the path of the file that holds the command, or the folder that
    it runs in; ``away``: none does.
    ``words``: patterns that the words behind the script, which are no options, fit in their order.
    ``arguments``: not of a command but of a file that holds a script's arguments.
    """

    stems: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    some: tuple[str, ...] = ()
    least: int = 1
    without: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    arguments: bool = False


class Option(Struct, frozen=True):
    """An option of the script's own. ``stands_for`` is a field, none where only the profile
    reads the option; ``word`` is its place, from 1 on, where it is a word behind the script."""

    name: str
    stands_for: str = ""
    kind: str = "text"
    default: Any = None
    aliases: tuple[str, ...] = ()
    spellings: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    word: int = 0


class Values(Struct, frozen=True):
    """Fields and their values, with where they were read."""

    of: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""


class FieldRule(Struct, frozen=True):
    """What a field is: a ``value`` or a ``formula``, where ``when`` holds.

    ``by``: the fields of which the first that has a value, or is said, leaves this one open. ``why``:
    of a guess.
    """

    value: Any = None
    formula: str = ""
    when: str = ""
    by: tuple[str, ...] = ()
    why: str = ""
    source: str = ""


class ProfiledScript(Struct, frozen=True, eq=False):
    """One script of a project; ``file`` is the profile's, ``source`` says where it was read."""

    file: str
    name: str
    source: str
    match: tuple[Match, ...] = ()
    framework: str = ""
    extends: str = "trainer"
    """``trainer``: the script has the options of every script over the Trainer, and its own;
    ``nothing``: its own alone."""
    checks: bool = True
    """Whether its parser refuses a value of another type than the option's; python-fire hands on whatever it reads."""
    is_known: bool = True
    """Whether the command is recognised by this alone. Of a script that is not known, a profile
    adds to what is made of it if it is recognised."""
    drops: tuple[str, ...] = ()
    """Options of the Trainer that mean something else here."""
    known: frozenset[str] = frozenset()
    """Options without effect on memory."""
    options: tuple[Option, ...] = ()
    defaults: Values = field(default_factory=Values)
    facts: Values = field(default_factory=Values)
    derive: Mapping[str, FieldRule] = field(default_factory=dict)
    override: Mapping[str, FieldRule] = field(default_factory=dict)
    assume: Mapping[str, FieldRule] = field(default_factory=dict)
    unread: Mapping[str, FieldRule] = field(default_factory=dict)
    cannot: Mapping[str, str] = field(default_factory=dict)


class Profile(Struct, frozen=True, eq=False):
    """A project: its scripts in the order in which they are tried, and its programs that none of
    this is about, by folders in their paths. ``repository``, ``commit``, ``read``: what was read,
    and when."""

    project: str
    file: str
    scripts: tuple[ProfiledScript, ...]
    ignored: tuple[str, ...]
    repository: str
    commit: str
    read: str
