"""Habits in shell scripts that cost a run its settings: lost lines, lost variables."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from oomlint.documents.base import Command, Fact
from oomlint.documents.shell.carriage_returns import carriage_returns
from oomlint.documents.shell.names import (
    CUSTOMARY_NAMES,
    MUST_BE_EXPORTED,
    is_launch,
    known_environment,
)
from oomlint.documents.shell.side_facts import side_facts
from oomlint.documents.shell.syntax import ShellTree, prefix_is_cut
from oomlint.documents.text import Edit, Location, Source, Span
from oomlint.wording.spelling import distance, is_misspelling

if TYPE_CHECKING:
    from tree_sitter import Node as Syntax

_OPTION_LINE = re.compile(r"--?[A-Za-z]")
# `trainer.devices=8` as a command of its own can only be an override that lost its line.
_OVERRIDE_LINE = re.compile(r"\+{0,2}[A-Za-z_]\w*(?:\.\w+)+=")
# `${PERF_ARGS[@]}` below an option holds more of them.
_ARRAY_LINE = re.compile(r'"?\$\{\w*(?:ARGS|OPTS|OPTIONS|FLAGS)\w*\[@\]\}', re.IGNORECASE)
_PREFIX_LINE = re.compile(r"\s*(?:[A-Za-z_]\w*=\S*\s+)+\\\s*$", re.ASCII)
_JOIN = re.compile(r"[ \t]*(?:&&|;)[ \t]*")
_EXPORTS_ALL = re.compile(r"^[ \t]*set[ \t]+(?:-\w*a\w*|-o[ \t]+allexport)\b", re.MULTILINE)
_OPTION_AT_END = re.compile(r"(?:^|\s)--?[A-Za-z][\w-]*$")
_COMMENT_AFTER_BACKSLASH = re.compile(r"\\([ \t]+(#.*))$")
_CONTINUED = re.compile(r"[ \t]*\\")
_REFERENCE = re.compile(r"\$\{?([A-Za-z_]\w*)", re.ASCII)


def facts_of(
    source: Source, scripts: Sequence[ShellTree], commands: Sequence[Command]
) -> tuple[Fact, ...]:
    """All facts of a script, in the order in which they stand.

    Kinds: ``broken-continuation`` (detail ``reason``: ``no-backslash``, ``ended-above-comment``, ``blank-after-backslash``,
    ``blank-line``, ``comment`` or, of a whole script, ``carriage-return``), ``return-at-end``, ``env-not-exported`` (``name``, ``value``,
    ``program`` that does not get it), ``unknown-env``
    (``name``, ``known``, ``value``), and those of :func:`~oomlint.documents.shell.side_facts.side_facts`.
    """
    facts: list[Fact] = []
    for script in scripts:
        facts += _joined(_broken_continuations(source, script))
        facts += _not_exported(source, script)
        facts += _unknown_names(source, script)
    facts += side_facts(source, commands)
    facts += carriage_returns(source, commands)
    return tuple(sorted(facts, key=lambda fact: (fact.location.span, fact.kind)))


def _fact(
    source: Source, kind: str, span: Span, detail: Mapping[str, Any], mend: Sequence[Edit] = ()
) -> Fact:
    return Fact(kind, Location(source.path, span), detail, tuple(mend))


def _nodes(root: Syntax, *kinds: str) -> Iterator[Syntax]:
    """Nodes of some kinds outside of what could not be parsed, in file order."""
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type == "ERROR":
            continue
        if node.type in kinds:
            yield node
        stack += reversed(node.named_children)


# -- lines that lost their command --------------------------------------------------------


def _broken_continuations(source: Source, script: ShellTree) -> Iterator[Fact]:
    seen: set[int] = set()
    astray: set[int] = set()
    for command in _nodes(script.root, "command"):
        span = script.text.span(command)
        line, column = source.position(span.start)
        if not _is_lone_option(source, script, command, line):
            continue
        if _text(source, line)[: column - 1].strip():
            continue
        found = _above_option(source, line, span)
        if found is None:
            astray.add(line)
            continue
        seen.update(range(source.position(found.location.span.start)[0], line))
        if found.detail["top"] in astray:
            # What it is joined to has lost its command, too, in a way that nothing mends.
            astray.add(found.detail["lost_line"])
            found = replace(found, mend=())
        yield found
    yield from _comments_behind_variables(source, script, seen)


def _is_lone_option(source: Source, script: ShellTree, command: Syntax, line: int) -> bool:
    """Whether what looks like a command is an option whose command ended above."""
    if not script.sound(command):
        return False
    text = script.text.of(command)
    is_named = command.child_by_field_name("name") is not None
    if not is_named or not (_OPTION_LINE.match(text) or _OVERRIDE_LINE.match(text)):
        before = _text(source, max(1, line - 1))
        if not _ARRAY_LINE.match(text) or not before.lstrip().startswith("-"):
            return False
    above = command.prev_named_sibling
    # Behind an assignment there is no command that could take an option.
    return above is None or above.type not in _ASSIGNMENTS


def _comments_behind_variables(
    source: Source, script: ShellTree, seen: Container[int]
) -> Iterator[Fact]:
    """Comments between variables and the command that they are for; ``seen``: lines of which something is said."""
    for comment in _nodes(script.root, "comment"):
        line, column = source.position(script.text.span(comment).start)
        if line in seen or line < 2 or _in_array(comment):
            continue
        if _text(source, line)[: column - 1].strip():
            continue
        if not _PREFIX_LINE.match(_text(source, line - 1)):
            continue
        # The variables never reach the command.
        last = line
        while last < len(source.line_starts) and _text(source, last + 1).lstrip().startswith("#"):
            last += 1
        if last < len(source.line_starts) and _text(source, last + 1).strip():
            following = source.line_span(last + 1)
            yield _comment_fact(source, line, last, following)


def _joined(facts: Iterable[Fact]) -> Iterator[Fact]:
    """The same faults, with those that cut one command again and again as one of them."""
    open_fact: Fact | None = None
    for fact in facts:
        if open_fact is None:
            open_fact = fact
        elif fact.detail["top"] == open_fact.detail["lost_line"] and (
            _is_unfilled(open_fact) or _is_unfilled(fact) or (fact.mend and open_fact.mend)
        ):
            lost = fact.detail["lost_line"]
            is_unfilled = _is_unfilled(open_fact) or _is_unfilled(fact)
            open_fact = replace(
                open_fact,
                detail={
                    **open_fact.detail,
                    "lost_line": lost,
                    "cuts": open_fact.detail["cuts"] + 1,
                    "unfilled": is_unfilled,
                },
                mend=() if is_unfilled else _mended_together(open_fact, fact),
            )
        else:
            yield open_fact
            open_fact = fact
    if open_fact is not None:
        yield open_fact


def _is_unfilled(fact: Fact) -> bool:
    """Whether somebody took values away that only they can put back."""
    return bool(fact.detail.get("unfilled"))


def _mended_together(first: Fact, second: Fact) -> tuple[Edit, ...]:
    """The edits of two faults of one command; comments go above all of it."""
    moved = "".join(edit.replacement for edit in second.mend if _moves_up(edit))
    moved = _indented(moved, first.detail["indent"])
    edits = [*first.mend, *(edit for edit in second.mend if not _moves_up(edit))]
    if not moved:
        return tuple(edits)
    for number, edit in enumerate(edits):
        if _moves_up(edit):
            edits[number] = replace(edit, replacement=edit.replacement + moved)
            return tuple(edits)
    head = first.detail["head"]
    return (Edit(first.location.path, head, head, moved), *edits)


def _moves_up(edit: Edit) -> bool:
    """Whether an edit puts comment lines above a command, and not a backslash behind a line."""
    return edit.start == edit.end and edit.replacement.lstrip().startswith("#")


_TEXT_AFTER_BACKSLASH = re.compile(r"\s\\\w")


def _comment_above(source: Source, last: int, span: Span) -> Fact | None:
    """Whether comments down to the line ``last`` cut a command."""
    above = last
    while above >= 1 and _text(source, above).lstrip().startswith("#"):
        above -= 1
    if above < 1:
        return None
    if not _text(source, above).endswith("\\"):
        return _ended_above_comment(source, above, span)
    return _comment_fact(source, above + 1, last, span)


def _ended_above_comment(source: Source, above: int, span: Span) -> Fact | None:
    """Of an option below comments that the command above them, one over several lines, had ended already: which of the
    comments are about which option, and whether the rest was ever meant, only its author knows."""
    if above < 2 or not _continues(_text(source, above - 1)):
        return None
    detail = _cut(source, "ended-above-comment", above, source.position(span.start)[0])
    return _fact(source, "broken-continuation", span, {**detail, "unfilled": True}, [])


def _above_option(source: Source, line: int, span: Span) -> Fact | None:
    """Why an option stands alone on its line, from the lines above it."""
    above = line - 1
    blank = False
    while above >= 1 and not _text(source, above).strip():
        above -= 1
        blank = True
    if above < 1:
        return None
    text = _text(source, above)
    kind = "broken-continuation"
    if text.lstrip().startswith("#"):
        return None if blank else _comment_above(source, above, span)
    end = source.line_span(above).end
    if text.endswith("\\"):
        if not blank:
            return None
        start, stop = source.line_starts[above], source.line_starts[line - 1]
        mend = [Edit(source.path, start, stop, "")]
        return _fact(source, kind, span, _cut(source, "blank-line", above, line), mend)
    if trailing := _COMMENT_AFTER_BACKSLASH.search(text):
        return _trailing_comment_fact(source, above, line, trailing)
    bare = text.rstrip()
    if bare.endswith("\\"):
        lost = Span(source.line_starts[above - 1] + len(bare), end)
        mend = [Edit(source.path, lost.start, lost.end, "")] if not blank else []
        detail = _cut(source, "blank-after-backslash", above, line)
        return _fact(source, kind, lost, detail, mend)
    if blank or bare.endswith((";", "&", "|", "{", "(", "then", "do", "else")) or "<<" in text:
        return None
    return _without_backslash(source, above, line, span)


def _without_backslash(source: Source, above: int, line: int, span: Span) -> Fact:
    """The fault of a command whose line ``above`` does not say that it goes on."""
    kind, text = "broken-continuation", _text(source, above)
    bare = text.rstrip()
    first = _first_wrapped(source, above)
    if first <= above:
        detail = {**_cut(source, "no-backslash", first - 1, line), "cuts": line - first + 1}
        return _fact(source, kind, source.line_span(first), detail, [])
    place = source.line_starts[above - 1] + len(bare)
    detail = _cut(source, "no-backslash", above, line)
    if (text != bare and _OPTION_AT_END.search(bare)) or _TEXT_AFTER_BACKSLASH.search(bare):
        # "--tokenizer-type " with a blank behind it: its value is gone, and with it the backslash. And what was
        # pasted behind one ("\\https://…") is no argument: what was meant only its author knows.
        return _fact(source, kind, span, {**detail, "unfilled": True}, [])
    end = source.line_span(above).end
    return _fact(source, kind, span, detail, [Edit(source.path, place, end, " \\")])


# What a terminal wraps is a line as wide as it is.
_WIDE = 80
_HAS_OPTIONS = re.compile(r"\s--?[A-Za-z]")


def _first_wrapped(source: Source, last: int) -> int:
    """The line after the first, of those down to ``last``, into which a terminal wrapped one command, where it was copied
    from: a line that begins in the middle of a word is no command. ``last + 1`` where the last is one."""
    first = last + 1
    while first > 2 and _is_wrapped(_text(source, first - 1), _text(source, first - 2)):
        first -= 1
    return first


def _is_wrapped(text: str, above: str) -> bool:
    """Whether a line goes on with the one above, which is wide, has options and ends in no sign that it goes on."""
    words = text.split()
    if not words or text[:1].isspace() or "=" in words[0] or is_launch(words[0]):
        return False
    is_command = len(above) >= _WIDE and not above.lstrip().startswith("#")
    both = _HAS_OPTIONS.search(text) and _HAS_OPTIONS.search(above)
    return bool(both) and is_command and not above.rstrip().endswith(("\\", ";", "&", "|"))


def _cut(source: Source, reason: str, above: int, lost_line: int) -> dict[str, Any]:
    """What a fault knows of its command, which line ``above`` ends too early: where that begins,
    as a line and as an offset, how far it is indented, and on which line the lost part does."""
    top = _first_line(source, above)
    head = source.line_starts[top - 1]
    text = _text(source, top)
    return {
        "reason": reason,
        "top": top,
        "head": head,
        "indent": text[: len(text) - len(text.lstrip(" \t"))],
        "lost_line": lost_line,
        "cuts": 1,
    }


def _indented(lines: str, indent: str) -> str:
    """Comment lines as they stand above a command that is indented so."""
    return "".join(indent + line.lstrip(" \t") for line in lines.splitlines(keepends=True))


def _comment_fact(source: Source, first: int, last: int, span: Span) -> Fact:
    """Comment lines ``first`` to ``last`` cut a command in two: they go above it."""
    detail = _cut(source, "comment", first - 1, source.position(span.start)[0])
    start, stop, head = source.line_starts[first - 1], source.line_starts[last], detail["head"]
    moved = _indented(source.text[start:stop], detail["indent"])
    mend = (Edit(source.path, head, head, moved), Edit(source.path, start, stop, ""))
    place = Span(start, source.line_span(last).end)
    return _fact(source, "broken-continuation", place, detail, mend)


def _trailing_comment_fact(source: Source, line: int, lost_line: int, match: re.Match[str]) -> Fact:
    """``--a 1 \\  # why``: the backslash escapes a blank. The comment goes above the command."""
    detail = _cut(source, "blank-after-backslash", line, lost_line)
    head, start = detail["head"], source.line_starts[line - 1]
    moved = detail["indent"] + match.group(2) + source.newline
    lost = Span(start + match.start(1), start + match.end())
    mend = (
        Edit(source.path, head, head, moved),
        Edit(source.path, lost.start, lost.end, ""),
    )
    return _fact(source, "broken-continuation", lost, detail, mend)


def _first_line(source: Source, line: int) -> int:
    """The line on which the command that reaches ``line`` begins; a backslash that ends a comment continues nothing."""
    while line > 1 and _continues(_text(source, line - 1)):
        line -= 1
    return line


def _continues(text: str) -> bool:
    return text.endswith("\\") and not text.lstrip().startswith("#")


def _text(source: Source, line: int) -> str:
    span = source.line_span(line)
    return source.text[span.start : span.end]


def _in_array(node: Syntax) -> bool:
    return node.parent is not None and node.parent.type == "array"


# -- environment variables ----------------------------------------------------------------


def _not_exported(source: Source, script: ShellTree) -> Iterator[Fact]:
    """Assignments of variables that a launch further down was meant to see and does not."""
    if _EXPORTS_ALL.search(source.text):
        return
    exported = _exported_names(script)
    used = set(_REFERENCE.findall(source.text))
    launches = {
        _command_start(script, command): program.rpartition("/")[2]
        for command in _nodes(script.root, "command")
        if script.sound(command) and is_launch(program := _program(script, command))
    }
    prefixed = {
        script.text.of(child).split("=")[0]
        for command in _nodes(script.root, "command")
        if not prefix_is_cut(script.text, command)
        for child in command.named_children
        if child.type == "variable_assignment"
    }
    for each in _assignment_lines(script):
        lost = [
            assignment
            for assignment in each
            if (name := script.text.of(assignment).split("=")[0]) in MUST_BE_EXPORTED
            and name not in exported | used | prefixed
        ]
        span = Span(script.text.span(each[0]).start, script.text.span(each[-1]).end)
        after = [launch for launch in launches if launch >= span.end]
        if not lost or not after or _inside_condition(each[0]):
            continue
        if _CONTINUED.match(source.text, span.end):
            continue  # a comment cut it off from its command: that is the fault to mend
        name, _, value = script.text.of(lost[0]).partition("=")
        detail = {"name": name, "value": value.strip("\"'"), "program": launches[after[0]]}
        between = source.text[span.end : after[0]]
        if _JOIN.fullmatch(between):
            mend = Edit(source.path, span.end, after[0], " ")
        else:
            mend = Edit(source.path, span.start, span.start, "export ")
        yield _fact(source, "env-not-exported", span, detail, [mend])


_ASSIGNMENTS = ("variable_assignment", "variable_assignments")
_NO_STATEMENT_IN = frozenset({"command", "declaration_command", "variable_assignments", "array"})


def _assignment_lines(script: ShellTree) -> Iterator[list[Syntax]]:
    """Assignments that are statements of their own, those on one line together."""
    for node in _nodes(script.root, "variable_assignment", "variable_assignments", "command"):
        parent = node.parent
        if parent is None or not script.sound(node):
            continue
        children = [c for c in node.named_children if c.type == "variable_assignment"]
        if node.type == "command":
            if prefix_is_cut(script.text, node):
                yield children
        elif parent.type not in _NO_STATEMENT_IN:
            yield children if node.type == "variable_assignments" else [node]


def _command_start(script: ShellTree, command: Syntax) -> int:
    name = command.child_by_field_name("name")
    cut = name is not None and prefix_is_cut(script.text, command)
    return script.text.span(name if name is not None and cut else command).start


def _inside_condition(node: Syntax) -> bool:
    """An assignment that may not run is exported, if at all, by someone else's choice."""
    parent = node.parent
    while parent is not None:
        if parent.type in ("c_style_for_statement", "function_definition", "test_command"):
            return True
        parent = parent.parent
    return False


def _exported_names(script: ShellTree) -> set[str]:
    names: set[str] = set()
    for node in _nodes(script.root, "declaration_command"):
        words = script.text.of(node).split()
        if words[0] == "export" or any(re.fullmatch(r"-\w*x\w*", word) for word in words[1:]):
            names |= {word.split("=")[0].rstrip("+") for word in words[1:]}
    return names


def _program(script: ShellTree, command: Syntax) -> str:
    name = command.child_by_field_name("name")
    words = [script.text.of(name)] if name is not None else []
    words += [script.text.of(child) for child in command.children_by_field_name("argument")]
    plain = [word for word in words if word not in ("nohup", "time", "exec", "env", "eval")]
    return plain[0] if plain else ""


def _unknown_names(source: Source, script: ShellTree) -> Iterator[Fact]:
    """Exported or prefixed names that miss a known one by a letter or two."""
    used = set(_REFERENCE.findall(source.text))
    for assignment in _nodes(script.root, "variable_assignment"):
        parent, name_node = assignment.parent, assignment.child_by_field_name("name")
        if parent is None or name_node is None or parent.type not in _REACHES_PROGRAMS:
            continue
        if not script.sound(assignment):
            continue
        name = script.text.of(name_node)
        if (
            name in known_environment() | CUSTOMARY_NAMES
            or name in used
            or len(name) < _SHORTEST_NAME
        ):
            continue
        known = nearest_name(name)
        if known is None:
            continue
        span, given = script.text.span(name_node), assignment.child_by_field_name("value")
        value = "" if given is None else script.text.of(given).strip("\"'")
        mend = Edit(source.path, span.start, span.end, known)
        detail = {"name": name, "known": known, "value": value}
        yield _fact(source, "unknown-env", span, detail, [mend])


_REACHES_PROGRAMS = frozenset({"command", "declaration_command"})
_SHORTEST_NAME = 8
# Two changed letters in a short name make another name (NUM_GPUS, NUM_CPUS).
_TWO_LETTERS_FROM = 12


def nearest_name(name: str) -> str | None:
    """The one known variable that ``name`` must have meant, or ``None``.

    Names in a family differ from one another by little (``NCCL_IB_TC``, ``NCCL_IB_SL``), so
    two candidates at the same distance count as none.
    """
    most = 2 if len(name) >= _TWO_LETTERS_FROM else 1
    best: dict[int, list[str]] = {}
    for known in known_environment():
        # Another first letter is another library: HCCL_, RCCL_ and MCCL_ follow NCCL_.
        if (
            known[0] == name[0]
            and abs(len(known) - len(name)) <= most
            and min(len(known), len(name)) >= _SHORTEST_NAME
        ):
            letters = distance(name, known, most)
            if letters <= most and is_misspelling(name, known):
                best.setdefault(letters, []).append(known)
    if not best:
        return None
    nearest = best[min(best)]
    return nearest[0] if len(nearest) == 1 else None
