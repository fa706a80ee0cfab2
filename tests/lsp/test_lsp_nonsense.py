"""Nothing that a client sends ends the session."""

import json
import subprocess
import sys

import pytest
from tests.configs import AXOLOTL
from tests.ports import connected, free_port

from oomlint.cli import main
from oomlint.errors import UsageError
from oomlint.lsp.options import ClientSettings, asked, options, section

from .conftest import SERVER


class Wire:
    """A client without manners."""

    def __init__(self, process, send, receive):
        self.process, self._send, self._receive = process, send, receive

    def raw(self, data):
        self._send.write(data)
        self._send.flush()

    def message(self, **fields):
        body = json.dumps({"jsonrpc": "2.0", **fields}).encode()
        self.raw(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def answer(self, number):
        while True:
            length = 0
            while line := self._receive.readline().strip():
                if line.lower().startswith(b"content-length"):
                    length = int(line.partition(b":")[2])
            if not length:
                raise AssertionError("the server has gone")
            found = json.loads(self._receive.read(length))
            if found.get("id") == number and "method" not in found:
                return found


@pytest.fixture
def wire():
    process = subprocess.Popen(
        SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    yield Wire(process, process.stdin, process.stdout)
    process.kill()
    process.communicate()


def test_nonsense_is_survived(wire, tmp_path):
    (tmp_path / "train.yaml").write_text(AXOLOTL)
    uri = (tmp_path / "train.yaml").as_uri()
    wire.message(
        id=1,
        method="initialize",
        params={
            "capabilities": {},
            "rootUri": None,
            "initializationOptions": {"hardware": 7, "select": {"a": 1}, "ignore": [3]},
        },
    )
    assert "hoverProvider" in wire.answer(1)["result"]["capabilities"]
    wire.message(method="initialized", params={})
    wire.raw(b"Content-Length: 5\r\n\r\nhello")
    wire.message(method="textDocument/didOpen", params={"nothing": True})
    wire.message(method="no/such/thing", params=[1, 2])
    document = {"uri": uri, "languageId": "yaml", "version": 1, "text": "a: \ud800\n"}
    wire.message(method="textDocument/didOpen", params={"textDocument": document})
    for other in ("untitled:Untitled-1", "http://x/y.yaml", "file:///%00.yaml", "", "file://"):
        wire.message(
            method="textDocument/didOpen", params={"textDocument": {**document, "uri": other}}
        )
    changed = {"uri": uri, "version": 2}
    wire.message(
        method="textDocument/didChange",
        params={"textDocument": changed, "contentChanges": [{"text": AXOLOTL}]},
    )
    wire.message(method="workspace/didChangeConfiguration", params={"settings": [1, "x"]})
    place = {"textDocument": {"uri": uri}, "position": {"line": 10**6, "character": 10**6}}
    wire.message(id=2, method="textDocument/hover", params=place)
    assert "result" in wire.answer(2)
    place["position"] = {"line": 6, "character": 2}
    wire.message(id=3, method="textDocument/hover", params=place)
    assert "micro_batch_size" in wire.answer(3)["result"]["contents"]["value"]
    place["position"] = {"line": -1, "character": 2**31}
    wire.message(id=21, method="textDocument/hover", params=place)
    assert wire.answer(21)["error"]["code"] == -32602, "invalid params"
    wire.message(id=4, method="workspace/executeCommand", params={"command": "rm", "arguments": []})
    assert "error" in wire.answer(4)
    for number, arguments in enumerate(([], [None], [{"uri": 3}], [{"uri": uri, "run": "no"}]), 5):
        params = {"command": "oomlint.estimate", "arguments": arguments}
        wire.message(id=number, method="workspace/executeCommand", params=params)
        assert wire.answer(number).get("result") is None
    wire.message(id=20, method="shutdown")
    assert wire.answer(20)["result"] is None
    wire.message(method="exit")
    assert wire.process.wait() == 0


HEADERS = (
    b"Content-Length: 100000000000\r\n\r\n",
    b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    b"Content-Length: -5\r\n\r\n",
    b"Content-Length: 1e9\r\n\r\n",
    b"Content-Length: 0\r\n\r\n",
    b"Content-Length:\r\n\r\n",
    b"\xff\xfe\x00" * 1000 + b"\r\n",
    b"x" * 200_000 + b"\r\n",
    b"\r\n\r\n",
    b"content-length: 2\r\n\r\n{}",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "header", HEADERS, ids=lambda header: header[:24].decode("latin-1").strip()
)
def test_a_header_that_cannot_be_meant_is_passed_over(wire, header):
    wire.raw(header)
    wire.message(id=1, method="initialize", params={"capabilities": {}})
    assert wire.answer(1)["result"]["serverInfo"]["name"] == "oomlint"


@pytest.mark.slow
def test_it_serves_on_a_local_port(tmp_path):
    port = free_port()
    process = subprocess.Popen([*SERVER, "--tcp", f"127.0.0.1:{port}"])
    try:
        with connected(process, port) as connection, connection.makefile("rwb") as stream:
            client = Wire(process, stream, stream)
            for header in HEADERS:
                client.raw(header)
            client.message(id=1, method="initialize", params={"capabilities": {}})
            assert client.answer(1)["result"]["serverInfo"]["name"] == "oomlint"
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("address", ["0.0.0.0:80", "example.org:7777", "127.0.0.1", "localhost:x"])
def test_only_this_machine_may_connect(address, capsys):
    assert main(["lsp", "--tcp", address]) == 2
    assert "--tcp" in capsys.readouterr().err


def test_other_commands_do_not_pay_for_the_server():
    script = (
        "import sys; from oomlint.cli import main; main(['rules']); "
        "print([m for m in sys.modules if m.startswith(('pygls', 'lsprotocol', 'cattr'))])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip().endswith("[]")


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({"oomlint": {"hardware": "auto"}}, {"hardware": "auto"}),
        ({"settings": {"oomlint": {"hardware": "auto"}}}, {"hardware": "auto"}),
        ({"hardware": "auto", "status": True}, {"hardware": "auto", "status": True}),
        ({"yaml": {}}, None),
        (None, None),
        ([], None),
    ],
)
def test_settings_are_found_where_clients_put_them(sent, read):
    assert section(sent) == read


def test_settings_of_the_wrong_kind_are_named(tmp_path):
    settings = {"hardware": ["x"], "select": 3, "ignore": "OOM1, OOM2", "configuration": "a.toml"}
    found, problems = options(settings)
    given = found.given(tmp_path)
    assert given.hardware is None
    assert given.select is None
    assert given.ignore == ("OOM1", "OOM2")
    assert given.config == tmp_path / "a.toml"
    assert problems == [
        'the setting oomlint.hardware is wrong: should be a text or null, not ["x"]',
        "the setting oomlint.select is wrong: should be a list or a text or null, not 3",
    ]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"hardwar": "auto"}, "oomlint.hardwar is wrong: unknown key; did you mean hardware?"),
        ({"select": ["OOM1", 2]}, "oomlint.select.1 is wrong: should be a text, not 2"),
        ({"gpus": True}, "oomlint.gpus is wrong: should be a whole number or a text or null, not true"),
        ({"status": "yes"}, 'oomlint.status is wrong: should be true or false, not "yes"'),
        ({"hardware": "\ud800"}, "oomlint.hardware is wrong: "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_and_the_rest_counts(settings, problem, tmp_path):
    found, problems = options({**settings, "framework": " trl ", "gpus": 8, **settings})
    assert len(problems) == 1
    assert problems[0].startswith(f"the setting {problem}")
    given = found.given(tmp_path)
    assert (given.framework, given.hardware, given.select) == ("trl", None, None)
    assert given.gpus == (None if "gpus" in settings else "8")


def test_what_only_the_client_needs_is_no_problem():
    own = {"command": ["oomlint", "lsp"], "trace": {"server": "off"}, "status": True}
    assert options({**own, "hardware": None, "select": []})[1] == []


def test_settings_that_come_later_count_and_leave_the_others():
    first = ClientSettings.model_validate({"hardware": "T4", "hostMemory": "1TiB"})
    both = ClientSettings.model_validate({"hardware": "L4"}).over(first)
    assert (both.hardware, both.host_memory) == ("L4", "1TiB")


def test_the_argument_of_a_command():
    assert asked([]) == asked([None]) == asked([{"other": 1}])
    with pytest.raises(UsageError, match="number: should be a whole number or null, not true"):
        asked([{"uri": "file:///a", "number": True}])
    with pytest.raises(UsageError, match="should be an object, not 3"):
        asked([3])
