"""Plain scalars by loader, against the loaders themselves, and spellings that all agree on."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from oomlint.documents.scalars import PROFILES, double_quoted, emit, resolve, single_quoted
from oomlint.errors import CannotEdit

TOKENS = """
1e-5 1E-5 2e+5 1e5 1.0e5 1.0e-5 1.e-5 .5 5. -.5 +.5 010 0o10 0x1F 0b11 1_000 1_000.5 _1 yes No
ON off True TRUE tRUE y n Y N None none inf nan .inf -.inf +.inf .nan .NaN .NAN -.INF 60:30 1:30:00
1:30.5 190:20:30.15 ~ null NULL Null 08 0_ 00 -0 +1 -1_0 1e 1.2.3 8bit 1e5x 1_e5 1__0e5 0.1_ ._5
... 5e8 1.0E+5 .5e-3 .5e3 -5e-4 0e0 0o8 0b2 1e400 12e03 1_0.0e5 +12 0 00.5 on_ 1.5K auto bf16
paged_adamw_8bit 2024-13 1,000 +- -1 0.0 -0.0 1e-05 2.0e-5 nO FALSE off_ 0x_g
""".split()


@pytest.mark.parametrize(
    ("text", "pyyaml", "yaml12", "omegaconf"),
    [
        ("1e-5", "1e-5", 1e-5, 1e-5),
        ("1.0e5", "1.0e5", 1e5, 1e5),
        ("1.0e-5", 1e-5, 1e-5, 1e-5),
        ("010", 8, 10, 8),
        ("0o10", "0o10", 8, "0o10"),
        ("no", False, "no", False),
        ("60:30", 3630, "60:30", 3630),
        ("y", "y", "y", "y"),
        ("1_000", 1000, 1000, 1000),
        ("", None, None, None),
        ("~", None, None, None),
        ("2024-01-01", "2024-01-01", "2024-01-01", "2024-01-01"),
        ("0x_", "0x_", "0x_", "0x_"),
    ],
)
def test_loaders_disagree_as_measured(
    text: str, pyyaml: object, yaml12: object, omegaconf: object
) -> None:
    found = [resolve(text, profile) for profile in PROFILES]
    assert list(map(repr, found)) == list(map(repr, [pyyaml, yaml12, omegaconf]))


@pytest.mark.parametrize("token", TOKENS)
def test_pyyaml_agrees(token: str) -> None:
    yaml = pytest.importorskip("yaml")
    assert repr(resolve(token, "pyyaml")) == repr(yaml.safe_load(f"a: {token}")["a"])


@pytest.mark.parametrize("token", TOKENS)
def test_ruamel_agrees(token: str) -> None:
    ruamel = pytest.importorskip("ruamel.yaml")
    value = ruamel.YAML(typ="safe", pure=True).load(f"a: {token}")["a"]
    assert repr(resolve(token, "yaml12")) == repr(value)


@pytest.mark.parametrize("token", TOKENS)
def test_omegaconf_agrees(token: str) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    value = omegaconf.OmegaConf.create(f"a: {token}")["a"]
    assert repr(resolve(token, "omegaconf")) == repr(value)


def test_very_long_digits_stay_text() -> None:
    assert resolve("9" * 10_000, "pyyaml") == "9" * 10_000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (4, "4"),
        (-4, "-4"),
        (2e-5, "2.0e-5"),
        (1.5e-7, "1.5e-7"),
        (0.1, "0.1"),
        (1.0, "1.0"),
        (1e16, "1.0e+16"),
        (1e300, "1.0e+300"),
        (math.inf, ".inf"),
        (-math.inf, "-.inf"),
        ("bf16", "bf16"),
        ("google/gemma-2-9b", "google/gemma-2-9b"),
        ("8bit", "8bit"),
        ("1e-5", '"1e-5"'),
        ("no", '"no"'),
        ("y", '"y"'),
        ("60:30", '"60:30"'),
        ("", '""'),
        ("null", '"null"'),
        ("a: b", '"a: b"'),
        ("a #b", '"a #b"'),
        ("- a", '"- a"'),
        ("2024-01-01", '"2024-01-01"'),
        ("line\nbreak", '"line\\nbreak"'),
        ("nel\x85", '"nel\\u0085"'),
        ([1, 0.5, "a b"], '[1, 0.5, "a b"]'),
        ({"a": [], "no": {}}, '{a: [], "no": {}}'),
    ],
)
def test_emit(value: Any, text: str) -> None:
    assert emit(value) == text


def test_emit_refuses_other_types() -> None:
    with pytest.raises(CannotEdit, match="type object"):
        emit(object())


FLOATS = st.floats(allow_nan=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | FLOATS | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.none() | st.booleans() | st.integers(-(10**30), 10**30) | FLOATS)
def test_scalars_emitted_mean_the_same_to_all(value: object) -> None:
    for profile in PROFILES:
        assert repr(resolve(emit(value), profile)) == repr(value)


@given(
    st.text()
    | st.from_regex(r"[-+.]?[0-9_]{1,4}[.:eEoxb]?[-+]?[0-9_]{0,3}", fullmatch=True)
    | st.sampled_from(TOKENS)
)
def test_bare_strings_are_strings_to_all(text: str) -> None:
    spelled = emit(text)
    if spelled == text:
        for profile in PROFILES:
            assert resolve(spelled, profile) == text
    else:
        assert spelled == double_quoted(text)


@given(VALUES)
def test_emitted_text_reads_back_in_every_loader(value: object) -> None:
    yaml = pytest.importorskip("yaml")
    ruamel = pytest.importorskip("ruamel.yaml")
    line = f"a: {emit(value)}\n"
    assert repr(yaml.safe_load(line)["a"]) == repr(value)
    # ruamel calls a float without a fraction a float too, so repr compares types as well.
    assert repr(ruamel.YAML(typ="safe", pure=True).load(line)["a"]) == repr(value)


@given(st.text())
def test_single_quotes_hold_or_decline(text: str) -> None:
    yaml = pytest.importorskip("yaml")
    quoted = single_quoted(text)
    if quoted is not None:
        assert yaml.safe_load(f"a: {quoted}")["a"] == text
    else:
        assert not text.isprintable()
