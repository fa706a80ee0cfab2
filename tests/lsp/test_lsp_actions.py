"""Code actions: what they offer, and that applying them gives what ``--fix`` gives."""

import json

import pytest
from lsprotocol import types
from tests.configs import AXOLOTL

from oomlint.cli import main

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


def apply(text: str, edits) -> str:
    """The text after edits, positions in UTF-16 on lines of ASCII text."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for edit in sorted(edits, key=lambda e: (e.range.start.line, e.range.start.character))[::-1]:
        start = starts[edit.range.start.line] + edit.range.start.character
        end = starts[edit.range.end.line] + edit.range.end.character
        text = text[:start] + edit.new_text + text[end:]
    return text


def applied(editor, edit: types.WorkspaceEdit) -> dict[str, str]:
    """Name → text after a workspace edit; a file is created before it is written."""
    out: dict[str, str] = {}
    for change in edit.document_changes:
        if isinstance(change, types.CreateFile):
            name = change.uri.rpartition("/")[2]
            assert not (editor.folder / name).exists()
            out[name] = ""
            continue
        name = change.text_document.uri.rpartition("/")[2]
        before = out[name] if name in out else (editor.folder / name).read_bytes().decode()
        out[name] = apply(before, change.edits)
    return out


async def test_fix_all_gives_the_bytes_of_fix(editor, monkeypatch):
    editor.open("train.yaml")
    [action] = await editor.actions("train.yaml", only=["source.fixAll"])
    assert action.kind == "source.fixAll.oomlint"
    assert action.edit.document_changes[0].text_document.version == 1
    after = applied(editor, action.edit)
    monkeypatch.chdir(editor.folder)
    main(["--fix", "--hardware", "8xA100-80GB", "train.yaml"])
    assert after == {"train.yaml": (editor.folder / "train.yaml").read_text()}
    assert after["train.yaml"] != AXOLOTL


async def test_fix_all_reaches_the_file_that_says_it(editors, tmp_path, monkeypatch):
    (tmp_path / "train.yaml").write_text(
        AXOLOTL + "gradient_checkpointing: true\ndeepspeed: ds.json\n"
    )
    stage = {"zero_optimization": {"stage": 0}, "bf16": {"enabled": True}}
    (tmp_path / "ds.json").write_text(json.dumps(stage, indent=2) + "\n")
    editor = await editors(tmp_path)
    editor.open("train.yaml")
    [action] = await editor.actions("train.yaml", only=["source.fixAll.oomlint"])
    after = applied(editor, action.edit)
    versions = {c.text_document.uri: c.text_document.version for c in action.edit.document_changes}
    if "ds.json" in after:
        assert versions[editor.uri("ds.json")] is None
    monkeypatch.chdir(tmp_path)
    main(["--fix", "--hardware", "8xA100-80GB", "."])
    assert after == {name: (tmp_path / name).read_text() for name in after}


SHIPPED = """\
base_model: NousResearch/Meta-Llama-3-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 2048
micro_batch_size: 1
optimizer: adamw_torch_fused
bf16: true
gradient_checkpointing: true
flash_attention: true
deepspeed: deepspeed_configs/zero3_bf16.json
"""
"""Two A100-40GB need the optimizer offloaded; Axolotl's own file is not edited, but copied."""
SMALL = {"hardware": "2xA100-40GB", "hostMemory": "1TiB"}
LARGE = {"hardware": "8xH100-80GB", "hostMemory": "2TiB"}


SHARED = SHIPPED.replace("deepspeed_configs/zero3_bf16.json", "zero3.json")
ZERO2 = '{\n  "bf16": {"enabled": true},\n  "zero_optimization": {"stage": 2}\n}\n'


def called(folder):
    """A run that is lost with a DeepSpeed config of its own, which is called by its stage: it gets a copy."""
    large = SHARED.replace("zero3.json", "zero2.json").replace("3-8B", "3-70B")
    (folder / "train.yaml").write_text(large)
    (folder / "zero2.json").write_text(ZERO2)


async def test_a_fix_that_adds_a_file_creates_it(editors, tmp_path, monkeypatch):
    called(tmp_path)
    editor = await editors(tmp_path, options=LARGE)
    editor.open("train.yaml")
    [action] = await editor.actions("train.yaml", only=["source.fixAll.oomlint"])
    created, *_ = action.edit.document_changes
    assert isinstance(created, types.CreateFile)
    assert created.options == types.CreateFileOptions(overwrite=False, ignore_if_exists=False)
    after = applied(editor, action.edit)
    monkeypatch.chdir(tmp_path)
    main(["--fix", "--hardware", "8xH100-80GB", "--host-memory", "2TiB", "train.yaml"])
    assert after == {name: (tmp_path / name).read_text() for name in after}
    assert after.keys() == {"train.yaml", "zero3_offload_optimizer.json"}
    assert (tmp_path / "zero2.json").read_text() == ZERO2


async def test_a_file_that_others_use_is_not_copied_unasked(editors, tmp_path):
    (tmp_path / "train.yaml").write_text(SHARED)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/other.yaml").write_text(SHARED.replace("Meta-Llama-3-8B", "Llama-2-7b-hf"))
    (tmp_path / "zero3.json").write_text(ZERO2.replace("2", "3"))
    editor = await editors(tmp_path, options=SMALL)
    editor.open("train.yaml")
    assert await editor.actions("train.yaml", only=["source.fixAll.oomlint"]) == []


async def test_a_deepspeed_config_that_is_not_there_yet_is_created(editors, tmp_path):
    config = (
        "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nstage: sft\nfinetuning_type: full\n"
        "dataset: alpaca_en_demo\ntemplate: qwen\nper_device_train_batch_size: 1\nbf16: true\n"
    )
    (tmp_path / "sft.yaml").write_text(config)
    (tmp_path / "run.sh").write_text("FORCE_TORCHRUN=1 llamafactory-cli train sft.yaml\n")
    editor = await editors(tmp_path, options={"hardware": "4xA100-80GB"})
    editor.open("sft.yaml")
    actions = await editor.actions("sft.yaml")
    action = next(each for each in actions if "in a new file, ds_z" in each.title)
    assert not action.is_preferred
    created, *_ = action.edit.document_changes
    assert isinstance(created, types.CreateFile)
    after = applied(editor, action.edit)
    (new,) = (name for name in after if name.endswith(".json"))
    assert after["sft.yaml"].endswith(f"deepspeed: {new}\n")


async def test_a_client_that_creates_no_files_is_told_so(editors, tmp_path):
    called(tmp_path)
    # Emacs takes neither file operations nor actions that are disabled.
    editor = await editors(tmp_path, profile="emacs", options=LARGE)
    editor.open("train.yaml")
    assert await editor.actions("train.yaml", only=["source.fixAll.oomlint"]) == []
    asked = types.CodeAction("Fix all", data={"uri": editor.uri("train.yaml")})
    resolved = await editor.client.code_action_resolve_async(asked)
    assert resolved.edit == types.WorkspaceEdit(changes={})
    [told] = editor.client.messages
    assert "it adds the file zero3_offload_optimizer.json" in told.message


async def test_fix_all_is_worked_out_when_it_is_chosen(editor):
    editor.open("train.yaml")
    action = next(
        a for a in await editor.actions("train.yaml") if a.kind == "source.fixAll.oomlint"
    )
    assert action.edit is None
    resolved = await editor.client.code_action_resolve_async(action)
    assert resolved.edit.document_changes


async def test_quick_fixes_prefer_the_safe_and_mark_the_unsafe(editor):
    editor.open("train.yaml")
    actions = await editor.actions("train.yaml", only=["quickfix"])
    preferred = [a for a in actions if a.is_preferred]
    assert "Turn on gradient checkpointing" in [a.title for a in preferred]
    for action in actions:
        assert action.kind == "quickfix"
        assert action.diagnostics
        assert not (action.is_preferred and "may change results" in action.title)
    on = next(a for a in preferred if a.title == "Turn on gradient checkpointing")
    assert applied(editor, on.edit)["train.yaml"] == AXOLOTL.replace(
        "bf16: true\n", "bf16: true\ngradient_checkpointing: true\n"
    )


async def test_only_what_was_asked_for(editor):
    editor.open("train.yaml")
    assert await editor.actions("train.yaml", only=["refactor"]) == []
    assert await editor.actions("train.yaml", only=["source.organizeImports"]) == []
    at = types.Range(types.Position(6, 3), types.Position(6, 3))
    actions = await editor.actions("train.yaml", at, only=["quickfix"])
    assert {d.code for a in actions for d in a.diagnostics} == {
        "OOM100",
        "OOM101",
        "OOM102",
        "OOM103",
    }


async def test_ignore_here_silences_that_finding_and_no_other(editor):
    editor.open("train.yaml")
    before = {d.code for d in await editor.told("train.yaml")}
    actions = await editor.actions("train.yaml", only=["quickfix"])
    action = next(a for a in actions if a.title == "Ignore micro-batch-too-large here")
    text = applied(editor, action.edit)["train.yaml"]
    assert "micro_batch_size: 8  # oomlint: ignore[micro-batch-too-large]\n" in text
    editor.change("train.yaml", text)
    found = await editor.told("train.yaml", lambda f: "OOM102" not in {d.code for d in f})
    assert {d.code for d in found} == before - {"OOM102"}


async def test_ignore_here_in_a_script_stands_above_the_command(editors, tmp_path):
    script = (
        "#!/bin/bash\ntorchrun --nproc_per_node 8 train.py \\\n"
        "  --model_name_or_path meta-llama/Meta-Llama-3-8B \\\n"
        "  --per_device_train_batch_size 16 --bf16 True --output_dir out \\\n"
        "  --model_max_length 8192 --deepspeed ds.json\n"
    )
    (tmp_path / "run.sh").write_text(script)
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}\n')
    editor = await editors(tmp_path)
    editor.open("run.sh")
    found = await editor.told("run.sh")
    actions = [a for a in await editor.actions("run.sh") if a.title.startswith("Ignore ")]
    assert actions
    name = actions[0].title.split()[1]
    text = applied(editor, actions[0].edit)["run.sh"]
    assert f"# oomlint: ignore[{name}]\ntorchrun" in text
    editor.change("run.sh", text)
    await editor.told("run.sh", lambda f: len(f) == len(found) - 1)


async def test_explain_and_estimate_open_a_page(editor):
    editor.open("train.yaml")
    # lsprotocol takes every action with a command for a bare command, so by their titles.
    assert "Explain no-gradient-checkpointing" in await editor.titles("train.yaml")
    assert "Show the ways to make this run fit" in await editor.titles("train.yaml")
    page = await editor.client.workspace_execute_command_async(
        types.ExecuteCommandParams("oomlint.explain", [{"rule": "no-gradient-checkpointing"}])
    )
    assert page["markdown"].startswith("# no-gradient-checkpointing (OOM101)")
    lenses = await editor.client.text_document_code_lens_async(
        types.CodeLensParams(editor.document("train.yaml"))
    )
    command = lenses[0].command
    assert "does not fit 8xA100-80GB" in command.title
    page = await editor.client.workspace_execute_command_async(
        types.ExecuteCommandParams(command.command, command.arguments)
    )
    assert "per GPU: 185 GiB at the peak" in page["markdown"]
    assert page["html"].startswith("<!DOCTYPE html>") or "<html" in page["html"]
    assert len(editor.client.shown_documents) == 2


async def test_what_mends_comes_first_and_ways_of_a_run_once(editor):
    editor.open("train.yaml")
    titles = await editor.titles("train.yaml")
    assert len(titles) == len({*titles})
    kinds = [title.partition(" ")[0] for title in titles]
    assert kinds.count("Ignore") == kinds.count("Explain") > 1, "several findings at one place"
    ways = [n for n, kind in enumerate(kinds) if kind in ("Way", "Show")]
    asides = [n for n, kind in enumerate(kinds) if kind in ("Ignore", "Explain")]
    assert min(ways) > 0
    assert max(ways) < min(asides)


async def test_a_remark_on_what_a_need_at_risk_comes_of_leads_to_ways(editors, tmp_path):
    # As long as its samples may be nobody knows that it dies: what its need comes of are remarks.
    text = AXOLOTL.replace("sample_packing: true\n", "").replace("batch_size: 8", "batch_size: 4")
    (tmp_path / "train.yaml").write_text(text)
    editor = await editors(tmp_path, options={"hardware": "1xA100-80GB"})
    editor.open("train.yaml")
    found = await editor.told("train.yaml")
    assert {each.severity for each in found} == {types.DiagnosticSeverity.Information}
    assert "Show the ways to make this run fit" in await editor.titles("train.yaml")


async def test_a_way_to_fit_can_be_taken(editor):
    editor.open("train.yaml")
    argument = {"uri": editor.uri("train.yaml")}
    page = await editor.client.workspace_execute_command_async(
        types.ExecuteCommandParams("oomlint.fit", [argument])
    )
    assert "| 1 | micro batch 1 x 8 accumulation steps | 50.8 GiB |" in page["markdown"]
    assert "```diff\n--- train.yaml\n+++ train.yaml\n" in page["markdown"]
    assert "-micro_batch_size: 8\n+micro_batch_size: 1\n" in page["markdown"]
    titles = await editor.titles("train.yaml")
    assert "Way 1: micro batch 1 x 8 accumulation steps → 50.8 GiB" in titles
    asked = []

    @editor.client.feature(types.WORKSPACE_APPLY_EDIT)
    def apply_edit(params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
        asked.append(params.edit)
        return types.ApplyWorkspaceEditResult(applied=True)

    took = await editor.client.workspace_execute_command_async(
        types.ExecuteCommandParams("oomlint.applyWay", [{**argument, "number": 1}])
    )
    assert took is True
    text = applied(editor, asked[0])["train.yaml"]
    assert "micro_batch_size: 8" not in text
    took = await editor.client.workspace_execute_command_async(
        types.ExecuteCommandParams("oomlint.applyWay", [{**argument, "number": 99}])
    )
    assert took is False
