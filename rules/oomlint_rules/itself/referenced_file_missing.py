"""A file that the config names could not be found or used.

## What it finds

A config or a launch line that refers to a file (a DeepSpeed JSON, an Accelerate or FSDP
YAML, the YAML that a command trains from) which is not where oomlint looks: as an absolute
path, then from the project root, the working directory, the root of the git checkout, and
every folder above the config. The presets that Axolotl and LLaMA-Factory ship
(`zero2.json`, `ds_z3_config.json` ...) are known by name and need not be there. A name that the
program puts behind a folder of its own (`os.path.join(RESOURCES, "config", args.deepspeed_config)`) is
looked for behind that folder, and a remark where none has it. It also
finds a referenced file that is there and cannot be parsed, or that is named as a DeepSpeed
config and has no key of one, or none that accelerate asks for: as it lies there no training
starts with it. And the program that a command starts, where the project has its folder without it, or
has it in a package of another name, or where the command names files of the project and the folder that these tell has
other programs (of accelerate's config: whatever other folder has the program).

It is an error where the command is sure to end there: no folder in which it finds its program has the file that its
launcher or transformers' Trainer opens first (accelerate's config, the JSON of DeepSpeed or FSDP), or its script
says in which folder it runs (`cd "$(dirname "$0")"`), and that has it not. Files that a script, a program, a guide or another
checkout may bring, or that git leaves out, are none of these.

## Why it runs out of memory

ZeRO stage, offloading, sharding and micro batch usually stand in that file. Without it the
prediction is about another run: 8B parameters under ZeRO-3 on eight GPUs hold 16 GB of
model states each, without it 128 GB. If the file is missing on the training machine too,
the framework stops at start.

## How to fix it

Correct the path, or lint from the directory in which the training starts
(`--project-root` names it). Where a job creates the file, tell oomlint what it holds with
`--set`, for instance `--set parallel.zero.stage=3`.

## When not to

Where the file only exists on the training machine, silence the line:
`# oomlint: ignore[referenced-file-missing]`.

## Sources

* transformers `integrations/deepspeed.py` and Accelerate's `HfDeepSpeedConfig` open the path
  relative to the working directory of the process and raise when it does not exist.
* accelerate 0.17.1 to 1.11 `commands/config/config_args.py` `load_config_from_file` (*The passed configuration file … does
  not exist*; 0.16 takes its default config instead).
* accelerate 0.12.0 to 1.8.0 `utils/dataclasses.py` (`DeepSpeedPlugin`) raises where the DeepSpeed
  config has no `zero_optimization`; transformers' Trainer goes through it from 4.30 on. DeepSpeed
  itself (`runtime/config.py`) raises where it has no batch size.
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.linting.rule import Finding, Rule, Severity, When, Where, short
from oomlint.runs.parts import MissingFile
from oomlint.runs.run import Run
from oomlint_rules._examples import axolotl, command, example

_RUN = axolotl("meta-llama/Llama-3.1-8B", "micro_batch_size: 1\ngradient_checkpointing: true\n")

_LONGEST_SHOWN = 50


class ReferencedFileMissing(Rule, code="OOM902", may_end=True):
    summary = "a file that the config names cannot be found or used"
    only_where = (Where(has="missing"),)

    bad = (
        example({"train.yaml": f"{_RUN}deepspeed: configs/ours.json\n"}),
        example(
            {"train.sh": "llamafactory-cli train configs/sft.yaml\n"},
            why="the launch line names a file that is not there",
        ),
        example(
            {
                "train.sh": (
                    "accelerate launch --config_file ours.yaml trl/scripts/sft.py"
                    " --model_name_or_path meta-llama/Llama-3.1-8B --dataset_name tatsu-lab/alpaca"
                    " --output_dir out\n"
                )
            }
        ),
        example(
            {
                "train.yaml": f"{_RUN}deepspeed: configs/ours.json\n",
                "configs/ours.json": '{"id": "63860", "input": "a story", "output": "(C)"}\n',
            },
            why="a sample of the data stands in the file",
        ),
        example(
            {
                "train.yaml": f"{_RUN}deepspeed: configs/ours.json\n",
                "configs/ours.json": (
                    '{"bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": "auto"}\n'
                ),
            },
            why="accelerate asks for the zero_optimization object",
        ),
        example(
            {
                "train.sh": command("").replace("run_clm", "old/train/run_clm"),
                "new/train/run_clm.py": "from transformers import Trainer\n",
            },
            why="the package of the program has another name now",
        ),
    )
    good = (
        example(
            {
                "train.yaml": f"{_RUN}deepspeed: configs/ours.json\n",
                "configs/ours.json": (
                    '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}\n'
                ),
            }
        ),
        example(
            {"train.yaml": f"{_RUN}deepspeed: deepspeed_configs/zero3_bf16.json\n"},
            why="Axolotl ships a file of that name",
        ),
        example({"train.yaml": f'{_RUN}deepspeed: "..."\n'}, why="the name is to be filled in"),
        example(
            {"train.yaml": f"{_RUN}deepspeed: __DEEPSPEED_CONFIG__\n"},
            why="a script fills the name in",
        ),
        example(
            {
                "train.sh": command("", "torchrun --nproc_per_node 8").replace(
                    "run_clm", "clm/run_clm"
                )
            },
            why="the program is of a checkout that is elsewhere",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        for missing in run.missing:
            if not missing.is_blank:
                yield self._lost(run, missing)

    def _lost(self, run: Run, missing: MissingFile) -> Finding:
        unusable = not missing.problem.endswith("not found")
        severity = Severity.ERROR if unusable or missing.ends else Severity.WARNING
        if missing.is_elsewhere:
            severity = Severity.INFO
        name = short(missing.reference, _LONGEST_SHOWN)
        is_said = name == missing.reference and not unusable
        where = () if is_said else (f"{missing.reference} {missing.problem}",)
        if missing.is_program:
            why = "the project has its folder, or one of that name in another package"
            return self._ending_the_command(run, missing, name, "program", why)
        if missing.ends:
            why = "no folder in which the command finds its program has the file"
            instead = _where_instead(missing)
            return self._ending_the_command(run, missing, name, "file", why, *instead)
        consequence = (
            # A job may still make another of it, where its template or its source is what lies here.
            "with the file as it lies here the training would stop at start"
            if unusable
            else "what it says about sharding, offloading or batches is not part of this prediction"
        )
        return self.finding(
            run,
            severity,
            f"the file {name} {'cannot be used' if unusable else 'was not found'}",
            at=missing.location,
            details=(*where, *_made_of(missing), consequence, *_where_instead(missing)),
        )

    def _ending_the_command(
        self, run: Run, missing: MissingFile, name: str, what: str, why: str, *more: str
    ) -> Finding:
        """``why`` nothing else is taken in the place of what the command names."""
        is_said = name == missing.reference
        return self.error(
            run,
            f"the {what} {name} was not found",
            at=missing.location,
            details=(
                *(() if is_said else (f"{missing.reference} was not found",)),
                why,
                "the command ends before anything is loaded",
                *more,
            ),
            ends=When.SETTINGS,
        )


def _where_instead(missing: MissingFile) -> tuple[str, ...]:
    """The file of that name that is elsewhere, where nothing is said of one that was found and cannot be used."""
    if not missing.namesake or not missing.problem.endswith("not found"):
        return ()
    return (f"the project has {missing.namesake}: the path counts from where the command runs",)


def _made_of(missing: MissingFile) -> tuple[str, ...]:
    """The template of which a file that was not found is made before it is used."""
    return (f"it is made of {missing.template}, which is here",) if missing.template else ()
