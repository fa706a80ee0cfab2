"""Texts in parts, texts without a file, notebooks cell by cell, and settings of each folder."""

from functools import partial

import pytest
from lsprotocol import types
from tests.configs import AXOLOTL

from .conftest import asked

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


def part(start, end, text):
    at = types.Range(types.Position(*start), types.Position(*end))
    return types.TextDocumentContentChangePartial(range=at, text=text)


async def test_edits_come_in_parts_on_the_lines_of_the_protocol(editor):
    # U+2028 breaks a line for Python and for nobody else; 😀 is two units of UTF-16.
    editor.open("train.yaml", 'wandb_name: "😀\u2028here"\n' + AXOLOTL)
    assert "Effective: `8`" in await editor.hover("train.yaml", 7)
    document = types.VersionedTextDocumentIdentifier(2, editor.uri("train.yaml"))
    changes = [
        part((7, 18), (7, 19), "64"),
        part((7, 18), (7, 20), "4"),
        part((0, 13), (0, 15), "!"),
    ]
    editor.client.text_document_did_change(types.DidChangeTextDocumentParams(document, changes))
    assert "Effective: `4`" in await editor.hover("train.yaml", 7)


async def test_a_text_without_a_file_is_linted_by_its_language(editors, tmp_path):
    editor = await editors(tmp_path)
    item = types.TextDocumentItem("untitled:Untitled-1", "yaml", 1, AXOLOTL)
    editor.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
    found = await editor.pushed(item.uri)
    assert "gpu-memory-at-risk" in {d.data["name"] for d in found}


TRAINER = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
"""
ARGUMENTS = """\
# ünïcode "quoted" 😀
args = TrainingArguments(output_dir="out", per_device_train_batch_size=16, bf16=True)
Trainer(model=model, args=args, train_dataset=data).train()
"""


CELL = "vscode-notebook-cell:/project/train.ipynb#"


@pytest.mark.parametrize("pulls", [False, True])
async def test_findings_of_a_notebook_stand_in_its_cells(editors, tmp_path, pulls):
    editor = await editors(tmp_path)
    if pulls:  # as VS Code does, for text documents alone
        editor.open("other.yaml", AXOLOTL)
        await editor.client.text_document_diagnostic_async(
            types.DocumentDiagnosticParams(editor.document("other.yaml"))
        )
    book = editor.uri("train.ipynb")
    # as VS Code spells them: the end is base64
    texts = {f"{CELL}W{n}sZmlsZQ%3D%3D": t for n, t in enumerate((TRAINER, ARGUMENTS))}
    cells = [types.NotebookCell(types.NotebookCellKind.Code, uri) for uri in texts]
    cells.insert(0, types.NotebookCell(types.NotebookCellKind.Markup, f"{CELL}m"))
    editor.client.notebook_document_did_open(
        types.DidOpenNotebookDocumentParams(
            types.NotebookDocument(book, "jupyter-notebook", 1, cells),
            [types.TextDocumentItem(uri, "python", 1, text) for uri, text in texts.items()],
        )
    )
    second = f"{CELL}W1sZmlsZQ%3D%3D"
    found = await editor.pushed(second)
    assert book not in editor.client.diagnostics
    batch = next(d for d in found if d.data["name"] == "micro-batch-too-large")
    line = ARGUMENTS.splitlines()[batch.range.start.line]
    assert line[batch.range.start.character :].startswith("per_device_train_batch_size=16")
    # an edit of one cell
    edited = types.NotebookDocumentCellContentChanges(
        types.VersionedTextDocumentIdentifier(2, second), [part((1, 71), (1, 73), "1")]
    )
    editor.client.notebook_document_did_change(
        types.DidChangeNotebookDocumentParams(
            types.VersionedNotebookDocumentIdentifier(2, book),
            types.NotebookDocumentChangeEvent(
                cells=types.NotebookDocumentCellChanges(text_content=[edited])
            ),
        )
    )
    await editor.pushed(
        second, lambda found: all(d.data["name"] != "micro-batch-too-large" for d in found)
    )


async def test_settings_are_those_of_the_folder(editors, tmp_path):
    folders = [tmp_path / "small", tmp_path / "large"]
    for folder in folders:
        folder.mkdir()
        (folder / "train.yaml").write_text(AXOLOTL)
    editor = await editors(tmp_path, folders=folders, options={})
    for folder, card in zip(folders, ("8xRTX-4090-24GB", "8xB200-180GB"), strict=True):
        editor.client.set_configuration({"oomlint": {"hardware": card}}, scope_uri=folder.as_uri())
    editor.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(None))
    for name, limit in (("small/train.yaml", "RTX-4090"), ("large/train.yaml", "B200")):
        editor.open(name)
        lenses = types.CodeLensParams(editor.document(name))
        await asked(
            partial(editor.client.text_document_code_lens_async, lenses),
            lambda found, limit=limit: limit in found[0].command.title,
        )
