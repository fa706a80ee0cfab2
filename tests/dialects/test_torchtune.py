"""torchtune's YAML and launch lines: what they mean, and what a fix writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import link

from oomlint.dialects import registry
from oomlint.dialects.torchtune.keys import own
from oomlint.dialects.torchtune.models import BUILDER
from oomlint.documents.text import Source
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.fix.edits import make_fix
from oomlint.linting.rule import Applicability, Proposal, SetFields
from oomlint.memory import save_peaks
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_CORPUS = Path(__file__).parents[2] / "../shared/corpus/torchtune"

_LORA = """\
output_dir: /tmp/out
model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: ['q_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 16
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: ${output_dir}/tokenizer.model
  max_seq_len: null
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  output_dir: ${output_dir}
dataset:
  _component_: torchtune.datasets.alpaca_dataset
  packed: False
batch_size: 2
batch_size_val: ${batch_size}
epochs: 1
optimizer:
  _component_: torch.optim.AdamW
  fused: True
  lr: 3e-4
loss:
  _component_: torch.nn.CrossEntropyLoss
gradient_accumulation_steps: 8
enable_activation_checkpointing: False
dtype: bf16
"""
_FULL = _LORA.replace("lora_llama3_1_8b", "llama3_1_8b")
_SINGLE = "# tune run lora_finetune_single_device --config my/lora\n"
_DISTRIBUTED = "#   tune run --nnodes 1 --nproc_per_node 4 full_finetune_distributed --config a/b\n"


def _run(text: str, **options: Any) -> Run:
    (run,) = link({"a.yaml": text}, **options).runs
    assert run.framework == "torchtune"
    return run


def _launched(line: str, text: str = _LORA) -> Run:
    (run,) = link({"a.yaml": text, "run.sh": line + "\n"}).runs
    return run


def test_reads_lora_on_one_device() -> None:
    plan = _run(_SINGLE + _LORA).plan
    assert plan.model.id == "meta-llama/Llama-3.1-8B"
    assert plan.model.dims is not None
    assert (plan.parallel.backend, plan.parallel.world) == ("none", 1)
    assert (plan.trainable.method, plan.trainable.r) == ("lora", 16)
    assert plan.trainable.targets == ("q_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert plan.trainable.adapter_dtype == "bf16"
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.global_) == (2, 8, 16)
    assert plan.seq.max_len is None
    assert plan.seq.unbounded is True
    assert (plan.checkpointing.mode, plan.loss.logits_materialised) == ("none", "full")
    assert (plan.precision.param, plan.precision.grad) == ("bf16", "bf16")
    assert (plan.precision.master, plan.precision.autocast) == ("none", False)
    assert (plan.optimizer.kind, plan.optimizer.fused) == ("adamw", True)
    assert plan.save.contents == ("model", "adapter")


def test_no_dtype_is_full_precision() -> None:
    plan = _run(_SINGLE + _LORA.replace("dtype: bf16\n", "")).plan
    assert (plan.precision.param, plan.precision.optim_state) == ("fp32", "fp32")


def test_references_follow_the_key_they_name() -> None:
    run = _run(_SINGLE + _LORA)
    assert run.plan.batch.eval_micro == 2
    assert run.what_if({"batch.micro": 1}).plan.batch.eval_micro == 1


@pytest.mark.parametrize(
    "value", ["${oc.env:BATCH}", "${nowhere}", "${batch_size_val}", "${..batch_size}"]
)
def test_references_that_cannot_be_followed_are_unknown(value: str) -> None:
    run = _run(_SINGLE + _LORA.replace("batch_size: 2", f"batch_size: {value}"))
    assert run.plan.batch.micro is None
    assert "batch.micro" in run.unreadable


def test_references_follow_the_launch_line() -> None:
    line = "tune run lora_finetune_single_device --config a.yaml batch_size="
    assert _launched(line + "4").plan.batch.eval_micro == 4
    unread = _launched(line + "$SIZE")
    assert unread.plan.batch.eval_micro is None
    assert f.batch.eval_micro in unread.unreadable


def test_references_in_a_circle_of_spellings_end() -> None:
    text = _LORA.replace(
        "batch_size: 2", "batch_size: ${batch_size_val}\ntraining:\n  batch_size: 3"
    )
    text = text.replace("batch_size_val: ${batch_size}", "batch_size_val: ${training.batch_size}")
    assert _run(_SINGLE + text).plan.batch.micro == 3


def test_references_to_values_of_another_kind() -> None:
    text = _LORA.replace("['q_proj', 'output_proj']", "${batch_size}").replace("True", "False", 1)
    assert _run(_SINGLE + text).plan.trainable.targets == ("2",)


@pytest.mark.slow
def test_references_that_grow_without_bound() -> None:
    levels = "".join(f"a{n}: ${{a{n + 1}}}x\n" for n in range(50))
    wide = "".join(f"b{n}: {('${b' + str(n + 1) + '}') * 40}\n" for n in range(40))
    text = levels + "a50: /tmp\n" + wide + "b40: zz\n"
    text += "".join(f"c{n}: ${{c{n + 1}}}\n" for n in range(3000)) + "c3000: /tmp\n"
    assert _run(_SINGLE + _LORA.replace("/tmp/out", "${c0}") + text).plan.save.dir is None
    run = _run(_SINGLE + _LORA.replace("/tmp/out", "${a0}") + text)
    assert run.plan.save.dir == "/tmp" + "x" * 50
    assert _run(_SINGLE + _LORA.replace("/tmp/out", "${b0}") + text).plan.save.dir is None


def test_a_key_that_others_refer_to_is_no_stray() -> None:
    text = _LORA.replace("output_dir: /tmp/out", "root: /tmp\noutput_dir: ${root}/out")
    assert not _run(_SINGLE + text).stray
    (stray,) = _run(_SINGLE + text.replace("${root}", "/tmp")).stray
    assert stray.path == "root"


def test_misspelt_keys_are_lost_in_silence() -> None:
    (stray,) = _run(_SINGLE + _LORA + "enable_activation_checkpoint: True\n").stray
    assert stray.nearest[0] == "enable_activation_checkpointing"
    assert stray.block.table.ignores_unknown is True


@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("checkpoint_dir=/models/llama", ()),
        ("checkpointers=torchtune.training.FullModelHFCheckpointer", ("checkpointer",)),
    ],
)
def test_a_word_is_meant_for_a_section_only_where_that_is_misspelt(
    override: str, nearest: tuple[str, ...]
) -> None:
    line = f"tune run full_finetune_single_device --config llama3_1/8B_full {override}\n"
    (stray,) = link({"run.sh": line}).runs[0].stray
    assert stray.nearest[:1] == nearest


@pytest.mark.parametrize(
    ("model", "checkpointer", "rewritten"),
    [
        ("llama3_1.llama3_1_8b", "FullModelHFCheckpointer", ("q", "k")),
        ("llama4.llama4_scout_17b_16e", "FullModelHFCheckpointer", ("experts",)),
        ("qwen2_5.qwen2_5_7b_base", "FullModelHFCheckpointer", None),
        ("llama3_1.llama3_1_8b", "FullModelMetaCheckpointer", None),
    ],
)
def test_what_is_laid_out_for_the_hub_is_copied_at_a_save(
    model: str, checkpointer: str, rewritten: tuple[str, ...] | None
) -> None:
    text = _FULL.replace("llama3_1.llama3_1_8b", model)
    run = _run(_DISTRIBUTED + text.replace("FullModelHFCheckpointer", checkpointer))
    assert run.plan.save.rewritten == rewritten


def test_distributed_recipes_shard_with_fsdp2() -> None:
    text = _DISTRIBUTED + _FULL + "fsdp_cpu_offload: True\n"
    text += "custom_sharded_layers: ['tok_embeddings', 'output']\n"
    run = _run(text)
    plan = run.plan
    assert (plan.parallel.backend, plan.parallel.world, plan.parallel.dp) == ("fsdp2", 4, 4)
    assert (plan.parallel.fsdp.version, plan.parallel.fsdp.strategy) == (2, "full")
    assert plan.parallel.fsdp.wrap == "ends"
    assert (plan.offload.params, plan.offload.optimizer) == ("cpu", "cpu")
    assert plan.trainable.method == "full"
    assert plan.save.full_gather is True
    # The comment is a suggestion, and said to be one.
    origin = run.origin("parallel.gpus_per_node")
    assert origin is not None
    assert origin.kind == "assumed"


def test_what_follows_from_a_comment_is_assumed() -> None:
    suggested = _run(_DISTRIBUTED + _FULL)
    assert suggested.level(f.parallel.backend) is Level.ASSUMED
    launched = _launched(
        "tune run --nproc_per_node 4 full_finetune_distributed --config a.yaml", _FULL
    )
    assert launched.level(f.parallel.backend) < Level.ASSUMED


def test_one_device_reads_no_keys_of_sharding() -> None:
    fsdp = _run(_SINGLE + _FULL + "fsdp_cpu_offload: True\n").plan.parallel.fsdp
    assert (fsdp.cpu_offload, fsdp.reshard_after_forward) == (None, None)


def test_recipe_from_keys_and_file_name() -> None:
    run = _run(_FULL + "fsdp_reshard_after_forward: False\n")
    assert run.plan.parallel.backend == "fsdp2"
    assert run.plan.parallel.fsdp.strategy == "grad_op"
    assert run.plan.parallel.world is None
    (run,) = link({"8B_lora_single_device.yaml": _LORA}).runs
    assert run.plan.parallel.world == 1
    assert _run(_LORA).plan.parallel.backend is None


def test_quantized_builders_keep_nf4() -> None:
    plan = _run(_SINGLE + _LORA.replace("lora_llama", "qlora_llama")).plan
    assert (plan.trainable.method, plan.quant.method) == ("qlora", "nf4_torchao")
    assert (plan.precision.param, plan.precision.grad) == ("nf4", "bf16")
    text = _LORA.replace("lora_rank: 16", "use_dora: True\n  quantize_base: True")
    plan = _run(_SINGLE + text).plan
    assert (plan.trainable.method, plan.quant.method) == ("dora", "nf4_torchao")
    assert plan.trainable.r == 8


def test_optimizers() -> None:
    text = _SINGLE + _FULL.replace("torch.optim.AdamW", "bitsandbytes.optim.PagedAdamW")
    plan = _run(text + "optimizer_in_bwd: True\n").plan
    assert plan.optimizer.kind == "paged_adamw"
    assert plan.optimizer.in_backward is True
    assert plan.optimizer.fused is False
    assert (plan.precision.param, plan.precision.optim_state) == ("bf16", "fp32")


def test_losses_and_objectives() -> None:
    linear = "torchtune.modules.loss.LinearCrossEntropyLoss"
    plan = _run(_SINGLE + _LORA.replace("torch.nn.CrossEntropyLoss", linear)).plan
    assert (plan.loss.logits_materialised, plan.loss.chunks) == ("chunked", 8)
    assert plan.loss.upcast_fp32 is True
    dpo = "torchtune.rlhf.loss.DPOLoss"
    plan = _run(_SINGLE + _LORA.replace("torch.nn.CrossEntropyLoss", dpo)).plan
    assert (plan.objective.kind, plan.objective.pairs_per_sample) == ("dpo", 2)
    assert plan.objective.ref_model == "shared_adapter_off"
    plan = _run(_DISTRIBUTED + _FULL.replace("torch.nn.CrossEntropyLoss", dpo)).plan
    assert (plan.objective.ref_model, plan.objective.ref_dtype) == ("copy", "bf16")


def test_compiled_chunks_hold_no_fp32_copy() -> None:
    linear = "torchtune.modules.loss.LinearCrossEntropyLoss"
    text = _SINGLE + _LORA.replace("torch.nn.CrossEntropyLoss", linear)
    assert _run(text + "compile: True\n").plan.loss.upcast_fp32 is False
    assert _run(text + "compile:\n  model: True\n  loss: False\n").plan.loss.upcast_fp32 is True
    # The model's own output is float32 whoever compiles it.
    assert _run(_SINGLE + _LORA + "compile: True\n").plan.loss.upcast_fp32 is True


def test_activation_modes() -> None:
    head = _DISTRIBUTED + _FULL
    assert _run(head + "ac_mode: selective\nac_option: 2\n").plan.checkpointing.every_n == 2
    assert (
        _run(head + "ac_mode: selective\nac_option: op\n").plan.checkpointing.mode == "selective_op"
    )
    on = head.replace("checkpointing: False", "checkpointing: True")
    assert _run(on).plan.checkpointing.mode == "full"
    # Each switch waits for the other to be off: together they do nothing.
    assert _run(on + "ac_mode: full\n").plan.checkpointing.mode == "none"


def test_selective_checkpointing_becomes_full_by_the_same_key() -> None:
    text = _DISTRIBUTED + _FULL + "ac_mode: selective  # or full\nac_option: 2\n"
    after = fixed(_run, text, {"checkpointing.mode": "full"})
    assert "ac_mode: full  # or full\nac_option: 2\n" in after
    offloaded = fixed(_run, text, {"checkpointing.mode": "full", "checkpointing.offload": "cpu"})
    assert "ac_mode" not in offloaded
    assert "enable_activation_checkpointing: True" in offloaded


def test_dimensions_from_a_familys_own_builder() -> None:
    arguments = (
        "llama2.llama2\n  vocab_size: 32000\n  num_layers: 22\n  num_heads: 32\n"
        "  num_kv_heads: 4\n  embed_dim: 2048\n  intermediate_dim: 5632\n  max_seq_len: 2048"
    )
    dims = _run(_SINGLE + _FULL.replace("llama3_1.llama3_1_8b", arguments)).plan.model.dims
    assert dims is not None
    assert (dims.layers, dims.hidden, dims.kv_heads, dims.head_dim) == (22, 2048, 4, 64)


def test_frozen_decoder_of_a_vision_model() -> None:
    text = _SINGLE + _FULL.replace("llama3_1.llama3_1_8b", "llama3_2_vision.llama3_2_vision_11b")
    params = _run(text).plan.trainable.params
    assert params is not None
    assert 2.5e9 < params < 2.8e9


def test_evaluation_and_generation_are_asides() -> None:
    text = "\n".join(line for line in _LORA.splitlines() if "torch.optim" not in line)
    text = text.replace("optimizer:\n  fused: True\n  lr: 3e-4\n", "prompt: hi\n")
    linked = link({"gen.yaml": text, "run.sh": "tune run generate --config gen.yaml\n"})
    assert not linked.runs
    assert set(linked.recognised) == {"gen.yaml", "run.sh"}


def test_other_component_files_are_not_ours() -> None:
    assert not link(
        {"a.yaml": "model:\n  _component_: mylib.Net\noptimizer:\n  lr: 1\n"}
    ).recognised


@pytest.mark.parametrize("config", ["a.yaml", "/x/a.yaml"])
def test_launch_line(config: str) -> None:
    run = _launched(
        f"tune run --nproc_per_node 2 --nnodes=3 lora_finetune_distributed --config {config} "
        "batch_size=4 optimizer=torchao.optim.AdamW8bit ~optimizer.fused model.lora_rank=64"
    )
    plan = run.plan
    assert (plan.parallel.gpus_per_node, plan.parallel.nodes, plan.parallel.world) == (2, 3, 6)
    assert plan.parallel.backend == "fsdp2"
    assert (plan.batch.micro, plan.batch.eval_micro, plan.trainable.r) == (4, 4, 64)
    assert plan.optimizer.kind == "adamw8bit"
    assert own.fused not in run.settings


def test_launch_line_of_a_single_device_recipe() -> None:
    run = _launched("tune run lora_finetune_single_device --config a.yaml", _DISTRIBUTED + _LORA)
    assert (run.plan.parallel.backend, run.plan.parallel.world) == ("none", 1)


def test_every_visible_gpu_is_not_what_the_comment_says() -> None:
    line = "tune run --nproc_per_node gpu full_finetune_distributed --config a.yaml"
    assert _launched(line, _DISTRIBUTED + _FULL).plan.parallel.world is None
    seen = _launched("CUDA_VISIBLE_DEVICES=0,1 " + line, _DISTRIBUTED + _FULL)
    assert seen.plan.parallel.world == 2


@pytest.mark.parametrize(
    ("shown", "ranks", "level"),
    [("8", 8, Level.FACT), ("2", 2, Level.FACT), ("4", 2, Level.ASSUMED)],
)
def test_of_several_ways_at_the_head_the_one_counts_that_a_guide_shows(
    tmp_path: Path, shown: str, ranks: int, level: Level
) -> None:
    line = "tune run --nproc_per_node {} lora_finetune_distributed --config {}a.yaml\n"
    head = f"# To launch on 2 devices:\n#   {line.format(2, '')}#\n# To launch on 8 devices:\n#   {line.format(8, '')}\n"
    (tmp_path / "a.yaml").write_text(head + _LORA)
    (tmp_path / "README.md").write_text(f"```\n{line.format(shown, './')}```\n")
    workspace = Workspace(tmp_path, named=[tmp_path])
    (run,) = Linker(workspace, registry(), LinkOptions()).link(["a.yaml"]).runs
    assert (run.plan.parallel.world, run.level(f.parallel.gpus_per_node)) == (ranks, level)


def test_shipped_config_by_name() -> None:
    files = {"recipes/configs/llama3_1/8B_lora.yaml": _LORA}
    line = "tune run lora_finetune_single_device --config llama3_1/8B_lora dtype=fp32\n"
    (run,) = link({**files, "run.sh": line}).runs
    assert (run.plan.trainable.r, run.plan.precision.param) == (16, "fp32")
    (run,) = link({"run.sh": line}).runs
    assert not run.missing
    assert run.plan.precision.param == "fp32"


def test_a_config_that_torchtune_ships_is_known_by_name() -> None:
    line = "tune run --nproc_per_node 2 lora_finetune_distributed --config llama3_1/70B_lora\n"
    (run,) = link({"run.sh": line}).runs
    plan = run.plan
    assert plan.model.dims is not None
    assert plan.model.dims.layers == 80
    assert plan.trainable.r == 16
    assert plan.checkpointing.mode == "full"
    assert not run.missing


def test_what_a_shipped_config_says_is_overridden_on_the_launch_line() -> None:
    text = (
        "tune run lora_finetune_single_device --config llama3_1/8B_lora_single_device \\\n  x=1\n"
    )
    (run,) = link({"run.sh": text}).runs
    wish = Proposal.set("smaller batch", {"batch.micro": 1, "batch.grad_accum": 16})
    fix = make_fix(run, wish, "gpu")
    assert fix is not None
    source = Source("run.sh", text)
    after = source.edited(fix.edits).text
    assert after == text[:-1] + " \\\n  batch_size=1 \\\n  gradient_accumulation_steps=16\n"
    (again,) = link({"run.sh": after}).runs
    assert (again.plan.batch.micro, again.plan.batch.grad_accum) == (1, 16)


@pytest.mark.parametrize(
    ("changes", "old", "new"),
    [
        ({"checkpointing.mode": "full"}, "checkpointing: False", "checkpointing: true"),
        ({"batch.micro": 1, "batch.grad_accum": 16}, "batch_size: 2\n", "batch_size: 1\n"),
        ({"seq.max_len": 2048}, "max_seq_len: null", "max_seq_len: 2048"),
        ({"loss.logits_materialised": "fused"}, "torch.nn.CrossEntropyLoss", "torchtune.modules.loss.LinearCrossEntropyLoss"),
        ({"optimizer.kind": "adamw8bit"}, "  _component_: torch.optim.AdamW\n  fused: True\n", "  _component_: torchao.optim.AdamW8bit\n"),
        ({"optimizer.kind": "paged_adamw8bit"}, "  _component_: torch.optim.AdamW\n  fused: True\n", "  _component_: bitsandbytes.optim.PagedAdamW8bit\n"),
        ({"quant.method": "bnb4"}, "  lora_rank: 16\n", "  lora_rank: 16\n  quantize_base: true\n"),
        ({"optimizer.fused": False}, "fused: True", "fused: false"),
        ({"save.save_only_model": True}, "", ""),
    ],
)  # fmt: skip
def test_fixes(changes: dict[str, Any], old: str, new: str) -> None:
    text = _SINGLE + _LORA
    expected = text.replace(old, new) if old else None
    after = fixed(_run, text, changes)
    if "batch.grad_accum" in changes:
        expected = str(expected).replace("steps: 8", "steps: 16")
    if expected is None:
        assert "save_adapter_weights_only: true" in after.lower()
    elif "quantize_base" in new:
        assert "quantize_base: true" in after.lower()
    else:
        # Whether a boolean is capitalised is the writer's affair.
        assert after.lower() == expected.lower()


def test_fixes_of_sharded_runs() -> None:
    text = _DISTRIBUTED + _FULL
    assert "fsdp_cpu_offload: true" in fixed(_run, text, {"offload.params": "cpu"}).lower()
    after = fixed(_run, text, {"checkpointing.offload": "cpu"}).lower()
    assert "enable_activation_offloading: true" in after
    assert "enable_activation_checkpointing: true" in after


def test_older_releases_offload_under_fsdp1_as_well() -> None:
    older = _run(_DISTRIBUTED + _FULL, values={"versions.torchtune": "0.2.1"})
    assert older.plan.parallel.backend == "fsdp1"
    assert older.what_if({"offload.params": "cpu"}).plan.offload.optimizer == "cpu"


@pytest.mark.parametrize(("release", "expands"), [("0.6.1", False), ("0.7.0", True)])
def test_segments_expand_from_one_release_on(release: str, expands: bool) -> None:
    run = _run(_DISTRIBUTED + _FULL, values={"versions.torchtune": release})
    assert run.plan.env.expandable_segments is expands


@pytest.mark.parametrize(
    "changes",
    [
        {"parallel.zero.stage": 3},
        {"offload.params": "cpu"},
        {"model.attn_impl": "flash2"},
        {"optimizer.in_backward": True},
        {"precision.param": "fp16"},
        {"quant.method": "bnb8"},
        {"data.workers": 4},
        {"optimizer.kind": "galore"},
    ],
)
def test_what_torchtune_cannot_say(changes: dict[str, Any]) -> None:
    run = _run(_SINGLE + _LORA)
    with pytest.raises(CannotEdit):
        run.what_if(changes)


def test_overrides_are_changed_where_they_stand() -> None:
    line = "tune run lora_finetune_single_device --config a.yaml batch_size=4"
    run = _launched(line)
    wish = SetFields({"batch.micro": 1, "checkpointing.mode": "full"})
    fix = make_fix(run, Proposal("t", (wish,), Applicability.SAFE), None)
    assert fix is not None
    edits = {(edit.path, edit.replacement.lower()) for edit in fix.edits}
    assert edits == {("run.sh", "1"), ("a.yaml", "true")}


def test_every_builder_is_in_the_catalogue() -> None:
    from oomlint.dialects.torchtune.models import _BUILDERS
    from oomlint.models import lookup

    for builder, model in _BUILDERS.items():
        assert BUILDER.read(f"torchtune.models.x.qlora_{builder}") == model
        assert lookup(model) is not None, model


def test_corpus_is_recognised() -> None:
    if not _CORPUS.is_dir():
        pytest.skip("the corpus of real configs is not here")
    names = sorted(str(path.relative_to(_CORPUS)) for path in _CORPUS.rglob("*.yaml"))
    workspace = Workspace(_CORPUS)
    linked = Linker(workspace, registry(), LinkOptions()).link(names)
    assert not linked.errors
    assert set(linked.recognised) == set(names)
    asides = {name for name in names if "generation" in name or "evaluation" in name}
    assert {run.name for run in linked.runs} == set(names) - asides
    for run in linked.runs:
        assert run.plan.model.dims is not None, run.name
        assert run.plan.parallel.backend in ("none", "fsdp2"), run.name
        assert not run.wrong, run.name
        assert not run.unreadable, run.name
        assert {stray.path for stray in run.stray} <= {"fsdp"}, run.name


def test_a_builder_says_which_set_it_loads_unless_a_source_does() -> None:
    recipe = (
        "model:\n  _component_: torchtune.models.llama3_2.llama3_2_1b\n"
        "tokenizer:\n  _component_: torchtune.models.llama3.llama3_tokenizer\n  max_seq_len: null\n"
        "dataset:\n  _component_: torchtune.datasets.{builder}\n{more}"
        "optimizer:\n  _component_: torch.optim.AdamW\nbatch_size: 8\ndtype: bf16\n"
    )
    cleaned = recipe.format(builder="alpaca_cleaned_dataset", more="")
    assert _run(cleaned).plan.data.sets == ("yahma/alpaca-cleaned",)
    assert _run(cleaned).plan.seq.longest == 1044
    local = recipe.format(builder="instruct_dataset", more="  source: json\n  data_files: a.json\n")
    assert _run(local).plan.data.sets == ("a.json",)
    assert _run(recipe.format(builder="instruct_dataset", more="")).plan.data.sets is None


_OLD = """\
model:
  _component_: torchtune.models.llama2.lora_llama2_7b
  lora_attn_modules: ['q_proj']
tokenizer:
  _component_: torchtune.models.llama2.llama2_tokenizer
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
dataset:
  _component_: torchtune.datasets.alpaca_dataset
optimizer:
  _component_: torch.optim.AdamW
batch_size: 2
dtype: bf16
"""


def _of_release(release: str, text: str = _OLD) -> Run:
    (run,) = link({"a.yaml": text, "requirements.txt": f"torchtune=={release}\n"}).runs
    return run


@pytest.mark.parametrize(
    ("builder", "tokens"),
    [("alpaca_cleaned_dataset", 512), ("slimorca_dataset", 1024), ("instruct_dataset", None)],
)
def test_builders_of_sets_cut_samples_before_0_3(builder: str, tokens: int | None) -> None:
    text = _OLD.replace("alpaca_dataset", builder)
    run = _of_release("0.2.1", text)
    assert run.plan.seq.max_len == tokens
    assert run.plan.seq.unbounded is (None if tokens else True)
    assert _of_release("0.3.0", text).plan.seq.max_len is None
    assert _run(text).plan.seq.max_len is None


def test_what_the_config_says_to_a_builder_counts_before_its_default() -> None:
    text = _OLD.replace("optimizer:", "  max_seq_len: 2048\noptimizer:")
    run = _of_release("0.2.1", text)
    assert run.plan.seq.max_len == 2048
    written = fixed(lambda each: _of_release("0.2.1", each), text, {f.seq.max_len: 256})
    assert "  max_seq_len: 256\n" in written
    with pytest.raises(CannotEdit):
        _of_release("0.2.1").what_if({f.seq.max_len: 256})


def test_the_name_of_a_checkpointer_tells_a_release_before_0_3() -> None:
    text = _OLD.replace("torchtune.training.Full", "torchtune.utils.Full")
    assert _run(text).plan.seq.max_len == 512
    assert _of_release("0.4.0", text).plan.seq.max_len is None


def test_the_head_of_a_config_counts_before_that_of_its_neighbour() -> None:
    own_line = "# tune run --nproc_per_node 4 full_finetune_distributed --config llama/full"
    files = {
        "recipes/llama/full.yaml": f"{own_line}\n#\n{own_line} epochs=2\n{_FULL}",
        "recipes/llama/one.yaml": "# tune run full_finetune_single_device --config llama/one\n"
        + _FULL,
    }
    runs = {run.name: run.plan.parallel for run in link(files).runs}
    assert runs["recipes/llama/full.yaml"].backend == "fsdp2"
    assert runs["recipes/llama/full.yaml"].world == 4
    assert runs["recipes/llama/one.yaml"].world == 1


def test_hooks_are_around_the_model_alone() -> None:
    text = _DISTRIBUTED + _FULL + "enable_activation_offloading: true\n"
    offload = _run(text).plan.offload
    assert (offload.activations, offload.keeps_shared, offload.takes_loss) == ("cpu", False, False)
    assert _run(_DISTRIBUTED + _FULL).plan.offload.keeps_shared is None


def test_an_adapter_s_checkpoint_is_the_whole_model_unless_the_adapter_alone_is_asked_for() -> None:
    merged = _run(_SINGLE + _LORA).plan
    alone = _run(_SINGLE + _LORA + "save_adapter_weights_only: true\n").plan
    weights = 2 * 8_030_261_248  # Meta-Llama-3.1-8B in bf16
    whole, adapter = save_peaks(merged), save_peaks(alone)
    assert whole is not None
    assert adapter is not None
    assert whole.host > weights > adapter.host
    assert whole.disk > weights > adapter.disk


def test_recipes_before_0_3_hold_the_logits_through_backward() -> None:
    text = _SINGLE + _LORA
    assert _of_release("0.2.1", text).plan.loss.outputs_kept is True
    assert _of_release("0.3.0", text).plan.loss.outputs_kept is False
