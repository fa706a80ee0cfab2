"""Links of the pages lead somewhere, as far as that can be known offline: to files, and to headings in them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from .conftest import PAGES, ROOT

EVERY = [
    *PAGES,
    *sorted((ROOT / "docs/rules").glob("*.md")),
    *sorted((ROOT / ".github").rglob("*.md")),
]
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def without_code(text: str) -> str:
    return re.sub(r"(?ms)^([ ]*)(`{3,}).*?^\1\2|`[^`\n]*`", "", text)


@cache
def headings(page: Path) -> frozenset[str]:
    """The anchors of a page, as Python-Markdown's toc and forges make them of its headings."""
    text = page.read_text("utf-8")
    if page.name == "security.md":  # it is the file that forges look for
        text = (ROOT / "SECURITY.md").read_text("utf-8")
    found = set()
    for title in re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^(`{3,}).*?^\1", "", text)):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
        kept = re.sub(r"[^\w\s-]", "", plain).strip().lower()
        found |= {re.sub(r"[-\s]+", "-", kept), re.sub(r"\s", "-", kept)}
    return frozenset(found)


def wrong(page: Path) -> list[str]:
    found = []
    for link in _LINK.findall(without_code(page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        # The playground's page and what is built for the site stand beside the pages.
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in headings(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert wrong(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# One two\n[x](#one-two) [y](#two) [z](b.md) `[c](d.md)`\n")
    assert wrong(page) == ["#two", "b.md"]
