"""What mixes tokens other than attention: gated delta nets, Mamba, Mamba-2, short convolutions.

Their scans run in the kernels of flash-linear-attention and mamba-ssm, as users of these models
are told to install them; what the kernels keep stands in fla/ops/gated_delta_rule/chunk.py,
mamba_ssm/ops/selective_scan_interface.py and mamba_ssm/ops/triton/ssd_combined.py.
"""

from __future__ import annotations

from oomlint.memory.layers.basics import Basics
from oomlint.memory.parameters import DecoderBlock, Linear
from oomlint.memory.tape import Size, Tensor

# Tokens of a chunk: fla's default, and Mamba-2's (chunk_size of the configuration classes).
_DELTA_CHUNK = 64
_MAMBA_CHUNK = 256
# Tokens after which the scan of Mamba notes its states (mamba-ssm csrc/selective_scan/selective_scan.cpp, n_chunks).
_SCAN_CHUNK = 2048


class Mixers(Basics):
    """Writes linear-attention and state-space layers on the tape."""

    __slots__ = ()

    def mix(self, kind: str, x: Tensor, block: DecoderBlock, linears: dict[str, Linear]) -> Tensor:
        if kind == "delta":
            return self.delta_net(x, block, linears)
        if kind == "mamba1":
            return self.mamba1(x, block, linears)
        if kind == "mamba2":
            return self.mamba2(x, block, linears)
        return self.short_convolution(x, linears)

    def convolve(self, x: Tensor) -> Tensor:
        """A depthwise causal convolution keeps its input."""
        return self.tape.op(self.tape.tensor(x.width, x.bytes), (x,), saves=(x,))

    def delta_net(self, x: Tensor, block: DecoderBlock, linears: dict[str, Linear]) -> Tensor:
        """Qwen3NextGatedDeltaNet and Qwen3_5GatedDeltaNet."""
        tape, split = self.tape, self.r.tensor_parallel
        k_heads, v_heads, k_dim, v_dim = block.sizes
        heads, key, value = v_heads / split, k_heads * k_dim / split, v_heads * v_dim / split
        if "la_qkvz" in linears:
            qkv, z = tape.parts(self.linear(x, linears["la_qkvz"]), (2 * key + value, value))
            b, a = tape.parts(self.linear(x, linears["la_ba"]), (heads, heads))
            # fix_query_key_value_ordering puts the heads' parts together again.
            qkv, z = self.own(qkv), self.own(z)
        else:
            if "la_qkv" in linears:
                qkv = self.linear(x, linears["la_qkv"])
            else:
                apart = [self.linear(x, linears[role]) for role in ("la_q", "la_k", "la_v")]
                qkv = tape.op(tape.tensor(2 * key + value, apart[0].bytes), apart)
            b, (a, z) = (
                self.linear(x, linears["la_b"]),
                (
                    self.linear(
                        self.linear(x, linears[f"{role}_in"]) if f"{role}_in" in linears else x,
                        linears[role],
                    )
                    for role in ("la_a", "la_z")
                ),
            )
        q, k, v = tape.parts(self.convolve(qkv), (key, key, value))
        beta = tape.tensor(heads, b.bytes)
        tape.op(beta, (b,), saves=(beta,))
        # One decay a head, or one for each of its keys.
        wide = self.cast(a, 4)
        soft = tape.op(tape.tensor(wide.width, 4), (wide,), saves=(wide,))
        decay = tape.op(tape.tensor(wide.width, 4), (soft,), saves=(soft,))

        bytes_ = v.bytes
        kept = (tape.tensor(key, bytes_), tape.tensor(key, bytes_), v, tape.tensor(wide.width, 4), beta,
                tape.tensor(heads * _DELTA_CHUNK, bytes_), tape.tensor(2 * k_heads / split, 4))  # fmt: skip
        spread = heads * k_dim
        states = spread * v_dim / _DELTA_CHUNK
        mixed = tape.op(
            tape.tensor(value, bytes_), (q, k, v, decay, beta), saves=kept,
            # w, u, new values and states; beside them in backward their gradients.
            forward_temp=Size(token=bytes_ * (spread + 2 * value + states)),
            temp=Size(token=bytes_ * (2 * spread + 3 * value + 2 * states)),
        )  # fmt: skip
        out = linears["la_out"] if "la_out" in linears else linears["la_o"]
        return self.linear(self.gated_norm(mixed, z), out)

    def gated_norm(self, x: Tensor, gate: Tensor) -> Tensor:
        """Qwen3_5RMSNormGated: weight * normalised, times silu of the gate in fp32."""
        tape, width = self.tape, x.width
        weighed = self.rms_norm(x)
        wide = self.cast(gate, 4)
        active = tape.op(tape.tensor(width, 4), (wide,), saves=(wide,))
        return self.cast(
            tape.op(
                tape.tensor(width, 4), (weighed, active), saves=(weighed, active),
                temp=Size(token=4 * width),
            ),
            x.bytes,
        )  # fmt: skip

    def mamba1(self, x: Tensor, block: DecoderBlock, linears: dict[str, Linear]) -> Tensor:
        """MambaInnerFn: convolution, projections, scan and the way out in one; it makes what the convolution and the
        time steps are once more in backward (``checkpoint_lvl=1``)."""
        r, tape, split = self.r, self.tape, self.r.tensor_parallel
        inner, state, rank = block.sizes[0] / split, block.sizes[1], block.sizes[2]
        into = self.linear(x, linears["ssm_in"])
        bytes_ = into.bytes
        # What is projected lies the other way round, so that the kernel copies it.
        turned = tape.tensor(2 * inner, bytes_)
        small = tape.tensor(rank + 4 * state, bytes_)
        states = tape.tensor(2 * inner * state / _SCAN_CHUNK, 4)
        before = tape.tensor(inner, bytes_)
        weights = sum(linears[role].numel for role in ("ssm_x", "ssm_dt")) / split
        scanned = tape.op(
            before, (into,), saves=(turned, small, states, before),
            # The convolution, the time steps and what the gate makes; in backward all of them with their gradients.
            forward_temp=Size(token=bytes_ * 3 * inner),
            temp=Size(token=bytes_ * (8 * inner + rank + 2 * state) + 8 * state),
            weight=weights if r.train_base else 0,
        )  # fmt: skip
        out_layer = linears["ssm_out"]
        return tape.op(
            tape.tensor(out_layer.outputs, r.compute), (scanned,),
            weight=out_layer.numel / split if r.train_base else 0,
        )  # fmt: skip

    def mamba2(self, x: Tensor, block: DecoderBlock, linears: dict[str, Linear]) -> Tensor:
        """mamba_split_conv1d_scan_combined: convolution, scan, norm and the way out in one."""
        r, tape, split = self.r, self.tape, self.r.tensor_parallel
        inner, heads, state, groups = (n / split for n in block.sizes)
        into = self.linear(x, linears["ssm_in"])
        if self.model.arch == "falcon_h1":
            into = self.scale(into)
        bytes_ = into.bytes
        mixed = inner + 2 * groups * state
        states = inner * state * split / _MAMBA_CHUNK
        scores = groups * _MAMBA_CHUNK * 4
        before = tape.tensor(inner, bytes_)
        out_layer = linears["ssm_out"]
        scanned = tape.op(
            tape.tensor(inner, bytes_), (into,), saves=(into, before, tape.tensor(heads, 4)),
            forward_temp=Size(token=bytes_ * mixed + 6 * states + scores),
            temp=Size(token=bytes_ * (2 * mixed + 2 * inner) + 10 * states + 2 * scores),
        )  # fmt: skip
        # The output projection is part of the kernel, which makes its input again in backward.
        return tape.op(
            tape.tensor(out_layer.outputs, r.compute), (scanned,),
            weight=out_layer.numel / split if r.train_base else 0,
        )  # fmt: skip

    def short_convolution(self, x: Tensor, linears: dict[str, Linear]) -> Tensor:
        """Lfm2ShortConv: C * conv(B * x) between two projections."""
        tape = self.tape
        both = self.linear(x, linears["conv_in"])
        third = both.width / 3
        b, c, value = tape.parts(both, (third, third, third))
        gated = self.product(c, self.convolve(self.product(b, value)))
        laid_out = tape.op(tape.tensor(third, gated.bytes), (gated,))
        return self.linear(laid_out, linears["conv_out"])
