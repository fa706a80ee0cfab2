"""Options of a project's own script that nothing here follows: what they speak of is not known.

A script over transformers' Trainer or one of TRL's may freeze a part of the model, checkpoint or batch by options of
its own (``--freeze_llm True``, ``--grad_checkpoint True``). Unless a profile says what they do, the
fields that they are about are unread, by their words. So is all that such a script may do by itself where it is not at
hand, and who is trained of a model that is named by an adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.blocks import facts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import machine
from oomlint.dialects.common.training import CHOSEN_BY_CODE
from oomlint.dialects.entries import plain_value
from oomlint.dialects.machine.launcher_keys import ENVIRONMENT
from oomlint.dialects.meaning import Meaning, Said, Wishes
from oomlint.dialects.profiles.build import ScriptTable
from oomlint.dialects.setting import Origin, Setting, unread_at
from oomlint.dialects.trainer.custody import of_unaccounted
from oomlint.dialects.trainer.fields import hf
from oomlint.dialects.trainer.reaching import are_held, is_reached
from oomlint.dialects.trainer.statements import is_command, leads_there, switches_of
from oomlint.dialects.trainer.tables import PLACED_ELSEWHERE
from oomlint.dialects.trl.fields import HANDBOOKS_DATA, trl
from oomlint.documents.base import Entry, Fact, Node
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

unfollowed = Meaning()

_TRAINS = frozenset(
    "freeze unfreeze frozen unfrozen tune tuned tunable trainable lora qlora adapter peft".split()
)
_CHECKPOINTS = frozenset("checkpoint checkpoints checkpointing ckpt".split())
_OF_ACTIVATIONS = frozenset("grad gradient gradients activation activations act".split())
_PACKS = frozenset("pack packed packing".split())


def _speaks_of_training(words: frozenset[str]) -> bool:
    return bool(words & _TRAINS)


def _speaks_of_checkpointing(words: frozenset[str]) -> bool:
    return bool(words & _CHECKPOINTS and words & _OF_ACTIVATIONS)


def _speaks_of_packing(words: frozenset[str]) -> bool:
    return bool(words & _PACKS)


def _has_adapter(run: Cells) -> bool:
    """Whether an adapter is what is trained. What it is to be of says so only where nothing says that there is none."""
    return bool(run[hf.use_peft]) or (
        run.mentions(hf.lora_targets) and not run.mentions(hf.use_peft)
    )


# What an option is about, and what settles the matter all the same. That there is no adapter does not: a part of
# the model may be frozen.
_ABOUT: Mapping[Any, tuple[Callable[[frozenset[str]], bool], Callable[[Cells], Any]]] = {
    f.trainable.method: (_speaks_of_training, _has_adapter),
    f.checkpointing.mode: (
        _speaks_of_checkpointing,
        lambda run: run.mentions(hf.checkpointing),
    ),
    f.seq.packing: (_speaks_of_packing, lambda run: run.mentions(trl.packing)),
}  # fmt: skip


@unfollowed.said(*_ABOUT)
def unknown_option(run: Cells, field: Any, said: Said) -> Said:
    if said is not None:
        return said
    speaks, is_settled = _ABOUT[field]
    if is_settled(run):
        return said
    for block, entry in run.once(_own_options):
        if speaks(_words(entry.key)):
            return Origin("explicit", block, None, entry)
    unread = of_unread_program(run)
    if unread is not None:
        return unread
    if field != f.trainable.method:
        return said
    return _chosen_by_code(run) or _of_an_adapter(run)


@unfollowed.said(hf.load_dtype, hf.load_4bit, hf.load_8bit, f.load.device_map)
def loaded_in_another_branch(run: Cells, field: Any, said: Said) -> Said:
    """How the model is loaded where the call that was read stands in a branch which these options do not take, unless the one
    to which they lead is told the same."""
    if isinstance(said, Setting) and said.origin.block and is_command(said.origin.block):
        return said
    call = run.once(_loading_elsewhere)
    if call is None or _profile_tells(run, field):
        return said
    if _LOADED_BY[field] & run.once(_told_alike):
        return said
    why = "the model is loaded in a branch that is not followed"
    return unread_at(call, "from_pretrained", why)


@unfollowed.said(hf.load_dtype, hf.load_4bit, hf.load_8bit, f.load.device_map)
def unpacked_into_loader(run: Cells, field: Any, said: Said) -> Said:
    """How the model is loaded where ``from_pretrained(name, **settings)`` is given settings that are not followed."""
    call = run.once(_loading_with_more) if said is None else None
    if call is None:
        return said
    return unread_at(
        call, "from_pretrained", "what is unpacked into from_pretrained is not followed"
    )


@unfollowed.said(f.load.device_map)
def placed_elsewhere(run: Cells, field: Any, said: Said) -> Said:
    """Where the model lies if another call, of the script or of a helper of the project's, may load it, which has a
    device map. On a machine of one GPU it lies there whoever loads it."""
    if said is not None or run[machine.gpus_per_node] == 1:
        return said
    switches = switches_of(run.given.blocks)
    for block in run.once(_loading_besides):
        if is_reached(block.mapping, switches):
            why = "which of the script's calls loads the model is not followed"
            return unread_at(block, "from_pretrained", why)
    return of_unaccounted(run, "placement")


# The arguments of from_pretrained by which each of them is said (transformers 5.23 modeling_utils.py).
_QUANTIZES = frozenset({"quantization"})
_LOADED_BY: Mapping[Any, frozenset[str]] = {
    hf.load_dtype: frozenset({"dtype"}),
    hf.load_4bit: _QUANTIZES,
    hf.load_8bit: _QUANTIZES,
    f.load.device_map: frozenset({"place"}),
}
_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "dtype": ("torch_dtype", "dtype", "**"),
    "quantization": ("quantization_config", "load_in_4bit", "load_in_8bit", "**"),
    "place": ("device_map", "**"),
}


def _told_alike(blocks: list[Block]) -> frozenset[str]:
    """What the call to which the options lead is told of a model as is the one that was read."""
    read = _loading_elsewhere(blocks)
    facts = [] if read is None else list(facts_of([read], "loads-in-branch"))
    at = None if read is None else read.anchor.start
    taken = next((fact for fact in facts if fact.location.span.start == at), None)
    if taken is None:
        return frozenset()
    switches = switches_of(blocks)
    arms = dict(taken.detail["arms"])
    others = [
        fact
        for fact in facts
        if any(arms.get(line, side) is not side for line, side in fact.detail["arms"])
        and _may_lead(fact, switches)
    ]
    return frozenset(
        what
        for what, names in _ARGUMENTS.items()
        if others and all(_says_as(taken, other, names) for other in others)
    )


def _may_lead(fact: Fact, switches: Mapping[str, Node]) -> bool:
    choices = fact.detail["choices"]
    led = None if choices is None else leads_there(choices, switches)
    return led is not False and are_held(fact.detail["guards"], switches)


def _says_as(one: Fact, other: Fact, names: Iterable[str]) -> bool:
    first, second = one.detail["arguments"], other.detail["arguments"]
    return all(first.get(name) == second.get(name) for name in names)


def _loading_besides(blocks: list[Block]) -> tuple[Block, ...]:
    return tuple(block for block in blocks if block.table is PLACED_ELSEWHERE)


def _loading_with_more(blocks: list[Block]) -> Block | None:
    """The call that loads the model, if more is unpacked into it than was read."""
    loading = [block for block in blocks if block.table.section == "model"]
    return next((each for each in loading if each.mapping.open_ended), None)


def _loading_elsewhere(blocks: list[Block]) -> Block | None:
    """The call that was read to load the model, if the options do not lead to it."""
    switches = switches_of(blocks) if any(map(is_command, blocks)) else {}
    loading = (block for block in blocks if block.table.section == "model")
    return next((each for each in loading if not is_reached(each.mapping, switches)), None)


def check_own_options(changes: Wishes, run: Cells) -> None:
    """See that nothing is to be said by a library's key of which an option of the script's own speaks already: what
    both would do together is not known.

    Raises:
        CannotEdit: something is.
    """
    for field in _ABOUT.keys() & changes.keys():
        speaks, is_settled = _ABOUT[field]
        for _, entry in () if is_settled(run) else run.once(_own_options):
            if speaks(_words(entry.key)):
                raise CannotEdit(f"the script has an option of its own for it, {entry.key}")


def _chosen_by_code(run: Cells) -> Origin | None:
    """The statement by which the script itself says of parameters whether they are trained, where the switches around
    it may let it run; of scripts that have a profile the profile tells, but for what switches and variables that it
    does not know lead to."""
    found = run.once(_choosing)
    if not found:
        return None
    switches = switches_of(run.given.blocks)
    held = (each for each in found if are_held(each[1].detail["guards"], switches))
    block, fact = next(held, (None, None))
    if block is None or fact is None:
        return None
    span = fact.location.span
    what = block.document.source.text[span.start : span.end].partition("(")[0]
    return unread_at(block, what, CHOSEN_BY_CODE, span)


def _choosing(blocks: list[Block]) -> list[tuple[Block, Fact]]:
    documents = {id(block.document): block for block in blocks}
    found = [
        (block, fact)
        for block in documents.values()
        for fact in block.document.facts
        if fact.kind == "chooses-trained"
    ]
    profile = _profile_of(blocks)
    if profile is None or not found:
        return found
    switches, variables = switches_of(blocks), _variables_of(blocks)
    return [
        (block, fact)
        for block, fact in found
        if _is_beyond(profile, fact.detail["guards"], switches)
        or any(variables.get(name) for name in fact.detail["variables"])
    ]


def _variables_of(blocks: list[Block]) -> dict[str, object]:
    """What the script that starts the run sets in the environment; nothing of what is empty, which no test holds for."""
    return {
        name: block.mapping.said(name)
        for block in blocks
        if block.table is ENVIRONMENT
        for name in block.mapping.entries
    }


def _profile_tells(run: Cells, field: Any) -> bool:
    """Whether a profile says how every branch of its script loads the model."""
    profile = run.once(_profile_of)
    return profile is not None and bool(profile.meaning.chain(field))


def _profile_of(blocks: list[Block]) -> ScriptTable | None:
    tables = (block.table for block in reversed(blocks))
    return next((table for table in tables if isinstance(table, ScriptTable)), None)


def _is_beyond(
    profile: ScriptTable, guards: Iterable[tuple[str, bool]], switches: Mapping[str, Node]
) -> bool:
    """Whether a switch that the profile does not know, and that somebody sets, leads to a statement: a script that was
    made from the profile's has switches of its own."""
    own = [name for name, _ in guards if not profile.knows(name)]
    return bool(own) and all(name in switches for name in own)


def of_unread_program(run: Cells) -> Origin | None:
    """The command whose program was not read, unless a profile says what it does, it is a library's own, or its
    recipe is one of alignment-handbook, whose scripts train what ``use_peft`` says and nothing else
    (alignment-handbook 1e37e6c7 scripts/run_dpo.py, 060eb208 src/alignment/model_utils.py get_peft_config)."""
    if not run.known.unread_program or run.once(_has_handbooks_recipe):
        return None
    command = run.once(_of_unknown_program)
    if command is None:
        return None
    return Origin("explicit", command, None, None, source=run.known.unread_program)


def _of_an_adapter(run: Cells) -> Origin | None:
    """Where the model is named by an adapter of it: ``from_pretrained`` loads the adapter over the base, and
    what is trained then (the adapter on, a new one, all) is not told by what names it
    (transformers 5.23 integrations/peft.py load_adapter, peft 0.21.2 PeftModel.from_pretrained)."""
    known = run.known.model(run[f.model.id])
    named = run.said(f.model.id)
    return named.origin if known and known.is_adapter and isinstance(named, Setting) else None


def _has_handbooks_recipe(blocks: list[Block]) -> bool:
    """Whether a file names its data as alignment-handbook's recipes do, all of it."""
    return any(all(block.find(key) for key in HANDBOOKS_DATA) for block in blocks)


def _of_unknown_program(blocks: list[Block]) -> Block | None:
    """The options of a command of which no profile, and no library's own script, tells what they do."""
    for block in reversed(blocks):
        if block.table.section == "training" and is_command(block):
            is_known = isinstance(block.table, ScriptTable) or block.table.ignores_unknown is False
            return None if is_known else block
    return None


def _words(key: str) -> frozenset[str]:
    return frozenset(key.lower().replace("-", "_").replace(".", "_").split("_"))


def _own_options(blocks: list[Block]) -> tuple[tuple[Block, Entry], ...]:
    """The options of command lines that no table knows and that are not switched off."""
    return tuple(_unknown(blocks))


def _unknown(blocks: list[Block]) -> Iterator[tuple[Block, Entry]]:
    for block in blocks:
        if block.table.section != "training" or not is_command(block):
            continue
        for stray in block.read().stray:
            if stray.is_refused:
                continue  # a mistake that ends the run, not an option of the script's own
            value = plain_value(stray.entry.value, block.table.loader)
            if value not in (False, "False", "false", 0, "0", None, "", "none", "None"):
                yield block, stray.entry
