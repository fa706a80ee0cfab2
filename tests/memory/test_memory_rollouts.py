"""Reinforcement learning on one card: the engine's pool, the logits of answers, what stands beside."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.plans import LLAMA_8B

from oomlint.memory import GpuLimits, estimate
from oomlint.memory.facts import Facts
from oomlint.memory.images import images_of
from oomlint.memory.layers import layer_profile
from oomlint.memory.logits import logits_of, scored_logits
from oomlint.memory.rollout import engine_pool, least_engine_weights, rollout_points
from oomlint.memory.states import state_bytes_of
from oomlint.memory.step import Point
from oomlint.plan import Plan
from oomlint.plan.model import Model, ModelDims, Moe, Precision, Trainable, VisionTower
from oomlint.plan.training import (
    Batch,
    Checkpointing,
    Loss,
    Objective,
    Parallel,
    Rollout,
    Seq,
    Zero,
)

_CARD = 80 << 30
_LIMITS = GpuLimits(usable=_CARD, context=1 << 30)
_ROWS, _PROMPT, _ANSWER = 4, 512, 1536
_ALL = _ROWS * (_PROMPT + _ANSWER)

# An actor of verl: flash-attn's kernel over 16-bit logits (workers/actor/dp_actor.py).
_ACTOR = Plan(
    model=Model(dims=LLAMA_8B, attn_impl="flash2"),
    trainable=Trainable(method="full"),
    precision=Precision(param="bf16", grad="bf16", optim_state="bf16", compute="bf16"),
    batch=Batch(micro=_ROWS, grad_accum=1),
    seq=Seq(max_len=_PROMPT + _ANSWER, packing="none", pad="max_len"),
    checkpointing=Checkpointing(mode="full"),
    parallel=Parallel(backend="fsdp2", world=8),
    loss=Loss(logits_materialised="full", algorithm="in_place", upcast_fp32=False),
    objective=Objective(
        kind="grpo",
        rollout=Rollout(
            engine="vllm_colocate", gpu_mem_util=0.5, sleep=True,
            max_prompt_tokens=_PROMPT, max_completion_tokens=_ANSWER,
        ),
    ),
)  # fmt: skip
_JOINED = {"seq.packing": "varlen", "seq.pad": "none"}


# -- logits: bytes an element of all logits, counted on torch 2.13 with a quarter of them prompts -------


@pytest.mark.parametrize(
    ("changes", "kept", "at_loss", "backward"),
    [
        ({}, 1.5, 3.5, 4.0),
        ({"loss.entropy": "whole"}, 2 + 6 * 0.75, 2 + 10 * 0.75, 2 + 18 * 0.75),
        (_JOINED, 2.0, 2.0, 4.0),
        ({**_JOINED, "loss.entropy": "fused"}, 2.0, 2.0, 6.0),
        ({**_JOINED, "loss.entropy": "whole"}, 6.0, 10.0, 18.0),
    ],
)
def test_the_entropy_of_padded_answers_keeps_a_softmax(changes, kept, at_loss, backward) -> None:
    f = Facts(_ACTOR.with_values(changes))
    each = _ALL * (LLAMA_8B.vocab or 0)
    found = logits_of(f, _ALL)
    assert (found.kept, found.loss, found.early) == (kept * each, at_loss * each, backward * each)


@pytest.mark.parametrize(
    ("changes", "width"),
    [
        ({}, 2 + 2 * 0.75),
        ({"objective.rollout.entropy": "whole"}, 2 + 8 * 0.75),
        ({**_JOINED, "objective.rollout.entropy": "fused"}, 2),
        ({**_JOINED, "objective.rollout.entropy": "whole"}, 10),
    ],
)
def test_scoring_answers_takes_their_entropy_too(changes, width) -> None:
    plan = _ACTOR.with_values(changes)
    assert scored_logits(Facts(plan), _ALL).loss == width * _ALL * (LLAMA_8B.vocab or 0)


def test_megatron_clones_fp32_logits_for_the_entropy() -> None:
    changes: dict[str, Any] = {
        "parallel": Parallel(backend="megatron", world=8, tp=2, sp=True),
        "loss.upcast_fp32": True,
        "precision.logits": "fp32",
        **_JOINED,
    }
    each = _ALL * (LLAMA_8B.vocab or 0) / 2
    plain = logits_of(Facts(_ACTOR.with_values(changes)), _ALL)
    assert (plain.kept, plain.early) == (4 * each, 8 * each)
    taken = logits_of(Facts(_ACTOR.with_values({**changes, "loss.entropy": "whole"})), _ALL)
    assert taken.kept == 12 * each


def test_a_sequence_that_ranks_share_is_scored_in_parts() -> None:
    alone, shared = Facts(_ACTOR), Facts(_ACTOR.with_values({"parallel.ulysses": 2}))
    assert shared.samples.tokens == alone.samples.tokens / 2
    assert (
        scored_logits(shared, shared.samples.tokens).loss
        == scored_logits(alone, alone.samples.tokens).loss / 2
    )


def test_states_that_move_away_are_not_there_while_answers_are_scored() -> None:
    plan = _ACTOR.with_values(
        {"objective.rollout.rollout_micro_batch": 64, "objective.rollout.entropy": "whole"}
    )
    away = estimate(plan.with_values({"offload.idle": "cpu"}), _LIMITS).gpu
    stay = estimate(plan, _LIMITS).gpu
    assert away.by_phase["forward"]["optimizer_states"] == 0
    assert (stay.by_phase["forward"]["optimizer_states"] or 0) > 0


def test_states_that_move_away_wait_in_ram() -> None:
    away = estimate(_ACTOR.with_values({"offload.idle": "cpu"})).host
    stay = estimate(_ACTOR).host
    states = state_bytes_of(Facts(_ACTOR))
    waiting = (away.phases["train"] or 0) - (stay.phases["train"] or 0)
    assert waiting == pytest.approx(8 * (states.parameters + states.master + states.optimizer))
    assert away.phases["load"] == stay.phases["load"]


def test_gradients_that_move_away_wait_there_too() -> None:
    """Megatron's fp32 buffers of them, where everything that torch holds is copied."""
    megatron = _ACTOR.with_values(
        {"parallel.backend": "megatron", "precision.grad": "fp32", "offload.idle": "cpu"}
    )
    away = estimate(megatron.with_values({"offload.idle_grads": "cpu"})).host
    more = (away.phases["train"] or 0) - (estimate(megatron).host.phases["train"] or 0)
    assert more == pytest.approx(8 * 4 * 8_030_261_248)


@pytest.mark.parametrize("copies", [1, 2])
def test_each_rank_keeps_copies_of_its_weights_in_ram(copies: int) -> None:
    kept = estimate(_ACTOR.with_values({"offload.weight_copies": copies})).host
    without = estimate(_ACTOR).host
    each = 8 * state_bytes_of(Facts(_ACTOR)).parameters
    for phase in ("train", "save"):
        shown = kept.by_phase[phase]["offloaded_states"] or 0
        assert shown - (without.by_phase[phase]["offloaded_states"] or 0) == pytest.approx(
            copies * each
        )
    assert (kept.by_phase["train"]["pinned_rounding"] or 0) > 0


# -- the engine --------------------------------------------------------------------------------------


def test_sglang_takes_a_share_of_what_is_free() -> None:
    whole = engine_pool(Facts(_ACTOR), _LIMITS)
    assert whole == 0.5 * _CARD
    sglang = _ACTOR.with_values({"objective.rollout.engine": "sglang"})
    f = Facts(sglang)
    assert engine_pool(f, _LIMITS) == pytest.approx(
        0.5 * (_CARD - (1 << 30) - state_bytes_of(f).parameters)
    )
    moved = Facts(sglang.with_values({"offload.idle": "cpu"}))
    assert engine_pool(moved, _LIMITS) == 0.5 * (_CARD - (1 << 30))


def test_vllm_of_a_carried_verl_takes_a_share_of_what_is_free_for_its_cache() -> None:
    free = _ACTOR.with_values(
        {
            "objective.rollout.share_of": "free",
            "objective.rollout.tp": 2,
            "objective.rollout.sleep": False,
        }
    )
    f = Facts(free)
    assert f.model is not None
    weights = f.model.numel  # in 16 bit on two ranks
    cache = 0.5 * (_CARD - (1 << 30) - state_bytes_of(f).parameters - weights)
    assert engine_pool(f, _LIMITS) == pytest.approx(cache), "its weights leave"
    sleeps = Facts(free.with_values({"objective.rollout.sleep": True}))
    assert engine_pool(sleeps, _LIMITS) == pytest.approx(cache + weights)


def test_vllm_counts_what_the_process_holds_into_its_share() -> None:
    within = _ACTOR.with_values(
        {"objective.rollout.share_of": "process", "objective.rollout.tp": 2}
    )
    f = Facts(within)
    assert f.model is not None
    own = 0.5 * _CARD - (1 << 30) - state_bytes_of(f).parameters
    assert engine_pool(f, _LIMITS) == pytest.approx(max(f.model.numel, own))
    critic = Facts(within.with_values({"objective.critic": "critic"}))
    assert engine_pool(critic, _LIMITS) == pytest.approx(
        max(f.model.numel, own - state_bytes_of(f).parameters)
    )


def test_deepspeed_makes_room_for_all_tokens_when_it_first_writes() -> None:
    """OPT-13B on two ranks a group, 32 prompts each, 512 tokens: 16.2 GiB."""
    opt = ModelDims(
        arch="opt", layers=40, hidden=5120, heads=40, kv_heads=40, head_dim=128, ffn=20480,
        vocab=50272, tie_embeddings=True,
    )  # fmt: skip
    rollout = Rollout(
        engine="deepspeed", tp=2, rollout_micro_batch=32, max_prompt_tokens=256,
        max_completion_tokens=256,
    )  # fmt: skip
    plan = _ACTOR.with_values({"model.dims": opt, "objective.rollout": rollout})
    each = 10 * 40 * 128 + 40 // 2 * 512 + 2 * 40 * 40 * 128 / 2
    assert engine_pool(Facts(plan), _LIMITS) == 2 * 64 * 512 * each
    stays = estimate(plan, _LIMITS).gpu.by_phase
    assert stays["backward"]["engine"] == stays["forward"]["engine"] == 2 * 64 * 512 * each
    goes = estimate(plan.with_values({"objective.rollout.sleep": True}), _LIMITS).gpu.by_phase
    assert goes["backward"]["engine"] == 0


def test_answers_of_unsaid_lengths_fill_the_longest_sequence() -> None:
    """Of the keys and values of a row as many as it has tokens: prompt and answer where these are said."""

    def cached(rollout: Rollout) -> float:
        (point,) = rollout_points(
            Facts(_ACTOR.with_values({"objective.rollout": rollout})), Point(), _LIMITS
        )
        return point.activations

    unsaid = Rollout(engine="hf")
    prompt = replace(unsaid, max_prompt_tokens=_PROMPT + _ANSWER)
    both = replace(prompt, max_completion_tokens=_ANSWER)
    assert cached(unsaid) == cached(prompt)
    # 8 key heads of 128 in 32 layers, keys and values, in 16 bit.
    assert cached(both) - cached(prompt) == _ROWS * _ANSWER * 2 * 8 * 128 * 32 * 2


# -- layers --------------------------------------------------------------------------------------------

_MOE = replace(LLAMA_8B, arch="mixtral", moe=Moe(experts=8, topk=2))


def _saved(changes: dict[str, Any]) -> float:
    f = Facts(_ACTOR.with_values({"model.dims": _MOE, **changes}))
    assert f.model is not None
    assert f.regime is not None
    return layer_profile(f.model, f.model.blocks[0], f.regime).saved.token


def test_ranks_that_split_layers_share_the_experts_work() -> None:
    def split(tp: int, etp: int) -> dict[str, Any]:
        return {"parallel": Parallel(backend="megatron", world=8, tp=tp, etp=etp, sp=tp > 1)}

    whole, quarter, spread = _saved(split(1, 1)), _saved(split(4, 4)), _saved(split(4, 1))
    # With whole experts each rank sees a part of the tokens; else all of them, and a part of each.
    assert spread == pytest.approx(whole / 4, rel=0.05)
    assert whole / 4 < quarter < whole / 2


@pytest.mark.parametrize(("part", "dims"), [("mlp", LLAMA_8B), ("moe", _MOE)])
def test_megatron_keeps_the_input_alone_of_a_part_that_it_runs_again(part, dims) -> None:
    def kept(modules: tuple[str, ...]) -> dict[str, Any]:
        return {
            "model.dims": dims,
            "parallel": Parallel(backend="megatron", world=8),
            "checkpointing": Checkpointing(
                mode="selective_op", source="megatron", recompute_modules=modules
            ),
        }

    plain, again = _saved(kept(("core_attn",))), _saved(kept(("core_attn", part)))
    assert again < 0.6 * plain
    peaks = [
        estimate(_ACTOR.with_values(kept(x))).gpu.peak_bytes for x in (("core_attn",), (part,))
    ]
    assert (peaks[1] or 0) < (peaks[0] or 0)


def test_the_last_stage_has_the_logits_and_the_first_has_the_depth() -> None:
    def need(pp: int, vocab: int) -> int:
        dims = replace(LLAMA_8B, vocab=vocab)
        plan = _ACTOR.with_values(
            {
                "model.dims": dims,
                "parallel": Parallel(backend="megatron", world=8, pp=pp),
                "batch.grad_accum": 8,
                "checkpointing.mode": "none",
                "loss.upcast_fp32": True,
            }
        )
        return estimate(plan).gpu.by_phase["backward"]["logits"] or 0

    # Four micro batches in flight outweigh the logits of one.
    assert need(4, 32_000) == 0
    assert need(1, 32_000) > 0


# -- pictures -------------------------------------------------------------------------------------------


def test_a_picture_is_part_of_the_prompt() -> None:
    vision = VisionTower(layers=32, hidden=1280, heads=16, ffn=3420, patch=14, params=668_684_288)
    dims = replace(LLAMA_8B, arch="qwen2_5_vl", vision=vision)
    whole = _ACTOR.with_values({"model.dims": dims, "objective": Objective(kind="sft")})
    prompt = _ACTOR.with_values({"model.dims": dims})
    # 2,048 tokens hold four patches each, or as many as the pixels ask for; 512 hold 2,048 patches.
    assert images_of(Facts(prompt)).kept == pytest.approx(
        images_of(Facts(whole)).kept * 2048 / (1280 * 4), rel=0.01
    )


def test_a_budget_of_tokens_holds_a_picture_a_sample() -> None:
    vision = VisionTower(layers=32, hidden=1280, heads=16, ffn=3420, patch=14, params=668_684_288)
    dims = replace(LLAMA_8B, arch="qwen2_5_vl", vision=vision)
    rows = _ACTOR.with_values({"model.dims": dims, **_JOINED})
    budget = rows.with_values({"batch.max_tokens_per_gpu": _ALL})
    assert images_of(Facts(budget)).kept == images_of(Facts(rows)).kept


def test_each_gpu_writes_its_share_of_the_answers_and_at_least_one() -> None:
    """Keys and values of an answer are 2 * 32 layers * 8 heads * 128 * 2 bytes for each of its 2,048 tokens."""
    own = {"objective.rollout": Rollout(engine="hf", max_prompt_tokens=_PROMPT, max_completion_tokens=_ANSWER)}  # fmt: skip

    def written(**changes: Any) -> Point:
        values = {f"objective.rollout.{name}": value for name, value in changes.items()}
        plan = _ACTOR.with_values({**own, "parallel": Parallel(backend="ddp", world=8)})
        (point,) = rollout_points(Facts(plan.with_values(values)), Point(), _LIMITS)
        return point

    cache = 2 * 32 * 8 * 128 * 2 * (_PROMPT + _ANSWER)
    one = written(generation_batch=8)
    assert written(generation_batch=4) == one
    two, three = written(generation_batch=16), written(generation_batch=24)
    # What a layer computes for the prompts grows with them too.
    layer = one.activations - cache
    assert two.activations == pytest.approx(2 * (layer + cache))
    assert three.activations == pytest.approx(3 * (layer + cache))
    assert written() == written(generation_batch=8 * _ROWS)
    assert 0 < layer < cache
    few = written(generation_batch=8, max_completion_tokens=0)
    assert few.activations == pytest.approx(layer + cache * _PROMPT / (_PROMPT + _ANSWER))


# -- every number of a pass that scores or writes, by hand ------------------------------------------------

IDLE = Point(gradients=1e9, communication=2e9)
BETWEEN = {"offload.between_steps": "cpu"}


def scored(**changes: Any) -> tuple[Point, Facts]:
    values = {name.replace("__", "."): value for name, value in changes.items()}
    engine = {"objective.rollout.engine": None, "objective.rollout.scored_tokens": 4096}
    f = Facts(_ACTOR.with_values({**engine, **values}))
    (point,) = rollout_points(f, IDLE, _LIMITS)
    return point, f


@pytest.mark.parametrize(
    ("changes", "window"),
    [
        ({"parallel": Parallel(backend="ddp", world=8)}, 0),
        # A block of 218,112,000 elements thrice in 2 bytes.
        ({"parallel": Parallel(backend="fsdp2", world=8)}, 3 * 2 * 218_112_000),
        ({"parallel": Parallel(backend="fsdp1", world=8)}, 3 * 2 * 218_112_000),
        # What ZeRO-3 fetches: 1e9 parameters and 5e7 ahead.
        ({"parallel": Parallel(backend="zero", world=8, zero=Zero(stage=3))}, 2 * 1.05e9),
        ({"parallel": Parallel(backend="zero", world=8, zero=Zero(stage=2))}, 0),
    ],
)
def test_scoring_has_the_windows_of_a_forward_pass(changes: dict[str, Any], window: float) -> None:
    point, f = scored(**changes)
    assert (point.gradients, point.communication) == (1e9, 2e9 + window)
    head = scored_logits(f, 4096)
    assert point.logits == head.loss
    assert f.model is not None
    assert f.regime is not None
    profile = layer_profile(f.model, f.model.blocks[0], f.regime)
    layer = max(s.token * 4096 + s.fixed for s in profile.inference)
    assert point.activations == max(layer, head.norm)
    assert (point.states, point.engine, point.temporary) == (0, 0, 0)
    split, _ = scored(parallel=Parallel(backend="fsdp2", world=8, cp=2))
    assert split.logits == pytest.approx(scored()[0].logits / 2)


def test_weights_come_alone_to_be_scored_where_states_are_elsewhere() -> None:
    point, f = scored(precision__master="fp32", offload__idle="cpu")
    states = state_bytes_of(f)
    assert point.states == -(states.master + states.optimizer)
    alone, f = scored(offload__between_steps="cpu")
    assert (alone.gradients, alone.communication) == (0, 3 * 2 * 218_112_000)
    assert alone.states == 0
    both, f = scored(offload__between_steps="cpu", offload__idle="cpu", precision__master="fp32")
    # The states that come for a step alone are away already.
    assert both.states == -state_bytes_of(f).master


def test_a_micro_batch_of_answers_is_scored_where_no_tokens_are_given() -> None:
    rows, f = scored(
        objective__rollout__scored_tokens=None, objective__rollout__rollout_micro_batch=8
    )
    assert rows.logits == scored_logits(f, 8 * 2048).loss
    budget = {
        "objective.rollout.engine": None, "objective.rollout.rollout_micro_batch": 8,
        "batch.max_tokens_per_gpu": 4096,
    }  # fmt: skip
    assert rollout_points(Facts(_ACTOR.with_values(budget)), IDLE, _LIMITS) == []
    neither = Facts(_ACTOR.with_values({"objective.rollout.engine": None}))
    assert rollout_points(neither, IDLE, _LIMITS) == []


def test_an_engine_that_wakes_stands_beside_what_stays() -> None:
    (awake,) = rollout_points(Facts(_ACTOR), IDLE, _LIMITS)
    assert awake == IDLE._replace(engine=0.5 * _CARD)
    for other in ({"objective.rollout.sleep": False}, {"offload.idle": "cpu"}):
        assert rollout_points(Facts(_ACTOR.with_values(other)), IDLE, _LIMITS) == []
    server = Facts(_ACTOR.with_values({"objective.rollout.engine": "vllm_server"}))
    assert rollout_points(server, IDLE, _LIMITS) == []


_SHARDED = {
    "parallel.backend": "zero",
    "parallel.zero.stage": 3,
    "objective.rollout.sync_batches": 1,
}
_GATHERED = 2.0 * 8_030_261_248


@pytest.mark.parametrize(
    ("changes", "whole", "awake"),
    [
        ({}, _GATHERED, _CARD / 2),
        ({"objective.rollout.sync_batches": 4}, _GATHERED / 4, _CARD / 2),
        ({"objective.rollout.wakes_in_parts": True}, _GATHERED, _GATHERED),
        ({"objective.rollout.sleep": False}, _GATHERED, 0.0),
        (
            {"objective.rollout.engine": "vllm_server", "objective.rollout.sleep": None},
            _GATHERED,
            0.0,
        ),
    ],
)
def test_weights_lie_whole_beside_an_engine_that_is_given_them(
    changes: dict[str, Any], whole: float, awake: float
) -> None:
    """An engine that does not sleep has its pool in every phase."""
    f = Facts(_ACTOR.with_values({**_SHARDED, **changes}))
    idle = Point(1.0, 2.0, 3.0, 4.0, 5.0)
    assert idle._replace(communication=4.0 + whole, engine=awake) in rollout_points(
        f, idle, _LIMITS
    )


@pytest.mark.parametrize(
    "changes", [{"objective.rollout.sync_batches": None}, {"parallel.zero.stage": 2}]
)
def test_weights_go_to_an_engine_tensor_by_tensor_else(changes: dict[str, Any]) -> None:
    f = Facts(_ACTOR.with_values({**_SHARDED, **changes}))
    idle = Point(1.0, 2.0, 3.0, 4.0, 5.0)
    assert all(point.communication <= 4.0 for point in rollout_points(f, idle, _LIMITS))


@pytest.mark.parametrize(
    ("changes", "pool"),
    [
        ({}, 0.5 * _CARD),
        # vLLM's own share where nobody says: three tenths, as verl and TRL have it.
        ({"gpu_mem_util": None}, 0.3 * _CARD),
        ({"engine": "hf"}, 0),
        ({"engine": None}, 0),
        # Its weights are the trainer's.
        ({"shares_weights": True}, 0.5 * _CARD - 2 * 8_030_261_248),
        ({"shares_weights": True, "gpu_mem_util": 0.1}, 0),
        ({"engine": "sglang", "gpu_mem_util": 0.25}, 0.25 * (_CARD - 2**30 - 2 * 8_030_261_248 / 8)),
    ],
)  # fmt: skip
def test_an_engines_pool(changes: dict[str, Any], pool: float) -> None:
    values = {f"objective.rollout.{name}": value for name, value in changes.items()}
    f = Facts(_ACTOR.with_values(values))
    assert engine_pool(f, _LIMITS) == pytest.approx(pool)
    assert engine_pool(f, GpuLimits()) == 0


def test_a_pool_is_never_less_than_nothing() -> None:
    tiny = GpuLimits(usable=2**30, context=2**30)
    for changes in ({"engine": "sglang"}, {"share_of": "free", "sleep": False}):
        values = {f"objective.rollout.{name}": value for name, value in changes.items()}
        assert engine_pool(Facts(_ACTOR.with_values(values)), tiny) == 0
    own = Facts(_ACTOR.with_values({"objective.rollout.share_of": "process"}))
    assert engine_pool(own, tiny) == 2 * 8_030_261_248


def written(**changes: Any) -> tuple[Point, Facts]:
    rollout = Rollout(engine="hf", max_prompt_tokens=_PROMPT, max_completion_tokens=_ANSWER)
    f = Facts(_ACTOR.with_values({"objective.rollout": rollout, **changes}))
    (point,) = rollout_points(f, IDLE, _LIMITS)
    return point, f


CACHE = 2 * 32 * 8 * 128 * 2 * _ALL


@pytest.mark.parametrize(
    ("changes", "window", "parts"),
    [
        ({"parallel": Parallel(backend="ddp", world=8)}, 0, 1),
        ({"parallel": Parallel(backend="zero", world=8, zero=Zero(stage=3))}, 2 * 1.05e9, 1),
        (
            {"parallel": Parallel(backend="zero", world=8, zero=Zero(stage=3)),
             "objective.rollout.gathers": True}, 2 * 8_030_261_248, 1,
        ),
        # A group of two ranks has the prompts of both, and each a half of every layer.
        (
            {"parallel": Parallel(backend="zero", world=8, zero=Zero(stage=3)),
             "objective.rollout.gathers": True, "objective.rollout.tp": 2}, 8_030_261_248, 2,
        ),
        (
            {"parallel": Parallel(backend="zero", world=8, zero=Zero(stage=2)),
             "objective.rollout.gathers": True}, 0, 1,
        ),
    ],
)  # fmt: skip
def test_writing_has_keys_values_and_whole_weights(
    changes: dict[str, Any], window: float, parts: int
) -> None:
    point, f = written(**changes)
    assert (point.gradients, point.communication) == (1e9, 2e9 + window)
    prompts = parts * _ROWS * _PROMPT
    assert f.model is not None
    assert f.regime is not None
    profile = layer_profile(f.model, f.model.blocks[0], f.regime)
    layer = max(s.token * prompts + s.fixed for s in profile.inference)
    assert point.activations == pytest.approx(layer + CACHE)
    # The last token's logits alone, which this loss leaves in 16 bit.
    assert point.logits == 2 * 128_256 * parts * _ROWS


@pytest.mark.parametrize(("head", "width"), [(16, 32), (32, 32), (33, 64), (64, 64), (80, 128), (128, 128), (256, 256)])  # fmt: skip
def test_deepspeeds_kernels_pad_heads(head: int, width: int) -> None:
    rollout = Rollout(engine="deepspeed", max_prompt_tokens=100, max_completion_tokens=28)
    dims = replace(LLAMA_8B, head_dim=head)
    f = Facts(_ACTOR.with_values({"model.dims": dims, "objective.rollout": rollout}))
    each = 10 * 32 * width + 32 * 128 + 2 * 32 * 32 * width
    assert engine_pool(f, _LIMITS) == 2 * _ROWS * 128 * each
    (point,) = rollout_points(f, IDLE, _LIMITS)
    assert (point.activations, point.engine) == (0, 0)
    sleeping = Facts(f.plan.with_values({"objective.rollout.sleep": True}))
    (awake,) = rollout_points(sleeping, IDLE, _LIMITS)
    assert awake.engine == 2 * _ROWS * 128 * each
    whole = Facts(f.plan.with_values({"objective.rollout": Rollout(engine="deepspeed")}))
    each = 10 * 32 * width + 32 * 2048 + 2 * 32 * 32 * width
    assert engine_pool(whole, _LIMITS) == 2 * _ROWS * 2048 * each


@pytest.mark.parametrize(
    ("changes", "weights"),
    [
        ({}, 16e9),
        ({"objective.rollout.tp": 4}, 4e9),
        ({"quant.method": "none"}, 16e9),
        ({"quant.method": "bnb4"}, 4e9),
        ({"quant.method": "bnb8", "quant.bits": 8.0}, 8e9),
        ({"objective.rollout.engine": "sglang"}, 16e9),
        ({"objective.rollout.engine": "hf"}, None),
        ({"objective.rollout.share_of": "free"}, None),
        ({"objective.rollout.shares_weights": True}, None),
        ({"model.dims": LLAMA_8B}, None),
        ({"model.dims": None}, None),
    ],
)
def test_an_engine_holds_at_least_its_copy_of_a_counted_model(
    changes: dict[str, Any], weights: float | None
) -> None:
    sized = {"model.dims": replace(LLAMA_8B, params_total=8_000_000_000)}
    assert least_engine_weights(_ACTOR.with_values({**sized, **changes})) == weights
