"""Every command where it may do nothing: what it opens, that it asks for no network and runs nothing.

An audit hook of the interpreter sees all of it on any machine; strace and namespaces, where they
are to be had, see it from outside.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pytest
from tests.ports import connected, free_port
from tests.robustness.conftest import Oomlint, Result, command, snapshot

pytestmark = pytest.mark.slow

TRAP = """\
import os, pathlib
pathlib.Path("was-run").touch()
from transformers import TrainingArguments
TrainingArguments(output_dir=os.popen("touch was-run").read(), per_device_train_batch_size=4)
"""
SCRIPT = "touch was-run\ntorchrun --nproc_per_node $(touch was-run; echo 8) trap.py\n"
TAGGED = "base_model: !!python/object/apply:os.system ['touch was-run']\nmicro_batch_size: 4\n"


LOG = """\
Traceback (most recent call last):
  File "trap.py", line 3, in <module>
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB
"""


def message(method: str, params: object, number: int | None = None) -> str:
    head = {"jsonrpc": "2.0", "method": method, "params": params}
    text = json.dumps(head if number is None else {**head, "id": number})
    return f"Content-Length: {len(text)}\r\n\r\n{text}"


def opening(project: Path) -> str:
    """What an editor says that opens a file and asks about it."""
    uri = (project / "train.yaml").as_uri()
    text = (project / "train.yaml").read_text()
    opened = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
    at = {"textDocument": {"uri": uri}, "position": {"line": 5, "character": 3}}
    return "".join(
        (
            message(
                "initialize",
                {"processId": None, "rootUri": project.as_uri(), "capabilities": {}},
                1,
            ),
            message("initialized", {}),
            message("textDocument/didOpen", {"textDocument": opened}),
            message("textDocument/hover", at, 2),
            message("textDocument/completion", at, 3),
        )
    )


LEAVING = message("shutdown", None, 4) + message("exit", None)


def answers(stream: IO[bytes]) -> Iterator[dict[str, Any]]:
    """The messages of a server, one by one."""
    while line := stream.readline():
        length = int(line.removeprefix(b"Content-Length:"))
        while stream.readline().strip():
            pass
        yield json.loads(stream.read(length))


def pages_of(project: Path) -> Path:
    """The temporary folder that an editor's session has, where the server puts pages of rules."""
    return project.parent / "pages"


def edited(project: Path, wrap: Sequence[str] = (), before: str = "") -> Result:
    """An editor's session with the server, which ends once everything asked has been answered."""
    pages = pages_of(project)
    pages.mkdir()
    with subprocess.Popen(
        [*wrap, *command("lsp", before=before)], cwd=project, env={**os.environ, "TMPDIR": str(pages)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as server:  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(opening(project).encode())
        server.stdin.flush()
        awaited: set[object] = {2, 3, "textDocument/publishDiagnostics"}
        for answer in answers(server.stdout):
            awaited -= {answer.get("id"), answer.get("method")}
            if not awaited:
                break
        assert not awaited, f"the server never sent {awaited}"
        out, err = server.communicate(LEAVING.encode(), timeout=300)
    return subprocess.CompletedProcess(server.args, server.returncode, out.decode(), err.decode())


H100 = ("--isolated", "--hardware", "8xA100-80GB")
COMMANDS = {
    "check": ("check", *H100, "--no-cache", "."),
    "diff": ("check", *H100, "--no-cache", "--diff", "--unsafe-fixes", "."),
    "sarif": ("check", *H100, "--no-cache", "--output-format", "sarif", "."),
    "estimate": ("estimate", *H100, "train.yaml"),
    "fit": ("fit", *H100, "train.yaml"),
    "compare": ("compare", *H100, "train.yaml", "other.yaml"),
    "diagnose": ("diagnose", *H100, "train.log", "--config", "train.yaml"),
    "explain": ("explain", "no-gradient-checkpointing"),
    "rules": ("rules",),
    "hardware": ("hardware",),
    "models": ("models",),
    "lsp": ("lsp",),
}


def session(
    name: str, project: Path, oomlint: Oomlint, wrap: Sequence[str] = (), before: str = ""
) -> Result:
    """One command of ``COMMANDS`` from its start to its end."""
    if name == "lsp":
        return edited(project, wrap, before)
    return oomlint(*COMMANDS[name], wrap=wrap, before=before, given="")


@pytest.fixture
def trapped(project: Path) -> Path:
    """A project in which everything that could be run leaves a mark."""
    (project / "trap.py").write_text(TRAP)
    (project / "train.sh").write_text(SCRIPT)
    (project / "tagged.yaml").write_text(TAGGED)
    other = (project / "train.yaml").read_text().replace("deepspeed: ds.json\n", "")
    (project / "other.yaml").write_text(other.replace("8", "4"))
    (project / "train.log").write_text(LOG)
    (project / "sitecustomize.py").write_text('open("was-run", "w")\n')
    (project / "Makefile").write_text("A := $(shell touch was-run)\ntrain:\n\tbash train.sh\n")
    (project / "model.bin").write_bytes(b"cposix\nsystem\n(S'touch was-run'\ntR.")
    return project


# Every event that Python tells of from the first line of oomlint's on, one JSON a line.
AUDIT = """\
import sys, os, json, codecs
def hook(event, arguments, log=os.open("../audit", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), write=os.write, dumps=json.dumps):
    if event == "open":
        said = [str(arguments[0]), arguments[2]]
    elif event == "exec":
        said = [getattr(arguments[0], "co_filename", "")]
    elif event.partition(".")[0] in ("socket", "subprocess", "os", "pickle", "ctypes", "shutil", "marshal", "urllib"):
        said = [repr(argument) for argument in arguments]
    else:
        return
    write(log, (dumps([event, *said]) + "\\n").encode())
sys.addaudithook(hook)
"""
STARTS = (
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.system",
    "subprocess.Popen",
)
ASKS = (
    "socket.connect",
    "socket.bind",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.sendto",
    "urllib.Request",
)
CHANGES = (
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "os.chown",
)


def audited(folder: Path) -> Iterator[tuple[str, list[Any]]]:
    for line in (folder / "audit").read_text().splitlines():
        event, *arguments = json.loads(line)
        yield event, arguments


def roots() -> list[Path]:
    """Where Python, its packages and oomlint lie, and what they were compiled to."""
    found = [*sys.path, sys.prefix, sys.base_prefix, os.path.dirname(os.__file__)]
    found.append(os.environ.get("PYTHONPYCACHEPREFIX", ""))
    return [Path(entry).resolve() for entry in found if entry and entry != "."]


def is_below(path: str, folder: Path, roots: list[Path]) -> bool:
    file = (folder / path).resolve()
    return any(file.is_relative_to(root) for root in roots)


@pytest.mark.parametrize("name", COMMANDS)
def test_opens_reads_and_runs_nothing_else(name: str, trapped: Path, oomlint: Oomlint) -> None:
    files = snapshot(trapped)
    result = session(name, trapped, oomlint, before=AUDIT)
    assert result.returncode in (0, 1, 3), result.stderr
    assert "Traceback" not in result.stderr
    events = list(audited(trapped.parent))
    pages = pages_of(trapped)
    written = ("__pycache__", "/dev/", str(pages))
    system = [pages, *(Path(p) for p in ("/etc", "/usr", "/dev", "/proc", "/sys", "/run"))]
    readable = [trapped, *roots(), *system]
    for event, arguments in events:
        assert event not in STARTS, (event, arguments)
        assert event not in ASKS, (event, arguments)
        assert not event.startswith("pickle."), (event, arguments)
        # cattrs compiles its converters under an empty file name, others under one in brackets.
        if event == "exec" and arguments[0] and not arguments[0].startswith("<"):
            assert not is_below(arguments[0], trapped, [trapped]), f"{arguments[0]} was run"
        if event == "open" and not arguments[0].isdigit():
            path, flags = arguments
            assert is_below(path, trapped, readable) or not Path(path).exists(), path
            assert not path.endswith("model.bin")
            writes = (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            assert not writes or any(place in path for place in written), path
        if event in CHANGES:
            # What is named within a folder that is open, as rmtree does, is found below.
            words = " ".join(map(str, arguments))
            within = event in ("os.remove", "os.rmdir") and arguments[-1] != "-1"
            assert within or any(place in words for place in written), (event, arguments)
    assert {n: b for n, b in snapshot(trapped).items() if "__pycache__" not in n} == files
    assert not (trapped / "was-run").exists()


def trace(project: Path) -> tuple[list[str], Path]:
    log = project.parent / "trace"
    wrap = ["strace", "-f", "-qq", "-e", "trace=network,process,%file", "-o", str(log)]
    if sys.platform != "linux" or shutil.which("strace") is None:
        pytest.skip("needs strace")
    if subprocess.run([*wrap, "true"], capture_output=True, check=False).returncode:
        pytest.skip("tracing is not permitted here")
    return wrap, log


def test_modules_in_the_working_directory_are_not_imported(trapped: Path) -> None:
    """``python -m`` would look there first."""
    names = (
        "click",
        "libcst",
        "rich",
        "ruamel",
        "tree_sitter",
        "msgspec",
        "tomllib",
        "oomlint_rules",
        "difflib",
    )
    for name in names:
        (trapped / f"{name}.py").write_text("open('was-run', 'w')\n")
    words = [sys.executable, "-m", "oomlint", *COMMANDS["check"]]
    result = subprocess.run(words, cwd=trapped, capture_output=True, text=True, check=False)
    assert result.returncode in (1, 3), result.stderr
    assert not (trapped / "was-run").exists()


@pytest.mark.parametrize("name", ["check", "fit", "lsp"])
def test_seen_from_outside(name: str, trapped: Path, oomlint: Oomlint) -> None:
    wrap, log = trace(trapped)
    result = session(name, trapped, oomlint, wrap=wrap)
    assert result.returncode in (0, 1, 3), result.stderr
    calls = log.read_text(errors="replace").splitlines()
    assert any("train.yaml" in call for call in calls)
    # An event loop wakes itself up through a pair of sockets of its own.
    assert not [c for c in calls if re.search(r"\b(socket|connect|bind)\(", c)]
    assert len([c for c in calls if re.search(r"\bexecve\(", c) and c.endswith(" = 0")]) == 1
    assert not [c for c in calls if re.search(r"\b(fork|vfork)\(", c)]
    writes = [c for c in calls if re.search(r"open(at)?\(.*O_(WRONLY|RDWR|CREAT)", c)]
    places = ("__pycache__", '"/dev/', str(pages_of(trapped)))
    assert not [c for c in writes if not any(place in c for place in places)]
    assert not [c for c in calls if "model.bin" in c and "open" in c]
    assert not (trapped / "was-run").exists()


def test_fixes_write_below_the_project_only(trapped: Path, oomlint: Oomlint) -> None:
    wrap, log = trace(trapped)
    oomlint(
        "--isolated",
        "--no-cache",
        "--fix",
        "--unsafe-fixes",
        "--hardware",
        "8xA100-80GB",
        ".",
        wrap=wrap,
    )
    assert not (trapped / "was-run").exists()
    calls = log.read_text(errors="replace").splitlines()
    renames = [c for c in calls if re.search(r"\brename(at2?)?\(", c) and "__pycache__" not in c]
    assert renames
    for call in renames:
        *_, target = re.findall(r'"([^"]*)"', call)
        assert (trapped / target).resolve().parent == trapped.resolve()


def test_a_link_out_of_the_project_is_not_followed(project: Path, oomlint: Oomlint) -> None:
    outside = project.parent / "outside.yaml"
    outside.write_bytes((project / "train.yaml").read_bytes())
    (project / "train.yaml").unlink()
    (project / "train.yaml").symlink_to(outside)
    before = outside.read_bytes()
    result = oomlint("--isolated", "--fix", "--hardware", "8xA100-80GB", ".")
    assert result.returncode == 1
    assert "train.yaml lies outside of what is checked" in " ".join(result.stdout.split())
    assert outside.read_bytes() == before
    assert (project / "train.yaml").is_symlink()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_read_only_tree_without_network(name: str, trapped: Path, oomlint: Oomlint) -> None:
    wrap = ["unshare", "--mount", "--net", "--map-root-user"]
    if sys.platform != "linux" or shutil.which("unshare") is None:
        pytest.skip("needs Linux namespaces")
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && cd "$0" || exit 77; "$@"'
    wrap += ["bash", "-c", script, str(trapped)]
    if subprocess.run([*wrap, "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces are not permitted here")
    result = session(name, trapped, oomlint, wrap=wrap)
    assert result.returncode in (0, 1, 3), result.stderr
    assert result.stdout
    assert "internal error" not in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Any]:
    """A GitHub on this machine with a pull request."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    from tests.review import fake_github
    from tests.review.conftest import BAD, RUN

    repository = fake_github.Repository(tmp_path / "repository")
    old = repository.commit({name: text.encode() for name, text in RUN.items()})
    traps = {"train.yaml": BAD, "trap.py": TRAP, "sitecustomize.py": TRAP, "conftest.py": TRAP}
    new = repository.commit({name: text.encode() for name, text in traps.items()})
    fake = fake_github.FakeGitHub(repository, old, new)
    yield from fake_github.serving.__wrapped__(fake)  # type: ignore[attr-defined]


def environment(forge: Any, token: str) -> dict[str, str]:
    return {
        "GITHUB_API_URL": forge.url, "GITHUB_TOKEN": token, "GITHUB_REPOSITORY": "o/r",
        "GITHUB_REF": "refs/pull/7/merge", "GH_TOKEN": "", "GITLAB_CI": "", "GITHUB_EVENT_PATH": "",
    }  # fmt: skip


def test_review_asks_the_forge_and_nobody_else(forge: Any, project: Path, oomlint: Oomlint) -> None:
    result = oomlint(
        "review", "--dry-run", "--verbose", before=AUDIT, environ=environment(forge, forge.token)
    )
    assert result.returncode == 1, result.stderr
    assert not [method for method, _, _ in forge.asked if method not in ("GET", "POST")]
    assert not forge.reviews
    host, port = forge.url.rpartition("/")[2].split(":")
    said = list(audited(project.parent))
    for _, arguments in (e for e in said if e[0] == "socket.connect"):
        assert f"('{host}', {port})" in arguments[1]
    for _, arguments in (e for e in said if e[0] == "subprocess.Popen"):
        assert arguments[0].strip("'").rpartition("/")[2] == "git"
    assert forge.token not in result.stdout + result.stderr
    assert not list(project.parent.rglob("was-run"))


def test_the_server_on_a_port_is_for_this_machine_alone(project: Path) -> None:
    port = free_port()
    words = command("lsp", "--tcp", f"localhost:{port}", before=AUDIT)
    with subprocess.Popen(words, cwd=project, stderr=subprocess.DEVNULL) as server:
        try:
            connected(server, port).close()
        finally:
            server.kill()
    events = list(audited(project.parent))
    bound = [arguments[1] for event, arguments in events if event == "socket.bind"]
    assert bound
    assert all(re.match(r"\('(127\.0\.0\.1|::1)', ", address) for address in bound), bound
    assert not [event for event, _ in events if event in ("socket.connect", "socket.sendto")]


@pytest.mark.parametrize("token", ["ghp_" + "s3cret" * 6, "two\nlines-s3cret", "\udcff-s3cret"])
def test_a_token_is_never_printed(token: str, forge: Any, oomlint: Oomlint) -> None:
    """The forge refuses the token and repeats it."""
    result = oomlint("review", "--dry-run", "--verbose", environ=environment(forge, token))
    assert result.returncode in (2, 3), result.stderr
    assert "s3cret" not in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
