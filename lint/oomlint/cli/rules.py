"""``oomlint rules``, ``explain`` and ``test-rules``."""

from __future__ import annotations

import click

from oomlint.cli.options import color_option
from oomlint.cli.output import emit, painter
from oomlint.engine import all_rules
from oomlint.errors import UsageError
from oomlint.report.paint import ColorChoice
from oomlint.rule import Rule


@click.command()
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
@color_option
def rules(output_format: str, color: ColorChoice) -> None:
    """List every rule: code, name, whether it has a fix, what it finds."""
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
                        "fix": rule.applicability.label if rule.applicability else None,
                        "url": url(rule.name),
                    }
                    for rule in all_rules()
                ]
            )
        )
        return
    paint = painter(color)
    width = max((len(rule.name) for rule in all_rules()), default=0)
    for rule in all_rules():
        fix = rule.applicability.label if rule.applicability else "-"
        emit(f"{paint(rule.code, 'bold')}  {rule.name:<{width}}  {fix:<7}  {rule.summary}\n")


@click.command()
@click.argument("code_or_name", metavar="CODE-OR-NAME")
def explain(code_or_name: str) -> None:
    """Print one rule's page: what it finds, why, how to fix it, when not to."""
    rule = _find(code_or_name)
    fix = rule.applicability.label if rule.applicability else "none"
    emit(f"{rule.page()}\n## Fix\n\n{fix}\n{_examples(rule)}")


def _find(word: str) -> type[Rule]:
    wanted = word.lower()
    for rule in all_rules():
        if wanted in (rule.name, rule.code.lower()):
            return rule
    from difflib import get_close_matches

    names = [rule.name for rule in all_rules()] + [rule.code.lower() for rule in all_rules()]
    near = get_close_matches(wanted, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else "; see `oomlint rules`"
    raise UsageError(f"no rule is called {word!r}{hint}")


def _examples(rule: type[Rule]) -> str:
    """The first example of the rule, and what its fix makes of it."""
    if not rule.bad:
        return ""
    example = rule.bad[0]
    where = f", on {example.hardware}" if example.hardware else ""
    parts = [f"\n## Example{where}\n"]
    for path, text in example.files.items():
        parts.append(f"\n{path}:\n\n{_indented(text)}")
    for path, text in (example.fixed or {}).items():
        parts.append(f"\n{path} after the fix:\n\n{_indented(text)}")
    return "".join(parts)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())


@click.command("test-rules")
@click.argument("package")
def test_rules(package: str) -> int:
    """Check the rules of PACKAGE (an importable name) against their own examples."""
    from importlib import import_module

    from oomlint.testing import problems

    try:
        module = import_module(package)
    except Exception as error:  # whatever a plug-in raises on import is its author's to mend
        raise UsageError(f"{package} cannot be imported: {error}") from None
    classes = _rule_classes(module)
    if not classes:
        raise UsageError(f"{package} has no rules() and no Rule classes")
    failed = 0
    for rule in classes:
        found = list(problems(rule))
        failed += bool(found)
        emit(f"{'failed' if found else 'passed'}  {rule.code}  {rule.name}\n")
        emit("".join(f"        {problem}\n" for problem in found))
    return 1 if failed else 0


def _rule_classes(module: object) -> list[type[Rule]]:
    listing = getattr(module, "rules", None)
    if callable(listing):
        return list(listing())
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Rule) and value is not Rule
    ]
