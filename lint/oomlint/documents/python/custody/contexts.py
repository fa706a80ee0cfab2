"""Contexts that a model is made in, and what they may decide about it: by whose they are, and by their words.

``with torch.device("cuda"):`` decides nothing that the loader does not say; what opens ``ZeroInitContext(...)`` parts each
parameter as it is made. Of a library that is not known here nobody knows.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Final

from oomlint.documents.python.custody.known_touches import LOAD, kinds_of
from oomlint.documents.python.flow import Flow
from oomlint.documents.python.scopes import Scope, dotted
from oomlint.documents.python.tree import Tree

SHARDING: Final = "sharding"
"""Whether each process holds a part of the model alone, where nothing that is read says so."""

# Whose contexts say where tensors are made, who goes first, or what is printed, and part no parameters: Python's library,
# torch 2.9 (device, no_grad, set_default_dtype ...), accelerate 1.15 (init_empty_weights, main_process_first),
# transformers 5.23 (no_init_weights, the Trainer's main_process_first). DeepSpeed's zero.Init, and the strategies of
# Fabric, whose init_module opens one, are read as calls.
_PART_NOTHING: Final = frozenset(
    "torch accelerate transformers deepspeed lightning lightning_fabric pytorch_lightning peft trl unsloth "
    "contextlib warnings tqdm filelock time logging io os tempfile concurrent threading unittest rich".split()
)
# By the last of their names: methods of accelerate's and the Trainer's objects, and Python's own.
_METHODS: Final = re.compile(
    r"(?:local_)?main_process_first|torch_distributed_zero_first|init_(?:module|tensor)|open|nullcontext|catch_warnings"
)
_PARTS: Final = re.compile(
    r"zero(?!_grad|_first)|shard|parallel|fsdp|gemini|colo|init_?ctx|lazy", re.I
)


def open_contexts(
    call: ast.Call, tree: Tree, flow: Flow, is_own: Callable[[str, Scope], bool]
) -> Iterator[tuple[ast.expr, frozenset[str]]]:
    """The contexts around a call which may decide something about the model that it makes, and what. ``is_own``: whether
    a name stands for something that the project has the code of."""
    for node in tree.nodes:
        if not isinstance(node, (ast.With, ast.AsyncWith)) or not _stands_in(call, node):
            continue
        for item in node.items:
            scope = flow.scope_at(item.context_expr)
            for opened in flow.path(item.context_expr, scope):
                decides = _decided_by(opened, scope, is_own)
                if decides:
                    yield opened, decides


def _stands_in(call: ast.Call, block: ast.With | ast.AsyncWith) -> bool:
    first, last = block.body[0], block.body[-1]
    return first.lineno <= call.lineno <= (last.end_lineno or last.lineno)


def _decided_by(
    opened: ast.expr, scope: Scope, is_own: Callable[[str, Scope], bool]
) -> frozenset[str]:
    if not isinstance(opened, ast.Call):
        return frozenset()
    written = dotted(opened.func) or ""
    last = written.rpartition(".")[2]
    if not written or _METHODS.fullmatch(last):
        return frozenset()
    whole = scope.imported(written)
    package = (whole or "").partition(".")[0]
    if package in _PART_NOTHING:
        return frozenset()
    parts = frozenset({SHARDING}) if _PARTS.search(last) else frozenset[str]()
    if whole is None or is_own(written, scope):
        # The project's own, or a method of some object: its name tells.
        return kinds_of(last) | parts
    return LOAD | {SHARDING}


# -- Colossal-AI -----------------------------------------------------------------------------------

# ColossalAI 4f9953be: colossalai/zero/wrapper.py, zero/gemini/gemini_ddp.py, legacy/initialize.py,
# legacy/zero/__init__.py, booster/booster.py: what gives back a model whose parameters, gradients or states are parted as
# a plugin or a config of its own says, cast to 16 bits.
_WRAPS: Final = frozenset(
    "zero_model_wrapper zero_optim_wrapper GeminiDDP convert_to_zero_v2 ShardedModelV2 initialize boost".split()
)


def wrapped_in_parts(name: str, last: str) -> frozenset[str]:
    """What a call decides that hands a model to Colossal-AI; nothing of any other."""
    is_booster = last == "boost"
    if last not in _WRAPS or not (name.startswith("colossalai.") or is_booster):
        return frozenset()
    return frozenset({SHARDING, "dtype", "placement"})
