"""Casts, additions, norms and linear layers, from which blocks are put together."""

from __future__ import annotations

from oomlint.memory.layers.regime import Regime
from oomlint.memory.parameters import DecoderStructure, Linear
from oomlint.memory.tape import Size, Tape, Tensor


class Basics:
    """Writes modules of ``model`` on a tape under one regime."""

    __slots__ = ("_dropped", "model", "r", "tape")

    def __init__(self, model: DecoderStructure, regime: Regime) -> None:
        self.tape = Tape()
        self.model = model
        self.r = regime
        self._dropped: tuple[Tensor, Tensor] | None = None

    @property
    def residual(self) -> int:
        """Bytes an element between blocks: streams that autocast has scaled in fp32 stay so."""
        return 4 if self.r.amp and self.model.traits.streams > 1 else self.r.stream

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

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        out = self.tape.tensor(a.width, max(a.bytes, b.bytes))
        return self.tape.op(out, (a, b), saves=(a, b))

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
        if kind == "ln_fp32":
            return self.written_layer_norm(x)
        if kind == "ln_plain":
            return self.plain_layer_norm(x)
        if self.r.fused_norm:
            return self.fused_rms_norm(x)
        if kind == "t5":
            return self.t5_norm(x)
        if kind == "rms_fp32_weight":
            return self.gemma_norm(x)
        return self.rms_norm(x)

    def _normalise(self, x: Tensor) -> Tensor:
        """x * rsqrt(mean(x^2)) in fp32: the pow, mean, rsqrt and mul of every RMSNorm."""
        tape, width = self.tape, x.width
        x32 = self.cast(x, 4)
        # pow's backward holds pow(x, 1), its product with 2 and the result at once
        # (tools/autograd/templates FunctionsManual.cpp pow_backward), beside mean's gradient. It is the last and
        # highest of a norm, so that what products before it need inside counts for nothing.
        square = tape.op(tape.tensor(width, 4), (x32,), saves=(x32,), temp=Size(token=8 * width))
        mean = tape.op(tape.tensor(1, 4), (square,))
        scale = tape.tensor(1, 4)
        tape.op(scale, (mean,), saves=(scale,))
        return tape.op(tape.tensor(width, 4), (x32, scale), saves=(x32, scale))

    def rms_norm(self, x: Tensor) -> Tensor:
        """LlamaRMSNorm: weight * normalised.to(input dtype)."""
        tape, width = self.tape, x.width
        trained = self.r.train_norms
        normed = self.cast(self._normalise(x), x.bytes)
        return tape.op(
            tape.tensor(width, x.bytes), (normed,), saves=(normed,) if trained else (),
            weight=width if trained else 0,
        )  # fmt: skip

    def gemma_norm(self, x: Tensor) -> Tensor:
        """GemmaRMSNorm: (normalised * (1 + weight.float())).to(input dtype)."""
        tape, width = self.tape, x.width
        trained = self.r.train_norms
        normed = self._normalise(x)
        out = tape.op(
            tape.tensor(width, 4), (normed,), saves=(normed,) if trained else (),
            weight=width if trained else 0,
        )  # fmt: skip
        return self.cast(out, x.bytes)

    def t5_norm(self, x: Tensor) -> Tensor:
        """T5LayerNorm: the variance in fp32, its root times the input as it is."""
        tape, width, trained = self.tape, x.width, self.r.train_norms
        x32 = self.cast(x, 4)
        square = tape.op(tape.tensor(width, 4), (x32,), saves=(x32,), temp=Size(token=8 * width))
        mean = tape.op(tape.tensor(1, 4), (square,))
        scale = tape.tensor(1, 4)
        tape.op(scale, (mean,), saves=(scale,))
        normed = tape.op(tape.tensor(width, 4), (x, scale), saves=(x, scale))
        normed = self.cast(normed, x.bytes)
        return tape.op(
            tape.tensor(width, x.bytes), (normed,), saves=(normed,) if trained else (),
            weight=width if trained else 0,
        )  # fmt: skip

    def fused_rms_norm(self, x: Tensor) -> Tensor:
        """Liger's RMSNorm keeps its input and one fp32 number a token (ops/rms_norm.py)."""
        tape = self.tape
        scale = tape.tensor(1, 4)
        return tape.op(
            tape.tensor(x.width, x.bytes), (x,), saves=(x, scale),
            weight=x.width if self.r.train_norms else 0,
        )  # fmt: skip

    def layer_norm(self, x: Tensor) -> Tensor:
        """native_layer_norm: keeps input, mean and rstd; autocast runs it in fp32 unless the class casts for itself."""
        tape = self.tape
        if self.r.amp:
            x = self.cast(x, self.r.compute if self.model.traits.narrow_norm else 4)
        stats = tape.tensor(2, 4)
        return tape.op(
            tape.tensor(x.width, x.bytes), (x,), saves=(x, stats),
            weight=2 * x.width if self.r.train_norms else 0,
        )  # fmt: skip

    def written_layer_norm(self, x: Tensor) -> Tensor:
        """CohereLayerNorm: the mean is taken off twice, for the variance and for the result."""
        tape, width = self.tape, x.width
        full = Size(token=4 * width)
        trained = self.r.train_norms
        x32 = self.cast(x, 4)
        first = tape.op(tape.tensor(width, 4), (x32,), passes=True)
        square = tape.op(
            tape.tensor(width, 4), (first,), saves=(first,), temp=Size(token=8 * width)
        )
        variance = tape.op(tape.tensor(1, 4), (square,))
        second = tape.op(tape.tensor(width, 4), (x32,), passes=True)
        scale = tape.tensor(1, 4)
        tape.op(scale, (variance,), saves=(scale,))
        normed = tape.op(tape.tensor(width, 4), (second, scale), saves=(second, scale))
        out = tape.op(
            tape.tensor(width, 4), (normed,), saves=(normed,) if trained else (),
            temp=full if trained else Size(), weight=width if trained else 0,
        )  # fmt: skip
        return self.cast(out, x.bytes)

    def plain_layer_norm(self, x: Tensor) -> Tensor:
        """OlmoLayerNorm: torch's, in fp32, without weights."""
        tape = self.tape
        x32 = self.cast(x, 4)
        out = tape.op(tape.tensor(x.width, 4), (x32,), saves=(x32, tape.tensor(2, 4)))
        return self.cast(out, x.bytes)

    # -- linear layers -------------------------------------------------------------------

    def gathered(self, x: Tensor) -> Tensor:
        """The input of layers that split their outputs, with the tokens that sequence parallelism has on the other ranks.

        Of DTensors the gathered input is what the products keep, and their gradient is as large (torchtitan
        b5bcd76c models/llama3/parallelize.py: PrepareModuleInput of attention and feed-forward); Megatron's layers keep
        their own tokens and gather the rest anew, into a buffer for all (core/tensor_parallel/layers.py
        LinearWithGradAccumulationAndAsyncCommunication)."""
        if not self.r.keeps_gathered:
            return x
        return self.tape.op(self.tape.tensor(x.width * self.r.tensor_parallel, x.bytes), (x,))

    def linear(self, x: Tensor, layer: Linear) -> Tensor:
        r, tape = self.r, self.tape
        if layer.role in r.fused:
            return self.fused_adapters(self.cast(x, r.compute), (layer,))
        split = r.tensor_parallel
        outputs: float = layer.outputs
        if split > 1:
            # Column-parallel layers split their outputs, row-parallel ones put whole outputs
            # together, which sequence parallelism scatters over the tokens (arXiv 2205.05198).
            row = layer.role in ("o", "down", "shared_down")
            outputs /= (split if r.sequence_parallel else 1) if row else split
        half = r.amp and r.stream == 4 and not r.quantised
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
        if r.quantised and r.stream == 4:
            out = self.cast(out, source.bytes)
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

    def adapter(
        self, x: Tensor, result: Tensor, layer: Linear, *, rows: int = 1, copies: int = 1
    ) -> Tensor:
        """peft lora.Linear: result + B(A(dropout(x.to(adapter dtype)))) * scaling. A token goes to ``rows`` of the
        ``copies`` that experts have of such a layer."""
        r, tape = self.r, self.tape
        bytes_ = r.compute if r.amp else r.adapter
        if r.adapter != x.bytes:
            x = self.cast(x, r.adapter)
        if r.dropout:
            x = self.dropout(x)
        x = self.cast(x, bytes_)
        casts = r.amp and r.adapter == 4
        a_weight, b_weight = copies * layer.inputs * r.rank, copies * layer.outputs * r.rank
        a_saves, b_saves = [x], []
        if casts:
            a_saves.append(tape.weight(a_weight, bytes_))
            b_saves.append(tape.weight(b_weight, bytes_))
        cast_grad = bytes_ if casts else 0
        a = tape.op(
            tape.tensor(rows * r.rank, bytes_), (x,), saves=a_saves, weight=a_weight,
            cast_grad=cast_grad,
        )  # fmt: skip
        scattered = layer.role == "qkv" and r.scattered < 1
        adapted = rows * layer.outputs * (r.scattered if scattered else 1.0)
        b = tape.op(
            tape.tensor(adapted, bytes_), (a,), saves=(a, *b_saves), weight=b_weight,
            cast_grad=cast_grad,
        )  # fmt: skip
        if scattered:
            # LoRAQKVLinear.zero_pad (litgpt/lora.py): index_copy_ keeps its source for backward.
            b = tape.op(tape.tensor(layer.outputs, bytes_), (b,), saves=(b,))
        if r.dora:
            # dora.py: the magnitude multiplies the base result and the product, both kept.
            magnitude = tape.tensor(rows * layer.outputs, bytes_)
            b = tape.op(
                magnitude, (b, result), saves=(b, result), weight=copies * layer.outputs,
                temp=Size(token=2 * bytes_ * rows * layer.outputs),
            )  # fmt: skip
        return self.cast(self.add(result, self.scale(b)), result.bytes)

    def fused_adapters(
        self,
        x: Tensor,
        layers: tuple[Linear, ...],
        kept: tuple[Tensor, ...] = (),
        spent: tuple[Tensor, ...] = (),
    ) -> Tensor:
        """Adapted layers in one function, whose backward computes from its input and ``kept``.

        Neither the products with the factors nor wider copies of the input are kept (axolotl 0.19
        kernels/lora.py LoRA_MLP, LoRA_QKV, LoRA_O; unsloth kernels/fast_lora.py); factors of
        another dtype are, as they were cast. ``spent`` are alive until forward is through, and
        tensors of their size in backward.
        """
        r, tape = self.r, self.tape
        sources = (x, self.dropped(x)) if r.dropout else (x,)
        ends = sum(r.rank * (layer.inputs + layer.outputs) for layer in layers)
        casts = r.adapter != r.compute
        factors = (tape.weight(ends, r.compute),) if casts else ()
        unpacked = max(layer.numel for layer in layers) * r.compute if r.quantised else 0
        made = sum(y.size.token for y in spent)
        return tape.op(
            tape.tensor(layers[-1].outputs, r.compute), (*sources, *kept, *spent),
            saves=(*sources, *kept, *factors), weight=ends, cast_grad=r.compute if casts else 0,
            temp=Size(token=made, fixed=unpacked), forward_temp=Size(fixed=unpacked),
        )  # fmt: skip

    def dropped(self, x: Tensor) -> Tensor:
        """``x`` after the dropout that the projections of one input share."""
        if self._dropped is None or self._dropped[0] is not x:
            self._dropped = x, self.dropout(x)
        return self._dropped[1]
