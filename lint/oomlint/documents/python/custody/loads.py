"""What a call decides that loads a model, in whatever way it is told."""

from __future__ import annotations

import ast

from oomlint.documents.python.custody.contexts import open_contexts
from oomlint.documents.python.custody.known_touches import (
    BY_OPTIONS,
    LOAD,
    OF_LOADING,
    OPTIONS,
)
from oomlint.documents.python.custody.record import Custody
from oomlint.documents.python.scopes import Scope, call_name, dotted
from oomlint.documents.python.walking import walk


def note_load(custody: Custody, call: ast.Call) -> None:
    """Note a call that loads the model, with the contexts that it stands in."""
    custody.loads.append(call)
    custody.values.setdefault(id(call), None)
    for opened, decides in open_contexts(
        call, custody.home.tree, custody.flow, custody.is_of_project
    ):
        custody.touch(opened, decides)


def touch_load(custody: Custody, call: ast.Call) -> None:
    """What a load decides that stands in another file and is not read as a call."""
    scope = custody.flow.scope_at(call)
    decided = frozenset[str]()
    for keyword in call.keywords:
        if keyword.arg is not None:
            decided |= said_by(custody, keyword.arg, keyword.value, scope)
        else:
            decided |= decided_by_unpacked(custody, keyword.value, scope)
    if not is_plain_class(call):
        decided |= {"quantization", "dtype"}
    if decided:
        custody.touch(call, decided)


def said_by(custody: Custody, name: str, value: ast.expr, scope: Scope) -> frozenset[str]:
    """What an argument of a call decides that loads a model."""
    return decided_by_value(custody, OF_LOADING.get(name, frozenset()), value, scope)


def decided_by_value(
    custody: Custody, decides: frozenset[str], value: ast.expr, scope: Scope
) -> frozenset[str]:
    """What a value decides: nothing that is off, or an option's by a name that is known; what the function is given
    its caller says."""
    if not decides or is_usual(value):
        return frozenset()
    if isinstance(value, ast.Name) and value.id in custody.given:
        custody.forwarded.append((value.id, decides))
        return frozenset()
    return frozenset() if _is_by_option(custody, value, scope) else decides


def _is_by_option(custody: Custody, value: ast.expr, scope: Scope) -> bool:
    for each in custody.flow.path(value, scope):
        for node in walk(each):
            if isinstance(node, ast.Attribute) and node.attr in OPTIONS:
                return True
            if isinstance(node, ast.Call) and call_name(node) in BY_OPTIONS:
                return True
    return False


def decided_by_unpacked(custody: Custody, value: ast.expr, scope: Scope) -> frozenset[str]:
    """What a dictionary decides that is unpacked into a call which loads a model."""
    if custody.function is not None and isinstance(value, ast.Name):
        more = custody.function.args.kwarg
        if more is not None and more.arg == value.id:
            custody.hands_on_all = True
            return frozenset()
    decided, is_known = frozenset[str](), False
    for each, inner in ((value, scope), *custody.flow.stands_for(value, scope)):
        pairs: list[tuple[str, ast.expr]] = []
        if isinstance(each, ast.Dict):
            keys = zip(each.keys, each.values, strict=True)
            pairs = [(str(k.value), v) for k, v in keys if isinstance(k, ast.Constant)]
        elif isinstance(each, ast.Call) and call_name(each) == "dict":
            pairs = [(k.arg, k.value) for k in each.keywords if k.arg]
        else:
            continue
        is_known = True
        for name, said in pairs:
            decided |= said_by(custody, name, said, inner)
    return decided if is_known else LOAD - {"trainable"}


# transformers 5.23 modeling_utils.py: what keeps no scores of attention, as the default does not.
_USUAL = (None, False, 0, "", "sdpa", "flash_attention_2", "flash_attention_3")


def is_usual(value: ast.expr) -> bool:
    """Whether what a loader is told is off, or as good as its default."""
    if isinstance(value, ast.IfExp):
        return is_usual(value.body) and is_usual(value.orelse)
    return isinstance(value, ast.Constant) and value.value in _USUAL


def is_plain_class(call: ast.Call) -> bool:
    """``AutoModelForCausalLM``, ``LlamaForCausalLM``: classes of transformers, which quantize nothing by themselves."""
    owner = (dotted(call.func) or "").rpartition(".")[0].rpartition(".")[2]
    return owner.startswith(("Auto", "Peft", "model", "cls")) or "For" in owner or "LM" in owner
