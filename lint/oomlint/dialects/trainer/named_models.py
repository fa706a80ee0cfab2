"""Which model a script trains where the call that loads it does not settle its name: by what the command calls it, by
the names that the call may be given, by what the project calls its model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping as MappingABC
from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.blocks import facts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.rooted_models import named_by_end
from oomlint.dialects.entries import plain_value
from oomlint.dialects.meaning import Meaning, Said
from oomlint.dialects.profiles.build import ScriptTable
from oomlint.dialects.setting import Origin, Setting
from oomlint.dialects.trainer.statements import is_command, option_given, options_of
from oomlint.documents.base import Fact, PythonDocument, Scalar
from oomlint.documents.python.model_names import calls_model
from oomlint.documents.python.possible_names import PossibleName
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

named_models = Meaning()

_CALLED = "what {} calls it; how the script comes to it is not followed"

# What scripts agree to call the model's name by (see MODEL_ROWS in keys.py).
_MODEL = "model_name_or_path"


@named_models.said(f.model.id)
def by_usual_name(run: Cells, field: Any, said: Said) -> Said:
    """The model that a trainer is given comes from a function of the project's own
    (``model = load_policy(args.model_name_or_path)``): what the command calls the model is what it loads."""
    is_of_trainer = (
        isinstance(said, Origin) and said.block and said.block.table.section == "trainer"
    )
    return run.once(_named_on_line) or said if is_of_trainer else said


def _named_on_line(blocks: list[Block]) -> Setting | None:
    for block in filter(is_command, reversed(blocks)):
        entry = block.mapping.entries.get(_MODEL)
        name = entry.value.value if entry and isinstance(entry.value, Scalar) else None
        if entry is not None and isinstance(name, str) and name:
            return Setting(name, Origin("explicit", block, None, entry))
    return None


@named_models.said(f.model.id)
def by_end_of_option(run: Cells, field: Any, said: Said) -> Said:
    """An option that the call which loads the model is given is a path in a folder that only the machine knows."""
    if not isinstance(said, Origin) or _script_of(said) is None:
        return said
    return named_by_end(run, said, option_given(said, run.once(options_of)))


@named_models.said(f.model.id)
def by_its_name(run: Cells, field: Any, said: Said) -> Said:
    """Where the name is not settled that the call which loads the model is given: the one that it may be given, as far
    as the command decides, else what the command, a config file or the script calls its model. That it is taken is
    assumed, unless the call is given an option of the command itself, which is left to who reads those."""
    if _is_option_given(run, said):
        return said
    block = run.once(_loading_script) if said is None else _script_of(said)
    if block is not None:
        for names in (*_may_be(run, block), *run.once(_called)):
            if names:
                return _assumed(run, block, names) or said
    return said


@named_models.said(f.model.id)
def by_the_command(run: Cells, field: Any, said: Said) -> Said:
    """What a command calls the model whose program is not here, or is none that is followed."""
    if said is not None:
        return said
    block = run.once(_command_alone)
    names = () if block is None else run.once(_called)[:1]
    known = {each: why for found in names for each, why in found.items() if _has_dims(run, each)}
    return said if block is None or not known else _assumed(run, block, known)


def _command_alone(blocks: list[Block]) -> Block | None:
    """The command of a run in which no script takes part, nor a profile that says which model it trains."""
    told = (
        isinstance(b.document, PythonDocument) or isinstance(b.table, ScriptTable) for b in blocks
    )
    if any(told):
        return None
    return next((b for b in blocks if is_command(b) and b.table.section == "training"), None)


def _assumed(run: Cells, block: Block, names: MappingABC[str, str]) -> Setting | None:
    """The one model that these names are of, the known ones if there are some; ``None`` of several."""
    known = sorted(name for name in names if _has_dims(run, name)) or sorted(names)
    models = [run.known.model(name) for name in known]
    kinds = [name if m is None else m.dims for name, m in zip(known, models, strict=True)]
    if any(each != kinds[0] for each in kinds):
        return None
    origin = Origin("assumed", block, source=names[known[0]])
    return Setting(known[0], origin, level=Level.ASSUMED)


def _script_of(said: Said) -> Block | None:
    """The block of a script that names its model in a way which only running settles."""
    if isinstance(said, Origin) and said.block is not None:
        return said.block if isinstance(said.block.document, PythonDocument) else None
    return None


def _loading_script(blocks: list[Block]) -> Block | None:
    """The trainer of a script, none of whose own calls names the model."""
    trainers = (b for b in blocks if b.table.section == "trainer")
    return next((b for b in trainers if isinstance(b.document, PythonDocument)), None)


def _has_dims(run: Cells, name: str) -> bool:
    known = run.known.model(name)
    return known is not None and known.dims.layers is not None


# -- what the call may be given --------------------------------------------------------------------


def _is_option_given(run: Cells, said: Said) -> bool:
    """Whether the call that loads the model is given an option of the script's parser and can be given nothing else,
    and the command says it: ``from_pretrained(args.model)``, without a default for ``--model``."""
    script = _script_of(said)
    if script is None or not isinstance(said, Origin):
        return False
    options = run.once(options_of)
    node = option_given(said, options)
    names = [each for fact in _own(script) for each in fact.detail["names"]]
    is_one = len(names) == 1 and names[0].key is None and not names[0].is_override
    return is_one and node is not None and options.get(names[0].option) is node


def _may_be(run: Cells, block: Block) -> Iterator[dict[str, str]]:
    """The names that the call may be given that loads the model, the likeliest first, each with why: what the command
    says, or what its options choose; what stands under no test; what may take its place."""
    options = run.once(_texts_given)
    names = [
        (each, f"what the call that loads the model in {fact.detail['home']} may be given")
        for fact in _own(block) or _elsewhere(block)
        for each in fact.detail["names"]
        if not each.is_end or _has_dims(run, each.text)
    ]
    for rank in (_said_by_command, _is_default, _is_plain, _is_override):
        found = {}
        for each, why in names:
            text = rank(each, options)
            if text:
                found[text] = why
        if found:
            yield found


def _own(block: Block) -> list[Fact]:
    """What the call of this block may be given."""
    return [each for each in _may_load(block) if each.location.span.start == block.anchor.start]


def _elsewhere(block: Block) -> list[Fact]:
    """What calls of other files may be given to which the script leads."""
    home = block.document.source.path
    return [each for each in _may_load(block) if each.detail["home"] != home]


def _may_load(block: Block) -> Iterator[Fact]:
    return (fact for fact in block.document.facts if fact.kind == "may-load")


def _texts_given(blocks: list[Block]) -> MappingABC[str, str]:
    """The texts that the command line gives options, or the files in its place."""
    values = {name: plain_value(node, "yaml12") for name, node in options_of(blocks).items()}
    return {name: value for name, value in values.items() if isinstance(value, str)}


def _said_by_command(name: PossibleName, options: MappingABC[str, str]) -> str:
    if not name.option or name.option not in options:
        return ""
    if name.key is not None:
        return name.text if options[name.option] == name.key else ""
    return options[name.option]


def _is_default(name: PossibleName, options: MappingABC[str, str]) -> str:
    return name.text if name.is_default and name.option not in options else ""


def _is_plain(name: PossibleName, options: MappingABC[str, str]) -> str:
    is_settled = name.option in options or name.is_override or name.is_default is False
    return "" if is_settled else name.text


def _is_override(name: PossibleName, options: MappingABC[str, str]) -> str:
    return name.text if name.is_override and name.option not in options else ""


# -- what the project calls it ---------------------------------------------------------------------


def _called(blocks: list[Block]) -> tuple[dict[str, str], ...]:
    """What the command, the config files that it names, and the script by default call the model, each with where."""
    command: dict[str, str] = {}
    for block in filter(is_command, blocks):
        for key, entry in block.mapping.entries.items():
            if calls_model((key.replace("-", "_"),)) and isinstance(entry.value, Scalar):
                if not isinstance(entry.value.value, str):
                    return ()  # only running tells
                command[entry.value.value] = _CALLED.format(f"--{key}")
    facts = list(facts_of(blocks, "calls-model"))
    found = [
        {
            fact.detail["name"]: _CALLED.format(f"{fact.detail['key']} in {fact.location.path}")
            for fact in facts
            if fact.detail["default"] is is_default
        }
        for is_default in (False, True)
    ]
    return (command, *found)
