"""Training jobs that a script or a notebook hands to SageMaker: ``HuggingFace(entry_point=..., hyperparameters={...})``,
``PyTorch(...)``, and ``ModelTrainer(source_code=SourceCode(...), compute=Compute(...))`` of its newer SDK.

The container starts the script with a ``--name value`` for each of the hyperparameters, through torchrun where
``distribution`` says ``torch_distributed``, once on each GPU where it says ``pytorchddp`` or ``smdistributed``'s
``dataparallel``, and once on each machine elsewhere (aws/sagemaker-training-toolkit 4.8 ``mapping.to_cmd_args``;
sagemaker-pytorch-training-toolkit 2.9 ``training.py``). ``distributed=Torchrun()`` does the former (sagemaker 3.0
``sagemaker/train/container_drivers``). So the command is read that comes of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.block import Block
from oomlint.dialects.machine.commands import child, claims_in, text_of
from oomlint.dialects.machine.sagemaker_keys import ESTIMATOR
from oomlint.documents import PYTHON_SUFFIXES
from oomlint.documents.base import Call, Document, Mapping, Node, Scalar
from oomlint.documents.excerpt import Builder, ExcerptShell, shell_in
from oomlint.documents.text import Span
from oomlint.errors import ParseError

_ESTIMATORS = ("HuggingFace", "PyTorch")
_HERE = "the options of the script are hyperparameters of the job: change them there"
_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
_PATHS = re.compile(r"\$\w*|//+")


class _Job(Struct, frozen=True, eq=False):
    """What a job is told, whichever class is told it."""

    call: Call
    source: Node | None
    script: Node | None
    command: Node | None
    compute: Mapping
    hyperparameters: Node | None
    launcher: str | None
    """What starts the ranks; ``None`` where that is not read."""


class SageMaker(Dialect):
    name = "sagemaker"
    markers = (b"sagemaker",)
    markers_prove = False
    suffixes = PYTHON_SUFFIXES
    only_marked = PYTHON_SUFFIXES

    def recognise(self, document: Document) -> Iterable[Claim]:
        for call in document.calls:
            if call.callee.startswith("sagemaker."):
                yield from _claims(document, call)


def _claims(document: Document, call: Call) -> Iterator[Claim]:
    job = _job(call)
    command = None if job is None else _command(document, job)
    if job is None or command is None:
        return
    block = Block(document, job.compute, ESTIMATOR, call.span)
    yield from claims_in(command, lambda _claim: (block,))


def _job(call: Call) -> _Job | None:
    kind = call.callee.rpartition(".")[2]
    given = call.arguments
    if kind in _ESTIMATORS and child(given, "git_config") is None:
        return _Job(
            call, child(given, "source_dir"), child(given, "entry_point"), None, given,
            child(given, "hyperparameters"), _launcher(child(given, "distribution")),
        )  # fmt: skip
    code, compute = _arguments(child(given, "source_code")), _arguments(child(given, "compute"))
    if kind != "ModelTrainer" or code is None or compute is None:
        return None
    return _Job(
        call, child(code, "source_dir"), child(code, "entry_script"), child(code, "command"),
        compute, child(given, "hyperparameters"), _driver(child(given, "distributed")),
    )  # fmt: skip


def _arguments(node: Node | None) -> Mapping | None:
    """What the call that stands in a place is given."""
    value = node.value if isinstance(node, Scalar) else None
    return value.arguments if isinstance(value, Call) else None


def _launcher(distribution: Node | None) -> str | None:
    """``{"torch_distributed": {"enabled": True}}`` as a command."""
    if distribution is None:
        return "python"
    ways = (("torch_distributed",), ("pytorchddp",), ("smdistributed", "dataparallel"))
    for way in ways:
        if text_of(child(distribution, *way, "enabled")) == "True":
            return _TORCHRUN
    return None


_TORCHRUN = "torchrun --nproc_per_node gpu"


def _driver(distributed: Node | None) -> str | None:
    if distributed is None:
        return "python"
    value: Any = distributed.value if isinstance(distributed, Scalar) else None
    is_torchrun = isinstance(value, Call) and value.callee.endswith(".Torchrun")
    return _TORCHRUN if is_torchrun else None


def _command(document: Document, job: _Job) -> ExcerptShell | None:
    """The command that the container runs, word for word at the places that say it."""
    builder = Builder(document.source)
    at = job.call.span.start
    source = text_of(job.source).rstrip("/")
    if job.command is not None:
        if not text_of(job.command):
            return None
        if source and not _PATHS.search(source):
            builder.add(f"cd {source}\n", at)
        _spell(builder, job.command, text_of(job.command))
    elif job.launcher is not None and text_of(job.script).endswith(".py"):
        nodes = text_of(child(job.compute, "instance_count"))
        several = f" --nnodes {nodes}" if job.launcher == _TORCHRUN and nodes else ""
        folder = f"{source}/" if source and not _PATHS.search(source) else ""
        builder.add(f"{job.launcher}{several} {folder}", at)
        _spell(builder, job.script, text_of(job.script))
        _options(builder, job.hyperparameters, at)
    else:
        return None
    builder.add("\n", at)
    builder.part(0, None, _HERE)
    try:
        return shell_in(builder.finish())
    except ParseError:
        return None


def _options(builder: Builder, hyperparameters: Node | None, at: int) -> None:
    """``--name value`` for each; of what is not read, a variable without a value."""
    if hyperparameters is None:
        return
    if not isinstance(hyperparameters, Mapping):
        builder.add(' "${HYPERPARAMETERS[@]}"', at)
        return
    for entry in hyperparameters.entries.values():
        if not _PLAIN.fullmatch(entry.key):
            continue
        builder.add(" ", entry.key_span.start)
        builder.spell(f"--{entry.key}", entry.key_span.start, entry.key_span.end)
        builder.add(" ", entry.value.span.start)
        node = entry.value
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, (str, int, float)):
            _spell(builder, node, _quoted(str(value)))
        else:
            builder.add("$HYPERPARAMETER", node.span.start)
    if hyperparameters.open_ended:
        builder.add(' "${HYPERPARAMETERS[@]}"', at)


def _spell(builder: Builder, node: Node | None, text: str) -> None:
    """Text that a node stands for: taken over where the file has it as it is, so that its words have places."""
    span = node.span if node is not None else Span(0, 0)
    place = builder.host.text.find(text, span.start, span.end)
    if place >= 0:
        builder.copy(place, place + len(text))
    else:
        builder.spell(text, span.start, span.end)


def _quoted(text: str) -> str:
    """A value as a shell reads it; one in quotes of its own (``'"full_shard auto_wrap"'``) loses them there."""
    is_quoted = len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1]
    return text if is_quoted or _PLAIN.fullmatch(text) else "'" + text.replace("'", "'\\''") + "'"
