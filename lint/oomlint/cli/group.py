"""The group of commands, and its default command ``check``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import click

from oomlint import __version__
from oomlint.session import interrupts

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Command → module and attribute; a command's module is imported when it is asked for.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "check": ("check", "check"),
    "estimate": ("estimate", "estimate"),
    "new": ("new", "new"),
    "fit": ("fit", "fit"),
    "compare": ("compare", "compare"),
    "why": ("why", "why"),
    "diagnose": ("diagnose", "diagnose"),
    "rules": ("rules", "rules"),
    "explain": ("rules", "explain"),
    "hardware": ("catalogues", "hardware"),
    "models": ("catalogues", "models"),
    "config": ("config", "config"),
    "init": ("config", "init"),
    "review": ("review", "review"),
    "lsp": ("lsp", "lsp"),
    "completion": ("completion", "completion"),
    "clean": ("clean", "clean"),
    "plugins": ("plugins", "plugins"),
    "test-rules": ("rules", "test_rules"),
}

_GROUP_OPTIONS = ("--help", "-h", "--version")


class CommandGroup(click.Group):
    """A group in which anything that names no command is meant for ``check``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and ctx.resilient_parsing:  # the first word is being completed
            return super().parse_args(ctx, args)
        if not args or (args[0] not in COMMANDS and args[0] not in _GROUP_OPTIONS):
            _check_is_path(args[:1])
            args = ["check", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands, and what may stand first for ``check``: its options and files."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            check = self.get_command(ctx, "check")
            return check.shell_complete(click.Context(check), incomplete) if check else []
        # Bash forgets what came before a word that asks for files.
        return [CompletionItem(incomplete, type="file"), *super().shell_complete(ctx, incomplete)]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        home = COMMANDS.get(cmd_name)
        if home is None:
            return None
        module, name = home
        command: click.Command = getattr(import_module(f"oomlint.cli.{module}"), name)
        return command


def _check_is_path(words: Sequence[str]) -> None:
    """
    Raises:
        UsageError: a word that is neither a command nor a file is nearly a command.
    """
    for word in words:
        if word.isalpha() and not os.path.lexists(word):
            from difflib import get_close_matches

            from oomlint.errors import UsageError

            near = get_close_matches(word, COMMANDS, n=1, cutoff=0.7)
            if near:
                raise UsageError(f"{word} is no command and no file: did you mean {near[0]}?")


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="oomlint", message="%(prog)s %(version)s")
def app() -> None:
    """Predict the memory of LLM training runs from their configs, and fix those that do not fit.

    `oomlint PATHS` is the same as `oomlint check PATHS`.
    """


def call(words: Sequence[str]) -> int:
    """Do what ``words`` ask for; the exit status.

    Raises:
        BrokenPipeError: whoever read the output has gone.
        ReadError: what click itself says, as for ``--help``, cannot be written.
    """
    try:
        return _done(words)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort:
        return interrupts.STATUS
    except click.ClickException as error:
        with suppress(OSError):  # the status has to do where nothing can be written
            error.show()
        return 2
    except BrokenPipeError:
        raise
    except OSError as error:
        if not _is_of_click(error):
            raise
        from oomlint.cli.output import output_refused

        raise output_refused(error) from None


def _done(words: Sequence[str]) -> int:
    from oomlint.cli.completion import VARIABLE

    asked = os.environ.get(VARIABLE)
    if asked:
        from click.shell_completion import shell_complete

        return shell_complete(app, {}, "oomlint", VARIABLE, asked)
    # Not click's own main, which exits with 1, our "findings", when the reader of a pipe has gone.
    with app.make_context("oomlint", list(words)) as context:
        status = app.invoke(context)
    return status if isinstance(status, int) else 0


def _is_of_click(error: BaseException) -> bool:
    """Whether click's own code met the error: the only files that it uses are standard streams."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("click.")
