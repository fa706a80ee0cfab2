"""The GPUs that a script shows itself, and settings of their allocator that come too late."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from oomlint.documents.base import Fact, Scalar
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.facts.script import Script
from oomlint.documents.python.process_variables import variable_set
from oomlint.documents.python.scopes import call_name, dotted, enclosed


def allocator_facts(script: Script) -> Iterator[Fact]:
    """The allocator's settings set when torch has been imported already."""
    if "ALLOC_CONF" not in script.source.text:
        return
    imported_at: int | None = None
    cuda_at = _first_line(script, _initialises_cuda)
    for statement in script.tree.root.body:
        if _imports_torch(statement):
            imported_at = imported_at or statement.lineno
        if imported_at is None:
            continue
        for node in enclosed(statement):
            if _sets_allocator(node):
                assert isinstance(node, (ast.Subscript, ast.Call))
                used = cuda_at is not None and cuda_at < node.lineno
                yield script.fact(
                    "alloc-conf-after-import", node, import_line=imported_at, cuda_used=used
                )


def _first_line(script: Script, of: Callable[[ast.Call], bool]) -> int | None:
    """The first line at module level that makes such a call."""
    at = (step.node.lineno for step in script.steps if step.function is None and of(step.node))
    return min(at, default=None)


def device_facts(script: Script) -> Iterator[Fact]:
    """The GPUs that the script shows itself, the same ones wherever it says so, before CUDA has counted them
    (CUDA C Programming Guide, "CUDA Environment Variables": read when it is initialized)."""
    if _DEVICES not in script.source.text:
        return
    given = list(variable_set(_DEVICES, script.tree, script.steps))
    nodes = [script.evaluator.node(value, scope) for value, scope in given]
    found = {str(node.value) if isinstance(node, Scalar) else None for node in nodes}
    cuda_at = _first_line(script, _may_use_cuda)
    if len(found) != 1 or not (devices := found.pop()) or not _LISTED.fullmatch(devices):
        return
    if cuda_at is None or given[0][0].lineno < cuda_at:
        yield script.fact("shows-devices", given[0][0], devices=devices)


_DEVICES = "CUDA_VISIBLE_DEVICES"
_LISTED = re.compile(r"\d+(?:\s*,\s*\d+)*")


def one_card_facts(script: Script) -> Iterator[Fact]:
    """Facts of the kind ``model-on-one-card`` (``card``): the program puts its model on a card that it names by its number.
    Of several processes each would put its own there."""
    if "cuda:" not in script.source.text:
        return
    for step in script.steps:
        call = step.node
        if not step.reached or call_name(call) != "to" or not _is_model(call.func):
            continue
        card = next((c for given in call.args[:1] if (c := _card(script, given, step))), "")
        if card:
            yield script.fact("model-on-one-card", call, card=card)


_CARD = re.compile(r"cuda:\d+")


def _card(script: Script, given: ast.expr, step: ReachedCall) -> str:
    """The card that an expression names, as text or as ``torch.device("cuda:1")``."""
    inner = given.args[0] if isinstance(given, ast.Call) and given.args else given
    node = script.evaluator.node(inner, step.scope)
    named = str(node.value) if isinstance(node, Scalar) else ""
    return named if _CARD.fullmatch(named) else ""


def _is_model(method: ast.expr) -> bool:
    """Whether a method is one of a model's, by its name or its making: ``self.model.to``, ``….from_pretrained(…).to``."""
    holder = method.value if isinstance(method, ast.Attribute) else method
    if isinstance(holder, ast.Call):
        return call_name(holder) in ("from_pretrained", "from_config")
    return "model" in (dotted(holder) or "").rpartition(".")[2].lower()


def _imports_torch(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Import):
        return any(alias.name.split(".")[0] == "torch" for alias in statement.names)
    return (
        isinstance(statement, ast.ImportFrom) and (statement.module or "").split(".")[0] == "torch"
    )


def _sets_allocator(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return dotted(node.value) == "os.environ" and _is_allocator(node.slice)
    if isinstance(node, ast.Call) and dotted(node.func) in ("os.environ.setdefault", "os.putenv"):
        return bool(node.args) and _is_allocator(node.args[0])
    return False


def _is_allocator(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (
        "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF",
    )  # fmt: skip


def _may_use_cuda(call: ast.Call) -> bool:
    """Whether CUDA may have read its variables behind the call; what only asks for GPUs counts them."""
    name = dotted(call.func) or ""
    return name.startswith("torch.cuda.") or name.endswith(".from_pretrained") or _moves(call)


# What calls torch.cuda's ``_lazy_init`` at once, for whatever device (torch 2.15.0 cuda/__init__.py,
# cuda/memory.py, cuda/random.py; csrc/cuda/Module.cpp for ``set_device``). Others wait until CUDA is initialized
# (``manual_seed``), do nothing before (``empty_cache``, ``memory_allocated``), or only count GPUs (``is_available``).
_INITIALISING = frozenset(
    "init set_device current_device synchronize ipc_collect current_stream default_stream get_device_properties"
    " get_device_name get_device_capability mem_get_info set_per_process_memory_fraction"
    " get_rng_state set_sync_debug_mode current_blas_handle".split()
)


def _initialises_cuda(call: ast.Call) -> bool:
    """Whether CUDA is certainly initialized behind the call, and its allocator with it. A model comes from its files
    to the CPU, unless the call places it (transformers 4.57 and 5.23 modeling_utils.py: ``device_map`` is ``None``)."""
    module, _, name = (dotted(call.func) or "").rpartition(".")
    if module == "torch.cuda":
        return name in _INITIALISING
    if name == "from_pretrained":
        return any(word.arg == "device_map" and _names_cuda(word.value) for word in call.keywords)
    return _moves(call)


def _moves(call: ast.Call) -> bool:
    """Whether the call copies something to a GPU: ``model.cuda()``, ``model.to("cuda")``."""
    if (dotted(call.func) or "").endswith(".cuda"):
        return True
    return call_name(call) == "to" and any("cuda" in ast.unparse(given) for given in call.args)


def _names_cuda(value: ast.expr) -> bool:
    """Whether a device map puts something on a GPU, on a machine that has one: ``auto``, ``{"": 0}``."""
    text = ast.unparse(value)
    return "cuda" in text or (isinstance(value, ast.Constant) and value.value in _SPREADING)


_SPREADING = ("auto", "balanced", "balanced_low_0", "sequential")
