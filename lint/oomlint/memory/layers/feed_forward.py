"""Feed-forward layers: activations, gates, and mixtures of experts."""

from __future__ import annotations

from oomlint.memory.layers.basics import Basics
from oomlint.memory.parameters import DecoderBlock, Linear
from oomlint.memory.tape import Size, Tensor
from oomlint.memory.traits import EXPERT_ROLES


class FeedForward(Basics):
    """Writes feed-forward layers on the tape."""

    __slots__ = ()

    def activate(self, x: Tensor) -> Tensor:
        """One activation function, as many kept tensors as its implementation has."""
        tape = self.tape
        kind = self.model.activation
        width = x.width
        out = tape.tensor(width, x.bytes)
        if kind == "relu":
            return tape.op(out, (x,), saves=(out,))
        if kind == "relu2":
            # ReLUSquaredActivation: both operations keep what relu gives.
            first = tape.tensor(width, x.bytes)
            tape.op(first, (x,), saves=(first,))
            return tape.op(out, (first,), saves=(first,), temp=Size(token=2 * width * x.bytes))
        if kind == "gelu_bloom":
            return tape.op(out, (x,), saves=(x,), temp=Size(token=5 * width * x.bytes))
        if kind == "quick_gelu":
            # QuickGELUActivation: x * sigmoid(1.702 * x).
            share = tape.tensor(width, x.bytes)
            tape.op(share, (self.scale(x),), saves=(share,))
            return self.product(x, share)
        if kind == "xielu":
            return self.xielu(x)
        if kind == "gelu_tanh_python":
            return self.new_gelu(x)
        if kind == "gelu_fast_python":
            return self.fast_gelu(x)
        return tape.op(out, (x,), saves=(x,))

    def xielu(self, x: Tensor) -> Tensor:
        """XIELUActivation: where(x > 0, a x x + b x, (expm1(min(x, eps)) - x) c + b x)."""
        tape, width, b = self.tape, x.width, x.bytes
        whole = Size(token=width * b)
        scaled = tape.op(tape.tensor(width, b), (x,), saves=(x,), temp=whole)
        square = tape.op(tape.tensor(width, b), (scaled, x), saves=(scaled, x))
        positive = self.add(square, self.scale(x))
        low = tape.op(tape.tensor(width, b), (x,), saves=(x,))
        grown = tape.tensor(width, b)
        tape.op(grown, (low,), saves=(grown,))
        less = self.add(grown, x)
        bent = tape.op(tape.tensor(width, b), (less,), saves=(less,), temp=whole)
        negative = self.add(bent, self.scale(x))
        mask = tape.tensor(width, 1)
        return tape.op(tape.tensor(width, b), (positive, negative), saves=(mask,), temp=whole)

    def new_gelu(self, x: Tensor) -> Tensor:
        """NewGELUActivation: 0.5 * x * (1 + tanh(c * (x + 0.044715 * pow(x, 3)))).

        Autocast runs pow in fp32, so that all after it is fp32.
        """
        tape, width = self.tape, x.width
        wide = 4 if self.r.amp else x.bytes
        half = self.scale(x)
        cube_in = self.cast(x, wide)
        cube = tape.op(tape.tensor(width, wide), (cube_in,), saves=(cube_in,))
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
            if prefix + "gate" in r.fused:
                return self.fused_feed_forward(x, linears)
            gate = self.linear(x, linears[prefix + "gate"])
            if r.fused_glu:
                up = self.linear(x, linears[prefix + "up"])
                return self.linear(self.fused_gate(gate, up), down)
            active = self.activate(gate)
            up = self.linear(x, linears[prefix + "up"])
            return self.linear(self.inner_dropout(self.product(active, up)), down)
        active = self.activate(self.linear(x, linears[prefix + "up"]))
        return self.linear(self.inner_dropout(active), down)

    def fused_feed_forward(self, x: Tensor, linears: dict[str, Linear]) -> Tensor:
        """LoRA_MLP: gate and up are kept; backward writes the activation over the gradient of the
        last product, and the gradients of gate and up over these (axolotl 0.19 kernels/lora.py
        and swiglu.py)."""
        tape, b = self.tape, self.r.compute
        x = self.cast(x, b)
        layers = linears["gate"], linears["up"], linears["down"]
        # Autograd sees none of what happens inside the function.
        inside = Tensor(x.width, b, x.size, False, x.root)
        gate, up = (tape.op(tape.tensor(y.outputs, b), (inside,)) for y in layers[:2])
        active = tape.op(tape.tensor(gate.width, b), (gate, up))
        return self.fused_adapters(x, layers, (gate, up), (active,))

    def inner_dropout(self, x: Tensor) -> Tensor:
        return self.dropout(x) if self.model.traits.inner_dropout else x

    def gate(self, gate: Tensor, up: Tensor) -> Tensor:
        return (
            self.fused_gate(gate, up) if self.r.fused_glu else self.product(self.activate(gate), up)
        )

    def fused_gate(self, gate: Tensor, up: Tensor) -> Tensor:
        """Liger's SwiGLU and GeGLU keep gate and up and write the gradients over them."""
        return self.tape.op(self.tape.tensor(gate.width, gate.bytes), (gate, up), saves=(gate, up))

    def experts(
        self, x: Tensor, block: DecoderBlock, linears: dict[str, Linear], seen: Tensor | None = None
    ) -> Tensor:
        """Routed experts and the shared one; the router looks at ``seen`` where that is not
        what the experts get."""
        if self.model.traits.dense_routing:
            routed = self.dense_experts(x, block)
        elif self.r.experts != "loop":
            routed = self.grouped_experts(x, block, x if seen is None else seen)
        else:
            routed = self.looped_experts(x, block, x if seen is None else seen)
        if not block.shared_ffn:
            return routed
        shared = self.feed_forward(x, linears, "shared_")
        if self.model.traits.gated_shared:
            # Qwen2MoeSparseMoeBlock: sigmoid(shared_expert_gate(x)) * shared expert.
            gate = self.tape.tensor(1, x.bytes)
            self.tape.op(
                gate, (x,), saves=(gate, x) if self.r.train_base else (gate,),
                weight=x.width if self.r.train_base else 0,
            )  # fmt: skip
            shared = self.product(shared, gate)
        return self.add(routed, shared)

    def router(self, x: Tensor, block: DecoderBlock) -> Tensor:
        """Scores of all experts, then the chosen experts' weights and indices."""
        tape, r, traits = self.tape, self.r, self.model.traits
        if traits.experts_beside:
            # Gemma4TextRouter: a norm without weights, then a trained scale of its own.
            normed = self.cast(self._normalise(x), x.bytes)
            x = self.scale(self.scaled_by_weight(normed))
        logits_in = self.cast(x, 4 if traits.router_fp32 else r.compute)
        saves = [logits_in] if r.train_base or r.adapted_router else []
        logits = tape.op(
            tape.tensor(block.experts, logits_in.bytes), (logits_in,), saves=saves,
            weight=block.router_numel if r.train_base else 0,
        )  # fmt: skip
        index = tape.tensor(block.topk, 8)
        if traits.router == "chosen":
            # GptOssTopKRouter: the softmax of the chosen logits alone.
            chosen = tape.op(tape.tensor(block.topk, logits.bytes), (logits,), saves=(index,))
            weights = tape.tensor(block.topk, logits.bytes)
            return self.cast(tape.op(weights, (chosen,), saves=(weights,)), x.bytes)
        probs = tape.tensor(block.experts, 4)
        tape.op(probs, (logits,), saves=(probs,))
        chosen = tape.tensor(block.topk, 4)
        tape.op(chosen, (probs,), saves=(index,), temp=Size(token=4 * block.experts))
        total = tape.tensor(1, 4)
        weights = tape.op(tape.tensor(block.topk, 4), (chosen,), saves=(chosen, total))
        return weights if traits.router == "sigmoid" else self.cast(weights, x.bytes)

    def expert_gate(self, both: Tensor) -> Tensor:
        """The activation between an expert's two products."""
        tape, half = self.tape, both.width / 2
        gate, up = tape.parts(both, (half, half))
        if not self.model.traits.clamped_glu:
            return self.product(self.activate(gate), up)
        # GptOssExperts._apply_gate: clamped halves, sigmoid(alpha * gate) * gate * (up + 1).
        gate = tape.op(tape.tensor(half, both.bytes), (gate,), saves=(gate,))
        up = tape.op(tape.tensor(half, both.bytes), (up,), saves=(up,))
        share = tape.tensor(half, both.bytes)
        tape.op(share, (self.scale(gate),), saves=(share,))
        glu = self.product(gate, share)
        return self.product(tape.op(tape.tensor(half, both.bytes), (up,), passes=True), glu)

    def dense_experts(self, x: Tensor, block: DecoderBlock) -> Tensor:
        """Llama4TextMoe: every expert sees every token, weighed by a score that is mostly zero."""
        tape, r = self.tape, self.r
        count, hidden, ffn = block.experts, x.width, block.moe_ffn
        train = r.train_experts and r.train_base
        scores = tape.op(
            tape.tensor(count, x.bytes), (x,), saves=(x,) if train else (),
            weight=block.router_numel if train else 0,
        )  # fmt: skip
        chosen = tape.tensor(count, 4)
        tape.op(chosen, (scores,), saves=(chosen,))
        scores = self.cast(chosen, x.bytes)
        rows = tape.op(tape.tensor(count * hidden, x.bytes), (x,))
        weighed = tape.op(
            tape.tensor(count * hidden, x.bytes), (rows, scores),
            saves=(rows, scores) if scores.needs_grad else (scores,),
            temp=Size(token=count * hidden * x.bytes),
        )  # fmt: skip
        both = tape.op(
            tape.tensor(2 * count * ffn, r.compute), (weighed,), saves=(weighed,) if train else (),
            weight=block.expert_numel * 2 / 3 if train else 0,
        )  # fmt: skip
        inner = self.expert_gate(both)
        out = tape.op(
            tape.tensor(count * hidden, r.compute), (inner,), saves=(inner,) if train else (),
            weight=block.expert_numel / 3 if train else 0,
        )  # fmt: skip
        return tape.op(tape.tensor(hidden, x.bytes), (out,))

    def expert_weight(
        self, block: DecoderBlock, numel: float, rank: float, ends: float
    ) -> Tensor | None:
        """The stacked weight that peft's ParamWrapper makes where experts carry adapters.

        ``baddbmm`` adds the product of the factors to all experts at once, so that the whole
        stack exists a second time and gets a gradient (tuners/lora/layer.py). Before peft 0.21 the product was
        made in the adapter's width, scaled into another, made the weight's, and kept until the layer was through
        (``self.added``; three layers of Qwen3-30B-A3B measured with peft 0.18.1 and 0.20.0).
        """
        r, tape = self.r, self.tape
        if not rank or block.plain_experts:
            return None
        elements = block.experts * rank * ends
        saves = [tape.weight(elements, r.stream)] if r.adapter != r.stream else []
        return tape.op(
            tape.weight(numel, r.stream), (), saves=saves, weight=elements,
            cast_grad=r.stream if saves else 0,
            forward_temp=Size(fixed=self.adding(block, numel)),
        )  # fmt: skip

    def adding(self, block: DecoderBlock, numel: float) -> float:
        """Bytes beside a stack of ``numel`` elements, which is counted by itself, while what is added to it is made."""
        r, added = self.r, self.added(block)
        width = r.compute if r.amp else r.adapter
        return max(added, added + 2 * (width - r.stream) * numel) if added else 0.0

    def added(self, block: DecoderBlock) -> float:
        """Bytes of what peft's ParamWrapper adds to the stacks of a layer, while the layer computes."""
        r = self.r
        if not r.copied_stacks or block.plain_experts:
            return 0.0
        down = block.expert_numel / block.expert_matrices(self.model.hidden)
        sizes = (block.expert_numel - down, down)
        return r.stream * sum(n for n, rank in zip(sizes, r.stack_ranks, strict=True) if rank)

    def scaled_by_weight(self, x: Tensor) -> Tensor:
        """x times a trained vector."""
        train = self.r.train_norms
        return self.tape.op(
            self.tape.tensor(x.width, x.bytes), (x,), saves=(x,) if train else (),
            weight=x.width if train else 0,
            temp=Size(token=x.width * x.bytes) if train else Size(),
        )  # fmt: skip

    def grouped_experts(self, x: Tensor, block: DecoderBlock, seen: Tensor) -> Tensor:
        """grouped_mm_experts_forward: gather, two grouped products, weigh, put back, sum.

        Autocast does not reach grouped_mm: it computes in the weights' dtype. Packed layers of each
        expert's own compute like all others, one after the other (transformers 4.57
        models/mixtral/modeling_mixtral.py).

        Of ranks that split layers each routes its own part of the tokens where sequences are split;
        those that share an expert get each other's tokens and a part of its width
        (megatron/core/transformer/moe/token_dispatcher.py MoEAlltoAllTokenDispatcher).
        """
        tape, r = self.tape, self.r
        k, hidden = block.topk, x.width * (r.expert_tensor_parallel if r.sequence_parallel else 1)
        matrices = block.expert_numel / (block.experts * self.model.hidden * block.moe_ffn)
        # All tokens and a part of each expert, or a part of the tokens and whole experts.
        ffn = block.moe_ffn / (
            r.tensor_parallel if r.sequence_parallel else r.expert_tensor_parallel
        )
        parts = matrices - 1
        weights = self.router(seen, block)
        bytes_ = r.compute if r.apart_experts else r.stream
        perm = tape.tensor(k, 8)
        gathered = tape.op(tape.tensor(k * hidden, x.bytes), (x,), saves=(perm,))
        chosen = tape.op(tape.tensor(k, weights.bytes), (weights,), saves=(perm,))
        train = r.train_experts and r.train_base
        rows = gathered
        gathered = self.cast(gathered, bytes_)

        def product(source: Tensor, width: float, numel: float, rank: float, ends: float) -> Tensor:
            adapted = self.expert_weight(block, numel, rank, ends)
            inputs = (source,) if adapted is None else (source, adapted)
            saves = list(inputs) if train or adapted else []
            unpacked = Size()
            if r.apart_experts:
                unpacked = Size(fixed=block.expert_numel / block.experts / matrices * bytes_)
            elif r.packed_experts:
                # The unpacked stack is an argument of the product, kept for its input's gradient
                # (bitsandbytes nn/parametrize.py, transformers integrations/moe.py).
                saves.append(tape.weight(numel, bytes_))
            return tape.op(
                tape.tensor(width, bytes_), inputs, saves=saves,
                weight=numel if train else 0, temp=unpacked, forward_temp=Size(fixed=unpacked.fixed + self.added(block)),
            )  # fmt: skip

        each = block.expert_numel / matrices

        def layer(role: str, source: Tensor, width: float, *, down: bool = False) -> Tensor:
            """One of the linear layers that every expert has of its own, with its adapter."""
            made = product(self.cast(source, bytes_), k * width, each, 0, 0)
            if role not in r.targets:
                return made
            ends = (block.moe_ffn, self.model.hidden)
            one = Linear(role, *(ends if down else ends[::-1]))
            return self.adapter(source, made, one, rows=k, copies=block.experts)

        def stack(source: Tensor, outputs: float, numel: float, rank: int, inputs: float) -> Tensor:
            """One of the two products with all experts' weights in one, and with its adapters."""
            if not r.grouped_adapters:
                return product(source, k * outputs, numel, rank, inputs + outputs)
            made = product(source, k * outputs, numel, 0, 0)
            if not rank:
                return made
            one = Linear("experts", round(inputs), round(outputs))
            return self.adapter(source, made, one, rows=k, copies=block.experts)

        if r.targets.isdisjoint(EXPERT_ROLES):
            up_rank, down_rank = r.stack_ranks
            both = stack(gathered, ffn * parts, each * parts, up_rank, hidden)
            inner = self.inner_of_experts(both, chosen, parts)
            out = stack(inner, hidden, each, down_rank, ffn)
        else:
            up = layer("expert_up", rows, ffn)
            gate = layer("expert_gate", rows, ffn) if parts == 2 else None
            out = layer("expert_down", self.inner_of_layers(up, gate), hidden, down=True)
        return self.put_back(self.weighed_rows(out, chosen), x, k)

    def inner_of_experts(self, both: Tensor, chosen: Tensor, parts: float) -> Tensor:
        """What stands between the two products; one function activates and weighs, and keeps what it got
        (megatron/core/fusions/fused_bias_swiglu.py WeightedSwiGLUFunction), where experts are ``weighted``."""
        if self.r.experts != "weighted":
            return self.expert_gate(both) if parts == 2 else self.activate(both)
        made = self.tape.tensor(both.width / parts, both.bytes)
        return self.tape.op(made, (both, chosen), saves=(both, chosen))

    def inner_of_layers(self, up: Tensor, gate: Tensor | None) -> Tensor:
        """The same of experts whose layers lie apart."""
        return self.activate(up) if gate is None else self.product(self.activate(gate), up)

    def weighed_rows(self, out: Tensor, chosen: Tensor) -> Tensor:
        """What comes of the second product times the router's weights, where the activation has not taken these in."""
        if self.r.experts == "weighted":
            return out
        return self.tape.op(
            self.tape.tensor(out.width, max(out.bytes, chosen.bytes)), (out, chosen), saves=(out, chosen),
            temp=Size(token=out.width * out.bytes),
        )  # fmt: skip

    def put_back(self, rows: Tensor, x: Tensor, k: int) -> Tensor:
        """Each token's rows in their order again, and their sum."""
        tape, inverse = self.tape, self.tape.tensor(k, 8)
        ordered = tape.op(tape.tensor(rows.width, rows.bytes), (rows,), saves=(inverse,))
        # sum's gradient is an expanded view: it takes no memory until the gather copies it.
        summed = tape.op(tape.tensor(x.width, rows.bytes), (ordered,))
        return self.cast(summed, x.bytes)

    def looped_experts(self, x: Tensor, block: DecoderBlock, seen: Tensor) -> Tensor:
        """The loop over experts: indexing, linear, chunk, product, linear, weigh, index_add."""
        tape, r = self.tape, self.r
        k, hidden, ffn = block.topk, x.width, block.moe_ffn
        weights = self.router(seen, block)
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
        inner = self.expert_gate(both)
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
