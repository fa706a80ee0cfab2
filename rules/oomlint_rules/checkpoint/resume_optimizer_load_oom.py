"""Going on from a checkpoint reads the optimizer states into RAM, beside those that are there.

## What it finds

A run that resumes (`resume_from_checkpoint`, Axolotl's `auto_resume_from_checkpoints`) under ZeRO or
FSDP with full state dicts, where what its ranks read at once, on top of what training keeps on the
host, does not fit the node's RAM or comes close. If the RAM is not known and the states are large,
the need is named. And one whose GPUs hold the training, but not what reading the checkpoint takes there beside
it.

## Why it runs out of memory

By then the engine is complete: with offloading, room for the optimizer states is taken in RAM
already. Each rank reads its partition of the checkpoint beside them, 12 bytes a parameter over all
ranks (fp32 weights and Adam's two moments), and copies it over. For 70B parameters on one node these are
another 840 GB for a minute. Under FSDP with `FULL_STATE_DICT` the first rank reads the states of
all. A job that trained for days is then killed each time that it is restarted.

On the GPU nothing is added today: the states go where they will stay (transformers 5.23 reads them
straight onto each rank's own GPU). Until DeepSpeed 0.13.2 a step before training made states of zeros,
and torch builds all those that it loads before it lets the old ones go: for a moment Adam's two
moments are there twice. So they are under plain data parallelism up to torch 2.0, which copies what was
read. Before transformers 4.28 every rank read them onto the first GPU; a script
that calls `torch.load` without `map_location` still does (rank0-gpu-skew).

## How to fix it

A newer DeepSpeed or torch leaves the GPU as it is. Under stage 3 `pipeline_loading_checkpoint: true` makes the ranks of a node read one after the
other, which takes longer and one partition at a time; the fix sets it where that suffices. More
nodes make every partition smaller, but the number of ranks must be that of the run that saved,
unless the checkpoint is converted to a universal one (`ds_to_universal.py`). Under FSDP save
shards: `SHARDED_STATE_DICT` is read in place.

## When not to

Where the weights alone are to be taken over, name the checkpoint as the model instead of resuming.

## Sources

* DeepSpeed edaa7221 `runtime/engine.py:4613-4717` (`_load_zero_checkpoint`), `runtime/zero/stage3.py:3368`
* DeepSpeed 0.13.1 and 0.13.2 `runtime/zero/stage_1_and_2.py`, `stage3.py` (`initialize_optimizer_states`);
  torch 2.0.1 and 2.1.0 `optim/optimizer.py` (`load_state_dict`)
* transformers 5.23 `trainer.py:3886-3985`; https://github.com/huggingface/transformers/pull/22159
* Accelerate 16cb6eb8 `utils/fsdp_utils.py:350` (`load_fsdp_optimizer`)
* https://github.com/deepspeedai/DeepSpeed/issues/1111,
  https://github.com/axolotl-ai-cloud/axolotl/issues/1268
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oomlint.judgement import judge_gpu, settled, severity_of_need
from oomlint.linting.rule import Applicability, Finding, Proposal, Where
from oomlint.memory import beside_on_gpu
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, deepspeed, example
from oomlint_rules.checkpoint._reload import Reload, ReloadRule, reload_of

_SERIAL = f.parallel.zero.serial_load
_NOTEWORTHY = 128 * 2**30

_ZERO = '"stage": 3, "offload_optimizer": {"device": "cpu"}'
_JSON = deepspeed(_ZERO)
_FIXED = _JSON.replace('"stage": 3', '"stage": 3, "pipeline_loading_checkpoint": true')
_LF = f"{LLAMA_FACTORY}deepspeed: ds.json\n"


class ResumeOptimizerLoadOom(ReloadRule, code="OOM512", fixes=Applicability.SAFE, cost=1):
    summary = "resuming reads the optimizer states beside those that are there"
    only_where = (Where(plan={f.load.resume: (True,)}),)

    bad = (
        example(
            {
                "train.yaml": f"{AXOLOTL}deepspeed: ds.json\nresume_from_checkpoint: out/checkpoint-9\n",
                "ds.json": _JSON,
            },
            {"ds.json": _FIXED},
            on="8xA100-80GB, 256GiB",
        ),
        example(
            {"train.yaml": f"{_LF}resume_from_checkpoint: true\n", "ds.json": _JSON},
            {"ds.json": _FIXED},
            on="8xA100-80GB, 256GiB",
        ),
        example(
            {
                "train.yaml": f"{_LF}cutoff_len: 1024\nresume_from_checkpoint: true\n",
                "ds.json": deepspeed('"stage": 2'),
                "requirements.txt": "deepspeed==0.12.6\n",
            },
            on="3xA100-80GB",
            why="this DeepSpeed has Adam's moments on the GPU twice meanwhile",
        ),
    )
    good = (
        example(
            {"train.yaml": f"{_LF}resume_from_checkpoint: true\n", "ds.json": _JSON},
            on="8xA100-80GB, 1TiB",
        ),
        example(
            {"train.yaml": f"{_LF}resume_from_checkpoint: null\n", "ds.json": _JSON},
            on="8xA100-80GB, 256GiB",
        ),
        example(
            {"train.yaml": f"{_LF}resume_from_checkpoint: true\n", "ds.json": _FIXED},
            on="8xA100-80GB, 256GiB",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        yield from self._on_the_gpu(run)
        found = reload_of(run)
        if found is None:
            return
        yield from self.read_back(
            run,
            found,
            f"resuming reads {gib(found.read)} of optimizer states into a node's RAM at once",
            at=(f.load.resume, _SERIAL),
            reads=found.words,
            is_large=found.read >= _NOTEWORTHY,
            proposals=_proposals(run, found),
        )

    def _on_the_gpu(self, run: Run) -> Iterator[Finding]:
        beside, reading = beside_on_gpu(settled(run).plan), judge_gpu(run, phase="load")
        if not beside or reading is None or not reading.is_problem:
            return
        training = judge_gpu(run.assuming({f.load.resume: False}))
        if training is None or not training.holds or reading.severity is None:
            return
        yield self.finding(
            run,
            reading.severity,
            f"resuming builds {gib(beside)} of optimizer states beside those on each GPU",
            at=f.load.resume,
            details=(
                reading.sentence,
                "from DeepSpeed 0.13.2 and torch 2.1 on there is one set of them",
            ),
            confidence=reading.confidence,
            resource="gpu",
            predicted=reading.predicted,
            limit=reading.limit,
        )


def _proposals(run: Run, found: Reload) -> Iterator[Proposal]:
    if found.training.limit is None or found.serial is None or run.plan.parallel.zero.serial_load:
        return
    if severity_of_need(run, "host", found.training.predicted + found.serial) is None:
        yield Proposal.set("let the ranks of a node read one after the other", {_SERIAL: True})
