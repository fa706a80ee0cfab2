"""Adapters on experts that are stacked in one parameter, by their own names and by those that PEFT translates."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.memory import skeleton
from oomlint.memory.facts import Facts
from oomlint.memory.layers import layer_profile
from oomlint.memory.stacked_adapters import with_named_layers
from oomlint.plan import Plan
from oomlint.plan.model import Model, ModelDims, Moe, Trainable

_WIDE = frozenset({"gpt_oss", "minimax_m2", "mixtral", "phimoe"})
_SHARED = {"glm4_moe": 32, "qwen2_moe": 48}
NEWEST: dict[str, str] = {}
BEFORE_TRANSLATION = {"transformers": "5.23.0", "peft": "0.18.1"}
BEFORE_STACKS = {"transformers": "4.57.6", "peft": "0.21.2"}
SEVEN = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
BOTH = ("experts.gate_up_proj", "experts.down_proj")


def dims_of(arch: str, layers: int = 2) -> ModelDims:
    """Two layers as wide as those that were counted, five experts each; GLM's first is dense."""
    return ModelDims(
        arch=arch, layers=layers, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=96, vocab=128,
        tie_embeddings=False, act="swiglu", norm="rms",
        moe=Moe(
            experts=5, topk=2, moe_ffn=96 if arch in _WIDE else 32, shared_ffn=_SHARED.get(arch),
            first_dense=1 if arch == "glm4_moe" else None,
        ),
    )  # fmt: skip


def facts_of(arch: str, versions: dict[str, str], *, layers: int = 2, **trainable: object) -> Facts:
    t = Trainable(method="lora", r=4, **trainable)  # type: ignore[arg-type]
    model = Model(id="x", dims=dims_of(arch, layers))
    return Facts(Plan(model=model, trainable=t, versions=versions))


@pytest.mark.parametrize(
    ("arch", "versions", "targets", "numel"),
    [
        ("mixtral", NEWEST, "all_linear", 31_016),
        ("mixtral", NEWEST, SEVEN, 3_584),
        ("mixtral", NEWEST, ("q_proj", "v_proj", "w1", "w2", "w3"), 28_672),
        ("mixtral", NEWEST, ("q_proj", "gate"), 1_576),
        ("mixtral", BEFORE_TRANSLATION, "all_linear", 3_584),
        ("mixtral", BEFORE_TRANSLATION, ("q_proj", "v_proj", "w1", "w2", "w3"), 1_792),
        ("mixtral", BEFORE_STACKS, "all_linear", 23_336),
        ("qwen3_moe", NEWEST, "all_linear", 18_216),
        ("qwen3_moe", NEWEST, SEVEN, 17_664),
        ("qwen3_moe", BEFORE_TRANSLATION, SEVEN, 3_584),
        ("qwen3_moe", BEFORE_STACKS, SEVEN, 15_104),
        ("gpt_oss", NEWEST, "all_linear", 3_584),
        ("gpt_oss", BEFORE_STACKS, "all_linear", 3_584),
        # The dense layer and the shared expert lose theirs to the stacks.
        ("glm4_moe", NEWEST, "all_linear", 10_900),
        ("glm4_moe", NEWEST, SEVEN, 10_624),
        ("glm4_moe", BEFORE_TRANSLATION, "all_linear", 6_656),
        ("glm4_moe", BEFORE_STACKS, "all_linear", 12_416),
        # Checkpoints of these are not converted by another's rules.
        ("qwen2_moe", NEWEST, "all_linear", 6_792),
        ("phimoe", NEWEST, "all_linear", 4_136),
        ("minimax_m2", NEWEST, "all_linear", 31_016),
    ],
)
def test_peft_translates_names_of_single_experts(
    arch: str, versions: dict[str, str], targets: object, numel: int
) -> None:
    """Trained parameters that get_peft_model left on the meta device: peft 0.21.2 and 0.18.1, transformers 5.23.0 and
    4.57.6, rank 4."""
    assert facts_of(arch, versions, targets=targets).trained.numel == numel


@pytest.mark.parametrize(
    ("arch", "numel"),
    [
        # Attention alone, of two layers.
        ("qwen3_moe", 3_584),
        ("mixtral", 3_584),
        # A dense layer and a shared expert name the experts' layers too; the router has no linear layer.
        ("glm4_moe", 10_624),
    ],
)
def test_a_framework_that_lists_layers_names_no_experts(arch: str, numel: int) -> None:
    """get_peft_model with the last parts of the names of all nn.Linear but the head, in the same way."""
    assert facts_of(arch, NEWEST, targets="all_linear", by_name=True).trained.numel == numel


_LISTS = """\
model_name_or_path: Qwen/Qwen3-30B-A3B
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all
dataset: a
template: qwen3
cutoff_len: 512
output_dir: out
"""


def test_llama_factory_lists_layers() -> None:
    # 48 layers: q of 2048 to 4096, k and v to 512, o back.
    each = 2048 + 4096 + 2 * (2048 + 512) + 4096 + 2048
    assert Facts(run_of({"train.yaml": _LISTS}).plan).trained.numel == 48 * 8 * each


@pytest.mark.parametrize(
    ("arch", "versions", "parameters", "numel"),
    [
        ("gpt_oss", NEWEST, BOTH, 18_432),
        ("gpt_oss", NEWEST, ("1.mlp.experts.down_proj",), 4_992),
        ("gpt_oss", BEFORE_STACKS, BOTH, 18_432),
        ("qwen3_moe", NEWEST, BOTH, 10_752),
        ("qwen3_moe", NEWEST, ("1.mlp.experts.down_proj",), 3_712),
        ("glm4_moe", NEWEST, ("1.mlp.experts.down_proj",), 3_712),
        ("glm4_moe", NEWEST, ("0.mlp.experts.down_proj",), 1_792),
        # Single experts have no such parameters: PEFT finds the modules and says nothing.
        ("qwen3_moe", BEFORE_STACKS, BOTH, 1_792),
        # This PEFT has no target_parameters: what is pinned is not what runs.
        ("qwen3_moe", {"transformers": "4.51.3", "peft": "0.15.2"}, BOTH, 10_752),
    ],
)
def test_parameters_are_adapted_by_name(
    arch: str, versions: dict[str, str], parameters: tuple[str, ...], numel: int
) -> None:
    """Counted in the same way, beside adapters of q_proj and v_proj."""
    facts = facts_of(arch, versions, targets=("q_proj", "v_proj"), target_params=parameters)
    assert facts.trained.numel == numel


def test_named_layers_alone_make_their_stacks_anew() -> None:
    """Three of 24 layers carry adapters: 21 keep no weights for backward."""
    three = tuple(
        f"{n}.mlp.experts.{name}" for n in (7, 15, 23) for name in ("gate_up_proj", "down_proj")
    )
    some = facts_of("gpt_oss", NEWEST, layers=24, targets=(), target_params=three)
    model, regime = some.built
    assert sum(b.count for b in model.blocks) == 24
    assert sum(b.count for b in model.blocks if not b.plain_experts) == 3
    each = {b.plain_experts: layer_profile(model, b, regime) for b in model.blocks}
    assert each[True].trained == 0
    assert each[False].trained * 3 == some.trained.numel == 3 * 8320
    whole = facts_of("gpt_oss", NEWEST, layers=24, targets=(), target_params=BOTH)
    assert whole.trained.numel == 24 * 8320


def test_layers_are_named_from_the_bottom() -> None:
    model = skeleton(dims_of("glm4_moe", 6))
    assert model is not None
    parted = with_named_layers(model, frozenset({0, 2, 3}))
    assert [(b.count, b.plain_experts) for b in parted.blocks] == [
        (1, False), (1, True), (2, False), (2, True)
    ]  # fmt: skip
    assert parted.numel == model.numel


def test_what_is_added_was_made_whole_before_peft_0_21() -> None:
    """Both stacks of 5 experts of 3 x 64 x 96 elements in fp32."""
    here, there = (
        facts_of("gpt_oss", versions, targets=(), target_params=BOTH)
        for versions in (NEWEST, {"peft": "0.20.0"})
    )
    stacks = 4 * 5 * 3 * 64 * 96
    highest = [
        max(size.fixed for size in layer_profile(model, model.blocks[0], regime).forward)
        for model, regime in (here.built, there.built)
    ]
    assert highest[1] - highest[0] == stacks


def test_experts_with_layers_of_their_own_make_no_stack_anew() -> None:
    """Of experts in lists no product takes weights that an adapter was added to: nothing is kept whatever the tokens."""
    facts = facts_of("mixtral", BEFORE_STACKS, targets="all_linear")
    model, regime = facts.built
    assert layer_profile(model, model.blocks[0], regime).saved.fixed == 0
