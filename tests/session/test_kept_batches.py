"""Where one file of many has changed, what was said of the batches of all others is said again, and of no other."""

from __future__ import annotations

import os
import pickle
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from oomlint.cli import checking, main
from oomlint.session import cache, many
from oomlint.session.batches import batches

PROJECTS = 4
RUN = """\
base_model: %s
datasets: [{path: a/b, type: alpaca}]
sequence_len: 8192
micro_batch_size: 16
deepspeed: %s
"""
ZERO = '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto"}'
CONFIG = (
    '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, '
    '"num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 4096, "vocab_size": 32000}'
)

Said = tuple[int, bytes, bytes]
Check = Callable[..., tuple[Said, set[str]]]


@pytest.fixture
def check(tmp_path, monkeypatch, capfdbinary) -> Check:
    """Check four projects, each a batch, in one process: what is said, and which of them were linted anew."""
    work = tmp_path / "work"
    for number in range(PROJECTS):
        own = work / f"project{number}"
        own.mkdir(parents=True)
        (own / "ds.json").write_text(ZERO)
        for name, model in (("a", "meta-llama/Meta-Llama-3-8B"), ("b", "./model"), ("c", "x/y")):
            (own / f"{name}.yaml").write_text(RUN % (model, "ds.json"))
    monkeypatch.chdir(work)
    monkeypatch.setenv("OOMLINT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(checking, "FEW", 5)
    monkeypatch.setattr(many, "FEW", 5)
    monkeypatch.setattr(many, "batches", partial(batches, size=4))
    linted: list[str] = []
    original = checking.lint

    def lint(workspace, names, *others, **more):
        linted.extend(names)
        return original(workspace, names, *others, **more)

    monkeypatch.setattr(checking, "lint", lint)

    def check(*words: str) -> tuple[Said, set[str]]:
        linted.clear()
        words = ("check", ".", "--jobs", "1", "--output-format", "json", *words)
        monkeypatch.setattr(sys, "argv", ["oomlint", *words])
        status = main()
        out, err = capfdbinary.readouterr()
        return (status, out, err), {name.partition("/")[0] for name in linted if "/" in name}

    return check


ALL = {f"project{number}" for number in range(PROJECTS)}


def _write(path: str, text: str) -> Callable[[], object]:
    def change() -> None:
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    return change


CHANGES: dict[str, tuple[Callable[[], object], set[str]]] = {
    "a file": (_write("project1/a.yaml", RUN % ("x/y", "ds.json")), {"project1"}),
    "a file that others name": (_write("project1/ds.json", "{}"), {"project1"}),
    "a file that was looked for": (_write("project1/model/config.json", CONFIG), {"project1"}),
    "a file more": (_write("project1/d.yaml", RUN % ("x/y", "ds.json")), ALL),
    "a file less": (lambda: os.unlink("project1/c.yaml"), ALL),
    "a file under another name": (lambda: os.rename("project1/c.yaml", "project1/d.yaml"), ALL),
    "a guide beside it": (_write("project1/README.md", "axolotl train a.yaml"), {"project1"}),
    "a guide of all": (_write("README.md", "accelerate launch -m axolotl.cli.train a.yaml"), ALL),
    "releases of one": (_write("project1/requirements.txt", "deepspeed==0.14.0\n"), {"project1"}),
    "releases of all": (_write("requirements.txt", "transformers==4.40.0\n"), ALL),
    "settings": (_write("oomlint.toml", 'hardware = "T4-16GB"\n'), ALL),
    "settings of one": (_write("project1/oomlint.toml", 'ignore = ["OOM9"]\n'), ALL),
    "a model in the cache of the hub": (
        lambda: _write("../home/hub/models--x--y/refs/main", "1f")()
        or _write("../home/hub/models--x--y/snapshots/1f/config.json", CONFIG)(),
        ALL,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_only_what_saw_a_change_is_linted_again(check: Check, name: str) -> None:
    change, most = CHANGES[name]
    assert check()[1] == ALL
    change()
    said, linted = check()
    assert linted <= most
    assert (said, ALL) == check("--no-cache")


def test_the_others_are_not_linted_again(check: Check) -> None:
    check()
    CHANGES["a file"][0]()
    assert check()[1] == {"project1"}
    CHANGES["a file that was looked for"][0]()
    assert check()[1] == {"project1"}
    CHANGES["a guide beside it"][0]()
    assert check()[1] == {"project1"}


def test_another_question_is_answered_anew(check: Check) -> None:
    check()
    assert check("--hardware", "T4-16GB")[1] == ALL
    assert check("--select", "OOM1")[1] == ALL
    assert check("--unsafe-fixes")[1] == ALL
    assert check("--set", "batch.micro=1")[1] == ALL


def test_another_way_to_print_is_no_other_question(check: Check) -> None:
    check()
    said, linted = check("--output-format", "markdown")
    assert not linted
    assert said == check("--no-cache", "--output-format", "markdown")[0]


def test_fixes_are_worked_out_anew(check: Check) -> None:
    check()
    entries = set(cache.folder().iterdir())
    assert check("--diff")[0] == check("--diff", "--no-cache")[0]
    check("--fix", "--unsafe-fixes")
    assert set(cache.folder().iterdir()) == entries
    assert check()[0] == check("--no-cache")[0]


def test_a_broken_file_costs_its_batch_alone(check: Check) -> None:
    Path("project1/a.yaml").write_text("base_model: [\n")
    assert check()[0][0] == 3
    assert check()[1] == {"project1"}


def test_another_version_keeps_its_own(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    check()
    monkeypatch.setattr(cache, "__version__", "99.0")
    assert check()[1] == ALL


class _Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, ("trapped",))


@pytest.mark.parametrize(
    "answer", [_Trap(), Path("x"), None], ids=["code", "another record", "nothing"]
)
def test_what_is_no_answer_of_ours_is_not_believed(check: Check, answer: object) -> None:
    said, _ = check()
    for file in cache.folder().glob("*.batch"):
        kept = cache.read_entry(file.stem, cache.BATCH)
        assert kept is not None
        sights = zlib.decompress(kept).partition(b"\n")[0]
        entry = zlib.compress(sights + b"\n" + pickle.dumps(answer))
        cache.write_entry(file.stem, cache.BATCH, entry)
    for file in cache.folder().glob("*.check"):
        file.unlink()
    assert check() == (said, ALL)
    assert not Path("trapped").exists()


def test_clean_removes_them(check: Check) -> None:
    check()
    assert len(list(cache.folder().glob("*.batch"))) == PROJECTS
    assert cache.clear() == PROJECTS + 1
    assert not list(cache.folder().iterdir())


def test_no_more_are_kept_than_are_of_use(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MOST_ENTRIES", 3)
    check()
    assert len(list(cache.folder().glob("*.batch"))) <= 3
