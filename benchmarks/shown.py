"""What oomlint makes of the examples that frameworks ship: recognised, predicted, keys known.

FOLDER holds checkouts by the names of :data:`SHIPPED`. An example counts as recognised where its dialect claims it, alone or
as a part of a run, and as predicted where a run that it belongs to has a peak on eight GPUs of 80 GB. ``--markdown`` writes
the table of ``docs/reads.md`` anew, row by row: what is not at hand keeps its row.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
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
_HEAD = "| framework | commit | examples | recognised | predicted | keys known |\n|---|---|--:|--:|--:|--:|\n"
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
    for name in _examples(shipped, home):
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


def _examples(shipped: Shipped, home: Path) -> Iterator[str]:
    files = dict.fromkeys(path for glob in shipped.globs for path in sorted(home.glob(glob)))
    for path in files:
        text = path.read_text("utf-8", errors="replace")
        if re.search(shipped.has, text, re.MULTILINE):
            yield path.relative_to(home).as_posix()


def _commit(home: Path) -> str:
    asked = ["git", "-C", str(home), "rev-parse", "--short=8", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "?"


def _row(shipped: Shipped, home: Path) -> str:
    f = figures(shipped, home)
    share = [
        f"{n} ({n / f.examples:.0%})" if f.examples else "-" for n in (f.recognised, f.predicted)
    ]
    keys = "-" if f.keys is None else f"{f.keys:.1%}"
    return f"| {shipped.name} | {_commit(home)} | {f.examples} | {share[0]} | {share[1]} | {keys} |"


def _written(rows: Mapping[str, str]) -> None:
    """Put rows into the page; others that it has stay."""
    text = _PAGE.read_text("utf-8")
    before, table = text.split(_START)
    table, after = table.split(_END)
    kept = {
        line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| ")
    }
    merged = {name: row for name, row in {**kept, **rows}.items() if name != "framework"}
    body = "".join(f"{merged[s.name]}\n" for s in SHIPPED if s.name in merged)
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
