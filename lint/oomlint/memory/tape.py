"""A miniature autograd tape: what one decoder layer keeps, and what its backward needs.

A layer is written down once as the operations that the framework's module runs
(``layers.py``). The tape knows which tensors each operation saves for backward and replays
the engine's order, so that saved bytes and transient peaks follow from the operations
instead of from a formula per model. Sizes are symbolic: a :class:`Size` has a part per
token, a part per attention score and a constant part, so one replay serves every micro
batch and sequence length.

The rules are those of PyTorch's engine (torch 2.13 torch/csrc/autograd/engine.cpp and
input_buffer.cpp): nodes run in reverse order of creation, a node's saved tensors die when it
has run, a gradient that reaches a tensor twice is added in place if nobody else holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Size(NamedTuple):
    """Bytes = ``token`` x tokens + ``score`` x samples x length^2 + ``fixed``."""

    token: float = 0.0
    score: float = 0.0
    fixed: float = 0.0

    def at(self, tokens: float, scores: float) -> float:
        """The bytes for ``tokens`` tokens and ``scores`` = samples x length^2."""
        return self.token * tokens + self.score * scores + self.fixed


class Moment(NamedTuple):
    """What is alive in a layer at one instant of backward.

    ``grads`` counts the elements of parameter gradients that the layer has made so far.
    """

    token: float
    score: float
    fixed: float
    grads: float


class Tensor:
    """A tensor on the tape; views share a ``root``, whose size is what memory holds."""

    __slots__ = ("bytes", "needs_grad", "root", "size", "width")

    def __init__(
        self,
        width: float,
        bytes_: float,
        size: Size,
        needs_grad: bool,
        root: Tensor | None = None,
    ) -> None:
        self.width = width
        self.bytes = bytes_
        self.size = size
        self.needs_grad = needs_grad
        self.root = root or self


class _Node:
    """One operation in backward; ``saves`` are the storages that it keeps, each once."""

    __slots__ = ("cast_grad", "inputs", "out", "passes", "saves", "temp", "weight")

    def __init__(
        self,
        out: Tensor,
        inputs: tuple[Tensor, ...],
        saves: tuple[Tensor, ...],
        temp: Size,
        passes: bool,
        weight: float,
        cast_grad: float,
    ) -> None:
        self.out = out
        self.inputs = inputs
        self.saves = saves
        self.temp = temp
        self.passes = passes
        self.weight = weight
        self.cast_grad = cast_grad


_NOTHING = Size()


class Tape:
    """Records operations; ``saved`` and ``replay`` say what they cost."""

    __slots__ = ("_forward", "_kept", "_nodes")

    def __init__(self) -> None:
        self._nodes: list[_Node] = []
        self._kept: tuple[int, dict[Tensor, None]] = (0, {})
        self._forward: list[tuple[Tensor, tuple[Tensor, ...], Size]] = []

    @staticmethod
    def tensor(width: float, bytes_: float, *, needs_grad: bool = False) -> Tensor:
        """A tensor of ``width`` elements per token."""
        return Tensor(width, bytes_, Size(token=width * bytes_), needs_grad)

    @staticmethod
    def scores(heads: float, bytes_: float) -> Tensor:
        """A tensor of ``heads`` elements per pair of positions."""
        return Tensor(heads, bytes_, Size(score=heads * bytes_), False)

    @staticmethod
    def weight(elements: float, bytes_: float) -> Tensor:
        """A copy of a weight; it does not grow with the batch."""
        return Tensor(elements, bytes_, Size(fixed=elements * bytes_), False)

    def op(
        self,
        out: Tensor,
        inputs: Sequence[Tensor],
        *,
        saves: Iterable[Tensor] = (),
        temp: Size = _NOTHING,
        forward_temp: Size = _NOTHING,
        passes: bool = False,
        weight: float = 0.0,
        cast_grad: float = 0.0,
    ) -> Tensor:
        """Record that ``out`` is made from ``inputs``.

        ``saves`` are kept for backward; ``temp`` is alive inside the backward kernel;
        ``passes`` says that the output's gradient *is* the inputs' gradient (additions,
        views); ``weight`` elements of a trained parameter get their gradient here, first
        in ``cast_grad`` bytes an element where autocast computes it in half precision.
        """
        self._forward.append((out, tuple(inputs), forward_temp))
        takers = tuple(x for x in inputs if x.needs_grad)
        if takers or weight:
            out.needs_grad = True
            kept = tuple(dict.fromkeys([x.root for x in saves]))
            self._nodes.append(_Node(out, takers, kept, temp, passes, weight, cast_grad))
        return out

    def parts(self, x: Tensor, widths: Sequence[float]) -> list[Tensor]:
        """Views of slices of ``x``; backward puts their gradients together in a new tensor."""
        outs = [Tensor(w, x.bytes, Size(token=w * x.bytes), x.needs_grad, x.root) for w in widths]
        if x.needs_grad:
            # The first part's node stands for the concatenation; the empty nodes of the others,
            # recorded before it and so run after it, only let their gradients go.
            for other in outs[1:]:
                self._nodes.append(_Node(other, (), (), _NOTHING, False, 0.0, 0.0))
            self._nodes.append(_Node(outs[0], (x,), (), _NOTHING, False, 0.0, 0.0))
        for out in outs:
            self._forward.append((out, (x,), _NOTHING))
        return outs

    @property
    def trained_elements(self) -> float:
        """Elements of the parameters whose gradients the tape makes."""
        return sum(node.weight for node in self._nodes)

    def saved(self) -> Size:
        """What the recorded operations keep for backward, each storage once."""
        token = score = fixed = 0.0
        for root in self._storages():
            size = root.size
            token += size.token
            score += size.score
            fixed += size.fixed
        return Size(token, score, fixed)

    def saved_twice(self) -> Size:
        """Of what is kept for backward, the storages that more than one operation keeps."""
        seen: set[Tensor] = set()
        twice: dict[Tensor, None] = {}
        for node in self._nodes:
            for root in node.saves:
                if root in seen:
                    twice[root] = None
                seen.add(root)
        sizes = [root.size for root in twice]
        return Size(
            sum(x.token for x in sizes), sum(x.score for x in sizes), sum(x.fixed for x in sizes)
        )

    def _storages(self) -> dict[Tensor, None]:
        """The storages that backward needs, in the order in which they are saved."""
        operations, kept = self._kept
        if operations != len(self._nodes):
            kept = dict.fromkeys([root for node in self._nodes for root in node.saves])
            self._kept = (len(self._nodes), kept)
        return kept

    def forward_peaks(self, *, training: bool) -> tuple[Size, ...]:
        """The instants of forward that may be the highest, on top of the layer's input.

        In training everything saved stays; without gradients a tensor lives until its last
        use.
        """
        keep = self._storages() if training else {}
        last: dict[Tensor, int] = {}
        for index, (out, inputs, _) in enumerate(self._forward):
            last[out.root] = index
            for x in inputs:
                last[x.root] = index
        dying: dict[int, list[Tensor]] = {}
        for root, index in last.items():
            if root not in keep:
                dying.setdefault(index, []).append(root)
        token = score = fixed = 0.0
        moments: list[Size] = []
        alive = {root for root in keep if root.size.fixed}
        for root in keep:
            fixed += root.size.fixed
        for index, (out, _, temp) in enumerate(self._forward):
            root = out.root
            if root not in alive:
                size = root.size
                alive.add(root)
                token += size.token
                score += size.score
                fixed += size.fixed
            moments.append(Size(token + temp.token, score + temp.score, fixed + temp.fixed))
            for root in dying.get(index, ()):
                if root in alive:
                    alive.remove(root)
                    size = root.size
                    token -= size.token
                    score -= size.score
                    fixed -= size.fixed
        return _undominated(moments)

    # One function: it runs for every node of every kind of layer, and its five sums would be handed to each part and back.
    def replay(self, out: Tensor) -> tuple[Moment, ...]:  # noqa: C901
        """The instants of backward that may be the highest, with everything saved alive.

        ``out`` is the layer's output, whose gradient is alive at the start.
        """
        token, score, fixed = self.saved()
        grads = 0.0
        holders: dict[Tensor, int] = {}
        for node in self._nodes:
            for root in node.saves:
                holders[root] = holders.get(root, 0) + 1
        first = out.size
        token += first.token
        score += first.score
        fixed += first.fixed
        pending: dict[Tensor, list[float]] = {out: [first.token, first.score, first.fixed, 1]}
        moments = [Moment(token, score, fixed, 0.0)]

        for node in reversed(self._nodes):
            grad = pending.pop(node.out, None)
            if grad is not None:
                made: list[tuple[Tensor, list[float]]] = []
                for x in node.inputs:
                    if node.passes and x.bytes == node.out.bytes:
                        grad[3] += 1
                        made.append((x, grad))
                    else:
                        size = x.size
                        made.append((x, [size.token, size.score, size.fixed, 1]))
                        token += size.token
                        score += size.score
                        fixed += size.fixed
                temp = node.temp
                if node.weight and node.cast_grad:
                    half = node.weight * node.cast_grad
                    moments.append(
                        Moment(
                            token + temp.token, score + temp.score, fixed + temp.fixed + half, grads
                        )
                    )
                    grads += node.weight
                    moments.append(Moment(token, score, fixed + half, grads))
                else:
                    grads += node.weight
                    moments.append(
                        Moment(token + temp.token, score + temp.score, fixed + temp.fixed, grads)
                    )
                grad[3] -= 1
                if grad[3] == 0:
                    token -= grad[0]
                    score -= grad[1]
                    fixed -= grad[2]
                for x, new in made:
                    old = pending.get(x)
                    if old is None:
                        pending[x] = new
                        continue
                    if old[3] == 1:
                        spent, kept = new, old
                    elif new[3] == 1:
                        spent, kept = old, new
                    else:
                        kept = [*x.size, 1]
                        token += kept[0]
                        score += kept[1]
                        fixed += kept[2]
                        moments.append(Moment(token, score, fixed, grads))
                        old[3] -= 1
                        spent = new
                    pending[x] = kept
                    spent[3] -= 1
                    if spent[3] == 0:
                        token -= spent[0]
                        score -= spent[1]
                        fixed -= spent[2]
            for root in node.saves:
                holders[root] -= 1
                if holders[root] == 0:
                    size = root.size
                    token -= size.token
                    score -= size.score
                    fixed -= size.fixed
        moments.append(Moment(token, score, fixed, grads))
        return _undominated_moments(moments)


def _undominated(moments: list[Size]) -> tuple[Size, ...]:
    best = sorted(set(moments), reverse=True)
    kept: list[Size] = []
    for m in best:
        for k in kept:
            if k.score >= m.score and k.fixed >= m.fixed:
                break
        else:
            kept.append(m)
    return tuple(kept)


def _undominated_moments(moments: list[Moment]) -> tuple[Moment, ...]:
    best = sorted(set(moments), reverse=True)
    kept: list[Moment] = []
    for m in best:
        for k in kept:
            if k.score >= m.score and k.fixed >= m.fixed and k.grads >= m.grads:
                break
        else:
            kept.append(m)
    return tuple(kept)
