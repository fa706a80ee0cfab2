"""What a run trains: the layers that carry adapters, and how large these are."""

from __future__ import annotations

from msgspec import Struct

from oomlint.memory.named import named
from oomlint.memory.parameters import DecoderStructure
from oomlint.memory.result import Assume
from oomlint.memory.stacked_adapters import NONE, StackedAdapters, ends_of
from oomlint.memory.traits import EXPERT_ROLES, ROLE_NAMES
from oomlint.memory.vision import Tower
from oomlint.models.architectures import names_of_expert_layers, routed_linearly
from oomlint.plan import Plan
from oomlint.plan.fields import f as fields
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


def adapter_ends(model: DecoderStructure, roles: frozenset[str]) -> int:
    """Adapter elements a rank: inputs and outputs of all layers of ``model`` in ``roles``."""
    total = 0
    for block in model.blocks:
        each = sum(x.inputs + x.outputs for x in block.linears if x.role in roles)
        if "router" in roles and block.experts:
            each += model.hidden + block.experts
        total += block.count * each
    return total


def listed_expert_ends(model: DecoderStructure, roles: frozenset[str]) -> int:
    """Adapter elements a rank of experts that have linear layers of their own."""
    total = 0
    for block in model.blocks:
        if block.experts:
            matrices = block.expert_matrices(model.hidden)
            adapted = sum(role in roles for role in EXPERT_ROLES[3 - matrices :])
            total += block.count * adapted * block.experts * (model.hidden + block.moe_ffn)
    return total


def _names_of(role: str, arch: str | None) -> frozenset[str]:
    if role in EXPERT_ROLES:
        return frozenset({names_of_expert_layers(arch)[EXPERT_ROLES.index(role)]})
    return ROLE_NAMES.get(role, frozenset())


def targeted(
    t: Trainable, model: DecoderStructure, *, apart: bool = False, stacked: StackedAdapters = NONE
) -> frozenset[str]:
    """The roles of the linear layers of ``model`` that carry an adapter; ``apart``: each expert has some of its own;
    ``stacked``: adapters on stacks of experts, which may take names from them."""
    present = frozenset(x.role for b in model.blocks for x in b.linears)
    if model.expert_numel and (
        model.traits.linear_router or (apart and routed_linearly(model.arch))
    ):
        present |= {"router"}
    if model.expert_numel and apart:
        present |= frozenset(EXPERT_ROLES)
    targets = t.targets
    if targets == "all_linear":
        chosen = present
    elif targets is None or targets == "peft_default":
        chosen = present & _PEFT_DEFAULT
    else:
        wanted = {name.rsplit(".", 1)[-1] for name in targets} | set(targets)
        chosen = frozenset(r for r in present if _names_of(r, model.arch) & wanted or r in wanted)
    if stacked.taken:
        chosen = frozenset(r for r in chosen if not _names_of(r, model.arch) & stacked.taken)
    if stacked.router:
        # It counts with the experts.
        chosen -= {"router"}
    if t.exclude:
        out = {name.rsplit(".", 1)[-1] for name in t.exclude}
        chosen = frozenset(r for r in chosen if not _names_of(r, model.arch) & out)
    return chosen


class Trained(Struct, frozen=True, gc=False):
    """What a run trains, in elements."""

    method: str
    lora: bool
    """Adapters of some kind beside a frozen model."""
    embeddings: bool
    head: bool
    tower: bool = False
    """The vision tower, whole beside adapters."""
    roles: frozenset[str] = frozenset()
    """The linear layers of a block that carry an adapter."""
    tower_roles: frozenset[str] = frozenset()
    """The same of the vision tower."""
    adapter_numel: float = 0.0
    expert_adapter_numel: float = 0.0
    """Of the adapters, those of experts."""
    stacked: StackedAdapters = NONE
    """The adapters on stacks of experts."""
    saved_numel: float = 0.0
    """Modules that are trained whole beside adapters."""
    numel: float = 0.0
    stray_bytes: float = 0.0
    """Gradients of what gets some and no optimizer steps."""
    below: int = 0
    """Blocks at the bottom that backward never comes to."""


def method_of(plan: Plan) -> str:
    """How a plan trains; where only a rank is said, LoRA, and where nothing is, everything."""
    t = plan.trainable
    return t.method or ("lora" if t.r else "full")


def is_adapted(plan: Plan) -> bool:
    """Whether adapters are trained beside a frozen model."""
    return method_of(plan) in ADAPTED


def is_frozen_tower(plan: Plan) -> bool:
    """Whether the vision tower is kept as it is."""
    return "vision" in (plan.trainable.frozen or ()) or bool(plan.model.vision.freeze_tower)


def trained_of(
    plan: Plan,
    model: DecoderStructure | None,
    tower: Tower | None,
    bytes_a_gradient: float,
    assume: Assume,
    *,
    apart: bool = False,
    stacked: StackedAdapters = NONE,
) -> Trained:
    """What a plan trains of a model; nothing is counted of one whose shape is not known. ``apart``: each expert has
    linear layers of its own; ``stacked``: the adapters on stacks of experts."""
    t, method = plan.trainable, method_of(plan)
    if t.method is None and method == "full":
        assume(fields.trainable.method, "full", "no adapter is configured")
    if model is None:
        lora = method in ADAPTED
        return Trained(method, lora, embeddings=not lora, head=not lora)
    is_stray = t.unstepped == "embeddings"
    stray = model.embed_numel * bytes_a_gradient if is_stray else 0.0
    if method in ADAPTED:
        return _adapters(plan, model, tower, method, stray, assume, apart=apart, stacked=stacked)
    return _part(plan, model, method, stray)


def _adapters(
    plan: Plan,
    model: DecoderStructure,
    tower: Tower | None,
    method: str,
    stray_bytes: float,
    assume: Assume,
    *,
    apart: bool,
    stacked: StackedAdapters,
) -> Trained:
    """Adapters, and modules that are trained whole beside them."""
    t = plan.trainable
    roles = targeted(t, model, apart=apart, stacked=stacked)
    if t.targets is None:
        assume(fields.trainable.targets, "peft_default", "peft's default target modules")
    embeddings, head = trained_ends(t)
    saved = 0.0
    if embeddings:
        saved += model.embed_numel
    if head:
        saved += model.head_numel or model.embed_numel
    if trained_tower(t):
        saved += model.vision_numel
    rank = t.r
    if rank is None:
        rank = assume(fields.trainable.r, 8, "peft's default rank (tuners/lora/config.py)")
    of_experts: float = rank * (ends_of(stacked, model) + listed_expert_ends(model, roles))
    numel: float = rank * adapter_ends(model, roles) + of_experts
    tower_roles: frozenset[str] = frozenset()
    if tower is not None and not is_frozen_tower(plan):
        tower_roles = targeted(t, tower.skeleton)
        numel += rank * adapter_ends(tower.skeleton, tower_roles)
    if t.params is not None:
        numel = max(0.0, t.params - saved)
        of_experts = min(of_experts, numel)
    return Trained(
        method,
        lora=True,
        embeddings=embeddings,
        head=head,
        tower=trained_tower(t),
        roles=roles,
        tower_roles=tower_roles,
        adapter_numel=numel,
        expert_adapter_numel=of_experts,
        stacked=stacked,
        saved_numel=saved,
        numel=numel + saved,
        stray_bytes=stray_bytes,
    )


def _part(plan: Plan, model: DecoderStructure, method: str, stray_bytes: float) -> Trained:
    """A model's own parameters, all or some."""
    t = plan.trainable
    embeddings = head = True
    numel, below = 0.0, 0
    a_block = model.block_numel / model.layers
    if plan.optimizer.kind == "badam":
        # One block at a time asks for gradients (badam block_optim.py switch_trainable_params).
        numel = a_block
    elif method == "freeze":
        count = t.last_layers if t.last_layers is not None else 2
        chosen = named(model, t.names) if t.names else None
        numel = t.params or min(model.layers, abs(count)) * a_block
        embeddings = head = False
        if chosen is not None:
            numel, embeddings, head = chosen.numel, chosen.embedding, chosen.head
            below = 0 if stray_bytes else chosen.below
        elif count > 0 and not (t.params or stray_bytes or t.train_embeddings):
            below = max(0, sum(block.count for block in model.blocks) - count)
    elif method != "none":
        frozen = model.vision_numel if is_frozen_tower(plan) else 0
        numel = t.params or float(model.numel - frozen)
    return Trained(
        method, lora=False, embeddings=embeddings, head=head, numel=numel, stray_bytes=stray_bytes,
        below=below,
    )  # fmt: skip
