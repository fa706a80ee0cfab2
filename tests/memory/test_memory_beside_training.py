"""Evaluation, models beside the trained one, checkpoints that are read back, and what is trained: by hand.

Llama-3-8B has 8,030,261,248 parameters, of which a block has 218,112,000 and embedding and head 525,336,576 each.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import astuple, replace
from tests.plans import LLAMA_8B, plan_of

from oomlint.memory.beside import (
    asked_in_host,
    asked_on_gpu,
    beside_in_host,
    critic_beside,
    there_at_start,
)
from oomlint.memory.estimate import cast_bytes, colocated_pool, estimate, load_point
from oomlint.memory.evaluation import (
    evaluation_point,
    first_logits,
    is_evaluated,
    kept_logits,
    key_value_cache,
)
from oomlint.memory.facts import Facts
from oomlint.memory.layers import layer_profile
from oomlint.memory.logits import logits_of
from oomlint.memory.reload import ReadBack, beside_on_gpu, read_back
from oomlint.memory.result import GpuLimits
from oomlint.memory.step import Point
from oomlint.plan import Plan
from oomlint.plan.model import Mla, ModelDims, VisionTower

NUMEL, BLOCK, END = 8_030_261_248, 218_112_000, 525_336_576
VOCAB = 128_256
LEAVES: dict[str, Any] = {
    "model.dims": LLAMA_8B, "trainable.method": "full", "precision.param": "bf16",
    "precision.grad": "bf16", "precision.optim_state": "fp32", "precision.compute": "bf16",
    "optimizer.kind": "adamw", "batch.micro": 2, "seq.max_len": 512, "checkpointing.mode": "full",
}  # fmt: skip
RANKS: dict[str, Any] = {"parallel__world": 8, "parallel__gpus_per_node": 8}
ZERO: dict[str, Any] = {
    **RANKS, "parallel__backend": "zero", "parallel__zero__stage": 3, "precision__master": "fp32",
}  # fmt: skip
FSDP2: dict[str, Any] = {**RANKS, "parallel__backend": "fsdp2"}
FSDP1: dict[str, Any] = {**RANKS, "parallel__backend": "fsdp1"}
DDP: dict[str, Any] = {**RANKS, "parallel__backend": "ddp"}


def plan(**changes: Any) -> Plan:
    return plan_of(LEAVES, **changes)


def facts(**changes: Any) -> Facts:
    return Facts(plan(**changes))


# -- evaluation -----------------------------------------------------------------------------------------

IDLE = Point(gradients=1e9, communication=2e9)


@pytest.mark.parametrize(
    ("changes", "window"),
    [
        ({}, 0), (DDP, 0), (FSDP1, 6 * BLOCK), (FSDP2, 6 * BLOCK), (ZERO, 2 * 1.05e9),
        ({**ZERO, "parallel__zero__stage": 2}, 0),
    ],
)  # fmt: skip
def test_evaluation_is_a_forward_pass_of_its_own_batch(
    changes: dict[str, Any], window: float
) -> None:
    f = facts(**changes, batch__eval_micro=6)
    tokens = 6 * 512
    assert f.model is not None
    assert f.regime is not None
    profile = layer_profile(f.model, f.model.blocks[0], f.regime)
    layer = max(s.token * tokens + s.fixed for s in profile.inference)
    head = logits_of(f, tokens)
    assert evaluation_point(f, IDLE) == Point(
        1e9, max(layer, head.norm), head.loss, 2e9 + window, 0
    )


def test_scores_of_eager_attention_grow_with_the_samples() -> None:
    f = facts(model__attn_impl="eager", batch__eval_micro=6, loss__cut_ce=True)
    assert f.model is not None
    assert f.regime is not None
    profile = layer_profile(f.model, f.model.blocks[0], f.regime)
    layer = max(s.token * 6 * 512 + s.score * 6 * 512**2 for s in profile.inference)
    assert evaluation_point(f, Point()).activations == layer


@pytest.mark.parametrize(
    ("changes", "evaluated"),
    [
        ({}, True), ({"eval__enabled": True}, True), ({"eval__enabled": False}, False),
        ({"eval__strategy": "no"}, False), ({"eval__strategy": "steps"}, True),
    ],
)  # fmt: skip
def test_a_run_evaluates_unless_it_says_no(changes: dict[str, Any], evaluated: bool) -> None:
    f = facts(**changes)
    assert is_evaluated(f) is evaluated
    assert (evaluation_point(f, IDLE) == IDLE) is not evaluated


def test_an_engine_that_answers_leaves_nothing_to_evaluate() -> None:
    writes = {"eval__generate": True, "objective__rollout__engine": "vllm_server"}
    assert evaluation_point(facts(**writes), IDLE) == IDLE
    assert evaluation_point(facts(objective__rollout__engine="vllm_server"), IDLE) != IDLE
    for own in ("hf", "none", None):
        assert (
            evaluation_point(facts(**{**writes, "objective__rollout__engine": own}), IDLE) != IDLE
        )


@pytest.mark.parametrize(
    ("changes", "gpu", "host"),
    [
        ({}, 0, 0),
        # Of a set of unknown size sixteen batches of 1,024 tokens, in fp32.
        ({"eval__keeps_logits": True}, 16 * 1024, 0),
        ({"eval__keeps_logits": True, "eval__samples": 100}, 100 * 512, 0),
        # No fewer than one batch.
        ({"eval__keeps_logits": True, "eval__samples": 1}, 1024, 0),
        ({"eval__keeps_logits": True, "eval__enabled": False}, 0, 0),
        ({"eval__keeps_logits": True, **DDP}, 8 * 16 * 1024, 0),
        ({"eval__keeps_logits": True, **RANKS, "parallel__backend": "dp"}, 16 * 1024, 0),
        # Gathered so many batches long, and then moved to the RAM of each rank.
        ({"eval__keeps_logits": True, "eval__accumulation_steps": 3, "eval__samples": 100}, 3 * 1024, 100 * 512),
        (
            {"eval__keeps_logits": True, "eval__accumulation_steps": 3, "eval__samples": 100, **FSDP2},
            8 * 3 * 1024, 8 * 100 * 512,
        ),
        ({"eval__keeps_logits": True, "eval__accumulation_steps": 3}, 3 * 1024, 0),
    ],
)  # fmt: skip
def test_logits_that_evaluation_keeps(changes: dict[str, Any], gpu: float, host: float) -> None:
    assert kept_logits(facts(**changes), 1024) == (4 * VOCAB * gpu, 4 * VOCAB * host)
    assert kept_logits(facts(**changes, model__dims=None), 1024) == (0, 0)


@pytest.mark.parametrize(
    ("changes", "width", "tokens"),
    [
        ({}, 6, 2),
        ({"loss__upcast_fp32": False}, 2, 2),
        ({"versions": {"transformers": "4.44.2"}}, 6, 1024),
        ({"versions": {"transformers": "4.45.0"}}, 6, 2),
        ({"precision__compute": "fp32"}, 8, 2),
        ({"parallel__backend": "megatron", "parallel__world": 2, "parallel__tp": 2}, 3, 2),
    ],
)
def test_generation_begins_with_logits(changes: dict[str, Any], width: int, tokens: int) -> None:
    assert first_logits(facts(**changes), 2, 1024) == width * VOCAB * tokens


@pytest.mark.parametrize(
    ("changes", "width"),
    [
        # Keys and values of eight heads of 128, in 32 layers and 2 bytes.
        ({}, 2 * 2 * 8 * 128 * 32),
        ({"precision__compute": "fp32"}, 4 * 2 * 8 * 128 * 32),
        ({"parallel__backend": "megatron", "parallel__world": 8, "parallel__tp": 2}, 2 * 8 * 128 * 32),
        ({"parallel__backend": "megatron", "parallel__world": 8, "parallel__pp": 4}, 2 * 2 * 8 * 128 * 8),
        ({**FSDP2, "parallel__cp": 2}, 2 * 8 * 128 * 32),
        (
            {"model__dims": replace(LLAMA_8B, arch="deepseek_v3",
                                    mla=Mla(q_rank=0, kv_rank=512, qk_nope=128, qk_rope=64, v_dim=96))},
            2 * (512 + 64) * 32,
        ),
    ],
)  # fmt: skip
def test_a_token_leaves_keys_and_values(changes: dict[str, Any], width: int) -> None:
    assert key_value_cache(facts(**changes), 100) == 100 * width


def test_writing_in_evaluation_has_keys_values_and_under_fsdp1_the_whole_model() -> None:
    writes: dict[str, Any] = {
        "eval__generate": True, "eval__max_new_tokens": 10_000, "loss__cut_ce": True,
    }  # fmt: skip
    cache = 2 * (512 + 10_000) * 2 * 2 * 8 * 128 * 32
    for changes, window in ((FSDP1, 2 * NUMEL), (FSDP2, 6 * BLOCK), (DDP, 0)):
        f = facts(**writes, **changes)
        point = evaluation_point(f, IDLE)
        assert f.model is not None
        assert f.regime is not None
        profile = layer_profile(f.model, f.model.blocks[0], f.regime)
        layer = max(s.token * 1024 + s.fixed for s in profile.inference)
        assert point == Point(1e9, layer + cache, 6 * VOCAB * 2, 2e9 + window, 0)


# -- models beside the trained one ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "beside"),
    [
        ({}, 0),
        ({"objective__ref_model": "copy"}, 2 * NUMEL),
        ({"objective__ref_model": "shared_adapter_off"}, 0),
        ({"objective__ref_model": "copy", "objective__ref_dtype": "fp32"}, 4 * NUMEL),
        ({"objective__ref_model": "copy", "precision__param": "fp32"}, 4 * NUMEL),
        ({"objective__ref_model": "copy", **ZERO}, 2 * NUMEL / 8),
        ({"objective__ref_model": "copy", **ZERO, "parallel__zero__stage": 2}, 2 * NUMEL),
        ({"objective__ref_model": "copy", **FSDP1}, 2 * NUMEL / 8),
        ({"objective__ref_model": "copy", **DDP}, 2 * NUMEL),
        ({"objective__ref_model": "copy", "parallel__backend": "megatron", **RANKS, "parallel__tp": 2, "parallel__pp": 2},
         2 * NUMEL / 4),
        ({"objective__ref_model": "copy", **ZERO, "offload__params": "cpu"}, 0),
        ({"objective__ref_model": "copy", **ZERO, "offload__params": "nvme"}, 0),
        ({"objective__ref_model": "copy", **FSDP1, "offload__params": "cpu"}, 2 * NUMEL / 8),
        # As large as the trained one, unless somebody says how large.
        ({"objective__reward_model": "ours"}, 2 * NUMEL),
        ({"objective__reward_model": "ours", "objective__reward_params": 5}, 10),
        ({"objective__reward_model": "none", "objective__reward_params": 5}, 0),
        ({"objective__teacher": "theirs", "objective__teacher_params": 7, "objective__ref_model": "copy"},
         2 * NUMEL + 14),
    ],
)  # fmt: skip
def test_models_stand_beside(changes: dict[str, Any], beside: float) -> None:
    assert asked_on_gpu(facts(**changes)) == pytest.approx(beside)


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({"objective__critic": "critic"}, 1),
        ({"objective__critic": "critic", "objective__critic_params": NUMEL // 2}, 1 / 2),
        ({"objective__critic": "none"}, 0),
    ],
)
def test_a_critic_is_trained_in_turn(changes: dict[str, Any], share: float) -> None:
    """It keeps weights and states, and the gradients that are kept between steps."""
    found = critic_beside(facts(**changes), 3.0)
    expected = (2 * share * NUMEL, 3.0 * share, 0, 8 * share * NUMEL)
    assert astuple(found) == pytest.approx(expected)


def test_a_critic_counts_by_what_it_keeps() -> None:
    """FSDP's shards in fp32: weights and Adam's two states of two models, gradients of the one in its turn."""
    fp32 = {"precision__param": "fp32", "precision__optim_state": "fp32", **FSDP1}
    alone, beside = (
        estimate(plan(**fp32, objective__critic=critic)).gpu.by_phase
        for critic in ("none", "critic")
    )
    for phase in ("backward", "optimizer_step", "save"):
        assert beside[phase]["gradients"] == alone[phase]["gradients"]
        assert beside[phase]["parameters"] == 2 * alone[phase]["parameters"]
        assert beside[phase]["optimizer_states"] == 2 * alone[phase]["optimizer_states"]
    assert beside["load"]["optimizer_states"] == beside["load"]["gradients"] == 0


def test_a_reference_goes_to_ram_with_the_parameters() -> None:
    away = {"objective__ref_model": "copy", **ZERO, "offload__params": "cpu"}
    assert beside_in_host(facts(**away)) == 2 * NUMEL / 8
    assert asked_in_host(plan(**away)) == 2 * NUMEL
    assert asked_in_host(plan(**{**away, "offload__params": "nvme"})) == 0
    assert asked_in_host(plan(**{**away, "parallel__zero__stage": 2})) == 0
    assert asked_in_host(Plan()) == 0
    two_nodes = {**away, "parallel__world": 16, "parallel__nodes": 2}
    assert asked_in_host(plan(**two_nodes)) == 2 * NUMEL / 2


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({}, 2 * NUMEL),
        # Megatron has gradients and masters from the start.
        (
            {"parallel__backend": "megatron", "parallel__world": 1, "precision__master": "fp32"},
            (2 + 2 + 4) * NUMEL,
        ),
        ({"offload__idle": "cpu"}, 0),
        ({"offload__idle": "none"}, 2 * NUMEL),
        ({"objective__critic": "critic"}, 4 * NUMEL),
        ({"objective__critic": "critic", "offload__idle": "cpu"}, 2 * NUMEL),
        ({"objective__ref_model": "copy", "offload__idle": "cpu"}, 2 * NUMEL),
    ],
)
def test_what_is_there_before_the_first_step(changes: dict[str, Any], start: float) -> None:
    assert there_at_start(facts(**changes)) == pytest.approx(start)


# -- reading back ---------------------------------------------------------------------------------------

KEPT = 12 * NUMEL / 8


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        (ZERO, ReadBack(KEPT, 8 * KEPT, KEPT)),
        ({**ZERO, "parallel__zero__serial_load": True}, ReadBack(KEPT, KEPT, KEPT)),
        ({**ZERO, "parallel__zero__stage": 2}, ReadBack(KEPT, 8 * KEPT, None)),
        ({**ZERO, "parallel__gpus_per_node": 1}, ReadBack(KEPT, KEPT, None)),
        ({**ZERO, "parallel__zero__stage": 0}, None),
        # On the host they are read to the host all the same.
        ({**ZERO, "offload__optimizer": "cpu"}, ReadBack(KEPT, 8 * KEPT, KEPT)),
        ({**FSDP1, "parallel__fsdp__state_dict": "full"}, ReadBack(8 * NUMEL, 8 * NUMEL, None, first_reads_all=True)),
        (
            {**FSDP1, "parallel__fsdp__state_dict": "full", "parallel__dp_replicate": 2},
            ReadBack(4 * NUMEL, 4 * NUMEL, None, first_reads_all=True),
        ),
        ({**FSDP1, "parallel__fsdp__state_dict": "sharded"}, None),
        (DDP, None),
        ({**ZERO, "trainable__method": "lora"}, None),
    ],
)  # fmt: skip
def test_a_checkpoint_is_read_by_all_or_by_the_first(
    changes: dict[str, Any], found: ReadBack | None
) -> None:
    made = read_back(plan(**changes))
    if found is None:
        assert made is None
        return
    assert made is not None
    assert (made.kept, made.read) == (pytest.approx(found.kept), pytest.approx(found.read))
    assert made.serial == (None if found.serial is None else pytest.approx(found.serial))
    assert made.first_reads_all is found.first_reads_all


@pytest.mark.parametrize(
    ("changes", "versions", "sets"),
    [
        (DDP, {"torch": "2.0.1"}, 1), (DDP, {"torch": "2.1.0"}, 0), (DDP, {}, 0),
        ({**DDP, "parallel__world": 1, "parallel__gpus_per_node": 1}, {"torch": "2.0.1"}, 0),
        ({**ZERO, "parallel__zero__stage": 2}, {"deepspeed": "0.13.1"}, 1 / 8),
        ({**ZERO, "parallel__zero__stage": 2}, {"deepspeed": "0.13.2"}, 0),
        ({**ZERO, "parallel__zero__stage": 0}, {"deepspeed": "0.13.1"}, 0),
        (FSDP1, {"torch": "2.0.1"}, 0),
    ],
)  # fmt: skip
def test_old_releases_have_two_sets(
    changes: dict[str, Any], versions: dict[str, str], sets: float
) -> None:
    resumed = plan(**changes, versions=versions, load__resume=True)
    assert beside_on_gpu(resumed) == pytest.approx(sets * 8 * NUMEL)
    assert beside_on_gpu(plan(**changes, versions=versions)) == 0


# -- loading --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({}, 0),
        ({**RANKS, "parallel__backend": "fabric_fsdp"}, 2 * NUMEL),
        # All of it, until a rank's eighth is left.
        ({**ZERO, "load__zero3_init": False}, 2 * NUMEL * 7 / 8),
        ({**ZERO, "load__zero3_init": True}, 0),
        (
            {**ZERO, "quant__method": "bnb4", "trainable__method": "lora"},
            ((NUMEL - 2 * END - 266_240) * 0.5625 + 2 * (2 * END + 266_240)) * 7 / 8,
        ),
        # Made wide after loading.
        (
            {**ZERO, "quant__method": "bnb8", "trainable__method": "lora", "quant__prepares_kbit": True},
            (NUMEL - 2 * END - 266_240) + 2 * (2 * END + 266_240)
            - ((NUMEL - 2 * END - 266_240) + 4 * (2 * END + 266_240)) / 8,
        ),
    ],
)  # fmt: skip
def test_what_lies_whole_while_it_loads(changes: dict[str, Any], windows: float) -> None:
    assert load_point(facts(**changes)) == Point(communication=pytest.approx(windows))


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({**ZERO, "load__device_map": "single", "load__cast": "fp32"}, 2 * NUMEL),
        ({**ZERO, "load__device_map": "single", "load__cast": "bf16"}, 0),
        ({**ZERO, "load__device_map": "auto", "load__cast": "fp32"}, 0),
        ({**ZERO, "load__device_map": "single"}, 0),
        ({**DDP, "load__device_map": "single", "load__cast": "fp32"}, 0),
    ],
)
def test_what_an_engine_casts_was_there_wider(changes: dict[str, Any], more: float) -> None:
    assert cast_bytes(facts(**changes)) == more


def test_an_engine_that_does_not_sleep_has_its_pool_all_the_time() -> None:
    limits = GpuLimits(usable=80 << 30)
    engine = {
        "objective__rollout__engine": "vllm_colocate",
        "objective__rollout__gpu_mem_util": 0.5,
    }
    assert colocated_pool(facts(**engine), limits) == 40 << 30
    assert colocated_pool(facts(**engine, objective__rollout__sleep=True), limits) == 0


# -- what is trained ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "trained"),
    [
        ({}, NUMEL),
        ({"trainable__method": "none"}, 0),
        ({"trainable__params": 5_000}, 5_000),
        # Two of 32 blocks, or so many.
        ({"trainable__method": "freeze"}, 2 * BLOCK),
        ({"trainable__method": "freeze", "trainable__last_layers": 5}, 5 * BLOCK),
        ({"trainable__method": "freeze", "trainable__last_layers": -3}, 3 * BLOCK),
        ({"trainable__method": "freeze", "trainable__last_layers": 99}, 32 * BLOCK),
        ({"trainable__method": "freeze", "trainable__params": 77}, 77),
        ({"optimizer__kind": "badam"}, BLOCK),
        # Rank 8 and q and v, peft's own where nobody says.
        ({"trainable__method": "lora"}, 32 * 8 * (4096 + 4096 + 4096 + 1024)),
        ({"trainable__method": "lora", "trainable__r": 4}, 32 * 4 * (4096 + 4096 + 4096 + 1024)),
        ({"trainable__method": None, "trainable__r": 4}, 32 * 4 * (4096 + 4096 + 4096 + 1024)),
        ({"trainable__method": None}, NUMEL),
        (
            {"trainable__method": "lora", "trainable__modules_to_save": ("lm_head",)},
            32 * 8 * (4096 + 4096 + 4096 + 1024) + END,
        ),
        (
            {"trainable__method": "lora", "trainable__modules_to_save": ("embed_tokens", "lm_head"),
             "trainable__params": 3 * END}, 3 * END,
        ),
        # No fewer than what is saved whole.
        (
            {"trainable__method": "lora", "trainable__modules_to_save": ("embed_tokens",), "trainable__params": 1},
            END,
        ),
    ],
)  # fmt: skip
def test_so_many_elements_are_trained(changes: dict[str, Any], trained: float) -> None:
    f = facts(**changes)
    assert f.trained.numel == trained
    ends = changes.get("trainable__modules_to_save", ())
    if f.trained.lora:
        assert (f.trained.embeddings, f.trained.head) == ("embed_tokens" in ends, "lm_head" in ends)
    elif changes.get("trainable__method") == "freeze":
        assert (f.trained.embeddings, f.trained.head) == (False, False)
    else:
        assert (f.trained.embeddings, f.trained.head) == (True, True)


def test_a_frozen_tower_is_not_trained() -> None:
    vision = VisionTower(layers=2, hidden=64, heads=4, ffn=128, patch=14, params=100_000)
    dims = ModelDims(
        arch="llava", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=1000,
        tie_embeddings=False, act="swiglu", norm="rms", vision=vision,
    )  # fmt: skip
    whole = facts(model__dims=dims)
    frozen = facts(model__dims=dims, trainable__frozen=("vision",))
    asked = facts(model__dims=dims, model__vision__freeze_tower=True)
    other = facts(model__dims=dims, trainable__frozen=("projector",))
    assert whole.trained.numel - frozen.trained.numel == 100_000
    assert asked.trained.numel == frozen.trained.numel
    assert other.trained.numel == whole.trained.numel
    assert not facts(trainable__frozen=("vision",)).tower_graph


@pytest.mark.parametrize(
    ("targets", "share"),
    [
        # Of 32 query heads and eight of keys and of values: each that is named.
        (("q_proj", "v_proj"), 40 / 48), (("q_proj",), 32 / 48), (("k_proj", "v_proj"), 16 / 48),
        (("k_proj",), 8 / 48), (("q_proj", "k_proj", "v_proj"), 1.0), (("up_proj",), 1.0),
    ],
)  # fmt: skip
def test_litgpts_adapter_covers_the_heads_that_are_named(
    targets: tuple[str, ...], share: float
) -> None:
    dims = replace(LLAMA_8B, arch="litgpt")
    regime = facts(model__dims=dims, trainable__method="lora", trainable__targets=targets).regime
    assert regime is not None
    assert regime.scattered == pytest.approx(share)
    other = facts(trainable__method="lora", trainable__targets=targets).regime
    assert other is not None
    assert other.scattered == 1


def test_widths_of_copies_and_adapters_are_the_mean_of_both() -> None:
    adapters = 32 * 8 * (4096 + 4096 + 4096 + 1024)
    f = facts(
        trainable__method="lora", trainable__modules_to_save=("lm_head",), precision__grad=None,
        precision__optim_state=None, trainable__adapter_dtype="fp32", trainable__saved_dtype="bf16",
    )  # fmt: skip
    mean = (4 * adapters + 2 * END) / (adapters + END)
    assert (f.bytes_per.grad, f.bytes_per.optim_state, f.bytes_per.trained) == pytest.approx(
        (mean, mean, mean)
    )
    assert f.bytes_per.adapter == 4
    alike = facts(trainable__method="lora", precision__grad=None, trainable__adapter_dtype="bf16")
    assert (alike.bytes_per.grad, alike.bytes_per.trained) == (2, 2)
    usual = facts(trainable__method="lora", precision__grad=None, precision__optim_state=None)
    assert (usual.bytes_per.grad, usual.bytes_per.optim_state, usual.bytes_per.adapter) == (4, 4, 4)
    told = facts(trainable__method="lora", precision__grad="bf16", precision__optim_state=None)
    assert (told.bytes_per.grad, told.bytes_per.optim_state) == (2, 2)
