"""Models that are newer than the transformers which loads them: its auto classes raise *does not recognize this
architecture*, or a ``KeyError`` (``configuration_auto.py`` ``AutoConfig.from_pretrained``).

Certain only of a model that is known by its name, and of releases that the project allows none but (:func:`reach_of`). Who
trusts the code that comes with a checkpoint may load by that. And models of a kind that it knows, with positions that it does
not, or by an auto class that has none of that kind.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from oomlint.dialects.block import Block
from oomlint.dialects.cell import FINAL
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared_ends import declare_end
from oomlint.dialects.ending import Ending, When
from oomlint.dialects.library_tables import Reach, first_minor_with_model, reach_of, why_no_model
from oomlint.dialects.meaning import Bounds, Meaning
from oomlint.dialects.setting import Setting
from oomlint.dialects.trainer.tables import EARLY_FROM_PRETRAINED, FROM_PRETRAINED
from oomlint.documents.python.nodes import PythonEntry, UnwrittenEntry
from oomlint.documents.text import Location
from oomlint.models import ModelFacts
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.plan.library_changes import Release

new_models = Meaning()


class Keyword(Struct, frozen=True):
    """An argument that ``from_pretrained`` takes for itself in some releases; others hand it to the model's class, which
    knows none of that name (*got an unexpected keyword argument*). ``lacking`` is the last release that was read before
    it came."""

    name: str
    lacking: Release
    came: str
    gone: Release = ()


# transformers 4.28.0 to 5.24.0 modeling_utils.py, configuration_utils.py, models/auto/auto_factory.py and
# configuration_auto.py: what these take out of kwargs, in the first and the last patch of each minor release.
_KEYWORDS = (
    Keyword("attn_implementation", (4, 35, 2), "4.36"),
    Keyword("use_flash_attention_2", (4, 33, 3), "4.34", (4, 53)),
    Keyword("load_in_4bit", (4, 29, 2), "4.30", (5,)),
)
_OF_KEYWORDS = "arguments of transformers' from_pretrained, release by release"


class Scaling(Struct, frozen=True):
    """Positions that releases of transformers refuse as they read a model's config: from ``since`` on, which check them, up
    to ``before``. The models are known by what all of them, and no others of the kind, have."""

    kind: str
    vocab: int
    ctx: int
    called: str
    since: Release
    before: Release
    source: str


# Llama 3.1 to 3.3 (their config.json), and what was made of them. Before, rope_scaling is not looked at.
_SCALING = Scaling(
    "llama", 128256, 131072, "llama3", (4, 31), (4, 43),
    source="transformers 4.31.0 to 4.42.4 configuration_llama.py _rope_scaling_validation, 4.30.0 and 4.43.0",
)  # fmt: skip


def _first(run: Cells) -> Ending | None:
    """``AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")`` under transformers 4.46."""
    loads = run.once(_auto_loads)
    known = _known(run) if loads else None
    reach = reach_of(run, "transformers") if known is not None else None
    if known is None or reach is None:
        return None
    kind = None if _may_load_by_its_own(run) else known.dims.arch
    why = _why_not_scaled(known, reach) or (why_no_model(kind, reach) if kind else None)
    if why is None:
        return None
    said = run.given.said(f.model.id)
    at = said.origin.location if isinstance(said, Setting) else None
    return Ending(why, at or loads[0], When.LOADING)


declare_end(
    new_models,
    _first,
    source=f"kinds of models of transformers, release by release; {_SCALING.source}",
)


# Models of pictures and words that AutoModelForCausalLM has in no release (MODEL_FOR_CAUSAL_LM_MAPPING_NAMES).
_OF_PICTURES = frozenset(
    {"paligemma", "idefics3", "smolvlm", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"}
)  # fmt: skip
_CAUSAL = "AutoModelForCausalLM"


def _first_class(run: Cells) -> Ending | None:
    """``AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-VL-7B-Instruct")``: *Unrecognized configuration class*."""
    loads = run.once(_causal_loads)
    known = _known(run) if loads and not _may_load_by_its_own(run) else None
    kind = None if known is None else known.dims.arch
    if kind not in _OF_PICTURES:
        return None
    return Ending(f"{_CAUSAL} loads no {kind}: AutoModelForImageTextToText does", loads[0])


declare_end(
    new_models,
    _first_class,
    source="transformers 4.45.2 to 5.24.0 models/auto/modeling_auto.py MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
)


def _first_keyword(run: Cells) -> Ending | None:
    """``AutoModelForCausalLM.from_pretrained(..., attn_implementation="sdpa")`` under transformers 4.35."""
    given = run.once(_keywords)
    reach = reach_of(run, "transformers") if given and not _may_load_by_its_own(run) else None
    for keyword, at in given if reach is not None else ():
        assert reach is not None
        if reach.newest <= keyword.lacking:
            why = f"from_pretrained of transformers before {keyword.came} takes no {keyword.name}"
            return Ending(why, at, When.LOADING)
        if keyword.gone and reach.oldest >= keyword.gone:
            gone = ".".join(map(str, (*keyword.gone, 0)[:2]))
            why = f"from_pretrained of transformers {gone} and later takes no {keyword.name}"
            return Ending(why, at, When.LOADING)
    return None


declare_end(new_models, _first_keyword, source=_OF_KEYWORDS)


@new_models.requires
def release_that_knows_the_model(run: Cells) -> Iterator[Bounds]:
    """Where nobody pins transformers it is one that knows the model."""
    known = _known(run) if run.once(_auto_loads) else None
    kind = known.dims.arch if known is not None else None
    if kind is not None and not _may_load_by_its_own(run):
        yield "transformers", first_minor_with_model(kind), ()


def _known(run: Cells) -> ModelFacts | None:
    """The model, where it is known for sure, and as it was published. Of one that is not nothing is said here, and nothing
    hangs on what it is: it could but leave fewer releases to run."""
    if run.cell(f.model.id, FINAL, weakens=False).level > Level.DEFAULT:
        return None
    known = run.known.model(run[f.model.id])
    if known is None or known.saved_by or known.confidence in ("assumed", "guessed"):
        return None
    return known


def _may_load_by_its_own(run: Cells) -> bool:
    """Whether code that comes with the checkpoint may load it."""
    trusts = f.model.trust_remote_code
    return bool(run[trusts]) or run.level(trusts) == Level.UNREAD


def _why_not_scaled(known: ModelFacts, reach: Reach) -> str | None:
    """``Llama-3.1-8B`` under transformers 4.38: *rope_scaling must be a dictionary with two fields*."""
    dims, each = known.dims, _SCALING
    if known.confidence != "verified" or dims.arch != each.kind:
        return None
    if dims.vocab != each.vocab or dims.ctx != each.ctx:
        return None
    if reach.oldest < each.since or reach.newest >= each.before:
        return None
    return f"transformers before {'.'.join(map(str, each.before))} refuses rope_scaling of type {each.called}"


def _auto_loads(blocks: list[Block]) -> tuple[Location, ...]:
    """Where a script loads a model by one of transformers' auto classes, if it loads by no other."""
    return tuple(Location(each.path, each.anchor) for each in _by_auto(blocks))


def _causal_loads(blocks: list[Block]) -> tuple[Location, ...]:
    """Where a script loads a model by the class of causal models, if it loads by no other and gives that class none."""
    loads = _by_auto(blocks)
    called = [
        b.document.source.text[b.anchor.start : b.anchor.end].split(".")[-2:-1] for b in loads
    ]
    if any(each != [_CAUSAL] for each in called) or any(_registers(block) for block in loads):
        return ()
    return tuple(Location(each.path, each.anchor) for each in loads)


def _registers(block: Block) -> bool:
    return f"{_CAUSAL}.register" in block.document.source.text


def _by_auto(blocks: list[Block]) -> tuple[Block, ...]:
    loads = [each for each in blocks if each.table in (FROM_PRETRAINED, EARLY_FROM_PRETRAINED)]
    called = (b.document.source.text[b.anchor.start : b.anchor.end] for b in loads)
    if not all(each.rpartition(".")[0].rpartition(".")[2].startswith("Auto") for each in called):
        return ()
    return tuple(loads)


def _keywords(blocks: list[Block]) -> tuple[tuple[Keyword, Location], ...]:
    """The arguments that such a load is given by name in the call itself, of those that not all releases take."""
    known = {each.name: each for each in _KEYWORDS}
    return tuple(
        (known[entry.key], Location(block.path, entry.key_span))
        for block in _by_auto(blocks)
        for entry in block.mapping.entries.values()
        if entry.key in known
        and isinstance(entry, PythonEntry)
        and entry.owner_kind == "call"
        and not entry.if_known
        and not isinstance(entry, UnwrittenEntry)
    )
