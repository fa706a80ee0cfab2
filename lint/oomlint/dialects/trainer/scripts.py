"""What the calls of a training script say together.

Read from transformers 5.23 (``HF`` below is ``src/transformers``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping as MappingABC
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from oomlint.dialects.accelerate.meaning import distributed_type
from oomlint.dialects.block import Block
from oomlint.dialects.blocks import facts_of, scripts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import peft, shared
from oomlint.dialects.entries import plain_value
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.meaning import Bounds, Meaning, Said, Sourced
from oomlint.dialects.setting import Origin, unread_at
from oomlint.dialects.trainer.assigned import assigned
from oomlint.dialects.trainer.call_arguments import is_decided
from oomlint.dialects.trainer.fields import hf, script
from oomlint.dialects.trainer.masking import masking
from oomlint.dialects.trainer.model import bits_of, packs_at_load
from oomlint.dialects.trainer.named_models import named_models
from oomlint.dialects.trainer.new_models import new_models
from oomlint.dialects.trainer.own_models import made_models
from oomlint.dialects.trainer.reaching import are_held, is_on
from oomlint.dialects.trainer.statements import (
    is_command,
    options,
    options_of,
    reaches,
    switches_of,
)
from oomlint.dialects.trainer.tables import (
    ADAPTER,
    ADDS,
    CHECKPOINTS,
    EARLY_FROM_PRETRAINED,
    FROM_PRETRAINED,
    LOADED_ADAPTER,
    LOADING_TRAINER_CALL,
    PREPARES_KBIT,
    TOLD_OF_ADAPTER,
    TRAINER_CALL,
    WITH_REFERENCE,
    WRAPS,
)
from oomlint.documents.base import UNKNOWN, Entry, Fact, Node, PythonDocument, Scalar
from oomlint.documents.python.nodes import Guard
from oomlint.models.architectures import loses_tower
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange
from oomlint.wording.amounts import enumerated

if TYPE_CHECKING:
    from oomlint.documents.python.sure.endings import Choice

# What only who trains says (transformers 5.23 training_args.py); an evaluation takes batches of its own.
_OF_TRAINING = frozenset(
    {
        "learning_rate", "num_train_epochs", "max_steps", "per_device_train_batch_size", "train_batch_size",
        "gradient_accumulation_steps", "warmup_steps", "warmup_ratio", "lr_scheduler_type", "weight_decay", "optim",
        "gradient_checkpointing", "resume_from_checkpoint", "save_steps", "save_strategy", "max_grad_norm",
    }
)  # fmt: skip
_SUBPARSERS = r"\.add_subparsers\([^()]*?\bdest\s*=\s*[\"'](\w+)[\"']"

calls = Meaning(assigned, options, named_models, masking)
"""What holds whoever loads the model: options of the command line, what the trainer is given."""
scripts = Meaning(calls, new_models)
"""What a script's calls load, adapt and quantize."""
early_load = Meaning()
"""Weights loaded before the training arguments exist."""
classifier = Meaning()
"""A model that classifies has no logits over the vocabulary, in training or evaluation."""

_LOADING = (
    LOADING_TRAINER_CALL,
    TOLD_OF_ADAPTER[LOADING_TRAINER_CALL.name],
    WITH_REFERENCE[LOADING_TRAINER_CALL.name],
    TOLD_OF_ADAPTER[WITH_REFERENCE[LOADING_TRAINER_CALL.name].name],
)
_TRAINER_TABLES = (
    TRAINER_CALL,
    LOADING_TRAINER_CALL,
    *WITH_REFERENCE.values(),
    *TOLD_OF_ADAPTER.values(),
)
_SCRIPT_TABLES = (FROM_PRETRAINED, EARLY_FROM_PRETRAINED, ADAPTER, *_TRAINER_TABLES)


def is_script(run: Cells) -> bool:
    """Whether calls of a Python script take part in the run."""
    return run.once(_has_calls)


def _has_calls(blocks: list[Block]) -> bool:
    return any(block.table in _SCRIPT_TABLES for block in blocks)


def _loads(run: Cells) -> bool:
    return reaches(run, FROM_PRETRAINED, EARLY_FROM_PRETRAINED)


@scripts.derive(script.model_object)
def gives_model(run: Cells) -> Any:
    return _loads(run) if is_script(run) else None


# -- adapters and quantization ---------------------------------------------------------------------


@scripts.derive(hf.use_peft)
def adapts(run: Cells) -> Any:
    if not is_script(run):
        return None
    if run.once(_chooses_adapter):
        return True if run[script.adapter] or reaches(run, LOADED_ADAPTER) else None
    return True if reaches(run, ADAPTER, LOADED_ADAPTER) or run[script.adapter] else None


def _chooses_adapter(blocks: list[Block]) -> bool:
    """Whether an option decides that the trainer is given an adapter's config."""
    row = TRAINER_CALL.by_field[script.adapter]
    trainers = (block.find(row.key) for block in blocks if block.table in _TRAINER_TABLES)
    return any(entry is not None and is_decided(entry.value) for entry in trainers)


@scripts.derive(
    peft.autocast_adapters,
    source="transformers 4.57.1 integrations/peft.py add_adapter: inject_adapter_in_model casts nothing",
)
def casts_adapters(run: Cells) -> Any:
    """Beside packed weights an adapter keeps the fp32 that it is made in, whoever adds it (peft 0.21.2
    tuners/tuners_utils.py _move_adapter_to_device_of_base_layer)."""
    is_bare = is_script(run) and reaches(run, ADDS) and run[f.quant.method] in (None, "none")
    return False if is_bare else None


@scripts.default(hf.use_peft, source="no call of the script adds an adapter")
def adapts_nothing(run: Cells) -> Any:
    return False if is_script(run) else None


@scripts.said(f.trainable.method)
def unclear_adapter(run: Cells, field: Any, said: Said) -> Said:
    """Where only running tells whether the trainer is given an adapter, or what the model is
    wrapped in, nobody knows."""
    if said is not None or not is_script(run) or run.mentions(hf.use_peft):
        return said
    wrapped = run.once(_wrapped_in_something)
    if wrapped is not None and reaches(run, WRAPS):
        return wrapped
    given = run.said(script.adapter)
    if reaches(run, ADAPTER, LOADED_ADAPTER) and not run.once(_chooses_adapter):
        return said
    return given if isinstance(given, Origin) else _made_elsewhere(run)


def _made_elsewhere(run: Cells) -> Origin | None:
    """The model that the trainer is given, where nothing in the script loads it: what makes it may have
    wrapped it in adapters or frozen it."""
    named = run.said(f.model.id)
    if not isinstance(named, Origin) or named.block is None:
        return None
    return named if named.block.table in _LOADING else None


def _wrapped_in_something(blocks: list[Block]) -> Origin | None:
    """The call that adds an adapter which cannot be told."""
    for block in blocks:
        if block.table is WRAPS:
            why = "which adapter get_peft_model adds is known only when the script runs"
            return unread_at(block, "get_peft_model", why)
    return None


_OF_LOADED = {f.trainable.r: 8, f.trainable.alpha: 8, f.trainable.dropout: 0.0}


@scripts.derive(*_OF_LOADED)
def of_loaded_adapter(run: Cells) -> Any:
    """Of an adapter that is trained on only its own files tell the rank, of one of several only running does."""
    if not is_script(run) or reaches(run, ADAPTER) or not reaches(run, LOADED_ADAPTER):
        return None
    why = "which adapter is trained no file here tells: PEFT's default"
    return {field: Sourced(value, why, is_assumed=True) for field, value in _OF_LOADED.items()}


@scripts.override(f.trainable.r)
def as_the_scripts_own(run: Cells) -> Any:
    """Of an adapter that is loaded in the place of the script's own, which it was most likely trained as."""
    if not is_script(run) or not run.once(_chooses_adapter) or run[script.adapter]:
        return None
    rank = run.base(f.trainable.r)
    if rank is None or not reaches(run, LOADED_ADAPTER):
        return None
    return Sourced(
        rank, "which adapter is trained no file here tells: as the script's own", is_assumed=True
    )


@scripts.derive(f.quant.prepares_kbit)
def prepares(run: Cells) -> Any:
    """Without quantized weights it changes nothing (peft 0.21.2 utils/other.py:190)."""
    if not is_script(run) or not reaches(run, PREPARES_KBIT):
        return None
    quantized = run[hf.load_4bit] or run[hf.load_8bit] or bits_of(run) in (4, 8)
    return True if quantized else None


@scripts.override(hf.checkpointing)
def checkpointing_of_calls(run: Cells) -> Any:
    if not is_script(run):
        return None
    prepared = run[f.quant.prepares_kbit] and run[script.kbit_checkpointing]
    return True if reaches(run, CHECKPOINTS) or prepared else None


# -- loading ---------------------------------------------------------------------------------------

# Names that transformers 5.0 took away: training_args.py and trainer.py of 4.57.
_BEFORE_5 = frozenset(
    {"tokenizer", "evaluation_strategy", "per_gpu_train_batch_size", "max_seq_length"}
)


def _is_old(blocks: list[Block]) -> bool:
    return not _BEFORE_5.isdisjoint(name for block in blocks for name in block.mapping.entries)


# transformers 4.57 trainer.py __init__ takes it, with a warning that it goes in 5.0.0; 5.0.0 does not.
_OF_TRAINER_BEFORE_5 = "tokenizer"


def _gives_trainer_of_4(blocks: list[Block]) -> bool:
    """Whether one of transformers' own trainers is given what those of release 5 refuse."""
    return any(
        _OF_TRAINER_BEFORE_5 in block.mapping.entries
        for block in blocks
        if block.table.section == "trainer" and isinstance(block.document, PythonDocument)
        if f"transformers.{_callee(block)}" in block.document.imports
    )


def _callee(block: Block) -> str:
    return block.document.source.text[block.anchor.start : block.anchor.end]


@scripts.requires
def release_of_trainer(run: Cells) -> Iterator[Bounds]:
    """Where nobody pins transformers it is one that the script runs with."""
    if run.once(_gives_trainer_of_4):
        yield "transformers", (), (5,)


_BUILT = re.compile(r"(?:\w+\.)*\w+(?:ForCausalLM|LMHeadModel)")


def _builds(blocks: list[Block]) -> bool:
    loaders = (b for b in blocks if b.table in (FROM_PRETRAINED, EARLY_FROM_PRETRAINED))
    return any(
        _BUILT.fullmatch(b.document.source.text[b.anchor.start : b.anchor.end]) for b in loaders
    )


@scripts.derive(f.load.dtype, source="torch: a module makes its parameters in the default dtype")
def dtype_of_built(run: Cells) -> Any:
    """``LlamaForCausalLM(config)`` loads nothing, and is fp32 whatever the checkpoint is."""
    return "fp32" if is_script(run) and run.once(_builds) else None


_OF_TEXT = re.compile(r"(?:\w+\.)*AutoModelForCausalLM\.from_pretrained")


def _reads_text(blocks: list[Block]) -> bool:
    loaders = [b for b in blocks if b.table in (FROM_PRETRAINED, EARLY_FROM_PRETRAINED)]
    texts = (b.document.source.text[b.anchor.start : b.anchor.end] for b in loaders)
    return bool(loaders) and all(map(_OF_TEXT.fullmatch, texts))


@scripts.override(f.model.dims, source="transformers 4.57 models/auto/modeling_auto.py")
def text_model_alone(run: Cells) -> Any:
    """``AutoModelForCausalLM`` makes a text model of some that read pictures as well."""
    dims = run[f.model.dims]
    if dims is None or dims.vision is None or not loses_tower(dims.arch):
        return None
    if not is_script(run) or not run.once(_reads_text):
        return None
    of_tower = dims.vision.params or 0
    total = None if dims.params_total is None else dims.params_total - of_tower
    return replace(dims, vision=None, params_total=total)


@scripts.assume(f.load.dtype)
def likely_dtype(run: Cells) -> Any:
    """``from_pretrained`` without a dtype: fp32 up to transformers 4.57, from 5.0 on what the
    checkpoint is in (modeling_utils.py:4178). Where the project pins no version, the script's own
    words tell its age, if anything."""
    if not is_script(run) or not _loads(run) or run.version("transformers") is not None:
        return None
    if run.is_unread(hf.load_dtype) or run[hf.load_dtype] is not None or packs_at_load(run):
        return None
    if run.once(_is_old):
        return Sourced(
            "fp32",
            "from_pretrained names no dtype, and the script is written for transformers 4, "
            "which then loads in fp32",
        )
    return Sourced(
        run[f.model.ckpt_dtype],
        "from_pretrained names no dtype: transformers 5 takes the checkpoint's, "
        "transformers 4 loads in fp32 and needs twice the memory for it",
    )


@scripts.assume(f.seq.max_len)
def named_length(run: Cells) -> Any:
    """Where no call that is read cuts samples: what the script calls their length, if that is one number."""
    if not is_script(run) or run.is_unread(f.seq.max_len):
        return None
    facts = [fact for fact in run.once(_all_facts) if fact.kind == "calls-length"]
    if len(facts) != 1:
        return None
    fact = facts[0]
    given = run.once(options_of).get(fact.detail["option"])
    length = fact.detail["length"] if given is None else plain_value(given, "yaml12")
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        return None
    why = f"{fact.location.path} calls it {fact.detail['key']}; what cuts samples is not followed"
    return Sourced(length, why)


@early_load.override(f.load.zero3_init)
def loads_before_arguments(run: Cells) -> Any:
    """zero.Init opens only where the Trainer's DeepSpeed config exists by then
    (transformers 5.23 integrations/deepspeed.py is_deepspeed_zero3_enabled), or Accelerate's."""
    if not run.has_block_of(EARLY_FROM_PRETRAINED) or run[f.parallel.zero.stage] != 3:
        return None
    if distributed_type(run) == "deepspeed" and run.once(_accelerates_before_loading):
        return None
    return False


def _accelerates_before_loading(blocks: list[Block]) -> bool:
    return next(facts_of(blocks, "accelerator-before-load"), None) is not None


# -- what ends before the first step ---------------------------------------------------------------


@calls.derive(shared.stops)
def never_trains(run: Cells) -> Any:
    """A script that makes a trainer, or arguments for one, and leaves it at that: the rest is commented out, or yet to be
    written."""
    fact = run.once(_never)
    if fact is None:
        return None
    return Sourced(fact.detail["why"], fact.location.path)


@calls.derive(shared.stops, source="transformers 5.23 training_args.py: do_train is off by default")
def trains_nothing(run: Cells) -> Any:
    """A script that a command starts to evaluate or to predict: no call that trains is reached."""
    blocks = run.given.blocks
    commands = [block for block in blocks if is_command(block)]
    if not commands:
        return None
    is_open = any(map(_may_say_more, commands))
    given = options_of(commands if is_open else blocks)
    given = {**_subcommands(commands, run.once(_dispatches)), **given}
    if not is_open and not any(True for _ in scripts_of(blocks)) and _only_looks(given):
        return "nothing asks it to train (--do_train is not set)"
    for fact in run.once(_on_demand):
        if fact.detail["is_left"] and not is_open and not is_on("do_train", given):
            return "nothing asks it to train (--do_train is not set)"
        each = zip(fact.detail["ways"], fact.detail["choices"], strict=True)
        closed = [_closed(way, given) or _not_chosen(choices, given) for way, choices in each]
        if all(closed):
            return f"nothing asks it to train ({enumerated(tuple(dict.fromkeys(closed)))})"
    return None


def _only_looks(given: MappingABC[str, Node]) -> bool:
    """Whether options of a program that is not here ask it to evaluate or to predict alone, and none says how to train."""
    asks = is_on("do_predict", given) or is_on("do_eval", given)
    return asks and not is_on("do_train", given) and _OF_TRAINING.isdisjoint(given)


def _dispatches(blocks: list[Block]) -> frozenset[str]:
    """What a script calls the word behind it by which it does one thing or another (argparse's ``add_subparsers``)."""
    texts = (each.source.text for each in scripts_of(blocks))
    return frozenset(name for text in texts for name in re.findall(_SUBPARSERS, text))


def _subcommands(commands: list[Block], names: frozenset[str]) -> MappingABC[str, Node]:
    """The first word behind a script, which says what it is to do."""
    if len(names) != 1:
        return {}
    for block in commands:
        for launch in launches(block.document):
            if launch.anchor == block.anchor and launch.arguments:
                return dict.fromkeys(names, launch.arguments[0])
    return {}


def _closed(way: tuple[Guard, ...], given: MappingABC[str, Node]) -> str:
    """The switch that keeps a call from being reached, in words; empty where none surely does."""
    for name, held in way:
        node = given.get(name)
        is_known = node is not None and not (isinstance(node, Scalar) and node.value is UNKNOWN)
        if is_known and is_on(name, given) != held:
            return f"{name} is {'off' if held else 'set'}"
    return ""


def _not_chosen(choices: tuple[Choice, ...], given: MappingABC[str, Node]) -> str:
    """The option whose word leads elsewhere than to a call, in words; empty where none surely does."""
    for choice in choices:
        node = given.get(choice.option)
        word = node.value if isinstance(node, Scalar) else None
        if isinstance(word, str) and (word in choice.words) != choice.holds:
            return f"{choice.option} is {word}"
    return ""


def _may_say_more(command: Block) -> bool:
    """Whether words that only running tells may be further options: ``$EXTRA``, also behind a switch, whose value it
    is taken for."""
    values = [entry.value for entry in command.mapping.entries.values()]
    behind = values[-1] if values else None
    return command.mapping.open_ended or (isinstance(behind, Scalar) and behind.value is UNKNOWN)


def _never(blocks: list[Block]) -> Fact | None:
    return next(facts_of(blocks, "never-trains"), None)


def _on_demand(blocks: list[Block]) -> tuple[Fact, ...]:
    return tuple(facts_of(blocks, "trains-on-demand"))


def _all_facts(blocks: list[Block]) -> tuple[Fact, ...]:
    return tuple(facts_of(blocks))


# -- what the trainer is given ---------------------------------------------------------------------


def given_to_trainer(blocks: list[Block]) -> tuple[frozenset[str], ...]:
    """The names of what each trainer of a script is called with."""
    trainers = (block for block in blocks if block.table in _TRAINER_TABLES)
    return tuple(frozenset(block.mapping.entries) for block in trainers)


@calls.derive(f.eval.keeps_logits, source="transformers 5.23 trainer.py:2868")
def keeps_logits(run: Cells) -> Any:
    """What preprocess_logits_for_metrics returns is kept; what is generated are tokens
    (trainer_seq2seq.py prediction_step)."""
    for names in run.once(given_to_trainer):
        if "compute_metrics" in names:
            return "preprocess_logits_for_metrics" not in names and not run[f.eval.generate]
    return None


_CACHES_NOTHING = LibraryChange(
    "transformers", (5, 0), "evaluation keeps the keys and values of its batch (use_cache of the model's config)",
    "transformers 4.57.1 and 5.0.0 trainer.py: model.config.use_cache = args.use_cache",
)  # fmt: skip
_PLAIN_TRAINER = re.compile(r"(?:\w+\.)*Trainer")


@calls.derive(f.eval.caches)
def caches(run: Cells) -> Any:
    """A script that names the setting anywhere may well turn it off, and so may trainers of other classes."""
    if run.has(_CACHES_NOTHING, noted=False) or not run.once(_evaluates_as_loaded):
        return None
    return Sourced(True, _CACHES_NOTHING.source)


def _evaluates_as_loaded(blocks: list[Block]) -> bool:
    def called(*tables: Any) -> list[str]:
        return [_callee(block) for block in blocks if block.table in tables]

    documents = {id(block.document): block.document for block in blocks}
    return (
        any(_PLAIN_TRAINER.fullmatch(name) for name in called(*_TRAINER_TABLES))
        and any("ForCausalLM" in name for name in called(FROM_PRETRAINED, EARLY_FROM_PRETRAINED))
        and not any("use_cache" in document.source.text for document in documents.values())
    )


@calls.derive(f.eval.samples)
def evaluated(run: Cells) -> Any:
    """What is left of a set that the script cuts to a number; of several the largest."""
    cuts = _cuts(run)
    sizes = [cut.detail["size"] for _, cut in cuts]
    if not sizes or None in sizes:
        return None
    return Sourced(max(sizes), f"{cuts[0][0].path} cuts the set to it")


@calls.said(f.eval.samples)
def evaluated_as_told(run: Cells, field: Any, said: Said) -> Said:
    """Of a set that is cut to what only running tells nobody knows the size, however large such sets often are."""
    unclear = [(block, cut) for block, cut in _cuts(run) if cut.detail["size"] is None]
    if said is not None or not unclear:
        return said
    block, cut = unclear[0]
    why = "how many samples are evaluated only the script's own options tell"
    return unread_at(block, "eval_dataset", why, cut.location.span)


def _cuts(run: Cells) -> list[tuple[Block, Fact]]:
    """The calls that cut a set to evaluate, as far as the switches around them let them run."""
    found = run.once(_all_cuts)
    if not found:
        return []
    switches = switches_of(run.given.blocks)
    return [each for each in found if are_held(each[1].detail["guards"], switches)]


def _all_cuts(blocks: list[Block]) -> list[tuple[Block, Fact]]:
    documents = {id(block.document): block for block in blocks}
    return [
        (block, fact)
        for block in documents.values()
        for fact in block.document.facts
        if fact.kind == "cuts-evaluation"
    ]


@calls.said(f.eval.keeps_logits)
def kept_of_own_model(run: Cells, field: Any, said: Said) -> Said:
    """Where the script builds the model by a class of its own, what that one returns, and evaluation keeps of it,
    nobody knows: two rewards a pair, say (SPA-VL-RLHF 2024 models/ppo/reward_model.py)."""
    found = run.once(_measures_own_model)
    if said is not None or found is None:
        return said
    return Origin("explicit", found[0], None, found[1])


def _measures_own_model(blocks: list[Block]) -> tuple[Block, Entry] | None:
    if any(block.table in (FROM_PRETRAINED, EARLY_FROM_PRETRAINED) for block in blocks):
        return None
    for block in blocks:
        entries = block.mapping.entries
        if block.table in _LOADING and "compute_metrics" in entries:
            model = entries.get("model")
            if model is not None and not _is_name(model.value):
                return block, entries["compute_metrics"]
    return None


def _is_name(node: Node) -> bool:
    return isinstance(node, Scalar) and isinstance(node.value, str)


def _gathers_on_gpu(blocks: list[Block]) -> bool:
    facts = (fact for block in blocks for fact in block.document.facts)
    return any(fact.kind == "state-dict-on-gpu" for fact in facts)


@calls.derive(f.save.gather_device, source="torch FSDP: state dicts stay where they are gathered")
def gathering(run: Cells) -> Any:
    """Where the script asks for the state dict itself; the Trainer offloads its own."""
    return "gpu" if run.once(_gathers_on_gpu) else None


# -- classifiers -----------------------------------------------------------------------------------

# Heads with a few classes in place of the vocabulary.
_CLASSIFIER = re.compile(
    r"For(?:\w*Classification|QuestionAnswering|MultipleChoice|ObjectDetection|\w*Segmentation)\b"
)


def _classifies(blocks: list[Block]) -> bool:
    loaders = (b for b in blocks if b.table in (FROM_PRETRAINED, EARLY_FROM_PRETRAINED))
    loaded = (b.document.source.text[b.anchor.start : b.anchor.end] for b in loaders)
    # A module of the script's own around a model, with such a head, is called after it.
    return any(map(_CLASSIFIER.search, (*loaded, *made_models(blocks))))


@classifier.override(
    f.eval.keeps_logits,
    f.loss.logits_materialised,
    source="transformers: the head's output is samples x classes",
)
def no_logits(run: Cells) -> Any:
    if not run.once(_classifies):
        return None
    return {f.eval.keeps_logits: False, f.loss.logits_materialised: "fused"}
