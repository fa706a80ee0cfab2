"""The playground: its edits and links by themselves, and all of it in a browser where there is one."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import oomlint

from .conftest import ROOT

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "playground"
TOOLS = ROOT / "tests" / "tools"
NODE = shutil.which("node")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which(
    "google-chrome"
)  # fmt: skip


def in_node(script: str) -> object:
    if NODE is None:
        pytest.skip("no node on the path")
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_edits_are_applied_by_code_points():
    """Beyond the BMP a letter is two units of JavaScript's strings and one code point."""
    script = f"""
        import {{ applied, changedLines }} from {json.dumps((PAGE / "edits.mjs").as_uri())};
        const before = new Map([["a.yaml", "# 𝒏ote 🙂\\nx: 1\\ny: 2\\n"]]);
        const edits = [{{path: "a.yaml", start: 12, end: 13, replacement: "10"}},
                       {{path: "b.json", start: 0, end: 0, replacement: "{{}}\\n", creates: true}}];
        const after = applied(before, edits);
        console.log(JSON.stringify([[...after], changedLines(before, after)]));
    """
    after, shown = in_node(script)
    assert after == [["a.yaml", "# 𝒏ote 🙂\nx: 10\ny: 2\n"], ["b.json", "{}\n"]]
    kinds = [(line["kind"], line["text"]) for line in shown]
    assert ("cut", "- x: 1") in kinds
    assert ("add", "+ x: 10") in kinds


def test_a_link_holds_the_whole_state():
    script = f"""
        import {{ packed, unpacked }} from {json.dumps((PAGE / "fragment.mjs").as_uri())};
        const state = {{ tab: "files", files: [{{ name: "ä.yaml", text: "x: 🙂\\n".repeat(50) }}] }};
        const text = await packed(state);
        const found = [text, await unpacked(text), await unpacked("nonsense") ?? null, await unpacked("") ?? null];
        console.log(JSON.stringify(found));
    """
    text, state, nonsense, empty = in_node(script)
    assert state == {"tab": "files", "files": [{"name": "ä.yaml", "text": "x: 🙂\n" * 50}]}
    assert (nonsense, empty) == (None, None)
    assert len(text) < 150
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


SCRIPT = """\
#!/bin/bash
# ünïcode 🙂
export FOO="a $B" && CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 \\
    train.py --x '🙂' --y "${Z:-ä}" > log.txt 2>&1
if [ -n "$A" ]; then for i in 1 2; do echo $((i + 1)); done; fi
cat <<EOF
text
EOF
for x in (
"""


def columns_of(tree):
    """What shell_syntax.mjs hands over, of a tree of the Python binding."""
    text = tree.root_node.text.decode()
    units = [0]
    for letter in text:
        units += [units[-1]] * (len(letter.encode()) - 1) + [
            units[-1] + len(letter.encode("utf-16-le")) // 2
        ]
    rows = {
        name: []
        for name in (
            "names",
            "types",
            "fields",
            "named",
            "faults",
            "parents",
            "starts",
            "ends",
            "startRows",
            "endRows",
        )
    }

    def visit(node, above, field):
        at = len(rows["types"])
        rows["names"].append(node.type)
        fault = node.type == "ERROR" or node.is_missing
        values = (
            at,
            field,
            node.is_named,
            fault,
            above,
            units[node.start_byte],
            units[node.end_byte],
            node.start_point.row,
            node.end_point.row,
        )
        for name, value in zip(list(rows)[1:], values, strict=True):
            rows[name].append(value)
        for number, child in enumerate(node.children):
            visit(child, at, node.field_name_for_child(number))

    visit(tree.root_node, -1, None)
    return rows


def test_a_shell_script_has_the_tree_in_a_browser_that_it_has_elsewhere(monkeypatch):
    import tree_sitter
    import tree_sitter_bash

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    data = SCRIPT.encode()
    monkeypatch.setitem(sys.modules, "tree_sitter", tree_sitter)
    monkeypatch.setitem(sys.modules, "tree_sitter_bash", tree_sitter_bash)
    browser = runpy.run_path(str(PAGE / "shell_syntax.py"))
    browser["install"](lambda text: json.dumps(columns_of(parser.parse(text.encode()))))
    other = sys.modules["tree_sitter"]
    assert other is not tree_sitter
    ours = other.Parser(other.Language(sys.modules["tree_sitter_bash"].language())).parse(data)
    theirs = parser.parse(data)
    assert theirs.root_node.has_error

    def told(node):
        before = node.prev_named_sibling
        return (
            node.type, node.is_named, node.has_error, node.start_byte, node.end_byte, node.text,
            node.start_point.row, node.end_point.row, node.child_count, node.named_child_count,
            node.descendant_count, None if before is None else before.type,
            [each.text for each in node.children_by_field_name("argument")],
            None if node.parent is None else node.parent.type, node.child_by_field_name("value") is None,
            [told(child) for child in node.children],
        )  # fmt: skip

    def walked(cursor):
        steps = []
        while True:
            steps.append(cursor.node.type)
            if cursor.goto_first_child():
                continue
            while not cursor.goto_next_sibling():
                if not cursor.goto_parent():
                    return steps

    assert told(ours.root_node) == told(theirs.root_node)
    assert walked(ours.root_node.walk()) == walked(theirs.root_node.walk())


def test_every_example_is_in_trouble_and_has_a_way_out_or_a_cause():
    build = runpy.run_path(str(PAGE / "build.py"))
    examples = build["examples"]()
    assert {Path(file["name"]).suffix for each in examples for file in each["files"]} == {
        ".yaml",
        ".json",
        ".sh",
        ".py",
    }
    for example in examples:
        files = {file["name"]: file["text"] for file in example["files"]}
        report = oomlint.check(
            files, example["hardware"] or None, host_memory=example["memory"] or None
        )
        assert report["runs"], example["name"]
        assert report["errors"] == []
        assert report["findings"]


def test_all_that_the_page_is_made_of_is_copied():
    build = runpy.run_path(str(PAGE / "build.py"))
    assert {file.name for file in PAGE.iterdir() if file.is_file()} == {*build["_PAGE"], "build.py"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The page with all that it loads, from npm, PyPI and this checkout."""
    if NODE is None or CHROMIUM is None:
        pytest.skip("no node or no Chromium on the path")
    if not (TOOLS / "node_modules" / "playwright-core").is_dir():
        pytest.skip("playwright-core is missing: npm install in tests/tools")
    folder = tmp_path_factory.mktemp("playground")
    build = runpy.run_path(str(PAGE / "build.py"))["build"]
    try:
        build(folder, None, None)
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        pytest.skip(f"the playground cannot be built here: {error}")
    return folder


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_it_answers_in_a_browser(built, tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(built))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{server.server_port}"
        done = subprocess.run(
            [
                NODE,
                str(TOOLS / "playground.mjs"),
                f"http://{host}/index.html",
                CHROMIUM,
                str(tmp_path),
            ],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        server.shutdown()
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout)
    assert seen["errors"] == []
    assert seen["hosts"] == [host]  # nothing is loaded from elsewhere, and nothing sent
    assert "may not fit" in seen["first"]
    assert seen["marked"]
    assert seen["bars"] >= 5
    assert not any(seen["wide"].values()), seen["wide"]
    assert "sequence_len: 4096" in seen["applied"]
    assert seen["restored"] == seen["applied"]
    assert "needs 266 GiB of 128 GiB of RAM a node while saving" in seen["host"]
    assert seen["charts"] == [4, 6]  # the host's phases first, the GPU's folded below
    assert "micro batch 3 x 2 accumulation steps: then 40.8 GiB" in seen["help"]
    assert "add --low_cpu_fsdp" in seen["shell"]
    assert "--low_cpu_fsdp" in seen["script"]
    assert seen["machine"] == ""  # the hardware of an example is no answer to what a model needs
    assert seen["unknown"].endswith("Any other model: give its config.json")
    assert "what most train on few cards" in seen["model"]
    assert "model_name_or_path: Qwen/Qwen2.5-1.5B" in seen["written"]
