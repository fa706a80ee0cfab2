"""Python scripts that train with transformers' Trainer or TRL: which calls make up which run.

A run is a call of a Trainer with what it is given: its arguments' config call, the
``from_pretrained`` call of its model, the adapter's and the quantizer's config. Each call is
a block with a table of its own, so that a fix goes to the call that owns the setting. What
a script takes from its command line stays unknown until a launch line says it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping as MappingABC, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard

from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.common.config_values import with_files
from oomlint.dialects.common.evaluating import only_evaluates
from oomlint.dialects.kinds import BOOLEAN, BadValue
from oomlint.dialects.machine.colab import machine_of_notebook
from oomlint.dialects.machine.own_devices import devices_of_script
from oomlint.dialects.machine.ray_train import ray_workers
from oomlint.dialects.table import Block, Table, plain_value
from oomlint.dialects.trainer.tables import (
    ADAPTER,
    ALIKE_ADAPTERS,
    ARGUMENTS,
    ASSIGNED,
    CHECKPOINTS,
    DATASET,
    DEFAULTS,
    EARLY_FROM_PRETRAINED,
    FROM_PRETRAINED,
    FROZEN_TOWER,
    LOADED_ADAPTER,
    LOADED_SETS,
    LOADING_TRAINER_CALL,
    PLACED_ELSEWHERE,
    PREPARES_KBIT,
    QUANTIZATION,
    SCALED_PICTURES,
    TOKENIZER,
    TOLD_OF_ADAPTER,
    TRAINER_CALL,
    WITH_REFERENCE,
    WRAPS,
)
from oomlint.documents.base import (
    UNKNOWN,
    Call,
    Document,
    Entry,
    Mapping,
    Node,
    PythonDocument,
    Scalar,
    Sequence as Items,
    parser_of,
)
from oomlint.documents.python.lengths import LENGTH_NAMES
from oomlint.documents.python.nodes import PythonScalar, arms_of, guards_of
from oomlint.documents.text import Span

if TYPE_CHECKING:
    from oomlint.documents.python.nodes import Arm

# TRL 1.16 trainer/dpo_trainer.py and kto_trainer.py, and what is made of them.
_COMPARES = re.compile(r"(DPO|KTO)Trainer$")
_MODEL_LOADER = re.compile(r"(^|\.)(from_(pretrained|config)|\w+(ForCausalLM|LMHeadModel))$")
_OBJECTIVE = r"(SFT|DPO|GRPO|KTO|ORPO|CPO|Reward|PRM|PPO|RLOO|GKD|XPO|BCO|OnlineDPO|NashMD)"
_TRL_CONFIG = re.compile(rf"(^|\.){_OBJECTIVE}Config$")
_TRL_TRAINER = re.compile(rf"(^|\.){_OBJECTIVE}Trainer$")
_CONFIG = re.compile(rf"(^|\.)(Seq2Seq|Unsloth)?TrainingArguments$|{_TRL_CONFIG.pattern}")
# TensorFlow's has a name of its own (transformers 4.57 trainer_tf.py).
_TRAINER = re.compile(r"(^|\.)(?!TF[A-Z])\w*Trainer$")
_OF_TRANSFORMERS = re.compile(r"(^|\.)(Seq2Seq)?Trainer$")
# ``if args.use_unsloth:`` above an import of it; and an import whatever is asked.
_UNSLOTH = re.compile(r"^(?P<inside>[ \t]*)(?:from|import) unsloth\b", re.MULTILINE)
_OF_AUTO_CLASS = re.compile(r"(^|\.)AutoModelForCausalLM\.from_pretrained$")
_CLASS = re.compile(r"^class[ \t]+(\w+)(?:[ \t]*\(([^()]*)\))?", re.MULTILINE)
_OF_TRAINING = frozenset(ARGUMENTS.names) | ARGUMENTS.known
# peft 0.21.2 tuners/__init__.py: what get_peft_model takes.
_ADAPTER_CONFIG = re.compile(
    r"(^|\.)(\w*Lora|LoHa|LoKr|OFT|BOFT|IA3|Vera|LNTuning|Prompt\w*|Prefix\w*|AdaptionPrompt)Config$"
)
_LOADS_ADAPTER = re.compile(r"(^|\.)(Auto)?PeftModel\w*\.from_pretrained$")
NO_LANGUAGE = re.compile(
    r"CLIP|ViT|Dino|DINO|Segment|Image(?!TextToText)|Video(?!Llava)|(?:Audio|Speech)(?!ForC)|CTC|Whisper|Wav2Vec"
    r"|Hubert|WavLM|Beit|DeiT|Swin|ConvNext|ResNet|Detection|UNet|VAE|Autoencoder|Scheduler"
)
"""Classes of models of images and sound; those that write text of them (``Qwen2AudioForConditionalGeneration``) are
language models."""
_OTHER_MODEL = re.compile(r"ref|reward|teacher|critic|value(?!head)|draft", re.IGNORECASE)
_WRAPPERS = ("get_peft_model", "prepare_model_for_kbit_training", "prepare_model_for_int8_training")


Own: TypeAlias = MappingABC[str, tuple[str, ...]]
"""Classes that a script defines, each with those that it names as its bases."""


class ScriptRun(Struct, frozen=True):
    """The calls of one run. ``config`` is ``None`` where its arguments come from outside."""

    trainer: Call | None
    config: Call | None
    model: Call | None
    others: tuple[tuple[Call, Table], ...]
    among: int = 1
    """How many runs the script has."""
    own: Own = field(default_factory=dict)
    """Classes that the script defines: a RewardTrainer among them is not TRL's, unless it is
    derived from TRL's."""
    parsed: str = ""
    """TRL's class of arguments that the command line of a trainer of the project's own fills."""

    @property
    def uses_trl(self) -> bool:
        return bool(self.parsed) or _is_of_trl((self.trainer, self.config), self.own)

    @property
    def named(self) -> str:
        """The class that tells what is trained: the trainer's, or the library's that a trainer of
        the script's own is derived from. One of the project's own tells nothing by its name, and
        TRL's class of its arguments does."""
        named = [
            of_library(c.callee, self.own) for c in (self.trainer, self.config) if c is not None
        ]
        of_trl = (name for name in named if _TRL_TRAINER.search(name) or _TRL_CONFIG.search(name))
        return self.parsed or next(of_trl, named[0] if named else "")


def of_library(name: str, own: Own) -> str:
    """The library's class that a class of the script's own is derived from; any other class as it is."""
    seen: set[str] = set()
    while name in own and own[name] and name not in seen:
        seen.add(name)
        name = next(filter(_TRAINER.search, own[name]), own[name][0])
    return name


def _is_of_trl(calls: Sequence[Call | None], own: Own) -> bool:
    named = [of_library(call.callee, own) for call in calls if call is not None]
    named = [name for name in named if name not in own]
    return any(_TRL_TRAINER.search(name) or name.endswith("Config") for name in named)


def classes_of(text: str) -> Own:
    """The classes that a script defines."""
    found = ((match[1], match[2] or "") for match in _CLASS.finditer(text))
    return {name: tuple(re.findall(r"[\w.]+(?=\s*(?:,|$))", bases)) for name, bases in found}


def own_classes(document: PythonDocument) -> Own:
    """The classes that a script defines, and those of other files of the project that it trains with."""
    return {**document.classes, **classes_of(document.source.text)}


def script_runs(document: Document, *, patched: bool = False) -> Iterator[ScriptRun]:
    """The runs that a Python script starts through a Trainer: through one that Unsloth, which has
    a dialect of its own, has ``patched`` from within, or through one as it comes."""
    if not isinstance(document, PythonDocument) or _imports_unsloth(document) is not patched:
        return
    calls = document.calls
    if calls and only_evaluates(document.source.text):
        return
    defaults = document.option_defaults
    own = own_classes(document) if calls else {}
    configs = [c for c in calls if _CONFIG.search(c.callee) and _may_configure(c, document, own)]
    trainers = [c for c in calls if _TRAINER.search(c.callee) and _is_trainer(c, document)]
    found: list[ScriptRun] = []
    for trainer in trainers:
        config = _argument(trainer, "args", "1")
        if config is None or not _CONFIG.search(config.callee):
            config = _the_only(configs) if len(trainers) == 1 else None
        found.append(_run_of(calls, trainer, config, defaults, own))
    if not trainers:
        found += [
            _run_of(calls, None, config, defaults, own)
            for config in configs
            if "per_device_train_batch_size" in config.arguments.entries
        ]
    parsed = parsed_config(document)
    defined = classes_of(document.source.text) if parsed else {}
    found = [
        replace(run, parsed=parsed) if parsed and _is_of_project(run, defined) else run
        for run in found
    ]
    if not found and any(f.kind == "merges-adapter" for f in document.facts):
        found.append(_run_of(calls, None, None, defaults, own))
    for run in found:
        yield replace(run, among=len(found), others=(*run.others, *_own_quantizer(run, document)))


def _quantizer_of(given: Call | None) -> Call | None:
    """The ``BitsAndBytesConfig`` that a call is given. Where an option decides whether it is (``BitsAndBytesConfig(...) if
    args.quantize else None``), the option decides on each of its settings."""
    entry = None if given is None else given.arguments.entries.get("quantization_config")
    if entry is None or not is_decided(entry.value):
        found = _argument(given, "quantization_config")
        return found if found and found.callee.endswith("BitsAndBytesConfig") else None
    node = entry.value
    for place, side in enumerate(node.either or ()):
        call = side.value if isinstance(side, Scalar) else None
        if isinstance(call, Call) and call.callee.endswith("BitsAndBytesConfig"):
            entries = {
                key: replace(each, value=_on_one_side(node, place, each.value))
                for key, each in call.arguments.entries.items()
            }
            return replace(call, arguments=replace(call.arguments, entries=entries))
    return None


def _on_one_side(node: PythonScalar, place: int, value: Node) -> PythonScalar:
    """A value that counts where an option leads to this side of a choice, and nothing where it does not."""
    nothing = Scalar(node.span, None)
    either = (value, nothing) if place == 0 else (nothing, value)
    by_default = value if isinstance(node.value, Call) else nothing
    said = by_default.value if isinstance(by_default, Scalar) else UNKNOWN
    return replace(node, value=UNKNOWN if node.value is UNKNOWN else said, either=either)


def _own_quantizer(run: ScriptRun, document: PythonDocument) -> Iterator[tuple[Call, Table]]:
    """The call that quantizes a model which is loaded with what a function of the script returns; where the script has
    none such or several, how the model is quantized is not known."""
    given = None if run.model is None else run.model.arguments.entries.get("quantization_config")
    if run.model is None or given is None or not isinstance(given.value, Scalar):
        return
    text, at = document.source.text, given.value.span
    function = re.match(r"(\w+)\(", text[at.start : at.end])
    if given.value.value is not UNKNOWN or function is None or f"def {function[1]}(" not in text:
        return
    made = [call for call in document.calls if call.callee.endswith("BitsAndBytesConfig")]
    if len(made) != 1:
        unread = {key: replace(given, key=key) for key in ("load_in_4bit", "load_in_8bit")}
        made = [replace(run.model, arguments=replace(run.model.arguments, entries=unread))]
    yield made[0], QUANTIZATION


def parsed_config(document: Document) -> str:
    """TRL's class of training arguments that a script's parser is made of, or that one of the
    project's is derived from; none where it has several."""
    parser = parser_of(document)
    bases = frozenset[str]() if parser is None else parser.bases
    configs = [name for name in bases if name.startswith("trl.") and _CONFIG.search(name)]
    return configs[0] if len(configs) == 1 else ""


def _is_of_project(run: ScriptRun, defined: Own) -> bool:
    """Whether a trainer of the project's own is given arguments that a parser makes: it does what
    TRL's does for the keys that it takes of TRL's class, unless the script itself shows all that it
    adds to transformers'."""
    if run.trainer is None or run.config is not None or run.uses_trl:
        return False
    return not _OF_TRANSFORMERS.search(of_library(run.trainer.callee, defined))


def _imports_unsloth(document: Document) -> bool:
    """Whether Unsloth patches what a script trains with. One that imports it in a branch, for those who ask for it,
    and loads a model by transformers too does that unless asked."""
    if not any(name.partition(".")[0] == "unsloth" for name in document.imports):
        return False
    is_choice = _is_chosen(document.source.text)
    return not (is_choice and any(_OF_AUTO_CLASS.search(call.callee) for call in document.calls))


def _is_chosen(text: str) -> bool:
    """Whether Unsloth is imported below an ``if``, and nowhere at the top."""
    imports = list(_UNSLOTH.finditer(text))
    if not all(each["inside"] for each in imports):
        return False
    return any(
        _head_of_block(text[: each.start()], each["inside"]).startswith("if ") for each in imports
    )


def _head_of_block(before: str, inside: str) -> str:
    """The nearest line above that is less deep: what opens the block of an indented line."""
    lines = (line for line in reversed(before.splitlines()) if line.strip())
    outer = (line for line in lines if len(line) - len(line.lstrip()) < len(inside))
    return next(outer, "").strip()


def _is_trainer(call: Call, document: Document) -> bool:
    """``Trainer`` is a common word: this one is given what transformers' takes. So is
    ``SFTTrainer`` where it comes from another package than TRL (``coati.trainer.SFTTrainer``)."""
    entries = call.arguments.entries
    if _TRL_TRAINER.search(call.callee) and _homes_of(call, document) <= {"trl"}:
        return True
    return "args" in entries and bool({"model", "train_dataset", "0"} & set(entries))


def _may_configure(call: Call, document: Document, own: Own) -> bool:
    """A class of the project's own that is called like TRL's (``models.RewardConfig``) configures a training if it
    takes what training arguments are, or is derived from a library's where it can be read."""
    if call.callee in own:
        return of_library(call.callee, own) not in own
    keys = set(call.arguments.entries)
    is_own = not _homes_of(call, document) <= {"trl", "transformers", "unsloth"}
    return not (is_own and keys and not keys & _OF_TRAINING)


def _run_of(
    calls: Sequence[Call],
    trainer: Call | None,
    config: Call | None,
    defaults: Mapping | None,
    own: Own,
) -> ScriptRun:
    model = _model_of(calls, trainer, defaults)
    others = list(calls_beside(calls, model, _defaults_of(defaults), trainer))
    others += ((call, PLACED_ELSEWHERE) for call in _placed_elsewhere(calls, model, trainer))
    if not _is_of_trl((trainer, config), own):
        others += ((call, DATASET) for call in cut_datasets(calls))
        others += ((call, TOKENIZER) for call in cutting(calls))
    return ScriptRun(trainer, config, model, tuple(others), own=own)


def calls_beside(
    calls: Sequence[Call],
    model: Call | None,
    defaults: MappingABC[str, Node],
    trainer: Call | None = None,
) -> Iterator[tuple[Call, Table]]:
    """The calls that quantize, adapt and checkpoint a model, each with its table; ``defaults`` are
    those of the script's own switches."""
    for given in (model, trainer):
        quantizer = _quantizer_of(given)
        if quantizer is not None:
            yield quantizer, QUANTIZATION
            break
    adapter = _adapter_of(calls, trainer, defaults)
    if adapter is not None:
        yield adapter, ADAPTER
    else:
        alike = _alike(calls)
        if alike is not None:
            yield alike, ALIKE_ADAPTERS
        wrapped = WRAPS if alike is None else LOADED_ADAPTER
        yield from ((call, wrapped) for call in calls if _wraps(call))
        yield from ((call, LOADED_ADAPTER) for call in calls if _trains_what_it_loads(call))
    for call in calls:
        if call.callee.endswith(
            ("prepare_model_for_kbit_training", "prepare_model_for_int8_training")
        ):
            yield call, PREPARES_KBIT
        elif call.callee.endswith("gradient_checkpointing_enable"):
            yield call, CHECKPOINTS


def cutting(calls: Sequence[Call]) -> Iterator[Call]:
    """The call of a tokenizer that leaves samples longest, where every call that cuts them says
    its length, or where there is but one; prompts that are answered (``return_tensors``) are no samples
    unless padded."""
    lengths: dict[Call, int | None] = {}
    for call in calls:
        given = call.arguments.entries
        if call.callee.rpartition(".")[2] not in ("tokenizer", "apply_chat_template"):
            continue
        cuts = _value(call, "truncation")
        if cuts is UNKNOWN:
            return
        if not cuts:
            continue
        is_asked = _value(call, "return_tensors") is not None
        if is_asked and _value(call, "padding") != "max_length":
            continue
        if "max_length" not in given:
            return
        length = plain_value(given["max_length"].value, "yaml12")
        lengths[call] = length if isinstance(length, int) else None
    if len(lengths) == 1:
        yield from lengths
    elif None not in lengths.values():
        yield from sorted(lengths, key=lambda call: lengths[call] or 0)[-1:]


def cut_datasets(calls: Sequence[Call]) -> Iterator[Call]:
    """The call of a dataset of the project's own that leaves samples longest, where all are told how many
    tokens one may have."""
    lengths: dict[Call, int] = {}
    for call in calls:
        if call.callee.endswith("Dataset"):
            given = call.arguments.entries
            said = next(e.value for name, e in given.items() if name in LENGTH_NAMES)
            length = plain_value(said, "yaml12")
            if not isinstance(length, int):
                return
            lengths[call] = length
    if not lengths:
        return
    longest = max(lengths, key=lambda call: lengths[call])
    if len(lengths) > 1:
        alone = replace(longest.arguments, locked="several datasets are told how long samples are")
        longest = replace(longest, arguments=alone)
    yield longest


def _model_of(calls: Sequence[Call], trainer: Call | None, defaults: Mapping | None) -> Call | None:
    """The call that loads what is trained: as the trainer is given it, else the first one that
    the defaults of the script's own switches lead to."""
    found = _unwrapped(_argument(trainer, "model", "0"))
    if found is not None and _MODEL_LOADER.search(found.callee):
        return found
    if trainer is not None and _is_given_name(trainer):
        return None
    loaders = _loaders(calls, trainer)
    options = _defaults_of(defaults)
    reached = [call for call in loaders if is_reached(call.arguments, options)] or loaders
    return next((_named_for(call, reached) for call in reached), None)


def _is_given_name(trainer: Call) -> bool:
    """Whether a trainer loads the model itself: it is given the name of one, or an option, which is no object."""
    entries = trainer.arguments.entries
    entry = entries.get("model") or entries.get("0")
    value = None if entry is None else entry.value
    if isinstance(value, PythonScalar) and value.option and value.either is None:
        return not isinstance(value.value, Call)
    return isinstance(value, Scalar) and isinstance(value.value, str)


def _loaders(calls: Sequence[Call], trainer: Call | None) -> list[Call]:
    """The calls that may load what is trained."""
    reference = _argument(trainer, "ref_model")
    return [
        call
        for call in calls
        if _MODEL_LOADER.search(call.callee)
        and call is not reference
        and not _OTHER_MODEL.search(call.callee)
        and "Config" not in call.callee
        and not _comes_after(call, trainer)
    ]


def _placed_elsewhere(
    calls: Sequence[Call], model: Call | None, trainer: Call | None
) -> Iterator[Call]:
    """The calls with a device map that may load what is trained in the place of the one that was taken, since what the
    trainer is given is not followed."""
    given = _unwrapped(_argument(trainer, "model", "0"))
    if model is None or given is model:
        return
    for call in _loaders(calls, trainer):
        if call is not model and _value(call, "device_map") is not None:
            yield call


def _comes_after(call: Call, trainer: Call | None) -> bool:
    """Whether a model is loaded when the trainer has been given its own: to merge, to try or to publish it."""
    given = None if trainer is None else _value(trainer, "model", "0")
    return trainer is not None and given is not None and call.order > trainer.order


def _named_for(call: Call, loaders: Sequence[Call]) -> Call:
    """A call that loads a model, or the one in the other branch of an ``if`` around it where that one alone names
    what it loads: one goes on from a checkpoint of the other."""
    if _value(call, "pretrained_model_name_or_path", "0") is not UNKNOWN:
        return call
    others = (each for each in loaders if each is not call and may_replace(each, call))
    named = (e for e in others if isinstance(_value(e, "pretrained_model_name_or_path", "0"), str))
    return next(named, call)


def _defaults_of(defaults: Mapping | None) -> MappingABC[str, Node]:
    return {} if defaults is None else {k: e.value for k, e in defaults.entries.items()}


def is_reached(arguments: Mapping, options: MappingABC[str, Node]) -> bool:
    """Whether the switches around a call let it run; one that nobody sets may be either."""
    return are_held(guards_of(arguments), options)


def are_held(guards: Iterable[tuple[str, bool]], options: MappingABC[str, Node]) -> bool:
    """Whether switches are as a place in the script asks; one that nobody sets may be either."""
    return all(name not in options or is_on(name, options) == held for name, held in guards)


def is_on(option: str, options: MappingABC[str, Node]) -> bool:
    """Whether a switch is on; those of the Trainer are off unless set."""
    given = options.get(option)
    if given is None:
        return False
    try:
        return bool(BOOLEAN.read(plain_value(given, "yaml12")))
    except BadValue:
        return plain_value(given, "yaml12") not in (None, "", 0)


def _unwrapped(call: Call | None) -> Call | None:
    """The call inside ``get_peft_model(prepare_model_for_kbit_training(...), ...)``, or inside one that loads an
    adapter over it."""
    while call is not None and call.callee.rpartition(".")[2] in _WRAPPERS:
        call = _argument(call, "model", "0")
    if call is not None and _LOADS_ADAPTER.search(call.callee):
        return _unwrapped(_argument(call, "model", "0")) or call
    return call


def _adapter_of(
    calls: Sequence[Call], trainer: Call | None, defaults: MappingABC[str, Node]
) -> Call | None:
    """The config of the adapter that is trained; ``None`` where there is none, or where branches
    that only running tells lead to different ones."""
    found = _argument(trainer, "peft_config")
    if found is not None and found.callee.endswith("LoraConfig"):
        return found
    chosen = None if trainer is None else _chosen_config(trainer)
    if chosen is not None:
        return chosen
    wraps = [call for call in calls if call.callee.rpartition(".")[2] == "get_peft_model"]
    wraps = [call for call in wraps if is_reached(call.arguments, defaults)] or wraps
    configs = [_config_of(call, calls) for call in wraps if may_replace(call, wraps[0])]
    return configs[0] if len(set(map(_said, configs))) == 1 else None


def _chosen_config(trainer: Call) -> Call | None:
    """The config of which an option decides whether the trainer is given it."""
    entry = trainer.arguments.entries.get("peft_config")
    sides = entry.value.either if entry is not None and is_decided(entry.value) else None
    for side in sides or ():
        call = side.value if isinstance(side, Scalar) else None
        if isinstance(call, Call) and call.callee.endswith("LoraConfig"):
            return call
    return None


def is_decided(node: Node) -> TypeGuard[PythonScalar]:
    """Whether a value is one of two, between which an option decides."""
    return isinstance(node, PythonScalar) and node.either is not None


def _adapts_as_told(trainer: Call, document: Document) -> bool:
    """Whether the adapter's config is what TRL's own function makes of ModelConfig, whose keys say
    it (TRL f2cd5771 trainer/utils.py get_peft_config; alignment-handbook 925acdfe
    src/alignment/model_utils.py has the same). PEFT's function of that name takes a dictionary."""
    found = _argument(trainer, "peft_config")
    if found is None or found.callee.rpartition(".")[2] != "get_peft_config":
        return False
    homes = _homes_of(found, document)
    return bool(homes) and "peft" not in homes


def _homes_of(call: Call, document: Document) -> set[str]:
    """The packages that what is called is imported from; none where no import names it."""
    name = call.callee.rpartition(".")[2]
    return {each.partition(".")[0] for each in document.imports if each.endswith(f".{name}")}


def _config_of(wrap: Call, calls: Sequence[Call]) -> Call | None:
    """The ``LoraConfig`` that a call of ``get_peft_model`` is given."""
    found = _argument(wrap, "peft_config", "1")
    if found is not None and found.callee.endswith("LoraConfig"):
        return found
    configs = [call for call in calls if call.callee.endswith("LoraConfig")]
    beside = [call for call in configs if _arms_of(call) == _arms_of(wrap)]
    return _the_only(beside) or _the_only(configs)


def _arms_of(call: Call) -> tuple[Arm, ...]:
    return arms_of(call.arguments)


def may_replace(call: Call, other: Call) -> bool:
    """Whether a call is another or stands in the other branch of an ``if`` around it."""
    arms = dict(_arms_of(other))
    return call is other or any(arms.get(line, side) is not side for line, side in _arms_of(call))


def _said(call: Call | None) -> tuple[tuple[str, str], ...]:
    """What a call is given, so that two that say the same are equal."""
    entries = () if call is None else call.arguments.entries.items()
    values = ((name, repr(plain_value(e.value, "yaml12")), id(e)) for name, e in entries)
    return tuple(sorted((n, f"{i}" if repr(UNKNOWN) in v else v) for n, v, i in values))


def _wraps(call: Call) -> bool:
    """Whether a call is PEFT's own ``get_peft_model``."""
    package, _, name = call.callee.rpartition(".")
    return name == "get_peft_model" and package in ("", "peft")


def _trains_what_it_loads(call: Call) -> bool:
    """Whether a call loads an adapter to train it on: PEFT freezes it unless told otherwise."""
    return bool(_LOADS_ADAPTER.search(call.callee)) and _value(call, "is_trainable") is True


def _alike(calls: Sequence[Call]) -> Call | None:
    """One of the adapters that a script makes configs of, if all are LoRA's and of the same rank, so that it matters
    little which of them the model gets."""
    made = [call for call in calls if _ADAPTER_CONFIG.search(call.callee)]
    ranks = {_rank_of(call) for call in made if call.callee.endswith("LoraConfig")}
    is_one = len(ranks) == 1 and None not in ranks
    return made[0] if is_one and all(c.callee.endswith("LoraConfig") for c in made) else None


def _rank_of(call: Call) -> int | None:
    entry = call.arguments.entries.get("r")
    rank = None if entry is None else plain_value(entry.value, "yaml12")
    return rank if isinstance(rank, int) else None


def _the_only(calls: Sequence[Call]) -> Call | None:
    return calls[0] if len(calls) == 1 else None


def _value(call: Call, *names: str) -> Any:
    for name in names:
        entry = call.arguments.entries.get(name)
        if entry is not None:
            return entry.value.value if isinstance(entry.value, Scalar) else entry.value
    return None


def _argument(call: Call | None, *names: str) -> Call | None:
    """The call whose result is passed as the first of these arguments that is given."""
    value = _value(call, *names) if call is not None else None
    return value if isinstance(value, Call) else None


def script_claim(
    dialect: Dialect,
    document: Document,
    run: ScriptRun,
    config_table: Table,
    *,
    model_table: Table | None = None,
) -> Claim:
    """The claim on one run of a script; blocks in rising precedence. It is named after the
    line of its trainer where the script has several. ``model_table`` reads the call that loads
    the model, where that is not transformers' own."""
    blocks: list[Block] = []
    if run.config is None:
        blocks += _option_defaults(document)
    if run.model is not None:
        early = run.config is not None and run.model.order < run.config.order
        table = model_table or (EARLY_FROM_PRETRAINED if early else FROM_PRETRAINED)
        blocks.append(_block(document, run.model, table))
    blocks += [_block(document, call, table) for call, table in run.others]
    if run.config is not None:
        is_plain = of_library(run.config.callee, run.own).endswith("TrainingArguments")
        made = PlainArguments if is_plain else Block
        # A class that is derived from the library's has fields of its own.
        is_own = run.config.callee in run.own
        table = replace(config_table, ignores_unknown=None) if is_own else config_table
        blocks.append(_block(document, run.config, table, made))
    if run.trainer is not None:
        table = LOADING_TRAINER_CALL if run.model is None else TRAINER_CALL
        if _COMPARES.search(run.trainer.callee):
            table = WITH_REFERENCE[table.name]
        if _adapts_as_told(run.trainer, document):
            table = TOLD_OF_ADAPTER[table.name]
        blocks.append(_block(document, run.trainer, table))
    blocks += (Block(document, s.arguments, ASSIGNED, s.span) for s in assigned_in(document))
    blocks += (*_told_of_vision(document), *_loaded_sets(document))
    blocks += (*machine_of_notebook(document), *ray_workers(document), *devices_of_script(document))
    # Without a config call the arguments come from a command line: no run of its own.
    name = ""
    centre = run.trainer or run.config
    if run.among > 1 and centre is not None:
        line, _ = document.source.position(centre.span.start)
        name = f"{document.source.path}:{line}"
    kind: Literal["aside", "run"] = "aside" if run.config is None else "run"
    merges = kind == "aside" and any(f.kind == "merges-adapter" for f in document.facts)
    return Claim(dialect, kind, document, tuple(with_files(blocks)), name=name, merges=merges)


class PlainArguments(Block, frozen=True, eq=False):
    """A call of transformers' own class. A library's trainer may make arguments of its own class of them, and has
    defaults for what that has more (TRL 0.24 sft_trainer.py: ``SFTConfig(**dict_args)``); Python refuses it in this
    call."""

    def refuses_new(self, field: str, blocks: Iterable[Block]) -> str | None:
        key = self.table.by_field[field].key
        return None if key in _OF_TRAINING else f"TrainingArguments has no argument {key}"


def assigned_in(document: Document) -> Sequence[Call]:
    """The statements of a script that change its training arguments."""
    return document.assigned if isinstance(document, PythonDocument) else ()


def _option_defaults(document: Document) -> Iterator[Block]:
    """Defaults that the script's own dataclasses give the options of its command line."""
    defaults = document.option_defaults if isinstance(document, PythonDocument) else None
    if defaults is not None:
        first = next(iter(defaults.entries.values()))
        yield Block(document, defaults, DEFAULTS, first.value.span)


def _loaded_sets(document: Document) -> Iterator[Block]:
    """The data sets that a script loads, where these are all that it can train on."""
    for fact in document.facts:
        if fact.kind == "loads-sets":
            at = fact.location.span
            said = {"path": fact.detail["names"], "keys": fact.detail["keys"]}
            entries = {
                key: Entry(key, at, Items(at, tuple(Scalar(at, word) for word in words)), at)
                for key, words in said.items()
                if words
            }
            yield Block(document, Mapping(at, entries), LOADED_SETS, at)


def _told_of_vision(document: Document) -> Iterator[Block]:
    """What a script says by switching off the gradients of the vision encoder, and by telling the processor how large
    pictures may be."""
    said = {
        "freezes-tower": (FROZEN_TOWER, "the script's own code freezes it"),
        "scales-pictures": (
            SCALED_PICTURES, "the script's own code says how large pictures may be",
        ),
    }  # fmt: skip
    for fact in document.facts:
        if fact.kind in said:
            table, locked = said.pop(fact.kind)
            at, value = fact.location.span, fact.detail.get("pixels", True)
            entry = Entry(table.rows[0].key, at, Scalar(at, value), at)
            mapping = Mapping(at, {entry.key: entry}, locked=locked)
            yield Block(document, mapping, table, at, locked=locked)


def _block(document: Document, call: Call, table: Table, kind: type[Block] = Block) -> Block:
    start = call.span.start
    return kind(document, call.arguments, table, Span(start, start + len(call.callee)))
