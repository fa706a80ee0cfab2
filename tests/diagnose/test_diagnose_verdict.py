"""Order, place and phase of a death, over several logs and in odd ones."""

import bz2
import gzip
import json
import lzma
import re

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from oomlint.diagnose import examine, read_logs
from oomlint.diagnose.measured import _FORMS
from oomlint.diagnose.phases import _BY_PHASE, MARKERS, phase_of_frames
from oomlint.diagnose.progress import RunPosition, step_in
from oomlint.diagnose.remedies import _KNOWN
from oomlint.diagnose.render import annotation, diagnose_object, render
from oomlint.diagnose.scan import scan
from oomlint.diagnose.signatures import SIGNATURES
from oomlint.errors import UsageError
from oomlint.linting.engine import all_rules

GIB = 2**30
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {gpu} has a total "
    "capacity of 79.10 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process "
    "has 78.10 GiB memory in use. Of the allocated memory 76.00 GiB is allocated by PyTorch, and "
    "0.10 GiB is reserved by PyTorch but unallocated.\n"
)
BAR = " {percent}%|████      | {step}/400 [10:00<20:00, 3.00s/it]"


def verdict_of(tmp_path, *texts):
    names = []
    for number, text in enumerate(texts):
        file = tmp_path / f"{number}.log"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        names.append(str(file))
    logs, errors = read_logs(names)
    assert not errors
    return examine(logs).verdict


# -- who was first ------------------------------------------------------------------------


def test_the_rank_that_ran_out_is_the_cause_and_those_that_waited_follow(tmp_path):
    verdict = verdict_of(
        tmp_path,
        "[rank3]:   File \"/e/transformers/trainer.py\", line 1, in training_step\n"
        "[rank3]:   File \"/e/torch/autograd/__init__.py\", line 1, in backward\n"
        "[rank3]: " + OOM.format(gpu=3)
        + "[rank0]:[E321 02:17:08.4 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=15) ran for 600060 milliseconds before timing out.\n"
        "W0321 02:18:00.0 9 torch/distributed/elastic/multiprocessing/api.py:8] Sending process 7 closing signal SIGTERM\n",
    )  # fmt: skip
    assert (verdict.cause.origin.rank, verdict.phase) == (3, "backward")
    assert [s.signature.role for s in verdict.order] == ["cause", "follower", "follower"]


def test_frames_of_other_ranks_do_not_count(tmp_path):
    verdict = verdict_of(
        tmp_path,
        "[rank1]: Traceback (most recent call last):\n"
        "[rank1]:   File \"/e/transformers/trainer.py\", line 1, in compute_loss\n"
        "[rank0]:   File \"/e/torch/optim/adamw.py\", line 1, in _init_group\n"
        "[rank1]: " + OOM.format(gpu=1),
    )  # fmt: skip
    assert verdict.phase == "forward"


def test_the_kernel_s_word_confirms_a_death_and_gives_its_size(tmp_path):
    train = (
        "[INFO|trainer.py:2134] ***** Running training *****\n"
        + BAR.format(percent=25, step=100)
        + "[INFO|trainer.py:3639] 2025-03-01 08:20:00,711 >> Saving model checkpoint to out/checkpoint-100\n"
        + "E0301 08:24:03.270000 1391 torch/distributed/elastic/multiprocessing/api.py:826] failed "
        "(exitcode: -9) local_rank: 2 (pid: 7899) of binary: python\n"
    )
    kernel = (
        "[Sat Mar  1 08:24:00 2025] memory: usage 536870912kB, limit 536870912kB, failcnt 88\n"
        "[Sat Mar  1 08:24:00 2025] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,"
        "mems_allowed=0-1,oom_memcg=/kubepods/burstable/pod7,task_memcg=/kubepods/burstable/pod7/c,"
        "task=python,pid=7899,uid=0\n"
        "[Sat Mar  1 08:24:00 2025] Memory cgroup out of memory: Killed process 7899 (python) "
        "total-vm:900000000kB, anon-rss:400000000kB, file-rss:1024kB, shmem-rss:0kB, UID:0\n"
    )
    for logs in ((train, kernel), (kernel, train)):
        verdict = verdict_of(tmp_path, *logs)
        cause = verdict.cause
        assert cause.signature.name == "kernel-oom-kill"
        assert (verdict.resource, verdict.scope, verdict.phase) == ("host", "container", "save")
        assert cause.step == RunPosition(100, 400)
        assert cause.figures["process_bytes"] == (400000000 + 1024) * 1024
        assert cause.figures["limit_bytes"] == 512 * GIB
        assert cause.origin.local_rank == 2
        assert verdict.confidence == "high"
        assert [s.signature.name for s in verdict.confirmed_by] == ["killed"]


def test_what_the_kernel_killed_beside_the_run_is_no_cause(tmp_path):
    kernel = "[ 7063.2] Out of memory: Killed process 63 (uwsgi) total-vm:31kB, anon-rss:16kB, file-rss:5kB\n"
    verdict = verdict_of(tmp_path, kernel, "[rank0]: " + OOM.format(gpu=0))
    assert verdict.cause.signature.name == "gpu-out-of-memory"
    assert any("uwsgi" in note for note in verdict.notes)


def test_a_failed_allocation_that_training_survives_is_none(tmp_path):
    text = BAR.format(percent=1, step=4) + "\n" + OOM.format(gpu=0)
    assert verdict_of(tmp_path, text).outcome == "memory"
    went_on = text + "".join("\r" + BAR.format(percent=2, step=n) for n in range(5, 12)) + "\n"
    verdict = verdict_of(tmp_path, went_on)
    assert verdict.outcome == "nothing"
    assert len(verdict.survived) == 1


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2025-01-01T00:00:00 DUE TO TIME LIMIT ***\n", "stopped"),
        ("Traceback (most recent call last):\nValueError: could not find the dataset\n", "other"),
        ("all is well\n", "nothing"),
        ("", "nothing"),
        ('{"State": {"OOMKilled": false, "ExitCode": 0}}\n', "nothing"),
        ("Process finished with exit code 0\n", "nothing"),
        ("auto_find_batch_size: avoids CUDA out-of-memory errors by halving the batch\n", "nothing"),
        ('    raise RuntimeError("CUDA out of memory. Tried to allocate too much")\n', "nothing"),
        ("Process finished with exit code 137 (interrupted by signal 9: SIGKILL)\n", "killed"),
        ("subprocess.CalledProcessError: Command '['python']' died with <Signals.SIGKILL: 9>.\n", "killed"),
        ("train.sh: line 7: 41 Killed                  torchrun train.py\n", "killed"),
        ("已杀死\n", "killed"),
        ("CUDA error: out of memory\n", "memory"),
        ("JobID|State|ExitCode|MaxRSS\n7.batch|OUT_OF_MEMORY|0:125|503316480K\n", "memory"),
        ("terminate called after throwing an instance of 'std::bad_alloc'\n", "memory"),
    ],
)  # fmt: skip
def test_ends_of_every_kind(tmp_path, text, outcome):
    assert verdict_of(tmp_path, text).outcome == outcome


def test_pinned_memory_is_the_host_s(tmp_path):
    verdict = verdict_of(
        tmp_path,
        '  File "/e/deepspeed/runtime/zero/stage_1_and_2.py", line 1, in __init__\n'
        "    t.pin_memory()\nRuntimeError: CUDA error: out of memory\n",
    )
    assert (verdict.resource, verdict.cause.signature.name) == ("host", "pinned-memory")


def test_memory_that_others_hold_is_told_apart(tmp_path):
    text = (
        "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 80.00 GiB of "
        "which 0 bytes is free. Including non-PyTorch memory, this process has 30.00 GiB memory in "
        "use. Of the allocated memory 29.00 GiB is allocated by PyTorch, and 0 bytes is reserved by "
        "PyTorch but unallocated.\n"
    )
    assert any(
        "50.0 GiB of this GPU were held by other processes" in n
        for n in verdict_of(tmp_path, text).notes
    )


# -- phases and steps ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frames", "phase"),
    [
        (["trainer.py:training_step", "checkpoint.py:backward", "modeling.py:forward"], "backward"),
        (["trainer.py:evaluation_loop", "trainer.py:compute_loss", "modeling.py:forward"], "evaluation"),
        (["trainer.py:_save_checkpoint", "engine.py:_zero3_consolidated_16bit_state_dict"], "save"),
        # Lightning runs the whole step in the optimizer's closure.
        (["lightning.py:optimizer_step", "torch/optim/adamw.py:step", "module.py:training_step"], "forward"),
        (["peft.py:from_pretrained", "modeling.py:forward"], "load"),
        (["vllm/worker.py:determine_num_available_blocks", "model.py:forward"], "rollout"),
        (["main.py:main"], None),
    ],
)  # fmt: skip
def test_phases_are_known_from_frames(frames, phase):
    lines = [
        f'  File "/e/{file}", line 7, in {name}'
        for file, name in (frame.split(":") for frame in frames)
    ]
    found = phase_of_frames(lines)
    assert (found[0] if found else None) == phase


def test_frames_of_ipython_and_rich_are_read():
    ipython = ["File /e/transformers/trainer.py:2113, in Trainer.evaluate(self, eval_dataset)"]
    rich = [
        "│ /e/site-packages/transformers/modeling_utils.py:698 in _load_state_dict_into_meta_model │"
    ]
    older = ["/e/dist-packages/transformers/trainer.py in evaluation_loop(self, dataloader)"]
    assert [phase_of_frames(lines)[0] for lines in (ipython, rich, older)] == [
        "evaluation",
        "load",
        "evaluation",
    ]


@pytest.mark.parametrize(
    ("line", "step"),
    [
        (" 53%|█████▎    | 238/447 [29:08:56<21:14:29, 365.88s/it]", RunPosition(238, 447)),
        ("Train: 5%|▌ | 10/200 [00:10<03:10,  1.01it/s]", RunPosition(10, 200)),
        ("Loading checkpoint shards:  47%|████▋     | 7/15 [03:24<03:59, 29.97s/it]", None),
        ("Map (num_proc=16): 13%|█ | 100/800 [00:03<00:20, 30.1 examples/s]", None),
        ("Evaluating: 50%|█████ | 5/10 [00:03<00:03, 1.2it/s]", None),
        ("1|25|Loss: 1.2345:  10%|█ | 25/250 [01:00<09:00,  2.4s/it]", RunPosition(25, 250)),
        ("[titan] step: 30  loss:  8.1234  memory: 12.34GiB(15.61%)  tps: 5,000", RunPosition(30)),
        (" [2025-01-01 00:00:00] iteration       12/     100 | consumed samples: 96 |", RunPosition(12, 100)),
        ("[batch=12/4800]:", RunPosition(12, 4800)),
        ("Epoch 1 | iter 48 step 3 | loss train: 1.2", RunPosition(3)),
        (" [ 501/1500 06:35 < 13:11, 1.26 it/s, Epoch 1/3]", RunPosition(501, 1500)),
        ("nothing of the kind 5/7", None),
    ],
)  # fmt: skip
def test_steps_are_read_from_the_lines_of_every_framework(line, step):
    assert step_in(line) == step


def test_a_bar_that_is_drawn_again_does_not_end_a_save(tmp_path):
    bar = "\r" + BAR.format(percent=50, step=200)
    saving = "\n[INFO|trainer.py:3639] >> Saving model checkpoint to out/checkpoint-200\n"
    assert verdict_of(tmp_path, bar + saving + bar + "\nKilled\n").phase == "save"
    later = "\r" + BAR.format(percent=50, step=203)
    assert verdict_of(tmp_path, bar + saving + later + "\nKilled\n").phase == "train"


# -- reading ------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_logs_are_read(tmp_path, pack):
    verdict = verdict_of(tmp_path, pack(b"x\n" * 9 + OOM.format(gpu=2).encode()))
    assert (verdict.cause.origin.gpu, verdict.cause.line) == (2, 10)


def test_a_damaged_archive_is_told_and_what_came_before_counts(tmp_path):
    file = tmp_path / "train.log.gz"
    text = OOM.format(gpu=2).encode() + b"".join(b"%d\n" % (n * 7919) for n in range(900_000))
    file.write_bytes(gzip.compress(text)[:-20_000])
    (log,), (error,) = read_logs([str(file)])
    assert "damaged" in error.message
    assert log.signs[0].origin.gpu == 2


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_other_encodings_are_read(tmp_path, encoding):
    assert verdict_of(tmp_path, OOM.format(gpu=4).encode(encoding)).cause.origin.gpu == 4


def test_colours_and_broken_lines_do_not_hide_the_figures(tmp_path):
    text = (
        "\x1b[1;31mOutOfMemoryError: \x1b[0mCUDA out of memory. Tried to allocate \x1b[1;36m44.00\x1b[0m MiB "
        "\x1b[1m(\x1b[0mGPU \x1b[1;36m0\x1b[0m; \n\x1b[1;36m23.69\x1b[0m GiB total capacity; 21.60 GiB already "
        "\nallocated; 12.00 MiB free; 22.00 GiB reserved in total by PyTorch)\n"
    )
    memory = verdict_of(tmp_path, text).cause.memory
    assert (memory.tried, memory.gpu, memory.total) == (44 * 2**20, 0, round(23.69 * GIB))
    assert memory.allocated == round(21.6 * GIB)


def test_a_line_without_end_is_searched_in_pieces(tmp_path):
    filler = b"x" * (3 << 20)
    text = filler + OOM.format(gpu=6).strip().encode() + filler
    verdict = verdict_of(tmp_path, text)
    assert verdict.cause.origin.gpu == 6
    assert verdict.cause.memory.total == round(79.1 * GIB)
    assert len(verdict.cause.text) < 400


@pytest.mark.parametrize("before", [(1 << 20) - 40, (1 << 20) + (1 << 13) - 300])
def test_a_message_across_the_edge_of_what_is_read_at_once_is_whole(tmp_path, before):
    text = b"y" * before + b"\n" + OOM.format(gpu=7).encode()
    verdict = verdict_of(tmp_path, text + b"z\n" * 100)
    assert verdict.cause.memory.allocated == 76 * GIB
    assert verdict.cause.line == 2


def test_a_million_repetitions_are_counted_not_kept(tmp_path):
    file = tmp_path / "train.log"
    file.write_text(OOM.format(gpu=0) * 1500)
    log = scan(str(file))
    assert log.counts["gpu-out-of-memory"] == 1500
    assert len(log.signs) == 64


def test_names_of_nothing_are_usage_errors(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        read_logs([str(tmp_path / "gone.log")])
    with pytest.raises(UsageError, match="is a folder"):
        read_logs([str(tmp_path)])


WORDS = st.sampled_from(
    [
        *(needle.decode() for row in SIGNATURES for needle in row.needles),
        *(marker.decode() for marker, _ in MARKERS),
        OOM.format(gpu=3), "[rank1]: ", "\r", "\n", "\x1b[31m", "\0", "1e999", "-9", "[0]:\n",
        "exitcode  : -9 (pid: 99999999999999999999)\n", "rank : 1 (local_rank: 1)\n", "%|█| ",
        "9/0 [00:00<?, ?it/s]", "2024-99-99 99:99:99", 'File "x.py", line 1, in backward\n',
        "time : 0000-00-00_00:00:00\n", "host : \n", "Tried to allocate . GiB", "memory: 1GiB(",
        "'memory(GiB)': 1e400", "train_mem_gpu_peaked_delta: -5", "Killed process 7 (", "anon-rss:kB",
    ]
)  # fmt: skip


@pytest.mark.slow
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(WORDS | st.text(max_size=8), max_size=30))
def test_no_log_is_too_odd(tmp_path, pieces):
    file = tmp_path / "odd.log"
    file.write_bytes("".join(pieces).encode("utf-8", "surrogatepass"))
    examination = examine([scan(str(file))])
    assert render(examination)
    assert json.dumps(diagnose_object(examination), allow_nan=False)
    assert annotation(examination).count("\n") == 1


def test_lines_that_patterns_could_get_lost_in_are_cut(tmp_path):
    text = "/" * 300_000 + "\n" + 'File "' * 50_000 + "\n" + "0%|" * 90_000 + "\nKilled\n"
    assert verdict_of(tmp_path, text).outcome == "killed"


# -- tables -------------------------------------------------------------------------------


def test_rules_that_explain_deaths_exist():
    names = {rule.name for rule in all_rules()}
    known = {name for group in _KNOWN.values() for name in group.split()}
    assert known <= names


def test_every_needle_can_be_found_in_what_its_pattern_wants():
    """A pattern without a needle in it would never be asked."""
    for row in SIGNATURES:
        assert row.needles, row.name
    functions = [name for names in _BY_PHASE.values() for name in names.split()]
    assert len(functions) == len(set(functions))
    for form in _FORMS:
        words = re.sub(rb"\\(.)", rb"\1", form.pattern.pattern)
        assert form.needle in words or form.needle.split()[-1] in words, form.key
