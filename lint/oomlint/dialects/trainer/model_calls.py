"""Which call of a script loads the model that it trains."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from oomlint.dialects.trainer.call_arguments import call_given, defaults_of, value_of
from oomlint.dialects.trainer.reaching import is_reached, may_replace
from oomlint.documents.base import (
    UNKNOWN,
    Call,
    Mapping,
    Scalar,
)
from oomlint.documents.python.nodes import PythonScalar

_MODEL_LOADER = re.compile(r"(^|\.)(from_(pretrained|config)|\w+(ForCausalLM|LMHeadModel))$")
LOADS_ADAPTER = re.compile(r"(^|\.)(Auto)?PeftModel\w*\.from_pretrained$")
NO_LANGUAGE = re.compile(
    r"CLIP|ViT|Dino|DINO|Segment|Image(?!TextToText)|Video(?!Llava)|(?:Audio|Speech)(?!ForC)|CTC|Whisper|Wav2Vec"
    r"|Hubert|WavLM|Beit|DeiT|Swin|ConvNext|ResNet|Detection|UNet|VAE|Autoencoder|Scheduler"
)
"""Classes of models of images and sound; those that write text of them (``Qwen2AudioForConditionalGeneration``) are
language models."""
# A class without a head, or of images and sound.
_OF_TOWER = re.compile(rf"(?:^|\.)AutoModel\.|{NO_LANGUAGE.pattern}")
_OTHER_MODEL = re.compile(r"ref|reward|teacher|critic|value(?!head)|draft", re.IGNORECASE)
_WRAPPERS = ("get_peft_model", "prepare_model_for_kbit_training", "prepare_model_for_int8_training")


def model_of(calls: Sequence[Call], trainer: Call | None, defaults: Mapping | None) -> Call | None:
    """The call that loads what is trained: as the trainer is given it, else the first one that
    the defaults of the script's own switches lead to."""
    found = _unwrapped(call_given(trainer, "model", "0"))
    if found is not None and _MODEL_LOADER.search(found.callee):
        return found
    if trainer is not None and _is_given_name(trainer):
        return None
    loaders = _loaders(calls, trainer)
    options = defaults_of(defaults)
    reached = [call for call in loaders if is_reached(call.arguments, options)] or loaders
    # Of a tower and the language model that a class puts together the latter.
    reached.sort(key=lambda call: bool(_OF_TOWER.search(call.callee)))
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
    reference = call_given(trainer, "ref_model")
    return [
        call
        for call in calls
        if _MODEL_LOADER.search(call.callee)
        and not _goes_over_a_model(call)
        and call is not reference
        and not _OTHER_MODEL.search(call.callee)
        and "Config" not in call.callee
        and not _comes_after(call, trainer)
    ]


def placed_elsewhere(
    calls: Sequence[Call], model: Call | None, trainer: Call | None
) -> Iterator[Call]:
    """The calls with a device map that may load what is trained in the place of the one that was taken, since what the
    trainer is given is not followed."""
    given = _unwrapped(call_given(trainer, "model", "0"))
    if model is None or given is model:
        return
    for call in _loaders(calls, trainer):
        if call is not model and value_of(call, "device_map") is not None:
            yield call


def loaded_adapters(calls: Sequence[Call], trainer: Call | None) -> Iterator[Call]:
    """The calls that lay an adapter over what is trained: of such a model the base is frozen, and the adapter is what a
    script may switch gradients on for (peft 0.21.2 tuners/tuners_utils.py _mark_only_adapters_as_trainable)."""
    reference = call_given(trainer, "ref_model")
    for call in calls:
        if _goes_over_a_model(call) and call is not reference and not _comes_after(call, trainer):
            yield call


def _comes_after(call: Call, trainer: Call | None) -> bool:
    """Whether a model is loaded when the trainer has been given its own: to merge, to try or to publish it."""
    given = None if trainer is None else value_of(trainer, "model", "0")
    return trainer is not None and given is not None and call.order > trainer.order


def _named_for(call: Call, loaders: Sequence[Call]) -> Call:
    """A call that loads a model, or the one in the other branch of an ``if`` around it where that one alone names
    what it loads: one goes on from a checkpoint of the other."""
    if value_of(call, "pretrained_model_name_or_path", "0") is not UNKNOWN:
        return call
    others = (each for each in loaders if each is not call and may_replace(each, call))
    named = (
        e for e in others if isinstance(value_of(e, "pretrained_model_name_or_path", "0"), str)
    )
    return next(named, call)


def _unwrapped(call: Call | None) -> Call | None:
    """The call inside ``get_peft_model(prepare_model_for_kbit_training(...), ...)``, or inside one that loads an
    adapter over it; ``None`` where that one is given a model which is not followed."""
    while call is not None and call.callee.rpartition(".")[2] in _WRAPPERS:
        call = call_given(call, "model", "0")
    if call is not None and LOADS_ADAPTER.search(call.callee):
        inner = _unwrapped(call_given(call, "model", "0"))
        return inner or (None if _goes_over_a_model(call) else call)
    return call


def _goes_over_a_model(call: Call) -> bool:
    """``PeftModel.from_pretrained(model, path)``, but not ``AutoPeftModelForCausalLM.from_pretrained(path)``, which loads
    the model itself (peft 0.21.2 auto.py)."""
    is_itself = call.callee.rpartition(".")[0].rpartition(".")[2].startswith("AutoPeft")
    return bool(LOADS_ADAPTER.search(call.callee)) and not is_itself
