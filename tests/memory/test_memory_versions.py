"""What earlier versions of torch and transformers kept alive."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from oomlint.memory import GpuLimits, estimate
from oomlint.plan import Plan
from oomlint.plan.model import ModelDims

VOCABULARY, TOKENS = 128256, 2048
BASE: dict[str, Any] = {
    "model.dims": ModelDims(
        arch="llama", layers=16, hidden=2048, heads=16, kv_heads=4, head_dim=128, ffn=8192,
        vocab=VOCABULARY, tie_embeddings=False, act="swiglu", norm="rms",
    ),
    "model.attn_impl": "flash2",
    "trainable.method": "full",
    "precision.param": "bf16",
    "precision.grad": "bf16",
    "precision.optim_state": "bf16",
    "precision.compute": "bf16",
    "optimizer.kind": "adamw",
    "optimizer.fused": True,
    "parallel.backend": "none",
    "batch.micro": 1,
    "batch.grad_accum": 1,
    "seq.max_len": TOKENS,
    "seq.packing": "multipack",
    "checkpointing.mode": "full",
    "eval.enabled": False,
}  # fmt: skip


def phase(name: str, **versions: str) -> int:
    found = estimate(Plan().with_values(BASE | {"versions": versions})).gpu.phases[name]
    assert found is not None
    return found


def test_gradients_stayed_as_zeros_before_torch_2() -> None:
    gradients = estimate(Plan().with_values(BASE)).gpu.components["parameters"]
    added = phase("forward", torch="1.13.1") - phase("forward", torch="2.0.0")
    assert added == pytest.approx(gradients, rel=1e-6)


def test_models_made_their_logits_wide_before_transformers_4_46() -> None:
    # The fp32 logits of the output live beside their shifted copy: two bytes an element more.
    more = phase("forward", transformers="4.45.2") - phase("forward", transformers="4.46.0")
    assert more == 2 * VOCABULARY * TOKENS


def test_the_loss_cut_a_shifted_copy_of_wide_logits_before_transformers_4_49() -> None:
    """Not of a single sample, of which the shifted part is a view."""

    def forward(release: str, rows: int) -> int:
        values = {"batch.micro": rows, "versions": {"transformers": release}}
        found = estimate(Plan().with_values(BASE | values)).gpu.phases["forward"]
        assert found is not None
        return found

    assert forward("4.48.3", 2) - forward("4.49.0", 2) == 2 * 4 * VOCABULARY * TOKENS
    assert forward("4.48.3", 1) == forward("4.49.0", 1)


def test_weights_on_their_way_to_4_bits_piled_up_before_transformers_5_4() -> None:
    def reserved(version: str, **changes: str) -> int:
        values = {
            "trainable.method": "qlora", "quant.method": "bnb4", "batch.micro": 1,
            "seq.max_len": 16, "versions": {"transformers": version}, **changes,
        }  # fmt: skip
        found = estimate(Plan().with_values(BASE | values)).gpu.reserved_bytes
        assert found is not None
        return found

    whole = estimate(Plan().with_values(BASE)).gpu.components["parameters"]
    assert whole is not None
    assert reserved("5.3.0") == pytest.approx(0.9 * whole, rel=1e-6)
    assert reserved("5.4.0") < 0.85 * whole
    assert reserved("4.57.1") == reserved("5.4.0")
    packed = reserved("5.3.0", **{"model.native_quant": "bnb4"})
    assert packed == reserved("5.4.0", **{"model.native_quant": "bnb4"})


def test_saving_8_bit_weights_copied_them_twice_in_bitsandbytes_0_38() -> None:
    def saving(version: str) -> int:
        values = {
            "trainable.method": "lora", "quant.method": "bnb8", "precision.param": "int8",
            "save.strategy": "steps", "versions": {"bitsandbytes": version},
        }  # fmt: skip
        found = estimate(Plan().with_values(BASE | values)).gpu.phases["save"]
        assert found is not None
        return found

    # q, k, v and o of two heads' sizes, and three projections to and from 8192.
    linear = 16 * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192)
    assert saving("0.38.1") - saving("0.37.2") == pytest.approx(2 * linear, rel=0.01)
    assert saving("0.39.0") == saving("0.37.2")


def test_adam_made_two_copies_before_torch_2_1_and_looped_before_2() -> None:
    stepped = {"optimizer.fused": False, "optimizer.foreach": True}

    def temporary(release: str) -> float:
        plan = Plan().with_values(BASE | stepped | {"versions": {"torch": release}})
        return estimate(plan).gpu.parts["optimizer_step"]["temporary"]

    weights = estimate(Plan().with_values(BASE)).gpu.components["parameters"]
    workspace = temporary("2.1.0") - weights
    assert workspace == pytest.approx(0, abs=64 << 20)
    assert temporary("2.0.1") - temporary("2.1.0") == pytest.approx(weights, rel=1e-6)
    # One tensor after the other: two copies of the largest, the embedding.
    largest = 2 * VOCABULARY * 2048
    assert temporary("1.13.1") - workspace == pytest.approx(2 * largest, rel=1e-6)


def test_classes_of_their_own_took_the_loss_of_narrow_logits_before_transformers_4_48() -> None:
    """BLOOM's CrossEntropyLoss got lm_logits as they came: two bytes an element less are kept, and no fp32 copy is made."""

    def forward(release: str, arch: str) -> int:
        dims = ModelDims(
            arch=arch, layers=16, hidden=2048, heads=16, kv_heads=16, head_dim=128, ffn=8192,
            vocab=VOCABULARY, tie_embeddings=True, norm="ln",
        )  # fmt: skip
        values = {"model.dims": dims, "versions": {"transformers": release}}
        found = estimate(Plan().with_values(BASE | values)).gpu.phases["forward"]
        assert found is not None
        return found

    assert forward("4.48.0", "bloom") - forward("4.47.1", "bloom") == 6 * VOCABULARY * TOKENS
    assert forward("4.49.0", "gpt_neox") - forward("4.48.3", "gpt_neox") == 6 * VOCABULARY * TOKENS
    # GPT-J made them fp32 in every release.
    assert forward("4.48.0", "gptj") <= forward("4.47.1", "gptj")


@pytest.mark.parametrize("arch", ["qwen", "baichuan"])
def test_some_models_of_the_hub_take_it_so_whatever_the_release(arch: str) -> None:
    """modeling_qwen.py and modeling_baichuan.py; autocast makes what cross entropy gets fp32 all the same."""

    def forward(named: str, *, autocast: bool) -> int:
        dims = replace(BASE["model.dims"], arch=named, kv_heads=16)
        values = {"model.dims": dims, "precision.autocast": autocast}
        found = estimate(Plan().with_values(BASE | values)).gpu.phases["forward"]
        assert found is not None
        return found

    spared = forward("llama", autocast=False) - forward(arch, autocast=False)
    assert spared == pytest.approx(6 * VOCABULARY * TOKENS, rel=0.05)
    assert forward(arch, autocast=True) == pytest.approx(forward("llama", autocast=True), rel=0.05)


def test_ddp_left_its_broadcasts_in_the_cache_before_torch_2_8() -> None:
    """The whole weights once more, at most 15 GiB; nothing where the card is too small for them."""

    def reserved(torch: str, usable: int | None = None, **changes: Any) -> int:
        values = BASE | {
            "parallel.backend": "ddp", "parallel.world": 2, "trainable.method": "lora", "seq.max_len": 64,
            "versions": {"torch": torch},
        }  # fmt: skip
        values |= {field.replace("__", "."): value for field, value in changes.items()}
        found = estimate(Plan().with_values(values), GpuLimits(usable=usable)).gpu.reserved_bytes
        assert found is not None
        return found

    plan = Plan().with_values(BASE | {"trainable.method": "lora"})
    weights = estimate(plan).gpu.components["parameters"]
    assert reserved("2.7.1") == pytest.approx(2 * weights + (64 << 20), rel=1e-3)
    assert reserved("2.8.0") < 2 * weights
    assert reserved("2.7.1", parallel__backend="none") < 2 * weights
    assert reserved("2.7.1", usable=round(1.9 * weights)) < 1.9 * weights
    assert reserved("2.7.1", env__empty_cache_steps=1) < 2 * weights
