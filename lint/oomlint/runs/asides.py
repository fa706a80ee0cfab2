"""Scripts that no run took in, for the rules on habits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from oomlint.dialects.base import Claim, Dialect
from oomlint.documents.base import Document, ShellDocument
from oomlint.runs.linked import LinkOptions
from oomlint.runs.parts import Parts
from oomlint.runs.recognition import Recogniser, is_module
from oomlint.runs.run import Run, build_run
from oomlint.runs.variable_readers import is_variable_read


class _Unread(Dialect):
    """Stands in for the framework of a script that no dialect reads."""

    name = "script"

    def recognise(self, document: Document) -> Iterable[Claim]:
        return ()


_UNREAD = _Unread()

# The first word of a line behind its assignments: the program, if a command begins there.
_PROGRAM = r"(?m)^[ \t]*(?:\w+=\S*[ \t]+)*([\w./-]+)"


def asides(
    recogniser: Recogniser,
    options: LinkOptions,
    names: Iterable[str],
    runs: Iterable[Run],
    why_unused: Callable[[Run], str],
) -> Iterator[Run]:
    """A run without settings for each script that no run took in; ``why_unused``: why nobody starts one, in words."""
    taken = {claim.path for run in runs for claim in run.claims}
    for name in dict.fromkeys(names):
        if not recogniser.was_asked(name) or name in taken:
            continue
        document = recogniser.workspace.document(name)
        # Of a module in a package no facts are worked out, unless somebody asks.
        if document is None or is_module(recogniser.workspace, name) or not document.facts:
            continue
        if _may_train(document):
            claim = Claim(_UNREAD, "aside", document, ())
            parts = Parts(
                _UNREAD,
                (),
                (claim,),
                options=options.values,
                hardware=options.hardware,
                why_unused=why_unused,
                find_endings=options.find_endings,
                is_variable_read=partial(is_variable_read, recogniser.workspace),
            )
            yield build_run(name, parts)


def _may_train(document: Document) -> bool:
    """Whether a shell script starts a program of training; a Python script's facts prove it.

    By the text: what is to be mended may keep the command from being read.
    """
    if not isinstance(document, ShellDocument):
        return True
    from oomlint.documents.shell.names import is_launch

    return any(is_launch(word) for word in re.findall(_PROGRAM, document.source.text))
