"""Many files: in batches that belong together, in several processes, of which some die."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest

from oomlint.cli import checking
from oomlint.cli.app import run
from oomlint.files.workspace import Workspace
from oomlint.session import many
from oomlint.session.batches import batches
from oomlint.session.process_pool import Lost, can_fork, shared_out

forks = pytest.mark.skipif(not can_fork(), reason="this system cannot fork")

RUN = """\
base_model: meta-llama/Meta-Llama-3-8B
datasets: [{path: a/b, type: alpaca}]
sequence_len: 8192
micro_batch_size: 16
num_epochs: 1
learning_rate: 1e-5
deepspeed: %s
"""
ZERO = '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto"}'


def _project(folder: Path, name: str, configs: int, reference: str = "ds.json") -> None:
    own = folder / name
    own.mkdir(parents=True)
    (own / "ds.json").write_text(ZERO)
    for number in range(configs):
        (own / f"train{number}.yaml").write_text(RUN % reference)


# -- batches -------------------------------------------------------------------------------


def _batches(folder: Path, size: int) -> list[list[str]]:
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    found = [list(batch.names) for batch in batches(Workspace(folder), names, size)]
    assert sorted(name for batch in found for name in batch) == names
    return found


def test_folders_that_mention_nobody_are_batches_of_their_own(tmp_path):
    for name in ("one", "two", "three"):
        _project(tmp_path, name, 3)
    assert [len(batch) for batch in _batches(tmp_path, 4)] == [4, 4, 4]
    assert [len(batch) for batch in _batches(tmp_path, 8)] == [8, 4]


@pytest.mark.parametrize("mention", ["../two/ds.json", "two/ds.json", "/workspace/two/ds.json"])
def test_what_names_a_path_into_another_folder_stays_with_it(tmp_path, mention):
    _project(tmp_path, "one", 3, mention)
    _project(tmp_path, "two", 3)
    assert [len(batch) for batch in _batches(tmp_path, 4)] == [8]


@pytest.mark.parametrize(
    "script", ["cd two && axolotl train x.yaml", 'path = os.path.join("two", "ds.json")']
)
def test_scripts_name_folders_in_their_own_ways(tmp_path, script):
    _project(tmp_path, "one", 3)
    _project(tmp_path, "two", 3)
    (tmp_path / "one" / "go.sh").write_text(script)
    [together] = [batch for batch in _batches(tmp_path, 4) if "one/go.sh" in batch]
    assert "two/train0.yaml" in together


@pytest.mark.parametrize(
    ("mention", "is_together"),
    [
        ("# tune run two/generate.py", False),
        ("# tune run two/train0", True),
        ("# see two/train0.yaml.", True),
        ("two/$NAME.yaml", True),
        ("two/*.yaml", True),
        ("two/train$NAME.yaml", True),
        ("two/../two/ds.json", True),
        ("two/notes.txt", True),
        ("two", False),
        ("'two'", True),
    ],
)
def test_a_mention_of_what_is_not_there_means_nothing_there(tmp_path, mention, is_together):
    _project(tmp_path, "one", 3)
    _project(tmp_path, "two", 3)
    (tmp_path / "one" / "train0.yaml").write_text(mention)
    names = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.*"))
    (tmp_path / "two" / "notes.txt").touch()  # is not linted
    found = batches(Workspace(tmp_path), names, 4)
    [together] = [batch for batch in found if "one/train0.yaml" in batch.names]
    assert ("two/train0.yaml" in together.names) is is_together


def test_a_file_beside_the_folders_stays_with_those_that_name_it(tmp_path):
    _project(tmp_path, "one", 3, "shared.json")
    _project(tmp_path, "two", 3)
    (tmp_path / "shared.json").write_text(ZERO)
    [together] = [batch for batch in _batches(tmp_path, 4) if "shared.json" in batch]
    assert "one/train0.yaml" in together
    assert "two/train0.yaml" not in together


@pytest.mark.parametrize("name", ["前言", "my configs", "notes [1]", "(1)"])
def test_names_in_any_script_or_of_several_words_are_found(tmp_path, name):
    _project(tmp_path, "one", 3, f"../{name}/ds.json")
    _project(tmp_path, name, 3)
    _project(tmp_path, "three", 3)
    assert sorted(len(batch) for batch in _batches(tmp_path, 4)) == [4, 8]


def test_a_name_of_several_words_is_looked_for_only_where_one_of_them_stands(tmp_path, monkeypatch):
    for number in range(8):
        (tmp_path / f"text [{number}]").mkdir()
        (tmp_path / f"text [{number}]" / "a.json").write_text('{"a": 1}')
    looked: list[bytes] = []
    monkeypatch.setattr(
        "oomlint.session.batches._ways_on", lambda word, data: looked.append(word) or set()
    )
    _batches(tmp_path, 4)
    assert looked == []


def test_a_name_that_many_folders_have_means_the_nearest(tmp_path):
    _project(tmp_path, "one", 3)
    _project(tmp_path, "two", 9)
    assert ["one/ds.json", *(f"one/train{n}.yaml" for n in range(3))] in _batches(tmp_path, 4)


def test_folders_that_are_too_large_are_taken_apart(tmp_path):
    for name in ("all/one", "all/two"):
        _project(tmp_path, name, 3)
    assert [len(batch) for batch in _batches(tmp_path, 4)] == [4, 4]


# -- processes -----------------------------------------------------------------------------


@forks
def test_every_item_gets_its_result():
    assert sorted(shared_out(lambda n: n * n, range(20), 3)) == [(n, n * n) for n in range(20)]


@forks
def test_an_item_whose_process_was_killed_is_tried_again(tmp_path):
    marker = tmp_path / "killed"

    def work(number: int) -> int:
        if number == 3 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    assert sorted(shared_out(work, range(8), 2)) == [(n, n) for n in range(8)]
    assert marker.exists()


@forks
def test_an_item_that_kills_every_process_is_lost_and_nothing_else():
    def work(number: int) -> int:
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    found = dict(shared_out(work, range(8), 2))
    assert isinstance(found.pop(3), Lost)
    assert found == {n: n for n in range(8) if n != 3}


@forks
def test_an_exception_is_told_in_words():
    def work(number: int) -> float:
        return 1 / number

    found = dict(shared_out(work, range(3), 2))
    assert str(found[0]) == "division by zero (ZeroDivisionError)"
    assert found[2] == 0.5


# -- reports -------------------------------------------------------------------------------


@pytest.fixture
def projects(tmp_path, monkeypatch):
    """Six times three configs and what they share, as if that were many."""
    for number in range(6):
        _project(tmp_path, f"project{number}", 3)
    (tmp_path / "project5" / "broken.yaml").write_text("base_model: [\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checking, "FEW", 5)
    monkeypatch.setattr(many, "FEW", 5)
    monkeypatch.setattr(many, "batches", partial(batches, size=4))
    return tmp_path


FORMATS = ("text", "json", "sarif", "markdown")


@pytest.mark.slow
@forks
@pytest.mark.parametrize("output_format", FORMATS)
def test_the_report_is_the_same_however_many_processes_made_it(projects, capfd, output_format):
    said = []
    for jobs in ("1", "3"):
        words = ["check", ".", "--verbose", "--output-format", output_format, "--jobs", jobs]
        status = run(words)
        said.append((status, *capfd.readouterr()))
    assert said[0] == said[1]
    assert "project4/train2.yaml" in said[0][1]


@pytest.mark.slow
def test_batches_report_what_all_files_at_once_do(projects, capfd, monkeypatch):
    run(["check", ".", "--jobs", "1"])
    in_batches = capfd.readouterr()
    monkeypatch.setattr(checking, "FEW", 100)
    run(["check", ".", "--jobs", "1"])
    assert capfd.readouterr() == in_batches


@pytest.mark.parametrize("runs", ["with runs beside it", "alone"])
def test_a_batch_of_parts_is_judged_by_whether_others_have_runs(projects, capfd, monkeypatch, runs):
    """A config that no run uses is a remark where there are runs."""
    ignored = '{"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}'
    for project in projects.iterdir():
        if runs == "alone":
            shutil.rmtree(project)
    for number in range(4):
        (projects / f"copy{number}").mkdir()
        for name in ("first.json", "second.json"):
            (projects / f"copy{number}" / name).write_text(ignored)
    run(["check", ".", "--jobs", "1"])
    in_batches = capfd.readouterr()
    monkeypatch.setattr(checking, "FEW", 100)
    run(["check", ".", "--jobs", "1"])
    assert capfd.readouterr() == in_batches
    assert ("no run here uses copy0/first.json" in in_batches.out) is (runs != "alone")
    assert "copy1/first.json" in in_batches.out


def test_what_is_kept_of_a_run_is_little_and_plain(projects):
    from oomlint.judgement import Judgement
    from oomlint.linting.engine import Report, lint
    from oomlint.session.jobs import make_jobs
    from oomlint.session.request import CheckRequest

    def lint_job(job):
        return lint(job.workspace, job.names, job.options, explicit=job.explicit)

    [job] = make_jobs(CheckRequest(), ["."])
    report = many.lint_many(job, lint_job, 2, lambda _done, _all: None)
    assert report is not None
    assert len(report.runs) == 18
    assert not isinstance(report, Report), "who needs the runs themselves is not given this"
    told = [run for diagnosis in report.diagnoses if (run := diagnosis.run) is not None]
    assert {type(run) for run in (*report.runs, *told)} == {Judgement}
    # With its documents it would be no plain data at all.
    assert len(pickle.dumps(report)) < 18 * 6000


def test_what_a_batch_says_does_not_repeat_what_the_user_named(projects, monkeypatch):
    """Of hundreds of files that were named one by one, each of some dozens of batches would tell all."""
    from oomlint.linting.engine import lint
    from oomlint.session.jobs import make_jobs
    from oomlint.session.request import CheckRequest

    condensed, sent = many._condensed, []
    monkeypatch.setattr(many, "_condensed", lambda *a: sent.append(condensed(*a)) or sent[-1])
    paths = sorted(str(path) for path in projects.rglob("train*.yaml"))
    [job] = make_jobs(CheckRequest(), paths)
    assert list(job.workspace.named) == [*map(Path, paths), projects]
    many.lint_many(
        job, lambda j: lint(j.workspace, j.names, j.options), 1, lambda _done, _all: None
    )
    assert len(sent) > 1
    assert {each.workspace.named for each in sent} == {()}


@forks
def test_processes_that_die_before_there_is_work_stop_nothing():
    mother = os.getpid()

    def items():
        for process in multiprocessing.active_children():
            process.join()
        yield 1

    def prepare():
        if os.getpid() != mother:
            os._exit(1)

    [(number, result)] = shared_out(lambda n: n, items(), 3, prepare)
    assert number == 1
    assert isinstance(result, Lost)


@forks
def test_an_interrupt_before_there_is_work_ends_those_who_wait_for_it():
    def items():
        yield 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(shared_out(lambda n: n, items(), 3))
    assert not multiprocessing.active_children()


@forks
def test_a_process_that_dies_costs_its_files_and_is_an_error(projects, capfd, monkeypatch):
    condensed = many._condensed

    def fatal(report, bounds):
        if any("project2/" in path for path in report.recognised):
            os.kill(os.getpid(), signal.SIGKILL)
        return condensed(report, bounds)

    monkeypatch.setattr(many, "_condensed", fatal)
    status = run(["check", ".", "--output-format", "json", "--jobs", "2"])
    said = json.loads(capfd.readouterr().out)
    [lost] = [e for e in said["errors"] if e["kind"] == "internal"]
    assert "signal 9" in lost["message"]
    assert status == 3
    found = {finding["path"].partition("/")[0] for finding in said["findings"]}
    assert found == {f"project{number}" for number in (0, 1, 3, 4, 5)}


@pytest.mark.parametrize("jobs", ["0", "-2", "many"])
def test_a_number_of_jobs_that_makes_no_sense_is_refused(tmp_path, monkeypatch, jobs, capfd):
    monkeypatch.chdir(tmp_path)
    assert run(["check", ".", "--jobs", jobs]) == 2
    assert "--jobs" in capfd.readouterr().err


@forks
def test_what_other_processes_saw_is_kept_with_the_check(projects, capfd):
    from oomlint.files.dependencies import recording, still_holds

    with recording() as sights:
        run(["check", ".", "--jobs", "2"])
    capfd.readouterr()
    assert still_holds(sights)
    (projects / "project3" / "train1.yaml").write_text(RUN % "other.json")
    assert not still_holds(sights)


@forks
@pytest.mark.parametrize("task", [lambda: bytes(4 << 20), signal.pause])
def test_processes_end_when_the_one_that_hands_out_is_killed(task):
    """Also those that have more to tell than a pipe holds, or are at work for long: of each, a pipe to us stays open as
    long as it lives."""
    alive, living = multiprocessing.Pipe(duplex=False)
    begun = multiprocessing.Semaphore(0)

    def work(_item: int) -> object:
        begun.release()
        return task()

    def hand_out() -> None:
        results = shared_out(work, range(4), 2)
        next(results)
        signal.pause()

    main = multiprocessing.get_context("fork").Process(target=hand_out)
    main.start()
    living.close()
    for _ in range(2):
        assert begun.acquire(timeout=60)
    os.kill(main.pid, signal.SIGKILL)
    main.join()
    assert alive.poll(60), "a process still waits"
    with pytest.raises(EOFError):
        alive.recv()
