"""OLMo: one YAML for a run, and ``scripts/train.py``, which is given it and words like ``--model.n_layers=8``.

Read from allenai/OLMo 59a53e3f (2025-09-04): ``torchrun --nproc_per_node=8 scripts/train.py FILE --a.b=c``. Options
are laid over the file; dashes in their names count as underscores, and one without a value is true
(olmo/util.py clean_opt). OmegaConf follows ``${…}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oomlint.dialects.base import Claim, ClaimKind, Reference
from oomlint.dialects.configs import ConfigDialect
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.olmo.keys import OLMO
from oomlint.dialects.olmo.meaning import meaning
from oomlint.dialects.omegaconf import OmegaConfBlock, OmegaConfOverrides
from oomlint.documents import SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import Document, Mapping
from oomlint.documents.text import Location

_MODEL = frozenset({"d_model", "n_heads", "n_layers"})
_BATCHES = frozenset({"global_train_batch_size", "device_train_microbatch_size"})
# Keys of OLMo's that LLM Foundry's configs, which share the batches, have not.
_TELLING = frozenset(
    {
        "fsdp", "ddp", "distributed_strategy", "fused_loss", "softmax_auxiliary_loss", "gen1_gc_interval", "save_overwrite",
        "save_interval_unsharded", "save_num_unsharded_checkpoints_to_keep", "sharded_checkpointer",
    }
)  # fmt: skip
_OTHERS = frozenset({"train_loader", "train_dataset", "max_seq_len", "parameters"})


class Olmo(ConfigDialect):
    name = "olmo"
    markers = (b"d_model", b"device_train_microbatch_size", b"train.py")
    markers_prove = False
    suffixes = (*YAML_SUFFIXES, *SHELL_SUFFIXES)
    declared_in = ("olmo/config.py",)
    meaning = meaning

    def is_config(self, root: Mapping) -> bool:
        """A model in OLMo's words, and what only its trainer asks for."""
        model, top = root.section("model"), set(root.entries)
        if model is None or _OTHERS & top:
            return False
        if "name" in model.entries or not set(model.entries) >= _MODEL:
            return False
        return bool(_BATCHES & top) and len((_BATCHES | _TELLING) & top) >= 2

    def started_by(self, launch: Launch) -> Iterable[Claim]:
        references = tuple(_configs(launch)) if launch.stem == "train" else ()
        if references:
            yield self._launch(launch, references)

    def of_config(self, document: Document, root: Mapping) -> Claim:
        anchor = root.entries["model"].key_span
        kind: ClaimKind = "run" if _BATCHES & set(root.entries) else "aside"
        return Claim(self, kind, document, (OmegaConfBlock(document, root, OLMO, anchor),))

    def _launch(self, launch: Launch, references: tuple[Reference, ...]) -> Claim:
        document = launch.document
        options = OmegaConfOverrides(document, launch.flags, OLMO, launch.anchor, dashes=True)
        scene = (*launch.scene_references, *references)
        return Claim(self, "launch", document, (*launch.blocks, options), scene)


def _configs(launch: Launch) -> Iterator[Reference]:
    """The first word after the script, which is a config of OLMo's only if the file says so."""
    words = [word for word in launch.arguments if isinstance(word.value, str)]
    if words and str(words[0].value).endswith((".yaml", ".yml")):
        where = Location(launch.document.source.path, place(words[0]))
        yield Reference(str(words[0].value), where, Olmo.name, decides=True)
