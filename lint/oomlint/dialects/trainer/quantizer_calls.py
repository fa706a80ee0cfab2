"""Which call of a script quantizes the model, and on which option that hangs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from oomlint.dialects.table import Table
from oomlint.dialects.trainer.call_arguments import call_given, is_decided
from oomlint.dialects.trainer.tables import (
    QUANTIZATION,
)
from oomlint.documents.base import (
    UNKNOWN,
    Call,
    Node,
    PythonDocument,
    Scalar,
)
from oomlint.documents.python.nodes import PythonScalar


def quantizer_of(given: Call | None) -> Call | None:
    """The ``BitsAndBytesConfig`` that a call is given. Where an option decides whether it is (``BitsAndBytesConfig(...) if
    args.quantize else None``), the option decides on each of its settings."""
    entry = None if given is None else given.arguments.entries.get("quantization_config")
    if entry is None or not is_decided(entry.value):
        found = call_given(given, "quantization_config")
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


# TRL 0.7 to 1.10 trainer/utils.py: the options of a ModelConfig.
_OF_OPTIONS = "trl.get_quantization_config"


def own_quantizer(model: Call | None, document: PythonDocument) -> Iterator[tuple[Call, Table]]:
    """The call that quantizes a model which is loaded with what a function of the script returns; where that is not
    followed, how the model is quantized is not known."""
    given = None if model is None else model.arguments.entries.get("quantization_config")
    if model is None or given is None or not isinstance(given.value, Scalar):
        return
    if given.value.value is not UNKNOWN or is_decided(given.value):
        return
    # Its options are what TRL's tables read; of a load in another file is told where that is followed.
    if _OF_OPTIONS in document.imports or model.arguments.locked:
        return
    text, at = document.source.text, given.value.span
    function = re.match(r"(\w+)\(", text[at.start : at.end])
    is_own = function is not None and f"def {function[1]}(" in text
    made = [call for call in document.calls if call.callee.endswith("BitsAndBytesConfig")]
    if len(made) != 1 or not is_own:
        unread = {key: replace(given, key=key) for key in ("load_in_4bit", "load_in_8bit")}
        made = [replace(model, arguments=replace(model.arguments, entries=unread))]
    yield made[0], QUANTIZATION
