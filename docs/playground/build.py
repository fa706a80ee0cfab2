"""Builds the playground, a page that runs oomlint in the browser, into a folder that any server of files can serve.

    python docs/playground/build.py FOLDER [--pyodide URL] [--wheels FOLDER]

Pyodide and the parser of shell scripts come from npm (``npm pack``) and are served beside the page, so that nothing is
loaded from elsewhere; with ``--pyodide URL`` Pyodide's files are loaded from there, such as from a CDN that has its whole
distribution, which edits Python code too. oomlint itself is built from this checkout, msgspec comes from PyPI, in the
build for Pyodide's platform.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

_EXAMPLES = {
    "examples/axolotl-no-checkpointing": "Axolotl: a misspelt key, no checkpointing",
    "examples/llama-factory-13b-offload": "LLaMA-Factory: offloaded to a small host",
    "examples/llama-factory-70b-zero2": "LLaMA-Factory: 70B under ZeRO-2",
    "examples/deepseek-coder-v2-save": "LLaMA-Factory: dies at the first save",
    "examples/llama-recipes-fsdp": "llama-recipes: launched by a shell script",
    "docs/playground/examples/trl-script": "TRL: a script in Python",
}
# Pyodide's version names the Python that it has: 314 is 3.14.
PYODIDE = "314.0.7"
PLATFORM, PYTHON = "pyemscripten_2026_0_wasm32", "3.14"
_FILES = (
    "pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json",
)  # fmt: skip
# What a check of YAML, JSON, TOML and Python needs; rich and click are the terminal's, pydantic the forges'.
_COMPILED = ("msgspec",)
_PURE = ("ruamel.yaml", "typing_extensions")
# In a whole distribution of Pyodide there is besides what edits Python.
_OF_A_WHOLE_ONE = ("libcst",)
# What reads shell scripts has no build for Pyodide. The parser for JavaScript, and the same grammar in its build:
# the version is that of the Python package which the wheel asks for.
_SHELL = {
    "web-tree-sitter@0.27.2": ("web-tree-sitter.js", "web-tree-sitter.wasm"),
    "tree-sitter-bash@0.25.1": ("tree-sitter-bash.wasm",),
}
_PAGE = (
    "index.html", "style.css", "page.mjs", "edits.mjs", "fragment.mjs", "worker.mjs", "engine.py",
    "shell_syntax.mjs", "shell_syntax.py",
)  # fmt: skip


def build(folder: Path, pyodide: str | None, wheels: Path | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in _PAGE:
        if (HERE / name) != folder / name:
            shutil.copyfile(HERE / name, folder / name)
    (folder / "examples.json").write_text(json.dumps(examples(), indent=1), "utf-8")
    taken = _wheels(folder / "wheels", wheels)
    for package, names in _SHELL.items():
        _npm(folder / "shell", package, names)
    large: tuple[str, ...] = ()
    size = sum(file.stat().st_size for file in taken)
    if pyodide is None:
        _npm(folder / "pyodide", f"pyodide@{PYODIDE}", _FILES)
        large = ("pyodide.asm.wasm", "python_stdlib.zip")
        size += sum((folder / "pyodide" / name).stat().st_size for name in large)
    settings = {
        "pyodide": pyodide.rstrip("/") + "/" if pyodide else "pyodide/",
        "packages": list(_OF_A_WHOLE_ONE) if pyodide else [],
        "shell": "shell/",
        "wheels": [f"wheels/{file.name}" for file in taken],
        "large": large,
        "bytes": size,
    }
    (folder / "playground.json").write_text(json.dumps(settings, indent=1), "utf-8")


def examples() -> list[dict[str, object]]:
    """The examples of the repository and of the page, with the hardware of their settings."""
    found = []
    for folder, title in _EXAMPLES.items():
        settings = ROOT / folder / "oomlint.toml"
        said = tomllib.loads(settings.read_text("utf-8"))
        files = [file for file in sorted((ROOT / folder).iterdir()) if file != settings]
        files.sort(key=lambda file: file.suffix == ".json")
        texts = [{"name": file.name, "text": file.read_text("utf-8")} for file in files]
        found.append(
            {
                "name": title,
                "hardware": said.get("hardware", ""),
                "memory": said.get("host-memory", ""),
                "files": texts,
            }
        )
    return found


def _wheels(folder: Path, given: Path | None) -> list[Path]:
    """oomlint's own wheel and those that it needs, from PyPI or from a folder that has them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if given is not None:
        for wheel in given.glob("*.whl"):
            shutil.copy(wheel, folder)
    else:
        _pip("wheel", "--no-deps", "--wheel-dir", folder, ROOT)
        only = ("--only-binary", ":all:", "--no-deps", "--python-version", PYTHON, "--dest", folder)
        _pip("download", *only, *_PURE)
        _pip("download", *only, "--platform", PLATFORM, "--implementation", "cp", *_COMPILED)
    return sorted(folder.glob("*.whl"))


def _pip(*words: object) -> None:
    quiet = ("--quiet", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", *map(str, words), *quiet], check=True)


def _npm(folder: Path, package: str, names: tuple[str, ...]) -> None:
    """Files of a package of npm that a browser asks for, where the folder does not have them of that version."""
    mark = folder / f".{package.rpartition('@')[0]}"
    if mark.is_file() and mark.read_text() == package:
        return
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as at:
        subprocess.run(
            ["npm", "pack", "--silent", package], cwd=at, check=True, stdout=subprocess.DEVNULL
        )
        with tarfile.open(next(Path(at).glob("*.tgz"))) as archive:
            for name in names:
                member = archive.extractfile(f"package/{name}")
                assert member is not None, f"{package} has no {name}"
                (folder / name).write_bytes(member.read())
    mark.write_text(package)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pyodide", metavar="URL", help="load Pyodide's files from there")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="take these, build none")
    given = parser.parse_args()
    build(given.folder, given.pyodide, given.wheels)


if __name__ == "__main__":
    main()
