"""One process drives several GPUs: torch's DataParallel, which gathers on the first.

## What it finds

A script over transformers' Trainer that plain `python` starts while several GPUs are visible
to it, in a shell script with `CUDA_VISIBLE_DEVICES=0,1` or on hardware that is known.

## Why it runs out of memory

The Trainer wraps the model in `nn.DataParallel`: the weights are copied to every GPU at each
step, and the logits of all of them come together on GPU 0, together with the loss, the
gradients and the optimizer. For a micro batch of 4 sequences of 2048 tokens on 4 GPUs and a
vocabulary of 128K that is 7.8 GiB of bf16 logits on one card. Nothing is sharded.

TRL from 1.15 on (its RewardTrainer from 1.16 on) refuses that once the model is loaded: where the project allows no
earlier release the program ends there, and the finding is an error.

Weights that nobody trains cost twice more: torch makes zeros for their gradients on every GPU, and adds them up on
GPU 0. LoRA on Llama-3-8B, 15 GiB in bf16, takes 45 GiB there, where one card alone, or one process a card, takes 17.

## How to fix it

Start one process a GPU: `torchrun --nproc_per_node 4 train.py`. The global batch stays what it
was, because DataParallel too takes the micro batch once for each GPU. Or show the script
one card only: `CUDA_VISIBLE_DEVICES=0`. Where no file says how many GPUs the script is for, which of
the two is meant is yours to say, and the fix is shown. So it is where the script merges its adapter after training:
every process would write the same files. A script that makes its data behind `if accelerator.is_main_process:` and uses
it in each process would stop in all but the first: what has to change there is the script. So it is where the command
(`--device cuda:1`) or the script puts the model on a card by its number: every process would load its own there.

## When not to

Where a device map spreads the layers of one model over the cards, with `device_map="cuda"` before transformers 5.0
(where no file pins a release, the finding is a remark), and with TRL's PPOTrainer, which has an Accelerator of its own and
trains on the first card; the rule is silent there.
So it is where Unsloth loads the model: the trainers that it makes of TRL's drive one card. Where a load that is not
followed may have a device map, the finding is a remark.
Where the script shows itself several cards none of which the named machine has (`CUDA_VISIBLE_DEVICES=4,5` on one of
four), nothing is driven at all, and that is a remark.
So it is of a notebook that does not say which cards it is for: that the machine has several is nothing it was written for.

## Sources

* transformers 5.23 `trainer.py:2666` (`nn.DataParallel` where `n_gpu > 1`) and
  `training_args.py` (`n_gpu`, `train_batch_size`)
* TRL 1.15.0 `trainer/sft_trainer.py`, `dpo_trainer.py`, `kto_trainer.py`, `grpo_trainer.py`, `rloo_trainer.py`, 1.16.0
  `trainer/reward_trainer.py` (*does not support `nn.DataParallel`*)
* unsloth 2026.2.1 `models/rl.py:390` (`args._n_gpu = 1`)
* torch documentation of `nn.DataParallel`: *recommended to use DistributedDataParallel*
* torch 2.13 `nn/parallel/_functions.py` (`Broadcast.backward`) and `autograd/function.py` (`mark_non_differentiable`);
  https://github.com/hiyouga/LLaMA-Factory/issues/4263
* LLaMA-Factory refuses it: *Please launch distributed training with llamafactory-cli or torchrun*
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from oomlint.dialects.releases import NUMBERED_DEVICE
from oomlint.dialects.trl.releases import (
    REFUSES_DATA_PARALLEL,
    REFUSES_DATA_PARALLEL_OF_REWARDS,
)
from oomlint.documents.base import Scalar
from oomlint.documents.text import Edit
from oomlint.judgement import card_not_there, sees_none
from oomlint.linting.rule import (
    Applicability,
    Finding,
    Proposal,
    ReadyEdits,
    Rule,
    Severity,
    When,
    Where,
)
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange
from oomlint.plan.model import BYTES_PER_ELEMENT
from oomlint.plan.training import HEADLESS
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import command, example, script, text

_PYTHON = re.compile(r"(python3?)(?= +(?:-m +)?[\w./]+)", re.ASCII)
_OF_CARDS = ("parallel.", "launch.", "env.", "scene.", "machine.")
"""What may say how many cards there are. A model's quantization, its device map and the releases that are required
only decide what is done with them."""
_CARD = re.compile(r"cuda:\d+")
_MERGES = "merges-adapter"
_ON_ONE_CARD = "model-on-one-card"
_FIRST_ALONE = "first-rank-alone"
_REFUSED: Mapping[str | None, LibraryChange] = {
    **dict.fromkeys(("sft", "dpo", "kto", "grpo", "rloo"), REFUSES_DATA_PARALLEL),
    "rm": REFUSES_DATA_PARALLEL_OF_REWARDS,
}
_FOUR = "CUDA_VISIBLE_DEVICES=0,1,2,3 "
_PINS = {"requirements.txt": "trl==1.15.0\n"}
_SUPERVISED = text(
    """
    from transformers import AutoModelForCausalLM
    from trl import SFTConfig, SFTTrainer

    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
    SFTTrainer(model, args=SFTConfig(output_dir="out", bf16=True), train_dataset=rows).train()
    """
)


class MultiGpuNoLauncher(Rule, code="OOM705", may_end=True, fixes=Applicability.SAFE):
    summary = "one process drives several GPUs and gathers on the first"
    only_where = (Where(plan={f.parallel.backend: ("dp",)}),)

    bad = (
        example(
            {"train.sh": command("", f"{_FOUR}python")},
            {"train.sh": command("", f"{_FOUR}torchrun --nproc_per_node 4")},
        ),
        example(
            {"train.py": script(), "train.sh": f"{_FOUR}python train.py\n"},
            {"train.sh": f"{_FOUR}torchrun --nproc_per_node 4 train.py\n"},
        ),
        example(
            {"train.py": _SUPERVISED, "train.sh": f"{_FOUR}python train.py\n", **_PINS},
            {"train.sh": f"{_FOUR}torchrun --nproc_per_node 4 train.py\n"},
            why="this TRL stops there with an error",
        ),
    )
    good = (
        example({"train.sh": command("", f"{_FOUR}torchrun --nproc_per_node 4")}),
        example({"train.sh": command("", "CUDA_VISIBLE_DEVICES=0 python")}),
        example(
            {
                "train.py": script(load='    device_map="auto",\n'),
                "train.sh": f"{_FOUR}python train.py\n",
            },
            why="the layers of one model are spread over the cards",
        ),
        example(
            {
                "train.py": script("max_steps=1"),
                "train.sh": f"{_FOUR}python train.py\n",
            },
            why="a single step tries whether the script runs",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        if run.is_started_by_guess:
            return  # another line, with a launcher, may start it
        if run.plan.total_steps == 1:
            return  # it tries whether the script runs at all: what one step takes longer nobody minds
        world = run.plan.parallel.world
        if world is None or (_has_no_line(run) and not _is_said(run)):
            return
        none = sees_none(run)
        if none:
            title = "the GPUs that the script shows itself are not on this machine"
            yield self._found(run, Severity.INFO, title, (none,))
            return
        obstacles = tuple(_obstacles(run))
        is_open = not obstacles and card_not_there(run) is None
        proposals = _torchrun(run, world) if is_open else ()
        refuses = _refusal(run)
        if refuses is not None and run.cells.surely_made(refuses):
            title = f"TRL refuses one process for {world} GPUs (torch's DataParallel)"
            details = ("it stops with an error once the model is loaded", *obstacles)
            yield self._found(run, Severity.ERROR, title, details, proposals)
            return
        details = (*_costs(run, world), *obstacles)
        if NUMBERED_DEVICE in run.open:
            before = f"before transformers {NUMBERED_DEVICE.release} {NUMBERED_DEVICE.before}"
            title = f"one process may drive {world} GPUs with torch's DataParallel"
            yield self._found(run, Severity.INFO, title, (*details, before))
            return
        if refuses is not None and run.cells.made(refuses) is None:
            details = (*details, f"TRL {refuses.release} and later stop there with an error")
        title = f"one process drives {world} GPUs with torch's DataParallel"
        yield self._found(run, Severity.WARNING, title, details, proposals)

    def _found(
        self,
        run: Run,
        severity: Severity,
        title: str,
        details: tuple[str, ...],
        proposals: Iterable[Proposal] = (),
    ) -> Finding:
        place = run.settings[f.parallel.backend].origin.block
        return self.finding(
            run,
            severity,
            title,
            at=place.location if place is not None else (),
            rests_on=(f.parallel.backend, f.parallel.world, f.load.device_map),
            details=details,
            confidence="medium",
            proposals=proposals,
            ends=When.LOADED,
        )


def _costs(run: Run, gpus: int) -> Iterator[str]:
    """What DataParallel costs, in words."""
    yield "the weights are copied at every step"
    has_logits = run.plan.objective.kind not in HEADLESS
    if has_logits and run.plan.loss.logits_materialised in ("full", None):
        gathered = _gathered_logits(run, gpus)
        on_first = f": {gib(gathered)} for those of the other GPUs" if gathered else ""
        yield f"all logits come together on the first GPU{on_first}"
    if run.plan.trainable.method not in ("full", None):
        yield "torch makes zeros for the gradients of frozen weights, and adds them up on GPU 0"


def _obstacles(run: Run) -> Iterator[str]:
    """What stands against one process a GPU, in words."""
    alone = next((fact for fact in run.facts if fact.kind == _FIRST_ALONE), None)
    if alone is not None:
        yield f"torchrun alone is no way out: only the first process makes {alone.detail['name']}"
    card = _named_card(run)
    if card:
        yield f"torchrun alone is no way out: {card} puts the model of every process on that card"
        yield "to train on that card alone, show the script no other (CUDA_VISIBLE_DEVICES): it is cuda:0 then"


def _refusal(run: Run) -> LibraryChange | None:
    """From which release on the trainer stops at DataParallel, where it is one that does."""
    return _REFUSED.get(run.plan.objective.kind) if run.dialect.name == "trl" else None


def _gathered_logits(run: Run, gpus: int) -> int | None:
    """Bytes of the logits that come to the first GPU, in the dtype that the run computes in."""
    plan = run.plan
    vocab = plan.model.dims.vocab if plan.model.dims is not None else None
    width = BYTES_PER_ELEMENT.get(plan.precision.logits or "none")
    if not (vocab and width and plan.batch.micro and plan.seq.max_len):
        return None
    return int((gpus - 1) * plan.batch.micro * plan.seq.max_len * vocab * width)


def _torchrun(run: Run, gpus: int) -> Iterable[Proposal]:
    """``python`` replaced where the command's own text shows it."""
    for claim in run.claims:
        if not claim.is_launched:
            continue
        source = claim.document.source
        for block in claim.blocks:
            match = _PYTHON.match(source.text, block.anchor.start)
            if block.table.section != "launcher" or match is None:
                continue
            start, end = match.span(1)
            edit = Edit(source.path, start, end, f"torchrun --nproc_per_node {gpus}")
            # What a script merges and writes behind its trainer every process would write at once.
            is_plain = _is_said(run) and _MERGES not in run.fact_kinds
            level = Applicability.SAFE if is_plain else Applicability.DISPLAY
            yield Proposal(f"start one process a GPU ({gpus})", (ReadyEdits((edit,)),), level)
            return


def _named_card(run: Run) -> str:
    """What puts the model on a card by its number, in words: an option of the command, or the script; empty where nothing
    does."""
    for claim in run.claims:
        for block in claim.blocks if claim.is_launched else ():
            for key, entry in block.mapping.entries.items():
                value = entry.value.value if isinstance(entry.value, Scalar) else None
                if isinstance(value, str) and _CARD.fullmatch(value):
                    return f"--{key} {value}"
    fact = next((fact for fact in run.facts if fact.kind == _ON_ONE_CARD), None)
    return "" if fact is None else f"{fact.location.path}, which names {fact.detail['card']},"


def _has_no_line(run: Run) -> bool:
    """Whether no command starts it, as of a notebook: its kernel sees the cards of whatever machine it is on."""
    return not any(claim.is_launched for claim in run.claims)


def _is_said(run: Run) -> bool:
    """Whether a file says how many GPUs the script sees. Where that only follows from the machine, the script may be
    for one card of it."""
    todo, seen = [*run.inputs(f.parallel.gpus_per_node)], set[str]()
    while todo:
        name = todo.pop()
        if name in seen or not name.startswith(_OF_CARDS):
            continue
        seen.add(name)
        if run.is_explicit(name):
            return True
        todo += run.inputs(name)
    return False
