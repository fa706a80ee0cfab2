"""What a function that was entered decides, as if its call did."""

from __future__ import annotations

import ast

from oomlint.documents.python.configs.paths import default_of
from oomlint.documents.python.custody.carried import hand_out
from oomlint.documents.python.custody.loads import decided_by_unpacked, decided_by_value, said_by
from oomlint.documents.python.custody.record import Custody, Touch, named_in_words
from oomlint.documents.python.custody.targets import Target, argument_of
from oomlint.documents.python.scopes import Scope


def add_entered(
    custody: Custody, call: ast.Call, scope: Scope, target: Target, entered: Custody
) -> None:
    """What a function that was entered decides, as if the call did."""
    decided: frozenset[str] = frozenset().union(*(t.decides for t in entered.touches.values()))
    for name, decides in entered.forwarded:
        value = argument_of(call, target, name) or default_of(target.function, name)
        if value is not None:
            decided |= decided_by_value(custody, decides, value, scope)
    for keyword in call.keywords if entered.hands_on_all else ():
        if keyword.arg is None:
            decided |= decided_by_unpacked(custody, keyword.value, scope)
        elif keyword.arg not in entered.given:
            decided |= said_by(custody, keyword.arg, keyword.value, scope)
    decided |= hand_out(custody, call, entered)
    if decided:
        home = entered.home.places.source.path
        custody.touches[id(call)] = Touch(call, named_in_words(call), decided, home)
