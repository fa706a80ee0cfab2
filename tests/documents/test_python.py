"""Python scripts: which calls and values are read, and what an edit changes."""

from __future__ import annotations

import ast
import sys

import pytest

from oomlint.documents.base import UNKNOWN, Call, Mapping, Name, Node, Scalar, Sequence
from oomlint.documents.python.document import PythonScript, parse_python
from oomlint.documents.python.nodes import PythonScalar
from oomlint.documents.python.plain_values import plain_value
from oomlint.documents.text import Edit, Source
from oomlint.errors import CannotEdit, ParseError

LINE_ENDS = pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])


def read(text: str, newline: str = "\n", *, bom: bool = False) -> PythonScript:
    data = text.replace("\n", newline).encode()
    document = parse_python(Source.from_bytes("train.py", b"\xef\xbb\xbf" * bom + data))
    assert document is not None
    return document


def call(document: PythonScript, callee: str) -> Call:
    (found,) = [c for c in document.calls if c.callee == callee]
    return found


def values(mapping: Mapping) -> dict[str, object]:
    return {key: plain_value(entry.value) for key, entry in mapping.entries.items()}


def written(document: PythonScript, node: Node) -> str:
    return document.source.text[node.span.start : node.span.end]


def after(document: PythonScript, edits: list[Edit]) -> str:
    text = document.source.edited(edits).text.replace("\r\n", "\n")
    ast.parse(text)
    return text


SCRIPT = """\
# Déjà vu 😀
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TrainingArguments as TA

LR = 1e-5
bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained("é😀", quantization_config=bnb, n=-1)
args = TA("out", learning_rate=LR, y=2 * 3, fsdp=["a", 'b'], k={"use": False})
"""


@LINE_ENDS
@pytest.mark.parametrize("bom", [False, True])
def test_calls_are_read_with_exact_spans(newline: str, bom: bool) -> None:
    document = read(SCRIPT, newline, bom=bom)
    assert [c.callee for c in document.calls] == [
        "BitsAndBytesConfig",
        "AutoModelForCausalLM.from_pretrained",
        "TrainingArguments",
    ]
    arguments = document.calls[2].arguments
    assert values(arguments) == {
        "0": "out", "learning_rate": 1e-5, "y": 6, "fsdp": ["a", "b"], "k": {"use": False},
    }  # fmt: skip
    loader = document.calls[1].arguments
    assert written(document, loader.entries["0"].value) == '"é😀"'
    assert written(document, loader.entries["n"].value) == "-1"
    inner = loader.entries["quantization_config"].value
    assert isinstance(inner, Scalar)
    assert inner.value is document.calls[0]
    dtype = document.calls[0].arguments.entries["bnb_4bit_compute_dtype"].value
    assert plain_value(dtype) == Name("torch.bfloat16")
    rate = arguments.entries["learning_rate"].value
    assert isinstance(rate, Scalar)
    assert (written(document, rate), rate.via is not None) == ("1e-5", True)
    assert {"torch", "transformers"} <= document.imports


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("Trainer(x=None)", None),
        ("Trainer(x='a' 'b')", "ab"),
        ("Trainer(x=-1.5)", -1.5),
        ("Trainer(x=2**4 // 3 + 1 % 2)", 6),
        ("Trainer(x='a' + 'b')", "ab"),
        ("Trainer(x=not True)", False),
        ("A = 1\nTrainer(x=A)", 1),
        ("A: int = 1\nTrainer(x=A)", 1),
        ("A, B = 1, 2\nTrainer(x=B)", 2),
        ("A = 1\nB = A\ndef f():\n    Trainer(x=B)", 1),
        ("def f():\n    a = 1\n    Trainer(x=a)", 1),
        ("A = 'x'\nTrainer(x=f'{A}-{1}')", "x-1"),
        ("A = True\nTrainer(x=1 if A else 2)", 1),
        ("A = {'k': 1}\nTrainer(x=A['k'])", 1),
        ("A = dict(x=1)\nTrainer(**A)", 1),
        ("A = {'x': 1}\nTrainer(**{**A, 'y': 2})", 1),
        ("A = dict(x=1)\nif c:\n    A['y'] = 2\nTrainer(**A)", 1),
        ("A = {'x': 1}\nif c:\n    A['x'] = 2\nTrainer(**A)", UNKNOWN),
        ("A = {'x': 1}\nA.update({'y': 2}, z=3)\nTrainer(**A)", 1),
        ("A = {'x': 1, 'y': 2}\nif c:\n    A['z'] = A.pop('y')\nTrainer(**A)", 1),
        ("A = {'x': 1}\nA.pop('x', None)\nTrainer(**A)", UNKNOWN),
        ("A = {'x': 1}\nA.update({'x': 2})\nTrainer(**A)", UNKNOWN),
        ("A = {'x': 1}\nTrainer(**{k: v for k, v in A.items() if k in known})", 1),
        ("def make(**k):\n    return Trainer(**k)\nmake(**{'x': 1})", 1),
        ("def make(a, **k):\n    return Trainer(**k)\nmake(a=1, x=2)", 2),
        ("import torch\nTrainer(x=getattr(torch, 'float16'))", Name("torch.float16")),
        ("from torch import bfloat16\nTrainer(x=bfloat16)", Name("torch.bfloat16")),
        ("import torch as th\nTrainer(x=th.bfloat16)", Name("torch.bfloat16")),
        ("def m(): pass\nTrainer(x=m)", Name("m")),
        ("p.add_argument('--x-y', '-x', default=4)\nargs = p.parse_args()\nTrainer(x=args.x_y)", 4),
        ("p.add_argument('--x', action='store_true')\nargs = p.parse_args()\nTrainer(x=args.x)", False),
        ("p.add_argument('--x', default=4)\ndef main(args):\n    Trainer(x=args.x)", 4),
        # Of options that share a destination the first one's default holds.
        ("p.add_argument('--x', action='store_true', default=True)\np.add_argument('--no_x', dest='x', action='store_false')\nargs = p.parse_args()\nTrainer(x=args.x)", True),
        ("p.add_argument('--no_x', dest='x', action='store_false')\np.add_argument('--x', action='store_true')\nargs = p.parse_args()\nTrainer(x=args.x)", True),
        ("g = p.add_mutually_exclusive_group()\ng.add_argument('--x', dest='x', action='store_true')\ng.add_argument('--no_x', dest='x', action='store_false')\np.set_defaults(x=True)\nargs = p.parse_args()\nTrainer(x=args.x)", True),
        ("p.set_defaults(x=3)\np.add_argument('--x', type=int)\nargs = p.parse_args()\nTrainer(x=args.x)", 3),
        ("p.set_defaults(x=3)\np.add_argument('--x', default=4)\nargs = p.parse_args()\nTrainer(x=args.x)", 4),
        ("p.add_argument('--x', default=argparse.SUPPRESS)\np.add_argument('--y', dest='x', default=4)\nargs = p.parse_args()\nTrainer(x=args.x)", 4),
        ("p.add_argument('--x', action=argparse.BooleanOptionalAction, default=True)\nargs = p.parse_args()\nTrainer(x=args.x)", True),
        ("p.add_argument('--x', default=4)\nq.add_argument('--x', default=5)\nargs = p.parse_args()\nTrainer(x=args.x)", UNKNOWN),
        ("p.add_argument('--x', default=4)\nif c:\n    p.set_defaults(x=5)\nargs = p.parse_args()\nTrainer(x=args.x)", UNKNOWN),
        (("@dataclass\nclass S:\n    x: int = 4\n"
         "s, t = HfArgumentParser((S, T)).parse_args_into_dataclasses()\nTrainer(x=s.x)"), 4),
        (("@dataclass\nclass S:\n    x: int = field(default=4)\n"
         "p = TrlParser((S, T))\ns, t, m = p.parse_args_and_config()\nTrainer(x=s.x)"), 4),
        ("@dataclass\nclass S:\n    x: int = 4\ndef f(s: S):\n    Trainer(x=s.x)", 4),
        ("def train(x: int = 4):\n    Trainer(x=x)\nfire.Fire(train)", 4),
        ("A = {'x': 1}\nb = A.copy()\nb['y'] = 2\nTrainer(**b)", 1),
        ("import copy\nA = {'x': 1}\nTrainer(**copy.deepcopy(A))", 1),
        ("A = {'x': 1}\nb = dict(A)\nif c:\n    b['x'] = 2\nTrainer(**b)", UNKNOWN),
        ("Trainer(x=None or 4)", 4),
        ("A = 'a'\nTrainer(x=A or 'b')", "a"),
        ("A = 'cpu'\nTrainer(x=1 if A == 'cpu' else 2)", 1),
        ("A = 'cpu'\nTrainer(x={'k': 1} if A == 'gpu' else None)", None),
        ("import os\nTrainer(x=int(os.environ.get('A', '1')))", 1),
        ("import os\nTrainer(x=os.getenv('A') or 'b')", "b"),
        (("p.add_argument('--path')\np.add_argument('--name', default='n')\nargs = p.parse_args()\n"
          "Trainer(x=args.path or args.name)"), "n"),
        (("p.add_argument('--path', default=f())\np.add_argument('--name', default='n')\nargs = p.parse_args()\n"
          "Trainer(x=args.path or args.name)"), UNKNOWN),
        # What only the run can tell is never guessed.
        ("Trainer(x=f())", UNKNOWN),
        ("Trainer(x=f() or 4)", UNKNOWN),
        ("Trainer(x=unbound)", UNKNOWN),
        ("A = 1\nA = 2\nTrainer(x=A)", UNKNOWN),
        ("if c:\n    A = 1\nelse:\n    A = 2\nTrainer(x=A)", UNKNOWN),
        ("if c:\n    A = 1\nelse:\n    A = 2\n    A = 3\nTrainer(x=A)", UNKNOWN),
        ("A = 1\nA += 1\nTrainer(x=A)", UNKNOWN),
        ("A = 1\ndef f():\n    global A\n    A = 2\nTrainer(x=A)", UNKNOWN),
        ("for A in (1,):\n    Trainer(x=A)", UNKNOWN),
        ("def f(a=1):\n    Trainer(x=a)", UNKNOWN),
        ("A = [1]\nA.append(2)\nTrainer(x=A)", UNKNOWN),
        ("A = {'k': 1}\nA['k'] = 2\nTrainer(x=A['k'])", UNKNOWN),
        ("Trainer(x=1 if c else 2)", UNKNOWN),
        ("Trainer(x=9**9**9)", UNKNOWN),
        ("Trainer(x=1 / 0)", UNKNOWN),
        ("import os\nTrainer(x=os.environ['A'])", UNKNOWN),
        ("import os\nTrainer(x=int(os.environ.get('RANK', 0)))", UNKNOWN),
        ("p.add_argument('--x')\nargs = p.parse_args()\nTrainer(x=args.x)", UNKNOWN),
        ("p.add_argument('--x', default=4)\nargs = p.parse_args()\nargs.x = 5\nTrainer(x=args.x)", 5),
        ("p.add_argument('--x', default=4)\nargs = p.parse_args()\nTrainer(x=args.x)\nargs.x = 5", UNKNOWN),
        ("p.add_argument('--x', default=4)\nargs = p.parse_args()\nargs.x += 5\nTrainer(x=args.x)", UNKNOWN),
        ("p.add_argument('--x', default=4)\nargs = p.parse_args()\nfor y in z:\n    args.x = 5\nTrainer(x=args.x)", UNKNOWN),
        ("p.add_argument('--x', default=4)\nargs = p.parse_args()\nif y:\n    args.x = 5\nTrainer(x=args.x)", UNKNOWN),
        ("p.add_argument('--x', default=4)\ndef train(a):\n    Trainer(x=a.x)\nargs = p.parse_args()\nargs.x = 5\ntrain(args)", 5),
        ("p.add_argument('--x', default=4)\ndef train(a):\n    Trainer(x=a.x)\nargs = p.parse_args()\nargs.x -= 1\ntrain(args)", UNKNOWN),
        ("p.add_argument('--x', default=4)\nargs = Other()\nTrainer(x=args.x)", UNKNOWN),
    ],
)  # fmt: skip
def test_values(script: str, value: object) -> None:
    found = plain_value(call(read(script), "Trainer").arguments.entries["x"].value)
    assert found is value if value is UNKNOWN else (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    "script",
    [
        "Trainer(**k)",
        "Trainer(*a)",
        "A = {}\nA.update(b)\nTrainer(**A)",
        "A = {'x': 1}\nTrainer(**{k: v + 1 for k, v in A.items()})",
        "A = {'x': 1}\nTrainer(**{k: v for k, v in A.items() if v > 0})",
        "def make(**k):\n    return Trainer(**k)\nmake(x=1)\nmake(x=2)",
    ],
)
def test_arguments_that_nobody_can_see_leave_the_call_open(script: str) -> None:
    assert call(read(script), "Trainer").arguments.open_ended


def test_an_options_default_says_which_option_overrides_it() -> None:
    document = read("p.add_argument('--lr', default=4)\nargs = p.parse_args()\nTrainer(x=args.lr)")
    node = call(document, "Trainer").arguments.entries["x"].value
    assert isinstance(node, PythonScalar)
    assert node.option == "lr"


@pytest.mark.parametrize(
    "line",
    [
        "trl.SFTConfig()", "GRPOConfig()", "MyOwnTrainer()", "peft.LoraConfig()", "bnb.optim.PagedAdamW8bit(p)",
        "torch.optim.AdamW(p)", "FastLanguageModel.from_pretrained('x')", "LlamaForCausalLM.from_pretrained('x')",
        "FastLanguageModel.get_peft_model(m)", "model.gradient_checkpointing_enable()", "deepspeed.initialize(x=1)",
        "FSDP(m)", "fully_shard(m)", "torch.utils.data.DataLoader(d)", "load_dataset('x')", "Accelerator()",
        "prepare_model_for_kbit_training(m)", "FullStateDictConfig()", "HfDeepSpeedConfig(c)",
    ],
)  # fmt: skip
def test_calls_of_interest(line: str) -> None:
    source = Source("t.py", line + "  # Trainer")
    document = parse_python(source)
    assert document is not None
    assert [c.callee for c in document.calls] == [line[: line.index("(")]]


@pytest.mark.parametrize(
    "line",
    [
        "AutoTokenizer.from_pretrained('x')",
        "AutoConfig.from_pretrained('x')",
        "deepspeed.other()",
        "print()",
    ],
)
def test_calls_of_no_interest(line: str) -> None:
    assert not read(line + "  # Trainer").calls


def test_files_without_any_name_that_matters_are_not_parsed() -> None:
    assert parse_python(Source("t.py", "def broken(:\n")) is None


TRAINS = "    trainer = Trainer(model, args=TrainingArguments('out'))\n"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("train.py", f"import pytest\ndef run():\n{TRAINS}"),
        ("train.py", f"if True:\n  from unittest import TestCase\ndef run():\n{TRAINS}"),
        ("tests/test_train.py", f"def test_it_trains():\n{TRAINS}"),
        ("tests/train_test.py", f"class TestIt:\n  def test_it_trains(self):\n{TRAINS}"),
    ],
)
def test_tests_of_a_library_are_not_read(path: str, text: str) -> None:
    assert parse_python(Source(path, text)) is None


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("train.py", f"from unittest.mock import patch\ndef run():\n{TRAINS}"),
        ("train.py", f"from unittest import mock\ndef run():\n{TRAINS}"),
        ("train.py", f"import unittest.mock\ndef test_it():\n{TRAINS}"),
        ("train.py", f"# import pytest\ndef run():\n{TRAINS}"),
        ("test_train.py", f"def run():\n{TRAINS}"),
        ("contest.py", f"def test_it_trains():\n{TRAINS}"),
    ],
)
def test_what_only_resembles_tests_is_read(path: str, text: str) -> None:
    document = parse_python(Source(path, text))
    assert document is not None
    assert [c.callee for c in document.calls] == ["TrainingArguments", "Trainer"]


def test_order_follows_the_run_into_functions() -> None:
    document = read(
        "def load():\n    return AutoModel.from_pretrained('x')\n"
        "def unused():\n    SFTConfig()\n"
        "def main():\n    TrainingArguments()\n    load()\n    Trainer(a=LoraConfig())\n"
        "if __name__ == '__main__':\n    main()\n"
    )
    assert [c.callee for c in document.calls] == [
        "TrainingArguments", "AutoModel.from_pretrained", "LoraConfig", "Trainer", "SFTConfig",
    ]  # fmt: skip
    assert [c.order for c in document.calls] == [0, 1, 2, 3, 4]


# -- edits ------------------------------------------------------------------------------


@LINE_ENDS
@pytest.mark.parametrize(
    ("script", "value", "expected"),
    [
        ("Trainer(x=1)", 2, "Trainer(x=2)"),
        ("Trainer(x=1)", None, "Trainer(x=None)"),
        ("Trainer(x=1)", 1e-5, "Trainer(x=1e-05)"),
        ("Trainer(x='a', y='b')", "it's \"é\"\n", "Trainer(x='it\\'s \"é\"\\n', y='b')"),
        ('Trainer(x="a")', "it's", 'Trainer(x="it\'s")'),
        ("Trainer(x=1, y='b')", ["p", True], "Trainer(x=['p', True], y='b')"),
        ("import torch\nTrainer(x=None)", Name("torch.bfloat16"), "import torch\nTrainer(x=torch.bfloat16)"),
        ("import torch as th\nTrainer(x=1)", Name("torch.bfloat16"), "import torch as th\nTrainer(x=th.bfloat16)"),
        ("from torch import float16\nTrainer(x=1)", Name("torch.float16"),
         "from torch import float16\nTrainer(x=float16)"),
        ("A = 1\nTrainer(x=A)", 2, "A = 2\nTrainer(x=A)"),
        ("A = 1\nTrainer(x=A, y=A)", 2, "A = 1\nTrainer(x=2, y=A)"),
        ("A = {'x': 1}\nTrainer(**A)", 2, "A = {'x': 2}\nTrainer(**A)"),
        ("p.add_argument('--x', default=1)\nargs = p.parse_args()\nTrainer(x=args.x)", 2,
         "p.add_argument('--x', default=2)\nargs = p.parse_args()\nTrainer(x=args.x)"),
    ],
)  # fmt: skip
def test_set_value(script: str, value: object, expected: str, newline: str) -> None:
    document = read(script + "\n", newline)
    edits = document.set_value(call(document, "Trainer").arguments.entries["x"].value, value)
    assert after(document, edits) == expected + "\n"
    again = parse_python(document.source.edited(edits))
    assert again is not None
    assert plain_value(call(again, "Trainer").arguments.entries["x"].value) == value


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("Trainer(x=f())", 1),
        ("Trainer(x=1)", Name("torch.bfloat16")),
        ("Trainer(x=1)", object()),
        (
            "p.add_argument('--x', action='store_true')\nargs = p.parse_args()\nTrainer(x=args.x)",
            True,
        ),
        (
            "p.add_argument('--x', default=1)\nargs = p.parse_args()\nf(args.x)\nTrainer(x=args.x)",
            2,
        ),
        ("A = {'x': 1}\nTrainer(**A)\nDPOTrainer(**A)", 2),
    ],
)
def test_what_cannot_be_written_is_refused(script: str, value: object) -> None:
    document = read(script)
    with pytest.raises(CannotEdit):
        document.set_value(call(document, "Trainer").arguments.entries["x"].value, value)


@LINE_ENDS
@pytest.mark.parametrize(
    ("script", "anchor", "expected"),
    [
        ("Trainer()", None, "Trainer(new=5)"),
        ("Trainer(m)", None, "Trainer(m, new=5)"),
        ("Trainer(a=1, b=2)", None, "Trainer(a=1, b=2, new=5)"),
        ("Trainer(a=1, b=2)", "a", "Trainer(a=1, new=5, b=2)"),
        ("Trainer(a = 1)", None, "Trainer(a = 1, new = 5)"),
        ("Trainer(a=1, **{'b': 2})", None, "Trainer(a=1, new=5, **{'b': 2})"),
        ("Trainer(\n    a=1,\n    b=2,\n)", None, "Trainer(\n    a=1,\n    b=2,\n    new=5,\n)"),
        ("Trainer(\n    a=1,\n    b=2\n)", None, "Trainer(\n    a=1,\n    b=2,\n    new=5\n)"),
        ("Trainer(\n    a=1,\n    b=2,\n)", "a", "Trainer(\n    a=1,\n    new=5,\n    b=2,\n)"),
        ("Trainer(\n    a=1,  # one\n    # two\n    b=2,  # three\n)", "a",
         "Trainer(\n    a=1,  # one\n    new=5,\n    # two\n    b=2,  # three\n)"),
        ("Trainer(\n    a=1,  # one\n    b=2  # two\n)", None,
         "Trainer(\n    a=1,  # one\n    b=2,  # two\n    new=5\n)"),
        ("Trainer(a=1,\n        b=2)", None, "Trainer(a=1,\n        b=2,\n        new=5)"),
        ("Trainer(\n    a=1,\n)", None, "Trainer(\n    a=1,\n    new=5,\n)"),
        ("Trainer(a=1  # one\n        , b=2)", None,
         "Trainer(a=1  # one\n        , b=2, new=5)"),
        ("Trainer(a=lambda x, y: (x, y), b=2)", "a",
         "Trainer(a=lambda x, y: (x, y), new=5, b=2)"),
        ("Trainer(a=[1, 2][0], b=f'{1},(')", "a", "Trainer(a=[1, 2][0], new=5, b=f'{1},(')"),
        ("Trainer(  # which\n    # one\n    a=1,\n)", None,
         "Trainer(  # which\n    # one\n    a=1,\n    new=5,\n)"),
        ("(x(1)\n    .Trainer(a=1))", None, "(x(1)\n    .Trainer(a=1, new=5))"),
    ],
)  # fmt: skip
def test_add_argument(script: str, anchor: str | None, expected: str, newline: str) -> None:
    document = read(script + "\n", newline)
    arguments = call(document, "Trainer").arguments
    edits = document.add_entry(arguments, "new", 5, after=anchor)
    assert after(document, edits) == expected + "\n"
    text = document.source.edited(edits).text
    assert text.count("\n") == text.count(newline)
    again = parse_python(document.source.edited(edits))
    assert again is not None
    assert values(call(again, "Trainer").arguments) == {**values(arguments), "new": 5}


@LINE_ENDS
@pytest.mark.parametrize(
    ("script", "key", "expected"),
    [
        ("Trainer(a=1)", "a", "Trainer()"),
        ("Trainer(a=1, b=2)", "a", "Trainer(b=2)"),
        ("Trainer(a=1, b=2)", "b", "Trainer(a=1)"),
        ("Trainer(\n    a=1,\n    b=2,\n)", "a", "Trainer(\n    b=2,\n)"),
        ("Trainer(\n    a=1,\n    b=2,\n)", "b", "Trainer(\n    a=1,\n)"),
        ("Trainer(\n    a=1,\n    b=2\n)", "b", "Trainer(\n    a=1\n)"),
        ("Trainer(\n    a=1,  # one\n    b=2,  # two\n    # three\n    c=3,\n)", "b",
         "Trainer(\n    a=1,  # one\n    # three\n    c=3,\n)"),
        ("Trainer(\n    a=1,  # one\n    b=2,  # two\n)", "b", "Trainer(\n    a=1,  # one\n)"),
        ("Trainer(\n    a=1,\n)", "a", "Trainer()"),
        ("D = {'a': 1, 'b': 2}\nTrainer(**D)", "a", "D = {'b': 2}\nTrainer(**D)"),
        ("D = dict(a=1, b=2)\nTrainer(**D)", "b", "D = dict(a=1)\nTrainer(**D)"),
    ],
)  # fmt: skip
def test_remove_argument(script: str, key: str, expected: str, newline: str) -> None:
    document = read(script + "\n", newline)
    edits = document.remove_entry(call(document, "Trainer").arguments, key)
    assert after(document, edits) == expected + "\n"


def test_nothing_is_added_among_lines_that_end_in_a_bare_carriage_return() -> None:
    document = read("Trainer(a=1, #\r)\n")
    with pytest.raises(CannotEdit, match="carriage return"):
        document.add_entry(call(document, "Trainer").arguments, "new", 5)


def test_nothing_is_added_behind_a_generator() -> None:
    document = read("Trainer(x for x in models)\n")
    with pytest.raises(CannotEdit, match="generator"):
        document.add_entry(call(document, "Trainer").arguments, "new", 5)


def test_entries_of_a_dict_argument_are_added_removed_and_renamed() -> None:
    document = read("Trainer(k={'a': 1,\n           'b': 2})\n")
    inner = call(document, "Trainer").arguments.entries["k"].value
    assert isinstance(inner, Mapping)
    assert after(document, document.add_entry(inner, "c", False)) == (
        "Trainer(k={'a': 1,\n           'b': 2,\n           'c': False})\n"
    )
    assert "{'b': 2}" in after(document, document.remove_entry(inner, "a"))
    assert "{'z': 1," in after(document, document.rename_entry(inner, "a", "z"))


def test_rename_changes_the_name_alone() -> None:
    document = read("Trainer(m, max_seq_length = 4)\n")
    arguments = call(document, "Trainer").arguments
    edits = document.rename_entry(arguments, "max_seq_length", "max_length")
    assert after(document, edits) == "Trainer(m, max_length = 4)\n"
    with pytest.raises(CannotEdit):
        document.rename_entry(arguments, "0", "model")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("Trainer(x=['a', 'b'])", "Trainer(x=['a', 'b', 'c'])"),
        ("Trainer(x=[])", 'Trainer(x=["c"])'),
        ("Trainer(x=['a',\n  'b',\n])", "Trainer(x=['a',\n  'b',\n  'c',\n])"),
        ("Trainer(x=('a',))", "Trainer(x=('a', 'c',))"),
    ],
)
def test_append_item(script: str, expected: str) -> None:
    document = read(script)
    node = call(document, "Trainer").arguments.entries["x"].value
    assert isinstance(node, Sequence)
    assert after(document, document.append_item(node, "c")) == expected


# -- odd input --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Trainer(\nx = = 1", 2),
        ("# Trainer\n\n\0", 3),
        ("print 'Trainer'", 1),
        ("Trainer" + "(" * 500 + ")" * 500, 1),
        ("x = " + "-" * 100_000 + "1  # Trainer", None),
    ],
)
def test_what_is_no_python_is_a_parse_error(text: str, line: int | None) -> None:
    with pytest.raises(ParseError) as caught:
        parse_python(Source("t.py", text))
    assert caught.value.line == line or (line == 2 and caught.value.line == 1)


def test_the_error_says_which_python_did_not_take_it() -> None:
    with pytest.raises(ParseError, match=rf"Python 3\.{sys.version_info.minor}, which oomlint"):
        parse_python(Source("t.py", "Trainer() of a Python to come"))


@pytest.mark.parametrize(
    "text",
    [
        "Trainer(x=a)\na = b\nb = a\n",
        "a0 = [1]\n" + "".join(f"a{i + 1} = [a{i}, a{i}]\n" for i in range(40)) + "Trainer(x=a40)",
        "Trainer(x=" + "+".join(["1"] * 300) + ")",
        "Trainer()\n" * 2000,
        "Trainer(x='\\d')",
        "Trainer(x=1)\x0c\n",
        "lambda: Trainer(x=(y := 1))",
        "async def f():\n    async with a as b:\n        await Trainer(x=b)",
        "class A:\n    x = 1\n    def f(self):\n        Trainer(x=x)",
        "match a:\n    case [Trainer(x=1), *b]:\n        Trainer(x=b)",
    ],
)
def test_odd_scripts_are_read_without_complaint(text: str) -> None:
    assert isinstance(parse_python(Source("t.py", text)), PythonScript)


def test_functions_that_hand_their_parameters_on_are_read_in_no_time() -> None:
    """Each value once: with three calls a function there are 3 ** 20 ways to the last of twenty."""
    hands_on = "".join(f"def f{i}(x):\n" + f"    f{i + 1}(x)\n" * 3 for i in range(20))
    text = (
        "import yaml\nfrom transformers import AutoModel\n"
        f"{hands_on}def f20(x):\n    if x.large:\n        AutoModel.from_pretrained(x)\nf0('m/m')\n"
    )
    loads = call(read(text), "AutoModel.from_pretrained")
    assert values(loads.arguments) == {"0": "m/m"}
