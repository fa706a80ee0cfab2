"""What a script puts in place of the model's own loss: fused kernels, losses of its own, poolings.

Liger's defaults are those of liger-kernel 0.6 transformers/monkey_patch.py.
"""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.blocks import documents_of, facts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.entries import plain_value
from oomlint.dialects.kinds import BOOLEAN, BadValue
from oomlint.dialects.meaning import Meaning, Sourced
from oomlint.dialects.trainer.reaching import is_reached
from oomlint.documents.base import Call, Fact, PythonDocument
from oomlint.errors import CannotEdit
from oomlint.models.architectures import is_in_transformers
from oomlint.plan.fields import f

embedding = Meaning()
"""A run that pools its samples compares at least two texts of each, and has no logits."""
own_losses = Meaning()
"""What calls and classes of the script make of the loss, whatever else is derived."""

# How a sample's vector is made of its tokens: options of FlagEmbedding, LLM2Vec, Tevatron, SimCSE.
_POOLING = re.compile(r"(?:sentence_)?(?:pooling|pooler)(?:_(?:mode|method|type|strategy))?")
_PATCHES = re.compile(r"(?:^|\.)_?apply_liger_kernel_to_\w+$")
_PATCHED_LOADER = re.compile(r"(?:^|\.)AutoLigerKernelForCausalLM\.from_pretrained$")
# apple/ml-cross-entropy cut_cross_entropy/transformers/patch.py.
_CUT = re.compile(r"(?:^|\.)cce_patch$")
# transformers' AutoModel is the model without its head, unless code of the checkpoint's own runs (5.23
# models/auto/modeling_auto.py MODEL_MAPPING_NAMES; auto_factory.py from_pretrained: auto_map).
_HEADLESS = re.compile(r"(?:^|\.)AutoModel\.from_(?:pretrained|config)$")
_LIGER = "liger-kernel 0.6 transformers/monkey_patch.py"


def _pools(blocks: list[Block]) -> bool:
    """Whether an option of a command line, or of a file in its place, says how to pool."""
    given = (block for block in blocks if not isinstance(block.document, PythonDocument))
    return any(_POOLING.fullmatch(name) for block in given for name in block.mapping.entries)


@embedding.default(
    f.objective.kind,
    f.objective.pairs_per_sample,
    source="an option says how a sample's tokens are pooled to one vector",
)
def compares_texts(run: Cells) -> Any:
    if not run.once(_pools):
        return None
    return {f.objective.kind: "embedding", f.objective.pairs_per_sample: 2}


@own_losses.default(f.objective.pairs_per_sample)
def runs_several_times(run: Cells) -> Any:
    """What each pass keeps stays until the one backward pass, as if there were as many samples."""
    fact = run.once(_own_passes)
    if fact is None:
        return None
    name = fact.detail["class"]
    return Sourced(fact.detail["passes"], f"{name}.compute_loss runs the model as many times")


# -- calls -----------------------------------------------------------------------------------------


def _calls(blocks: list[Block]) -> tuple[Call, ...]:
    """The calls of the run's scripts that its options do not pass by."""
    options = {
        name: entry.value
        for block in blocks
        if not isinstance(block.document, PythonDocument)
        for name, entry in block.mapping.entries.items()
    }
    return tuple(
        call
        for document in documents_of(blocks)
        for call in document.calls
        if is_reached(call.arguments, options)
    )


def _cuts(blocks: list[Block]) -> bool:
    return any(_CUT.search(call.callee) for call in _calls(blocks))


def _liger_call(blocks: list[Block]) -> Call | None:
    """The last call that patches the model."""
    found = (
        call
        for call in reversed(_calls(blocks))
        if _PATCHES.search(call.callee) or _PATCHED_LOADER.search(call.callee)
    )
    return next(found, None)


def _asks(call: Call, name: str, *, default: bool) -> bool:
    entry = call.arguments.entries.get(name)
    if entry is None:
        return default
    try:
        return bool(BOOLEAN.read(plain_value(entry.value, "yaml12")))
    except BadValue:
        return default


def _trained(blocks: list[Block]) -> frozenset[str]:
    """The names by which the script calls what loads the model and what trains it."""
    return frozenset(
        block.document.source.text[block.anchor.start : block.anchor.end]
        for block in blocks
        if isinstance(block.document, PythonDocument)
        and block.table.section in ("model", "trainer")
    )


def _is_headless(blocks: list[Block]) -> bool:
    return any(map(_HEADLESS.search, _trained(blocks)))


def _may_bring_head(run: Cells) -> bool:
    """Whether code that comes with the checkpoint may be what AutoModel loads."""
    return bool(run[f.model.trust_remote_code]) and not is_in_transformers(run[f.model.arch])


def _own_loss(blocks: list[Block]) -> str | None:
    """The function of the script's own class that computes the loss without naming logits."""
    trained = _trained(blocks)
    for fact in facts_of(blocks, "own-loss"):
        if any(fact.detail["class"] in name.split(".") for name in trained):
            return f"{fact.detail['class']}.{fact.detail['function']}"
    return None


def _own_passes(blocks: list[Block]) -> Fact | None:
    """That the trainer which the script defines runs the model several times a step."""
    return _of_trained(blocks, "own-passes")


def _own_logits(blocks: list[Block]) -> Fact | None:
    """That a trainer which the script defines reads the model's logits; which of several it takes nobody need know
    to leave the loss alone."""
    return next(facts_of(blocks, "own-logits"), None)


def _loss_alone(blocks: list[Block]) -> Fact | None:
    """That the trainer which the script defines evaluates by the loss alone."""
    return _of_trained(blocks, "loss-alone")


def _of_trained(blocks: list[Block], kind: str) -> Fact | None:
    """A fact of the class that trains."""
    trained = _trained(blocks)
    found = (
        fact
        for fact in facts_of(blocks, kind)
        if any(fact.detail["class"] in name.split(".") for name in trained)
    )
    return next(found, None)


def reads_logits(run: Cells) -> bool:
    """Whether a loss of the script's own reads the model's logits."""
    return run.once(_own_logits) is not None


def check_logits_unread(run: Cells) -> None:
    """
    Raises:
        CannotEdit: the script's own loss reads logits, which a loss over none of them at once leaves out: Liger's
            forward returns ``None`` for them (liger-kernel 0.6 transformers/model/llama.py), and so does TRL's
            chunked one (TRL f2cd5771 sft_trainer.py:221).
    """
    fact = run.once(_own_logits)
    if fact is not None:
        raise CannotEdit(f"{fact.detail['class']}.{fact.detail['function']} reads the logits")


# -- what they make of the loss --------------------------------------------------------------------


@own_losses.override(f.loss.cut_ce, source="Cut Cross Entropy patches the model")
def cuts(run: Cells) -> Any:
    return True if run.once(_cuts) else None


@own_losses.override(
    f.loss.liger.rope, f.loss.liger.rms, f.loss.liger.swiglu, f.loss.liger.flce, source=_LIGER
)
def patched_by_liger(run: Cells) -> Any:
    call = run.once(_liger_call)
    if call is None:
        return None
    return {
        f.loss.liger.rope: _asks(call, "rope", default=True),
        f.loss.liger.rms: _asks(call, "rms_norm", default=True),
        f.loss.liger.swiglu: _asks(call, "swiglu", default=True),
        f.loss.liger.flce: True if _fuses(call) else None,
    }


def _fuses(call: Call) -> bool:
    return _asks(call, "fused_linear_cross_entropy", default=True)


@own_losses.override(f.loss.algorithm, source=_LIGER)
def in_place(run: Cells) -> Any:
    call = run.once(_liger_call)
    if call is None or _fuses(call):
        return None
    return "in_place" if _asks(call, "cross_entropy", default=False) else None


@own_losses.override(f.loss.logits_materialised, f.eval.keeps_logits)
def keeps_no_logits(run: Cells) -> Any:
    reason, is_assumed = _reason(run)
    if reason is None:
        return None
    return {
        f.loss.logits_materialised: Sourced("fused", reason, is_assumed=is_assumed),
        f.eval.keeps_logits: Sourced(False, reason, is_assumed=is_assumed),
    }


@own_losses.override(f.eval.keeps_logits)
def evaluates_by_loss(run: Cells) -> Any:
    fact = run.once(_loss_alone)
    if fact is None:
        return None
    return Sourced(False, f"{fact.detail['class']}.prediction_step asks for the loss alone")


def _reason(run: Cells) -> tuple[str | None, bool]:
    """Why no logits are kept, if that is so, and whether it is a guess."""
    if run[f.objective.kind] == "embedding":
        return "an embedding has no logits", False
    own = run.once(_own_loss)
    if own is not None:
        return f"{own} is the script's own and never names logits", True
    if run.once(_is_headless) and not _may_bring_head(run):
        return "AutoModel is the model without its head", False
    call = run.once(_liger_call)
    if call is not None and _fuses(call) and not run[f.loss.label_smoothing]:
        return _LIGER, False
    return ("Cut Cross Entropy patches the model", False) if run.once(_cuts) else (None, False)
