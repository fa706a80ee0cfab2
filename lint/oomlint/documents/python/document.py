"""Python training scripts: the calls that decide memory, with their arguments, and edits.

Read with ``ast``; nothing of the script is run. A value is reported only where the text
alone settles it: a literal, arithmetic on literals, a name that is bound once, an option's
default. Everything else is ``UNKNOWN``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping as MappingABC
from functools import cached_property, partial
from types import ModuleType
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents import base
from oomlint.documents.base import Call, Fact, Literal, Mapping, Name, Node, PythonDocument
from oomlint.documents.suffixes import kind_of
from oomlint.documents.text import Edit, Source, Span
from oomlint.errors import CannotEdit, ParseError

if TYPE_CHECKING:
    import ast

    from oomlint.documents.python.loops.loop import Loop
    from oomlint.documents.python.modules import FindSource
    from oomlint.documents.python.options import ScriptOptions
    from oomlint.documents.python.scopes import Scopes
    from oomlint.documents.python.tree import Tree

# A file without any of these has nothing for us: two files of three are dropped here.
_WORDS_THAT_MATTER: Final = (
    "from_pretrained", "TrainingArguments", "load_dataset", "deepspeed", "LoraConfig",
    "BitsAndBytesConfig", "get_peft_model", "prepare_model_for_", "gradient_checkpointing",
    "FullyShardedDataParallel", "fully_shard", "StateDictConfig", "DistributedDataParallel",
    "HfDeepSpeedConfig", "bitsandbytes", "torch.optim", "Adafactor", "torch.load", "torch.save",
    "lit_gpt", "lit_llama", "async_save", "empty_cache", "CUDA_ALLOC_CONF", "OutOfMemoryError", ".backward(",
    "xtuner", "llama_recipes", "llama_cookbook", "olmo_core", "max_iters", "snapshot_download",
)  # fmt: skip
# The same for what counts as a whole word only, which is not looked for where no part of it is.
_PARTS: Final = ("rainer", "Config", "Accelerator", "FSDP", "DataLoader", "import train", ".errno")
_NAMES_THAT_MATTER: Final = re.compile(
    r"(?:[Tt]rainer|(?:SFT|DPO|GRPO|KTO|ORPO|CPO|Reward|PPO|RLOO|GKD|Model)Config|Accelerator|\bFSDP"
    r"|DataLoader|from [\w.]+ import train|\.errno)\b"
)
# Tests of a library train nothing that anybody waits for. What only borrows mocks may train,
# unless its own name and those of its functions are what pytest looks for.
_TESTS: Final = re.compile(
    r"^[ \t]*(?:import|from)[ \t]+(?:pytest|unittest)\b(?!\.mock\b|[ \t]+import[ \t]+mock\b)",
    re.MULTILINE,
)
_TEST_FILE: Final = re.compile(r"(?:^|/)(?:test_[^/]*|[^/]*_test)\.py$")
_TEST_FUNCTION: Final = re.compile(r"^[ \t]*(?:async )?def test_", re.MULTILINE)
# As for scripts of the shell. A tree of ast takes up to 350 bytes a character (measured).
_MOST_CHARACTERS: Final = 1_000_000
# Libraries have classes of these names, and projects have others.
_TRAINS: Final = re.compile(r"(?:Trainer|Config|Arguments|Args)$")
_STRING_START: Final = re.compile(r"([rRbBuUfF]*)('''|\"\"\"|'|\")")


class Rest(Struct, frozen=True, eq=False):
    """What of a script only those ask for who make something of it."""

    facts: tuple[Fact, ...] = ()
    sourced: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()
    config_options: frozenset[str] = frozenset()
    assigned: tuple[Call, ...] = ()
    classes: MappingABC[str, tuple[str, ...]] = {}


class PythonScript(PythonDocument, frozen=True, eq=False, dict=True):
    """A script as read."""

    calls: tuple[Call, ...]
    imports: frozenset[str]
    """Modules and names that the file imports, dotted, with the package that each is from."""
    modules: MappingABC[str, str]
    """Names bound to imported modules, by module: how this file spells ``torch``."""
    options: ScriptOptions
    """What the script's command line may say."""
    starts: str | None = None
    """Path of the file whose function the script does nothing but call."""
    loop: Loop | None = None
    """The training loop that the script writes out itself."""
    lightning: tuple[Loop, ...] = ()
    """Its classes that Lightning trains in another file, or takes batches from there."""
    known: Rest | None = None
    """The rest, where it was worked out at once."""
    work_out: Callable[[FindSource], Rest] = lambda _find: Rest()
    """Of a module of a package that calls nothing which matters: mostly nobody asks."""
    find: FindSource = lambda _path: None
    read_for_options: tuple[str, ...] = ()
    """Paths of other files that ``options`` are from."""
    awaits: frozenset[str] = frozenset()
    """Functions and classes of it that other programs call so that it trains: see :mod:`.callers`."""

    @cached_property
    def rest(self) -> Rest:
        return self.work_out(self.find) if self.known is None else self.known

    @property
    def is_whole(self) -> bool:
        """Whether all of it has been worked out."""
        return self.known is not None or "rest" in self.__dict__

    @property
    def facts(self) -> tuple[Fact, ...]:
        return self.rest.facts

    @property
    def sourced(self) -> tuple[str, ...]:
        """Paths of other files that this one takes declarations or values from."""
        return self.rest.sourced if self.is_whole else self.read_for_options

    @property
    def configs(self) -> tuple[str, ...]:
        """Display paths of the config files that it takes values from."""
        return self.rest.configs

    @property
    def config_options(self) -> frozenset[str]:
        """Options, and numbers of words behind the script, that name a config file to it."""
        return self.rest.config_options

    @property
    def assigned(self) -> tuple[Call, ...]:
        """Statements that change its training arguments, each as a call that is given the new value."""
        return self.rest.assigned

    @property
    def classes(self) -> MappingABC[str, tuple[str, ...]]:
        """Classes of other files of the project that it calls to train or to configure that, by the name here, each
        with what it is derived from."""
        return self.rest.classes

    def looking_in(self, find: FindSource) -> PythonScript:
        return self if self.is_whole else replace(self, find=find)

    def without(self, facts: Collection[Fact]) -> PythonScript:
        """The same of which these facts do not hold."""
        left = tuple(fact for fact in self.facts if fact not in facts)
        return replace(self, known=replace(self.rest, facts=left))

    def set_value(self, node: Node, value: Literal) -> list[Edit]:
        """Replace an expression by a literal in the file's quotes, or by a :class:`Name`.

        Raises:
            CannotEdit: the value depends on the run, is shared, or needs an import.
        """
        if node.locked:
            raise CannotEdit(node.locked)
        old = self.source.text[node.span.start : node.span.end]
        return [self._edit(node.span, self._written(value, _quote_of(old) or self._quote()))]

    def add_entry(
        self, mapping: Mapping, key: str, value: Literal, *, after: str | None = None
    ) -> list[Edit]:
        """Add a keyword argument to a call, or an entry to a dict."""
        with_argument = _editing().with_argument
        self._check(mapping)
        if key in mapping.entries:
            raise CannotEdit(f"{key} is there already")
        if mapping.open_ended:
            # A call that gets it twice stops, and of a dict what comes later counts.
            raise CannotEdit(f"what is unpacked here may say {key} already")
        if _kind(mapping) == "call" and not key.isidentifier():
            raise CannotEdit(f"{key} is no name for an argument")
        old = self._text(mapping.span)
        written = self._written(value, self._quote())
        new = with_argument(old, key, written, after, self.source.newline)
        return self._splice(mapping.span, old, new)

    def remove_entry(self, mapping: Mapping, key: str) -> list[Edit]:
        """Delete an argument with its comma and its line."""
        from oomlint.documents.python.nodes import PythonEntry

        without_argument = _editing().without_argument
        self._check(mapping)
        entry = mapping.entries.get(key)
        if not isinstance(entry, PythonEntry) or entry.owner is None:
            raise CannotEdit(f"{key} is not set here")
        if entry.locked:
            raise CannotEdit(entry.locked)
        old = self._text(entry.owner)
        return self._splice(entry.owner, old, without_argument(old, key, self.source.newline))

    def rename_entry(self, mapping: Mapping, key: str, new_key: str) -> list[Edit]:
        """Change the name of a keyword argument or the key of an entry."""
        from oomlint.documents.python.nodes import PythonEntry

        self._check(mapping)
        entry = mapping.entries.get(key)
        if not isinstance(entry, PythonEntry):
            raise CannotEdit(f"{key} is not set here")
        if entry.locked:
            raise CannotEdit(entry.locked)
        old = self._text(entry.key_span)
        if entry.owner_kind == "call":
            if old != key:
                raise CannotEdit(f"argument {key} has no name to change")
            return [self._edit(entry.key_span, new_key)]
        return [self._edit(entry.key_span, _quoted(new_key, _quote_of(old) or self._quote()))]

    def append_item(self, sequence: base.Sequence, value: Literal) -> list[Edit]:
        """Add an item at the end of a list that is written out."""
        if sequence.locked:
            raise CannotEdit(sequence.locked)
        written = self._written(value, self._quote_near(sequence))
        if not sequence.items:
            opening = self._text(sequence.span)[:1]
            if opening not in ("[", "("):
                raise CannotEdit("there is no list to add to")
            comma = "," if opening == "(" else ""
            place = sequence.span.start + 1
            return [self._edit(Span(place, place), written + comma)]
        last = sequence.items[-1]
        if last.span.end > sequence.span.end or last.span.start < sequence.span.start:
            raise CannotEdit("the list's items are written elsewhere")
        gap = ", "
        if len(sequence.items) > 1:
            before = sequence.items[-2].span.end
            between = self.source.text[before : last.span.start]
            gap = between if re.fullmatch(r",\s*", between) else ", "
        return [self._edit(Span(last.span.end, last.span.end), gap + written)]

    @property
    def option_defaults(self) -> Mapping | None:
        """Defaults of the fields of the dataclasses that the script parses; ``None`` without any."""
        return self.options.defaults

    # -- how edits are written --------------------------------------------------------

    def _edit(self, span: Span, replacement: str) -> Edit:
        return Edit(self.source.path, span.start, span.end, replacement)

    def _splice(self, span: Span, old: str, new: str) -> list[Edit]:
        smallest_splice = _editing().smallest_splice
        start, end, replacement = smallest_splice(old, new)
        return [self._edit(Span(span.start + start, span.start + end), replacement)]

    def _text(self, span: Span) -> str:
        return self.source.text[span.start : span.end]

    def _check(self, mapping: Mapping) -> None:
        if mapping.locked:
            raise CannotEdit(mapping.locked)

    def _written(self, value: Literal, quote: str) -> str:
        """The value as a Python expression."""
        if isinstance(value, Name):
            return self._name(value)
        if isinstance(value, str):
            return _quoted(value, quote)
        if value is None or isinstance(value, (bool, int)):
            return repr(value)
        if isinstance(value, float):
            if value != value or value in (float("inf"), float("-inf")):
                return f"float({_quoted(repr(value), quote)})"
            return repr(value)
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(self._written(item, quote) for item in value) + "]"
        if isinstance(value, dict):
            pairs = (
                f"{self._written(k, quote)}: {self._written(v, quote)}" for k, v in value.items()
            )
            return "{" + ", ".join(pairs) + "}"
        raise CannotEdit(f"{type(value).__name__} cannot be written as a literal")

    def _name(self, name: Name) -> str:
        """A dotted name as this file can say it."""
        parts = name.dotted.split(".")
        for length in range(len(parts), 0, -1):
            bound = self.modules.get(".".join(parts[:length]))
            if bound is not None:
                return ".".join([bound, *parts[length:]])
        raise CannotEdit(f"{parts[0]} is not imported here")

    def _quote(self) -> str:
        """The quote that the file uses more."""
        text = self.source.text
        return "'" if text.count("'") > text.count('"') else '"'

    def _quote_near(self, sequence: base.Sequence) -> str:
        for item in sequence.items:
            quote = _quote_of(self._text(item.span))
            if quote:
                return quote
        return self._quote()


def _kind(mapping: Mapping) -> str:
    from oomlint.documents.python.nodes import PythonMapping

    return mapping.kind if isinstance(mapping, PythonMapping) else "call"


def _quote_of(text: str) -> str:
    match = _STRING_START.match(text)
    return match.group(2)[:1] if match else ""


def _quoted(text: str, quote: str) -> str:
    """A string literal in one kind of quotes; ``repr`` chooses its own."""
    body = repr(text + "\"'")[1:-1]  # both quotes inside: repr escapes the single ones
    body = body[: -len("\"\\'")].replace("\\'", "'")
    return quote + body.replace(quote, "\\" + quote) + quote


def parse_python(
    source: Source,
    find: FindSource = lambda _path: None,
    options: MappingABC[str, str | None] | None = None,
    caller: Source | None = None,
) -> PythonScript | None:
    """Read a script; ``None`` where none of the names that matter occurs in it, or it holds the
    tests of a library. ``find`` gives the files that it imports and loads, ``options`` are what
    a command says to it: see :class:`.configs.ConfigFiles`. ``caller`` is a program that calls
    what trains in it; ``None`` as well where it does not.

    Raises:
        ParseError: it is too large, or no Python of this interpreter's version or an older one.
    """
    if not _matters(source.text) or is_of_tests(source):
        return None
    if len(source.text) > _MOST_CHARACTERS:
        raise ParseError(source.path, "too large for a script (over a million characters)")
    try:
        return _read(source, _tree(source), find, options, caller=caller)
    except RecursionError:
        raise ParseError(source.path, "the file is nested too deeply to be read") from None


def _matters(text: str) -> bool:
    """Whether a script may have something for us. A search for words takes a sixteenth of the time
    that a regular expression of them all takes."""
    if any(word in text for word in _WORDS_THAT_MATTER):
        return True
    return any(part in text for part in _PARTS) and bool(_NAMES_THAT_MATTER.search(text))


def is_of_tests(source: Source) -> bool:
    """Whether a file holds the tests of a library."""
    text = source.text
    if ("pytest" in text or "unittest" in text) and _TESTS.search(text):
        return True
    return bool(_TEST_FILE.search(source.path) and _TEST_FUNCTION.search(text))


def _tree(source: Source) -> ast.Module:
    import ast
    import sys
    import warnings

    null = source.text.find("\0")
    if null >= 0:
        line, column = source.position(null)
        raise ParseError(
            source.path, "not valid Python: a null character", line=line, column=column
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's escapes, not about us
            return ast.parse(source.text, filename=source.path)
    except SyntaxError as error:
        version = ".".join(map(str, sys.version_info[:2]))
        raise ParseError(
            source.path,
            # A newer Python may well take it: the message says which one did not.
            f"not valid for Python {version}, which oomlint runs on: {error.msg}",
            line=error.lineno,
            column=error.offset if error.offset and error.offset > 0 else None,
        ) from None
    except MemoryError:
        raise ParseError(source.path, "the file is nested too deeply to be read") from None


def _read(
    source: Source,
    root: ast.Module,
    find: FindSource,
    options: MappingABC[str, str | None] | None,
    *,
    whole: bool = False,
    caller: Source | None = None,
) -> PythonScript | None:
    from oomlint.documents.python.callers import awaited, note_caller
    from oomlint.documents.python.calls import (
        in_order,
        reached_by_files,
        read_calls,
        read_stores,
        run_order,
    )
    from oomlint.documents.python.configs.files import ConfigFiles
    from oomlint.documents.python.configs.loaded import LoadedFiles
    from oomlint.documents.python.custody import custody_of
    from oomlint.documents.python.facts import facts_of
    from oomlint.documents.python.first_rank import first_rank_facts
    from oomlint.documents.python.handed import note_handed
    from oomlint.documents.python.loaded_names import loaded_names
    from oomlint.documents.python.loops import read_loop, read_parts
    from oomlint.documents.python.model_names import model_names
    from oomlint.documents.python.modules import Module, Modules
    from oomlint.documents.python.named_lengths import length_facts
    from oomlint.documents.python.options import read_options, started
    from oomlint.documents.python.own_trainers import own_trainer_facts
    from oomlint.documents.python.samplers import sampler_facts
    from oomlint.documents.python.saved_models import saved_models
    from oomlint.documents.python.trainer_names import names_trainer
    from oomlint.documents.python.tree import read_tree
    from oomlint.documents.python.values import Evaluator, NodeSpans

    places = NodeSpans(source)
    tree = read_tree(root)
    scopes = tree.scopes
    taken_in = Modules(find)
    files = ConfigFiles(find, options)
    evaluator = Evaluator(places, tree, taken_in, files=files)
    if "sys.path" in source.text:
        taken_in.first = tuple(files.folders_added("insert", tree, evaluator))[::-1]
        taken_in.last = tuple(files.folders_added("append", tree, evaluator))
    declared = read_options(source, tree, taken_in)
    every, stores = run_order(tree)
    awaits = awaited(tree, every)
    module = Module(source, tree)
    if caller is not None and not note_caller(caller, awaits, module, evaluator):
        return None
    note_handed(every, evaluator)
    steps = reached_by_files(every, tree, evaluator)
    calls, origin = read_calls(steps, evaluator, places)
    if not calls and not whole and _is_of_package(source, tree):
        return PythonScript(
            source,
            (),
            frozenset(scopes.imports),
            _modules(scopes),
            declared,
            getattr(started(source, tree, find), "path", None),
            work_out=partial(_rest_of, source, options),
            find=find,
            read_for_options=(*taken_in.read, *sorted(taken_in.looked_into)),
        )
    stores = reached_by_files(stores, tree, evaluator)
    named_alone = LoadedFiles(find)
    loop = read_loop(tree, steps, evaluator, places, calls, origin)
    facts = (
        *facts_of(source, tree, places, evaluator, steps, calls, origin),
        *sampler_facts(module, calls, taken_in),
        *own_trainer_facts(module, calls, taken_in),
        *loaded_names(steps, calls, origin, evaluator),
        *model_names(calls, declared, named_alone, evaluator),
        *saved_models(every, calls, evaluator),
        *length_facts(evaluator),
        *first_rank_facts(tree, steps, places),
    )
    named = sorted(
        {call.callee for call in calls if _TRAINS.search(call.callee) or names_trainer(call.callee)}
    )
    bases = {name: taken_in.bases_of(module.qualified(name), source.path) for name in named}
    parts = read_parts(tree, steps, evaluator, places, calls, origin)
    # Last, since it enters whatever touches the model.
    held = custody_of(evaluator, steps, calls, origin, loop=loop)
    looked_into = sorted(taken_in.looked_into)
    read = (path for path in taken_in.read if path != source.path)
    sourced = (*read, *looked_into, *files.paths, *named_alone.paths)
    return PythonScript(
        source,
        in_order(steps, calls, origin, held.calls),
        frozenset(scopes.imports),
        _modules(scopes),
        declared,
        getattr(started(source, tree, find) if not calls else None, "path", None),
        loop,
        parts,
        Rest(
            (*facts, *held.facts),
            tuple(dict.fromkeys(sourced)),
            files.paths,
            frozenset(files.asked),
            tuple(read_stores(stores, calls, tree, evaluator, places)),
            {name: found for name, found in bases.items() if found is not None},
        ),
        awaits=awaits,
    )


def _is_of_package(source: Source, tree: Tree) -> bool:
    """Whether a file that calls nothing which matters is a module that others import, and has no loop: nobody starts it,
    so that what it does when it is started is mostly asked by nobody."""
    from oomlint.documents.python.lightning import imports_lightning
    from oomlint.documents.python.loops import MAKE_LOOPS

    if kind_of(source.path) != ".py" or "__main__" in source.text:
        return False
    is_relative = any(getattr(each, "level", 0) for each in tree.imports)
    may_loop = not tree.calls.keys().isdisjoint(MAKE_LOOPS) or imports_lightning(tree)
    return is_relative and not may_loop


def _rest_of(source: Source, options: MappingABC[str, str | None] | None, find: FindSource) -> Rest:
    """What was left out: to keep the tree meanwhile takes 350 bytes a character."""
    try:
        read = _read(source, _tree(source), find, options, whole=True)
    except RecursionError:
        return Rest()
    return Rest() if read is None else read.rest


def _modules(scopes: Scopes) -> dict[str, str]:
    modules: dict[str, str] = {}
    for name, bindings in scopes.module.bindings.items():
        if len(bindings) == 1 and bindings[0].kind == "import":
            modules.setdefault(bindings[0].qualified, name)
    return modules


def _editing() -> ModuleType:
    """What writes Python; LibCST, which it needs, has no build for every platform.

    Raises:
        CannotEdit: it is not installed.
    """
    try:
        from oomlint.documents.python import edit
    except ImportError:
        raise CannotEdit(
            "arguments of Python code are written with LibCST, which is not installed here"
        ) from None
    return edit
