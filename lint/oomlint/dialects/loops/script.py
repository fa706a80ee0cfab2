"""Which calls of a script make up the run of a loop that it writes out itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping as MappingABC
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.common.config_values import with_files
from oomlint.dialects.loops.keys import (
    ACCELERATOR,
    ACCUMULATION_PLUGIN,
    AUTOCAST,
    CAST,
    CENTRE,
    CHECKPOINTS_NEW,
    CHECKPOINTS_SET,
    CLASS,
    DATALOADER,
    DDP,
    DEEPSPEED_PLUGIN,
    DEGREES,
    FSDP1,
    FSDP2,
    FSDP_PLUGIN,
    INITIALIZE,
    LENGTHS,
    MIXED,
    OFFLOADS,
    OFFLOADS_2,
    OPTIMIZER,
    SWITCHES,
    WRAPS_CHECKPOINTS,
)
from oomlint.dialects.loops.lightning import (
    DDP_STRATEGY,
    DEEPSPEED_STRATEGY,
    FSDP_STRATEGY,
    TRAINER,
)
from oomlint.dialects.machine.colab import machine_of_notebook
from oomlint.dialects.machine.own_devices import devices_of_script
from oomlint.dialects.machine.ray_train import ray_workers
from oomlint.dialects.nanogpt.signature import is_configured
from oomlint.dialects.table import Block, Table, plain_value
from oomlint.dialects.trainer.beside_calls import calls_beside
from oomlint.dialects.trainer.model_calls import NO_LANGUAGE
from oomlint.dialects.trainer.reaching import is_reached, may_replace
from oomlint.dialects.trainer.sample_calls import cutting
from oomlint.dialects.trainer.tables import FROM_PRETRAINED, QUANTIZATION, TOKENIZER
from oomlint.documents.base import (
    UNKNOWN,
    Call,
    Document,
    Entry,
    Mapping,
    Node,
    PythonDocument,
    Scalar,
    parser_of,
)
from oomlint.documents.python.loops import InsertionPoint
from oomlint.documents.python.nodes import PythonScalar, guards_of
from oomlint.documents.text import Edit, Location, Span
from oomlint.errors import CannotEdit
from oomlint.plan.evidence import Level

if TYPE_CHECKING:
    from oomlint.documents.python.loops import Loop

# Libraries of other models, and of configs that are joined out of sight.
_FOREIGN = frozenset({"diffusers", "hydra", "omegaconf", "timm", "unsloth"})
# What tests a library trains nothing that anybody waits for.
_TESTS = re.compile(r"(?:^|/)(?:tests?|test_utils|unit)/|(?:^|/)test_[^/]*\.py$|_test\.py$")
_OF_OPTIONS = r"\w*args\.\w+"
_ADAPTER = re.compile(r"(?:^|\.)Peft\w*\.from_pretrained$")
_FRAMEWORKS = {"accelerate": "accelerate", "deepspeed": "deepspeed", "fabric": "lightning",
               "lightning": "lightning", "torch": "torch"}  # fmt: skip
_COMPUTED = "it is what the script calls"
# Calls that a run has once, by the last name of what they call.
_SINGLE = {
    "Accelerator": ACCELERATOR,
    "GradientAccumulationPlugin": ACCUMULATION_PLUGIN,
    "DeepSpeedPlugin": DEEPSPEED_PLUGIN,
    "FullyShardedDataParallelPlugin": FSDP_PLUGIN,
    "ParallelismConfig": DEGREES,
    "Trainer": TRAINER,
    "Fabric": TRAINER,
    "FSDPStrategy": FSDP_STRATEGY,
    "DeepSpeedStrategy": DEEPSPEED_STRATEGY,
    "DDPStrategy": DDP_STRATEGY,
    "initialize": INITIALIZE,
    "FullyShardedDataParallel": FSDP1,
    "FSDP": FSDP1,
    "fully_shard": FSDP2,
    "DistributedDataParallel": DDP,
    "DDP": DDP,
    "CPUOffload": OFFLOADS,
    "CPUOffloadPolicy": OFFLOADS_2,
    "apply_activation_checkpointing": WRAPS_CHECKPOINTS,
    "checkpoint_wrapper": WRAPS_CHECKPOINTS,
}


def loop_claim(dialect: Dialect, document: Document) -> Claim | None:
    """The claim on a script that trains in a loop of its own; ``None`` for any other."""
    loop = document.loop if isinstance(document, PythonDocument) else None
    if loop is None or _imports(document) & _FOREIGN or _TESTS.search(document.source.path):
        return None
    if is_configured(document):
        return None  # a dialect of its own reads these
    blocks = _blocks(document, loop)
    if blocks is None:
        return None
    names = any(_names_model(block) for block in blocks if block.table is FROM_PRETRAINED)
    if not names and not _is_program(document) and not (loop.parts and loop.is_started):
        return None  # a module of a library: who uses it says what is trained
    where = Location(document.source.path, loop.centre.span)
    parts = (
        Reference(part.path, where, dialect.name, optional=True, claim=part.name, adopts=False)
        for part in loop.parts
    )
    framework = _FRAMEWORKS[loop.kind]
    return Claim(dialect, "run", document, blocks, tuple(parts), framework=framework)


def part_claims(dialect: Dialect, document: Document) -> Iterator[Claim]:
    """The claims on classes that Lightning trains in another file, or takes batches from there."""
    parts = document.lightning if isinstance(document, PythonDocument) else ()
    if not parts or _imports(document) & _FOREIGN or _TESTS.search(document.source.path):
        return
    for loop in parts:
        blocks = _blocks(document, loop)
        if blocks is not None:
            name = f"{document.source.path}:{loop.name}"
            yield Claim(dialect, "aside", document, blocks, name=name, framework="lightning")


def _blocks(document: Document, loop: Loop) -> tuple[Block, ...] | None:
    """What a loop says, or a part of one; ``None`` where no language model is trained, as far as one sees."""
    switches = _switches(document, loop)
    options = {name: entry.value for name, entry in switches.items()}
    models = _models(document, loop, options)
    is_made_elsewhere = not loop.models and bool(loop.parts or loop.name)
    if not models and not is_made_elsewhere:
        return None
    calls = document.calls
    blocks: list[Block] = []
    for model in models:
        blocks.append(_model_block(document, loop, model))
        blocks += (_block(document, call, QUANTIZATION) for call in _quantizers(model))
    if models or not loop.name:
        beside = calls_beside(calls, None, options)
        blocks += (_block(document, call, table) for call, table in beside)
    blocks += _lengths(document, loop)
    blocks += (_block(document, call, TOKENIZER) for call in cutting(calls))
    blocks += _how(document, loop, calls, options)
    if switches:
        where = Span(loop.centre.span.start, loop.centre.span.start)
        blocks.insert(0, Block(document, Mapping(where, switches), SWITCHES, where))
    blocks += (*machine_of_notebook(document), *ray_workers(document), *devices_of_script(document))
    return tuple(with_files(blocks))


def _imports(document: Document) -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in document.imports)


# -- the model -------------------------------------------------------------------------------------


def _models(document: Document, loop: Loop, options: MappingABC[str, Node]) -> list[Call]:
    """The calls of which one loads what is trained, the one that the switches lead to last; none
    where several models take part."""
    if any(not _ADAPTER.search(other.callee) for other in loop.others):
        return []
    models = [call for call in loop.models if not _ADAPTER.search(call.callee)]
    if any(NO_LANGUAGE.search(call.callee) for call in models):
        return []
    if any(not _may_be_one(document, models[0], call) for call in models):
        return []
    return _chosen_last(models, options)


def _chosen_last(calls: Iterable[Call], options: MappingABC[str, Node]) -> list[Call]:
    """Alternatives, with those behind the ones that switches do not lead to; of several the first counts."""
    found = list(calls)[::-1]
    return sorted(found, key=lambda call: is_reached(call.arguments, options))


def _quantizers(model: Call) -> Iterator[Call]:
    """The BitsAndBytesConfig that a loader is given, under the switch on which it is given."""
    entry = model.arguments.entries.get("quantization_config")
    node = None if entry is None else entry.value
    guards = guards_of(model.arguments)
    if isinstance(node, PythonScalar) and node.either is not None and node.compared is None:
        guards = (*guards, (node.option, True))
        node = node.either[0]
    said = node.value if isinstance(node, Scalar) else None
    if isinstance(said, Call) and said.callee.endswith("BitsAndBytesConfig"):
        yield replace(said, arguments=replace(said.arguments, guards=guards))


def _may_be_one(document: Document, first: Call, other: Call) -> bool:
    """Whether two calls are one, stand in branches that exclude each other, or load the same."""
    return (
        may_replace(other, first)
        or _name_of(document, first) == _name_of(document, other) is not None
    )


def _name_of(document: Document, call: Call) -> str | None:
    """The model's name, or the option that says it (``args.model_name_or_path``)."""
    for key in ("0", "pretrained_model_name_or_path"):
        entry = call.arguments.entries.get(key)
        if entry is not None:
            value = plain_value(entry.value, "yaml12")
            span = entry.value.span
            text = document.source.text[span.start : span.end] if value is UNKNOWN else str(value)
            return text if value is not UNKNOWN or re.fullmatch(_OF_OPTIONS, text) else None
    return None


def _model_block(document: Document, loop: Loop, model: Call) -> Block:
    """The loader; of ``from_config`` with the name of the model whose configuration it takes."""
    named = next((node for call, node in loop.configs if call is model), None)
    arguments = model.arguments
    if named is not None:
        entry = Entry("pretrained_model_name_or_path", named.span, named, named.span)
        entries = {k: e for k, e in arguments.entries.items() if k != "0"}
        arguments = replace(arguments, entries={**entries, entry.key: entry})
    start = model.span.start
    anchor = Span(start, start + len(model.callee))
    return Block(document, arguments, FROM_PRETRAINED, anchor)


def _is_program(document: Document) -> bool:
    """Whether a file is there to be started, by what it takes from a command line."""
    options = parser_of(document)
    return bool(options is not None and options.names) or "__main__" in document.source.text


def _names_model(block: Block) -> bool:
    reading = block.read()
    return any(row == "model.id" for row in reading.settings)


# -- how it is trained -----------------------------------------------------------------------------


def _how(
    document: Document, loop: Loop, calls: tuple[Call, ...], options: MappingABC[str, Node]
) -> Iterator[Block]:
    if loop.batches is not None:
        yield _block(document, loop.batches, DATALOADER)
    for optimizer in _optimizers(loop, options):
        yield _block(document, optimizer, OPTIMIZER)
    yield from (_block(document, call, CAST) for call in loop.casts)
    yield from _new_line(document, loop, calls)
    if loop.checkpoints is not None:
        said = loop.checkpoints
        mapping = Mapping(said.span, {said.key: said}, locked=_COMPUTED)
        yield Block(document, mapping, CHECKPOINTS_SET, said.span)
    yield from (_block(document, call, AUTOCAST) for call in loop.autocasts[:1])
    for call, table in _last_of_each(loop, calls, options):
        if table in (FSDP1, FSDP2, FSDP_STRATEGY, FSDP_PLUGIN):
            call = _with_wrapping(document, call, calls)
        elif table in (INITIALIZE, DEEPSPEED_PLUGIN):
            call = _with_config(call, loop)
        yield _block(document, call, table)
    yield from _mixed(document, calls)
    yield _centre(document, loop)


def _last_of_each(
    loop: Loop, calls: tuple[Call, ...], options: MappingABC[str, Node]
) -> Iterable[tuple[Call, Table]]:
    """Of the calls that a loop needs once, the last one of each kind that the options reach."""
    last: dict[int, tuple[Call, Table]] = {}
    for call in calls:
        table = _SINGLE.get(call.callee.rpartition(".")[2])
        if table is None or (table is INITIALIZE and "deepspeed" not in call.callee):
            continue
        if table is TRAINER and loop.kind not in ("fabric", "lightning"):
            continue
        if call.span in loop.idle_plugins:
            continue
        earlier = last.get(id(table))
        if earlier is None or is_reached(call.arguments, options):
            last[id(table)] = (call, table)
    return last.values()


class LineBlock(Block, frozen=True, eq=False):
    """A line that the script lacks: ``model.gradient_checkpointing_enable()``, behind that which loads
    the model."""

    place: InsertionPoint = InsertionPoint("", 0, "")

    def write(self, values: MappingABC[str, Any]) -> list[Edit]:
        if list(values.values()) != [True]:
            raise CannotEdit("the script does not checkpoint activations")
        newline = self.document.source.newline
        line = f"{newline}{self.place.indent}{self.place.name}.gradient_checkpointing_enable()"
        return [Edit(self.path, self.place.offset, self.place.offset, line)]


def _new_line(document: Document, loop: Loop, calls: tuple[Call, ...]) -> Iterator[Block]:
    """Where the script can checkpoint what it nowhere does. Beside adapters it takes more: inputs that
    ask for gradients, where checkpointing is reentrant."""
    names = {call.callee.rpartition(".")[2] for call in calls}
    if loop.behind_load is None or loop.checkpoints is not None or names & _CHECKPOINTING:
        return
    at = Span(loop.behind_load.offset, loop.behind_load.offset)
    mapping = Mapping(at, {})
    yield LineBlock(document, mapping, CHECKPOINTS_NEW, at, place=loop.behind_load)


_CHECKPOINTING = frozenset(
    {
        "gradient_checkpointing_enable", "get_peft_model", "apply_activation_checkpointing",
        "checkpoint_wrapper", "prepare_model_for_kbit_training", "FullyShardedDataParallelPlugin",
    }
)  # fmt: skip


# Functions of torch 2.9 distributed/fsdp/wrap.py that a policy is made of, and what each wraps.
_POLICIES = {
    "transformer_auto_wrap_policy": "transformer",
    "ModuleWrapPolicy": "transformer",
    "lambda_auto_wrap_policy": "transformer",
    "size_based_auto_wrap_policy": "size",
}


# accelerate 1.15 utils/constants.py FSDP_AUTO_WRAP_POLICY.
_NAMED_POLICIES = {
    "transformer_based_wrap": "transformer",
    "size_based_wrap": "size",
    "no_wrap": "none",
}


def _with_wrapping(document: Document, call: Call, calls: tuple[Call, ...]) -> Call:
    """A call that shards, with what of the model is a unit: by the one policy that the script
    imports; ``fully_shard`` makes each part a unit that it is called on."""
    anchor = Span(call.span.start, call.span.start + len(call.callee))
    name = call.callee.rpartition(".")[2]
    named = call.arguments.entries.get("auto_wrap_policy")
    if name == "fully_shard":
        several = sum(c.callee.rpartition(".")[2] == name for c in calls) > 1
        found: object = "transformer" if several else "none"
    elif named is None:
        # Accelerate's plugin takes the policy from its launcher then.
        if name == "FullyShardedDataParallelPlugin":
            return call
        found = UNKNOWN if call.arguments.open_ended else "none"
    else:
        found = _policy(document, named.value)
    at = anchor if named is None else named.value.span
    entry = Entry("auto_wrap_policy", at, Scalar(at, found, locked=_COMPUTED), at)
    entries = {**call.arguments.entries, entry.key: entry}
    return replace(call, arguments=replace(call.arguments, entries=entries))


def _policy(document: Document, given: Node) -> object:
    said = given.value if isinstance(given, Scalar) else None
    if said is None and isinstance(given, Scalar):
        return "none"
    if isinstance(said, str):
        return _NAMED_POLICIES.get(said.lower(), UNKNOWN)
    if not isinstance(given, Scalar):
        return "transformer"  # Lightning: a set of classes
    last = {name.rpartition(".")[2] for name in document.imports}
    policies = {word for name, word in _POLICIES.items() if name in last}
    return policies.pop() if len(policies) == 1 else UNKNOWN


def _with_config(call: Call, loop: Loop) -> Call:
    """A call of DeepSpeed with the file that its config is read from, or with what is in it."""
    said = loop.engine_config
    if said is None:
        return call
    entries = dict(call.arguments.entries)
    for key in ("hf_ds_config", "config", "config_params"):
        if key in entries:
            entries[key] = replace(entries[key], value=said)
    return replace(call, arguments=replace(call.arguments, entries=entries))


def _lengths(document: Document, loop: Loop) -> Iterator[Block]:
    """The one value that is named for the length of samples."""
    places = {entry.value.span for entry in loop.lengths}
    if len(places) == 1:
        entry = loop.lengths[0]
        mapping = Mapping(entry.span, {entry.key.lower(): entry}, locked=_COMPUTED)
        yield Block(document, mapping, LENGTHS, entry.span, level=Level.ASSUMED)


def _optimizers(loop: Loop, options: MappingABC[str, Node]) -> list[Call]:
    """The optimizers that may be made, the one that the switches lead to last; a stand-in for the one of
    a DeepSpeed config first."""
    chosen = _chosen_last(loop.optimizers, options)
    return sorted(chosen, key=lambda call: not call.callee.endswith("DummyOptim"))


def _mixed(document: Document, calls: tuple[Call, ...]) -> Iterator[Block]:
    """The policy of mixed precision that FSDP is given."""
    given = [
        c
        for c in calls
        if c.callee.rpartition(".")[2] in ("FSDP", "FullyShardedDataParallel", "fully_shard")
    ]
    policies = [
        call
        for call in calls
        if call.callee.rpartition(".")[2] in ("MixedPrecision", "MixedPrecisionPolicy")
    ]
    if given and len(policies) == 1:
        yield _block(document, policies[0], MIXED)


def _centre(document: Document, loop: Loop) -> Block:
    span = loop.centre.span
    name = loop.centre.callee
    entries: dict[str, Entry] = {}
    if not loop.name:
        entries[CLASS] = Entry(name, span, Scalar(span, loop.kind, locked=_COMPUTED), span)
        entries["joins"] = Entry("joins", span, Scalar(span, loop.joins), span)
        entries["evaluates"] = Entry("evaluates", span, Scalar(span, loop.evaluates), span)
    if loop.accumulation is not None:
        said = loop.accumulation
        entries["steps"] = Entry("steps", said.span, said, said.span)
    if loop.outputs_kept is not None:
        entries["outputs"] = Entry("outputs", span, Scalar(span, loop.outputs_kept), span)
    if loop.ranks is not None:
        entries["ranks"] = Entry("WORLD_SIZE", loop.ranks.span, loop.ranks, loop.ranks.span)
    unread: dict[str, Span | None] = {
        "loss": span if loop.own_loss else None,
        "frozen": loop.frozen,
        "split": loop.splits_samples,
    }
    for key, at in unread.items():
        if at is not None:
            word = document.source.text[at.start : at.end].partition("(")[0]
            entries[key] = Entry(word, at, Scalar(at, UNKNOWN), at)
    return Block(document, Mapping(span, entries, locked=_COMPUTED), CENTRE, span)


def _block(document: Document, call: Call, table: Table) -> Block:
    """A call's arguments, and what it calls."""
    start = call.span.start
    anchor = Span(start, start + len(call.callee))
    name = Entry(call.callee, anchor, Scalar(anchor, call.callee, locked=_COMPUTED), anchor)
    arguments = call.arguments
    if CLASS in table.names:
        arguments = replace(arguments, entries={**arguments.entries, CLASS: name})
    return Block(document, arguments, table, anchor)


def _switches(document: Document, loop: Loop) -> dict[str, Entry]:
    """The defaults of the options of the script's command line; what is ``None`` is asked for."""
    declared = document.option_defaults if isinstance(document, PythonDocument) else None
    of_classes = {} if declared is None else declared.entries
    both = {**of_classes, **({} if loop.switches is None else loop.switches.entries)}
    return {n: e for n, e in both.items() if plain_value(e.value, "yaml12") is not None}
