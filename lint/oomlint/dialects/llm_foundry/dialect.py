"""LLM Foundry: its training YAML, the MosaicML run file around it, and ``composer`` lines.

Read from llm-foundry 0.22.0.dev0 (8c8dd48f) and Composer 640518880 (2026-04-29); ``LF`` below
is the package ``llmfoundry``, ``CO`` the package ``composer``. OmegaConf loads the YAML and a
dataclass takes it: top-level keys that it lacks are refused (LF/utils/config_utils.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block
from oomlint.dialects.llm_foundry.keys import COMPOSER, LLM_FOUNDRY, MCLI
from oomlint.dialects.llm_foundry.meaning import meaning
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.omegaconf import REFERENCE, OmegaConfBlock, OmegaConfOverrides
from oomlint.dialects.table import Row
from oomlint.documents.base import Document, Entry, Mapping, Node, Scalar, Sequence, roots
from oomlint.documents.text import Location
from oomlint.plan.fields import f


class _FoundryBlock(OmegaConfBlock, frozen=True, eq=False):
    """Lengths are said once, in ``variables``, and everything refers there: a fix goes there too."""

    def entry_of(self, row: Row) -> Entry | None:
        entry = super().entry_of(row)
        seen: set[str] = set()
        while row.field == f.seq.max_len and entry is not None and isinstance(entry.value, Scalar):
            match = REFERENCE.fullmatch(str(entry.value.value))
            if match is None or match[1] in seen:
                break
            seen.add(match[1])
            target = self.find(match[1])
            if target is None:
                break
            entry = target
        return entry


class LlmFoundry(Dialect):
    name = "llm-foundry"
    markers = (b"train_loader", b"composer", b"llmfoundry", b"icl_tasks", b"eval_gauntlet")
    suffixes = (".yaml", ".yml", ".sh", ".bash", ".slurm", ".sbatch", ".job")
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            claim = self._file(document, root)
            if claim is not None:
                yield claim
        for launch in launches(document):
            claim = self._launch(launch)
            if claim is not None:
                yield claim

    def _file(self, document: Document, root: Mapping) -> Claim | None:
        wrapped = _child(root, "parameters")
        if isinstance(wrapped, Mapping) and _trains(wrapped):
            anchor = wrapped.entries["model"].key_span
            scene = Block(document, root, MCLI, anchor)
            block = _FoundryBlock(document, wrapped, LLM_FOUNDRY, anchor, "parameters")
            return Claim(self, "run", document, (scene, block))
        if _trains(root):
            anchor = root.entries["model"].key_span
            block = _FoundryBlock(document, root, LLM_FOUNDRY, anchor)
            return Claim(self, "run", document, (block,))
        if _evaluates(root) or (isinstance(wrapped, Mapping) and _evaluates(wrapped)):
            return Claim(self, "aside", document, ())
        return None

    def _launch(self, launch: Launch) -> Claim | None:
        words = [word for word in launch.arguments if isinstance(word.value, str)]
        configs = [w for w in words if str(w.value).endswith((".yaml", ".yml"))]
        if launch.stem == "llmfoundry" and words and words[0].value == "train":
            composes = False
        elif launch.stem == "composer" and any(_is_train_script(w) for w in words):
            composes = True
        elif launch.stem == "train" and "llm-foundry/" in launch.name:
            composes = False
        else:
            return None
        if not configs:
            return None
        document = launch.document
        config = configs[0]
        name = str(config.value)
        where = Location(document.source.path, place(config))
        reference = Reference(name, where, self.name, optional=name.startswith("/mnt/config/"))
        overrides = OmegaConfOverrides(
            document, launch.command.assignments, LLM_FOUNDRY, launch.anchor
        )
        flags = (launch.program_block(COMPOSER),) if composes else ()
        return Claim(self, "launch", document, (*launch.blocks, *flags, overrides), (reference,))


def _child(root: Mapping, key: str) -> Node | None:
    entry = root.entries.get(key)
    return entry.value if entry is not None else None


def _trains(root: Mapping) -> bool:
    model = _child(root, "model")
    named = isinstance(model, Mapping) and "name" in model.entries
    length = {"max_duration", "global_train_batch_size", "device_train_microbatch_size"}
    return (
        named
        and isinstance(_child(root, "train_loader"), Mapping)
        and bool(length & set(root.entries))
    )


def _evaluates(root: Mapping) -> bool:
    """LF/command_utils/eval.py, and the lists of tasks that its configs name."""
    models, tasks = _child(root, "models"), _child(root, "icl_tasks")
    gauntlet = _child(root, "eval_gauntlet")
    if isinstance(models, Sequence) and models.items:
        first = models.items[0]
        return isinstance(first, Mapping) and {"model", "tokenizer"} <= set(first.entries)
    if isinstance(tasks, Sequence) and tasks.items:
        first = tasks.items[0]
        return isinstance(first, Mapping) and "icl_task_type" in first.entries
    return isinstance(gauntlet, Mapping) and "categories" in gauntlet.entries


def _is_train_script(word: Scalar) -> bool:
    return str(word.value).replace("\\", "/").rpartition("/")[2] in ("train.py", "llmfoundry")
