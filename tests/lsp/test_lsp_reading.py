"""Hover, inlay hints and completion: what an editor shows beside the text."""

import json
import re

import pytest
from lsprotocol import types
from tests.configs import AXOLOTL

from .conftest import asked

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


async def test_hover_tells_what_a_key_costs(editor):
    editor.open("train.yaml")
    text = await editor.hover("train.yaml", 6)
    assert "**`micro_batch_size`** · axolotl" in text
    assert "Effective: `8`" in text
    assert "| as it is | 185 GiB of 79.1 GiB |" in text
    assert "| `4` | 105 GiB (−79.9 GiB) |" in text
    assert re.search(r"Default: `1` \(axolotl src/axolotl/utils/schemas/training\.py:\d+\)", text)
    datasets = await editor.hover("train.yaml", 1)
    assert "**`datasets`** · axolotl" in datasets
    assert "Effective: `path: tatsu-lab/alpaca, type: alpaca`" in datasets  # no Python in it


async def test_hover_tells_who_overrides_a_key(editors, tmp_path):
    (tmp_path / "train.yaml").write_text(
        "model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\nfinetuning_type: full\n"
        "dataset: alpaca\ntemplate: llama3\nbf16: true\nper_device_train_batch_size: 8\n"
        "output_dir: out\ndo_train: true\n"
    )
    (tmp_path / "run.sh").write_text(
        "llamafactory-cli train train.yaml per_device_train_batch_size=2\n"
    )
    editor = await editors(tmp_path)
    editor.open("train.yaml")
    text = await editor.hover("train.yaml", 6)
    assert "Not in force" in text
    assert "run.sh:1" in text
    assert "`2`" in text


async def test_hover_on_a_model_and_on_an_ignore_comment(editor):
    editor.open("train.yaml", AXOLOTL + "# oomlint: ignore[no-gradient-checkpointing]\n")
    assert "3.21B parameters, 28 layers" in await editor.hover("train.yaml", 0)
    page = await editor.hover("train.yaml", 10, 25)
    assert page.startswith("# no-gradient-checkpointing (OOM101)")


async def test_hints_stand_behind_the_values_that_move_the_peak(editor):
    editor.open("train.yaml")
    hints = await editor.client.text_document_inlay_hint_async(
        types.InlayHintParams(
            editor.document("train.yaml"), types.Range(types.Position(0, 0), types.Position(99, 0))
        )
    )
    assert {(h.position.line, h.position.character) for h in hints} == {(4, 18), (6, 19)}
    assert {h.label for h in hints} == {"≈ 185 GiB / 79.1 GiB ✗"}
    assert "| activations | 112.8 |" in hints[0].tooltip.value


async def test_the_zero_stage_has_a_hint_in_its_json(editors, tmp_path):
    (tmp_path / "train.yaml").write_text(AXOLOTL + "deepspeed: ds.json\n")
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": {"stage": 2}}) + "\n")
    editor = await editors(tmp_path)
    editor.open("ds.json")
    hints = await editor.client.text_document_inlay_hint_async(
        types.InlayHintParams(
            editor.document("ds.json"), types.Range(types.Position(0, 0), types.Position(99, 0))
        )
    )
    assert [h.position.character for h in hints] == [len('{"zero_optimization": {"stage": 2')]
    assert "predicted peak" in hints[0].tooltip.value


async def test_lens_takes_a_misspelt_key_as_the_findings_do(editor):
    editor.open("train.yaml", AXOLOTL.replace("sequence_len:", "sequence_length:"))
    await editor.told("train.yaml")
    lenses = await editor.client.text_document_code_lens_async(
        types.CodeLensParams(types.TextDocumentIdentifier(editor.uri("train.yaml")))
    )
    [lens] = lenses
    # the verdict first: editors cut long lines, and name the document themselves
    assert lens.command.title.startswith("oomlint ✗ does not fit 8xA100-80GB: ")
    assert "185 GiB per GPU" in lens.command.title
    assert "(with sequence_length read as sequence_len)" in lens.command.title


async def test_keys_and_values_are_completed(editor):
    editor.open("train.yaml", AXOLOTL)
    await editor.told("train.yaml")
    editor.change("train.yaml", AXOLOTL + "gradient_che\n")
    items = await editor.completions("train.yaml", 10, 12)
    item = items["gradient_checkpointing"]
    assert item.text_edit.new_text == "gradient_checkpointing: "
    assert item.text_edit.range == types.Range(types.Position(10, 0), types.Position(10, 12))
    assert "offload" in item.documentation.value
    editor.change("train.yaml", AXOLOTL + "gradient_checkpointing: \n")
    items = await editor.completions("train.yaml", 10, 24)
    assert {"true", "false", "offload"} <= items.keys()
    editor.change("train.yaml", AXOLOTL + "# oomlint: ignore[no-\n")
    items = await editor.completions("train.yaml", 10, 21)
    assert "no-gradient-checkpointing" in items


async def test_values_come_ranked_by_what_they_cost(editor):
    editor.open("train.yaml", AXOLOTL.replace("adamw_torch_fused", ""))
    # Each question tries some more values.
    items = await asked(
        lambda: editor.completions("train.yaml", 7, 11),
        lambda items: all("GiB" in (item.detail or "") for item in items.values()),
    )
    ranked = sorted(items, key=lambda label: items[label].sort_text)
    assert ranked.index("adafactor") < ranked.index("adamw_bnb_8bit") < ranked.index("adamw_torch")
    assert items["adamw_bnb_8bit"].detail == "≈ 179 GiB / 79.1 GiB ✗"
    assert items["adamw_torch_fused"].detail == "≈ 185 GiB / 79.1 GiB ✗, default"
    assert items["adamw_bnb_8bit"].label_details.description == "179 GiB"
    # in the middle of a value all of it is replaced
    editor.change("train.yaml", AXOLOTL)
    item = (await editor.completions("train.yaml", 7, 14))["adafactor"]
    assert item.text_edit.range == types.Range(types.Position(7, 11), types.Position(7, 28))


async def test_a_key_that_is_absent_tells_what_its_values_would_cost(editor):
    editor.open("train.yaml", AXOLOTL + "grad\n")
    item = (await editor.completions("train.yaml", 10, 4))["gradient_checkpointing"]
    told = await editor.client.completion_item_resolve_async(item)
    assert "Gradient checkpointing keeps the input of each layer" in told.documentation.value
    assert "| `true` | ≈ 77.8 GiB / 79.1 GiB ! |" in told.documentation.value
    assert "axolotl.gc" not in told.documentation.value


async def test_hover_ranks_the_choices_of_a_key(editor):
    editor.open("train.yaml")
    text = await editor.hover("train.yaml", 7)
    assert "AdamW keeps 8 bytes a trained parameter" in text
    assert (
        text.index("adafactor") < text.index("| `adamw_bnb_8bit`, ") < text.index("| `ademamix` |")
    )


async def test_a_new_file_is_completed_by_its_name_or_its_first_keys(editors, tmp_path):
    editor = await editors(tmp_path)
    editor.open("new.yaml", "")
    items = await editor.completions("new.yaml", 0, 0)
    assert items["base_model"].detail == "Axolotl"
    assert items["base_model"].label_details.description == "Axolotl"
    assert items["base_model"].sort_text < items["adapter"].sort_text
    editor.open("started.yaml", "base_model: gpt2\nmicro_batch_size: 1\nlora\n")
    items = await editor.completions("started.yaml", 2, 4)
    assert "lora_r" in items
    assert "actor_rollout_ref" not in items
    editor.open("my_llama_factory_run.yaml", "")
    items = await editor.completions("my_llama_factory_run.yaml", 0, 0)
    assert "finetuning_type" in items
    assert "base_model" not in items
    editor.open("control.yaml", "")  # which has no word "trl"
    assert "base_model" in await editor.completions("control.yaml", 0, 0)
    editor.open("axolotl/mine.yaml", "")
    assert "val_set_size" in await editor.completions("axolotl/mine.yaml", 0, 0)
    editor.open(".github/workflows/ci.yaml", "")
    assert not await editor.completions(".github/workflows/ci.yaml", 0, 0)


async def test_models_and_files_are_completed_where_they_are_named(editors, tmp_path):
    for stage in (1, 3):
        text = json.dumps({"zero_optimization": {"stage": stage}})
        (tmp_path / f"ds{stage}.json").write_text(text)
    (tmp_path / "package.json").write_text("{}")
    editor = await editors(tmp_path)
    editor.open("train.yaml", AXOLOTL.replace("meta-llama/Llama-3.2-3B", "Qwen/Qwen2.5-7"))
    items = await asked(
        lambda: editor.completions("train.yaml", 0, 26),
        lambda items: items["Qwen/Qwen2.5-7B"].detail,
    )
    assert "GiB" in items["Qwen/Qwen2.5-7B"].detail
    editor.change("train.yaml", AXOLOTL + "deepspeed: \n")
    items = await editor.completions("train.yaml", 10, 11)
    assert items.keys() == {"ds1.json", "ds3.json"}
    assert items["ds3.json"].sort_text < items["ds1.json"].sort_text
    assert "≈ 170 GiB" in items["ds3.json"].detail


async def test_the_settings_of_oomlint_are_completed_and_explained(editors, tmp_path):
    editor = await editors(tmp_path)
    editor.open("oomlint.toml", 'hardware = "4x"\nselect = ["no-"]\nho\n')
    items = await editor.completions("oomlint.toml", 0, 14)
    assert items["4xA100-80GB"].detail == "79.1 GiB each"
    assert items["4xA100-80GB"].text_edit.new_text == "4xA100-80GB"
    items = await editor.completions("oomlint.toml", 1, 14)
    assert "no-gradient-checkpointing" in items
    items = await editor.completions("oomlint.toml", 2, 2)
    assert items["host-memory"].text_edit.new_text == "host-memory = "
    assert "The machine: 8xA100-80GB" in await editor.hover("oomlint.toml", 0)


async def test_keys_of_a_deepspeed_json_are_completed_where_they_belong(editors, tmp_path):
    (tmp_path / "ds.json").write_text(
        '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}'
    )
    editor = await editors(tmp_path)
    editor.open("ds.json")
    await editor.told("ds.json", lambda f: True)
    editor.change("ds.json", '{"zero_optimization": {"stage": 2, "off')
    items = await editor.completions("ds.json", 0, 39)
    assert "offload_optimizer" in items
    assert "zero_optimization" not in items
    assert items["offload_optimizer"].text_edit.new_text == "offload_optimizer"


async def test_flags_of_a_command_are_completed(editors, tmp_path):
    script = "torchrun --nproc_per_node 8 train.py --model_name_or_path gpt2 --per_device_train_batch_size 1 --output_dir o"
    (tmp_path / "run.sh").write_text(script + " --deepspeed ds.json\n")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    editor = await editors(tmp_path)
    editor.open("run.sh")
    await editor.told("run.sh", lambda f: True)
    text = script + " --deepspeed ds.json --gradient_ch"
    editor.change("run.sh", text + "\n")
    items = await editor.completions("run.sh", 0, len(text))
    assert items["gradient_checkpointing"].text_edit.new_text == "gradient_checkpointing"
    assert "CUDA_VISIBLE_DEVICES" not in items, "a variable is no flag"
    assert not [name for name in items if name.isdigit()], "nor is a place"


async def test_hover_on_a_choice_tries_the_others_and_nothing_else(editors, tmp_path):
    (tmp_path / "train.yaml").write_text(AXOLOTL + "deepspeed: ds.json\n")
    text = json.dumps({"zero_optimization": {"stage": 2}})
    (tmp_path / "ds.json").write_text(text + "\n")
    editor = await editors(tmp_path)
    editor.open("train.yaml")
    editor.open("ds.json")
    shown = await editor.hover("ds.json", 0, text.index("stage"))
    tried = [line.split("|")[1].strip() for line in shown.splitlines() if line.startswith("| ")]
    assert [value for value in tried if value[1].isdigit()] == ["`0`", "`1`", "`3`"]


async def test_hover_says_how_the_value_is_known_and_what_the_run_rests_on(editors, tmp_path):
    (tmp_path / "train.sh").write_text(
        "torchrun --nproc_per_node 8 finetune.py \\\n"
        "  --model_name_or_path meta-llama/Llama-2-7b-hf \\\n"
        "  --per_device_train_batch_size $MICRO \\\n"
        "  --model_max_length 4096 --output_dir out --bf16 True \\\n"
        "  --fsdp 'full_shard auto_wrap' --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer\n"
    )
    editor = await editors(tmp_path)
    editor.open("train.sh")
    await editor.told("train.sh", lambda found: found is not None)
    unread = await editor.hover("train.sh", 2, 6)
    assert (
        "Known: not read (`train.sh:3 per_device_train_batch_size`, $MICRO has no value)" in unread
    )
    rests = unread.index("The prediction rests on:")
    first = unread.index("- batch.micro")
    assert rests < first
    assert "which decides whether it fits" in unread[first:]
    assert "Known: stated" in await editor.hover("train.sh", 3, 6)
    assert "`parallel.fsdp.strategy` = `full`, default" in await editor.hover("train.sh", 4, 6)


async def test_hover_shows_by_what_a_stated_value_counts(editors, tmp_path):
    (tmp_path / "train.py").write_text(
        "from unsloth import FastLanguageModel\n"
        "from trl import SFTConfig, SFTTrainer\n"
        "model, tokenizer = FastLanguageModel.from_pretrained(\n"
        '    "unsloth/Llama-3.2-3B", max_seq_length=2048\n'
        ")\n"
        "model = FastLanguageModel.get_peft_model(model, r=16)\n"
        "trainer = SFTTrainer(model=model, train_dataset=data, args=SFTConfig(output_dir='out'))\n"
        "trainer.train()\n"
    )
    editor = await editors(tmp_path)
    editor.open("train.py")
    await editor.told("train.py", lambda found: found is not None)
    text = await editor.hover("train.py", 3, 30)
    assert "Known: stated, and counts by default (`train.py:4 max_seq_length`)" in text
    assert "- `unsloth.tiled_mlp` = `false`, default: unsloth models/loader.py" in text


async def test_hover_says_first_that_the_run_ends(editor):
    editor.open("train.yaml", AXOLOTL + "eval_steps: 10\nval_set_size: 0\n")
    text = await editor.hover("train.yaml", 6)
    assert "The run ends before its first step: Axolotl refuses eval\\_steps" in text
    assert text.index("Once that is mended:") < text.index("| as it is |")
