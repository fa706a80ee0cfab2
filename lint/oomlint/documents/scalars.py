"""What a plain YAML scalar means to each loader, and how to write one that all agree on.

``1e-5`` is a string to PyYAML and a float to OmegaConf; ``no`` is false to PyYAML and a
string to a YAML 1.2 loader. The expressions below follow PyYAML 6.0.3 ``resolver.py``,
ruamel.yaml 0.19.1 ``resolver.py`` and OmegaConf 2.4 ``_yaml.py`` (which is PyYAML with
one more float form and without dates).
"""

from __future__ import annotations

import math
import re
from typing import Any, Final, Literal, TypeAlias

from oomlint.errors import CannotEdit

Profile: TypeAlias = Literal["pyyaml", "yaml12", "omegaconf"]
PROFILES: Final[tuple[Profile, ...]] = ("pyyaml", "yaml12", "omegaconf")

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset({"true", "True", "TRUE"})
_FALSE: Final = frozenset({"false", "False", "FALSE"})
_TRUE_11: Final = _TRUE | {"yes", "Yes", "YES", "on", "On", "ON"}
_FALSE_11: Final = _FALSE | {"no", "No", "NO", "off", "Off", "OFF"}

_SPECIAL_FLOAT: Final = r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
_FLOAT_PYYAML: Final = (
    r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?"
    r"|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*"
    rf"|{_SPECIAL_FLOAT}"
)
_FLOAT_OMEGACONF: Final = (
    r"[-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9]+(?:_[0-9]+)*[eE][-+]?[0-9]+"
)
_FLOAT_12: Final = (
    r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
    r"|[-+]?\.[0-9_]+(?:[eE][-+][0-9]+)?"
    rf"|{_SPECIAL_FLOAT}"
)
_INTEGER_PYYAML: Final = (
    r"[-+]?0b[01_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+"
    r"|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+"
)
_INTEGER_12: Final = r"[-+]?0b[01_]+|[-+]?0o[0-7_]+|[-+]?[0-9][0-9_]*|[-+]?0x[0-9a-fA-F_]+"
# Python refuses to convert longer decimal strings (sys.int_info.default_max_str_digits is 4300).
_LONGEST_NUMBER: Final = 400


def resolve(text: str, profile: Profile) -> bool | int | float | str | None:
    """The value of a plain scalar to PyYAML's ``safe_load``, a YAML 1.2 loader or OmegaConf.

    Dates stay text: no setting of a training run is one. Text that makes the loader itself
    fail (``0x_``) stays text too.
    """
    if text in _NULL:
        return None
    if profile == "yaml12":
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
    elif text in _TRUE_11:
        return True
    elif text in _FALSE_11:
        return False
    if text[0] not in "-+.0123456789" or len(text) > _LONGEST_NUMBER:
        return text
    try:
        return _number(text, profile)
    except (ValueError, OverflowError):
        return text


def _number(text: str, profile: Profile) -> int | float | str:
    if profile == "yaml12":
        is_float = re.fullmatch(_FLOAT_12, text)
        is_integer = re.fullmatch(_INTEGER_12, text)
    else:
        is_float = re.fullmatch(_FLOAT_PYYAML, text)
        is_integer = re.fullmatch(_INTEGER_PYYAML, text)
        if profile == "omegaconf" and not is_integer:
            is_float = is_float or re.fullmatch(_FLOAT_OMEGACONF, text)
    if not is_float and not is_integer:
        return text
    digits = text.replace("_", "").lower()
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-")
    if is_float:
        return sign * _float(digits)
    return sign * _integer(digits, octal_by_zero=profile != "yaml12")


def _float(digits: str) -> float:
    if digits in {".inf", ".nan"}:
        return float(digits[1:])
    if ":" in digits:
        return sum(
            float(part) * 60.0**power for power, part in enumerate(reversed(digits.split(":")))
        )
    return float(digits)


def _integer(digits: str, *, octal_by_zero: bool) -> int:
    for prefix, base in (("0b", 2), ("0x", 16), ("0o", 8)):
        if digits.startswith(prefix):
            return int(digits[2:], base)
    if ":" in digits:
        return sum(int(part) * 60**power for power, part in enumerate(reversed(digits.split(":"))))
    if octal_by_zero and digits.startswith("0") and digits != "0":
        return int(digits, 8)
    return int(digits)


# Bare strings are kept to characters that mean nothing to YAML in block or flow style.
_BARE: Final = (
    r"(?:\.{1,2}/)*[A-Za-z_/][A-Za-z0-9_./+@-]*|[0-9][A-Za-z0-9_./+@-]*[A-Za-z_][A-Za-z0-9_./+@-]*"
)
# YAML 1.1 itself lists y and n as booleans, though PyYAML does not read them so.
_BOOLEAN_IN_SOME_LOADER: Final = frozenset({"y", "Y", "n", "N"})
# What JSON may hold raw and YAML's double quotes may not, or not without folding.
_ESCAPE: Final = "[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]"


def emit(value: Any) -> str:
    """The spelling of a plain value that PyYAML, YAML 1.2 loaders and OmegaConf read alike.

    Floats have a dot and a signed exponent (``2.0e-5``); strings stand bare only where
    every loader reads them as that string; lists and dicts come out in flow style.

    Raises:
        CannotEdit: the value is of a type that YAML has no common spelling for.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return _emit_float(value)
    if isinstance(value, str):
        return value if is_bare(value) else double_quoted(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(emit, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{emit(key)}: {emit(item)}" for key, item in value.items()) + "}"
    raise CannotEdit(f"cannot write a value of type {type(value).__name__}")


def _emit_float(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    mantissa, _, exponent = repr(float(value)).partition("e")
    if not exponent:
        return mantissa
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent):+d}"


def is_bare(text: str) -> bool:
    """Whether a string may stand without quotes, in block and in flow style."""
    return (
        re.fullmatch(_BARE, text) is not None
        and text not in _BOOLEAN_IN_SOME_LOADER
        and all(isinstance(resolve(text, profile), str) for profile in PROFILES)
    )


def double_quoted(text: str) -> str:
    return json_of_yaml(text)


def json_of_yaml(value: Any) -> str:
    """A value as JSON that YAML reads alike, to which a pair of surrogates is two characters."""
    import json

    return re.sub(
        _ESCAPE, lambda match: f"\\u{ord(match.group()):04x}", json.dumps(value, ensure_ascii=False)
    )


def single_quoted(text: str) -> str | None:
    """The string in single quotes, or ``None`` where they cannot hold it unchanged."""
    if not text.isprintable():
        return None
    return "'" + text.replace("'", "''") + "'"
