"""Which releases of a library have which names, and which fields of the dataclasses that parsers are made of.

    python -m benchmarks.wheels (fields | names) (peft | transformers | trl) FOLDER

prints the lines of ``lint/oomlint/dialects/keys/fields/LIBRARY.txt`` or ``keys/names/LIBRARY.txt``. FOLDER holds a wheel of
each release of TRL, whose patches add names, and of the first patch of each minor release of the others, as
``pip download --no-deps LIBRARY==RELEASE`` brings them. Nothing of a wheel is run or installed: its modules are read as
text.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from zipfile import ZipFile

Release = tuple[int, ...]
# Of the thousands of names of transformers those that went say what a newer release refuses; models come with each.
_COMING_COUNTS = frozenset({"peft", "trl"})
# Left out: names that a lazy module answers in some way all the same (transformers 5.0.0 utils/import_utils.py _LazyModule,
# 5.4.0 __init__.py getattr_factory), and those of TensorFlow, Flax, ONNX and lists of archives, which train nothing here.
_OTHERS = re.compile(r"(?:Fast|Tokenizer)$|^TF|^Flax|Onnx|_ARCHIVE_|^dummy_|^is_\w+_available$")
_PARSED = {
    "transformers": r"transformers/training_args(_seq2seq)?\.py",
    "trl": r"trl/(trainer|scripts|commands|trainer/utils)/?\w*\.py",
}
_CLASS = re.compile(r"(?:Config|Arguments)$")
_OF_TRANSFORMERS = frozenset({"TrainingArguments", "Seq2SeqTrainingArguments"})
_NUMBERS = {"int": "int", "float": "float", "bool": "bool"}


def main(what: str, library: str, folder: str) -> None:
    wheels = sorted(
        (release_of(path.name), path) for path in Path(folder).glob(f"{library}-*-py3-none-any.whl")
    )
    had: dict[str, list[int]] = {}
    for number, (_, path) in enumerate(wheels):
        with ZipFile(path) as wheel:
            found = names_of(wheel, library) if what == "names" else fields_of(wheel, library)
            for key in found:
                had.setdefault(key, []).append(number)
    releases = [".".join(map(str, release)) for release, _ in wheels]
    cls = ""
    for key in sorted(had):
        if what == "fields" and not key.startswith(f"{cls}."):
            cls = key.partition(".")[0]
            print(f"{cls}:")
        for first, gone in spans_of(had[key], len(releases)):
            came = "-" if first == 0 else releases[first]
            went = releases[gone] if gone < len(releases) else ""
            if what == "fields" or went or (first and library in _COMING_COUNTS):
                print(" ".join(filter(None, (key.removeprefix(f"{cls}."), came, went))))


def release_of(name: str) -> Release:
    return tuple(map(int, name.split("-")[1].split(".")))


def spans_of(numbers: list[int], count: int) -> Iterator[tuple[int, int]]:
    """Runs of releases with a key: the first of each, and the first behind it without."""
    first = numbers[0]
    for number, following in zip(numbers, [*numbers[1:], count + 1], strict=True):
        if following != number + 1:
            yield first, number + 1
            first = following


# -- names -----------------------------------------------------------------------------------------


def names_of(wheel: ZipFile, library: str) -> set[str]:
    """What ``from LIBRARY import`` takes: what its ``__init__`` imports, for type checkers too, the keys and values of its
    lazy structure, what modules of models list in ``__all__``, and its own modules (transformers has aliases of these)."""
    root = parsed(wheel, f"{library}/__init__.py")
    found: set[str] = set()
    for node in ast.walk(root):
        match node:
            case ast.ImportFrom(names=aliases):
                found |= {alias.asname or alias.name for alias in aliases}
            case ast.Constant(value=str(word)) if word.isidentifier():
                found.add(word)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
    for path in wheel.namelist():
        if path.startswith(f"{library}/") and library in _COMING_COUNTS:
            found.add(path.removeprefix(f"{library}/").split("/")[0].removesuffix(".py"))
        if "/models/" in path and path.endswith(".py") and library == "transformers":
            found |= listed(wheel, path)
    named = {name for name in found if name.isidentifier() and not name.startswith("_")}
    return {name for name in named if not _OTHERS.search(name) and name != name.upper()}


def listed(wheel: ZipFile, path: str) -> set[str]:
    """The strings of a module's ``__all__``."""
    text = wheel.read(path).decode("utf-8", "replace")
    found: set[str] = set()
    for block in re.findall(r"^__all__\s*\+?=\s*\[(.*?)\]", text, re.DOTALL | re.MULTILINE):
        found |= set(re.findall(r"[\"'](\w+)[\"']", block))
    return found


# -- fields ----------------------------------------------------------------------------------------


def fields_of(wheel: ZipFile, library: str) -> set[str]:
    """``CLASS.FIELD KIND`` of each field of each class, those of bases in the same library included; ``KIND`` ends in ``!``
    where nothing is its default. ``CLASS TrainingArguments`` where it has those of transformers' class as well."""
    classes: dict[str, ast.ClassDef] = {}
    for path in wheel.namelist():
        if re.fullmatch(_PARSED[library], path):
            for node in parsed(wheel, path).body:
                if isinstance(node, ast.ClassDef):
                    classes.setdefault(node.name, node)
    found: set[str] = set()
    for name in classes:
        if _CLASS.search(name) and not name.startswith("_"):
            fields: dict[str, str] = {}
            bases = set(collect(name, classes, fields))
            found |= {f"{name}.{field} {kind}" for field, kind in fields.items()}
            found |= {f"{name}.* {base}" for base in bases}
    return found


def collect(
    name: str, classes: Mapping[str, ast.ClassDef], fields: dict[str, str]
) -> Iterable[str]:
    """Note the fields of a class, those of its bases first; the bases that are another library's."""
    for base in classes[name].bases:
        called = ast.unparse(base).rpartition(".")[2]
        if called in classes and called != name:
            yield from collect(called, classes, fields)
        elif called not in ("object", "ABC"):
            yield called
    for statement in classes[name].body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            kind = kind_of(ast.unparse(statement.annotation).strip("'\""))
            if kind == "":
                continue
            is_init, has_default = about(statement.value)
            if is_init:
                fields[statement.target.id] = kind + ("" if has_default else "!")


def kind_of(annotation: str) -> str:
    """What argparse makes of a value: a number, a switch, or anything; nothing of what is no field."""
    if annotation.startswith(("ClassVar", "typing.ClassVar")):
        return ""
    inner = re.sub(r"^(?:typing\.)?Optional\[(.*)\]$", r"\1", annotation)
    inner = re.sub(r"^(?:typing\.)?Union\[(\w+), None\]$", r"\1", inner)
    inner = inner.removesuffix(" | None").removeprefix("None | ")
    return _NUMBERS.get(inner, "other")


def about(value: ast.expr | None) -> tuple[bool, bool]:
    """Whether a field is an argument at all, and whether it has a default."""
    if not isinstance(value, ast.Call) or not ast.unparse(value.func).endswith("field"):
        return True, value is not None
    given = {keyword.arg: keyword.value for keyword in value.keywords}
    is_init = not (isinstance(given.get("init"), ast.Constant) and not given["init"].value)  # type: ignore[attr-defined]
    return is_init, bool({"default", "default_factory"} & given.keys())


def parsed(wheel: ZipFile, path: str) -> ast.Module:
    text = wheel.read(path).decode("utf-8", "replace")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [("fields" | "names") as what, ("peft" | "transformers" | "trl") as library, folder]:
            main(what, library, folder)
        case _:
            sys.exit(__doc__)
