"""LLaMA-Factory's configs and launch lines: what they mean and how fixes are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.linked import link, run_of as run_of_files

from oomlint.dialects import registry
from oomlint.dialects.common.fields import shared
from oomlint.dialects.llamafactory.releases import EXPANDS_SEGMENTS
from oomlint.documents.text import Source, by_path
from oomlint.errors import CannotEdit, FileError
from oomlint.files.workspace import Workspace
from oomlint.fix.edits import make_fix
from oomlint.linting.rule import Applicability, Proposal, SetFields
from oomlint.memory.facts import Facts
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

CORPUS = Path(__file__).parents[2] / "../shared/corpus"
FOREIGN = Path(__file__).parents[2] / "../shared/corpus-other"

SFT = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct

### method
stage: sft
do_train: true
finetuning_type: full  # all weights
dataset: identity
template: llama3
cutoff_len: 4096
output_dir: saves/x

per_device_train_batch_size: 4
gradient_accumulation_steps: 2
bf16: true
"""


def runs_of(files: dict[str, str], *names: str, **values: Any) -> list[Run]:
    return link(files, *names, values=values).runs


def run_of(text: str, **more: str) -> Run:
    files = {"a.yaml": text, **{name.replace("__", "."): body for name, body in more.items()}}
    return runs_of(files, "a.yaml")[0]


def fixed(run: Run, files: dict[str, str], **values: Any) -> dict[str, str]:
    """The files after a fix that makes the run say ``values`` (dots written as ``__``)."""
    wish = {name.replace("__", "."): value for name, value in values.items()}
    proposal = Proposal("change", (SetFields(wish),), Applicability.SAFE)
    fix = make_fix(run, proposal, None)
    assert fix is not None
    assert fix.reason is None
    out = dict(files)
    for path, edits in by_path(fix.edits).items():
        out[path] = Source(path, files[path]).edited(edits).text
    return out


# -- what configs mean ------------------------------------------------------------------------


def test_full_fine_tuning_upcasts_what_it_trains() -> None:
    plan = run_of(SFT).plan
    assert (plan.trainable.method, plan.load.dtype) == ("full", "bf16")
    assert (plan.precision.param, plan.precision.grad, plan.precision.optim_state) == ("fp32",) * 3
    assert (plan.precision.compute, plan.precision.autocast) == ("bf16", True)
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.eval_micro) == (4, 2, 8)
    assert plan.seq.max_len == 4096


def test_what_is_trained_is_fp32_on_the_gpu_before_deepspeed_casts_it_back() -> None:
    """Of ZeRO stages below 3 with what steps it on the host, loading is the highest instant."""

    def loading(stage: int, more: str = "", release: str = "0.9.4") -> int:
        offload = '"offload_optimizer": {"device": "cpu"}'
        config = (
            f'{{"bf16": {{"enabled": true}}, "zero_optimization": {{"stage": {stage}, {offload}}}}}'
        )
        text = SFT + more + "deepspeed: ds.json\n"
        files = {
            "a.yaml": text,
            "ds.json": config,
            "r.sh": "torchrun --nproc_per_node 8 src/train.py a.yaml\n",
        }
        (run,) = runs_of(files, **{"versions.llamafactory": release})
        found = run.estimate.gpu.phases["load"]
        assert found is not None
        return found

    fp32 = 4 * 8_030_261_248
    assert fp32 < loading(2) < fp32 + (2 << 30)
    # Pure bf16 stays as it is loaded; under ZeRO-3 each rank builds its shards alone.
    assert fp32 / 2 < loading(2, "pure_bf16: true\n") < fp32 / 2 + (2 << 30)
    assert loading(3) < fp32 / 8
    # Read into RAM, it was made fp32 there.
    assert loading(2, release="0.5.3") < fp32 / 2 + (2 << 30)


def test_pure_bf16_keeps_sixteen_bits() -> None:
    plan = run_of(SFT.replace("bf16: true", "pure_bf16: true")).plan
    assert (plan.precision.param, plan.precision.grad, plan.precision.optim_state) == ("bf16",) * 3
    assert (plan.precision.compute, plan.precision.autocast) == ("bf16", False)


def test_zero3_keeps_the_master_that_deepspeed_makes() -> None:
    run = run_of(SFT + "deepspeed: examples/deepspeed/ds_z3_config.json\n")
    precision = run.plan.precision
    assert (precision.param, precision.grad, precision.master) == ("bf16", "bf16", "fp32")
    assert run.plan.parallel.zero.stage == 3
    assert run.plan.parallel.zero.gather16_on_save is True
    assert run.plan.load.zero3_init is True
    assert run.plan.load.device_map == "none"


def test_freeze_trains_the_last_layers_in_fp32_over_frozen_bf16() -> None:
    text = SFT.replace("finetuning_type: full", "finetuning_type: freeze")
    plan = run_of(text + "freeze_trainable_layers: 3\n").plan
    assert (plan.trainable.method, plan.trainable.last_layers) == ("freeze", 3)
    assert (plan.precision.param, plan.precision.grad) == ("bf16", "fp32")


def test_lora_is_the_default_with_every_linear_layer() -> None:
    text = SFT.replace("finetuning_type: full  # all weights\n", "")
    plan = run_of(text + "lora_rank: 16\n").plan
    assert (plan.trainable.method, plan.trainable.targets) == ("lora", "all_linear")
    assert (plan.trainable.r, plan.trainable.alpha) == (16, 32)
    assert (plan.precision.param, plan.trainable.adapter_dtype) == ("bf16", "fp32")
    assert plan.parallel.ddp.find_unused is False


def test_named_targets_are_split_at_commas() -> None:
    text = SFT.replace("finetuning_type: full", "finetuning_type: lora")
    plan = run_of(text + "lora_target: q_proj, v_proj\nadditional_target: embed_tokens\n").plan
    assert plan.trainable.targets == ("q_proj", "v_proj")
    assert plan.trainable.modules_to_save == ("embed_tokens",)
    assert (plan.precision.param, plan.trainable.saved_dtype) == ("bf16", "fp32")


def test_copies_of_whole_modules_are_cast_as_adapters_are() -> None:
    text = SFT.replace("finetuning_type: full", "finetuning_type: lora")
    pure = run_of(text + "pure_bf16: true\nadditional_target: embed_tokens\n").plan
    assert (pure.trainable.adapter_dtype, pure.trainable.saved_dtype) == ("fp32", "bf16")


def test_quantization_bit_means_double_quantized_nf4() -> None:
    text = SFT.replace("finetuning_type: full", "finetuning_type: lora")
    plan = run_of(text + "quantization_bit: 4\n").plan
    assert (plan.trainable.method, plan.quant.method, plan.quant.double) == ("qlora", "bnb4", True)
    assert plan.quant.storage_dtype == "bf16"
    assert plan.quant.prepares_kbit is False
    assert plan.precision.param == "nf4"


@pytest.mark.parametrize(
    ("more", "mode", "reentrant", "offload"),
    [
        ("", "full", True, "none"),
        ("gradient_checkpointing: false\n", "full", True, "none"),
        ("disable_gradient_checkpointing: true\n", "none", True, "none"),
        ("use_reentrant_gc: false\n", "full", False, "none"),
        ("use_unsloth_gc: true\n", "full", True, "cpu"),
    ],
)
def test_checkpointing_is_on_unless_disabled(
    more: str, mode: str, reentrant: bool, offload: str
) -> None:
    checkpointing = run_of(SFT + more).plan.checkpointing
    assert (checkpointing.mode, checkpointing.reentrant) == (mode, reentrant)
    assert checkpointing.offload == offload


@pytest.mark.parametrize(
    ("stage", "more", "kind", "pairs", "reference"),
    [
        ("pt", "", "pretrain", 1, "none"),
        ("rm", "", "rm", 2, "none"),
        ("dpo", "", "dpo", 2, "copy"),
        ("dpo", "pref_loss: orpo\n", "orpo", 2, "none"),
        ("kto", "finetuning_type: lora\n", "kto", 1, "shared_adapter_off"),
        ("dpo", "finetuning_type: lora\nref_model: other\n", "dpo", 2, "copy"),
    ],
)
def test_stages_and_their_reference_models(
    stage: str, more: str, kind: str, pairs: int, reference: str
) -> None:
    text = SFT.replace("stage: sft", f"stage: {stage}")
    if "finetuning_type" in more:
        text = text.replace("finetuning_type: full  # all weights\n", "")
    objective = run_of(text + more).plan.objective
    assert (objective.kind, objective.pairs_per_sample) == (kind, pairs)
    assert objective.ref_model == reference


def test_liger_fuses_the_loss_where_no_logits_are_needed() -> None:
    liger = "enable_liger_kernel: true\n"
    assert run_of(SFT).plan.loss.logits_materialised == "full"
    assert run_of(SFT + liger).plan.loss.logits_materialised == "fused"
    dpo = SFT.replace("stage: sft", "stage: dpo") + liger
    assert run_of(dpo).plan.loss.logits_materialised == "full"
    assert run_of(dpo).plan.loss.liger.rms is True


@pytest.mark.parametrize(("release", "has_it"), [("0.8.3", False), ("0.9.0", True)])
def test_no_fix_writes_a_key_that_the_release_lacks(release: str, has_it: bool) -> None:
    (run,) = runs_of({"a.yaml": SFT, "requirements.txt": f"llamafactory=={release}\n"}, "a.yaml")
    wish = {"loss.logits_materialised": "fused"}
    if has_it:
        assert run.what_if(wish).plan.loss.logits_materialised == "fused"
    else:
        with pytest.raises(CannotEdit, match=r"has enable_liger_kernel from 0\.9\.0 on"):
            run.what_if(wish)


@pytest.mark.parametrize(
    ("stage", "more", "packing", "pad"),
    [
        ("sft", "", "none", "longest"),
        ("pt", "", "concat", "max_len"),
        ("pt", "packing: false\n", "none", "longest"),
        ("sft", "packing: true\n", "concat", "max_len"),
        ("sft", "neat_packing: true\n", "neat", "max_len"),
    ],
)
def test_packing(stage: str, more: str, packing: str, pad: str) -> None:
    seq = run_of(SFT.replace("stage: sft", f"stage: {stage}") + more).plan.seq
    assert (seq.packing, seq.pad) == (packing, pad)


@pytest.mark.parametrize(
    ("more", "kind", "fused"),
    [
        ("", "adamw", True),
        ("optim: adamw_torch\n", "adamw", False),
        ("optim: paged_adamw_8bit\n", "paged_adamw8bit", False),
        ("use_galore: true\ngalore_rank: 128\n", "galore", False),
        ("use_badam: true\n", "badam", True),
        ("use_adam_mini: true\n", "adam_mini", False),
    ],
)
def test_optimizers(more: str, kind: str, fused: bool) -> None:
    optimizer = run_of(SFT + more).plan.optimizer
    assert (optimizer.kind, optimizer.fused) == (kind, fused)
    if kind == "galore":
        assert optimizer.rank == 128


def test_fsdp_in_the_arguments_of_transformers_5_8() -> None:
    text = (
        SFT
        + "fsdp: full_shard auto_wrap offload\nfsdp_config:\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
    )
    run = run_of(text)
    parallel = run.plan.parallel
    assert (parallel.backend, parallel.fsdp.version, parallel.fsdp.wrap) == (
        "fsdp1",
        1,
        "transformer",
    )
    # Its fsdp_config has no key for it (transformers 5.8.0 training_args.py _process_fsdp_args).
    assert (parallel.fsdp.state_dict, run.plan.save.full_gather) == ("full", True)
    assert (run.plan.offload.params, run.plan.offload.optimizer) == ("cpu", "cpu")


def test_fsdp_config_says_nothing_without_fsdp() -> None:
    parallel = run_of(SFT + "fsdp_config:\n  cpu_offload: true\n").plan.parallel
    assert parallel.backend is None
    assert parallel.fsdp.cpu_offload is None


def test_megatron_degrees_divide_the_ranks() -> None:
    text = SFT + "tensor_model_parallel_size: 2\npipeline_model_parallel_size: 2\n"
    run = runs_of({"a.yaml": text}, **{"parallel.gpus_per_node": 8})[0]
    parallel = run.plan.parallel
    assert (parallel.backend, parallel.tp, parallel.pp, parallel.dp) == ("megatron", 2, 2, 2)
    assert run.plan.batch.global_ == 4 * 2 * 2
    assert (run.plan.precision.param, run.plan.precision.grad) == ("bf16", "fp32")


def test_the_allocator_is_open_where_nobody_says_the_release() -> None:
    run = run_of(SFT)
    assert run.plan.env.expandable_segments is True
    assert EXPANDS_SEGMENTS in run.open
    torchrun = {"a.yaml": SFT, "run.sh": "torchrun --nproc_per_node 2 src/train.py a.yaml\n"}
    assert runs_of(torchrun)[0].plan.env.expandable_segments is None
    v1 = run_of("model: Qwen/Qwen3-4B\ntrain_dataset: d.yaml\nmicro_batch_size: 2\n")
    assert v1.plan.env.expandable_segments is True
    assert EXPANDS_SEGMENTS not in v1.open  # there was no second configuration before


def test_the_allocator_is_set_where_torchrun_is_started() -> None:
    """On one GPU llamafactory-cli runs the training itself, with PyTorch's own allocator."""
    alone = {"parallel.gpus_per_node": 1}
    cli = {"a.yaml": SFT, "run.sh": "llamafactory-cli train a.yaml\n"}
    assert runs_of(cli, **alone)[0].plan.env.expandable_segments is None
    assert runs_of({"a.yaml": SFT}, **alone)[0].plan.env.expandable_segments is None
    assert runs_of(cli, **{"parallel.gpus_per_node": 2})[0].plan.env.expandable_segments is True
    forced = {"a.yaml": SFT, "run.sh": "FORCE_TORCHRUN=1 llamafactory-cli train a.yaml\n"}
    assert runs_of(forced, **alone)[0].plan.env.expandable_segments is True


def test_a_switch_that_cannot_be_read_leaves_checkpointing_unread() -> None:
    run = run_of(SFT + "disable_gradient_checkpointing: ${oc.env:OFF}\n")
    assert run.plan.checkpointing.mode == "full"
    assert run.level(f.checkpointing.mode) is Level.UNREAD


def test_megatron_has_data_parallelism_of_its_own() -> None:
    run = run_of(SFT + "tensor_model_parallel_size: 2\nrecompute_granularity: selective\n")
    assert run.plan.checkpointing.mode == "selective_op"
    assert run.plan.checkpointing.source == "megatron"
    assert run.plan.parallel.ddp.find_unused is False


def test_megatron_steps_by_an_optimizer_of_its_own() -> None:
    optimizer = run_of(SFT + "tensor_model_parallel_size: 2\noptim: adamw_torch\n").plan.optimizer
    assert (optimizer.kind, optimizer.fused, optimizer.foreach) == ("adamw", True, False)


def test_workers_of_ray_are_the_ranks() -> None:
    line = "USE_RAY=1 NPROC_PER_NODE=2 llamafactory-cli train a.yaml ray_num_workers=4\n"
    (run,) = runs_of({"a.yaml": SFT, "run.sh": line})
    assert run.plan.parallel.world == 4


def test_nothing_is_predicted_for_experts_on_the_cpu() -> None:
    text = SFT.replace("finetuning_type: full", "finetuning_type: lora")
    assert run_of(text).plan.model.dims is not None
    run = run_of(text + "use_kt: true\n")
    assert run.plan.model.dims is None
    assert run.estimate.gpu.peak_bytes is None


def test_unknown_keys_are_told_from_memory_neutral_ones() -> None:
    run = run_of(SFT + "warmup_ratio: 0.1\nplot_loss: true\ncutof_len: 1\n")
    assert [stray.path for stray in run.stray] == ["cutof_len"]
    assert run.stray[0].nearest[0] == "cutoff_len"
    assert run.stray[0].block.table.ignores_unknown is False


def test_numbers_in_the_omegaconf_spelling() -> None:
    run = run_of(SFT.replace("cutoff_len: 4096", "cutoff_len: 4e3"))
    assert run.plan.seq.max_len == 4000
    run = run_of(SFT.replace("cutoff_len: 4096", "cutoff_len: ${oc.env:LEN}"))
    assert run.plan.seq.max_len is None


# -- recognition ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (SFT, "run"),
        (SFT.replace("do_train: true\n", ""), "run"),
        (SFT.replace("do_train: true", "do_train: false"), "aside"),
        (SFT.replace("do_train: true", "do_predict: true"), "aside"),
        ("model_name_or_path: a\ntemplate: llama3\ninfer_backend: vllm\n", "aside"),
        ("model_name_or_path: a\nadapter_name_or_path: b\ntemplate: x\nexport_dir: c\n", "aside"),
        ("model_name_or_path: a\ndataset_name: b\nper_device_train_batch_size: 1\n", None),
        ("base_model: a\nmodel_name_or_path: b\nstage: sft\noutput_dir: c\n", None),
        ("stage: build\ndataset: x\n", None),
        ("- model_name_or_path: a\n- stage: sft\n", None),
    ],
)
def test_recognises_by_keys(text: str, kind: str | None) -> None:
    workspace = Workspace(Path("/x"), {"a.yaml": text.encode()})
    claims = Linker(workspace, registry(), LinkOptions()).claims("a.yaml")
    ours = [claim.kind for claim in claims if claim.dialect.name == "llama-factory"]
    assert ours == ([] if kind is None else [kind])


@pytest.mark.parametrize("folder", ["out/merged", "$FOLDER/merged"])
def test_what_trains_is_not_merged_whatever_folder_it_names(folder: str) -> None:
    line = (
        "llamafactory-cli train --model_name_or_path Qwen/Qwen2.5-7B --stage sft --do_train true --finetuning_type lora "
        f"--template qwen --dataset d --output_dir out --export_dir {folder}\n"
    )
    (run,) = runs_of({"run.sh": f"FOLDER=$(date)\n{line}"})
    assert run.plan.trainable.method == "lora"
    assert run.level(f.trainable.method) < Level.ASSUMED
    assert run.plan.save.merge is None


def test_json_configs_are_read_too() -> None:
    text = (
        '{"model_name_or_path": "a", "stage": "sft", "do_train": true, "dataset": "d", "bf16": 1}'
    )
    run = runs_of({"a.json": text})[0]
    assert (run.framework, run.plan.model.id) == ("llama-factory", "a")


def test_a_copy_of_the_second_configuration_has_its_own_keys() -> None:
    files = {
        "v1.yaml": "model: Qwen/Qwen3-4B\ntrain_dataset: d.yaml\ncutoff_len: 2048\ntemplate: qwen3\n"
    }
    (run,) = link(files).runs
    assert [stray.path for stray in run.stray] == ["template"]
    files["src/llamafactory/v1/config/model_args.py"] = "class ModelArguments:\n    template: str\n"
    (run,) = link(files, "v1.yaml").runs
    assert not run.stray


def test_v1_config() -> None:
    text = (
        "model: Qwen/Qwen3-4B\ntrain_dataset: d.yaml\nmicro_batch_size: 2\nglobal_batch_size: 64\n"
        "peft_config:\n  name: lora\n  r: 16\n  target_modules: all\n"
        "dist_config:\n  name: fsdp2\n  offload_params: true\n"
    )
    run = runs_of({"a.yaml": text}, **{"parallel.gpus_per_node": 8})[0]
    plan = run.plan
    assert run.framework == "llama-factory"
    assert (plan.trainable.method, plan.trainable.r, plan.trainable.targets) == (
        "lora",
        16,
        "all_linear",
    )
    assert (plan.parallel.backend, plan.batch.grad_accum) == ("fsdp2", 4)
    assert (plan.offload.optimizer, plan.checkpointing.mode) == ("cpu", "full")
    files = {"a.yaml": text}
    after = fixed(run, files, batch__micro=1, batch__grad_accum=8)["a.yaml"]
    assert "micro_batch_size: 1\nglobal_batch_size: 64\n" in after


# -- launch lines -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "nodes", "ranks", "micro"),
    [
        ("FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=8 llamafactory-cli train a.yaml", 2, 8, 4),
        ("CUDA_VISIBLE_DEVICES=0,1,2 lmf train a.yaml per_device_train_batch_size=1", 1, 3, 1),
        ("torchrun --nnodes 2 --nproc_per_node 4 src/train.py a.yaml", 2, 4, 4),
        ("python src/train.py a.yaml", 1, 1, 4),
    ],
)
def test_launch_lines(line: str, nodes: int, ranks: int, micro: int) -> None:
    runs = runs_of({"a.yaml": SFT, "run.sh": line + "\n"})
    assert len(runs) == 1
    plan = runs[0].plan
    assert (plan.parallel.nodes, plan.parallel.gpus_per_node) == (nodes, ranks)
    assert plan.parallel.world == nodes * ranks
    assert plan.batch.micro == micro


@pytest.mark.parametrize(
    ("release", "program", "more", "wrapper", "ranks"),
    [
        ("0.7.1", "llamafactory-cli train", "", "dp", 8),
        ("0.7.1", "llamafactory-cli train", "quantization_bit=4 finetuning_type=lora", "none", 1),
        ("0.8.0", "llamafactory-cli train", "", "ddp", 8),
        ("0.8.0", "python src/train.py", "", "dp", 8),
        ("0.8.2", "python src/train.py", "", "none", 1),
        ("0.9.4", "llamafactory-cli train", "", "ddp", 8),
    ],
)
def test_one_process_drove_all_gpus_until_the_command_line_started_torchrun(
    release: str, program: str, more: str, wrapper: str, ranks: int
) -> None:
    files = {
        "a.yaml": SFT,
        "run.sh": f"CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 {program} a.yaml {more}\n",
        "requirements.txt": f"llamafactory=={release}\n",
    }
    parallel = runs_of(files)[0].plan.parallel
    assert (parallel.backend, parallel.gpus_per_node) == (wrapper, ranks)


def test_the_model_computed_its_own_loss_beside_the_one_of_preference() -> None:
    """It makes logits, their fp32 copy and log-probabilities for the reference too."""
    text = SFT.replace("stage: sft", "stage: dpo").replace("size: 4", "size: 1")
    old, new = (
        run_of(text, requirements__txt=f"llamafactory=={release}\n")
        for release in ("0.9.3", "0.9.4")
    )
    assert (old.plan.loss.twice, new.plan.loss.twice) == (True, False)
    tokens, parts = 2 * 4096, [run.estimate.gpu.parts["forward"] for run in (old, new)]
    assert parts[0]["logits"] - parts[1]["logits"] == 2 * tokens * 128_256
    assert run_of(SFT.replace("stage: sft", "stage: kto")).plan.loss.twice is None


@pytest.mark.parametrize(
    ("release", "loss"), [("2024.5", ("full", "overwritten")), ("2025.1", ("fused", None))]
)
def test_the_loss_of_unsloth_is_fused_from_a_release_on(
    release: str, loss: tuple[str, str | None]
) -> None:
    text = SFT.replace("full", "lora") + "use_unsloth: true\n"
    run = run_of(text, requirements__txt=f"unsloth=={release}\n")
    assert (run.plan.loss.logits_materialised, run.plan.loss.algorithm) == loss


def test_a_command_line_alone_is_a_run() -> None:
    line = (
        "llamafactory-cli train --stage sft --do_train True --model_name_or_path Qwen/Qwen2.5-7B"
        " --finetuning_type lora --bf16 --per_device_train_batch_size 2 --cutoff_len 1024\n"
    )
    run = runs_of({"run.sh": line})[0]
    assert run.plan.precision.compute == "bf16"
    after = fixed(run, {"run.sh": line}, seq__max_len=512)["run.sh"]
    assert after == line.replace("--cutoff_len 1024", "--cutoff_len 512")


def test_other_commands_train_nothing() -> None:
    assert runs_of({"run.sh": "llamafactory-cli export a.yaml\nllamafactory-cli webui\n"}) == []
    assert runs_of({"run.sh": "python train.py a.yaml\n"}) == []


def test_the_second_configuration_is_chosen_by_the_environment() -> None:
    text = "model: Qwen/Qwen3-4B\ntrain_dataset: d.yaml\nmicro_batch_size: 2\n"
    line = "export USE_V1=1\nNPROC_PER_NODE=4 llamafactory-cli sft a.yaml micro_batch_size=3\n"
    (run,) = runs_of({"a.yaml": text, "run.sh": line})
    assert run.framework == "llama-factory"
    assert (run.plan.parallel.world, run.plan.batch.micro) == (4, 3)


# -- fixes ------------------------------------------------------------------------------------


def test_fixes_land_in_the_config() -> None:
    files = {"a.yaml": SFT}
    run = run_of(SFT)
    text = fixed(run, files, batch__micro=1, batch__grad_accum=8)["a.yaml"]
    assert "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8\n" in text
    text = fixed(run, files, loss__logits_materialised="fused")["a.yaml"]
    assert "enable_liger_kernel: true\n" in text
    text = fixed(run, files, optimizer__kind="paged_adamw8bit")["a.yaml"]
    assert "optim: paged_adamw_8bit\n" in text
    text = fixed(run, files, model__attn_impl="flash2")["a.yaml"]
    assert "flash_attn: fa2\n" in text
    assert "# all weights" in text


def test_disabled_checkpointing_is_enabled_by_the_same_key() -> None:
    text = SFT + "disable_gradient_checkpointing: true\n"
    after = fixed(run_of(text), {"a.yaml": text}, checkpointing__mode="full")["a.yaml"]
    assert after == SFT + "disable_gradient_checkpointing: false\n"


def test_lora_can_be_quantized_and_full_fine_tuning_cannot() -> None:
    text = SFT.replace("finetuning_type: full", "finetuning_type: lora")
    after = fixed(run_of(text), {"a.yaml": text}, quant__method="bnb4")["a.yaml"]
    assert "quantization_bit: 4\n" in after
    with pytest.raises(CannotEdit, match="LoRA or OFT"):
        run_of(SFT).what_if({"quant.method": "bnb4"})


def test_a_shipped_preset_is_swapped_for_its_neighbour() -> None:
    text = SFT + "deepspeed: examples/deepspeed/ds_z2_config.json\n"
    run = run_of(text)
    wish = {"parallel.zero.stage": 3, "parallel.zero.gather16_on_save": True}
    changed = run.what_if(wish).plan
    assert changed.parallel.zero.stage == 3
    assert changed.load.zero3_init is True
    proposal = Proposal("shard", (SetFields(wish),), Applicability.SAFE)
    fix = make_fix(run, proposal, None)
    assert fix is not None
    assert fix.reason is None
    after = Source("a.yaml", text).edited(fix.edits).text
    assert after == text.replace("ds_z2_config", "ds_z3_config")
    again = run_of(after).plan
    assert (again.parallel, again.offload, again.precision) == (
        changed.parallel,
        changed.offload,
        changed.precision,
    )


def test_a_deepspeed_file_is_edited_itself_and_batches_stay_equal() -> None:
    config = '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 4}\n'
    text = SFT + "deepspeed: ds.json\n"
    files = {"a.yaml": text, "ds.json": config}
    run = runs_of(files, "a.yaml")[0]
    after = fixed(run, files, batch__micro=2, batch__grad_accum=4)
    assert '"train_micro_batch_size_per_gpu": 2' in after["ds.json"]
    assert "per_device_train_batch_size: 2" in after["a.yaml"]


@pytest.mark.parametrize("key", ["predict_with_generate: true", "pure_bf16: true"])
def test_zero3_is_not_proposed_where_the_framework_refuses_it(key: str) -> None:
    run = run_of(f"{SFT}{key}\ndeepspeed: ds_z2_config.json\n")
    with pytest.raises(CannotEdit, match="refuses"):
        run.what_if({"parallel.zero.stage": 3})


@pytest.mark.parametrize("stage", [2, 3])
def test_muon_which_takes_matrices_is_not_sharded_by_zero(stage: int) -> None:
    run = run_of(SFT.replace("finetuning_type: lora", "finetuning_type: full") + "use_muon: true\n")
    with pytest.raises(CannotEdit, match="Muon knows only the matrices"):
        run.what_if({"parallel.zero.stage": stage})


def test_new_keys_go_to_the_config_and_not_to_the_launch_line() -> None:
    line = "llamafactory-cli train a.yaml per_device_train_batch_size=8\n"
    files = {"a.yaml": SFT, "run.sh": line}
    (run,) = runs_of(files)
    after = fixed(run, files, batch__micro=1, save__save_only_model=True)
    assert after["run.sh"] == line.replace("=8", "=1")
    assert "save_only_model: true" in after["a.yaml"]


# -- the corpus -------------------------------------------------------------------------------


def _claims(root: Path) -> dict[str, list[Any]]:
    if not root.is_dir():
        pytest.skip(f"{root.name} of the shared reference is not here")
    linker = Linker(Workspace(root), registry(), LinkOptions())
    found: dict[str, list[Any]] = {}
    for path in sorted(root.rglob("*")):
        if path.suffix in (".yaml", ".yml", ".json", ".sh"):
            name = str(path.relative_to(root))
            try:
                claims = linker.claims(name)
            except FileError:
                continue
            found[name] = [c for c in claims if c.dialect.name.startswith("llama-factory")]
    return found


def test_corpus_is_recognised_and_its_keys_are_known() -> None:
    import json

    found = _claims(CORPUS)
    wanted = {"llama-factory": "run", "llama-factory-v1": "run"}
    keys = unknown = 0
    strays = []
    for line in (CORPUS / "index.jsonl").read_text("utf-8").splitlines():
        entry = json.loads(line)
        name = f"{entry['repo']}/{entry['path']}"
        if not entry["here"] or name not in found:
            continue
        claims = found[name]
        if entry["framework"] not in wanted:
            assert not claims, name
            continue
        kind = "run" if entry["kind"] == "train-config" else "aside"
        assert [(c.dialect.name, c.kind) for c in claims] == [(entry["framework"], kind)], name
        for block in claims[0].blocks:
            reading = block.read()
            assert not reading.wrong, name
            keys += len(block.mapping.entries)
            unknown += len(reading.stray)
            strays += [f"{name}: {stray.path}" for stray in reading.stray]
    assert keys > 500
    assert unknown <= 0.02 * keys, strays


def test_nothing_foreign_is_claimed() -> None:
    claimed = [name for name, claims in _claims(FOREIGN).items() if claims]
    assert claimed == []


# -- against the framework's own parser ---------------------------------------------------------


def test_defaults_agree_with_transformers(tmp_path: Path) -> None:
    """A dozen keys that LLaMA-Factory shares with transformers, absent and set."""
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    fields = {
        "per_device_train_batch_size": ("batch.micro", 3),
        "per_device_eval_batch_size": ("batch.eval_micro", 5),
        "gradient_accumulation_steps": ("batch.grad_accum", 7),
        "save_steps": ("save.every", 11),
        "save_strategy": ("save.strategy", "epoch"),
        "save_only_model": ("save.save_only_model", True),
        "eval_strategy": ("eval.strategy", "steps"),
        "load_best_model_at_end": ("save.load_best_at_end", False),
        "dataloader_num_workers": ("data.workers", 4),
        "dataloader_pin_memory": ("data.pin_memory", False),
        "auto_find_batch_size": ("batch.auto_micro", True),
        "torch_compile": ("compile.enabled", False),
    }
    parser = transformers.HfArgumentParser(transformers.Seq2SeqTrainingArguments)
    head = SFT.partition("per_device_train_batch_size")[0]
    for given in ({}, {key: value for key, (_, value) in fields.items()}):
        (theirs,) = parser.parse_dict({"output_dir": str(tmp_path), "use_cpu": True, **given})
        text = head + "".join(f"{key}: {str(v).lower()}\n" for key, v in given.items())
        plan = run_of(text).plan
        for key, (field, _) in fields.items():
            value = getattr(theirs, key)
            value = getattr(value, "value", value)
            if key == "dataloader_pin_memory" and not given:
                value = True  # transformers turns it off where it is told to use the CPU
            assert plan.get(field) == value, key


def test_a_launch_line_over_a_config_that_predicts_is_no_run() -> None:
    line = "llamafactory-cli train a.yaml\n"
    assert runs_of({"a.yaml": SFT, "run.sh": line}, "a.yaml", "run.sh")
    predicts = SFT.replace("do_train: true", "do_train: false\ndo_predict: true")
    assert not runs_of({"a.yaml": predicts, "run.sh": line}, "a.yaml", "run.sh")


def test_a_config_of_no_epochs_trains_nothing() -> None:
    assert runs_of({"a.yaml": SFT + "num_train_epochs: 3.0\n"}, "a.yaml")
    assert not runs_of({"a.yaml": SFT + "num_train_epochs: 0.0\n"}, "a.yaml")
    assert runs_of({"a.yaml": SFT + "num_train_epochs: 0\nmax_steps: 9\n"}, "a.yaml")


def test_lengths_of_2023_are_no_strangers() -> None:
    run = run_of(SFT + "max_source_length: 1024\nmax_target_length: 512\n")
    assert not run.stray
    old = [key.path for block, _ in run.parts.blocks for key, _ in block.renamed()]
    assert old == ["max_source_length", "max_target_length"]


@pytest.mark.parametrize(
    ("modules", "trained"),
    [
        ("", 2 * 218_112_000),
        ("freeze_trainable_modules: self_attn\n", 2 * 41_943_040),
        ("freeze_extra_modules: embed_tokens,lm_head\n", 2 * 218_112_000 + 2 * 128_256 * 4096),
    ],
)
def test_parts_of_layers_and_modules_beside_them_are_trained(modules: str, trained: int) -> None:
    text = (
        "model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\ndo_train: true\ndataset: a\n"
        f"template: llama3\noutput_dir: out\nfinetuning_type: freeze\n{modules}"
    )
    (run,) = link({"a.yaml": text}).runs
    assert Facts(run.placed.plan).trained.numel == trained


@pytest.mark.parametrize("key", ["use_galore", "use_apollo", "use_badam"])
def test_no_adapter_beside_what_projects_all_gradients(key: str) -> None:
    """LF/hparams/finetuning_args.py:595 stops at them together."""
    with pytest.raises(CannotEdit, match=f"refuses {key} with LoRA"):
        run_of(SFT + f"{key}: true\n").what_if({f.trainable.method: "lora"})
    assert run_of(SFT).what_if({f.trainable.method: "lora"}).plan.trainable.method == "lora"


TOKENS = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
do_train: true
finetuning_type: lora
dataset: identity
template: llama3
cutoff_len: 1024
tokenized_path: saves/tokens
output_dir: out
"""
_ENV = "src/llamafactory/extras/env.py"


@pytest.mark.parametrize(
    ("own", "more", "trains"),
    [
        ({_ENV: 'VERSION = "0.9.1"\n'}, "", False),
        ({_ENV: 'VERSION = "0.9.2"\n'}, "", True),
        ({}, "", True),
        ({_ENV: 'VERSION = "0.9.1"\n'}, "per_device_train_batch_size: 1\n", True),
    ],
)
def test_a_config_for_preprocessing_trains_nothing_where_the_program_stops_after_it(
    own, more, trains
):
    files = {"examples/preprocess.yaml": TOKENS + more, **own}
    assert bool(link(files, "examples/preprocess.yaml").runs) is trains
    started = {**files, "a.sh": "llamafactory-cli train examples/preprocess.yaml\n"}
    assert bool(link(started).runs) is trains


@pytest.mark.parametrize(
    ("path", "text", "release"),
    [
        (_ENV, 'VERSION = "0.8.3"\n', "0.8.3"),
        (_ENV, 'import os\n\nVERSION = "0.8.4.dev0"\n', "0.9.0"),
        (_ENV, 'VERSION = "0.9.4.dev0"\n', "0.9.4"),
        ("src/llamafactory/cli.py", 'VERSION = "0.7.2.dev0"\n', "0.8.0"),
        ("src/llmtuner/__init__.py", '__version__ = "0.5.3"\n', "0.5.3"),
    ],
)
def test_a_copy_says_which_release_it_is_of(path, text, release):
    """A development version had a number that no release took: what it became tells what it does."""
    config = TOKENS.replace("tokenized_path: saves/tokens\n", "per_device_train_batch_size: 1\n")
    (run,) = link({"examples/a.yaml": config, path: text}, "examples/a.yaml").runs
    assert run.plan.versions["llamafactory"] == release


def test_a_script_that_calls_the_commands_own_main_trains_the_config_that_it_is_given():
    line = "CUDA_VISIBLE_DEVICES=0,1,2,3 python main.py train config/a.yaml\n"
    config = TOKENS.replace("tokenized_path: saves/tokens\n", "per_device_train_batch_size: 1\n")
    (run,) = link({"a.sh": line, "config/a.yaml": config}).runs
    assert run.plan.parallel.world == 4
    other = {"a.sh": line, "config/a.yaml": "epochs: 3\nlearning_rate: 0.1\n"}
    assert not link(other).runs


@pytest.mark.parametrize(
    ("line", "config", "word", "stops"),
    [
        ("dataset:", "a.yaml", "", True),
        ("dataset: ''", "a.yaml", "", True),
        ("dataset:", "a.yaml", " dataset=alpaca", False),
        ("dataset:\ntokenized_path: data/tokenized", "a.yaml", "", False),
        ("dataset: alpaca", "a.yaml", "", False),
    ],
)
def test_a_config_whose_data_set_is_left_empty_starts_nothing(
    line: str, config: str, word: str, stops: bool
) -> None:
    text = f"model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\ndo_train: true\nfinetuning_type: full\n{line}\n"
    run = run_of_files({config: text, "run.sh": f"llamafactory-cli train {config}{word}\n"})
    assert (shared.stops in run.settings) is stops
