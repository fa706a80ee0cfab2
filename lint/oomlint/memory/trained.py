"""What a run trains: the layers that carry adapters, and how large these are."""

from __future__ import annotations

from oomlint.memory.parameters import DecoderBlock, DecoderStructure
from oomlint.memory.traits import ROLE_NAMES
from oomlint.plan.model import Trainable

# Methods that train small matrices beside a frozen model.
ADAPTED = frozenset({"lora", "qlora", "dora", "oft", "adapter", "logits"})
# peft 0.21 utils/constants.py, TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING: q and v, or
# the fused projection; Phi adds its first and second feed-forward layer.
_PEFT_DEFAULT = frozenset({"q", "v", "qkv", "cross_q", "cross_v"})
_EMBEDDINGS = frozenset({"embed_tokens", "wte", "word_embeddings", "embedding", "tok_embeddings"})
_HEADS = frozenset({"lm_head", "output", "embed_out"})
# As transformers calls the towers of its classes, Qwen's and MiniCPM-V's own code theirs.
_TOWERS = frozenset({"vision_tower", "vision_model", "visual", "vpm"})


def trained_ends(t: Trainable) -> tuple[bool, bool]:
    """Whether embedding and output projection are trained whole beside the adapters."""
    names = frozenset(t.modules_to_save or ())
    return bool(t.train_embeddings) or bool(names & _EMBEDDINGS), bool(names & _HEADS)


def trained_tower(t: Trainable) -> bool:
    """Whether the vision tower is trained whole beside the adapters."""
    return not _TOWERS.isdisjoint(t.modules_to_save or ())


# What one function of Axolotl's and Unsloth's computes, by the part of a block that it replaces.
_FUSED_ROLES = {
    "mlp": frozenset({"gate", "up", "down"}),
    "qkv": frozenset({"q", "k", "v"}),
    "o": frozenset({"o"}),
}


def fused_roles(t: Trainable, roles: frozenset[str]) -> frozenset[str]:
    """The roles among the adapted ``roles`` that such functions compute: a part is replaced where
    each of its layers carries an adapter (axolotl 0.19 monkeypatch/lora_kernels.py
    apply_lora_kernel_patches; unsloth models/llama.py patch_peft_model)."""
    parts = [_FUSED_ROLES[part] for part in t.fused or ()]
    return frozenset(role for part in parts if part <= roles for role in part)


def splits_ranks(t: Trainable) -> bool:
    """Whether peft turned names of expert projections into adapters on the fused stacks.

    It then gives the fused gate and up projection twice the rank, adapts the router too
    and drops plain feed-forward layers of the same names
    (peft 0.21 utils/transformers_weight_conversion.py).
    """
    return t.target_params == "experts" and t.targets == "all_linear"


def adapter_ends(model: DecoderStructure, roles: frozenset[str]) -> int:
    """Adapter elements a rank: inputs and outputs of all layers of ``model`` in ``roles``."""
    total = 0
    for block in model.blocks:
        each = sum(x.inputs + x.outputs for x in block.linears if x.role in roles)
        if "router" in roles and block.experts:
            each += model.hidden + block.experts
        total += block.count * each
    return total


def expert_ends(t: Trainable, model: DecoderStructure) -> int:
    """Adapter elements a rank of all experts (and routers), where they carry adapters."""
    if not t.target_params:
        return 0
    return sum(b.count * _expert_ends(model, b, split=splits_ranks(t)) for b in model.blocks)


def _expert_ends(model: DecoderStructure, block: DecoderBlock, *, split: bool) -> int:
    if not block.experts:
        return 0
    hidden, ffn = model.hidden, block.moe_ffn
    up = (2 if split else 1) * (hidden + 2 * ffn)
    router = hidden + block.experts if split else 0
    return block.experts * (up + ffn + hidden) + router


def targeted(t: Trainable, model: DecoderStructure) -> frozenset[str]:
    """The roles of the linear layers of ``model`` that carry an adapter."""
    present = frozenset(x.role for b in model.blocks for x in b.linears)
    if model.traits.linear_router and model.expert_numel:
        present |= {"router"}
    targets = t.targets
    if targets == "all_linear":
        chosen = present
        if splits_ranks(t) and model.expert_numel:
            # The router's adapter counts with the experts'.
            chosen = frozenset(
                r for r in present if not r.endswith(("gate", "up", "down", "router"))
            )
    elif targets is None or targets == "peft_default":
        chosen = present & _PEFT_DEFAULT
    else:
        wanted = {name.rsplit(".", 1)[-1] for name in targets} | set(targets)
        chosen = frozenset(
            r for r in present if ROLE_NAMES.get(r, frozenset()) & wanted or r in wanted
        )
    if t.exclude:
        out = {name.rsplit(".", 1)[-1] for name in t.exclude}
        chosen = frozenset(r for r in chosen if not ROLE_NAMES.get(r, frozenset()) & out)
    return chosen
