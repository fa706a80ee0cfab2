"""What the commands of a script do to the script itself: they change variables, run functions, scripts in quotes and
here-documents, and write files."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from oomlint.documents.shell.bindings import assignment_word, behind_option
from oomlint.documents.shell.commands import common_level
from oomlint.documents.shell.files import (
    COPYING,
    WrittenFile,
    content_of,
    copied_names,
    written_names,
    written_source,
)
from oomlint.documents.shell.folders import Folders
from oomlint.documents.shell.names import SHELLS
from oomlint.documents.shell.syntax import (
    HIDDEN_IN_HEREDOC,
    HIDDEN_IN_QUOTES,
    ShellTree,
    heredoc_expands,
)
from oomlint.documents.shell.words import Field, field_text
from oomlint.documents.text import Span

if TYPE_CHECKING:
    from tree_sitter import Node as Syntax

    from oomlint.documents.shell.reader import Reader

# Calls of functions that are followed, of each and in all: an ablation calls its "train" two dozen times,
# and what evaluates after each of these.
_MOST_CALLS = 32
_MOST_CALLED = 128
# Programs to which a command is handed in quotes, to be run elsewhere.
_TAKE_A_COMMAND = frozenset({"ssh", "pdsh", "tmux", "screen", "sbatch", "script", "su", "watch"})


def consequences(
    reader: Reader,
    script: ShellTree,
    node: Syntax,
    fields: list[Field],
    redirects: tuple[Syntax, ...],
) -> None:
    """What a command does to the script itself: defines, sources, runs quoted text."""
    texts = [field_text(words) for words in fields]
    program = (texts[0] or "").rsplit("/", 1)[-1]
    heredoc = next((r for r in redirects if r.type == "heredoc_redirect"), None)
    if _changes_state(reader, script, node, program, fields, heredoc):
        pass
    elif program in reader.functions:
        _call(reader, program, fields[1:])
    elif program in ("source", ".") and len(texts) > 1 and texts[1]:
        reader.source_file(script, node, texts[1])
    elif heredoc is not None and (program in SHELLS or program in ("sbatch", "ssh")):
        if program == "sbatch":
            reader.batches.append(script.text.span(heredoc))
        _heredoc_script(reader, script, heredoc)
    elif program == "printf" and texts[1:2] == ["-v"]:
        reader.variables.print_into(script, node, texts[2:])
    elif program in COPYING:
        reader.made.update(map(posixpath.normpath, copied_names(texts)))
    elif program in ("cat", "echo", "printf", "tee"):
        _written(reader, script, node, fields, redirects)
    _runs_other(reader, script, texts, fields)


def _changes_state(
    reader: Reader,
    script: ShellTree,
    node: Syntax,
    program: str,
    fields: list[Field],
    heredoc: Syntax | None,
) -> bool:
    """Whether a command is one that changes variables, the folder or the loop that it is in; if so, it has."""
    texts = [field_text(words) for words in fields]
    if program == "set" and (set(texts) & {"-a", "allexport"} or "-ea" in texts):
        reader.variables.export_all = "+o" not in texts
    elif program == "shift":
        count = texts[1] if len(texts) > 1 else "1"
        reader.variables.shift(int(count) if count and count.isdigit() else 0)
    elif program == "break":
        reader.is_left = True
    elif program in Folders.PROGRAMS:
        span = script.text.span(node)
        written = reader.source.text[span.start : span.end]
        reader.folders.change(
            program,
            texts[1:],
            is_to_own=reader.own_folder.is_in(written),
            is_plain=not {"$", "`"} & set(written),
        )
    elif program == "read":
        reader.variables.read(script, node, texts, heredoc)
    elif program == "export":  # taken for a program after a line of assignments
        for words in fields[1:]:
            binding = assignment_word(words)
            if binding is not None:
                reader.variables.held[binding.name] = binding
                reader.variables.exports.add(binding.name)
    else:
        return False
    return True


def _runs_other(
    reader: Reader, script: ShellTree, texts: list[str | None], fields: list[Field]
) -> None:
    """Read the script in quotes, or the one that was written before, that a command runs."""
    for number, text in enumerate(texts):
        if text is None:
            continue
        name = text.rsplit("/", 1)[-1]
        if name in SHELLS and texts[number + 1 : number + 2] in (["-c"], ["-lc"], ["-ic"]):
            quoted_script(reader, fields[number + 2 : number + 3], script)
            return
        if name in _TAKE_A_COMMAND and not number:
            handed = [behind_option(words) for words in fields[1:]]
            read = [quoted_script(reader, [words], script) for words in handed if words]
            if any(read):
                return
        before = (texts[number - 1] or "").rsplit("/", 1)[-1] if number else ""
        runs_it = not number or before in SHELLS or before == "sbatch"
        if text in reader.jobs and runs_it:
            owner, heredoc = reader.jobs.pop(text)
            if "sbatch" in texts[:number]:
                reader.batches.append(owner.text.span(heredoc))
            _heredoc_script(reader, owner, heredoc)
            return


def _call(reader: Reader, name: str, arguments: list[Field]) -> None:
    """Run a function: its arguments are ``$1`` and so on while it runs."""
    reader.calls[name] = reader.calls.get(name, 0) + 1
    if reader.calls[name] > _MOST_CALLS or sum(reader.calls.values()) > _MOST_CALLED:
        return
    owner, body = reader.functions[name]
    with reader.variables.called_with(arguments):
        reader.statements(owner, body)


def _written(
    reader: Reader,
    script: ShellTree,
    node: Syntax,
    fields: list[Field],
    redirects: tuple[Syntax, ...],
) -> None:
    """``cat > job.sh <<EOF``: a script is read where it is run, a config where it is named."""
    heredoc = next((r for r in redirects if r.type == "heredoc_redirect"), None)
    expander = reader.variables.expander(script)
    for name in written_names(script, expander, fields, redirects):
        reader.made.add(name)
        if heredoc is not None:
            reader.jobs[name] = reader.jobs["./" + name] = (script, heredoc)
        if not script.text.forbidden:
            content = content_of(script, expander, fields, heredoc)
            text = written_source(reader.source, content[0], name) if content else None
            if content is not None and text is not None:
                file = WrittenFile(reader.source, text.source, content[1], text.too_long)
                _note_file(reader, name.removeprefix("./"), file, node)


def _note_file(reader: Reader, name: str, file: WrittenFile, node: Syntax) -> None:
    """Of several texts of a file the last counts, of those of one command, which a loop or a function repeats, the
    first: with it the program is started first."""
    if reader.writes.get(name) != node.start_byte:
        reader.files[name] = file
    reader.writes[name] = node.start_byte


def _heredoc_script(reader: Reader, script: ShellTree, heredoc: Syntax) -> None:
    body = next((c for c in heredoc.children if c.type == "heredoc_body"), None)
    if body is None or script.text.forbidden:
        return
    expands = heredoc_expands(script, heredoc)
    hidden = HIDDEN_IN_HEREDOC if expands else None
    reader.nested(script.text.span(body), "$`" if expands else "", hidden)


def quoted_script(reader: Reader, fields: list[Field], script: ShellTree) -> bool:
    """Read a script in quotes, where one place holds all of it; whether it did."""
    chunks = [chunk for words in fields for chunk in words]
    if not chunks or script.text.forbidden:
        return False
    level = common_level(chunks)
    steps = [chunk.path[level] for chunk in chunks]
    container, quote = steps[0].container, steps[0].quote
    if container.shared or not (quote or container.kind == "heredoc"):
        return False
    if container.kind in ("value", "heredoc"):
        span = container.span
    else:
        span = Span(min(s.span.start for s in steps), max(s.span.end for s in steps))
    inner = reader.source.text[span.start : span.end]
    if not re.search(r"\s", inner):
        return False
    hidden = {"'": None, '"': HIDDEN_IN_QUOTES}.get(quote, HIDDEN_IN_HEREDOC)
    reader.nested(span, {"'": "'", '"': '"$`\\'}.get(quote, "$`"), hidden)
    return True
