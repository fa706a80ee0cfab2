"""The tape, played by hand: what autograd's engine has alive at each instant, in bytes a token."""

from __future__ import annotations

from oomlint.memory.tape import Moment, Size, Tape, Tensor


def needed(tape: Tape, width: float, bytes_: float = 1) -> Tensor:
    return tape.tensor(width, bytes_, needs_grad=True)


def test_a_tensor_is_as_large_as_what_it_grows_with() -> None:
    assert Tape.tensor(3, 2).size == Size(token=6)
    assert Tape.scores(3, 2).size == Size(score=6)
    assert Tape.weight(3, 2).size == Size(fixed=6)
    assert Size(2, 3, 5).at(10, 100) == 2 * 10 + 3 * 100 + 5


def test_what_is_saved_twice_is_there_once() -> None:
    tape = Tape()
    x = needed(tape, 4, 2)
    y = tape.op(tape.tensor(3, 1), (x,), saves=(x, x, tape.weight(5, 2)))
    tape.op(tape.tensor(1, 1), (y,), saves=(x, y, tape.scores(2, 4)))
    assert tape.saved() == Size(token=8 + 3, score=8, fixed=10)


def test_what_needs_no_gradient_keeps_nothing() -> None:
    tape = Tape()
    x = tape.tensor(4, 2)
    y = tape.op(tape.tensor(3, 1), (x,), saves=(x,))
    assert not y.needs_grad
    assert tape.saved() == Size()
    z = tape.op(tape.tensor(3, 1), (x,), saves=(x,), weight=7)
    assert z.needs_grad
    assert tape.saved() == Size(token=8)
    assert tape.trained_elements == 7


def test_backward_frees_what_it_has_used() -> None:
    tape = Tape()
    x = needed(tape, 8)
    y = tape.op(tape.tensor(8, 1), (x,), saves=(x,), temp=Size(token=3), weight=10)
    z = tape.op(tape.tensor(2, 1), (y,), saves=(y,))
    # 16 are saved. z's gradient: 18. y's beside it: 26. They go, and with them y: 16, of which 8 are y's gradient.
    # x's and 3 in the kernel: 27, with the weight's gradient made.
    assert tape.replay(z) == (Moment(27, 0, 0, 10),)


def test_a_kernel_needs_room_of_each_kind() -> None:
    tape = Tape()
    x = needed(tape, 1)
    y = tape.op(tape.tensor(1, 1), (x,), temp=Size(token=10, score=20, fixed=30))
    assert tape.replay(y) == (Moment(1 + 1 + 10, 20, 30, 0),)


def test_the_gradient_of_a_sum_is_that_of_its_terms() -> None:
    tape = Tape()
    x = needed(tape, 4)
    h = tape.op(tape.tensor(4, 1), (x,), saves=(x,))
    out = tape.op(tape.tensor(4, 1), (x, h), passes=True)
    # 4 saved and one gradient for three tensors; a second one for x alone, which is added to the first.
    assert tape.replay(out) == (Moment(12, 0, 0, 0),)
    apart = Tape()
    x = needed(apart, 4)
    h = apart.op(apart.tensor(4, 1), (x,), saves=(x,))
    out = apart.op(apart.tensor(4, 1), (x, h))
    # Of a product each term has a gradient of its own: 4 saved, 12 of gradients; 4 go, 4 come.
    assert apart.replay(out) == (Moment(16, 0, 0, 0),)


def test_a_term_of_another_width_gets_a_gradient_of_its_own() -> None:
    tape = Tape()
    x = needed(tape, 4, 2)
    out = tape.op(tape.tensor(4, 1), (x,), passes=True)
    assert tape.replay(out) == (Moment(4 + 8, 0, 0, 0),)


def test_gradients_that_others_hold_are_added_in_a_third_tensor() -> None:
    tape = Tape()
    x, a, c = (needed(tape, 4) for _ in range(3))
    p = tape.op(tape.tensor(4, 1), (x, a), passes=True)
    q = tape.op(tape.tensor(4, 1), (x, c), passes=True)
    out = tape.op(tape.tensor(1, 1), (p, q))
    # Of p and q: 1 + 8; then x's sum beside what a and c still hold.
    assert tape.replay(out) == (Moment(12, 0, 0, 0),)


def test_one_holder_is_enough_to_add_in_place() -> None:
    tape = Tape()
    x, a = needed(tape, 4), needed(tape, 4)
    p = tape.op(tape.tensor(4, 1), (x, a), passes=True)
    q = tape.op(tape.tensor(4, 1), (x,))
    out = tape.op(tape.tensor(1, 1), (p, q))
    # Of p and q: 9, and 8 without out's. q's own: 12, then 8. Added to by p's, which a still holds.
    assert tape.replay(out) == (Moment(12, 0, 0, 0),)


def test_autocast_makes_a_weights_gradient_in_half_precision_first() -> None:
    tape = Tape()
    x = needed(tape, 4)
    y = tape.op(
        tape.tensor(4, 1), (x,), temp=Size(token=3, score=2, fixed=1), weight=10, cast_grad=2
    )
    assert tape.replay(y) == (Moment(11, 2, 21, 0), Moment(8, 0, 20, 10))
    frozen = Tape()
    x = needed(frozen, 4)
    y = frozen.op(frozen.tensor(4, 1), (x,), temp=Size(token=3), cast_grad=2)
    assert frozen.replay(y) == (Moment(11, 0, 0, 0),)


def test_parts_are_put_together_in_a_tensor_of_the_whole() -> None:
    tape = Tape()
    x = needed(tape, 8)
    first, second = tape.parts(x, (2, 6))
    assert (first.root, second.root) == (x, x)
    out = tape.op(tape.tensor(1, 1), (first, second), saves=(first, second))
    assert tape.saved() == Size(token=8)
    # 8 saved, 1, and 8 of the parts: 17. Without x and out's: 8. The whole beside them: 16.
    assert tape.replay(out) == (Moment(17, 0, 0, 0),)
    bare = Tape()
    x = needed(bare, 8)
    out = bare.op(bare.tensor(1, 1), bare.parts(x, (2, 6)))
    assert bare.replay(out) == (Moment(16, 0, 0, 0),)


def test_forward_keeps_what_backward_needs_and_else_what_is_used_again() -> None:
    tape = Tape()
    x = needed(tape, 1)
    a = tape.op(tape.tensor(8, 1), (x,))
    b = tape.op(tape.tensor(4, 1), (a,), saves=(a,), forward_temp=Size(token=5))
    tape.op(tape.tensor(10, 1), (b,), forward_temp=Size(score=7))
    # Without gradients a is gone once b is there: 8 + 4 + 5, then 4 + 10.
    assert tape.forward_peaks(training=False) == (Size(17), Size(14, 7))
    assert tape.forward_peaks(training=True) == (Size(22, 7),)


def test_copies_of_weights_are_there_from_the_start() -> None:
    tape = Tape()
    x = needed(tape, 1)
    a = tape.op(tape.tensor(8, 1), (x,), saves=(tape.weight(3, 2),))
    tape.op(tape.tensor(4, 1), (a,), saves=(tape.weight(5, 2),))
    assert tape.forward_peaks(training=True) == (Size(12, 0, 16),)
    assert tape.forward_peaks(training=False) == (Size(12),)
