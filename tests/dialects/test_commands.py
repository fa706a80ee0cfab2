"""Files that commands in containers name: found here where they are mounted from here."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.linked import run_of

from oomlint.dialects import registry
from oomlint.files.workspace import Workspace
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker

_CONFIG = (
    "model_name_or_path: meta-llama/Llama-2-13b-hf\nstage: sft\ndo_train: true\n"
    "finetuning_type: full\ndataset: alpaca\ntemplate: llama2\noutput_dir: out\n"
)
_SKY = "resources: {accelerators: H100}\nrun: llamafactory-cli train PATH\nfile_mounts: MOUNTS\n"
_COMPOSE = (
    "services:\n  t:\n    command: llamafactory-cli train PATH\n    shm_size: 16g\n"
    "    volumes: MOUNTS\n"
)


@pytest.mark.parametrize(
    ("text", "mounts", "path"),
    [
        (_SKY, "{/configs: ./conf}", "/configs/a.yaml"),
        (_SKY, "{/configs/a.yaml: conf/a.yaml, /configs: other}", "/configs/a.yaml"),
        (_SKY, "{/out: {name: bucket}}", "conf/a.yaml"),
        (_COMPOSE, "['./conf:/configs:ro']", "/configs/a.yaml"),
        (_COMPOSE, "[{type: bind, source: ./conf, target: /configs}]", "/configs/a.yaml"),
        (_COMPOSE, "['cache:/root/.cache', '.:/w']", "/w/conf/a.yaml"),
    ],
)
def test_finds_what_is_mounted(text: str, mounts: str, path: str) -> None:
    files = {
        "conf/a.yaml": _CONFIG,
        "job.yaml": text.replace("PATH", path).replace("MOUNTS", mounts),
    }
    run = run_of(files)
    assert run.files == ("conf/a.yaml", "job.yaml")
    assert not run.missing


@pytest.mark.parametrize("text", [_SKY, _COMPOSE])
def test_what_only_the_image_has_is_not_missed(text: str) -> None:
    body = text.replace("PATH", "/app/examples/a.yaml").replace("MOUNTS", "[]")
    workspace = Workspace(Path("/x"), {"job.yaml": body.encode()})
    linked = Linker(workspace, registry(), LinkOptions()).link(["job.yaml"])
    assert not any(run.missing for run in linked.runs)


def test_a_file_that_should_be_here_is_missed() -> None:
    body = _SKY.replace("PATH", "/configs/b.yaml").replace("MOUNTS", "{/configs: ./conf}")
    workspace = Workspace(Path("/x"), {"job.yaml": body.encode()})
    (run,) = Linker(workspace, registry(), LinkOptions()).link(["job.yaml"]).runs
    assert [missing.reference for missing in run.missing] == ["./conf/b.yaml"]
