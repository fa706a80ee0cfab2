"""What oomlint makes of the examples that frameworks ship: recognised, predicted, keys known.

FOLDER holds checkouts by the names of :data:`SHIPPED`. An example counts as recognised where its dialect claims it, alone or
as a part of a run, and as predicted where a run that it belongs to has a peak on eight GPUs of 80 GB. Files that fixes changed
and the framework's own loader takes as before are those of ``benchmarks.oracles``; findings that stood when strangers' files
were first read are those of the draws of ``benchmarks/strangers`` whose files ``frameworks.json`` there has, each with the
framework that they were taken for. ``--markdown`` writes the table of ``docs/reads.md`` anew, row by row: what is not at hand
keeps its row.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.keys import Survey
from msgspec import Struct

from oomlint.dialects import registry
from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_hardware
from oomlint.memory import estimate
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker

_PAGE = Path(__file__).parents[1] / "docs" / "reads.md"
_START, _END = "<!-- written by python -m benchmarks.shown --markdown -->\n", "<!-- end -->\n"
_HEAD = (
    "| framework | commit | examples | recognised | predicted | keys known | fixes taken | findings true |\n"
    "|---|---|--:|--:|--:|--:|--:|--:|\n"
)
_OWN_COLUMNS = 6
_FIRST_READ = ("12", "12a", "13", "14")
_HERE = Path(__file__).parent
_JUDGES = {
    "axolotl": "Axolotl",
    "align-anything": "align-anything",
    "colossalai": "Colossal-AI",
    "hf-trainer": "transformers and peft",
    "lingua": "Meta Lingua",
    "litgpt": "LitGPT",
    "llama-factory": "LLaMA-Factory",
    "llm-foundry": "LLM Foundry",
    "ms-swift": "ms-swift",
    "nanotron": "nanotron",
    "openrlhf": "OpenRLHF",
    "torchtitan": "torchtitan",
    "torchtune": "torchtune",
    "trl": "TRL",
    "verl": "verl",
}
"""Dialect → who judges its fixes in ``benchmarks/oracles/figures.json``."""
_MACHINE = "8xA100-80GB"


class Shipped(Struct, frozen=True):
    """A checkout, its dialect, which of its files are examples, and what a text of one has."""

    folder: str
    dialect: str
    globs: tuple[str, ...]
    has: str

    @property
    def name(self) -> str:
        """What the table calls it: scripts over the Trainer go by their project."""
        return self.folder if self.dialect == "hf-trainer" else self.dialect


SHIPPED = (
    Shipped("OLMo", "olmo", ("configs/**/*.yaml",), r"^model:"),
    Shipped("OLMo-core", "olmo-core", ("src/scripts/**/*.py", "src/examples/**/*.py"),
            r"TrainModuleConfig\(|configure_train_module\("),
    Shipped("nanotron", "nanotron", ("examples/**/*.yaml",), r"^parallelism:"),
    Shipped("prime-rl", "prime-rl", ("examples/**/*.toml", "configs/**/*.toml"),
            r"^\[(?:trainer|orchestrator|data)\b|^max_steps"),
    Shipped("AReaL", "areal", ("examples/**/*.yaml",), r"^actor:"),
    Shipped("ROLL", "roll", ("examples/**/*.yaml",), r"^(?:actor_train|sft_train|student):"),
    Shipped("RL", "nemo-rl", ("examples/configs/*.yaml", "examples/configs/recipes/**/*.yaml"),
            r"^(?:policy|defaults):"),
    Shipped("Automodel", "automodel", ("examples/llm_*/**/*.yaml", "examples/vlm_*/**/*.yaml"), r"^step_scheduler:"),
    Shipped("gpt-neox", "gpt-neox", ("configs/**/*.yml",), r"train_(?:micro_)?batch_size"),
    Shipped("xtuner", "xtuner", ("xtuner/configs/**/*.py",), r"type=(?:SupervisedFinetune|DPO|ORPO|RewardModel)\b"),
    Shipped("EasyR1", "easyr1", ("examples/**/*.yaml", "examples/**/*.sh"), r"^worker:|verl\.trainer\.main"),
    Shipped("lingua", "lingua", ("apps/*/configs/*.yaml", "apps/*/*/configs/*.yaml"), r"^distributed:"),
    Shipped("align-anything", "align-anything", ("scripts/**/*.sh",), r"align_anything\.trainers\."),
    Shipped("ColossalAI", "colossalai", ("applications/Colossal-LLaMA/*.sh", "applications/ColossalChat/examples/training_scripts/*.sh",
            "applications/ColossalChat/benchmarks/*.sh"), r"train(?:_\w+)?\.py"),
    Shipped("open-instruct", "hf-trainer", ("scripts/**/*.sh",),
            r"open_instruct/(?:finetune|dpo|dpo_tune_cache|reward_modeling|grpo_fast)\.py"),
    Shipped("axolotl", "axolotl", ("examples/**/*.yml", "examples/**/*.yaml"), r"^base_model:"),
    Shipped("LLaMA-Factory", "llama-factory", ("examples/train_*/**/*.yaml", "examples/extras/**/*.yaml"), r"^stage:"),
    Shipped("torchtune", "torchtune", ("recipes/configs/**/*.yaml",), r"^optimizer:"),
    Shipped("torchtitan", "torchtitan", ("torchtitan/models/*/config_registry.py",), r"^def \w+\(\)"),
    Shipped("litgpt", "litgpt", ("config_hub/finetune/**/*.yaml", "config_hub/pretrain/**/*.yaml"), r"^train:"),
    Shipped("llm-foundry", "llm-foundry", ("scripts/train/yamls/**/*.yaml",), r"^train_loader:|^  train_loader:"),
    Shipped("ms-swift", "ms-swift", ("examples/train/**/*.sh",), r"^\s*swift (?:sft|pt|rlhf)\b"),
    Shipped("verl", "verl", ("examples/**/*.sh",), r"verl\.trainer\.main_ppo\b"),
    Shipped("OpenRLHF", "openrlhf", ("examples/scripts/**/*.sh",), r"openrlhf\.cli\.train"),
    Shipped("alignment-handbook", "trl", ("recipes/**/*.yaml",), r"^model_name_or_path:"),
    Shipped("slime", "slime", ("scripts/run-*.sh", "examples/**/run*.sh"), r"train(?:_async)?\.py"),
)  # fmt: skip


class Figures(Struct):
    """Counts over the examples of one framework."""

    examples: int = 0
    recognised: int = 0
    predicted: int = 0
    keys: float | None = None


def figures(shipped: Shipped, home: Path) -> Figures:
    """What becomes of the examples of a checkout; those that are not taken or not predicted are printed."""
    found, workspace = Figures(), Workspace(home)
    linker = Linker(workspace, registry(), LinkOptions(hardware=parse_hardware(_MACHINE)))
    for name in examples(shipped, home):
        found.examples += 1
        claims = [c for c in linker.claims(name) if c.dialect.name == shipped.dialect]
        runs = [r for r in linker.link([name]).runs if r.framework == shipped.dialect]
        is_predicted = any((g := estimate(r.plan).gpu) and g.peak_bytes for r in runs)
        found.recognised += bool(claims or runs)
        found.predicted += is_predicted
        if not is_predicted:
            print(f"{shipped.folder}/{name}: {'no peak' if claims or runs else 'not recognised'}")
    survey = Survey()
    survey.add(home)
    tally = survey.tallies.get(shipped.dialect)
    found.keys = tally.share if tally is not None else None
    return found


def examples(shipped: Shipped, home: Path) -> Iterator[str]:
    """The examples of a checkout, by their paths in it."""
    files = dict.fromkeys(path for glob in shipped.globs for path in sorted(home.glob(glob)))
    for path in files:
        text = path.read_text("utf-8", errors="replace")
        if re.search(shipped.has, text, re.MULTILINE):
            yield path.relative_to(home).as_posix()


def commit_of(home: Path) -> str:
    """The first eight digits of the commit that a checkout is at."""
    asked = ["git", "-C", str(home), "rev-parse", "--short=8", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "?"


def _row(shipped: Shipped, home: Path) -> str:
    f = figures(shipped, home)
    share = [
        f"{n} ({n / f.examples:.0%})" if f.examples else "-" for n in (f.recognised, f.predicted)
    ]
    keys = "-" if f.keys is None else f"{f.keys:.1%}"
    return (
        f"| {shipped.name} | {commit_of(home)} | {f.examples} | {share[0]} | {share[1]} | {keys} |"
    )


def _taken(dialect: str) -> str:
    """Files that fixes changed, and of them those that the framework's loader takes."""
    figures: Mapping[str, Mapping[str, int]] = json.loads(
        (_HERE / "oracles" / "figures.json").read_text("utf-8")
    )
    judged = figures.get(_JUDGES.get(dialect, ""))
    if judged is None:
        return "-"
    changed = judged["fixed"] + judged["examples"]
    return f"{changed - judged['refused_after']} of {changed}"


def _true(dialect: str) -> str:
    """Errors and warnings on strangers' files of this framework, and of them those that were read as true."""
    took: Mapping[str, str] = json.loads(
        (_HERE / "strangers" / "frameworks.json").read_text("utf-8")
    )
    verdicts: Counter[bool] = Counter()
    for draw in _FIRST_READ:
        for line in (
            (_HERE / "strangers" / f"findings-{draw}.jsonl").read_text("utf-8").splitlines()
        ):
            row = json.loads(line)
            if took.get(f"{row['repo']} {row['path']}") == dialect and row["severity"] != "info":
                verdicts[row["verdict"] == "true"] += 1
    return f"{verdicts[True]} of {verdicts.total()}" if verdicts else "-"


def _counted(row: str) -> str:
    """A row as far as this module counts."""
    return "|".join(row.split("|")[: _OWN_COLUMNS + 1]) + "|"


def _written(rows: Mapping[str, str]) -> None:
    """Put rows into the page; others that it has stay, with what others have counted of them as it is now."""
    text = _PAGE.read_text("utf-8")
    before, table = text.split(_START)
    table, after = table.split(_END)
    kept = {
        line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| ")
    }
    merged = {name: row for name, row in {**kept, **rows}.items() if name != "framework"}
    body = "".join(
        f"{_counted(merged[s.name])} {_taken(s.dialect)} | {_true(s.dialect)} |\n"
        for s in SHIPPED
        if s.name in merged
    )
    _PAGE.write_text(f"{before}{_START}{_HEAD}{body}{_END}{after}", "utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shown", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME", help="all by default")
    parser.add_argument("--markdown", action="store_true", help="write docs/reads.md anew")
    given = parser.parse_args(arguments)
    for shipped in SHIPPED:
        home = given.folder / shipped.folder
        if home.is_dir() and (not given.names or shipped.name in given.names):
            row = _row(shipped, home)
            print(row, flush=True)
            if given.markdown:
                _written({shipped.name: row})
    return 0


if __name__ == "__main__":
    sys.exit(main())
