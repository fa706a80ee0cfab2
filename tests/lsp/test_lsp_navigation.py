"""Links, definitions, the outline and renamed files: how the files of a run hang together."""

import pytest
from lsprotocol import types
from tests.configs import AXOLOTL

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/train.yaml").write_text(AXOLOTL + "deepspeed: configs/ds.json\n")
    (tmp_path / "configs/ds.json").write_text('{"zero_optimization": {"stage": 2}}\n')
    (tmp_path / "run.sh").write_text("axolotl train configs/train.yaml --micro-batch-size 2\n")
    return tmp_path


async def definitions(editor, name, line, character):
    place = types.DefinitionParams(editor.document(name), types.Position(line, character))
    found = await editor.client.text_document_definition_async(place)
    return [(location.uri.rpartition("/")[2], location.range.start.line) for location in found]


async def test_names_of_files_lead_to_them(editors, folder):
    editor = await editors(folder)
    editor.open("configs/train.yaml")
    found = await editor.client.text_document_document_link_async(
        types.DocumentLinkParams(editor.document("configs/train.yaml"))
    )
    assert [(link.target, link.range.start) for link in found] == [
        (editor.uri("configs/ds.json"), types.Position(10, len("deepspeed: ")))
    ]
    assert await definitions(editor, "configs/train.yaml", 10, 20) == [("ds.json", 0)]
    editor.open("run.sh")
    assert await definitions(editor, "run.sh", 0, 20) == [("train.yaml", 0)]


async def test_a_file_leads_to_those_that_name_it_and_a_key_to_what_overrides_it(editors, folder):
    editor = await editors(folder)
    editor.open("configs/ds.json")
    assert await definitions(editor, "configs/ds.json", 0, 0) == [("train.yaml", 10)]
    editor.open("configs/train.yaml")
    assert await definitions(editor, "configs/train.yaml", 6, 3) == [("run.sh", 0)]


async def test_the_outline_has_runs_and_their_keys(editors, folder):
    editor = await editors(folder)
    editor.open("configs/train.yaml")
    run, *keys = await editor.client.text_document_document_symbol_async(
        types.DocumentSymbolParams(editor.document("configs/train.yaml"))
    )
    assert "GiB" in run.detail
    assert [(key.name, key.detail) for key in keys][:3] == [
        ("base_model", "meta-llama/Llama-3.2-3B"),
        ("datasets", "path: tatsu-lab/alpaca, type: alpaca"),
        ("sequence_len", "4096"),
    ]


async def test_a_renamed_file_is_named_anew_where_it_is_named(editors, folder):
    editor = await editors(folder)
    editor.open("configs/train.yaml")
    renamed = types.FileRename(editor.uri("configs/ds.json"), editor.uri("zero/two.json"))
    edit = await editor.client.workspace_will_rename_files_async(types.RenameFilesParams([renamed]))
    [change] = edit.document_changes
    assert change.text_document.uri == editor.uri("configs/train.yaml")
    assert [(e.new_text, e.range.start.line) for e in change.edits] == [("zero/two.json", 10)]
    script = types.FileRename(editor.uri("configs/train.yaml"), editor.uri("configs/new.yaml"))
    edit = await editor.client.workspace_will_rename_files_async(types.RenameFilesParams([script]))
    assert [e.new_text for c in edit.document_changes for e in c.edits] == ["configs/new.yaml"]
    other = types.FileRename(editor.uri("ds.json"), editor.uri("other.json"))
    edit = await editor.client.workspace_will_rename_files_async(types.RenameFilesParams([other]))
    assert edit is None  # configs/ds.json is another file
