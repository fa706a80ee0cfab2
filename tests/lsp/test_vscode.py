"""The VS Code extension: what it declares, how it finds oomlint, and the tour through a real VS Code.

What takes npm's packages, a bundle or a browser is skipped where these are not there.
"""

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

EXTENSION = Path(__file__).parents[2] / "editors/vscode"
PACKAGE = json.loads((EXTENSION / "package.json").read_text("utf-8"))
MOST_BYTES = 300_000
INSTALLED = "oomlint[editor] @ git+https://github.com/oomlint/oomlint"

FINDING = """
import { find, installer, isOlder, places } from "./finding";

async function main(): Promise<void> {
  const has = (versions: Record<string, string>) => async (command: string[]) => {
    const said = versions[command.join(" ")];
    if (said === undefined) { throw new Error("not here"); }
    return said;
  };
  const both = places([], "/venv/bin/python", true);
  const out = {
    order: both.map((place) => place.command.join(" ")),
    untrusted: places([], "/venv/bin/python", false).map((place) => place.command.join(" ")),
    given: places(["/opt/oomlint", "lsp"], "/venv/bin/python", true).map((place) => place.command.join(" ")),
    chosen: await find(both, has({ "/venv/bin/python -m oomlint --version": "oomlint 0.1.0", "oomlint --version": "oomlint 9.0" })),
    path: await find(both, has({ "oomlint --version": "oomlint 1.2.3" })),
    old: await find(both, has({ "/venv/bin/python -m oomlint --version": "oomlint 0.0.9" })),
    newer: await find(both, has({ "/venv/bin/python -m oomlint --version": "oomlint 0.0.9", "oomlint --version": "oomlint 0.1.1" })),
    missing: await find(both, has({ "oomlint --version": "command not found" })),
    pip: await installer("/venv/bin/python", has({ "/venv/bin/python -m pip --version": "pip 24" })),
    uv: await installer(undefined, has({ "uv --version": "uv 0.5", "pipx --version": "1" })),
    none: await installer(undefined, has({})) ?? null,
    older: [isOlder("0.0.9", "0.1.0"), isOlder("0.1.0", "0.1.0"), isOlder("0.10.0", "0.9.9"), isOlder("0.1.0.dev3", "0.1.0")],
  };
  console.log(JSON.stringify(out));
}
void main();
"""


def test_the_manifest_says_what_a_store_and_a_careful_user_ask_for():
    assert (EXTENSION / PACKAGE["icon"]).read_bytes().startswith(b"\x89PNG")
    assert {"Linters", "Machine Learning"} <= set(PACKAGE["categories"])
    assert PACKAGE["license"] == "Apache-2.0"
    assert (EXTENSION / "LICENSE").is_file()
    assert f"## {PACKAGE['version']}" in (EXTENSION / "CHANGELOG.md").read_text("utf-8")
    trust = PACKAGE["capabilities"]["untrustedWorkspaces"]
    assert trust["supported"] == "limited"
    settings = PACKAGE["contributes"]["configuration"]["properties"]
    # no folder may name the program that is started; all else is of each folder
    assert settings.pop("oomlint.command")["scope"] == "machine"
    assert {setting["scope"] for setting in settings.values()} == {"resource"}
    assert "onNotebook:jupyter-notebook" in PACKAGE["activationEvents"]
    # VS Code itself knows no TOML: without this a settings file is plain text, and no server is asked
    assert [language["id"] for language in PACKAGE["contributes"]["languages"]] == ["toml"]


def test_the_package_is_small():
    vsix = EXTENSION / "oomlint.vsix"
    if not vsix.is_file():
        pytest.skip("`npm run package` has not been run in editors/vscode")
    assert vsix.stat().st_size < MOST_BYTES
    names = zipfile.ZipFile(vsix).namelist()
    assert {"extension/icon.png", "extension/changelog.md", "extension/LICENSE.txt"} <= set(names)
    assert not [name for name in names if "/src/" in name or "node_modules" in name]


def test_oomlint_is_found_where_the_user_has_it(tmp_path):
    esbuild = EXTENSION / "node_modules/.bin/esbuild"
    if not esbuild.exists():
        pytest.skip("`npm install` has not been run in editors/vscode")
    shutil.copy(EXTENSION / "src/finding.ts", tmp_path)
    (tmp_path / "try.ts").write_text(FINDING)
    bundle = tmp_path / "try.js"
    words = [str(esbuild), "try.ts", "--bundle", "--platform=node", f"--outfile={bundle}"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    ran = subprocess.run(["node", str(bundle)], check=True, capture_output=True, text=True)
    out = json.loads(ran.stdout)
    own = str(Path.home() / ".local/bin/oomlint")  # where uv and pipx put it
    assert out["order"] == ["/venv/bin/python -m oomlint lsp", "oomlint lsp", f"{own} lsp"]
    assert out["untrusted"] == ["oomlint lsp", f"{own} lsp"]
    assert out["given"] == ["/opt/oomlint lsp"]
    assert out["chosen"]["server"]["where"] == "the interpreter /venv/bin/python"
    assert out["path"]["server"]["version"] == "1.2.3"
    assert (out["old"]["kind"], out["old"]["server"]["version"]) == ("old", "0.0.9")
    assert (out["newer"]["kind"], out["newer"]["server"]["where"]) == ("found", "the search path")
    interpreter = "the interpreter /venv/bin/python"
    assert out["missing"] == {
        "kind": "missing",
        "where": [interpreter, "the search path", "~/.local/bin"],
    }
    assert out["pip"] == ["/venv/bin/python", "-m", "pip", "install", "--upgrade", INSTALLED]
    assert out["uv"] == ["uv", "tool", "install", "--upgrade", INSTALLED]
    assert out["none"] is None
    assert out["older"] == [True, False, False, False]


SCENES = {
    "tour": "byte for byte",
    "first": "the first minute is told in single messages",
    "writing": "written, renamed and followed",
}


@pytest.mark.parametrize(("scene", "words"), SCENES.items(), ids=[*SCENES])
def test_a_tour_through_a_real_vs_code(scene, words):
    browser = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    needed = {
        browser: "a browser",
        str(EXTENSION / "oomlint.vsix"): "`npm run package`",
        str(EXTENSION / "try/node_modules/code-server"): "`npm install` in editors/vscode/try",
    }
    missing = [what for path, what in needed.items() if not Path(path).exists()]
    if missing or shutil.which("oomlint") is None:
        pytest.skip(f"the tour needs {', '.join(missing) or 'oomlint on the search path'}")
    ran = subprocess.run(
        ["node", "try.mjs", scene],
        cwd=EXTENSION / "try",
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert words in ran.stdout
