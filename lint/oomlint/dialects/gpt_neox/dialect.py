"""GPT-NeoX: its YAML, and ``deepy.py``, which hands one or several such files to DeepSpeed's launcher.

Read from gpt-neox ea7aefd8 (2026-05-20), v1.0 and v2.0; ``NX`` below is its ``megatron`` package. No
key may stand in two of the files; dashes in keys count as underscores (NX/neox_arguments/arguments.py
from_ymls). DeepSpeed's autotuner has copies in JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from oomlint.dialects.base import Claim, ClaimKind, Dialect, Reference
from oomlint.dialects.block import Block
from oomlint.dialects.deepspeed.keys import DEEPSPEED
from oomlint.dialects.gpt_neox.keys import GPT_NEOX
from oomlint.dialects.gpt_neox.meaning import meaning
from oomlint.dialects.machine.fields import launch as launched
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launcher_keys import DEEPSPEED_LAUNCHER
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.reading import Reading, StrayKey
from oomlint.documents import JSON_SUFFIXES, SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import Document, Entry, Mapping, Scalar, Sequence, roots
from oomlint.documents.text import Location

_MODEL = frozenset({"num_layers", "hidden_size", "num_attention_heads"})
# Keys that no other framework has beside those of a model (NX/neox_arguments/neox_args.py).
_TELLING = frozenset(
    {
        "pipe_parallel_size", "attention_config", "no_weight_tying", "gpt_j_residual", "pos_emb",
        "output_layer_parallelism", "scaled_upper_triang_masked_softmax_fusion",
    }
)  # fmt: skip
# Of a file that says how several models are trained (configs/llama/train_config.yml): no other framework counts
# checkpoints by a factor.
_TRAINING = frozenset({"train_iters", "checkpoint_factor", "distributed_backend"})
_BATCHES = frozenset({"train_micro_batch_size_per_gpu", "train_batch_size"})
# The scripts that deepy.py is given and that train; generate.py and eval.py are the others.
_TRAINERS = frozenset({"train", "pretrain_gpt2"})


class _ForDeepSpeed(Block, frozen=True, eq=False):
    """What DeepSpeed reads of a mapping in which others have keys too. Of a list its autotuner tries
    each (NX/neox_arguments/arguments.py calculate_derived)."""

    def read(self) -> Reading:
        reading = super().read()
        if "autotuning" not in self.mapping.entries:
            return reading
        wrong = tuple(w for w in reading.wrong if not isinstance(w.entry.value, Sequence))
        return replace(reading, wrong=wrong)

    def stray_keys(self, mapping: Mapping, prefix: str) -> Iterator[StrayKey]:
        return (s for s in super().stray_keys(mapping, prefix) if s.mapping is not self.mapping)


class GptNeox(Dialect):
    name = "gpt-neox"
    packages = ("megatron",)
    markers = (
        b"num-layers", b"num_layers", b"deepy.py", b"checkpoint_factor", b"checkpoint-factor",
    )  # fmt: skip
    markers_prove = False
    suffixes = (*YAML_SUFFIXES, *JSON_SUFFIXES, *SHELL_SUFFIXES)
    references = {launched.hostfile: "hostfile"}
    declared_in = ("megatron/neox_arguments/neox_args.py",)
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            keys = {key.replace("-", "_") for key in root.entries}
            if keys >= _MODEL and keys & _TELLING:
                yield self._file(document, root, "run" if keys & _BATCHES else "aside")
            elif keys >= _TRAINING and keys & _BATCHES:
                yield self._file(document, root, "aside")
        for launch in launches(document):
            claim = self._launch(launch)
            if claim is not None:
                yield claim

    def adopt(self, document: Document) -> Claim | None:
        """A file of paths, or of what is common to several models, that ``deepy.py`` is given."""
        filled = (root for root in roots(document) if root.entries)
        return next((self._file(document, root, "part") for root in filled), None)

    def _file(self, document: Document, root: Mapping, kind: ClaimKind) -> Claim:
        """A model without batches is nobody's run by itself: what trains it stands in another file."""
        first = ("num_layers", "num-layers", *root.entries)
        anchor = next(root.entries[key] for key in first if key in root.entries).key_span
        blocks = (
            Block(document, root, DEEPSPEED_LAUNCHER, anchor, dashes=True),
            _ForDeepSpeed(document, root, DEEPSPEED, anchor, dashes=True),
            Block(document, root, GPT_NEOX, anchor, dashes=True),
        )
        return Claim(self, kind, document, blocks)

    def _launch(self, launch: Launch) -> Claim | None:
        words = _operands(launch) if launch.stem == "deepy" else []
        if not words:
            return None
        document, script = launch.document, str(words[0].value).replace("\\", "/")
        if script.rpartition("/")[2].removesuffix(".py") not in _TRAINERS:
            return Claim(self, "aside", document, ())
        own = {key: e for key, e in launch.flags.entries.items() if key in ("hostfile", "H")}
        flags = replace(launch.flags, entries=own, duplicates=())
        launcher = Block(document, flags, DEEPSPEED_LAUNCHER, launch.anchor)
        references = (*launch.scene_references, *self._configs(launch, words[1:]))
        return Claim(self, "launch", document, (*launch.blocks[:-1], launcher), references)

    def _configs(self, launch: Launch, words: Iterable[Scalar]) -> Iterator[Reference]:
        """``-d configs 125M local_setup.yml`` (arguments.py consume_deepy_args)."""
        entry = launch.flag("conf_dir") or launch.flag("d")
        value = next((w.value for w in _values(entry)), None) if entry is not None else None
        folder = f"{value.rstrip('/')}/" if isinstance(value, str) and value else ""
        for word in words:
            name = str(word.value)
            name = name if name.endswith((".yml", ".json")) else f"{name}.yml"
            path = name if name.startswith("/") else folder + name
            yield Reference(path, Location(launch.document.source.path, place(word)), self.name)


def _values(entry: Entry) -> tuple[Scalar, ...]:
    """The words that follow an option."""
    items = entry.value.items if isinstance(entry.value, Sequence) else (entry.value,)
    return tuple(item for item in items if isinstance(item, Scalar))


def _operands(launch: Launch) -> list[Scalar]:
    """What the command names beside its options: the script, then configs. Every option has one
    value (``--eval_tasks`` alone has several, and is no trainer's), so that more words are none of its."""
    more = (word for entry in launch.flags.entries.values() for word in _values(entry)[1:])
    words = [word for word in (*launch.arguments, *more) if isinstance(word.value, str)]
    return sorted(words, key=lambda word: place(word).start)
