"""Attention: rotation, the kernels that a GPU would choose, and the projections around them."""

from __future__ import annotations

from typing import Literal

from oomlint.memory.layers.basics import Basics
from oomlint.memory.parameters import Linear
from oomlint.memory.tape import Size, Tensor


class Attention(Basics):
    """Writes attention on the tape."""

    __slots__ = ("masks",)

    masks: Literal["none", "causal", "crossed"]
    """What is masked beside padding, where positions are a bias of the scores."""

    def rotate(self, x: Tensor, share: float = 1.0) -> Tensor:
        """apply_rotary_pos_emb: x * cos + rotate_half(x) * sin. cos and sin are shared by all
        layers; they are fp32 where the residual stream is."""
        tape, r = self.tape, self.r
        if share <= 0:
            return x
        if r.fused_rope:
            return tape.op(tape.tensor(x.width, x.bytes), (x,), passes=True)
        bytes_ = 4 if self.model.traits.wide_rope else max(x.bytes, self.residual)
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
        if self.model.traits.wide_rope:
            turned = self.cast(turned, x.bytes)
            bytes_ = x.bytes
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
        q, k, v = (self.cast(x, r.compute if r.kernel == "flash" else r.whole) for x in (q, k, v))
        heads = m.heads / r.tensor_parallel
        values = v.width * q.width / k.width
        saves: list[Tensor] = []
        if r.kernel == "efficient" or r.dense_mask:
            if k.width < q.width == k.width * heads:
                # One head for all is spread as a view.
                k, v = self.spread(k, q.width), self.spread(v, values)
            else:
                k, v = self.repeat(k, q.width), self.repeat(v, values)
            if r.bias_share:
                saves.extend(self.biased_mask(heads))
            elif r.dense_mask:
                saves.append(self.mask())
        tape = self.tape
        out = tape.tensor(values, q.bytes)
        lse = tape.tensor(heads, 4)
        tape.op(out, (q, k, v), saves=(q, k, v, out, lse, *saves))
        if (m.traits.concatenated_rope or m.traits.head_major) and not saves:
            # Flash lays its output out like the query, which torch.cat or contiguous() made head-major: bringing
            # the heads together again copies (integrations/sdpa_attention.py).
            return tape.op(tape.tensor(out.width, out.bytes), (out,))
        return out

    def mask(self) -> Tensor:
        """The bf16 copy of the [b, 1, s, s] mask that SDPA makes in every layer."""
        return self.tape.scores(1, self.r.whole)

    def biased_mask(self, heads: float) -> tuple[Tensor, ...]:
        """The bias of all heads, copied in every block for the batch as one, or for each sample where padding is masked
        in it (transformers 5.15 integrations/sdpa_attention.py create_position_bias_mask). Attention to the encoder has
        one of zeros for all blocks until padding is; a decoder's own masks no padding."""
        share = self.r.bias_share
        if self.r.dense_mask and self.masks != "causal":
            share = 1.0
        elif self.masks == "crossed":
            return ()
        return (self.tape.scores(heads * share, self.r.whole),)

    def repeat(self, x: Tensor, width: float) -> Tensor:
        """repeat_kv: expand and copy to all heads; backward sums over the group."""
        if x.width >= width:
            return x
        return self.tape.op(self.tape.tensor(width, x.bytes), (x,))

    def spread(self, x: Tensor, width: float) -> Tensor:
        """An expanded view of ``x``, whose gradient is as wide as it looks."""
        out = Tensor(width, x.bytes, Size(token=width * x.bytes), False, x.root)
        return self.tape.op(out, (x,))

    def eager_attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """eager_attention_forward: scores, mask, fp32 softmax, cast, product."""
        r, m, tape = self.r, self.model, self.tape
        heads = m.heads / r.tensor_parallel
        k, v = self.repeat(k, q.width), self.repeat(v, v.width * q.width / k.width)
        q, k, v = (self.cast(x, r.whole) for x in (q, k, v))
        if r.batched:
            # Merging batch and heads for the products copies a slice of a fused projection.
            v = self.own(v)
        wide = 4 if m.traits.wide_scores and not r.amp else r.whole
        q, k = self.cast(q, wide), self.cast(k, wide)
        scores = tape.op(tape.scores(heads, wide), (q, k), saves=(q, k))
        # Where scores are scaled, that is never the highest instant: the softmax of them is as wide, and its backward wider.
        if m.traits.attention_softcap:
            scores = self.scale(scores)
            capped = tape.scores(heads, r.whole)
            tape.op(capped, (scores,), saves=(capped,), temp=Size(score=heads * r.whole))
            scores = self.scale(capped)
        masked = tape.op(tape.scores(heads, max(wide, r.stream)), (scores,), passes=True)
        if m.traits.sinks:
            return self.sink_attention(masked, v)
        weights = tape.scores(heads, 4 if r.amp or not m.traits.half_softmax else masked.bytes)
        # The softmax's backward is fp32; a half-precision gradient is made from it.
        widened = heads * (weights.bytes - masked.bytes)
        beside = Size(score=widened + self.product_of(weights))
        tape.op(weights, (masked,), saves=(weights,), temp=beside)
        weights = self.cast(weights, r.whole)
        if m.traits.attention_dropout:
            weights = self.dropout(weights)
        out = tape.op(tape.tensor(v.width, r.whole), (weights, v), saves=(weights, v))
        return tape.op(tape.tensor(out.width, out.bytes), (out,), passes=True)

    def product_of(self, weights: Tensor) -> float:
        """Bytes a score of the product of weights and gradient that CUDA's softmax makes before its own backward kernel
        (torch 2.13 aten/src/ATen/native/cuda/SoftMax.cu softmax_backward_cuda_out: ``Tensor tmp = grad * output``)."""
        return weights.width * weights.bytes if self.r.scratch else 0.0

    def sink_attention(self, scores: Tensor, v: Tensor) -> Tensor:
        """gpt-oss: one more score a head, the maximum taken off, softmax in the scores' dtype."""
        r, tape, width = self.r, self.tape, scores.width
        size = Size(score=width * scores.bytes)
        joined = tape.op(
            tape.scores(width, scores.bytes), (scores,), weight=width if r.train_base else 0
        )
        moved = tape.op(tape.scores(width, scores.bytes), (joined,), passes=True)
        weights = tape.scores(width, scores.bytes)
        tape.op(weights, (moved,), saves=(weights,), temp=Size(score=self.product_of(weights)))
        cast = self.cast(weights, v.bytes)
        # Leaving the sink's column out pads its gradient back to the whole tensor.
        out = tape.op(
            tape.tensor(v.width, r.whole), (cast, v), saves=(cast, v), temp=size
        )  # fmt: skip
        return tape.op(tape.tensor(out.width, out.bytes), (out,), passes=True)

    def math_attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """_scaled_dot_product_attention_math: scaled q and k, the scores and their softmax."""
        r, m, tape = self.r, self.model, self.tape
        heads = m.heads / r.tensor_parallel
        values = v.width * q.width / k.width
        q, k, v = (self.cast(x, r.whole) for x in (q, k, v))
        if r.batched:
            # One sample's shared heads are broadcast as a view, several are copied.
            k, v = self.repeat(k, q.width), self.repeat(v, values)
        q, k = self.scale(q), self.scale(k)
        scores = tape.op(tape.scores(heads, q.bytes), (q, k), saves=(q, k))
        weights = tape.scores(heads, q.bytes)
        tape.op(weights, (scores,), saves=(weights,), temp=Size(score=self.product_of(weights)))
        # _safe_softmax zeroes rows that are masked throughout, in a tensor of its own.
        safe = tape.op(tape.scores(heads, q.bytes), (weights,))
        out = tape.op(tape.tensor(values, q.bytes), (safe, v), saves=(safe, v))
        return tape.op(tape.tensor(out.width, out.bytes), (out,))

    def project_and_attend(
        self,
        x: Tensor,
        linears: dict[str, Linear],
        source: Tensor | None = None,
        shared: float = 0.0,
    ) -> Tensor:
        """Projections and attention of ``x`` to itself, or to ``source``; without a projection to
        keys, to those of ``shared`` elements a token that a block below has made."""
        source = x if source is None else source
        m, r, tape = self.model, self.r, self.tape
        split = r.tensor_parallel
        width = m.heads * m.head_dim / split
        kv = max(m.kv_heads / split, 1) * m.head_dim
        gate: Tensor | None = None
        if "kv_a" in linears:
            q, k, v = self.latent(x, linears)
        elif "qkv" in linears:
            q, k, v = self.projected_together(x, linears["qkv"], width, kv)
        else:
            q, gate = self.queries(x, linears["q"], width)
            if "k" in linears:
                k, v = self.keys_and_values(source, linears)
            else:
                k = v = Tensor(shared / split, r.compute, Size(), needs_grad=True)
        if "kv_a" not in linears:
            q = self.rotate(q, m.traits.rotary)
            k = k if k is v else self.rotate(k, m.traits.rotary)
        if m.traits.l2_qk_norm and m.qk_norm:
            q, k = (self.cast(self._normalise(y), y.bytes) for y in (q, k))
        attended = self.attention(q, k, v)
        if "o_gate" in linears:
            gate = self.linear(x, linears["o_gate"])
        if gate is not None:
            share = tape.tensor(gate.width, gate.bytes)
            tape.op(share, (gate,), saves=(share,))
            attended = self.product(attended, share)
        return self.linear(attended, linears["o"])

    def projected_together(
        self, x: Tensor, layer: Linear, width: float, kv: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of one projection."""
        m, tape = self.model, self.tape
        joined = self.linear(x, layer)
        if m.traits.clamped_qkv:
            # clamp_ keeps what was there before it for its backward.
            joined = tape.op(tape.tensor(joined.width, joined.bytes), (joined,), saves=(joined,))
        kv = max(kv, (joined.width - width) / 2)
        q, k, v = tape.parts(joined, (width, kv, kv))
        if m.qk_norm and not m.traits.l2_qk_norm:
            q, k = self.norm(q), self.norm(k)
        if m.arch == "falcon" and m.kv_heads not in (1, m.heads):
            # FalconAttention._split_heads broadcasts keys and values to all query heads.
            q, k, v = self.own(q), self.repeat(k, width), self.repeat(v, width)
        return q, k, v

    def queries(self, x: Tensor, layer: Linear, width: float) -> tuple[Tensor, Tensor | None]:
        """Of a projection of their own, and the gate that some make beside them."""
        m = self.model
        q = self.linear(x, layer)
        gate: Tensor | None = None
        if m.traits.gated_query:
            q, gate = self.tape.parts(q, (width, width))
            gate = self.own(gate)
        if m.traits.scaled_query:
            q = self.scale(q)
        if m.qk_norm and not m.traits.l2_qk_norm:
            q = self.norm(q)
        return q, gate

    def keys_and_values(self, source: Tensor, linears: dict[str, Linear]) -> tuple[Tensor, Tensor]:
        """Of projections of their own, or of one that is both."""
        m = self.model
        k = projected = self.linear(source, linears["k"])
        if m.qk_norm and not m.traits.l2_qk_norm:
            k = self.norm(k)
        v = self.linear(source, linears["v"]) if "v" in linears else projected
        if m.traits.value_norm:
            v = self.cast(self._normalise(v), v.bytes)
        return k, v

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
