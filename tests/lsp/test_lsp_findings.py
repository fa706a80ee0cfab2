"""Diagnostics as an editor gets them: pushed, pulled, across files, while typing."""

import json
from pathlib import Path

import pytest
from lsprotocol import types
from pygls.uris import to_fs_path
from tests.configs import AXOLOTL

from oomlint.documents.text import Source, Span
from oomlint.lsp.positions import Positions

pytestmark = pytest.mark.asyncio

WITH_DEEPSPEED = """\
base_model: meta-llama/Meta-Llama-3-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 2048
micro_batch_size: 1
gradient_checkpointing: true
optimizer: adamw_torch_fused
bf16: true
flash_attention: true
deepspeed: ds.json
"""


FLOW = (
    "micro_batch_size: 8", "base_model: meta-llama/Llama-3.2-3B", "sequence_len: 4096",
    "datasets: [{path: tatsu-lab/alpaca, type: alpaca}]", "sample_packing: true", "bf16: true",
    "flash_attention: true", "optimizer: adamw_torch_fused",
)  # fmt: skip


def deepspeed(stage):
    return json.dumps({"zero_optimization": {"stage": stage}, "bf16": {"enabled": True}}) + "\n"


def codes(found):
    return {d.code for d in found}


async def test_a_finding_has_its_place_code_page_and_severity(editor):
    editor.open("train.yaml")
    found = await editor.told("train.yaml")
    batch = next(d for d in found if d.code == "OOM102")
    assert batch.range == types.Range(types.Position(6, 0), types.Position(6, 19))
    assert batch.severity == types.DiagnosticSeverity.Error
    assert batch.source == "oomlint"
    page = Path(to_fs_path(batch.code_description.href)).read_text("utf-8")
    assert page.startswith("# micro-batch-too-large (OOM102)"), "the page that is installed"
    assert batch.data["name"] == "micro-batch-too-large"
    assert "GiB" in " ".join(batch.data["details"]), "more than the title is in the data"
    whole = next(d for d in found if d.code == "OOM100")
    assert whole.message.startswith("needs 185 of 79.1 GiB per GPU")


async def test_what_is_not_a_training_config_is_left_alone(editor):
    editor.open("notes.yaml", "hello: world\nlist: [1, 2\n")
    assert await editor.told("notes.yaml", lambda found: found == []) == []


async def test_an_edit_changes_the_findings_and_broken_text_is_an_error(editor):
    editor.open("train.yaml")
    await editor.told("train.yaml", lambda f: "OOM102" in codes(f))
    text = (editor.folder / "train.yaml").read_text()
    editor.change("train.yaml", text + "gradient_checkpointing: true\n")
    await editor.told("train.yaml", lambda f: f and "OOM101" not in codes(f))
    editor.change("train.yaml", text + "a: [\n")
    assert codes(await editor.told("train.yaml", lambda f: "parse" in codes(f))) == {"parse"}
    editor.change("train.yaml", text)
    await editor.told("train.yaml", lambda f: "OOM101" in codes(f))
    editor.close("train.yaml")
    await editor.told("train.yaml", lambda f: f == [])


@pytest.mark.parametrize(
    ("encoding", "column"),
    [
        (types.PositionEncodingKind.Utf8, 13),
        (types.PositionEncodingKind.Utf16, 11),
        (types.PositionEncodingKind.Utf32, 10),
    ],
)
async def test_columns_are_counted_as_agreed(editors, tmp_path, encoding, column):
    text = "{" + ", ".join(["note: 😀", *FLOW]) + "}\n"
    (tmp_path / "train.yaml").write_text(text)
    editor = await editors(tmp_path, encodings=[encoding])
    editor.open("train.yaml")
    found = await editor.told("train.yaml", lambda f: "OOM102" in codes(f))
    batch = next(d for d in found if d.code == "OOM102")
    assert batch.range.start == types.Position(0, column)


@pytest.mark.parametrize(("encoding", "column"), [("utf-8", 6), ("utf-16", 4), ("utf-32", 3)])
async def test_positions_count_units_and_come_back(encoding, column):
    source = Source("a.yaml", "x: 1\n\u2028a😀b\r\n")
    positions = Positions(source, encoding)
    offset = source.text.index("b")
    before = {"utf-8": 3, "utf-16": 1, "utf-32": 1}[encoding]
    at = types.Position(1, before + column - 1)
    assert positions.at(offset) == at
    assert positions.offset(at) == offset
    assert positions.at(10_000) == types.Position(2, 0)
    assert positions.offset(types.Position(99, 99)) == len(source.text)
    assert positions.span(types.Range(types.Position(1, 99), types.Position(0, 0))) == Span(
        0, source.text.index("\r")
    )


async def test_an_edit_of_the_deepspeed_json_reaches_the_yaml_that_names_it(editors, tmp_path):
    (tmp_path / "train.yaml").write_text(WITH_DEEPSPEED)
    (tmp_path / "ds.json").write_text(deepspeed(3))
    editor = await editors(tmp_path)
    editor.open("train.yaml")
    editor.open("ds.json")
    good = codes(await editor.told("train.yaml", lambda f: True))
    assert "OOM301" not in good
    editor.change("ds.json", deepspeed(0))
    found = await editor.told("ds.json", lambda f: "OOM301" in codes(f))
    assert any("does not" in d.message or "GiB" in d.message for d in found)
    await editor.told("train.yaml", lambda f: codes(f) != good)
    editor.change("ds.json", deepspeed(3))
    await editor.told("ds.json", lambda f: "OOM301" not in codes(f))
    await editor.told("train.yaml", lambda f: codes(f) == good)


async def test_a_closed_file_of_the_run_gets_findings_while_the_run_is_open(editors, tmp_path):
    (tmp_path / "train.yaml").write_text(WITH_DEEPSPEED)
    (tmp_path / "ds.json").write_text(deepspeed(0))
    editor = await editors(tmp_path)
    editor.open("train.yaml")
    await editor.told("ds.json", lambda f: "OOM301" in codes(f))
    editor.close("train.yaml")
    await editor.told("ds.json", lambda f: f == [])


async def test_a_change_on_disk_counts_once_the_client_tells_of_it(editors, tmp_path):
    (tmp_path / "train.yaml").write_text(WITH_DEEPSPEED)
    editor = await editors(tmp_path)
    editor.open("train.yaml")
    await editor.told("train.yaml", lambda f: any("ds.json" in d.message for d in f))
    (tmp_path / "ds.json").write_text(deepspeed(3))
    change = types.FileEvent(editor.uri("ds.json"), types.FileChangeType.Created)
    editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([change]))
    await editor.told("train.yaml", lambda f: not any("ds.json" in d.message for d in f))


async def test_a_script_that_comes_to_start_a_config_counts(editors, tmp_path):
    (tmp_path / "train.yaml").write_text(AXOLOTL + "gradient_checkpointing: true\n")
    (tmp_path / "run.sh").write_text(
        "accelerate launch --num_processes 8 -m axolotl.cli.train x.yaml\n"
    )
    editor = await editors(tmp_path)
    editor.open("train.yaml")
    editor.open("run.sh")
    await editor.told("train.yaml", lambda f: "OOM100" in codes(f))
    editor.change(
        "run.sh",
        "accelerate launch --num_processes 8 -m axolotl.cli.train train.yaml --micro-batch-size 1\n",
    )
    await editor.told("train.yaml", lambda f: "OOM100" not in codes(f))


async def test_related_places_are_in_other_files(editors, tmp_path):
    (tmp_path / "train.yaml").write_text(
        WITH_DEEPSPEED.replace("sequence_len: 2048", "sequence_len: 32768")
    )
    (tmp_path / "ds.json").write_text(deepspeed(0))
    editor = await editors(tmp_path)
    editor.open("train.yaml")
    found = await editor.told("train.yaml", lambda f: any(d.related_information for d in f))
    related = [i.location.uri for d in found for i in d.related_information or ()]
    assert set(related) <= {editor.uri("train.yaml"), editor.uri("ds.json")}
    assert editor.uri("ds.json") in related


async def test_a_client_that_pulls_is_not_pushed_to(editors, tmp_path):
    (tmp_path / "train.yaml").write_text(WITH_DEEPSPEED)
    (tmp_path / "ds.json").write_text(deepspeed(0))
    editor = await editors(tmp_path, profile="neovim@0.11")
    editor.open("train.yaml")
    found = await editor.client.text_document_diagnostic_async(
        types.DocumentDiagnosticParams(editor.document("train.yaml"))
    )
    assert isinstance(found, types.RelatedFullDocumentDiagnosticReport)
    other = found.related_documents[editor.uri("ds.json")]
    assert "OOM301" in codes(other.items)
    editor.change("train.yaml", WITH_DEEPSPEED + "\n")
    await editor.client.text_document_diagnostic_async(
        types.DocumentDiagnosticParams(editor.document("train.yaml"))
    )
    assert not any(editor.client.diagnostics.values())


async def test_settings_of_the_client_and_of_the_folder(editors, tmp_path):
    (tmp_path / "train.yaml").write_text(AXOLOTL)
    (tmp_path / "oomlint.toml").write_text('hardware = "8xH200-141GB"\n')
    editor = await editors(tmp_path, options={"select": "OOM100"})
    editor.open("train.yaml")
    found = await editor.told("train.yaml")
    assert codes(found) == {"OOM100"}
    of_h200 = found[0].message
    change = {"oomlint": {"hardware": "8xB200-180GB", "ignore": ["OOM101"]}}
    editor.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(change))
    await editor.told("train.yaml", lambda f: f and all(d.message != of_h200 for d in f))
    change = {"oomlint": {"hardware": "8xNothing"}}
    editor.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(change))
    await editor.told("train.yaml", lambda f: "OOM100" not in codes(f))
    assert any("Nothing" in m.message for m in editor.client.messages)


def whole(found):
    """What the headline says of the whole need."""
    return "".join(d.message for d in found if d.code == "OOM100")


async def test_options_that_nobody_knows_are_told_in_the_editor(editors, tmp_path):
    (tmp_path / "train.yaml").write_text(AXOLOTL)
    editor = await editors(tmp_path, options={"hardwar": "T4", "hardware": "8xH200-141GB"})
    editor.open("train.yaml")
    found = await editor.told("train.yaml")
    assert any("of 140 GiB" in d.message for d in found)
    [message] = [m.message for m in editor.client.messages]
    assert message.endswith("oomlint.hardwar is wrong: unknown key; did you mean hardware?")


async def test_folders_keep_their_own_settings(editors, tmp_path):
    for name, card in (("one", "8xA100-80GB"), ("two", "8xH200-141GB")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.yaml").write_text(AXOLOTL)
        (tmp_path / name / "oomlint.toml").write_text(f'hardware = "{card}"\n')
    editor = await editors(
        tmp_path, options={"other": 1}, folders=[tmp_path / "one", tmp_path / "two"]
    )
    editor.open("one/train.yaml")
    editor.open("two/train.yaml")
    await editor.told("one/train.yaml", lambda f: "79.1 GiB" in whole(f))
    await editor.told("two/train.yaml", lambda f: whole(f) and "79.1 GiB" not in whole(f))


async def test_what_is_closed_unsaved_counts_as_it_is_on_disk(editors, tmp_path):
    (tmp_path / "train.yaml").write_text(AXOLOTL)
    editor = await editors(tmp_path)
    editor.open("train.yaml", AXOLOTL.replace("micro_batch_size: 8", "micro_batch_size: 1"))
    editor.open("other.yaml", "a: 1\n")
    await editor.told("train.yaml", lambda f: "OOM102" not in codes(f))
    editor.close("train.yaml")
    await editor.told("train.yaml", lambda f: not f)
    editor.open("train.yaml")
    assert "OOM102" in codes(await editor.told("train.yaml"))


async def test_a_renamed_file_takes_its_findings_along(editors, tmp_path):
    (tmp_path / "train.yaml").write_text(AXOLOTL)
    editor = await editors(tmp_path)
    editor.open("train.yaml")
    before = codes(await editor.told("train.yaml"))
    (tmp_path / "train.yaml").rename(tmp_path / "renamed.yaml")
    editor.close("train.yaml")
    editor.open("renamed.yaml")
    assert codes(await editor.told("renamed.yaml")) == before
    await editor.told("train.yaml", lambda f: not f)


async def test_a_storm_of_changes_on_disk_is_survived(editors, tmp_path):
    (tmp_path / "train.yaml").write_text(AXOLOTL)
    editor = await editors(tmp_path)
    editor.open("train.yaml")
    await editor.told("train.yaml")
    event = types.FileEvent(editor.uri("train.yaml"), types.FileChangeType.Changed)
    for _ in range(300):
        editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))
    assert "micro_batch_size" in await editor.hover("train.yaml", 6)
