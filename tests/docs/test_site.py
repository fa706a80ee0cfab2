"""The documentation site: it is built without a warning and loads nothing from elsewhere."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest

from .conftest import ROOT

pytestmark = pytest.mark.slow

pytest.importorskip("zensical", reason="the site needs `pip install '.[docs]'`")

# What a browser fetches by itself; links to other sites are for people to follow.
_FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(https?:)?//|"""
    r"""<link\b(?=[^>]*rel=["']?(?:stylesheet|preconnect|preload|icon))[^>]*\bhref=["']?(https?:)?//""",
    re.IGNORECASE,
)
_FETCHED_BY_STYLE = re.compile(r"""url\(["']?(https?:)?//|@import\s+["'](https?:)?//""")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "docs", tree / "docs")
    for name in ("mkdocs.yml", "SECURITY.md"):
        shutil.copy(ROOT / name, tree)
    ran = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return tree / "site"


def test_the_site_is_whole(site):
    assert (site / "index.html").is_file()
    assert (site / "rules/no-gradient-checkpointing.html").is_file()
    assert "What is promised" in (site / "security.html").read_text("utf-8")


def test_it_loads_nothing_from_elsewhere(site):
    assert _FETCHED.search('<script src="https://x/y.js">'), "the pattern finds what it looks for"
    fetching = [p.name for p in site.rglob("*.html") if _FETCHED.search(p.read_text("utf-8"))]
    fetching += [p.name for p in site.rglob("*.css") if _FETCHED_BY_STYLE.search(p.read_text())]
    assert fetching == []


def test_it_asks_no_forge_for_its_stars(site):
    """The theme does so wherever it shows a repository: with ``repo_url`` each reader is seen by GitHub."""
    asking = [p for p in site.rglob("*.html") if 'data-md-component="source"' in p.read_text()]
    assert asking == []


def test_the_code_that_makes_pictures_is_no_part_of_it(site):
    assert not list(site.rglob("build.py")) + list(site.rglob("report.py"))
    assert (site / "images/report.svg").is_file()


def test_tables_have_heads_and_pictures_words(site):
    for page in site.glob("*.html"):
        text = page.read_text("utf-8")
        heads = re.findall(r"<thead>(.*?)</thead>", text, re.DOTALL)
        assert all(re.sub(r"<[^>]+>", "", head).strip() for head in heads), page
        pictures = re.findall(r"<img [^>]*>", text)
        assert not [each for each in pictures if not re.search(r'alt="[^"]{20,}"', each)], page


@pytest.mark.parametrize("words", ["CUDA out of memory", "exit code -9", "OOMKilled", "oom_kill"])
def test_the_page_of_errors_has_a_heading_with_what_people_paste(site, words):
    """What the search weighs most are titles."""
    items = json.loads((site / "search.json").read_text("utf-8"))["items"]
    titled = [item["location"] for item in items if words.lower() in item["title"].lower()]
    assert titled
    assert titled[0].startswith("errors.html"), titled


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    missing = [p.name for p in ROOT.glob("docs/*.md") if f" {p.name}\n" not in navigation]
    assert missing == []
