"""``oomlint completion``: what a shell needs to complete commands, options and names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, get_args

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_OOMLINT_COMPLETE"
"""What click asks for completions with, by the program's name."""

_HELP = """Print what makes a shell complete oomlint's commands, options and names.

\b
bash:  oomlint completion bash > ~/.local/share/bash-completion/completions/oomlint
zsh:   oomlint completion zsh > "${fpath[1]}/_oomlint"
fish:  oomlint completion fish > ~/.config/fish/completions/oomlint.fish
"""


@click.command(help=_HELP)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    from click.shell_completion import get_completion_class

    from oomlint.cli.output import emit

    script = get_completion_class(shell)
    if script is None:
        raise click.UsageError(f"click knows no completion for {shell}")
    emit(script(ctx.find_root().command, {}, "oomlint", VARIABLE).source(), form="bytes")


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Whatever the shell itself offers for a path."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def files_or_model(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Files, and models of the catalogue once a name is begun."""
    named = models(ctx, param, incomplete) if incomplete else []
    return [*files(ctx, param, incomplete), *named]


def rule_names(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of rules, or codes once one is begun; after commas, too."""
    from oomlint.linting.engine import all_rules

    before, comma, word = incomplete.rpartition(",")
    by_code = word[:1].isupper()
    pairs = ((rule.code if by_code else rule.name, rule.summary) for rule in all_rules())
    return _items(pairs, word, before + comma)


def hardware(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """GPUs after any counts, and machine types."""
    from oomlint.hardware import list_gpus, list_instances

    counts, x, word = incomplete.rpartition("x")
    if not x or not counts.replace("x", "").isdigit():
        counts, x, word = "", "", incomplete
    pairs = [(gpu.name, "") for gpu in list_gpus()]
    if not x:
        pairs += [("auto", "this machine")]
        pairs += [(i.name, f"{i.gpus} x {i.gpu.name}") for i in list_instances()]
    return _items(pairs, word, counts + x)


def gpu_or_instance(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of ``oomlint hardware``."""
    return [item for item in hardware(ctx, param, incomplete) if item.value != "auto"]


def models(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Models of the catalogue."""
    from oomlint.models import all_ids

    names = sorted(all_ids())
    if "/" not in incomplete:  # most know a model without its owner, and so does `resolve`
        names += sorted({name.rpartition("/")[2] for name in names if "/" in name})
    return _items(((name, "") for name in dict.fromkeys(names)), incomplete)


def frameworks(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from oomlint.config.settings import Framework
    from oomlint.dialects.profiles.known import usual

    names = dict.fromkeys((*get_args(Framework), *usual().frameworks))
    return _items(((name, "") for name in names), incomplete)


def _items(pairs: Iterable[tuple[str, str]], word: str, before: str = "") -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    folded = word.casefold()
    return [
        CompletionItem(before + name, help=text or None)
        for name, text in pairs
        if name.casefold().startswith(folded)
    ]
