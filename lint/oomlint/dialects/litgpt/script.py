"""Scripts of LitGPT before it was a package, and of Lit-LLaMA: ``finetune/lora.py`` and its like.

What their command lines do not take are variables at their top: micro batch, devices, ranks. Users
change them there, so that a run is a script. Read from lit-gpt d5d37141 (2023-08-24) and lit-llama
of 2023-06-11.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block, OverrideBlock
from oomlint.dialects.litgpt.keys import LAUNCHED, SCRIPT, SCRIPT_OPTIONS
from oomlint.dialects.machine.launch import Launch, place
from oomlint.documents.base import Document, Entry, Mapping, Node, Scalar
from oomlint.documents.text import Location, Span

if TYPE_CHECKING:
    import ast

    from oomlint.documents.python.tree import Tree
    from oomlint.documents.python.values import Evaluator

KINDS = {"lora": "lora", "full": "full", "adapter": "adapter", "adapter_v2": "adapter_v2"}
_PACKAGES = ("lit_gpt", "lit_llama")
_COMPUTED = "it is computed in the script"


def script_claim(dialect: Dialect, document: Document, framework: str) -> Claim | None:
    """The run of a Python file, if it is such a script."""
    kind = KINDS.get(document.source.path.rpartition("/")[2].removesuffix(".py"))
    packages = {name.partition(".")[0] for name in document.imports}.intersection(_PACKAGES)
    if kind is None or not packages:
        return None
    found = _variables(document)
    if "micro_batch_size" not in found:
        return None
    at = found["micro_batch_size"].key_span
    said = {"command": Entry("command", at, Scalar(at, kind), at)}
    said["package"] = Entry("package", at, Scalar(at, min(packages)), at)
    told = Block(document, Mapping(at, said), LAUNCHED, at, locked="it is what the script is")
    span = Span(0, len(document.source.text))
    blocks = (told, Block(document, Mapping(span, found), SCRIPT, at))
    return Claim(dialect, "run", document, blocks, framework=framework)


def script_launch(dialect: Dialect, launch: Launch, reader: str) -> Iterator[Claim]:
    """A command that starts a file of such a name, which decides whether it is one."""
    if launch.script is None or launch.stem not in KINDS:
        return
    where = Location(launch.document.source.path, place(launch.program))
    reference = Reference(launch.script, where, reader, optional=True, decides=True)
    options = OverrideBlock(launch.document, launch.flags, SCRIPT_OPTIONS, launch.anchor)
    yield Claim(dialect, "launch", launch.document, (*launch.blocks, options), (reference,))


def _variables(document: Document) -> dict[str, Entry]:
    """What the top of the script binds once, and what its calls are given, by the table's keys."""
    import ast

    from oomlint.documents.python.tree import read_tree
    from oomlint.documents.python.values import Evaluator, NodeSpans

    places = NodeSpans(document.source)
    tree = read_tree(ast.parse(document.source.text))
    evaluator = Evaluator(places, tree)
    found: dict[str, Entry] = {}
    for name, bindings in tree.scopes.module.bindings.items():
        values = [b.value for b in bindings if b.value is not None]
        if len(bindings) == len(values) == 1:
            _note(found, name, evaluator, values[0])
    for name, value in _arguments(tree):
        _note(found, name, evaluator, value)
    if any(True for _ in tree.calls_to("bfloat16")) and "precision" in found:
        # `model = LLaMA(config).bfloat16()`: the weights are narrow whatever computes with them.
        span = found["precision"].key_span
        found["cast"] = Entry("cast", span, Scalar(span, "bf16", locked=_COMPUTED), span)
    return found


def _note(found: dict[str, Entry], name: str, evaluator: Evaluator, value: ast.expr) -> None:
    if name in SCRIPT.names:
        node: Node = evaluator.node(value, evaluator.scopes.module)
        found[name] = Entry(name, node.span, node, node.span)


def _arguments(tree: Tree) -> Iterator[tuple[str, ast.expr]]:
    """What Fabric, its strategy and the model's configuration are given."""
    for call in tree.calls_to("Fabric"):
        yield from ((k.arg, k.value) for k in call.keywords if k.arg == "precision")
    for call in tree.calls_to("FSDPStrategy"):
        for keyword in call.keywords:
            if keyword.arg == "cpu_offload":
                yield "cpu_offload", keyword.value
    for call in tree.calls_to("from_name"):
        named = [k.value for k in call.keywords if k.arg == "name"]
        yield from (("from_name", value) for value in (*call.args[:1], *named))
