"""Whatever changes on disk between two checks: the cache answers as a check without it would."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest

from oomlint.cli import checking, main
from oomlint.session import many
from oomlint.session.batches import batches

pytestmark = pytest.mark.slow

RUN = (
    "base_model: {model}\ndatasets:\n  - path: a\nsequence_len: 4096\nmicro_batch_size: {size}\n"
    "deepspeed: {deepspeed}\n"
)
CONFIG = (
    '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": %d, '
    '"num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 4096, "vocab_size": 32000}'
)
SETTINGS = ('hardware = "T4-16GB"\n', 'ignore = ["OOM9"]\n', 'exclude = ["a*"]\n', "")
PINS = ("transformers==4.40.0\n", "deepspeed==0.14.0\n", "")


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.write_text(text)


def a_run(random: Random) -> str:
    model = random.choice(("./model", "acme/secret", "meta-llama/Llama-3.2-1B"))
    deepspeed = random.choice(("ds.json", "../ds.json", "ds/zero.json"))
    return RUN.format(model=model, size=random.choice((1, 64)), deepspeed=deepspeed)


def change(random: Random, top: Path) -> None:
    """One of the things that happen to a project; ``top`` holds it and the home beside it."""
    work = top / "work"
    above = random.choice((work, top))
    stage = f'{{"zero_optimization": {{"stage": {random.randrange(4)}}}}}'
    hub = top / "home" / "hub" / "models--acme--secret"
    files = [file for file in work.rglob("*") if file.is_file()]
    kind = random.randrange(11)
    if kind == 4:
        (above / ".git").mkdir(exist_ok=True)
    elif kind < 7:
        config = CONFIG % random.choice((512, 2048))
        files_of_kind: dict[int, tuple[tuple[Path, str], ...]] = {
            0: ((work / random.choice(("run.yaml", "a.yaml", "sub/b.yaml")), a_run(random)),),
            1: ((random.choice((above / "ds.json", work / "ds" / "zero.json")), stage),),
            2: ((above / "requirements.txt", random.choice(PINS)),),
            3: ((above / "oomlint.toml", random.choice(SETTINGS)),),
            5: ((work / "model" / "config.json", config),),
            6: ((hub / "refs" / "main", "1f"), (hub / "snapshots" / "1f" / "config.json", config)),
        }
        for file, text in files_of_kind[kind]:
            write(file, text)
    elif files:
        move(random, random.choice(files), kind, top)


def move(random: Random, file: Path, kind: int, top: Path) -> None:
    """A file goes, gets another name, or becomes a link."""
    if kind in (7, 8):
        file.unlink()
    elif kind == 9:
        file.rename(file.with_name(f"x{file.name}"))
    else:
        write(top / "linked", a_run(random))
        file.unlink()
        file.symlink_to(top / "linked")


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
@pytest.mark.parametrize("in_batches", [False, True], ids=["at once", "in batches"])
@pytest.mark.parametrize("seed", range(4))
def test_a_check_from_the_cache_says_what_a_new_one_says(
    seed: int,
    in_batches: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    random = Random(f"cache/{seed}")
    monkeypatch.setenv("OOMLINT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    write(tmp_path / "work" / "run.yaml", a_run(random))
    if seed % 2:  # what pins versions in the folder above counts too
        (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    if in_batches:  # what is kept of each counts beside what is of the check
        monkeypatch.setattr(checking, "FEW", 1)
        monkeypatch.setattr(many, "FEW", 1)
        monkeypatch.setattr(many, "batches", partial(batches, size=1))
    words = (
        ".",
        "--jobs",
        "1",
        "--output-format",
        "json",
        *random.choice(((), ("--hardware", "8xA100-80GB"))),
    )

    def said(*more: str) -> tuple[int, bytes, bytes]:
        monkeypatch.setattr(sys, "argv", ["oomlint", *words, *more])
        status = main()
        found = capfdbinary.readouterr()
        return status, found.out, found.err

    kept = 0
    for _ in range(30):
        assert said() == said("--no-cache")
        kept += _is_kept(said)
        change(random, tmp_path)
    assert kept > 10


def _is_kept(said: Callable[..., tuple[int, bytes, bytes]]) -> bool:
    """Whether the check is answered without being made."""
    made: list[object] = []

    def anew(words: object) -> int:
        made.append(words)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oomlint.cli._anew", anew)
        said()
    return not made
