"""Which calls of a script make the adapter that it trains."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingABC, Sequence

from msgspec.structs import replace

from oomlint.dialects.entries import plain_value
from oomlint.dialects.trainer.call_arguments import (
    call_given,
    homes_of,
    is_decided,
    the_only,
    value_of,
)
from oomlint.dialects.trainer.model_calls import LOADS_ADAPTER
from oomlint.dialects.trainer.reaching import is_reached, may_replace
from oomlint.documents.base import (
    UNKNOWN,
    Call,
    Document,
    Entry,
    Node,
    Scalar,
)
from oomlint.documents.python.nodes import PythonMapping, PythonScalar, arms_of

# peft 0.21.2 tuners/__init__.py: what get_peft_model takes.
_ADAPTER_CONFIG = re.compile(
    r"(^|\.)(\w*Lora|LoHa|LoKr|OFT|BOFT|IA3|Vera|LNTuning|Prompt\w*|Prefix\w*|AdaptionPrompt)Config$"
)


def adapter_of(
    calls: Sequence[Call], trainer: Call | None, defaults: MappingABC[str, Node]
) -> Call | None:
    """The config of the adapter that is trained; ``None`` where there is none, or where branches
    that only running tells lead to different ones."""
    found = _of_dictionary(call_given(trainer, "peft_config"))
    if found is not None and found.callee.endswith("LoraConfig"):
        return found
    chosen = None if trainer is None else _chosen_config(trainer)
    if chosen is not None:
        return chosen
    valued = _of_value_head(calls)
    if valued is not None:
        return valued
    wraps = [call for call in calls if call.callee.rpartition(".")[2] == "get_peft_model"]
    wraps = [call for call in wraps if is_reached(call.arguments, defaults)] or wraps
    configs = [_config_of(call, calls) for call in wraps if may_replace(call, wraps[0])]
    if not wraps:
        configs = [added for added in map(_added_config, calls) if added is not None]
    return configs[0] if len(set(map(_said, configs))) == 1 else None


def _of_value_head(calls: Sequence[Call]) -> Call | None:
    """The config with which TRL's wrapper loads a model for PPO: it adds the adapter itself (trl 0.4 to 0.22
    models/modeling_base.py PreTrainedModelWrapper.from_pretrained)."""
    loads = [call for call in calls if call.callee.endswith("WithValueHead.from_pretrained")]
    configs = [call_given(call, "peft_config") for call in loads]
    found = [call for call in configs if call is not None and call.callee.endswith("LoraConfig")]
    is_one = len(found) == len(loads) and len(set(map(_said, found))) == 1
    return found[0] if is_one else None


def _chosen_config(trainer: Call) -> Call | None:
    """The config of which options decide whether the trainer is given it, or which of several."""
    entry = trainer.arguments.entries.get("peft_config")
    return None if entry is None or not is_decided(entry.value) else _among(entry.value)


def _among(node: Node) -> Call | None:
    """The ``LoraConfig`` that a value is, or may be; of several each argument is as the option decides."""
    if not is_decided(node):
        call = node.value if isinstance(node, Scalar) else None
        return call if isinstance(call, Call) and call.callee.endswith("LoraConfig") else None
    assert node.either is not None
    one, other = map(_among, node.either)
    kept = one or other
    if kept is None:
        return None
    lacks = node.either[0 if one is None else 1]
    if other is not one and None in (one, other) and _is_none(lacks):
        return kept  # whether there is any the trainer's own argument says
    said = [{} if call is None else call.arguments.entries for call in (one, other)]
    entries = {}
    for key in (*said[0], *(key for key in said[1] if key not in said[0])):
        sides = [each.get(key) for each in said]
        entry = next(each for each in sides if each is not None)
        entries[key] = replace(entry, value=_as_decided(node, one, other, sides))
    return replace(kept, arguments=replace(kept.arguments, entries=entries))


def _as_decided(
    node: PythonScalar, one: Call | None, other: Call | None, sides: Sequence[Entry | None]
) -> Node:
    """An argument that an option decides on: it is its default where one config does not have it, and open where
    something else is in the place of a config."""
    values: list[Node] = [
        Scalar(node.span, UNKNOWN if call is None else None) if side is None else side.value
        for call, side in zip((one, other), sides, strict=True)
    ]
    plain = [plain_value(value, "yaml12") for value in values]
    if UNKNOWN not in plain and plain[0] == plain[1]:
        return values[0]
    return replace(node, value=UNKNOWN, either=(values[0], values[1]))


def _is_none(node: Node) -> bool:
    return isinstance(node, Scalar) and not is_decided(node) and node.value is None


def adapts_as_told(trainer: Call, document: Document) -> bool:
    """Whether the adapter's config is what TRL's own function makes of ModelConfig, whose keys say
    it (TRL f2cd5771 trainer/utils.py get_peft_config; alignment-handbook 925acdfe
    src/alignment/model_utils.py has the same). PEFT's function of that name takes a dictionary."""
    found = call_given(trainer, "peft_config")
    if found is None or found.callee.rpartition(".")[2] != "get_peft_config":
        return False
    homes = homes_of(found, document)
    return bool(homes) and "peft" not in homes


def told_of_adapter(trainer: Call | None) -> Call | None:
    """The ``ModelConfig(...)`` of which TRL's own function makes the adapter's config, where the script itself makes it and
    no command line does: ``peft_config=get_peft_config(ModelConfig(use_peft=True))``."""
    found = call_given(trainer, "peft_config")
    if found is None or found.callee.rpartition(".")[2] != "get_peft_config":
        return None
    told = call_given(found, "model_args", "0")
    return told if told is not None and told.callee in ("trl.ModelConfig", "ModelConfig") else None


def _config_of(wrap: Call, calls: Sequence[Call]) -> Call | None:
    """The ``LoraConfig`` that a call of ``get_peft_model`` is given."""
    found = _of_dictionary(call_given(wrap, "peft_config", "1"))
    if found is not None and found.callee.endswith("LoraConfig"):
        return found
    configs = [call for call in calls if call.callee.endswith("LoraConfig")]
    beside = [call for call in configs if arms_of(call.arguments) == arms_of(wrap.arguments)]
    return the_only(beside) or the_only(configs)


def _of_dictionary(call: Call | None) -> Call | None:
    """The call itself, or the ``LoraConfig(...)`` that PEFT's own function makes of a dictionary
    (peft 0.17.0 mapping.py get_peft_config)."""
    if call is None or call.callee.rpartition(".")[2] != "get_peft_config":
        return call
    entry = call.arguments.entries.get("config_dict") or call.arguments.entries.get("0")
    told = None if entry is None else entry.value
    if not isinstance(told, PythonMapping):
        return call
    kind = told.entries.get("peft_type")
    is_lora = kind is not None and plain_value(kind.value, "yaml12") == "LORA"
    return replace(call, callee="peft.LoraConfig", arguments=told) if is_lora else call


def _said(call: Call | None) -> tuple[tuple[str, str], ...]:
    """What a call is given, so that two that say the same are equal."""
    entries = () if call is None else call.arguments.entries.items()
    values = ((name, repr(plain_value(e.value, "yaml12")), id(e)) for name, e in entries)
    return tuple(sorted((n, f"{i}" if repr(UNKNOWN) in v else v) for n, v, i in values))


def _added_config(call: Call) -> Call | None:
    """The ``LoraConfig`` that a model of transformers is given to adapt itself by (transformers 4.57.1
    integrations/peft.py add_adapter). PEFT's own method of that name is told the adapter's name first."""
    if call.callee.rpartition(".")[2] != "add_adapter":
        return None
    found = call_given(call, "adapter_config", "0")
    return found if found is not None and found.callee.endswith("LoraConfig") else None


def adds(call: Call) -> bool:
    """Whether a call adds an adapter to a model of transformers, without PEFT's model around it."""
    return _added_config(call) is not None


def wraps(call: Call) -> bool:
    """Whether a call is PEFT's own ``get_peft_model``."""
    package, _, name = call.callee.rpartition(".")
    return name == "get_peft_model" and package in ("", "peft")


def trains_what_it_loads(call: Call) -> bool:
    """Whether a call loads an adapter to train it on: PEFT freezes it unless told otherwise."""
    return bool(LOADS_ADAPTER.search(call.callee)) and value_of(call, "is_trainable") is True


def alike(calls: Sequence[Call]) -> Call | None:
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
