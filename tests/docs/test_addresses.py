"""The project's address is the same wherever it stands."""

import re

import pytest

from oomlint.wording.addresses import DOCUMENTATION, REPOSITORY, SCHEMAS

from .conftest import PAGES, ROOT

# Files that cannot import the constant.
SAYING = [
    ROOT / "mkdocs.yml", ROOT / "editors/vscode/package.json", ROOT / "README.md", ROOT / "docs/ci.md",
    ROOT / "docs/review.md",
]  # fmt: skip
OWNER_AND_NAME = REPOSITORY.removeprefix("https://github.com/")


@pytest.mark.parametrize("file", SAYING, ids=lambda f: f.relative_to(ROOT).as_posix())
def test_the_repository_is_called_by_its_one_address(file):
    text = file.read_text("utf-8")
    found = re.findall(r"(?:https://github\.com/|uses: )([\w.-]+/oomlint)\b", text)
    assert found
    assert set(found) == {OWNER_AND_NAME}


def test_no_code_and_no_other_page_has_an_address_of_its_own():
    code = [f for part in ("lint", "rules", "schemas") for f in (ROOT / part).rglob("*.py")]
    rest = [f for f in [*code, *PAGES] if f not in SAYING and f.name != "addresses.py"]
    assert [f for f in rest if REPOSITORY in f.read_text("utf-8")] == []


def test_the_other_addresses_are_below_it():
    assert DOCUMENTATION.startswith(REPOSITORY)
    assert f"/{OWNER_AND_NAME}/" in SCHEMAS
