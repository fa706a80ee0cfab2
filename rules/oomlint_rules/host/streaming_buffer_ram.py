"""The shuffle buffer of a streamed data set, held by every worker of every rank.

## What it finds

Streaming with a shuffle buffer (`buffer_size` of LLaMA-Factory, 16384 samples by default;
`shuffle_buffer_size` of ms-swift, 1000) that takes more than a tenth of the node's RAM if samples
are of full length; where the RAM is not known, more than 64 GiB.

## Why it runs out of memory

A stream cannot be shuffled, so the reader keeps a buffer of samples and draws from it. Every
data loader worker of every rank has one of its own. Tokenized samples are Python lists there: 8
bytes a number for each of `input_ids`, `labels` and `attention_mask`, and 32 more for each number above
256, which CPython does not share. 16384 samples of 4096 tokens are 5.5 GiB,
and with 8 workers on each of 8 ranks 352 GiB. The buffers fill during the first minutes.

## How to fix it

A smaller buffer or fewer workers. The fix lowers the buffer to what takes 5 % of the RAM. It is
unsafe because the order of the samples becomes less random.

## When not to

Where samples are much shorter than the maximum length: the estimate is an upper bound.

## Sources

* LLaMA-Factory ff6d4d12 `data/data_utils.py:107`, `hparams/data_args.py:62`; ms-swift 3602360a
  `dataset/dataset_meta.py:117`; datasets 4.8 `iterable_dataset.py` (`BufferShuffledExamplesIterable`)
* CPython `Objects/longobject.c` (integers up to 256 are shared; others take 28 bytes, 32 as allocated)
* https://github.com/openvla/openvla/issues/4 (a buffer of 256000 samples, 870 GB)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import settled, severity_of_need
from oomlint.linting.rule import KNOWN, Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import LLAMA_FACTORY, example
from oomlint_rules.host._ram import UNKNOWN_RAM

_FIELD = f.data.shuffle_buffer
_SHARE, _AFTER = 0.1, 0.05
_NOTEWORTHY = 64 * 2**30
# A pointer in each of three lists, and an integer object for the token id and for its label, which
# are one object where the label is copied from the ids.
_BYTES_PER_TOKEN = 3 * 8 + 2 * 32

_LF = f"{LLAMA_FACTORY}streaming: true\nmax_steps: 1000\ncutoff_len: 8192\ndataloader_num_workers: 8\n"
_SWIFT = (
    "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B-Instruct --dataset data.jsonl --output_dir out"
    " --max_length 8192 --streaming true --max_steps 1000 --dataloader_num_workers 8"
)


class StreamingBufferRam(Rule, code="OOM412", fixes=Applicability.UNSAFE, cost=7):
    summary = "every worker of every rank holds a shuffle buffer of a streamed data set"
    only_where = (Where(meant={f.data.streaming: (True,), f.data.shuffle_buffer: KNOWN}),)

    bad = (
        example(
            {"train.yaml": f"{_LF}buffer_size: 16384\n"},
            {"train.yaml": f"{_LF}buffer_size: 1191\n"},
            on="8xA100-80GB, 1TiB",
        ),
        example(
            {"train.sh": f"{_SWIFT} --shuffle_buffer_size 20000\n"},
            on="8xA100-80GB",
            why="nobody says how much RAM there is",
        ),
    )
    good = (
        example({"train.yaml": f"{_LF}buffer_size: 1000\n"}, on="8xA100-80GB, 1TiB"),
        example({"train.sh": f"{_SWIFT}\n"}, on="8xA100-80GB"),
        example(
            {"train.yaml": f"{LLAMA_FACTORY}buffer_size: 16384\n"},
            on="8xA100-80GB, 64GiB",
            why="nothing is streamed",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = settled(run).plan
        buffer, length = plan.data.shuffle_buffer, plan.seq.max_len
        if buffer is None or length is None:
            return
        ranks, workers = plan.parallel.gpus_per_node or 1, max(1, plan.data.workers or 0)
        sample = length * _BYTES_PER_TOKEN
        need, limit = ranks * workers * buffer * sample, run.limits.host_bytes
        if need < (_NOTEWORTHY if limit is None else _SHARE * limit):
            return
        proposals = []
        if limit is not None:
            enough = int(_AFTER * limit / (ranks * workers * sample))
            proposals.append(
                Proposal.set(
                    f"keep {enough} samples to draw from", {_FIELD: enough}, Applicability.UNSAFE
                )
            )
        yield self.finding(
            run,
            # At most a warning: most samples are shorter than they may be.
            min(severity_of_need(run, "host", need) or Severity.INFO, Severity.WARNING),
            f"shuffle buffers of {buffer} samples hold up to {gib(need)} in a node's RAM",
            at=(_FIELD, f.data.streaming),
            details=(
                (
                    f"each of {workers} {'worker' if workers == 1 else 'workers'} on each of {ranks} "
                    f"{'rank' if ranks == 1 else 'ranks'} has one, with samples of up to {length:,} tokens"
                ),
                f"the node has {gib(limit)}" if limit is not None else UNKNOWN_RAM,
            ),
            confidence="low",
            resource="host",
            predicted=need,
            limit=limit,
            proposals=proposals,
        )
