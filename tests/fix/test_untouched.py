"""Runs that a step leaves alone are not worked out anew, and those that it may reach are."""

from __future__ import annotations

import pytest
from tests.linked import link

from oomlint.fix.untouched import untouched, with_known
from oomlint.runs.run import Run

_LINE = (
    "deepspeed --num_gpus 8 train.py --model_name_or_path {model} --output_dir out --bf16 True"
    " --per_device_train_batch_size {micro} --max_seq_length 2048 --deepspeed ds/base.json\n"
)
_FILES = {
    "ds/base.json": '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}\n',
    "one/a.sh": _LINE.format(model="meta-llama/Llama-3.1-8B", micro=64),
    "two/b.sh": _LINE.format(model="Qwen/Qwen2.5-7B", micro=1),
}


def _runs() -> list[Run]:
    return link(_FILES).runs


@pytest.mark.parametrize(
    ("changed", "left"),
    [
        (["one/a.sh"], ["two/b.sh"]),
        (["ds/base.json"], []),
        # What lies beside a config may be named in its place; code may be looked at by any.
        (["ds/other.json"], []),
        (["two/other.json"], ["one/a.sh"]),
        (["elsewhere/train.py"], []),
        ([], ["one/a.sh", "two/b.sh"]),
    ],
)
def test_what_a_step_leaves_alone(changed: list[str], left: list[str]) -> None:
    assert [run.parts.root.path for run in untouched(_runs(), changed) if run.parts.root] == left


def test_a_run_is_taken_as_known_where_it_reads_and_is_shared_as_it_was() -> None:
    known, again = _runs(), _runs()
    assert with_known(again, known) == known
    more = link({**_FILES, "two/c.sh": _FILES["two/b.sh"]}).runs
    assert not set(map(id, with_known(more, known))) & set(map(id, known))
    micro = _FILES["one/a.sh"].replace("size 64", "size 32")
    one, two = with_known(link({**_FILES, "one/a.sh": micro}).runs, known)
    assert (one is known[0], two is known[1]) == (False, True)
