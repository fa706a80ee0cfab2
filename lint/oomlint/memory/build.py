"""From the dimensions of a model to its blocks, tensor class by tensor class.

The counts follow the modules that transformers 5.23 builds (models/*/modeling_*.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import groupby
from operator import attrgetter

from msgspec.structs import replace

from oomlint.memory.parameters import DecoderBlock, DecoderStructure, Linear, Mixer
from oomlint.memory.traits import traits_of
from oomlint.plan.model import ModelDims

# Models seen so far, so that a model's counts and profiles are worked out once; cleared when a
# long-lived process has met very many.
_SEEN: dict[tuple[object, ...], DecoderStructure | None] = {}
_SEEN_LIMIT = 4096
# All dimensions but those that are mappings and so have no hash.
_MAPPINGS = ("ssm", "linear_attn", "per_layer")
_PLAIN_DIMS = attrgetter(*(n for n in ModelDims.__struct_fields__ if n not in _MAPPINGS))
_MAPPED_DIMS = attrgetter(*_MAPPINGS)


def skeleton(dims: ModelDims) -> DecoderStructure | None:
    """The structure of a model; ``None`` where a needed dimension is unknown."""
    key = (*_PLAIN_DIMS(dims), repr(_MAPPED_DIMS(dims)))
    try:
        return _SEEN[key]
    except KeyError:
        pass
    if len(_SEEN) >= _SEEN_LIMIT:
        _SEEN.clear()
    found = _SEEN[key] = build(dims)
    return found


def without_head(dims: ModelDims) -> ModelDims:
    """The dimensions of a model whose output projection makes way for a few numbers: reward,
    classification and embedding models (transformers AutoModelForSequenceClassification)."""
    whole = skeleton(dims)
    if whole is None or not (whole.head_numel or whole.tied):
        return dims
    left = whole.numel - whole.head_numel
    return replace(dims, params_lm_head=0, params_total=left, tie_embeddings=False)


@lru_cache(maxsize=256)
def predicting(model: DecoderStructure, layers: int) -> DecoderStructure:
    """``model`` with so many ``layers`` of multi-token prediction on top: each is one more block like the last, which
    norms the block below and a later token's embedding, projects both to one, and norms what it gives (DeepSeek-V3,
    arXiv 2412.19437, section 2.2; torchtitan b5bcd76c models/deepseek_v3/mtp.py MTPTransformerBlock; Megatron-LM
    d98e8a64 core/transformer/multi_token_prediction.py MultiTokenPredictionLayer). Embedding and head are the model's.
    """
    top = model.blocks[-1]
    both = Linear("mtp_join", 2 * model.hidden, model.hidden)
    block = replace(
        top, count=layers, linears=(*top.linears, both), predicts=True,
        norm_numel=top.norm_numel + 3 * model.final_norm_numel,
    )  # fmt: skip
    return replace(model, blocks=(*model.blocks, block))


class _Parts:
    """The layers that blocks of one model are put together from."""

    def __init__(self, dims: ModelDims, hidden: int, layers: int) -> None:
        self.dims, self.hidden, self.layers = dims, hidden, layers
        self.arch = arch = dims.arch or "llama"
        self.traits = traits = traits_of(arch, dims.norm == "ln")
        # 128 is the head size of nearly every published decoder since Llama; only the number of
        # heads, never their product with the head size, depends on it.
        self.heads = dims.heads or max(1, hidden // (dims.head_dim or 128))
        self.head_dim = dims.head_dim or max(1, hidden // self.heads)
        self.kv_heads = dims.kv_heads or self.heads
        act = dims.act
        self.gated = act in ("swiglu", "geglu") if act else traits.activation is None
        self.ffn = dims.ffn or (hidden * 8 // 3 if self.gated else 4 * hidden)
        self.activation = traits.activation
        if act == "relu":
            self.activation = "relu"
        elif act == "relu2":
            self.activation = "relu2"
        elif self.activation is None:
            self.activation = "gelu" if act in ("geglu", "gelu") else "silu"
        if arch == "gpt_neox" and hidden == 6144 and layers == 44:
            self.activation = "gelu_fast_python"  # GPT-NeoX-20B's config.json; Pythia says "gelu"
        # Qwen2 and its kin put a bias on q, k and v alone; LayerNorm decoders on everything.
        self.biased = traits.all_biases if dims.attn_bias is None else dims.attn_bias
        self.mlp_biased = traits.all_biases if dims.mlp_bias is None else dims.mlp_bias
        self.norm_width = hidden * (2 if traits.norm == "ln" and traits.norm_bias else 1)
        if traits.norm == "ln_plain":
            self.norm_width = 0
        self.norms = traits.norms
        if arch == "falcon" and self.kv_heads not in (1, self.heads):
            self.norms = 2  # the new decoder architecture (40B, 180B): ln_attn and ln_mlp
        self.value_dim = self.head_dim
        self.ranks: tuple[int, int, int, int, int] | None = None
        mla = dims.mla
        if mla is not None and mla.kv_rank:
            self.value_dim = mla.v_dim or 128
            self.ranks = (
                mla.q_rank or 0, mla.kv_rank, mla.qk_nope or 128, mla.qk_rope or 64, self.value_dim,
            )  # fmt: skip

    def own(self, name: str) -> int:
        """What the dimensions say of single layers, in the words of config.json."""
        value = (self.dims.per_layer or {}).get(name)
        return int(value) if isinstance(value, int | float) and value > 0 else 0

    def uneven(self, kind: str, *, shares: bool) -> tuple[list[Linear], int, int, int]:
        """Gemma4TextAttention: heads of full-attention layers are larger and fewer, values may be
        the keys' projection, and the last layers take keys and values from below.

        Returns the projections, the elements of norms, the head size and the width of keys.
        """
        hidden, whole = self.hidden, kind == "full_attention"
        size = (self.own("global_head_dim") if whole else 0) or self.head_dim
        heads = self.own("num_global_key_value_heads") if whole else 0
        kv = (heads or self.kv_heads) * size
        output = Linear("o", self.heads * size, hidden)
        linears = [Linear("q", hidden, self.heads * size)]
        if shares:
            return [*linears, output], size, size, kv
        linears += [Linear("k", hidden, kv)] + ([] if heads else [Linear("v", hidden, kv)])
        return [*linears, output], 2 * size, size, kv

    def attention(self) -> tuple[list[Linear], int]:
        """The projections of attention, and the elements of norms and sinks inside it."""
        hidden, dims, traits, biased = self.hidden, self.dims, self.traits, self.biased
        width, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        extra = 0
        if dims.qk_norm and not traits.l2_qk_norm:
            extra = (width + kv) if traits.qk_norm_full else 2 * self.head_dim
        if traits.sinks:
            extra += self.heads
        if self.ranks is not None:
            q_rank, kv_rank, nope, rope, value = self.ranks
            indexed = self.indexer(q_rank)
            query = self.heads * (nope + rope)
            first = (
                [Linear("q_a", hidden, q_rank), Linear("q_b", q_rank, query)]
                if q_rank
                else [Linear("q", hidden, query)]
            )
            return [
                *first,
                Linear("kv_a", hidden, kv_rank + rope),
                Linear("kv_b", kv_rank, self.heads * (nope + value)),
                *(
                    [Linear("o_gate", hidden, self.heads)]
                    if traits.attention_gate == "heads"
                    else []
                ),
                *indexed,
                Linear("o", self.heads * value, hidden),
            ], extra + q_rank + kv_rank + (
                2 * (dims.mla.index_dim or 0) if indexed and dims.mla else 0
            )
        output_bias = (
            traits.output_bias or traits.all_biases or (biased and self.arch in _OUTPUT_BIAS)
        )
        output = Linear("o", width, hidden, output_bias)
        if self.arch == "doge":
            # DogeAttention: what of the keys is attended to follows from the values.
            extra += self.kv_heads
            decay = [Linear("dt", kv, self.kv_heads)]
        else:
            decay = []
        if traits.attention_gate != "none":
            gates = self.heads if traits.attention_gate == "heads" else width
            return [
                Linear("q", hidden, width, biased), Linear("k", hidden, kv, biased),
                Linear("v", hidden, kv, biased), Linear("o_gate", hidden, gates), output,
            ], extra  # fmt: skip
        if traits.fused_qkv:
            return [Linear("qkv", hidden, width + 2 * kv, biased), output], extra
        return [
            Linear("q", hidden, width * (2 if traits.gated_query else 1), biased),
            Linear("k", hidden, kv, biased and not traits.unbiased_key),
            Linear("v", hidden, kv, biased),
            *decay,
            output,
        ], extra

    def indexer(self, q_rank: int) -> list[Linear]:
        """What scores tokens for those that attend to them (modeling_deepseek_v32.py, DeepseekV32Indexer)."""
        mla = self.dims.mla
        if mla is None or not (mla.index_heads and mla.index_dim and q_rank):
            return []
        return [
            Linear("index_q", q_rank, mla.index_heads * mla.index_dim),
            Linear("index_k", self.hidden, mla.index_dim),
            Linear("index_weights", self.hidden, mla.index_heads),
        ]

    def delta(self) -> tuple[list[Linear], int, tuple[int, ...]] | None:
        """Gated delta net of Qwen3-Next and Qwen3.5 (modeling_qwen3_next.py,
        Qwen3NextGatedDeltaNet): projections, other elements, sizes."""
        s = self.dims.linear_attn or {}
        heads, dim = s.get("linear_num_heads"), s.get("linear_head_dim")
        k_heads, v_heads = (
            s.get("linear_num_key_heads", heads),
            s.get("linear_num_value_heads", heads),
        )
        k_dim, v_dim = s.get("linear_key_head_dim", dim), s.get("linear_value_head_dim", dim)
        if not (k_heads and v_heads and k_dim and v_dim):
            return None
        hidden, keys, values = self.hidden, k_heads * k_dim, v_heads * v_dim
        kernel = s.get("linear_conv_kernel_dim") or 4
        decays = v_heads
        if self.arch in _OWN_DECAYS:
            decays = values
            ins = [*self.apart(keys, values), Linear("la_b", hidden, v_heads)]
            for role in ("la_a", "la_z"):
                # KimiLinearForgetGate and its output gate go through a head's width, BailingHybrid's do not.
                if self.arch == "kimi_linear":
                    ins += [Linear(f"{role}_in", hidden, v_dim), Linear(role, v_dim, values)]
                else:
                    ins.append(Linear(role, hidden, values))
        elif self.arch == "olmo_hybrid":
            ins = [
                *self.apart(keys, values), Linear("la_z", hidden, values),
                Linear("la_b", hidden, v_heads), Linear("la_a", hidden, v_heads),
            ]  # fmt: skip
        elif self.arch == "qwen3_next":
            ins = [
                Linear("la_qkvz", hidden, 2 * keys + 2 * values),
                Linear("la_ba", hidden, 2 * v_heads),
            ]
        else:
            ins = [
                Linear("la_qkv", hidden, 2 * keys + values),
                Linear("la_z", hidden, values),
                Linear("la_b", hidden, v_heads),
                Linear("la_a", hidden, v_heads),
            ]
        other = (2 * keys + values) * kernel + decays + v_heads + v_dim
        is_apart = ins[0].role == "la_q"
        out = Linear("la_o" if is_apart else "la_out", values, hidden)
        return [*ins, out], other, (k_heads, v_heads, k_dim, v_dim)

    def lightning(self) -> tuple[list[Linear], int]:
        """Linear attention of MiniMax-Text-01 (modeling_minimax.py, MiniMaxLightningAttention), with a head of keys for
        each query, a gate and a norm."""
        hidden, width = self.hidden, self.heads * self.head_dim
        projections = [
            Linear("qkv", hidden, 3 * width), Linear("o_gate", hidden, width), Linear("o", width, hidden),
        ]  # fmt: skip
        return projections, width

    def apart(self, keys: int, values: int) -> list[Linear]:
        """Projections to what a linear attention keeps, one each."""
        widths = {"la_q": keys, "la_k": keys, "la_v": values}
        return [Linear(role, self.hidden, width) for role, width in widths.items()]

    def mamba1(self) -> tuple[list[Linear], int, tuple[int, ...]] | None:
        """A Mamba mixer (modeling_mamba.py, MambaMixer)."""
        s, hidden = self.dims.ssm or {}, self.hidden
        state = s.get("state_size") or s.get("mamba_d_state")
        if self.arch not in _FIRST_MAMBAS or not state:
            return None
        alone = self.dims.ffn if self.arch in _ONE_PART else None
        inner = alone or int((s.get("expand") or s.get("mamba_expand") or 2) * hidden)
        rank = s.get("time_step_rank") or s.get("mamba_dt_rank") or -(-hidden // 16)
        kernel = s.get("conv_kernel") or s.get("mamba_d_conv") or 4
        # JambaMambaMixer norms time steps and both states with weights.
        norms = rank + 2 * state if self.arch == "jamba" else 0
        return (
            [
                Linear("ssm_in", hidden, 2 * inner),
                Linear("ssm_x", inner, rank + 2 * state),
                Linear("ssm_dt", rank, inner, bias=True),
                Linear("ssm_out", inner, hidden),
            ],
            # The convolution with its bias, A_log and D.
            inner * (kernel + 1 + state + 1) + norms,
            (inner, state, rank),
        )

    def mamba2(self) -> tuple[list[Linear], int, tuple[int, ...]] | None:
        """A Mamba-2 mixer (modeling_mamba2.py, Mamba2Mixer)."""
        s = self.dims.ssm or {}

        def size(*names: str) -> int:
            return next((int(s[n]) for n in names if s.get(n)), 0)

        heads = size("mamba_n_heads", "mamba_num_heads", "num_heads")
        state = size("mamba_d_state", "ssm_state_size", "state_size")
        inner = size("mamba_d_ssm") or heads * size("mamba_d_head", "mamba_head_dim", "head_dim")
        groups = size("mamba_n_groups", "n_groups") or 1
        if not (heads and state and inner):
            return None
        kernel = size("mamba_d_conv", "conv_kernel") or 4
        mixed = inner + 2 * groups * state
        other = mixed * (kernel + 1) + 3 * heads
        if self.arch != "falcon_h1":
            other += inner  # the gated norm, which Falcon-H1 leaves out by default
        return (
            [
                Linear("ssm_in", self.hidden, inner + mixed + heads),
                Linear("ssm_out", inner, self.hidden),
            ],
            other,
            (inner, heads, state, groups),
        )

    def feed_forward(self, width: int, prefix: str = "") -> list[Linear]:
        hidden, biased = self.hidden, self.mlp_biased
        is_fused = self.traits.fused_shared if prefix else self.traits.fused_gate_up
        if self.gated and is_fused:
            return [
                Linear(prefix + "gate_up", hidden, 2 * width, biased),
                Linear(prefix + "down", width, hidden, biased),
            ]
        gate = [Linear(prefix + "gate", hidden, width, biased)] if self.gated else []
        return [
            *gate,
            Linear(prefix + "up", hidden, width, biased),
            Linear(prefix + "down", width, hidden, biased),
        ]

    def shared_expert(self, width: int) -> list[Linear]:
        """The feed-forward part beside the routed ones, and the projection to the number that weighs it."""
        if not width:
            return []
        weighed = [Linear("shared_weight", self.hidden, 1)] if self.traits.gated_shared else []
        return [*self.feed_forward(width, "shared_"), *weighed]

    def streamed(self, streams: int) -> list[Linear]:
        """What Gemma3nTextAltUp and Gemma3nTextLaurelBlock add to a block."""
        hidden, rank = self.hidden, self.own("laurel_rank") or 64
        return [
            Linear("laurel_left", hidden, rank), Linear("laurel_right", rank, hidden),
            Linear("stream_router", hidden, streams), Linear("predict", streams, streams * streams),
            Linear("correct", streams, streams),
        ]  # fmt: skip

    def block(
        self, kind: str, *, experts: bool, count: int, shares: bool = False, sparse: bool = False
    ) -> DecoderBlock:
        """``count`` blocks of the layer type ``kind``; ``shares``: with keys from below;
        ``sparse``: with few gates that pass."""
        linears, other, sizes, mixers = self.scan(kind)
        single = self.arch in _ONE_PART
        size = kv_width = 0
        if self.dims.per_layer is not None:
            linears, other, size, kv_width = self.uneven(kind, shares=shares)
            mixers.append("attention")
        elif kind == "linear_attention" and self.arch == "minimax":
            linears, other = self.lightning()
            mixers.append("attention")
        elif kind not in ("moe", "mlp") and (not mixers or self.arch == "falcon_h1"):
            attention, extra = self.attention()
            linears, other = [*attention, *linears], other + extra
            mixers.append("attention")
        norms = 1 if single else self.norms
        if kind == "decoder":
            attention, extra = self.attention()
            linears += [replace(x, role="cross_" + x.role) for x in attention]
            other, norms = other + extra, norms + 1
        feeds = not single or kind in ("moe", "mlp")
        if width := self.own("hidden_size_per_layer_input"):
            linears += [
                Linear("input_gate", self.hidden, width), Linear("input_out", width, self.hidden)
            ]  # fmt: skip
            norms += 1
        if streams := self.own("altup_num_inputs"):
            linears += self.streamed(streams)
            norms, other = norms + 2, other + self.hidden
        block = DecoderBlock(
            count, tuple(linears), norms * self.norm_width, other_numel=other,
            mixers=tuple(mixers), feeds=feeds, sizes=sizes,
            sliding=kind == "sliding_attention", crosses=kind == "decoder",
            head_dim=size, kv_width=kv_width, sparse=sparse,
        )  # fmt: skip
        if not feeds:
            return block
        return self.fed(block, experts=experts, shares=shares)

    def scan(self, kind: str) -> tuple[list[Linear], int, tuple[int, ...], list[Mixer]]:
        """What mixes the tokens of a block of a layer type in place of attention, or beside it: its projections, its
        other elements, its sizes, and its name; nothing of a block that has but attention."""
        if kind == "conv":
            # Lfm2ShortConv: one projection to three parts, a depthwise convolution, one back.
            kernel = (self.dims.ssm or {}).get("conv_L_cache") or 3
            linears = [
                Linear("conv_in", self.hidden, 3 * self.hidden),
                Linear("conv_out", self.hidden, self.hidden),
            ]
            return linears, int(kernel) * self.hidden, (), ["conv"]
        if kind in ("linear_attention", "mamba") or self.arch in _ALWAYS_SCAN:
            kinds: tuple[tuple[Mixer, tuple[list[Linear], int, tuple[int, ...]] | None], ...] = (
                ("delta", self.delta()), ("mamba1", self.mamba1()), ("mamba2", self.mamba2()),
            )  # fmt: skip
            for name, made in kinds:
                if made is not None:
                    return (*made, [name])
        return [], 0, (), []

    def fed(self, block: DecoderBlock, *, experts: bool, shares: bool) -> DecoderBlock:
        """A block with its feed-forward part, or its experts."""
        linears, other = block.linears, block.other_numel
        moe = self.dims.moe
        beside = self.traits.experts_beside
        if beside or not experts or moe is None or not moe.experts:
            wide = 2 if shares and self.own("use_double_wide_mlp") else 1
            block = replace(block, linears=(*linears, *self.feed_forward(wide * self.ffn)))
        if not experts or moe is None or not moe.experts:
            return block
        ffn = moe.moe_ffn or self.ffn
        # A shared expert is as wide as `shared_experts` routed ones (DeepSeek) unless given.
        shared = moe.shared_ffn or (moe.shared_experts or 0) * ffn
        each = (3 if self.gated else 2) * self.hidden * ffn
        router = moe.experts * self.hidden
        if self.traits.clamped_glu:
            # gpt-oss: biases of the experts' two products, and of the router.
            other += moe.experts * (2 * ffn + self.hidden + 1)
        if beside:
            # Gemma4TextRouter scales its input and the chosen experts' weights.
            other += self.hidden + moe.experts
            block = replace(block, norm_numel=block.norm_numel + 3 * self.norm_width)
        return replace(
            block,
            linears=(*block.linears, *self.shared_expert(shared)),
            other_numel=other, expert_numel=moe.experts * each, router_numel=router,
            experts=moe.experts, topk=moe.topk or 2, moe_ffn=ffn, shared_ffn=shared,
        )  # fmt: skip

    def blocks(self) -> tuple[DecoderBlock, ...]:
        """All blocks from the bottom up, equal neighbours together; equal runs are one object."""
        dims, moe = self.dims, self.dims.moe
        types = dims.layer_types
        windowed = "sliding_attention" if dims.sliding_window else "full_attention"
        kinds: list[tuple[str, bool, bool, bool]] = []
        dense_from = self.own("sparse_layers")
        shared_from = self.layers - self.own("num_kv_shared_layers")
        for index in range(self.layers):
            kind = types[index % len(types)] if types else windowed
            sparse = moe is not None and bool(moe.experts)
            if moe is not None and sparse:
                sparse = index >= (moe.first_dense or 0) and (index + 1) % (moe.every_n or 1) == 0
            if self.arch in _ONE_PART:
                sparse = kind == "moe"
            kinds.append((kind, sparse, index >= shared_from, index < dense_from))
        if self.arch in _ENCODER_DECODERS:
            # Two stacks of equal depth; the encoder's comes first, and below.
            stacks = ("encoder", "decoder")
            kinds = [(stack, False, False, False) for stack in stacks for _ in range(self.layers)]
        made: dict[tuple[str, bool, bool, bool, int], DecoderBlock] = {}
        runs: list[DecoderBlock] = []
        for (kind, sparse, shares, few), members in groupby(kinds):
            key = (kind, sparse, shares, few, len(list(members)))
            if key not in made:
                made[key] = self.block(
                    kind, experts=sparse, count=key[4], shares=shares, sparse=few
                )
            runs.append(made[key])
        return tuple(runs)


def build(dims: ModelDims) -> DecoderStructure | None:
    """The structure of a model, worked out anew; ``None`` where a needed dimension is unknown."""
    layers, hidden, vocab = dims.layers, dims.hidden, dims.vocab
    if not layers or not hidden or not vocab or layers > _MOST_LAYERS:
        return None
    parts = _Parts(dims, hidden, layers)
    traits, blocks = parts.traits, parts.blocks()

    named = (dims.vision.params or 0) if dims.vision else 0
    mixers = (dims.params_linear or 0) - sum(b.count * _weights(b) for b in blocks) - named
    rest = vocab * hidden * (1 if dims.tie_embeddings or dims.params_lm_head == 0 else 2) + named
    known = sum(b.count * b.numel for b in blocks) + rest
    if mixers > 0.01 * (dims.params_linear or 0) and known + mixers <= (dims.params_total or 0):
        # Linear layers that attention and feed-forward do not account for: state-space and
        # linear-attention mixers, gates, towers built of the same blocks.
        extra_layer = Linear("mixer", hidden, mixers // layers // hidden)
        blocks = _each(blocks, lambda b: replace(b, linears=(*b.linears, extra_layer)))

    embed = vocab * hidden
    tied = bool(dims.tie_embeddings)
    # Embedding and reward models have no head at all; the counts say so.
    headless = tied or dims.params_lm_head == 0
    head = 0 if headless else vocab * hidden + (vocab if traits.head_bias else 0)
    positions = _positions(parts) + (parts.norm_width if traits.embed_norm else 0)
    beside = _layer_inputs(parts, vocab) + _hearing(parts)
    if traits.transforms_head:
        beside += hidden * (hidden + 1) + parts.norm_width + vocab
    found = DecoderStructure(
        arch=parts.arch, traits=traits, layers=layers, hidden=hidden, heads=parts.heads,
        kv_heads=parts.kv_heads, head_dim=parts.head_dim, value_dim=parts.value_dim,
        ffn=parts.ffn, vocab=vocab, tied=tied, activation=parts.activation or "silu",
        qk_norm=bool(dims.qk_norm), mla=parts.ranks, blocks=blocks, embed_numel=embed,
        position_numel=positions, final_norm_numel=parts.norm_width, head_numel=head,
        vision_numel=named, other_numel=beside,
        layer_input=parts.own("hidden_size_per_layer_input"),
    )  # fmt: skip
    total = dims.params_total
    if total is None:
        # The catalogue's counter knows classes that have more than the plain decoder; of a model that it lists the
        # total is known.
        from oomlint.models.count import count_parameters

        counts = count_parameters(dims)
        total = counts.total if counts else None
    if total and found.numel > total:
        # A hybrid has fewer weights than a plain decoder of its dimensions: layers without
        # attention or without a feed-forward part. Every layer is counted as the average one.
        ends = found.numel - found.block_numel
        share = max(0.0, (total - ends) / found.block_numel)
        found = replace(found, blocks=_each(found.blocks, lambda b: _scaled(b, share)))
        if found.numel > total:
            return replace(found, other_numel=found.other_numel + total - found.numel)
    missing = (total or 0) - found.numel
    if missing > 0 and dims.vision is not None and dims.vision.params is None:
        return replace(found, vision_numel=missing)
    if missing > 0:
        # What a class has beyond the plain decoder and nothing names: spread over the layers.
        each = missing // layers
        spread = _each(found.blocks, lambda b: replace(b, other_numel=b.other_numel + each))
        rest = found.other_numel + missing - each * layers
        found = replace(found, blocks=spread, other_numel=rest)
    return found


def _layer_inputs(parts: _Parts, vocab: int) -> int:
    """Gemma4TextModel: a second embedding with a row for every layer, a projection of the first
    to the same width, and the norm behind it."""
    each = parts.own("hidden_size_per_layer_input")
    rows = parts.own("vocab_size_per_layer_input") or vocab
    # Gemma3nTextModel projects the embedding to the other streams, and these back at the end.
    streams = 2 * max(0, parts.own("altup_num_inputs") - 1) * parts.hidden**2
    return parts.layers * each * (rows + parts.hidden) + each + streams


def _positions(parts: _Parts) -> int:
    """The tables of learned positions, one each of an encoder and a decoder."""
    dims, traits = parts.dims, parts.traits
    if not traits.learned_positions:
        return 0
    rows = (dims.ctx or 2048) + traits.positions
    if dims.sound is not None:
        rows += dims.sound.frames or 0
    elif "decoder" in (dims.layer_types or ()):
        rows *= 2
    return rows * parts.hidden


def _hearing(parts: _Parts) -> int:
    """WhisperEncoder: two convolutions over three columns, with biases, and a norm where the decoder has the last."""
    sound, hidden = parts.dims.sound, parts.hidden
    if sound is None:
        return 0
    return 3 * hidden * ((sound.bands or 0) + hidden) + 2 * hidden + parts.norm_width


def _each(
    blocks: tuple[DecoderBlock, ...], change: Callable[[DecoderBlock], DecoderBlock]
) -> tuple[DecoderBlock, ...]:
    """All blocks changed; blocks that are one object stay one."""
    changed = {id(b): change(b) for b in {id(b): b for b in blocks}.values()}
    return tuple(changed[id(b)] for b in blocks)


def _scaled(block: DecoderBlock, share: float) -> DecoderBlock:
    linears = tuple(replace(x, outputs=int(x.outputs * share)) for x in block.linears)
    return replace(
        block, linears=linears, expert_numel=int(block.expert_numel * share),
        router_numel=int(block.router_numel * share), norm_numel=int(block.norm_numel * share),
    )  # fmt: skip


def _weights(block: DecoderBlock) -> int:
    return sum(x.inputs * x.outputs for x in block.linears)


# attention_bias=True of these classes covers o_proj too (LlamaAttention and its copies).
_OUTPUT_BIAS = frozenset(
    {"llama", "internlm", "gpt_oss", "granite", "phimoe", "ernie4_5", "stablelm"}
)

# Models whose layers are one thing each: a mixer, experts or a plain feed-forward part
# (transformers 5.23 models/nemotron_h/modeling_nemotron_h.py, NemotronHBlock).
_ONE_PART = frozenset({"nemotron_h", "mamba", "mamba2", "falcon_mamba"})
_FIRST_MAMBAS = frozenset({"mamba", "falcon_mamba", "jamba"})
_ALWAYS_SCAN = frozenset({"mamba", "mamba2", "falcon_mamba", "falcon_h1"})

# Linear attention whose keys each decay at a rate of their own (models/kimi_linear/modeling_kimi_linear.py
# KimiLinearDeltaAttention).
_OWN_DECAYS = frozenset({"kimi_linear", "bailing_hybrid"})

_ENCODER_DECODERS = frozenset({"t5", "mt5", "umt5"})

# More layers than any model has: not worked out one by one.
_MOST_LAYERS = 100_000
