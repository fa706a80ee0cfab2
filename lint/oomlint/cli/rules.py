"""``oomlint rules``, ``explain`` and ``test-rules``."""

from __future__ import annotations

import os.path

import click

from oomlint.cli import completion
from oomlint.cli.options import color_option
from oomlint.cli.output import emit, painter
from oomlint.errors import UsageError
from oomlint.linting.engine import all_rules
from oomlint.linting.rule import Rule
from oomlint.report.paint import ColorChoice
from oomlint.session.jobs import plugin_folders, settings_for
from oomlint.session.request import CheckRequest


@click.command()
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
@color_option
def rules(output_format: str, color: ColorChoice) -> None:
    """List every rule: code, name, whether it has a fix, what it finds."""
    known = _rules_here()
    if output_format == "json":
        from oomlint.report.places import url
        from oomlint.report.runs import as_json

        emit(
            as_json(
                [
                    {
                        "code": rule.code,
                        "name": rule.name,
                        "summary": rule.summary,
                        "origin": rule.origin or "oomlint",
                        "fix": rule.applicability.label if rule.applicability else None,
                        "url": url(rule),
                    }
                    for rule in known
                ]
            ),
            form="data",
        )
        return
    paint = painter(color)
    width = max((len(rule.name) for rule in known), default=0)
    for rule in known:
        fix = rule.applicability.label if rule.applicability else "-"
        origin = f"  (of {rule.origin})" if rule.origin else ""
        code = paint(rule.code, "bold")
        emit(f"{code}  {rule.name:<{width}}  {fix:<7}  {rule.summary}{origin}\n", paint=paint)


@click.command()
@click.argument("code_or_name", metavar="CODE-OR-NAME", shell_complete=completion.rule_names)
def explain(code_or_name: str) -> None:
    """Print one rule's page: what it finds, why, how to fix it, when not to."""
    from oomlint.linting.pages import page

    emit(page(_find(code_or_name)))


def _rules_here() -> tuple[type[Rule], ...]:
    """The rules that run in the working directory, with its plug-ins."""
    return all_rules(plugin_folders(settings_for(CheckRequest(), (".",))))


def _find(word: str) -> type[Rule]:
    wanted = word.lower()
    known = _rules_here()
    for rule in known:
        if wanted in (rule.name, rule.code.lower()):
            return rule
    from difflib import get_close_matches

    names = [rule.name for rule in known] + [rule.code.lower() for rule in known]
    near = get_close_matches(wanted, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else "; see `oomlint rules`"
    raise UsageError(f"no rule is called {word!r}{hint}")


@click.command("test-rules")
@click.argument("package")
def test_rules(package: str) -> int:
    """Check the rules of PACKAGE against their own examples, page and names.

    PACKAGE is an importable name, or a folder of rules.
    """
    from oomlint.linting.testing import problems
    from oomlint.plugins import fault_of_rule

    classes = _classes(package)
    if not classes:
        raise UsageError(f"{package} has no rules() and no Rule classes")
    # The package may be installed here as well.
    own = {(getattr(rule, "code", ""), getattr(rule, "name", "")) for rule in classes}
    others = [r for r in all_rules() if r not in classes]
    others = [r for r in others if not r.origin or (r.code, r.name) not in own]
    failed = 0
    for number, rule in enumerate(classes):
        fault = fault_of_rule(rule, [*others, *classes[:number]])
        found = [fault] if fault else list(problems(rule))
        failed += bool(found)
        title = f"{getattr(rule, 'code', '-')}  {getattr(rule, 'name', rule.__qualname__)}"
        emit(f"{'failed' if found else 'passed'}  {title}\n")
        emit("".join(f"        {problem}\n" for problem in found))
    return 1 if failed else 0


def _classes(package: str) -> list[type[Rule]]:
    """The rules of a package or a folder; naming either here is consent to running it."""
    from importlib import import_module

    from oomlint.plugins import rule_classes, rules_of_folder

    try:
        if os.path.isdir(package):
            return rules_of_folder(os.path.abspath(package))
        return rule_classes(import_module(package))
    except (Exception, SystemExit) as error:  # whatever a plug-in raises is its author's to mend
        raise UsageError(f"{package} cannot be imported: {error}") from None
