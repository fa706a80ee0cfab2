"""Functions that return a config, read as nested mappings."""

from __future__ import annotations

from oomlint.documents.base import UNKNOWN, Mapping, Node, Scalar
from oomlint.documents.python.document import PythonScript, parse_python
from oomlint.documents.python.registry import ConfigFunction, config_functions
from oomlint.documents.text import Source

_SECTIONS = frozenset({"training", "model"})


def _functions(text: str) -> dict[str, ConfigFunction]:
    document = parse_python(Source.from_bytes("a.py", ("Trainer = 1\n" + text).encode()))
    assert isinstance(document, PythonScript)
    return {found.name: found for found in config_functions(document, _SECTIONS)}


def _value(node: Node | None, *path: str) -> object:
    for key in path:
        assert isinstance(node, Mapping)
        node = node.entries[key].value
    assert isinstance(node, Scalar)
    return node.value


def test_calls_become_sections_and_names_are_followed() -> None:
    found = _functions(
        "def one():\n"
        "    inner = Training(steps=2 * 5, size=None)\n"
        "    return Trainer.Config(model=pick('8B'), training=inner)\n"
    )["one"]
    assert found.base is None
    assert _value(found.made, "class") == "Trainer.Config"
    assert _value(found.made, "training", "class") == "Training"
    assert _value(found.made, "training", "steps") == 10
    assert _value(found.made, "training", "size") is None
    assert _value(found.made, "model", "0") == "8B"


def test_assignments_come_over_another_functions_config() -> None:
    found = _functions(
        "def one():\n    return C(model=1, training=2)\n"
        "def two():\n"
        "    config = one()\n"
        "    config.training.steps = 5\n"
        "    config.training.inner.rate = 0.5\n"
        "    if flag():\n"
        "        config.training.size = 3\n"
        "    return config\n"
    )["two"]
    assert (found.made, found.base) == (None, "one")
    assert _value(found.changed, "training", "steps") == 5
    assert _value(found.changed, "training", "inner", "rate") == 0.5
    assert _value(found.changed, "training", "size") is UNKNOWN


def test_a_base_may_be_wrapped_and_imported() -> None:
    found = _functions("from pack.mod import one\ndef two():\n    return wrap(one(), 3)\n")["two"]
    assert found.base == "pack.mod.one"


def test_other_functions_are_left_alone() -> None:
    assert not _functions(
        "def needs(x):\n    return C(model=1, training=2)\n"
        "def other():\n    return C(rate=1)\n"
        "def nothing():\n    pass\n"
    )


def test_a_function_that_makes_itself_ends() -> None:
    assert _functions("def one():\n    return one()\n")["one"].base == "one"
    assert not _functions("def one():\n    a = a\n    return a\n")
