"""torchtune: its YAML, the overrides of ``tune run``, and what its recipes make of both.

Read from torchtune 0.7.0 (bd2a0fc7, 2026-04-23); ``TT`` below is the root of that checkout.
OmegaConf loads the YAML and recipes ask it for the keys they want, so a misspelt key is
lost in silence. The YAML does not name its recipe: the launch line does, and in files that
torchtune ships a comment at the head.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping as MappingABC
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.base import Claim, ClaimKind, Dialect, Reference
from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launcher_keys import TORCHRUN
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.omegaconf import OmegaConfBlock, OmegaConfOverrides
from oomlint.dialects.skeleton import Method, Skeleton, Start
from oomlint.dialects.torchtune.keys import HEADER, LAUNCHED, TORCHTUNE, header, own
from oomlint.dialects.torchtune.meaning import meaning
from oomlint.dialects.torchtune.models import BUILDER
from oomlint.documents.base import Document, Entry, Mapping, Node, Scalar, Sequence, roots
from oomlint.documents.text import Location, Source, Span
from oomlint.errors import CannotEdit

_HEADER_LINE = re.compile(r"^#[# \t]*tune run (?P<line>[^\n]*)", re.MULTILINE)
_RECIPE_WORD = re.compile(r"(?P<recipe>[\w./-]*[A-Za-z]\w*)\s+--config[ =]+(?P<config>\S+)")


class Torchtune(Dialect):
    name = "torchtune"
    packages = ("torchtune",)
    markers = (b"torchtune", b"_component_", b"tune run")
    suffixes = (".yaml", ".yml", ".sh", ".bash", ".slurm", ".sbatch", ".job")
    meaning = meaning

    def model_folder(self, run: Cells) -> str:
        return PurePath(run[own.recipe] or run[header.recipe] or "").stem

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            kind = _kind_of(root)
            if kind is not None:
                anchor = _anchor(root)
                block = OmegaConfBlock(document, root, TORCHTUNE, anchor)
                yield Claim(self, kind, document, (block, *_header_blocks(document)))
        for launch in launches(document):
            claim = self._launch(launch)
            if claim is not None:
                yield claim

    def _launch(self, launch: Launch) -> Claim | None:
        words = [word for word in launch.arguments if isinstance(word.value, str)]
        if launch.stem != "tune" or len(words) < 2 or words[0].value != "run":
            return None
        recipe = words[1]
        document = launch.document
        if _is_aside_recipe(str(recipe.value)):
            return Claim(self, "aside", document, ())
        others = {k: e for k, e in launch.flags.entries.items() if k != "config"}
        torchrun = replace(launch.flags, entries=others, duplicates=())
        overrides = launch.command.assignments
        return Claim(
            self,
            "launch",
            document,
            (
                *launch.blocks,
                *((Block(document, torchrun, TORCHRUN, launch.anchor),) if others else ()),
                _launched_block(document, recipe, words[2:]),
                OmegaConfOverrides(document, overrides, TORCHTUNE, launch.anchor),
            ),
            tuple(_config_of(self, launch)),
        )

    def preset(self, reference: Reference) -> Claim | None:
        """A config that torchtune ships, by the name that ``tune run --config`` takes."""
        name = reference.path.removeprefix(_SHIPPED).removesuffix(".yaml")
        settings = _shipped_configs().get(name)
        if settings is None:
            return None
        from oomlint.documents.json import parse_json

        document = parse_json(Source(reference.path, json.dumps(settings, indent=2)))
        root = document.root
        assert isinstance(root, Mapping)
        block = OmegaConfBlock(
            document,
            root,
            TORCHTUNE,
            _anchor(root),
            locked=f"{name} is a config that torchtune ships; copy it with `tune cp` to change it",
            referred=reference.location,
        )
        return Claim(self, "part", document, (block,))

    def skeleton(self, start: Start) -> Skeleton:
        """The launch line with the config that torchtune ships for a model and a method, which has the builder,
        the tokenizer and the checkpointer of that model; what differs is said on the line. Its distributed
        recipes shard with FSDP2 and nothing else (recipes/lora_finetune_distributed.py)."""
        is_alone = start.ranks == 1
        if not is_alone and start.shard != "fsdp":
            raise CannotEdit("torchtune's distributed recipes shard with FSDP and in no other way")
        name = _shipped_for(start.model, start.method, is_alone)
        kind = "full" if start.method == "full" else "lora"
        recipe = f"{kind}_finetune_{'single_device' if is_alone else 'distributed'}"
        nodes = f" --nnodes {start.nodes}" if start.nodes > 1 else ""
        ranks = "" if is_alone else f"{nodes} --nproc_per_node {start.gpus_per_node}"
        line = f"tune run{ranks} {recipe} --config {name} output_dir=out\n"
        return Skeleton("torchtune.sh", line, "bash {file}", "dataset")


# -- new configs ------------------------------------------------------------------------------


def _shipped_for(model: str, method: Method, is_alone: bool) -> str:
    """The name of the shipped config that trains a model.

    Raises:
        CannotEdit: there is none.
    """
    from oomlint.models import lookup

    facts = lookup(model)
    ends = (f"_{method}_single_device", f"_{method}_low_memory") if is_alone else (f"_{method}",)
    others = set()
    for name, settings in _shipped_configs().items():
        component = settings.get("model", {}).get("_component_")
        built = None if component is None else lookup(BUILDER.read(component) or "")
        if facts is None or built is None or built.id != facts.id or not name.startswith(_FAMILIES):
            continue
        if name.endswith(ends):
            return name
        if re.search(r"_(full|lora|qlora)(_single_device)?$", name):
            others.add(name)
    where = "one GPU" if is_alone else "several GPUs"
    have = f"; of this model it has {', '.join(sorted(others))}" if others else ""
    raise CannotEdit(f"it ships no config that trains {model} with {method} on {where}{have}")


# Folders of the configs that begin with a model rather than with a technique.
_FAMILIES = ("gemma", "llama", "mistral", "phi", "qwen")


# -- recognising ------------------------------------------------------------------------------


def _kind_of(root: Mapping) -> ClaimKind | None:
    """Whether a mapping is a training config, one for evaluation or generation, or not ours."""
    components = [text for entry in root.entries.values() for text in _components(entry.value)]
    parts = {key for key, entry in root.entries.items() if any(_components(entry.value))}
    ours = any(text.startswith("torchtune.") for text in components)
    if not (ours or {"tokenizer", "checkpointer"} <= parts):
        return None
    training = root.section("training")
    if "optimizer" in parts or (training is not None and "optimizer" in training.entries):
        return "run"
    return "aside"


def _components(node: Node) -> Iterable[str]:
    """The ``_component_`` of a mapping, or those of a list of mappings."""
    if isinstance(node, Mapping):
        entry = node.entries.get("_component_")
        if entry is not None and isinstance(entry.value, Scalar):
            yield str(entry.value.value)
    elif isinstance(node, Sequence):
        for item in node.items:
            if isinstance(item, Mapping):
                yield from _components(item)


def _anchor(root: Mapping) -> Span:
    first = next((root.entries[k] for k in ("model", "policy_model") if k in root.entries), None)
    return (first or next(iter(root.entries.values()))).key_span


def _is_aside_recipe(name: str) -> bool:
    """TT/torchtune/_recipe_registry.py: recipes that train nothing."""
    stem = name.rpartition("/")[2].removesuffix(".py")
    return stem.startswith(("generate", "eleuther_eval", "quantize"))


def _launched_block(document: Document, recipe: Scalar, words: Iterable[Scalar]) -> Block:
    """The recipe and the ``~key`` removals of a launch line, as if they were a mapping."""
    at = place(recipe)
    entries = {"recipe": Entry("recipe", at, recipe, at)}
    removed = [word for word in words if str(word.value).startswith("~")]
    if removed:
        listed = " ".join(str(word.value)[1:].partition("=")[0] for word in removed)
        where = place(removed[0])
        entries["removed"] = Entry("removed", where, Scalar(where, listed), where)
    return Block(document, Mapping(at, entries), LAUNCHED, at)


def _config_of(dialect: Dialect, launch: Launch) -> Iterable[Reference]:
    """The file behind ``--config``: a path, or the name of a config that torchtune ships."""
    entry = launch.flag("config")
    if entry is None or not isinstance(entry.value, Scalar) or not entry.value.value:
        return
    name = str(entry.value.value)
    where = Location(launch.document.source.path, place(entry.value))
    if name.endswith((".yaml", ".yml")):
        yield Reference(name, where, dialect.name)
    else:
        shipped = f"{_SHIPPED}{name}.yaml"
        yield Reference(shipped, where, dialect.name, optional=True)


_SHIPPED = "recipes/configs/"


@cache
def _shipped_configs() -> MappingABC[str, MappingABC[str, Any]]:
    """What torchtune bd2a0fc7 recipes/configs/*.yaml say of memory, by name."""
    table = Path(__file__).with_name("shipped_configs.json")
    found: MappingABC[str, MappingABC[str, Any]] = json.loads(table.read_text("utf-8"))
    return found


def _header_blocks(document: Document) -> Iterable[Block]:
    """The launch line that the comment at the head of a shipped config suggests."""
    text = document.source.text
    stem = document.source.path.rpartition("/")[2].removesuffix(".yaml").removesuffix(".yml")
    best = None
    for found in _HEADER_LINE.finditer(text[:8192]):
        word = _RECIPE_WORD.search(found["line"])
        if word is None:
            continue
        own = word["config"].rpartition("/")[2].removesuffix(".yaml") == stem
        if best is None or (own and not best[2]):
            best = (found, word, own)
    if best is None:
        return
    found, word, _ = best
    start = found.start("line")
    entries = {}
    for key, pattern in (("recipe", None), ("nproc_per_node", _NPROC), ("nnodes", _NNODES)):
        match = word if pattern is None else pattern.search(found["line"][: word.start()])
        if match is not None:
            group = "recipe" if pattern is None else 1
            span = Span(start + match.start(group), start + match.end(group))
            entries[key] = Entry(key, span, Scalar(span, match[group]), span)
    where = Span(start, found.end("line"))
    yield Block(document, Mapping(where, entries), HEADER, where, locked="it is a comment")


_NPROC = re.compile(r"--nproc[_-]per[_-]node[ =]+(\d{1,5})")
_NNODES = re.compile(r"--nnodes[ =]+(\d{1,5})")
