"""The model of a run: its dimensions, how its weights are loaded and stored, what of it is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

DType = Literal["fp32", "bf16", "fp16", "fp8", "int8", "nf4", "none"]

BYTES_PER_ELEMENT: Mapping[str, float] = {
    "fp32": 4,
    "bf16": 2,
    "fp16": 2,
    "fp8": 1,
    "int8": 1,
    "nf4": 0.5,
    "none": 0,
}


class Section(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename=lambda name: name.rstrip("_"),
):
    """A part of the plan; names that Python reserves carry an underscore in code and nowhere else."""


class Moe(Section, frozen=True, kw_only=True):
    """Mixture-of-experts dimensions (per decoder layer that has experts)."""

    experts: int | None = None
    topk: int | None = None
    moe_ffn: int | None = None
    shared_experts: int | None = None
    shared_ffn: int | None = None
    first_dense: int | None = None
    every_n: int | None = None
    router_dtype: str | None = None


class Mla(Section, frozen=True, kw_only=True):
    """Multi-head latent attention ranks (DeepSeek-V2 onwards). ``index_heads`` of ``index_dim`` elements choose the
    tokens that are attended to (DeepSeek-V3.2)."""

    q_rank: int | None = None
    kv_rank: int | None = None
    qk_nope: int | None = None
    qk_rope: int | None = None
    v_dim: int | None = None
    index_heads: int | None = None
    index_dim: int | None = None


class VisionTower(Section, frozen=True, kw_only=True):
    """Dimensions of the vision encoder of a multimodal model. ``image``: pixels of a side of what it sees at once;
    ``merge`` patches become one token of the text model."""

    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    ffn: int | None = None
    patch: int | None = None
    image: int | None = None
    merge: int | None = None
    params: int | None = None


class Sound(Section, frozen=True, kw_only=True):
    """What an encoder hears of every sample, however short it is: ``frames``, tokens of the encoder, each of two columns
    of a spectrogram of ``bands`` (Whisper's 1,500 of 30 seconds)."""

    frames: int | None = None
    bands: int | None = None


class ModelDims(Section, frozen=True, kw_only=True):
    """The dimensions of a decoder that decide its memory.

    ``params_*`` are exact element counts where the catalogue has them, else ``None``
    and derived from the dimensions. ``per_layer`` says, in the words of config.json, what
    some layers have that others have not (Gemma 4).
    """

    arch: str | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    ffn: int | None = None
    vocab: int | None = None
    tie_embeddings: bool | None = None
    attn_bias: bool | None = None
    mlp_bias: bool | None = None
    qk_norm: bool | None = None
    norm: Literal["rms", "ln"] | None = None
    act: Literal["swiglu", "geglu", "gelu", "relu", "relu2", "silu"] | None = None
    ctx: int | None = None
    sliding_window: int | None = None
    layer_types: tuple[str, ...] | None = None
    moe: Moe | None = None
    mla: Mla | None = None
    vision: VisionTower | None = None
    sound: Sound | None = None
    ssm: Mapping[str, Any] | None = None
    linear_attn: Mapping[str, Any] | None = None
    per_layer: Mapping[str, Any] | None = None
    mtp_layers: int | None = None
    params_total: int | None = None
    params_active: int | None = None
    params_embed: int | None = None
    params_lm_head: int | None = None
    params_linear: int | None = None
    params_nonlinear: int | None = None
    params_layer_max: int | None = None


class Vision(Section, frozen=True, kw_only=True):
    """How a run treats images and video. ``max_tiles``: an image is cut into so many at most, beside one that shows it
    as a whole. ``beside_limit``: what limits the length of samples is compared before images become tokens, which come
    on top of it."""

    freeze_tower: bool | None = None
    max_pixels: int | None = None
    max_tiles: int | None = None
    max_frames: int | None = None
    beside_limit: bool | None = None


class Model(Section, frozen=True, kw_only=True):
    """``mtp_layers``: layers of multi-token prediction that the run builds and trains, whatever the published model has
    (:attr:`ModelDims.mtp_layers`), of which transformers' classes build none. ``experts_impl``: one expert after the other
    (``loop``), or products of all, with the router's weights on what comes out (``grouped``) or within the activation
    (``weighted``)."""

    id: str | None = None
    local_path: str | None = None
    revision: str | None = None
    arch: str | None = None
    dims: ModelDims | None = None
    ckpt_dtype: str | None = None
    native_quant: str | None = None
    from_scratch: bool | None = None
    attn_impl: (
        Literal["eager", "sdpa", "flash2", "flash3", "flex", "xformers", "sage", "ring", "cudnn"]
        | None
    ) = None
    experts_impl: Literal["grouped", "weighted", "loop"] | None = None
    mtp_layers: int | None = None
    vocab_resize: int | None = None
    trust_remote_code: bool | None = None
    vision: Vision = Vision()


class Load(Section, frozen=True, kw_only=True):
    """How the weights come from disk; decides host RAM before the first step.

    ``resume``: training goes on from a checkpoint, optimizer states included. ``cast``: what the parameters that
    are trained are made where they were loaded, before an engine casts the module to its own dtype. ``unshards``: FSDP
    gathers the whole model on every GPU to fill it with a checkpoint.
    """

    dtype: Literal["fp32", "bf16", "fp16", "auto"] | None = None
    cast: DType | None = None
    device_map: Literal["none", "auto", "balanced", "explicit", "single"] | None = None
    low_cpu_mem: bool | None = None
    cpu_ram_efficient: bool | None = None
    zero3_init: bool | None = None
    per_rank_host_copies: int | None = None
    meta_init: bool | None = None
    unshards: bool | None = None
    resume: bool | None = None


class Trainable(Section, frozen=True, kw_only=True):
    """``unstepped`` gets gradients that no optimizer steps or clears. ``names`` are patterns of the
    parameters that are trained, matched from the beginning of their names. ``fused`` are the parts
    of a block whose adapted layers run as one function that keeps little for backward. ``saved_dtype``: of the copies
    that ``modules_to_save`` makes, where that is not the adapter's. ``target_params``: parameters that carry adapters,
    ``experts`` where a framework's own do on all experts, ``none`` where it has others than PEFT's. ``by_name``: the
    framework finds all linear layers itself and tells PEFT their names."""

    method: (
        Literal[
            "full", "lora", "dora", "qlora", "oft", "freeze", "layerwise", "adapter",
            "galore", "other", "none",
        ]
        | None
    ) = None  # fmt: skip
    r: int | None = None
    alpha: float | None = None
    dropout: float | None = None
    targets: tuple[str, ...] | Literal["all_linear", "peft_default"] | None = None
    target_params: tuple[str, ...] | Literal["experts", "none"] | None = None
    by_name: bool | None = None
    fused: tuple[Literal["mlp", "qkv", "o"], ...] | None = None
    exclude: tuple[str, ...] | None = None
    modules_to_save: tuple[str, ...] | None = None
    train_embeddings: bool | None = None
    last_layers: int | None = None
    names: tuple[str, ...] | None = None
    frozen: tuple[str, ...] | None = None
    unstepped: Literal["embeddings"] | None = None
    adapter_dtype: DType | None = None
    saved_dtype: DType | None = None
    params: int | None = None


class Quant(Section, frozen=True, kw_only=True):
    """``requested_bits`` are the bits that a run asks for on loading, whether or not the
    checkpoint's own format lets it have them."""

    method: (
        Literal[
            "none", "bnb4", "bnb8", "nf4_torchao", "gptq", "awq", "hqq", "aqlm", "eetq",
            "fp8_weight", "mxfp4", "nvfp4",
        ]
        | None
    ) = None  # fmt: skip
    bits: float | None = None
    double: bool | None = None
    storage_dtype: str | None = None
    compute_dtype: str | None = None
    skip_modules: tuple[str, ...] | None = None
    dequantised_on_load: bool | None = None
    quantises_moe_experts: bool | None = None
    prepares_kbit: bool | None = None
    requested_bits: int | None = None


class Precision(Section, frozen=True, kw_only=True):
    """Storage and compute dtypes; filled by a dialect's dtype law, never from a flag alone.

    For trainable methods other than full fine-tuning, ``grad`` and ``optim_state`` speak
    of the trainable parameters and ``param`` of the frozen ones. Under a mixed-precision
    sharding policy ``param`` is the sharded storage and ``compute`` what is gathered, unless the
    policy gathers ``gathered`` and leaves the rest to autocast.
    """

    param: DType | None = None
    grad: DType | None = None
    master: DType | None = None
    grad_accum: DType | None = None
    optim_state: DType | None = None
    compute: DType | None = None
    gathered: DType | None = None
    autocast: bool | None = None
    autocast_cache: bool | None = None
    comm: DType | None = None
    buffer: DType | None = None
    norms_fp32: bool | None = None
    embeddings_fp32: bool | None = None
    lm_head_fp32: bool | None = None
    logits: DType | None = None
    fp8_train: Literal["none", "te", "torchao", "msamp"] | None = None
    tf32: bool | None = None
