"""States by hand: bytes per parameter, times parameters, over ranks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oomlint.memory import estimate, skeleton, state_bytes
from oomlint.models import all_ids, lookup
from oomlint.plan import Plan
from oomlint.plan.model import ModelDims

LLAMA_70B = ModelDims(
    arch="llama", layers=80, hidden=8192, heads=64, kv_heads=8, head_dim=128, ffn=28672,
    vocab=128256, tie_embeddings=False, act="swiglu", norm="rms",
)  # fmt: skip


def zero_plan(stage: int, world: int = 8) -> Plan:
    return Plan().with_values(
        {
            "model.dims": LLAMA_70B,
            "trainable.method": "full",
            "precision.param": "bf16",
            "precision.grad": "bf16",
            "precision.master": "fp32",
            "precision.optim_state": "fp32",
            "precision.compute": "bf16",
            "optimizer.kind": "adamw",
            "parallel.backend": "zero",
            "parallel.world": world,
            "parallel.zero.stage": stage,
        }
    )


def test_llama_70b_has_its_published_parameter_count() -> None:
    model = skeleton(LLAMA_70B)
    assert model is not None
    assert model.numel == 70_553_706_496


@pytest.mark.parametrize(
    ("stage", "per_parameter"),
    [(0, 16.0), (1, 2 + 2 + 12 / 8), (2, 2 + 14 / 8), (3, 16 / 8)],
)
def test_zero_divides_what_its_stage_shards(stage: int, per_parameter: float) -> None:
    states = state_bytes(zero_plan(stage))
    assert states is not None
    assert states.total == pytest.approx(per_parameter * 70_553_706_496)


def test_copies_of_whole_modules_are_as_wide_as_the_base() -> None:
    """Measured with PEFT 0.21.2 on eight layers of Qwen3-4B: 777,912,320 elements of embedding and head are copied
    in bf16, 14,680,064 of adapters of rank 32 are fp32, and gradients and AdamW's states are as wide as each."""
    dims = ModelDims(
        arch="qwen3", layers=8, hidden=2560, heads=32, kv_heads=8, head_dim=128, ffn=9728,
        vocab=151936, tie_embeddings=True, qk_norm=True, act="swiglu", norm="rms",
    )  # fmt: skip
    leaves = {
        "model.dims": dims,
        "trainable.method": "lora",
        "trainable.r": 32,
        "trainable.targets": "all_linear",
        "trainable.modules_to_save": ("embed_tokens", "lm_head"),
        "trainable.adapter_dtype": "fp32",
        "trainable.saved_dtype": "bf16",
        "precision.param": "bf16",
        "precision.grad": "fp32",
        "precision.optim_state": "fp32",
        "precision.compute": "bf16",
        "precision.autocast": True,
    }
    states = state_bytes(Plan().with_values(leaves))
    assert states is not None
    assert states.parameters == pytest.approx(4_007_355_392)
    assert states.gradients == pytest.approx(1_614_544_896)
    # Besides, each tensor has a counter of its own.
    assert states.optimizer == pytest.approx(3_229_090_248, abs=1024)
    alike = state_bytes(Plan().with_values({**leaves, "trainable.saved_dtype": None}))
    assert alike is not None
    assert alike.gradients == pytest.approx(4 * (777_912_320 + 14_680_064))


def test_a_70b_model_under_zero3_on_eight_cards_needs_131_gib_of_states_each() -> None:
    states = state_bytes(zero_plan(3))
    assert states is not None
    assert states.total / 2**30 == pytest.approx(131.4, abs=0.1)


@pytest.mark.slow
def test_every_model_of_the_catalogue_has_exactly_its_parameters() -> None:
    wrong = []
    for name in all_ids():
        facts = lookup(name)
        assert facts is not None
        model = skeleton(facts.dims)
        assert model is not None, name
        if facts.dims.params_total and model.numel != facts.dims.params_total:
            wrong.append((name, model.numel, facts.dims.params_total))
        assert estimate(Plan().with_values({"model.dims": facts.dims})).gpu.peak_bytes
    # A tied copy that only the checkpoint stores, and buffers counted as parameters; T5's tables of
    # relative positions, which show in its small models.
    assert all(abs(ours / theirs - 1) < 5e-5 for _, ours, theirs in wrong), wrong[:5]


# Architectures that have parts which the dimensions do not tell, so that a count of their own is needed: encoders,
# audio towers, routers' corrections, indexers, Mamba's first scan, single biases, gates and rows.
NOT_TOLD = frozenset(
    "afmoe apertus bart bert blenderbot btlm cohere dbrx deberta-v2 deepseek_v32 deepseek_v4 distilbert ernie4_5_moe ernie4_5_vl_moe "
    "falcon_h1 gemma4 gemma4_unified glm_moe_dsa gpt_neo granitemoehybrid jamba keye_vl kimi_linear lfm2 lfm2_vl mamba "
    "m2m_100 mbart mimo_v2_flash minicpmv4_6 mllama modernbert mpnet mt5 nemotron_h ovis2_5 paddleocr_vl paligemma phi4_multimodal phimoe "
    "polylm qwen2_5_omni_thinker qwen2_audio qwen3_omni_moe_thinker qwen_audio qwen_vl roberta stablelm t5 video_llava "
    "voxtral xlm-roberta".split()
)
# Without a head, with projections around a narrow embedding, with a norm less than the rest of their kind, around
# another text model.
OTHERWISE = ("reward", "embedding", "opt-350m", "falcon-11b", "gpt-oss")


def test_the_dimensions_alone_tell_the_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2,000 models, whose counts are those of the real classes on the meta device
    (benchmarks/catalogue/verify_models.py); blocks are put together without them."""
    monkeypatch.setattr("oomlint.models.count.count_parameters", lambda dims: None)
    monkeypatch.setattr("oomlint.memory.build._SEEN", {})
    names = ("total", "active", "embed", "lm_head", "linear", "nonlinear", "layer_max")
    uncounted = dict.fromkeys(f"params_{name}" for name in names)
    wrong, compared = [], 0
    for name in all_ids():
        facts = lookup(name)
        assert facts is not None
        dims = facts.dims
        odd = any(word in name.lower() for word in OTHERWISE)
        if dims.params_total is None or dims.arch in NOT_TOLD or odd:
            continue
        compared += 1
        model = skeleton(replace(dims, **uncounted))
        assert model is not None, name
        found = {
            "total": (model.numel, dims.params_total),
            "embed": (model.embed_numel, dims.params_embed),
            "layer": (model.largest_block, dims.params_layer_max),
        }
        wrong += [
            (name, what, *pair) for what, pair in found.items() if pair[1] not in (None, pair[0])
        ]
    assert not wrong
    assert compared > 2000


@pytest.mark.parametrize(
    ("backend", "tp"), [("megatron", 1), ("megatron", 2), ("fsdp2", 1), ("fsdp2", 2)]
)
@pytest.mark.parametrize("ep", [1, 4, 8])
def test_expert_parallelism_keeps_one_copy_of_every_weight_in_the_world(
    backend: str, tp: int, ep: int
) -> None:
    moe = lookup("Qwen/Qwen3-30B-A3B")
    assert moe is not None
    plan = Plan().with_values(
        {
            "model.dims": moe.dims,
            "trainable.method": "full",
            "precision.param": "fp32" if backend == "fsdp2" else "bf16",
            "precision.grad": "fp32",
            "precision.master": "none" if backend == "fsdp2" else "fp32",
            "precision.optim_state": "fp32",
            "precision.compute": "bf16",
            "optimizer.kind": "adamw",
            "parallel.backend": backend,
            "parallel.world": 16,
            "parallel.tp": tp,
            "parallel.ep": ep,
            "parallel.etp": None if ep == 1 else 1,
            "parallel.megatron.dist_optimizer": True,
        }
    )
    states = state_bytes(plan)
    model = skeleton(moe.dims)
    assert states is not None
    assert model is not None
    # Norms and routers are on every tensor-parallel rank, whence the tolerance.
    assert 16 * states.optimizer == pytest.approx(8 * model.numel, rel=1e-3)


@pytest.mark.parametrize(("dtype", "measured"), [("bf16", 0.1589), ("fp32", 2.4195)])
def test_galore_keeps_a_projector_and_in_fp32_all_its_vectors(dtype: str, measured: float) -> None:
    """Two matrices, 11008 x 4096 and 4096 x 4096, at rank 128 under galore_torch 1.0 on fake
    tensors; the plan's model has one and four of them a layer, and two of the larger one more."""
    dims = ModelDims(
        arch="llama", layers=1, hidden=4096, heads=32, kv_heads=32, head_dim=128, ffn=11008,
        vocab=32000, tie_embeddings=False, act="swiglu", norm="rms",
    )  # fmt: skip
    values = {
        "model.dims": dims, "trainable.method": "full", "optimizer.kind": "galore",
        "optimizer.rank": 128,
    }  # fmt: skip
    precision = {f"precision.{leaf}": dtype for leaf in ("param", "grad", "optim_state")}
    states = state_bytes(Plan().with_values(values | precision))
    assert states is not None
    width = 4 if dtype == "fp32" else 2
    rest = 2 * width * (2 * 32000 * 4096 + 3 * 4096)
    pair = 128 * (2 * 11008 + 2 * 4096) + 2 * 4096 * (4096 if dtype == "fp32" else 128)
    assert pair * width / (11008 * 4096 + 4096 * 4096) == pytest.approx(measured, abs=1e-4)
    large = 2 * 11008 * 128 + 4096 * (4096 if dtype == "fp32" else 128)
    small = pair - large
    assert states.optimizer - rest == (3 * large + 4 * small) * width
    # Of the 8-bit kind the moments have a byte an element and an fp32 number for 256, the projectors what they had.
    narrow = state_bytes(
        Plan().with_values(values | precision | {"optimizer.name": "galore_adamw_8bit"})
    )
    assert narrow is not None
    moments = 2 * 128 * (3 * 11008 + 4 * 4096) + rest / width
    projectors = states.optimizer - moments * width
    assert narrow.optimizer == pytest.approx(moments * (1 + 4 / 256) + projectors, rel=1e-6)


def test_came_keeps_its_first_moment_in_fp32_whatever_the_weights_are() -> None:
    plan = zero_plan(0, world=1).with_values(
        {"optimizer.kind": "came", "precision.optim_state": "bf16", "parallel.backend": "none"}
    )
    states = state_bytes(plan)
    assert states is not None
    # Measured on a small model in bf16: 4.04 bytes an element with rows and columns.
    assert 4.0 < states.optimizer / 70_553_706_496 < 4.01


def test_badam_has_gradients_of_one_block_at_a_time() -> None:
    whole = zero_plan(0).with_values({"parallel.backend": "none", "precision.master": "none"})
    states = state_bytes(whole.with_values({"optimizer.kind": "badam"}))
    model = skeleton(LLAMA_70B)
    assert states is not None
    assert model is not None
    assert states.gradients == 2 * model.block_numel / 80
    adam, badam = (
        estimate(whole.with_values({"optimizer.kind": kind})).gpu.components["gradients"]
        for kind in ("adamw", "badam")
    )
    assert badam is not None
    assert adam is not None
    assert badam < adam / 20


@pytest.mark.parametrize(("method", "shared"), [("bnb4", True), ("gptq", False), ("awq", False)])
@pytest.mark.parametrize("backend", ["fsdp1", "zero"])
def test_packed_weights_in_buffers_are_whole_on_every_rank(
    method: str, shared: bool, backend: str
) -> None:
    values = {
        "trainable.method": "lora",
        "trainable.r": 8,
        "quant.method": method,
        "parallel.backend": backend,
    }
    parameters = [
        states.parameters
        for world in (1, 2)
        if (states := state_bytes(zero_plan(3, world).with_values(values))) is not None
    ]
    packed = 68e9 / 2
    assert (parameters[0] - parameters[1] > packed / 2) is shared
    assert parameters[0] > packed
