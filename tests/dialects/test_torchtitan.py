"""torchtitan's TOML, its Python config registries and its launch lines."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fixing import fixed, fixed_files
from tests.linked import link, report_of, run_of

from oomlint.dialects.common.fields import shared
from oomlint.dialects.torchtitan.models import family_of, flavor_of
from oomlint.errors import CannotEdit
from oomlint.fix.edits import make_fix
from oomlint.judgement.forecast import forecast_of
from oomlint.judgement.unpredicted import why_unpredicted
from oomlint.linting.rule import Applicability, Proposal, SetFields, Severity
from oomlint.runs.run import Run

_TOML = """\
[model]
name = "llama3"
flavor = "8B"

[optimizer]
name = "AdamW"

[training]
local_batch_size = 4
seq_len = 8192
steps = 1000  # a short one

[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 2

[checkpoint]
enable = true
interval = 200

[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
"""

_REGISTRY = """\
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.trainer import Trainer

from . import model_registry


def small() -> Trainer.Config:
    spec = model_registry("1B")
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config()),
        model_spec=spec,
        optimizer=default_adamw(lr=3e-4),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=4 * 4096,
            max_context_length=4096,
            steps=100,
        ),
        activation_checkpoint=SelectiveAC.Config(),
    )


def small_compiled() -> Trainer.Config:
    config = small()
    config.compile = CompileConfig(enable=True, components=["model"])
    config.training.max_context_length = 2048
    return config


def plain() -> Trainer.Config:
    return Trainer.Config(
        loss=CrossEntropyLoss.Config(),
        model_spec=model_registry("8B", attn_backend="varlen"),
        optimizer=default_adamw(lr=3e-4),
        training=TrainingConfig(),
        parallelism=ParallelismConfig(tensor_parallel_degree=4),
        activation_checkpoint=None,
    )
"""
_MODULE = "torchtitan/models/llama3/config_registry.py"


def _run(text: str = _TOML, **options: Any) -> Run:
    (run,) = link({"job.toml": text}, **options).runs
    assert run.framework == "torchtitan"
    return run


def _launched(line: str, text: str = _TOML) -> Run:
    (run,) = link({"job.toml": text, "go.sh": line + "\n"}).runs
    return run


def _registry_run(name: str, text: str = _REGISTRY) -> Run:
    return next(r for r in link({_MODULE: text}).runs if r.name.endswith(f":{name}"))


def test_a_function_of_a_registry_is_asked_for_by_its_name() -> None:
    run = _registry_run("plain")
    assert run.parts.why_unused(run) == ""


def test_a_family_that_is_not_counted_is_named() -> None:
    module = "torchtitan/models/muse_glimmer/config_registry.py"
    runs = link({module: _REGISTRY.replace("llama3", "muse_glimmer")}).runs
    assert {run.plan.model.arch for run in runs} == {"muse_glimmer"}
    assert "muse_glimmer" in why_unpredicted(forecast_of(runs[0]))


# -- TOML --------------------------------------------------------------------------------------


def test_a_config_alone_is_a_run_on_the_ranks_that_its_script_starts() -> None:
    plan = _run().plan
    assert plan.model.id == "meta-llama/Llama-3.1-8B"
    assert plan.parallel.backend == "fsdp2"
    assert (plan.parallel.world, plan.parallel.tp, plan.parallel.dp_shard) == (8, 2, 4)
    assert plan.parallel.sp is True
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.global_) == (4, 1, 16)
    assert plan.seq.max_len == 8192
    assert (plan.precision.param, plan.precision.compute) == ("fp32", "bf16")
    assert (plan.precision.grad, plan.precision.comm, plan.precision.master) == (
        "fp32", "fp32", "none",
    )  # fmt: skip
    assert plan.precision.autocast is False
    assert plan.checkpointing.mode == "selective_op"
    assert plan.loss.logits_materialised == "loss_parallel"
    assert plan.optimizer.kind == "adamw"
    assert plan.optimizer.fused is True
    assert (plan.save.strategy, plan.save.every, plan.save.keep) == ("steps", 200, 10)
    assert plan.save.contents == ("model", "optimizer", "scheduler")
    assert plan.save.full_gather is False


def test_assumed_ranks_are_said_to_be_assumed() -> None:
    origin = _run().origin("parallel.gpus_per_node")
    assert origin is not None
    assert origin.kind == "assumed"


def test_the_comment_at_the_head_gives_the_ranks() -> None:
    plan = _run("# NOTE: this toml config is a preset for 64 A100 GPUs.\n" + _TOML).plan
    assert (plan.parallel.nodes, plan.parallel.world, plan.parallel.dp_shard) == (8, 64, 32)


def test_explicit_degrees_give_the_world() -> None:
    plan = _run(_TOML.replace("shard_degree = -1", "shard_degree = 16")).plan
    assert plan.parallel.world == 32


def test_explicit_degrees_make_up_the_world_on_any_machine() -> None:
    text = _TOML.replace("shard_degree = -1", "shard_degree = 1")
    plan = _run(text, hardware="2x8xH100-80GB").plan
    assert (plan.parallel.nodes, plan.parallel.gpus_per_node, plan.parallel.world) == (1, 2, 2)
    wide = _run(_TOML.replace("shard_degree = -1", "shard_degree = 16"), hardware="8xH100-80GB")  # fmt: skip
    assert (wide.plan.parallel.nodes, wide.plan.parallel.world) == (4, 32)


def test_ranks_that_a_launcher_counts_are_those_of_the_launcher() -> None:
    text = _TOML.replace("shard_degree = -1", "shard_degree = 16")
    for launcher, options in (
        ("srun -n 16", {}),
        ("mpirun -np 16", {"hardware": "8xH100-80GB"}),
    ):
        line = f"{launcher} python -m torchtitan.train --job.config_file job.toml\n"
        (run,) = link({"job.toml": text, "go.sh": line}, **options).runs
        assert run.plan.parallel.world == 16


def test_a_batch_of_all_ranks_that_cannot_be_read_leaves_the_micro_batch() -> None:
    run = _launched("CONFIG_FILE=job.toml ./run_train.sh --training.global_batch_size $SIZE")
    assert (run.plan.batch.micro, run.plan.batch.grad_accum) == (4, None)


def test_a_name_that_cannot_be_read_leaves_the_model_open() -> None:
    plan = _launched("CONFIG_FILE=job.toml ./run_train.sh --model.name $NAME").plan
    assert (plan.model.id, plan.model.dims) == (None, None)


def test_dimensions_that_the_user_gives_count_before_those_of_the_flavor() -> None:
    dims = _run(values={"model.dims.layers": 2}).plan.model.dims
    assert dims is not None
    assert (dims.layers, dims.hidden) == (2, 4096)


def test_defaults_are_those_of_the_job_config() -> None:
    plan = _run('[model]\nflavor = "70B"\n[training]\n').plan
    assert plan.model.id == "meta-llama/Llama-3.1-70B"
    assert (plan.batch.micro, plan.seq.max_len) == (8, 2048)
    assert (plan.checkpointing.mode, plan.checkpointing.every_n) == ("every_n", 2)
    assert plan.save.strategy == "no"
    assert plan.eval.enabled is False


@pytest.mark.parametrize(
    ("option", "mode", "every"),
    [("1", "full", 1), ("3", "every_n", 3), ("op", "selective_op", None)],
)
def test_selective_options(option: str, mode: str, every: int | None) -> None:
    plan = _run(_TOML.replace('option = "op"', f'option = "{option}"')).plan
    assert (plan.checkpointing.mode, plan.checkpointing.every_n) == (mode, every)


@pytest.mark.parametrize(
    ("name", "flavor", "keeps"), [("qwen3", "30B-A3B", ()), ("deepseek_v3", "16B", None)]
)
def test_products_of_experts_are_computed_again_where_the_list_lacks_them(
    name: str, flavor: str, keeps: tuple[str, ...] | None
) -> None:
    text = _TOML.replace("llama3", name).replace("8B", flavor)
    assert _run(text).plan.checkpointing.selective_keeps == keeps
    every_second = text.replace('option = "op"', 'option = "2"')
    assert _run(every_second).plan.checkpointing.selective_keeps is None
    # Configs that are Python came with a list that has them.
    assert _registry_run("small").plan.checkpointing.selective_keeps is None


def test_a_pipeline_cuts_the_local_batch() -> None:
    plan = _run(_TOML.replace("tensor_parallel_degree = 2", "pipeline_parallel_degree = 4")).plan
    assert (plan.batch.micro, plan.batch.grad_accum) == (1, 4)
    assert plan.parallel.dp_shard == 2
    assert plan.parallel.fsdp.reshard_after_forward is False
    assert plan.parallel.fsdp.sync_every_micro is False


def test_interleaved_schedules_hold_two_stages() -> None:
    text = _TOML.replace(
        "tensor_parallel_degree = 2",
        'pipeline_parallel_degree = 4\npipeline_parallel_schedule = "Interleaved1F1B"',
    )
    assert _run(text).plan.parallel.vpp == 2


def test_a_global_batch_means_accumulation() -> None:
    text = _TOML.replace("seq_len", "global_batch_size = 64\nseq_len")
    assert _launched("torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file job.toml", text).plan.batch.grad_accum == 4  # fmt: skip


def test_one_rank_has_no_fsdp_and_computes_under_autocast() -> None:
    text = _TOML.replace("tensor_parallel_degree = 2", "tensor_parallel_degree = 1")
    plan = _launched("torchrun --nproc_per_node 1 -m torchtitan.train --job.config_file job.toml", text).plan  # fmt: skip
    assert plan.parallel.backend == "none"
    assert (plan.precision.param, plan.precision.compute) == ("fp32", "bf16")
    assert plan.precision.autocast is True


def test_tensor_parallelism_without_fsdp_has_no_mixed_precision() -> None:
    plan = _launched("torchrun --nproc_per_node 2 -m torchtitan.train --job.config_file job.toml").plan  # fmt: skip
    assert (plan.parallel.backend, plan.precision.compute) == ("none", "fp32")
    assert plan.precision.autocast is False


def test_replicas_without_shards_are_ddp_and_with_them_hybrid() -> None:
    text = _TOML.replace(
        "data_parallel_shard_degree = -1\ntensor_parallel_degree = 2",
        "data_parallel_shard_degree = {}\ndata_parallel_replicate_degree = 2",
    )
    assert _run(text.format(1)).plan.parallel.backend == "ddp"
    plan = _run(text.format(4)).plan
    assert (plan.parallel.backend, plan.parallel.fsdp.strategy) == ("fsdp2", "hybrid")
    assert plan.parallel.dp_shard == 4


_EXPERTS = """\
[model]
name = "deepseek_v3"
flavor = "16B"

[training]
local_batch_size = 4
seq_len = 4096

[parallelism]
data_parallel_shard_degree = -1
expert_parallel_degree = {}

[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"

[compile]
enable = true
components = ["loss"]
"""


def test_what_goes_to_experts_elsewhere_and_comes_back_is_kept() -> None:
    """https://github.com/pytorch/torchtitan/issues/1789: 73.32 GiB reserved on each of eight H100, where pools
    of streams of their own make 8% more of it, as of others with experts (docs/accuracy.md, the seventh set)."""
    line = "NGPU=8 CONFIG_FILE=./job.toml ./run_train.sh"
    apart, together = (_launched(line, _EXPERTS.format(ranks)).estimate.gpu for ranks in (8, 1))
    assert apart.reserved_bytes is not None
    assert apart.reserved_bytes / 2**30 == pytest.approx(73.32, rel=0.09)
    # Six experts a token, 2,048 wide in bf16, there and back in each of 27 layers.
    more = apart.parts["forward"]["activations"] - together.parts["forward"]["activations"]  # type: ignore[index]
    assert more == pytest.approx(2 * 6 * 2048 * 2 * 4 * 4096 * 27, rel=0.01)


def test_a_compiled_loss_stores_no_fp32_logits() -> None:
    text = _TOML + '[compile]\nenable = true\ncomponents = ["model", "loss"]\n'
    assert _run(text).plan.loss.upcast_fp32 is False
    assert _run(text).plan.loss.algorithm == "kernel"
    plan = _run(text.replace(', "loss"', "")).plan
    assert plan.loss.upcast_fp32 is True
    assert plan.loss.algorithm is None
    assert plan.compile.enabled is True


def test_keys_of_2024() -> None:
    plan = _run(
        """\
[model]
name = "llama2"
flavor = "7B"
[training]
batch_size = 8
data_parallel_degree = 4
tensor_parallel_degree = 2
compile = true
fp8_linear = "dynamic"
[experimental]
pipeline_parallel_degree = 2
[activation_checkpoint]
mode = "full"
"""
    ).plan
    assert plan.model.id == "meta-llama/Llama-2-7b-hf"
    assert (plan.parallel.world, plan.parallel.dp_shard, plan.parallel.pp) == (16, 4, 2)
    # As many micro batches as stages.
    assert (plan.batch.micro, plan.batch.grad_accum) == (4, 2)
    assert plan.compile.enabled is True
    assert plan.loss.upcast_fp32 is True
    assert plan.precision.fp8_train == "torchao"


def test_the_last_save_alone_leaves_the_optimizer_out() -> None:
    text = _TOML.replace("interval = 200", 'interval = 1000\nexport_dtype = "bfloat16"')
    save = _run(text).plan.save
    assert (save.save_only_model, save.contents, save.dtype) == (True, ("model",), "bf16")


def test_keys_that_torchtitan_refuses_are_strays_unless_the_job_has_a_config_of_its_own() -> None:
    text = _TOML.replace("seq_len", "sequence_length")
    (stray,) = _run(text).stray
    assert stray.path == "training.sequence_length"
    own = text + '[job]\ncustom_config_module = "mine.config"\n'
    assert not _run(own).stray


def test_image_models_are_no_runs_of_ours() -> None:
    linked = link({"a.toml": _TOML.replace("llama3", "flux")})
    assert linked.recognised == {"a.toml": "torchtitan"}
    assert not linked.runs


@pytest.mark.parametrize(
    "text",
    [
        '[tool.poetry]\nname = "x"\n[training]\n',
        '[package]\nname = "x"\n[model]\nname = "y"\n',
        '[training]\nepochs = 3\n[model]\nname = "spacy"\n',
    ],
)
def test_other_toml_files_are_left_alone(text: str) -> None:
    assert not link({"a.toml": text}).recognised


# -- models ------------------------------------------------------------------------------------


def test_families_and_flavors() -> None:
    assert family_of("simple_fsdp.llama3") == "llama3"
    assert family_of("flux") is None
    kernel = flavor_of("llama3", "8B_varlen")
    assert kernel is not None
    assert (kernel.id, kernel.attention) == ("meta-llama/Llama-3.1-8B", "flash2")
    # models/gpt_oss/__init__.py _debugmodel at b5bcd76c.
    small = flavor_of("gpt_oss", "debugmodel")
    assert small is not None
    assert small.dims is not None
    assert small.dims.vocab == 2048
    scout = flavor_of("llama4", "17bx16e")
    assert scout is not None
    assert scout.dims is not None
    assert scout.dims.vision is None
    assert flavor_of("llama3", "9T") is None


# -- launch lines ------------------------------------------------------------------------------


def test_run_train_takes_its_settings_from_the_environment() -> None:
    run = _launched("NGPU=4 CONFIG_FILE=job.toml ./run_train.sh --training.seq_len 2048")
    assert run.plan.parallel.world == 4
    assert run.plan.seq.max_len == 2048
    assert run.plan.env.expandable_segments is True


_STARTS = "NGPU=8 CONFIG_FILE=job.toml ./run_train.sh"


@pytest.mark.parametrize(
    ("copies", "line", "severities", "stops"),
    [
        (16, _STARTS, [Severity.ERROR], True),
        (4, _STARTS, [], False),
        (16, "echo job.toml", [], True),
    ],
    ids=["launched on too few", "launched on enough", "for another machine, perhaps"],
)
def test_more_copies_than_ranks(
    copies: int, line: str, severities: list[Severity], stops: bool
) -> None:
    """Of a config that nobody starts here its verdict alone says so: it may be for a machine with more ranks."""
    text = _TOML.replace("shard_degree = -1", f"replicate_degree = {copies}")
    report = report_of({"job.toml": text, "go.sh": f"{line}\n"}, hardware="8xA100-80GB")
    assert [d.severity for d in report.diagnoses if d.rule.code == "OOM706"] == severities
    (run,) = report.runs
    assert (run.settings.get(shared.stops) is not None) is stops


def test_overrides_are_changed_where_they_stand_and_new_keys_go_into_the_file() -> None:
    line = "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file job.toml --training.seq_len 16384\n"
    files = {"job.toml": _TOML, "go.sh": line}
    after = fixed_files(run_of, files, {"seq.max_len": 4096})
    assert "--training.seq_len 4096" in after["go.sh"]
    assert after["job.toml"] == _TOML
    after = fixed_files(run_of, files, {"checkpointing.mode": "full"})
    assert 'mode = "full"' in after["job.toml"]
    assert after["go.sh"] == line


def test_a_switch_is_turned_off_by_its_negation() -> None:
    run = _launched("CONFIG_FILE=job.toml ./run_train.sh --checkpoint.no-enable")
    assert run.plan.save.strategy == "no"


@pytest.mark.parametrize(
    "options",
    ["--comm.mode=fake_backend", "--checkpoint.enable --checkpoint.create_seed_checkpoint"],
)
def test_what_trains_no_step_is_no_run(options: str) -> None:
    line = f"torchrun --nproc_per_node=1 -m torchtitan.train --job.config_file a.toml {options}\n"
    assert not link({"go.sh": line}).runs


def test_a_function_is_selected_by_name_and_the_others_stay_runs() -> None:
    line = (
        "NGPU=2 MODULE=llama3 CONFIG=small ./run_train.sh --parallelism.tensor_parallel_degree 2\n"
    )
    runs = link({_MODULE: _REGISTRY, "go.sh": line}).runs
    launched = next(run for run in runs if run.plan.parallel.world == 2)
    assert launched.plan.model.id == "meta-llama/Llama-3.2-1B"
    assert launched.plan.parallel.tp == 2
    assert len(runs) == 4


# -- Python registries -------------------------------------------------------------------------


def test_a_function_is_a_run() -> None:
    plan = _registry_run("small").plan
    assert plan.model.id == "meta-llama/Llama-3.2-1B"
    assert (plan.batch.micro, plan.seq.max_len, plan.total_steps) == (4, 4096, 100)
    assert plan.checkpointing.mode == "selective_op"
    assert (plan.loss.logits_materialised, plan.loss.chunks) == ("fused", 8)
    assert plan.optimizer.kind == "adamw"
    assert plan.parallel.backend == "fsdp2"


@pytest.mark.parametrize(
    ("mode", "read"), [("full", "full"), ("selective", "selective_op"), ("none", "none")]
)
def test_one_class_of_checkpointing_has_its_mode_among_its_arguments(mode: str, read: str) -> None:
    made = f'ActivationCheckpointConfig(mode="{mode}")'
    text = _REGISTRY.replace("SelectiveAC.Config()", made)
    assert _registry_run("small", text).plan.checkpointing.mode == read


def test_a_function_changes_what_another_returns() -> None:
    plan = _registry_run("small_compiled").plan
    assert plan.model.id == "meta-llama/Llama-3.2-1B"
    assert plan.compile.enabled is True
    assert (plan.seq.max_len, plan.batch.micro) == (2048, 8)


def test_no_checkpointing_and_plain_loss() -> None:
    plan = _registry_run("plain").plan
    assert plan.checkpointing.mode == "none"
    assert plan.loss.logits_materialised == "loss_parallel"
    assert plan.model.attn_impl == "flash2"
    assert plan.parallel.tp == 4
    assert plan.batch.micro == 8


def test_fixes_of_a_function_go_into_its_calls() -> None:
    def after(function: str, changes: dict[str, Any]) -> str:
        return fixed(lambda text: _registry_run(function, text), _REGISTRY, changes)

    assert "activation_checkpoint=FullAC.Config()" in after("small", {"checkpointing.mode": "full"})
    offloaded = after("plain", {"offload.optimizer": "cpu", "offload.params": "cpu"})
    assert "training=TrainingConfig(enable_cpu_offload=True)" in offloaded
    smaller = after("small", {"batch.micro": 2})
    assert "num_tokens_per_microbatch_per_dp_rank=8192" in smaller


def test_what_a_call_computes_is_unknown_and_no_mistake() -> None:
    text = _REGISTRY.replace("max_context_length=4096", "max_context_length=length_of(4096)")
    run = _registry_run("small", text)
    assert not run.wrong
    assert run.plan.seq.max_len is None


def test_a_section_made_anew_keeps_nothing_of_its_base() -> None:
    text = _REGISTRY + (
        "\n\ndef spread() -> Trainer.Config:\n"
        "    config = plain()\n"
        "    config.parallelism = ParallelismConfig(context_parallel_degree=2)\n"
        "    return config\n"
    )
    assert _registry_run("plain", text).plan.parallel.tp == 4
    plan = _registry_run("spread", text).plan
    assert plan.parallel.cp == 2
    assert plan.parallel.tp == 1


def test_a_base_is_not_changed_for_the_sake_of_one_that_uses_it() -> None:
    run = _registry_run("small_compiled")
    proposal = Proposal("t", (SetFields({"batch.micro": 1}),), Applicability.SAFE)
    fix = make_fix(run, proposal, None)
    assert fix is not None
    assert fix.reason is not None
    assert "small" in fix.reason


# -- fixes in TOML -----------------------------------------------------------------------------

_ON_EIGHT = {
    "job.toml": _TOML,
    "go.sh": "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file job.toml\n",
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"checkpointing.mode": "full"}, 'mode = "full"'),
        ({"checkpointing.mode": "none"}, 'mode = "none"'),
        ({"offload.params": "cpu", "offload.optimizer": "cpu"}, "enable_cpu_offload = true"),
        ({"batch.micro": 1, "batch.grad_accum": 4}, "global_batch_size = 16"),
        ({"seq.max_len": 4096}, "seq_len = 4096"),
        ({"save.every": 500}, "interval = 500"),
        ({"save.keep": 2}, "keep_latest_k = 2"),
        ({"data.workers": 2}, "num_workers = 2"),
        ({"batch.eval_micro": 1}, "\n[validation]\nlocal_batch_size = 1\n"),
        ({"precision.param": "bf16"}, 'dtype = "bfloat16"'),
        ({"parallel.tp": 4}, "tensor_parallel_degree = 4"),
        ({"compile.enabled": True}, "\n[compile]\nenable = true\n"),
        ({"parallel.fsdp.reshard_after_forward": False}, 'fsdp_reshard_after_forward = "never"'),
        ({"optimizer.fused": False}, 'implementation = "foreach"'),
    ],
)
def test_wishes_are_written(changes: dict[str, Any], expected: str) -> None:
    after = fixed_files(run_of, _ON_EIGHT, changes)["job.toml"]
    assert expected in after
    assert "steps = 1000  # a short one" in after


@pytest.mark.parametrize(
    "changes",
    [
        {"parallel.zero.stage": 3},
        {"model.attn_impl": "flash2"},
        {"optimizer.kind": "adamw8bit"},
        {"loss.logits_materialised": "fused"},
        {"quant.method": "bnb4"},
        {"save.save_only_model": True},
        {"load.cpu_ram_efficient": True},
        {"parallel.fsdp.state_dict": "full"},
    ],
)
def test_what_torchtitan_cannot_say(changes: dict[str, Any]) -> None:
    with pytest.raises(CannotEdit):
        _run().what_if(changes)


def test_accumulation_needs_to_know_the_ranks() -> None:
    with pytest.raises(CannotEdit, match="ranks"):
        _run().what_if({"batch.micro": 1, "batch.grad_accum": 4})


def test_no_gradients_add_up_in_the_releases_whose_keys_stand_there() -> None:
    run = _run(_TOML.replace("local_batch_size", "batch_size"), hardware="8xA100-80GB")
    with pytest.raises(CannotEdit, match="adds up no gradients"):
        run.what_if({"batch.micro": 4, "batch.grad_accum": 2})


def test_a_global_batch_that_stands_there_stays() -> None:
    text = _TOML.replace("seq_len", "global_batch_size = 64\nseq_len")
    files = {**_ON_EIGHT, "job.toml": text}
    after = fixed_files(run_of, files, {"batch.micro": 2, "batch.grad_accum": 8})["job.toml"]
    assert after == text.replace("local_batch_size = 4", "local_batch_size = 2")


def test_a_config_that_is_not_here_leaves_the_model_open() -> None:
    line = "torchrun --nproc_per_node=8 -m torchtitan.train --job.config_file ./missing.toml"
    (run,) = link({"go.sh": f"{line}\n"}).runs
    assert run.plan.model.dims is None


def test_figures_of_a_group_that_the_machine_is_too_small_for_are_said_to_be_of_the_group() -> None:
    text = _TOML.replace('"8B"', '"405B"').replace(
        "tensor_parallel_degree = 2", "tensor_parallel_degree = 8\npipeline_parallel_degree = 4"
    )
    found = report_of({"a.toml": text}, hardware="8xA100-80GB").diagnoses
    (states,) = (each.finding for each in found if each.rule.code == "OOM105")
    assert "over 32 GPUs" in states.text


def test_layers_of_multi_token_prediction_are_the_registry_s_own() -> None:
    text = _REGISTRY.replace('model_registry("1B")', 'model_registry("1B", num_mtp_layers=1)')
    assert _registry_run("small", text).plan.model.mtp_layers == 1


@pytest.mark.parametrize(
    ("hardware", "degree", "more", "is_refused"),
    [
        ("8xA100-80GB", 2, "", True),
        ("8xA100-80GB", 1, "", False),
        ("8xA100-80GB", 2, "emulate = true\n", False),
        ("8xH100-80GB", 2, "", False),
    ],
)
def test_float8_of_several_ranks_wants_a_card_that_has_it(
    hardware: str, degree: int, more: str, is_refused: bool
) -> None:
    text = _TOML.replace("tensor_parallel_degree = 2", f"tensor_parallel_degree = {degree}")
    text += f"\n[float8]\nenable_float8_linear = true\n{more}"
    found = report_of({"train.toml": text}, hardware=hardware).diagnoses
    assert ("ends-before-training" in {each.rule.name for each in found}) is is_refused
