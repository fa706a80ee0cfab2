"""The tables of ``docs/oracles.md``, written from the figures that the last runs left.

``figures.json`` holds them, a framework each, so that a run of one renews its own row alone.
``python -m benchmarks.oracles.page`` writes the page anew without asking anybody.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.oracles.cases import fixable_rules
from benchmarks.oracles.frameworks import FRAMEWORKS, NO_JUDGE
from benchmarks.oracles.verdict import Tally, Verdict

Figures: TypeAlias = Mapping[str, Any]
"""What a verdict comes to, in JSON's terms: numbers, and names of rules."""

_HERE = Path(__file__).parent
KEPT = _HERE / "figures.json"
PAGE = _HERE.parents[1] / "docs" / "oracles.md"
_BEGIN, _END = "<!-- written by python -m benchmarks.oracles --markdown -->\n", "<!-- end -->\n"

_COUNTS = {
    "read": "configs as they came",
    "refused_before": "of them refused",
    "fixed": "configs after fixes",
    "examples": "fixed examples of rules",
    "refused_after": "refused only after a fix",
    "keys": "keys compared",
    "compared": "values compared",
    "disagreements": "read differently",
    "known": "told apart",
    "unjudged": "not judged here",
}


def figures(verdict: Verdict) -> Figures:
    counts = {name: getattr(verdict, name) for name in _COUNTS}
    return {
        "versions": dict(verdict.versions),
        **{name: found if isinstance(found, int) else len(found) for name, found in counts.items()},
        "taken": {kind: asdict(tally) for kind, tally in verdict.taken.items()},
        "rules": sorted(verdict.rules),
        "unmoved": sorted(verdict.unmoved - verdict.rules),
    }


def project_figures(verdict: Verdict, asked: int) -> Figures:
    """Of other people's projects: how many were fixed, and what is taken of the files that fixes changed."""
    taken = {kind: asdict(tally) for kind, tally in verdict.taken.items()}
    return {"projects": {"asked": asked, "taken": taken}}


def kept() -> dict[str, Figures]:
    found: dict[str, Figures] = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    return {
        framework.name: found[framework.name] for framework in FRAMEWORKS if framework.name in found
    }


def keep(renewed: Mapping[str, Figures]) -> None:
    """Put the figures of some frameworks in place of those kept, and write the page anew."""
    found = kept()
    for name, figures in renewed.items():
        # Those of projects and those of the corpus are taken by two commands.
        found[name] = {**found.get(name, {}), **figures}
    KEPT.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")


def written(text: str) -> str:
    """The page with the tables of the figures that are kept."""
    head, _, rest = text.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    return head + _BEGIN + "\n" + tables(kept()) + "\n" + _END + tail


def tables(found: Mapping[str, Figures]) -> str:
    """Who was asked what, what they said, and which rules' fixes they have read."""
    taken = {name: figure["taken"] for name, figure in found.items()}
    parts = (
        _judges(found),
        _counts(found),
        _taken(taken),
        _of_projects(found),
        _told_apart(found),
        _rules(found),
    )
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def of_projects(found: Mapping[str, Figures]) -> str:
    """What they take of other people's files that fixes have changed."""
    return "\n".join(_of_projects(found)) + "\n"


def _judges(found: Mapping[str, Figures]) -> list[str]:
    rows = ["| judge | releases | files | what is asked |", "|---|---|---|---|"]
    for framework in FRAMEWORKS:
        if framework.name in found:
            versions = found[framework.name]["versions"]
            releases = ", ".join(f"{package} {version}" for package, version in versions.items())
            kinds = " ".join(f"`{suffix}`" for suffix in framework.suffixes)
            text = (_HERE / "loaders" / f"{framework.loader}.py").read_text("utf-8")
            asked = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
            rows.append(f"| {framework.name} | {releases} | {kinds} | {asked} |")
    return rows


def _counts(found: Mapping[str, Figures]) -> list[str]:
    rows = ["| judge | " + " | ".join(_COUNTS.values()) + " |", "|---|" + "--:|" * len(_COUNTS)]
    sums = dict.fromkeys(_COUNTS, 0)
    for name, figure in found.items():
        cells = ("–" if figure[count] is None else f"{figure[count]:,}" for count in _COUNTS)
        rows.append(f"| {name} | {' | '.join(cells)} |")
        sums = {count: sums[count] + (figure[count] or 0) for count in _COUNTS}
    rows.append("| all | " + " | ".join(f"**{number:,}**" for number in sums.values()) + " |")
    return rows


def _taken(found: Mapping[str, Mapping[str, Mapping[str, int]]]) -> list[str]:
    """What each takes of the files that safe fixes, and all of them, changed."""
    names = [field.name for field in fields(Tally)]
    titles = ("files", "made by a fix", "taken before", "taken after", "refused only after")
    rows = [
        "| judge | fixes | " + " | ".join(titles) + " |",
        "|---|---|" + "--:|" * len(titles),
    ]
    for kind, told in (("safe", "safe"), ("unsafe", "safe and unsafe")):
        sums = dict.fromkeys(names, 0)
        for judge, taken in found.items():
            tally = taken[kind]
            if tally["files"]:
                cells = " | ".join(f"{tally[name]:,}" for name in names)
                rows.append(f"| {judge} | {told} | {cells} |")
            sums = {name: sums[name] + tally[name] for name in names}
        whole = " | ".join(f"**{sums[name]:,}**" for name in names)
        rows.append(f"| **all** | **{told}** | {whole} |")
    return rows


def _of_projects(found: Mapping[str, Figures]) -> list[str]:
    theirs = {name: figure["projects"] for name, figure in found.items() if "projects" in figure}
    if not theirs:
        return []
    asked = max((each["asked"] for each in theirs.values()), default=0)
    title = f"The same of {asked} projects of other people (`--projects`):"
    return [title, "", *_taken({name: each["taken"] for name, each in theirs.items()})]


def _told_apart(found: Mapping[str, Figures]) -> list[str]:
    rows = ["| judge | told apart because |", "|---|---|"]
    for framework in FRAMEWORKS:
        if found.get(framework.name, {}).get("known", 0) != 0 and framework.known:
            rows.append(f"| {framework.name} | {'; '.join(framework.known.values())} |")
    return rows


def _rules(found: Mapping[str, Figures]) -> list[str]:
    every = fixable_rules()
    by_rule = {
        rule: [name for name, figure in found.items() if rule in figure["rules"]] for rule in every
    }
    read = sorted(rule for rule, names in by_rule.items() if names)
    taken = (
        f"Of {len(every)} rules with a fix, {len(read)} have changed files that a loader then took, "
        "and read otherwise than before. Where several fixes changed a file together, all of them count:"
    )
    rows = [
        taken,
        "",
        "| rule | its files, fixed, were taken by |",
        "|---|---|",
        *(f"| [{rule}](rules/{rule}.md) | {', '.join(by_rule[rule])} |" for rule in read),
        "",
        "The others change what no loader looks at:",
        "",
        "| rule | why no loader sees it |",
        "|---|---|",
    ]
    for rule in sorted(every - set(read)):
        rows.append(f"| [{rule}](rules/{rule}.md) | {NO_JUDGE.get(rule, 'not asked yet')} |")
    return rows


if __name__ == "__main__":
    keep({})
