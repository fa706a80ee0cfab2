"""What one block, or the head of a model, costs: its tape replayed once for every batch size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec.structs import replace

from oomlint.memory.layers.attention import Attention
from oomlint.memory.layers.mixers import Mixers
from oomlint.memory.layers.regime import FLASH_HEAD, Regime, interned
from oomlint.memory.layers.streams import Streams
from oomlint.memory.parameters import DecoderBlock, DecoderStructure, Linear
from oomlint.memory.tape import Moment, Size, Tape, Tensor


class LayerProfile:
    """What one block costs; sizes are on top of its input, which the caller counts.

    ``forward`` are the highest instants of forward in training, ``inference`` those without
    gradients (and of the recomputation under checkpointing), ``backward`` those of backward; each
    is found when asked for.
    """

    __slots__ = (
        "_backward", "_forward", "_inference", "_out", "_tape", "_twice", "input_bytes", "saved",
        "trained",
    )  # fmt: skip

    def __init__(self, tape: Tape, out: Tensor, input_bytes: float) -> None:
        self._tape = tape
        self._out = out
        self._backward: tuple[Moment, ...] | None = None
        self._forward: tuple[Size, ...] | None = None
        self._inference: tuple[Size, ...] | None = None
        self._twice: Size | None = None
        self.saved: Size = tape.saved()
        self.trained: float = tape.trained_elements
        self.input_bytes = input_bytes

    @property
    def backward(self) -> tuple[Moment, ...]:
        if self._backward is None:
            self._backward = self._tape.replay(self._out) if self._out.needs_grad else ()
        return self._backward

    @property
    def saved_twice(self) -> Size:
        """What more than one operation keeps."""
        if self._twice is None:
            self._twice = self._tape.saved_twice()
        return self._twice

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


class _Shortened(LayerProfile):
    """A profile whose tokens are a ``share`` of what is counted, beside ``read`` bytes of each of all of these."""

    __slots__ = ("_read", "_share", "_whole")

    def __init__(self, whole: LayerProfile, share: float, read: float) -> None:
        self._whole, self._share, self._read = whole, share, read * max(0.0, 1 - share)
        self._backward = self._forward = self._inference = None
        self.saved = self._less(whole.saved)
        self.trained = whole.trained
        self.input_bytes = whole.input_bytes * share

    def _less(self, size: Size) -> Size:
        # Of a decoder's two attentions one has as many scores as the target squared, the other as target and source.
        share = self._share
        token = size.token * share + self._read
        return Size(token, size.score * share * (1 + share) / 2, size.fixed)

    @property
    def backward(self) -> tuple[Moment, ...]:
        if self._backward is None:
            less = (
                (self._less(Size(*moment[:3])), moment.grads) for moment in self._whole.backward
            )
            self._backward = tuple(Moment(*size, grads) for size, grads in less)
        return self._backward

    @property
    def forward(self) -> tuple[Size, ...]:
        if self._forward is None:
            self._forward = tuple(map(self._less, self._whole.forward))
        return self._forward

    @property
    def inference(self) -> tuple[Size, ...]:
        if self._inference is None:
            self._inference = tuple(map(self._less, self._whole.inference))
        return self._inference


@lru_cache(maxsize=256)
def shortened(profile: LayerProfile, share: float, read: float) -> LayerProfile:
    """The profile of a decoder's block, of which a token stands for one of the encoder's sample: it runs on a ``share``
    of so many, and keeps ``read`` bytes of keys and values for each that the encoder has read."""
    return _Shortened(profile, share, read)


class Decoder(Attention, Streams, Mixers):
    """Writes whole blocks on the tape."""

    __slots__ = ()

    def residual_dropout(self, x: Tensor) -> Tensor:
        return self.dropout(x) if self.model.traits.dropout else x

    def predicted(self, x: Tensor, block: DecoderBlock) -> Tensor:
        """A block of multi-token prediction (torchtitan b5bcd76c models/deepseek_v3/mtp.py MTPTransformerBlock;
        Megatron-LM d98e8a64 core/transformer/multi_token_prediction.py _concat_embeddings, _postprocess)."""
        tape = self.tape
        # The embeddings of later tokens are looked up once more.
        later = tape.tensor(x.width, x.bytes, needs_grad=self.r.train_base)
        normed = (self.norm(later), self.norm(x))
        both = self.gathered(tape.op(tape.tensor(2 * x.width, x.bytes), normed))
        joined = self.linear(both, next(y for y in block.linears if y.role == "mtp_join"))
        if joined.width != x.width:
            joined = tape.op(tape.tensor(x.width, joined.bytes), (joined,))
        return self.norm(self.block(self.cast(joined, x.bytes), block))

    def block(self, x: Tensor, block: DecoderBlock) -> Tensor:
        traits = self.model.traits
        linears = {layer.role: layer for layer in block.linears}
        self.masks = "causal" if block.crosses else "none"
        if traits.streams > 1:
            return self.streamed(x, block, linears)
        if traits.parallel:
            first = self.gathered(self.norm(x))
            attended = self.project_and_attend(first, linears)
            second = self.gathered(self.norm(x)) if traits.norms == 2 else first
            mixed = self.feed_forward(second, linears)
            return self.add(self.add(attended, mixed), x)
        if traits.post_norms_only:
            # Olmo2DecoderLayer: what attention and feed-forward give is normed, not their input.
            x = self.add(self.norm(self.mixed(x, block, linears)), x)
            return self.add(x, self.norm(self.feed_forward(self.gathered(x), linears)))
        if block.mixers:
            attended = self.mixed(self.norm(x), block, linears)
            if traits.post_norms:
                attended = self.norm(attended)
            x = self.add(self.scaled(self.residual_dropout(attended)), x)
        x = self.crossed(x, linears) if block.crosses else x
        if not block.feeds:
            return x
        mixed = self.fed(x, block, linears)
        if traits.post_norms:
            mixed = self.norm(mixed)
        x = self.add(x, self.scaled(self.residual_dropout(mixed)))
        if "input_gate" in linears:
            x = self.add(x, self.layer_input(x, linears))
        if traits.output_scale:
            # Gemma4TextDecoderLayer multiplies its output in place by a number.
            x = self.tape.op(Tensor(x.width, x.bytes, x.size, False, x.root), (x,))
        return x

    def crossed(self, x: Tensor, linears: dict[str, Linear]) -> Tensor:
        """A decoder's attention to what the encoder gives."""
        # The encoder's output is one tensor for all layers of the decoder.
        encoded = Tensor(x.width, x.bytes, Size(), needs_grad=True)
        crossed = {
            role.removeprefix("cross_"): layer
            for role, layer in linears.items()
            if role.startswith("cross_")
        }
        self.masks = "crossed"
        attended = self.project_and_attend(self.norm(x), crossed, encoded)
        return self.add(self.residual_dropout(attended), x)

    def fed(self, x: Tensor, block: DecoderBlock, linears: dict[str, Linear]) -> Tensor:
        """What the feed-forward part makes of the normed ``x``, dense or of experts."""
        y = self.norm(x)
        if block.experts and self.model.traits.experts_beside:
            dense = self.norm(self.feed_forward(y, linears))
            return self.add(dense, self.norm(self.experts(self.norm(x), block, linears, x)))
        if block.experts and "moe" in self.r.recomputed:
            return self.recomputed(y, lambda made, given: made.experts(given, block, linears))
        if block.experts:
            return self.experts(y, block, linears)
        if "mlp" in self.r.recomputed:
            return self.recomputed(y, lambda made, given: made.feed_forward(given, linears))
        return self.feed_forward(self.gathered(y), linears)

    def recomputed(self, x: Tensor, write: Callable[[Decoder, Tensor], Tensor]) -> Tensor:
        """A part that is run again in backward (Megatron-core transformer/transformer_layer.py
        recompute_mlp, transformer/moe/moe_layer.py moe_layer_recompute)."""
        inside = Decoder(self.model, self.r)
        given = inside.tape.tensor(x.width, x.bytes, needs_grad=x.needs_grad)
        out = write(inside, given)
        back = max(inside.tape.replay(out), default=Moment(0.0, 0.0, 0.0, 0.0))
        there = max(inside.tape.forward_peaks(training=False), default=Size())
        # The part's own output and gradients are the tape's.
        made = Size(token=max(0.0, back.token - out.size.token - x.size.token), fixed=back.fixed)
        first = Size(token=max(0.0, there.token - out.size.token), fixed=there.fixed)
        return self.tape.op(
            Tensor(out.width, out.bytes, out.size, False), (x,), saves=(x,),
            temp=made, forward_temp=first, weight=inside.tape.trained_elements,
        )  # fmt: skip

    def streamed(self, x: Tensor, block: DecoderBlock, linears: dict[str, Linear]) -> Tensor:
        """Gemma3nTextDecoderLayer: one block on one of several streams."""
        tape = self.tape
        predicted = self.predict(x, linears)
        active = self.active(predicted)
        normed = self.norm(active)
        beside = self.laurel(normed, linears)
        attended = self.norm(self.mixed(normed, block, linears))
        both = self.scale(self.add(self.add(active, attended), beside))
        fed = self.sparse_feed_forward(self.norm(both), linears, sparse=block.sparse)
        corrected = self.correct(predicted, self.add(both, self.norm(fed)), linears)
        first = self.active(corrected)
        first = self.scaled_by_weight(tape.op(tape.tensor(first.width, first.bytes), (first,)))
        added = self.layer_input(first, linears)
        out = Tensor(corrected.width, corrected.bytes, corrected.size, False, corrected.root)
        return tape.op(out, (corrected, added))

    def layer_input(self, x: Tensor, linears: dict[str, Linear]) -> Tensor:
        """The layer's own embedding, gated by what the layer has made of the other one."""
        gate = linears["input_gate"]
        # A slice of what layer_inputs_profile counts.
        given = Tensor(gate.outputs, x.bytes, Size(), needs_grad=True)
        active = self.activate(self.linear(x, gate))
        return self.norm(self.linear(self.product(active, given), linears["input_out"]))

    def scaled(self, x: Tensor) -> Tensor:
        """A trained factor an element of the hidden size (InternVLVisionLayer, lambda_1)."""
        return self.scaled_by_weight(x) if self.model.traits.layer_scale else x

    def mixed(self, x: Tensor, block: DecoderBlock, linears: dict[str, Linear]) -> Tensor:
        """What the block's mixers give, added up where they run side by side."""
        # Falcon-H1 multiplies what goes into each of its mixers by a number.
        scales = self.model.arch == "falcon_h1"
        parts = [
            self.project_and_attend(
                self.gathered(self.scale(x) if scales else x), linears, shared=block.kv_width
            )
            if kind == "attention"
            else self.mix(kind, self.scale(x) if scales else x, block, linears)
            for kind in block.mixers
        ]
        total = parts[0]
        for part in parts[1:]:
            total = self.add(total, part)
        return total


@lru_cache(maxsize=512)
def layer_inputs_profile(model: DecoderStructure, regime: Regime) -> LayerProfile:
    """The embeddings of all layers beside the first one (Gemma4TextModel,
    project_per_layer_inputs): looked up, added to a normed projection, scaled."""
    writer = Decoder(model, regime)
    tape, width = writer.tape, model.layers * model.layer_input
    source = tape.tensor(model.hidden, regime.stream, needs_grad=True)
    looked_up = tape.tensor(width, regime.stream, needs_grad=regime.train_base)
    projected = writer.linear(source, Linear("layer_inputs", model.hidden, width))
    normed = writer.norm(writer.scale(projected))
    out = writer.scale(writer.add(normed, looked_up))
    kept = tape.op(tape.tensor(0, regime.stream), (out,), saves=(out,))
    if model.traits.streams > 1:
        writer.matched(source)
        # The last block's streams are one tensor, of which views go into the ways back.
        writer.matched(tape.tensor(model.hidden, writer.residual, needs_grad=True))
    return LayerProfile(tape, kept, 0.0)


@lru_cache(maxsize=2048)
def layer_profile(model: DecoderStructure, block: DecoderBlock, regime: Regime) -> LayerProfile:
    """Replay one block of ``model`` under ``regime``."""
    if block.sliding and regime.masks_window:
        # SDPA is given a mask for the window, which flash attention does not take.
        regime = interned(replace(regime, kernel="efficient", dense_mask=True))
    elif block.head_dim > FLASH_HEAD and regime.kernel == "flash":
        regime = interned(replace(regime, kernel="efficient"))
    writer = Decoder(model, regime)
    tape = writer.tape
    spread = regime.tensor_parallel if regime.sequence_parallel else 1
    width = model.hidden * model.traits.streams
    source = tape.tensor(width / spread, writer.residual, needs_grad=regime.input_grad)
    if block.predicts:
        # Checkpointed, it starts from two tensors.
        return LayerProfile(tape, writer.predicted(source, block), 2 * width * writer.residual)
    out = writer.block(source, block)
    return LayerProfile(tape, out, width * writer.residual)


def widest(sizes: Sequence[Size], tokens: float, scores: float) -> float:
    """The largest of some symbolic sizes at a given batch."""
    most = 0.0
    for token, score, fixed in sizes:
        here = token * tokens + score * scores + fixed
        if here > most:
            most = here
    return most


@lru_cache(maxsize=512)
def head_profile(
    model: DecoderStructure, regime: Regime, train_head: bool, upcast: bool
) -> LayerProfile:
    """Final norm, output projection and cross entropy with the logits materialised.

    transformers 5.23 ForCausalLMLoss: logits.float(), log_softmax, nll_loss. LabelSmoother's sum over the vocabulary
    (trainer_pt_utils.py) has a gradient of its own before the softmax has another, so that no instant is higher.
    """
    writer = Decoder(model, regime)
    tape = writer.tape
    vocab = model.vocab / regime.tensor_parallel
    spread = regime.tensor_parallel if regime.sequence_parallel else 1
    source = tape.tensor(model.hidden / spread, regime.stream, needs_grad=True)
    x = writer.gathered(writer.norm(source))
    half = regime.amp and regime.stream == 4
    x = writer.cast(x, regime.whole)
    saves = [x] if train_head else []
    if half:
        saves.append(tape.weight(vocab * model.hidden, regime.compute))
    logits = tape.op(
        tape.tensor(vocab, regime.whole), (x,), saves=saves,
        weight=vocab * model.hidden if train_head else 0,
        cast_grad=regime.compute if half else 0,
    )  # fmt: skip
    if model.traits.logit_softcap:
        capped = tape.tensor(vocab, regime.whole)
        tape.op(capped, (writer.scale(logits),), saves=(capped,))
        logits = writer.scale(capped)
    wide = writer.cast(logits, 4) if upcast or regime.amp else logits
    log_probs = tape.tensor(vocab, wide.bytes)
    tape.op(log_probs, (wide,), saves=(log_probs,))
    loss = tape.tensor(0, 4)
    tape.op(loss, (log_probs,))
    return LayerProfile(tape, loss, 0.0)
