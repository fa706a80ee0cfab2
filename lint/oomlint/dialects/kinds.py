"""How one value is read from a file and written back: the two-way cells of a dialect table.

A kind turns what a framework's loader yields (``"true"``, ``"2e-5"``, ``"zero3"``) into a
canonical value, and a canonical value into something a document can write. Readers are
lenient where the frameworks are: command lines and PyYAML deliver numbers as strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.errors import CannotEdit


class BadValue(Exception):
    """A value that the framework itself would refuse; ``str(error)`` says what it wants."""


class Undecided(BadValue):
    """A value that the framework takes, and of which we do not know what it comes to."""


class OutOfRange(BadValue):
    """A value of the right type, which a parser takes, and only what is made with it refuses."""


class StandIn(Undecided):
    """A word in the place of a value that a person or another script is to fill in."""


# TO_BE_FILLED, and CONFIG_MBSIZE, of a template (with a comma: DeepSpeed reads JSON as Hjson); what
# people blank out; and OmegaConf's ???, which a launch line has to give.
# ${stage} stands for a value in what envsubst fills in.
_STAND_IN = (
    r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+,?|[xX]{3,}|\?{3}|\.{3}|<[^<>]+>|TODO|\$\{\w+\},?|\{\{[^{}]+\}\},?"
    r"|\{[A-Za-z_]\w*\}"
)
# A word in capitals is no misspelt number; it may be a misspelt choice.
_CAPITALS = r"[A-Z]{3,}[A-Z0-9]*,?"


def is_stand_in(path: str) -> bool:
    """Whether a path, or a folder in it, is only a word for one: ``...``, ``/.../train.json``, ``__DEEPSPEED__``."""
    return any(part in _BLANKS or _IN_BRACKETS.fullmatch(part) for part in path.split("/"))


_BLANKS = frozenset({"...", "???", "TODO"})
# No file is called what Jinja ({{ config }}) or sed (__CONFIG__, @CONFIG@) fills in.
_IN_BRACKETS = re.compile(r"<[^<>]+>|[xX]{3,}|\{\{[^{}]+\}\}|__[A-Z][A-Z0-9_]*__|@[A-Z][A-Z0-9_]*@")


def _refused(raw: Any, expected: str) -> BadValue:
    # <PATH TO CHECKPOINTS> is several words on a command line.
    words = raw if isinstance(raw, list) else [raw]
    word = " ".join(words).strip() if all(isinstance(each, str) for each in words) else ""
    is_number = expected.startswith(("expected a whole number", "expected a number"))
    is_blank = re.fullmatch(_STAND_IN, word) or (is_number and re.fullmatch(_CAPITALS, word))
    return (StandIn if is_blank else BadValue)(expected)


class _Auto:
    """``"auto"``: somebody else's value is taken (DeepSpeed JSON under a trainer)."""

    def __repr__(self) -> str:
        return "AUTO"


AUTO: Final = _Auto()


def _same(value: Any) -> Any:
    return value


class Kind(Struct, frozen=True):
    """``read`` raises :class:`BadValue`; ``write`` raises :class:`CannotEdit`.

    ``schema`` is the JSON Schema of what the file may hold, for editors and for checks.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = _same
    schema: Mapping[str, Any] | None = None
    spellings: tuple[Any, ...] = ()
    """What a file may say, of a list that may be open: ``schema`` knows only closed ones."""
    names: bool = False
    """Whether a name of Python code, such as ``torch.bfloat16``, says a value by itself; of other
    kinds nobody knows what it stands for."""

    def or_auto(self) -> Kind:
        """The same kind where ``"auto"`` is a legal spelling too; no value is written as that."""

        def read(raw: Any) -> Any:
            return AUTO if raw == "auto" else self.read(raw)

        def write(value: Any) -> Any:
            return "auto" if value is None else self.write(value)

        schema = {"anyOf": [{"const": "auto"}, dict(self.schema or {})]}
        return replace(self, read=read, write=write, schema=schema)

    def unchecked(self) -> Kind:
        """The same kind where nobody holds a value against it: one of another type is taken, and of no known meaning."""

        def read(raw: Any) -> Any:
            try:
                return self.read(raw)
            except BadValue as error:
                raise Undecided(*error.args) from None

        return replace(self, read=read)


def read_integer(raw: Any) -> int:
    """An integer from 4, 4.0, ``"4"``, ``"5e8"`` or ``"1_000"``."""
    if isinstance(raw, bool):
        raise BadValue("expected a whole number")
    if isinstance(raw, int):
        return raw
    try:
        number = float(str(raw).replace("_", ""))
        if number == int(number):
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise _refused(raw, "expected a whole number")


def read_rest(raw: Any) -> int | None:
    """A number, at least 1; -1, which is ``None`` here, leaves it to the other settings."""
    number = read_integer(raw)
    if number == -1:
        return None
    if number < 1:
        raise BadValue("expected a whole number, at least 1, or -1")
    return number


def read_number(raw: Any) -> float:
    if isinstance(raw, bool):
        raise BadValue("expected a number")
    try:
        return float(str(raw).replace("_", ""))
    except ValueError:
        raise _refused(raw, "expected a number") from None


_TRUE = frozenset({"true", "yes", "on", "1", "t", "y"})
_FALSE = frozenset({"false", "no", "off", "0", "f", "n"})


def read_boolean(raw: Any) -> bool:
    """A boolean in any spelling that argparse helpers, YAML 1.1 or JSON accept."""
    if isinstance(raw, bool):
        return raw
    text = str(raw).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise _refused(raw, "expected true or false")


def read_text(raw: Any) -> str:
    if isinstance(raw, (list, dict)):
        raise _refused(raw, "expected a single value")
    if raw is True:
        raise StandIn("expected a text")
    return str(raw)


_QUOTES = str.maketrans("", "", "'\"")


def read_list(raw: Any) -> tuple[str, ...]:
    """A list of strings from a YAML list, or from a comma- or blank-separated string, in brackets
    or not: ``[q_proj, v_proj]`` and ``['q_proj','v_proj']`` are lists to python-fire too."""
    if isinstance(raw, (list, tuple)):
        return tuple(str(item) for item in raw)
    text = str(raw).strip()
    if text[:1] + text[-1:] == "[]":
        text = text[1:-1].translate(_QUOTES)
    return tuple(part for part in text.replace(",", " ").split() if part)


def _bounded(minimum: int) -> Callable[[Any], int]:
    def read(raw: Any) -> int:
        number = read_integer(raw)
        if number < minimum:
            raise OutOfRange(f"expected a whole number, at least {minimum}")
        return number

    return read


def _read_limit(raw: Any) -> int | None:
    number = read_integer(raw)
    return number if number > 0 else None


INTEGER = Kind(read_integer, schema={"type": "integer"})
COUNT = Kind(_bounded(0), schema={"type": "integer", "minimum": 0})
POSITIVE = Kind(_bounded(1), schema={"type": "integer", "minimum": 1})
LIMIT = Kind(_read_limit, schema={"type": "integer"})
"""How many steps or checkpoints at most: what is not positive means no limit."""
REST = Kind(read_rest)
NUMBER = Kind(read_number, schema={"type": "number"})
BOOLEAN = Kind(read_boolean, schema={"type": "boolean"})
TEXT = Kind(read_text, schema={"type": "string"})
FILE = Kind(lambda raw: read_text(raw) or None, schema=TEXT.schema)
"""The name of a file, of which an empty one asks for none."""
# Words that no DeepSpeed config is called, by which programs with an option of their own let it be left out.
_NO_FILE = frozenset({"", "none", "null", "off", "no", "false", "disabled"})


def _read_file_or_none(raw: Any) -> str | None:
    text = read_text(raw)
    return None if text.strip().lower() in _NO_FILE else text


FILE_OR_NONE = Kind(_read_file_or_none, schema=TEXT.schema)
"""The name of a file that an option of a program's own takes, beside a word by which it is to take none."""
LIST = Kind(read_list, write=list, schema={"type": "array", "items": {"type": "string"}})
ANYTHING = Kind(_same, schema={})


def _read_targets(raw: Any) -> Any:
    if raw == "all-linear":
        return "all_linear"
    return read_list(raw.translate(_QUOTES) if isinstance(raw, str) else raw)


def _write_targets(value: Any) -> Any:
    return "all-linear" if value == "all_linear" else list(value)


# What peft's LoraConfig takes for target_modules (tuners/lora/config.py: names or "all-linear").
TARGETS = Kind(
    _read_targets,
    _write_targets,
    {"type": ["array", "string"], "items": {"type": "string"}},
)


def switch(*, on: Any, off: Any) -> Kind:
    """A boolean key that stands for two canonical values, such as full and no checkpointing."""

    def read(raw: Any) -> Any:
        return on if read_boolean(raw) else off

    def write(value: Any) -> bool:
        if value == on:
            return True
        if value == off:
            return False
        raise CannotEdit(f"this key is true or false and cannot say {value!r}")

    return Kind(read, write, {"type": "boolean"})


def choice(
    spellings: Mapping[Any, Any],
    *,
    write: Mapping[Any, Any] | None = None,
    otherwise: Any = BadValue,
    fold_case: bool = True,
) -> Kind:
    """A key with a closed list of spellings.

    ``spellings`` maps what a file may say to the canonical value, the first spelling of a
    value being the one that is written unless ``write`` says another. ``otherwise`` is the
    canonical value of any other spelling; by default there is none and it is refused.
    Booleans in ``spellings`` match YAML booleans (``no`` is ``False`` to PyYAML).
    """
    table = {_fold(key, fold_case): value for key, value in spellings.items()}
    back: dict[Any, Any] = {}
    for key, value in spellings.items():
        back.setdefault(value, key)
    back.update(write or {})

    def read(raw: Any) -> Any:
        if isinstance(raw, (list, dict)):
            raise _refused(raw, "expected a single value")
        key = _fold(raw, fold_case)
        if key in table:
            return table[key]
        if otherwise is BadValue:
            legal = ", ".join(dict.fromkeys(_spelled(key) for key in spellings))
            raise BadValue(f"expected one of {legal}")
        return otherwise

    def write_value(value: Any) -> Any:
        try:
            return back[value]
        except (KeyError, TypeError):
            raise CannotEdit(f"this key has no spelling for {value!r}") from None

    closed = otherwise is BadValue
    schema = {"enum": list(spellings)} if closed else {}
    return Kind(read, write_value, schema, tuple(spellings))


def _spelled(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _fold(key: Any, fold_case: bool) -> Any:
    return key.strip().lower() if fold_case and isinstance(key, str) else key


_DTYPES = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "torch.bfloat16": "bf16",
    "fp16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "torch.float16": "fp16",
    "torch.half": "fp16",
    "fp32": "fp32",
    "float32": "fp32",
    "float": "fp32",
    "torch.float32": "fp32",
    "torch.float": "fp32",
}

DTYPE = choice(_DTYPES, write={"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"})
DTYPE_OR_AUTO_LOAD = choice(
    {**_DTYPES, "auto": "auto"}, write={"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
)

# transformers 5.23 training_args.py:118-158 (OptimizerNames); Axolotl adds its own
# (axolotl 067b021c utils/schemas/enums.py:86-100).
OPTIMIZER_KINDS: Mapping[str, str] = {
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_hf": "adamw",
    "adamw_apex_fused": "adamw",
    "adamw_torch_xla": "adamw",
    "adamw_torch_npu_fused": "adamw",
    "adamw": "adamw",
    "adam": "adamw",
    "adamw_bnb_8bit": "adamw8bit",
    "adamw_8bit": "adamw8bit",
    "adamw_torch_8bit": "adamw8bit",
    "ao_adamw_8bit": "adamw8bit",
    "adamw_torch_4bit": "adamw4bit",
    "ao_adamw_4bit": "adamw4bit",
    "ao_adamw_fp8": "adamw8bit",
    "paged_adamw": "paged_adamw",
    "paged_adamw_32bit": "paged_adamw",
    "paged_adamw_8bit": "paged_adamw8bit",
    "adafactor": "adafactor",
    "lion": "lion",
    "lion_32bit": "lion",
    "lion_8bit": "lion8bit",
    "paged_lion": "paged_lion",
    "paged_lion_32bit": "paged_lion",
    "paged_lion_8bit": "paged_lion8bit",
    "sgd": "sgd",
    "rmsprop": "rmsprop",
    "rmsprop_bnb": "rmsprop",
    "adagrad": "adagrad",
    "adamw_anyprecision": "anyprecision_adamw",
    "anyprecision": "anyprecision_adamw",
    "ademamix": "ademamix",
    "galore_adamw": "galore",
    "galore_adamw_8bit": "galore",
    "galore_adafactor": "galore",
    "galore_adamw_layerwise": "galore",
    "galore_adamw_8bit_layerwise": "galore",
    "galore_adafactor_layerwise": "galore",
    "q_galore_adamw8bit": "galore",
    "apollo_adamw": "apollo",
    "apollo_adamw_layerwise": "apollo",
    "lomo": "lomo",
    "adalomo": "adalomo",
    "schedule_free_adamw": "schedule_free",
    # schedulefree 1.4.1 sgd_schedulefree.py: z beside the weights, and nothing more in a step (measured).
    "schedule_free_sgd": "momentum_sgd",
    "schedule_free_radam": "schedule_free",
    "came_pytorch": "came",
    "muon": "muon",
    "dion": "dion",
    "lamb": "lamb",
    "grokadamw": "adamw",
    "stable_adamw": "adamw",
    "optimi_adamw": "adamw",
    "adopt_adamw": "adamw",
    "flash_adamw": "adamw",
}

# Axolotl's own, and what only releases of transformers before 5.23 take, or command lines of other programs.
_AXOLOTL_OPTIMIZERS = (
    "optimi_adamw", "ao_adamw_4bit", "ao_adamw_8bit", "ao_adamw_fp8", "adopt_adamw", "came_pytorch", "muon",
    "dion", "flash_adamw", "q_galore_adamw8bit",
)  # fmt: skip
_OLD_OPTIMIZERS = ("adamw_hf", "adamw_apex_fused")
# Of which no release of transformers had a member (4.12, the first with OptimizerNames, to 5.24 training_args.py).
_FOREIGN_OPTIMIZERS = (
    "adamw", "adam", "paged_adamw", "lion", "paged_lion", "anyprecision", "lamb",
)  # fmt: skip
_TRAINER_OPTIMIZERS = tuple(
    name
    for name in OPTIMIZER_KINDS
    if name not in {*_AXOLOTL_OPTIMIZERS, *_OLD_OPTIMIZERS, *_FOREIGN_OPTIMIZERS}
)


def _read_trainer_optimizer(raw: Any) -> str:
    name = read_text(raw)
    if name.lower() in _FOREIGN_OPTIMIZERS:
        near = [known for known in _TRAINER_OPTIMIZERS if known.startswith(f"{name.lower()}_")]
        named = ", ".join(near[:3]) or "adamw_torch"
        raise BadValue(f"expected one of transformers' OptimizerNames: {named} ...")
    return name


# Open lists: a name that is not among them may be one of a newer release, or of a plug-in.
TRAINER_OPTIMIZER = replace(TEXT, read=_read_trainer_optimizer, spellings=_TRAINER_OPTIMIZERS)
AXOLOTL_OPTIMIZER = replace(TEXT, spellings=(*_TRAINER_OPTIMIZERS, *_AXOLOTL_OPTIMIZERS))
