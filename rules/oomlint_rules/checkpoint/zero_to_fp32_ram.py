"""Joining a ZeRO checkpoint holds the whole model in fp32 in RAM, in some versions twice.

## What it finds

In scripts: `zero_to_fp32.py` called in the way of its older versions (its second argument is a
file, `pytorch_model.bin`), or for the checkpoint of an adapter, without
`--exclude_frozen_parameters`; and the functions `get_fp32_state_dict_from_zero_checkpoint` without
`lazy_mode=True` and `load_state_dict_from_zero_checkpoint`. Where the model is known (the same script trains it) the need is
judged against the node's RAM.

## Why it runs out of memory

The fp32 weights are 4 bytes a parameter. Versions that write one file read the shards into RAM
(4 bytes) and built every full tensor beside them (4 more): 8 bytes a parameter, 560 GB for 70B.
Each checkpoint has a copy of the script of the version that saved it. Newer ones map the shards,
build one output file of 5 GB at a time, and take little; but the functions, called without
`lazy_mode`, still return all weights at once. And they read and join what is frozen without
any such care: if the checkpoint of an adapter holds its base, as it does where the gather at
a save is off, these are 2 bytes a parameter in fragments and 2 more joined, 2.4 TiB for 671B.

## How to fix it

Run the script of a current DeepSpeed (`deepspeed/utils/zero_to_fp32.py`) instead of the
checkpoint's copy; its second argument is a folder, and `--max_shard_size 5GB` its default. For an
adapter leave the base out with `--exclude_frozen_parameters`; the fix adds it, unsafe because the
output is then the adapter alone. In code
pass `lazy_mode=True` and write tensor by tensor, or call `convert_zero_checkpoint_to_fp32_state_dict`.

## When not to

Where the machine has 8 bytes a parameter to spare.

## Sources

* DeepSpeed edaa7221 `utils/zero_to_fp32.py:150` (mapped shards), `:566` (`lazy_mode`), `:625`
  (output file by file), `_zero3_merge_frozen_params`
* https://github.com/hiyouga/LLaMA-Factory/pull/6843 (671B, 2 TB of RAM)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from oomlint.documents.base import Fact
from oomlint.linting.rule import Applicability, Finding, Severity
from oomlint.runs.run import Run
from oomlint.wording.amounts import count, gib
from oomlint_rules._examples import command, deepspeed, example, text
from oomlint_rules._scripts import FactRule, mending

# Any machine that joins the shards of a language model has that much.
_NOTEWORTHY = 64 * 2**30

_TRAIN = command("--deepspeed ds.json").replace("8B", "70B")
_LORA = command("--deepspeed ds.json --use_peft True --lora_r 8").replace("8B", "70B")
_JSON = deepspeed('"stage": 3')
_CONVERT = text(
    """
    import sys
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    state = get_fp32_state_dict_from_zero_checkpoint(sys.argv[1]{more})
    """
)


class ZeroToFp32Ram(FactRule, code="OOM509", fact="zero-to-fp32", fixes=Applicability.UNSAFE):
    summary = "joining a ZeRO checkpoint holds the whole model in fp32 in RAM"

    bad = (
        example(
            {
                "train.sh": f"{_TRAIN}python out/zero_to_fp32.py out out/pytorch_model.bin\n",
                "ds.json": _JSON,
            },
            on="8xH100-80GB, 512GiB",
        ),
        example(
            {"join.sh": "python out/zero_to_fp32.py out out/pytorch_model.bin\n"},
            why="how large the model is, is not known",
        ),
        example({"join.py": _CONVERT.format(more="")}),
        example(
            {"run.sh": f"{_LORA}python out/zero_to_fp32.py out out/model\n", "ds.json": _JSON},
            {
                "run.sh": f"{_LORA}python out/zero_to_fp32.py --exclude_frozen_parameters out out/model\n"
            },
            on="8xH100-80GB, 256GiB",
            why="the base is read and joined with the adapter",
        ),
    )
    good = (
        example(
            {"train.sh": f"{_TRAIN}python out/zero_to_fp32.py out out/model\n", "ds.json": _JSON},
            on="8xH100-80GB, 512GiB",
            why="a folder: the newer script, which writes file by file",
        ),
        example(
            {
                "train.sh": f"{_TRAIN}python out/zero_to_fp32.py out out/pytorch_model.bin\n",
                "ds.json": _JSON,
            },
            on="8xH100-80GB, 1TiB",
        ),
        example({"join.py": _CONVERT.format(more=", lazy_mode=True")}),
    )

    def comes_of(self, fact: Fact, run: Run) -> Iterable[Finding]:
        way = _way(run, fact.detail)
        if way is not None:
            yield from self._conversion(run, fact, way)

    def _conversion(self, run: Run, fact: Fact, way: _Way) -> Iterable[Finding]:
        dims, limit = run.plan.model.dims, run.limits.host_bytes
        total = dims.params_total if dims is not None else None
        need = None if total is None else way.width * total
        # A job of its own, which no estimate of a training run speaks of.
        severity: Severity | None = Severity.INFO
        if need is not None and limit is not None:
            severity = Severity.WARNING if need > run.margin * limit else None
        elif need is not None and need < _NOTEWORTHY:
            severity = None
        if severity is None:
            return
        size = (
            f"{way.width} bytes of RAM a parameter"
            if need is None or total is None
            else f"{gib(need)} of RAM ({count(total)} parameters × {way.width} bytes)"
        )
        have = "" if limit is None else f", and the node has {gib(limit)}"
        apart = mending("leave the base out", fact, Applicability.UNSAFE)
        yield self.finding(
            run,
            severity,
            f"{fact.detail['how']} {way.does}",
            at=fact,
            details=(f"{way.where}{size}{have}", *way.better),
            confidence="medium" if need is not None and way is not _WITH_BASE else "low",
            resource="host",
            predicted=need,
            limit=limit,
            proposals=apart if way is _WITH_BASE else (),
        )


class _Way(Struct, frozen=True):
    """A way to join shards: how many bytes a parameter it holds, what it does, in words that follow
    its name, on what condition it takes so much, and what would take less."""

    width: int
    does: str
    better: tuple[str, ...]
    where: str = ""


_SINGLE_FILE = _Way(
    8,
    "holds the model in fp32 twice, to write a single file",
    (
        "it is there once in parts and once joined",
        (
            "the script of a current DeepSpeed takes a folder instead, maps the parts and writes one file "
            "of 5 GB after the other"
        ),
    ),
)
_ALL_AT_ONCE = _Way(
    4,
    "holds the whole model in fp32",
    (
        "with lazy_mode=True get_fp32_state_dict_from_zero_checkpoint builds one tensor at a time",
        "convert_zero_checkpoint_to_fp32_state_dict writes files of 5 GB",
    ),
)
_WITH_BASE = _Way(
    4,
    "reads what is frozen into RAM and joins it there",
    ("with --exclude_frozen_parameters it joins the adapter alone",),
    where="if the checkpoint of this adapter holds its base too, ",
)


def _way(run: Run, detail: Mapping[Any, Any]) -> _Way | None:
    """``None`` for the newer script on a model trained in full, which needs little."""
    if detail["how"] != "zero_to_fp32.py":
        return _ALL_AT_ONCE
    if detail["output"].endswith((".bin", ".pt", ".pth")):
        return _SINGLE_FILE
    if detail["frozen"] and run.plan.trainable.method in ("lora", "dora", "qlora", "oft"):
        return _WITH_BASE
    return None
