"""Shows the frameworks' own loaders the configs that ``oomlint new`` writes.

OOMLINT_ORACLE_PYTHON=/tmp/oracles/bin/python python -m benchmarks.oracles.drafts [FRAMEWORK]...
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

from benchmarks.oracles.cases import PYTHON
from benchmarks.oracles.framework import Case, Framework
from benchmarks.oracles.frameworks import FRAMEWORKS
from benchmarks.oracles.verdict import MissingFramework, Verdict, judge_cases

from oomlint.drafts import FittingDraft, Wanted, fitting, named_model
from oomlint.errors import UsageError
from oomlint.hardware import parse_hardware
from oomlint.judgement import judgement_of
from oomlint.report.drafts import new_file

# What `new` calls a framework → what the judges do.
JUDGES = {
    "trl": "TRL",
    "axolotl": "Axolotl",
    "llama-factory": "LLaMA-Factory",
    "torchtune": "torchtune",
    "ms-swift": "ms-swift",
}
MODELS = ("meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-1.5B", "mistralai/Mistral-7B-v0.1")
METHODS = ("full", "lora", "qlora")
MACHINES = ("RTX-4090", "2xRTX-4090", "4xA100-40GB", "8xH100-80GB", "T4")


def drafts(
    framework: str,
    models: Iterable[str] = MODELS,
    methods: Iterable[str] = METHODS,
    machines: Iterable[str] = MACHINES,
) -> Iterator[tuple[str, FittingDraft | str]]:
    """What is written for each wish, or why nothing is."""
    for model, method, machine in product(models, methods, machines):
        name = f"{model} {method} {machine}"
        wanted = Wanted(
            model=named_model(model),
            framework=framework,
            method=method,  # type: ignore[arg-type]
            hardware=parse_hardware(machine),
        )
        try:
            found = fitting(wanted)
        except UsageError as error:
            yield name, str(error)
            continue
        yield name, "nothing fits" if found is None else found


def cases(written: Iterable[tuple[str, FittingDraft]], at: Path) -> Iterator[Case]:
    """Each config in a folder of its own."""
    for number, (name, found) in enumerate(written):
        root = at / str(number)
        root.mkdir(parents=True)
        main = found.draft.skeleton.file
        text = new_file(found, main)
        (root / main).write_text(text, "utf-8")
        if main.endswith(".sh"):
            main = _merged(text, root)
        yield Case(name, root, main, found.draft.run)


def _merged(line: str, root: Path) -> str:
    """The config that torchtune's command line makes of one that it ships and of what the line says."""
    from omegaconf import OmegaConf

    words = shlex.split(line, comments=True)
    at = words.index("--config") + 1
    assert PYTHON is not None
    (home,) = Path(PYTHON).parents[1].glob("lib/python3*/site-packages/recipes/configs")
    whole = OmegaConf.merge(
        OmegaConf.load(home / f"{words[at]}.yaml"), OmegaConf.from_dotlist(words[at + 1 :])
    )
    OmegaConf.save(whole, root / "merged.yaml")
    return "merged.yaml"


def judged(framework: str, written: Iterable[tuple[str, FittingDraft]], at: Path) -> Verdict:
    """What the framework's loader says of them.

    Raises:
        MissingFramework: there is none here.
    """
    if PYTHON is None:
        raise MissingFramework("OOMLINT_ORACLE_PYTHON names no interpreter with the frameworks")
    return judge_cases(_judge(framework), list(cases(written, at)), at)


def _judge(framework: str) -> Framework:
    return next(each for each in FRAMEWORKS if each.name == JUDGES[framework])


def main(names: list[str]) -> None:
    for framework in names or JUDGES:
        wishes = list(drafts(framework))
        written = [(name, found) for name, found in wishes if isinstance(found, FittingDraft)]
        fit = sum(judgement_of(found.draft.run).verdict == "fits" for _, found in written)
        print(f"{framework}: {len(wishes)} wishes, {len(written)} written, {fit} fit")
        for name, found in wishes:
            if isinstance(found, str):
                print(f"  {name}: {found}")
        with tempfile.TemporaryDirectory() as folder:
            try:
                verdict = judged(framework, written, Path(folder))
            except MissingFramework as missing:
                print(f"  not judged: {missing}")
                continue
        print(f"  taken: {verdict.read - len(verdict.refused_before)} of {verdict.read}")
        for line in (*verdict.refused_before, *verdict.unjudged, *verdict.disagreements[:8]):
            print(f"    {line[:400]}")


if __name__ == "__main__":
    main(sys.argv[1:])
