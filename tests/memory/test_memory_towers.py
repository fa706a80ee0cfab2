"""Vision towers: which are trained beside adapters, and which no checkpointing reaches."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.plans import plan_of

from oomlint.memory.facts import Facts
from oomlint.memory.images import images_of
from oomlint.memory.layers import layer_profile
from oomlint.memory.states import frozen_weight_bytes
from oomlint.memory.vision import tower_of
from oomlint.models import lookup
from oomlint.plan.model import ModelDims, VisionTower

BASE: dict[str, Any] = {
    "precision.param": "bf16",
    "precision.compute": "bf16",
    "parallel.backend": "none",
    "parallel.world": 1,
    "batch.micro": 1,
    "seq.max_len": 2048,
    "checkpointing.mode": "full",
}


def facts(model: str, **changes: Any) -> Facts:
    found = lookup(model)
    assert found is not None
    return Facts(plan_of(BASE, model__dims=found.dims, **changes))


def test_a_tower_may_be_trained_beside_adapters() -> None:
    lora = {"trainable__method": "lora", "trainable__targets": ("q_proj",), "trainable__r": 8}
    model = "openbmb/MiniCPM-Llama3-V-2_5"
    alone = facts(model, **lora)
    beside = facts(model, trainable__modules_to_save=("vpm",), **lora)
    assert beside.model is not None
    assert beside.trained.numel - alone.trained.numel == beside.model.vision_numel
    assert images_of(beside).grads > images_of(alone).grads == 0


def test_bitsandbytes_packs_a_tower_unless_told_to_skip_it() -> None:
    """As large as Unsloth's -bnb-4bit copy is, 5.56 GiB (a download that unslothai/notebooks bdda2efc printed)."""
    model = "Qwen/Qwen2.5-VL-7B-Instruct"
    packed: dict[str, Any] = {
        "trainable__method": "qlora", "quant__method": "bnb4", "quant__double": True,
    }  # fmt: skip
    taken = frozen_weight_bytes(facts(model, **packed))
    assert taken == pytest.approx(5.56 * 2**30, rel=0.01)
    skips = {"quant__skip_modules": ("lm_head", "model.visual")}
    wide = frozen_weight_bytes(facts(model, **packed, **skips))
    assert wide > taken + 0.8 * 2**30
    assert (
        frozen_weight_bytes(facts(model, **packed, quant__skip_modules=("vision_tower",))) == taken
    )
    is_checkpoint = {**skips, "model__native_quant": "bnb4"}
    assert frozen_weight_bytes(facts(model, **packed, **is_checkpoint)) == taken
    dynamic = {"model__native_quant": "bnb4_dynamic"}
    assert frozen_weight_bytes(facts(model, **packed, **dynamic)) == wide


def test_checkpointing_asks_gradients_of_a_frozen_tower() -> None:
    """transformers 5.0 modeling_utils.py gradient_checkpointing_enable, of models without adapters too."""
    frozen: dict[str, Any] = {"trainable__method": "full", "model__vision__freeze_tower": True}
    model = "meta-llama/Llama-3.2-11B-Vision"
    alone = images_of(facts(model, **frozen))
    asked = images_of(facts(model, **frozen, checkpointing__input_grads=True))
    assert asked.kept > 10 * alone.kept
    assert images_of(
        facts(model, **frozen, checkpointing__input_grads=True, checkpointing__mode="none")
    ) == images_of(facts(model, **frozen, checkpointing__mode="none"))


def test_checkpointing_does_not_reach_timm() -> None:
    newer = images_of(facts("openbmb/MiniCPM-Llama3-V-2_5", trainable__method="full"))
    older = images_of(facts("openbmb/MiniCPM-V-2", trainable__method="full"))
    assert older.kept > 4 * newer.kept


@pytest.mark.parametrize(
    ("arch", "pixels", "patch", "classes", "tokens", "tiles"),
    [
        ("llava", 336, 14, 1, 576, 1),
        ("llava_next", 336, 14, 1, 576, 5),
        ("gemma3", 896, 14, 0, 256, 1),
        ("paligemma", 224, 14, 0, 256, 1),
        ("idefics3", 384, 14, 0, 81, 17),
        ("smolvlm", 384, 14, 0, 81, 17),
        ("smolvlm", 512, 16, 0, 64, 17),
        ("internvl", 448, 14, 1, 256, 13),
        ("minicpmv", 448, 14, 0, 64, 10),
        ("minicpmv2", 448, 14, 0, 64, 10),
        ("mllama", 560, 14, 1, 1601, 4),
    ],
)
def test_an_image_is_cut_into_tiles_of_patches(
    arch: str, pixels: int, patch: int, classes: int, tokens: int, tiles: int
) -> None:
    """Pixels of a tile and tokens that it becomes are those of the models' cards and processors."""
    tower = tower_of(_dims(arch, patch))
    assert tower is not None
    side, cut = pixels // patch, tower.cut
    assert cut.tile == side * side + classes
    assert cut.most_tiles(None, None) == tiles
    assert cut.tile_tokens == tokens
    # A sample has no more tiles than its tokens hold, and one at least; Mllama's fill no tokens.
    assert tower.patches(0, None) == cut.tile * (tiles if arch == "mllama" else 1)
    assert tower.patches(tokens * tiles, None) == cut.tile * tiles
    assert tower.patches(tokens * 100, None) == cut.tile * tiles
    if tiles > 1 and arch != "mllama":
        assert tower.patches(tokens * 3 - 1, None) == cut.tile * 2


@pytest.mark.parametrize("arch", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "glm4v", "mistral3"])
def test_an_image_of_any_size_has_as_many_patches_as_pixels_allow(arch: str) -> None:
    tower = tower_of(_dims(arch, 14))
    assert tower is not None
    assert tower.patches(10_000, 196 * 500) == 500
    # As many pixels as Qwen2-VL's card proposes for a limit.
    assert tower.patches(10_000, None) == 1280 * 4
    # A processor's own limit holds for a picture that may be larger.
    assert tower.patches(10**6, 10**9) == tower.cut.most / 196
    # Four patches become one token, of which the sample has no more.
    assert tower.patches(100, None) == 400


def test_a_tower_has_the_parameters_of_its_blocks() -> None:
    """Of 24 blocks: four projections of 1,024 x 1,024 and two of 1,024 x 4,096 with biases, two norms of two vectors."""
    block = 4 * (1024 * 1024 + 1024) + 2 * 1024 * 4096 + 4096 + 1024 + 2 * 2 * 1024
    tower = tower_of(_dims("llava", 14))
    assert tower is not None
    assert tower.skeleton.blocks[0].numel == block
    assert tower.skeleton.other_numel == 500_000_000 - 24 * block
    gated = tower_of(_dims("qwen2_5_vl", 14))
    assert gated is not None
    # One more projection, and norms without a bias.
    assert gated.skeleton.blocks[0].numel == block + 1024 * 4096 + 4096 - 2 * 1024
    scaled = tower_of(_dims("internvl", 14))
    assert scaled is not None
    assert scaled.skeleton.blocks[0].numel == block + 2 * 1024


def test_no_tower_is_smaller_than_its_blocks() -> None:
    dims = _dims("llava", 14)
    vision = dims.vision
    assert vision is not None
    assert tower_of(replace(dims, vision=replace(vision, params=10**8))) is None
    assert tower_of(replace(dims, vision=replace(vision, heads=None))) is None
    assert tower_of(replace(dims, arch="llama")) is None


def _dims(arch: str, patch: int) -> ModelDims:
    return ModelDims(
        arch=arch,
        hidden=4096,
        vision=VisionTower(
            layers=24, hidden=1024, heads=16, ffn=4096, patch=patch, params=500_000_000
        ),
    )


# -- what images hold, by hand -------------------------------------------------------------------------

# A tower of two blocks, 64 wide, beside a text model of the same width.
TEXT: dict[str, Any] = {
    "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 128, "vocab": 1000,
    "tie_embeddings": False, "act": "swiglu", "norm": "rms",
    "vision": VisionTower(layers=2, hidden=64, heads=4, ffn=128, patch=14, params=100_000),
}  # fmt: skip
AREA = 3 * 14 * 14


def seeing(arch: str, **changes: Any) -> Facts:
    full = {"trainable__method": "full", "precision__grad": "bf16", **changes}
    return Facts(plan_of(BASE, model__dims=ModelDims(arch=arch, **TEXT), **full))


@pytest.mark.parametrize(
    ("arch", "patches", "merge", "pixels"),
    # LLaVA hands on 577 patches in 2 bytes; Qwen's processor two fp32 frames of 5,120, four of them a token.
    [("llava", 577, 1, 2), ("qwen2_vl", 5120, 4, 8)],
)
def test_a_frozen_tower_keeps_pixels_and_features(
    arch: str, patches: int, merge: int, pixels: int
) -> None:
    f = seeing(arch, trainable__frozen=("vision",))
    assert f.tower is not None
    assert f.tower_regime is not None
    found = images_of(f)
    given, features = AREA * patches * pixels, 64 * 2 * patches / merge
    assert found.kept == given + features
    assert (found.backward, found.grads) == (0, 0)
    profile = layer_profile(f.tower.skeleton, f.tower.skeleton.blocks[0], f.tower_regime)
    inner = max(s.token * patches + s.score * patches**2 + s.fixed for s in profile.inference)
    assert found.forward == given + 64 * 2 * patches + inner
    two = images_of(seeing(arch, trainable__frozen=("vision",), batch__micro=2))
    assert two.kept == 2 * found.kept


@pytest.mark.parametrize("mode", ["full", "none"])
@pytest.mark.parametrize(
    ("arch", "patches", "merge", "pixels", "inner", "frames"),
    [("llava", 577, 1, 2, 64, 1), ("qwen2_vl", 5120, 4, 8, 64, 2)],
)
def test_a_trained_tower_keeps_what_its_backward_needs(
    arch: str, patches: int, merge: int, pixels: int, inner: int, frames: int, mode: str
) -> None:
    f = seeing(arch, checkpointing__mode=mode)
    assert f.tower is not None
    assert f.tower_regime is not None
    profile = layer_profile(f.tower.skeleton, f.tower.skeleton.blocks[0], f.tower_regime)
    row = 64 * 2 * patches
    each = row if mode == "full" else profile.saved.token * patches + profile.saved.fixed
    given, features = AREA * patches * pixels, 64 * 2 * patches / merge
    # The norm before the projector, and its hidden layer three times in 2 bytes.
    projected = (8 * 64 + 3 * 2 * inner) * patches
    cut = AREA * patches * 2 * frames
    found = images_of(f)
    assert found.kept == pytest.approx(given + 2 * each + projected + features + cut)
    widest = max(s.token * patches + s.score * patches**2 + s.fixed for s in profile.inference)
    assert found.forward == pytest.approx(given + 2 * each + max(widest, row))
    every = [
        (2 * each - above * each - (0 if mode == "full" else each)
         + m.token * patches + m.score * patches**2 + m.fixed, m.grads + above * profile.trained)
        for above in (0, 1)
        for m in profile.backward
    ]  # fmt: skip
    alive, grads = max(every, key=lambda instant: instant[0] + 2 * instant[1])
    assert (found.backward, found.grads) == (pytest.approx(given + alive), grads)


def test_adapters_with_checkpointing_ask_the_patches_for_gradients() -> None:
    lora: dict[str, Any] = {
        "trainable__method": "lora", "trainable__r": 8, "trainable__targets": ("q_proj",),
        "trainable__frozen": ("vision",),
    }  # fmt: skip
    assert seeing("llava", **lora).tower_graph
    assert not seeing("llava", **lora, checkpointing__mode="none").tower_graph
    assert not seeing("llava", trainable__frozen=("vision",)).tower_graph
    assert not seeing("llava", model__vision__freeze_tower=True).tower_graph
    roles = {**lora, "trainable__frozen": (), "checkpointing__mode": "none"}
    assert seeing("llava", **roles).tower_graph
    assert seeing("llava", **roles).trained.tower_roles == {"q"}
    assert not seeing("llava", trainable__method="freeze").tower_graph
    # No pixels are cut for a weight that is not trained.
    cut = images_of(seeing("llava")).kept - images_of(seeing("llava", **lora)).kept
    assert cut == AREA * 577 * 2


def test_a_tower_computes_with_kernels_of_its_own() -> None:
    def kernel(**changes: Any) -> str:
        regime = seeing("llava", **changes).tower_regime
        assert regime is not None
        assert (regime.dense_mask, regime.masks_window, regime.sequence_parallel) == (False,) * 3
        return regime.kernel

    assert kernel() == "flash"
    assert kernel(seq__pad="longest", batch__micro=2) == "flash"
    assert kernel(model__attn_impl="eager") == "eager"
    assert kernel(precision__param="fp32", precision__compute="fp32") == "efficient"


def test_tiles_are_attended_to_one_by_one() -> None:
    """LLaVA-NeXT: five tiles of 577 patches have five times the scores of one, not 25 times."""
    dims = ModelDims(arch="llava_next", **TEXT)
    f = Facts(
        plan_of(
            {**BASE, "seq.max_len": 5 * 576}, model__dims=dims, trainable__method="full",
            trainable__frozen=("vision",), model__attn_impl="eager",
        )
    )  # fmt: skip
    one = seeing("llava", trainable__frozen=("vision",), model__attn_impl="eager")
    assert images_of(f).forward == pytest.approx(5 * images_of(one).forward, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "changes", "length"),
    [
        # 1,003,520 pixels are 1,280 tokens of 28 x 28; half of four sides of 36 tokens is rounded up, and one stands at
        # each end.
        ("Qwen/Qwen2-VL-7B-Instruct", {}, 2048),
        ("Qwen/Qwen2-VL-7B-Instruct", {"model__vision__beside_limit": True}, 2048 + 1280 + 45 + 2),
        # As many as its processor lets through.
        (
            "Qwen/Qwen2-VL-7B-Instruct",
            {"model__vision__beside_limit": True, "model__vision__max_pixels": 12_845_056},
            2048 + 16_384 + 160 + 2,
        ),
        # Of data that is known the longest sample has its picture.
        (
            "Qwen/Qwen2-VL-7B-Instruct",
            {"model__vision__beside_limit": True, "seq__longest": 568},
            568,
        ),
        # Twelve tiles of 448 x 448 and the picture as a whole, 256 tokens each.
        ("OpenGVLab/InternVL3-8B", {"model__vision__beside_limit": True}, 2048 + 13 * 256),
        # 1,601 patches, which the text model looks across at.
        (
            "meta-llama/Llama-3.2-11B-Vision-Instruct",
            {"model__vision__beside_limit": True},
            2048,
        ),
        # Where nothing limits samples, one has room for its picture.
        ("Qwen/Qwen2-VL-7B-Instruct", {"seq__max_len": None}, 2048),
        (
            "Qwen/Qwen2-VL-7B-Instruct",
            {"seq__max_len": None, "model__vision__max_pixels": 12_845_056},
            16_384 + 160 + 2,
        ),
        ("Qwen/Qwen2.5-7B-Instruct", {"model__vision__beside_limit": True}, 2048),
    ],
)
def test_a_picture_comes_on_top_of_a_limit_that_does_not_count_it(
    model: str, changes: dict[str, Any], length: int
) -> None:
    assert facts(model, **changes).samples.length == length
