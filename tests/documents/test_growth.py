"""What it takes to read a script grows as the script does: counted in nodes looked at, never in seconds."""

import ast
from collections.abc import Callable
from functools import cached_property
from itertools import count
from types import SimpleNamespace

import pytest

from oomlint.documents.base import UNKNOWN, Scalar
from oomlint.documents.python import possible_values, walking
from oomlint.documents.python.configs.files import ConfigFiles
from oomlint.documents.python.document import parse_python
from oomlint.documents.python.scopes import dotted
from oomlint.documents.python.values import Evaluator
from oomlint.documents.shell.document import parse_shell
from oomlint.documents.text import Source

_HEAD = "import json\nimport os\nfrom transformers import TrainingArguments\n"


def _attributes(count: int) -> str:
    """A class that asks for each of its attributes, as a trainer of a carried library does."""
    made = "".join(f"        self.a{n} = {n}\n" for n in range(count))
    asked = "".join(f"        if self.a{n}:\n            work(self.a{n})\n" for n in range(count))
    return f"{_HEAD}class Trainer:\n    def __init__(self):\n{made}    def train(self):\n{asked}"


def _settings(count: int) -> str:
    """An object of settings each of which a call is given."""
    made = "".join(f"        self.a{n} = {n}\n" for n in range(count))
    given = "".join(f"TrainingArguments(output_dir='o', seed=c.a{n})\n" for n in range(count))
    return f"{_HEAD}class Config:\n    def __init__(self):\n{made}c = Config()\n{given}"


def _twice_bound(count: int) -> str:
    """Names that a second statement gives another value where several processes run."""
    bound = "".join(
        f"    b{n} = {n}\n    if world_size != 1:\n        b{n} = 0\n    TrainingArguments('o', seed=b{n})\n"
        for n in range(count)
    )
    return f"{_HEAD}def main():\n    world_size = int(os.environ['WORLD_SIZE'])\n{bound}main()\n"


def _looked_at(text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    looks = 0

    class Counting(type):
        def __instancecheck__(cls, each: object) -> bool:
            nonlocal looks
            looks += 1
            return isinstance(each, ast.AST)

    class Counted(metaclass=Counting):
        pass

    with monkeypatch.context() as patch:
        patch.setattr(walking, "ast", SimpleNamespace(AST=Counted, Constant=ast.Constant))
        assert parse_python(Source("train.py", text)) is not None
    return looks


@pytest.mark.parametrize("script", [_attributes, _settings, _twice_bound])
def test_a_script_four_times_as_long_takes_no_more_than_four_times_the_looks(
    script: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = (_looked_at(script(count), monkeypatch) for count in (30, 120))
    assert 0 < long < 5 * short


def _allow(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, most: int) -> None:
    """Have a method called fewer than ``most`` times."""
    calls, found = count(1), getattr(owner, method)

    def counted(self: object, *given: object) -> object:
        assert next(calls) < most, f"{method} is asked again and again"
        return found(self, *given)

    monkeypatch.setattr(owner, method, counted)


def _calling(deep: int) -> str:
    """A function that calls itself twice with what it was given, and one that is called through others."""
    itself = "def walk(x, n):\n    walk(x, n - 1)\n    walk(x, n + 1)\n    TrainingArguments('o', seed=x)\n"
    through = "".join(f"def f{n}(x):\n    f{n + 1}(x)\n    f{n + 1}(x)\n" for n in range(deep))
    last = f"def f{deep}(x):\n    TrainingArguments('o', seed=x)\n"
    return f"{_HEAD}{itself}{through}{last}walk(1, 2)\nf0(3)\n"


def test_what_a_function_is_given_is_asked_once_and_not_along_every_way_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _allow(monkeypatch, Evaluator, "_node", 5_000)
    document = parse_python(Source("train.py", _calling(20)))
    assert document is not None
    itself, last = (call.arguments.entries["seed"].value for call in document.calls)
    assert isinstance(itself, Scalar)
    assert isinstance(last, Scalar)
    assert (itself.value, last.value) == (UNKNOWN, 3)


def _tested(deep: int) -> str:
    """Numbers each of which hangs on the one before by a test, of which nobody tells the first."""
    chain = "".join(
        f"a{n} = 1\nif int(a{n - 1}) == 2:\n    a{n} = int(a{n - 1})\n" for n in range(1, deep + 1)
    )
    loaded = "import yaml\ncfg = yaml.safe_load(open('a.yaml'))\n"
    first = "a0 = 1\nif os.path.exists('x'):\n    a0 = 2\n"
    return (
        f"{_HEAD}{loaded}{first}{chain}TrainingArguments('o', seed=a{deep}, data_seed=cfg['a'])\n"
    )


def test_a_test_that_hangs_on_other_tests_is_asked_once_and_not_along_every_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _allow(monkeypatch, Evaluator, "_node", 150)
    config = Source("a.yaml", "a: 6\n")
    document = parse_python(
        Source("train.py", _tested(3)), lambda path: config if path == "a.yaml" else None
    )
    assert document is not None
    entries = document.calls[0].arguments.entries
    values = [entries[key].value for key in ("seed", "data_seed")]
    assert [value.value for value in values if isinstance(value, Scalar)] == [UNKNOWN, 6]


def _returning(deep: int) -> str:
    """Functions each of which returns what one of two calls of the next returns."""
    through = "".join(
        f"def f{n}(x):\n    if x:\n        return f{n + 1}(x)\n    return f{n + 1}(None)\n"
        for n in range(deep)
    )
    called = "cfg = f0(1)\nTrainingArguments('o', seed=cfg['b'])\n"
    return f"{_HEAD}{through}def f{deep}(x):\n    return x\n{called}"


def _changing(_: int) -> str:
    """A function that calls itself twice with the config that it changes."""
    return _CHANGING


_CHANGING = """\
import yaml
from transformers import TrainingArguments
def walk(cfg, n):
    cfg["a"] = n
    walk(cfg, n - 1)
    walk(cfg, n + 1)
cfg = yaml.safe_load(open("a.yaml"))
walk(cfg, 2)
TrainingArguments("o", seed=cfg["b"])
"""


@pytest.mark.parametrize(("script", "seed"), [(_changing, 2), (_returning, UNKNOWN)])
def test_a_config_is_followed_once_and_not_along_every_way(
    script: Callable[[int], str], seed: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    _allow(monkeypatch, ConfigFiles, "_held", 1_000)
    document = parse_python(
        Source("train.py", script(12)),
        lambda path: Source(path, "a: 1\nb: 2\n") if path == "a.yaml" else None,
    )
    assert document is not None
    value = document.calls[0].arguments.entries["seed"].value
    assert isinstance(value, Scalar)
    assert value.value == seed


def test_a_shell_script_is_made_blank_once_for_all_the_files_that_it_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = 0
    blank = Source.blank.func

    def counted(self: Source) -> str:
        nonlocal made
        made += 1
        return blank(self)

    kept = cached_property(counted)
    kept.__set_name__(Source, "blank")
    monkeypatch.setattr(Source, "blank", kept)
    written = "".join(f'cat > ds{n}.json <<EOF\n{{"a": {n}}}\nEOF\n' for n in range(20))
    document = parse_shell(Source("run.sh", f"{written}python train.py --deepspeed ds1.json\n"))
    assert len(document.files) == 20
    assert made == 1


def test_what_an_object_was_given_is_what_its_methods_ask_for() -> None:
    text = (
        f"{_HEAD}class Run:\n    def __init__(self, size=1024):\n        self.size = size\n"
        "    def train(self):\n        TrainingArguments('o', seed=self.size)\nRun().train()\n"
    )
    document = parse_python(Source("train.py", text))
    assert document is not None
    value = document.calls[0].arguments.entries["seed"].value
    assert isinstance(value, Scalar)
    assert value.value == 1024


def test_objects_that_lead_to_each_other_are_not_followed_on_every_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of the statements leads to all of them, sixteen times over."""
    looks = 0

    def counted(expression: ast.expr) -> str | None:
        nonlocal looks
        looks += 1
        return dotted(expression)

    monkeypatch.setattr(possible_values, "dotted", counted)
    deeper = "".join(f"    if kind == {n}:\n        child = child.inner{n}\n" for n in range(6))
    text = (
        "from transformers import AutoModelForCausalLM, Trainer\ndef train(child, kind):\n"
        f"{deeper}    model = AutoModelForCausalLM.from_pretrained(child.name)\n"
        "    Trainer(model=model).train()\ntrain(own, 1)\n"
    )
    assert parse_python(Source("train.py", text)) is not None
    assert 0 < looks < 20_000


def test_a_name_that_chooses_what_it_is_next_is_asked_for_in_the_steps_of_one_walk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each item is chosen by a name that may be any of the items, sixteen times over."""
    _allow(monkeypatch, possible_values.Walk, "step", 20_000)
    table = ", ".join(f"'k{n}': {{'hub': 'owner/model-{n}'}}" for n in range(6))
    text = (
        "from transformers import AutoModelForCausalLM, Trainer\n"
        f"NAMES = {{{table}}}\ndef load(name):\n    name = NAMES[name]['hub']\n"
        "    model = AutoModelForCausalLM.from_pretrained(name)\n    Trainer(model=model).train()\n"
    )
    assert parse_python(Source("train.py", text)) is not None
