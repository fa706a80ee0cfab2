"""A pull request to review: two states of some files, on a GitHub of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.command import oomlint as oomlint
from tests.review import fake_github

AXOLOTL = """\
base_model: meta-llama/Meta-Llama-3-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 4096
micro_batch_size: {micro}
gradient_accumulation_steps: 4
num_epochs: 1
learning_rate: 0.0002
gradient_checkpointing: {checkpointing}
optimizer: adamw_torch
bf16: true
deepspeed: ds.json
output_dir: out
pad_to_sequence_len: true
"""
DEEPSPEED = (
    '{\n  "zero_optimization": {\n    "stage": %d\n  },\n  "bf16": {\n    "enabled": true\n  }\n}\n'
)
SETTINGS = 'hardware = "8xA100-80GB"\nhost-memory = "1TiB"\n'

GOOD = AXOLOTL.format(micro=1, checkpointing="true")
BAD = AXOLOTL.format(micro=8, checkpointing="false")
RUN = {"oomlint.toml": SETTINGS, "train.yaml": GOOD, "ds.json": DEEPSPEED % 3}


def fixed(files: Mapping[str, bytes], folder: Path, *arguments: str) -> dict[str, bytes]:
    """The files as ``oomlint --fix`` leaves them."""
    for path, data in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = oomlint("check", "--fix", *arguments)
    assert result.exit_code in (0, 1), result.output
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


PullRequest = Callable[..., Any]


@contextmanager
def making(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[PullRequest]:
    """What makes a pull request of the change from one state of some files to another; a path that is
    missing from the second is removed. Its forge answers for as long as the context lasts."""
    with ExitStack() as stack:

        def make(before: Mapping[str, str | bytes], after: Mapping[str, str | bytes]) -> Any:
            repository = fake_github.Repository(folder / "repository")
            old = repository.commit({k: _bytes(v) for k, v in before.items()})
            gone = dict.fromkeys(before.keys() - after.keys())
            new = repository.commit({**gone, **{k: _bytes(v) for k, v in after.items()}})
            fake = stack.enter_context(
                fake_github.serving(fake_github.FakeGitHub(repository, old, new))
            )
            patch.setenv("GITHUB_API_URL", fake.url)
            return fake

        for name in (
            "GITHUB_ACTIONS",
            "GITHUB_EVENT_PATH",
            "GITHUB_GRAPHQL_URL",
            "GITLAB_CI",
            "GH_TOKEN",
        ):
            patch.delenv(name, raising=False)
        patch.setenv("GITHUB_TOKEN", fake_github.TOKEN)
        patch.setenv("GITHUB_REPOSITORY", "o/r")
        patch.setenv("GITHUB_REF", "refs/pull/7/merge")
        patch.setattr("time.sleep", lambda _seconds: None)
        (folder / "elsewhere").mkdir()
        patch.chdir(folder / "elsewhere")
        yield make


@pytest.fixture
def pull_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PullRequest]:
    with making(tmp_path, monkeypatch) as make:
        yield make


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
