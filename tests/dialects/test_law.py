"""What settings mean together, whatever framework says them."""

import pytest

from oomlint.dialects import law
from oomlint.dialects.draft import Draft
from oomlint.plan.model import ModelDims


def draft_of(**settings):
    """A draft whose settings are given as options; ``_`` stands for the dot."""
    draft = Draft(())
    for name, value in settings.items():
        draft.option(name.replace("__", "."), value, "a test")
    return draft


def values(draft, *fields):
    return tuple(draft.get(field) for field in fields)


@pytest.mark.parametrize(
    ("settings", "nodes", "per_node", "world", "dp"),
    [
        ({"parallel__gpus_per_node": 8}, 1, 8, 8, 8),
        ({"parallel__nodes": 2, "parallel__gpus_per_node": 8}, 2, 8, 16, 16),
        ({"launch__total_processes": 16, "launch__machines": 2}, 2, 8, 16, 16),
        ({"launch__total_processes": 4}, 1, 4, 4, 4),
        ({"parallel__gpus_per_node": 8, "parallel__tp": 2, "parallel__pp": 2}, 1, 8, 8, 2),
        ({"parallel__gpus_per_node": 2, "parallel__tp": 8}, 1, 2, 2, 1),
        ({}, None, None, None, None),
    ],
)
def test_world(settings, nodes, per_node, world, dp):
    draft = draft_of(**settings)
    law.finish_world(draft)
    fields = ("parallel.nodes", "parallel.gpus_per_node", "parallel.world", "parallel.dp")
    assert values(draft, *fields) == (nodes, per_node, world, dp)


def test_ranks_of_a_launcher_beat_what_the_hardware_allows():
    draft = Draft(())
    draft.fact("parallel.gpus_per_node", 8, "the hardware")
    draft.option("launch.total_processes", 2, "a launcher")
    law.finish_world(draft)
    assert draft.get("parallel.world") == 2


def test_global_batch_needs_all_three():
    draft = draft_of(batch__micro=2, batch__grad_accum=4, parallel__dp=8)
    law.finish_batch(draft)
    assert draft.get("batch.global") == 64
    draft = draft_of(batch__micro=2, parallel__dp=8)
    law.finish_batch(draft)
    assert draft.get("batch.global") is None


@pytest.mark.parametrize(
    ("settings", "backend"),
    [
        ({"ref__deepspeed": "x.json", "fsdp__enabled": True}, "zero"),
        ({"deepspeed__enabled": True}, "zero"),
        ({"fsdp__enabled": True}, "fsdp1"),
        ({"fsdp__enabled": True, "parallel__fsdp__version": 2}, "fsdp2"),
        ({"parallel__world": 8}, "ddp"),
        ({"parallel__world": 1}, "none"),
        ({}, None),
    ],
)
def test_backend(settings, backend):
    draft = draft_of(**settings)
    law.finish_backend(draft)
    assert draft.get("parallel.backend") == backend


_PRECISION = (
    "precision.param", "precision.grad", "precision.master", "precision.optim_state",
    "precision.compute", "precision.autocast",
)  # fmt: skip


@pytest.mark.parametrize(
    ("backend", "amp", "load", "expected"),
    [
        ("ddp", "bf16", "fp32", ("fp32", "fp32", "none", "fp32", "bf16", True)),
        ("ddp", "bf16", "bf16", ("bf16", "bf16", "none", "bf16", "bf16", True)),
        ("none", "no", "fp32", ("fp32", "fp32", "none", "fp32", "fp32", False)),
        ("fsdp1", "bf16", "bf16", ("fp32", "fp32", "none", "fp32", "bf16", True)),
        ("fsdp2", "bf16", "bf16", ("fp32", "fp32", "none", "fp32", "bf16", False)),
        ("fsdp2", "no", "bf16", ("bf16", "bf16", "none", "bf16", "bf16", False)),
        ("zero", "bf16", "fp32", ("bf16", "bf16", "fp32", "fp32", "bf16", False)),
        ("zero", "fp16", "bf16", ("fp16", "fp16", "fp32", "fp32", "fp16", False)),
        ("zero", "no", "bf16", ("fp32", "fp32", "none", "fp32", "fp32", False)),
    ],
)
def test_dtypes_of_full_training(backend, amp, load, expected):
    draft = draft_of(trainable__method="full", parallel__backend=backend)
    law.finish_trainer_precision(draft, amp=amp, load_dtype=load)
    assert values(draft, *_PRECISION) == expected
    assert draft.get("precision.logits") == expected[4]


@pytest.mark.parametrize(
    ("backend", "amp", "quant", "param", "adapter"),
    [
        ("ddp", "bf16", "none", "bf16", "fp32"),
        ("ddp", "bf16", "bnb4", "nf4", "fp32"),
        ("fsdp2", "bf16", "bnb4", "nf4", "fp32"),
        ("fsdp2", "no", "none", "bf16", "fp32"),
        ("zero", "bf16", "none", "bf16", "bf16"),
        ("zero", "bf16", "bnb8", "int8", "bf16"),
    ],
)
def test_dtypes_of_adapters(backend, amp, quant, param, adapter):
    draft = draft_of(trainable__method="lora", parallel__backend=backend, quant__method=quant)
    law.finish_trainer_precision(draft, amp=amp, load_dtype="bf16")
    assert values(draft, "precision.param", "trainable.adapter_dtype") == (param, adapter)


def test_adapters_stay_as_loaded_where_peft_is_told_so():
    draft = draft_of(trainable__method="lora", peft__autocast_adapters=False)
    law.finish_trainer_precision(draft, amp="bf16", load_dtype="bf16")
    assert draft.get("trainable.adapter_dtype") == "bf16"


@pytest.mark.parametrize(
    ("bits", "method", "native", "expected"),
    [
        (4, None, None, "bnb4"),
        (8, None, None, "bnb8"),
        (3, None, None, "none"),
        (None, "hqq", None, "hqq"),
        (None, None, "gptq", "gptq"),
        (4, None, "gptq", "gptq"),
        (None, None, "fp8", "none"),
        (None, None, None, "none"),
    ],
)
def test_quantization(bits, method, native, expected):
    draft = draft_of(model__native_quant=native)
    law.finish_quant(draft, bits=bits, method=method)
    assert draft.get("quant.method") == expected


@pytest.mark.parametrize(
    ("version", "amp", "expected"),
    [
        ("0.17.5", "bf16", (1, "fp32")),
        ("0.17.6", "bf16", (0, None)),
        ("0.17.5", "fp16", (0, None)),
    ],
)
def test_bf16_below_stage_1_was_sharded_by_older_deepspeed(version, amp, expected):
    draft = draft_of(
        versions={"deepspeed": version}, parallel__backend="zero", trainable__method="full"
    )
    draft.derive("parallel.zero.stage", 0)
    law.finish_trainer_precision(draft, amp=amp, load_dtype="fp32")
    assert values(draft, "parallel.zero.stage", "precision.grad_accum") == expected


def test_deepspeed_fills_auto_from_the_model():
    draft = draft_of(
        deepspeed__enabled=True,
        parallel__zero__stage=3,
        model__dims=ModelDims(hidden=100),
        parallel__zero__reduce_bucket_elems=7,
    )
    draft.wish("parallel.zero.prefetch_elems", None)
    law.finish_deepspeed(draft, under_trainer=True)
    assert draft.get("parallel.zero.prefetch_elems") == 9000
    assert draft.get("parallel.zero.reduce_bucket_elems") == 7
    assert draft.get("offload.optimizer") == "none"


def test_nothing_of_deepspeed_or_fsdp_without_them():
    draft = draft_of(parallel__world=8)
    law.finish_deepspeed(draft, under_trainer=True)
    law.finish_fsdp(draft)
    assert set(draft.settings) == {"parallel.world"}
