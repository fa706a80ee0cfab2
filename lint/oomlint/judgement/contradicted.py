"""What a project says of its runs, against what is predicted of them.

Published programs mostly ran. Where their owner says on which machine one did, and by the prediction it dies just
there, then something of it was not read: what that is nobody knows, but the figure is no more than a remark. And where a
notebook's outputs show steps of training, nothing ahead of them ended the program.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.common.fields import shared
from oomlint.dialects.library_tables import CALLED
from oomlint.documents.base import Fact
from oomlint.documents.text import Location
from oomlint.files.requirements import NEWEST
from oomlint.hardware import Hardware, usable_bytes
from oomlint.judgement.lengths import as_short_as_any
from oomlint.judgement.risk_model import holds, risk_in
from oomlint.judgement.severity import LOST, TIGHT
from oomlint.judgement.trials import decided_from
from oomlint.plan.fields import f
from oomlint.runs.attested import Attested
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib

# Words of a run that trains little of its model, and of one that trains all of it.
_ADAPTERS = r"\b(?:q?lora|dora|peft|adapters?|prompt tuning|prefix tuning)\b"
_WHOLE = r"\bfull(?:y|[- ]param\w*|[- ]fine-?tun\w*)?\b"
# ``7B``, ``1.5B``.
_SIZE = r"(?<![\w.])(\d+(?:\.\d+)?) ?B\b"
# How far the number of parameters may be from what people call a model by: of 314 names in the catalogue that have a size
# 303 are within 0.86 to 1.31 of it (gemma-2-2b), the others are of 1B to 3B or have experts.
_NEAR = 1.35


def contradicted_by(run: Run) -> Attested | None:
    """What the project says of the machine that a run runs on where the prediction lets it die on that, too; ``None`` where it is
    not at risk, or the prediction was measured."""
    if "contradicted_by" not in run.remembered:
        run.remembered["contradicted_by"] = _contradicted_by(run)
    found: Attested | None = run.remembered["contradicted_by"]
    return found


def _contradicted_by(run: Run) -> Attested | None:
    if run.hardware is None or run.is_measured or "gpu" not in decided_from(run.placed, TIGHT):
        return None
    if run.attested is not None:
        return None  # it counts as one that runs
    return next(
        (said for said in run.said_to_run if _is_of(run, said) and _dies_on(run, said.hardware)),
        None,
    )


def contradiction(run: Run) -> str:
    """``README.md:161 says that all was trained on 4xH100-80GB, where 95.0 GiB are predicted of a GPU with 79.1 GiB``."""
    said = contradicted_by(run)
    if said is None:
        return ""
    need = _on(run, said.hardware).placed.estimate.gpu.peak_bytes
    has = gib(usable_bytes(said.hardware.gpu))
    return (
        f"{said.words}, where {gib(need)} are predicted of a GPU with {has}: something was not read"
    )


def _is_of(run: Run, said: Attested) -> bool:
    """Whether words are of this run: no other size of a model is named, nor adapters where all of it is trained, nor another number
    of GPUs than it starts ranks on. Words of its own that speak of adapters alone are of it: then it is the training that was misread.
    """
    plan = run.placed.plan
    dims = plan.model.dims
    sizes = [float(size) for size in re.findall(_SIZE, said.text, re.IGNORECASE)]
    if sizes and dims is not None and dims.params_total:
        billions = dims.params_total / 1e9
        if not any(size / _NEAR <= billions <= size * _NEAR for size in sizes):
            return False
    if said.kind != "all" and not _is_of_ranks(run, said.hardware):
        return False
    if said.kind == "seen" and _is_of_something_else(said.text):
        return False
    if plan.trainable.method != "full" or not re.search(_ADAPTERS, said.text, re.IGNORECASE):
        return True
    return said.kind == "own" and not re.search(_WHOLE, said.text, re.IGNORECASE)


def _is_of_something_else(text: str) -> bool:
    from oomlint.runs.said_hardware import (  # of few runs anybody says where they ran
        is_else,
        is_possible,
    )

    return is_else(text) or is_possible(text)


def _is_of_ranks(run: Run, hardware: Hardware) -> bool:
    """Whether a run starts as many ranks as a machine has GPUs, less than half of which an engine may have for its own; so it
    does where its files leave that open."""
    if not _says_ranks(run):
        return True
    ranks, gpus = run.placed.plan.parallel.world or 1, hardware.nodes * hardware.gpus_per_node
    return gpus / 2 < ranks <= gpus


def _says_ranks(run: Run) -> bool:
    return any(map(run.is_explicit, (f.parallel.gpus_per_node, f.parallel.world)))


def _dies_on(run: Run, hardware: Hardware) -> bool:
    """Whether a run dies on a machine by its prediction, with short samples too."""
    there, limit = _on(run, hardware).placed, usable_bytes(hardware.gpu)
    risk = risk_in(there.estimate, "gpu", limit)
    if risk is None or risk < LOST:
        return False
    shorter = as_short_as_any(there)
    return shorter is None or not holds(shorter.estimate, "gpu", limit)


def _on(run: Run, hardware: Hardware) -> Run:
    """A run on another machine, with as many ranks as its files say, else one on each GPU."""
    moved = replace(run, hardware=hardware, _cache={}, remembered={})
    ranks: dict[Any, int] = {f.parallel.nodes: hardware.nodes}
    if not _says_ranks(run):
        ranks[f.parallel.gpus_per_node] = hardware.gpus_per_node
    return moved.assuming(ranks)


# -- what ends a program -----------------------------------------------------------------


def place_of_end(run: Run) -> Location | None:
    """Where that stands which is sure to end a program before its first step; ``None`` where no place tells."""
    place = run.settings.get(shared.refused_at)
    if place is not None:
        at: Location = place.value
        return at
    fact = fact_of_end(run)
    return None if fact is None else fact.location


def fact_of_end(run: Run) -> Fact | None:
    """The fact of the code that a reason why a program ends speaks of."""
    refused = run.settings.get(shared.refused)
    if refused is None:
        return None
    return next((fact for fact in run.facts if _tells(fact, str(refused.value))), None)


def _tells(fact: Fact, why: str) -> bool:
    """Whether a fact is what a reason speaks of."""
    inner = str(fact.detail.get("module", "")).partition(".")[2]
    names = (f"{inner}.{name}" if inner else name for name in fact.detail.get("names", ()))
    asked = (fact.detail.get("argument"), *names)
    is_asked = any(why.endswith(f" has no {each}") for each in asked if each)
    return fact.detail.get("why") == why or is_asked


def outlived(run: Run) -> str:
    """What shows that a program got beyond that which is said to end it, in words: the outputs of the notebook that it is,
    below that place. Empty where none does, and where another file pins a library: nobody knows which release the
    notebook ran with.
    """
    shown, place = run.shown, place_of_end(run)
    if shown is None or place is None or place.path != shown.path or place.span.start > shown.at:
        return ""
    pinned = (file for package, (_, file) in run.parts.versions.items() if package in CALLED)
    if any(file != shown.path for file in pinned) or _bounds_any(run):
        return ""
    return shown.words


def _bounds_any(run: Run) -> bool:
    """Whether the project says which releases of a library it allows; the newest of the day may be any."""
    return any(
        package in CALLED and oldest != NEWEST for package, oldest in run.parts.floors.items()
    )
