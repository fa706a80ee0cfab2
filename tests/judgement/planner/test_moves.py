"""What each move sets, of plans by their leaves, and where there is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from tests.plans import LLAMA_8B, plan_of

from oomlint.errors import CannotEdit
from oomlint.judgement.planner import maximise, moves
from oomlint.plan import Plan
from oomlint.plan.model import VisionTower
from oomlint.runs.run import Limits

ADAM: dict[str, Any] = {"model.dims": LLAMA_8B, "optimizer.kind": "adamw"}
SEEING = replace(LLAMA_8B, vision=VisionTower(layers=2, hidden=64, heads=4, ffn=256, patch=14))
ZERO: dict[str, Any] = {"parallel__backend": "zero"}
FULL: dict[str, Any] = {"checkpointing__mode": "full"}
STAGE_3: dict[str, Any] = {**ZERO, "parallel__zero__stage": 3}
LORA: dict[str, Any] = {"trainable.method": "lora", "trainable.r": 16}
ALL_LORA: dict[str, Any] = {**LORA, "trainable.targets": "all_linear"}
COLOCATED: dict[str, Any] = {
    "objective__rollout__engine": "vllm_colocate", "objective__rollout__sleep": True,
}  # fmt: skip
SHARE, LOSS = "objective.rollout.gpu_mem_util", "loss.logits_materialised"
GATHER, STAGE = "parallel.zero.gather16_on_save", "parallel.zero.stage"
LIVE, REUSE = "parallel.zero.max_live_params", "parallel.zero.max_reuse_distance"
REDUCE, ALLGATHER = "parallel.zero.reduce_bucket_elems", "parallel.zero.allgather_bucket_elems"
STRATEGY, MODE = "parallel.fsdp.strategy", "checkpointing.mode"
WEIGHTS, STATES = "offload.params", "offload.optimizer"
THIRD: dict[str, Any] = {STAGE: 3, GATHER: True}
TO_HOST: dict[str, Any] = {MODE: "full", "checkpointing.offload": "cpu"}


def set_by(name: str, **changes: Any) -> list[dict[str, Any]]:
    """The changes of each move of a group, by dotted path."""
    found = getattr(moves, f"_{name}")(plan_of(ADAM, **changes))
    return [{str(field): value for field, value in move.changes.items()} for move in found]


def batches(*sizes: tuple[int, int]) -> list[dict[str, Any]]:
    return [{"batch.micro": micro, "batch.grad_accum": accum} for micro, accum in sizes]


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("loss", {"loss__logits_materialised": "full"}, [{LOSS: "fused"}, {LOSS: "chunked"}]),
        ("loss", {"loss__logits_materialised": "full", "loss__label_smoothing": 0.1}, []),
        ("loss", {"loss__logits_materialised": "fused"}, []),
        ("attention", {"model__attn_impl": "eager"}, [{"model.attn_impl": "sdpa"}, {"model.attn_impl": "flash2"}]),
        ("attention", {"model__attn_impl": "sdpa"}, []),
        ("attention", {"model__attn_impl": "eager", "model__dims": None}, []),
        ("attention", {"model__attn_impl": "eager", "model__dims": replace(LLAMA_8B, layers=0)}, []),
        ("fused_optimizer", {"optimizer__foreach": True}, [{"optimizer.fused": True}]),
        ("fused_optimizer", {"optimizer__foreach": False}, []),
        ("fused_optimizer", {"optimizer__kind": "sgd", "optimizer__foreach": True}, []),
        ("checkpointing", {}, [{MODE: "selective_op"}, {MODE: "full"}, TO_HOST]),
        ("checkpointing", {"checkpointing__mode": "none"}, [{MODE: "selective_op"}, {MODE: "full"}, TO_HOST]),
        ("checkpointing", {"checkpointing__mode": "selective_op"}, [{MODE: "full"}, TO_HOST]),
        ("checkpointing", {**FULL, "checkpointing__offload": "none"}, [TO_HOST]),
        ("checkpointing", {**FULL, "checkpointing__offload": "cpu"}, []),
        # Plain data parallelism keeps what stage 1 would shard.
        ("sharding", {"parallel__backend": "ddp"}, [{STAGE: 2}, THIRD]),
        ("sharding", ZERO, [{STAGE: 1}, {STAGE: 2}, THIRD]),
        ("sharding", {**ZERO, "parallel__zero__stage": 1}, [{STAGE: 2}, THIRD]),
        ("sharding", {**ZERO, "parallel__zero__stage": 2}, [THIRD]),
        ("sharding", STAGE_3, []),
        ("sharding", {"parallel__backend": "fsdp1", "parallel__fsdp__strategy": "grad_op"}, [{STRATEGY: "full"}]),
        ("sharding", {"parallel__backend": "fsdp1", "parallel__fsdp__strategy": "full"}, []),
        ("sharding", {"parallel__backend": "fsdp2", "parallel__fsdp__strategy": "no_shard"}, []),
        ("sharding", {"parallel__fsdp__strategy": "hybrid", "parallel__nodes": 2}, [{STRATEGY: "full"}]),
        ("sharding", {"parallel__fsdp__strategy": "hybrid", "parallel__nodes": 1}, []),
        ("sharding", {"parallel__fsdp__strategy": "hybrid"}, []),
        ("sharding", {"parallel__fsdp__strategy": "full", "parallel__nodes": 2}, []),
        ("sharding", {"parallel__backend": "fsdp2", "parallel__fsdp__reshard_after_forward": False}, [{"parallel.fsdp.reshard_after_forward": True}]),
        ("sharding", {"parallel__backend": "fsdp1", "parallel__fsdp__reshard_after_forward": False}, []),
        ("gathering", {**STAGE_3, "parallel__zero__max_live_params": 10**9, "parallel__zero__max_reuse_distance": 10**9}, [{LIVE: 300_000_000, REUSE: 300_000_000}]),
        ("gathering", {**STAGE_3, "parallel__zero__max_live_params": 300_000_001, "parallel__zero__max_reuse_distance": 300_000_000}, [{LIVE: 300_000_000}]),
        ("gathering", {**STAGE_3, "parallel__zero__max_live_params": None, "parallel__zero__max_reuse_distance": None}, []),
        ("gathering", {**ZERO, "parallel__zero__stage": 2, "parallel__zero__max_live_params": 10**9}, []),
        ("buckets", {**ZERO, "parallel__zero__stage": 2, "parallel__zero__reduce_bucket_elems": 50_000_001, "parallel__zero__allgather_bucket_elems": 500_000_000}, [{REDUCE: 50_000_000, ALLGATHER: 50_000_000}]),
        ("buckets", {**ZERO, "parallel__zero__stage": 2, "parallel__zero__reduce_bucket_elems": 50_000_000, "parallel__zero__allgather_bucket_elems": 500_000_000}, [{ALLGATHER: 50_000_000}]),
        # Stage 3 gathers by parameters, not by buckets.
        ("buckets", {**STAGE_3, "parallel__zero__reduce_bucket_elems": 500_000_000, "parallel__zero__allgather_bucket_elems": 500_000_000}, [{REDUCE: 50_000_000}]),
        ("buckets", {**ZERO, "parallel__zero__stage": 0, "parallel__zero__reduce_bucket_elems": 500_000_000}, []),
        ("buckets", {**ZERO, "parallel__zero__stage": 1}, []),
        ("buckets", {"parallel__backend": "ddp", "parallel__zero__stage": 2, "parallel__zero__reduce_bucket_elems": 500_000_000}, []),
        ("micro_batch", {"batch__micro": 8, "batch__grad_accum": 3}, batches((4, 6), (2, 12), (1, 24))),
        ("micro_batch", {"batch__micro": 6}, batches((3, 2))),
        ("micro_batch", {"batch__micro": 8, "batch__auto_micro": True}, []),
        ("micro_batch", {"batch__micro": None}, []),
        ("eval_batch", {"batch__eval_micro": 8, "batch__micro": 2}, [{"batch.eval_micro": 2}, {"batch.eval_micro": 1}]),
        ("eval_batch", {"batch__eval_micro": 2, "batch__micro": 4}, [{"batch.eval_micro": 1}]),
        ("eval_batch", {"batch__eval_micro": 8, "batch__micro": None}, [{"batch.eval_micro": 1}]),
        ("eval_batch", {"batch__eval_micro": 1, "batch__micro": 1}, []),
        ("eval_batch", {"batch__eval_micro": 8, "batch__micro": 2, "eval__enabled": False}, []),
        ("eval_logits", {"eval__enabled": True, "eval__keeps_logits": True}, [{"eval.accumulation_steps": 1}]),
        ("eval_logits", {"eval__enabled": True, "eval__keeps_logits": True, "eval__accumulation_steps": 4}, []),
        ("eval_logits", {"eval__enabled": True, "eval__keeps_logits": False}, []),
        ("eval_logits", {"eval__enabled": False, "eval__keeps_logits": True}, []),
        ("rollout", {**COLOCATED, "objective__rollout__gpu_mem_util": 0.9}, [{SHARE: 0.5}, {SHARE: 0.3}]),
        ("rollout", {**COLOCATED, "objective__rollout__gpu_mem_util": 0.5}, [{SHARE: 0.3}]),
        ("rollout", {**COLOCATED, "objective__rollout__gpu_mem_util": 0.3}, []),
        ("rollout", {**COLOCATED, "objective__rollout__gpu_mem_util": None}, []),
        ("rollout", {"objective__rollout__engine": "sglang", "objective__rollout__sleep": False, "objective__rollout__gpu_mem_util": 0.2}, [{"objective.rollout.sleep": True}]),
        ("rollout", {"objective__rollout__engine": "vllm_server", "objective__rollout__gpu_mem_util": 0.9}, []),
        ("scoring", {"objective__rollout__rollout_micro_batch": 4}, [{"objective.rollout.rollout_micro_batch": 2}, {"objective.rollout.rollout_micro_batch": 1}]),
        # A micro batch by tokens holds the longest sample.
        ("scoring", {"objective__rollout__scored_tokens": 8192, "seq__max_len": 2048}, [{"objective.rollout.scored_tokens": 4096}, {"objective.rollout.scored_tokens": 2048}]),
        ("scoring", {"objective__rollout__scored_tokens": 8192, "seq__max_len": 4097}, []),
        ("scoring", {"objective__rollout__scored_tokens": 2, "seq__max_len": None}, [{"objective.rollout.scored_tokens": 1}]),
        ("offload", {**ZERO, "parallel__zero__stage": 1}, [{STATES: "cpu"}, {**THIRD, STATES: "cpu", WEIGHTS: "cpu"}]),
        ("offload", {**ZERO, "parallel__zero__stage": 0}, [{**THIRD, STATES: "cpu", WEIGHTS: "cpu"}]),
        ("offload", ZERO, [{**THIRD, STATES: "cpu", WEIGHTS: "cpu"}]),
        ("offload", {**STAGE_3, "offload__optimizer": "cpu", "offload__params": "none"}, [{STATES: "cpu", WEIGHTS: "cpu"}]),
        ("offload", {**STAGE_3, "offload__optimizer": "cpu", "offload__params": "cpu"}, []),
        # What shards nothing yet comes to it with the stage that it takes.
        ("offload", {"parallel__backend": "ddp", "parallel__zero__stage": 1}, [{STAGE: 2, STATES: "cpu"}, {**THIRD, STATES: "cpu", WEIGHTS: "cpu"}]),
        ("offload", {"parallel__backend": "fsdp2"}, [{"parallel.fsdp.cpu_offload": True}]),
        ("offload", {"parallel__backend": "fsdp2", "parallel__fsdp__cpu_offload": True}, []),
        ("offload", {"parallel__backend": "none"}, []),
        ("swapping", {"offload__nvme_path": "/nvme"}, [{**THIRD, STATES: "nvme"}, {**THIRD, STATES: "nvme", WEIGHTS: "nvme"}]),
        ("swapping", {"offload__nvme_path": "/nvme", "offload__optimizer": "nvme"}, []),
        ("swapping", {}, []),
        ("from_host", {"parallel__fsdp__cpu_offload": True}, [{"parallel.fsdp.cpu_offload": False}]),
        ("from_host", {"offload__params": "cpu", "offload__optimizer": "cpu"}, [{WEIGHTS: "none"}, {STATES: "none", WEIGHTS: "none"}]),
        ("from_host", {"offload__optimizer": "cpu"}, [{STATES: "none"}]),
        ("from_host", {"offload__optimizer": "nvme", "offload__params": "nvme"}, []),
        ("loading", {"parallel__backend": "fsdp1"}, [{"load.cpu_ram_efficient": True}]),
        ("loading", {"parallel__backend": "fsdp1", "parallel__fsdp__sync_module_states": False}, [{"load.cpu_ram_efficient": True, "parallel.fsdp.sync_module_states": True}]),
        ("loading", {"parallel__backend": "fsdp1", "load__cpu_ram_efficient": True}, []),
        ("loading", {"parallel__backend": "ddp"}, []),
        ("pinning", {"offload__params": "cpu", "offload__pin_memory": True}, [{"offload.pin_memory": False}]),
        ("pinning", {"offload__optimizer": "cpu"}, [{"offload.pin_memory": False}]),
        ("pinning", {"parallel__fsdp__cpu_offload": True}, [{"offload.pin_memory": False}]),
        ("pinning", {"offload__optimizer": "cpu", "offload__pin_memory": False}, []),
        ("pinning", {"offload__pin_memory": True}, []),
        ("sharded_save", {"parallel__backend": "fsdp1", "parallel__fsdp__state_dict": "full"}, [{"parallel.fsdp.state_dict": "sharded"}]),
        ("sharded_save", {"parallel__backend": "fsdp2", "parallel__fsdp__state_dict": "sharded"}, []),
        ("sharded_save", {"parallel__backend": "ddp"}, []),
        ("workers", {"data__workers": 5}, [{"data.workers": 4}]),
        ("workers", {"data__workers": 4}, []),
        ("workers", {"data__workers": None}, []),
        ("no_checkpointing", FULL, [{MODE: "none"}]),
        ("no_checkpointing", {"checkpointing__mode": "none"}, []),
        ("no_checkpointing", {}, []),
        ("larger_micro_batch", {"batch__micro": 1, "batch__grad_accum": 6}, batches((2, 3), (3, 2), (6, 1))),
        ("larger_micro_batch", {"batch__micro": 1, "batch__grad_accum": None}, []),
        ("larger_micro_batch", {"batch__micro": None, "batch__grad_accum": 4}, []),
        ("less_sharding", STAGE_3, [{STAGE: 2}]),
        ("less_sharding", {**STAGE_3, "offload__params": "cpu"}, []),
        ("less_sharding", {**ZERO, "parallel__zero__stage": 2}, []),
        ("less_sharding", {"parallel__backend": "ddp", "parallel__zero__stage": 3}, []),
        ("light_optimizer", {}, [{"optimizer.kind": kind} for kind in ("adamw8bit", "paged_adamw8bit", "adafactor")]),
        ("light_optimizer", {**ZERO, "offload__optimizer": "cpu"}, [{"optimizer.kind": kind, STATES: "none"} for kind in ("adamw8bit", "paged_adamw8bit", "adafactor")]),
        ("light_optimizer", {"optimizer__kind": "sgd"}, []),
        ("half_precision", {"precision__compute": "fp32"}, [{"precision.compute": "bf16"}]),
        ("half_precision", {"precision__compute": "fp16"}, []),
        ("pixels", {"model__dims": SEEING}, [{"model.vision.max_pixels": 262_144}]),
        ("pixels", {"model__dims": SEEING, "model__vision__max_pixels": 262_145}, [{"model.vision.max_pixels": 262_144}]),
        ("pixels", {"model__dims": SEEING, "model__vision__max_pixels": 262_144}, []),
        ("pixels", {}, []),
        ("tower", {"model__dims": SEEING, "model__vision__freeze_tower": False, "trainable__method": "full"}, [{"model.vision.freeze_tower": True}]),
        ("tower", {"model__dims": SEEING, "model__vision__freeze_tower": False, "trainable__method": "none"}, []),
        ("tower", {"model__dims": SEEING, "model__vision__freeze_tower": None, "trainable__method": "full"}, []),
        ("tower", {"model__vision__freeze_tower": False, "trainable__method": "full"}, []),
        ("length", {"seq__max_len": 2048}, [{"seq.max_len": 1024}, {"seq.max_len": 512}]),
        ("length", {"seq__max_len": 1023}, []),
        ("length", {"seq__max_len": None}, []),
        ("adapter", {"trainable__method": "full"}, [ALL_LORA, {**ALL_LORA, "quant.method": "bnb4"}, LORA, {**LORA, "quant.method": "bnb4"}]),
        ("adapter", {"trainable__method": "dora"}, [{"quant.method": "bnb4"}]),
        ("adapter", {"trainable__method": "lora", "quant__method": "none"}, [{"quant.method": "bnb4"}]),
        ("adapter", {"trainable__method": "lora", "quant__method": "bnb8"}, []),
        ("adapter", {"trainable__method": "freeze"}, []),
        ("checkpoint_contents", {"parallel__zero__stage": 3, "parallel__zero__gather16_on_save": True}, [{GATHER: False}]),
        ("checkpoint_contents", {"parallel__zero__stage": 2, "parallel__zero__gather16_on_save": True}, []),
        ("checkpoint_contents", {"parallel__zero__stage": 3, "parallel__zero__gather16_on_save": False}, []),
        ("checkpoint_contents", {"save__save_only_model": False}, [{"save.save_only_model": True}]),
        ("checkpoint_contents", {"save__save_only_model": None}, []),
    ],
)  # fmt: skip
def test_a_move_sets(name: str, changes: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    assert set_by(name, **changes) == expected


@pytest.mark.parametrize(
    ("name", "changes", "titles"),
    [
        ("checkpointing", FULL, ["keep the inputs of layers in host RAM"]),
        ("checkpointing", {"checkpointing__mode": "selective_op"}, [
            "recompute activations in the backward pass",
            "recompute activations, and keep the inputs of layers in host RAM",
        ]),
        ("offload", {**STAGE_3, "offload__optimizer": "cpu"}, ["keep the parameters in host RAM"]),
        ("offload", {**ZERO, "parallel__zero__stage": 0}, ["keep parameters and optimizer in host RAM"]),
        ("from_host", {"offload__optimizer": "cpu"}, ["keep the optimizer on the GPU"]),
        ("from_host", {"offload__optimizer": "cpu", "offload__params": "cpu"}, [
            "keep parameters on the GPU", "keep states on the GPU",
        ]),
        ("rollout", {**COLOCATED, "objective__rollout__gpu_mem_util": 0.4}, [
            "give the generation engine 30% of each card",
        ]),
        ("micro_batch", {"batch__micro": 2, "batch__grad_accum": 3}, ["micro batch 1 x 6 accumulation steps"]),
        ("light_optimizer", {**ZERO, "offload__optimizer": "cpu"}, [
            "use the 8-bit AdamW on the GPU", "use the paged 8-bit AdamW on the GPU", "use Adafactor on the GPU",
        ]),
    ],
)  # fmt: skip
def test_a_move_is_called(name: str, changes: dict[str, Any], titles: list[str]) -> None:
    found = getattr(moves, f"_{name}")(plan_of(ADAM, **changes))
    assert [move.title for move in found] == titles


def offered(plan: Plan, card: int | None, *unsayable: str) -> list[dict[str, Any]]:
    """The changes of the distinct moves of a run whose framework has no words for some values."""

    def what_if(changes: Any) -> Any:
        if set(changes.values()) & set(unsayable):
            raise CannotEdit("no word")
        changed = plan.with_values({str(field): value for field, value in changes.items()})
        return SimpleNamespace(intended=SimpleNamespace(plan=changed))

    run: Any = SimpleNamespace(
        intended=SimpleNamespace(plan=plan), limits=Limits(gpu_bytes=card), what_if=what_if
    )
    groups = (*moves._loss(plan), *moves._rollout(plan), *moves._loss(plan))
    found = moves._distinct(run, groups)
    return [{str(field): value for field, value in move.changes.items()} for move in found]


@pytest.mark.parametrize(
    ("now", "most", "lengths"),
    [
        (1000, 2048, [1024, 1280, 1536, 1792, 2048]), (1024, 1536, [1280, 1536]), (2048, 2048, []),
        (None, 600, [256, 512]),
    ],
)  # fmt: skip
def test_samples_grow_in_steps_of_256_tokens_up_to_what_the_model_takes(
    now: int | None, most: int, lengths: list[int]
) -> None:
    dims = replace(LLAMA_8B, ctx=most)
    run: Any = SimpleNamespace(plan=plan_of(ADAM, model__dims=dims, seq__max_len=now))
    found = [
        {str(field): n for field, n in move.changes.items()} for move in maximise._lengths(run)
    ]
    assert found == [{"seq.max_len": length} for length in lengths]


def test_moves_are_offered_once_and_where_they_can_be_said() -> None:
    plan = plan_of(ADAM, loss__logits_materialised="full")
    assert offered(plan, None) == [{LOSS: "fused"}, {LOSS: "chunked"}]
    assert offered(plan, None, "fused") == [{LOSS: "chunked"}]


def test_no_move_takes_from_an_engine_what_its_weights_need() -> None:
    """16 GB of weights in bf16: more than 0.3 of 48 GiB, less than half of them."""
    sized = replace(LLAMA_8B, params_total=8_000_000_000)
    plan = plan_of(ADAM, model__dims=sized, **COLOCATED, objective__rollout__gpu_mem_util=0.9)
    assert offered(plan, 80 * 2**30) == [{SHARE: 0.5}, {SHARE: 0.3}]
    assert offered(plan, 48 * 2**30) == [{SHARE: 0.5}]
    assert offered(plan, 24 * 2**30) == []  # half of them are 12.9 GB


def test_what_is_called_safe_gives_nothing_up() -> None:
    plan = plan_of(ADAM, trainable__method="full", seq__max_len=4096, batch__micro=4, **STAGE_3)
    for groups, is_safe in ((moves._SAFE, True), (moves._SPEEDING, True), (moves._UNSAFE, False)):
        found = [move for group in groups for move in group(plan)]
        assert found
        assert all(move.is_safe is is_safe for move in found)
