"""nanoGPT's ``train.py``, the files that override its globals, and the lines that start it.

Read from nanoGPT 3adf61e (2025-11-12): ``torchrun --nproc_per_node=8 train.py config/train_gpt2.py --batch_size=16``. A word
without ``=`` is a file that is run over the globals, others set one each, in their order (configurator.py). The many scripts
made of it are told by that, whatever they are called; where the model takes other arguments than nanoGPT's, it is left open.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block, OverrideBlock
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.nanogpt.keys import MODEL, NANOGPT
from oomlint.dialects.nanogpt.meaning import meaning
from oomlint.dialects.nanogpt.signature import globals_of, is_configured
from oomlint.documents import PYTHON_SUFFIXES, SHELL_SUFFIXES
from oomlint.documents.base import Document, Entry, Mapping, Scalar
from oomlint.documents.text import Location, Span

# nanoGPT's model.py GPTConfig, by the arguments that train.py hands it.
_ARGUMENTS = frozenset(
    {"n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size", "dropout"}
)
_HANDED = re.compile(r"^[ \t]*model_args = dict\(([^)]*)\)", re.MULTILINE)


# Of the globals those that other programs' options are rarely called like; of others, which many programs have, two
# tell that the script may be one of these, which decides.
_SAID = frozenset({"n_layer", "n_head", "n_embd", "block_size", "init_from", "eval_iters"})
_ENOUGH = 2


class NanoGpt(Dialect):
    name = "nanogpt"
    markers = (b"configurator.py", b"train")
    words_in_python = (b"configurator.py",)
    markers_prove = False
    suffixes = (*PYTHON_SUFFIXES, *SHELL_SUFFIXES)
    only_marked = PYTHON_SUFFIXES
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        if is_configured(document):
            yield from self._script(document)
        for launch in launches(document):
            yield from self._launch(launch)

    def adopt(self, document: Document) -> Claim | None:
        """A file that is run over the globals."""
        from oomlint.documents.python.assignments import settings_of
        from oomlint.documents.python.document import PythonScript

        if not isinstance(document, PythonScript):
            return None
        settings = settings_of(document)
        first = next(iter(settings.entries.values()), None)
        if first is None:
            return None
        return Claim(self, "part", document, (Block(document, settings, NANOGPT, first.key_span),))

    def _script(self, document: Document) -> Iterator[Claim]:
        settings = globals_of(document)
        if settings is not None:
            anchor = settings.entries["n_layer"].key_span
            block = Block(document, settings, NANOGPT, anchor)
            yield Claim(self, "run", document, (block, *_model(document)))

    def _launch(self, launch: Launch) -> Iterator[Claim]:
        if launch.script is None or not _overrides(launch):
            return
        document = launch.document
        where = Location(document.source.path, place(launch.program))
        script = Reference(launch.script, where, self.name, decides=True, adopts=False)
        files = tuple(
            Reference(str(word.value), Location(document.source.path, place(word)), self.name)
            for word in launch.arguments
            if str(word.value).endswith(".py")
        )
        options = OverrideBlock(document, launch.flags, NANOGPT, launch.anchor)
        references = (*launch.scene_references, script, *files)
        yield Claim(self, "launch", document, (*launch.blocks, options), references)


def _overrides(launch: Launch) -> bool:
    """Whether a line says what a configurator takes and nothing else: files of Python, and ``--key=value``."""
    text = launch.document.source.text
    words = [str(word.value) for word in launch.arguments]
    options = launch.flags.entries
    if not all(word.endswith(".py") for word in words):
        return False
    if not all("=" in text[entry.span.start : entry.span.end] for entry in options.values()):
        return False
    return (
        bool(words or _SAID & options.keys())
        or len(NANOGPT.names.keys() & options.keys()) >= _ENOUGH
    )


def _model(document: Document) -> Iterator[Block]:
    """Whether the model takes what nanoGPT's takes, and no more."""
    found = _HANDED.search(document.source.text)
    given = set() if found is None else set(re.findall(r"(\w+)\s*=", found[1]))
    span = Span(0, 0) if found is None else Span(found.start(1), found.end(1))
    said = Entry("differs", span, Scalar(span, not given or not given <= _ARGUMENTS), span)
    yield Block(document, Mapping(span, {"differs": said}), MODEL, span)
