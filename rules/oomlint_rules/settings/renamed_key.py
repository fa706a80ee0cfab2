"""A key that newer versions of the framework call otherwise.

## What it finds

Keys and arguments that an earlier version of a framework had under that name and that a later
one renamed or took away, as far as memory depends on them: `evaluation_strategy` and
`per_gpu_train_batch_size` of transformers, `max_seq_length` of TRL,
`fsdp_backward_prefetch_policy` of Accelerate, `max_packed_sequence_len` of Axolotl.

## Why it runs out of memory

A version that refuses the old name costs the time in the queue. One that drops it in silence
runs with its default: TRL cuts samples at 1024 tokens where `max_seq_length: 512` asked for
512, and the activations of a layer, which grow with the tokens, are twice as large.

## How to fix it

Rename the key. Where the new version says it in another way, the message names that.

## When not to

Where the version that you have pinned still has the old name: where the project allows releases that have it and releases
that have not (`transformers = "^4.30"`), the finding is a remark, too. Where it is transformers that is pinned, to one older
than the Accelerate that renamed the key, it is a remark. Say so with
`# oomlint: ignore[renamed-key]`, or by `--set versions.transformers=4.49` where the version
is known.

## Sources

* transformers 4.49, 4.51, 4.57 and 5.23 `training_args.py`
* TRL 0.19 and 0.20 `trainer/sft_config.py`
* Accelerate 1.15 `commands/launch.py:1265` (keys of `fsdp_config` become attributes, known or not)
* Axolotl 067b021c `utils/schemas/deprecated.py` and `validation.py:61`
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.reading import StrayKey
from oomlint.dialects.table import Renaming
from oomlint.linting.rule import (
    Applicability,
    Finding,
    Proposal,
    RenameKey,
    Rule,
    Severity,
    When,
    short,
)
from oomlint.plan.library_changes import LibraryChange
from oomlint.runs.run import Run
from oomlint_rules._examples import (
    AXOLOTL,
    LLAMA_FACTORY,
    accelerate,
    each,
    example,
    mended,
    script,
)

_LIBRARIES = frozenset({"transformers", "trl"})
# Released on the day of Accelerate 1.0 (2024-10-07): where an older one is pinned, so old is what was installed with it.
_BESIDE_ACCELERATE_1 = (4, 45)


def _fsdp(key: str) -> str:
    return accelerate(
        "FSDP", f"fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n  {key}: BACKWARD_PRE\n"
    )


class RenamedKey(Rule, code="OOM805", may_end=True, fixes=Applicability.SAFE):
    summary = "a key that newer versions of the framework call otherwise"

    bad = (
        *each(
            {
                "train.py": script("{key}='epoch'"),
                "train.yaml": LLAMA_FACTORY + "{key}: epoch\nval_size: 0.1\n",
            },
            key=("evaluation_strategy", "eval_strategy"),
        ),
        mended(
            "acc.yaml",
            _fsdp("{key}"),
            key=("fsdp_backward_prefetch_policy", "fsdp_backward_prefetch"),
        ),
        example(
            {"train.yaml": f"{AXOLOTL}max_packed_sequence_len: 2048\n"},
            why="sample_packing took its place",
        ),
    )
    good = (
        example({"train.py": script("eval_strategy='epoch'")}),
        example(
            {
                "train.py": script("evaluation_strategy='epoch'"),
                "requirements.txt": "transformers==4.33.3\n",
            },
            why="that release has the old name",
        ),
        example({"acc.yaml": _fsdp("fsdp_backward_prefetch")}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        for block, _reading in run.parts.blocks:
            for key, renaming in block.renamed():
                severity = _severity(run, renaming)
                if severity is not None and key.path not in run.redeclared:
                    yield self._old(run, key, renaming, severity)

    def _old(self, run: Run, key: StrayKey, renaming: Renaming, severity: Severity) -> Finding:
        did = "drops it without a word" if renaming.effect == "ignored" else "refuses it"
        new, level = renaming.new, key.path.rpartition(".")[0]
        name = short(key.path.removeprefix(f"{level}."), 32)
        if new is None:
            title = f"{name} is a key of earlier versions"
        else:
            title = f"{name} is called {short(new.removeprefix(f'{level}.'), 32)} now"
        proposals = []
        if new is not None:
            proposals.append(Proposal(f"rename {key.path} to {new}", (RenameKey(key, new),)))
        return self.finding(
            run,
            severity,
            title,
            at=key,
            details=(f"{renaming.since} {did}", *((renaming.advice,) if renaming.advice else ())),
            confidence="high" if severity is Severity.ERROR else "medium",
            proposals=proposals,
            ends=None if renaming.effect == "ignored" else When.SETTINGS,
        )


def _severity(run: Run, renaming: Renaming) -> Severity | None:
    """An error where the version in use is known to be a later one, nothing where it is an
    earlier one; a hint where a project may pin the library as it likes, or allows releases on both sides."""
    name, _, version = renaming.since.rpartition(" ")
    used = _numbers(str(run.plan.versions.get(name.lower(), "")))
    if used:
        change = LibraryChange(name.lower(), _numbers(version), renaming.since, renaming.since)
        made = run.cells.made(change)
        return None if made is False else Severity.ERROR if made else Severity.INFO
    beside = _numbers(str(run.plan.versions.get("transformers", "")))
    is_of_then = name.lower() == "accelerate" and beside and beside < _BESIDE_ACCELERATE_1
    return Severity.INFO if is_of_then or name.lower() in _LIBRARIES else Severity.WARNING


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
