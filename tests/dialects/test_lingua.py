"""Meta Lingua: its YAML, and the lines that start it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import run_of
from tests.sound import sound_project

from oomlint.judgement.forecast import forecast_of
from oomlint.judgement.unpredicted import why_unpredicted
from oomlint.models.count import count_parameters
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run


def _yaml() -> str:
    return sound_project("lingua")["7b.yaml"]


def _run(text: str | None = None, hardware: str = "2x8xH100-80GB") -> Run:
    run = run_of({"7b.yaml": text or _yaml()}, "7b.yaml", hardware=hardware)
    assert run.framework == "lingua"
    return run


def test_a_model_and_how_it_is_sharded() -> None:
    plan = _run().plan
    dims = plan.model.dims
    assert dims is not None
    assert (dims.kv_heads, dims.head_dim, dims.ffn, dims.vocab) == (8, 128, 14336, 128256)
    counts = count_parameters(dims)
    assert counts is not None
    # Llama 3 8B.
    assert counts.total == 8030261248
    assert (plan.parallel.backend, plan.parallel.fsdp.reshard_after_forward) == ("fsdp2", False)
    assert (plan.precision.param, plan.precision.compute, plan.precision.comm) == (
        "fp32",
        "bf16",
        "fp32",
    )
    assert (plan.batch.micro, plan.batch.grad_accum, plan.parallel.fsdp.sync_every_micro) == (
        2,
        2,
        False,
    )
    assert (plan.loss.algorithm, plan.loss.upcast_fp32, plan.eval.strategy) == (
        "kernel",
        False,
        "no",
    )
    assert (plan.save.every, plan.save.format) == (2000, "dcp")


@pytest.mark.parametrize(
    ("said", "strategy", "replicas"),
    [
        ("dp_shard: 8", "hybrid", 2),
        ("dp_shard: 1", "full", None),
        ("dp_shard: 16", "full", None),
        ("fsdp_type: no_shard\n  dp_shard: 1", "no_shard", None),
    ],
)
def test_copies_of_the_model(said: str, strategy: str, replicas: int | None) -> None:
    text = _yaml().replace(
        "  fsdp_type: full_shard\n", "" if "fsdp_type" in said else "  fsdp_type: full_shard\n"
    )
    plan = _run(text.replace("dp_shard: 8", said)).plan
    assert (plan.parallel.fsdp.strategy, plan.parallel.dp_replicate) == (strategy, replicas)


def test_the_vocabulary_of_a_file_is_assumed() -> None:
    run = _run()
    assert run.level(f.model.dims) is Level.ASSUMED
    given = _run(_yaml().replace("n_heads: 32", "n_heads: 32\n  vocab_size: 128256"))
    assert given.level(f.model.dims) < Level.ASSUMED
    plain = _run(_yaml().replace("name: tiktoken", "name: bytes")).plan.model.dims
    assert plain is not None
    assert plain.vocab == 258


def test_checkpointing_takes_a_compiled_model() -> None:
    on = _yaml().replace(
        "selective_activation_checkpointing: false", "selective_activation_checkpointing: true"
    )
    assert _run(on).plan.checkpointing.mode == "selective_op"
    assert _run(on.replace("compile: true", "compile: false")).plan.checkpointing.mode == "none"


@pytest.mark.parametrize(
    ("read", "other"),
    [
        ("every: 2000", "every: null"),
        ("multiple_of: 1024", "multiple_of: null"),
        ("dp_shard: 8", "dp_shard: null"),
    ],
)
def test_keys_without_a_value(read: str, other: str) -> None:
    assert _run(_yaml().replace(read, other)).plan.model.dims is not None


def test_lines_that_start_it() -> None:
    files = {"7b.yaml": _yaml(), "go.sh": sound_project("lingua")["run.sh"]}
    plan = run_of(files, "go.sh").plan
    assert (plan.parallel.world, plan.batch.micro) == (8, 1)
    line = "python -m lingua.stool script=apps.main.train config=7b.yaml nodes=4 partition=gpu\n"
    plan = run_of({**files, "go.sh": line}, "go.sh").plan
    assert (plan.parallel.nodes, plan.parallel.world, plan.parallel.dp_replicate) == (4, 32, 4)
    other = line.replace("apps.main.train", "apps.mamba.train")
    plan = run_of({**files, "go.sh": other}, "go.sh").plan
    assert (plan.model.dims, plan.parallel.world) == (None, 32)
    torchrun = "torchrun --nproc-per-node 8 -m apps.mamba.train config=7b.yaml model.state_dim=64\n"
    run = run_of({**files, "go.sh": torchrun}, "go.sh")
    assert (run.plan.model.dims, run.plan.parallel.world, run.stray) == (None, 8, ())


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({f.batch.micro: 1, f.batch.grad_accum: 4}, "batch_size: 1"),
        ({f.seq.max_len: 2048}, "seq_len: 2048"),
        ({f.parallel.fsdp.strategy: "full"}, "dp_shard: 1"),
        ({f.checkpointing.mode: "selective_op"}, "selective_activation_checkpointing: true"),
    ],
)  # fmt: skip
def test_wishes_in_its_own_keys(changes: dict[Any, Any], wanted: str) -> None:
    assert wanted in fixed(_run, _yaml(), changes)


@pytest.mark.parametrize(
    ("read", "other"),
    [
        ("n_kv_heads: 8", "state_dim: 128"),
        ("n_views: 2", "n_views: 4"),
        ("  dim: ", "  dimensions: [512, 2048]\n  width: "),
    ],
)
def test_models_of_other_apps_are_open(read: str, other: str) -> None:
    """All but the model is read, and what is missing is said."""
    run = _run(_yaml().replace(read, other))
    assert (run.framework, run.stray, run.plan.model.dims) == ("lingua", (), None)
    assert run.plan.batch.micro
    assert "another app than Lingua's" in why_unpredicted(forecast_of(run))
