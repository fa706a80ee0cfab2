"""The decoder blocks of the model families, written as operations on a tape.

Each function follows one module of transformers 5.23 (models/*/modeling_*.py), peft 0.21
(tuners/lora/layer.py) or torch's kernels, operation by operation, in the order in which the
module runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Literal

from oomlint.memory.parameters import Block, Linear, Skeleton
from oomlint.memory.tape import Moment, Size, Tape, Tensor

Kernel = Literal["flash", "efficient", "math", "eager"]


@dataclass(frozen=True, slots=True)
class Regime:
    """How a block computes.

    ``stream`` is the bytes an element of the weights and of the residual stream, ``compute``
    that of matrix products; they differ under autocast (``amp``). ``lora`` maps the roles of
    adapted linear layers to their rank. ``keeps_input``: products with packed weights keep
    their input; ``rescaled``: every linear layer has a trained scale and bias behind it.
    """

    stream: int = 2
    compute: int = 2
    amp: bool = False
    train_base: bool = True
    train_norms: bool = True
    train_experts: bool = True
    rank: int = 0
    targets: frozenset[str] = frozenset()
    dropout: bool = False
    adapter: int = 4
    dora: bool = False
    lora_experts: bool = False
    split_ranks: bool = False
    kernel: Kernel = "flash"
    dense_mask: bool = False
    experts: Literal["grouped", "loop"] = "grouped"
    fused_norm: bool = False
    fused_rope: bool = False
    fused_glu: bool = False
    quantised: bool = False
    packed_experts: bool = False
    keeps_input: bool = False
    rescaled: bool = False
    tensor_parallel: int = 1
    sequence_parallel: bool = False
    input_grad: bool = True
    batched: bool = True
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Profiles are looked up by regime several times an estimate.
        values = tuple([getattr(self, name) for name in _REGIME_FIELDS])
        object.__setattr__(self, "_hash", hash(values))

    def __hash__(self) -> int:
        return self._hash


_REGIME_FIELDS = tuple(f.name for f in fields(Regime) if f.compare)
_INTERNED: dict[Regime, Regime] = {}
_INTERNED_LIMIT = 4096


def interned(regime: Regime) -> Regime:
    """The one object for equal regimes, so that later look-ups compare by identity."""
    if len(_INTERNED) >= _INTERNED_LIMIT:
        _INTERNED.clear()
    return _INTERNED.setdefault(regime, regime)


class LayerProfile:
    """What one block costs; sizes are on top of its input, which the caller counts.

    ``forward`` are the highest instants of forward in training, ``inference`` those without
    gradients (and of the recomputation under checkpointing); both are found when asked for.
    """

    __slots__ = ("_forward", "_inference", "_tape", "backward", "input_bytes", "saved", "trained")

    def __init__(self, tape: Tape, out: Tensor, input_bytes: float) -> None:
        self._tape = tape
        self._forward: tuple[Size, ...] | None = None
        self._inference: tuple[Size, ...] | None = None
        self.saved: Size = tape.saved()
        self.backward: tuple[Moment, ...] = tape.replay(out) if out.needs_grad else ()
        self.trained: float = tape.trained_elements
        self.input_bytes = input_bytes

    @property
    def forward(self) -> tuple[Size, ...]:
        if self._forward is None:
            self._forward = self._tape.forward_peaks(training=True)
        return self._forward

    @property
    def inference(self) -> tuple[Size, ...]:
        if self._inference is None:
            self._inference = self._tape.forward_peaks(training=False)
        return self._inference


class _Writer:
    """Writes modules on a tape under one regime."""

    __slots__ = ("k", "model", "r", "tape")

    def __init__(self, model: Skeleton, regime: Regime) -> None:
        self.tape = Tape()
        self.model = model
        self.r = regime

    def cast(self, x: Tensor, bytes_: float) -> Tensor:
        if x.bytes == bytes_:
            return x
        ratio = bytes_ / x.bytes
        size = Size(x.size.token * ratio, x.size.score * ratio)
        return self.tape.op(Tensor(x.width, bytes_, size, False), (x,))

    def own(self, x: Tensor) -> Tensor:
        """A copy of ``x`` where it is a view of something larger; else ``x``."""
        if x.root is x:
            return x
        return self.tape.op(Tensor(x.width, x.bytes, x.size, False), (x,))

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        bytes_ = max(a.bytes, b.bytes)
        return self.tape.op(self.tape.tensor(a.width, bytes_), (a, b), passes=True)

    def scale(self, x: Tensor) -> Tensor:
        """Multiplication by a number: keeps nothing, makes a new gradient."""
        size = x.size
        out = Tensor(x.width, x.bytes, size, False)
        return self.tape.op(out, (x,))

    def dropout(self, x: Tensor) -> Tensor:
        """native_dropout keeps a bool mask and the output, not the input."""
        mask = Tensor(x.width, 1, Size(x.size.token / x.bytes, x.size.score / x.bytes), False)
        return self.tape.op(Tensor(x.width, x.bytes, x.size, False), (x,), saves=(mask,))

    # -- norms ---------------------------------------------------------------------------

    def norm(self, x: Tensor, weight: int | None = None) -> Tensor:
        kind = self.model.traits.norm
        if kind == "ln":
            return self.layer_norm(x)
        if self.r.fused_norm:
            return self.fused_rms_norm(x)
        if kind == "rms_fp32_weight":
            return self.gemma_norm(x)
        return self.rms_norm(x)

    def _normalise(self, x: Tensor) -> Tensor:
        """x * rsqrt(mean(x^2)) in fp32: the pow, mean, rsqrt and mul of every RMSNorm."""
        tape, width = self.tape, x.width
        x32 = self.cast(x, 4)
        full = Size(token=4 * width)
        # pow's backward holds pow(x, 1), its product with 2 and the result at once
        # (tools/autograd/templates FunctionsManual.cpp pow_backward), beside mean's gradient.
        square = tape.op(tape.tensor(width, 4), (x32,), saves=(x32,), temp=Size(token=8 * width))
        mean = tape.op(tape.tensor(1, 4), (square,))
        scale = tape.tensor(1, 4)
        tape.op(scale, (mean,), saves=(scale,))
        return tape.op(tape.tensor(width, 4), (x32, scale), saves=(x32, scale), temp=full)

    def rms_norm(self, x: Tensor) -> Tensor:
        """LlamaRMSNorm: weight * normalised.to(input dtype)."""
        tape, width = self.tape, x.width
        trained = self.r.train_norms
        normed = self.cast(self._normalise(x), x.bytes)
        product = Size(token=x.bytes * width) if trained else Size()
        return tape.op(
            tape.tensor(width, x.bytes), (normed,), saves=(normed,) if trained else (),
            temp=product, weight=width if trained else 0,
        )  # fmt: skip

    def gemma_norm(self, x: Tensor) -> Tensor:
        """GemmaRMSNorm: (normalised * (1 + weight.float())).to(input dtype)."""
        tape, width = self.tape, x.width
        trained = self.r.train_norms
        normed = self._normalise(x)
        product = Size(token=4 * width) if trained else Size()
        out = tape.op(
            tape.tensor(width, 4), (normed,), saves=(normed,) if trained else (),
            temp=product, weight=width if trained else 0,
        )  # fmt: skip
        return self.cast(out, x.bytes)

    def fused_rms_norm(self, x: Tensor) -> Tensor:
        """Liger's RMSNorm keeps its input and one fp32 number a token (ops/rms_norm.py)."""
        tape = self.tape
        scale = tape.tensor(1, 4)
        return tape.op(
            tape.tensor(x.width, x.bytes), (x,), saves=(x, scale),
            weight=x.width if self.r.train_norms else 0,
        )  # fmt: skip

    def layer_norm(self, x: Tensor) -> Tensor:
        """native_layer_norm: keeps input, mean and rstd; autocast runs it in fp32."""
        tape = self.tape
        if self.r.amp:
            x = self.cast(x, 4)
        stats = tape.tensor(2, 4)
        return tape.op(
            tape.tensor(x.width, x.bytes), (x,), saves=(x, stats),
            weight=2 * x.width if self.r.train_norms else 0,
        )  # fmt: skip

    # -- linear layers -------------------------------------------------------------------

    def linear(self, x: Tensor, layer: Linear) -> Tensor:
        r, tape = self.r, self.tape
        split = r.tensor_parallel
        outputs: float = layer.outputs
        if split > 1:
            # Column-parallel layers split their outputs, row-parallel ones put whole outputs
            # together, which sequence parallelism scatters over the tokens (arXiv 2205.05198).
            row = layer.role in ("o", "down", "shared_down")
            outputs /= (split if r.sequence_parallel else 1) if row else split
        half = r.amp and r.stream == 4
        source = x
        x = self.cast(x, r.compute)
        saves: list[Tensor] = [x] if r.train_base or r.keeps_input else []
        if half and (x.needs_grad or r.train_base):
            saves.append(tape.weight(layer.numel / split, r.compute))
        # A packed weight is unpacked whole for each product (bitsandbytes autograd/_functions.py).
        unpacked = Size(fixed=layer.numel / split * r.compute) if r.quantised else Size()
        out = tape.op(
            tape.tensor(outputs, r.compute), (x,), saves=saves,
            weight=layer.numel / split if r.train_base else 0,
            cast_grad=r.compute if half else 0, temp=unpacked, forward_temp=unpacked,
        )  # fmt: skip
        if r.rescaled:
            # litgpt/adapter_v2.py AdapterV2Linear: scale * (linear(x) + bias).
            moved = tape.op(tape.tensor(outputs, r.compute), (out,), passes=True)
            return tape.op(
                tape.tensor(outputs, r.compute), (moved,), saves=(moved,), weight=2 * outputs,
                temp=Size(token=r.compute * outputs),
            )  # fmt: skip
        if layer.role in r.targets:
            return self.adapter(source, out, layer)
        return out

    def adapter(self, x: Tensor, result: Tensor, layer: Linear) -> Tensor:
        """peft lora.Linear: result + B(A(dropout(x.to(adapter dtype)))) * scaling."""
        r, tape = self.r, self.tape
        bytes_ = r.compute if r.amp else r.adapter
        if r.adapter != x.bytes:
            x = self.cast(x, r.adapter)
        if r.dropout:
            x = self.dropout(x)
        x = self.cast(x, bytes_)
        casts = r.amp and r.adapter == 4
        a_weight, b_weight = layer.inputs * r.rank, layer.outputs * r.rank
        a_saves, b_saves = [x], []
        if casts:
            a_saves.append(tape.weight(a_weight, bytes_))
            b_saves.append(tape.weight(b_weight, bytes_))
        cast_grad = bytes_ if casts else 0
        a = tape.op(
            tape.tensor(r.rank, bytes_), (x,), saves=a_saves, weight=a_weight, cast_grad=cast_grad
        )
        b = tape.op(
            tape.tensor(layer.outputs, bytes_), (a,), saves=(a, *b_saves), weight=b_weight,
            cast_grad=cast_grad,
        )  # fmt: skip
        if r.dora:
            # dora.py: the magnitude multiplies the base result and the product, both kept.
            magnitude = tape.tensor(layer.outputs, bytes_)
            b = tape.op(
                magnitude, (b, result), saves=(b, result), weight=layer.outputs,
                temp=Size(token=2 * bytes_ * layer.outputs),
            )  # fmt: skip
        return self.cast(self.add(result, self.scale(b)), result.bytes)

    # -- attention -----------------------------------------------------------------------

    def rotate(self, x: Tensor, share: float = 1.0) -> Tensor:
        """apply_rotary_pos_emb: x * cos + rotate_half(x) * sin. cos and sin are shared by all
        layers; they are fp32 where the residual stream is."""
        tape, r = self.tape, self.r
        if share <= 0:
            return x
        if r.fused_rope:
            return tape.op(tape.tensor(x.width, x.bytes), (x,), passes=True)
        bytes_ = max(x.bytes, r.stream)
        width = x.width * share
        part = x
        if share < 1:
            # x[..., :n] pads its gradient back to the whole tensor.
            part = Tensor(width, x.bytes, Size(token=width * x.bytes), False, x.root)
            tape.op(part, (x,))
            rest = Tensor(
                x.width - width, x.bytes, Size(token=(x.width - width) * x.bytes), False, x.root
            )
            tape.op(rest, (x,))
        straight = tape.op(tape.tensor(width, bytes_), (part,))
        # Two slices pad their gradients to the full width (SliceBackward makes zeros).
        half = tape.op(tape.tensor(width, x.bytes), (part,), temp=Size(token=2 * width * x.bytes))
        crossed = tape.op(tape.tensor(width, bytes_), (half,))
        turned = self.add(straight, crossed)
        if share < 1:
            return tape.op(tape.tensor(x.width, bytes_), (turned, rest), passes=True)
        return turned

    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """softmax(q k^T) v on the kernel that the regime says."""
        r, m = self.r, self.model
        if r.kernel == "eager":
            return self.eager_attention(q, k, v)
        if r.kernel == "math":
            return self.math_attention(q, k, v)
        q, k, v = (self.cast(x, r.compute) for x in (q, k, v))
        heads = m.heads / r.tensor_parallel
        saves: list[Tensor] = []
        if r.kernel == "efficient" or r.dense_mask:
            k, v = self.repeat(k, q.width), self.repeat(v, heads * m.value_dim)
            if r.dense_mask:
                saves.append(self.mask())
        tape = self.tape
        out = tape.tensor(heads * m.value_dim, q.bytes)
        lse = tape.tensor(heads, 4)
        tape.op(out, (q, k, v), saves=(q, k, v, out, lse, *saves))
        if m.traits.concatenated_rope and not saves:
            # Flash lays its output out like the query, which torch.cat made head-major: bringing
            # the heads together again copies (integrations/sdpa_attention.py).
            return tape.op(tape.tensor(out.width, out.bytes), (out,))
        return out

    def mask(self) -> Tensor:
        """The bf16 copy of the [b, 1, s, s] mask that SDPA makes in every layer."""
        return self.tape.scores(1, self.r.compute)

    def repeat(self, x: Tensor, width: float) -> Tensor:
        """repeat_kv: expand and copy to all heads; backward sums over the group."""
        if x.width >= width:
            return x
        return self.tape.op(self.tape.tensor(width, x.bytes), (x,))

    def eager_attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """eager_attention_forward: scores, mask, fp32 softmax, cast, product."""
        r, m, tape = self.r, self.model, self.tape
        heads = m.heads / r.tensor_parallel
        k, v = self.repeat(k, q.width), self.repeat(v, heads * m.value_dim)
        q, k, v = (self.cast(x, r.compute) for x in (q, k, v))
        if r.batched:
            # Merging batch and heads for the products copies a slice of a fused projection.
            v = self.own(v)
        scores = tape.op(tape.scores(heads, r.compute), (q, k), saves=(q, k))
        if not m.traits.scaled_query and m.arch != "bloom":
            scores = self.scale(scores)
        if m.traits.attention_softcap:
            scores = self.scale(scores)
            capped = tape.scores(heads, r.compute)
            tape.op(capped, (scores,), saves=(capped,), temp=Size(score=heads * r.compute))
            scores = self.scale(capped)
        masked = tape.op(tape.scores(heads, max(r.compute, r.stream)), (scores,), passes=True)
        weights = tape.scores(heads, 4)
        # The softmax's backward is fp32; a half-precision gradient is made from it.
        widened = Size(score=heads * (4 - masked.bytes))
        tape.op(weights, (masked,), saves=(weights,), temp=widened)
        weights = self.cast(weights, q.bytes)
        if m.traits.attention_dropout:
            weights = self.dropout(weights)
        out = tape.op(tape.tensor(heads * m.value_dim, r.compute), (weights, v), saves=(weights, v))
        return tape.op(tape.tensor(out.width, out.bytes), (out,), passes=True)

    def math_attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """_scaled_dot_product_attention_math: scaled q and k, the scores and their softmax."""
        r, m, tape = self.r, self.model, self.tape
        heads = m.heads / r.tensor_parallel
        q, k, v = (self.cast(x, r.compute) for x in (q, k, v))
        if r.batched:
            # One sample's shared heads are broadcast as a view, several are copied.
            k, v = self.repeat(k, q.width), self.repeat(v, heads * m.value_dim)
        q, k = self.scale(q), self.scale(k)
        scores = tape.op(tape.scores(heads, q.bytes), (q, k), saves=(q, k))
        weights = tape.scores(heads, q.bytes)
        tape.op(weights, (scores,), saves=(weights,))
        # _safe_softmax zeroes rows that are masked throughout, in a tensor of its own.
        safe = tape.op(tape.scores(heads, q.bytes), (weights,))
        out = tape.op(tape.tensor(heads * m.value_dim, q.bytes), (safe, v), saves=(safe, v))
        return tape.op(tape.tensor(out.width, out.bytes), (out,))

    def project_and_attend(self, x: Tensor, linears: dict[str, Linear]) -> Tensor:
        m, r, tape = self.model, self.r, self.tape
        split = r.tensor_parallel
        width = m.heads * m.head_dim / split
        kv = max(m.kv_heads / split, 1) * m.head_dim
        if "kv_a" in linears:
            q, k, v = self.latent(x, linears)
        elif "qkv" in linears:
            q, k, v = tape.parts(self.linear(x, linears["qkv"]), (width, kv, kv))
        else:
            q = self.linear(x, linears["q"])
            if m.traits.scaled_query:
                q = self.scale(q)
            if m.qk_norm:
                q = self.norm(q)
            k = self.linear(x, linears["k"])
            if m.qk_norm:
                k = self.norm(k)
            v = self.linear(x, linears["v"])
        if "kv_a" not in linears:
            q, k = self.rotate(q, m.traits.rotary), self.rotate(k, m.traits.rotary)
        return self.linear(self.attention(q, k, v), linears["o"])

    def latent(self, x: Tensor, linears: dict[str, Linear]) -> tuple[Tensor, Tensor, Tensor]:
        """DeepSeek's multi-head latent attention: q, k and v at full head size."""
        m, tape = self.model, self.tape
        assert m.mla is not None
        _, kv_rank, nope, rope, value = m.mla
        heads = m.heads / self.r.tensor_parallel
        if "q_a" in linears:
            q = self.linear(self.norm(self.linear(x, linears["q_a"])), linears["q_b"])
        else:
            q = self.linear(x, linears["q"])
        q_nope, q_rope = tape.parts(q, (heads * nope, heads * rope))
        latent, k_rope = tape.parts(self.linear(x, linears["kv_a"]), (kv_rank, rope))
        keyed = self.linear(self.norm(latent), linears["kv_b"])
        k_nope, v = tape.parts(keyed, (heads * nope, heads * value))
        q_rope, k_rope = self.rotate(q_rope), self.rotate(k_rope)
        query = tape.op(
            tape.tensor(heads * (nope + rope), max(q_nope.bytes, q_rope.bytes)),
            (q_nope, q_rope),
            passes=True,
        )
        key = tape.op(tape.tensor(heads * (nope + rope), k_nope.bytes), (k_nope, k_rope))
        return query, key, v

    # -- feed-forward --------------------------------------------------------------------

    def activate(self, x: Tensor) -> Tensor:
        """One activation function, as many kept tensors as its implementation has."""
        tape = self.tape
        kind = self.model.activation
        width = x.width
        out = tape.tensor(width, x.bytes)
        if kind == "relu":
            return tape.op(out, (x,), saves=(out,))
        if kind == "relu2":
            first = tape.op(tape.tensor(width, x.bytes), (x,), saves=(out,))
            return tape.op(out, (first,), saves=(first,), temp=Size(token=2 * width * x.bytes))
        if kind == "gelu_bloom":
            return tape.op(out, (x,), saves=(x,), temp=Size(token=5 * width * x.bytes))
        if kind == "gelu_tanh_python":
            return self.new_gelu(x)
        if kind == "gelu_fast_python":
            return self.fast_gelu(x)
        return tape.op(out, (x,), saves=(x,))

    def new_gelu(self, x: Tensor) -> Tensor:
        """NewGELUActivation: 0.5 * x * (1 + tanh(c * (x + 0.044715 * pow(x, 3)))).

        Autocast runs pow in fp32, so that all after it is fp32.
        """
        tape, width = self.tape, x.width
        wide = 4 if self.r.amp else x.bytes
        half = self.scale(x)
        cube_in = self.cast(x, wide)
        cube = tape.op(
            tape.tensor(width, wide),
            (cube_in,),
            saves=(cube_in,),
            temp=Size(token=2 * width * wide),
        )
        inner = self.add(x, self.scale(cube))
        tanh = tape.tensor(width, wide)
        tape.op(tanh, (self.scale(inner),), saves=(tanh,))
        one = tape.op(tape.tensor(width, wide), (tanh,), passes=True)
        return tape.op(tape.tensor(width, wide), (half, one), saves=(half, one))

    def fast_gelu(self, x: Tensor) -> Tensor:
        """FastGELUActivation: 0.5 * x * (1 + tanh(x * c * (1 + 0.044715 * x * x)))."""
        tape, width, b = self.tape, x.width, x.bytes
        half = self.scale(x)
        scaled = self.scale(x)
        small = self.scale(x)
        square = tape.op(tape.tensor(width, b), (small, x), saves=(small, x))
        plus = tape.op(tape.tensor(width, b), (square,), passes=True)
        inner = tape.op(tape.tensor(width, b), (scaled, plus), saves=(scaled, plus))
        tanh = tape.tensor(width, b)
        tape.op(tanh, (inner,), saves=(tanh,))
        one = tape.op(tape.tensor(width, b), (tanh,), passes=True)
        return tape.op(tape.tensor(width, b), (half, one), saves=(half, one))

    def feed_forward(self, x: Tensor, linears: dict[str, Linear], prefix: str = "") -> Tensor:
        tape, r = self.tape, self.r
        down = linears[prefix + "down"]
        if prefix + "gate_up" in linears:
            both = self.linear(x, linears[prefix + "gate_up"])
            gate, up = tape.parts(both, (both.width / 2, both.width / 2))
            return self.linear(self.gate(gate, up), down)
        if prefix + "gate" in linears:
            gate = self.linear(x, linears[prefix + "gate"])
            if r.fused_glu:
                up = self.linear(x, linears[prefix + "up"])
                return self.linear(self.fused_gate(gate, up), down)
            active = self.activate(gate)
            up = self.linear(x, linears[prefix + "up"])
            return self.linear(self._product(active, up), down)
        return self.linear(self.activate(self.linear(x, linears[prefix + "up"])), down)

    def gate(self, gate: Tensor, up: Tensor) -> Tensor:
        return (
            self.fused_gate(gate, up)
            if self.r.fused_glu
            else self._product(self.activate(gate), up)
        )

    def _product(self, a: Tensor, b: Tensor) -> Tensor:
        out = self.tape.tensor(a.width, max(a.bytes, b.bytes))
        return self.tape.op(out, (a, b), saves=(a, b))

    def fused_gate(self, gate: Tensor, up: Tensor) -> Tensor:
        """Liger's SwiGLU and GeGLU keep gate and up and write the gradients over them."""
        return self.tape.op(self.tape.tensor(gate.width, gate.bytes), (gate, up), saves=(gate, up))

    # -- experts -------------------------------------------------------------------------

    def experts(self, x: Tensor, block: Block, linears: dict[str, Linear]) -> Tensor:
        routed = (
            self.grouped_experts(x, block)
            if self.r.experts == "grouped"
            else self.looped_experts(x, block)
        )
        if block.shared_ffn:
            return self.add(routed, self.feed_forward(x, linears, "shared_"))
        return routed

    def router(self, x: Tensor, block: Block) -> Tensor:
        """Logits and their fp32 softmax of all experts, then the chosen weights and indices."""
        tape, r = self.tape, self.r
        fp32 = self.model.arch.startswith(("deepseek", "mixtral")) and self.model.arch != "mixtral"
        logits_in = self.cast(x, 4 if fp32 else r.compute)
        saves = [logits_in] if r.train_base or r.split_ranks else []
        logits = tape.op(
            tape.tensor(block.experts, logits_in.bytes), (logits_in,), saves=saves,
            weight=block.router_numel if r.train_base else 0,
        )  # fmt: skip
        probs = tape.tensor(block.experts, 4)
        tape.op(probs, (logits,), saves=(probs,))
        chosen = tape.tensor(block.topk, 4)
        index = tape.tensor(block.topk, 8)
        tape.op(chosen, (probs,), saves=(index,), temp=Size(token=4 * block.experts))
        total = tape.tensor(1, 4)
        return self.cast(
            tape.op(tape.tensor(block.topk, 4), (chosen,), saves=(chosen, total)), x.bytes
        )

    def expert_weight(self, block: Block, numel: float, rank: float, ends: float) -> Tensor | None:
        """The stacked weight that peft's ParamWrapper makes where experts carry adapters.

        ``baddbmm`` adds the product of the factors to all experts at once, so that the whole
        stack exists a second time and gets a gradient (tuners/lora/layer.py).
        """
        r, tape = self.r, self.tape
        if not r.lora_experts:
            return None
        elements = block.experts * rank * ends
        saves = [tape.weight(elements, r.stream)] if r.adapter != r.stream else []
        return tape.op(
            tape.weight(numel, r.stream), (), saves=saves, weight=elements,
            cast_grad=r.stream if saves else 0,
        )  # fmt: skip

    def grouped_experts(self, x: Tensor, block: Block) -> Tensor:
        """grouped_mm_experts_forward: gather, two grouped products, weigh, put back, sum.

        Autocast does not reach grouped_mm: it computes in the weights' dtype.
        """
        tape, r = self.tape, self.r
        k, hidden, ffn = block.topk, x.width, block.moe_ffn
        matrices = block.expert_numel / (block.experts * self.model.hidden * ffn)
        parts = matrices - 1
        weights = self.router(x, block)
        bytes_ = r.stream
        perm = tape.tensor(k, 8)
        gathered = tape.op(tape.tensor(k * hidden, x.bytes), (x,), saves=(perm,))
        chosen = tape.op(tape.tensor(k, weights.bytes), (weights,), saves=(perm,))
        train = r.train_experts and r.train_base
        gathered = self.cast(gathered, bytes_)

        def product(source: Tensor, width: float, numel: float, rank: float, ends: float) -> Tensor:
            adapted = self.expert_weight(block, numel, rank, ends)
            inputs = (source,) if adapted is None else (source, adapted)
            saves = list(inputs) if train or adapted else []
            if r.packed_experts:
                # The unpacked stack is an argument of the product, kept for its input's gradient
                # (bitsandbytes nn/parametrize.py, transformers integrations/moe.py).
                saves.append(tape.weight(numel, bytes_))
            return tape.op(
                tape.tensor(width, bytes_), inputs, saves=saves,
                weight=numel if train else 0,
            )  # fmt: skip

        up_rank = r.rank * (2 if r.split_ranks else 1)
        both = product(
            gathered, k * ffn * parts, block.expert_numel * parts / matrices, up_rank,
            hidden + ffn * parts,
        )  # fmt: skip
        if parts == 2:
            gate, up = tape.parts(both, (k * ffn, k * ffn))
            inner = self._product(self.activate(gate), up)
        else:
            inner = self.activate(both)
        out = product(inner, k * hidden, block.expert_numel / matrices, r.rank, hidden + ffn)
        weighed = tape.op(
            tape.tensor(k * hidden, max(bytes_, chosen.bytes)), (out, chosen), saves=(out, chosen),
            temp=Size(token=k * hidden * bytes_),
        )  # fmt: skip
        inverse = tape.tensor(k, 8)
        ordered = tape.op(tape.tensor(k * hidden, weighed.bytes), (weighed,), saves=(inverse,))
        # sum's gradient is an expanded view: it takes no memory until the gather copies it.
        summed = tape.op(tape.tensor(hidden, weighed.bytes), (ordered,))
        return self.cast(summed, x.bytes)

    def looped_experts(self, x: Tensor, block: Block) -> Tensor:
        """The loop over experts: indexing, linear, chunk, product, linear, weigh, index_add."""
        tape, r = self.tape, self.r
        k, hidden, ffn = block.topk, x.width, block.moe_ffn
        weights = self.router(x, block)
        train = r.train_experts and r.train_base
        gathered = tape.op(tape.tensor(k * hidden, x.bytes), (x,), saves=(tape.tensor(2 * k, 8),))
        gathered = self.cast(gathered, r.compute)
        half = r.amp and r.stream == 4
        saves = [gathered] if train else []
        if half:
            saves.append(tape.weight(block.expert_numel * 2 / 3, r.compute))
        # select's backward makes a full stacked gradient for every expert: two are alive.
        both = tape.op(
            tape.tensor(2 * k * ffn, r.compute), (gathered,), saves=saves,
            weight=block.expert_numel * 2 / 3 if train else 0,
            temp=Size(fixed=block.expert_numel * 2 / 3 * r.stream if train else 0),
        )  # fmt: skip
        gate, up = tape.parts(both, (k * ffn, k * ffn))
        inner = self._product(self.activate(gate), up)
        saves = [inner] if train else []
        if half:
            saves.append(tape.weight(block.expert_numel / 3, r.compute))
        out = tape.op(
            tape.tensor(k * hidden, r.compute), (inner,), saves=saves,
            weight=block.expert_numel / 3 if train else 0,
            temp=Size(fixed=block.expert_numel / 3 * r.stream if train else 0),
        )  # fmt: skip
        chosen = tape.op(tape.tensor(k, weights.bytes), (weights,))
        weighed = tape.op(
            tape.tensor(k * hidden, max(out.bytes, chosen.bytes)),
            (out, chosen),
            saves=(out, chosen),
        )
        return tape.op(tape.tensor(hidden, x.bytes), (weighed,))

    # -- blocks --------------------------------------------------------------------------

    def residual_dropout(self, x: Tensor) -> Tensor:
        return self.dropout(x) if self.model.traits.dropout else x

    def block(self, x: Tensor, block: Block) -> Tensor:
        traits = self.model.traits
        linears = {layer.role: layer for layer in block.linears}
        if traits.parallel:
            first = self.norm(x)
            attended = self.project_and_attend(first, linears)
            second = self.norm(x) if traits.norms == 2 else first
            mixed = self.feed_forward(second, linears)
            return self.add(self.add(attended, mixed), x)
        attended = self.project_and_attend(self.norm(x), linears)
        if traits.post_norms:
            attended = self.norm(attended)
        x = self.add(self.residual_dropout(attended), x)
        y = self.norm(x)
        mixed = self.experts(y, block, linears) if block.experts else self.feed_forward(y, linears)
        if traits.post_norms:
            mixed = self.norm(mixed)
        return self.add(x, self.residual_dropout(mixed))


@lru_cache(maxsize=2048)
def layer_profile(model: Skeleton, block: Block, regime: Regime) -> LayerProfile:
    """Replay one block of ``model`` under ``regime``."""
    writer = _Writer(model, regime)
    tape = writer.tape
    spread = regime.tensor_parallel if regime.sequence_parallel else 1
    source = tape.tensor(model.hidden / spread, regime.stream, needs_grad=regime.input_grad)
    out = writer.block(source, block)
    return LayerProfile(tape, out, model.hidden * regime.stream)


def widest(sizes: Sequence[Size], tokens: float, scores: float) -> float:
    """The largest of some symbolic sizes at a given batch."""
    return max((s.at(tokens, scores) for s in sizes), default=0.0)


@lru_cache(maxsize=512)
def head_profile(
    model: Skeleton, regime: Regime, train_head: bool, upcast: bool, smoothing: bool
) -> LayerProfile:
    """Final norm, output projection and cross entropy with the logits materialised.

    transformers 5.23 ForCausalLMLoss: logits.float(), log_softmax, nll_loss.
    """
    writer = _Writer(model, regime)
    tape = writer.tape
    vocab = model.vocab / regime.tensor_parallel
    source = tape.tensor(model.hidden, regime.stream, needs_grad=True)
    x = writer.norm(source)
    half = regime.amp and regime.stream == 4
    x = writer.cast(x, regime.compute)
    saves = [x] if train_head else []
    if half:
        saves.append(tape.weight(vocab * model.hidden, regime.compute))
    logits = tape.op(
        tape.tensor(vocab, regime.compute), (x,), saves=saves,
        weight=vocab * model.hidden if train_head else 0,
        cast_grad=regime.compute if half else 0,
    )  # fmt: skip
    if model.traits.logit_softcap:
        capped = tape.tensor(vocab, regime.compute)
        tape.op(capped, (writer.scale(logits),), saves=(capped,))
        logits = writer.scale(capped)
    wide = writer.cast(logits, 4) if upcast or regime.amp else logits
    log_probs = tape.tensor(vocab, wide.bytes)
    tape.op(log_probs, (wide,), saves=(log_probs,))
    if smoothing:
        # LabelSmoother (trainer_pt_utils.py) sums the log-probabilities over the vocabulary too.
        log_probs = tape.op(tape.tensor(vocab, wide.bytes), (log_probs,))
    loss = tape.tensor(0, 4)
    tape.op(loss, (log_probs,))
    return LayerProfile(tape, loss, 0.0)
