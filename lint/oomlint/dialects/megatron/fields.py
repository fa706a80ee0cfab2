"""What Megatron-core is told and the plan has no field for, whoever tells it.

Megatron-LM's command line and NeMo's YAML both end in megatron.core's TransformerConfig.
"""

from __future__ import annotations

from oomlint.plan.fields import Private

ARGUMENTS = "Megatron-LM d98e8a64 training/arguments.py"


class mg(Private, prefix="mg"):  # noqa: N801  a namespace of fields, read like ``f``
    """Numbers of a model that is described one by one, and of how it is trained.

    ``groups``: heads of keys and values; ``query_groups`` and ``grouped`` are the options that
    Megatron-LM makes it of. ``act`` and ``norm`` as ``model.dims`` has them. ``bias``: linear
    layers have one. ``untied``: embeddings of their own for the output. ``divisor``: what the
    vocabulary is padded to a multiple of. ``pattern``: a letter for each layer of a hybrid stack.
    ``other``: the model is more, or other, than a stack of layers. ``decoder_layers``: of the
    second stack. ``decoder_len``: of the language model behind an image's encoder.
    ``virtual_layers``: layers of one virtual stage.
    """

    layers: int
    hidden: int
    ffn: int
    heads: int
    head_dim: int
    groups: int
    grouped: bool
    query_groups: int
    max_positions: int
    positions: str
    rotary: bool
    vocab: int
    extra_vocab: int
    divisor: int
    tokenizer: str
    tokenizer_model: str
    act: str
    squared_relu: bool
    norm: str
    bias: bool
    no_bias: bool
    qkv_bias: bool
    qk_norm: bool
    untied: bool
    experts: int
    topk: int
    moe_ffn: int
    shared_ffn: int
    moe_freq: str
    grouped_gemm: bool
    mla: bool
    q_rank: int
    kv_rank: int
    qk_nope: int
    qk_rope: int
    v_dim: int
    pattern: str
    ssm_state: int
    ssm_head_dim: int
    ssm_groups: int
    ssm_heads: int
    hybrid: str
    language_model: str
    other: bool
    decoder_layers: int
    decoder_len: int

    global_batch: int
    virtual_layers: int
    recompute_method: str
    recompute_layers: int
    recompute_switch: bool
    old_checkpointing: bool

    torch_fsdp2: bool
    megatron_fsdp: bool
    strategy: str
    keeps_params: bool
    bf16: bool
    fp16: bool
    fp8: str
    bf16_grads: bool
    fp32_grads: bool
    main_grads: str
    main_params: str
    exp_avg: str
    exp_avg_sq: str
    cpu_optimizer: bool
    offloaded_layers: int
    flash: bool
    attention: str
    implementation: str
    fused_loss: bool
    loss_fusion: str
    eval_iters: int
    format: str
    load: str
    finetune: bool
