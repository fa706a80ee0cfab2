"""``oomlint hardware`` and ``oomlint models``: the catalogues, with their sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from oomlint.cli import completion
from oomlint.cli.output import emit
from oomlint.errors import UsageError
from oomlint.wording.amounts import count, gib

if TYPE_CHECKING:
    from oomlint.dialects.skeleton import Method
    from oomlint.hardware import Gpu, Instance
    from oomlint.models import ModelFacts

_format_option = click.option(
    "--output-format", type=click.Choice(["text", "json"]), default="text"
)


@click.command()
@click.argument("name", required=False, shell_complete=completion.gpu_or_instance)
@_format_option
def hardware(name: str | None, output_format: str) -> None:
    """List GPUs and cloud instances, or show one with its sources."""
    if name is None:
        _every_hardware(output_format)
        return
    from oomlint.hardware import find_gpus

    sizes = [gpu for gpu in find_gpus(name) if not gpu.rare]
    if len(sizes) > 1:
        _sizes_of_gpu(sizes, output_format)
    else:
        _one_machine(name, output_format)


def _sizes_of_gpu(sizes: Sequence[Gpu], output_format: str) -> None:
    """One name for cards of several sizes, of which only a run has to have one."""
    if output_format == "json":
        _emit_json({"gpus": [_gpu_object(gpu) for gpu in sizes]})
    else:
        emit("\n".join(_pairs(_gpu_rows(gpu)) for gpu in sizes))


def _one_machine(name: str, output_format: str) -> None:
    from oomlint.hardware import parse_hardware
    from oomlint.report.runs import hardware_object

    found = parse_hardware(name)
    if output_format == "json":
        machine: dict[str, Any] = {**(hardware_object(found, None) or {})}
        _emit_json({**machine, "gpu": _gpu_object(found.gpu)})
        return
    rows = [
        ("name", found.name),
        ("nodes", str(found.nodes)),
        ("GPUs per node", str(found.gpus_per_node)),
        ("RAM per node", _size(found.host_bytes_per_node)),
        *_gpu_rows(found.gpu),
        ("source", found.source),
    ]
    emit(_pairs(rows))


def _every_hardware(output_format: str) -> None:
    from oomlint.hardware import list_gpus, list_instances

    gpus, instances = list_gpus(), list_instances()
    if output_format == "json":
        _emit_json(
            {
                "gpus": [_gpu_object(gpu) for gpu in gpus],
                "instances": [_instance_object(instance) for instance in instances],
            }
        )
        return
    cards = [
        (
            g.name,
            gib(g.total_bytes),
            *("yes" if has else "no" for has in (g.bf16, g.fp8)),
            g.supported,
        )
        for g in gpus
    ]
    machines = [(i.name, i.cloud, f"{i.gpus}x{i.gpu.name}", _size(i.host_bytes)) for i in instances]
    emit(_table(("GPU", "usable", "bf16", "fp8", "predicted"), cards))
    emit("\n")
    emit(_table(("instance", "cloud", "GPUs", "RAM"), machines))


def _emit_json(value: Any) -> None:
    from oomlint.report.runs import as_json

    emit(as_json(value), form="data")


def _size(size: int | None) -> str:
    return "unknown" if size is None else gib(size)


def _gpu_object(gpu: Gpu) -> dict[str, Any]:
    out = asdict(gpu)
    out["context_mib"] = asdict(gpu.context_mib)
    return out


def _instance_object(instance: Instance) -> dict[str, Any]:
    return {**asdict(instance), "gpu": instance.gpu.name}


def _gpu_rows(gpu: Gpu) -> list[tuple[str, str]]:
    context = gpu.context_mib
    rows = [
        ("GPU", f"{gpu.name} ({gpu.vendor})"),
        ("compute capability", gpu.compute_capability or "-"),
        (
            "usable memory",
            f"{gib(gpu.total_bytes)} (between {gib(gpu.total_low)} and {gib(gpu.total_high)})",
        ),
        ("driver reports", f"{gpu.driver_total_mib} MiB" if gpu.driver_total_mib else "unknown"),
        (
            "CUDA context",
            f"{context.typical} MiB ({context.low} to {context.high}): {gpu.context_source}",
        ),
        (
            "supports",
            ", ".join(
                word
                for word, has in (
                    ("bf16", gpu.bf16),
                    ("fp8", gpu.fp8),
                    ("tf32", gpu.tf32),
                    ("FlashAttention 2", gpu.flash2),
                )
                if has
            )
            or "fp16 and fp32",
        ),
        ("GPU to GPU", gpu.interconnect),
        ("source of sizes", gpu.source),
    ]
    if gpu.note:
        rows.append(("note", gpu.note))
    return rows


@click.command()
@click.argument("name", required=False, shell_complete=completion.models)
@_format_option
def models(name: str | None, output_format: str) -> None:
    """List the models with known dimensions, or show one with its source."""
    if name is None:
        every = list(_all_models())
        if output_format == "json":
            _emit_json([_model_object(facts) for facts in every])
        else:
            emit(
                _table(
                    ("model", "parameters", "architecture", "confidence"),
                    [(f.id, _parameters(f), f.dims.arch or "-", f.confidence) for f in every],
                )
            )
        return
    facts = _one_model(name)
    if output_format == "json":
        _emit_json(_model_object(facts))
        return
    rows = [("model", facts.id), ("parameters", _parameters(facts)), *_sizes(name, facts)]
    rows += [(key, str(value)) for key, value in _model_object(facts)["dims"].items()]
    rows += [
        ("checkpoint dtype", facts.ckpt_dtype or "unknown"),
        ("quantization", facts.native_quant),
        ("confidence", facts.confidence),
        ("source", facts.source),
    ]
    if facts.note:
        rows.append(("note", facts.note))
    emit(_pairs(rows))


def _all_models() -> Iterable[ModelFacts]:
    from oomlint.models.catalogue import CatalogueMatch, facts, size

    return (facts(CatalogueMatch(line, None)) for line in range(size()))


def _one_model(name: str) -> ModelFacts:
    """A model of the catalogue, of a local folder or the Hugging Face cache, or a guess."""
    from pathlib import Path

    from oomlint.files.workspace import Workspace
    from oomlint.models import resolve

    workspace = Workspace(Path.cwd())
    facts = resolve(
        name,
        read=workspace.read_or_none,
        base_dirs=[str(workspace.cwd)],
        hf_cache=workspace.disk.hf_cache,
    )
    if facts is not None:
        return facts
    from oomlint.drafts.model import nearest

    near = nearest(name)
    hint = f"; nearest: {', '.join(near)}" if near else "; `oomlint models` lists them all"
    raise UsageError(f"no model is known as {name!r}{hint}")


# How people train, in the words of the question.
_TRAINED: tuple[tuple[Method, str], ...] = (
    ("full", "all weights trained"),
    ("lora", "LoRA, rank 16"),
    ("qlora", "QLoRA, rank 16"),
)


def _sizes(name: str, facts: ModelFacts) -> Iterable[tuple[str, str]]:
    """What people ask first of a model: its weights, and what training it takes on one GPU."""
    total = facts.dims.params_total
    if total is None:
        return
    yield "weights in 16 bits", gib(2 * total)
    if facts.dims.layers is None:  # a size in a name is all that is known
        from oomlint.drafts.model import nearest

        near = nearest(name)
        if near:
            yield "nearest", ", ".join(near)
        return
    from oomlint.cli.models import known_model
    from oomlint.drafts import Wanted, lightest

    for method, words in _TRAINED:
        try:
            found = lightest(Wanted(model=known_model(name), method=method))
        except UsageError:  # such as QLoRA of what is stored in 8 bits already
            continue
        peak = found.draft.run.estimate.gpu.peak_bytes
        if peak is not None:
            yield (
                words,
                f"{gib(peak)} on one GPU, micro batch 1, samples of {found.draft.wanted.length} tokens",
            )
    yield (
        "more",
        f"oomlint estimate {facts.id} --method lora (cards that hold it, and what lowers it)",
    )


def _parameters(facts: ModelFacts) -> str:
    total, active = facts.dims.params_total, facts.dims.params_active
    if total is None:
        return "unknown"
    sparse = f" ({count(active)} active)" if active is not None and active < total else ""
    return count(total) + sparse


def _model_object(facts: ModelFacts) -> dict[str, Any]:
    from oomlint.plan import plan_to_dict

    return {
        "id": facts.id,
        "dims": plan_to_dict(facts.dims),
        "ckpt_dtype": facts.ckpt_dtype,
        "native_quant": facts.native_quant,
        "confidence": facts.confidence,
        "source": facts.source,
        "note": facts.note,
    }


def _pairs(rows: Sequence[tuple[str, str]]) -> str:
    width = max(len(key) for key, _ in rows)
    return "".join(f"{key:<{width}}  {value}\n" for key, value in rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    every = [head, *rows]
    widths = [max(len(row[i]) for row in every) for i in range(len(head))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        + "\n"
        for row in every
    )
