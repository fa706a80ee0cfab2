"""Which releases of a library have which names, and which fields of the dataclasses that parsers are made of and which
arguments of trainers.

    python -m benchmarks.wheels (fields | names | members | models) LIBRARY FOLDER

prints the lines of ``lint/oomlint/dialects/keys/fields/LIBRARY.txt``, ``keys/names/LIBRARY.txt`` (peft, transformers, trl),
``keys/members/LIBRARY.txt`` (accelerate, peft, torch, transformers, trl) or ``keys/models/transformers.txt`` (the kinds of
models that its auto classes know). FOLDER holds a wheel of each release of TRL, whose
patches add names, and of the first patch of each minor release of the others, as ``pip download --no-deps LIBRARY==RELEASE``
brings them; of torch those for macOS are the smallest and have the same modules. Nothing of a wheel is run or installed: its
modules are read as text.
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
    "transformers": r"transformers/(training_args|trainer)(_seq2seq)?\.py",
    "trl": r"trl/(trainer|scripts|commands|trainer/utils)/?\w*\.py",
}
_CLASS = re.compile(r"(?:Config|Arguments)$")
_TRAINER = re.compile(r"Trainer$")
# Decorators that hand an argument of an earlier name on (transformers 4.46 utils/deprecation.py, TRL 0.12 trainer/utils.py).
_TAKES_FORMER = frozenset({"deprecate_kwarg"})
_OF_TRANSFORMERS = frozenset({"TrainingArguments", "Seq2SeqTrainingArguments"})
# Modules of which people import names, beside the packages themselves (of torch: what shards, optimizes, loads and attends).
_MODULES = {
    "accelerate": r"accelerate/(utils/)?\w+\.py|accelerate/utils/__init__\.py",
    "peft": r"peft/(utils|tuners|tuners/lora)/\w+\.py|peft/\w+\.py",
    "torch": (
        r"torch/distributed/(fsdp/|_composable/(fsdp/)?|tensor/(parallel/)?|_tensor/|checkpoint/|pipelining/)?\w+\.py"
        r"|torch/distributed/algorithms/_checkpoint/checkpoint_wrapper\.py"
        r"|torch/(nn/attention|optim|amp|cuda/amp|utils/data)/\w+\.py|torch/utils/checkpoint\.py"
    ),
    "transformers": r"transformers/(utils/|integrations/)?(?!convert_|dummy_)\w+\.py",
    "trl": r"trl/(\w+/)?\w+\.py",
}
# By these a module may give names that no statement of it binds; so does a __getattr__ of its own, which a class's is not.
_BY_OTHER_WAYS = re.compile(
    r"\bglobals\(\)|\bsetattr\(\s*sys|sys\.modules\[__name__\]\s*=(?!\s*_LazyModule)"
)
# Where AutoConfig looks up what it makes of a model's type.
_CONFIGS = "CONFIG_MAPPING_NAMES"
# Parts of a model of another type, which have been listed since 5.6: no checkpoint is one.
_PARTS = re.compile(r"_(thinker|talker|token2wav)")
_NUMBERS = {"int": "int", "float": "float", "bool": "bool"}


def main(what: str, library: str, folder: str) -> None:
    wheels = sorted((release_of(path.name), path) for path in Path(folder).glob(f"{library}-*.whl"))
    had: dict[str, list[int]] = {}
    for number, found in enumerate(keys_in([path for _, path in wheels], what, library)):
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
            comes = first and (library in _COMING_COUNTS or what in ("members", "models"))
            if what == "fields" or went or comes:
                print(" ".join(filter(None, (key.removeprefix(f"{cls}."), came, went))))


def keys_in(paths: list[Path], what: str, library: str) -> Iterable[set[str]]:
    """What each wheel has, in their order."""
    if what == "members":
        return members_in(paths, library)
    return (keys_of(path, what, library) for path in paths)


def keys_of(path: Path, what: str, library: str) -> set[str]:
    with ZipFile(path) as wheel:
        if what == "models":
            return models_of(wheel)
        return names_of(wheel, library) if what == "names" else fields_of(wheel, library)


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


# -- models -------------------------------------------------------------------------------------------


def models_of(wheel: ZipFile) -> set[str]:
    """The ``model_type`` of each config that transformers' ``AutoConfig`` knows: of one list of pairs, in a module of its
    own since 5.8, and of what the dictionary made of it is updated with."""
    found: set[str] = set()
    for module in ("configuration_auto", "auto_mappings"):
        path = f"transformers/models/auto/{module}.py"
        if path not in wheel.namelist():
            continue
        for node in parsed(wheel, path).body:
            if _CONFIGS in {each.id for each in _changed(node) if isinstance(each, ast.Name)}:
                pairs = (each for each in ast.walk(node) if isinstance(each, ast.Tuple))
                first = [each.elts[0] for each in pairs if len(each.elts) == 2]
                for each in ast.walk(node):
                    first += [key for key in getattr(each, "keys", ()) if key is not None]
                found.update(str(each.value) for each in first if isinstance(each, ast.Constant))
    return {kind for kind in found if not _PARTS.search(kind)}


def _changed(node: ast.stmt) -> list[ast.expr | None]:
    """What a statement assigns to, or calls a method of."""
    if isinstance(node, ast.Assign):
        return list(node.targets)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return [getattr(node.value.func, "value", None)]
    return [getattr(node, "target", None)]


# -- members ---------------------------------------------------------------------------------------


class Modules:
    """The modules of one wheel: what statements of each bind, as far as that is all that it gives."""

    def __init__(self, wheel: ZipFile, library: str) -> None:
        self.wheel = wheel
        self.paths = frozenset(wheel.namelist())
        self.bound: dict[str, set[str] | None] = {}
        self.own: dict[str, set[str]] = {}
        """What each module defines, or as a package hands on: others take that from it."""
        self.library = library

    def wanted(self) -> set[str]:
        """The modules of which people import names, dotted."""
        paths = filter(re.compile(_MODULES[self.library]).fullmatch, self.paths)
        return {dotted(path, self.library) for path in paths} - {"__init__"}

    def path_of(self, module: str) -> str | None:
        """The file of a module or of a package, which one of them may be in one wheel and the other in the next."""
        stem = f"{self.library}/{module.replace('.', '/')}"
        return next((p for p in (f"{stem}/__init__.py", f"{stem}.py") if p in self.paths), None)

    def names(self, path: str) -> set[str] | None:
        """The public names of a module; ``None`` where it may give others."""
        if path not in self.bound:
            self.bound[path] = None  # a circle of star imports
            text = self.wheel.read(path).decode("utf-8", "replace")
            found = self._bound(path)
            self.bound[path] = None if _BY_OTHER_WAYS.search(text) else found
        return self.bound[path]

    def _bound(self, path: str) -> set[str] | None:
        root = parsed(self.wheel, path)
        found: set[str] = set()
        defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        self.own[path] = {n.name for n in at_module_level(root.body) if isinstance(n, defined)}
        for node in at_module_level(root.body):
            match node:
                case ast.ImportFrom(names=[ast.alias(name="*")]):
                    inner = self._of_star(node, path)
                    if inner is None:
                        return None
                    found |= inner
                case ast.Import() | ast.ImportFrom():
                    found |= {each.asname or each.name.partition(".")[0] for each in node.names}
                case (
                    ast.FunctionDef(name=name)
                    | ast.AsyncFunctionDef(name=name)
                    | ast.ClassDef(name=name)
                ):
                    found.add(name)
                case ast.Name(id=name, ctx=ast.Store()):
                    found.add(name)
        if "_LazyModule" in found or "_import_structure" in found:
            texts = (node.value for node in ast.walk(root) if isinstance(node, ast.Constant))
            found |= {text for text in texts if isinstance(text, str) and text.isidentifier()}
        folder, _, name = path.rpartition("/")
        if name == "__init__.py":
            below = (
                each.removeprefix(f"{folder}/")
                for each in self.paths
                if each.startswith(folder + "/")
            )
            found |= {each.partition("/")[0].removesuffix(".py") for each in below}
            self.own[path] = set(found)
        if "__getattr__" in found:
            return None
        return {each for each in found if each.isidentifier() and not each.startswith("_")}

    def _of_star(self, node: ast.ImportFrom, path: str) -> set[str] | None:
        parts = path.removesuffix(".py").split("/")
        home = parts[: -node.level] if node.level else []
        stem = "/".join([*home, *(node.module or "").split(".")]).rstrip("/")
        target = next((p for p in (f"{stem}.py", f"{stem}/__init__.py") if p in self.paths), None)
        if target is None:
            return None
        listed_there = listed(self.wheel, target)
        return listed_there or self.names(target)


def at_module_level(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Statements that run as the module does, and the names that they store."""
    for node in body:
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from at_module_level(ast.iter_child_nodes(node))


def members_in(paths: list[Path], library: str) -> list[set[str]]:
    """``MODULE.NAME`` of what modules of each wheel define or packages hand on, without the library's own name. What is a
    module in one wheel and a package in another (peft 0.5.0 and 0.6.0 tuners/lora) goes by one name. A
    module that may give any name has those that it has in others; so has, of transformers, one that is not there: it gives
    some modules other names as it is imported (5.0.0 ``__init__.py`` ``_create_module_alias``)."""
    wheels = [Modules(ZipFile(path), library) for path in paths]
    wanted = {module for modules in wheels for module in modules.wanted()}
    every: list[dict[str, set[str] | None]] = []
    own: dict[str, set[str]] = {}
    for modules in wheels:
        found = {module: path for module in wanted if (path := modules.path_of(module))}
        every.append({module: modules.names(path) for module, path in found.items()})
        for module, path in found.items():
            own.setdefault(module, set()).update(modules.own.get(path, ()))
    known: dict[str, set[str]] = {}
    for names_in in every:
        for module, names in names_in.items():
            known.setdefault(module, set()).update((names or set()) & own[module])
    return [
        {
            f"{module}.{name}"
            for module in known
            for name in known[module] & may_have(module, names_in, known, library)
        }
        for names_in in every
    ]


def may_have(
    module: str, found: Mapping[str, set[str] | None], known: Mapping[str, set[str]], library: str
) -> set[str]:
    if module not in found:
        return known[module] if library == "transformers" else set()
    names = found[module]
    return known[module] if names is None else names


def dotted(path: str, library: str) -> str:
    inner = path.removeprefix(f"{library}/").removesuffix(".py").removesuffix("/__init__")
    return inner.replace("/", ".")


# -- fields ----------------------------------------------------------------------------------------


def fields_of(wheel: ZipFile, library: str) -> set[str]:
    """``CLASS.FIELD KIND`` of each field of each class, those of bases in the same library included; ``KIND`` ends in ``!``
    where nothing is its default. ``CLASS TrainingArguments`` where it has those of transformers' class as well. Of a trainer
    the arguments that it is made with."""
    classes: dict[str, ast.ClassDef] = {}
    for path in wheel.namelist():
        if re.fullmatch(_PARSED[library], path):
            for node in parsed(wheel, path).body:
                if isinstance(node, ast.ClassDef):
                    classes.setdefault(node.name, node)
    found: set[str] = set()
    for name in classes:
        if _TRAINER.search(name) and not name.startswith("_"):
            found |= {f"{name}.{taken}" for taken in taken_by(name, classes)}
        elif _CLASS.search(name) and not name.startswith("_"):
            fields: dict[str, str] = {}
            bases = set(collect(name, classes, fields))
            found |= {f"{name}.{field} {kind}" for field, kind in fields.items()}
            found |= {f"{name}.* {base}" for base in bases}
    return found


def taken_by(name: str, classes: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    """What a class is made with, as lines of fields: the parameters of the ``__init__`` that it has or inherits, ``**`` where
    that takes any, and ``*`` with the base of another library whose it is."""
    for statement in classes[name].body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            given = statement.args
            named = [*given.posonlyargs, *given.args, *given.kwonlyargs][1:]
            yield from (f"{each.arg} other" for each in named)
            yield from (f"{former} other" for former in _former_names(statement))
            if given.kwarg is not None:
                yield "** other"
            return
    for base in classes[name].bases:
        called = ast.unparse(base).rpartition(".")[2]
        if _TRAINER.search(called):
            inherits = called in classes and called != name
            yield from taken_by(called, classes) if inherits else (f"* {called}",)
            return


def _former_names(function: ast.FunctionDef) -> Iterator[str]:
    for node in function.decorator_list:
        match node:
            case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str(former)), *_]):
                if name in _TAKES_FORMER:
                    yield former


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
        case ["members", library, folder] if library in _MODULES:
            main("members", library, folder)
        case ["models", "transformers", folder]:
            main("models", "transformers", folder)
        case _:
            sys.exit(__doc__)
