"""What settings mean together, whatever framework says them."""

import pytest
from tests.celled import cells_of

from oomlint.dialects.common.backend import backend as wrapping
from oomlint.dialects.common.fields import asked, deepspeed, fsdp, peft, ref, shared
from oomlint.dialects.common.precision import precision
from oomlint.dialects.common.quantization import quantization
from oomlint.dialects.common.sharding import sharding
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.deepspeed.meaning import deepspeed_json
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.meaning import Meaning
from oomlint.hardware import parse_hardware
from oomlint.plan.fields import f
from oomlint.plan.model import ModelDims


def values(cells, *fields):
    return tuple(cells[field] for field in fields)


@pytest.mark.parametrize(
    ("said", "nodes", "per_node", "total", "dp"),
    [
        ({f.parallel.gpus_per_node: 8}, 1, 8, 8, 8),
        ({f.parallel.nodes: 2, f.parallel.gpus_per_node: 8}, 2, 8, 16, 16),
        ({launch.total_processes: 16, launch.machines: 2}, 2, 8, 16, 16),
        ({launch.total_processes: 4}, 1, 4, 4, 4),
        ({f.parallel.gpus_per_node: 8, f.parallel.tp: 2, f.parallel.pp: 2}, 1, 8, 8, 2),
        ({f.parallel.gpus_per_node: 2, f.parallel.tp: 8}, 1, 2, 2, 1),
        ({}, None, None, None, None),
    ],
)
def test_world(said, nodes, per_node, total, dp):
    fields = (f.parallel.nodes, f.parallel.gpus_per_node, f.parallel.world, f.parallel.dp)
    assert values(cells_of(world, said), *fields) == (nodes, per_node, total, dp)


def test_ranks_of_a_launcher_beat_what_the_hardware_allows():
    cells = cells_of(world, {launch.total_processes: 2}, hardware=parse_hardware("8xA100-80GB"))
    assert cells[f.parallel.world] == 2


def test_global_batch_needs_all_three():
    said = {f.batch.micro: 2, f.batch.grad_accum: 4, f.parallel.dp: 8}
    assert cells_of(batch, said)[f.batch.global_] == 64
    del said[f.batch.grad_accum]
    assert cells_of(batch, said)[f.batch.global_] is None


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({ref.deepspeed: "x.json", fsdp.enabled: True}, "zero"),
        ({deepspeed.enabled: True}, "zero"),
        ({fsdp.enabled: True}, "fsdp1"),
        ({fsdp.enabled: True, f.parallel.fsdp.version: 2}, "fsdp2"),
        ({f.parallel.world: 8}, "ddp"),
        ({f.parallel.world: 1}, "none"),
        ({}, None),
    ],
)
def test_backend(said, expected):
    assert cells_of(wrapping, said)[f.parallel.backend] == expected


_P = f.precision
_PRECISION = (_P.param, _P.grad, _P.master, _P.optim_state, _P.compute, _P.autocast)


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
    ],
)
def test_dtypes_of_full_training(backend, amp, load, expected):
    said = {f.trainable.method: "full", f.parallel.backend: backend}
    cells = cells_of(precision, {**said, shared.amp: amp, f.load.dtype: load})
    assert values(cells, *_PRECISION) == expected
    assert cells[_P.logits] == expected[4]


@pytest.mark.parametrize(
    ("stage", "load", "expected"),
    [
        (0, "fp16", ("fp16", "fp16", "none", "fp16", "fp16", False)),
        (1, "fp16", ("fp16", "fp16", "fp32", "fp32", "fp16", False)),
        (2, "bf16", ("bf16", "bf16", "fp32", "fp32", "bf16", False)),
        (2, "fp32", ("fp32", "fp32", "none", "fp32", "fp32", False)),
        (3, "bf16", ("fp32", "fp32", "none", "fp32", "fp32", False)),
    ],
)
def test_deepspeed_leaves_weights_as_loaded_without_16_bits(stage, load, expected):
    said = {f.trainable.method: "full", f.parallel.backend: "zero", f.parallel.zero.stage: stage}
    cells = cells_of(precision, {**said, shared.amp: "no", f.load.dtype: load})
    assert values(cells, *_PRECISION) == expected
    assert cells[_P.grad_accum] == ("fp32" if stage == 1 else None)


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
    said = {f.trainable.method: "lora", f.parallel.backend: backend, f.quant.method: quant}
    cells = cells_of(precision, {**said, shared.amp: amp, f.load.dtype: "bf16"})
    assert values(cells, _P.param, f.trainable.adapter_dtype) == (param, adapter)


def test_adapters_stay_as_loaded_where_peft_is_told_so():
    said = {f.trainable.method: "lora", peft.autocast_adapters: False}
    cells = cells_of(precision, {**said, shared.amp: "bf16", f.load.dtype: "bf16"})
    assert cells[f.trainable.adapter_dtype] == "bf16"


@pytest.mark.parametrize(
    ("more", "saved"),
    [
        ({}, "bf16"),
        ({f.load.dtype: "fp16"}, None),
        ({f.parallel.backend: "zero"}, None),
        ({f.parallel.backend: "fsdp1"}, None),
        ({f.parallel.backend: "fsdp1", fsdp.keeps_dtype: True}, "bf16"),
        ({f.quant.method: "bnb4", f.quant.prepares_kbit: False}, "bf16"),
        ({f.quant.method: "bnb4", f.quant.prepares_kbit: True}, None),
        ({f.trainable.modules_to_save: None}, None),
        ({f.trainable.method: "full"}, None),
    ],
)
def test_copies_of_whole_modules_keep_the_dtype_of_the_base(more, saved):
    said = {
        f.trainable.method: "lora",
        f.trainable.modules_to_save: ("lm_head",),
        shared.amp: "bf16",
    }
    cells = cells_of(precision, {**said, f.load.dtype: "bf16", f.parallel.backend: "ddp", **more})
    assert cells[f.trainable.saved_dtype] == saved


def test_where_only_running_tells_of_mixed_precision_what_follows_is_open():
    said = {f.trainable.method: "full", f.load.dtype: "bf16", shared.amp: "no"}
    cells = cells_of(precision, {**said, shared.amp_is_open: True})
    assert values(cells, _P.param, _P.compute, _P.autocast) == ("bf16", None, None)


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
    said = {f.model.native_quant: native, asked.bits: bits, asked.method: method}
    assert cells_of(quantization, said)[f.quant.method] == expected


@pytest.mark.parametrize(
    ("version", "amp", "expected"),
    [
        ("0.17.5", "bf16", (1, "fp32")),
        ("0.17.6", "bf16", (0, None)),
        ("0.17.5", "fp16", (0, None)),
    ],
)
def test_bf16_below_stage_1_was_sharded_by_older_deepspeed(version, amp, expected):
    said = {
        f.parallel.backend: "zero",
        f.trainable.method: "full",
        f.parallel.zero.stage: 0,
        shared.amp: amp,
        f.load.dtype: "fp32",
    }
    cells = cells_of(precision, said, versions={"deepspeed": version})
    assert values(cells, f.parallel.zero.stage, _P.grad_accum) == expected


def test_deepspeed_fills_auto_from_the_model():
    zero = f.parallel.zero
    said = {
        deepspeed.enabled: True,
        zero.stage: 3,
        f.model.dims: ModelDims(hidden=100),
        zero.reduce_bucket_elems: 7,
        zero.prefetch_elems: None,
    }
    cells = cells_of(deepspeed_json, said)
    assert values(cells, zero.prefetch_elems, zero.reduce_bucket_elems) == (9000, 7)
    assert cells[f.offload.optimizer] == "none"


def test_nothing_of_deepspeed_or_fsdp_without_them():
    cells = cells_of(Meaning(deepspeed_json, sharding), {f.parallel.world: 8})
    assert set(cells.settings) == {f.parallel.world}
