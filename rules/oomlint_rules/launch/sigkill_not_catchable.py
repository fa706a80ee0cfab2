"""A handler for a death that no handler sees, or a retry that keeps what filled the card.

## What it finds

In Python scripts: an `except` clause around training that tests for `-9` (`e.errno == -9`,
a return code), and a handler for `torch.cuda.OutOfMemoryError` that trains again inside the
`except` block.

## Why it runs out of memory

When the host has no RAM left the kernel sends SIGKILL. The process ends at once: no `except`,
no `finally` and no `atexit` runs, and `errno` is never negative. What the parent sees, and
prints, is exit code -9. Whoever counts on the handler has no checkpoint when it matters.
An out-of-memory error of the GPU can be caught; but as long as the `except` block runs, the
exception's traceback holds every frame, and with them the tensors that filled the card, so
that the second attempt begins with less room than the first.

`except OSError as e: if e.errno == -9` is passed on as a way to survive this. -9 is no errno but
what the parent reads from the dead child, so the branch is never entered, and it hides from the
reader that the run has no protection at all.

## How to fix it

Supervise from outside: `torchrun --max-restarts 3` or the scheduler's requeueing, with
`resume_from_checkpoint`. For the GPU: set a flag in the handler, leave the block, call
`torch.cuda.empty_cache()`, then try with a smaller batch. And cure the cause: see
`offload-host-ram-exceeded`, `fsdp-every-rank-loads` and `zero3-gather16-rank0-ram`.

## When not to

A parent that watches a child process may well test `returncode == -9`; that is not reported.

## Sources

* Linux signal(7): SIGKILL can be neither caught, blocked nor ignored; Python documentation,
  `subprocess.Popen.returncode`: *a negative value -N indicates that the child was terminated
  by signal N*
* PyTorch FAQ, *My out of memory exception handler can't allocate memory*
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.documents.base import Fact
from oomlint.linting.rule import Finding, Rule, Where, short
from oomlint.runs.run import Run
from oomlint_rules._examples import example, text

_HEAD = text(
    """
    import torch
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
    args = TrainingArguments(output_dir="out", per_device_train_batch_size=1, bf16=True)
    trainer = Trainer(model=model, args=args)
    """
)


class SigkillNotCatchable(Rule, code="OOM701"):
    summary = "a handler for a kill that it never sees, or a retry that keeps the memory"
    only_where = (
        Where(
            facts=(
                "catches-sigkill",
                "retries-inside-except",
            )
        ),
    )

    bad = (
        example(
            {
                "train.py": (
                    f"{_HEAD}try:\n"
                    "    trainer.train()\n"
                    "except OSError as e:\n"
                    "    if e.errno == -9:\n"
                    '        trainer.save_model("rescue")\n'
                )
            }
        ),
        example(
            {
                "train.py": (
                    f"{_HEAD}try:\n"
                    "    trainer.train()\n"
                    "except torch.cuda.OutOfMemoryError:\n"
                    "    torch.cuda.empty_cache()\n"
                    "    trainer.train()\n"
                )
            }
        ),
        example(
            {
                "loop.py": (
                    "import torch\n"
                    "\n"
                    "def main(trainer):\n"
                    "    try:\n"
                    "        trainer.train()\n"
                    "    except OSError as error:\n"
                    "        if error.errno == -9:\n"
                    "            torch.save(trainer.model.state_dict(), 'rescue.pt')\n"
                )
            },
            why="a script of which nothing else can be read",
        ),
    )
    good = (
        example(
            {
                "train.py": (
                    f"{_HEAD}too_large = False\n"
                    "try:\n"
                    "    trainer.train()\n"
                    "except torch.cuda.OutOfMemoryError:\n"
                    "    too_large = True\n"
                    "if too_large:\n"
                    "    torch.cuda.empty_cache()\n"
                    "    args.per_device_train_batch_size = 1\n"
                    "    trainer.train()\n"
                )
            }
        ),
        example(
            {
                "watch.py": (
                    "import subprocess\n"
                    'done = subprocess.run(["torchrun", "train.py"])\n'
                    "if done.returncode == -9:\n"
                    '    print("killed: out of host memory?")\n'
                )
            }
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        for fact in run.facts:
            if fact.kind == "catches-sigkill":
                yield self._never_seen(run, fact)
            elif fact.kind == "retries-inside-except":
                yield self._retry(run, fact)

    def _never_seen(self, run: Run, fact: Fact) -> Finding:
        return self.info(
            run,
            "exit code -9 is SIGKILL, at which no handler in the process runs",
            at=fact,
            details=(
                f"this one tests {fact.detail['tests']}",
                "the kernel ends the process, for want of RAM mostly",
                "restart from outside, as with torchrun --max-restarts and resume_from_checkpoint",
            ),
            resource="host",
        )

    def _retry(self, run: Run, fact: Fact) -> Finding:
        return self.info(
            run,
            f"{short(fact.detail['repeats'] or 'training')} is tried again inside the except block",
            at=fact,
            details=(
                "there the traceback still holds the tensors that filled the GPU",
                "leave the block first, then empty the cache and try with a smaller batch",
            ),
            resource="gpu",
        )
