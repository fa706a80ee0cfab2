"""How a trainer of the project's own draws prompts: TRL's from 0.15 on do so as often as a prompt has answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from oomlint.documents.base import Call, Fact
from oomlint.documents.python.modules import Module, Modules
from oomlint.documents.python.trainer_names import names_trainer
from oomlint.documents.text import Location

# TRL 0.15.0 trainer/grpo_trainer.py:67 RepeatRandomSampler, from 0.18 on RepeatSampler; 0.14 has neither.
_REPEATS = re.compile(r"\bRepeat(?:Random)?Sampler\b")


def sampler_facts(file: Module, calls: Sequence[Call], modules: Modules) -> Iterator[Fact]:
    """Facts of the kind ``repeats-prompts`` (``class``): the trainer that a script calls is defined
    in a file of the project that has such a sampler."""
    for call in calls:
        root, _, rest = call.callee.partition(".")
        if not names_trainer(call.callee):
            continue
        if root in file.classes:
            home: Module | None = file
        elif root in file.imports:
            module, level, inner = file.imports[root]
            if rest and inner:  # `from pkg import module` and `module.Class`
                module = f"{module}.{inner}" if module else inner
            home = modules.of(module, level, file.source.path)
        else:
            continue
        if home is not None and _REPEATS.search(home.source.text):
            where = Location(file.source.path, call.span)
            yield Fact("repeats-prompts", where, {"class": call.callee})
