"""The page of all commands and options, from what click knows: ``python -m oomlint.cli.reference FILE``."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from oomlint.cli.group import COMMANDS, app

_HEAD = """\
# Commands and options

Written by `python -m oomlint.cli.reference` from the program itself: what `oomlint COMMAND --help` prints. `oomlint PATHS` is
`oomlint check PATHS`.

"""

# Where a command has a page of its own.
_PAGES = {
    "check": "check.md",
    "estimate": "estimate.md",
    "new": "new.md",
    "fit": "fit.md",
    "compare": "compare.md",
    "why": "why.md",
    "diagnose": "diagnose.md",
    "rules": "rules/README.md",
    "explain": "rules/README.md",
    "config": "settings.md",
    "init": "settings.md",
    "review": "review.md",
    "lsp": "editors.md",
    "plugins": "plugins.md",
    "test-rules": "plugins.md",
    "completion": "installing.md",
}


def page() -> str:
    context = app.make_context("oomlint", [], resilient_parsing=True)
    commands = {name: app.get_command(context, name) for name in COMMANDS}
    known = {name: command for name, command in commands.items() if command is not None}
    index = ["| command | what it does |", "|---|---|"]
    index += [
        f"| [`{name}`](#oomlint-{name}) | {_cell(command.get_short_help_str(200))} |"
        for name, command in known.items()
    ]
    sections = ["\n".join(_section(name, command, context)) for name, command in known.items()]
    return _HEAD + "\n".join(index) + "\n\n" + "\n\n".join(sections) + "\n"


def _section(name: str, command: click.Command, group: click.Context) -> Iterator[str]:
    context = click.Context(command, parent=group, info_name=name)
    yield f"## oomlint {name}\n"
    yield f"```text\n{' '.join(command.get_usage(context).split())}\n```\n"
    yield _prose(command)
    if name in _PAGES:
        yield f"\n[More on it]({_PAGES[name]}).\n"
    else:
        yield ""
    rows = [
        record
        for option in command.get_params(context)
        if isinstance(option, click.Option)
        and (record := option.get_help_record(context)) is not None
    ]
    yield "| option | meaning |"
    yield "|---|---|"
    for spelling, meaning in rows:
        yield f"| {_code(spelling)} | {_cell(meaning)} |"


def _prose(command: click.Command) -> str:
    """The help of a command; what it says line by line (after ``\\b``) stays so."""
    parts = inspect.cleandoc(command.help or "").split("\b\n")
    kept = [f"```text\n{part.strip()}\n```" for part in parts[1:]]
    return "\n\n".join([parts[0].strip(), *kept])


def _code(spelling: str) -> str:
    """``--fail-level [error|warning]`` as the option and its words: a cell of a table ends at a bar."""
    option, _, words = _cell(spelling).replace("\\|", "|").partition(" [")
    if "|" not in words:
        return f"`{_cell(spelling)}`"
    return f"`{option}` {', '.join(words.rstrip(']').split('|'))}"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def main() -> None:
    Path(sys.argv[1]).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
