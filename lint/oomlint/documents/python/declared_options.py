"""What is known of a parser that a script declares: its options, as plain data."""

from __future__ import annotations

from msgspec import Struct


class Option(Struct, frozen=True):
    """An option of a parser, by its names with underscores and without dashes in front (of a positional its own).
    ``kind``: ``int``, ``float`` or ``other``, as argparse checks a value; ``choices`` are the words that it takes alone;
    ``wants_word``: it stops where none follows (*expected one argument*)."""

    names: tuple[str, ...]
    kind: str
    choices: tuple[str, ...] = ()
    is_required: bool = False
    is_positional: bool = False
    wants_word: bool = False


class StrictParser(Struct, frozen=True):
    """The options that a script declares, and the ``classes`` of libraries, dotted, whose fields are options, too.
    ``may_take_a_file``: a file may say what the command leaves out; ``is_lenient``: it does not stop at what it does not
    know before the program has run."""

    options: tuple[Option, ...]
    classes: tuple[str, ...]
    may_take_a_file: bool
    is_lenient: bool = False
