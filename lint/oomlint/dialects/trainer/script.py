"""Python scripts that train with transformers' Trainer or TRL: which calls make up which run.

A run is a call of a Trainer with what it is given: its arguments' config call, the
``from_pretrained`` call of its model, the adapter's and the quantizer's config. Each call is
a block with a table of its own, so that a fix goes to the call that owns the setting. What
a script takes from its command line stays unknown until a launch line says it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.dialects.common.evaluating import only_evaluates
from oomlint.dialects.table import Table
from oomlint.dialects.trainer.beside_calls import calls_beside
from oomlint.dialects.trainer.call_arguments import (
    call_given,
    defaults_of,
    homes_of,
    is_of_library,
    the_only,
)
from oomlint.dialects.trainer.model_calls import loaded_adapters, model_of, placed_elsewhere
from oomlint.dialects.trainer.own_classes import Own, classes_of, of_library, own_classes
from oomlint.dialects.trainer.quantizer_calls import own_quantizer
from oomlint.dialects.trainer.sample_calls import cut_datasets, cutting
from oomlint.dialects.trainer.tables import (
    ARGUMENTS,
    DATASET,
    LOADED_ADAPTER,
    PLACED_ELSEWHERE,
    TOKENIZER,
)
from oomlint.documents.base import (
    Call,
    Document,
    Mapping,
    PythonDocument,
    parser_of,
)
from oomlint.documents.python.trainer_names import names_trainer

_OBJECTIVE = r"(SFT|DPO|GRPO|KTO|ORPO|CPO|Reward|PRM|PPO|RLOO|GKD|XPO|BCO|OnlineDPO|NashMD)"
_TRL_CONFIG = re.compile(rf"(^|\.){_OBJECTIVE}Config$")
_TRL_TRAINER = re.compile(rf"(^|\.){_OBJECTIVE}Trainer$")
_CONFIG = re.compile(rf"(^|\.)(Seq2Seq|Unsloth)?TrainingArguments$|{_TRL_CONFIG.pattern}")
_OF_TRANSFORMERS = re.compile(r"(^|\.)(Seq2Seq)?Trainer$")
# ``if args.use_unsloth:`` above an import of it; and an import whatever is asked.
_UNSLOTH = re.compile(r"^(?P<inside>[ \t]*)(?:from|import) unsloth\b", re.MULTILINE)
_OF_AUTO_CLASS = re.compile(r"(^|\.)AutoModelForCausalLM\.from_pretrained$")
# What a class may be derived from that is derived from nothing.
_BARE = frozenset({"object", "ABC", "abc.ABC"})
# What a file says in which an adapter is merged: its facts are worked out if so.
_MERGES = r"merge_and_unload|save_pretrained_merged"

# One of these stands in each script with a run, and in one that would have one if Python could read it.
WORDS = (
    b"Trainer", b"TrainingArguments", b"per_device_train_batch_size", b"merge_and_unload", b"save_pretrained_merged",
)  # fmt: skip

# What leaves a model without its adapter (peft 0.21.2 tuners/tuners_utils.py).
_TAKES_ADAPTER_OFF = r"\.(?:merge_and_unload|unload)\("

OF_TRAINING = frozenset(ARGUMENTS.names) | ARGUMENTS.known


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


def _is_of_trl(calls: Sequence[Call | None], own: Own) -> bool:
    named = [of_library(call.callee, own) for call in calls if call is not None]
    named = [name for name in named if name not in own]
    return any(_TRL_TRAINER.search(name) or name.endswith("Config") for name in named)


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
    configs = [c for c in calls if _is_config(c, own) and _may_configure(c, document, own)]
    trainers = [c for c in calls if names_trainer(c.callee) and _is_trainer(c, document)]
    trainers = [c for c in trainers if configs or not _is_of_no_library(c, document, own)]
    found: list[ScriptRun] = []
    for trainer in trainers:
        config = call_given(trainer, "args", "1")
        if config is None or not _is_config(config, own):
            config = the_only(configs) if len(trainers) == 1 else None
        found.append(_run_of(document, trainer, config, defaults, own))
    if not trainers:
        found += [
            _run_of(document, None, config, defaults, own)
            for config in configs
            if "per_device_train_batch_size" in config.arguments.entries
        ]
    parsed = parsed_config(document)
    defined = classes_of(document.source.text) if parsed else {}
    found = [
        replace(run, parsed=parsed) if parsed and _is_of_project(run, defined) else run
        for run in found
    ]
    merges = not found and re.search(_MERGES, document.source.text) is not None
    if merges and any(f.kind == "merges-adapter" for f in document.facts):
        found.append(_run_of(document, None, None, defaults, own))
    for run in found:
        yield replace(
            run, among=len(found), others=(*run.others, *own_quantizer(run.model, document))
        )


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
    """``Trainer`` is a common word: this one is given what transformers' takes, or comes from there. So is
    ``SFTTrainer`` where it comes from another package than TRL (``coati.trainer.SFTTrainer``)."""
    entries = call.arguments.entries
    if _TRL_TRAINER.search(call.callee) and homes_of(call, document) <= {"trl"}:
        return True
    if _OF_TRANSFORMERS.search(call.callee) and homes_of(call, document) == {"transformers"}:
        return "args" in entries or "1" in entries  # Trainer(model, args, …)
    return "args" in entries and bool({"model", "train_dataset", "0"} & set(entries))


def _is_config(call: Call, own: Own) -> bool:
    """Whether a call makes arguments of training, of a library's class or of one that is derived from such."""
    return bool(_CONFIG.search(call.callee) or _CONFIG.search(of_library(call.callee, own)))


def _is_of_no_library(call: Call, document: Document, own: Own) -> bool:
    """Whether a class of the project's own that is derived from nothing takes no arguments which a class of a library's
    makes: it has the name in common with a trainer, and its options mean what it makes of them."""
    parser = parser_of(document) if "args" in call.arguments.entries else None
    is_parsed = parser is not None and any(_CONFIG.search(base) for base in parser.bases)
    line = of_library(call.callee, own)
    return call.callee in own and not is_parsed and (own.get(line) == () or line in _BARE)


def _may_configure(call: Call, document: Document, own: Own) -> bool:
    """A class of the project's own that is called like TRL's (``models.RewardConfig``) configures a training if it
    takes what training arguments are, or is derived from a library's where it can be read."""
    if call.callee in own:
        return of_library(call.callee, own) not in own
    keys = set(call.arguments.entries)
    return is_of_library(call, document) or not keys or bool(keys & OF_TRAINING)


def _makes_adapter(calls: Sequence[tuple[Call, Table]]) -> bool:
    return any(table.section == "adapter" for _, table in calls)


def _run_of(
    document: PythonDocument,
    trainer: Call | None,
    config: Call | None,
    defaults: Mapping | None,
    own: Own,
) -> ScriptRun:
    calls = document.calls
    model = model_of(calls, trainer, defaults)
    others = list(calls_beside(calls, model, defaults_of(defaults), trainer))
    if not re.search(_TAKES_ADAPTER_OFF, document.source.text) and not _makes_adapter(others):
        others += ((call, LOADED_ADAPTER) for call in loaded_adapters(calls, trainer))
    others += ((call, PLACED_ELSEWHERE) for call in placed_elsewhere(calls, model, trainer))
    if not _is_of_trl((trainer, config), own):
        others += ((call, DATASET) for call in cut_datasets(calls))
        others += ((call, TOKENIZER) for call in cutting(calls))
    return ScriptRun(trainer, config, model, tuple(others), own=own)
