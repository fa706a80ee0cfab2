"""Arguments and entries that are put between others or taken out, whatever stands around them."""

from __future__ import annotations

import pytest

from oomlint.documents.python.edit import with_argument, without_argument
from oomlint.errors import CannotEdit

ADDED = {
    "f()": "f(k=1)",
    "f( )": "f( k=1)",
    "f(a)": "f(a, k=1)",
    "f(a , b = 2 , )": "f(a , b = 2 , k = 1, )",
    "f(*a, **b)": "f(*a, k=1, **b)",
    "f(x, **{'a': 1}, **b)": "f(x, k=1, **{'a': 1}, **b)",
    # Commas that part no arguments.
    "f(lambda a, b=lambda c, d: 1: a, z=2)": "f(lambda a, b=lambda c, d: 1: a, z=2, k=1)",
    "f(f'{a, b}', '),', (1, 2))": "f(f'{a, b}', '),', (1, 2), k=1)",
    "f(a)(b)": "f(a)(b, k=1)",
    "(f)[1, 2](b)": "(f)[1, 2](b, k=1)",
    "f(a := 1, b=(yield))": "f(a := 1, b=(yield), k=1)",
    "f((x for x in y))": "f((x for x in y), k=1)",
    "f(\n    a,  # one\n    # above b\n    b  # two\n    ,\n    # below\n)": "f(\n    a,  # one\n    # above b\n    b  # two\n    ,\n    k=1,\n    # below\n)",
    "f(a,\r\n  b)": "f(a,\r\n  b,\r\n  k=1)",
    "f(a, \\\n  b)": "f(a, \\\n  b, k=1)",
    "{}": '{"k": 1}',
    "{'a': 1, **z}": "{'a': 1, 'k': 1, **z}",
    "{'a': lambda x, y: {1: 2}, b: 3}": "{'a': lambda x, y: {1: 2}, b: 3, 'k': 1}",
    "{\n  1: 2,  # one\n}": '{\n  1: 2,  # one\n  "k": 1,\n}',
}
REMOVED = {
    "f(a=1)": "f()",
    "f( a=1, )": "f()",
    "f(a=1, b=2)": "f(b=2)",
    "f(b=2, a=1)": "f(b=2)",
    "f(b=2, a=(1), )": "f(b=2, )",
    "f(b=2, a=lambda x, y: 1, c=3)": "f(b=2, c=3)",
    "f(\n  # of b\n  b=2,\n  # of a\n  a=1,  # one\n  c=3,\n)": "f(\n  # of b\n  b=2,\n  # of a\n  c=3,\n)",
    "{'b': 2, 'a': [1, 2]}": "{'b': 2}",
    "{r'a': 1, 'b': 2}": "{'b': 2}",
    "{'' 'a': 1, 'b': 2}": "{'b': 2}",
}


@pytest.mark.parametrize("text", ADDED)
def test_an_argument_is_added(text: str) -> None:
    assert with_argument(text, "k", "1", None) == ADDED[text]


@pytest.mark.parametrize("text", REMOVED)
def test_an_argument_is_taken_out(text: str) -> None:
    assert without_argument(text, "a") == REMOVED[text]


def test_an_argument_is_put_behind_another() -> None:
    assert with_argument("f(a=1, b=2)", "k", "3", "a") == "f(a=1, k=3, b=2)"


@pytest.mark.parametrize(
    "text", ["f(x for x in y)", "f((x) for x in (y))", "{1, 2}", "f(", "f(a,\r b)"]
)
def test_what_takes_no_argument_is_left_alone(text: str) -> None:
    with pytest.raises(CannotEdit):
        with_argument(text, "k", "1", None)
