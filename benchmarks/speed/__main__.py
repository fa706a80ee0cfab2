"""How long oomlint takes beside linters that only look at syntax, as ratios of one run.

``python -m benchmarks.speed [CORPUS]`` installs the wheel of this checkout and the other tools into
an environment of its own (``--python`` names one that has them). Times are processor time, user
and system, of all processes together, the least of several turns taken in turn, so that a busy
machine does not count. The ratio by the clock stands beside it, where the several processes that
oomlint lints many files with count, and whatever else the machine does. The floor of a case is what
no command of ours avoids: to start the interpreter, to import what every module needs (pathlib, re,
typing), and to have the C parser read the bytes.

Python scripts are timed twice: short ones, which show what it costs to start, and 40 different ones
of the median length of training scripts in public repositories (see ``training_scripts``);
``--scripts FOLDER`` times real ones. Of the corpus it is told too what hardware costs, and what it takes
to check again after one file of it has changed; of estimates, what one of a plan takes that is new; of the language
server of this checkout, what an edit costs (see ``lsp_edits``).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import perf_counter, process_time

from benchmarks.speed import lsp_edits
from benchmarks.speed.training_scripts import training_script

ROOT = Path(__file__).parents[2]

RUN = """\
base_model: meta-llama/Llama-3.1-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 4096
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 3
optimizer: adamw_torch_fused
learning_rate: 0.00002
bf16: true
gradient_checkpointing: true
attn_implementation: flash_attention_2
deepspeed: zero3.json
output_dir: ./out
"""
ZERO3 = """\
{
  "zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true},
  "bf16": {"enabled": "auto"},
  "gradient_accumulation_steps": "auto",
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto"
}
"""
SCRIPT = """\
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype="bfloat16")
arguments = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    bf16=True,
    gradient_checkpointing=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=load_dataset("imdb")["train"])
trainer.train()
"""

# Of what yamllint takes for one file. To import click, msgspec and ruamel.yaml, which every lint of a
# YAML file needs, takes 0.76 of it already (garbage collection off, Python 3.11, click 8, msgspec
# 0.22, ruamel.yaml 0.19); the rest is for the arithmetic and the rules, which yamllint has not.
_ONE_RUN = 1.6
_ONE_RUN_JUDGED = 1.7

HARDWARE = ("--hardware", "8xA100-80GB")
# YAML files beside one DeepSpeed JSON that all of them name.
_SHARING = 200
# Files of the corpus of which each is changed once.
_CHANGED = 20
# Of what Fixit takes with one rule.
_SHORT_SCRIPTS, _USUAL_SCRIPTS = 1 / 8, 1 / 6
# Named on the command line: in its settings (fixit 2.1) what is disabled takes out what is enabled below it.
_FIXIT_RULE = "fixit.rules.use_fstring"
# Of each file in the language server.
_EDITS = 20
# Plans that are estimated for the mean of each kind.
_PLANS = 200

IMPORTS = "import pathlib, re, typing"
PARSE = """\
import pathlib, re, sys, typing
from ruamel.yaml.cyaml import CParser
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        parser = CParser(file.read())
    try:
        while parser.check_event():
            parser.get_event()
    except Exception:
        pass
"""
PARSE_PYTHON = """\
import ast, pathlib, re, sys, typing
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        try:
            ast.parse(file.read())
        except SyntaxError:
            pass
"""


@dataclass(frozen=True)
class Cost:
    """What one command took: processor seconds of all its processes, seconds by the clock, and
    the largest memory of one of them in MB."""

    seconds: float
    clock: float
    megabytes: float


def cost_of(command: Sequence[str | Path], folder: Path, cache: Path) -> Cost:
    start = perf_counter()
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=folder,
        env={**os.environ, "OOMLINT_CACHE_DIR": str(cache)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, _, usage = os.wait4(process.pid, 0)
    clock = perf_counter() - start
    return Cost(usage.ru_utime + usage.ru_stime, clock, usage.ru_maxrss / 1024)


def _least_of(costs: Sequence[Cost]) -> Cost:
    return Cost(
        min(c.seconds for c in costs),
        min(c.clock for c in costs),
        min(c.megabytes for c in costs),
    )


def _mean_of(costs: Sequence[Cost]) -> Cost:
    return Cost(
        fmean(c.seconds for c in costs),
        fmean(c.clock for c in costs),
        fmean(c.megabytes for c in costs),
    )


class Bench:
    def __init__(self, python: Path, work: Path, turns: int) -> None:
        self.python, self.bin, self.work, self.turns = python, python.parent, work, turns

    def least(self, folder: Path, **commands: Sequence[str | Path]) -> dict[str, Cost]:
        """The least that each command took, in turns."""
        taken: dict[str, list[Cost]] = {name: [] for name in commands}
        for _ in range(self.turns):
            for name, command in commands.items():
                taken[name].append(cost_of(command, folder, self.work / "cache"))
        return {name: _least_of(costs) for name, costs in taken.items()}

    def oomlint(self, *words: str | Path, cache: bool = False) -> list[str | Path]:
        return [self.bin / "oomlint", "check", *([] if cache else ["--no-cache"]), *words]

    def one_run(self) -> None:
        folder = self.work / "one"
        folder.mkdir()
        (folder / "run.yaml").write_text(RUN)
        (folder / "zero3.json").write_text(ZERO3)
        taken = self.least(
            folder,
            oomlint=self.oomlint("run.yaml"),
            judged=self.oomlint(*HARDWARE, "run.yaml"),
            fit=[self.bin / "oomlint", "fit", *HARDWARE, "run.yaml"],
            kept=self.oomlint("run.yaml", cache=True),
            yamllint=[self.bin / "yamllint", "run.yaml"],
            start=[self.python, "-c", "pass"],
            imports=[self.python, "-c", IMPORTS],
        )
        print("One Axolotl YAML with its DeepSpeed JSON")
        say("yamllint", taken["oomlint"], taken["yamllint"], _ONE_RUN)
        say("yamllint, on hardware", taken["judged"], taken["yamllint"], _ONE_RUN_JUDGED)
        print(f"  {taken['fit'].seconds:6.2f} s for all ways to fit (aim: 1)")
        say("its own cold time, nothing changed", taken["kept"], taken["oomlint"], 0.4)
        floor(taken)

    def shared(self) -> None:
        folder = self.work / "shared"
        folder.mkdir()
        for number in range(_SHARING):
            size = f"micro_batch_size: {1 + number % 8}"
            (folder / f"run{number}.yaml").write_text(RUN.replace("micro_batch_size: 2", size))
        (folder / "zero3.json").write_text(ZERO3)
        words = (*HARDWARE, ".")
        taken = self.least(
            folder,
            oomlint=self.oomlint(*words),
            yamllint=[self.bin / "yamllint", *sorted(folder.glob("*.yaml"))],
        )
        cost_of(self.oomlint(*words, cache=True), folder, self.work / "cache")
        again = self._again(folder, words, sorted(folder.glob("*.yaml"))[:: _SHARING // 5])
        cold = taken["oomlint"]
        print(f"{_SHARING} Axolotl YAMLs that share one DeepSpeed JSON: {cold.megabytes:.0f} MB")
        say("yamllint, on hardware", cold, taken["yamllint"])
        say("its own cold time, one changed", _mean_of(again), cold, 0.15)

    def _again(self, folder: Path, words: Sequence[str], files: Sequence[Path]) -> list[Cost]:
        """What a check takes after a comment was added to each of the files in turn."""
        again = []
        for file in files:
            with file.open("a", encoding="utf-8") as text:
                text.write("# changed\n")
            again.append(cost_of(self.oomlint(*words, cache=True), folder, self.work / "cache"))
        return again

    def changed(self, corpus: Path) -> None:
        """The corpus once more, each time after a comment was added to another of its files."""
        folder = self.work / "changed"
        shutil.copytree(corpus, folder)
        words = (*HARDWARE, ".")
        cold = self.least(folder, oomlint=self.oomlint(*words))["oomlint"]
        cost_of(self.oomlint(*words, cache=True), folder, self.work / "cache")
        files = sorted(folder.rglob("*.yaml"))
        again = self._again(folder, words, files[:: max(1, len(files) // _CHANGED)])
        print(f"The files of {corpus.name} once more, one of them changed: {len(again)} in turn")
        say("its own cold time, on hardware, on the mean", _mean_of(again), cold, 0.15)
        say("its own cold time, the dearest", max(again, key=lambda cost: cost.seconds), cold)

    def corpus(self, corpus: Path) -> None:
        files = sorted(f for kind in ("*.yaml", "*.yml") for f in corpus.rglob(kind))
        schema = self.work / "schema.json"
        schema.write_text("{}")
        taken = self.least(
            corpus,
            oomlint=self.oomlint(*files),
            judged=self.oomlint(*HARDWARE, *files),
            kept=self.oomlint(*files, cache=True),
            yamllint=[self.bin / "yamllint", *files],
            schema=[self.bin / "check-jsonschema", "--schemafile", schema, *files],
            start=[self.python, "-c", "pass"],
            imports=[self.python, "-c", IMPORTS],
            parse=[self.python, "-c", PARSE, *files],
        )
        print(f"The {len(files)} YAML files of {corpus.name}")
        say("yamllint", taken["oomlint"], taken["yamllint"], 0.25)
        say("yamllint, on hardware", taken["judged"], taken["yamllint"], 0.35)
        say("check-jsonschema", taken["oomlint"], taken["schema"], 1.0)
        say("its own cold time, nothing changed", taken["kept"], taken["oomlint"], 0.4)
        floor(taken)

    def scripts(self, title: str, texts: Sequence[str], aim: float) -> None:
        folder = Path(tempfile.mkdtemp(dir=self.work))
        for number, text in enumerate(texts):
            (folder / f"train_{number}.py").write_text(text, encoding="utf-8")
        (folder / "pyproject.toml").write_text("[tool.fixit]\nroot = true\n")
        taken = self.least(
            folder,
            oomlint=self.oomlint("."),
            fixit=[self.bin / "fixit", "--quiet", "--rules", _FIXIT_RULE, "lint", "."],
            start=[self.python, "-c", "pass"],
            imports=[self.python, "-c", IMPORTS],
            parse=[self.python, "-c", PARSE_PYTHON, *folder.glob("*.py")],
        )
        lines = sorted(text.count("\n") for text in texts)
        print(f"{len(texts)} {title} ({lines[len(lines) // 2]} lines in the middle)")
        say("Fixit with one rule", taken["oomlint"], taken["fixit"], aim)
        floor(taken)

    def many(self, corpus: Path, number: int) -> None:
        """Memory and time of the corpus, on hardware, copied until it has so many files, and of half as many."""
        sizes = [len([f for f in corpus.rglob("*") if f.is_file()])]
        costs = []
        for wanted in (number // 2, number):
            folder = self.work / f"many{wanted}"
            for copy in range(max(1, round(wanted / sizes[0]))):
                shutil.copytree(corpus, folder / f"copy{copy}")
            costs.append(cost_of(self.oomlint(*HARDWARE, "."), folder, self.work / "cache"))
            shutil.rmtree(folder)
        half, whole = costs
        print(f"{number} files: {whole.megabytes:.0f} MB at most (aim: 300)")
        say("half as many files", whole, half, 2.0)


def say(beside: str, taken: Cost, other: Cost, aim: float | None = None) -> None:
    print(
        f"  {taken.seconds / other.seconds:6.2f} x {beside} ({taken.seconds:.3f} s, "
        f"{other.seconds:.3f} s{'' if aim is None else f'; aim: {aim:g}'}), {taken.clock / other.clock:.2f} by the clock"
    )


def floor(taken: dict[str, Cost]) -> None:
    seconds = {name: cost.seconds for name, cost in taken.items()}
    parse = seconds.get("parse")
    least = seconds["imports"] if parse is None else parse
    print(
        f"  {seconds['oomlint'] / least:6.2f} x the floor of {least:.3f} s: {seconds['start']:.3f} s "
        f"to start the interpreter, {seconds['imports']:.3f} s with the imports"
        + ("" if parse is None else ", the rest to load and run the C parser")
    )


def estimates() -> None:
    """Processor time of this checkout's estimates of plans that nobody has estimated before."""
    from benchmarks.speed.bench_estimate import GIVEN

    from oomlint.config.plans import read_plan
    from oomlint.memory import estimate

    taken = {}
    for name, values in GIVEN.items():
        first = read_plan(values)
        lengths = (1024 + 8 * number for number in range(_PLANS))
        plans = [first.with_values({"seq.max_len": length}) for length in lengths]
        start = process_time()
        for plan in plans:
            estimate(plan)
        taken[name] = (process_time() - start) / _PLANS * 1e6
    print("An estimate of a plan that is new (aim: 150 microseconds)")
    print("  " + ", ".join(f"{name} {taken[name]:.0f}" for name in taken))


def environment(folder: Path) -> Path:
    """The interpreter of a new environment with the wheel and the tools to compare with."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    tools = ("yamllint", "check-jsonschema", "fixit")
    subprocess.run([python, "-m", "pip", "install", "-q", ROOT, *tools], check=True)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("corpus", nargs="?", type=Path, default=ROOT.parent / "shared" / "corpus")
    parser.add_argument("--python", type=Path, help="interpreter of a ready environment")
    parser.add_argument("--scripts", type=Path, metavar="FOLDER", help="also lint its Python files")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--many", type=int, default=0, metavar="N", help="also lint N files")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        bench = Bench(given.python or environment(work / "env"), work, given.turns)
        estimates()
        lsp_edits.report(_EDITS, HARDWARE[1])
        bench.one_run()
        bench.shared()
        bench.scripts("Python scripts, short", [SCRIPT] * 40, _SHORT_SCRIPTS)
        usual = [training_script(number) for number in range(40)]
        bench.scripts("Python scripts of the usual length", usual, _USUAL_SCRIPTS)
        if given.scripts:
            found = sorted(given.scripts.rglob("*.py"))
            texts = [file.read_text(encoding="utf-8", errors="replace") for file in found]
            bench.scripts(f"Python scripts of {given.scripts.name}", texts, _USUAL_SCRIPTS)
        if given.corpus.is_dir():
            bench.corpus(given.corpus.resolve())
            bench.changed(given.corpus.resolve())
            if given.many:
                bench.many(given.corpus.resolve(), given.many)


if __name__ == "__main__":
    main()
