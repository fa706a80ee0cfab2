"""What a script's command line may say, wherever in the project it is declared."""

from __future__ import annotations

import pytest

from oomlint.documents.base import Scalar
from oomlint.documents.python.document import PythonScript, parse_python
from oomlint.documents.text import Source

_USES = "from transformers import HfArgumentParser, Trainer\n"


def _document(files: dict[str, str], name: str = "src/train.py") -> PythonScript:
    sources = {path: Source(path, text) for path, text in files.items()}
    document = parse_python(sources[name], sources.get)
    assert document is not None
    return document


_ARGUMENTS = """\
from dataclasses import dataclass, field
import transformers

@dataclass
class Base:
    seed: int = 1

@dataclass
class ModelArguments(Base):
    model_name_or_path: str = "m"
    use_lora: bool = field(default=False)
    lora_r: int = field(default_factory=lambda: 8)
    name: str = field(metadata={})

@dataclass
class TrainArguments(transformers.TrainingArguments):
    optim: str = "adamw_torch"
"""
_PARSES = "p = HfArgumentParser((ModelArguments, TrainArguments))\na, t = p.parse_args_into_dataclasses()\n"  # fmt: skip


@pytest.mark.parametrize(
    ("path", "imported"),
    [
        ("src/arguments.py", "from arguments import ModelArguments, TrainArguments"),
        ("src/pkg/arguments.py", "from pkg.arguments import ModelArguments, TrainArguments"),
        ("src/pkg/arguments.py", "from .pkg.arguments import ModelArguments, TrainArguments"),
        ("lib/a/__init__.py", "from lib.a import ModelArguments, TrainArguments"),
    ],
)
def test_dataclasses_of_other_files(path: str, imported: str) -> None:
    files = {"src/train.py": f"{_USES}{imported}\n{_PARSES}", path: _ARGUMENTS}
    document = _document(files)
    options = document.options
    assert options.names == {
        "seed", "model_name_or_path", "use_lora", "lora_r", "name", "optim",
    }  # fmt: skip
    assert options.bases == {"transformers.TrainingArguments"}
    assert options.is_whole
    assert document.sourced == (path,)
    defaults = document.option_defaults
    assert defaults is not None
    values = {key: entry.value.value for key, entry in defaults.entries.items()}  # type: ignore[union-attr]
    assert values == {
        "seed": 1, "model_name_or_path": "m", "use_lora": False, "lora_r": 8, "optim": "adamw_torch",
    }  # fmt: skip
    assert all(entry.value.locked for entry in defaults.entries.values())


def test_a_module_of_a_module() -> None:
    files = {
        "src/train.py": f"{_USES}from pkg import arguments\np = HfArgumentParser(arguments.ModelArguments)\n",
        "src/pkg/arguments.py": _ARGUMENTS,
    }
    assert "use_lora" in _document(files).options.names


def test_a_class_that_nobody_finds_is_a_library_s() -> None:
    text = f"{_USES}from trl import SFTConfig\np = HfArgumentParser((SFTConfig,))\n"
    options = _document({"src/train.py": text}).options
    assert (options.bases, options.names, options.is_whole) == ({"trl.SFTConfig"}, set(), True)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("p.add_argument('-m', '--model-name', default=1)\np.add_argument('path')\n", {"m", "model_name", "path"}),
        ("@click.command()\n@click.option('--lr', '-l')\n@click.option('--x/--no-x')\ndef main(lr, x): ...\n", {"lr", "l", "x"}),
        ("def main(a, b=1, *, c=2): ...\nfire.Fire(main)\n", {"a", "b", "c"}),
        ("@app.command()\ndef main(a: int = 1): ...\n", {"a"}),
        ("@dataclass\nclass A:\n    x: int = 1\nargs = tyro.cli(A)\n", {"x"}),
    ],
)  # fmt: skip
def test_other_parsers(text: str, names: set[str]) -> None:
    head = "import click, fire, tyro, typer\nfrom transformers import Trainer\n"
    options = _document({"src/train.py": head + text}).options
    assert options.names == names
    assert options.is_whole


@pytest.mark.parametrize(
    "text",
    [
        "for name in NAMES:\n    p.add_argument(name)\n",
        "def main(**options): ...\nfire.Fire(main)\n",
        "x = 1\n",
    ],
)
def test_what_only_running_would_tell(text: str) -> None:
    options = _document({"src/train.py": "import fire\nfrom transformers import Trainer\n" + text}).options  # fmt: skip
    assert not options.is_whole


def test_imports_in_a_circle_end() -> None:
    files = {
        "src/train.py": f"{_USES}from a import X\np = HfArgumentParser(X)\n",
        "src/a.py": "from b import X\n",
        "src/b.py": "from a import X\n",
    }
    assert not _document(files).options.names


def test_a_broken_file_declares_nothing() -> None:
    files = {
        "src/train.py": f"{_USES}from a import X\np = HfArgumentParser(X)\n",
        "src/a.py": "class X(\n",
    }
    options = _document(files).options
    assert (options.bases, options.is_whole) == ({"a.X"}, False)


def test_a_script_that_only_starts_another() -> None:
    files = {"src/mem.py": "from pkg.run import train\n\ntrain(x=1)\n", "src/pkg/run.py": ""}
    assert _document(files, "src/mem.py").starts == "src/pkg/run.py"
    assert _document({"src/mem.py": files["src/mem.py"]}, "src/mem.py").starts is None


def test_the_option_between_two_values() -> None:
    text = _USES + (
        "import torch\n"
        "def train(attn=None):\n"
        "    a, t = HfArgumentParser((A, B)).parse_args_into_dataclasses()\n"
        "    m = X.from_pretrained(a.name, dtype=(torch.bfloat16 if t.bf16 else None),"
        " attn_implementation=attn, device_map='auto' if other else None)\n"
        "train(attn='sdpa')\n"
    )
    (call,) = _document({"src/train.py": text}).calls
    dtype = call.arguments.entries["dtype"].value
    on, off = dtype.either  # type: ignore[union-attr]
    assert (dtype.option, str(on.value), off.value) == ("bf16", "torch.bfloat16", None)  # type: ignore[union-attr]
    assert call.arguments.entries["attn_implementation"].value.value == "sdpa"  # type: ignore[union-attr]
    assert getattr(call.arguments.entries["device_map"].value, "either", None) is None


def test_switches_around_a_call() -> None:
    text = _USES + (
        "def load():\n"
        "    return X.from_pretrained('a')\n"
        "if args.fast and not args.slow:\n"
        "    load()\n"
        "elif args.other:\n"
        "    Y.from_pretrained('b')\n"
        "if n in (4, 8):\n"
        "    Z.from_pretrained('c')\n"
        "if args.rank > 0 and args.path is not None:\n"
        "    V.from_pretrained('d')\n"
        "elif args.rank == 0:\n"
        "    W.from_pretrained('e')\n"
        "if args.rank > 1:\n"
        "    U.from_pretrained('f')\n"
    )
    guards = {c.callee: c.arguments.guards for c in _document({"src/train.py": text}).calls}  # type: ignore[attr-defined]
    assert guards == {
        "X.from_pretrained": (("fast", True), ("slow", False)),
        "Y.from_pretrained": (("other", True),),
        "Z.from_pretrained": (),
        "V.from_pretrained": (("rank", True), ("path", True)),
        "W.from_pretrained": (("rank", False),),
        "U.from_pretrained": (),
    }


_UNREAD = """\
from dataclasses import dataclass
import transformers
from data import make_data

@dataclass
class Arguments(transformers.TrainingArguments):
    max_seq_length: int = 131072

parser = transformers.HfArgumentParser((Arguments,))
(args,) = parser.parse_args_into_dataclasses()
trainer = transformers.Trainer(model, args, train_dataset=make_data(args))
"""


def _defaults(**modules: str) -> set[str]:
    texts = {f"{name}.py": text for name, text in modules.items()}

    def find(path: str) -> Source | None:
        return Source(path, texts[path]) if path in texts else None

    document = parse_python(Source("train.py", texts.pop("train.py")), find)
    assert document is not None
    return set(document.option_defaults.entries) if document.option_defaults else set()


def test_a_length_that_nothing_reads_cuts_no_sample() -> None:
    data = "def make_data(args):\n    return load(args.{})\n"
    assert _defaults(train=_UNREAD, data=data.format("path")) == set()
    assert _defaults(train=_UNREAD, data=data.format("max_seq_length")) == {"max_seq_length"}
    everything = "def make_data(args):\n    return load(**vars(args))\n"
    assert _defaults(train=_UNREAD, data=everything) == {"max_seq_length"}
    of_trl = _UNREAD.replace("transformers.TrainingArguments", "trl.SFTConfig")
    assert _defaults(train=of_trl, data=data.format("path")) == {"max_seq_length"}
    of_dpo = _UNREAD.replace("transformers.TrainingArguments", "trl.DPOConfig")
    assert _defaults(train=of_dpo, data=data.format("path")) == set(), "DPO's has no such key"
    read_here = f"{_UNREAD}print(args.max_seq_length)\n"
    assert _defaults(train=read_here, data=data.format("path")) == {"max_seq_length"}


def test_an_attribute_by_a_name_that_varies_is_one_of_what_it_is_asked_of() -> None:
    data = "import torch\ndef make_data(args):\n    return load(getattr({}, args.kind))\n"
    assert _defaults(train=_UNREAD, data=data.format("torch")) == set()
    assert _defaults(train=_UNREAD, data=data.format("args")) == {"max_seq_length"}


def test_a_module_that_is_not_there_may_read_what_no_other_does() -> None:
    assert _defaults(train=_UNREAD.replace("from data", "from .data")) == {"max_seq_length"}


@pytest.mark.parametrize(
    "parses",
    [
        (
            "def main():\n    from models import NAME\n    p = argparse.ArgumentParser()\n"
            "    p.add_argument('--model', default=NAME)\n    args = p.parse_args()\n"
        ),
        (
            "def parse():\n    NAME = 'gpt2'\n    p = argparse.ArgumentParser()\n"
            "    p.add_argument('--model', default=NAME)\n    return p.parse_args()\n"
            "def main():\n    args = parse()\n"
        ),
    ],
)
def test_a_default_means_what_its_names_are_where_the_parser_is_made(parses: str) -> None:
    """A script that loads its libraries late imports its constants in the function that parses."""
    load = "    model = AutoModelForCausalLM.from_pretrained(args.model)\n"
    text = f"import argparse\nfrom transformers import AutoModelForCausalLM\n{parses}{load}"
    document = _document({"src/train.py": text, "src/models.py": "NAME = 'gpt2'\n"})
    (call,) = (each for each in document.calls if each.callee.endswith("from_pretrained"))
    entry = call.arguments.entries["0"]
    assert isinstance(entry.value, Scalar)
    assert entry.value.value == "gpt2"
