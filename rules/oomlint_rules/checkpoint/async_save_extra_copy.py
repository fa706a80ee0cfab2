"""Saving in the background: a state dict that training goes on changing, or a second copy in RAM.

## What it finds

In Python scripts: a thread, process or executor that runs `torch.save` on a state dict which
nobody copied before; and asynchronous checkpoints (`torch.distributed.checkpoint.async_save`,
a framework's own switch) whose staging copy does not fit the node's RAM, or might not.

## Why it runs out of memory

`state_dict()` holds references to the live parameters. While a thread writes them, the next
optimizer step changes them: the file mixes two steps. Under ZeRO-3 and FSDP a rank holds a
shard only; a state dict made by one thread is empty there, or waits for ever for the other
ranks. Asynchronous checkpoints avoid that by copying the tensors to host RAM first: every
rank stages its shard of weights and optimizer states, 12 to 16 bytes a parameter over all
ranks in mixed precision, in addition to whatever is offloaded, and pinned memory is never
given back to the system.

A thread around `torch.save` is often recommended so that a save costs no time. It saves no
memory, and what it writes is not a state that the model ever had; the file loads without an
error, and the loss after resuming is what tells.

## How to fix it

Replace the thread by `dcp.async_save`, with RAM for the staging copy, or save
synchronously. A rarer synchronous save costs less than it seems: a 7B model on a local disk
takes seconds.

## When not to

Where the tensors were cloned to the CPU before, the rule is silent.

## Sources

* PyTorch documentation, `torch.distributed.checkpoint.async_save`: *makes a copy of the
  state_dict in CPU memory*; `torch.nn.Module.state_dict`: *references*
* torchtune bd2a0fc7 `training/checkpointing/_checkpoint_client.py` (staging in RAM)
* DeepSpeed `runtime/engine.py` (`_zero3_consolidated_16bit_state_dict` must be called on all
  ranks)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.documents.text import Location
from oomlint.judgement import confidence, judge_host, settled, severity_of_need
from oomlint.linting.rule import Finding, Rule, Severity, Where
from oomlint.memory import state_bytes
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import example, text
from oomlint_rules._scripts import facts_of
from oomlint_rules.host._ram import against

_HEAD = text(
    """
    import threading
    import torch
    import torch.distributed.checkpoint as dcp
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-13b-hf")
    args = TrainingArguments(output_dir="out", per_device_train_batch_size=1, bf16=True)
    trainer = Trainer(model=model, args=args)
    trainer.train()
    """
)
_DCP = 'state = {"model": model.state_dict()}\ndcp.async_save(state, checkpoint_id="out/step")\n'

# Below this, any machine that trains a language model has it.
_NOTEWORTHY = 64 * 2**30


class AsyncSaveExtraCopy(Rule, code="OOM506"):
    summary = "saving in the background needs a copy in RAM, or saves what training changes"
    only_where = (
        Where(facts=("async-save-thread", "dcp-async-save")),
        Where(plan={f.save.async_: ("thread", "pinned")}),
    )

    bad = (
        example(
            {
                "train.py": (
                    f"{_HEAD}threading.Thread(target=torch.save, "
                    'args=(model.state_dict(), "model.pt")).start()\n'
                )
            }
        ),
        example({"train.py": f"{_HEAD}{_DCP}"}, on="1xH200-141GB, 80GiB"),
        example(
            {"train.py": f"{_HEAD}{_DCP}"},
            on="1xH200-141GB",
            why="how much RAM the node has is not known",
        ),
    )
    good = (
        example(
            {
                "train.py": (
                    f"{_HEAD}copied = {{k: v.cpu() for k, v in model.state_dict().items()}}\n"
                    "threading.Thread(target=torch.save, args=(copied, 'model.pt')).start()\n"
                )
            }
        ),
        example({"train.py": f"{_HEAD}{_DCP}"}, on="1xH200-141GB, 1TiB"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        for fact in facts_of(run, "async-save-thread"):
            yield self.warning(
                run,
                "the state dict saved in the background refers to the live weights",
                at=fact,
                details=(
                    "training goes on changing them, so the file mixes two steps",
                    "under ZeRO-3 or FSDP it holds one rank's shard or none",
                    (
                        "torch.distributed.checkpoint.async_save copies to host RAM first; or save "
                        "synchronously"
                    ),
                ),
                resource="host",
            )
        staged = list(facts_of(run, "dcp-async-save"))[:1]
        if staged or run.plan.save.async_ in ("thread", "pinned"):
            yield from self._staging(run, staged[0].location if staged else None)

    def _staging(self, run: Run, place: Location | None) -> Iterable[Finding]:
        probe = settled(run)
        states, training = state_bytes(probe.plan), judge_host(run, phase="train")
        if states is None or training is None:
            return
        ranks = probe.plan.parallel.gpus_per_node or 1
        copied = ranks * int(states.parameters + states.master + states.optimizer)
        need, limit = training.predicted + copied, training.limit
        if limit is None:
            severity = Severity.INFO if copied >= _NOTEWORTHY else None
        else:
            severity = severity_of_need(run, "host", need)
        if severity is None or training.is_problem:
            return
        yield self.finding(
            run,
            severity,
            f"an asynchronous save first copies {gib(copied)} from the GPUs to the node's RAM",
            at=place or f.save.async_,
            details=(
                f"weights and optimizer states, beside {gib(training.predicted)} that training keeps there",
                *against(need, limit),
            ),
            confidence=confidence(run),
            resource="host",
            predicted=need,
            limit=limit,
        )
