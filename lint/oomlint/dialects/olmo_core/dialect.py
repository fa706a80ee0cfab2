"""OLMo-core: scripts that build a config, and the lines that start them.

Read from allenai/OLMo-core fa6c5014c (2026-06-22). ``torchrun --nproc-per-node=8 OLMo2-7B.py train run01 cluster
--train_module.rank_microbatch_size=8192``: options are laid over what the script has built, which has by then
computed one part from another. The script is read, never run; a line without options starts it as any script is started.
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block, OverrideBlock
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.olmo_core.keys import OLMO_CORE
from oomlint.dialects.olmo_core.meaning import meaning
from oomlint.dialects.olmo_core.signature import says_part
from oomlint.documents import PYTHON_SUFFIXES, SHELL_SUFFIXES
from oomlint.documents.base import Document, PythonDocument
from oomlint.documents.text import Location

_BUILDS = (
    "TransformerTrainModuleConfig(",
    "TransformerPipelineTrainModuleConfig(",
    "configure_train_module(",
)
_MODEL = "TransformerConfig"


class OlmoCore(Dialect):
    name = "olmo-core"
    markers = (b"olmo_core", b"train_module.")
    markers_prove = False
    suffixes = (*PYTHON_SUFFIXES, *SHELL_SUFFIXES)
    only_marked = PYTHON_SUFFIXES
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        if isinstance(document, PythonDocument) and _is_script(document):
            claim = self._file(document)
            if claim is not None:
                yield claim
        for launch in launches(document):
            if launch.script is not None and says_part(launch):
                yield self._launch(launch)

    def adopt(self, document: Document) -> Claim | None:
        is_script = isinstance(document, PythonDocument) and _is_script(document)
        return self._file(document) if is_script else None

    def _file(self, document: Document) -> Claim | None:
        from oomlint.dialects.olmo_core.script import config_of

        found = config_of(document)
        if found is None:
            return None
        root, anchor = found
        return Claim(self, "run", document, (Block(document, root, OLMO_CORE, anchor),))

    def _launch(self, launch: Launch) -> Claim:
        document = launch.document
        where = Location(document.source.path, place(launch.program))
        script = Reference(launch.name, where, self.name, decides=True)
        options = OverrideBlock(document, launch.flags, OLMO_CORE, launch.anchor, dashes=True)
        references = (*launch.scene_references, script)
        return Claim(self, "launch", document, (*launch.blocks, options), references)


def _is_script(document: Document) -> bool:
    if not any(name.partition(".")[0] == "olmo_core" for name in document.imports):
        return False
    text = document.source.text
    return _MODEL in text and any(word in text for word in _BUILDS)
