"""GPT-NeoX's YAML, alone, in parts, and as ``deepy.py`` puts it together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import link, report_of, run_of

from oomlint.dialects import registry
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.fix.edits import make_fix
from oomlint.judgement.forecast import forecast_of
from oomlint.judgement.unpredicted import why_unpredicted
from oomlint.linting.rule import Applicability, Proposal, SetFields, Severity
from oomlint.memory import estimate
from oomlint.memory.build import skeleton
from oomlint.plan.fields import f
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_MODEL = """\
{
  "pipe-parallel-size": 1,
  "model-parallel-size": 2,
  "num-layers": 24,
  "hidden-size": 2048,
  "num-attention-heads": 16,
  "seq-length": 2048,
  "max-position-embeddings": 2048,
  "pos-emb": "rotary",
  "no-weight-tying": true,
"""
_TRAINING = """\
  "optimizer": {"type": "Adam", "params": {"lr": 0.0002, "betas": [0.9, 0.95],}},
  "zero_optimization": {
    "stage": 1,
    "allgather_bucket_size": 500000000,
    "overlap_comm": True,
  },
  "train_micro_batch_size_per_gpu": 4,  # as many as fit
  "gradient_accumulation_steps": 8,
  "checkpoint_activations": true,
  "gradient_clipping": 1.0,
  "fp16": {"enabled": true, "loss_scale": 0},
  "train_iters": 320000,
  "checkpoint_factor": 1000,
"""
_PATHS = """\
{
  "data_path": "data/enwik8",
  "vocab_file": "data/20B_tokenizer.json",
  "tokenizer_type": "HFTokenizer",
  "save": "checkpoints",
  "load": "checkpoints",
}
"""
_YAML = f"{_MODEL}{_TRAINING}}}\n"
_LAUNCH = "python ./deepy.py train.py -d configs model.yml paths\n"


def _run(text: str = _YAML, hardware: str = "8xA100-80GB") -> Run:
    run = run_of({"a.yml": text}, hardware=hardware)
    assert run.framework == "gpt-neox"
    return run


def _with(line: str) -> str:
    return _YAML.replace('"train_iters"', f'{line}\n  "train_iters"')


# -- reading ---------------------------------------------------------------------------------------


def test_a_whole_config() -> None:
    run = _run()
    plan, dims = run.plan, run.plan.model.dims
    assert not run.stray
    assert dims is not None
    # 50257 tokens of GPT-2 padded to a multiple of 128 on each of two ranks.
    assert (dims.layers, dims.ffn, dims.vocab, dims.arch) == (24, 8192, 50432, "gpt_neox")
    assert dims.tie_embeddings is False
    assert (plan.parallel.tp, plan.parallel.pp, plan.parallel.dp) == (2, 1, 4)
    assert (plan.parallel.backend, plan.parallel.zero.stage) == ("zero", 1)
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.global_) == (4, 8, 128)
    assert (plan.precision.param, plan.precision.master) == ("fp16", "fp32")
    assert plan.checkpointing.mode == "full"
    assert plan.model.attn_impl == "eager"
    assert plan.loss.logits_materialised == "loss_parallel"
    assert plan.save.strategy == "no"  # checkpoint_factor says how often, save whether


def test_a_gated_mlp_is_a_third_of_the_given_width() -> None:
    line = '"intermediate_size": 32768, "mlp_multiple_of": 256, "activation": "swiglu", "norm": "rmsnorm",'
    dims = _run(_with(line)).plan.model.dims
    assert dims is not None
    assert (dims.ffn, dims.act, dims.arch) == (11008, "swiglu", "llama")


def test_llamas_mlp_had_the_width_given_until_its_key_went() -> None:
    """Since 2024-09 the key is refused, so that a file that has it is of before."""
    usual = _run(
        _with('"mlp_type": "llama", "activation": "silu", "norm": "rmsnorm",')
    ).plan.model.dims
    assert usual is not None
    assert (usual.ffn, usual.act, usual.mlp_bias) == (5632, "swiglu", False)  # 8/3 x 2048, by 256
    given = _run(_with('"mlp_type": "llama", "intermediate_size": 14336,')).plan.model.dims
    assert given is not None
    assert given.ffn == 14336


@pytest.mark.parametrize(
    ("config", "kernel"),
    [
        ('[[["flash"], 24]]', "flash2"),
        ('[[["flash"], "all"]]', "flash2"),
        ('[[["flash", "global"], 12]]', "eager"),
        ('[[["mamba"], "all"]]', None),
    ],
)
def test_attention(config: str, kernel: str | None) -> None:
    plan = _run(_with(f'"attention_config": {config},')).plan
    assert (plan.model.dims is None) == (kernel is None)
    if kernel is not None:
        assert plan.model.attn_impl == kernel


def test_tuning_by_preferences_holds_a_second_model() -> None:
    plan = _run(_with('"train_impl": "dpo",')).plan
    assert (plan.objective.kind, plan.objective.ref_model) == ("dpo", "copy")
    alone = _run(_with('"train_impl": "dpo", "dpo_reference_free": true,')).plan
    assert alone.objective.ref_model == "none"


def test_bf16_below_stage_1_shards_its_states_and_adds_up_in_fp32() -> None:
    """DeeperSpeed is a DeepSpeed of before 0.17.6."""
    text = _YAML.replace('"stage": 1', '"stage": 0').replace('"fp16"', '"bf16"')
    plan = _run(text).plan
    assert (plan.parallel.zero.stage, plan.precision.grad_accum) == (1, "fp32")


def test_precision_says_what_deepspeeds_switches_say() -> None:
    text = _YAML.replace('"fp16": {"enabled": true, "loss_scale": 0}', '"precision": "bfloat16"')
    plan = _run(text).plan
    assert (plan.precision.param, plan.precision.master) == ("bf16", "fp32")
    whole = _run(text.replace("bfloat16", "fp32")).plan
    assert (whole.precision.param, whole.precision.master) == ("fp32", "none")


def test_a_model_of_experts() -> None:
    dims = _run(_with('"moe_num_experts": 64, "moe_expert_interval": 2,')).plan.model.dims
    assert dims is not None
    assert dims.moe is not None
    assert (dims.moe.experts, dims.moe.every_n) == (64, 2)


def test_a_node_that_is_too_small_means_more_of_them() -> None:
    text = _YAML.replace('"pipe-parallel-size": 1', '"pipe-parallel-size": 8')
    parallel = _run(text).plan.parallel
    assert (parallel.nodes, parallel.world, parallel.dp) == (2, 16, 1)


def test_a_run_of_as_many_nodes_as_the_hardware_has() -> None:
    assert _run(hardware="3x8xA100-40GB").plan.parallel.world == 24


def test_unknown_keys_are_refused() -> None:
    (stray,) = _run(_with('"checkpoint-activation": true,')).stray
    assert stray.path == "checkpoint_activation"
    assert "checkpoint_activations" in stray.nearest
    assert stray.block.table.refuses(stray.path)


def test_what_the_project_declares_is_legal() -> None:
    files = {"a.yml": _with('"decay_lr_to": 0.03,')}
    assert run_of(files).stray
    declared = "@dataclass\nclass NeoXArgsTraining:\n    decay_lr_to: float = None\n"
    own = {**files, "megatron/neox_arguments/neox_args.py": declared}
    assert not run_of(own, "a.yml").stray


# -- deepy.py --------------------------------------------------------------------------------------


def test_a_run_of_several_files() -> None:
    files = {
        "run.sh": _LAUNCH,
        "configs/model.yml": _YAML,
        "configs/paths.yml": _PATHS,
    }
    run = run_of(files, hardware="8xA100-80GB")
    assert set(run.files) == set(files)
    assert (run.plan.save.strategy, run.plan.save.every) == ("steps", 1000)
    assert run.plan.parallel.world == 8


def test_a_model_alone_is_nobodys_run() -> None:
    files = {"configs/model.yml": f"{_MODEL}}}\n", "configs/train.yml": "{\n" + _TRAINING + "}\n"}
    assert not link(files).runs
    launch = {"run.sh": "./deepy.py train.py configs/model configs/train.yml\n"}
    run = run_of({**files, **launch})
    assert run.plan.batch.micro == 4
    assert run.plan.model.dims is not None


def test_options_of_the_launcher() -> None:
    text = _with('"num_gpus": 4, "hostfile": "hosts",')
    run = run_of({"a.yml": text, "hosts": "a slots=8\nb slots=8\n"}, "a.yml")
    assert (run.plan.parallel.nodes, run.plan.parallel.gpus_per_node) == (2, 4)
    # fetch_hostfile only warns.
    assert not run_of({"a.yml": text}).missing


@pytest.mark.parametrize("script", ["generate.py", "eval.py"])
def test_other_scripts_train_nothing(script: str) -> None:
    launch = f"./deepy.py {script} -d configs model.yml\n"
    linked = link({"run.sh": launch, "configs/model.yml": _YAML}, "run.sh")
    assert not linked.runs


def test_a_copy_for_the_autotuner_is_no_config_of_deepspeed() -> None:
    text = """{"num-layers": 12, "hidden-size": 768, "num-attention-heads": 12, "pos-emb": "rotary",
     "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 0}, "fp16": {"enabled": true},
     "seq-length": 2048, "comment": "neox", "autotuning": {"enabled": true}}"""
    run = run_of({"tune.json": text})
    assert run.framework == "gpt-neox"
    assert not run.stray


def test_a_list_of_stages_is_tried_by_the_autotuner() -> None:
    tuned = _with('"autotuning": {"enabled": true},').replace('"stage": 1', '"stage": [0, 1]')
    run = _run(tuned)
    assert not run.wrong
    assert run.cells.is_unread(f.parallel.zero.stage)
    assert _run(_YAML.replace('"stage": 1', '"stage": [0, 1]')).wrong


def test_layers_that_are_not_modelled_are_named() -> None:
    run = _run(_with('"attention_config": [[["mamba"], "all"]],'))
    assert run.plan.model.arch == "mamba"
    assert why_unpredicted(forecast_of(run)) == "what layers of mamba keep is not known"


def test_accumulation_is_one_where_nobody_says_it() -> None:
    """Not what train_batch_size leaves: NeoX stops where the three do not agree."""
    text = _YAML.replace('"gradient_accumulation_steps": 8', '"train_batch_size": 16')
    assert _run(text).plan.batch.grad_accum == 1
    after = fixed(_run, text, {"batch.micro": 2, "batch.grad_accum": 2})
    assert '"gradient_accumulation_steps": 2' in after


# -- fixes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"batch.micro": 2, "batch.grad_accum": 16}, '"train_micro_batch_size_per_gpu": 2,  # as'),
        ({"checkpointing.mode": "none"}, '"checkpoint_activations": false'),
        ({"seq.max_len": 1024}, '"seq-length": 1024'),
        ({"parallel.pp": 2}, '"pipe-parallel-size": 2'),
        ({"parallel.tp": 4}, '"model-parallel-size": 4'),
        ({"model.attn_impl": "flash2"}, '"attention_config": [[["flash"], 24]]'),
        ({"optimizer.kind": "adamw8bit"}, '"use_bnb_optimizer": true'),
        ({"offload.optimizer": "cpu"}, '"type": "cpu_adam"'),
        ({"checkpointing.offload": "cpu"}, '"partition_activations": true'),
    ],
)
def test_wishes(changes: dict[str, Any], line: str) -> None:
    after = fixed(_run, _YAML, changes)
    assert line.replace('"', "") in after.replace('"', "")
    assert "# as many as fit" in after


def test_a_checkpoint_of_all_layers_saves_nothing_and_is_made_one_of_each() -> None:
    text = _with('"checkpoint_num_layers": 24,')
    assert _run(text).plan.checkpointing.mode == "none"
    assert '"checkpoint_num_layers": 1' in fixed(_run, text, {"checkpointing.mode": "full"})
    assert _run(_with('"checkpoint_num_layers": 2,')).plan.checkpointing.mode == "full"


def test_higher_stages_want_no_pipeline_module_which_saves_otherwise() -> None:
    text = _YAML.replace('"model-parallel-size": 2', '"model-parallel-size": 1')
    with pytest.raises(CannotEdit, match="without its pipeline module"):
        _run(text).what_if({"parallel.zero.stage": 3})


def test_checkpoints_are_saved_as_often_as_wished() -> None:
    after = fixed(_run, _with('"save": "checkpoints",'), {"save.every": 500})
    assert '"checkpoint_factor": 500' in after


def test_dashes_stand_for_underscores_in_what_is_deepspeeds_too() -> None:
    text = _YAML.replace('"zero_optimization"', '"zero-optimization"')
    text = text.replace("train_micro_batch_size_per_gpu", "train-micro-batch-size-per-gpu")
    assert _run(text).plan == _run().plan
    after = fixed(_run, text, {"offload.optimizer": "cpu"})
    assert "zero_optimization" not in after


@pytest.mark.parametrize(
    "changes",
    [
        {"parallel.zero.stage": 3},
        {"quant.method": "bnb4"},
        {"checkpointing.mode": "selective_op"},
        {"loss.logits_materialised": "fused"},
        {"batch.eval_micro": 1},
    ],
)
def test_what_gpt_neox_cannot_say(changes: dict[str, Any]) -> None:
    run = _run()
    fix = make_fix(run, Proposal("title", (SetFields(changes),), Applicability.SAFE), None)
    assert fix is None or fix.reason is not None
    with pytest.raises(CannotEdit):
        run.dialect.express(changes, run.cells)


def test_mamba_layers_that_one_kernel_computes() -> None:
    """Counted by the parameters of ParallelMambaBlock.__init__: no published model has their like."""
    text = _with('"attention_config": [[["mamba"], "all"]], "mamba_inner_func_fusion": true,')
    text = text.replace('"model-parallel-size": 2', '"model-parallel-size": 1')
    run = _run(text)
    inner, rank, state, hidden, vocab = 4096, 128, 16, 2048, 50304
    layer = hidden * 2 * inner + inner * (rank + 2 * state) + rank * inner + inner * hidden
    layer += inner * (1 + 4 + 1 + state + 1) + 2 * hidden
    found = skeleton(run.plan.model.dims)
    assert found is not None
    assert found.numel == 24 * layer + 2 * vocab * hidden + 2 * hidden
    peak = estimate(run.plan).gpu
    assert peak is not None
    assert peak.peak_bytes


def test_a_file_of_how_models_are_trained() -> None:
    text = f'{{{_TRAINING} "distributed-backend": "nccl"}}\n'
    workspace = Workspace(Path("/x"), {"train.yml": text.encode()})
    claims = Linker(workspace, registry(), LinkOptions()).claims("train.yml")
    assert [(c.dialect.name, c.kind) for c in claims] == [("gpt-neox", "aside")]


def test_hosts_that_are_not_known_may_have_room_for_a_group() -> None:
    text = _with('"hostfile": "./hostfile", "include": "",')
    text = text.replace('"pipe-parallel-size": 1', '"pipe-parallel-size": 16')
    job = "#!/bin/bash\n#SBATCH -N 4\n#SBATCH --gpus-per-node 8\npython ./deepy.py train.py a.yml\n"
    files = {"a.yml": text, "run.slurm": job}
    found = report_of(files, hardware="8xA100-80GB").diagnoses
    severities = [each.severity for each in found if each.rule.code == "OOM706"]
    assert severities == [Severity.INFO]
