"""Of how many runs of other people's repositories something is predicted, and why of the rest nothing is.

FOLDER holds checkouts, a folder each. Of a run whose verdict is unknown the reason is that which reports
name: a model that nobody knows, a value that was not read. Reasons are counted with what differs from run
to run left out, an example each. Parts that no run takes in (a lone DeepSpeed JSON) are counted beside
them, and so are files that look like training and belong to no run::

    python -m benchmarks.coverage FOLDER [--list]
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from oomlint.documents import SUFFIXES
from oomlint.files.disk import walk
from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_hardware
from oomlint.judgement import judgement_of
from oomlint.judgement.evidence import left_open
from oomlint.judgement.forecast import Forecast
from oomlint.judgement.unpredicted import why_unpredicted
from oomlint.plugins import dialects_in_force
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker

HARDWARE = "8xA100-80GB"

# What starts training on a line of a script: a launcher, or a Python program that is called so.
_LAUNCH = re.compile(
    r"^[^#\n]*\b(?:(?:torchrun|deepspeed|accelerate\s+launch|torch\.distributed\.(?:launch|run))\b"
    r"[^\n]*|python3?\s+[^\n]*(?:train|finetun|sft|dpo|grpo|ppo)[\w/.-]*\.py\b[^\n]*)",
    re.MULTILINE,
)
_OTHER_WORK = re.compile(r"infer|generat|eval|predict|serve|merge|preprocess|convert|test_", re.I)
_SHELL = (".sh", ".slurm", ".sbatch", ".bash")

# What differs from run to run in a reason: paths, places, names of variables and models.
_VARIES = (
    (re.compile(r"\$\{?\w+\}?"), "$NAME"),
    (re.compile(r"of \S+\.py is not followed"), "of SCRIPT is not followed"),
    (re.compile(r"--[\w.-]+(?= of SCRIPT)"), "--OPTION"),
    (re.compile(r"(?<=the model ).*(?= is not known)"), "NAME"),
    (re.compile(r"(?<=too little of ).*(?= is known)"), "NAME"),
    (re.compile(r"no config\.json of .* here"), "no config.json of NAME here"),
    (re.compile(r": (?:state it with --set|state --set).*"), ""),
    (re.compile(r" in \S+:\d+"), " in FILE"),
)


class Silent(Struct, frozen=True):
    """A run without a verdict, and why it has none."""

    name: str
    framework: str
    why: str

    @property
    def kind(self) -> str:
        """The reason with what differs from run to run left out."""
        text = self.why
        for pattern, word in _VARIES:
            text = pattern.sub(word, text)
        return text


class Covered(Struct, frozen=True):
    """What is said of one repository."""

    runs: int
    judged: int
    parts: int
    silent: tuple[Silent, ...]
    unclaimed: tuple[str, ...]


def covered(folder: Path) -> Covered:
    """What is said of the runs of a checkout, and which of its files train and belong to none."""
    workspace = Workspace(folder)
    names = [workspace.name(file) for file in walk(folder, SUFFIXES)]
    options = LinkOptions(parse_hardware(HARDWARE))
    linked = Linker(workspace, dialects_in_force((), None).items, options).link(names)
    whole = [run for run in linked.runs if not run.is_fragment]
    forecasts = [judgement_of(run).written for run in whole]
    silent = tuple(
        Silent(each.name, each.framework or "", reason(each))
        for each in forecasts
        if each.verdict == "unknown"
    )
    claimed = {path for run in linked.runs for path in run.files}
    claimed |= {str(Path(path).resolve()) for path in claimed}
    unclaimed = tuple(
        str(file.relative_to(folder))
        for file in walk(folder, (".py", *_SHELL))
        if workspace.name(file) not in claimed and trains(file)
    )
    parts = len(linked.runs) - len(whole)
    return Covered(len(whole), len(whole) - len(silent), parts, silent, unclaimed)


def reason(forecast: Forecast) -> str:
    """Why the verdict is unknown, as reports say it."""
    said = why_unpredicted(forecast)
    if not said and forecast.evidence is not None:
        said = left_open(forecast.evidence)
    return said or "no reason is named"


def trains(file: Path) -> bool:
    """Whether a file looks like training: it calls backward() or a trainer's train(), or launches."""
    text = file.read_text("utf-8", "replace")
    if file.suffix in _SHELL:
        return any(not _OTHER_WORK.search(line[0]) for line in _LAUNCH.finditer(text))
    if ".backward(" not in text and ".train(" not in text:
        return False
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return any(isinstance(node, ast.Call) and _is_step(node) for node in ast.walk(tree))


def _is_step(call: ast.Call) -> bool:
    """``loss.backward()``, ``accelerator.backward(loss)``, ``trainer.train(...)``, ``Trainer(...).train()``;
    ``model.train()`` only sets a mode."""
    if not isinstance(call.func, ast.Attribute):
        return False
    owner, method = call.func.value, call.func.attr
    while isinstance(owner, ast.Attribute):
        owner = ast.Name(owner.attr)
    name = owner.func if isinstance(owner, ast.Call) else owner
    words = ast.unparse(name).lower()
    return method == "backward" or (method == "train" and "trainer" in words)


def repositories(folder: Path) -> Iterator[Path]:
    return (each for each in sorted(folder.iterdir()) if each.is_dir())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--list", action="store_true", help="name every run and file")
    given = parser.parse_args()
    kinds: Counter[str] = Counter()
    examples: dict[str, str] = {}
    runs = judged = parts = 0
    without: list[str] = []
    unclaimed: list[str] = []
    for home in repositories(given.folder.resolve()):
        try:
            found = covered(home)
        except Exception as error:  # one repository must not cost the others
            print(f"{home.name}: {type(error).__name__}: {error}")
            continue
        runs, judged, parts = runs + found.runs, judged + found.judged, parts + found.parts
        without += [home.name] * (not found.runs)
        unclaimed += [f"{home.name}/{path}" for path in found.unclaimed]
        for each in found.silent:
            kinds[each.kind] += 1
            examples.setdefault(each.kind, f"{each.name}: {each.why}")
            if given.list:
                print(f"{each.framework:14} {each.name}: {each.why}")
    if given.list:
        print(*(f"belongs to no run: {path}" for path in unclaimed), sep="\n")
    print(f"{judged} of {runs} runs have a verdict, {parts} parts belong to no run")
    print(f"{len(without)} repositories have no run: {', '.join(without) or '-'}")
    for kind, count in kinds.most_common():
        print(f"{count:5}  {kind}\n       {examples[kind]}")
    print(f"{len(unclaimed)} files look like training and belong to no run", *unclaimed[:1])


if __name__ == "__main__":
    main()
