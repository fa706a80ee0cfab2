"""The GPUs that a script shows itself, and settings of their allocator that come too late."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from oomlint.documents.base import Fact, Scalar
from oomlint.documents.python.facts.script import Script
from oomlint.documents.python.process_variables import variable_set
from oomlint.documents.python.scopes import call_name, dotted, enclosed


def allocator_facts(script: Script) -> Iterator[Fact]:
    """The allocator's settings set when torch has been imported already."""
    if "ALLOC_CONF" not in script.source.text:
        return
    imported_at: int | None = None
    cuda_at = _cuda_at(script)
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


def _cuda_at(script: Script) -> int | None:
    """The first line at module level that uses a GPU."""
    at = (s.node.lineno for s in script.steps if _uses_cuda(s.node) and s.function is None)
    return min(at, default=None)


def device_facts(script: Script) -> Iterator[Fact]:
    """The GPUs that the script shows itself, the same ones wherever it says so, before CUDA has counted them
    (CUDA C Programming Guide, "CUDA Environment Variables": read when it is initialized)."""
    if _DEVICES not in script.source.text:
        return
    given = list(variable_set(_DEVICES, script.tree, script.steps))
    nodes = [script.evaluator.node(value, scope) for value, scope in given]
    found = {str(node.value) if isinstance(node, Scalar) else None for node in nodes}
    cuda_at = _cuda_at(script)
    if len(found) != 1 or not (devices := found.pop()) or not _LISTED.fullmatch(devices):
        return
    if cuda_at is None or given[0][0].lineno < cuda_at:
        yield script.fact("shows-devices", given[0][0], devices=devices)


_DEVICES = "CUDA_VISIBLE_DEVICES"
_LISTED = re.compile(r"\d+(?:\s*,\s*\d+)*")


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


def _uses_cuda(call: ast.Call) -> bool:
    name = dotted(call.func) or ""
    if name.startswith("torch.cuda.") or name.endswith((".cuda", ".from_pretrained")):
        return True
    return call_name(call) == "to" and any("cuda" in ast.unparse(a) for a in call.args)
