"""One unified diff of everything that the fixes change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import unified_diff

from oomlint.report.paint import Paint, visible

_PLAIN = Paint()
_QUOTED = re.compile(r'["\\]')


def render(
    texts: Mapping[str, bytes], originals: Mapping[str, bytes | None], paint: Paint = _PLAIN
) -> str:
    """Display path → bytes, after and before, as a diff that ``patch`` and ``git apply`` take.

    A new file has no bytes before.
    """
    return "".join(
        line for path in sorted(texts) for line in _file(path, originals[path], texts[path], paint)
    )


def _file(path: str, old: bytes | None, new: bytes, paint: Paint) -> Iterator[str]:
    name = path.lstrip("/")
    before = "/dev/null" if old is None else _named(f"a/{name}")
    for line in unified_diff(_lines(old or b""), _lines(new), before, _named(f"b/{name}")):
        text = line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
        yield _painted(text, paint)


def _named(path: str) -> str:
    """A name as git writes it: quoted, with bytes in octal, where it holds what moves a terminal (git's quote.c,
    quote_c_style), which ``patch`` and ``git apply`` read; with a tab behind blanks, up to which ``patch`` takes it."""
    if visible(path) == path and not _QUOTED.search(path):
        return path + ("\t" if " " in path else "")
    data = path.encode("utf-8", "surrogateescape")
    told = (
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\{byte:03o}"
        for byte in data
    )
    return f'"{"".join(told)}"'


def _lines(data: bytes) -> list[str]:
    """Lines as ``diff`` cuts them, at line feeds only; carriage returns stay in them."""
    text = data.decode("utf-8")
    *whole, rest = text.split("\n")
    return [line + "\n" for line in whole] + ([rest] if rest else [])


def _painted(text: str, paint: Paint) -> str:
    styles = {"+++": "bold", "---": "bold", "@@": "hunk", "+": "good", "-": "removed"}
    for prefix, style in styles.items():
        if paint.enabled and text.startswith(prefix):
            return paint(text.rstrip("\n"), style) + "\n"
    return text
