"""nanotron: one YAML for a run, and ``run_train.py``, which is given it.

Read from huggingface/nanotron 2411b022 (2026-04-07). ``torchrun --nproc_per_node=8 run_train.py --config-file
FILE``; the file says how many ranks there are, and no option of the line changes what it says.
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.base import Claim, ClaimKind
from oomlint.dialects.block import Block
from oomlint.dialects.configs import ConfigDialect
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.nanotron.keys import NANOTRON
from oomlint.dialects.nanotron.meaning import meaning
from oomlint.documents import SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import Document, Mapping

# examples/mamba and examples/moe bring classes for models of their own.
_MODELS_OF_EXAMPLES = frozenset({"is_mamba_config", "is_llamoe_config"})
_DEGREES = frozenset({"dp", "tp", "pp"})
_BATCHES = frozenset({"micro_batch_size", "sequence_length"})


class Nanotron(ConfigDialect):
    name = "nanotron"
    packages = ("src/nanotron", "nanotron")
    markers = (b"parallelism", b"run_train")
    markers_prove = False
    suffixes = (*YAML_SUFFIXES, *SHELL_SUFFIXES)
    declared_in = ("src/nanotron/config/config.py",)
    meaning = meaning

    def is_config(self, root: Mapping) -> bool:
        degrees, model = _keys(root, "parallelism"), _keys(root, "model")
        return (
            degrees >= _DEGREES
            and "model_config" in model
            and ("tokens" not in root.entries or bool(_keys(root, "tokens") & _BATCHES))
        )

    def started_by(self, launch: Launch) -> Iterable[Claim]:
        entry = launch.flag("config-file") or launch.flag("config_file")
        if launch.stem == "run_train" and entry is not None:
            yield self._launch(launch)

    def of_config(self, document: Document, root: Mapping) -> Claim:
        block = Block(document, root, NANOTRON, root.entries["parallelism"].key_span)
        is_whole = "tokens" in root.entries and not _MODELS_OF_EXAMPLES & _keys(
            root, "model", "model_config"
        )
        kind: ClaimKind = "run" if is_whole else "aside"
        return Claim(self, kind, document, (block,))

    def _launch(self, launch: Launch) -> Claim:
        entry = launch.flag("config-file") or launch.flag("config_file")
        assert entry is not None
        references = (*launch.scene_references, *launch.reference(entry.value, self.name))
        return Claim(self, "launch", launch.document, launch.blocks, references)


def _keys(root: Mapping, *sections: str) -> set[str]:
    found = root.section(*sections)
    return set() if found is None else set(found.entries)
