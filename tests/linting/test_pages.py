"""The rules' pages in ``docs/rules`` are those that the code makes."""

from pathlib import Path

import pytest

from oomlint.linting.engine import all_rules
from oomlint.linting.pages import FAMILIES, index, main, page, pages
from oomlint.linting.rule import Applicability, Example, Rule, Severity
from oomlint.report.places import url
from oomlint.wording.addresses import DOCUMENTATION

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "rules"


def test_committed_pages_are_up_to_date():
    own = [rule for rule in all_rules() if not rule.origin]
    wanted = pages(own)
    committed = {file.name: file.read_text("utf-8") for file in FOLDER.iterdir()}
    differing = sorted(n for n in {*wanted, *committed} if wanted.get(n) != committed.get(n))
    assert not differing, "run `python -m oomlint.linting.pages docs/rules`"


def test_the_url_of_a_finding_leads_to_a_page_that_is_there():
    for rule in all_rules():
        if not rule.origin:
            path = url(rule).removeprefix(DOCUMENTATION)
            assert (ROOT / "docs" / path).is_file(), url(rule)
    assert (ROOT / "docs" / "plugins.md").is_file()


class Loud(Rule):
    code = "ACM101"
    name = "loud"
    summary = "speaks | always"
    applicability = Applicability.UNSAFE
    bad = (
        Example(
            files={"a.yaml": "base_model: x/Llama-3.2-1B\nmicro_batch_size: 1\nval: '```'\n"},
            fixed={"a.yaml": "base_model: x/Llama-3.2-1B\nmicro_batch_size: 2\nval: '```'\n"},
            hardware="1xA100-80GB",
            host_memory="64GiB",
        ),
    )

    def check(self, run):
        yield self.finding(run, Severity.INFO, "loud", at="batch.micro")
        yield self.finding(run, Severity.ERROR, "louder", at="batch.micro")


def test_a_page_says_what_the_examples_show():
    text = page(Loud)
    assert text.startswith("# loud (ACM101)\n\n| severity | fix | examples in |\n")
    assert "| error or info | unsafe | axolotl |" in text
    assert "## Example, on 1xA100-80GB, with 64GiB of RAM a node" in text
    assert "\n-micro_batch_size: 1\n+micro_batch_size: 2\n" in text
    assert "\n````yaml\nbase_model" in text, "a fence longer than those in the text"


def test_the_index_has_every_family_and_rules_of_others(tmp_path):
    text = (FOLDER / "README.md").read_text("utf-8")
    assert [title for title in FAMILIES.values() if f"\n## {title}\n" not in text] == []
    known = pages([Loud])["README.md"]
    assert "\n## ACM1\n" in known
    assert "| ACM101 | [loud](loud.md) | speaks \\| always | error or info | unsafe |" in known
    assert index({}) in text


def test_pages_of_a_package_are_written_and_stale_ones_go(tmp_path, monkeypatch, capsys):
    (tmp_path / "quiet_rules.py").write_text(
        '"""Never speaks."""\n'
        "from oomlint import Rule\n"
        "class Quiet(Rule):\n"
        "    code, name, summary = 'ACM102', 'quiet', 'never speaks'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "gone.md").write_text("old")
    assert main([str(folder), "quiet_rules"]) == 0
    assert sorted(file.name for file in folder.iterdir()) == ["README.md", "quiet.md"]
    assert "| – | none | – |\n\nNever speaks.\n" in (folder / "quiet.md").read_text()
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(file.name for file in FOLDER.glob("*.md")))
def test_pages_name_nothing_of_the_machine(name):
    text = (FOLDER / name).read_text("utf-8")
    assert "/oomlint-example" not in text
    assert "object at 0x" not in text
