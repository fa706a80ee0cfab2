"""Options of a command at which the parser of the script that it starts stops, and options that the parser misses.

Certain only of a parser of which all is known (:mod:`oomlint.documents.python.strict_parsers`), and of classes of libraries
only where no release that the project allows takes the option, or such a value (:mod:`oomlint.dialects.library_tables`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from oomlint.dialects.block import Block
from oomlint.dialects.blocks import documents_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared_ends import declare_end
from oomlint.dialects.ending import Ending, When
from oomlint.dialects.library_tables import Field, ReachIn, fields_of, likely_reach_of, reach_of
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.meaning import Meaning
from oomlint.documents.base import UNKNOWN, Entry, Node, Scalar, Sequence, parser_of
from oomlint.documents.python.declared_options import Option, StrictParser
from oomlint.documents.text import Location, Span

refused_options = Meaning()

_SOURCE = "CPython argparse, transformers hf_argparser.py, fire core.py"

# int() and float() of CPython, as far as a command line has them.
_FITS = {
    "int": r"\s*[+-]?\d+(?:_\d+)*\s*",
    "float": r"(?i)\s*[+-]?(?:(?:\d[\d_]*)?\.?\d[\d_]*\.?(?:e[+-]?\d+)?|inf|infinity|nan)\s*",
}
# What guides write for what they leave out, and how variables are written that are never filled in.
_LEFT_OUT = r"\.\.\.|…|[<>\[\]{}$*]"
_GUIDES = (".md", ".rst")
# ``$VERSION``: in quotes it is a word, though an empty one.
_BARE_VARIABLE = r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})"
# transformers 5.23 hf_argparser.py, TRL 1.9 scripts/utils.py: words before any class is asked.
_OF_PARSERS = frozenset({"help", "h", "config"})
# Of a text or a bool (transformers 4.57.1 training_args.py, TRL 0.28.0 trainer/grpo_config.py) hf_argparser.py makes a switch.
_ALSO_SWITCHES = frozenset({"include_num_input_tokens_seen", "scale_rewards"})
# DeepSpeed 0.19.5 launcher/launch.py and torch 2.8 distributed/launch.py hand it over.
_OF_LAUNCHERS = frozenset({"local_rank", "local-rank"})


class Started(Struct, frozen=True, eq=False):
    """A command that starts a script with a parser of which all is known."""

    launch: Launch
    parser: StrictParser
    script: str


class Known(Struct, frozen=True):
    """What a parser takes: options by every name they have, and those that it requires."""

    options: Mapping[str, tuple[Option, ...]]
    required: tuple[str, ...]

    def of(self, name: str) -> tuple[Option, ...]:
        """The options that a name may stand for, in full or as their beginning."""
        if name in self.options:
            return self.options[name]
        begun = (each for full, each in self.options.items() if full.startswith(name))
        return tuple(option for options in begun for option in options)


def _refusal(run: Cells, reach_in: ReachIn) -> Ending | None:
    """The first option of the command that ends the program as it parses."""
    for started in run.once(_started):
        known = _known(started.parser, run, reach_in)
        if known is not None:
            found = (*_refused(started, known, run), *_missing(started, known))
            if found:
                return found[0]
    return None


declare_end(refused_options, lambda run: _refusal(run, reach_of), source=_SOURCE)
declare_end(
    refused_options, lambda run: _refusal(run, likely_reach_of), source=_SOURCE, lately=True
)


def _started(blocks: list[Block]) -> tuple[Started, ...]:
    documents = documents_of(blocks)
    # Of a command that ends before its last options the whole is not known.
    anchors = {block.anchor for block in blocks} - {b.anchor for b in blocks if b.doubt}
    parsers = [(each.source.path, parser_of(each)) for each in documents]
    found = [(path, each.strict) for path, each in parsers if each and each.strict]
    if not found:
        return ()
    read = [each.source.path for each in documents]
    return tuple(
        Started(launch, strict, launch.script)
        for document in documents
        for launch in launches(document)
        if launch.anchor in anchors
        and launch.script is not None
        and not launch.command.folder_is_open
        for path, strict in _parsing(launch.script, found, read)
    )


def _parsing(
    script: str, parsers: list[tuple[str, StrictParser]], read: Iterable[str]
) -> Iterator[tuple[str, StrictParser]]:
    """The parser of a script that is started: its own, or that of the file beside it whose function is all that it calls,
    which was read in its place (``train_mem.py`` of LLaVA)."""
    end = f"/{_plain(script)}"
    if any(f"/{path}".endswith(end) for path in read):
        yield from (each for each in parsers if f"/{each[0]}".endswith(end))
    elif len(parsers) == 1:
        folder, home = end.rpartition("/")[0], f"/{parsers[0][0]}".rpartition("/")[0]
        if home.endswith(folder):
            yield parsers[0]


def _plain(path: str) -> str:
    return re.sub(r"^(?:\.{1,2}/)+", "", path)


def _known(parser: StrictParser, run: Cells, reach_in: ReachIn) -> Known | None:
    """What a parser takes in the releases that may run; ``None`` where a class is one that nobody knows."""
    inherited = [fields_of(cls, run, reach_in) for cls in parser.classes]
    own = {name for option in parser.options for name in option.names}
    every: list[Option] = [*parser.options]
    for fields in inherited:
        if fields is None:
            return None
        # What a script's own class says anew is as that says.
        every += (_of_field(name, each) for name, each in fields.items() if name not in own)
    options: dict[str, tuple[Option, ...]] = {}
    for option in every:
        for name in option.names:
            options[name] = (*options.get(name, ()), option)
    needed = (option for option in every if option.is_required and not option.is_positional)
    return Known(options, tuple(option.names[-1] for option in needed if option.names))


def _of_field(name: str, every: tuple[Field, ...]) -> Option:
    """The option that a field of a library's class is in releases of which each may have it in a way of its own."""
    kinds = {field.kind for field in every}
    number = "int" if kinds == {"int"} else "float" if kinds <= {"int", "float"} else "other"
    is_switch = "bool" in kinds
    names = (f"no_{name}", name) if is_switch else (name,)
    required = all(field.is_required for field in every)
    return Option(
        names, number, (), required, wants_word=not is_switch and name not in _ALSO_SWITCHES
    )


# -- what it stops at --------------------------------------------------------------------------------


def _refused(started: Started, known: Known, run: Cells) -> Iterator[Ending]:
    if started.parser.is_lenient:
        return
    for name, entry in started.launch.flags.entries.items():
        if len(name) < 2 or name in _OF_PARSERS | _OF_LAUNCHERS or _may_differ(entry.value):
            continue
        options = known.of(name)
        if not options:
            why = f"{_stem(started)} stops at --{name}, which its parser does not know"
            yield Ending(why, _at(started, entry.key_span), When.SETTINGS)
            return
        value = _misfit(options, entry)
        if value is not None:
            why = f"{_stem(started)} stops at --{name} {value[0]}: it is no {value[1]}"
            yield Ending(why, _at(started, entry.key_span), When.SETTINGS)
            return
        if all(option.wants_word for option in options):
            lack = _without_word(entry, started, run)
            if lack:
                yield Ending(
                    f"{_stem(started)} stops at --{name}{lack}",
                    _at(started, entry.key_span),
                    When.SETTINGS,
                )
                return


def _misfit(options: tuple[Option, ...], entry: Entry) -> tuple[str, str] | None:
    """A value that none of the options that a name may stand for takes, and what they take."""
    words = _words(entry.value)
    kinds = {option.kind for option in options}
    choices = {option.choices for option in options}
    for word in words:
        if kinds == {"int"} and not re.fullmatch(_FITS["int"], word):
            return word, "whole number"
        if (
            "other" not in kinds
            and kinds <= {"int", "float"}
            and not re.fullmatch(_FITS["float"], word)
        ):
            return word, "number"
        if len(choices) == 1 and (allowed := next(iter(choices))) and word not in allowed:
            return word, f"choice of {', '.join(allowed)}"
    return None


def _without_word(entry: Entry, started: Started, run: Cells) -> str:
    """Why an option that wants a value gets none, in words behind its name; empty where it gets one."""
    value, document = entry.value, started.launch.document
    if not isinstance(value, Scalar):
        return ""
    path, at = document.source.path, place(value)
    if value.value is True and at.start == at.end:  # the next word is an option, or there is none
        is_last = entry is [*started.launch.flags.entries.values()][-1]
        is_cut = is_last and (started.launch.arguments or path.lower().endswith(_GUIDES))
        return "" if is_cut else ", which gets no value"
    bare = re.fullmatch(_BARE_VARIABLE, document.source.text[at.start : at.end])
    if value.value is not UNKNOWN or bare is None:
        return ""
    name = bare[1] or bare[2]
    return f": nothing sets ${name}" if run.known.is_unset(name, path) else ""


def _words(value: Node) -> list[str]:
    """The words of a value that are known as they stand: an empty one is a variable that whoever starts the script
    sets."""
    nodes = value.items if isinstance(value, Sequence) else (value,)
    values = [node.value for node in nodes if isinstance(node, Scalar)]
    words = (word for word in values if isinstance(word, str))
    return [word for word in words if word.strip() and not re.search(_LEFT_OUT, word)]


def _may_differ(value: Node) -> bool:
    return isinstance(value, Scalar) and value.may_differ


# -- what it misses ----------------------------------------------------------------------------------


def _missing(started: Started, known: Known) -> Iterator[Ending]:
    launch = started.launch
    if started.parser.may_take_a_file or _may_say_more(launch) or _is_named_alone(launch):
        return
    given = launch.flags.entries
    for name in known.required:
        if not any(name in option.names for key in given for option in known.of(key)):
            why = f"{_stem(started)} requires --{name}, which the command does not give"
            yield Ending(why, _at(started, launch.anchor), When.SETTINGS)
            return
    positional = [o for o in started.parser.options if o.is_positional and o.is_required]
    if positional and not launch.arguments and not any(map(_takes_several, given.values())):
        why = f"{_stem(started)} requires {positional[0].names[0]}, which the command does not give"
        yield Ending(why, _at(started, launch.anchor), When.SETTINGS)


def _may_say_more(launch: Launch) -> bool:
    """Whether the command may have further words: ``$EXTRA``, also behind a switch, or what a guide leaves out."""
    flags = list(launch.flags.entries.values())
    words: Iterable[Node] = (*launch.arguments, *(entry.value for entry in flags[-1:]))
    if launch.flags.open_ended or launch.arguments:
        return True
    return any(isinstance(w, Scalar) and w.value is UNKNOWN for w in words) or _is_sketch(launch)


def _is_named_alone(launch: Launch) -> bool:
    """Whether a guide only names the program, without any option: how it is started stands elsewhere."""
    return launch.document.source.path.lower().endswith(_GUIDES) and not launch.flags.entries


def _is_sketch(launch: Launch) -> bool:
    texts = [word for entry in launch.flags.entries.values() for word in _texts(entry.value)]
    return any(re.search(_LEFT_OUT, word) for word in texts)


def _texts(value: Node) -> list[str]:
    nodes = value.items if isinstance(value, Sequence) else (value,)
    return [
        node.value for node in nodes if isinstance(node, Scalar) and isinstance(node.value, str)
    ]


def _takes_several(entry: Entry) -> bool:
    return isinstance(entry.value, Sequence)


def _at(started: Started, span: Span) -> Location:
    return Location(started.launch.document.source.path, span)


def _stem(started: Started) -> str:
    return started.script.rpartition("/")[2]
