"""A key that the framework does not know: dropped without a word, or refused at start.

## What it finds

A key that stands in a config and that its framework has no use for. Where the framework
ignores such keys (Axolotl, whose pydantic models do not forbid extra fields; the top level
of a DeepSpeed JSON; python-fire options of llama-recipes) it is found when a real key is
near enough to have been meant. Where the framework refuses them (LLaMA-Factory, Accelerate
YAML, the `zero_optimization` object of a DeepSpeed JSON) every unknown key is found, but for
those that a copy of LLaMA-Factory or OpenRLHF in the project itself declares. A key that earlier
releases of Axolotl, LLaMA-Factory or ms-swift had is a remark, unless the project pins a release
without it, and nothing at all where it pins one that has it.

## Why it runs out of memory

The author believes that a limit is in force and it is not. `sequence_length: 2048` in an
Axolotl file does nothing: the key is `sequence_len`, and its default of 512 applies. A
misspelt `gradient_checkpoint: true` leaves every activation on the card, a misspelt
`train_micro_batch_size_per_gpus` gives the micro batch back to a default. A refused key
costs no memory, but the time in the queue.

## How to fix it

Rename the key. The rename makes the value take effect for the first time, so read the
prediction again afterwards. A key that belongs to a plug-in of yours can be kept with
`# oomlint: ignore[unknown-key-ignored]`.

## When not to

Where the near name is a coincidence and the key is read by your own code. So it is a remark where a program of the project
that trains loads YAML or TOML by itself, and where no script, README or program here shows that the framework is started
with the file, unless that key is a mere slip for one of the framework's and all else in the file is its own; name the file, and
it counts (as a warning, where the key is like none that the framework has). Where a refused
key is one that a newer version of the framework has; or where `ALLOW_EXTRA_ARGS=1` tells
LLaMA-Factory to let unknown keys pass.

## Sources

* Axolotl `src/axolotl/utils/schemas/config.py` (`model_config = {"populate_by_name": True}`,
  no `extra="forbid"`); https://github.com/axolotl-ai-cloud/axolotl/issues/2143
* DeepSpeed `deepspeed/runtime/config.py` reads the top-level keys it knows and no others;
  `deepspeed/runtime/config_utils.py:110` forbids extra ones in `zero_optimization`
* Keys of earlier releases: the fields of the argument classes over the tags and history of Axolotl,
  LLaMA-Factory and ms-swift
* LLaMA-Factory `src/llamafactory/hparams/parser.py` (`_parse_args`); Accelerate
  `commands/config/config_args.py` raises on unknown keys
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from oomlint.dialects.kinds import BadValue
from oomlint.dialects.reading import StrayKey, WrongValue
from oomlint.documents.base import UNKNOWN
from oomlint.linting.rule import (
    Applicability,
    Finding,
    Proposal,
    RenameKey,
    Rule,
    Severity,
    When,
    Where,
    asking,
    short,
)
from oomlint.plan.library_changes import Release, release_of
from oomlint.runs.run import Run
from oomlint_rules._conditions import may_take, other_reader, unstarted
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, example, text
from oomlint_rules.settings._levels import other_level

_TRL_SFT = text(
    """
    model_name_or_path: Qwen/Qwen2.5-7B
    dataset_name: trl-lib/Capybara
    packing: true
    max_length: 4096
    learning_rate: 2.0e-5
    output_dir: out
    """
)


_OF_ANOTHER = "unless a program of the project's own reads the file"


class UnknownKeyIgnored(Rule, code="OOM801", may_end=True, fixes=Applicability.SAFE):
    summary = "a key that the framework does not know, and ignores or refuses"
    only_where = (Where(has="stray"),)
    is_of_text = True

    bad = (
        example(
            {
                "axolotl.yaml": (
                    "base_model: meta-llama/Llama-3.2-3B\n"
                    "datasets:\n"
                    "  - path: tatsu-lab/alpaca\n"
                    "    type: alpaca\n"
                    "sequence_length: 2048  # tokens\n"
                    "micro_batch_size: 1\n"
                    "gradient_checkpointing: true\n"
                )
            },
            {
                "axolotl.yaml": (
                    "base_model: meta-llama/Llama-3.2-3B\n"
                    "datasets:\n"
                    "  - path: tatsu-lab/alpaca\n"
                    "    type: alpaca\n"
                    "sequence_len: 2048  # tokens\n"
                    "micro_batch_size: 1\n"
                    "gradient_checkpointing: true\n"
                )
            },
        ),
        example(
            {
                "ds.json": (
                    "{\n"
                    '  "train_micro_batch_size_per_gpu": 1,\n'
                    '  "gradient_accumulation_step": 4,\n'
                    '  "zero_optimization": {"stage": 2},\n'
                    '  "bf16": {"enabled": true}\n'
                    "}\n"
                )
            },
            {
                "ds.json": (
                    "{\n"
                    '  "train_micro_batch_size_per_gpu": 1,\n'
                    '  "gradient_accumulation_steps": 4,\n'
                    '  "zero_optimization": {"stage": 2},\n'
                    '  "bf16": {"enabled": true}\n'
                    "}\n"
                )
            },
        ),
        example(
            {
                "ds.json": (
                    "{\n"
                    '  "train_micro_batch_size_per_gpu": 1,\n'
                    '  "zero_optimization": {"stage": 2, "offload_optimiser": {"device": "cpu"}},\n'
                    '  "bf16": {"enabled": true}\n'
                    "}\n"
                )
            },
            {
                "ds.json": (
                    "{\n"
                    '  "train_micro_batch_size_per_gpu": 1,\n'
                    '  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},\n'
                    '  "bf16": {"enabled": true}\n'
                    "}\n"
                )
            },
            why="zero_optimization refuses what it does not know",
        ),
        example(
            {"sft.yaml": _TRL_SFT, "requirements.txt": "trl==0.15.2\n"},
            why="SFTConfig has max_length from TRL 0.16 on",
        ),
        example(
            {"axolotl.yaml": f"{AXOLOTL}eval_table_max_new_tokens: 128\n"},
            why="releases before 0.5 have the key, and nothing tells which runs",
        ),
        example(
            {
                "axolotl.yaml": f"{AXOLOTL}eval_table_max_new_tokens: 128\n",
                "requirements.txt": "axolotl==0.9.2\n",
            },
            why="eval_max_new_tokens took its place",
        ),
        example(
            {
                "train.yaml": f"{LLAMA_FACTORY}our_own_key: 1024\n",
                "requirements.txt": "llamafactory @ git+https://github.com/ours/LLaMA-Factory\n",
            },
            why="a remark: what is installed may know the key",
        ),
        example(
            {"train.yaml": f"{LLAMA_FACTORY}cut_off_len: 1024\n"},
            {"train.yaml": f"{LLAMA_FACTORY}cutoff_len: 1024\n"},
            why="LLaMA-Factory refuses what it does not know",
        ),
    )
    good = (
        example({"sft.yaml": _TRL_SFT, "requirements.txt": "trl==0.16.0\n"}),
        example({"train.yaml": f"{LLAMA_FACTORY}cutoff_len: 1024\n"}),
        example(
            {
                "axolotl.yaml": f"{AXOLOTL}eval_table_max_new_tokens: 128\n",
                "requirements.txt": "axolotl==0.4.0\n",
            },
            why="Axolotl 0.4 has the key",
        ),
        example(
            {
                "axolotl.yaml": (
                    "base_model: meta-llama/Llama-3.2-3B\n"
                    "datasets:\n"
                    "  - path: tatsu-lab/alpaca\n"
                    "sequence_len: 2048\n"
                    "micro_batch_size: 1\n"
                )
            }
        ),
        example(
            {
                "axolotl.yaml": (
                    "base_model: meta-llama/Llama-3.2-3B\n"
                    "datasets:\n"
                    "  - path: tatsu-lab/alpaca\n"
                    "micro_batch_size: 1\n"
                    "sequence_length:\n"
                )
            },
            why="the key is empty: nobody set it to anything",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        for stray in run.stray:
            table = stray.block.table
            if other_level(stray) is not None or _has_it(run, stray):
                continue  # ds-key-at-wrong-level says where it belongs
            if _may_have_it(run, stray):
                if table.ignores_unknown is not None and not _is_empty(stray):
                    yield self._of_earlier_releases(run, stray)
            elif stray.is_refused:
                yield self._refused(run, stray)
            elif stray.is_ignored and stray.nearest and not _is_empty(stray):
                yield self._ignored(run, stray)

    def _of_earlier_releases(self, run: Run, stray: StrayKey) -> Finding:
        title = (
            _said(stray, "refuses", "refuse")
            if stray.is_refused
            else _said(stray, "ignores", "ignore")
        )
        details: tuple[str, ...] = ()
        if stray.nearest:
            title, details = asking(title, stray.nearest[0])
        return self.info(
            run,
            title,
            at=stray,
            details=(*details, "earlier releases have the key, and the project pins none"),
            proposals=_rename(stray),
        )

    def _ignored(self, run: Run, stray: StrayKey) -> Finding:
        nearest = stray.nearest[0]
        row = stray.block.table.names.get(nearest)
        title, details = asking(_said(stray, "ignores", "ignore"), nearest)
        if row is not None and row.default is not None and not run.is_explicit(row.field):
            details = (*details, f"as it stands {nearest} is at its default, {row.default}")
        is_misspelt = row is not None and bool(row.field) and _is_spelt_alike(stray.path, nearest)
        doubt = other_reader(run, stray.block) or _unstarted_and_more(run, stray)
        is_anothers = not _is_started(run) and _has_more_such(run, stray)
        if is_anothers and not doubt:
            details = (*details, _OF_ANOTHER)
        return self.finding(
            run,
            Severity.WARNING if is_misspelt and not (doubt or is_anothers) else Severity.INFO,
            title,
            at=stray,
            details=(*details, *may_take(doubt)),
            proposals=_rename(stray),
        )

    def _refused(self, run: Run, stray: StrayKey) -> Finding:
        title = _said(stray, "does not know", "do not know")
        untold = run.parts.untold.get(run.dialect.distribution or run.dialect.name)
        consequence = "the framework stops with an error at a key that it does not know"
        details: tuple[str, ...] = (untold or consequence,)
        severity = Severity.ERROR
        if stray.nearest:
            title, asked = asking(title, stray.nearest[0])
            details = (*asked, *details)
        elif not _is_started(run):
            severity = Severity.INFO if _has_more_such(run, stray) else Severity.WARNING
            details = (*details, _OF_ANOTHER)
        doubt = other_reader(run, stray.block) or stray.doubt or _unstarted_and_more(run, stray)
        if doubt:
            severity, details = Severity.INFO, (*details, *may_take(doubt))
        return self.finding(
            run,
            severity if untold is None else Severity.INFO,
            title,
            at=stray,
            details=details,
            confidence="high" if stray.nearest else "medium",
            proposals=_rename(stray),
            ends=When.SETTINGS,
        )


def _is_spelt_alike(key: str, known: str) -> bool:
    """Whether each word of the shorter key is, or is written like, one of the other's (``len`` and ``length`` are, by
    difflib's measure, ``vae`` and ``train`` are not). A key that shares its end alone
    (``vae_batch_size``, ``memory_optimization``) may be another program's: of ten warnings of near keys on strangers'
    repositories two were true, both of keys that had all words (benchmarks/strangers)."""
    words = [each.rpartition(".")[2].lower().split("_") for each in (key, known)]
    shorter, longer = sorted(words, key=len)
    return all(get_close_matches(word, longer) for word in shorter)


def _is_started(run: Run) -> bool:
    """Whether something here is seen to start the framework: else a key that is like none of its own may be one of
    another program's, which reads the same names."""
    return any(claim.is_launched or claim.is_program for claim in run.claims)


def _unstarted_and_more(run: Run, stray: StrayKey) -> str:
    """That nothing here starts the framework with a file in which more than a slip of the pen is not the framework's, in
    words: a key that is like none of its own, or others beside it that it has no place for."""
    misfits: tuple[StrayKey | WrongValue, ...] = (*run.stray, *run.wrong)
    others = (each for each in misfits if each.block is stray.block)
    is_slip = bool(stray.nearest) and all(each.entry is stray.entry for each in others)
    return "" if is_slip else unstarted(run, stray.block)


def _has_more_such(run: Run, stray: StrayKey) -> bool:
    """Whether a file has several keys that are like none of the framework's. A config that the framework has run has none,
    so that one which nothing starts is rather another program's, or a note for people."""
    return any(
        each.block is stray.block
        and each.is_refused == stray.is_refused
        and not each.nearest
        and each.path != stray.path
        for each in run.stray
    )


def _said(stray: StrayKey, does: str, do: str) -> str:
    """``Axolotl ignores sequence_length``: what reads the file, what it does, and the key."""
    reader = stray.block.table.reader
    release = f" before {stray.since}" if stray.since else ""
    release = f" from {stray.until} on" if stray.until else release
    return f"{reader}{release} {do if 'options' in reader else does} {short(stray.path, 42)}"


def _pinned(run: Run, stray: StrayKey) -> Release | None:
    """The release that the project pins of the framework whose earlier ones had the key."""
    past = stray.block.table.past
    return None if past is None else release_of(run.plan.versions.get(past.package))


def _has_it(run: Run, stray: StrayKey) -> bool:
    """Whether the pinned release is one that has the key still."""
    pinned, until = _pinned(run, stray), release_of(stray.until)
    return pinned is not None and until is not None and pinned < until


def _may_have_it(run: Run, stray: StrayKey) -> bool:
    past, until = stray.block.table.past, release_of(stray.until)
    if past is None or until is None:
        return False
    if _pinned(run, stray) is not None and past.package not in run.parts.ranges:
        return False
    floor = release_of(run.parts.floors.get(past.package))
    return floor is None or floor < until


def _is_empty(stray: StrayKey) -> bool:
    """Whether the key says nothing, as examples that list all their options have it."""
    return stray.block.value(stray.entry.value) is None


def _rename(stray: StrayKey) -> Iterable[Proposal]:
    """The nearest key as a fix, if it could take the value that stands there: a safe one where it is the same
    name but for its spelling, since a key that is only near may mean something else. None where the nearest stands
    there too: nobody writes one name twice."""
    for nearest in stray.nearest[:1]:
        if _takes(stray, nearest) and nearest not in stray.mapping.entries:
            level = Applicability.SAFE if nearest == stray.meant else Applicability.DISPLAY
            wish = RenameKey(stray, nearest)
            yield Proposal(f"rename {stray.path} to {nearest}", (wish,), level)


def _takes(stray: StrayKey, name: str) -> bool:
    row = stray.block.table.names.get(name)
    value = stray.block.value(stray.entry.value)
    if row is None or value is UNKNOWN or value is None:
        return True
    try:
        row.kind.read(value)
    except BadValue:
        return False
    return True
