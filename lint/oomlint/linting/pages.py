"""The rules' pages in Markdown, and an index of them by family.

``python -m oomlint.linting.pages FOLDER [PACKAGE]`` writes them, of oomlint's own rules or of those of a
plug-in. A page is the docstring of the rule's module, what its examples show of it, and the
first example; ``oomlint explain`` prints the same.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from msgspec import Struct

from oomlint.linting.rule import Applicability, Rule, Severity

FAMILIES: Mapping[str, str] = {
    "OOM1": "GPU: states, activations, logits, attention",
    "OOM2": "Precision, quantization, PEFT, optimizer",
    "OOM3": "Sharding, offload, parallelism",
    "OOM4": "Host memory while loading and running, data",
    "OOM5": "Checkpoints: save and resume",
    "OOM6": "Evaluation, generation, preference and RL training",
    "OOM7": "Launch, topology, containers, schedulers, allocator",
    "OOM8": "Settings that contradict, are ignored, renamed or misspelt",
    "OOM9": "oomlint itself: suppressions, files it could not resolve",
}

_FIXES: Mapping[Applicability | None, str] = {
    Applicability.SAFE: "safe",
    Applicability.UNSAFE: "unsafe",
    Applicability.DISPLAY: "shown",
    None: "none",
}

_LANGUAGES: Mapping[str, str] = {
    ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml", ".py": "python",
    ".sh": "bash", ".slurm": "bash", ".ipynb": "json",
}  # fmt: skip

_INTRODUCTION = """\
# Rules

Severity follows the [risk](../memory-model.md#risk-and-verdicts) that the run dies, and what that
[rests on](../evidence.md#what-follows-from-it). **error** is a risk of at least 80 % that no assumed
value decides, or a setting that does not do what it says; **warning** is a risk of at least 20 %, or, where
nobody names the hardware, a run that no 80 GB card would hold; **info** is what a value that was not read
decides, and memory or time left on the table. A rule speaks at the severity that the run in front of it
deserves; the tables name those that its examples reach. gpu-memory-at-risk (OOM100) and
host-memory-at-risk (OOM400) say of a run that it is in trouble, the others what that comes of.

A **safe** fix leaves the training result the same up to floating-point order and is applied by
`--fix`; an **unsafe** one changes numerics, learning or what is stored and needs `--unsafe-fixes`
too; what is **shown** is never applied. Rules see runs, not files: what one says of a framework
below, it says of every framework that can be configured so.
"""


class ExampleFacts(Struct, frozen=True):
    """What the examples of a rule show: severities, the worst first, and frameworks."""

    severities: tuple[Severity, ...]
    frameworks: tuple[str, ...]


def facts(rule: type[Rule]) -> ExampleFacts:
    """The facts of a rule, from linting its bad examples."""
    from oomlint.linting.testing import lint_example

    found = [d for example in rule.bad for d in lint_example(rule, example).diagnoses]
    return ExampleFacts(
        tuple(sorted({d.severity for d in found}, reverse=True)),
        tuple(sorted({d.run.framework for d in found if d.run is not None})),
    )


def page(rule: type[Rule], known: ExampleFacts | None = None) -> str:
    """The page of a rule, whose facts are ``known`` or found out."""
    title, _, text = rule.page().partition("\n\n")
    head = "| severity | fix | examples in |\n|---|---|---|\n"
    return f"{title}\n\n{head}{_row(*_cells(rule, known or facts(rule)))}\n{text}{_example(rule)}"


def index(rules: Mapping[type[Rule], ExampleFacts]) -> str:
    """The list of all rules, a table a family."""
    parts = [_INTRODUCTION]
    for family, group in groupby(rules, key=lambda rule: rule.code[:-2]):
        parts.append(f"\n## {FAMILIES.get(family, family)}\n\n")
        parts.append("| code | name | what it finds | severity | fix | examples in |\n")
        parts.append("|---|---|---|---|---|---|\n")
        for rule in group:
            link = f"[{rule.name}]({rule.name}.md)"
            summary = rule.summary.replace("|", "\\|")
            parts.append(_row(rule.code, link, summary, *_cells(rule, rules[rule])))
    return "".join(parts)


def pages(rules: Iterable[type[Rule]]) -> dict[str, str]:
    """Text by file name: the index as ``README.md``, which forges show for the folder."""
    known = {rule: facts(rule) for rule in sorted(rules, key=lambda rule: rule.code)}
    return {
        "README.md": index(known),
        **{f"{rule.name}.md": page(rule, about) for rule, about in known.items()},
    }


def _cells(rule: type[Rule], known: ExampleFacts) -> tuple[str, str, str]:
    return (
        " or ".join(severity.label for severity in known.severities),
        _FIXES[rule.applicability],
        ", ".join(known.frameworks),
    )


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell or '–' for cell in cells)} |\n"


def _example(rule: type[Rule]) -> str:
    """The first example, the one with a fix if there is one, and what the fix makes of it."""
    if not rule.bad:
        return ""
    example = next((e for e in rule.bad if e.fixed), rule.bad[0])
    machine = [f"on {example.hardware}"] if example.hardware else []
    machine += [f"with {example.host_memory} of RAM a node"] if example.host_memory else []
    parts = [f"\n## Example{', ' if machine else ''}{', '.join(machine)}\n"]
    for path, text in example.files.items():
        parts.append(f"\n`{path}`:\n\n{_block(_LANGUAGES.get(Path(path).suffix, ''), text)}")
    if example.fixed:
        parts.append("\nThe fix:\n")
        for path, text in example.fixed.items():
            old = example.files.get(path, "")
            parts.append(f"\n{_block('diff', _difference(path, old, text))}")
    return "".join(parts)


def _difference(path: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), path, path, lineterm="")
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _block(language: str, text: str) -> str:
    """A fenced block whose fence is longer than any in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"


def write(folder: Path, rules: Iterable[type[Rule]]) -> None:
    """Write every page into a folder and remove those of rules that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = pages(rules)
    for file in folder.glob("*.md"):
        if file.name not in texts:
            file.unlink()
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8", newline="\n")


def main(arguments: Sequence[str]) -> int:
    """``FOLDER [PACKAGE]``; without PACKAGE the rules are oomlint's own."""
    from importlib import import_module

    from oomlint.plugins import rule_classes

    if not 1 <= len(arguments) <= 2:
        print("usage: python -m oomlint.linting.pages FOLDER [PACKAGE]", file=sys.stderr)
        return 2
    folder, package = (*arguments, "oomlint_rules")[:2]
    write(Path(folder), rule_classes(import_module(package)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
