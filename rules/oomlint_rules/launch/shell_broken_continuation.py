r"""A command over several lines that ends earlier than its author thinks.

## What it finds

In shell scripts: a line that begins with an option and whose line above lacks the trailing
backslash; a backslash followed by a blank or a comment, which escapes that blank instead of
the line break; an empty line after a backslash; a comment line, or an option that was
commented out, in the middle of a continued command; and lines that end in a carriage return
(CR LF, as editors on Windows write them), before which a backslash continues nothing either.

## Why it runs out of memory

Every option below the break is lost, and these are often the ones that keep the run small:
`--deepspeed`, `--flash_attn`, `--gradient_checkpointing`, `--quantization_bit`. The training
starts without them; the shell's "command not found" comes hours later, when the first part
has ended. Environment variables that stand before a comment line never reach the command.

With carriage returns the command gets one as an argument of its own, for which `torchrun` looks
as a script and which a parser refuses: nothing trains.

## How to fix it

End every line but the last with a backslash and nothing after it, and keep comments above the
command; convert line ends with `dos2unix`, and keep them with `*.sh text eol=lf` in
`.gitattributes`. The fix inserts the backslash, removes what follows it, moves the comment up, or takes the carriage
returns of a script away. The options then take effect for the first time: read the prediction again.

## When not to

Where the second part really is a command of its own that begins with a dash; there is hardly
one. On Windows, where git writes CR LF into checkouts (`core.autocrlf`), nothing is said of line ends.

## Sources

* https://github.com/hiyouga/LLaMA-Factory/issues/3514: `--bf16` without a backslash cost
  the run `--lora_rank 4 --flash_attn fa2`
* https://github.com/modelscope/ms-swift/issues/3504: a commented variable between the
  environment and the command
* POSIX.1-2017, Shell Command Language, 2.2.1 Escape Character and 2.3 Token Recognition
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.documents.base import Fact
from oomlint.linting.rule import Applicability, Finding, When
from oomlint.runs.run import Run
from oomlint_rules._examples import example
from oomlint_rules._scripts import FactRule, mending

_HEAD = "torchrun --nproc_per_node 2 recipes/finetuning/finetuning.py --enable_fsdp"
_MODEL = "--model_name meta-llama/Meta-Llama-3-8B"

_FAULTS = {
    "no-backslash": (
        "the line above does not end in a backslash, so the command ends there",
        "the options from here on are lost",
        "end the line above in a backslash",
    ),
    "ended-above-comment": (
        "the command ends above the comment, at a line without a backslash",
        "the options from here on are lost",
        "end that line in a backslash, and move the comment above the command",
    ),
    "blank-after-backslash": (
        "something follows the backslash, which does not continue the line then",
        "the options on the next lines are lost",
        "leave nothing after the backslash",
    ),
    "blank-line": (
        "an empty line ends the command above it",
        "the options from here on are lost",
        "remove the empty line",
    ),
    "comment": (
        "a comment in the middle of a continued command ends it",
        "what follows does not belong to it any more",
        "move the comment above the command",
    ),
}


_MOST_MOVED = 3


class ShellBrokenContinuation(
    FactRule,
    code="OOM703",
    may_end=True,
    fact=("broken-continuation", "return-at-end"),
    fixes=Applicability.SAFE,
):
    summary = "a command that ends before its last options"
    is_of_text = True

    bad = (
        example(
            {"train.sh": f"{_HEAD} \\\n    {_MODEL}\n    --low_cpu_fsdp \\\n    --use_peft\n"},
            {"train.sh": f"{_HEAD} \\\n    {_MODEL} \\\n    --low_cpu_fsdp \\\n    --use_peft\n"},
        ),
        example(
            {"train.sh": f"{_HEAD} \\\n    {_MODEL} \\ \n    --low_cpu_fsdp\n"},
            {"train.sh": f"{_HEAD} \\\n    {_MODEL} \\\n    --low_cpu_fsdp\n"},
            why="a blank follows the backslash",
        ),
        example(
            {"train.sh": f"{_HEAD} \\\n    {_MODEL} \\\n    # --use_peft \\\n    --low_cpu_fsdp\n"},
            {"train.sh": f"# --use_peft \\\n{_HEAD} \\\n    {_MODEL} \\\n    --low_cpu_fsdp\n"},
            why="an option was commented out",
        ),
        example(
            {"train.sh": f"{_HEAD} \\\r\n    {_MODEL} \\\r\n    --low_cpu_fsdp\r\n"},
            {"train.sh": f"{_HEAD} \\\n    {_MODEL} \\\n    --low_cpu_fsdp\n"},
            why="lines end in a carriage return",
        ),
    )
    good = (
        example({"train.sh": f"{_HEAD} \\\n    {_MODEL} \\\n    --low_cpu_fsdp\n"}),
        example(
            {
                "train.sh": (
                    f"# two cards\n{_HEAD} \\\n    {_MODEL} --low_cpu_fsdp\n# done\necho done\n"
                )
            }
        ),
    )

    def comes_of(self, fact: Fact, run: Run) -> Iterable[Finding]:
        if fact.detail["reason"] == "carriage-return":
            yield self._of_line_ends(fact, run)
            return
        fault, loss, cure = _FAULTS[fact.detail["reason"]]
        details = [loss]
        more = fact.detail["cuts"] - 1
        if more:
            details.append(f"{more} more line{'s' * (more > 1)} below cut the same command again")
            cure = "join the lines of the command"
        # Many comments above the command no longer tell which option each of them is about.
        moved = sum(edit.replacement.count("\n") for edit in fact.mend if "#" in edit.replacement)
        level = Applicability.SAFE if moved <= _MOST_MOVED else Applicability.DISPLAY
        proposals = mending(cure, fact, level)
        yield self.error(run, fault, at=fact, details=details, proposals=proposals)

    def _of_line_ends(self, fact: Fact, run: Run) -> Finding:
        name = fact.detail["file"]
        details = [f"convert them, with dos2unix {name} or sed -i 's/\\r$//' {name}"]
        if fact.detail["names_interpreter"]:
            details.insert(0, "the first line names an interpreter that is not there")
        if fact.kind == "return-at-end":
            title = "lines end in a carriage return, which is part of their last words"
            return self.info(run, title, at=fact, details=details)
        loss = "the command gets a carriage return as its last argument, and the lines below are commands of their own"
        title = "lines end in a carriage return, so that the backslash continues nothing"
        return self.error(
            run,
            title,
            at=fact,
            details=[loss, *details],
            proposals=mending("end the lines in a line feed alone", fact),
            ends=When.SETTINGS,
        )
