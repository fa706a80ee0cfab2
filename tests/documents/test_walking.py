"""Our walk over a parsed tree gives what ``ast.walk`` gives, in its order, without operators and contexts."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

from oomlint.documents.python.walking import children, walk

ALL_KINDS = '''\
"""A text."""
from __future__ import annotations
import a.b as c
from .d import e as f, g
X: int = 1
def h(i, /, j=1, *k: int, l, m=2, **n) -> None:
    global X
    if (o := i) and not j or l:
        yield -o
    else:
        return
    for p, *q in r[1:2, ...], {**s, "t": u}, {v for v in w if v for x in y}:
        break
    while 1 < z <= 2 is not None:
        continue
    try:
        raise A from B
    except (C, D) as error:
        pass
    finally:
        del E.F, G[0]
class H(I, metaclass=J):
    @K
    async def L(self):
        async with M() as N, O:
            await P
        return [Q async for Q in R], lambda S, T=1: (S, f"{T!r:>{U}}")
match V:
    case {"W": 1, **rest} | [Y, *_] | Z(a=2) if b:
        assert c, "d"
e = f(g, *h, i=j, **k) if l else b"m" + 1j
'''
LEFT_OUT = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
FILES = sorted(Path(__file__).parents[2].glob("lint/oomlint/documents/**/*.py"))


@pytest.mark.parametrize("text", [ALL_KINDS, *(file.read_text(encoding="utf-8") for file in FILES)])
def test_walks_as_ast_does(text: str) -> None:
    root = ast.parse(text)
    theirs = _told(ast.walk(root))
    assert list(map(id, walk(root))) == list(map(id, theirs))
    for node in theirs:
        assert list(map(id, children(node))) == list(map(id, _told(ast.iter_child_nodes(node))))


def test_walks_what_nobody_parsed() -> None:
    name = ast.Name(id="a")
    assert walk(ast.Call(func=name))[1:] == [name]


def _told(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    return [node for node in nodes if not isinstance(node, LEFT_OUT)]
